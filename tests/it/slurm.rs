//! Sweeps on Slurm: with programs of its names that start tasks as processes (`tests/slurm/fake.sh`), and, where it is asked
//! for, with a real cluster on this host (`tests/slurm/cluster.sh`).

use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use rustix::process::Signal;
use serde_json::Value;

use crate::support::{Done, Place, Started, finish, finish_within, wait_for};

fn sources() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/slurm")
}

/// Something that answers to `sbatch`, `squeue`, `sinfo` and `scancel`.
trait Slurm {
    /// Variables by which a command finds it.
    fn variables(&self) -> Vec<(&'static str, String)>;
    /// The node of `task` (`JOB_INDEX`) dies, and all that runs there with it.
    fn kill_node_of(&self, task: &str);
}

/// Processes of this host.
struct Fake {
    dir: tempfile::TempDir,
}

impl Fake {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        for name in ["sbatch", "squeue", "sinfo", "scancel"] {
            symlink(sources().join("fake.sh"), dir.path().join(name)).unwrap();
        }
        Self { dir }
    }

    fn asked(&self, program: &str) -> String {
        std::fs::read_to_string(self.dir.path().join(format!("asked-{program}"))).unwrap_or_default()
    }

    fn tasks(&self) -> Vec<PathBuf> {
        let entries = std::fs::read_dir(self.dir.path()).unwrap().flatten().map(|entry| entry.path());
        let is_task = |path: &PathBuf| {
            let name = path.file_name().unwrap().to_string_lossy().into_owned();
            name.starts_with("task-") && !name.ends_with(".pid") && !name.ends_with(".new")
        };
        let mut tasks: Vec<PathBuf> = entries.filter(is_task).collect();
        tasks.sort();
        tasks
    }
}

impl Slurm for Fake {
    fn variables(&self) -> Vec<(&'static str, String)> {
        let path = format!("{}:{}", self.dir.path().display(), std::env::var("PATH").unwrap());
        vec![("PATH", path), ("FAKE_SLURM", self.dir.path().display().to_string())]
    }

    fn kill_node_of(&self, task: &str) {
        let task = self.dir.path().join(format!("task-{}", task.replace('_', "-")));
        let text = std::fs::read_to_string(&task).unwrap();
        std::fs::write(&task, text.replace("RUNNING", "NODE_FAIL")).unwrap();
        kill_session(&std::fs::read_to_string(format!("{}.pid", task.display())).unwrap());
    }
}

/// Ends all processes of a session that `setsid` began, runs in groups of their own included.
fn kill_session(leader: &str) {
    for entry in std::fs::read_dir("/proc").unwrap().flatten() {
        let stat = std::fs::read_to_string(entry.path().join("stat")).unwrap_or_default();
        // `pid (name) state ppid pgrp session ...`; a name may hold blanks and parentheses
        let after = stat.rsplit_once(") ").map(|(_, after)| after).unwrap_or_default();
        if after.split_whitespace().nth(3) == Some(leader.trim())
            && let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse().ok())
            && let Some(pid) = rustix::process::Pid::from_raw(pid)
        {
            // it may have ended meanwhile
            let _ = rustix::process::kill_process(pid, Signal::KILL);
        }
    }
}

impl Drop for Fake {
    fn drop(&mut self) {
        for task in self.tasks() {
            if let Ok(leader) = std::fs::read_to_string(format!("{}.pid", task.display())) {
                kill_session(&leader);
            }
        }
    }
}

/// A controller and node daemons on this host.
struct Real {
    dir: tempfile::TempDir,
}

impl Real {
    fn start() -> Self {
        let real = Self { dir: tempfile::tempdir().unwrap() };
        real.cluster(&["start"], &["3", "4"]);
        real
    }

    #[track_caller]
    fn cluster(&self, before: &[&str], after: &[&str]) {
        let mut command = Command::new(sources().join("cluster.sh"));
        let log = std::fs::File::create(self.dir.path().join("cluster.log")).unwrap();
        command.args(before).arg(self.dir.path()).args(after);
        command.stdout(log.try_clone().unwrap()).stderr(log);
        let status = command.status().unwrap();
        let said = std::fs::read_to_string(self.dir.path().join("cluster.log")).unwrap();
        assert!(status.success(), "{said}");
    }

