//! Norms of rows and gated activations, forwards and backwards.
//!
//! Sums are taken in [`LANES`] parts, so that they vectorise; the loops are structs with an inlined `with_simd`, so that
//! `pulp` compiles them for the instruction set at hand: a closure would be compiled apart, without it. Each reads its
//! operands once.

use pulp::{Simd, WithSimd};

use crate::real::Real;

/// Parts of a sum: several registers of any instruction set.
const LANES: usize = 16;

/// The sum of products of two slices of the same length.
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

/// The root mean square of a row, inverted: what RMSNorm multiplies by.
#[inline(always)]
fn inverse_rms<T: Real>(x: &[T], eps: T) -> T {
    T::ONE / (dot(x, x) / T::of(x.len() as f64) + eps).sqrt()
}

/// RMSNorm of rows as wide as the weight: `y = x / rms(x) x weight`.
pub struct Norm<'a, T> {
    /// The rows.
    pub x: &'a [T],
    /// The weight, as wide as a row.
    pub weight: &'a [T],
    /// What keeps the root away from 0.
    pub eps: T,
    /// The result.
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

/// The gradient of RMSNorm's operand: with s the inverted root mean square of a row of n and g = dy x weight,
/// `dx = s g - x s^3 / n x sum(g x)`.
pub struct NormOperand<'a, T> {
    /// The rows.
    pub x: &'a [T],
    /// The weight, as wide as a row.
    pub weight: &'a [T],
    /// What keeps the root away from 0.
    pub eps: T,
    /// The gradient of the result.
    pub dy: &'a [T],
    /// The gradient of the operand.
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
    /// The rows.
    pub x: &'a [T],
    /// What keeps the root away from 0.
    pub eps: T,
    /// The gradient of the result.
    pub dy: &'a [T],
    /// The gradient of the weight, to which is added.
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

/// Rows of a projection in which gate begins at a column and up follows, each as wide.
#[derive(Clone, Copy)]
pub struct Gated<'a, T> {
    /// The rows.
    pub x: &'a [T],
    /// Columns of a row.
    pub columns: usize,
    /// Where gate begins.
    pub offset: usize,
    /// Columns of gate, and of up.
    pub width: usize,
}

impl<'a, T: Real> Gated<'a, T> {
    /// Gate and up, row by row.
    #[inline(always)]
    pub fn rows(self) -> impl Iterator<Item = (&'a [T], &'a [T])> {
        let Self { x, columns, offset, width } = self;
        x.chunks_exact(columns)
            .map(move |row| (&row[offset..offset + width], &row[offset + width..offset + 2 * width]))
    }
}

/// `y = silu(gate) x up`.
pub struct SiluMul<'a, T> {
    /// Gate and up.
    pub of: Gated<'a, T>,
    /// The result.
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

/// The gradients of gate and up where they stand; other columns of `dx` stay as they are.
pub struct SiluMulOperand<'a, T> {
    /// Gate and up.
    pub of: Gated<'a, T>,
    /// The gradient of the result.
    pub dy: &'a [T],
    /// The gradient of the operand.
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

/// Whether all numbers are finite.
pub fn all_finite<T: Real>(numbers: &[T]) -> bool {
    numbers.iter().all(|number| number.wide().is_finite())
}
