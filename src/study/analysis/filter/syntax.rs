//! Filter syntax: parsing and printing of terms and values.
//!
//! Completion of filters: names of fields, then values found in the runs.

use std::borrow::Cow;
use std::fmt;

use super::alternatives;
use crate::analysis::run_table::RunTable;
use base::offer::{Completion, Offer};
use base::text::{counted, folded};
use table::{Field, Unit};

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

/// Maximum number of distinct values for a column to be completed.
const MOST: usize = 200;

/// Completions at byte `cursor` of a filter, at most `most`. Counts of values cover all rows of the table.
pub fn complete(text: &str, cursor: usize, table: &RunTable, most: usize) -> Completion {
    complete_among(text, cursor, (table, &|_| true), most)
}

/// Like [`complete`]; offers and counts only values of rows for which `is_row` is true.
pub fn complete_among(
    text: &str,
    cursor: usize,
    (table, is_row): (&RunTable, &dyn Fn(usize) -> bool),
    most: usize,
) -> Completion {
    let cursor = (0..=cursor.min(text.len())).rev().find(|at| text.is_char_boundary(*at)).unwrap_or(0);
    let before = &text[..cursor];
    let start = before
        .rfind(char::is_whitespace)
        .map_or(0, |at| at + before[at..].chars().next().map_or(1, char::len_utf8));
    // blanks inside quotes do not separate words; no completion inside quotes
    if before.matches('"').count() % 2 == 1 {
        return Completion::default();
    }
    let word = &before[start..];
    let name_start = start + usize::from(word.starts_with('-'));
    let word = &before[name_start..];
    let value = Operator::first_in(word).and_then(|(at, operator)| {
        let column = table.find(&word[..at])?;
        let begin = name_start + at + operator.as_str().len();
        // completes the last alternative
        let typed = alternatives(&before[begin..], table.columns().get(column).map(AsRef::as_ref));
        Some((column, operator, begin + typed.last().map_or(0, |last| last.start)))
    });
    let offers = match value {
        Some((column, operator, begin)) => {
            let offers = values((table, is_row), column, operator, &before[begin..], most);
            return Completion { replaces: begin..cursor, offers };
        }
        None if word.is_empty() || Operator::first_in(word).is_some() => Vec::new(),
        None => names(table, word, most),
    };
    Completion { replaces: name_start..cursor, offers }
}

fn names(table: &RunTable, typed: &str, most: usize) -> Vec<Offer> {
    let typed = folded(typed);
    let mut offers: Vec<(usize, bool, usize, Offer)> = Vec::new();
    for (at, column) in table.columns().iter().enumerate() {
        let field = &column.field;
        if field.name == "cell" {
            continue;
        }
        // also as the column is headed
        let names = [&*field.name, &*field.title].into_iter();
        let names = names.chain(field.aliases.iter().copied());
        let bare = if field.is_dynamic() { Some(field.title.as_ref()) } else { None };
        let place = names.chain(bare).filter_map(|name| folded(name).find(&typed)).min();
        let Some(place) = place else { continue };
        let operator = if field.unit.is_number() && field.unit != Unit::Count { '>' } else { ':' };
        let short = bare.unwrap_or(field.short());
        let offer = Offer { text: format!("{short}{operator}"), about: meaning(field, short) };
        offers.push((place, folded(short) != typed, at, offer));
    }
    // a whole name comes before longer ones: `exposed` before `exposed_ms`
    offers.sort_by_key(|(place, is_part, at, _)| (*place, *is_part, *at));
    offers.into_iter().take(most).map(|(.., offer)| offer).collect()
}

/// Name of a field as its column is headed, or in full if the header is what one types.
fn meaning(field: &Field, short: &str) -> String {
    let full = field.name.replace('_', " ");
    let names = [field.title.as_ref(), &full];
    names.into_iter().find(|name| !name.eq_ignore_ascii_case(short)).unwrap_or_default().to_owned()
}

fn values(
    (table, is_row): (&RunTable, &dyn Fn(usize) -> bool),
    column: usize,
    operator: Operator,
    typed: &str,
    most: usize,
) -> Vec<Offer> {
    let Some(column) = table.columns().get(column) else { return Vec::new() };
    if column.field.unit.is_number() && !(operator.takes_several() && column.field.unit == Unit::Count) {
        return Vec::new();
    }
    let typed = folded(typed);
    let distinct =
        column.distinct((0..table.len()).filter(|row| is_row(*row)), MOST).unwrap_or_default();
    let mut values: Vec<(String, usize)> = Vec::new();
    for (value, count) in distinct {
        // each entry of a list is a value
        let list = column.field.unit.separator();
        let each = list.map_or_else(|| vec![&*value], |separator| value.split(separator).collect());
        for word in each {
            match values.iter_mut().find(|(known, _)| known == word) {
                Some((_, all)) => *all += count,
                None => values.push((word.to_owned(), count)),
            }
        }
    }
    let mut fitting: Vec<(usize, String, usize)> = values
        .into_iter()
        .filter_map(|(value, count)| Some((folded(&value).find(&typed)?, value, count)))
        .collect();
    // stable sort: keeps the column's order otherwise
    fitting.sort_by_key(|(place, ..)| *place > 0);
    let offer = |(_, value, count): (usize, String, usize)| Offer {
        text: operator.written(&value).into_owned(),
        about: counted(count, "run"),
    };
    fitting.into_iter().take(most).map(offer).collect()
}
