//! All-reduce latencies from a trace, measured from the last rank's arrival. Message sizes come from the plan
//! or the trace's arguments, else from the user.

use std::collections::{BTreeMap, BTreeSet};

use super::AllReduces;
use crate::analysis::{Clocks, CollectiveMatching};
use base::error::{Error, Result};
use base::statistics::median;
use plan::Architecture;
use table::{Collective, P2p, Provenance, Spec};
use trace::{OperationKind, Trace};

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
        let problem =
            format!("{name} is {}, so its all-reduces have the requested latency", meta.provenance);
        return Err(Error::input_help(problem, "pass a trace of a run over the machine's own links"));
    }
    trace.require_no_doubt(&format!("{name} measures no link"))?;
    if let Some((what, help)) = meta.spec.as_ref().and_then(|spec| unfit(spec, p2p)) {
        return Err(Error::input_help(format!("{name} {what}"), help));
    }
    let (ranks, points, warnings) = match &meta.spec {
        Some(spec) => (spec.tp, points_of_plan(trace), Vec::new()),
        None => points_of_import(name, trace, message_bytes)?,
    };
    if points.is_empty() {
        return Err(Error::input(format!("{name} has no all-reduce")));
    }
    let text =
        |value: Option<&serde_json::Value>| value.and_then(|value| value.as_str()).map(str::to_owned);
    let gpu = text(meta.environment.get("gpus").map(|gpus| &gpus[0]["name"]));
    let version = text(meta.environment.get("nccl"));
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
        let what = format!("is a run of {label}, whose all-reduces overlap with compute");
        return Some((what, again("--architecture standard and one micro-batch")));
    }
    (spec.p2p != p2p).then(|| {
        (format!("was run with P2P {}", spec.p2p.as_str()), format!("say --p2p {}", spec.p2p.as_str()))
    })
}

/// Message bytes, and median transfer time (us).
type Points = Vec<(u64, f64)>;

/// Points of our own run, whose plan gives each message size.
fn points_of_plan(trace: &Trace) -> Points {
    let mut by: BTreeMap<u64, Vec<f64>> = BTreeMap::new();
    for span in &trace.spans {
        let Some(operation) = trace.operations.get(span.operation as usize) else { continue };
        if operation.kind != OperationKind::AllReduce {
            continue;
        }
        let bytes = trace.step(span).map_or(0, |step| operation.cost.message_bytes.at(&step));
        let latency_ns = span.end_ns.saturating_sub(span.start_ns.max(span.last_arrival_ns));
        if bytes > 0 && latency_ns > 0 {
            by.entry(bytes).or_default().push(latency_ns as f64 / 1e3);
        }
    }
    by.into_iter().filter_map(|(bytes, latencies)| Some((bytes, median(&latencies)?))).collect()
}

/// All-reduces of one group size.
#[derive(Default)]
struct Candidates {
    /// Transfer times (us) by message bytes; 0 if the trace lacks the size.
    by_bytes: BTreeMap<u64, Vec<f64>>,
    count: usize,
    /// Kinds of their process groups: `DP`.
    kinds: BTreeSet<String>,
}

/// All-reduces of an imported trace.
#[derive(Default)]
struct MatchedAllReduces {
    /// By whether the group is tensor parallel, and its size.
    by_group: BTreeMap<(bool, u32), Candidates>,
    /// All-reduces of which not all ranks were recorded, and the largest of their groups.
    partial: usize,
    largest_partial: u32,
}

impl MatchedAllReduces {
    /// Matches the all-reduces of all ranks; those of another size than `message_bytes` are left out.
    fn new(trace: &Trace, message_bytes: Option<u64>) -> Self {
        let matching = CollectiveMatching::from_trace(trace);
        let clocks = Clocks::new(trace, &matching);
        let mut matched = Self::default();
        for collective in matching.collectives() {
            let span = &trace.spans[collective.places[0]];
            let Some(operation) = trace.operations.get(span.operation as usize) else { continue };
            if operation.kind != OperationKind::AllReduce {
                continue;
            }
            let info = operation.collective.as_ref();
            let group = info.and_then(|info| trace.meta.groups.get(info.group? as usize));
            let ranks = collective.places.len() as u32;
            // without all ranks, the last arrival is unknown
            if collective.is_partial {
                let sizes = || trace.meta.groups.iter().map(|group| group.size).max();
                let size = group.map_or_else(|| sizes().unwrap_or(0), |group| group.size);
                matched.largest_partial = matched.largest_partial.max(size);
                matched.partial += 1;
                continue;
            }
            let is_tensor = group.is_some_and(|group| group.kind() == "TP");
            let bytes = info.and_then(|info| info.message_bytes);
            if bytes.is_some() && message_bytes.is_some_and(|wanted| bytes != Some(wanted)) {
                continue;
            }
            let moved = matching.arrived(trace, &clocks, &collective).mean_moved();
            if moved > 0 {
                let candidates = matched.by_group.entry((is_tensor, ranks)).or_default();
                let bytes = bytes.or(message_bytes).unwrap_or(0);
                candidates.by_bytes.entry(bytes).or_default().push(moved as f64 / 1e3);
                candidates.count += 1;
                candidates.kinds.extend(group.map(trace::ProcessGroup::kind));
            }
        }
        matched
    }

