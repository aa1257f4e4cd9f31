//! Quality evaluation: each window is one prefill with all rows at once.
//!
//! Windows are independent, so as many groups of ranks as there are cores work concurrently on the same weights. The
//! common prefix of several plans is executed once; its live values are kept and each plan continues from there
//! ([`Branch`]). A rank keeps the final norm's output of a few architectures per window; the logits are computed from
//! it in slices ([`super::loss`]), with the positions divided over the ranks of a group.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::ops::Range;
use std::slice::from_ref;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Mutex, OnceLock, PoisonError};

use crossbeam_channel::{Receiver, Sender, unbounded};

use super::attention::{RowRun, StepRows};
use super::backend::CpuBackend;
use super::engine::{self, CpuSetup, Loaded, Worker};
use super::loss::Loss;
use super::placement::CorePlacement;
use super::program::{CpuProgram, CpuWeights};
use super::rank::{BoundProgram, KeptValues};
use crate::comm::RankFailure;
use crate::generate::{
    Emit, EvaluateRequest, Evaluated, EvaluationWindow, WindowQuality, evaluation_plan,
};
use crate::recorder::StepPlace;
use crate::{Execute, PlanBackend};
use arithmetic::product::{InstructionSet, VARIABLE};
use base::error::{Error, Result};
use machine::environment::available_memory;
use plan::{Architecture, CommDType, DType, Kind, Plan, Precision, Tensor, Weight};

/// Architectures whose logits are computed together, in addition to the shared reference.
const ARCHITECTURES_PER_PASS: usize = 8;

/// One rank's share of a window's predicted tokens, for some of the wanted architectures.
struct WindowShare {
    window: usize,
    quality: Vec<(usize, WindowQuality)>,
}

/// Programs with a common prefix, and the values of the prefix that they read later.
struct Branch {
    programs: Vec<usize>,
    from: usize,
    kept: KeptValues,
}

/// Evaluates on this machine's cores and sends results to `emit` as they complete. Once `stop` returns true, running
/// architectures finish and no more start; that is not an error.
///
/// # Errors
///
/// Returns an input error for f16 weights, a TP that does not divide the model, `upper-bound`, or an invalid
/// checkpoint. Also returns an error if a rank's thread dies, and any error of `emit`.
pub fn evaluate(
    request: &EvaluateRequest,
    stop: &(dyn Fn() -> bool + Sync),
    emit: &mut Emit<'_>,
) -> Result<()> {
    request.check()?;
    super::CpuBackend.check_format(request.dtype)?;
    if InstructionSet::chosen() == InstructionSet::Avx512Bf16 && request.dtype == DType::Bf16 {
        return Err(Error::input_help(
            format!("{VARIABLE} is avx512_bf16, which rounds inputs; quality is not evaluated with it"),
            format!("unset {VARIABLE}"),
        ));
    }
    let context = request.context();
    if context == 0 {
        return Ok(());
    }
    let plans = DistinctPlans::from_request(request)?;
    let of_reference =
        request.reference.as_ref().map_or(0, |_| weight_bytes(&plans.plans[..1], request));
    let weights = weight_bytes(&plans.plans, request) + of_reference;
    let standard = Architecture::Standard;
    // logits are computed in slices of the whole head
    let how = (request.dtype, request.tp, request.seed);
    let setup_of = |model| CpuSetup::new(model, &standard, how, context);
    let setup = setup_of(&request.model);
    let given_up = AtomicBool::new(false);
    let stop = || given_up.load(Ordering::Relaxed) || stop();
    let mut work = EvaluationJob::new(request, plans, &stop);
    let kept = u64::from(request.tp) * work.kept_bytes();
    let groups = groups_that_fit(groups(request), weights, kept, available_memory())?;
    work.queue = Queue::new(groups, request.windows.len(), &stop);
    let first = engine::prepare(&setup)?;
    let read = work
        .programs
        .iter()
        .map(|program| &program.plan)
        .chain(first.stages.iter().map(|stage| &stage.decode.plan));
    let loaded = Loaded::open(&setup, read.collect())?;
    let reference = request.reference.as_ref();
    let reference = reference
        .map(|model| Loaded::open(&setup_of(model), vec![&work.programs[REFERENCE].plan]))
        .transpose()?;
    let (results, received) = unbounded();
    std::thread::scope(|scope| {
        let started: Vec<_> = (0..groups)
            .map(|group| {
                let (work, setup, results) = (&work, &setup, results.clone());
                let (loaded, given_up) = ((&loaded, reference.as_ref()), &given_up);
                scope.spawn(move || {
                    let ended = one_group(work, group, setup, loaded, &results);
                    if ended.is_err() {
                        given_up.store(true, Ordering::Relaxed);
                    }
                    ended
                })
            })
            .collect();
        drop(results);
        let mut emitted = Ok(());
        for result in received {
            if emitted.is_ok() {
                emitted = emit(result);
            }
            if emitted.is_err() {
                given_up.store(true, Ordering::Relaxed);
            }
        }
        let ended: Result<Vec<()>> = started
            .into_iter()
            .map(|group| {
                group.join().unwrap_or_else(|_| Err(Error::failed("a group of ranks panicked")))
            })
            .collect();
        emitted.and(ended.map(drop))
    })
}

