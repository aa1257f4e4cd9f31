//! Pareto figure: completion latency against throughput per GPU, or other measures. One panel per group of
//! comparable runs, one frontier per architecture and P2P setting ([`crate::analysis::pareto()`]).

use std::collections::{BTreeMap, BTreeSet};

use super::axis::{Chart, ValueAxis, number};
use super::figure::{Figure, FigureOptions};
use super::layout::{ChartSize, LegendEntry, LegendKey, Sheet};
use super::provenance::ProvenanceSummary;
use super::scene::{Align, Area, Color, Fill, Hatch, Point, SceneText, Stroke};
use super::style::{FigureSizes, GREY, INK, Look, Looks, Marker, PLAIN, WHITE, faded, looks};
use super::{group_note, series_legend};
use crate::analysis::{
    Axes, BestWithin, OverlayPoint, ParetoLayout, ParetoPoint, Series, XAxis, YAxis, at_limits,
    best_within, frontier_steps, split_group_names, with_setting,
};
use base::error::{Error, Result};
use base::statistics::distinct;
use base::text::{capitalized, digits, natural_order};
use plan::Architecture;
use table::{Measure, P2p, Spec};

/// Maximum charts of a figure.
const MOST_PANELS: usize = 12;

/// Maximum points with tooltips, to bound the file size.
const MOST_TIPS: usize = 600;

#[derive(Clone, Debug, Default)]
pub struct ParetoData<'a> {
    /// Cells, from [`crate::analysis::pareto_on()`] for these axes.
    pub points: &'a [ParetoPoint],
    pub axes: Axes,
    /// Points from other sources, not part of any frontier: see [`overlay`].
    pub overlay: Vec<OverlayPoint>,
    /// Limits of x, in the base unit of the axis: a line each, and the best points within them in the caption.
    pub limits: Vec<f64>,
}

/// Overlay points that match some run and have both numbers.
pub fn overlay(others: &[OverlayPoint], points: &[ParetoPoint], axes: Axes) -> Vec<OverlayPoint> {
    let goes = |other: &&OverlayPoint| points.iter().any(|point| other.goes_with(&point.spec));
    let placed = |other: &&OverlayPoint| other.place(axes).is_some();
    others.iter().filter(placed).filter(goes).cloned().collect()
}

/// Draws latency against throughput per GPU, or other measures, with one frontier per architecture and P2P
/// setting. Runs that are not comparable (other model, workload, hardware or provenance) get separate panels.
/// Returns an error if no run has numbers, if there are more groups than panels, or if the page is too small.
pub fn pareto_figure(
    data: &ParetoData<'_>,
    provenance: &ProvenanceSummary,
    options: &FigureOptions,
) -> Result<Figure> {
    let elsewhere = data.overlay.iter().map(|other| other.source.clone()).collect();
    let provenance = &ProvenanceSummary { elsewhere, ..provenance.clone() };
    let axes = data.axes;
    let points = placed_points(data);
    let groups: Vec<&[&ParetoPoint]> = points.chunk_by(|a, b| a.group == b.group).collect();
    if groups.is_empty() {
        return Err(nothing(data));
    }
    if groups.len() > MOST_PANELS {
        return Err(Error::input_help(
            format!("{} groups of runs that are not comparable with each other", groups.len()),
            format!("filter to at most {MOST_PANELS} models, workloads and machines"),
        ));
    }
    // overlay points share the colours of our architectures; unknown ones are in ink
    let others: Vec<Architecture> =
        data.overlay.iter().filter_map(|other| other.architecture.parse().ok()).collect();
    let looks = looks(points.iter().map(|point| &point.spec.architecture).chain(&others));
    let suffixes = suffixes(&points);
    let one = groups.len() == 1;
    let (names, common) = panel_names(&groups);
    let xs = points.iter().filter_map(|p| axes.x.value(p));
    let xs = xs.chain(data.overlay.iter().filter_map(|o| Some(o.place(axes)?.0)));
    let (unit, by) = axes.x.unit_for(xs.fold(0.0, f64::max));
    let sheet = Sheet {
        options,
        provenance,
        title: title(axes, groups.len()),
        note: with_p2p(common, &points, &data.overlay),
        remark: [answers(data, &groups, (unit, by)), vec![remark(axes, &points, &suffixes)]]
            .concat()
            .join("; "),
        legend: legend(&points, &data.overlay, &looks),
    };
    let columns = if one || options.is_narrow() { 1 } else { 2 };
    let (x_title, y_title) = (axes.x.title_in(unit), y_name(axes));
    let size = ChartSize { aspect: 0.62, height: 130.0..=300.0, least: (75.0, 70.0) };
    let (mut scene, cells) = sheet.charts((groups.len(), columns), size, (&x_title, &y_title))?;
    for ((cell, name), members) in cells.into_iter().zip(names).zip(&groups) {
        let panel = ParetoPanel {
            points: members.to_vec(),
            overlay: overlaid(data, members, &looks, by),
            looks: &looks,
            suffixes: suffixes.clone(),
            axes,
            limits: &data.limits,
            by,
        };
        let header = (!one).then_some(name.as_str());
        panel.draw(&mut Chart::new(&mut scene, cell, header, panel.fit()).numbered());
    }
    if scene.tips.len() > MOST_TIPS {
        scene.tips.clear();
    }
    Ok(Figure::new(scene, provenance, options))
}

