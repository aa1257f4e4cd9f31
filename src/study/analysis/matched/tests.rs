//! Matching of traces made by hand: process groups, sequence numbers, ranks that lack collectives.

use super::*;
use crate::analysis::{clocks, estimated_skew, steps, tie_clocks, trace_report};
use trace::overlap::Selection;
use trace::testing::{span, trace};
use trace::{CollectiveInfo, ImportReport, OperationInfo};

fn group(name: &str, description: &str, ranks: &[u32]) -> ProcessGroup {
    ProcessGroup {
        name: name.into(),
        description: description.into(),
        size: ranks.len() as u32,
        ranks: ranks.to_vec(),
    }
}

/// An imported trace whose operations are all-reduces of these groups, of 16 KB.
fn of_groups(groups: Vec<ProcessGroup>, spans: Vec<Span>) -> Trace {
    let mut trace = trace(spans);
    let all_reduce = trace.operations[1].clone();
    let operation = |group: u32| OperationInfo {
        layer: None,
        name: "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(x)".into(),
        collective: Some(
            CollectiveInfo {
                name: "allreduce".into(),
                group: Some(group),
                in_elements: Some(8192),
                out_elements: Some(8192),
                dtype: "BFloat16".into(),
                ..CollectiveInfo::default()
            }
            .with_message_bytes(),
        ),
        ..all_reduce.clone()
    };
    trace.operations = (0..groups.len() as u32).map(operation).collect();
    trace.operations.push(OperationInfo {
        kind: "matmul".into(),
        lane: Lane::Compute,
        ..trace.operations[0].clone()
    });
    trace.operations.last_mut().unwrap().collective = None;
    trace.meta.groups = groups;
    let ranks = trace.meta.ranks;
    let files = (0..ranks).map(|rank| format!("rank{rank}.json")).collect();
    trace.meta.import = Some(ImportReport { files, ..ImportReport::default() });
    trace.meta.spec = None;
    trace.spans.sort_by_key(|s| (s.step, s.rank, s.lane, s.start_ns));
    trace
}

fn reduce(rank: u32, operation: u32, start: i64, end: i64) -> Span {
    Span { operation, ..span(rank, Lane::Comm, start, end) }
}

fn ranks_of(trace: &Trace) -> Vec<Vec<u32>> {
    let matching = CollectiveMatching::from_trace(trace);
    let ranks = |places: &[usize]| places.iter().map(|place| trace.spans[*place].rank).collect();
    matching.collectives().map(|collective| ranks(collective.places)).collect()
}

/// Eight ranks, TP 4 x DP 2: each rank in two groups, whose collectives interleave in another order on each half.
fn eight_ranks() -> Trace {
    let mut groups = vec![group("1", "TP", &[0, 1, 2, 3]), group("2", "TP", &[4, 5, 6, 7])];
    groups.extend((0..4).map(|rank| group("3", "DP", &[rank, rank + 4])));
    let mut spans = Vec::new();
    for rank in 0..8u32 {
        let (half, within) = (rank / 4, rank % 4);
        for at in 0..10i64 {
            // the second half runs 100 us later; within a TP group rank 3 arrives 20 us late
            let begin = 1_000_000 * at + 100_000 * i64::from(half);
            let late = if within == 3 { 20_000 } else { 0 };
            spans.push(reduce(rank, half, begin + late, begin + 60_000));
            // DP's all-reduce ends at once on both halves: the first half waits
            let start = 1_000_000 * at + 300_000 + 100_000 * i64::from(half);
            spans.push(reduce(rank, 2 + within, start, 1_000_000 * at + 450_000));
        }
    }
    of_groups(groups, spans)
}

