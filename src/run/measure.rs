//! Shared by backends that execute and time generations: prompts, phase names, emulated link, and merging of the
//! ranks' times into samples; and the progress of a watched run: decode steps done and the lanes of the last step, in a
//! compact form that disturbs the run little.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::comm::EmulatedLink;
use base::error::{Error, Result};
use machine::hardware::Profile;
use plan::Lane;
use table::{Collective, Link, P2p, Sample, Spec};
use trace::Span;

/// One rank's times in one generation (ns), on a clock shared by all ranks.
#[derive(Clone, Debug, Default, PartialEq, serde::Serialize, serde::Deserialize)]
pub(super) struct Times {
    pub started: i64,
    pub prefill_end: i64,
    pub step_ends: Vec<i64>,
}

/// Name of a generation, counted from 1: `warm-up 1/2`, then `sample 3/10`.
pub(super) fn phase_name(spec: &Spec, generation: u32) -> String {
    match generation.checked_sub(spec.warmup) {
        None => format!("warm-up {}/{}", generation + 1, spec.warmup),
        Some(sample) => format!("sample {}/{}", sample + 1, spec.samples),
    }
}

/// Random prompt tokens that depend only on the seed, concatenated.
pub(super) fn prompts(spec: &Spec, vocab: u32) -> Vec<u32> {
    let mut rng = fastrand::Rng::with_seed(spec.seed ^ 0x70726f6d7074);
    (0..u64::from(spec.batch) * u64::from(spec.prompt_tokens)).map(|_| rng.u32(0..vocab)).collect()
}

/// Merges the ranks' times into a sample: each step ends when its last rank ends. `spans` are the sample's spans, for
/// its overlap; without spans there is none.
pub(super) fn combine(times: &[Times], spans: &[Span], ranks: u32) -> Sample {
    let ms = |ns: i64| ns as f64 / 1e6;
    let started = times.iter().map(|t| t.started).min().unwrap_or(0);
    let prefill_end = times.iter().map(|t| t.prefill_end).max().unwrap_or(0);
    let steps = times.iter().map(|t| t.step_ends.len()).min().unwrap_or(0);
    let mut steps_ms = Vec::with_capacity(steps);
    let mut previous = prefill_end;
    for step in 0..steps {
        let end = times.iter().map(|t| t.step_ends[step]).max().unwrap_or(previous);
        steps_ms.push(ms(end - previous));
        previous = end;
    }
    Sample {
        prefill_ms: ms(prefill_end - started),
        decode_ms: ms(previous - prefill_end),
        steps_ms,
        overlap: trace::overlap::decode_overlap(spans, ranks),
    }
}

/// Emulated link of an executed cell, if any: given directly or from a hardware profile. Returns an error if the
/// profile is missing or cannot be read.
pub fn emulated_link(spec: &Spec) -> Result<Option<EmulatedLink>> {
    let from_profile = |p2p: P2p| {
        if spec.hardware == "host" {
            return Err(Error::input_help(
                format!("link '{}' needs a hardware profile to take the link from", spec.link),
                "add --hardware h100_sxm, or define the link: --link emulated:alpha_us=20,gb_s=50",
            ));
        }
        let profile = Arc::new(Profile::load(&spec.hardware)?);
        if let Some(problem) = profile.link_problem(Collective::Nccl, p2p, spec.tp) {
            return Err(Error::input(format!("{}: {problem}", profile.name)));
        }
        Ok(Some(EmulatedLink::Profile { profile, p2p, tp: spec.tp }))
    };
    match spec.link {
        Link::Native => Ok(None),
        Link::P2pOn => from_profile(P2p::On),
        Link::P2pOff => from_profile(P2p::Off),
        Link::Emulated { alpha_us, gb_s } => Ok(Some(EmulatedLink::Formula { alpha_us, gb_s })),
    }
}

/// Busy intervals of a rank's lanes during one decode step. Times are ns since the step's first operation on any
/// rank; the intervals of a lane are sorted and do not touch.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct StepLanes {
    pub rank: u32,
    pub compute: Vec<[u32; 2]>,
    pub comm: Vec<[u32; 2]>,
}

impl StepLanes {
    /// Computes each rank's lanes from the spans of one step; sorted by rank.
    pub fn of_step(spans: &[Span]) -> Vec<Self> {
        let zero = spans.iter().map(|span| span.start_ns).min().unwrap_or(0);
        let mut ranks: Vec<u32> = spans.iter().map(|span| span.rank).collect();
        ranks.sort_unstable();
        ranks.dedup();
        let of_rank = |rank| {
            let busy = |lane| {
                let of_lane = spans.iter().filter(|span| (span.rank, span.lane) == (rank, lane));
                union(
                    of_lane
                        .map(|span| [offset(span.start_ns, zero), offset(span.end_ns, zero)])
                        .collect(),
                )
            };
            Self { rank, compute: busy(Lane::Compute), comm: busy(Lane::Comm) }
        };
        ranks.into_iter().map(of_rank).collect()
    }

    pub fn end(&self) -> u32 {
        self.compute.iter().chain(&self.comm).map(|[_, end]| *end).max().unwrap_or(0)
    }
}

/// Nanoseconds from `zero`; saturates after about four seconds.
fn offset(ns: i64, zero: i64) -> u32 {
    u32::try_from(ns.saturating_sub(zero).max(0)).unwrap_or(u32::MAX)
}

fn union(mut intervals: Vec<[u32; 2]>) -> Vec<[u32; 2]> {
    intervals.sort_unstable();
    let mut joined: Vec<[u32; 2]> = Vec::new();
    for [start, end] in intervals {
        match joined.last_mut() {
            Some(last) if start <= last[1] => last[1] = last[1].max(end),
            _ => joined.push([start, end]),
        }
    }
    joined
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lanes_of_a_step_are_unions_from_its_first_operation() {
        let span = |rank, lane, start_ns, end_ns| Span {
            step: 3,
            rank,
            lane,
            ready_ns: start_ns,
            start_ns,
            end_ns,
            ..Span::EMPTY
        };
        let spans = [
            span(1, Lane::Compute, 1_050, 1_100),
            span(0, Lane::Compute, 1_000, 1_200),
            span(0, Lane::Compute, 1_200, 1_300),
            span(0, Lane::Comm, 1_250, 1_500),
            span(0, Lane::Compute, 1_400, 1_450),
        ];
        let lanes = StepLanes::of_step(&spans);
        let first = StepLanes { rank: 0, compute: vec![[0, 300], [400, 450]], comm: vec![[250, 500]] };
        assert_eq!(lanes, [first, StepLanes { rank: 1, compute: vec![[50, 100]], comm: Vec::new() }]);
        assert_eq!((lanes[0].end(), lanes[1].end()), (500, 100));
        assert!(StepLanes::of_step(&[]).is_empty());
    }
}
