//! Environment of a run: machine, software, clocks and variables, collected once per run.
//!
//! Values come from `/proc`, `/sys` and the driver at run time; unknown ones are null, never guessed.

use std::collections::BTreeSet;
use std::fs;
use std::fs::File;
use std::ops::Range;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::driver::{Gpu, GpuInfo};
use crate::{driver, nvml};
use base::cache::FileCache;
use base::checksum;
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
    put("commit", commit());
    put("binary_sha256", binary_hash());
    put("build", json!(if cfg!(debug_assertions) { "debug" } else { "release" }));
    put("command", json!(command()));
    let uname = rustix::system::uname();
    put("host", json!(uname.nodename().to_string_lossy()));
    put("kernel", json!(uname.release().to_string_lossy()));
    put("architecture", json!(uname.machine().to_string_lossy()));
    put("os", os());
    put("cpu", cpu());
    put("clocks", clocks());
    put("numa_nodes", numa_nodes());
    put("memory_bytes", memory("MemTotal"));
    put("memory_available_bytes", memory("MemAvailable"));
    put("allowed_cpus", allowed_cpus());
    put("load_average", json!(load_average()));
    put("container", container());
    let (gpus, driver) = gpus();
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
    let after = states();
    let entry = |key: &str| environment.get(key).unwrap_or(&Value::Null);
    let mut warnings = throttling(entry("gpus_sampled"));
    warnings.extend(others(entry("gpus"), &after, used));
    environment.insert("gpus_after".into(), after);
    warnings
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

/// List of GPUs (each with its current `state`) and the driver; both null without a driver.
fn gpus() -> (Value, Value) {
    let Ok(gpus) = Gpu::list() else { return (Value::Null, Value::Null) };
    let version = nvml::driver_version().ok().or_else(|| {
        let version = std::fs::read_to_string("/sys/module/nvidia/version").ok()?;
        Some(version.trim().to_owned())
    });
    let driver = json!({
        "cuda": driver::version().map(driver::version_text),
        "version": version,
    });
    (gpus.iter().map(describe).collect(), driver)
}

// Serial numbers are omitted because records are published. The UUID (`gpu_uuid`) identifies a run's
// GPU, since two GPUs of the same model differ in speed.
fn describe(gpu: &GpuInfo) -> Value {
    json!({
        "name": gpu.name,
        "memory_bytes": gpu.memory_bytes,
        "sms": gpu.multiprocessors,
        "l2_bytes": gpu.l2_bytes,
        "clock_khz": gpu.clock_khz,
        "compute_capability": format!("{}.{}", gpu.sm.0, gpu.sm.1),
        "state": state(gpu),
    })
}

/// Current GPU states in the order of [`gpus`]; null without a driver.
fn states() -> Value {
    let Ok(gpus) = Gpu::list() else { return Value::Null };
    gpus.iter().map(state).collect()
}

/// State of a rank's GPU during sampling.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Sampled {
    /// State before the first sample; null if NVML does not report it.
    before: Value,
    after: Value,
    /// Lowest SM clock (MHz) seen at the end of a sample.
    lowest_sm_clock_mhz: Option<u64>,
}

impl Sampled {
    /// Records the state before the first sample.
    pub fn start(gpu: &GpuInfo) -> Self {
        let before = state(gpu);
        Self { after: before.clone(), before, lowest_sm_clock_mhz: None }
    }

    /// Updates the state at the end of a sample.
    pub fn ended(&mut self, gpu: &GpuInfo) {
        self.look(state(gpu));
    }

    fn look(&mut self, state: Value) {
        let clock = state["sm_clock_mhz"].as_u64();
        self.lowest_sm_clock_mhz = self.lowest_sm_clock_mhz.into_iter().chain(clock).min();
        self.after = state;
    }
}

fn state(gpu: &GpuInfo) -> Value {
    json!(nvml::state(&gpu.uuid, &gpu.pci).ok())
}

