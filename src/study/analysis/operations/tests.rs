//! Differences by operation: groups of origins, and sums that add up.

use proptest::prelude::*;

use super::*;
use plan::Phase;
use table::testing::spec;
use trace::testing::{span, trace};

const STEP: StepKey = StepKey { sample: 0, phase: Phase::Decode, step: 0 };

fn differences(a: &Trace, a_step: StepKey, b: &Trace, b_step: StepKey) -> OperationDifferences {
    operation_differences(&ComputeTimes::of(a), a_step, &ComputeTimes::of(b), b_step)
}

fn simulated(change: impl Fn(&mut table::Spec)) -> Trace {
    let mut spec = spec();
    change(&mut spec);
    run::testing::simulated(&spec)
}

#[test]
fn a_fused_operation_stands_against_those_it_was_made_of() {
    let fused = simulated(|_| {});
    let apart = simulated(|spec| {
        spec.set.insert("stack.fuse_add_norm".into(), "false".into());
    });
    let stacks = [&fused, &apart].map(|t| t.operations.iter().any(|o| o.kind == "add_norm"));
    assert_ne!(stacks[0], stacks[1], "one of the stacks fuses, the other does not");
    let report = differences(&fused, STEP, &apart, STEP);
    let group = report.groups.iter().find(|g| {
        let names = |share: &Option<Share>| share.as_ref().map_or(0, |s| s.names.len());
        names(&g.a) + names(&g.b) == 3
    });
    let group = group.expect("an add and a norm against an add_norm");
    assert!(group.name.ends_with("add_norm"), "the coarser side names it: {}", group.name);
    let (a, b) = (group.a.as_ref().unwrap(), group.b.as_ref().unwrap());
    assert!(a.names.len() != b.names.len() && a.us > 0.0 && b.us > 0.0);
    assert!((group.delta_us - (b.us - a.us)).abs() < 1e-9);
}

#[test]
fn what_only_one_run_does_is_told() {
    let standard = simulated(|_| {});
    let none = simulated(|spec| spec.architecture = "upper-bound".parse().unwrap());
    let report = differences(&standard, STEP, &none, STEP);
    let reduces: Vec<_> = report.groups.iter().filter(|g| g.lane == Lane::Comm).collect();
    assert_eq!(reduces.len(), 8, "two all-reduces in each of the four layers");
    for group in reduces {
        let took = group.a.as_ref().unwrap();
        assert!(group.b.is_none() && (group.delta_us + took.us).abs() < 1e-9);
        assert!((took.exposed_us - took.us).abs() < 1e-9, "standard hides nothing");
    }
    let first = &report.families[report.by_exposed[0]].sum;
    assert!(first.lane == Lane::Comm && first.delta_exposed_us() < 0.0);
    assert!(report.exposed_us.0 > 8.0 * 7.0 && report.exposed_us.1 == 0.0, "{:?}", report.exposed_us);
}

#[test]
fn layers_are_one_family_with_their_sums() {
    let standard = simulated(|_| {});
    let none = simulated(|spec| spec.architecture = "upper-bound".parse().unwrap());
    let report = differences(&standard, STEP, &none, STEP);
    let of_name = |name: &str| report.families.iter().find(|family| family.sum.name == name);
    let reduces = of_name("decode/L*/mlp/all_reduce").expect("one of all layers");
    let names: Vec<&str> = reduces.groups.iter().map(|at| report.groups[*at].name.as_str()).collect();
    let layers = ["L0", "L1", "L2", "L3"].map(|layer| format!("decode/{layer}/mlp/all_reduce"));
    assert_eq!(names, layers, "in order of layers");
    let sum: f64 = reduces.groups.iter().map(|at| report.groups[*at].delta_us).sum();
    assert!((reduces.sum.delta_us - sum).abs() < 1e-9 && reduces.sum.b.is_none());
    assert_eq!(reduces.sum.a.as_ref().map(|share| share.count), Some(8), "four layers, two ranks");
    let deltas: Vec<f64> = report.families.iter().map(|family| family.sum.delta_us.abs()).collect();
    assert!(deltas.windows(2).all(|pair| pair[0] >= pair[1]), "the largest first");
    let mut all: Vec<usize> = report.families.iter().flat_map(|f| f.groups.clone()).collect();
    all.sort_unstable();
    assert_eq!(all, (0..report.groups.len()).collect::<Vec<_>>(), "each group in one family");
    assert!(of_name("decode/embed/tokens").is_some_and(|family| family.groups.len() == 1));
}

