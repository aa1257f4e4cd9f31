//! Questions about open traces that take longer than a key press may: asked by the state, answered on a
//! thread.

use std::sync::Arc;

use super::index::{StepKey, TraceIndex};
use super::measure::Measured;
use super::overview::Overview;
use super::panel::Panel;
use super::path::CriticalPath;
use super::view::View;
use crate::base::error::{Error, Result};
use crate::desk::resimulate;
use crate::face::tui::format;
use crate::machine::hardware::{Profile, STACKS};
use crate::study::analysis::{self, OperationDifferences};
use crate::table::{Backend, Spec};

/// The profile that stands in where the run's hardware has none.
const STAND_IN: &str = "h100_sxm";

/// A question about a trace that takes a while to answer.
#[derive(Clone, Debug)]
pub enum Ask {
    /// The whole trace in so many columns.
    Overview(Arc<TraceIndex>, usize),
    /// Numbers of a stretch (ns of the trace).
    Measure(Arc<TraceIndex>, crate::face::tui::screens::timeline::state::window::Window),
    /// The critical path of a step.
    Path(Arc<TraceIndex>, StepKey),
    /// What a step of the first took otherwise than one of the second.
    Compare([Arc<TraceIndex>; 2], (StepKey, StepKey)),
    /// What the simulator says of a run.
    Predict(Arc<TraceIndex>, Prediction),
}

/// On what a run is simulated.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Prediction {
    /// Hardware profile: name or file.
    pub hardware: String,
    /// Software stack: name or file.
    pub stack: String,
    /// The last decode step that is looked at.
    pub step: u32,
}

/// The answer to a question about a trace.
#[derive(Clone, Debug)]
pub enum Answer {
    /// The whole trace in a row.
    Overview(Arc<TraceIndex>, Arc<Overview>),
    /// Numbers of a stretch.
    Measured(Arc<TraceIndex>, Arc<Measured>),
    /// The critical path of a step of the trace.
    Path(Arc<TraceIndex>, Arc<CriticalPath>),
    /// The differences of two traces, by operation.
    Compared([Arc<TraceIndex>; 2], Arc<OperationDifferences>),
    /// A prediction, and on what; or why there is none.
    Predicted(Arc<TraceIndex>, std::result::Result<(Arc<TraceIndex>, String), String>),
}

impl Ask {
    /// Answers it; takes its time.
    pub fn answer(self) -> Answer {
        match self {
            Self::Overview(index, columns) => {
                let overview = Arc::new(Overview::of(&index, columns));
                Answer::Overview(index, overview)
            }
            Self::Measure(index, window) => {
                let measured = Arc::new(Measured::of(&index, window));
                Answer::Measured(index, measured)
            }
            Self::Path(index, key) => {
                let path = Arc::new(CriticalPath::of(&index.trace, key));
                Answer::Path(index, path)
            }
            Self::Compare(traces, (a, b)) => {
                let [above, below] = &traces;
                let report = analysis::operation_differences(&above.trace, a, &below.trace, b);
                Answer::Compared(traces, Arc::new(report))
            }
            Self::Predict(index, on) => {
                let result = predict(&index, &on).map_err(|error| format::error(&error));
                Answer::Predicted(index, result)
            }
        }
    }
}

impl Prediction {
    /// What is proposed for a run: its own hardware and stack where they are known, else a stand-in.
    pub fn proposed(spec: &Spec, step: u32) -> Self {
        let is_file = |name: &str| name.ends_with(".toml");
        let known = Profile::names().contains(&spec.hardware.as_str()) || is_file(&spec.hardware);
        let stack = STACKS.contains(&spec.stack.as_str()) || is_file(&spec.stack);
        Self {
            hardware: if known { spec.hardware.clone() } else { STAND_IN.into() },
            stack: if stack { spec.stack.clone() } else { STACKS[0].into() },
            step,
        }
    }

    /// What was typed: a profile, and a stack.
    pub fn parse(text: &str, step: u32) -> std::result::Result<Self, String> {
        let words: Vec<&str> = text.split_whitespace().collect();
        match words[..] {
            [hardware] => Ok(Self { hardware: hardware.into(), stack: STACKS[0].into(), step }),
            [hardware, stack] => Ok(Self { hardware: hardware.into(), stack: stack.into(), step }),
            _ => Err(format!(
                "type a hardware profile and a stack: one of {}, and one of {}, or files",
                Profile::names().join(", "),
                STACKS.join(", ")
            )),
        }
    }
}

