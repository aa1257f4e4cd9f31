//! Measured latency tables, interpolated in logarithms.
//!
//! For matrix products the ratio of measured latency to the roofline is interpolated: it varies slowly,
//! is exact at measured shapes, and follows changed peaks of a profile. For decode attention and other
//! kernels the latency itself is interpolated. A lookup takes about ten logarithms; callers cache results of
//! equal shapes.

use std::sync::{LazyLock, OnceLock};

use super::stack::{ActivationScales, Engine};
use base::words::words;
use plan::{DType, Phase};

words! {
    /// Source of an operation's latency, most certain first.
    CostSource, "cost source" {
        /// Point of a latency table.
        Table = "table",
        /// Interpolated between points of a latency table.
        Interpolated = "interpolated",
        /// Bytes or FLOPs / the rate that the profile states for kernels.
        Roofline = "roofline",
        /// Bytes or FLOPs / a rate fitted to measured runs.
        Calibrated = "calibrated",
    }
}

/// Latency tables of one device, parsed when first used.
#[derive(Debug)]
pub struct Tables {
    name: &'static str,
    /// Products of 16-bit numbers, whatever the engine.
    matmul: LazyLock<Option<MatMulTable>>,
    /// Latencies by engine: products by weight format, quantization of activations, attention.
    sections: LazyLock<Vec<TableSection>>,
    /// Measured shapes of routed experts, from the titles of the sections.
    experts: OnceLock<Vec<ExpertSections>>,
    attention: LazyLock<Option<Grid>>,
}

static BUILT_IN: [Tables; 7] = {
    /// Tables of a device, from the files that it has: 16-bit products and attention, products by format.
    macro_rules! device {
        ($name:literal, [$($plain:literal)?], [$($formats:literal)?]) => {
            Tables {
                name: $name,
                matmul: LazyLock::new(|| {
                    let texts: &[&str] = &[$(include_str!(concat!("tables/", $plain, "_matmul.tsv")))?];
                    MatMulTable::parse(texts.first()?)
                }),
                sections: LazyLock::new(|| {
                    let texts: &[&str] = &[$(include_str!(concat!("tables/", $formats, "_engines.tsv")))?];
                    texts.first().map_or_else(Vec::new, |text| TableSection::all(text))
                }),
                experts: OnceLock::new(),
                attention: LazyLock::new(|| {
                    let texts: &[&str] = &[$(include_str!(concat!("tables/", $plain, "_attention.tsv")))?];
                    Grid::parse(texts.first()?)
                }),
            }
        };
    }
    [
        device!("a100_sxm", ["a100_sxm"], ["a100_sxm"]),
        device!("b200_sxm", ["b200_sxm"], ["b200_sxm"]),
        device!("gb200", [], ["gb200"]),
        device!("h100_sxm", ["h100_sxm"], ["h100_sxm"]),
        device!("h200_sxm", ["h200_sxm"], ["h200_sxm"]),
        device!("l40s", ["l40s"], ["l40s"]),
        device!("rtx_pro_6000_server", [], ["rtx_pro_6000_server"]),
    ]
};

/// Time of a kernel beyond its bytes and operations, in the roofline of products by format (us).
const START_US: f64 = 1.5;

impl Tables {
    pub const NAMES: [&'static str; 7] =
        ["a100_sxm", "b200_sxm", "gb200", "h100_sxm", "h200_sxm", "l40s", "rtx_pro_6000_server"];

    pub fn from_name(name: &str) -> Option<&'static Self> {
        BUILT_IN.iter().find(|tables| tables.name == name)
    }

