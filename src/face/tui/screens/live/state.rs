//! State of screen 2: the sweep that runs, or ran last, told by its events.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use super::progress::Doing;
use crate::face::tui::message::Ended;
use crate::face::tui::prelude::*;
use lab::sweep::{Choice, Experiment, SweepEvent};
use run::Feasibility;
use run::{RunEvent, StepLanes};
use study::analysis::Varied;
use study::answer::Answer;
use table::{Metrics, Record, Spec, Status};

/// Lines of a cell's log that are kept.
const LOG_LINES: usize = 200;

/// State of the live screen.
#[derive(Debug, Default)]
pub struct Live {
    /// Name of the experiment; `None` before the first sweep.
    pub experiment: Option<String>,
    /// The cells of the sweep, in the order of its grid.
    pub cells: Vec<LiveCell>,
    /// How often each cell is run, a pass over all cells after the other.
    pub rounds: u32,
    /// When the sweep was started (ms of the workbench's clock).
    pub started_ms: u64,
    /// When it ended, and how; `None` while it runs.
    pub ended: Option<(u64, Ended)>,
    /// The whole sweep is being cancelled.
    pub cancelling: bool,
    /// The rows, which of them is selected, and which are shown.
    pub list: List,
    /// The selection follows the cell under way.
    pub follow: bool,
    /// Whether runs are started.
    pub pause: Pause,
    /// Since when the sweep waits to be resumed, and how long it has waited before (ms).
    paused_since: Option<u64>,
    /// The evaluation of quality under way.
    pub evaluation: Option<Evaluation>,
    /// What was said of evaluations last.
    pub note: Option<String>,
    /// How long the sweep waited to be resumed before (ms).
    paused_ms: u64,
    /// The sweep, to be run again.
    pub source: Option<Arc<Experiment>>,
    /// Sweeps that wait for this one.
    pub queue: Vec<Queued>,
    /// The queue takes the keys.
    pub in_queue: bool,
    /// The rows of the queue, and which of them is selected.
    pub queue_list: List,
    /// Lines of the log that lie below the window.
    pub log_scroll: usize,
    /// Finished runs that other screens have not seen yet.
    pub fresh: Vec<Record>,
    /// Such runs are being handed over; when that began last (ms of the workbench's clock).
    pub handing: bool,
    /// When handing runs over began last (ms of the workbench's clock).
    pub handed_ms: u64,
    /// Runs that were executed (not found finished) by now.
    executed: usize,
    /// What the cells differ in.
    pub varied: Varied,
    /// Cells of which a second round has ended or a later one, and whose numbers are still those before it.
    pub unpooled: Vec<usize>,
    /// What the sweep answers, since it has ended; `None` until that is known.
    pub answers: Option<Vec<Answer>>,
    /// The experiment that was run last, while no sweep was started and the answer is of its stored runs.
    pub earlier: Option<String>,
    /// The lines that say what is answered, in so many columns.
    pub told: (usize, Vec<(String, Role)>),
    /// How many of them lie above the first one shown.
    pub result_scroll: usize,
    /// The selected cell is described although there is an answer.
    pub show_cell: bool,
}

/// Whether a sweep starts runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Pause {
    /// The sweep starts runs as they come.
    #[default]
    No,
    /// It was asked not to; a run still goes on.
    Asked,
    /// It does not, and none goes on.
    Yes,
}

/// A sweep that waits for its turn.
#[derive(Clone, Debug)]
pub struct Queued {
    /// The experiment that waits.
    pub experiment: Arc<Experiment>,
    /// Which of the experiment's runs are started: those that are missing, that failed, or all.
    pub choice: Choice,
}

impl Queued {
    /// What the sweep is called in the queue: `quickstart`, or `quickstart (what failed)`.
    pub fn title(&self) -> String {
        let which = match self.choice {
            Choice::Missing => "",
            Choice::All => " (all again)",
            Choice::Failed => " (what failed)",
        };
        format!("{}{which}", self.experiment.name)
    }
}

