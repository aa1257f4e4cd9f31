//! State of screen 5: points in groups that never mix provenances. Derived values are computed when the
//! points, the axes or the filter change, not while drawing.

mod kept;
pub mod nearest;
pub mod series;
pub mod window;

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::path::PathBuf;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::face::tui::pictures::Pictures;
use crate::face::tui::prelude::*;
use crate::face::tui::screens::pareto::picture::DisplayedPicture;
use crate::face::tui::screens::runs::TraceLookup;
use base::text::natural_order;
use plan::Architecture;
use series::SeriesEntry;
use study::analysis::filter::Filter;
use study::analysis::{
    AreaGained, AreaOptions, AtLimit, Axes, BestWithin, OverlayPoint, ParetoLayout, ParetoPoint,
    RunTable, Series, XAxis, YAxis, out_of_memory, split_group_names,
};
use study::plot::ValueAxis;
use study::validate::{badge, short_badge};
use table::{Backend, MEASURES, MeasureScope, P2p, Provenance, Record, Spec};
use window::Zoom;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Scale {
    #[serde(rename = "linear")]
    Linear,
    #[serde(rename = "logarithmic")]
    Log,
    /// Logarithmic if the values span more than a factor of ten.
    #[default]
    #[serde(rename = "automatic", other)]
    Auto,
}

impl Scale {
    pub const ALL: [Self; 3] = [Self::Auto, Self::Linear, Self::Log];

    /// True if values from `low` to `high` use a logarithmic axis.
    pub fn is_log(self, range: (f64, f64)) -> bool {
        match self {
            Self::Auto => ValueAxis::spans_much(range),
            Self::Linear => false,
            Self::Log => range.0 > 0.0,
        }
    }

    pub fn word(self) -> &'static str {
        match self {
            Self::Auto => "automatic",
            Self::Linear => "linear",
            Self::Log => "logarithmic",
        }
    }
}

