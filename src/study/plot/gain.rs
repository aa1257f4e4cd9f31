//! Gain figure: speedup over `standard` against the latency of one all-reduce. One line per architecture, one
//! chart per group of cells that differ only in their links; marks on the axis show known machines.

use std::collections::BTreeSet;

use super::axis::{Chart, ValueAxis};
use super::figure::{Figure, FigureOptions};
use super::font;
use super::layout::{ChartSize, LegendEntry, LegendKey, Sheet};
use super::provenance::ProvenanceSummary;
use super::scene::{Area, Fill, Point, Scene, SceneText, Stroke, Tip};
use super::style::{GREY, Looks, looks};
use super::{check_charts, series_legend};
use crate::analysis::{GainGroup, GainPoint};
use base::error::{Error, Result};
use plan::Architecture;

/// Draws the gain figure, one chart per group. Returns an error if there is no group, if there are too many,
/// or if the page is too small.
pub fn gain_figure(
    groups: &[GainGroup],
    provenance: &ProvenanceSummary,
    options: &FigureOptions,
) -> Result<Figure> {
    if groups.is_empty() {
        return Err(Error::input("nothing to plot: no matched pairs"));
    }
    check_charts(groups.len(), "batch")?;
    let lines = || groups.iter().flat_map(|group| group.lines.keys());
    let looks = looks(lines().map(|(architecture, _)| architecture));
    let plain =
        looks.iter().filter(|(name, _)| lines().any(|line| *line == ((*name).clone(), String::new())));
    let mut legend = series_legend(&plain.map(|(name, look)| (name.clone(), *look)).collect(), false);
    let variants: BTreeSet<&(Architecture, String)> =
        lines().filter(|line| !line.1.is_empty()).collect();
    legend.extend(variants.iter().map(|(architecture, variant)| {
        let key =
            LegendKey::Series { look: looks[architecture], fill: Fill::Hollow, stroke: Stroke::Dashed };
        LegendEntry::new(key, format!("{architecture} {variant}"))
    }));
    let sheet = Sheet {
        options,
        provenance,
        title: "Speedup by all-reduce latency".into(),
        note: match groups {
            [only] => only.name.clone(),
            _ => String::new(),
        },
        remark: {
            let limited =
                lines().any(|line| line.0.is_limit()) && lines().any(|line| !line.0.is_limit());
            let limit = if limited { "; upper-bound may exceed the chart" } else { "" };
            format!("Vertical lines: latency of the same all-reduce on machines with a profile{limit}")
        },
        legend,
    };
    let columns = if options.is_narrow() { 1 } else { 2 };
    let names = ("all-reduce latency (us)", "speedup over standard");
    let size = ChartSize { aspect: 0.6, height: 120.0..=260.0, least: (90.0, 90.0) };
    let (mut scene, cells) = sheet.charts((groups.len(), columns), size, names)?;
    // all charts of a figure use the same kind of axis
    let latencies = |group: &GainGroup| -> Vec<f64> {
        group.lines.values().flatten().map(|point| point.all_reduce_us).collect()
    };
    let is_log = groups.iter().any(|group| ValueAxis::fit(latencies(group).into_iter()).is_log());
    for (cell, group) in cells.into_iter().zip(groups) {
        draw_chart(&mut scene, cell, group, (groups.len() > 1, is_log), &looks);
    }
    Ok(Figure::new(scene, provenance, options))
}

