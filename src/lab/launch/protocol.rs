//! What parent and child say to each other: one request, then events, a line of JSON each.

use std::path::PathBuf;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use run::comm::Meeting;
use table::Spec;

/// The one line on the child's standard input.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Request {
    /// The id under which the run is stored.
    pub run: String,
    /// The run's directory, where the trace goes.
    pub dir: PathBuf,
    /// The cell to be run, with all its options.
    pub spec: Spec,
    /// Whether to record spans.
    pub record: bool,
    /// Whether to tell of decode steps while they go by.
    #[serde(default)]
    pub watch: bool,
    /// How long a rank may show no progress before its run is ended (see [`run::cuda::Ranks::timeout`]).
    #[serde(default = "usual")]
    pub timeout: Duration,
    /// Where this process is one of several that execute the run together.
    #[serde(default)]
    pub place: Option<Place>,
}

fn usual() -> Duration {
    run::TIMEOUT
}

/// One process among those that execute a run, a rank each.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Place {
    /// Where it meets the others, and as which rank.
    pub meeting: Meeting,
    /// Which one of those on its host.
    pub local_rank: usize,
    /// How many are on its host, where that is known.
    pub local_ranks: Option<usize>,
}

/// What the process that leads tells those that follow, a broadcast each.
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum Order {
    /// Start a child for your rank of this run (place: rank 0's), and report when it has ended.
    Run(Box<Request>),
    /// Nothing follows: the process of the other rank ends with this exit status.
    End(u8),
}

/// How a run ended on one rank.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Report {
    /// Why it failed there; `None`: it did not.
    pub failure: Option<String>,
    /// The warnings of the run on that rank.
    pub warnings: Vec<String>,
}

/// The trace's name in the run's directory.
pub(super) const TRACE: &str = "trace.parquet";

/// The log's name in the run's directory.
pub(super) const LOG: &str = "log.txt";
