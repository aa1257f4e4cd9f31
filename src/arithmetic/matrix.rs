//! A weight's numbers in memory.

use std::borrow::Cow;

/// One rank's slice of a weight, row-major `[outputs, inputs]`.
#[derive(Clone, Debug, PartialEq)]
pub struct Matrix {
    /// Rows on this rank: outputs of the product.
    pub outputs: usize,
    /// Columns on this rank: inputs of the product.
    pub inputs: usize,
    /// The numbers, `outputs` rows of `inputs` each, one row after another.
    pub data: MatrixData,
}

impl Matrix {
    /// All numbers, row by row, as f32: for weights that are small.
    pub fn numbers(&self) -> Cow<'_, [f32]> {
        match &self.data {
            MatrixData::F32(numbers) => Cow::Borrowed(numbers),
            MatrixData::Bf16(numbers) => numbers.iter().map(|number| number.to_f32()).collect(),
        }
    }
}

/// The numbers of a matrix in their format.
#[derive(Clone, Debug, PartialEq)]
pub enum MatrixData {
    /// Numbers in single precision.
    F32(Vec<f32>),
    /// Numbers in bfloat16, as the checkpoint has them; arithmetic widens them.
    Bf16(Vec<half::bf16>),
}