/// Warnings about throttling during samples, one per rank and reason: heat, and a power limit if clocks
/// fell below 95 % of the maximum. Memory-bound GPUs are at the power limit most of the time and lose
/// only about 1 %. `ranks` is a list of [`Sampled`].
fn throttling(ranks: &Value) -> Vec<String> {
    /// Threshold (ms) above the counter's resolution.
    const NOTICED_MS: f64 = 1.0;
    const IDLE_SHARE: f64 = 0.95;
    let mut found = Vec::new();
    for (rank, sampled) in ranks.as_array().into_iter().flatten().enumerate() {
        let lowest = sampled["lowest_sm_clock_mhz"].as_f64();
        let clocks = lowest.zip(sampled["after"]["sm_clock_max_mhz"].as_f64());
        let is_near = clocks.is_some_and(|(lowest, most)| lowest >= IDLE_SHARE * most);
        let at = clocks.map(|(lowest, most)| format!(" ({lowest} of {most} MHz at the end of one)"));
        for (counter, reason, is_fine) in
            [("power_throttled_ms", "its power limit", is_near), ("thermal_throttled_ms", "heat", false)]
        {
            let [before, after] = ["before", "after"].map(|when| sampled[when][counter].as_f64());
            let grown = after.zip(before).map_or(0.0, |(after, before)| after - before);
            if grown > NOTICED_MS && !is_fine {
                let at = at.as_deref().unwrap_or_default();
                found.push(format!(
                    "GPU of rank {rank}: clocks were lowered by {reason} for {grown:.0} ms of its samples{at}"
                ));
            }
        }
    }
    found
}

/// Warnings about other processes on the used GPUs, before or after the run; after the run, this process
/// is one of those counted.
fn others(before: &Value, after: &Value, used: Range<usize>) -> Vec<String> {
    let told = |gpu: usize| {
        let before = before[gpu]["state"]["processes"].as_u64().unwrap_or(0);
        let others = before.max(after[gpu]["processes"].as_u64().unwrap_or(0).saturating_sub(1));
        let who = match others {
            0 => return None,
            1 => "another process".to_owned(),
            several => format!("{several} other processes"),
        };
        Some(format!("GPU {gpu}: {who} used it during this run"))
    };
    used.filter_map(told).collect()
}

/// Trimmed text of a file; `None` if unreadable or empty.
fn read(path: impl AsRef<Path>) -> Option<String> {
    let text = fs::read_to_string(path).ok()?;
    let text = text.trim();
    (!text.is_empty()).then(|| text.to_owned())
}

/// Distribution (`PRETTY_NAME` in `/etc/os-release`); null if unknown.
fn os() -> Value {
    let name = read("/etc/os-release").and_then(|text| {
        let line = text.lines().find_map(|l| l.strip_prefix("PRETTY_NAME="))?;
        Some(line.trim_matches('"').to_owned())
    });
    json!(name)
}

pub fn cpu_name() -> String {
    let info = read("/proc/cpuinfo").unwrap_or_default();
    cpuinfo_fields(&info, "model name").next().unwrap_or("unknown processor").to_owned()
}

/// Model, threads, cores, SMT, caches, vector extensions.
fn cpu() -> Value {
    let info = read("/proc/cpuinfo").unwrap_or_default();
    let field = |name: &str| cpuinfo_fields(&info, name).next().map(str::to_owned);
    let threads = cpuinfo_fields(&info, "processor").count();
    // a core is a pair of socket and core id
    let cores: BTreeSet<(&str, &str)> =
        cpuinfo_fields(&info, "physical id").zip(cpuinfo_fields(&info, "core id")).collect();
    let flags = field("flags").unwrap_or_default();
    let vector: Vec<&str> = flags
        .split_ascii_whitespace()
        .filter(|f| matches!(*f, "avx2" | "fma" | "f16c" | "avx512f" | "avx512_bf16" | "amx_bf16"))
        .collect();
    let known = |n: usize| (n > 0).then_some(n);
    json!({
        "model": field("model name"),
        "threads": known(threads).or_else(|| std::thread::available_parallelism().ok().map(usize::from)),
        "cores": known(cores.len()),
        "smt": read("/sys/devices/system/cpu/smt/active").map(|t| t == "1"),
        "caches": caches(),
        "vector_extensions": vector,
    })
}

