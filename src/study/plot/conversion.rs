//! Conversion figure: quality loss (KL to `standard`) against speedup of sets of converted layers, one line
//! or marker per selection method.

use super::axis::{self, Axis};
use super::figure::Figure;
use super::layout::{self, Entry, Key, Sheet};
use super::options::{Options, POINTS};
use super::provenance::ProvenanceSummary;
use super::scene::{Area, Scene, Tip};
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
    at + (SERIES.len() + 1) * usize::from(conversion == Conversion::SyncDrop)
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
            "KL is measured, with 95% intervals (random sets: range of the draws); speedup is simulated"
                .into(),
        legend: drawn.iter().map(key).collect(),
    };
    let width = options.size.width * POINTS;
    let (mut scene, area, sizes) = sheet.lay((0.6 * width).clamp(120.0, 260.0), (100.0, 90.0))?;
    let names = ("speedup over standard", "KL from standard (nats per token)");
    let area = layout::name_axes(&mut scene, area, names.0, names.1, &sizes);
    draw(&mut scene, area, &drawn, &sizes);
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
    let y_width = axis::vertical_ticks(&y, cell.height() - 3.0 * sizes.tick, sizes).1;
    let area = layout::data_area(cell, false, y_width, 1.2 * sizes.tick, sizes);
    let y = y.over(area.bottom, area.top);
    let x = Axis::fit(points().map(|(speedup, ..)| *speedup)).over(area.left, area.right);
    axis::vertical(scene, &y, &area, sizes);
    axis::horizontal(scene, &x, &area, sizes);
    for one in drawn {
        let line: Vec<_> = one.points.iter().map(|(s, kl, ..)| (x.place(*s), y.place(*kl))).collect();
        match is_dashed(one.series) {
            true => scene.dashed(&line, one.look.color, sizes.line),
            false => scene.line(line.clone(), one.look.color, sizes.line),
        }
        for (at, (_, kl, ends, text)) in line.into_iter().zip(&one.points) {
            if let Some([low, high]) = ends.filter(|[low, _]| *low > 0.0) {
                let ends = ((at.0, y.place(low)), (at.0, y.place(high.max(*kl))));
                scene.interval(ends.0, ends.1, one.look.color, 0.6 * sizes.line);
            }
            scene.marker(at, one.look, sizes.marker, one.series != SetSeries::Random);
            scene.tips.push(Tip { at, radius: 1.6 * sizes.marker, text: text.clone() });
        }
    }
    layout::frame(scene, area, sizes);
}
