//! What the simulator promises: hand-made plans, conservation, monotony, determinism.

use proptest::prelude::*;

use super::Simulator;
use super::durations::Durations;
use super::lane_times::LaneTimes;
use super::lanes::{LaneClock, LaneSimulation, SimulatedOperation};
use super::testing::{alone, plan, shape_70b, shape_tiny, simulate, spec};
use base::error::Error;
use machine::hardware::{CollectiveScale, Target};
use plan::testing::ARCHITECTURES;
use plan::{Architecture, Lane, ModelShape, OpId, Phase, Plan, ValueId};
use table::{Collective, Link, P2p, Provenance, Sample, Spec};
use trace::Trace;
use trace::overlap::{Selection, overlap};

fn sample(spec: &Spec, shape: &ModelShape) -> Sample {
    simulate(spec, shape, false).unwrap().0.samples.remove(0)
}

fn traced(spec: &Spec, shape: &ModelShape) -> (Sample, Trace) {
    let (mut outcome, trace) = simulate(spec, shape, true).unwrap();
    (outcome.samples.remove(0), trace.unwrap())
}

/// Three operations of the tiny plan, rewired: `reads` names writers (None: the step's tokens).
fn three(wiring: [(Lane, Option<usize>); 3]) -> Plan {
    let mut plan = plan(&Architecture::Standard, &shape_tiny(), 2, Phase::Decode);
    plan.operations.truncate(3);
    let written: Vec<ValueId> = plan.operations.iter().map(|o| o.writes[0]).collect();
    for (operation, (lane, reads)) in plan.operations.iter_mut().zip(wiring) {
        operation.lane = lane;
        operation.reads = vec![reads.map_or(plan.tokens[0], |writer| written[writer])];
        operation.writes.truncate(1);
    }
    plan.outputs = vec![written[2]];
    plan
}

/// The events of a step, in the plan's order, and the lanes' busy times.
fn step(
    plan: &Plan,
    durations: &Durations<'_>,
    clock: &mut LaneClock,
) -> (Vec<SimulatedOperation>, LaneTimes) {
    let (mut events, mut times) = (Vec::new(), LaneTimes::default());
    let both = LaneSimulation::new(plan).step(durations, clock, |event| {
        times.count(&event);
        events.push(event);
    });
    times.add_overlap(both, 0);
    events.sort_by_key(|event| event.operation);
    (events, times)
}

fn events(plan: &Plan, durations: &[i64], clock: &mut LaneClock) -> Vec<SimulatedOperation> {
    step(plan, &Durations::given(durations), clock).0
}

fn starts(events: &[SimulatedOperation]) -> Vec<(i64, i64)> {
    events.iter().map(|e| (e.start, e.end)).collect()
}

#[test]
fn a_chain_over_both_lanes_waits_at_each_link() {
    let plan = three([(Lane::Compute, None), (Lane::Comm, Some(0)), (Lane::Compute, Some(1))]);
    let mut clock = LaneClock::default();
    assert_eq!(starts(&events(&plan, &[10, 20, 5], &mut clock)), [(0, 10), (10, 30), (30, 35)]);
    // the next step begins with the token sampled at 35
    assert_eq!(clock.tokens, 35);
    assert_eq!(starts(&events(&plan, &[10, 20, 5], &mut clock)), [(35, 45), (45, 65), (65, 70)]);
}

#[test]
fn compute_that_does_not_read_the_message_overlaps_it() {
    let plan = three([(Lane::Compute, None), (Lane::Comm, Some(0)), (Lane::Compute, Some(0))]);
    let (events, times) = step(&plan, &Durations::given(&[10, 20, 5]), &mut LaneClock::default());
    assert_eq!(starts(&events), [(0, 10), (10, 30), (10, 15)]);
    let overlap = times.overlap().unwrap();
    assert_eq!((overlap.comm_ms, overlap.exposed_comm_ms), (20e-6, 15e-6));
    assert_eq!((overlap.compute_ms, overlap.idle_ms, overlap.overlap_pct), (15e-6, 0.0, Some(25.0)));
}

