//! `ladderscope compare --by AXIS`: matched pairs of cells, their ratios and intervals; with `--heatmap`
//! maps of them over TP and batch.

use std::path::PathBuf;

use super::output::{self, Field, Format, FormatArgs, Rows};
use super::{figure, pareto, report, runs};
use crate::analysis::{
    Axis, Cells, ComparisonReport, Difference, HeatMap, HeatValue, pairs_csv, slices,
};
use crate::error::{Error, Result};
use crate::plot;

/// Arguments of `compare`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Stored runs (id, prefix, batch, 'last') or runs directories [default: all of --dir]
    #[arg(value_name = "RUNS|DIR")]
    pub runs: Vec<String>,
    /// What the cells of a pair differ in: architecture, p2p, tp, batch, link, model, hardware, backend, dtype, collective,
    /// stack, prompt_tokens, output_tokens, recorder, coverage, no_graph, a variable (NCCL_ALGO) or a profile value (link.alpha_us)
    #[arg(long, value_name = "AXIS")]
    pub by: String,
    /// The value to compare with [default: standard, P2P on, a variable that is unset, else the first met]
    #[arg(long, value_name = "VALUE")]
    pub baseline: Option<String>,
    /// Maps over TP and batch, one for each value and whatever else differs, instead of the list of pairs
    #[arg(long)]
    pub heatmap: bool,
    /// Only runs that meet these conditions (as in `runs`)
    #[arg(long, value_name = "CONDITIONS")]
    pub filter: Option<String>,
    /// Also write a figure (.svg, .png) or the pairs (.csv)
    #[arg(long, value_name = "FILE")]
    pub export: Option<PathBuf>,
    #[command(flatten)]
    pub output: FormatArgs,
}

/// Prints the pairs, or the maps.
pub fn run(args: &Args, dir: PathBuf) -> Result<u8> {
    let axis = Axis::parse(&args.by)?;
    let export = args
        .export
        .as_deref()
        .map(|path| Ok((path, pareto::export_format(path, &["svg", "png", "csv"])?)));
    let export = export.transpose()?;
    let records = runs::filtered(runs::select(&args.runs, &dir)?, args.filter.as_deref(), None)?;
    // Runs as they are stored, not pooled: ratios pair by round.
    let comparison = Cells::of(&records).compare(&axis, args.baseline.as_deref())?;
    if comparison.pairs.is_empty() {
        report::note(&format!("no two finished cells differ in {} alone", args.by));
    }
    if let Some((path, format)) = export {
        match format {
            "csv" => plot::write(path, pairs_csv(&comparison).as_bytes())?,
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
    if args.heatmap {
        print_maps(&comparison, args.output.format)?;
    } else {
        match args.output.format {
            Format::Json => output::json(&comparison)?,
            Format::Csv => output::emit(&pairs_csv(&comparison))?,
            Format::Table if comparison.pairs.is_empty() => {}
            Format::Table => output::emit(&table(&comparison))?,
        }
    }
    for flag in &comparison.flags {
        report::warn(flag);
    }
    Ok(0)
}

/// Maps over TP and batch, a slice each; JSON and CSV have every number of the cells.
fn print_maps(comparison: &ComparisonReport, format: Format) -> Result<()> {
    let maps: Vec<HeatMap> =
        slices(comparison).iter().map(|slice| HeatMap::new(comparison, slice)).collect();
    match format {
        Format::Json => output::json(&maps),
        Format::Csv => output::emit(&map_rows(comparison, &maps).csv()),
        Format::Table => output::emit(&maps_text(comparison, &maps)),
    }
}

/// Maps for people: rows are TPs, columns batches.
fn maps_text(comparison: &ComparisonReport, maps: &[HeatMap]) -> String {
    let mut text = String::new();
    for map in maps {
        if !text.is_empty() {
            text.push('\n');
        }
        let provenance = map.cells.iter().map(|c| comparison.pairs[c.pair].provenance).max();
        let provenance = provenance.map(|p| p.as_str()).unwrap_or_default();
        text += &format!(
            "{} by {}: {} ({provenance})\n",
            HeatValue::Speedup.name(),
            map.by,
            map.slice.name()
        );
        let columns =
            std::iter::once("tp".to_owned()).chain(map.batches.iter().map(|b| format!("b{b}")));
        let mut rows = Rows::new(columns);
        for &tp in &map.tps {
            let cell = |&batch: &u32| match map.cell(tp, batch) {
                // what is not shown to differ says so without colour
                Some(cell) if !cell.differs => Field::text(format!("({:.3})", cell.speedup)),
                Some(cell) => Field::Number(cell.speedup, 3),
                None => Field::None,
            };
            rows.push(
                std::iter::once(Field::Whole(tp.into())).chain(map.batches.iter().map(cell)).collect(),
            );
        }
        text += &rows.table();
    }
    if maps.is_empty() {
        return text;
    }
    text + &format!("(in brackets: not shown to differ) {}", said_of_many(comparison))
}

fn map_rows(comparison: &ComparisonReport, maps: &[HeatMap]) -> Rows {
    let mut rows = Rows::new([
        "by",
        "baseline",
        "value",
        "rest",
        "tp",
        "batch",
        "speedup",
        "differs",
        "baseline_exposed_pct",
        "exposed_pct",
        "baseline_hidden_share",
        "hidden_share",
        "provenance",
        "baseline_run",
        "run",
    ]);
    for map in maps {
        for cell in &map.cells {
            let pair = &comparison.pairs[cell.pair];
            rows.push(vec![
                Field::text(&map.by),
                Field::text(&pair.baseline),
                Field::text(&pair.value),
                Field::text(&map.slice.rest),
                Field::Whole(cell.tp.into()),
                Field::Whole(cell.batch.into()),
                Field::Number(cell.speedup, 4),
                Field::text(cell.differs),
                Field::number(cell.exposed_pct[0], 4),
                Field::number(cell.exposed_pct[1], 4),
                Field::number(cell.hidden_share[0], 4),
                Field::number(cell.hidden_share[1], 4),
                Field::text(pair.provenance),
                Field::text(&pair.baseline_run),
                Field::text(&pair.run),
            ]);
        }
    }
    rows
}

/// How many comparisons there were, and what is left of the differences when that is heeded.
fn said_of_many(comparison: &ComparisonReport) -> String {
    let adjusted = &comparison.adjusted;
    let mut text = format!(
        "{} comparison(s), {} differ: the more there are, the more of them differ by chance\n",
        comparison.comparisons, comparison.differ
    );
    if adjusted.tested > 0 {
        text += &format!(
            "adjusted for their number ({}, false discovery rate {}): {} of {} tested differ\n",
            adjusted.method, adjusted.false_discovery_rate, adjusted.differ, adjusted.tested
        );
    }
    text
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
        "adjusted p",
        "exposed % TPOT",
        "baseline exposed %",
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
            Field::number(pair.adjusted_p, 4),
            Field::number(pair.side.exposed_pct, 1),
            Field::number(pair.baseline_side.exposed_pct, 1),
            Field::number(pair.overlap_pct, 1),
            Field::number(pair.baseline_overlap_pct, 1),
            Field::number(pair.hidden_share, 3),
            Field::text(pair.provenance),
        ]);
    }
    format!(
        "{}{}{}",
        rows.table(),
        said_of_many(comparison),
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
