//! Several processes as a launcher starts them, a rank each: they meet, run together and end together,
//! whichever of them dies. With the variables of torchrun, srun and mpirun set by hand.

use std::process::Command;
use std::time::{Duration, Instant};

use rustix::process::Signal;
use serde_json::Value;

use crate::device::{Device, device};
use crate::support::{Done, PATIENCE, Place, Started, is_alive, send, wait_for};
use run::testing::port;

/// A cell that takes two GPUs.
const PAIR: &str =
    "run --backend cuda --model tiny --tp 2 --dtype bf16 --prompt-tokens 4 --output-tokens 4 --warmup 1";

fn pair<'a>(samples: &'a str, more: &[&'a str]) -> Vec<&'a str> {
    PAIR.split(' ').chain(["--samples", samples]).chain(more.iter().copied()).collect()
}

/// Processes that a launcher would start.
struct Launch<'a> {
    place: &'a Place,
    device: Option<&'static Device>,
    port: u16,
    ranks: usize,
}

impl<'a> Launch<'a> {
    fn new(place: &'a Place, device: Option<&'static Device>, ranks: usize) -> Self {
        Self { place, device, port: port(), ranks }
    }

    fn command(&self, rank: usize, arguments: &[&str]) -> Command {
        let mut command = match self.device {
            Some(device) => device.command(self.place, arguments),
            None => self.place.command(arguments),
        };
        command
            .env("LADDERSCOPE_PORT", self.port.to_string())
            .env("MASTER_ADDR", "127.0.0.1")
            .env("RANK", rank.to_string())
            .env("WORLD_SIZE", self.ranks.to_string())
            .env("LOCAL_RANK", rank.to_string())
            .env("FAKE_CUDA_DEVICES", self.ranks.to_string());
        command
    }

    /// Starts rank `rank`, with more variables.
    fn start(&self, rank: usize, arguments: &[&str], variables: &[(&str, &str)]) -> Started {
        let mut command = self.command(rank, arguments);
        command.envs(variables.iter().copied());
        Started::from_command(command)
    }

    /// Runs all ranks to their ends; what they left, by rank. Later ranks come first.
    fn run(&self, arguments: &[&str], variables: &[(&str, &str)]) -> Vec<Done> {
        let mut started: Vec<Started> =
            (0..self.ranks).rev().map(|rank| self.start(rank, arguments, variables)).collect();
        started.reverse();
        started.into_iter().map(Started::wait).collect()
    }
}

fn records(place: &Place) -> Vec<Value> {
    let mut all: Vec<_> = std::fs::read_dir(place.path().join("runs"))
        .into_iter()
        .flatten()
        .flatten()
        .filter_map(|entry| std::fs::read(entry.path().join("record.json")).ok())
        .map(|text| serde_json::from_slice::<Value>(&text).expect("a record"))
        .collect();
    all.sort_by_key(|record| record["created"].to_string());
    all
}

#[test]
fn a_run_that_takes_no_gpus_is_rank_0s_alone() {
    let place = Place::new();
    let launch = Launch::new(&place, None, 3);
    let arguments = [
        "run",
        "--backend",
        "cpu",
        "--model",
        "tiny",
        "--tp",
        "2",
        "--samples",
        "1",
        "--warmup",
        "0",
        "--format",
        "json",
    ];
    let done = launch.run(&arguments, &[]);
    assert_eq!(done[0].json()["status"], "ok", "{done:?}");
    for other in &done[1..] {
        assert_eq!((other.code, other.stdout.as_str(), other.stderr.as_str()), (0, "", ""), "{done:?}");
    }
    assert_eq!(records(&place).len(), 1);
    // what is wrong with the cell ends all of them as it ends rank 0
    let done = launch.run(&["run", "--backend", "sim", "--hardware", "h1000"], &[]);
    assert_eq!([done[0].code, done[1].code, done[2].code], [2, 2, 2], "{done:?}");
    assert!(done[0].stderr.contains("h1000") && done[1].stderr.is_empty(), "{done:?}");
}

