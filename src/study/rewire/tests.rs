//! Our own standard runs, rewired, against the runs of the other architectures themselves.

use super::*;
use crate::analysis::{LayerRow, trace_report};
use ::table::testing::spec;
use ::table::{Backend, Collective, P2p, Provenance, Spec};
use base::statistics::median;
use machine::hardware::Target;
use plan::{DType, Lane, Phase};
use run::sim::Simulator;
use run::testing::simulated;
use trace::export::{ExportedRanks, chrome};
use trace::import::kineto::{KinetoOptions, import_bytes};
use trace::overlap::Selection;
use trace::rules::Rules;
use trace::{CollectiveInfo, ImportReport, NO_STEP, OperationInfo, Span, Trace};

fn cell(architecture: &str, model: &str, tp: u32, stack: &str) -> Spec {
    Spec {
        backend: Backend::Sim,
        architecture: architecture.parse().unwrap(),
        model: model.into(),
        dtype: DType::F16,
        tp,
        stack: stack.into(),
        prompt_tokens: 1024,
        output_tokens: 12,
        ..spec()
    }
}

/// The median decode step of a simulated cell (us).
fn step_us(cell: &Spec) -> f64 {
    let (outcome, _) = Simulator::default().cell(cell).unwrap().run(false).unwrap();
    1e3 * median(&outcome.samples[0].steps_ms).unwrap()
}

fn rewiring(trace: &Trace, cell: &Spec) -> Rewiring {
    let setting = Setting {
        target: Some(Target::from_spec(cell).unwrap()),
        tp: Some(cell.tp.max(cell.dp)),
        message_bytes: None,
    };
    Rewiring::new(trace, &StepSelection::default(), &setting).unwrap()
}

fn choice(architecture: &str) -> RewireChoice {
    RewireChoice::from_architecture(architecture.parse().unwrap())
}

/// The same trace as another program would have it: kernels with names of their own, no plan, no steps, and ranks with
/// clocks that are apart by milliseconds.
fn disguised(trace: &Trace) -> Trace {
    let mut names: Vec<String> = Vec::new();
    let mut operations: Vec<OperationInfo> = Vec::new();
    let ids: Vec<u32> = trace
        .operations
        .iter()
        .map(|operation| {
            let name = match operation.kind.as_str() {
                "all_reduce" => "ncclDevKernel_AllReduce_Sum_f16_RING_LL(x)".to_owned(),
                "dispatch" => "void deep_ep::internode_ll::dispatch<true, 7168>(x)".to_owned(),
                "combine" => "void deep_ep::internode_ll::combine<true, 7168, 9>(x)".to_owned(),
                "router" => "void vllm::moe::topkGatingSoftmax<8, 128, 4>(x)".to_owned(),
                "experts" => "fused_moe_kernel".to_owned(),
                kind => format!("void engine::{}_{kind}_kernel<8>(x)", operation.module),
            };
            let at = names.iter().position(|known| *known == name).unwrap_or_else(|| {
                operations.push(OperationInfo::imported(name.clone(), "kernel"));
                names.push(name);
                names.len() - 1
            });
            at as u32
        })
        .collect();
    let mut spans = trace.spans.clone();
    for span in &mut spans {
        span.operation = ids[span.operation as usize];
        let apart = i64::from(span.rank) * 3_000_000;
        for time in [&mut span.ready_ns, &mut span.start_ns, &mut span.end_ns] {
            *time += apart;
        }
        span.ready_ns = span.start_ns;
        span.last_arrival_ns = -1;
        (span.phase, span.step) = (Phase::Decode, 0);
    }
    spans.sort_by_key(|span| (span.rank, span.start_ns, span.lane));
    let mut meta = trace.meta.clone();
    meta.spec = None;
    let files = (0..meta.ranks).map(|rank| format!("rank{rank}.json")).collect();
    meta.import = Some(ImportReport { files, ..ImportReport::default() });
    let mut trace = Trace { meta, operations, spans, ranges: Vec::new() };
    Rules::default().classify(&mut trace);
    trace
}

/// Within 3 % of the run of the architecture itself (parallel: 5 %), from our own trace and from a foreign one.
#[test]
fn a_standard_run_rewired_takes_what_the_other_architecture_takes() {
    for (model, tp, stack) in
        [("llama-3-8b", 8, "native"), ("llama-3-8b", 2, "gpt-fast"), ("llama-3-70b", 8, "gpt-fast")]
    {
        let standard = cell("standard", model, tp, stack);
        let trace = simulated(&standard);
        let foreign = disguised(&trace);
        let measured = step_us(&standard);
        for (which, trace) in [("own", &trace), ("foreign", &foreign)] {
            let rewiring = rewiring(trace, &standard);
            let layers = standard_layers(model);
            assert_eq!((rewiring.steps.layers, rewiring.steps.ranks), (layers, tp), "{which}");
            let found = rewiring.measured().step_us;
            assert!((found / measured - 1.0).abs() < 0.01, "{which}: {found} against {measured}");
            for architecture in [
                "ladder",
                "ladder:8",
                "parallel",
                "sync-drop:16",
                "desync:4",
                "delayed:2",
                "upper-bound",
            ] {
                let wanted = step_us(&cell(architecture, model, tp, stack));
                let answer = rewiring.answer(&choice(architecture)).unwrap();
                let found = answer.contended.unwrap().step_us;
                // its one wider product saves a launch, of which the trace of two products does not tell
                let within = if architecture == "parallel" { 0.05 } else { 0.03 };
                assert!(
                    (found / wanted - 1.0).abs() < within,
                    "{which} {model} TP {tp} {stack} {architecture}: {found:.1} us rewired, {wanted:.1} us itself, \
                     {measured:.1} us standard"
                );
                assert!(answer.alone.step_us <= found * 1.0001, "contention makes nothing faster");
            }
        }
    }
}

