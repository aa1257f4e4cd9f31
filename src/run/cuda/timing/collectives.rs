//! CUDA events around the collectives that run on their own stream, in every timed step.
//!
//! The events never sit between kernels that overlap, and no stream waits for the event after a collective. The event
//! before a collective does delay it, so a run first measures a step with and without events ([`choose_events`]) and
//! drops them from its samples if the difference is visible. Collectives chained onto the compute stream get no events,
//! which would prevent the next kernel from starting early.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::comm::Peers;
use crate::cuda::engine::{Engine, PreparedStep};
use crate::cuda::generation::ns;
use crate::cuda::program::StepSize;
use crate::cuda::ranks::broadcast;
use crate::cuda::schedule::Schedule;
use crate::cuda::timing::{StepEvents, StreamSegments};
use base::error::{Error, Result};
use base::statistics::median;
use machine::driver::Event;
use plan::Lane;

/// Maximum ratio of step latency with events to without.
const MOST_SLOWDOWN: f64 = 1.005;

/// Alternating rounds with and without events, and decode steps per round.
const ROUNDS: usize = 5;
const STEPS: u32 = 4;

/// Duration of one collective of a step.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(in crate::cuda) struct CollectiveTime {
    /// Index in the plan.
    pub operation: u32,
    /// Time between the events before and after the collective (us).
    pub us: f64,
}

/// Positions of the events around a decode step's collectives.
#[derive(Debug)]
pub(in crate::cuda) struct CollectiveEvents {
    parts: StreamSegments,
    marks: StepEvents,
}

impl CollectiveEvents {
    /// Returns `None` if no collective has its own stream.
    pub fn from_engine(engine: &Engine) -> Option<Self> {
        let plan = &engine.programs.decode.plan;
        let parts = StreamSegments::new(plan, &Schedule::new(plan, &engine.layout, None));
        let marks = StepEvents::around(&parts, false, |part| part.stream == Lane::Comm);
        (marks.count() > 0).then_some(Self { parts, marks })
    }

    pub fn marks(&self) -> &StepEvents {
        &self.marks
    }

    /// Durations of the collectives of a finished step.
    pub fn read(&self, step: &PreparedStep) -> Result<Vec<CollectiveTime>> {
        let events = step.marks(0);
        let event = |mark: u32| {
            events
                .get(mark as usize)
                .ok_or_else(|| Error::failed("an event around a collective is missing"))
        };
        let parts = self.parts.parts.iter().enumerate();
        parts
            .filter_map(|(at, part)| Some((part.operations[0], self.marks.bracket(at)?)))
            .map(|(operation, bracket)| {
                let elapsed_ns = ns(event(bracket.end)?.elapsed_ms(event(bracket.start)?)?);
                Ok(CollectiveTime { operation, us: elapsed_ns as f64 / 1e3 })
            })
            .collect()
    }
}

/// Decision whether samples include the events, with the measurements behind it.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(in crate::cuda) struct EventChoice {
    pub in_samples: bool,
    /// Fastest round's decode step without and with events. Host load only adds time, so the minimum is robust.
    without_us: f64,
    with_us: f64,
}

impl EventChoice {
    fn new(without_us: f64, with_us: f64) -> Self {
        Self { in_samples: with_us <= MOST_SLOWDOWN * without_us, without_us, with_us }
    }
}

