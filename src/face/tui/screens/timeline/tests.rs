//! What a user does on the timeline, and what comes of it.

mod kept;
mod lists;
mod pairs;
mod rows;

use std::collections::BTreeSet;
use std::sync::Arc;

use crossterm::event::{KeyCode, KeyModifiers, MouseButton, MouseEventKind};
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;

use super::layout;
use super::state::panel::TimelinePanel;
use super::state::select::Selected;
use super::state::window::TimeWindow;
use super::state::{TimelineView, TraceIndex, TraceLine};
use crate::face::tui::context::Opening;
use crate::face::tui::format::ns;
use crate::face::tui::regions::cut_left;
use crate::face::tui::screen::Tab;
use crate::face::tui::screen::{AnyScreen as _, FileKind, PersistentScreen as _, Screen};
use crate::face::tui::tests::fixtures::{Driver, imported, spec, trace};
use crate::face::tui::theme::Theme;
use crate::face::tui::update::{Effect, Message};
use crate::face::tui::widgets::ticks;
use plan::Phase;
use table::{Backend, P2p, Spec};
use trace::overlap::Selection;
use trace::{HostWork, Trace};

fn with(traces: Vec<TraceIndex>, (columns, rows): (u16, u16)) -> Driver {
    let mut driver = Driver::full(columns, rows);
    driver.show(traces);
    driver.state.cx.tab = Tab::Timeline;
    // what the page asks for is asked with the first message that comes
    let effects = driver.send(Message::Resize(columns, rows));
    driver.answer(effects);
    driver
}

#[test]
fn a_number_at_the_axis_stands_whole_or_its_mark_stands_alone() {
    let window = TimeWindow { from: 0, to: 159_999 };
    let mut alone = 0;
    for width in 40..160 {
        let row = Rect::new(0, 0, width, 1);
        let mut buf = Buffer::empty(row);
        super::draw::axis(&mut buf, row, window, 0, Theme::new(true));
        let drawn: String = (0..width).map(|x| buf[(x, 0)].symbol()).collect();
        let labels: Vec<&str> = drawn.split('╷').skip(1).map(str::trim_end).collect();
        let whole = ticks::labelled(window, 0, width.into()).into_iter();
        let whole: Vec<String> = whole.map(|(_, label)| label.unwrap_or_default()).collect();
        assert_eq!(labels, whole, "{drawn}");
        alone += labels.iter().filter(|label| label.is_empty()).count();
    }
    assert!(alone > 0, "some window has no room for the last number");
}

fn view(driver: &Driver) -> &TimelineView {
    driver.state.timeline.view.as_ref().expect("a trace is open")
}

/// Types a line at a prompt that a key opens.
fn type_line(driver: &mut Driver, key: &str, text: &str) {
    driver.taps(key);
    for _ in 0..80 {
        driver.tap(KeyCode::Backspace);
    }
    driver.taps(text);
    driver.tap(KeyCode::Enter);
}

fn mouse(driver: &mut Driver, kind: MouseEventKind, at: (u16, u16), modifiers: KeyModifiers) {
    let effects = driver.mouse_with(kind, at, modifiers);
    driver.answer(effects);
}

/// A simulated run of the tiny model.
fn simulated(change: impl Fn(&mut Spec)) -> TraceIndex {
    let mut spec = spec("standard", 2, P2p::On, Backend::Sim);
    spec.output_tokens = 6;
    change(&mut spec);
    let trace = run::testing::simulated(&spec);
    TraceIndex::new(format!("{} {}", spec.model, spec.label()), trace)
}

/// The run of [`simulated`] as if it had been measured, each operation a tenth longer.
fn measured() -> TraceIndex {
    let mut trace: Trace = simulated(|_| {}).whole().into_owned();
    let mut spec = spec("standard", 2, P2p::On, Backend::Cpu);
    spec.output_tokens = 6;
    trace.meta.provenance = spec.provenance();
    trace.meta.run = Some("20260102-0304-1".into());
    trace.meta.recorder = "own".into();
    trace.meta.spec = Some(spec);
    for span in &mut trace.spans {
        for time in [&mut span.ready_ns, &mut span.start_ns, &mut span.end_ns] {
            *time = *time * 11 / 10;
        }
        span.last_arrival_ns =
            if span.last_arrival_ns < 0 { -1 } else { span.last_arrival_ns * 11 / 10 };
    }
    TraceIndex::new("20260102-0304-1  tiny standard tp2".into(), trace)
}

