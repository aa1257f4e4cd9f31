//! Replay of one step of any plan with measured times, to predict a different wiring. Collectives start when the last
//! rank has arrived, as in a simulation with skew.

use super::cost::Loads;
use super::lanes::Clock;
use super::skew::Skewed;
use machine::hardware::Skew;
use plan::{Lane, Plan};

/// Measured times of a plan's operations in one step (ns).
#[derive(Clone, Debug, PartialEq)]
pub struct Measured {
    pub begin: Vec<i64>,
    /// Duration of each compute operation without contention, by rank, then by operation.
    pub work: Vec<Vec<i64>>,
    /// Earliest end of each operation because of its host launch, by rank, then by operation; empty if unknown for a
    /// rank.
    pub floors: Vec<Vec<i64>>,
    /// Duration of each collective from the last rank's arrival, by operation; 0 for other operations.
    pub transfer: Vec<i64>,
    /// Contention by operation (0 to 1): for compute, the share of its rate lost to a large collective; for a
    /// collective, how much of that loss it causes.
    pub contention: Vec<f64>,
    /// Share of its rate that a collective loses to compute.
    pub comm_loss: f64,
}

/// One executed operation of a replayed step; times in ns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Executed {
    pub rank: u32,
    pub operation: usize,
    pub lane: Lane,
    pub ready: i64,
    /// Start; if the host delayed the operation, the latest possible one.
    pub start: i64,
    /// Arrival of the last rank at a collective; otherwise the start.
    pub arrival: i64,
    pub end: i64,
}

/// Replays one step of `plan` on all ranks. Returns every executed operation, in order per lane, and the time at
/// which the last rank had the step's tokens (ns).
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
        // a delayed operation ran at the end of its interval, not at the start
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
