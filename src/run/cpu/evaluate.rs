//! Quality of architectures on a text: windows through prefill, all rows of one at once.
//!
//! Windows are independent, so that several groups of ranks work at once, as many as there are cores for, on the
//! same weights. Where plans are alike until some operation, it is executed once for all of them: what they have
//! computed until there is kept, and each goes on from it ([`Branch`]). A rank keeps what the final norm gave of a
//! few architectures on its window; logits follow from that in slices ([`super::loss`]), of which each rank of a
//! group takes its part of the positions.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Mutex, OnceLock, PoisonError};

use crossbeam_channel::{Receiver, Sender, unbounded};

use super::attention::{RowRun, StepRows};
use super::backend::CpuBackend;
use super::engine::{self, Loaded, Setup, Worker};
use super::loss::Loss;
use super::placement::Placement;
use super::program::Program;
use super::rank::{Bound, Kept, Place};
use crate::base::error::{Error, Result};
use crate::machine::environment::available_memory;
use crate::plan::{Architecture, CommDType, Plan, Precision, Tensor, Variant, Weight};
use crate::run::PlanBackend;
use crate::run::comm::Broken;
use crate::run::evaluate::{Emit, EvaluateRequest, Evaluated, Window, WindowQuality, evaluation_plan};
use crate::run::sample::Sampling;

/// The place among the programs of what the others are compared with.
const REFERENCE: usize = 0;

/// Architectures whose logits are made together, beside the reference's, which they share.
const TOGETHER: usize = 8;

/// A rank's part of a window: of some of the wanted architectures, its part of the predicted tokens.
struct Part {
    window: usize,
    quality: Vec<(usize, WindowQuality)>,
}

/// Programs that are the same up to an operation, and the values that they had computed until there and read later.
struct Branch {
    programs: Vec<usize>,
    from: usize,
    kept: Kept,
}

/// What all groups of ranks work on.
struct Work<'a> {
    request: &'a EvaluateRequest,
    /// The programs that are executed, `standard` first, and which of them is each architecture's.
    programs: Vec<Program>,
    program_of: Vec<usize>,
    /// Of each pair of programs what the first one has in common with the second.
    common: Vec<OnceLock<usize>>,
    queue: Queue<'a>,
}

impl<'a> Work<'a> {
    /// For one group, until its queue is another.
    fn new(request: &'a EvaluateRequest, plans: Plans, stop: &'a (dyn Fn() -> bool + Sync)) -> Self {
        let programs: Vec<Program> = plans.plans.into_iter().map(|plan| Program::of(plan, 0)).collect();
        let common = (0..programs.len().pow(2)).map(|_| OnceLock::new()).collect();
        let queue = Queue::new(1, request.windows.len(), stop);
        Self { request, programs, program_of: plans.of, common, queue }
    }

    /// The programs of a window, the reference first.
    fn programs_of(&self, window: &Window) -> Vec<usize> {
        let mut programs = vec![REFERENCE];
        for program in window.wanted.iter().map(|wanted| self.program_of[*wanted]) {
            if !programs.contains(&program) {
                programs.push(program);
            }
        }
        programs
    }

    /// Where others leave the first of these programs, and which they are.
    fn leaving(&self, programs: &[usize]) -> BTreeMap<usize, Vec<usize>> {
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

    /// The most bytes that a rank keeps at a time of what architectures have in common, over all windows.
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

    /// The same of programs that are executed on one window, in numbers for each of its tokens.
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
            // in place of the buffers of its program from now on
            kept -= columns;
        }
        most
    }
}

