//! Reasons for cells that a Slurm task left without a record: they cannot run on its node, or the task, its process
//! or its node ended first.

use std::path::Path;

use super::plan::Submitted;
use super::task::Impossible;
use crate::slurm::{State, Task};
use base::regular;
use base::text::printable;
use table::Status;

/// Bytes read from the end of a log.
const TAIL: usize = 4096;

/// Task that has ended or that Slurm has forgotten.
#[derive(Debug)]
pub(super) struct Over<'a> {
    pub sweep: &'a Submitted,
    pub array: usize,
    pub task: usize,
    /// Last state from Slurm; `None` if Slurm never listed it.
    pub last: Option<&'a Task>,
}

impl Over<'_> {
    /// Cells that cannot run on the task's node.
    pub fn impossible(&self) -> Vec<Impossible> {
        let path = self.sweep.impossible(self.array, self.task);
        regular::read(&path).ok().and_then(|text| serde_json::from_slice(&text).ok()).unwrap_or_default()
    }

    /// Status for the unfinished cells of the task, from Slurm's state.
    pub fn status(&self) -> Status {
        match self.last.map(|task| task.state) {
            Some(State::Stopped) => Status::Interrupted,
            _ => Status::Failed,
        }
    }

    /// Reason for the missing record.
    pub fn reason(&self, began: bool) -> String {
        let name = || format!("{}_{}", self.sweep.name(self.array), self.task);
        let job = self.last.map_or_else(name, Task::id);
        let on = self.last.map(|task| task.nodes.as_str()).filter(|nodes| !nodes.is_empty());
        let on = on.map_or(String::new(), |nodes| format!(" on {nodes}"));
        let when = if began { "while it ran" } else { "before it ran" };
        let word = self.last.filter(|task| task.state.is_over()).map(|task| task.word.as_str());
        let what = match word {
            Some("NODE_FAIL") => format!("its node failed {when} (Slurm job {job}{on}: NODE_FAIL)"),
            Some("TIMEOUT") => format!(
                "its time was up {when} (Slurm job {job}{on}: TIMEOUT); --slurm '--time HH:MM:SS' asks for more"
            ),
            Some("OUT_OF_MEMORY") => format!(
                "Slurm ended it {when} for its memory (job {job}{on}: OUT_OF_MEMORY); --slurm '--mem SIZE' asks for more"
            ),
            Some("CANCELLED") => format!("cancelled {when} (Slurm job {job}{on})"),
            Some("COMPLETED") => format!(
                "Slurm job {job}{on} ended well and left no record here: is the runs directory the same on all nodes?"
            ),
            Some(word) => format!("Slurm job {job}{on} ended {when}: {word}"),
            None => format!("Slurm knows nothing any more of job {job}{on}, which ended {when}"),
        };
        match last_words(&self.sweep.log(self.array, self.task)) {
            // the last output of a stopped task does not explain its end
            Some(said) if self.status() == Status::Failed && word != Some("NODE_FAIL") => {
                format!("{what}; its log ends: {said}")
            }
            _ => what,
        }
    }
}

fn last_words(log: &Path) -> Option<String> {
    let bytes = regular::read(log).ok()?;
    let tail = String::from_utf8_lossy(&bytes[bytes.len().saturating_sub(TAIL)..]).into_owned();
    let line = tail.lines().rev().map(str::trim).find(|line| !line.is_empty())?;
    Some(printable(line).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reason_says_which_job_where_how_and_what_to_do() {
        let dir = tempfile::tempdir().unwrap();
        let folder = dir.path().join("ladderscope-x-1");
        std::fs::create_dir(&folder).unwrap();
        let sweep = Submitted { folder, ..Submitted::default() };
        std::fs::write(sweep.log(0, 3), "starting\nerror: no GPU\n\n").unwrap();
        let said = |state, word: &str, began| {
            let task = Task {
                name: "x".into(),
                job: 12,
                index: 3,
                state,
                word: word.into(),
                nodes: "gpu7".into(),
                reason: None,
            };
            let over = Over { sweep: &sweep, array: 0, task: 3, last: Some(&task) };
            (over.status(), over.reason(began))
        };
        let (status, why) = said(State::Failed, "NODE_FAIL", true);
        assert_eq!(status, Status::Failed);
        assert_eq!(why, "its node failed while it ran (Slurm job 12_3 on gpu7: NODE_FAIL)");
        let (status, why) = said(State::Stopped, "TIMEOUT", false);
        assert_eq!(status, Status::Interrupted);
        assert!(why.contains("before it ran") && why.contains("--time HH:MM:SS"), "{why}");
        let (_, why) = said(State::Failed, "FAILED", false);
        assert_eq!(
            why,
            "Slurm job 12_3 on gpu7 ended before it ran: FAILED; its log ends: error: no GPU"
        );
        let unknown = Over { sweep: &sweep, array: 1, task: 0, last: None };
        let (status, why) = (unknown.status(), unknown.reason(false));
        assert!(status == Status::Failed && why.contains("ladderscope-x-1.1_0"), "{why}");
    }
}
