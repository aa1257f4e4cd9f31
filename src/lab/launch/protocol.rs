//! Protocol between parent and child: one request, then events, one JSON line each.

use std::path::PathBuf;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use run::comm::Meeting;
use table::Spec;

/// The single line on the child's standard input.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Request {
    pub run: String,
    pub dir: PathBuf,
    pub spec: Spec,
    pub record: bool,
    /// Report decode steps as they happen.
    #[serde(default)]
    pub watch: bool,
    /// Maximum time without progress of any rank (see [`run::cuda::Ranks::timeout`]).
    #[serde(default = "usual")]
    pub timeout: Duration,
    /// Set if several processes execute the run together.
    #[serde(default)]
    pub place: Option<Place>,
}

fn usual() -> Duration {
    run::TIMEOUT
}

/// Position of one process among those of a run, one per rank.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Place {
    /// Meeting address and rank.
    pub meeting: Meeting,
    pub local_rank: usize,
    /// Number of processes on its host, if known.
    pub local_ranks: Option<usize>,
}

/// Orders that the leader broadcasts to the followers.
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum Order {
    /// Start a child for your rank of this run (`place` is rank 0's) and report its end.
    Run(Box<Request>),
    /// Exit with this status.
    End(u8),
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Report {
    /// Reason of a failure; `None` for success.
    pub failure: Option<String>,
    pub warnings: Vec<String>,
}

pub(super) const TRACE: &str = "trace.parquet";

pub(super) const LOG: &str = "log.txt";
