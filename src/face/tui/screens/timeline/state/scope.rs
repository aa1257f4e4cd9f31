//! Scope of a table below the lanes: the user's choice, and the part of the trace it currently refers to.

use std::sync::Arc;

use super::index::{StepKey, TraceIndex};
use super::search::Words;
use super::view::View;
use crate::face::tui::screens::timeline::state::window::Window;
use plan::Phase;
use study::analysis::{self, ExposedStretches, LaneTotal, OperationTable};
use trace::overlap::Selection;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Scope {
    /// Whole trace: every step of every rank.
    #[default]
    All,
    /// All steps of a phase, if the trace has both.
    Phase(Phase),
    Step,
    /// Selection, or the interval between the marks.
    Stretch,
    Hits,
}

/// Part of a trace that a scope currently refers to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Part {
    /// Whole trace; also the fallback if a scope matches nothing.
    All,
    Phase(Phase),
    /// Prefill or decode step of one sample.
    Step(StepKey),
    /// Time interval (ns of the trace).
    Stretch(Window),
    /// Operations whose names contain all words of a search.
    Hits(String),
}

impl Scope {
    /// Scopes of operations tables, in cycling order.
    pub const OF_OPERATIONS: [Self; 4] = [Self::All, Self::Step, Self::Stretch, Self::Hits];

    /// Scopes of exposed-stretch lists, in cycling order. Decode comes first because the stretches of a
    /// prefill would dominate.
    pub const OF_STRETCHES: [Self; 5] =
        [Self::Phase(Phase::Decode), Self::Phase(Phase::Prefill), Self::All, Self::Step, Self::Stretch];

    /// Next scope in `all` that currently matches something.
    pub fn next(self, view: &View, all: &[Self]) -> Self {
        let at = all.iter().position(|scope| *scope == self).unwrap_or(0);
        let mut behind = all.iter().cycle().skip(at + 1).take(all.len());
        behind.find(|scope| scope.of_view(view).is_some()).copied().unwrap_or_default()
    }

    fn of_view(self, view: &View) -> Option<Part> {
        let pane = view.pane();
        match self {
            Self::All => Some(Part::All),
            Self::Phase(phase) => {
                let steps = &pane.index.steps;
                let has = |wanted| steps.iter().any(|step| step.key.phase == wanted);
                (has(Phase::Prefill) && has(Phase::Decode)).then_some(Part::Phase(phase))
            }
            Self::Step => pane.step_key(view.time, true).map(Part::Step),
            Self::Stretch => view.stretch().map(|stretch| Part::Stretch(pane.window(stretch))),
            Self::Hits => {
                let query = view.search.line.value();
                (!query.trim().is_empty()).then(|| Part::Hits(query.to_owned()))
            }
        }
    }

    /// Current part; the whole trace if the scope no longer matches anything.
    pub fn part(self, view: &View) -> Part {
        self.of_view(view).unwrap_or(Part::All)
    }
}

impl Part {
    pub fn label(&self) -> String {
        match self {
            Self::All => "the whole trace".into(),
            Self::Phase(phase) => phase.as_str().into(),
            Self::Step(key) => key.label(),
            Self::Stretch(_) => "the selection".into(),
            Self::Hits(query) => format!("what /{query} finds"),
        }
    }

    fn selection(&self, index: &TraceIndex) -> Selection {
        let since = |time: i64| Some(time.saturating_sub(index.zero));
        match self {
            Self::All | Self::Hits(_) => Selection::default(),
            Self::Phase(phase) => Selection { phase: Some(*phase), ..Selection::default() },
            Self::Step(key) => Selection::of_step(*key),
            Self::Stretch(window) => Selection {
                from_ns: since(window.from),
                to_ns: since(window.to),
                ..Selection::default()
            },
        }
    }

    /// Total time per lane. Linear in the spans of the trace.
    pub fn totals(&self, index: &TraceIndex) -> Vec<LaneTotal> {
        let words = self.words();
        analysis::lane_totals(&index.trace, &self.selection(index), |o| words.are_in(&o.name))
    }

    fn words(&self) -> Words {
        Words::new(if let Self::Hits(query) = self { query } else { "" })
    }

    /// Operations by name. Linear in the spans of the trace.
    pub fn operations(&self, index: &TraceIndex) -> OperationTable {
        let words = self.words();
        analysis::operation_table(&index.trace, &self.selection(index), |o| words.are_in(&o.name))
    }

    /// Longest exposed stretches. Linear in the spans of the trace.
    pub fn stretches(&self, index: &TraceIndex) -> ExposedStretches {
        analysis::exposed_stretches(&index.trace, &self.selection(index))
    }
}

/// Table with the part of the trace it covers.
#[derive(Clone, Debug)]
pub struct Counted<T> {
    pub pane: usize,
    pub part: Part,
    pub table: Arc<T>,
}

impl<T> Counted<T> {
    /// True if the table covers what is currently wanted.
    pub fn is_of(&self, scope: Scope, view: &View) -> bool {
        self.pane == view.focus && self.part == scope.part(view)
    }
}
