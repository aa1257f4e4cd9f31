//! Gradients: what a plan computes, backwards, so that any architecture can be trained from its plan.
//!
//! A [`TrainingPlan`] is a forward plan of all positions and the operations that follow from it, from the last to the
//! first. A gradient is a value like others: it is replicated, sharded or divergent as what it is the gradient of. Of a
//! replicated value there is one for all ranks; where a rank's own part of the model read it, each rank has a summand,
//! and an all-reduce follows at once, on the comm lane: the gradient of an all-reduce before a module is one behind it
//! (Shoeybi et al., 2019, f and g of section 3). Of partial and divergent values each rank has its own. Where a later
//! module does not wait for an output forwards, the module that made it does not wait for the later one's gradient
//! backwards: what hides communication in decoding hides it in training.
//!
//! An addition has no operation of its own: the gradient of a sum is that of its summands.

use super::{
    Architecture, DType, Kind, Lane, Lowering, ModelShape, Module, OpId, Phase, Placement, Plan,
    PlanError, PlanSpec, Precision, Rows, Tensor, ValueId, Variant, WeightId,
};

/// Index of a gradient in [`TrainingPlan::gradients`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct GradientId(pub u32);

impl GradientId {
    /// The gradient's index in [`TrainingPlan::gradients`], to index slices by.
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

/// The gradient of a value, written by one operation: a row a position, as wide as the value.
#[derive(Clone, Debug, PartialEq)]
pub struct Gradient {
    /// What it is the gradient of, and by which operation: `L3/mlp/down'`.
    pub name: String,
    /// What the ranks hold of it.
    pub placement: Placement,
    /// How many columns one rank holds.
    pub columns: u32,
}

/// What a backward operation does.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Derivative {
    /// From the gradient of what a forward operation wrote, that of its operand. Of [`Kind::Attend`] two: that of the
    /// queries, and that of the layer's keys and values, side by side. The rotation reads both and gives that
    /// of the columns of q, k and v; others are 0, as are those that [`Kind::SiluMul`] does not read.
    Operand(OpId),
    /// Adds to the gradient of a forward operation's weight.
    Weight(OpId),
    /// A multiple.
    Scale(f64),
    /// The sum of what it reads, all of one value.
    Sum,
    /// The sum over ranks.
    AllReduce,
}

/// One operation of the backward pass, on one lane, the same on every rank.
#[derive(Clone, Debug, PartialEq)]
pub struct BackwardOperation {
    /// A name that no other operation of the pass has.
    pub name: String,
    /// What it does.
    pub does: Derivative,
    /// The lane on which it executes, in the order of the plan.
    pub lane: Lane,
    /// Gradients that it reads.
    pub reads: Vec<GradientId>,
    /// Gradients that it writes.
    pub writes: Vec<GradientId>,
}

/// A forward pass over all positions of windows, its loss, and the backward pass.
#[derive(Clone, Debug)]
pub struct TrainingPlan {
    /// The forward plan. What follows [`TrainingPlan::forward`] belongs to generation and is not executed.
    pub plan: Plan,
    /// How many of the plan's operations are executed forwards.
    pub forward: usize,
    /// What the loss is computed from: `[rows, hidden]`, the final norm's.
    pub normed: ValueId,
    /// The head, with which the loss makes logits.
    pub head: WeightId,
    /// Gradients of values.
    pub gradients: Vec<Gradient>,
    /// The one that the loss writes, of [`TrainingPlan::normed`]; `None` where nothing before the head is trained.
    pub seed: Option<GradientId>,
    /// The backward pass; an operation reads only what the loss and operations before it wrote.
    pub backward: Vec<BackwardOperation>,
    /// For each weight of the plan, whether it is trained.
    pub trained: Vec<bool>,
    /// Weights that all ranks have whole and of whose gradient each has a summand.
    pub summed: Vec<WeightId>,
}

