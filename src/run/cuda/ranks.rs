//! The ranks of a run on GPUs: which are in this process, how they meet, and how long one may be silent.

use std::sync::Arc;
use std::time::Duration;

use crate::TIMEOUT;
use crate::comm::{Peers, Progress};

/// The part of a [`crate::Job`] that says where its ranks are. By default all are threads of this
/// process, the first one on GPU 0.
#[derive(Clone, Debug)]
pub struct Ranks {
    /// A rank that shows no progress for so long ends the run.
    pub timeout: Duration,
    /// The other ranks, where this process is one of several. Then only rank 0's outcome and trace count;
    /// other ranks give an outcome without samples, and no trace.
    pub peers: Option<Arc<Peers>>,
    /// The GPU of this process's first rank.
    pub device: usize,
    /// Told of whatever shows that the run goes on: without news for longer than `timeout` it is ended.
    /// Events of the run count, and each [`Peers::phase`] of [`Ranks::threads`] and `peers`.
    pub progress: Arc<Progress>,
}

impl Default for Ranks {
    fn default() -> Self {
        Self { timeout: TIMEOUT, peers: None, device: 0, progress: Arc::default() }
    }
}

impl Ranks {
    /// Peers for so many ranks as threads of this process.
    pub fn threads(&self, ranks: usize) -> Vec<Peers> {
        let watched = |peers: Peers| peers.with_progress(Arc::clone(&self.progress));
        Peers::threads(ranks, self.timeout).into_iter().map(watched).collect()
    }
}