#[test]
fn looks() {
    let mut driver = with(vec![trace()], (120, 40));
    driver.taps("(");
    driver.taps("v");
    driver.tap(KeyCode::Right);
    insta::assert_snapshot!("selection_120x40", driver.screen());
    let mut driver = with(vec![simulated(|_| {})], (120, 40));
    driver.taps("p");
    insta::assert_snapshot!("critical_path_120x40", driver.screen());
    driver.taps("..e");
    insta::assert_snapshot!("dependencies_120x40", driver.screen());
    let ladder = simulated(|spec| spec.architecture = "ladder".parse().expect("it is one"));
    let mut driver = with(vec![simulated(|_| {}), ladder], (120, 40));
    driver.taps("Cc");
    driver.tap(KeyCode::Enter);
    insta::assert_snapshot!("differences_120x40", driver.screen());
    let mut driver = with(vec![imported()], (120, 40));
    driver.taps("OW");
    insta::assert_snapshot!("operations_120x40", driver.screen());
    driver.taps("E");
    insta::assert_snapshot!("exposed_120x40", driver.screen());
    driver.taps("L");
    insta::assert_snapshot!("legend_120x40", driver.screen());
    let mut driver = with(vec![measured()], (120, 40));
    driver.taps("V");
    insta::assert_snapshot!("verdict_120x40", driver.screen());
    driver.taps("Vg");
    insta::assert_snapshot!("ghost_asked_120x40", driver.screen());
    driver.tap(KeyCode::Enter);
    insta::assert_snapshot!("ghost_120x40", driver.screen());
}

#[test]
fn the_overview_marks_the_window_and_a_click_moves_it() {
    let mut driver = with(vec![trace()], (120, 40));
    let row = |driver: &Driver| {
        let line = driver.screen().lines().nth(3).unwrap_or_default().to_string();
        (line.find('['), line.find(']'), line)
    };
    let (Some(from), Some(to), _) = row(&driver) else { panic!("{}", driver.screen()) };
    assert!(from < to, "{}", driver.screen());
    let areas = layout::open(&driver.state.timeline, driver.state.cx.body()).expect("a trace is open");
    let at = (areas.overview.right() - 3, areas.overview.y);
    let before = view(&driver).window;
    mouse(&mut driver, MouseEventKind::Down(MouseButton::Left), at, KeyModifiers::NONE);
    assert!(view(&driver).window.from > before.to, "the window is at the end");
    assert_eq!(view(&driver).window.width(), before.width());
    mouse(
        &mut driver,
        MouseEventKind::Drag(MouseButton::Left),
        (areas.overview.x + 20, 30),
        KeyModifiers::NONE,
    );
    assert!(view(&driver).window.from <= before.from, "dragged back to the beginning");
    driver.taps("u");
    assert_eq!(view(&driver).window, before, "one way back for the whole drag");
    driver.taps("f");
    let (from, to, line) = row(&driver);
    assert!(from.is_some_and(|from| from < 20) && to.is_some_and(|to| to > 110), "{line}");
    assert!(
        driver.screen().lines().nth(4).is_some_and(|line| line.contains('╱')),
        "what is exposed is hatched"
    );
}

#[test]
fn the_cursor_has_one_mark_beside_the_names_of_steps() {
    let mut driver = with(vec![trace()], (120, 40));
    for _ in 0..6 {
        let shown = driver.screen();
        assert_eq!(shown.matches('▼').count(), 1, "{shown}");
        let ruler = shown.lines().find(|line| line.contains('▼')).expect("it is on the ruler");
        assert!(ruler.contains("step "), "{shown}");
        driver.tap(KeyCode::Right);
    }
}

