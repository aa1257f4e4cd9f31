//! Time and memory of a listing of 20,000 runs, in folders and in segments.
//!
//! ```text
//! cargo test --release --test it many -- --ignored --nocapture
//! ```

#[path = "../../benches/made_up/mod.rs"]
mod made_up;

use std::time::{Duration, Instant};

use lab::store::Store;
use table::Backend;

use crate::support::{Place, Started};

const RUNS: usize = 20_000;

/// Limits of a release build, with the files in the page cache.
const TIME: Duration = Duration::from_millis(500);
const MEMORY: u64 = 150 << 20;

#[test]
#[ignore = "writes 20,000 runs"]
fn a_listing_of_many_runs_takes_little_time_and_memory() {
    let (folders, rows) = (Place::new(), Place::new());
    made_up::directory(&folders.path().join("runs"), RUNS);
    let mut records: Vec<_> = (0..RUNS).map(|i| made_up::record(i, Backend::Sim)).collect();
    Store::open(rows.path().join("runs")).write_batch(&mut records).expect("a batch");
    for (what, place, arguments) in [
        ("folders", &folders, &["runs"][..]),
        ("segments", &rows, &["runs"]),
        ("segments, each row", &rows, &["runs", "--all"]),
    ] {
        let (time, memory) = (0..4).map(|_| measured(place, arguments)).min().expect("four times");
        println!("{what}: {:.2} s, {} MB", time.as_secs_f64(), memory >> 20);
        if !cfg!(debug_assertions) {
            assert!(time < TIME && memory < MEMORY, "{what}");
        }
    }
}

/// Duration and peak memory of a command.
fn measured(place: &Place, arguments: &[&str]) -> (Duration, u64) {
    let began = Instant::now();
    let started = Started::from_command(place.command(arguments));
    let status = format!("/proc/{}/status", started.pid());
    let peak = std::thread::spawn(move || {
        let mut peak = 0;
        // empty once it has ended
        while let Some(memory) = std::fs::read_to_string(&status).ok().as_deref().and_then(peak_memory) {
            peak = memory;
            std::thread::sleep(Duration::from_millis(2));
        }
        peak
    });
    let done = started.wait().exits(0);
    let time = began.elapsed();
    assert!(done.stdout.lines().count() > 1, "{}", done.stderr);
    (time, peak.join().expect("its memory"))
}

fn peak_memory(status: &str) -> Option<u64> {
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    Some(line.trim().strip_suffix(" kB")?.parse::<u64>().ok()? << 10)
}
