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
                    format!("\"Group size\": 2, \"dtype\": \"BFloat16\", \"Process Group Name\": {part}")
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
