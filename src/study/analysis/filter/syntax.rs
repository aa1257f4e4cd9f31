//! The filter language: reading and printing terms and values.

use std::borrow::Cow;
use std::fmt;

/// What must be true of a run: all terms.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Filter {
    /// In the order in which they were written.
    pub terms: Vec<Term>,
}

/// One condition of a filter, which a run meets or not.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Term {
    /// A run must not meet it.
    pub negated: bool,
    /// What is looked at.
    pub test: Test,
}

/// What a term looks at.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Test {
    /// A word in any text of the run.
    Word {
        /// The letters that are looked for.
        text: String,
        /// Only these letters as they stand: it was quoted.
        exact: bool,
    },
    /// A value of the run, by the name of its field.
    Field {
        /// The name of the field, as written.
        name: String,
        /// How the run's value is compared with the one written.
        operator: Operator,
        /// The value that it is compared with, as written.
        value: String,
    },
}

/// How a field's value is compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operator {
    /// `:` text contains it, a number is it.
    Has,
    /// `~` its text contains it, a number's digits too.
    Contains,
    /// `=`: the value is exactly this one.
    Is,
    /// `!=`: the value is another one.
    IsNot,
    /// `<`: the number is smaller.
    Below,
    /// `<=`: the number is smaller or the same.
    AtMost,
    /// `>`: the number is greater.
    Above,
    /// `>=`: the number is greater or the same.
    AtLeast,
}

impl Operator {
    /// Longer ones first, so that `>=` is not read as `>`.
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

    /// The operator's sign, as it is written between name and value.
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

    /// Whether values of either are alternatives: `tp:4,8`.
    pub(super) fn takes_several(self) -> bool {
        matches!(self, Self::Has | Self::Contains | Self::Is | Self::IsNot)
    }

    /// `value` as it stands after the operator in a filter: in quotes where it holds letters that part terms, or
    /// where its first letters would be read as the end of a longer operator (`<` before `=`).
    pub(super) fn written(self, value: &str) -> Cow<'_, str> {
        let parts = value.contains(|c: char| c.is_whitespace() || matches!(c, '"' | '\\'));
        let longer = Self::ALL.into_iter().any(|other| {
            let rest = other.as_str().strip_prefix(self.as_str());
            rest.is_some_and(|rest| !rest.is_empty() && value.starts_with(rest))
        });
        if parts || longer { Cow::Owned(quoted(value)) } else { Cow::Borrowed(value) }
    }

    /// The first one in `text`, not at its very beginning: where, and which.
    pub(super) fn first_in(text: &str) -> Option<(usize, Self)> {
        text.char_indices().skip(1).find_map(|(at, _)| {
            let rest = &text[at..];
            Some((at, Self::ALL.into_iter().find(|o| rest.starts_with(o.as_str()))?))
        })
    }
}

impl Filter {
    /// Reads a filter. Every text is one: what a field's name or value is worth is told when it is bound.
    pub fn parse(text: &str) -> Self {
        Self { terms: words(text).filter_map(|word| Term::parse(&word)).collect() }
    }

    /// The condition that a field has exactly this value, or it among its values: a tag, an experiment.
    pub fn is(field: &str, value: &str) -> Term {
        let test = Test::Field { name: field.into(), operator: Operator::Is, value: value.to_owned() };
        Term { negated: false, test }
    }

    /// Whether the filter has no terms and so chooses everything.
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
        // an operator within quotes is a letter like others
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

/// What stands between blanks, quotes resolved.
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
                // a quote that is not closed yet ends with the text
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
