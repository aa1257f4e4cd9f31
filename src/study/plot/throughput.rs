//! Throughput figure: tokens/s against TP, one line per architecture and P2P setting, one chart per batch
//! size, for one set of comparable cells ([`crate::analysis::comparable`]).

use super::axis::{Chart, ValueAxis};
use super::figure::{Figure, FigureOptions};
use super::layout::{ChartSize, Sheet};
use super::provenance::ProvenanceSummary;
use super::scene::{Align, Area, Fill, Scene, SceneText, Stroke};
use super::style::{Looks, looks};
use super::{check_charts, group_note, series_legend};
use crate::analysis::CellSet;
use base::error::{Error, Result};
use table::P2p;

/// Draws the throughput figure of a set of comparable cells.
///
/// # Errors
///
/// Returns an error if no cell has numbers, or there are too many charts.
pub fn throughput_figure(
    set: &CellSet,
    provenance: &ProvenanceSummary,
    options: &FigureOptions,
) -> Result<Figure> {
    let batches = set.values(|spec| spec.batch);
    if batches.is_empty() {
        return Err(Error::input("nothing to plot: no run completed successfully"));
    }
    check_charts(batches.len(), "batch")?;
    let architectures = set.values(|spec| spec.architecture.clone());
    let looks = looks(&architectures);
    let settings = set.values(|spec| spec.p2p);
    let sheet = Sheet {
        options,
        provenance,
        title: "Throughput by tensor-parallel size".into(),
        note: group_note(&set.name),
        remark: match set.has_intervals() {
            true => "Bars: 95 % bootstrap intervals. No marker: no run".into(),
            false => "No marker: no run".into(),
        },
        legend: series_legend(&looks, settings.len() > 1),
    };
    let columns = if options.is_narrow() { 2 } else { 4 };
    let names = ("TP (GPUs)", "tokens/s");
    let size = ChartSize { aspect: 0.85, height: 95.0..=230.0, least: (50.0, 46.0) };
    let (mut scene, cells) = sheet.charts((batches.len(), columns), size, names)?;
    for (cell, batch) in cells.into_iter().zip(batches) {
        draw_chart(&mut scene, cell, set, batch, &looks);
    }
    Ok(Figure::new(scene, provenance, options))
}

fn draw_chart(scene: &mut Scene, cell: Area, set: &CellSet, batch: u32, looks: &Looks) {
    let size = scene.sizes.tick;
    let tps = set.values(|spec| spec.tp);
    let of_batch = || set.cells.iter().filter(|c| c.spec.batch == batch);
    let values = of_batch().flat_map(|c| {
        let metrics = c.metrics.as_ref();
        let interval = metrics.and_then(|m| m.tokens_per_s_ci95).unwrap_or([0.0; 2]);
        interval.into_iter().chain(metrics.map(|m| m.tokens_per_s))
    });
    let y = ValueAxis::from_zero(values);
    let x = ValueAxis::exact((0.0, tps.len() as f64), false);
    let header = format!("batch {batch}");
    let mut chart = Chart::new(scene, cell, Some(&header), (x, y)).framed();
    let at = |tp: u32| tps.iter().position(|t| *t == tp).unwrap_or(0) as f64 + 0.5;
    let mut right = f64::NEG_INFINITY;
    for tp in &tps {
        let place = (chart.x.place(at(*tp)), chart.area.bottom + 0.95 * size);
        let text = SceneText::new(place, tp.to_string(), size).align(Align::Middle);
        if text.area().left > right {
            right = text.area().right + 0.3 * size;
            chart.scene.text(text);
        }
    }
    let series =
        [P2p::Off, P2p::On].into_iter().flat_map(|p2p| looks.iter().map(move |look| (p2p, look)));
    let measured = |architecture, p2p| {
        let records = tps.iter().filter_map(move |tp| set.get(architecture, *tp, batch, p2p));
        records.filter_map(|record| Some((record, record.metrics.as_ref()?)))
    };
    for (p2p, (architecture, look)) in series.clone() {
        let points =
            measured(architecture, p2p).map(|(r, metrics)| (at(r.spec.tp), metrics.tokens_per_s));
        chart.line(points, look.color, Stroke::from_p2p(p2p));
    }
    for (p2p, (architecture, look)) in series {
        for (record, metrics) in measured(architecture, p2p) {
            let point = (at(record.spec.tp), metrics.tokens_per_s);
            chart.intervals(point, [None, metrics.tokens_per_s_ci95], look.color);
            let text = format!(
                "{}: {:.1} tokens/s ({})",
                record.spec.label(),
                metrics.tokens_per_s,
                record.provenance
            );
            chart.mark(point, *look, Fill::from_p2p(p2p), text);
        }
    }
}
