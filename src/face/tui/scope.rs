//! Scope of the result screens (runs, Pareto, compare): the runs of one experiment, or all stored runs.
//!
//! It is the experiment that the user ran or chose last; before that, the experiment of the newest run. Leaving screen 1
//! for a result screen chooses the selected experiment if it has stored runs and differs from the one chosen this way
//! before; leaving it for screen 2 before a sweep chooses it if it has stored runs. Its runs are those of its cells, from
//! any experiment, as in its stored result on screen 1. A key changes to all runs and back, or on screens 1 and 2 to the
//! experiment shown there. Each result screen names the scope before its filter.

use std::collections::HashSet;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::keymap::Action;
use super::prelude::*;
use study::analysis::filter::{Filter, Term, Test, complete_among};

/// Experiment that screen 1 or 2 shows, or that is the scope.
#[derive(Clone, Debug)]
pub struct ShownExperiment {
    pub name: String,
    /// [`table::Spec::key`] of each cell; `None` for the cells of the runs that it made or found stored.
    pub cells: Option<Arc<[String]>>,
}

impl ShownExperiment {
    pub fn named(name: String) -> Self {
        Self { name, cells: None }
    }

    fn is_same(&self, other: &Self) -> bool {
        let same_cells = match (&self.cells, &other.cells) {
            (Some(a), Some(b)) => Arc::ptr_eq(a, b),
            // a name without cells adds no information
            (_, None) => true,
            (None, Some(_)) => false,
        };
        self.name == other.name && same_cells
    }
}

/// Stored runs of an experiment's cells.
#[derive(Debug)]
pub struct ScopedRuns {
    pub experiment: String,
    /// Full run ids.
    runs: HashSet<String>,
    /// True if these are all stored runs.
    pub is_all: bool,
    /// True if the filter `experiment=NAME` finds the same cells.
    pub is_named: bool,
    /// Runs that this filter does not find: other experiments made them.
    pub by_others: usize,
}

impl ScopedRuns {
    /// Runs of an experiment; `None` if none are stored.
    fn new(experiment: &ShownExperiment, stored: &Snapshot) -> Option<Self> {
        let filter = Filter { terms: vec![Filter::is("experiment", &experiment.name)] };
        let rows = filter.rows(&stored.table).unwrap_or_default();
        let named: HashSet<usize> = rows.into_iter().map(|row| row as usize).collect();
        let wanted: Option<HashSet<&str>> =
            experiment.cells.as_ref().map(|cells| cells.iter().map(String::as_str).collect());
        let mut scoped = Self {
            experiment: experiment.name.clone(),
            runs: HashSet::new(),
            is_all: false,
            is_named: true,
            by_others: 0,
        };
        for (key, runs) in &stored.cells {
            let by_name = runs.iter().filter(|run| named.contains(*run)).count();
            let is_own = match &wanted {
                Some(cells) => cells.contains(key.as_str()),
                None => by_name > 0,
            };
            if !is_own {
                scoped.is_named &= by_name == 0;
                continue;
            }
            let has_numbers = |run: &usize| stored.records[*run].metrics.is_some();
            let is_found = runs.iter().any(|run| named.contains(run) && has_numbers(run));
            scoped.is_named &= is_found || !stored.known.contains_key(key);
            scoped.by_others += runs.len() - by_name;
            scoped.runs.extend(runs.iter().map(|run| stored.records[*run].run.clone()));
        }
        scoped.is_all = scoped.runs.len() == stored.records.len();
        (!scoped.runs.is_empty()).then_some(scoped)
    }

    pub fn holds(&self, run: &str) -> bool {
        self.is_all || self.runs.contains(run)
    }

    /// Reason a filter matches no run of the experiment: the term that none of them matches, with their values. `None` if
    /// it matches one, or has a single term that does.
    pub fn why_nothing(&self, filter: &Filter, stored: &Snapshot) -> Option<String> {
        /// Maximum number of values listed.
        const LISTED: usize = 6;
        let is_row = |row: usize| stored.records.get(row).is_some_and(|run| self.holds(&run.run));
        let count = |terms: Vec<Term>| {
            let rows = Filter { terms }.bind(&stored.table).0.rows(&stored.table);
            rows.into_iter().filter(|row| is_row(*row as usize)).count()
        };
        if count(filter.terms.clone()) > 0 {
            return None;
        }
        let counts: Vec<(&Term, usize)> =
            filter.terms.iter().map(|term| (term, count(vec![term.clone()]))).collect();
        let experiment = &self.experiment;
        let Some((term, _)) = counts.iter().find(|(_, count)| *count == 0) else {
            let each = |(term, count): &(&Term, usize)| format!("'{term}' ({})", counted(*count, "run"));
            let each: Vec<String> = counts.iter().map(each).collect();
            let all = || format!("no run of {experiment} matches all of {}", each.join(", "));
            return (each.len() > 1).then(all);
        };
        let values = match &term.test {
            Test::Field { name, .. } => {
                let (text, rows) = (format!("{name}:"), &is_row as &dyn Fn(usize) -> bool);
                let offers = complete_among(&text, text.len(), (&stored.table, rows), LISTED).offers;
                let values: Vec<String> = offers.into_iter().map(|offer| offer.text).collect();
                (!values.is_empty()).then(|| format!("; values of {name}: {}", values.join(", ")))
            }
            Test::Word { .. } => None,
        };
        Some(format!("no run of {experiment} matches '{term}'{}", values.unwrap_or_default()))
    }
}

