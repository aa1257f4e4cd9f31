//! Plans: their inputs, their operations in order, the dependencies between operations, and their hash.

use serde::{Deserialize, Serialize};

use super::{
    Architecture, Cost, DType, Groups, Kind, KvDType, Lowering, ModelShape, OpId, Operation, Phase,
    PlanError, Quantity, RoutedWeights, Tensor, Value, ValueId, Weight, WeightId, build, lower,
};
use base::checksum::short_key;
use base::words::words;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Precision {
    /// Format of weights in memory; see [`Precision::of_weight`].
    pub weights: DType,
    /// Format of activations, and so of all-reduce messages.
    pub activations: DType,
    pub kv: DType,
    /// Format of a head that is not the embedding.
    pub head: DType,
}

impl Precision {
    /// One format for weights, activations and KV cache.
    pub fn uniform(dtype: DType) -> Self {
        Self { weights: dtype, activations: dtype, kv: dtype, head: dtype }
    }

    /// Formats on a GPU: activations and KV cache match the weights, or are bf16 with quantized weights.
    /// Published checkpoints in blocks and in 4 bits leave the head in bf16; fp8 quantizes it too.
    pub fn gpu(weights: DType) -> Self {
        let activations = weights.activations();
        let head = if weights == DType::Fp8 { weights } else { activations };
        Self { weights, head, ..Self::uniform(activations) }
    }

    /// Formats of the cpu backend: f32 activations and KV cache. It dequantizes fp8 to f32; with mxfp4, linear layers (of
    /// mixtures only the experts) stay packed and all other weights are bf16.
    pub fn cpu(weights: DType) -> Self {
        let (weights, head) = match weights {
            DType::Mxfp4 => (weights, DType::Bf16),
            _ if weights.is_quantized() => (DType::F32, DType::F32),
            _ => (weights, weights),
        };
        Self { weights, head, ..Self::uniform(DType::F32) }
    }

    /// The same formats with another KV cache.
    #[must_use]
    pub fn with_kv(self, kv: KvDType) -> Self {
        match kv {
            KvDType::Activations => self,
            KvDType::Fp8 => Self { kv: DType::Fp8, ..self },
        }
    }

    /// Format in which a rank holds a weight; unquantized weights beside quantized ones are bf16.
    pub fn of_weight(self, weight: &Weight, shape: &ModelShape) -> DType {
        // published checkpoints of mixtures of experts in mxfp4 quantize the experts alone
        let has_experts_alone = self.weights == DType::Mxfp4
            && shape.experts.is_some()
            && !weight.parts.iter().all(|part| part.tensor.is_expert_matrix());
        if !self.weights.is_quantized() {
            self.weights
        } else if !weight.is_quantized(shape) || has_experts_alone {
            self.weights.activations()
        } else if weight.parts.iter().any(|part| part.tensor == Tensor::Head) {
            self.head
        } else {
            self.weights
        }
    }

    /// Bytes of one rank's slice of a weight, including scales.
    pub fn weight_bytes(self, weight: &Weight, shape: &ModelShape) -> u64 {
        self.of_weight(weight, shape).matrix_bytes(weight.outputs.into(), weight.inputs.into())
    }
}

#[derive(Clone, Debug, PartialEq)]
pub struct PlanSpec {
    pub shape: ModelShape,
    pub architecture: Architecture,
    /// TP: the number of ranks over which weights and heads are sharded.
    pub tp: u32,
    pub phase: Phase,
    pub precision: Precision,
    pub lowering: Lowering,
    pub variant: Variant,
    /// Sequences processed together; matters only if they are divided into groups.
    pub batch: u32,
    /// PP: the number of pipeline stages, each a contiguous range of layers on its own ranks. Groups of
    /// the batch follow one another through the stages; with one stage they alternate module by module.
    pub pp: u32,
}

impl PlanSpec {
    pub fn groups(&self) -> Groups {
        Groups::new(self.phase, self.batch, self.variant.micro_batches)
    }
}

