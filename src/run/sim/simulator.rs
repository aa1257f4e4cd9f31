//! The one way to simulate a cell: a [`Simulator`] finds a cell's model, machine and plans, and caches them for the
//! next cell; the [`SimulatedCell`] runs or predicts.

use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};

use super::cell::SimulatedCell;
use super::link::{collective, link_problem};
use crate::backend::{AutoFit, HOST, PlanBackend, default_spec};
use crate::bounded_cache::BoundedCache;
use crate::{Feasibility, GridContext};
use base::error::{Error, Result};
use machine::hardware::{MemoryNeed, PlanMemory, Profile, STACKS, Stack, Target};
use model::Model;
use plan::{DType, Lowering, ModelShape, Phase, Plan, PlanSpec, Precision};
use table::options::{OptionEntry, SET_PAIRS};
use table::{Backend, CellOptions, Collective, Link, Spec};

/// Hardware profile, stack and overrides.
type TargetKey = (String, String, BTreeMap<String, String>);

/// Simulator with its caches. It lives for one pass over a grid or one screen, so the next sees changed files. A full
/// cache is cleared, so memory does not grow with the grid.
#[derive(Debug, Default)]
pub struct Simulator {
    models: BoundedCache<String, Model>,
    targets: BoundedCache<TargetKey, Target>,
    /// A large model's plans take about a megabyte.
    plans: BoundedCache<String, CellPlans, 64>,
    /// Memory of plans; smaller than plans, so more entries are kept.
    memory: BoundedCache<String, PlanMemory>,
}

/// Plans of a cell, one of each for every pipeline stage; shared by cells that differ in batch, tokens or link.
#[derive(Debug)]
pub struct CellPlans {
    pub prefill: Vec<Plan>,
    /// Plans of every decode step; costs depend on the step.
    pub decode: Vec<Plan>,
    /// Lazy, because predictions do not need them.
    hashes: OnceLock<Vec<String>>,
    memory: OnceLock<PlanMemory>,
}

impl Simulator {
    /// Cached [`Model::resolve`]; errors are not cached.
    pub fn model(&self, name_or_dir: &str) -> Result<Arc<Model>> {
        self.models.get(name_or_dir.to_owned(), || Model::resolve(name_or_dir))
    }

    /// Cached hardware profile and stack with overrides. Returns an input error for an unknown profile, stack or
    /// override.
    pub fn target(
        &self,
        hardware: &str,
        stack: &str,
        set: &BTreeMap<String, String>,
    ) -> Result<Arc<Target>> {
        self.targets.get((hardware.to_owned(), stack.to_owned(), set.clone()), || {
            if set.is_empty() {
                return Ok(Target { profile: Profile::load(hardware)?, stack: Stack::load(stack)? });
            }
            self.target(hardware, stack, &BTreeMap::new())?.with(set)
        })
    }

    /// Cell with the model, hardware, stack and overrides that it names.
    ///
    /// # Errors
    ///
    /// Returns an input error if one of them is unknown, TP does not divide the model, or the link has no latency at
    /// the cell's TP.
    pub fn cell<'a>(&self, spec: &'a Spec) -> Result<SimulatedCell<'a>> {
        let model = self.model(&spec.model)?;
        self.cell_on(spec, &model.shape, self.target(&spec.hardware, &spec.stack, &spec.set)?)
    }

    /// Cell with another model shape and target than its spec names. Fails like [`Self::cell`].
    pub fn cell_on<'a>(
        &self,
        spec: &'a Spec,
        shape: &ModelShape,
        target: Arc<Target>,
    ) -> Result<SimulatedCell<'a>> {
        if let Some(problem) = link_problem(spec, &target) {
            return Err(Error::input(problem));
        }
        let plans = self.plans(spec, &plan_spec(spec, shape, &target))?;
        Ok(SimulatedCell { spec, shape: shape.clone(), target, plans })
    }

    /// Memory need of one rank, cached longer than the plans. Returns an input error if TP does not divide the model.
    pub fn memory(&self, spec: &Spec, shape: &ModelShape, target: &Target) -> Result<MemoryNeed> {
        let plan = plan_spec(spec, shape, target);
        let of_plans = || Ok(self.plans(spec, &plan)?.memory(shape, plan.precision).clone());
        let memory = self.memory.get(format!("{plan:?}"), of_plans)?;
        Ok(need(spec, shape, plan.precision, &memory, target).0)
    }

    /// Builds both plans in parallel, or finds them.
    fn plans(&self, spec: &Spec, decode: &PlanSpec) -> Result<Arc<CellPlans>> {
        self.plans.get(format!("{decode:?}"), || {
            let plan = |phase| {
                Plan::stages(&PlanSpec { phase, ..decode.clone() })
                    .map_err(|error| Error::input(format!("{}: {error}", spec.label())))
            };
            let (prefill, decode) = rayon::join(|| plan(Phase::Prefill), || plan(Phase::Decode));
            let (hashes, memory) = (OnceLock::new(), OnceLock::new());
            Ok(CellPlans { prefill: prefill?, decode: decode?, hashes, memory })
        })
    }
}

