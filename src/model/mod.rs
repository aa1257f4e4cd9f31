//! Models: shapes, HF configs, weights (random or from safetensors), tokenizers.

mod shape;

use std::path::PathBuf;

pub use shape::{DType, ModelShape, Rope, RopeScaling};

use crate::error::Result;
use crate::plan::{LadderLayers, Weight};

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

impl Model {
    /// A built-in shape by name, or an HF directory. Unknown names get the nearest valid one.
    pub fn resolve(name_or_dir: &str) -> Result<Self> {
        let _ = name_or_dir;
        todo!()
    }

    /// All built-in shapes, in the contract's order.
    pub fn built_in() -> Vec<Self> {
        todo!()
    }
}

/// One rank's slice of a weight, row-major `[outputs, inputs]`.
#[derive(Clone, Debug, PartialEq)]
pub struct Matrix {
    /// Rows.
    pub outputs: usize,
    /// Columns.
    pub inputs: usize,
    /// The numbers.
    pub data: MatrixData,
}

/// The numbers of a matrix in their format.
#[derive(Clone, Debug, PartialEq)]
pub enum MatrixData {
    /// f32.
    F32(Vec<f32>),
    /// bf16.
    Bf16(Vec<half::bf16>),
}

/// Where weights come from: an opened checkpoint (memory-mapped), or a seed.
#[derive(Debug)]
pub struct WeightSource {
    _todo: (),
}

impl WeightSource {
    /// Opens the model's safetensors files, or prepares random weights from `seed`.
    pub fn open(model: &Model, seed: u64) -> Result<Self> {
        let _ = (model, seed);
        todo!()
    }

    /// One rank's slice of `weight`, converted to `dtype` (f32 or bf16). Thread-safe.
    pub fn load(&self, weight: &Weight, rank: u32, tp: u32, dtype: DType) -> Result<Matrix> {
        let _ = (weight, rank, tp, dtype);
        todo!()
    }
}
