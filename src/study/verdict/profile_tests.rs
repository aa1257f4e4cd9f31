//! Verdicts on profiles of PyTorch: text in, sentences and shares out.

use std::fmt::Write as _;

use super::*;
use crate::analysis::trace_report;
use crate::calibrate::all_reduces_of;
use base::error::Result;
use machine::hardware::{Profile, STACKS, Stack, Target};
use table::P2p;
use trace::rules::Rules;
use trace::{Doubt, import};

pub(super) const GEMM: &str = "nvjet_tst_128x64";
pub(super) const NCCL: &str =
    "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)";
pub(super) const CUSTOM: &str =
    "void vllm::cross_device_reduce_1stage<__nv_bfloat16, 8>(vllm::RankData*, int)";
pub(super) const FUSED: &str = "void flashinfer::trtllm_allreduce_fusion::allreduce_fusion_kernel_oneshot_lamport<\
                     (flashinfer::trtllm_allreduce_fusion::AllReduceFusionPattern)1, __nv_bfloat16, 8, true>(int)";
pub(super) const ALONE: &str = "void flashinfer::trtllm_allreduce_fusion::allreduce_fusion_kernel_oneshot_lamport<\
                     (flashinfer::trtllm_allreduce_fusion::AllReduceFusionPattern)0, __nv_bfloat16, 8, true>(int)";

/// A PyTorch profile in the making (times in us).
#[derive(Default)]
pub(super) struct Profiled {
    text: String,
    launches: u32,
}

impl Profiled {
    pub(super) fn event(&mut self, category: &str, name: &str, (at, length): (i64, i64), args: &str) {
        let comma = if self.text.is_empty() { "" } else { "," };
        write!(
            self.text,
            r#"{comma}{{"ph":"X","cat":"{category}","name":"{name}","pid":0,"tid":7,"ts":{at},"dur":{length},"args":{{{args}}}}}"#
        )
        .unwrap();
    }

