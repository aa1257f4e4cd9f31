//! State of screen 2: the current or most recent sweep, built from its events.

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

use super::progress::RunProgress;
use crate::face::tui::prelude::*;
use crate::face::tui::update::SweepEnd;
use base::statistics::median;
use jiff::Timestamp;
use lab::sweep::forecast::RemainingTime;
use lab::sweep::{Experiment, SweepEvent, SweepSelection};
use run::Feasibility;
use run::{RunEvent, StepLanes};
use study::analysis::{Axis, RatioSoFar, Varied, noise_forecast};
use study::answer::Answer;
use table::{Metrics, Overlap, Record, Spec, Status, limit, steps_ms};

/// Maximum log lines kept per cell.
const LOG_LINES: usize = 200;

#[derive(Debug, Default)]
pub struct Live {
    /// Name of the experiment; `None` before the first sweep.
    pub experiment: Option<String>,
    pub cells: Vec<LiveCell>,
    /// Runs per cell; each round is one pass over all cells.
    pub rounds: u32,
    /// Start time, in ms of the workbench clock.
    pub started_ms: u64,
    /// End time and outcome; `None` while running.
    pub ended: Option<(u64, SweepEnd)>,
    pub cancelling: bool,
    pub list: List,
    /// True if the selection follows the active cell.
    pub follow: bool,
    pub pause: Pause,
    /// Start of the current pause, in ms of the workbench clock.
    paused_since: Option<u64>,
    pub evaluation: Option<SweepSideTask>,
    pub note: Option<String>,
    /// Total time of earlier pauses, in ms.
    paused_ms: u64,
    /// Experiment of the sweep, for running it again.
    pub source: Option<Arc<Experiment>>,
    pub choice: SweepSelection,
    /// True if the sweep began before the stored runs were read, until they are.
    pub awaits_stored: bool,
    /// True from the end of a sweep until the stored runs are read again: a sweep resumed earlier misses the latest runs.
    pub rereads_stored: bool,
    pub queue: Vec<QueuedSweep>,
    /// Place of the previous sweep's result, if this sweep started from the queue.
    pub previous: Option<String>,
    pub in_queue: bool,
    pub queue_list: List,
    /// Log lines scrolled off below.
    pub log_scroll: usize,
    /// Finished runs not handed to other screens yet.
    pub fresh: Vec<Record>,
    pub handing: bool,
    /// Start of the latest handover, in ms of the workbench clock.
    pub handed_ms: u64,
    /// True if the cells' work is in predicted seconds.
    is_predicted: bool,
    remaining: RemainingTime,
    /// Durations in seconds of the latest successful runs of this session, by [`Spec::key`], across sweeps.
    durations: HashMap<String, f64>,
    pub varied: Varied,
    /// Width of the longest title of a cell, in columns.
    pub widest: usize,
    /// Cells with a new round that is not pooled into their numbers yet.
    pub unpooled: Vec<usize>,
    /// Noise warning about the runs finished so far.
    pub noise: Option<String>,
    /// Noise warning about the load of the machine when the sweep began, shown until runs have signs of noise.
    pub expected_noise: Option<String>,
    /// Latest failed run: cell, round and first line of the reason.
    pub failure: Option<(usize, u32, String)>,
    /// Result of the finished sweep; `None` until computed.
    pub answers: Option<Vec<Answer>>,
    /// Experiment whose stored result is shown before the first sweep.
    pub earlier: Option<String>,
    /// Number of runs that a stored result lacks.
    pub missing: usize,
    /// Wrapped lines of the result, the width they are wrapped to, and true if they are its details.
    pub wrapped: ((u16, bool), Vec<(String, Role)>),
    pub result_scroll: usize,
    /// True to show the selected cell instead of the result.
    pub show_cell: bool,
    /// True if the details of the result take the place of its card.
    pub show_details: bool,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Pause {
    /// Runs start normally.
    #[default]
    No,
    /// Pause requested; a run is still active.
    Asked,
    /// Paused, no run is active.
    Yes,
}

#[derive(Clone, Debug)]
pub struct QueuedSweep {
    pub experiment: Arc<Experiment>,
    /// Runs to start.
    pub choice: SweepSelection,
}

impl QueuedSweep {
    /// Title in the queue: `quickstart`, or `quickstart (failed cells)`.
    pub fn title(&self) -> String {
        let which = match self.choice {
            SweepSelection::Missing => "",
            SweepSelection::Again(_) => " (all again)",
            SweepSelection::Failed => " (failed cells)",
        };
        format!("{}{which}", self.experiment.name)
    }
}

/// Facts about a cell that need no run.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct CellPreview {
    /// Planned memory per rank, in bytes; `None` if unknown.
    pub rank_bytes: Option<u64>,
    /// Lanes of the first decode step of a simulated cell.
    pub simulated: Vec<StepLanes>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CellState {
    #[default]
    Queued,
    Running,
    /// No active run; the last one ended with this status.
    Done(Status),
}

impl CellState {
    /// Glyph, so that colour is never the only cue.
    pub fn glyph(self) -> &'static str {
        match self {
            Self::Queued => "…",
            Self::Running => "▶",
            Self::Done(status) => status.glyph(),
        }
    }

