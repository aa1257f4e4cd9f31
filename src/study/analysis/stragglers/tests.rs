//! Stragglers of traces made by hand.

use crate::analysis::{Stragglers, trace_report};
use plan::Lane;
use trace::overlap::Selection;
use trace::testing::{span, trace};
use trace::{ImportReport, Span, Trace};

/// A collective as the ranks arrived at it; it ends at 1000 after the last.
fn collective(operation: u32, starts: &[(u32, i64)]) -> Vec<Span> {
    let end = starts.iter().map(|(_, at)| *at).max().unwrap_or(0) + 1000;
    starts.iter().map(|&(rank, at)| Span { operation, ..span(rank, Lane::Comm, at, end) }).collect()
}

fn imported(spans: Vec<Span>) -> Trace {
    let mut trace = trace(spans);
    trace.meta.import = Some(ImportReport::default());
    trace.spans.sort_by_key(|s| (s.step, s.rank, s.lane, s.start_ns));
    trace
}

fn stragglers(trace: &Trace) -> Stragglers {
    trace_report(trace, &Selection::default()).stragglers.unwrap()
}

#[test]
fn the_last_to_arrive_is_late_by_what_the_one_before_it_waited() {
    let spans = collective(1, &[(0, 100), (1, 5_100), (2, 2_100)]);
    // files of their own, whose clocks are apart: the collective ends on all ranks at once
    let mut separate = imported(spans);
    separate.meta.import = Some(ImportReport {
        files: (0..3).map(|rank| format!("rank{rank}.json")).collect(),
        ..ImportReport::default()
    });
    for span in separate.spans.iter_mut().filter(|span| span.rank == 2) {
        (span.start_ns, span.end_ns) = (span.start_ns + 7_777, span.end_ns + 7_777);
    }
    let found = stragglers(&separate);
    assert_eq!((found.matched, found.unmatched), (1, 0));
    let rank = &found.ranks[1];
    assert_eq!((rank.times_last, rank.share), (1, 1.0));
    assert_eq!((rank.late_median_us, rank.late_max_us, rank.caused_us), (3.0, 3.0, 8.0));
    assert_eq!((found.ranks[0].waited_us, found.ranks[2].waited_us, rank.waited_us), (5.0, 3.0, 0.0));
    let worst = &found.worst[0];
    assert_eq!((worst.last, worst.at_ns, worst.late_ns, worst.waited_ns), (1, 5_000, 3_000, 8_000));
    assert!(found.note.is_some(), "how clocks of separate files were tied together is said");
}

#[test]
fn collectives_of_a_kind_meet_in_order_within_their_step() {
    // Two all-reduces under other names on rank 1, and one of rank 0's without a partner in the next step.
    let mut spans = collective(1, &[(0, 0), (1, 400)]);
    spans.extend(collective(1, &[(0, 10_000)]));
    spans.extend(collective(5, &[(1, 10_700)]));
    spans.extend(collective(1, &[(0, 30_000)]).into_iter().map(|span| Span { step: 1, ..span }));
    let mut trace = imported(spans);
    let mut other = trace.operations[1].clone();
    other.name = "another all-reduce".into();
    trace.operations.push(other);
    let found = stragglers(&trace);
    assert_eq!((found.matched, found.unmatched), (2, 1));
    assert_eq!((found.ranks[1].times_last, found.ranks[1].late_max_us), (2, 0.7));
    assert_eq!((found.worst[0].name.as_str(), found.worst[0].nth), ("another all-reduce", 1));
    // in one step nothing says which of rank 0's three belongs to which of rank 1's two
    trace.spans.iter_mut().for_each(|span| span.step = 0);
    trace.spans.sort_by_key(|s| (s.rank, s.start_ns));
    assert_eq!(trace_report(&trace, &Selection::default()).stragglers, None);
}

#[test]
fn nobody_is_last_where_all_arrive_at_once_and_one_rank_has_no_peers() {
    let found = stragglers(&trace(collective(1, &[(0, 100), (1, 100)])));
    assert_eq!((found.matched, found.worst.len(), found.note), (1, 0, None));
    assert!(found.ranks.iter().all(|rank| rank.times_last == 0 && rank.caused_us == 0.0));
    let alone = trace(collective(1, &[(0, 100)]));
    assert_eq!(trace_report(&alone, &Selection::default()).stragglers, None);
}

#[test]
fn own_traces_match_operations_not_kinds() {
    // Rank 1 executes the two collectives of the plan in the other order: they still find each other.
    let mut spans = collective(1, &[(0, 0), (1, 6_000)]);
    spans.extend(collective(5, &[(0, 5_000), (1, 0)]));
    let mut trace = trace(spans);
    trace.operations.push(trace.operations[1].clone());
    trace.spans.sort_by_key(|s| (s.rank, s.start_ns));
    let found = stragglers(&trace);
    assert_eq!(found.matched, 2);
    assert_eq!((found.ranks[0].late_max_us, found.ranks[1].late_max_us), (5.0, 6.0));
}
