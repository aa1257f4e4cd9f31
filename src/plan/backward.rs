//! Backward passes: derives the gradient computation from a plan, so that any architecture can be
//! trained.
//!
//! A [`TrainingPlan`] is a forward plan over all positions plus the backward operations, last to first.
//! A gradient is a value with the placement of the value it belongs to: replicated, sharded or
//! divergent. A replicated value has one gradient for all ranks. If a rank-local part of the model read
//! it, each rank holds a summand and an all-reduce on the comm lane follows at once: the forward pass
//! reduces a module's output, the backward pass the gradient of its input (Shoeybi et al., 2019, f and g
//! in section 3). Partial and divergent values have one gradient per rank. Where a later module does not
//! wait for an output forwards, the producer does not wait for that module's gradient backwards: overlap
//! in decoding carries over to training.
//!
//! Additions need no operation: the gradient of a sum is also the gradient of each summand.

use super::{
    Architecture, AttentionShape, DType, ExpertActivation, ExpertShape, GradientId, Kind, Lane,
    Lowering, ModelShape, Module, OpId, Phase, Placement, Plan, PlanError, PlanSpec, Precision,
    RouterBias, Routing, Rows, Tensor, ValueId, Variant, WeightId,
};

/// Gradient of a value, written by one operation: one row per position, as wide as the value.
#[derive(Clone, Debug, PartialEq)]
pub struct Gradient {
    /// Differentiated value and operation: `L3/mlp/down'`.
    pub name: String,
    pub placement: Placement,
    /// Columns per rank.
    pub columns: u32,
}

#[derive(Clone, Debug, PartialEq)]
pub enum Derivative {
    /// Gradient of an operation's operand from the gradient of its result. [`Kind::Attend`] writes two:
    /// one for the queries, and one for the layer's keys and values, side by side. The rotation reads
    /// both and writes the gradient of the q, k and v columns. [`Kind::Experts`] writes that of its rows, and
    /// one for the weights in the choices, which [`Kind::Router`] reads. Columns that rotation and
    /// [`Kind::SiluMul`] do not read get 0.
    Operand(OpId),
    /// Adds to the gradient of a forward operation's weights.
    Weight(OpId),
    /// A multiple of a gradient in some columns, the same ones in both; 0 in the others.
    Scale(f64, std::ops::Range<u32>),
    Sum,
    AllReduce,
}

/// One operation of the backward pass, the same on every rank.
#[derive(Clone, Debug, PartialEq)]
pub struct BackwardOperation {
    /// Unique within the pass.
    pub name: String,
    pub does: Derivative,
    pub lane: Lane,
    pub reads: Vec<GradientId>,
    pub writes: Vec<GradientId>,
}

/// Forward pass over all positions of the windows, its loss, and the backward pass.
#[derive(Clone, Debug)]
pub struct TrainingPlan {
    /// Forward plan. Operations from index [`TrainingPlan::forward`] on belong to generation and do not
    /// run.
    pub plan: Plan,
    /// Number of the plan's operations that run in the forward pass.
    pub forward: usize,
    /// Input of the loss: output of the final norm, `[rows, hidden]`.
    pub normed: ValueId,
    /// Head weight, used by the loss to compute logits.
    pub head: WeightId,
    pub gradients: Vec<Gradient>,
    /// Gradient of [`TrainingPlan::normed`], written by the loss; `None` if nothing before the head is
    /// trained.
    pub seed: Option<GradientId>,
    /// Backward operations; each reads only what the loss or earlier operations wrote.
    pub backward: Vec<BackwardOperation>,
    /// For each weight of the plan, true if it is trained.
    pub trained: Vec<bool>,
    /// Weights that every rank holds in full and whose gradients must be summed over ranks.
    pub summed: Vec<WeightId>,
}

