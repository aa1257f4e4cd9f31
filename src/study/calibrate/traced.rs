//! All-reduce latencies from a trace, measured from the last rank's arrival. Message sizes come from the plan
//! or the trace's arguments, else from the user.

use std::collections::{BTreeMap, BTreeSet};

use super::AllReduces;
use crate::analysis::{Clocks, Matching};
use base::error::{Error, Result};
use base::statistics::median;
use plan::Architecture;
use table::{Collective, P2p, Provenance, Spec};
use trace::Trace;

/// All-reduces of a trace: median transfer time by message size, from the last rank's arrival to the end. For
/// a foreign trace without message sizes, `message_bytes` supplies them; `p2p` says how its GPUs
/// communicated. Takes one pass over the spans.
///
/// # Errors
///
/// Returns an error if the times were not measured, the importer doubts the GPU work, the run did not use plain NCCL all-reduces with nothing
/// else running, the trace covers one rank, a message size is missing, or there is no all-reduce.
pub fn all_reduces_of(
    name: &str,
    trace: &Trace,
    p2p: P2p,
    message_bytes: Option<u64>,
) -> Result<AllReduces> {
    let meta = &trace.meta;
    meta.provenance.require_evidence(name)?;
    if meta.provenance != Provenance::Measured {
        let problem = format!("{name} is {}: its all-reduces take what was asked for", meta.provenance);
        return Err(Error::input_help(problem, "give a trace of a run over the machine's own links"));
    }
    trace.require_no_doubt(&format!("{name} measures no link"))?;
    if let Some((what, help)) = meta.spec.as_ref().and_then(|spec| unfit(spec, p2p)) {
        return Err(Error::input_help(format!("{name} {what}"), help));
    }
    let (ranks, points, warnings) = match &meta.spec {
        Some(spec) => (spec.tp, of_plan(trace), Vec::new()),
        None => of_others(name, trace, message_bytes)?,
    };
    if points.is_empty() {
        return Err(Error::input(format!("{name} has no all-reduce")));
    }
    let told =
        |value: Option<&serde_json::Value>| value.and_then(|value| value.as_str()).map(str::to_owned);
    let gpu = told(meta.environment.get("gpus").map(|gpus| &gpus[0]["name"]));
    let version = told(meta.environment.get("nccl"));
    Ok(AllReduces { origin: "a trace", ranks, gpu, in_graph: None, version, points, warnings })
}

/// Reason why a run's all-reduces do not measure the bare link, and the fix: a profile's points need NCCL
/// all-reduces with nothing else running.
fn unfit(spec: &Spec, p2p: P2p) -> Option<(String, String)> {
    let again = |option: &str| format!("run it with {option}");
    if spec.collective != Collective::Nccl {
        return Some((format!("has {} all-reduces", spec.collective), again("--collective nccl")));
    }
    if spec.architecture != Architecture::Standard || spec.micro_batches > 1 {
        let label = spec.architecture_label();
        let what = format!("is of {label}, whose all-reduces run beside computation");
        return Some((what, again("--architecture standard and one micro-batch")));
    }
    (spec.p2p != p2p).then(|| {
        (format!("was run with P2P {}", spec.p2p.as_str()), format!("say --p2p {}", spec.p2p.as_str()))
    })
}

/// Message bytes, and median transfer time (us).
type Points = Vec<(u64, f64)>;

/// Points of our own run, whose plan gives each message size.
fn of_plan(trace: &Trace) -> Points {
    let mut by: BTreeMap<u64, Vec<f64>> = BTreeMap::new();
    for span in &trace.spans {
        let Some(operation) = trace.operations.get(span.operation as usize) else { continue };
        if operation.kind != "all_reduce" {
            continue;
        }
        let bytes = trace.step(span).map_or(0, |step| operation.cost.message_bytes.at(&step));
        let took = span.end_ns.saturating_sub(span.start_ns.max(span.last_arrival_ns));
        if bytes > 0 && took > 0 {
            by.entry(bytes).or_default().push(took as f64 / 1e3);
        }
    }
    by.into_iter().filter_map(|(bytes, took)| Some((bytes, median(&took)?))).collect()
}

#[derive(Default)]
struct Candidates {
    /// Transfer times (us) by message bytes; 0 if the trace lacks the size.
    by_bytes: BTreeMap<u64, Vec<f64>>,
    count: usize,
    /// Kinds of their process groups: `DP`.
    kinds: BTreeSet<String>,
}

