//! Span storage: one vector per lane and thread, so recording takes no lock and disturbs no other lane. 64 bytes per
//! span.

use plan::{Lane, Phase};
use trace::Span;

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