#[derive(Clone, Debug, PartialEq)]
pub struct FrontierLine {
    /// Index into [`Pareto::entries`].
    pub entry: usize,
    /// Points from best to worst x.
    pub places: Vec<(f64, f64)>,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PlotExtent {
    pub x: (f64, f64),
    pub y: (f64, f64),
}

impl Default for PlotExtent {
    fn default() -> Self {
        let nothing = (f64::INFINITY, f64::NEG_INFINITY);
        Self { x: nothing, y: nothing }
    }
}

#[derive(Clone, Debug, PartialEq)]
pub struct AreaKey {
    pub options: AreaOptions,
    pub group: String,
    /// [`Pareto::revision`] of the points that form the frontiers.
    revision: u64,
}

#[derive(Debug)]
pub struct ParetoHeadline {
    /// [`Pareto::revision`] of the cells.
    pub revision: u64,
    /// Winner at the same TP, batch and P2P, with the interval of its lead.
    pub text: String,
    /// True if noise or too few rounds leave all comparisons of the shown choices undecided.
    pub is_undecided: bool,
    /// True if rounds of these cells vary widely or the machine was overloaded, as on the result card.
    pub is_noisy: bool,
    /// Tokens/s over `standard` in the same cell, paired by round as in comparisons, by run of the cell; `None` if rounds
    /// measured apart leave too few.
    pub ratios: HashMap<String, Option<f64>>,
}

#[derive(Debug, Default)]
pub struct Pareto {
    pub stored: Option<Arc<Snapshot>>,
    /// All points; `None` until computed.
    pub points: Option<Vec<ParetoPoint>>,
    pub reading: u64,
    pub axes: Axes,
    /// Axes for which the frontiers were marked.
    pub marked: Axes,
    pub scales: (Scale, Scale),
    /// Groups (model, workload, hardware, provenance), measurements first.
    pub groups: Vec<String>,
    /// Display names of the groups, distinguishing settings first.
    pub titles: Vec<String>,
    pub counts: Vec<usize>,
    /// Number of filtered points per group.
    pub left: Vec<usize>,
    pub group: usize,
    /// Indices of the groups by their newest run.
    oldest_first: Vec<usize>,
    /// True if the user chose the group, now or in the previous session; new runs then do not change it.
    pub chosen: bool,
    /// Experiment of the last scope that was not of all runs.
    opened_on: Option<String>,
    /// Run of the newest point at the last update.
    pub newest: Option<String>,
    /// Validation of each simulated group's cells, in words.
    pub trust: HashMap<String, String>,
    /// Largest and smallest error of each simulated group's cells against measurements, in words.
    pub errors: HashMap<String, String>,
    /// Group from the previous session, until found.
    pub wanted_group: Option<String>,
    /// Series hidden in the previous session, by label, until found.
    pub wanted_hidden: BTreeSet<String>,
    /// P2P setting that the user chose, `None` for both, by [`Pareto::own_experiment`].
    p2p_of: BTreeMap<String, Option<P2p>>,
    /// Default P2P setting; `None` shows both.
    default_p2p: Option<P2p>,
    /// Key that shows another P2P setting, for the legend.
    pub p2p_key: String,
    pub entries: Vec<SeriesEntry>,
    pub hidden: BTreeSet<Series>,
    pub filter: FilterBox,
    /// Reason the filter leaves no point.
    pub nothing: Option<String>,
    /// Index of the group's first point, which provides the common settings.
    first: Option<usize>,
    /// Counter of changes to the plotted content.
    pub revision: u64,
    /// Range of everything plotted; low > high if nothing is.
    pub extent: PlotExtent,
    /// Indices of the shown points, by ascending x.
    pub shown: Vec<usize>,
    /// Number of cells of the group that would be shown, but do not fit in memory.
    pub out_of_memory: usize,
    /// Cells of the shown points, for questions in the background.
    pub shown_cells: Arc<[(Spec, Provenance)]>,
    /// Entry index of each shown point, and true if it is on its series' frontier.
    pub looks: Vec<(usize, bool)>,
    pub lines: Vec<FrontierLine>,
    /// Ends of the overall frontier without limits, as indices into `shown`.
    pub ends: [Option<usize>; 2],
    /// Limit that was typed for each experiment, in the base unit of its axis, by the name of the axis.
    limits_of: BTreeMap<String, BTreeMap<String, f64>>,
    /// Typed limit, if it is of the x axis shown.
    pub limit: Option<f64>,
    /// Typed limit of another axis that the points have a value on, too.
    pub other_limit: Option<(XAxis, f64)>,
    /// Best choice of each architecture within the limit, or of all points; the winner first.
    pub best_within: Vec<BestWithin>,
    /// Best point of each series within the limit, or of all points.
    pub limits: Vec<AtLimit>,
    /// Selected point, an index into `shown`.
    pub selected: usize,
    pub trace: TraceLookup,
    /// Selected overlay point, an index into [`Self::others`]; `selected` is then the same cell, if it is shown.
    pub other: Option<usize>,
    pub zoom: Zoom,
    /// Zoom rectangle being dragged: corners in window cells.
    pub drag: Option<((u16, u16), (u16, u16))>,
    /// Table visibility; `None` shows it if there is room.
    pub table: Option<bool>,
    pub overlay: Vec<OverlayPoint>,
    pub overlay_file: Option<PathBuf>,
    pub published: Vec<OverlayPoint>,
    /// Overlay points that the filter or the legend hides, as indices into `published` and then `overlay`.
    hidden_others: HashSet<usize>,
    /// Headline of the shown cells.
    pub headline: Option<ParetoHeadline>,
    /// Areas gained, with the request they answer.
    pub areas: Option<(AreaKey, Vec<AreaGained>)>,
    pub pictures: Pictures,
    pub picture: DisplayedPicture,
}

/// Maximum number of series for which both P2P settings are shown by default: more lines cover each other.
const MOST_SERIES: usize = 5;

/// Default P2P setting for these series; `None` shows both.
fn default_p2p(entries: &[SeriesEntry]) -> Option<P2p> {
    let has = |p2p: P2p| entries.iter().any(|entry| entry.series.p2p == p2p);
    (entries.len() > MOST_SERIES && has(P2p::On) && has(P2p::Off)).then_some(P2p::On)
}

/// True if a point has a value on an axis that is within a limit of it.
pub fn is_within(point: &ParetoPoint, (axis, limit): (XAxis, f64)) -> bool {
    axis.value(point).is_some_and(|value| axis.keeps(value, limit))
}

/// Validation of each group's simulated cells, in words; asks for the error of every cell, so it is computed with the points.
pub fn trust(points: &[ParetoPoint]) -> HashMap<String, String> {
    by_group(points, |specs| badge(specs.iter().copied()))
}

/// Errors of each group's simulated cells against measurements, fitted and left out of the fit, in words.
pub fn simulator_errors(points: &[ParetoPoint]) -> HashMap<String, String> {
    by_group(points, |specs| short_badge(&specs, &[]))
}

/// Words on the simulated cells of each group, for the groups that have any.
fn by_group(
    points: &[ParetoPoint],
    words: impl Fn(Vec<&Spec>) -> Option<String>,
) -> HashMap<String, String> {
    let mut groups: HashMap<&str, Vec<&Spec>> = HashMap::new();
    for point in points.iter().filter(|point| point.spec.backend.is_simulated()) {
        groups.entry(&point.group).or_default().push(&point.spec);
    }
    groups.into_iter().filter_map(|(group, specs)| Some((group.to_owned(), words(specs)?))).collect()
}

impl Pareto {
    /// Sets the points of these runs, with frontiers marked on these axes.
    pub fn set(&mut self, axes: Axes, points: Vec<ParetoPoint>, stored: Arc<Snapshot>) {
        let selected = self.current().map(|point| point.run.clone());
        let wanted = self.wanted_group.take().filter(|group| points.iter().any(|p| p.group == *group));
        let is_wanted = wanted.is_some();
        let group = wanted.or_else(|| self.groups.get(self.group).cloned());
        for point in &points {
            let series = point.series();
            if self.wanted_hidden.remove(&series.label()) {
                self.hidden.insert(series);
            }
        }
        let newest = self.list_groups(&points, &stored);
        // new runs may open another group, unless the user chose this one
        let is_kept = self.chosen || newest == self.newest;
        self.chosen |= is_wanted && is_kept;
        (self.newest, self.marked, self.stored) = (newest, axes, Some(stored));
        self.points = Some(points);
        self.shown.clear();
        self.count_left();
        let place = |name: &String| self.groups.iter().position(|known| known == name);
        // with quality on an axis, texts divide a group
        let of_selected = || place(&self.point(selected.as_ref()?)?.group);
        let kept = group.as_ref().filter(|_| is_kept).and_then(|name| place(name).or_else(of_selected));
        self.group = kept.or_else(|| self.default_group()).unwrap_or_default();
        if group.is_some() && group.as_ref() != self.groups.get(self.group) {
            self.zoom.forget();
        }
        self.arrange();
        self.follow_filter();
        selected.iter().for_each(|run| _ = self.select(run));
    }

