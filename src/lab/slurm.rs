//! Slurm through its own commands: `sbatch` submits, `squeue` lists tasks and their state, `sinfo` describes nodes,
//! `scancel` cancels. Each runs as a child process with a timeout, and failures become messages. Independent of cells and
//! runs.

use std::collections::HashMap;
use std::io::Read;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Mutex;
use std::time::{Duration, Instant};

use base::error::{Error, Result};
use base::text::{printable, shell_command};

/// Timeout for commands that need the controller.
const CONTROLLER_TIMEOUT: Duration = Duration::from_secs(60);
const EXIT_POLL_INTERVAL: Duration = Duration::from_millis(10);

#[derive(Clone, Debug)]
pub struct Job<'a> {
    /// Job name, by which `squeue` finds it.
    pub name: String,
    pub script: &'a Path,
    /// Directory for the output of the tasks, one `ARRAY_TASK.log` each.
    pub logs: &'a Path,
    pub tasks: usize,
    /// Resources per task, as options of `sbatch`.
    pub needs: Vec<String>,
    /// User options. They come last and thus override the others.
    pub options: &'a [String],
}

/// Submits a job array and returns its number.
///
/// # Errors
///
/// Returns a failure with the message of `sbatch`, e.g. for an unknown partition or too many nodes.
pub fn submit(job: &Job<'_>) -> Result<u64> {
    let mut command = Command::new("sbatch");
    // options that users may not pass must not come from the environment either
    for name in ["SBATCH_WAIT", "SBATCH_ERROR", "SBATCH_INPUT", "SBATCH_OPEN_MODE", "SBATCH_EXPORT_FILE"]
    {
        command.env_remove(name);
    }
    command
        .arg("--parsable")
        .arg(format!("--job-name={}", job.name))
        .arg(format!("--array=0-{}", job.tasks.saturating_sub(1)))
        // an interrupted measurement must not be repeated without the user's knowledge
        .arg("--no-requeue")
        .arg(format!("--output={}", log_pattern(job.logs)?))
        .args(&job.needs)
        .args(job.options)
        .arg(job.script);
    let said = answer(&mut command, CONTROLLER_TIMEOUT)?;
    // `--parsable` prints the number, then the cluster's name if there are several
    said.trim().split(';').next().and_then(|number| number.parse().ok()).ok_or_else(|| {
        Error::failed(format!("sbatch printed '{}' instead of a job number", printable(said.trim())))
    })
}

/// Pattern of the output files for `sbatch`, which replaces `%x` by the job name and `%a` by the task's number.
/// Returns an input error if the directory contains a backslash, since `sbatch` then replaces nothing.
fn log_pattern(logs: &Path) -> Result<String> {
    let dir = logs.display().to_string();
    if dir.contains('\\') {
        return Err(Error::input_help(
            format!("{dir}: sbatch writes no output to a directory with a backslash in its name"),
            "name another runs directory: --dir DIR",
        ));
    }
    Ok(format!("{}/%x-%a.log", dir.replace('%', "%%")))
}

/// Cancels this user's jobs with these names. Fails with the message of `scancel`.
pub fn cancel(names: &[String]) -> Result<()> {
    if names.is_empty() {
        return Ok(());
    }
    let user = rustix::process::getuid().as_raw().to_string();
    for name in names {
        answer(Command::new("scancel").args(["--user", &user, "--name", name]), CONTROLLER_TIMEOUT)?;
    }
    Ok(())
}

/// Runs a command and returns its standard output. Fails on a nonzero status or after `patience`.
fn answer(command: &mut Command, patience: Duration) -> Result<String> {
    let words = || {
        let words = std::iter::once(command.get_program()).chain(command.get_args());
        shell_command(words.map(|word| word.to_string_lossy()))
    };
    let shown = words();
    let name = command.get_program().to_string_lossy().into_owned();
    let child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
    let mut child = child.map_err(|e| match e.kind() {
        std::io::ErrorKind::NotFound => Error::input_help(
            format!("{name} is not installed here"),
            "--slurm is for hosts of a Slurm cluster, from which jobs are submitted (its login nodes)",
        ),
        _ => Error::failed(format!("{name}: {e}")),
    })?;
    let (out, err) = (child.stdout.take(), child.stderr.take());
    let reader = |pipe: Option<Box<dyn Read + Send>>| {
        std::thread::spawn(move || {
            let mut text = Vec::new();
            pipe.map(|mut pipe| pipe.read_to_end(&mut text));
            String::from_utf8_lossy(&text).into_owned()
        })
    };
    let out = reader(out.map(|pipe| Box::new(pipe) as _));
    let err = reader(err.map(|pipe| Box::new(pipe) as _));
    let Some(status) = ended(&mut child, patience) else {
        let _ = child.kill();
        let _ = child.wait();
        return Err(Error::failed(format!("{shown}: no answer within {} s", patience.as_secs())));
    };
    let (out, err) = (out.join().unwrap_or_default(), err.join().unwrap_or_default());
    if status.success() {
        return Ok(out);
    }
    let said = match err.trim() {
        "" => format!("it ended with {status}"),
        said => said.lines().collect::<Vec<_>>().join("; "),
    };
    Err(Error::failed(format!("{shown}: {}", printable(&said))))
}

