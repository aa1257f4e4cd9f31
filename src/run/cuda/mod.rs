//! The `cuda` backend, which executes plans on NVIDIA GPUs.
//!
//! CUDA is always compiled in and loaded at run time. Nothing needs a driver before first use; a missing
//! driver is an error with instructions.
//!
//! | file | contents |
//! |---|---|
//! | `blas` | matrix products with cuBLASLt |
//! | `kernels` | our own kernels: compilation, cache, launch geometry |
//! | `measure` | peak rates of a GPU |
//! | `program` | lowered plan with buffers assigned |
//! | `schedule` | plan as an ordered list of launches, records and waits on streams |
//! | `size` | rows and sequences of a step |
//! | `launches` | operations to kernels with arguments and geometry |
//! | `multiply` | our kernel or cuBLASLt for products with few rows; launch of our kernel |
//! | `fp8` | fp8 weights: memory layout and products |
//! | `collective`, `transfer` | loopback, emulated and NCCL collectives, and the data they move |
//! | `one_shot` | all-reduces that read the other ranks' memory |
//! | `clock` | resolution of the GPU's global timer |
//! | `check` | self-check of this program on this GPU |
//! | `choose` | timed choice between our kernel and cuBLASLt |
//! | `rank`, `load` | memory and weights of a rank |
//! | `backend`, `gpus` | backend interface; GPUs of this machine |
//! | `need` | memory estimate of a rank, without a GPU |
//! | `engine` | steps bound to memory, captured and replayed, or enqueued |
//! | `tuning` | experimental switches |
//! | `probe` | NCCL's choices, probed in separate processes |
//! | `generation` | one timed generation |
//! | `threads` | NCCL ranks as threads with one GPU each |
//! | `ranks` | ranks of a run in this process, and their rendezvous |
//! | `run` | timed samples for a record |
//! | `generate` | text generation from prompts |
//! | `evaluate` | quality of architectures on a text |
//! | `timing`, `cupti` | segments of a step and clocks for operation times; CUPTI records |
//! | `around` | events around collectives on their own stream, in every timed step |
//! | `instrumented` | the instrumented pass: trace, and overhead of timing |

mod around;
mod backend;
pub mod blas;
pub mod check;
mod choose;
mod clock;
mod collective;
pub mod cupti;
pub mod engine;
mod evaluate;
mod fp8;
mod generate;
mod generation;
pub mod gpus;
mod instrumented;
pub mod kernels;
mod launches;
mod load;
pub mod measure;
mod multiply;
mod need;
mod one_shot;
mod probe;
pub mod program;
mod rank;
mod ranks;
mod run;
pub mod schedule;
mod size;
mod stopwatch;
mod threads;
pub mod timing;
mod transfer;
mod tuning;
pub mod usable;

pub use backend::CudaBackend;
pub use choose::ProductTimes;
pub use collective::Collective;
pub use multiply::MatvecChoice;
pub use need::memory_need;
pub use probe::{VERB as PROBE, probe_main};
pub use ranks::Ranks;
pub use tuning::Tuning;

#[cfg(test)]
mod gpu_tests;
