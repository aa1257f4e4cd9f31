//! Shared by backends that execute and time generations: prompts, phase names, emulated link, and merging of the
//! ranks' times into samples.

use std::sync::Arc;

use crate::comm::EmulatedLink;
use base::error::{Error, Result};
use machine::hardware::Profile;
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
