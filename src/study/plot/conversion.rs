//! Conversion figure: quality loss (KL to `standard`) against speedup of sets of converted layers, one line
//! or marker per selection method.

use super::axis::Axis;
use super::axis::Chart;
use super::figure::Figure;
use super::figure::Options;
use super::layout::{Entry, Key, Sheet};
use super::provenance::ProvenanceSummary;
use super::scene::{Area, Scene};
use super::style::{Look, Sizes, look};
use crate::analysis::{Conversion, ConversionReport, Draws, SetSeries};
use base::error::{Error, Result};

/// Series in legend and drawing order; the paper's choice is drawn last, on top.
const SERIES: [SetSeries; 5] =
    [SetSeries::Ordered, SetSeries::Greedy, SetSeries::Last, SetSeries::Random, SetSeries::UpperHalf];

/// Series with its points by size: speedup, KL, interval of the KL, tooltip.
struct Drawn {
    series: SetSeries,
    look: Look,
    name: String,
    points: Vec<(f64, f64, Option<[f64; 2]>, String)>,
}

/// Index of a series's look, in figures and on the screen.
pub fn series_look(conversion: Conversion, series: SetSeries) -> usize {
    let at = SERIES.iter().position(|one| *one == series).unwrap_or(SERIES.len());
    let of = Conversion::ALL.iter().position(|one| *one == conversion).unwrap_or_default();
    at + (SERIES.len() + 1) * of
}

/// Draws the figure of a report. For random sets it shows the mean of each size and the range of the draws.
///
/// # Errors
///
/// Returns an error if there are no sets or the page is too small.
pub fn conversion_figure(report: &ConversionReport, options: &Options) -> Result<Figure> {
    let drawn = drawn(report);
    if drawn.is_empty() {
        return Err(Error::input("nothing to plot: no layer sets"));
    }
    let provenance = ProvenanceSummary {
        kinds: [report.provenance.quality, report.provenance.speed].into(),
        hardware: [report.target.hardware.clone()].into(),
        software: [format!("stack {}", report.target.stack)].into(),
        ..ProvenanceSummary::default()
    };
    let key = |one: &Drawn| {
        let (look, filled) = (one.look, one.series != SetSeries::Random);
        let key = match one.series {
            SetSeries::UpperHalf => Key::Marker { look, filled },
            _ => Key::Series { look, filled, dashed: is_dashed(one.series) },
        };
        Entry::new(key, one.name.clone())
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
        legend: drawn.iter().map(key).collect(),
    };
    let names = ("speedup over standard", "KL from standard (nats per token)");
    let (mut scene, cells, sizes) = sheet.charts((1, 1), (0.6, 120.0..=260.0), (100.0, 90.0), names)?;
    draw(&mut scene, cells[0], &drawn, &sizes);
    Ok(Figure::new(scene, &provenance, options))
}

fn is_dashed(series: SetSeries) -> bool {
    matches!(series, SetSeries::Last | SetSeries::Random)
}

fn drawn(report: &ConversionReport) -> Vec<Drawn> {
    let several = report.points.iter().any(|point| point.conversion != Conversion::Ladder);
    let mut all = Vec::new();
    for conversion in Conversion::ALL {
        for series in SERIES {
            let points: Vec<_> = match series {
                SetSeries::Random => report.draws(conversion).iter().map(of_draws).collect(),
                _ => {
                    let points = report.series(conversion, series).into_iter();
                    let of = |point: &crate::analysis::ConversionPoint| {
                        let text = format!(
                            "point {}: {}, KL {:.4}, {:.3}x",
                            point.number, point.architecture, point.quality.kl, point.speedup
                        );
                        (point.speedup, point.quality.kl, point.quality.kl_ci95, text)
                    };
                    points.map(of).collect()
                }
            };
            if points.is_empty() {
                continue;
            }
            let words = match series {
                SetSeries::Ordered => "lowest-cost layers",
                SetSeries::Greedy => "greedy",
                SetSeries::UpperHalf => "upper half (paper)",
                SetSeries::Last => "last layers",
                SetSeries::Random => "random layers",
                SetSeries::Alone => "single layer",
            };
            let name = if several { format!("{conversion}: {words}") } else { words.to_owned() };
            all.push(Drawn { series, look: look(series_look(conversion, series)), name, points });
        }
    }
    all
}

fn of_draws(draws: &Draws) -> (f64, f64, Option<[f64; 2]>, String) {
    let [least, most] = draws.range;
    let text = format!(
        "{} random layers: KL {:.4}, from {least:.4} to {most:.4}, {:.3}x",
        draws.count, draws.kl, draws.speedup
    );
    (draws.speedup, draws.kl, Some(draws.range), text)
}

fn draw(scene: &mut Scene, cell: Area, drawn: &[Drawn], sizes: &Sizes) {
    let points = || drawn.iter().flat_map(|one| &one.points);
    // a lower end at or below 0 is a rounding error and would prevent a logarithmic axis
    let ends = points().filter_map(|(_, _, ends, _)| *ends).flatten().filter(|end| *end > 0.0);
    let y = Axis::fit(points().map(|(_, kl, ..)| *kl).chain(ends));
    let x = Axis::fit(points().map(|(speedup, ..)| *speedup));
    let mut chart = Chart::new(scene, cell, None, (x, y), sizes).numbered();
    for Drawn { series, look, points, .. } in drawn {
        chart.line(
            points.iter().map(|(speedup, kl, ..)| (*speedup, *kl)),
            look.color,
            is_dashed(*series),
        );
        for (speedup, kl, ends, text) in points {
            let ends = ends.filter(|[low, _]| *low > 0.0);
            chart.intervals((*speedup, *kl), [None, ends], look.color);
            chart.mark((*speedup, *kl), *look, (*series != SetSeries::Random, 1.0), text.clone());
        }
    }
}