    /// Latency of a matrix product of 16-bit activations [m, k] with weights in a format on a device with these peaks
    /// (us). Quantized weights are multiplied by the engine's kernels, with the quantization of the activations as far
    /// as the engine still has to do it; 16-bit ones by libraries that the engines share (their mean). `None` for
    /// shapes, formats and engines that were not measured.
    pub fn product_us(
        &self,
        (format, engine): (DType, Option<Engine>),
        scales: ActivationScales,
        shape: [u64; 3],
        peaks: Peaks,
    ) -> Option<(f64, CostSource)> {
        if !format.is_quantized() {
            let table = self.matmul.as_ref();
            return table.or_else(|| self.section("bf16", "geomean")?.products())?.us(shape, peaks);
        }
        let engine = engine?;
        let measured = |engine: Engine| {
            self.section(format.as_str(), engine.as_str())?.products()?.us(shape, peaks)
        };
        // TensorRT-LLM's table of 4-bit products is slower than its models were: its tuner had other kernels
        let own = measured(engine);
        let others = [Engine::Vllm, Engine::Sglang].into_iter().filter_map(measured);
        let (us, source) = match (format, engine) {
            (DType::Nvfp4, Engine::TrtLlm) => {
                own.into_iter().chain(others).min_by(|a, b| a.0.total_cmp(&b.0))
            }
            _ => own,
        }?;
        // fp8 was measured with dynamic quantization, the others with quantized activations
        let (spared, added): (&[&str], &[&str]) = match (format, scales) {
            (DType::Fp8, ActivationScales::Static) => (&["scale"], &[]),
            (DType::Fp8, ActivationScales::Fused) => (&["scale", "cast"], &[]),
            (DType::Fp8Block | DType::Nvfp4, _) => (&[], &["cast"]),
            _ => (&[], &[]),
        };
        let [m, _, k] = shape;
        let kernel_us =
            |kernel: &&str| self.section(kernel, engine.as_str())?.kernel()?.clamped_us([0, k, m]);
        let [spared, added]: [f64; 2] =
            [spared, added].map(|kernels| kernels.iter().filter_map(kernel_us).sum());
        Some(((us - spared).max(START_US) + added, source))
    }

    pub(super) fn section(&self, what: &str, engine: &str) -> Option<&TableSection> {
        self.sections.iter().find(|section| section.what == what && section.is_of(engine))
    }

    /// Shapes of routed experts that were measured; each step looks some up, so titles are parsed once.
    pub(super) fn experts(&self) -> &[ExpertSections] {
        let group = || {
            let mut shapes: Vec<ExpertSections> = Vec::new();
            for (at, section) in self.sections.iter().enumerate() {
                let Some((format, sizes)) = section.experts() else { continue };
                match shapes.iter_mut().find(|shape| (shape.format, shape.sizes) == (format, sizes)) {
                    Some(shape) => shape.sections.push(at),
                    None => shapes.push(ExpertSections { format, sizes, sections: vec![at] }),
                }
            }
            shapes
        };
        self.experts.get_or_init(group)
    }

    /// Latencies of routed experts in an engine.
    pub(super) fn experts_in(&self, shape: &ExpertSections, engine: Engine) -> Option<&Grid> {
        let mut sections = shape.sections.iter().filter_map(|at| self.sections.get(*at));
        sections.find(|section| section.is_of(engine.as_str()))?.kernel()
    }

    /// Latency of an attention of head_dim 128 or 64 (us): of one decode step, or causal over whole prompts. The
    /// engine's; without one, or where it was not measured, the engines' median, of decode steps with a 16-bit cache.
    /// Longer contexts and larger batches than the engine was measured with are in proportion. `None` for other ratios of
    /// heads to KV heads than were measured.
    pub fn attention_us(
        &self,
        engine: Option<Engine>,
        phase: Phase,
        sizes: AttentionSizes,
    ) -> Option<(f64, CostSource)> {
        let own = engine.and_then(|engine| self.attention_of_us(engine, phase, sizes));
        own.or_else(|| {
            let AttentionSizes { heads, kv_heads, head_dim, window, kv, sequences, tokens } = sizes;
            let is_measured = phase == Phase::Decode
                && (head_dim, window, kv.is_quantized()) == (128, None, false)
                && heads == 8 * kv_heads;
            let grid = self.attention.as_ref().filter(|_| is_measured)?;
            // its contexts include the step's token
            grid.us([heads, sequences, tokens + 1])
        })
    }

    fn attention_of_us(
        &self,
        engine: Engine,
        phase: Phase,
        sizes: AttentionSizes,
    ) -> Option<(f64, CostSource)> {
        let AttentionSizes { heads, kv_heads, head_dim, window, kv, sequences, tokens } = sizes;
        let ratio = heads.checked_div(kv_heads)?;
        let head_dim = if head_dim == 128 { String::new() } else { head_dim.to_string() };
        let window = window.map_or(String::new(), |tokens| format!("w{tokens}"));
        let what = format!("{phase}{head_dim}{window}-{kv}-{ratio}");
        let grid = self.section(&what, engine.as_str())?.kernel()?;
        let of_tokens = if phase == Phase::Prefill { 4.0 } else { 2.0 };
        grid.beyond_us([heads, sequences, tokens], of_tokens)
    }
}

/// Heads, KV heads and sizes of an attention on one rank.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct AttentionSizes {
    pub heads: u64,
    pub kv_heads: u64,
    pub head_dim: u64,
    /// Tokens that a query sees, if attention is local.
    pub window: Option<u32>,
    /// Format of the KV cache.
    pub kv: DType,
    pub sequences: u64,
    /// Tokens of each sequence: of the cache in decode, of the prompt in prefill.
    pub tokens: u64,
}

