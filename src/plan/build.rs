//! The one builder behind every architecture, and the checks that make a wrong plan a build error.
//!
//! [`build`] walks the modules and keeps a queue of in-flight outputs; before a module it adds to the
//! residual, oldest first, all but the newest `staleness` of them. [`Builder`] is what it writes with:
//! each emitted operation's placement follows from its operands' placements, or is an error.

use std::collections::VecDeque;

use super::{
    CommDType, Cost, Element, Groups, Kind, Lane, Module, OpId, Operation, Phase, Placement, Plan,
    PlanSpec, Quantity, Reduce, Rows, SCALED_TOGETHER, Shard, Tensor, Value, ValueId, Weight, WeightId,
    WeightPart,
};

/// Why no plan could be built.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PlanError {
    /// TP does not divide the heads, the KV heads, the MLP's columns or (with a sharded head) the
    /// vocabulary; the text has the arithmetic.
    #[error("{0}")]
    Shape(String),
    /// An operation would read a value whose placement does not allow it.
    #[error("{operation} cannot read {value}: it is {found:?}, {wanted}")]
    Placement {
        /// The operation that was to be emitted.
        operation: String,
        /// The name of the operand that has the wrong placement.
        value: String,
        /// The placement that the operand has.
        found: Placement,
        /// Which placement the operation needs, in words.
        wanted: String,
    },
    /// An operation has the wrong number of operands.
    #[error("{operation} takes {wanted} operands, not {found}")]
    Operands {
        /// The operation that was to be emitted.
        operation: String,
        /// How many operands were given.
        found: usize,
        /// How many operands the kind takes.
        wanted: usize,
    },
}

/// Writes operations and values; checks placements; derives shapes and costs.
#[derive(Debug)]
pub struct Builder<'a> {
    spec: &'a PlanSpec,
    /// Whether divergent values may be made ([`super::Wiring::may_diverge`]).
    may_diverge: bool,
    operations: Vec<Operation>,
    values: Vec<Value>,
    weights: Vec<Weight>,
    /// Where the next operations belong: module and layer, and the prefix of their weights' names.
    scope: (Module, Option<u32>, String),
    /// The group of the batch that the next operations process.
    group: u32,
    /// The groups into which the batch is divided.
    groups: Groups,
}

impl<'a> Builder<'a> {
    /// A builder with no operations.
    pub fn new(spec: &'a PlanSpec) -> Self {
        Self {
            spec,
            may_diverge: spec.architecture.wiring(spec.shape.layers).may_diverge(),
            operations: Vec::new(),
            values: Vec::new(),
            weights: Vec::new(),
            scope: (Module::Embed, None, String::new()),
            group: 0,
            groups: spec.groups(),
        }
    }

    /// Sets module and layer of the operations that follow.
    pub fn scope(&mut self, module: Module, layer: Option<u32>) {
        let prefix = match layer {
            Some(layer) => format!("L{layer}/{}/", module.as_str()),
            None => format!("{}/", module.as_str()),
        };
        self.scope = (module, layer, prefix);
    }

    /// Sets the group of the batch that the operations that follow process.
    pub fn group(&mut self, group: u32) {
        self.group = group;
    }

    /// What stands before names of a group's own in its scope: nothing where the batch is not divided.
    fn group_prefix(&self) -> String {
        match self.groups.count {
            0 | 1 => String::new(),
            _ => format!("g{}/", self.group),
        }
    }

    /// An input of the plan, written by no operation.
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

