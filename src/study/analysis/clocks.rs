//! Clocks of ranks that were traced by separate profilers, tied together by the collectives themselves.
//!
//! A collective ends on all its ranks at once, but for what it takes to see that: a few hundred nanoseconds within a node.
//! So the median of the differences between the ends of the same collectives is what two clocks differ by.

use std::collections::HashMap;

use crate::base::statistics::{median, percentile};
use crate::plan::Lane;
use crate::trace::Trace;

/// What the clocks of the ranks of a trace differ by.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Clocks {
    /// What to add to a rank's times so that collectives end together, by rank (ns).
    pub offsets: HashMap<u32, i64>,
    /// Collectives by which they were tied together.
    pub collectives: usize,
    /// How far ends are apart once the clocks are tied together: the 90th percentile (ns).
    pub apart_ns: i64,
}

/// Ends of a rank's collectives (ns), by kind, in order.
type Ends<'a> = HashMap<&'a str, Vec<i64>>;

/// Ties the clocks of an imported trace's ranks together, where they come from several files. Of a trace of our own and of
/// one file, which have one clock, nothing is to be added. Ranks that do not have the same numbers of collectives of any kind are left as they are.
pub fn clocks(trace: &Trace) -> Clocks {
    let mut ends: HashMap<u32, Ends<'_>> = HashMap::new();
    // one profiler times all ranks of its file by one clock
    if trace.meta.import.as_ref().is_none_or(|import| import.files.len() < 2) {
        return Clocks::default();
    }
    for span in trace.spans.iter().filter(|span| span.lane == Lane::Comm) {
        let Some(operation) = trace.operations.get(span.operation as usize) else { continue };
        let of_rank = ends.entry(span.rank).or_default();
        of_rank.entry(operation.kind.as_str()).or_default().push(span.end_ns);
    }
    let mut ranks: Vec<(u32, Ends<'_>)> = ends.into_iter().collect();
    ranks.sort_by_key(|(rank, _)| *rank);
    for kinds in ranks.iter_mut().map(|(_, kinds)| kinds) {
        kinds.values_mut().for_each(|ends| ends.sort_unstable());
    }
    let Some(((first, reference), others)) = ranks.split_first() else { return Clocks::default() };
    let mut clocks = Clocks { offsets: HashMap::from([(*first, 0)]), ..Clocks::default() };
    let mut apart: Vec<f64> = Vec::new();
    for (rank, kinds) in others {
        let same = |(kind, ends): &(&&str, &Vec<i64>)| {
            reference.get(**kind).is_some_and(|of| of.len() == ends.len())
        };
        let differences: Vec<f64> = kinds
            .iter()
            .filter(same)
            .flat_map(|(kind, ends)| {
                reference[kind].iter().zip(ends).map(|(first, own)| (first - own) as f64)
            })
            .collect();
        let Some(offset) = median(&differences) else { continue };
        clocks.offsets.insert(*rank, offset.round() as i64);
        clocks.collectives = clocks.collectives.max(differences.len());
        apart.extend(differences.iter().map(|difference| (difference - offset).abs()));
    }
    clocks.apart_ns = percentile(&apart, 90.0).map_or(0, |ns| ns.round() as i64);
    clocks
}

/// The offsets of [`clocks`].
pub fn clock_offsets(trace: &Trace) -> HashMap<u32, i64> {
    clocks(trace).offsets
}

#[cfg(test)]
mod tests {
    use super::*;
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
        trace.meta.import = Some(files(2));
        let found = clocks(&trace);
        assert_eq!((found.offsets[&0], found.offsets[&1], found.collectives), (0, -1_000_000_020, 9));
        assert!((10..=20).contains(&found.apart_ns), "{found:?}");
        // a rank with another number of them is left as it is
        trace.spans.pop();
        assert_eq!(clocks(&trace).offsets.get(&1), None);
    }
}