#[test]
fn a_lane_does_one_thing_at_a_time_in_order() {
    let plan = three([(Lane::Comm, None), (Lane::Comm, None), (Lane::Compute, Some(0))]);
    let events = events(&plan, &[10, 20, 5], &mut LaneClock::default());
    assert_eq!(starts(&events), [(0, 10), (10, 30), (10, 15)]);
    // it was ready long before its lane was
    assert_eq!((events[1].ready, events[1].start), (0, 10));
}

#[test]
fn an_explicit_edge_is_obeyed() {
    let mut plan = three([(Lane::Compute, None), (Lane::Comm, Some(0)), (Lane::Compute, Some(0))]);
    plan.operations[2].after = vec![OpId(1)];
    assert_eq!(starts(&events(&plan, &[10, 20, 5], &mut LaneClock::default()))[2], (30, 35));
}

#[test]
fn the_trace_ends_when_the_run_does() {
    let spec = Spec { output_tokens: 300, ..spec("ladder", "tiny") };
    let (sample, trace) = traced(&spec, &shape_tiny());
    let last = trace.spans.iter().map(|s| s.end_ns).max().unwrap() as f64 / 1e6;
    assert!((last - sample.prefill_ms - sample.decode_ms).abs() < 1e-9);
}

/// Unions of a rank's intervals by marking every boundary: slow, obvious, and unlike the simulator's.
fn measured(trace: &Trace, rank: u32) -> (i64, i64, i64, i64) {
    let of = |lane| -> Vec<(i64, i64)> {
        let decode = trace.spans.iter().filter(|s| s.phase == Phase::Decode && s.rank == rank);
        decode.filter(|s| s.lane == lane).map(|s| (s.start_ns, s.end_ns)).collect()
    };
    let (compute, comm) = (of(Lane::Compute), of(Lane::Comm));
    let mut times: Vec<i64> = compute.iter().chain(&comm).flat_map(|i| [i.0, i.1]).collect();
    times.sort_unstable();
    times.dedup();
    let busy = |lane: &[(i64, i64)], from: i64, to: i64| lane.iter().any(|i| i.0 <= from && to <= i.1);
    let (mut comms, mut exposed, mut computes, mut idle) = (0, 0, 0, 0);
    for pair in times.windows(2) {
        let (from, to) = (pair[0], pair[1]);
        let length = to - from;
        match (busy(&compute, from, to), busy(&comm, from, to)) {
            (true, true) => (comms, computes) = (comms + length, computes + length),
            (true, false) => computes += length,
            (false, true) => (comms, exposed) = (comms + length, exposed + length),
            (false, false) => idle += length,
        }
    }
    (comms, exposed, computes, idle)
}

#[test]
fn the_overlap_said_is_the_overlap_in_the_trace_averaged_over_ranks() {
    for (architecture, skew) in ARCHITECTURES.iter().flat_map(|name| [(*name, "0"), (*name, "4")]) {
        let mut spec = Spec { tp: 4, output_tokens: 6, ..spec(architecture, "tiny") };
        spec.set.insert("skew.operation_pct".into(), skew.into());
        let (sample, trace) = traced(&spec, &shape_tiny());
        let said = sample.overlap.unwrap();
        let mut mean = [0.0; 4];
        for rank in 0..4 {
            let (comm, exposed, compute, idle) = measured(&trace, rank);
            for (mean, ns) in mean.iter_mut().zip([comm, exposed, compute, idle]) {
                *mean += ns as f64 / 1e6 / 4.0;
            }
        }
        for (said, mean) in
            [said.comm_ms, said.exposed_comm_ms, said.compute_ms, said.idle_ms].into_iter().zip(mean)
        {
            assert!((said - mean).abs() < 1e-9, "{architecture} {skew}: {said} ms, not {mean}");
        }
        assert_eq!(said.overlap_pct.is_none(), architecture == "upper-bound");
    }
}

