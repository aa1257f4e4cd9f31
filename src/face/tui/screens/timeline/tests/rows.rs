//! What stands in which row above and beneath the lanes: the header, marks, the selection's panel.

use super::*;

#[test]
fn marks_stand_in_a_row_of_their_own() {
    let mut driver = with(vec![trace()], (120, 40));
    let ticks = |driver: &Driver| driver.screen().lines().nth(5).unwrap_or_default().to_owned();
    let before = ticks(&driver);
    assert!(before.contains(" since step 0   ╷0 us"), "{before}");
    driver.taps("(");
    driver.tap(KeyCode::Right);
    driver.taps(")");
    assert_eq!(ticks(&driver), before, "the time axis keeps its labels");
    let marks = driver.screen().lines().nth(6).unwrap_or_default().to_owned();
    assert!(
        marks.trim().starts_with("A─") && marks.contains("─ 30.0 us ─") && marks.contains("─B"),
        "{marks}"
    );
}

#[test]
fn one_selected_operation_is_counted_in_the_singular() {
    let mut trace = trace().trace;
    trace.spans.retain(|span| span.rank == 0);
    let mut driver = with(vec![TraceIndex::new("one rank".into(), trace)], (120, 40));
    driver.taps("v");
    driver.shows(" 1 operation   within step 0");
}

#[test]
fn nothing_at_the_bottom_is_clipped_while_rows_are_empty() {
    for size in [(80, 24), (120, 40), (200, 60)] {
        let mut driver = with(vec![trace()], size);
        driver.taps("v");
        driver.tap(KeyCode::Right);
        let areas =
            layout::open(&driver.state.timeline, driver.state.cx.body()).expect("a trace is open");
        let lines = super::super::stretch::content(view(&driver));
        let needs = super::super::info::rows_of(&lines, areas.stretch.width);
        let empty = usize::from(areas.panes[0].lines.height) - view(&driver).pane().lines.len();
        let room = usize::from(areas.stretch.height) - 2;
        assert!(
            needs <= room || empty == 0,
            "{size:?}: {needs} lines in {room} rows, {empty} are empty"
        );
        driver.shows("modules: ");
        // a kernel's whole name beneath what else there is to say of it
        let mut trace = imported();
        trace.trace.operations[0].name =
            format!("void gemm<{}>(int)", "a::long_type_of_it, ".repeat(12));
        let driver = with(vec![TraceIndex::new("t".into(), trace.trace)], (size.0, 40));
        assert_eq!(driver.screen().matches("long_type_of_it").count(), 12, "{}", driver.screen());
    }
}

#[test]
fn the_header_calls_no_step_of_an_imported_trace_decoding() {
    let of = |index: TraceIndex| with(vec![index], (200, 40)).screen();
    let shown = of(imported());
    assert!(
        shown.contains(" % of communication hidden in step 0, ") && shown.contains(" % in all steps"),
        "{shown}"
    );
    assert!(of(trace()).contains(" % in decode"), "a run knows");
}

#[test]
fn a_step_with_prefill_and_decode_tokens_is_labelled_mixed() {
    let mut trace = imported().trace;
    trace.meta.range_names[1] = "step[MIXED bs=9 toks=520]".into();
    for span in trace.spans.iter_mut().filter(|span| span.step == 1) {
        span.phase = Phase::Prefill;
        let is_around = |range: &trace::Range| (range.rank, range.name) == (span.rank, 1);
        span.launched.range = trace.ranges.iter().position(is_around).expect("its range") as u32;
    }
    trace.spans.sort_by_key(|s| (s.sample, s.phase, s.step, s.rank, s.lane, s.start_ns));
    let mut driver = with(vec![TraceIndex::new("t".into(), trace)], (160, 40));
    driver.taps("f");
    let shown = driver.screen();
    assert!(shown.contains("├mixed (step 1)") && !shown.contains("prefill (step 1)"), "{shown}");
}

/// The numbers come first and stay, whatever the width.
#[test]
fn the_header_drops_what_matters_least_in_a_narrow_window() {
    for (width, has_window) in [(160, true), (80, true), (60, false)] {
        let driver = with(vec![simulated(|_| {})], (width, 24));
        let headline = view(&driver).panes[0].verdict.clone().expect("it is judged").headline.clone();
        let shown = driver.screen();
        let row = shown.lines().nth(2).expect("a header").trim_end().to_owned();
        let (first, _) = headline.split_once(" %").expect("a share");
        assert!(row.contains(first) && !row.contains('…'), "{width}: {headline}: {row}");
        assert!(row.contains(" % of comm"), "{width}: {row}");
        assert_eq!(shown.contains("window "), has_window, "{width}: {shown}");
    }
}