/// Runs that a result screen shows: those of an experiment, or all.
#[derive(Clone, Debug, Default)]
pub struct RunScope(pub Option<Arc<ScopedRuns>>);

impl PartialEq for RunScope {
    fn eq(&self, other: &Self) -> bool {
        self.0.as_ref().map(Arc::as_ptr) == other.0.as_ref().map(Arc::as_ptr)
    }
}

impl RunScope {
    pub fn runs(&self) -> Option<&ScopedRuns> {
        self.0.as_deref()
    }

    /// Name before the filter: `[paper-70b]`, `[all runs]`.
    pub fn chip(&self) -> String {
        format!("[{}]", self.runs().map_or("all runs", |runs| runs.experiment.as_str()))
    }
}

/// Scope of this session.
#[derive(Debug, Default)]
pub struct ResultScope {
    /// Experiment that the user ran or chose last.
    shown: Option<ShownExperiment>,
    /// True if the user asked for all runs.
    pub is_all: bool,
    /// Experiment that screen 1 last made the scope; only another one becomes the scope by leaving that screen.
    followed: Option<String>,
    /// Runs of the experiment; `None` if none are stored.
    own: Option<Arc<ScopedRuns>>,
    /// Stored runs that `own` was taken from; `None` if the experiment changed since.
    basis: Option<Arc<Snapshot>>,
    /// Input of the latest completions of a filter.
    suggested: Option<SuggestedFor>,
}

/// Scope that the user chose, for undo.
#[derive(Clone, Debug)]
pub struct ScopeChoice {
    shown: Option<ShownExperiment>,
    /// Name of the experiment, also if it is that of the newest run.
    name: Option<String>,
    is_all: bool,
}

impl PartialEq for ScopeChoice {
    fn eq(&self, other: &Self) -> bool {
        (&self.name, self.is_all) == (&other.name, other.is_all)
    }
}

/// Scope saved between sessions.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct KeptScope {
    experiment: Option<String>,
    all: bool,
    followed: Option<String>,
}

/// Input of a filter's completions, which are computed again only if it changes.
#[derive(Debug)]
struct SuggestedFor {
    tab: Tab,
    text: String,
    cursor: usize,
    stored: Arc<Snapshot>,
}

impl PartialEq for SuggestedFor {
    fn eq(&self, other: &Self) -> bool {
        (self.tab, &self.text, self.cursor) == (other.tab, &other.text, other.cursor)
            && Arc::ptr_eq(&self.stored, &other.stored)
    }
}

impl ResultScope {
    pub fn runs(&self) -> RunScope {
        RunScope(self.own.clone().filter(|_| !self.is_all))
    }

    /// Stored runs of the experiment, also while the screens show all.
    pub fn own(&self) -> Option<&Arc<ScopedRuns>> {
        self.own.as_ref()
    }

    pub fn keep(&self) -> KeptScope {
        let experiment = self.shown.as_ref().map(|shown| shown.name.clone());
        KeptScope { experiment, all: self.is_all, followed: self.followed.clone() }
    }

    pub fn recall(&mut self, kept: &KeptScope) {
        self.shown = kept.experiment.clone().map(ShownExperiment::named);
        self.followed.clone_from(&kept.followed);
        (self.is_all, self.basis) = (kept.all, None);
    }

    pub fn choice(&self) -> ScopeChoice {
        let newest = || self.own.as_ref().map(|own| own.experiment.clone());
        let name = self.shown.as_ref().map(|shown| shown.name.clone()).or_else(newest);
        ScopeChoice { shown: self.shown.clone(), name, is_all: self.is_all }
    }

    /// Returns to a choice; returns the one before.
    pub fn return_to(&mut self, choice: ScopeChoice) -> ScopeChoice {
        let now = self.choice();
        (self.shown, self.is_all, self.basis) = (choice.shown, choice.is_all, None);
        now
    }

    /// Makes the selected experiment of screen 1 the scope.
    pub fn show_listed(&mut self, experiment: ShownExperiment) {
        self.followed = Some(experiment.name.clone());
        self.show(experiment);
    }