/// Measured shape of routed experts.
#[derive(Debug)]
pub(super) struct ExpertSections {
    pub(super) format: DType,
    /// Hidden size, width, top-k and number of experts.
    pub(super) sizes: [u32; 4],
    /// Positions of its sections in [`Tables`], one for each engine that measured it.
    sections: Vec<usize>,
}

/// Latencies of one kind in one engine: products with weights in a format, or another kernel.
#[derive(Debug)]
pub(super) struct TableSection {
    /// Kind in the file's line `>KIND ENGINE VERSION`: `fp8`, `scale`.
    what: &'static str,
    /// Engine and version; `geomean` for the mean of all.
    engine: &'static str,
    /// Peaks of the device for products in this format.
    peaks: Option<Peaks>,
    text: &'static str,
    products: OnceLock<Option<MatMulTable>>,
    kernel: OnceLock<Option<Grid>>,
}

impl TableSection {
    /// Splits a file into its sections, each below a line like `>fp8 vllm 0.24.0`.
    fn all(text: &'static str) -> Vec<Self> {
        let mut parts = text.split("\n>");
        let head = parts.next().unwrap_or_default();
        let section = |part: &'static str| {
            let (title, text) = part.split_once('\n')?;
            let (what, engine) = title.split_once(' ')?;
            let rate = match what {
                "fp8" | "fp8_block" => "fp8=",
                "nvfp4" => "fp4=",
                _ => "bf16=",
            };
            let peaks = Peaks::in_head(head, rate);
            Some(Self { what, engine, peaks, text, products: OnceLock::new(), kernel: OnceLock::new() })
        };
        parts.filter_map(section).collect()
    }

    /// True for a section of this engine, of whatever version.
    fn is_of(&self, engine: &str) -> bool {
        self.engine.split(' ').next() == Some(engine)
    }

    /// Format and sizes of the experts in a title like `experts-2880x2880x4x128-mxfp4`.
    fn experts(&self) -> Option<(DType, [u32; 4])> {
        let (sizes, format) = self.what.strip_prefix("experts-")?.split_once('-')?;
        let sizes = sizes.split('x').map(|size| size.parse().ok()).collect::<Option<Vec<u32>>>()?;
        Some((format.parse().ok()?, sizes.try_into().ok()?))
    }

    fn products(&self) -> Option<&MatMulTable> {
        let parse = || {
            let roofline = Roofline { format: self.what.parse().ok()?, start_us: START_US };
            MatMulTable::new(self.text, roofline, self.peaks?)
        };
        self.products.get_or_init(parse).as_ref()
    }

    pub(super) fn kernel(&self) -> Option<&Grid> {
        self.kernel.get_or_init(|| Grid::parse(self.text)).as_ref()
    }
}

/// Peak arithmetic and memory bandwidth of a device.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Peaks {
    /// Dense arithmetic (1e12 operations per second).
    pub tflops: f64,
    /// Memory bandwidth (1e9 bytes per second).
    pub gb_s: f64,
}

impl Peaks {
    /// Peaks in a table's head, with the key of the arithmetic.
    fn in_head(head: &str, rate: &str) -> Option<Self> {
        let value = |key: &str| -> Option<f64> {
            head.split_whitespace().find_map(|word| word.strip_prefix(key))?.parse().ok()
        };
        Some(Self { tflops: value(rate)?, gb_s: value("hbm_gb_s=")? })
    }
}

/// Roofline to which measured products are put in proportion.
#[derive(Clone, Copy, Debug)]
struct Roofline {
    /// Format of the weights; activations have 16 bits.
    format: DType,
    /// Time beyond bytes and operations (us).
    start_us: f64,
}

impl Roofline {
    /// Latency of a matrix product [m, k] x [k, n] (us).
    fn us(self, [m, n, k]: [u64; 3], peaks: Peaks) -> f64 {
        let weights = self.format.matrix_bytes(n, k) as f64;
        let [m, n, k] = [m, n, k].map(|v| v as f64);
        let arithmetic = 2.0 * m * n * k / (peaks.tflops * 1e6);
        let memory = (weights + 2.0 * (m * k + m * n)) / (peaks.gb_s * 1e3);
        self.start_us + arithmetic.max(memory)
    }
}

/// Table axis: ascending values and their logarithms.
#[derive(Debug)]
struct Axis {
    values: Vec<u64>,
    logs: Vec<f64>,
}

impl Axis {
    fn new(mut values: Vec<u64>) -> Self {
        values.sort_unstable();
        values.dedup();
        let logs = values.iter().map(|&v| (v as f64).ln()).collect();
        Self { values, logs }
    }

