//! Records the demo: a shell in a pseudo terminal, in which commands are typed and the workbench is used, as a file that
//! `asciinema play` and web players show (asciicast version 2). Everything in it is computed while it is recorded.
//!
//! `cargo build --release && cargo run --release --example demo [-- FILE.cast]`
//!
//! `demo -- FILE.cast record` goes from `pip install` to the verdict on a recorded program instead. It installs the wheel in
//! `PIP_FIND_LINKS` (`.ci/release` makes one), and the software CUDA device, which the tests in `tests/cuda` have built,
//! stands in for two GPUs.

#[path = "../tests/it/pty.rs"]
mod pty;

use std::error::Error;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use pty::Workbench;

/// The window: columns and rows.
const WINDOW: (u16, u16) = (120, 36);
/// Between two letters that are typed.
const LETTER: Duration = Duration::from_millis(45);
/// How often it is looked what the terminal shows.
const LOOK: Duration = Duration::from_millis(20);
/// Nothing happens for so long at most: who looks at it does not wait for a slow machine.
const IDLE: Duration = Duration::from_millis(1500);

/// What is done in the demo.
enum Act {
    /// A command is typed and runs until the prompt is back.
    Command(&'static str),
    /// A program is started that stays until a text is seen.
    Start(&'static str, &'static str),
    /// Keys are pressed, and a text is seen then.
    Keys(&'static [&'static str], &'static str),
}

use Act::{Command, Keys, Start};

const ACTS: &[Act] = &[
    Command("ladderscope sweep paper-70b --dir paper | head -n 12"),
    Command("ladderscope compare --dir paper --by architecture --filter 'tp:8 batch:16 p2p:off'"),
    Start("ladderscope --dir paper", "collective"),
    Keys(&["3", "/", "arch:ladder tp:8 p2p:off", "\r"], "runs"),
    // its last run: every lane, and the critical path
    Keys(&["G", "\r", "]", "]", "+", "+", "+", "+", "+", "p"], "critical"),
    Keys(&["5", "\x1b"], "tokens/s/GPU"),
    Keys(&["6"], "fastest"),
    Keys(&["7", "j", "j", "j", "l", "l", "l"], "break-even"),
    Keys(&["q"], "$ "),
];

/// From `pip install` to the verdict.
const RECORD: &[Act] = &[
    Command("python3 -m venv env && . env/bin/activate"),
    Command("pip install ladderscope"),
    Command(
        "# no GPU here: the software CUDA device of tests/cuda stands in for two, with times of its own",
    ),
    Command(
        "run='ladderscope run --backend cuda --model tiny --dtype f32 --tp 2 --prompt-tokens 16 --output-tokens 8 --samples 1'",
    ),
    Command("ladderscope record --name mine -- sh -c \"$run --recorder off >run.txt\" | head -n 18"),
    Command("ladderscope overlap runs/recordings/mine/trace.parquet --by collective | head -n 8"),
    Start("ladderscope timeline runs/recordings/mine/trace.parquet", "verdict"),
    Keys(&["E"], "nccl"),
    Keys(&["\x1b", "q"], "$ "),
];

/// The software CUDA device as the tests last built it: variables under which the program finds it.
fn software_device(target: &Path) -> Result<Vec<(&'static str, String)>, Box<dyn Error>> {
    let built =
        |path: &Path| std::fs::metadata(path.join("complete")).and_then(|found| found.modified());
    let folders = std::fs::read_dir(target.join("tmp/cuda"))?.flatten().map(|entry| entry.path());
    let device = folders.filter_map(|path| Some((built(&path).ok()?, path))).max();
    let device = device.ok_or("run `cargo test --workspace --test cuda recording` first")?.1;
    let file = |name: &str| device.join(name).display().to_string();
    let shim = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cuda/device/shim.h");
    Ok(vec![
        ("LD_LIBRARY_PATH", file("driver")),
        ("LADDERSCOPE_NVRTC", file("lib/libnvrtc.so.13")),
        ("LADDERSCOPE_CUBLASLT", file("lib/libcublasLt.so.13")),
        ("LADDERSCOPE_NCCL", file("lib/libnccl.so.2")),
        ("LADDERSCOPE_CUPTI", file("lib/libcupti.so.13")),
        ("LD_PRELOAD", file("lib/libclock.so")),
        ("FAKE_NVRTC_SHIM", shim.display().to_string()),
        ("FAKE_NVRTC_CACHE", file("kernels")),
        ("FAKE_CUDA_DEVICES", "2".into()),
        ("FAKE_CUPTI_RECORDS", "1".into()),
        ("LADDERSCOPE_CHECK", "0".into()),
        ("LADDERSCOPE_PRODUCTS", "library".into()),
    ])
}

fn main() -> Result<(), Box<dyn Error>> {
    let into =
        std::env::args().nth(1).map_or_else(|| PathBuf::from("examples/demo.cast"), PathBuf::from);
    // target/release/examples/demo
    let own = std::env::current_exe()?;
    let folder = own.ancestors().nth(2).filter(|dir| dir.join("ladderscope").exists());
    let folder = folder.ok_or("build the program first: cargo build --release")?;
    let place = tempfile::tempdir()?;
    let path = format!("{}:{}", folder.display(), std::env::var("PATH").unwrap_or_default());
    let is_record = std::env::args().nth(2).is_some_and(|which| which == "record");
    let (acts, mut variables) = (if is_record { RECORD } else { ACTS }, Vec::new());
    if is_record {
        variables = software_device(folder.parent().ok_or("no target folder")?)?;
        let wheels = std::env::var("PIP_FIND_LINKS")?;
        std::fs::create_dir(place.path().join("packages"))?;
        for wheel in std::fs::read_dir(wheels)?.flatten().map(|entry| entry.path()) {
            if wheel.extension().is_some_and(|extension| extension == "whl") {
                let name = wheel.file_name().ok_or("a wheel has a name")?;
                std::fs::copy(&wheel, place.path().join("packages").join(name))?;
            }
        }
        variables.extend([("PIP_FIND_LINKS", "packages".into()), ("PIP_NO_INDEX", "1".into())]);
        variables.push(("PIP_DISABLE_PIP_VERSION_CHECK", "1".into()));
        variables.push(("VIRTUAL_ENV_DISABLE_PROMPT", "1".into()));
    } else {
        variables.push(("PATH", path));
    }
    variables.extend([("PS1", "$ ".into()), ("LC_ALL", "C.UTF-8".into())]);
    let environment: Vec<(&str, &str)> =
        variables.iter().map(|(name, value)| (*name, value.as_str())).collect();
    let shell = Workbench::open_with(Path::new("/bin/sh"), place.path(), &["-i"], &environment, WINDOW);
    let mut recorder = Recorder::new(shell);
    recorder.wait_for("$ ");
    for act in acts {
        match act {
            Command(command) => {
                recorder.type_line(command);
                // the prompt of the next line
                recorder.wait_until(|screen| screen.trim_end().ends_with("\n$"));
                recorder.rest(3 * IDLE);
            }
            Start(command, shows) => {
                recorder.type_line(command);
                recorder.wait_for(shows);
                recorder.rest(2 * IDLE);
            }
            Keys(keys, shows) => {
                for key in *keys {
                    for letter in letters(key) {
                        recorder.terminal.press(letter);
                        recorder.rest(6 * LETTER);
                    }
                }
                recorder.wait_for(shows);
                recorder.rest(2 * IDLE);
            }
        }
    }
    recorder.terminal.press("exit\r");
    let (events, terminal) = (recorder.events, recorder.terminal);
    terminal.ended();
    write(&into, &events)?;
    println!("{}: {} events, {:.0} s", into.display(), events.len(), events.last().map_or(0.0, |e| e.0));
    Ok(())
}

/// Keys one by one; an escape sequence is one of them.
fn letters(keys: &str) -> Vec<&str> {
    if keys.starts_with('\x1b') {
        return vec![keys];
    }
    keys.split_inclusive(|_: char| true).collect()
}

/// What the terminal wrote, and when.
struct Recorder {
    terminal: Workbench,
    /// Bytes that were recorded.
    read: usize,
    /// Bytes of a character whose end has not come yet.
    begun: Vec<u8>,
    /// Seconds since the beginning, without what was waited for, and what was written then.
    events: Vec<(f64, String)>,
    /// The time of the last event in the recording, and outside.
    last: (f64, Instant),
}

impl Recorder {
    fn new(terminal: Workbench) -> Self {
        Self { terminal, read: 0, begun: Vec::new(), events: Vec::new(), last: (0.0, Instant::now()) }
    }

