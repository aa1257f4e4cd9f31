//! Plan construction: one walk over the modules, shared by all architectures.
//!
//! [`build`] keeps a queue of in-flight outputs. Before each module it adds all that the module sees to the
//! residual, oldest first: all but the newest few. Groups of a batch alternate module by module.

use std::collections::VecDeque;

use super::builder::{Builder, PlanError};
use super::modules::ModuleOutputs;
use super::pipeline::{self, NextStage};
use super::{
    Element, Kind, Module, OpId, Phase, Placement, Plan, PlanSpec, Reduce, Shard, Staleness, Tensor,
    ValueId, Variant, Wiring,
};

/// A module's output outside the residual: its sum, and this rank's own part where later
/// operations read it.
struct Output {
    sum: ValueId,
    own: Option<ValueId>,
    /// Value that joins the residual together with the sum: the rank's own output of shared experts.
    also: Option<ValueId>,
}

impl Output {
    fn from_sum(sum: ValueId) -> Self {
        Self { sum, own: None, also: None }
    }
}

/// The residual stream and the outputs that have not joined it yet, oldest first.
pub(super) struct ResidualStream {
    pub(super) value: ValueId,
    in_flight: VecDeque<Output>,
    /// State of `delayed`, where ranks keep their own residuals and get the others' parts late.
    delayed: Option<Delayed>,
    /// True once the residual has left for the next pipeline stage.
    pub(super) is_sent: bool,
}

impl ResidualStream {
    /// Adds all but the newest `staleness` outputs, oldest first.
    pub(super) fn catch_up(
        &mut self,
        builder: &mut Builder<'_>,
        staleness: u32,
    ) -> Result<ValueId, PlanError> {
        let mut count = 0;
        while self.in_flight.len() > staleness as usize {
            let Some(output) = self.in_flight.pop_front() else { break };
            let hidden = builder.spec.shape.hidden;
            let (name, kind, reads) = match output.own.filter(|_| builder.columns(output.sum) != hidden)
            {
                None => ("add", Kind::Add, vec![self.value, output.sum]),
                Some(own) => ("join", Kind::Join { root: true }, vec![self.value, own, output.sum]),
            };
            let mut joins = |name: &str, kind: Kind, reads: &[ValueId]| {
                count += 1;
                let name = if count == 1 { name.to_owned() } else { format!("{name}{count}") };
                builder.emit(&name, kind, reads, hidden)
            };
            self.value = joins(name, kind, &reads)?;
            if let Some(also) = output.also {
                self.value = joins("add", Kind::Add, &[self.value, also])?;
            }
        }
        if let Some(delayed) = &mut self.delayed {
            self.value = delayed.join(builder, self.value)?;
        }
        Ok(self.value)
    }

    /// Everything that later modules read, in the order in which it is needed: the residual, then what is
    /// in flight.
    pub(super) fn values(&self) -> Vec<ValueId> {
        let Self { value, in_flight, delayed, is_sent: _ } = self;
        let delayed = delayed.iter().flat_map(Delayed::values);
        let in_flight = in_flight
            .iter()
            .flat_map(|output| output.own.into_iter().chain([output.sum]).chain(output.also));
        std::iter::once(*value).chain(in_flight).chain(delayed).collect()
    }
}

/// Outputs of `delayed` that have not fully joined the ranks' residuals.
struct Delayed {
    delay: usize,
    modules: usize,
    /// Index and own part of the last module, which join before the next module.
    own: Option<(usize, ValueId)>,
    /// Sums in flight, oldest first.
    sums: VecDeque<DelayedSum>,
}

/// Sum of a module's outputs that has not joined the residual.
struct DelayedSum {
    /// Index of the module.
    module: usize,
    sum: ValueId,
    /// This rank's own part as sent, which the sum includes.
    part: ValueId,
}

impl Delayed {
    /// Adds everything to the residual that is due before the next module.
    fn join(&mut self, builder: &mut Builder<'_>, residual: ValueId) -> Result<ValueId, PlanError> {
        let Some((module, own)) = self.own.take() else { return Ok(residual) };
        let mut reads = vec![residual, own];
        if let Some(due) = self.sums.pop_front_if(|sum| sum.module + self.delay <= module) {
            reads.extend([due.sum, due.part]);
        }
        let root = module < self.delay || module + self.delay >= self.modules;
        builder.emit("join", Kind::Join { root }, &reads, builder.spec.shape.hidden)
    }

    fn values(&self) -> impl Iterator<Item = ValueId> {
        let own = self.own.iter().map(|(_, own)| *own);
        own.chain(self.sums.iter().flat_map(|delayed| [delayed.sum, delayed.part]))
    }

