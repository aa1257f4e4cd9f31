//! A store's bad week in minutes: sweeps are killed, stopped, ended, run against a full disk, robbed of runs,
//! started twice and read meanwhile, at random moments. After each blow everything that was told as done is
//! there as it was told, the sweep goes on with what is missing and nothing else, and nothing is left over.
//!
//! ```text
//! cargo test --release --test it soak -- --ignored --nocapture
//! ```
//!
//! It ends after `LADDERSCOPE_SOAK_MINUTES` (5) or, if that is set, `LADDERSCOPE_SOAK_KILLS`;
//! `LADDERSCOPE_SOAK_BLOWS=Kill,ClockJumped` chooses among the blows. Where libfaketime is installed the clock
//! of a sweep really jumps, otherwise only the times of the files are those of a clock that jumped.
//!
//! The seed is printed; `LADDERSCOPE_SOAK_SEED` repeats it (the blows, not the moments at which they meet a process).

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant, SystemTime};

use crate::support::{Done, Place, Started};
use rustix::process::Signal;
use serde_json::Value;

/// The file that tells libfaketime how far a clock is off.
const CLOCK: &str = "clock";

/// What happens to a sweep.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Blow {
    Kill,
    KillRun,
    Stop,
    Terminate,
    HangUp,
    Interrupt,
    FullDisk,
    RunRemoved,
    TwoSweeps,
    Reader,
    ClockJumped,
}

const BLOWS: [Blow; 11] = [
    Blow::Kill,
    Blow::KillRun,
    Blow::Stop,
    Blow::Terminate,
    Blow::HangUp,
    Blow::Interrupt,
    Blow::FullDisk,
    Blow::RunRemoved,
    Blow::TwoSweeps,
    Blow::Reader,
    Blow::ClockJumped,
];

/// The most blows that a sweep gets before it goes on to its end.
const STRIKES: usize = 5;

/// Where Debian and Fedora install libfaketime.
const FAKETIME: [&str; 3] = [
    "/usr/lib/x86_64-linux-gnu/faketime/libfaketime.so.1",
    "/usr/lib/aarch64-linux-gnu/faketime/libfaketime.so.1",
    "/usr/lib64/faketime/libfaketime.so.1",
];

/// Cells of a round: some executed, some simulated; the seed makes each round's cells new ones.
const EXECUTED: usize = 3;
const SIMULATED: usize = 24;

/// Files of somebody else in the runs directory, with names as unfinished ones had them once.
const FOREIGN: [&str; 5] =
    [".tmp-mine", ".trace-mine", "batches/.tmp-mine", ".ladderscope/mine", ".ladderscope/claims/mine"];

/// The store under attack, and what it told as done.
struct Soak {
    place: Place,
    random: fastrand::Rng,
    /// By run what was told of it.
    told: BTreeMap<String, Value>,
    /// How many runs were told of in stores before this one.
    before: usize,
    blows: BTreeMap<Blow, usize>,
    kills: usize,
    round: u64,
}

impl Soak {
    fn new(seed: u64) -> Self {
        println!("LADDERSCOPE_SOAK_SEED={seed}");
        Self {
            place: Place::new(),
            random: fastrand::Rng::with_seed(seed),
            told: BTreeMap::new(),
            before: 0,
            blows: BTreeMap::new(),
            kills: 0,
            round: 0,
        }
    }

    /// A round: up to `strikes` blows to each of two sweeps, each of which then goes on to its end.
    fn round(&mut self, blow: Blow, strikes: usize) {
        self.round += 1;
        for foreign in FOREIGN {
            self.place.write(&format!("runs/{foreign}"), "mine");
        }
        let seed = self.round;
        self.place.write(
            "executed.toml",
            &format!(
                "backend = \"cpu\"\nlink = \"emulated:alpha_us=500,gb_s=10\"\nseed = {seed}\n[model]\nname = \"tiny\"\n\
                 [workload]\nprompt_tokens = 2\noutput_tokens = 9\nsamples = 1\nwarmup = 0\nrounds = 1\n\
                 [grid]\ntp = [2]\nbatch = [1, 2, 3]\n"
            ),
        );
        self.place.write(
            "simulated.toml",
            &format!(
                "backend = \"sim\"\nmodel = \"llama-3-8b\"\nseed = {seed}\n[grid]\ntp = [1, 2, 4, 8]\n\
                 batch = [1, 4, 16]\np2p = [\"on\", \"off\"]\n"
            ),
        );
        for (file, cells) in [("executed.toml", EXECUTED), ("simulated.toml", SIMULATED)] {
            let before = self.ok_runs();
            for _ in 0..self.random.usize(1..=strikes) {
                *self.blows.entry(blow).or_default() += 1;
                self.strike(blow, file);
                self.check(blow);
            }
            let after = self.ok_runs();
            let new = after.keys().filter(|run| !before.contains_key(*run)).count();
            let done = self.sweep(file).wait();
            assert_eq!(done.code, 0, "{blow:?} {file}: {done:?}");
            assert_eq!(done.json_lines().len(), cells, "{blow:?} {file}: {done:?}");
            self.learn(&done);
            self.check(blow);
            let ran = self.ok_runs().len() - after.len();
            assert_eq!(ran + new, cells, "{blow:?} {file}: each cell is finished once");
        }
        self.nothing_is_left(blow);
    }

