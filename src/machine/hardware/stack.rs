//! Software stacks: changes that an engine makes to a plan and its costs; built in or from a TOML file.

use std::path::Path;
use std::sync::{LazyLock, OnceLock};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

pub use super::built_in::STACKS_NAMES as STACKS;
use super::{CheckResult, Library, above, at_least, built_in, loss, share, that};
use base::error::Result;
use base::input::InputKind;
use base::words::words;
use plan::Lowering;
use table::Collective;

/// Software stack. Shares are 0 to 1; keys carry their units.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Stack {
    /// Name in `--stack` and in records: `gpt-fast`.
    pub name: String,
    /// Remarks for users of the stack.
    pub note: Option<String>,
    /// Sources of the numbers, one sentence each.
    pub sources: Vec<String>,
    /// Shards the head by vocabulary (one more collective).
    pub shard_head: bool,
    /// Computes logits for every prompt position in prefill.
    pub all_logits: bool,
    /// Fuses residual additions with the norm after them.
    pub fuse_add_norm: bool,
    /// Keeps logits in f32, else in the activations' format.
    pub logits_f32: bool,
    /// Runs attention over all prompt + output slots at every step.
    pub static_kv: bool,
    /// Launches a decode step as one CUDA graph.
    pub cuda_graphs: bool,
    /// Fixed time of one kernel on the compute lane (us): launch inside a graph, ramp-up, drain.
    pub launch_us: f64,
    /// Minimum time of a kernel without CUDA graphs (us): the host launches sequentially.
    pub eager_launch_us: f64,
    /// Host time before the first kernel of every step, on all lanes (us): scheduling, inputs. Added to
    /// that kernel's time; counts as calibrated.
    #[serde(default)]
    pub step_us: f64,
    /// Host time of every step per sequence (us), on all lanes like `step_us`: sampled tokens, streaming.
    #[serde(default)]
    pub sequence_us: f64,
    /// Kernels launched to sample tokens.
    pub sample_kernels: u32,
    /// Memory reserved by libraries on each GPU: GEMM workspace, communicators (1e6 bytes).
    pub workspace_mb: u32,
    /// Engine whose products with quantized weights were measured. Without one, quantized weights are
    /// expanded beside 16-bit activations, at the roofline.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub engine: Option<Engine>,
    /// Version of the engine whose all-reduce kernels are used, if not the stack's own: `1.3`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kernels: Option<String>,
    /// Scales of fp8 activations in an engine.
    #[serde(default)]
    pub activation_scales: ActivationScales,
    /// Matrix products with few rows, as in decode at small batches.
    pub matvec: MatvecCost,
    /// Matrix products with many rows, by a library.
    pub matmul: MatMulScale,
    /// Attention over the KV cache.
    pub attention: AttentionCost,
    /// Scale of collectives relative to standalone measurements.
    pub collective: CollectiveScale,
    /// Mutual slowdown of the lanes while both are busy.
    pub contention: Contention,
    /// Scheduler of a serving engine; without it the stack decodes static batches only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub serving: Option<Serving>,
}

words! {
    /// Prompts in the steps of a serving engine.
    Schedule, "schedule" {
        /// A step decodes and processes prompt tokens up to the limit; prompts are split.
        Chunked = "chunked",
        /// A step decodes and processes whole prompts, as many as fit below the limit.
        Whole = "whole",
        /// A step either decodes or processes prompts, prompts first.
        Separate = "separate",
    }
}