/// Bytes of all ranks' weights that these plans read, each counted once.
fn weight_bytes(plans: &[Plan], request: &EvaluateRequest) -> u64 {
    let is_embedding =
        |weight: &Weight| request.model.shape.tied_embeddings && weight.parts[0].tensor == Tensor::Head;
    let precision = Precision::cpu(request.dtype);
    let mut seen = HashSet::new();
    let mut bytes = 0;
    for plan in plans {
        let weights = plan.weights.iter().filter(|weight| !is_embedding(weight));
        for weight in weights.filter(|weight| seen.insert(&weight.name)) {
            let ranks = if weight.is_whole() { 1 } else { plan.tp };
            bytes += u64::from(ranks) * precision.weight_bytes(weight, &request.model.shape);
        }
    }
    bytes
}

/// Number of groups that fit into memory next to the weights, at most `wanted`; each group keeps `kept` bytes of
/// shared prefixes. Unknown memory counts as enough. Returns an error if not even one group fits.
fn groups_that_fit(wanted: usize, weights: u64, kept: u64, available: Option<u64>) -> Result<usize> {
    let Some(available) = available else { return Ok(wanted) };
    let gb = |bytes: u64| bytes as f64 / 1e9;
    let Some(left) = available.checked_sub(weights) else {
        return Err(Error::input_help(
            format!(
                "the weights take {:.1} GB, and {:.1} GB of memory are available",
                gb(weights),
                gb(available)
            ),
            "use bf16 (half the memory of f32) or fewer architectures (parallel has its own weights)",
        ));
    };
    match left.checked_div(kept).map_or(wanted, |fit| wanted.min(fit as usize)) {
        0 if wanted > 0 => Err(Error::input_help(
            format!(
                "the weights take {:.1} GB, what architectures have in common on a window {:.1} GB, and {:.1} GB of memory are available",
                gb(weights),
                gb(kept),
                gb(available)
            ),
            "a shorter context or fewer architectures at a time keep less",
        )),
        groups => Ok(groups),
    }
}

fn groups(request: &EvaluateRequest) -> usize {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    (cores / request.tp.max(1) as usize).clamp(1, request.windows.len().max(1))
}

fn one_group(
    work: &EvaluationJob<'_>,
    group: usize,
    setup: &CpuSetup<'_>,
    (loaded, reference): (&Loaded<'_>, Option<&Loaded<'_>>),
    results: &Sender<Evaluated>,
) -> Result<()> {
    let mut shared = engine::prepare(setup)?;
    shared.placement = CorePlacement::unpinned();
    let body = |worker: &mut Worker<'_>, parts: &Sender<WindowShare>| {
        on_rank(worker, work, group, reference, parts)
    };
    let tp = setup.tp as usize;
    engine::run_ranks(
        setup,
        &shared,
        from_ref(loaded),
        body,
        &|_| (),
        |parts: Receiver<WindowShare>| {
            gather(tp, parts, results);
            Ok(())
        },
    )?;
    Ok(())
}