#[test]
fn titles_that_read_alike_begin_with_what_sets_their_runs_apart() {
    let pair = |titles: [&str; 2]| {
        let traces = titles.into_iter().zip([P2p::On, P2p::Off]).map(|(title, p2p)| {
            let mut trace = trace().trace.clone();
            trace.meta.spec.as_mut().expect("a run of our own").p2p = p2p;
            TraceIndex::new(title.into(), trace)
        });
        let driver = with(traces.collect(), (80, 24));
        driver.screen()
    };
    let shown = pair(["ladder llama-3-70b tp8", "ladder llama-3-70b tp8"]);
    assert!(shown.contains("p2p-off: ladder") && shown.contains("p2p-on: ladder"), "{shown}");
    let shown = pair(["ladder p2p-on", "ladder p2p-off"]);
    assert!(!shown.contains("p2p-off: ladder"), "they say it themselves: {shown}");
}

#[test]
fn the_step_under_the_cursor_is_named_however_narrow_it_is() {
    let mut driver = with(vec![simulated(|spec| spec.output_tokens = 200)], (80, 24));
    driver.taps("f");
    let pane = view(&driver).pane();
    let step = pane.step_key(view(&driver).time, true).expect("the cursor is in a step");
    let ruler = format!("▼{}", pane.index.step_label(step));
    driver.shows(&ruler);
}

#[test]
fn the_help_has_the_details_that_a_small_window_cuts() {
    let mut driver = with(vec![trace()], (60, 16));
    driver.hides("achieved");
    driver.taps("?");
    driver.shows("Notes not shown on this screen");
    driver.shows("achieved");
    let mut driver = with(vec![trace()], (200, 60));
    driver.shows("achieved");
    driver.taps("?");
    driver.hides("Notes not shown");
}

#[test]
fn lanes_that_do_not_fit_are_counted_on_the_ruler() {
    let mut driver = with(vec![imported()], (60, 16));
    let areas = layout::open(&driver.state.timeline, driver.state.cx.body()).expect("a trace is open");
    let hidden = view(&driver).pane().lines.len() - usize::from(areas.panes[0].lines.height);
    assert!(hidden > 1, "{}", driver.screen());
    driver.shows(&format!(" ↓ {hidden} lanes (1 rank)"));
    driver.tap(KeyCode::End);
    driver.shows(&format!(" ↑ {hidden} lanes"));
}

#[test]
fn the_line_of_a_rank_is_back_once_there_is_room() {
    let mut view = TimelineView::new(Arc::new(imported()));
    let pane = &mut view.panes[0];
    pane.line = 3;
    pane.scroll_to_cursor(1);
    assert_eq!(pane.first_line, 3);
    pane.scroll_to_cursor(5);
    assert_eq!((pane.lines[0], pane.first_line), (TraceLine::Rank(0), 0));
}

#[test]
fn a_stream_is_labelled_with_what_it_mostly_runs() {
    let driver = with(vec![imported()], (60, 16));
    driver.shows("stream 7 comp. ");
    driver.shows("stream 13 comm ");
    // a tall lane has one label, on its first row, and a bracket around its rows: two labels look like two lanes
    let driver = with(vec![imported()], (120, 40));
    let areas = layout::open(&driver.state.timeline, driver.state.cx.body()).expect("a trace is open");
    assert!(areas.panes[0].tall > 1, "{areas:?}");
    let shown = driver.screen();
    let tall = usize::from(areas.panes[0].tall);
    for label in [" stream 7 comp.╭", " stream 13 comm╭"] {
        let at = shown.lines().position(|line| line.starts_with(label)).expect(label);
        let last = shown.lines().nth(at + tall - 1).expect("its last row");
        let unlabelled = " ".repeat(usize::from(layout::LANE_LABEL) - 1);
        assert!(last.starts_with(&format!("{unlabelled}╰")), "{shown}");
    }
    driver.hides(" compute  ");
}

/// Short kernels, each launched long after the one before ended.
#[test]
fn a_launch_bound_trace_opens_with_the_ranges_of_the_host() {
    let mut trace = imported().trace;
    trace.spans.retain(|span| span.operation == 0);
    for span in &mut trace.spans {
        (span.ready_ns, span.end_ns) = (span.start_ns - 1_000, span.start_ns + 5_000);
    }
    let open = |size| with(vec![TraceIndex::new("eager".into(), trace.clone())], size);
    let driver = open((120, 40));
    let verdict = view(&driver).panes[0].verdict.clone().expect("it is judged");
    assert!(verdict.leads_with_host(), "{}", verdict.headline);
    driver.shows("▾ thread 0");
    driver.shows("├layer");
    assert!(view(&driver).span().is_some(), "the cursor stays on its kernel");
    // with rows that taller lanes would take
    open((80, 24)).shows("▾ thread 0");
    // the smallest window keeps its lanes
    open((60, 16)).hides("▾ thread 0");
    with(vec![imported()], (120, 40)).hides("▾ thread 0");
}