/// Mixtures with tensor-parallel attention: experts in slices, and whole ones, of which some ranks wait for others.
#[test]
fn a_mixture_of_experts_rewired_takes_what_the_other_architecture_takes() {
    for ep in [1, 4] {
        let of = |architecture: &str| Spec { ep, ..cell(architecture, "mixtral-8x7b", 4, "gpt-fast") };
        let standard = of("standard");
        let trace = simulated(&standard);
        for (which, trace) in [("own", &trace), ("foreign", &disguised(&trace))] {
            let rewiring = rewiring(trace, &standard);
            assert_eq!((rewiring.steps.layers, rewiring.steps.ranks), (32, 4), "{which}");
            for architecture in ["ladder", "farskip", "upper-bound"] {
                let wanted = step_us(&of(architecture));
                let found = rewiring.answer(&choice(architecture)).unwrap().contended.unwrap().step_us;
                assert!(
                    (found / wanted - 1.0).abs() < 0.05,
                    "{which} EP {ep} {architecture}: {found:.1} us rewired, {wanted:.1} us itself"
                );
            }
        }
    }
}

/// FarSkip's first sum joins attention and shared experts, and its second hides the routed ones: within 2 % of its own
/// run, with and without shared experts and behind dense layers.
#[test]
fn farskip_of_a_mixture_with_all_reduces_takes_what_its_own_run_takes() {
    for (model, stack) in [
        ("gpt-oss-120b", "native"),
        ("gpt-oss-120b", "gpt-fast"),
        ("llama-4-scout", "native"),
        ("deepseek-v3", "native"),
    ] {
        let of = |architecture: &str| Spec {
            ep: 8,
            batch: 16,
            prompt_tokens: 128,
            output_tokens: 4,
            dtype: if model == "deepseek-v3" { DType::Fp8 } else { DType::Bf16 },
            ..cell(architecture, model, 8, stack)
        };
        let standard = of("standard");
        let trace = simulated(&standard);
        let [rewiring, exported] = [&trace, &through_chrome(&trace)].map(|of| rewiring(of, &standard));
        // layers with attention of two kinds, and messages of the size that the plan has
        let read = |of: &Rewiring| (of.steps.layers, of.message());
        assert_eq!(read(&exported), read(&rewiring), "{model}");
        for architecture in ["ladder", "farskip", "farskip:8"] {
            let wanted = step_us(&of(architecture));
            let found = rewiring.answer(&choice(architecture)).unwrap().contended.unwrap().step_us;
            assert!(
                (found / wanted - 1.0).abs() < 0.02,
                "{model} {stack} {architecture}: {found:.1} us rewired, {wanted:.1} us itself"
            );
        }
    }
}

fn exchanging(architecture: &str, model: &str, ranks: u32) -> Spec {
    Spec { ep: ranks, dp: ranks, batch: 8 * ranks, ..cell(architecture, model, 1, "native") }
}

/// Mixtures with data-parallel attention: without shared experts; with them, beside the dispatch, and dense first
/// layers. Within 2 % of the run of the architecture itself.
#[test]
fn exchanges_of_tokens_rewired_take_what_the_other_architecture_takes() {
    for (model, ranks, layers) in [("mixtral-8x7b", 4, 32), ("deepseek-v3", 8, 58)] {
        let standard = exchanging("standard", model, ranks);
        let trace = simulated(&standard);
        let measured = step_us(&standard);
        let (foreign, exported) = (disguised(&trace), through_chrome(&trace));
        for (which, trace) in [("own", &trace), ("foreign", &foreign), ("exported", &exported)] {
            let rewiring = rewiring(trace, &standard);
            if which != "foreign" {
                assert_eq!(
                    rewiring.message().map(|(_, is_estimate)| is_estimate),
                    Some(false),
                    "{which}"
                );
            }
            let steps = &rewiring.steps;
            assert_eq!(
                (steps.layers, steps.ranks, steps.ends),
                (layers, ranks, LayerCollectives::Exchanges),
                "{which}"
            );
            let found = rewiring.measured().step_us;
            assert!((found / measured - 1.0).abs() < 0.01, "{which}: {found} against {measured}");
            for architecture in
                ["standard", "ladder", "farskip", "parallel", "parallel+ladder", "upper-bound"]
            {
                let wanted = step_us(&exchanging(architecture, model, ranks));
                let choice = choice(architecture);
                let found = rewiring.answer(&choice).unwrap().contended.unwrap().step_us;
                assert!(
                    (found / wanted - 1.0).abs() < 0.02,
                    "{which} {model} {architecture}: {found:.1} us rewired, {wanted:.1} us itself, {measured:.1} us standard"
                );
                let said = rewiring.error(&choice);
                assert!(said.starts_with("not validated"), "{said}");
            }
        }
    }
}