/// Points with values on both axes by group, x and run, so that the figure does not depend on their order.
fn placed_points<'a>(data: &ParetoData<'a>) -> Vec<&'a ParetoPoint> {
    let axes = data.axes;
    let mut points: Vec<&ParetoPoint> =
        data.points.iter().filter(|point| axes.coordinates(point).is_some()).collect();
    let x = |point: &ParetoPoint| axes.x.value(point).unwrap_or(f64::INFINITY);
    points.sort_by(|a, b| {
        let by_group = natural_order(&a.group, &b.group).then_with(|| a.group.cmp(&b.group));
        by_group.then(x(a).total_cmp(&x(b))).then_with(|| a.run.cmp(&b.run))
    });
    points
}

/// Names of the panels, and what their groups have in common. With several provenances, each panel names its own, first:
/// long names lose their end.
fn panel_names(groups: &[&[&ParetoPoint]]) -> (Vec<String>, String) {
    let notes: Vec<String> = groups.iter().map(|members| group_note(&members[0].group)).collect();
    let (names, common) = split_group_names(&notes.iter().map(String::as_str).collect::<Vec<_>>());
    let provenances = distinct(groups.iter().map(|members| members[0].provenance));
    let named = names.into_iter().zip(groups).map(|(name, members)| {
        let from = members[0].provenance;
        match (provenances.len() > 1, name.is_empty()) {
            (true, true) => from.to_string(),
            (true, false) => format!("{from}: {name}"),
            (false, _) => name,
        }
    });
    (named.collect(), common)
}

/// Note with the P2P setting, if all points share it; otherwise the legend has both.
fn with_p2p(note: String, points: &[&ParetoPoint], overlay: &[OverlayPoint]) -> String {
    match points.first().filter(|_| !has_both(points, overlay)) {
        Some(first) if note.is_empty() => format!("P2P {}", first.spec.p2p.as_str()),
        Some(first) => format!("{note}, P2P {}", first.spec.p2p.as_str()),
        None => note,
    }
}

/// Overlay points that go with the points of a panel.
fn overlaid(data: &ParetoData<'_>, members: &[&ParetoPoint], looks: &Looks, by: f64) -> Vec<Overlaid> {
    let sources = sources(&data.overlay);
    let overlaid = |other: &OverlayPoint| {
        let (x, y) = other.place(data.axes)?;
        let index = sources.iter().position(|source| *source == other.source).unwrap_or(0);
        let architecture = other.architecture.parse::<Architecture>().ok();
        let color = architecture.and_then(|one| looks.get(&one)).map_or(INK, |look| look.color);
        Some(Overlaid {
            at: (x / by, y),
            look: look_of_overlay(index, color),
            fill: other.p2p.map_or(Fill::Solid, Fill::from_p2p),
            letter: None,
            tip: tip_of_other(other, data.axes),
        })
    };
    let members_only = data.overlay.iter().filter(|other| other.goes_with(&members[0].spec));
    members_only.filter_map(overlaid).collect()
}

