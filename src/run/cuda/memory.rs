//! GPU memory of one rank: weights, KV cache, step state, activations and scratch; and its estimate without a GPU.
//!
//! Ranks on one device share tensors that are not split (norms, embedding, head). A tied head shares the embedding's memory.

use std::collections::HashMap;
use std::sync::Arc;

use crate::cuda::blas::WORKSPACE_BYTES;
use crate::cuda::kernels::geometry;
use crate::cuda::program::{GpuProgram, StepSize};
use crate::cuda::{experts, fp8};
use crate::generate::Sampling;
use base::error::{Error, Result};
use machine::driver::{DevicePtr, Gpu, Memory};
use machine::hardware::MemoryNeed;
use plan::{DType, Lowering, ModelShape, Phase, Plan, Precision, Tensor, Weight};
use table::Spec;

/// Sizes that do not follow from the plans.
#[derive(Clone, Copy, Debug)]
pub(super) struct MemorySizes {
    pub dtype: DType,
    pub tp: u32,
    /// Number of sequences decoded together.
    pub batch: u32,
    /// KV-cache capacity per sequence (tokens).
    pub capacity: u32,
    /// New tokens per sequence.
    pub output_tokens: u32,
    /// Sequences, and new tokens of each, in the largest prefill step.
    pub prefill: (u32, u32),
    pub sampling: Sampling,
    /// SMs available to decode attention.
    pub multiprocessors: u32,
}

impl MemorySizes {
    /// Size of one layer's keys, or of its values (bytes).
    fn cache_bytes(&self, shape: &ModelShape) -> u64 {
        let columns = u64::from(shape.kv_heads_of(self.tp)) * u64::from(shape.head_dim);
        let tokens = u64::from(self.batch).saturating_mul(u64::from(self.capacity));
        tokens.saturating_mul(columns * self.dtype.bytes())
    }

    pub fn splits(&self, shape: &ModelShape) -> u32 {
        let kv_heads = shape.kv_heads_of(self.tp);
        geometry::splits(self.batch, kv_heads, self.capacity, self.multiprocessors)
    }

    /// Size of decode attention's partial sums (bytes).
    fn partial_bytes(&self, shape: &ModelShape) -> u64 {
        let heads = u64::from(self.batch) * u64::from(shape.heads / self.tp);
        heads * u64::from(self.splits(shape)) * (u64::from(shape.head_dim) + 2) * 4
    }

    /// Size of the RoPE table (bytes): a pair of f32 per position and half a head.
    fn rope_bytes(&self, shape: &ModelShape) -> u64 {
        u64::from(self.capacity) * u64::from(shape.head_dim) * 4
    }

    fn step(&self, program: &GpuProgram) -> StepSize {
        match program.plan.phase {
            Phase::Prefill => StepSize::prefill(self.prefill),
            Phase::Decode => StepSize::decode(self.batch),
        }
    }

    pub fn buffers(&self, program: &GpuProgram) -> Vec<u64> {
        program.buffer_bytes(&self.step(program))
    }

    /// Gather buffer (bytes) for the 8-bit messages and sharded logits of all ranks; 0 if all ranks are
    /// local.
    pub fn gathered_bytes(&self, prefill: &GpuProgram, decode: &GpuProgram, local_ranks: u32) -> u64 {
        let of_program = |program: &GpuProgram| {
            let size = self.step(program);
            program.eight_bytes(&size).max(program.columns_bytes(&size))
        };
        let longest = of_program(prefill).max(of_program(decode));
        if local_ranks == 1 { longest * u64::from(self.tp) } else { 0 }
    }

    /// Largest fp8 weight of a rank that a step expands (bytes).
    pub fn expanded_bytes(&self, shape: &ModelShape, prefill: &GpuProgram, decode: &GpuProgram) -> u64 {
        let of_program = |program: &GpuProgram| fp8::expanded_bytes(program, shape, &self.step(program));
        of_program(prefill).max(of_program(decode))
    }

