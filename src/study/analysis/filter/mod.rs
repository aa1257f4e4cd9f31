//! Filter language for runs, on the command line and on screens:
//!
//! ```text
//! ladder 70b              both words, in any order; also as letters in order: upb finds upper-bound
//! "llama-3" -failed       exactly these letters; a leading - negates
//! arch:ladder model:70b   text contains the value; a number equals it; tp:2..8 is a range
//! tp:4,8 arch:a,b         either value; | works too
//! exp:paper_70b           finds paper-70B: - and _ are equal, and case does not matter
//! tp=8 tok/s>1000 tpot<5  = is exact; != < <= > >= for numbers (with units: memory>60GB) and texts
//! exposed>30 exposed>5ms  a share in percent, as its column shows it; with a unit of time, the time (exposed_ms)
//! tag:good -tag:*         a tag; * is any value, so -tag:* finds runs without tags
//! ```
//!
//! `syntax` parses, prints and completes filters ([`Filter`]). This file applies them to a
//! [`crate::analysis::RunTable`]: each distinct text of a column is tested once, not once per row. If no run matches, it
//! names the term that matches none, with the values there are.

mod syntax;

pub use syntax::{Filter, Operator, Term, Test, complete, complete_among};

use std::ops::Range;

use crate::analysis::run_table::{FoldedTexts, RunCell, RunTable, RunTableColumn, Values};
use base::error::{Error, Result};
use base::statistics::extent;
use base::text::{counted, folded, natural_order};
use plan::Architecture;
use table::{FieldSearch, Unit};

/// Minimum length of a word for fuzzy search: two letters in order match almost anything.
const FUZZY: usize = 3;

/// Filter with its columns resolved and its values parsed.
#[derive(Clone, Debug, Default)]
pub struct BoundFilter {
    terms: Vec<BoundTerm>,
}

#[derive(Clone, Debug)]
struct BoundTerm {
    negated: bool,
    test: BoundTest,
}

#[derive(Clone, Debug)]
enum BoundTest {
    Word(WordTest),
    Text {
        column: usize,
        operator: Operator,
        values: Vec<String>,
        /// Separator of a multi-valued text; each value is tested.
        separator: Option<&'static str>,
    },
    Number {
        column: usize,
        operator: Operator,
        values: Vec<Wanted>,
    },
    Any {
        column: usize,
    },
}

#[derive(Clone, Debug)]
struct WordTest {
    lower: String,
    exact: bool,
}

#[derive(Clone, Debug)]
enum Wanted {
    /// Inclusive range: two comparisons per row for every operator. NaN (no value) is in none.
    Range(f64, f64),
    /// The decimal digits contain this text.
    Digits(String),
}

/// Byte range of a match in a text.
pub type Match = Range<usize>;

impl Filter {
    /// Resolves columns and parses values. Invalid terms are left out and their errors returned in order. A term
    /// without a value is ignored.
    pub fn bind(&self, table: &RunTable) -> (BoundFilter, Vec<Error>) {
        let (mut bound, mut wrong) = (BoundFilter::default(), Vec::new());
        for term in &self.terms {
            match term.bind(table) {
                Ok(test) => {
                    bound.terms.extend(test.map(|test| BoundTerm { negated: term.negated, test }))
                }
                Err(error) => wrong.push(error),
            }
        }
        (bound, wrong)
    }

    /// Returns an error if a condition has no value, for filters that are no longer being typed: it would match all
    /// rows.
    pub fn check_whole(&self) -> Result<()> {
        let lacks = |term: &&Term| matches!(&term.test, Test::Field { value, .. } if value.is_empty());
        match self.terms.iter().find(lacks) {
            None => Ok(()),
            Some(term) => Err(Error::input_help(
                format!("'{term}' in the filter has no value"),
                "add a value; * matches any value",
            )),
        }
    }

    /// Rows that match, in table order. Returns the first error of the filter: an unknown field, with the nearest name,
    /// or an invalid value.
    pub fn rows(&self, table: &RunTable) -> Result<Vec<u32>> {
        self.check_whole()?;
        let (bound, wrong) = self.bind(table);
        match wrong.into_iter().next() {
            Some(error) => Err(error),
            None => Ok(bound.rows(table)),
        }
    }
}

