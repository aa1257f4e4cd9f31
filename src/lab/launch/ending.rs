//! Exit of a run's process as the parent sees it, and the resulting record.

use std::collections::VecDeque;
use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;
use std::time::Duration;

use super::ranks::RankExit;
use crate::outcome::with_outcome;
use run::Outcome;
use table::{Record, Status};

/// Log lines quoted in the reason of a failed run.
const QUOTED_LINES: usize = 10;

/// Reason for which the parent stopped a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum StopReason {
    /// Cancelled by the user, as one cell or with the whole sweep.
    Cancelled,
    /// Silent for longer than this.
    Silent(Duration),
    /// Lost connection to the processes of other ranks, with the reason.
    Apart(String),
}

/// Output, exit status and stop reason of a run's process.
#[derive(Debug, Default)]
pub(super) struct ChildEnd {
    pub outcome: Option<Outcome>,
    pub error: Option<String>,
    pub warnings: Vec<String>,
    /// Last [`QUOTED_LINES`] lines of the log.
    tail: VecDeque<String>,
    /// Exit status or signal; `None` if waiting for the process failed.
    pub status: Option<ExitStatus>,
    pub stop: Option<StopReason>,
}

impl ChildEnd {
    pub fn never_began(why: String) -> Self {
        Self { error: Some(why), ..Self::default() }
    }

    /// Appends a log line, keeping the last [`QUOTED_LINES`].
    pub fn log(&mut self, line: &str) {
        if self.tail.len() == QUOTED_LINES {
            self.tail.pop_front();
        }
        self.tail.push_back(line.to_owned());
    }

    /// Adds a warning unless it is already present.
    pub fn warn(&mut self, warning: String) {
        if !self.warnings.contains(&warning) {
            self.warnings.push(warning);
        }
    }

    /// Report of a rank above 0 to rank 0.
    pub fn report(mut self) -> RankExit {
        let warnings = std::mem::take(&mut self.warnings);
        let succeeded = self.outcome.is_some() && self.stop.is_none();
        RankExit { failure: (!succeeded).then(|| self.why()), warnings }
    }

    /// Completes `record` with the result, or with the reason why there is none.
    pub fn conclude(mut self, mut record: Record) -> Record {
        if let Some(outcome) = self.outcome.take() {
            if self.status.is_none_or(|s| !s.success()) {
                self.warn(format!("after its result, {}", describe(self.status)));
            }
            record.warnings.append(&mut self.warnings);
            return with_outcome(record, outcome);
        }
        record.warnings.append(&mut self.warnings);
        let cancelled = self.stop == Some(StopReason::Cancelled);
        record.status = if cancelled { Status::Interrupted } else { Status::Failed };
        record.reason = Some(self.why());
        record
    }

    fn why(self) -> String {
        let why = match (self.stop, self.error) {
            (Some(StopReason::Cancelled), _) => return "cancelled while it ran".into(),
            (Some(StopReason::Silent(limit)), _) => {
                format!("no sign of life for {:.0} s; it was ended", limit.as_secs_f64())
            }
            (Some(StopReason::Apart(why)), None) => why,
            (_, Some(message)) => message,
            _ => describe(self.status),
        };
        if self.tail.is_empty() {
            return why;
        }
        let tail: Vec<String> = self.tail.into_iter().collect();
        format!("{why}; its last output:\n{}", tail.join("\n"))
    }
}

fn describe(status: Option<ExitStatus>) -> String {
    let Some(status) = status else { return "its process could not be waited for".into() };
    if let Some(signal) = status.signal() {
        let name = signal_hook::low_level::signal_name(signal).unwrap_or("unknown");
        let hint = if signal == signal_hook::consts::SIGKILL { "; out of memory?" } else { "" };
        return format!("killed by signal {signal} ({name}{hint})");
    }
    match status.code() {
        Some(0) => "its process ended without a result".into(),
        Some(code) => format!("its process ended with exit status {code} and no result"),
        None => format!("its process ended: {status}"),
    }
}