    pub fn word(self) -> &'static str {
        match self {
            Self::Queued => "queued",
            Self::Running => "running",
            Self::Done(status) => status.as_str(),
        }
    }
}

#[derive(Clone, Debug, Default)]
pub struct LiveCell {
    /// Spec with all defaults filled in.
    pub spec: Spec,
    pub state: CellState,
    /// Round of the current or last run, from 0.
    pub round: u32,
    /// Note from the active run, or the reason it cannot run.
    pub note: String,
    /// Finished and total samples of the current run.
    pub samples: (u32, u32),
    /// Throughput in tokens/s, pooled over finished rounds; from the latest sample before the first
    /// round ends.
    pub tokens_per_s: Option<f64>,
    /// TPOT of the same samples, in ms; `None` without decoded tokens.
    pub tpot_ms: Option<f64>,
    /// TTFT of the same samples, in ms.
    pub ttft_ms: Option<f64>,
    /// 95 % interval of TPOT in ms, once there are enough samples.
    pub tpot_ms_ci95: Option<[f64; 2]>,
    pub rounds: BTreeMap<u32, Arc<Record>>,
    /// Start of the current run, in ms of the workbench clock.
    pub since_ms: Option<u64>,
    /// Duration of the last run, in ms.
    pub took_ms: Option<u64>,
    pub record: Option<Arc<Record>>,
    /// Index of the cell of plain `standard` in the same setting, if the sweep has one.
    pub standard: Option<usize>,
    /// Tokens/s relative to that cell; `None` without a shared round.
    pub ratio: Option<RatioSoFar>,
    /// [`Self::runs_hash`] of that cell and of this one behind the ratio.
    pub ratio_of: [u64; 2],
    pub log: VecDeque<String>,
    pub doing: RunProgress,
    /// Facts that need no run; `None` until computed.
    pub looked: Option<CellPreview>,
    pub cancelled: bool,
    /// Predicted work of one run.
    work: f64,
    /// Duration of the latest successful run in earlier sweeps of this session, in seconds; predicts better than the
    /// simulator.
    earlier_s: Option<f64>,
    /// Mean duration of the runs of this sweep, in seconds.
    duration_s: Option<f64>,
    /// Runs executed by this sweep.
    pub executed: u32,
    settled: BTreeSet<u32>,
    /// Rounds whose runs the sweep found in the store, run before or by another process.
    stored: BTreeSet<u32>,
    pub bad: BTreeMap<u32, Status>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct LiveProgress {
    /// Runs with a result, as the list of experiments counts them.
    pub done: usize,
    /// Part of `done` that this sweep found in the store.
    pub stored: usize,
    /// All runs: runnable cells times rounds.
    pub total: usize,
    /// Runs that the user cancelled.
    pub cancelled: usize,
    pub unable: usize,
    /// Share of the work that is done, including partial runs, 0 to 1.
    pub fraction: f64,
    /// Share of the work whose runs failed or were interrupted, 0 to 1.
    pub failed: f64,
    /// Estimated remaining time in ms, once there is evidence.
    pub left_ms: Option<u64>,
}

/// Evaluation of quality, or training, that a sweep does besides its runs.
#[derive(Clone, Debug)]
pub struct SweepSideTask {
    pub what: String,
    /// `window` of text, for each architecture, or training `step`.
    pub unit: &'static str,
    /// Finished units, both computed and found in the store (`found` counts the latter).
    pub done: usize,
    found: usize,
    pub of: usize,
    since_ms: u64,
}

impl SweepSideTask {
    /// Estimated remaining time in ms, once something was computed.
    pub fn left_ms(&self, now_ms: u64) -> Option<u64> {
        let computed = self.done.checked_sub(self.found).filter(|computed| *computed > 0)?;
        let each = now_ms.saturating_sub(self.since_ms) as f64 / computed as f64;
        Some((each * (self.of - self.done) as f64) as u64)
    }
}

impl Live {
    pub fn start(&mut self, experiment: &Arc<Experiment>, now_ms: u64) {
        self.forget_sweep();
        *self = Self {
            follow: true,
            source: Some(Arc::clone(experiment)),
            experiment: Some(experiment.name.clone()),
            cells: experiment.cells.iter().map(|c| LiveCell::new(&c.spec, &c.feasibility)).collect(),
            rounds: experiment.rounds.max(1),
            varied: Varied::from_specs(experiment.cells.iter().map(|cell| &cell.spec)),
            started_ms: now_ms,
            ..std::mem::take(self)
        };
        self.widest = self.cells.iter().map(|cell| self.title(&cell.spec).width()).max().unwrap_or(0);
        // cells of a sweep differ only in the varied axes
        let settings = self.varied.without(&Axis::ARCHITECTURE);
        let plain = self.cells.iter().enumerate().filter(|(_, cell)| limit(&cell.spec) == Some(0));
        let plain: HashMap<String, usize> =
            plain.map(|(at, cell)| (settings.words(&cell.spec), at)).collect();
        for cell in &mut self.cells {
            cell.standard = plain.get(&settings.words(&cell.spec)).copied();
            if !self.durations.is_empty() {
                cell.earlier_s = self.durations.get(&cell.spec.key()).copied();
            }
        }
    }

