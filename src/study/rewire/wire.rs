//! Measured step in another wiring: the plan of an architecture with the times of the trace.
//!
//! Dependencies come from the plan, as for every backend ([`Architecture::wiring`] through [`Plan::new`]). A
//! module takes as long as in the trace: the operation that first reads the residual carries all of its
//! kernels, the others take no time. Operations without a kernel in the trace (a second addition, the mean of
//! `desync`) take as long as the kernels that add a sum to the residual and normalize it, which read and
//! write at least as much.

use std::collections::HashSet;

use super::steps::{ExpertLayout, LayerCollectives, MoeLayerPart, RecordedStep, RecordedSteps};
use super::stretch::Stretch;
use base::error::{Error, Result};
use base::statistics::median;
use plan::{
    Architecture, AttentionShape, DType, ExpertActivation, ExpertShape, HeadStep, Kind, Lane, Lowering,
    ModelShape, Module, Operation, Phase, Plan, PlanSpec, Precision, Rope, RouterScore, Routing,
    Variant,
};
use run::sim::MeasuredOperations;

#[derive(Clone, Debug, PartialEq)]
pub(super) struct WiringOptions {
    pub architecture: Architecture,
    /// True if one operation reduces, adds to the residual and normalizes.
    pub fused: bool,
    pub micro_batches: u32,
    /// Time of a micro-batch's kernels and all-reduces relative to the whole batch: 1 if they take as long
    /// (each reads all weights), 1 / micro_batches if they scale.
    pub share: f64,
    /// Time of a module's kernels relative to the trace, with another TP.
    pub kernels: f64,
}

impl WiringOptions {
    pub fn plain(architecture: Architecture) -> Self {
        Self { architecture, fused: false, micro_batches: 1, share: 1.0, kernels: 1.0 }
    }
}

/// Slowdown of both lanes while both are busy.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct ContentionLosses {
    /// Share of its speed that compute loses to the trace's all-reduce.
    pub compute: f64,
    /// Share of its speed that an all-reduce loses to compute.
    pub comm: f64,
}

