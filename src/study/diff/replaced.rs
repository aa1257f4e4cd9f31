//! Operations that replace others, as a kernel under another name in the same place, and the words for the operation that
//! changed a part of the step most.

use std::borrow::Cow;
use std::collections::{BTreeMap, HashMap, HashSet};

use super::{ChangedOperation, NAME};
use crate::analysis::over_layers;
use base::text::{fitting_name, latency};
use trace::Trace;
use trace::overlap::StepKey;

/// An operation that only the first trace has, and the one that only the second has in its place: indices into the list of
/// operations.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Replacement {
    gone: usize,
    new: usize,
}

/// Finds the operations that were replaced: those with equal neighbours in every execution of a step.
pub(super) fn replacements(
    traces: [&Trace; 2],
    steps: [StepKey; 2],
    operations: &[ChangedOperation],
) -> Vec<Replacement> {
    let [mut gone, new] = [0, 1].map(|side| {
        let is_only = |operation: &ChangedOperation| {
            if side == 0 { operation.b.is_none() } else { operation.a.is_none() }
        };
        let only = operations.iter().enumerate().filter(|(_, operation)| is_only(operation));
        let only =
            only.map(|(index, operation)| ((operation.lane, operation.name.as_str()), index)).collect();
        places(traces[side], steps[side], &only)
    });
    let pairs = new.into_iter().filter_map(|(place, new)| {
        let gone = gone.remove(&place)?;
        // one for one
        let ([gone], [new]) = (&gone[..], &new[..]) else { return None };
        Some(Replacement { gone: *gone, new: *new })
    });
    pairs.collect()
}

/// Lane of an operation, and the names before and after each of its executions.
type Neighbors = (&'static str, Vec<[String; 2]>);

/// Places of the operations that only this trace has, on the first rank of a step.
fn places(
    trace: &Trace,
    step: StepKey,
    only: &HashMap<(&str, &str), usize>,
) -> BTreeMap<Neighbors, Vec<usize>> {
    /// Name of a neighbour that the other trace lacks as well.
    const CHANGED: &str = "?";
    let spans = &trace.spans[step.spans(trace)];
    let mut neighbours: BTreeMap<usize, Neighbors> = BTreeMap::new();
    let lanes = spans.chunk_by(|a, b| (a.rank, a.lane) == (b.rank, b.lane));
    for of_lane in lanes.take_while(|of_lane| of_lane[0].rank == spans[0].rank) {
        let lane = of_lane[0].lane.as_str();
        let operations = of_lane.iter().map(|span| trace.operations.get(span.operation as usize));
        let names: Vec<Cow<'_, str>> =
            operations.map(|info| info.map_or(Cow::Borrowed(""), over_layers)).collect();
        let changed = |name: &str| only.get(&(lane, name)).copied();
        let name_at = |at: Option<usize>| match at.and_then(|at| names.get(at)) {
            None => String::new(),
            Some(name) if changed(name).is_some() => CHANGED.to_owned(),
            Some(name) => name.to_string(),
        };
        for (at, name) in names.iter().enumerate() {
            let Some(operation) = changed(name) else { continue };
            let beside = [at.checked_sub(1), Some(at + 1)].map(name_at);
            neighbours.entry(operation).or_insert_with(|| (lane, Vec::new())).1.push(beside);
        }
    }
    let mut places: BTreeMap<Neighbors, Vec<usize>> = BTreeMap::new();
    for (operation, (lane, mut beside)) in neighbours {
        // between two changed neighbours, nothing tells the place
        if beside.iter().any(|names| names.iter().all(|name| name == CHANGED)) {
            continue;
        }
        beside.sort_unstable();
        places.entry((lane, beside)).or_default().push(operation);
    }
    places
}

/// Operation or replacement that changed a lane, or both lanes, most in the direction of `delta_us`: `gemm (+80.0 us)`. If
/// it changed by more than that, also one that came or went and offsets it. The operations must be sorted by size.
pub(super) fn most_changed(
    operations: &[ChangedOperation],
    replacements: &[Replacement],
    lane: Option<&str>,
    delta_us: f64,
) -> Option<String> {
    let is_of_lane = |operation: &ChangedOperation| lane.is_none_or(|lane| lane == operation.lane);
    let is_same_way = |us: f64| us != 0.0 && (us > 0.0) == (delta_us > 0.0);
    let signed = |us: f64| format!("{}{}", if us > 0.0 { "+" } else { "-" }, latency(us.abs()));
    let name = |operation: &ChangedOperation| fitting_name(&operation.name, NAME);
    let replaced: HashSet<usize> = replacements.iter().flat_map(|pair| [pair.gone, pair.new]).collect();
    let alone: Vec<&ChangedOperation> = (operations.iter().enumerate())
        .filter(|(index, operation)| !replaced.contains(index) && is_of_lane(operation))
        .map(|(_, operation)| operation)
        .collect();
    let most = alone.iter().find(|operation| is_same_way(operation.delaying_us));
    let pairs = replacements.iter().map(|pair| {
        let (gone, new) = (&operations[pair.gone], &operations[pair.new]);
        (gone, new, gone.delaying_us + new.delaying_us)
    });
    let pair = pairs
        .filter(|(_, new, us)| is_of_lane(new) && is_same_way(*us))
        .max_by(|(.., a), (.., b)| a.abs().total_cmp(&b.abs()));
    if let Some((gone, new, us)) = pair
        && most.is_none_or(|most| most.delaying_us.abs() < us.abs())
    {
        return Some(format!("{} instead of {} ({})", name(new), name(gone), signed(us)));
    }
    let most = most?;
    let offsets = |operation: &&&ChangedOperation| {
        let is_of_one_trace = operation.a.is_none() || operation.b.is_none();
        is_of_one_trace && operation.delaying_us != 0.0 && !is_same_way(operation.delaying_us)
    };
    let is_more = most.delaying_us.abs() > delta_us.abs();
    let offset = alone.iter().find(offsets).filter(|_| is_more).map_or(String::new(), |operation| {
        let state = if operation.b.is_none() { "gone" } else { "new" };
        format!(", {} of {}, which is {state}", signed(operation.delaying_us), name(operation))
    });
    Some(format!("{} ({}{offset})", name(most), signed(most.delaying_us)))
}
