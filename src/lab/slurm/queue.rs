//! What is queued, runs or has ended: what `squeue` says of tasks, and whether the job of a run is still under way.

use std::collections::HashMap;
use std::process::Command;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use super::command::answer;
use base::error::Result;

/// A controller under load may take its time.
const PATIENCE: Duration = Duration::from_secs(30);
/// A listing of runs does not wait so long.
const SHORT: Duration = Duration::from_secs(3);
/// For so long an answer about a job is not asked for again.
const FRESH: Duration = Duration::from_secs(10);

/// Where a task of a job array is on its way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// It waits for its turn.
    Pending,
    /// It has nodes, and its processes begin, run or end.
    UnderWay,
    /// It has ended as it should.
    Completed,
    /// It was cancelled, or its time was up, or others needed its nodes.
    Stopped,
    /// It failed: its process, its memory or its node.
    Failed,
}

impl State {
    /// Whether nothing more comes of it.
    pub fn is_over(self) -> bool {
        matches!(self, Self::Completed | Self::Stopped | Self::Failed)
    }

    /// Slurm's word for a state, as a state; what is not known here is under way.
    fn of(word: &str) -> Self {
        match word {
            "PENDING" | "REQUEUED" | "REQUEUE_HOLD" | "REQUEUE_FED" | "RESV_DEL_HOLD"
            | "SPECIAL_EXIT" => Self::Pending,
            "COMPLETED" => Self::Completed,
            "CANCELLED" | "TIMEOUT" | "PREEMPTED" | "DEADLINE" | "REVOKED" => Self::Stopped,
            "FAILED" | "NODE_FAIL" | "BOOT_FAIL" | "OUT_OF_MEMORY" | "LAUNCH_FAILED" => Self::Failed,
            _ => Self::UnderWay,
        }
    }
}

/// A task of a job array, as `squeue` tells of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Task {
    /// The name of its job.
    pub name: String,
    /// The number of the whole array, as `scancel` takes it.
    pub job: u64,
    /// Its number within the array.
    pub index: u32,
    /// Where it is on its way.
    pub state: State,
    /// Slurm's own word for that: `NODE_FAIL`.
    pub word: String,
    /// The nodes that it has or had, as Slurm abbreviates them; empty before it has any.
    pub nodes: String,
    /// Why it waits or how it ended, in Slurm's word: `Resources`, `Priority`; `None` counts as no reason.
    pub reason: Option<String>,
}

impl Task {
    /// What `squeue`, `scancel` and `scontrol` call it: `1234_5`.
    pub fn id(&self) -> String {
        format!("{}_{}", self.job, self.index)
    }
}

/// The tasks of jobs with these names, those that ended a few minutes ago included (the controller's `MinJobAge`).
///
/// # Errors
///
/// A failure with what `squeue` said: the controller may be away for a while.
pub fn queue(names: &[String]) -> Result<Vec<Task>> {
    if names.is_empty() {
        return Ok(Vec::new());
    }
    let mut command = Command::new("squeue");
    command.args(["--noheader", "--array", "--states=all", "--format=%j|%F|%K|%T|%N|%r"]);
    command.arg(format!("--name={}", names.join(",")));
    Ok(read(&answer(&mut command, PATIENCE)?))
}

fn read(said: &str) -> Vec<Task> {
    said.lines().filter_map(task).collect()
}

fn task(line: &str) -> Option<Task> {
    let fields: Vec<&str> = line.splitn(6, '|').map(str::trim).collect();
    let [name, job, index, word, nodes, reason] = fields[..] else { return None };
    let known = |text: &str| !text.is_empty() && !matches!(text, "None" | "(null)" | "N/A");
    Some(Task {
        name: name.to_owned(),
        job: job.parse().ok()?,
        index: index.parse().ok()?,
        state: State::of(word),
        word: word.to_owned(),
        nodes: if known(nodes) { nodes.to_owned() } else { String::new() },
        reason: known(reason).then(|| reason.to_owned()),
    })
}

