//! What all-reduces took in a trace, once their last rank was there: by message where the plan says how large it is, else of
//! the size that the user names.

use std::collections::BTreeMap;

use super::AllReduces;
use crate::base::error::{Error, Result};
use crate::base::statistics::median;
use crate::plan::Architecture;
use crate::study::analysis::arrivals;
use crate::table::{Collective, P2p, Provenance, Spec};
use crate::trace::Trace;
use crate::trace::overlap::Selection;

/// The all-reduces of a trace: of each message the median of what it took from the last rank's arrival to the end.
/// `message_bytes` is the message of a trace that another engine wrote, `p2p` how its GPUs talked. A pass over the spans.
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
    if meta.provenance != Provenance::Measured {
        let problem = format!("{name} is {}: its all-reduces take what was asked for", meta.provenance);
        return Err(Error::input_help(problem, "give a trace of a run over the machine's own links"));
    }
    if let Some((what, help)) = meta.spec.as_ref().and_then(|spec| unfit(spec, p2p)) {
        return Err(Error::input_help(format!("{name} {what}"), help));
    }
    let points = match &meta.spec {
        Some(_) => of_plan(trace),
        None => of_others(name, trace, message_bytes)?,
    };
    if points.is_empty() {
        return Err(Error::input(format!("{name} has no all-reduce")));
    }
    let told =
        |value: Option<&serde_json::Value>| value.and_then(|value| value.as_str()).map(str::to_owned);
    let ranks = meta.spec.as_ref().map_or(meta.ranks, |spec| spec.tp);
    let gpu = told(meta.environment.get("gpus").map(|gpus| &gpus[0]["name"]));
    let version = told(meta.environment.get("nccl"));
    Ok(AllReduces { origin: "a trace", ranks, gpu, in_graph: None, version, points })
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

/// Of another engine's ranks: all-reduces of one size, which the user knows.
fn of_others(name: &str, trace: &Trace, message_bytes: Option<u64>) -> Result<Vec<(u64, f64)>> {
    let Some(bytes) = message_bytes else {
        return Err(Error::input_help(
            format!("{name} does not tell how large its messages are"),
            "say it with --message-bytes: batch x hidden size x bytes of a number",
        ));
    };
    let Some(split) = arrivals(trace, &Selection::default()) else {
        return Err(Error::input_help(
            format!(
                "{name} is of one rank: what it waited for others cannot be told from what moving data took"
            ),
            "give a directory with the traces of all ranks",
        ));
    };
    let is_all_reduce = |name: &str| {
        let letters = name.chars().filter(char::is_ascii_alphanumeric).collect::<String>();
        letters.to_ascii_lowercase().contains("allreduce")
    };
    let reduces = split.collectives.iter().filter(|collective| is_all_reduce(&collective.name));
    let all = reduces.max_by_key(|collective| collective.count);
    let mean = all.map(|all| all.transfer_us / all.count.max(1) as f64).filter(|us| *us > 0.0);
    Ok(mean.map(|us| (bytes, us)).into_iter().collect())
}
