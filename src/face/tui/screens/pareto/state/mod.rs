//! State of screen 5: the points shown, in groups that never mix provenances; what follows from them is
//! computed when they, the axes or the filter change, not when drawn.

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
use crate::face::tui::screens::pareto::picture::Shown;
use base::natural::natural_order;
use plan::Architecture;
use series::Entry;
use study::analysis::{
    self, AreaGained, AreaOptions, AtLimit, Axes, OverlayPoint, ParetoPoint, Series, XAxis, YAxis,
    told_apart,
};
use table::{MEASURES, P2p, Scope};
use window::Zoom;

/// Limits that the table is computed for; a window shows those that fit.
const LIMITS: usize = 7;

/// How an axis is divided.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Scale {
    #[serde(rename = "linear")]
    Linear,
    #[serde(rename = "logarithmic")]
    Log,
    /// Logarithmic where the values span more than a factor of ten.
    #[default]
    #[serde(rename = "automatic", other)]
    Auto,
}

impl Scale {
    /// All scales, in the order in which a key goes through them.
    pub const ALL: [Self; 3] = [Self::Auto, Self::Linear, Self::Log];

    /// Whether it is logarithmic for values that span from `low` to `high`.
    pub fn is_log(self, (low, high): (f64, f64)) -> bool {
        match self {
            Self::Auto => low > 0.0 && high / low > 10.0,
            Self::Linear => false,
            Self::Log => low > 0.0,
        }
    }

    /// The word by which the screen calls it.
    pub fn word(self) -> &'static str {
        match self {
            Self::Auto => "automatic",
            Self::Linear => "linear",
            Self::Log => "logarithmic",
        }
    }
}

/// The frontier of a series, ready to be drawn.
#[derive(Clone, Debug, PartialEq)]
pub struct Line {
    /// Which series it belongs to: an index into [`Pareto::entries`].
    pub entry: usize,
    /// From the best x to the worst.
    pub places: Vec<(f64, f64)>,
}

/// Least and greatest x, least and greatest y.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Extent {
    /// The lowest and the highest x shown.
    pub x: (f64, f64),
    /// The lowest and the highest y shown.
    pub y: (f64, f64),
}

impl Default for Extent {
    fn default() -> Self {
        let nothing = (f64::INFINITY, f64::NEG_INFINITY);
        Self { x: nothing, y: nothing }
    }
}

/// What areas were asked for.
#[derive(Clone, Debug, PartialEq)]
pub struct AreaKey {
    /// On which axes and scales areas are computed.
    pub options: AreaOptions,
    /// The group of comparable runs that it is of.
    pub group: String,
}

