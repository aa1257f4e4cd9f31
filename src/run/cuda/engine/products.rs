//! Matrix products of a decode step, and the latency of a captured layer.

use super::Engine;
use crate::cuda::choose::Product;
use crate::cuda::launches::Call;
use crate::cuda::multiply::MatvecChoice;
use crate::cuda::size::StepSize;
use base::error::Result;
use plan::{Element, Kind, Lane, Phase};

/// Number of layers to time: one if all layers stay in the L2 cache between steps, else enough to exceed it.
fn enough(layer_bytes: u64, layers: u32, l2_bytes: u64) -> u32 {
    if layer_bytes * u64::from(layers) <= l2_bytes {
        return 1;
    }
    (2 * l2_bytes).div_ceil(layer_bytes.max(1)).clamp(1, u64::from(layers.max(1))) as u32
}

impl Engine {
    /// One entry per product shape of a decode step, with the first local rank's memory.
    pub(in crate::cuda) fn products(&self) -> Result<Vec<Product>> {
        let program = &self.programs.decode;
        let plan = &program.plan;
        let (Some(rank), Some(activations)) = (self.ranks.first(), self.decode.activations.first())
        else {
            return Ok(Vec::new());
        };
        let whole = StepSize::decode(self.setup.sequences);
        let all = self.multiprocessors();
        let mut products: Vec<Product> = Vec::new();
        let matmuls = plan.operations.iter().zip(program.beside_collectives());
        for (operation, beside) in matmuls.filter(|(o, _)| o.kind == Kind::MatMul) {
            let size = whole.of_group(plan.groups, operation.group);
            let taken = if beside { self.taken_by_collectives(size.rows()) } else { 0 };
            let Some(weight) = operation.weight.map(|w| &plan.weights[w.index()]) else { continue };
            let out = &plan.values[operation.writes[0].index()];
            let (rows, logits) =
                (size.rows_of(out.rows, rank.index, plan.tp), out.element == Element::Logit);
            let format = program.precision.of_weight(weight, &self.setup.model.shape);
            let address = rank.weight(&weight.name)?;
            let same = |p: &&mut Product| {
                (p.rows, p.inputs, p.outputs, p.weight_format, p.logits)
                    == (rows, weight.inputs, weight.outputs, format, logits)
            };
            match products.iter_mut().find(same) {
                Some(known) => {
                    known.weights.push(address);
                    known.multiprocessors = known.multiprocessors.min(all.saturating_sub(taken).max(1));
                }
                None => products.push(Product {
                    rows,
                    inputs: weight.inputs,
                    outputs: weight.outputs,
                    weight_format: format,
                    logits,
                    whole: weight.is_whole(),
                    in_layer: operation.layer.is_some(),
                    multiprocessors: all.saturating_sub(taken).max(1),
                    x: activations.buffer(program.buffer(operation.reads[0])),
                    weights: vec![address],
                    out: activations.buffer(program.buffer(operation.writes[0])),
                }),
            }
        }
        Ok(products)
    }

    /// Latency of a layer in a graph (us) without its collectives, with products as `matvec` selects. Resets
    /// generation and overwrites activations.
    pub(in crate::cuda) fn layer_us(&self, matvec: &MatvecChoice) -> Result<f64> {
        let plan = &self.programs.decode.plan;
        let size = StepSize::decode(self.setup.sequences);
        let first = plan.operations.iter().filter(|operation| operation.layer == Some(0));
        let weights = first.filter_map(|operation| operation.weight).map(|w| &plan.weights[w.index()]);
        let precision = self.programs.decode.precision;
        let bytes = weights.map(|w| precision.weight_bytes(w, &self.setup.model.shape)).sum();
        let layers = enough(bytes, self.setup.model.shape.layers, self.gpu.info().l2_bytes);
        let calls = self.bind(self.kernels.of(false), Phase::Decode, &size, matvec)?;
        let of_layers = |at: usize| {
            let operation = &plan.operations[at];
            operation.lane == Lane::Compute
                && !operation.kind.is_collective()
                && operation.layer.is_some_and(|layer| layer < layers)
        };
        let calls = calls.into_iter().next().unwrap_or_default().into_iter().enumerate();
        let mut chain: Vec<Call> =
            calls.filter(|(at, _)| of_layers(*at)).flat_map(|(_, calls)| calls).collect();
        let mut follows_a_kernel = false;
        for call in &mut chain {
            if let Call::Kernel { launch, .. } = call {
                launch.programmatic &= follows_a_kernel;
            }
            follows_a_kernel = matches!(call, Call::Kernel { .. });
        }
        self.reset()?;
        Ok(self.graph_us(&mut [], &mut chain, 1)? / f64::from(layers))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn layers_are_as_many_as_a_step_reads_from_memory() {
        let l2 = 50 << 20;
        // all of them stay there; each is beyond it; some are
        assert_eq!(enough(1 << 20, 12, l2), 1);
        assert_eq!(enough(200 << 20, 80, l2), 1);
        assert_eq!(enough(7 << 20, 30, l2), 15);
        // there are no more
        assert_eq!(enough(26 << 20, 2, l2), 2);
        assert_eq!(enough(0, 0, l2), 1);
    }
}
