//! Conversion figure: quality loss (KL to `standard`) against speedup of sets of converted layers, one line
//! or marker per selection method.

use super::axis::{Chart, ValueAxis};
use super::figure::{Figure, FigureOptions};
use super::layout::{ChartSize, LegendEntry, LegendKey, Sheet};
use super::provenance::ProvenanceSummary;
use super::scene::{Area, Fill, Scene, Stroke};
use super::style::{Look, look};
use crate::analysis::{Conversion, ConversionPoint, ConversionReport, RandomSetSummary, SetSeries};
use base::error::{Error, Result};

/// Series of the figure with their names, in legend and drawing order; the paper's choice is drawn last, on top.
const SERIES: [(SetSeries, &str); 5] = [
    (SetSeries::Ordered, "lowest-cost layers"),
    (SetSeries::Greedy, "greedy"),
    (SetSeries::Last, "last layers"),
    (SetSeries::Random, "random layers"),
    (SetSeries::UpperHalf, "upper half (paper)"),
];

/// Looks of a conversion: one for each series of the figure, and one for single layers, which only the screen shows.
const LOOKS: usize = SERIES.len() + 1;

/// Series with its points, by number of converted layers.
struct ConversionSeries {
    series: SetSeries,
    look: Look,
    name: String,
    points: Vec<SeriesPoint>,
}

struct SeriesPoint {
    speedup: f64,
    kl: f64,
    kl_interval: Option<[f64; 2]>,
    tip: String,
}

/// Index of a series's look, in figures and on the screen.
pub fn series_look(conversion: Conversion, series: SetSeries) -> usize {
    let column = SERIES.iter().position(|(known, _)| *known == series).unwrap_or(SERIES.len());
    let row = Conversion::ALL.iter().position(|known| *known == conversion).unwrap_or_default();
    column + LOOKS * row
}

/// Draws the figure of a report. For random sets it shows the mean of each size and the range of the draws.
///
/// # Errors
///
/// Returns an error if there are no sets or the page is too small.
pub fn conversion_figure(report: &ConversionReport, options: &FigureOptions) -> Result<Figure> {
    let all = conversion_series(report);
    if all.is_empty() {
        return Err(Error::input("nothing to plot: no layer sets"));
    }
    let provenance = ProvenanceSummary {
        kinds: [report.provenance.quality, report.provenance.speed].into(),
        hardware: [report.target.hardware.clone()].into(),
        software: [format!("stack {}", report.target.stack)].into(),
        ..ProvenanceSummary::default()
    };
    let legend_entry = |&ConversionSeries { series, look, ref name, .. }: &ConversionSeries| {
        let fill = fill_of(series);
        let key = match series {
            SetSeries::UpperHalf => LegendKey::Marker { look, fill },
            _ => LegendKey::Series { look, fill, stroke: stroke_of(series) },
        };
        LegendEntry::new(key, name)
    };
    let sheet = Sheet {
        options,
        provenance: &provenance,
        title: "Quality and speedup of converted layers".into(),
        note: format!(
            "{} evaluated on {} tokens; speed of {}",
            report.model,
            report.predicted,
            report.target_label()
        ),
        remark:
            "KL is measured, with 95 % intervals (random sets: range of the draws); speedup is simulated"
                .into(),
        legend: all.iter().map(legend_entry).collect(),
    };
    let names = ("speedup over standard", "KL from standard (nats per token)");
    let size = ChartSize { aspect: 0.6, height: 120.0..=260.0, least: (100.0, 90.0) };
    let (mut scene, cells) = sheet.charts((1, 1), size, names)?;
    draw_chart(&mut scene, cells[0], &all);
    Ok(Figure::new(scene, &provenance, options))
}

fn stroke_of(series: SetSeries) -> Stroke {
    match series {
        SetSeries::Last | SetSeries::Random => Stroke::Dashed,
        _ => Stroke::Solid,
    }
}

fn fill_of(series: SetSeries) -> Fill {
    if series == SetSeries::Random { Fill::Hollow } else { Fill::Solid }
}

fn conversion_series(report: &ConversionReport) -> Vec<ConversionSeries> {
    let several = report.points.iter().any(|point| point.conversion != Conversion::Ladder);
    let mut all = Vec::new();
    for conversion in Conversion::ALL {
        for (series, words) in SERIES {
            let points: Vec<_> = match series {
                SetSeries::Random => report.draws(conversion).iter().map(of_draws).collect(),
                _ => report.series(conversion, series).into_iter().map(of_set).collect(),
            };
            if points.is_empty() {
                continue;
            }
            let name = if several { format!("{conversion}: {words}") } else { words.to_owned() };
            let look = look(series_look(conversion, series));
            all.push(ConversionSeries { series, look, name, points });
        }
    }
    all
}

fn of_set(set: &ConversionPoint) -> SeriesPoint {
    let (speedup, kl) = (set.speedup, set.quality.kl);
    let tip = format!("point {}: {}, KL {kl:.4}, {speedup:.3}x", set.number, set.architecture);
    SeriesPoint { speedup, kl, kl_interval: set.quality.kl_ci95, tip }
}

fn of_draws(draws: &RandomSetSummary) -> SeriesPoint {
    let RandomSetSummary { count, kl, speedup, range: [least, most], .. } = *draws;
    let tip = format!("{count} random layers: KL {kl:.4}, from {least:.4} to {most:.4}, {speedup:.3}x");
    SeriesPoint { speedup, kl, kl_interval: Some([least, most]), tip }
}

fn draw_chart(scene: &mut Scene, cell: Area, all: &[ConversionSeries]) {
    let points = || all.iter().flat_map(|series| &series.points);
    // a lower end at or below 0 is a rounding error and would prevent a logarithmic axis
    let ends = points().filter_map(|point| point.kl_interval).flatten().filter(|end| *end > 0.0);
    let y = ValueAxis::fit(points().map(|point| point.kl).chain(ends));
    let x = ValueAxis::fit(points().map(|point| point.speedup));
    let mut chart = Chart::new(scene, cell, None, (x, y)).numbered();
    for ConversionSeries { series, look, points, .. } in all {
        let line = points.iter().map(|point| (point.speedup, point.kl));
        chart.line(line, look.color, stroke_of(*series));
        for point in points {
            let at = (point.speedup, point.kl);
            let interval = point.kl_interval.filter(|[low, _]| *low > 0.0);
            chart.intervals(at, [None, interval], look.color);
            chart.mark(at, *look, fill_of(*series), point.tip.clone());
        }
    }
}
