//! Ladderscope: a workbench for research on tensor-parallel LLM decoding.
//!
//! The house has wings, and each uses only those before it in this list (a test reads `src/` and fails
//! on an arrow that points back). Those up to [`run`] are the crate [`ladderscope_core`]:
//!
//! | wing | what lives in it |
//! |---|---|
//! | [`base`] | errors, text, atomic files, statistics |
//! | [`plan`] | architectures as plans: operations over values on two lanes |
//! | [`model`] | configurations, weights and tokenizers of checkpoints |
//! | [`table`] | options (what a cell is asked for) and measures (what a run yields) |
//! | [`machine`] | hardware profiles, this machine, the CUDA driver |
//! | [`trace`] | what every rank's lanes did: format, importers, overlap |
//! | [`run`] | backends that execute plans, their all-reduces and recorders |
//! | [`lab`] | experiments: stored runs, child processes, sweeps |
//! | [`study`] | analysis, figures, reports, what-if, calibration |
//! | [`desk`] | use cases that both faces share: open, select, describe, start, export |
//! | [`face`] | the command line and the workbench |

pub use ladderscope_core::{base, machine, model, plan, run, table, trace};

pub mod desk;
pub mod face;
pub mod lab;
pub mod study;
