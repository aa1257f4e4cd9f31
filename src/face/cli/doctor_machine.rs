//! Probes of the machine apart from GPUs: CPU, memory and its bandwidth for decoding (weights are streamed once, with one
//! thread and with all), timers, terminal, disk.

use std::collections::BTreeSet;
use std::io::IsTerminal;
use std::path::Path;
use std::sync::Barrier;
use std::time::{Duration, Instant};

use pulp::Arch;
use serde::Serialize;

use super::app::size;
use arithmetic::{sum, with_large_pages};
use base::text::takes_escapes;
use machine::environment::available_memory;

/// Processor, from `/proc` and `/sys`.
#[derive(Debug, Serialize, schemars::JsonSchema)]
pub struct Cpu {
    /// Model name.
    pub model: String,
    /// Number of physical cores.
    pub cores: usize,
    /// Threads available to this process.
    pub threads: usize,
    /// Total last-level cache of the machine; 0 if unknown.
    pub l3_bytes: u64,
    /// Vector extensions relevant to decoding.
    pub simd: Vec<String>,
}

/// Memory of the machine or, if smaller, of the control group.
#[derive(Debug, Serialize, schemars::JsonSchema)]
#[schemars(rename = "Memory")]
pub struct MemoryState {
    /// Total memory of the machine or control group.
    pub total_bytes: u64,
    /// Memory available to a new process without swapping.
    pub available_bytes: u64,
}

/// Clock properties that affect spans and the emulated link.
#[derive(Debug, Serialize, schemars::JsonSchema)]
pub struct Timer {
    /// Smallest step of the clock.
    pub resolution_ns: u64,
    /// Cost of reading the clock.
    pub reading_ns: f64,
    /// Requested sleep for the overshoots below.
    pub sleep_us: u64,
    /// Median overshoot of the sleep.
    pub overshoot_p50_us: f64,
    /// 99th percentile of the overshoot.
    pub overshoot_p99_us: f64,
}

/// Terminal connected to standard output.
#[derive(Debug, Serialize, schemars::JsonSchema)]
pub struct Terminal {
    /// True if standard output is a terminal.
    pub is_terminal: bool,
    /// Columns; null without a terminal.
    pub columns: Option<u16>,
    /// Rows; null without a terminal.
    pub rows: Option<u16>,
    /// `none (NO_COLOR)`, `16`, `256` or `true`.
    pub colour: &'static str,
    /// True if the locale is UTF-8.
    pub unicode: bool,
}

/// Disk of the runs directory.
#[derive(Debug, Serialize, schemars::JsonSchema)]
pub struct Disk {
    /// Runs directory as given.
    pub path: String,
    /// Free space for this user; `None` if unknown.
    pub free_bytes: Option<u64>,
}

fn read(path: &str) -> String {
    std::fs::read_to_string(path).unwrap_or_default()
}

pub fn cpu() -> Cpu {
    let info = read("/proc/cpuinfo");
    let value = |key: &str| {
        info.lines()
            .filter_map(|line| line.split_once(':'))
            .find(|(name, _)| name.trim() == key)
            .map(|(_, value)| value.trim().to_owned())
    };
    let flags = value("flags").or_else(|| value("Features")).unwrap_or_default();
    let flags: BTreeSet<&str> = flags.split_whitespace().collect();
    const SIMD: [&str; 10] =
        ["sse4_2", "avx", "avx2", "fma", "f16c", "avx512f", "avx512_bf16", "amx_bf16", "asimd", "sve"];
    let threads = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    Cpu {
        model: value("model name").unwrap_or_else(|| std::env::consts::ARCH.to_owned()),
        cores: physical_cores(&info).unwrap_or(threads),
        threads,
        l3_bytes: last_level_cache(Path::new("/sys/devices/system/cpu")),
        simd: SIMD.iter().filter(|name| flags.contains(**name)).map(|name| (*name).to_owned()).collect(),
    }
}

/// Counts distinct (socket, core) pairs in /proc/cpuinfo.
fn physical_cores(info: &str) -> Option<usize> {
    let mut cores = BTreeSet::new();
    let (mut socket, mut found) = (String::new(), false);
    for (key, value) in info.lines().filter_map(|line| line.split_once(':')) {
        match key.trim() {
            "physical id" => socket = value.trim().to_owned(),
            "core id" => {
                cores.insert((socket.clone(), value.trim().to_owned()));
                found = true;
            }
            _ => {}
        }
    }
    found.then_some(cores.len())
}

/// Sums the distinct highest-level caches under `/sys/devices/system/cpu`.
fn last_level_cache(root: &Path) -> u64 {
    let mut caches: BTreeSet<(u32, String, u64)> = BTreeSet::new();
    for cpu in std::fs::read_dir(root).into_iter().flatten().flatten() {
        for index in std::fs::read_dir(cpu.path().join("cache")).into_iter().flatten().flatten() {
            let field = |name: &str| {
                std::fs::read_to_string(index.path().join(name)).unwrap_or_default().trim().to_owned()
            };
            if let (Ok(level), Ok(size)) = (field("level").parse(), size(&field("size"))) {
                caches.insert((level, field("shared_cpu_list"), size));
            }
        }
    }
    let last = caches.iter().map(|cache| cache.0).max().unwrap_or(0);
    // If only first-level caches are listed, the others are hidden.
    if last < 2 { 0 } else { caches.iter().filter(|cache| cache.0 == last).map(|cache| cache.2).sum() }
}

