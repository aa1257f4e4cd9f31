//! What lies beneath the lanes: tables of operations and exposed stretches, the legend, what a search found, how a
//! kernel was launched; and what is exported of all that.

use super::*;

#[test]
fn operations_are_counted_sorted_narrowed_and_gone_to() {
    let mut driver = with(vec![imported()], (120, 40));
    driver.taps("O");
    let shown = driver.screen();
    assert!(shown.contains("the whole trace: where the time went per rank · 3 operations"), "{shown}");
    assert!(shown.contains(" 150 us  25.0 us  30.0 us "), "each time has the unit of its size: {shown}");
    // six executions of each kind a rank, and the name without its templates
    assert!(shown.contains("gemm_kernel<>"), "{shown}");
    assert!(shown.contains("total/rank▾"), "{shown}");
    // five eighths of the all-reduces' time are exposed
    assert!(shown.contains("▜ ncclDevKernel_AllReduce"), "{shown}");
    // shares of one time: computation and communication do not add up to more than it, but for what overlaps
    let Some(TimelinePanel::Operations(table)) = &view(&driver).panel else {
        panic!("the table is open")
    };
    let time_us = table.counted.as_ref().expect("it is counted").table.time_us;
    let share = |us: f64| format!("{:.1} %", 100.0 * us / time_us);
    let all = format!(
        "exposed 75.0 us ({}); of {}: compute 150 us ({}), comm 120 us ({}), memory 18.0 us ({})",
        share(75.0),
        super::super::lists::time_of(time_us),
        share(150.0),
        share(120.0),
        share(18.0)
    );
    assert!(shown.contains(&all) && shown.contains("% time"), "{all}: {shown}");
    let rows = |driver: &Driver| {
        let Some(TimelinePanel::Operations(table)) = &view(driver).panel else {
            panic!("the table is open")
        };
        table
            .order
            .iter()
            .map(|at| table.counted.as_ref().unwrap().table.rows[*at].clone())
            .collect::<Vec<_>>()
    };
    let whole = rows(&driver);
    assert!(whole.windows(2).all(|pair| pair[0].total_us >= pair[1].total_us));
    let direct = study::analysis::trace_report(&imported().trace, &Selection::default());
    assert_eq!(whole, direct.names, "what `overlap --by name` says");
    driver.taps("O");
    assert!(
        driver.screen().contains("step 0: where the time went per rank · 3 operations"),
        "{}",
        driver.screen()
    );
    assert!(rows(&driver).iter().zip(&whole).all(|(step, all)| step.count * 3 == all.count));
    driver.taps("]");
    driver.shows("step 1: where the time went per rank · ");
    driver.taps(">>I");
    driver.shows("max▴");
    let max: Vec<f64> = rows(&driver).iter().map(|row| row.max_us).collect();
    assert!(max.windows(2).all(|pair| pair[0] <= pair[1]), "{max:?}");
    driver.taps("/ncclx");
    driver.shows("no operation has these words in its name");
    driver.tap(KeyCode::Backspace);
    driver.shows("1 operation");
    driver.shows("of 100 us: comm ");
    driver.tap(KeyCode::Enter);
    driver.tap(KeyCode::Enter);
    let on = view(&driver).span().copied().expect("on a span");
    let longest = rows(&driver)[0].max_us;
    assert_eq!((on.step, (on.end_ns - on.start_ns) as f64 / 1e3), (1, longest));
    assert!(view(&driver).window.contains(view(&driver).time), "it is shown");
    driver.tap(KeyCode::Esc);
    driver.shows("3 operations");
    driver.tap(KeyCode::Esc);
    assert!(view(&driver).panel.is_none());
    driver.tap(KeyCode::Backspace);
    assert_ne!(view(&driver).span(), Some(&on), "there is a way back");
}

#[test]
fn sums_below_the_operations_keep_the_exposed_time_in_the_smallest_window() {
    let mut driver = with(vec![simulated(|_| {})], (60, 16));
    driver.taps("O");
    let shown = driver.screen();
    let sums = shown.lines().find(|line| line.contains(" us: compute ")).expect("the sums");
    assert!(sums.contains("exposed ") && !sums.contains('…'), "{shown}");
}

#[test]
fn a_table_is_of_the_selection_and_of_what_a_search_finds() {
    let mut driver = with(vec![trace()], (120, 40));
    driver.taps("v");
    driver.taps("/reduce");
    driver.tap(KeyCode::Enter);
    driver.taps("O");
    for (part, many) in [
        ("the whole trace", " · 6 op"),
        ("step 0", " · 3 op"),
        ("the selection", ""),
        ("what /reduce finds", " · 2 op"),
        ("the whole trace", ""),
    ] {
        let shown = driver.screen();
        assert!(
            shown.contains(&format!("{part}: where the time went per rank{many}")),
            "{part}: {shown}"
        );
        // a mean over the ranks, which a maximum may exceed
        assert!(shown.contains(" total/rank▾ "), "{part}: {shown}");
        driver.taps("O");
    }
}

#[test]
fn a_search_says_what_it_found_took_together() {
    let mut driver = with(vec![trace()], (120, 40));
    driver.taps("/decode reduce");
    // of each decode step 15 us on rank 0 and 13 us on rank 1; the prefill's are the other fifth
    let shown = driver.screen();
    assert!(shown.contains("8 matches · 56.0 us per rank, 80.0 % of comm, exposed 56.0 us"), "{shown}");
    driver.tap(KeyCode::Enter);
    driver.shows("1 of 8 · 56.0 us per rank");
    driver.tap(KeyCode::Esc);
    driver.hides("per rank, 80.0 %");
    let mut narrow = with(vec![trace()], (80, 24));
    narrow.taps("/decode reduce");
    let shown = narrow.screen();
    assert!(shown.contains("found: 56.0 us per rank, 80.0 % of comm, exposed 56.0 us"), "{shown}");
}