impl Term {
    fn bind(&self, table: &RunTable) -> Result<Option<BoundTest>> {
        let word =
            |text: &str, exact| Ok(Some(BoundTest::Word(WordTest { lower: folded(text), exact })));
        let (name, operator, value) = match &self.test {
            Test::Word { text, exact } => return word(text, *exact),
            Test::Field { name, operator, value } => (name, *operator, value),
        };
        let Some(column) = table.find(name) else {
            // `desync:4` and `BATCH:12` are words with a colon; `btch:4` is an unknown field
            let typed_number = !value.is_empty() && value.chars().all(|c| c.is_ascii_digit());
            let text = format!("{name}:{value}");
            let of_batch = name.contains('-') && name.contains(|c: char| c.is_ascii_digit());
            let named = of_batch || text.to_lowercase().parse::<Architecture>().is_ok();
            if operator == Operator::Has && typed_number && named {
                return word(&text, true);
            }
            return Err(table.unknown(name));
        };
        if value.is_empty() {
            return Ok(None);
        }
        if value == "*" {
            return Ok(Some(BoundTest::Any { column }));
        }
        let column = time_of_share(table, name, column, value).unwrap_or(column);
        let unit = table.columns().get(column).map_or(Unit::Text, |c| c.field.unit);
        let values = match operator.takes_several() {
            true => alternatives(value, table.columns().get(column).map(AsRef::as_ref)),
            false => std::iter::once(0..value.len()).collect(),
        };
        // in `a,` the second value is not typed yet
        let values = values.into_iter().map(|at| &value[at]).filter(|value| !value.is_empty());
        if unit.is_number() {
            let values =
                values.map(|v| Wanted::parse(name, v, operator, unit)).collect::<Result<_>>()?;
            return Ok(Some(BoundTest::Number { column, operator, values }));
        }
        let values = values.map(folded).collect();
        Ok(Some(BoundTest::Text { column, operator, values, separator: unit.separator() }))
    }
}

/// Time column that belongs to a percent column, if the value has a unit of time: `exposed>5ms` tests `exposed_ms`.
fn time_of_share(table: &RunTable, name: &str, column: usize, value: &str) -> Option<usize> {
    let unit_of = |at: usize| table.columns().get(at).map(|column| column.field.unit);
    let is_time = |value: &str| value.parse::<f64>().is_err() && number(value, Unit::Ms).is_some();
    let mut ends = value.split([',', '|']).flat_map(|value| value.split(".."));
    if unit_of(column) != Some(Unit::Percent) || !ends.any(is_time) {
        return None;
    }
    table.find(&format!("{name}_ms")).filter(|at| unit_of(*at) == Some(Unit::Ms))
}

/// Byte ranges of alternatives separated by `,` or `|`. A separator that occurs in a text of the column counts as part
/// of the value, as in `emulated:alpha_us=20,gb_s=50`.
fn alternatives(text: &str, column: Option<&RunTableColumn>) -> Vec<Range<usize>> {
    let held = |part: &str| column.is_some_and(|column| column.has_text(&folded(part)));
    let mut found: Vec<Range<usize>> = Vec::new();
    let mut begin = 0;
    for (end, border) in text.match_indices([',', '|']).chain([(text.len(), "|")]) {
        let joined = found.last().map(|last| last.start..end);
        match joined {
            Some(joined) if text[..begin].ends_with([',', '|']) && held(&text[joined.clone()]) => {
                found.pop();
                found.push(joined);
            }
            _ => found.push(begin..end),
        }
        begin = end + border.len();
    }
    found
}

impl Wanted {
    fn parse(name: &str, text: &str, operator: Operator, unit: Unit) -> Result<Self> {
        let wrong = || {
            Error::input_help(
                format!(
                    "{name}{}{}: '{text}' is not a number",
                    operator.as_str(),
                    operator.written(text)
                ),
                match unit {
                    Unit::Ms => "write milliseconds, or a number with us, ms or s",
                    Unit::Bytes => "write bytes, or a number with kB, MB, GB, TB, KiB, MiB or GiB",
                    Unit::Percent | Unit::Share => "write a number, with or without %",
                    _ => "write a number, for example 8, 1.5, 2k; for a range 2..8",
                },
            )
        };
        if operator == Operator::Contains {
            return Ok(Self::Digits(text.to_owned()));
        }
        if operator == Operator::Has
            && let Some((from, to)) = text.split_once("..")
        {
            let end = |text: &str, open| if text.is_empty() { Some(open) } else { number(text, unit) };
            let from = end(from, f64::NEG_INFINITY).ok_or_else(wrong)?;
            let to = end(to, f64::INFINITY).ok_or_else(wrong)?;
            if from > to {
                return Err(Error::input(format!("'{name}:{text}': the range ends before it begins")));
            }
            return Ok(Self::Range(from, to));
        }
        let value = number(text, unit).ok_or_else(wrong)?;
        Ok(match operator {
            Operator::Has => {
                // :5.2 matches all values that a screen would show as 5.2
                let plain = text.parse::<f64>().is_ok();
                let decimals =
                    text.split_once('.').filter(|_| plain).map_or("", |(_, decimals)| decimals);
                let digits = decimals.chars().take_while(char::is_ascii_digit).count();
                let half = if digits > 0 { 0.5 * 0.1_f64.powi(digits as i32) } else { 0.0 };
                Self::Range(value - half, value + half)
            }
            Operator::Below => Self::Range(f64::NEG_INFINITY, value.next_down()),
            Operator::AtMost => Self::Range(f64::NEG_INFINITY, value),
            Operator::Above => Self::Range(value.next_up(), f64::INFINITY),
            Operator::AtLeast => Self::Range(value, f64::INFINITY),
            Operator::Is | Operator::IsNot | Operator::Contains => Self::Range(value, value),
        })
    }

