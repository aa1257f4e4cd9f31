//! Verdicts on small traces: causes, shares and words.

use super::profile_tests::*;
use super::words::percent;
use super::*;
use crate::analysis::trace_report;
use crate::whatif::{TracedSteps, WhatIfVariant};
use plan::{Lane, Phase};
use trace::testing::{span, trace};
use trace::{CollectiveInfo, OperationKind, ProcessGroup};

fn judged_spans(spans: Vec<trace::Span>) -> Verdict {
    let trace = trace(spans);
    let decode = Selection { phase: Some(Phase::Decode), ..Selection::default() };
    verdict(&trace, &trace_report(&trace, &decode), &decode, &Setting::default())
}

/// Verdict on a whole trace, without a target.
fn judged_alone(trace: &Trace) -> Verdict {
    let all = Selection::default();
    verdict(trace, &trace_report(trace, &all), &all, &Setting::default())
}

/// Two ranks that compute for so long, and then reduce until 100 us.
fn ranks(first: i64, second: i64) -> Vec<trace::Span> {
    let of = |rank, at| [span(rank, Lane::Compute, 0, at), span(rank, Lane::Comm, at, 100_000)];
    of(0, first).into_iter().chain(of(1, second)).collect()
}

#[test]
fn transfer_is_told_from_waiting_by_the_last_rank_to_arrive() {
    for (second, cause) in [
        (40_000, Cause::TransferDominated),
        (60_000, Cause::TransferDominated),
        (78_000, Cause::Mixed),
        (98_000, Cause::SkewDominated),
    ] {
        let found = judged_spans(ranks(40_000, second));
        assert_eq!(found.cause, cause, "{second}: {:?}", found.collectives);
        assert_eq!(found.collectives[0].cause, cause);
        assert!(found.sentences.iter().any(|said| said.contains(cause.as_str())), "{found:?}");
        // rank 0 arrives at 40 us, and the reduces end at 100 us
        let (waits, all) = (second - 40_000, 160_000 - second);
        let waits = match waits {
            0 => "no waiting for peers".to_owned(),
            waits => format!("{} of its time waits for peers", percent(waits as f64 / all as f64)),
        };
        assert!(said(&found).contains(&format!(" ({waits}, ")), "{waits}: {}", said(&found));
    }
    let alone = judged_spans(vec![span(0, Lane::Compute, 0, 40), span(0, Lane::Comm, 40, 100)]);
    assert_eq!((alone.cause, alone.skew), (Cause::Inconclusive, None));
    assert!(alone.needs[0].contains("all ranks"), "{:?}", alone.needs);
}

#[test]
fn no_traces_of_emulated_ranks_are_asked_for() {
    let mut shard = trace(vec![span(0, Lane::Compute, 0, 40), span(0, Lane::Comm, 40, 100)]);
    shard.meta.provenance = Provenance::EmulatedLink;
    shard.meta.spec.iter_mut().for_each(|spec| spec.tp = 8);
    let found = judged_alone(&shard);
    assert_eq!(found.cause, Cause::Inconclusive);
    assert!(!said(&found).contains("all ranks"), "{}", said(&found));
}

#[test]
fn a_cause_holds_only_if_no_missing_rank_can_change_it() {
    assert_eq!(Cause::new(1.0, 9.0, 0.0), Cause::SkewDominated);
    assert_eq!(Cause::new(0.0, 8.0, 2.0), Cause::SkewDominated, "at least 80 % wait");
    assert_eq!(
        Cause::new(0.0, 1.0, 9.0),
        Cause::Inconclusive,
        "transfer, or waiting for a missing rank"
    );
    assert_eq!(Cause::new(0.0, 5.0, 5.0), Cause::Inconclusive);
    assert_eq!(Cause::new(5.0, 5.0, 0.1), Cause::Mixed);
    assert_eq!(Cause::new(0.0, 0.0, 0.0), Cause::Inconclusive);
    let mut trace = trace(ranks(40_000, 60_000));
    let group =
        ProcessGroup { name: "1".into(), size: 4, ranks: vec![0, 1, 2, 3], ..Default::default() };
    trace.meta.groups = vec![group];
    trace.operations[1].collective = Some(CollectiveInfo { group: Some(0), ..Default::default() });
    trace.meta.import = Some(Default::default());
    let found = judged_alone(&trace);
    let row = &found.collectives[0];
    assert_eq!(
        (found.cause, row.cause, row.transfer_share),
        (Cause::Inconclusive, Cause::Inconclusive, None)
    );
    // rank 0 waits 20 of its 60 us, rank 1 none of its 40
    assert_eq!(row.waited_share_at_least, Some(0.2));
    assert!(said(&found).contains("(at least 20 % of its time waits for slower ranks)"), "{found:?}");
    assert!(found.needs[0].contains("ranks were not recorded"), "{:?}", found.needs);
    assert!(!found.sentences.concat().contains("is transfer"), "{:?}", found.sentences);
}