impl TrainingPlan {
    /// The plan of training an architecture, in f32; `trains` says which tensors change.
    ///
    /// # Errors
    ///
    /// [`PlanError`] as for any plan; [`PlanError::Shape`] also for `upper-bound` on several ranks, whose numbers are
    /// wrong on purpose.
    pub fn new(
        shape: &ModelShape,
        architecture: &Architecture,
        tp: u32,
        trains: &dyn Fn(Tensor) -> bool,
    ) -> Result<Self, PlanError> {
        if tp > 1 && *architecture == Architecture::UpperBound {
            return Err(PlanError::Shape(
                "upper-bound cannot be trained: without all-reduces its numbers are wrong on purpose"
                    .into(),
            ));
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
        })?;
        let key_columns = 2 * shape.kv_heads / tp * shape.head_dim;
        // a head that is the embedding changes with it
        let is_embedding = |tensor| shape.tied_embeddings && tensor == Tensor::Head;
        Self::of(plan, key_columns, &|tensor| {
            trains(if is_embedding(tensor) { Tensor::Embedding } else { tensor })
        })
    }

    /// The backward pass of a forward plan that selects late; keys and values have so many columns on a rank.
    fn of(plan: Plan, key_columns: u32, trains: &dyn Fn(Tensor) -> bool) -> Result<Self, PlanError> {
        let missing = || PlanError::Shape("the plan has no positions to train on, or no head".into());
        let forward =
            plan.operations.iter().rposition(|o| o.kind == Kind::SelectLast).ok_or_else(missing)?;
        let head = |o: &&super::Operation| o.kind == Kind::MatMul && o.module == Module::Head;
        let head = plan.operations.iter().find(head).and_then(|o| o.weight).ok_or_else(missing)?;
        let trained: Vec<bool> =
            plan.weights.iter().map(|w| w.parts.iter().any(|part| trains(part.tensor))).collect();
        let normed = plan.operations[forward].reads[0];
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

/// For each value whether a trained weight matters to it.
fn needed(plan: &Plan, forward: usize, trained: &[bool]) -> Vec<bool> {
    let mut needed = vec![false; plan.values.len()];
    for operation in &plan.operations[..forward] {
        let weight = operation.weight.is_some_and(|weight| trained[weight.index()]);
        let is_needed = weight || operation.reads.iter().any(|value| needed[value.index()]);
        for value in &operation.writes {
            needed[value.index()] = is_needed;
        }
    }
    needed
}

/// A backward pass that is being written.
struct Pass<'a> {
    plan: &'a Plan,
    tp: u32,
    /// How many columns keys and values of a layer have on a rank, side by side.
    key_columns: u32,
    gradients: Vec<Gradient>,
    operations: Vec<BackwardOperation>,
    /// Summands of each value's gradient.
    found: Vec<Vec<GradientId>>,
    /// For rotated queries the gradient of their layer's keys and values.
    keys: Vec<Option<GradientId>>,
    needed: Vec<bool>,
    summed: Vec<WeightId>,
}

impl Pass<'_> {
    /// What follows from one forward operation: gradients of its operands, and of its weight.
    fn step_back(&mut self, id: OpId, trained: &[bool]) {
        let operation = &self.plan.operations[id.index()];
        let written = operation.writes[0];
        let Some(gradient) = self.whole(written) else { return };
        let (name, reads) = (&operation.name, &operation.reads);
        // behind a rotation are queries, and beside them keys and values
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
            Kind::Join { root } => {
                self.give(reads[0], gradient, written);
                let scale = if root { f64::from(self.tp).sqrt() } else { 1.0 };
                self.give_scaled(reads[1], gradient, written, scale);
                if let [_, _, sum, part] = reads[..] {
                    self.give(sum, gradient, written);
                    self.give_scaled(part, gradient, written, -1.0);
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
            Kind::Embed => {}
            _ => self.operand(id, behind, written),
        }
        if let Some(weight) = operation.weight.filter(|weight| trained[weight.index()]) {
            let name = format!("{name}/weight'");
            self.emit(name, Derivative::Weight(id), of_weight, Vec::new());
            let is_whole = self.plan.weights[weight.index()].is_whole();
            let one = self.plan.values[written.index()].placement == Placement::Replicated;
            if self.tp > 1 && is_whole && !one && !self.summed.contains(&weight) {
                self.summed.push(weight);
            }
        }
    }

    /// The gradient of a value from all its summands; `None` where nobody has one, or needs it.
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

    /// A new gradient of a value.
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

    /// The gradient of an operation's only operand, by an operation of its own.
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

    /// A multiple of a gradient as summand of an operand's.
    fn give_scaled(&mut self, value: ValueId, gradient: GradientId, written: ValueId, scale: f64) {
        if scale == 1.0 {
            return self.give(value, gradient, written);
        }
        if self.needed[value.index()] {
            let names = [written, value].map(|value| &self.plan.values[value.index()].name);
            let name = format!("{}/scale {}'", names[0], names[1]);
            let scaled = self.gradient(name.clone(), value);
            self.emit(name, Derivative::Scale(scale), vec![gradient], vec![scaled]);
            self.give(value, scaled, written);
        }
    }

    /// A gradient as summand of that of an operand of what wrote `written`: of a replicated operand of which ranks made
    /// something of their own, the sum over ranks.
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