#[test]
fn collectives_meet_within_their_process_group() {
    let trace = eight_ranks();
    let matched = ranks_of(&trace);
    let count = |ranks: &[u32]| matched.iter().filter(|of| *of == ranks).count();
    assert_eq!(matched.len(), 60);
    assert_eq!([count(&[0, 1, 2, 3]), count(&[4, 5, 6, 7]), count(&[2, 6])], [10; 3]);
    // one clock each: all groups together tie all ranks
    let clocks = clocks(&trace);
    assert_eq!(clocks.offsets.len(), 8);
    assert!(clocks.offsets.values().all(|offset| *offset == 0), "{clocks:?}");
    let report = trace_report(&trace, &Selection::default());
    let tp = report.collectives.iter().find(|row| row.ranks == Some(vec![4, 5, 6, 7])).unwrap();
    assert_eq!(
        (tp.group.as_deref(), tp.group_size, tp.message_bytes),
        (Some("TP"), Some(4), Some(16_384))
    );
    // three of four ranks wait 20 us of their 60
    assert_eq!(
        (tp.transfer_us, tp.waited_us, tp.mean_us, tp.median_us),
        (Some(40.0), Some(15.0), 55.0, 60.0)
    );
    assert_eq!(
        (tp.algorithm.as_deref(), tp.protocol.as_deref(), tp.bandwidth_of),
        (Some("RING"), Some("LL"), Some("transfer"))
    );
    assert!((tp.algorithm_gb_s.unwrap() - 0.4096).abs() < 1e-9);
    assert!((tp.bus_gb_s.unwrap() - 0.6144).abs() < 1e-9);
    let kinds: Vec<_> =
        report.groups.iter().map(|row| (row.group.as_deref(), row.groups, row.count)).collect();
    assert_eq!(kinds, [(Some("DP"), 4, 80), (Some("TP"), 2, 80)]);
    assert_eq!(report.groups[1].comm_us, 550.0);
}

#[test]
fn groups_of_one_name_with_other_ranks_are_other_groups() {
    let groups = vec![group("1", "TP", &[0, 1]), group("1", "TP", &[2, 3])];
    let spans = (0..4).map(|rank| reduce(rank, rank / 2, 100 * i64::from(rank), 1_000)).collect();
    assert_eq!(ranks_of(&of_groups(groups, spans)), [[0, 1], [2, 3]]);
    // of one name whose ranks nobody lists, and more of them than it has: nobody knows which meet
    let unlisted = ProcessGroup { ranks: Vec::new(), size: 2, ..group("1", "TP", &[]) };
    let spans: Vec<Span> = (0..4).map(|rank| reduce(rank, 0, 100, 1_000)).collect();
    let trace = of_groups(vec![unlisted.clone()], spans.clone());
    assert_eq!((ranks_of(&trace).len(), CollectiveMatching::from_trace(&trace).unmatched.len()), (0, 4));
    assert_eq!(
        CollectiveMatching::from_trace(&trace).obstacles,
        BTreeSet::from([MatchObstacle::SeveralJobs])
    );
    assert_eq!(ranks_of(&of_groups(vec![unlisted], spans[..2].to_vec())), [[0, 1]]);
}

#[test]
fn sequence_numbers_align_profiles_that_begin_at_different_collectives() {
    let numbered = |rank: u32, sequence: u32| {
        let start = 10_000 * i64::from(sequence) + 500 * i64::from(rank);
        Span { sequence, ..reduce(rank, 0, start, 10_000 * i64::from(sequence) + 4_000) }
    };
    // rank 1 lacks the first, rank 0 the last; profiler steps differ, too
    let mut spans: Vec<Span> = (1..6).map(|sequence| numbered(0, sequence)).collect();
    spans.extend((2..7).map(|sequence| Span { step: 1, ..numbered(1, sequence) }));
    let trace = of_groups(vec![group("0", "default_pg", &[0, 1])], spans.clone());
    let matching = CollectiveMatching::from_trace(&trace);
    assert_eq!((matching.collectives().count(), matching.unmatched.len()), (4, 2));
    for collective in matching.collectives() {
        let [a, b] = collective.places else { panic!() };
        assert_eq!(trace.spans[*a].sequence, trace.spans[*b].sequence);
    }
    let report = trace_report(&trace, &Selection::default());
    let row = &report.collectives[0];
    assert_eq!((row.transfer_us, row.waited_us), (Some(3.5), Some(0.25)));
    // without numbers, five on each rank would meet in the wrong order, but for the steps
    let bare: Vec<Span> = spans.iter().map(|s| Span { sequence: Span::NO_SEQUENCE, ..*s }).collect();
    assert_eq!(ranks_of(&of_groups(vec![group("0", "", &[0, 1])], bare)).len(), 0);
}