#[test]
fn a_typed_target_is_gone_to_and_undone() {
    let mut driver = with(vec![trace()], (120, 40));
    let first = view(&driver).window;
    let window = |driver: &Driver| {
        let zero = view(driver).pane().index.zero;
        let window = view(driver).window;
        (window.from - zero, window.to - zero)
    };
    // times are those of the ruler, here since step 0
    driver.shows(" since step 0   ╷0 us");
    type_line(&mut driver, "t", "50us..60us");
    assert_eq!(window(&driver), (96_000, 106_000));
    type_line(&mut driver, "t", "step 2");
    assert_eq!(window(&driver), (46_000 * 3, 46_000 * 3 + 45_000));
    type_line(&mut driver, "t", "2");
    assert_eq!(window(&driver), (46_000 * 3, 46_000 * 3 + 45_000));
    type_line(&mut driver, "t", "step 1..3");
    assert_eq!(window(&driver), (46_000 * 2, 46_000 * 4 + 45_000));
    type_line(&mut driver, "t", "prefill");
    assert_eq!(window(&driver), (0, 45_000));
    type_line(&mut driver, "t", "+-2us");
    assert_eq!(view(&driver).window.width(), 4_000);
    type_line(&mut driver, "t", "100us");
    assert_eq!(window(&driver), (98_000, 102_000));
    type_line(&mut driver, "t", "all");
    assert_eq!(view(&driver).window, view(&driver).bounds());
    for _ in 0..7 {
        driver.taps("u");
    }
    assert_eq!(view(&driver).window, first);
    driver.chord(KeyCode::Char('r'), KeyModifiers::CONTROL);
    assert_eq!(window(&driver), (96_000, 106_000));
    type_line(&mut driver, "t", "decode mlp/reduce");
    let at = view(&driver).span().map(|span| (span.step, span.operation));
    assert_eq!(at, Some((1, 5)), "the next one with that name: the cursor was at 100 us");
    assert!(view(&driver).window.width() < 25_000, "and it is zoomed to");
    for (text, why) in [
        ("step 99", "there is no step 99: the trace has 0 to 3"),
        ("9s..10s", "outside the trace, which runs from"),
        ("5us..1us", "the end is before the start"),
        ("A..B", "set both marks first"),
    ] {
        type_line(&mut driver, "t", text);
        let shown = driver.screen();
        assert!(shown.contains(why), "{text}: {shown}");
        driver.tap(KeyCode::Esc);
    }
}

#[test]
fn marks_measure_what_lies_between_them() {
    let mut driver = with(vec![trace()], (120, 40));
    let effects = driver.press(KeyCode::Char('y'));
    let [Effect::Copy(text)] = &effects[..] else { panic!("{effects:?}") };
    assert!(text.contains("took 10.000 us"), "without a selection, the operation's: {text}");
    driver.taps("(");
    driver.tap(KeyCode::Right);
    driver.taps(")");
    // A where the first operation of step 0 starts, B where its second ends: 30 us
    driver.shows("A to B 30.0 us: 0 ns to 30.000 us");
    let effects = driver.press(KeyCode::Char('y'));
    let [Effect::Copy(text)] = &effects[..] else { panic!("{effects:?}") };
    assert!(text.contains("[emulated-link]") && text.contains("compute 29.000 us"), "{text}");
    assert!(text.contains("1 step begins") && text.contains("4 operations"), "{text}");
    type_line(&mut driver, "t", "A..B");
    assert_eq!(view(&driver).window.width(), 30_000);
    let command = driver.press(KeyCode::Char('Y'));
    let [Effect::Copy(command)] = &command[..] else { panic!("{command:?}") };
    assert_eq!(command, "ladderscope overlap 20260102-0304-1 --from 46000ns --to 76000ns");
    driver.tap(KeyCode::Esc);
    driver.tap(KeyCode::Esc);
    driver.hides("A to B");
}

#[test]
fn a_selection_follows_the_cursor_and_its_numbers_are_those_of_analysis() {
    let mut driver = with(vec![trace()], (120, 40));
    driver.taps("v");
    for _ in 0..3 {
        driver.tap(KeyCode::Right);
    }
    driver.shows("selecting 76.0 us");
    let (measured, now) = view(&driver).measured(0).expect("it is counted");
    assert!(now, "the numbers are of what is selected");
    let index = &view(&driver).pane().index;
    let stretch = (measured.window.from - index.zero, measured.window.to - index.zero);
    let selection =
        Selection { from_ns: Some(stretch.0), to_ns: Some(stretch.1), ..Selection::default() };
    assert_eq!(measured.report, trace::overlap::overlap(&index.trace, &selection));
    driver.taps("v");
    driver.tap(KeyCode::Right);
    driver.shows("selection 76.0 us");
    driver.tap(KeyCode::Enter);
    assert_eq!(view(&driver).window.width(), 76_000, "Enter zooms to it");
    driver.tap(KeyCode::Esc);
    assert_eq!(view(&driver).selected, None);
    driver.chord(KeyCode::Right, KeyModifiers::SHIFT);
    assert!(view(&driver).selected.is_some_and(|selected| selected.extending));
}

