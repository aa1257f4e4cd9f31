//! Discrete-event simulation of one rank's two lanes: start and end of each operation of a plan.
//!
//! An operation starts when its lane is free and all its producers have ended. While both lanes are busy, contention
//! lowers the rate of each. The clock continues across steps: a step starts with the token sampled by the previous
//! one. A step costs O(operations + producers), because each operation ends once and only an end changes a rate.

use std::collections::VecDeque;

use super::durations::Durations;
use plan::{Kind, Lane, OpId, Operation, Plan, ValueId};

/// Producer index that means the step's tokens.
const STEP_TOKENS: u32 = u32::MAX;

/// End of an operation that has not ended (ns).
pub(super) const PENDING: i64 = i64::MAX;

/// State of a rank's lanes (ns since the run began).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct LaneClock {
    pub(super) free: [i64; 2],
    pub(super) tokens: i64,
}

impl LaneClock {
    pub(super) fn free(&self, lane: Lane) -> i64 {
        self.free[lane as usize]
    }

    /// Time from which both lanes are free.
    pub(super) fn both_free(&self) -> i64 {
        self.free(Lane::Compute).max(self.free(Lane::Comm))
    }
}

/// One executed operation of one rank; times in ns since the run began.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct SimulatedOperation {
    pub(super) operation: usize,
    pub(super) lane: Lane,
    /// Time at which all producers had ended, and the host had launched the step; from here to `start` it waited for its
    /// lane.
    pub(super) ready: i64,
    pub(super) start: i64,
    /// Arrival of the last rank at a collective; equals `start` for other operations and for identical ranks.
    pub(super) arrival: i64,
    pub(super) end: i64,
    pub(super) work: i64,
}

/// Dependencies of a plan in flat arrays.
#[derive(Debug)]
pub(super) struct PlanDependencies {
    pub(super) lanes: [Vec<u32>; 2],
    /// Producers of operation i: `producers[first[i]..first[i + 1]]`.
    first: Vec<u32>,
    producers: Vec<u32>,
    outputs: Vec<usize>,
    /// True for collectives that run on the compute lane.
    pub(super) inline: Vec<bool>,
}

impl PlanDependencies {
    pub(super) fn new(plan: &Plan) -> Self {
        let writers = plan.writers();
        let mut first = Vec::with_capacity(plan.operations.len() + 1);
        let mut producers = Vec::new();
        let mut lanes = [Vec::new(), Vec::new()];
        first.push(0);
        for (index, operation) in plan.operations.iter().enumerate() {
            // the comm lane is serial, so its earlier operations have always ended
            let own = |op: &OpId| {
                operation.lane == Lane::Comm && plan.operations[op.index()].lane == Lane::Comm
            };
            let writer = |value: &ValueId| writers[value.index()];
            let reads = operation.reads.iter().map(writer).filter(|op| !op.as_ref().is_some_and(own));
            let reads = reads.map(|op| op.map_or(STEP_TOKENS, |op| op.0));
            let from = producers.len();
            producers.extend(reads.chain(operation.after.iter().map(|op| op.0)));
            producers[from..].sort_unstable();
            first.push(producers.len() as u32);
            lanes[operation.lane as usize].push(index as u32);
        }
        let outputs = plan.outputs.iter().filter_map(|output| writers[output.index()]);
        let outputs = outputs.map(|op| op.index()).collect();
        let inline = |o: &Operation| o.lane == Lane::Compute && o.kind.is_collective();
        Self { lanes, first, producers, outputs, inline: plan.operations.iter().map(inline).collect() }
    }

    pub(super) fn len(&self) -> usize {
        self.first.len() - 1
    }

    /// Time at which all producers of `operation` have ended; [`PENDING`] if one has not.
    #[inline]
    pub(super) fn ready(&self, operation: usize, ends: &[i64], tokens: i64) -> i64 {
        let range = self.first[operation] as usize..self.first[operation + 1] as usize;
        self.producers[range]
            .iter()
            .map(|&producer| if producer == STEP_TOKENS { tokens } else { ends[producer as usize] })
            .fold(tokens, i64::max)
    }

    /// Time of the last sampled tokens; `None` if the plan samples none.
    pub(super) fn tokens(&self, ends: &[i64]) -> Option<i64> {
        self.outputs.iter().map(|&output| ends[output]).max()
    }
}

/// Ends of the sends between pipeline stages (ns); empty without stages.
#[derive(Debug, Default)]
pub(super) struct StageMessages {
    /// The previous stage's sends that no receive has taken yet, oldest first.
    pub(super) incoming: VecDeque<i64>,
    pub(super) outgoing: Vec<i64>,
}

