//! State of screen 2: the sweep that runs, or ran last, told by its events.

use std::collections::{BTreeSet, VecDeque};

use crate::backend::RunEvent;
use crate::spec::Spec;
use crate::store::{Record, Status};
use crate::sweep::{Experiment, SweepEvent, Verdict};
use crate::tui::message::Ended;
use crate::tui::state::List;

/// Lines of a cell's log that are kept.
const LOG_LINES: usize = 200;

/// State of the live screen.
#[derive(Debug, Default)]
pub struct Live {
    /// Name of the experiment; `None` before the first sweep.
    pub experiment: Option<String>,
    /// Its cells.
    pub cells: Vec<LiveCell>,
    /// Passes over the cells.
    pub rounds: u32,
    /// When the sweep was started (ms of the workbench's clock).
    pub started_ms: u64,
    /// When it ended, and how; `None` while it runs.
    pub ended: Option<(u64, Ended)>,
    /// The whole sweep is being cancelled.
    pub cancelling: bool,
    /// The selection.
    pub list: List,
    /// Runs that were executed (not found finished) by now.
    executed: usize,
}

/// What a cell is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CellState {
    /// Its next run has not begun.
    Queued,
    /// A run goes on.
    Running,
    /// Its last run ended so.
    Done(Status),
}

impl CellState {
    /// A glyph, so that colour is never alone.
    pub fn glyph(self) -> &'static str {
        match self {
            Self::Queued => "…",
            Self::Running => "▶",
            Self::Done(status) => status.glyph(),
        }
    }

    /// In a word.
    pub fn word(self) -> &'static str {
        match self {
            Self::Queued => "queued",
            Self::Running => "running",
            Self::Done(status) => status.as_str(),
        }
    }
}

/// A cell of the sweep.
#[derive(Clone, Debug)]
pub struct LiveCell {
    /// What it runs.
    pub spec: Spec,
    /// What it is doing.
    pub state: CellState,
    /// The round of its current or last run, from 0.
    pub round: u32,
    /// What its run is doing now, or why it will not run.
    pub note: String,
    /// Samples done and in all, of the current run.
    pub samples: (u32, u32),
    /// Throughput of the newest sample or of the run (tokens/s).
    pub tokens_per_s: Option<f64>,
    /// TPOT of the newest sample or of the run (ms).
    pub tpot_ms: Option<f64>,
    /// When the current run began (ms of the workbench's clock).
    pub since_ms: Option<u64>,
    /// How long the last run took (ms).
    pub took_ms: Option<u64>,
    /// Its last run's record.
    pub record: Option<Box<Record>>,
    /// The last lines that its runs wrote.
    pub log: VecDeque<String>,
    /// The cell was cancelled by the user.
    pub cancelled: bool,
    settled: BTreeSet<u32>,
}

/// How far a sweep is.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Progress {
    /// Runs that need no more work.
    pub done: usize,
    /// Runs in all: cells times rounds.
    pub total: usize,
    /// The share that is done, 0 to 1, parts of a run included.
    pub fraction: f64,
    /// Time left (ms), once a run has been executed.
    pub left_ms: Option<u64>,
}

impl Live {
    /// Begins a sweep.
    pub fn start(&mut self, experiment: &Experiment, now_ms: u64) {
        *self = Self {
            experiment: Some(experiment.name.clone()),
            cells: experiment.cells.iter().map(|c| LiveCell::new(&c.spec, &c.verdict)).collect(),
            rounds: experiment.rounds.max(1),
            started_ms: now_ms,
            ..Self::default()
        };
    }

    /// Whether a sweep is under way.
    pub fn is_running(&self) -> bool {
        self.experiment.is_some() && self.ended.is_none()
    }

    /// The selected cell.
    pub fn selected(&self) -> Option<&LiveCell> {
        self.cells.get(self.list.selected)
    }

    /// The sweep ended: what was queued will not run.
    pub fn end(&mut self, ended: Ended, now_ms: u64) {
        self.ended = Some((now_ms, ended));
        for cell in &mut self.cells {
            if cell.state == CellState::Running {
                cell.state = CellState::Done(Status::Interrupted);
                cell.took_ms = cell.since_ms.map(|since| now_ms.saturating_sub(since));
            }
        }
    }