    fn asks(&self, program: &str, arguments: &[&str]) -> String {
        let mut command = Command::new(program);
        command.args(arguments).envs(self.variables());
        finish(command).exits(0).stdout
    }
}

impl Slurm for Real {
    fn variables(&self) -> Vec<(&'static str, String)> {
        vec![("SLURM_CONF", self.dir.path().join("slurm.conf").display().to_string())]
    }

    fn kill_node_of(&self, task: &str) {
        let node = self.asks("squeue", &["--noheader", "--jobs", task, "--format=%N"]);
        self.cluster(&["kill"], &[node.trim()]);
    }
}

impl Drop for Real {
    fn drop(&mut self) {
        let _ = Command::new(sources().join("cluster.sh")).arg("stop").arg(self.dir.path()).status();
    }
}

/// Two settings of two architectures, two rounds; an all-reduce takes `alpha_us`.
fn sweep(place: &Place, alpha_us: u32) {
    place.write(
        "s.toml",
        &format!(
            "backend = \"cpu\"\nlink = \"emulated:alpha_us={alpha_us},gb_s=1\"\n[model]\nname = \"tiny\"\n[workload]\n\
             prompt_tokens = 4\noutput_tokens = 16\nsamples = 2\nwarmup = 0\nrounds = 2\n[grid]\n\
             architecture = [\"standard\", \"ladder\"]\ntp = [2, 3]\nbatch = [1, 2]\n"
        ),
    );
}

fn command(place: &Place, slurm: &dyn Slurm, more: &[&str]) -> Command {
    let mut command = place.command(&[&["sweep", "s.toml", "--slurm", "-t 5"], more].concat());
    command.envs(slurm.variables());
    command
}

fn runs(place: &Place) -> Vec<Value> {
    place.run(&["runs", "--all", "--format", "json"]).exits(0).json().as_array().unwrap().clone()
}

fn statuses(done: &Done) -> Vec<String> {
    done.json_lines().iter().map(|record| record["status"].as_str().unwrap().to_owned()).collect()
}

/// Waits until runs are under way.
fn some_run(place: &Place) {
    wait_for("a run", || {
        let entries = std::fs::read_dir(place.path().join("runs")).ok()?.flatten();
        let is_under_way =
            |dir: PathBuf| dir.join("spec.json").exists() && !dir.join("record.json").exists();
        entries.map(|entry| entry.path()).find(|dir| is_under_way(dir.clone()))
    });
}

fn cells_run_in_tasks_and_are_told_in_order(slurm: &dyn Slurm) {
    let place = Place::new();
    sweep(&place, 100);
    let done = finish(command(&place, slurm, &["--format", "json"])).exits(0);
    let expected = ["ok", "ok", "skipped", "skipped"].repeat(2);
    assert_eq!(statuses(&done), expected, "{done:?}");
    let told = |words: &str| assert!(done.stderr.contains(words), "{words}: {}", done.stderr);
    told(": 2 tasks of 1 node with 4 CPUs, 4 cells");
    told("[8/8]");
    told("s: 4 ok, 0 failed, 4 skipped, 0 oom, 0 interrupted");
    assert_eq!(done.json_lines()[0]["runs"].as_array().map(Vec::len), Some(2), "two rounds");
    let left = std::fs::read_dir(place.path().join("runs/.slurm")).unwrap().count();
    assert_eq!(left, 0, "what was submitted is done with");
    // all is found stored, and nothing submitted
    let again = finish(command(&place, slurm, &["--format", "json"])).exits(0);
    let runs = |done: &Done| done.json_lines().iter().map(|r| r["runs"].clone()).collect::<Vec<_>>();
    assert_eq!((statuses(&again), runs(&again)), (statuses(&done), runs(&done)));
    assert!(!again.stderr.contains("Slurm job"), "{}", again.stderr);
}