#[test]
fn a_rank_that_does_not_come_is_named_within_the_time_out() {
    let place = Place::new();
    let launch = Launch::new(&place, None, 3);
    let began = Instant::now();
    let arguments = ["run", "--backend", "sim", "--timeout", "1"];
    let one = launch.start(1, &arguments, &[]);
    let zero = launch.start(0, &arguments, &[]).wait().exits(1);
    assert!(zero.stderr.contains("rank 2 of 3 did not come to 127.0.0.1 within 1 s"), "{zero:?}");
    let one = one.wait().exits(1);
    assert!(one.stderr.contains("rank 2 of 3 did not come"), "{one:?}");
    let late = launch.start(2, &arguments, &[]).wait().exits(1);
    assert!(late.stderr.contains("rank 2 did not find rank 0 at 127.0.0.1"), "{late:?}");
    assert!(began.elapsed() < PATIENCE);
    assert!(records(&place).is_empty());
}

/// A shell of `srun --pty` has the variables of four tasks, and is the only one.
#[test]
fn ranks_that_nobody_started_are_named_long_before_the_time_out() {
    let place = Place::new();
    let launch = Launch::new(&place, None, 4);
    let zero = launch.start(0, &["run", "--backend", "sim", "--timeout", "12"], &[]).wait().exits(1);
    let note =
        zero.stderr.find("note: rank 0 of 4 (torchrun) has waited 10 s for ranks 1, 2, 3 at 127.0.0.1");
    let error = zero.stderr.find("ranks 1, 2, 3 of 4 did not come");
    assert!(note.is_some() && note < error, "{zero:?}");
    assert_eq!(zero.stderr.matches("LADDERSCOPE_LAUNCHER=none").count(), 1, "{zero:?}");
}

#[test]
fn variables_that_contradict_each_other_are_named() {
    let place = Place::new();
    let launch = Launch::new(&place, None, 2);
    let mut command = launch.command(1, &["run", "--backend", "sim"]);
    command.env_remove("LOCAL_RANK");
    let done = Started::from_command(command).wait().exits(2);
    assert!(done.stderr.contains("LOCAL_RANK is not set"), "{done:?}");
    let mut command = launch.command(5, &["run", "--backend", "sim"]);
    let done = Started::from_command(command).wait().exits(2);
    assert!(done.stderr.contains("RANK=5 and WORLD_SIZE=2 contradict"), "{done:?}");
    // both started by the same launcher, but of different sizes
    let arguments = ["run", "--backend", "sim", "--timeout", "20"];
    command = launch.command(1, &arguments);
    command.env("WORLD_SIZE", "4");
    let one = Started::from_command(command);
    let zero = launch.start(0, &arguments, &[]).wait().exits(1);
    assert!(
        zero.stderr.contains("rank 1 was started as one of 4 ranks, rank 0 as one of 2"),
        "{zero:?}"
    );
    let one = one.wait().exits(1);
    assert!(one.stderr.contains("does not let rank 1 in"), "{one:?}");
}

#[test]
fn two_processes_decode_together_and_rank_0_stores_it() {
    let device = device!();
    let place = Place::new();
    let launch = Launch::new(&place, Some(device), 2);
    let done = launch.run(&pair("2", &["--rounds", "2", "--p2p", "off", "--format", "json"]), &[]);
    let record = done[0].json();
    assert_eq!((record["status"].as_str(), &record["spec"]["tp"]), (Some("ok"), &2.into()), "{done:?}");
    assert_eq!((done[1].code, done[1].stdout.as_str()), (0, ""), "{done:?}");
    let stored = records(&place);
    assert_eq!(stored.len(), 2, "a run a round");
    for record in &stored {
        let environment = &record["environment"];
        assert_eq!(environment["nccl_variables"]["NCCL_P2P_DISABLE"], "1", "{record}");
        assert!(environment["nccl_chosen"]["channels"].is_number(), "{record}");
        let trace = place.path().join("runs").join(record["trace"].as_str().expect("a trace"));
        assert!(trace.exists());
    }
    // the same as one process with a thread a rank gives
    let alone = place.path().join("alone");
    let mut command = device.command(&place, &pair("2", &["--format", "json"]));
    command.env("FAKE_CUDA_DEVICES", "2").arg("--dir").arg(&alone);
    let threads = Started::from_command(command).wait().exits(0).json();
    let memory = |record: &Value| record["metrics"]["memory_bytes_per_rank"].as_u64();
    assert!(memory(&threads).is_some(), "{threads}");
    assert_eq!(memory(&threads), memory(&record));
}