    /// Takes the stored runs that the sweep does not start again before the sweep reaches their rounds, so that a
    /// resumed sweep shows finished cells as finished.
    pub fn count_stored(&mut self, stored: &Snapshot) {
        let (rounds, choice) = (self.rounds, self.choice);
        self.awaits_stored = false;
        let counts = |run: &&Record| match choice {
            SweepSelection::Again(since) => {
                let is_new = run.created.parse::<Timestamp>().is_ok_and(|created| created >= since);
                is_new && run.has_numbers()
            }
            SweepSelection::Missing | SweepSelection::Failed => run.has_numbers(),
        };
        for (index, cell) in self.cells.iter_mut().enumerate() {
            let runs = stored.cells.get(&cell.spec.key()).into_iter().flatten();
            let runs = runs.map(|at| &stored.records[*at]).filter(counts);
            let before = cell.run_ids();
            for run in runs.filter(|run| run.round < rounds) {
                cell.settled.insert(run.round);
                cell.stored.insert(run.round);
                cell.take_stored(run);
            }
            if cell.run_ids() != before {
                cell.pool_few();
                if cell.rounds.len() > 1 {
                    self.unpooled.push(index);
                }
            }
        }
    }

    /// Drops the last sweep; the queue stays.
    pub fn forget_sweep(&mut self) {
        *self = Self {
            queue: std::mem::take(&mut self.queue),
            in_queue: self.in_queue,
            queue_list: self.queue_list,
            durations: std::mem::take(&mut self.durations),
            ..Self::default()
        };
    }