/// Simulates a run's cell, at least up to the step that is looked at.
fn predict(index: &TraceIndex, on: &Prediction) -> Result<(Arc<TraceIndex>, String)> {
    let Some(run) = &index.trace.meta.spec else {
        return Err(Error::input(
            "an imported trace does not tell what was run: nothing can be predicted",
        ));
    };
    let spec = Spec {
        backend: Backend::Sim,
        hardware: on.hardware.clone(),
        stack: on.stack.clone(),
        ..run.clone()
    };
    let (trace, part) = resimulate(&spec, Some(on.step))?;
    let part = part.map(|part| format!(", {part}")).unwrap_or_default();
    let mut said = format!("{}, stack {}{part}", on.hardware, on.stack);
    if run.hardware != on.hardware {
        said.push_str(&format!(" (the run: {})", run.hardware));
    }
    let title = format!("{} {} {}", spec.model, spec.label(), spec.link);
    Ok((Arc::new(TraceIndex::new(title, trace)), said))
}

impl View {
    /// Takes an answer in; an error that the user is to be told.
    pub fn learn(&mut self, answer: Answer) -> std::result::Result<(), String> {
        let is = |a: &Arc<TraceIndex>, b: &Arc<TraceIndex>| Arc::ptr_eq(a, b);
        match answer {
            Answer::Overview(of, overview) => {
                for pane in self.panes.iter_mut().filter(|pane| is(&pane.index, &of)) {
                    pane.overview = Some(overview.clone());
                    pane.asked.overview = None;
                }
            }
            Answer::Measured(of, measured) => {
                let asked = |pane: &super::Pane| pane.asked.measured == Some(measured.window);
                for pane in self.panes.iter_mut().filter(|pane| is(&pane.index, &of) && asked(pane)) {
                    pane.measured = Some(measured.clone());
                    pane.asked.measured = None;
                }
            }
            Answer::Path(of, path) => {
                let asked = |pane: &super::Pane| pane.asked.path == Some(path.key);
                for pane in self.panes.iter_mut().filter(|pane| is(&pane.index, &of) && asked(pane)) {
                    pane.path = Some(path.clone());
                    pane.asked.path = None;
                }
            }
            Answer::Compared([above, below], report) => {
                self.comparing = false;
                if let [a, b] = &self.panes[..]
                    && is(&a.index, &above)
                    && is(&b.index, &below)
                {
                    self.differences = Some(report);
                }
            }
            Answer::Predicted(of, result) => {
                self.predicting = false;
                if is(&self.panes[0].index, &of) {
                    let (index, said) = result?;
                    self.add_ghost(index, said);
                }
            }
        }
        Ok(())
    }

    /// After anything that may have changed: the selection reaches the cursor, steps are aligned, lists
    /// are within their bounds; and what is to be asked now. `columns`: of the lanes; `rows`: of the list.
    pub fn settle(&mut self, columns: usize, rows: usize) -> Vec<Ask> {
        self.extend_to_cursor();
        self.follow_steps();
        if let Some(mut panel) = self.panel.take() {
            let len = panel.rows(self.differences.as_deref());
            panel.list().fit(len, rows);
            self.panel = Some(panel);
        }
        let (stretch, time, focus, lit) = (self.stretch(), self.time, self.focus, self.lit);
        let mut asks = Vec::new();
        for (at, pane) in self.panes.iter_mut().enumerate() {
            let drawn = pane.overview.as_ref().map(|overview| overview.columns.len());
            if columns > 0 && drawn != Some(columns) && pane.asked.overview != Some(columns) {
                pane.asked.overview = Some(columns);
                asks.push(Ask::Overview(pane.index.clone(), columns));
            }
            let stretch = stretch.map(|stretch| pane.window(stretch));
            let known = pane.measured.as_ref().map(|measured| measured.window);
            if let Some(stretch) = stretch
                && known != Some(stretch)
                && pane.asked.measured.is_none()
            {
                pane.asked.measured = Some(stretch);
                asks.push(Ask::Measure(pane.index.clone(), stretch));
            }
            let key = pane.step_key(time, at == focus).filter(|_| lit);
            if let Some(key) = key
                && pane.path.as_ref().is_none_or(|path| path.key != key)
                && pane.asked.path.is_none()
            {
                pane.asked.path = Some(key);
                asks.push(Ask::Path(pane.index.clone(), key));
            }
        }
        if matches!(self.panel, Some(Panel::Differences { .. }))
            && !self.comparing
            && !self.compares_now()
            && let Ok(steps) = self.steps_to_compare()
            && let [a, b] = &self.panes[..]
        {
            asks.push(Ask::Compare([a.index.clone(), b.index.clone()], steps));
            self.comparing = true;
        }
        asks
    }
}
