//! `ladderscope compare --by AXIS`: matched pairs of cells with ratios and intervals, a row per setting with `--pivot`,
//! or maps over TP and batch with `--heatmap`. `compare --baseline NAME --gate GATE`: judges runs against a stored
//! baseline.

use std::collections::HashSet;
use std::path::{Path, PathBuf};

use super::filter::FilterArgs;
use super::gate;
use super::output::{self, FormatArgs};
use super::stderr;
use crate::desk::export::{self, FileKind};
use crate::desk::{self, RunSelection, Stores};
use base::error::{Error, Result};
use lab::store::Store;
use study::analysis::{
    Axis, Cells, Comparison, ComparisonReport, DIFFERENCES, Gaps, Gate, HeatCell, HeatMap, HeatValue,
    PairVerdict, Pivot, REST, beaten_limit, common_settings, differences_table, judge, pairs_table,
    pivot_table, slices,
};
use study::answer::headlines_of_all;
use study::validate::reversed_orders;
use table::render::{Shown, Sourced, Table};
use table::{MEASURES, Record, measure};

/// Arguments of `ladderscope compare`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Stored runs (id, prefix, batch, 'last') or runs directories [default: all runs in --dir]
    #[arg(value_name = "RUNS|DIR")]
    pub runs: Vec<String>,
    /// Option that differs within a pair: any option of `run` (architecture, p2p, tp, batch, collective, ...), an
    /// environment variable (NCCL_ALGO), a profile value (link.alpha_us), or division: TP, EP and DP of as many GPUs
    #[arg(long, value_name = "AXIS", required_unless_present = "gate")]
    pub by: Option<String>,
    /// Value of the --by option that the others are compared with [default: standard, on, unset, else the first found]
    #[arg(long, value_name = "VALUE", requires = "by", conflicts_with = "baseline")]
    pub against: Option<String>,
    /// Stored baseline (`ladderscope baseline set`) or its file, for --gate
    // with --by it is the former name of --against
    #[arg(long, value_name = "BASELINE")]
    pub baseline: Option<String>,
    /// Allowed change of a metric against the baseline, for example 'tpot<+3%', 'tok/s>-2%' or, in the metric's
    /// unit, 'overlap>-5' (repeatable, all must pass); exit status 4 if a change is significantly larger; undecided
    /// if the confidence interval contains the limit or the runs are noisy
    #[arg(long, value_name = "GATE", requires = "baseline", conflicts_with_all = ["by", "heatmap", "pivot", "value", "output"])]
    pub gate: Vec<Gate>,
    /// Exit with status 4 also if a gate is undecided
    #[arg(long, requires = "gate")]
    pub strict: bool,
    /// Also show a metric of both cells and its ratio, for example prefill_ms or overlap
    #[arg(long, value_name = "MEASURE", conflicts_with = "heatmap")]
    pub value: Option<String>,
    /// Show heatmaps over TP and batch instead of a list, one per value and group of comparable runs
    #[arg(long, conflicts_with = "output")]
    pub heatmap: bool,
    /// Show one row per setting with a column per value instead of the list of pairs (JSON: the pairs)
    #[arg(long, conflicts_with_all = ["heatmap", "value"])]
    pub pivot: bool,
    #[command(flatten)]
    pub filter: FilterArgs,
    /// Also write a figure (.svg, .png) or the pairs (.csv)
    #[arg(short, long, alias = "export", value_name = "FILE")]
    pub output: Option<PathBuf>,
    #[command(flatten)]
    pub format: FormatArgs,
}

pub fn run(args: &Args, dir: PathBuf) -> Result<u8> {
    let Some(by) = &args.by else { return compare_with_baseline(args, &dir) };
    let axis = Axis::parse(by)?;
    let export = args.output.as_deref();
    export.map(|path| FileKind::check(path, &FileKind::ALL)).transpose()?;
    let against = args.against.as_deref().or(args.baseline.as_deref());
    let records = args.filter.compared(&args.runs, &dir, &axis, against)?;
    // Runs are not pooled, because ratios pair them by round.
    let cells = Cells::from_records(&records);
    let mut comparison = cells.compare(&axis, against)?;
    if let Some(name) = &args.value {
        let known = || MEASURES.iter().map(|measure| measure.name);
        let measure = measure(name).ok_or_else(|| Error::unknown("measure", name, known()))?;
        cells.measure(&mut comparison, measure);
    }
    if comparison.pairs.is_empty() {
        stderr::note(&format!("no two finished cells differ only in {by}"));
    }
    if let Some(path) = export {
        let provenance = || Stores::named(&args.runs, &dir).provenance(&records);
        export::comparison(path, &comparison, provenance)?;
        stderr::note(&format!("wrote {}", path.display()));
    }
    if args.heatmap {
        let maps: Vec<HeatMap> =
            slices(&comparison).iter().map(|slice| HeatMap::new(&comparison, slice)).collect();
        let csv = || map_rows(&comparison, &maps).csv(Sourced::ByRow);
        output::print(args.format.format, &maps, csv, || maps_text(&comparison, &maps, &records))?;
    } else {
        let rows = || match args.pivot {
            true => pivoted(&comparison),
            false => pairs_table(&comparison),
        };
        let csv = || rows().csv(Sourced::ByRow);
        let text = || match (comparison.pairs.is_empty(), args.pivot) {
            (true, _) => String::new(),
            (_, true) => {
                output::aligned(&pivoted(&comparison))
                    + &common_text(&comparison)
                    + &significance_text(&comparison)
            }
            _ => comparison_text(&axis, &comparison),
        };
        output::print(args.format.format, &comparison, csv, text)?;
    }
    stderr::note_simulator_errors(records.iter().map(|record| &record.spec));
    let flags = comparison.flags.iter().map(|flag| flag.text.as_str());
    stderr::warn_all(flags, "--format json has all of them");
    Ok(0)
}

