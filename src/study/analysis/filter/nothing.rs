//! Reason a filter matches no run: the term that matches none, with the values there are.

use super::{Filter, Term, Test, complete};
use crate::analysis::run_table::RunTable;
use base::text::counted;

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
        let each = counts.iter().map(|(term, count)| format!("'{term}' {count}"));
        let each: Vec<String> = each.collect();
        Some(format!("no run matches all of {}", each.join(", ")))
    }
}

/// Values of the column that a term tests.
fn values(term: &Term, table: &RunTable) -> String {
    let Test::Field { name, .. } = &term.test else { return String::new() };
    let text = format!("{name}:");
    let offers = complete(&text, text.len(), table, LISTED + 1).offers;
    let mut values: Vec<&str> = offers.iter().map(|offer| offer.text.as_str()).collect();
    if values.is_empty() {
        return format!("; no run has a value of {name}");
    }
    if values.len() > LISTED {
        values.truncate(LISTED);
        values.push("…");
    }
    format!("; values of {name}: {}", values.join(", "))
}
