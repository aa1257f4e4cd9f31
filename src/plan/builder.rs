//! Plan builder. It derives each operation's placement, shape and cost from its operands and rejects
//! plans that do not fit together.

use std::collections::{HashMap, VecDeque};

use super::{
    CommDType, Element, Groups, Kind, Lane, Module, OpId, Operation, Placement, Plan, PlanSpec, Rows,
    Shard, Tensor, Value, ValueId, Weight, WeightId, WeightPart,
};

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PlanError {
    /// TP does not divide the heads, the KV heads, the MLP's columns or (with a sharded head) the
    /// vocabulary; the text shows the arithmetic.
    #[error("{0}")]
    Shape(String),
    /// An operand's placement does not suit the operation.
    #[error("{operation} cannot read {value}: it is {found:?}, {wanted}")]
    Placement {
        operation: String,
        value: String,
        found: Placement,
        /// Required placement, in words.
        wanted: String,
    },
    /// An operation has the wrong number of operands.
    #[error("{operation} takes {wanted} operands, not {found}")]
    Operands { operation: String, found: usize, wanted: usize },
}

/// Part of the model that operations belong to.
#[derive(Clone, Debug)]
pub(super) struct ModuleScope {
    pub module: Module,
    pub layer: Option<u32>,
    /// Prefix of the operations' names: `L0/mlp/`.
    pub prefix: String,
}

/// Emits operations and values, checks placements, and derives shapes and costs.
#[derive(Debug)]
pub struct Builder<'a> {
    pub(super) spec: &'a PlanSpec,
    /// True if divergent values are allowed ([`super::Wiring::may_diverge`]).
    pub(super) may_diverge: bool,
    pub(super) operations: Vec<Operation>,
    pub(super) values: Vec<Value>,
    pub(super) weights: Vec<Weight>,
    /// Scope of the next operations.
    pub(super) scope: ModuleScope,
    /// Group of the batch that the next operations process.
    pub(super) group: u32,
    pub(super) groups: Groups,
    /// Values of earlier pipeline stages have smaller indices; they are received before they are read.
    pub(super) stage_start: usize,
    /// Values that the previous stage sent and this one has not received, oldest first, by group.
    pub(super) sent: HashMap<u32, VecDeque<ValueId>>,
    /// Received copies of earlier stages' values.
    pub(super) received: HashMap<ValueId, ValueId>,
    /// Number of receives in the current scope and group.
    pub(super) receives: usize,
}

impl<'a> Builder<'a> {
    pub fn new(spec: &'a PlanSpec) -> Self {
        Self {
            spec,
            may_diverge: spec.architecture.wiring(spec.shape.layers).may_diverge(),
            operations: Vec::new(),
            values: Vec::new(),
            weights: Vec::new(),
            scope: ModuleScope { module: Module::Embed, layer: None, prefix: String::new() },
            group: 0,
            groups: spec.groups(),
            stage_start: 0,
            sent: HashMap::new(),
            received: HashMap::new(),
            receives: 0,
        }
    }

    /// Sets module and layer of the following operations.
    pub fn set_scope(&mut self, module: Module, layer: Option<u32>) {
        let prefix = match layer {
            Some(layer) => format!("L{layer}/{}/", module.as_str()),
            None => format!("{}/", module.as_str()),
        };
        self.scope = ModuleScope { module, layer, prefix };
        self.receives = 0;
    }

    /// Sets the group of the following operations.
    pub fn group(&mut self, group: u32) {
        self.group = group;
        self.receives = 0;
    }

    /// Name prefix of a group's inputs; empty if the batch is not divided.
    pub(super) fn group_prefix(&self) -> String {
        match self.groups.count {
            0 | 1 => String::new(),
            _ => format!("g{}/", self.group),
        }
    }

    /// Adds an input of the plan, which no operation writes.
    pub fn input(
        &mut self,
        name: &str,
        placement: Placement,
        columns: u32,
        element: Element,
    ) -> ValueId {
        let name = format!("{}{name}", self.group_prefix());
        self.value(name, placement, Rows::Tokens, columns, element)
    }

    pub fn placement(&self, value: ValueId) -> Placement {
        self.values[value.index()].placement
    }

    /// Lets the last operation wait for the one before it, which it does not read.
    pub(super) fn wait_for_previous(&mut self) {
        let previous = (self.operations.len() as u32).checked_sub(2);
        if let Some(last) = self.operations.last_mut() {
            last.after.extend(previous.map(OpId));
        }
    }

    pub(super) fn columns(&self, value: ValueId) -> u32 {
        self.values[value.index()].columns
    }