pub fn memory() -> MemoryState {
    let info = read("/proc/meminfo");
    let total = info.lines().find_map(|line| line.strip_prefix("MemTotal:"));
    let kilobytes = total.and_then(|rest| rest.split_whitespace().next()?.parse::<u64>().ok());
    let limit = read("/sys/fs/cgroup/memory.max").trim().parse().unwrap_or(u64::MAX);
    MemoryState {
        total_bytes: (kilobytes.unwrap_or(0) * 1024).min(limit),
        available_bytes: available_memory().unwrap_or(0),
    }
}

/// Measures the clock and short sleeps; takes about 50 ms.
pub fn timer() -> Timer {
    const READINGS: u32 = 20_000;
    const SLEEP: Duration = Duration::from_micros(100);
    const SLEEPS: usize = 200;
    let mut resolution = Duration::MAX;
    let start = Instant::now();
    let mut last = start;
    for _ in 0..READINGS {
        let now = Instant::now();
        let step = now - last;
        if !step.is_zero() {
            resolution = resolution.min(step);
        }
        last = now;
    }
    let reading_ns = start.elapsed().as_nanos() as f64 / f64::from(READINGS);
    let mut overshoot: Vec<f64> = (0..SLEEPS)
        .map(|_| {
            let start = Instant::now();
            std::thread::sleep(SLEEP);
            start.elapsed().saturating_sub(SLEEP).as_nanos() as f64 / 1e3
        })
        .collect();
    overshoot.sort_by(f64::total_cmp);
    Timer {
        resolution_ns: resolution.as_nanos() as u64,
        reading_ns,
        sleep_us: SLEEP.as_micros() as u64,
        overshoot_p50_us: overshoot[SLEEPS / 2],
        overshoot_p99_us: overshoot[SLEEPS * 99 / 100],
    }
}

pub fn terminal() -> Terminal {
    let is_terminal = std::io::stdout().is_terminal();
    let size = is_terminal.then(crossterm::terminal::size).and_then(Result::ok);
    let variable = |name: &str| std::env::var(name).unwrap_or_default();
    let locale = ["LC_ALL", "LC_CTYPE", "LANG"].map(variable).into_iter().find(|v| !v.is_empty());
    let term = variable("TERM");
    let colour = if !variable("NO_COLOR").is_empty() {
        "none (NO_COLOR)"
    } else if !takes_escapes() {
        "none (TERM)"
    } else if ["truecolor", "24bit"].contains(&variable("COLORTERM").as_str()) {
        "true"
    } else if term.contains("256color") {
        "256"
    } else {
        "16"
    };
    Terminal {
        is_terminal,
        columns: size.map(|size| size.0),
        rows: size.map(|size| size.1),
        colour,
        unicode: locale.is_some_and(|locale| {
            let locale = locale.to_lowercase();
            locale.contains("utf-8") || locale.contains("utf8")
        }),
    }
}

/// Queries the file system of the runs directory, which need not exist yet.
pub fn disk(dir: &Path) -> Disk {
    let absolute = std::path::absolute(dir).unwrap_or_else(|_| dir.to_path_buf());
    let existing = absolute.ancestors().find(|path| path.exists());
    let free_bytes = existing
        .and_then(|path| rustix::fs::statvfs(path).ok())
        .map(|stat| stat.f_bavail.saturating_mul(stat.f_frsize));
    Disk { path: dir.display().to_string(), free_bytes }
}

/// Buffer size in last-level caches. Large because virtual machines may report only part of their cache.
const BUFFER_IN_CACHES: u64 = 16;
/// Timed passes over the buffer.
const BUFFER_PASSES: usize = 7;
/// Buffer size in bytes if the size of the last-level cache is unknown.
const DEFAULT_BUFFER: u64 = 256 << 20;
/// Maximum buffer size in bytes: filling the buffer takes longer than reading it.
const LARGEST_BUFFER: u64 = 1 << 30;

/// Measured read bandwidth of one thread and of all.
#[derive(Debug, Serialize, schemars::JsonSchema)]
pub struct Bandwidth {
    /// Bandwidth of one thread (1e9 bytes per second).
    pub one_thread_gb_s: f64,
    /// Bandwidth of all threads together (1e9 bytes per second).
    pub all_threads_gb_s: f64,
    /// Number of threads for `all_threads_gb_s`.
    pub threads: usize,
    /// Bytes read per pass.
    pub buffer_bytes: u64,
    /// True if the buffer exceeds four last-level caches, so that memory was measured.
    pub exceeds_caches: bool,
    /// Timed passes, of which the median counts.
    pub passes: usize,
}