fn ended(child: &mut Child, patience: Duration) -> Option<std::process::ExitStatus> {
    let began = Instant::now();
    while began.elapsed() < patience {
        if let Ok(Some(status)) = child.try_wait() {
            return Some(status);
        }
        std::thread::sleep(EXIT_POLL_INTERVAL);
    }
    None
}

/// Largest GPU and CPU counts of any node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Nodes {
    /// Most GPUs on one node; 0 if Slurm knows of none.
    pub gpus: u32,
    /// Most CPUs on one node, as Slurm counts them.
    pub cpus: u32,
}

/// Returns the node sizes of a partition, or of all partitions without a name. Fails with the message of `sinfo`.
pub fn nodes(partition: Option<&str>) -> Result<Nodes> {
    let mut command = Command::new("sinfo");
    command.args(["--noheader", "--format=%c|%G"]);
    command.args(partition.map(|name| format!("--partition={name}")));
    Ok(read_nodes(&answer(&mut command, CONTROLLER_TIMEOUT)?))
}

fn read_nodes(said: &str) -> Nodes {
    let mut nodes = Nodes { gpus: 0, cpus: 1 };
    for line in said.lines() {
        let (cpus, resources) = line.split_once('|').unwrap_or((line, ""));
        // `64+` means nodes of several sizes
        let cpus = cpus.trim().trim_end_matches('+').parse().unwrap_or(1);
        nodes = Nodes { gpus: nodes.gpus.max(gpus(resources)), cpus: nodes.cpus.max(cpus) };
    }
    nodes
}

/// Counts the GPUs in a list of generic resources: `gpu:h100:8(S:0-1),gpu:2,nic:1` has ten.
fn gpus(resources: &str) -> u32 {
    let mut text = String::new();
    let mut depth = 0_u32;
    for c in resources.chars() {
        match c {
            '(' => depth += 1,
            ')' => depth = depth.saturating_sub(1),
            c if depth == 0 => text.push(c),
            _ => {}
        }
    }
    let of_gpus = text.split(',').map(str::trim).filter(|one| *one == "gpu" || one.starts_with("gpu:"));
    let counts = of_gpus.map(|one| one.rsplit(':').next().and_then(|n| n.parse().ok()).unwrap_or(1));
    counts.fold(0, u32::saturating_add)
}

/// Timeouts while following tasks (a loaded controller is slow) and while listing runs.
const FOLLOW_TIMEOUT: Duration = Duration::from_secs(30);
const LIST_TIMEOUT: Duration = Duration::from_secs(3);
/// Time for which an answer about a job is cached.
const ANSWER_LIFETIME: Duration = Duration::from_secs(10);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    Pending,
    /// Allocated: its processes start, run or end.
    UnderWay,
    Completed,
    /// Cancelled, timed out or preempted.
    Stopped,
    /// Failed process, memory or node.
    Failed,
}

impl State {
    pub fn is_over(self) -> bool {
        matches!(self, Self::Completed | Self::Stopped | Self::Failed)
    }

    /// Maps Slurm's word to a state. Unknown words count as under way.
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

/// Task of a job array, as listed by `squeue`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Task {
    pub name: String,
    /// Number of the whole array, for `scancel`.
    pub job: u64,
    pub index: u32,
    pub state: State,
    /// Slurm's own word for the state, e.g. `NODE_FAIL`.
    pub word: String,
    /// Allocated nodes, as abbreviated by Slurm; empty before allocation.
    pub nodes: String,
    /// Slurm's reason for waiting or ending, e.g. `Resources` or `Priority`; `None` also for Slurm's word "None".
    pub reason: Option<String>,
}

impl Task {
    /// Id for `squeue`, `scancel` and `scontrol`: `1234_5`.
    pub fn id(&self) -> String {
        format!("{}_{}", self.job, self.index)
    }
}

/// Lists the tasks of jobs with these names, including those that ended a few minutes ago (the controller's
/// `MinJobAge`). Fails with the message of `squeue`, for example while the controller is away.
pub fn queue(names: &[String]) -> Result<Vec<Task>> {
    if names.is_empty() {
        return Ok(Vec::new());
    }
    let mut command = Command::new("squeue");
    command.args(["--noheader", "--array", "--states=all", "--format=%j|%F|%K|%T|%N|%r"]);
    command.arg(format!("--name={}", names.join(",")));
    Ok(read_tasks(&answer(&mut command, FOLLOW_TIMEOUT)?))
}

