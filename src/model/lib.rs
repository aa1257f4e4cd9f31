//! Models: shapes, HF configs, weights (random or from safetensors), tokenizers, prompt files.
//!
//! A [`Model`] comes from [`Model::resolve`]; its numbers from a [`WeightSource`], one rank's slice at a
//! time; text from a [`Tokenizer`], or prompts of ids from [`read_prompts`]; what
//! a model computes is named by [`Model::fingerprint`].

mod built_in;
mod chat;
mod checkpoint;
mod config;
mod converted;
mod files;
mod fingerprint;
mod numbers;
mod prompts;
mod random;
mod resolve;
mod rope;
mod tokenizer;
mod trained;
mod weights;

pub use arithmetic::{Matrix, MatrixData, RandomStream};
pub use chat::{ChatTemplate, Message};
pub use config::{MAX_LAYERS, MAX_SIZE};
pub use converted::check_place;
pub use numbers::{NumbersFile, write_numbers};
pub use prompts::{read_prompts, read_tokens};
pub use resolve::Model;
pub use tokenizer::Tokenizer;
pub use weights::{Fp8Rows, WeightSource};

#[cfg(test)]
mod tests;