/// Kernels of 2 us, each launched long after the one before ended, with one longer gap in the middle.
#[test]
fn a_launch_bound_trace_opens_on_the_longest_wait_for_the_host() {
    const LATE: usize = 103;
    let mut trace = imported().trace;
    let kernel = *trace.spans.iter().find(|span| span.operation == 0).expect("a kernel");
    let kernels = (0..200).map(|at| {
        let start_ns = 1_000_000 + at as i64 * 10_000 + if at < LATE { 0 } else { 30_000 };
        trace::Span { ready_ns: start_ns - 1_000, start_ns, end_ns: start_ns + 2_000, ..kernel }
    });
    trace.spans = kernels.collect();
    let open = || TimelineView::new(Arc::new(TraceIndex::new("eager".into(), trace.clone())));
    let view = open();
    assert_eq!(view.span(), Some(&trace.spans[LATE]), "the work after the gap");
    let step = view.pane().index.steps[0].window;
    assert!(view.window.width() * 4 < step.width(), "25 of 200 kernels");
    assert!(view.window.contains(trace.spans[LATE - 1].end_ns), "the gap is shown");
    for (columns, rows) in [(200, 60), (120, 40), (80, 24), (60, 16)] {
        let mut driver = with(vec![TraceIndex::new("eager".into(), trace.clone())], (columns, rows));
        driver.state.timeline.view = Some(open());
        let effects = driver.send(Message::Resize(columns, rows));
        driver.answer(effects);
        driver.shows("before it, the GPU waited 37.0 us for the host");
    }
}

/// However few lanes fit, the cursor is on the longest exposed collective, and the details say so first.
#[test]
fn a_trace_opens_on_the_same_operation_at_every_size() {
    let open = || TimelineView::new(Arc::new(imported()));
    for (columns, rows) in [(200, 60), (120, 40), (80, 24), (60, 16)] {
        let mut driver = with(vec![imported()], (columns, rows));
        driver.state.timeline.view = Some(open());
        let effects = driver.send(Message::Resize(columns, rows));
        driver.answer(effects);
        let (opened, shown) = (open(), view(&driver));
        assert_eq!(
            (shown.window, shown.time, shown.span()),
            (opened.window, opened.time, opened.span())
        );
        driver.shows("longest exposed: all_reduce on stream 13");
    }
}

#[test]
fn a_long_name_of_a_stream_takes_the_room_of_its_indentation() {
    let mut trace = imported().trace;
    for stream in trace.meta.streams.iter_mut().filter(|stream| stream.id == 13) {
        stream.id = 565;
    }
    let driver = with(vec![TraceIndex::new("streams".into(), trace)], (120, 40));
    driver.shows(" stream 7 comp.");
    driver.shows("stream 565 comm");
    let mut trace = imported().trace;
    for stream in trace.meta.streams.iter_mut().filter(|stream| stream.id == 7) {
        stream.id = 567;
    }
    with(vec![TraceIndex::new("streams".into(), trace)], (120, 40)).shows(" s567 compute");
}

#[test]
fn the_launch_of_a_kernel_is_marked_in_its_thread() {
    let mut trace = imported().trace;
    let first = trace.ranges.iter().position(|range| range.rank == 0).expect("a range");
    trace.spans.iter_mut().for_each(|span| span.launched.range = first as u32);
    let mut driver = with(vec![TraceIndex::new("launches".into(), trace)], (120, 40));
    driver.tap(KeyCode::Right);
    driver.shows("↓ launched 4.00 us before");
    let shown = driver.screen();
    let thread = shown.lines().find(|line| line.contains("▸ thread 0")).expect("a thread");
    assert!(thread.contains('↓'), "{shown}");
    // at every zoom, the mark takes no letter of a name
    for _ in 0..8 {
        let shown = driver.screen();
        let lane = |line: &str| line.chars().skip(layout::LANE_LABEL.into()).collect::<String>();
        let marked = shown.lines().filter(|line| line.contains("thread 0")).map(lane);
        for lane in marked.filter(|lane| lane.contains('↓')) {
            let words = lane.split(['─', '├', '┤', '↓', ' ', '┊', '╷', '╫']);
            for word in words.map(|word| word.trim_end_matches('…')) {
                let names = ["ProfilerStep#0", "ProfilerStep#1", "ProfilerStep#2"];
                assert!(names.iter().any(|name| name.starts_with(word)), "{word}: {shown}");
            }
        }
        driver.taps("+");
    }
}

