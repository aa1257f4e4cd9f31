//! Host: processor, clocks, memory, thread placement.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use serde_json::{Value, json};

/// Trimmed text of a file; `None` if unreadable or empty.
fn read(path: impl AsRef<Path>) -> Option<String> {
    let text = fs::read_to_string(path).ok()?;
    let text = text.trim();
    (!text.is_empty()).then(|| text.to_owned())
}

/// Distribution (`PRETTY_NAME` in `/etc/os-release`); null if unknown.
pub(super) fn os() -> Value {
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
pub(super) fn cpu() -> Value {
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
            let of = |name: &str| read(path.join(name));
            Some(format!("L{} {} {}", of("level")?, of("type")?, of("size")?))
        })
        .collect();
    caches.sort();
    Some(caches)
}

/// CPU frequencies and governor, to detect throttling.
pub(super) fn clocks() -> Value {
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

pub(super) fn numa_nodes() -> Value {
    let count = fs::read_dir("/sys/devices/system/node").ok().map(|entries| {
        entries
            .filter_map(|e| e.ok()?.file_name().into_string().ok())
            .filter(|name| name.strip_prefix("node").is_some_and(|n| n.parse::<u32>().is_ok()))
            .count()
    });
    json!(count.filter(|n| *n > 0))
}

/// Entry of `/proc/meminfo` in bytes.
pub(super) fn memory(name: &str) -> Value {
    json!(meminfo(&read("/proc/meminfo").unwrap_or_default(), name))
}

fn meminfo(text: &str, name: &str) -> Option<u64> {
    let line = text.lines().find_map(|l| l.strip_prefix(name)?.strip_prefix(':'))?;
    Some(line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()? * 1024)
}

/// Memory available to a new process, capped by the cgroup limit.
pub(super) fn available_memory() -> Option<u64> {
    let machine = meminfo(&read("/proc/meminfo")?, "MemAvailable");
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
pub(super) fn allowed_cpus() -> Value {
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
pub(super) fn load_average() -> Value {
    json!(loads())
}

fn loads() -> Option<Vec<f64>> {
    let text = read("/proc/loadavg")?;
    Some(text.split_ascii_whitespace().take(3).filter_map(|load| load.parse().ok()).collect())
}

/// One-minute load average.
pub fn load() -> Option<f64> {
    loads()?.first().copied()
}

/// Hints of a container or virtual machine, whose neighbors are invisible.
pub(super) fn container() -> Value {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_of_cpus_are_short() {
        assert_eq!(ranges(&[0, 1, 2, 3, 8, 10, 11]), "0-3,8,10-11");
        assert_eq!(ranges(&[]), "");
    }

    #[test]
    fn memory_is_read_in_bytes() {
        let text = "MemTotal:       16384 kB\nMemAvailable:    8192 kB\n";
        assert_eq!(meminfo(text, "MemAvailable"), Some(8192 * 1024));
        assert_eq!(meminfo(text, "Mem"), None);
        assert!(available_memory().is_none_or(|bytes| bytes > 0));
    }
}
