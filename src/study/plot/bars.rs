//! Grouped bars with intervals and labels, for the improvement and P2P figures.
//!
//! P2P figure: tokens/s with P2P on and off by architecture and TP, one chart per batch size, and the cost of
//! switching it off, for one set of comparable cells ([`crate::analysis::comparable`]).
//!
//! Improvement figure: throughput gain over standard in percent, with the intervals of the paired ratios
//! ([`crate::analysis::compare()`]). Bars over batch sizes, or over models if the sets differ only in the
//! model; one column of charts per TP, one row per P2P setting.
//!
//! Comparison figure: speedup of each matched pair from [`crate::analysis::compare()`] with its interval, and
//! a line at 1.

use std::collections::{BTreeMap, BTreeSet};

use super::axis::{self, ValueAxis};
use super::figure::{Figure, FigureOptions, POINTS};
use super::layout::{self, ChartSize, LegendEntry, LegendKey, Sheet, bar};
use super::provenance::ProvenanceSummary;
use super::scene::{Align, Area, Color, Fill, Hatch, Scene, Text};
use super::style::{GREY, INK, Look, Looks, PLAIN, Sizes, look, looks};
use super::{check_charts, font, group_note, too_narrow};
use crate::analysis::{CellSet, Comparison, ComparisonReport};
use base::error::{Error, Result};
use base::text::counted;
use plan::Architecture;
use table::{P2p, Record};

#[derive(Clone, Debug, PartialEq)]
pub struct Bar {
    pub value: f64,
    pub interval: Option<[f64; 2]>,
    pub color: Color,
    pub hatch: Hatch,
}

#[derive(Clone, Debug, Default, PartialEq)]
pub struct BarGroup {
    pub name: String,
    /// Bars from left to right; `None` leaves the place of a missing run empty.
    pub bars: Vec<Option<Bar>>,
    /// Labels over bars: first bar, last bar, text.
    pub words: Vec<(usize, usize, String)>,
}

pub fn values(groups: &[BarGroup]) -> Vec<f64> {
    let bars = groups.iter().flat_map(|group| group.bars.iter().flatten());
    bars.flat_map(|bar| bar.interval.unwrap_or([bar.value; 2]).into_iter().chain([bar.value])).collect()
}

/// True if the group names fit horizontally below bars of this total width.
fn names_lie(groups: &[BarGroup], width: f64, sizes: &Sizes) -> bool {
    let room = width / groups.len().max(1) as f64;
    let widest = groups.iter().map(|g| font::width(&g.name, sizes.tick, false)).fold(0.0, f64::max);
    widest + 0.5 * sizes.tick <= room
}

pub fn under(groups: &[BarGroup], width: f64, sizes: &Sizes) -> f64 {
    if names_lie(groups, width, sizes) {
        return axis::under(sizes);
    }
    let widest = groups.iter().map(|g| font::width(&g.name, sizes.tick, false)).fold(0.0, f64::max);
    widest.min(9.0 * sizes.tick) + 0.7 * sizes.tick
}

/// Orientation of the labels over bars, the same for a whole figure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum How {
    Lying,
    /// Vertical, within the width of a bar.
    Upright,
    Not,
}

impl How {
    fn of(groups: &[BarGroup], slot: f64, height: f64, sizes: &Sizes) -> Self {
        let words = || groups.iter().flat_map(|group| &group.words);
        let width = |text: &str| font::width(text, sizes.note, false);
        let across = |from: usize, to: usize| (to - from + 1) as f64 * slot;
        let lie = words().all(|(from, to, text)| width(text) + 0.2 * sizes.note <= across(*from, *to));
        let stand = words().all(|(from, to, _)| across(*from, *to) >= 1.02 * sizes.note);
        let upright = upright(groups, sizes);
        match (lie, stand) {
            (true, _) if height > 5.0 * sizes.note => Self::Lying,
            (_, true) if height > 2.5 * upright => Self::Upright,
            _ => Self::Not,
        }
    }

    fn room(self, groups: &[BarGroup], sizes: &Sizes) -> f64 {
        match self {
            _ if groups.iter().all(|group| group.words.is_empty()) => 0.0,
            Self::Lying => 1.2 * sizes.note,
            Self::Upright => upright(groups, sizes),
            Self::Not => 0.0,
        }
    }
}

