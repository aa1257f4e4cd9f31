//! Table of options. To add one, append an entry below and use it in a backend.
//!
//! The sentence above an entry is its documentation on the command line, in JSON schemas and in the
//! experiment editor. The default is that of [`Spec`]; a backend may choose another if the user sets
//! nothing.

use std::collections::BTreeMap;

use super::collective::Collective;
use super::link::Link;
use super::make::{dashed, entry, options};
use super::{Access, OptionDescription, OptionEntry, OptionValue, PLAIN};
use base::words::words;
use plan::{Architecture, CommDType, DType, ExpertLoad, KvDType};

words! {
    /// Backend that runs a plan.
    Backend, "backend" {
        /// A backend chosen for the machine and the options, before anything runs.
        Auto = "auto",
        /// Discrete-event simulation on a hardware profile.
        Sim = "sim",
        /// Real decoding on CPU threads.
        Cpu = "cpu",
        /// Real decoding on NVIDIA GPUs.
        Cuda = "cuda",
    }
}

impl Backend {
    /// True if it only predicts: numbers are labeled as simulated and deterministic.
    pub fn is_simulated(self) -> bool {
        matches!(self, Self::Sim)
    }

    /// True if ranks compute on this machine's CPU cores, which other programs may occupy.
    pub fn computes_on_cores(self) -> bool {
        matches!(self, Self::Cpu)
    }
}

words! {
    /// Direct (peer-to-peer) access between GPUs.
    P2p, "p2p" {
        /// Peer to peer (over NVLink if present).
        On = "on",
        /// Through host memory (`NCCL_P2P_DISABLE=1`).
        Off = "off",
    }
}

words! {
    /// In-switch reduction (NVLink SHARP) in NCCL, with or without P2P.
    #[derive(Default)]
    Nvls, "nvls" {
        /// Enabled; NCCL decides when to use it.
        #[default]
        On = "on",
        /// Disabled (`NCCL_NVLS_ENABLE=0`).
        Off = "off",
    }
}

words! {
    /// Recorder of operation times in runs on GPUs.
    #[derive(Default)]
    Recorder, "recorder" {
        /// Timestamps written by the kernels themselves.
        #[default]
        Stamps = "stamps",
        /// CUDA events around modules and collectives, on both streams.
        Events = "events",
        /// Activity records from CUPTI, NVIDIA's profiling library.
        Cupti = "cupti",
        /// No recording: the run has no trace and no overlap.
        Off = "off",
    }
}

