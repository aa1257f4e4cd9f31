//! Starts each rank's threads, runs the same body on each rank, and stops all of them when one fails.

use std::sync::{Arc, Mutex, PoisonError};

use crossbeam_channel::unbounded;

use super::attention::{Attention, Heads, KvCache, RopeTable};
use super::kernels::Kernels;
use super::program::{Program, Weights};
use super::rank::{Bound, CommLane, Rank};
use super::team::{Placement, Team};
use crate::comm::{Broken, EmulatedLink, Group};
use crate::recorder::{Clock, SpanRecorder, name_thread, precise_sleep};
use crate::sample::Sampling;
use base::error::{Error, Result};
use base::panic::caught;
use model::{Model, WeightSource};
use plan::{Architecture, DType, Lane, Lowering, Phase, Plan, PlanSpec, Precision, Variant};

#[derive(Debug)]
pub(super) struct Setup<'a> {
    pub model: &'a Model,
    pub architecture: &'a Architecture,
    pub dtype: DType,
    pub tp: u32,
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

impl<'a> Setup<'a> {
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
    pub prefill: Bound<'a>,
    pub decode: Bound<'a>,
    pub weights: Weights,
    pub weight_bytes: u64,
}

/// Weights of all ranks, each loaded on first use; several groups of ranks may share them.
#[derive(Debug)]
pub(super) struct Loaded<'a> {
    source: WeightSource,
    plans: Vec<&'a Plan>,
    dtype: DType,
    whole: Weights,
    of_rank: Vec<Mutex<Option<Weights>>>,
    rope: Arc<RopeTable>,
}

impl<'a> Loaded<'a> {
    pub fn open(setup: &Setup<'_>, plans: Vec<&'a Plan>) -> Result<Self> {
        let source = WeightSource::open(setup.model, setup.seed)?;
        Ok(Self {
            whole: Weights::shared(&source, setup.model, &plans, setup.dtype)?,
            of_rank: (0..setup.tp).map(|_| Mutex::default()).collect(),
            rope: Arc::new(RopeTable::new(&setup.model.shape, setup.capacity)),
            dtype: setup.dtype,
            plans,
            source,
        })
    }

    /// Returns one rank's weights; concurrent callers wait while they are loaded.
    pub fn rank(&self, index: u32) -> Result<Weights> {
        let mut there = self.of_rank[index as usize].lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(weights) = &*there {
            return Ok(weights.clone());
        }
        let weights = self.whole.clone().with_rank(&self.source, &self.plans, index, self.dtype)?;
        *there = Some(weights.clone());
        Ok(weights)
    }
}

#[derive(Debug)]
pub(super) struct Shared {
    pub prefill: Program,
    pub decode: Program,
    pub group: Arc<Group>,
    pub clock: Clock,
    pub placement: Placement,
}

pub(super) fn prepare(setup: &Setup<'_>) -> Result<Shared> {
    let clock = Clock::start();
    let program = |phase, all_logits, base| {
        let spec = PlanSpec {
            shape: setup.model.shape.clone(),
            architecture: setup.architecture.clone(),
            tp: setup.tp,
            phase,
            precision: Precision::cpu(setup.dtype),
            lowering: Lowering { all_logits, shard_head: setup.shard_head, ..Lowering::default() },
            variant: if phase == Phase::Prefill { setup.prefill_variant } else { setup.variant },
            batch: setup.sequences as u32,
        };
        Program::new(&spec, base)
    };
    let prefill = program(Phase::Prefill, setup.all_logits, 0)?;
    let decode = program(Phase::Decode, false, prefill.plan.operations.len() as u32)?;
    let placement = Placement::here(setup.tp as usize, setup.threads);
    let group =
        Arc::new(Group::new(setup.tp as usize, setup.link.clone(), placement.spin_wait(), clock));
    Ok(Shared { prefill, decode, group, clock, placement })
}