    /// Records what has come.
    fn look(&mut self) {
        let new = self.terminal.written_since(self.read);
        if new.is_empty() {
            return;
        }
        self.read += new.len();
        self.begun.extend(new);
        // two programs that write at once can cut each other's characters: only one at the end may still come whole
        let whole = match std::str::from_utf8(&self.begun) {
            Err(e) if e.error_len().is_none() => e.valid_up_to(),
            _ => self.begun.len(),
        };
        let rest = self.begun.split_off(whole);
        let text = String::from_utf8_lossy(&std::mem::replace(&mut self.begun, rest)).into_owned();
        let passed = self.last.1.elapsed().min(IDLE).as_secs_f64();
        self.last = (self.last.0 + passed, Instant::now());
        self.events.push((self.last.0, text));
    }

    /// Lets it be looked at.
    fn rest(&mut self, time: Duration) {
        let began = Instant::now();
        while began.elapsed() < time {
            self.look();
            std::thread::sleep(LOOK);
        }
    }

    fn type_line(&mut self, text: &str) {
        for letter in letters(text) {
            self.terminal.press(letter);
            self.rest(LETTER);
        }
        self.rest(10 * LETTER);
        self.terminal.press("\r");
        self.rest(4 * LETTER);
    }

    fn wait_for(&mut self, text: &str) {
        self.wait_until(|screen| screen.contains(text));
    }

    fn wait_until(&mut self, seen: impl Fn(&str) -> bool) {
        let began = Instant::now();
        while !seen(&self.terminal.contents()) {
            assert!(began.elapsed() < pty::PATIENCE, "waited in vain:\n{}", self.terminal.contents());
            self.look();
            std::thread::sleep(LOOK);
        }
        self.look();
    }
}

/// Writes the recording: a line of JSON that describes it, and one for each event.
fn write(path: &Path, events: &[(f64, String)]) -> Result<(), Box<dyn Error>> {
    let mut text = Vec::new();
    let header = serde_json::json!({
        "version": 2, "width": WINDOW.0, "height": WINDOW.1, "title": "Ladderscope",
        "env": { "TERM": "xterm-256color", "SHELL": "/bin/sh" },
    });
    writeln!(text, "{header}")?;
    for (time, written) in events {
        let time = (time * 1e3).round() / 1e3;
        writeln!(text, "{}", serde_json::json!([time, "o", written]))?;
    }
    std::fs::write(path, text)?;
    Ok(())
}