    fn index(&self, value: u64) -> Option<usize> {
        self.values.binary_search(&value).ok()
    }

    /// The two nearest values with their weights, clamped to the axis, and the position of the value: on
    /// the axis (`Table`), between its ends (`Interpolated`) or beyond (`Roofline`).
    fn bracket(&self, value: u64) -> ([(usize, f64); 2], CostSource) {
        let last = self.values.len() - 1;
        let above = self.values.partition_point(|v| *v < value);
        if above > last {
            return ([(last, 1.0), (last, 0.0)], CostSource::Roofline);
        }
        if self.values[above] == value {
            return ([(above, 1.0), (above, 0.0)], CostSource::Table);
        }
        if above == 0 {
            return ([(0, 1.0), (0, 0.0)], CostSource::Roofline);
        }
        let (low, high) = (self.logs[above - 1], self.logs[above]);
        let weight = ((value as f64).ln() - low) / (high - low);
        ([(above - 1, 1.0 - weight), (above, weight)], CostSource::Interpolated)
    }
}

/// Rows of a tab-separated table: the first two columns and the rest, `None` if empty.
type Rows = Vec<(u64, u64, Vec<Option<f64>>)>;

/// Parses a table into the header values from the third column and the rows.
fn parse(text: &str) -> Option<(Vec<u64>, Rows)> {
    let mut lines = text.lines().filter(|line| !line.starts_with('#'));
    let header = lines.next()?.split('\t').skip(2).map(|v| v.parse().ok()).collect::<Option<_>>()?;
    let rows = lines
        .map(|line| {
            let mut fields = line.split('\t');
            let (a, b) = (fields.next()?.parse().ok()?, fields.next()?.parse().ok()?);
            Some((a, b, fields.map(|v| v.parse().ok()).collect()))
        })
        .collect::<Option<_>>()?;
    Some((header, rows))
}

#[derive(Debug)]
struct MatMulTable {
    /// Latency / roofline by (n, k, m).
    ratios: Grid,
    roofline: Roofline,
}

impl MatMulTable {
    fn parse(text: &str) -> Option<Self> {
        let peaks = Peaks::in_head(text.lines().next()?, "peak_tflops=")?;
        Self::new(text, Roofline { format: DType::Bf16, start_us: 0.0 }, peaks)
    }

    fn new(text: &str, roofline: Roofline, peaks: Peaks) -> Option<Self> {
        let ratio = |[n, k, m]: [u64; 3], us: f64| us / roofline.us([m, n, k], peaks);
        Some(Self { ratios: Grid::new(text, ratio)?, roofline })
    }

    fn us(&self, [m, n, k]: [u64; 3], peaks: Peaks) -> Option<(f64, CostSource)> {
        let (neighbors, mut source) = self.ratios.neighbors([n, k, m]);
        let (mut sum, mut weights) = (0.0, 0.0);
        for (weight, ratio) in neighbors.filter(|(_, ratio)| !ratio.is_nan()) {
            sum += weight * ratio;
            weights += weight;
        }
        // a few large shapes were not measured: no result if most neighbors are missing
        if weights < 0.5 {
            return None;
        }
        if weights < 1.0 - 1e-9 {
            source = source.max(CostSource::Interpolated);
        }
        Some(((sum / weights).exp() * self.roofline.us([m, n, k], peaks), source))
    }
}

/// Latencies, or their ratios to the roofline, by three sizes such as heads, batch and context.
#[derive(Debug)]
pub(super) struct Grid {
    axes: [Axis; 3],
    /// Logarithms; NaN if not measured.
    logs: Vec<f64>,
}

impl Grid {
    fn parse(text: &str) -> Option<Self> {
        Self::new(text, |_, us| us)
    }

    /// Parses rows that begin with the first two sizes, with a column for each value of the third. `value` is of
    /// sizes and their latency (us).
    fn new(text: &str, value: impl Fn([u64; 3], f64) -> f64) -> Option<Self> {
        let (header, rows) = parse(text)?;
        let axes = [
            Axis::new(rows.iter().map(|row| row.0).collect()),
            Axis::new(rows.iter().map(|row| row.1).collect()),
            Axis::new(header),
        ];
        let mut logs = vec![f64::NAN; axes.iter().map(|axis| axis.values.len()).product()];
        for (first, second, row) in &rows {
            let at = (axes[0].index(*first)? * axes[1].values.len() + axes[1].index(*second)?)
                * axes[2].values.len();
            for ((third, latency), log) in axes[2].values.iter().zip(row).zip(&mut logs[at..]) {
                *log = latency.map_or(f64::NAN, |us| value([*first, *second, *third], us).ln());
            }
        }
        Some(Self { axes, logs })
    }