/// Formats of a simulated cell. Checkpoints that engines load leave the head in 16 bits.
pub(super) fn precision(spec: &Spec, target: &Target) -> Precision {
    let precision = Precision::gpu(spec.dtype).with_kv(spec.kv_dtype);
    match target.stack.engine {
        Some(_) => Precision { head: precision.activations, ..precision },
        None => precision,
    }
}

/// Memory of one rank, and the tokens that the KV cache holds if the cell serves requests.
pub(super) fn need(
    spec: &Spec,
    shape: &ModelShape,
    precision: Precision,
    memory: &PlanMemory,
    target: &Target,
) -> (MemoryNeed, f64) {
    match target.stack.serving.as_ref().filter(|_| spec.concurrency > 0) {
        Some(serving) => {
            let capacity = target.profile.memory_bytes;
            MemoryNeed::of_serving(spec, shape, precision, memory, serving, capacity)
        }
        None => (MemoryNeed::of_plans(spec, shape, precision, memory), f64::INFINITY),
    }
}

/// Input of a cell's plans, and their cache key. The batch matters only if it is divided into micro-batches.
fn plan_spec(spec: &Spec, shape: &ModelShape, target: &Target) -> PlanSpec {
    let precision = precision(spec, target);
    let plan = spec.plan(shape, Phase::Decode, precision, lowering(spec, target));
    let batch = if plan.variant.micro_batches > 1 { plan.batch } else { 1 };
    PlanSpec { batch, ..plan }
}

/// Lowering of a cell's plans: the stack's, with fused all-reduces if the cell asks for them and its link supports
/// them. Emulated links support every collective.
pub(super) fn lowering(spec: &Spec, target: &Target) -> Lowering {
    let is_fused = spec.collective == Collective::Fused
        && collective(spec, target).1.is_none_or(|used| used == Collective::Fused);
    let stack = target.stack.lowering();
    Lowering { fuse_all_reduce: is_fused, shard_head: stack.shard_head || spec.shard_head, ..stack }
}

impl CellPlans {
    /// Memory of the plans; shape and precision must be those they were built with.
    pub(super) fn memory(&self, shape: &ModelShape, precision: Precision) -> &PlanMemory {
        self.memory.get_or_init(|| PlanMemory::new(shape, precision, &self.prefill, &self.decode))
    }

    /// Plans of one phase, by pipeline stage.
    pub fn stages(&self, phase: Phase) -> &[Plan] {
        if phase == Phase::Prefill { &self.prefill } else { &self.decode }
    }

    /// Hashes of prefill and decode plan, for each pipeline stage. The first call takes one or two milliseconds for a large model.
    pub(super) fn hashes(&self) -> &[String] {
        self.hashes.get_or_init(|| {
            // not Rayon's join: a waiting worker may pick up a cell that waits for these hashes
            std::thread::scope(|scope| {
                let all = |plans: &[Plan]| plans.iter().map(Plan::hash).collect::<Vec<_>>();
                let decode = scope.spawn(move || all(&self.decode));
                let prefill = all(&self.prefill);
                let decode = decode.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
                prefill.into_iter().zip(decode).flat_map(|(prefill, decode)| [prefill, decode]).collect()
            })
        })
    }
}

/// Discrete-event simulation on a hardware profile and a software stack.
#[derive(Debug)]
pub struct SimBackend;

impl PlanBackend for SimBackend {
    fn name(&self) -> Backend {
        Backend::Sim
    }

    fn title(&self) -> String {
        "the simulator".into()
    }

    fn available(&self) -> std::result::Result<String, String> {
        Ok("always available; results are predictions".into())
    }

