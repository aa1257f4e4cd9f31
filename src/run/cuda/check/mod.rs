//! Self-check of this program on this GPU: short runs with known results, for correctness and speed. Runs
//! once per binary, GPU, driver and set of libraries; every record contains the cached outcome.

mod runs;
mod sums;

use serde::{Deserialize, Serialize};

use super::blas;
use super::kernels::Nvrtc;
use crate::comm::nccl;
use base::cache::Cache;
use base::checksum::sha256;
use base::error::{Error, Result};
use base::words::words;
use machine::driver::Gpu;
use machine::environment::binary_hash;
use table::shared_gpu;

pub use runs::check;

/// Environment variable; 0 disables the automatic check.
const VARIABLE: &str = "LADDERSCOPE_CHECK";

/// Name and description of each check, in order.
pub const CHECKS: [(&str, &str); 8] = [
    ("products", "matrix products agree with cuBLASLt on model shapes"),
    ("graph", "a CUDA graph with early kernel starts gives the same bits as eager execution"),
    ("early starts", "the captured graph contains early-start edges, and they save time"),
    ("bandwidth", "a decode step reaches 50 to 100 % of the GPU's memory bandwidth"),
    ("overlap", "a 500 us collective fully overlaps with a chain of matrix products"),
    ("link", "an emulated all-reduce takes its link's latency plus message size / bandwidth"),
    ("stamps", "the GPU clock resolves kernel times; cost of a timestamp and an event"),
    ("nccl", "NCCL sums of small integers are exact, eager and in a graph"),
];

words! {
    /// Outcome of a check.
    Found, "finding" {
        /// The check passed.
        Passed = "passed",
        /// Something is unusual, but results are valid.
        Warned = "warned",
        /// Results are not valid.
        Failed = "failed",
        /// The check could not run on this machine.
        NotDone = "not done",
    }
}

/// Result of one check.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct Checked {
    /// Name of the check in [`CHECKS`].
    pub name: String,
    /// Outcome: passed, warned, failed or not done.
    pub found: Found,
    /// Explanation with the measured numbers.
    pub said: String,
}

/// True if checks ran and none failed.
pub fn passed(all: &[Checked]) -> bool {
    !all.is_empty() && all.iter().all(|check| check.found != Found::Failed)
}

/// Cache key of a GPU's outcome: everything it depends on.
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

/// Cached results for this GPU and binary.
pub fn known(gpu: &Gpu) -> Option<Vec<Checked>> {
    serde_json::from_slice(&Cache::of_user("checks")?.load(&key(gpu))?).ok()
}

pub fn keep(gpu: &Gpu, all: &[Checked]) {
    if let (Some(cache), Ok(bytes)) = (Cache::of_user("checks"), serde_json::to_vec(all)) {
        cache.store(&key(gpu), &bytes);
    }
}

/// Returns the cached results, or runs the checks if there are none. Returns `None` if automatic checks are
/// disabled. `say` receives progress messages.
pub(super) fn before_a_run(gpu: &Gpu, say: &mut dyn FnMut(&str)) -> Option<Vec<Checked>> {
    if let Some(known) = known(gpu) {
        return Some(known);
    }
    // with a shared GPU, another rank's kernel may already wait for this rank and block the check from
    // freeing memory
    if shared_gpu::is_on() || std::env::var(VARIABLE).is_ok_and(|value| value.trim() == "0") {
        return None;
    }
    let all = check(gpu, say);
    keep(gpu, &all);
    Some(all)
}

/// Warning for results on a GPU that has not passed; `None` if it has.
pub(super) fn warning(known: Option<&[Checked]>) -> Option<String> {
    let all = known.unwrap_or_default();
    if passed(all) {
        return None;
    }
    let failed = all.iter().filter(|check| check.found == Found::Failed);
    let failed: Vec<String> = failed.map(|check| format!("{}: {}", check.name, check.said)).collect();
    Some(match failed.as_slice() {
        [] => "unverified: no self-check on this GPU yet; run `ladderscope doctor --check`".into(),
        failed => format!(
            "unverified: this program's check of itself on this GPU failed ({})",
            failed.join("; ")
        ),
    })
}

/// Converts an outcome to a result; a check that ends in an error has failed.
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
