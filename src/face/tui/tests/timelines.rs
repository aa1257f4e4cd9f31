//! The timeline of imported traces: streams, ranges, search, two traces under one another, opening files.

use crossterm::event::KeyCode;

use super::fixtures::{Driver, compared, imported, trace};
use crate::face::tui::message::Message;
use crate::face::tui::screens::timeline::state::{Line, View};
use crate::face::tui::snapshot::Snapshot;
use crate::face::tui::state::Tab;

fn with(
    traces: Vec<crate::face::tui::screens::timeline::state::TraceIndex>,
    (columns, rows): (u16, u16),
) -> Driver {
    let mut driver = Driver::full(columns, rows);
    driver.state.cx.tab = Tab::Timeline;
    driver.show(traces);
    driver
}

fn view(driver: &Driver) -> &View {
    driver.state.timeline.view.as_ref().expect("a trace is open")
}

/// Presses keys and answers what they ask for.
fn keys(driver: &mut Driver, text: &str) {
    for c in text.chars() {
        let effects = driver.press(KeyCode::Char(c));
        driver.answer(effects);
    }
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
    keys(&mut driver, "f/allreduce");
    driver.enter();
    insta::assert_snapshot!("imported_search_120x40", driver.screen());
    let mut driver = with(vec![trace(), imported()], (120, 40));
    insta::assert_snapshot!("two_traces_120x40", driver.screen());
    keys(&mut driver, "fC");
    insta::assert_snapshot!("two_traces_collapsed_120x40", driver.screen());
    let mut driver = with(vec![imported()], (80, 24));
    driver.keys(":open /tmp/trace.json.gz");
    insta::assert_snapshot!("palette_open", driver.screen());
}

#[test]
fn rows_follow_process_device_and_stream_with_ranges_above() {
    let index = imported();
    let lines = index.lines(|_| false);
    let first: Vec<Line> = lines.iter().copied().filter(|l| index.rank_of(*l) == 0).collect();
    assert_eq!(
        first,
        [Line::Rank(0), Line::Ranges(0), Line::Ranges(1), Line::Row(0), Line::Row(1)],
        "outer ranges over inner ones, over streams"
    );
    assert_eq!(index.ranks[1].label, "r1 p4701 gpu1");
    assert_eq!((index.rows[0].label.as_str(), index.rows[1].label.as_str()), ("stream 7", "stream 13"));
    // 25 us of each step's second all-reduce, less the 6 us copy, which computes nothing
    assert_eq!(index.ranks[0].exposed.between(1_000_000, 1_100_000), 25_000);
}

#[test]
fn classes_have_glyphs_of_their_own() {
    let driver = with(vec![imported()], (160, 50));
    let (kernels, comm) = (line(&driver, "stream 7"), line(&driver, "stream 13"));
    assert!(kernels.contains("gemm_kernel") && kernels.contains('▬'), "{kernels}");
    assert!(comm.contains('▓') && comm.contains('╱'), "hidden, then exposed: {comm}");
    assert!(driver.screen().contains("├layer 0─"));
}

#[test]
fn enter_before_the_answer_goes_to_the_first_match_when_it_comes() {
    let mut driver = with(vec![imported()], (120, 40));
    keys(&mut driver, "/ncc");
    let unanswered = driver.press(KeyCode::Char('l'));
    driver.enter();
    assert!(!driver.screen().contains("1 of 12"));
    driver.answer(unanswered);
    assert!(driver.screen().contains("1 of 12"), "{}", driver.screen());
    assert_eq!(view(&driver).span().map(|s| (s.rank, s.start_ns)), Some((0, 1_010_000)));
}

#[test]
fn a_search_counts_marks_and_goes_round() {
    let mut driver = with(vec![imported()], (120, 40));
    keys(&mut driver, "/nccl Ring");
    assert!(driver.screen().contains("12 matches"), "{}", driver.screen());
    assert!(line(&driver, "stream 13").contains('◆') && !line(&driver, "stream 7").contains('◆'));
    driver.enter();
    assert!(driver.screen().contains("1 of 12"));
    let first = view(&driver).span().copied().expect("on a span");
    assert_eq!((first.rank, first.start_ns), (0, 1_010_000));
    keys(&mut driver, "n");
    let next = view(&driver).span().copied().expect("on a span");
    assert_eq!((next.rank, next.start_ns), (1, 1_010_500), "by time, over all ranks");
    keys(&mut driver, "NN");
    assert!(driver.screen().contains("12 of 12"), "round and round: {}", driver.screen());
    let window = view(&driver).window;
    assert!(window.contains(view(&driver).time), "what was found is shown");
    driver.press(KeyCode::Esc);
    assert!(!driver.screen().contains('◆') && !driver.screen().contains("of 12"));
    keys(&mut driver, "/layer");
    assert!(driver.screen().contains("6 matches"), "ranges are found, too: {}", driver.screen());
    keys(&mut driver, "x");
    assert!(driver.screen().contains("0 matches"));
    driver.enter();
    keys(&mut driver, "n");
    assert!(driver.screen().contains("nothing was found"));
}

