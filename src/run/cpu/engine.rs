//! Starts each rank's threads, runs the same body on each rank, and stops all of them when one fails.

use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError};

use crossbeam_channel::unbounded;

use super::attention::{AttentionScratch, KvCache, RopeTable};
use super::kernels::CpuKernels;
use super::placement::CorePlacement;
use super::program::{CpuProgram, CpuWeights};
use super::rank::{BoundProgram, CommLane, Rank};
use super::team::Team;
use crate::comm::{EmulatedLink, Pipe, RankFailure, RankGroup};
use crate::generate::Sampling;
use crate::recorder::{MonotonicClock, SpanRecorder, name_thread, precise_sleep};
use base::error::{Error, Result, catch_panic};
use model::{Model, WeightSource};
use plan::{
    Architecture, DType, Lane, Lowering, ModelShape, Phase, Plan, PlanSpec, Precision, Variant,
    stage_layers,
};

#[derive(Debug)]
pub(super) struct CpuSetup<'a> {
    pub model: &'a Model,
    pub architecture: &'a Architecture,
    pub dtype: DType,
    pub tp: u32,
    /// Pipeline stages, each of `tp` ranks.
    pub pp: u32,
    pub threads: u32,
    /// True if each rank holds its share of the head's vocabulary rows.
    pub shard_head: bool,
    pub seed: u64,
    pub link: Option<EmulatedLink>,
    pub sampling: Sampling,
    pub sequences: usize,
    /// KV cache capacity in tokens per sequence.
    pub capacity: usize,
    pub all_logits: bool,
    pub variant: Variant,
    /// Plan options of prefill, which is not divided if prompts are processed one by one.
    pub prefill_variant: Variant,
}

impl<'a> CpuSetup<'a> {
    /// One thread a rank, greedy, one sequence, no emulated link, no plan options.
    pub fn new(
        model: &'a Model,
        architecture: &'a Architecture,
        (dtype, tp, seed): (DType, u32, u64),
        capacity: usize,
    ) -> Self {
        Self {
            model,
            architecture,
            dtype,
            tp,
            pp: 1,
            threads: 1,
            shard_head: false,
            seed,
            link: None,
            sampling: Sampling::Greedy,
            sequences: 1,
            capacity,
            all_logits: false,
            variant: Variant::default(),
            prefill_variant: Variant::default(),
        }
    }
}

pub(super) struct Worker<'a> {
    pub rank: Rank,
    pub prefill: BoundProgram<'a>,
    pub decode: BoundProgram<'a>,
    pub weights: CpuWeights,
}

/// Weights of all ranks, each loaded on first use; several groups of ranks may share them.
#[derive(Debug)]
pub(super) struct Loaded<'a> {
    source: WeightSource,
    shape: ModelShape,
    plans: Vec<&'a Plan>,
    dtype: DType,
    whole: CpuWeights,
    of_rank: Vec<Mutex<Option<CpuWeights>>>,
    rope: Arc<RopeTable>,
}

impl<'a> Loaded<'a> {
    pub fn open(setup: &CpuSetup<'_>, plans: Vec<&'a Plan>) -> Result<Self> {
        let source = WeightSource::open(setup.model, setup.seed)?;
        Ok(Self {
            whole: CpuWeights::shared(&source, setup.model, &plans, setup.dtype)?,
            of_rank: (0..setup.tp).map(|_| Mutex::default()).collect(),
            rope: Arc::new(RopeTable::new(&setup.model.shape, setup.capacity)),
            shape: setup.model.shape.clone(),
            dtype: setup.dtype,
            plans,
            source,
        })
    }

    /// Returns one rank's weights; concurrent callers wait while they are loaded.
    pub fn rank(&self, index: u32) -> Result<CpuWeights> {
        let mut there = self.of_rank[index as usize].lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(weights) = &*there {
            return Ok(weights.clone());
        }
        let whole = self.whole.clone();
        let weights = whole.with_rank(&self.source, &self.shape, &self.plans, index, self.dtype)?;
        *there = Some(weights.clone());
        Ok(weights)
    }
}

/// Programs and communication of one pipeline stage.
#[derive(Debug)]
pub(super) struct Stage {
    pub prefill: CpuProgram,
    pub decode: CpuProgram,
    pub group: Arc<RankGroup>,
    pub layers: Range<u32>,
    /// To the next stage, of the last to the first; empty without stages.
    to_next: Vec<Arc<Pipe>>,
}

#[derive(Debug)]
pub(super) struct StageContext {
    pub stages: Vec<Stage>,
    pub clock: MonotonicClock,
    pub placement: CorePlacement,
}

