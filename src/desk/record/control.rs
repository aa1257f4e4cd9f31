//! The control file of a recording, replaced as a whole so that processes never read half of it.

use std::path::Path;

use super::{Recording, now_ns};
use base::atomic;
use base::error::{Error, Result};
use inject::control::{self, Control};

/// Time between the request and the window, in which all processes see it: they look every 100 ms.
const AHEAD_NS: u64 = 300_000_000;

pub(super) fn read(parts: &Path) -> Result<Control> {
    let path = parts.join(control::FILE);
    let bytes = std::fs::read(&path).map_err(Error::io(&path))?;
    Control::decode(&bytes)
        .ok_or_else(|| Error::input(format!("{}: not a recording's control file", path.display())))
}

pub(super) fn write(parts: &Path, control: Control) -> Result<()> {
    atomic::write(&parts.join(control::FILE), &control.encode())
}

/// Opens the window of a recording that waits for it, for all its processes at once.
///
/// # Errors
///
/// Returns an error if there is no such recording, or its window is open.
pub fn start(directory: &Path) -> Result<()> {
    let recording = Recording::open(directory)?;
    let control = recording.control()?;
    let now = now_ns();
    if control.start_ns != u64::MAX && control.stop_ns > now {
        return Err(Error::input_help(
            format!("{}: is recording already", directory.display()),
            "end it with `ladderscope record --stop DIR`",
        ));
    }
    let start_ns = now + AHEAD_NS;
    write(&recording.parts(), Control { start_ns, stop_ns: u64::MAX, ..control })
}

/// Closes the window.
///
/// # Errors
///
/// Returns an error if there is no such recording, or its window is not open.
pub fn stop(directory: &Path) -> Result<()> {
    let recording = Recording::open(directory)?;
    let control = recording.control()?;
    if control.start_ns == u64::MAX || control.stop_ns <= now_ns() {
        return Err(Error::input_help(
            format!("{}: is not recording", directory.display()),
            "begin with `ladderscope record --start DIR`",
        ));
    }
    let stop_ns = (now_ns() + AHEAD_NS).max(control.start_ns);
    write(&recording.parts(), Control { stop_ns, ..control })
}