fn upright(groups: &[BarGroup], sizes: &Sizes) -> f64 {
    let words = groups.iter().flat_map(|group| &group.words);
    let widest = words.map(|(_, _, text)| font::width(text, sizes.note, false)).fold(0.0, f64::max);
    widest + 0.6 * sizes.note
}

/// Data area of a chart, and the widths of a group and of a bar.
fn place(cell: Area, groups: &[BarGroup], y: &ValueAxis, sizes: &Sizes) -> (Area, f64, f64) {
    let area = layout::data_area(cell, true, y, 0.0, sizes);
    let area = Area { bottom: cell.bottom - under(groups, area.width(), sizes), ..area };
    let room = area.width() / groups.len().max(1) as f64;
    let most = groups.iter().map(|group| group.bars.len()).max().unwrap_or(1).max(1) as f64;
    (area, room, room / (most + 0.9))
}

/// Draws charts into cells, with labels in the same orientation.
pub fn draw(
    scene: &mut Scene,
    cells: &[Area],
    charts: &[(String, Vec<BarGroup>, ValueAxis)],
    sizes: &Sizes,
) {
    let all = || cells.iter().zip(charts);
    let how = all().map(|(cell, (_, groups, y))| {
        let (area, _, slot) = place(*cell, groups, y, sizes);
        How::of(groups, slot, area.height(), sizes)
    });
    let how = how.max().unwrap_or(How::Not);
    // reserve the same height above, or a common axis would have several scales
    let above = charts.iter().map(|(_, groups, _)| how.room(groups, sizes)).fold(0.0, f64::max);
    for (cell, (header, groups, y)) in all() {
        chart(scene, *cell, header, groups, (*y, how, above), sizes);
    }
}

/// Draws a chart into a cell. `above` is the height reserved for labels.
fn chart(
    scene: &mut Scene,
    cell: Area,
    header: &str,
    groups: &[BarGroup],
    (y, how, above): (ValueAxis, How, f64),
    sizes: &Sizes,
) {
    let (area, room, slot) = place(cell, groups, &y, sizes);
    layout::header(scene, &area, header, sizes);
    let y = y.with_air(above / (area.height() - above)).over(area.bottom, area.top);
    axis::vertical(scene, &y, &area, sizes);
    for (index, group) in groups.iter().enumerate() {
        let middle = area.left + (index as f64 + 0.5) * room;
        let first = middle - slot * group.bars.len() as f64 / 2.0;
        for (number, one) in group.bars.iter().enumerate() {
            let Some(one) = one else { continue };
            let left = first + slot * number as f64;
            let (zero, end) = (y.place(0.0), y.place(one.value));
            let block = Area {
                left: left + 0.04 * slot,
                right: left + 0.96 * slot,
                top: zero.min(end),
                bottom: zero.max(end),
            };
            bar(scene, block, one.color, one.hatch, sizes);
            if let Some([low, high]) = one.interval {
                let x = left + slot / 2.0;
                scene.interval((x, y.place(low)), (x, y.place(high)), INK, sizes.line * 0.55);
            }
        }
        for (from, to, text) in &group.words {
            let bars = group.bars.get(*from..=*to).unwrap_or_default().iter().flatten();
            let tops = bars.map(|b| b.interval.map_or(b.value, |[_, high]| high.max(b.value)).max(0.0));
            let Some(top) = tops.reduce(f64::max) else { continue };
            let x = first + slot * (*from + *to + 1) as f64 / 2.0;
            let above = y.place(top);
            let text = Text::new((x, above), text.as_str(), sizes.note).inside();
            let text = match how {
                How::Lying => Text { at: (x, above - 0.85 * sizes.note), ..text }.align(Align::Middle),
                How::Upright => Text { at: (x, above - 0.4 * sizes.note), ..text }.upwards(),
                How::Not => continue,
            };
            if area.holds(&text.area()) {
                scene.text(text);
            }
        }
        let name = match names_lie(groups, area.width(), sizes) {
            true => {
                Text::new((middle, area.bottom + 0.95 * sizes.tick), group.name.as_str(), sizes.tick)
                    .align(Align::Middle)
            }
            false if room >= 1.05 * sizes.tick => {
                let text = font::fit(&group.name, sizes.tick, 9.0 * sizes.tick);
                Text::new((middle, area.bottom + 0.4 * sizes.tick), text, sizes.tick)
                    .align(Align::Right)
                    .upwards()
            }
            false => continue,
        };
        scene.text(name.color(INK));
    }
    let zero = y.place(0.0);
    scene.line(vec![(area.left, zero), (area.right, zero)], GREY, sizes.thin * 1.5);
    layout::frame(scene, area, sizes);
}

