//! Warnings about a set of cells that do not depend on the comparison axis.

use super::compare::{Axis, Flag, Label, Matching, Pair, PooledCell};
use run::sim::LINK_WARNING;

/// Warnings for these cells: higher TP slower than lower, `upper-bound` that changes with P2P, and the warnings of
/// their own runs.
pub(super) fn flags(cells: &[PooledCell]) -> Vec<Flag> {
    let mut flags = slower_with_more_ranks(cells);
    flags.extend(upper_bound_that_p2p_changes(cells));
    let label = Label::new(cells, None);
    for cell in cells {
        flags.extend(cell.record.warnings.iter().map(|warning| Flag {
            is_extrapolation: warning.starts_with(LINK_WARNING),
            ..Flag::new([cell], format!("{}: {warning}", label.pair(cell, cell)))
        }));
    }
    flags
}

/// Compares neighbouring TPs: if more ranks are slower, communication costs more than it saves, or something is wrong.
/// Measurements without an interval are reported too, marked as uncertain.
fn slower_with_more_ranks(cells: &[PooledCell]) -> Vec<Flag> {
    let matching = Matching::new(cells, &Axis::TP, None);
    let label = Label::new(cells, Some(&Axis::TP));
    let mut flags = Vec::new();
    for group in matching.groups() {
        let mut group = group.clone();
        group.sort_by_key(|cell| cell.record.spec.tp);
        for pair in group.windows(2).map(|w| Pair::new(w[0], w[1])) {
            let ratio = pair.ratio();
            let (low, high) = (&pair.baseline.record, &pair.other.record);
            let unsure = ratio.ci95.is_none() && !ratio.exact;
            if low.spec.tp < high.spec.tp && ratio.speedup < 1.0 && (ratio.differs || unsure) {
                let text = format!(
                    "{}: TP {} is slower than TP {} ({:.2}x the tokens/s){}",
                    label.pair(pair.baseline, pair.other),
                    high.spec.tp,
                    low.spec.tp,
                    ratio.speedup,
                    if unsure { " (too few samples for an interval)" } else { "" }
                );
                flags.push(Flag::new([pair.baseline, pair.other], text));
            }
        }
    }
    flags
}

/// `upper-bound` does not communicate, so P2P cannot affect it; if it differs, the two cells ran under different
/// conditions.
fn upper_bound_that_p2p_changes(cells: &[PooledCell]) -> Vec<Flag> {
    let matching = Matching::new(cells, &Axis::P2P, None);
    let label = Label::new(cells, Some(&Axis::P2P));
    let pairs = matching.pairs().into_iter();
    let bounds = pairs.filter(|pair| pair.other.record.spec.architecture.is_limit());
    bounds
        .map(|pair| (pair, pair.ratio()))
        .filter(|(_, ratio)| ratio.differs)
        .map(|(pair, ratio)| {
            let text = format!(
                "{}: differs between P2P on and off ({:.3} x), though it does not communicate: were \
                 conditions the same?",
                label.pair(pair.baseline, pair.other),
                ratio.speedup
            );
            Flag::new([pair.baseline, pair.other], text)
        })
        .collect()
}