#[test]
fn message_sizes_that_differ_are_no_one_collective() {
    let mut trace = of_groups(
        vec![group("0", "", &[0, 1]), group("0", "", &[0, 1])],
        vec![reduce(0, 0, 0, 9), reduce(1, 1, 0, 9)],
    );
    // the same group with other sizes: one group in the table
    trace.meta.groups.pop();
    trace.operations[1].collective = Some(
        CollectiveInfo {
            in_elements: Some(4096),
            out_elements: None,
            ..trace.operations[0].collective.clone().unwrap()
        }
        .with_message_bytes(),
    );
    assert_eq!((ranks_of(&trace).len(), CollectiveMatching::from_trace(&trace).unmatched.len()), (0, 2));
}

#[test]
fn a_collective_without_a_recorded_rank_of_its_group_is_not_matched() {
    let groups = vec![group("1", "TP", &[0, 1, 2, 3])];
    // ranks 2 and 3 were not recorded: 0 and 1 meet
    let two = vec![reduce(0, 0, 0, 9), reduce(1, 0, 2, 9)];
    assert_eq!(ranks_of(&of_groups(groups.clone(), two.clone())), [[0, 1]]);
    // rank 2 was recorded and has none
    let mut three = two;
    three.push(Span { operation: 1, ..span(2, Lane::Compute, 0, 5) });
    assert_eq!(ranks_of(&of_groups(groups, three)).len(), 0);
}

/// Two of four ranks were recorded, and the other two may be the slowest.
#[test]
fn waiting_is_a_lower_bound_without_all_ranks_of_the_group() {
    let of = |ranks: &[u32], late: i64| {
        let spans = (0..8i64).flat_map(|at| {
            let begin = 100_000 * at;
            [reduce(0, 0, begin, begin + 50_000), reduce(1, 0, begin + late, begin + 50_000)]
        });
        let mut trace = of_groups(vec![group("1", "TP", ranks)], spans.collect());
        trace.meta.provenance = table::Provenance::Measured;
        let report = trace_report(&trace, &Selection::default());
        (report.collectives[0].clone(), report.stragglers.unwrap())
    };
    let (row, stragglers) = of(&[0, 1], 10_000);
    assert_eq!((row.transfer_us, row.waited_us, row.waited_at_least_us), (Some(40.0), Some(5.0), None));
    assert!(!stragglers.note.unwrap().contains("not recorded"));
    let (row, stragglers) = of(&[0, 1, 2, 3], 10_000);
    assert_eq!((row.transfer_us, row.waited_us, row.waited_at_least_us), (None, None, Some(5.0)));
    assert_eq!((row.bandwidth_of, row.group_size), (Some("duration"), Some(4)));
    assert!(stragglers.note.unwrap().contains("ranks were not recorded"));
    // no groups, and a job of more ranks than have files
    let spans = vec![reduce(0, 0, 0, 50), reduce(1, 0, 10, 50)];
    let mut trace = of_groups(vec![group("1", "TP", &[0, 1])], spans);
    trace.meta.groups.clear();
    trace.operations = vec![OperationInfo { collective: None, ..eight_ranks().operations[0].clone() }];
    let is_partial =
        |trace: &Trace| CollectiveMatching::from_trace(trace).collectives().next().unwrap().is_partial;
    assert!(!is_partial(&trace));
    trace.meta.import.as_mut().unwrap().missing_ranks = 2;
    assert!(is_partial(&trace));
}

