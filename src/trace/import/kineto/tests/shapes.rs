//! Operators that launched kernels: their shapes, which kernels are the first of a call, and launch details read again
//! from the files.

use super::*;
use crate::Product;
use crate::import::{KernelLaunch, kernel, open};

const MM: &str =
    r#""Input type": ["c10::BFloat16", "c10::BFloat16"], "Input Dims": [[888, 2880], [2880, 640]]"#;
const ADDMM: &str = r#""Input type": ["c10::BFloat16", "c10::BFloat16", "c10::BFloat16", "Scalar", "Scalar"],
    "Input Dims": [[640], [888, 2880], [2880, 640], [], []]"#;
const LINEAR: &str = r#""Input type": ["c10::BFloat16", "c10::BFloat16", "c10::BFloat16"],
    "Input Dims": [[888, 2880], [640, 2880], [640]]"#;
const FLOPS: u64 = 2 * 888 * 2880 * 640;

/// An operator of thread 1.
fn operator(name: &str, time: (u32, u32), arguments: &str) -> String {
    complete(["cpu_op", name], (1, 1), time, &format!(r#""External id": 3, {arguments}"#))
}

/// A launch of thread 1 and its kernel.
fn launched(name: &str, ts: u32, correlation: u32) -> [String; 2] {
    let more = format!(r#", "correlation": {correlation}"#);
    [call(name, 1, (ts, 2), correlation), on_stream("kernel", "gemm", (ts + 5000, 9), &more)]
}

/// Name of the operator, floating-point operations and whether it is the first of its call, of each kernel.
fn kernels(list: &[String]) -> Vec<(String, Option<(u64, bool)>)> {
    let trace = read(&events(list));
    assert_accounted(&trace);
    let work = |product: &Product| (product.flops, product.is_first);
    let spans = trace.spans.iter().map(|span| span.launched.operator);
    let site = |at: u32| {
        let name = trace.meta.range_names.get(at as usize).cloned().unwrap_or_default();
        (name, trace.meta.products.get(&at).map(work))
    };
    spans.map(site).collect()
}

fn site(name: &str, work: Option<(u64, bool)>) -> (String, Option<(u64, bool)>) {
    (name.into(), work)
}

#[test]
fn kernels_have_the_shapes_of_the_innermost_operator() {
    let mut list = vec![
        operator("aten::linear", (1000, 100), LINEAR),
        operator("aten::addmm", (1010, 50), ADDMM),
        operator("aten::linear", (1200, 100), LINEAR),
        operator("aten::copy_", (1210, 20), MM),
        // launches nothing
        operator("aten::mm", (1400, 50), MM),
    ];
    list.extend(launched("cudaLaunchKernel", 1020, 1));
    list.extend(launched("cudaLaunchKernel", 1215, 2));
    list.extend(launched("cudaLaunchKernel", 1250, 3));
    let linear = site("aten::linear", Some((FLOPS, true)));
    assert_eq!(
        kernels(&list),
        [site("aten::addmm", Some((FLOPS, true))), site("aten::copy_", None), linear]
    );
}

#[test]
fn one_kernel_of_a_call_is_its_first() {
    let mut list = vec![
        operator("aten::mm", (1000, 100), MM),
        operator("aten::mm", (1200, 100), MM),
        operator(
            "aten::mm",
            (1400, 100),
            r#""Input Dims": [[4, 8], [8, 2]], "Input type": ["float", "float"]"#,
        ),
    ];
    // a kernel, and one that adds up its parts
    list.extend(launched("cudaLaunchKernel", 1020, 1));
    list.extend(launched("cudaLaunchKernel", 1030, 2));
    list.extend(launched("cuLaunchKernelEx", 1210, 3));
    list.extend(launched("cudaLaunchKernel", 1230, 4));
    list.extend(launched("cudaLaunchKernel", 1240, 5));
    list.extend(launched("cudaLaunchKernel", 1410, 6));
    let of = |flops, is_first| site("aten::mm", Some((flops, is_first)));
    let [first, later] = [of(FLOPS, true), of(FLOPS, false)];
    let [a, b] = [[first.clone(), later.clone()], [first, later.clone()]];
    assert_eq!(kernels(&list), [&a[..], &b, &[later], &[of(2 * 4 * 8 * 2, true)]].concat());
}

#[test]
fn work_without_certain_shapes_has_none() {
    let mut list = vec![
        operator("aten::mm", (1000, 100), r#""Ev Idx": 3"#),
        operator(
            "aten::mm",
            (1200, 100),
            r#""Input Dims": [[4, 8], [9, 2]], "Input type": ["float", "float"]"#,
        ),
        operator(
            "aten::mm",
            (1400, 100),
            r#""Input Dims": "[[4, 8], [8, 2]]", "Input type": ["float", "float"]"#,
        ),
        // a replay runs kernels that were launched when the graph was captured
        operator("aten::mm", (1600, 100), MM),
        operator("aten::relu", (1800, 100), MM),
    ];
    list.extend(launched("cudaLaunchKernel", 1010, 1));
    list.extend(launched("cudaLaunchKernel", 1210, 2));
    list.extend(launched("cudaLaunchKernel", 1410, 3));
    list.extend(launched("cudaGraphLaunch", 1610, 4));
    list.extend(launched("cudaLaunchKernel", 1810, 5));
    let none = ["aten::mm", "aten::mm", "aten::mm", "cudaGraphLaunch", "aten::relu"];
    assert_eq!(kernels(&list), none.map(|name| site(name, None)));
}

#[test]
fn spelling_and_blanks_of_arguments_do_not_matter() {
    let older = MM.replace("Input Dims", "Input dims");
    let mut list = vec![
        operator("aten::mm", (1000, 100), &older),
        operator("aten::mm", (1200, 100), &MM.replace(", [", " ,\n  [ ")),
    ];
    list.extend(launched("cudaLaunchKernel", 1010, 1));
    list.extend(launched("cudaLaunchKernel", 1210, 2));
    let mm = site("aten::mm", Some((FLOPS, true)));
    assert_eq!(kernels(&list), [mm.clone(), mm]);
}

/// A file with a kernel whose operator is linked, one whose operator is only around its call, and one alone.
fn file(base: Option<i64>) -> String {
    let events = events(&[
        r#""ph": "X", "cat": "cpu_op", "name": "aten::outer", "pid": 9, "tid": 5, "ts": 0, "dur": 50, "args": {"External id": 3}"#,
        r#""ph": "X", "cat": "kernel", "name": "gemm<\u0034>", "pid": 0, "tid": 7, "ts": 20, "dur": 10, "args": {"stream": 7, "correlation": 11, "External id": 4, "grid": [8, 2, 1], "block": [128, 1, 1]}"#,
        r#""ph": "X", "cat": "cuda_runtime", "name": "cudaLaunchKernel", "pid": 9, "tid": 5, "ts": 12, "dur": 2, "args": {"correlation": 11}"#,
        r#""ph": "X", "cat": "cpu_op", "name": "aten::mm", "pid": 9, "tid": 5, "ts": 10, "dur": 9, "args": {"External id": 4}"#,
        r#""ph": "X", "cat": "cpu_op", "name": "aten::add", "pid": 9, "tid": 5, "ts": 30, "dur": 9"#,
        r#""ph": "X", "cat": "cpu_op", "name": "aten::else", "pid": 9, "tid": 6, "ts": 31, "dur": 9"#,
        r#""ph": "X", "cat": "cuda_runtime", "name": "cuLaunchKernelEx", "pid": 9, "tid": 5, "ts": 33, "dur": 2, "args": {"correlation": 12}"#,
        r#""ph": "X", "cat": "kernel", "name": "add", "pid": 0, "tid": 7, "ts": 40, "dur": 10, "args": {"stream": 7, "correlation": 12}"#,
        r#""ph": "X", "cat": "kernel", "name": "add", "pid": 0, "tid": 7, "ts": 60, "dur": 10, "args": {"stream": 7}"#,
    ]);
    let base = base.map_or(String::new(), |ns| format!("\"baseTimeNanoseconds\": {ns}, "));
    format!("{{{base}\"traceEvents\": {events}}}")
}

fn launches(trace: &Trace, rank: u32) -> Vec<KernelLaunch> {
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
        KernelLaunch {
            grid: Some([8, 2, 1]),
            block: Some([128, 1, 1]),
            correlation: Some(11),
            call: Some("cudaLaunchKernel".into()),
            operator: Some("aten::mm".into()),
        },
        KernelLaunch {
            correlation: Some(12),
            call: Some("cuLaunchKernelEx".into()),
            operator: Some("aten::add".into()),
            ..KernelLaunch::default()
        },
        KernelLaunch::default(),
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