    /// Weights and logarithms of the up to eight nearest points, and the position among them.
    fn neighbors(&self, sizes: [u64; 3]) -> (impl Iterator<Item = (f64, f64)>, CostSource) {
        let [(firsts, a), (seconds, b), (thirds, c)] = [0, 1, 2].map(|i| self.axes[i].bracket(sizes[i]));
        let neighbor = move |n: usize| {
            let ((i, wi), (j, wj), (l, wl)) = (firsts[n / 4], seconds[n / 2 % 2], thirds[n % 2]);
            let at = (i * self.axes[1].values.len() + j) * self.axes[2].values.len() + l;
            (wi * wj * wl, self.logs[at])
        };
        ((0..8).map(neighbor).filter(|(weight, _)| *weight > 0.0), a.max(b).max(c))
    }

    /// Latency between measured points; `None` outside them.
    pub(super) fn us(&self, sizes: [u64; 3]) -> Option<(f64, CostSource)> {
        let (neighbors, source) = self.neighbors(sizes);
        if source == CostSource::Roofline {
            return None;
        }
        // a single missing neighbor makes it NaN
        let sum: f64 = neighbors.map(|(weight, log)| weight * log).sum();
        (!sum.is_nan()).then(|| (sum.exp(), source))
    }

    /// Latency also above the measured values of the second size, in proportion, and of the third, by this
    /// factor for each doubling.
    pub(super) fn beyond_us(
        &self,
        [first, second, third]: [u64; 3],
        factor: f64,
    ) -> Option<(f64, CostSource)> {
        let [_, seconds, thirds] = &self.axes;
        if let Some(found) = self.us([first, second, third]) {
            return Some(found);
        }
        let (smaller, times) = match () {
            () if second > *seconds.values.last()? => ([first, second.div_ceil(2), third], 2.0),
            () if third > 1 && third.div_ceil(2) >= *thirds.values.first()? => {
                ([first, second, third.div_ceil(2)], factor)
            }
            () => return None,
        };
        self.beyond_us(smaller, factor).map(|(us, _)| (us * times, CostSource::Roofline))
    }

    /// True if both sizes were measured together.
    fn has_row(&self, first: u64, second: u64) -> bool {
        let [firsts, seconds, thirds] = &self.axes;
        let (Some(i), Some(j)) = (firsts.index(first), seconds.index(second)) else { return false };
        let at = (i * seconds.values.len() + j) * thirds.values.len();
        self.logs[at..at + thirds.values.len()].iter().any(|latency| !latency.is_nan())
    }

    /// Second sizes that were measured with a first one.
    pub(super) fn seconds_of(&self, first: u64) -> Vec<u64> {
        let all = self.axes[1].values.iter().copied();
        all.filter(|second| self.has_row(first, *second)).collect()
    }

    /// Latency of a measured row at any third size: interpolated, at least that of the smallest, and above the
    /// largest in proportion.
    pub(super) fn along(&self, first: u64, second: u64, third: f64) -> Option<(f64, CostSource)> {
        let [firsts, seconds, thirds] = &self.axes;
        let row =
            (firsts.index(first)? * seconds.values.len() + seconds.index(second)?) * thirds.values.len();
        let known = |at: &usize| !self.logs[row + at].is_nan();
        let own: Vec<usize> = (0..thirds.values.len()).filter(known).collect();
        let point = |at: usize| (thirds.values[at] as f64, self.logs[row + at]);
        let above = own.partition_point(|at| (thirds.values[*at] as f64) < third);
        let Some(&next) = own.get(above) else {
            let (most, latency) = point(*own.last()?);
            return Some((latency.exp() * third / most, CostSource::Roofline));
        };
        let (high, high_log) = point(next);
        let before = above.checked_sub(1).map(|before| point(own[before]));
        let Some((low, low_log)) = before.filter(|_| third < high) else {
            return Some((high_log.exp(), CostSource::Table));
        };
        let weight = (third.ln() - low.ln()) / (high.ln() - low.ln());
        Some(((low_log + weight * (high_log - low_log)).exp(), CostSource::Interpolated))
    }

    /// Latency at the nearest sizes within the measured ones.
    fn clamped_us(&self, mut sizes: [u64; 3]) -> Option<f64> {
        for (size, axis) in sizes.iter_mut().zip(&self.axes) {
            *size = (*size).clamp(*axis.values.first()?, *axis.values.last()?);
        }
        self.us(sizes).map(|(us, _)| us)
    }
}

#[cfg(test)]
mod tests;
