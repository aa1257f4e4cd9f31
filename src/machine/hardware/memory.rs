//! Memory estimate for one rank of a cell, before launch.

use std::collections::BTreeMap;
use std::ops::Range;

use super::stack::{AttentionKind, Serving, Stack, lowering};
use plan::{
    Element, Groups, ModelShape, Phase, Plan, Precision, Rows, SCALED_TOGETHER, Step, Tensor,
    stage_layers,
};
use table::Spec;

/// Memory of one rank, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MemoryNeed {
    /// Weight slices, in the weights' format.
    pub weights: u64,
    /// KV cache at full length.
    pub kv: u64,
    /// Activations of the largest step, including logits.
    pub activations: u64,
    /// Attention scores and expanded K and V, if the stack stores them; only the part beyond the logits'
    /// memory, which is unused until the end of a step.
    pub scores: u64,
    pub workspace: u64,
    /// Pipeline stage of the rank, the one that needs most; `None` without stages.
    pub stage: Option<u32>,
}

/// Memory of a plan independent of the workload: values and buffers summed by scaling.
/// Computed once for all cells that share the plan.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlanMemory {
    tp: u32,
    stages: Vec<StageMemory>,
}

/// Memory of one pipeline stage's plans.
#[derive(Clone, Debug, PartialEq, Eq)]
struct StageMemory {
    layers: Range<u32>,
    weights: u64,
    prefill: ValueMemory,
    decode: ValueMemory,
}

/// Memory of one plan's values.
#[derive(Clone, Debug, PartialEq, Eq)]
struct ValueMemory {
    groups: Groups,
    buffers: Vec<Columns>,
    logits: Vec<Columns>,
}

/// Total columns of values with the same rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Columns {
    rows: Rows,
    group: u32,
    element: Element,
    columns: u64,
    /// Scales of 8-bit messages per row.
    scales: u64,
}

impl ValueMemory {
    fn from_plan(plan: &Plan) -> Self {
        let buffers = plan.buffers().buffers;
        let buffers = buffers.iter().map(|b| (b.rows, b.group, b.element, b.columns));
        let logits = plan.logits.iter().map(|id| {
            let value = &plan.values[id.index()];
            (value.rows, value.group, value.element, value.columns)
        });
        Self { groups: plan.groups, buffers: summed(buffers), logits: summed(logits) }
    }
}

/// Sums columns of values with the same rows.
fn summed(values: impl Iterator<Item = (Rows, u32, Element, u32)>) -> Vec<Columns> {
    let mut sums: BTreeMap<(u8, u32, u8), Columns> = BTreeMap::new();
    for (rows, group, element, columns) in values {
        let none = Columns { rows, group, element, columns: 0, scales: 0 };
        let sum = sums.entry((rows as u8, group, element as u8)).or_insert(none);
        sum.columns = sum.columns.saturating_add(columns.into());
        sum.scales = sum.scales.saturating_add(columns.div_ceil(SCALED_TOGETHER).into());
    }
    sums.into_values().collect()
}

impl PlanMemory {
    /// Computes the memory of a model's prefill and decode plans, one of each for every pipeline stage.
    /// Scans all operations, which takes 0.1 to 0.2 ms for a large model.
    pub fn new(shape: &ModelShape, precision: Precision, prefill: &[Plan], decode: &[Plan]) -> Self {
        let layers = stage_layers(shape.layers, decode.len() as u32);
        let stages =
            layers.iter().zip(prefill).zip(decode).map(|((layers, prefill), decode)| StageMemory {
                layers: layers.clone(),
                weights: weight_bytes(shape, decode, precision),
                prefill: ValueMemory::from_plan(prefill),
                decode: ValueMemory::from_plan(decode),
            });
        Self { tp: decode.first().map_or(1, |plan| plan.tp), stages: stages.collect() }
    }

    /// Bytes of the columns in a step.
    fn bytes(
        &self,
        (columns, groups): (&[Columns], Groups),
        step: &Step,
        precision: Precision,
        logit_bytes: u64,
    ) -> u64 {
        let sizes = columns.iter().map(|sum| {
            let rows = sum.rows.count(&step.of_group(groups, sum.group), self.tp);
            rows.saturating_mul(match sum.element {
                Element::Activation => sum.columns * precision.activations.bytes(),
                Element::Logit => sum.columns * logit_bytes,
                Element::Token => sum.columns * 4,
                Element::Choice => sum.columns * 8,
                Element::Eight => sum.columns + 4 * sum.scales,
            })
        });
        sizes.fold(0, u64::saturating_add)
    }
}

