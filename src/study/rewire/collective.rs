//! Effect of another collective, or another P2P setting, on the all-reduces of a trace.
//!
//! A hardware profile gives the latency of a message for each collective. Measured latencies are scaled by
//! the ratio of the two, which keeps the engine's own overhead; if the profile lacks the trace's collective,
//! the new one's latency replaces the measured one.

use super::steps::Steps;
use base::error::{Error, Result};
use machine::hardware::{CollectiveCost, Target};
use table::{Collective, P2p};
use trace::rules::function;

/// All-reduce of a trace, as far as a profile covers it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Known {
    /// Collective of the trace; `None` if the kernel name does not identify it.
    pub collective: Option<Collective>,
    pub bytes: f64,
    /// True if the size was estimated from the latency instead of derived from the model.
    pub is_estimate: bool,
}

/// Collectives that a kernel's name matches, the one that determines its latency first: a fused one-shot
/// kernel is both. Empty if unknown.
pub(super) fn by_name(name: &str) -> Vec<Collective> {
    let function = function(name).to_ascii_lowercase();
    let name = name.to_ascii_lowercase();
    let has = |words: &[&str]| words.iter().any(|word| name.contains(word));
    // pattern 0 of TensorRT-LLM's fusion kernels is a plain all-reduce
    let is_alone = has(&["allreducefusionpattern)0,", "allreducefusionpattern)0>"]);
    let norms = ["fusion", "fused", "norm", "residual"].iter().any(|word| function.contains(word));
    let is = [
        (Collective::Fused, norms && !is_alone),
        (Collective::Multimem, has(&["multimem"])),
        (Collective::Symmetric, has(&["ncclsym"])),
        (Collective::Nccl, has(&["nccl", "rccl"]) && !has(&["ncclsym"])),
        (Collective::OneShot, has(&["1stage", "one_shot", "oneshot"])),
        (Collective::TwoShot, has(&["2stage", "two_shot", "twoshot"])),
    ];
    is.into_iter().filter(|(_, is_it)| *is_it).map(|(collective, _)| collective).collect()
}

pub(super) fn cost(
    target: &Target,
    collective: Collective,
    p2p: P2p,
    tp: u32,
) -> Result<CollectiveCost<'_>> {
    let (cost, used) = target.profile.collective(collective, p2p, tp, target.stack.collective);
    if let Some(problem) = target.profile.link_problem(collective, p2p, tp) {
        return Err(Error::input(format!("{}: {problem}", target.profile.name)));
    }
    if used != collective {
        return Err(Error::input_help(
            format!(
                "{} has no {collective} for {tp} ranks with P2P {p2p}: {used} would step in",
                target.profile.name
            ),
            "name another collective, or a profile that has it with --hardware",
        ));
    }
    Ok(cost)
}

/// Latency of a message (us).
fn us(target: &Target, collective: Collective, p2p: P2p, tp: u32, bytes: f64) -> Result<f64> {
    Ok(cost(target, collective, p2p, tp)?.us(bytes).0)
}

/// Smallest and largest message size of the search (bytes).
pub(super) const MESSAGES: (f64, f64) = (256.0, (1u64 << 36) as f64);

/// Message size whose latency is `time_us`, clamped to the given bounds.
pub(super) fn bytes_of(us: impl Fn(f64) -> f64, time_us: f64, (mut low, mut high): (f64, f64)) -> f64 {
    for _ in 0..60 {
        let middle = (low * high).sqrt();
        if us(middle) < time_us {
            low = middle;
        } else {
            high = middle;
        }
    }
    high
}

pub(super) fn known(
    steps: &Steps,
    target: &Target,
    tp: u32,
    bytes: Option<f64>,
    own: Option<Collective>,
) -> Known {
    let collective = own;
    if let Some(bytes) = bytes {
        return Known { collective, bytes, is_estimate: false };
    }
    let time_us = steps.usual_transfer() as f64 / 1e3;
    let of = |collective| cost(target, collective, P2p::On, tp).ok();
    let cost = collective.and_then(of).or_else(|| of(Collective::default()));
    let bytes = cost.map_or(MESSAGES.0, |cost| bytes_of(|bytes| cost.us(bytes).0, time_us, MESSAGES));
    Known { collective, bytes, is_estimate: true }
}

/// Scale factor for all-reduce latency, or a fixed latency in ns.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Instead {
    Times(f64),
    Takes(i64),
}

impl Instead {
    /// New latency of an all-reduce (ns).
    pub fn of(self, transfer: i64) -> i64 {
        match self {
            Self::Times(ratio) => (transfer as f64 * ratio).round() as i64,
            Self::Takes(ns) => ns,
        }
    }
}

/// Change of the trace's all-reduces with another collective, or with P2P on or off.
pub(super) fn instead(
    known: &Known,
    target: &Target,
    tp: u32,
    wanted: Collective,
    p2p: (P2p, P2p),
) -> Result<Instead> {
    let then = us(target, wanted, p2p.1, tp, known.bytes)?;
    let before = known.collective.map(|own| us(target, own, p2p.0, tp, known.bytes));
    Ok(match before {
        Some(Ok(before)) if before > 0.0 => Instead::Times(then / before),
        _ => Instead::Takes((then * 1e3).round() as i64),
    })
}