impl TrainingPlan {
    /// Builds the training plan of an architecture, in f32; `trains` selects the trainable tensors.
    ///
    /// # Errors
    ///
    /// Returns [`PlanError`] as for any plan, and [`PlanError::Shape`] for `upper-bound` on several
    /// ranks, whose numbers are wrong on purpose.
    pub fn new(
        shape: &ModelShape,
        architecture: &Architecture,
        tp: u32,
        trains: &dyn Fn(Tensor) -> bool,
    ) -> Result<Self, PlanError> {
        if tp > 1 && *architecture == Architecture::UpperBound {
            return Err(PlanError::Shape(
                "upper-bound cannot be trained: it has no all-reduces, so its output is wrong by design"
                    .into(),
            ));
        }
        let is_trainable = |experts: &ExpertShape| {
            let Routing { bias, weighs_input, .. } = experts.routing;
            let is_plain = experts.activation == ExpertActivation::Silu && !experts.biased;
            is_plain && bias != RouterBias::Logits && !weighs_input
        };
        if shape.attention != AttentionShape::default() || !shape.experts.iter().all(is_trainable) {
            return Err(PlanError::Shape(
                "training is for models with plain attention: attention sinks, windows, latents, and experts with \
                 biases or weighted inputs have no derivatives here"
                    .into(),
            ));
        }
        if tp > shape.kv_heads {
            return Err(PlanError::Shape(format!(
                "training needs a KV head on each rank: TP {tp} exceeds {} KV heads",
                shape.kv_heads
            )));
        }
        let plan = Plan::new(&PlanSpec {
            shape: shape.clone(),
            architecture: architecture.clone(),
            tp,
            phase: Phase::Prefill,
            precision: Precision::uniform(DType::F32),
            lowering: Lowering { late_select: true, ..Lowering::default() },
            variant: Variant::default(),
            batch: 1,
            pp: 1,
        })?;
        let key_columns = 2 * shape.kv_heads / tp * shape.head_dim;
        // a tied head changes with the embedding
        let is_embedding = |tensor| shape.tied_embeddings && tensor == Tensor::Head;
        Self::from_plan(plan, key_columns, &|tensor| {
            trains(if is_embedding(tensor) { Tensor::Embedding } else { tensor })
        })
    }

    /// Derives the backward pass of a plan lowered with `late_select`; `key_columns` is the width of
    /// keys plus values per rank.
    fn from_plan(
        plan: Plan,
        key_columns: u32,
        trains: &dyn Fn(Tensor) -> bool,
    ) -> Result<Self, PlanError> {
        let missing = || PlanError::Shape("the plan has no positions to train on, or no head".into());
        let forward =
            plan.operations.iter().rposition(|o| o.kind == Kind::SelectLast).ok_or_else(missing)?;
        let head = |o: &&super::Operation| o.kind == Kind::MatMul && o.module == Module::Head;
        let head = plan.operations.iter().find(head).and_then(|o| o.weight).ok_or_else(missing)?;
        let trained: Vec<bool> =
            plan.weights.iter().map(|w| w.parts.iter().any(|part| trains(part.tensor))).collect();
        let normed = plan.selected_from().ok_or_else(missing)?;
        let mut pass = Pass {
            tp: plan.tp,
            key_columns,
            gradients: Vec::new(),
            operations: Vec::new(),
            found: vec![Vec::new(); plan.values.len()],
            keys: vec![None; plan.values.len()],
            needed: needed(&plan, forward, &trained),
            summed: Vec::new(),
            plan: &plan,
        };
        let is_needed = pass.needed[normed.index()];
        let seed = is_needed.then(|| pass.gradient("loss".into(), normed));
        pass.found[normed.index()].extend(seed);
        for at in (0..forward).rev() {
            pass.step_back(OpId(at as u32), &trained);
        }
        let Pass { gradients, operations: backward, summed, .. } = pass;
        Ok(Self { forward, normed, head, gradients, seed, backward, trained, summed, plan })
    }
}

/// For each value, true if it depends on a trained weight.
fn needed(plan: &Plan, forward: usize, trained: &[bool]) -> Vec<bool> {
    let mut needed = vec![false; plan.values.len()];
    for operation in &plan.operations[..forward] {
        let weight = operation.weights().any(|weight| trained[weight.index()]);
        let is_needed = weight || operation.reads.iter().any(|value| needed[value.index()]);
        for value in &operation.writes {
            needed[value.index()] = is_needed;
        }
    }
    needed
}