impl StageContext {
    /// Weights of each stage.
    pub fn weights(&self, setup: &CpuSetup<'_>) -> Result<Vec<Loaded<'_>>> {
        self.stages.iter().map(|stage| Loaded::open(setup, vec![&stage.decode.plan])).collect()
    }

    /// Makes all waiting ranks return with this reason.
    fn abort(&self, why: &str) {
        for stage in &self.stages {
            stage.group.abort(why);
            stage.to_next.iter().for_each(|pipe| pipe.abort(why));
        }
    }
}

pub(super) fn prepare(setup: &CpuSetup<'_>) -> Result<StageContext> {
    let clock = MonotonicClock::start();
    let plans = |phase, all_logits| {
        let spec = PlanSpec {
            shape: setup.model.shape.clone(),
            architecture: setup.architecture.clone(),
            tp: setup.tp,
            phase,
            precision: Precision::cpu(setup.dtype),
            lowering: Lowering { all_logits, shard_head: setup.shard_head, ..Lowering::default() },
            variant: if phase == Phase::Prefill { setup.prefill_variant } else { setup.variant },
            batch: setup.sequences as u32,
            pp: setup.pp,
        };
        Plan::stages(&spec).map_err(|problem| Error::input(problem.to_string()))
    };
    let placement = CorePlacement::for_this_process((setup.tp * setup.pp) as usize, setup.threads);
    let mut base = 0;
    let mut program = |plan: Plan| {
        let program = CpuProgram::new(plan, base);
        base += program.plan.operations.len() as u32;
        program
    };
    let plans = plans(Phase::Prefill, setup.all_logits)?.into_iter().zip(plans(Phase::Decode, false)?);
    let layers = stage_layers(setup.model.shape.layers, setup.pp);
    let stages = plans.zip(layers).zip(0..).map(|(((prefill, decode), layers), stage)| {
        let pipe = |_| Arc::new(Pipe::new(setup.link.clone(), (stage, setup.pp), clock));
        Stage {
            prefill: program(prefill),
            decode: program(decode),
            group: Arc::new(RankGroup::new(
                setup.tp as usize,
                setup.link.clone(),
                placement.spin_wait(),
                clock,
            )),
            layers,
            to_next: (0..setup.tp).filter(|_| setup.pp > 1).map(pipe).collect(),
        }
    });
    Ok(StageContext { stages: stages.collect(), clock, placement })
}

/// Runs `body` on every rank's compute thread and `main` on this thread; returns results in rank order. `main` must
/// return once its channel closes, when the ranks have ended. Other groups of ranks may use the stages' weights
/// concurrently.
pub(super) fn run_ranks<T: Send, E: Send>(
    setup: &CpuSetup<'_>,
    shared: &StageContext,
    loaded: &[Loaded<'_>],
    body: impl Fn(&mut Worker<'_>, &crossbeam_channel::Sender<E>) -> Result<T, RankFailure> + Sync,
    abort: &(dyn Fn(&str) + Sync),
    main: impl FnOnce(crossbeam_channel::Receiver<E>) -> Result<()>,
) -> Result<Vec<T>> {
    let (events, received) = unbounded();
    let body = &body;
    // a rank that fails must not leave the others waiting
    let stop = &|error: &Error| {
        shared.abort(&error.to_string());
        abort(&error.to_string());
    };
    std::thread::scope(|scope| {
        let ranks: Vec<_> = (0..setup.tp * setup.pp)
            .map(|global| {
                let events = events.clone();
                let compute = move || -> Result<T> {
                    name_thread(&format!("rank {global} compute"));
                    shared.placement.pin_this_thread(global, 0);
                    precise_sleep();
                    let mut worker = worker(setup, shared, loaded, global)?;
                    body(&mut worker, &events).map_err(|broken| Error::failed(broken.to_string()))
                };
                let guarded = move || {
                    let result = catch_panic(compute).unwrap_or_else(|text| {
                        Err(Error::failed(format!("rank {global} panicked: {text}")))
                    });
                    result.inspect_err(stop)
                };
                std::thread::Builder::new()
                    .name(format!("rank{global}"))
                    .spawn_scoped(scope, guarded)
                    .map_err(|e| Error::failed(format!("cannot start a thread: {e}")))
            })
            .collect::<Result<_>>()
            .inspect_err(stop)?;
        drop(events);
        let main = catch_panic(|| main(received))
            .unwrap_or_else(|text| Err(Error::failed(format!("bookkeeping panicked: {text}"))))
            .inspect_err(stop);
        let results: Result<Vec<T>> = ranks
            .into_iter()
            .map(|rank| rank.join().unwrap_or_else(|_| Err(Error::failed("a rank panicked"))))
            .collect();
        main.and(results)
    })
}

/// Rank `global` of all stages with its other threads, weights and buffers; called on the rank's own thread.
fn worker<'a>(
    setup: &CpuSetup<'_>,
    shared: &'a StageContext,
    loaded: &[Loaded<'_>],
    global: u32,
) -> Result<Worker<'a>> {
    let (at, index) = ((global / setup.tp) as usize, global % setup.tp);
    let stage = &shared.stages[at];
    let before = &shared.stages[(at + shared.stages.len() - 1) % shared.stages.len()];
    let team = Team::start(global, setup.threads, &shared.placement)?;
    let weights = loaded[at].rank(index)?;
    let (shape, layers) = (&setup.model.shape, stage.layers.len());
    Ok(Worker {
        rank: Rank {
            index,
            global,
            tp: setup.tp,
            first_layer: stage.layers.start as usize,
            shape: shape.clone(),
            kernels: CpuKernels::with(team),
            attention: AttentionScratch::default(),
            cache: KvCache::from_shape(shape, setup.tp, layers, setup.sequences, setup.capacity),
            rope: Arc::clone(&loaded[at].rope),
            sampling: setup.sampling,
            clock: shared.clock,
            compute: SpanRecorder::new(global, Lane::Compute),
            comm: CommLane::new((index, global), Arc::clone(&stage.group)),
            from_previous: before.to_next.get(index as usize).cloned(),
            to_next: stage.to_next.get(index as usize).cloned(),
            not_finite: 0,
        },
        prefill: BoundProgram::new(&stage.prefill, weights.of_plan(&stage.prefill.plan)?),
        decode: BoundProgram::new(&stage.decode, weights.of_plan(&stage.decode.plan)?),
        weights,
    })
}
