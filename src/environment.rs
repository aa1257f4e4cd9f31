//! What a sceptic asks for: machine, software, clocks, variables; collected once a run.

use crate::store::Environment;

/// Collects commit and hash of the binary, host, kernel, CPU model, clocks, topology, memory, thread
/// placement, GPUs and driver where there are any, and every environment variable that matters.
pub fn collect() -> Environment {
    todo!()
}