/// The host's time before a step is idle time of the step and, before the first one, of the decode phase.
#[test]
fn the_idle_time_of_an_engines_host_is_the_same_in_the_record_and_the_trace() {
    for skew in ["0", "4"] {
        let base = spec("standard", "tiny");
        let mut spec = Spec { tp: 4, output_tokens: 6, stack: "vllm-0.12".into(), ..base };
        spec.set = [("step_us", "500"), ("skew.operation_pct", skew)]
            .map(|(key, value)| (key.to_owned(), value.to_owned()))
            .into();
        let (sample, trace) = traced(&spec, &shape_tiny());
        let decode = Selection { phase: Some(Phase::Decode), ..Selection::default() };
        let idle_us = |selection| overlap(&trace, &selection).all.idle_us / 4.0;
        let said_us = 1e3 * sample.overlap.unwrap().idle_ms;
        assert!((said_us - idle_us(decode)).abs() < 1e-6, "{said_us} {}", idle_us(decode));
        assert!(said_us > 5.0 * 500.0, "{said_us}");
        for step in 0..5 {
            let idle_us = idle_us(Selection { step: Some(step), ..decode });
            assert!((500.0..said_us / 4.0).contains(&idle_us), "step {step}: {idle_us}");
        }
    }
}

#[test]
fn traces_are_sorted_labelled_and_whole() {
    let spec = Spec { output_tokens: 4, ..spec("ladder", "tiny") };
    let (_, trace) = traced(&spec, &shape_tiny());
    assert_eq!(trace.meta.provenance, Provenance::Simulated);
    assert!(trace.spans.is_sorted_by_key(|s| (s.sample, s.phase, s.step, s.rank, s.lane, s.start_ns)));
    let count = |phase| trace.operations.iter().filter(|o| o.phase == phase).count();
    assert_eq!(trace.spans.len(), 2 * (count(Phase::Prefill) + 3 * count(Phase::Decode)));
    for span in &trace.spans {
        let operation = &trace.operations[span.operation as usize];
        assert_eq!((operation.phase, operation.lane), (span.phase, span.lane));
        assert!(span.ready_ns <= span.start_ns && span.start_ns <= span.end_ns);
        let arrival = if span.lane == Lane::Comm { span.start_ns } else { -1 };
        assert_eq!(span.last_arrival_ns, arrival);
    }
}

#[test]
fn time_is_conserved_on_each_lane_and_over_steps() {
    for architecture in ARCHITECTURES {
        let sample = sample(&Spec { tp: 8, ..spec(architecture, "llama-3-70b") }, &shape_70b());
        let overlap = sample.overlap.unwrap();
        assert_eq!(sample.steps_ms.len(), 511);
        let steps: f64 = sample.steps_ms.iter().sum();
        assert!((steps - sample.decode_ms).abs() < 1e-6 * steps);
        // busy either way and idle make up the span
        let all = overlap.compute_ms + overlap.exposed_comm_ms + overlap.idle_ms;
        assert!((all - sample.decode_ms).abs() < 2e-6, "{architecture}: {all} of {}", sample.decode_ms);
        assert!(sample.steps_ms.is_sorted(), "{architecture}: a longer context is never faster");
    }
}

#[test]
fn upper_bound_bounds_ladder_and_ladder_beats_standard_but_for_its_extra_addition() {
    for (tp, batch, p2p) in [(2, 1, P2p::On), (4, 16, P2p::Off), (8, 1, P2p::Off), (8, 64, P2p::On)] {
        let of = |architecture| {
            sample(&alone(Spec { tp, batch, p2p, ..spec(architecture, "70b") }), &shape_70b())
        };
        let (standard, ladder, bound) = (of("standard"), of("ladder"), of("upper-bound"));
        let compute = |s: &Sample| s.overlap.unwrap().compute_ms;
        let extra = (compute(&ladder) - compute(&standard)).max(0.0);
        assert!(extra < 0.01 * standard.decode_ms);
        assert!(bound.decode_ms <= ladder.decode_ms);
        assert!(ladder.decode_ms <= standard.decode_ms + extra);
        assert!(ladder.decode_ms < standard.decode_ms, "tp {tp} batch {batch}");
        // standard hides nothing, ladder something
        assert_eq!(standard.overlap.unwrap().overlap_pct, Some(0.0));
        assert!(ladder.overlap.unwrap().overlap_pct.unwrap() > 10.0);
    }
}

