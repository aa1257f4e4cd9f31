//! Models: shapes, HF configs, weights (random or safetensors), tokenizers, prompt files.
//!
//! [`Model::resolve`] finds a [`Model`]; a [`WeightSource`] loads its weights, one rank's slice at a
//! time; a [`Tokenizer`] handles text, and [`read_prompts`] reads token ids. [`Model::fingerprint`]
//! identifies a model by content.

mod built_in;
mod changed_experts;
mod chat;
mod checkpoint;
mod config;
mod convert;
mod files;
mod layout;
mod mixture;
mod prompts;
mod random;
mod resolve;
mod tensor_file;
mod tokenizer;
mod weights;

pub use arithmetic::{Matrix, MatrixData, RandomStream};
pub use chat::{ChatMessage, ChatTemplate};
pub use config::{MAX_LAYERS, MAX_SIZE};
pub use convert::check_place;
pub use prompts::{read_prompts, read_tokens};
pub use resolve::Model;
pub use tensor_file::{TensorFile, write_tensors};
pub use tokenizer::Tokenizer;
pub use weights::{Fp8Rows, WeightSource, mxfp4_problem};

#[cfg(test)]
mod tests;
