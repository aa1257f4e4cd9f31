//! A plan prepared for GPUs: lowered, with buffers assigned and names formatted, and the size of a step. Pure: no driver, no
//! memory.

use std::sync::Arc;

use base::error::{Error, Result};
use plan::{
    Buffer, BufferId, CommDType, DType, Element, Groups, Kind, Lane, Lowering, Operation, Plan,
    PlanSpec, Precision, Rows, ValueId,
};
#[cfg(test)]
use plan::{ModelShape, Phase};

/// A plan with the data shared by all ranks.
#[derive(Clone, Debug)]
pub struct GpuProgram {
    /// Plan, lowered for the native stack.
    pub plan: Plan,
    /// Format of activations and KV cache.
    pub dtype: DType,
    pub(super) precision: Precision,
    pub(super) comm_dtype: CommDType,
    /// Buffers for the values, reused as the plan's liveness allows.
    pub(super) buffers: Vec<Buffer>,
    pub(super) buffer_of: Vec<BufferId>,
    /// Operation names with their phase, for NVTX.
    pub(super) names: Arc<[String]>,
    /// Index of the first operation in the trace's operations table.
    pub base: u32,
}

impl GpuProgram {
    /// Builds a phase's program; `base` is the number of earlier operations in the trace's table. Returns an
    /// input error if TP does not divide the model.
    pub fn new(spec: &PlanSpec, base: u32) -> Result<Self> {
        let dtype = spec.precision.activations;
        let plan = Plan::new(spec).map_err(|problem| Error::input(problem.to_string()))?;
        let assigned = plan.buffers();
        let phase = plan.phase.as_str();
        let names = plan.operations.iter().map(|o| format!("{phase}/{}", o.name)).collect();
        let comm_dtype = spec.variant.comm_dtype;
        Ok(Self {
            buffers: assigned.buffers,
            buffer_of: assigned.of_value,
            names,
            dtype,
            precision: spec.precision,
            comm_dtype,
            base,
            plan,
        })
    }

    /// Lowering options for GPUs; `all_logits` keeps the logits of every prefill position.
    pub fn lowering(all_logits: bool) -> Lowering {
        Lowering { all_logits, fuse_add_norm: true, ..Lowering::default() }
    }

    #[cfg(test)]
    pub(super) fn plain(
        shape: &ModelShape,
        architecture: &str,
        tp: u32,
        dtype: DType,
        phase: Phase,
        all_logits: bool,
    ) -> Self {
        let architecture = architecture.parse().expect("an architecture");
        let cell = table::Spec { architecture, tp, ..table::Spec::default() };
        let spec = cell.plan(shape, phase, Precision::gpu(dtype), Self::lowering(all_logits));
        Self::new(&spec, 0).expect("a plan")
    }

    /// For each operation, true if a collective may be in flight while it computes: neither depends on the
    /// other. If ranks have no collectives at all, layers behave as if one were in flight.
    pub(super) fn beside_collectives(&self) -> Vec<bool> {
        if self.plan.tp > 1 && self.plan.operations.iter().all(|o| o.lane == Lane::Compute) {
            // an upper bound must not use SMs that plans with collectives lack
            return self.plan.operations.iter().map(|operation| operation.layer.is_some()).collect();
        }
        beside(&self.plan)
    }

    pub(super) fn buffer(&self, value: ValueId) -> usize {
        self.buffer_of[value.index()].0 as usize
    }

    /// Index of the buffer, after all values' buffers, for a rank's own part after its 8-bit round trip,
    /// which joins read.
    pub(super) fn own_part(&self) -> usize {
        self.buffers.len()
    }

    /// Own part that a join reads as an 8-bit message, if any.
    pub(super) fn eight_of_join(&self, operation: &Operation) -> Option<ValueId> {
        let is_join = matches!(operation.kind, Kind::Join { .. } | Kind::JoinNorm { .. });
        let part = operation.reads.get(3).copied().filter(|_| is_join)?;
        (self.plan.values[part.index()].element == Element::Eight).then_some(part)
    }

    /// Size of each buffer in a step of this size (bytes); 0 for tokens, which are in the step's state. The
    /// last one is [`GpuProgram::own_part`].
    pub(super) fn buffer_bytes(&self, size: &StepSize) -> Vec<u64> {
        // collectives exchange equal shares of all ranks
        let shares = if self.buffers.iter().any(|b| b.rows == Rows::Share) { self.plan.tp } else { 1 };
        let bytes = |buffer: &Buffer| {
            let size = size.of_group(self.plan.groups, buffer.group);
            let rows = match buffer.rows {
                Rows::Tokens => size.rows().next_multiple_of(shares),
                rows => size.rows_of(rows, 0, self.plan.tp),
            };
            let numbers = u64::from(rows).saturating_mul(u64::from(buffer.columns));
            match buffer.element {
                Element::Activation => numbers.saturating_mul(self.dtype.bytes()),
                Element::Logit => numbers.saturating_mul(4),
                Element::Eight => self.eight(buffer.columns).bytes(numbers),
                // tokens are in the state
                Element::Token => 0,
                Element::Choice => numbers.saturating_mul(8),
            }
        };
        let parts = self.plan.operations.iter().filter_map(|operation| self.eight_of_join(operation));
        let own_part = parts.map(|part| {
            let value = &self.plan.values[part.index()];
            let rows = size.of_group(self.plan.groups, value.group).rows();
            u64::from(rows) * u64::from(value.columns) * self.dtype.bytes()
        });
        let own_part = own_part.max().unwrap_or(0);
        self.buffers.iter().map(bytes).chain([own_part]).collect()
    }
}