#[test]
fn what_was_recorded_in_different_ways_is_not_compared_in_what_was_exposed() {
    let by = |recorder: &str| {
        let mut trace = simulated(|_| {});
        trace.meta.recorder = recorder.into();
        trace
    };
    let of = |a: &str, b: &str| differences(&by(a), STEP, &by(b), STEP).recorders;
    assert_eq!(of("stamps", "stamps"), None);
    assert_eq!(of("stamps", "sim"), None, "a prediction is held against whatever was measured");
    assert_eq!(of("stamps", "cupti"), Some(["stamps".to_owned(), "cupti".to_owned()]));
    // how traces of before are marked, each composed of replays
    assert!(of("cuda events, rotating K=8", "stamps").is_some());
    // nor is anything sorted by it
    let order = |recorder: &str| {
        let mut none = simulated(|spec| spec.architecture = "upper-bound".parse().unwrap());
        none.meta.recorder = recorder.into();
        // what differs most in time is no communication
        none.spans.iter_mut().for_each(|span| span.end_ns += 1_000_000);
        differences(&by("stamps"), STEP, &none, STEP).by_exposed
    };
    let by_time: Vec<usize> = (0..order("stamps").len()).collect();
    assert_ne!(order("stamps"), by_time);
    assert_eq!(order("cupti"), by_time);
}

#[test]
fn the_same_step_differs_in_nothing() {
    let trace = simulated(|_| {});
    let report = differences(&trace, STEP, &trace, STEP);
    assert!(report.groups.len() > 20 && report.groups.iter().all(|g| g.delta_us == 0.0));
    assert_eq!(report.lengths_us.0, report.lengths_us.1);
}

#[test]
fn a_step_that_is_not_there_compares_with_nothing() {
    let trace = simulated(|_| {});
    let report = differences(&trace, STEP, &trace, StepKey { step: 999, ..STEP });
    assert!(report.groups.iter().all(|g| g.b.is_none()));
    assert_eq!(report.lengths_us.1, 0.0);
}

proptest! {
    #[test]
    fn groups_hold_every_span_once(
        a in prop::collection::vec((0u32..3, 0u32..5, 0i64..300, 0i64..60), 0..40),
        b in prop::collection::vec((0u32..3, 0u32..5, 0i64..300, 0i64..60), 0..40),
        origins in prop::collection::vec(prop::collection::vec(0u32..8, 0..3), 10),
    ) {
        let build = |list: Vec<(u32, u32, i64, i64)>, origins: &[Vec<u32>]| {
            let mut spans: Vec<Span> = list
                .into_iter()
                .map(|(rank, operation, start, width)| {
                    let lane = if operation == 1 { Lane::Comm } else { Lane::Compute };
                    Span { operation, ..span(rank, lane, start, start + width) }
                })
                .collect();
            spans.sort_by_key(|s| (s.rank, s.lane, s.start_ns));
            let mut trace = trace(spans);
            for (operation, origins) in trace.operations.iter_mut().zip(origins) {
                operation.origins = origins.iter().map(|o| o.to_string()).collect();
            }
            trace
        };
        let (a, b) = (build(a, &origins[..5]), build(b, &origins[5..]));
        let report = differences(&a, STEP, &b, STEP);
        for (trace, first) in [(&a, true), (&b, false)] {
            let share = |group: &'_ OperationDifference| {
                let (a, b) = (group.a.clone(), group.b.clone());
                if first { a } else { b }
            };
            let shares: Vec<Share> = report.groups.iter().filter_map(share).collect();
            let count: u64 = shares.iter().map(|s| s.count).sum();
            prop_assert_eq!(count, trace.spans.len() as u64);
            let mut ranks: Vec<u32> = trace.spans.iter().map(|s| s.rank).collect();
            ranks.dedup();
            let total: i64 = trace.spans.iter().map(|s| s.end_ns - s.start_ns).sum();
            let sum: f64 = shares.iter().map(|s| s.us).sum();
            prop_assert!((sum * ranks.len().max(1) as f64 - total as f64 / 1e3).abs() < 1e-6);
            for share in shares {
                prop_assert!(share.exposed_us <= share.us + 1e-9 && share.peer_wait_us <= share.us + 1e-9);
            }
        }
        let mut names: Vec<&String> = report
            .groups
            .iter()
            .flat_map(|g| [&g.a, &g.b])
            .flatten()
            .flat_map(|s| &s.names)
            .collect();
        let all = names.len();
        names.sort();
        names.dedup();
        prop_assert!(all <= 2 * names.len(), "no operation is in two groups");
    }
}
