//! Weight loading: random weights are created on the GPU, checkpoint weights are converted and copied in
//! bounded pieces.

use std::ops::Range;
use std::time::{Duration, Instant};

use super::fp8;
use super::kernels::{GpuKernels, geometry};
use super::memory::GpuWeights;
use base::error::Result;
use machine::driver::{Gpu, Memory, Stream, arguments};
use model::{Fp8Rows, WeightSource};
use plan::{DType, ModelShape, Plan, Precision, Weight};

/// Host memory per piece of a weight (bytes); at least one row.
const PIECE_BYTES: usize = 64 << 20;

pub(super) struct Loader<'a> {
    pub gpu: &'a Gpu,
    pub stream: &'a Stream,
    pub kernels: &'a GpuKernels,
    pub source: &'a WeightSource,
    pub shape: &'a ModelShape,
    pub precision: Precision,
    pub tp: u32,
}

impl Loader<'_> {
    /// Loads the weights of all `ranks`, sharing tensors that are not split. `on_phase` receives progress
    /// messages; an error from `alive` aborts the load.
    pub fn weights_of(
        &self,
        ranks: Range<u32>,
        plan: &Plan,
        alive: &dyn Fn() -> Result<()>,
        on_phase: &mut dyn FnMut(&str),
    ) -> Result<Vec<GpuWeights>> {
        let bytes = |pick: fn(&Weight) -> bool| -> u64 {
            let weights = plan.weights.iter().filter(|weight| pick(weight));
            weights.map(|weight| self.precision.weight_bytes(weight, self.shape)).sum()
        };
        let total = bytes(Weight::is_whole) + bytes(|w| !w.is_whole()) * ranks.len() as u64;
        let what = if self.source.is_random() { "making random weights" } else { "loading weights" };
        let (mut done, mut reported) = (0u64, Instant::now());
        on_phase(what);
        let mut loaded = |bytes: u64| -> Result<()> {
            done += bytes;
            if reported.elapsed() > Duration::from_secs(1) {
                reported = Instant::now();
                let share = 100.0 * done as f64 / total as f64;
                on_phase(&format!("{what}: {share:.0}% of {:.1} GB", total as f64 / 1e9));
            }
            alive()
        };
        let mut shared = GpuWeights::default();
        shared.add(self.shape, plan, 0, Weight::is_whole, |weight| self.load(weight, 0, &mut loaded))?;
        let mut of_rank = |rank| {
            let mut weights = shared.clone();
            let load = |weight: &Weight| self.load(weight, rank, &mut loaded);
            weights.add(self.shape, plan, rank, |w| !w.is_whole(), load)?;
            Ok(weights)
        };
        ranks.map(&mut of_rank).collect()
    }

    /// Loads one rank's slice of a weight; `loaded` receives the bytes copied. Stream work may still be
    /// pending on return.
    fn load(
        &self,
        weight: &Weight,
        rank: u32,
        loaded: &mut dyn FnMut(u64) -> Result<()>,
    ) -> Result<Memory> {
        let format = self.precision.of_weight(weight, self.shape);
        let row = weight.inputs as usize * format.bytes() as usize;
        let bytes = match format {
            DType::Fp8 => fp8::bytes(weight),
            _ => weight.outputs as u64 * row as u64,
        };
        let memory = self.gpu.allocate(bytes, &format!("weight {} of rank {rank}", weight.name))?;
        if self.source.is_random() {
            self.make(weight, rank, format, &memory)?;
            loaded(bytes)?;
            return Ok(memory);
        }
        let read = match format {
            // fp8 reads whole rows as f32
            DType::Fp8 => 4 * weight.parts[0].tensor.dimensions(self.shape).1 as usize,
            _ => row,
        };
        let rows = (PIECE_BYTES / read.max(1)).max(1);
        let outputs = weight.outputs as usize;
        for first in (0..outputs).step_by(rows) {
            let piece = first..(first + rows).min(outputs);
            let numbers = match format {
                DType::Fp8 => {
                    let Fp8Rows { bits, scales } = self.source.fp8(weight, rank, self.tp, piece)?;
                    let at = fp8::scales_at((outputs * row) as u64) + 4 * first as u64;
                    memory.upload(at, bytemuck::cast_slice(&scales))?;
                    bits
                }
                _ => self.source.bytes(weight, rank, self.tp, format, piece)?,
            };
            memory.upload((first * row) as u64, &numbers)?;
            loaded(numbers.len() as u64)?;
        }
        Ok(memory)
    }

    /// Creates random weights on the GPU; fp8 weights have their scales behind them.
    fn make(&self, weight: &Weight, rank: u32, format: DType, memory: &Memory) -> Result<()> {
        let multiprocessors = self.gpu.info().multiprocessors;
        let numbers = u64::from(weight.inputs) * u64::from(weight.outputs);
        let (mut out, mut scales) = (memory.ptr(), memory.ptr().offset(fp8::scales_at(numbers)));
        let experts = weight.parts.first().map_or(0..0, |part| part.experts(self.shape, rank, self.tp));
        let parts = experts.flat_map(|expert| weight.parts.iter().map(move |part| (expert, part)));
        for (expert, part) in parts {
            let Some(random) = self.source.random_stream(part.tensor) else { continue };
            let (rows, columns) = part.slice(self.shape, rank, self.tp);
            let (height, width) = part.tensor.matrix(self.shape);
            let (above, width) = (u64::from(expert) * u64::from(height), u64::from(width));
            let (count, numbers) = (rows.len() as u64, rows.len() as u64 * columns.len() as u64);
            let (first_row, first) = ((above + rows.start as u64) * width, columns.start as u64);
            let (each, signs) = (columns.len() as u32, u32::from(random.signs));
            let is_fp8 = format == DType::Fp8;
            let mut arguments = if is_fp8 { arguments![out, scales] } else { arguments![out] };
            arguments.push(random.key).push(random.mean).push(random.step).push(signs);
            let (name, launch) = if is_fp8 {
                arguments.push(first_row).push(width).push(first as u32);
                ("random_fp8", geometry::warps(count, multiprocessors))
            } else {
                arguments.push(first_row + first).push(width);
                ("random_fill", geometry::elements(numbers, multiprocessors))
            };
            arguments.push(each).push(count);
            self.stream.launch(&self.kernels.get(name)?, &launch, &mut arguments)?;
            out = out.offset(numbers * format.bytes());
            scales = scales.offset(4 * count);
        }
        Ok(())
    }
}
