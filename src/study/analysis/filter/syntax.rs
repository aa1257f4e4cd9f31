//! Filter syntax: parsing and printing of terms and values.

use std::borrow::Cow;
use std::fmt;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Filter {
    pub terms: Vec<Term>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Term {
    pub negated: bool,
    pub test: Test,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Test {
    Word {
        text: String,
        /// True if the word was quoted: matches literally, not fuzzily.
        exact: bool,
    },
    Field {
        name: String,
        operator: Operator,
        value: String,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operator {
    /// `:` text contains the value; number equals it.
    Has,
    /// `~` text contains the value; so do a number's digits.
    Contains,
    /// `=` equal to the value.
    Is,
    /// `!=` not equal to the value.
    IsNot,
    Below,
    AtMost,
    Above,
    AtLeast,
}

impl Operator {
    /// Longer operators first, so that `>=` is not parsed as `>`.
    const ALL: [Self; 8] = [
        Self::AtLeast,
        Self::AtMost,
        Self::IsNot,
        Self::Is,
        Self::Above,
        Self::Below,
        Self::Contains,
        Self::Has,
    ];

    pub fn as_str(self) -> &'static str {
        match self {
            Self::Has => ":",
            Self::Contains => "~",
            Self::Is => "=",
            Self::IsNot => "!=",
            Self::Below => "<",
            Self::AtMost => "<=",
            Self::Above => ">",
            Self::AtLeast => ">=",
        }
    }

    /// True if several values are alternatives: `tp:4,8`.
    pub(super) fn takes_several(self) -> bool {
        matches!(self, Self::Has | Self::Contains | Self::Is | Self::IsNot)
    }

    /// `value` as written after the operator: quoted if it contains characters that separate terms, or if operator and
    /// value would read as a longer operator (`<` before `=`).
    pub(super) fn written(self, value: &str) -> Cow<'_, str> {
        let parts = value.contains(|c: char| c.is_whitespace() || matches!(c, '"' | '\\'));
        let longer = Self::ALL.into_iter().any(|other| {
            let rest = other.as_str().strip_prefix(self.as_str());
            rest.is_some_and(|rest| !rest.is_empty() && value.starts_with(rest))
        });
        if parts || longer { Cow::Owned(quoted(value)) } else { Cow::Borrowed(value) }
    }

    /// First operator in `text` after its first character, with its byte offset.
    pub(super) fn first_in(text: &str) -> Option<(usize, Self)> {
        text.char_indices().skip(1).find_map(|(at, _)| {
            let rest = &text[at..];
            Some((at, Self::ALL.into_iter().find(|o| rest.starts_with(o.as_str()))?))
        })
    }
}

impl Filter {
    /// Parses a filter. Never fails: names and values are checked when the filter is bound.
    pub fn parse(text: &str) -> Self {
        Self { terms: words(text).filter_map(|word| Term::parse(&word)).collect() }
    }

    /// Term for a field with exactly this value, or with it among its values: a tag, an experiment.
    pub fn is(field: &str, value: &str) -> Term {
        let test = Test::Field { name: field.into(), operator: Operator::Is, value: value.to_owned() };
        Term { negated: false, test }
    }

    pub fn is_empty(&self) -> bool {
        self.terms.is_empty()
    }
}

impl fmt::Display for Filter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, term) in self.terms.iter().enumerate() {
            write!(f, "{}{term}", if at > 0 { " " } else { "" })?;
        }
        Ok(())
    }
}

impl Term {
    fn parse(word: &Word) -> Option<Self> {
        let (negated, start) = match word.text.strip_prefix('-') {
            Some(_) if word.bare > 0 => (true, 1),
            _ => (false, 0),
        };
        let text = &word.text[start..];
        // an operator inside quotes is plain text
        let bare = word.bare - start;
        let test = match Operator::first_in(&text[..bare]) {
            Some((at, operator)) => Test::Field {
                name: text[..at].to_owned(),
                operator,
                value: text[at + operator.as_str().len()..].to_owned(),
            },
            None if text.is_empty() => return None,
            None => Test::Word { text: text.to_owned(), exact: word.quoted },
        };
        Some(Self { negated, test })
    }
}

impl fmt::Display for Term {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.negated { "-" } else { "" })?;
        match &self.test {
            Test::Word { text, exact: false } => f.write_str(text),
            Test::Word { text, exact: true } => f.write_str(&quoted(text)),
            Test::Field { name, operator, value } => {
                write!(f, "{name}{}{}", operator.as_str(), operator.written(value))
            }
        }
    }
}

fn quoted(text: &str) -> String {
    format!("\"{}\"", text.replace('\\', "\\\\").replace('"', "\\\""))
}

struct Word {
    text: String,
    /// Bytes of `text` before the first quote.
    bare: usize,
    quoted: bool,
}

fn words(text: &str) -> impl Iterator<Item = Word> {
    let mut letters = text.chars().peekable();
    std::iter::from_fn(move || {
        while letters.next_if(|c| c.is_whitespace()).is_some() {}
        letters.peek()?;
        let mut word = Word { text: String::new(), bare: 0, quoted: false };
        let mut inside = false;
        while let Some(letter) = letters.next_if(|c| inside || !c.is_whitespace()) {
            match letter {
                // an unclosed quote ends with the text
                '"' => {
                    inside = !inside;
                    if !word.quoted {
                        (word.quoted, word.bare) = (true, word.text.len());
                    }
                }
                '\\' if inside => word.text.extend(letters.next()),
                letter => word.text.push(letter),
            }
        }
        if !word.quoted {
            word.bare = word.text.len();
        }
        Some(word)
    })
}
