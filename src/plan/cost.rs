//! Costs of operations: FLOPs and bytes, affine in the few numbers that describe a step.

use serde::{Deserialize, Serialize};

use super::builder::Builder;
use super::{
    Element, ExpertLoad, Kind, Phase, RoutedWeights, Rows, SCALED_TOGETHER, Step, ValueId, Variant,
    Weight, WeightId,
};

/// Amount that depends on the step: `fixed + row x rows + sequence x sequences + kv_token x kv_tokens +
/// pair x pairs`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(default)]
pub struct Quantity {
    /// Independent of the step (weights).
    pub fixed: u64,
    /// Per row of an activation (sequence and new token).
    pub row: u64,
    pub sequence: u64,
    /// Per token in the KV cache, over all sequences.
    pub kv_token: u64,
    /// Per query-key pair under the causal mask, of one head.
    pub pair: u64,
    /// Tokens that a query sees at most, including its own; 0 if it sees all.
    #[serde(skip_serializing_if = "is_zero")]
    pub window: u32,
}

fn is_zero(n: &u32) -> bool {
    *n == 0
}

impl Quantity {
    pub const ZERO: Self = Self { fixed: 0, row: 0, sequence: 0, kv_token: 0, pair: 0, window: 0 };

    pub fn times(&self, n: u64) -> Self {
        Self {
            fixed: n * self.fixed,
            row: n * self.row,
            sequence: n * self.sequence,
            kv_token: n * self.kv_token,
            pair: n * self.pair,
            window: self.window,
        }
    }

    pub fn at(&self, step: &Step) -> u64 {
        self.fixed
            + self.row * step.rows()
            + self.sequence * step.sequences
            + self.kv_token * step.limited_to_window(self.window).kv_tokens()
            + self.pair * step.pairs_in_window(self.window)
    }
}

impl std::ops::Add for Quantity {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self {
            fixed: self.fixed + other.fixed,
            row: self.row + other.row,
            sequence: self.sequence + other.sequence,
            kv_token: self.kv_token + other.kv_token,
            pair: self.pair + other.pair,
            window: self.window.max(other.window),
        }
    }
}

impl std::ops::AddAssign for Quantity {
    fn add_assign(&mut self, other: Self) {
        *self = *self + other;
    }
}

/// FLOPs and bytes of one operation on one rank.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(default)]
pub struct Cost {
    /// Floating-point operations; a multiply-add counts as two.
    pub flops: Quantity,
    /// Bytes read from memory: weights, activations, KV cache.
    pub bytes_read: Quantity,
    /// Bytes written to memory: activations and new KV cache entries.
    pub bytes_written: Quantity,
    /// Message size of a collective in bytes (not bus bytes); 0 for compute.
    pub message_bytes: Quantity,
    /// Weights of routed experts, which [`Self::bytes_read`] leaves out: see [`Self::read`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub routed: Option<RoutedWeights>,
}

impl Cost {
    /// Bytes read in a step, with the weights of the experts that its rows are expected to touch.
    pub fn read(&self, step: &Step, load: &ExpertLoad) -> f64 {
        let routed = self.routed.map_or(0.0, |routed| routed.bytes(step.rows(), load));
        self.bytes_read.at(step) as f64 + routed
    }
}

impl std::ops::Add for Cost {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self {
            flops: self.flops + other.flops,
            bytes_read: self.bytes_read + other.bytes_read,
            bytes_written: self.bytes_written + other.bytes_written,
            message_bytes: self.message_bytes + other.message_bytes,
            routed: self.routed.or(other.routed),
        }
    }
}