#[test]
fn a_name_is_shown_whole_and_copied() {
    let mut driver = with(vec![imported()], (80, 24));
    let copied = |driver: &mut Driver| {
        let effects = driver.press(KeyCode::Char('K'));
        let [Effect::Copy(name)] = &effects[..] else { panic!("{effects:?}") };
        name.clone()
    };
    let kernel = "void cutlass::gemm_kernel<128, 64>(int)";
    assert_eq!(copied(&mut driver), kernel);
    let told = driver.state.cx.notice.as_mut().expect("it is told");
    told.text = format!("copied: {}", "long_kernel_".repeat(20));
    driver.shows("copied: long_kernel_long");
    let first = |driver: &Driver| super::super::info::content(view(driver), 80).1.remove(0);
    driver.taps("W");
    assert_eq!(first(&driver), kernel, "the details begin with it");
    driver.shows(kernel);
    driver.taps("W");
    assert_ne!(first(&driver), kernel);
    driver.taps("O");
    driver.hides(kernel);
    driver.taps("/gemm");
    driver.tap(KeyCode::Enter);
    driver.taps("W");
    driver.shows(kernel);
    assert_eq!(copied(&mut driver), kernel);
}

/// Attention of full and of sliding-window layers, whose names differ in the middle.
#[test]
fn names_that_differ_in_the_middle_stay_apart() {
    let attention = |kind: &str| {
        format!(
            "fmhaSm100aKernel_QkvE4m3OBfloat16H64PagedKv{kind}CausalP16VarSeqQ128Kv128PersistentContext"
        )
    };
    for size in [(120, 40), (80, 24)] {
        let mut trace = imported().trace;
        trace.operations[0].name = attention("");
        trace.operations[1].name = attention("SlidingOrChunked");
        let mut driver = with(vec![TraceIndex::new("attention".into(), trace)], size);
        driver.taps("O");
        driver.shows("fmhaSm100aK");
        driver.shows("…SlidingOrChunked");
        driver.shows("…CausalP16");
    }
}

#[test]
fn the_longest_exposed_stretches_are_listed_and_gone_to() {
    let mut driver = with(vec![trace()], (120, 40));
    driver.taps("E");
    let table = |driver: &Driver| {
        let Some(TimelinePanel::Stretches(shown)) = &view(driver).panel else {
            panic!("the list is open")
        };
        shown.counted.as_ref().expect("it is counted").table.clone()
    };
    let decode = table(&driver);
    let [family] = &decode.families[..] else { panic!("one collective: {:?}", decode.families) };
    // totals of four steps, as `O` has them; who decodes is first
    let total = super::super::lists::time_of(decode.total_us);
    let number = total.split(' ').next().expect("a number");
    let title = format!("decode: exposed {:.1} %, {number} ", 100.0 * decode.total_us / decode.time_us);
    let shown = driver.screen();
    assert!(shown.contains(&title) && shown.contains(" per rank ─"), "{title}: {shown}");
    assert_eq!((decode.ranks, family.calls), (2, 8));
    driver.taps("E");
    driver.shows("prefill: exposed");
    driver.taps("E");
    driver.shows("the whole trace: exposed");
    driver.taps("EE");
    let row = |driver: &Driver, at: usize| {
        let shown = driver.screen();
        let head = shown.lines().position(|line| line.contains("exposed▾")).expect("a header");
        shown.lines().nth(head + 1 + at).unwrap_or_default().to_owned()
    };
    let first = row(&driver, 0);
    assert!(first.contains(" 4 ") && first.contains("L*/mlp/reduce"), "calls of a rank: {first}");
    assert!(first.contains(&format!(" {total} ")), "{total}: {first}");
    let place = |driver: &Driver| view(driver).span().copied().expect("on a span");
    // of 15 and 13 us, 2 and 0 us wait for rank 1
    driver.shows("wait/call transfer/call");
    assert!(first.contains(" 1.00 us       13.0 us "), "{first}");
    driver.shows("Enter: go to the longest of this row, then n: next; ");
    let lengths: Vec<f64> = table(&driver).families[0].longest.iter().map(|(_, us)| *us).collect();
    driver.tap(KeyCode::Enter);
    let longest = place(&driver);
    assert_eq!(longest.operation, 5, "an all-reduce");
    let at = trace::overlap::StepKey::from_span(&longest).label();
    let named = format!("{}, L0 {at}", super::super::lists::time_of(lengths[0]));
    assert!(first.contains(&named), "the row names where Enter goes, {named}: {first}");
    let most = decode.longest[0].length_us;
    assert_eq!(lengths[0], most, "no exposed interval is longer");
    let all = lengths.len();
    assert!(view(&driver).panel.is_none(), "the details of the call replace the list");
    // all 15 us are exposed; the parts come before the interval
    driver.shows("╲ waited 2.00 us for rank 1, ╱ transfer 13.0 us, exposed 100.0 %");
    driver.taps("E");
    driver.shows(&format!(" per rank · 1 of {all}: {named} ─"));
    driver.tap(KeyCode::Enter);
    assert_eq!(place(&driver), longest, "the same entry leads to the same call");
    driver.taps("n");
    driver.shows(&format!("2 of {all}: "));
    let next = place(&driver);
    assert!(next.operation == 5 && next.start_ns != longest.start_ns, "the next longest");
    assert!(lengths[1] <= lengths[0]);
    // with the list open, too
    driver.taps("EN");
    assert_eq!(place(&driver), longest);
    driver.shows(&format!("per rank · 1 of {all}: {named} ─"));
    driver.taps("N");
    driver.shows(&format!("{all} of {all}: "));
    driver.tap(KeyCode::Esc);
    assert!(view(&driver).panel.is_none());
}

