//! Training figure: held-out loss over steps, one line per architecture, with intervals over seeds.

use super::axis::{self, Axis};
use super::figure::Figure;
use super::layout::{self, Entry, Key, Sheet};
use super::options::{Options, POINTS};
use super::provenance::ProvenanceSummary;
use super::scene::{Area, Scene, Tip};
use super::style::{Looks, Sizes, looks};
use crate::analysis::{ArchitectureCurve, TrainingSet};
use base::error::{Error, Result};
use base::text::counted;
use table::Provenance;

/// Scope of the points; tables report the final loss on all of the held-out text.
const LOOKS: &str = "points use a fixed set of held-out windows, tables use all of them";

/// Draws the figure of a set of trainings.
///
/// # Errors
///
/// Returns an error if no training evaluated the held-out text after a step, or the page is too small.
pub fn training_figure(set: &TrainingSet, options: &Options) -> Result<Figure> {
    let drawn: Vec<&ArchitectureCurve> =
        set.curves.iter().filter(|curve| curve.held_out.len() > 1).collect();
    if drawn.is_empty() {
        return Err(Error::input("nothing to plot: held-out loss was never measured after a step"));
    }
    let looks = looks(drawn.iter().map(|curve| &curve.architecture));
    let provenance = ProvenanceSummary {
        kinds: [Provenance::Measured].into(),
        hardware: [set.machine.clone()].into(),
        ..ProvenanceSummary::default()
    };
    let entry = |curve: &&ArchitectureCurve| {
        let key = Key::Series { look: looks[&curve.architecture], filled: true, dashed: false };
        Entry::new(key, format!("{} ({})", curve.architecture, counted(curve.seeds, "seed")))
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
            "{name} {begun} on {text}; {} windows of {} tokens per step",
            spec.batch, spec.context
        ),
        remark: if drawn.iter().any(|curve| curve.seeds > 1) {
            format!("means over seeds with 95% intervals (Student's t), clipped at the frame; {LOOKS}")
        } else {
            format!("one seed; {LOOKS}")
        },
        legend: drawn.iter().map(entry).collect(),
    };
    let width = options.size.width * POINTS;
    let (mut scene, area, sizes) = sheet.lay((0.6 * width).clamp(120.0, 260.0), (100.0, 90.0))?;
    let names = ("steps", "held-out loss (nats per token)");
    let area = layout::name_axes(&mut scene, area, names.0, names.1, &sizes);
    draw(&mut scene, area, &drawn, &looks, &sizes);
    Ok(Figure::new(scene, &provenance, options))
}

fn draw(scene: &mut Scene, cell: Area, drawn: &[&ArchitectureCurve], looks: &Looks, sizes: &Sizes) {
    let points = || drawn.iter().flat_map(|curve| &curve.held_out);
    // clip wide intervals of few seeds, which would squeeze the curves
    let (low, high) =
        points().fold((f64::INFINITY, f64::NEG_INFINITY), |(l, h), p| (l.min(p.nll), h.max(p.nll)));
    let margin = 0.3 * (high - low);
    let ends = points().filter_map(|point| point.nll_ci95).flatten();
    let ends = ends.filter(|end| *end > 0.0 && (low - margin..=high + margin).contains(end));
    let y = Axis::fit(points().map(|point| point.nll).chain(ends));
    let y_width = axis::vertical_ticks(&y, cell.height() - 3.0 * sizes.tick, sizes).1;
    let area = layout::data_area(cell, false, y_width, 1.2 * sizes.tick, sizes);
    let y = y.over(area.bottom, area.top);
    let x = Axis::fit(points().map(|point| f64::from(point.step))).over(area.left, area.right);
    axis::vertical(scene, &y, &area, sizes);
    axis::horizontal(scene, &x, &area, sizes);
    for curve in drawn {
        let look = looks[&curve.architecture];
        let at = |step: u32, nll: f64| (x.place(f64::from(step)), y.place(nll));
        let line: Vec<_> = curve.held_out.iter().map(|p| at(p.step, p.nll)).collect();
        scene.line(line.clone(), look.color, sizes.line);
        for (place, point) in line.into_iter().zip(&curve.held_out) {
            if let Some([low, high]) = point.nll_ci95 {
                let within = |end: f64| y.place(end).clamp(area.top, area.bottom);
                let ends = ((place.0, within(low)), (place.0, within(high)));
                scene.interval(ends.0, ends.1, look.color, 0.6 * sizes.line);
            }
            scene.marker(place, look, sizes.marker, true);
            let text = format!("{}, step {}: {:.4}", curve.architecture, point.step, point.nll);
            scene.tips.push(Tip { at: place, radius: 1.6 * sizes.marker, text });
        }
    }
    layout::frame(scene, area, sizes);
}