    fn command(&self, file: &str) -> Command {
        self.place.command(&["sweep", file, "--format", "json", "--timeout", "3"])
    }

    fn sweep(&self, file: &str) -> Started {
        Started::from_command(self.command(file))
    }

    /// Sweeps until the blow falls, and takes in what was told before.
    fn strike(&mut self, blow: Blow, file: &str) {
        let sweeps: Vec<Started> = match blow {
            Blow::FullDisk => {
                // a limit on files' lengths, with its signal ignored, fails writes as a full disk does
                let mut shell = Command::new("sh");
                let limit = 1 + self.random.u32(0..12);
                let sweep = self.command(file);
                let words = sweep.get_args().map(|word| word.to_string_lossy().into_owned());
                let words: Vec<String> = words.collect();
                shell
                    .current_dir(self.place.path())
                    .arg("-c")
                    .arg(format!("trap '' XFSZ; ulimit -f {limit}; exec \"$0\" \"$@\""))
                    .arg(sweep.get_program())
                    .args(words);
                vec![Started::from_command(shell)]
            }
            Blow::TwoSweeps => vec![self.sweep(file), self.sweep(file)],
            Blow::ClockJumped => {
                self.set_clock();
                let mut sweep = self.command(file);
                if let Some(library) = FAKETIME.iter().find(|path| Path::new(path).exists()) {
                    sweep
                        .env("LD_PRELOAD", library)
                        .env("FAKETIME_TIMESTAMP_FILE", self.place.path().join(CLOCK))
                        .env("FAKETIME_NO_CACHE", "1")
                        .env("FAKETIME_DONT_FAKE_MONOTONIC", "1");
                }
                vec![Started::from_command(sweep)]
            }
            _ => vec![self.sweep(file)],
        };
        std::thread::sleep(Duration::from_millis(self.random.u64(0..1500)));
        let first = &sweeps[0];
        let mut removed = None;
        match blow {
            Blow::Kill | Blow::TwoSweeps => {
                self.kills += 1;
                first.signal(Signal::KILL);
            }
            Blow::KillRun => {
                if let Some(child) = first.children().first() {
                    self.kills += 1;
                    // it may end at this very moment
                    let pid = rustix::process::Pid::from_raw(*child as i32).expect("a process id");
                    let _ = rustix::process::kill_process(pid, Signal::KILL);
                }
            }
            Blow::Stop => {
                first.signal(Signal::STOP);
                std::thread::sleep(Duration::from_millis(self.random.u64(0..500)));
                match self.random.bool() {
                    true => first.signal(Signal::CONT),
                    false => {
                        self.kills += 1;
                        first.signal(Signal::KILL);
                    }
                }
            }
            Blow::Terminate => first.signal(Signal::TERM),
            Blow::HangUp => first.signal(Signal::HUP),
            Blow::Interrupt => first.signal(Signal::INT),
            Blow::FullDisk => {}
            Blow::RunRemoved => {
                let runs: Vec<String> =
                    self.told.keys().filter(|run| !run.contains(':')).cloned().collect();
                if let Some(run) = self.random.choice(&runs) {
                    std::fs::remove_dir_all(self.place.path().join("runs").join(run))
                        .expect("it was there");
                    removed = Some(run.clone());
                }
            }
            Blow::Reader => {
                for _ in 0..3 {
                    self.place.run(&["runs", "--all", "--format", "json"]).exits(0).json();
                }
                self.kills += 1;
                first.signal(Signal::KILL);
            }
            Blow::ClockJumped => {
                // what a clock that jumped leaves: files of a time that has not come, or long ago
                let far = match self.random.bool() {
                    true => SystemTime::now() + Duration::from_secs(50 * 365 * 86_400),
                    false => SystemTime::UNIX_EPOCH + Duration::from_secs(1),
                };
                for entry in
                    std::fs::read_dir(self.place.path().join("runs")).into_iter().flatten().flatten()
                {
                    if let Ok(file) = std::fs::File::open(entry.path()) {
                        let _ = file.set_modified(far);
                    }
                }
                // and it jumps under the sweep, which then ends by itself or is killed
                self.set_clock();
                if self.random.bool() {
                    self.kills += 1;
                    first.signal(Signal::KILL);
                }
            }
        }
        for sweep in sweeps {
            let done = sweep.wait();
            self.learn(&done);
        }
        // a sweep may have found it done before somebody took it away
        if let Some(run) = removed {
            self.told.remove(&run);
        }
    }

    /// Sets the clock of the sweeps that heed it to another time.
    fn set_clock(&mut self) {
        let offset =
            self.random.choice(["-30y", "-1d", "-5s", "+0", "+90", "+1d", "+60y"]).expect("some");
        self.place.write(CLOCK, offset);
    }