    fn find(&self, numbers: &[f64], found: &mut [bool]) {
        let rows = found.iter_mut().zip(numbers);
        match self {
            Self::Range(from, to) => {
                rows.for_each(|(found, value)| *found |= from <= value && value <= to)
            }
            Self::Digits(digits) => {
                rows.filter(|(_, value)| !value.is_nan()).for_each(|(found, value)| {
                    *found |= value.to_string().contains(digits.as_str());
                })
            }
        }
    }
}

/// Parses a number with an optional unit and converts it to the column's unit.
pub(crate) fn number(text: &str, unit: Unit) -> Option<f64> {
    let plain = |text: &str| text.parse::<f64>().ok().filter(|value| !value.is_nan());
    if let Some(value) = plain(text) {
        return Some(value);
    }
    let suffixes: &[(&str, f64)] = match unit {
        Unit::Ms => &[("ms", 1.0), ("us", 1e-3), ("ns", 1e-6), ("s", 1e3)],
        Unit::Bytes => &[
            ("kib", 1024.0),
            ("mib", 1_048_576.0),
            ("gib", 1_073_741_824.0),
            ("kb", 1e3),
            ("mb", 1e6),
            ("gb", 1e9),
            ("tb", 1e12),
            ("k", 1e3),
            ("m", 1e6),
            ("g", 1e9),
            ("t", 1e12),
            ("b", 1.0),
        ],
        Unit::Percent => &[("%", 1.0)],
        Unit::Share => &[("%", 0.01)],
        _ => &[("k", 1e3), ("m", 1e6)],
    };
    let lower = text.to_lowercase();
    let split = |(suffix, scale): &(&str, f64)| Some(plain(lower.strip_suffix(suffix)?.trim())? * scale);
    suffixes.iter().find_map(split)
}

impl BoundFilter {
    pub fn rows(&self, table: &RunTable) -> Vec<u32> {
        let mut keep = vec![true; table.len()];
        for term in &self.terms {
            term.narrow(table, &mut keep);
        }
        let mut rows = Vec::with_capacity(keep.iter().filter(|keep| **keep).count());
        rows.extend((0..).zip(keep).filter_map(|(row, keep)| keep.then_some(row)));
        rows
    }

    /// Matched byte ranges of a text as this column shows it.
    pub fn highlight(&self, column: usize, field: &RunTableColumn, shown: &str) -> Vec<Match> {
        let mut found = Vec::new();
        for term in self.terms.iter().filter(|term| !term.negated) {
            match &term.test {
                BoundTest::Word(word) if field.field.searched != FieldSearch::Never => {
                    found.extend(word.places(&folded(shown), field.field.searched));
                }
                BoundTest::Text { column: of, operator, values, .. }
                    if *of == column && !matches!(operator, Operator::IsNot) =>
                {
                    let lower = folded(shown);
                    let place = |value: &String| Some((lower.find(value)?, value.len()));
                    found.extend(values.iter().filter_map(place).map(|(at, length)| at..at + length));
                }
                _ => {}
            }
        }
        // lower case may change byte lengths; drop ranges off character boundaries
        found.retain(|m| shown.is_char_boundary(m.start) && shown.is_char_boundary(m.end));
        found
    }
}

