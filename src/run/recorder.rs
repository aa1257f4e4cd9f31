//! Shared by backends that execute and time generations: the run's clock, spans per lane, merging of the ranks' times
//! into samples, and the lanes of a watched step.
//!
//! NVTX ranges around operations make Nsight Systems show the same names as our traces. Without an attached tool an NVTX
//! range costs about 0.1 us (two small allocations for the C string).

use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use plan::{Lane, Phase};
use table::{Sample, Spec};
use trace::Span;

/// Monotonic clock (CLOCK_MONOTONIC on Linux) with its own zero. Reading it costs about 25 ns.
#[derive(Clone, Copy, Debug)]
pub struct MonotonicClock {
    zero: Instant,
}

impl MonotonicClock {
    pub fn start() -> Self {
        Self { zero: Instant::now() }
    }

    /// Nanoseconds since [`MonotonicClock::start`].
    #[inline]
    pub fn now(&self) -> i64 {
        self.zero.elapsed().as_nanos() as i64
    }

    /// Sleeps until `at` (ns); returns at once if that has passed. Sleeps wake late by tens of microseconds, more on
    /// virtual machines, so it sleeps `early_ns` less and yields the core for the rest.
    pub fn sleep_until(&self, at: i64, early_ns: i64) {
        let left = at - self.now() - early_ns;
        if left > 0 {
            std::thread::sleep(Duration::from_nanos(left as u64));
        }
        while self.now() < at {
            std::thread::yield_now();
        }
    }

    /// Median overshoot (ns, at most 100 us) of 100 us sleeps on this thread. Takes about 5 ms.
    pub fn sleep_overshoot(&self) -> i64 {
        precise_sleep();
        let wanted = 100_000;
        let mut late: Vec<i64> = (0..31)
            .map(|_| {
                let before = self.now();
                std::thread::sleep(Duration::from_nanos(wanted as u64));
                (self.now() - before - wanted).clamp(0, 100_000)
            })
            .collect();
        late.sort_unstable();
        late[late.len() / 2]
    }
}

/// Disables timer slack for this thread (Linux adds 50 us by default).
pub fn precise_sleep() {
    #[cfg(target_os = "linux")]
    let _ = rustix::thread::set_current_timer_slack(std::num::NonZeroU64::new(1));
}

/// Step of a run that a rank executes; by default one that is not recorded.
#[derive(Clone, Copy, Debug, Default)]
pub struct StepPlace {
    /// True if spans are recorded.
    pub is_recorded: bool,
    pub sample: u32,
    /// Decode step; 0 in prefill.
    pub step: u32,
}

/// Spans of one lane and thread, 64 bytes each. Recording takes no lock and disturbs no other lane.
#[derive(Debug)]
pub struct SpanRecorder {
    rank: u32,
    lane: Lane,
    place: StepPlace,
    phase: Phase,
    base: u32,
    spans: Vec<Span>,
}

impl SpanRecorder {
    pub fn new(rank: u32, lane: Lane) -> Self {
        let (place, phase) = (StepPlace::default(), Phase::Prefill);
        Self { rank, lane, place, phase, base: 0, spans: Vec::new() }
    }

    /// Begins a step. `base` is the index of the phase's first operation in the trace's operations table.
    pub fn enter(&mut self, place: StepPlace, phase: Phase, base: u32) {
        (self.place, self.phase, self.base) = (place, phase, base);
    }

    /// Records one execution of `operation`, an index in the phase's plan; times in ns of the run's clock.
    #[inline]
    pub fn record(&mut self, operation: u32, ready: i64, start: i64, end: i64, last_arrival: i64) {
        if self.place.is_recorded {
            self.spans.push(Span {
                sample: self.place.sample,
                phase: self.phase,
                step: self.place.step,
                rank: self.rank,
                lane: self.lane,
                operation: self.base + operation,
                ready_ns: ready,
                start_ns: start,
                end_ns: end,
                last_arrival_ns: last_arrival,
                ..Span::EMPTY
            });
        }
    }

    pub fn of_step(&self) -> &[Span] {
        let place = (self.place.sample, self.phase, self.place.step);
        let here = |span: &Span| (span.sample, span.phase, span.step) == place;
        let start = self.spans.iter().rposition(|span| !here(span)).map_or(0, |last| last + 1);
        self.spans.get(start..).unwrap_or_default()
    }

    pub fn take(&mut self) -> Vec<Span> {
        let room = self.spans.len();
        std::mem::replace(&mut self.spans, Vec::with_capacity(room))
    }
}

/// NVTX range of this thread; ended on drop.
#[derive(Debug)]
#[must_use = "the range ends when this is dropped"]
pub struct NvtxThreadRange(());

impl Drop for NvtxThreadRange {
    fn drop(&mut self) {
        nvtx::range_pop!();
    }
}

pub fn range(name: &str) -> NvtxThreadRange {
    // the crate would panic on NUL, which no plan's names contain
    debug_assert!(!name.contains('\0'));
    nvtx::range_push!("{name}");
    NvtxThreadRange(())
}

/// Range not bound to a thread, such as a collective in flight; ended on drop.
#[derive(Debug)]
#[must_use = "the range ends when this is dropped"]
pub struct NvtxProcessRange(i32);

impl Drop for NvtxProcessRange {
    fn drop(&mut self) {
        let id = self.0;
        nvtx::range_end!(id);
    }
}

