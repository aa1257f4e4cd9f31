//! Pareto frontiers: points that no other point of their group dominates.
//!
//! Best throughput of each series within latency limits.

use std::borrow::Borrow;
use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;

use super::axes::Axes;
use super::{ParetoPoint, Series};
use crate::validate::TieBand;
use base::statistics::{distinct, extent};
use plan::Architecture;
use table::{P2p, Provenance, Spec};

/// Marks the frontier of each group and of each series, and the dominating run of each dominated point. A point without
/// a value on one of the axes is on no frontier.
pub fn mark(points: &mut [ParetoPoint], axes: Axes) {
    let mut groups: BTreeMap<String, Vec<usize>> = BTreeMap::new();
    let mut series: BTreeMap<(String, Series), Vec<usize>> = BTreeMap::new();
    for (index, point) in points.iter_mut().enumerate() {
        (point.on_frontier, point.on_series_frontier, point.dominated_by) = (false, false, None);
        (point.too_close, point.band) = (false, None);
        if axes.coordinates(point).is_some() {
            groups.entry(point.group.clone()).or_default().push(index);
            series.entry((point.group.clone(), point.series())).or_default().push(index);
        }
    }
    for members in groups.values() {
        let best = undominated(points, axes, &choices(points, members));
        for &index in members {
            points[index].dominated_by = dominator(points, axes, &best, index);
        }
        best.iter().for_each(|&index| points[index].on_frontier = true);
        let bands = bands(points, axes, members);
        members.iter().for_each(|&index| points[index].band = bands.map(|bands| bands[0]));
        for &index in &best {
            for rival in rivals(points, axes, members, index, bands) {
                (points[index].too_close, points[rival].too_close) = (true, true);
            }
        }
    }
    for members in series.values() {
        for index in undominated(points, axes, members) {
            points[index].on_series_frontier = true;
        }
    }
}

/// Bands of a group's simulated points on both axes; `None` for a measured group and for a single series.
fn bands(points: &[ParetoPoint], axes: Axes, members: &[usize]) -> Option<[TieBand; 2]> {
    if members.windows(2).all(|pair| is_one_series(&points[pair[0]], &points[pair[1]])) {
        return None;
    }
    let simulated = members.iter().map(|at| &points[*at]);
    let simulated = simulated.filter(|point| point.provenance == Provenance::Simulated);
    let specs: Vec<&Spec> = simulated.map(|point| &point.spec).collect();
    (!specs.is_empty()).then(|| axes.bands(&specs))
}

fn is_one_series(a: &ParetoPoint, b: &ParetoPoint) -> bool {
    a.spec.architecture == b.spec.architecture && a.spec.p2p == b.spec.p2p && a.setting == b.setting
}

/// Points of other series within the simulator's error of a frontier point or, if measured, with overlapping 95 %
/// intervals.
fn rivals(
    points: &[ParetoPoint],
    axes: Axes,
    members: &[usize],
    index: usize,
    bands: Option<[TieBand; 2]>,
) -> Vec<usize> {
    let best = &points[index];
    let is_near = |rival: &ParetoPoint| match bands {
        Some(bands) => {
            let places = axes.coordinates(best).zip(axes.coordinates(rival));
            places.is_some_and(|(a, b)| axes.are_too_close(a, b, bands))
        }
        None => axes.overlap(best, rival),
    };
    let is_rival =
        |rival: &ParetoPoint| !is_one_series(rival, best) && !rival.is_limit() && is_near(rival);
    members.iter().copied().filter(|&rival| is_rival(&points[rival])).collect()
}

/// Points that users can choose. `upper-bound` computes wrong results; as a limit it dominates nothing and is only on
/// its own series' frontier.
fn choices(points: &[ParetoPoint], indices: &[usize]) -> Vec<usize> {
    indices.iter().copied().filter(|&index| !points[index].is_limit()).collect()
}

/// Frontier of the points that pass the filter (one architecture's, say), per group: completion latency (ms) against
/// per-GPU throughput (tokens/s), the lowest latency first. Leaves out `upper-bound` if there are other points, since
/// nobody can choose it.
pub fn frontier(points: &[ParetoPoint], filter: impl Fn(&ParetoPoint) -> bool) -> Vec<&ParetoPoint> {
    frontier_on(points, Axes::default(), filter)
}

