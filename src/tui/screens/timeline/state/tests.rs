//! The index as a whole: against brute force, with odd input, and what it weighs.

use std::sync::Arc;

use proptest::prelude::*;

use super::{Line, Matches, TraceIndex, View};
use crate::plan::{Lane, Phase};
use crate::trace::{Range, Span, Trace};
use crate::tui::tests::fixtures;

fn span(rank: u32, stream: u16, lane: Lane, start: i64, end: i64) -> Span {
    Span {
        sample: 0,
        phase: Phase::Decode,
        step: (start / 100).clamp(0, 1_000) as u32,
        rank,
        lane,
        stream,
        operation: if lane == Lane::Comm { 2 } else { 0 },
        ready_ns: start,
        start_ns: start,
        end_ns: end,
        last_arrival_ns: -1,
    }
}

/// A trace with the streams and operations of the imported fixture, and these spans.
fn trace(spans: Vec<Span>, ranges: Vec<Range>) -> Trace {
    let index = fixtures::imported();
    Trace { spans, ranges, ..index.trace }
}

fn spans() -> impl Strategy<Value = Vec<Span>> {
    let span = (0u32..2, 0u16..2, any::<bool>(), 0i64..500, 0i64..60).prop_map(
        |(rank, stream, comm, start, width)| {
            let lane = if comm { Lane::Comm } else { Lane::Compute };
            span(rank, rank as u16 * 2 + stream, lane, start, start + width)
        },
    );
    prop::collection::vec(span, 0..80)
}

proptest! {
    #[test]
    fn what_is_exposed_agrees_with_counting_nanoseconds(list in spans()) {
        let busy = |rank: u32, lane: Lane, t: i64| {
            list.iter().any(|s| s.rank == rank && s.lane == lane && s.start_ns <= t && t < s.end_ns)
        };
        let index = TraceIndex::new(String::new(), trace(list.clone(), Vec::new()));
        for rank in &index.ranks {
            for t in 0..600 {
                let expected = busy(rank.rank, Lane::Comm, t) && !busy(rank.rank, Lane::Compute, t);
                prop_assert_eq!(rank.exposed.contains(t), expected, "rank {} at {}", rank.rank, t);
            }
        }
        let rows: usize = index.rows.iter().map(|row| row.len()).sum();
        prop_assert_eq!(rows, list.len(), "every span has its row");
        for step in &index.steps {
            let own = list.iter().filter(|s| s.step == step.key.step);
            prop_assert_eq!(Some(step.window.from), own.map(|s| s.start_ns).min());
        }
    }

    #[test]
    fn every_match_is_visited_once_in_the_order_of_time(list in spans(), forwards in any::<bool>()) {
        let index = TraceIndex::new(String::new(), trace(list.clone(), Vec::new()));
        let matches = Matches::of(&index, "NCCL allreduce");
        prop_assert_eq!(matches.total, list.iter().filter(|s| s.lane == Lane::Comm).count());
        let (mut at, mut time, mut seen) = ((Line::Rank(0), 0), -1, Vec::new());
        for _ in 0..matches.total {
            let Some(next) = matches.neighbour(&index, at, time, forwards) else {
                prop_assert!(false, "there are matches");
                return Ok(());
            };
            at = next;
            time = index.interval(at.0, at.1).map_or(0, |i| i.0);
            seen.push(matches.ordinal(&index, at).unwrap_or(0));
        }
        let mut expected: Vec<usize> = (1..=matches.total).collect();
        if !forwards {
            expected.reverse();
        }
        prop_assert_eq!(seen, expected);
    }
}

#[test]
fn odd_traces_open_all_the_same() {
    let extremes = vec![
        span(0, 0, Lane::Compute, i64::MIN, i64::MIN + 10),
        span(0, 9, Lane::Comm, i64::MAX - 10, i64::MAX),
        span(u32::MAX, u16::MAX, Lane::Compute, 50, 20),
        span(0, 0, Lane::Compute, 0, 0),
    ];
    let range = Range { rank: 7, thread: 0, depth: 3, name: 99, start_ns: 5, end_ns: 1 };
    for (spans, ranges) in [
        (Vec::new(), Vec::new()),
        (Vec::new(), vec![range]),
        (extremes.clone(), Vec::new()),
        (extremes, vec![range]),
    ] {
        let index = Arc::new(TraceIndex::new(String::new(), trace(spans, ranges)));
        let mut driver = fixtures::Driver::empty(100, 30);
        driver.state.screen = crate::tui::action::Screen::Timeline;
        let mut view = View::new(index.clone());
        view.add(index);
        driver.state.timeline.view = Some(view);
        for key in "f+++--]][zjjkllhh/x".chars() {
            let effects = driver.keys(&key.to_string());
            driver.answer(effects);
            driver.screen();
        }
    }
}

#[test]
fn the_index_weighs_less_than_forty_bytes_a_span() {
    let list: Vec<Span> = (0..100_000i64)
        .map(|i| {
            let lane = if i % 4 == 3 { Lane::Comm } else { Lane::Compute };
            span(0, u16::from(lane == Lane::Comm), lane, i * 100, i * 100 + 60)
        })
        .collect();
    let count = list.len();
    let index = TraceIndex::new(String::new(), trace(list, Vec::new()));
    let steps = index.steps.len();
    assert!(index.bytes() < count * 40, "{} bytes, {steps} steps", index.bytes());
}
