//! The workbench in a real (pseudo) terminal: what a user sees, keys, exit status, restoration.

use std::io::{Read, Write};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use portable_pty::{CommandBuilder, ExitStatus, PtySize, native_pty_system};

/// Longest wait for anything to appear: generous, since machines are shared.
const PATIENCE: Duration = Duration::from_secs(60);

fn cells(count: u16) -> std::num::NonZeroU16 {
    std::num::NonZeroU16::new(count).unwrap()
}

struct Workbench {
    screen: Arc<Mutex<vt100::Parser>>,
    raw: Arc<Mutex<Vec<u8>>>,
    keys: Box<dyn Write + Send>,
    child: Box<dyn portable_pty::Child + Send + Sync>,
    master: Box<dyn portable_pty::MasterPty + Send>,
    _dir: tempfile::TempDir,
}

impl Workbench {
    fn open(columns: u16, rows: u16) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let size = PtySize { rows, cols: columns, pixel_width: 0, pixel_height: 0 };
        let pair = native_pty_system().openpty(size).unwrap();
        let mut command = CommandBuilder::new(env!("CARGO_BIN_EXE_ladderscope"));
        command.cwd(dir.path());
        command.env("TERM", "xterm-256color");
        command.env_remove("NO_COLOR");
        let child = pair.slave.spawn_command(command).unwrap();
        let screen = Arc::new(Mutex::new(vt100::Parser::new(cells(rows), cells(columns), 0)));
        let raw = Arc::new(Mutex::new(Vec::new()));
        let mut reader = pair.master.try_clone_reader().unwrap();
        let (to_screen, to_raw) = (Arc::clone(&screen), Arc::clone(&raw));
        std::thread::spawn(move || {
            let mut bytes = [0; 4096];
            while let Ok(count @ 1..) = reader.read(&mut bytes) {
                to_screen.lock().unwrap().process(&bytes[..count]);
                to_raw.lock().unwrap().extend_from_slice(&bytes[..count]);
            }
        });
        let keys = pair.master.take_writer().unwrap();
        Self { screen, raw, keys, child, master: pair.master, _dir: dir }
    }

    fn contents(&self) -> String {
        self.screen.lock().unwrap().screen().contents()
    }

    fn wait_for(&self, text: &str) {
        self.wait(text, true);
    }

    fn wait(&self, text: &str, shown: bool) {
        let start = Instant::now();
        while self.contents().contains(text) != shown {
            assert!(start.elapsed() < PATIENCE, "'{text}' shown: {}\n{}", !shown, self.contents());
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    fn press(&mut self, keys: &str) {
        self.keys.write_all(keys.as_bytes()).unwrap();
        self.keys.flush().unwrap();
    }

    /// Waits for the end; the terminal must be as it was: main screen, cursor shown.
    fn ended(mut self) -> ExitStatus {
        let start = Instant::now();
        let status = loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                break status;
            }
            assert!(start.elapsed() < PATIENCE, "it does not end:\n{}", self.contents());
            std::thread::sleep(Duration::from_millis(20));
        };
        // what it wrote last may still be on its way
        let left_alternate = b"\x1b[?1049l";
        while !self.raw.lock().unwrap().windows(left_alternate.len()).any(|w| w == left_alternate) {
            assert!(start.elapsed() < PATIENCE, "the alternate screen was not left");
            std::thread::sleep(Duration::from_millis(20));
        }
        let screen = self.screen.lock().unwrap();
        assert!(!screen.screen().alternate_screen() && !screen.screen().hide_cursor());
        status
    }
}

#[test]
fn keys_that_never_change_work_and_quitting_restores_the_terminal() {
    let mut workbench = Workbench::open(80, 24);
    workbench.wait_for("quickstart");
    workbench.press("?");
    workbench.wait_for("help:");
    workbench.press("\x1b");
    workbench.wait("help:", false);
    workbench.press("3");
    workbench.wait_for("no runs");
    workbench.press("\t");
    workbench.wait_for("timeline");
    workbench.press(":");
    workbench.wait_for("╭ palette");
    workbench.press("\x1b");
    workbench.wait("╭ palette", false);
    workbench.press("q");
    assert_eq!(workbench.ended().exit_code(), 0);
}

#[test]
fn sigterm_restores_the_terminal() {
    let workbench = Workbench::open(80, 24);
    workbench.wait_for("quickstart");
    let pid =
        workbench.child.process_id().and_then(|pid| rustix::process::Pid::from_raw(pid as i32)).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
    assert_ne!(workbench.ended().exit_code(), 0);
}

#[test]
fn a_tiny_window_says_so_and_a_larger_one_goes_on() {
    let mut workbench = Workbench::open(30, 6);
    workbench.wait_for("too small");
    let size = PtySize { rows: 30, cols: 100, pixel_width: 0, pixel_height: 0 };
    workbench.screen.lock().unwrap().screen_mut().set_size(cells(30), cells(100));
    workbench.master.resize(size).unwrap();
    workbench.wait_for("quickstart");
    workbench.press("q");
    assert_eq!(workbench.ended().exit_code(), 0);
}