/// Runs `body` on every rank's compute thread and `main` on this thread; returns results in rank order. `main` must
/// return once its channel closes, when the ranks have ended.
pub(super) fn run_ranks<T: Send, E: Send>(
    setup: &Setup<'_>,
    shared: &Shared,
    body: impl Fn(&mut Worker<'_>, &crossbeam_channel::Sender<E>) -> Result<T, Broken> + Sync,
    abort: &(dyn Fn(&str) + Sync),
    main: impl FnOnce(crossbeam_channel::Receiver<E>) -> Result<()>,
) -> Result<Vec<T>> {
    let loaded = Loaded::open(setup, vec![&shared.decode.plan])?;
    run_ranks_with(setup, shared, &loaded, body, abort, main)
}

/// Like [`run_ranks`], with weights that other groups of ranks may use concurrently.
pub(super) fn run_ranks_with<T: Send, E: Send>(
    setup: &Setup<'_>,
    shared: &Shared,
    loaded: &Loaded<'_>,
    body: impl Fn(&mut Worker<'_>, &crossbeam_channel::Sender<E>) -> Result<T, Broken> + Sync,
    abort: &(dyn Fn(&str) + Sync),
    main: impl FnOnce(crossbeam_channel::Receiver<E>) -> Result<()>,
) -> Result<Vec<T>> {
    let (events, received) = unbounded();
    let body = &body;
    std::thread::scope(|scope| {
        let ranks: Vec<_> = (0..setup.tp)
            .map(|index| {
                let events = events.clone();
                let compute = move || -> Result<T> {
                    name_thread(&format!("rank {index} compute"));
                    shared.placement.compute(index, 0);
                    precise_sleep();
                    let team = Team::start(index, setup.threads, &shared.placement)?;
                    let weights = loaded.rank(index)?;
                    let shape = &setup.model.shape;
                    let heads = Heads::of(shape, setup.tp);
                    let layers = shape.layers as usize;
                    let mut worker = Worker {
                        rank: Rank {
                            index,
                            tp: setup.tp,
                            shape: shape.clone(),
                            kernels: Kernels::with(team),
                            attention: Attention::default(),
                            cache: KvCache::new(heads, layers, setup.sequences, setup.capacity),
                            rope: Arc::clone(&loaded.rope),
                            sampling: setup.sampling,
                            clock: shared.clock,
                            compute: SpanRecorder::new(index, Lane::Compute),
                            comm: CommLane::new(index, Arc::clone(&shared.group)),
                            not_finite: 0,
                        },
                        prefill: Bound::new(&shared.prefill, weights.of_plan(&shared.prefill.plan)?),
                        decode: Bound::new(&shared.decode, weights.of_plan(&shared.decode.plan)?),
                        weight_bytes: weights.bytes(),
                        weights,
                    };
                    body(&mut worker, &events).map_err(|broken| Error::failed(broken.to_string()))
                };
                let guarded = move || {
                    // a rank that fails or panics must not leave the others waiting
                    let result = caught(compute).unwrap_or_else(|text| {
                        Err(Error::failed(format!("rank {index} panicked: {text}")))
                    });
                    if let Err(error) = &result {
                        shared.group.abort(error.to_string());
                        abort(&error.to_string());
                    }
                    result
                };
                std::thread::Builder::new()
                    .name(format!("rank{index}"))
                    .spawn_scoped(scope, guarded)
                    .map_err(|e| Error::failed(format!("cannot start a thread: {e}")))
            })
            .collect::<Result<_>>()
            .inspect_err(|error| shared.group.abort(error.to_string()))?;
        drop(events);
        // a panic on this thread must not leave the ranks waiting either
        let main = caught(|| main(received))
            .unwrap_or_else(|text| Err(Error::failed(format!("bookkeeping panicked: {text}"))));
        if let Err(error) = &main {
            shared.group.abort(error.to_string());
            abort(&error.to_string());
        }
        let results: Result<Vec<T>> = ranks
            .into_iter()
            .map(|rank| rank.join().unwrap_or_else(|_| Err(Error::failed("a rank panicked"))))
            .collect();
        main.and(results)
    })
}
