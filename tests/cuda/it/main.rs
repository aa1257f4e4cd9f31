//! The cuda backend without a GPU: the program on a software CUDA device, and kernels on a CPU. One test binary, because
//! each links slowly.
//!
//! | file | contents |
//! |---|---|
//! | `device` | builds the libraries in `device/` and runs the program with them |
//! | `rules` | the device keeps the rules of the real driver |
//! | `driver` | the driver layer and cuBLASLt |
//! | `kernels` | every kernel against the cpu backend, and compiled for every architecture |
//! | `generating`, `evaluating`, `running` | verbs against the cpu backend, and failures under way |
//! | `order` | order of all memory accesses, rebuilt from the device's log |
//! | `launched` | ranks as processes of a launcher |
//! | `recording` | runs under `ladderscope record` |
//! | `gpu` | whole models on a real GPU (ignored by default) |

mod backend;
mod device;
mod doctor;
mod driver;
mod evaluating;
mod faults;
mod generating;
mod gpu;
mod head;
mod kernels;
mod launched;
mod one_shot;
mod order;
mod recording;
mod rules;
mod running;
mod scripts;
mod timing;

#[allow(dead_code, reason = "all of it is used by `tests/it`")]
#[path = "../../it/support.rs"]
mod support;

/// The program under test.
const BINARY: &str = env!("CARGO_BIN_EXE_ladderscope-cuda");
