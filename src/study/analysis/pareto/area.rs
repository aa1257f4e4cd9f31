//! Area between two frontiers: how much more of the plane one architecture can serve than another.
//!
//! A frontier dominates all places that one of its points equals or beats. Its area, bounded by a reference point, is
//! the hypervolume of multi-objective optimisation (Zitzler and Thiele 1999). Two frontiers are compared over their
//! common cells, with one reference point. The percentage depends on that point, so it is always shown.

use std::collections::BTreeMap;

use rayon::prelude::*;
use serde::Serialize;

use super::axes::{Axes, XAxis, YAxis};
use super::frontier::best_of;
use super::{ParetoPoint, Series, pareto_on};
use base::statistics::{LEAST_SAMPLES, bootstrap_pools, median};
use plan::Architecture;
use table::{CellRuns, P2p, Provenance, Record, Sample, Spec, completion_ms, steps_ms, tokens_per_s};

/// Factor from the worst point to the default reference point.
const BEYOND: f64 = 1.1;

#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct AreaOptions {
    pub axes: Axes,
    /// True for a logarithmic x axis: the area then measures ratios.
    pub log_x: bool,
    /// True for a logarithmic y axis: the area then measures ratios.
    pub log_y: bool,
    /// Reference point (x, y). `None`: 10 % beyond the worst x of both frontiers, and 0 tokens/s (10 % below the worst
    /// y on a logarithmic axis).
    pub reference: Option<(f64, f64)>,
}

/// Minimum number of matched cells for a meaningful area: with two, it is a single step whose size depends on their
/// distance.
pub const LEAST_CELLS: usize = 3;

/// Area that an architecture's frontier gains over `standard`, with the same group, P2P and setting.
#[derive(Clone, Debug, PartialEq, Serialize, schemars::JsonSchema)]
pub struct AreaGained {
    /// Group (model, workload, hardware, provenance).
    pub group: String,
    pub provenance: Provenance,
    #[schemars(with = "String")]
    pub architecture: Architecture,
    /// Baseline architecture, `standard`.
    #[schemars(with = "String")]
    pub baseline: Architecture,
    pub p2p: P2p,
    /// Settings that separate the series besides architecture and P2P (see [`ParetoPoint::setting`]).
    pub setting: String,
    /// Common cells; only these form the frontiers.
    pub cells: usize,
    /// Cells that only one side has, left out.
    pub left_out: usize,
    /// Scale of x: `linear` or `log`.
    pub x_scale: &'static str,
    pub y_scale: &'static str,
    /// Reference point (x, y) that bounds the areas.
    pub reference: [f64; 2],
    /// Area of the baseline (product of the axes' units; decades on logarithmic axes).
    pub baseline_area: f64,
    pub area: f64,
    /// 100 x (area / baseline area - 1); null if the baseline has no area.
    pub gained_pct: Option<f64>,
    /// Bootstrap interval (rounds resampled in all cells at once, then samples); null for simulations and with too few
    /// samples.
    pub gained_pct_ci95: Option<[f64; 2]>,
    pub no_interval: Option<String>,
}

/// Compares every architecture with `standard`, for every group (or the one given) and P2P setting that has both.
pub fn area_gained(records: &[Record], options: AreaOptions, group: Option<&str>) -> Vec<AreaGained> {
    // the intervals of TTFT are expensive and not needed here
    let x = if options.axes.x == XAxis::Ttft { XAxis::Completion } else { options.axes.x };
    let points = pareto_on(records, Axes { x, ..options.axes });
    let mut series: BTreeMap<(&str, Series), Vec<&ParetoPoint>> = BTreeMap::new();
    for point in &points {
        if group.is_none_or(|group| group == point.group) && options.axes.coordinates(point).is_some() {
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

fn gained(
    baseline: &[&ParetoPoint],
    own: &[&ParetoPoint],
    series: &Series,
    options: AreaOptions,
    cells: &BTreeMap<String, &CellRuns<'_>>,
) -> Option<AreaGained> {
    let pairs = matched(baseline, own);
    let first = pairs.first()?.0;
    let (base, mine): (Vec<_>, Vec<_>) = pairs
        .iter()
        .filter_map(|(base, mine)| options.axes.coordinates(base).zip(options.axes.coordinates(mine)))
        .unzip();
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

/// Pairs of cells that differ only in architecture; uses the first of several seeds or sample counts.
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

/// Plane in which areas are measured: x turned so that less is better, logarithms applied.
#[derive(Clone, Copy, Debug)]
struct Plane {
    options: AreaOptions,
    reference: (f64, f64),
}

impl Plane {
    /// Uses the reference point of the options, or one slightly beyond the worst of `places`.
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

    fn area(&self, places: &[(f64, f64)]) -> f64 {
        let places: Vec<(f64, f64)> = places.iter().map(|place| self.place(*place)).collect();
        hypervolume(&places, self.place(self.reference))
    }
}

/// Area dominated by places (less x and more y are better), bounded by a reference point. Places beyond the reference
/// are ignored.
pub(super) fn hypervolume(places: &[(f64, f64)], reference: (f64, f64)) -> f64 {
    let inside: Vec<(f64, f64)> =
        places.iter().copied().filter(|(x, y)| *x < reference.0 && *y > reference.1).collect();
    let best: Vec<(f64, f64)> = best_of(&inside).into_iter().map(|i| inside[i]).collect();
    let ends = best.iter().skip(1).map(|(x, _)| *x).chain([reference.0]);
    best.iter().zip(ends).map(|((x, y), end)| (end - x) * (y - reference.1)).sum()
}

/// Resampled values of a sample: x on a time axis, and completion latency (both ms).
type Drawn = [f64; 2];

/// Bootstrap interval of `statistic` over the matched places, or the reason why there is none.
fn interval(
    pairs: &[(&ParetoPoint, &ParetoPoint)],
    axes: Axes,
    cells: &BTreeMap<String, &CellRuns<'_>>,
    statistic: impl Fn(&[(f64, f64)], &[(f64, f64)]) -> f64,
) -> Result<[f64; 2], String> {
    let points: Vec<&ParetoPoint> =
        pairs.iter().map(|pair| pair.0).chain(pairs.iter().map(|pair| pair.1)).collect();
    if points.iter().any(|point| point.provenance == Provenance::Simulated) {
        return Err("simulations are deterministic".into());
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
            let samples_of = |round: &u32| rounds.get(round).into_iter().flatten();
            shared
                .iter()
                .map(|r| samples_of(r).map(|s| drawn(&point.spec, s, axes.x)).collect())
                .collect()
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
        let median_of = |at: usize| median(&pool.iter().map(|d| d[at]).collect::<Vec<_>>());
        let (x_ms, completion) = (median_of(0)?, median_of(1)?);
        let x = if axes.x == XAxis::User { 1000.0 / x_ms } else { x_ms };
        let gpus = if axes.y == YAxis::PerGpu { f64::from(point.spec.ranks()) } else { 1.0 };
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
        // areas only use the standard axes
        XAxis::Of(_) => f64::NAN,
    };
    [x_ms, completion_ms(sample)]
}