/// Starts a range that may overlap others, named by lane and operation: `rank 0 comm: decode/L0/attn/all_reduce`.
pub fn start(lane: &str, name: &str) -> NvtxProcessRange {
    debug_assert!(!name.contains('\0'));
    NvtxProcessRange(nvtx::range_start!("{lane}: {name}"))
}

pub fn name_thread(name: &str) {
    nvtx::name_thread!("{name}");
}

/// One rank's times in one generation (ns), on a clock shared by all ranks.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct GenerationTimes {
    pub started: i64,
    pub prefill_end: i64,
    pub step_ends: Vec<i64>,
}

/// Name of a generation, counted from 1: `warm-up 1/2`, then `sample 3/10`.
pub(super) fn phase_name(spec: &Spec, generation: u32) -> String {
    match generation.checked_sub(spec.warmup) {
        None => format!("warm-up {}/{}", generation + 1, spec.warmup),
        Some(sample) => format!("sample {}/{}", sample + 1, spec.samples),
    }
}

/// Random prompt tokens that depend only on the seed, concatenated.
pub(super) fn prompts(spec: &Spec, vocab: u32) -> Vec<u32> {
    let mut rng = fastrand::Rng::with_seed(spec.seed ^ 0x70726f6d7074);
    (0..u64::from(spec.batch) * u64::from(spec.prompt_tokens)).map(|_| rng.u32(0..vocab)).collect()
}

/// Merges the ranks' times into a sample: each step ends when its last rank ends. `spans` are the sample's spans of all
/// ranks, for its overlap; without spans there is none.
pub(super) fn combine(times: &[GenerationTimes], spans: &[Span], ranks: u32) -> Sample {
    let ms = |ns: i64| ns as f64 / 1e6;
    let started = times.iter().map(|t| t.started).min().unwrap_or(0);
    let prefill_end = times.iter().map(|t| t.prefill_end).max().unwrap_or(0);
    let steps = times.iter().map(|t| t.step_ends.len()).min().unwrap_or(0);
    let mut steps_ms = Vec::with_capacity(steps);
    let mut previous = prefill_end;
    for step in 0..steps {
        let end = times.iter().map(|t| t.step_ends[step]).max().unwrap_or(previous);
        steps_ms.push(ms(end - previous));
        previous = end;
    }
    Sample {
        prefill_ms: ms(prefill_end - started),
        decode_ms: ms(previous - prefill_end),
        steps_ms,
        overlap: trace::overlap::decode_overlap(spans, ranks, false),
    }
}

/// Busy intervals of a rank's lanes during one decode step, which a watched run reports: compact, so that it disturbs the
/// run little. Times are ns since the step's first operation on any
/// rank; the intervals of a lane are sorted and do not touch.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct StepLanes {
    pub rank: u32,
    pub compute: Vec<[u32; 2]>,
    pub comm: Vec<[u32; 2]>,
}

impl StepLanes {
    /// Computes each rank's lanes from the spans of one step; sorted by rank.
    pub fn of_step(spans: &[Span]) -> Vec<Self> {
        let zero = spans.iter().map(|span| span.start_ns).min().unwrap_or(0);
        let mut ranks: Vec<u32> = spans.iter().map(|span| span.rank).collect();
        ranks.sort_unstable();
        ranks.dedup();
        let of_rank = |rank| {
            let busy = |lane| {
                let of_lane = spans.iter().filter(|span| (span.rank, span.lane) == (rank, lane));
                union(
                    of_lane
                        .map(|span| [offset(span.start_ns, zero), offset(span.end_ns, zero)])
                        .collect(),
                )
            };
            Self { rank, compute: busy(Lane::Compute), comm: busy(Lane::Comm) }
        };
        ranks.into_iter().map(of_rank).collect()
    }

    pub fn end(&self) -> u32 {
        self.compute.iter().chain(&self.comm).map(|[_, end]| *end).max().unwrap_or(0)
    }
}

/// Nanoseconds from `zero`; saturates after about four seconds.
fn offset(ns: i64, zero: i64) -> u32 {
    u32::try_from(ns.saturating_sub(zero).max(0)).unwrap_or(u32::MAX)
}

fn union(mut intervals: Vec<[u32; 2]>) -> Vec<[u32; 2]> {
    intervals.sort_unstable();
    let mut joined: Vec<[u32; 2]> = Vec::new();
    for [start, end] in intervals {
        match joined.last_mut() {
            Some(last) if start <= last[1] => last[1] = last[1].max(end),
            _ => joined.push([start, end]),
        }
    }
    joined
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lanes_of_a_step_are_unions_from_its_first_operation() {
        let span = |rank, lane, start_ns, end_ns| Span {
            step: 3,
            rank,
            lane,
            ready_ns: start_ns,
            start_ns,
            end_ns,
            ..Span::EMPTY
        };
        let spans = [
            span(1, Lane::Compute, 1_050, 1_100),
            span(0, Lane::Compute, 1_000, 1_200),
            span(0, Lane::Compute, 1_200, 1_300),
            span(0, Lane::Comm, 1_250, 1_500),
            span(0, Lane::Compute, 1_400, 1_450),
        ];
        let lanes = StepLanes::of_step(&spans);
        let first = StepLanes { rank: 0, compute: vec![[0, 300], [400, 450]], comm: vec![[250, 500]] };
        assert_eq!(lanes, [first, StepLanes { rank: 1, compute: vec![[50, 100]], comm: Vec::new() }]);
        assert_eq!((lanes[0].end(), lanes[1].end()), (500, 100));
        assert!(StepLanes::of_step(&[]).is_empty());
    }
}
