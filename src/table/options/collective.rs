//! All-reduces: an entry each of [`Collective`] and of [`Collective::about`].

use super::Backend;
use base::words::words;

words! {
    /// All-reduce implementation.
    #[derive(Default)]
    Collective, "collective" {
        /// NCCL ring or tree.
        #[default]
        Nccl = "nccl",
        /// NCCL over symmetric memory.
        Symmetric = "symmetric",
        /// Custom one-shot all-reduce in a CUDA graph: each rank reads all messages.
        OneShot = "one-shot",
        /// Custom two-shot all-reduce: each rank reduces its part, then all-gather.
        TwoShot = "two-shot",
        /// In-switch reduction (NVLink SHARP) through symmetric memory.
        Multimem = "multimem",
        /// All-reduce fused with the residual add and the norm.
        Fused = "fused",
        /// At each message size the one with the lowest latency without contention, except fused (simulated).
        Fastest = "fastest",
    }
}

/// Properties of an all-reduce.
#[derive(Clone, Copy, Debug)]
pub struct AboutCollective {
    /// Words of its kernels' names, in lower case.
    pub kernels: &'static [&'static str],
    /// Share of its transfer time that a reduce-scatter or all-gather takes: 1/2 in a ring, where an all-reduce
    /// consists of both. In-switch all-reduces move fewer bytes than both together, and the share is 3/4 (measured
    /// with multimem on 8 H100s: 0.74 for all-gather, 0.76 for reduce-scatter of 16 MB to 512 MB; TokenWeave,
    /// figure 4).
    pub half: f64,
    /// True if it needs NVLink's switch or NCCL's symmetric memory.
    pub needs_switch: bool,
    /// True if `fastest` may choose it.
    pub is_choice: bool,
    /// Backends that execute or predict it; every backend calls its own `nccl`.
    pub backends: &'static [Backend],
}

impl Collective {
    pub fn about(self) -> AboutCollective {
        const PLAIN: AboutCollective = AboutCollective {
            kernels: &[],
            half: 0.5,
            needs_switch: false,
            is_choice: true,
            backends: &[Backend::Sim],
        };
        let with = |kernels| AboutCollective { kernels, ..PLAIN };
        match self {
            Self::Nccl => AboutCollective {
                backends: &[Backend::Sim, Backend::Cpu, Backend::Cuda],
                ..with(&["nccl", "rccl"])
            },
            Self::Symmetric => AboutCollective { needs_switch: true, ..with(&["ncclsym"]) },
            Self::OneShot => AboutCollective {
                backends: &[Backend::Sim, Backend::Cuda],
                ..with(&["1stage", "one_shot", "oneshot"])
            },
            Self::TwoShot => with(&["2stage", "two_shot", "twoshot"]),
            Self::Multimem => AboutCollective { half: 0.75, needs_switch: true, ..with(&["multimem"]) },
            // another plan, so `fastest` does not choose it
            Self::Fused => AboutCollective {
                half: 0.75,
                is_choice: false,
                backends: &[Backend::Sim, Backend::Cuda],
                ..PLAIN
            },
            Self::Fastest => AboutCollective { is_choice: false, ..PLAIN },
        }
    }

    /// All-reduces that a kernel matches, the one that determines its latency first: a fused one-shot kernel is both.
    /// Empty if unknown. `function` is its name without arguments.
    pub fn of_kernel(function: &str, name: &str) -> Vec<Self> {
        let (function, name) = (function.to_ascii_lowercase(), name.to_ascii_lowercase());
        let has = |words: &[&str]| words.iter().any(|word| name.contains(word));
        // pattern 0 of TensorRT-LLM's fusion kernels is a plain all-reduce
        let is_alone = has(&["allreducefusionpattern)0,", "allreducefusionpattern)0>"]);
        let norms = ["fusion", "fused", "norm", "residual"].iter().any(|word| function.contains(word));
        let mut found: Vec<Self> =
            Self::ALL.into_iter().filter(|one| has(one.about().kernels)).collect();
        if norms && !is_alone {
            found.push(Self::Fused);
        }
        // symmetric kernels are NCCL's, too
        found.retain(|one| *one != Self::Nccl || !has(Self::Symmetric.about().kernels));
        found.sort_by_key(|one| match one {
            Self::Fused => 0,
            Self::Multimem => 1,
            Self::Symmetric => 2,
            Self::Nccl => 3,
            _ => 4,
        });
        found
    }
}