    fn value(
        &mut self,
        name: String,
        placement: Placement,
        rows: Rows,
        columns: u32,
        element: Element,
    ) -> ValueId {
        let group = self.group;
        self.values.push(Value { name, placement, rows, columns, element, group });
        ValueId(self.values.len() as u32 - 1)
    }

    pub(super) fn weight(&mut self, name: &str, shard: Shard, tensors: &[Tensor]) -> WeightId {
        let name = format!("{}{name}", self.scope.prefix);
        // all groups share the weights of the first
        if self.group > 0
            && let Some(known) = self.weights.iter().rposition(|weight| weight.name == name)
        {
            return WeightId(known as u32);
        }
        let ranks = if shard == Shard::Experts { self.spec.variant.ep } else { self.spec.tp };
        let parts: Vec<WeightPart> =
            tensors.iter().map(|&tensor| WeightPart { tensor, shard }).collect();
        let (mut outputs, mut inputs) = (0, 0);
        for part in &parts {
            let extent = part.extent(&self.spec.shape, ranks);
            (outputs, inputs) = (outputs + extent.0, extent.1);
        }
        self.weights.push(Weight { name, parts, outputs, inputs });
        WeightId(self.weights.len() as u32 - 1)
    }

    /// Emits one operation without a weight; `columns` is the width of its result per rank. Returns
    /// [`PlanError::Operands`] for a wrong operand count and [`PlanError::Placement`] for a wrong
    /// placement.
    pub fn emit(
        &mut self,
        name: &str,
        kind: Kind,
        reads: &[ValueId],
        columns: u32,
    ) -> Result<ValueId, PlanError> {
        self.emit_with(name, kind, reads, columns, None, &[])
    }

    /// Emits a product with slices of `tensors`, stacked along the outputs. Returns
    /// [`PlanError::Placement`] unless `x` is replicated (weight sharded by rows) or sharded (by
    /// columns).
    pub fn matmul(
        &mut self,
        name: &str,
        x: ValueId,
        shard: Shard,
        tensors: &[Tensor],
    ) -> Result<ValueId, PlanError> {
        self.biased_matmul(name, x, shard, tensors, None)
    }

    /// [`Self::matmul`] with a bias, which rank 0 alone adds to a partial result.
    pub(super) fn biased_matmul(
        &mut self,
        name: &str,
        x: ValueId,
        shard: Shard,
        tensors: &[Tensor],
        bias: Option<Tensor>,
    ) -> Result<ValueId, PlanError> {
        let weight = self.weight(name, shard, tensors);
        let columns = self.weights[weight.index()].outputs;
        let bias_shard = if shard == Shard::Columns { Shard::Whole } else { shard };
        let bias: Vec<WeightId> =
            bias.iter().map(|&bias| self.weight(&format!("{name}/bias"), bias_shard, &[bias])).collect();
        self.emit_with(name, Kind::MatMul, &[x], columns, Some((weight, shard)), &bias)
    }

    pub(super) fn emit_with(
        &mut self,
        name: &str,
        kind: Kind,
        reads: &[ValueId],
        columns: u32,
        weight: Option<(WeightId, Shard)>,
        more: &[WeightId],
    ) -> Result<ValueId, PlanError> {
        let reads: Vec<ValueId> = reads.iter().map(|&value| self.on_this_stage(value)).collect();
        let reads = reads.as_slice();
        let full = format!("{}{}{name}", self.scope.prefix, self.group_prefix());
        let full = if name.is_empty() { full.trim_end_matches('/').to_owned() } else { full };
        let placement = self.infer(&full, &kind, reads, weight.map(|w| w.1))?;
        let operand = &self.values[reads[0].index()];
        let rows = match (&kind, placement) {
            (Kind::SelectLast, _) => Rows::Sequences,
            (_, Placement::Scattered) => Rows::Share,
            (Kind::AllGather, _) if operand.rows == Rows::Share => Rows::Tokens,
            _ => operand.rows,
        };
        let element = match kind {
            Kind::Sample => Element::Token,
            Kind::Embed => Element::Activation,
            Kind::MatMul if self.scope.module == Module::Head => Element::Logit,
            Kind::Quantize { .. } => Element::Eight,
            Kind::AllReduce | Kind::ReduceScatter => Element::Activation,
            Kind::Router => Element::Choice,
            _ => operand.element,
        };
        let weights: Vec<WeightId> =
            weight.iter().map(|(id, _)| *id).chain(more.iter().copied()).collect();
        let cost = self.cost(&kind, reads, (rows, columns, element), &weights);
        let lane = if kind.is_collective() { Lane::Comm } else { Lane::Compute };
        let written = self.value(full.clone(), placement, rows, columns, element);
        self.operations.push(Operation {
            origins: vec![full.clone()],
            name: full,
            kind,
            lane,
            reads: reads.to_vec(),
            writes: vec![written],
            weight: weight.map(|w| w.0),
            more: more.to_vec(),
            layer: self.scope.layer,
            module: self.scope.module,
            group: self.group,
            cost,
            after: Vec::new(),
        });
        Ok(written)
    }

