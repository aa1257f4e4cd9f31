//! `ladderscope overlap RUN|TRACE`: overlap and breakdown of a trace, per rank and in all.

use std::path::PathBuf;

use super::output::{self, Field, Format, FormatArgs, Rows};
use super::rules::RulesArgs;
use super::select::SelectArgs;
use super::show;
use super::source::Source;
use crate::analysis::{self, OverlapReport, RankOverlap};
use crate::error::{Error, Result};
use crate::store::Store;

/// Arguments of `overlap`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// A stored run (id, prefix, 'last'), a trace file, or a directory of them (a file a rank)
    #[arg(value_name = "RUN|TRACE")]
    pub source: String,
    #[command(flatten)]
    pub select: SelectArgs,
    #[command(flatten)]
    pub rules: RulesArgs,
    #[command(flatten)]
    pub output: FormatArgs,
}

/// Prints the report.
pub fn run(args: &Args, dir: PathBuf) -> Result<u8> {
    let store = Store::open(dir);
    let (trace, _) = Source::find(&args.source, &store)?.trace(&store, &args.rules.load()?)?;
    let selection = args.select.resolve(&trace)?;
    let mut report = analysis::overlap(&trace, &selection);
    report.provenance = report.provenance.or(Some(trace.meta.provenance));
    match args.output.format {
        Format::Json => {
            let mut value = serde_json::to_value(&report).map_err(|e| Error::failed(e.to_string()))?;
            // The sum over ranks is of no rank.
            if let Some(all) = value.get_mut("all").and_then(|all| all.as_object_mut()) {
                all.remove("rank");
            }
            if let Some(object) = value.as_object_mut() {
                object.insert(
                    "selection".into(),
                    serde_json::json!({
                        "phase": selection.phase.map(|p| p.as_str()),
                        "step": selection.step,
                        "from_us": selection.from_ns.map(|ns| ns as f64 / 1e3),
                        "to_us": selection.to_ns.map(|ns| ns as f64 / 1e3),
                    }),
                );
            }
            output::json(&value)?;
        }
        Format::Csv => output::emit(&ranks(&report, false).csv())?,
        Format::Table => {
            let provenance = report.provenance.map(|p| p.as_str()).unwrap_or_default();
            let mut text = format!(
                "Overlap by rank, in microseconds ({provenance})\n{}",
                ranks(&report, true).table()
            );
            if !report.breakdown.is_empty() {
                text += &format!(
                    "\nBy module and kind (per rank, averaged over ranks)\n{}",
                    show::breakdown_rows(&report.breakdown).table()
                );
            }
            output::emit(&text)?;
        }
    }
    Ok(0)
}

fn ranks(report: &OverlapReport, with_sum: bool) -> Rows {
    let mut rows = Rows::new([
        "rank",
        "comm_us",
        "compute_us",
        "memory_us",
        "overlap_us",
        "exposed_comm_us",
        "overlap_pct",
        "busy_us",
        "idle_us",
        "span_us",
        "peer_wait_us",
    ]);
    let mut push = |name: Field, of: &RankOverlap| {
        rows.push(vec![
            name,
            Field::Number(of.comm_us, 1),
            Field::Number(of.compute_us, 1),
            Field::Number(of.memory_us, 1),
            Field::Number(of.overlap_us, 1),
            Field::Number(of.exposed_comm_us, 1),
            Field::number(of.overlap_pct, 1),
            Field::Number(of.busy_us, 1),
            Field::Number(of.idle_us, 1),
            Field::Number(of.span_us, 1),
            Field::Number(of.peer_wait_us, 1),
        ]);
    };
    for rank in &report.ranks {
        push(Field::Whole(rank.rank.into()), rank);
    }
    if with_sum && report.ranks.len() > 1 {
        push(Field::text("all"), &report.all);
    }
    rows
}