fn cpuinfo_fields<'a>(info: &'a str, name: &'a str) -> impl Iterator<Item = &'a str> {
    info.lines().filter_map(move |line| {
        let (key, value) = line.split_once(':')?;
        (key.trim() == name).then(|| value.trim())
    })
}

/// Caches of the first CPU: `L2 Unified 2048K`.
fn caches() -> Option<Vec<String>> {
    let mut caches: Vec<String> = fs::read_dir("/sys/devices/system/cpu/cpu0/cache")
        .ok()?
        .filter_map(|entry| {
            let path = entry.ok()?.path();
            let value = |name: &str| read(path.join(name));
            Some(format!("L{} {} {}", value("level")?, value("type")?, value("size")?))
        })
        .collect();
    caches.sort();
    Some(caches)
}

/// CPU frequencies and governor, to detect throttling.
fn clocks() -> Value {
    let info = read("/proc/cpuinfo").unwrap_or_default();
    let current: Vec<f64> = cpuinfo_fields(&info, "cpu MHz").filter_map(|v| v.parse().ok()).collect();
    let frequency = Path::new("/sys/devices/system/cpu/cpu0/cpufreq");
    let megahertz = |name: &str| read(frequency.join(name))?.parse::<f64>().ok().map(|khz| khz / 1000.0);
    let turbo = read("/sys/devices/system/cpu/intel_pstate/no_turbo")
        .map(|t| t == "0")
        .or_else(|| read("/sys/devices/system/cpu/cpufreq/boost").map(|t| t == "1"));
    json!({
        "cpu_mhz_min": current.iter().copied().reduce(f64::min),
        "cpu_mhz_max": current.iter().copied().reduce(f64::max),
        "cpu_mhz_limit": megahertz("cpuinfo_max_freq"),
        "governor": read(frequency.join("scaling_governor")),
        "turbo": turbo,
    })
}

fn numa_nodes() -> Value {
    let count = fs::read_dir("/sys/devices/system/node").ok().map(|entries| {
        entries
            .filter_map(|e| e.ok()?.file_name().into_string().ok())
            .filter(|name| name.strip_prefix("node").is_some_and(|n| n.parse::<u32>().is_ok()))
            .count()
    });
    json!(count.filter(|n| *n > 0))
}

/// Entry of `/proc/meminfo` in bytes.
fn memory(name: &str) -> Value {
    json!(entry_bytes(&read("/proc/meminfo").unwrap_or_default(), name))
}

/// Size in a text like `/proc/meminfo` or `/proc/self/status`, in bytes.
pub fn entry_bytes(text: &str, name: &str) -> Option<u64> {
    let line = text.lines().find_map(|l| l.strip_prefix(name)?.strip_prefix(':'))?;
    Some(line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()? * 1024)
}

/// Bytes available to a new process, from `/proc/meminfo` and the cgroup limit; `None` if neither is
/// readable.
pub fn available_memory() -> Option<u64> {
    let machine = entry_bytes(&read("/proc/meminfo")?, "MemAvailable");
    let limit = |maximum: &str, current: &str| -> Option<u64> {
        let maximum: u64 = read(maximum)?.parse().ok()?;
        Some(maximum.saturating_sub(read(current)?.parse().ok()?))
    };
    let group = limit("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory.current").or_else(|| {
        let memory = "/sys/fs/cgroup/memory/memory";
        limit(&format!("{memory}.limit_in_bytes"), &format!("{memory}.usage_in_bytes"))
    });
    machine.into_iter().chain(group).min()
}