#[test]
fn upper_bound_is_the_same_to_the_last_digit_with_and_without_p2p() {
    let of = |p2p| sample(&Spec { p2p, tp: 8, ..spec("upper-bound", "70b") }, &shape_70b());
    assert_eq!(of(P2p::On), of(P2p::Off));
    let standard = |p2p| sample(&Spec { p2p, tp: 8, ..spec("standard", "70b") }, &shape_70b());
    assert!(standard(P2p::Off).decode_ms > standard(P2p::On).decode_ms);
}

#[test]
fn one_rank_does_not_communicate() {
    let sample = sample(&Spec { tp: 1, ..spec("standard", "tiny") }, &shape_tiny());
    let overlap = sample.overlap.unwrap();
    assert_eq!((overlap.comm_ms, overlap.overlap_pct, overlap.idle_ms), (0.0, None, 0.0));
}

#[test]
fn links_are_the_ones_asked_for() {
    let of = |link, p2p, collective| {
        let spec = Spec { link, p2p, collective, tp: 4, output_tokens: 3, ..spec("standard", "tiny") };
        sample(&spec, &shape_tiny()).decode_ms
    };
    let nccl = Collective::Nccl;
    assert_eq!(of(Link::P2pOn, P2p::Off, nccl), of(Link::Native, P2p::On, nccl));
    assert_eq!(of(Link::P2pOff, P2p::On, nccl), of(Link::Native, P2p::Off, nccl));
    assert!(of(Link::Native, P2p::On, Collective::OneShot) < of(Link::Native, P2p::On, nccl));
    // 8 all-reduces of 128 bytes in each of 2 steps: 1 us more each
    let emulated = |alpha_us| of(Link::Emulated { alpha_us, gb_s: 1.0 }, P2p::On, nccl);
    assert!((emulated(101.0) - emulated(100.0) - 16e-3).abs() < 1e-9);
}

#[test]
fn gpt_fast_prefill_pays_for_all_logits() {
    let of = |stack: &str| {
        sample(&Spec { stack: stack.into(), batch: 4, ..spec("standard", "70b") }, &shape_70b())
    };
    let (native, gpt_fast) = (of("native"), of("gpt-fast"));
    assert!(gpt_fast.prefill_ms > native.prefill_ms);
    // and decode for every slot of its static cache, however few are used
    assert!(gpt_fast.decode_ms > native.decode_ms);
}

#[test]
fn what_cannot_be_simulated_is_refused_with_the_reason() {
    let refused = |spec: Spec| {
        let error: Error = simulate(&spec, &shape_tiny(), false).unwrap_err();
        assert_eq!(error.exit_code(), 2);
        error.to_string()
    };
    assert!(
        refused(Spec { tp: 3, ..spec("standard", "tiny") }).contains("TP 3 does not divide 8 heads")
    );
    assert!(refused(Spec { batch: 0, ..spec("standard", "tiny") }).contains("batch is 0"));
    assert!(
        refused(Spec { output_tokens: 0, ..spec("standard", "tiny") }).contains("output_tokens is 0")
    );
    assert!(
        refused(Spec { stack: "vllm".into(), ..spec("standard", "tiny") })
            .contains("unknown stack 'vllm'")
    );
    let endless = Link::Emulated { alpha_us: 1e300, gb_s: 1.0 };
    assert!(refused(Spec { link: endless, ..spec("standard", "tiny") }).contains("292 years"));
    for (key, value) in [("hbm_gb_s", "1e-300"), ("launch_us", "1e300")] {
        let set = [(key.to_owned(), value.to_owned())].into();
        assert!(refused(Spec { set, ..spec("standard", "tiny") }).contains("292 years"), "{key}");
    }
    // two micro-batches, each with more of the host's time than the clock holds
    let set = [("step_us".to_owned(), "1e16".to_owned())].into();
    let stages = Spec { pp: 2, micro_batches: 2, batch: 16, set, ..spec("standard", "tiny") };
    assert!(refused(Spec { stack: "vllm-0.12".into(), ..stages.clone() }).contains("292 years"));
    // ranks that never wait for each other
    let mut apart = Spec { pp: 1, tp: 2, ..stages };
    apart.architecture = Architecture::UpperBound;
    apart.set.insert("skew.rank_pct".into(), "5".into());
    let target = Target::from_spec(&apart).unwrap().into();
    let predicted = Simulator::default().cell_on(&apart, &shape_tiny(), target).unwrap().predict();
    assert!(predicted.decode_ms > 1e10, "{predicted:?}");
}