#[test]
fn numbers_of_another_stretch_say_so() {
    let mut driver = with(vec![trace()], (120, 40));
    let mut first = driver.press(KeyCode::Char('v'));
    let Some(Effect::Ask(task)) = first.pop() else { panic!("it asks for numbers") };
    driver.shows("counting…");
    assert!(driver.press(KeyCode::Right).is_empty(), "one at a time");
    let more = driver.send(Message::Answered(task.run()));
    driver.shows("of the previous interval; counting…");
    assert_eq!(more.len(), 1, "the answer makes it ask for what is selected now");
    driver.answer(more);
    driver.hides("counting…");
}

#[test]
fn the_mouse_selects_an_interval_and_zooms_and_pans() {
    let mut driver = with(vec![trace()], (120, 40));
    let areas = layout::open(&driver.state.timeline, driver.state.cx.body()).expect("a trace is open");
    let (_, strip) = cut_left(areas.panes[0].lines, layout::LANE_LABEL);
    let at = |column: u16| (strip.x + column, strip.y + 1);
    let columns = usize::from(strip.width);
    let window = view(&driver).window;
    let down = MouseEventKind::Down(MouseButton::Left);
    mouse(&mut driver, down, at(10), KeyModifiers::NONE);
    mouse(&mut driver, MouseEventKind::Drag(MouseButton::Left), at(40), KeyModifiers::NONE);
    mouse(&mut driver, MouseEventKind::Up(MouseButton::Left), at(40), KeyModifiers::NONE);
    let expected = TimeWindow::new(window.time(10, columns), window.time(41, columns));
    assert_eq!(view(&driver).selected.map(|selected| selected.window), Some(expected));
    driver.shows("selection ");
    mouse(&mut driver, MouseEventKind::ScrollDown, at(10), KeyModifiers::SHIFT);
    mouse(&mut driver, MouseEventKind::ScrollRight, at(10), KeyModifiers::NONE);
    assert!(view(&driver).window.from > window.from && view(&driver).window.width() == window.width());
    // dragged out of the lanes, the selection ends at their edge
    mouse(&mut driver, down, at(10), KeyModifiers::NONE);
    mouse(&mut driver, MouseEventKind::Drag(MouseButton::Left), (0, 0), KeyModifiers::NONE);
    let from = view(&driver).selected.map(|selected: Selected| selected.window.from);
    assert_eq!(from, Some(view(&driver).window.from));
    driver.state.cx.now_ms = 10_000;
    mouse(&mut driver, down, at(5), KeyModifiers::NONE);
    assert!(view(&driver).selected.is_some(), "a click within it leaves it");
    mouse(&mut driver, down, at(5), KeyModifiers::NONE);
    let selected = view(&driver).selected.map(|selected| selected.window);
    assert_eq!(selected, Some(view(&driver).window), "the second zooms to it");
    driver.taps("u");
    driver.state.cx.now_ms = 20_000;
    mouse(&mut driver, down, at(30), KeyModifiers::NONE);
    assert_eq!(view(&driver).selected, None, "a click selects an operation, and no stretch");
    let before = view(&driver).window.width();
    mouse(&mut driver, down, at(30), KeyModifiers::NONE);
    assert!(view(&driver).window.width() < before, "a double click zooms to it");
}

#[test]
fn a_trace_opens_on_two_layers_in_the_middle_of_a_steady_step() {
    let mut view = TimelineView::new(Arc::new(simulated(|_| {})));
    let step = view.pane().step_key(view.time, true).expect("in a step");
    assert_eq!((step.phase, step.step), (Phase::Decode, 2), "of five");
    let trace = &view.pane().index.trace;
    let shown = |span: &&trace::Span| span.start_ns >= view.window.from && span.end_ns <= view.window.to;
    let layer = |span: &trace::Span| trace.operations[span.operation as usize].layer;
    let layers: BTreeSet<u32> = trace.spans.iter().filter(shown).filter_map(layer).collect();
    assert_eq!(layers.len(), 2, "{layers:?}");
    assert!(view.span().is_some_and(|span| span.lane == plan::Lane::Comm), "on an all-reduce");
    // nothing was done yet that could be undone
    let opened = view.window;
    assert!(!view.undo() && view.window == opened);
}