impl BoundTerm {
    fn narrow(&self, table: &RunTable, keep: &mut [bool]) {
        let columns = table.columns();
        let mut found = vec![false; keep.len()];
        let mut negated = self.negated;
        match &self.test {
            BoundTest::Word(word) => {
                // column by column, for sequential memory access
                for column in columns.iter().filter(|c| c.field.searched != FieldSearch::Never) {
                    let Values::Text { codes, lower, .. } = &column.values else { continue };
                    let texts = word.among(lower, column.field.searched);
                    if texts.contains(&true) {
                        for (found, code) in found.iter_mut().zip(codes) {
                            *found |= texts.get(*code as usize).copied().unwrap_or(false);
                        }
                    }
                }
            }
            BoundTest::Text { column, operator, values, separator } => {
                let Some(Values::Text { codes, lower, .. }) = columns.get(*column).map(|c| &c.values)
                else {
                    return;
                };
                let met: Vec<bool> =
                    lower.iter().map(|text| text_meets(text, *operator, values, *separator)).collect();
                // a missing value only meets `!=`
                let of_nothing = *operator == Operator::IsNot;
                for (found, code) in found.iter_mut().zip(codes) {
                    *found = met.get(*code as usize).copied().unwrap_or(of_nothing);
                }
            }
            BoundTest::Number { column, operator, values } => {
                let Some(Values::Number(numbers)) = columns.get(*column).map(|c| &c.values) else {
                    return;
                };
                values.iter().for_each(|value| value.find(numbers, &mut found));
                negated ^= *operator == Operator::IsNot;
            }
            BoundTest::Any { column } => {
                let Some(column) = columns.get(*column) else { return };
                for (row, found) in found.iter_mut().enumerate() {
                    *found = column.cell(row) != RunCell::Nothing;
                }
            }
        }
        for (keep, found) in keep.iter_mut().zip(found) {
            *keep &= found != negated;
        }
    }
}

/// True if a text meets a condition; `separator` splits it into several values.
fn text_meets(text: &str, operator: Operator, values: &[String], separator: Option<&str>) -> bool {
    let any = |test: &dyn Fn(&str, &str) -> bool| {
        values.iter().any(|value| match separator {
            Some(separator) => text.split(separator).any(|one| test(one, value)),
            None => test(text, value),
        })
    };
    match operator {
        Operator::Has | Operator::Contains => any(&|text, value| text.contains(value)),
        Operator::Is => any(&|text, value| text == value),
        Operator::IsNot => !any(&|text, value| text == value),
        Operator::Below => any(&|text, value| natural_order(text, value).is_lt()),
        Operator::AtMost => any(&|text, value| natural_order(text, value).is_le()),
        Operator::Above => any(&|text, value| natural_order(text, value).is_gt()),
        Operator::AtLeast => any(&|text, value| natural_order(text, value).is_ge()),
    }
}

/// True if a text of the column contains the word, either literally or, for unquoted words in fuzzy columns, as letters
/// in order.
pub(in crate::analysis) fn has_word(column: &RunTableColumn, text: &str, exact: bool) -> bool {
    let word = WordTest { lower: folded(text), exact };
    matches!(&column.values, Values::Text { lower, .. }
        if word.among(lower, column.field.searched).contains(&true))
}

impl WordTest {
    fn among(&self, texts: &FoldedTexts, searched: FieldSearch) -> Vec<bool> {
        let mut has = vec![false; texts.len()];
        texts.holding(&self.lower, |code| {
            if let Some(has) = has.get_mut(code) {
                *has = true;
            }
        });
        for (has, text) in has.iter_mut().zip(texts.iter()).filter(|(has, _)| **has) {
            *has = self.place(text, searched).is_some();
        }
        if searched == FieldSearch::Letters && self.is_fuzzy() {
            for (has, text) in has.iter_mut().zip(texts.iter()).filter(|(has, _)| !**has) {
                *has = letters_in_order(text, &self.lower).is_some();
            }
        }
        has
    }

    fn is_fuzzy(&self) -> bool {
        !self.exact && self.lower.chars().count() >= FUZZY
    }

    /// Matched byte ranges of the word in a lower-case text.
    fn places(&self, lower: &str, searched: FieldSearch) -> Vec<Match> {
        if let Some(place) = self.place(lower, searched) {
            return vec![place];
        }
        let fuzzy = searched == FieldSearch::Letters && self.is_fuzzy();
        fuzzy.then(|| letters_in_order(lower, &self.lower)).flatten().unwrap_or_default()
    }

