//! Engines: replicas of a server in one directory, each of which numbers its own ranks from 0.
//!
//! Their process groups have equal names and ranks, and are different groups. Files that claim a rank twice are told
//! apart by the node or the data-parallel replica in their names.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use super::name::Name;
use super::position::Dimension;
use super::{Decision, RankClaim, positions};
use crate::{ProcessGroup, Trace};
use base::text::rank_list;

/// Ranks of the trace, by the ranks that each engine's files claim.
#[derive(Debug, PartialEq, Eq)]
pub(in crate::import) struct Engines(Vec<BTreeMap<u32, u32>>);

impl Engines {
    /// Engines of files with one rank each. `None` if no rank is claimed twice, or if names do not tell the engines apart.
    pub(in crate::import) fn new(claims: &[RankClaim], decision: &Decision) -> Option<Self> {
        let names: Vec<&Name> = claims.iter().map(|claim| &claim.name).collect();
        let mut engines: BTreeMap<[Option<u32>; 2], BTreeMap<u32, u32>> = BTreeMap::new();
        let mut claimed: BTreeSet<u32> = BTreeSet::new();
        for ((claim, position), ranks) in claims.iter().zip(positions(&names)).zip(&decision.ranks) {
            let (own, position) = (claim.rank()?, position?);
            let &[rank] = ranks.as_slice() else { return None };
            let engine = [Dimension::Node, Dimension::Dp].map(|dimension| position.get(dimension));
            if engines.entry(engine).or_default().insert(own, rank).is_some() {
                return None;
            }
            claimed.insert(own);
        }
        (claimed.len() < claims.len()).then(|| Self(engines.into_values().collect()))
    }

    /// Gives each engine process groups of its own, with the ranks of the trace.
    pub(in crate::import) fn separate(&self, trace: &mut Trace) {
        let Trace { meta, operations, spans, .. } = trace;
        let engines = self.0.iter().enumerate();
        let engine_of: HashMap<u32, usize> =
            engines.flat_map(|(at, ranks)| ranks.values().map(move |rank| (*rank, at))).collect();
        let shared = std::mem::take(&mut meta.groups);
        let group_of: Vec<Option<u32>> = (operations.iter())
            .map(|operation| operation.collective.as_ref().and_then(|collective| collective.group))
            .collect();
        let mut groups: BTreeMap<(u32, usize), u32> = BTreeMap::new();
        let mut separated: HashMap<(u32, usize), u32> = HashMap::new();
        let mut used: BTreeSet<u32> = BTreeSet::new();
        for span in spans {
            let engine = engine_of.get(&span.rank).copied().unwrap_or(0);
            let shared_operation = span.operation;
            let group = group_of.get(shared_operation as usize).copied().flatten();
            let Some(group) = group else { continue };
            span.operation = *separated.entry((shared_operation, engine)).or_insert_with(|| {
                let number = *groups.entry((group, engine)).or_insert_with(|| {
                    let group = shared.get(group as usize).cloned().unwrap_or_default();
                    meta.groups.push(in_trace(group, &self.0[engine]));
                    meta.groups.len() as u32 - 1
                });
                let mut operation = operations[shared_operation as usize].clone();
                if let Some(collective) = &mut operation.collective {
                    collective.group = Some(number);
                    collective.peer =
                        collective.peer.and_then(|peer| self.0[engine].get(&peer).copied());
                }
                // the first engine keeps the operation's number
                if used.insert(shared_operation) {
                    operations[shared_operation as usize] = operation;
                    shared_operation
                } else {
                    operations.push(operation);
                    operations.len() as u32 - 1
                }
            });
        }
        // all spans of these operations were dropped
        for (at, operation) in (0..).zip(&mut *operations).take(group_of.len()) {
            if !used.contains(&at) {
                operation.collective.iter_mut().for_each(|collective| collective.group = None);
            }
        }
        let ranks: Vec<String> = (self.0.iter())
            .map(|ranks| {
                let mut ranks: Vec<u32> = ranks.values().copied().collect();
                ranks.sort_unstable();
                rank_list(&ranks)
            })
            .collect();
        if let Some(import) = &mut meta.import {
            import.warnings.push(format!(
                "{} engines that number their own ranks: {}; steps of one number are averaged over all of them, so open \
                 the files of one engine for its steps",
                ranks.len(),
                ranks.join(", ")
            ));
        }
    }
}