/// State of the Pareto screen.
#[derive(Debug, Default)]
pub struct Pareto {
    /// The runs that the points are of.
    pub stored: Option<Arc<Snapshot>>,
    /// All points; `None` until they are computed.
    pub points: Option<Vec<ParetoPoint>>,
    /// Counts the readings of the runs directory.
    pub reading: u64,
    /// What is plotted on either axis.
    pub axes: Axes,
    /// On which axes the points' frontiers were marked.
    pub marked: Axes,
    /// How the axes are divided.
    pub scales: (Scale, Scale),
    /// The groups (model, workload, hardware, provenance), measurements first.
    pub groups: Vec<String>,
    /// The same groups for people, what sets them apart first.
    pub titles: Vec<String>,
    /// How many points each of them has.
    pub counts: Vec<usize>,
    /// How many of these the filter leaves.
    pub left: Vec<usize>,
    /// Which group is shown.
    pub group: usize,
    /// The group was chosen from the list: it stays, whatever is stored.
    pub chosen: bool,
    /// The run of the newest point, when points were last taken.
    pub newest: Option<String>,
    /// The group that was shown when the workbench was left, until it is found.
    pub wanted_group: Option<String>,
    /// Series that were hidden then, by label, until they are found.
    pub wanted_hidden: BTreeSet<String>,
    /// Which P2P is shown; `None`: both.
    pub p2p: Option<P2p>,
    /// The series of the group.
    pub entries: Vec<Entry>,
    /// Series that the user has taken off the plot.
    pub hidden: BTreeSet<Series>,
    /// The filter as it is typed.
    pub filter: FilterBox,
    /// The first point of the group, an index into the points: what the group has in common.
    first: Option<usize>,
    /// Counts the changes of what is plotted.
    pub revision: u64,
    /// Least and greatest x, and y, of everything that is plotted; least above greatest: nothing is.
    pub extent: Extent,
    /// Indices of the points shown, from the least x.
    pub shown: Vec<usize>,
    /// For each of them, which entry it belongs to, and whether it is on its series' frontier.
    pub looks: Vec<(usize, bool)>,
    /// Frontiers of the points shown.
    pub lines: Vec<Line>,
    /// The ends of the frontier of all points shown, limits left out: numbers of points.
    pub ends: [Option<usize>; 2],
    /// The frontiers at fixed x.
    pub limits: Vec<AtLimit>,
    /// The selected one, an index into `shown`.
    pub selected: usize,
    /// The part of the plot shown.
    pub zoom: Zoom,
    /// A rectangle being dragged: corners in cells of the window.
    pub drag: Option<((u16, u16), (u16, u16))>,
    /// Whether the table at limits is shown; `None`: where there is room.
    pub table: Option<bool>,
    /// Points from elsewhere: of a user's file.
    pub overlay: Vec<OverlayPoint>,
    /// The file they come from.
    pub overlay_file: Option<PathBuf>,
    /// The published points, while they are shown.
    pub published: Vec<OverlayPoint>,
    /// Areas gained, for what was asked.
    pub areas: Option<(AreaKey, Vec<AreaGained>)>,
    /// What the terminal can show.
    pub pictures: Pictures,
    /// The plot as a picture.
    pub picture: Shown,
}

/// The point that was run last; of several that were begun at once the one nearest to a measurement.
fn newest<'a>(points: &'a [ParetoPoint], stored: &Snapshot) -> Option<&'a ParetoPoint> {
    let records = stored.records.iter();
    let created: HashMap<&str, &str> =
        records.map(|record| (record.run.as_str(), record.created.as_str())).collect();
    points.iter().max_by_key(|p| (created.get(p.run.as_str()), Reverse(p.provenance)))
}

impl Pareto {
    /// Takes points of these runs with the frontiers marked on these axes.
    pub fn set(&mut self, axes: Axes, points: Vec<ParetoPoint>, stored: Arc<Snapshot>) {
        let wanted = self.wanted_group.take().filter(|group| points.iter().any(|p| p.group == *group));
        let group = wanted.or_else(|| self.groups.get(self.group).cloned());
        for point in &points {
            let series = point.series();
            if self.wanted_hidden.remove(&series.label()) {
                self.hidden.insert(series);
            }
        }
        // measurements first
        let mut groups: BTreeMap<_, usize> = BTreeMap::new();
        for point in &points {
            *groups.entry((point.provenance, point.group.as_str())).or_default() += 1;
        }
        let mut groups: Vec<_> = groups.into_iter().collect();
        groups
            .sort_by(|((a, one), _), ((b, other), _)| a.cmp(b).then_with(|| natural_order(one, other)));
        let (groups, counts): (Vec<String>, Vec<usize>) =
            groups.into_iter().map(|((_, name), count)| (name.to_owned(), count)).unzip();
        let (apart, common) = told_apart(&groups.iter().map(String::as_str).collect::<Vec<_>>());
        let titles = apart.iter().map(|apart| match apart.is_empty() {
            true => common.clone(),
            false => format!("{apart}, {common}"),
        });
        self.titles = titles.collect();
        let newest = newest(&points, &stored);
        let latest = newest.map(|point| point.run.clone());
        // what came since the last look is looked at first, unless the user holds on to a group
        let kept = group.as_ref().filter(|_| self.chosen || latest == self.newest);
        let now = kept.or(newest.map(|point| &point.group)).cloned();
        if group.is_some() && group != now {
            self.zoom.forget();
        }
        self.newest = latest;
        (self.marked, self.stored) = (axes, Some(stored));
        self.group = now.and_then(|g| groups.iter().position(|x| *x == g)).unwrap_or(0);
        let run = self.current().map(|p| p.run.clone());
        (self.groups, self.counts) = (groups, counts);
        self.points = Some(points);
        self.arrange();
        self.follow_filter();
        run.iter().for_each(|run| _ = self.select(run));
    }

