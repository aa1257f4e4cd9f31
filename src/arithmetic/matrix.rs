//! Matrices: weights in rows, products with the `gemm` crate, memory on large pages.

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
pub struct View<'a, T = f32> {
    data: &'a [T],
    offset: usize,
    row_stride: usize,
    column_stride: usize,
}

impl<'a, T: Real> View<'a, T> {
    /// Row-major view with rows `stride` apart, starting at `offset`.
    pub fn rows(data: &'a [T], offset: usize, stride: usize) -> Self {
        Self { data, offset, row_stride: stride, column_stride: 1 }
    }

    /// Transposed view; moves no data.
    pub fn transposed(self) -> Self {
        Self { row_stride: self.column_stride, column_stride: self.row_stride, ..self }
    }

    fn holds(&self, rows: usize, columns: usize) -> bool {
        rows == 0
            || columns == 0
            || self.offset + (rows - 1) * self.row_stride + (columns - 1) * self.column_stride
                < self.data.len()
    }
}

/// `out[m, n] = a[m, k] b[k, n]`, with result rows `out_stride` apart starting at `out_offset`.
#[expect(clippy::too_many_arguments, reason = "BLAS's own argument list, less its pointers")]
pub fn gemm<T: Real>(
    m: usize,
    n: usize,
    k: usize,
    a: View<'_, T>,
    b: View<'_, T>,
    out: &mut [T],
    out_offset: usize,
    out_stride: usize,
) {
    product([m, n, k], [a, b], (T::ZERO, T::ONE), (out, out_offset, out_stride));
}

/// `out[m, n] += a[m, k] b[k, n]`, with result rows `out_stride` apart starting at `out_offset`.
pub fn gemm_onto<T: Real>(
    sizes: [usize; 3],
    operands: [View<'_, T>; 2],
    out: &mut [T],
    (out_offset, out_stride): (usize, usize),
) {
    product(sizes, operands, (T::ONE, T::ONE), (out, out_offset, out_stride));
}

/// `out[m, n] = kept x out[m, n] + scale x a[m, k] b[k, n]`.
fn product<T: Real>(
    [m, n, k]: [usize; 3],
    [a, b]: [View<'_, T>; 2],
    (kept, scale): (T, T),
    (out, out_offset, out_stride): (&mut [T], usize, usize),
) {
    if m == 0 || n == 0 {
        return;
    }
    assert!(a.holds(m, k) && b.holds(k, n), "operands are smaller than the product");
    assert!(out_offset + (m - 1) * out_stride + n <= out.len() && n <= out_stride);
    // SAFETY: the assertions above bound every element that is read or written: row i, column j of an
    // operand is at offset + i * row_stride + j * column_stride, largest at the last row and column;
    // `out` is borrowed mutably, so it aliases neither operand, and its rows do not overlap.
    unsafe {
        ::gemm::gemm(
            m,
            n,
            k,
            out.as_mut_ptr().add(out_offset),
            1,
            out_stride as isize,
            kept != T::ZERO,
            a.data.as_ptr().add(a.offset),
            a.column_stride as isize,
            a.row_stride as isize,
            b.data.as_ptr().add(b.offset),
            b.column_stride as isize,
            b.row_stride as isize,
            kept,
            scale,
            false,
            false,
            false,
            ::gemm::Parallelism::None,
        );
    }
}

/// Empty vector with capacity for `items`, on large pages if it fills any. The advice is given before
/// the memory is touched; systems that ignore it use ordinary pages.
pub fn with_large_pages<T>(items: usize) -> Vec<T> {
    let memory = Vec::with_capacity(items);
    #[cfg(target_os = "linux")]
    advise(&memory);
    memory
}

#[cfg(target_os = "linux")]
fn advise<T>(memory: &Vec<T>) {
    use rustix::mm::{Advice, madvise};
    const PAGE: usize = 4096;
    const LARGE: usize = 2 << 20;
    let bytes = memory.capacity() * size_of::<T>();
    let start = memory.as_ptr().cast::<u8>();
    let skipped = start.align_offset(PAGE);
    if bytes < LARGE + skipped {
        return;
    }
    let whole = (bytes - skipped) / PAGE * PAGE;
    // SAFETY: the range consists of whole pages within the vector's memory, and the advice changes no
    // contents
    let _ =
        unsafe { madvise(start.wrapping_add(skipped).cast_mut().cast(), whole, Advice::LinuxHugepage) };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_is_room_for_what_was_asked_of_any_size() {
        for items in [0, 1, 100, 3 << 20] {
            let mut memory: Vec<u32> = with_large_pages(items);
            assert!(memory.capacity() >= items && memory.is_empty());
            memory.resize(items, 7);
            assert!(memory.iter().all(|item| *item == 7));
        }
    }
}