/// Hatch of bars without P2P.
const OFF: Hatch = Hatch::Rising;

/// Draws the P2P figure of a set of comparable cells.
///
/// # Errors
///
/// Returns an error if the set has only one P2P setting, or there are too many charts.
pub fn p2p_figure(
    set: &CellSet,
    provenance: &ProvenanceSummary,
    options: &FigureOptions,
) -> Result<Figure> {
    if set.values(|spec| spec.p2p).len() < 2 {
        return Err(Error::input_help(
            "nothing to plot: all runs have the same P2P setting",
            "run the same cells with --p2p on and --p2p off",
        ));
    }
    let batches = set.values(|spec| spec.batch);
    check_charts(batches.len(), "batch")?;
    let looks = looks(&set.values(|spec| spec.architecture.clone()));
    let mut legend: Vec<LegendEntry> = looks
        .iter()
        .map(|(architecture, look)| {
            LegendEntry::new(
                LegendKey::Bar { color: look.color, hatch: Hatch::None },
                architecture.to_string(),
            )
        })
        .collect();
    for (hatch, name) in [(Hatch::None, "P2P on"), (OFF, "P2P off")] {
        legend.push(LegendEntry::new(LegendKey::Bar { color: GREY, hatch }, name));
    }
    let mut remark = String::from("Above each pair: change in tokens/s with P2P off. No bar: no run");
    if set.has_intervals() {
        remark += ". Whiskers: 95 % bootstrap intervals";
    }
    let sheet = Sheet {
        options,
        provenance,
        title: "Throughput with P2P on and off".into(),
        note: group_note(&set.name),
        remark,
        legend,
    };
    let width = options.size.width * POINTS;
    let bars_in_all = looks.len() * 2 * set.values(|spec| spec.tp).len();
    // a bar of less than four points looks like a line
    let columns = ((width - 60.0) / (bars_in_all as f64 * 5.0).max(60.0)).floor();
    let columns = (columns.max(1.0) as usize).min(4);
    let (mut scene, cells, sizes) = sheet.charts(
        (batches.len(), columns),
        ChartSize { aspect: 0.5, height: 95.0..=180.0, least: (50.0, 46.0) },
        ("TP (GPUs)", "tokens/s"),
    )?;
    let tps = set.values(|spec| spec.tp);
    let charts = batches.into_iter().map(|batch| {
        let groups: Vec<BarGroup> = tps.iter().map(|tp| p2p_group(set, *tp, batch, &looks)).collect();
        let y = ValueAxis::from_zero(values(&groups).into_iter());
        (format!("batch {batch}"), groups, y)
    });
    draw(&mut scene, &cells, &charts.collect::<Vec<_>>(), &sizes);
    Ok(Figure::new(scene, provenance, options))
}

fn p2p_group(set: &CellSet, tp: u32, batch: u32, looks: &Looks) -> BarGroup {
    let mut group = BarGroup { name: tp.to_string(), ..BarGroup::default() };
    for (architecture, look) in looks {
        let record_of = |p2p| set.get(architecture, tp, batch, p2p);
        let bar = |record: Option<&Record>, hatch| {
            let metrics = record?.metrics.as_ref()?;
            let interval = metrics.tokens_per_s_ci95;
            Some(Bar { value: metrics.tokens_per_s, interval, color: look.color, hatch })
        };
        let (on, off) = (bar(record_of(P2p::On), Hatch::None), bar(record_of(P2p::Off), OFF));
        if let (Some(on), Some(off)) = (&on, &off)
            && on.value > 0.0
        {
            let change = 100.0 * (off.value / on.value - 1.0);
            let at = group.bars.len();
            let text = match change.round() {
                0.0 => "0 %".into(),
                less if less < 0.0 => format!("−{:.0} %", -less),
                more => format!("+{more:.0} %"),
            };
            group.words.push((at, at + 1, text));
        }
        group.bars.extend([on, off]);
    }
    group
}

/// One chart; `batch` is set if the bars are models.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct BarChart {
    tp: u32,
    p2p: P2p,
    batch: Option<u32>,
}