/// CPUs in this process's affinity mask, as a list: `0-3,8`.
fn allowed_cpus() -> Value {
    let Ok(set) = rustix::thread::sched_getaffinity(None) else { return Value::Null };
    let cpus: Vec<usize> = (0..rustix::thread::CpuSet::MAX_CPU).filter(|cpu| set.is_set(*cpu)).collect();
    json!(ranges(&cpus))
}

fn ranges(cpus: &[usize]) -> String {
    let mut parts: Vec<(usize, usize)> = Vec::new();
    for cpu in cpus {
        match parts.last_mut() {
            Some((_, last)) if *last + 1 == *cpu => *last = *cpu,
            _ => parts.push((*cpu, *cpu)),
        }
    }
    let text: Vec<String> = parts
        .iter()
        .map(|(first, last)| if first == last { first.to_string() } else { format!("{first}-{last}") })
        .collect();
    text.join(",")
}

/// Load average over 1, 5 and 15 minutes, as a sign of other programs.
fn load_average() -> Option<Vec<f64>> {
    let text = read("/proc/loadavg")?;
    Some(text.split_ascii_whitespace().take(3).filter_map(|load| load.parse().ok()).collect())
}

/// Other work on this machine, in busy threads: the one-minute load average, or the number of threads that want to run
/// now if that is less, because the average still counts what has just ended.
pub fn load() -> Option<f64> {
    busy_threads(&read("/proc/loadavg")?)
}

/// [`load`] in the text of `/proc/loadavg`, whose fourth field counts the reading thread too.
fn busy_threads(text: &str) -> Option<f64> {
    let mut fields = text.split_ascii_whitespace();
    let average: f64 = fields.next()?.parse().ok()?;
    let running = fields.nth(2).and_then(|threads| threads.split_once('/')?.0.parse::<f64>().ok());
    Some(running.map_or(average, |running| average.min((running - 1.0).max(0.0))))
}

/// Hints of a container or virtual machine, whose neighbors are invisible.
fn container() -> Value {
    let mut hints = Vec::new();
    if Path::new("/.dockerenv").exists() {
        hints.push("docker".to_owned());
    }
    if Path::new("/run/.containerenv").exists() {
        hints.push("podman".into());
    }
    if std::env::var_os("KUBERNETES_SERVICE_HOST").is_some() {
        hints.push("kubernetes".into());
    }
    if let Some(quota) = read("/sys/fs/cgroup/cpu.max").filter(|t| !t.starts_with("max")) {
        hints.push(format!("cpu quota {quota}"));
    }
    let info = read("/proc/cpuinfo").unwrap_or_default();
    if cpuinfo_fields(&info, "flags").next().is_some_and(|f| f.split(' ').any(|f| f == "hypervisor")) {
        hints.push(match read("/sys/class/dmi/id/sys_vendor") {
            Some(vendor) => format!("virtual machine ({vendor})"),
            None => "virtual machine".into(),
        });
    }
    json!(hints)
}

/// Source commit, with `+dirty` for modified files. Null unless the current directory is inside a
/// checkout of this project, because another repository's commit would be wrong.
fn commit() -> Value {
    let Some(root) = std::env::current_dir().ok().and_then(|dir| project_root(&dir)) else {
        return Value::Null;
    };
    let git = |arguments: &[&str]| {
        let output = Command::new("git").arg("-C").arg(&root).args(arguments).output().ok()?;
        output.status.success().then(|| String::from_utf8_lossy(&output.stdout).trim().to_owned())
    };
    let Some(head) = git(&["rev-parse", "HEAD"]) else { return Value::Null };
    match git(&["status", "--porcelain", "--untracked-files=no"]) {
        Some(changes) if !changes.is_empty() => json!(format!("{head}+dirty")),
        _ => json!(head),
    }
}

