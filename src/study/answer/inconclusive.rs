//! Signs that the differences of measured cells are noise: results that cannot be, and rounds that vary by more than the
//! cells differ.

use std::collections::BTreeMap;

use crate::analysis::{Comparison, ComparisonReport, Side, Verdict, slow_limits};
use table::{Link, P2p, Provenance};

/// Smallest lead without P2P over the same cell with it, as a ratio, that only noise can explain: an architecture that
/// hides all communication is as fast on both links.
const IMPOSSIBLE: f64 = 1.05;

/// Reason that measured pairs decide nothing; `None` for simulations, and if the differences exceed the noise.
pub(super) fn inconclusive(report: &ComparisonReport) -> Option<String> {
    if report.pairs.iter().any(|pair| pair.provenance == Provenance::Simulated) {
        return None;
    }
    slow_limit(report).or_else(|| faster_without_p2p(report)).or_else(|| varying_rounds(report))
}

fn slow_limit(report: &ComparisonReport) -> Option<String> {
    let worst = slow_limits(report).min_by(|a, b| a.speedup.total_cmp(&b.speedup))?;
    let (speedup, standard) = (worst.speedup, &worst.baseline);
    Some(format!(
        "upper-bound has {speedup:.2}x the tokens/s of {standard}, although it does not communicate"
    ))
}

fn sides(report: &ComparisonReport) -> impl Iterator<Item = &Side> {
    report.pairs.iter().flat_map(|pair| [&pair.baseline_side, &pair.side])
}

/// Cell that is faster without P2P than with it, on links of which the one without P2P is no better.
fn faster_without_p2p(report: &ComparisonReport) -> Option<String> {
    let mut cells: BTreeMap<String, [Vec<&Side>; 2]> = BTreeMap::new();
    for side in sides(report).filter(|side| side.spec.tp > 1 && !side.spec.architecture.is_limit()) {
        let mut spec = side.spec.clone();
        (spec.p2p, spec.link) = (P2p::On, Link::Native);
        spec.env.retain(|name, _| !name.starts_with("NCCL_P2P_"));
        cells.entry(spec.key()).or_default()[usize::from(side.spec.p2p == P2p::Off)].push(side);
    }
    let no_better = |on: &Side, off: &Side| match (on.spec.link, off.spec.link) {
        (Link::Emulated { alpha_us, gb_s }, Link::Emulated { alpha_us: late, gb_s: narrow }) => {
            late >= alpha_us && narrow <= gb_s
        }
        (on, off) => on == off,
    };
    let both = cells
        .values()
        .flat_map(|[on, off]| on.iter().flat_map(move |on| off.iter().map(move |off| (*on, *off))));
    let ratio = |(on, off): &(&Side, &Side)| on.completion_ms / off.completion_ms;
    // intervals that overlap show no difference to explain
    let is_significant = |on: &Side, off: &Side| match (on.tpot_ms_ci95, off.tpot_ms_ci95) {
        (Some([low, _]), Some([_, high])) => low > high,
        _ => true,
    };
    let worst = both
        .filter(|(on, off)| no_better(on, off) && is_significant(on, off))
        .max_by(|a, b| ratio(a).total_cmp(&ratio(b)))
        .filter(|both| ratio(both) > IMPOSSIBLE)?;
    Some(format!(
        "{} is {:.2}x faster without P2P than with it, on a link that is no faster",
        worst.0.spec.architecture_label(),
        ratio(&worst)
    ))
}

/// Rounds of one cell that vary by more than the largest lead, where no lead is significant.
fn varying_rounds(report: &ComparisonReport) -> Option<String> {
    let choices = || report.pairs.iter().filter(|pair| !pair.side.spec.architecture.is_limit());
    if choices().any(|pair| matches!(pair.verdict, Verdict::Faster | Verdict::Slower)) {
        return None;
    }
    let lead = |pair: &Comparison| pair.speedup.max(1.0 / pair.speedup) - 1.0;
    let lead = choices().map(lead).fold(0.0, f64::max);
    let spreads = sides(report).filter_map(|side| Some((side, side.spread?)));
    let (side, spread) = spreads.max_by(|a, b| a.1.total_cmp(&b.1))?;
    (spread > lead).then(|| {
        format!(
            "rounds of {} vary by {:.0} %, more than the largest difference ({:.0} %)",
            side.spec.architecture_label(),
            100.0 * spread,
            100.0 * lead
        )
    })
}
