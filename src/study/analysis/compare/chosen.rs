//! Selection of runs for a comparison: those that match a filter, plus their baselines.

use super::Axis;
use crate::analysis::RunTable;
use crate::analysis::filter::{Filter, Term, Test, has_word};
use base::error::Error;
use table::Record;

/// Rows that match a filter, plus rows at the axis' baseline (the default if none is given) that match the filter's
/// other terms. Terms on the axis and on measures do not apply to baselines: `arch:ladder` keeps the baseline of
/// ladder, and `tpot<12` keeps a slower one. Rows are in table order without duplicates; errors in the filter come
/// second.
pub fn compared_rows(
    filter: &Filter,
    table: &RunTable,
    records: &[Record],
    axis: &Axis,
    baseline: Option<&str>,
) -> (Vec<u32>, Vec<Error>) {
    let (bound, wrong) = filter.bind(table);
    let mut rows = bound.rows(table);
    if let Some(baseline) = baseline.or(axis.natural_baseline()) {
        let others = filter.terms.iter().filter(|term| !is_of_side(term, table, axis));
        let others = Filter { terms: others.cloned().collect() };
        let is_baseline = |row: &u32| {
            records.get(*row as usize).is_some_and(|record| axis.value(&record.spec) == baseline)
        };
        rows.extend(others.bind(table).0.rows(table).into_iter().filter(is_baseline));
        rows.sort_unstable();
        rows.dedup();
    }
    (rows, wrong)
}

/// True if a term tests the axis or a measure, in which the sides of a pair differ. A word tests the axis if a value of
/// the axis contains it.
fn is_of_side(term: &Term, table: &RunTable, axis: &Axis) -> bool {
    let name = match axis {
        Axis::Option(name) => (*name).to_owned(),
        Axis::Env(key) => format!("env.{key}"),
        Axis::Set(key) => format!("set.{key}"),
    };
    let own = table.find(&name);
    match &term.test {
        Test::Field { name, .. } => {
            let column = table.find(name);
            let measures = |at: usize| table.columns().get(at).is_some_and(|c| c.field.is_measure());
            column.is_some() && (column == own || column.is_some_and(measures))
        }
        Test::Word { text, exact } => {
            let column = own.and_then(|at| table.columns().get(at));
            column.is_some_and(|column| has_word(column, text, *exact))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use table::testing::sim_record;

    fn kept(axis: &Axis, filter: &str, baseline: Option<&str>) -> String {
        let of = |run: &str, architecture: &str, tp: u32, step_ms: f64| {
            let change = |spec: &mut table::Spec| {
                (spec.architecture, spec.tp) = (architecture.parse().unwrap(), tp);
            };
            sim_record(run, change, 1.0, step_ms)
        };
        let records = [
            of("a", "standard", 4, 14.0),
            of("b", "ladder", 4, 11.0),
            of("c", "upper-bound", 4, 9.0),
            of("d", "standard", 8, 10.0),
            of("e", "ladder", 8, 7.0),
        ];
        let table = RunTable::new(&records, &Default::default());
        let (rows, wrong) = compared_rows(&Filter::parse(filter), &table, &records, axis, baseline);
        assert!(wrong.is_empty(), "{wrong:?}");
        rows.iter().map(|row| records[*row as usize].run.as_str()).collect()
    }

    #[test]
    fn what_is_compared_with_stays() {
        let by_architecture = |filter| kept(&Axis::ARCHITECTURE, filter, None);
        assert_eq!(by_architecture("arch:ladder"), "abde");
        assert_eq!(by_architecture("ladder"), "abde", "a word that the axis has");
        assert_eq!(by_architecture("upb"), "acd", "letters in order find upper-bound");
        assert_eq!(by_architecture("-arch:ladder"), "acd");
        assert_eq!(by_architecture("arch:ladder tp:8"), "de", "what is not of the axis holds for both");
        assert_eq!(by_architecture("tpot<12 tp:4"), "abc", "a slower baseline");
        assert_eq!(kept(&Axis::TP, "tp:8", None), "de", "no value of TP is a natural baseline");
        assert_eq!(kept(&Axis::TP, "tp:8 arch:ladder", Some("4")), "be");
    }
}