/// What is known of a cell apart from its runs.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Looked {
    /// What one rank needs of memory by the plan (bytes); `None` where nobody knows.
    pub rank_bytes: Option<u64>,
    /// The lanes of its first decode step, where it is simulated.
    pub simulated: Vec<StepLanes>,
}

/// What a cell is doing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CellState {
    /// Its next run has not begun.
    #[default]
    Queued,
    /// A run goes on.
    Running,
    /// No run goes on, and the cell's last one ended with this status.
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

    /// The word by which the screen calls it.
    pub fn word(self) -> &'static str {
        match self {
            Self::Queued => "queued",
            Self::Running => "running",
            Self::Done(status) => status.as_str(),
        }
    }
}

/// A cell of the sweep.
#[derive(Clone, Debug, Default)]
pub struct LiveCell {
    /// What the cell asks for, with every default filled in.
    pub spec: Spec,
    /// What it is doing.
    pub state: CellState,
    /// The round of its current or last run, from 0.
    pub round: u32,
    /// What its run is doing now, or why it will not run.
    pub note: String,
    /// Samples done and in all, of the current run.
    pub samples: (u32, u32),
    /// Throughput (tokens/s): of the rounds that have ended together, before the first has of its newest sample.
    pub tokens_per_s: Option<f64>,
    /// TPOT (ms), of the same samples.
    pub tpot_ms: Option<f64>,
    /// The 95 % interval of the TPOT (ms), once there are samples enough.
    pub tpot_ms_ci95: Option<[f64; 2]>,
    /// The rounds that ended well.
    pub rounds: BTreeMap<u32, Arc<Record>>,
    /// When the current run began (ms of the workbench's clock).
    pub since_ms: Option<u64>,
    /// How long the last run took (ms).
    pub took_ms: Option<u64>,
    /// Its last run's record.
    pub record: Option<Arc<Record>>,
    /// The last lines that its runs wrote.
    pub log: VecDeque<String>,
    /// How far its run is, step by step.
    pub doing: Doing,
    /// What is known of it apart from its runs; `None` until that was asked.
    pub looked: Option<Looked>,
    /// The cell was cancelled by the user.
    pub cancelled: bool,
    settled: BTreeSet<u32>,
    /// Rounds that failed or were interrupted.
    pub bad: BTreeMap<u32, Status>,
}

/// How far a sweep is.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Progress {
    /// Runs that need no more work.
    pub done: usize,
    /// Runs in all: cells that can run, times rounds.
    pub total: usize,
    /// Cells that cannot run.
    pub unable: usize,
    /// The share that is done, 0 to 1, parts of a run included.
    pub fraction: f64,
    /// Time left (ms), once a run has been executed.
    pub left_ms: Option<u64>,
}

/// How far an evaluation of quality is.
#[derive(Clone, Debug)]
pub struct Evaluation {
    /// What is evaluated, in words.
    pub what: String,
    /// Windows times architectures that are computed or found, those of them that were found, and all.
    pub done: usize,
    found: usize,
    /// Windows times architectures in the whole evaluation.
    pub of: usize,
    since_ms: u64,
}

impl Evaluation {
    /// Time left (ms), once something was computed.
    pub fn left_ms(&self, now_ms: u64) -> Option<u64> {
        let computed = self.done.checked_sub(self.found).filter(|computed| *computed > 0)?;
        let each = now_ms.saturating_sub(self.since_ms) as f64 / computed as f64;
        Some((each * (self.of - self.done) as f64) as u64)
    }
}

impl Live {
    /// Shows a sweep that begins.
    pub fn start(&mut self, experiment: &Arc<Experiment>, now_ms: u64) {
        *self = Self {
            follow: true,
            source: Some(Arc::clone(experiment)),
            queue: std::mem::take(&mut self.queue),
            in_queue: self.in_queue,
            queue_list: self.queue_list,
            experiment: Some(experiment.name.clone()),
            cells: experiment.cells.iter().map(|c| LiveCell::new(&c.spec, &c.feasibility)).collect(),
            rounds: experiment.rounds.max(1),
            varied: Varied::of(experiment.cells.iter().map(|cell| &cell.spec)),
            started_ms: now_ms,
            ..Self::default()
        };
    }

