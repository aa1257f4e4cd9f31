//! Collecting the environment of a run: every key, and which variables are recorded.

use std::ops::Range;

use serde_json::{Value, json};

use super::{gpu, machine, software};
use table::Environment;

/// Variables that change what a run does; everything that begins so is recorded.
const VARIABLES: [&str; 9] =
    ["NCCL_", "CUDA_", "OMP_", "RAYON_", "SLURM_", "RUST_", "LADDERSCOPE_", "NVTX_", "OMPI_COMM_"];

/// Collects commit and hash of the binary, host, kernel, CPU model, clocks, topology, memory, thread
/// placement, GPUs and driver where there are any, and every environment variable that matters.
/// Costs a few milliseconds where the binary was hashed before.
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
    // known only once a communicator exists; the cuda backend fills it in
    put("nccl", Value::Null);
    put("variables", variables(std::env::vars_os()));
    environment
}

/// Adds to the environment of a run on GPUs, once it has ended, what they were like then (`gpus_after`:
/// clocks, power, throttling, processes). Gives a warning for each GPU whose clocks were lowered while samples were taken (by
/// the environment's `gpus_sampled`, a rank each), and for each of those that this process used on which others computed, too.
pub fn after_gpus(environment: &mut Environment, used: Range<usize>) -> Vec<String> {
    let after = gpu::states();
    let of = |key: &str| environment.get(key).unwrap_or(&Value::Null);
    let mut warnings = gpu::throttling(of("gpus_sampled"));
    warnings.extend(gpu::others(of("gpus"), &after, used));
    environment.insert("gpus_after".into(), after);
    warnings
}

/// Bytes that a new process could use now, from `/proc/meminfo` and the control group's limit;
/// `None` where neither says.
pub fn available_memory() -> Option<u64> {
    machine::available_memory()
}

/// The variables that matter, sorted by name.
fn variables(all: impl Iterator<Item = (std::ffi::OsString, std::ffi::OsString)>) -> Value {
    let picked: std::collections::BTreeMap<String, String> = all
        .map(|(name, value)| (name.to_string_lossy().into_owned(), value.to_string_lossy().into_owned()))
        .filter(|(name, _)| VARIABLES.iter().any(|prefix| name.starts_with(prefix)))
        .filter(|(name, _)| !is_secret(name))
        .collect();
    json!(picked)
}

/// Records are shared and published; what looks like a credential stays out of them.
fn is_secret(name: &str) -> bool {
    ["TOKEN", "SECRET", "PASSWORD", "JWT", "CREDENTIAL"].iter().any(|word| name.contains(word))
}

/// The command line; of the program only its name, since where it lies says something about the user
/// and nothing about the run (its hash is beside it).
fn command() -> Vec<String> {
    let mut words: Vec<String> = std::env::args().collect();
    if let Some(program) = words.first_mut()
        && let Some(name) = std::path::Path::new(program).file_name()
    {
        *program = name.to_string_lossy().into_owned();
    }
    words
}

/// The present moment; a clock that was set beyond what a date can say is not worth an end.
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
