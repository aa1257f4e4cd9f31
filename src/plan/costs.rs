//! FLOPs and bytes of the operations that the builder emits.

use super::builder::Builder;
use super::{
    Cost, Element, Kind, Phase, Quantity, RoutedWeights, Rows, SCALED_TOGETHER, ValueId, Variant,
    Weight, WeightId,
};

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
        let precision = self.spec.precision;
        let bytes = |columns: u32, element: Element| self.row_bytes(columns, element);
        let ranks = u64::from(self.spec.tp);
        let per = |rows: Rows, n: u64| self.per_row(rows, n);
        let fixed = |n: u64| Quantity { fixed: n, ..Quantity::ZERO };
        let mut cost = Cost {
            // a narrowed value is read as far as it is kept
            bytes_read: reads.iter().fold(Quantity::ZERO, |sum, value| {
                let value = &self.values[value.index()];
                // a selection reads only the rows it keeps
                let rows = if *kind == Kind::SelectLast { Rows::Sequences } else { value.rows };
                let columns = if *kind == Kind::Narrow { columns } else { value.columns };
                sum + per(rows, bytes(columns, value.element))
            }),
            bytes_written: per(rows, bytes(columns, element)),
            ..Cost::default()
        };
        let columns = u64::from(columns);
        let shape = &self.spec.shape;
        let weights = weights.iter().map(|weight| &self.weights[weight.index()]);
        for weight in weights.clone().filter(|_| *kind != Kind::Experts) {
            let numbers = u64::from(weight.inputs) * u64::from(weight.outputs);
            if *kind == Kind::Embed {
                let row = u64::from(weight.inputs) * precision.of_weight(weight, shape).bytes();
                cost.bytes_read = cost.bytes_read + per(rows, row);
            } else {
                cost.bytes_read = cost.bytes_read + fixed(precision.weight_bytes(weight, shape));
            }
            match kind {
                Kind::MatMul if weight.inputs == 1 => cost.flops = cost.flops + per(rows, numbers),
                Kind::MatMul | Kind::Router => cost.flops = cost.flops + per(rows, 2 * numbers),
                _ => {}
            }
        }
        let head_dim = u64::from(shape.head_dim);
        let heads = u64::from(shape.heads / self.spec.tp);
        let kv = u64::from(shape.kv_heads_of(self.spec.tp)) * head_dim;
        match kind {
            Kind::Norm => cost.flops = per(rows, 4 * columns),
            Kind::Add => cost.flops = per(rows, columns),
            Kind::AddMean => cost.flops = per(rows, 2 * columns),
            Kind::MeanShare => cost.flops = per(rows, columns),
            Kind::Join { .. } => cost.flops = per(rows, reads.len() as u64 * columns),
            Kind::SiluMul { .. } => cost.flops = per(rows, 5 * columns),
            Kind::RopeAppend | Kind::BiasRopeAppend | Kind::NormRopeAppend => {
                let before = match kind {
                    Kind::BiasRopeAppend => heads * head_dim + 2 * kv,
                    Kind::NormRopeAppend => 4 * (heads * head_dim + kv),
                    _ => 0,
                };
                cost.flops = per(rows, before + 3 * (heads * head_dim + kv));
                cost.bytes_written = cost.bytes_written + per(rows, 2 * kv * precision.kv.bytes());
            }
            Kind::Attend => {
                // q k^T and p v: two multiply-adds a pair and column; softmax: about 5 a pair
                let flops = heads * (4 * head_dim + 5);
                cost.flops = Quantity { pair: flops, ..Quantity::ZERO };
                let cache = Quantity { kv_token: 2 * kv * precision.kv.bytes(), ..Quantity::ZERO };
                cost.bytes_read = cost.bytes_read + cache;
            }
            Kind::WindowAttend { tokens, .. } => {
                let (pair, window) = (heads * (4 * head_dim + 5), *tokens);
                cost.flops = Quantity { pair, window, ..Quantity::ZERO };
                let kv_token = 2 * kv * precision.kv.bytes();
                cost.bytes_read = cost.bytes_read + Quantity { kv_token, window, ..Quantity::ZERO };
            }
            Kind::LatentAppend => {
                cost.flops = per(rows, 7 * columns);
                cost.bytes_written = cost.bytes_written + per(rows, columns * precision.kv.bytes());
            }
            Kind::LatentAttend => self.latent_cost(&mut cost, heads),
            Kind::SigmoidMul => cost.flops = per(rows, 4 * columns),
            Kind::Experts => self.experts_cost(&mut cost, weights.cloned().collect()),
            Kind::Dispatch => cost.message_bytes = cost.bytes_written,
            Kind::Combine => {
                let bytes = self.values[reads[0].index()].columns;
                cost.message_bytes = per(rows, self.row_bytes(bytes, element));
                cost.flops = per(rows, u64::from(bytes));
            }
            // per number: absolute value, maximum of its scale group, product, rounding
            Kind::Quantize { .. } => cost.flops = per(rows, 4 * columns),
            Kind::AllGather => cost.message_bytes = cost.bytes_written,
            Kind::AllReduce | Kind::ReduceScatter => {
                cost.message_bytes = cost.bytes_read;
                if self.values[reads[0].index()].element == Element::Eight {
                    // each rank reads its part of all ranks' messages, scales and adds
                    let read = if rows == Rows::Share { 1 } else { ranks };
                    cost.bytes_read = cost.message_bytes.times(read);
                    cost.flops = per(rows, 2 * ranks * columns);
                }
            }
            Kind::Sample => {
                let logits = self.values[reads[0].index()].columns;
                cost.flops = per(rows, u64::from(logits));
            }
            _ => {}
        }
        cost
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
        cost.bytes_read = cost.bytes_read + Quantity { kv_token, ..Quantity::ZERO };
    }

    /// Routed experts: work on the mean over ranks, and weights by the experts that tokens touch. Besides
    /// its operands each choice reads and writes gate, up, the activation and its summand.
    fn experts_cost(&self, cost: &mut Cost, weights: Vec<Weight>) {
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
        cost.bytes_read = cost.bytes_read + per((3 * columns + hidden) * number);
        cost.bytes_written = cost.bytes_written + per((3 * columns + hidden) * number);
        let bytes: u64 = weights.iter().map(|w| spec.precision.weight_bytes(w, &spec.shape)).sum();
        let expert_bytes = bytes / u64::from((experts.count / ep).max(1));
        let (count, top_k) = (experts.count, experts.top_k);
        cost.routed = Some(RoutedWeights { experts: count, top_k, ep, dp, expert_bytes });
    }
}
