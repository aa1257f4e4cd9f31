//! Matrix products and attention by operator, shape and data type, with their speed and share of the GPU's peak.

use std::collections::HashMap;

use serde::Serialize;

use base::statistics::distinct;
use machine::hardware::Profile;
use table::render::{Shown, Table};
use trace::overlap::{Class, SpanRuns, starts, us};
use trace::{OperationInfo, Product};

/// Calls of one operator with operands of one shape and data type. Counts kernels that the operator launched itself,
/// not through another operator; kernels cut by a selection count whole.
#[derive(Clone, Debug, PartialEq, Serialize, schemars::JsonSchema)]
pub struct ProductRow {
    /// Operator: `aten::addmm`.
    pub operator: String,
    /// Shapes of the operands: `[888, 2880] x [2880, 640]`.
    pub shape: String,
    /// Element type of the operands: `bf16`, `f32`, `fp8_e4m3fn`.
    pub dtype: String,
    /// Calls, over all ranks.
    pub count: u64,
    /// Kernels, copies and fills launched by the calls, over all ranks.
    pub kernels: u64,
    /// Total duration per rank, averaged over ranks (us).
    pub total_us: f64,
    pub mean_us: f64,
    pub flops: u64,
    /// Bytes of a call's inputs and output, each counted once: the minimum traffic.
    pub bytes: u64,
    /// Arithmetic throughput (TFLOP/s).
    pub tflop_s: f64,
    /// Share of the profile's peak for the data type (%); null without a profile or peak.
    pub mfu_pct: Option<f64>,
    /// Minimum traffic over time (GB/s): a lower bound on bandwidth.
    pub gb_s: f64,
    /// Share of the profile's memory bandwidth (%); above 100 if operands are cached. Null without a profile.
    pub bandwidth_pct: Option<f64>,
    /// Limiting resource, `compute` or `memory`: the one that needs more time at its peak; null without a peak.
    pub limit: Option<&'static str>,
    #[serde(skip)]
    sums: Sums,
}

#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Sums {
    count: u64,
    kernels: u64,
    time_ns: i64,
    flops: f64,
    bytes: f64,
    /// True if a kernel's name says that it rounds to TF32.
    is_tf32: bool,
}

/// Model FLOPs utilisation of all products together.
#[derive(Clone, Debug, PartialEq, Serialize, schemars::JsonSchema)]
pub struct Mfu {
    /// Hardware profile that provides the peaks; null if none fits.
    pub profile: Option<String>,
    /// Share of the compute lane's kernel time spent in products (%); with a profile, only in products with a peak.
    pub compute_pct: f64,
    /// Arithmetic throughput of these products (TFLOP/s).
    pub tflop_s: f64,
    /// Share of the peak while these products ran (%); null without a profile.
    pub kernel_mfu_pct: Option<f64>,
    /// Share of the peak over the whole time from a rank's first start to its last end (%); null without a profile.
    pub mfu_pct: Option<f64>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, schemars::JsonSchema)]
pub struct Products {
    /// Rows by operator, shape and data type, the longest first; empty if the trace records no shapes.
    #[serde(rename = "products")]
    pub rows: Vec<ProductRow>,
    /// Totals; null if there are no products.
    pub mfu: Option<Mfu>,
    /// Kernel time on the compute lane; `span_ns` is the time from first start to last end. Both over all ranks.
    #[serde(skip)]
    compute_ns: i64,
    #[serde(skip)]
    span_ns: i64,
}

/// True if the kernel's name says that an f32 product rounds its operands to TF32.
fn is_tf32(operation: &OperationInfo) -> bool {
    let name = operation.name.to_ascii_lowercase();
    ["tf32", "s1688gemm", "s1688_"].iter().any(|word| name.contains(word))
}

