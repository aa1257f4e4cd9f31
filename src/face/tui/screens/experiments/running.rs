//! Starting a sweep: of the selected experiment, with its edits or without, and of the paper.

use std::sync::Arc;

use super::state::StoredCounts;
use super::{Act, Experiments, PAPER};
use crate::face::tui::prelude::*;
use crate::face::tui::scope::ShownExperiment;
use base::text::duration;
use lab::sweep::{Experiment, SweepSelection};
use run::Feasibility;
use table::Provenance;

/// Estimated seconds from which the key that also opens asks before it runs a sweep.
const ASKED_SECONDS: f64 = 5.0;

impl Experiments {
    /// Shows the stored result of the selected experiment, or runs what is left: after a question if that may take long.
    pub(super) fn choose(&self, cx: &mut Context) {
        match self.run_question(cx.sweeps.running.is_some()) {
            Some(question) => {
                let text = format!("{question} {} does so without asking.", cx.key::<Self>(Act::Run));
                cx.confirm(text, |screen: &mut Self, cx| screen.run(SweepSelection::Missing, cx));
            }
            None => self.run(SweepSelection::Missing, cx),
        }
    }

    /// `Run p2p: 12 runs left of 54, about 15 s, on this machine?`; `None` if no runs are left or they take a moment.
    fn run_question(&self, is_queued: bool) -> Option<String> {
        let entry = self.selected()?;
        let draft = self.draft();
        let (experiment, stored) = match draft.filter(|draft| draft.revisions.is_edited()) {
            Some(draft) => (draft.experiment().ok()?, draft.stored()),
            None => (Arc::from(entry.experiment.clone().ok()?), self.stored_of(self.list.selected)),
        };
        let left = stored.runs.checked_sub(stored.done).filter(|left| *left > 0)?;
        let checked = draft.filter(|draft| draft.is_checked()).and_then(|draft| draft.checked.as_ref());
        let seconds = checked.and_then(|checked| checked.forecast.as_ref()?.seconds);
        let mut cells = experiment.cells.iter().filter(|cell| cell.feasibility == Feasibility::Runs);
        let is_executed = cells.any(|cell| cell.spec.provenance() != Provenance::Simulated);
        let is_short = seconds.map_or(!is_executed, |seconds| seconds < ASKED_SECONDS);
        let verb = if is_queued { "Queue" } else { "Run" };
        let runs = match stored.done {
            0 => counted(left, "run"),
            _ => format!("{} left of {}", counted(left, "run"), stored.runs),
        };
        let time = seconds.map_or("time not estimated yet".into(), |s| format!("about {}", duration(s)));
        let place = if is_executed { "on this machine" } else { "simulated" };
        (!is_short).then(|| format!("{verb} {}: {runs}, {time}, {place}?", entry.name))
    }

    /// Starts the paper's 70B sweep, whatever is selected and whatever edits it has.
    pub(super) fn run_paper(&mut self, cx: &mut Context) {
        let is_unread = self.entries.is_none() && self.names.is_empty();
        match self.show(PAPER) {
            _ if is_unread => self.early = Some(Act::Paper),
            true if self.selected().is_none() => self.early = Some(Act::Paper),
            true => self.run_file(SweepSelection::Missing, cx),
            false => cx.inform(format!("there is no experiment {PAPER}")),
        }
    }

    /// Starts the selected experiment with its edits, queued behind a running sweep.
    pub(super) fn run(&self, choice: SweepSelection, cx: &mut Context) {
        let Some(entry) = self.selected() else { return };
        let Some(draft) = self.draft().filter(|draft| draft.revisions.is_edited()) else {
            return self.run_file(choice, cx);
        };
        // runs of unsaved edits do not count as the file's
        let experiment = draft.experiment().map(|mut experiment| {
            Arc::make_mut(&mut experiment).name = draft.edited_name(&entry.name);
            experiment
        });
        start(experiment, self.shown(), draft.stored(), choice, cx);
    }

    /// Starts the selected experiment as its file has it, without edits.
    fn run_file(&self, choice: SweepSelection, cx: &mut Context) {
        let Some(entry) = self.selected() else { return };
        let experiment = entry.experiment.clone().map(Arc::from);
        start(experiment, Some(entry.shown()), self.stored_of(self.list.selected), choice, cx);
    }
}

/// Starts an experiment, or shows its result if all its runs are stored. `shown` becomes the scope of the result screens.
fn start(
    experiment: Result<Arc<Experiment>, String>,
    shown: Option<ShownExperiment>,
    stored: StoredCounts,
    choice: SweepSelection,
    cx: &mut Context,
) {
    let experiment = match experiment {
        Ok(experiment) => experiment,
        Err(error) => return cx.fail(error),
    };
    if let Some(shown) = shown {
        cx.scope.show_listed(shown);
    }
    match choice == SweepSelection::Missing && stored.is_complete() {
        true => cx.request(Request::StoredResult(experiment)),
        false => cx.request(Request::Sweep { experiment, choice }),
    }
}
