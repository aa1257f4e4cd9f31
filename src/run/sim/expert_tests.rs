//! Mixtures of experts on the simulator: peers wait where whole experts are divided, rows travel where attention is
//! data-parallel, and FarSkip hides the routed sum.

use super::Simulator;
use super::testing::spec;
use plan::{DType, ExpertLoad, Lane};
use table::{Sample, Spec};
use trace::Trace;

fn cell(architecture: &str, model: &str, [tp, ep, dp]: [u32; 3]) -> Spec {
    let base = spec(architecture, model);
    Spec {
        dtype: DType::Fp8Block,
        hardware: "h100_sxm".into(),
        stack: "native".into(),
        tp,
        ep,
        dp,
        batch: 32,
        prompt_tokens: 512,
        output_tokens: 4,
        ..base
    }
}

fn traced(spec: &Spec) -> (Sample, Trace) {
    let (mut outcome, trace) = Simulator::default().cell(spec).unwrap().run(true).unwrap();
    (outcome.samples.remove(0), trace.unwrap())
}

fn waits(trace: &Trace) -> i64 {
    trace.spans.iter().map(|span| (span.last_arrival_ns - span.start_ns).max(0)).sum()
}

#[test]
fn peers_wait_for_the_busiest_rank_only_where_experts_are_whole() {
    let of = |ep, load| {
        let cell = cell("standard", "qwen3-30b-a3b", [4, ep, 1]);
        traced(&Spec { expert_load: load, ..cell }).1
    };
    assert_eq!(waits(&of(1, ExpertLoad::Uniform)), 0);
    assert_eq!(waits(&of(4, ExpertLoad::Balanced)), 0);
    let uniform = waits(&of(4, ExpertLoad::Uniform));
    let skewed = waits(&of(4, ExpertLoad::PowerLaw(1.2)));
    assert!(0 < uniform && uniform < skewed, "{uniform} {skewed}");
}

/// Only four of 128 were measured: other numbers are in proportion to it, not of another source.
#[test]
fn more_chosen_experts_take_longer_without_a_jump() {
    let base = Spec { dtype: DType::Mxfp4, batch: 64, ..cell("standard", "gpt-oss-120b", [8, 1, 1]) };
    let ms = |numbers: &str| {
        let spec = Spec { model: format!("gpt-oss-120b{numbers}"), ..base.clone() };
        Simulator::default().cell(&spec).unwrap().predict().decode_ms
    };
    for numbers in
        [["@top-k=3", "", "@top-k=5", "@top-k=8"], ["@experts=96", "@experts=127", "", "@experts=192"]]
    {
        let times = numbers.map(ms);
        for pair in times.windows(2) {
            assert!((1.0..1.5).contains(&(pair[1] / pair[0])), "{numbers:?} {times:?}");
        }
    }
}

/// A prediction simulates a few steps and a run all of them; both must agree, including the time that ranks wait for peers.
#[test]
fn predictions_of_ranks_that_differ_agree_with_runs() {
    let simulator = Simulator::default();
    for (division, batch) in [([8, 8, 1], 16), ([8, 8, 1], 128), ([1, 8, 8], 16), ([1, 8, 8], 64)] {
        for architecture in ["standard", "ladder", "parallel", "upper-bound"] {
            let cell =
                Spec { dtype: DType::Mxfp4, batch, ..cell(architecture, "gpt-oss-20b", division) };
            let spec = Spec { output_tokens: 33, ..cell };
            let cell = simulator.cell(&spec).unwrap();
            let (predicted, step) = (cell.predict(), cell.predict_middle_step().unwrap());
            let run = cell.run(false).unwrap().0.samples.remove(0);
            let whole = run.overlap.unwrap();
            let of = |pairs: &[(&str, f64, f64, f64)]| {
                for (name, one, all, tolerance) in pairs {
                    // relative error; short times are compared with 5 % of the decode latency
                    let off = (one - all).abs() / all.max(0.05 * run.decode_ms);
                    assert!(
                        off < *tolerance,
                        "{architecture} {division:?} b{batch} {name}: {one} {all}"
                    );
                }
            };
            let tpot = base::statistics::median(&run.steps_ms).unwrap();
            of(&[
                ("prefill", predicted.prefill_ms, run.prefill_ms, 1e-6),
                ("decode", predicted.decode_ms, run.decode_ms, 0.01),
                ("TPOT", step.length_ns as f64 / 1e6, tpot, 0.01),
            ]);
            if architecture != "upper-bound" {
                let waited = |o: &table::Overlap| o.split.unwrap().peer_wait_ms;
                assert!(waited(&whole) > 0.0);
                of(&[
                    ("comm", step.overlap.comm_ms * 32.0, whole.comm_ms, 0.03),
                    ("exposed", step.overlap.exposed_comm_ms * 32.0, whole.exposed_comm_ms, 0.05),
                    ("waiting", waited(&step.overlap) * 32.0, waited(&whole), 0.06),
                ]);
            }
        }
    }
}

/// DeepEP's low-latency kernels between eight H100s, 32 rows a rank: 18 us out, 26.3 us back.
#[test]
fn rows_are_dispatched_and_combined_with_measured_latencies() {
    let spec = Spec {
        batch: 256,
        expert_load: ExpertLoad::Balanced,
        ..cell("standard", "deepseek-v3", [1, 8, 8])
    };
    let (_, trace) = traced(&spec);
    assert_eq!(trace.meta.ranks, 8);
    let us = |name: &str| {
        let at = trace.operations.iter().rposition(|o| o.name.ends_with(name)).unwrap() as u32;
        let span = trace.spans.iter().find(|span| span.operation == at).unwrap();
        assert_eq!(span.lane, Lane::Comm);
        (span.end_ns - span.start_ns) as f64 / 1e3
    };
    // while the shared expert runs, a dispatch may be slower
    let (dispatch, combine) = (us("L5/moe/dispatch"), us("L5/moe/combine"));
    assert!((18.0..30.0).contains(&dispatch), "{dispatch}");
    assert!((combine - 26.3).abs() < 0.01, "{combine}");
    // no all-reduce at all
    assert!(trace.operations.iter().all(|o| !o.name.ends_with("all_reduce")));
}

#[test]
fn farskip_hides_more_than_standard_and_less_than_everything() {
    let tpot = |architecture: &str| traced(&cell(architecture, "llama-4-scout", [8, 8, 1])).0;
    let [standard, farskip, limit] = ["standard", "farskip", "upper-bound"].map(tpot);
    assert!(limit.decode_ms < farskip.decode_ms && farskip.decode_ms < standard.decode_ms);
    let [standard, farskip] =
        [standard, farskip].map(|sample| sample.overlap.unwrap().overlap_pct.unwrap_or(0.0));
    assert!(standard < 5.0 && farskip > 60.0, "{standard} {farskip}");
}

#[test]
fn windows_and_latents_cache_less() {
    let kv = |model: &str, tp| {
        let cell = Spec { prompt_tokens: 8192, ..cell("standard", model, [tp, 1, 1]) };
        Simulator::default().cell(&cell).unwrap().memory().kv
    };
    // 24 layers, half of them with 128 tokens; 8 KV heads of 64, keys and values of 2 bytes
    assert_eq!(kv("gpt-oss-20b", 1), 32 * 12 * (128 + 8196) * 2 * 8 * 64 * 2);
    // 576 numbers a token and layer on every rank
    assert_eq!(
        (kv("deepseek-v3", 8), kv("deepseek-v3", 16)),
        (32 * 61 * 8196 * 576 * 2, 32 * 61 * 8196 * 576 * 2)
    );
}
