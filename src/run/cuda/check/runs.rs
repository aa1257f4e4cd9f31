//! Implementation of the checks: short generations on one GPU with known results.

use std::cell::OnceCell;
use std::sync::Arc;
use std::time::Duration;

use super::{CHECKS, CheckOutcome, CheckResult, concluded};
use crate::comm::EmulatedLink;
use crate::cuda::collective::CollectiveTransport;
use crate::cuda::engine::{Engine, EngineSetup, Local, Programs, Tuning};
use crate::cuda::fp8;
use crate::cuda::generation::Generation;
use crate::cuda::instrumented::Stamps;
use crate::cuda::kernels::matvec;
use crate::cuda::matmul::{MatrixProduct, TimedProduct};
use crate::cuda::measure::read_bandwidth;
use crate::cuda::ranks::alive;
use crate::cuda::timing::Tick;
use crate::cuda::timing::clock::median_us;
use base::error::Result;
use base::statistics::median;
use machine::driver::{DevicePtr, Gpu, Memory};
use model::Model;
use plan::{Architecture, DType, Phase, Tensor};
use table::shared_gpu;

const PROMPT: u32 = 16;

/// GPUs with fewer SMs are checked with the tiny model and fewer tokens.
const SMALL: u32 = 16;

/// Upper bound (failed) and lower bound (warned) of the achieved share of read bandwidth.
const BANDWIDTH: [f64; 2] = [1.02, 0.50];

/// Settings of one generation; all others are defaults.
#[derive(Clone)]
struct Case {
    architecture: &'static str,
    tp: u32,
    link: Option<EmulatedLink>,
    graph: bool,
    programmatic: bool,
    weights: DType,
}

const PLAIN: Case = Case {
    architecture: "standard",
    tp: 1,
    link: None,
    graph: true,
    programmatic: true,
    weights: DType::Bf16,
};

/// Tokens, logits and latency of one generation.
struct CheckGeneration {
    /// True if kernels start early, and the number of such edges in the graph (`None` if the driver does not
    /// report it).
    programmatic: bool,
    edges: Option<usize>,
    tokens: Vec<Vec<u32>>,
    logits: Vec<u32>,
    tpot_us: f64,
    /// Bytes of weights read per step.
    bytes: u64,
}

/// GPU and model of the checks, with the number of new tokens per generation.
struct Bench<'a> {
    gpu: &'a Gpu,
    model: &'static str,
    tokens: u32,
    /// Engine and baseline generation shared by several checks, created by the first of them.
    engine: OnceCell<Engine>,
    plain: OnceCell<CheckGeneration>,
}

