//! Models: shapes, HF configs, weights (random or from safetensors), tokenizers, prompt files.
//!
//! A [`Model`] comes from [`Model::resolve`]; its numbers from a [`WeightSource`], one rank's slice at a
//! time; text from a [`Tokenizer`], or prompts of ids from [`read_prompts`].

mod built_in;
mod checkpoint;
mod config;
mod convert;
mod files;
mod prompts;
mod random;
mod resolve;
mod rope;
mod shape;
mod tokenizer;
mod weights;

use std::path::PathBuf;

pub use prompts::{check_ids, read_prompts};
pub use random::RandomStream;
pub use shape::{DType, ModelShape, Rope, RopeScaling};
pub use tokenizer::Tokenizer;
pub use weights::{Matrix, MatrixData, WeightSource};

use crate::plan::LadderLayers;

/// A model by name or directory: its shape, and its checkpoint if it has one.
#[derive(Clone, Debug)]
pub struct Model {
    /// The built-in name, or the directory as given.
    pub name: String,
    /// Its shape.
    pub shape: ModelShape,
    /// The HF directory, where it is one.
    pub dir: Option<PathBuf>,
    /// `ladder_layers` of its config.
    pub ladder_layers: Option<LadderLayers>,
    /// The checkpoint's number format (`torch_dtype`), if it says one.
    pub dtype: Option<DType>,
    /// End-of-text ids of its config.
    pub eos: Vec<u32>,
    /// Whether the directory has weights (else they are random).
    pub has_weights: bool,
    /// Anything to say about it (bloom-176b's gated MLP, llama-3.1-405b's 16 KV heads).
    pub note: Option<&'static str>,
}

#[cfg(test)]
mod tests;