/// A simulated run's trace is trusted as far as its cell: the paper's own is fitted, another architecture of it is not
/// validated.
#[test]
fn a_simulated_trace_is_trusted_as_far_as_its_cell() {
    let small = cell("standard", "llama-3.2-1b", 8, "gpt-fast");
    let mut trace = simulated(&small);
    let paper = Spec { model: "llama-3-70b".into(), output_tokens: 512, ..small.clone() };
    trace.meta.spec = Some(paper);
    let rewiring = rewiring(&trace, &small);
    let of = |change: fn(&mut RewireChoice)| {
        let mut choice = choice("ladder");
        change(&mut choice);
        rewiring.error(&choice)
    };
    assert!(of(|_| ()).starts_with("fitted to these runs (mean TPOT error 2 %"), "{}", of(|_| ()));
    assert!(of(|choice| choice.p2p = Some(P2p::Off)).starts_with("fitted to these runs"));
    assert!(of(|choice| choice.tp = Some(4)).starts_with("fitted to these runs"));
    for (change, why) in [
        ((|choice| choice.micro_batches = 2) as fn(&mut RewireChoice), "for micro2 with gpt-fast"),
        (|choice| choice.host = false, "for steps without launch gaps"),
        (|choice| choice.alpha_us = Some(5.0), "at another all-reduce latency"),
        (|choice| choice.collective = Some(Collective::OneShot), "for one-shot all-reduces"),
    ] {
        assert!(of(change).starts_with(&format!("not validated {why}")), "{}", of(change));
    }
}

/// Standard exchanges as another program's trace, in which `change` renames kernels by the number of exchanges before
/// them on their rank.
fn renamed(change: impl Fn(usize, &str) -> Option<&'static str>) -> Trace {
    let mut trace = disguised(&simulated(&exchanging("standard", "mixtral-8x7b", 2)));
    let mut gaps = std::collections::HashMap::new();
    let mut order: Vec<usize> = (0..trace.spans.len()).collect();
    order.sort_by_key(|at| (trace.spans[*at].rank, trace.spans[*at].start_ns));
    for at in order {
        let span = &mut trace.spans[at];
        let gap = gaps.entry(span.rank).or_insert(0);
        let (name, is_exchange) = {
            let operation = &trace.operations[span.operation as usize];
            (operation.name.clone(), operation.lane == Lane::Comm)
        };
        if let Some(name) = change(*gap, &name) {
            let known = trace.operations.iter().position(|operation| operation.name == name);
            span.operation = known.unwrap_or_else(|| {
                trace.operations.push(OperationInfo::imported(name.into(), "kernel"));
                trace.operations.len() - 1
            }) as u32;
        }
        *gap += usize::from(is_exchange);
    }
    Rules::default().classify(&mut trace);
    trace
}

#[test]
fn exchanges_that_cannot_be_rewired_say_why() {
    let of = |trace: &Trace| {
        let rewiring = Rewiring::new(trace, &StepSelection::default(), &Setting::default());
        rewiring.map(|rewiring| rewiring.steps.notes.clone()).map_err(|error| error.to_string())
    };
    assert_eq!(
        of(&renamed(|_, _| None)),
        Ok(vec![
            "rank clocks aligned at the ends of matched collectives".into(),
            "skipped 1 step: no step follows in the trace, so its latency is unknown".into(),
        ])
    );
    // a second micro-batch's dispatch after the first one's experts
    let interleaved = renamed(|gap, name| {
        (gap % 4 == 1 && name.contains("combine")).then_some("deep_ep::internode_ll::dispatch<true>")
    });
    let told = of(&interleaved).unwrap_err();
    assert!(told.contains("with experts between them") && told.contains("micro-batches"), "{told}");
    let plain = renamed(|_, name| {
        let name = if name.contains("combine") || name.contains("dispatch") {
            "ncclDevKernel_AllToAll(x)"
        } else if name.contains("fused_moe") {
            "gemm"
        } else {
            return None;
        };
        Some(name)
    });
    let told = of(&plain).unwrap_err();
    assert!(told.contains("no kernels of experts that tell dispatch from combine"), "{told}");
    let hidden =
        renamed(|_, name| (name.contains("norm") || name.contains("topk")).then_some("engine::kernel"));
    let told = of(&hidden).unwrap_err();
    assert!(told.contains("a norm or the router separates attention"), "{told}");
    let both = renamed(|_, name| {
        name.contains("attn_matmul").then_some("ncclDevKernel_AllReduce_Sum_f16_RING_LL(x)")
    });
    let told = of(&both).unwrap_err();
    assert!(told.contains("all-reduces and exchanges of tokens"), "{told}");

    let standard = exchanging("standard", "mixtral-8x7b", 2);
    let mut measured = simulated(&standard);
    measured.meta.provenance = Provenance::Measured;
    let rewiring = rewiring(&measured, &standard);
    assert_eq!(rewiring.error(&choice("ladder")), "not validated for dispatch and combine");
    for (architecture, why) in [
        ("sync-drop:2", "its experts exchange tokens"),
        ("desync:4", "its experts exchange tokens"),
        ("delayed:2", "its experts exchange tokens"),
        ("kraken", "its experts exchange tokens"),
        ("partial:0.5", "its experts exchange tokens"),
        ("ladder:99", "refers to"),
    ] {
        let told = rewiring.answer(&choice(architecture)).unwrap_err().to_string();
        assert!(told.contains(why), "{architecture}: {told}");
    }
    for changed in [
        RewireChoice { collective: Some(Collective::OneShot), ..choice("ladder") },
        RewireChoice { tp: Some(4), ..choice("ladder") },
        RewireChoice { gb_s: Some(100.0), ..choice("ladder") },
    ] {
        let told = rewiring.answer(&changed).unwrap_err().to_string();
        assert!(told.contains("no all-reduce to change"), "{told}");
    }
}

