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
mod tokenizer;
mod weights;

pub use prompts::read_prompts;
pub use random::RandomStream;
pub use resolve::Model;
pub use tokenizer::Tokenizer;
pub use weights::{Matrix, MatrixData, WeightSource};

#[cfg(test)]
mod tests;