    /// Rows of the closed queue: one line while it has something to say.
    pub fn queue_line(&self) -> u16 {
        u16::from(!self.queue.is_empty() || self.previous.is_some())
    }

    pub fn is_running(&self) -> bool {
        self.experiment.is_some() && self.ended.is_none()
    }

    /// Latency in the table: TPOT, or TTFT if no cell decodes a token.
    pub fn latency(&self) -> &'static str {
        match self.cells.iter().all(|cell| cell.spec.output_tokens == 1) {
            true => "TTFT",
            false => "TPOT",
        }
    }

    /// Cells with a latency in ms as in the table, at most `most`, in grid order. If not all fit, those in the selected
    /// cell's setting come first.
    pub fn latencies(&self, most: usize) -> Vec<(&LiveCell, f64)> {
        let is_ttft = self.latency() == "TTFT";
        let of = |cell: &LiveCell| if is_ttft { cell.ttft_ms } else { cell.tpot_ms };
        let mut all: Vec<(&LiveCell, f64)> =
            self.cells.iter().filter_map(|cell| Some((cell, of(cell)?))).collect();
        if all.len() > most {
            let setting = self.selected().and_then(|cell| cell.standard);
            all.sort_by_key(|(cell, _)| setting.is_none() || cell.standard != setting);
            all.truncate(most);
        }
        all
    }

    /// Title of a cell: the settings that vary within the sweep.
    pub fn title(&self, spec: &Spec) -> String {
        if self.varied.is_empty() { spec.label() } else { self.varied.words(spec) }
    }

    pub fn selected(&self) -> Option<&LiveCell> {
        self.cells.get(self.list.selected)
    }

    /// Running cell; while the sweep is paused, the one that ran last and reported decode steps.
    pub fn latest_run(&self) -> Option<&LiveCell> {
        let running = self.cells.iter().find(|cell| cell.state == CellState::Running);
        let has_lanes = |cell: &&LiveCell| self.pause == Pause::Yes && !cell.doing.lanes.is_empty();
        // of equal rounds, the last cell
        let last = || self.cells.iter().filter(has_lanes).max_by_key(|cell| cell.round);
        running.or_else(last)
    }

    /// The next cells to run, at most `most`, with the estimated ms of a run if known.
    pub fn next_cells(&self, most: usize) -> Vec<(&LiveCell, Option<u64>)> {
        let running = self.cells.iter().position(|cell| cell.state == CellState::Running);
        // a retry does not run all cells that are left
        let Some(at) = running.filter(|_| self.choice != SweepSelection::Failed) else {
            return Vec::new();
        };
        let (cells, now) = (&self.cells, self.cells[at].round);
        let left = (now..self.rounds).flat_map(move |round| {
            cells.iter().enumerate().filter_map(move |(index, cell)| {
                let is_later = (round, index) > (now, at) && !cell.settled.contains(&round);
                (is_later && cell.can_run() && !cell.cancelled).then_some(cell)
            })
        });
        let pace = self.pace();
        let ms = |cell: &LiveCell| self.is_predicted.then(|| (cell.run_s(pace) * 1e3) as u64);
        left.take(most).map(|cell| (cell, ms(cell))).collect()
    }

    /// Selects the headline's cell, unless the user chose one or runs failed.
    pub fn select_lead(&mut self) {
        let ended = self.ended.is_some_and(|(_, ended)| ended == SweepEnd::default());
        let lead = self.answers.iter().flatten().find_map(|answer| answer.lead.as_ref());
        let at = lead.and_then(|lead| self.cells.iter().position(|cell| cell.spec.key() == *lead));
        if let Some(at) = at.filter(|_| self.follow && ended) {
            (self.list.selected, self.log_scroll) = (at, 0);
        }
    }

