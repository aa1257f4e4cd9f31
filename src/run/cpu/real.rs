//! The two formats in which training computes: f32, and f64 for checks by finite differences.

use std::iter::Sum;
use std::ops::{Add, AddAssign, Div, Mul, MulAssign, Neg, Sub, SubAssign};

use super::exponential;

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
}
