//! Discrete events: when each operation of a plan starts and ends on one rank's two lanes.
//!
//! An operation starts when its lane is free and everything it reads or awaits is there; nothing
//! else decides. The clock goes on from step to step: a step begins with the token that the step
//! before it sampled, while lanes may still be busy.

use crate::plan::{Lane, Plan};

/// Stands for the step's tokens among an operation's producers.
const TOKENS: u32 = u32::MAX;

/// Where a rank's lanes stand (ps since the run began).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Clock {
    /// When each lane becomes free.
    free: [i64; 2],
    /// When the tokens of the next step were there.
    pub(super) tokens: i64,
}

/// One executed operation (ps).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Event {
    /// Index in the plan.
    pub(super) operation: usize,
    pub(super) lane: Lane,
    /// When everything it reads or awaits was there; what lies between this and the start it spent
    /// waiting for its lane.
    pub(super) ready: i64,
    pub(super) start: i64,
    pub(super) end: i64,
}

/// A plan prepared for replay: who waits for whom, flat.
#[derive(Debug)]
pub(super) struct Lanes {
    lane: Vec<Lane>,
    /// Producers of operation i: `producers[first[i]..first[i + 1]]`.
    first: Vec<u32>,
    producers: Vec<u32>,
    /// The operation that writes the step's output.
    output: Option<usize>,
    /// When each operation of the current step ended (ps).
    ends: Vec<i64>,
}

impl Lanes {
    pub(super) fn new(plan: &Plan) -> Self {
        let writers = plan.writers();
        let mut first = Vec::with_capacity(plan.operations.len() + 1);
        let mut producers = Vec::new();
        first.push(0);
        for operation in &plan.operations {
            let reads =
                operation.reads.iter().map(|value| writers[value.index()].map_or(TOKENS, |op| op.0));
            let from = producers.len();
            producers.extend(reads.chain(operation.after.iter().map(|op| op.0)));
            producers[from..].sort_unstable();
            first.push(producers.len() as u32);
        }
        Self {
            lane: plan.operations.iter().map(|operation| operation.lane).collect(),
            first,
            producers,
            output: writers[plan.output.index()].map(|op| op.index()),
            ends: vec![0; plan.operations.len()],
        }
    }

    /// Replays one step with the given durations (ps) and tells `visit` every operation, in plan
    /// order. Leaves in `clock` where the lanes stand and when the sampled tokens were there.
    pub(super) fn step(&mut self, durations: &[i64], clock: &mut Clock, mut visit: impl FnMut(Event)) {
        for (operation, (&lane, &duration)) in self.lane.iter().zip(durations).enumerate() {
            let producers = self.first[operation] as usize..self.first[operation + 1] as usize;
            let ready = self.producers[producers]
                .iter()
                .map(
                    |&producer| {
                        if producer == TOKENS { clock.tokens } else { self.ends[producer as usize] }
                    },
                )
                .max()
                .unwrap_or(clock.tokens);
            let free = &mut clock.free[lane as usize];
            let start = ready.max(*free);
            let end = start.saturating_add(duration);
            *free = end;
            self.ends[operation] = end;
            visit(Event { operation, lane, ready, start, end });
        }
        clock.tokens = match self.output {
            Some(output) => self.ends[output],
            None => clock.free[0].max(clock.free[1]),
        };
    }
}

/// Nanoseconds, rounded to nearest; the clock itself never is.
pub(super) fn nanoseconds(ps: i64) -> i64 {
    ps.saturating_add(500).div_euclid(1000)
}
