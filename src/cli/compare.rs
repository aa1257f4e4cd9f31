//! `ladderscope compare --by AXIS`: matched pairs of cells, their ratios and intervals.

use std::path::PathBuf;

use super::output::{self, Field, Format, FormatArgs, Rows};
use super::{figure, pareto, report, runs};
use crate::analysis::{self, AXES, ComparisonReport, Difference};
use crate::error::{Error, Result};
use crate::plot;

/// Arguments of `compare`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Stored runs (id, prefix, batch, 'last') or runs directories [default: all of --dir]
    #[arg(value_name = "RUNS|DIR")]
    pub runs: Vec<String>,
    /// What the cells of a pair differ in: architecture, p2p, tp, batch, link, model, hardware, backend, dtype, collective
    #[arg(long, value_name = "AXIS")]
    pub by: String,
    /// Only runs that meet these conditions (as in `runs`)
    #[arg(long, value_name = "CONDITIONS")]
    pub filter: Option<String>,
    /// Also write a figure (.svg, .png) or the pairs (.csv)
    #[arg(long, value_name = "FILE")]
    pub export: Option<PathBuf>,
    #[command(flatten)]
    pub output: FormatArgs,
}

/// Prints the pairs.
pub fn run(args: &Args, dir: PathBuf) -> Result<u8> {
    if !AXES.contains(&args.by.as_str()) {
        return Err(Error::unknown("axis", &args.by, AXES));
    }
    let export = args
        .export
        .as_deref()
        .map(|path| Ok((path, pareto::export_format(path, &["svg", "png", "csv"])?)));
    let export = export.transpose()?;
    let records = runs::filtered(runs::select(&args.runs, &dir)?, args.filter.as_deref(), None)?;
    // Runs as they are stored, not pooled: ratios pair by round.
    let comparison = analysis::compare(&records, &args.by)?;
    if comparison.pairs.is_empty() {
        report::note(&format!("no two finished cells differ in {} alone", args.by));
    }
    if let Some((path, format)) = export {
        match format {
            "csv" => plot::write(path, rows(&comparison).csv().as_bytes())?,
            _ if comparison.pairs.is_empty() => {
                return Err(Error::input("there is nothing to draw: no pairs"));
            }
            _ => {
                let facts = figure::facts(&records, &figure::stores(&args.runs, &dir));
                plot::comparison_figure(&comparison, &facts, &plot::Options::default())?.save(path)?;
            }
        }
        report::note(&format!("wrote {}", path.display()));
    }
    match args.output.format {
        Format::Json => output::json(&comparison)?,
        Format::Csv => output::emit(&rows(&comparison).csv())?,
        Format::Table if comparison.pairs.is_empty() => {}
        Format::Table => output::emit(&table(&comparison))?,
    }
    for flag in &comparison.flags {
        report::warn(flag);
    }
    Ok(0)
}

fn table(comparison: &ComparisonReport) -> String {
    let mut rows = Rows::new([
        "cell",
        "baseline",
        "value",
        "TPOT ms",
        "baseline TPOT ms",
        "speed-up",
        "95%",
        "differs",
        "overlap %",
        "baseline overlap %",
        "hidden share",
        "provenance",
    ]);
    let interval = |ci: Option<[f64; 2]>| {
        ci.map_or(Field::None, |[low, high]| Field::text(format!("[{low:.3}, {high:.3}]")))
    };
    for pair in &comparison.pairs {
        rows.push(vec![
            Field::text(&pair.matched),
            Field::text(&pair.baseline),
            Field::text(&pair.value),
            Field::Number(pair.tpot_ms, 3),
            Field::Number(pair.baseline_tpot_ms, 3),
            Field::Number(pair.speedup, 3),
            interval(pair.speedup_ci95),
            Field::text(if pair.differs { "yes" } else { "not shown" }),
            Field::number(pair.overlap_pct, 1),
            Field::number(pair.baseline_overlap_pct, 1),
            Field::number(pair.hidden_share, 3),
            Field::text(pair.provenance),
        ]);
    }
    format!(
        "{}{} comparison(s): the more there are, the more of them differ by chance\n{}",
        rows.table(),
        comparison.comparisons,
        differences(comparison).unwrap_or_default()
    )
}