    /// Takes in what a sweep told as done: its last line may be cut.
    fn learn(&mut self, done: &Done) {
        for line in done.stdout.lines() {
            let Ok(record) = serde_json::from_str::<Value>(line) else { continue };
            if record["status"] == "ok" {
                let run = record["run"].as_str().expect("an id").to_owned();
                self.told.insert(run, record);
            }
        }
    }

    /// All runs that ended well, by id.
    fn ok_runs(&self) -> BTreeMap<String, Value> {
        let runs =
            self.place.run(&["runs", "--all", "--status", "ok", "--format", "json"]).exits(0).json();
        let runs = runs.as_array().cloned().unwrap_or_default();
        runs.into_iter().map(|run| (run["run"].as_str().expect("an id").to_owned(), run)).collect()
    }

    /// Everything that was told is there, bit for bit.
    fn check(&self, blow: Blow) {
        let there = self.ok_runs();
        for (run, told) in &self.told {
            let stored =
                there.get(run).unwrap_or_else(|| panic!("{blow:?}: {run} was told as done and is gone"));
            for key in ["spec", "metrics", "overlap", "samples", "created", "provenance"] {
                assert_eq!(stored[key], told[key], "{blow:?}: {key} of {run}");
            }
        }
    }

    /// No file that was never finished, no claim, no process.
    fn nothing_is_left(&self, blow: Blow) {
        self.sweep("executed.toml").wait().exits(0);
        let mut folders = vec![self.place.path().join("runs")];
        while let Some(folder) = folders.pop() {
            for entry in std::fs::read_dir(&folder).expect("a directory").flatten() {
                let name = entry.file_name().to_string_lossy().into_owned();
                if FOREIGN.iter().any(|foreign| entry.path().ends_with(foreign)) {
                    continue;
                }
                assert!(
                    !name.starts_with(".ladderscope-") && !name.ends_with(".parts"),
                    "{blow:?} left {name} in {folder:?}"
                );
                assert!(!folder.ends_with("claims"), "{blow:?} left the claim {name}");
                if entry.path().is_dir() {
                    folders.push(entry.path());
                }
            }
        }
        for foreign in FOREIGN {
            let path = self.place.path().join("runs").join(foreign);
            assert_eq!(std::fs::read_to_string(path).expect(foreign), "mine", "{blow:?}");
        }
        let here = self.place.path().canonicalize().expect("a directory");
        let processes = std::fs::read_dir("/proc").expect("/proc").flatten();
        let alive: Vec<u32> = processes
            .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
            .filter(|pid| std::fs::read_link(format!("/proc/{pid}/cwd")).is_ok_and(|cwd| cwd == here))
            .filter(|pid| crate::support::is_alive(*pid))
            .collect();
        assert!(alive.is_empty(), "{blow:?} left processes {alive:?}");
    }

    fn report(&self) {
        let told = self.before + self.told.len();
        println!("{} rounds, {} kills, {told} runs told as done", self.round, self.kills);
        for (blow, count) in &self.blows {
            println!("  {count:5}  {blow:?}");
        }
    }
}

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

/// The blows that were asked for, or all.
fn blows() -> Vec<Blow> {
    let Ok(names) = std::env::var("LADDERSCOPE_SOAK_BLOWS") else { return BLOWS.to_vec() };
    let blow = |name: &str| {
        let known = BLOWS.into_iter().find(|blow| format!("{blow:?}").eq_ignore_ascii_case(name.trim()));
        known.unwrap_or_else(|| panic!("LADDERSCOPE_SOAK_BLOWS: no blow {name:?}, there are {BLOWS:?}"))
    };
    names.split(',').map(blow).collect()
}

#[test]
fn each_blow_once() {
    let mut soak = Soak::new(number("LADDERSCOPE_SOAK_SEED").unwrap_or(7));
    for blow in [Blow::Kill, Blow::FullDisk, Blow::TwoSweeps, Blow::Stop] {
        soak.round(blow, 1);
    }
    soak.report();
}

#[test]
#[ignore = "takes minutes: LADDERSCOPE_SOAK_MINUTES"]
fn blows_for_minutes() {
    let minutes = number("LADDERSCOPE_SOAK_MINUTES").unwrap_or(5);
    let kills = number("LADDERSCOPE_SOAK_KILLS");
    let mut soak = Soak::new(number("LADDERSCOPE_SOAK_SEED").unwrap_or_else(|| fastrand::u64(..)));
    let blows = blows();
    let began = Instant::now();
    let goes_on = |soak: &Soak| match kills {
        Some(kills) => (soak.kills as u64) < kills,
        None => began.elapsed() < Duration::from_secs(60 * minutes),
    };
    while goes_on(&soak) {
        let blow = blows[soak.random.usize(0..blows.len())];
        soak.round(blow, STRIKES);
        if soak.round.is_multiple_of(10) {
            soak.report();
        }
        // a store of thousands of runs makes every look long
        if soak.told.len() > 2000 {
            soak.place = Place::new();
            soak.before += std::mem::take(&mut soak.told).len();
        }
    }
    soak.report();
}