impl MemoryNeed {
    /// Estimate for a cell. All parts are 0 if there is no plan (TP does not divide the model): the cell
    /// then fails for that reason, not for lack of memory.
    pub fn new(spec: &Spec, shape: &ModelShape, precision: Precision) -> Self {
        let plan = |phase| {
            let mut lowering = lowering(&spec.stack).unwrap_or_default();
            lowering.shard_head |= spec.shard_head;
            Plan::stages(&spec.plan(shape, phase, precision, lowering))
        };
        match (plan(Phase::Prefill), plan(Phase::Decode)) {
            (Ok(prefill), Ok(decode)) => {
                let kept = PlanMemory::new(shape, precision, &prefill, &decode);
                Self::of_plans(spec, shape, precision, &kept)
            }
            _ => Self::default(),
        }
    }

    /// Estimate for a cell from precomputed plan memory: of the pipeline stage that needs most.
    pub fn of_plans(spec: &Spec, shape: &ModelShape, precision: Precision, kept: &PlanMemory) -> Self {
        let needs = kept.stages.iter().enumerate().map(|(index, stage)| Self {
            stage: (kept.stages.len() > 1).then_some(index as u32),
            ..Self::of_stage(spec, shape, precision, (kept, stage))
        });
        needs.max_by_key(Self::total).unwrap_or_default()
    }

    fn of_stage(
        spec: &Spec,
        shape: &ModelShape,
        precision: Precision,
        (kept, stage): (&PlanMemory, &StageMemory),
    ) -> Self {
        let batch = u64::from(spec.sequences_of_rank());
        let prompt = u64::from(spec.prompt_tokens);
        // real backends need exactly the plan's memory
        let stack = Stack::load(&spec.stack).ok().filter(|_| spec.backend.is_simulated());
        let f32_logits = stack.as_ref().is_none_or(|stack| stack.logits_f32);
        let logit_bytes = if f32_logits { 4 } else { precision.activations.bytes() };
        let bytes = |columns: &[Columns], of: &ValueMemory, step: &Step| {
            kept.bytes((columns, of.groups), step, precision, logit_bytes)
        };
        let (prefill, decode) = (&stage.prefill, &stage.decode);
        let (first, step) = (Step::prefill(batch, prompt), Step::decode(batch, prompt, 0));
        let kv_columns = u64::from(shape.cached_columns(spec.tp));
        let kv_tokens = batch.saturating_mul(cached_tokens(shape, stage.layers.clone(), spec));
        Self {
            weights: stage.weights,
            kv: kv_tokens.saturating_mul(kv_columns * precision.kv.bytes()),
            activations: bytes(&prefill.buffers, prefill, &first).max(bytes(
                &decode.buffers,
                decode,
                &step,
            )),
            // scores are freed before the logits are written
            scores: stack
                .as_ref()
                .map_or(0, |stack| scores(spec, shape, precision, stack))
                .saturating_sub(bytes(&prefill.logits, prefill, &first)),
            workspace: stack.map_or(0, |stack| u64::from(stack.workspace_mb) * 1_000_000),
            stage: None,
        }
    }

    /// Estimate for a cell that serves requests, and the tokens that its KV cache holds. The cache takes what the
    /// requests in flight need, at most what the engine's share of the memory leaves beside the largest step.
    pub fn of_serving(
        spec: &Spec,
        shape: &ModelShape,
        precision: Precision,
        kept: &PlanMemory,
        serving: &Serving,
        capacity_bytes: u64,
    ) -> (Self, f64) {
        let dp = spec.dp.max(1);
        let most = spec.sequences_of_rank().max(1);
        let prompts = (serving.step_tokens / spec.prompt_tokens.max(1)).clamp(1, most);
        let step = Spec { batch: prompts.saturating_mul(dp), ..spec.clone() };
        let step = Self::of_plans(&step, shape, precision, kept);
        let request = step.kv / u64::from(prompts);
        let length = f64::from(spec.prompt_tokens) + f64::from(spec.output_tokens);
        let usable = capacity_bytes as f64 * serving.memory_share - (step.total() - step.kv) as f64;
        let wanted = request.saturating_mul(spec.concurrency.div_ceil(dp).into());
        let kv = wanted.min((usable.max(0.0) as u64).max(request));
        (Self { kv, ..step }, usable.max(0.0) / request.max(1) as f64 * length)
    }