/// Exposed time has one definition: groups, collectives, kinds and the rank add up.
#[test]
fn exposed_times_of_groups_that_communicate_at_once_add_up() {
    let groups = vec![group("1", "TP", &[0, 1]), group("2", "DP", &[0, 1])];
    let mut spans = Vec::new();
    for rank in 0..2u32 {
        spans.push(Span { operation: 2, ..span(rank, Lane::Compute, 0, 30_000) });
        spans.extend([reduce(rank, 0, 20_000, 60_000), reduce(rank, 1, 50_000, 90_000)]);
    }
    let report = trace_report(&of_groups(groups, spans), &Selection::default());
    let rows: Vec<_> = report
        .groups
        .iter()
        .map(|row| (row.group.as_deref(), row.comm_us, row.overlap_us, row.exposed_comm_us))
        .collect();
    // from 50 to 60 us both communicate: the time is of the one that started first
    let wanted = [(Some("TP"), 40.0, 10.0, 30.0), (Some("DP"), 40.0, 0.0, 30.0)];
    assert!(rows.iter().all(|row| wanted.contains(row)) && rows.len() == 2, "{rows:?}");
    let exposed = report.overlap.all.exposed_comm_us / 2.0;
    let of_collectives: f64 = report.collectives.iter().map(|row| row.executed.exposed_us).sum();
    let of_kinds: f64 = report.kinds.iter().map(|row| row.exposed_us).sum();
    assert_eq!([exposed, of_collectives, of_kinds], [60.0; 3]);
}

#[test]
fn kernels_without_a_group_meet_only_if_no_group_splits_the_ranks() {
    let groups = vec![group("1", "TP", &[0, 1]), group("2", "TP", &[2, 3])];
    let spans: Vec<Span> =
        (0..4).flat_map(|rank| [reduce(rank, rank / 2, 0, 9), reduce(rank, 3, 20, 29)]).collect();
    let mut trace = of_groups(groups, spans);
    let custom = OperationInfo {
        name: "cross_device_reduce_1stage".into(),
        collective: None,
        ..trace.operations[0].clone()
    };
    trace.operations.push(custom);
    assert_eq!(ranks_of(&trace), [[0, 1], [2, 3]]);
    // every rank works in one group: so does the custom kernel
    trace.meta.groups = vec![group("0", "", &[0, 1, 2, 3]), group("1", "", &[0])];
    for operation in &mut trace.operations[..2] {
        operation.collective.as_mut().unwrap().group = Some(0);
    }
    assert_eq!(ranks_of(&trace), [[0, 1, 2, 3], [0, 1, 2, 3]]);
}

#[test]
fn nobody_waits_longer_in_a_kernel_than_it_ran() {
    // rank 1 arrives 500 us late once, where rank 0's kernel ran 100 us
    let mut spans = Vec::new();
    for at in 0..5i64 {
        let late = if at == 2 { 500_000 } else { 0 };
        spans.push(reduce(0, 0, 1_000_000 * at, 1_000_000 * at + 100_000));
        spans.push(reduce(1, 0, 1_000_000 * at + late, 1_000_000 * at + late + 100_000));
    }
    let trace = of_groups(vec![group("0", "", &[0, 1])], spans);
    let report = trace_report(&trace, &Selection::default());
    let row = &report.collectives[0];
    assert_eq!((row.waited_us, row.transfer_us), (Some(10.0), Some(90.0)));
    let found = report.stragglers.unwrap();
    assert_eq!((found.ranks[0].waited_us, found.ranks[1].caused_us), (100.0, 100.0));
    assert_eq!(found.worst[0].waited_ns, 100_000);
}