/// Scheduler of a serving engine.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Serving {
    /// Prompts in steps: `chunked`, `whole` or `separate`.
    pub schedule: Schedule,
    /// Maximum tokens of a step, decoded ones included.
    pub step_tokens: u32,
    /// Maximum prompts that end in one step; 0: no limit.
    #[serde(default)]
    pub step_prompts: u32,
    /// Share of a request's output for which the engine reserves KV cache before it starts.
    pub reserve: f64,
    /// Share of the GPU's memory that weights, activations and KV cache may use.
    pub memory_share: f64,
    /// Minimum latency of a step with prompts per layer (us): the host launches its kernels one by one.
    pub prefill_layer_us: f64,
    /// Time of a request until the engine has it (us): tokenization, queues between processes.
    pub request_us: f64,
    /// Time between two requests that reach the engine (us): the front end takes them one by one.
    #[serde(default)]
    pub intake_us: f64,
    /// True if the engine prepares each step while the one before runs: new requests wait a step longer.
    #[serde(default)]
    pub overlaps: bool,
    /// Steps that prompts wait for more prompts while others decode.
    #[serde(default)]
    pub wait_steps: u32,
    /// All-reduce that the engine uses inside a node.
    pub collective: Collective,
    /// Hardware profiles on which the engine fuses the all-reduce with the norm.
    #[serde(default)]
    pub fused_on: Vec<String>,
}

impl Serving {
    /// All-reduce that the engine uses on a GPU inside a node.
    pub fn collective_on(&self, hardware: &str) -> Collective {
        match self.fused_on.iter().any(|fused| fused == hardware) {
            true => Collective::Fused,
            false => self.collective,
        }
    }
}

words! {
    /// Engine with measured kernels.
    Engine, "engine" {
        /// NVIDIA TensorRT-LLM.
        TrtLlm = "trtllm",
        /// vLLM.
        Vllm = "vllm",
        /// SGLang.
        Sglang = "sglang",
    }
}

/// Engine with the first two numbers of its version; `None` for an unknown one, which is taken as the newest.
pub type EngineVersion = (Engine, Option<[u32; 2]>);

words! {
    /// Origin of the scales of fp8 activations.
    #[derive(Default)]
    ActivationScales, "activation scales" {
        /// Computed for every product, in a pass over the activations.
        Dynamic = "dynamic",
        /// Stored in the checkpoint; a kernel converts the activations.
        #[default]
        Static = "static",
        /// Stored, and the operation before the product writes fp8.
        Fused = "fused",
    }
}

/// Kernels that stream a matrix for few rows.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "Matvec")]
pub struct MatvecCost {
    /// Maximum rows for these kernels.
    pub rows: u32,
    /// Share of the peak memory bandwidth that they reach.
    pub efficiency: f64,
}

/// GEMM time of the library relative to the latency table.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct MatMulScale {
    /// Factor for decode steps, whose matrices have few rows.
    pub decode_scale: f64,
    /// Factor for prefill, whose matrices have many rows.
    pub prefill_scale: f64,
}

/// Attention algorithm.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum AttentionKind {
    /// Scores in memory, K and V expanded to all query heads.
    Math,
    /// One kernel; only the result goes to memory.
    Fused,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "Attention")]
pub struct AttentionCost {
    /// Attention algorithm: scores in memory or within one kernel.
    pub kind: AttentionKind,
    /// Kernels launched per attention.
    pub kernels: u32,
    /// `math`: rate at which decode attention consumes expanded K and V (1e9 bytes a second).
    pub expanded_kv_gb_s: f64,
    /// `math`: passes over the scores in prefill.
    pub score_passes: u32,
    /// `math`: bytes of a score.
    pub score_bytes: u32,
    /// Share of the peak arithmetic that prefill attention reaches.
    pub prefill_efficiency: f64,
}

/// Cost of collectives within a model relative to the latency tables.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct CollectiveScale {
    /// Factor of the latency part, relative to back-to-back collectives in the table; formulas are
    /// unaffected.
    pub latency_scale: f64,
    /// Factor of the transfer part (bytes / bandwidth), relative to the table or formula.
    #[serde(default = "super::one")]
    pub transfer_scale: f64,
}

impl CollectiveScale {
    /// Standalone collectives, back to back.
    pub const ALONE: Self = Self { latency_scale: 1.0, transfer_scale: 1.0 };
}

