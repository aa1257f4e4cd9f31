//! What a user may say about a cell, on the command line or in an experiment file, and its resolution
//! into a [`Spec`].

use serde::{Deserialize, Serialize};

use crate::error::Result;
use crate::model::DType;
use crate::plan::Architecture;
use crate::spec::{Backend, Collective, Link, P2p, Spec};

/// Options of a cell; what is missing gets a sensible default in [`CellOptions::resolve`].
/// Names are the contract's: dashes on the command line, underscores in files.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, clap::Args)]
#[serde(deny_unknown_fields, default)]
pub struct CellOptions {
    /// Residual wiring: standard, ladder, ladder:K, parallel, desync:N, upper-bound, stale:S, parallel+ladder [default: standard, or the checkpoint's]
    #[arg(long)]
    pub architecture: Option<Architecture>,
    /// A built-in shape (see `ladderscope models`) or an HF directory [default: llama-3.2-1b]
    #[arg(long, value_name = "NAME|DIR")]
    pub model: Option<String>,
    /// Format of the weights: f32, bf16, f16 [default: the checkpoint's, else bf16; on cpu f32]
    #[arg(long)]
    pub dtype: Option<DType>,
    /// Ranks of tensor parallelism [default: 1]
    #[arg(long)]
    pub tp: Option<u32>,
    /// Sequences decoded together [default: 1]
    #[arg(long)]
    pub batch: Option<u32>,
    /// Tokens of each prompt [default: 1024; on cpu 32]
    #[arg(long, value_name = "N")]
    pub prompt_tokens: Option<u32>,
    /// New tokens of each sequence [default: 512; on cpu 32]
    #[arg(long, value_name = "N")]
    pub output_tokens: Option<u32>,
    /// Whether GPUs may talk to each other directly: on, off [default: on]
    #[arg(long)]
    pub p2p: Option<P2p>,
    /// Who runs it: auto, sim, cpu, cuda [default: auto]
    #[arg(long)]
    pub backend: Option<Backend>,
    /// Hardware profile (see `ladderscope hardware`) or a TOML file [default: h100_sxm; on cpu the host]
    #[arg(long, value_name = "NAME|FILE")]
    pub hardware: Option<String>,
    /// Link of all-reduces: native, p2p-on, p2p-off, emulated:alpha_us=20,gb_s=50 [default: native]
    #[arg(long)]
    pub link: Option<Link>,
    /// Timed generations [default: 10; on sim 1]
    #[arg(long, value_name = "N")]
    pub samples: Option<u32>,
    /// Untimed generations before them [default: 2; on sim 0]
    #[arg(long, value_name = "N")]
    pub warmup: Option<u32>,
    /// Seed of random weights, prompts and sampling [default: 0]
    #[arg(long)]
    pub seed: Option<u64>,
    /// Software stack for the simulator: native, gpt-fast or a file [default: native]
    #[arg(long, value_name = "NAME|FILE")]
    pub stack: Option<String>,
    /// All-reduce for the simulator: nccl, one-shot [default: nccl]
    #[arg(long)]
    pub collective: Option<Collective>,
    /// A variable of the run's process, for example NCCL_ALGO=Ring (repeatable)
    #[arg(long, value_name = "KEY=VALUE")]
    pub env: Vec<String>,
    /// Override a profile value, for example link.alpha_us=5 (simulator; repeatable)
    #[arg(long, value_name = "KEY=VALUE")]
    pub set: Vec<String>,
}

impl CellOptions {
    /// Fills in defaults, picks the backend where it is `auto`, and says which and why (second value).
    /// Errors where a value is wrong; whether the cell can run is [`super::verdict`]'s.
    pub fn resolve(&self) -> Result<(Spec, Option<String>)> {
        todo!()
    }
}