fn gather(ranks: usize, parts: Receiver<WindowShare>, results: &Sender<Evaluated>) {
    let mut open: HashMap<(usize, usize), (usize, WindowQuality)> = HashMap::new();
    for WindowShare { window, quality } in parts {
        for (architecture, quality) in quality {
            let (seen, sum) = open.entry((window, architecture)).or_default();
            *seen += 1;
            *sum += quality;
            if *seen == ranks {
                // the receiver is gone if the evaluation was aborted
                let _ = results.send(Evaluated { window, architecture, quality: *sum });
                open.remove(&(window, architecture));
            }
        }
    }
}

fn on_rank(
    worker: &mut Worker<'_>,
    work: &EvaluationJob<'_>,
    group: usize,
    reference: Option<&Loaded<'_>>,
    parts: &Sender<WindowShare>,
) -> Result<(), RankFailure> {
    let no_head = || RankFailure("no head was loaded".into());
    let head = worker.prefill.panels(Tensor::Head).ok_or_else(no_head)?;
    // weights and head of another reference model
    let other = reference.map(|loaded| -> Result<_, RankFailure> {
        let broken = |e: Error| RankFailure(e.to_string());
        let program = &work.programs[REFERENCE];
        let weights = loaded.rank(worker.rank.index).map_err(broken)?;
        let bound = BoundProgram::new(program, weights.of_plan(&program.plan).map_err(broken)?);
        Ok((bound.panels(Tensor::Head).ok_or_else(no_head)?, weights))
    });
    let (other, own) = (other.transpose()?, worker.weights.clone());
    let (mut loss, mut turn) = (Loss::default(), 0);
    while let Some(at) = work.queue.take(group, &mut turn) {
        let window = &work.request.windows[at];
        let predicted = window.tokens.len() - 1;
        let (rank, ranks) = (worker.rank.index as usize, worker.rank.tp as usize);
        let mine = predicted * rank / ranks..predicted * (rank + 1) / ranks;
        let following = &window.tokens[1..][mine.clone()];
        // the reference is computed first
        let mut programs = work.programs_of(window);
        let begun = |programs| Branch { programs, from: 0, kept: KeptValues::new() };
        let mut branches = match &other {
            None => vec![begun(programs)],
            // no prefix is shared with another model
            Some(_) => {
                let others = programs.split_off(1);
                let others = Some(others).filter(|others| !others.is_empty()).map(begun);
                others.into_iter().chain([begun(programs)]).collect()
            }
        };
        let mut reference = None;
        let mut others: Vec<(usize, Vec<f32>)> = Vec::new();
        while let Some(branch) = branches.pop() {
            if work.queue.goes_on(group, &mut turn) {
                let program = branch.programs[0];
                let theirs = other.as_ref().filter(|_| program == REFERENCE);
                let branch = (branch, theirs.map_or(&own, |(_, weights)| weights));
                let normed = forward(worker, work, branch, window, mine.clone(), &mut branches)?;
                match &reference {
                    None => reference = Some(normed),
                    Some(_) => others.push((program, normed)),
                }
            } else {
                // stopped: report only finished architectures
                branches.clear();
            }
            let Some(reference) = &reference else { return Ok(()) };
            if others.len() < ARCHITECTURES_PER_PASS && !branches.is_empty() {
                continue;
            }
            let beside: Vec<&[f32]> = others.iter().map(|(_, normed)| normed.as_slice()).collect();
            let heads = [other.as_ref().map_or(&head, |(head, _)| head), &head];
            let found = loss.of(&mut worker.rank.kernels, heads, reference, &beside, following);
            let quality_of = |wanted: &usize| {
                let program = work.program_of[*wanted];
                let at = match program {
                    REFERENCE if branches.is_empty() => 0,
                    _ => 1 + others.iter().position(|(other, _)| *other == program)?,
                };
                Some((*wanted, found[at]))
            };
            let quality = window.wanted.iter().filter_map(quality_of).collect();
            let _ = parts.send(WindowShare { window: at, quality });
            others.clear();
        }
    }
    Ok(())
}