#[derive(Debug)]
pub(super) struct LaneSimulation {
    dependencies: PlanDependencies,
    lane: Vec<Lane>,
    /// True for each [`Kind::Send`] and [`Kind::Receive`].
    sends: Vec<bool>,
    receives: Vec<bool>,
    /// End of each operation of the current step (ns); [`PENDING`] for collectives that are queued or in flight.
    ends: Vec<i64>,
    /// Issued collectives that have not started, with the times at which they are ready.
    queue: VecDeque<(usize, i64)>,
}

/// Collective that the comm lane runs now.
#[derive(Clone, Copy)]
struct InFlight {
    operation: usize,
    ready: i64,
    start: i64,
    /// Time up to which its progress is accounted for.
    at: i64,
    /// Remaining work at `at`, without contention (ns).
    left: i64,
}

/// Step in progress: the compute lane leads in plan order and advances the comm lane.
struct Replay<'a, V> {
    lanes: &'a mut LaneSimulation,
    messages: &'a mut StageMessages,
    durations: &'a Durations<'a>,
    clock: &'a mut LaneClock,
    in_flight: Option<InFlight>,
    /// Time with both lanes busy (ns).
    both: i64,
    visit: V,
}

impl LaneSimulation {
    pub(super) fn new(plan: &Plan) -> Self {
        let dependencies = PlanDependencies::new(plan);
        Self {
            ends: vec![PENDING; dependencies.len()],
            dependencies,
            lane: plan.operations.iter().map(|operation| operation.lane).collect(),
            sends: plan.operations.iter().map(|operation| operation.kind == Kind::Send).collect(),
            receives: plan.operations.iter().map(|operation| operation.kind == Kind::Receive).collect(),
            queue: VecDeque::new(),
        }
    }

    /// Replays one step and passes every operation to `visit`, in order per lane. Updates `clock` with the lanes'
    /// state and the time of the sampled tokens; returns the time with both lanes busy (ns). A collective that
    /// outlives its step would not slow the next one; no plan contains one.
    pub(super) fn step(
        &mut self,
        durations: &Durations<'_>,
        clock: &mut LaneClock,
        visit: impl FnMut(SimulatedOperation),
    ) -> i64 {
        let (both, tokens) = self.stage_step(durations, clock, &mut StageMessages::default(), visit);
        clock.tokens = tokens.unwrap_or(clock.both_free());
        both
    }

    /// Like [`Self::step`] for one pipeline stage: receives take `messages.incoming` in order, and sends are appended
    /// to `messages.outgoing`. A send does not wait for its receiver, which buffers the data. A receive takes no time,
    /// so a stage that waits for its predecessor is idle. The clock's tokens stay, because they arrive with a receive.
    /// Also returns the time of the sampled tokens, if this stage samples.
    pub(super) fn stage_step(
        &mut self,
        durations: &Durations<'_>,
        clock: &mut LaneClock,
        messages: &mut StageMessages,
        visit: impl FnMut(SimulatedOperation),
    ) -> (i64, Option<i64>) {
        let mut replay =
            Replay { lanes: self, messages, durations, clock, in_flight: None, both: 0, visit };
        for operation in 0..replay.lanes.lane.len() {
            match replay.lanes.lane[operation] {
                Lane::Compute => replay.compute(operation),
                Lane::Comm => replay.issue(operation),
            }
        }
        replay.comm_alone(PENDING);
        (replay.both, replay.lanes.dependencies.tokens(&replay.lanes.ends))
    }
}

