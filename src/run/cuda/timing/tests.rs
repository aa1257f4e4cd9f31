//! Parts of steps and the events around them, on plans; clocks, on made-up events whose truth is known.

use std::collections::HashSet;

use proptest::prelude::*;

use super::*;
use crate::comm::PingPong;
use crate::cuda::program::GpuProgram;
use crate::cuda::schedule::{EventPosition, RankLayout, Schedule, StreamOperation};
use model::Model;
use plan::{DType, Lane, Phase};

/// Decode plans of several architectures, each on one stream or two as a rank executes it, and in parts.
fn steps() -> Vec<(String, GpuProgram, Schedule, StreamSegments)> {
    let shape = Model::resolve("tiny").expect("built in").shape;
    let mut all = Vec::new();
    for (architecture, tp) in [
        ("standard", 1),
        ("standard", 4),
        ("ladder", 4),
        ("parallel+ladder", 2),
        ("desync:2", 2),
        ("delayed:2", 4),
        ("upper-bound", 2),
    ] {
        for chained in [true, false] {
            let program = GpuProgram::plain(&shape, architecture, tp, DType::F32, Phase::Decode, false);
            let layout = RankLayout { chained, ..RankLayout::ONE };
            let schedule = Schedule::new(&program.plan, &layout, None);
            let parts = StreamSegments::new(&program.plan, &schedule);
            all.push((format!("{architecture} tp{tp} {chained}"), program, schedule, parts));
        }
    }
    all
}

#[test]
fn parts_hold_each_operation_once_and_nobody_waits_within_one() {
    for (name, program, schedule, parts) in steps() {
        let plan = &program.plan;
        let mut all: Vec<u32> = parts.parts.iter().flat_map(|part| part.operations.clone()).collect();
        all.sort_unstable();
        assert_eq!(all, (0..plan.operations.len() as u32).collect::<Vec<_>>(), "{name}");
        let mut position = vec![0; plan.operations.len()];
        let mut order: Vec<(Lane, Option<u32>)> = Vec::new();
        for item in &schedule.items {
            match *item {
                StreamOperation::Launch { stream, operation } => {
                    position[operation as usize] = order.len();
                    order.push((stream.lane, Some(operation)));
                }
                StreamOperation::Wait { stream, .. } | StreamOperation::Record { stream, .. } => {
                    order.push((stream.lane, None))
                }
                StreamOperation::Mark { .. } => {}
            }
        }
        for part in &parts.parts {
            let of = |operation: u32| &plan.operations[operation as usize];
            let collective = part.operations.iter().any(|operation| of(*operation).kind.is_collective());
            assert!(!collective || part.operations.len() == 1, "{name}: a collective is alone");
            let (first, last) = (part.operations[0], part.operations[part.operations.len() - 1]);
            let what = |operation| (of(operation).module, of(operation).layer);
            assert!(part.operations.iter().all(|operation| what(*operation) == what(first)), "{name}");
            // on its stream nothing but its own launches stands within
            let within = &order[position[first as usize]..=position[last as usize]];
            let own = within.iter().filter(|(lane, _)| *lane == part.stream);
            assert!(
                own.clone().all(|(_, launched)| launched.is_some_and(|o| part.operations.contains(&o))),
                "{name}"
            );
        }
        // of ladder's layers each module is one part, but for what an all-reduce waits for
        if name.starts_with("ladder") {
            let layers = plan
                .operations
                .iter()
                .filter_map(|operation| operation.layer)
                .max()
                .map_or(0, |l| l + 1);
            let modules = parts
                .parts
                .iter()
                .filter(|part| part.operations.len() > 1 && of_layer(plan, part))
                .count();
            assert_eq!(modules as u32, 2 * layers, "{name}");
        }
    }
}

fn of_layer(plan: &plan::Plan, part: &StreamSegment) -> bool {
    plan.operations[part.operations[0] as usize].layer.is_some()
}

#[test]
fn a_part_in_a_trace_has_what_its_operations_have() {
    for (name, program, _, parts) in steps() {
        let plan = &program.plan;
        // behind another phase's operations, and that in fewer parts
        let operations = trace::operations([plan], [plan]);
        let first = plan.operations.len() as u32;
        let table = parts.table(&operations, first, 7);
        assert_eq!(table.len(), parts.parts.len(), "{name}");
        let names: HashSet<&str> = table.iter().map(|info| info.name.as_str()).collect();
        assert_eq!(names.len(), table.len(), "{name}: names differ");
        let skeleton = parts.skeleton(plan);
        let flops = |of: &mut dyn Iterator<Item = &trace::OperationInfo>| -> u64 {
            of.map(|info| info.cost.flops.fixed + info.cost.flops.row).sum()
        };
        assert_eq!(flops(&mut table.iter()), flops(&mut operations[first as usize..].iter()), "{name}");
        for (at, (info, part)) in table.iter().zip(&parts.parts).enumerate() {
            assert_eq!(info.lane, skeleton.lanes[at], "{name}");
            assert_eq!(
                info.origins.len(),
                part.operations
                    .iter()
                    .map(|o| plan.operations[*o as usize].origins.len())
                    .sum::<usize>()
            );
            assert!(
                info.waits_for.iter().all(|on| (*on >= 7) && ((on - 7) as usize) < at),
                "{name}: what it waits for is before it"
            );
            let reads = skeleton.reads_from[at].iter().all(|on| info.waits_for.contains(&(7 + on)));
            assert!(reads, "{name}: it waits for what it reads");
        }
    }
}

