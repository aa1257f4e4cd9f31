//! Improvement figure: throughput gain over standard in percent, with the intervals of the paired ratios
//! ([`crate::analysis::compare()`]). Bars over batch sizes, or over models if the sets differ only in the
//! model; one column of charts per TP, one row per P2P setting.

use std::collections::{BTreeMap, BTreeSet};

use super::axis::ValueAxis;
use super::bars::{Bar, BarChart, BarGroup, BarLabel, draw, under, values};
use super::figure::{Figure, FigureOptions, POINTS};
use super::layout::{ChartSize, LegendEntry, LegendKey, Sheet};
use super::provenance::ProvenanceSummary;
use super::style::{FigureSizes, Look, Looks, looks};
use super::{check_charts, group_note};
use crate::analysis::{CellSet, Comparison, ComparisonReport};
use base::error::{Error, Result};
use plan::Architecture;
use table::{P2p, Record};

/// Cells of a chart; `batch` is set if the bars are models.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct ChartCells {
    tp: u32,
    p2p: P2p,
    batch: Option<u32>,
}

/// Draws the figure of comparable cells. Several sets must differ only in the model. `report` is the
/// comparison of the same runs by architecture.
///
/// # Errors
///
/// Returns an error if nothing can be compared with standard, or there are too many charts.
pub fn improvement_figure(
    sets: &[CellSet],
    report: &ComparisonReport,
    provenance: &ProvenanceSummary,
    options: &FigureOptions,
) -> Result<Figure> {
    let by_run: BTreeMap<&str, &Comparison> = report
        .pairs
        .iter()
        .filter(|pair| pair.baseline == "standard")
        .map(|pair| (pair.run.as_str(), pair))
        .collect();
    let compared = |record: &&Record| by_run.contains_key(record.run.as_str());
    let cells = || sets.iter().flat_map(|set| &set.cells).filter(compared);
    let architectures: BTreeSet<Architecture> = cells().map(|c| c.spec.architecture.clone()).collect();
    if architectures.is_empty() {
        return Err(Error::input_help(
            "nothing to plot: no run has a matching standard run",
            "run the same cells with --architecture standard",
        ));
    }
    // use the same colours as figures that show standard
    let looks = looks(architectures.iter().chain([&Architecture::Standard]));
    let over_models = sets.len() > 1;
    let batches: BTreeSet<u32> = cells().map(|c| c.spec.batch).collect();
    let tps: BTreeSet<u32> = cells().map(|c| c.spec.tp).collect();
    let settings: BTreeSet<P2p> = cells().map(|c| c.spec.p2p).collect();
    let rows: Vec<(P2p, Option<u32>)> = match over_models {
        true => settings.iter().flat_map(|p| batches.iter().map(|b| (*p, Some(*b)))).collect(),
        false => settings.iter().map(|p| (*p, None)).collect(),
    };
    check_charts(rows.len() * tps.len(), "tp")?;
    let groups_of = |cells: ChartCells| -> Vec<BarGroup> {
        let group = |set, name, batch| improvement_group(set, name, cells, batch, &by_run, &looks);
        match cells.batch {
            Some(batch) => sets.iter().map(|set| group(set, model_of(set).to_owned(), batch)).collect(),
            None => batches.iter().map(|batch| group(&sets[0], batch.to_string(), *batch)).collect(),
        }
    };
    let charts: Vec<(ChartCells, Vec<BarGroup>)> = rows
        .iter()
        .flat_map(|(p2p, batch)| tps.iter().map(|tp| ChartCells { tp: *tp, p2p: *p2p, batch: *batch }))
        .map(|cells| (cells, groups_of(cells)))
        .collect();
    let mut remark = format!("{} ratios to standard; no bar: no run", by_run.len());
    if by_run.values().any(|pair| pair.speedup_ci95.is_some()) {
        remark += "; whiskers: 95 % intervals, paired by round";
    }
    let entry = |(architecture, look): (&Architecture, &Look)| {
        LegendEntry::new(LegendKey::Bar { color: look.color, hatch: look.hatch }, architecture)
    };
    let sheet = Sheet {
        options,
        provenance,
        title: "Throughput gain over standard".into(),
        note: note(sets),
        remark,
        legend: looks.iter().filter(|(a, _)| **a != Architecture::Standard).map(entry).collect(),
    };
    let width = options.size.width * POINTS;
    let columns = tps.len();
    let names = charts.iter().map(|(_, groups)| {
        under(groups, width / columns as f64 - 40.0, &FigureSizes::new(options.font))
    });
    let names = names.fold(0.0, f64::max);
    let axes = (if over_models { "model" } else { "batch" }, "gain in tokens/s (%)");
    let size =
        ChartSize { aspect: 0.6, height: 75.0 + names..=150.0 + names, least: (50.0, 34.0 + names) };
    let (mut scene, cells) = sheet.charts((charts.len(), columns), size, axes)?;
    let all: Vec<f64> = charts.iter().flat_map(|(_, groups)| values(groups)).collect();
    let y = ValueAxis::from_zero(all.into_iter());
    let charts = charts.into_iter().map(|(chart, groups)| {
        let mut words = vec![format!("TP {}", chart.tp)];
        if settings.len() > 1 {
            words.push(format!("P2P {}", chart.p2p.as_str()));
        }
        words.extend(chart.batch.filter(|_| batches.len() > 1).map(|batch| format!("batch {batch}")));
        BarChart { title: words.join(", "), groups, y }
    });
    draw(&mut scene, &cells, &charts.collect::<Vec<_>>());
    Ok(Figure::new(scene, provenance, options))
}

/// Setting that all cells share; several sets differ in the model, which is then left out.
fn note(sets: &[CellSet]) -> String {
    match sets {
        [] => String::new(),
        [set] => group_note(&set.name),
        [set, ..] => group_note(set.name.strip_prefix(model_of(set)).unwrap_or(&set.name).trim_start()),
    }
}

fn model_of(set: &CellSet) -> &str {
    set.cells.first().map_or("", |cell| cell.spec.model.as_str())
}

fn improvement_group(
    set: &CellSet,
    name: String,
    cells: ChartCells,
    batch: u32,
    by_run: &BTreeMap<&str, &Comparison>,
    looks: &Looks,
) -> BarGroup {
    let percent = |ratio: f64| 100.0 * (ratio - 1.0);
    let bar = |(architecture, look): (&Architecture, &Look)| {
        let record = set.get(architecture, cells.tp, batch, cells.p2p)?;
        let pair = by_run.get(record.run.as_str())?;
        Some(Bar {
            value: percent(pair.speedup),
            interval: pair.speedup_ci95.map(|ends| ends.map(percent)),
            color: look.color,
            hatch: look.hatch,
        })
    };
    let others = looks.iter().filter(|(architecture, _)| **architecture != Architecture::Standard);
    let bars: Vec<Option<Bar>> = others.map(bar).collect();
    let label = |(index, bar): (usize, &Option<Bar>)| {
        let text = format!("{:.0}", bar.as_ref()?.value).replace('-', "−");
        Some(BarLabel { first: index, last: index, text })
    };
    let labels = bars.iter().enumerate().filter_map(label).collect();
    BarGroup { name, bars, labels }
}
