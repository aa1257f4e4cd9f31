//! From consecutive replays, each with one window timed, to one step.
//!
//! All times of a replay count from its own first event. Window `k` of the composed step begins where
//! replay `k` began it: before it nothing was timed in that replay, so that moment is undisturbed. Its
//! end is where replay `k + 1` began the next window. Within, the events themselves took time; the
//! window's times are scaled so that it fits between its two undisturbed seams. Without disturbance and
//! jitter the factor is exactly 1. A collective in flight over a seam keeps its measured length beyond
//! it.

use serde::{Deserialize, Serialize};

use super::marks::Marks;
use super::windows::Windows;
use crate::plan::{Lane, Plan};

/// A window is scaled by no more than this, and by no less than one over it; beyond, replays differed so
/// much that the seam is moved instead.
const MOST: f64 = 2.0;

/// What composing needs to know of a plan.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Skeleton {
    /// The lane of each operation.
    pub lanes: Vec<Lane>,
    /// By operation: the operations whose results it reads or awaits, its lane's previous one left out
    /// unless it reads from it.
    pub reads_from: Vec<Vec<u32>>,
}

impl Skeleton {
    /// The skeleton of a plan: its lanes, and which operations each reads from.
    pub fn of(plan: &Plan) -> Self {
        let writers = plan.writers();
        let reads_from = plan.operations.iter().map(|operation| {
            let read = operation.reads.iter().filter_map(|value| writers[value.index()]);
            let mut from: Vec<u32> =
                read.chain(operation.after.iter().copied()).map(|operation| operation.0).collect();
            from.sort_unstable();
            from.dedup();
            from
        });
        Self {
            lanes: plan.operations.iter().map(|operation| operation.lane).collect(),
            reads_from: reads_from.collect(),
        }
    }
}

/// When an operation of a step was ready, started and ended (ns since the step's start).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OperationTime {
    /// When everything that the operation reads was there.
    pub ready_ns: i64,
    /// When the operation started, having waited for its lane.
    pub start_ns: i64,
    /// When the operation ended.
    pub end_ns: i64,
}

/// One step on one rank.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Composed {
    /// By operation of the plan.
    pub operations: Vec<OperationTime>,
    /// From the step's start to its end (ns).
    pub length_ns: i64,
    /// How well the windows fit.
    pub seams: Seams,
}

/// How well windows of different replays fit together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Seams {
    /// Windows as they were measured, all of them together (ns).
    pub measured_ns: f64,
    /// The length of the same windows between their seams: what is left once the time that measuring
    /// took is taken off (ns).
    pub fitted_ns: f64,
    /// By how much operations were cut or moved because they would have overlapped their lane's previous
    /// one, or what they read (ns).
    pub clipped_ns: i64,
    /// Seams that were moved because replays differed too much.
    pub moved: u32,
}

impl Seams {
    /// By what factor timing stretched what was timed.
    pub fn stretch(&self) -> f64 {
        if self.fitted_ns > 0.0 { self.measured_ns / self.fitted_ns } else { 1.0 }
    }

    /// Adds those of another step, so that ratios are of both.
    pub fn add(&mut self, other: &Self) {
        self.measured_ns += other.measured_ns;
        self.fitted_ns += other.fitted_ns;
        self.clipped_ns += other.clipped_ns;
        self.moved += other.moved;
    }
}

/// One step of `windows.len()` replays: `replays[k]` has, by mark of `marks[k]`, the milliseconds since
/// that replay's first event ([`Marks::STEP_START`]). `None` where there are fewer replays than windows,
/// or where a replay lacks a mark.
///
/// In the result every lane does one thing at a time, in the plan's order, and nothing starts before
/// what it reads has ended.
pub fn compose(
    skeleton: &Skeleton,
    windows: &Windows,
    marks: &[Marks],
    replays: &[Vec<f32>],
) -> Option<Composed> {
    let count = windows.len();
    if marks.len() < count || replays.len() < count {
        return None;
    }
    let at = |window: usize, mark: u32| -> Option<f64> {
        // events that are read before they were recorded, or swapped, are no times
        let ms = f64::from(*replays[window].get(mark as usize)?);
        ms.is_finite().then_some(ms * 1e6)
    };
    let mut from = Vec::with_capacity(count);
    let mut to = Vec::with_capacity(count);
    let mut lengths = Vec::with_capacity(count);
    for (window, marks) in marks.iter().enumerate().take(count) {
        from.push(at(window, marks.opening())?);
        to.push(at(window, marks.closing())?);
        lengths.push(at(window, Marks::STEP_END)?);
    }
    let (seams, moved) = place_seams(&from, &to, &lengths);
    let mut report = Seams { moved, ..Seams::default() };
    let mut operations = vec![OperationTime::default(); skeleton.lanes.len()];
    let mut lane_end = [0i64; 2];
    for window in 0..count {
        let (start, end) = (from[window], to[window].max(from[window]));
        let (low, high) = (seams[window], seams[window + 1]);
        let factor = if end > start { (high - low) / (end - start) } else { 1.0 };
        let fit = |t: f64| {
            let t = if t <= start {
                low + (t - start)
            } else if t <= end {
                low + (t - start) * factor
            } else {
                high + (t - end)
            };
            t.round() as i64
        };
        report.measured_ns += end - start;
        report.fitted_ns += high - low;
        for operation in windows.range(window) {
            let (started, ended) = marks[window].of(operation)?;
            let (started, ended) = (fit(at(window, started)?), fit(at(window, ended)?));
            let read =
                skeleton.reads_from[operation].iter().map(|from| operations[*from as usize].end_ns);
            let ready = read.max().unwrap_or(0);
            let lane = &mut lane_end[skeleton.lanes[operation] as usize];
            let start_ns = started.max(*lane).max(ready);
            let end_ns = ended.max(start_ns);
            report.clipped_ns += (start_ns - started).max(end_ns - ended);
            *lane = end_ns;
            operations[operation] = OperationTime { ready_ns: ready, start_ns, end_ns };
        }
    }
    let last = lane_end.into_iter().max().unwrap_or(0);
    let length_ns = (seams[count].round() as i64).max(last);
    Some(Composed { operations, length_ns, seams: report })
}

/// Where the windows begin and the last one ends; and how many of these had to be moved.
fn place_seams(from: &[f64], to: &[f64], lengths: &[f64]) -> (Vec<f64>, u32) {
    let count = from.len();
    let mut seams: Vec<f64> = from.to_vec();
    // every replay but the last says how long a step is without what timing its own window took
    let mut whole: Vec<f64> = (0..count.saturating_sub(1))
        .map(|k| lengths[k] - ((to[k] - from[k]) - (from[k + 1] - from[k])))
        .collect();
    whole.sort_by(f64::total_cmp);
    let whole = match whole.len() {
        0 => lengths.first().copied().unwrap_or(0.0),
        n if n % 2 == 1 => whole[n / 2],
        n => (whole[n / 2 - 1] + whole[n / 2]) / 2.0,
    };
    seams.push(whole);
    let mut moved = 0;
    for k in 0..count {
        let measured = (to[k] - from[k]).max(0.0);
        let (least, most) = (seams[k] + measured / MOST, seams[k] + measured * MOST);
        if seams[k + 1] < least || seams[k + 1] > most {
            // a rounding error of the clock is no difference
            moved += u32::from((seams[k + 1] - seams[k + 1].clamp(least, most)).abs() > 1.0);
            seams[k + 1] = seams[k + 1].clamp(least, most);
        }
    }
    (seams, moved)
}