#[test]
fn an_entry_of_exposed_communication_leads_to_its_longest_call_at_every_size() {
    for size in [(200, 60), (120, 40), (80, 24), (60, 16)] {
        let mut driver = with(vec![simulated(|_| {})], size);
        let mut calls = BTreeSet::new();
        for _ in 0..3 {
            driver.taps("E");
            driver.shows("Enter: go to the longest of all, then n: next");
            driver.tap(KeyCode::Enter);
            calls.insert(view(&driver).pane().span_index());
        }
        assert_eq!(calls.len(), 1, "{size:?}: {calls:?}");
    }
}

/// A run of eight ranks of which only the first one ran, on an emulated link: its collectives begin when it arrives.
#[test]
fn waiting_is_unknown_without_the_other_ranks() {
    let mut alone = trace().whole().into_owned();
    alone.spans.retain(|span| span.rank == 0);
    for span in alone.spans.iter_mut().filter(|span| span.lane == plan::Lane::Comm) {
        span.last_arrival_ns = span.start_ns;
    }
    alone.meta.ranks = 1;
    alone.meta.spec.iter_mut().for_each(|spec| spec.tp = 8);
    let mut driver = with(vec![TraceIndex::new("rank 0 of 8".into(), alone)], (120, 40));
    driver.taps("E");
    let shown = driver.screen();
    assert!(shown.contains("wait/call transfer/call") && !shown.contains(" 0 ns "), "{shown}");
    let row = shown.lines().find(|line| line.contains(", L0 step 0")).expect("its row");
    assert_eq!(row.matches(" - ").count(), 2, "neither is known: {shown}");
    driver.tap(KeyCode::Enter);
    let lines = super::super::info::content(view(&driver), 120).1;
    let may_wait = "; may include waiting for peers";
    assert!(lines.iter().any(|line| line.ends_with(may_wait)), "{lines:?}");
}

#[test]
fn the_first_enter_goes_to_the_longest_exposed_interval_of_all() {
    let mut driver = with(vec![simulated(|_| {})], (120, 40));
    driver.taps("E");
    let Some(TimelinePanel::Stretches(shown)) = &view(&driver).panel else { panic!("the list is open") };
    let lengths: Vec<f64> = shown.families().map(|family| family.longest[0].1).collect();
    let most = lengths.iter().copied().fold(0.0, f64::max);
    assert_eq!(lengths[shown.list.selected], most, "{lengths:?}");
    driver.tap(KeyCode::Enter);
    driver.taps("E");
    let Some(TimelinePanel::Stretches(shown)) = &view(&driver).panel else { panic!("the list is open") };
    assert_eq!(shown.gone, Some((shown.list.selected, 0)));
    driver.shows(&format!(": {}, ", super::super::lists::time_of(most)));
}

#[test]
fn a_jump_shows_the_whole_operation_with_room() {
    let mut driver = with(vec![trace()], (120, 40));
    let jump = |driver: &mut Driver| {
        driver.taps("E");
        driver.tap(KeyCode::Enter);
        let (shown, span) = (view(driver).window, *view(driver).span().expect("on a collective"));
        assert!(shown.from < span.start_ns && span.end_ns < shown.to, "{shown:?}: {span:?}");
        shown.width()
    };
    let before = view(&driver).window.width();
    assert_eq!(jump(&mut driver), before, "it fits");
    type_line(&mut driver, "t", "+-2us");
    assert!(jump(&mut driver) > 4_000, "no window of 4 us shows a collective of 15 us");
}

/// A stall of 201 us between two steps.
#[test]
fn the_longest_gap_is_shown_in_the_middle_with_its_length() {
    let mut stalled = trace().whole().into_owned();
    for span in stalled.spans.iter_mut().filter(|span| span.phase == Phase::Decode && span.step >= 2) {
        let times = [&mut span.ready_ns, &mut span.start_ns, &mut span.end_ns];
        times.into_iter().for_each(|time| *time += 200_000);
        if span.last_arrival_ns >= 0 {
            span.last_arrival_ns += 200_000;
        }
    }
    let before = |span: &&trace::Span| span.phase == Phase::Decode && span.step < 2;
    let from = stalled.spans.iter().filter(before).map(|span| span.end_ns).max().expect("two steps");
    let mut driver = with(vec![TraceIndex::new("stalled".into(), stalled)], (120, 40));
    driver.taps("V");
    driver.shows("go to the longest gap");
    driver.tap(KeyCode::Enter);
    assert!(view(&driver).panel.is_none());
    let shown = driver.screen();
    assert!(shown.contains("longest gap on rank ") && shown.contains(": 201 us"), "{shown}");
    let (shown, middle) = (view(&driver).window, from + 100_500);
    assert!(shown.from < from && from + 201_000 < shown.to, "{shown:?}");
    assert!((shown.middle() - middle).abs() * 10 < shown.width(), "{shown:?}: {middle}");
    let selected = view(&driver).selected.expect("the gap").window;
    assert!((selected.width() - 201_000).abs() < 1_000, "{selected:?}");
    driver.shows("idle between ");
    let behind = view(&driver).span().expect("on an operation");
    assert!((behind.start_ns - selected.to).abs() < 1_000, "the cursor is on the work behind the gap");
}

