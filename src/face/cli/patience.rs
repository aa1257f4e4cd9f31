//! Option `--timeout` of all verbs that run something.

use std::path::PathBuf;
use std::time::Duration;

use super::interrupt;
use crate::desk::Start;
use base::error::Result;
use lab::launch::{self, Cancel};
use lab::store::Store;
use run::TIMEOUT;
use table::Spec;

/// Timeout option of every verb that runs on GPUs.
#[derive(Clone, Copy, Debug, clap::Args)]
pub struct Patience {
    /// Timeout: end a GPU run if any rank makes no progress, or does not start, for this long
    #[arg(long, value_name = "SECONDS", default_value_t = TIMEOUT.as_secs(), value_parser = clap::value_parser!(u64).range(1..=86_400))]
    timeout: u64,
}

impl Patience {
    /// Runs `lead` on the store in `dir` with what `resolve` returns beside its cells, with this timeout and cancelled
    /// by signals. On ranks above 0 of a launcher, takes part in rank 0's runs instead. Without `hang_up`, a hangup of
    /// the terminal ends this process at once. Returns the exit status.
    pub fn lead<T>(
        &self,
        dir: PathBuf,
        hang_up: bool,
        resolve: impl FnOnce() -> Result<(Vec<Spec>, T)>,
        lead: impl FnOnce(Start, T) -> Result<u8>,
    ) -> Result<u8> {
        let cancel = Cancel::default();
        interrupt::cancel_on_signals(&cancel, hang_up)?;
        let timeout = self.timeout();
        launch::on_all_ranks(timeout, &cancel, resolve, |ranks, resolved| {
            lead(Start { timeout, ranks, ..Start::new(Store::open(dir), cancel.clone()) }, resolved)
        })
    }

    pub fn timeout(&self) -> Duration {
        Duration::from_secs(self.timeout)
    }
}