/// Measures with one thread and with `threads`. `l3_bytes` is 0 if unknown. The buffer uses at most a quarter of
/// `available_bytes`.
pub fn memory_bandwidth(threads: usize, l3_bytes: u64, available_bytes: u64) -> Bandwidth {
    let wanted = if l3_bytes == 0 { DEFAULT_BUFFER } else { BUFFER_IN_CACHES * l3_bytes };
    let buffer_bytes = wanted.min(LARGEST_BUFFER).min((available_bytes / 4).max(1 << 20));
    Bandwidth {
        one_thread_gb_s: read_bandwidth_over(1, buffer_bytes) / 1e9,
        all_threads_gb_s: read_bandwidth_over(threads, buffer_bytes) / 1e9,
        threads,
        buffer_bytes,
        exceeds_caches: l3_bytes > 0 && buffer_bytes >= 4 * l3_bytes,
        passes: BUFFER_PASSES,
    }
}

/// Read bandwidth of memory in bytes per second: `threads` threads stream through a buffer several times the
/// last-level cache. Median of several passes.
pub fn read_bandwidth(threads: usize) -> f64 {
    let l3 = cpu().l3_bytes;
    let bytes = if l3 == 0 { DEFAULT_BUFFER } else { (BUFFER_IN_CACHES * l3).min(LARGEST_BUFFER) };
    read_bandwidth_over(threads, bytes)
}

fn read_bandwidth_over(threads: usize, bytes: u64) -> f64 {
    let threads = threads.max(1);
    let floats = (bytes as usize / size_of::<f32>()).div_ceil(threads);
    let barrier = Barrier::new(threads);
    // each reader times its own passes, because an extra timing thread would compete for cores
    let read_all = || -> Vec<(Instant, Instant)> {
        // Each thread touches its part first, so that on several sockets it is allocated near its reader. Uses large
        // pages, like weights.
        let mut part = with_large_pages(floats);
        part.resize(floats, 1.0_f32);
        let arch = Arch::new();
        // The first pass is a warm-up.
        (0..=BUFFER_PASSES)
            .map(|_| {
                barrier.wait();
                let start = Instant::now();
                std::hint::black_box(sum(arch, std::hint::black_box(&part)));
                (start, Instant::now())
            })
            .collect()
    };
    let readers: Vec<Vec<(Instant, Instant)>> = std::thread::scope(|scope| {
        let handles: Vec<_> = (0..threads).map(|_| scope.spawn(read_all)).collect();
        handles.into_iter().filter_map(|handle| handle.join().ok()).collect()
    });
    // a pass lasts from its first reader's start to its last reader's end
    let mut seconds: Vec<f64> = (1..=BUFFER_PASSES)
        .filter_map(|pass| {
            let first = readers.iter().map(|passes| passes[pass].0).min()?;
            let last = readers.iter().map(|passes| passes[pass].1).max()?;
            Some((last - first).as_secs_f64())
        })
        .collect();
    seconds.sort_by(f64::total_cmp);
    let read = (floats * threads * size_of::<f32>()) as f64;
    read / seconds.get(BUFFER_PASSES / 2).copied().unwrap_or(f64::INFINITY).max(f64::MIN_POSITIVE)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hyperthreads_are_not_cores() {
        let cpu = |socket, core| format!("physical id\t: {socket}\ncore id\t\t: {core}\n\n");
        let info: String = [(0, 0), (0, 1), (0, 0), (1, 0)].map(|(s, c)| cpu(s, c)).concat();
        assert_eq!(physical_cores(&info), Some(3));
        assert_eq!(physical_cores("model name : x\n"), None);
    }

    #[test]
    fn caches_shared_by_cores_count_once() -> std::io::Result<()> {
        let root = tempfile::tempdir()?;
        for (cpu, shared) in [("cpu0", "0-1"), ("cpu1", "0-1"), ("cpu2", "2-3")] {
            for (index, level, size) in [("index0", "1", "32K"), ("index3", "3", "16M")] {
                let cache = root.path().join(cpu).join("cache").join(index);
                std::fs::create_dir_all(&cache)?;
                std::fs::write(cache.join("level"), level)?;
                std::fs::write(cache.join("size"), format!("{size}\n"))?;
                std::fs::write(cache.join("shared_cpu_list"), shared)?;
            }
        }
        assert_eq!(last_level_cache(root.path()), 32 << 20);
        assert_eq!(last_level_cache(&root.path().join("none")), 0);
        Ok(())
    }

    #[test]
    fn free_space_is_known_for_a_missing_directory() {
        let disk = disk(Path::new("/tmp/not/there/yet"));
        assert!(disk.free_bytes.is_some_and(|free| free > 0));
    }

    #[test]
    fn the_bandwidth_buffer_is_at_most_a_quarter_of_memory() {
        let bandwidth = memory_bandwidth(2, 64 << 20, 16 << 20);
        assert_eq!(bandwidth.buffer_bytes, 4 << 20);
        assert!(!bandwidth.exceeds_caches);
        assert!(bandwidth.one_thread_gb_s > 0.0 && bandwidth.all_threads_gb_s.is_finite());
    }
}