#[test]
fn a_selected_gap_says_which_launch_ended_it_and_what_the_host_did() {
    let mut trace = imported().whole().into_owned();
    // launched by the thread of the steps
    let first = trace.ranges.iter().position(|range| range.rank == 0).expect("a range");
    trace.spans.iter_mut().for_each(|span| span.launched.range = first as u32);
    let mut view = TimelineView::new(Arc::new(TraceIndex::new("a gap".into(), trace)));
    let index = Arc::clone(&view.pane().index);
    let next = index.computes_after(0, 1_081_000).expect("the next step");
    let (line, place) = index.find(next).expect("it is on a lane");
    view.panes[0].go_to(line, place);
    view.select_times(1_080_000, 1_100_000);
    let lines = super::super::stretch::gap(&view);
    let gemm = "void cutlass::gemm_kernel<>(int)";
    assert_eq!(
        lines,
        [
            "the GPU waited 16.0 us for the host".to_owned(),
            "its thread was in ProfilerStep#0 for 10.0 us".to_owned(),
            format!("rank 0 idle between ncclDevKernel_AllReduce_Sum_bf16_RING_LL and {gemm}"),
        ]
    );
    view.select_times(1_070_000, 1_100_000);
    assert!(super::super::stretch::gap(&view).is_empty(), "not idle");
}

#[test]
fn a_row_whose_longest_call_is_far_over_its_mean_names_the_step_of_it() {
    let mut trace = imported().whole().into_owned();
    let is_late = |span: &&mut trace::Span| span.step == 2 && span.lane == plan::Lane::Comm;
    for span in trace.spans.iter_mut().filter(is_late) {
        // the first collective of the step is hidden, and stays so
        span.end_ns += if span.end_ns - span.start_ns > 20_000 { 500_000 } else { 0 };
    }
    let mut driver = with(vec![TraceIndex::new("a slow call".into(), trace)], (120, 40));
    driver.taps("O");
    driver.shows(", max in step 2");
    // a table of that step says so itself
    driver.taps("]]O");
    driver.hides(", max in step 2");
    driver.taps("E");
    driver.shows("525 us, step 2, 5x mean");
}

#[test]
fn exposed_communication_of_a_late_host_holds_up_nothing() {
    for (width, words) in
        [(120, "nothing: launched later"), (200, "nothing: the next kernel is launched later")]
    {
        let mut driver = with(vec![imported()], (width, 60));
        driver.taps("E");
        driver.shows(words);
    }
}

#[test]
fn exposed_communication_is_sorted_by_any_column() {
    let mut driver = with(vec![simulated(|_| {})], (120, 40));
    driver.taps("E");
    let names = |driver: &Driver| -> Vec<String> {
        let Some(TimelinePanel::Stretches(shown)) = &view(driver).panel else {
            panic!("the list is open")
        };
        shown.families().map(|family| family.collective.clone()).collect()
    };
    driver.shows("exposed▾");
    driver.shows("s: sort; ");
    // not the duration of a call, which the operations have as `max`
    driver.shows(" max exp. ");
    // one call of a row may hold up another operation, which its details name
    driver.shows(" mostly holds up");
    driver.taps("S");
    driver.shows("calls▾");
    driver.taps("S");
    driver.shows("collective▾");
    let mut by_name = names(&driver);
    assert!(by_name.len() == 2 && by_name.is_sorted(), "{by_name:?}");
    driver.taps("I");
    driver.shows("collective▴");
    by_name.reverse();
    assert_eq!(names(&driver), by_name);
    driver.tap(KeyCode::Enter);
    let on = view(&driver).span().expect("on an operation");
    let module = by_name[0].rsplit('/').nth(1).expect("its module");
    assert!(view(&driver).pane().index.name(on).contains(module), "to the longest of the first row");
    driver.taps("s");
    driver.shows("no table is open that this sorts");
}

#[test]
fn the_list_of_exposed_communication_leaves_the_operations_and_the_lanes() {
    for size in [(80, 24), (120, 40), (200, 60)] {
        let mut driver = with(vec![simulated(|_| {})], size);
        let areas = |driver: &Driver| {
            layout::open(&driver.state.timeline, driver.state.cx.body()).expect("a trace is open")
        };
        let before = areas(&driver);
        driver.taps("E");
        let now = areas(&driver);
        assert!(now.panes[0].tall >= before.panes[0].tall, "{size:?}");
        assert!(now.docked.height > 0, "no blank rows in its place: {size:?}: {now:?}");
        driver.shows("operations of step 0 per rank");
        // two collectives, the header and the frame
        assert_eq!(now.panel.height, 5, "{size:?}");
    }
}

#[test]
fn the_docked_operations_are_of_the_window_while_it_shows_less_than_the_step() {
    let mut driver = with(vec![simulated(|_| {})], (120, 40));
    driver.shows("operations of step 0 per rank (O: all)");
    driver.taps("++");
    let window = view(&driver).window;
    let index = &view(&driver).pane().index;
    let since = |time: i64| Some(time - index.zero);
    let selection =
        Selection { from_ns: since(window.from), to_ns: since(window.to), ..Selection::default() };
    let all = study::analysis::operation_table(&index.trace, &selection, |_| true);
    let shown = &view(&driver).docked_table().counted.as_ref().expect("it is counted").table;
    assert_eq!((&shown.rows, &shown.longest), (&all.rows, &all.longest));
    assert_eq!(shown.time_us, window.width() as f64 / 1e3, "shares are of the window in the title");
    let of = if all.is_clipped { "clipped to" } else { "in" };
    driver.shows(&format!("operations {of} the window ({}) per rank", ns(window.width())));
    driver.taps("--");
    driver.shows("operations of step 0 per rank (O: all)");
}