/// Nothing of a cell crosses the network: ranks whose command lines, files or models differ run nothing.
#[test]
fn a_rank_runs_nothing_that_its_own_command_line_does_not_name() {
    let place = Place::new();
    let launch = Launch::new(&place, None, 2);
    let own = pair("1", &["--format", "json"]);
    for (option, value) in [("--env", "LD_BIND_NOW=1"), ("--model", "./nowhere"), ("--tp", "1")] {
        let mut other = own.clone();
        match other.iter().position(|word| *word == option) {
            Some(at) => other[at + 1] = value,
            None => other.extend([option, value]),
        }
        for (rank, other_rank) in [(0, 1), (1, 0)] {
            let first = launch.start(other_rank, &own, &[]);
            let done = [launch.start(rank, &other, &[]).wait(), first.wait()];
            assert_eq!([done[0].code, done[1].code], [2, 2], "{done:?}");
            let differs = other.contains(&"./nowhere");
            let wanted = match (differs, rank) {
                (false, _) => ["resolves another ", "start every rank with the same command line"],
                (true, 1) => ["rank 1: ", "./nowhere"],
                // rank 0 tells its own error, and rank 1 nothing
                (true, _) => ["./nowhere", ""],
            };
            let said = &done[0].stderr;
            assert!(wanted.iter().all(|part| said.contains(part)), "{wanted:?}: {done:?}");
        }
    }
    assert!(records(&place).is_empty());
}

#[test]
fn a_variable_that_all_ranks_name_is_taken() {
    let device = device!();
    let place = Place::new();
    let launch = Launch::new(&place, Some(device), 2);
    let done = launch.run(&pair("1", &["--format", "json", "--env", "LD_BIND_NOW=1"]), &[]);
    assert_eq!(done[0].json()["status"], "ok", "{done:?}");
}

#[test]
fn the_variables_of_srun_and_mpirun_do_as_well() {
    let device = device!();
    let place = Place::new();
    let launch = Launch::new(&place, Some(device), 2);
    let arguments = pair("1", &["--format", "json"]);
    let torchrun = ["RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR"];
    for names in [
        ["SLURM_PROCID", "SLURM_NTASKS", "SLURM_LOCALID", "SLURM_STEP_NUM_NODES", "SLURM_STEP_ID"],
        [
            "OMPI_COMM_WORLD_RANK",
            "OMPI_COMM_WORLD_SIZE",
            "OMPI_COMM_WORLD_LOCAL_RANK",
            "OMPI_COMM_WORLD_NODE_RANK",
            "OMPI_COMM_WORLD_LOCAL_SIZE",
        ],
    ] {
        let start = |rank: usize| {
            let mut command = launch.command(rank, &arguments);
            torchrun.iter().for_each(|name| {
                command.env_remove(name);
            });
            let rank = rank.to_string();
            let last = if names[4].ends_with("SIZE") { "2" } else { "0" };
            command.envs(names.into_iter().zip([rank.as_str(), "2", &rank, "1", last]));
            Started::from_command(command)
        };
        let one = start(1);
        let record = start(0).wait().exits(0).json();
        assert_eq!(record["status"], "ok", "{record}");
        one.wait().exits(0);
    }
}

/// Starts two ranks on a run that would take for ever, and waits until it is under way.
fn under_way(launch: &Launch<'_>) -> [Started; 2] {
    let arguments = pair("100000", &["--timeout", "60"]);
    let one = launch.start(1, &arguments, &[]);
    let zero = launch.start(0, &arguments, &[]);
    wait_for("both ranks' processes", || {
        (zero.children().len() == 1 && one.children().len() == 1).then_some(())
    });
    // weights, kernels, a capture and some samples
    std::thread::sleep(Duration::from_millis(2500));
    [zero, one]
}

/// The reason of the one stored run.
fn reason(place: &Place) -> (String, String) {
    let stored = records(place);
    assert_eq!(stored.len(), 1, "{stored:?}");
    let text = |name: &str| stored[0][name].as_str().unwrap_or_default().to_owned();
    (text("status"), text("reason"))
}

