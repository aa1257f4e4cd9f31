//! The workbench in a pseudo terminal: keys in, screens out. Shared by tests, the tour and benches.

// each of them uses a part of it
#![allow(dead_code)]

use std::io::{Read, Write};
use std::num::NonZeroU16;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use portable_pty::{CommandBuilder, ExitStatus, PtySize, native_pty_system};

/// Longest wait for anything to appear: generous, since machines are shared.
pub const PATIENCE: Duration = Duration::from_secs(120);

fn cells(count: u16) -> NonZeroU16 {
    NonZeroU16::new(count).expect("a window has cells")
}

/// A running workbench and its terminal.
pub struct Workbench {
    screen: Arc<Mutex<vt100::Parser>>,
    raw: Arc<Mutex<Vec<u8>>>,
    keys: Box<dyn Write + Send>,
    pub child: Box<dyn portable_pty::Child + Send + Sync>,
    master: Box<dyn portable_pty::MasterPty + Send>,
}

impl Workbench {
    /// Opens `program` in `dir`, with settings and memory below `dir/home`, in a window of so many columns
    /// and rows.
    pub fn open(program: &Path, dir: &Path, arguments: &[&str], (columns, rows): (u16, u16)) -> Self {
        Self::open_with(program, dir, arguments, &[], (columns, rows))
    }

    /// Like [`Self::open`], with more of an environment.
    pub fn open_with(
        program: &Path,
        dir: &Path,
        arguments: &[&str],
        environment: &[(&str, &str)],
        (columns, rows): (u16, u16),
    ) -> Self {
        let size = PtySize { rows, cols: columns, pixel_width: 0, pixel_height: 0 };
        let pair = native_pty_system().openpty(size).expect("a pseudo terminal opens");
        let mut command = CommandBuilder::new(program);
        command.cwd(dir);
        command.args(arguments);
        command.env("TERM", "xterm-256color");
        for (name, below) in [("HOME", ""), ("XDG_CONFIG_HOME", "config"), ("XDG_STATE_HOME", "state")] {
            command.env(name, dir.join("home").join(below));
        }
        let inherited =
            ["NO_COLOR", "SSH_CONNECTION", "SSH_TTY", "LADDERSCOPE_CONFIG", "TMUX", "TERM_PROGRAM"];
        for name in inherited.into_iter().chain(["CLICOLOR_FORCE", "CLICOLOR", "CI"]) {
            command.env_remove(name);
        }
        for (name, value) in environment {
            command.env(name, value);
        }
        let child = pair.slave.spawn_command(command).expect("the program starts");
        let screen = Arc::new(Mutex::new(vt100::Parser::new(cells(rows), cells(columns), 0)));
        let raw = Arc::new(Mutex::new(Vec::new()));
        let mut reader = pair.master.try_clone_reader().expect("the terminal can be read");
        let (to_screen, to_raw) = (Arc::clone(&screen), Arc::clone(&raw));
        std::thread::spawn(move || {
            let mut bytes = [0; 65536];
            while let Ok(count @ 1..) = reader.read(&mut bytes) {
                to_screen.lock().expect("no reader panics").process(&bytes[..count]);
                to_raw.lock().expect("no reader panics").extend_from_slice(&bytes[..count]);
            }
        });
        let keys = pair.master.take_writer().expect("the terminal can be written");
        Self { screen, raw, keys, child, master: pair.master }
    }

    /// What is on the screen.
    pub fn contents(&self) -> String {
        self.screen.lock().expect("no reader panics").screen().contents()
    }

    /// Bytes that the program has written so far.
    pub fn written(&self) -> usize {
        self.raw.lock().expect("no reader panics").len()
    }

    /// What it has written beyond so many bytes.
    pub fn written_since(&self, bytes: usize) -> Vec<u8> {
        let raw = self.raw.lock().expect("no reader panics");
        raw.get(bytes..).unwrap_or_default().to_vec()
    }

    /// Waits until a text is shown.
    pub fn wait_for(&self, text: &str) {
        self.wait(text, true);
    }

    /// Waits until a text is shown, or is not any more.
    pub fn wait(&self, text: &str, shown: bool) {
        let start = Instant::now();
        while self.contents().contains(text) != shown {
            assert!(start.elapsed() < PATIENCE, "'{text}' shown: {}\n{}", !shown, self.contents());
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// Presses keys, as a terminal sends them.
    pub fn press(&mut self, keys: &str) {
        self.keys.write_all(keys.as_bytes()).expect("the terminal takes keys");
        self.keys.flush().expect("the terminal takes keys");
    }

    /// Gives the window another size.
    pub fn resize(&mut self, (columns, rows): (u16, u16)) {
        let size = PtySize { rows, cols: columns, pixel_width: 0, pixel_height: 0 };
        self.screen.lock().expect("no reader panics").screen_mut().set_size(cells(rows), cells(columns));
        self.master.resize(size).expect("the window can be resized");
    }

    /// True if the terminal echoes and edits lines, as it does for a shell.
    pub fn is_cooked(&self) -> bool {
        let modes = self.master.get_termios().expect("a terminal has modes");
        // ICANON and ECHO of termios(3)
        modes.local_flags.bits() & 0o12 == 0o12
    }

    /// Sends a signal.
    pub fn signal(&self, signal: rustix::process::Signal) {
        let pid = self.child.process_id().and_then(|pid| rustix::process::Pid::from_raw(pid as i32));
        rustix::process::kill_process(pid.expect("it runs"), signal).expect("it can be signalled");
    }

    /// Waits for the end of a program that draws nothing: all bytes that it wrote, and its status.
    pub fn plain(mut self) -> (Vec<u8>, ExitStatus) {
        let start = Instant::now();
        let status = loop {
            if let Some(status) = self.child.try_wait().expect("its status can be asked") {
                break status;
            }
            assert!(start.elapsed() < PATIENCE, "it does not end:\n{}", self.contents());
            std::thread::sleep(Duration::from_millis(20));
        };
        // what it wrote last may still be on its way
        let mut before = usize::MAX;
        while before != self.written() {
            before = self.written();
            std::thread::sleep(Duration::from_millis(200));
        }
        (self.written_since(0), status)
    }

    /// Waits for the end; the terminal must be as it was: main screen, cursor shown. What is left on the
    /// screen then, and the status.
    pub fn ended(mut self) -> (String, ExitStatus) {
        let start = Instant::now();
        let status = loop {
            if let Some(status) = self.child.try_wait().expect("its status can be asked") {
                break status;
            }
            assert!(start.elapsed() < PATIENCE, "it does not end:\n{}", self.contents());
            std::thread::sleep(Duration::from_millis(20));
        };
        // what it wrote last may still be on its way
        let left_alternate = b"\x1b[?1049l";
        let left = |raw: &[u8]| raw.windows(left_alternate.len()).any(|w| w == left_alternate);
        while !left(&self.raw.lock().expect("no reader panics")) {
            assert!(start.elapsed() < PATIENCE, "the alternate screen was not left");
            std::thread::sleep(Duration::from_millis(20));
        }
        let screen = self.screen.lock().expect("no reader panics");
        assert!(!screen.screen().alternate_screen() && !screen.screen().hide_cursor());
        (screen.screen().contents(), status)
    }
}
