//! The `cuda` backend, which executes plans on NVIDIA GPUs.
//!
//! CUDA is always compiled in and loaded at run time. Nothing needs a driver before first use; a missing
//! driver is an error with instructions.
//!
//! | file | contents |
//! |---|---|
//! | `backend` | backend interface; GPUs of this machine |
//! | `run`, `evaluate` | timed samples for a record; quality of architectures on a text |
//! | `generation` | one timed generation, and text generation from prompts |
//! | `ranks` | ranks as threads or processes; NCCL's choices, probed in separate processes |
//! | `engine` | steps bound to memory, captured and replayed, or enqueued |
//! | `program`, `schedule` | lowered plan with buffers assigned; launches, records and waits on streams |
//! | `memory`, `load`, `fp8` | memory of a rank; loading of weights; fp8 weights |
//! | `launches`, `attention`, `products`, `experts` | operations to kernel launches |
//! | `matmul` | our kernel or cuBLASLt for a product, as measured |
//! | `kernels`, `blas` | our own kernels: compilation, cache, launch geometry; cuBLASLt |
//! | `collective`, `one_shot` | loopback, emulated and NCCL collectives; all-reduces that read other ranks' memory |
//! | `instrumented`, `timing`, `cupti` | the instrumented pass; clocks, events and stamps; CUPTI records |
//! | `check`, `measure` | self-check of this program on this GPU; peak rates of a GPU |

mod attention;
mod backend;
pub mod blas;
pub mod check;
mod collective;
pub mod cupti;
pub mod engine;
mod evaluate;
mod experts;
#[doc(hidden)]
pub mod fp8;
mod generation;
mod instrumented;
pub mod kernels;
mod launches;
mod load;
mod matmul;
pub mod measure;
mod memory;
#[doc(hidden)]
pub mod one_shot;
mod products;
pub mod program;
mod ranks;
mod run;
pub mod schedule;
pub mod timing;

#[cfg(test)]
pub(crate) use backend::made_up_gpus;
pub use backend::{AvailableGpus, CudaBackend, usable_gpus};
pub use collective::{CollectiveTransport, EightBitFormat};
pub use engine::Tuning;
pub use matmul::{MatvecChoice, ProductTimes};
pub use memory::memory_need;
pub use ranks::{RankPlacement, VERB as PROBE, probe_main};
