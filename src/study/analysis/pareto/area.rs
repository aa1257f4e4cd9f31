//! The area between two frontiers: how much more of the plane an architecture can serve than another.
//!
//! A frontier dominates a part of the plane: all places that one of its points equals or beats. Its
//! area, bounded by a reference point, is the hypervolume of multi-objective optimisation (Zitzler and
//! Thiele 1999). Two frontiers are compared over the cells that both have, against one reference point,
//! which decides the percentage and is therefore always told with it.

use std::collections::BTreeMap;

use rayon::prelude::*;
use serde::Serialize;

use super::axes::{Axes, XAxis, YAxis};
use super::frontier::best_of;
use super::points::{ParetoPoint, Series, pareto_on};
use base::statistics::{LEAST_SAMPLES, bootstrap_pools, median};
use plan::Architecture;
use table::{CellRuns, P2p, Provenance, Record, Sample, Spec, completion_ms, steps_ms, tokens_per_s};

/// How far beyond the worst point the reference lies, where the user names none.
const BEYOND: f64 = 1.1;

/// How areas are computed.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct AreaOptions {
    /// The axes that the frontiers are drawn over.
    pub axes: Axes,
    /// Whether x is logarithmic: an area then counts ratios.
    pub log_x: bool,
    /// Whether y is logarithmic: an area then counts ratios.
    pub log_y: bool,
    /// The reference point (x, y); `None`: a tenth beyond the worst x of both frontiers, and 0 tokens/s
    /// (a tenth below the worst y where y is logarithmic).
    pub reference: Option<(f64, f64)>,
}

/// Matched cells from which on an area says something: of two it is that of one step, as large as the distance between
/// them happens to be.
pub const LEAST_CELLS: usize = 3;

/// What an architecture's frontier gains over `standard`, same group, P2P and setting.
#[derive(Clone, Debug, PartialEq, Serialize, schemars::JsonSchema)]
pub struct AreaGained {
    /// The group (model, workload, hardware, provenance).
    pub group: String,
    /// Where the numbers come from.
    pub provenance: Provenance,
    /// The architecture whose frontier gains the area.
    #[schemars(with = "String")]
    pub architecture: Architecture,
    /// The architecture over whose frontier it gains, `standard`.
    #[schemars(with = "String")]
    pub baseline: Architecture,
    /// Whether GPUs talk directly.
    pub p2p: P2p,
    /// What sets the series apart besides architecture and P2P (see [`ParetoPoint::setting`]).
    pub setting: String,
    /// Cells that both have: the frontiers are of these alone.
    pub cells: usize,
    /// Cells that only one of the two has: left out.
    pub left_out: usize,
    /// The scale of x: `linear` or `log`.
    pub x_scale: &'static str,
    /// The scale of y: `linear` or `log`.
    pub y_scale: &'static str,
    /// The reference point: x and y beyond which nothing counts.
    pub reference: [f64; 2],
    /// The baseline's area (product of the axes' units; decades where logarithmic).
    pub baseline_area: f64,
    /// The architecture's area, in the same unit.
    pub area: f64,
    /// 100 x (area / baseline area - 1); null where the baseline has no area.
    pub gained_pct: Option<f64>,
    /// Bootstrap interval (rounds resampled in all cells at once, then samples); null for simulations
    /// and with too few samples.
    pub gained_pct_ci95: Option<[f64; 2]>,
    /// Why there is no interval.
    pub no_interval: Option<String>,
}

/// Every architecture against `standard`, in every group (or the one named) and P2P
/// setting that has both.
pub fn area_gained(records: &[Record], options: AreaOptions, group: Option<&str>) -> Vec<AreaGained> {
    let points = pareto_on(records, Axes { x: completion_if_ttft(options.axes.x), ..options.axes });
    let mut series: BTreeMap<(&str, Series), Vec<&ParetoPoint>> = BTreeMap::new();
    for point in &points {
        if group.is_none_or(|group| group == point.group) && options.axes.of(point).is_some() {
            series.entry((&point.group, point.series())).or_default().push(point);
        }
    }
    let cells = CellRuns::group(records);
    let by_run: BTreeMap<String, &CellRuns<'_>> =
        cells.iter().flat_map(|cell| cell.runs.iter().map(move |run| (run.run.clone(), cell))).collect();
    let pairs: Vec<_> = series
        .iter()
        .filter(|((_, of), _)| of.architecture != Architecture::Standard)
        .filter_map(|((group, of), members)| {
            let standard = Series { architecture: Architecture::Standard, ..of.clone() };
            Some((series.get(&(*group, standard))?, of, members))
        })
        .collect();
    pairs.par_iter().filter_map(|(base, of, own)| gained(base, own, of, options, &by_run)).collect()
}