impl Builder<'_> {
    /// Bytes of one row of a value.
    pub(super) fn row_bytes(&self, columns: u32, element: Element) -> u64 {
        match element {
            Element::Activation => u64::from(columns) * self.spec.precision.activations.bytes(),
            Element::Logit | Element::Token => u64::from(columns) * 4,
            Element::Choice => u64::from(columns) * 8,
            Element::Eight => u64::from(columns) + 4 * u64::from(columns.div_ceil(SCALED_TOGETHER)),
        }
    }

    /// `n` for each row of a value.
    pub(super) fn per_row(&self, rows: Rows, n: u64) -> Quantity {
        match rows {
            Rows::Tokens => Quantity { row: n, ..Quantity::ZERO },
            Rows::Sequences => Quantity { sequence: n, ..Quantity::ZERO },
            // mean share over ranks, so that costs stay affine
            Rows::Share => Quantity { row: n.div_ceil(self.spec.tp.into()), ..Quantity::ZERO },
        }
    }

    /// FLOPs and bytes on one rank; operands and weights are read once, results written once.
    pub(super) fn cost(
        &self,
        kind: &Kind,
        reads: &[ValueId],
        (rows, columns, element): (Rows, u32, Element),
        weights: &[WeightId],
    ) -> Cost {
        let operands = reads.iter().map(|value| self.operand_bytes(kind, *value, columns));
        let mut cost = Cost {
            bytes_read: operands.fold(Quantity::ZERO, std::ops::Add::add),
            bytes_written: self.per_row(rows, self.row_bytes(columns, element)),
            ..Cost::default()
        };
        let weights: Vec<&Weight> = weights.iter().map(|id| &self.weights[id.index()]).collect();
        if *kind == Kind::Experts {
            self.experts_cost(&mut cost, &weights);
            return cost;
        }
        for weight in weights {
            self.weight_cost(&mut cost, kind, rows, weight);
        }
        if kind.is_collective() {
            self.collective_cost(&mut cost, kind, reads, (rows, columns, element));
        } else if kind.is_attention() {
            self.attention_cost(&mut cost, kind);
        } else {
            self.row_cost(&mut cost, kind, reads, (rows, columns));
        }
        cost
    }

    fn operand_bytes(&self, kind: &Kind, value: ValueId, result_columns: u32) -> Quantity {
        let value = &self.values[value.index()];
        // a selection reads only the rows it keeps
        let rows = if *kind == Kind::SelectLast { Rows::Sequences } else { value.rows };
        // a narrow reads only the columns it keeps
        let columns = if *kind == Kind::Narrow { result_columns } else { value.columns };
        self.per_row(rows, self.row_bytes(columns, value.element))
    }

    fn weight_cost(&self, cost: &mut Cost, kind: &Kind, rows: Rows, weight: &Weight) {
        let (precision, shape) = (self.spec.precision, &self.spec.shape);
        cost.bytes_read += match kind {
            Kind::Embed => {
                let number = precision.of_weight(weight, shape).bytes();
                self.per_row(rows, u64::from(weight.inputs) * number)
            }
            _ => Quantity { fixed: precision.weight_bytes(weight, shape), ..Quantity::ZERO },
        };
        let numbers = u64::from(weight.inputs) * u64::from(weight.outputs);
        match kind {
            Kind::MatMul if weight.inputs == 1 => cost.flops += self.per_row(rows, numbers),
            Kind::MatMul | Kind::Router => cost.flops += self.per_row(rows, 2 * numbers),
            _ => {}
        }
    }

    /// Numbers of a rank's keys, or of its values, for one token.
    fn kv_columns(&self) -> u64 {
        let shape = &self.spec.shape;
        u64::from(shape.kv_heads_of(self.spec.tp)) * u64::from(shape.head_dim)
    }

    /// Numbers of a rank's queries for one token.
    fn query_columns(&self) -> u64 {
        let shape = &self.spec.shape;
        u64::from(shape.heads / self.spec.tp) * u64::from(shape.head_dim)
    }

    /// Operations whose work is the same for each row.
    fn row_cost(&self, cost: &mut Cost, kind: &Kind, reads: &[ValueId], (rows, columns): (Rows, u32)) {
        let per = |n: u64| self.per_row(rows, n);
        let columns = u64::from(columns);
        let (queries, kv) = (self.query_columns(), self.kv_columns());
        let rotation = 3 * (queries + kv);
        match kind {
            Kind::Norm | Kind::SigmoidMul => cost.flops = per(4 * columns),
            Kind::Add | Kind::MeanShare => cost.flops = per(columns),
            Kind::AddMean => cost.flops = per(2 * columns),
            Kind::Join { .. } => cost.flops = per(reads.len() as u64 * columns),
            Kind::SiluMul { .. } => cost.flops = per(5 * columns),
            Kind::RopeAppend | Kind::BiasRopeAppend | Kind::NormRopeAppend | Kind::Append => {
                cost.flops = per(match kind {
                    Kind::Append => queries,
                    Kind::BiasRopeAppend => queries + 2 * kv + rotation,
                    Kind::NormRopeAppend => 4 * (queries + kv) + rotation,
                    _ => rotation,
                });
                cost.bytes_written += per(2 * kv * self.spec.precision.kv.bytes());
            }
            Kind::LatentAppend => {
                cost.flops = per(7 * columns);
                cost.bytes_written += per(columns * self.spec.precision.kv.bytes());
            }
            // per number: absolute value, maximum of its scale group, product, rounding
            Kind::Quantize { .. } => cost.flops = per(4 * columns),
            Kind::Sample => cost.flops = per(self.values[reads[0].index()].columns.into()),
            _ => {}
        }
    }

    fn attention_cost(&self, cost: &mut Cost, kind: &Kind) {
        let heads = u64::from(self.spec.shape.heads / self.spec.tp);
        if *kind == Kind::LatentAttend {
            return self.latent_cost(cost, heads);
        }
        let window = if let Kind::WindowAttend { tokens, .. } = kind { *tokens } else { 0 };
        // q k^T and p v: two multiply-adds a pair and column; softmax: about 5 a pair
        let pair = heads * (4 * u64::from(self.spec.shape.head_dim) + 5);
        cost.flops = Quantity { pair, window, ..Quantity::ZERO };
        let kv_token = 2 * self.kv_columns() * self.spec.precision.kv.bytes();
        cost.bytes_read += Quantity { kv_token, window, ..Quantity::ZERO };
    }

    fn collective_cost(
        &self,
        cost: &mut Cost,
        kind: &Kind,
        reads: &[ValueId],
        (rows, columns, element): (Rows, u32, Element),
    ) {
        let operand = &self.values[reads[0].index()];
        cost.message_bytes = match kind {
            Kind::AllGather | Kind::Dispatch => cost.bytes_written,
            Kind::Combine => self.per_row(rows, self.row_bytes(operand.columns, element)),
            _ => cost.bytes_read,
        };
        match kind {
            Kind::Combine => cost.flops = self.per_row(rows, operand.columns.into()),
            Kind::AllReduce | Kind::ReduceScatter if operand.element == Element::Eight => {
                let ranks = u64::from(self.spec.tp);
                // each rank reads its part of all ranks' messages, scales and adds
                let read = if rows == Rows::Share { 1 } else { ranks };
                cost.bytes_read = cost.message_bytes.times(read);
                cost.flops = self.per_row(rows, 2 * ranks * u64::from(columns));
            }
            _ => {}
        }
    }

    /// Attention over latents. A decode step absorbs the up projections into queries and results and
    /// attends to the latents themselves; a prefill expands keys and values of its new tokens.
    fn latent_cost(&self, cost: &mut Cost, heads: u64) {
        let Some(latent) = self.spec.shape.attention.latent else { return };
        let [rank, rope, nope, value] =
            [latent.kv_rank, latent.rope_dim, latent.nope_dim, latent.value_dim].map(u64::from);
        let pair = match self.spec.phase {
            Phase::Decode => 2 * (rank + rope) + 2 * rank + 5,
            Phase::Prefill => 2 * (nope + rope) + 2 * value + 5,
        };
        let row = heads * 2 * rank * (nope + value);
        cost.flops = Quantity { pair: heads * pair, row, ..Quantity::ZERO };
        let kv_token = (rank + rope) * self.spec.precision.kv.bytes();
        cost.bytes_read += Quantity { kv_token, ..Quantity::ZERO };
    }

    /// Routed experts: work on the mean over ranks, and weights by the experts that tokens touch. Besides
    /// its operands each choice reads and writes gate, up, the activation and its summand.
    fn experts_cost(&self, cost: &mut Cost, weights: &[&Weight]) {
        let (spec, Some(experts)) = (self.spec, &self.spec.shape.experts) else { return };
        let Variant { ep, dp, .. } = spec.variant;
        let (hidden, width) = (u64::from(spec.shape.hidden), u64::from(experts.width));
        let slices = if ep == 1 { spec.tp } else { 1 };
        // a rank's choices per row of its own; all have a slice of every expert, or some whole experts
        let choices = |n: u64| (n * u64::from(experts.top_k) * u64::from(dp)).div_ceil(ep.into());
        let columns = width / u64::from(slices);
        let per = |n: u64| self.per_row(Rows::Tokens, choices(n));
        let number = spec.precision.activations.bytes();
        cost.flops = per(6 * hidden * columns + 5 * columns + 2 * hidden);
        cost.bytes_read += per((3 * columns + hidden) * number);
        cost.bytes_written += per((3 * columns + hidden) * number);
        let bytes: u64 = weights.iter().map(|w| spec.precision.weight_bytes(w, &spec.shape)).sum();
        let expert_bytes = bytes / u64::from((experts.count / ep).max(1));
        let (count, top_k) = (experts.count, experts.top_k);
        cost.routed = Some(RoutedWeights { experts: count, top_k, ep, dp, expert_bytes });
    }
}