/// Shares of speed that the lanes lose to each other while both are busy.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Contention {
    /// Share of its speed that memory-bound compute loses to a large collective.
    pub memory: f64,
    /// Share of its speed that arithmetic-bound compute loses to a large collective.
    pub arithmetic: f64,
    /// Fraction of these losses caused by the smallest collective; grows in proportion to the message.
    pub small: f64,
    /// Message size from which the full loss applies (bytes).
    pub full_bytes: f64,
    /// Thread blocks of a large NCCL collective: collectives known to use fewer cause proportionally
    /// less loss.
    #[serde(default = "full_ctas")]
    pub full_ctas: f64,
    /// Share of its speed that a collective loses to compute.
    pub comm: f64,
}

/// NCCL's thread blocks on eight GPUs with NVLink 4; an assumption under which the losses were fitted.
fn full_ctas() -> f64 {
    24.0
}

impl Contention {
    /// Fraction of the losses caused by a collective of `message` bytes, `small` to 1; less if its
    /// thread blocks are known and few.
    pub fn intensity(&self, message: f64, ctas: Option<u32>) -> f64 {
        let by_message = (message / self.full_bytes).min(1.0).max(self.small);
        ctas.map_or(by_message, |ctas| by_message.min(f64::from(ctas) / self.full_ctas))
    }
}

/// Spellings of engines, each with the prefix of its stacks' names.
const ENGINES: [(&str, &str); 6] = [
    ("vllm", "vllm"),
    ("tensorrt-llm", "trtllm"),
    ("tensorrt_llm", "trtllm"),
    ("trtllm", "trtllm"),
    ("sglang", "sglang"),
    ("lmdeploy", "lmdeploy"),
];

static BUILT_IN_STACKS: Library<Stack> = Library {
    what: "stack",
    word: "stack",
    input: InputKind::STACK,
    texts: &built_in::STACKS,
    read: Stack::parse,
    parsed: LazyLock::new(|| built_in::STACKS.iter().map(|_| OnceLock::new()).collect()),
};

impl Stack {
    /// Loads a built-in stack by name, or a TOML file.
    ///
    /// # Errors
    ///
    /// Returns an input error for an unknown stack (with the nearest name) or an invalid file (with line
    /// and column).
    pub fn load(name_or_file: &str) -> Result<Self> {
        BUILT_IN_STACKS.load(name_or_file)
    }

    /// File the argument refers to; `None` for a built-in name or a missing file.
    pub fn file(name_or_file: &str) -> Option<&Path> {
        BUILT_IN_STACKS.file(name_or_file)
    }

    pub fn built_in() -> Vec<Self> {
        BUILT_IN_STACKS.built_in()
    }

    /// Canonical name of a built-in stack, ignoring case and dashes (`gpt_fast` is `gpt-fast`); other
    /// text, such as a file name, is returned unchanged.
    pub fn canonical_name(typed: &str) -> &str {
        BUILT_IN_STACKS.canonical_name(typed)
    }