    /// Scratch of a rank's experts (bytes).
    pub fn expert_bytes(&self, shape: &ModelShape, prefill: &GpuProgram, decode: &GpuProgram) -> u64 {
        let of_program =
            |program: &GpuProgram| experts::scratch_bytes(shape, program, &self.step(program));
        of_program(prefill).max(of_program(decode))
    }

    /// Memory of all local ranks; `workspace` is the memory of libraries.
    pub fn need(
        &self,
        shape: &ModelShape,
        prefill: &GpuProgram,
        decode: &GpuProgram,
        local_ranks: u32,
        workspace: u64,
    ) -> MemoryNeed {
        let ranks = u64::from(local_ranks);
        let bytes = |weight: &Weight| decode.precision.weight_bytes(weight, shape);
        let is_tied_head =
            |w: &Weight| shape.tied_embeddings && w.parts.iter().any(|p| p.tensor == Tensor::Head);
        let weights = decode.plan.weights.iter().filter(|w| !is_tied_head(w));
        let weights = weights.fold(0u64, |sum, weight| {
            let copies = if weight.is_whole() { 1 } else { ranks };
            sum.saturating_add(bytes(weight).saturating_mul(copies))
        });
        let sum = |sizes: Vec<u64>| sizes.into_iter().fold(0, u64::saturating_add);
        let activations = sum(self.buffers(prefill)).saturating_add(sum(self.buffers(decode)));
        let scratch =
            self.partial_bytes(shape) + 4 * u64::from(self.output_tokens) * u64::from(self.batch);
        MemoryNeed {
            weights,
            kv: (2 * u64::from(shape.layers))
                .saturating_mul(self.cache_bytes(shape))
                .saturating_mul(ranks),
            activations: activations.saturating_mul(ranks),
            scores: 0,
            workspace: workspace
                .saturating_add(scratch.saturating_mul(ranks))
                .saturating_add(self.expanded_bytes(shape, prefill, decode).saturating_mul(ranks))
                .saturating_add(self.expert_bytes(shape, prefill, decode).saturating_mul(ranks))
                .saturating_add(self.rope_bytes(shape))
                .saturating_add(self.gathered_bytes(prefill, decode, local_ranks)),
            stage: None,
        }
    }
}

#[derive(Clone, Debug, Default)]
pub(super) struct GpuWeights {
    /// Memory and byte offset of each weight.
    by_name: HashMap<String, (Arc<Memory>, u64)>,
}

impl GpuWeights {
    /// Adds the plan's weights that `pick` selects for a rank, loading them with `load`.
    pub fn add(
        &mut self,
        shape: &ModelShape,
        plan: &Plan,
        rank: u32,
        pick: impl Fn(&Weight) -> bool,
        mut load: impl FnMut(&Weight) -> Result<Memory>,
    ) -> Result<()> {
        let embedding = |weights: &Self| {
            let named = plan.weights.iter().find(|w| w.parts[0].tensor == Tensor::Embedding);
            let found = named.and_then(|w| Some((w, &weights.by_name.get(&w.name)?.0)))?;
            let row = found.1.bytes() / u64::from(found.0.outputs.max(1));
            Some((Arc::clone(found.1), row))
        };
        for weight in plan.weights.iter().filter(|w| pick(w)) {
            let tied = shape.tied_embeddings && weight.parts[0].tensor == Tensor::Head;
            let memory = match embedding(self).filter(|_| tied) {
                // the rank's rows of the embedding
                Some((embedding, row)) => {
                    let rows = weight.parts[0].slice(shape, rank, plan.tp).0;
                    (embedding, row * rows.start as u64)
                }
                None => (Arc::new(load(weight)?), 0),
            };
            self.by_name.insert(weight.name.clone(), memory);
        }
        Ok(())
    }
}

/// Tokens, positions and results of a rank. They are in memory instead of kernel arguments, so that a
/// captured step can be replayed.
#[derive(Debug)]
pub(super) struct RankState {
    /// Tokens of the next step: `[batch]`.
    pub tokens: Memory,
    /// Number of tokens in the KV cache per sequence: `[batch]`.
    pub positions: Memory,
    /// Number of generated tokens per sequence: `[batch]`.
    pub steps: Memory,
    /// Generated tokens: `[output tokens, batch]`.
    pub history: Memory,
    /// Count of infinite or NaN logits in greedy sampling, as one number.
    pub not_finite: Memory,
    /// Highest logit of each vocabulary part, and its index.
    pub best_value: Memory,
    pub best_index: Memory,
    /// Scratch for random sampling among many candidates; else empty.
    pub sorted: Memory,
    /// Vocabulary parts for the search of the highest logit.
    pub parts: u32,
}