    /// Starts the all-reduce of a module's partial output, except for the last modules.
    fn begin(
        &mut self,
        builder: &mut Builder<'_>,
        module: usize,
        own: ValueId,
    ) -> Result<(), PlanError> {
        if module + self.delay < self.modules {
            let (sum, part) = builder.all_reduce(own)?;
            self.sums.push_back(DelayedSum { module, sum, part });
        }
        Ok(())
    }
}

/// Build state of one group of the batch.
pub(super) struct GroupState {
    pub(super) residual: ResidualStream,
    /// Attention's partial output, waiting to be summed with the MLP's.
    dropped: Option<ValueId>,
}

/// Walk over a model's modules, in the order in which they read the residual.
pub(super) struct Walk<'a> {
    spec: &'a PlanSpec,
    pub(super) wiring: Wiring,
    pub(super) modules: Vec<(Module, u32)>,
}

/// Inputs and outputs of a plan, by group.
#[derive(Default)]
pub(super) struct PlanEndpoints {
    pub(super) tokens: Vec<ValueId>,
    pub(super) logits: Vec<ValueId>,
    pub(super) outputs: Vec<ValueId>,
}

/// Builds the unlowered plan of each pipeline stage, except for the choices in [`super::Lowering`] that
/// decide which operations exist.
pub(super) fn build(spec: &PlanSpec) -> Result<Vec<Plan>, PlanError> {
    let shape = &spec.shape;
    let Variant { ep, dp, .. } = spec.variant;
    let problem = shape
        .tp_problem(spec.tp)
        .or_else(|| spec.architecture.model_problem(shape, spec.tp))
        .or_else(|| shape.expert_problem(spec.tp, ep, dp))
        .or_else(|| pipeline::stage_problem(shape.layers, spec.pp));
    if let Some(problem) = problem {
        return Err(PlanError::Shape(problem));
    }
    if spec.lowering.shard_head && !shape.vocab.is_multiple_of(spec.tp) {
        return Err(PlanError::Shape(format!(
            "TP {} does not divide the vocabulary of {} that a sharded head needs",
            spec.tp, shape.vocab
        )));
    }
    if spec.variant.sequence_parallel
        && let Some(problem) = spec.architecture.scatter_problem(shape.layers)
    {
        return Err(PlanError::Shape(problem));
    }
    let mut b = Builder::new(spec);
    let mut wiring = spec.architecture.wiring_of(shape);
    if spec.tp == 1 {
        // with one rank, partial sums are complete: nothing is reduced and nothing diverges
        wiring.reduce = Reduce::Never;
        if std::mem::take(&mut wiring.own_part) {
            wiring.dropped.fill(false);
            wiring.staleness.fill(Staleness::default());
        }
    }
    let modules: Vec<(Module, u32)> = (0..shape.layers)
        .flat_map(|layer| {
            let kinds: &[Module] = match shape.experts_of(layer) {
                _ if wiring.fused_block => &[Module::Block],
                Some(_) => &[Module::Attn, Module::Moe],
                None => &[Module::Attn, Module::Mlp],
            };
            kinds.iter().map(move |&module| (module, layer))
        })
        .collect();

    let walk = Walk { spec, wiring, modules };
    if spec.pp > 1 {
        return pipeline::build(b, &walk);
    }
    let mut ends = PlanEndpoints::default();
    let mut groups = Vec::new();
    for group in 0..b.groups.count {
        b.group(group);
        let tokens = b.input("tokens", Placement::Replicated, 1, Element::Token);
        groups.push(walk.begin(&mut b, tokens)?);
        ends.tokens.push(tokens);
    }
    for index in 0..walk.modules.len() {
        // groups alternate, so that one's all-reduce overlaps with another's compute
        for (group, state) in groups.iter_mut().enumerate() {
            b.group(group as u32);
            state.module(&mut b, &walk, index, None)?;
        }
    }
    for (group, state) in groups.iter_mut().enumerate() {
        b.group(group as u32);
        walk.end(&mut b, state, group as u32, &mut ends)?;
    }
    Ok(vec![b.finish(ends.tokens, ends.logits, ends.outputs)])
}