    /// First occurrence of the whole word. Unless quoted, a number matches whole numbers (`b1` does not match
    /// `b16`), and ids match from the start of one of their parts.
    fn place(&self, lower: &str, searched: FieldSearch) -> Option<Match> {
        let word = self.lower.as_str();
        let is_digit = |c: Option<char>| c.is_some_and(|c| c.is_ascii_digit());
        let starts = |at: &usize| {
            let (before, next) =
                (lower[..*at].chars().next_back(), lower[at + word.len()..].chars().next());
            match searched {
                _ if self.exact => true,
                FieldSearch::Id => !before.is_some_and(char::is_alphanumeric),
                _ => {
                    let (first, last) = (word.chars().next(), word.chars().next_back());
                    !(is_digit(before) && is_digit(first) || is_digit(next) && is_digit(last))
                }
            }
        };
        let at = lower.match_indices(word).map(|(at, _)| at).find(starts)?;
        Some(at..at + word.len())
    }
}

/// Byte ranges of the word's letters in order, starting at the beginning of a part of the text: `upb` matches
/// `upper-bound`, but `per` does not match letters scattered over a sentence.
fn letters_in_order(text: &str, word: &str) -> Option<Vec<Match>> {
    let mut letters = word.chars();
    let first = letters.next()?;
    let mut starts_part = true;
    for (at, c) in text.char_indices() {
        if starts_part && c == first {
            let begin = at..at + c.len_utf8();
            let mut rest = text[begin.end..].char_indices().map(|(i, c)| (begin.end + i, c));
            let mut places = vec![begin.clone()];
            let all = letters.clone().all(|letter| {
                rest.find(|(_, c)| *c == letter)
                    .map(|(at, c)| places.push(at..at + c.len_utf8()))
                    .is_some()
            });
            if all {
                return Some(places);
            }
        }
        starts_part = !c.is_alphanumeric();
    }
    None
}

/// Maximum number of values listed.
const LISTED: usize = 6;

impl Filter {
    /// Reason this filter matches no run of the table; `None` if it matches one.
    pub fn why_nothing(&self, table: &RunTable) -> Option<String> {
        let (bound, _) = self.bind(table);
        if !bound.rows(table).is_empty() {
            return None;
        }
        let count = |term: &Term| Self { terms: vec![term.clone()] }.bind(table).0.rows(table).len();
        let counts: Vec<(&Term, usize)> = self.terms.iter().map(|term| (term, count(term))).collect();
        if let Some((term, _)) = counts.iter().find(|(_, count)| *count == 0) {
            let runs = counted(table.len(), "run");
            return Some(format!("'{term}' matches none of {runs}{}", values(term, table)));
        }
        let each = |(term, count): &(&Term, usize)| format!("'{term}' ({})", counted(*count, "run"));
        let each: Vec<String> = counts.iter().map(each).collect();
        Some(format!("no run matches all of {}", each.join(", ")))
    }
}

/// Values of the column that a term tests, and the column that has the term's value.
fn values(term: &Term, table: &RunTable) -> String {
    let Test::Field { name, value, .. } = &term.test else { return String::new() };
    // ids contain all digits
    let has_it =
        |column: &&RunTableColumn| column.field.name != "run" && column.has_text(&folded(value));
    let meant = match table.columns().iter().map(AsRef::as_ref).find(has_it) {
        Some(column) => format!("; did you mean {}:{value}?", column.field.short()),
        None => String::new(),
    };
    let text = format!("{name}:");
    let offers = complete(&text, text.len(), table, LISTED + 1).offers;
    let mut values: Vec<&str> = offers.iter().map(|offer| offer.text.as_str()).collect();
    if values.is_empty() {
        let column = table.find(name).map(|at| time_of_share(table, name, at, value).unwrap_or(at));
        if let Some(range) = column.and_then(|at| range(table.columns().get(at)?)) {
            return format!("; values of {range}");
        }
        return format!("; no run has a value of {name}{meant}");
    }
    if values.len() > LISTED {
        values.truncate(LISTED);
        values.push("…");
    }
    format!("; values of {name}: {}{meant}", values.join(", "))
}

/// Name of a column of numbers with its lowest and highest value: `tpot: 2.00 to 9.00`.
fn range(column: &RunTableColumn) -> Option<String> {
    let Values::Number(numbers) = &column.values else { return None };
    let [low, high] = extent(numbers.iter().copied())?;
    let (name, unit) = (column.field.short(), column.field.unit);
    Some(format!("{name}: {} to {}", unit.cell(low), unit.cell(high)))
}

#[cfg(test)]
mod tests;
