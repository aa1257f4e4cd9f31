//! Matrix products with cuBLASLt: row-major, f32 accumulation, one algorithm per shape.

mod handle;
mod library;
mod plan;
mod product;
mod tune;

pub use handle::{Blas, WORKSPACE_BYTES};
use handle::{Plan, lock};
pub use library::version;
pub use product::MatMul;
pub use tune::{Operands, Tuned};