/// Group of an engine with the ranks of the trace; without ranks if one of them was not recorded.
fn in_trace(group: ProcessGroup, rank_of: &BTreeMap<u32, u32>) -> ProcessGroup {
    let ranks: Option<Vec<u32>> = group.ranks.iter().map(|own| rank_of.get(own).copied()).collect();
    let mut ranks = ranks.unwrap_or_default();
    ranks.sort_unstable();
    ProcessGroup { ranks, ..group }
}

#[cfg(test)]
mod tests {
    use super::super::decide;
    use super::super::tests::with_own;
    use super::*;
    use crate::testing::{span, trace};
    use crate::{CollectiveInfo, ImportReport};
    use plan::Lane;

    fn engines(files: &[(&str, u32)]) -> Option<Vec<Vec<(u32, u32)>>> {
        let claims = with_own(files, 2);
        let engines = Engines::new(&claims, &decide(&claims))?;
        Some(engines.0.into_iter().map(|ranks| ranks.into_iter().collect()).collect())
    }

    #[test]
    fn replicas_whose_files_claim_the_same_ranks_are_engines() {
        let dp = [
            ("dp0_pp0_tp0_rank0.1700000000.pt.trace.json", 0),
            ("dp0_pp0_tp1_rank1.1700000000.pt.trace.json", 1),
            ("dp1_pp0_tp0_rank0.1700000000.pt.trace.json", 0),
            ("dp1_pp0_tp1_rank1.1700000000.pt.trace.json", 1),
        ];
        assert_eq!(engines(&dp), Some(vec![vec![(0, 0), (1, 1)], vec![(0, 2), (1, 3)]]));
        // the first lost the trace of its rank 0
        assert_eq!(engines(&dp[1..]), Some(vec![vec![(1, 1)], vec![(0, 2), (1, 3)]]));
        assert_eq!(engines(&dp[..2]), None, "one engine");
        // no name tells who belongs together
        assert_eq!(engines(&[("tp0.json", 0), ("tp1.json", 0)]), None);
    }

    #[test]
    fn groups_of_two_engines_with_one_name_are_two_groups() {
        let spans = (0..4).map(|rank| span(rank, Lane::Comm, 0, 10)).collect();
        let mut trace = trace(spans);
        let group = ProcessGroup { name: "2".into(), size: 2, ranks: vec![0, 1], ..Default::default() };
        trace.meta.groups = vec![group];
        trace.meta.import = Some(ImportReport::default());
        let info = CollectiveInfo { group: Some(0), peer: Some(1), ..CollectiveInfo::default() };
        trace.operations[1].collective = Some(info.clone());
        trace.operations[0].collective = Some(info);
        let operations = trace.operations.len();
        Engines(vec![[(0, 0), (1, 1)].into(), [(0, 2), (1, 3)].into()]).separate(&mut trace);
        let ranks: Vec<&[u32]> = trace.meta.groups.iter().map(|group| &group.ranks[..]).collect();
        assert_eq!(ranks, [[0, 1], [2, 3]]);
        let of_spans: Vec<_> = (trace.spans.iter())
            .filter_map(|span| trace.operations[span.operation as usize].collective.as_ref())
            .map(|collective| (collective.group, collective.peer))
            .collect();
        let [first, second] = [(Some(0), Some(1)), (Some(1), Some(3))];
        assert_eq!(of_spans, [first, first, second, second]);
        let without_spans = trace.operations[0].collective.as_ref().unwrap();
        assert_eq!(without_spans.group, None, "its group is of no engine");
        assert_eq!(trace.operations.len(), operations + 1);
        let warnings = trace.meta.import.unwrap().warnings;
        assert!(
            warnings[0].starts_with("2 engines that number their own ranks: r0..r1, r2..r3"),
            "{warnings:?}"
        );
    }
}
