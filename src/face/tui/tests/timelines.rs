//! The timeline of imported traces: streams, ranges, search, two traces under one another, opening files.

use crossterm::event::KeyCode;
use ratatui::buffer::Cell;
use ratatui::style::Modifier;

use super::fixtures::{Driver, compared, imported, trace};
use crate::face::tui::context::Snapshot;
use crate::face::tui::screen::Tab;
use crate::face::tui::screens::timeline::state::{TimelineView, TraceLine};
use crate::face::tui::update::Message;

fn with(
    traces: Vec<crate::face::tui::screens::timeline::state::TraceIndex>,
    (columns, rows): (u16, u16),
) -> Driver {
    let mut driver = Driver::full(columns, rows);
    driver.state.cx.tab = Tab::Timeline;
    driver.show(traces);
    driver
}

fn view(driver: &Driver) -> &TimelineView {
    driver.state.timeline.view.as_ref().expect("a trace is open")
}

/// The text of a line of the screen that contains `part`.
fn line(driver: &Driver, part: &str) -> String {
    let shown = driver.screen();
    let line = shown.lines().find(|l| l.contains(part));
    line.unwrap_or_else(|| panic!("no line with {part}:\n{shown}")).to_string()
}

#[test]
fn looks() {
    let mut driver = with(vec![imported()], (120, 40));
    insta::assert_snapshot!("imported_120x40", driver.screen());
    driver.taps("f/allreduce");
    driver.enter();
    insta::assert_snapshot!("imported_search_120x40", driver.screen());
    let mut driver = with(vec![trace(), imported()], (120, 40));
    insta::assert_snapshot!("two_traces_120x40", driver.screen());
    driver.taps("fC");
    insta::assert_snapshot!("two_traces_collapsed_120x40", driver.screen());
}

#[test]
fn rows_follow_process_device_and_stream_with_ranges_below() {
    let index = imported();
    let lines = index.lines(|_| false);
    let first: Vec<TraceLine> = lines.iter().copied().filter(|l| index.rank_of(*l) == 0).collect();
    assert_eq!(
        first,
        [
            TraceLine::Rank(0),
            TraceLine::Row(0),
            TraceLine::Row(1),
            TraceLine::Ranges(0),
            TraceLine::Ranges(1)
        ],
        "streams over outer ranges, over inner ones"
    );
    assert_eq!(index.ranks[1].label, "r1 p4701 gpu1");
    assert_eq!((index.rows[0].label.as_str(), index.rows[1].label.as_str()), ("stream 7", "stream 13"));
    // 25 us of each step's second all-reduce, less the 6 us copy, which computes nothing
    assert_eq!(index.ranks[0].exposed.within((1_000_000, 1_100_000)), 25_000);
}

#[test]
fn enter_before_the_answer_goes_to_the_first_match_when_it_comes() {
    let mut driver = with(vec![imported()], (120, 40));
    driver.taps("/ncc");
    let unanswered = driver.press(KeyCode::Char('l'));
    driver.enter();
    driver.hides("1 of 12");
    driver.answer(unanswered);
    driver.shows("1 of 12");
    assert_eq!(view(&driver).span().map(|s| (s.rank, s.start_ns)), Some((0, 1_010_000)));
}

#[test]
fn a_search_counts_marks_and_goes_round() {
    let mut driver = with(vec![imported()], (120, 40));
    // cells of exposed transfer and waiting
    let underlined = |driver: &Driver| {
        let is_underlined = |cell: &&Cell| cell.style().add_modifier.contains(Modifier::UNDERLINED);
        let buffer = driver.buffer();
        let exposed = buffer.content.iter().filter(|cell| ["╱", "╲"].contains(&cell.symbol()));
        exposed.filter(is_underlined).count()
    };
    let before = underlined(&driver);
    driver.taps("/nccl Ring");
    driver.shows("12 matches");
    assert!(line(&driver, " steps").contains('◆') && !line(&driver, "stream 13").contains('◆'));
    assert!(underlined(&driver) > before, "the fill stays");
    driver.enter();
    driver.shows("1 of 12");
    let first = view(&driver).span().copied().expect("on a span");
    assert_eq!((first.rank, first.start_ns), (0, 1_010_000));
    driver.taps("n");
    let next = view(&driver).span().copied().expect("on a span");
    assert_eq!((next.rank, next.start_ns), (1, 1_010_500), "by time, over all ranks");
    driver.taps("NN");
    driver.shows("12 of 12");
    let window = view(&driver).window;
    assert!(window.contains(view(&driver).time), "what was found is shown");
    driver.press(KeyCode::Esc);
    assert!(!driver.screen().contains('◆') && !driver.screen().contains("of 12"));
    driver.taps("/layer");
    driver.shows("6 matches");
    driver.taps("x");
    driver.shows("0 matches");
    driver.enter();
    driver.taps("n");
    driver.shows("nothing was found");
}

#[test]
fn two_traces_are_aligned_at_a_step_and_share_window_and_cursor() {
    let mut driver = with(vec![trace(), imported()], (120, 40));
    driver.shows("aligned: step 0");
    let starts = |driver: &Driver| -> Vec<i64> {
        view(driver).panes.iter().map(|p| p.window(view(driver).window).from).collect()
    };
    assert_eq!(starts(&driver), [51_000, 1_000_000], "both begin with their first decode step");
    driver.taps("+");
    let [first, second] = &view(&driver).panes[..] else { panic!("two traces") };
    let window = view(&driver).window;
    assert_eq!(first.window(window).width(), second.window(window).width(), "the same scale");
    driver.taps("}");
    driver.shows("aligned: step 0 over step 1");
    assert_eq!(starts(&driver)[1] - starts(&driver)[0], 1_100_000 - 51_000);
    driver.taps("{{");
    driver.shows("no further step");
    driver.taps("J");
    assert_eq!(view(&driver).focus, 1);
    let time = view(&driver).time;
    driver.press(KeyCode::Right);
    assert!(view(&driver).time > time, "the cursor moved in the lower trace");
    driver.shows("emulated-link trace: no such operation in the aligned step");
    driver.taps("X");
    assert_eq!(view(&driver).panes.len(), 1);
    assert_eq!(view(&driver).pane().origin, 0);
    assert!(view(&driver).window.contains(view(&driver).time));
}

