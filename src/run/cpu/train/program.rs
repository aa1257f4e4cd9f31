//! A training plan made ready: which numbers its weights share, and when each buffer is read for the last time.

use crate::plan::{Derivative, GradientId, Kind, ModelShape, Tensor, TrainingPlan, Weight, WeightId};

/// A buffer of one pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) enum Slot {
    /// A value of the forward plan, by its index.
    Value(usize),
    /// Rotated keys and values of a layer, side by side.
    Keys(u32),
    /// A gradient, by its index.
    Gradient(usize),
}

/// A training plan, its parameters and the lifetimes of its buffers.
#[derive(Debug)]
pub(super) struct Program {
    pub plan: TrainingPlan,
    pub shape: ModelShape,
    pub tp: u32,
    /// Which parameter each weight of the plan is: tied embeddings and head are one.
    pub parameter: Vec<usize>,
    /// The weight that each parameter is loaded as.
    pub parameters: Vec<WeightId>,
    /// What is not read any more after each forward operation, the loss, and each backward operation.
    pub last: Vec<Vec<Slot>>,
}

impl Program {
    /// A plan made ready for a model of this shape.
    pub fn of(plan: TrainingPlan, shape: &ModelShape) -> Self {
        let is_tied = shape.tied_embeddings;
        let stored = |tensor| if is_tied && tensor == Tensor::Head { Tensor::Embedding } else { tensor };
        let mut parameters: Vec<WeightId> = Vec::new();
        let mut parameter = Vec::new();
        let tensors = |id: WeightId| -> Vec<Tensor> {
            plan.plan.weights[id.index()].parts.iter().map(|part| stored(part.tensor)).collect()
        };
        for id in (0..plan.plan.weights.len() as u32).map(WeightId) {
            let known = parameters.iter().position(|other| tensors(*other) == tensors(id));
            parameter.push(known.unwrap_or(parameters.len()));
            if known.is_none() {
                parameters.push(id);
            }
        }
        let last = last_reads(&plan);
        Self { shape: shape.clone(), tp: plan.plan.tp, parameter, parameters, last, plan }
    }

    /// The weight that a parameter is loaded as.
    pub fn weight(&self, parameter: usize) -> &Weight {
        &self.plan.plan.weights[self.parameters[parameter].index()]
    }

    /// Whether a parameter is trained.
    pub fn is_trained(&self, parameter: usize) -> bool {
        self.plan.trained[self.parameters[parameter].index()]
    }

    /// Whether each rank has a summand of a parameter's gradient.
    pub fn is_summed(&self, parameter: usize) -> bool {
        self.plan.summed.iter().any(|weight| self.parameter[weight.index()] == parameter)
    }

    /// Whether a parameter grows smaller by itself (weight decay): matrices do, norms and biases do not.
    pub fn decays(&self, parameter: usize) -> bool {
        let parts = &self.weight(parameter).parts;
        parts.iter().all(|part| {
            let (rows, columns) = part.tensor.dimensions(&self.shape);
            rows > 1 && columns > 1 && !matches!(part.tensor, Tensor::QueryNorm(_) | Tensor::KeyNorm(_))
        })
    }

    /// How many numbers one rank has of a parameter.
    pub fn numbers(&self, parameter: usize) -> usize {
        let weight = self.weight(parameter);
        weight.outputs as usize * weight.inputs as usize
    }
}

/// What a step of the pass reads beside what its operation says: values that the derivative needs again.
fn again(plan: &TrainingPlan, does: Derivative) -> Vec<Slot> {
    let (id, is_weight) = match does {
        Derivative::Operand(id) => (id, false),
        Derivative::Weight(id) => (id, true),
        Derivative::Scale(_) | Derivative::Sum | Derivative::AllReduce => return Vec::new(),
    };
    let operation = &plan.plan.operations[id.index()];
    let operand = Slot::Value(operation.reads[0].index());
    match operation.kind {
        Kind::MatMul if is_weight => vec![operand],
        Kind::Norm | Kind::SiluMul { .. } | Kind::NormRopeAppend => vec![operand],
        Kind::Attend => vec![operand, Slot::Keys(operation.layer.unwrap_or_default())],
        _ => Vec::new(),
    }
}

/// After which step each slot is not read any more.
fn last_reads(plan: &TrainingPlan) -> Vec<Vec<Slot>> {
    let forward = plan.plan.operations[..plan.forward].iter().map(|operation| {
        let keys = operation.layer.map(Slot::Keys);
        let keys = keys.filter(|_| {
            matches!(
                operation.kind,
                Kind::Attend | Kind::RopeAppend | Kind::BiasRopeAppend | Kind::NormRopeAppend
            )
        });
        let values = operation.reads.iter().chain(&operation.writes);
        values.map(|value| Slot::Value(value.index())).chain(keys).collect::<Vec<_>>()
    });
    let of_gradients =
        |ids: &[GradientId]| ids.iter().map(|id| Slot::Gradient(id.index())).collect::<Vec<_>>();
    let mut loss = vec![Slot::Value(plan.normed.index())];
    loss.extend(plan.seed.map(|seed| Slot::Gradient(seed.index())));
    let backward = plan.backward.iter().map(|operation| {
        let mut slots = of_gradients(&operation.reads);
        slots.extend(of_gradients(&operation.writes));
        slots.extend(again(plan, operation.does));
        slots
    });
    let steps: Vec<Vec<Slot>> = forward.chain([loss]).chain(backward).collect();
    let mut last = vec![Vec::new(); steps.len()];
    let mut seen = std::collections::HashSet::new();
    for (at, slots) in steps.iter().enumerate().rev() {
        last[at].extend(slots.iter().copied().filter(|slot| seen.insert(*slot)));
    }
    last
}
