//! Matrices: weights in rows, and products with the `gemm` crate.

use std::borrow::Cow;

use crate::mxfp4;
use crate::real::Real;

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
            MatrixData::Mxfp4 { blocks, scales } => {
                let mut numbers = vec![0.0; self.outputs * self.inputs];
                // rows are whole blocks, so that all are one long row
                mxfp4::fill(blocks, scales, 0, &mut numbers);
                numbers.into()
            }
        }
    }
}

#[derive(Clone, Debug, PartialEq)]
pub enum MatrixData {
    F32(Vec<f32>),
    /// Kept as in the checkpoint; widened for arithmetic.
    Bf16(Vec<half::bf16>),
    /// e2m1 in pairs and the powers of two of 32 inputs, row by row; see [`mxfp4`].
    Mxfp4 {
        blocks: Vec<u8>,
        scales: Vec<u8>,
    },
}

impl MatrixData {
    pub fn bytes(&self) -> u64 {
        let bytes = match self {
            Self::F32(numbers) => size_of_val(numbers.as_slice()),
            Self::Bf16(numbers) => size_of_val(numbers.as_slice()),
            Self::Mxfp4 { blocks, scales } => blocks.len() + scales.len(),
        };
        bytes as u64
    }
}

/// Matrix view of a slice, with offset and strides.
#[derive(Clone, Copy)]
pub struct MatrixView<'a, T = f32> {
    data: &'a [T],
    offset: usize,
    row_stride: usize,
    column_stride: usize,
}

impl<'a, T: Real> MatrixView<'a, T> {
    /// Row-major view with rows `stride` apart, starting at `offset`.
    pub fn rows(data: &'a [T], offset: usize, stride: usize) -> Self {
        Self { data, offset, row_stride: stride, column_stride: 1 }
    }

    /// Transposed view; moves no data.
    pub fn transposed(self) -> Self {
        Self { row_stride: self.column_stride, column_stride: self.row_stride, ..self }
    }

    /// True if the data has `rows` rows of `columns` elements.
    fn holds(&self, rows: usize, columns: usize) -> bool {
        let (Some(last_row), Some(last_column)) = (rows.checked_sub(1), columns.checked_sub(1)) else {
            return true;
        };
        let row = last_row.checked_mul(self.row_stride);
        let column = last_column.checked_mul(self.column_stride);
        let last =
            row.zip(column).and_then(|(row, column)| self.offset.checked_add(row)?.checked_add(column));
        last.is_some_and(|last| last < self.data.len())
    }
}

/// Row-major matrix to write to.
pub struct MatrixViewMut<'a, T = f32> {
    data: &'a mut [T],
    offset: usize,
    row_stride: usize,
}

impl<'a, T: Real> MatrixViewMut<'a, T> {
    /// View with rows `stride` apart, starting at `offset`.
    pub fn rows(data: &'a mut [T], offset: usize, stride: usize) -> Self {
        Self { data, offset, row_stride: stride }
    }
}

/// `out[m, n] = a[m, k] b[k, n]`, with the sizes `[m, n, k]`.
pub fn gemm<T: Real>(sizes: [usize; 3], operands: [MatrixView<'_, T>; 2], out: MatrixViewMut<'_, T>) {
    product(sizes, operands, T::ZERO, out);
}

/// `out[m, n] += a[m, k] b[k, n]`, with the sizes `[m, n, k]`.
pub fn gemm_onto<T: Real>(
    sizes: [usize; 3],
    operands: [MatrixView<'_, T>; 2],
    out: MatrixViewMut<'_, T>,
) {
    product(sizes, operands, T::ONE, out);
}

/// `out[m, n] = kept x out[m, n] + a[m, k] b[k, n]`.
fn product<T: Real>(
    [m, n, k]: [usize; 3],
    [a, b]: [MatrixView<'_, T>; 2],
    kept: T,
    out: MatrixViewMut<'_, T>,
) {
    if m == 0 || n == 0 {
        return;
    }
    assert!(a.holds(m, k) && b.holds(k, n), "operands are smaller than the product");
    let MatrixViewMut { data, offset, row_stride } = out;
    let written = MatrixView { data: &*data, offset, row_stride, column_stride: 1 };
    assert!(written.holds(m, n) && n <= row_stride, "the result is smaller than the product");
    // SAFETY: the assertions above bound every element that is read or written: row i, column j of a
    // matrix is at offset + i * row_stride + j * column_stride, largest at the last row and column;
    // `data` is borrowed mutably, so it aliases neither operand, and its rows do not overlap.
    unsafe {
        ::gemm::gemm(
            m,
            n,
            k,
            data.as_mut_ptr().add(offset),
            1,
            row_stride as isize,
            kept != T::ZERO,
            a.data.as_ptr().add(a.offset),
            a.column_stride as isize,
            a.row_stride as isize,
            b.data.as_ptr().add(b.offset),
            b.column_stride as isize,
            b.row_stride as isize,
            kept,
            T::ONE,
            false,
            false,
            false,
            ::gemm::Parallelism::None,
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[should_panic(expected = "operands are smaller")]
    fn bounds_that_overflow_are_too_large() {
        let (data, mut out) = ([0.0f32; 4], [0.0f32; 4]);
        // the offset of row 2 wraps around to 0
        let wrapping = MatrixView::rows(&data, 0, usize::MAX / 2 + 1);
        gemm([3, 1, 1], [wrapping, MatrixView::rows(&data, 0, 1)], MatrixViewMut::rows(&mut out, 0, 1));
    }
}