    /// Lists the groups of these points, measurements first; returns the newest run.
    fn list_groups(&mut self, points: &[ParetoPoint], stored: &Snapshot) -> Option<String> {
        let records = stored.records.iter();
        let created: HashMap<&str, &str> =
            records.map(|record| (record.run.as_str(), record.created.as_str())).collect();
        // among simultaneous runs, the one closest to a measurement is the newest
        let age =
            |point: &ParetoPoint| (created.get(point.run.as_str()).copied(), Reverse(point.provenance));
        let mut groups: BTreeMap<_, Vec<&ParetoPoint>> = BTreeMap::new();
        for point in points {
            groups.entry((point.provenance, point.group.as_str())).or_default().push(point);
        }
        let mut groups: Vec<_> = groups.into_iter().collect();
        groups
            .sort_by(|((a, one), _), ((b, other), _)| a.cmp(b).then_with(|| natural_order(one, other)));
        self.oldest_first = (0..groups.len()).collect();
        self.oldest_first.sort_by_key(|at| groups[*at].1.iter().map(|point| age(point)).max());
        self.groups = groups.iter().map(|((_, name), _)| (*name).to_owned()).collect();
        self.counts = groups.iter().map(|(_, points)| points.len()).collect();
        let names: Vec<&str> = self.groups.iter().map(String::as_str).collect();
        let (apart, common) = split_group_names(&names);
        let titles = apart.iter().map(|apart| {
            // groups may have nothing in common
            let parts = [apart.as_str(), common.as_str()].into_iter().filter(|part| !part.is_empty());
            parts.collect::<Vec<_>>().join(", ")
        });
        self.titles = titles.collect();
        points.iter().max_by_key(|point| age(point)).map(|point| point.run.clone())
    }