/// Draws the figure of comparable cells. Several sets must differ only in the model. `report` is the
/// comparison of the same runs by architecture.
///
/// # Errors
///
/// Returns an error if nothing can be compared with standard, or there are too many charts.
pub fn improvement_figure(
    sets: &[CellSet],
    report: &ComparisonReport,
    provenance: &ProvenanceSummary,
    options: &FigureOptions,
) -> Result<Figure> {
    let by_run: BTreeMap<&str, &Comparison> = report
        .pairs
        .iter()
        .filter(|pair| pair.baseline == "standard")
        .map(|pair| (pair.run.as_str(), pair))
        .collect();
    let compared = |record: &&Record| by_run.contains_key(record.run.as_str());
    let cells = || sets.iter().flat_map(|set| &set.cells).filter(compared);
    let architectures: BTreeSet<Architecture> = cells().map(|c| c.spec.architecture.clone()).collect();
    if architectures.is_empty() {
        return Err(Error::input_help(
            "nothing to plot: no run has a matching standard run",
            "run the same cells with --architecture standard",
        ));
    }
    // use the same colours as figures that show standard
    let looks = looks(architectures.iter().chain([&Architecture::Standard]));
    let over_models = sets.len() > 1;
    let batches: BTreeSet<u32> = cells().map(|c| c.spec.batch).collect();
    let tps: BTreeSet<u32> = cells().map(|c| c.spec.tp).collect();
    let settings: BTreeSet<P2p> = cells().map(|c| c.spec.p2p).collect();
    let rows: Vec<(P2p, Option<u32>)> = match over_models {
        true => settings.iter().flat_map(|p| batches.iter().map(|b| (*p, Some(*b)))).collect(),
        false => settings.iter().map(|p| (*p, None)).collect(),
    };
    check_charts(rows.len() * tps.len(), "tp")?;
    let charts: Vec<(BarChart, Vec<BarGroup>)> = rows
        .iter()
        .flat_map(|(p2p, batch)| tps.iter().map(|tp| BarChart { tp: *tp, p2p: *p2p, batch: *batch }))
        .map(|chart| {
            let groups = match over_models {
                true => sets
                    .iter()
                    .map(|set| {
                        let model = set.cells.first().map_or(String::new(), |c| c.spec.model.clone());
                        improvement_group(set, model, chart, chart.batch.unwrap_or(1), &by_run, &looks)
                    })
                    .collect(),
                false => batches
                    .iter()
                    .map(|batch| {
                        improvement_group(&sets[0], batch.to_string(), chart, *batch, &by_run, &looks)
                    })
                    .collect(),
            };
            (chart, groups)
        })
        .collect();

    let note = match (over_models, sets.first()) {
        (true, Some(set)) => {
            let model = set.cells.first().map_or("", |c| c.spec.model.as_str());
            group_note(set.name.strip_prefix(model).unwrap_or(&set.name).trim_start())
        }
        (_, set) => set.map(|set| group_note(&set.name)).unwrap_or_default(),
    };
    let mut remark = format!("{} ratios to standard; no bar: no run", by_run.len());
    if by_run.values().any(|pair| pair.speedup_ci95.is_some()) {
        remark += "; whiskers: 95 % intervals, paired by round";
    }
    let entry = |(architecture, look): (&Architecture, &super::style::Look)| {
        LegendEntry::new(
            LegendKey::Bar { color: look.color, hatch: look.hatch },
            architecture.to_string(),
        )
    };
    let sheet = Sheet {
        options,
        provenance,
        title: "Throughput gain over standard".into(),
        note,
        remark,
        legend: looks.iter().filter(|(a, _)| **a != Architecture::Standard).map(entry).collect(),
    };
    let width = options.size.width * POINTS;
    let columns = tps.len();
    let names = charts
        .iter()
        .map(|(_, groups)| under(groups, width / columns as f64 - 40.0, &Sizes::new(options.font)));
    let names = names.fold(0.0, f64::max);
    let (mut scene, cells, sizes) = sheet.charts(
        (charts.len(), columns),
        ChartSize { aspect: 0.6, height: 75.0 + names..=150.0 + names, least: (50.0, 34.0 + names) },
        (if over_models { "model" } else { "batch" }, "gain in tokens/s (%)"),
    )?;
    let all: Vec<f64> = charts.iter().flat_map(|(_, groups)| values(groups)).collect();
    let y = ValueAxis::from_zero(all.into_iter());
    let charts = charts.into_iter().map(|(chart, groups)| {
        let mut words = vec![format!("TP {}", chart.tp)];
        if settings.len() > 1 {
            words.push(format!("P2P {}", chart.p2p.as_str()));
        }
        words.extend(chart.batch.filter(|_| batches.len() > 1).map(|batch| format!("batch {batch}")));
        (words.join(", "), groups, y)
    });
    draw(&mut scene, &cells, &charts.collect::<Vec<_>>(), &sizes);
    Ok(Figure::new(scene, provenance, options))
}