    /// Sum of all parts, saturating.
    pub fn total(&self) -> u64 {
        [self.kv, self.activations, self.scores, self.workspace]
            .iter()
            .fold(self.weights, |sum, part| sum.saturating_add(*part))
    }

    /// True if it fits into this capacity.
    pub fn fits(&self, capacity_bytes: u64) -> bool {
        self.total() <= capacity_bytes
    }

    /// Formats the sum: `weights 70.6 GB + KV cache 0.1 GB + activations 0.2 GB = 70.9 GB` (GB = 1e9
    /// bytes), with scores and workspace if nonzero, and the pipeline stage if there are several.
    pub fn arithmetic(&self) -> String {
        let unit = Unit::for_total(self.total());
        let always =
            [("weights", self.weights), ("KV cache", self.kv), ("activations", self.activations)];
        let maybe = [("attention scores", self.scores), ("workspace", self.workspace)];
        let maybe = maybe.into_iter().filter(|(_, bytes)| *bytes > 0);
        let terms: Vec<String> = always
            .into_iter()
            .chain(maybe)
            .map(|(name, bytes)| format!("{name} {}", unit.show(bytes)))
            .collect();
        let stage = self.stage.map(|stage| format!(" on stage {stage}")).unwrap_or_default();
        format!("{} = {}{stage}", terms.join(" + "), unit.show(self.total()))
    }
}

/// Tokens that a sequence caches at full length, over some layers: with a window no more than it.
fn cached_tokens(shape: &ModelShape, layers: Range<u32>, spec: &Spec) -> u64 {
    let all = u64::from(spec.prompt_tokens) + u64::from(spec.output_tokens);
    layers.map(|l| shape.window_of(l).map_or(all, |window| all.min(window.tokens.into()))).sum()
}

/// Scores of one layer in prefill (the largest step), before and after the softmax, plus expanded K and
/// V.
fn scores(spec: &Spec, shape: &ModelShape, precision: Precision, stack: &Stack) -> u64 {
    if stack.attention.kind != AttentionKind::Math {
        return 0;
    }
    let (batch, prompt) = (u64::from(spec.sequences_of_rank()), u64::from(spec.prompt_tokens));
    let slots = prompt + if stack.static_kv { u64::from(spec.output_tokens) } else { 0 };
    let heads = batch.saturating_mul(u64::from(shape.heads / spec.tp.max(1)));
    let bytes = precision.activations.bytes();
    let scores = heads.saturating_mul(prompt).saturating_mul(slots).saturating_mul(2 * bytes);
    let expanded = heads.saturating_mul(slots).saturating_mul(u64::from(shape.head_dim) * 2 * bytes);
    scores.saturating_add(expanded)
}

/// Weights of one rank; a tied head shares the embedding's memory if both are on the same stage.
fn weight_bytes(shape: &ModelShape, decode: &Plan, precision: Precision) -> u64 {
    let all = decode.weight_bytes(precision, shape);
    let holding = |tensor: Tensor| {
        let holds = move |w: &&plan::Weight| w.parts.iter().any(|part| part.tensor == tensor);
        decode.weights.iter().filter(holds)
    };
    let head: u64 = holding(Tensor::Head).map(|weight| precision.weight_bytes(weight, shape)).sum();
    // a sharded head is a separate copy
    let is_shared =
        holding(Tensor::Embedding).next().is_some() && holding(Tensor::Head).all(plan::Weight::is_whole);
    if shape.tied_embeddings && is_shared { all - head } else { all }
}

