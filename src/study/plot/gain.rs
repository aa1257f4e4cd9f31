//! The gain figure: speed-up over `standard` over the latency of one all-reduce, a line for each architecture, a
//! chart for cells that differ in their links alone; on the axis what all-reduces take on known machines.

use super::axis::{self, Axis};
use super::figure::Figure;
use super::font;
use super::layout::{self, Sheet};
use super::options::{Options, POINTS};
use super::provenance::ProvenanceSummary;
use super::scene::{Area, Point, Scene, Text, Tip};
use super::style::{GREY, Looks, Sizes, looks};
use super::{MOST_CHARTS, series_legend, too_many};
use crate::base::error::{Error, Result};
use crate::study::analysis::{GainGroup, GainPoint};

/// Lays out the gain figure, a chart for each group. Fails where there is no group, where there are more than a
/// figure can show, and where the page is too small.
pub fn gain_figure(
    groups: &[GainGroup],
    provenance: &ProvenanceSummary,
    options: &Options,
) -> Result<Figure> {
    if groups.is_empty() {
        return Err(Error::input("no pair to plot"));
    }
    if groups.len() > MOST_CHARTS {
        return Err(too_many(groups.len(), "batch"));
    }
    let looks = looks(groups.iter().flat_map(|group| group.lines.keys()));
    let sheet = Sheet {
        options,
        provenance,
        title: "Gain over the latency of one all-reduce".into(),
        note: match groups {
            [only] => only.name.clone(),
            _ => String::new(),
        },
        remark: "On the axis: one all-reduce of the same message on machines with a profile".into(),
        legend: series_legend(&looks, false),
    };
    let width = options.size.width * POINTS;
    let (columns, rows) = layout::shape(groups.len(), if width < 300.0 { 1 } else { 2 });
    let each = (0.6 * width / columns as f64).clamp(120.0, 260.0);
    let (mut scene, area, sizes) =
        sheet.lay(each * rows as f64, (90.0 * columns as f64, 90.0 * rows as f64))?;
    let area =
        layout::name_axes(&mut scene, area, "one all-reduce (us)", "tokens/s over standard", &sizes);
    let cells = layout::grid(area, columns, rows, (0.9 * sizes.label, 0.5 * sizes.label));
    for (cell, group) in cells.into_iter().zip(groups) {
        draw_chart(&mut scene, cell, group, groups.len() > 1, &looks, &sizes);
    }
    Ok(Figure::new(scene, provenance, options))
}

fn draw_chart(
    scene: &mut Scene,
    cell: Area,
    group: &GainGroup,
    header: bool,
    looks: &Looks,
    sizes: &Sizes,
) {
    let points = || group.lines.values().flatten();
    let values = points().flat_map(|point| {
        let pair = &point.pair;
        pair.speedup_ci95.into_iter().flatten().chain([pair.speedup])
    });
    let y = Axis::fit(values.chain([1.0]));
    let y_width = axis::vertical_ticks(&y, cell.height() - 3.0 * sizes.tick, sizes).1;
    let area = layout::data_area(cell, header, y_width, 1.2 * sizes.tick, sizes);
    let y = y.over(area.bottom, area.top);
    let x = Axis::fit(points().map(|point| point.all_reduce_us)).over(area.left, area.right);
    if header {
        layout::header(scene, &area, &group.name, sizes);
    }
    axis::vertical(scene, &y, &area, sizes);
    axis::horizontal(scene, &x, &area, sizes);
    scene.line(vec![(area.left, y.place(1.0)), (area.right, y.place(1.0))], GREY, 0.5 * sizes.line);
    marks(scene, group, &x, &area, sizes);
    let place =
        |point: &GainPoint| -> Point { (x.place(point.all_reduce_us), y.place(point.pair.speedup)) };
    for (architecture, line) in &group.lines {
        let look = looks[architecture];
        scene.line(line.iter().map(place).collect(), look.color, sizes.line);
        for point in line {
            let at = place(point);
            if let Some([low, high]) = point.pair.speedup_ci95 {
                let ends = ((at.0, y.place(low)), (at.0, y.place(high)));
                scene.interval(ends.0, ends.1, look.color, sizes.line * 0.6);
            }
            scene.marker(at, look, sizes.marker, true);
            let text = format!(
                "{}: {:.3}x where an all-reduce takes {:.2} us ({})",
                point.pair.side.spec.label(),
                point.pair.speedup,
                point.all_reduce_us,
                point.pair.provenance
            );
            scene.tips.push(Tip { at, radius: 1.6 * sizes.marker, text });
        }
    }
    layout::frame(scene, area, sizes);
}

/// The machines: a thin line from the axis up, at its head the name where there is room; a tip has it in any case.
fn marks(scene: &mut Scene, group: &GainGroup, x: &Axis, area: &Area, sizes: &Sizes) {
    let mut taken = area.left;
    for mark in &group.marks {
        let at = x.place(mark.us);
        if !(area.left..=area.right).contains(&at) {
            continue;
        }
        scene.dashed(&[(at, area.bottom), (at, area.top)], GREY, 0.4 * sizes.line);
        let text = format!("{}: {:.1} us", mark.name, mark.us);
        scene.tips.push(Tip { at: (at, area.bottom), radius: 0.5 * sizes.tick, text });
        let long = font::width(&mark.name, sizes.tick, false);
        if long < 0.8 * area.height() && at - 1.1 * sizes.tick > taken {
            let place = (at - 0.55 * sizes.tick, area.top + long + 0.4 * sizes.tick);
            scene.text(Text::new(place, &mark.name, sizes.tick).upwards().inside().color(GREY));
            taken = at;
        }
    }
}