#[test]
fn one_output_token_is_prefill_alone() {
    let sample = sample(&Spec { output_tokens: 1, ..spec("ladder", "tiny") }, &shape_tiny());
    assert!(sample.prefill_ms > 0.0);
    assert_eq!((sample.decode_ms, sample.steps_ms.len(), sample.overlap), (0.0, 0, None));
}

#[test]
fn the_environment_says_what_decided_the_numbers() {
    let spec = Spec { p2p: P2p::Off, ..spec("ladder", "tiny") };
    let target = Target::from_spec(&spec).unwrap();
    let (outcome, _) = simulate(&spec, &shape_tiny(), false).unwrap();
    assert_eq!(outcome.environment["hardware_profile"], "h100_sxm");
    assert_eq!(outcome.environment["stack"], "native");
    let small =
        target.profile.collective(Collective::Nccl, P2p::Off, 2, CollectiveScale::ALONE).0.us(16384.0).0;
    assert_eq!(outcome.environment["link"]["us_16KiB"], small);
    assert!(outcome.environment["link_note"].as_str().unwrap().contains("calibrated"));
    let shares = outcome.environment["cost_sources"]["decode"].as_object().unwrap();
    let sum: f64 = shares.values().map(|share| share.as_f64().unwrap()).sum();
    assert!((sum - 1.0).abs() < 0.003 && shares.len() == 4);
    assert_eq!(outcome.plan_hashes.len(), 2);
}

#[test]
fn lanes_that_are_busy_together_slow_each_other() {
    // compute 0 ends at 10; then 1 (comm, 20 us alone) and 2 (compute, 5 alone) run side by side
    let plan = three([(Lane::Compute, None), (Lane::Comm, Some(0)), (Lane::Compute, Some(0))]);
    let durations = Durations::contending(&[10_000, 20_000, 5_000], &[0.5, 1.0, 0.5], 0.2);
    let (events, times) = step(&plan, &durations, &mut LaneClock::default());
    // half its rate: 5 us of work take 10; meanwhile the transfer does 8 of its 20 us, then 12 alone
    assert_eq!(starts(&events), [(0, 10_000), (10_000, 32_000), (10_000, 20_000)]);
    let overlap = times.overlap().unwrap();
    let split = overlap.split.unwrap();
    assert!((split.work_ms - 15e-3).abs() < 1e-9 && (split.contention_ms - 5e-3).abs() < 1e-9);
    assert!((split.transfer_ms - 12e-3).abs() < 1e-9 && split.peer_wait_ms == 0.0);
    assert_eq!((overlap.comm_ms, overlap.exposed_comm_ms), (22e-3, 12e-3));
}

#[test]
fn a_small_message_contends_less() {
    let plan = three([(Lane::Compute, None), (Lane::Comm, Some(0)), (Lane::Compute, Some(0))]);
    let end = |intensity: f64| {
        let durations = Durations::contending(&[10, 20_000, 5_000], &[0.5, intensity, 0.5], 0.0);
        step(&plan, &durations, &mut LaneClock::default()).0[2].end
    };
    assert_eq!([end(0.0), end(0.4), end(1.0)], [5_010, 6_260, 10_010]);
}