/// Two ranks match in one group; nearly all of the time is in a group whose other rank has no file.
#[test]
fn collectives_without_a_match_have_no_cause() {
    let mut trace = trace(ranks(40_000, 60_000));
    let group = |name: &str, ranks: Vec<u32>| ProcessGroup {
        name: name.into(),
        size: ranks.len() as u32,
        ranks,
        ..Default::default()
    };
    trace.meta.groups = vec![group("1", vec![0, 1]), group("2", vec![0, 5])];
    trace.meta.import = Some(Default::default());
    let matched = &mut trace.operations[1];
    matched.collective = Some(CollectiveInfo { group: Some(0), ..Default::default() });
    let mut other = matched.clone();
    other.name = "decode/L0/mlp/other".into();
    other.collective = Some(CollectiveInfo { group: Some(1), ..Default::default() });
    trace.operations.push(other);
    let operation = trace.operations.len() as u32 - 1;
    trace.spans.push(Span { operation, ..span(0, Lane::Comm, 200_000, 2_000_000) });
    trace.spans.sort_by_key(|span| (span.rank, span.start_ns));
    let found = judged_alone(&trace);
    assert_eq!(found.cause, Cause::Inconclusive, "{:?}", found.collectives);
    assert!(found.needs[0].contains("no match on another rank"), "{:?}", found.needs);
}

#[test]
fn traces_of_several_jobs_do_not_need_more_steps() {
    let mut trace = trace(ranks(40_000, 60_000));
    trace.meta.groups = vec![ProcessGroup { name: "2".into(), size: 1, ..Default::default() }];
    trace.operations[1].collective = Some(CollectiveInfo { group: Some(0), ..Default::default() });
    trace.meta.import = Some(Default::default());
    let found = judged_alone(&trace);
    assert_eq!(found.cause, Cause::Inconclusive);
    assert!(found.needs[0].contains("several jobs"), "{:?}", found.needs);
    assert!(!found.needs.concat().contains("record the same steps"), "{:?}", found.needs);
}

/// The second rank's profile ends after three steps.
#[test]
fn steps_that_a_rank_lacks_are_counted() {
    let of = |rank: u32, steps: u32| {
        (0..steps).map(move |step| {
            let at = 100_000 * i64::from(step);
            Span { step, ..span(rank, Lane::Comm, at, at + 20_000) }
        })
    };
    let mut trace = trace(of(0, 6).chain(of(1, 3)).collect());
    trace.meta.import = Some(Default::default());
    let found = judged_alone(&trace);
    let said = |need: &String| need.starts_with("caveat: 3 of 6 steps were not recorded on all ranks");
    assert!(found.needs.iter().any(said), "{:?}", found.needs);
}

/// One of four ranks lacks the second all-reduce.
#[test]
fn calls_per_rank_are_rounded() {
    let of_rank = |rank: u32| {
        let calls = if rank == 3 { 1 } else { 2 };
        (0..calls).map(move |at: i64| span(rank, Lane::Comm, 50_000 * at, 50_000 * at + 20_000))
    };
    let found = judged_spans((0..4).flat_map(of_rank).collect());
    assert_eq!(found.collectives[0].count, 2, "{found:?}");
}

#[test]
fn what_does_not_communicate_has_nothing_to_mend() {
    let found = judged_spans(vec![span(0, Lane::Compute, 0, 40)]);
    assert_eq!(found.headline, "no communication, 100 % compute in decode/L*/mlp/down");
    assert!(found.remedies.is_empty() && found.not_rewired.is_none() && found.needs.is_empty());
}

#[test]
fn shares_are_neither_nothing_nor_all_where_they_are_not() {
    let told = |share: f64| percent(share);
    let shares = [0.0, 0.004, 0.0253, 0.05, 0.126, 0.995, 1.0];
    let words = ["0 %", "0.4 %", "2.5 %", "5 %", "13 %", "99.5 %", "100 %"];
    assert_eq!(shares.map(told), words);
}