/// Two pipeline stages that compute for 1000 us in turn, and transfer for 10 us. Operation 0 sends, 2 receives.
fn pipeline(steps: i64) -> Trace {
    let mut spans = Vec::new();
    for step in 0..steps {
        let begin = 10_000_000 + 2_020_000 * step;
        // the first receive is of a send before the recording
        let posted = begin - if step == 0 { 200_000 } else { 1_010_000 };
        spans.push(reduce(0, 2, posted, begin));
        spans.push(reduce(0, 0, begin + 1_000_000, begin + 1_010_000));
        spans.push(reduce(1, 2, begin, begin + 1_010_000));
        spans.push(reduce(1, 0, begin + 2_010_000, begin + 2_020_000));
    }
    let mut trace = of_groups(vec![group("3", "pp", &[0, 1])], spans);
    trace.operations.push(trace.operations[0].clone());
    for (at, name) in [(0, "send"), (2, "recv")] {
        trace.operations[at].kind = OperationKind::SendRecv;
        trace.operations[at].collective.as_mut().unwrap().name = name.into();
    }
    trace.meta.import.as_mut().unwrap().wall_clock = true;
    trace
}

#[test]
fn a_send_matches_the_receive_of_its_peer_and_not_its_send() {
    let trace = pipeline(4);
    let matching = CollectiveMatching::from_trace(&trace);
    let operations: Vec<Vec<u32>> = (matching.collectives())
        .map(|pair| pair.places.iter().map(|place| trace.spans[*place].operation).collect())
        .collect();
    assert!(operations.iter().all(|pair| pair == &[0, 2] || pair == &[2, 0]), "{operations:?}");
    assert_eq!((operations.len(), matching.unmatched.len(), matching.obstacles.len()), (7, 2, 0));
    assert!(clocks(&trace).offsets.values().all(|offset| *offset == 0), "the stages have one clock");
    let report = trace_report(&trace, &Selection::default());
    let mut times: Vec<_> =
        report.collectives.iter().map(|row| (row.waited_us, row.transfer_us)).collect();
    times.sort_by(|a, b| a.partial_cmp(b).unwrap());
    assert_eq!(times, [(Some(0.0), Some(10.0)), (Some(1000.0), Some(10.0))]);
    assert_eq!(estimated_skew(&trace, &Selection::default()), None, "stages do different work");
}

#[test]
fn transfers_without_peer_or_common_clock_are_not_matched() {
    fn matched(change: fn(&mut Trace)) -> (usize, usize, BTreeSet<MatchObstacle>) {
        let mut trace = pipeline(4);
        change(&mut trace);
        let matching = CollectiveMatching::from_trace(&trace);
        (matching.collectives().count(), matching.unmatched.len(), matching.obstacles)
    }
    let nothing = (0, 16, BTreeSet::from([MatchObstacle::Transfers]));
    let exchange = |trace: &mut Trace| {
        for at in [0, 2] {
            trace.operations[at].collective.as_mut().unwrap().name = "SendRecv".into();
        }
    };
    assert_eq!(matched(exchange), (7, 2, BTreeSet::new()), "one clock shows which kernels end together");
    let larger = |trace: &mut Trace| trace.meta.groups[0] = group("3", "pp", &[0, 1, 2, 3]);
    assert_eq!(matched(larger), nothing, "the peer may be any of three");
    let named = |trace: &mut Trace| {
        trace.meta.groups[0] = group("3", "pp", &[0, 1, 2, 3]);
        // an operation for each peer
        for at in [0, 2] {
            let mut other = trace.operations[at].clone();
            trace.operations[at].collective.as_mut().unwrap().peer = Some(1);
            other.collective.as_mut().unwrap().peer = Some(0);
            trace.operations.push(other);
            let to_first = trace.operations.len() as u32 - 1;
            let of_second = trace.spans.iter_mut().filter(|span| span.rank == 1);
            let of_operation = of_second.filter(|span| span.operation == at as u32);
            of_operation.for_each(|span| span.operation = to_first);
        }
    };
    assert_eq!(matched(named), (7, 2, BTreeSet::new()), "the trace names the peers");
    let apart = |trace: &mut Trace| trace.meta.import.as_mut().unwrap().wall_clock = false;
    assert_eq!(matched(apart), nothing, "the first receive may be of any send");
}

