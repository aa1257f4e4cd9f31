//! Terminal setup and restoration. A single restore function serves normal exit, panics and signals.

use std::io::{self, Write};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::ThreadId;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use crossterm::event::{
    DisableBracketedPaste, DisableMouseCapture, EnableBracketedPaste, EnableMouseCapture,
};
use crossterm::terminal::{
    EnterAlternateScreen, LeaveAlternateScreen, disable_raw_mode, enable_raw_mode,
};
use crossterm::{cursor, execute};
use rustix::process::Signal;

static TAKEN: AtomicBool = AtomicBool::new(false);

#[derive(Debug)]
pub struct Guard(());

impl Drop for Guard {
    fn drop(&mut self) {
        restore();
    }
}

/// Takes over the terminal: raw mode, alternate screen, bracketed paste, and the mouse if requested.
pub fn take(mouse: bool) -> io::Result<Guard> {
    restore_on_panic(std::thread::current().id());
    let guard = Guard(());
    enter(mouse)?;
    Ok(guard)
}

fn enter(mouse: bool) -> io::Result<()> {
    TAKEN.store(true, Ordering::SeqCst);
    enable_raw_mode()?;
    execute!(io::stdout(), EnterAlternateScreen, EnableBracketedPaste, cursor::Hide)?;
    if mouse {
        capture_mouse(true)?;
    }
    Ok(())
}

/// Suspends all processes of this job, as Ctrl-Z does in a terminal that is not in raw mode.
pub fn ask_to_stop() {
    let _ = rustix::process::kill_current_process_group(Signal::TSTP);
}

/// Restores the terminal and suspends this process; returns once it is resumed (`fg`).
pub fn stop() {
    restore();
    // SIGTSTP is handled, so it cannot suspend the process; without a shell, SIGCONT resumes it
    let _ = rustix::process::kill_process(rustix::process::getpid(), Signal::STOP);
}

/// Takes over the terminal again after a suspend, which left it in the shell's modes.
pub fn retake(mouse: bool) -> io::Result<()> {
    restore();
    enter(mouse)
}

/// Restores the terminal if the workbench holds it; also for exits from other threads. Idempotent. Errors are ignored:
/// they mean the terminal is gone.
pub fn restore() {
    if !TAKEN.swap(false, Ordering::SeqCst) {
        return;
    }
    let mut out = io::stdout();
    let _ =
        execute!(out, DisableMouseCapture, DisableBracketedPaste, LeaveAlternateScreen, cursor::Show);
    let _ = out.flush();
    let _ = disable_raw_mode();
}

pub fn capture_mouse(capture: bool) -> io::Result<()> {
    match capture {
        true => execute!(io::stdout(), EnableMouseCapture),
        false => execute!(io::stdout(), DisableMouseCapture),
    }
}

/// Cell size in pixels, if the terminal reports it.
pub fn cell_pixels() -> Option<(u16, u16)> {
    let size = crossterm::terminal::window_size().ok()?;
    let cell = (size.width.checked_div(size.columns)?, size.height.checked_div(size.rows)?);
    (cell.0 > 0 && cell.1 > 0).then_some(cell)
}

/// Longest text in bytes that common terminals take with OSC 52 (100 kB with its encoding).
const MOST_COPIED: usize = 74_994;

/// Reason why the terminal cannot take a text for its clipboard; `None` if it may: most terminals do not tell.
fn copy_refused(bytes: usize, variable: impl Fn(&str) -> Option<String>) -> Option<String> {
    let is = |name: &str, value: &str| variable(name).is_some_and(|set| set == value);
    if bytes > MOST_COPIED {
        let text = format!("{bytes} bytes are too many for its clipboard (OSC 52 takes {MOST_COPIED})");
        return Some(format!("{text}; export a file instead"));
    }
    let has_none = is("TERM_PROGRAM", "Apple_Terminal") || is("TERM", "linux");
    has_none.then(|| {
        "it has no clipboard for programs (OSC 52): the list of messages shows the text to select".into()
    })
}

/// Copies text to the terminal's clipboard, even over SSH (OSC 52). tmux does not forward OSC 52 by
/// default, so within tmux the text also goes to its paste buffer, which tmux forwards if configured to.
pub fn copy(text: &str) -> io::Result<()> {
    if let Some(why) = copy_refused(text.len(), |name| std::env::var(name).ok()) {
        return Err(io::Error::other(why));
    }
    let mut out = io::stdout();
    write!(out, "\x1b]52;c;{}\x07", STANDARD.encode(text))?;
    out.flush()?;
    if std::env::var_os("TMUX").is_some_and(|socket| !socket.is_empty()) {
        // without the tmux command, the sequence alone must do
        let _ = to_tmux("tmux", text);
    }
    Ok(())
}

/// Passes text to tmux.
fn to_tmux(program: &str, text: &str) -> io::Result<()> {
    let mut tmux = Command::new(program)
        .args(["load-buffer", "-w", "-"])
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()?;
    if let Some(mut input) = tmux.stdin.take() {
        input.write_all(text.as_bytes())?;
    }
    // no frame waits for it
    std::thread::spawn(move || tmux.wait());
    Ok(())
}

/// Restores the terminal before the message of a panic on its own thread is printed. A worker's panic
/// becomes a workbench message (see `effects`) and must not disturb the screen.
fn restore_on_panic(owner: ThreadId) {
    let previous = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |info| {
        if std::thread::current().id() == owner {
            restore();
        }
        if !TAKEN.load(Ordering::SeqCst) {
            previous(info);
        }
    }));
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_terminal_without_a_clipboard_and_a_text_too_long_for_one_are_refused() {
        let terminal = |name: &'static str, value: &'static str| {
            move |asked: &str| (asked == name).then(|| value.to_owned())
        };
        assert_eq!(copy_refused(100, terminal("TERM", "xterm-256color")), None);
        let why = copy_refused(80_000, terminal("TERM", "xterm-256color")).expect("too long");
        assert!(why.starts_with("80000 bytes are too many"), "{why}");
        for (name, value) in [("TERM_PROGRAM", "Apple_Terminal"), ("TERM", "linux")] {
            assert!(copy_refused(100, terminal(name, value)).is_some(), "{name}={value}");
        }
    }

    #[test]
    fn tmux_gets_the_text_for_its_paste_buffer_and_the_terminal() {
        let dir = tempfile::tempdir().expect("a directory");
        let (program, told) = (dir.path().join("tmux"), dir.path().join("told"));
        let script =
            format!("#!/bin/sh\n{{ echo \"$@\"; cat; }} > {0}.new\nmv {0}.new {0}\n", told.display());
        std::fs::write(&program, script).expect("it is written");
        std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755)).expect("it may run");
        let name = "void cutlass::gemm_kernel<128, 64>(int)\nµ";
        // a thread of another test that forks while the script is open for writing makes it busy for a moment
        let mut patience = 2_000;
        let mut again = || {
            patience -= 1;
            assert!(patience > 0, "no messages");
            std::thread::sleep(Duration::from_millis(5));
        };
        while let Err(error) = to_tmux(&program.to_string_lossy(), name) {
            assert_eq!(error.kind(), io::ErrorKind::ExecutableFileBusy, "{error}");
            again();
        }
        while !told.exists() {
            again();
        }
        assert_eq!(
            std::fs::read_to_string(told).expect("it was told"),
            format!("load-buffer -w -\n{name}")
        );
        let nowhere = dir.path().join("no tmux");
        assert!(to_tmux(&nowhere.to_string_lossy(), name).is_err(), "the sequence has to do");
    }
}
