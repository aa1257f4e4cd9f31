//! A step of any plan with times that were measured: what the lanes do when a plan is wired in another way.
//!
//! The operations, their lanes and what each waits for are the plan's; how long each takes on each rank was measured,
//! and is given. Collectives start when the last rank has arrived, as in a simulation of ranks that differ.

use super::cost::Loads;
use super::lanes::Clock;
use super::skew::Skewed;
use machine::hardware::Skew;
use plan::{Lane, Plan};

/// What was measured of the operations of a plan, in one step. Times are in ns.
#[derive(Clone, Debug, PartialEq)]
pub struct Measured {
    /// When each rank begins the step.
    pub begin: Vec<i64>,
    /// How long each compute operation takes on each rank, where nothing else runs: by rank, then by operation.
    pub work: Vec<Vec<i64>>,
    /// The time before which an operation cannot end on a rank, because the host had not launched it: by rank, then by
    /// operation; empty for a rank of which that is not known.
    pub floors: Vec<Vec<i64>>,
    /// How long each collective takes from its last rank's arrival on, by operation; 0 for the others.
    pub transfer: Vec<i64>,
    /// Of a compute operation the share of its speed that it loses to a large collective, of a collective how much of
    /// that it causes (0 to 1), by operation.
    pub contention: Vec<f64>,
    /// Share of its speed that a collective loses to compute.
    pub comm_loss: f64,
}

/// One execution of an operation in a replayed step (ns).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Executed {
    /// The rank that executed it, from 0.
    pub rank: u32,
    /// Index of the operation in the plan.
    pub operation: usize,
    /// The lane on which it executed.
    pub lane: Lane,
    /// When everything that it waits for was there.
    pub ready: i64,
    /// When it started; of one that the host held up, as late as it could.
    pub start: i64,
    /// Of a collective, when the last rank arrived; its start elsewhere.
    pub arrival: i64,
    /// When it ended: nothing that waits for it starts earlier.
    pub end: i64,
}

/// Replays one step of `plan` on all ranks: what every rank executed, each lane's operations in order, and when the last
/// rank had the step's tokens (ns).
pub fn replay(plan: &Plan, measured: &Measured) -> (Vec<Executed>, i64) {
    let clocks: Vec<Clock> =
        measured.begin.iter().map(|&at| Clock { free: [at; 2], tokens: at }).collect();
    let mut ranks = Skewed::new(plan, Skew::default(), 0, 0, &clocks);
    let loads = Loads {
        ns: &measured.transfer,
        contention: &measured.contention,
        comm_loss: measured.comm_loss,
    };
    let mut executed = Vec::with_capacity(plan.operations.len() * clocks.len());
    ranks.measured_step(&measured.work, &measured.floors, loads, |rank, event| {
        // what the host held up did not run from its start on, but up to its end
        let floor = measured.floors[rank].get(event.operation).copied().unwrap_or(i64::MIN);
        let work = measured.work[rank][event.operation];
        let held = floor.saturating_sub(event.start).saturating_sub(work);
        let start = event.start + held.clamp(0, event.end - event.start);
        executed.push(Executed {
            rank: rank as u32,
            operation: event.operation,
            lane: event.lane,
            ready: event.ready,
            start,
            arrival: event.arrival.max(start),
            end: event.end,
        });
    });
    (executed, ranks.tokens())
}
