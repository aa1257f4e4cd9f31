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
//! | `matrix` | weight matrices, row-major |
//! | `convert`, `stream` | numbers of checkpoints, and random ones |
//! | `e4m3` | 8-bit numbers with a scale |
//! | `product` | products of rows with weights |
//! | `gemm` | products of two matrices, with the `gemm` crate |
//! | `exponential`, `likelihood` | exponentials, and statistics of logits |
//! | `vectors`, `queries` | norms and attention for decoding in f32, and the sum that measures memory bandwidth |
//! | `real` | number formats of training |
//! | `rows`, `softmax`, `loss` | training loops, forward and backward |
//! | `resample` | draws and percentiles of a bootstrap |
//! | `pages` | memory on large pages |

mod convert;
pub mod e4m3;
mod exponential;
mod gemm;
mod likelihood;
mod loss;
mod matrix;
pub mod mxfp4;
mod pages;
pub mod product;
mod queries;
mod real;
mod resample;
mod rows;
mod softmax;
mod stream;
mod vectors;

pub use convert::Number;
pub use gemm::{View, gemm, gemm_onto};
pub use likelihood::{Panel, Seen, TakeOther, TakeReference};
pub use loss::{LossRows, Lost};
pub use matrix::{Matrix, MatrixData};
pub use pages::with_large_pages;
pub use queries::{CausalScores, OneQuery};
pub use real::Real;
pub use resample::{Draws, gather, percentile};
pub use rows::{Gated, Norm, NormOperand, NormWeight, SiluMul, SiluMulOperand, all_finite};
pub use softmax::{CausalSoftmax, SoftmaxBack};
pub use stream::{RandomStream, stream_key};
pub use vectors::{norm, sum};
