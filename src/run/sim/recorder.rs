//! Converts the simulator's events into spans in trace order.

use super::lanes::Event;
use plan::{Lane, Phase};
use table::Spec;
use trace::Span;

use super::plans::Plans;

/// Collects the events of one step and converts them to spans at its end, if recording is on.
pub(super) struct Recorder {
    pub(super) is_on: bool,
    /// Offset of the decode plan's operations in the trace's table.
    decode_base: u32,
    /// Events by rank; one entry if ranks are identical.
    events: Vec<[Vec<Event>; 2]>,
    ranks: usize,
    pub(super) spans: Vec<Span>,
}

impl Recorder {
    /// `simulated` is the number of simulated ranks, one if they are identical.
    pub(super) fn new(spec: &Spec, plans: &Plans, simulated: usize, is_on: bool) -> Self {
        let steps = spec.output_tokens.saturating_sub(1) as usize;
        let events = plans.prefill.operations.len() + steps * plans.decode.operations.len();
        let spans = if is_on { events * spec.tp as usize } else { 0 };
        Self {
            is_on,
            decode_base: plans.prefill.operations.len() as u32,
            events: vec![[Vec::new(), Vec::new()]; simulated],
            ranks: spec.tp as usize,
            spans: Vec::with_capacity(spans),
        }
    }

    pub(super) fn add(&mut self, rank: usize, event: &Event) {
        if self.is_on {
            self.events[rank][event.lane as usize].push(*event);
        }
    }

    pub(super) fn end_step(&mut self, phase: Phase, step: u32) {
        if !self.is_on {
            return;
        }
        let base = if phase == Phase::Prefill { 0 } else { self.decode_base };
        for rank in 0..self.ranks {
            let lanes = &self.events[rank.min(self.events.len() - 1)];
            self.spans.extend(lanes.iter().flatten().map(|event| Span {
                sample: 0,
                phase,
                step,
                rank: rank as u32,
                lane: event.lane,
                stream: 0,
                operation: base + event.operation as u32,
                ready_ns: event.ready,
                start_ns: event.start,
                end_ns: event.end,
                last_arrival_ns: if event.lane == Lane::Comm { event.arrival } else { -1 },
                ..Span::EMPTY
            }));
        }
        for lane in self.events.iter_mut().flatten() {
            lane.clear();
        }
    }
}
