//! Pipeline stages: contiguous ranges of layers on ranks of their own, and what passes between them.
//!
//! One walk builds all stages, group by group, and is cut at the boundaries. There a stage sends its
//! residual with everything that the next stage's first module sees, then each output still in flight, in
//! the order in which they join. With ladder the residual leaves before the all-reduce of the stage's last
//! output, which the next stage needs one module later; the transfer thus overlaps with that all-reduce.
//! `delayed` sends sums in flight together with the rank's own parts, because a rank joins the difference.
//! The next stage receives each value right before it first reads it, so it computes while others are under
//! way. The last stage returns sampled tokens to the first, which receives them in the next step.

use std::collections::{HashMap, VecDeque};
use std::ops::Range;

use super::build::{GroupState, PlanEndpoints, ResidualStream, Walk};
use super::builder::{Builder, PlanError};
use super::{
    Cost, Element, Groups, Kind, Lane, Module, Operation, Phase, Placement, Plan, Rows, Value, ValueId,
    WeightId,
};

/// Layers of each stage; sizes differ by at most one, larger stages first.
pub fn stage_layers(layers: u32, pp: u32) -> Vec<Range<u32>> {
    let stages = Groups { count: pp.max(1), of_tokens: false };
    (0..stages.count)
        .map(|stage| {
            let (first, count) = stages.part(layers.into(), stage);
            first as u32..(first + count) as u32
        })
        .collect()
}

/// Explains why a model with `layers` layers has no `pp` stages; `None` if it has.
pub fn stage_problem(layers: u32, pp: u32) -> Option<String> {
    match pp {
        0 => Some("pp is 0; it must be at least 1".into()),
        _ if pp > layers => Some(format!(
            "PP {pp} exceeds the model's {layers} layers; a stage needs at least one layer"
        )),
        _ => None,
    }
}

/// First module of the next stage.
#[derive(Clone, Copy, Debug)]
pub(super) struct NextStage {
    module: Module,
    layer: u32,
    /// Newest outputs that the module does not see yet.
    pub(super) staleness: u32,
}

/// Builds all stages of a plan.
pub(super) fn build(mut b: Builder<'_>, walk: &Walk<'_>) -> Result<Vec<Plan>, PlanError> {
    let spec = b.spec;
    let stages = stage_layers(spec.shape.layers, spec.pp);
    let mut ends = PlanEndpoints::default();
    let mut states: Vec<GroupState> = Vec::new();
    let mut cuts = vec![0];
    for layers in &stages {
        b.stage_start = b.values.len();
        let own: Vec<usize> =
            (0..walk.modules.len()).filter(|&index| layers.contains(&walk.modules[index].1)).collect();
        let next = own.last().and_then(|last| walk.modules.get(last + 1)).map(|&(module, layer)| {
            NextStage { module, layer, staleness: walk.wiring.unseen(module, layer) }
        });
        for group in 0..b.groups.count {
            b.group(group);
            if layers.start == 0 {
                let tokens = match spec.phase {
                    Phase::Prefill => b.input("tokens", Placement::Replicated, 1, Element::Token),
                    Phase::Decode => b.receive_tokens(),
                };
                if spec.phase == Phase::Prefill {
                    ends.tokens.push(tokens);
                }
                states.push(walk.begin(&mut b, tokens)?);
            }
            let state = &mut states[group as usize];
            for &index in &own {
                let is_last = Some(&index) == own.last();
                state.module(&mut b, walk, index, next.filter(|_| is_last))?;
            }
            match next {
                Some(next) => state.residual.hand_over(&mut b, next)?,
                None => {
                    if let Some(output) = walk.end(&mut b, state, group, &mut ends)? {
                        b.send(output, 0);
                    }
                }
            }
        }
        cuts.push(b.operations.len());
    }
    let whole = b.finish(ends.tokens, ends.logits, ends.outputs);
    Ok(cuts.windows(2).map(|cut| part(&whole, cut[0]..cut[1])).collect())
}

impl ResidualStream {
    /// Sends the residual before the stage's last outputs exist: `to_come` newest outputs are not in the queue yet.
    pub(super) fn send_early(
        &mut self,
        b: &mut Builder<'_>,
        next: NextStage,
        to_come: u32,
    ) -> Result<(), PlanError> {
        let scope = b.scope.clone();
        self.send_residual(b, next, to_come)?;
        self.is_sent = true;
        b.scope = scope;
        Ok(())
    }

