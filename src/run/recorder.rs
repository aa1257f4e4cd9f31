//! Recording: the run's clock, spans per lane, and NVTX ranges around operations, so Nsight Systems shows the same
//! names as our traces. Without an attached tool an NVTX range costs about 0.1 us (two small allocations for the C
//! string).

use std::time::{Duration, Instant};

use plan::{Lane, Phase};
use trace::Span;

/// Monotonic clock (CLOCK_MONOTONIC on Linux) with its own zero. Reading it costs about 25 ns.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    zero: Instant,
}

impl Clock {
    pub fn start() -> Self {
        Self { zero: Instant::now() }
    }

    /// Nanoseconds since [`Clock::start`].
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

/// Spans of one lane and thread, 64 bytes each. Recording takes no lock and disturbs no other lane.
#[derive(Debug)]
pub struct SpanRecorder {
    rank: u32,
    lane: Lane,
    on: bool,
    place: (u32, Phase, u32),
    base: u32,
    spans: Vec<Span>,
}

impl SpanRecorder {
    pub fn new(rank: u32, lane: Lane) -> Self {
        Self { rank, lane, on: false, place: (0, Phase::Prefill, 0), base: 0, spans: Vec::new() }
    }

    /// Sets the position of the next spans. `base` is the index of the phase's first operation in the trace's
    /// operations table; `on` enables recording.
    pub fn enter(&mut self, on: bool, sample: u32, phase: Phase, step: u32, base: u32) {
        self.on = on;
        self.place = (sample, phase, step);
        self.base = base;
    }

    #[inline]
    pub fn is_on(&self) -> bool {
        self.on
    }

    /// Records one execution of `operation`, an index in the phase's plan; times in ns of the run's clock.
    #[inline]
    pub fn record(&mut self, operation: u32, ready: i64, start: i64, end: i64, last_arrival: i64) {
        if self.on {
            let (sample, phase, step) = self.place;
            self.spans.push(Span {
                sample,
                phase,
                step,
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
        let here = |span: &Span| (span.sample, span.phase, span.step) == self.place;
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
pub struct Range(());

impl Drop for Range {
    fn drop(&mut self) {
        nvtx::range_pop!();
    }
}

pub fn range(name: &str) -> Range {
    // the crate would panic on NUL, which no plan's names contain
    debug_assert!(!name.contains('\0'));
    nvtx::range_push!("{name}");
    Range(())
}

/// Range not bound to a thread, such as a collective in flight; ended on drop.
#[derive(Debug)]
#[must_use = "the range ends when this is dropped"]
pub struct Started(i32);

impl Drop for Started {
    fn drop(&mut self) {
        let id = self.0;
        nvtx::range_end!(id);
    }
}

/// Starts a range that may overlap others, named by lane and operation: `rank 0 comm: decode/L0/attn/all_reduce`.
pub fn start(lane: &str, name: &str) -> Started {
    debug_assert!(!name.contains('\0'));
    Started(nvtx::range_start!("{lane}: {name}"))
}

pub fn name_thread(name: &str) {
    nvtx::name_thread!("{name}");
}
