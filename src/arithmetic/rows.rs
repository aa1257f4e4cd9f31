//! Norms of rows and gated activations, forward and backward.
//!
//! Sums use [`LANES`] partial results, so that they vectorize. Loops are structs with an inlined
//! `with_simd`, so that `pulp` compiles them for the chosen instruction set; closures would be compiled
//! without it. Each reads its operands once.

use pulp::{Simd, WithSimd};

use crate::real::Real;

/// Partial results per sum: several registers of any instruction set.
const LANES: usize = 16;

/// Dot product of two slices of equal length.
#[inline(always)]
pub(crate) fn dot<T: Real>(a: &[T], b: &[T]) -> T {
    let ((a, a_rest), (b, b_rest)) = (a.as_chunks::<LANES>(), b.as_chunks::<LANES>());
    let mut lanes = [T::ZERO; LANES];
    for (a, b) in a.iter().zip(b) {
        for ((lane, a), b) in lanes.iter_mut().zip(a).zip(b) {
            *lane += *a * *b;
        }
    }
    let rest: T = a_rest.iter().zip(b_rest).map(|(a, b)| *a * *b).sum();
    lanes.into_iter().sum::<T>() + rest
}

/// Inverse root mean square of a row, the factor of RMSNorm.
#[inline(always)]
fn inverse_rms<T: Real>(x: &[T], eps: T) -> T {
    T::ONE / (dot(x, x) / T::of(x.len() as f64) + eps).sqrt()
}

/// RMSNorm of rows as wide as the weight: `y = x / rms(x) x weight`.
pub struct Norm<'a, T> {
    pub x: &'a [T],
    /// Weight, as wide as a row.
    pub weight: &'a [T],
    /// Added to the mean square, to avoid division by 0.
    pub eps: T,
    pub y: &'a mut [T],
}

impl<T: Real> WithSimd for Norm<'_, T> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, _: S) {
        let width = self.weight.len();
        for (x, y) in self.x.chunks_exact(width).zip(self.y.chunks_exact_mut(width)) {
            let scale = inverse_rms(x, self.eps);
            for ((y, x), w) in y.iter_mut().zip(x).zip(self.weight) {
                *y = *x * scale * *w;
            }
        }
    }
}

/// Gradient of RMSNorm's operand: with s the inverse RMS of a row of n numbers and g = dy x weight, `dx
/// = s g - x s^3 / n x sum(g x)`.
pub struct NormOperand<'a, T> {
    pub x: &'a [T],
    /// Weight, as wide as a row.
    pub weight: &'a [T],
    /// Added to the mean square, to avoid division by 0.
    pub eps: T,
    pub dy: &'a [T],
    /// Output: gradient of the operand.
    pub dx: &'a mut [T],
}

impl<T: Real> WithSimd for NormOperand<'_, T> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, _: S) {
        let width = self.weight.len();
        let rows = self.x.chunks_exact(width).zip(self.dy.chunks_exact(width));
        for ((x, dy), dx) in rows.zip(self.dx.chunks_exact_mut(width)) {
            let scale = inverse_rms(x, self.eps);
            for ((dx, dy), w) in dx.iter_mut().zip(dy).zip(self.weight) {
                *dx = *dy * *w;
            }
            let along = dot(dx, x) * scale * scale * scale / T::of(width as f64);
            for (dx, x) in dx.iter_mut().zip(x) {
                *dx = *dx * scale - *x * along;
            }
        }
    }
}

/// Adds the gradient of RMSNorm's weight: the sum over rows of `dy x / rms(x)`.
pub struct NormWeight<'a, T> {
    pub x: &'a [T],
    /// Added to the mean square, to avoid division by 0.
    pub eps: T,
    pub dy: &'a [T],
    pub dw: &'a mut [T],
}

impl<T: Real> WithSimd for NormWeight<'_, T> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, _: S) {
        let width = self.dw.len();
        for (x, dy) in self.x.chunks_exact(width).zip(self.dy.chunks_exact(width)) {
            let scale = inverse_rms(x, self.eps);
            for ((dw, x), dy) in self.dw.iter_mut().zip(x).zip(dy) {
                *dw += *dy * *x * scale;
            }
        }
    }
}

/// Rows of a projection with gate at column `offset` and up right behind it, each `width` wide.
#[derive(Clone, Copy)]
pub struct Gated<'a, T> {
    pub x: &'a [T],
    pub columns: usize,
    pub offset: usize,
    /// Columns of gate, and of up.
    pub width: usize,
}

impl<'a, T: Real> Gated<'a, T> {
    #[inline(always)]
    pub fn rows(self) -> impl Iterator<Item = (&'a [T], &'a [T])> {
        let Self { x, columns, offset, width } = self;
        x.chunks_exact(columns)
            .map(move |row| (&row[offset..offset + width], &row[offset + width..offset + 2 * width]))
    }
}

/// `y = silu(gate) x up`.
pub struct SiluMul<'a, T> {
    pub of: Gated<'a, T>,
    pub y: &'a mut [T],
}

impl<T: Real> WithSimd for SiluMul<'_, T> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, _: S) {
        for ((gate, up), y) in self.of.rows().zip(self.y.chunks_exact_mut(self.of.width)) {
            for ((y, gate), up) in y.iter_mut().zip(gate).zip(up) {
                *y = *gate / (T::ONE + (-*gate).exp()) * *up;
            }
        }
    }
}

/// Gradients of gate and up in their columns; other columns of `dx` are unchanged.
pub struct SiluMulOperand<'a, T> {
    pub of: Gated<'a, T>,
    pub dy: &'a [T],
    pub dx: &'a mut [T],
}

impl<T: Real> WithSimd for SiluMulOperand<'_, T> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, _: S) {
        let Gated { columns, offset, width, .. } = self.of;
        let rows = self.of.rows().zip(self.dy.chunks_exact(width));
        for (((gate, up), dy), dx) in rows.zip(self.dx.chunks_exact_mut(columns)) {
            let (dgate, dup) = dx[offset..offset + 2 * width].split_at_mut(width);
            let numbers = gate.iter().zip(up).zip(dy);
            for (((gate, up), dy), (dgate, dup)) in numbers.zip(dgate.iter_mut().zip(dup)) {
                let sigmoid = T::ONE / (T::ONE + (-*gate).exp());
                *dup = *dy * *gate * sigmoid;
                *dgate = *dy * *up * sigmoid * (T::ONE + *gate * (T::ONE - sigmoid));
            }
        }
    }
}

pub fn all_finite<T: Real>(numbers: &[T]) -> bool {
    numbers.iter().all(|number| number.wide().is_finite())
}