/// Layers of a trace, those without one left out, with the name of their source.
fn layers_of(trace: &Trace) -> Vec<(u32, f64, f64, f64, u64)> {
    let layers = trace_report(trace, &Selection::default()).layers;
    let row =
        |row: &LayerRow| Some((row.layer?, row.compute_us, row.comm_us, row.exposed_us, row.count));
    layers.iter().filter_map(row).collect()
}

fn through_chrome(trace: &Trace) -> Trace {
    let mut file = Vec::new();
    chrome(trace, ExportedRanks::All, &mut file).unwrap();
    let mut trace = import_bytes("trace.json", &file, KinetoOptions::default()).unwrap();
    Rules::default().classify(&mut trace);
    trace
}

/// The same layers, with the same times and exposed shares, as in the native trace: read back from Chrome's format, and
/// with the names of other engines' kernels, where only collectives tell layers apart.
#[test]
fn layers_of_an_exported_trace_are_those_of_the_native_one() {
    for standard in [
        exchanging("standard", "gpt-oss-20b", 4),
        exchanging("standard", "deepseek-v3", 8),
        cell("standard", "mixtral-8x7b", 4, "native"),
        cell("standard", "llama-3-8b", 2, "native"),
    ] {
        let mut native = simulated(&standard);
        native.spans.retain(|span| span.phase == Phase::Decode);
        let wanted = layers_of(&native);
        assert!(wanted.iter().any(|layer| layer.3 > 0.0));
        let exported = through_chrome(&native);
        assert_eq!(layers_of(&exported), wanted, "{}", standard.model);
        let experts = [&native, &exported].map(|trace| {
            let experts = trace_report(trace, &Selection::default()).experts?;
            Some([experts.experts_us, experts.router_us, experts.dispatch_us, experts.combine_us])
        });
        assert_eq!(experts[0], experts[1]);
        let foreign = through_chrome(&disguised(&native));
        assert_eq!(foreign.meta.spec, None);
        assert!(foreign.operations.iter().all(|operation| operation.layer.is_none()));
        let found = layers_of(&foreign);
        // dense layers before the first with experts have no collectives
        let dense = wanted.len() - found.len();
        assert_eq!(dense, if standard.model == "deepseek-v3" { 3 } else { 0 });
        for (found, wanted) in found.iter().zip(&wanted[dense..]) {
            assert_eq!((found.0 + dense as u32, found.4), (wanted.0, wanted.4), "{}", standard.model);
            for (found, wanted) in [(found.1, wanted.1), (found.2, wanted.2), (found.3, wanted.3)] {
                assert!((found - wanted).abs() < 0.01, "{}: {found} against {wanted}", standard.model);
            }
        }
    }
}

/// DeepEP's normal kernels announce a dispatch; its low-latency kernels may send and receive separately.
#[test]
fn kernels_of_one_exchange_are_one() {
    let standard = exchanging("standard", "mixtral-8x7b", 2);
    let mut trace = disguised(&simulated(&standard));
    let whole = rewiring(&trace, &standard);
    let mut parts = Vec::new();
    for span in trace.spans.iter_mut().filter(|span| span.lane == Lane::Comm) {
        let half = (span.start_ns + span.end_ns) / 2;
        parts.push(trace::Span { end_ns: half, ..*span });
        span.start_ns = half;
    }
    trace.spans.append(&mut parts);
    trace::sort_spans(&mut trace.spans);
    let halves = rewiring(&trace, &standard);
    assert_eq!(halves.steps.layers, whole.steps.layers);
    for architecture in ["ladder", "upper-bound"] {
        let of = |rewiring: &Rewiring| rewiring.answer(&choice(architecture)).unwrap().alone;
        assert_eq!(of(&halves), of(&whole), "{architecture}");
    }
}

