//! What all-reduces took in a trace, once their last rank was there: by message where the plan or the trace's arguments say how
//! large it is, else of the size that the user names.

use std::collections::{BTreeMap, BTreeSet};

use super::AllReduces;
use crate::analysis::{Clocks, Matching};
use base::error::{Error, Result};
use base::statistics::median;
use plan::Architecture;
use table::{Collective, P2p, Provenance, Spec};
use trace::Trace;

/// The all-reduces of a trace: of each message the median of what it took from the last rank's arrival to the end.
/// `message_bytes` is the message of a trace that another engine wrote and that does not say it, `p2p` how its GPUs talked. A pass over the spans.
///
/// # Errors
///
/// Input errors: numbers that were not measured, a run whose all-reduces are not NCCL's alone on the link, a trace of one
/// rank or without a message's size, no all-reduce.
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
    if let Some((what, help)) = meta.spec.as_ref().and_then(|spec| unfit(spec, p2p)) {
        return Err(Error::input_help(format!("{name} {what}"), help));
    }
    let (ranks, points) = match &meta.spec {
        Some(spec) => (spec.tp, of_plan(trace)),
        None => of_others(name, trace, message_bytes)?,
    };
    if points.is_empty() {
        return Err(Error::input(format!("{name} has no all-reduce")));
    }
    let told =
        |value: Option<&serde_json::Value>| value.and_then(|value| value.as_str()).map(str::to_owned);
    let gpu = told(meta.environment.get("gpus").map(|gpus| &gpus[0]["name"]));
    let version = told(meta.environment.get("nccl"));
    Ok(AllReduces {
        origin: "a trace",
        ranks,
        gpu,
        in_graph: None,
        version,
        points,
        warnings: Vec::new(),
    })
}

/// What keeps a run's all-reduces from being the link's, and what to do instead: a profile's points are of NCCL's all-reduces
/// beside which nothing runs.
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

/// Of a run of our own: every all-reduce knows its message.
fn of_plan(trace: &Trace) -> Vec<(u64, f64)> {
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

/// All-reduces of another engine's ranks that may be the link's at one TP.
#[derive(Default)]
struct Candidates {
    /// Transfer times (us) by message bytes; 0 where the trace does not tell the size.
    by_bytes: BTreeMap<u64, Vec<f64>>,
    count: usize,
}

/// Of another engine's ranks: matched all-reduces by message size, of tensor parallelism's groups where the trace describes
/// these, and of the group size that most of them have.
fn of_others(name: &str, trace: &Trace, message_bytes: Option<u64>) -> Result<(u32, Vec<(u64, f64)>)> {
    let matching = Matching::of(trace);
    let clocks = Clocks::of(trace, &matching);
    let recorded: BTreeSet<u32> = trace.spans.iter().map(|span| span.rank).collect();
    // by whether a group is of tensor parallelism, and its size
    let mut found: BTreeMap<(bool, u32), Candidates> = BTreeMap::new();
    let mut largest = 0;
    for collective in matching.collectives() {
        let span = &trace.spans[collective.places[0]];
        let Some(operation) = trace.operations.get(span.operation as usize) else { continue };
        if operation.kind != "all_reduce" {
            continue;
        }
        let info = operation.collective.as_ref();
        let group = info.and_then(|info| trace.meta.groups.get(info.group? as usize));
        let ranks = collective.places.len() as u32;
        // without the ranks that are missing, nobody knows when the last one arrived
        if collective.is_partial {
            let sizes = || trace.meta.groups.iter().map(|group| group.size).max();
            largest = largest.max(group.map_or_else(|| sizes().unwrap_or(0), |group| group.size));
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
        }
    }
    let best = found
        .into_iter()
        .max_by_key(|((is_tensor, ranks), candidates)| (*is_tensor, candidates.count, *ranks));
    let Some(((_, ranks), mut candidates)) = best else {
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
    if candidates.by_bytes.remove(&0).is_some() && candidates.by_bytes.is_empty() {
        return Err(Error::input_help(
            format!("{name} does not tell how large its messages are"),
            "say it with --message-bytes: batch x hidden size x bytes of a number",
        ));
    }
    let point = |(bytes, took): (u64, Vec<f64>)| Some((bytes, median(&took)?));
    Ok((ranks, candidates.by_bytes.into_iter().filter_map(point).collect()))
}

#[cfg(test)]
mod tests;
