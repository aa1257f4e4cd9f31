//! The `cuda` backend: the same plans on NVIDIA GPUs.
//!
//! CUDA is always compiled in and loaded at run time: nothing here needs a driver until it is used,
//! and then its absence is an error that says what to do.
//!
//! | file | what it is for |
//! |---|---|
//! | `blas` | matrix products by cuBLASLt |
//! | `kernels` | our own kernels: compiled, cached, how they are launched |
//! | `measure` | what a GPU does at best |
//! | `program` | a plan made ready: lowered, buffers assigned |
//! | `schedule` | a plan as an ordered list of launches, records and waits on streams |
//! | `size` | how many rows of which sequences a step processes |
//! | `launches` | from an operation to kernels with arguments and geometry |
//! | `multiply` | who multiplies few rows by a matrix, and the launch of our own kernel |
//! | `fp8` | weights in fp8: their memory, their products |
//! | `collective`, `transfer` | who executes collectives: loopback, emulated, NCCL; and what each moves |
//! | `one_shot` | all-reduces that read the other ranks' memory |
//! | `clock` | how the clock that a GPU's kernels read ticks |
//! | `check` | whether this program is right on this GPU |
//! | `choose` | who multiplies few rows by a matrix, as timed |
//! | `rank`, `load` | a rank's memory, and its weights |
//! | `backend`, `gpus` | what the rest of the house knows of this backend; the GPUs of this machine |
//! | `need` | what a rank will need of memory, before any GPU is asked |
//! | `engine` | steps bound to memory, captured and replayed, or enqueued |
//! | `tuning` | what can be changed of how steps run, for experiments |
//! | `probe` | what NCCL chooses, asked in processes of their own |
//! | `generation` | one timed generation |
//! | `threads` | ranks over NCCL, each a thread with a GPU of its own |
//! | `ranks` | the ranks of a run: those of this process, and how they meet |
//! | `run` | timed samples for a record |
//! | `generate` | tokens from prompts |
//! | `evaluate` | what architectures lose on a text |
//! | `timing`, `cupti` | what times of operations are made of: parts of a step, clocks; CUPTI's records |
//! | `around` | events around collectives that have a stream of their own, in every step that is timed |
//! | `instrumented` | the instrumented generation of a run: its trace, and what timing cost |

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