fn improvement_group(
    set: &CellSet,
    name: String,
    chart: BarChart,
    batch: u32,
    by_run: &BTreeMap<&str, &Comparison>,
    looks: &Looks,
) -> BarGroup {
    let percent = |ratio: f64| 100.0 * (ratio - 1.0);
    let bar = |(architecture, look): (&Architecture, &super::style::Look)| {
        let record = set.get(architecture, chart.tp, batch, chart.p2p)?;
        let pair = by_run.get(record.run.as_str())?;
        Some(Bar {
            value: percent(pair.speedup),
            interval: pair.speedup_ci95.map(|ends| ends.map(percent)),
            color: look.color,
            hatch: look.hatch,
        })
    };
    let others = looks.iter().filter(|(architecture, _)| **architecture != Architecture::Standard);
    let bars: Vec<Option<Bar>> = others.map(bar).collect();
    let word = |(at, bar): (usize, &Option<Bar>)| {
        bar.as_ref().map(|bar| (at, at, format!("{:.0}", bar.value).replace('-', "−")))
    };
    let words = bars.iter().enumerate().filter_map(word).collect();
    BarGroup { name, bars, words }
}

/// Maximum pairs in one figure; the caption says if there are more.
const MOST_PAIRS: usize = 60;

/// Draws speedups of matched pairs with their intervals, up to the maximum number of pairs. Returns an error
/// if there are no pairs or the page is too small for them.
pub fn comparison_figure(
    report: &ComparisonReport,
    provenance: &ProvenanceSummary,
    options: &FigureOptions,
) -> Result<Figure> {
    let pairs = &report.pairs[..report.pairs.len().min(MOST_PAIRS)];
    if pairs.is_empty() {
        return Err(Error::input_help(
            format!("nothing to plot: no two runs differ only by {}", report.by),
            "run cells that differ along this axis, or choose another with --by",
        ));
    }
    let only = |of: fn(&Comparison) -> &str| -> Option<&str> {
        let all: BTreeSet<&str> = pairs.iter().map(of).collect();
        all.first().copied().filter(|_| all.len() == 1)
    };
    let (matched, baseline, value) = (only(|p| &p.matched), only(|p| &p.baseline), only(|p| &p.value));
    // words that all rows share move to the title, but no row stays without a name
    let value = value.filter(|_| matched.is_none());
    let names: Vec<String> = pairs.iter().map(|pair| row_name(pair, matched, baseline, value)).collect();
    let ratios: Vec<String> = pairs.iter().map(ratio).collect();

    // a filter may have left some of the pairs
    let mut remark = match report.pairs.len() {
        all if all == report.comparisons => counted(all, "comparison"),
        shown => format!("{shown} of {}", counted(report.comparisons, "comparison")),
    };
    if pairs.len() < report.pairs.len() {
        remark.push_str(&format!(", first {} shown", pairs.len()));
    }
    let looks = looks_of(report);
    let look_of = |pair: &Comparison| looks.get(pair.value.as_str()).copied().unwrap_or_else(|| look(1));
    // a shape of the chart; grey if several colours have it
    let shown = look_of(&pairs[0]);
    let is_one = pairs.iter().all(|pair| pair.value == pairs[0].value);
    let color = if is_one { shown.color } else { PLAIN.color };
    let key = |fill| LegendKey::Marker { look: Look { color, ..shown }, fill };
    let sheet = Sheet {
        options,
        provenance,
        title: title(&report.by, value, baseline),
        note: matched.map(str::to_owned).unwrap_or_default(),
        remark,
        legend: vec![
            LegendEntry::new(key(Fill::Solid), "differs from 1"),
            LegendEntry::new(key(Fill::Hollow), "no difference, or too few samples"),
        ],
    };
    let sizes = Sizes::new(options.font);
    let count = pairs.len() as f64;
    let under = axis::under(&sizes) + 1.4 * sizes.label;
    let (mut scene, all, sizes) = sheet.lay_out(
        count * 1.55 * sizes.tick + under + 0.5 * sizes.tick,
        (150.0, count * 1.2 * sizes.note + under),
    )?;
    let widest =
        |texts: &[String]| texts.iter().map(|t| font::width(t, sizes.note, false)).fold(0.0, f64::max);
    let names_width = widest(&names).min(0.5 * all.width());
    let area = Area {
        left: all.left + names_width + 0.9 * sizes.tick,
        right: all.right - widest(&ratios) - 0.9 * sizes.tick,
        top: all.top + 0.3 * sizes.tick,
        bottom: all.bottom - under,
    };
    if area.width() < 40.0 {
        return Err(too_narrow(options));
    }
    let values = pairs
        .iter()
        .flat_map(|p| p.speedup_ci95.unwrap_or([p.speedup; 2]).into_iter().chain([p.speedup]));
    let x = ValueAxis::fit(values.chain([1.0])).over(area.left, area.right);
    axis::horizontal(&mut scene, &x, &area, &sizes);
    let named = ["speedup in tokens/s (above 1: faster)", "speedup in tokens/s"];
    layout::name_below(&mut scene, all, area.center().0, &named, &sizes);
    scene.line(vec![(x.place(1.0), area.top), (x.place(1.0), area.bottom)], INK, sizes.line * 0.7);
    layout::frame(&mut scene, area, &sizes);

    let row = area.height() / count;
    for (index, pair) in pairs.iter().enumerate() {
        let look = look_of(pair);
        let y = area.top + row * (index as f64 + 0.5);
        let name = font::fit(&names[index], sizes.note, names_width);
        let at = (area.left - 0.6 * sizes.tick, y);
        scene.text(Text::new(at, name, sizes.note).align(Align::Right));
        let at = (area.right + 0.6 * sizes.tick, y);
        scene.text(Text::new(at, ratios[index].as_str(), sizes.note));
        if let Some([low, high]) = pair.speedup_ci95 {
            scene.interval((x.place(low), y), (x.place(high), y), look.color, sizes.line * 0.8);
        }
        let fill = if pair.matters() { Fill::Solid } else { Fill::Hollow };
        scene.marker((x.place(pair.speedup), y), look, sizes.marker, fill);
    }
    Ok(Figure::new(scene, provenance, options))
}

