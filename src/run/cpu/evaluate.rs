//! Quality evaluation: each window is one prefill with all rows at once.
//!
//! Windows are independent, so as many groups of ranks as there are cores work concurrently on the same weights. The
//! common prefix of several plans is executed once; its live values are kept and each plan continues from there
//! ([`Branch`]). A rank keeps the final norm's output of a few architectures per window; the logits are computed from
//! it in slices ([`super::loss`]), with the positions divided over the ranks of a group.

use std::collections::{HashMap, HashSet};
use std::ops::Range;
use std::slice::from_ref;
use std::sync::atomic::{AtomicBool, Ordering};

use crossbeam_channel::{Receiver, Sender, unbounded};

use super::attention::{RowRun, StepRows};
use super::engine::{self, Loaded, Setup, Worker};
use super::evaluate_work::{Plans, Queue, REFERENCE, Work};
use super::loss::Loss;
use super::program::Weights;
use super::rank::{Bound, Kept, Place};
use super::team::Placement;
use crate::PlanBackend;
use crate::comm::Broken;
use crate::evaluate::{Emit, EvaluateRequest, Evaluated, Window, WindowQuality};
use arithmetic::product::{InstructionSet, VARIABLE};
use base::error::{Error, Result};
use machine::environment::available_memory;
use plan::{Architecture, DType, Kind, Plan, Precision, Tensor, Weight};

/// Architectures whose logits are computed together, in addition to the shared reference.
const TOGETHER: usize = 8;

/// One rank's share of a window's predicted tokens, for some of the wanted architectures.
struct Part {
    window: usize,
    quality: Vec<(usize, WindowQuality)>,
}

/// Programs with a common prefix, and the values of the prefix that they read later.
struct Branch {
    programs: Vec<usize>,
    from: usize,
    kept: Kept,
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
    let plans = Plans::of(request)?;
    let of_reference =
        request.reference.as_ref().map_or(0, |_| weight_bytes(&plans.plans[..1], request));
    let weights = weight_bytes(&plans.plans, request) + of_reference;
    let standard = Architecture::Standard;
    // logits are computed in slices of the whole head
    let how = (request.dtype, request.tp, request.seed);
    let setup_of = |model| Setup::new(model, &standard, how, context);
    let setup = setup_of(&request.model);
    let given_up = AtomicBool::new(false);
    let stop = || given_up.load(Ordering::Relaxed) || stop();
    let mut work = Work::new(request, plans, &stop);
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
    work: &Work<'_>,
    group: usize,
    setup: &Setup<'_>,
    (loaded, reference): (&Loaded<'_>, Option<&Loaded<'_>>),
    results: &Sender<Evaluated>,
) -> Result<()> {
    let mut shared = engine::prepare(setup)?;
    shared.placement = Placement::free();
    let body =
        |worker: &mut Worker<'_>, parts: &Sender<Part>| on_rank(worker, work, group, reference, parts);
    let tp = setup.tp as usize;
    engine::run_ranks_with(setup, &shared, from_ref(loaded), body, &|_| (), |parts: Receiver<Part>| {
        gather(tp, parts, results);
        Ok(())
    })?;
    Ok(())
}

fn gather(ranks: usize, parts: Receiver<Part>, results: &Sender<Evaluated>) {
    let mut open: HashMap<(usize, usize), (usize, WindowQuality)> = HashMap::new();
    for Part { window, quality } in parts {
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
    work: &Work<'_>,
    group: usize,
    reference: Option<&Loaded<'_>>,
    parts: &Sender<Part>,
) -> Result<(), Broken> {
    let no_head = || Broken("no head was loaded".into());
    let head = worker.prefill.panels(Tensor::Head).ok_or_else(no_head)?;
    // weights and head of another reference model
    let other = reference.map(|loaded| -> Result<_, Broken> {
        let broken = |e: Error| Broken(e.to_string());
        let program = &work.programs[REFERENCE];
        let weights = loaded.rank(worker.rank.index).map_err(broken)?;
        let bound = Bound::new(program, weights.of_plan(&program.plan).map_err(broken)?);
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
        let begun = |programs| Branch { programs, from: 0, kept: Kept::new() };
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
            if others.len() < TOGETHER && !branches.is_empty() {
                continue;
            }
            let beside: Vec<&[f32]> = others.iter().map(|(_, normed)| normed.as_slice()).collect();
            let heads = [other.as_ref().map_or(&head, |(head, _)| head), &head];
            let found = loss.of(&mut worker.rank.kernels, heads, reference, &beside, following);
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

/// Runs the rest of a branch's first program and returns the final norm's output at some positions of the window
/// ([`Plan::selected_from`]). Programs that diverge on the way become new branches.
fn forward(
    worker: &mut Worker<'_>,
    work: &Work<'_>,
    (branch, weights): (Branch, &Weights),
    window: &Window,
    positions: Range<usize>,
    branches: &mut Vec<Branch>,
) -> Result<Vec<f32>, Broken> {
    let program = &work.programs[branch.programs[0]];
    let plan = &program.plan;
    let weights = weights.of_plan(plan).map_err(|e| Broken(e.to_string()))?;
    // only one architecture's buffers exist at a time
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
    // the head is applied later, in slices of the vocabulary
    let no_select = || Broken("the plan selects nothing".into());
    let select = plan.operations.iter().rposition(|o| o.kind == Kind::SelectLast);
    let end = select.ok_or_else(no_select)?;
    worker.rank.stretch(&mut bound, place, &run, &window.tokens, from..end)?;
    let normed = plan.selected_from().ok_or_else(no_select)?;
    let columns = plan.values[normed.index()].columns as usize;
    Ok(bound.value(normed)[positions.start * columns..positions.end * columns].to_vec())
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::Model;
    use plan::{CommDType, DType};

    #[test]
    fn weights_are_counted_once_and_more_than_there_is_memory_for_is_refused() {
        let model = Model::resolve("tiny").unwrap();
        let bytes = |architectures: &[&str], tp: u32, dtype: DType| {
            let architectures = architectures.iter().map(|a| a.parse().unwrap()).collect();
            let request = EvaluateRequest {
                model: model.clone(),
                architectures,
                reference: None,
                dtype,
                tp,
                comm_dtype: CommDType::Activations,
                seed: 0,
                windows: Vec::new(),
            };
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
}