    /// Group with the most filtered points among those that compare series, the newest of several; `None` if the filter leaves
    /// no point.
    fn default_group(&self) -> Option<usize> {
        let compares = |at: usize| {
            let of_group = self.points.iter().flatten().filter(|point| point.group == self.groups[at]);
            let mut series = of_group.map(ParetoPoint::series);
            let first = series.next();
            series.any(|other| Some(other) != first)
        };
        let with_points = self.oldest_first.iter().copied().filter(|at| self.left[*at] > 0);
        with_points.max_by_key(|at| (compares(*at), self.left[*at]))
    }

    /// Filters the points and updates everything derived from them, keeping the selected run if possible.
    pub fn arrange(&mut self) {
        let run = self.current().map(|p| p.run.clone());
        let chosen = self.count_left();
        let points = self.points.as_deref().unwrap_or_default();
        let group = self.groups.get(self.group);
        let of_group = |p: &&ParetoPoint| group.is_some_and(|g| *g == p.group);
        self.first = points.iter().position(|point| of_group(&point));
        let left = |p: &&ParetoPoint| chosen.as_ref().is_none_or(|runs| runs.contains(p.run.as_str()));
        self.entries = series::entries(points.iter().filter(of_group), &self.hidden);
        // marks belong to the group, the legend to its filtered points
        let series: BTreeSet<Series> =
            points.iter().filter(of_group).filter(left).map(ParetoPoint::series).collect();
        self.entries.retain(|entry| series.contains(&entry.series));
        self.default_p2p = default_p2p(&self.entries);
        let p2p = self.p2p();
        let shown = |(i, p): (usize, &ParetoPoint)| {
            let x = self.axes.coordinates(p)?.0;
            let visible = of_group(&p)
                && p2p.is_none_or(|p2p| p.spec.p2p == p2p)
                && !self.hidden.contains(&p.series())
                && left(&p);
            visible.then_some((i, x))
        };
        let mut order: Vec<(usize, f64)> = points.iter().enumerate().filter_map(shown).collect();
        order.sort_by(|a, b| a.1.total_cmp(&b.1));
        let would_be_shown = |run: &&Record| {
            let is_of = |series: &Series| {
                series.architecture == run.spec.architecture && series.p2p == run.spec.p2p
            };
            p2p.is_none_or(|p2p| p2p == run.spec.p2p)
                && !self.hidden.iter().any(is_of)
                && chosen.as_ref().is_none_or(|runs| runs.contains(&run.run))
        };
        let stored = self.stored.iter().flat_map(|stored| stored.records.iter());
        self.out_of_memory =
            group.map_or(0, |group| out_of_memory(stored.filter(would_be_shown), points, group));
        self.shown = order.into_iter().map(|(i, _)| i).collect();
        let filter = Filter::parse(self.filter.value());
        let stored = self.stored.as_ref().filter(|_| self.shown.is_empty() && !filter.is_empty());
        self.nothing = stored.and_then(|stored| filter.why_nothing(&stored.table));
        self.draw_up();
        let points = self.points.as_deref().unwrap_or_default();
        // do not select a limit by default
        let choice = self.shown.iter().position(|i| !points[*i].is_limit()).unwrap_or(0);
        self.selected =
            run.and_then(|r| self.shown.iter().position(|i| points[*i].run == r)).unwrap_or(choice);
    }

    /// Switches to the default group when the scope becomes another experiment, unless the user chose a group; and from a
    /// group that the scope and the filter leave without points.
    pub fn follow_filter(&mut self) {
        let experiment = self.filter.experiment().map(str::to_owned);
        let is_opened = experiment.is_some() && experiment != self.opened_on;
        if is_opened {
            self.opened_on = experiment;
        }
        let is_empty = self.shown.is_empty() && self.filter.narrows();
        if (is_opened && !self.chosen || is_empty)
            && let Some(group) = self.default_group()
        {
            // the filter chose this group, not the user
            let held = self.chosen;
            self.choose_group(group);
            self.chosen = held;
        }
    }