    /// A call of the host; the number that links kernels to it.
    pub(super) fn call(&mut self, name: &str, at: i64, length: i64) -> u32 {
        self.launches += 1;
        let number = self.launches;
        self.event("cuda_runtime", name, (at, length), &format!(r#""correlation":{number}"#));
        number
    }

    pub(super) fn kernel(&mut self, name: &str, stream: u32, time: (i64, i64), launch: Option<u32>) {
        let launch = launch.map_or(String::new(), |number| format!(r#","correlation":{number}"#));
        self.event("kernel", name, time, &format!(r#""device":0,"stream":{stream}{launch}"#));
    }

    pub(super) fn copy(&mut self, name: &str, time: (i64, i64), bytes: u64) {
        self.event("gpu_memcpy", name, time, &format!(r#""device":0,"stream":7,"bytes":{bytes}"#));
    }

    pub(super) fn trace(&self, rules: &str) -> Trace {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("profile.json");
        std::fs::write(&path, format!(r#"{{"schemaVersion":1,"traceEvents":[{}]}}"#, self.text))
            .unwrap();
        import::open_with(&path, &Rules::load(rules).unwrap()).unwrap().0
    }

    pub(super) fn judged(&self) -> Verdict {
        judged(&self.trace("default"))
    }
}

pub(super) fn setting() -> Setting {
    let target =
        Target { profile: Profile::load("h100_sxm").unwrap(), stack: Stack::load(STACKS[0]).unwrap() };
    Setting { target: Some(target), tp: Some(8), message_bytes: None }
}

pub(super) fn judged(trace: &Trace) -> Verdict {
    let all = Selection::default();
    verdict(trace, &trace_report(trace, &all), &all, &setting())
}

/// Launch of a step's kernels.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum LaunchMethod {
    /// One graph, with the time from the return of its launch to the start of its first kernel.
    Graph(i64),
    /// A call each, 4 us before the kernel starts.
    Calls,
    /// Attention of the first layer by calls, the rest by a graph.
    Both,
    Nothing,
}

/// Eight steps of four layers. `inner`: the gap before each kernel (us); `outer`: the one between steps.
pub(super) fn steps(by: LaunchMethod, all_reduce: &str, (inner, outer): (i64, i64)) -> Profiled {
    let mut profile = Profiled::default();
    let mut at = 10_000;
    let layer = [
        ("norm_kernel", 3),
        ("nvjet_qkv", 20),
        ("flash_fwd_kernel", 10),
        ("nvjet_o", 10),
        (all_reduce, 15),
        ("norm_kernel", 3),
        ("nvjet_gateup", 30),
        ("nvjet_down", 20),
        (all_reduce, 15),
    ];
    for _ in 0..8 {
        let kernels = std::iter::once(("embedding_kernel", 4))
            .chain((0..4).flat_map(|_| layer))
            .chain([("nvjet_head", 40)]);
        let mut graph = None;
        for (number, (name, length)) in kernels.enumerate() {
            at += match (number, by) {
                (0, _) => outer,
                // within the graph
                (6.., LaunchMethod::Both) => 0,
                _ => inner,
            };
            let is_single =
                by == LaunchMethod::Calls || by == LaunchMethod::Both && (1..5).contains(&number);
            let launch = match by {
                LaunchMethod::Nothing => None,
                _ if is_single => Some(profile.call("cudaLaunchKernel", at - 10, 6)),
                LaunchMethod::Graph(before) => Some(
                    *graph.get_or_insert_with(|| profile.call("cudaGraphLaunch", at - 20, 20 - before)),
                ),
                _ => {
                    if number == 5 {
                        graph = None;
                    }
                    Some(*graph.get_or_insert_with(|| profile.call("cudaGraphLaunch", at - 12, 8)))
                }
            };
            profile.kernel(name, 7, (at, length), launch);
            at += length;
        }
    }
    profile
}

pub(super) fn said(verdict: &Verdict) -> String {
    verdict.sentences.join("\n")
}

#[test]
fn nobody_waits_for_a_host_whose_launches_are_not_recorded() {
    let trace = steps(LaunchMethod::Nothing, NCCL, (20, 400)).trace("default");
    let found = judged(&trace);
    assert_eq!((found.host_share, found.between_graphs_share), (None, 0.0));
    for word in ["host", "launch"] {
        assert!(!said(&found).contains(word) && !found.headline.contains(word), "{found:?}");
    }
    let idle = &trace_report(&trace, &Selection::default()).idle[0];
    assert_eq!((idle.host_ns, idle.between_graphs_ns, idle.communication_ns), (0, 0, 0));
    assert!(idle.between_ns > 0 && idle.between_ns == idle.idle_ns, "{idle:?}");
}

/// Two all-reduces of 60 us in 1 ms, without any event of the host.
#[test]
fn idle_time_leads_where_it_is_more_than_exposed_communication() {
    let mut profile = Profiled::default();
    for at in [1_000, 1_940] {
        profile.kernel(NCCL, 7, (at, 60), None);
    }
    let found = profile.judged();
    let headline =
        "88 % idle (cause unknown), 12 % exposed communication, most in ncclDevKernel_AllReduce";
    assert!(found.headline.starts_with(headline), "{}", found.headline);
    let first = "Idle: 880 us of 1.00 ms (88 %) per rank. The trace has GPU events only, so the cause is unknown";
    assert!(found.sentences[0].starts_with(first), "{}", said(&found));
    assert!(
        found.sentences[1].starts_with("Exposed communication: 120 us of 1.00 ms (12 %)"),
        "{found:?}"
    );
    assert!(said(&found).contains("(2 calls per rank)"), "{}", said(&found));
    // nothing computes, so nothing hides communication
    assert!(!said(&found).contains("if compute hid"), "{}", said(&found));
    // launched in time: the host did not cause the gap
    let mut early = Profiled::default();
    for at in [1_000, 1_940] {
        let launch = early.call("cudaLaunchKernel", 980, 6);
        early.kernel(if at == 1_000 { GEMM } else { NCCL }, 7, (at, 60), Some(launch));
    }
    let found = early.judged();
    assert!(found.headline.starts_with("88 % idle, 6 % exposed communication"), "{}", found.headline);
    assert!(
        found.sentences[0].starts_with("Idle: 880 us of 1.00 ms (88 %) per rank: "),
        "{}",
        said(&found)
    );
    assert!(said(&found).contains("(1 call per rank)"), "{}", said(&found));
}

/// A product under which everything else runs.
#[test]
fn shares_of_the_time_add_up_to_the_whole() {
    let mut profile = Profiled::default();
    profile.kernel(GEMM, 7, (1_000, 1_000), None);
    profile.kernel(NCCL, 27, (1_010, 980), None);
    profile.copy("Memcpy HtoD (Pageable -> Device)", (1_100, 500), 1_000);
    let found = profile.judged();
    let sum: f64 = found.time.iter().map(|part| part.share).sum();
    assert!((sum - 1.0).abs() < 1e-9, "{:?}", found.time);
    assert!(said(&found).contains("Time breakdown: 100 % compute in nvjet"), "{}", said(&found));
}

#[test]
fn overlap_and_rewire_count_the_same_waits_and_exposed_communication() -> Result<()> {
    for (by, gaps) in [
        (LaunchMethod::Calls, (10, 20)),
        (LaunchMethod::Graph(4), (0, 400)),
        (LaunchMethod::Both, (10, 400)),
    ] {
        let trace = steps(by, NCCL, gaps).trace("default");
        let found = judged(&trace);
        let rewiring = Rewiring::new(&trace, &StepSelection::default(), &setting())?;
        let waits = [rewiring.steps.host_share(), rewiring.steps.between_graphs_share()];
        assert!((found.host_share.unwrap() - waits[0]).abs() < 1e-9, "{waits:?}: {found:?}");
        assert!((found.between_graphs_share - waits[1]).abs() < 1e-9, "{waits:?}: {found:?}");
        assert!((8.0 * rewiring.measured().exposed_us - found.exposed_us).abs() < 1e-6);
        // without launches, the step saves the waits and the latency of launches, but keeps the gap to the next step
        let kept = if matches!(by, LaunchMethod::Calls) {
            gaps.1 as f64 / rewiring.measured().step_us
        } else {
            0.0
        };
        let free =
            RewireChoice { host: false, ..RewireChoice::from_architecture(Architecture::Standard) };
        let saved = 1.0 - 1.0 / rewiring.answer(&free)?.alone.speedup + kept;
        assert!(saved >= waits[0] - 1e-9 && saved < waits[0] + 0.2, "{saved}: {waits:?}");
    }
    Ok(())
}

#[test]
fn recorded_python_calls_are_named_beside_the_wait_for_the_host_that_they_lengthen() {
    let mut profile = steps(LaunchMethod::Calls, NCCL, (30, 40));
    let without = said(&profile.judged());
    assert!(without.contains("(launch-bound)") && !without.contains("Python"), "{without}");
    for call in 0..1_000 {
        profile.event("python_function", "forward", (10_000 + call, 1), "");
    }
    let with = said(&profile.judged());
    let [remedies, at_most] =
        ["  ", "  < "].map(|start| with.lines().filter(|line| line.starts_with(start)).count());
    assert!(at_most > 0 && at_most == remedies, "upper bounds, as in what-if: {with}");
    assert!(!without.contains("  < "), "{without}");
    let (_, after) = with.split_once("(launch-bound)").expect("the wait");
    assert!(after.contains("Recorded with Python stacks (1000 calls), which slows the host"), "{with}");
}

/// Only ladder runs kernels beside all-reduces.
#[test]
fn an_error_names_contention_only_where_it_changes_the_times() -> Result<()> {
    let trace = steps(LaunchMethod::Graph(4), NCCL, (0, 400)).trace("default");
    let rewiring = Rewiring::new(&trace, &StepSelection::default(), &setting())?;
    let of = |architecture: Architecture| -> Result<_> {
        let answer = rewiring.answer(&RewireChoice::from_architecture(architecture))?;
        assert!(answer.contended.is_some());
        let error = rewiring.error(&answer.choice);
        assert!(error.ends_with("emulated link, no contention"), "{error}");
        Ok(rewiring.contended_error(&answer))
    };
    assert_eq!(of(Architecture::Standard)?, None);
    assert_eq!(of(Architecture::UpperBound)?, None);
    let error = of(Architecture::Ladder(LayerSet::All))?.unwrap();
    assert!(error.ends_with("validated without contention, which this prediction adds"), "{error}");
    Ok(())
}

/// All-reduces of 15 us that kernels hide in part, and an exposed all-gather of 50 us at the end of each step.
#[test]
fn other_collectives_stay_exposed_beside_all_reduces_that_are_hidden_in_part() -> Result<()> {
    let mut profile = Profiled::default();
    let mut at = 10_000;
    for _ in 0..8 {
        profile.kernel("embedding_kernel", 7, (at, 10), None);
        at += 10;
        for name in ["nvjet_qkv", "nvjet_down"].iter().cycle().take(8) {
            profile.kernel("norm_kernel", 7, (at, 10), None);
            profile.kernel(name, 7, (at + 10, 40), None);
            profile.kernel(NCCL, 20, (at + 50, 15), None);
            // the next kernel starts 6 us before the end
            at += 59;
        }
        profile.kernel("nvjet_head", 7, (at, 40), None);
        profile.kernel("ncclDevKernel_AllGather_RING_LL(x)", 20, (at + 40, 50), None);
        at += 100;
    }
    let trace = profile.trace("default");
    let rewiring = Rewiring::new(&trace, &StepSelection::default(), &setting())?;
    let exposed = rewiring.measured().exposed_us;
    assert!((exposed - (8.0 * 9.0 + 50.0)).abs() < 1e-6, "{exposed}");
    let limit = rewiring.answer(&RewireChoice::from_architecture(Architecture::UpperBound))?.alone;
    assert!((limit.exposed_us - 50.0).abs() < 1e-6, "{limit:?}");
    Ok(())
}

/// A profile that begins in the middle: of the first half no launch is recorded.
#[test]
fn only_gaps_before_recorded_launches_count_as_waiting_for_the_host() {
    let mut profile = Profiled::default();
    for number in 0..20 {
        let at = 1_000 + 100 * number;
        let launch = (number >= 10).then(|| profile.call("cudaLaunchKernel", at - 10, 6));
        profile.kernel(GEMM, 7, (at, 20), launch);
    }
    let trace = profile.trace("default");
    let idle = &trace_report(&trace, &Selection::default()).idle[0];
    // each of ten gaps of 80 us: a kernel starts 4 us after its launch
    assert_eq!((idle.host_ns, idle.idle_ns), (10 * 80_000, 19 * 80_000));
    assert!((judged(&trace).host_share.unwrap() - 800.0 / 1920.0).abs() < 1e-9);
}

/// Launches of all kernels are 30 ms late: the clocks of host and GPU disagree.
#[test]
fn nobody_waits_for_a_host_whose_clock_is_doubted() {
    let mut profile = Profiled::default();
    for number in 0..40 {
        let at = 100_000 + 100 * number;
        let launch = profile.call("cudaLaunchKernel", at + 30_000, 6);
        profile.kernel(if number % 4 == 0 { NCCL } else { GEMM }, 7, (at, 60), Some(launch));
    }
    let found = profile.judged();
    assert_eq!((found.host_share, found.between_graphs_share, found.undecided), (None, 0.0, false));
    assert!(!found.headline.contains("host"), "{}", found.headline);
    assert!(!said(&found).contains("waits for the host"), "{}", said(&found));
    let doubt = "Doubtful: profile.json: 40 of 40 launched kernels";
    assert!(said(&found).contains(doubt), "{}", said(&found));
    let report = trace_report(&profile.trace("default"), &Selection::default());
    assert_eq!((report.idle[0].host_ns, report.idle[0].between_graphs_ns), (0, 0));
}

/// Launches that end after their kernels have, around one long gap.
#[test]
fn idle_time_with_doubted_launches_is_not_called_a_trace_without_launches() {
    let mut profile = Profiled::default();
    for (name, at) in [(GEMM, 1_000), (NCCL, 1_060), (GEMM, 6_120), (NCCL, 6_180)] {
        let launch = profile.call("cudaLaunchKernel", at + 9_980, 1);
        profile.kernel(name, 7, (at, 60), Some(launch));
    }
    let found = profile.judged();
    let first = "Idle: 5.00 of 5.24 ms (95 %) per rank; launch times are unreliable, so the cause is unknown (see Doubtful).";
    assert_eq!(found.sentences[0], first);
    assert!(said(&found).contains("Doubtful: "), "{}", said(&found));
    assert!(!said(&found).contains("GPU events only"), "{}", said(&found));
}

/// Every fourth kernel contains the next three: durations or stream numbers are wrong.
#[test]
fn no_cause_follows_from_durations_that_are_doubted() {
    let mut profile = Profiled::default();
    for number in 0..40 {
        let (at, length) = (1_000 + 100 * number, if number % 4 == 0 { 390 } else { 60 });
        profile.kernel(if number % 4 == 0 { NCCL } else { GEMM }, 7, (at, length), None);
    }
    let found = profile.judged();
    assert!(found.undecided && found.cause == Cause::Inconclusive, "{found:?}");
    let headline =
        "undecided: profile.json: 10 of 40 kernels and copies of stream 7 of device 0 contain";
    assert!(found.headline.starts_with(headline), "{}", found.headline);
    assert!(
        found.remedies.is_empty() && found.own_stream.is_none() && found.needs.is_empty(),
        "{found:?}"
    );
    for row in &found.collectives {
        assert_eq!((row.cause, row.transfer_share), (Cause::Inconclusive, None));
    }
    assert!(said(&found).contains("As recorded: "), "{}", said(&found));
    let all = StepSelection::default();
    let refused = Rewiring::new(&profile.trace("default"), &all, &setting()).unwrap_err();
    assert!(refused.to_string().contains("steps cannot be rebuilt from this trace"), "{refused}");
    let trace = profile.trace("default");
    let refused = all_reduces_of("t", &trace, P2p::On, Some(1 << 20)).unwrap_err();
    assert!(refused.to_string().starts_with("t measures no link: profile.json: 10 of 40"), "{refused}");
    let base::error::Error::Input { help: Some(help), .. } = refused else { panic!("{refused:?}") };
    assert!(help.starts_with("record the trace again"), "{help}");
}

/// Doubts about names count as those about durations; those about launches leave rewiring and links alone.
#[test]
fn steps_and_links_come_only_from_work_without_doubts() {
    for (about, is_refused) in [
        (Doubted::Names, true),
        (Doubted::Durations, true),
        (Doubted::Missing, true),
        (Doubted::Launches, false),
    ] {
        let mut trace = steps(LaunchMethod::Calls, NCCL, (10, 20)).trace("default");
        let doubt = Doubt { about, sentence: "a.json: doubtful".into() };
        trace.meta.import.as_mut().unwrap().doubts = vec![doubt.clone(), doubt];
        let says = |error: base::error::Error| error.to_string().contains("doubtful");
        let rewired = Rewiring::new(&trace, &StepSelection::default(), &setting());
        assert_eq!(rewired.map_or_else(says, |_| false), is_refused, "{about:?}");
        let links = all_reduces_of("t", &trace, P2p::On, Some(1 << 20));
        assert_eq!(links.map_or_else(says, |_| false), is_refused, "{about:?}");
        let found = judged(&trace);
        assert_eq!((found.undecided, found.doubts.len()), (is_refused, 1), "{about:?}");
    }
}

/// Six streams of which each has kernels that contain later ones.
#[test]
fn one_doubt_is_told_and_the_others_are_counted() {
    let mut profile = Profiled::default();
    for number in 0..240 {
        let (at, stream) = (1_000 + 100 * (number / 6), number % 6);
        let length = if number / 6 % 4 == 0 { 390 } else { 60 };
        profile.kernel(GEMM, 7 + stream as u32, (at, length), None);
    }
    let found = profile.judged();
    assert_eq!(found.doubts.len(), 6);
    assert!(found.headline.contains("10 of 40 kernels and copies of stream "), "{}", found.headline);
    assert!(found.headline.ends_with("; and 5 more"), "{}", found.headline);
    assert_eq!(said(&found).matches("contain later ones").count(), 1, "{}", said(&found));
    // below 2 % of the GPU's work: a warning, and a verdict
    profile.kernel(GEMM, 99, (1_000, 2_000_000), None);
    let trace = profile.trace("default");
    let found = judged(&trace);
    assert!(!found.undecided && found.doubts.is_empty(), "{found:?}");
    let warnings = trace.meta.import.unwrap().warnings.join("\n");
    assert!(
        warnings.contains("10 of 40 kernels and copies of stream 9 of device 0 contain"),
        "{warnings}"
    );
}

#[test]
fn communication_with_impossible_times_is_missed_by_the_verdict() {
    let kernels = |all_reduces: i64, more: i64| {
        let mut profile = Profiled::default();
        for number in 0..40 {
            profile.kernel(GEMM, 7, (1_000 + 100 * number, 60), None);
        }
        for number in 0..all_reduces {
            // each contains the next three kernels
            profile.kernel(NCCL, 7, (1_065 + 800 * number, 320), None);
        }
        for number in 0..more {
            profile.kernel(NCCL, 7, (4_965 + 100 * number, 30), None);
        }
        profile.judged()
    };
    let missing = "Communication is missing from these numbers: 3 kernels with impossible times ignored (3 x ncclDevKernel_";
    let none = kernels(3, 0);
    assert!(
        none.headline.starts_with("no communication left (3 kernels ignored), "),
        "{}",
        none.headline
    );
    assert!(
        said(&none).contains("No communication found, apart from ignored events."),
        "{}",
        said(&none)
    );
    assert!(said(&none).contains(missing), "{}", said(&none));
    let some = kernels(3, 5);
    assert_eq!(some.collectives[0].count, 5);
    assert!(said(&some).contains(missing), "{}", said(&some));
    // without its all-reduce each step waits for the host, it seems
    let mut profile = Profiled::default();
    for number in 0..10 {
        let at = 10_000 + 1_000 * number;
        for (name, time) in [(GEMM, (at, 100)), (NCCL, (0, 0))] {
            let launch = profile.call("cudaLaunchKernel", at - 20, 6);
            profile.kernel(name, 7, time, Some(launch));
        }
    }
    let lost = profile.judged();
    assert!(lost.headline.contains("(10 kernels ignored)"), "{}", lost.headline);
    assert!(!said(&lost).contains("waits for the host"), "{}", said(&lost));
    // a fourth: they are kept, and nothing is claimed
    let kept = kernels(4, 0);
    assert_eq!((kept.undecided, kept.collectives[0].count), (true, 4));
    assert!(kept.ignored_communication.is_empty(), "{kept:?}");
}

#[test]
fn the_host_between_graphs_is_left_out_and_graphs_are_not_advised() -> Result<()> {
    for before in [4, 8] {
        let trace = steps(LaunchMethod::Graph(before), CUSTOM, (0, 400)).trace("default");
        let found = judged(&trace);
        let busy = 4 + 4 * 126 + 40;
        let step = f64::from(busy + 400);
        assert!(said(&found).contains("of that is between CUDA graphs"), "{}", said(&found));
        assert!(!said(&found).contains("Capture a CUDA graph"), "{}", said(&found));
        assert!(
            found.headline.contains("waiting for the host between CUDA graphs"),
            "{}",
            found.headline
        );
        assert_eq!(Some(found.between_graphs_share), found.host_share);
        assert_eq!(found.remedies[0].name, "no gap between CUDA graphs");
        let rewiring = Rewiring::new(&trace, &StepSelection::default(), &setting())?;
        let free =
            RewireChoice { host: false, ..RewireChoice::from_architecture(Architecture::Standard) };
        let answer = rewiring.answer(&free)?.alone;
        // the start of a graph itself stays: from the return of its launch to its first kernel
        let left = step - (400.0 - before as f64);
        assert!((answer.step_us - left).abs() < 1e-6, "{answer:?}, not {left}");
        assert!((answer.speedup - step / left).abs() < 1e-6, "{answer:?}");
        let as_measured =
            rewiring.answer(&RewireChoice::from_architecture(Architecture::Standard))?.alone;
        assert!((as_measured.step_us - step).abs() < 1e-6, "{as_measured:?}");
    }
    Ok(())
}

/// Kernels of a graph start before its launch returns: they are of one replay all the same.
#[test]
fn a_graph_whose_launch_returns_late_is_one_graph() {
    let trace = steps(LaunchMethod::Graph(-30), CUSTOM, (0, 400)).trace("default");
    let found = judged(&trace);
    assert!(found.has_graphs && said(&found).contains("of that is between CUDA graphs"), "{found:?}");
    let mut launches: Vec<i64> = trace.spans.iter().map(|span| span.ready_ns).collect();
    launches.sort_unstable();
    launches.dedup();
    assert_eq!(launches.len(), 8, "one a step");
    assert!(trace.spans.iter().all(Span::is_launch_known));
}

#[test]
fn kernels_that_wait_for_their_own_launches_get_a_graph() -> Result<()> {
    let trace = steps(LaunchMethod::Calls, CUSTOM, (10, 20)).trace("default");
    let found = judged(&trace);
    assert!(said(&found).contains("Capture a CUDA graph"), "{}", said(&found));
    assert_eq!((found.between_graphs_share, found.has_graphs), (0.0, false));
    assert_eq!(found.remedies[0].name, "CUDA graph");
    // one first step: communication on the compute stream comes after the launches
    let stream = "Once the GPU no longer waits for the host, move it to a separate stream.";
    assert!(said(&found).contains(stream), "{}", said(&found));
    assert!(!said(&found).contains("First move it"), "{}", said(&found));
    let rewiring = Rewiring::new(&trace, &StepSelection::default(), &setting())?;
    let free = RewireChoice { host: false, ..RewireChoice::from_architecture(Architecture::Standard) };
    // the 37 gaps within a step go, the one between steps stays: a graph would have it too
    assert!((rewiring.answer(&free)?.alone.step_us - (548.0 + 20.0)).abs() < 1e-6);
    Ok(())
}

#[test]
fn an_engine_with_graphs_and_single_kernels_is_not_told_to_use_a_graph() {
    let found = steps(LaunchMethod::Both, CUSTOM, (150, 20)).judged();
    assert!(found.has_graphs, "{found:?}");
    assert!(!said(&found).contains("Capture a CUDA graph"), "{}", said(&found));
    assert!(found.remedies.iter().all(|remedy| !remedy.name.contains("(a CUDA graph)")), "{found:?}");
}

#[test]
fn a_fused_all_reduce_is_not_offered_to_whom_has_one() -> Result<()> {
    let offered = |all_reduce| {
        let found = steps(LaunchMethod::Graph(4), all_reduce, (0, 5)).judged();
        assert!(!found.remedies.is_empty(), "{found:?}");
        found.remedies.iter().any(|remedy| remedy.name.contains("fused"))
            || found.needs.iter().any(|need| need.contains("fused"))
    };
    assert!(!offered(FUSED));
    assert!(!offered("void trt::lamport_style_one_shot_all_reduce_norm_kernel<half, 8>(int)"));
    assert!(offered(ALONE), "pattern 0 fuses nothing");
    assert!(offered(CUSTOM));
    let rewiring = Rewiring::new(
        &steps(LaunchMethod::Graph(4), FUSED, (0, 5)).trace("default"),
        &StepSelection::default(),
        &setting(),
    )?;
    // it fuses, and takes one shot
    for collective in [Collective::Fused, Collective::OneShot] {
        let again = RewireChoice {
            collective: Some(collective),
            ..RewireChoice::from_architecture(Architecture::Standard)
        };
        assert!((rewiring.answer(&again)?.alone.speedup - 1.0).abs() < 1e-9, "{collective}");
    }
    Ok(())
}

/// All-reduces on a stream of their own, under kernels: rewiring begins with standard layers.
#[test]
fn an_engine_that_hides_its_communication_is_not_rewired() {
    let mut profile = Profiled::default();
    for number in 0..64 {
        let at = 1_000 + 100 * number;
        profile.kernel(if number % 2 == 0 { "nvjet_a" } else { "nvjet_b" }, 7, (at, 100), None);
        profile.kernel(NCCL, 20, (at + 10, 80), None);
    }
    let found = profile.judged();
    assert!(found.remedies.is_empty());
    assert!(found.not_rewired.as_ref().is_some_and(|why| why.contains("hides")), "{found:?}");
    assert_eq!(found.own_stream, Some(true));
    let text = said(&found);
    assert!(text.contains("on its own stream; compute hides 100 % of it"), "{text}");
    assert!(!text.contains("can overlap"), "{text}");
}

#[test]
fn communication_that_takes_longer_than_compute_cannot_all_be_hidden() {
    let mut profile = Profiled::default();
    profile.kernel("gemm", 7, (1_000, 100), None);
    profile.kernel(NCCL, 20, (1_050, 350), None);
    let found = profile.judged();
    let text = said(&found);
    assert!(text.contains("if compute (100 us) hid as much communication (350 us) as it can"), "{text}");
}

#[test]
fn a_stream_is_communications_own_by_time_and_never_against_the_overlap() {
    let dispatch = "void deep_ep::internode::dispatch<false, 8>(int4*)";
    let layout = "void deep_ep::layout::get_dispatch_layout<256, 32, 8>(long const*)";
    // a little computation on communication's stream
    let mut profile = Profiled::default();
    profile.kernel("gemm", 7, (1_000, 1_000), None);
    profile.kernel(layout, 27, (1_000, 10), None);
    profile.kernel(dispatch, 27, (1_010, 980), None);
    let found = profile.judged();
    assert_eq!((found.own_stream, found.own_stream_share), (Some(true), Some(1.0)));
    assert!(!said(&found).contains("share"), "{}", said(&found));
    assert!(found.doubtful.is_empty(), "layouts compute: {found:?}");
    // two streams that both compute and communicate, each under the other's kernels
    let mut profile = Profiled::default();
    for (at, [compute, comm]) in [(1_000, [7, 27]), (2_000, [27, 7])] {
        profile.kernel("gemm", compute, (at, 1_000), None);
        profile.kernel(dispatch, comm, (at, 900), None);
    }
    let found = profile.judged();
    assert_eq!((found.own_stream, found.overlap_pct), (Some(false), Some(100.0)));
    assert!(said(&found).contains("kernels on other streams hide 100 % of it"), "{}", said(&found));
    assert!(!said(&found).contains("it cannot overlap"), "{}", said(&found));
    // one stream for both
    let mut profile = Profiled::default();
    profile.kernel("gemm", 7, (1_000, 1_000), None);
    profile.kernel(dispatch, 7, (2_000, 900), None);
    assert!(said(&profile.judged()).contains("it cannot overlap"));
}
