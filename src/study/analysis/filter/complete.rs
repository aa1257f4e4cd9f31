//! Completion of filters: names of fields, then values found in the runs.

use crate::analysis::run_table::RunTable;
use base::offer::{Completion, Offer};
use base::text::{counted, folded};
use table::Unit;

use super::Operator;
use super::bind::alternatives;

/// Maximum number of distinct values for a column to be completed.
const MOST: usize = 200;

/// Completions at byte `cursor` of a filter, at most `most`. Counts of values cover all rows of the table.
pub fn complete(text: &str, cursor: usize, table: &RunTable, most: usize) -> Completion {
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
            let offers = values(table, column, operator, &before[begin..], most);
            return Completion { replaces: begin..cursor, offers };
        }
        None if word.is_empty() || Operator::first_in(word).is_some() => Vec::new(),
        None => names(table, word, most),
    };
    Completion { replaces: name_start..cursor, offers }
}

fn names(table: &RunTable, typed: &str, most: usize) -> Vec<Offer> {
    let typed = folded(typed);
    let mut offers: Vec<(usize, usize, Offer)> = Vec::new();
    for (at, column) in table.columns().iter().enumerate() {
        let field = &column.field;
        if field.name == "cell" {
            continue;
        }
        let names = std::iter::once(field.name.as_ref()).chain(field.aliases.iter().copied());
        let bare = if field.is_dynamic() { Some(field.title.as_ref()) } else { None };
        let place = names.chain(bare).filter_map(|name| folded(name).find(&typed)).min();
        let Some(place) = place else { continue };
        let operator = if field.unit.is_number() && field.unit != Unit::Count { '>' } else { ':' };
        let short = bare.unwrap_or(field.short());
        offers.push((
            place,
            at,
            Offer { text: format!("{short}{operator}"), about: field.name.to_string() },
        ));
    }
    offers.sort_by_key(|(place, at, _)| (*place, *at));
    offers.into_iter().take(most).map(|(_, _, offer)| offer).collect()
}

fn values(table: &RunTable, column: usize, operator: Operator, typed: &str, most: usize) -> Vec<Offer> {
    let Some(column) = table.columns().get(column) else { return Vec::new() };
    if column.field.unit.is_number() && !(operator.takes_several() && column.field.unit == Unit::Count) {
        return Vec::new();
    }
    let typed = folded(typed);
    let distinct = column.distinct(0..table.len(), MOST).unwrap_or_default();
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
