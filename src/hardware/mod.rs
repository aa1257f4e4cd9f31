//! Hardware profiles: what a GPU and its links can do, with sources.

use crate::error::Result;
use crate::model::ModelShape;
use crate::plan::Precision;
use crate::spec::{P2p, Spec};

/// A hardware profile.
#[derive(Clone, Debug, PartialEq)]
pub struct Profile {
    /// Name: `h100_sxm`.
    pub name: String,
    /// Memory of one GPU in bytes.
    pub memory_bytes: u64,
}

impl Profile {
    /// A built-in profile by name, or a TOML file.
    pub fn load(name_or_file: &str) -> Result<Self> {
        let _ = name_or_file;
        todo!()
    }

    /// All built-in profiles.
    pub fn built_in() -> Vec<Self> {
        todo!()
    }

    /// Latency of one all-reduce as (alpha_us, gb_s of message bytes) for `tp` ranks.
    pub fn link(&self, p2p: P2p, tp: u32) -> (f64, f64) {
        let _ = (p2p, tp);
        todo!()
    }
}

/// What one rank needs, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MemoryNeed {
    /// Weights.
    pub weights: u64,
    /// KV cache at its full length.
    pub kv: u64,
    /// Activations of the largest step.
    pub activations: u64,
}

impl MemoryNeed {
    /// Of one rank of this cell.
    pub fn of(spec: &Spec, shape: &ModelShape, precision: Precision) -> Self {
        let _ = (spec, shape, precision);
        todo!()
    }

    /// In all.
    pub fn total(&self) -> u64 {
        self.weights + self.kv + self.activations
    }

    /// `weights 70.6 GB + KV cache 0.1 GB + activations 0.2 GB = 70.9 GB`.
    pub fn arithmetic(&self) -> String {
        todo!()
    }
}