    /// Counts the filtered points of each group; returns the runs that match the filter, `None` without a filter.
    fn count_left(&mut self) -> Option<HashSet<String>> {
        let chosen = self.chosen();
        self.left = match &chosen {
            None => self.counts.clone(),
            Some(runs) => {
                let mut by_group: HashMap<&str, usize> = HashMap::new();
                let points = self.points.iter().flatten();
                for point in points.filter(|point| runs.contains(point.run.as_str())) {
                    *by_group.entry(&point.group).or_default() += 1;
                }
                self.groups.iter().map(|g| by_group.get(g.as_str()).copied().unwrap_or(0)).collect()
            }
        };
        chosen
    }

    /// Runs that the scope and the filter leave; `None` if they leave all.
    fn chosen(&mut self) -> Option<HashSet<String>> {
        let stored = self.stored.clone()?;
        let (_, rows) = self.filter.rows(&stored);
        if !self.filter.narrows() {
            return None;
        }
        let run = |row: u32| Some(stored.records.get(row as usize)?.run.clone());
        Some(rows.into_iter().filter_map(run).collect())
    }

    fn draw_up(&mut self) {
        let points = self.points.as_deref().unwrap_or_default();
        let of = |point: &ParetoPoint| {
            let series = point.series();
            self.entries.iter().position(|entry| entry.series == series).unwrap_or(0)
        };
        let shown: Vec<&ParetoPoint> = self.shown.iter().map(|i| &points[*i]).collect();
        let layout = ParetoLayout::new(&shown, self.axes);
        self.looks = shown.iter().map(|point| (of(point), false)).collect();
        self.lines =
            (0..self.entries.len()).map(|entry| FrontierLine { entry, places: Vec::new() }).collect();
        for frontier in layout.frontiers.values() {
            for &index in frontier {
                let look = &mut self.looks[index];
                look.1 = true;
                self.lines[look.0].places.extend(self.axes.coordinates(shown[index]));
            }
        }
        self.ends = layout.ends;
        self.find_within();
        self.measure();
    }

    fn measure(&mut self) {
        self.hidden_others = self.hidden_others();
        let places = self
            .visible()
            .filter_map(|p| self.axes.coordinates(p))
            .chain(self.others().map(|(_, place)| place));
        self.extent = places.fold(PlotExtent::default(), |PlotExtent { x, y }, place| PlotExtent {
            x: (x.0.min(place.0), x.1.max(place.0)),
            y: (y.0.min(place.1), y.1.max(place.1)),
        });
        self.shown_cells = self.visible().map(|point| (point.spec.clone(), point.provenance)).collect();
        self.revision += 1;
        self.other = None;
    }

    /// Overlay points that the filter or the legend hides, as indices into `published` and then `overlay`.
    fn hidden_others(&self) -> HashSet<usize> {
        let all: Vec<&OverlayPoint> = self.published.iter().chain(&self.overlay).collect();
        let first = self.points.as_deref().zip(self.first).and_then(|(points, at)| points.get(at));
        let Some((stored, first)) = self.stored.as_ref().zip(first).filter(|_| !all.is_empty()) else {
            return HashSet::new();
        };
        let is_hidden = |other: &OverlayPoint| {
            let own = other.architecture.parse::<Architecture>().ok();
            let is = |series: &Series| {
                Some(&series.architecture) == own.as_ref() && Some(series.p2p) == other.p2p
            };
            self.hidden.iter().any(is)
        };
        let mut hidden: HashSet<usize> = (0..all.len()).filter(|at| is_hidden(all[*at])).collect();
        let filter = Filter::parse(self.filter.value());
        let like = stored.records.iter().find(|record| record.run == first.run);
        if let Some(like) = like.filter(|_| !filter.is_empty()) {
            let records: Vec<Record> = all.iter().map(|other| other.record(like)).collect();
            let table = RunTable::new(&records, &Default::default());
            let kept: HashSet<u32> = filter.bind(&table).0.rows(&table).into_iter().collect();
            hidden.extend((0..all.len()).filter(|at| !kept.contains(&(*at as u32))));
        }
        hidden
    }

    pub fn publish(&mut self, points: Vec<OverlayPoint>) {
        self.published = points;
        self.measure();
    }