/// Frontier on any axes, from the best x to the worst, with improving y.
pub fn frontier_on(
    points: &[ParetoPoint],
    axes: Axes,
    filter: impl Fn(&ParetoPoint) -> bool,
) -> Vec<&ParetoPoint> {
    let mut groups: BTreeMap<&str, Vec<usize>> = BTreeMap::new();
    for (index, point) in points.iter().enumerate().filter(|(_, point)| filter(point)) {
        groups.entry(&point.group).or_default().push(index);
    }
    let best = groups.values().flat_map(|group| match choices(points, group) {
        choices if choices.is_empty() => undominated(points, axes, group),
        choices => undominated(points, axes, &choices),
    });
    best.map(|index| &points[index]).collect()
}

/// Undominated points at `indices`, from the best x to the worst.
fn undominated<P: Borrow<ParetoPoint>>(points: &[P], axes: Axes, indices: &[usize]) -> Vec<usize> {
    let at = |&i: &usize| Some((i, axes.turned(axes.coordinates(points[i].borrow())?)));
    let places: Vec<(usize, (f64, f64))> = indices.iter().filter_map(at).collect();
    let values: Vec<(f64, f64)> = places.iter().map(|(_, place)| *place).collect();
    best_of(&values).into_iter().map(|at| places[at].0).collect()
}

/// Indices of undominated places in order of x, where less x and more y are better. Keeps ties.
pub(super) fn best_of(places: &[(f64, f64)]) -> Vec<usize> {
    let mut order: Vec<usize> = (0..places.len()).collect();
    order.sort_by(|&a, &b| {
        let ((ax, ay), (bx, by)) = (places[a], places[b]);
        ax.total_cmp(&bx).then(by.total_cmp(&ay))
    });
    let mut best: Vec<usize> = Vec::new();
    for index in order {
        // the last kept place has the best y among all with no worse x
        let stays = best.last().is_none_or(|&last| {
            let more = places[index].1.total_cmp(&places[last].1);
            more.is_gt() || (more.is_eq() && places[index].0.total_cmp(&places[last].0).is_eq())
        });
        if stays {
            best.push(index);
        }
    }
    best
}

/// Run on an ordered frontier that dominates a point: the best in y among those no worse in x.
fn dominator(points: &[ParetoPoint], axes: Axes, best: &[usize], index: usize) -> Option<String> {
    let place = axes.coordinates(&points[index])?;
    let x = |i: usize| axes.coordinates(&points[i]).map_or(f64::INFINITY, |at| axes.turned(at).0);
    let limit = axes.turned(place).0;
    let before = best.partition_point(|&i| x(i) <= limit);
    let candidate = best[..before].last().map(|&i| &points[i])?;
    axes.dominates(axes.coordinates(candidate)?, place).then(|| candidate.run.clone())
}

/// Contents of a Pareto plot of one group, the same in figures, in reports and on the screen. Points are
/// numbered as given.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ParetoLayout {
    /// Frontier of each series, from best to worst x.
    pub frontiers: BTreeMap<Series, Vec<usize>>,
    /// Best and worst x on the frontier of all points but limits.
    pub ends: [Option<usize>; 2],
    /// Points with a label, in order of priority: the ends, then the frontiers with P2P on and off.
    pub labels: Vec<usize>,
}

impl ParetoLayout {
    pub fn new(points: &[&ParetoPoint], axes: Axes) -> Self {
        let mut series: BTreeMap<Series, Vec<usize>> = BTreeMap::new();
        for (index, point) in points.iter().enumerate() {
            series.entry(point.series()).or_default().push(index);
        }
        let frontiers = series.into_iter().map(|(series, of)| (series, undominated(points, axes, &of)));
        let choices = |p2p: &[P2p]| {
            let is_choice = |i: &usize| !points[*i].is_limit() && p2p.contains(&points[*i].spec.p2p);
            undominated(points, axes, &(0..points.len()).filter(is_choice).collect::<Vec<_>>())
        };
        let all = choices(&[P2p::On, P2p::Off]);
        let ends = [all.first().copied(), all.last().copied()];
        let labels = ends.into_iter().flatten().chain(choices(&[P2p::On])).chain(choices(&[P2p::Off]));
        Self { frontiers: frontiers.collect(), ends, labels: distinct(labels) }
    }
}

/// Best y within each limit of x, as a step line through the places of a frontier from the best x to the worst: horizontal
/// up to the next place, then vertical. A straight line between two places would pass values that no point reaches.
pub fn frontier_steps(places: &[(f64, f64)]) -> Vec<(f64, f64)> {
    let steps = places.windows(2).flat_map(|pair| [(pair[1].0, pair[0].1), pair[1]]);
    places.first().copied().into_iter().chain(steps).collect()
}