    /// Marks the sweep as ended and active runs as interrupted.
    pub fn end(&mut self, ended: SweepEnd, now_ms: u64) {
        self.ended = Some((now_ms, ended));
        self.pause = Pause::No;
        for cell in &mut self.cells {
            if cell.state == CellState::Running {
                cell.state = CellState::Done(Status::Interrupted);
                cell.took_ms = cell.since_ms.map(|since| now_ms.saturating_sub(since));
                cell.pool_few();
            }
        }
    }

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
                if record.has_numbers() {
                    cell.stored.insert(round);
                }
                // already taken from the stored runs
                if cell.rounds.get(&round).is_some_and(|known| known.run == record.run) {
                    return;
                }
                cell.finish(round, record);
                if cell.rounds.len() > 1 {
                    self.unpooled.push(index);
                }
            }
            // runs were reported one by one, except a simulation that was cancelled
            SweepEvent::CellDone { cell, record } => {
                let cell = self.cells.get_mut(cell).filter(|cell| cell.state == CellState::Running);
                if let Some(cell) = cell {
                    cell.finish(cell.round, record);
                }
            }
            SweepEvent::Evaluating { what, done, found, of } => {
                self.follow_work(what, "window", [done, found, of], now_ms);
            }
            SweepEvent::Training { what, done, found, of, .. } => {
                let steps = [done, found, of].map(|steps| steps as usize);
                self.follow_work(what, "step", steps, now_ms);
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
                cell.doing = RunProgress::default();
                cell.settled.remove(&round);
                cell.stored.remove(&round);
                cell.drop_round(round);
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
                if record.status == Status::Ok {
                    self.fresh.push((*record).clone());
                }
                if record.status == Status::Failed {
                    let why = record.reason.as_deref().and_then(|why| why.lines().next());
                    self.failure = Some((index, round, why.unwrap_or_default().to_owned()));
                }
                cell.settled.insert(round);
                cell.took_ms = cell.since_ms.take().map(|since| now_ms.saturating_sub(since));
                cell.executed += 1;
                if record.status == Status::Ok && !cell.spec.backend.is_simulated() {
                    if let Some(seconds) = cell.took_ms.map(|ms| ms as f64 / 1e3) {
                        let mean = cell.duration_s.unwrap_or(seconds);
                        cell.duration_s = Some(mean + (seconds - mean) / f64::from(cell.executed));
                    }
                    self.durations.extend(cell.duration_s.map(|seconds| (cell.spec.key(), seconds)));
                }
                let before = cell.run_ids();
                cell.finish(round, record);
                // the stored runs may have been read after the run was stored
                if cell.rounds.len() > 1 && cell.run_ids() != before {
                    self.unpooled.push(index);
                }
                let elapsed_s = self.worked_ms(now_ms) as f64 / 1e3;
                self.remaining.finished(elapsed_s, self.worked());
            }
        }
    }

    /// Follows an evaluation or a training of the sweep.
    fn follow_work(
        &mut self,
        what: String,
        unit: &'static str,
        [done, found, of]: [usize; 3],
        now_ms: u64,
    ) {
        let since_ms = match &self.evaluation {
            Some(known) if known.what == what => known.since_ms,
            _ => now_ms,
        };
        self.evaluation = Some(SweepSideTask { what, unit, done, found, of, since_ms });
    }

    /// Working time of the sweep without pauses, in ms.
    pub fn worked_ms(&self, now_ms: u64) -> u64 {
        let until = self.ended.map_or(self.paused_since.unwrap_or(now_ms), |(at, _)| at);
        until.saturating_sub(self.started_ms).saturating_sub(self.paused_ms)
    }

    /// True if the sweep ended with runs left, including those of single cancelled cells. Failed runs are retried first, so
    /// cancelled cells do not count if any run failed.
    pub fn was_interrupted(&self) -> bool {
        let is_left = |cell: &LiveCell| cell.can_run() && cell.left_rounds(self.rounds).next().is_some();
        let has_left = || self.choice != SweepSelection::Failed && self.cells.iter().any(is_left);
        self.ended.is_some_and(|(_, ended)| ended.interrupted || ended.failed == 0 && has_left())
    }

    /// True if the user cancelled the cell, or the sweep, before all of its rounds ran.
    pub fn is_cancelled(&self, cell: &LiveCell) -> bool {
        let is_chosen = cell.cancelled || self.cancelling && self.ended.is_some();
        is_chosen && cell.can_run() && cell.left_rounds(self.rounds).next().is_some()
    }

    /// Finished and total runs: `3/9`, or `…/9` until the stored runs are read.
    pub fn count_words(&self, progress: &LiveProgress) -> String {
        match progress.done {
            0 if self.awaits_stored && self.is_running() => format!("…/{}", progress.total),
            done => format!("{done}/{}", progress.total),
        }
    }

    pub fn progress(&self, now_ms: u64) -> LiveProgress {
        let unable = self.cells.iter().filter(|cell| !cell.can_run()).count();
        let total = (self.cells.len() - unable) * self.rounds as usize;
        let able = || self.cells.iter().filter(|cell| cell.can_run());
        let settled = |cell: &LiveCell| cell.settled.range(..self.rounds).count();
        let bad = |cell: &LiveCell| cell.bad.range(..self.rounds).count();
        let done = able().map(|cell| settled(cell).saturating_sub(bad(cell))).sum();
        let stored = able().map(|cell| cell.stored.range(..self.rounds).count()).sum();
        let cancelled = able()
            .filter(|cell| self.is_cancelled(cell))
            .map(|cell| cell.left_rounds(self.rounds).count());
        let cancelled = cancelled.sum();
        let failed: f64 = able().map(|cell| cell.work * bad(cell).min(settled(cell)) as f64).sum();
        let finished: f64 = able().map(|cell| cell.work * settled(cell) as f64).sum();
        let partial: f64 = able().map(|cell| cell.work * cell.partial()).sum();
        let all: f64 = able().map(|cell| cell.work * f64::from(self.rounds)).sum();
        let (worked, left) = (self.worked() + partial, all - finished - partial);
        let elapsed_s = self.worked_ms(now_ms) as f64 / 1e3;
        let left_s = match self.ended {
            None if self.is_predicted => self.measured_left_s(now_ms),
            None => self.remaining.seconds(elapsed_s, worked, left, self.is_predicted),
            Some(_) => None,
        };
        let share = |work: f64| if all > 0.0 { (work / all).min(1.0) } else { 0.0 };
        let fraction = if all > 0.0 { share(finished + partial - failed) } else { 1.0 };
        let left_ms = left_s.map(|left| (left * 1e3) as u64);
        let failed = share(failed);
        LiveProgress { done, stored, total, cancelled, unable, fraction, failed, left_ms }
    }

    /// Remaining time in seconds, from the cell's runs in this sweep, or from its prediction scaled by [`Self::pace`].
    /// An active run that already takes longer counts instead. `None` if nothing is left.
    fn measured_left_s(&self, now_ms: u64) -> Option<f64> {
        let pace = self.pace();
        let able = self.cells.iter().filter(|cell| cell.can_run() && !cell.cancelled);
        let left = |cell: &LiveCell| {
            let settled = cell.settled.range(..self.rounds).count() as f64;
            let active_s = cell.since_ms.map_or(0.0, |since| now_ms.saturating_sub(since) as f64 / 1e3);
            let run_s = cell.run_s(pace).max(active_s);
            (f64::from(self.rounds) - settled - cell.partial()).max(0.0) * run_s
        };
        let left_s: f64 = able.map(left).sum();
        (left_s > 0.0).then_some(left_s)
    }

    /// Duration of runs relative to the prediction, from the cells with a run in this sweep; 1 without evidence.
    fn pace(&self) -> f64 {
        let (mut spent, mut predicted, mut others) = (0.0, 0.0, 0.0);
        for cell in self.cells.iter().filter(|cell| cell.can_run()) {
            match cell.duration_s {
                Some(seconds) => (spent, predicted) = (spent + seconds, predicted + cell.work),
                None => others += cell.work,
            }
        }
        self.remaining.seconds(spent, predicted, others, true).map_or(1.0, |left| left / others)
    }

    /// Work of the runs executed by this sweep.
    fn worked(&self) -> f64 {
        self.cells.iter().map(|cell| cell.work * f64::from(cell.executed)).sum()
    }

    /// Warns of noise at this load if a run is left.
    pub fn expect_noise(&mut self, load: f64) {
        let left = self.cells.iter().filter(|cell| cell.can_run() && cell.awaits_rounds(self.rounds));
        self.expected_noise = noise_forecast(load, left.map(|cell| &cell.spec));
    }

    /// Takes the work of each cell, in predicted seconds if any is executed; none if it could not be predicted. Earlier
    /// runs of this session replace the prediction.
    pub fn weigh(&mut self, work: Vec<f64>) {
        let is_executed = |cell: &LiveCell| !cell.spec.backend.is_simulated();
        self.is_predicted = !work.is_empty() && self.cells.iter().any(is_executed);
        self.remaining = RemainingTime::default();
        for (cell, work) in self.cells.iter_mut().zip(work) {
            cell.work = cell.earlier_s.filter(|_| self.is_predicted).unwrap_or(work);
        }
    }

    /// Cells that cannot run, by status.
    pub fn unable(&self) -> impl Iterator<Item = (Status, usize)> {
        [Status::Skipped, Status::Oom].into_iter().filter_map(|status| {
            let is = |cell: &&LiveCell| cell.state == CellState::Done(status);
            let cells = self.cells.iter().filter(is).count();
            (cells > 0).then_some((status, cells))
        })
    }

    /// Warning about the results of a running sweep: a failed run with its reason, else measured or expected noise.
    pub fn warning(&self) -> Option<String> {
        let failure = self.failure.as_ref().and_then(|(at, round, why)| {
            let cell = self.cells.get(*at).filter(|cell| cell.bad.contains_key(round))?;
            Some(format!("✘ {} failed: {why}", self.title(&cell.spec)))
        });
        let expected = || Some(format!("! {}. Close other programs.", self.expected_noise.as_ref()?));
        let noise = || self.noise.as_ref().map(|noise| format!("! {noise}")).or_else(expected);
        failure.or_else(noise).filter(|_| self.is_running())
    }

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
        let samples = (0, spec.samples);
        Self { spec: spec.clone(), state, note, samples, work: 1.0, ..Self::default() }
    }

    /// Exposed communication in percent of the decode phase, both summed over the finished rounds; no median of rounds.
    pub fn exposed_pct(&self) -> Option<f64> {
        let overlaps: Vec<Overlap> = self.rounds.values().filter_map(|record| record.overlap).collect();
        Overlap::mean(&overlaps)?.exposed_pct()
    }

    /// False if the cell was skipped or reported out of memory, before its runs or by its backend.
    pub fn can_run(&self) -> bool {
        !matches!(self.state, CellState::Done(Status::Skipped | Status::Oom))
    }

    /// Ids of the finished runs, by round.
    pub fn run_ids(&self) -> Vec<String> {
        self.rounds.values().map(|record| record.run.clone()).collect()
    }

    /// Changes if a round ends, or another run takes the place of one.
    pub fn runs_hash(&self) -> u64 {
        let mut hasher = DefaultHasher::new();
        self.rounds.iter().for_each(|(round, record)| (round, &record.run).hash(&mut hasher));
        hasher.finish()
    }

    /// False for a cell without a run of any round.
    pub fn has_begun(&self) -> bool {
        let is_running = self.state == CellState::Running;
        is_running || self.executed > 0 || !self.rounds.is_empty() || !self.bad.is_empty()
    }

    /// Number of the current round, or of the last one with a run.
    pub fn reached_round(&self) -> u32 {
        let last = self.rounds.keys().next_back().copied().unwrap_or(0);
        if self.state == CellState::Running { self.round + 1 } else { self.round.max(last) + 1 }
    }

    /// Rounds, of `rounds`, without a finished or failed run; an interrupted round still has to run.
    pub fn left_rounds(&self, rounds: u32) -> impl Iterator<Item = u32> {
        let is_interrupted = move |round: &u32| self.bad.get(round) == Some(&Status::Interrupted);
        (0..rounds).filter(move |round| !self.settled.contains(round) || is_interrupted(round))
    }

    /// True if some of this many rounds have no run that ended, well or badly.
    pub fn awaits_rounds(&self, rounds: u32) -> bool {
        self.settled.range(..rounds).count() < rounds as usize
    }

    /// Takes a stored run whose round the sweep has not reached.
    fn take_stored(&mut self, record: &Record) {
        let record = Arc::new(record.clone());
        self.rounds.insert(record.round, Arc::clone(&record));
        if matches!(self.state, CellState::Queued | CellState::Done(Status::Ok)) {
            self.state = CellState::Done(record.status);
            if let Some(metrics) = &record.metrics {
                self.samples = (metrics.samples, metrics.samples);
            }
            self.record = Some(record);
        }
    }

    /// Estimated duration of a run in seconds, at a pace relative to the prediction.
    fn run_s(&self, pace: f64) -> f64 {
        self.duration_s.unwrap_or(self.work * pace)
    }

    /// Drops the result of a round that runs again.
    fn drop_round(&mut self, round: u32) {
        if let Some(dropped) = self.rounds.remove(&round) {
            self.record.take_if(|record| record.run == dropped.run);
            self.pool_few();
        }
    }

    /// Finished share of the current run, 0 to 1. Counts the decode steps of the current sample, so that the remaining time
    /// falls steadily rather than by whole samples.
    fn partial(&self) -> f64 {
        let (CellState::Running, (done, of @ 1..)) = (self.state, self.samples) else { return 0.0 };
        let is_current = self.doing.phase == format!("sample {}/{of}", done.saturating_add(1));
        let steps = if is_current { self.doing.fraction() } else { 0.0 };
        ((f64::from(done) + steps) / f64::from(of)).min(1.0)
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
                // one sample is worse evidence than the finished rounds
                if self.rounds.is_empty() {
                    let completion = sample.prefill_ms + sample.decode_ms;
                    let tokens = f64::from(self.spec.batch) * f64::from(self.spec.output_tokens);
                    self.tokens_per_s = (completion > 0.0).then(|| tokens / completion * 1e3);
                    self.tpot_ms = median(&steps_ms(&self.spec, &sample));
                    self.ttft_ms = Some(sample.prefill_ms);
                }
            }
            RunEvent::Warning { message } => self.log_line(format!("warning: {message}")),
            RunEvent::Error { message, .. } => self.log_line(format!("error: {message}")),
            RunEvent::Memory { .. } | RunEvent::Step { .. } | RunEvent::End { .. } => {}
        }
    }

    /// Sets the numbers pooled over all successful rounds.
    pub fn pooled(&mut self, metrics: Option<&Metrics>) {
        self.tokens_per_s = metrics.map(|metrics| metrics.tokens_per_s);
        let decodes = self.spec.output_tokens > 1;
        self.tpot_ms = metrics.filter(|_| decodes).map(|metrics| metrics.tpot_ms.p50);
        self.ttft_ms = metrics.map(|metrics| metrics.prefill_ms);
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
        self.pool_few();
        self.record = Some(record);
    }

    /// Sets the numbers of the only round, or none without a successful one: samples of an unfinished run do not count.
    /// Several rounds are pooled in the background.
    fn pool_few(&mut self) {
        if self.rounds.len() < 2 {
            let only = self.rounds.values().next().map(Arc::clone);
            self.pooled(only.as_ref().and_then(|record| record.metrics.as_ref()));
        }
    }
}