#[cfg(test)]
mod tests {
    use crate::tests::{plan, spec};
    use crate::*;

    #[test]
    fn costs_are_those_of_the_arithmetic() {
        let plan = plan("standard", 2, 2);
        let step = Step::decode(3, 10, 0); // 3 rows, context 11
        let cost = |name: &str| plan.operations[plan.find(name).unwrap().index()].cost;
        // down: 24 of 48 inputs, 32 outputs, bf16
        let down = cost("L1/mlp/down");
        assert_eq!(down.flops.at(&step), 2 * 3 * 24 * 32);
        assert_eq!(down.bytes_read.at(&step), 2 * (24 * 32 + 3 * 24));
        assert_eq!(down.bytes_written.at(&step), 2 * 3 * 32);
        // attention: 4 query and 2 KV heads of width 8 a rank
        let attend = cost("L0/attn/attend");
        assert_eq!(attend.flops.at(&step), 3 * 11 * 4 * (4 * 8 + 5));
        assert_eq!(attend.bytes_read.at(&step), 2 * 3 * 32 + 2 * (3 * 11) * 2 * 2 * 8);
        // the message of an all-reduce is the residual
        assert_eq!(cost("L0/attn/all_reduce").message_bytes.at(&step), 2 * 3 * 32);
        // causal prefill: 1 + 2 + ... + 10 pairs a sequence
        assert_eq!(Step::prefill(3, 10).pairs(), 3 * 55);
    }