/// A run whose middle step ends in a stall.
#[test]
fn a_trace_opens_at_the_step_nearest_to_the_median_and_says_so() {
    const STALL: i64 = 10_000_000;
    let mut trace = simulated(|_| {}).whole().into_owned();
    let middle = trace.spans.iter().filter(|span| (span.phase, span.step) == (Phase::Decode, 2));
    let end = middle.map(|span| span.end_ns).max().expect("five steps");
    for span in &mut trace.spans {
        if span.start_ns >= end {
            (span.start_ns, span.end_ns) = (span.start_ns + STALL, span.end_ns + STALL);
        } else if span.end_ns == end {
            span.end_ns += STALL;
        }
    }
    let view = TimelineView::new(Arc::new(TraceIndex::new("stalled".into(), trace)));
    let step = view.pane().step_key(view.time, true).expect("in a step");
    assert_ne!((step.phase, step.step), (Phase::Decode, 2));
    let lines = super::info::content(&view, 200).1;
    let named = format!(", step {} (typical: nearest to the median)", step.step);
    assert!(lines[0].contains(&named), "{lines:?}");
}

#[test]
fn a_trace_of_a_prefill_opens_within_it() {
    let mut prefill = simulated(|_| {}).whole().into_owned();
    prefill.spans.retain(|span| span.phase == Phase::Prefill);
    let view = TimelineView::new(Arc::new(TraceIndex::new("prefill".into(), prefill)));
    let (shown, whole) = (view.window, view.bounds());
    assert!(whole.from <= shown.from && shown.to <= whole.to && shown.width() < whole.width());
    assert!(view.span().is_some_and(|span| shown.contains(span.start_ns)), "on work of the window");
}

#[test]
fn a_jump_from_a_list_is_undone_and_redone_at_once() {
    let ladder = simulated(|spec| spec.architecture = "ladder".parse().expect("it is one"));
    for traces in [vec![simulated(|_| {})], vec![simulated(|_| {}), ladder]] {
        let mut driver = with(traces, (120, 40));
        driver.taps("z");
        let place = |driver: &Driver| {
            let view = view(driver);
            (view.pane().window(view.window), view.span().copied())
        };
        let before = place(&driver);
        driver.taps("E");
        driver.tap(KeyCode::Enter);
        let jumped = place(&driver);
        assert_ne!(jumped.0, before.0, "to another operation than the one that fills the window");
        driver.taps("u");
        assert_eq!(place(&driver), before, "the cursor is back, too");
        driver.chord(KeyCode::Char('r'), KeyModifiers::CONTROL);
        assert_eq!(place(&driver).0, jumped.0);
        driver.taps("uuu");
        driver.shows("nothing to undo");
    }
}

#[test]
fn edges_are_followed_and_there_is_a_way_back() {
    let mut driver = with(vec![trace()], (120, 40));
    type_line(&mut driver, "t", "decode mlp/reduce");
    let reduce = view(&driver).span().copied().expect("on a span");
    assert_eq!((reduce.rank, reduce.operation), (0, 5));
    driver.taps("d");
    let peer = view(&driver).span().copied().expect("on a span");
    assert_eq!((peer.rank, peer.operation), (1, 5), "rank 1 arrived last");
    driver.taps("d");
    let up = view(&driver).span().copied().expect("on a span");
    assert_eq!((up.rank, up.operation), (1, 4), "which waited for its operand");
    driver.taps("D");
    assert_eq!(view(&driver).span().map(|s| (s.rank, s.operation)), Some((1, 5)));
    for _ in 0..3 {
        driver.tap(KeyCode::Backspace);
    }
    assert_eq!(view(&driver).span(), Some(&reduce));
    driver.tap(KeyCode::Backspace);
    driver.shows("no way back");
    driver.taps("e");
    let shown = driver.screen();
    assert!(shown.contains("for this peer to arrive") && shown.contains(" L0/mlp/up"), "{shown}");
    // the list follows the cursor
    let listed = |driver: &Driver| match &view(driver).panel {
        Some(TimelinePanel::Dependencies { span, .. }) => Some(*span),
        _ => None,
    };
    let before = listed(&driver);
    driver.taps("d");
    assert_eq!(listed(&driver), view(&driver).pane().span_index());
    assert_ne!(listed(&driver), before, "{}", driver.screen());
    driver.tap(KeyCode::Backspace);
    assert_eq!(listed(&driver), before);
    driver.tap(KeyCode::Down);
    driver.tap(KeyCode::Enter);
    assert_eq!(view(&driver).span().map(|s| (s.rank, s.operation)), Some((0, 4)), "the second row");
    assert!(view(&driver).panel.is_none());
}