/// TTFT's intervals are not needed here, and are the only ones that cost something.
fn completion_if_ttft(x: XAxis) -> XAxis {
    if x == XAxis::Ttft { XAxis::Completion } else { x }
}

fn gained(
    baseline: &[&ParetoPoint],
    own: &[&ParetoPoint],
    series: &Series,
    options: AreaOptions,
    cells: &BTreeMap<String, &CellRuns<'_>>,
) -> Option<AreaGained> {
    let pairs = matched(baseline, own);
    let first = pairs.first()?.0;
    let (base, mine): (Vec<_>, Vec<_>) =
        pairs.iter().filter_map(|(base, mine)| options.axes.of(base).zip(options.axes.of(mine))).unzip();
    let plane = Plane::new(options, base.iter().chain(&mine).copied());
    let (baseline_area, area) = (plane.area(&base), plane.area(&mine));
    let percent = |base: f64, mine: f64| 100.0 * (mine / base - 1.0);
    let interval =
        interval(&pairs, options.axes, cells, |base, mine| percent(plane.area(base), plane.area(mine)));
    let (gained_pct_ci95, no_interval) = match interval {
        Ok(interval) => (Some(interval), None),
        Err(why) => (None, Some(why)),
    };
    let scale = |log| if log { "log" } else { "linear" };
    Some(AreaGained {
        group: first.group.clone(),
        provenance: first.provenance,
        architecture: series.architecture.clone(),
        baseline: Architecture::Standard,
        p2p: series.p2p,
        setting: series.setting.clone(),
        cells: pairs.len(),
        left_out: baseline.len() + own.len() - 2 * pairs.len(),
        x_scale: scale(options.log_x),
        y_scale: scale(options.log_y),
        reference: plane.reference.into(),
        baseline_area,
        area,
        gained_pct: Some(percent(baseline_area, area)).filter(|v| v.is_finite()),
        gained_pct_ci95,
        no_interval,
    })
}