    /// Makes the selected experiment of screen 1 the scope if it has stored runs and differs from the last one followed.
    fn follow(&mut self, experiment: ShownExperiment, stored: Option<&Arc<Snapshot>>) {
        let stored = stored.filter(|_| self.followed.as_ref() != Some(&experiment.name));
        let own = stored.and_then(|stored| Some((ScopedRuns::new(&experiment, stored)?, stored)));
        let Some((own, stored)) = own else { return };
        self.show_listed(experiment);
        self.is_all = false;
        // unless the same experiment was the scope already
        if self.basis.is_none() {
            (self.own, self.basis) = (Some(Arc::new(own)), Some(Arc::clone(stored)));
        }
    }

    /// Makes the selected experiment of screen 1 the scope if it has stored runs, for its stored result.
    fn show_result(&mut self, experiment: ShownExperiment, stored: Option<&Arc<Snapshot>>) {
        let Some(stored) = stored else { return };
        if ScopedRuns::new(&experiment, stored).is_some() {
            self.show_listed(experiment);
            self.renew(stored);
        }
    }

    /// Makes an experiment the scope; all runs stay shown if it already was.
    pub fn show(&mut self, experiment: ShownExperiment) {
        if self.shown.as_ref().is_some_and(|shown| shown.is_same(&experiment)) {
            return;
        }
        let is_other = self.shown.as_ref().is_some_and(|shown| shown.name != experiment.name);
        self.is_all &= !is_other;
        (self.shown, self.basis) = (Some(experiment), None);
    }

    /// Takes up edits of the experiment in scope.
    fn update(&mut self, experiment: ShownExperiment) {
        if self.shown.as_ref().is_some_and(|shown| shown.name == experiment.name) {
            self.show(experiment);
        }
    }

    /// True if the result screens show the runs of this experiment, not all.
    fn is_of(&self, experiment: &ShownExperiment) -> bool {
        !self.is_all && self.shown.as_ref().is_some_and(|shown| shown.is_same(experiment))
    }

    /// Recomputes the experiment's runs if the experiment or the stored runs changed.
    fn renew(&mut self, stored: &Arc<Snapshot>) {
        if self.basis.as_ref().is_some_and(|basis| Arc::ptr_eq(basis, stored)) {
            return;
        }
        let newest = || stored.records.last()?.experiment.clone().map(ShownExperiment::named);
        let experiment = self.shown.clone().or_else(newest);
        let own = experiment.and_then(|experiment| ScopedRuns::new(&experiment, stored));
        (self.own, self.basis) = (own.map(Arc::new), Some(Arc::clone(stored)));
    }
}

/// Called after every message: narrows a result screen to the scope, and completes a filter that is typed. Cheap unless the
/// experiment, the stored runs or the text changed.
pub fn settle(state: &mut State) {
    let (screen, cx) = state.split(state.cx.tab);
    let status = screen.status(cx);
    if let Some(experiment) = status.experiment {
        // all runs stay shown until another experiment is selected
        if cx.tab == Tab::Experiments && cx.scope.is_all && cx.scope.followed.is_none() {
            cx.scope.followed = Some(experiment.name.clone());
        }
        cx.scope.update(experiment);
    }
    let Some(stored) = cx.stored.clone() else { return };
    cx.scope.renew(&stored);
    let scope = cx.scope.runs();
    let Some(filter) = screen.filter() else { return };
    let wanted = filter.typing.then(|| SuggestedFor {
        tab: cx.tab,
        text: filter.value().to_owned(),
        cursor: filter.field.cursor(),
        stored: Arc::clone(&stored),
    });
    if cx.scope.suggested != wanted {
        if wanted.is_some() {
            filter.suggest(&stored);
        }
        cx.scope.suggested = wanted;
    }
    if is_scoped(cx.tab) && filter.scope.as_ref() != Some(&scope) {
        let is_other = scope.runs().is_some_and(|runs| Some(&*runs.experiment) != filter.experiment());
        if filter.scope.replace(scope).is_some() && is_other && !filter.value().is_empty() {
            let clear = cx.keys.label(Action::Close);
            cx.inform(format!("the filter {} still applies: {clear} clears it", filter.value()));
        }
        screen.input(ScreenInput::Narrow, cx);
    }
}

/// Shows a screen by its key or tab. From screen 1 to a result screen, the selected experiment becomes the scope; also to
/// screen 2 if that has no sweep, only a stored result.
pub fn show_screen(state: &mut State, tab: Tab) {
    let from = state.cx.tab;
    let has_stored_result = tab == Tab::Live && state.live.experiment.is_none();
    let (screen, cx) = state.split(from);
    let is_chosen = from == Tab::Experiments && (is_scoped(tab) || has_stored_result);
    let chosen = is_chosen.then(|| screen.status(cx).experiment).flatten();
    cx.tab = tab;
    match chosen {
        Some(experiment) if has_stored_result => {
            cx.scope.show_result(experiment, cx.stored.as_ref());
        }
        Some(experiment) => cx.scope.follow(experiment, cx.stored.as_ref()),
        None => {}
    }
}