    /// Sends the residual, unless [`Self::send_early`] did, and everything in flight.
    fn hand_over(&mut self, b: &mut Builder<'_>, next: NextStage) -> Result<(), PlanError> {
        if !std::mem::take(&mut self.is_sent) {
            self.send_residual(b, next, 0)?;
        }
        b.set_scope(next.module, Some(next.layer));
        for (index, value) in self.values().into_iter().enumerate().skip(1) {
            b.send(value, index);
        }
        Ok(())
    }

    /// Adds everything that the next stage's first module sees and sends the residual, in that module's scope.
    fn send_residual(
        &mut self,
        b: &mut Builder<'_>,
        next: NextStage,
        to_come: u32,
    ) -> Result<(), PlanError> {
        b.set_scope(next.module, Some(next.layer));
        self.catch_up(b, next.staleness.saturating_sub(to_come))?;
        b.send(self.value, 0);
        Ok(())
    }
}

impl Builder<'_> {
    /// Sends a value to the next stage; `index` numbers the sends of a boundary. A stage that only passes a
    /// value on receives it first.
    fn send(&mut self, value: ValueId, index: usize) {
        let local = self.on_this_stage(value);
        self.transfer(Kind::Send, index, vec![local], vec![]);
        self.sent.entry(self.group).or_default().push_back(local);
    }

    /// The value on the current stage: received on the first read if an earlier stage has written it, after
    /// everything that was sent before it.
    pub(super) fn on_this_stage(&mut self, value: ValueId) -> ValueId {
        loop {
            // a value that passes several stages is received on each
            let mut latest = value;
            while let Some(received) = self.received.get(&latest) {
                latest = *received;
            }
            if latest.index() >= self.stage_start {
                return latest;
            }
            let Some(next) = self.sent.get_mut(&self.group).and_then(VecDeque::pop_front) else {
                return latest;
            };
            let received = self.receive(self.values[next.index()].clone());
            self.received.insert(next, received);
        }
    }

    /// Receives the tokens that the last stage sampled in the previous step.
    fn receive_tokens(&mut self) -> ValueId {
        self.set_scope(Module::Embed, None);
        let (placement, rows, element) = (Placement::Replicated, Rows::Tokens, Element::Token);
        let value =
            Value { name: String::new(), placement, rows, columns: 1, element, group: self.group };
        self.receive(value)
    }

    fn receive(&mut self, value: Value) -> ValueId {
        self.values.push(value);
        let id = ValueId(self.values.len() as u32 - 1);
        let name = self.transfer(Kind::Receive, self.receives, vec![], vec![id]);
        self.receives += 1;
        self.values[id.index()].name = name;
        id
    }

    /// Adds one end of a transfer; returns its name.
    fn transfer(
        &mut self,
        kind: Kind,
        index: usize,
        reads: Vec<ValueId>,
        writes: Vec<ValueId>,
    ) -> String {
        let number = if index == 0 { String::new() } else { (index + 1).to_string() };
        let name = format!("{}{}{}{number}", self.scope.prefix, self.group_prefix(), kind.as_str());
        let size = |value: Option<&ValueId>| {
            let value = value.map(|value| &self.values[value.index()]);
            value.map(|v| self.per_row(v.rows, self.row_bytes(v.columns, v.element))).unwrap_or_default()
        };
        let (bytes_read, bytes_written) = (size(reads.first()), size(writes.first()));
        let message_bytes = bytes_read + bytes_written;
        self.operations.push(Operation {
            origins: vec![name.clone()],
            name: name.clone(),
            lane: if kind == Kind::Send { Lane::Comm } else { Lane::Compute },
            kind,
            reads,
            writes,
            weight: None,
            more: Vec::new(),
            layer: self.scope.layer,
            module: self.scope.module,
            group: self.group,
            cost: Cost { bytes_read, bytes_written, message_bytes, ..Cost::default() },
            after: Vec::new(),
        });
        name
    }
}