/// One check: returns the outcome and its explanation.
type Check = fn(&Bench<'_>) -> Result<(CheckOutcome, String)>;

/// Runs all checks in order; `say` receives progress messages.
pub fn check(gpu: &Gpu, say: &mut dyn FnMut(&str)) -> Vec<CheckResult> {
    let small = gpu.info().multiprocessors < SMALL;
    let (model, tokens) = if small { ("tiny", 6) } else { ("llama-3.2-1b", 21) };
    let bench = Bench { gpu, model, tokens, engine: OnceCell::new(), plain: OnceCell::new() };
    let checks: [Check; CHECKS.len()] =
        [products, graph, early_starts, bandwidth, overlap, link, stamps, nccl];
    let all = CHECKS.iter().zip(checks);
    all.map(|((what, asks), check)| {
        say(&format!("checking this GPU: {asks}"));
        concluded(what, check(&bench))
    })
    .collect()
}

impl Bench<'_> {
    fn engine_of(&self, case: &Case) -> Result<Engine> {
        let model = Model::resolve(self.model)?;
        let setup = EngineSetup {
            seed: 1,
            capacity: PROMPT + self.tokens,
            output_tokens: self.tokens,
            prefill: (1, PROMPT),
            graph: case.graph,
            tuning: Tuning { programmatic: case.programmatic, ..Tuning::default() },
            timeout: Duration::from_secs(60),
            ..EngineSetup::new(model, case.architecture.parse::<Architecture>()?, case.weights, case.tp)?
        };
        let programs = Arc::new(Programs::new(&setup)?);
        let transport = match &case.link {
            Some(link) => CollectiveTransport::Emulated(link.clone()),
            None => CollectiveTransport::None,
        };
        let local = Local { ranks: 0..1, transport, one_shot: None };
        Engine::new(self.gpu, &setup, programs, local, alive(None), &mut |_| ())
    }

    fn engine(&self) -> Result<&Engine> {
        kept(&self.engine, || self.engine_of(&PLAIN))
    }

    fn plain(&self) -> Result<&CheckGeneration> {
        kept(&self.plain, || self.generate(self.engine()?))
    }

    fn ran(&self, case: &Case) -> Result<CheckGeneration> {
        self.generate(&self.engine_of(case)?)
    }

    fn generate(&self, engine: &Engine) -> Result<CheckGeneration> {
        let mut generation = Generation::new(engine, 1, PROMPT, self.tokens)?;
        let prompt: Vec<u32> = (1..=PROMPT).collect();
        let mut steps = Vec::new();
        // the first round is warm-up
        for round in 0..3 {
            engine.prepare(1, &prompt)?;
            let times = generation.run(engine, "a check", false, &mut |_| ())?;
            let ends = [&[times.prefill_end][..], &times.step_ends].concat();
            let took = ends.windows(2).map(|pair| (pair[1] - pair[0]) as f64 / 1e3);
            if round > 0 {
                steps.extend(took);
            }
        }
        let tokens = engine.tokens(self.tokens)?;
        let logits = engine.logits(Phase::Decode, 1)?.into_iter().map(f32::to_bits).collect();
        let weights = engine.programs.decode.plan.weights.iter();
        // a step reads only one row of the embedding per token
        let weights =
            weights.filter(|weight| weight.parts.iter().all(|p| p.tensor != Tensor::Embedding));
        Ok(CheckGeneration {
            programmatic: engine.programmatic(),
            edges: generation.programmatic_edges(),
            tokens,
            logits,
            tpot_us: median(&steps).unwrap_or_default(),
            bytes: weights.map(|w| 2 * u64::from(w.inputs) * u64::from(w.outputs)).sum(),
        })
    }
}

/// Returns the value of a cell, creating it on first use.
fn kept<T>(cell: &OnceCell<T>, make: impl FnOnce() -> Result<T>) -> Result<&T> {
    if let Some(there) = cell.get() {
        return Ok(there);
    }
    let made = make()?;
    Ok(cell.get_or_init(|| made))
}

fn verdict(is_good: bool, text: String) -> Result<(CheckOutcome, String)> {
    Ok((if is_good { CheckOutcome::Passed } else { CheckOutcome::Failed }, text))
}

fn products(bench: &Bench<'_>) -> Result<(CheckOutcome, String)> {
    let fp8 = bench.engine_of(&Case { weights: DType::Fp8, ..PLAIN })?;
    let many = 2 * matvec::MOST_ROWS;
    let (mut worst, mut count, mut good) = (0.0f64, 0, true);
    for engine in [bench.engine()?, &fp8] {
        for product in engine.products()? {
            for rows in [product.product.rows, many] {
                if let Some(off) = off_by(engine, &product, rows)? {
                    // expansion rounds fp8 weights again, to bf16: at most 2^-9 each; 0.02 is a margin, not measured
                    good &= off < if product.product.weights == DType::Fp8 { 0.02 } else { 0.01 };
                    (worst, count) = (worst.max(off), count + 1);
                }
            }
        }
    }
    verdict(
        count > 0 && good,
        format!(
            "{count} products of 1 and {many} rows with bf16 and fp8 weights; max difference {worst:.1e} of the largest value"
        ),
    )
}

