//! Records as a table (Polars) with a row a record: sorted, filtered, written as CSV, shown in the
//! terminal. Column names are the contract's keys with their units.

use polars::prelude::{
    AnyValue, BooleanChunked, Column, DataFrame, NamedFrom, Series, SortMultipleOptions,
};

use crate::error::{Error, Result};
use crate::store::{Metrics, Overlap, Record};

/// All columns, in order.
pub fn columns(frame: &DataFrame) -> Vec<&str> {
    frame.columns().iter().map(|column| column.name().as_str()).collect()
}

/// The table of these records; numbers of runs without metrics are null.
pub fn frame(records: &[Record]) -> Result<DataFrame> {
    let text = |name: &str, of: &dyn Fn(&Record) -> Option<String>| -> Column {
        Series::new(name.into(), records.iter().map(of).collect::<Vec<_>>()).into()
    };
    let whole = |name: &str, of: &dyn Fn(&Record) -> Option<u64>| -> Column {
        Series::new(name.into(), records.iter().map(of).collect::<Vec<_>>()).into()
    };
    let number = |name: &str, of: &dyn Fn(&Metrics) -> Option<f64>| -> Column {
        let values = records.iter().map(|record| record.metrics.as_ref().and_then(of));
        Series::new(name.into(), values.collect::<Vec<Option<f64>>>()).into()
    };
    let lane = |name: &str, of: &dyn Fn(&Overlap) -> Option<f64>| -> Column {
        let values = records.iter().map(|record| record.overlap.as_ref().and_then(of));
        Series::new(name.into(), values.collect::<Vec<Option<f64>>>()).into()
    };
    let list = |map: &std::collections::BTreeMap<String, String>| {
        map.iter().map(|(key, value)| format!("{key}={value}")).collect::<Vec<_>>().join(" ")
    };
    let axis = |name: &'static str| text(name, &move |r| Some(super::compare::field(&r.spec, name)));
    let columns = vec![
        text("run", &|r| Some(r.run.clone())),
        text("status", &|r| Some(r.status.as_str().into())),
        text("provenance", &|r| Some(r.provenance.to_string())),
        axis("architecture"),
        axis("model"),
        axis("dtype"),
        whole("tp", &|r| Some(r.spec.tp.into())),
        whole("batch", &|r| Some(r.spec.batch.into())),
        whole("prompt_tokens", &|r| Some(r.spec.prompt_tokens.into())),
        whole("output_tokens", &|r| Some(r.spec.output_tokens.into())),
        axis("p2p"),
        axis("backend"),
        axis("link"),
        axis("hardware"),
        axis("stack"),
        axis("collective"),
        whole("samples", &|r| r.metrics.as_ref().map(|m| m.samples.into())),
        whole("round", &|r| Some(r.round.into())),
        number("prefill_ms", &|m| Some(m.prefill_ms)),
        number("decode_ms", &|m| Some(m.decode_ms)),
        number("completion_ms", &|m| Some(m.completion_ms)),
        number("tpot_p50_ms", &|m| Some(m.tpot_ms.p50)),
        number("tpot_p90_ms", &|m| Some(m.tpot_ms.p90)),
        number("tpot_p99_ms", &|m| Some(m.tpot_ms.p99)),
        number("tpot_ci95_low_ms", &|m| m.tpot_ms_ci95.map(|ci| ci[0])),
        number("tpot_ci95_high_ms", &|m| m.tpot_ms_ci95.map(|ci| ci[1])),
        number("tokens_per_s", &|m| Some(m.tokens_per_s)),
        number("tokens_per_s_ci95_low", &|m| m.tokens_per_s_ci95.map(|ci| ci[0])),
        number("tokens_per_s_ci95_high", &|m| m.tokens_per_s_ci95.map(|ci| ci[1])),
        number("tokens_per_s_per_gpu", &|m| Some(m.tokens_per_s_per_gpu)),
        whole("memory_bytes_per_rank", &|r| r.metrics.as_ref().map(|m| m.memory_bytes_per_rank)),
        lane("comm_ms", &|o| Some(o.comm_ms)),
        lane("exposed_comm_ms", &|o| Some(o.exposed_comm_ms)),
        lane("overlap_pct", &|o| o.overlap_pct),
        lane("compute_ms", &|o| Some(o.compute_ms)),
        lane("idle_ms", &|o| Some(o.idle_ms)),
        whole("seed", &|r| Some(r.spec.seed)),
        text("env", &|r| Some(list(&r.spec.env))),
        text("set", &|r| Some(list(&r.spec.set))),
        text("experiment", &|r| r.experiment.clone()),
        text("created", &|r| Some(r.created.clone())),
        text("trace", &|r| r.trace.clone()),
        text("reason", &|r| r.reason.clone()),
        text("warnings", &|r| Some(r.warnings.join("; "))),
    ];
    DataFrame::new(records.len(), columns).map_err(failed)
}