/// One stage computes while the other waits, and the reverse.
#[test]
fn bubbles_of_pipeline_stages_are_named_with_their_share() {
    let stage = |rank, at| span(rank, Lane::Compute, at, at + 40_000);
    let mut trace = trace(vec![stage(0, 0), stage(1, 40_000), stage(0, 80_000), stage(1, 120_000)]);
    assert_eq!(judged_alone(&trace).stages, None);
    trace.meta.spec = Some(table::Spec { pp: 2, ..Default::default() });
    let found = judged_alone(&trace);
    let stages = found.stages.unwrap();
    assert_eq!((stages.pp, stages.micro_batches), (2, 1));
    let idle = format!("The 2 pipeline stages are idle {} of the time", percent(stages.idle_share));
    assert!(stages.idle_share > 0.3 && stages.idle_share <= 0.5, "{stages:?}");
    assert!(found.sentences.iter().any(|said| said.starts_with(&idle)), "{:?}", found.sentences);
}

/// A run of our own with an engine's host time between its operations.
#[test]
fn waiting_for_the_host_in_an_own_trace_is_one_number() {
    let with_host = |us: i64| {
        let at = 40_000 + 1_000 * us;
        judged_spans(vec![
            span(0, Lane::Compute, 0, 40_000),
            span(0, Lane::Compute, at, at + 50_000),
            span(0, Lane::Comm, at + 50_000, at + 60_000),
        ])
    };
    let much = with_host(100);
    assert_eq!((much.host_share, much.has_graphs), (Some(0.5), false));
    assert!(much.headline.starts_with("50 % waiting for the host, "), "{}", much.headline);
    let waits = "The GPU waits for the host 100 of 200 us (50 %) per rank. First reduce the host's work";
    assert!(much.sentences[0].starts_with(waits), "{:?}", much.sentences);
    let gap = much.leading_gap().expect("the cause named first");
    assert_eq!((gap.at_us, gap.gap_us, &much.longest_gap), (40.0, 100.0, &None));
    assert!(with_host(0).leading_gap().is_none(), "exposed communication is named first");
    assert!(much.leads_with_host() && !with_host(0).leads_with_host());
    let some = with_host(15);
    let share = some.host_share.unwrap();
    assert!((share - 15.0 / 115.0).abs() < 1e-9, "{share}");
    let idle = format!("(13 %) per rank: {} waiting for the host.", percent(share));
    assert!(some.sentences[0].starts_with("Compute: 90.0 of 115 us (78 %) per rank"), "{some:?}");
    assert!(some.sentences[1].ends_with(&idle), "{:?}", some.sentences);
}

#[test]
fn what_dominates_is_named_where_nothing_communicates() {
    let mut copies = Profiled::default();
    copies.copy("Memcpy HtoD (Pageable -> Device)", (1_000, 970), 26_869_000);
    copies.kernel(GEMM, 7, (1_970, 30), None);
    let found = copies.judged();
    assert_eq!(found.headline, "no communication, 97 % host-to-device copies at 27.7 GB/s");
    assert!(
        said(&found).contains("97 % host-to-device copies at 27.7 GB/s, 3 % compute in nvjet"),
        "{}",
        said(&found)
    );
    // of a part of the trace the bandwidth is not known: sizes are of all copies
    let trace = copies.trace("default");
    let part = Selection { to_ns: Some(500_000), ..Selection::default() };
    let found = verdict(&trace, &trace_report(&trace, &part), &part, &setting());
    assert_eq!(found.headline, "no communication, 100 % host-to-device copies");

    let mut idle = Profiled::default();
    idle.kernel(GEMM, 7, (1_000, 10), None);
    idle.kernel("elementwise", 7, (1_990, 10), None);
    assert_eq!(idle.judged().headline, "no communication, 98 % idle");
    let mut alone = idle.trace("default");
    alone.meta.environment.insert("world_size".into(), 1.into());
    let found = judged(&alone);
    assert_eq!(found.headline, "one rank, no communication, 98 % idle");
    assert!(said(&found).starts_with("One rank of one: no communication to find."), "{found:?}");

    // what limits it, in time and speedup
    let bound =
        "Upper bounds on the speedup of the recorded 1.00 ms: 50.00x (saves 980 us) without idle time.";
    assert!(said(&found).contains(bound), "{}", said(&found));

    let mut one = Profiled::default();
    one.kernel(GEMM, 7, (1_000, 900), None);
    one.kernel("elementwise", 7, (1_900, 100), None);
    assert_eq!(one.judged().headline, "no communication, 100 % compute (90 % in nvjet_tst_128x64)");
    let found = one.judged();
    assert!(said(&found).contains("The GPU is idle 0 % of the time"), "{}", said(&found));

    let nothing = Selection { from_ns: Some(1 << 40), ..Selection::default() };
    let trace = one.trace("default");
    let found = verdict(&trace, &trace_report(&trace, &nothing), &nothing, &setting());
    assert_eq!(
        (&found.headline[..], said(&found).as_str()),
        ("nothing ran", "The selection contains no GPU work.")
    );
}