    /// Sets the overlay points of a user's file; empty removes them.
    pub fn lay_over(&mut self, file: Option<PathBuf>, points: Vec<OverlayPoint>) {
        (self.overlay_file, self.overlay) = (file, points);
        self.measure();
    }

    /// Title of the y axis. CPU runs have no GPUs, but ranks.
    pub fn y_title(&self) -> String {
        let title = self.axes.y.title();
        let mut shown = self.visible().peekable();
        let has_points = shown.peek().is_some();
        let is_of_cpus = has_points && shown.all(|point| point.spec.backend == Backend::Cpu);
        match self.axes.y == YAxis::PerGpu && is_of_cpus {
            true => title.replace("GPU", "rank"),
            false => title,
        }
    }

    fn shown_headline(&self) -> Option<&ParetoHeadline> {
        self.headline.as_ref().filter(|headline| headline.revision == self.revision)
    }

    /// Winner at the same TP, batch and P2P among the shown cells; `…` until computed.
    pub fn headline(&self) -> &str {
        self.shown_headline().map_or("…", |headline| headline.text.as_str())
    }

    /// Tokens/s of a measured cell over `standard` in the same cell; see [`ParetoHeadline::ratios`].
    pub fn paired_ratio(&self, point: &ParetoPoint) -> Option<Option<f64>> {
        let is_measured = point.provenance != Provenance::Simulated;
        let is_throughput = matches!(self.axes.y, YAxis::PerGpu | YAxis::Total);
        let headline = self.shown_headline().filter(|_| is_measured && is_throughput)?;
        headline.ratios.get(&point.run).copied()
    }

    /// True if the comparison of the shown cells decides nothing.
    pub fn is_undecided(&self) -> bool {
        self.shown_headline().is_some_and(|headline| headline.is_undecided)
    }

    /// True if the shown cells are known to be noisy.
    pub fn is_noisy(&self) -> bool {
        self.shown_headline().is_some_and(|headline| headline.is_noisy)
    }

    /// Shown points, by ascending x.
    pub fn visible(&self) -> impl Iterator<Item = &ParetoPoint> {
        let points = self.points.as_deref().unwrap_or_default();
        self.shown.iter().filter_map(|i| points.get(*i))
    }

    pub fn nth(&self, number: usize) -> Option<&ParetoPoint> {
        self.points.as_ref()?.get(*self.shown.get(number)?)
    }

    pub fn current(&self) -> Option<&ParetoPoint> {
        self.nth(self.selected)
    }

    pub fn point(&self, run: &str) -> Option<&ParetoPoint> {
        self.points.as_ref()?.iter().find(|p| p.run == run)
    }

    /// Overlay points that match the current group, P2P setting, filter and legend, and have values on both axes.
    pub fn others(&self) -> impl Iterator<Item = (&OverlayPoint, (f64, f64))> {
        let spec = self.points.as_deref().zip(self.first).and_then(|(all, at)| Some(&all.get(at)?.spec));
        let (p2p, all) = (self.p2p(), self.published.iter().chain(&self.overlay).enumerate());
        all.filter(|(at, _)| !self.hidden_others.contains(at)).filter_map(move |(_, other)| {
            let goes = spec.is_some_and(|spec| other.goes_with(spec))
                && (p2p.is_none() || other.p2p.is_none() || other.p2p == p2p);
            goes.then_some((other, other.place(self.axes)?))
        })
    }

    /// Selected overlay point with its place.
    pub fn other(&self) -> Option<(&OverlayPoint, (f64, f64))> {
        self.others().nth(self.other?)
    }

    /// Place of the selection.
    pub fn place(&self) -> Option<(f64, f64)> {
        let of_point = || self.current().and_then(|point| self.axes.coordinates(point));
        self.other().map(|(_, place)| place).or_else(of_point)
    }

    /// Places of all points and then of all overlay points, and the index of the selection among them.
    pub fn places(&self) -> (Vec<Option<(f64, f64)>>, usize) {
        let points = self.visible().map(|point| self.axes.coordinates(point));
        let places: Vec<_> = points.chain(self.others().map(|(_, place)| Some(place))).collect();
        (places, self.other.map_or(self.selected, |at| self.shown.len() + at))
    }