    /// TOML text of a built-in stack.
    pub fn built_in_text(name: &str) -> Option<&'static str> {
        BUILT_IN_STACKS.text(name)
    }

    /// Parses and checks a stack; `file` is its name in errors.
    pub(super) fn parse(file: &str, text: &str) -> Result<Self> {
        BUILT_IN_STACKS.parse(file, text, Self::check)
    }

    /// Name of the built-in stack of an engine and version, as traces and published data have them: the newest
    /// stack that is not newer than the version, else the oldest. The flag is true if major and minor version
    /// agree. `None` for an engine without a stack.
    pub fn of_engine(engine: &str, version: &str) -> Option<(&'static str, bool)> {
        let engine = engine.trim().to_ascii_lowercase();
        let (_, prefix) = ENGINES.iter().find(|(spelled, _)| engine == *spelled)?;
        let wanted = major_minor(version);
        let mut known: Vec<([u32; 2], &'static str)> = STACKS
            .iter()
            .filter_map(|name| {
                let version = name.strip_prefix(prefix)?;
                Some((major_minor(version.trim_start_matches('-')).unwrap_or_default(), *name))
            })
            .collect();
        known.sort_unstable();
        let at = wanted.and_then(|wanted| known.iter().rposition(|(version, _)| *version <= wanted));
        // a version that is not known is taken as today's
        let at = at.unwrap_or(if wanted.is_none() { known.len().saturating_sub(1) } else { 0 });
        known.get(at).map(|(version, name)| (*name, Some(*version) == wanted))
    }

    /// Engine with measured kernels and the version of its all-reduces, by default from the stack's name.
    pub fn engine_version(&self) -> Option<EngineVersion> {
        let own = || Some(self.name.split_once('-')?.1);
        let version = self.kernels.as_deref().or_else(own).and_then(major_minor);
        self.engine.map(|engine| (engine, version))
    }

    /// Engine of a stack as people write it, with its version: `vLLM 0.12`. Other stacks keep their name.
    pub fn title(&self) -> String {
        let titles = [("vllm-", "vLLM"), ("trtllm-", "TensorRT-LLM"), ("sglang-", "SGLang")];
        let known =
            titles.iter().find_map(|(prefix, title)| Some((title, self.name.strip_prefix(prefix)?)));
        known.map_or_else(|| self.name.clone(), |(title, version)| format!("{title} {version}"))
    }

    /// Lowering of plans: fusion, sharding of the head, logits of all positions.
    pub fn lowering(&self) -> Lowering {
        Lowering {
            shard_head: self.shard_head,
            all_logits: self.all_logits,
            late_select: false,
            fuse_add_norm: self.fuse_add_norm,
            fuse_all_reduce: false,
        }
    }

    /// Returns the first key with an invalid value, and the problem.
    pub(super) fn check(&self) -> CheckResult {
        at_least("launch_us", self.launch_us, 0.0)?;
        at_least("eager_launch_us", self.eager_launch_us, 0.0)?;
        at_least("step_us", self.step_us, 0.0)?;
        at_least("sequence_us", self.sequence_us, 0.0)?;
        if let Some(serving) = &self.serving {
            at_least("serving.step_tokens", serving.step_tokens.into(), 1.0)?;
            at_least("serving.prefill_layer_us", serving.prefill_layer_us, 0.0)?;
            at_least("serving.request_us", serving.request_us, 0.0)?;
            at_least("serving.intake_us", serving.intake_us, 0.0)?;
            share("serving.memory_share", serving.memory_share)?;
            share("serving.reserve", serving.reserve)?;
        }
        if let Some(version) = self.kernels.as_ref().filter(|version| major_minor(version).is_none()) {
            return Err(("kernels".into(), format!("is '{version}'; write a version such as 1.3")));
        }
        share("matvec.efficiency", self.matvec.efficiency)?;
        above("matmul.decode_scale", self.matmul.decode_scale, 0.0)?;
        above("matmul.prefill_scale", self.matmul.prefill_scale, 0.0)?;
        above("attention.expanded_kv_gb_s", self.attention.expanded_kv_gb_s, 0.0)?;
        share("attention.prefill_efficiency", self.attention.prefill_efficiency)?;
        above("collective.latency_scale", self.collective.latency_scale, 0.0)?;
        above("collective.transfer_scale", self.collective.transfer_scale, 0.0)?;
        above("contention.full_bytes", self.contention.full_bytes, 0.0)?;
        above("contention.full_ctas", self.contention.full_ctas, 0.0)?;
        loss("contention.memory", self.contention.memory)?;
        loss("contention.arithmetic", self.contention.arithmetic)?;
        loss("contention.comm", self.contention.comm)?;
        let small = self.contention.small;
        that("contention.small", small, (0.0..=1.0).contains(&small), "between 0 and 1")
    }
}

/// First two numbers of a version: `0.10.2` is 0 and 10, `1.1.0rc2` is 1 and 1.
pub(super) fn major_minor(version: &str) -> Option<[u32; 2]> {
    let mut parts = version.trim_start_matches('v').split('.').map(|part| {
        let digits = part.find(|c: char| !c.is_ascii_digit()).unwrap_or(part.len());
        part[..digits].parse().ok()
    });
    Some([parts.next()??, parts.next().flatten().unwrap_or(0)])
}