    /// What the ranks hold of a value.
    pub fn placement(&self, value: ValueId) -> Placement {
        self.values[value.index()].placement
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

    fn weight(&mut self, name: &str, shard: Shard, tensors: &[Tensor]) -> WeightId {
        let name = format!("{}{name}", self.scope.2);
        // later groups of the batch read what the first one reads
        if self.group > 0
            && let Some(known) = self.weights.iter().rposition(|weight| weight.name == name)
        {
            return WeightId(known as u32);
        }
        let mut outputs = 0;
        let mut inputs = 0;
        for tensor in tensors {
            let (rows, columns) = tensor.dimensions(&self.spec.shape);
            outputs += if shard == Shard::Rows { rows / self.spec.tp } else { rows };
            inputs = if shard == Shard::Columns { columns / self.spec.tp } else { columns };
        }
        self.weights.push(Weight {
            name,
            parts: tensors.iter().map(|&tensor| WeightPart { tensor, shard }).collect(),
            outputs,
            inputs,
        });
        WeightId(self.weights.len() as u32 - 1)
    }

    /// The placement of what `kind` writes, given its operands' placements; or why it cannot.
    fn infer(
        &self,
        operation: &str,
        kind: &Kind,
        reads: &[ValueId],
        shard: Option<Shard>,
    ) -> Result<Placement, PlanError> {
        use Placement::{Divergent, Partial, Replicated, Sharded};
        let wanted_operands = match kind {
            Kind::Add | Kind::AddNorm | Kind::AddMean | Kind::AllReduceAddNorm => 2,
            Kind::Join { .. } | Kind::JoinNorm { .. } if reads.len() == 4 => 4,
            Kind::Join { .. } | Kind::JoinNorm { .. } => 2,
            _ => 1,
        };
        if reads.len() != wanted_operands {
            return Err(PlanError::Operands {
                operation: operation.into(),
                found: reads.len(),
                wanted: wanted_operands,
            });
        }
        let wrong = |operand: usize, wanted: &str| {
            let value = &self.values[reads[operand].index()];
            Err(PlanError::Placement {
                operation: operation.into(),
                value: value.name.clone(),
                found: value.placement,
                wanted: wanted.into(),
            })
        };
        let first = self.placement(reads[0]);
        let whole = matches!(first, Replicated | Divergent);
        match kind {
            // whole rows: what the ranks hold of them does not change
            Kind::SelectLast if first == Sharded => Ok(Sharded),
            Kind::Embed | Kind::Norm | Kind::SelectLast => {
                if whole {
                    Ok(first)
                } else {
                    wrong(0, "it must be replicated")
                }
            }
            Kind::Sample => match first {
                Replicated | Divergent => Ok(first),
                Sharded if self.may_diverge => Ok(Divergent),
                _ => wrong(0, "it must be replicated"),
            },
            Kind::Add | Kind::AddNorm => match (first, self.placement(reads[1])) {
                (Replicated, Replicated) => Ok(Replicated),
                (Partial, Partial) => Ok(Partial),
                (Divergent, Replicated | Divergent) => Ok(Divergent),
                (Replicated | Divergent, Partial) if self.may_diverge => Ok(Divergent),
                (Replicated | Divergent, _) => wrong(
                    1,
                    "it must be replicated: reduce it first, or use an architecture that diverges",
                ),
                _ => wrong(0, "it must be replicated, or both partial"),
            },
            Kind::AddMean => match (first, self.placement(reads[1])) {
                _ if !self.may_diverge => wrong(0, "averaging residuals is for desync alone"),
                (Replicated | Divergent, Partial) => Ok(Partial),
                (Replicated | Divergent, _) => wrong(1, "it must be partial"),
                _ => wrong(0, "it must be a residual, replicated or divergent"),
            },
            Kind::Join { .. } | Kind::JoinNorm { .. } => {
                let wanted = [Divergent, Partial, Replicated, Partial];
                match reads.iter().zip(wanted).position(|(&value, wanted)| {
                    let found = self.placement(value);
                    found != wanted && !(wanted == Divergent && found == Replicated)
                }) {
                    _ if !self.may_diverge => wrong(0, "joining by parts is for delayed alone"),
                    Some(0) => wrong(0, "it must be a residual, replicated or divergent"),
                    Some(2) => wrong(2, "it must be the sum of an all-reduce"),
                    Some(operand) => wrong(operand, "it must be partial"),
                    None => Ok(Divergent),
                }
            }
            Kind::MeanShare if whole && self.may_diverge => Ok(Partial),
            Kind::MeanShare => wrong(0, "it must be replicated or divergent"),
            Kind::Quantize { .. } if first == Partial => Ok(Partial),
            Kind::Quantize { .. } => wrong(0, "it must be partial"),
            Kind::MatMul => match (shard, first) {
                (Some(Shard::Rows), Replicated | Divergent) => Ok(Sharded),
                (Some(Shard::Columns), Sharded) if self.spec.tp == 1 => Ok(Replicated),
                (Some(Shard::Columns), Sharded) => Ok(Partial),
                (Some(Shard::Whole), Replicated | Divergent) => Ok(first),
                (Some(Shard::Columns), _) => wrong(0, "it must be sharded"),
                _ => wrong(0, "it must be replicated"),
            },
            Kind::RopeAppend | Kind::Attend | Kind::SiluMul { .. } => {
                if first == Sharded {
                    Ok(Sharded)
                } else {
                    wrong(0, "it must be sharded")
                }
            }
            Kind::AllReduce | Kind::AllReduceAddNorm => {
                if first == Partial {
                    Ok(Replicated)
                } else {
                    wrong(0, "it must be partial")
                }
            }
            Kind::AllGather => {
                if first == Sharded {
                    Ok(Replicated)
                } else {
                    wrong(0, "it must be sharded")
                }
            }
        }
    }

    /// Emits one operation without a weight; `columns` is the width of what it writes on one rank. Fails with
    /// [`PlanError::Operands`] where the kind takes another number of operands, and with [`PlanError::Placement`]
    /// where an operand's placement does not allow it.
    pub fn emit(
        &mut self,
        name: &str,
        kind: Kind,
        reads: &[ValueId],
        columns: u32,
    ) -> Result<ValueId, PlanError> {
        self.emit_with(name, kind, reads, columns, None)
    }

    /// Emits a multiplication by slices of `tensors`, one below the other. Fails with [`PlanError::Placement`] where
    /// `x` is not placed as a weight sharded so needs it: replicated for rows of the weight, sharded for columns.
    pub fn matmul(
        &mut self,
        name: &str,
        x: ValueId,
        shard: Shard,
        tensors: &[Tensor],
    ) -> Result<ValueId, PlanError> {
        let weight = self.weight(name, shard, tensors);
        let columns = self.weights[weight.index()].outputs;
        self.emit_with(name, Kind::MatMul, &[x], columns, Some((weight, shard)))
    }

    fn emit_with(
        &mut self,
        name: &str,
        kind: Kind,
        reads: &[ValueId],
        columns: u32,
        weight: Option<(WeightId, Shard)>,
    ) -> Result<ValueId, PlanError> {
        let full = format!("{}{}{name}", self.scope.2, self.group_prefix());
        let full = if name.is_empty() { full.trim_end_matches('/').to_owned() } else { full };
        let placement = self.infer(&full, &kind, reads, weight.map(|w| w.1))?;
        let operand = &self.values[reads[0].index()];
        let rows = if kind == Kind::SelectLast { Rows::Sequences } else { operand.rows };
        let element = match kind {
            Kind::Sample => Element::Token,
            Kind::Embed => Element::Activation,
            Kind::MatMul if self.scope.0 == Module::Head => Element::Logit,
            Kind::Quantize { .. } => Element::Eight,
            Kind::AllReduce => Element::Activation,
            _ => operand.element,
        };
        let cost = self.cost(&kind, reads, rows, columns, element, weight.map(|w| w.0));
        let lane = match kind {
            Kind::AllReduce | Kind::AllGather => Lane::Comm,
            _ => Lane::Compute,
        };
        let written = self.value(full.clone(), placement, rows, columns, element);
        self.operations.push(Operation {
            origins: vec![full.clone()],
            name: full,
            kind,
            lane,
            reads: reads.to_vec(),
            writes: vec![written],
            weight: weight.map(|w| w.0),
            layer: self.scope.1,
            module: self.scope.0,
            group: self.group,
            cost,
            after: Vec::new(),
        });
        Ok(written)
    }

    /// FLOPs and bytes on one rank: operands and weights read once, results written once.
    fn cost(
        &self,
        kind: &Kind,
        reads: &[ValueId],
        rows: Rows,
        columns: u32,
        element: Element,
        weight: Option<WeightId>,
    ) -> Cost {
        let precision = self.spec.precision;
        let bytes = |columns: u32, element: Element| match element {
            Element::Activation => u64::from(columns) * precision.activations.bytes(),
            Element::Logit | Element::Token => u64::from(columns) * 4,
            Element::Eight => u64::from(columns) + 4 * u64::from(columns.div_ceil(SCALED_TOGETHER)),
        };
        let per = |rows: Rows, n: u64| match rows {
            Rows::Tokens => Quantity { row: n, ..Quantity::ZERO },
            Rows::Sequences => Quantity { sequence: n, ..Quantity::ZERO },
        };
        let fixed = |n: u64| Quantity { fixed: n, ..Quantity::ZERO };
        let mut cost = Cost {
            bytes_read: reads.iter().fold(Quantity::ZERO, |sum, value| {
                let value = &self.values[value.index()];
                // a selection reads only the rows that it keeps
                let rows = if *kind == Kind::SelectLast { Rows::Sequences } else { value.rows };
                sum + per(rows, bytes(value.columns, value.element))
            }),
            bytes_written: per(rows, bytes(columns, element)),
            ..Cost::default()
        };
        let columns = u64::from(columns);
        if let Some(weight) = weight {
            let weight = &self.weights[weight.index()];
            let numbers = u64::from(weight.inputs) * u64::from(weight.outputs);
            let read = numbers * precision.weights.bytes();
            if *kind == Kind::Embed {
                let row = u64::from(weight.inputs) * precision.weights.bytes();
                cost.bytes_read = cost.bytes_read + per(rows, row);
            } else {
                cost.bytes_read = cost.bytes_read + fixed(read);
            }
            if *kind == Kind::MatMul {
                cost.flops = per(rows, 2 * numbers);
            }
        }
        let shape = &self.spec.shape;
        let head_dim = u64::from(shape.head_dim);
        let heads = u64::from(shape.heads / self.spec.tp);
        let kv = u64::from(shape.kv_heads / self.spec.tp) * head_dim;
        match kind {
            Kind::Norm => cost.flops = per(rows, 4 * columns),
            Kind::Add => cost.flops = per(rows, columns),
            Kind::AddMean => cost.flops = per(rows, 2 * columns),
            Kind::MeanShare => cost.flops = per(rows, columns),
            Kind::Join { .. } => cost.flops = per(rows, reads.len() as u64 * columns),
            Kind::SiluMul { .. } => cost.flops = per(rows, 5 * columns),
            Kind::RopeAppend => {
                cost.flops = per(rows, 3 * (heads * head_dim + kv));
                cost.bytes_written = cost.bytes_written + per(rows, 2 * kv * precision.kv.bytes());
            }
            Kind::Attend => {
                // q k^T and p v: two multiply-adds a pair and column; softmax: about 5 a pair
                let flops = heads * (4 * head_dim + 5);
                cost.flops = Quantity { pair: flops, ..Quantity::ZERO };
                let cache = Quantity { kv_token: 2 * kv * precision.kv.bytes(), ..Quantity::ZERO };
                cost.bytes_read = cost.bytes_read + cache;
            }
            // of each number: its size, the largest of those that share a scale, a product and a rounding
            Kind::Quantize { .. } => cost.flops = per(rows, 4 * columns),
            Kind::AllGather => cost.message_bytes = cost.bytes_written,
            Kind::AllReduce => {
                cost.message_bytes = cost.bytes_read;
                if self.values[reads[0].index()].element == Element::Eight {
                    // every rank reads all ranks' messages, scales and adds their numbers
                    let ranks = u64::from(self.spec.tp);
                    cost.bytes_read = cost.message_bytes.times(ranks);
                    cost.flops = per(rows, 2 * ranks * columns);
                }
            }
            Kind::Sample => {
                let logits = self.values[reads[0].index()].columns;
                cost.flops = per(rows, u64::from(logits));
            }
            _ => {}
        }
        cost
    }

    /// Ends building: the plan of what was emitted, with the values, of each group of the batch, that a step
    /// begins with (`tokens`), is sampled from (`logits`) and ends with (`outputs`).
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

    /// Sums a partial value over the ranks: in the format that messages have, into which each rank brings its own
    /// part once.
    fn all_reduce(&mut self, partial: ValueId) -> Result<ValueId, PlanError> {
        let hidden = self.spec.shape.hidden;
        let message = match self.spec.variant.comm_dtype {
            CommDType::Activations => partial,
            to => self.emit("quantize", Kind::Quantize { to }, &[partial], hidden)?,
        };
        self.emit("all_reduce", Kind::AllReduce, &[message], hidden)
    }

    fn embed(&mut self, tokens: ValueId) -> Result<ValueId, PlanError> {
        self.scope(Module::Embed, None);
        let weight = self.weight("tokens", Shard::Whole, &[Tensor::Embedding]);
        let hidden = self.spec.shape.hidden;
        self.emit_with("tokens", Kind::Embed, &[tokens], hidden, Some((weight, Shard::Whole)))
    }

    fn norm(&mut self, x: ValueId, tensor: Tensor) -> Result<ValueId, PlanError> {
        let weight = self.weight("norm", Shard::Whole, &[tensor]);
        let hidden = self.spec.shape.hidden;
        self.emit_with("norm", Kind::Norm, &[x], hidden, Some((weight, Shard::Whole)))
    }

    /// RoPE, cache and attention on a projection that starts with q, k, v; then the output
    /// projection: sharded -> partial.
    fn attend(&mut self, projected: ValueId, layer: u32) -> Result<ValueId, PlanError> {
        let columns = self.spec.shape.heads / self.spec.tp * self.spec.shape.head_dim;
        let queries = self.emit("rope", Kind::RopeAppend, &[projected], columns)?;
        let attended = self.emit("attend", Kind::Attend, &[queries], columns)?;
        self.matmul("out", attended, Shard::Columns, &[Tensor::Output(layer)])
    }

    /// Gated activation and down projection: sharded -> partial.
    fn gated(&mut self, projected: ValueId, offset: u32, layer: u32) -> Result<ValueId, PlanError> {
        let columns = self.spec.shape.intermediate / self.spec.tp;
        let active = self.emit("act", Kind::SiluMul { offset }, &[projected], columns)?;
        self.matmul("down", active, Shard::Columns, &[Tensor::Down(layer)])
    }

    /// One module from its (normed) input to its partial output.
    fn module(&mut self, module: Module, layer: u32, x: ValueId) -> Result<ValueId, PlanError> {
        let (q, k, v) = (Tensor::Query(layer), Tensor::Key(layer), Tensor::Value(layer));
        let (gate, up) = (Tensor::Gate(layer), Tensor::Up(layer));
        match module {
            Module::Attn => {
                let projected = self.matmul("qkv", x, Shard::Rows, &[q, k, v])?;
                self.attend(projected, layer)
            }
            Module::Mlp => {
                let projected = self.matmul("gate_up", x, Shard::Rows, &[gate, up])?;
                self.gated(projected, 0, layer)
            }
            _ => {
                let projected = self.matmul("in", x, Shard::Rows, &[q, k, v, gate, up])?;
                let shape = &self.spec.shape;
                let offset = (shape.heads + 2 * shape.kv_heads) / self.spec.tp * shape.head_dim;
                let attention = self.attend(projected, layer)?;
                let mlp = self.gated(projected, offset, layer)?;
                let hidden = self.spec.shape.hidden;
                self.emit("sum", Kind::Add, &[attention, mlp], hidden)
            }
        }
    }
}

/// The residual stream and the outputs that have not joined it yet, oldest first.
struct Residual {
    value: ValueId,
    in_flight: VecDeque<ValueId>,
    /// What is under way where ranks keep residuals of their own and are told of the others' parts late.
    delayed: Option<Delayed>,
}

impl Residual {
    /// Adds, oldest first, all but the newest `staleness` outputs.
    fn catch_up(&mut self, builder: &mut Builder<'_>, staleness: u32) -> Result<ValueId, PlanError> {
        let mut count = 0;
        while self.in_flight.len() > staleness as usize {
            let Some(output) = self.in_flight.pop_front() else { break };
            count += 1;
            let name = if count == 1 { "add".to_owned() } else { format!("add{count}") };
            let hidden = builder.spec.shape.hidden;
            self.value = builder.emit(&name, Kind::Add, &[self.value, output], hidden)?;
        }
        if let Some(delayed) = &mut self.delayed {
            self.value = delayed.join(builder, self.value)?;
        }
        Ok(self.value)
    }
}

/// The outputs of `delayed` that have not wholly joined the ranks' residuals.
struct Delayed {
    delay: usize,
    modules: usize,
    /// The last module's number and own part, which join before the next module.
    own: Option<(usize, ValueId)>,
    /// Sums under way, oldest first: which module's, the sum, and the own part that is in it.
    sums: VecDeque<(usize, ValueId, ValueId)>,
}

impl Delayed {
    /// Adds to a residual what has to join it before the next module.
    fn join(&mut self, builder: &mut Builder<'_>, residual: ValueId) -> Result<ValueId, PlanError> {
        let Some((module, own)) = self.own.take() else { return Ok(residual) };
        let mut reads = vec![residual, own];
        if let Some(&(_, sum, part)) = self.sums.front().filter(|sum| sum.0 + self.delay <= module) {
            reads.extend([sum, part]);
            self.sums.pop_front();
        }
        let root = module < self.delay || module + self.delay >= self.modules;
        builder.emit("join", Kind::Join { root }, &reads, builder.spec.shape.hidden)
    }