/// Runs the rest of a branch's first program and returns the final norm's output at some positions of the window
/// ([`Plan::selected_from`]). Programs that diverge on the way become new branches.
fn forward(
    worker: &mut Worker<'_>,
    work: &EvaluationJob<'_>,
    (branch, weights): (Branch, &CpuWeights),
    window: &EvaluationWindow,
    positions: Range<usize>,
    branches: &mut Vec<Branch>,
) -> Result<Vec<f32>, RankFailure> {
    let program = &work.programs[branch.programs[0]];
    let plan = &program.plan;
    let weights = weights.of_plan(plan).map_err(|e| RankFailure(e.to_string()))?;
    // only one architecture's buffers exist at a time
    let mut bound = BoundProgram::new(program, weights);
    bound.restore(branch.kept);
    let run = StepRows { runs: vec![RowRun { sequence: 0, position: 0, count: window.tokens.len() }] };
    let place = StepPlace::default();
    let mut from = branch.from;
    for (at, programs) in work.leaving(&branch.programs) {
        worker.rank.run_operations(&mut bound, place, &run, &window.tokens, from..at)?;
        branches.push(Branch { programs, from: at, kept: bound.kept(&plan.live_after(at)) });
        from = at;
    }
    // the head is applied later, in slices of the vocabulary
    let no_select = || RankFailure("the plan selects nothing".into());
    let select = plan.operations.iter().rposition(|o| o.kind == Kind::SelectLast);
    let end = select.ok_or_else(no_select)?;
    worker.rank.run_operations(&mut bound, place, &run, &window.tokens, from..end)?;
    let normed = plan.selected_from().ok_or_else(no_select)?;
    let columns = plan.values[normed.index()].columns as usize;
    Ok(bound.value(normed)[positions.start * columns..positions.end * columns].to_vec())
}

pub(super) const REFERENCE: usize = 0;

pub(super) struct EvaluationJob<'a> {
    pub(super) request: &'a EvaluateRequest,
    /// Distinct programs, `standard` first; `program_of` maps each architecture to its program.
    pub(super) programs: Vec<CpuProgram>,
    pub(super) program_of: Vec<usize>,
    /// Length of the common prefix of each pair of programs.
    common: Vec<OnceLock<usize>>,
    pub(super) queue: Queue<'a>,
}

impl<'a> EvaluationJob<'a> {
    pub(super) fn new(
        request: &'a EvaluateRequest,
        plans: DistinctPlans,
        stop: &'a (dyn Fn() -> bool + Sync),
    ) -> Self {
        let programs: Vec<CpuProgram> =
            plans.plans.into_iter().map(|plan| CpuProgram::new(plan, 0)).collect();
        let common = (0..programs.len().pow(2)).map(|_| OnceLock::new()).collect();
        let queue = Queue::new(1, request.windows.len(), stop);
        Self { request, programs, program_of: plans.plan_of, common, queue }
    }

    fn programs_of(&self, window: &EvaluationWindow) -> Vec<usize> {
        let mut programs = vec![REFERENCE];
        for program in window.wanted.iter().map(|wanted| self.program_of[*wanted]) {
            if !programs.contains(&program) {
                programs.push(program);
            }
        }
        programs
    }

