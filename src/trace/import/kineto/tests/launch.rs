//! What launched a kernel, looked up again in the files.

use super::*;
use crate::import::{Kernel, kernel, open};

/// A file with a kernel whose operator is linked, one whose operator is only around its call, and one alone.
fn file(base: Option<i64>) -> String {
    let event = |keys: &str| format!("{{{keys}}}");
    let events = [
        r#""ph": "X", "cat": "cpu_op", "name": "aten::outer", "pid": 9, "tid": 5, "ts": 0, "dur": 50, "args": {"External id": 3}"#,
        r#""ph": "X", "cat": "kernel", "name": "gemm<\u0034>", "pid": 0, "tid": 7, "ts": 20, "dur": 10, "args": {"stream": 7, "correlation": 11, "External id": 4, "grid": [8, 2, 1], "block": [128, 1, 1]}"#,
        r#""ph": "X", "cat": "cuda_runtime", "name": "cudaLaunchKernel", "pid": 9, "tid": 5, "ts": 12, "dur": 2, "args": {"correlation": 11}"#,
        r#""ph": "X", "cat": "cpu_op", "name": "aten::mm", "pid": 9, "tid": 5, "ts": 10, "dur": 9, "args": {"External id": 4}"#,
        r#""ph": "X", "cat": "cpu_op", "name": "aten::add", "pid": 9, "tid": 5, "ts": 30, "dur": 9"#,
        r#""ph": "X", "cat": "cpu_op", "name": "aten::else", "pid": 9, "tid": 6, "ts": 31, "dur": 9"#,
        r#""ph": "X", "cat": "cuda_runtime", "name": "cuLaunchKernelEx", "pid": 9, "tid": 5, "ts": 33, "dur": 2, "args": {"correlation": 12}"#,
        r#""ph": "X", "cat": "kernel", "name": "add", "pid": 0, "tid": 7, "ts": 40, "dur": 10, "args": {"stream": 7, "correlation": 12}"#,
        r#""ph": "X", "cat": "kernel", "name": "add", "pid": 0, "tid": 7, "ts": 60, "dur": 10, "args": {"stream": 7}"#,
    ];
    let events = events.map(event).join(",");
    let base = base.map_or(String::new(), |ns| format!("\"baseTimeNanoseconds\": {ns}, "));
    format!("{{{base}\"traceEvents\": [{events}]}}")
}

fn launches(trace: &Trace, rank: u32) -> Vec<Kernel> {
    let own = (0..trace.spans.len()).filter(|at| trace.spans[*at].rank == rank);
    own.map(|at| kernel(trace, at).unwrap().expect("it is in the file")).collect()
}

#[test]
fn a_kernel_tells_its_grid_its_call_and_its_operator() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("trace.json");
    std::fs::write(&path, file(None)).unwrap();
    let trace = open(&path).unwrap();
    let expected = [
        Kernel {
            grid: Some([8, 2, 1]),
            block: Some([128, 1, 1]),
            correlation: Some(11),
            call: Some("cudaLaunchKernel".into()),
            operator: Some("aten::mm".into()),
        },
        Kernel {
            correlation: Some(12),
            call: Some("cuLaunchKernelEx".into()),
            operator: Some("aten::add".into()),
            ..Kernel::default()
        },
        Kernel::default(),
    ];
    assert_eq!(launches(&trace, 0), expected, "linked, around the call, alone");
    std::fs::remove_file(&path).unwrap();
    assert_eq!(kernel(&trace, 0).unwrap(), None, "the file is gone");
}

#[test]
fn files_with_clocks_of_their_own_are_told_apart() {
    let directory = tempfile::tempdir().unwrap();
    for (rank, base) in [(0, 1_000), (1, 6_000)] {
        let path = directory.path().join(format!("rank{rank}.json"));
        std::fs::write(path, file(Some(base))).unwrap();
    }
    let trace = open(directory.path()).unwrap();
    assert_eq!(trace.meta.ranks, 2);
    for rank in 0..2 {
        let operators: Vec<_> = launches(&trace, rank).into_iter().map(|k| k.operator).collect();
        assert_eq!(operators, [Some("aten::mm".to_owned()), Some("aten::add".to_owned()), None]);
    }
}
