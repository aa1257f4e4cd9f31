//! The one way to the `gemm` crate: products of matrices in slices, bounds checked.

/// A matrix in a slice: where it starts and how far rows and columns are apart.
#[derive(Clone, Copy)]
pub(super) struct View<'a> {
    data: &'a [f32],
    offset: usize,
    row_stride: usize,
    column_stride: usize,
}

impl<'a> View<'a> {
    /// Rows `stride` apart, starting at `offset`.
    pub(super) fn rows(data: &'a [f32], offset: usize, stride: usize) -> Self {
        Self { data, offset, row_stride: stride, column_stride: 1 }
    }

    /// The same numbers with rows and columns exchanged; nothing is moved.
    pub(super) fn transposed(self) -> Self {
        Self { row_stride: self.column_stride, column_stride: self.row_stride, ..self }
    }

    fn holds(&self, rows: usize, columns: usize) -> bool {
        rows == 0
            || columns == 0
            || self.offset + (rows - 1) * self.row_stride + (columns - 1) * self.column_stride
                < self.data.len()
    }
}

/// `out[m, n] = a[m, k] b[k, n]`, the result's rows `out_stride` apart from `out_offset` on.
#[expect(clippy::too_many_arguments, reason = "BLAS's own argument list, less its pointers")]
pub(super) fn gemm(
    m: usize,
    n: usize,
    k: usize,
    a: View<'_>,
    b: View<'_>,
    out: &mut [f32],
    out_offset: usize,
    out_stride: usize,
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
        gemm::gemm(
            m,
            n,
            k,
            out.as_mut_ptr().add(out_offset),
            1,
            out_stride as isize,
            false,
            a.data.as_ptr().add(a.offset),
            a.column_stride as isize,
            a.row_stride as isize,
            b.data.as_ptr().add(b.offset),
            b.column_stride as isize,
            b.row_stride as isize,
            0.0,
            1.0,
            false,
            false,
            false,
            gemm::Parallelism::None,
        );
    }
}