#[test]
fn events_stand_once_and_give_each_part_a_start_and_an_end() {
    for (name, program, schedule, parts) in steps() {
        let comm = |part: &StreamSegment| part.stream == Lane::Comm;
        for (starts, only_comm) in [(true, false), (false, true)] {
            let marks = StepEvents::around(&parts, starts, |part| !only_comm || comm(part));
            let at = |place| marks.at(place);
            let marked = Schedule::new(&program.plan, &schedule.layout, Some(&at));
            let mut seen: Vec<u32> = Vec::new();
            let mut began: Vec<Option<usize>> = vec![None; marks.count()];
            for (position, item) in marked.items.iter().enumerate() {
                if let StreamOperation::Mark { mark, stream } = *item {
                    seen.push(mark);
                    began[mark as usize] = Some(position);
                    assert!(
                        !only_comm || stream.lane == Lane::Comm,
                        "{name}: kernels keep their early starts"
                    );
                }
            }
            seen.sort_unstable();
            assert_eq!(
                seen,
                (0..marks.count() as u32).collect::<Vec<_>>(),
                "{name}: each is recorded once"
            );
            for (index, part) in parts.parts.iter().enumerate() {
                let timed = !only_comm || comm(part);
                assert_eq!(marks.bracket(index).is_some(), timed, "{name}");
                let Some(Bracket { start, end }) = marks.bracket(index) else { continue };
                let launched = |wanted: u32| {
                    let is = |item: &StreamOperation| matches!(item, StreamOperation::Launch { operation, .. } if *operation == wanted);
                    marked.items.iter().position(is)
                };
                let (first, last) = (part.operations[0], part.operations[part.operations.len() - 1]);
                assert!(
                    began[start as usize] < launched(first) && launched(last) < began[end as usize],
                    "{name}"
                );
            }
            if only_comm {
                // early starts between kernels are those of a step without events
                let edges = |schedule: &Schedule| {
                    let mut edges: Vec<_> = schedule.early_starts(|_, _| true).into_keys().collect();
                    edges.retain(|(_, operation)| {
                        program.plan.operations[*operation as usize].lane == Lane::Compute
                    });
                    edges.sort_unstable();
                    edges
                };
                assert_eq!(edges(&marked), edges(&schedule), "{name}");
            } else {
                assert_eq!(marks.at(EventPosition::Start), marks.start(), "{name}");
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, ..ProptestConfig::default() })]

    #[test]
    fn the_best_round_trip_holds_the_event_and_drift_is_corrected(
        event in 1_000_000i64..1_000_000_000, apart in 1_000_000_000i64..100_000_000_000,
        trips in prop::collection::vec((1i64..30_000, 1i64..30_000), 1..40), ppm in -200i64..200,
    ) {
        let around = |event: i64| -> Vec<RoundTrip> {
            trips.iter().map(|(b, a)| RoundTrip { before_ns: event - b, after_ns: event + a }).collect()
        };
        let (at, start) = RoundTrip::best(&around(event)).unwrap();
        prop_assert!((start.at_ns - event).abs() <= start.uncertainty_ns);
        prop_assert!(trips.iter().all(|(b, a)| b + a >= trips[at].0 + trips[at].1));
        // the device's clock runs some parts in a million fast
        let device = apart + apart / 1_000_000 * ppm;
        let (_, end) = RoundTrip::best(&around(event + apart)).unwrap();
        let timeline = ClockMapping::between(start, end, device);
        for part in 0..=4 {
            let (host, device) = (event + apart / 4 * part, device / 4 * part);
            prop_assert!((timeline.host_ns(device) - host).abs() <= timeline.uncertainty_ns + 8, "{timeline:?}");
        }
    }

    #[test]
    fn the_quickest_answer_gives_the_offset_of_a_peer(
        offset in -1_000_000_000i64..1_000_000_000, ways in prop::collection::vec((1i64..200_000, 1i64..200_000), 1..50),
    ) {
        let answers: Vec<PingPong> = ways.iter().enumerate().map(|(n, (there, back))| {
            let sent = n as i64 * 1_000_000;
            PingPong { sent, theirs: sent + there - offset, received: sent + there + back }
        }).collect();
        let tie = rank_tie(&answers).unwrap();
        prop_assert!((tie.at_ns - offset).abs() <= tie.uncertainty_ns);
        let least = ways.iter().map(|(there, back)| there + back).min().unwrap();
        prop_assert!(tie.uncertainty_ns <= least / 2 + 1);
    }
}

#[test]
fn drift_that_is_not_corrected_counts_as_uncertainty() {
    // found by the law above: 8.5 us of drift hide within two ties of 4.3 us each
    let trip = |event: i64| RoundTrip { before_ns: event - 1853, after_ns: event + 6672 }.tie();
    let (event, apart) = (1_000_000, 4_263_217_338);
    let device = apart + 8526;
    let timeline = ClockMapping::between(trip(event), trip(event + apart), device);
    assert_eq!(
        timeline.host_ns(device),
        trip(event).at_ns + device,
        "below what the ties tell, clocks run alike"
    );
    assert!((timeline.host_ns(device) - (event + apart)).abs() <= timeline.uncertainty_ns);
}

#[test]
fn without_answers_there_is_no_tie() {
    assert!(rank_tie(&[]).is_none() && RoundTrip::best(&[]).is_none());
}
