//! Shared prefixes of plans: operations computed once and reused by other plans.

use super::{Operation, Plan, ValueId, Weight};

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
        let place = |at: usize| self.operations.get(at).map(|o| (o.module, o.layer));
        let begins = |at: usize| at == 0 || place(at).is_none() || place(at - 1) != place(at);
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
