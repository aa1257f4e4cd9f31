//! From a key to the whole of the frame that it causes, and from the start to the first frame, as a user
//! has them: the program in a pseudo terminal, 5,000 stored runs, a trace of ten million spans open, and
//! a sweep that executes. Not criterion's: what counts is the tail, not the mean.
//!
//! A frame that the sweep causes while a key's is waited for counts as the key's.
//!
//! `cargo bench --bench keys [-- --runs N --spans N --keys N]`

#[path = "made_up/mod.rs"]
mod made_up;
#[path = "made_up/trace.rs"]
mod made_up_trace;
#[path = "../tests/it/pty.rs"]
mod pty;

use std::collections::BTreeMap;
use std::path::Path;
use std::time::{Duration, Instant};

use pty::Workbench;

/// A frame has ended when nothing more was written for so long.
const QUIET: Duration = Duration::from_millis(4);

/// Executed, so that something runs while keys are pressed.
const SWEEP: &str = r#"
backend = "cpu"
[model]
name = "tiny"
[workload]
prompt_tokens = 8
output_tokens = 64
samples = 100000
rounds = 1
[grid]
architecture = ["ladder"]
tp = [2]
[links]
on = "emulated:alpha_us=500,gb_s=1"
"#;

/// Keys of each screen, in turns.
const KEYS: [(&str, &str, &[&str]); 4] = [
    ("timeline", "4", &["+", "l", "+", "]", "-", "h", "[", "j", "\x1b[C", "k", "-", "\x1b[D"]),
    ("runs", "3", &["j", "s", "G", "\x1b[H", "r", "\x1b[6~", "k", "\x1b[5~"]),
    ("pareto", "5", &["\x1b[C", "\x1b[A", "\x1b[D", "\x1b[B"]),
    ("live", "2", &["j", "k"]),
];

fn option(name: &str, default: usize) -> usize {
    let mut arguments = std::env::args().skip_while(|a| a != name).skip(1);
    arguments.next().and_then(|n| n.parse().ok()).unwrap_or(default)
}

fn milliseconds(d: Duration) -> f64 {
    d.as_secs_f64() * 1e3
}

fn quantile(sorted: &[f64], q: f64) -> f64 {
    sorted[((sorted.len() - 1) as f64 * q).round() as usize]
}

fn median(mut times: Vec<f64>) -> f64 {
    times.sort_by(f64::total_cmp);
    quantile(&times, 0.5)
}

fn report(what: &str, mut times: Vec<f64>) {
    if times.is_empty() {
        return println!("{what:<28}     no key changed the screen");
    }
    times.sort_by(f64::total_cmp);
    println!(
        "{what:<28} {:>5} times   p50 {:>6.2} ms   p90 {:>6.2}   p99 {:>6.2}   most {:>6.2}",
        times.len(),
        quantile(&times, 0.5),
        quantile(&times, 0.9),
        quantile(&times, 0.99),
        times[times.len() - 1]
    );
}

/// Until output has come and ended: when its last byte came.
fn frame(workbench: &Workbench, since: Instant, before: usize) -> Option<f64> {
    let (mut written, mut last) = (before, None);
    loop {
        std::thread::sleep(Duration::from_micros(100));
        let now = workbench.written();
        if now != written {
            (written, last) = (now, Some(Instant::now()));
        }
        match last {
            Some(last) if last.elapsed() > QUIET => return Some(milliseconds(last - since)),
            None if since.elapsed() > Duration::from_secs(2) => return None,
            _ => {}
        }
    }
}

fn main() {
    // `cargo test --benches` only asks whether it starts
    if std::env::args().any(|a| a == "--test") {
        return;
    }
    let (runs, spans, keys) =
        (option("--runs", 5_000), option("--spans", 10_000_000), option("--keys", 400));
    let place = tempfile::tempdir().expect("a temporary directory");
    let dir = place.path();
    let program = Path::new(env!("CARGO_BIN_EXE_ladderscope"));
    made_up::directory(&dir.join("runs"), runs);
    std::fs::create_dir(dir.join("experiments")).expect("a directory");
    std::fs::write(dir.join("experiments/a.toml"), SWEEP).expect("a file");
    trace::write(&dir.join("big.parquet"), &made_up_trace::big("llama-3.1-405b", 16, spans))
        .expect("the disk has room");

    let starts = (0..15).map(|_| {
        let began = Instant::now();
        let mut workbench = Workbench::open(program, dir, &[], (160, 50));
        while workbench.written() == 0 || !workbench.contents().contains("1 experiments") {
            std::thread::sleep(Duration::from_micros(200));
        }
        let first = milliseconds(began.elapsed());
        workbench.press("3");
        workbench.wait_for(&format!("of {runs} runs"));
        let listed = milliseconds(began.elapsed());
        workbench.press("1q");
        let _ = workbench.ended();
        (first, listed)
    });
    let (first, listed): (Vec<f64>, Vec<f64>) = starts.unzip();
    println!("{runs} runs stored, {spans} spans open, a sweep running, 160x50");
    report("start to first frame", first);
    report("start to all runs listed", listed);

    let mut workbench = Workbench::open(program, dir, &["timeline", "big.parquet"], (160, 50));
    workbench.wait_for("decode");
    workbench.press("1");
    workbench.wait_for("╭ experiments");
    for _ in 0..40 {
        if workbench.contents().contains("╭ a ") {
            break;
        }
        workbench.press("j");
        std::thread::sleep(Duration::from_millis(50));
    }
    workbench.press("r");
    workbench.wait_for("▶ ");
    std::thread::sleep(Duration::from_secs(2));
    let mut all = Vec::new();
    for (name, screen, list) in KEYS {
        workbench.press(screen);
        std::thread::sleep(Duration::from_millis(500));
        let (mut times, mut without) = (Vec::new(), 0);
        let mut by_key = BTreeMap::<&str, Vec<f64>>::new();
        for key in list.iter().cycle().take(keys) {
            // not in step with frames that the sweep causes
            std::thread::sleep(Duration::from_millis(7 + times.len() as u64 % 5));
            let (began, before) = (Instant::now(), workbench.written());
            workbench.press(key);
            match frame(&workbench, began, before) {
                Some(time) => {
                    times.push(time);
                    by_key.entry(key).or_default().push(time);
                }
                None => without += 1,
            }
        }
        all.extend(times.clone());
        report(&format!("key to frame: {name}"), times);
        if let Some((key, p50)) = by_key
            .into_iter()
            .map(|(key, times)| (key, median(times)))
            .max_by(|a, b| a.1.total_cmp(&b.1))
        {
            println!("  slowest key {key:?}: p50 {p50:.2} ms");
        }
        if without > 0 {
            println!("  {without} keys changed nothing on the screen within 2 s, and are not counted");
        }
    }
    report("key to frame: all", all);
    workbench.press("qy");
    let _ = workbench.ended();
}