/// True for a result screen: its filter box has the scope.
pub fn is_scoped(tab: Tab) -> bool {
    matches!(tab, Tab::Runs | Tab::Pareto | Tab::Compare)
}

/// On a result screen, shows all runs instead of those of the experiment, or the reverse. On a screen that shows an
/// experiment, makes that the scope; all runs if it is already.
pub fn toggle(state: &mut State) {
    let (screen, cx) = state.split(state.cx.tab);
    let status = screen.status(cx);
    if let Some(experiment) = status.experiment {
        choose(experiment, cx);
    } else if !is_scoped(cx.tab) {
        cx.inform("this screen does not show the runs of one experiment");
    } else if cx.scope.own.is_none() {
        cx.inform("all runs are shown: screen 1 selects an experiment with stored runs");
    } else {
        cx.scope.is_all = !cx.scope.is_all;
    }
}

fn choose(experiment: ShownExperiment, cx: &mut Context) {
    let name = experiment.name.clone();
    let becomes_all = cx.scope.is_of(&experiment);
    match cx.tab {
        Tab::Experiments => cx.scope.show_listed(experiment),
        _ => cx.scope.show(experiment),
    }
    cx.scope.is_all = becomes_all;
    if let Some(stored) = cx.stored.clone() {
        cx.scope.renew(&stored);
    }
    cx.inform(match (becomes_all, cx.scope.own.is_some()) {
        (true, _) => "runs, pareto and compare show all runs".to_owned(),
        (false, true) => format!("runs, pareto and compare show the runs of {name}"),
        (false, false) => format!("no run of {name} is stored: runs, pareto and compare show all"),
    });
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::face::tui::tests::fixtures::{record, spec};
    use lab::store::{AnnotationEdit, Annotations};
    use table::{Backend, P2p, Record, Status};

    fn run(id: &str, batch: u32, experiment: &str) -> Record {
        let mut spec = spec("ladder", 2, P2p::On, Backend::Cpu);
        spec.batch = batch;
        Record { experiment: Some(experiment.into()), ..record(id, spec, 100.0) }
    }

    /// Runs of these cells among a snapshot: their ids, whether the experiment's name finds the cells, and the runs that
    /// others made.
    fn scoped(stored: &Snapshot, name: &str, batches: &[u32]) -> (Vec<String>, bool, usize) {
        let key = |batch: &u32| run("", *batch, "").spec.key();
        let cells = (!batches.is_empty()).then(|| batches.iter().map(key).collect());
        let runs = ScopedRuns::new(&ShownExperiment { name: name.into(), cells }, stored).unwrap();
        let mut ids: Vec<String> = runs.runs.iter().cloned().collect();
        ids.sort();
        (ids, runs.is_named, runs.by_others)
    }

    #[test]
    fn runs_of_an_experiment_are_those_of_its_cells_whoever_made_them() {
        let mut failed = run("c", 2, "a");
        (failed.status, failed.metrics) = (Status::Failed, None);
        // `b` ran a cell of `a` again, and one of its own
        let all = vec![run("a", 1, "a"), failed, run("d", 1, "b"), run("e", 4, "b")];
        let stored = Snapshot::new(all, Vec::new());
        let ids = |ids: &[&str]| ids.iter().map(|id| (*id).to_owned()).collect::<Vec<_>>();
        assert_eq!(scoped(&stored, "a", &[1, 2]), (ids(&["a", "c", "d"]), true, 1));
        assert_eq!(scoped(&stored, "a", &[]), (ids(&["a", "c", "d"]), true, 1));
        assert_eq!(scoped(&stored, "b", &[1, 4]), (ids(&["a", "d", "e"]), true, 1));
        // an experiment that was never run, and one whose file lost a cell
        assert_eq!(scoped(&stored, "new", &[1]), (ids(&["a", "d"]), false, 2));
        assert_eq!(scoped(&stored, "b", &[4]), (ids(&["e"]), false, 0));
        let nothing = ShownExperiment { name: "a".into(), cells: Some(Arc::default()) };
        assert!(ScopedRuns::new(&nothing, &stored).is_none());
        // a run that a sweep found stored counts as its own
        let mut annotations = Annotations::default();
        annotations.edit(&["a".into()], &AnnotationEdit::found_by("new"));
        let stored = stored.with(Arc::new(annotations));
        assert_eq!(scoped(&stored, "new", &[1]), (ids(&["a", "d"]), true, 1));
    }
}
