//! `ladderscope show RUN`: spec, metrics with intervals, overlap, breakdown by module and kind.

use std::path::PathBuf;

use super::filter::FilterArgs;
use super::output::{self, Annotated, FormatArgs, OutputFormat};
use super::{record_table, stderr};
use crate::desk::{self, FirstSteps, RunOrTrace};
use base::error::{Error, Result};
use lab::store::Store;
use plan::{Architecture, Phase};
use run::sim::Simulator;
use study::analysis::{DIFFERENCES, Decoding, Difference, DifferenceRow, REST, difference_rows_table};
use table::render::{Shown, Table};
use table::{Measure, Record, Spec, Status};
use trace::overlap::{BreakdownRow, Selection};

/// Arguments of `ladderscope show`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Stored run (id, prefix, 'last'), or a trace file of a stored run
    #[arg(value_name = "RUN", required_unless_present = "filter")]
    pub run: Option<String>,
    #[command(flatten)]
    pub filter: FilterArgs,
    #[command(flatten)]
    pub output: FormatArgs,
}

pub fn run(args: &Args, dir: PathBuf) -> Result<u8> {
    let name = args.filter.one_run(args.run.as_ref(), &dir)?;
    let store = Store::open(dir);
    let record = match RunOrTrace::find(&name, &store)? {
        RunOrTrace::Run(record) => record,
        RunOrTrace::File(path) => match trace::read_meta(&path)?.0.run {
            Some(id) => Box::new(store.get(&id)?),
            None => {
                return Err(Error::input_help(
                    format!("{}: a trace without a stored run", path.display()),
                    format!("for its overlap: ladderscope overlap {}", path.display()),
                ));
            }
        },
    };
    match args.output.format {
        OutputFormat::Table => output::emit(&text(&record, &store))?,
        OutputFormat::Csv => output::emit(&record_table::csv(std::slice::from_ref(&*record)))?,
        OutputFormat::Json => {
            let annotations = store.annotations();
            let breakdown = breakdown(&record, &store).map(|(rows, part)| {
                part.into_iter().for_each(|part| stderr::note(&format!("breakdown of the {part}")));
                rows
            });
            output::json(&PrintedRun {
                run: Annotated::new(&record, annotations.of(&record.run)),
                breakdown,
            })?;
        }
    }
    Ok(0)
}

/// Output of a run in JSON.
#[derive(Debug, serde::Serialize, schemars::JsonSchema)]
pub struct PrintedRun<'a> {
    #[serde(flatten)]
    run: Annotated<'a>,
    /// Breakdown of the decode phase; null without a trace.
    breakdown: Option<Vec<BreakdownRow>>,
}

/// Breakdown of the decode phase from the run's trace; `None` without one.
fn breakdown(record: &Record, store: &Store) -> Option<(Vec<BreakdownRow>, Option<FirstSteps>)> {
    if record.status != Status::Ok {
        return None;
    }
    match desk::trace_of(record, store, None) {
        Ok((trace, part)) => {
            let selection = Selection { phase: Some(Phase::Decode), ..Selection::default() };
            Some((trace::overlap::overlap(&trace, &selection).breakdown, part))
        }
        Err(error) => {
            stderr::warn(&format!("no breakdown: {error}"));
            None
        }
    }
}

pub fn text(record: &Record, store: &Store) -> String {
    let label = record.spec.label();
    let mut text = match record.status {
        Status::Skipped | Status::Oom => {
            format!("{} {}: {label}\n", record.status.glyph(), record.status.as_str())
        }
        _ => format!("{} {}  {label}  [{}]\n", record.status.glyph(), record.run, record.provenance),
    };
    let annotations = store.annotations();
    let annotation = annotations.of(&record.run);
    for section in desk::describe(record, annotation, Measure::amount_with_interval) {
        let width = if matches!(section.title, "" | "Stored") { 14 } else { 32 };
        match section.title {
            "" => {}
            "Environment" => continue,
            _ => text += &format!("\n{}\n", section.heading()),
        }
        for (about, says) in section.lines {
            text += &output::wrapped(&format!("  {about:<width$}"), &says, width + 2);
        }
    }
    text += &differences(record).unwrap_or_default();
    if let Some((rows, part)) = breakdown(record, store).filter(|(rows, _)| !rows.is_empty()) {
        let part = part.map(|part| format!(", {part}")).unwrap_or_default();
        text += &format!(
            "\nDecode phase{part} by module and kind ({}; sum of durations per rank, mean over ranks)\n{}",
            record.provenance,
            output::aligned(&breakdown_rows(&rows))
        );
    }
    text
}

/// Differences of a simulated run's time from standard and upper-bound, which are simulated for comparison.
fn differences(record: &Record) -> Option<String> {
    if record.status != Status::Ok || !record.spec.backend.is_simulated() {
        return None;
    }
    let simulator = Simulator::default();
    let simulate = |architecture: Architecture| {
        let spec = Spec { architecture, ..record.spec.clone() };
        let (outcome, _) = simulator.cell(&spec).ok()?.run(false).ok()?;
        outcome.samples.into_iter().next()
    };
    // simulate this run again, too: an older build may have attributed its time differently
    let samples = [Architecture::Standard, Architecture::UpperBound, record.spec.architecture.clone()]
        .map(simulate);
    let [standard, bound, own] = samples.each_ref().map(|sample| {
        let sample = sample.as_ref()?;
        Some(Decoding { decode_ms: sample.decode_ms, overlap: sample.overlap.as_ref() })
    });
    let name = record.spec.architecture.to_string();
    let rows: Vec<_> =
        [(format!("standard - {name}"), standard, own), (format!("{name} - upper-bound"), own, bound)]
            .into_iter()
            .filter(|(names, ..)| names != "standard - standard" && names != "upper-bound - upper-bound")
            .filter_map(|(name, a, b)| {
                Some(DifferenceRow {
                    cell: "",
                    settings: String::new(),
                    name,
                    difference: Difference::new(a?, b?)?,
                })
            })
            .collect();
    let about = output::wrapped("", &format!("{DIFFERENCES}, simulated; {REST}"), 0);
    Some(format!("\n{about}{}", output::aligned(&difference_rows_table(&rows))))
}

pub fn breakdown_rows(rows: &[BreakdownRow]) -> Table {
    Table::from_rows(
        rows,
        &[
            ("module", &|r: &BreakdownRow| Shown::text(&r.module)),
            ("kind", &|r| Shown::text(&r.kind)),
            ("lane", &|r| Shown::text(&r.lane)),
            ("count|count, all ranks", &|r| r.count.into()),
            ("total_us", &|r| Shown::Time(r.total_us)),
            ("exposed_us", &|r| Shown::Time(r.exposed_us)),
            ("share_of_lane_pct|% of lane", &|r| Shown::Number(100.0 * r.share, 1)),
        ],
    )
}