impl RankState {
    fn new(gpu: &Gpu, shape: &ModelShape, sizes: &MemorySizes) -> Result<Self> {
        let batch = u64::from(sizes.batch);
        let parts = geometry::sample_parts(shape.vocab);
        let allocate = |numbers: u64, what: &str| gpu.allocate(4 * numbers, what);
        let sorted = match sizes.sampling {
            Sampling::Greedy => 0,
            Sampling::Random { top_k, .. } => {
                let top_k = u32::try_from(top_k).unwrap_or(u32::MAX);
                geometry::sample_scratch(shape.vocab, top_k, sizes.batch)
            }
        };
        Ok(Self {
            tokens: allocate(batch, "the tokens of a step")?,
            positions: allocate(batch, "the positions of the sequences")?,
            steps: allocate(batch, "the number of tokens of each sequence")?,
            history: allocate(batch * u64::from(sizes.output_tokens), "the generated tokens")?,
            not_finite: allocate(1, "the number of odd logits")?,
            best_value: allocate(batch * u64::from(parts), "sampling")?,
            best_index: allocate(batch * u64::from(parts), "sampling")?,
            sorted: gpu.allocate(sorted, "sampling among many tokens")?,
            parts,
        })
    }
}

#[derive(Debug)]
pub(super) struct RankMemory {
    /// Global index of the rank.
    pub index: u32,
    weights: GpuWeights,
    keys: Vec<Memory>,
    values: Vec<Memory>,
    pub rope: Arc<Memory>,
    pub state: RankState,
    /// Partial sums of decode attention.
    pub partial: Memory,
    /// Number of context splits in decode attention.
    pub splits: u32,
    /// Scratch for an fp8 weight expanded to the format of activations.
    pub expanded: Memory,
    /// Scratch of the experts; prefill reads the number of rows of each from it.
    pub experts: Arc<Memory>,
}

impl RankMemory {
    pub fn new(
        gpu: &Gpu,
        shape: &ModelShape,
        sizes: &MemorySizes,
        index: u32,
        weights: GpuWeights,
        rope: Arc<Memory>,
        [expanded_bytes, expert_bytes]: [u64; 2],
    ) -> Result<Self> {
        let bytes = sizes.cache_bytes(shape);
        let cache = |what: &str| -> Result<Vec<Memory>> {
            (0..shape.layers).map(|l| gpu.allocate(bytes, &format!("{what} of layer {l}"))).collect()
        };
        Ok(Self {
            index,
            weights,
            keys: cache("the keys")?,
            values: cache("the values")?,
            rope,
            state: RankState::new(gpu, shape, sizes)?,
            partial: gpu.allocate(sizes.partial_bytes(shape), "partial sums of attention")?,
            splits: sizes.splits(shape),
            expanded: gpu.allocate(expanded_bytes, "an expanded weight")?,
            experts: Arc::new(gpu.allocate(expert_bytes, "the experts")?),
        })
    }

    pub fn weight(&self, name: &str) -> Result<DevicePtr> {
        let weight = self.weights.by_name.get(name);
        let (memory, at) =
            weight.ok_or_else(|| Error::failed(format!("weight {name} was not loaded")))?;
        Ok(memory.ptr().offset(*at))
    }

    /// Keys and values of a layer: `[sequence, KV head, position, head_dim]` each.
    pub fn cache(&self, layer: u32) -> Result<(DevicePtr, DevicePtr)> {
        let (keys, values) = (self.keys.get(layer as usize), self.values.get(layer as usize));
        match (keys, values) {
            (Some(keys), Some(values)) => Ok((keys.ptr(), values.ptr())),
            _ => Err(Error::failed(format!("there is no KV cache of layer {layer}"))),
        }
    }
}

