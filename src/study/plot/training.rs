//! Training figure: held-out loss over steps, one line per architecture, with intervals over seeds.

use super::axis::{Chart, ValueAxis};
use super::figure::{Figure, FigureOptions};
use super::layout::{ChartSize, LegendEntry, LegendKey, Sheet};
use super::provenance::ProvenanceSummary;
use super::scene::{Area, Fill, Scene, Stroke};
use super::style::{Looks, looks};
use crate::analysis::{ArchitectureCurve, CurvePoint, TrainingSet};
use base::error::{Error, Result};
use base::statistics::extent;
use base::text::{counted, file_name};
use plan::Architecture;
use table::Provenance;

/// Scope of the points; tables report the final loss on all of the held-out text.
const EVALUATED: &str = "points use a fixed set of held-out windows, tables use all of them";

/// Draws the figure of a set of trainings.
///
/// # Errors
///
/// Returns an error if no training evaluated the held-out text after a step, or the page is too small.
pub fn training_figure(set: &TrainingSet, options: &FigureOptions) -> Result<Figure> {
    let drawn: Vec<&ArchitectureCurve> =
        set.curves.iter().filter(|curve| curve.held_out.len() > 1).collect();
    if drawn.is_empty() {
        return Err(Error::input("nothing to plot: held-out loss was never measured after a step"));
    }
    // from scratch, the fall of the first steps would hide the differences of the others
    let steps = drawn.iter().flat_map(|curve| &curve.held_out).map(|point| point.step).max();
    let from = if set.spec.from_scratch { steps.unwrap_or(0) / 4 } else { 0 };
    let looks = looks(drawn.iter().map(|curve| &curve.architecture));
    let provenance = ProvenanceSummary {
        kinds: [Provenance::Measured].into(),
        hardware: [set.machine.clone()].into(),
        ..ProvenanceSummary::default()
    };
    let entry = |curve: &&ArchitectureCurve| {
        let key = LegendKey::Series {
            look: looks[&curve.architecture],
            fill: Fill::Solid,
            stroke: Stroke::Solid,
        };
        LegendEntry::new(key, format!("{} ({})", curve.architecture, counted(curve.seeds, "seed")))
    };
    let spec = &set.spec;
    let (name, text) = (file_name(&spec.model), file_name(&spec.text));
    let begun = if spec.from_scratch { "from scratch" } else { "retrained" };
    let sheet = Sheet {
        options,
        provenance: &provenance,
        title: match set.miniature {
            true => "Architectures trained on the same text, in miniature".into(),
            false => "Architectures trained on the same text".into(),
        },
        note: format!(
            "{name} {begun} on {text}; {} windows of {} tokens per step{}",
            spec.batch,
            spec.context,
            if from > 0 { format!("; from step {from} on") } else { String::new() }
        ),
        remark: if drawn.iter().any(|curve| curve.seeds > 1) {
            format!(
                "means over seeds with 95 % intervals (Student's t), clipped at the frame; {EVALUATED}"
            )
        } else {
            format!("one seed; {EVALUATED}")
        },
        legend: drawn.iter().map(entry).collect(),
    };
    let names = ("steps", "held-out loss (nats per token)");
    let size = ChartSize { aspect: 0.6, height: 120.0..=260.0, least: (100.0, 90.0) };
    let (mut scene, cells) = sheet.charts((1, 1), size, names)?;
    draw(&mut scene, cells[0], &drawn, from, &looks);
    Ok(Figure::new(scene, &provenance, options))
}

fn draw(scene: &mut Scene, cell: Area, drawn: &[&ArchitectureCurve], from: u32, looks: &Looks) {
    let points_of = |curve: &&ArchitectureCurve| -> Vec<CurvePoint> {
        curve.held_out.iter().filter(|point| point.step >= from).copied().collect()
    };
    let drawn: Vec<(&Architecture, Vec<CurvePoint>)> =
        drawn.iter().map(|curve| (&curve.architecture, points_of(curve))).collect();
    let points = || drawn.iter().flat_map(|(_, points)| points);
    // clip wide intervals of few seeds, which would squeeze the curves
    let [low, high] = extent(points().map(|point| point.nll)).unwrap_or_default();
    let margin = 0.3 * (high - low);
    let ends = points().filter_map(|point| point.nll_ci95).flatten();
    let ends = ends.filter(|end| *end > 0.0 && (low - margin..=high + margin).contains(end));
    let y = ValueAxis::fit(points().map(|point| point.nll).chain(ends));
    let x = ValueAxis::fit(points().map(|point| f64::from(point.step)));
    let mut chart = Chart::new(scene, cell, None, (x, y)).numbered();
    for (architecture, points) in &drawn {
        let look = looks[*architecture];
        let at = |point: &CurvePoint| (f64::from(point.step), point.nll);
        chart.line(points.iter().map(at), look.color, Stroke::Solid);
        for point in points {
            chart.intervals(at(point), [None, point.nll_ci95], look.color);
            let text = format!("{architecture}, step {}: {:.4}", point.step, point.nll);
            chart.mark(at(point), look, Fill::Solid, text);
        }
    }
}