#[test]
fn an_operation_longer_than_the_window_counts_with_its_time_in_it() {
    let mut driver = with(vec![trace()], (120, 40));
    // the reduces begin 30 and 32 us after the start of the step and end after 45 us
    type_line(&mut driver, "t", "35us..39us");
    driver.shows(&format!("operations clipped to the window ({}) per rank (O: all)", ns(4_000)));
    let rows = &view(&driver).docked_table().counted.as_ref().expect("it is counted").table.rows;
    let numbers: Vec<_> =
        rows.iter().map(|row| (row.count, row.total_us, row.mean_us, row.max_us)).collect();
    assert_eq!(numbers, [(2, 4.0, 4.0, 4.0)]);
}

#[test]
fn a_window_of_24_rows_shows_the_top_operations_where_it_would_be_empty() {
    let mut driver = with(vec![simulated(|_| {})], (80, 24));
    driver.shows("operations of step 0 per rank (O: all)");
    driver.shows("total/rank▾");
    driver.shows("decode/L*/attn/all_reduce");
    driver.taps("O");
    // the names keep their room, the mean goes
    driver.hides(" mean ");
    driver.shows(" decode/L*/mlp/all_reduce");
    driver.taps(">");
    driver.shows("mean▾");
}

#[test]
fn enter_before_a_list_is_counted_goes_to_its_first_row_when_it_comes() {
    for (key, name) in [('E', "mlp/reduce"), ('O', "mlp/up")] {
        let mut driver = with(vec![trace()], (120, 40));
        let unanswered = driver.press(KeyCode::Char(key));
        let before = view(&driver).span().copied();
        driver.enter();
        assert_eq!(view(&driver).span().copied(), before);
        driver.answer(unanswered);
        let on = view(&driver).span().expect("on an operation");
        assert!(view(&driver).pane().index.name(on).ends_with(name), "{}", driver.screen());
    }
}

#[test]
fn a_key_before_a_list_is_counted_does_not_skip_it() {
    let mut driver = with(vec![trace()], (120, 40));
    let unanswered = driver.press(KeyCode::Char('E'));
    driver.press(KeyCode::Char('E'));
    driver.shows("decode: exposed communication · computing…");
    driver.answer(unanswered);
    driver.taps("E");
    driver.shows("prefill: exposed ");
}

/// A list with rows of the prefill and of the decode steps.
#[test]
fn rows_of_both_phases_name_them() {
    let mut driver = with(vec![simulated(|_| {})], (120, 40));
    driver.taps("E");
    let shown = driver.screen();
    let (_, list) = shown.split_once("╭ decode: exposed ").expect("the list");
    assert!(!list.contains(" decode/L*/"), "{shown}");
    driver.taps("EE");
    driver.shows("the whole trace: exposed ");
    driver.shows(" prefill/L*/attn/all_reduce");
    driver.shows(" decode/L*/attn/all_reduce");
}

#[test]
fn the_list_of_exposed_communication_is_of_the_phase_in_view() {
    let mut driver = with(vec![trace()], (120, 40));
    driver.taps("E");
    driver.shows("decode: exposed ");
    driver.hides("the window shows");
    // an open list stays, and says that Enter leaves the phase
    type_line(&mut driver, "t", "prefill");
    driver.shows("decode: exposed ");
    driver.shows(" per rank, the window shows prefill ");
    driver.tap(KeyCode::Esc);
    driver.taps("E");
    driver.shows("prefill: exposed ");
    driver.hides("the window shows");
    // one that Enter left is not opened again in the other phase
    driver.tap(KeyCode::Enter);
    type_line(&mut driver, "t", "step 1");
    driver.taps("E");
    driver.shows("decode: exposed ");
}

#[test]
fn enter_before_the_next_part_is_counted_waits_for_it() {
    let mut driver = with(vec![trace()], (120, 40));
    driver.taps("E");
    let before = view(&driver).span().copied();
    let unanswered = driver.press(KeyCode::Char('E'));
    driver.enter();
    assert_eq!(view(&driver).span().copied(), before, "the rows are those of the decode steps");
    driver.answer(unanswered);
    let on = view(&driver).span().expect("on an operation");
    assert_eq!(
        trace::overlap::StepKey::from_span(on).phase,
        plan::Phase::Prefill,
        "{}",
        driver.screen()
    );
}

#[test]
fn a_search_is_typed_above_the_lanes_and_leaves_the_title_of_a_list() {
    let mut driver = with(vec![trace()], (120, 40));
    driver.taps("E/decode reduce");
    driver.shows("╭ decode: exposed ");
    driver.shows(" us per rank ─");
    let shown = driver.screen();
    let row = shown.lines().nth(2).unwrap_or_default();
    assert!(row.contains("search: decode reduce") && row.contains("8 matches"), "{shown}");
    assert!(shown.lines().last().is_some_and(|keys| keys.contains("Enter next match")), "{shown}");
    driver.tap(KeyCode::Enter);
    driver.hides("search: ");
    driver.hides("Enter next match");
}

