//! Hardware: profiles of GPUs and links, measured latency tables, software stacks, and memory estimates.

mod check;
mod cost;
mod describe;
mod family;
mod link;
mod memory;
mod overrides;
mod profile;
mod recognise;
mod stack;
mod tables;
mod target;

use std::path::Path;

use base::text::same_name;

pub use cost::CollectiveCost;
pub use describe::Described;
pub use link::{BasisRows, InterNode, LargeMessages, LinkBasis, LinkPoint, LinkTable, Links};
pub use memory::{MemoryNeed, PlanMemory};
pub use profile::{Profile, Skew, Tflops};
pub use recognise::{profile_named, profile_of};
pub use stack::{AttentionKind, CollectiveScale, Contention, STACKS, Stack, lowering};
pub use tables::{CostSource, Peaks, Tables};
pub use target::Target;

/// File that a profile or stack argument refers to; `None` for a built-in name or a file that does not
/// exist.
fn file_of<'a>(typed: &'a str, built_in: &[(&str, &str)]) -> Option<&'a Path> {
    let path = Path::new(typed);
    // anything except a directory: readers report pipes and devices themselves
    let is_there = path.exists() && !path.is_dir();
    let is_file = typed.ends_with(".toml") || path.components().count() > 1 || is_there;
    (is_file && !built_in.iter().any(|(name, _)| same_name(name, typed))).then_some(path)
}