#[test]
fn a_ranks_process_that_is_killed_ends_the_run_at_once_and_is_named() {
    let device = device!();
    let place = Place::new();
    let launch = Launch::new(&place, Some(device), 2);
    let [zero, one] = under_way(&launch);
    send(one.children()[0], Signal::KILL);
    let began = Instant::now();
    zero.wait().exits(1);
    one.wait().exits(1);
    assert!(began.elapsed() < Duration::from_secs(20), "long before the time-out");
    let (status, reason) = reason(&place);
    assert_eq!(status, "failed");
    assert!(reason.contains("rank 1") && reason.contains("killed by signal 9"), "{reason}");
}

#[test]
fn whichever_parent_dies_nothing_goes_on() {
    let device = device!();
    for dies in [0, 1] {
        let place = Place::new();
        let launch = Launch::new(&place, Some(device), 2);
        let started = under_way(&launch);
        let children: Vec<u32> = started.iter().flat_map(Started::children).collect();
        started[dies].signal(Signal::KILL);
        let [zero, one] = started;
        let (zero, one) = (zero.wait(), one.wait());
        let survivor = if dies == 0 { one } else { zero };
        assert_eq!(survivor.code, 1, "{survivor:?}");
        assert!(survivor.stderr.contains(&format!("rank {dies}")), "{survivor:?}");
        for child in children {
            wait_for("a child's end", || (!is_alive(child)).then_some(()));
        }
    }
}

#[test]
fn an_interruption_of_rank_0_ends_all_and_is_stored() {
    let device = device!();
    let place = Place::new();
    let launch = Launch::new(&place, Some(device), 2);
    let [zero, one] = under_way(&launch);
    zero.signal(Signal::TERM);
    zero.wait().exits(130);
    one.wait().exits(130);
    assert_eq!(reason(&place).0, "interrupted");
}

#[test]
fn what_hangs_ends_within_the_time_out_and_says_what_it_was_doing() {
    let device = device!();
    for (fault, wanted) in [
        (("FAKE_NCCL_ABSENT", "1"), "NCCL 2.27.3 was not ready within 2 s"),
        (("FAKE_NCCL_HANG", "1:20"), "warm-up"),
        (("FAKE_CUDA_HANG", "attend_decode:9"), "warm-up"),
        (("FAKE_NCCL_ASYNC", "1:20=6"), "NCCL"),
    ] {
        let place = Place::new();
        let launch = Launch::new(&place, Some(device), 2);
        let began = Instant::now();
        let done = launch.run(&pair("2", &["--timeout", "2"]), &[fault]);
        assert!(began.elapsed() < Duration::from_secs(60), "{fault:?}: {done:?}");
        assert_eq!([done[0].code, done[1].code], [1, 1], "{fault:?}: {done:?}");
        let (status, reason) = reason(&place);
        assert!(status == "failed" && reason.contains(wanted), "{fault:?}: {reason}");
    }
}

#[test]
fn two_ranks_on_one_gpu_are_refused_by_name() {
    let device = device!();
    let place = Place::new();
    let launch = Launch::new(&place, Some(device), 2);
    // the launcher shows both the same one
    let done = launch.run(&pair("1", &[]), &[("FAKE_CUDA_DEVICES", "1")]);
    assert_eq!([done[0].code, done[1].code], [1, 1], "{done:?}");
    let (_, reason) = reason(&place);
    assert!(reason.contains("ranks 0 and 1 are on the same GPU"), "{reason}");
}

#[test]
fn a_sweep_takes_as_many_ranks_as_each_cell_wants() {
    let device = device!();
    let place = Place::new();
    place.write(
        "sweep.toml",
        "rounds = 1\nbackend = \"cuda\"\nmodel = \"tiny\"\ndtype = \"bf16\"\nsamples = 1\nwarmup = 0\n\
         [workload]\nprompt_tokens = 4\noutput_tokens = 3\n[grid]\ntp = [1, 2, 4]\n",
    );
    let launch = Launch::new(&place, Some(device), 2);
    let done = launch.run(&["sweep", "sweep.toml", "--format", "json"], &[]);
    let cells = done[0].json_lines();
    let status: Vec<&str> = cells.iter().filter_map(|cell| cell["status"].as_str()).collect();
    assert_eq!(status, ["ok", "ok", "skipped"], "{done:?}");
    let why = cells[2]["reason"].as_str().unwrap_or_default();
    assert!(why.contains("tp 4 needs 4 ranks, and the launcher started 2"), "{why}");
    assert_eq!(done[1].code, done[0].code, "{done:?}");
}
