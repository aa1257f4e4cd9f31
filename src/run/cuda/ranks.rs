//! Ranks of a GPU run: local ranks, their rendezvous, and the progress timeout.

use std::sync::Arc;
use std::time::Duration;

use crate::TIMEOUT;
use crate::comm::{Peers, Progress};

/// Location of a [`crate::Job`]'s ranks. By default all are threads of this process, the first one on GPU 0.
#[derive(Clone, Debug)]
pub struct Ranks {
    /// Timeout: the run fails if a rank makes no progress for this long.
    pub timeout: Duration,
    /// Other ranks, if this process is one of several. Then only rank 0 returns samples and a trace.
    pub peers: Option<Arc<Peers>>,
    /// GPU of this process's first rank.
    pub device: usize,
    /// Notified of all progress; the run fails after `timeout` without any. Counts run events, and each
    /// [`Peers::phase`] of [`Ranks::threads`] and `peers`.
    pub progress: Arc<Progress>,
}

impl Default for Ranks {
    fn default() -> Self {
        Self { timeout: TIMEOUT, peers: None, device: 0, progress: Arc::default() }
    }
}

impl Ranks {
    /// Creates peers for ranks that are threads of this process.
    pub fn threads(&self, ranks: usize) -> Vec<Peers> {
        let watched = |peers: Peers| peers.with_progress(Arc::clone(&self.progress));
        Peers::threads(ranks, self.timeout).into_iter().map(watched).collect()
    }
}
