//! Loops over numbers: products, norms, softmaxes, likelihoods, the numbers of weights, and resamples.
//!
//! They are a crate of their own so that they are compiled in one part, at the highest level, in every profile: what the
//! standard library has of iterators (`Zip`, arrays' `map`) is then inlined into them, which between the parts of
//! a large crate needs an optimisation of the whole of it. So what runs millions of times a token, or an
//! interval, stands here, and nothing else does. What is generic over [`Real`] is compiled here for both of its formats: callers reach it by the trait.
//!
//! | file | what it is for |
//! |---|---|
//! | `matrix` | a weight's numbers, row by row |
//! | `convert`, `stream` | numbers of checkpoints, and random ones |
//! | `e4m3` | 8-bit numbers with a scale |
//! | `product` | products of rows with weights |
//! | `gemm` | products of two matrices, by the `gemm` crate |
//! | `exponential`, `likelihood` | exponentials of many numbers, and what logits say of a text |
//! | `vectors`, `queries` | norms and attention of decoding, in f32, and the sum by which memory is measured |
//! | `real` | the two formats in which training computes |
//! | `rows`, `softmax`, `loss` | its loops, forwards and backwards |
//! | `resample` | draws and percentiles of a bootstrap |
//! | `pages` | memory on large pages |

mod convert;
pub mod e4m3;
mod exponential;
mod gemm;
mod likelihood;
mod loss;
mod matrix;
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