/// Two operators in the first step of rank 0, of which a profile had five.
fn with_operators() -> TraceIndex {
    let mut trace = imported().trace;
    let event = |depth, name, start_ns, end_ns| trace::Range {
        rank: 0,
        on_device: false,
        thread: 0,
        depth,
        name: HostWork::FIRST_NAME + name,
        start_ns,
        end_ns,
    };
    let host = HostWork {
        events: vec![event(0, 0, 1_000_000, 1_040_000), event(1, 1, 1_005_000, 1_030_000)],
        names: vec!["aten::linear".into(), "aten::narrow".into()],
        left_out: 3,
    };
    trace.meta.host = Arc::new(host);
    TraceIndex::new("eager".into(), trace)
}

#[test]
fn rows_of_the_host_without_events_in_the_window_are_hidden_and_counted() {
    let mut driver = with(vec![with_operators()], (120, 40));
    driver.tap(KeyCode::Down);
    driver.tap(KeyCode::Down);
    driver.tap(KeyCode::Enter);
    driver.hides("empty row");
    let lines = |driver: &Driver| view(driver).pane().lines.len();
    let before = lines(&driver);
    // the second step has a layer, and no operators
    driver.taps("]");
    assert_eq!(lines(&driver), before - 2, "{}", driver.screen());
    driver.shows(" 2 empty rows hidden");
    driver.taps("[");
    assert_eq!(lines(&driver), before, "{}", driver.screen());
}

#[test]
fn a_zoomed_window_unfolds_ranges_into_blank_rows_until_the_user_folds_them() {
    let mut driver = with(vec![with_operators()], (200, 60));
    driver.shows("▸ thread 0 +3");
    driver.taps("+++");
    driver.shows("▾ thread 0");
    driver.taps("---");
    driver.shows("▸ thread 0 +3");
    driver.taps("+++");
    driver.tap(KeyCode::Down);
    driver.tap(KeyCode::Down);
    driver.tap(KeyCode::Enter);
    driver.shows("▸ thread 0 +3");
}

#[test]
fn lanes_of_a_zoomed_trace_take_rows_that_would_be_blank() {
    let mut trace = trace().trace;
    trace.spans.retain(|span| span.rank == 0);
    let mut driver = with(vec![TraceIndex::new("one GPU".into(), trace)], (200, 60));
    let tall = |driver: &Driver| {
        let areas = layout::open(&driver.state.timeline, driver.state.cx.body());
        areas.expect("a trace is open").panes[0].tall
    };
    let before = tall(&driver);
    driver.taps("++");
    assert!(tall(&driver) > before, "{before}: {}", driver.screen());
}

#[test]
fn operators_unfold_below_the_ranges_of_their_thread() {
    let mut driver = with(vec![with_operators()], (120, 40));
    driver.hides("thread 0 ops");
    driver.tap(KeyCode::Down);
    driver.tap(KeyCode::Down);
    driver.shows("▸ thread 0 +3");
    driver.shows("3 more rows of ranges, operators and calls");
    driver.tap(KeyCode::Enter);
    driver.shows("▾ thread 0");
    driver.shows("├aten::linear");
    driver.tap(KeyCode::Down);
    driver.tap(KeyCode::Down);
    driver.shows("operator on rank 0, thread 0, depth 0");
    driver.shows("the first 2 of 5");
}

#[test]
fn a_search_goes_to_kernels_before_operators() {
    let mut trace = with_operators().trace;
    let host = HostWork {
        names: vec!["aten::gemm".into(), "aten::narrow".into()],
        ..(*trace.meta.host).clone()
    };
    trace.meta.host = Arc::new(host);
    let mut driver = with(vec![TraceIndex::new("eager".into(), trace)], (120, 40));
    // from the thread of the operator, too
    driver.tap(KeyCode::Down);
    driver.tap(KeyCode::Down);
    driver.taps("/gemm");
    driver.tap(KeyCode::Enter);
    assert!(view(&driver).span().is_some(), "{}", driver.screen());
    let mut operators = 0;
    for _ in 0..13 {
        driver.taps("n");
        if view(&driver).span().is_none() {
            driver.shows("13 of 13 (12 on the GPU)");
            operators += 1;
        }
    }
    assert_eq!(operators, 1, "after the last of 12 kernels");
}

#[test]
fn a_search_finds_operators_and_unfolds_them() {
    let mut driver = with(vec![with_operators()], (120, 40));
    driver.taps("/narrow");
    driver.tap(KeyCode::Enter);
    driver.shows("▾ thread 0");
    driver.shows("operator on rank 0, thread 0, depth 1");
}