fn standard_layers(model: &str) -> u32 {
    model::Model::resolve(model).unwrap().shape.layers
}

#[test]
fn another_all_reduce_takes_what_a_run_with_it_takes() {
    let standard = cell("standard", "llama-3-70b", 8, "native");
    let trace = simulated(&standard);
    let rewiring = rewiring(&trace, &standard);
    for collective in [Collective::OneShot, Collective::Multimem, Collective::Fused] {
        for architecture in ["standard", "ladder"] {
            let wanted = step_us(&Spec { collective, ..cell(architecture, "llama-3-70b", 8, "native") });
            let asked = RewireChoice { collective: Some(collective), ..choice(architecture) };
            let found = rewiring.answer(&asked).unwrap().contended.unwrap().step_us;
            assert!(
                (found / wanted - 1.0).abs() < 0.03,
                "{collective} {architecture}: {found:.1} us rewired, {wanted:.1} us itself"
            );
        }
    }
}

#[test]
fn message_sizes_that_a_foreign_trace_names_are_not_estimated() {
    let standard = cell("standard", "llama-3-8b", 2, "native");
    let mut trace = disguised(&simulated(&standard));
    assert!(rewiring(&trace, &standard).message().unwrap().1, "no size in the trace");
    for operation in &mut trace.operations {
        operation.collective = (operation.lane == Lane::Comm)
            .then(|| CollectiveInfo { message_bytes: Some(16_384), ..CollectiveInfo::default() });
    }
    assert_eq!(rewiring(&trace, &standard).message(), Some((16_384.0, false)));
}

#[test]
fn message_sizes_without_a_basis_are_unknown_and_say_why() {
    let standard = cell("standard", "llama-3-8b", 2, "native");
    let mut trace = disguised(&simulated(&standard));
    let of = |trace: &Trace, target: Target| {
        let setting = Setting { target: Some(target), tp: Some(2), message_bytes: None };
        let rewiring = Rewiring::new(trace, &StepSelection::default(), &setting).unwrap();
        assert!(rewiring.answer(&choice("ladder")).is_ok());
        (rewiring.message(), rewiring.unknown_size())
    };
    let target = Target::from_spec(&standard).unwrap();
    assert!(matches!(of(&trace, target.clone()), (Some((_, true)), None)));
    let mut other = target.clone();
    other.profile.link.p2p_on.tp.retain(|tp, _| *tp == 8);
    other.profile.link.p2p_on.extrapolate = false;
    assert_eq!(of(&trace, other), (None, Some(UnknownSize::NoLatencies)));
    for span in &mut trace.spans {
        let is_reduce = trace.operations[span.operation as usize].name.contains("AllReduce");
        span.end_ns = if is_reduce { span.start_ns + 100 } else { span.end_ns };
    }
    assert_eq!(of(&trace, target), (None, Some(UnknownSize::TooFast)));
}

#[test]
fn ranks_that_differ_are_rewired_rank_by_rank() {
    let with = |architecture: &str| {
        let mut cell = cell(architecture, "llama-3-8b", 4, "native");
        cell.output_tokens = 24;
        cell.set.insert("skew.rank_pct".into(), "5".into());
        cell.set.insert("skew.operation_pct".into(), "10".into());
        cell
    };
    let standard = with("standard");
    let trace = simulated(&standard);
    let rewiring = rewiring(&trace, &standard);
    let answer = rewiring.answer(&choice("ladder")).unwrap().contended.unwrap();
    let wanted = step_us(&with("ladder"));
    assert!((answer.step_us / wanted - 1.0).abs() < 0.03, "{answer:?} against {wanted}");
    let [low, high] = answer.step_us_95.unwrap();
    assert!(low < answer.step_us && answer.step_us < high, "steps vary: {answer:?}");
}