fn a_node_dies_and_the_sweep_says_so_and_goes_on(slurm: &dyn Slurm) {
    let place = Place::new();
    // a run takes seconds
    sweep(&place, 10_000);
    let started = Started::from_command(command(&place, slurm, &["--format", "json"]));
    some_run(&place);
    // from another process the run is seen, with its task
    let seen = wait_for("a run that is listed", || {
        runs(&place).into_iter().find(|run| run["status"] == "running")
    });
    let (_, task) = seen["reason"].as_str().unwrap().split_once(", Slurm job ").expect("a task");
    // of the task with that run: the other may not have come to its first run
    slurm.kill_node_of(task.split_whitespace().next().unwrap());
    let done = started.wait().exits(3);
    assert!(done.stderr.contains("its node failed while it ran (Slurm job "), "{}", done.stderr);
    assert!(done.stderr.contains("its node failed before it ran (Slurm job "), "{}", done.stderr);
    let stored = runs(&place);
    let failed: Vec<&Value> = stored.iter().filter(|run| run["status"] == "failed").collect();
    let reason = failed[0]["reason"].as_str().unwrap();
    assert!(failed.len() == 1 && reason.contains("NODE_FAIL"), "{failed:?}");
    let ok = stored.iter().filter(|run| run["status"] == "ok").count();
    assert!((4..8).contains(&ok), "the other node's runs are stored: {ok}");

    let done = finish(command(&place, slurm, &["--format", "json"])).exits(0);
    assert_eq!(statuses(&done), ["ok", "ok", "skipped", "skipped"].repeat(2));
    assert_eq!(runs(&place).iter().filter(|run| run["status"] == "ok").count(), 8, "none ran twice");
}

fn an_interrupted_sweep_cancels_its_jobs_and_goes_on_later(slurm: &dyn Slurm) {
    let place = Place::new();
    sweep(&place, 10_000);
    let started = Started::from_command(command(&place, slurm, &["--format", "json"]));
    some_run(&place);
    started.signal(Signal::INT);
    let done = started.wait().exits(130);
    assert!(done.stderr.contains("to resume: ladderscope sweep s.toml"), "{}", done.stderr);
    assert!(done.stderr.contains("--slurm --time=5"), "{}", done.stderr);
    assert!(statuses(&done).contains(&"interrupted".to_owned()), "{done:?}");
    let under_way = runs(&place).iter().filter(|run| run["status"] == "running").count();
    assert_eq!(under_way, 0, "nothing runs on");
    finish(command(&place, slurm, &[])).exits(0);
}

fn who_does_not_wait_follows_later(slurm: &dyn Slurm) {
    let place = Place::new();
    sweep(&place, 3_000);
    let done = finish(command(&place, slurm, &["--detach"])).exits(0);
    assert!(
        done.stderr.contains("submitted; to wait for the results: ladderscope sweep"),
        "{}",
        done.stderr
    );
    let done = finish(command(&place, slurm, &["--format", "json"])).exits(0);
    assert!(done.stderr.contains("followed, not submitted again"), "{}", done.stderr);
    assert_eq!(statuses(&done), ["ok", "ok", "skipped", "skipped"].repeat(2));
    assert_eq!(runs(&place).iter().filter(|run| run["status"] == "ok").count(), 8);
}

#[test]
fn cells_run_in_tasks() {
    let fake = Fake::new();
    cells_run_in_tasks_and_are_told_in_order(&fake);
    let asked = fake.asked("sbatch");
    assert_eq!(asked.lines().count(), 1, "one array: {asked}");
    let words = " --no-requeue --output=";
    assert!(asked.contains("--array=0-1") && asked.contains(words), "{asked}");
    assert!(
        asked.contains(" --nodes=1 --ntasks=1 --ntasks-per-node=1 --cpus-per-task=4 --time=5 "),
        "{asked}"
    );
}

/// Beside one another, for most of their time is waiting.
#[test]
fn what_happens_under_way() {
    let all: [fn(&dyn Slurm); 3] = [
        a_node_dies_and_the_sweep_says_so_and_goes_on,
        an_interrupted_sweep_cancels_its_jobs_and_goes_on_later,
        who_does_not_wait_follows_later,
    ];
    std::thread::scope(|scope| {
        for one in all {
            scope.spawn(move || one(&Fake::new()));
        }
    });
}

