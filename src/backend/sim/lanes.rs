//! Discrete events: when each operation of a plan starts and ends on one rank's two lanes.
//!
//! An operation starts when its lane is free and everything it reads or awaits is there; nothing
//! else decides. While both lanes are busy each works at a lower rate: contention. The clock goes on
//! from step to step: a step begins with the token that the step before it sampled. A step costs
//! O(operations + their producers): an operation ends once, and only an end changes a rate.

use super::cost::Durations;
use crate::plan::{Lane, Plan};

/// Stands for the step's tokens among an operation's producers.
const TOKENS: u32 = u32::MAX;

/// An operation that has not ended (ns).
const PENDING: i64 = i64::MAX;

/// Where a rank's lanes stand (ns since the run began).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Clock {
    /// When each lane becomes free.
    pub(super) free: [i64; 2],
    /// When the tokens of the next step were there.
    pub(super) tokens: i64,
}

impl Clock {
    /// The same lanes `ns` earlier.
    pub(super) fn earlier(&self, ns: i64) -> Self {
        Self {
            free: self.free.map(|free| free.saturating_sub(ns)),
            tokens: self.tokens.saturating_sub(ns),
        }
    }
}

/// One executed operation (ns).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Event {
    /// Index in the plan.
    pub(super) operation: usize,
    pub(super) lane: Lane,
    /// When everything it reads or awaits was there; what lies between this and the start it spent
    /// waiting for its lane.
    pub(super) ready: i64,
    pub(super) start: i64,
    /// Collectives: when the last rank was there. Its start elsewhere, and where ranks are alike.
    pub(super) arrival: i64,
    pub(super) end: i64,
    /// How long it would have taken alone: the rest is contention.
    pub(super) work: i64,
}

/// Who waits for whom in a plan, flat.
#[derive(Debug)]
pub(super) struct Wiring {
    /// Operations of each lane, in order.
    pub(super) lanes: [Vec<u32>; 2],
    /// Producers of operation i: `producers[first[i]..first[i + 1]]`.
    first: Vec<u32>,
    producers: Vec<u32>,
    /// The operation that writes the step's output.
    output: Option<usize>,
}

impl Wiring {
    pub(super) fn new(plan: &Plan) -> Self {
        let writers = plan.writers();
        let mut first = Vec::with_capacity(plan.operations.len() + 1);
        let mut producers = Vec::new();
        let mut lanes = [Vec::new(), Vec::new()];
        first.push(0);
        for (index, operation) in plan.operations.iter().enumerate() {
            let reads =
                operation.reads.iter().map(|value| writers[value.index()].map_or(TOKENS, |op| op.0));
            let from = producers.len();
            producers.extend(reads.chain(operation.after.iter().map(|op| op.0)));
            producers[from..].sort_unstable();
            first.push(producers.len() as u32);
            lanes[operation.lane as usize].push(index as u32);
        }
        Self { lanes, first, producers, output: writers[plan.output.index()].map(|op| op.index()) }
    }

    /// Operations of the plan.
    pub(super) fn len(&self) -> usize {
        self.first.len() - 1
    }

    /// When everything that `operation` reads or awaits is there; [`PENDING`] while that is open.
    #[inline]
    pub(super) fn ready(&self, operation: usize, ends: &[i64], tokens: i64) -> i64 {
        let range = self.first[operation] as usize..self.first[operation + 1] as usize;
        self.producers[range]
            .iter()
            .map(|&producer| if producer == TOKENS { tokens } else { ends[producer as usize] })
            .fold(tokens, i64::max)
    }

    /// When the step's tokens are there.
    pub(super) fn tokens(&self, ends: &[i64], free: [i64; 2]) -> i64 {
        self.output.map_or(free[0].max(free[1]), |output| ends[output])
    }
}

/// A plan prepared for replay on one rank.
#[derive(Debug)]
pub(super) struct Lanes {
    wiring: Wiring,
    /// When each operation of the current step ended (ns).
    ends: Vec<i64>,
}

