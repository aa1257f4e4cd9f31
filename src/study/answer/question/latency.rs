//! Sentence of an answer about a sweep of all-reduce latencies: the minimum all-reduce latency at which conversion pays
//! off, and with which architecture.

use super::{ComparisonQuestion, listed, times};
use crate::analysis::{Axis, fastest};
use base::statistics::grouped;
use table::Link;

/// Axes that set the latency of an all-reduce.
const LINK: Axis = Axis::Option("link");

/// Least number of latencies for a sentence about where a gain begins.
const LEAST_LATENCIES: usize = 3;

/// Fastest choices at a latency (us), best first; none if nothing is faster than the baseline.
struct AtLatency {
    alpha_us: f64,
    fastest: Vec<String>,
}

impl ComparisonQuestion<'_> {
    /// Headline of a sweep of latencies: `Pays off at >= 2 us per all-reduce, with parallel (llama-3-8b), at >= 4 us per
    /// all-reduce, with parallel (llama-3-70b); up to 1.69x faster than standard in tokens/s, with parallel at
    /// llama-3-8b, 100us+300GB/s`. `None` unless architectures were compared over several latencies in each other setting.
    pub fn pays_off(&self) -> Option<String> {
        let is_asked =
            *self.axis == Axis::ARCHITECTURE && self.settings.axes().any(|axis| *axis == LINK);
        if !is_asked || self.doubt.is_some() {
            return None;
        }
        let others = self.settings.without(&LINK);
        let mut found = Vec::new();
        for (_, pairs) in &self.choices {
            let spec = &pairs.first()?.side.spec;
            let Link::Emulated { alpha_us, .. } = spec.link else { return None };
            let named = fastest(pairs).into_iter().map(|pair| self.value(pair));
            found.push((others.phrase(spec), AtLatency { alpha_us, fastest: named.collect() }));
        }
        let mut parts = Vec::new();
        for (group, mut latencies) in grouped(found) {
            latencies.sort_by(|a, b| a.alpha_us.total_cmp(&b.alpha_us));
            // links of two bandwidths have no single threshold
            let is_one_series = latencies.windows(2).all(|pair| pair[0].alpha_us < pair[1].alpha_us);
            if !is_one_series || latencies.len() < LEAST_LATENCIES {
                return None;
            }
            let at = if group.is_empty() { String::new() } else { format!(" ({group})") };
            parts.push(threshold(&latencies) + &at);
        }
        let best = self.largest_gain()?;
        Some(format!(
            "Pays off {}; up to {} {}, with {} at {}",
            listed(parts)?,
            times(best),
            self.faster_than(&self.baseline(best), " in tokens/s"),
            self.value(best),
            self.setting(best)
        ))
    }
}

/// Minimum latency at which something is always faster than the baseline, with the fastest there, and the minimum latency
/// at which one is the only fastest: `at >= 2 us per all-reduce, with ladder or parallel, parallel alone at >= 30 us`.
fn threshold(latencies: &[AtLatency]) -> String {
    let start = latencies.iter().rposition(|at| at.fastest.is_empty()).map_or(0, |last| last + 1);
    let Some(first) = latencies.get(start) else {
        let most = latencies.last().map_or(0.0, |at| at.alpha_us);
        return format!("at no latency up to {most} us per all-reduce");
    };
    let highest = latencies.last().map_or(&[][..], |at| &at.fastest);
    let alone = match highest {
        [winner] => {
            let is_alone = |at: &AtLatency| at.fastest == [winner.as_str()];
            let from = latencies.iter().rposition(|at| !is_alone(at)).map_or(0, |last| last + 1);
            let at = latencies.get(from).filter(|_| from > start);
            at.map(|at| format!(", {winner} alone at >= {} us", at.alpha_us))
        }
        _ => None,
    };
    let at = if start == 0 { "at all swept latencies," } else { "at" };
    format!(
        "{at} >= {} us per all-reduce, with {}{}",
        first.alpha_us,
        first.fastest.join(" or "),
        alone.unwrap_or_default()
    )
}