impl Products {
    /// Collects the products of the selected part of a trace; `span_ns` is the total span of its ranks. One pass over
    /// the spans if the trace records products.
    pub(super) fn new(runs: &SpanRuns, span_ns: i64) -> Self {
        let meta = &runs.trace.meta;
        if meta.products.is_empty() {
            return Self::default();
        }
        let name = |number: &u32| meta.range_names.get(*number as usize).map(String::as_str);
        let mut numbers: HashMap<(&str, &str, &str), usize> = HashMap::new();
        // by number of the operator
        let mut calls: HashMap<u32, (usize, &Product)> = HashMap::new();
        for (number, product) in &meta.products {
            let Some(operator) = name(number) else { continue };
            let next = numbers.len();
            let row = *numbers.entry((operator, &product.shape, &product.dtype)).or_insert(next);
            calls.insert(*number, (row, product));
        }
        let tf32: Vec<bool> = runs.trace.operations.iter().map(is_tf32).collect();
        let mut sums = vec![Sums::default(); numbers.len()];
        let mut compute_ns = 0i64;
        runs.each(runs.by_rank.iter().flatten(), |span, piece| {
            if !starts(span, piece) {
                return;
            }
            let class = runs.class(span);
            let duration = span.end_ns.saturating_sub(span.start_ns).max(0);
            if class == Class::Compute {
                compute_ns = compute_ns.saturating_add(duration);
            }
            let Some((row, product)) = calls.get(&span.launched.operator) else { return };
            if class == Class::Comm {
                return;
            }
            let sums = &mut sums[*row];
            sums.kernels += 1;
            sums.time_ns = sums.time_ns.saturating_add(duration);
            sums.is_tf32 |= tf32.get(span.operation as usize) == Some(&true);
            if product.is_first {
                sums.count += 1;
                sums.flops += product.flops as f64;
                sums.bytes += product.bytes as f64;
            }
        });
        let ranks = runs.ranks.len();
        let of_row = |((operator, shape, dtype), at): (&(&str, &str, &str), &usize)| {
            let sums = sums[*at];
            (sums.count > 0 && sums.time_ns > 0).then(|| ProductRow {
                operator: (*operator).into(),
                shape: (*shape).into(),
                dtype: (*dtype).into(),
                count: sums.count,
                kernels: sums.kernels,
                total_us: us(sums.time_ns) / ranks.max(1) as f64,
                mean_us: us(sums.time_ns) / sums.count as f64,
                flops: (sums.flops / sums.count as f64).round() as u64,
                bytes: (sums.bytes / sums.count as f64).round() as u64,
                tflop_s: sums.flops / sums.time_ns as f64 / 1e3,
                mfu_pct: None,
                gb_s: sums.bytes / sums.time_ns as f64,
                bandwidth_pct: None,
                limit: None,
                sums,
            })
        };
        let mut rows: Vec<ProductRow> = numbers.iter().filter_map(of_row).collect();
        let key = |row: &ProductRow| (row.operator.clone(), row.shape.clone(), row.dtype.clone());
        rows.sort_by(|a, b| b.sums.time_ns.cmp(&a.sums.time_ns).then_with(|| key(a).cmp(&key(b))));
        let mut products = Self { rows, mfu: None, compute_ns, span_ns };
        products.sum_up(None);
        products
    }

    pub fn rate(&mut self, profile: &Profile) {
        for row in &mut self.rows {
            row.bandwidth_pct = Some(100.0 * row.gb_s / profile.hbm_gb_s);
            let peak = peak(profile, row);
            row.mfu_pct = peak.map(|peak| 100.0 * row.tflop_s / peak);
            row.limit = row
                .mfu_pct
                .zip(row.bandwidth_pct)
                .map(|(arithmetic, memory)| if arithmetic >= memory { "compute" } else { "memory" });
        }
        self.sum_up(Some(profile));
    }

    /// Time that memory-bound products would save at the profile's bandwidth, as a share of `time_us` per rank, and the
    /// profile's name; `None` without such products.
    pub fn memory_slack(&self, profile: &Profile, time_us: f64) -> Option<(f64, String)> {
        let mut rated = self.clone();
        rated.rate(profile);
        let bound = rated.rows.iter().filter(|row| row.limit == Some("memory"));
        let saved: Vec<f64> = bound
            .map(|row| row.total_us * (1.0 - row.bandwidth_pct.unwrap_or(100.0) / 100.0).max(0.0))
            .collect();
        (!saved.is_empty() && time_us > 0.0)
            .then(|| (saved.iter().sum::<f64>() / time_us, profile.name.clone()))
    }

    fn sum_up(&mut self, profile: Option<&Profile>) {
        let counted = || self.rows.iter().filter(|row| profile.is_none() || row.mfu_pct.is_some());
        let time_ns: i64 = counted().map(|row| row.sums.time_ns).fold(0, i64::saturating_add);
        let flops: f64 = counted().map(|row| row.sums.flops).sum();
        // time that the operations need at the peaks of their data types
        let share = |row: &ProductRow| Some(row.mfu_pct? / 100.0 * row.sums.time_ns as f64);
        let at_peak: f64 = counted().filter_map(share).sum();
        let rated = |ns: i64| profile.filter(|_| ns > 0).map(|_| 100.0 * at_peak / ns as f64);
        self.mfu = (!self.rows.is_empty()).then(|| Mfu {
            profile: profile.map(|profile| profile.name.clone()),
            compute_pct: (100.0 * time_ns as f64 / self.compute_ns.max(1) as f64).min(100.0),
            tflop_s: if time_ns > 0 { flops / time_ns as f64 / 1e3 } else { 0.0 },
            kernel_mfu_pct: rated(time_ns),
            mfu_pct: rated(self.span_ns),
        });
    }