#[derive(Clone, Debug, PartialEq, Serialize, schemars::JsonSchema)]
pub struct AtLimit {
    /// Group (model, workload, hardware, provenance).
    pub group: String,
    pub provenance: Provenance,
    #[schemars(with = "String")]
    pub architecture: Architecture,
    pub p2p: P2p,
    /// Settings that separate the series besides architecture and P2P (see [`ParetoPoint::setting`]).
    pub setting: String,
    /// Upper limit of x; lower limit if more x is better.
    pub limit: f64,
    pub best: Option<BestAtLimit>,
    /// Point with a higher y that misses the limit by at most a tenth; null if there is none.
    pub near_miss: Option<NearMiss>,
}

#[derive(Clone, Debug, PartialEq, Serialize, schemars::JsonSchema)]
pub struct NearMiss {
    pub tp: u32,
    pub batch: u32,
    pub x: f64,
}

/// Run of a series with the highest y within a limit.
#[derive(Clone, Debug, PartialEq, Serialize, schemars::JsonSchema)]
pub struct BestAtLimit {
    pub run: String,
    pub tp: u32,
    /// Expert-parallel ranks.
    pub ep: u32,
    /// Data-parallel ranks.
    pub dp: u32,
    pub batch: u32,
    pub x: f64,
    pub y: f64,
    /// 95 % interval of `y`; null if the point has none.
    pub y_ci95: Option<[f64; 2]>,
    /// Ratio of y to that of `standard` with the same limit, P2P and setting; null if no such run meets the limit.
    pub over_standard: Option<f64>,
    pub standard_batch: Option<u32>,
}

type Placed<'a> = (&'a ParetoPoint, (f64, f64));

/// One row per series and limit, ordered by group, series and limit.
pub fn at_limits<'a>(
    points: impl IntoIterator<Item = &'a ParetoPoint>,
    axes: Axes,
    limits: &[f64],
) -> Vec<AtLimit> {
    let mut series: BTreeMap<(&str, Series), Vec<Placed<'_>>> = BTreeMap::new();
    for point in points {
        if let Some(place) = axes.coordinates(point) {
            series.entry((&point.group, point.series())).or_default().push((point, place));
        }
    }
    let mut rows = Vec::with_capacity(series.len() * limits.len());
    for ((group, of), members) in &series {
        let standard =
            series.get(&(*group, Series { architecture: Architecture::Standard, ..of.clone() }));
        let Some((first, _)) = members.first() else { continue };
        for &limit in limits {
            let baseline = standard.and_then(|cells| within(cells, axes, limit));
            let best = within(members, axes, limit).map(|(point, (x, y))| BestAtLimit {
                run: point.run.clone(),
                tp: point.spec.tp,
                ep: point.spec.ep,
                dp: point.spec.dp,
                batch: point.spec.batch,
                x,
                y,
                y_ci95: axes.y.interval(point),
                over_standard: baseline
                    .map(|(_, (_, of_standard))| y / of_standard)
                    .filter(|ratio| ratio.is_finite()),
                standard_batch: baseline.map(|(point, _)| point.spec.batch),
            });
            let near_miss = near_miss(members, axes, limit, best.as_ref().map(|best| best.y));
            rows.push(AtLimit {
                group: (*group).to_owned(),
                provenance: first.provenance,
                architecture: of.architecture.clone(),
                p2p: of.p2p,
                setting: of.setting.clone(),
                limit,
                best,
                near_miss,
            });
        }
    }
    rows
}

/// Point with the highest y within the limit; ties go to the better x.
fn within<'a>(points: &[Placed<'a>], axes: Axes, limit: f64) -> Option<Placed<'a>> {
    let within = points.iter().copied().filter(|(_, (x, _))| axes.x.keeps(*x, limit));
    within.max_by(|(_, a), (_, b)| {
        let (a, b) = (axes.turned(*a), axes.turned(*b));
        a.1.total_cmp(&b.1).then(b.0.total_cmp(&a.0))
    })
}

impl BestAtLimit {
    /// Ratio to `standard`, if its best point has the same batch.
    pub fn over_same_batch(&self) -> Option<f64> {
        self.over_standard.filter(|_| self.standard_batch == Some(self.batch))
    }
}

/// Best point of an architecture within a limit.
#[derive(Clone, Debug, PartialEq)]
pub struct BestWithin {
    pub run: String,
    pub architecture: Architecture,
    pub y: f64,
    /// True if no lead of the winner over this point is shown.
    pub is_tied: bool,
}