/// Cells that differ in nothing but the architecture; where one side ran a cell with several seeds or
/// counts of samples, the first of each.
fn matched<'a>(
    baseline: &[&'a ParetoPoint],
    own: &[&'a ParetoPoint],
) -> Vec<(&'a ParetoPoint, &'a ParetoPoint)> {
    let key = |point: &ParetoPoint| (point.spec.tp, point.spec.batch);
    let mut first: BTreeMap<(u32, u32), &ParetoPoint> = BTreeMap::new();
    for point in own {
        first.entry(key(point)).or_insert(point);
    }
    let mut taken = BTreeMap::new();
    for point in baseline {
        if let Some(other) = first.get(&key(point)) {
            taken.entry(key(point)).or_insert((*point, *other));
        }
    }
    taken.into_values().collect()
}

/// The plane in which areas are measured: x turned so that less is better, logarithms taken.
#[derive(Clone, Copy, Debug)]
struct Plane {
    options: AreaOptions,
    /// In the axes' own units.
    reference: (f64, f64),
}

impl Plane {
    /// With the reference named in the options, or one a little beyond the worst of `places`.
    fn new(options: AreaOptions, places: impl Iterator<Item = (f64, f64)> + Clone) -> Self {
        let least = |values: &mut dyn Iterator<Item = f64>| values.fold(f64::INFINITY, f64::min);
        let x = match (options.axes.x.is_more_better(), options.log_x) {
            (false, _) => places.clone().map(|p| p.0).fold(0.0, f64::max) * BEYOND,
            (true, true) => least(&mut places.clone().map(|p| p.0)) / BEYOND,
            (true, false) => 0.0,
        };
        let y = if options.log_y { least(&mut places.map(|p| p.1)) / BEYOND } else { 0.0 };
        Self { options, reference: options.reference.unwrap_or((x, y)) }
    }

    fn place(&self, (x, y): (f64, f64)) -> (f64, f64) {
        let log = |value: f64, log: bool| if log { value.log10() } else { value };
        self.options.axes.turned((log(x, self.options.log_x), log(y, self.options.log_y)))
    }

    /// The area that the frontier of these places dominates.
    fn area(&self, places: &[(f64, f64)]) -> f64 {
        let places: Vec<(f64, f64)> = places.iter().map(|place| self.place(*place)).collect();
        hypervolume(&places, self.place(self.reference))
    }
}

/// The area dominated by places (less x, more y is better) and bounded by a reference point: places
/// beyond the reference count for nothing.
pub(super) fn hypervolume(places: &[(f64, f64)], reference: (f64, f64)) -> f64 {
    let inside: Vec<(f64, f64)> =
        places.iter().copied().filter(|(x, y)| *x < reference.0 && *y > reference.1).collect();
    let best: Vec<(f64, f64)> = best_of(&inside).into_iter().map(|i| inside[i]).collect();
    let ends = best.iter().skip(1).map(|(x, _)| *x).chain([reference.0]);
    best.iter().zip(ends).map(|((x, y), end)| (end - x) * (y - reference.1)).sum()
}

/// What is resampled of a sample: its x on a time axis, and its completion latency (both ms).
type Drawn = [f64; 2];

/// The bootstrap interval of `statistic` of the matched places; else why there is none.
fn interval(
    pairs: &[(&ParetoPoint, &ParetoPoint)],
    axes: Axes,
    cells: &BTreeMap<String, &CellRuns<'_>>,
    statistic: impl Fn(&[(f64, f64)], &[(f64, f64)]) -> f64,
) -> Result<[f64; 2], String> {
    let points: Vec<&ParetoPoint> =
        pairs.iter().map(|pair| pair.0).chain(pairs.iter().map(|pair| pair.1)).collect();
    if points.iter().any(|point| point.provenance == Provenance::Simulated) {
        return Err("simulated: nothing varies from sample to sample".into());
    }
    let rounds_of = |point: &ParetoPoint| cells.get(&point.run).map(|cell| cell.rounds());
    let rounds: Vec<BTreeMap<u32, Vec<Sample>>> =
        points.iter().map(|point| rounds_of(point).unwrap_or_default()).collect();
    let shared: Vec<u32> = rounds.first().map_or_else(Vec::new, |first| {
        first.keys().copied().filter(|round| rounds.iter().all(|r| r.contains_key(round))).collect()
    });
    if shared.is_empty() {
        return Err("the cells share no round".into());
    }
    let samples: Vec<Vec<Vec<Drawn>>> = rounds
        .iter()
        .zip(&points)
        .map(|(rounds, point)| {
            let of = |round: &u32| rounds.get(round).into_iter().flatten();
            shared.iter().map(|r| of(r).map(|s| drawn(&point.spec, s, axes.x)).collect()).collect()
        })
        .collect();
    let few = |cell: &Vec<Vec<Drawn>>| cell.iter().map(Vec::len).sum::<usize>() < LEAST_SAMPLES;
    if let Some((_, point)) = samples.iter().zip(&points).find(|(cell, _)| few(cell)) {
        return Err(format!(
            "{} has fewer than {LEAST_SAMPLES} samples in the rounds that all cells have",
            point.spec.label()
        ));
    }
    let slices: Vec<&[Vec<Drawn>]> = samples.iter().map(Vec::as_slice).collect();
    let place = |pool: &[Drawn], point: &ParetoPoint| {
        let of = |at: usize| median(&pool.iter().map(|d| d[at]).collect::<Vec<_>>());
        let (x_ms, completion) = (of(0)?, of(1)?);
        let x = if axes.x == XAxis::User { 1000.0 / x_ms } else { x_ms };
        let gpus = if axes.y == YAxis::PerGpu { f64::from(point.spec.tp.max(1)) } else { 1.0 };
        Some((x, tokens_per_s(&point.spec, completion) / gpus))
    };
    let interval = bootstrap_pools(&slices, |pools| {
        let places: Option<Vec<(f64, f64)>> =
            pools.iter().zip(&points).map(|(pool, point)| place(pool, point)).collect();
        places.map_or(f64::NAN, |places| {
            let (base, mine) = places.split_at(pairs.len());
            statistic(base, mine)
        })
    });
    interval.ok_or_else(|| "in some resample the baseline has no area".into())
}

fn drawn(spec: &Spec, sample: &Sample, x: XAxis) -> Drawn {
    let x_ms = match x {
        XAxis::Completion => completion_ms(sample),
        XAxis::Tpot | XAxis::User => median(&steps_ms(spec, sample)).unwrap_or(f64::NAN),
        XAxis::Ttft => sample.prefill_ms,
        // areas are asked for over the axes that are offered
        XAxis::Of(_) => f64::NAN,
    };
    [x_ms, completion_ms(sample)]
}