fn title(by: &str, value: Option<&str>, baseline: Option<&str>) -> String {
    // an architecture's name explains itself; `on` or `8` does not
    let axis = if by == "architecture" { String::new() } else { format!("{by} ") };
    let value_words = value.map(|value| format!(" of {axis}{value}")).unwrap_or_default();
    match baseline {
        Some(baseline) => format!("Speedup{value_words} over {axis}{baseline}"),
        None => format!("Speedup{value_words} over the baseline, by {by}"),
    }
}

fn row_name(
    pair: &Comparison,
    matched: Option<&str>,
    baseline: Option<&str>,
    value: Option<&str>,
) -> String {
    let mut words = Vec::new();
    if value.is_none() {
        words.push(pair.value.clone());
    }
    if baseline.is_none() {
        words.push(format!("/ {}", pair.baseline));
    }
    if matched.is_none() {
        words.push(format!(" {}", pair.matched));
    }
    words.join(" ").trim_start().to_owned()
}

/// Look of each value, with the usual looks for architectures. The first look is reserved for the baseline.
fn looks_of(report: &ComparisonReport) -> BTreeMap<&str, Look> {
    let values: BTreeSet<&str> = report.pairs.iter().map(|pair| pair.value.as_str()).collect();
    let architectures: Vec<Architecture> = match report.by.as_str() {
        "architecture" => values.iter().filter_map(|value| value.parse().ok()).collect(),
        _ => Vec::new(),
    };
    let known = looks(architectures.iter().chain([&Architecture::Standard]));
    let look_of = |index: usize, value: &str| {
        let architecture = value.parse::<Architecture>().ok();
        architecture.and_then(|a| known.get(&a).copied()).unwrap_or_else(|| look(index + 1))
    };
    values.into_iter().enumerate().map(|(index, value)| (value, look_of(index, value))).collect()
}

fn ratio(pair: &Comparison) -> String {
    match pair.speedup_ci95 {
        Some([low, high]) => format!("{:.3}  [{low:.3}, {high:.3}]", pair.speedup),
        None => format!("{:.3}", pair.speedup),
    }
}
