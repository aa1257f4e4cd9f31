//! Training figure: held-out loss over steps, one line per architecture, with intervals over seeds.
//!
//! Validation figure: prediction error of each published number, one chart per data set.

use super::axis::{Chart, ValueAxis};
use super::figure::{Figure, FigureOptions};
use super::layout::{ChartSize, LegendEntry, LegendKey, Sheet};
use super::provenance::ProvenanceSummary;
use super::scene::{Area, Fill, Scene, Stroke};
use super::style::{Look, Looks, Sizes, look, looks};
use crate::analysis::{ArchitectureCurve, CurvePoint, TrainingSet};
use crate::validate::{Measure, Score};
use base::error::{Error, Result};
use base::statistics::extent;
use base::text::counted;
use plan::Architecture;
use table::Provenance;

/// Scope of the points; tables report the final loss on all of the held-out text.
const LOOKS: &str = "points use a fixed set of held-out windows, tables use all of them";

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
    let name = std::path::Path::new(&spec.model).file_name();
    let name = name.map_or_else(|| spec.model.clone(), |name| name.to_string_lossy().into_owned());
    let text = std::path::Path::new(&spec.text).file_name();
    let text = text.map_or_else(|| spec.text.clone(), |name| name.to_string_lossy().into_owned());
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
            format!("means over seeds with 95 % intervals (Student's t), clipped at the frame; {LOOKS}")
        } else {
            format!("one seed; {LOOKS}")
        },
        legend: drawn.iter().map(entry).collect(),
    };
    let names = ("steps", "held-out loss (nats per token)");
    let (mut scene, cells, sizes) = sheet.charts(
        (1, 1),
        ChartSize { aspect: 0.6, height: 120.0..=260.0, least: (100.0, 90.0) },
        names,
    )?;
    draw(&mut scene, cells[0], &drawn, from, &looks, &sizes);
    Ok(Figure::new(scene, &provenance, options))
}

fn draw(
    scene: &mut Scene,
    cell: Area,
    drawn: &[&ArchitectureCurve],
    from: u32,
    looks: &Looks,
    sizes: &Sizes,
) {
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
    let mut chart = Chart::new(scene, cell, None, (x, y), sizes).numbered();
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

/// Draws the errors of all numbers of these sets, in row order. Returns an error if there is no number, or
/// the page is too small.
pub fn validation_figure(scores: &[Score], options: &FigureOptions) -> Result<Figure> {
    let scores: Vec<&Score> = scores.iter().filter(|score| !score.residuals.is_empty()).collect();
    if scores.is_empty() {
        return Err(Error::input("nothing to plot: no row could be predicted"));
    }
    let mut provenance = ProvenanceSummary::default();
    provenance.kinds.extend([Provenance::Simulated, Provenance::Measured]);
    for score in &scores {
        provenance.hardware.insert(score.hardware.clone());
        provenance.software.insert(format!("stack {}", score.stack_and_values()));
    }
    let shown = |measure: &Measure| {
        is_drawn(*measure) && scores.iter().any(|score| score.errors(*measure).is_some())
    };
    let entry = |measure: Measure| {
        LegendEntry::new(LegendKey::Marker { look: look_of(measure), fill: Fill::Solid }, words(measure))
    };
    let published = scores.iter().all(|score| score.is_published);
    let numbers =
        scores.iter().flat_map(|score| &score.residuals).filter(|r| is_drawn(r.measure)).count();
    let sheet = Sheet {
        options,
        provenance: &provenance,
        title: format!("Simulator error against {} data", if published { "published" } else { "other" }),
        note: String::new(),
        remark: format!("{}; error: predicted / measured - 1", counted(numbers, "number")),
        legend: Measure::ALL.into_iter().filter(shown).map(entry).collect(),
    };
    let columns = if options.is_narrow() { 1 } else { 2 };
    let names = ("row of the data set", "error (%, points)");
    let (mut scene, cells, sizes) = sheet.charts(
        (scores.len(), columns),
        ChartSize { aspect: 0.45, height: 90.0..=200.0, least: (90.0, 70.0) },
        names,
    )?;
    // one scale for all sets, including at least -10 to 10, so that small errors look small
    let drawn = scores.iter().flat_map(|score| &score.residuals).filter(|r| is_drawn(r.measure));
    let errors = drawn.map(|residual| residual.error);
    let y = ValueAxis::fit(errors.chain([-10.0, 10.0]));
    for (cell, score) in cells.into_iter().zip(scores) {
        draw_chart(&mut scene, cell, score, y, &sizes);
    }
    Ok(Figure::new(scene, &provenance, options))
}

fn look_of(measure: Measure) -> Look {
    look(Measure::ALL.iter().position(|other| *other == measure).unwrap_or(0))
}

/// False for gains, which repeat the speedup in another unit.
fn is_drawn(measure: Measure) -> bool {
    measure != Measure::Gain
}

fn words(measure: Measure) -> String {
    format!("{} ({})", measure.title(), measure.unit())
}

fn draw_chart(scene: &mut Scene, cell: Area, score: &Score, y: ValueAxis, sizes: &Sizes) {
    let last = score.residuals.iter().map(|residual| residual.line).max().unwrap_or(1) as f64;
    let fit = match &score.fitted {
        None => "",
        Some(none) if none.is_empty() => " (nothing fitted)",
        Some(_) => " (fitted)",
    };
    let header = format!("{}{fit}", score.set.name);
    let x = ValueAxis::exact((0.0, last + 1.0), false);
    let mut chart = Chart::new(scene, cell, Some(&header), (x, y), sizes).framed();
    chart.level(0.0);
    for residual in score.residuals.iter().filter(|residual| is_drawn(residual.measure)) {
        let text = format!(
            "{}: {}, predicted {:.2}, measured {:.2} ({:+.1} {})",
            residual.cell,
            residual.measure.title(),
            residual.predicted,
            residual.measured,
            residual.error,
            residual.measure.unit()
        );
        let point = (residual.line as f64, residual.error);
        chart.mark_scaled(point, look_of(residual.measure), Fill::Solid, 0.8, text);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::validate::{DataSet, Overrides};

    #[test]
    fn every_number_has_a_tip_with_its_error() {
        let set = DataSet::named(&["decode_a100_gptfast".into()]).unwrap().remove(0);
        let score = Score::of(&set, &set.runs(&Overrides::default()).unwrap()).unwrap();
        let figure = validation_figure(std::slice::from_ref(&score), &FigureOptions::default()).unwrap();
        let svg = figure.svg().unwrap();
        assert_eq!(svg.matches("<title>llama-2-").count(), 7);
        assert!(svg.contains("tp8 b1 p2p-on 5+200: tokens/s"), "{svg}");
        assert!(svg.contains("published data") && svg.contains("decode_a100_gptfast (fitted)"), "{svg}");
        let (values, fitted) = (vec!["hbm_gb_s=10".into()], None);
        let own = Score { is_published: false, fitted, values, ..score };
        let svg = validation_figure(&[own], &FigureOptions::default()).unwrap().svg().unwrap();
        assert!(!svg.contains("published") && !svg.contains("fitted"), "{svg}");
        assert!(svg.contains("hbm_gb_s=10"), "{svg}");
        assert!(validation_figure(&[], &FigureOptions::default()).is_err());
    }
}