/// Times decode steps with and without events in turn; rank 0 decides for all ranks. Discards generated
/// tokens.
pub(in crate::cuda) fn choose_events(
    engine: &Engine,
    peers: Option<&Arc<Peers>>,
    without: &mut PreparedStep,
    with: &mut PreparedStep,
    tokens: u32,
) -> Result<EventChoice> {
    let each = STEPS.min(tokens.saturating_sub(1)).max(1);
    let (started, ended): (Event, Event) = (engine.gpu.event(true)?, engine.gpu.event(true)?);
    let round_us = |step: &mut PreparedStep| -> Result<f64> {
        engine.forget()?;
        engine.wait_idle("measuring the overhead of events around collectives")?;
        peers.map_or(Ok(()), |peers| peers.barrier())?;
        engine.main().record(&started)?;
        (0..each).try_for_each(|_| engine.run(step))?;
        engine.main().record(&ended)?;
        engine.wait(|| ended.is_done(), || "a step with events around collectives".into())?;
        Ok(f64::from(ended.elapsed_ms(&started)?) * 1e3 / f64::from(each))
    };
    // one extra warm-up round
    round_us(without)?;
    round_us(with)?;
    let (mut without_us, mut with_us) = (f64::INFINITY, f64::INFINITY);
    for _ in 0..ROUNDS {
        without_us = without_us.min(round_us(without)?);
        with_us = with_us.min(round_us(with)?);
    }
    broadcast(peers, "choice of events", EventChoice::new(without_us, with_us))
}

/// Operation kind and message size (bytes) of a collective.
type CollectiveKey = (&'static str, u64);

fn key_of(engine: &Engine, operation: u32) -> CollectiveKey {
    let program = &engine.programs.decode;
    let Some(found) = program.plan.operations.get(operation as usize) else { return ("collective", 0) };
    (found.kind.as_str(), program.message_bytes(found, &StepSize::decode(engine.setup.sequences)))
}

/// Groups collectives of the same kind and message size for the record. `steps` has one list per step; they differ
/// only if a recorder lost some. Each group has its count in a step and the entries that `summarize` returns for its
/// members.
pub(in crate::cuda) fn group_collectives<T>(
    engine: &Engine,
    steps: &[Vec<T>],
    operation: impl Fn(&T) -> u32,
    summarize: impl Fn(&[&T]) -> Value,
) -> Vec<Value> {
    let mut groups: BTreeMap<CollectiveKey, Vec<&T>> = BTreeMap::new();
    for one in steps.iter().flatten() {
        groups.entry(key_of(engine, operation(one))).or_default().push(one);
    }
    let entry = |((kind, bytes), members): (CollectiveKey, Vec<&T>)| {
        let count = members.len().div_ceil(steps.len().max(1));
        let mut entry = json!({ "kind": kind, "bytes": bytes, "a_step": count });
        if let (Some(entry), Value::Object(summary)) = (entry.as_object_mut(), summarize(&members)) {
            entry.extend(summary);
        }
        entry
    };
    groups.into_iter().map(entry).collect()
}

/// Record entry with this rank's event timings of the collectives in each sample's last decode step.
pub(in crate::cuda) fn environment(
    engine: &Engine,
    choice: Option<EventChoice>,
    samples: &[Vec<CollectiveTime>],
) -> Value {
    let Some(choice) = choice else {
        let plan = &engine.programs.decode.plan;
        let any = plan.operations.iter().any(|operation| operation.kind.is_collective());
        let why = if any {
            "collectives run on the compute stream, where events would prevent early kernel starts"
        } else {
            "a decode step has no collectives"
        };
        return json!({ "in_samples": false, "why": why });
    };
    let EventChoice { in_samples, without_us, with_us } = choice;
    let why = (!in_samples)
        .then(|| format!("a step takes {:.1} % longer with them", 100.0 * (with_us / without_us - 1.0)));
    let summarize = |found: &[&CollectiveTime]| {
        let us: Vec<f64> = found.iter().map(|time| time.us).collect();
        json!({ "us": median(&us), "longest_us": us.iter().copied().fold(0.0, f64::max) })
    };
    json!({
        "in_samples": in_samples,
        "why": why,
        "step_us_without": without_us,
        "step_us_with": with_us,
        "last_steps": group_collectives(engine, samples, |time| time.operation, summarize),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_stay_where_a_step_is_hardly_longer() {
        let is_kept = |with_us| EventChoice::new(1000.0, with_us).in_samples;
        assert!(is_kept(990.0) && is_kept(1004.9) && !is_kept(1005.1));
    }
}