/// Where the differences lie, where the backend can tell.
fn differences(comparison: &ComparisonReport) -> Option<String> {
    let mut rows = Rows::new([
        "cell",
        "difference",
        "decode ms",
        "transfer",
        "peers",
        "contention",
        "operations",
        "idle",
    ]);
    let mut any = false;
    for pair in &comparison.pairs {
        let both = [
            (format!("{} - {}", pair.baseline, pair.value), pair.saved),
            (format!("{} - upper-bound", pair.value), pair.above_upper_bound),
        ];
        // the upper bound less itself is nothing
        let told = both.into_iter().take(if pair.value == "upper-bound" { 1 } else { 2 });
        for (name, difference) in told {
            let Some(d) = difference else { continue };
            any = true;
            rows.push(difference_row(vec![Field::text(&pair.matched), Field::text(name)], &d));
        }
    }
    any.then(|| {
        format!(
            "\nWhere the difference lies: decode phase, ms per rank ({})\n{}",
            comparison.pairs.first().map(|pair| pair.provenance.as_str()).unwrap_or_default(),
            rows.table()
        )
    })
}

/// A row of differences after its names.
pub(super) fn difference_row(mut names: Vec<Field>, d: &Difference) -> Vec<Field> {
    let parts =
        [d.decode_ms, d.transfer_ms, d.peer_wait_ms, d.contention_ms, d.operations_ms, d.idle_ms];
    names.extend(parts.map(|ms| Field::Number(ms, 2)));
    names
}

fn rows(comparison: &ComparisonReport) -> Rows {
    let mut rows = Rows::new([
        "matched",
        "by",
        "baseline",
        "value",
        "baseline_run",
        "run",
        "baseline_tpot_ms",
        "tpot_ms",
        "speedup",
        "speedup_ci95_low",
        "speedup_ci95_high",
        "differs",
        "baseline_overlap_pct",
        "overlap_pct",
        "hidden_share",
        "hidden_share_ci95_low",
        "hidden_share_ci95_high",
        "provenance",
        "saved_decode_ms",
        "saved_transfer_ms",
        "saved_peer_wait_ms",
        "saved_contention_ms",
        "saved_operations_ms",
        "above_bound_decode_ms",
        "above_bound_transfer_ms",
        "above_bound_peer_wait_ms",
        "above_bound_contention_ms",
        "above_bound_operations_ms",
    ]);
    for pair in &comparison.pairs {
        let bound = |ci: Option<[f64; 2]>, at: usize| Field::number(ci.map(|ci| ci[at]), 4);
        let mut row = vec![
            Field::text(&pair.matched),
            Field::text(&comparison.by),
            Field::text(&pair.baseline),
            Field::text(&pair.value),
            Field::text(&pair.baseline_run),
            Field::text(&pair.run),
            Field::Number(pair.baseline_tpot_ms, 4),
            Field::Number(pair.tpot_ms, 4),
            Field::Number(pair.speedup, 4),
            bound(pair.speedup_ci95, 0),
            bound(pair.speedup_ci95, 1),
            Field::text(pair.differs),
            Field::number(pair.baseline_overlap_pct, 4),
            Field::number(pair.overlap_pct, 4),
            Field::number(pair.hidden_share, 4),
            bound(pair.hidden_share_ci95, 0),
            bound(pair.hidden_share_ci95, 1),
            Field::text(pair.provenance),
        ];
        for difference in [pair.saved, pair.above_upper_bound] {
            let parts: [fn(&Difference) -> f64; 5] = [
                |d| d.decode_ms,
                |d| d.transfer_ms,
                |d| d.peer_wait_ms,
                |d| d.contention_ms,
                |d| d.operations_ms,
            ];
            row.extend(parts.map(|of| Field::number(difference.as_ref().map(of), 4)));
        }
        rows.push(row);
    }
    rows
}
