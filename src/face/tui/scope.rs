//! The filter that goes with the user from screen to screen, and the experiment on which screens of results open:
//! the one that was looked at last. Both stand in the box of the screen's filter, so that what is left out is said.

use super::prelude::*;
use study::analysis::filter::{Filter, Operator, Term, Test};

/// The field of runs that names their experiment.
const EXPERIMENT: &str = "experiment";

/// Which runs the screens are about.
#[derive(Debug, Default)]
pub struct Scope {
    /// The filter that the user typed last, on whichever screen.
    pub typed: String,
    /// The screen that was shown at the last message, and what its box held then.
    shown: Option<(Tab, String)>,
    /// The experiment that was looked at last.
    looked_at: Option<String>,
    /// The experiment that the user did not want a screen to open on.
    dismissed: Option<String>,
}

/// After every message: a screen that has just come up gets the filter, and what is typed there is kept for the
/// others. Costs a comparison of two short texts; the runs are looked through only when a screen comes up.
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
            // what was taken away was not typed: the screen came up on it
            if filter.value().is_empty() && cx.scope.typed.is_empty() {
                cx.scope.dismissed = cx.scope.name(cx.stored.as_deref());
            }
            cx.scope.typed = filter.value().to_owned();
        }
        Some(_) => {}
        // which experiments there are is not known yet
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
    /// The experiment that was looked at last, or else is the newest.
    fn name(&self, stored: Option<&Snapshot>) -> Option<String> {
        let newest = || stored?.records.last()?.experiment.clone();
        self.looked_at.clone().or_else(newest)
    }

    /// The filter that chooses its runs; `None` where all runs are of it, none is, or the user did not want it.
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
