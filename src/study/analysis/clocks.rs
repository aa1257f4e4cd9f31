//! Clocks of ranks that were traced by separate profilers, tied together by the collectives themselves.
//!
//! A collective ends on all its ranks at once, but for what it takes to see that: a few hundred nanoseconds within a node.
//! So the median of the differences between the ends of the same collectives is what two clocks differ by. Ranks that share
//! no collective are tied through others that do.

use std::collections::{BTreeMap, HashMap};

use super::matched::Matching;
use crate::base::statistics::{median, percentile};
use crate::trace::Trace;

/// What the clocks of the ranks of a trace differ by.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Clocks {
    /// What to add to a rank's times so that collectives end together, by rank (ns).
    pub offsets: HashMap<u32, i64>,
    /// Collectives by which they were tied together: the most of a rank with another.
    pub collectives: usize,
    /// How far ends are apart once the clocks are tied together: the 90th percentile (ns).
    pub apart_ns: i64,
    /// The median of that distance (ns).
    pub typically_apart_ns: i64,
}

/// Ties the clocks of an imported trace's ranks together, where they come from several files. Of a trace of our own and of
/// one file, which have one clock, nothing is to be added. Ranks without matched collectives are left as they are.
pub fn clocks(trace: &Trace) -> Clocks {
    if has_one_clock(trace) {
        return Clocks::default();
    }
    Clocks::of(trace, &Matching::of(trace))
}

/// Whether one clock timed all ranks: own traces, what one profiler recorded, and exports of these that were read back.
fn has_one_clock(trace: &Trace) -> bool {
    trace
        .meta
        .import
        .as_ref()
        .is_none_or(|import| import.clocks.map_or(import.files.len(), |clocks| clocks as usize) < 2)
}

impl Clocks {
    /// The clocks by these collectives of the trace.
    pub fn of(trace: &Trace, matching: &Matching) -> Self {
        if has_one_clock(trace) {
            return Self::default();
        }
        let ends = |place: &usize| (trace.spans[*place].rank, trace.spans[*place].end_ns);
        // differences of two ranks' ends: the first rank of a collective with each of the others
        let mut pairs: BTreeMap<(u32, u32), Vec<f64>> = BTreeMap::new();
        for collective in matching.collectives() {
            let Some((first, others)) = collective.places.split_first() else { continue };
            let (rank, end) = ends(first);
            for (other, other_end) in others.iter().map(ends) {
                let difference = end.saturating_sub(other_end) as f64;
                pairs.entry((rank, other)).or_default().push(difference);
            }
        }
        let mut clocks = Self::default();
        // the pairs with the most collectives first, each new rank from one that is tied already
        let mut edges: Vec<((u32, u32), usize, f64)> = pairs
            .iter()
            .filter_map(|(pair, differences)| Some((*pair, differences.len(), median(differences)?)))
            .collect();
        edges.sort_by_key(|(pair, count, _)| (std::cmp::Reverse(*count), *pair));
        while let Some((start, _)) = edges.iter().map(|(pair, ..)| *pair).min() {
            clocks.offsets.insert(start, 0);
            loop {
                let tied = |rank: &u32| clocks.offsets.get(rank).copied();
                let next = edges.iter().position(|((a, b), ..)| tied(a).is_some() != tied(b).is_some());
                let Some(next) = next else { break };
                let ((a, b), count, offset) = edges.remove(next);
                let offset = offset.round() as i64;
                match (tied(&a), tied(&b)) {
                    (Some(known), _) => clocks.offsets.insert(b, known.saturating_add(offset)),
                    (None, known) => clocks.offsets.insert(a, known.unwrap_or(0).saturating_sub(offset)),
                };
                clocks.collectives = clocks.collectives.max(count);
            }
            edges.retain(|((a, _), ..)| !clocks.offsets.contains_key(a));
        }
        let offset = |rank: &u32| clocks.offsets.get(rank).copied().unwrap_or(0);
        let apart: Vec<f64> = pairs
            .iter()
            .flat_map(|((a, b), differences)| {
                let tied = offset(b).saturating_sub(offset(a)) as f64;
                differences.iter().map(move |difference| (difference - tied).abs())
            })
            .collect();
        let rounded = |ns: Option<f64>| ns.map_or(0, |ns| ns.round() as i64);
        clocks.apart_ns = rounded(percentile(&apart, 90.0));
        clocks.typically_apart_ns = rounded(median(&apart));
        clocks
    }

    /// What to add to the times of a rank (ns).
    pub fn offset(&self, rank: u32) -> i64 {
        self.offsets.get(&rank).copied().unwrap_or(0)
    }
}
#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::Lane;
    use crate::study::analysis::testing::{span, trace};
    use crate::trace::ImportReport;

    #[test]
    fn clocks_of_several_files_are_tied_by_the_ends_of_collectives() {
        let mut spans = Vec::new();
        for at in 0..9 {
            let end = 10_000 * (at + 1);
            spans.push(span(0, Lane::Comm, end - 5_000, end));
            // its clock is a second ahead, and it sees the ends up to 40 ns later
            let late = 1_000_000_000 + 10 * (at % 5);
            spans.push(span(1, Lane::Comm, end - 2_000 + late, end + late));
        }
        let mut trace = trace(spans);
        assert_eq!(clocks(&trace), Clocks::default(), "our own have one clock");
        let files =
            |count: usize| ImportReport { files: vec![String::new(); count], ..Default::default() };
        trace.meta.import = Some(files(1));
        assert_eq!(clocks(&trace), Clocks::default(), "so has one file");
        trace.meta.import = Some(ImportReport { clocks: Some(2), ..files(1) });
        assert_eq!(clocks(&trace).offsets.len(), 2, "an export of two files");
        trace.meta.import = Some(ImportReport { clocks: Some(1), ..files(2) });
        assert_eq!(clocks(&trace), Clocks::default());
        trace.meta.import = Some(files(2));
        let found = clocks(&trace);
        assert_eq!((found.offsets[&0], found.offsets[&1], found.collectives), (0, -1_000_000_020, 9));
        assert!((10..=20).contains(&found.apart_ns), "{found:?}");
        // a rank with another number of them is left as it is
        trace.spans.pop();
        assert_eq!(clocks(&trace).offsets.get(&1), None);
    }
}