impl Walk<'_> {
    /// Embeds the tokens of the builder's group.
    pub(super) fn begin(&self, b: &mut Builder<'_>, tokens: ValueId) -> Result<GroupState, PlanError> {
        let delayed = match self.wiring.reduce {
            Reduce::Delayed(delay) => Some(Delayed {
                delay: delay as usize,
                modules: self.modules.len(),
                own: None,
                sums: VecDeque::new(),
            }),
            _ => None,
        };
        let (value, in_flight) = (b.embed(tokens)?, VecDeque::new());
        let residual = ResidualStream { value, in_flight, delayed, is_sent: false };
        Ok(GroupState { residual, dropped: None })
    }

    /// Emits the head of a group; returns the sampled tokens, if any.
    pub(super) fn end(
        &self,
        b: &mut Builder<'_>,
        state: &mut GroupState,
        group: u32,
        ends: &mut PlanEndpoints,
    ) -> Result<Option<ValueId>, PlanError> {
        // only the last part of a prompt yields a token
        let is_end = group + 1 == b.groups.count || !b.groups.of_tokens;
        let (scores, output) = head(b, self.spec, &self.wiring, &mut state.residual, is_end)?;
        ends.logits.extend(scores);
        ends.outputs.extend(output);
        Ok(output)
    }
}

impl GroupState {
    /// Emits one module of the group: pending additions, the module itself, and the handling of its
    /// output. `next` is the next stage's first module if this one ends a stage.
    pub(super) fn module(
        &mut self,
        b: &mut Builder<'_>,
        walk: &Walk<'_>,
        index: usize,
        next: Option<NextStage>,
    ) -> Result<(), PlanError> {
        let hidden = b.spec.shape.hidden;
        let Self { residual, dropped } = self;
        let wiring = &walk.wiring;
        let (module, layer) = walk.modules[index];
        b.set_scope(module, Some(layer));
        // attention's part that waits for the MLP's is the newest output
        let unseen = wiring.unseen(module, layer).saturating_sub(u32::from(dropped.is_some()));
        let mut x = residual.catch_up(b, unseen)?;
        if wiring.own_part {
            for own in residual.in_flight.iter().filter_map(|output| output.own).chain(*dropped) {
                x = b.emit("add_part", Kind::Add, &[x, own], hidden)?;
            }
        }
        let norm = match module {
            Module::Mlp | Module::Moe => Tensor::PostAttentionNorm(layer),
            _ => Tensor::InputNorm(layer),
        };
        let normed = b.norm(x, norm)?;
        let is_apart = module == Module::Moe && wiring.apart[layer as usize];
        let is_split = is_apart && !b.dispatches();
        let mut parts = match is_split {
            true => ModuleOutputs { own: b.shared_experts(layer, normed)?, routed: None },
            false => b.module(module, layer, normed)?,
        };
        if let Some(part) = dropped.take() {
            let own = parts.own.map(|own| b.emit("sum", Kind::Add, &[part, own], hidden));
            parts.own = Some(own.transpose()?.unwrap_or(part));
        } else if module == Module::Attn && wiring.dropped[layer as usize] {
            *dropped = parts.own;
            return Ok(());
        }
        if is_apart {
            if let Some(own) = parts.own {
                self.output(b, walk, index, (own, None), None)?;
            }
            let routed = if is_split { b.routed_experts(layer, normed)? } else { parts.routed };
            let Some(routed) = routed else { return Ok(()) };
            if walk.wiring.reduce != Reduce::Each {
                return self.output(b, walk, index, (routed, None), None);
            }
            let prefix = if parts.own.is_some() { "routed_" } else { "" };
            let (sum, _) = b.all_reduce_of(prefix, routed)?;
            self.residual.in_flight.push_back(Output::from_sum(sum));
            return Ok(());
        }
        let output = match (parts.own, parts.routed) {
            (own, Some(routed)) if b.dispatches() => (routed, own),
            (Some(own), Some(routed)) => {
                (b.emit("experts_sum", Kind::Add, &[own, routed], hidden)?, None)
            }
            (Some(one), None) | (None, Some(one)) => (one, None),
            (None, None) => return Ok(()),
        };
        self.output(b, walk, index, output, next)
    }