/// Operations of a step, in an order in which each lane can execute them.
#[derive(Clone, Debug, PartialEq)]
pub struct Plan {
    pub phase: Phase,
    /// TP: the number of ranks, each with its own weight slices.
    pub tp: u32,
    /// Each operation reads only what earlier ones wrote.
    pub operations: Vec<Operation>,
    /// Indexed by [`ValueId`].
    pub values: Vec<Value>,
    /// Weights, as slices of named tensors.
    pub weights: Vec<Weight>,
    pub groups: Groups,
    /// Input tokens of each group (read by `Embed`); no operation writes them.
    pub tokens: Vec<ValueId>,
    /// Logits of each group. If the prompt's tokens are divided, only the last group has them, unless
    /// logits of every position are wanted.
    pub logits: Vec<ValueId>,
    /// Sampled tokens of each group (only the last if the prompt's tokens are divided): the step's
    /// output and the next step's input.
    pub outputs: Vec<ValueId>,
}

impl Plan {
    /// Builds the plan of an architecture and lowers it for the stack.
    ///
    /// # Errors
    ///
    /// Returns [`PlanError::Shape`] if TP does not divide the model or the plan has several stages, and
    /// [`PlanError::Placement`] if an operation would read a value with the wrong placement.
    pub fn new(spec: &PlanSpec) -> Result<Self, PlanError> {
        let mut stages = Self::stages(spec)?;
        match (stages.pop(), stages.is_empty()) {
            (Some(plan), true) => Ok(plan),
            _ => Err(PlanError::Shape(format!("PP {} has a plan for each stage, not one", spec.pp))),
        }
    }

    /// Builds and lowers the plan of each pipeline stage, in order; one plan without stages.
    ///
    /// # Errors
    ///
    /// Returns [`PlanError::Shape`] if TP does not divide the model or PP exceeds its layers, and
    /// [`PlanError::Placement`] if an operation would read a value with the wrong placement.
    pub fn stages(spec: &PlanSpec) -> Result<Vec<Self>, PlanError> {
        let stages = build::build(spec)?;
        Ok(stages.into_iter().map(|plan| lower::lower(plan, &spec.lowering)).collect())
    }

    /// For each value, the operation that writes it (`None` for the step's tokens).
    pub fn writers(&self) -> Vec<Option<OpId>> {
        let mut writers = vec![None; self.values.len()];
        for (index, operation) in self.operations.iter().enumerate() {
            for value in &operation.writes {
                writers[value.index()] = Some(OpId(index as u32));
            }
        }
        writers
    }

    /// Dependencies of each operation: the previous operation on its lane, the writers of its operands,
    /// and its explicit edges.
    pub fn dependencies(&self) -> Vec<Vec<OpId>> {
        let writers = self.writers();
        let mut previous = [None; 2];
        self.operations
            .iter()
            .enumerate()
            .map(|(index, operation)| {
                let lane = &mut previous[operation.lane as usize];
                let mut waits: Vec<OpId> = operation
                    .reads
                    .iter()
                    .filter_map(|value| writers[value.index()])
                    .chain(operation.after.iter().copied())
                    .chain(*lane)
                    .collect();
                waits.sort_unstable();
                waits.dedup();
                *lane = Some(OpId(index as u32));
                waits
            })
            .collect()
    }

    /// Value from which the last position of each sequence is selected, one row per position: with
    /// [`Lowering::late_select`] the output of the final norm. `None` in decode, which has no other
    /// positions. If ranks norm residuals of their own, all of them side by side: the logits of part
    /// l of the vocabulary follow from part l.
    pub fn selected_from(&self) -> Option<ValueId> {
        let select = self.operations.iter().rfind(|operation| operation.kind == Kind::SelectLast)?;
        let gathers = |o: &&Operation| o.kind == Kind::AllGather && o.reads == select.reads;
        let gathered = self.operations.iter().find(gathers);
        Some(gathered.map_or(select.reads[0], |gather| gather.writes[0]))
    }

    /// Hash (SHA-256, first 16 hex digits) of operations, values and weights. The encoding is versioned;
    /// older records use [`Plan::json_hash`].
    pub fn hash(&self) -> String {
        let mut bytes = Bytes(Vec::with_capacity(160 * self.operations.len()));
        bytes.0.extend_from_slice(VERSION);
        bytes.list(&self.operations, Bytes::operation);
        bytes.list(&self.values, Bytes::value);
        bytes.list(&self.weights, Bytes::weight);
        short_key(bytes.0)
    }