/// The task of Slurm that this process belongs to (`1234_5`), or its job; `None` outside of Slurm.
pub(crate) fn current() -> Option<String> {
    let variable = |name: &str| std::env::var(name).ok().filter(|value| is_number(value));
    match (variable("SLURM_ARRAY_JOB_ID"), variable("SLURM_ARRAY_TASK_ID")) {
        (Some(job), Some(index)) => Some(format!("{job}_{index}")),
        _ => variable("SLURM_JOB_ID"),
    }
}

fn is_number(text: &str) -> bool {
    !text.is_empty() && text.len() < 20 && text.bytes().all(|b| b.is_ascii_digit())
}

/// What Slurm said of tasks and jobs, and when.
type Known = HashMap<String, (Instant, Option<bool>)>;

/// Whether a task (`1234_5`) or job is still under way, as far as Slurm answers here within a few seconds. An answer
/// is kept for some seconds: a listing asks of every run.
pub(crate) fn is_under_way(id: &str) -> Option<bool> {
    static KNOWN: Mutex<Option<Known>> = Mutex::new(None);
    // what stands in a file is not given to a command as it is
    if !id.split('_').all(is_number) || id.split('_').count() > 2 {
        return None;
    }
    // held while Slurm is asked: many threads list at once, and one question is enough
    let mut known = KNOWN.lock().ok()?;
    let known = known.get_or_insert_default();
    if let Some((_, answer)) = known.get(id).filter(|(asked, _)| asked.elapsed() < FRESH) {
        return *answer;
    }
    let answer = ask(id);
    known.insert(id.to_owned(), (Instant::now(), answer));
    answer
}

fn ask(id: &str) -> Option<bool> {
    let mut command = Command::new("squeue");
    command.args(["--noheader", "--array", "--states=all", "--format=%T", "--jobs", id]);
    match answer(&mut command, SHORT) {
        Ok(said) => Some(said.lines().any(|word| State::of(word.trim()) == State::UnderWay)),
        // jobs that ended some minutes ago are not known any more
        Err(e) if e.to_string().contains("Invalid job id") => Some(false),
        Err(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn tasks_are_read_with_where_they_are_and_why() {
        let said = "sweep-a.0|12|0|RUNNING|gpu[1-2]|None\nsweep-a.0|12|1|PENDING||Resources\n\
                    sweep-a.1|13|0|NODE_FAIL|gpu7|NodeDown\nother|9|N/A|RUNNING|x|None\n\
                    sweep-a.1|13|1|COMPLETING|gpu7|None\nsweep-a.1|13|2|CANCELLED||None\n";
        let tasks = read(said);
        let states: Vec<State> = tasks.iter().map(|task| task.state).collect();
        use State::{Failed, Pending, Stopped, UnderWay};
        assert_eq!(
            states,
            [UnderWay, Pending, Failed, UnderWay, Stopped],
            "a job that is no array is left out"
        );
        assert_eq!((tasks[0].id().as_str(), tasks[0].nodes.as_str()), ("12_0", "gpu[1-2]"));
        assert_eq!((tasks[0].reason.as_deref(), tasks[1].reason.as_deref()), (None, Some("Resources")));
    }

    #[test]
    fn only_numbers_are_given_to_a_command() {
        for odd in ["", "12_", "--help", "1 2", "1_2_3", "12;reboot", "99999999999999999999999"] {
            assert_eq!(is_under_way(odd), None, "{odd}");
        }
    }

    proptest! {
        #[test]
        fn whatever_squeue_says_is_read(said in "[ -~\n]{0,120}") {
            for task in read(&said) {
                prop_assert!(task.reason.is_none_or(|reason| !reason.is_empty()));
            }
        }

        #[test]
        fn a_line_is_read_as_it_was_written(job in 1_u64..1 << 40, index in 0_u32..1 << 20, nodes in "[a-z0-9-]{1,12}") {
            let tasks = read(&format!("a.0|{job}|{index}|RUNNING|{nodes}|None"));
            prop_assert_eq!(tasks.len(), 1);
            prop_assert_eq!((tasks[0].job, tasks[0].index, &tasks[0].nodes), (job, index, &nodes));
        }
    }
}