#[test]
fn the_parts_of_the_split_and_idle_make_up_the_decode_phase() {
    for (architecture, skew) in [("standard", "0"), ("ladder", "0"), ("ladder", "3"), ("desync:2", "3")]
    {
        let mut spec = Spec { tp: 4, batch: 4, output_tokens: 9, ..spec(architecture, "llama-3-70b") };
        spec.set.insert("skew.operation_pct".into(), skew.into());
        spec.set.insert("skew.rank_pct".into(), skew.into());
        let sample = sample(&spec, &shape_70b());
        let (overlap, split) = (sample.overlap.unwrap(), sample.overlap.unwrap().split.unwrap());
        let parts = split.work_ms + split.contention_ms + split.peer_wait_ms + split.transfer_ms;
        let all = parts + overlap.idle_ms;
        // with skew ranks do not begin and end together
        let slack = if skew == "0" { 1e-6 } else { 0.02 * sample.decode_ms };
        assert!(
            (all - sample.decode_ms).abs() <= slack,
            "{architecture}: {all} of {}",
            sample.decode_ms
        );
        assert!((split.peer_wait_ms + split.transfer_ms - overlap.exposed_comm_ms).abs() < 1e-6);
        assert_eq!(split.peer_wait_ms > 0.0, skew != "0", "{architecture} {skew}");
    }
}

#[test]
fn ranks_that_differ_by_nothing_are_ranks_that_are_alike() {
    for architecture in ARCHITECTURES {
        let plain = Spec { tp: 4, output_tokens: 4, ..spec(architecture, "tiny") };
        let mut skewed = plain.clone();
        // the smallest skew that is one
        skewed.set.insert("skew.operation_pct".into(), "1e-300".into());
        let (alike, each) = (sample(&plain, &shape_tiny()), sample(&skewed, &shape_tiny()));
        let difference = (alike.decode_ms - each.decode_ms).abs();
        // both round to nanoseconds, in their own order
        assert!(difference <= 1e-4 * alike.decode_ms, "{architecture}: {difference} ms");
    }
}

#[test]
fn skew_makes_stragglers_that_follow_from_the_seed() {
    let of = |seed, pct: &str| {
        let mut spec = Spec { tp: 4, output_tokens: 5, seed, ..spec("standard", "tiny") };
        spec.set.insert("skew.rank_pct".into(), pct.into());
        sample(&spec, &shape_tiny())
    };
    assert_eq!(of(1, "5"), of(1, "5"));
    assert_ne!(of(1, "5").decode_ms, of(2, "5").decode_ms);
    assert!(of(1, "5").decode_ms > of(1, "0").decode_ms, "the slowest rank sets the pace");
    let mut spec = Spec { tp: 4, output_tokens: 3, ..spec("ladder", "tiny") };
    spec.set.insert("skew.rank_pct".into(), "10".into());
    let (_, trace) = traced(&spec, &shape_tiny());
    let waited = |rank| -> i64 {
        let comm = trace.spans.iter().filter(|s| s.rank == rank && s.lane == Lane::Comm);
        comm.map(|s| s.last_arrival_ns - s.start_ns).sum()
    };
    let waits: Vec<i64> = (0..4).map(waited).collect();
    // the slowest rank waits least, and somebody waits for it
    assert!(waits.iter().min() < waits.iter().max(), "{waits:?}");
    assert!(trace.spans.is_sorted_by_key(|s| (s.sample, s.phase, s.step, s.rank, s.lane, s.start_ns)));
}