/// Words of a limit of x: `within 30 ms`, `at least 50 tokens/s/user`.
pub fn limit_words(x: XAxis, limit: f64, (unit, by): (&str, f64)) -> String {
    let bound = if x.is_more_better() { "at least" } else { "within" };
    format!("{bound} {} {unit}", number(limit / by))
}

/// Answers within the limits: `within 30 ms (dashed line): ladder 8x64 P2P on, 278 tokens/s per GPU (≈ parallel 278, standard
/// 245)`. Several groups have several answers, which the caption has no room for: it explains the lines.
fn answers(data: &ParetoData<'_>, groups: &[&[&ParetoPoint]], unit: (&str, f64)) -> Vec<String> {
    let axes = data.axes;
    let shown = ValueAxis::fit(groups.iter().copied().flatten().filter_map(|p| axes.x.value(p)));
    let line = |limit: f64| {
        let words = limit_words(axes.x, limit, unit);
        if shown.contains(limit) { format!("{words} (dashed line)") } else { words }
    };
    let answer = |limit: &f64| {
        let [points] = groups else { return line(*limit) };
        let rows = at_limits(points.iter().copied(), axes, &[*limit]);
        let best = best_within(points, &rows, axes, *limit);
        let Some((winner, rivals)) = best.split_first() else {
            return format!("{}: no point", line(*limit));
        };
        let point = points.iter().find(|point| point.run == winner.run);
        let label = |run: &str| points.iter().find(|point| point.run == run).map(|point| point.label());
        let cell = point.map_or_else(String::new, |point| {
            let cell = format!(" {} P2P {}", point.label(), point.spec.p2p.as_str());
            with_setting(cell, &point.setting)
        });
        let name = format!("{}{cell}, {} {}", winner.architecture, digits(winner.y), y_name(axes));
        let rival = |rival: &BestWithin| {
            let tied = if rival.is_tied { "≈ " } else { "" };
            // across TPs and batch sizes a ratio is no speedup
            let own = label(&rival.run).filter(|own| Some(own) != label(&winner.run).as_ref());
            let own = own.map_or_else(String::new, |own| format!(" {own}:"));
            format!("{tied}{}{own} {}", rival.architecture, digits(rival.y))
        };
        let rivals: Vec<String> = rivals.iter().map(rival).collect();
        match rivals.is_empty() {
            true => format!("{}: {name}", line(*limit)),
            false => format!("{}: {name} ({})", line(*limit), rivals.join(", ")),
        }
    };
    data.limits.iter().map(answer).collect()
}

/// Everything between the axes of a Pareto plot of one group, in figures and in pictures on the screen.
pub struct ParetoPanel<'a> {
    pub points: Vec<&'a ParetoPoint>,
    pub overlay: Vec<Overlaid>,
    pub looks: &'a Looks,
    /// Labels of the markers of series that share a look.
    pub suffixes: BTreeMap<Series, &'static str>,
    pub axes: Axes,
    /// Limits of x, in its base unit.
    pub limits: &'a [f64],
    /// Divisor of x.
    pub by: f64,
}

/// Mark of a point from another source.
pub struct Overlaid {
    pub at: (f64, f64),
    pub look: Look,
    pub fill: Fill,
    /// Letter in place of the marker.
    pub letter: Option<String>,
    pub tip: String,
}

fn nothing(data: &ParetoData<'_>) -> Error {
    match data.axes.quality() {
        _ if data.points.is_empty() => Error::input_help(
            "nothing to plot: no run completed successfully",
            "`ladderscope runs` lists the runs and their errors",
        ),
        Some(measure) => Error::input_help(
            format!("nothing to plot: no run has {}", measure.words),
            "measure it with `ladderscope evaluate --model DIR --text FILE --architecture ...` for that model",
        ),
        None => Error::input(format!(
            "nothing to plot: no run has both {} and {}",
            data.axes.x.title(),
            data.axes.y.title()
        )),
    }
}

fn title(axes: Axes, groups: usize) -> String {
    let [x, y] = match axes == Axes::default() {
        true => ["completion latency", "throughput per GPU"],
        false => [axes.x.measure().words, axes.y.measure().words],
    };
    let groups = if groups > 1 { format!(", {groups} groups of runs") } else { String::new() };
    capitalized(&format!("{x} against {y}{groups}"))
}