fn read_tasks(said: &str) -> Vec<Task> {
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

/// Slurm task (`1234_5`) or job of this process; `None` outside Slurm.
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

/// Cached answers by task or job, each with the time of the query.
type Known = HashMap<String, (Instant, Option<bool>)>;

/// True if a task (`1234_5`) or job is still under way; `None` if Slurm gives no answer within a few seconds. Answers
/// are cached for some seconds because a listing asks for every run.
pub(crate) fn is_under_way(id: &str) -> Option<bool> {
    static KNOWN: Mutex<Option<Known>> = Mutex::new(None);
    // ids come from files: check them before they reach a command line
    if !id.split('_').all(is_number) || id.split('_').count() > 2 {
        return None;
    }
    // locked during the query, so that threads that list at once share one query
    let mut known = KNOWN.lock().ok()?;
    let known = known.get_or_insert_default();
    if let Some((_, answer)) = known.get(id).filter(|(asked, _)| asked.elapsed() < ANSWER_LIFETIME) {
        return *answer;
    }
    let answer = query(id);
    known.insert(id.to_owned(), (Instant::now(), answer));
    answer
}

fn query(id: &str) -> Option<bool> {
    let mut command = Command::new("squeue");
    command.args(["--noheader", "--array", "--states=all", "--format=%T", "--jobs", id]);
    match answer(&mut command, LIST_TIMEOUT) {
        Ok(said) => Some(said.lines().any(|word| State::of(word.trim()) == State::UnderWay)),
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
    fn names_of_directories_are_no_patterns() {
        let pattern = |dir: &str| log_pattern(Path::new(dir));
        assert_eq!(pattern("/runs/.slurm/x").unwrap(), "/runs/.slurm/x/%x-%a.log");
        assert_eq!(pattern("/100%/%u%%j").unwrap(), "/100%%/%%u%%%%j/%x-%a.log");
        assert_eq!(pattern("/a\\b").unwrap_err().exit_code(), 2);
    }

    #[test]
    fn a_command_that_fails_hangs_or_is_not_there_is_told_in_words() {
        let of =
            |script: &str| answer(Command::new("sh").args(["-c", script]), Duration::from_millis(300));
        assert_eq!(of("echo 12; echo note >&2").unwrap(), "12\n");
        let refused =
            of("echo 'invalid partition' >&2; echo 'really' >&2; exit 1").unwrap_err().to_string();
        assert!(refused.ends_with("invalid partition; really"), "{refused}");
        assert!(of("exit 3").unwrap_err().to_string().contains("exit status: 3"));
        assert!(of("sleep 5").unwrap_err().to_string().ends_with("no answer within 0 s"));
        let none = answer(&mut Command::new("no-such-sbatch"), CONTROLLER_TIMEOUT).unwrap_err();
        assert_eq!(none.exit_code(), 2);
    }

    #[test]
    fn the_largest_node_counts() {
        let said = "64+|gpu:h100:8(S:0-1)\n32|(null)\n128|gpu:a100:4(S:0,1),gpu:1g.5gb:2,nic:1\n";
        assert_eq!(read_nodes(said), Nodes { gpus: 8, cpus: 128 });
        assert_eq!(read_nodes("2|(null)"), Nodes { gpus: 0, cpus: 2 });
        assert_eq!(gpus("gpu"), 1);
    }

    proptest! {
        #[test]
        fn whatever_sinfo_says_is_read(said in ".{0,80}") {
            let nodes = read_nodes(&said);
            prop_assert!(nodes.cpus >= 1);
        }

        #[test]
        fn counts_are_found_whatever_stands_around_them(n in 1_u32..64, cpus in 1_u32..1024, kind in "[a-z0-9.]{1,8}") {
            prop_assert_eq!(read_nodes(&format!("{cpus}+|nic:2,gpu:{kind}:{n}(S:0,1)")), Nodes { gpus: n, cpus });
        }
    }

    #[test]
    fn tasks_are_read_with_where_they_are_and_why() {
        let said = "sweep-a.0|12|0|RUNNING|gpu[1-2]|None\nsweep-a.0|12|1|PENDING||Resources\n\
                    sweep-a.1|13|0|NODE_FAIL|gpu7|NodeDown\nother|9|N/A|RUNNING|x|None\n\
                    sweep-a.1|13|1|COMPLETING|gpu7|None\nsweep-a.1|13|2|CANCELLED||None\n";
        let tasks = read_tasks(said);
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
            for task in read_tasks(&said) {
                prop_assert!(task.reason.is_none_or(|reason| !reason.is_empty()));
            }
        }

        #[test]
        fn a_line_is_read_as_it_was_written(job in 1_u64..1 << 40, index in 0_u32..1 << 20, nodes in "[a-z0-9-]{1,12}") {
            let tasks = read_tasks(&format!("a.0|{job}|{index}|RUNNING|{nodes}|None"));
            prop_assert_eq!(tasks.len(), 1);
            prop_assert_eq!((tasks[0].job, tasks[0].index, &tasks[0].nodes), (job, index, &nodes));
        }
    }
}