/// Memory of one rank on a GPU with `multiprocessors` SMs: weights, KV cache, activations of both phases,
/// attention scratch and the cuBLASLt workspace (bytes). Returns an input error if TP does not divide the
/// model.
pub fn memory_need(spec: &Spec, shape: &ModelShape, multiprocessors: u32) -> Result<MemoryNeed> {
    let precision = Precision::gpu(spec.dtype);
    let lowering = Lowering { shard_head: spec.shard_head, ..GpuProgram::lowering(false) };
    let program = |phase| GpuProgram::new(&spec.plan(shape, phase, precision, lowering), 0);
    let sizes = MemorySizes {
        dtype: precision.activations,
        tp: spec.tp,
        batch: spec.batch,
        capacity: spec.prompt_tokens.saturating_add(spec.output_tokens),
        output_tokens: spec.output_tokens,
        prefill: (spec.batch, spec.prompt_tokens),
        sampling: Sampling::Greedy,
        multiprocessors,
    };
    let (prefill, decode) = (program(Phase::Prefill)?, program(Phase::Decode)?);
    Ok(sizes.need(shape, &prefill, &decode, 1, WORKSPACE_BYTES))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sim::testing::{shape_70b, spec};
    use plan::DType;

    #[test]
    fn a_shard_of_70b_needs_an_eighth_of_its_layers_and_the_whole_embedding() {
        let spec = Spec { tp: 8, dtype: DType::Bf16, batch: 16, ..spec("ladder", "llama-3-70b") };
        let need = memory_need(&spec, &shape_70b(), 132).unwrap();
        let (h, v) = (8192_u64, 128_256_u64);
        let layer = h * h + 2 * h * 1024 + h * h + 3 * h * 28672;
        assert_eq!(need.weights, 2 * (80 * (layer / 8 + 2 * h) + 2 * v * h + h));
        let tokens = 16 * u64::from(spec.prompt_tokens + spec.output_tokens);
        assert_eq!(need.kv, 2 * 80 * 128 * 2 * tokens);
        assert!(need.workspace > WORKSPACE_BYTES, "attention's partial sums and the table of angles");
        assert!(need.fits(80_000_000_000), "{}", need.arithmetic());
        // a sharded head is an eighth of it, beside room for the other ranks' logits
        let sharded = memory_need(&Spec { shard_head: true, ..spec }, &shape_70b(), 132).unwrap();
        assert_eq!(need.weights - sharded.weights, 2 * v * h / 8 * 7);
        assert_eq!(sharded.workspace - need.workspace, 4 * 16 * v);
    }

    #[test]
    fn fp8_needs_a_byte_a_number_a_scale_an_output_and_room_to_expand_the_largest_weight() {
        let wide = Spec { tp: 8, dtype: DType::Bf16, batch: 16, ..spec("ladder", "llama-3-70b") };
        let spec = Spec { dtype: DType::Fp8, ..wide.clone() };
        let [need, wide] = [&spec, &wide].map(|spec| memory_need(spec, &shape_70b(), 132).unwrap());
        let (h, v) = (8192_u64, 128_256_u64);
        let numbers = (h * h + 2 * h * 1024 + h * h + 3 * h * 28672) / 8;
        let outputs = (h + 2 * 1024 + 2 * 28672) / 8 + 2 * h;
        let layer = numbers + 4 * outputs + 2 * 2 * h;
        // the head like other linear layers; embedding and norms in bf16
        assert_eq!(need.weights, 80 * layer + (v * h + 4 * v) + 2 * v * h + 2 * h);
        assert_eq!((need.kv, need.activations), (wide.kv, wide.activations));
        // gate and up of a prefill; of decode's 16 rows and the head's none is expanded
        assert_eq!(need.workspace - wide.workspace, 2 * h * 2 * 28672 / 8);
        // the head that is the embedding stays as it is
        let tied = ModelShape { tied_embeddings: true, ..shape_70b() };
        let need = memory_need(&spec, &tied, 132).unwrap();
        assert_eq!(need.weights, 80 * layer + 2 * v * h + 2 * h);
    }
}