fn failed(error: polars::prelude::PolarsError) -> Error {
    Error::failed(format!("table of runs: {error}"))
}

/// The column of this name; the nearest one is named where there is none.
fn column<'a>(frame: &'a DataFrame, name: &str) -> Result<&'a Column> {
    frame.column(name).map_err(|_| Error::unknown("column", name, columns(frame)))
}

/// Sorted by a column, equal rows as they were, nulls last.
pub fn sort(frame: &DataFrame, by: &str, descending: bool) -> Result<DataFrame> {
    column(frame, by)?;
    let options = SortMultipleOptions::default()
        .with_order_descending(descending)
        .with_nulls_last(true)
        .with_maintain_order(true);
    frame.sort([by], options).map_err(failed)
}

/// A condition on rows.
#[derive(Clone, Debug, PartialEq)]
struct Condition<'a> {
    /// `None`: any column.
    column: Option<&'a str>,
    comparison: &'a str,
    value: &'a str,
}

/// Longer ones first, so that `>=` is not read as `>`.
const COMPARISONS: [&str; 7] = [">=", "<=", "!=", "=", ">", "<", "~"];

/// The rows that meet all conditions, which blanks separate: `architecture=ladder tp>=4 cuda`.
/// `~` means "contains"; a word alone must be contained in any column. Numbers compare as
/// numbers; a null meets no condition but `!=`.
pub fn filter(frame: &DataFrame, conditions: &str) -> Result<DataFrame> {
    let mut keep = vec![true; frame.height()];
    for word in conditions.split_whitespace() {
        let condition = Condition::parse(word);
        let cells: Vec<&Column> = match condition.column {
            Some(name) => vec![column(frame, name)?],
            None => frame.columns().iter().collect(),
        };
        for (row, keep) in keep.iter_mut().enumerate().filter(|(_, keep)| **keep) {
            *keep = cells.iter().any(|cells| cells.get(row).is_ok_and(|cell| condition.meets(&cell)));
        }
    }
    let mask = keep.into_iter().collect::<BooleanChunked>();
    frame.filter(&mask).map_err(failed)
}

impl<'a> Condition<'a> {
    fn parse(word: &'a str) -> Self {
        // The first comparison in the word counts; a value may hold others (`link=emulated:alpha_us=1`).
        let place = word.find(['<', '>', '=', '!', '~']).filter(|at| *at > 0);
        let split = place.and_then(|at| {
            let comparison = COMPARISONS.into_iter().find(|c| word[at..].starts_with(c))?;
            Some((&word[..at], comparison, &word[at + comparison.len()..]))
        });
        match split {
            Some((column, comparison, value)) => Self { column: Some(column), comparison, value },
            None => Self { column: None, comparison: "~", value: word },
        }
    }

    fn meets(&self, cell: &AnyValue<'_>) -> bool {
        let order = match (cell.extract::<f64>(), self.value.parse::<f64>()) {
            _ if cell.is_null() => return self.comparison == "!=",
            (Some(a), Ok(b)) if !matches!(cell, AnyValue::String(_) | AnyValue::StringOwned(_)) => {
                a.total_cmp(&b)
            }
            _ => show(cell).as_str().cmp(self.value),
        };
        match self.comparison {
            "=" => order.is_eq(),
            "!=" => order.is_ne(),
            "<" => order.is_lt(),
            ">" => order.is_gt(),
            "<=" => order.is_le(),
            ">=" => order.is_ge(),
            _ => show(cell).to_lowercase().contains(&self.value.to_lowercase()),
        }
    }
}

/// A cell as text: nothing for null, numbers so that they read back as the same.
fn show(cell: &AnyValue<'_>) -> String {
    match cell {
        AnyValue::Null => String::new(),
        AnyValue::String(text) => (*text).to_owned(),
        AnyValue::StringOwned(text) => text.to_string(),
        AnyValue::Float64(number) => number.to_string(),
        AnyValue::UInt64(number) => number.to_string(),
        other => other.to_string(),
    }
}

