//! Hardware: profiles of GPUs and their links, measured latency tables, software stacks, and what a
//! cell needs of memory.

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

pub use cost::CollectiveCost;
pub use describe::Described;
pub use link::{InterNode, LargeMessages, LinkPoint, LinkTable, Links};
pub use memory::{MemoryNeed, PlanMemory};
pub use profile::{Profile, Skew, Tflops};
pub use recognise::{profile_named, profile_of};
pub use stack::{AttentionKind, CollectiveScale, Contention, STACKS, Stack, lowering};
pub use tables::{CostSource, Peaks, Tables};
pub use target::Target;
