//! Throughput figure: tokens/s against TP, one line per architecture and P2P setting, one chart per batch
//! size, for one set of comparable cells ([`crate::analysis::comparable`]).

use super::axis::{self, Axis};
use super::figure::Figure;
use super::layout::{self, Sheet};
use super::options::{Options, POINTS};
use super::provenance::ProvenanceSummary;
use super::scene::{Align, Area, Point, Scene, Text, Tip};
use super::style::{Looks, Sizes, looks};
use super::{MOST_CHARTS, group_note, series_legend, too_many};
use crate::analysis::CellSet;
use base::error::{Error, Result};
use table::{P2p, Record};

/// Draws the throughput figure of a set of comparable cells.
///
/// # Errors
///
/// Returns an error if no cell has numbers, or there are too many charts.
pub fn throughput_figure(
    set: &CellSet,
    provenance: &ProvenanceSummary,
    options: &Options,
) -> Result<Figure> {
    let batches = set.values(|spec| spec.batch);
    if batches.is_empty() {
        return Err(Error::input("nothing to plot: no run completed successfully"));
    }
    if batches.len() > MOST_CHARTS {
        return Err(too_many(batches.len(), "batch"));
    }
    let architectures = set.values(|spec| spec.architecture.clone());
    let looks = looks(&architectures);
    let settings = set.values(|spec| spec.p2p);
    let sheet = Sheet {
        options,
        provenance,
        title: "Throughput by tensor-parallel size".into(),
        note: group_note(&set.name),
        remark: match set.has_intervals() {
            true => "Bars: 95% bootstrap intervals. No marker: no run".into(),
            false => "No marker: no run".into(),
        },
        legend: series_legend(&looks, settings.len() > 1),
    };
    let width = options.size.width * POINTS;
    let (columns, rows) = layout::shape(batches.len(), if width < 300.0 { 2 } else { 4 });
    let each = (0.85 * width / columns as f64).clamp(95.0, 230.0);
    let least = (50.0 * columns as f64, 46.0 * rows as f64);
    let (mut scene, area, sizes) = sheet.lay(each * rows as f64, least)?;
    let area = layout::name_axes(&mut scene, area, "TP (GPUs)", "tokens/s", &sizes);
    let cells = layout::grid(area, columns, rows, (0.9 * sizes.label, 0.5 * sizes.label));
    for (cell, batch) in cells.into_iter().zip(batches) {
        draw_chart(&mut scene, cell, set, batch, &looks, &sizes);
    }
    Ok(Figure::new(scene, provenance, options))
}

fn draw_chart(scene: &mut Scene, cell: Area, set: &CellSet, batch: u32, looks: &Looks, sizes: &Sizes) {
    let tps = set.values(|spec| spec.tp);
    let of_batch = || set.cells.iter().filter(|c| c.spec.batch == batch);
    let values = of_batch().flat_map(|c| {
        let metrics = c.metrics.as_ref();
        let interval = metrics.and_then(|m| m.tokens_per_s_ci95).unwrap_or([0.0; 2]);
        interval.into_iter().chain(metrics.map(|m| m.tokens_per_s))
    });
    let y = Axis::from_zero(values);
    let y_width = axis::vertical_ticks(&y, cell.height() - 3.0 * sizes.tick, sizes).1;
    let area = layout::data_area(cell, true, y_width, 0.0, sizes);
    let y = y.over(area.bottom, area.top);
    layout::header(scene, &area, &format!("batch {batch}"), sizes);
    axis::vertical(scene, &y, &area, sizes);
    let room = area.width() / tps.len().max(1) as f64;
    let x = |tp: u32| {
        let index = tps.iter().position(|t| *t == tp).unwrap_or(0);
        area.left + (index as f64 + 0.5) * room
    };
    let mut right = f64::NEG_INFINITY;
    for tp in &tps {
        let text = Text::new((x(*tp), area.bottom + 0.95 * sizes.tick), tp.to_string(), sizes.tick);
        let text = text.align(Align::Middle);
        if text.area().left > right {
            right = text.area().right + 0.3 * sizes.tick;
            scene.text(text);
        }
    }
    let place = |record: &Record| -> Option<Point> {
        Some((x(record.spec.tp), y.place(record.metrics.as_ref()?.tokens_per_s)))
    };
    for p2p in [P2p::Off, P2p::On] {
        for (architecture, look) in looks {
            let of = |tp: &u32| set.get(architecture, *tp, batch, p2p);
            let line: Vec<Point> = tps.iter().filter_map(of).filter_map(place).collect();
            match p2p {
                P2p::On => scene.line(line, look.color, sizes.line),
                P2p::Off => scene.dashed(&line, look.color, sizes.line),
            }
        }
    }
    for p2p in [P2p::Off, P2p::On] {
        for (architecture, look) in looks {
            for record in tps.iter().filter_map(|tp| set.get(architecture, *tp, batch, p2p)) {
                let (Some(at), Some(metrics)) = (place(record), &record.metrics) else { continue };
                if let Some([low, high]) = metrics.tokens_per_s_ci95 {
                    let ends = ((at.0, y.place(low)), (at.0, y.place(high)));
                    scene.interval(ends.0, ends.1, look.color, sizes.line * 0.6);
                }
                let hollow = p2p == P2p::Off;
                let radius = if hollow { 1.3 * sizes.marker } else { sizes.marker };
                scene.marker(at, *look, radius, !hollow);
                let text = format!(
                    "{}: {:.1} tokens/s ({})",
                    record.spec.label(),
                    metrics.tokens_per_s,
                    record.provenance
                );
                scene.tips.push(Tip { at, radius: 1.6 * sizes.marker, text });
            }
        }
    }
    layout::frame(scene, area, sizes);
}
