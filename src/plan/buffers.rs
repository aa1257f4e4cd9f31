//! Liveness: buffer assignment, and the prefix of operations that two plans share.
//!
//! Values share memory if that adds no dependency. A later value may reuse a buffer only if its writer
//! already happens after the earlier value's writer and all its readers, on both lanes. With two lanes,
//! "happens after" is a pair of positions (a vector clock), so the assignment costs O(operations x free
//! buffers). An all-reduce in flight keeps both its buffers.

use super::{Element, Lane, OpId, Operation, Plan, Rows, ValueId, Weight};

/// Index of a buffer in [`Buffers::buffers`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct BufferId(pub u32);

/// Memory for `rows x columns` elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Buffer {
    /// Row count in a step: one row per new token or per sequence.
    pub rows: Rows,
    /// Columns per rank.
    pub columns: u32,
    pub element: Element,
    /// Group of the batch whose rows the buffer holds.
    pub group: u32,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Buffers {
    /// All buffers that one rank needs for a step; values that are live at the same time never share
    /// one.
    pub buffers: Vec<Buffer>,
    /// Buffer of each value of the plan.
    pub of_value: Vec<BufferId>,
}

/// Number of completed operations per lane.
pub(crate) type CompletedOperations = [u32; 2];

impl Plan {
    /// For each operation: its lane, its position on that lane (from 1), and the completed operations at
    /// its start.
    pub fn clocks(&self) -> Vec<(Lane, u32, CompletedOperations)> {
        let mut position = [0u32; 2];
        let mut clocks: Vec<(Lane, u32, CompletedOperations)> =
            Vec::with_capacity(self.operations.len());
        for (operation, waits) in self.operations.iter().zip(self.dependencies()) {
            let mut clock = [0; 2];
            for wait in waits {
                let (lane, at, before) = clocks[wait.index()];
                for (mine, theirs) in clock.iter_mut().zip(before) {
                    *mine = (*mine).max(theirs);
                }
                clock[lane as usize] = clock[lane as usize].max(at);
            }
            let lane = operation.lane;
            position[lane as usize] += 1;
            clocks.push((lane, position[lane as usize], clock));
        }
        clocks
    }

    /// True if `later` starts only after `earlier` has ended.
    pub fn happens_before(&self, earlier: OpId, later: OpId) -> bool {
        let clocks = self.clocks();
        let (lane, at, _) = clocks[earlier.index()];
        clocks[later.index()].2[lane as usize] >= at
    }

    /// Assigns buffers. The step's tokens and outputs never share theirs, because the next step's replay
    /// reads them.
    pub fn buffers(&self) -> Buffers {
        let clocks = self.clocks();
        let mut users: Vec<Vec<OpId>> = vec![Vec::new(); self.values.len()];
        for (index, operation) in self.operations.iter().enumerate() {
            for value in operation.reads.iter().chain(&operation.writes) {
                users[value.index()].push(OpId(index as u32));
            }
        }
        let mut buffers: Vec<Buffer> = Vec::new();
        // value most recently assigned to each buffer
        let mut occupant: Vec<ValueId> = Vec::new();
        let mut of_value = vec![BufferId(0); self.values.len()];
        let mut place = |value: ValueId, writer: Option<OpId>, occupant: &mut Vec<ValueId>| {
            let v = &self.values[value.index()];
            let wanted = Buffer { rows: v.rows, columns: v.columns, element: v.element, group: v.group };
            let free = |old: ValueId| {
                let Some(writer) = writer else { return false };
                let known = clocks[writer.index()].2;
                ![&self.tokens, &self.outputs, &self.logits].iter().any(|kept| kept.contains(&old))
                    && users[old.index()].iter().all(|user| {
                        let (lane, at, _) = clocks[user.index()];
                        *user != writer && known[lane as usize] >= at
                    })
            };
            let found = (0..buffers.len()).find(|&i| buffers[i] == wanted && free(occupant[i]));
            let id = found.unwrap_or_else(|| {
                buffers.push(wanted);
                occupant.push(value);
                buffers.len() - 1
            });
            occupant[id] = value;
            of_value[value.index()] = BufferId(id as u32);
        };
        for &tokens in &self.tokens {
            place(tokens, None, &mut occupant);
        }
        for (index, operation) in self.operations.iter().enumerate() {
            for &value in &operation.writes {
                place(value, Some(OpId(index as u32)), &mut occupant);
            }
        }
        Buffers { buffers, of_value }
    }
}