fn y_name(axes: Axes) -> String {
    match axes.y {
        YAxis::PerGpu => "tokens/s per GPU".into(),
        y => y.title(),
    }
}

/// Marks after the markers of series that share a look, by their settings.
const SUFFIXES: [&str; 9] = ["²", "³", "⁴", "⁵", "⁶", "⁷", "⁸", "⁹", "⁺"];

/// Suffix of each series whose setting is not the first of its architecture and P2P.
fn suffixes(points: &[&ParetoPoint]) -> BTreeMap<Series, &'static str> {
    let all: BTreeSet<Series> = points.iter().map(|point| point.series()).collect();
    let settings = distinct(all.iter().map(|series| series.setting.clone()));
    let suffix = |series: Series| {
        let at = settings.iter().position(|setting| *setting == series.setting)?;
        Some((series, SUFFIXES[at.checked_sub(1)?.min(SUFFIXES.len() - 1)]))
    };
    all.into_iter().filter_map(suffix).collect()
}

fn remark(axes: Axes, points: &[&ParetoPoint], suffixes: &BTreeMap<Series, &'static str>) -> String {
    let mut remark = String::from("Labels: TP×batch on the frontier; upper-bound is a limit");
    let named = suffixes.iter().map(|(series, suffix)| (*suffix, series.setting.as_str()));
    for (suffix, setting) in named.collect::<BTreeSet<_>>() {
        remark += &format!("; {suffix} {setting}");
    }
    let plain = points.iter().find(|point| !suffixes.contains_key(&point.series()));
    if let Some(plain) = plain.filter(|plain| !suffixes.is_empty() && !plain.setting.is_empty()) {
        remark += &format!(", others {}", plain.setting);
    }
    if points.iter().any(|point| axes.x.interval(point).or(axes.y.interval(point)).is_some()) {
        remark += "; bars: 95 % bootstrap intervals";
    }
    for basis in axes.quality_basis(points.iter().copied()) {
        remark += &format!("; {basis}");
    }
    remark
}

/// Look of an overlay point: the marker identifies the source, the colour the architecture.
fn look_of_overlay(index: usize, color: Color) -> Look {
    let marker = [Marker::Star, Marker::Hexagon, Marker::Pentagon][index % 3];
    Look { color, marker, hatch: Hatch::None }
}

fn sources(overlay: &[OverlayPoint]) -> Vec<&str> {
    distinct(overlay.iter().map(|point| point.source.as_str()))
}

fn has_both(points: &[&ParetoPoint], overlay: &[OverlayPoint]) -> bool {
    let own = points.iter().map(|point| point.spec.p2p);
    let seen: BTreeSet<bool> =
        own.chain(overlay.iter().filter_map(|other| other.p2p)).map(|p2p| p2p == P2p::On).collect();
    seen.len() == 2
}

fn legend(points: &[&ParetoPoint], overlay: &[OverlayPoint], looks: &Looks) -> Vec<LegendEntry> {
    let mut legend = series_legend(looks, has_both(points, overlay));
    let pale = Look { color: faded(GREY, WHITE), ..PLAIN };
    legend.push(LegendEntry::new(LegendKey::Marker { look: pale, fill: Fill::Solid }, "dominated"));
    for (index, source) in sources(overlay).into_iter().enumerate() {
        let key = LegendKey::Marker { look: look_of_overlay(index, INK), fill: Fill::Solid };
        legend.push(LegendEntry::new(key, source));
    }
    legend
}

