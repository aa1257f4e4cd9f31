//! Effect of another collective, or another P2P setting, on the all-reduces of a trace, and message sizes
//! that a trace does not record.
//!
//! A hardware profile gives the latency of a message for each collective. Another link latency is added to
//! measured latencies as a difference; all else first scales them by the ratio of the two, which keeps the engine's
//! own overhead. If the profile lacks the trace's collective, the new one's latency replaces the measured one.

use super::steps::{LayerCollectives, RecordedSteps};
use crate::analysis::CollectiveRow;
use base::error::{Error, Result};
use machine::hardware::{CollectiveCost, LinkPoint, Target};
use table::{Collective, P2p};
use trace::OperationKind;
use trace::rules::function;

/// All-reduce of a trace, as far as a profile covers it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct TracedAllReduce {
    /// Collective of the trace; `None` if the kernel name does not identify it.
    pub collective: Option<Collective>,
    /// Message size (bytes).
    pub bytes: std::result::Result<f64, UnknownSize>,
    /// True if the size was estimated from the latency instead of derived from the model.
    pub is_estimate: bool,
}

impl TracedAllReduce {
    /// Message size of costs: the smallest if it is unknown (bytes).
    pub fn cost_bytes(&self) -> f64 {
        self.bytes.unwrap_or(MESSAGES.0)
    }
}

/// Reason why a message size cannot be estimated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UnknownSize {
    /// The profile has no latencies for the trace's ranks.
    NoLatencies,
    /// Even the smallest message takes longer than the traced ones.
    TooFast,
}

/// All-reduces that a kernel's name matches, the one that determines its latency first.
pub(super) fn by_name(name: &str) -> Vec<Collective> {
    Collective::of_kernel(&function(name), name)
}

pub(super) fn cost(
    target: &Target,
    collective: Collective,
    p2p: P2p,
    tp: u32,
) -> Result<CollectiveCost<'_>> {
    let engine = target.stack.engine_version();
    let (cost, used) =
        target.profile.collective_in(engine, collective, p2p, tp, target.stack.collective);
    if let Some(problem) = target.profile.link_problem(collective, p2p, tp) {
        return Err(Error::input(format!("{}: {problem}", target.profile.name)));
    }
    if used != collective {
        let with = if p2p == P2p::On { "with" } else { "without" };
        return Err(Error::input_help(
            format!("{} has no {collective} latency for {tp} ranks {with} P2P", target.profile.name),
            "name another collective, or a profile that has it with --hardware",
        ));
    }
    Ok(cost)
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
    // at the lower bound, the exact one
    if us(low) < time_us { high } else { low }
}

pub(super) fn known(
    steps: &RecordedSteps,
    target: &Target,
    tp: u32,
    bytes: Option<f64>,
    own: Option<Collective>,
) -> TracedAllReduce {
    let collective = own;
    if let Some(bytes) = bytes {
        return TracedAllReduce { collective, bytes: Ok(bytes), is_estimate: false };
    }
    let time_us = steps.usual_transfer() as f64 / 1e3;
    let cost_of = |collective| cost(target, collective, P2p::On, tp).ok();
    let cost = collective.and_then(cost_of).or_else(|| cost_of(Collective::default()));
    let us = |cost: &CollectiveCost<'_>, bytes| match steps.ends {
        LayerCollectives::AllReduces => cost.us(bytes).0,
        LayerCollectives::Exchanges => cost.half_us(bytes).0,
    };
    let bytes = match cost {
        None => Err(UnknownSize::NoLatencies),
        Some(cost) if us(&cost, MESSAGES.0) > time_us => Err(UnknownSize::TooFast),
        Some(cost) => Ok(bytes_of(|bytes| us(&cost, bytes), time_us, MESSAGES)),
    };
    TracedAllReduce { collective, bytes, is_estimate: true }
}

/// Change of the latency of a trace's all-reduces.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum LatencyChange {
    /// Scales the measured latency by `times` (all changes but the link's latency), then adds `latency_us`, the change of
    /// the link's latency. The result is at least the share `least` of the scaled latency.
    Measured { times: f64, latency_us: f64, least: f64 },
    /// Fixed latency (ns).
    Takes(i64),
}

impl LatencyChange {
    pub const NONE: Self = Self::Measured { times: 1.0, latency_us: 0.0, least: 1.0 };