/// Cuts a range of operations out of a plan, with the values and weights that they use, renumbered.
fn part(whole: &Plan, range: Range<usize>) -> Plan {
    let mut operations = whole.operations[range].to_vec();
    let (mut values, mut weights) = (Vec::new(), Vec::new());
    let mut value_ids: HashMap<ValueId, ValueId> = HashMap::new();
    let mut weight_ids: HashMap<WeightId, WeightId> = HashMap::new();
    for operation in &mut operations {
        for value in operation.reads.iter_mut().chain(&mut operation.writes) {
            *value = *value_ids.entry(*value).or_insert_with(|| {
                values.push(whole.values[value.index()].clone());
                ValueId(values.len() as u32 - 1)
            });
        }
        for weight in operation.weight.iter_mut().chain(&mut operation.more) {
            *weight = *weight_ids.entry(*weight).or_insert_with(|| {
                weights.push(whole.weights[weight.index()].clone());
                WeightId(weights.len() as u32 - 1)
            });
        }
    }
    let own = |ids: &[ValueId]| ids.iter().filter_map(|id| value_ids.get(id).copied()).collect();
    Plan {
        phase: whole.phase,
        tp: whole.tp,
        groups: whole.groups,
        tokens: own(&whole.tokens),
        logits: own(&whole.logits),
        outputs: own(&whole.outputs),
        operations,
        values,
        weights,
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;
    use crate::tests::{spec, specs, unfused};
    use crate::{PlanSpec, Variant};

    fn stages(architecture: &str, layers: u32, tp: u32, pp: u32) -> Vec<Plan> {
        let spec = spec(&architecture.parse().unwrap(), layers, tp, Phase::Decode);
        Plan::stages(&PlanSpec { pp, ..spec }).unwrap()
    }

    /// Comm lane of the boundary: from the stage's last product to its end.
    fn boundary(plan: &Plan) -> Vec<&str> {
        let last = plan.operations.iter().rposition(|o| o.kind == Kind::MatMul).unwrap();
        plan.operations[last + 1..].iter().map(|o| o.name.as_str()).collect()
    }

    fn receives(plan: &Plan) -> Vec<&str> {
        let all = plan.operations.iter().filter(|o| o.kind == Kind::Receive);
        all.map(|o| o.name.as_str()).collect()
    }

    #[test]
    fn layers_are_shared_evenly_and_too_many_stages_are_refused() {
        assert_eq!(stage_layers(126, 2), [0..63, 63..126]);
        assert_eq!(stage_layers(7, 3), [0..3, 3..5, 5..7]);
        assert_eq!(stage_problem(4, 4), None);
        let problem = stage_problem(4, 8).unwrap();
        assert_eq!(problem, "PP 8 exceeds the model's 4 layers; a stage needs at least one layer");
        let spec = PlanSpec { pp: 5, ..spec(&"ladder".parse().unwrap(), 4, 2, Phase::Decode) };
        assert!(matches!(Plan::stages(&spec), Err(PlanError::Shape(why)) if why.contains("PP 5")));
        // a pipeline is never mistaken for one plan
        assert!(matches!(Plan::new(&PlanSpec { pp: 2, ..spec }), Err(PlanError::Shape(_))));
    }

    #[test]
    fn a_stage_sends_the_residual_and_what_is_in_flight() {
        let of = |architecture| stages(architecture, 4, 2, 2);
        let standard = of("standard");
        assert_eq!(boundary(&standard[0]), ["L1/mlp/all_reduce", "L2/attn/add", "L2/attn/send"]);
        assert_eq!(receives(&standard[1]), ["L2/attn/receive"]);
        // the residual leaves before the all-reduce for which the next module does not wait
        let ladder = of("ladder");
        assert_eq!(
            boundary(&ladder[0]),
            ["L2/attn/add", "L2/attn/send", "L1/mlp/all_reduce", "L2/attn/send2"]
        );
        assert_eq!(receives(&ladder[1]), ["L2/attn/receive", "L2/mlp/receive"]);
        // layers from the boundary on are standard: nothing crosses it in flight
        assert_eq!(
            boundary(&of("ladder:[0+1]")[0]),
            ["L1/mlp/all_reduce", "L2/attn/add", "L2/attn/add2", "L2/attn/send"]
        );
        // a sum and the own part in it
        let delayed = of("delayed:1");
        assert_eq!(
            boundary(&delayed[0]),
            ["L2/attn/join", "L2/attn/send", "L1/mlp/all_reduce", "L2/attn/send2", "L2/attn/send3"]
        );
        assert_eq!(receives(&delayed[1]), ["L2/attn/receive", "L2/mlp/receive", "L2/mlp/receive2"]);
        assert_eq!(of("stale:3")[1].operations.iter().filter(|o| o.kind == Kind::Receive).count(), 4);
        // between synchronisations each rank passes on its own residual
        let desync = of("desync:8");
        assert_eq!(boundary(&desync[0]), ["L2/attn/add", "L2/attn/send"]);
        assert_eq!(desync[1].values[0].placement, Placement::Divergent);
        // sampled tokens go round
        assert_eq!(receives(&ladder[0]), ["embed/receive"]);
        assert_eq!(boundary(&ladder[1]), ["head/sample", "head/send"]);
    }

    #[test]
    fn ends_of_the_model_are_on_the_ends_of_the_pipeline() {
        let of = stages("standard", 5, 1, 3);
        let has = |plan: &Plan, name: &str| plan.weights.iter().any(|w| w.name.starts_with(name));
        assert_eq!([0, 1, 2].map(|s| has(&of[s], "embed/")), [true, false, false]);
        assert_eq!([0, 1, 2].map(|s| has(&of[s], "head/")), [false, false, true]);
        let layers = |plan: &Plan| plan.weights.iter().filter(|w| w.name.ends_with("/down")).count();
        assert_eq!([0, 1, 2].map(|s| layers(&of[s])), [2, 2, 1]);
    }

    proptest! {
        /// Stages joined at their transfers are the plan without stages: the same operations, each
        /// reading what the same operations wrote.
        #[test]
        fn stages_make_up_the_whole(spec in specs(), pp in 2u32..5) {
            let spec = PlanSpec { lowering: unfused(&spec.lowering), ..spec };
            prop_assume!(spec.shape.layers > 1);
            let pp = pp.min(spec.shape.layers);
            let whole = Plan::new(&spec).unwrap();
            let stages = Plan::stages(&PlanSpec { pp, ..spec.clone() }).unwrap();
            prop_assert_eq!(stages.len() as u32, pp);
            let mut found: BTreeMap<String, (Kind, Vec<String>)> = BTreeMap::new();
            // names of the values sent by the stage before, as in the whole plan
            let mut sent: std::vec::IntoIter<String> = Vec::new().into_iter();
            for (stage, plan) in stages.iter().enumerate() {
                let mut name_of: BTreeMap<ValueId, String> = BTreeMap::new();
                let mut sends = Vec::new();
                for value in &plan.tokens {
                    name_of.insert(*value, plan.values[value.index()].name.clone());
                }
                for operation in &plan.operations {
                    let reads: Vec<String> =
                        operation.reads.iter().map(|value| name_of[value].clone()).collect();
                    match operation.kind {
                        Kind::Send => sends.extend(reads),
                        Kind::Receive if stage == 0 => {
                            let prefix = plan.values[operation.writes[0].index()].name.clone();
                            let tokens = prefix.replace("embed/", "").replace("receive", "tokens");
                            name_of.insert(operation.writes[0], tokens);
                        }
                        Kind::Receive => {
                            name_of.insert(operation.writes[0], sent.next().unwrap());
                        }
                        _ => {
                            for write in &operation.writes {
                                name_of.insert(*write, plan.values[write.index()].name.clone());
                            }
                            let known = found.insert(operation.name.clone(), (operation.kind.clone(), reads));
                            prop_assert!(known.is_none(), "{} runs twice", operation.name);
                        }
                    }
                }
                prop_assert_eq!(sent.next(), None, "stage {} does not receive everything", stage);
                sent = sends.into_iter();
            }
            let tokens: Vec<String> = sent.collect();
            let sampled: Vec<String> =
                whole.outputs.iter().map(|v| whole.values[v.index()].name.clone()).collect();
            prop_assert_eq!(tokens, sampled);
            let wanted: BTreeMap<String, (Kind, Vec<String>)> = whole
                .operations
                .iter()
                .map(|o| {
                    let reads = o.reads.iter().map(|v| whole.values[v.index()].name.clone()).collect();
                    (o.name.clone(), (o.kind.clone(), reads))
                })
                .collect();
            prop_assert_eq!(found, wanted);
            let bytes = |plan: &Plan| plan.weight_bytes(spec.precision, &spec.shape);
            prop_assert_eq!(stages.iter().map(bytes).sum::<u64>(), bytes(&whole));
        }

        #[test]
        fn groups_pass_a_stage_one_after_another(micro_batches in 1u32..5) {
            let variant = Variant { micro_batches, ..Variant::default() };
            let spec = spec(&"ladder".parse().unwrap(), 4, 2, Phase::Decode);
            for plan in Plan::stages(&PlanSpec { pp: 2, variant, batch: 6, ..spec }).unwrap() {
                let groups: Vec<u32> = plan.operations.iter().map(|o| o.group).collect();
                prop_assert!(groups.is_sorted());
                prop_assert_eq!(groups.last(), Some(&(micro_batches - 1)));
            }
        }
    }
}