#[test]
fn an_answer_to_an_older_search_is_dropped() {
    let mut driver = with(vec![imported()], (80, 24));
    driver.keys("/");
    let old = driver.keys("gem");
    let new = driver.keys("x");
    driver.answer(new);
    driver.answer(old);
    assert!(driver.screen().contains("0 matches"), "{}", driver.screen());
}

#[test]
fn two_traces_are_aligned_at_a_step_and_share_window_and_cursor() {
    let mut driver = with(vec![trace(), imported()], (120, 40));
    assert!(driver.screen().contains("aligned: step 0 over step 0"));
    let starts = |driver: &Driver| -> Vec<i64> {
        view(driver).panes.iter().map(|p| p.window(view(driver).window).from).collect()
    };
    assert_eq!(starts(&driver), [51_000, 1_000_000], "both begin with their first decode step");
    keys(&mut driver, "+");
    let [first, second] = &view(&driver).panes[..] else { panic!("two traces") };
    let window = view(&driver).window;
    assert_eq!(first.window(window).width(), second.window(window).width(), "the same scale");
    keys(&mut driver, "}");
    assert!(driver.screen().contains("aligned: step 0 over step 1"));
    assert_eq!(starts(&driver)[1] - starts(&driver)[0], 1_100_000 - 51_000);
    keys(&mut driver, "{{");
    assert!(driver.screen().contains("no further step"));
    keys(&mut driver, "w");
    assert_eq!(view(&driver).focus, 1);
    let time = view(&driver).time;
    driver.press(KeyCode::Right);
    assert!(view(&driver).time > time, "the cursor moved in the lower trace");
    assert!(driver.screen().contains("above: decode/L0/"), "{}", driver.screen());
    keys(&mut driver, "X");
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
    assert_eq!(view(&driver).pane().current(), Some(Line::Rank(0)), "the cursor stays on the rank");
    assert!(line(&driver, "▸ r0").contains('█'), "a collapsed rank shows what its rows did");
    assert!(driver.screen().matches("stream 7").count() == 1);
    keys(&mut driver, "C");
    assert!(!driver.screen().contains("stream"));
    keys(&mut driver, "/gemm");
    driver.enter();
    assert!(driver.screen().contains("stream 7"));
    keys(&mut driver, "CC");
    assert!(driver.screen().contains("▾ r1"));
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
    assert!(above(&driver).contains("r0 p4700") && !above(&driver).contains("r1 p4701"));
    driver.press(KeyCode::End);
    let shown = above(&driver);
    assert!(shown.contains("r1 p4701") && !shown.contains("r0 p4700"), "{shown}");
    assert!(shown.lines().last().is_some_and(|l| l.contains("stream 13")), "{shown}");
    driver.press(KeyCode::Home);
    assert!(above(&driver).contains("r0 p4700"));
}

#[test]
fn details_are_exact_to_the_nanosecond() {
    let mut driver = with(vec![imported()], (120, 40));
    driver.press(KeyCode::Right);
    let shown = driver.screen();
    assert!(
        shown.contains("took 20.000 us: 0.000032000 to 0.000052000 s, ready 4.00 us before"),
        "{shown}"
    );
    assert!(shown.contains("kernel on compute, rank 0, stream 7, step 0"), "{shown}");
    driver.press(KeyCode::Up);
    let shown = driver.screen();
    assert!(shown.contains("range on rank 0, thread 0, depth 1"), "{shown}");
    driver.press(KeyCode::Up);
    driver.press(KeyCode::Up);
    let shown = driver.screen();
    assert!(
        shown.contains("exposed communication of rank 0") && shown.contains("took 25.000 us"),
        "{shown}"
    );
}

#[test]
fn a_path_opens_from_the_palette_and_when_it_is_dropped() {
    let mut driver = Driver::full(80, 24);
    driver.keys(":open /tmp/a.parquet");
    driver.enter();
    assert!(driver.screen().contains("opening /tmp/a.parquet…"));
    driver.send(Message::Paste("'/data/b c.json.gz'\n".into()));
    driver.enter();
    assert!(driver.screen().contains("opening /data/b c.json.gz…"), "dropped on the window");
    driver.send(Message::Paste("just words".into()));
    assert!(driver.state.cx.overlays.is_empty());
}

#[test]
fn a_trace_beneath_keeps_the_one_above() {
    let mut driver = with(vec![trace()], (120, 40));
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("vllm.parquet");
    trace::write(&path, &imported().trace).expect("it is written");
    driver.keys("b");
    driver.keys(&path.to_string_lossy());
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
