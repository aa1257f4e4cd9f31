//! Validation figure: prediction error of each published number, one chart per data set.

use super::axis::{Chart, ValueAxis};
use super::figure::{Figure, FigureOptions};
use super::layout::{ChartSize, LegendEntry, LegendKey, Sheet};
use super::provenance::ProvenanceSummary;
use super::scene::{Area, Fill, Scene};
use super::style::{Look, look};
use crate::validate::{Measure, Score};
use base::error::{Error, Result};
use base::text::counted;
use table::Provenance;

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
    let is_shown = |measure: &Measure| {
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
        legend: Measure::ALL.into_iter().filter(is_shown).map(entry).collect(),
    };
    let columns = if options.is_narrow() { 1 } else { 2 };
    let names = ("row of the data set", "error (%, points)");
    let size = ChartSize { aspect: 0.45, height: 90.0..=200.0, least: (90.0, 70.0) };
    let (mut scene, cells) = sheet.charts((scores.len(), columns), size, names)?;
    // one scale for all sets, including at least -10 to 10, so that small errors look small
    let drawn = scores.iter().flat_map(|score| &score.residuals).filter(|r| is_drawn(r.measure));
    let errors = drawn.map(|residual| residual.error);
    let y = ValueAxis::fit(errors.chain([-10.0, 10.0]));
    for (cell, score) in cells.into_iter().zip(scores) {
        draw_chart(&mut scene, cell, score, y);
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

fn draw_chart(scene: &mut Scene, cell: Area, score: &Score, y: ValueAxis) {
    let last = score.residuals.iter().map(|residual| residual.line).max().unwrap_or(1) as f64;
    let fit = match &score.fitted {
        None => "",
        Some(none) if none.is_empty() => " (nothing fitted)",
        Some(_) => " (fitted)",
    };
    let header = format!("{}{fit}", score.set.name);
    let x = ValueAxis::exact((0.0, last + 1.0), false);
    let mut chart = Chart::new(scene, cell, Some(&header), (x, y)).framed();
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
        let score = Score::new(&set, &set.runs(&Overrides::default()).unwrap()).unwrap();
        let figure = validation_figure(std::slice::from_ref(&score), &FigureOptions::default()).unwrap();
        let svg = figure.svg().unwrap();
        assert_eq!(svg.matches("<title>llama-2-").count(), 7);
        assert!(svg.contains("tp8 b1 p2p-on ") && svg.contains(" 5+200: tokens/s"), "{svg}");
        assert!(svg.contains("published data") && svg.contains("decode_a100_gptfast (fitted)"), "{svg}");
        let (values, fitted) = (vec!["hbm_gb_s=10".into()], None);
        let own = Score { is_published: false, fitted, values, ..score };
        let svg = validation_figure(&[own], &FigureOptions::default()).unwrap().svg().unwrap();
        assert!(!svg.contains("published") && !svg.contains("fitted"), "{svg}");
        assert!(svg.contains("hbm_gb_s=10"), "{svg}");
        assert!(validation_figure(&[], &FigureOptions::default()).is_err());
    }
}