/// The losses are small, and the remaining time is what the reader asks about.
#[test]
fn the_largest_part_of_the_time_comes_first() {
    let mut profile = Profiled::default();
    profile.kernel(
        "void flash::flash_fwd_kernel<Traits<128, 64>, true>(flash::Params)",
        7,
        (1_000, 500),
        None,
    );
    profile.kernel(GEMM, 7, (1_500, 300), None);
    profile.kernel(NCCL, 7, (1_900, 100), None);
    let found = profile.judged();
    let first = "80 % compute, most in flash_fwd_kernel (50 %), ";
    assert!(found.headline.starts_with(first), "{}", found.headline);
    assert!(found.headline.contains(", 10 % exposed communication"), "{}", found.headline);
    assert!(!found.headline.contains("ncclDevKernel"), "one name: {}", found.headline);
    let first = "Compute: 800 us of 1.00 ms (80 %) per rank, most in flash_fwd_kernel (50 %).";
    assert_eq!(found.sentences[0], first);
}

#[test]
fn the_parts_of_the_time_add_up() {
    let mut profile = Profiled::default();
    profile.kernel(GEMM, 7, (1_000, 800), None);
    profile.copy("Memcpy HtoD (Pageable -> Device)", (1_800, 50), 1_000);
    profile.kernel(NCCL, 7, (1_900, 100), None);
    let found = profile.judged();
    assert!(said(&found).contains("50.0 us (5 %) host-to-device copies"), "{}", said(&found));
}

#[test]
fn copies_that_run_as_kernels_are_memory() {
    let mut profile = Profiled::default();
    profile.kernel(NCCL, 4, (1_000, 100), None);
    profile.kernel("__amd_rocclr_copyBuffer", 0, (1_000, 60), None);
    profile.kernel("MEMORY_COPY_DEVICE_TO_HOST", 0, (1_060, 20), None);
    let all = trace_report(&profile.trace("default"), &Selection::default()).overlap.all;
    assert_eq!((all.memory_us, all.overlap_us, all.exposed_comm_us), (80.0, 0.0, 100.0));
    // neither memory nor computation, and busy
    let mut profile = Profiled::default();
    profile.kernel(NCCL, 4, (1_000, 100), None);
    profile.kernel("void batched_Memcpy_kernel()", 0, (1_050, 100), None);
    let report = trace_report(&profile.trace("hta"), &Selection::default());
    let all = &report.overlap.all;
    assert_eq!((all.memory_us, all.compute_us, all.overlap_us, all.busy_us), (0.0, 0.0, 0.0, 150.0));
    assert!(report.names.iter().any(|row| row.lane == "other"), "{:?}", report.names);
}