    #[test]
    fn fp8_weights_are_a_byte_a_number_and_a_scale_an_output() {
        let plan = |tied| {
            let mut spec = spec(&Architecture::Standard, 2, 2, Phase::Decode);
            spec.shape.tied_embeddings = tied;
            spec.precision = Precision::gpu(DType::Fp8);
            (Plan::new(&spec).unwrap(), spec)
        };
        let step = Step::decode(3, 10, 0);
        let read = |plan: &Plan, name: &str| {
            plan.operations[plan.find(name).unwrap().index()].cost.bytes_read.at(&step)
        };
        let (own, spec) = plan(false);
        // activations stay bf16
        assert_eq!(read(&own, "L1/mlp/down"), 24 * 32 + 4 * 32 + 2 * 3 * 24);
        assert_eq!(read(&own, "head/logits"), 64 * 32 + 4 * 64 + 2 * 3 * 32);
        // embedding and norms too
        assert_eq!(read(&own, "embed/tokens"), 3 * (4 + 2 * 32));
        assert_eq!(read(&own, "L0/attn/norm"), 2 * 32 + 2 * 3 * 32);
        let (tied, of_tied) = plan(true);
        assert_eq!(read(&tied, "head/logits"), 2 * 64 * 32 + 2 * 3 * 32);
        // of a rank: 32 numbers of each of 5 norms, 64 rows of the embedding, and of each layer four matrices
        let layer = (64 + 2 * 32) / 2 * 32 + 32 * 32 + 96 / 2 * 32 + 32 * 24;
        let scales = 4 * ((64 + 2 * 32) / 2 + 32 + 96 / 2 + 32);
        let rest = 2 * (5 * 32 + 64 * 32);
        let bytes = |plan: &Plan, spec: &PlanSpec| plan.weight_bytes(spec.precision, &spec.shape);
        assert_eq!(bytes(&own, &spec), 2 * (layer + scales) + rest + 64 * 32 + 4 * 64);
        assert_eq!(bytes(&tied, &of_tied), 2 * (layer + scales) + rest + 2 * 64 * 32);
    }

