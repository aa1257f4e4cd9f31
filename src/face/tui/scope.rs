//! Filter shared by the screens, and the experiment that result screens open on (the most recently
//! viewed). Both appear in the screen's filter box, so it is always visible that runs are filtered out.

use super::prelude::*;
use study::analysis::filter::{Filter, Operator, Term, Test};

const EXPERIMENT: &str = "experiment";

#[derive(Debug, Default)]
pub struct Scope {
    pub typed: String,
    /// Screen and filter text at the previous message.
    shown: Option<(Tab, String)>,
    looked_at: Option<String>,
    /// Experiment whose filter the user cleared; screens no longer open on it.
    dismissed: Option<String>,
}

/// Called after every message: applies the shared filter to a newly shown screen, and stores what is typed
/// there for the others. Cheap: compares two short strings, and scans the runs only on a screen change.
pub fn settle(state: &mut State) {
    let tab = state.cx.tab;
    let (screen, cx) = state.split(tab);
    let status = screen.status(cx);
    if status.experiment.is_some() {
        cx.scope.looked_at = status.experiment;
    }
    let opens = status.opens_on_experiment;
    let Some(filter) = screen.filter() else {
        cx.scope.shown = Some((tab, String::new()));
        return;
    };
    let before = cx.scope.shown.as_ref().filter(|(shown, _)| *shown == tab).map(|(_, text)| text);
    match before {
        Some(text) if text != filter.value() => {
            // the user cleared a filter that the screen opened with
            if filter.value().is_empty() && cx.scope.typed.is_empty() {
                cx.scope.dismissed = cx.scope.name(cx.stored.as_deref());
            }
            cx.scope.typed = filter.value().to_owned();
        }
        Some(_) => {}
        // the experiments are not known yet
        None if opens && cx.stored.is_none() => return,
        None => {
            let scope = &cx.scope;
            let wanted = match scope.typed.is_empty() && opens {
                true => scope.opening(cx.stored.as_deref()).unwrap_or_default(),
                false => scope.typed.clone(),
            };
            if filter.value() != wanted {
                filter.field.replace(0..filter.value().len(), &wanted);
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
        let text = filter.value();
        if cx.scope.shown.as_ref().is_none_or(|(shown, before)| *shown != tab || before != text) {
            cx.scope.shown = Some((tab, text.to_owned()));
        }
    }
}

impl Scope {
    /// Most recently viewed experiment, else the newest.
    fn name(&self, stored: Option<&Snapshot>) -> Option<String> {
        let newest = || stored?.records.last()?.experiment.clone();
        self.looked_at.clone().or_else(newest)
    }

    /// Filter for that experiment's runs; `None` if it matches all runs or none, or if the user
    /// dismissed it.
    fn opening(&self, stored: Option<&Snapshot>) -> Option<String> {
        let (name, table) = (self.name(stored)?, &stored?.table);
        if self.dismissed.as_ref() == Some(&name) {
            return None;
        }
        let test = Test::Field { name: EXPERIMENT.into(), operator: Operator::Is, value: name };
        let filter = Filter { terms: vec![Term { negated: false, test }] };
        let rows = filter.rows(table).ok()?.len();
        (rows > 0 && rows < table.len()).then(|| filter.to_string())
    }
}