    /// Hash of the plan's JSON text, as in records and evaluation keys since the first format; kept to
    /// find those. About ten times slower than [`Plan::hash`].
    pub fn json_hash(&self) -> String {
        let text =
            serde_json::to_string(&(&self.operations, &self.values, &self.weights)).unwrap_or_default();
        short_key(text)
    }

    pub fn weight_bytes(&self, precision: Precision, shape: &ModelShape) -> u64 {
        self.weights.iter().map(|weight| precision.weight_bytes(weight, shape)).sum()
    }
}

words! {
    /// Format of partial sums in messages.
    #[derive(Default)]
    CommDType, "comm dtype" {
        /// The format of the activations.
        #[default]
        Activations = "activations",
        /// 8-bit floating point (e4m3: up to 448), with one f32 scale for 128 numbers.
        F8 = "f8",
        /// 8-bit integers from -127 to 127, with one f32 scale for 128 numbers.
        Int8 = "int8",
    }
}

/// Numbers of an 8-bit message that share a scale.
pub const SCALED_TOGETHER: u32 = 128;

/// Plan changes by run options; none by default.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Variant {
    /// Groups into which the batch is divided; their operations alternate on the compute lane.
    pub micro_batches: u32,
    pub comm_dtype: CommDType,
    /// True if each rank adds and norms only its share of the rows, with a reduce-scatter before and an
    /// all-gather after instead of an all-reduce (Korthikanti et al., 2022).
    #[serde(default)]
    pub sequence_parallel: bool,
    /// EP: ranks among which whole experts are divided; 1 if each rank has a slice of every expert.
    #[serde(default = "one", skip_serializing_if = "is_one")]
    pub ep: u32,
    /// DP: ranks with sequences and attention of their own, which send tokens to one another's experts. A
    /// step's sequences are those of one rank.
    #[serde(default = "one", skip_serializing_if = "is_one")]
    pub dp: u32,
}

pub(super) fn one() -> u32 {
    1
}

pub(super) fn is_one(n: &u32) -> bool {
    *n == 1
}

impl Variant {
    /// Variant for a single sequence, which is not divided into groups.
    pub fn undivided(self) -> Self {
        Self { micro_batches: 1, ..self }
    }
}

impl Default for Variant {
    fn default() -> Self {
        Self {
            micro_batches: 1,
            comm_dtype: CommDType::Activations,
            sequence_parallel: false,
            ep: 1,
            dp: 1,
        }
    }
}

/// Header of the encoding; bump the number when the encoding changes.
const VERSION: &[u8] = b"ladderscope plan 2\n";

/// Byte encoding of a plan's operations, values and weights, of which [`Plan::hash`] is the SHA-256.
///
/// It covers everything that decides what runs. Texts are prefixed with their length and lists
/// with their count, so different plans never share an encoding. It depends on neither machine nor
/// compiler: enums are written by name, numbers as LEB128. A plan of 80 layers takes a few hundred
/// kilobytes.
struct Bytes(Vec<u8>);

impl Bytes {
    fn number(&mut self, mut number: u64) {
        while number >= 0x80 {
            self.0.push(number as u8 | 0x80);
            number >>= 7;
        }
        self.0.push(number as u8);
    }

    fn text(&mut self, text: &str) {
        self.number(text.len() as u64);
        self.0.extend_from_slice(text.as_bytes());
    }

    fn list<T>(&mut self, list: &[T], each: fn(&mut Self, &T)) {
        self.number(list.len() as u64);
        list.iter().for_each(|item| each(self, item));
    }

    /// Writes an optional number: 0 if absent, else the number plus one.
    fn maybe(&mut self, number: Option<u32>) {
        self.number(number.map_or(0, |number| u64::from(number) + 1));
    }

    /// Writes the name of an enum variant as in the code.
    fn name(&mut self, value: &dyn std::fmt::Debug) {
        use std::io::Write as _;
        let at = self.0.len();
        // writing to a vector cannot fail
        let _ = write!(self.0, "{value:?}");
        debug_assert!(self.0.len() > at);
        self.0.push(0);
    }