#[test]
fn a_step_that_waits_for_its_host_stays_as_long_unless_launches_go() {
    let standard = cell("standard", "llama-3-8b", 4, "native");
    let mut trace = simulated(&standard);
    trace = disguised(&trace);
    trace.spans.sort_by_key(|span| (span.rank, span.start_ns));
    // the host launches a kernel every 60 us, and each starts 5 us later
    let mut starts: std::collections::HashMap<u32, i64> = std::collections::HashMap::new();
    for span in &mut trace.spans {
        let at = starts.entry(span.rank).or_insert(0);
        let length = span.end_ns - span.start_ns;
        *at += 60_000;
        (span.ready_ns, span.start_ns, span.end_ns) = (*at - 5_000, *at, *at + length.min(55_000));
    }
    let rewiring = rewiring(&trace, &standard);
    assert!(rewiring.steps.host_share() > 0.5);
    let measured = rewiring.measured().step_us;
    let ladder = rewiring.answer(&choice("ladder")).unwrap().alone;
    assert!((ladder.step_us / measured - 1.0).abs() < 0.02, "{ladder:?} against {measured}");
    // what the host holds up computes nothing: all-reduces beside it stay exposed
    let measured_exposed = rewiring.measured().exposed_us;
    assert!(ladder.exposed_us > 0.3 * measured_exposed, "{ladder:?} against {measured_exposed}");
    let free = RewireChoice { host: false, ..choice("standard") };
    let free = rewiring.answer(&free).unwrap().alone;
    assert!(free.speedup > 1.5);
    // never to wait for the host is the bound of a CUDA graph
    let step = rewiring.clone().on_step(rewiring.steps.times().nth(3).unwrap().0).unwrap();
    let wait_us = 1e3 * step.launch_wait_ms().unwrap();
    let free = step.answer(&RewireChoice { host: false, ..choice("standard") }).unwrap().alone;
    let bound_us = step.measured().step_us - wait_us;
    assert!(free.step_us >= bound_us - 1.0, "{free:?} against {bound_us}");
}

/// The last of eight steps is cut off before its end.
#[test]
fn the_last_step_of_a_recording_does_not_count() {
    let standard = cell("standard", "llama-3-8b", 4, "native");
    let trace = simulated(&standard);
    let whole = rewiring(&trace, &standard);
    assert_eq!(whole.rewired_steps() + 1, whole.steps.len());
    assert!(whole.steps.notes.iter().any(|note| note.starts_with("skipped 1 step")));
    let last = whole.steps.times().last().unwrap();
    let mut cut = trace.clone();
    for span in cut.spans.iter_mut().filter(|span| span.start_ns >= last.1) {
        span.end_ns = span.start_ns + (span.end_ns - span.start_ns) / 3;
    }
    let cut = rewiring(&cut, &standard);
    assert_eq!(cut.measured(), whole.measured());
    // unless it is the one asked for
    assert_eq!(whole.on_step(last.0).unwrap().rewired_steps(), 1);
    let foreign = disguised(&trace);
    let foreign = rewiring(&foreign, &standard);
    assert_eq!(foreign.rewired_steps() + 1, foreign.steps.len());
}

/// The profiler of the other program numbered its steps from 100.
#[test]
fn steps_have_the_numbers_of_the_traces_markers() {
    let standard = cell("standard", "llama-3-8b", 4, "native");
    let own = simulated(&standard);
    let mut foreign = disguised(&own);
    let setting = Setting {
        target: Some(Target::from_spec(&standard).unwrap()),
        tp: Some(4),
        message_bytes: None,
    };
    let only = |trace: &Trace, step| {
        let asked = StepSelection { step: Some(step), ..StepSelection::default() };
        Rewiring::new(trace, &asked, &setting)
    };
    let first = only(&foreign, 0).unwrap().measured().step_us;
    let bounds: Vec<(u32, i64, i64)> = rewiring(&foreign, &standard).steps.times().collect();
    for span in &mut foreign.spans {
        let start = span.start_ns - i64::from(span.rank) * 3_000_000;
        let before = bounds.iter().filter(|(_, begin, _)| *begin <= start).count();
        span.step = 100 + before.saturating_sub(1) as u32;
    }
    assert_eq!(only(&foreign, 100).unwrap().measured().step_us, first);
    let error = only(&foreign, 0).unwrap_err().to_string();
    assert!(error.contains("no step 0 to rewire: the trace has steps 100 to"), "{error}");
    // a run's steps are those of every sample
    let mut twice = own.clone();
    let after = own.spans.iter().map(|span| span.end_ns).max().unwrap();
    twice.spans.extend(own.spans.iter().map(|span| Span {
        sample: 1,
        ready_ns: span.ready_ns + after,
        start_ns: span.start_ns + after,
        end_ns: span.end_ns + after,
        ..*span
    }));
    assert_eq!(only(&twice, 1).unwrap().rewired_steps(), 2);
}

/// One of four ranks recorded the last three steps only.
#[test]
fn ranks_that_recorded_fewer_steps_are_rewired_in_those() {
    let standard = cell("standard", "llama-3-8b", 4, "native");
    let mut foreign = disguised(&simulated(&standard));
    let whole = rewiring(&foreign, &standard);
    let bounds: Vec<(u32, i64, i64)> = whole.steps.times().collect();
    for span in &mut foreign.spans {
        let start = span.start_ns - i64::from(span.rank) * 3_000_000;
        let before = bounds.iter().filter(|(_, begin, _)| *begin <= start).count();
        span.step = before.saturating_sub(1) as u32;
    }
    let first = bounds.len() as u32 - 3;
    foreign.spans.retain(|span| span.rank != 1 || span.step >= first);
    let fewer = rewiring(&foreign, &standard);
    assert_eq!((fewer.steps.ranks, fewer.steps.len()), (4, 3));
    let (found, all) = (fewer.measured().step_us, whole.measured().step_us);
    assert!((found / all - 1.0).abs() < 0.01, "{found} against {all}");
}

