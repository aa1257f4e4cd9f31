//! Compiled training plan: shared parameters, and the last read of each buffer.

use plan::{
    Derivative, Element, GradientId, Kind, ModelShape, Tensor, TrainingPlan, ValueId, Weight, WeightId,
};

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) enum TrainingSlot {
    Value(ValueId),
    Keys(u32),
    Gradient(GradientId),
}

#[derive(Debug)]
pub(super) struct TrainingProgram {
    pub plan: TrainingPlan,
    pub shape: ModelShape,
    pub tp: u32,
    /// Parameter of each weight of the plan; tied embedding and head share one.
    pub parameter: Vec<usize>,
    pub parameters: Vec<WeightId>,
    /// Slots with their last read in each step: forward operations, the loss, backward operations.
    pub last: Vec<Vec<TrainingSlot>>,
}

impl TrainingProgram {
    pub fn new(plan: TrainingPlan, shape: &ModelShape) -> Self {
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

    pub fn weight(&self, parameter: usize) -> &Weight {
        &self.plan.plan.weights[self.parameters[parameter].index()]
    }

    /// Numbers in a row of a value; a choice has two, the expert's number and its weight.
    pub fn numbers_per_row(&self, value: ValueId) -> usize {
        let value = &self.plan.plan.values[value.index()];
        let each = if value.element == Element::Choice { 2 } else { 1 };
        each * value.columns as usize
    }

    pub fn is_trained(&self, parameter: usize) -> bool {
        self.plan.trained[self.parameters[parameter].index()]
    }

    pub fn is_summed(&self, parameter: usize) -> bool {
        self.plan.summed.iter().any(|weight| self.parameter[weight.index()] == parameter)
    }

    /// True if weight decay applies: to matrices, not to norms and biases.
    pub fn decays(&self, parameter: usize) -> bool {
        let parts = &self.weight(parameter).parts;
        parts.iter().all(|part| {
            let (rows, columns) = part.tensor.dimensions(&self.shape);
            rows > 1 && columns > 1 && !matches!(part.tensor, Tensor::QueryNorm(_) | Tensor::KeyNorm(_))
        })
    }

    pub fn state_names(&self, rank: usize, parameter: usize) -> [String; 3] {
        let name = &self.weight(parameter).name;
        ["numbers", "first", "second"].map(|what| format!("rank{rank}/{name}/{what}"))
    }

    /// FLOP of matrix products per position on all ranks, for windows of this length: forward and head, and backward
    /// if `learns`.
    pub fn flop_per_token(&self, length: usize, learns: bool) -> f64 {
        let TrainingPlan { plan, forward, backward, head, seed, trained, .. } = &self.plan;
        let operation = |id: plan::OpId| &plan.operations[id.index()];
        // share of the experts that a token chooses
        let chosen = self
            .shape
            .experts
            .map_or(0.0, |experts| f64::from(experts.top_k) / f64::from(experts.count));
        let product = |o: &plan::Operation| {
            let share = match o.kind {
                Kind::MatMul | Kind::Router => 1.0,
                Kind::Experts => chosen,
                _ => return 0.0,
            };
            let numbers = |weight: WeightId| {
                let weight = &plan.weights[weight.index()];
                f64::from(weight.outputs) * f64::from(weight.inputs)
            };
            2.0 * share * o.weights().map(numbers).sum::<f64>()
        };
        // one product of attention: a rank's query heads with half of the positions
        let attended = |o: &plan::Operation| match o.kind {
            Kind::Attend => f64::from(plan.values[o.writes[0].index()].columns) * (length as f64 + 1.0),
            _ => 0.0,
        };
        let forwards = plan.operations[..*forward].iter();
        let forwards: f64 = forwards.map(|o| product(o) + 2.0 * attended(o)).sum();
        let backwards = backward.iter().map(|step| match step.does {
            Derivative::Operand(id) => product(operation(id)) + 5.0 * attended(operation(id)),
            Derivative::Weight(id) => product(operation(id)),
            Derivative::Scale(..) | Derivative::Sum | Derivative::AllReduce => 0.0,
        });
        let backwards: f64 = if learns { backwards.sum() } else { 0.0 };
        let of_head = &plan.weights[head.index()];
        let of_head = 2.0 * f64::from(of_head.outputs) * f64::from(of_head.inputs);
        let products =
            1 + u32::from(learns && seed.is_some()) + u32::from(learns && trained[head.index()]);
        // every rank applies the whole head
        f64::from(self.tp) * (forwards + backwards + f64::from(products) * of_head)
    }

    pub fn numbers(&self, parameter: usize) -> usize {
        let weight = self.weight(parameter);
        weight.outputs as usize * weight.inputs as usize
    }
}

/// Forward values that a derivative reads in addition to its gradients.
fn again(plan: &TrainingPlan, does: &Derivative) -> Vec<TrainingSlot> {
    let (id, is_weight) = match *does {
        Derivative::Operand(id) => (id, false),
        Derivative::Weight(id) => (id, true),
        Derivative::Scale(..) | Derivative::Sum | Derivative::AllReduce => return Vec::new(),
    };
    let operation = &plan.plan.operations[id.index()];
    let operand = TrainingSlot::Value(operation.reads[0]);
    match operation.kind {
        Kind::MatMul if is_weight => vec![operand],
        Kind::Experts => operation.reads.iter().map(|value| TrainingSlot::Value(*value)).collect(),
        Kind::Router => vec![operand, TrainingSlot::Value(operation.writes[0])],
        Kind::Norm | Kind::SiluMul { .. } | Kind::NormRopeAppend => vec![operand],
        Kind::Attend => vec![operand, TrainingSlot::Keys(operation.layer.unwrap_or_default())],
        _ => Vec::new(),
    }
}

fn last_reads(plan: &TrainingPlan) -> Vec<Vec<TrainingSlot>> {
    let forward = plan.plan.operations[..plan.forward].iter().map(|operation| {
        let keys = operation.layer.map(TrainingSlot::Keys);
        let keys = keys.filter(|_| {
            matches!(
                operation.kind,
                Kind::Attend | Kind::RopeAppend | Kind::BiasRopeAppend | Kind::NormRopeAppend
            )
        });
        let values = operation.reads.iter().chain(&operation.writes);
        values.map(|value| TrainingSlot::Value(*value)).chain(keys).collect::<Vec<_>>()
    });
    let of_gradients =
        |ids: &[GradientId]| ids.iter().map(|id| TrainingSlot::Gradient(*id)).collect::<Vec<_>>();
    let mut loss = vec![TrainingSlot::Value(plan.normed)];
    loss.extend(plan.seed.map(TrainingSlot::Gradient));
    let backward = plan.backward.iter().map(|operation| {
        let mut slots = of_gradients(&operation.reads);
        slots.extend(of_gradients(&operation.writes));
        slots.extend(again(plan, &operation.does));
        slots
    });
    let steps: Vec<Vec<TrainingSlot>> = forward.chain([loss]).chain(backward).collect();
    let mut last = vec![Vec::new(); steps.len()];
    let mut seen = std::collections::HashSet::new();
    for (at, slots) in steps.iter().enumerate().rev() {
        last[at].extend(slots.iter().copied().filter(|slot| seen.insert(*slot)));
    }
    last
}