/// The cells of the named columns as text, row by row; null is empty.
pub fn rows(frame: &DataFrame, names: &[&str]) -> Result<Vec<Vec<String>>> {
    let columns = names.iter().map(|name| column(frame, name)).collect::<Result<Vec<_>>>()?;
    let row =
        |row| columns.iter().map(|c| c.get(row).map_or_else(|_| String::new(), |v| show(&v))).collect();
    Ok((0..frame.height()).map(row).collect())
}

/// The whole table as CSV (RFC 4180, with plain line feeds), header included.
pub fn to_csv(frame: &DataFrame) -> String {
    let names = columns(frame);
    let mut csv = String::new();
    let mut line = |cells: &mut dyn Iterator<Item = String>| {
        csv.push_str(&cells.map(|cell| quoted(&cell)).collect::<Vec<_>>().join(","));
        csv.push('\n');
    };
    line(&mut names.iter().map(|name| (*name).to_owned()));
    for row in 0..frame.height() {
        let cell =
            |column: &Column| column.get(row).map_or_else(|_| String::new(), |value| show(&value));
        line(&mut frame.columns().iter().map(cell));
    }
    csv
}

/// A CSV field, in quotes where it needs them.
fn quoted(field: &str) -> String {
    if field.contains([',', '"', '\n', '\r']) {
        format!("\"{}\"", field.replace('"', "\"\""))
    } else {
        field.to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::analysis::sample_data::{record, sim_record};
    use crate::spec::Link;
    use crate::store::Status;

    fn records() -> Vec<Record> {
        let mut failed = record("c", |s| s.tp = 16, 0, &[(1.0, 1.0)]);
        (failed.status, failed.metrics) = (Status::Failed, None);
        failed.reason = Some("rank 1 said \"no\",\nand died".into());
        let link = |s: &mut crate::spec::Spec| {
            (s.tp, s.link) = (8, Link::Emulated { alpha_us: 1.0, gb_s: 2.0 });
        };
        vec![record("a", link, 0, &[(1.0, 3.0)]), sim_record("b", |_| (), 1.0, 2.0), failed]
    }

    fn runs(frame: &DataFrame) -> String {
        rows(frame, &["run"]).unwrap().concat().concat()
    }

    #[test]
    fn sorts_numbers_as_numbers_and_nulls_last() {
        let frame = frame(&records()).unwrap();
        assert_eq!(runs(&sort(&frame, "tpot_p50_ms", false).unwrap()), "bac");
        assert_eq!(runs(&sort(&frame, "tpot_p50_ms", true).unwrap()), "abc");
        assert_eq!(runs(&sort(&frame, "tp", true).unwrap()), "cab");
        let error = sort(&frame, "tpot_p50", false).unwrap_err();
        assert!(
            matches!(error, Error::Input { help: Some(help), .. } if help.contains("'tpot_p50_ms'"))
        );
    }

    #[test]
    fn filters() {
        let frame = frame(&records()).unwrap();
        let kept = |conditions| runs(&filter(&frame, conditions).unwrap());
        assert_eq!(kept(""), "abc");
        assert_eq!(kept("tp>=8"), "ac");
        assert_eq!(kept("tp>=8 status=ok"), "a");
        assert_eq!(kept("tpot_p50_ms<2.5"), "b");
        assert_eq!(kept("provenance!=simulated"), "ac");
        assert_eq!(kept("link=emulated:alpha_us=1,gb_s=2"), "a");
        assert_eq!(kept("model~IN"), "abc");
        assert_eq!(kept("died"), "c");
        assert_eq!(kept("nothing-of-the-kind"), "");
        assert!(filter(&frame, "tpp=2").is_err());
    }

    #[test]
    fn csv_reads_back() {
        let csv = to_csv(&frame(&records()).unwrap());
        let (head, body) = csv.split_once('\n').unwrap();
        assert!(head.starts_with("run,status,provenance,architecture,model"));
        assert!(body.starts_with(
            "a,ok,emulated-link,standard,tiny,f32,8,1,16,5,on,cpu,\"emulated:alpha_us=1,gb_s=2\","
        ));
        assert!(body.contains(",\"rank 1 said \"\"no\"\",\nand died\","));
    }

    #[test]
    fn an_empty_table_has_its_columns() {
        let frame = frame(&[]).unwrap();
        assert_eq!((frame.height(), to_csv(&frame).lines().count()), (0, 1));
        assert!(runs(&sort(&frame, "tp", false).unwrap()).is_empty());
    }
}
