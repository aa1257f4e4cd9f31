//! Number formats of training: f32, and f64 for checks by finite differences.

use std::iter::Sum;
use std::ops::{Add, AddAssign, Div, Mul, MulAssign, Neg, Sub, SubAssign};

use pulp::Arch;

use crate::rows::{Norm, NormOperand, NormWeight, SiluMul, SiluMulOperand, dot};
use crate::softmax;
use crate::softmax::{BatchLoss, LossRows};
use crate::softmax::{CausalSoftmax, SoftmaxBack};

/// Floating-point format for training.
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
    const ZERO: Self;
    const ONE: Self;

    /// Nearest number to `x`.
    fn from_f64(x: f64) -> Self;

    /// Exact conversion to f64.
    fn wide(self) -> f64;

    fn sqrt(self) -> Self;

    /// Exponential; for f32 within 2 units in the last place, vectorizable.
    fn exp(self) -> Self;

    fn norm(arch: Arch, of: Norm<'_, Self>);

    fn norm_operand(arch: Arch, of: NormOperand<'_, Self>);

    fn norm_weight(arch: Arch, of: NormWeight<'_, Self>);

    fn silu_mul(arch: Arch, of: SiluMul<'_, Self>);

    fn silu_mul_operand(arch: Arch, of: SiluMulOperand<'_, Self>);

    /// Causal softmax of rows of scores; each row sees one position more than the one before.
    fn causal_softmax(arch: Arch, of: CausalSoftmax<'_, Self>);

    /// Gradients of scores from gradients of probabilities.
    fn softmax_back(arch: Arch, of: SoftmaxBack<'_, Self>);

    /// Loss of rows of logits, which are replaced by their gradients.
    fn loss(arch: Arch, of: LossRows<'_, Self>) -> BatchLoss;

    /// Dot product of two slices of equal length.
    fn dot(a: &[Self], b: &[Self]) -> Self;
}

/// Instantiates a format's loops in this crate, because callers would otherwise compile generic
/// functions themselves.
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
            loss: LossRows -> BatchLoss,
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

    fn from_f64(x: f64) -> Self {
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
        softmax::exp(self)
    }

    loops!(all);
}

impl Real for f64 {
    const ZERO: Self = 0.0;
    const ONE: Self = 1.0;

    fn from_f64(x: f64) -> Self {
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