#[test]
fn a_rank_keeps_its_speed_from_prefill_to_decode() {
    let mut spec = Spec { tp: 4, output_tokens: 3, ..spec("standard", "tiny") };
    spec.set.insert("skew.rank_pct".into(), "10".into());
    let (_, trace) = traced(&spec, &shape_tiny());
    let busy = |phase, rank| -> f64 {
        let spans = trace.spans.iter().filter(|s| (s.phase, s.rank) == (phase, rank));
        spans.filter(|s| s.lane == Lane::Compute).map(|s| (s.end_ns - s.start_ns) as f64).sum()
    };
    for rank in 1..4 {
        let of = |phase| busy(phase, rank) / busy(phase, 0);
        let (prefill, decode) = (of(Phase::Prefill), of(Phase::Decode));
        assert!((prefill / decode - 1.0).abs() < 1e-3, "rank {rank}: {prefill} {decode}");
        assert!((decode - 1.0).abs() > 1e-3, "ranks differ");
    }
}

#[test]
fn more_staleness_never_slows_without_contention_but_for_its_extra_additions() {
    for (tp, p2p) in [(8, P2p::On), (8, P2p::Off), (4, P2p::Off)] {
        let of = |architecture: &str| {
            let spec = Spec { tp, p2p, output_tokens: 3, ..spec(architecture, "70b") };
            sample(&alone(spec), &shape_70b())
        };
        let stale = ["standard", "stale:1", "stale:2", "stale:3"].map(of);
        for pair in stale.windows(2) {
            let work = |s: &Sample| s.overlap.unwrap().split.unwrap().work_ms;
            let extra = (work(&pair[1]) - work(&pair[0])).max(0.0);
            assert!(pair[1].decode_ms <= pair[0].decode_ms + extra, "tp {tp}");
        }
    }
}

#[test]
fn predictions_from_a_few_steps_agree_with_all_of_them() {
    for (stack, batch) in [("native", 1), ("native", 64), ("gpt-fast", 16)] {
        let spec = Spec { stack: stack.into(), tp: 8, batch, ..spec("ladder", "llama-3-70b") };
        let spec = Spec { model: "llama-3-70b".into(), ..spec };
        let (quick, whole) =
            (Simulator::default().cell(&spec).unwrap().predict(), sample(&spec, &shape_70b()));
        assert_eq!(quick.prefill_ms, whole.prefill_ms);
        let off = (quick.decode_ms / whole.decode_ms - 1.0).abs();
        assert!(off < 2e-3, "{stack} {batch}: {off}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn a_faster_link_never_slows_and_runs_repeat_exactly(
        architecture in proptest::sample::select(&ARCHITECTURES[..]),
        alpha_us in 0.0..200.0_f64,
        gb_s in 0.01..1000.0_f64,
        less in 0.0..1.0_f64,
        more in 1.0..10.0_f64,
        batch in 1_u32..65,
    ) {
        let of = |alpha_us, gb_s| {
            let link = Link::Emulated { alpha_us, gb_s };
            let spec = Spec { link, batch, tp: 4, output_tokens: 4, ..spec(architecture, "tiny") };
            sample(&alone(spec), &shape_tiny())
        };
        let slow = of(alpha_us, gb_s);
        let fast = of(alpha_us * less, gb_s * more);
        prop_assert!(fast.prefill_ms <= slow.prefill_ms && fast.decode_ms <= slow.decode_ms);
        prop_assert_eq!(of(alpha_us, gb_s), slow);
    }
}

#[test]
fn a_target_with_overrides_is_another_target() {
    let simulator = Simulator::default();
    let of = |stack, pairs: &[(&str, &str)]| {
        let set = pairs.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect();
        simulator.target("h100_sxm", stack, &set)
    };
    let plain = of("native", &[]).unwrap();
    let half = of("native", &[("hbm_gb_s", "1000")]).unwrap();
    assert!(plain.profile.hbm_gb_s > half.profile.hbm_gb_s);
    assert_eq!(of("gpt-fast", &[("stack.launch_us", "9")]).unwrap().stack.launch_us, 9.0);
    assert_ne!(of("gpt-fast", &[]).unwrap().stack, plain.stack);
    assert!(of("native", &[("hbm_gb_s", "fast")]).is_err());
    assert!(of("nativ", &[]).is_err());
}