/// Steps of 1400 us, or of uneven length, with two all-reduces, at which rank 1 is 60 us late in even steps and rank 0
/// in odd ones; they transfer for 10 us. Each rank records from a step on, and counts from `first`.
fn serving(from: [i64; 2], first: [u32; 2], uneven: bool) -> Trace {
    let mut spans = Vec::new();
    for rank in [0, 1] {
        for (step, number) in (from[rank]..8).zip(first[rank]..) {
            for nth in 1..3 {
                let longer = if uneven { 7_000 * (step * step * 37 % 11) } else { 0 };
                let end = 1_000_000 + 1_400_000 * step + 200_000 * nth + longer;
                let is_last = (step % 2 == 0) == (rank == 1);
                let start = end - if is_last { 10_000 } else { 70_000 };
                spans.push(Span { step: number, ..reduce(rank as u32, 0, start, end) });
            }
        }
    }
    let mut trace = of_groups(vec![group("2", "tp", &[0, 1])], spans);
    trace.meta.range_names = vec!["execute_context_0(0)_generation_8(8)".into()];
    trace
}

#[test]
fn profiles_that_begin_a_step_apart_are_matched_by_their_clocks() {
    let mut trace = serving([0, 1], [0, 0], false);
    // nothing tells which of the equal steps rank 1 lacks
    let matching = CollectiveMatching::from_trace(&trace);
    assert_eq!(matching.collectives().count(), 0);
    assert_eq!(matching.obstacles, BTreeSet::from([MatchObstacle::Steps]));
    trace.meta.import.as_mut().unwrap().wall_clock = true;
    let matching = CollectiveMatching::from_trace(&trace);
    assert_eq!((matching.collectives().count(), matching.unmatched.len()), (14, 2));
    let row = trace_report(&trace, &Selection::default()).collectives.remove(0);
    assert_eq!((row.transfer_us, row.waited_us), (Some(10.0), Some(30.0)));

    tie_clocks(&mut trace);
    assert!(clocks(&trace).offsets.values().all(|offset| *offset == 0));
    let ranks: Vec<(u32, u32)> = steps(&trace).iter().map(|step| (step.step, step.ranks)).collect();
    assert_eq!(ranks, [(0, 1), (1, 2), (2, 2), (3, 2), (4, 2), (5, 2), (6, 2), (7, 2)]);
    let warnings = &trace.meta.import.as_ref().unwrap().warnings;
    assert!(warnings[0].starts_with("steps of r1 renumbered by +1"), "{warnings:?}");
    let tied = trace.clone();
    tie_clocks(&mut trace);
    assert_eq!(trace, tied, "tied once for all");
}

#[test]
fn the_earliest_step_of_any_rank_is_the_first() {
    let mut trace = serving([1, 0], [0, 0], false);
    trace.meta.import.as_mut().unwrap().wall_clock = true;
    tie_clocks(&mut trace);
    let ranks: Vec<(u32, u32)> = steps(&trace).iter().map(|step| (step.step, step.ranks)).collect();
    assert_eq!(ranks, [(0, 1), (1, 2), (2, 2), (3, 2), (4, 2), (5, 2), (6, 2), (7, 2)]);
}

#[test]
fn profilers_that_number_steps_differently_are_matched_by_the_length_of_steps() {
    let trace = serving([0, 0], [3, 0], true);
    let matching = CollectiveMatching::from_trace(&trace);
    assert_eq!((matching.collectives().count(), matching.unmatched.len()), (16, 0));
}

#[test]
fn a_window_of_time_does_not_shift_which_collectives_meet() {
    let mut spans = Vec::new();
    for at in 0..4i64 {
        spans.push(reduce(0, 0, 10_000 * at, 10_000 * at + 5_000));
        spans.push(reduce(1, 0, 10_000 * at + 2_000, 10_000 * at + 5_000));
    }
    let trace = of_groups(vec![group("0", "", &[0, 1])], spans);
    let selection = Selection { from_ns: Some(5_500), ..Selection::default() };
    let report = trace_report(&trace, &selection);
    let row = &report.collectives[0];
    assert_eq!((row.executed.count, row.waited_us), (6, Some(1.0)));
}