    /// Reduces an output of a module, which joins the residual later; `also` joins with it. `next` is the
    /// next stage's first module if this output ends a stage and the residual may leave before its sum.
    fn output(
        &mut self,
        b: &mut Builder<'_>,
        walk: &Walk<'_>,
        index: usize,
        (partial, also): (ValueId, Option<ValueId>),
        next: Option<NextStage>,
    ) -> Result<(), PlanError> {
        let hidden = b.spec.shape.hidden;
        let (wiring, modules, residual) = (&walk.wiring, walk.modules.len(), &mut self.residual);
        match wiring.reduce {
            Reduce::Never => residual.in_flight.push_back(Output { also, ..Output::from_sum(partial) }),
            Reduce::Each => {
                if let Some(next) = next.filter(|next| next.staleness > 0) {
                    residual.send_early(b, next, 1)?;
                }
                let (sum, _) = b.all_reduce(partial)?;
                let own = wiring.own_part.then_some(partial);
                residual.in_flight.push_back(Output { own, ..Output::from_sum(sum) });
            }
            Reduce::Channels(share) => {
                if let Some(next) = next.filter(|next| next.staleness > 0) {
                    residual.send_early(b, next, 1)?;
                }
                let sent = b.emit("narrow", Kind::Narrow, &[partial], share.count(hidden))?;
                let (sum, _) = b.all_reduce(sent)?;
                residual.in_flight.push_back(Output { own: Some(partial), ..Output::from_sum(sum) });
            }
            Reduce::Every(n) if (index as u32 + 1).is_multiple_of(n) || index + 1 == modules => {
                let reads = [residual.value, partial];
                let summand = b.emit("add_mean", Kind::AddMean, &reads, hidden)?;
                (residual.value, _) = b.all_reduce(summand)?;
            }
            Reduce::Mean(n) if (index as u32 + 1).is_multiple_of(n) || index + 1 == modules => {
                let whole = b.emit("add_part", Kind::Add, &[residual.value, partial], hidden)?;
                let share = b.emit("mean_share", Kind::MeanShare, &[whole], hidden)?;
                (residual.value, _) = b.all_reduce(share)?;
            }
            Reduce::Every(_) | Reduce::Mean(_) => {
                residual.in_flight.push_back(Output::from_sum(partial))
            }
            Reduce::Delayed(_) => {
                if let Some(delayed) = &mut residual.delayed {
                    delayed.own = Some((index, partial));
                }
                if let Some(next) = next {
                    residual.send_early(b, next, 0)?;
                }
                if let Some(delayed) = &mut residual.delayed {
                    delayed.begin(b, index, partial)?;
                }
            }
        }
        Ok(())
    }
}

/// Emits everything after the last layer: logits and sampled tokens. Both are absent if the rows do not
/// end the prompt (`ends`), unless logits of every position are wanted.
fn head(
    b: &mut Builder<'_>,
    spec: &PlanSpec,
    wiring: &super::Wiring,
    residual: &mut ResidualStream,
    ends: bool,
) -> Result<(Option<ValueId>, Option<ValueId>), PlanError> {
    let shape = &spec.shape;
    let all_rows = spec.phase == Phase::Prefill && spec.lowering.all_logits;
    b.set_scope(Module::Head, None);
    let mut x = residual.catch_up(b, 0)?;
    // in-flight outputs have joined: no all-reduce outlives its step
    if !ends && !all_rows {
        return Ok((None, None));
    }
    let one_row = spec.phase == Phase::Prefill && !all_rows;
    // the last rows of a scattered residual are spread over ranks, so gather first
    let late_select = spec.lowering.late_select || b.placement(x) == Placement::Scattered;
    if one_row && !late_select {
        x = b.emit("select", Kind::SelectLast, &[x], shape.hidden)?;
    }
    let mut normed = b.norm(x, Tensor::FinalNorm)?;
    if residual.delayed.is_some() {
        let part = b.emit("mean_share", Kind::MeanShare, &[normed], shape.hidden)?;
        (normed, _) = b.all_reduce(part)?;
    }
    // logits of every position are computed from all ranks' rows and the whole head (`Plan::selected_from`)
    let gathers = wiring.divides_head() && one_row && late_select;
    if gathers {
        b.emit("gather", Kind::AllGather, &[normed], spec.tp * shape.hidden)?;
    }
    if one_row && late_select {
        normed = b.emit("select", Kind::SelectLast, &[normed], shape.hidden)?;
        if gathers {
            b.wait_for_previous();
        }
    }
    let sharded = (spec.lowering.shard_head || (wiring.divides_head() && !gathers)) && spec.tp > 1;
    let shard = if sharded { Shard::Rows } else { Shard::Whole };
    let mut logits = b.matmul("logits", normed, shard, &[Tensor::Head])?;
    if sharded && spec.architecture != super::Architecture::UpperBound {
        logits = b.emit("", Kind::AllGather, &[logits], shape.vocab)?;
    }
    if !ends {
        return Ok((Some(logits), None));
    }
    let mut sampled_from = logits;
    if all_rows {
        sampled_from = b.emit("select", Kind::SelectLast, &[logits], shape.vocab)?;
    }
    let output = b.emit("sample", Kind::Sample, &[sampled_from], 1)?;
    Ok((Some(logits), Some(output)))
}

/// Lookup by name, for tests of other modules.
impl Plan {
    pub fn find(&self, name: &str) -> Option<OpId> {
        self.operations.iter().position(|o| o.name == name).map(|i| OpId(i as u32))
    }
}