fn draw_chart(
    scene: &mut Scene,
    cell: Area,
    group: &GainGroup,
    (header, is_log): (bool, bool),
    looks: &Looks,
) {
    let points = || group.lines.values().flatten();
    // upper-bound may leave the chart: choices determine the scale
    let is_limit =
        |line: &Line<'_>| line.0.0.is_limit() && group.lines.keys().any(|key| !key.0.is_limit());
    let chosen = group.lines.iter().filter(|line| !is_limit(line)).flat_map(|(_, points)| points);
    let values = chosen.flat_map(|point| {
        let pair = &point.pair;
        pair.speedup_ci95.into_iter().flatten().chain([pair.speedup])
    });
    // but show it if it is slower than standard, which is suspicious
    let slow = group.lines.iter().filter(is_limit).flat_map(|(_, points)| points);
    let slow = slow.map(|point| point.pair.speedup).filter(|speedup| *speedup < 1.0);
    let y = ValueAxis::fit(values.chain(slow).chain([1.0]));
    let latencies = points().map(|point| point.all_reduce_us);
    let x = if is_log { ValueAxis::fit_log(latencies) } else { ValueAxis::fit(latencies) };
    let header = header.then_some(group.name.as_str());
    let mut chart = Chart::new(scene, cell, header, (x, y)).numbered();
    chart.level(1.0);
    let at = |point: &GainPoint| (point.all_reduce_us, point.pair.speedup);
    let lines: Vec<Vec<Point>> = group
        .lines
        .values()
        .map(|line| line.iter().map(|point| chart.at(at(point))).collect())
        .collect();
    marks(&mut chart, group, &lines);
    for ((architecture, variant), line) in &group.lines {
        let look = looks[architecture];
        let (fill, stroke) = match variant.is_empty() {
            true => (Fill::Solid, Stroke::Solid),
            false => (Fill::Hollow, Stroke::Dashed),
        };
        let inside = within(line.iter().map(at).collect(), chart.y.value(1.0));
        chart.line(inside, look.color, stroke);
        for point in line {
            let text = format!(
                "{}: {:.3}x at {:.2} us per all-reduce ({})",
                point.pair.side.spec.label(),
                point.pair.speedup,
                point.all_reduce_us,
                point.pair.provenance
            );
            chart.intervals(at(point), [None, point.pair.speedup_ci95], look.color);
            chart.mark(at(point), look, fill, text);
        }
    }
}

type Line<'a> = (&'a (Architecture, String), &'a Vec<GainPoint>);

/// Clips a line at the upper end of the chart, from the first point above it.
fn within(points: Vec<(f64, f64)>, most: f64) -> Vec<(f64, f64)> {
    let inside = points.iter().take_while(|(_, y)| *y <= most).count();
    let mut line = points[..inside].to_vec();
    if let (Some(last), Some(next)) = (line.last().copied(), points.get(inside)) {
        let part = (most - last.1) / (next.1 - last.1);
        line.push((last.0 + part * (next.0 - last.0), most));
    }
    line
}

fn crossed(lines: &[Vec<Point>], (left, right): (f64, f64), (top, bottom): (f64, f64)) -> usize {
    let meets = |ends: &&[Point]| {
        let [a, b] = [ends[0], ends[1]];
        let (from, to) = (a.0.max(left), b.0.min(right));
        let at = |x: f64| if b.0 > a.0 { a.1 + (x - a.0) / (b.0 - a.0) * (b.1 - a.1) } else { a.1 };
        from <= to && at(from).min(at(to)) <= bottom && at(from).max(at(to)) >= top
    };
    lines.iter().flat_map(|line| line.windows(2)).filter(meets).count()
}

/// Draws machine marks: a dashed line each, and the name along it if it fits, at the end that fewer lines
/// cross. The tooltip always has the name.
fn marks(chart: &mut Chart<'_>, group: &GainGroup, lines: &[Vec<Point>]) {
    let (area, sizes) = (chart.area, chart.scene.sizes);
    let mut taken = area.left;
    for mark in &group.marks {
        let at = chart.x.place(mark.us);
        if !(area.left..=area.right).contains(&at) {
            continue;
        }
        chart.scene.dashed(vec![(at, area.bottom), (at, area.top)], GREY, 0.4 * sizes.line);
        let text = format!("{}: {:.1} us", mark.name, mark.us);
        chart.scene.tips.push(Tip { at: (at, area.bottom), radius: 0.5 * sizes.tick, text });
        let long = font::width(&mark.name, sizes.tick, false);
        if long < 0.8 * area.height() && at - 1.1 * sizes.tick > taken {
            let air = 0.4 * sizes.tick;
            let across = (at - 1.1 * sizes.tick, at);
            let [top, bottom] = [area.top + long + air, area.bottom - air];
            let above = crossed(lines, across, (area.top, top));
            let below = crossed(lines, across, (bottom - long, area.bottom));
            let place = (at - 0.55 * sizes.tick, if below < above { bottom } else { top });
            let text = SceneText::new(place, &mark.name, sizes.tick);
            chart.scene.text(text.upwards().inside().color(GREY));
            taken = at;
        }
    }
}
