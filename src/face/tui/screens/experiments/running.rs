//! Starting a sweep: of the selected experiment, with its edits or without, and of the paper.

use std::sync::Arc;

use super::state::StoredCounts;
use super::{Act, Experiments, PAPER};
use crate::face::tui::prelude::*;
use crate::face::tui::scope::ShownExperiment;
use lab::sweep::forecast::Forecast;
use lab::sweep::{Experiment, SweepSelection};

/// Estimated time of a sweep, in seconds, from which it needs a confirmation.
const LONG_SWEEP_S: f64 = 300.0;

impl Experiments {
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

    /// Shows the result of the stored runs of the selected experiment, also if some are missing, or else starts it.
    pub(super) fn open(&self, cx: &mut Context) {
        let stored = self.stored_of(self.list.selected);
        let is_partial = stored.own > 0 && !stored.is_complete();
        let is_edited = self.draft().is_some_and(|draft| draft.revisions.is_edited());
        let entry = self.selected().filter(|_| is_partial && !is_edited);
        match entry.and_then(|entry| Some((entry.experiment.clone().ok()?, entry.shown()))) {
            Some((experiment, shown)) => {
                cx.scope.show_listed(shown);
                let missing = stored.runs - stored.done;
                cx.request(Request::StoredResult { experiment: Arc::from(experiment), missing });
            }
            None => self.run(SweepSelection::Missing, cx),
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
        start(experiment, self.shown(), (draft.stored(), self.forecast()), choice, cx);
    }

    /// Starts the selected experiment as its file has it, without edits.
    fn run_file(&self, choice: SweepSelection, cx: &mut Context) {
        let Some(entry) = self.selected() else { return };
        let experiment = entry.experiment.clone().map(Arc::from);
        let stored = self.stored_of(self.list.selected);
        start(experiment, Some(entry.shown()), (stored, self.forecast()), choice, cx);
    }

    /// Forecast of the selected experiment, once it is checked.
    fn forecast(&self) -> Option<&Forecast> {
        self.draft()?.checked.as_ref()?.forecast.as_ref()
    }
}

/// Starts an experiment, or shows its result if all its runs are stored; asks before the missing runs of a long sweep.
/// `shown` becomes the scope of the result screens.
fn start(
    experiment: Result<Arc<Experiment>, String>,
    shown: Option<ShownExperiment>,
    (stored, forecast): (StoredCounts, Option<&Forecast>),
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
    let is_of_missing = choice == SweepSelection::Missing;
    if is_of_missing && stored.is_complete() {
        return cx.request(Request::StoredResult { experiment, missing: 0 });
    }
    let is_long = |forecast: &&Forecast| forecast.seconds.is_some_and(|time| time > LONG_SWEEP_S);
    match forecast.filter(is_long).filter(|_| is_of_missing) {
        Some(forecast) => {
            let (runs, time) = (counted(forecast.left(), "run"), forecast.time().unwrap_or_default());
            let text = format!("start {runs} of {}, {time}?", experiment.name);
            cx.confirm(text, move |_: &mut Experiments, cx| {
                cx.request(Request::Sweep { experiment, choice });
            });
        }
        None => cx.request(Request::Sweep { experiment, choice }),
    }
}