    /// Selects one of [`Self::places`]; with an overlay point also the run of the same cell.
    pub fn select_place(&mut self, at: usize) {
        self.other = at.checked_sub(self.shown.len());
        let Some(other) = self.other else {
            self.selected = at;
            return;
        };
        let of = |(other, _): (&OverlayPoint, _)| self.visible().position(|p| other.is_of(&p.spec));
        let at = self.others().nth(other).and_then(of);
        self.selected = at.unwrap_or(self.selected);
    }

    /// True per axis (x, y) if logarithmic. Based on everything plotted, so that zooming does not change
    /// the scale.
    pub fn logarithmic(&self) -> (bool, bool) {
        (self.scales.0.is_log(self.extent.x), self.scales.1.is_log(self.extent.y))
    }

    /// Key of the P2P settings and the limits: the name of the experiment in scope, with all runs of the last one; empty
    /// before the first.
    fn own_experiment(&self) -> &str {
        self.filter.experiment().or(self.opened_on.as_deref()).unwrap_or_default()
    }

    /// P2P setting shown; `None` shows both.
    pub fn p2p(&self) -> Option<P2p> {
        self.p2p_of.get(self.own_experiment()).copied().unwrap_or(self.default_p2p)
    }

    /// Typed limit in the base unit of its axis, which may be another one than the axis shown.
    pub fn typed_limit(&self) -> Option<(XAxis, f64)> {
        let limits = self.limits_of.get(self.own_experiment())?;
        XAxis::ALL.into_iter().find_map(|axis| Some((axis, *limits.get(axis.as_str())?)))
    }

    /// Sets a limit of the x axis shown in place of the typed one, or removes that.
    pub fn type_limit(&mut self, limit: Option<f64>) {
        let experiment = self.own_experiment().to_owned();
        let axis = self.axes.x.as_str().to_owned();
        match limit {
            Some(limit) => _ = self.limits_of.insert(experiment, BTreeMap::from([(axis, limit)])),
            None => _ = self.limits_of.remove(&experiment),
        }
    }

    /// Limit that holds, with its axis.
    pub fn bound(&self) -> Option<(XAxis, f64)> {
        self.limit.map(|limit| (self.axes.x, limit)).or(self.other_limit)
    }

    /// True if a point is within the limit.
    pub fn keeps_limit(&self, point: &ParetoPoint) -> bool {
        self.bound().is_none_or(|bound| is_within(point, bound))
    }

    pub fn cycle_x(&mut self) {
        self.show_x(next_of(&XAxis::ALL, self.axes.x, false));
    }

    pub fn show_x(&mut self, x: XAxis) {
        self.axes.x = x;
        self.zoom.forget();
        self.arrange();
    }

    pub fn cycle_y(&mut self) {
        let evaluated = self.stored.as_ref().is_some_and(|stored| stored.has_quality());
        let quality =
            MEASURES.iter().filter(|measure| evaluated && measure.scope == MeasureScope::Quality);
        let all: Vec<YAxis> = YAxis::ALL.into_iter().chain(quality.map(YAxis::Of)).collect();
        self.axes.y = next_of(&all, self.axes.y, false);
        self.zoom.forget();
        self.arrange();
    }

    /// Shows another P2P setting, and selects the same cell there; if the selected point is the best within a limit, or the
    /// cell is beyond it, the best one. False if all points have one P2P setting.
    pub fn cycle_p2p(&mut self) -> bool {
        let has = |p2p: P2p| self.entries.iter().any(|entry| entry.series.p2p == p2p);
        let has_both = has(P2p::On) && has(P2p::Off);
        if !has_both && self.p2p().is_none() {
            return false;
        }
        let own = self.current().cloned();
        let is_best = |run: &str| self.best_within.first().is_some_and(|best| best.run == run);
        let was_best = self.bound().is_some() && own.as_ref().is_some_and(|point| is_best(&point.run));
        let all = [None, Some(P2p::On), Some(P2p::Off)];
        let next = if has_both { next_of(&all, self.p2p(), false) } else { None };
        self.show_p2p(next);
        if let Some((own, p2p)) = own.zip(next) {
            let series = Series { p2p, ..own.series() };
            let is_same = |point: &ParetoPoint| point.series() == series && point.label() == own.label();
            let found = self.visible().position(is_same);
            self.selected = found.unwrap_or(self.selected);
        }
        if was_best || self.current().is_some_and(|point| !self.keeps_limit(point)) {
            self.select_within();
        }
        true
    }