/// For each operation of a plan, true if a collective may be in flight while it computes.
pub(super) fn beside(plan: &Plan) -> Vec<bool> {
    let clocks = plan.clocks();
    // for each collective, number of compute operations complete before it starts
    let comm = clocks.iter().filter(|(lane, ..)| *lane == Lane::Comm);
    let needed: Vec<u32> = comm.map(|(.., known)| known[Lane::Compute as usize]).collect();
    let beside = |(lane, _, known): &(Lane, u32, [u32; 2])| {
        // collectives end in order, so only the first unfinished one can be in flight
        let next = needed.get(known[Lane::Comm as usize] as usize);
        *lane == Lane::Compute && next.is_some_and(|needs| *needs <= known[Lane::Compute as usize])
    };
    clocks.iter().map(beside).collect()
}

/// Tokens of a step, or of a group's part of one: `tokens` new ones for each of `sequences` sequences,
/// starting at `first_sequence`, after the step's first `first_token` tokens. Their positions are in the
/// step's state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct StepSize {
    pub first_sequence: u32,
    pub sequences: u32,
    pub first_token: u32,
    pub tokens: u32,
}

impl StepSize {
    pub fn decode(sequences: u32) -> Self {
        Self::prefill((sequences, 1))
    }

    /// Whole step of so many sequences with so many new tokens each.
    pub fn prefill((sequences, tokens): (u32, u32)) -> Self {
        Self { first_sequence: 0, sequences, first_token: 0, tokens }
    }

    /// Part of the step that one group of the batch processes.
    pub fn of_group(&self, groups: Groups, group: u32) -> Self {
        let whole = if groups.of_tokens { self.tokens } else { self.sequences };
        let (first, count) = groups.part(whole.into(), group);
        let (first, count) = (first as u32, count as u32);
        match groups.of_tokens {
            true => Self { first_token: self.first_token + first, tokens: count, ..*self },
            false => Self { first_sequence: self.first_sequence + first, sequences: count, ..*self },
        }
    }

    /// Rows of an activation: one per new token of each sequence.
    pub fn rows(&self) -> u32 {
        self.sequences * self.tokens
    }

    /// Rows of a plan value on one of `tp` ranks. Rank 0 has the largest share.
    pub fn rows_of(&self, rows: Rows, rank: u32, tp: u32) -> u32 {
        match rows {
            Rows::Tokens => self.rows(),
            Rows::Sequences => self.sequences,
            Rows::Share => Rows::share(self.rows() as usize, rank, tp).len() as u32,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::Model;

    fn beside(architecture: &str, tp: u32) -> (GpuProgram, Vec<bool>) {
        let shape = Model::resolve("tiny").expect("built in").shape;
        let program = GpuProgram::plain(&shape, architecture, tp, DType::Bf16, Phase::Decode, false);
        let beside = program.beside_collectives();
        (program, beside)
    }

    #[test]
    fn standard_computes_alone_and_ladder_beside_its_all_reduces() {
        for (architecture, tp) in [("standard", 4), ("parallel", 2), ("ladder", 1), ("upper-bound", 1)] {
            let (_, beside) = beside(architecture, tp);
            assert!(beside.iter().all(|beside| !beside), "{architecture}");
        }
        let (program, beside) = beside("ladder", 4);
        let of = |name: &str| beside[program.plan.find(name).expect(name).index()];
        // the first module has none before it; from then on one is in flight until the head
        for name in ["embed/tokens", "L0/attn/qkv", "L0/attn/out", "head/logits", "head/sample"] {
            assert!(!of(name), "{name}");
        }
        for name in ["L0/mlp/gate_up", "L0/mlp/down", "L1/attn/qkv", "L3/attn/attend", "L3/mlp/down"] {
            assert!(of(name), "{name}");
        }
        // a bound that had all multiprocessors would be no bound of this
        let (program, beside) = self::beside("upper-bound", 4);
        let of = |name: &str| beside[program.plan.find(name).expect(name).index()];
        assert!(of("L0/mlp/down") && of("L3/attn/attend") && !of("head/logits"));
    }

    /// Against the plan's own notion of before, pair by pair.
    #[test]
    fn beside_means_neither_before_nor_after() {
        for architecture in
            ["standard", "ladder", "ladder:2", "stale:3", "parallel+ladder", "desync:2", "delayed:2"]
        {
            let (program, beside) = beside(architecture, 2);
            let plan = &program.plan;
            let ids = || (0..plan.operations.len() as u32).map(plan::OpId);
            for (id, beside) in ids().zip(&beside) {
                let is_comm = |op: &plan::OpId| plan.operations[op.index()].lane == Lane::Comm;
                let free = |c: plan::OpId| !plan.happens_before(c, id) && !plan.happens_before(id, c);
                let wanted = !is_comm(&id) && ids().filter(is_comm).any(free);
                assert_eq!(*beside, wanted, "{architecture} {}", plan.operations[id.index()].name);
            }
        }
    }
}
