//! Tasks of job arrays and their states, from `squeue`.

use std::collections::HashMap;
use std::process::Command;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use super::command::output_of;
use base::error::Result;

/// Timeout while a sweep follows its tasks: a loaded controller is slow.
const FOLLOW_TIMEOUT: Duration = Duration::from_secs(30);
/// Timeout while runs are listed, which must not hang.
const LIST_TIMEOUT: Duration = Duration::from_secs(3);
/// Time for which an answer about a job is cached.
const ANSWER_LIFETIME: Duration = Duration::from_secs(10);

/// State of a task, reduced to what a sweep distinguishes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TaskState {
    Pending,
    /// Allocated: its processes start, run or end.
    UnderWay,
    Completed,
    /// Cancelled, timed out or preempted.
    Stopped,
    /// Failed process, memory or node.
    Failed,
}

impl TaskState {
    pub fn is_over(self) -> bool {
        matches!(self, Self::Completed | Self::Stopped | Self::Failed)
    }

    /// Maps Slurm's word to a state. Unknown words count as under way.
    fn from_slurm(word: &str) -> Self {
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

/// Task of a job array, as listed by `squeue`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SlurmTask {
    pub name: String,
    /// Number of the whole array, for `scancel`.
    pub job: u64,
    pub index: u32,
    pub state: TaskState,
    /// Slurm's own word for the state, e.g. `NODE_FAIL`.
    pub word: String,
    /// Allocated nodes, as abbreviated by Slurm; empty before allocation.
    pub nodes: String,
    /// Slurm's reason for waiting or ending, e.g. `Resources` or `Priority`; `None` also for Slurm's word "None".
    pub reason: Option<String>,
}

impl SlurmTask {
    /// Id for `squeue`, `scancel` and `scontrol`: `1234_5`.
    pub fn id(&self) -> String {
        format!("{}_{}", self.job, self.index)
    }
}

/// Lists the tasks of jobs with these names, including those that ended a few minutes ago (the controller's
/// `MinJobAge`). Fails with the message of `squeue`, for example while the controller is away.
pub fn queue(names: &[String]) -> Result<Vec<SlurmTask>> {
    if names.is_empty() {
        return Ok(Vec::new());
    }
    let mut command = Command::new("squeue");
    command.args(["--noheader", "--array", "--states=all", "--format=%j|%F|%K|%T|%N|%r"]);
    command.arg(format!("--name={}", names.join(",")));
    Ok(parse_tasks(&output_of(&mut command, FOLLOW_TIMEOUT)?))
}

fn parse_tasks(output: &str) -> Vec<SlurmTask> {
    output.lines().filter_map(parse_task).collect()
}

fn parse_task(line: &str) -> Option<SlurmTask> {
    let fields: Vec<&str> = line.splitn(6, '|').map(str::trim).collect();
    let [name, job, index, word, nodes, reason] = fields[..] else { return None };
    let is_known = |text: &str| !text.is_empty() && !matches!(text, "None" | "(null)" | "N/A");
    Some(SlurmTask {
        name: name.to_owned(),
        job: job.parse().ok()?,
        index: index.parse().ok()?,
        state: TaskState::from_slurm(word),
        word: word.to_owned(),
        nodes: if is_known(nodes) { nodes.to_owned() } else { String::new() },
        reason: is_known(reason).then(|| reason.to_owned()),
    })
}

/// Slurm task (`1234_5`) or job of this process; `None` outside Slurm.
pub(crate) fn current_task() -> Option<String> {
    let variable = |name: &str| std::env::var(name).ok().filter(|value| is_number(value));
    match (variable("SLURM_ARRAY_JOB_ID"), variable("SLURM_ARRAY_TASK_ID")) {
        (Some(job), Some(index)) => Some(format!("{job}_{index}")),
        _ => variable("SLURM_JOB_ID"),
    }
}

fn is_number(text: &str) -> bool {
    !text.is_empty() && text.len() < 20 && text.bytes().all(|b| b.is_ascii_digit())
}

/// Cached answers by task or job, each with the time of the query.
type CachedAnswers = HashMap<String, (Instant, Option<bool>)>;

/// True if a task (`1234_5`) or job is still under way; `None` if Slurm gives no answer within a few seconds. Answers
/// are cached for some seconds because a listing asks for every run.
pub(crate) fn is_under_way(id: &str) -> Option<bool> {
    static ANSWERS: Mutex<Option<CachedAnswers>> = Mutex::new(None);
    // ids come from files: check them before they reach a command line
    if !id.split('_').all(is_number) || id.split('_').count() > 2 {
        return None;
    }
    // locked during the query, so that threads that list at once share one query
    let mut answers = ANSWERS.lock().ok()?;
    let answers = answers.get_or_insert_default();
    if let Some((_, answer)) = answers.get(id).filter(|(asked, _)| asked.elapsed() < ANSWER_LIFETIME) {
        return *answer;
    }
    let answer = query_under_way(id);
    answers.insert(id.to_owned(), (Instant::now(), answer));
    answer
}

fn query_under_way(id: &str) -> Option<bool> {
    let mut command = Command::new("squeue");
    command.args(["--noheader", "--array", "--states=all", "--format=%T", "--jobs", id]);
    match output_of(&mut command, LIST_TIMEOUT) {
        Ok(output) => {
            Some(output.lines().any(|word| TaskState::from_slurm(word.trim()) == TaskState::UnderWay))
        }
        // Slurm forgets jobs some minutes after their end
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
        let tasks = parse_tasks(said);
        let states: Vec<TaskState> = tasks.iter().map(|task| task.state).collect();
        use TaskState::{Failed, Pending, Stopped, UnderWay};
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
            for task in parse_tasks(&said) {
                prop_assert!(task.reason.is_none_or(|reason| !reason.is_empty()));
            }
        }

        #[test]
        fn a_line_is_read_as_it_was_written(job in 1_u64..1 << 40, index in 0_u32..1 << 20, nodes in "[a-z0-9-]{1,12}") {
            let tasks = parse_tasks(&format!("a.0|{job}|{index}|RUNNING|{nodes}|None"));
            prop_assert_eq!(tasks.len(), 1);
            prop_assert_eq!((tasks[0].job, tasks[0].index, &tasks[0].nodes), (job, index, &nodes));
        }
    }
}
