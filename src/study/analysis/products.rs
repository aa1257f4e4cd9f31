//! Matrix products and attention by operator, shape and data type: how fast they ran, and what share of the GPU's peak
//! that is.

use std::collections::HashMap;

use serde::Serialize;

use machine::hardware::Profile;
use table::render::{Shown, Table};
use trace::overlap::{Class, Runs, us};
use trace::{OperationInfo, Product};

/// Calls of one operator with operands of one shape and data type. Kernels count that the operator launched itself, not
/// through another one, and whole where a selection cuts them.
#[derive(Clone, Debug, PartialEq, Serialize, schemars::JsonSchema)]
pub struct ProductRow {
    /// The operator: `aten::addmm`.
    pub operator: String,
    /// Shapes of the operands: `[888, 2880] x [2880, 640]`.
    pub shape: String,
    /// Type of the operands' elements: `bf16`, `f32`, `fp8_e4m3fn`.
    pub dtype: String,
    /// Calls, over all ranks.
    pub count: u64,
    /// Kernels, copies and fills that the calls launched, over all ranks.
    pub kernels: u64,
    /// Sum of their durations a rank, averaged over ranks (us).
    pub total_us: f64,
    /// Mean of a call (us).
    pub mean_us: f64,
    /// Floating-point operations of a call.
    pub flops: u64,
    /// Bytes of a call's inputs and output, each once: the least that it moves.
    pub bytes: u64,
    /// Floating-point operations over time (1e12 a second).
    pub tflop_s: f64,
    /// Share of the profile's peak for the data type (%); null without a profile or such a peak.
    pub mfu_pct: Option<f64>,
    /// Bytes over time (1e9 a second): a lower bound.
    pub gb_s: f64,
    /// Share of the profile's memory bandwidth (%); above 100 where operands lie in a cache. Null without a profile.
    pub bandwidth_pct: Option<f64>,
    /// The limit that takes longer at its peak: `compute` or `memory`; null without a peak.
    pub limit: Option<&'static str>,
    #[serde(skip)]
    sums: Sums,
}

/// Sums over the calls of a row, all ranks together.
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

/// Use of the GPU's arithmetic by all products together.
#[derive(Clone, Debug, PartialEq, Serialize, schemars::JsonSchema)]
pub struct Mfu {
    /// The hardware profile whose peaks count; null if none fits.
    pub profile: Option<String>,
    /// Share of the compute lane's kernel time in products (%): those with a peak where there is a profile.
    pub compute_pct: f64,
    /// Floating-point operations over the time of these products (1e12 a second).
    pub tflop_s: f64,
    /// Share of the peak while these products ran (%); null without a profile.
    pub kernel_mfu_pct: Option<f64>,
    /// Share of the peak over the whole time from a rank's first start to its last end (%); null without a profile.
    pub mfu_pct: Option<f64>,
}

/// Matrix products and attention of a trace.
#[derive(Clone, Debug, Default, PartialEq, Serialize, schemars::JsonSchema)]
pub struct Products {
    /// By operator, shape and data type, the longest first; empty if the trace records no shapes.
    #[serde(rename = "products")]
    pub rows: Vec<ProductRow>,
    /// All of them together; null if there are none.
    pub mfu: Option<Mfu>,
    /// Time of all kernels on the compute lane, and from the first start to the last end; both over all ranks.
    #[serde(skip)]
    compute_ns: i64,
    #[serde(skip)]
    span_ns: i64,
}

/// True if a kernel of an f32 product rounds its operands to TF32, by its name.
fn is_tf32(operation: &OperationInfo) -> bool {
    let name = operation.name.to_ascii_lowercase();
    ["tf32", "s1688gemm", "s1688_"].iter().any(|word| name.contains(word))
}

impl Products {
    /// The products of the selected part of a trace, whose ranks span `span_ns` together. One pass over the spans if the
    /// trace has any.
    pub(super) fn of(runs: &Runs, span_ns: i64) -> Self {
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
        runs.each(runs.by_rank.iter().flatten(), |span, _| {
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

    /// Fills in the shares of a profile's peaks.
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

    fn sum_up(&mut self, profile: Option<&Profile>) {
        let counted = || self.rows.iter().filter(|row| profile.is_none() || row.mfu_pct.is_some());
        let time_ns: i64 = counted().map(|row| row.sums.time_ns).fold(0, i64::saturating_add);
        let flops: f64 = counted().map(|row| row.sums.flops).sum();
        // the time that the operations take at the peaks of their data types
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

    /// Notes on shares that are missing or above 100 %.
    pub fn notes(&self) -> Vec<String> {
        let Some(Mfu { profile: Some(profile), .. }) = &self.mfu else { return Vec::new() };
        let mut notes = vec![format!("shares are of the peaks of {profile}")];
        let mut without: Vec<&str> = Vec::new();
        for row in self.rows.iter().filter(|row| row.mfu_pct.is_none()) {
            let dtype = if row.dtype == "f32" { "TF32" } else { &row.dtype };
            if !without.contains(&dtype) {
                without.push(dtype);
            }
        }
        if !without.is_empty() {
            notes.push(format!("{profile} has no peak for {}: no share", without.join(", ")));
        }
        if self.rows.iter().any(|row| row.mfu_pct.is_some_and(|share| share > 100.0)) {
            notes.push(format!("above 100 % of the peak: the trace is of a faster GPU than {profile}"));
        }
        if self.rows.iter().any(|row| row.bandwidth_pct.is_some_and(|share| share > 100.0)) {
            notes.push("above 100 % of the memory's bandwidth: operands lay in a cache".into());
        }
        notes
    }
}

/// The peak for a row's data type (TFLOP/s). A product of f32 that runs as TF32, by name or for its speed, has none.
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

/// Products as a table; files have the keys of JSON.
pub fn products_table(rows: &[ProductRow]) -> Table {
    Table::of(
        rows,
        &[
            ("~operator", &|r| Shown::text(&r.operator)),
            ("~shape", &|r| Shown::text(&r.shape)),
            ("dtype", &|r| Shown::text(&r.dtype)),
            ("count", &|r| r.count.into()),
            ("kernels|", &|r| r.kernels.into()),
            ("total_us|total", &|r| Shown::Number(r.total_us, 1)),
            ("mean_us|mean", &|r| Shown::Number(r.mean_us, 1)),
            ("flops|", &|r| r.flops.into()),
            ("bytes|", &|r| r.bytes.into()),
            ("tflop_s|TFLOP/s", &|r| Shown::Number(r.tflop_s, 2)),
            ("mfu_pct|MFU %", &|r| Shown::number(r.mfu_pct, 1)),
            ("gb_s|GB/s", &|r| Shown::Number(r.gb_s, 1)),
            ("bandwidth_pct|memory %", &|r| Shown::number(r.bandwidth_pct, 1)),
            ("limit", &|r| r.limit.map_or(Shown::None, Shown::text)),
        ],
    )
}

#[cfg(test)]
mod tests;
