//! The simulator: discrete events over the plan, on lanes, with roofline and alpha-beta costs.

use super::{Job, RunResult};

/// Simulates one run: prefill and every decode step.
pub fn run(job: &Job) -> RunResult {
    let _ = job;
    todo!()
}
