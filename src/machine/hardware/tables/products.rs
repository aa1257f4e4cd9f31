//! Latency of matrix products: the roofline times the interpolated ratio of measured latency to roofline.

use super::Tables;
use super::grid::Grid;
use crate::hardware::CostSource;
use crate::hardware::stack::{ActivationScales, Engine};
use plan::DType;

/// Time of a kernel beyond its bytes and operations, in the roofline of products by format (us).
const START_US: f64 = 1.5;

impl Tables {
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
        let (us, source) = self.quantized_us(format, engine, shape, peaks)?;
        let [m, _, k] = shape;
        let kernels_us = |kernels: &[&str]| -> f64 {
            let us =
                |kernel: &&str| self.section(kernel, engine.as_str())?.kernel()?.clamped_us([0, k, m]);
            kernels.iter().filter_map(us).sum()
        };
        let (spared, added) = kernels_beside(format, scales);
        Some(((us - kernels_us(spared)).max(START_US) + kernels_us(added), source))
    }

    /// Latency with quantized weights in an engine, with the kernels that were measured together.
    fn quantized_us(
        &self,
        format: DType,
        engine: Engine,
        shape: [u64; 3],
        peaks: Peaks,
    ) -> Option<(f64, CostSource)> {
        let measured = |engine: Engine| {
            self.section(format.as_str(), engine.as_str())?.products()?.us(shape, peaks)
        };
        if (format, engine) != (DType::Nvfp4, Engine::TrtLlm) {
            return measured(engine);
        }
        // TensorRT-LLM's table of 4-bit products is slower than its models were: its tuner had other kernels
        let engines = [Engine::TrtLlm, Engine::Vllm, Engine::Sglang];
        engines.into_iter().filter_map(measured).min_by(|a, b| a.0.total_cmp(&b.0))
    }
}

/// Quantization kernels that the checkpoint's scales spare or add: fp8 was measured with dynamic quantization, the
/// others with quantized activations.
fn kernels_beside(
    format: DType,
    scales: ActivationScales,
) -> (&'static [&'static str], &'static [&'static str]) {
    match (format, scales) {
        (DType::Fp8, ActivationScales::Static) => (&["scale"], &[]),
        (DType::Fp8, ActivationScales::Fused) => (&["scale", "cast"], &[]),
        (DType::Fp8Block | DType::Nvfp4, _) => (&[], &["cast"]),
        _ => (&[], &[]),
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
    pub(super) fn in_head(head: &str, rate: &str) -> Option<Self> {
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

#[derive(Debug)]
pub(super) struct MatMulTable {
    /// Latency / roofline by n, k and m.
    ratios: Grid,
    roofline: Roofline,
}

impl MatMulTable {
    /// Products of 16-bit numbers, with the device's peaks in the first line.
    pub(super) fn parse(text: &str) -> Option<Self> {
        let peaks = Peaks::in_head(text.lines().next()?, "peak_tflops=")?;
        Self::new(text, Roofline { format: DType::Bf16, start_us: 0.0 }, peaks)
    }

    /// Products with weights in a format.
    pub(super) fn of_format(text: &str, format: DType, peaks: Peaks) -> Option<Self> {
        Self::new(text, Roofline { format, start_us: START_US }, peaks)
    }

    fn new(text: &str, roofline: Roofline, peaks: Peaks) -> Option<Self> {
        let ratio = |[n, k, m]: [u64; 3], us: f64| us / roofline.us([m, n, k], peaks);
        Some(Self { ratios: Grid::new(text, ratio)?, roofline })
    }

    pub(super) fn us(&self, [m, n, k]: [u64; 3], peaks: Peaks) -> Option<(f64, CostSource)> {
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