/// Largest difference between our kernel and cuBLASLt, relative to the largest result. Returns `None` if our
/// kernel does not support this many rows.
fn off_by(engine: &Engine, product: &TimedProduct, rows: u32) -> Result<Option<f64>> {
    let gpu = &engine.gpu;
    let all = gpu.info().multiprocessors;
    let asked = MatrixProduct { rows, multiprocessors: all, ..product.product };
    let MatrixProduct { inputs, outputs, weights: format, logits, .. } = asked;
    if rows > matvec::most_rows(format, inputs) {
        return Ok(None);
    }
    let numbers = rows as usize * inputs as usize;
    let mut random = fastrand::Rng::with_seed(7);
    let x: Vec<half::bf16> =
        (0..numbers).map(|_| half::bf16::from_f32(random.f32() * 2.0 - 1.0)).collect();
    let from = gpu.allocate(2 * numbers as u64, "an input")?;
    from.upload(0, bytemuck::cast_slice(&x))?;
    let size = u64::from(rows) * u64::from(outputs) * if logits { 4 } else { 2 };
    let (own, theirs) = (gpu.allocate(size, "a product")?, gpu.allocate(size, "a product")?);
    let weight = product.weights.first().copied().unwrap_or(DevicePtr(0));
    let kernels = engine.kernels.plain();
    asked.call(kernels, [from.ptr(), weight, own.ptr()], None)?.enqueue(engine.main())?;
    let shape = asked.by_library(engine.setup.dtype, None);
    // must outlive the product
    let expanded = (format == DType::Fp8)
        .then(|| gpu.allocate(2 * u64::from(inputs) * u64::from(outputs), "an expanded weight"))
        .transpose()?;
    let theirs_weight = expanded.as_ref().map_or(weight, Memory::ptr);
    if expanded.is_some() {
        let (function, operands) = (kernels.get("expand_fp8")?, [weight, theirs_weight]);
        fp8::expand(function, operands, [inputs, outputs], (0, 1), all).enqueue(engine.main())?;
    }
    engine.blas.matmul(engine.main(), &shape, from.ptr(), theirs_weight, theirs.ptr())?;
    engine.wait_idle("a check of products")?;
    let read = |memory: &Memory| -> Result<Vec<f32>> {
        let mut bytes = vec![0u8; size as usize];
        memory.download(0, &mut bytes)?;
        Ok(match logits {
            true => bytemuck::pod_collect_to_vec(&bytes),
            false => {
                let numbers: Vec<half::bf16> = bytemuck::pod_collect_to_vec(&bytes);
                numbers.into_iter().map(half::bf16::to_f32).collect()
            }
        })
    };
    let (own, theirs) = (read(&own)?, read(&theirs)?);
    let largest = theirs.iter().fold(0.0f32, |most, x| most.max(x.abs())).max(f32::MIN_POSITIVE);
    let off = own.iter().zip(&theirs).map(|(a, b)| f64::from((a - b).abs() / largest));
    // NaN counts as infinitely wrong
    Ok(Some(off.fold(0.0, |most: f64, x| if x.is_nan() { f64::INFINITY } else { most.max(x) })))
}

fn graph(bench: &Bench<'_>) -> Result<(CheckOutcome, String)> {
    let eager = bench.ran(&Case { graph: false, programmatic: false, ..PLAIN })?;
    let graph = bench.plain()?;
    let logits = &eager.logits;
    let differing = logits.iter().zip(&graph.logits).filter(|(a, b)| a != b).count();
    verdict(
        eager.tokens == graph.tokens && differing == 0 && logits.len() == graph.logits.len(),
        format!("{} steps, {differing} of {} logits differ in any bit", bench.tokens - 1, logits.len()),
    )
}

fn early_starts(bench: &Bench<'_>) -> Result<(CheckOutcome, String)> {
    let with = bench.plain()?;
    if !with.programmatic {
        let why = "needs compute capability 9.0 and a driver for CUDA 12.3";
        return Ok((CheckOutcome::NotDone, why.into()));
    }
    let Some(edges) = with.edges else {
        return Ok((CheckOutcome::NotDone, "the driver does not report graph edges".into()));
    };
    let with_us = with.tpot_us;
    let without_us = bench.ran(&Case { programmatic: false, ..PLAIN })?.tpot_us;
    let detail =
        format!("{edges} edges; {with_us:.1} us per step with them, {without_us:.1} us without");
    Ok((
        match (edges, with_us < without_us) {
            (0, _) => CheckOutcome::Failed,
            (_, true) => CheckOutcome::Passed,
            (_, false) => CheckOutcome::Warned,
        },
        detail,
    ))
}

