//! Ladderscope: a workbench for research on tensor-parallel LLM decoding.
//!
//! The code has wings. Each is a package of its own in `src/`, except the last two, which are this one. A wing depends
//! only on those before it in this list:
//!
//! | wing | contents |
//! |---|---|
//! | [`arithmetic`] | loops over numbers: products, norms, softmaxes, conversions |
//! | [`base`] | errors, text, atomic files, statistics |
//! | [`plan`] | architectures as plans: operations over values on two lanes |
//! | [`model`] | configurations, weights and tokenizers of checkpoints |
//! | [`table`] | options (the settings of a cell) and measures (the results of a run) |
//! | [`machine`] | hardware profiles, this machine, the CUDA driver |
//! | [`trace`] | spans of every rank's lanes: format, importers, overlap |
//! | [`run`] | backends that execute plans, their all-reduces and recorders |
//! | [`lab`] | experiments: stored runs, child processes, sweeps |
//! | [`study`] | analysis, figures, reports, what-if, calibration |
//! | [`desk`] | use cases that both faces share: open, select, describe, start, export |
//! | [`face`] | the command line and the workbench |

pub mod desk;
pub mod face;
