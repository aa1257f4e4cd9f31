//! Discrete-event simulation of one rank's two lanes: start and end of each operation of a plan, and the lanes' busy
//! times.
//!
//! An operation starts when its lane is free and all its producers have ended. While both lanes are busy, contention
//! lowers the rate of each. The clock continues across steps: a step starts with the token sampled by the previous
//! one. A step costs O(operations + producers), because each operation ends once and only an end changes a rate.

use std::collections::VecDeque;

use super::durations::Durations;
use plan::{Kind, Lane, OpId, Operation, Plan, ValueId};
use table::{Overlap, Split, overlap_pct};

/// Producer index that means the step's tokens.
const STEP_TOKENS: u32 = u32::MAX;

/// End time of an operation in flight (ns).
const PENDING: i64 = i64::MAX;

/// State of a rank's lanes (ns since the run began).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct LaneClock {
    pub(super) free: [i64; 2],
    pub(super) tokens: i64,
}

impl LaneClock {
    /// Shifts every time by `ns` to earlier.
    pub(super) fn earlier(&self, ns: i64) -> Self {
        Self {
            free: self.free.map(|free| free.saturating_sub(ns)),
            tokens: self.tokens.saturating_sub(ns),
        }
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

/// Ends of a pipeline stage's transfers (ns); empty without stages.
#[derive(Debug, Default)]
pub(super) struct Transfers {
    /// The previous stage's sends that no receive has taken yet, oldest first.
    pub(super) incoming: VecDeque<i64>,
    pub(super) outgoing: Vec<i64>,
}

#[derive(Debug)]
pub(super) struct LaneSimulation {
    wiring: PlanDependencies,
    lane: Vec<Lane>,
    /// True for each [`Kind::Send`] and [`Kind::Receive`].
    sends: Vec<bool>,
    receives: Vec<bool>,
    /// End of each operation of the current step (ns); [`PENDING`] for collectives in flight.
    ends: Vec<i64>,
    queue: VecDeque<(usize, i64)>,
}

#[derive(Clone, Copy)]
struct Transfer {
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
    wiring: &'a PlanDependencies,
    ends: &'a mut [i64],
    queue: &'a mut VecDeque<(usize, i64)>,
    sends: &'a [bool],
    receives: &'a [bool],
    transfers: &'a mut Transfers,
    durations: &'a Durations<'a>,
    clock: &'a mut LaneClock,
    transfer: Option<Transfer>,
    /// Time with both lanes busy (ns).
    both: i64,
    visit: V,
}

impl LaneSimulation {
    pub(super) fn new(plan: &Plan) -> Self {
        let wiring = PlanDependencies::new(plan);
        Self {
            ends: vec![PENDING; wiring.len()],
            wiring,
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
        let (both, tokens) = self.stage_step(durations, clock, &mut Transfers::default(), visit);
        clock.tokens = tokens.unwrap_or(clock.free[0].max(clock.free[1]));
        both
    }

    /// Like [`Self::step`] for one pipeline stage: receives take `transfers.incoming` in order, and sends are
    /// appended to `transfers.outgoing`. A send does not wait for its receiver, which buffers the data. A receive
    /// takes no time, so a stage that waits for its predecessor is idle. The clock's tokens stay, because they arrive
    /// with a receive. Also returns the time of the sampled tokens, if this stage
    /// samples.
    pub(super) fn stage_step(
        &mut self,
        durations: &Durations<'_>,
        clock: &mut LaneClock,
        transfers: &mut Transfers,
        visit: impl FnMut(SimulatedOperation),
    ) -> (i64, Option<i64>) {
        let Self { wiring, lane, sends, receives, ends, queue } = self;
        let mut replay = Replay {
            wiring,
            ends,
            queue,
            sends,
            receives,
            transfers,
            durations,
            clock,
            transfer: None,
            both: 0,
            visit,
        };
        for (operation, lane) in lane.iter().enumerate() {
            match lane {
                Lane::Compute => replay.compute(operation),
                Lane::Comm => replay.issue(operation),
            }
        }
        replay.comm_alone(PENDING);
        (replay.both, wiring.tokens(ends))
    }
}

impl<V: FnMut(SimulatedOperation)> Replay<'_, V> {
    /// Time at which all producers of `operation` have ended; completes the collectives it waits for.
    #[inline]
    fn ready(&mut self, operation: usize) -> i64 {
        let mut ready = self.wiring.ready(operation, self.ends, self.clock.tokens);
        while ready == PENDING && self.end_next_transfer() {
            ready = self.wiring.ready(operation, self.ends, self.clock.tokens);
        }
        ready
    }

    fn issue(&mut self, operation: usize) {
        let ready = self.ready(operation);
        self.ends[operation] = PENDING;
        self.queue.push_back((operation, ready));
    }

    #[inline]
    fn compute(&mut self, operation: usize) {
        let mut ready = self.ready(operation);
        if self.receives[operation] {
            // the first simulated step has no sender: its tokens are available at 0
            ready = ready.max(self.transfers.incoming.pop_front().unwrap_or(0));
        }
        let mut start = ready.max(self.clock.free[0]);
        let host = self.durations.host[operation];
        if host > 0 {
            start = start.saturating_add(host);
            ready = start;
        }
        self.comm_alone(start);
        let work = self.durations.ns[operation];
        let (mut now, mut left) = (start, work);
        let end = loop {
            let Some(transfer) = self.transfer else {
                // alone until the next collective starts
                match self.next_start() {
                    Some(at) if at < now.saturating_add(left) => {
                        left -= (at - now).max(0);
                        now = now.max(at);
                        self.start_transfer();
                        continue;
                    }
                    _ => break now.saturating_add(left),
                }
            };
            let loss =
                self.durations.contention[operation] * self.durations.contention[transfer.operation];
            let (rate, comm_rate) = (1.0 - loss, 1.0 - self.durations.comm_loss);
            let needs = stretched(left, rate);
            let comm_done = progress(needs, comm_rate);
            if comm_done < transfer.left {
                let end = now.saturating_add(needs);
                self.both = self.both.saturating_add(needs);
                if let Some(transfer) = &mut self.transfer {
                    (transfer.at, transfer.left) = (end, transfer.left - comm_done);
                }
                break end;
            }
            let comm_needs = stretched(transfer.left, comm_rate).min(needs);
            left = (left - progress(comm_needs, rate)).max(0);
            now = now.saturating_add(comm_needs);
            self.both = self.both.saturating_add(comm_needs);
            self.end_transfer(now);
        };
        self.ends[operation] = end;
        self.clock.free[0] = end;
        (self.visit)(SimulatedOperation {
            operation,
            lane: Lane::Compute,
            ready,
            start,
            arrival: start,
            end,
            work,
        });
    }

    #[inline]
    fn next_start(&self) -> Option<i64> {
        self.queue.front().map(|(_, ready)| (*ready).max(self.clock.free[1]))
    }

    fn start_transfer(&mut self) {
        if let Some((operation, ready)) = self.queue.pop_front() {
            let start = ready.max(self.clock.free[1]);
            let left = self.durations.ns[operation];
            self.transfer = Some(Transfer { operation, ready, start, at: start, left });
        }
    }

    fn end_transfer(&mut self, end: i64) {
        if let Some(Transfer { operation, ready, start, .. }) = self.transfer.take() {
            self.ends[operation] = end;
            self.clock.free[1] = end;
            if self.sends[operation] {
                self.transfers.outgoing.push(end);
            }
            let work = self.durations.ns[operation];
            (self.visit)(SimulatedOperation {
                operation,
                lane: Lane::Comm,
                ready,
                start,
                arrival: start,
                end,
                work,
            });
        }
    }

    /// Advances the comm lane to `time` while the compute lane is idle.
    #[inline]
    fn comm_alone(&mut self, time: i64) {
        loop {
            match self.transfer {
                Some(transfer) => {
                    let end = transfer.at.saturating_add(transfer.left);
                    if end > time {
                        // no progress is lost if the compute lane continues at once
                        let done = (time - transfer.at).max(0);
                        let at = transfer.at.max(time);
                        self.transfer = Some(Transfer { at, left: transfer.left - done, ..transfer });
                        return;
                    }
                    self.end_transfer(end);
                }
                None if self.next_start().is_some_and(|start| start < time) => self.start_transfer(),
                None => return,
            }
        }
    }

    /// Completes the current or next collective alone; returns false if there is none.
    fn end_next_transfer(&mut self) -> bool {
        if self.transfer.is_none() {
            self.start_transfer();
        }
        let Some(transfer) = self.transfer else { return false };
        self.end_transfer(transfer.at.saturating_add(transfer.left));
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

/// Busy times of a rank's two serial lanes (ns), summed in whole nanoseconds, so that they equal those of the trace's
/// decode phase exactly. The phase begins at the end of prefill. They saturate on an extremely slow link.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct LaneTimes {
    compute: i64,
    comm: i64,
    both: i64,
    /// Part of `both` in which the collective waited for a peer.
    both_waiting: i64,
    /// Comm lane busy before the last rank had arrived.
    waiting: i64,
    work: i64,
    /// Begin of the phase; the first event's start if unknown.
    begin: Option<i64>,
    span: Option<(i64, i64)>,
}

impl LaneTimes {
    /// Times of a phase that begins at `ns`.
    pub(super) fn since(ns: i64) -> Self {
        Self { begin: Some(ns), ..Self::default() }
    }

    /// Adds an event; [`Self::add_overlap`] adds its overlap with the other lane.
    #[inline]
    pub(super) fn count(&mut self, event: &SimulatedOperation) {
        let begin = self.begin.unwrap_or(event.start);
        let (first, last) = self.span.unwrap_or((begin, event.end));
        self.span = Some((first.min(event.start), last.max(event.end)));
        match event.lane {
            Lane::Compute => {
                self.compute = self.compute.saturating_add(event.end - event.start);
                self.work = self.work.saturating_add(event.work);
            }
            Lane::Comm => {
                self.comm = self.comm.saturating_add(event.end - event.start);
                self.waiting = self.waiting.saturating_add(event.arrival - event.start);
            }
        }
    }

    /// Adds time with both lanes busy, and the part of it in which the collective waited for a peer.
    pub(super) fn add_overlap(&mut self, both: i64, waiting: i64) {
        self.both = self.both.saturating_add(both);
        self.both_waiting = self.both_waiting.saturating_add(waiting);
    }

    /// Repeats the step added since `before` another `times` times, `ns` in total, because identical steps are
    /// simulated once.
    pub(super) fn repeat(&mut self, before: &Self, times: i64, ns: i64) {
        let more = |now: &mut i64, then: i64| {
            *now = now.saturating_add(times.saturating_mul(now.saturating_sub(then)))
        };
        more(&mut self.compute, before.compute);
        more(&mut self.comm, before.comm);
        more(&mut self.both, before.both);
        more(&mut self.both_waiting, before.both_waiting);
        more(&mut self.waiting, before.waiting);
        more(&mut self.work, before.work);
        if let Some((_, last)) = &mut self.span {
            *last = last.saturating_add(ns);
        }
    }

    /// Overlap of the decode phase; `None` without events.
    pub(super) fn overlap(&self) -> Option<Overlap> {
        let (first, last) = self.span?;
        let ms = |ns: i64| ns as f64 / 1e6;
        let exposed = self.comm - self.both;
        let waiting = self.waiting - self.both_waiting;
        let work_ms = ms(self.work);
        Some(Overlap {
            comm_ms: ms(self.comm),
            exposed_comm_ms: ms(exposed),
            overlap_pct: overlap_pct(exposed as f64, self.comm as f64),
            compute_ms: ms(self.compute),
            idle_ms: ms((last - first).saturating_sub(self.compute.saturating_add(exposed)).max(0)),
            split: Some(Split {
                work_ms,
                contention_ms: ms(self.compute) - work_ms,
                peer_wait_ms: ms(waiting),
                transfer_ms: ms(exposed - waiting),
            }),
        })
    }
}

/// Mean overlap of a run's ranks; `None` without events.
pub(super) fn mean_overlap(ranks: &[LaneTimes]) -> Option<Overlap> {
    Overlap::mean(&ranks.iter().map(LaneTimes::overlap).collect::<Option<Vec<_>>>()?)
}