/// Judges runs by the gates against a stored baseline.
fn compare_with_baseline(args: &Args, dir: &Path) -> Result<u8> {
    let mut baseline = Store::open(dir).baseline(args.baseline.as_deref().unwrap_or_default())?;
    let mut records = args.filter.records(&args.runs, dir)?;
    if let Some(filter) = args.filter.typed() {
        // cells excluded by the filter do not count as missing; the baseline's cells for selected runs stay, even if
        // their own values fail the filter
        let partners: HashSet<String> = records.iter().map(|record| record.spec.key()).collect();
        let chosen = RunSelection { records: baseline.records.clone(), ..RunSelection::default() };
        let chosen: HashSet<String> =
            desk::filter_runs(chosen, Some(filter))?.into_iter().map(|record| record.run).collect();
        baseline
            .records
            .retain(|record| chosen.contains(&record.run) || partners.contains(&record.spec.key()));
    }
    // runs that the user names are judged whenever they ran
    if args.runs.is_empty() {
        records.retain(|record| record.created >= baseline.created);
    }
    let of_baseline = (baseline.name.as_str(), baseline.created.as_str());
    let report = judge(of_baseline, &baseline.records, &records, &args.gate);
    gate::print_gates(&report, args.strict, args.format.format)
}

/// Maps over TP and batch as text, one per slice: rows are TPs, columns batches. Shows the reason for a missing number.
fn maps_text(comparison: &ComparisonReport, maps: &[HeatMap], records: &[Record]) -> String {
    let (mut text, gaps) = (String::new(), Gaps::new(comparison, records));
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
        let mut rows = Table::new(columns);
        let why = gaps.reasons(map);
        for (row, tp) in map.tps.iter().enumerate() {
            let cell = |column: usize| match map.cell(row, column) {
                // as on the map of the compare screen
                Some(cell) => match comparison.pairs[cell.pair].verdict {
                    PairVerdict::Faster | PairVerdict::Slower => Shown::Number(cell.speedup, 3),
                    PairVerdict::Unknown => Shown::text(format!("?{:.3}", cell.speedup)),
                    _ => Shown::text(format!("≈{:.3}", cell.speedup)),
                },
                None => why.get(&(row, column)).map_or(Shown::None, Shown::text),
            };
            rows.push(
                std::iter::once(Shown::Whole((*tp).into()))
                    .chain((0..map.batches.len()).map(cell))
                    .collect(),
            );
        }
        text += &output::aligned(&rows);
    }
    if maps.is_empty() {
        return text;
    }
    text + &format!("≈ no clear difference, ? too few samples; {}", significance_text(comparison))
}

fn map_rows(comparison: &ComparisonReport, maps: &[HeatMap]) -> Table {
    let cells: Vec<(&HeatMap, &HeatCell, &Comparison)> = maps
        .iter()
        .flat_map(|map| map.cells.iter().map(move |cell| (map, cell, &comparison.pairs[cell.pair])))
        .collect();
    type Cell<'a> = (&'a HeatMap, &'a HeatCell, &'a Comparison);
    Table::from_rows(
        &cells,
        &[
            ("by", &|(map, ..): &Cell<'_>| Shown::text(&map.by)),
            ("baseline", &|(.., pair)| Shown::text(&pair.baseline)),
            ("value", &|(.., pair)| Shown::text(&pair.value)),
            ("rest", &|(map, ..)| Shown::text(&map.slice.rest)),
            ("tp", &|(_, cell, _)| cell.tp.into()),
            ("batch", &|(_, cell, _)| cell.batch.into()),
            ("speedup", &|(_, cell, _)| Shown::Number(cell.speedup, 4)),
            ("differs", &|(_, cell, _)| Shown::text(cell.differs)),
            ("verdict", &|(.., pair)| Shown::text(pair.verdict_word())),
            ("baseline_exposed_pct", &|(_, cell, _)| Shown::number(cell.exposed_pct[0], 4)),
            ("exposed_pct", &|(_, cell, _)| Shown::number(cell.exposed_pct[1], 4)),
            ("baseline_hidden_share", &|(_, cell, _)| Shown::number(cell.hidden_share[0], 4)),
            ("hidden_share", &|(_, cell, _)| Shown::number(cell.hidden_share[1], 4)),
            ("provenance", &|(.., pair)| Shown::text(pair.provenance)),
            ("baseline_run", &|(.., pair)| Shown::text(&pair.baseline_run)),
            ("run", &|(.., pair)| Shown::text(&pair.run)),
        ],
    )
}