    fn defaults(&self, model: &Model) -> Spec {
        let default = default_spec(model);
        // packed weights are only simulated as they are stored
        let dtype = model.dtype.unwrap_or(default.dtype);
        Spec { dtype, hardware: "h100_sxm".into(), samples: 1, warmup: 0, ..default }
    }

    fn formats(&self) -> &'static [DType] {
        &DType::ALL
    }

    fn asked_for(&self, options: &CellOptions) -> Vec<&'static str> {
        // an emulated link from a profile needs the profile on every backend
        let from_profile = matches!(options.link, Some(Link::P2pOn | Link::P2pOff));
        let hardware = options.hardware.as_deref().is_some_and(|h| h != HOST) && !from_profile;
        // options equal to their defaults do not select the simulator
        let asked = |option: &&OptionEntry| match option.name {
            "hardware" => hardware,
            _ => {
                let mut spec = Spec::default();
                option.apply(options, &mut spec);
                !option.is_default(&spec)
            }
        };
        let own = options.given().filter(|option| option.about.used_by == [self.name()]);
        let set = (!options.set.is_empty()).then_some("set");
        set.into_iter().chain(own.filter(asked).map(|option| option.name)).collect()
    }

    fn complete(&self, options: &CellOptions, shared: &GridContext, spec: &mut Spec) -> Result<()> {
        if spec.hardware == HOST {
            return Err(Error::input_help(
                "hardware 'host': the simulator needs a hardware profile",
                "set hardware, for example h100_sxm (`ladderscope hardware` lists profiles)",
            ));
        }
        spec.set = SET_PAIRS.read(&options.set)?;
        let target = shared.simulator.target(&spec.hardware, &spec.stack, &spec.set)?;
        if spec.concurrency > 0 {
            serving_problem(options, spec, &target).map_or(Ok(()), Err)?;
            spec.batch = spec.concurrency;
        }
        Ok(())
    }

    fn auto_fit(&self, _: &CellOptions, _: &Model, _: &GridContext) -> Result<AutoFit> {
        Ok(Ok(String::new()))
    }

    fn feasibility(&self, spec: &Spec, shape: &ModelShape, shared: &GridContext) -> Result<Feasibility> {
        let target = shared.simulator.target(&spec.hardware, &spec.stack, &spec.set)?;
        if let Some(problem) = link_problem(spec, &target) {
            return Ok(Feasibility::Skipped(problem));
        }
        let (need, capacity) = (self.memory(spec, shape, shared), target.profile.memory_bytes);
        Ok(match need.fits(capacity) {
            true => Feasibility::Runs,
            false => Feasibility::Oom(format!(
                "a rank needs {}; {} has {:.1} GB",
                need.arithmetic(),
                spec.hardware,
                capacity as f64 / 1e9
            )),
        })
    }

    fn memory(&self, spec: &Spec, shape: &ModelShape, shared: &GridContext) -> MemoryNeed {
        let target = shared.simulator.target(&spec.hardware, &spec.stack, &spec.set);
        let need = target.and_then(|target| shared.simulator.memory(spec, shape, &target));
        need.unwrap_or_default()
    }
}

/// Most requests in flight; the simulation of a closed loop grows with their square.
const MOST_REQUESTS: u32 = 4096;

fn serving_problem(options: &CellOptions, spec: &Spec, target: &Target) -> Option<Error> {
    let concurrency = spec.concurrency;
    if target.stack.serving.is_none() {
        let serving = STACKS.iter().filter(|name| Stack::load(name).is_ok_and(|s| s.serving.is_some()));
        let serving: Vec<&str> = serving.copied().collect();
        return Some(Error::input_help(
            format!(
                "concurrency {concurrency}: stack {} decodes static batches only",
                target.stack.name
            ),
            format!("set stack to one with a scheduler: {}", serving.join(", ")),
        ));
    }
    if spec.pp > 1 {
        return Some(Error::input(format!(
            "concurrency {concurrency} with pp {}: pipelines decode static batches only",
            spec.pp
        )));
    }
    if concurrency > MOST_REQUESTS {
        return Some(Error::input(format!(
            "concurrency is {concurrency}; it must be at most {MOST_REQUESTS}"
        )));
    }
    let batch = options.batch.filter(|batch| *batch != 1 && *batch != concurrency)?;
    Some(Error::input_help(
        format!("batch {batch} contradicts concurrency {concurrency}"),
        "set only one: batch for a static batch, concurrency for requests in flight",
    ))
}