/// Root of the checkout of this project that contains `dir`.
fn project_root(dir: &Path) -> Option<PathBuf> {
    let root = dir.ancestors().find(|a| a.join(".git").exists())?;
    let manifest = std::fs::read_to_string(root.join("Cargo.toml")).ok()?;
    let package = manifest.parse::<toml::Table>().ok()?;
    let name = package.get("package")?.get("name")?.as_str()?;
    (name == "ladderscope").then(|| root.to_owned())
}

/// SHA-256 of the running binary in hex. Hashing 57 MB takes 37 ms, so the user's cache keeps the hash,
/// keyed by the file's metadata.
pub fn binary_hash() -> Value {
    static HASH: OnceLock<Option<String>> = OnceLock::new();
    json!(HASH.get_or_init(|| {
        let path = std::env::current_exe().ok()?;
        // the link leads to the running file even if another file has replaced it
        let file = File::open("/proc/self/exe").or_else(|_| File::open(&path)).ok()?;
        hash_of(file, &path, FileCache::of_user("binaries").as_ref())
    }))
}

/// Hash of a file at `path`, from the cache if the file's metadata match.
fn hash_of(file: File, path: &Path, cache: Option<&FileCache>) -> Option<String> {
    let about = file.metadata().ok()?;
    // ctime changes with every content change and cannot be set by users
    let known_by = format!(
        "{} {} {} {}.{} {}.{} ",
        about.dev(),
        about.ino(),
        about.size(),
        about.mtime(),
        about.mtime_nsec(),
        about.ctime(),
        about.ctime_nsec(),
    );
    let name = checksum::sha256(path.as_os_str().as_encoded_bytes());
    let kept = cache.and_then(|cache| String::from_utf8(cache.load(&name)?).ok());
    if let Some(known) = kept.as_deref().and_then(|kept| kept.strip_prefix(&known_by)) {
        return Some(known.to_owned());
    }
    let found = checksum::hex(checksum::digest(file).ok()?);
    if let Some(cache) = cache {
        cache.store(&name, format!("{known_by}{found}").as_bytes());
    }
    Some(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn load_forgets_work_that_has_just_ended() {
        assert_eq!(busy_threads("8.71 9.22 8.77 1/219 24708\n"), Some(0.0));
        assert_eq!(busy_threads("8.71 9.22 8.77 4/219 24708\n"), Some(3.0));
        assert_eq!(busy_threads("0.50 9.22 8.77 11/219 24708\n"), Some(0.5));
        assert_eq!(busy_threads("0.50"), Some(0.5));
        assert_eq!(busy_threads(""), None);
    }

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

    #[test]
    fn whoever_else_computes_on_a_gpu_that_was_used_is_told() {
        let before = json!([{"state": {"processes": 0}}, {"state": {"processes": 2}}, {"state": null}]);
        let after = json!([{"processes": 1}, {"processes": 1}, {"processes": 2}]);
        assert_eq!(others(&before, &after, 0..1), Vec::<String>::new(), "this run alone");
        assert_eq!(
            others(&before, &after, 0..4),
            [
                "GPU 1: 2 other processes used it during this run",
                "GPU 2: another process used it during this run"
            ]
        );
    }

    #[test]
    fn clocks_that_were_lowered_by_much_or_by_heat_are_told() {
        let state = |clock: u32, power: f64, heat: f64| {
            json!({
                "sm_clock_mhz": clock, "sm_clock_max_mhz": 1980,
                "power_throttled_ms": 100.0 + power, "thermal_throttled_ms": heat,
            })
        };
        let told = |clock: u32, power: f64, heat: f64| {
            let before = state(1980, 0.0, 0.0);
            let mut sampled = Sampled { after: before.clone(), before, lowest_sm_clock_mhz: None };
            sampled.look(state(clock, power / 2.0, heat));
            sampled.look(state(1980, power, heat));
            let silent = Sampled { before: Value::Null, after: Value::Null, lowest_sm_clock_mhz: None };
            throttling(&json!([silent, sampled]))
        };
        assert_eq!(
            told(1200, 250.4, 0.0),
            [
                "GPU of rank 1: clocks were lowered by its power limit for 250 ms of its samples (1200 of 1980 MHz at the end of one)"
            ]
        );
        assert!(told(1965, 250.4, 0.0).is_empty(), "a percent");
        assert_eq!(told(1980, 0.0, 3.0).len(), 1, "heat");
        assert!(told(1200, 0.5, 0.0).is_empty());
        assert!(throttling(&Value::Null).is_empty());
    }

    #[test]
    fn both_are_known_or_neither() {
        let (gpus, driver) = gpus();
        assert_eq!(gpus.is_null(), driver.is_null());
        assert_eq!(gpus.is_null(), states().is_null());
    }

    #[test]
    fn lists_of_cpus_are_short() {
        assert_eq!(ranges(&[0, 1, 2, 3, 8, 10, 11]), "0-3,8,10-11");
        assert_eq!(ranges(&[]), "");
    }

    #[test]
    fn memory_is_read_in_bytes() {
        let text = "MemTotal:       16384 kB\nMemAvailable:    8192 kB\n";
        assert_eq!(entry_bytes(text, "MemAvailable"), Some(8192 * 1024));
        assert_eq!(entry_bytes(text, "Mem"), None);
        assert!(available_memory().is_none_or(|bytes| bytes > 0));
    }

    #[test]
    fn only_this_project_counts() {
        let here = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).expect("the project");
        let elsewhere = tempfile::tempdir().unwrap();
        std::fs::create_dir(elsewhere.path().join(".git")).unwrap();
        assert_eq!(project_root(elsewhere.path()), None);
        std::fs::write(elsewhere.path().join("Cargo.toml"), "[package]\nname = \"other\"\n").unwrap();
        assert_eq!(project_root(elsewhere.path()), None);
        if here.join(".git").exists() {
            assert_eq!(project_root(&here.join("src")), Some(here.to_owned()));
        }
    }

    #[test]
    fn a_file_is_hashed_once_and_again_when_it_is_another_one() {
        let folder = tempfile::tempdir().expect("a folder");
        let (path, cache) = (folder.path().join("program"), FileCache::new(&folder.path().join("kept")));
        let found =
            |cache: Option<&FileCache>| hash_of(File::open(&path).expect("a file"), &path, cache);
        std::fs::write(&path, "one").expect("written");
        let one = Some(checksum::sha256(b"one"));
        assert_eq!(
            [found(None), found(Some(&cache)), found(Some(&cache))],
            [(); 3].map(|()| one.clone())
        );
        // what is kept is what is told
        let name = checksum::sha256(path.as_os_str().as_encoded_bytes());
        let kept = String::from_utf8(cache.load(&name).expect("it is kept")).expect("text");
        let (known_by, _) = kept.rsplit_once(' ').expect("the hash is behind it");
        cache.store(&name, format!("{known_by} kept").as_bytes());
        assert_eq!(found(Some(&cache)).as_deref(), Some("kept"));
        // another file of the same length, made when a coarse clock tells another time
        let tick = std::time::Duration::from_millis(20);
        std::thread::sleep(tick);
        std::fs::remove_file(&path).expect("removed");
        std::fs::write(&path, "two").expect("written");
        assert_eq!(found(Some(&cache)), Some(checksum::sha256(b"two")));
        // written into, with its old time of change
        let before = std::fs::metadata(&path).and_then(|about| about.modified()).expect("a time");
        std::thread::sleep(tick);
        std::fs::write(&path, "six").expect("written");
        File::options()
            .append(true)
            .open(&path)
            .and_then(|file| file.set_modified(before))
            .expect("set");
        assert_eq!(found(Some(&cache)), Some(checksum::sha256(b"six")));
    }
}