/// The last kernel of each step is launched when the one before it ends.
#[test]
fn a_kernel_that_is_launched_late_is_named_as_the_limit() {
    let standard = cell("standard", "llama-3-8b", 4, "native");
    let mut foreign = disguised(&simulated(&standard));
    let whole = rewiring(&foreign, &standard);
    let ends: Vec<i64> = whole.steps.times().map(|(_, _, end)| end).collect();
    let mut late = 0;
    let spans = &mut foreign.spans;
    for at in 1..spans.len() {
        let begin = |span: &Span| span.start_ns - i64::from(span.rank) * 3_000_000;
        let (before, next) = (begin(&spans[at - 1]), begin(&spans[at]));
        if ends.iter().any(|end| before < *end && *end <= next) {
            spans[at - 1].ready_ns = spans[at - 1].start_ns - 1;
            late += 1;
        }
    }
    assert!(late > 0);
    let is_said = |rewiring: &Rewiring| {
        rewiring
            .late_launches()
            .is_some_and(|note| note.starts_with("late kernel launches limit the gain"))
    };
    assert!(!is_said(&whole) && is_said(&rewiring(&foreign, &standard)));
}

/// A draft model of two layers runs after each step that the engine marks.
#[test]
fn a_step_lasts_until_the_next_marked_one() {
    let standard = cell("standard", "llama-3-8b", 4, "native");
    let mut foreign = disguised(&simulated(&standard));
    let whole = rewiring(&foreign, &standard);
    let bounds: Vec<(u32, i64, i64)> = whole.steps.times().collect();
    foreign.spans.sort_by_key(|span| (span.rank, span.start_ns));
    let step_of = |span: &Span| {
        let start = span.start_ns - i64::from(span.rank) * 3_000_000;
        bounds.iter().filter(|(_, begin, _)| *begin <= start).count()
    };
    let is_reduce = |span: &Span| {
        foreign.operations[span.operation as usize].kind == trace::OperationKind::AllReduce
    };
    for of_step in foreign.spans.chunk_by_mut(|a, b| (a.rank, step_of(a)) == (b.rank, step_of(b))) {
        let step = step_of(&of_step[0]);
        let count = of_step.iter().filter(|span| is_reduce(span)).count();
        let mut reduced = 0;
        for span in of_step {
            let is_draft = reduced + 4 >= count;
            span.step = if step == 0 || is_draft { NO_STEP } else { step as u32 };
            reduced += usize::from(is_reduce(span));
        }
    }
    foreign.meta.range_names.push("execute_context_0(0)_generation_8(8)".into());
    let marked = rewiring(&foreign, &standard);
    assert_eq!(marked.steps.layers + 2, whole.steps.layers);
    assert_eq!(marked.measured().step_us, whole.measured().step_us);
    let saved = |rewiring: &Rewiring| {
        rewiring.measured().step_us - rewiring.answer(&choice("ladder")).unwrap().alone.step_us
    };
    assert!(saved(&marked) < saved(&whole), "the draft model stays as it is");
}

#[test]
fn a_fused_all_reduce_never_beats_the_limit_that_contains_it() {
    let standard = cell("standard", "llama-3-8b", 4, "native");
    let trace = simulated(&standard);
    let rewiring = rewiring(&trace, &standard);
    let step_us = |name: &str, collective| {
        let choice = RewireChoice { collective, ..choice(name) };
        rewiring.answer(&choice).unwrap().alone.step_us
    };
    let fused = Some(Collective::Fused);
    let limit = step_us("upper-bound", fused);
    assert!(limit < step_us("upper-bound", None), "it lacks the norms too");
    for name in ["standard", "ladder"] {
        assert!(limit <= step_us(name, fused), "{name}");
    }
}

/// Every all-reduce of the trace begins halfway through the module before it.
#[test]
fn no_architecture_takes_less_time_than_the_kernels_of_an_overlapping_trace() {
    let standard = cell("standard", "llama-3-8b", 4, "native");
    let mut trace = disguised(&simulated(&standard));
    trace.spans.sort_by_key(|span| (span.rank, span.start_ns));
    let mut earlier = std::collections::HashMap::new();
    for span in &mut trace.spans {
        let of_rank: &mut i64 = earlier.entry(span.rank).or_default();
        let length = span.end_ns - span.start_ns;
        let overlap = if span.lane == Lane::Comm { length * 2 / 5 } else { 0 };
        (span.start_ns, span.end_ns) =
            (span.start_ns - *of_rank - overlap, span.end_ns - *of_rank - overlap);
        span.ready_ns = span.start_ns;
        *of_rank += overlap;
    }
    let rewiring = rewiring(&trace, &standard);
    let kernels_us =
        median(&rewiring.steps.steps.iter().map(|step| step.times.compute / 1e3).collect::<Vec<_>>());
    let limit = rewiring.answer(&choice("upper-bound")).unwrap().alone;
    assert!(limit.step_us >= 0.999 * kernels_us.unwrap(), "{limit:?}, not {kernels_us:?}");
    assert!(limit.speedup > 1.01);
}

