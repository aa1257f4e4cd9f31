//! Ladderscope: a workbench for research on tensor-parallel LLM decoding.
//!
//! Data flows one way: experiment file -> [`sweep`] -> [`launch`] -> [`model`] -> [`plan`] ->
//! [`backend`] -> [`trace`] and record -> [`store`] -> [`analysis`] -> [`cli`], [`tui`], [`plot`].
//! Beside it, [`whatif`]: one simulated cell under sliders.

pub mod analysis;
pub mod backend;
pub mod calibrate;
pub mod cli;
pub mod comm;
pub mod environment;
pub mod error;
pub mod hardware;
pub mod launch;
pub mod model;
pub mod plan;
pub mod plot;
pub mod record;
pub mod report;
pub mod spec;
pub mod store;
pub mod sweep;
mod text;
pub mod trace;
pub mod tui;
pub mod whatif;
