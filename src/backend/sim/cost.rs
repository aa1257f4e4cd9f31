//! How long an operation takes on simulated hardware.
//!
//! Compute: `launch_us + max(FLOPs / reachable arithmetic, bytes / reachable bandwidth)`. A collective:
//! `alpha_us + message bytes / (gb_s x 1e9)`. Times are whole picoseconds, so that sums are exact.

use crate::hardware::Profile;
use crate::model::DType;
use crate::plan::{Lane, Operation, Plan, Quantity, Step};

/// Picoseconds in a microsecond.
const PS_PER_US: f64 = 1e6;

/// What decides how long operations take.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Machine {
    launch_ps: f64,
    ps_per_flop: f64,
    ps_per_byte: f64,
    alpha_ps: f64,
    ps_per_message_byte: f64,
}

impl Machine {
    /// Of a profile, for arithmetic in `dtype` and all-reduces over `link` (alpha_us, gb_s).
    pub(super) fn new(profile: &Profile, dtype: DType, link: (f64, f64)) -> Self {
        Self {
            launch_ps: profile.launch_us * PS_PER_US,
            // 1 TFLOP/s is one FLOP a picosecond, 1 GB/s a thousandth of a byte a picosecond
            ps_per_flop: 1.0 / (profile.tflops.of(dtype) * profile.compute_efficiency),
            ps_per_byte: 1000.0 / (profile.hbm_gb_s * profile.hbm_efficiency),
            alpha_ps: link.0 * PS_PER_US,
            ps_per_message_byte: 1000.0 / link.1,
        }
    }

    /// How long one operation takes in one step (ps).
    fn duration(&self, operation: &Operation, step: &Numbers) -> i64 {
        let cost = &operation.cost;
        let ps = match operation.lane {
            Lane::Comm => self.alpha_ps + step.of(&cost.message_bytes) * self.ps_per_message_byte,
            Lane::Compute => {
                let bytes = step.of(&cost.bytes_read) + step.of(&cost.bytes_written);
                let arithmetic = step.of(&cost.flops) * self.ps_per_flop;
                self.launch_ps + arithmetic.max(bytes * self.ps_per_byte)
            }
        };
        // saturates; the lanes report times that do not fit
        ps.round() as i64
    }
}

/// A step's numbers in floating point: exact as far as it matters, and never an overflow.
struct Numbers {
    rows: f64,
    sequences: f64,
    kv_tokens: f64,
    pairs: f64,
}

impl Numbers {
    fn new(step: &Step) -> Self {
        let (sequences, new, context) =
            (step.sequences as f64, step.new_tokens as f64, step.context as f64);
        Self {
            rows: sequences * new,
            sequences,
            kv_tokens: sequences * context,
            pairs: sequences * (new * context - new * (new - 1.0) / 2.0),
        }
    }

    fn of(&self, quantity: &Quantity) -> f64 {
        quantity.fixed as f64
            + quantity.row as f64 * self.rows
            + quantity.sequence as f64 * self.sequences
            + quantity.kv_token as f64 * self.kv_tokens
            + quantity.pair as f64 * self.pairs
    }
}

/// How long each operation of a plan takes, kept up to date from step to step. Between decode steps
/// only the context grows, so only operations that depend on it are evaluated again.
#[derive(Debug)]
pub(super) struct Durations {
    machine: Machine,
    /// Of each operation (ps).
    pub(super) ps: Vec<i64>,
    /// Operations whose cost depends on the context.
    growing: Vec<u32>,
}

impl Durations {
    /// For a first step.
    pub(super) fn new(machine: Machine, plan: &Plan, step: &Step) -> Self {
        let numbers = Numbers::new(step);
        let grows = |operation: &Operation| {
            let cost = &operation.cost;
            [cost.flops, cost.bytes_read, cost.bytes_written, cost.message_bytes]
                .iter()
                .any(|quantity| quantity.kv_token > 0 || quantity.pair > 0)
        };
        Self {
            ps: plan.operations.iter().map(|o| machine.duration(o, &numbers)).collect(),
            growing: (0_u32..).zip(&plan.operations).filter(|(_, o)| grows(o)).map(|(i, _)| i).collect(),
            machine,
        }
    }

    /// For a step that differs from the last one in its context alone.
    pub(super) fn grow(&mut self, plan: &Plan, step: &Step) {
        let numbers = Numbers::new(step);
        for &index in &self.growing {
            let index = index as usize;
            self.ps[index] = self.machine.duration(&plan.operations[index], &numbers);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backend::sim::testing::{plan, shape_tiny};
    use crate::plan::{Architecture, Phase};

    #[test]
    fn compute_is_bound_by_arithmetic_or_by_memory_and_collectives_by_the_link() {
        let mut profile = Profile::load("h100_sxm").unwrap();
        (profile.launch_us, profile.hbm_gb_s, profile.hbm_efficiency) = (2.0, 1000.0, 0.5);
        (profile.tflops.bf16, profile.compute_efficiency) = (100.0, 0.5);
        let machine = Machine::new(&profile, DType::Bf16, (10.0, 4.0));
        let plan = plan(&Architecture::Standard, &shape_tiny(), 2, Phase::Decode);
        let mut operation = plan.operations[0].clone();
        let step = Numbers::new(&Step::decode(1, 8, 0));
        let fixed = |fixed| Quantity { fixed, ..Quantity::ZERO };
        operation.lane = Lane::Compute;
        operation.cost.flops = fixed(50_000_000); // 1 us at 50 TFLOP/s
        operation.cost.bytes_read = fixed(300_000); // with the written ones 0.8 us at 500 GB/s
        operation.cost.bytes_written = fixed(100_000);
        assert_eq!(machine.duration(&operation, &step), 3_000_000);
        operation.cost.bytes_written = fixed(700_000);
        assert_eq!(machine.duration(&operation, &step), 4_000_000);
        operation.lane = Lane::Comm;
        operation.cost.message_bytes = fixed(20_000); // 5 us at 4 GB/s
        assert_eq!(machine.duration(&operation, &step), 15_000_000);
    }

    #[test]
    fn growing_costs_are_the_same_as_fresh_ones() {
        let profile = Profile::load("h100_sxm").unwrap();
        let machine = Machine::new(&profile, DType::Bf16, (10.0, 4.0));
        let plan = plan(&Architecture::Standard, &shape_tiny(), 2, Phase::Decode);
        let mut durations = Durations::new(machine, &plan, &Step::decode(3, 1000, 0));
        let first = durations.ps.clone();
        let later = Step::decode(3, 1000, 200_000);
        durations.grow(&plan, &later);
        assert_eq!(durations.ps, Durations::new(machine, &plan, &later).ps);
        assert_ne!(durations.ps, first);
    }

    #[test]
    fn numbers_agree_with_the_plan_s_own_evaluation() {
        let step = Step { sequences: 3, new_tokens: 5, context: 12 };
        let quantity = Quantity { fixed: 1, row: 2, sequence: 3, kv_token: 5, pair: 7 };
        assert_eq!(Numbers::new(&step).of(&quantity), quantity.at(&step) as f64);
    }
}