impl<V: FnMut(SimulatedOperation)> Replay<'_, V> {
    /// Time at which all producers of `operation` have ended; completes the collectives it waits for.
    #[inline]
    fn ready(&mut self, operation: usize) -> i64 {
        loop {
            let lanes = &*self.lanes;
            let ready = lanes.dependencies.ready(operation, &lanes.ends, self.clock.tokens);
            if ready != PENDING || !self.end_next_collective() {
                return ready;
            }
        }
    }

    fn issue(&mut self, operation: usize) {
        let ready = self.ready(operation);
        self.lanes.ends[operation] = PENDING;
        self.lanes.queue.push_back((operation, ready));
    }

    #[inline]
    fn compute(&mut self, operation: usize) {
        let mut ready = self.ready(operation);
        if self.lanes.receives[operation] {
            // the first simulated step has no sender: its tokens are available at 0
            ready = ready.max(self.messages.incoming.pop_front().unwrap_or(0));
        }
        let mut start = ready.max(self.clock.free(Lane::Compute));
        let host = self.durations.host[operation];
        if host > 0 {
            start = start.saturating_add(host);
            ready = start;
        }
        self.comm_alone(start);
        let (mut now, mut left) = (start, self.durations.ns[operation]);
        let end = loop {
            if let Some(collective) = self.in_flight {
                if let Some(end) = self.compute_beside(collective, operation, &mut now, &mut left) {
                    break end;
                }
                continue;
            }
            // alone until the next collective starts
            match self.next_start() {
                Some(at) if at < now.saturating_add(left) => {
                    left -= (at - now).max(0);
                    now = now.max(at);
                    self.start_collective();
                }
                _ => break now.saturating_add(left),
            }
        };
        self.end(Lane::Compute, operation, ready, start, end);
    }

    /// Runs `operation`, with `left` of its work to do at `now`, beside the collective in flight. Returns the operation's
    /// end if it is the first to end; otherwise ends the collective and updates `now` and `left`.
    #[inline]
    fn compute_beside(
        &mut self,
        collective: InFlight,
        operation: usize,
        now: &mut i64,
        left: &mut i64,
    ) -> Option<i64> {
        let loss =
            self.durations.contention[operation] * self.durations.contention[collective.operation];
        let (rate, comm_rate) = (1.0 - loss, 1.0 - self.durations.comm_loss);
        let needs = stretched(*left, rate);
        let comm_done = progress(needs, comm_rate);
        if comm_done < collective.left {
            let end = now.saturating_add(needs);
            self.both = self.both.saturating_add(needs);
            self.in_flight = Some(InFlight { at: end, left: collective.left - comm_done, ..collective });
            return Some(end);
        }
        let comm_needs = stretched(collective.left, comm_rate).min(needs);
        *left = (*left - progress(comm_needs, rate)).max(0);
        *now = now.saturating_add(comm_needs);
        self.both = self.both.saturating_add(comm_needs);
        self.end_collective(*now);
        None
    }

    fn end(&mut self, lane: Lane, operation: usize, ready: i64, start: i64, end: i64) {
        self.lanes.ends[operation] = end;
        self.clock.free[lane as usize] = end;
        let work = self.durations.ns[operation];
        (self.visit)(SimulatedOperation { operation, lane, ready, start, arrival: start, end, work });
    }

    #[inline]
    fn next_start(&self) -> Option<i64> {
        self.lanes.queue.front().map(|(_, ready)| (*ready).max(self.clock.free(Lane::Comm)))
    }

    fn start_collective(&mut self) {
        if let Some((operation, ready)) = self.lanes.queue.pop_front() {
            let start = ready.max(self.clock.free(Lane::Comm));
            let left = self.durations.ns[operation];
            self.in_flight = Some(InFlight { operation, ready, start, at: start, left });
        }
    }

    fn end_collective(&mut self, end: i64) {
        if let Some(InFlight { operation, ready, start, .. }) = self.in_flight.take() {
            if self.lanes.sends[operation] {
                self.messages.outgoing.push(end);
            }
            self.end(Lane::Comm, operation, ready, start, end);
        }
    }

    /// Advances the comm lane to `time` while the compute lane is idle.
    #[inline]
    fn comm_alone(&mut self, time: i64) {
        loop {
            match self.in_flight {
                Some(collective) => {
                    let end = collective.at.saturating_add(collective.left);
                    if end > time {
                        // no progress is lost if the compute lane continues at once
                        let done = (time - collective.at).max(0);
                        let (at, left) = (collective.at.max(time), collective.left - done);
                        self.in_flight = Some(InFlight { at, left, ..collective });
                        return;
                    }
                    self.end_collective(end);
                }
                None if self.next_start().is_some_and(|start| start < time) => self.start_collective(),
                None => return,
            }
        }
    }

    /// Completes the current or next collective alone; returns false if there is none.
    fn end_next_collective(&mut self) -> bool {
        if self.in_flight.is_none() {
            self.start_collective();
        }
        let Some(collective) = self.in_flight else { return false };
        self.end_collective(collective.at.saturating_add(collective.left));
        true
    }
}

/// Time to finish `left` at a rate; `progress` is the inverse. Whole nanoseconds.
#[inline]
fn stretched(left: i64, rate: f64) -> i64 {
    if rate >= 1.0 {
        return left;
    }
    // manual ceiling; without SSE 4.1 the library's is a call
    let exact = left as f64 / rate;
    let whole = exact as i64;
    whole.saturating_add(i64::from((whole as f64) < exact))
}

#[inline]
fn progress(time: i64, rate: f64) -> i64 {
    // truncation is the floor, since the value is positive
    if rate >= 1.0 { time } else { (time as f64 * rate) as i64 }
}