    pub fn notes(&self) -> Vec<String> {
        let Some(Mfu { profile: Some(profile), .. }) = &self.mfu else { return Vec::new() };
        let mut notes = vec![format!("MFU % and bandwidth % are relative to the peaks of {profile}")];
        let without = self.rows.iter().filter(|row| row.mfu_pct.is_none());
        let without =
            distinct(without.map(|row| if row.dtype == "f32" { "TF32" } else { row.dtype.as_str() }));
        if !without.is_empty() {
            notes
                .push(format!("no MFU for {}: no peak FLOP/s in profile {profile}", without.join(", ")));
        }
        if self.rows.iter().any(|row| row.mfu_pct.is_some_and(|share| share > 100.0)) {
            notes
                .push(format!("MFU above 100 %: the trace was recorded on a faster GPU than {profile}"));
        }
        if self.rows.iter().any(|row| row.bandwidth_pct.is_some_and(|share| share > 100.0)) {
            notes.push("more than 100 % of the memory bandwidth: operands were cached".into());
        }
        notes
    }
}

/// Peak for a row's data type (TFLOP/s). None for f32 products that ran as TF32, judged by kernel name or by a speed
/// above the f32 peak.
fn peak(profile: &Profile, row: &ProductRow) -> Option<f64> {
    let peaks = &profile.tflops;
    match row.dtype.as_str() {
        "bf16" => Some(peaks.bf16),
        "f16" => Some(peaks.f16),
        "f32" => Some(peaks.f32).filter(|peak| !row.sums.is_tf32 && row.tflop_s <= *peak),
        dtype if dtype.starts_with("fp8") => peaks.fp8,
        _ => None,
    }
}

pub fn products_table(rows: &[ProductRow]) -> Table {
    Table::from_rows(
        rows,
        &[
            ("~operator", &|r| Shown::text(&r.operator)),
            ("~shape", &|r| Shown::text(&r.shape)),
            ("dtype", &|r| Shown::text(&r.dtype)),
            ("count|count, all ranks", &|r| r.count.into()),
            ("kernels|", &|r| r.kernels.into()),
            ("total_us|total", &|r| Shown::Time(r.total_us)),
            ("mean_us|mean", &|r| Shown::Time(r.mean_us)),
            ("flops|", &|r| r.flops.into()),
            ("bytes|", &|r| r.bytes.into()),
            ("tflop_s|TFLOP/s", &|r| Shown::Number(r.tflop_s, 2)),
            ("mfu_pct|MFU %", &|r| Shown::number(r.mfu_pct, 1)),
            ("gb_s|GB/s", &|r| Shown::Number(r.gb_s, 1)),
            ("bandwidth_pct|bandwidth %", &|r| Shown::number(r.bandwidth_pct, 1)),
            ("limit", &|r| r.limit.into()),
        ],
    )
    .least(&["tflop_s", "gb_s", "limit", "dtype"])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::analysis::profile_events::{imported_file, kernel, launch};
    use crate::analysis::{TraceReport, trace_report};
    use trace::Trace;
    use trace::overlap::Selection;

    /// An operator's name, its dimensions and types, and its kernels with their durations (us).
    type Called<'a> = (&'a str, &'a str, &'a str, &'a [(&'a str, u32)]);

    /// A trace of these calls on a GPU.
    fn imported(gpu: &str, calls: &[Called<'_>]) -> Trace {
        let mut events = Vec::new();
        let mut at = 1000;
        for (name, dims, types, kernels) in calls {
            let around = 10 * kernels.len() + 10;
            events.push(format!(
                r#"{{"ph": "X", "cat": "cpu_op", "name": "{name}", "pid": 1, "tid": 1, "ts": {at}, "dur": {around}, "args": {{"Input Dims": {dims}, "Input type": {types}}}}}"#
            ));
            let mut start = at + 50;
            for (name, took) in *kernels {
                let call = at + 5;
                events
                    .extend([launch("cudaLaunchKernel", call, 1), kernel(name, 7, start, *took, call)]);
                start += took;
                at += 10;
            }
            at = start.max(at) + 100;
        }
        imported_file(&format!(
            r#"{{"deviceProperties": [{{"id": 0, "name": "{gpu}"}}], "traceEvents": [{}]}}"#,
            events.join(",")
        ))
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
}
