//! Matrix products by cuBLASLt: row-major, sums in f32, an algorithm chosen once for each shape.

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