    /// Finishes the plan. For each group, `tokens` are the step's inputs, `logits` the values sampled
    /// from, `outputs` the sampled tokens.
    pub fn finish(self, tokens: Vec<ValueId>, logits: Vec<ValueId>, outputs: Vec<ValueId>) -> Plan {
        Plan {
            phase: self.spec.phase,
            tp: self.spec.tp,
            groups: self.groups,
            operations: self.operations,
            values: self.values,
            weights: self.weights,
            tokens,
            logits,
            outputs,
        }
    }

    /// Message that a rank sends for a partial value: the value itself, or its 8-bit form.
    fn message(&mut self, prefix: &str, partial: ValueId) -> Result<ValueId, PlanError> {
        match self.spec.variant.comm_dtype {
            CommDType::Activations => Ok(partial),
            to => {
                let name = format!("{prefix}quantize");
                self.emit(&name, Kind::Quantize { to }, &[partial], self.columns(partial))
            }
        }
    }

    /// True if the residual is scattered over the ranks.
    pub(super) fn scatters(&self) -> bool {
        self.spec.variant.sequence_parallel && self.spec.tp > 1
    }

    /// Sums a partial value over the ranks; each gets the whole sum or, with a scattered residual, its
    /// rows. Returns the sum and the message this rank sent.
    pub(super) fn all_reduce(&mut self, partial: ValueId) -> Result<(ValueId, ValueId), PlanError> {
        self.all_reduce_of("", partial)
    }

    /// [`Self::all_reduce`] of one of a module's outputs; the prefix keeps names unique.
    pub(super) fn all_reduce_of(
        &mut self,
        prefix: &str,
        partial: ValueId,
    ) -> Result<(ValueId, ValueId), PlanError> {
        let sent = self.message(prefix, partial)?;
        let kind = if self.scatters() { Kind::ReduceScatter } else { Kind::AllReduce };
        let name = format!("{prefix}{}", kind.as_str());
        let sum = self.emit(&name, kind, &[sent], self.columns(sent))?;
        Ok((sum, sent))
    }

    /// Emits the embedding lookup of a group's tokens.
    pub(super) fn embed(&mut self, tokens: ValueId) -> Result<ValueId, PlanError> {
        self.set_scope(Module::Embed, None);
        let weight = self.weight("tokens", Shard::Whole, &[Tensor::Embedding]);
        let hidden = self.spec.shape.hidden;
        self.emit_with("tokens", Kind::Embed, &[tokens], hidden, Some((weight, Shard::Whole)), &[])
    }

    /// Emits an RMSNorm; gathers the rows afterwards if the residual is scattered.
    pub(super) fn norm(&mut self, x: ValueId, tensor: Tensor) -> Result<ValueId, PlanError> {
        let weight = self.weight("norm", Shard::Whole, &[tensor]);
        let hidden = self.spec.shape.hidden;
        let whole = Some((weight, Shard::Whole));
        let normed = self.emit_with("norm", Kind::Norm, &[x], hidden, whole, &[])?;
        match self.placement(normed) {
            Placement::Scattered => {
                self.emit(Kind::AllGather.as_str(), Kind::AllGather, &[normed], hidden)
            }
            _ => Ok(normed),
        }
    }
}

