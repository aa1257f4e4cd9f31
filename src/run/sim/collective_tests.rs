//! Collectives other than NCCL's: what they take, what they cost compute, and what fusing them changes.

use super::simulator::lowering;
use super::testing::{shape_70b, shape_tiny, simulate, spec};
use crate::{Outcome, RunResult};
use machine::hardware::Target;
use plan::{Lane, ModelShape};
use table::{Collective, Link, P2p, Sample, Spec};

fn run(spec: &Spec, shape: &ModelShape) -> RunResult {
    simulate(spec, shape, true)
}

fn outcome(spec: &Spec) -> Outcome {
    run(spec, &shape_70b()).unwrap().0
}

fn sample(spec: &Spec) -> Sample {
    outcome(spec).samples.remove(0)
}

fn cell(architecture: &str, collective: Collective) -> Spec {
    Spec { collective, tp: 8, output_tokens: 4, ..spec(architecture, "llama-3-70b") }
}

#[test]
fn a_faster_collective_is_a_faster_step_and_leaves_less_to_hide() {
    let tpot = |architecture, collective| sample(&cell(architecture, collective)).decode_ms;
    let standard = |collective| tpot("standard", collective);
    let [nccl, fused] = [Collective::Nccl, Collective::Fused];
    for faster in [Collective::Symmetric, Collective::OneShot, Collective::Multimem] {
        assert!(standard(faster) < standard(nccl), "{faster}");
    }
    assert!(standard(fused) < standard(Collective::OneShot));
    let gain = |collective| standard(collective) / tpot("ladder", collective);
    assert!(gain(fused) < gain(nccl) && gain(fused) > 1.0, "{} {}", gain(fused), gain(nccl));
    // there is nothing to reduce in the bound
    assert_eq!(tpot("upper-bound", fused), tpot("upper-bound", nccl));
}

#[test]
fn a_fused_all_reduce_is_compute_where_compute_waits_for_it() {
    let overlap = |architecture| sample(&cell(architecture, Collective::Fused)).overlap.unwrap();
    let (standard, ladder, delayed) = (overlap("standard"), overlap("ladder"), overlap("delayed:2"));
    assert_eq!((standard.comm_ms, standard.overlap_pct), (0.0, None));
    assert!(ladder.comm_ms > 0.0 && ladder.overlap_pct.unwrap() > 90.0, "{ladder:?}");
    assert!(delayed.comm_ms > 0.0);
}

#[test]
fn ladders_fused_operations_are_in_the_trace_on_the_comm_lane() {
    let (_, trace) = run(&cell("ladder", Collective::Fused), &shape_70b()).unwrap();
    let trace = trace.unwrap();
    let kinds = |lane| {
        let spans = trace.spans.iter().filter(move |span| span.lane == lane && span.rank == 0);
        spans
            .filter(|span| trace.operation_kind(span) == Some(&trace::OperationKind::AllReduceAddNorm))
            .count()
    };
    // 160 all-reduces in each of three steps and prefill: the last two sums join at once
    assert_eq!(kinds(Lane::Compute), 3);
    assert_eq!(kinds(Lane::Comm), 3 * 158 + 158);
}

#[test]
fn fused_needs_a_link_that_has_it() {
    let is_fused = |change: &dyn Fn(&mut Spec)| {
        let mut spec = cell("standard", Collective::Fused);
        change(&mut spec);
        lowering(&spec, &Target::from_spec(&spec).unwrap()).fuse_all_reduce
    };
    assert!(is_fused(&|_| ()));
    assert!(is_fused(&|spec| spec.link = Link::Emulated { alpha_us: 5.0, gb_s: 300.0 }));
    assert!(!is_fused(&|spec| spec.p2p = P2p::Off));
    assert!(!is_fused(&|spec| spec.link = Link::P2pOff));
    assert!(!is_fused(&|spec| spec.tp = 16));
    assert!(!is_fused(&|spec| spec.collective = Collective::Multimem));
}

#[test]
fn the_environment_says_which_collective_it_was_and_by_what_it_was_scaled() {
    let of = |spec: &Spec, key: &str| {
        let found = outcome(spec).environment.get(key).cloned().unwrap_or_default();
        found.as_str().map_or_else(|| found.to_string(), str::to_owned)
    };
    let fused = cell("upper-bound", Collective::Fused);
    assert_eq!(of(&fused, "collective"), "fused");
    assert_eq!(of(&fused, "collective_ctas"), "16");
    let note = of(&fused, "link_note");
    assert!(note.contains("TokenWeave") && note.contains("1.14 x one-shot"), "{note}");
    assert!(of(&fused, "norm").contains("gaps closed above 1"));
    let b200 = Spec { hardware: "b200_sxm".into(), ..fused.clone() };
    assert!(of(&b200, "link_note").contains("the machine is not stated"));
    let off = Spec { p2p: P2p::Off, ..fused };
    assert_eq!(of(&off, "collective"), "nccl (fused needs P2P)");
    assert_eq!(of(&off, "collective_note"), "all-reduces are those of nccl, not fused: needs P2P");
    assert!(of(&off, "norm").contains("as the other architectures do"));
    let multimem = Spec { hardware: "h200_sxm".into(), ..cell("standard", Collective::Multimem) };
    assert!(of(&multimem, "link_note").contains("not measured on h200_sxm: scaled from h100_sxm"));
    assert_eq!(of(&multimem, "norm"), "null");
}

#[test]
fn a_collective_of_few_thread_blocks_takes_less_from_compute() {
    let contention = |ctas: &str| {
        let mut spec = Spec { prompt_tokens: 4096, ..cell("ladder", Collective::Multimem) };
        spec.set.insert("contention.full_ctas".into(), ctas.into());
        sample(&spec).prefill_ms
    };
    assert!(contention("24") < contention("8"), "4 of 24 blocks against 4 of 8");
}

/// Ranks that differ by next to nothing, each simulated: a fused all-reduce waits for its peers on either lane.
#[test]
fn ranks_that_differ_wait_for_each_other_in_fused_operations() {
    for architecture in ["standard", "ladder", "ladder:2", "stale:2", "parallel+ladder", "sync-drop:2"] {
        let plain = Spec {
            collective: Collective::Fused,
            tp: 4,
            output_tokens: 4,
            ..spec(architecture, "tiny")
        };
        let mut skewed = plain.clone();
        skewed.set.insert("skew.operation_pct".into(), "1e-300".into());
        let of = |spec: &Spec| run(spec, &shape_tiny()).unwrap().0.samples.remove(0).decode_ms;
        let difference = (of(&plain) / of(&skewed) - 1.0).abs();
        assert!(difference < 1e-4, "{architecture}: {difference}");
        skewed.set.insert("skew.rank_pct".into(), "10".into());
        assert!(of(&skewed) > of(&plain), "{architecture}: the slowest rank sets the pace");
    }
}