    /// Operations at which other programs diverge from the first one, with those programs.
    pub(super) fn leaving(&self, programs: &[usize]) -> BTreeMap<usize, Vec<usize>> {
        let mut leave: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
        let Some((first, others)) = programs.split_first() else { return leave };
        for other in others {
            let common = &self.common[first * self.programs.len() + other];
            let plan = |program: usize| &self.programs[program].plan;
            let at = *common.get_or_init(|| plan(*first).common_with(plan(*other)));
            leave.entry(at).or_default().push(*other);
        }
        leave
    }

    /// Maximum bytes of shared prefix values that a rank keeps at a time, over all windows.
    fn kept_bytes(&self) -> u64 {
        let mut seen: HashSet<Vec<usize>> = HashSet::new();
        let mut most = 0;
        for window in &self.request.windows {
            let programs = self.programs_of(window);
            if seen.insert(programs.clone()) {
                most = most.max(self.kept_columns(programs));
            }
        }
        most * self.request.context() as u64 * size_of::<f32>() as u64
    }

    /// Like [`Self::kept_bytes`] for programs on one window, in values per token.
    fn kept_columns(&self, programs: Vec<usize>) -> u64 {
        let (mut branches, mut kept, mut most) = (vec![(programs, 0)], 0, 0);
        while let Some((programs, columns)) = branches.pop() {
            let plan = &self.programs[programs[0]].plan;
            for (at, programs) in self.leaving(&programs) {
                let live = plan.live_after(at);
                let columns = live.iter().map(|v| u64::from(plan.values[v.index()].columns)).sum();
                kept += columns;
                branches.push((programs, columns));
            }
            most = most.max(kept);
            // the program's own buffers replace the kept values
            kept -= columns;
        }
        most
    }
}

/// Distinct plans, `standard` first; `of` maps each architecture to its plan.
pub(super) struct DistinctPlans {
    pub(super) plans: Vec<Plan>,
    /// Index of the plan of each asked architecture.
    plan_of: Vec<usize>,
}

impl DistinctPlans {
    pub(super) fn from_request(request: &EvaluateRequest) -> Result<Self> {
        let plan = |architecture: &Architecture, sent: CommDType| {
            let precision = Precision::cpu(request.dtype);
            // logits are computed later, in slices, from the value named by `Plan::selected_from`
            let lowering = CpuBackend.evaluation_lowering();
            evaluation_plan(&request.model, architecture, request.tp, precision, sent, lowering)
        };
        let mut plans = vec![plan(&Architecture::Standard, CommDType::Activations)?];
        let mut plan_of = Vec::with_capacity(request.architectures.len());
        for architecture in &request.architectures {
            let plan = plan(architecture, request.comm_dtype)?;
            // another reference model's `standard` is never this model's program
            let own = usize::from(request.reference.is_some());
            let there = plans.iter().skip(own).position(|known| *known == plan).map(|at| own + at);
            plan_of.push(there.unwrap_or(plans.len()));
            if there.is_none() {
                plans.push(plan);
            }
        }
        Ok(Self { plans, plan_of })
    }
}

/// Windows not started yet; groups take one after another.
pub(super) struct Queue<'a> {
    next: AtomicUsize,
    count: usize,
    /// Decisions per group and turn: its ranks arrive one by one and must all do the same.
    decisions: Vec<Mutex<Vec<Option<usize>>>>,
    stop: &'a (dyn Fn() -> bool + Sync),
}

impl<'a> Queue<'a> {
    pub(super) fn new(groups: usize, count: usize, stop: &'a (dyn Fn() -> bool + Sync)) -> Self {
        let decisions = (0..groups).map(|_| Mutex::default()).collect();
        Self { next: AtomicUsize::new(0), count, decisions, stop }
    }

    pub(super) fn take(&self, group: usize, turn: &mut usize) -> Option<usize> {
        let next = || Some(self.next.fetch_add(1, Ordering::Relaxed)).filter(|next| *next < self.count);
        self.agree(group, turn, next)
    }

    fn goes_on(&self, group: usize, turn: &mut usize) -> bool {
        self.agree(group, turn, || Some(0)).is_some()
    }

