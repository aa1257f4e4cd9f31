//! Latency of each operation of a plan, updated from step to step.
//!
//! Times are whole nanoseconds, so sums are exact. Operations of the same kind and size are costed once (about twenty
//! per plan), and between decode steps only those that depend on the context are costed again.

use super::cost::{CostClass, CostModel, NS_PER_US, OperationCost, ns};
use machine::hardware::CostSource;
use plan::{Plan, Step};

/// Simulated time (us) by cost source, in the order of [`CostSource::ALL`].
pub(super) type TimeBySource = [f64; CostSource::ALL.len()];

/// For each operation with experts, its index and the time of each rank over the busiest's mean in several draws.
pub(super) type ExpertShares = Vec<(usize, Vec<Vec<f64>>)>;

#[derive(Debug)]
pub(super) struct Durations<'a> {
    model: CostModel<'a>,
    classes: Vec<CostClass>,
    /// Cost of each class.
    costs: Vec<OperationCost>,
    /// Class of each operation.
    class_of: Vec<u32>,
    growing: Growing,
    /// Duration of each operation, alone on the machine (ns).
    pub(super) ns: Vec<i64>,
    /// Time of the host before each operation (ns): see [`CostModel::host_ns`].
    pub(super) host: Vec<i64>,
    /// Contention of each operation: see [`CostModel::contention`].
    pub(super) contention: Vec<f64>,
    /// Share of its rate that a collective loses while compute runs.
    pub(super) comm_loss: f64,
}

/// Classes and operations whose cost depends on the context.
#[derive(Debug, Default)]
struct Growing {
    classes: Vec<u32>,
    operations: Vec<u32>,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct ContendedDurations<'a> {
    pub(super) ns: &'a [i64],
    pub(super) contention: &'a [f64],
    pub(super) comm_loss: f64,
}

impl<'a> Durations<'a> {
    pub(super) fn new(model: CostModel<'a>, plan: &Plan, step: &Step) -> Self {
        let mut classes: Vec<CostClass> = Vec::new();
        let class_of = plan.operations.iter().map(|operation| {
            let class = model.class(plan, operation);
            let at = classes.iter().position(|known| *known == class).unwrap_or_else(|| {
                classes.push(class);
                classes.len() - 1
            });
            at as u32
        });
        let class_of: Vec<u32> = class_of.collect();
        let growing = (0_u32..).zip(&classes).filter(|(_, class)| model.depends_on_context(class));
        let growing: Vec<u32> = growing.map(|(index, _)| index).collect();
        let operations = (0_u32..).zip(&class_of).filter(|(_, class)| growing.contains(class));
        let mut durations = Self {
            ns: vec![0; class_of.len()],
            host: vec![0; class_of.len()],
            contention: vec![0.0; class_of.len()],
            comm_loss: model.collective_loss(),
            growing: Growing { operations: operations.map(|(at, _)| at).collect(), classes: growing },
            model,
            classes,
            costs: Vec::new(),
            class_of,
        };
        durations.set_step(step);
        durations
    }

    pub(super) fn loads(&self) -> ContendedDurations<'_> {
        ContendedDurations { ns: &self.ns, contention: &self.contention, comm_loss: self.comm_loss }
    }

    /// Updates to another step of the same plan.
    pub(super) fn set_step(&mut self, step: &Step) {
        let model = &self.model;
        self.costs = self.classes.iter().map(|class| model.operation_cost(class, step)).collect();
        let costed = || self.classes.iter().zip(&self.costs);
        let host: Vec<i64> = costed().map(|(class, cost)| model.host_ns(class, cost, step)).collect();
        let contention: Vec<f64> =
            costed().map(|(class, cost)| model.contention(class, cost, step)).collect();
        for (operation, &class) in self.class_of.iter().enumerate() {
            let class = class as usize;
            self.ns[operation] = ns(self.costs[class].us);
            self.host[operation] = host[class];
            self.contention[operation] = contention[class];
        }
    }

    /// Updates to a step that differs only in its context; returns true if any cost changed.
    pub(super) fn grow(&mut self, step: &Step) -> bool {
        let mut changed = false;
        for &class in &self.growing.classes {
            let class = class as usize;
            let cost = self.model.operation_cost(&self.classes[class], step);
            changed |= cost != self.costs[class];
            self.costs[class] = cost;
        }
        if changed {
            for &operation in &self.growing.operations {
                let operation = operation as usize;
                let class = self.class_of[operation] as usize;
                let cost = &self.costs[class];
                self.ns[operation] = ns(cost.us);
                self.contention[operation] = self.model.contention(&self.classes[class], cost, step);
            }
        }
        changed
    }

    pub(super) fn is_growing(&self) -> bool {
        !self.growing.classes.is_empty()
    }

    /// Operations with experts, with the shares of [`CostModel::expert_shares`].
    pub(super) fn expert_shares(&self, step: &Step) -> ExpertShares {
        let by_class: Vec<Vec<Vec<f64>>> =
            self.classes.iter().map(|class| self.model.expert_shares(class, step)).collect();
        let operations = self.class_of.iter().enumerate();
        let shares = operations.map(|(at, class)| (at, by_class[*class as usize].clone()));
        shares.filter(|(_, shares)| !shares.is_empty()).collect()
    }

    /// Time of all operations; the host's counts as calibrated.
    pub(super) fn by_source(&self) -> TimeBySource {
        let mut us = TimeBySource::default();
        for &class in &self.class_of {
            let cost = &self.costs[class as usize];
            us[cost.source as usize] += cost.us;
        }
        us[CostSource::Calibrated as usize] +=
            self.host.iter().map(|&ns| ns as f64 / NS_PER_US).sum::<f64>();
        us
    }
}

#[cfg(test)]
impl Durations<'_> {
    pub(super) fn given(ns: &[i64]) -> Self {
        Self::contending(ns, &vec![0.0; ns.len()], 0.0)
    }

    pub(super) fn contending(ns: &[i64], contention: &[f64], comm_loss: f64) -> Self {
        use super::testing::{shape_tiny, spec};
        use machine::hardware::{CollectiveCost, Target};
        use std::sync::LazyLock;
        static TARGET: LazyLock<Target> =
            LazyLock::new(|| Target::from_spec(&spec("standard", "tiny")).unwrap());
        let model = CostModel::new(
            &TARGET,
            CollectiveCost::Formula { alpha_us: 0.0, gb_s: 1.0 },
            &spec("standard", "tiny"),
            &shape_tiny(),
            plan::Phase::Decode,
        );
        Self {
            model,
            classes: Vec::new(),
            costs: Vec::new(),
            class_of: Vec::new(),
            growing: Growing::default(),
            ns: ns.to_vec(),
            host: vec![0; ns.len()],
            contention: contention.to_vec(),
            comm_loss,
        }
    }
}