#[test]
fn shares_of_operations_relate_to_the_same_time_in_an_idle_trace() {
    let mut trace = imported().trace;
    trace.spans.retain(|span| span.operation == 0);
    trace.spans.iter_mut().for_each(|span| span.end_ns = span.start_ns + 1_000);
    let mut driver = with(vec![TraceIndex::new("idle".into(), trace)], (120, 40));
    driver.taps("O");
    let Some(TimelinePanel::Operations(table)) = &view(&driver).panel else {
        panic!("the table is open")
    };
    let table = &table.counted.as_ref().expect("it is counted").table;
    let (busy_us, time_us) = (table.rows[0].total_us, table.time_us);
    assert!(2.0 * busy_us < time_us, "mostly idle");
    let shown = driver.screen();
    let share = format!(" {:.1} ", 100.0 * busy_us / time_us);
    assert!(shown.contains("% time") && shown.contains(&share), "{share}: {shown}");
}

#[test]
fn the_short_legend_drops_the_marks_of_kernels_together() {
    let view = TimelineView::new(Arc::new(imported()));
    let marks_of_kernels = |width: u16| {
        let (shown, _) = super::super::lists::short_legend(&view, width, " L: all ");
        let is_of_kernels = |words: &str| words.is_empty() || words == " kernels, by name ";
        shown.iter().filter(|(_, _, words)| is_of_kernels(words)).count()
    };
    let counts: BTreeSet<usize> = (30..120).map(marks_of_kernels).collect();
    assert_eq!(counts, BTreeSet::from([0, 3]));
}

#[test]
fn the_legend_has_every_mark_of_the_lanes() {
    let mut driver = with(vec![trace()], (200, 60));
    driver.taps("L");
    let shown = driver.screen();
    for (mark, _, words) in super::super::lists::LEGEND_MARKS {
        assert!(shown.contains(mark) && shown.contains(words), "{mark} {words}: {shown}");
    }
    driver.taps("L");
    assert!(view(&driver).panel.is_none());
    driver.taps("O/reduce");
    driver.tap(KeyCode::Enter);
    let table = driver.screen();
    driver.taps("L");
    assert!(matches!(view(&driver).panel, Some(TimelinePanel::Legend(..))));
    driver.taps("L");
    assert_eq!(driver.screen(), table, "the list that it covered is there again, narrowed as it was");
    driver.taps("L");
    driver.tap(KeyCode::Esc);
    assert_eq!(driver.screen(), table, "in the same way after Esc");
}

#[test]
fn the_legend_scrolls_in_the_smallest_window() {
    use super::super::lists::LEGEND_MARKS;
    let mut driver = with(vec![trace()], (60, 16));
    // in short, on the border: communication before compute
    driver.shows("▓▒ hidden comm ▚╱ exposed ░╲ waiting ▬ copies  L: all ─╯");
    driver.taps("L");
    let first = LEGEND_MARKS[0].2;
    let last = LEGEND_MARKS[LEGEND_MARKS.len() - 1].2;
    driver.shows(first);
    driver.shows(" more ");
    driver.shows("Esc close");
    driver.hides("verdict");
    driver.tap(KeyCode::PageDown);
    driver.hides(first);
    driver.tap(KeyCode::End);
    driver.shows(last);
    driver.tap(KeyCode::Home);
    driver.shows(first);
}

#[test]
fn exposed_communication_in_the_smallest_window_keeps_its_share_and_its_frame() {
    let mut driver = with(vec![trace()], (60, 16));
    driver.taps("E");
    let Some(TimelinePanel::Stretches(shown)) = &view(&driver).panel else { panic!("the list is open") };
    let table = shown.counted.as_ref().expect("it is counted").table.clone();
    driver.shows(&format!(" {:.1} %", 100.0 * table.total_us / table.time_us));
    for column in ["calls ", " exposed▾ ", " max exp. ", " collective"] {
        driver.shows(column);
    }
    driver.tap(KeyCode::Enter);
    driver.taps("E");
    let screen = driver.screen();
    let bottom = screen.lines().find(|line| line.contains("Enter: go to")).expect("the keys");
    assert!(bottom.starts_with('╰') && bottom.ends_with('╯'), "{screen}");
}

#[test]
fn a_kernel_says_how_it_was_launched_where_its_file_has_it() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("trace.json");
    let event = |keys: &str| format!("{{\"ph\": \"X\", {keys}}}");
    let events = [
        event(
            r#""cat": "cpu_op", "name": "aten::mm", "pid": 9, "tid": 5, "ts": 1, "dur": 9, "args": {"External id": 4}"#,
        ),
        event(
            r#""cat": "kernel", "name": "gemm", "pid": 0, "tid": 7, "ts": 20, "dur": 10, "args": {"stream": 7, "correlation": 11, "External id": 4, "grid": [8, 2, 1], "block": [128, 1, 1]}"#,
        ),
    ];
    std::fs::write(&path, format!("[{}]", events.join(","))).expect("it is written");
    let trace = trace::import::open(&path).expect("it is read");
    let mut driver = with(vec![TraceIndex::new("trace.json".into(), trace).with_files()], (120, 40));
    let shown = driver.screen();
    let told = "grid 8 x 2 x 1, block 128 x 1 x 1, launched by aten::mm, correlation 11";
    assert!(shown.contains(told), "{shown}");
    // a large file is looked into when that is asked for
    driver.state.timeline.view.as_mut().expect("it is open").panes[0].kernel = None;
    let mut large = TraceIndex::new("trace.json".into(), view(&driver).pane().index.trace.clone());
    large.files = Some(1 << 30);
    let mut driver = with(vec![large], (120, 40));
    let shown = driver.screen();
    assert!(shown.contains("i: look up grid, block and operator (1.07 GB to read)"), "{shown}");
    driver.taps("i");
    driver.shows(told);
    let mut driver = with(vec![super::trace()], (120, 40));
    driver.taps("i");
    driver.shows("launch details exist only in the files");
    let mut driver = with(vec![imported()], (120, 40));
    driver.taps("i");
    driver.shows("not imported from a file that is still there");
}

