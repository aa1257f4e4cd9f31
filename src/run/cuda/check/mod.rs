//! Whether this program computes on this GPU what it should, and as fast as it claims: short runs whose outcome is known,
//! once for each program, GPU, driver and set of libraries. What it found is kept, and stands in every record.

mod runs;
mod sums;

use serde::{Deserialize, Serialize};

use super::blas;
use super::kernels::Nvrtc;
use crate::comm::nccl;
use base::cache::Cache;
use base::error::{Error, Result};
use base::hash::sha256;
use base::shared_gpu;
use base::words::words;
use machine::driver::Gpu;
use machine::environment::binary_hash;

pub use runs::check;

/// The variable that keeps a run from checking by itself: 0.
const VARIABLE: &str = "LADDERSCOPE_CHECK";

/// What is checked, in order: the name of each check, and what it asks.
pub const CHECKS: [(&str, &str); 8] = [
    ("products", "own kernels multiply as cuBLASLt does, on the shapes of a model"),
    ("graph", "decode steps of a graph with early starts give the same bits as eager ones without"),
    ("early starts", "the captured graph has edges for early starts, and they are worth something"),
    (
        "bandwidth",
        "a decode step's bytes over its time are no more than the GPU's memory can give, and not half of it",
    ),
    (
        "overlap",
        "a collective of 500 us beside a chain of products takes as long as the longer of the two",
    ),
    ("link", "an emulated all-reduce takes what its link says, to a tick of the clock"),
    ("stamps", "the clock that kernels read is fine enough, and what a stamp and an event cost"),
    ("nccl", "sums of small integers that depend on the rank are exact, eager and captured"),
];

words! {
    /// What a check has found.
    Found, "finding" {
        /// All is as it should be.
        Passed = "passed",
        /// Something is odd; results count.
        Warned = "warned",
        /// Results count for nothing.
        Failed = "failed",
        /// It could not be done here.
        NotDone = "not done",
    }
}

/// A check with what it found.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct Checked {
    /// Its name in [`CHECKS`].
    pub name: String,
    /// Whether the check holds, warns or fails.
    pub found: Found,
    /// What it saw, in words with numbers.
    pub said: String,
}

/// Whether checks were made and none of them failed.
pub fn passed(all: &[Checked]) -> bool {
    !all.is_empty() && all.iter().all(|check| check.found != Found::Failed)
}

/// Under which the outcome for a GPU is kept: all that it depends on.
fn key(gpu: &Gpu) -> String {
    let info = gpu.info();
    let libraries = (Nvrtc::get().map(Nvrtc::version).ok(), blas::version().ok(), nccl::probe().version);
    let all = serde_json::json!([
        binary_hash(),
        info.name,
        info.uuid,
        info.driver_api,
        format!("{libraries:?}"),
        shared_gpu::is_on(),
    ]);
    format!("{}.json", sha256(all.to_string()))
}

/// What an earlier check of this GPU by this program found; `None` without one.
pub fn known(gpu: &Gpu) -> Option<Vec<Checked>> {
    serde_json::from_slice(&Cache::of_user("checks")?.load(&key(gpu))?).ok()
}

/// Keeps what a check found for the runs to come.
pub fn keep(gpu: &Gpu, all: &[Checked]) {
    if let (Some(cache), Ok(bytes)) = (Cache::of_user("checks"), serde_json::to_vec(all)) {
        cache.store(&key(gpu), &bytes);
    }
}

/// What is known of this GPU, from a check that is done now where there was none; `None` where it is not to be done by
/// itself. `say` is told what goes on.
pub(super) fn before_a_run(gpu: &Gpu, say: &mut dyn FnMut(&str)) -> Option<Vec<Checked>> {
    if let Some(known) = known(gpu) {
        return Some(known);
    }
    // a rank that shares the GPU may wait for this one already, with a kernel that never lets a check free memory
    if shared_gpu::is_on() || std::env::var(VARIABLE).is_ok_and(|value| value.trim() == "0") {
        return None;
    }
    let all = check(gpu, say);
    keep(gpu, &all);
    Some(all)
}

/// What to say beside results of a GPU that has not passed; `None` where it has.
pub(super) fn warning(known: Option<&[Checked]>) -> Option<String> {
    let all = known.unwrap_or_default();
    if passed(all) {
        return None;
    }
    let failed = all.iter().filter(|check| check.found == Found::Failed);
    let failed: Vec<String> = failed.map(|check| format!("{}: {}", check.name, check.said)).collect();
    Some(match failed.as_slice() {
        [] => "unverified: this program has not checked itself on this GPU; ladderscope doctor --check does".into(),
        failed => format!("unverified: this program's check of itself on this GPU failed ({})", failed.join("; ")),
    })
}

/// A check that could not be brought to an end has failed.
fn concluded(name: &str, outcome: Result<(Found, String)>) -> Checked {
    let (found, said) = outcome.unwrap_or_else(|error: Error| (Found::Failed, error.to_string()));
    Checked { name: name.into(), found, said }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn checked(found: Found) -> Checked {
        Checked { name: "graph".into(), found, said: "12 of 20 tokens".into() }
    }

    #[test]
    fn one_failure_is_no_pass_and_no_check_is_none_either() {
        assert!(!passed(&[]));
        let fine = [checked(Found::Passed), checked(Found::Warned), checked(Found::NotDone)];
        assert!(passed(&fine));
        assert_eq!(warning(Some(&fine)), None);
        let wrong = [checked(Found::Passed), checked(Found::Failed)];
        assert!(!passed(&wrong));
        let told = warning(Some(&wrong)).unwrap_or_default();
        assert!(told.starts_with("unverified") && told.contains("graph: 12 of 20 tokens"), "{told}");
        assert!(warning(None).is_some_and(|told| told.contains("doctor --check")));
        let error = concluded("graph", Err(Error::failed("no memory")));
        assert_eq!((error.found, error.said.as_str()), (Found::Failed, "no memory"));
    }
}
