//! Progress on standard error, of a sweep or of a long computation: a bar on a terminal, lines elsewhere.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressStyle};

use super::stderr;
use crate::desk::adapt::TrainingProgress;
use crate::desk::evaluate::EvaluationProgress;
use base::text::{duration, printable};
use lab::sweep::forecast::{self, RemainingTime, RunHistory};
use lab::sweep::{Cell, SweepEvent};
use machine::environment::load;
use run::{Feasibility, RunEvent};
use table::render::Shown;
use table::{Record, Status};

/// Minimum interval between lines of runs if standard error is no terminal: thousands of cells are simulated per second.
const RUN_LINES: Duration = Duration::from_millis(500);

/// Same for lines of evaluations and trainings, which take minutes to hours.
const STEP_LINES: Duration = Duration::from_secs(5);

fn is_due(last_line: Option<Instant>, interval: Duration) -> bool {
    last_line.is_none_or(|last| last.elapsed() >= interval)
}

/// Remaining time after `timed` steps took `elapsed`, as `, 40 s to go`; empty before the first.
fn time_to_go(elapsed: Duration, timed: usize, left: usize) -> String {
    if timed == 0 {
        return String::new();
    }
    let rest = elapsed.mul_f64(left as f64 / timed as f64);
    format!(", {} to go", duration(rest.as_secs_f64()))
}

/// Progress bar on standard error; hidden if that is no terminal.
fn bar(total: u64) -> ProgressBar {
    let bar = match stderr::can_draw() {
        true => ProgressBar::new(total),
        false => ProgressBar::hidden(),
    };
    if let Ok(style) = ProgressStyle::with_template("{bar:24} {pos}/{len} {msg}") {
        bar.set_style(style.progress_chars("━╸─"));
    }
    bar
}

/// Displays the events of a sweep.
#[derive(Debug)]
pub struct SweepProgress<'a> {
    cells: &'a [Cell],
    rounds: u32,
    bar: ProgressBar,
    /// Total runs: feasible cells times rounds.
    total: usize,
    done_runs: BTreeSet<(usize, u32)>,
    /// Predicted work of one run of each cell.
    work: Vec<f64>,
    /// Predicted work of the runs that this process executed.
    work_done: f64,
    remaining: RemainingTime,
    started: Instant,
    last_line: Option<Instant>,
    /// Reported reasons of infeasible cells, without numbers.
    infeasible: BTreeSet<String>,
    /// Warnings printed so far; each is printed once.
    warned: BTreeSet<String>,
    /// Evaluation or training under way.
    steps: Option<StepProgress>,
}

impl<'a> SweepProgress<'a> {
    pub fn new(cells: &'a [Cell], rounds: u32) -> Self {
        let can_run = cells.iter().filter(|cell| cell.feasibility == Feasibility::Runs).count();
        let total = can_run * rounds.max(1) as usize;
        Self {
            cells,
            rounds,
            bar: bar(total as u64),
            total,
            done_runs: BTreeSet::new(),
            work: forecast::work(cells, &RunHistory { load: load(), ..RunHistory::default() }),
            work_done: 0.0,
            remaining: RemainingTime::default(),
            started: Instant::now(),
            last_line: None,
            infeasible: BTreeSet::new(),
            warned: BTreeSet::new(),
            steps: None,
        }
    }

