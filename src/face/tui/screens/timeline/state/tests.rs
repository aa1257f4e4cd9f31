//! The index as a whole: against brute force, with odd input, and what it weighs.

use std::sync::Arc;

use proptest::prelude::*;

use super::{Matches, TimelineView, TraceIndex, TraceLine};
use crate::face::tui::tests::fixtures;
use plan::{Lane, Phase};
use trace::{Range, Span, Trace};

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
        ..Span::EMPTY
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
                prop_assert_eq!(rank.exposed.within((t, t + 1)) == 1, expected, "rank {} at {}", rank.rank, t);
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
        let matches = Matches::new(&index, "NCCL allreduce");
        prop_assert_eq!(matches.total, list.iter().filter(|s| s.lane == Lane::Comm).count());
        let (mut at, mut time, mut seen) = ((TraceLine::Rank(0), 0), -1, Vec::new());
        for _ in 0..matches.total {
            let Some(next) = matches.neighbour(&index, |_| false, at, time, forwards) else {
                prop_assert!(false, "there are matches");
                return Ok(());
            };
            at = next;
            time = index.interval(at.0, at.1).map_or(0, |i| i.0);
            seen.push(matches.ordinal(&index, |_| false, at).unwrap_or(0));
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
    let range =
        Range { rank: 7, on_device: false, thread: 0, depth: 3, name: 99, start_ns: 5, end_ns: 1 };
    for (spans, ranges) in [
        (Vec::new(), Vec::new()),
        (Vec::new(), vec![range]),
        (extremes.clone(), Vec::new()),
        (extremes, vec![range]),
    ] {
        let index = Arc::new(TraceIndex::new(String::new(), trace(spans, ranges)));
        let mut driver = fixtures::Driver::empty(100, 30);
        driver.state.cx.tab = crate::face::tui::screen::Tab::Timeline;
        let mut view = TimelineView::new(index.clone());
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

/// Something that a user does to a view.
#[derive(Clone, Debug)]
enum Do {
    Zoom(f64),
    ZoomAt(i64, f64),
    Pan(f64),
    Undo,
    Redo,
    Fit(bool),
    Move(isize),
    Line(isize),
    Select,
    Extend(isize),
    Times(i64, i64),
    ZoomStretch,
    Mark(usize),
    Unselect,
    Align,
    Shift(isize),
    Follow(bool),
    Back,
    Switch,
    Center(usize, usize),
    Go(String),
    Toggle,
}

fn deeds() -> impl Strategy<Value = Do> {
    let time = || prop_oneof![-2_000_000i64..3_000_000, any::<i64>()];
    let target = prop_oneof![
        (0u32..6, 0u32..6).prop_map(|(a, b)| format!("step {a}..{b}")),
        (0i64..400, 0i64..400).prop_map(|(a, b)| format!("{a}us..{b}us")),
        (0i64..400).prop_map(|a| format!("+-{a}us")),
        Just("A..B".to_string()),
        Just("prefill".to_string()),
        (0i64..400).prop_map(|a| format!("{a}us")),
    ];
    prop_oneof![
        (0.0..1e9).prop_map(Do::Zoom),
        (time(), 0.1..10.0).prop_map(|(at, factor)| Do::ZoomAt(at, factor)),
        (-3.0..3.0).prop_map(Do::Pan),
        Just(Do::Undo),
        Just(Do::Redo),
        any::<bool>().prop_map(Do::Fit),
        (-5isize..5).prop_map(Do::Move),
        (-5isize..5).prop_map(Do::Line),
        Just(Do::Select),
        (-3isize..3).prop_map(Do::Extend),
        (time(), time()).prop_map(|(a, b)| Do::Times(a.min(b), a.max(b))),
        Just(Do::ZoomStretch),
        (0usize..3).prop_map(Do::Mark),
        Just(Do::Unselect),
        Just(Do::Align),
        (-2isize..3).prop_map(Do::Shift),
        any::<bool>().prop_map(Do::Follow),
        Just(Do::Back),
        Just(Do::Switch),
        (0usize..300, 0usize..200).prop_map(|(column, columns)| Do::Center(column, columns)),
        target.prop_map(Do::Go),
        Just(Do::Toggle),
    ]
}

fn perform(view: &mut TimelineView, deed: &Do) {
    match deed {
        Do::Zoom(factor) => view.zoom(*factor),
        Do::ZoomAt(at, factor) => view.zoom_at(*at, *factor),
        Do::Pan(share) => view.pan(*share),
        Do::Undo => drop(view.undo()),
        Do::Redo => drop(view.redo()),
        Do::Fit(true) => view.fit_all(),
        Do::Fit(false) => view.fit_neighbour(true),
        Do::Move(by) => view.move_in_line(*by),
        Do::Line(by) => view.move_line(*by),
        Do::Select => view.toggle_selecting(),
        Do::Extend(by) => view.extend(*by),
        Do::Times(from, to) => view.select_times(*from, *to),
        Do::ZoomStretch => drop(view.zoom_stretch()),
        Do::Mark(which) => view.mark(*which),
        Do::Unselect => view.unselect(),
        Do::Align => drop(view.align_here()),
        Do::Shift(by) => drop(view.shift(*by)),
        Do::Follow(after) => drop(view.follow_link(*after)),
        Do::Back => drop(view.back()),
        Do::Switch => view.switch(),
        Do::Center(column, columns) => view.center_at(0, *column, *columns, true),
        Do::Go(text) => {
            if let Ok(target) = super::go::JumpTarget::parse(text) {
                drop(view.go(target));
            }
        }
        Do::Toggle => view.follows = !view.follows,
    }
}

proptest! {
    #[test]
    fn whatever_is_done_all_stays_within_the_traces(
        both in any::<bool>(), deeds in prop::collection::vec(deeds(), 0..40),
    ) {
        let mut view = TimelineView::new(Arc::new(fixtures::trace()));
        if both {
            view.add(Arc::new(fixtures::imported()));
        }
        for deed in &deeds {
            perform(&mut view, deed);
            view.settle(5);
            let (bounds, window) = (view.bounds(), view.window);
            prop_assert!(bounds.from <= window.from && window.from < window.to, "{deed:?}: {window:?}");
            prop_assert!(window.to <= bounds.to, "{deed:?}: {window:?} in {bounds:?}");
            for mark in view.marks.iter().flatten() {
                prop_assert!(bounds.from <= *mark && *mark <= bounds.to, "{deed:?}");
            }
            if let Some(stretch) = view.stretch() {
                prop_assert!(bounds.from <= stretch.from && stretch.to <= bounds.to, "{deed:?}");
                prop_assert!(stretch.from < stretch.to);
            }
        }
    }

    #[test]
    fn whatever_is_done_two_traces_show_the_same_step_and_say_so(
        deeds in prop::collection::vec(deeds(), 1..40),
    ) {
        let mut view = TimelineView::new(Arc::new(fixtures::trace()));
        view.add(Arc::new(fixtures::slower()));
        view.settle(5);
        for deed in &deeds {
            perform(&mut view, deed);
            view.settle(5);
            let words = view.aligned_words(false, "the other");
            prop_assert_eq!(words.contains("(fixed)"), !view.follows, "{:?}: {}", deed, words);
            if !view.follows {
                continue;
            }
            let (focus, other) = (view.focus, 1 - view.focus);
            let Some(here) = view.step_looked_at(focus) else { continue };
            if view.window.contains(view.time) {
                prop_assert_eq!(view.panes[focus].step(view.time, true), Some(here), "{:?}", deed);
            }
            let key = view.panes[focus].index.steps[here].key;
            let Some(there) = view.panes[other].step_like(key) else {
                prop_assert_eq!(words, format!("not aligned: the other has no {}", key.label()));
                continue;
            };
            let aligned = [focus, other].map(|pane| view.panes[pane].aligned);
            prop_assert_eq!(aligned, [Some(here), Some(there)], "{:?}: {}", deed, words);
            let (words, named) = match words.strip_suffix("; other steps drift") {
                Some(words) => (words, key.label()),
                None => (&*words, format!("{0} over {0}", key.label())),
            };
            prop_assert!(words.starts_with("aligned: ") && words.ends_with(&named), "{deed:?}: {words}");
            // the named place is at window time 0 in both
            for (pane, step) in [(focus, here), (other, there)] {
                let pane = &view.panes[pane];
                prop_assert_eq!(pane.index.place_in_step(step, view.anchor), Some(pane.origin), "{:?}", deed);
            }
            if let (Some(own), Some(span)) = (view.pane().span(), view.counterpart) {
                let theirs = &view.panes[other].index;
                prop_assert_eq!(view.pane().index.name(own), theirs.name(&theirs.trace.spans[span]));
            }
        }
    }

    #[test]
    fn undone_and_redone_is_what_it_was(deeds in prop::collection::vec(deeds(), 1..40)) {
        let mut view = TimelineView::new(Arc::new(fixtures::trace()));
        for deed in &deeds {
            perform(&mut view, deed);
        }
        // what was undone before is no part of this way
        let here = view.window;
        let mut way = vec![here];
        while view.undo() {
            way.push(view.window);
        }
        for window in way.iter().rev().skip(1) {
            prop_assert!(view.redo());
            prop_assert_eq!(view.window, *window);
        }
        prop_assert_eq!(view.window, here);
    }
}

#[test]
fn every_span_is_found_where_it_is_drawn() {
    for index in [fixtures::trace(), fixtures::imported()] {
        for span in 0..index.trace.spans.len() {
            let (line, place) = index.find(span).expect("it has a row");
            assert_eq!(index.span_index(line, place), Some(span));
        }
        assert_eq!(index.find(usize::MAX), None);
    }
}
