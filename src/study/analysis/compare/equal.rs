//! Pairs with equal numbers, which a table merges into one row.

use std::collections::HashMap;

use super::{Comparison, ComparisonReport};

/// Everything a table shows of a pair except its cell. Numbers are compared as `f32` (seven digits), so that the
/// summation order does not matter.
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

/// Index of the first pair with the same numbers and axis values, for each pair of a report; a pair without an earlier
/// match gets its own index. One pass over the pairs.
pub fn first_equal(report: &ComparisonReport) -> Vec<usize> {
    let mut first: HashMap<Numbers<'_>, usize> = HashMap::new();
    let pairs = report.pairs.iter().enumerate();
    pairs.map(|(at, pair)| *first.entry(numbers(pair)).or_insert(at)).collect()
}
