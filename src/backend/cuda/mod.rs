//! The `cuda` backend: the same plans on NVIDIA GPUs.
//!
//! CUDA is always compiled in and loaded at run time: nothing here needs a driver until it is used,
//! and then its absence is an error that says what to do.
//!
//! | file | what it is for |
//! |---|---|
//! | `driver` | the CUDA driver: GPUs, memory, streams, events, graphs |
//! | `kernels` | our own kernels, compiled at run time |
//! | `program` | a plan made ready: lowered, buffers assigned |
//! | `schedule` | a plan as an ordered list of launches, records and waits on streams |

pub mod driver;
pub mod kernels;
pub mod program;
pub mod schedule;
