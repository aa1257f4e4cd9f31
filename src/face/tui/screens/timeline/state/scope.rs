//! Which part of a trace a table beneath the lanes is of: what the user chose, and what that is at the moment.

use std::sync::Arc;

use super::index::{StepKey, TraceIndex};
use super::search::Words;
use super::view::View;
use crate::face::tui::screens::timeline::state::window::Window;
use plan::Phase;
use study::analysis::{self, ExposedStretches, LaneTotal, OperationTable};
use trace::overlap::Selection;

/// The part that a user chose.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Scope {
    /// The whole trace: every step of every rank.
    #[default]
    All,
    /// All steps of a phase, where the trace has both.
    Phase(Phase),
    /// The step under the cursor, wherever that goes.
    Step,
    /// What is selected, or lies between the marks.
    Stretch,
    /// What the search finds.
    Hits,
}

/// The part of a trace that a scope comes to at the moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Part {
    /// The whole trace; also where a scope comes to nothing at the moment.
    All,
    /// All steps of a phase.
    Phase(Phase),
    /// A prefill or a decode step of one sample.
    Step(StepKey),
    /// A stretch of time (ns of the trace).
    Stretch(Window),
    /// Operations whose names have all words of a search.
    Hits(String),
}

impl Scope {
    /// What tables of operations are of, in the order in which a key goes through it.
    pub const OF_OPERATIONS: [Self; 4] = [Self::All, Self::Step, Self::Stretch, Self::Hits];

    /// What lists of exposed stretches are of: decoding first, whose stretches those of a prefill would hide.
    pub const OF_STRETCHES: [Self; 5] =
        [Self::Phase(Phase::Decode), Self::Phase(Phase::Prefill), Self::All, Self::Step, Self::Stretch];

    /// The next of these that is of something.
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

    /// What it is at the moment; the whole trace where it is of nothing any more.
    pub fn part(self, view: &View) -> Part {
        self.of_view(view).unwrap_or(Part::All)
    }
}

impl Part {
    /// What to call it: `step 3`.
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

    /// What its operations took together, lane by lane. Takes as long as the trace has spans.
    pub fn totals(&self, index: &TraceIndex) -> Vec<LaneTotal> {
        let words = self.words();
        analysis::lane_totals(&index.trace, &self.selection(index), |o| words.are_in(&o.name))
    }

    /// The words that its operations' names have.
    fn words(&self) -> Words {
        Words::new(if let Self::Hits(query) = self { query } else { "" })
    }

    /// Its operations by name. Takes as long as the trace has spans.
    pub fn operations(&self, index: &TraceIndex) -> OperationTable {
        let words = self.words();
        analysis::operation_table(&index.trace, &self.selection(index), |o| words.are_in(&o.name))
    }

    /// Its longest stretches of exposed communication. Takes as long as the trace has spans.
    pub fn stretches(&self, index: &TraceIndex) -> ExposedStretches {
        analysis::exposed_stretches(&index.trace, &self.selection(index))
    }
}

/// A table and what it is of.
#[derive(Clone, Debug)]
pub struct Counted<T> {
    /// The pane whose trace was counted.
    pub pane: usize,
    /// The part of that trace.
    pub part: Part,
    /// The table of what was counted in that part.
    pub table: Arc<T>,
}

impl<T> Counted<T> {
    /// Whether it is of what is wanted now.
    pub fn is_of(&self, scope: Scope, view: &View) -> bool {
        self.pane == view.focus && self.part == scope.part(view)
    }
}