/// Points of another engine's trace: matched all-reduces by message size. Prefers tensor-parallel groups if
/// the trace describes them, then the most frequent group size. Also returns a sentence on the others.
fn of_others(
    name: &str,
    trace: &Trace,
    message_bytes: Option<u64>,
) -> Result<(u32, Points, Vec<String>)> {
    let matching = Matching::of(trace);
    let clocks = Clocks::of(trace, &matching);
    let recorded: BTreeSet<u32> = trace.spans.iter().map(|span| span.rank).collect();
    // keyed by (is tensor parallel, group size)
    let mut found: BTreeMap<(bool, u32), Candidates> = BTreeMap::new();
    let (mut largest, mut partial) = (0, 0);
    for collective in matching.collectives() {
        let span = &trace.spans[collective.places[0]];
        let Some(operation) = trace.operations.get(span.operation as usize) else { continue };
        if operation.kind != "all_reduce" {
            continue;
        }
        let info = operation.collective.as_ref();
        let group = info.and_then(|info| trace.meta.groups.get(info.group? as usize));
        let ranks = collective.places.len() as u32;
        // without all ranks, the last arrival is unknown
        if collective.is_partial {
            let sizes = || trace.meta.groups.iter().map(|group| group.size).max();
            largest = largest.max(group.map_or_else(|| sizes().unwrap_or(0), |group| group.size));
            partial += 1;
            continue;
        }
        let is_tensor = group.is_some_and(|group| group.kind() == "TP");
        let bytes = info.and_then(|info| info.message_bytes);
        if bytes.is_some() && message_bytes.is_some_and(|wanted| bytes != Some(wanted)) {
            continue;
        }
        let moved = matching.arrived(trace, &clocks, &collective).mean_moved();
        if moved > 0 {
            let candidates = found.entry((is_tensor, ranks)).or_default();
            let bytes = bytes.or(message_bytes).unwrap_or(0);
            candidates.by_bytes.entry(bytes).or_default().push(moved as f64 / 1e3);
            candidates.count += 1;
            candidates.kinds.extend(group.map(trace::ProcessGroup::kind));
        }
    }
    let best = found
        .iter()
        .max_by_key(|((is_tensor, ranks), candidates)| (*is_tensor, candidates.count, *ranks))
        .map(|(key, _)| *key);
    let best = best.and_then(|key| Some((key.1, found.remove(&key)?)));
    let Some((ranks, mut candidates)) = best else {
        return Err(if recorded.len() < 2 {
            let problem =
                "is of one rank: what it waited for others cannot be told from what moving data took";
            Error::input_help(
                format!("{name} {problem}"),
                "give a directory with the traces of all ranks",
            )
        } else if largest > 0 {
            Error::input_help(
                format!(
                    "{name} has all-reduces over {largest} ranks, but not the traces of all of them"
                ),
                "give a directory with the traces of all ranks",
            )
        } else {
            let size = message_bytes.map_or(String::new(), |bytes| format!(" of {bytes} bytes"));
            Error::input(format!("{name} has no all-reduce{size} that all recorded ranks take part in"))
        });
    };
    let without_size = candidates.by_bytes.remove(&0).map_or(0, |times| times.len());
    if without_size > 0 && candidates.by_bytes.is_empty() {
        return Err(Error::input_help(
            format!("{name} does not tell how large its messages are"),
            "say it with --message-bytes: batch x hidden size x bytes of a number",
        ));
    }
    let mut left_out: Vec<String> = found
        .iter()
        .map(|((_, ranks), Candidates { count, kinds, .. })| {
            let kinds: Vec<&str> = kinds.iter().map(String::as_str).collect();
            let of = if kinds.is_empty() { String::new() } else { format!(" ({})", kinds.join(", ")) };
            format!("{count} over {ranks} ranks{of}")
        })
        .collect();
    left_out.extend((partial > 0).then(|| format!("{partial} of which not all ranks were recorded")));
    left_out.extend((without_size > 0).then(|| format!("{without_size} without a message size")));
    let used: Vec<String> = candidates.kinds.into_iter().collect();
    let of = if used.is_empty() { String::new() } else { format!(" of {} groups", used.join(" and ")) };
    let warnings = match left_out.is_empty() {
        true => Vec::new(),
        false => vec![format!(
            "all-reduces{of} over {ranks} ranks are used; left out: {}",
            left_out.join(", ")
        )],
    };
    let point = |(bytes, took): (u64, Vec<f64>)| Some((bytes, median(&took)?));
    Ok((ranks, candidates.by_bytes.into_iter().filter_map(point).collect(), warnings))
}

#[cfg(test)]
mod tests;