options! {
    first {
        /// Architecture (residual wiring)
        architecture: Architecture = Architecture::Standard, OptionDescription {
            values: &Architecture::FORMS, meanings: &Architecture::MEANINGS,
            default: "standard, or the checkpoint's", value_name: "ARCHITECTURE", title: Some("arch"),
            aliases: &["arch"], in_workload: true, baseline: Some("standard"), ..PLAIN
        };
        /// Built-in model shape (see `ladderscope models`) or an HF directory
        model: String = "llama-3.2-1b".into(), OptionDescription {
            default: "llama-3.2-1b", value_name: "NAME|DIR", ..PLAIN
        };
        /// Number format of the weights
        dtype: DType = DType::Bf16, OptionDescription {
            default: "the checkpoint's, else bf16; on cpu f32", value_name: "DTYPE", ..PLAIN
        };
        /// Tensor-parallel size (ranks)
        tp: u32 = 1, OptionDescription {
            default: "1", value_name: "TP", least: 1, label: "tp", in_workload: true, ..PLAIN
        };
        /// Batch size (sequences decoded together)
        batch: u32 = 1, OptionDescription {
            default: "1", value_name: "BATCH", least: 1, aliases: &["b"], label: "b", in_workload: true,
            ..PLAIN
        };
        /// Prompt length in tokens
        prompt_tokens: u32 = 1024, OptionDescription {
            default: "1024; on cpu 32", value_name: "N", least: 1, title: Some("prompt"),
            aliases: &["prompt"], label: "prompt", in_workload: true, ..PLAIN
        };
        /// Tokens generated per sequence
        output_tokens: u32 = 512, OptionDescription {
            default: "512; on cpu 32", value_name: "N", least: 1, title: Some("output"),
            aliases: &["output"], label: "output", in_workload: true, ..PLAIN
        };
        /// Direct (peer-to-peer) access between GPUs
        p2p: P2p = P2p::On, OptionDescription {
            default: "on; with link p2p-off, off", value_name: "P2P", label: "p2p-", is_searched: false,
            in_workload: true, baseline: Some("on"), ..PLAIN
        };
        /// Backend that runs the cell
        backend: Backend = Backend::Sim, OptionDescription { default: "auto", value_name: "BACKEND", ..PLAIN };
        /// Link that all-reduces use
        link: Link = Link::Native, OptionDescription {
            values: &["native", "p2p-on", "p2p-off", "emulated:alpha_us=20,gb_s=50"],
            meanings: &[
                "the machine's or simulated hardware's own link, p2p applied",
                "emulated: the hardware profile's link with P2P",
                "emulated: the hardware profile's link without P2P",
                "emulated: latency alpha + message bytes / bandwidth",
            ],
            default: "native", value_name: "LINK", ..PLAIN
        };
        /// Hardware profile to simulate (see `ladderscope hardware`) or a TOML file
        hardware: String = "h100_sxm".into(), OptionDescription {
            default: "h100_sxm; on cpu the host", value_name: "NAME|FILE", aliases: &["hw"],
            used_by: &[Backend::Sim], ..PLAIN
        };
        /// Software stack to simulate, by name or TOML file
        stack: String = "native".into(), OptionDescription {
            values: &[
                "native", "gpt-fast", "lmdeploy", "vllm-0.8", "vllm-0.10", "vllm-0.12", "vllm-0.15", "trtllm-1.0",
                "trtllm-1.1", "trtllm-1.2", "sglang-0.5",
            ],
            meanings: &[
                "Ladderscope's own kernels and CUDA graphs", "gpt-fast with torch.compile, as in the paper",
            ],
            default: "native", value_name: "NAME|FILE", label: "stack-", used_by: &[Backend::Sim],
            ..PLAIN
        };
        /// All-reduce implementation (fastest: by latency, no contention)
        #[serde(default)]
        collective: Collective = Collective::Nccl, OptionDescription {
            default: "nccl", value_name: "COLLECTIVE", ..PLAIN
        };
        /// Number of timed generations
        samples: u32 = 10, OptionDescription {
            default: "10; on sim 1", value_name: "N", least: 1, label: "samples", in_workload: true,
            ..PLAIN
        };
        /// Number of untimed warm-up generations
        warmup: u32 = 2, OptionDescription {
            default: "2; on sim 0", value_name: "N", label: "warmup", in_workload: true, ..PLAIN
        };
        /// Seed for random weights, prompts and sampling
        seed: u64 = 0, OptionDescription {
            default: "0", value_name: "SEED", label: "seed", in_workload: true, ..PLAIN
        };
    }
    later {
        /// Recorder of operation times in a cuda run
        recorder: Recorder = Recorder::Stamps, OptionDescription {
            default: "stamps", value_name: "RECORDER", label: "recorder-", used_by: &[Backend::Cuda],
            ..PLAIN
        };
        /// Launch the operations of a cuda run one by one instead of replaying a CUDA graph
        no_graph: bool = false, OptionDescription { label: "eager", used_by: &[Backend::Cuda], ..PLAIN };
        /// Pipeline stages (each on TP ranks); micro-batches follow one another through them
        pp: u32 = 1, OptionDescription {
            default: "1", value_name: "PP", least: 1, title: Some("pp"), label: "pp",
            in_workload: true, ..PLAIN
        };
        /// Expert-parallel ranks, each with whole experts; 1: each rank has a slice of every expert
        ep: u32 = 1, OptionDescription {
            default: "1", value_name: "EP", least: 1, title: Some("ep"), label: "ep",
            in_workload: true, ..PLAIN
        };
        /// Data-parallel ranks, each with its own attention and sequences; they share experts
        dp: u32 = 1, OptionDescription {
            default: "1", value_name: "DP", least: 1, title: Some("dp"), label: "dp",
            used_by: &[Backend::Sim], in_workload: true, ..PLAIN
        };
        /// Distribution of tokens over the experts of a mixture-of-experts model
        expert_load: ExpertLoad = ExpertLoad::Uniform, OptionDescription {
            values: &ExpertLoad::FORMS, meanings: &ExpertLoad::MEANINGS,
            default: "uniform", value_name: "LOAD", title: Some("experts"), label: "load-",
            used_by: &[Backend::Sim], in_workload: true, ..PLAIN
        };
        /// Split each batch into M micro-batches with interleaved operations (a prefill of fewer than M sequences by tokens)
        micro_batches: u32 = 1, OptionDescription {
            default: "1", value_name: "M", least: 1, title: Some("micro"), aliases: &["micro"],
            label: "micro", in_workload: true, ..PLAIN
        };
        /// Serve C requests in flight in a closed loop, with prefills between decode steps; 0: a static batch
        concurrency: u32 = 0, OptionDescription {
            default: "0", value_name: "C", label: "c", used_by: &[Backend::Sim],
            in_workload: true, ..PLAIN
        };
        /// Number format of all-reduce messages (partial sums)
        comm_dtype: CommDType = CommDType::Activations, OptionDescription {
            default: "activations", value_name: "FORMAT", label: "comm-", ..PLAIN
        };
        /// Number format of the KV cache
        kv_dtype: KvDType = KvDType::Activations, OptionDescription {
            default: "activations", value_name: "FORMAT", title: Some("kv"), aliases: &["kv", "kv_cache_dtype"], label: "kv-",
            ..PLAIN
        };
        /// Use sequence parallelism: reduce-scatter, norms on 1/TP of the rows, all-gather
        sequence_parallel: bool = false, OptionDescription { label: "seqpar", ..PLAIN };
        /// In-switch reduction (NVLink SHARP) in NCCL, independent of p2p
        nvls: Nvls = Nvls::On, OptionDescription {
            default: "on", value_name: "NVLS", label: "nvls-", used_by: &[Backend::Cuda],
            in_workload: true, baseline: Some("on"), ..PLAIN
        };
        /// SMs per GPU reserved for communication; 0: compute and communication share all SMs
        comm_sms: u32 = 0, OptionDescription {
            default: "0", value_name: "N", title: Some("comm SMs"), label: "comm-sms",
            used_by: &[Backend::Cuda], in_workload: true, ..PLAIN
        };
        /// Total compute threads, divided among the ranks; 0: one per rank
        threads: u32 = 0, OptionDescription {
            default: "one per rank", value_name: "N", label: "threads", used_by: &[Backend::Cpu],
            in_workload: true, ..PLAIN
        };
        /// Shard the LM head by vocabulary; adds one all-gather per step (named `head` in traces)
        shard_head: bool = false, OptionDescription {
            label: "sharded-head", in_workload: true, ..PLAIN
        };
    }
}
