//! Runs the binary in a directory of its own.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use serde_json::Value;

/// Nothing here takes nearly so long; a test that hangs fails instead.
pub const PATIENCE: Duration = Duration::from_secs(120);

/// What a command left.
#[derive(Debug)]
pub struct Done {
    pub code: i32,
    pub stdout: String,
    pub stderr: String,
}

impl Done {
    /// Standard output as one JSON value.
    #[track_caller]
    pub fn json(&self) -> Value {
        serde_json::from_str(&self.stdout).unwrap_or_else(|e| panic!("{e}: {self:?}"))
    }

    /// Standard output as a JSON value a line.
    #[track_caller]
    pub fn json_lines(&self) -> Vec<Value> {
        self.stdout
            .lines()
            .map(|line| serde_json::from_str(line).unwrap_or_else(|e| panic!("{e}: {line}\n{self:?}")))
            .collect()
    }

    /// The exit status is `code`.
    #[track_caller]
    pub fn exits(self, code: i32) -> Self {
        assert_eq!(self.code, code, "{self:?}");
        self
    }
}

/// A directory to work in, with `runs/` in it once something is stored.
pub struct Place {
    dir: tempfile::TempDir,
}

impl Place {
    pub fn new() -> Self {
        Self { dir: tempfile::tempdir().expect("a temporary directory") }
    }

    pub fn path(&self) -> &Path {
        self.dir.path()
    }

    /// Writes a file.
    pub fn write(&self, name: &str, text: &str) -> PathBuf {
        let path = self.path().join(name);
        if let Some(parent) = path.parent() {
            std::fs::create_dir_all(parent).expect("a directory");
        }
        std::fs::write(&path, text).expect("a file");
        path
    }

    /// Runs `ladderscope` with these arguments, without a terminal.
    pub fn run(&self, arguments: &[&str]) -> Done {
        finish(self.command(arguments))
    }

    /// Starts `ladderscope` and lets it run. It heeds signals also where the tests run under `nohup`, whose
    /// children are born deaf to SIGHUP.
    pub fn start(&self, arguments: &[&str]) -> Started {
        let mut command = self.prepared(Command::new("env"));
        command.args(["--default-signal", crate::BINARY]).args(arguments);
        Started::from_command(command)
    }

    /// `ladderscope` with these arguments, in this directory, to be run.
    pub fn command(&self, arguments: &[&str]) -> Command {
        let mut command = self.prepared(Command::new(crate::BINARY));
        command.args(arguments);
        command
    }

    /// A command in this directory, without the variables that change what is printed.
    fn prepared(&self, mut command: Command) -> Command {
        command.current_dir(self.path());
        for variable in
            ["NO_COLOR", "COLUMNS", "RUST_BACKTRACE", "NVTX_INJECTION64_PATH", "LADDERSCOPE_NCCL"]
        {
            command.env_remove(variable);
        }
        command
    }
}

/// Runs a command to its end, without a terminal.
pub fn finish(command: Command) -> Done {
    finish_within(PATIENCE, command)
}

/// As [`finish`], for a command that may take longer or must not take so long.
pub fn finish_within(patience: Duration, command: Command) -> Done {
    let output =
        assert_cmd::Command::from_std(command).timeout(patience).output().expect("the binary runs");
    Done {
        code: output.status.code().unwrap_or(-1),
        stdout: String::from_utf8(output.stdout).expect("UTF-8 on standard output"),
        stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
    }
}

/// A command that still runs; killed when the test is over.
pub struct Started {
    child: Child,
    /// What it writes, read all along: a full pipe would stop it.
    stdout: JoinHandle<String>,
    stderr: JoinHandle<String>,
}

/// Stands for a handle that is taken.
fn nothing() -> JoinHandle<String> {
    std::thread::spawn(String::new)
}

fn read(from: Option<Box<dyn std::io::Read + Send>>) -> JoinHandle<String> {
    std::thread::spawn(move || {
        let lines =
            from.map(|from| BufReader::new(from).lines().map_while(Result::ok).collect::<Vec<_>>());
        lines.unwrap_or_default().iter().map(|line| format!("{line}\n")).collect::<String>()
    })
}

impl Started {
    /// Starts a command.
    pub fn from_command(mut command: Command) -> Self {
        let mut child = command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("the binary starts");
        let stdout = read(child.stdout.take().map(|pipe| Box::new(pipe) as _));
        let stderr = read(child.stderr.take().map(|pipe| Box::new(pipe) as _));
        Self { child, stdout, stderr }
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Sends a signal to it.
    pub fn signal(&self, signal: rustix::process::Signal) {
        send(self.pid(), signal);
    }

    /// Waits for its end.
    pub fn wait(mut self) -> Done {
        let status: ExitStatus =
            wait_for("the command to end", || self.child.try_wait().expect("a child of this process"));
        Done {
            code: status.code().unwrap_or(-1),
            stdout: std::mem::replace(&mut self.stdout, nothing()).join().unwrap_or_default(),
            stderr: std::mem::replace(&mut self.stderr, nothing()).join().unwrap_or_default(),
        }
    }

    /// Process ids of its children: the runs.
    pub fn children(&self) -> Vec<u32> {
        let parent = self.pid().to_string();
        let processes = std::fs::read_dir("/proc").expect("/proc").flatten();
        processes
            .filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok())
            .filter(|pid| {
                let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
                // `pid (name) state ppid ...`; a name may hold blanks and parentheses.
                let after = stat.rsplit_once(") ").map(|(_, after)| after).unwrap_or_default();
                let mut fields = after.split_whitespace();
                fields.next() != Some("Z") && fields.next() == Some(&parent)
            })
            .collect()
    }
}

impl Drop for Started {
    fn drop(&mut self) {
        // It may have ended; there is nobody to tell.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Sends a signal to a process.
pub fn send(pid: u32, signal: rustix::process::Signal) {
    let pid = rustix::process::Pid::from_raw(pid as i32).expect("a process id");
    rustix::process::kill_process(pid, signal).expect("the process is there");
}

/// Whether a process is there and not merely unburied.
pub fn is_alive(pid: u32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit_once(") ").is_some_and(|(_, after)| !after.starts_with('Z'))
}

/// Asks until there is an answer.
#[track_caller]
pub fn wait_for<T>(what: &str, mut ask: impl FnMut() -> Option<T>) -> T {
    let start = Instant::now();
    loop {
        if let Some(answer) = ask() {
            return answer;
        }
        assert!(start.elapsed() < PATIENCE, "waited in vain for {what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// A number of a record.
#[track_caller]
pub fn number(value: &serde_json::Value) -> f64 {
    value.as_f64().unwrap_or_else(|| panic!("not a number: {value}"))
}
