//! Collection of a run's environment, including the selection of variables.

use std::ops::Range;

use serde_json::{Value, json};

use super::{gpu, machine, software};
use table::Environment;

/// Prefixes of environment variables that affect runs; all matches are recorded.
const VARIABLES: [&str; 9] =
    ["NCCL_", "CUDA_", "OMP_", "RAYON_", "SLURM_", "RUST_", "LADDERSCOPE_", "NVTX_", "OMPI_COMM_"];

/// Collects commit and binary hash, host, kernel, CPU model, clocks, topology, memory, thread placement,
/// GPUs and driver if present, and relevant environment variables. Takes a few milliseconds if the
/// binary's hash is cached.
pub fn collect() -> Environment {
    let mut environment = Environment::new();
    let mut put = |key: &str, value: Value| {
        environment.insert(key.to_owned(), value);
    };
    put("time", json!(now().to_string()));
    put("version", json!(env!("CARGO_PKG_VERSION")));
    put("commit", software::commit());
    put("binary_sha256", software::binary_hash());
    put("build", json!(if cfg!(debug_assertions) { "debug" } else { "release" }));
    put("command", json!(command()));
    let uname = rustix::system::uname();
    put("host", json!(uname.nodename().to_string_lossy()));
    put("kernel", json!(uname.release().to_string_lossy()));
    put("architecture", json!(uname.machine().to_string_lossy()));
    put("os", machine::os());
    put("cpu", machine::cpu());
    put("clocks", machine::clocks());
    put("numa_nodes", machine::numa_nodes());
    put("memory_bytes", machine::memory("MemTotal"));
    put("memory_available_bytes", machine::memory("MemAvailable"));
    put("allowed_cpus", machine::allowed_cpus());
    put("load_average", machine::load_average());
    put("container", machine::container());
    let (gpus, driver) = gpu::gpus();
    put("gpus", gpus);
    put("driver", driver);
    // known only after a communicator exists; filled in by the cuda backend
    put("nccl", Value::Null);
    put("variables", variables(std::env::vars_os()));
    environment
}

/// Adds the state of the GPUs after a run (`gpus_after`: clocks, power, throttling, processes). Returns
/// warnings for GPUs whose clocks were throttled during samples (from `gpus_sampled`, one entry per
/// rank) and for GPUs in `used` that other processes shared.
pub fn after_gpus(environment: &mut Environment, used: Range<usize>) -> Vec<String> {
    let after = gpu::states();
    let of = |key: &str| environment.get(key).unwrap_or(&Value::Null);
    let mut warnings = gpu::throttling(of("gpus_sampled"));
    warnings.extend(gpu::others(of("gpus"), &after, used));
    environment.insert("gpus_after".into(), after);
    warnings
}

/// Bytes available to a new process, from `/proc/meminfo` and the cgroup limit; `None` if neither is
/// readable.
pub fn available_memory() -> Option<u64> {
    machine::available_memory()
}

/// Recorded variables, sorted by name.
fn variables(all: impl Iterator<Item = (std::ffi::OsString, std::ffi::OsString)>) -> Value {
    let picked: std::collections::BTreeMap<String, String> = all
        .map(|(name, value)| (name.to_string_lossy().into_owned(), value.to_string_lossy().into_owned()))
        .filter(|(name, _)| VARIABLES.iter().any(|prefix| name.starts_with(prefix)))
        .filter(|(name, _)| !is_secret(name))
        .collect();
    json!(picked)
}

/// True for names that look like credentials; records are shared and published.
fn is_secret(name: &str) -> bool {
    ["TOKEN", "SECRET", "PASSWORD", "JWT", "CREDENTIAL"].iter().any(|word| name.contains(word))
}

/// Command line with only the program's file name: its path reveals the user, not the run (the record
/// has its hash).
fn command() -> Vec<String> {
    let mut words: Vec<String> = std::env::args().collect();
    if let Some(program) = words.first_mut()
        && let Some(name) = std::path::Path::new(program).file_name()
    {
        *program = name.to_string_lossy().into_owned();
    }
    words
}

/// Current time; a clock beyond the representable range is clamped.
fn now() -> jiff::Timestamp {
    std::time::SystemTime::now().try_into().unwrap_or(jiff::Timestamp::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_key_of_the_contract_is_there() {
        let environment = collect();
        for key in ["commit", "host", "cpu", "gpus", "driver", "nccl", "clocks", "kernel", "variables"] {
            assert!(environment.contains_key(key), "{key} is missing");
        }
        assert!(environment["cpu"]["threads"].as_u64().unwrap() >= 1);
        assert!(
            environment["memory_bytes"].as_u64() >= environment["memory_available_bytes"].as_u64(),
            "{environment:?}"
        );
        let hash = environment["binary_sha256"].as_str().unwrap();
        assert_eq!(hash.len(), 64);
        assert!(environment["time"].as_str().unwrap().parse::<jiff::Timestamp>().is_ok());
    }

    #[test]
    fn only_variables_that_matter_are_recorded_and_no_secrets() {
        let all = [("NCCL_ALGO", "Ring"), ("HOME", "/root"), ("SLURM_JWT", "x"), ("RUST_LOG", "info")];
        let picked = variables(all.iter().map(|(name, value)| (name.into(), value.into())));
        assert_eq!(picked, json!({"NCCL_ALGO": "Ring", "RUST_LOG": "info"}));
    }
}