/// Two ranks at different paces: as many collectives, but not the same ones.
#[test]
fn collectives_that_end_further_apart_than_they_last_are_not_matched() {
    let at_pace = |rank: u32, pace: i64| {
        (0..20).map(move |at| reduce(rank, 0, pace * at, pace * at + 40_000)).collect::<Vec<_>>()
    };
    let trace = |second| {
        of_groups(vec![group("0", "", &[0, 1])], [at_pace(0, 200_000), at_pace(1, second)].concat())
    };
    assert_eq!(ranks_of(&trace(200_010)).len(), 20);
    let contradicted = trace(500_000);
    let matching = CollectiveMatching::from_trace(&contradicted);
    assert_eq!((ranks_of(&contradicted).len(), matching.unmatched.len()), (0, 40));
    assert_eq!(estimated_skew(&contradicted, &Selection::default()), None);
    // nor if the three other ranks agree
    let paces = [200_000, 200_000, 500_000, 200_000];
    let spans: Vec<Span> = (0..).zip(paces).flat_map(|(rank, pace)| at_pace(rank, pace)).collect();
    let of_four = of_groups(vec![group("0", "", &[0, 1, 2, 3])], spans);
    assert!(ranks_of(&of_four).is_empty());
}

/// Rank 1 was recorded from the second collective to one after rank 0's last: as many, and not the same ones.
#[test]
fn recordings_that_begin_one_collective_apart_are_not_matched_by_order() {
    let spans = |rank: u32, from: i64, numbered: bool| {
        (from..from + 20).map(move |at| {
            let begin = 1_000_000 * at + 1_000 * ((at * at * 37) % 400);
            let sequence = if numbered { at as u32 } else { Span::NO_SEQUENCE };
            Span { sequence, ..reduce(rank, 0, begin, begin + 250_000) }
        })
    };
    let of = |late: i64, numbered: bool| {
        let all = spans(0, 0, numbered).chain(spans(1, late, numbered)).collect();
        ranks_of(&of_groups(vec![group("0", "", &[0, 1])], all)).len()
    };
    assert_eq!([of(0, false), of(0, true)], [20; 2]);
    assert_eq!(of(1, false), 0, "ends are apart by a third of the collectives");
    assert_eq!(of(1, true), 19, "by number");
}

#[test]
fn steps_of_ranks_with_clocks_of_their_own_are_as_long_as_on_one_clock() {
    let mut trace = eight_ranks();
    let durations = |trace: &Trace| -> Vec<f64> {
        trace_report(trace, &Selection::default()).steps.iter().map(|step| step.duration_us).collect()
    };
    let expected = durations(&trace);
    for span in trace.spans.iter_mut().filter(|span| span.rank == 5) {
        span.ready_ns += 7_000_000_000;
        span.start_ns += 7_000_000_000;
        span.end_ns += 7_000_000_000;
    }
    assert_eq!(durations(&trace), expected);
}

#[test]
fn copies_are_not_what_ranks_computed() {
    let skew = |copied: bool| {
        let mut spans = Vec::new();
        for at in 0..8i64 {
            for (rank, lasts) in [(0, 100_000), (1, 110_000)] {
                let begin = 1_000_000 * at;
                spans.push(Span { operation: 1, ..span(rank, Lane::Compute, begin, begin + lasts) });
                if copied {
                    let copy = (begin + lasts, begin + lasts + 30_000);
                    spans.push(Span { operation: 2, ..span(rank, Lane::Compute, copy.0, copy.1) });
                }
                spans.push(reduce(rank, 0, begin + 200_000, begin + 240_000));
            }
        }
        let mut trace = of_groups(vec![group("0", "", &[0, 1])], spans);
        let copy = OperationInfo { kind: "memcpy".into(), ..trace.operations[1].clone() };
        trace.operations.push(copy);
        estimated_skew(&trace, &Selection::default()).unwrap()
    };
    assert!(skew(false).rank_pct > 1.0);
    assert_eq!(skew(true), skew(false));
}