fn bandwidth(bench: &Bench<'_>) -> Result<(CheckOutcome, String)> {
    let ran = bench.plain()?;
    let read = read_bandwidth(bench.gpu, &bench.engine()?.kernels.get("read_bandwidth")?)?;
    let gb_s = ran.bytes as f64 / ran.tpot_us / 1e3;
    let share = gb_s / read.gb_s;
    let detail = format!("{gb_s:.0} GB/s of {:.0} GB/s: {:.0} %", read.gb_s, 100.0 * share);
    Ok((
        match share {
            share if share > BANDWIDTH[0] => CheckOutcome::Failed,
            share if share < BANDWIDTH[1] => CheckOutcome::Warned,
            _ => CheckOutcome::Passed,
        },
        detail,
    ))
}

fn overlap(bench: &Bench<'_>) -> Result<(CheckOutcome, String)> {
    let link = Some(EmulatedLink::Formula { alpha_us: 500.0, gb_s: 1000.0 });
    let mut engine = bench.engine_of(&Case { architecture: "ladder", tp: 4, link, ..PLAIN })?;
    engine.check_link()?;
    let Some([communication, products, both]) = engine.time_beside()? else {
        return Ok((CheckOutcome::NotDone, "nothing was emulated".into()));
    };
    let detail = format!(
        "{communication:.0} us of communication and {products:.0} us of matrix products take {both:.0} us in parallel"
    );
    Ok((beside(communication, products, both), detail))
}

/// Judges the latency of two chains that ran in parallel, given their latencies alone.
fn beside(communication: f64, products: f64, both: f64) -> CheckOutcome {
    let longer = communication.max(products);
    match both {
        // a wait was skipped, or the chains ran sequentially
        both if both < 0.97 * longer || both > 0.9 * (communication + products) => CheckOutcome::Failed,
        both if both > 1.15 * longer => CheckOutcome::Warned,
        _ => CheckOutcome::Passed,
    }
}

fn link(bench: &Bench<'_>) -> Result<(CheckOutcome, String)> {
    let link = Some(EmulatedLink::Formula { alpha_us: 25.0, gb_s: 200.0 });
    let mut engine = bench.engine_of(&Case { architecture: "ladder", tp: 4, link, ..PLAIN })?;
    let Some(checked) = engine.check_link()? else {
        return Ok((CheckOutcome::NotDone, "nothing was emulated".into()));
    };
    let tick_us = checked.tick.longest_ns.max(500.0) / 1e3;
    let off = checked.checked.iter().map(|size| (size.took_us - size.target_us).abs());
    let off = off.fold(0.0, f64::max);
    let launch = checked.launch_us;
    verdict(
        off <= tick_us,
        format!("max error {off:.2} us (clock tick {tick_us:.2} us, launch {launch:.2} us)"),
    )
}

fn stamps(bench: &Bench<'_>) -> Result<(CheckOutcome, String)> {
    let gpu = bench.gpu;
    let engine = bench.engine()?;
    let tick = Tick::measure(gpu, engine.main(), &engine.kernels.get("clock_probe")?)?;
    let stamp_us = Stamps::new(gpu, 1, 1)?.cost_us(gpu, &engine.kernels, engine.main())?;
    let event = gpu.event(true)?;
    let event_us = median_us(gpu, engine.main(), &[DevicePtr(0)], |_| engine.main().record(&event))?;
    let detail = format!(
        "clock resolution {:.0} ns; a timestamp costs {stamp_us:.2} us, an event {event_us:.2} us",
        tick.ns
    );
    Ok((if tick.ns <= 2_100.0 { CheckOutcome::Passed } else { CheckOutcome::Warned }, detail))
}

fn nccl(_: &Bench<'_>) -> Result<(CheckOutcome, String)> {
    if shared_gpu::is_on() {
        return super::on_one_gpu();
    }
    let gpus = Gpu::count()?;
    if gpus < 2 {
        return Ok((CheckOutcome::NotDone, format!("needs 2 GPUs, found {gpus}")));
    }
    super::on_own_gpus(gpus)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_chains_beside_each_other_take_as_long_as_the_longer_one() {
        let found = |both| beside(500.0, 520.0, both);
        assert_eq!([found(521.0), found(590.0)], [CheckOutcome::Passed; 2]);
        assert_eq!(found(700.0), CheckOutcome::Warned);
        // one after the other, and as if one had not been
        assert_eq!([found(1000.0), found(480.0)], [CheckOutcome::Failed; 2]);
    }
}
