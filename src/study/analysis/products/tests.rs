use super::*;
use crate::analysis::{TraceReport, trace_report};
use trace::Trace;
use trace::import::kineto;
use trace::overlap::Selection;
use trace::rules::Rules;

/// An operator's name, its dimensions and types, and its kernels with their durations (us).
type Called<'a> = (&'a str, &'a str, &'a str, &'a [(&'a str, u32)]);

/// A trace of these calls on a GPU.
fn imported(gpu: &str, calls: &[Called<'_>]) -> Trace {
    let mut events = Vec::new();
    let (mut correlation, mut at) = (0, 1000);
    for (name, dims, types, kernels) in calls {
        let around = 10 * kernels.len() + 10;
        events.push(format!(
            r#"{{"ph": "X", "cat": "cpu_op", "name": "{name}", "pid": 1, "tid": 1, "ts": {at}, "dur": {around}, "args": {{"Input Dims": {dims}, "Input type": {types}}}}}"#
        ));
        let mut start = at + 50;
        for (kernel, took) in *kernels {
            correlation += 1;
            events.push(format!(
                r#"{{"ph": "X", "cat": "cuda_runtime", "name": "cudaLaunchKernel", "pid": 1, "tid": 1, "ts": {}, "dur": 3, "args": {{"correlation": {correlation}}}}}"#,
                at + 5
            ));
            events.push(format!(
                r#"{{"ph": "X", "cat": "kernel", "name": "{kernel}", "pid": 0, "tid": 7, "ts": {start}, "dur": {took}, "args": {{"device": 0, "stream": 7, "correlation": {correlation}}}}}"#
            ));
            start += took;
            at += 10;
        }
        at = start.max(at) + 100;
    }
    let json = format!(
        r#"{{"deviceProperties": [{{"id": 0, "name": "{gpu}"}}], "traceEvents": [{}]}}"#,
        events.join(",")
    );
    let mut trace = kineto::import_bytes("t.json", json.as_bytes(), kineto::Options::default()).unwrap();
    Rules::default().classify(&mut trace);
    trace
}

const BF16: &str = r#"["c10::BFloat16", "c10::BFloat16"]"#;
const F32: &str = r#"["float", "float"]"#;
const SQUARE: &str = "[[4096, 4096], [4096, 4096]]";
const H100: &str = "NVIDIA H100 80GB HBM3";

fn report(trace: &Trace) -> TraceReport {
    let mut report = trace_report(trace, &Selection::default());
    report.products.rate(&Profile::load("h100_sxm").unwrap());
    report
}

fn near(found: f64, wanted: f64) -> bool {
    (found / wanted - 1.0).abs() < 1e-9
}

#[test]
fn calls_of_a_shape_are_a_row_with_its_rates() {
    let reduced: &[(&str, u32)] = &[("gemm", 180), ("splitKreduce_kernel", 20)];
    let trace = imported(
        H100,
        &[
            ("aten::mm", SQUARE, BF16, reduced),
            ("aten::mm", SQUARE, BF16, reduced),
            ("aten::mm", "[[1, 4096], [4096, 4096]]", BF16, &[("gemv", 20)]),
            ("aten::mm", SQUARE, BF16, &[]),
            ("aten::relu", SQUARE, BF16, &[("relu", 80)]),
        ],
    );
    let report = report(&trace);
    let [product, vector] = &report.products.rows[..] else { panic!("{:?}", report.products) };
    let flops = 2.0 * 4096f64.powi(3);
    assert_eq!((product.count, product.kernels, product.flops), (2, 4, flops as u64));
    assert_eq!((product.total_us, product.mean_us), (400.0, 200.0));
    assert_eq!(product.bytes, 3 * 2 * 4096 * 4096);
    assert!(near(product.tflop_s, flops / 200e-6 / 1e12), "{product:?}");
    assert!(near(product.gb_s, 3.0 * 2.0 * 4096.0 * 4096.0 / 200e-6 / 1e9), "{product:?}");
    assert!(near(product.mfu_pct.unwrap(), 100.0 * product.tflop_s / 989.4));
    assert!(near(product.bandwidth_pct.unwrap(), 100.0 * product.gb_s / 3350.0));
    assert_eq!((product.limit, vector.limit), (Some("compute"), Some("memory")));
    assert_eq!((product.operator.as_str(), &*product.dtype), ("aten::mm", "bf16"));
    // 420 of 500 us on the compute lane
    let mfu = report.products.mfu.as_ref().unwrap();
    assert!(near(mfu.compute_pct, 84.0), "{mfu:?}");
    let all = 2.0 * flops + 2.0 * 4096.0 * 4096.0;
    assert!(near(mfu.tflop_s, all / 420e-6 / 1e12), "{mfu:?}");
    assert!(near(mfu.kernel_mfu_pct.unwrap(), 100.0 * mfu.tflop_s / 989.4), "{mfu:?}");
    let span = report.overlap.all.span_us;
    assert!(near(mfu.mfu_pct.unwrap(), mfu.kernel_mfu_pct.unwrap() * 420.0 / span), "{mfu:?}");
    // an operator stays one row among operators, whatever its shapes
    let operators: Vec<(&str, u64)> =
        report.operators.iter().map(|row| (row.name.as_str(), row.count)).collect();
    assert_eq!(operators, [("aten::mm", 5), ("aten::relu", 1)]);
}

#[test]
fn ranks_are_averaged_and_their_calls_summed() {
    let one = imported(H100, &[("aten::mm", SQUARE, BF16, &[("gemm", 200)])]);
    let mut two = one.clone();
    two.spans.extend(one.spans.iter().map(|span| trace::Span { rank: 1, ..*span }));
    let [one, two] = [&one, &two].map(|trace| report(trace).products.rows[0].clone());
    assert_eq!((two.count, two.total_us, two.tflop_s), (2, one.total_us, one.tflop_s));
}

#[test]
fn only_the_profiles_own_peaks_give_shares() {
    let fp8 = r#"["c10::Float8_e4m3fn", "c10::Float8_e4m3fn"]"#;
    let trace = imported(
        H100,
        &[
            ("aten::_scaled_mm", SQUARE, fp8, &[("nvjet", 100)]),
            ("aten::mm", SQUARE, F32, &[("sm80_xmma_gemm_f32f32_tf32f32_f32", 900)]),
            ("aten::mm", "[[4096, 2048], [2048, 4096]]", F32, &[("ampere_sgemm_128x128_nn", 1200)]),
            ("aten::mm", "[[2048, 4096], [4096, 4096]]", F32, &[("unnamed", 200)]),
            ("aten::mm", SQUARE, r#"["double", "double"]"#, &[("dgemm", 5000)]),
        ],
    );
    let report = report(&trace);
    let share = |dtype: &str, shape: &str| {
        let rows = &report.products.rows;
        let row = rows.iter().find(|row| row.dtype == dtype && row.shape.starts_with(shape));
        row.unwrap().mfu_pct
    };
    let rate = 2.0 * 4096f64.powi(3) / 1e12;
    assert!(near(share("fp8_e4m3fn", "").unwrap(), 100.0 * rate / 100e-6 / 1978.9));
    assert!(near(share("f32", "[4096, 2048]").unwrap(), 100.0 * rate / 2.0 / 1200e-6 / 66.9));
    // TF32 by its name, and for its speed
    assert_eq!(
        (share("f32", "[4096, 4096]"), share("f32", "[2048"), share("f64", "")),
        (None, None, None)
    );
    let notes = report.products.notes();
    assert_eq!(notes[0], "MFU % and bandwidth % are relative to the peaks of h100_sxm");
    assert_eq!(notes[1], "no MFU for f64, TF32: no peak FLOP/s in profile h100_sxm");
    // those with a peak alone count together
    let mfu = report.products.mfu.unwrap();
    assert!(near(mfu.compute_pct, 100.0 * 1300.0 / 7400.0), "{mfu:?}");
}

#[test]
fn without_a_profile_rates_have_no_shares() {
    let trace = imported("Tesla V100-SXM2-32GB", &[("aten::mm", SQUARE, BF16, &[("gemm", 200)])]);
    let products = trace_report(&trace, &Selection::default()).products;
    let row = &products.rows[0];
    assert_eq!((row.mfu_pct, row.bandwidth_pct, row.limit), (None, None, None));
    let mfu = products.mfu.as_ref().unwrap();
    assert_eq!((mfu.compute_pct, mfu.mfu_pct, &mfu.profile), (100.0, None, &None));
    assert_eq!(products.notes(), Vec::<String>::new());
    let nothing = imported(H100, &[("aten::relu", SQUARE, BF16, &[("relu", 80)])]);
    assert_eq!(trace_report(&nothing, &Selection::default()).products, Products::default());
}

#[test]
fn a_window_does_not_change_the_rate_of_a_kernel_that_it_cuts() {
    let trace = imported(H100, &[("aten::mm", SQUARE, BF16, &[("gemm", 200)])]);
    let window = Selection { to_ns: Some(1000), ..Selection::default() };
    let cut = trace_report(&trace, &window).products.rows;
    assert_eq!(cut, trace_report(&trace, &Selection::default()).products.rows);
}