impl ParetoPanel<'_> {
    fn at(&self, point: &ParetoPoint) -> (f64, f64) {
        self.axes.coordinates(point).map(|(x, y)| (x / self.by, y)).unwrap_or_default()
    }

    fn intervals(&self, point: &ParetoPoint) -> [Option<[f64; 2]>; 2] {
        let x = self.axes.x.interval(point).map(|ends| ends.map(|end| end / self.by));
        [x, self.axes.y.interval(point)]
    }

    /// Axes around everything in the panel.
    fn fit(&self) -> (ValueAxis, ValueAxis) {
        let places = self.points.iter().map(|point| self.at(point));
        let places: Vec<_> = places.chain(self.overlay.iter().map(|other| other.at)).collect();
        let ends: Vec<_> = self.points.iter().map(|point| self.intervals(point)).collect();
        let ends_of = |axis: usize| ends.iter().filter_map(move |ends| ends[axis]).flatten();
        let x = places.iter().map(|place| place.0).chain(ends_of(0));
        (ValueAxis::fit(x), ValueAxis::fit(places.iter().map(|place| place.1).chain(ends_of(1))))
    }

    /// Draws limits, lines, dominated points and then frontiers, so that frontiers are never covered.
    pub fn draw(&self, chart: &mut Chart<'_>) {
        for limit in self.limits.iter().map(|limit| limit / self.by).filter(|x| chart.x.contains(*x)) {
            let (x, Area { top, bottom, .. }) = (chart.x.place(limit), chart.area);
            let color = chart.scene.label;
            chart.scene.dashed(vec![(x, top), (x, bottom)], color, 0.5 * chart.scene.sizes.line);
        }
        let layout = ParetoLayout::new(&self.points, self.axes);
        let look =
            |point: &ParetoPoint| self.looks.get(&point.spec.architecture).copied().unwrap_or(PLAIN);
        let mut best: BTreeSet<usize> = BTreeSet::new();
        let mut taken: Vec<Area> = Vec::new();
        for (series, frontier) in &layout.frontiers {
            let line: Vec<_> = frontier.iter().map(|index| self.at(self.points[*index])).collect();
            let color = self.looks.get(&series.architecture).map_or(GREY, |look| look.color);
            let line = chart.line(frontier_steps(&line), color, Stroke::from_p2p(series.p2p));
            taken.extend(along(&line, chart.scene.sizes.line));
            best.extend(frontier);
        }
        for point in best.iter().map(|index| self.points[*index]) {
            chart.intervals(self.at(point), self.intervals(point), look(point).color);
        }
        // hollow markers below filled ones, so that both stay visible if P2P makes no difference
        let mut order: Vec<usize> = (0..self.points.len()).collect();
        order.sort_by_key(|index| (best.contains(index), self.points[*index].spec.p2p == P2p::On));
        for index in order {
            let point = self.points[index];
            let (look, scale) = match look(point) {
                look if best.contains(&index) => (look, 1.0),
                look => (Look { color: faded(look.color, chart.scene.paper), ..look }, 0.75),
            };
            let fill = Fill::from_p2p(point.spec.p2p);
            let covers = chart.mark_scaled(self.at(point), look, fill, scale, tip(point, self.axes));
            if let Some(suffix) = self.suffixes.get(&point.series()) {
                let at = (covers.right, covers.center().1);
                chart.write(SceneText::new(at, *suffix, chart.scene.sizes.note).color(look.color));
            }
            taken.push(covers);
        }
        for Overlaid { at, look, fill, letter, tip } in &self.overlay {
            match letter {
                None => taken.push(chart.mark(*at, *look, *fill, tip.clone())),
                Some(letter) => {
                    let text =
                        SceneText::new(chart.at(*at), letter, chart.scene.sizes.note).color(look.color);
                    taken.push(chart.write(text.align(Align::Middle)));
                }
            }
        }
        for index in layout.labels {
            self.label(chart, self.points[index], &mut taken);
        }
    }

    /// Labels a point with TP x batch if there is room: never over a line, a marker, another label or the edge.
    fn label(&self, chart: &mut Chart<'_>, point: &ParetoPoint, taken: &mut Vec<Area>) {
        let at = chart.at(self.at(point));
        let Spec { tp, pp, batch, .. } = point.spec;
        let name = if pp > 1 { format!("{tp}×{pp}×{batch}") } else { format!("{tp}×{batch}") };
        let Some((text, far)) = beside(at, &name, &chart.area, taken, &chart.scene.sizes) else {
            return;
        };
        let color = chart.scene.label;
        if far {
            let covers = text.area();
            let near = (at.0.clamp(covers.left, covers.right), at.1.clamp(covers.top, covers.bottom));
            chart.scene.line(vec![at, near], color, chart.scene.sizes.thin * 0.8);
        }
        taken.push(chart.write(text.color(color)));
    }
}

