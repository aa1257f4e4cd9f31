//! Handling of Ctrl-C, SIGTERM, SIGQUIT and SIGHUP: the first signal stops the work and stores what is done, the
//! second exits at once; and the option `--timeout` of all verbs that run something.

use std::path::PathBuf;
use std::time::Duration;

use signal_hook::consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM};
use signal_hook::iterator::Signals;

use crate::desk::Start;
use base::error::{Error, Result};
use lab::launch::{self, Cancel};
use lab::store::Store;
use run::TIMEOUT;
use table::Spec;

pub const INTERRUPTED: u8 = 130;

/// Installs handlers: the first signal cancels, the second exits at once with 130. The child process of a run ends
/// with this one, and the run stays listed as interrupted. SIGHUP is ignored under `nohup`; without `hang_up` it ends
/// this process at once. Fails if the system rejects a handler.
pub fn cancel_on_signals(cancel: &Cancel, hang_up: bool) -> Result<()> {
    let mut handled = vec![SIGINT, SIGTERM, SIGQUIT];
    if hang_up && !is_ignored(SIGHUP) {
        handled.push(SIGHUP);
    }
    let mut signals =
        Signals::new(handled).map_err(|e| Error::failed(format!("handling signals: {e}")))?;
    let cancel = cancel.clone();
    std::thread::Builder::new()
        .name("signals".into())
        .spawn(move || {
            for _ in signals.forever() {
                if cancel.is_all() {
                    std::process::exit(i32::from(INTERRUPTED));
                }
                cancel.all();
                super::report::note("interrupted: ending what runs now (again: stop at once)");
            }
        })
        .map_err(|e| Error::failed(format!("starting a thread: {e}")))?;
    Ok(())
}

/// True if the parent set a signal to be ignored, as `nohup` does.
fn is_ignored(signal: i32) -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok())
        .is_some_and(|mask| mask >> (signal - 1) & 1 == 1)
}

/// Timeout option of every verb that runs on GPUs.
#[derive(Clone, Copy, Debug, clap::Args)]
pub struct Patience {
    /// Timeout: end a GPU run if any rank makes no progress, or does not start, for this long
    #[arg(long, value_name = "SECONDS", default_value_t = TIMEOUT.as_secs(), value_parser = clap::value_parser!(u64).range(1..=86_400))]
    timeout: u64,
}

impl Patience {
    /// Runs `lead` on the store in `dir`, with the second value of `resolve` and this timeout; signals cancel it. Ranks
    /// above 0 of a launcher take part in rank 0's runs instead. Without `hang_up`, a hangup of the terminal ends this
    /// process at once. Returns the exit status.
    pub fn lead<T>(
        &self,
        dir: PathBuf,
        hang_up: bool,
        resolve: impl FnOnce() -> Result<(Vec<Spec>, T)>,
        lead: impl FnOnce(Start, T) -> Result<u8>,
    ) -> Result<u8> {
        let cancel = Cancel::default();
        cancel_on_signals(&cancel, hang_up)?;
        let timeout = self.timeout();
        launch::on_all_ranks(timeout, &cancel, resolve, |ranks, resolved| {
            lead(Start { timeout, ranks, ..Start::new(Store::open(dir), cancel.clone()) }, resolved)
        })
    }

    pub fn timeout(&self) -> Duration {
        Duration::from_secs(self.timeout)
    }
}