    /// Whether a sweep is under way.
    pub fn is_running(&self) -> bool {
        self.experiment.is_some() && self.ended.is_none()
    }

    /// A cell by what sets it apart from the others of the sweep.
    pub fn title(&self, spec: &Spec) -> String {
        if self.varied.is_empty() { spec.label() } else { self.varied.words(spec) }
    }

    /// The cell that is selected.
    pub fn selected(&self) -> Option<&LiveCell> {
        self.cells.get(self.list.selected)
    }

    /// The sweep ended: what was queued will not run.
    pub fn end(&mut self, ended: Ended, now_ms: u64) {
        self.ended = Some((now_ms, ended));
        self.pause = Pause::No;
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
            SweepEvent::CellSettled { cell: index, round, record } => {
                let Some(cell) = self.cells.get_mut(index) else { return };
                if matches!(record.status, Status::Skipped | Status::Oom) {
                    cell.settled.extend(0..rounds);
                } else {
                    cell.settled.insert(round);
                }
                cell.finish(round, record);
                if cell.rounds.len() > 1 {
                    self.unpooled.push(index);
                }
            }
            // runs were told one by one
            SweepEvent::CellDone { .. } => {}
            SweepEvent::Evaluating { what, done, found, of } => {
                let since_ms = match &self.evaluation {
                    Some(known) if known.what == what => known.since_ms,
                    _ => now_ms,
                };
                self.evaluation = Some(Evaluation { what, done, found, of, since_ms });
            }
            SweepEvent::Training { what, done, found, of, .. } => {
                let since_ms = match &self.evaluation {
                    Some(known) if known.what == what => known.since_ms,
                    _ => now_ms,
                };
                let [done, found, of] = [done, found, of].map(|steps| steps as usize);
                self.evaluation = Some(Evaluation { what, done, found, of, since_ms });
            }
            SweepEvent::Note(note) => {
                self.evaluation = None;
                self.note = Some(note);
            }
            SweepEvent::Paused => {
                self.pause = Pause::Yes;
                self.paused_since = Some(now_ms);
            }
            SweepEvent::Resumed => {
                let since = self.paused_since.take();
                self.paused_ms += since.map_or(0, |since| now_ms.saturating_sub(since));
                self.pause = if self.pause == Pause::Asked { Pause::Asked } else { Pause::No };
            }
            SweepEvent::RunStarted { cell: index, round, run } => {
                let Some(cell) = self.cells.get_mut(index) else { return };
                if self.follow && self.list.selected != index {
                    self.list.selected = index;
                    self.log_scroll = 0;
                }
                cell.doing = Doing::default();
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
            SweepEvent::RunEnded { cell: index, round, record } => {
                let Some(cell) = self.cells.get_mut(index) else { return };
                self.executed += 1;
                if record.status == Status::Ok {
                    self.fresh.push((*record).clone());
                }
                cell.settled.insert(round);
                cell.took_ms = cell.since_ms.take().map(|since| now_ms.saturating_sub(since));
                cell.finish(round, record);
                if cell.rounds.len() > 1 {
                    self.unpooled.push(index);
                }
            }
        }
    }

    /// How long the sweep has worked, pauses not counted (ms).
    pub fn worked_ms(&self, now_ms: u64) -> u64 {
        let until = self.ended.map_or(self.paused_since.unwrap_or(now_ms), |(at, _)| at);
        until.saturating_sub(self.started_ms).saturating_sub(self.paused_ms)
    }

