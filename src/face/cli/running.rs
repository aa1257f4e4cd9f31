//! Running, for all verbs that do: option `--timeout`, ranks that a launcher started, and signals. The first Ctrl-C,
//! SIGTERM, SIGQUIT or SIGHUP stops the work and stores what is done, the second exits at once.

use std::path::PathBuf;
use std::time::Duration;

use signal_hook::consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM};
use signal_hook::iterator::Signals;

use super::app::exit_status;
use super::stderr;
use crate::desk::Runner;
use base::error::{Error, Result};
use lab::launch::{self, Cancel};
use lab::store::Store;
use run::PROGRESS_TIMEOUT;
use table::Spec;

/// Effect of a hangup of the terminal (SIGHUP), unless the parent ignores it, as `nohup` does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnHangUp {
    /// Stop like Ctrl-C.
    Cancel,
    /// End this process at once: the work continues elsewhere.
    Exit,
}

/// Installs handlers of SIGINT, SIGTERM, SIGQUIT and SIGHUP: the first signal cancels the returned handle, the second
/// exits with status 130. The child process of a run ends with this one, and the run stays listed as interrupted.
///
/// # Errors
///
/// Returns an error if the system rejects a handler.
pub fn cancel_on_signals(on_hang_up: OnHangUp) -> Result<Cancel> {
    let mut handled = vec![SIGINT, SIGTERM, SIGQUIT];
    if on_hang_up == OnHangUp::Cancel && !is_ignored(SIGHUP) {
        handled.push(SIGHUP);
    }
    let mut signals =
        Signals::new(handled).map_err(|e| Error::failed(format!("handling signals: {e}")))?;
    let cancel = Cancel::default();
    let handle = cancel.clone();
    std::thread::Builder::new()
        .name("signals".into())
        .spawn(move || {
            for _ in signals.forever() {
                if cancel.is_all() {
                    std::process::exit(i32::from(exit_status::INTERRUPTED));
                }
                cancel.all();
                stderr::note("interrupted: ending what runs now (again: stop at once)");
            }
        })
        .map_err(|e| Error::failed(format!("starting a thread: {e}")))?;
    Ok(handle)
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
pub struct TimeoutArgs {
    /// Timeout: end a GPU run if any rank makes no progress, or does not start, for this long
    #[arg(long, value_name = "SECONDS", default_value_t = PROGRESS_TIMEOUT.as_secs(), value_parser = clap::value_parser!(u64).range(1..=86_400))]
    timeout: u64,
}

impl TimeoutArgs {
    pub fn duration(&self) -> Duration {
        Duration::from_secs(self.timeout)
    }
}

/// Runs `work` on the store in `dir` with a timeout of GPU runs; signals cancel it. `resolve` returns the cells, which
/// all ranks need, and the input of `work`. Ranks above 0 of a launcher take part in rank 0's runs instead of calling
/// `work`. Returns the exit status.
pub fn run_on_all_ranks<T>(
    timeout: Duration,
    dir: PathBuf,
    on_hang_up: OnHangUp,
    resolve: impl FnOnce() -> Result<(Vec<Spec>, T)>,
    work: impl FnOnce(Runner, T) -> Result<u8>,
) -> Result<u8> {
    let cancel = cancel_on_signals(on_hang_up)?;
    launch::on_all_ranks(timeout, &cancel, resolve, |ranks, resolved| {
        work(Runner { timeout, ranks, ..Runner::new(Store::open(dir), cancel.clone()) }, resolved)
    })
}