/// Backward pass under construction.
struct Pass<'a> {
    plan: &'a Plan,
    tp: u32,
    /// Columns per rank of a layer's keys and values, side by side.
    key_columns: u32,
    gradients: Vec<Gradient>,
    operations: Vec<BackwardOperation>,
    /// Summands of each value's gradient.
    found: Vec<Vec<GradientId>>,
    /// For rotated queries, the gradient of their layer's keys and values.
    keys: Vec<Option<GradientId>>,
    needed: Vec<bool>,
    summed: Vec<WeightId>,
}

impl Pass<'_> {
    /// Emits the backward operations of one forward operation: gradients of its operands and of its
    /// weight.
    fn step_back(&mut self, id: OpId, trained: &[bool]) {
        let operation = &self.plan.operations[id.index()];
        let written = operation.writes[0];
        let Some(gradient) = self.whole(written) else { return };
        let (name, reads) = (&operation.name, &operation.reads);
        // a rotation has two gradients: of the queries, and of keys and values
        let behind: Vec<GradientId> =
            std::iter::once(gradient).chain(self.keys[written.index()]).collect();
        let of_weight = behind.clone();
        match operation.kind {
            Kind::Add => {
                for value in reads {
                    self.give(*value, gradient, written);
                }
            }
            Kind::AllReduce => self.give(reads[0], gradient, written),
            Kind::AddMean => {
                self.give_scaled(reads[0], gradient, written, 1.0 / f64::from(self.tp));
                self.give(reads[1], gradient, written);
            }
            Kind::MeanShare => self.give_scaled(reads[0], gradient, written, 1.0 / f64::from(self.tp)),
            Kind::Narrow => {
                self.give_columns(reads[0], gradient, written, 1.0, 0..self.columns(written))
            }
            Kind::Join { root } => {
                self.give(reads[0], gradient, written);
                let scale = if root { f64::from(self.tp).sqrt() } else { 1.0 };
                match reads[2..] {
                    [sum] => {
                        let (shared, all) = (self.columns(sum), self.columns(written));
                        self.give_columns(reads[1], gradient, written, scale, shared..all);
                        self.give_columns(sum, gradient, written, 1.0, 0..shared);
                    }
                    [sum, part] => {
                        self.give_scaled(reads[1], gradient, written, scale);
                        self.give(sum, gradient, written);
                        self.give_scaled(part, gradient, written, -1.0);
                    }
                    _ => self.give_scaled(reads[1], gradient, written, scale),
                }
            }
            Kind::Attend => {
                if self.needed[reads[0].index()] {
                    let queries = self.gradient(format!("{name}/queries'"), reads[0]);
                    let columns = self.key_columns;
                    let placement = self.gradients[queries.index()].placement;
                    self.gradients.push(Gradient { name: format!("{name}/keys'"), placement, columns });
                    let keys = GradientId(queries.0 + 1);
                    self.keys[reads[0].index()] = Some(keys);
                    let does = Derivative::Operand(id);
                    self.emit(format!("{name}'"), does, behind, vec![queries, keys]);
                    self.found[reads[0].index()].push(queries);
                }
            }
            Kind::Experts => {
                let [rows, choices] = [reads[0], reads[1]];
                if self.needed[rows.index()] || self.needed[choices.index()] {
                    let names = [format!("{name}'"), format!("{name}/choices'")];
                    let [of_rows, of_choices] = [(0, rows), (1, choices)]
                        .map(|(at, value)| self.gradient(names[at].clone(), value));
                    let does = Derivative::Operand(id);
                    self.emit(names[0].clone(), does, behind, vec![of_rows, of_choices]);
                    self.give(rows, of_rows, written);
                    self.give(choices, of_choices, written);
                }
            }
            Kind::Embed => {}
            _ => self.operand(id, behind, written),
        }
        let mut of_weights = operation.weights().filter(|weight| trained[weight.index()]).peekable();
        if of_weights.peek().is_some() {
            self.emit(format!("{name}/weight'"), Derivative::Weight(id), of_weight, Vec::new());
        }
        for weight in of_weights {
            let is_whole = self.plan.weights[weight.index()].is_whole();
            let one = self.plan.values[written.index()].placement == Placement::Replicated;
            if self.tp > 1 && is_whole && !one && !self.summed.contains(&weight) {
                self.summed.push(weight);
            }
        }
    }

    /// Sums the collected summands of a value's gradient; `None` if there are none or nobody needs it.
    fn whole(&mut self, value: ValueId) -> Option<GradientId> {
        if !self.needed[value.index()] {
            return None;
        }
        let found = std::mem::take(&mut self.found[value.index()]);
        match found[..] {
            [] => None,
            [one] => Some(one),
            _ => {
                let name = format!("{}/sum'", self.plan.values[value.index()].name);
                let sum = self.gradient(name.clone(), value);
                self.emit(name, Derivative::Sum, found, vec![sum]);
                Some(sum)
            }
        }
    }

    fn gradient(&mut self, name: String, of: ValueId) -> GradientId {
        let value = &self.plan.values[of.index()];
        debug_assert!(value.rows == Rows::Tokens, "{} has a row a position", value.name);
        let placement = match value.placement {
            Placement::Partial => Placement::Divergent,
            placement => placement,
        };
        self.gradients.push(Gradient { name, placement, columns: value.columns });
        GradientId(self.gradients.len() as u32 - 1)
    }

    fn emit(&mut self, name: String, does: Derivative, reads: Vec<GradientId>, writes: Vec<GradientId>) {
        let lane = if does == Derivative::AllReduce { Lane::Comm } else { Lane::Compute };
        self.operations.push(BackwardOperation { name, does, lane, reads, writes });
    }

    /// Emits the operation that computes the gradient of an operation's only operand.
    fn operand(&mut self, id: OpId, reads: Vec<GradientId>, written: ValueId) {
        let operation = &self.plan.operations[id.index()];
        let value = operation.reads[0];
        if self.needed[value.index()] {
            let name = format!("{}'", operation.name);
            let gradient = self.gradient(name.clone(), value);
            self.emit(name, Derivative::Operand(id), reads, vec![gradient]);
            self.give(value, gradient, written);
        }
    }

    fn columns(&self, value: ValueId) -> u32 {
        self.plan.values[value.index()].columns
    }

    /// Adds a multiple of a gradient to an operand's summands.
    fn give_scaled(&mut self, value: ValueId, gradient: GradientId, written: ValueId, scale: f64) {
        if scale == 1.0 {
            return self.give(value, gradient, written);
        }
        self.give_columns(value, gradient, written, scale, 0..self.columns(value));
    }

    /// Adds a multiple of some columns of a gradient to an operand's summands.
    fn give_columns(
        &mut self,
        value: ValueId,
        gradient: GradientId,
        written: ValueId,
        scale: f64,
        columns: std::ops::Range<u32>,
    ) {
        if self.needed[value.index()] {
            let names = [written, value].map(|value| &self.plan.values[value.index()].name);
            let name = format!("{}/scale {}'", names[0], names[1]);
            let scaled = self.gradient(name.clone(), value);
            self.emit(name, Derivative::Scale(scale, columns), vec![gradient], vec![scaled]);
            self.give(value, scaled, written);
        }
    }

    /// Adds a gradient to the summands of an operand of the operation that wrote `written`. If the
    /// operand is replicated but the result is rank-local, all-reduces the gradient first.
    fn give(&mut self, value: ValueId, gradient: GradientId, written: ValueId) {
        if !self.needed[value.index()] {
            return;
        }
        let placement = |value: ValueId| self.plan.values[value.index()].placement;
        let apart =
            placement(value) == Placement::Replicated && placement(written) != Placement::Replicated;
        let gradient = if self.tp > 1 && apart {
            let names = [written, value].map(|value| &self.plan.values[value.index()].name);
            let name = format!("{}/all_reduce {}'", names[0], names[1]);
            let sum = self.gradient(name.clone(), value);
            self.emit(name, Derivative::AllReduce, vec![gradient], vec![sum]);
            sum
        } else {
            gradient
        };
        self.found[value.index()].push(gradient);
    }
}
