//! Progress of an evaluation or a training on standard error: a bar on a terminal, lines elsewhere.

use std::time::{Duration, Instant};

use indicatif::ProgressBar;

use super::progress::{bar, is_due};
use super::stderr;
use crate::desk::adapt::TrainingProgress;
use crate::desk::evaluate::EvaluationProgress;
use base::text::duration;

/// Minimum interval between lines if standard error is no terminal: evaluations and trainings take minutes to hours.
const STEP_LINES: Duration = Duration::from_secs(5);

/// Remaining time after `timed` steps took `elapsed`, as `, 40 s to go`; empty before the first.
fn time_to_go(elapsed: Duration, timed: usize, left: usize) -> String {
    if timed == 0 {
        return String::new();
    }
    let rest = elapsed.mul_f64(left as f64 / timed as f64);
    format!(", {} to go", duration(rest.as_secs_f64()))
}

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
