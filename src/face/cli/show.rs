//! `ladderscope show RUN`: spec, metrics with intervals, overlap, breakdown by module and kind.

use std::fmt::Write as _;
use std::path::PathBuf;

use super::output::{self, Format, FormatArgs};
use super::{record_table, report};
use crate::base::error::{Error, Result};
use crate::desk::{self, Named, Part};
use crate::lab::store::Store;
use crate::machine::hardware::CostSource;
use crate::plan::{Architecture, Phase};
use crate::run::{Shared, backend};
use crate::study::analysis::{Difference, told_table};
use crate::table::render::{Shown, Table};
use crate::table::{MEASURES, Record, Scope, Spec, Status};
use crate::trace;
use crate::trace::overlap::{BreakdownRow, Selection};

/// The command line's arguments of `ladderscope show`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// A stored run: its id, a prefix of it, or 'last'; or the trace of one
    #[arg(value_name = "RUN")]
    pub run: String,
    #[command(flatten)]
    pub output: FormatArgs,
}

/// Prints everything that is known of one run.
pub fn run(args: &Args, dir: PathBuf) -> Result<u8> {
    let store = Store::open(dir);
    let record = match Named::find(&args.run, &store)? {
        Named::Run(record) => record,
        Named::File(path) => match trace::read_meta(&path)?.0.run {
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
        Format::Table => output::emit(&text(&record, &store))?,
        Format::Csv => output::emit(&record_table::csv(std::slice::from_ref(&*record)))?,
        Format::Json => {
            let mut value = serde_json::to_value(&record).map_err(|e| Error::failed(e.to_string()))?;
            if let Some(object) = value.as_object_mut() {
                let rows = breakdown(&record, &store).map(|(rows, part)| {
                    part.into_iter().for_each(|part| report::note(&format!("breakdown of the {part}")));
                    rows
                });
                record_table::add_annotation(object, store.annotations().of(&record.run));
                object.insert("breakdown".into(), serde_json::to_value(rows).unwrap_or_default());
            }
            output::json(&value)?;
        }
    }
    Ok(0)
}

/// Where the time of the decode phase went, from the run's trace; `None` without one.
fn breakdown(record: &Record, store: &Store) -> Option<(Vec<BreakdownRow>, Option<Part>)> {
    if record.status != Status::Ok {
        return None;
    }
    match desk::trace_of(record, store, None) {
        Ok((trace, part)) => {
            let selection = Selection { phase: Some(Phase::Decode), ..Selection::default() };
            Some((trace::overlap::overlap(&trace, &selection).breakdown, part))
        }
        Err(error) => {
            report::warn(&format!("no breakdown: {error}"));
            None
        }
    }
}

/// Everything about the run, for people.
pub fn text(record: &Record, store: &Store) -> String {
    let mut text = String::new();
    // Writing to a String cannot fail.
    let _ = header(&mut text, record);
    if let Some(annotation) = store.annotations().of(&record.run) {
        if !annotation.tags.is_empty() {
            let _ = writeln!(text, "  {:<14}{}", "tags", record_table::words(&annotation.tags));
        }
        annotation.note.lines().for_each(|note| {
            let _ = writeln!(text, "  {:<14}{note}", "note");
        });
    }
    let _ = numbers(&mut text, record);
    let _ = predicted_from(&mut text, record);
    text += &differences(record).unwrap_or_default();
    if let Some((rows, part)) = breakdown(record, store).filter(|(rows, _)| !rows.is_empty()) {
        let part = part.map(|part| format!(", {part}")).unwrap_or_default();
        let _ = write!(
            text,
            "\nDecode phase{part} by module and kind ({}; times per rank, averaged over ranks)\n{}",
            record.provenance,
            breakdown_rows(&rows).aligned()
        );
    }
    text
}

fn header(text: &mut String, record: &Record) -> std::fmt::Result {
    let spec = &record.spec;
    writeln!(
        text,
        "{} {}  {}  [{}]",
        record.status.glyph(),
        record.run,
        spec.label(),
        record.provenance
    )?;
    if let Some(reason) = &record.reason {
        writeln!(text, "  {}: {reason}", record.status.as_str())?;
    }
    let mut line = |name: &str, value: String| writeln!(text, "  {name:<14}{value}");
    line("model", format!("{} in {}", spec.model, spec.dtype))?;
    line(
        "workload",
        format!(
            "batch {}, {} prompt tokens, {} output tokens",
            spec.batch, spec.prompt_tokens, spec.output_tokens
        ),
    )?;
    line(
        "runs on",
        format!(
            "{}, TP {}, p2p {}, link {}",
            record_table::platform(record),
            spec.tp,
            spec.p2p.as_str(),
            spec.link
        ),
    )?;
    line("samples", format!("{} after {} of warm-up, seed {}", spec.samples, spec.warmup, spec.seed))?;
    for (what, pairs) in [("variables", &spec.env), ("overrides", &spec.set)] {
        if !pairs.is_empty() {
            line(what, pairs.iter().map(|(k, v)| format!("{k}={v}")).collect::<Vec<_>>().join(" "))?;
        }
    }
    if !record.created.is_empty() {
        let of = record.experiment.as_ref().map(|e| format!(", experiment {e}")).unwrap_or_default();
        line("created", format!("{}, round {}{of}", record.created, record.round + 1))?;
    }
    if record.runs.len() > 1 {
        line("pooled from", record.runs.join(" "))?;
    }
    if let Some(trace) = &record.trace {
        line("trace", trace.clone())?;
    }
    for warning in &record.warnings {
        line("warning", warning.clone())?;
    }
    Ok(())
}

fn numbers(text: &mut String, record: &Record) -> std::fmt::Result {
    let Some(metrics) = &record.metrics else { return Ok(()) };
    for scope in [Scope::Run, Scope::Lanes] {
        let told = MEASURES.iter().filter(|measure| measure.scope == scope);
        let told: Vec<_> = told.filter_map(|m| Some((m.name, m.words, m.told(record)?))).collect();
        match scope {
            _ if told.is_empty() => continue,
            Scope::Lanes => {
                writeln!(
                    text,
                    "\nOverlap: decode phase of one sample, averaged over ranks ({})",
                    record.provenance
                )?;
            }
            _ => {
                let samples = metrics.samples;
                writeln!(text, "\nMetrics: medians over {samples} sample(s) ({})", record.provenance)?;
            }
        }
        for (name, words, told) in told {
            let aside = if name == "completion_ms" { mean_aside(record) } else { String::new() };
            writeln!(text, "  {words:<32}{told}{aside}")?;
        }
    }
    if let Some(pass) = &record.instrumented {
        writeln!(text, "  {:<32}{}", "operations timed by", pass.recorder)?;
    }
    Ok(())
}

/// Of a simulation, which share of the time came from where.
fn predicted_from(text: &mut String, record: &Record) -> std::fmt::Result {
    let Some(phases) = record.environment.get("cost_sources").and_then(|v| v.as_object()) else {
        return Ok(());
    };
    writeln!(text, "\nPredicted from, share of the operations' time (simulated)")?;
    for phase in ["prefill", "decode"] {
        let Some(shares) = phases.get(phase).and_then(|v| v.as_object()) else { continue };
        let share = |source: CostSource| {
            let share = shares.get(source.as_str()).and_then(|v| v.as_f64()).unwrap_or_default();
            (share > 0.0).then(|| {
                let what = match source {
                    CostSource::Table => "points of latency tables",
                    CostSource::Interpolated => "between points of latency tables",
                    CostSource::Roofline => "roofline",
                    CostSource::Calibrated => "calibrated constants",
                };
                format!("{what} {:.1} %", 100.0 * share)
            })
        };
        let list: Vec<String> = CostSource::ALL.into_iter().filter_map(share).collect();
        writeln!(text, "  {phase:<22}{}", list.join(", "))?;
    }
    Ok(())
}

/// Of a simulated run, where its time differs from standard's and upper-bound's, which
/// are simulated for it.
fn differences(record: &Record) -> Option<String> {
    if record.status != Status::Ok || !record.spec.backend.is_simulated() {
        return None;
    }
    let of = |architecture: Architecture| {
        let spec = Spec { architecture, ..record.spec.clone() };
        let (outcome, _) = backend(spec.backend).ok()?.predict(&spec, &Shared::default(), false).ok()?;
        outcome.samples.first()?.overlap
    };
    let (standard, bound) = (of(Architecture::Standard), of(Architecture::UpperBound));
    let it = record.overlap.as_ref();
    let name = record.spec.architecture.to_string();
    let told: Vec<_> = [
        (format!("standard - {name}"), Difference::new(standard.as_ref(), it)),
        (format!("{name} - upper-bound"), Difference::new(it, bound.as_ref())),
    ]
    .into_iter()
    .filter(|(names, _)| names != "standard - standard" && names != "upper-bound - upper-bound")
    .filter_map(|(names, difference)| Some(("", names, difference?)))
    .collect();
    Some(format!(
        "\nWhere the time goes: decode phase, ms per rank, against standard and upper-bound (simulated)\n{}",
        told_table(&told).aligned()
    ))
}

/// The mean where it tells another story than the median: some sample stalled.
fn mean_aside(record: &Record) -> String {
    let times: Vec<f64> = record.samples.iter().map(|s| s.prefill_ms + s.decode_ms).collect();
    let (Some(metrics), false) = (&record.metrics, times.is_empty()) else { return String::new() };
    let mean = times.iter().sum::<f64>() / times.len() as f64;
    if (mean / metrics.completion_ms - 1.0).abs() > 0.05 {
        format!("  (mean {mean:.3} ms: some samples differ much)")
    } else {
        String::new()
    }
}

/// The breakdown as rows.
pub fn breakdown_rows(rows: &[BreakdownRow]) -> Table {
    let mut table =
        Table::new(["module", "kind", "lane", "count", "total_us", "exposed_us", "share_of_lane_pct"]);
    for row in rows {
        table.push(vec![
            Shown::text(&row.module),
            Shown::text(&row.kind),
            Shown::text(&row.lane),
            Shown::Whole(row.count),
            Shown::Number(row.total_us, 1),
            Shown::Number(row.exposed_us, 1),
            Shown::Number(100.0 * row.share, 1),
        ]);
    }
    table
}