    #[test]
    fn weights_in_blocks_and_in_4_bits_have_their_scales_beside_them_and_leave_the_head() {
        let own = |dtype: DType| {
            let mut spec = spec(&Architecture::Standard, 2, 2, Phase::Decode);
            spec.precision = Precision::gpu(dtype);
            (Plan::new(&spec).unwrap(), spec)
        };
        let step = Step::decode(3, 10, 0);
        // down: 32 outputs of 24 inputs a rank
        for (dtype, down) in [
            (DType::Fp8Block, 24 * 32 + 4),
            (DType::Nvfp4, 24 * 32 / 2 + 2 * 32 + 4),
            (DType::Mxfp4, 24 * 32 / 2 + 32),
        ] {
            let (plan, spec) = own(dtype);
            let read =
                |name: &str| plan.operations[plan.find(name).unwrap().index()].cost.bytes_read.at(&step);
            assert_eq!(read("L1/mlp/down"), down + 2 * 3 * 24, "{dtype}");
            // head, embedding and activations are bf16
            assert_eq!(read("head/logits"), 2 * 64 * 32 + 2 * 3 * 32, "{dtype}");
            let weight = &plan.weights
                [plan.operations[plan.find("L1/mlp/down").unwrap().index()].weight.unwrap().index()];
            assert_eq!(spec.precision.weight_bytes(weight, &spec.shape), down, "{dtype}");
        }
        // blocks at the edge have scales too
        assert_eq!(DType::Fp8Block.matrix_bytes(256, 384), 256 * 384 + 4 * 2 * 3);
        assert_eq!(DType::Fp8Block.matrix_bytes(129, 128), 129 * 128 + 4 * 2);
    }

    #[test]
    fn an_fp8_cache_halves_what_attention_reads_and_is_written() {
        let mut spec = spec(&Architecture::Standard, 2, 2, Phase::Decode);
        let plain = Plan::new(&spec).unwrap();
        spec.precision = spec.precision.with_kv(KvDType::Fp8);
        let eight = Plan::new(&spec).unwrap();
        let step = Step::decode(3, 10, 0);
        let cost = |plan: &Plan, name: &str| plan.operations[plan.find(name).unwrap().index()].cost;
        // 2 KV heads of width 8 a rank, 11 tokens of each of 3 sequences
        let read = |plan: &Plan| cost(plan, "L0/attn/attend").bytes_read.at(&step);
        assert_eq!(read(&plain) - read(&eight), (3 * 11) * 2 * 2 * 8);
        let written = |plan: &Plan| cost(plan, "L0/attn/rope").bytes_written.at(&step);
        assert_eq!(written(&plain) - written(&eight), 3 * 2 * 2 * 8);
    }

    #[test]
    fn fusing_saves_the_second_read_of_the_sum() {
        let mut spec = spec(&Architecture::Ladder(LayerSet::All), 3, 2, Phase::Decode);
        let plain = Plan::new(&spec).unwrap();
        spec.lowering.fuse_add_norm = true;
        let fused = Plan::new(&spec).unwrap();
        let step = Step::decode(1, 8, 0);
        let bytes = |plan: &Plan| -> u64 {
            plan.operations
                .iter()
                .map(|o| o.cost.bytes_read.at(&step) + o.cost.bytes_written.at(&step))
                .sum()
        };
        let pairs = plain.operations.len() - fused.operations.len();
        assert!(pairs > 0);
        assert_eq!(bytes(&plain) - bytes(&fused), pairs as u64 * 2 * 32);
        let flops =
            |plan: &Plan| -> u64 { plan.operations.iter().map(|o| o.cost.flops.at(&step)).sum() };
        assert_eq!(flops(&plain), flops(&fused));
    }
}