#[test]
fn the_critical_path_is_lit_and_walked() {
    let mut driver = with(vec![trace()], (120, 40));
    driver.taps("p");
    let shown = driver.screen();
    assert!(shown.contains(" critical path ") && shown.contains("critical path of step 0"), "{shown}");
    assert!(shown.contains("matmul") && shown.contains("all_reduce"), "{shown}");
    let mut walked = Vec::new();
    driver.taps(".");
    while !driver.screen().contains("here the critical path of this step ends") && walked.len() < 20 {
        walked.extend(view(&driver).span().map(|s| (s.rank, s.operation)));
        driver.taps(".");
    }
    assert!(walked.len() >= 2 && walked.contains(&(1, 4)), "over the late rank: {walked:?}");
    driver.taps(",p");
    driver.hides("critical path of step");
    let mut driver = with(vec![imported()], (120, 40));
    driver.taps("p");
    driver.shows("imported traces do not record dependencies");
}

#[test]
fn what_is_shown_is_exported_and_the_command_shows_the_same() {
    let mut driver = with(vec![measured()], (120, 40));
    driver.taps("v");
    driver.tap(KeyCode::Right);
    let stretch = view(&driver).pane().window(view(&driver).stretch().expect("it is selected"));
    let dir = tempfile::tempdir().expect("a directory");
    for kind in FileKind::ALL {
        let path = dir.path().join(format!("timeline.{}", kind.extension()));
        let export = driver.state.timeline.export(kind, &driver.state.cx);
        export.expect("it can be had").expect("it is there").write(&path).expect("it is written");
        assert!(std::fs::metadata(&path).expect("it is there").len() > 100);
    }
    let csv = std::fs::read_to_string(dir.path().join("timeline.csv")).expect("it is there");
    let whole = view(&driver).pane().index.whole();
    let spans = &whole.spans;
    let touching = spans.iter().filter(|s| s.start_ns < stretch.to && s.end_ns > stretch.from).count();
    assert_eq!(csv.lines().count(), touching + 1);
    driver.tap(KeyCode::Esc);
    let command = driver.press(KeyCode::Char('Y'));
    let [Effect::Copy(command)] = &command[..] else { panic!("{command:?}") };
    assert!(command.starts_with("ladderscope timeline 20260102-0304-1 --from "), "{command}");
}

#[test]
fn exposed_communication_is_hatched_at_every_zoom() {
    let mut driver = with(vec![simulated(|_| {})], (120, 40));
    driver.taps("f");
    for zoom in 0..14 {
        let row = view(&driver).pane().index.rows.iter().position(|row| row.label == "comm");
        let line =
            view(&driver).pane().lines.iter().position(|line| Some(*line) == row.map(TraceLine::Row));
        let areas =
            layout::open(&driver.state.timeline, driver.state.cx.body()).expect("a trace is open");
        let (_, strip) = cut_left(areas.panes[0].lines, layout::LANE_LABEL);
        // lanes of spans are several rows high
        let line = line.expect("there is a comm lane");
        let above = view(&driver).pane().lines[..line].iter().map(|line| areas.panes[0].rows(*line));
        let y = strip.y + above.sum::<u16>();
        let buffer = driver.buffer();
        let (mut exposed, mut hatched) = (0, 0);
        let pane = view(&driver).pane();
        let edges = pane.window(view(&driver).window).edges(usize::from(strip.width));
        let covered = pane.index.ranks[0].exposed.between(edges);
        for (column, _) in covered.iter().enumerate().filter(|(_, ns)| **ns > 0) {
            let symbol = buffer[(strip.x + column as u16, y)].symbol();
            exposed += 1;
            hatched += usize::from(matches!(symbol, "╱" | "╲" | "▖" | "▚" | "▜" | "╌"));
            assert!(!matches!(symbol, "▓" | "▒" | "░"), "zoom {zoom}, column {column}: {symbol}");
        }
        // names stand within what is hatched, and leave some of it
        assert!(hatched * 2 >= exposed, "zoom {zoom}: {hatched} of {exposed}\n{}", driver.screen());
        driver.taps("+");
    }
}

