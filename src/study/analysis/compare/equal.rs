//! Pairs that give the same numbers: what they differ in changed nothing, and a table says so in one row.

use std::collections::HashMap;

use super::{Comparison, ComparisonReport};

/// Everything that a table shows of a pair but its cell: two pairs that are alike in it are told apart by the
/// cell alone. Numbers count to seven digits, so that the order of a sum is no difference.
type Numbers<'a> = (&'a str, &'a str, &'static str, [Option<u32>; 12]);

fn numbers(pair: &Comparison) -> Numbers<'_> {
    let digits = |number: Option<f64>| number.map(|number| (number as f32).to_bits());
    let (a, b) = (&pair.baseline_side, &pair.side);
    let shown = [
        Some(pair.speedup),
        Some(pair.baseline_tpot_ms),
        Some(pair.tpot_ms),
        Some(a.completion_ms),
        Some(b.completion_ms),
        a.exposed_pct,
        b.exposed_pct,
        pair.baseline_overlap_pct,
        pair.overlap_pct,
        a.hidden_share,
        b.hidden_share,
        pair.adjusted_p,
    ];
    (&pair.baseline, &pair.value, pair.provenance.as_str(), shown.map(digits))
}

/// Of each pair of a report the first one that gives the same numbers for the same two values: its index, the
/// pair's own where there is none before it. Costs a look at each pair.
pub fn first_equal(report: &ComparisonReport) -> Vec<usize> {
    let mut first: HashMap<Numbers<'_>, usize> = HashMap::new();
    let pairs = report.pairs.iter().enumerate();
    pairs.map(|(at, pair)| *first.entry(numbers(pair)).or_insert(at)).collect()
}