    /// Records an event and displays it.
    pub fn event(&mut self, event: &SweepEvent) {
        match event {
            SweepEvent::CellSettled { cell, round, record } => match record.status {
                Status::Skipped | Status::Oom => self.note_infeasible(*cell, record),
                _ => self.mark_done(*cell, *round),
            },
            SweepEvent::RunStarted { cell, round, .. } => self.set_activity(*cell, *round, "starting"),
            &SweepEvent::Evaluating { done, found, of, .. } => {
                self.switch_to_steps().evaluation(EvaluationProgress::Windows { done, found, of });
            }
            &SweepEvent::Training { ref what, done, found, of, loss, tokens_per_s } => {
                let step = TrainingProgress::Step { what, done, found, of, loss, tokens_per_s };
                self.switch_to_steps().training(&step);
            }
            SweepEvent::Note(text) => {
                // the next evaluation or training has its own remaining time
                self.steps.take().iter().for_each(StepProgress::finish);
                self.print(text);
            }
            SweepEvent::CellDone { .. } | SweepEvent::Paused | SweepEvent::Resumed => {}
            SweepEvent::Run { cell, round, event } => match event {
                RunEvent::Phase { name } => self.set_activity(*cell, *round, name),
                RunEvent::SampleDone { index, of, sample } => {
                    let tokens = self
                        .cells
                        .get(*cell)
                        .map_or(0.0, |c| f64::from(c.spec.batch) * f64::from(c.spec.output_tokens));
                    let seconds = (sample.prefill_ms + sample.decode_ms) / 1e3;
                    let rate = if seconds > 0.0 { tokens / seconds } else { 0.0 };
                    self.set_activity(
                        *cell,
                        *round,
                        &format!("sample {}/{of}, {rate:.1} tok/s", index + 1),
                    );
                }
                RunEvent::Warning { message } => {
                    let text = format!("warning: {}: {message}", self.name(*cell, None));
                    // every round repeats it
                    if self.warned.insert(text.clone()) {
                        self.print(&text);
                    }
                }
                _ => {}
            },
            SweepEvent::Log { cell, line } => {
                let text = format!("{}: {line}", self.name(*cell, None));
                self.print(&text);
            }
            SweepEvent::RunEnded { cell, round, record } => {
                self.work_done += self.work.get(*cell).copied().unwrap_or_default();
                self.remaining.finished(self.started.elapsed().as_secs_f64(), self.work_done);
                self.mark_done(*cell, *round);
                self.print_ended(*cell, *round, record);
            }
        }
    }

    pub fn finish(&self) {
        self.steps.iter().for_each(StepProgress::finish);
        self.bar.finish_and_clear();
    }

    /// Clears the runs' bar; returns the progress of the evaluation or training under way.
    fn switch_to_steps(&mut self) -> &mut StepProgress {
        self.bar.finish_and_clear();
        self.steps.get_or_insert_with(StepProgress::new)
    }

    /// Reports an infeasible cell, once for cells with the same reason except for numbers.
    fn note_infeasible(&mut self, cell: usize, record: &Record) {
        if self.cells.len() == 1 {
            // the printed record reports it
            return;
        }
        let reason = record.reason.as_deref().unwrap_or("no reason given");
        let kind: String = reason.chars().filter(|c| !c.is_ascii_digit() && *c != '.').collect();
        if self.infeasible.insert(kind) {
            let name = self.name(cell, None);
            self.print(&format!(
                "{} {name}: {}: {reason}",
                record.status.glyph(),
                record.status.as_str()
            ));
        }
    }

    fn mark_done(&mut self, cell: usize, round: u32) {
        self.done_runs.insert((cell, round));
        self.bar.set_position(self.done_runs.len() as u64);
    }

    fn print_ended(&mut self, cell: usize, round: u32, record: &Record) {
        let done = self.done_runs.len();
        let what = match (&record.metrics, &record.reason) {
            (Some(m), _) if record.spec.output_tokens < 2 => {
                format!("TTFT {} ms ({})", Shown::Number(m.prefill_ms, 3), record.provenance)
            }
            (Some(m), _) => format!(
                "{} tokens/s, TPOT {} ms ({})",
                Shown::Number(m.tokens_per_s, 1),
                Shown::Number(m.tpot_ms.p50, 3),
                record.provenance
            ),
            (None, Some(reason)) => format!("{}: {reason}", record.status.as_str()),
            (None, None) => record.status.as_str().to_owned(),
        };
        let text = format!(
            "[{done}/{}] {} {}: {what}{}",
            self.total,
            record.status.glyph(),
            self.name(cell, Some(round)),
            self.eta().map(|eta| format!(", {eta} to go")).unwrap_or_default()
        );
        let bad = record.status != Status::Ok;
        let due = is_due(self.last_line, RUN_LINES);
        if bad || (self.bar.is_hidden() && (due || done == self.total)) {
            self.last_line = Some(Instant::now());
            self.print(&text);
        }
    }

    fn set_activity(&mut self, cell: usize, round: u32, what: &str) {
        // thousands of cells are simulated per second
        if !self.bar.is_hidden() {
            let eta = self.eta().map(|eta| format!(" · {eta} to go")).unwrap_or_default();
            let message = format!("{} · {what}{eta}", self.name(cell, Some(round)));
            self.bar.set_message(printable(&message).into_owned());
        }
    }