    /// Chooses the points shown anew, and what follows from them; the selection stays on its
    /// run where it can.
    pub fn arrange(&mut self) {
        let run = self.current().map(|p| p.run.clone());
        let chosen = self.chosen();
        let points = self.points.as_deref().unwrap_or_default();
        let group = self.groups.get(self.group);
        let of_group = |p: &&ParetoPoint| group.is_some_and(|g| *g == p.group);
        self.first = points.iter().position(|point| of_group(&point));
        let left = |p: &&ParetoPoint| chosen.as_ref().is_none_or(|runs| runs.contains(p.run.as_str()));
        self.left = match &chosen {
            None => self.counts.clone(),
            Some(_) => {
                let mut by_group: HashMap<&str, usize> = HashMap::new();
                points.iter().filter(left).for_each(|p| *by_group.entry(&p.group).or_default() += 1);
                self.groups.iter().map(|g| by_group.get(g.as_str()).copied().unwrap_or(0)).collect()
            }
        };
        self.entries = series::entries(points.iter().filter(of_group), &self.hidden);
        // marks are of the group, the legend is of what the filter leaves of it
        let series: BTreeSet<Series> =
            points.iter().filter(of_group).filter(left).map(ParetoPoint::series).collect();
        self.entries.retain(|entry| series.contains(&entry.series));
        let shown = |(i, p): (usize, &ParetoPoint)| {
            let x = self.axes.of(p)?.0;
            let visible = of_group(&p)
                && self.p2p.is_none_or(|p2p| p.spec.p2p == p2p)
                && !self.hidden.contains(&p.series())
                && left(&p);
            visible.then_some((i, x))
        };
        let mut order: Vec<(usize, f64)> = points.iter().enumerate().filter_map(shown).collect();
        order.sort_by(|a, b| a.1.total_cmp(&b.1));
        self.shown = order.into_iter().map(|(i, _)| i).collect();
        self.draw_up();
        let points = self.points.as_deref().unwrap_or_default();
        // a limit is nobody's choice
        let choice = self.shown.iter().position(|i| !points[*i].is_limit()).unwrap_or(0);
        self.selected =
            run.and_then(|r| self.shown.iter().position(|i| points[*i].run == r)).unwrap_or(choice);
    }

    /// Shows the group that most of what the filter leaves is of, where it leaves nothing of the group shown.
    pub fn follow_filter(&mut self) {
        if !self.shown.is_empty() || self.filter.value().trim().is_empty() {
            return;
        }
        let most = self.left.iter().enumerate().rev().max_by_key(|(_, count)| **count);
        if let Some((group, _)) = most.filter(|(_, count)| **count > 0) {
            // the filter chose, not the user: what is newest shows again once nothing is filtered
            let held = self.chosen;
            self.choose_group(group);
            self.chosen = held;
        }
    }

    /// The runs that meet the filter; `None` where there is none.
    fn chosen(&mut self) -> Option<HashSet<String>> {
        let stored = self.stored.clone()?;
        let bound = self.filter.bind(&stored.table);
        if self.filter.value().trim().is_empty() {
            return None;
        }
        let run = |row: u32| Some(stored.records.get(row as usize)?.run.clone());
        Some(bound.rows(&stored.table).into_iter().filter_map(run).collect())
    }