    /// Change between three costs of a message: of the trace, with all changes but the link's latency, and with all
    /// changes; a fixed latency if the first is zero. The ratio is applied before the link's latency is added, because the
    /// other changes scale the traced latency only.
    ///
    /// Assumes, without a measurement, that the link's latency is the same in messages above
    /// [`LinkPoint::LATENCY_BYTES`] as at that size. A profile scales the whole time beyond bytes / bandwidth with the
    /// latency, but in larger messages a part of that time grows with the size, so it is not the link's latency.
    pub fn between(costs: [&CollectiveCost<'_>; 3], bytes: f64) -> Self {
        let [before, scaled, after] = costs.map(|cost| cost.us(bytes).0);
        if before <= 0.0 {
            return Self::takes(after);
        }
        let small_bytes = bytes.min(LinkPoint::LATENCY_BYTES as f64);
        let [_, small, small_after] = costs.map(|cost| cost.us(small_bytes).0);
        Self::Measured {
            times: scaled / before,
            latency_us: small_after - small,
            least: if scaled > 0.0 { (after / scaled).min(1.0) } else { 1.0 },
        }
    }

    fn takes(us: f64) -> Self {
        Self::Takes((us * 1e3).round() as i64)
    }

    /// New latency of an all-reduce (ns).
    pub fn latency_ns(self, transfer: i64) -> i64 {
        match self {
            Self::Measured { times, latency_us, least } => {
                let ns = transfer as f64 * times;
                (ns + 1e3 * latency_us).max(ns * least).round() as i64
            }
            Self::Takes(ns) => ns,
        }
    }
}

/// All-reduces of a changed engine.
pub(super) struct ChangedAllReduce<'a> {
    /// Target with all changes but the link's latency, and with all.
    pub targets: [&'a Target; 2],
    pub tp: u32,
    pub collective: Collective,
    pub p2p: P2p,
}

/// Change of the all-reduces of a trace on `target` with another collective, P2P setting, link or TP. `own` is the
/// collective whose latency the profile gives for the traced ones; `None` replaces their times.
pub(super) fn instead(
    known: &TracedAllReduce,
    (target, tp, p2p): (&Target, u32, P2p),
    own: Option<Collective>,
    after: &ChangedAllReduce<'_>,
) -> Result<LatencyChange> {
    let bytes = known.cost_bytes();
    let then = |target| cost(target, after.collective, after.p2p, after.tp);
    let (scaled, then) = (then(after.targets[0])?, then(after.targets[1])?);
    Ok(match own.and_then(|own| cost(target, own, p2p, tp).ok()) {
        Some(before) => LatencyChange::between([&before, &scaled, &then], bytes),
        None => LatencyChange::takes(then.us(bytes).0),
    })
}

/// Multiple of the smallest message's latency up to which the latency says little about the size: at this
/// point 5 % more time means 25 % more bytes.
const FLAT: f64 = 1.25;

/// Message size (bytes) estimated from a latency.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Message {
    About(f64),
    /// Upper bound: smaller messages have the same latency.
    AtMost(f64),
}

/// Message size whose latency is `time_us`. `us` maps bytes to latency; a measured curve may fall where NCCL
/// switches protocols.
fn message(us: impl Fn(f64) -> f64, time_us: f64) -> Message {
    let flat_us = FLAT * us(MESSAGES.0);
    let least = bytes_of(&us, time_us.max(flat_us), MESSAGES);
    // a larger message with at most the same latency
    let larger = (1..=32).map(|step| least * 2f64.powf(f64::from(step) / 4.0));
    let faster = larger.filter(|bytes| us(*bytes) < time_us.max(flat_us)).last();
    let most = faster.map(|bytes| bytes_of(&us, time_us.max(flat_us), (bytes, MESSAGES.1)));
    match most {
        None if time_us > flat_us => Message::About(least),
        most => Message::AtMost(most.unwrap_or(least)),
    }
}

