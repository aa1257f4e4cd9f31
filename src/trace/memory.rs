//! Memory limit for reading traces.
//!
//! A compressed trace of some megabytes can unpack to more memory than the machine has, and a failed
//! allocation aborts the process. Readers check declared sizes before they allocate ([`check`]); for
//! everything else a thread monitors the memory of the process from the first trace on, and exits with
//! an error above the limit. The monitor reads `/proc`, so it works on Linux only; elsewhere only declared sizes are
//! checked.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Once, OnceLock};
use std::time::Duration;

use base::error::Error;
use base::text::si;
use machine::environment::available_memory;

/// Limit in bytes; 0 until it is set or first used.
static LIMIT: AtomicU64 = AtomicU64::new(0);

type OutOfMemory = fn(&Error) -> !;

static ON_OUT_OF_MEMORY: OnceLock<OutOfMemory> = OnceLock::new();

/// Assumed limit in bytes if the available memory is unknown.
const FALLBACK: u64 = 4 << 30;

/// Polling interval; at 5 GB/s a process allocates 0.1 GB per interval.
const INTERVAL: Duration = Duration::from_millis(20);

/// Sets the limit in bytes (`--memory-limit`).
pub fn set_limit(bytes: u64) {
    LIMIT.store(bytes.max(1), Ordering::Relaxed);
}

/// Sets what ends the process above the limit. The first handler, the program's own, stays.
pub fn on_out_of_memory(handler: OutOfMemory) {
    let _ = ON_OUT_OF_MEMORY.set(handler);
}

/// Limit in bytes; by default half of the memory available at the first call.
pub fn limit() -> u64 {
    match LIMIT.load(Ordering::Relaxed) {
        0 => {
            set_limit(available_memory().unwrap_or(2 * FALLBACK) / 2);
            limit()
        }
        bytes => bytes,
    }
}

/// Checks that the `needed` bytes, as declared by a file, fit into the limit. Otherwise returns how many are needed.
pub fn check(needed: u64) -> Result<(), String> {
    if needed <= limit() {
        Ok(())
    } else {
        Err(too_much(&format!("reading it needs {}", si(needed as f64, "B"))))
    }
}

/// Starts to monitor the memory of the process. Earlier allocations do not count.
pub fn watch() {
    static WATCH: Once = Once::new();
    WATCH.call_once(|| {
        let (Some(before), limit) = (allocated(), limit()) else { return };
        // without the thread, only declared sizes are checked
        let _ = std::thread::Builder::new().name("memory".into()).spawn(move || {
            loop {
                std::thread::sleep(INTERVAL);
                let Some(now) = allocated() else { return };
                if now.saturating_sub(before) > limit {
                    let why = too_much(&format!(
                        "reading the trace needs more than {}",
                        si(limit as f64, "B")
                    ));
                    let error = Error::failed(why);
                    match ON_OUT_OF_MEMORY.get() {
                        Some(handler) => handler(&error),
                        None => std::process::exit(1),
                    }
                }
            }
        });
    });
}

fn too_much(what: &str) -> String {
    format!("{what} of memory; the limit is {} (--memory-limit)", si(limit() as f64, "B"))
}

/// Anonymous memory of the process, in bytes.
fn allocated() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("RssAnon:"))?;
    Some(line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()? * 1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stated_sizes_are_checked_against_the_limit() {
        assert!(check(64_000).is_ok());
        let why = check(u64::MAX).unwrap_err();
        assert!(why.contains(" TB of memory") && why.contains("--memory-limit"), "{why}");
        assert!(allocated().is_some_and(|bytes| bytes > 1 << 16));
    }
}