    /// Formats a cell's label and round, e.g. `ladder tp2 b1 p2p-on (round 1/3)`.
    fn name(&self, cell: usize, round: Option<u32>) -> String {
        let label = self.cells.get(cell).map(|c| c.spec.label()).unwrap_or_default();
        match round {
            Some(round) if self.rounds > 1 => {
                format!("{label} (round {}/{})", round + 1, self.rounds)
            }
            _ => label,
        }
    }

    /// Estimated remaining time; executed cells have no history here, so their prediction is rough.
    fn eta(&self) -> Option<String> {
        let all: f64 = self.work.iter().sum::<f64>() * f64::from(self.rounds.max(1));
        let work_of = |(cell, _): &(usize, u32)| self.work.get(*cell).copied().unwrap_or_default();
        let left = all - self.done_runs.iter().map(work_of).sum::<f64>();
        let elapsed_s = self.started.elapsed().as_secs_f64();
        let seconds = self.remaining.seconds(elapsed_s, self.work_done, left, false)?;
        seconds.is_finite().then(|| format!("about {}", duration(seconds)))
    }

    fn print(&self, text: &str) {
        self.bar.suspend(|| stderr::line(text));
    }
}

/// Progress of an evaluation or a training.
#[derive(Debug)]
pub(super) struct StepProgress {
    bar: ProgressBar,
    started: Option<Instant>,
    last_line: Option<Instant>,
    /// True if a training evaluates its model.
    evaluates: bool,
}

impl StepProgress {
    pub fn new() -> Self {
        Self { bar: bar(0), started: None, last_line: None, evaluates: false }
    }

    pub fn finish(&self) {
        self.bar.finish_and_clear();
    }

    pub fn evaluation(&mut self, progress: EvaluationProgress<'_>) {
        match progress {
            EvaluationProgress::Doing(what) => self.set_activity(what),
            EvaluationProgress::Windows { done, found, of } => {
                let computed = done - found;
                // a search evaluates several sets of windows, each with its own remaining time
                self.started = self.started.filter(|_| computed > 0);
                let stored =
                    if found > 0 { format!(" ({found} already stored)") } else { String::new() };
                self.step((done, of), computed, &format!("windows{stored}"));
            }
        }
    }

    pub fn training(&mut self, progress: &TrainingProgress<'_>) {
        let evaluates = matches!(progress, TrainingProgress::Evaluating(_));
        if std::mem::replace(&mut self.evaluates, evaluates) != evaluates {
            (self.started, self.last_line) = (None, None);
        }
        match progress {
            TrainingProgress::Doing(what) => self.set_activity(what),
            TrainingProgress::Evaluating(of) => self.evaluation(*of),
            TrainingProgress::Note(text) => self.bar.suspend(|| stderr::note(text)),
            TrainingProgress::Step { what, done, found, of, loss, tokens_per_s } => {
                // the first step of this process allocates buffers for all others, so it is not timed
                let timed = done.saturating_sub(found + 1) as usize;
                let words = format!("{what}: loss {loss:.4}, {tokens_per_s:.0} tokens/s");
                self.step((*done as usize, *of as usize), timed, &words);
            }
        }
    }

    /// Starts another activity, which may have another speed.
    fn set_activity(&mut self, what: &str) {
        self.started = None;
        self.bar.set_message(what.to_owned());
    }

    /// Shows that `done` of `of` steps are done, `timed` of them since the activity started.
    fn step(&mut self, (done, of): (usize, usize), timed: usize, words: &str) {
        let started = *self.started.get_or_insert_with(Instant::now);
        let to_go = time_to_go(started.elapsed(), timed, of - done);
        self.bar.set_length(of as u64);
        self.bar.set_position(done as u64);
        if self.bar.is_hidden() && (is_due(self.last_line, STEP_LINES) || done == of) {
            self.last_line = Some(Instant::now());
            stderr::line(&format!("[{done}/{of}] {words}{to_go}"));
        }
        self.bar.set_message(format!("{words}{to_go}"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_remaining_time_of_steps_follows_from_those_timed() {
        let elapsed = Duration::from_secs(10);
        assert_eq!(time_to_go(elapsed, 5, 20), ", 40 s to go");
        assert_eq!(time_to_go(elapsed, 5, 0), ", 0 s to go");
        assert_eq!(time_to_go(elapsed, 0, 20), "", "no step was timed");
    }

    #[test]
    fn a_line_is_due_at_first_and_then_once_per_interval() {
        let now = Some(Instant::now());
        assert!(is_due(None, STEP_LINES) && is_due(now, Duration::ZERO));
        assert!(!is_due(now, Duration::from_secs(3600)));
    }
}