/// Estimates missing message sizes from the transfer times of matched collectives that the profile covers at
/// their group size. Bandwidths stay empty: they would only repeat the profile's.
pub fn estimate_messages(rows: &mut [CollectiveRow], target: &Target, p2p: P2p) {
    for row in rows.iter_mut().filter(|row| row.message_bytes.is_none()) {
        let (Some(ranks), Some(time_us)) = (row.group_size, row.transfer_us) else { continue };
        let Some(collective) = by_name(&row.executed.name).first().copied() else { continue };
        let Ok(cost) = cost(target, collective, p2p, ranks) else { continue };
        let found = match row.kind {
            _ if ranks < 2 || time_us <= 0.0 => continue,
            OperationKind::AllReduce => message(|bytes| cost.us(bytes).0, time_us),
            OperationKind::ReduceScatter | OperationKind::AllGather => {
                message(|bytes| cost.half_us(bytes).0, time_us)
            }
            _ => continue,
        };
        match found {
            Message::About(bytes) => row.message_bytes = Some(bytes.round() as u64),
            Message::AtMost(bytes) => row.message_bytes_at_most = Some(bytes.round() as u64),
        }
        row.message_bytes_from = Some("calibration");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use machine::hardware::{CollectiveScale, Profile};

    #[test]
    fn a_formula_is_inverted_above_its_latency() {
        // 10 us and 100 GB/s
        let us = |bytes: f64| 10.0 + bytes / 1e5;
        for bytes in [4e5, 1e6, 1e9] {
            let Message::About(found) = message(us, us(bytes)) else { panic!("{bytes}") };
            assert!((found / bytes - 1.0).abs() < 1e-6, "{found} for {bytes}");
        }
        // nothing is faster than the smallest message
        assert_eq!(bytes_of(us, 5.0, MESSAGES), MESSAGES.0);
        // up to 12.5 us the size is open
        for time_us in [0.1, 9.0, 10.0, 12.0] {
            let Message::AtMost(most) = message(us, time_us) else { panic!("{time_us}") };
            assert!((most / 2.5e5 - 1.0).abs() < 0.01, "{most} at {time_us}");
        }
    }

    #[test]
    fn another_latency_is_a_difference_and_another_bandwidth_a_ratio() {
        let of = |alpha_us, gb_s| CollectiveCost::Formula { alpha_us, gb_s };
        // the trace's link: 10 us, and 20 us for 1 MB at 50 GB/s
        let ns = |alpha_us, gb_s, traced_us: i64| {
            let costs = [&of(10.0, 50.0), &of(10.0, gb_s), &of(alpha_us, gb_s)];
            LatencyChange::between(costs, 1e6).latency_ns(1000 * traced_us)
        };
        // an all-reduce as modelled, and one that takes twice as long, lose the 6 us that the latency loses
        assert_eq!([30, 60].map(|us| ns(4.0, 50.0, us)), [24_000, 54_000]);
        // a faster one loses no more than the share that the modelled one does: 24 of 30 us are left
        assert_eq!(ns(4.0, 50.0, 15), 12_000);
        assert_eq!([15, 60].map(|us| ns(0.0, 50.0, us)), [10_000, 50_000]);
        assert_eq!([15, 60].map(|us| ns(16.0, 50.0, us)), [21_000, 66_000]);
        // half the bandwidth: 50 instead of 30 us
        assert_eq!(ns(10.0, 25.0, 60), 100_000);
        // a new link latency only adds its difference: the ratio of the bandwidths stays the same
        assert_eq!([4.0, 110.0].map(|alpha_us| ns(alpha_us, 25.0, 60)), [94_000, 200_000]);
        assert_eq!(ns(10.0, 50.0, 61), LatencyChange::NONE.latency_ns(61_000));
    }

    #[test]
    fn a_large_message_gains_no_more_than_the_links_latency() {
        let traced = Profile::load("b200_sxm").unwrap();
        let mut slid = traced.clone();
        // half of 25.81 us
        slid.link.p2p_on.tp.get_mut(&8).unwrap().alpha_us = 12.905;
        let [before, after] = [&traced, &slid]
            .map(|profile| profile.collective(Collective::Nccl, P2p::On, 8, CollectiveScale::ALONE).0);
        // 4 MiB: 53.37 us, of which 9.43 us at 444.8 GB/s; the rest is more than the link's latency
        let change = LatencyChange::between([&before, &before, &after], 4_194_304.0);
        let gained_us = (53_370 - change.latency_ns(53_370)) as f64 / 1e3;
        // half of the 26.55 us of 16 KiB
        assert!((gained_us - 13.26).abs() < 0.02, "{gained_us}");
    }

    #[test]
    fn messages_that_a_measured_link_cannot_tell_apart_have_an_upper_limit() {
        let h100 = Profile::load("h100_sxm").unwrap();
        let (cost, _) = h100.collective(Collective::Nccl, P2p::On, 8, CollectiveScale::ALONE);
        for bytes in [1e6, 1.6e7, 3e9] {
            let Message::About(found) = message(|b| cost.us(b).0, cost.us(bytes).0) else {
                panic!("{bytes}")
            };
            assert!((found / bytes - 1.0).abs() < 0.01, "{found} for {bytes}");
        }
        let Message::AtMost(small) = message(|b| cost.us(b).0, cost.us(4096.0).0) else { panic!() };
        assert!((16_384.0..1e6).contains(&small), "{small}");
        // 512 KiB takes 156 us, 1 MiB 132 us
        let mi300x = Profile::load("mi300x").unwrap();
        let (cost, _) = mi300x.collective(Collective::Nccl, P2p::Off, 8, CollectiveScale::ALONE);
        let Message::AtMost(either) = message(|b| cost.us(b).0, 145.0) else { panic!() };
        assert!((1_048_576.0..2_097_152.0).contains(&either), "{either}");
    }
}