/// Common unit of all terms of a sum.
struct Unit(f64, &'static str);

impl Unit {
    fn for_total(total: u64) -> Self {
        match total {
            1_000_000_000.. => Self(1e9, "GB"),
            1_000_000.. => Self(1e6, "MB"),
            _ => Self(1e3, "kB"),
        }
    }

    fn show(&self, bytes: u64) -> String {
        format!("{:.1} {}", bytes as f64 / self.0, self.1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    use plan::DType;
    use table::testing::{cell as spec, shape_70b, shape_tiny};

    fn need_70b(tp: u32, batch: u32, stack: &str) -> MemoryNeed {
        let spec = Spec { tp, batch, stack: stack.into(), ..spec("standard", "llama-3-70b") };
        MemoryNeed::new(&spec, &shape_70b(), Precision::uniform(DType::F16))
    }

    #[test]
    fn llama_3_70b_at_tp_2_is_what_the_arithmetic_says() {
        let need = need_70b(2, 1, "native");
        // halves of the layers, whole embedding and head, norms
        let (h, v) = (8192_u64, 128_256_u64);
        let layer = h * h + 2 * h * 1024 + h * h + 3 * h * 28672;
        let expected = 2 * (80 * (layer / 2 + 2 * h) + 2 * v * h + h);
        assert_eq!(need.weights, expected);
        assert_eq!(need.kv, 2 * 80 * 4 * 128 * 2 * 1536);
        assert_eq!((need.scores, need.workspace), (0, 96_000_000));
        assert!(
            need.arithmetic()
                .starts_with(&format!("weights {:.1} GB + KV cache 0.3 GB", expected as f64 / 1e9))
        );
        assert!(need.arithmetic().ends_with(&format!("= {:.1} GB", need.total() as f64 / 1e9)));
    }

    #[test]
    fn the_paper_ran_batch_4_at_tp_2_on_80_gb_and_not_batch_16() {
        let fits = |tp, batch| need_70b(tp, batch, "gpt-fast").fits(80_000_000_000);
        assert!(fits(2, 1) && fits(2, 4));
        assert!(!fits(2, 16) && !fits(2, 64));
        assert!(fits(4, 64) && fits(8, 64));
        let ladder = Spec { tp: 4, batch: 64, stack: "gpt-fast".into(), ..spec("ladder", "70b") };
        let need = MemoryNeed::new(&ladder, &shape_70b(), Precision::uniform(DType::F16));
        assert!(need.fits(80_000_000_000), "{}", need.arithmetic());
    }

    #[test]
    fn plain_attention_keeps_its_scores_in_memory() {
        // two f16 matrices of 4 sequences x 8 heads x 1024 x 1536, and K and V of 1536 x 128
        let (shape, stack) = (shape_70b(), Stack::load("gpt-fast").unwrap());
        let mut spec = Spec { tp: 8, batch: 4, ..spec("standard", "llama-3-70b") };
        let precision = Precision::uniform(DType::F16);
        assert_eq!(
            scores(&spec, &shape, precision, &stack),
            4 * 8 * 2 * (2 * 1024 * 1536 + 2 * 1536 * 128)
        );
        // the logits of 4 x 1024 positions are larger: their memory serves
        assert_eq!(need_70b(8, 4, "gpt-fast").scores, 0);
        // a small vocabulary leaves less room
        spec.stack = "gpt-fast".into();
        let small = ModelShape { vocab: 1000, ..shape };
        let need = MemoryNeed::new(&spec, &small, precision);
        assert_eq!(need.scores, 4 * 8 * 2 * (2 * 1024 * 1536 + 2 * 1536 * 128) - 4 * 1024 * 1000 * 2);
        assert!(need.arithmetic().contains(" + attention scores 0.2 GB + workspace 0.1 GB = "));
    }

    #[test]
    fn a_tied_head_is_counted_once() {
        let spec = spec("ladder", "tiny");
        let (untied, mut tied) = (shape_tiny(), shape_tiny());
        tied.tied_embeddings = true;
        let precision = Precision::uniform(DType::F32);
        let difference = MemoryNeed::new(&spec, &untied, precision).weights
            - MemoryNeed::new(&spec, &tied, precision).weights;
        assert_eq!(difference, 4 * u64::from(untied.vocab) * u64::from(untied.hidden));
    }

    #[test]
    fn absurd_sizes_saturate_instead_of_wrapping() {
        let spec = Spec {
            batch: u32::MAX,
            prompt_tokens: u32::MAX,
            output_tokens: u32::MAX,
            ..spec("standard", "llama-3-70b")
        };
        let need = MemoryNeed::new(&spec, &shape_70b(), Precision::uniform(DType::F32));
        assert_eq!(need.total(), u64::MAX);
        assert!(!need.fits(80_000_000_000));
    }

    #[test]
    fn small_models_are_shown_in_small_units() {
        let need = MemoryNeed {
            weights: 1_500_000,
            kv: 200_000,
            activations: 100_000,
            ..MemoryNeed::default()
        };
        assert_eq!(need.arithmetic(), "weights 1.5 MB + KV cache 0.2 MB + activations 0.1 MB = 1.8 MB");
    }
}
