//! The comm lane: a thread of its own for each rank, so that an all-reduce and compute overlap.

use std::sync::Arc;

use crossbeam_channel::{Receiver, Sender};

use crate::plan::Phase;
use crate::run::comm::{Broken, Exchange, Group};
use crate::run::recorder::{Clock, SpanRecorder, name_thread, precise_sleep, range};
use crate::trace::Span;

/// What the compute thread asks of its comm thread, in lane order.
#[derive(Debug)]
pub(super) enum Ask {
    /// The next operations belong here.
    Enter { on: bool, sample: u32, phase: Phase, step: u32, base: u32, names: Arc<[String]> },
    /// Exchange this buffer, a message of so many bytes, with the other ranks.
    Exchange { operation: u32, ready: i64, exchange: Exchange, bytes: u64, buffer: Vec<f32> },
    /// Hand over the spans recorded so far.
    Spans,
    /// Show the spans of the current step.
    StepSpans,
}

/// What the comm thread answers.
#[derive(Debug)]
pub(super) enum Answer {
    /// A collective has completed, or could not: its operation, when it ended (ns), and its result.
    Exchanged { operation: u32, end: i64, result: Result<Vec<f32>, Broken> },
    /// The spans recorded so far.
    Spans(Vec<Span>),
}

/// The comm thread of one rank; ends when its compute thread drops the channel.
pub(super) fn serve(
    rank: u32,
    group: &Group,
    clock: Clock,
    recorder: SpanRecorder,
    asks: &Receiver<Ask>,
    answers: &Sender<Answer>,
) {
    let mut recorder = recorder;
    let mut names: Arc<[String]> = Arc::new([]);
    name_thread(&format!("rank {rank} comm"));
    precise_sleep();
    for ask in asks {
        let answer = match ask {
            Ask::Enter { on, sample, phase, step, base, names: new } => {
                recorder.enter(on, sample, phase, step, base);
                names = new;
                continue;
            }
            Ask::Exchange { operation, ready, exchange, bytes, buffer } => {
                let start = clock.now();
                let span = recorder.is_on().then(|| range(&names[operation as usize]));
                let exchanged = group.exchange(rank as usize, exchange, bytes, buffer);
                drop(span);
                let end = clock.now();
                let (arrival, result) = match exchanged {
                    Ok(exchanged) => (exchanged.last_arrival, Ok(exchanged.buffer)),
                    Err(broken) => (start, Err(broken)),
                };
                recorder.record(operation, ready, start, end, arrival.max(start));
                Answer::Exchanged { operation, end, result }
            }
            Ask::Spans => Answer::Spans(recorder.take()),
            Ask::StepSpans => Answer::Spans(recorder.of_step().to_vec()),
        };
        if answers.send(answer).is_err() {
            return;
        }
    }
}