/// Index of an operand whose placement does not suit an operation, and the required placement in words.
type Misplaced = (usize, &'static str);

/// Number of operands that a kind takes, given how many there are.
fn operands(kind: &Kind, given: usize) -> usize {
    match kind {
        Kind::Add | Kind::AddNorm | Kind::AddMean | Kind::AllReduceAddNorm => 2,
        Kind::LatentAttend | Kind::SigmoidMul => 2,
        Kind::Experts | Kind::Dispatch | Kind::Combine => 2,
        Kind::Join { .. } | Kind::JoinNorm { .. } => given.clamp(2, 4),
        _ => 1,
    }
}

impl Builder<'_> {
    /// Placement of the result of `kind` given its operands' placements.
    fn infer(
        &self,
        operation: &str,
        kind: &Kind,
        reads: &[ValueId],
        shard: Option<Shard>,
    ) -> Result<Placement, PlanError> {
        let (found, wanted) = (reads.len(), operands(kind, reads.len()));
        if found != wanted {
            return Err(PlanError::Operands { operation: operation.into(), found, wanted });
        }
        let placements: Vec<Placement> = reads.iter().map(|&value| self.placement(value)).collect();
        self.place(kind, &placements, shard).map_err(|(operand, wanted)| {
            let value = &self.values[reads[operand].index()];
            PlanError::Placement {
                operation: operation.into(),
                value: value.name.clone(),
                found: value.placement,
                wanted: wanted.into(),
            }
        })
    }

    fn place(
        &self,
        kind: &Kind,
        placements: &[Placement],
        shard: Option<Shard>,
    ) -> Result<Placement, Misplaced> {
        use Placement::{Divergent, Partial, Replicated, Scattered, Sharded};
        let first = placements[0];
        let whole = matches!(first, Replicated | Divergent);
        let is_alone = self.spec.tp == 1;
        let is_limit = self.spec.architecture.is_limit();
        // fits, result, requirement
        let (fits, placed, wanted) = match kind {
            // row selections keep the placement
            Kind::SelectLast => (whole || first == Sharded, first, "it must be replicated"),
            Kind::Norm => (whole || first == Scattered, first, "it must be replicated"),
            Kind::Embed if self.scatters() => (whole, Scattered, "it must be replicated"),
            Kind::Sample if first == Sharded => (self.may_diverge, Divergent, "it must be replicated"),
            Kind::Embed | Kind::Sample | Kind::LatentAppend => (whole, first, "it must be replicated"),
            Kind::Narrow => (
                first == Partial && self.may_diverge,
                Partial,
                "it must be partial, and private channels are for partial alone",
            ),
            Kind::MeanShare => {
                (whole && self.may_diverge, Partial, "it must be replicated or divergent")
            }
            Kind::Send | Kind::Receive => (true, first, ""),
            Kind::Quantize { .. } => (first == Partial, Partial, "it must be partial"),
            Kind::AllReduce | Kind::AllReduceAddNorm => {
                (first == Partial, Replicated, "it must be partial")
            }
            Kind::ReduceScatter => (first == Partial, Scattered, "it must be partial"),
            Kind::AllGather => (
                matches!(first, Sharded | Scattered | Divergent),
                Replicated,
                "it must be sharded, scattered or divergent",
            ),
            Kind::MatMul => match shard {
                Some(Shard::Columns) if is_alone => (first == Sharded, Replicated, "it must be sharded"),
                Some(Shard::Columns) => (first == Sharded, Partial, "it must be sharded"),
                Some(Shard::Rows) => (whole, Sharded, "it must be replicated"),
                Some(Shard::Whole) => (whole, first, "it must be replicated"),
                Some(Shard::Experts) | None => (false, first, "it must be replicated"),
            },
            Kind::RopeAppend
            | Kind::BiasRopeAppend
            | Kind::NormRopeAppend
            | Kind::Append
            | Kind::Attend
            | Kind::WindowAttend { .. }
            | Kind::SiluMul { .. } => (first == Sharded, Sharded, "it must be sharded"),
            // the numbers of a limit are wrong anyway
            Kind::Router => (
                first == Replicated || (first == Divergent && is_limit),
                first,
                "it must be replicated: routers of different ranks would choose other experts",
            ),
            Kind::Experts => (
                whole || first == Sharded,
                if first == Sharded || is_alone { first } else { Partial },
                "it must be replicated, or dispatched to the experts' ranks",
            ),
            Kind::Dispatch => (
                first == Replicated && is_alone,
                Sharded,
                "it must be whole rows of the rank's own tokens",
            ),
            Kind::Combine => (first == Sharded, Replicated, "it must be outputs of dispatched rows"),
            Kind::Add
            | Kind::AddNorm
            | Kind::AddMean
            | Kind::Join { .. }
            | Kind::JoinNorm { .. }
            | Kind::LatentAttend
            | Kind::SigmoidMul => return self.place_pair(kind, placements),
        };
        if fits { Ok(placed) } else { Err((0, wanted)) }
    }

    /// [`Self::place`] for kinds whose further operands decide too.
    fn place_pair(&self, kind: &Kind, placements: &[Placement]) -> Result<Placement, Misplaced> {
        use Placement::{Divergent, Partial, Replicated, Scattered, Sharded};
        match (kind, placements[0], placements[1]) {
            (Kind::Join { .. } | Kind::JoinNorm { .. }, ..) => {
                let wanted = [Divergent, Partial, Replicated, Partial];
                let misplaced = placements.iter().zip(wanted).position(|(&found, wanted)| {
                    found != wanted && !(wanted == Divergent && found == Replicated)
                });
                match misplaced {
                    _ if !self.may_diverge => {
                        Err((0, "joining by parts is for delayed and partial alone"))
                    }
                    Some(0) => Err((0, "it must be a residual, replicated or divergent")),
                    Some(2) => Err((2, "it must be the sum of an all-reduce")),
                    Some(operand) => Err((operand, "it must be partial")),
                    None => Ok(Divergent),
                }
            }
            (Kind::SigmoidMul, Sharded, Sharded) => Ok(Sharded),
            (Kind::LatentAttend, Sharded, Replicated | Divergent) => Ok(Sharded),
            (Kind::SigmoidMul | Kind::LatentAttend, Sharded, _) => {
                Err((1, "latents must be replicated, gates sharded"))
            }
            (Kind::SigmoidMul | Kind::LatentAttend, ..) => Err((0, "it must be sharded")),
            (Kind::AddMean, ..) if !self.may_diverge => {
                Err((0, "averaging residuals is for desync alone"))
            }
            (Kind::AddMean, Replicated | Divergent, Partial) => Ok(Partial),
            (Kind::AddMean, Replicated | Divergent, _) => Err((1, "it must be partial")),
            (Kind::AddMean, ..) => Err((0, "it must be a residual, replicated or divergent")),
            (_, Replicated, Replicated) => Ok(Replicated),
            (_, Partial, Partial) => Ok(Partial),
            (_, Scattered, Scattered) => Ok(Scattered),
            (_, Divergent, Replicated | Divergent) => Ok(Divergent),
            (_, Replicated | Divergent, Partial) if self.may_diverge => Ok(Divergent),
            (_, Replicated | Divergent, _) => {
                Err((1, "it must be replicated: reduce it first, or use an architecture that diverges"))
            }
            _ => Err((0, "it must be replicated, or both partial")),
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::tests::spec;
    use crate::*;

    #[test]
    fn a_wrong_placement_is_a_build_error() {
        let standard = spec(&Architecture::Standard, 2, 2, Phase::Decode);
        let desync = spec(&Architecture::Desync(2), 2, 2, Phase::Decode);
        let emit = |spec: &PlanSpec, name: &str, kind: Kind, reads: &[Placement]| {
            let mut builder = Builder::new(spec);
            builder.set_scope(Module::Attn, Some(0));
            let input = |(name, placement): (&str, &Placement)| {
                builder.input(name, *placement, 32, Element::Activation)
            };
            let reads: Vec<ValueId> = ["x", "y"].into_iter().zip(reads).map(input).collect();
            let written = match kind {
                // a row-parallel product
                Kind::MatMul => builder.matmul(name, reads[0], Shard::Columns, &[Tensor::Output(0)]),
                kind => builder.emit(name, kind, &reads, 32),
            };
            written.map(|value| builder.placement(value))
        };
        use Placement::{Divergent, Partial, Replicated, Sharded};
        // a partial sum read as if it were whole
        let error = emit(&standard, "norm", Kind::Norm, &[Partial]).unwrap_err();
        assert!(matches!(error, PlanError::Placement { found: Partial, .. }));
        assert_eq!(
            error.to_string(),
            "L0/attn/norm cannot read x: it is Partial, it must be replicated"
        );
        for (name, kind, reads) in [
            // an unreduced output added to the residual, or averaged with it: only where ranks may diverge
            ("add", Kind::Add, &[Replicated, Partial][..]),
            ("add_mean", Kind::AddMean, &[Replicated, Partial]),
            // all-reduce of what is already whole would count it TP times
            ("all_reduce", Kind::AllReduce, &[Replicated]),
            ("out", Kind::MatMul, &[Replicated]),
            // sampling from a shard of the logits
            ("sample", Kind::Sample, &[Sharded]),
            // a part of the channels summed, or divergent rows gathered: only where ranks may diverge
            ("narrow", Kind::Narrow, &[Partial]),
        ] {
            assert!(emit(&standard, name, kind.clone(), reads).is_err(), "{name}");
        }
        assert_eq!(emit(&desync, "add", Kind::Add, &[Replicated, Partial]), Ok(Divergent));
        assert_eq!(emit(&desync, "narrow", Kind::Narrow, &[Partial]), Ok(Partial));
        assert!(emit(&desync, "narrow", Kind::Narrow, &[Divergent]).is_err());
        let few = emit(&standard, "add", Kind::Add, &[Sharded]);
        assert!(matches!(few, Err(PlanError::Operands { found: 1, wanted: 2, .. })), "{few:?}");
    }
}
