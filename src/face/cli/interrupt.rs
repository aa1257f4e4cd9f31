//! Ctrl-C and SIGTERM: the first asks to stop and store what was done, the second ends it at once.

use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use crate::base::error::{Error, Result};
use crate::lab::launch::Cancel;

/// Exit status after an interruption.
pub const INTERRUPTED: u8 = 130;

/// From now on the first SIGINT or SIGTERM cancels, the second exits at once with 130. A run's
/// process ends when this one does, and a run that began stays listed as interrupted.
pub fn cancel_on_signals(cancel: &Cancel) -> Result<()> {
    let mut signals = Signals::new([SIGINT, SIGTERM])
        .map_err(|e| Error::failed(format!("handling SIGINT and SIGTERM: {e}")))?;
    let cancel = cancel.clone();
    std::thread::Builder::new()
        .name("signals".into())
        .spawn(move || {
            for _ in signals.forever() {
                if cancel.is_all() {
                    std::process::exit(i32::from(INTERRUPTED));
                }
                cancel.all();
                super::report::note("interrupted: ending the running cell (again: stop at once)");
            }
        })
        .map_err(|e| Error::failed(format!("starting a thread: {e}")))?;
    Ok(())
}
