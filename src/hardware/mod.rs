//! Hardware: profiles of GPUs and their links, software stacks, and what a cell needs of memory.

mod link;
mod memory;
mod overrides;
mod profile;
mod stack;

pub use link::{InterNode, LinkPoint, LinkTable, Links};
pub use memory::MemoryNeed;
pub use profile::{Profile, Tflops};
pub use stack::{STACKS, lowering};