#[test]
fn two_traces_are_exported_together() {
    let ladder = simulated(|spec| spec.architecture = "ladder".parse().expect("it is one"));
    let mut driver = with(vec![simulated(|_| {}), ladder], (120, 40));
    let dir = tempfile::tempdir().expect("a directory");
    let read = |driver: &Driver, kind: FileKind, name: &str| {
        let path = dir.path().join(name);
        let export = driver.state.timeline.export(kind, &driver.state.cx);
        export.expect("it can be had").expect("it is there").write(&path).expect("it is written");
        std::fs::read_to_string(path).expect("it is text")
    };
    let figure = read(&driver, FileKind::Svg, "both.svg");
    assert!(figure.matches("in this window").count() >= 2, "the numbers of each");
    let csv = read(&driver, FileKind::Csv, "both.csv");
    assert!(csv.starts_with("trace,sample,"), "{}", csv.lines().next().unwrap_or_default());
    let of = |name: &str| csv.lines().filter(|line| line.starts_with(name)).count();
    let (upper, lower) = (of("tiny standard"), of("tiny ladder"));
    assert!(upper > 50 && lower > 50 && upper + lower + 1 == csv.lines().count(), "{upper} {lower}");
    driver.taps("X");
    assert!(read(&driver, FileKind::Csv, "one.csv").starts_with("sample,"));
}

#[test]
fn what_is_listed_is_exported_and_has_a_command() {
    let mut driver = with(vec![measured()], (120, 40));
    driver.taps("OO");
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("operations.csv");
    let export = driver.state.timeline.export(FileKind::Csv, &driver.state.cx);
    export.expect("it can be had").expect("it is there").write(&path).expect("it is written");
    let csv = std::fs::read_to_string(path).expect("it is there");
    assert!(
        csv.starts_with("name,lane,count,total_us,mean_us,max_us,share_pct,exposed_us,provenance"),
        "{csv}"
    );
    assert!(csv.lines().skip(1).all(|line| line.ends_with(",emulated-link")), "{csv}");
    let command = |driver: &mut Driver| {
        let effects = driver.press(KeyCode::Char('Y'));
        let [Effect::Copy(command)] = &effects[..] else { panic!("{effects:?}") };
        command.clone()
    };
    assert_eq!(command(&mut driver), "ladderscope overlap 20260102-0304-1 --by name --step 0");
    driver.taps("E");
    assert_eq!(command(&mut driver), "ladderscope overlap 20260102-0304-1 --by exposed --phase decode");
}

#[test]
fn a_next_match_without_a_search_names_the_key_of_one() {
    let mut driver = with(vec![trace()], (80, 24));
    driver.taps("n");
    driver.shows("no search: / starts one");
}

#[test]
fn a_list_is_of_the_trace_that_has_the_cursor() {
    let ladder = simulated(|spec| spec.architecture = "ladder".parse().expect("it is one"));
    let mut driver = with(vec![simulated(|_| {}), ladder], (120, 40));
    driver.taps("E");
    driver.shows("standard [simulated], decode: exposed 44.3 %");
    let rows = |driver: &Driver| {
        let Some(TimelinePanel::Stretches(shown)) = &view(driver).panel else {
            panic!("the list is open")
        };
        shown.families().cloned().collect::<Vec<_>>()
    };
    let upper = rows(&driver);
    assert_eq!(upper.len(), 2, "one row for all layers' reduces of a module: {upper:?}");
    driver.taps("J");
    driver.shows("ladder [simulated], decode: exposed");
    assert_ne!(rows(&driver), upper);
    driver.tap(KeyCode::Enter);
    assert_eq!(view(&driver).focus, 1);
    driver.taps("XO");
    driver.shows("the whole trace: where the time went per rank");
}

/// Load of the experts, in the details of one of their events and under the table of operations, as `overlap --step`
/// has it; lanes name dispatch and combine whatever their kernels are called.
#[test]
fn the_load_of_experts_is_shown() {
    let mut index = simulated(|spec| {
        spec.model = "gpt-oss-20b".into();
        (spec.tp, spec.dp, spec.ep, spec.batch, spec.output_tokens) = (1, 4, 4, 32, 4);
    });
    for operation in &mut index.trace.operations {
        if matches!(operation.kind.as_str(), "dispatch" | "combine") {
            operation.name = "ncclDevKernel_SendRecv(x)".into();
        }
    }
    let index = TraceIndex::new("a mixture".into(), index.trace);
    let experts = index.trace.operations.iter().position(|one| one.name == "decode/L5/moe/experts");
    let experts = experts.expect("a mixture") as u32;
    let event = |span: &trace::Span| span.operation == experts && span.rank == 2 && span.step == 1;
    let event = index.trace.spans.iter().position(event).expect("it ran");
    let (line, place) = index.find(event).expect("it is on a line");
    let selection = Selection { phase: Some(Phase::Decode), step: Some(1), ..Selection::default() };
    let report = study::analysis::trace_report(&index.trace, &selection);
    let wanted = report.experts.expect("experts");
    assert!(wanted.imbalance.is_some_and(|times| times > 1.0) && wanted.waited_us > Some(0.0));

    let mut driver = with(vec![index], (80, 24));
    let shown = driver.state.timeline.view.as_mut().expect("a trace is open");
    shown.panes[0].go_to(line, place);
    shown.time = shown.panes[0].interval().expect("it has one").0;
    driver.taps("++");
    let lines = super::super::info::content(view(&driver), 80).1;
    let load = format!("experts in step 1: {}", wanted.of_rank(2).expect("a rank of it"));
    assert!(lines.contains(&load), "{lines:?} lack {load}");
    driver.shows("experts in step 1: r2 ");
    driver.taps("OO");
    driver.shows(&format!("experts: {}", wanted.in_words().expect("several ranks")));
    driver.tap(KeyCode::Esc);
    driver.taps("/SendRecv");
    driver.tap(KeyCode::Enter);
    let mut named = false;
    for _ in 0..12 {
        driver.taps("+");
        let screen = driver.screen();
        let mut lanes = screen.lines().filter(|line| line.contains("comm  "));
        named |= lanes.any(|line| line.contains("dispatch") || line.contains("combine"));
    }
    assert!(named, "{}", driver.screen());
}

