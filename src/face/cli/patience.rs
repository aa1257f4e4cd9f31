//! Option `--timeout` of all verbs that run something.

use std::path::PathBuf;
use std::time::Duration;

use super::interrupt;
use crate::desk::Start;
use base::error::Result;
use lab::launch::{self, Cancel, OwnCells};
use lab::store::Store;
use run::TIMEOUT;

/// Timeout option of every verb that runs on GPUs.
#[derive(Clone, Copy, Debug, clap::Args)]
pub struct Patience {
    /// Timeout: end a GPU run if any rank makes no progress, or does not start, for this long
    #[arg(long, value_name = "SECONDS", default_value_t = TIMEOUT.as_secs(), value_parser = clap::value_parser!(u64).range(1..=86_400))]
    timeout: u64,
}

impl Patience {
    /// Runs `start` on the store in `dir`, with this timeout and cancelled by signals. On ranks above 0 of a
    /// launcher, follows rank 0 instead and accepts only models, files and variables of its `own` cells. Returns the
    /// exit status.
    pub fn lead(
        &self,
        dir: PathBuf,
        own: OwnCells<'_>,
        start: impl FnOnce(Start) -> Result<u8>,
    ) -> Result<u8> {
        self.lead_until(dir, true, own, start)
    }

    /// Like [`Patience::lead`], but a hangup of the terminal ends only this process, not the jobs that it started
    /// elsewhere.
    pub fn lead_deaf(
        &self,
        dir: PathBuf,
        own: OwnCells<'_>,
        start: impl FnOnce(Start) -> Result<u8>,
    ) -> Result<u8> {
        self.lead_until(dir, false, own, start)
    }

    fn lead_until(
        &self,
        dir: PathBuf,
        hang_up: bool,
        own: OwnCells<'_>,
        start: impl FnOnce(Start) -> Result<u8>,
    ) -> Result<u8> {
        let cancel = Cancel::default();
        interrupt::cancel_on_signals(&cancel, hang_up)?;
        let timeout = self.timeout();
        launch::lead_or_follow(timeout, &cancel, own, |leader| {
            start(Start { timeout, leader, ..Start::new(Store::open(dir), cancel.clone()) })
        })
    }

    pub fn timeout(&self) -> Duration {
        Duration::from_secs(self.timeout)
    }
}
