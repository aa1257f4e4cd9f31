//! A thread that answers what-ifs: of those that wait only the newest, and when none follows, where
//! communication stops to be hidden.

use std::sync::Arc;
use std::time::Duration;

use crossbeam_channel::{Receiver, RecvTimeoutError, Sender, unbounded};

use crate::tui::effects::guarded;
use crate::tui::format;
use crate::tui::message::Message;
use crate::whatif::{BreakEven, Engine, HIDDEN_PCT, Over, Variant};

/// So long no key may follow before the slower search begins.
const PAUSE: Duration = Duration::from_millis(60);

type Question = (u64, Variant);

/// Starts its thread with the first question; the thread ends with it.
#[derive(Debug)]
pub struct WhatIfWorker {
    answers: Sender<Message>,
    questions: Option<Sender<Question>>,
}

impl WhatIfWorker {
    /// A worker that answers there.
    pub fn new(answers: Sender<Message>) -> Self {
        Self { answers, questions: None }
    }

    /// Asks about a variant.
    pub fn ask(&mut self, request: u64, variant: Variant) {
        let answers = &self.answers;
        let questions = self.questions.get_or_insert_with(|| {
            let (send, receive) = unbounded();
            let answers = answers.clone();
            std::thread::spawn(move || work(&receive, &answers));
            send
        });
        // the thread ends only with this channel
        let _ = questions.send((request, variant));
    }
}

fn work(questions: &Receiver<Question>, answers: &Sender<Message>) {
    let engine = Engine::default();
    let mut next = questions.recv().ok();
    while let Some(question) = next.take() {
        let (request, variant) = questions.try_iter().last().unwrap_or(question);
        let result = guarded(|| engine.answer(&variant));
        let result = result.and_then(|answer| answer.map_err(|e| format::error(&e)));
        let runs = result.as_ref().is_ok_and(|answer| answer.chosen().is_some());
        if answers.send(Message::WhatIf { request, result: result.map(Arc::new) }).is_err() {
            return;
        }
        next = match questions.recv_timeout(PAUSE) {
            Ok(question) => Some(question),
            Err(RecvTimeoutError::Disconnected) => return,
            Err(RecvTimeoutError::Timeout) => {
                if runs {
                    let found = break_even(&engine, &variant);
                    let _ = answers.send(Message::BreakEven { request, found });
                }
                questions.recv().ok()
            }
        };
    }
}

/// Over alpha and over bandwidth.
pub fn break_even(engine: &Engine, variant: &Variant) -> Vec<Result<BreakEven, String>> {
    let of = |over| {
        guarded(|| engine.break_even(variant, over, HIDDEN_PCT))
            .and_then(|found| found.map_err(|error| error.to_string()))
    };
    [Over::AlphaUs, Over::GbS].map(of).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_questions_that_wait_only_the_newest_is_answered_and_then_its_break_even() {
        let (send, answers) = unbounded();
        let (ask, questions) = unbounded();
        let mut variant = Variant::default();
        (variant.cell.model, variant.cell.output_tokens) = ("llama-3.2-1b".into(), 8);
        for request in 1..=20 {
            variant.alpha_us = Some(request as f64);
            ask.send((request, variant.clone())).unwrap();
        }
        std::thread::spawn(move || work(&questions, &send));
        let Ok(Message::WhatIf { request, result }) = answers.recv() else { panic!("no answer") };
        assert_eq!((request, result.unwrap().variant.alpha_us), (20, Some(20.0)));
        let Ok(Message::BreakEven { request, found }) = answers.recv() else { panic!("no search") };
        assert_eq!((request, found.len()), (20, 2));
        drop(ask);
        assert!(answers.recv().is_err(), "the thread ends with its questions");
    }
}
