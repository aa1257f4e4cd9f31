//! Recorder that `ladderscope record` puts into the programs that it starts.
//!
//! The program embeds this crate as a shared object. The CUDA driver, NVTX and NCCL load it by environment variables
//! (see `entry`); it parses their events in the process and appends them to a file of its own. Other layers use
//! the crate as a library, for the layout of CUPTI's records and the format of the file.
//!
//! | file | contents |
//! |---|---|
//! | `entry` | exported functions: everything that foreign code calls |
//! | `session` | the recorder of a process: buffers, window, writing thread, fork and exit |
//! | `control` | control file: the recording window, set by `ladderscope record` |
//! | `nvtx` | NVTX's function tables, with the payload extension |
//! | `cupti` | CUPTI: loading, both interfaces, graph nodes |
//! | `buffers` | CUPTI's buffers, and the events made of their records |
//! | `nccl` | NCCL's profiler plugin, versions 1 to 6 |
//! | `records` | reader of CUPTI's activity records, 11.8 to 13.5 |
//! | `format` | format of the recorder's file, written here and read by the trace layer |
//! | `sys` | the C library |

mod buffers;
pub mod control;
pub mod cupti;
#[allow(non_snake_case, reason = "names that the driver and NVTX look up")]
pub mod entry;
pub mod format;
mod nccl;
pub mod nvtx;
pub mod records;
pub mod session;
mod sys;
