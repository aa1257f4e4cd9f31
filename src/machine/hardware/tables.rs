//! Measured latency tables, interpolated in logarithms.
//!
//! For matrix products the ratio of measured latency to the roofline is interpolated: it varies slowly,
//! is exact at measured shapes, and follows changed peaks of a profile. For decode attention and other
//! kernels the latency itself is interpolated. Callers cache results of equal shapes: a lookup takes about ten
//! logarithms and may build the title of its section.

mod grid;
mod products;

use std::sync::{LazyLock, OnceLock};

use self::products::MatMulTable;
use super::CostSource;
use super::stack::Engine;
use plan::{DType, Phase};

pub use grid::Grid;
pub use products::Peaks;

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
    macro_rules! text {
        ($name:literal, $kind:literal) => {
            include_str!(concat!("tables/", $name, "_", $kind, ".tsv"))
        };
    }
    /// Tables of a device: by engine, and on some devices also averages over the engines.
    macro_rules! device {
        ($name:literal, without averages) => {
            device!($name, None, None)
        };
        ($name:literal, with averages) => {
            device!(
                $name,
                MatMulTable::parse(text!($name, "matmul")),
                Grid::parse(text!($name, "attention"))
            )
        };
        ($name:literal, $matmul:expr, $attention:expr) => {
            Tables {
                name: $name,
                matmul: LazyLock::new(|| $matmul),
                sections: LazyLock::new(|| TableSection::all(text!($name, "engines"))),
                experts: OnceLock::new(),
                attention: LazyLock::new(|| $attention),
            }
        };
    }
    [
        device!("a100_sxm", with averages),
        device!("b200_sxm", with averages),
        device!("gb200", without averages),
        device!("h100_sxm", with averages),
        device!("h200_sxm", with averages),
        device!("l40s", with averages),
        device!("rtx_pro_6000_server", without averages),
    ]
};

impl Tables {
    pub fn names() -> Vec<&'static str> {
        BUILT_IN.iter().map(|tables| tables.name).collect()
    }

    pub fn from_name(name: &str) -> Option<&'static Self> {
        BUILT_IN.iter().find(|tables| tables.name == name)
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
        let own = engine.and_then(|engine| self.attention_of_engine_us(engine, phase, sizes));
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

    fn attention_of_engine_us(
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
        let growth = if phase == Phase::Prefill { 4.0 } else { 2.0 };
        grid.beyond_us([heads, sequences, tokens], growth)
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
        let parse = || MatMulTable::of_format(self.text, self.what.parse().ok()?, self.peaks?);
        self.products.get_or_init(parse).as_ref()
    }

    pub(super) fn kernel(&self) -> Option<&Grid> {
        self.kernel.get_or_init(|| Grid::parse(self.text)).as_ref()
    }
}

#[cfg(test)]
mod tests;