/// Small areas along a line, for collision tests.
fn along(line: &[Point], width: f64) -> Vec<Area> {
    let mut places = Vec::new();
    for pair in line.windows(2) {
        let (from, to) = (pair[0], pair[1]);
        let length = (to.0 - from.0).hypot(to.1 - from.1);
        let count = (length / width.max(0.1)).ceil().clamp(1.0, 4000.0);
        let at = |n: f64| (from.0 + (to.0 - from.0) * n / count, from.1 + (to.1 - from.1) * n / count);
        places.extend((0..=count as u32).map(|n| Area::around(at(n.into()), width / 2.0)));
    }
    places
}

/// Tooltip: `ladder, TP 8, batch 16, P2P on: 8123.4 ms, 126.1 tokens/s per GPU (simulated)`.
fn tip(point: &ParetoPoint, axes: Axes) -> String {
    let spec = &point.spec;
    let quality = match (axes.quality(), &point.quality) {
        (Some(measure), Some(quality)) => format!("; {}: {}", measure.title, quality.full_basis()),
        _ => String::new(),
    };
    let setting = if point.setting.is_empty() { String::new() } else { format!(", {}", point.setting) };
    format!(
        "{}, TP {}{}, batch {}, P2P {}{setting}: {} ({}{quality})",
        spec.architecture,
        spec.tp,
        if spec.pp > 1 { format!(" x PP {}", spec.pp) } else { String::new() },
        spec.batch,
        spec.p2p.as_str(),
        both(axes, axes.coordinates(point).unwrap_or_default()),
        point.provenance
    )
}

fn both(axes: Axes, (x, y): (f64, f64)) -> String {
    if axes == Axes::default() {
        return format!("{x:.1} ms, {y:.2} tokens/s per GPU");
    }
    let amount = |measure: &Measure, value: f64| {
        format!("{} {value:.*} {}", measure.words, measure.decimals, measure.unit.symbol())
    };
    format!("{}, {}", amount(axes.x.measure(), x).trim_end(), amount(axes.y.measure(), y).trim_end())
}

/// Tooltip: `ladder 8x16, P2P on: 8123.4 ms, 126.1 tokens/s per GPU [published (arXiv 2501.06589)]`.
fn tip_of_other(other: &OverlayPoint, axes: Axes) -> String {
    let name = format!("{} {}", other.architecture, other.name());
    let p2p = other.p2p.map(|p2p| format!(", P2P {}", p2p.as_str())).unwrap_or_default();
    let both = both(axes, other.place(axes).unwrap_or_default());
    format!("{}{p2p}: {both} [{}]", name.trim_end(), other.source)
}

/// Label at a free position near a point, and true if it is so far away that it needs a leader line.
fn beside(
    at: Point,
    name: &str,
    area: &Area,
    taken: &[Area],
    sizes: &FigureSizes,
) -> Option<(SceneText, bool)> {
    // try above left first: no run reaches that region, so it is free most often
    const SIDES: [(f64, f64, Align); 8] = [
        (-1.0, -1.0, Align::Right),
        (0.0, -1.6, Align::Middle),
        (-1.4, 0.0, Align::Right),
        (1.0, 1.0, Align::Left),
        (1.4, 0.0, Align::Left),
        (0.0, 1.6, Align::Middle),
        (1.0, -1.0, Align::Left),
        (-1.0, 1.0, Align::Right),
    ];
    let texts = [1.9, 4.0, 6.5].into_iter().enumerate().flat_map(|(far, away)| {
        let away = away * sizes.marker;
        SIDES.into_iter().map(move |(dx, dy, align)| (far > 0, (dx * away, dy * away), align))
    });
    let texts = texts.map(|(far, (dx, dy), align)| {
        let text = SceneText::new((at.0 + dx, at.1 + dy), name, sizes.note);
        (text.align(align), far)
    });
    texts.into_iter().find(|(text, _)| {
        let covers = text.area();
        area.holds(&covers) && !taken.iter().any(|other| other.meets(&covers))
    })
}
