//! Inner loops: products, norms, softmaxes, likelihoods, random weights, and resampling.
//!
//! A separate crate, so that it is compiled as one unit at the highest optimization level in every
//! profile. Iterator code (`Zip`, `map` on arrays) is then inlined, which would need link-time
//! optimization across the units of a large crate. It contains only code that runs millions of times per
//! token or interval. Code generic over [`Real`] is compiled here for both formats and called through
//! the trait.
//!
//! | file | purpose |
//! |---|---|
//! | `matrix` | weight matrices, and products of two with the `gemm` crate |
//! | `convert` | numbers of checkpoints, and random ones |
//! | `e4m3` | 8-bit numbers with a scale |
//! | `product` | products of rows with weights, which are on large pages |
//! | `real` | number formats of training |
//! | `rows` | norms, activations and attention, forward and backward, and the sum that measures memory bandwidth |
//! | `softmax` | exponentials, softmax, losses, and statistics of logits |
//! | `resample` | draws and percentiles of a bootstrap |

mod convert;
pub mod e4m3;
mod matrix;
pub mod mxfp4;
pub mod product;
mod real;
mod resample;
mod rows;
mod softmax;

pub use convert::{Number, RandomStream, splitmix64, stream_key};
pub use matrix::{Matrix, MatrixData, MatrixView, MatrixViewMut, gemm, gemm_onto};
pub use product::with_large_pages;
pub use real::Real;
pub use resample::{BootstrapDraws, gather, percentile};
pub use rows::{
    CausalScores, Gated, Norm, NormOperand, NormWeight, OneQuery, SiluMul, SiluMulOperand, all_finite,
    norm, sum,
};
pub use softmax::{
    BatchLoss, CausalSoftmax, LogitPanel, LogitStatistics, LossRows, SoftmaxBack, TakeOther,
    TakeReference,
};