    /// Takes out the all-reduces to use, with their group size: of tensor-parallel groups if the trace describes
    /// them, then of the most frequent size.
    fn take_best(&mut self) -> Option<(u32, Candidates)> {
        let best = self
            .by_group
            .iter()
            .max_by_key(|((is_tensor, ranks), candidates)| (*is_tensor, candidates.count, *ranks))
            .map(|(key, _)| *key)?;
        Some((best.1, self.by_group.remove(&best)?))
    }

    /// Error of a trace without a usable all-reduce.
    fn unusable(&self, name: &str, trace: &Trace, message_bytes: Option<u64>) -> Error {
        let recorded: BTreeSet<u32> = trace.spans.iter().map(|span| span.rank).collect();
        let help = "pass a directory with the traces of all ranks";
        if recorded.len() < 2 {
            let problem = "has one rank, so waiting cannot be separated from transfer";
            return Error::input_help(format!("{name} {problem}"), help);
        }
        if self.largest_partial > 0 {
            let problem = format!(
                "{name} has all-reduces over {} ranks, but not the traces of all of them",
                self.largest_partial
            );
            return Error::input_help(problem, help);
        }
        let size = message_bytes.map_or(String::new(), |bytes| format!(" of {bytes} bytes"));
        Error::input(format!("{name} has no all-reduce{size} that all recorded ranks take part in"))
    }

    /// Describes the all-reduces that are not used.
    fn left_out(&self) -> Vec<String> {
        let groups = self.by_group.iter().map(|((_, ranks), Candidates { count, kinds, .. })| {
            let kinds: Vec<&str> = kinds.iter().map(String::as_str).collect();
            let of_kinds =
                if kinds.is_empty() { String::new() } else { format!(" ({})", kinds.join(", ")) };
            format!("{count} over {ranks} ranks{of_kinds}")
        });
        let partial =
            (self.partial > 0).then(|| format!("{} of which not all ranks were recorded", self.partial));
        groups.chain(partial).collect()
    }
}

/// Ranks and points of another engine's trace, by message size, with a sentence on the all-reduces that are not used.
fn points_of_import(
    name: &str,
    trace: &Trace,
    message_bytes: Option<u64>,
) -> Result<(u32, Points, Vec<String>)> {
    let mut matched = MatchedAllReduces::new(trace, message_bytes);
    let Some((ranks, mut candidates)) = matched.take_best() else {
        return Err(matched.unusable(name, trace, message_bytes));
    };
    let without_size = candidates.by_bytes.remove(&0).map_or(0, |times| times.len());
    if without_size > 0 && candidates.by_bytes.is_empty() {
        return Err(Error::input_help(
            format!("{name} does not record message sizes"),
            "say it with --message-bytes: batch x hidden size x bytes of a number",
        ));
    }
    let mut left_out = matched.left_out();
    left_out.extend((without_size > 0).then(|| format!("{without_size} without a message size")));
    let used: Vec<String> = candidates.kinds.into_iter().collect();
    let of_groups =
        if used.is_empty() { String::new() } else { format!(" of {} groups", used.join(" and ")) };
    let warning = (!left_out.is_empty()).then(|| {
        let ignored = left_out.join(", ");
        format!("using all-reduces{of_groups} over {ranks} ranks; ignored: {ignored}")
    });
    let point = |(bytes, latencies): (u64, Vec<f64>)| Some((bytes, median(&latencies)?));
    let points = candidates.by_bytes.into_iter().filter_map(point).collect();
    Ok((ranks, points, warning.into_iter().collect()))
}

#[cfg(test)]
mod tests {
    //! All-reduces of traces with process groups, as PyTorch's profiler writes them.

    use std::path::Path;

    use super::*;
    use trace::import::open;