#[test]
fn a_list_of_no_exposed_communication_says_so() {
    let mut driver = with(vec![simulated(|spec| spec.tp = 1)], (120, 40));
    driver.taps("E");
    driver.shows("│ no communication is exposed ");
}

#[test]
fn the_card_of_a_collective_says_how_much_of_it_is_exposed() {
    let view = TimelineView::new(Arc::new(imported()));
    let span = view.span().copied().expect("on a span");
    assert_eq!(span.lane, plan::Lane::Comm, "opens on the exposed collective that the window shows");
    let (_, lines) = super::super::info::content(&view, 120);
    let mut prefill = imported().whole().into_owned();
    prefill.meta.import = Some(Default::default());
    prefill.spans.iter_mut().for_each(|span| span.step = trace::NO_STEP);
    let whole = TimelineView::new(Arc::new(TraceIndex::new("prefill".into(), prefill)));
    let on = whole.span().copied().expect("on a span");
    assert_eq!(
        (on.lane, whole.window),
        (plan::Lane::Comm, whole.bounds()),
        "of a trace without steps, too"
    );
    let exposed = |lines: &[String], why: &str| {
        let parts = "╲ waited 500 ns for rank 1, ╱ transfer 24.5 us, exposed 100.0 %";
        assert_eq!(lines[1], format!("{parts}: {why}"), "a small window shows two lines");
    };
    exposed(&lines, "void cutlass::gemm_kernel<>(int) was launched 16.0 us after it ended");
    // launched long before, it begins 20 us after the collective for an unknown reason
    let mut early = imported().whole().into_owned();
    early.spans.iter_mut().for_each(|span| span.ready_ns = span.start_ns - 60_000);
    let lines_of = |trace: Trace| {
        let view = TimelineView::new(Arc::new(TraceIndex::new("early".into(), trace)));
        super::super::info::content(&view, 120).1
    };
    let lines = lines_of(early.clone());
    exposed(&lines, "no compute on this rank runs beside it");
    // every kernel of the next step begins 1 us after the collective
    for span in early.spans.iter_mut().filter(|span| span.lane == plan::Lane::Compute) {
        (span.start_ns, span.end_ns) = (span.start_ns - 19_000, span.end_ns - 19_000);
    }
    let lines = lines_of(early);
    assert!(
        lines.iter().any(|line| line.ends_with(": holds up void cutlass::gemm_kernel<>(int)")),
        "{lines:?}"
    );
    let mut driver = with(vec![imported()], (120, 40));
    driver.hides(" attention ");
    driver.shows(" kernels, by name ");
    driver.taps("/nccl");
    driver.tap(KeyCode::Enter);
    driver.shows("░ waited 500 ns for rank 1, ▓ transfer 14.5 us, hidden: the rank computes meanwhile");
}

#[test]
fn a_transfer_of_two_ranks_has_its_waiting_part() {
    let mut trace = imported().whole().into_owned();
    (trace.operations[2].name, trace.operations[2].kind) =
        ("ncclDevKernel_SendRecv".into(), "send_recv".into());
    for span in trace.spans.iter_mut().filter(|span| (span.rank, span.lane) == (1, plan::Lane::Comm)) {
        // rank 1 is 500 ns behind anyway
        span.start_ns += 5_000;
    }
    let lines = |trace: &Trace| {
        let view = TimelineView::new(Arc::new(TraceIndex::new("a pipeline".into(), trace.clone())));
        assert_eq!(view.span().map(|span| span.rank), Some(0));
        super::super::info::content(&view, 120).1
    };
    let known = lines(&trace);
    // the marks are those of the lane
    let waited = "╲ waited 5.50 us for rank 1, ╱ transfer 19.5 us, exposed 100.0 %";
    assert!(known.iter().any(|line| line.starts_with(waited)), "{known:?}");
    let shown = with(vec![TraceIndex::new("a pipeline".into(), trace.clone())], (120, 40)).screen();
    let lane = shown.lines().find(|line| line.contains("stream 13")).expect("a lane");
    assert!(lane.contains("╲╲") && lane.contains("╱╱"), "{shown}");
    // without the other rank
    trace.spans.retain(|span| span.rank == 0);
    let unknown = lines(&trace);
    let may_wait = "; may include waiting for the peer";
    assert!(unknown.iter().any(|line| line.ends_with(may_wait)), "{unknown:?}");
}

#[test]
fn ranges_that_outlast_the_kernels_have_an_extent_of_their_own() {
    let driver = with(vec![imported()], (160, 40));
    let kernels = ns(imported().extent().width());
    driver.shows(&format!("of 296 us (first to last kernel {kernels})"));
    driver.shows("CPU+GPU 296 us");
}
