//! Progress of a sweep on standard error: a bar on a terminal, lines elsewhere.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressStyle};

use super::stderr;
use super::step_progress::StepProgress;
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

/// True if a line may be printed, `interval` after the last one.
pub(super) fn is_due(last_line: Option<Instant>, interval: Duration) -> bool {
    last_line.is_none_or(|last| last.elapsed() >= interval)
}

/// Progress bar on standard error; hidden if that is no terminal.
pub(super) fn bar(total: u64) -> ProgressBar {
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