/// Best point of each architecture within a limit, the winner first; without `upper-bound`, which nobody can choose. `rows`
/// are those of [`at_limits`] for these points, which are of one group.
pub fn best_within(
    points: &[&ParetoPoint],
    rows: &[AtLimit],
    axes: Axes,
    limit: f64,
) -> Vec<BestWithin> {
    let rows = rows.iter().filter(|row| row.limit == limit && !row.architecture.is_limit());
    let mut best: Vec<(&Architecture, &BestAtLimit)> =
        rows.filter_map(|row| Some((&row.architecture, row.best.as_ref()?))).collect();
    best.sort_by(|(_, a), (_, b)| {
        let (a, b) = (axes.turned((a.x, a.y)), axes.turned((b.x, b.y)));
        b.1.total_cmp(&a.1).then(a.0.total_cmp(&b.0))
    });
    let mut seen = BTreeSet::new();
    best.retain(|(architecture, _)| seen.insert(*architecture));
    let point = |run: &str| points.iter().copied().find(|point| point.run == run);
    let winner = best.first().and_then(|(_, winner)| point(&winner.run));
    let within = |(at, (architecture, best)): (usize, &(&Architecture, &BestAtLimit))| {
        let both = winner.zip(point(&best.run)).filter(|_| at > 0);
        BestWithin {
            run: best.run.clone(),
            architecture: Architecture::clone(architecture),
            y: best.y,
            is_tied: both.is_some_and(|(winner, rival)| axes.are_tied_in_y(winner, rival)),
        }
    };
    best.iter().enumerate().map(within).collect()
}

/// Point with the highest y above `best` that misses the limit by little.
fn near_miss(points: &[Placed<'_>], axes: Axes, limit: f64, best: Option<f64>) -> Option<NearMiss> {
    /// Largest excess over a limit.
    const NEAR: f64 = 0.1;
    let more = axes.x.is_more_better();
    let excess = |x: f64| if more { limit / x - 1.0 } else { x / limit - 1.0 };
    let missed = points.iter().filter(|(_, (x, y))| {
        excess(*x) > 0.0 && excess(*x) <= NEAR && best.is_none_or(|best| *y > best)
    });
    let (point, (x, _)) = missed.max_by(|(_, (_, a)), (_, (_, b))| a.total_cmp(b))?;
    Some(NearMiss { tp: point.spec.tp, batch: point.spec.batch, x: *x })
}

/// Round limits across the x values of these points, at most `most`, ascending: 1, 2, 5 of each decade, or finer steps
/// if the values span little.
pub fn round_limits<'a>(
    points: impl IntoIterator<Item = &'a ParetoPoint>,
    axes: Axes,
    most: usize,
) -> Vec<f64> {
    const FINER: [&[f64]; 4] = [
        &[1.0, 1.2, 1.4, 1.6, 1.8, 2.0, 2.5, 3.0, 3.5, 4.0, 5.0, 6.0, 7.0, 8.0, 9.0],
        &[1.0, 1.5, 2.0, 3.0, 4.0, 6.0, 8.0],
        &[1.0, 2.0, 5.0],
        &[1.0],
    ];
    let values = points.into_iter().filter_map(|p| axes.x.value(p));
    // there are no round numbers near 0
    let Some([low, high]) = extent(values.filter(|value| *value > 0.0)) else { return Vec::new() };
    let decades = low.log10().floor() as i32..=high.log10().floor() as i32 + 1;
    let choice = |digits: &[f64]| -> Vec<f64> {
        let all: BTreeSet<u64> = decades
            .clone()
            // parsed from text, so that 2e-1 is exactly 0.2
            .flat_map(|e| digits.iter().filter_map(move |d| format!("{d}e{e}").parse::<f64>().ok()))
            .map(f64::to_bits)
            .collect();
        let all: Vec<f64> = all.into_iter().map(f64::from_bits).collect();
        if axes.x.is_more_better() {
            // starts at or below the smallest value, so that one limit includes all points
            let from = all.iter().rposition(|v| *v <= low).unwrap_or(0);
            all[from..].iter().copied().filter(|v| *v <= high).collect()
        } else {
            let to = all.iter().position(|v| *v >= high).map_or(all.len(), |at| at + 1);
            all[..to].iter().copied().filter(|v| *v >= low).collect()
        }
    };
    let choices = FINER.map(choice);
    let mut limits = choices.iter().find(|limits| limits.len() <= most).unwrap_or(&choices[3]).clone();
    limits.truncate(most);
    limits
}
