//! Filter text shared by the screens, and the experiment that result screens open on (the most recently viewed). The
//! experiment is a chip of the screen's filter box, so it is always visible that runs are filtered out.

use super::prelude::*;
use study::analysis::filter::Filter;

#[derive(Debug, Default)]
pub struct Scope {
    pub typed: String,
    /// Screen, filter text and experiment at the previous message.
    shown: Option<Shown>,
    looked_at: Option<String>,
    /// Experiment whose chip the user removed; screens no longer open on it.
    dismissed: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Shown {
    tab: Tab,
    typed: String,
    experiment: Option<String>,
}

/// Called after every message: applies the shared filter to a newly shown screen, and stores what is typed
/// there for the others. Cheap: compares short strings, and scans the runs only on a screen change.
pub fn settle(state: &mut State) {
    let tab = state.cx.tab;
    let (screen, cx) = state.split(tab);
    let status = screen.status(cx);
    if status.experiment.is_some() {
        cx.scope.looked_at = status.experiment;
    }
    let opens = status.opens_on_experiment;
    let Some(filter) = screen.filter() else {
        cx.scope.shown = None;
        return;
    };
    match cx.scope.shown.as_ref().filter(|shown| shown.tab == tab) {
        Some(before) => {
            if before.experiment.is_some() && filter.experiment.is_none() {
                cx.scope.dismissed.clone_from(&before.experiment);
            }
            if before.typed != filter.value() {
                cx.scope.typed = filter.value().to_owned();
            }
        }
        // the experiments are not known yet
        None if opens && cx.stored.is_none() => return,
        None => {
            let experiment = cx.scope.opening(cx.stored.as_deref()).filter(|_| opens);
            if filter.value() != cx.scope.typed || filter.experiment != experiment {
                filter.field.replace(0..filter.value().len(), &cx.scope.typed);
                filter.experiment = experiment;
                screen.input(Input::Narrow, cx);
            }
        }
    }
    if let Some(filter) = screen.filter() {
        if filter.typing
            && let Some(stored) = &cx.stored
        {
            filter.suggest(&stored.table);
        }
        let is_same = |shown: &Shown| {
            shown.tab == tab && shown.typed == filter.value() && shown.experiment == filter.experiment
        };
        if !cx.scope.shown.as_ref().is_some_and(is_same) {
            let (typed, experiment) = (filter.value().to_owned(), filter.experiment.clone());
            cx.scope.shown = Some(Shown { tab, typed, experiment });
        }
    }
}

/// Shows all runs instead of those of the experiment, or the reverse.
pub fn toggle(state: &mut State) {
    let (screen, cx) = state.split(state.cx.tab);
    if !screen.status(cx).opens_on_experiment {
        return cx.inform("this screen does not show the runs of one experiment");
    }
    let name = cx.scope.name(cx.stored.as_deref());
    cx.scope.dismissed = if cx.scope.dismissed == name { None } else { name };
    // as if the screen were newly shown
    cx.scope.shown = None;
}

impl Scope {
    /// Most recently viewed experiment, else the newest.
    fn name(&self, stored: Option<&Snapshot>) -> Option<String> {
        let newest = || stored?.records.last()?.experiment.clone();
        self.looked_at.clone().or_else(newest)
    }

    /// Experiment to open on; `None` if its runs are all or none, or if the user dismissed it.
    fn opening(&self, stored: Option<&Snapshot>) -> Option<String> {
        let (name, table) = (self.name(stored)?, &stored?.table);
        if self.dismissed.as_ref() == Some(&name) {
            return None;
        }
        let filter = Filter { terms: vec![Filter::is("experiment", &name)] };
        let rows = filter.rows(table).ok()?.len();
        (rows > 0 && rows < table.len()).then_some(name)
    }
}