#[test]
fn the_cursor_walks_from_one_trace_into_the_other() {
    let mut driver = with(vec![trace(), imported()], (120, 40));
    for _ in 0..5 {
        driver.press(KeyCode::Down);
    }
    assert_eq!((view(&driver).focus, view(&driver).pane().line), (1, 0));
    driver.press(KeyCode::Up);
    assert_eq!((view(&driver).focus, view(&driver).pane().line), (0, 5));
}

#[test]
fn ranks_collapse_and_a_match_opens_them() {
    let mut driver = with(vec![imported()], (80, 24));
    driver.enter();
    assert_eq!(view(&driver).pane().current(), Some(TraceLine::Rank(0)), "the cursor stays on the rank");
    assert!(line(&driver, "▸ r0").contains('█'), "a collapsed rank shows what its rows did");
    assert!(driver.screen().matches("stream 7").count() == 1);
    driver.taps("C");
    driver.hides("stream");
    driver.taps("/gemm");
    driver.enter();
    driver.shows("stream 7");
    driver.taps("CC");
    driver.shows("▾ r1");
}

#[test]
fn many_rows_scroll_with_the_cursor() {
    let mut driver = with(vec![imported(), imported()], (80, 24));
    let above = |driver: &Driver| {
        let shown = driver.screen();
        let titles: Vec<usize> = shown
            .lines()
            .enumerate()
            .filter(|(_, l)| l.contains("[measured]"))
            .map(|(i, _)| i)
            .collect();
        let lines: Vec<&str> = shown.lines().collect();
        lines[titles[0] + 4..titles[1]].join("\n")
    };
    let first = above(&driver);
    assert!(first.contains("r0 p4700") && first.matches("stream 13").count() == 1, "{first}");
    driver.press(KeyCode::End);
    let shown = above(&driver);
    assert!(shown.contains("r1 p4701") && !shown.contains("r0 p4700"), "{shown}");
    assert!(shown.lines().last().is_some_and(|l| l.contains("▸ thread 0 +1")), "{shown}");
    driver.press(KeyCode::Home);
    assert!(above(&driver).contains("r0 p4700"));
}

#[test]
fn details_are_exact_to_the_nanosecond() {
    let mut driver = with(vec![imported()], (120, 40));
    driver.press(KeyCode::Right);
    let shown = driver.screen();
    assert!(
        shown.contains("took 20.000 us: 32.000 us to 52.000 us since step 0, launched 4.00 us before"),
        "{shown}"
    );
    assert!(shown.contains("kernel on stream 7, rank 0, step 0"), "{shown}");
    driver.press(KeyCode::Up);
    let shown = driver.screen();
    assert!(
        shown.contains("exposed communication of rank 0") && shown.contains("took 25.000 us"),
        "{shown}"
    );
}

#[test]
fn nested_ranges_open_below_the_streams() {
    for size in [(60, 16), (80, 24)] {
        let driver = with(vec![imported()], size);
        driver.shows("r0 p4700");
        driver.shows("stream 13");
    }
    let mut driver = with(vec![imported()], (80, 24));
    driver.shows("r1 p4701");
    driver.press(KeyCode::Down);
    driver.press(KeyCode::Down);
    driver.shows("▸ thread 0 +1");
    driver.shows("range on rank 0, thread 0, depth 0");
    driver.enter();
    driver.shows("▾ thread 0");
    driver.press(KeyCode::Down);
    driver.shows("range on rank 0, thread 0, depth 1");
    driver.enter();
    driver.shows("range on rank 0, thread 0, depth 0");
    // a search opens the rows that it finds
    driver.taps("/layer");
    driver.enter();
    driver.shows("range on rank 0, thread 0, depth 1");
}

#[test]
fn a_trace_beneath_keeps_the_one_above() {
    let mut driver = with(vec![trace()], (120, 40));
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("vllm.parquet");
    trace::write(&path, &imported().trace).expect("it is written");
    driver.keys("b");
    driver.taps(&path.to_string_lossy());
    let effects = driver.enter();
    driver.answer(effects);
    assert_eq!(view(&driver).panes.len(), 2);
    let shown = driver.screen();
    assert!(shown.contains("tiny standard tp2"), "{shown}");
    assert!(shown.contains("Kineto JSON  vllm.parquet"), "its kind and its file: {shown}");
    assert!(shown.contains("[emulated-link]") && shown.contains("[measured]"), "{shown}");
}

#[test]
fn a_pair_of_the_comparison_opens_both_its_runs() {
    let mut driver = Driver::full(80, 24);
    let stored = Snapshot::new(compared(), Vec::new());
    let effects = driver.send(Message::Runs(Ok(std::sync::Arc::new(stored))));
    driver.answer(effects);
    driver.keys("6");
    driver.keys("b");
    let opening = driver.state.timeline.loading.as_deref();
    assert_eq!(opening, Some("ladder-2 and standard-2"), "the run over its baseline");
}
