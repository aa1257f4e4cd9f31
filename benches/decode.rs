//! Two ratios, each measured within one run because machines drift: decode's read rate over the
//! machine's read bandwidth, and TPOT with recording over TPOT without (arms alternate).
//!
//! Beside other programs: `benches/peers`.
//!
//! Not criterion: what is compared are whole generations in pairs, not calls.

use base::statistics::{median, percentile};
use model::Model;
use plan::{Architecture, DType, Lowering, Phase, Plan, PlanSpec, Precision};
use run::Job;
use run::Resolve;
use table::CellOptions;

const PAIRS: usize = 10;

fn options(dtype: DType, tp: u32) -> CellOptions {
    CellOptions {
        architecture: Some(Architecture::Ladder(plan::LayerSet::All)),
        model: Some("stories-110m".into()),
        backend: Some(table::Backend::Cpu),
        dtype: Some(dtype),
        tp: Some(tp),
        // each weight is read once, the head's too
        shard_head: Some(tp > 1),
        prompt_tokens: Some(8),
        output_tokens: Some(33),
        samples: Some(3),
        warmup: Some(1),
        ..CellOptions::default()
    }
}

/// Median TPOT (ms) of one process's run.
fn tpot(dtype: DType, tp: u32, record: bool, watch: bool) -> f64 {
    let (spec, _) = options(dtype, tp).resolve().expect("the options are valid");
    let job = Job::new(spec, record, watch);
    let (outcome, _) = run::executor(job.spec.backend)
        .and_then(|executor| executor.run(&job, &mut |_| ()))
        .expect("it runs anywhere");
    let steps: Vec<f64> = outcome.samples.iter().flat_map(|s| s.steps_ms.clone()).collect();
    median(&steps).expect("there are steps")
}

/// Bytes of weights that all ranks read in one decode step.
fn weight_bytes(dtype: DType, tp: u32) -> f64 {
    let shape = Model::resolve("stories-110m").expect("built in").shape;
    let precision = Precision::cpu(dtype);
    let spec = PlanSpec {
        architecture: Architecture::Standard,
        tp,
        phase: Phase::Decode,
        precision,
        lowering: Lowering { shard_head: tp > 1, ..Lowering::default() },
        shape: shape.clone(),
        variant: plan::Variant::default(),
        batch: 1,
        pp: 1,
    };
    let plan = Plan::new(&spec).expect("TP divides it");
    // of the embedding only one row is read
    let embedding = u64::from(shape.vocab) * u64::from(shape.hidden) * dtype.bytes();
    (u64::from(tp) * (plan.weight_bytes(precision, &shape) - embedding)) as f64
}

fn main() {
    println!("decode, batch 1, stories-110m: bytes of weights read a second over the read bandwidth");
    for tp in [1, 2] {
        for dtype in [DType::F32, DType::Bf16] {
            let mut shares = Vec::new();
            let mut times = Vec::new();
            for _ in 0..5 {
                let bandwidth = ladderscope::face::cli::read_bandwidth(tp as usize);
                let ms = tpot(dtype, tp, false, false);
                times.push(ms);
                shares.push(weight_bytes(dtype, tp) / (ms / 1e3) / bandwidth);
            }
            println!(
                "  TP {tp} {dtype}: {:.0} % of bandwidth ({:.0} to {:.0} %), TPOT {:.2} ms",
                100.0 * median(&shares).unwrap_or(f64::NAN),
                100.0 * percentile(&shares, 0.0).unwrap_or(f64::NAN),
                100.0 * percentile(&shares, 100.0).unwrap_or(f64::NAN),
                median(&times).unwrap_or(f64::NAN),
            );
        }
    }
    let recorded = |record| move || tpot(DType::F32, 2, record, false);
    overhead("recording", recorded(true), recorded(false));
    let watched = |watch| move || tpot(DType::F32, 2, true, watch);
    overhead("watching a recorded run", watched(true), watched(false));
}

/// TPOT of one way of running over that of another, in pairs of which either comes first by turns.
fn overhead(what: &str, with: impl Fn() -> f64, without: impl Fn() -> f64) {
    println!("{what}: TPOT with over TPOT without, TP 2 f32, {PAIRS} alternating pairs");
    let ratios: Vec<f64> = (0..PAIRS)
        .map(|pair| {
            // which arm comes first alternates too
            if pair % 2 == 0 {
                let with = with();
                with / without()
            } else {
                let without = without();
                with() / without
            }
        })
        .collect();
    println!(
        "  overhead {:+.2} % (median; quartiles {:+.2} to {:+.2} %)",
        100.0 * (median(&ratios).unwrap_or(f64::NAN) - 1.0),
        100.0 * (percentile(&ratios, 25.0).unwrap_or(f64::NAN) - 1.0),
        100.0 * (percentile(&ratios, 75.0).unwrap_or(f64::NAN) - 1.0),
    );
}