/// Lowering of a stack given by name or TOML file. Returns the errors of [`Stack::load`].
pub fn lowering(stack: &str) -> Result<Lowering> {
    Stack::load(stack).map(|stack| stack.lowering())
}

#[cfg(test)]
mod tests {
    use super::*;

    use base::error::Error;

    #[test]
    fn stacks_differ_in_prefill_logits_and_unknown_ones_are_named() {
        assert!(!lowering("native").unwrap().all_logits);
        assert!(lowering("gpt-fast").unwrap().all_logits);
        let Err(Error::Input { message, help }) = lowering("gptfast") else { panic!("accepted") };
        assert_eq!(message, "unknown stack 'gptfast'");
        assert!(help.unwrap().contains("did you mean 'gpt-fast'?"));
    }

    #[test]
    fn the_option_offers_every_built_in_stack() {
        let mut offered = table::options::option("stack").unwrap().values().to_vec();
        let mut built_in = STACKS.to_vec();
        offered.sort_unstable();
        built_in.sort_unstable();
        assert_eq!(offered, built_in);
    }

    #[test]
    fn every_built_in_stack_loads_by_its_own_name_and_survives_toml() {
        assert_eq!(Stack::built_in().len(), STACKS.len());
        for name in STACKS {
            let stack = Stack::load(name).unwrap();
            assert_eq!(stack.name, name);
            assert!(!stack.sources.is_empty());
            let text = toml::to_string(&stack).unwrap();
            assert_eq!(Stack::parse("again", &text).unwrap(), stack);
        }
    }

    #[test]
    fn values_that_make_no_sense_are_refused_by_name() {
        let text = built_in::STACKS[1].1;
        for (from, to, key) in [
            ("rows = 1", "rowz = 1", "rowz"),
            ("memory = 0.", "memory = 1.", "contention.memory is 1."),
            ("launch_us = ", "launch_us = -", "launch_us is -"),
            ("launch_us = ", "kernels = 'new'\nlaunch_us = ", "kernels is 'new'"),
        ] {
            let wrong = text.replacen(from, to, 1);
            assert_ne!(wrong, text);
            let message = Stack::parse("my.toml", &wrong).unwrap_err().to_string();
            assert!(message.contains("my.toml") && message.contains(key), "{message}");
        }
    }

    #[test]
    fn contention_grows_with_the_message_and_ends() {
        let contention = Stack::load("gpt-fast").unwrap().contention;
        assert_eq!(contention.intensity(1.0, None), contention.small);
        assert_eq!(contention.intensity(contention.full_bytes, None), 1.0);
        assert_eq!(contention.intensity(1e12, None), 1.0);
        // few thread blocks take little, and never more than the message would
        assert_eq!(contention.intensity(1e12, Some(6)), 0.25);
        assert_eq!(contention.intensity(1.0, Some(23)), contention.small);
        assert_eq!(contention.intensity(1e12, Some(96)), 1.0);
    }

    #[test]
    fn engines_find_their_stack_by_version() {
        for (engine, version, stack, is_exact) in [
            ("vllm", "0.10.2", "vllm-0.10", true),
            ("vLLM", "v0.12.0", "vllm-0.12", true),
            ("vllm", "0.19.1", "vllm-0.15", false),
            ("vllm", "0.6.3", "vllm-0.8", false),
            ("vllm", "unknown", "vllm-0.15", false),
            ("TensorRT-LLM", "1.1.0rc2.post2", "trtllm-1.1", true),
            ("trtllm", "1.2.0rc6", "trtllm-1.2", true),
            ("sglang", "0.5.9", "sglang-0.5", true),
        ] {
            assert_eq!(Stack::of_engine(engine, version), Some((stack, is_exact)), "{engine} {version}");
        }
        assert_eq!(Stack::of_engine("jax", "0.4"), None);
        assert_eq!(Stack::load("trtllm-1.0").unwrap().title(), "TensorRT-LLM 1.0");
    }
}