    /// How far the sweep is.
    pub fn progress(&self, now_ms: u64) -> Progress {
        let unable = self.cells.iter().filter(|cell| !cell.can_run()).count();
        let total = (self.cells.len() - unable) * self.rounds as usize;
        let able = self.cells.iter().filter(|cell| cell.can_run());
        let done: usize = able.map(|cell| cell.settled.range(..self.rounds).count()).sum();
        let partial: f64 = self.cells.iter().map(LiveCell::partial).sum();
        let worked = self.executed as f64 + partial;
        let left = (total - done) as f64 - partial;
        let elapsed = self.worked_ms(now_ms) as f64;
        let left_ms = (self.ended.is_none() && worked >= 0.05 && left >= 0.0)
            .then(|| (elapsed / worked * left).min(u64::MAX as f64) as u64);
        let fraction = if total == 0 { 1.0 } else { ((done as f64 + partial) / total as f64).min(1.0) };
        Progress { done, total, unable, fraction, left_ms }
    }

    /// Runs of this sweep that failed.
    pub fn failures(&self) -> usize {
        let failed = |cell: &LiveCell| cell.bad.values().filter(|s| **s == Status::Failed).count();
        self.cells.iter().map(failed).sum()
    }
}

impl LiveCell {
    fn new(spec: &Spec, feasibility: &Feasibility) -> Self {
        let (state, note) = match feasibility {
            Feasibility::Runs => (CellState::Queued, String::new()),
            Feasibility::Skipped(why) => (CellState::Done(Status::Skipped), why.clone()),
            Feasibility::Oom(why) => (CellState::Done(Status::Oom), why.clone()),
        };
        Self { spec: spec.clone(), state, note, samples: (0, spec.samples), ..Self::default() }
    }

    /// Whether it can run: neither was it refused before it began, nor did its backend refuse it.
    fn can_run(&self) -> bool {
        !matches!(self.state, CellState::Done(Status::Skipped | Status::Oom))
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
        self.doing.hear(&event, self.spec.batch);
        match event {
            RunEvent::Phase { name } => self.note = name,
            RunEvent::SampleDone { index, of, sample } => {
                self.samples = (index.saturating_add(1), of);
                // one sample says less than the rounds before it
                if self.rounds.is_empty() {
                    let completion = sample.prefill_ms + sample.decode_ms;
                    let tokens = f64::from(self.spec.batch) * f64::from(self.spec.output_tokens);
                    self.tokens_per_s = (completion > 0.0).then(|| tokens / completion * 1e3);
                    let steps = self.spec.output_tokens.saturating_sub(1);
                    self.tpot_ms = (steps > 0).then(|| sample.decode_ms / f64::from(steps));
                }
            }
            RunEvent::Warning { message } => self.log_line(format!("warning: {message}")),
            RunEvent::Error { message, .. } => self.log_line(format!("error: {message}")),
            RunEvent::Memory { .. } | RunEvent::Step { .. } | RunEvent::End { .. } => {}
        }
    }

    /// Takes the numbers of all rounds that ended well.
    pub fn pooled(&mut self, metrics: Option<&Metrics>) {
        self.tokens_per_s = metrics.map(|metrics| metrics.tokens_per_s);
        self.tpot_ms = metrics.map(|metrics| metrics.tpot_ms.p50);
        self.tpot_ms_ci95 = metrics.and_then(|metrics| metrics.tpot_ms_ci95);
    }

    fn finish(&mut self, round: u32, record: Box<Record>) {
        match record.status {
            Status::Failed | Status::Interrupted => _ = self.bad.insert(round, record.status),
            _ => _ = self.bad.remove(&round),
        }
        self.round = round;
        self.state = CellState::Done(record.status);
        self.since_ms = None;
        self.note = record.reason.clone().unwrap_or_default();
        if let Some(metrics) = &record.metrics {
            self.samples = (metrics.samples, metrics.samples);
        }
        let record = Arc::<Record>::from(record);
        if record.status == Status::Ok {
            self.rounds.insert(round, Arc::clone(&record));
        }
        // several rounds are pooled in the background
        if self.rounds.len() == 1 {
            self.pooled(record.metrics.as_ref());
        }
        self.record = Some(record);
    }
}
