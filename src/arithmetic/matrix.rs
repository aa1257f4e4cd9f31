//! Weight matrices in memory.

use std::borrow::Cow;

/// One rank's slice of a weight, row-major `[outputs, inputs]`.
#[derive(Clone, Debug, PartialEq)]
pub struct Matrix {
    /// Rows on this rank.
    pub outputs: usize,
    /// Columns on this rank.
    pub inputs: usize,
    /// `outputs` rows of `inputs` numbers each.
    pub data: MatrixData,
}

impl Matrix {
    /// All numbers as f32, row by row; for small weights.
    pub fn numbers(&self) -> Cow<'_, [f32]> {
        match &self.data {
            MatrixData::F32(numbers) => Cow::Borrowed(numbers),
            MatrixData::Bf16(numbers) => numbers.iter().map(|number| number.to_f32()).collect(),
        }
    }
}

#[derive(Clone, Debug, PartialEq)]
pub enum MatrixData {
    F32(Vec<f32>),
    /// Kept as in the checkpoint; widened for arithmetic.
    Bf16(Vec<half::bf16>),
}