    /// Frontiers and the table of the points shown.
    fn draw_up(&mut self) {
        let points = self.points.as_deref().unwrap_or_default();
        let of = |at: &usize| {
            let series = points[*at].series();
            self.entries.iter().position(|entry| entry.series == series).unwrap_or(0)
        };
        self.looks = self.shown.iter().map(|i| (of(i), false)).collect();
        self.lines.clear();
        for entry in 0..self.entries.len() {
            let mine = self.shown.iter().zip(&self.looks).filter(|(_, look)| look.0 == entry);
            let best = analysis::frontier_among(mine.map(|(i, _)| &points[*i]), self.axes);
            let places: Vec<(f64, f64)> = best.iter().filter_map(|p| self.axes.of(p)).collect();
            let runs: BTreeSet<&str> = best.iter().map(|p| p.run.as_str()).collect();
            for (i, look) in self.shown.iter().zip(&mut self.looks) {
                look.1 |= look.0 == entry && runs.contains(points[*i].run.as_str());
            }
            self.lines.push(Line { entry, places });
        }
        let shown = || self.shown.iter().map(|i| &points[*i]);
        let best = analysis::frontier_among(shown().filter(|p| !p.is_limit()), self.axes);
        self.ends = [best.first(), best.last()].map(|end| {
            let end = end?;
            self.shown.iter().position(|i| points[*i].run == end.run)
        });
        let limits = analysis::round_limits(shown(), self.axes, LIMITS);
        self.limits = analysis::at_limits(shown(), self.axes, &limits);
        self.measure();
    }

    /// Takes up that something else is plotted.
    fn measure(&mut self) {
        let places =
            self.visible().filter_map(|p| self.axes.of(p)).chain(self.others().map(|(_, place)| place));
        self.extent = places.fold(Extent::default(), |Extent { x, y }, place| Extent {
            x: (x.0.min(place.0), x.1.max(place.0)),
            y: (y.0.min(place.1), y.1.max(place.1)),
        });
        self.revision += 1;
    }

    /// Shows the published points, or none.
    pub fn publish(&mut self, points: Vec<OverlayPoint>) {
        self.published = points;
        self.measure();
    }

    /// Shows the points of a user's file, or none.
    pub fn lay_over(&mut self, file: Option<PathBuf>, points: Vec<OverlayPoint>) {
        (self.overlay_file, self.overlay) = (file, points);
        self.measure();
    }

    /// The points shown, from the least x.
    pub fn visible(&self) -> impl Iterator<Item = &ParetoPoint> {
        let points = self.points.as_deref().unwrap_or_default();
        self.shown.iter().filter_map(|i| points.get(*i))
    }

    /// The point with this number among those shown, from 0.
    pub fn nth(&self, number: usize) -> Option<&ParetoPoint> {
        self.points.as_ref()?.get(*self.shown.get(number)?)
    }

    /// The point that is selected.
    pub fn current(&self) -> Option<&ParetoPoint> {
        self.nth(self.selected)
    }

    /// The run of that id, if it is among the points.
    pub fn point(&self, run: &str) -> Option<&ParetoPoint> {
        self.points.as_ref()?.iter().find(|p| p.run == run)
    }

    /// Points from elsewhere that go with the group and the P2P shown and have a place on the axes.
    pub fn others(&self) -> impl Iterator<Item = (&OverlayPoint, (f64, f64))> {
        let spec = self.points.as_deref().zip(self.first).and_then(|(all, at)| Some(&all.get(at)?.spec));
        self.published.iter().chain(&self.overlay).filter_map(move |other| {
            let goes = spec.is_some_and(|spec| other.goes_with(spec))
                && (self.p2p.is_none() || other.p2p.is_none() || other.p2p == self.p2p);
            goes.then_some((other, other.place(self.axes)?))
        })
    }