    /// Decision of a turn, made by the first rank of the group to reach it; `None` on stop.
    fn agree(
        &self,
        group: usize,
        turn: &mut usize,
        decide: impl FnOnce() -> Option<usize>,
    ) -> Option<usize> {
        let mut decisions = self.decisions[group].lock().unwrap_or_else(PoisonError::into_inner);
        if decisions.len() == *turn {
            decisions.push(if (self.stop)() { None } else { decide() });
        }
        *turn += 1;
        decisions.get(*turn - 1).copied().flatten()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cpu::evaluate_tests::asked;
    use model::Model;

    #[test]
    fn weights_are_counted_once_and_more_than_there_is_memory_for_is_refused() {
        let model = Model::resolve("tiny").unwrap();
        let bytes = |architectures: &[&str], tp: u32, dtype: DType| {
            let request = EvaluateRequest { dtype, ..asked(model.clone(), architectures, tp, 0) };
            weight_bytes(&DistinctPlans::from_request(&request).unwrap().plans, &request)
        };
        let parameters = model.shape.parameters();
        assert_eq!(bytes(&["ladder", "desync:2"], 1, DType::F32), 4 * parameters);
        assert_eq!(
            bytes(&["ladder"], 4, DType::Bf16),
            2 * parameters,
            "ranks share what they have whole"
        );
        let besides = bytes(&["parallel"], 2, DType::F32);
        assert!((5 * parameters..8 * parameters).contains(&besides), "{besides} {parameters}");
        assert_eq!(groups_that_fit(3, 4 * parameters, 5, None).unwrap(), 3);
        assert_eq!(groups_that_fit(3, 9, 0, Some(9)).unwrap(), 3);
        let gb = 1_000_000_000;
        let why = groups_that_fit(3, 32 * gb, 0, Some(16 * gb)).unwrap_err();
        assert_eq!(why.exit_code(), 2);
        assert!(why.to_string().contains("32.0 GB, and 16.0 GB"), "{why}");
        // groups are fewer where what they keep leaves no room for all
        let fit = |kept: u64| groups_that_fit(16, 16 * gb, kept * gb, Some(32 * gb));
        assert_eq!([fit(1), fit(3), fit(16)].map(Result::unwrap), [16, 5, 1]);
        let why = fit(17).unwrap_err();
        assert_eq!(why.exit_code(), 2);
        assert!(why.to_string().contains("16.0 GB, what architectures have in common"), "{why}");
    }

    #[test]
    fn what_is_kept_for_architectures_that_go_on_is_counted() {
        let kept = |architectures: &[&str], lengths: &[usize]| {
            let model = Model::resolve("tiny").unwrap();
            let wanted: Vec<usize> = (0..architectures.len()).collect();
            let window =
                |length: &usize| EvaluationWindow { tokens: vec![1; *length], wanted: wanted.clone() };
            let windows = lengths.iter().map(window).collect();
            let request = EvaluateRequest { windows, ..asked(model, architectures, 1, 0) };
            EvaluationJob::new(&request, DistinctPlans::from_request(&request).unwrap(), &|| false)
                .kept_bytes()
        };
        let hidden = u64::from(Model::resolve("tiny").unwrap().shape.hidden);
        // the residual and the output of the module before, at each point where ladders leave standard
        let point = 2 * hidden * 4 * 10;
        assert_eq!(kept(&["standard"], &[10]), 0);
        assert_eq!(kept(&["ladder:[1]"], &[10, 3]), point);
        assert_eq!(kept(&["ladder:[1]", "ladder:[2]", "ladder:[3]"], &[10]), 3 * point);
        // those that leave together keep once until they part, with a ladder's two outputs under way: where the other
        // one has ended, this and what they came from
        let ladders = hidden * 4 * 10 * 3;
        assert_eq!(kept(&["ladder:[1+2]", "ladder:[1+3]", "ladder:[3]"], &[10]), point + ladders);
    }
}