#[test]
fn an_answer_about_a_trace_that_is_gone_is_dropped() {
    let mut driver = with(vec![trace()], (120, 40));
    let effects = driver.press(KeyCode::Char('v'));
    driver.show(vec![imported()]);
    driver.answer(effects);
    assert!(view(&driver).panes[0].measured.is_none());
}

#[test]
fn the_same_run_looks_the_same_collapsed_and_in_every_overview() {
    let ladder = || simulated(|spec| spec.architecture = "ladder".parse().expect("it is one"));
    let row = |driver: &Driver, at: usize| -> Vec<char> {
        let line = driver.screen().lines().nth(at).unwrap_or_default().to_owned();
        line.chars().skip(usize::from(layout::LANE_LABEL)).collect()
    };
    let mut one = with(vec![simulated(|_| {})], (120, 40));
    one.taps("f");
    let mut two = with(vec![simulated(|_| {}), ladder()], (120, 40));
    two.taps("f");
    // the frames of the window are of the window
    let bare = |row: Vec<char>| -> String { row[1..row.len() - 1].iter().collect() };
    let whole = bare(row(&one, 3));
    assert_eq!(bare(row(&two, 3)).replace(['[', ']'], ""), whole.replace(['[', ']'], ""));
    assert!(whole.contains('▚'), "about half of standard's time is exposed: {whole}");
    one.taps("C");
    let line = one.screen().lines().position(|l| l.contains("▸ r0")).expect("a collapsed rank");
    let (overview, rank) = (row(&one, 3), row(&one, line));
    let same = overview.iter().zip(&rank).filter(|(a, b)| a == b).count();
    assert!(same * 10 >= overview.len() * 9, "{overview:?}\n{rank:?}");
    assert!(!row(&one, 4).contains(&'▓'), "nor is the comm row solid");
}

#[test]
fn ranks_that_did_the_same_are_shown_once() {
    let mut driver = with(vec![simulated(|spec| spec.tp = 4)], (120, 40));
    let lines = |driver: &Driver| view(driver).pane().lines.len();
    driver.shows("▾ r0=r1..3 exp.");
    assert_eq!(lines(&driver), 3);
    type_line(&mut driver, "t", "decode mlp/all_reduce");
    let first = view(&driver).span().map(|span| (span.rank, span.start_ns)).expect("on a span");
    driver.taps("n");
    let next = view(&driver).span().map(|span| (span.rank, span.start_ns)).expect("on a span");
    assert!(next.0 == 0 && next.1 > first.1, "not the same one of another rank: {first:?} {next:?}");
    driver.taps("F");
    assert_eq!(lines(&driver), 12);
    driver.hides("= r1");
    driver.tap(KeyCode::End);
    assert_eq!(view(&driver).span().map(|span| span.rank), Some(3));
    let at = view(&driver).span().map(|span| span.start_ns);
    driver.taps("F");
    assert_eq!(view(&driver).span().map(|span| (span.rank, span.start_ns)), at.map(|at| (0, at)));
    let mut driver = with(vec![trace()], (120, 40));
    driver.hides("r0 =");
    driver.taps("F");
    driver.shows("no two ranks did the same");
}

#[test]
fn an_exposed_stretch_leads_to_its_own_step() {
    let mut driver = with(vec![trace()], (120, 40));
    driver.taps("f");
    // on the exposed line of rank 0, the third stretch: of step 1
    driver.tap(KeyCode::Up);
    driver.tap(KeyCode::Home);
    for _ in 0..2 {
        driver.tap(KeyCode::Right);
    }
    let shown = driver.screen();
    assert!(shown.contains("interval 3 of 5, step 1"), "{shown}");
    assert!(shown.contains("exposed: decode/L0/mlp/reduce: holds up L0/attn/qkv"), "{shown}");
    driver.taps("Z");
    let window = |driver: &Driver| view(driver).window.from - view(driver).pane().index.zero;
    assert_eq!((window(&driver), view(&driver).window.width()), (2 * 46_000, 45_000), "its own step");
    driver.shows("interval 3 of 5");
    driver.taps("Z");
    assert_eq!(window(&driver), 3 * 46_000, "again: the next one");
}