/// Plan of a wiring for the layers of a trace, with placeholder model widths: no time depends on them. Layers with
/// exchanges have data-parallel attention, and whole experts on every rank.
///
/// # Errors
///
/// Returns an error if the architecture names layers that the model lacks, or the trace has none of the
/// all-reduces that it changes.
fn plan(steps: &RecordedSteps, wired: &WiringOptions) -> Result<Plan> {
    let tp = steps.ranks.max(2);
    let exchanges = steps.ends == LayerCollectives::Exchanges;
    let mixture = match exchanges {
        true => {
            Some(ExpertLayout { dense_first: 0, every: 1, has_shared: steps.has_work_beside_dispatch() })
        }
        // other wirings treat a layer with experts like a dense one
        false => steps.mixture.filter(|_| matches!(wired.architecture, Architecture::FarSkip(_))),
    };
    let experts = |mixture: ExpertLayout| ExpertShape {
        count: tp,
        top_k: 1,
        width: 8 * tp,
        shared_width: if mixture.has_shared { 8 * tp } else { 0 },
        dense_first: mixture.dense_first,
        every: mixture.every,
        routing: Routing::plain(RouterScore::Softmax, false),
        activation: ExpertActivation::default(),
        biased: false,
    };
    let shape = ModelShape {
        layers: steps.layers,
        hidden: 8 * tp,
        heads: tp,
        kv_heads: tp,
        head_dim: 8,
        qkv: HeadStep::Plain,
        intermediate: 8 * tp,
        vocab: 8 * tp,
        rope: Rope::plain(1e4),
        norm_eps: 1e-5,
        tied_embeddings: false,
        attention: AttentionShape::default(),
        experts: mixture.map(experts),
    };
    if exchanges && wired.architecture.changes_only_sums(steps.layers) {
        return Err(Error::input_help(
            format!(
                "{} changes all-reduces, and this trace has none: its experts exchange tokens",
                wired.architecture
            ),
            "ladder, farskip, parallel, stale:S and upper-bound change exchanges too",
        ));
    }
    let ranks = |exchanging| if exchanging == exchanges { tp } else { 1 };
    let spec = PlanSpec {
        shape,
        architecture: wired.architecture.clone(),
        tp: ranks(false),
        // micro-batches of a prompt wait for each other's caches, those of sequences do not
        phase: Phase::Decode,
        precision: Precision::uniform(DType::Bf16),
        lowering: Lowering { fuse_add_norm: true, fuse_all_reduce: wired.fused, ..Lowering::default() },
        variant: Variant {
            micro_batches: wired.micro_batches,
            ep: ranks(true),
            dp: ranks(true),
            ..Variant::default()
        },
        batch: wired.micro_batches,
        pp: 1,
    };
    if wired.architecture.wiring(steps.layers).divides_head() {
        return Err(Error::input_help(
            format!("{}: its messages are smaller than those in the trace", wired.architecture),
            "simulate it: ladderscope whatif --architecture partial:0.5",
        ));
    }
    Plan::new(&spec).map_err(|error| Error::input(format!("{}: {error}", wired.architecture)))
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Source {
    Lead,
    /// All kernels of a module, or of a part of a layer with exchanges; with `block`, also those of the module
    /// before it.
    Module {
        at: usize,
        block: bool,
        joins: bool,
    },
    /// Kernels of a module before its routed experts.
    Unrouted {
        at: usize,
        joins: bool,
    },
    /// Kernels of a module from its routed experts on.
    Routed(usize),
    Head {
        joins: bool,
    },
    /// Operation without a counterpart in the trace.
    Extra,
    /// Collective of a module, or one beyond the layers.
    Reduce(Option<usize>),
    Nothing,
}

/// Plan of a wiring, and for each operation the part of the trace that gives its time.
pub(super) struct AssignedPlan {
    pub plan: Plan,
    wired: WiringOptions,
    sources: Vec<Source>,
}

/// Index of a module in [`super::steps::RecordedStep::reduces`].
fn place(module: Module, layer: Option<u32>) -> Option<usize> {
    let first = 2 * layer? as usize;
    match module {
        Module::Attn => Some(first),
        Module::Mlp | Module::Moe | Module::Block => Some(first + 1),
        _ => None,
    }
}

/// Part of a layer with exchanges that gives an operation its time; `carries` is true for the operation that
/// represents its module. Additions take no time of their own: each belongs to the kernels before the next norm.
fn source_of_part(plan: &Plan, at: usize, carries: bool, joins: bool) -> Source {
    let operation = &plan.operations[at];
    let Some(layer) = operation.layer else { return Source::Nothing };
    let is_shared = |operation: &Operation| operation.name.contains("/shared_");
    let part = |part: MoeLayerPart, joins| Source::Module { at: part.index(layer), block: false, joins };
    match (operation.module, &operation.kind) {
        (_, Kind::Dispatch) => Source::Reduce(Some(2 * layer as usize)),
        (_, Kind::Combine) => Source::Reduce(Some(2 * layer as usize + 1)),
        (_, Kind::Experts) => part(MoeLayerPart::Experts, true),
        (Module::Moe, _) if carries => part(MoeLayerPart::Router, joins),
        (_, _) if carries => part(MoeLayerPart::Attention, joins),
        // attention and experts share a norm
        (Module::Block, Kind::Router) => part(MoeLayerPart::Router, false),
        (Module::Block, Kind::Add) if operation.name.ends_with("sum") => Source::Extra,
        _ if is_shared(operation)
            && !plan.operations[..at]
                .iter()
                .rev()
                .take_while(|other| other.layer == operation.layer)
                .any(|other| is_shared(other) && same_part(other, operation)) =>
        {
            part(MoeLayerPart::Beside, true)
        }
        _ => Source::Nothing,
    }
}

impl AssignedPlan {
    /// Returns an error if the architecture names layers that the model lacks, or changes all-reduces of a trace
    /// that has none.
    pub fn new(steps: &RecordedSteps, wired: WiringOptions) -> Result<Self> {
        let plan = plan(steps, &wired)?;
        // shared experts join attention's sum, and the routed ones end in an all-reduce of their own
        let split: HashSet<u32> = plan
            .operations
            .iter()
            .filter(|operation| operation.name.ends_with("/routed_all_reduce"))
            .filter_map(|operation| operation.layer)
            .collect();
        // the limit of fused all-reduces lacks the norms that they do
        let is_bare = wired.fused && wired.architecture.is_limit();
        let norms = |o: &Operation| matches!(o.kind, Kind::Norm | Kind::AddNorm | Kind::JoinNorm { .. });
        let mut sources: Vec<Source> = Vec::with_capacity(plan.operations.len());
        for (at, operation) in plan.operations.iter().enumerate() {
            let is_first = |is_it: &dyn Fn(&Operation) -> bool| {
                is_it(operation)
                    && !plan.operations[..at]
                        .iter()
                        .rev()
                        .any(|other| same_part(other, operation) && is_it(other))
            };
            // the norm carries the module's time; if an all-reduce does the norm, the first product does
            let has_norm =
                plan.operations.iter().any(|other| same_part(other, operation) && norms(other));
            let carries = match has_norm {
                true => is_first(&norms),
                false => is_first(&|o: &Operation| o.kind == Kind::MatMul),
            };
            let joins = |at: usize| has_norm && (at == 0 || !is_bare);
            sources.push(match (operation.module, &operation.kind) {
                (Module::Attn | Module::Moe | Module::Block, _)
                    if steps.ends == LayerCollectives::Exchanges =>
                {
                    source_of_part(&plan, at, carries, has_norm)
                }
                (_, kind) if kind.is_collective() => {
                    Source::Reduce(place(operation.module, operation.layer))
                }
                (Module::Moe, kind) if operation.layer.is_some_and(|layer| split.contains(&layer)) => {
                    match place(operation.module, operation.layer) {
                        Some(at) if *kind == Kind::Experts => Source::Routed(at),
                        Some(at) if carries => Source::Unrouted { at, joins: joins(at) },
                        _ => Source::Nothing,
                    }
                }
                (Module::Embed, _) if operation.kind == Kind::Embed => Source::Lead,
                (Module::Head, _) if carries => Source::Head { joins: has_norm && !is_bare },
                (module, _) if carries => match place(module, operation.layer) {
                    Some(at) => Source::Module { at, block: module == Module::Block, joins: joins(at) },
                    None => Source::Nothing,
                },
                (_, Kind::Add | Kind::AddMean | Kind::Join { .. } | Kind::MeanShare | Kind::Narrow) => {
                    Source::Extra
                }
                _ => Source::Nothing,
            });
        }
        Ok(Self { plan, wired, sources })
    }

    /// Times of the plan's operations for a step. `transfers` are the latencies of the step's all-reduces
    /// (ns); with `host`, kernels wait for their launches as measured.
    pub fn times(
        &self,
        step: &RecordedStep,
        transfers: &[i64],
        losses: ContentionLosses,
        host: bool,
    ) -> MeasuredOperations {
        let share = if self.wired.micro_batches > 1 { self.wired.share } else { 1.0 };
        let of_share = |ns: i64| (ns as f64 * share).round() as i64;
        let usual = middle(transfers.iter().copied());
        let operations = &self.plan.operations;
        let is_last_group = |operation: &Operation| operation.group + 1 == self.plan.groups.count;
        let (mut work, mut floors) = (Vec::new(), Vec::new());
        for rank in &step.ranks {
            let leads = || rank.modules.iter().filter(|module| module.lead_kernels > 0);
            let join = middle(leads().map(|module| module.lead / i64::from(module.lead_kernels)));
            let module =
                |at: usize| rank.modules.get(at).map(|own| own.with_kernels(self.wired.kernels));
            let stretch_of = |source: &Source| -> Stretch {
                match *source {
                    Source::Lead => rank.lead,
                    Source::Module { at, block, joins } => {
                        let own = module(at).unwrap_or_default();
                        let first = at.checked_sub(1).and_then(module);
                        let whole = match first.filter(|_| block) {
                            Some(first) => first.then(own),
                            None => own,
                        };
                        if joins { whole } else { whole.without_lead() }
                    }
                    Source::Unrouted { at, joins } => {
                        let own = module(at).unwrap_or_default().before_experts();
                        if joins { own } else { own.without_lead() }
                    }
                    Source::Routed(at) => module(at).unwrap_or_default().experts(),
                    Source::Head { joins: true } => rank.head,
                    Source::Head { joins: false } => rank.head.without_lead(),
                    Source::Extra => Stretch { work: join, ..Stretch::default() },
                    Source::Reduce(_) | Source::Nothing => Stretch::default(),
                }
            };
            let taken: Vec<Stretch> = self.sources.iter().map(stretch_of).collect();
            work.push(taken.iter().map(|stretch| of_share(stretch.work)).collect());
            let floor = |(stretch, operation): (&Stretch, &Operation)| {
                stretch.floor.filter(|_| is_last_group(operation)).unwrap_or(i64::MIN)
            };
            floors.push(match host {
                true => taken.iter().zip(operations).map(floor).collect(),
                false => Vec::new(),
            });
        }
        let transfer = |source: &Source| match source {
            Source::Reduce(place) => {
                of_share(place.and_then(|at| transfers.get(at)).copied().unwrap_or(usual))
            }
            _ => 0,
        };
        let contention = |operation: &Operation| match operation.lane {
            Lane::Compute if operation.kind.is_collective() => 1.0,
            Lane::Compute => losses.compute,
            Lane::Comm => 1.0,
        };
        MeasuredOperations {
            begin: step.ranks.iter().map(|rank| rank.begin).collect(),
            work,
            floors,
            transfer: self.sources.iter().map(transfer).collect(),
            contention: operations.iter().map(contention).collect(),
            comm_loss: losses.comm,
        }
    }
}

/// True if two operations belong to the same module of the same micro-batch.
fn same_part(a: &Operation, b: &Operation) -> bool {
    (a.module, a.layer, a.group) == (b.module, b.layer, b.group) && !a.kind.is_collective()
}

/// Median of times (ns); 0 if empty.
pub(super) fn middle(times: impl Iterator<Item = i64>) -> i64 {
    let times: Vec<f64> = times.map(|ns| ns as f64).collect();
    median(&times).map_or(0, |ns| ns.round() as i64)
}

impl Stretch {
    /// Scales the kernels that TP shards; the leading ones work on the whole residual.
    fn with_kernels(self, times: f64) -> Self {
        let change = ((self.work - self.lead) as f64 * (times - 1.0)).round() as i64;
        let routed = (self.routed as f64 * times).round() as i64;
        let before = change - (routed - self.routed);
        Self {
            work: self.work + change,
            floor: self.floor.map(|floor| floor + change),
            unrouted_floor: self.unrouted_floor.map(|floor| floor + before),
            routed,
            ..self
        }
    }

    /// Part before the routed experts.
    fn before_experts(self) -> Self {
        Self { work: self.work - self.routed, floor: self.unrouted_floor, routed: 0, ..self }
    }

    /// Routed experts and the rest of the module.
    fn experts(self) -> Self {
        Self { work: self.routed, routed: self.routed, lead: 0, lead_kernels: 0, ..self }
    }

    /// Removes the leading part, for an all-reduce that adds to the residual and normalizes itself.
    fn without_lead(self) -> Self {
        Self {
            work: self.work - self.lead,
            floor: self.floor.map(|floor| floor - self.lead),
            lead: 0,
            lead_kernels: 0,
            ..self
        }
    }
}