    /// Shows one P2P setting, or both.
    pub fn show_p2p(&mut self, p2p: Option<P2p>) {
        let experiment = self.own_experiment().to_owned();
        match (p2p, self.default_p2p) {
            (None, None) => _ = self.p2p_of.remove(&experiment),
            _ => _ = self.p2p_of.insert(experiment, p2p),
        }
        self.arrange();
    }

    pub fn choose_group(&mut self, group: usize) {
        if group != self.group && group < self.groups.len() {
            self.group = group;
            self.zoom.forget();
            self.arrange();
        }
        self.chosen = true;
    }

    /// Number of points of the group in scope.
    pub fn in_scope(&self) -> usize {
        let group = self.groups.get(self.group);
        let of_group = self.points.iter().flatten().filter(|point| Some(&point.group) == group);
        of_group.filter(|point| self.filter.holds(&point.run)).count()
    }

    /// True if the scope hides all points of a group.
    pub fn is_out_of_scope(&self, group: usize) -> bool {
        let Some(name) = self.groups.get(group) else { return false };
        let mut points = self.points.iter().flatten().filter(|point| point.group == *name);
        !points.any(|point| self.filter.holds(&point.run))
    }

    pub fn toggle(&mut self, entry: usize) {
        if let Some(entry) = self.entries.get(entry) {
            if !self.hidden.remove(&entry.series) {
                self.hidden.insert(entry.series.clone());
            }
            self.arrange();
        }
    }

    /// Moves the selection along x, which reaches every point.
    pub fn move_by(&mut self, by: isize) {
        self.other = None;
        self.selected = self.selected.saturating_add_signed(by).min(self.shown.len().saturating_sub(1));
    }

    /// Selects a run; returns false if it is not shown.
    pub fn select(&mut self, run: &str) -> bool {
        let at = self.visible().position(|p| p.run == run);
        self.other = None;
        self.selected = at.unwrap_or(self.selected);
        at.is_some()
    }

    pub fn selected_entry(&self) -> Option<usize> {
        self.looks.get(self.selected).map(|look| look.0)
    }

    /// Display unit of x and its divisor. Based on everything plotted, so that zooming does not change
    /// the unit.
    pub fn unit(&self) -> (&'static str, f64) {
        self.axes.x.unit_for(self.extent.x.1)
    }

    /// Identity of the areas for the current view; `None` if its axes have no area.
    pub fn area_key(&self) -> Option<AreaKey> {
        if !self.axes.has_area() {
            return None;
        }
        let group = self.groups.get(self.group)?.clone();
        let (log_x, log_y) = self.logarithmic();
        let options = AreaOptions { axes: self.axes, log_x, log_y, reference: None };
        Some(AreaKey { options, group, revision: self.revision })
    }

    /// The same area at the other P2P setting, if it is shown.
    pub fn other_area(&self, area: &AreaGained) -> Option<&AreaGained> {
        let (_, areas) = self.areas.as_ref().filter(|_| self.p2p().is_none())?;
        areas.iter().find(|other| {
            other.architecture == area.architecture
                && other.setting == area.setting
                && other.p2p != area.p2p
        })
    }

    /// Area gained by the selected point's architecture, or by ladder if that is standard.
    pub fn area(&self) -> Option<&AreaGained> {
        let (key, areas) = self.areas.as_ref()?;
        let (current, shown) = (self.current()?, self.area_key()?);
        if *key != shown {
            return None;
        }
        let series = current.series();
        // areas of one setting name none
        let is_own = |a: &&AreaGained| a.setting.is_empty() || a.setting == series.setting;
        let same: Vec<&AreaGained> =
            areas.iter().filter(|a| a.p2p == series.p2p).filter(is_own).collect();
        let of = |wanted: &dyn Fn(&Architecture) -> bool| {
            same.iter().find(|a| wanted(&a.architecture)).copied()
        };
        of(&|a| *a == series.architecture)
            .or_else(|| of(&|a| matches!(a, Architecture::Ladder(_))))
            .or_else(|| same.first().copied())
    }
}