#[test]
fn what_slurm_refuses_is_told_and_leaves_nothing() {
    let (place, fake) = (Place::new(), Fake::new());
    sweep(&place, 100);
    std::fs::write(fake.dir.path().join("refuse"), "").unwrap();
    let done = finish(command(&place, &fake, &[])).exits(1);
    assert!(done.stderr.contains("invalid partition specified: nowhere"), "{}", done.stderr);
    assert_eq!(std::fs::read_dir(place.path().join("runs/.slurm")).unwrap().count(), 0);
    let done = place.run(&["sweep", "s.toml", "--slurm", "--array=0-9"]).exits(2);
    assert!(done.stderr.contains("'--array=0-9' cannot be passed to sbatch"), "{}", done.stderr);
    let done = place.run(&["sweep", "s.toml", "--slurm", "-QJx --wra hostname"]).exits(2);
    assert!(done.stderr.contains("'-QJx' cannot be passed to sbatch"), "{}", done.stderr);
    // which machine auto would look at is not known
    place.write("s.toml", "[model]\nname = \"tiny\"\n[workload]\nbatch = 1\n");
    let done = finish(command(&place, &fake, &[])).exits(2);
    assert!(done.stderr.contains("backend = \"cuda\" or backend = \"cpu\""), "{}", done.stderr);
}

#[test]
fn simulated_cells_are_not_submitted() {
    let (place, fake) = (Place::new(), Fake::new());
    place.write(
        "s.toml",
        "backend = \"sim\"\n[model]\nname = \"tiny\"\n[grid]\narchitecture = [\"standard\", \"ladder\"]\n",
    );
    let done = finish(command(&place, &fake, &["--format", "json"])).exits(0);
    assert!(done.stderr.contains("simulated here, not by Slurm"), "{}", done.stderr);
    assert_eq!(statuses(&done), ["ok"; 2], "{done:?}");
    assert!(!done.stderr.contains("Slurm job"), "{}", done.stderr);
}

#[test]
fn gpus_of_this_host_do_not_decide_and_those_of_the_node_do() {
    let (place, fake) = (Place::new(), Fake::new());
    place.write(
        "s.toml",
        "backend = \"cuda\"\n[model]\nname = \"tiny\"\n[workload]\nrounds = 1\n[grid]\ntp = [1, 2]\n\
         architecture = [\"standard\", \"ladder\"]\n",
    );
    let mut on_nodes = command(&place, &fake, &["--format", "json"]);
    // the nodes have no GPU either, whatever this host has
    on_nodes.env("CUDA_VISIBLE_DEVICES", "");
    let done = finish(on_nodes).exits(3);
    let asked = fake.asked("sbatch");
    assert!(asked.contains("--gres=gpu:1") && asked.contains("--gres=gpu:2"), "{asked}");
    assert_eq!(statuses(&done), ["skipped"; 4], "{done:?}");
    assert!(done.json_lines()[0]["reason"].as_str().unwrap().contains("sim predicts this cell"));
}

/// All of it, with Slurm itself: `cargo test --test it -- --ignored slurm`. It takes minutes: a node counts as failed after
/// some time without an answer.
#[test]
#[ignore = "needs slurm-wlm and munge"]
fn on_a_real_cluster() {
    let real = Real::start();
    cells_run_in_tasks_and_are_told_in_order(&real);
    who_does_not_wait_follows_later(&real);
    an_interrupted_sweep_cancels_its_jobs_and_goes_on_later(&real);
    a_node_dies_and_the_sweep_says_so_and_goes_on(&real);
    // ranks over two nodes are started by srun, and GPUs that there are not are told
    let place = Place::new();
    place.write(
        "s.toml",
        "backend = \"cuda\"\n[model]\nname = \"tiny\"\n[workload]\nrounds = 1\ntp = 4\nbatch = 1\n",
    );
    let mut over_nodes = command(&place, &real, &["--format", "json"]);
    over_nodes.env("LADDERSCOPE_SECRET", "a secret that all ranks of this job have");
    let done = finish_within(Duration::from_secs(300), over_nodes).exits(3);
    assert!(done.stderr.contains("1 task of 2 nodes with 2 GPUs each, 1 cell"), "{}", done.stderr);
    assert_eq!(statuses(&done), ["skipped"], "{done:?}");
}