/// An operation that has started.
#[derive(Clone, Copy)]
struct Running {
    operation: usize,
    ready: i64,
    start: i64,
    /// Up to when its progress is accounted for.
    at: i64,
    /// Work left at `at`, as time alone.
    left: i64,
}

impl Running {
    /// Runs alone until `time`; its end, if it ends before.
    fn alone_until(&mut self, time: i64) -> Option<i64> {
        let alone = time - self.at;
        if self.left <= alone {
            return Some(self.at.saturating_add(self.left));
        }
        if alone > 0 {
            self.left -= alone;
            self.at = time;
        }
        None
    }
}

/// Time that `left` takes at a rate, and what is left after a time: whole nanoseconds.
fn stretched(left: i64, rate: f64) -> i64 {
    if rate >= 1.0 { left } else { (left as f64 / rate).ceil() as i64 }
}
fn progress(time: i64, rate: f64) -> i64 {
    if rate >= 1.0 { time } else { (time as f64 * rate).floor() as i64 }
}

impl Lanes {
    pub(super) fn new(plan: &Plan) -> Self {
        let wiring = Wiring::new(plan);
        Self { ends: vec![PENDING; wiring.len()], wiring }
    }

    /// Replays one step with the given durations and tells `visit` every operation, each lane's in
    /// order. Leaves in `clock` where the lanes stand and when the sampled tokens were there. A
    /// collective that outlives its step does not slow the next one; no plan has one.
    pub(super) fn step(
        &mut self,
        durations: &Durations<'_>,
        clock: &mut Clock,
        mut visit: impl FnMut(Event),
    ) {
        let Self { wiring, ends } = self;
        ends.fill(PENDING);
        let mut head = [0_usize; 2];
        let mut running: [Option<Running>; 2] = [None; 2];
        loop {
            for lane in 0..2 {
                if running[lane].is_none()
                    && let Some(&operation) = wiring.lanes[lane].get(head[lane])
                {
                    let operation = operation as usize;
                    let ready = wiring.ready(operation, ends, clock.tokens);
                    if ready != PENDING {
                        let start = ready.max(clock.free[lane]);
                        let left = durations.ns[operation];
                        running[lane] = Some(Running { operation, ready, start, at: start, left });
                    }
                }
            }
            let (lane, end) = match &mut running {
                // all is done; or the rest waits for itself, which no plan does
                [None, None] => break,
                [Some(one), None] => (0, one.at.saturating_add(one.left)),
                [None, Some(one)] => (1, one.at.saturating_add(one.left)),
                [Some(compute), Some(comm)] => both(compute, comm, durations),
            };
            let Some(one) = running[lane].take() else { break };
            ends[one.operation] = end;
            clock.free[lane] = end;
            head[lane] += 1;
            visit(Event {
                operation: one.operation,
                lane: if lane == 0 { Lane::Compute } else { Lane::Comm },
                ready: one.ready,
                start: one.start,
                arrival: one.start,
                end,
                work: durations.ns[one.operation],
            });
        }
        clock.tokens = wiring.tokens(ends, clock.free);
    }
}

/// Both lanes have started something: which ends first, and when; the other's progress up to then.
#[inline]
fn both(compute: &mut Running, comm: &mut Running, durations: &Durations<'_>) -> (usize, i64) {
    if let Some(end) = compute.alone_until(comm.at) {
        return (0, end);
    }
    if let Some(end) = comm.alone_until(compute.at) {
        return (1, end);
    }
    let loss = durations.contention[compute.operation] * durations.contention[comm.operation];
    let (compute_rate, comm_rate) = (1.0 - loss, 1.0 - durations.comm_loss);
    let needs = (stretched(compute.left, compute_rate), stretched(comm.left, comm_rate));
    let now = compute.at;
    let (lane, time, other, rate) = if needs.0 <= needs.1 {
        (0, needs.0, comm, comm_rate)
    } else {
        (1, needs.1, compute, compute_rate)
    };
    other.left = (other.left - progress(time, rate)).max(0);
    other.at = now.saturating_add(time);
    (lane, now.saturating_add(time))
}