    fn operation(&mut self, operation: &Operation) {
        let Operation {
            name,
            kind,
            lane,
            reads,
            writes,
            weight,
            more,
            layer,
            module,
            group,
            cost,
            origins,
            after,
        } = operation;
        self.text(name);
        self.kind(kind);
        self.text(lane.as_str());
        self.list(reads, |bytes, id: &ValueId| bytes.number(id.0.into()));
        self.list(writes, |bytes, id: &ValueId| bytes.number(id.0.into()));
        self.maybe(weight.map(|weight| weight.0));
        if !more.is_empty() {
            self.list(more, |bytes, id: &WeightId| bytes.number(id.0.into()));
        }
        self.maybe(*layer);
        self.text(module.as_str());
        self.number((*group).into());
        self.cost(cost);
        self.list(origins, |bytes, origin: &String| bytes.text(origin));
        self.list(after, |bytes, id: &OpId| bytes.number(id.0.into()));
    }

    fn kind(&mut self, kind: &Kind) {
        self.text(kind.as_str());
        match kind {
            Kind::Join { root } | Kind::JoinNorm { root } => self.number(u64::from(*root)),
            Kind::Quantize { to } => self.text(to.as_str()),
            Kind::SiluMul { offset } => self.number((*offset).into()),
            Kind::WindowAttend { tokens, is_chunked } => {
                self.number((*tokens).into());
                self.number(u64::from(*is_chunked));
            }
            _ => {}
        }
    }

    fn cost(&mut self, cost: &Cost) {
        let Cost { flops, bytes_read, bytes_written, message_bytes, routed } = cost;
        for quantity in [flops, bytes_read, bytes_written, message_bytes] {
            // the kind has the window
            let Quantity { fixed, row, sequence, kv_token, pair, window: _ } = *quantity;
            [fixed, row, sequence, kv_token, pair].into_iter().for_each(|number| self.number(number));
        }
        // only kinds with experts have them
        if let Some(routed) = routed {
            let RoutedWeights { experts, top_k, ep, dp, expert_bytes } = *routed;
            let numbers = [experts, top_k, ep, dp].map(u64::from);
            numbers.into_iter().chain([expert_bytes]).for_each(|number| self.number(number));
        }
    }

    fn value(&mut self, value: &Value) {
        let Value { name, placement, rows, columns, element, group } = value;
        self.text(name);
        self.name(placement);
        self.name(rows);
        self.number((*columns).into());
        self.name(element);
        self.number((*group).into());
    }

    fn weight(&mut self, weight: &Weight) {
        let Weight { name, parts, outputs, inputs } = weight;
        self.text(name);
        self.number(parts.len() as u64);
        for part in parts {
            self.text(&part.tensor.hf_name());
            self.name(&part.shard);
        }
        self.number((*outputs).into());
        self.number((*inputs).into());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Phase;
    use crate::tests::spec;

    fn plan(architecture: &str) -> Plan {
        Plan::new(&spec(&architecture.parse().unwrap(), 3, 2, Phase::Decode)).unwrap()
    }

    /// Hashes stand in records: these stay what they are.
    #[test]
    fn hashes_are_the_same_on_every_machine() {
        assert_eq!(plan("standard").hash(), "84b2066a5a17fcb8");
        assert_eq!(plan("standard").json_hash(), "b5b55cda60a1e7a7");
    }

    #[test]
    fn every_part_of_a_plan_is_hashed() {
        let standard = plan("standard");
        let hash = standard.hash();
        let changed: [fn(&mut Plan); 13] = [
            |plan| plan.operations[1].name.push('x'),
            |plan| plan.operations.swap(0, 1),
            |plan| plan.operations[1].cost.flops.row += 1,
            |plan| plan.operations[1].reads.clear(),
            |plan| plan.operations[1].layer = None,
            |plan| plan.operations[1].group += 1,
            |plan| plan.operations[2].weight = None,
            |plan| plan.operations[1].origins.clear(),
            |plan| plan.operations[1].after.push(crate::OpId(0)),
            |plan| plan.operations[1].kind = crate::Kind::Add,
            |plan| plan.values[1].columns += 1,
            |plan| plan.values[1].placement = crate::Placement::Divergent,
            |plan| plan.weights[1].parts.clear(),
        ];
        for (at, change) in changed.iter().enumerate() {
            let mut other = standard.clone();
            change(&mut other);
            assert_ne!(other.hash(), hash, "change {at}");
        }
        assert_ne!(plan("ladder").hash(), hash);
    }
}