    /// Takes an event of the sweep.
    pub fn apply(&mut self, event: SweepEvent, now_ms: u64) {
        let rounds = self.rounds;
        match event {
            SweepEvent::CellSettled { cell, round, record } => {
                let Some(cell) = self.cells.get_mut(cell) else { return };
                if matches!(record.status, Status::Skipped | Status::Oom) {
                    cell.settled.extend(0..rounds);
                } else {
                    cell.settled.insert(round);
                }
                cell.finish(round, record);
            }
            // runs were told one by one
            SweepEvent::CellDone { .. } => {}
            SweepEvent::RunStarted { cell, round, run } => {
                let Some(cell) = self.cells.get_mut(cell) else { return };
                cell.state = CellState::Running;
                cell.round = round;
                cell.samples = (0, cell.spec.samples);
                cell.since_ms = Some(now_ms);
                cell.note = format!("run {run}");
            }
            SweepEvent::Run { cell, round, event } => {
                let Some(cell) = self.cells.get_mut(cell) else { return };
                cell.round = round;
                cell.hear(event);
            }
            SweepEvent::Log { cell, line } => {
                if let Some(cell) = self.cells.get_mut(cell) {
                    cell.log_line(line);
                }
            }
            SweepEvent::RunEnded { cell, round, record } => {
                let Some(cell) = self.cells.get_mut(cell) else { return };
                self.executed += 1;
                cell.settled.insert(round);
                cell.took_ms = cell.since_ms.take().map(|since| now_ms.saturating_sub(since));
                cell.finish(round, record);
            }
        }
    }

    /// How far the sweep is.
    pub fn progress(&self, now_ms: u64) -> Progress {
        let total = self.cells.len() * self.rounds as usize;
        let done: usize = self.cells.iter().map(|c| c.settled.range(..self.rounds).count()).sum();
        let partial: f64 = self.cells.iter().map(LiveCell::partial).sum();
        let worked = self.executed as f64 + partial;
        let left = (total - done) as f64 - partial;
        let elapsed = now_ms.saturating_sub(self.started_ms) as f64;
        let left_ms = (self.ended.is_none() && worked >= 0.05 && left >= 0.0)
            .then(|| (elapsed / worked * left).min(u64::MAX as f64) as u64);
        let fraction = if total == 0 { 1.0 } else { ((done as f64 + partial) / total as f64).min(1.0) };
        Progress { done, total, fraction, left_ms }
    }

    /// The cell whose log is worth showing: the selected one, if it said anything or ended, else the running one.
    pub fn log_cell(&self) -> Option<&LiveCell> {
        let selected = self.selected()?;
        if !selected.log.is_empty() || selected.state != CellState::Queued {
            return Some(selected);
        }
        self.cells.iter().find(|c| c.state == CellState::Running).or(Some(selected))
    }
}

impl LiveCell {
    fn new(spec: &Spec, verdict: &Verdict) -> Self {
        let (state, note) = match verdict {
            Verdict::Runs => (CellState::Queued, String::new()),
            Verdict::Skipped(why) => (CellState::Done(Status::Skipped), why.clone()),
            Verdict::Oom(why) => (CellState::Done(Status::Oom), why.clone()),
        };
        Self {
            spec: spec.clone(),
            state,
            round: 0,
            note,
            samples: (0, spec.samples),
            tokens_per_s: None,
            tpot_ms: None,
            since_ms: None,
            took_ms: None,
            record: None,
            log: VecDeque::new(),
            cancelled: false,
            settled: BTreeSet::new(),
        }
    }

    /// The part of the current run that is done, 0 to 1.
    fn partial(&self) -> f64 {
        match (self.state, self.samples) {
            (CellState::Running, (done, of)) if of > 0 => f64::from(done.min(of)) / f64::from(of),
            _ => 0.0,
        }
    }

    fn log_line(&mut self, line: String) {
        if self.log.len() == LOG_LINES {
            self.log.pop_front();
        }
        self.log.push_back(line);
    }

    fn hear(&mut self, event: RunEvent) {
        match event {
            RunEvent::Phase { name } => self.note = name,
            RunEvent::SampleDone { index, of, sample } => {
                self.samples = (index.saturating_add(1), of);
                let completion = sample.prefill_ms + sample.decode_ms;
                let tokens = f64::from(self.spec.batch) * f64::from(self.spec.output_tokens);
                self.tokens_per_s = (completion > 0.0).then(|| tokens / completion * 1e3);
                let steps = self.spec.output_tokens.saturating_sub(1);
                self.tpot_ms = (steps > 0).then(|| sample.decode_ms / f64::from(steps));
            }
            RunEvent::Warning { message } => self.log_line(format!("warning: {message}")),
            RunEvent::Error { message, .. } => self.log_line(format!("error: {message}")),
            RunEvent::Memory { .. } | RunEvent::End { .. } => {}
        }
    }

    fn finish(&mut self, round: u32, record: Box<Record>) {
        self.round = round;
        self.state = CellState::Done(record.status);
        self.since_ms = None;
        self.note = record.reason.clone().unwrap_or_default();
        if let Some(metrics) = &record.metrics {
            self.samples = (metrics.samples, metrics.samples);
            self.tokens_per_s = Some(metrics.tokens_per_s);
            self.tpot_ms = Some(metrics.tpot_ms.p50);
        }
        self.record = Some(record);
    }
}