    /// The trace of one rank of TP 2 x DP 2: in each step two all-reduces of its TP group (16 KB), which end together, and one of
    /// its DP group (4 MB) that takes longer. Ranks of a pair compute for other times; the second pair is slower.
    fn rank_trace(rank: u32) -> String {
        let (pair, within) = (rank / 2, rank % 2);
        let (tp, dp) = ([2 * pair, 2 * pair + 1], [within, within + 2]);
        let mut events = Vec::new();
        let mut kernel = |name: &str, stream: u32, at: i64, length: i64, more: &str| {
            events.push(format!(
            r#"{{"ph": "X", "cat": "kernel", "name": "{name}", "pid": 0, "tid": {stream}, "ts": {at}, "dur": {length}, "args": {{"device": 0, "stream": {stream}{more}}}}}"#
        ));
        };
        let group = |name: u32, description: &str, ranks: [u32; 2], elements: u32| {
            format!(
                r#", "Collective name": "allreduce", "In msg nelems": {elements}, "Out msg nelems": {elements}, "Group size": 2, "dtype": "BFloat16", "Process Group Name": "{name}", "Process Group Description": "{description}", "Process Group Ranks": "[{}, {}]""#,
                ranks[0], ranks[1]
            )
        };
        const NAME: &str = "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(x)";
        let mut now = 10_000;
        for step in 1..=6 {
            for part in 0..2 {
                // ranks take turns to be 200 us late
                let late = if part == i64::from(within) { 200 } else { 0 };
                let compute = 300 + 500 * i64::from(pair);
                kernel("gemm", 7, now, compute + late, "");
                let begin = now + compute + late;
                let end = now + compute + 200 + 40;
                kernel(NAME, 20, begin, end - begin, &group(1 + pair, "TP", tp, 8192));
                now = end;
            }
            // ends when the slower pair, which begins last, has passed its data
            let end = 10_000 + 2_980 * step;
            kernel(NAME, 24, now, end - now, &group(3 + within, "DP", dp, 2 << 20));
            now = end;
        }
        format!(
            r#"{{"distributedInfo": {{"rank": {rank}, "world_size": 4}}, "traceEvents": [{}]}}"#,
            events.join(",")
        )
    }

    fn recorded(dir: &Path, ranks: impl IntoIterator<Item = u32>) -> Trace {
        for rank in ranks {
            std::fs::write(dir.join(format!("rank{rank}.json")), rank_trace(rank)).unwrap();
        }
        open(dir).unwrap()
    }

    #[test]
    fn all_reduces_of_tensor_parallelism_are_found_with_their_size() {
        let dir = tempfile::tempdir().unwrap();
        let trace = recorded(dir.path(), 0..4);
        let found = all_reduces_of("t", &trace, P2p::On, None).unwrap();
        assert_eq!((found.ranks, &found.points[..]), (2, &[(16_384, 40.0)][..]));
        let said = "using all-reduces of TP groups over 2 ranks; ignored: 12 over 2 ranks (DP)";
        assert_eq!(found.warnings, [said]);
        let same = all_reduces_of("t", &trace, P2p::On, Some(16_384)).unwrap();
        assert_eq!(same.points, found.points);
        let other = all_reduces_of("t", &trace, P2p::On, Some(512)).unwrap_err().to_string();
        assert!(other.contains("no all-reduce of 512 bytes"), "{other}");
    }

    #[test]
    fn without_the_traces_of_all_ranks_of_a_group_its_all_reduces_are_refused() {
        let dir = tempfile::tempdir().unwrap();
        let trace = recorded(dir.path(), [0]);
        let error = all_reduces_of("t", &trace, P2p::On, None).unwrap_err().to_string();
        assert!(error.contains("has one rank"), "{error}");
        // ranks 0 and 3 share no group
        let dir = tempfile::tempdir().unwrap();
        let trace = recorded(dir.path(), [0, 3]);
        let error = all_reduces_of("t", &trace, P2p::On, None).unwrap_err().to_string();
        assert!(error.contains("no all-reduce that all recorded ranks take part in"), "{error}");
        // ranks 0 and 2 share one of data parallelism
        let dir = tempfile::tempdir().unwrap();
        let trace = recorded(dir.path(), [0, 2]);
        let found = all_reduces_of("t", &trace, P2p::On, None).unwrap();
        assert_eq!((found.ranks, found.points[0].0), (2, 4 << 20));
    }

    #[test]
    fn several_group_sizes_are_never_mixed() {
        let dir = tempfile::tempdir().unwrap();
        for rank in 0..4 {
            let text =
                rank_trace(rank).replace("\"TP\"", "\"undefined\"").replace("\"DP\"", "\"undefined\"");
            // what was data parallelism's is of all four ranks
            let all = r#""Group size": 4, "dtype": "BFloat16", "Process Group Name": "0""#;
            let mut parts =
                text.split("\"Group size\": 2, \"dtype\": \"BFloat16\", \"Process Group Name\": ");
            let mut whole = parts.next().unwrap().to_owned();
            for part in parts {
                let is_large = part.starts_with("\"3\"") || part.starts_with("\"4\"");
                whole += &match is_large {
                    true => {
                        let rest = &part[3..];
                        let (before, after) = rest.split_once("\"[").unwrap();
                        let (_, after) = after.split_once(']').unwrap();
                        format!("{all}{before}\"[0, 1, 2, 3]{after}")
                    }
                    false => {
                        format!(
                            "\"Group size\": 2, \"dtype\": \"BFloat16\", \"Process Group Name\": {part}"
                        )
                    }
                };
            }
            std::fs::write(dir.path().join(format!("rank{rank}.json")), whole).unwrap();
        }
        let trace = open(dir.path()).unwrap();
        let sizes: Vec<u32> = trace.meta.groups.iter().map(|group| group.size).collect();
        assert!(sizes.contains(&4) && sizes.contains(&2), "{sizes:?}");
        // twice as many over two ranks
        let found = all_reduces_of("t", &trace, P2p::On, None).unwrap();
        assert_eq!((found.ranks, &found.points[..]), (2, &[(16_384, 40.0)][..]));
    }
}