    /// Takes in a module's partial output, whose sum begins now but for the last modules.
    fn begin(
        &mut self,
        builder: &mut Builder<'_>,
        module: usize,
        own: ValueId,
    ) -> Result<(), PlanError> {
        self.own = Some((module, own));
        if module + self.delay < self.modules {
            let sum = builder.all_reduce(own)?;
            // what is in the sum is what was sent
            let sent = builder.operations.last().map_or(own, |all_reduce| all_reduce.reads[0]);
            self.sums.push_back((module, sum, sent));
        }
        Ok(())
    }
}

/// What one group of the batch has come to.
struct GroupState {
    residual: Residual,
    /// The part of attention that is summed with the MLP's.
    dropped: Option<ValueId>,
}

/// Builds the unlowered plan (but for the choices in [`super::Lowering`] that decide what exists).
pub(super) fn build(spec: &PlanSpec) -> Result<Plan, PlanError> {
    let shape = &spec.shape;
    if let Some(problem) = shape.tp_problem(spec.tp) {
        return Err(PlanError::Shape(problem));
    }
    if spec.lowering.shard_head && !shape.vocab.is_multiple_of(spec.tp) {
        return Err(PlanError::Shape(format!(
            "TP {} does not divide the vocabulary of {} that a sharded head needs",
            spec.tp, shape.vocab
        )));
    }
    let mut b = Builder::new(spec);
    let mut wiring = spec.architecture.wiring(shape.layers);
    if spec.tp == 1 {
        // one rank: partial sums are whole, nothing is reduced and nothing diverges
        wiring.reduce = Reduce::Never;
        wiring.dropped.fill(false);
    }
    let modules: Vec<(Module, u32)> = (0..shape.layers)
        .flat_map(|layer| {
            let kinds: &[Module] =
                if wiring.fused_block { &[Module::Block] } else { &[Module::Attn, Module::Mlp] };
            kinds.iter().map(move |&module| (module, layer))
        })
        .collect();

    let mut tokens = Vec::new();
    let mut groups = Vec::new();
    for group in 0..b.groups.count {
        b.group(group);
        let input = b.input("tokens", Placement::Replicated, 1, Element::Token);
        let delayed = match wiring.reduce {
            Reduce::Delayed(delay) => Some(Delayed {
                delay: delay as usize,
                modules: modules.len(),
                own: None,
                sums: VecDeque::new(),
            }),
            _ => None,
        };
        let residual = Residual { value: b.embed(input)?, in_flight: VecDeque::new(), delayed };
        groups.push(GroupState { residual, dropped: None });
        tokens.push(input);
    }
    for (index, &(module, layer)) in modules.iter().enumerate() {
        // the groups take turns, so that one's all-reduce is under way while another computes
        for (group, state) in groups.iter_mut().enumerate() {
            b.group(group as u32);
            state.module(&mut b, &wiring, (module, layer), (index, modules.len()))?;
        }
    }
    let (mut logits, mut outputs) = (Vec::new(), Vec::new());
    let last = groups.len() - 1;
    for (group, state) in groups.iter_mut().enumerate() {
        b.group(group as u32);
        // a part of a prompt that does not end it is followed by no token
        let ends = group == last || !b.groups.of_tokens;
        let (scores, output) = head(&mut b, spec, &mut state.residual, ends)?;
        logits.extend(scores);
        outputs.extend(output);
    }
    Ok(b.finish(tokens, logits, outputs))
}

impl GroupState {
    /// One module of the group: what has to join its residual, the module, and what becomes of its output.
    /// `place` is the module's number and how many there are.
    fn module(
        &mut self,
        b: &mut Builder<'_>,
        wiring: &super::Wiring,
        (module, layer): (Module, u32),
        (index, modules): (usize, usize),
    ) -> Result<(), PlanError> {
        let hidden = b.spec.shape.hidden;
        let Self { residual, dropped } = self;
        b.scope(module, Some(layer));
        let mut x = residual.catch_up(b, wiring.staleness[layer as usize])?;
        if let Some(part) = *dropped {
            x = b.emit("add_part", Kind::Add, &[x, part], hidden)?;
        }
        let norm = if module == Module::Mlp {
            Tensor::PostAttentionNorm(layer)
        } else {
            Tensor::InputNorm(layer)
        };
        let normed = b.norm(x, norm)?;
        let mut partial = b.module(module, layer, normed)?;
        if let Some(part) = dropped.take() {
            partial = b.emit("sum", Kind::Add, &[part, partial], hidden)?;
        } else if module == Module::Attn && wiring.dropped[layer as usize] {
            *dropped = Some(partial);
            return Ok(());
        }
        match wiring.reduce {
            Reduce::Never => residual.in_flight.push_back(partial),
            Reduce::Each => {
                let reduced = b.all_reduce(partial)?;
                residual.in_flight.push_back(reduced);
            }
            Reduce::Every(n) if (index as u32 + 1).is_multiple_of(n) || index + 1 == modules => {
                let reads = [residual.value, partial];
                let summand = b.emit("add_mean", Kind::AddMean, &reads, hidden)?;
                residual.value = b.all_reduce(summand)?;
            }
            Reduce::Every(_) => residual.in_flight.push_back(partial),
            Reduce::Delayed(_) => {
                if let Some(delayed) = &mut residual.delayed {
                    delayed.begin(b, index, partial)?;
                }
            }
        }
        Ok(())
    }
}

/// What follows the last layer: logits and the sampled tokens; neither where the rows do not end the prompt
/// (`ends`), unless the logits of every position are asked for.
fn head(
    b: &mut Builder<'_>,
    spec: &PlanSpec,
    residual: &mut Residual,
    ends: bool,
) -> Result<(Option<ValueId>, Option<ValueId>), PlanError> {
    let shape = &spec.shape;
    let all_rows = spec.phase == Phase::Prefill && spec.lowering.all_logits;
    if !ends && !all_rows {
        return Ok((None, None));
    }
    b.scope(Module::Head, None);
    let mut x = residual.catch_up(b, 0)?;
    let one_row = spec.phase == Phase::Prefill && !all_rows;
    if one_row && !spec.lowering.late_select {
        x = b.emit("select", Kind::SelectLast, &[x], shape.hidden)?;
    }
    let mut normed = b.norm(x, Tensor::FinalNorm)?;
    if residual.delayed.is_some() {
        let part = b.emit("mean_share", Kind::MeanShare, &[normed], shape.hidden)?;
        normed = b.all_reduce(part)?;
    }
    if one_row && spec.lowering.late_select {
        normed = b.emit("select", Kind::SelectLast, &[normed], shape.hidden)?;
    }
    let sharded = spec.lowering.shard_head && spec.tp > 1;
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

/// For tests of other modules: operations by name.
impl Plan {
    /// The operation of this name, if the plan has one.
    pub fn find(&self, name: &str) -> Option<OpId> {
        self.operations.iter().position(|o| o.name == name).map(|i| OpId(i as u32))
    }
}
