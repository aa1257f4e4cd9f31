//! CUDA events around the collectives that run on their own stream, in every timed step.
//!
//! The events never sit between kernels that overlap, and no stream waits for the event after a collective. The event before a
//! collective does delay it, so a run first measures a step with and without events ([`choose`]) and drops them from its samples
//! if the difference is visible. Collectives chained onto the compute stream get no events, which would prevent the next kernel
//! from starting early.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::comm::Peers;
use crate::cuda::engine::{Engine, Step};
use crate::cuda::generation::ns;
use crate::cuda::program::StepSize;
use crate::cuda::ranks::broadcast;
use crate::cuda::schedule::Schedule;
use crate::cuda::timing::{Marks, Parts};
use base::error::{Error, Result};
use base::statistics::median;
use machine::driver::Event;
use plan::Lane;

/// Maximum ratio of step latency with events to without.
const MOST: f64 = 1.005;

/// Alternating rounds with and without events, and decode steps per round.
const ROUNDS: usize = 5;
const STEPS: u32 = 4;

/// Duration of one collective of a step.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(in crate::cuda) struct Took {
    /// Index in the plan.
    pub operation: u32,
    /// Time between the events before and after the collective (us).
    pub us: f64,
}

#[derive(Debug)]
pub(in crate::cuda) struct Around {
    parts: Parts,
    marks: Marks,
}

impl Around {
    /// Returns `None` if no collective has its own stream.
    pub fn of(engine: &Engine) -> Option<Self> {
        let plan = &engine.programs.decode.plan;
        let parts = Parts::of(plan, &Schedule::new(plan, &engine.layout, None));
        let marks = Marks::around(&parts, false, |part| part.stream == Lane::Comm);
        (marks.count() > 0).then_some(Self { parts, marks })
    }

    pub fn marks(&self) -> &Marks {
        &self.marks
    }

    /// Durations of the collectives of a finished step.
    pub fn read(&self, step: &Step) -> Result<Vec<Took>> {
        let events = step.marks(0);
        let event = |mark: u32| {
            events
                .get(mark as usize)
                .ok_or_else(|| Error::failed("an event around a collective is missing"))
        };
        let timed = self.parts.parts.iter().enumerate();
        timed
            .filter_map(|(at, part)| Some((part.operations[0], self.marks.of(at)?)))
            .map(|(operation, (start, end))| {
                let took_ns = ns(event(end)?.elapsed_ms(event(start)?)?);
                Ok(Took { operation, us: took_ns as f64 / 1e3 })
            })
            .collect()
    }
}

/// Decision whether samples include the events, with the measurements behind it.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(in crate::cuda) struct Choice {
    pub in_samples: bool,
    /// Fastest round's decode step without and with events (us). Host load only adds time, so the minimum is robust.
    pub step_us: [f64; 2],
}

impl Choice {
    fn of(step_us: [f64; 2]) -> Self {
        Self { in_samples: step_us[1] <= MOST * step_us[0], step_us }
    }
}

/// Times decode steps with and without events in turn; rank 0 decides for all ranks. Discards generated
/// tokens.
pub(in crate::cuda) fn choose(
    engine: &Engine,
    peers: Option<&Arc<Peers>>,
    mut steps: [&mut Step; 2],
    tokens: u32,
) -> Result<Choice> {
    let each = STEPS.min(tokens.saturating_sub(1)).max(1);
    let (started, ended): (Event, Event) = (engine.gpu.event(true)?, engine.gpu.event(true)?);
    let mut fastest_us = [f64::INFINITY; 2];
    // one extra warm-up round
    for round in 0..=ROUNDS {
        for (step, fastest) in steps.iter_mut().zip(&mut fastest_us) {
            engine.forget()?;
            engine.wait_idle("measuring the overhead of events around collectives")?;
            peers.map_or(Ok(()), |peers| peers.barrier())?;
            engine.main().record(&started)?;
            (0..each).try_for_each(|_| engine.run(step))?;
            engine.main().record(&ended)?;
            engine.wait(|| ended.is_done(), || "a step with events around collectives".into())?;
            if round > 0 {
                *fastest = fastest.min(f64::from(ended.elapsed_ms(&started)?) * 1e3 / f64::from(each));
            }
        }
    }
    broadcast(peers, "choice of events", Choice::of(fastest_us))
}

/// Grouping key for collectives: operation kind and message size in bytes.
type Like = (&'static str, u64);

fn like(engine: &Engine, operation: u32) -> Like {
    let program = &engine.programs.decode;
    let Some(found) = program.plan.operations.get(operation as usize) else { return ("collective", 0) };
    (found.kind.as_str(), program.message_bytes(found, &StepSize::decode(engine.setup.sequences)))
}

/// Groups collectives of the same kind and message size for the record. Each group has its count per step and
/// `of` applied to its members in `all` (one list per step).
pub(in crate::cuda) fn alike<T>(
    engine: &Engine,
    all: &[Vec<T>],
    operation: impl Fn(&T) -> u32,
    of: impl Fn(&[&T]) -> Value,
) -> Vec<Value> {
    let mut groups: BTreeMap<Like, Vec<&T>> = BTreeMap::new();
    for one in all.iter().flatten() {
        groups.entry(like(engine, operation(one))).or_default().push(one);
    }
    let told = |((kind, bytes), found): (Like, Vec<&T>)| {
        let mut told = json!({ "kind": kind, "bytes": bytes, "a_step": found.len() / all.len().max(1) });
        if let (Some(told), Value::Object(more)) = (told.as_object_mut(), of(&found)) {
            told.extend(more);
        }
        told
    };
    groups.into_iter().map(told).collect()
}

/// Record entry with this rank's event timings of the collectives in each sample's last decode step.
pub(in crate::cuda) fn environment(
    engine: &Engine,
    choice: Option<Choice>,
    samples: &[Vec<Took>],
) -> Value {
    let Some(choice) = choice else {
        let plan = &engine.programs.decode.plan;
        let any = plan.operations.iter().any(|operation| operation.kind.is_collective());
        let why = match any {
            true => {
                "collectives run on the compute stream, where events would prevent early kernel starts"
            }
            false => "a decode step has no collectives",
        };
        return json!({ "in_samples": false, "why": why });
    };
    let [without, with] = choice.step_us;
    let why = (!choice.in_samples)
        .then(|| format!("a step takes {:.1} % longer with them", 100.0 * (with / without - 1.0)));
    let took = |found: &[&Took]| {
        let us: Vec<f64> = found.iter().map(|took| took.us).collect();
        json!({ "us": median(&us), "longest_us": us.iter().copied().fold(0.0, f64::max) })
    };
    json!({
        "in_samples": choice.in_samples,
        "why": why,
        "step_us_without": without,
        "step_us_with": with,
        "last_steps": alike(engine, samples, |took| took.operation, took),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_stay_where_a_step_is_hardly_longer() {
        let is_kept = |with| Choice::of([1000.0, with]).in_samples;
        assert!(is_kept(990.0) && is_kept(1004.9) && !is_kept(1005.1));
    }
}