#[test]
fn a_tensor_parallel_size_that_contradicts_the_trace_is_refused() {
    let standard = cell("standard", "llama-3-8b", 4, "native");
    let trace = simulated(&standard);
    let of = |trace: &Trace, tp: u32| {
        let setting = Setting { tp: Some(tp), ..Setting::default() };
        Rewiring::new(trace, &StepSelection::default(), &setting)
    };
    let error = of(&trace, 8).unwrap_err().to_string();
    assert!(error.contains("--tp 8 contradicts the trace: 4 ranks communicate"), "{error}");
    assert_eq!(of(&trace, 4).unwrap().tp, Some(4));
    let mut foreign = disguised(&trace);
    foreign.meta.environment.insert("world_size".into(), 8.into());
    let error = of(&foreign, 16).unwrap_err().to_string();
    assert!(error.contains("--tp 16 does not divide the trace's world size of 8"), "{error}");
    let part = of(&foreign, 4).unwrap();
    assert!(
        part.steps.notes.iter().any(|note| note.contains("2 replicas or pipeline stages of 4 ranks"))
    );
}

#[test]
fn what_cannot_be_rewired_says_why() {
    let of = |trace: &Trace, layers| {
        let asked = StepSelection { layers, ..StepSelection::default() };
        Rewiring::new(trace, &asked, &Setting::default()).unwrap_err().to_string()
    };
    let ladder = simulated(&cell("ladder", "llama-3-8b", 4, "native"));
    assert!(
        of(&ladder, None).contains("predictions start from a run of standard"),
        "{}",
        of(&ladder, None)
    );
    let parallel = simulated(&cell("parallel", "llama-3-8b", 4, "native"));
    let foreign = disguised(&parallel);
    let told = of(&foreign, None);
    assert!(told.contains("cannot detect the layers") && told.contains("32 all-reduces"), "{told}");
    assert!(of(&foreign, Some(32)).contains("one a layer"), "{}", of(&foreign, Some(32)));
    assert!(of(&foreign, Some(40)).contains("expected 80"), "{}", of(&foreign, Some(40)));
    let mut silent = foreign;
    silent.spans.retain(|span| span.lane == Lane::Compute);
    assert!(of(&silent, None).contains("no all-reduce"), "{}", of(&silent, None));
    // RCCL runs all collectives in one kernel
    let standard = cell("standard", "llama-3-8b", 4, "native");
    let trace = simulated(&standard);
    let mut generic = disguised(&trace);
    for operation in generic
        .operations
        .iter_mut()
        .filter(|operation| operation.kind == trace::OperationKind::AllReduce)
    {
        operation.name = "ncclDevKernel_Generic_1(ncclDevKernelArgsStorage<4096ul>)".to_owned();
    }
    Rules::default().classify(&mut generic);
    let told = of(&generic, None);
    assert!(told.contains("ncclDevKernel_Generic_1 runs any collective"), "{told}");
    // without a profile nothing is said of another all-reduce
    let bare = Rewiring::new(&trace, &StepSelection::default(), &Setting::default()).unwrap();
    let fused = RewireChoice { collective: Some(Collective::Fused), ..choice("standard") };
    assert!(bare.answer(&fused).unwrap_err().to_string().contains("hardware profile"));
    assert_eq!(bare.answer(&choice("ladder")).unwrap().contended, None);
    assert!(bare.answer(&choice("sync-drop:99")).is_err(), "layers that the model has not");
}

#[test]
fn the_step_beneath_begins_with_the_measured_one_and_has_its_layers() {
    let standard = cell("standard", "llama-3-8b", 2, "native");
    let trace = simulated(&standard);
    let rewiring = rewiring(&trace, &standard);
    let rewired = beneath(&trace, &rewiring, &choice("ladder"), 3).unwrap();
    assert!(rewired.spans.iter().all(|span| (span.phase, span.step) == (Phase::Decode, 3)));
    let begins = |trace: &Trace| {
        let of_step = trace.spans.iter().filter(|span| (span.phase, span.step) == (Phase::Decode, 3));
        of_step.map(|span| span.start_ns).min()
    };
    assert_eq!(begins(&rewired), begins(&trace));
    let reduces = rewired.spans.iter().filter(|span| span.lane == Lane::Comm).count();
    assert_eq!(reduces, 2 * 64, "two a layer and rank");
    // most of an all-reduce lies under a module
    let report = trace::overlap::overlap(&rewired, &Default::default());
    assert!(report.all.overlap_pct.unwrap() > 60.0, "{:?}", report.all);
    assert!(beneath(&trace, &rewiring, &choice("ladder"), 99).is_err());
    // of a run of our own nothing is left out of a step but rounding
    let (left_out, length) = rewiring.left_out_ns(3).unwrap();
    assert!(left_out.abs() * 100 < length, "{left_out} of {length} ns");
}