    /// Which axes are logarithmic: told from everything that is plotted, so that it stays when zoomed.
    pub fn logarithmic(&self) -> (bool, bool) {
        (self.scales.0.is_log(self.extent.x), self.scales.1.is_log(self.extent.y))
    }

    /// Takes the next quantity for the x axis, round and round.
    pub fn cycle_x(&mut self) {
        self.axes.x = next_of(&XAxis::ALL, self.axes.x, false);
        self.zoom.forget();
        self.arrange();
    }

    /// Takes the next quantity for the y axis, round and round.
    pub fn cycle_y(&mut self) {
        let evaluated = self.stored.as_ref().is_some_and(|stored| stored.has_quality());
        let quality = MEASURES.iter().filter(|measure| evaluated && measure.scope == Scope::Quality);
        let all: Vec<YAxis> = YAxis::ALL.into_iter().chain(quality.map(YAxis::Of)).collect();
        self.axes.y = next_of(&all, self.axes.y, false);
        self.zoom.forget();
        self.arrange();
    }

    /// Shows the points of the next P2P setting: on, off, both, round and round.
    pub fn cycle_p2p(&mut self) {
        self.p2p = next_of(&[None, Some(P2p::On), Some(P2p::Off)], self.p2p, false);
        self.arrange();
    }

    /// Shows another group of comparable runs.
    pub fn choose_group(&mut self, group: usize) {
        if group != self.group && group < self.groups.len() {
            self.group = group;
            self.zoom.forget();
            self.arrange();
        }
        self.chosen = true;
    }

    /// Shows or hides a series.
    pub fn toggle(&mut self, entry: usize) {
        if let Some(entry) = self.entries.get(entry) {
            if !self.hidden.remove(&entry.series) {
                self.hidden.insert(entry.series.clone());
            }
            self.arrange();
        }
    }

    /// Selects a neighbour in x, so that every point can be reached.
    pub fn move_by(&mut self, by: isize) {
        self.selected = self.selected.saturating_add_signed(by).min(self.shown.len().saturating_sub(1));
    }

    /// Selects a run; false where it is not shown.
    pub fn select(&mut self, run: &str) -> bool {
        let at = self.visible().position(|p| p.run == run);
        self.selected = at.unwrap_or(self.selected);
        at.is_some()
    }

    /// The series of the selected point: an index into the entries.
    pub fn selected_entry(&self) -> Option<usize> {
        self.looks.get(self.selected).map(|look| look.0)
    }

    /// The unit that x is written in, and by what its values are divided: told from everything that is
    /// plotted, so that it stays when zoomed.
    pub fn unit(&self) -> (&'static str, f64) {
        self.axes.x.unit_for(self.extent.x.1)
    }

    /// The areas that belong to what is shown; `None` where its axes have none.
    pub fn area_key(&self) -> Option<AreaKey> {
        if !self.axes.has_area() {
            return None;
        }
        let group = self.groups.get(self.group)?.clone();
        let (log_x, log_y) = self.logarithmic();
        let options = AreaOptions { axes: self.axes, log_x, log_y, reference: None };
        Some(AreaKey { options, group })
    }

    /// What the architecture of the selected point (ladder, where that is standard) gains in area.
    pub fn area(&self) -> Option<&AreaGained> {
        let (key, areas) = self.areas.as_ref()?;
        let (current, shown) = (self.current()?, self.area_key()?);
        if *key != shown {
            return None;
        }
        let series = current.series();
        let same: Vec<&AreaGained> =
            areas.iter().filter(|a| a.p2p == series.p2p && a.setting == series.setting).collect();
        let of = |wanted: &dyn Fn(&Architecture) -> bool| {
            same.iter().find(|a| wanted(&a.architecture)).copied()
        };
        of(&|a| *a == series.architecture)
            .or_else(|| of(&|a| matches!(a, Architecture::Ladder(_))))
            .or_else(|| same.first().copied())
    }
}
