//! Ladderscope: a workbench for research on tensor-parallel LLM decoding.
//!
//! The layers of the code are in `docs/contributing.md`. Each is a package of its own in `src/`, except the last two:
//! [`desk`], use cases that both faces share, and [`face`], the command line and the workbench.

pub mod desk;
pub mod face;