#[test]
fn kernels_that_look_like_communication_are_named_in_the_verdict() {
    let mut profile = Profiled::default();
    profile.kernel(GEMM, 7, (1_000, 600), None);
    profile.kernel("void my::ring_exchange_kernel<8>(int*)", 7, (1_600, 400), None);
    let found = profile.judged();
    assert_eq!(found.headline, "no known communication, 40 % in void my::ring_exchange_kernel<>(int*)");
    let said = said(&found);
    assert!(said.contains("looks like communication") && said.contains("--rules FILE"), "{said}");
    assert!(said.contains(r#"patterns = ["my::ring_exchange_kernel*"]"#), "{said}");
    // beside known communication, too
    profile.kernel(NCCL, 7, (2_000, 100), None);
    assert!(profile.judged().sentences.iter().any(|said| said.contains("looks like communication")));
}

/// Exposed time of the operations adds up to the verdict's, also if collectives run at once.
#[test]
fn operations_and_the_verdict_have_the_same_exposed_time() {
    let mut profile = Profiled::default();
    profile.kernel(NCCL, 20, (1_000, 100), None);
    profile.kernel("ncclDevKernel_SendRecv(x)", 21, (1_050, 150), None);
    profile.kernel(GEMM, 7, (1_150, 20), None);
    let trace = profile.trace("default");
    let report = trace_report(&trace, &Selection::default());
    let exposed: Vec<f64> =
        report.names.iter().filter(|row| row.lane == "comm").map(|row| row.exposed_us).collect();
    assert_eq!((exposed, judged(&trace).exposed_us), (vec![80.0, 100.0], 180.0));
    let hidden: Vec<Option<f64>> =
        report.collectives.iter().map(|row| row.executed.hidden_pct).collect();
    assert_eq!(hidden, [Some(0.0), Some(100.0 * 20.0 / 150.0)]);
}

/// Kernels with a gap of 5 us before each, and once a longer one.
fn with_gap(longer: i64) -> Profiled {
    let mut profile = Profiled::default();
    for number in 0..20 {
        let at = 1_000 + 100 * number + if number >= 4 { longer } else { 0 };
        let launch = profile.call("hipLaunchKernel", at - 20, 5);
        profile.kernel(GEMM, 7, (at, 95), Some(launch));
    }
    profile
}

#[test]
fn a_gap_that_is_most_of_the_idle_time_is_named() {
    let verdict = with_gap(460_000).judged();
    let gap = verdict.longest_gap.clone().expect("it is most of the time");
    assert!((gap.gap_us - 460_005.0).abs() < 1.0 && gap.idle_share > 0.99, "{gap:?}");
    assert!((gap.busy_share - 0.95).abs() < 0.01, "{gap:?}");
    let text = said(&verdict);
    assert!(
        text.contains("One gap of 460 ms at 395 us is 100 % of the idle time; outside it"),
        "{text}"
    );
    let bound = "Upper bounds on the speedup of the recorded 1.99 ms outside the gap: 1.05x";
    assert!(text.contains(bound), "the gap hides no other bound: {text}");
    assert_eq!(with_gap(10).judged().longest_gap, None, "an ordinary gap");
}

/// A copy that blocks the host before it launches the next kernels.
#[test]
fn a_call_that_fills_the_longest_gap_is_named() {
    let mut profile = with_gap(460_000);
    // of another thread, and returns after the gap
    profile.call("hipDeviceSynchronize", 1_396, 470_000);
    let call = profile.judged().longest_gap.and_then(|gap| gap.host_call);
    assert_eq!(call.unwrap().name, "hipDeviceSynchronize");
    profile.call("hipMemcpyWithStream", 1_400, 459_950);
    let verdict = profile.judged();
    let call = verdict.longest_gap.as_ref().and_then(|gap| gap.host_call.clone());
    assert_eq!(call, Some(GapCall { name: "hipMemcpyWithStream".to_owned(), within_us: 459_950.0 }));
    let text = said(&verdict);
    assert!(text.contains("During it the host was in hipMemcpyWithStream for 460 ms"), "{text}");
    assert!(!text.contains("launch-bound"), "{text}");
}

#[test]
fn a_small_message_far_below_the_bandwidth_of_large_ones_is_latency_bound() {
    let spec = table::Spec { architecture: Architecture::Standard, ..table::testing::spec() };
    let trace = run::testing::simulated(&spec);
    let selection = Selection::default_of(&trace);
    let report = trace_report(&trace, &selection);
    let of = |target| verdict(&trace, &report, &selection, &Setting { target, ..Setting::default() });
    let found = of(Some(machine::hardware::Target::from_spec(&spec).unwrap()));
    assert_eq!(found.cause, Cause::TransferDominated, "the value in JSON stays");
    assert!(found.headline.contains("exposed communication, latency-bound"), "{}", found.headline);
    let text = said(&found);
    assert!(text.contains("): latency-bound, ") && text.contains("no waiting for peers"), "{text}");
    assert!(!text.contains("is transfer"), "{text}");
    // nothing tells the bandwidth of large messages
    assert!(of(None).headline.contains("transfer-dominated"), "{}", of(None).headline);
}

/// It moves the message of a plain all-reduce.
#[test]
fn a_fused_all_reduce_is_latency_bound_too_and_has_a_bus_bandwidth() {
    let spec = table::Spec { architecture: Architecture::Standard, ..table::testing::spec() };
    let mut trace = run::testing::simulated(&spec);
    for operation in
        trace.operations.iter_mut().filter(|operation| operation.kind == OperationKind::AllReduce)
    {
        operation.kind = OperationKind::AllReduceAddNorm;
    }
    let selection = Selection::default_of(&trace);
    let report = trace_report(&trace, &selection);
    let target = Some(machine::hardware::Target::from_spec(&spec).unwrap());
    let found = verdict(&trace, &report, &selection, &Setting { target, ..Setting::default() });
    assert!(found.headline.contains("exposed communication, latency-bound"), "{}", found.headline);
    assert!(report.collectives.iter().all(|row| row.bus_gb_s.is_some()), "{:?}", report.collectives);
}

#[test]
fn a_selected_step_of_a_run_is_predicted_in_any_sample() {
    let spec = table::Spec { architecture: Architecture::Standard, ..table::testing::spec() };
    let mut trace = run::testing::simulated(&spec);
    trace.spans.iter_mut().for_each(|span| span.sample = 1);
    let selection = Selection { step: Some(1), ..Selection::default() };
    let setting = Setting::default();
    let found = verdict(&trace, &trace_report(&trace, &selection), &selection, &setting);
    assert_eq!(found.not_rewired, None);
    assert!(!found.remedies.is_empty());
}

#[test]
fn the_prediction_of_a_selected_step_is_of_that_step() {
    let mut trace = steps(LaunchMethod::Graph(4), NCCL, (0, 400)).trace("default");
    let found = crate::rewire::RecordedSteps::new(&trace, &StepSelection::default()).unwrap();
    let times: Vec<(u32, i64, i64)> = found.times().collect();
    // longer than the others, and numbered by the engine
    let (_, from, until) = times[2];
    for span in &mut trace.spans {
        span.step = 10 + times.iter().filter(|(_, begin, _)| *begin <= span.start_ns).count() as u32;
        if span.start_ns >= until {
            (span.start_ns, span.end_ns) = (span.start_ns + 50_000, span.end_ns + 50_000);
            span.ready_ns += 50_000;
        }
    }
    let of = |step| {
        let selection = Selection { step, ..Selection::default_of(&trace) };
        verdict(&trace, &trace_report(&trace, &selection), &selection, &setting()).step_us
    };
    let wanted = (until + 50_000 - from) as f64 / 1e3;
    assert!((of(Some(13)) - wanted).abs() < 1.0, "{} for {wanted}", of(Some(13)));
    assert!(of(None) < wanted - 40.0);
}

/// vLLM's names of iterations: decode steps are meant unless all are prefills.
#[test]
fn prefills_are_told_from_decode_steps_by_their_names() {
    let of = |names: &[&str]| {
        let mut profile = Profiled::default();
        for (number, name) in (0..).zip(names) {
            let at = 1_000 + 1_000 * number;
            profile.event("user_annotation", name, (at, 900), "");
            for (name, after, length) in [(GEMM, 20, 100), (NCCL, 130, 50)] {
                let launch = profile.call("cudaLaunchKernel", at + after - 10, 5);
                profile.kernel(name, 7, (at + after, length), Some(launch));
            }
        }
        let trace = profile.trace("default");
        let selection = Selection::default_of(&trace);
        verdict(&trace, &trace_report(&trace, &selection), &selection, &setting())
    };
    let prefill = "execute_context_1(888_788544)_generation_0(0)";
    let decode = "execute_context_0(0)_generation_8(8)";
    let both = of(&[prefill, decode, decode]);
    assert_eq!((both.part.as_deref(), both.collectives[0].count), (Some("decode steps 1 to 2"), 2));
    let first = "Exposed communication, decode steps 1 to 2: 100 us of 1.16 ms (8.6 %) per rank";
    // after the gap that takes most of the time
    assert!(both.sentences[1].starts_with(first), "{}", said(&both));
    let alone = of(&[prefill]);
    assert_eq!(alone.part.as_deref(), Some("step 0: prefill of 888 tokens"));
    let first = "Step 0: prefill of 888 tokens; no decode step in this trace.";
    assert!(said(&alone).starts_with(first), "{}", said(&alone));
    let (part, rest) = alone.headline.split_once(" tokens: ").expect("the step comes first");
    assert_eq!(part, "step 0: prefill of 888");
    assert!(rest.contains(" % compute, ") && rest.contains(", 31 % exposed"), "{}", alone.headline);
    let unknown = of(&["ProfilerStep#0", "ProfilerStep#1"]);
    assert_eq!((unknown.part, unknown.collectives[0].count), (None, 2));
}

#[test]
fn remedies_are_ranked_and_a_part_that_adds_nothing_is_left_out() {
    for (by, gaps) in [
        (LaunchMethod::Calls, (10, 20)),
        (LaunchMethod::Nothing, (0, 0)),
        (LaunchMethod::Graph(4), (0, 400)),
    ] {
        let found = judged(&steps(by, NCCL, gaps).trace("default"));
        let lines: Vec<(f64, &str)> = (found.sentences.iter())
            .filter_map(|line| line.strip_prefix("  ")?.split_once('x'))
            .map(|(speedup, rest)| (speedup.parse().unwrap(), rest))
            .collect();
        assert!((1..=4).contains(&lines.len()), "{:?}", found.sentences);
        assert!(lines.windows(2).all(|pair| pair[0].0 >= pair[1].0), "{lines:?}");
        for (speedup, name) in &lines {
            assert!(*speedup > 1.0 && !name.contains("no communication"), "{lines:?}");
            let simpler = name.rsplit("  ").next().and_then(|name| name.split_once(" + "));
            let than =
                simpler.and_then(|(first, _)| found.remedies.iter().find(|one| one.name == first));
            assert!(than.is_none_or(|than| *speedup > than.speedup), "{lines:?}");
        }
        let title = found.sentences.iter().find(|line| line.starts_with("Predicted speedup"));
        assert!(title.is_some_and(|title| title.contains("of these remedies")), "{title:?}");
        // the list lacks the best of what-if, and says so
        let more = "need training or conversion, and `ladderscope rewire --architecture` compares others, such as delayed:2:";
        assert!(title.is_some_and(|title| title.ends_with(more)), "{title:?}");
        let keys = VerdictPlace::Workbench { go: "Enter", open: "o", compare: "w" };
        let shown = found.sentences_for(keys).concat();
        assert!(shown.contains(", and w compares 4 more, such as delayed:2:"), "{shown}");
        // the limit names the parts that cost nothing
        let limit = found.remedies.iter().find(|one| one.name.ends_with(LIMIT)).unwrap();
        let names: Vec<&str> = found.remedies.iter().map(|one| one.name.as_str()).collect();
        let waits = ["CUDA graph", "no gap between CUDA graphs"];
        let waits = names.iter().any(|name| waits.contains(name));
        let is_fused = names.iter().any(|name| name.ends_with(crate::verdict::FUSED));
        let free = match (is_fused, waits) {
            (true, true) => "communication, norm kernels and launch gaps",
            (true, false) => "communication and norm kernels",
            (false, true) => "communication and launch gaps",
            (false, false) => "communication",
        };
        // and what the limit of the sliders keeps
        let kept = if is_fused { "; upper-bound keeps the norm kernels" } else { "" };
        let words = format!("({:.2}x if {free} cost nothing{kept})", limit.speedup);
        assert!(title.is_some_and(|title| title.contains(&words)), "{title:?}: {words}");
    }
}

/// The gap of 400 us behind a step's last kernel counts, up to the start of the next step and no further.
#[test]
fn what_if_counts_the_gap_between_graphs_as_launch_wait() {
    let trace = steps(LaunchMethod::Graph(4), NCCL, (0, 400)).trace("default");
    let Setting { target, tp, .. } = setting();
    let traced = TracedSteps::new(&trace, None, [None, tp], target.unwrap(), Vec::new()).unwrap();
    let answer = traced.answer(&traced.base).unwrap();
    let wait_ms = answer.launch_gaps.unwrap().ms;
    assert!((wait_ms - 0.4).abs() < 0.02, "{wait_ms}");
}

#[test]
fn what_if_carries_the_caution_on_python_stacks() {
    let mut profile = steps(LaunchMethod::Calls, NCCL, (40, 40));
    for call in 0..1_000 {
        profile.event("python_function", "forward", (10_000 + call, 1), "");
    }
    let Setting { target, tp, .. } = setting();
    let trace = profile.trace("default");
    let traced = TracedSteps::new(&trace, None, [None, tp], target.unwrap(), Vec::new()).unwrap();
    let answer = traced.answer(&traced.base).unwrap();
    assert!(answer.launch_gaps.unwrap().has_python_stacks);
    let line = answer.launch_bound("c").unwrap();
    assert!(line.contains("; overstated, as Python stacks slow the host"), "{line}");
    assert!(!answer.is_overstated(), "the gaps are still there");
    let without_gaps = WhatIfVariant { no_launch_gaps: true, ..traced.base.clone() };
    assert!(traced.answer(&without_gaps).unwrap().is_overstated());
    // so does `rewire --no-launches`
    let rewiring = Rewiring::new(&trace, &StepSelection::default(), &setting()).unwrap();
    let answer = |host| {
        let choice = RewireChoice { host, ..RewireChoice::from_architecture(Architecture::Standard) };
        rewiring.answer(&choice).unwrap()
    };
    let shown =
        |host, is_for_people| crate::rewire::answers_table(&rewiring, &[answer(host)], is_for_people);
    assert!(shown(false, true).aligned().contains("< "), "{}", shown(false, true).aligned());
    assert!(!shown(true, true).aligned().contains("< "), "the gaps are still there");
    let csv = shown(false, false).csv(table::render::Sourced::ByRow);
    assert!(!csv.contains("< ") && csv.contains(",true,"), "{csv}");
}

/// The sliders over a trace have the verdict's remedies, with the same numbers.
#[test]
fn what_if_from_a_launch_bound_trace_has_the_remedies_of_its_verdict() {
    let trace = steps(LaunchMethod::Calls, NCCL, (40, 40)).trace("default");
    let found = judged(&trace);
    assert!(found.remedies[0].name == "CUDA graph" && found.remedies[0].speedup > 2.0, "{found:?}");
    let Setting { target, tp, .. } = setting();
    let traced = TracedSteps::new(&trace, None, [None, tp], target.unwrap(), Vec::new()).unwrap();
    let as_traced = traced.answer(&traced.base).unwrap();
    let line = as_traced.launch_bound("c").unwrap();
    let wait = latency(1e3 * as_traced.launch_gaps.unwrap().ms);
    assert!(found.sentences.concat().contains("(launch-bound)"), "{found:?}");
    let wanted = format!(
        "launch-bound: the GPU waits {wait} for launches; no architecture helps until the wait is gone: c ("
    );
    assert!(line.starts_with(&wanted), "{line}: {wanted}");
    let mut variant = traced.base.clone();
    variant.no_launch_gaps = true;
    let answer = traced.answer(&variant).unwrap();
    assert!(answer.arguments.contains(&"--no-launches".to_owned()));
    assert!(answer.launch_bound("c").unwrap().starts_with("launch wait of "));
    variant.cell.collective = Collective::Fused;
    let fused = traced.answer(&variant).unwrap();
    let speedup = |answer: &crate::whatif::WhatIfAnswer, name: &str, groups: u32| {
        let architecture: Architecture = name.parse().unwrap();
        let of = |row: &&crate::whatif::WhatIfRow| {
            (&row.architecture, row.micro_batches) == (&architecture, groups)
        };
        answer.rows.iter().find(of).unwrap().numbers.as_ref().unwrap().speedup.unwrap()
    };
    for (name, own) in [
        ("CUDA graph", speedup(&answer, "standard", 1)),
        ("CUDA graph + fused all-reduce", speedup(&fused, "standard", 1)),
        ("CUDA graph + ladder", speedup(&answer, "ladder", 1)),
        ("CUDA graph + two micro-batches", speedup(&answer, "standard", 2)),
        ("CUDA graph + no communication at all", speedup(&fused, "upper-bound", 1)),
    ] {
        let remedy = found.remedies.iter().find(|remedy| remedy.name == name).expect(name);
        assert!((own / remedy.speedup - 1.0).abs() < 1e-3, "{name}: {own} {}", remedy.speedup);
    }
    // the headline as traced has the same speedups
    let (_, headline) = as_traced.launches_hide_gains().expect("launches hide the gain of ladder");
    for (known, name) in headline.into_iter().zip(["standard", "ladder"]) {
        assert!((known / speedup(&answer, name, 1) - 1.0).abs() < 1e-6, "{name}: {known}");
    }
    assert!(answer.launches_hide_gains().is_none(), "nothing is hidden without them");
    // with the gaps, every architecture takes as long
    let gains = as_traced.rows.iter().map(|row| row.numbers.as_ref().unwrap().speedup.unwrap());
    assert!(gains.into_iter().all(|speedup| (0.5..1.01).contains(&speedup)));
}

/// Short kernels far apart, and an operator that launches none in the longest gap.
#[test]
fn operators_change_no_number_and_name_the_cause_of_the_longest_gap() {
    let profile = |operators: &[(&str, (i64, i64))]| {
        let mut profile = Profiled::default();
        for number in 0..20 {
            let at = 1_000 + 100 * number + if number >= 10 { 50 } else { 0 };
            let launch = profile.call("cudaLaunchKernel", at - 20, 5);
            profile.kernel(GEMM, 7, (at, 30), Some(launch));
        }
        for (name, time) in operators {
            profile.event("cpu_op", name, *time, "");
        }
        let trace = profile.trace("default");
        let mut report =
            serde_json::to_value(trace_report(&trace, &Selection::default())).expect("it is a tree");
        // it counts the file's events
        report.as_object_mut().and_then(|report| report.remove("import")).expect("an import");
        (report, judged(&trace))
    };
    let (report, verdict) = profile(&[]);
    let (same, named) = profile(&[("aten::linear", (1_935, 90)), ("aten::narrow", (1_940, 70))]);
    assert_eq!(same, report);
    let text = said(&named);
    assert!(
        text.contains("During the longest gap (120 us) the host was in aten::narrow for 70"),
        "{text}"
    );
    let numbers = |verdict: Verdict| Verdict { sentences: Vec::new(), any_gap: None, ..verdict };
    assert_eq!(numbers(named), numbers(verdict));
}
