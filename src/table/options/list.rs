//! Table of options. To add one, append an entry below and use it in a backend.
//!
//! The sentence above an entry is its documentation on the command line, in JSON schemas and in the
//! experiment editor. The default is that of [`Spec`]; a backend may choose another if the user sets
//! nothing.

use std::collections::BTreeMap;

use super::entry::{About, Access, OptionEntry, PLAIN, Value};
use super::link::Link;
use super::make::{dashed, entry, options};
use base::words::words;
use plan::{Architecture, CommDType, DType};

words! {
    /// Executor of a plan.
    Backend, "backend" {
        /// Whichever of the others this machine can do; resolved before anything runs.
        Auto = "auto",
        /// Discrete-event simulation over a hardware profile.
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
    /// Direct communication between GPUs.
    P2p, "p2p" {
        /// Peer to peer (NVLink where there is one).
        On = "on",
        /// Through host memory (`NCCL_P2P_DISABLE=1`).
        Off = "off",
    }
}

words! {
    /// Use of NVLink SHARP (in-switch sums) by NCCL, independent of P2P.
    #[derive(Default)]
    Nvls, "nvls" {
        /// Where NCCL chooses so.
        #[default]
        On = "on",
        /// In no collective (`NCCL_NVLS_ENABLE=0`).
        Off = "off",
    }
}

words! {
    /// All-reduce implementation.
    #[derive(Default)]
    Collective, "collective" {
        /// NCCL's ring or tree.
        #[default]
        Nccl = "nccl",
        /// NCCL's over symmetric memory.
        Symmetric = "symmetric",
        /// A custom one-shot all-reduce in a CUDA graph: each rank reads all messages.
        OneShot = "one-shot",
        /// A custom two-shot all-reduce: each rank sums its part, then all gather.
        TwoShot = "two-shot",
        /// Within NVLink's switch, through symmetric memory.
        Multimem = "multimem",
        /// One operation with the residual's addition and the norm.
        Fused = "fused",
    }
}

words! {
    /// Recorder of the operations of a GPU run.
    #[derive(Default)]
    Recorder, "recorder" {
        /// Kernels themselves: each says when it ran.
        #[default]
        Stamps = "stamps",
        /// CUDA events around modules and collectives, on both streams.
        Events = "events",
        /// Activity records of CUPTI, NVIDIA's profiling library.
        Cupti = "cupti",
        /// Nothing: the run has no trace and no overlap.
        Off = "off",
    }
}

options! {
    first {
        /// Residual wiring
        architecture: Architecture = Architecture::Standard, About {
            values: &Architecture::FORMS,
            meanings: &Architecture::MEANINGS,
            default: "standard, or the checkpoint's",
            value_name: "ARCHITECTURE",
            title: Some("arch"),
            aliases: &["arch"],
            in_workload: true,
            baseline: Some("standard"),
            ..PLAIN
        };
        /// A built-in shape (see `ladderscope models`) or an HF directory
        model: String = "llama-3.2-1b".into(), About {
            default: "llama-3.2-1b",
            value_name: "NAME|DIR",
            ..PLAIN
        };
        /// Format of the weights
        dtype: DType = DType::Bf16, About {
            default: "the checkpoint's, else bf16; on cpu f32",
            value_name: "DTYPE",
            ..PLAIN
        };
        /// Ranks of tensor parallelism
        tp: u32 = 1, About {
            default: "1",
            value_name: "TP",
            least: 1,
            label: "tp",
            in_workload: true,
            ..PLAIN
        };
        /// Sequences decoded together
        batch: u32 = 1, About {
            default: "1",
            value_name: "BATCH",
            least: 1,
            aliases: &["b"],
            label: "b",
            in_workload: true,
            ..PLAIN
        };
        /// Tokens of each prompt
        prompt_tokens: u32 = 1024, About {
            default: "1024; on cpu 32",
            value_name: "N",
            least: 1,
            title: Some("prompt"),
            aliases: &["prompt"],
            label: "prompt",
            in_workload: true,
            ..PLAIN
        };
        /// New tokens of each sequence
        output_tokens: u32 = 512, About {
            default: "512; on cpu 32",
            value_name: "N",
            least: 1,
            title: Some("output"),
            aliases: &["output"],
            label: "output",
            in_workload: true,
            ..PLAIN
        };
        /// Whether GPUs may talk to each other directly
        p2p: P2p = P2p::On, About {
            default: "on; with link p2p-off, off",
            value_name: "P2P",
            label: "p2p-",
            is_searched: false,
            in_workload: true,
            baseline: Some("on"),
            ..PLAIN
        };
        /// What runs the cell
        backend: Backend = Backend::Sim, About {
            default: "auto",
            value_name: "BACKEND",
            ..PLAIN
        };
        /// The link that all-reduces take
        link: Link = Link::Native, About {
            values: &["native", "p2p-on", "p2p-off", "emulated:alpha_us=20,gb_s=50"],
            meanings: &[
                "what the machine or the simulated hardware has, P2P applied",
                "emulated: that of the hardware profile with P2P",
                "emulated: that of the hardware profile without P2P",
                "each all-reduce takes alpha + message bytes / bandwidth",
            ],
            default: "native",
            value_name: "LINK",
            ..PLAIN
        };
        /// Hardware profile (see `ladderscope hardware`) or a TOML file
        hardware: String = "h100_sxm".into(), About {
            default: "h100_sxm; on cpu the host",
            value_name: "NAME|FILE",
            aliases: &["hw"],
            heeded_by: &[Backend::Sim],
            ..PLAIN
        };
        /// Software stack for the simulator, by name or file
        stack: String = "native".into(), About {
            values: &["native", "gpt-fast", "lmdeploy", "vllm-0.8"],
            meanings: &["this program's own kernels and graphs", "gpt-fast with torch.compile, as in the paper"],
            default: "native",
            value_name: "NAME|FILE",
            label: "stack-",
            heeded_by: &[Backend::Sim],
            ..PLAIN
        };
        /// Which all-reduce sums over ranks
        #[serde(default)]
        collective: Collective = Collective::Nccl, About {
            default: "nccl",
            value_name: "COLLECTIVE",
            ..PLAIN
        };
        /// Timed generations
        samples: u32 = 10, About {
            default: "10; on sim 1",
            value_name: "N",
            least: 1,
            label: "samples",
            in_workload: true,
            ..PLAIN
        };
        /// Untimed generations before them
        warmup: u32 = 2, About {
            default: "2; on sim 0",
            value_name: "N",
            label: "warmup",
            in_workload: true,
            ..PLAIN
        };
        /// Seed of random weights, prompts and sampling
        seed: u64 = 0, About {
            default: "0",
            value_name: "SEED",
            label: "seed",
            in_workload: true,
            ..PLAIN
        };
    }
    later {
        /// What records the operations of a cuda run
        recorder: Recorder = Recorder::Stamps, About {
            default: "stamps",
            value_name: "RECORDER",
            label: "recorder-",
            heeded_by: &[Backend::Cuda],
            ..PLAIN
        };
        /// Enqueue the operations of a cuda run one by one instead of replaying a graph
        no_graph: bool = false, About {
            label: "eager",
            heeded_by: &[Backend::Cuda],
            ..PLAIN
        };
        /// Groups into which the batch is divided, whose operations alternate; a prefill of fewer sequences is divided by tokens
        micro_batches: u32 = 1, About {
            default: "1",
            value_name: "M",
            least: 1,
            title: Some("micro"),
            aliases: &["micro"],
            label: "micro",
            in_workload: true,
            ..PLAIN
        };
        /// Format in which partial sums are sent
        comm_dtype: CommDType = CommDType::Activations, About {
            default: "activations",
            value_name: "FORMAT",
            label: "comm-",
            ..PLAIN
        };
        /// Scatter the residual's rows over the ranks: a reduce-scatter, norms of 1/TP of the rows and an all-gather
        sequence_parallel: bool = false, About {
            label: "seqpar",
            ..PLAIN
        };
        /// Whether NCCL may sum within NVLink's switch, which P2P off leaves on
        nvls: Nvls = Nvls::On, About {
            default: "on",
            value_name: "NVLS",
            label: "nvls-",
            heeded_by: &[Backend::Cuda],
            in_workload: true,
            baseline: Some("on"),
            ..PLAIN
        };
        /// Multiprocessors of a GPU that are set aside for communication, on which nothing else runs; 0: all share all
        comm_sms: u32 = 0, About {
            default: "0",
            value_name: "N",
            title: Some("comm SMs"),
            label: "comm-sms",
            heeded_by: &[Backend::Cuda],
            in_workload: true,
            ..PLAIN
        };
        /// Compute threads of all ranks together, which they divide; 0: one a rank
        threads: u32 = 0, About {
            default: "one a rank",
            value_name: "N",
            label: "threads",
            heeded_by: &[Backend::Cpu],
            in_workload: true,
            ..PLAIN
        };
        /// Divide the head by vocabulary over the ranks: one more collective a step, named head
        shard_head: bool = false, About {
            label: "sharded-head",
            heeded_by: &[Backend::Cpu, Backend::Cuda],
            in_workload: true,
            ..PLAIN
        };
    }
}