impl Plan {
    /// Length of the longest prefix of operations that both plans share, with the same values and
    /// weights and the same live values after it. It ends at a module boundary, so that execution
    /// resumed behind it appends to a KV cache before reading it.
    pub fn common_with(&self, other: &Self) -> usize {
        fn weight<'a>(plan: &'a Plan, operation: &Operation) -> Option<&'a Weight> {
            operation.weight.and_then(|weight| plan.weights.get(weight.index()))
        }
        let same = |(mine, theirs): &(&Operation, &Operation)| {
            mine == theirs
                && weight(self, mine) == weight(other, theirs)
                && mine.writes.iter().all(|v| self.values[v.index()] == other.values[v.index()])
        };
        let place = |plan: &Self, at: usize| plan.operations.get(at).map(|o| (o.module, o.layer));
        // in both plans: one may go on with the module that the other has ended
        let begins = |at: usize| {
            let begins = |plan| place(plan, at).is_none() || place(plan, at - 1) != place(plan, at);
            at == 0 || (begins(self) && begins(other))
        };
        let same = self.operations.iter().zip(&other.operations).take_while(same).count();
        let fits = |at: &usize| begins(*at) && self.live_after(*at) == other.live_after(*at);
        (0..=same).rev().find(fits).unwrap_or(0)
    }

    /// Values that the first `count` operations write and later ones read.
    pub fn live_after(&self, count: usize) -> Vec<ValueId> {
        let (done, ahead) = self.operations.split_at(count);
        let written = done.iter().flat_map(|operation| &operation.writes).copied();
        let mut is_read = vec![false; self.values.len()];
        for value in ahead.iter().flat_map(|operation| &operation.reads) {
            is_read[value.index()] = true;
        }
        written.filter(|value| is_read[value.index()]).collect()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::tests::spec;
    use crate::{Architecture, LayerSet, Module, Phase};

    fn plan(architecture: Architecture, tp: u32) -> Plan {
        Plan::new(&spec(&architecture, 4, tp, Phase::Prefill)).unwrap()
    }

    fn first_of(plan: &Plan, module: Module, layer: u32) -> usize {
        let is_it = |o: &Operation| (o.module, o.layer) == (module, Some(layer));
        plan.operations.iter().position(is_it).unwrap()
    }

    /// A ladder of layers of which the first is F is standard before F, and leaves it with attention of F.
    #[test]
    fn plans_part_at_the_first_layer_that_is_wired_in_another_way() {
        for tp in [1, 2] {
            let standard = plan(Architecture::Standard, tp);
            for first in 1..4 {
                let ladder = plan(Architecture::Ladder(LayerSet::Only(vec![first, 3])), tp);
                let count = standard.common_with(&ladder);
                assert_eq!(count, first_of(&standard, Module::Attn, first));
                // the residual, and the output of the MLP before, which has not joined it
                let live = standard.live_after(count);
                assert_eq!(live.len(), 2, "{live:?}");
                assert_eq!(live, ladder.live_after(count));
            }
            // the first attention reads the embedding either way: its MLP is the first to differ
            let ladder = plan(Architecture::Ladder(LayerSet::Only(vec![0])), tp);
            assert_eq!(standard.common_with(&ladder), first_of(&standard, Module::Mlp, 0));
            assert_eq!(standard.common_with(&standard), standard.operations.len());
        }
        // desync:4 goes on with attention where desync:2 still averages: the module is not in common
        let [two, four] = [2, 4].map(|every| plan(Architecture::Desync(every), 2));
        let count = two.common_with(&four);
        assert_eq!((count, four.common_with(&two)), (first_of(&two, Module::Mlp, 0), count));
        // delayed reads a module's own part once more: behind the first module, what standard leaves is not enough
        let delayed = plan(Architecture::Delayed(1), 2);
        assert_eq!(plan(Architecture::Standard, 2).common_with(&delayed), 1);
        // one layer's weights are fused otherwise: nothing but the embedding is shared
        let parallel = plan(Architecture::Parallel, 2);
        assert_eq!(plan(Architecture::Standard, 2).common_with(&parallel), 1);
    }

    proptest! {
        #[test]
        fn two_sets_part_where_they_first_differ(one in 0u32..16, other in 0u32..16, tp in 1u32..3) {
            let set = |bits: u32| LayerSet::Only((0..4).filter(|l| bits >> l & 1 == 1).collect());
            let [a, b] = [one, other].map(|bits| plan(Architecture::Ladder(set(bits)), tp));
            let count = a.common_with(&b);
            prop_assert_eq!(count, b.common_with(&a));
            match (one ^ other).trailing_zeros() {
                layer @ 0..4 => {
                    let module = if layer == 0 { Module::Mlp } else { Module::Attn };
                    prop_assert_eq!(count, first_of(&a, module, layer));
                    prop_assert_eq!(a.live_after(count), b.live_after(count));
                }
                _ => prop_assert_eq!(count, a.operations.len()),
            }
        }
    }
}
