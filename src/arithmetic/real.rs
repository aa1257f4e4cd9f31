//! The two formats in which training computes: f32, and f64 for checks by finite differences.

use std::iter::Sum;
use std::ops::{Add, AddAssign, Div, Mul, MulAssign, Neg, Sub, SubAssign};

use pulp::Arch;

use crate::exponential;
use crate::loss::{LossRows, Lost};
use crate::rows::{Norm, NormOperand, NormWeight, SiluMul, SiluMulOperand, dot};
use crate::softmax::{CausalSoftmax, SoftmaxBack};

/// A real number of a format that products of matrices are computed in.
pub trait Real:
    Copy
    + Default
    + PartialOrd
    + Send
    + Sync
    + std::fmt::Debug
    + Add<Output = Self>
    + Sub<Output = Self>
    + Mul<Output = Self>
    + Div<Output = Self>
    + Neg<Output = Self>
    + AddAssign
    + SubAssign
    + MulAssign
    + Sum
    + 'static
{
    /// The number that changes no sum.
    const ZERO: Self;
    /// The number that changes no product.
    const ONE: Self;

    /// The number nearest to `x`.
    fn of(x: f64) -> Self;

    /// The number in double precision, exactly.
    fn wide(self) -> f64;

    /// The square root of a number that is not negative.
    fn sqrt(self) -> Self;

    /// The exponential; of f32 within 2 units in the last place, in a form that vectorises.
    fn exp(self) -> Self;

    /// RMSNorm of rows, with the instructions that this machine has.
    fn norm(arch: Arch, of: Norm<'_, Self>);

    /// The gradient of RMSNorm's operand, with the instructions that this machine has.
    fn norm_operand(arch: Arch, of: NormOperand<'_, Self>);

    /// Adds the gradient of RMSNorm's weight, with the instructions that this machine has.
    fn norm_weight(arch: Arch, of: NormWeight<'_, Self>);

    /// `silu(gate) x up` of rows, with the instructions that this machine has.
    fn silu_mul(arch: Arch, of: SiluMul<'_, Self>);

    /// The gradients of gate and up, with the instructions that this machine has.
    fn silu_mul_operand(arch: Arch, of: SiluMulOperand<'_, Self>);

    /// Softmax of rows of scores, each of which sees one position more, with the instructions that this machine has.
    fn causal_softmax(arch: Arch, of: CausalSoftmax<'_, Self>);

    /// From the gradients of probabilities those of scores, with the instructions that this machine has.
    fn softmax_back(arch: Arch, of: SoftmaxBack<'_, Self>);

    /// The loss of rows of logits, which become their gradients, with the instructions that this machine has.
    fn loss(arch: Arch, of: LossRows<'_, Self>) -> Lost;

    /// The sum of products of two slices of the same length.
    fn dot(a: &[Self], b: &[Self]) -> Self;
}

/// The loops of a format, compiled here: a generic function would be compiled by whoever calls it.
macro_rules! loops {
    (all) => {
        loops! {
            norm: Norm,
            norm_operand: NormOperand,
            norm_weight: NormWeight,
            silu_mul: SiluMul,
            silu_mul_operand: SiluMulOperand,
            causal_softmax: CausalSoftmax,
            softmax_back: SoftmaxBack,
            loss: LossRows -> Lost,
        }
    };
    ($($function:ident: $of:ident $(-> $output:ty)?),* $(,)?) => {
        $(
            fn $function(arch: Arch, of: $of<'_, Self>) $(-> $output)? {
                arch.dispatch(of)
            }
        )*

        fn dot(a: &[Self], b: &[Self]) -> Self {
            dot(a, b)
        }
    };
}

impl Real for f32 {
    const ZERO: Self = 0.0;
    const ONE: Self = 1.0;

    fn of(x: f64) -> Self {
        x as f32
    }

    #[inline(always)]
    fn wide(self) -> f64 {
        f64::from(self)
    }

    #[inline(always)]
    fn sqrt(self) -> Self {
        f32::sqrt(self)
    }

    #[inline(always)]
    fn exp(self) -> Self {
        exponential::exp(self)
    }

    loops!(all);
}

impl Real for f64 {
    const ZERO: Self = 0.0;
    const ONE: Self = 1.0;

    fn of(x: f64) -> Self {
        x
    }

    fn wide(self) -> f64 {
        self
    }

    fn sqrt(self) -> Self {
        f64::sqrt(self)
    }

    fn exp(self) -> Self {
        f64::exp(self)
    }

    loops!(all);
}
