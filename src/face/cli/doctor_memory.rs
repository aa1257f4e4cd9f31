//! Memory bandwidth for decoding: streams weights once, with one thread and with all.

use std::sync::Barrier;
use std::time::Instant;

use arithmetic::{sum, with_large_pages};
use pulp::Arch;
use serde::Serialize;

/// Buffer size in last-level caches. Large because virtual machines may report only part of their cache.
const CACHES: u64 = 16;
/// Timed passes over the buffer.
const PASSES: usize = 7;
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
pub fn measure(threads: usize, l3_bytes: u64, available_bytes: u64) -> Bandwidth {
    let wanted = if l3_bytes == 0 { DEFAULT_BUFFER } else { CACHES * l3_bytes };
    let buffer_bytes = wanted.min(LARGEST_BUFFER).min((available_bytes / 4).max(1 << 20));
    Bandwidth {
        one_thread_gb_s: read_bandwidth_over(1, buffer_bytes) / 1e9,
        all_threads_gb_s: read_bandwidth_over(threads, buffer_bytes) / 1e9,
        threads,
        buffer_bytes,
        exceeds_caches: l3_bytes > 0 && buffer_bytes >= 4 * l3_bytes,
        passes: PASSES,
    }
}

/// Read bandwidth of memory in bytes per second: `threads` threads stream through a buffer several times the
/// last-level cache. Median of several passes.
pub fn read_bandwidth(threads: usize) -> f64 {
    let l3 = super::doctor_machine::cpu().l3_bytes;
    let bytes = if l3 == 0 { DEFAULT_BUFFER } else { (CACHES * l3).min(LARGEST_BUFFER) };
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
        (0..=PASSES)
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
    let mut seconds: Vec<f64> = (1..=PASSES)
        .filter_map(|pass| {
            let first = readers.iter().map(|passes| passes[pass].0).min()?;
            let last = readers.iter().map(|passes| passes[pass].1).max()?;
            Some((last - first).as_secs_f64())
        })
        .collect();
    seconds.sort_by(f64::total_cmp);
    let read = (floats * threads * size_of::<f32>()) as f64;
    read / seconds.get(PASSES / 2).copied().unwrap_or(f64::INFINITY).max(f64::MIN_POSITIVE)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_small_machine_is_not_filled() {
        let bandwidth = measure(2, 64 << 20, 16 << 20);
        assert_eq!(bandwidth.buffer_bytes, 4 << 20);
        assert!(!bandwidth.exceeds_caches);
        assert!(bandwidth.one_thread_gb_s > 0.0 && bandwidth.all_threads_gb_s.is_finite());
    }
}