/// Number of comparisons, the simulator's errors in the order of architectures, and the differences left after
/// correcting for multiple comparisons.
fn significance_text(comparison: &ComparisonReport) -> String {
    let adjusted = &comparison.adjusted;
    let mut text = format!("{}\n", comparison.counts());
    let specs = comparison.pairs.iter().map(|pair| [&pair.baseline_side.spec, &pair.side.spec]);
    let ranked = specs.filter(|[baseline, side]| baseline.architecture != side.architecture);
    text += &reversed_orders(ranked.flatten())
        .map_or(String::new(), |warning| format!("simulator: {warning}\n"));
    if adjusted.tested > 0 {
        text += &format!(
            "after correction ({}, false discovery rate {}): {} of {} are significant\n",
            adjusted.method, adjusted.false_discovery_rate, adjusted.differ, adjusted.tested
        );
    }
    text
}

/// Settings that the rows need not name.
fn common_text(comparison: &ComparisonReport) -> String {
    output::wrapped("all cells: ", &common_settings(comparison), 2)
}

/// Headline of the compare screen.
fn headline(axis: &Axis, comparison: &ComparisonReport) -> String {
    output::wrapped("", &format!("{}.", headlines_of_all(axis, comparison).trim_end_matches('.')), 0)
}

/// Table with a row per setting.
fn pivoted(comparison: &ComparisonReport) -> Table {
    let all: Vec<usize> = (0..comparison.pairs.len()).collect();
    pivot_table(comparison, &Pivot::new(comparison, &all))
}

fn comparison_text(axis: &Axis, comparison: &ComparisonReport) -> String {
    let differences = match differences_table(comparison).is_empty() {
        true => String::new(),
        false => {
            let about = output::wrapped("", &format!("{DIFFERENCES}; {REST}"), 0);
            format!("\n{about}{}", output::aligned(&differences_table(comparison)))
        }
    };
    let pairs = output::aligned(&pairs_table(comparison));
    let beaten = beaten_limit(comparison, |pair| pair.matched.clone());
    let beaten = beaten.map_or(String::new(), |beaten| output::wrapped("", &beaten, 0));
    format!(
        "{}{pairs}{}{}{beaten}{differences}",
        headline(axis, comparison),
        common_text(comparison),
        significance_text(comparison)
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use plan::DType;
    use table::testing::sim_record;

    #[test]
    fn cells_of_several_experiments_keep_the_options_that_distinguish_them() -> Result<()> {
        let cell = |large: bool, architecture: &str, tp: u32| {
            let change = |spec: &mut table::Spec| {
                (spec.architecture, spec.tp) = (architecture.parse().expect("an architecture"), tp);
                if large {
                    (spec.model, spec.dtype) = ("llama-3-70b".into(), DType::F16);
                    spec.stack = "gpt-fast".into();
                    (spec.prompt_tokens, spec.output_tokens) = (1024, 512);
                    (spec.samples, spec.warmup) = (3, 2);
                    for (name, value) in [("NCCL_ALGO", "Ring"), ("NCCL_PROTO", "Simple")] {
                        spec.env.insert(name.into(), value.into());
                    }
                }
            };
            let ladder = if architecture == "ladder" { 1.2 + 0.1 * f64::from(tp) } else { 1.0 };
            sim_record(&format!("{large}-{architecture}-{tp}"), change, 0.0, 9.0 / ladder)
        };
        let of_size = |large| {
            let of_tp = move |tp| ["standard", "ladder"].map(|name| cell(large, name, tp));
            [2, 8].into_iter().flat_map(of_tp)
        };
        let tables = |records: &[Record]| -> Result<[String; 2]> {
            let report = Cells::from_records(records).compare(&Axis::ARCHITECTURE, None)?;
            Ok([output::aligned(&pivoted(&report)), output::aligned(&pairs_table(&report))])
        };
        let both: Vec<Record> = [true, false].into_iter().flat_map(of_size).collect();
        for text in tables(&both)? {
            let has_tp = |row: &&str| row.contains(" tp2 ") || row.contains(" tp8 ");
            assert_eq!(text.lines().filter(has_tp).count(), 4, "{text}");
        }
        Ok(())
    }
}