/// Evaluates on this machine's cores; results go to `emit` as they come. Ends early, without an error, after
/// `stop` says so: architectures under way are finished, others are not begun.
///
/// # Errors
///
/// An input error for weights in f16, a TP that does not divide the model, `upper-bound` or a checkpoint that is
/// wrong; a failure where a rank's thread dies; whatever `emit` fails with.
pub fn evaluate(
    request: &EvaluateRequest,
    stop: &(dyn Fn() -> bool + Sync),
    emit: &mut Emit<'_>,
) -> Result<()> {
    request.check()?;
    super::refuse_f16(request.dtype)?;
    let context = request.context();
    if context == 0 {
        return Ok(());
    }
    let plans = Plans::of(request)?;
    let weights = weight_bytes(&plans.plans, request);
    let standard = Architecture::Standard;
    let setup = Setup {
        model: &request.model,
        architecture: &standard,
        dtype: request.dtype,
        tp: request.tp,
        seed: request.seed,
        link: None,
        sampling: Sampling::Greedy,
        sequences: 1,
        capacity: context,
        all_logits: false,
        variant: Variant::default(),
        prefill_variant: Variant::default(),
    };
    let given_up = AtomicBool::new(false);
    let stop = || given_up.load(Ordering::Relaxed) || stop();
    let mut work = Work::new(request, plans, &stop);
    let kept = u64::from(request.tp) * work.kept_bytes();
    let groups = groups_that_fit(groups(request), weights, kept, available_memory())?;
    work.queue = Queue::new(groups, request.windows.len(), &stop);
    let first = engine::prepare(&setup)?;
    let read = work.programs.iter().map(|program| &program.plan).chain([&first.decode.plan]);
    let loaded = Loaded::open(&setup, read.collect())?;
    let (results, received) = unbounded();
    std::thread::scope(|scope| {
        let started: Vec<_> = (0..groups)
            .map(|group| {
                let (work, setup, loaded, results) = (&work, &setup, &loaded, results.clone());
                let given_up = &given_up;
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
        let mut told = Ok(());
        for result in received {
            if told.is_ok() {
                told = emit(result);
            }
            if told.is_err() {
                given_up.store(true, Ordering::Relaxed);
            }
        }
        let ended: Result<Vec<()>> = started
            .into_iter()
            .map(|group| {
                group.join().unwrap_or_else(|_| Err(Error::failed("a group of ranks panicked")))
            })
            .collect();
        told.and(ended.map(drop))
    })
}

/// Bytes of the weights of all ranks that these plans read, each once.
fn weight_bytes(plans: &[Plan], request: &EvaluateRequest) -> u64 {
    let is_embedding =
        |weight: &Weight| request.model.shape.tied_embeddings && weight.parts[0].tensor == Tensor::Head;
    let mut seen = HashSet::new();
    let mut bytes = 0;
    for plan in plans {
        let weights = plan.weights.iter().filter(|weight| !is_embedding(weight));
        for weight in weights.filter(|weight| seen.insert(&weight.name)) {
            let ranks = if weight.is_whole() { 1 } else { plan.tp };
            let rows = u64::from(ranks) * u64::from(weight.outputs);
            bytes += rows * u64::from(weight.inputs) * request.dtype.bytes();
        }
    }
    bytes
}

/// How many groups, at most those that are wanted, fit into memory beside the weights: each keeps so many bytes of what
/// architectures have in common. Errors where not even one does. Where nobody knows how much memory there is,
/// running is how to find out.
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
            "bf16 takes half of what f32 does; parallel has weights besides those of other architectures",
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

/// How many groups of ranks work at once: as many as there are cores and windows for.
fn groups(request: &EvaluateRequest) -> usize {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    (cores / request.tp.max(1) as usize).clamp(1, request.windows.len().max(1))
}

/// The plans that differ, `standard`'s first, and which of them is each architecture's.
struct Plans {
    plans: Vec<Plan>,
    of: Vec<usize>,
}

impl Plans {
    fn of(request: &EvaluateRequest) -> Result<Self> {
        let plan = |architecture: &Architecture, sent: CommDType| {
            let precision = Precision::cpu(request.dtype);
            // logits of a slice of positions at a time follow from what `Plan::selected_from` names
            let lowering = CpuBackend.evaluation_lowering();
            evaluation_plan(&request.model, architecture, request.tp, precision, sent, lowering)
        };
        let mut plans = vec![plan(&Architecture::Standard, CommDType::Activations)?];
        let mut of = Vec::with_capacity(request.architectures.len());
        for architecture in &request.architectures {
            let plan = plan(architecture, request.comm_dtype)?;
            let there = plans.iter().position(|known| *known == plan);
            of.push(there.unwrap_or(plans.len()));
            if there.is_none() {
                plans.push(plan);
            }
        }
        Ok(Self { plans, of })
    }
}

/// Windows that nobody has begun; groups take one after another.
struct Queue<'a> {
    next: AtomicUsize,
    count: usize,
    /// Of each group what its ranks do, turn by turn: they come one by one and must all do the same.
    taken: Vec<Mutex<Vec<Option<usize>>>>,
    stop: &'a (dyn Fn() -> bool + Sync),
}

impl<'a> Queue<'a> {
    fn new(groups: usize, count: usize, stop: &'a (dyn Fn() -> bool + Sync)) -> Self {
        let taken = (0..groups).map(|_| Mutex::default()).collect();
        Self { next: AtomicUsize::new(0), count, taken, stop }
    }

    /// The window that a group takes at its `turn`; `None` where there is no more to do.
    fn take(&self, group: usize, turn: &mut usize) -> Option<usize> {
        let next = || Some(self.next.fetch_add(1, Ordering::Relaxed)).filter(|next| *next < self.count);
        self.agree(group, turn, next)
    }

    /// Whether a group goes on with its window at its `turn`.
    fn goes_on(&self, group: usize, turn: &mut usize) -> bool {
        self.agree(group, turn, || Some(0)).is_some()
    }

    /// What the first rank of a group that comes to a turn, from 0, decides for all of them; `None` once it is to stop.
    fn agree(
        &self,
        group: usize,
        turn: &mut usize,
        decide: impl FnOnce() -> Option<usize>,
    ) -> Option<usize> {
        let mut taken = self.taken[group].lock().unwrap_or_else(PoisonError::into_inner);
        if taken.len() == *turn {
            taken.push(if (self.stop)() { None } else { decide() });
        }
        *turn += 1;
        taken.get(*turn - 1).copied().flatten()
    }
}

/// Runs one group of ranks until there is no more to do.
fn one_group(
    work: &Work<'_>,
    group: usize,
    setup: &Setup<'_>,
    loaded: &Loaded<'_>,
    results: &Sender<Evaluated>,
) -> Result<()> {
    let mut shared = engine::prepare(setup)?;
    shared.placement = Placement::free();
    let body = |worker: &mut Worker<'_>, parts: &Sender<Part>| on_rank(worker, work, group, parts);
    let tp = setup.tp as usize;
    engine::run_ranks_with(setup, &shared, loaded, body, &|_| (), |parts: Receiver<Part>| {
        gather(tp, parts, results);
        Ok(())
    })?;
    Ok(())
}

/// Puts the ranks' parts of each window together.
fn gather(ranks: usize, parts: Receiver<Part>, results: &Sender<Evaluated>) {
    let mut open: HashMap<(usize, usize), (usize, WindowQuality)> = HashMap::new();
    for Part { window, quality } in parts {
        for (architecture, quality) in quality {
            let (seen, sum) = open.entry((window, architecture)).or_default();
            *seen += 1;
            *sum += quality;
            if *seen == ranks {
                // nobody listens any more where the evaluation was given up
                let _ = results.send(Evaluated { window, architecture, quality: *sum });
                open.remove(&(window, architecture));
            }
        }
    }
}

/// One rank of a group: takes windows with the others, and hands in its part of each.
fn on_rank(
    worker: &mut Worker<'_>,
    work: &Work<'_>,
    group: usize,
    parts: &Sender<Part>,
) -> Result<(), Broken> {
    let head = worker.prefill.matrix(Tensor::Head).ok_or_else(|| Broken("no head was loaded".into()))?;
    let (mut loss, mut turn) = (Loss::default(), 0);
    while let Some(at) = work.queue.take(group, &mut turn) {
        let window = &work.request.windows[at];
        let predicted = window.tokens.len() - 1;
        let (rank, ranks) = (worker.rank.index as usize, worker.rank.tp as usize);
        let mine = predicted * rank / ranks..predicted * (rank + 1) / ranks;
        let following = &window.tokens[1..][mine.clone()];
        let rows = mine.start * head.inputs..mine.end * head.inputs;
        // the reference is ahead of its branch, and so comes first
        let mut branches =
            vec![Branch { programs: work.programs_of(window), from: 0, kept: Kept::new() }];
        let mut reference = None;
        let mut others: Vec<(usize, Vec<f32>)> = Vec::new();
        while let Some(branch) = branches.pop() {
            if work.queue.goes_on(group, &mut turn) {
                let program = branch.programs[0];
                let normed = forward(worker, work, branch, window, rows.clone(), &mut branches)?;
                match &reference {
                    None => reference = Some(normed),
                    Some(_) => others.push((program, normed)),
                }
            } else {
                // no more of them; what was computed is told
                branches.clear();
            }
            let Some(reference) = &reference else { return Ok(()) };
            if others.len() < TOGETHER && !branches.is_empty() {
                continue;
            }
            let beside: Vec<&[f32]> = others.iter().map(|(_, normed)| normed.as_slice()).collect();
            let found = loss.of(&mut worker.rank.kernels, &head, reference, &beside, following);
            let of = |wanted: &usize| {
                let program = work.program_of[*wanted];
                let at = match program {
                    REFERENCE if branches.is_empty() => 0,
                    _ => 1 + others.iter().position(|(other, _)| *other == program)?,
                };
                Some((*wanted, found[at]))
            };
            let quality = window.wanted.iter().filter_map(of).collect();
            let _ = parts.send(Part { window: at, quality });
            others.clear();
        }
    }
    Ok(())
}

/// What the final norm gives of a branch's first program at some positions of a window (`rows`, in numbers): the rest of
/// one prefill. Where others leave it, they become branches of their own.
fn forward(
    worker: &mut Worker<'_>,
    work: &Work<'_>,
    branch: Branch,
    window: &Window,
    rows: Range<usize>,
    branches: &mut Vec<Branch>,
) -> Result<Vec<f32>, Broken> {
    let program = &work.programs[branch.programs[0]];
    let plan = &program.plan;
    let weights = worker.weights.of_plan(plan).map_err(|e| Broken(e.to_string()))?;
    // buffers of one architecture at a time
    let mut bound = Bound::new(program, weights);
    bound.restore(branch.kept);
    let run = StepRows { runs: vec![RowRun { sequence: 0, position: 0, count: window.tokens.len() }] };
    let place = Place { on: false, sample: 0, step: 0 };
    let mut from = branch.from;
    for (at, programs) in work.leaving(&branch.programs) {
        worker.rank.stretch(&mut bound, place, &run, &window.tokens, from..at)?;
        branches.push(Branch { programs, from: at, kept: bound.kept(&plan.live_after(at)) });
        from = at;
    }
    worker.rank.stretch(&mut bound, place, &run, &window.tokens, from..plan.operations.len())?;
    let normed = plan.selected_from().ok_or_else(|| Broken("the plan selects nothing".into()))?;
    Ok(bound.value(normed)[rows].to_vec())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::Model;
    use crate::plan::DType;

    #[test]
    fn weights_are_counted_once_and_more_than_there_is_memory_for_is_refused() {
        let model = Model::resolve("tiny").unwrap();
        let bytes = |architectures: &[&str], tp: u32, dtype: DType| {
            let architectures = architectures.iter().map(|a| a.parse().unwrap()).collect();
            let (model, windows) = (model.clone(), Vec::new());
            let comm_dtype = CommDType::Activations;
            let request =
                EvaluateRequest { model, architectures, dtype, tp, comm_dtype, seed: 0, windows };
            weight_bytes(&Plans::of(&request).unwrap().plans, &request)
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
            let window = |length: &usize| Window { tokens: vec![1; *length], wanted: wanted.clone() };
            let request = EvaluateRequest {
                model,
                architectures: architectures.iter().map(|a| a.parse().unwrap()).collect(),
                dtype: DType::F32,
                tp: 1,
                comm_dtype: CommDType::Activations,
                seed: 0,
                windows: lengths.iter().map(window).collect(),
            };
            Work::new(&request, Plans::of(&request).unwrap(), &|| false).kept_bytes()
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
