//! Two traces under one another, and a trace over what is predicted of it.

use super::*;
use crate::face::tui::context::Snapshot;
use crate::face::tui::tests::fixtures::record;

#[test]
fn differences_are_listed_and_gone_to_in_both_traces() {
    let ladder = simulated(|spec| spec.architecture = "ladder".parse().expect("it is one"));
    let mut driver = with(vec![simulated(|_| {}), ladder], (200, 60));
    driver.taps("c");
    let report = view(&driver).differences.clone().expect("they are compared");
    let family = report.families[0].clone();
    let name = |name: &str| name.replace("decode/", "");
    assert_eq!(family.groups.len(), 4, "what each of the four layers does is one row");
    let named = |driver: &Driver, of: &str| driver.screen().contains(&format!(" {}", name(of)));
    let largest = report.groups[family.groups[0]].clone();
    assert!(named(&driver, &family.sum.name) && !named(&driver, &largest.name), "{}", driver.screen());
    driver.tap(KeyCode::Enter);
    assert!(named(&driver, &largest.name), "opened: {}", driver.screen());
    driver.tap(KeyCode::Enter);
    assert!(!named(&driver, &largest.name), "closed again: {}", driver.screen());
    driver.tap(KeyCode::Enter);
    driver.tap(KeyCode::Down);
    driver.tap(KeyCode::Enter);
    let [above, below] = &view(&driver).panes[..] else { panic!("two traces") };
    let at =
        |pane: &super::super::state::Pane| pane.span().map(|span| pane.index.name(span).to_string());
    assert_eq!(at(above), largest.a.map(|share| share.names[0].clone()));
    assert_eq!(at(below), largest.b.map(|share| share.names[0].clone()));
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("differences.csv");
    let export = driver.state.timeline.export(FileKind::Csv, &driver.state.cx);
    export.expect("it can be had").expect("it is there").write(&path).expect("it is written");
    let csv = std::fs::read_to_string(path).expect("it is there");
    assert_eq!(csv.lines().count(), report.groups.len() + 1);
    assert!(csv.lines().skip(1).all(|line| line.matches("simulated").count() == 2), "{csv}");
    driver.taps("c");
    let exposed = &report.families[report.by_exposed[0]].sum;
    assert!(exposed.name.contains("all_reduce") && exposed.delta_exposed_us() < -5.0, "ladder hides it");
    let shown = driver.screen();
    let row = shown.lines().position(|line| line.contains("ladder exp ")).expect("a header") + 1;
    assert!(shown.lines().nth(row).is_some_and(|line| line.contains(&name(&exposed.name))), "{shown}");
    // the rows add up to the title, which the help has in full
    let sum: f64 = report.families.iter().map(|family| family.sum.delta_us).sum();
    let rest = report.lengths_us.1 - report.lengths_us.0 - sum;
    let row = |name: &str| shown.lines().find(|line| line.contains(name)).expect("a row").to_owned();
    let signed = |us: f64| format!("{us:.1}");
    assert!(row("idle minus overlap").contains(&signed(rest)), "{rest}: {shown}");
    assert!(row("whole step").contains("-44.6") && row("whole step").contains("-54.2"), "{shown}");
    let notes = driver.state.timeline.notes(Rect::new(0, 0, 60, 16), &driver.state.cx);
    assert!(notes.iter().any(|note| note.is_folded && note.text.contains("standard step 0 144 us")));
    driver.tap(KeyCode::Esc);
    assert!(view(&driver).panel.is_none());
    driver.taps("Xc");
    driver.shows("only one trace is open: b opens another one below it");
}

#[test]
fn differences_keep_the_names_in_the_smallest_window() {
    let ladder = simulated(|spec| spec.architecture = "ladder".parse().expect("it is one"));
    let mut driver = with(vec![simulated(|_| {}), ladder], (60, 16));
    driver.taps("c");
    driver.shows("standard exp ladder exp change exp   operation");
    driver.shows("/all_reduce");
    driver.taps("s");
    driver.shows("change us   operation");
}

#[test]
fn what_if_starts_from_the_standard_trace_else_from_the_run() {
    let ladder = || simulated(|spec| spec.architecture = "ladder".parse().expect("it is one"));
    let mut pair = with(vec![ladder(), simulated(|_| {})], (120, 40));
    pair.shows(" ladder ");
    pair.shows(" standard ");
    pair.taps("w");
    assert_eq!(pair.state.cx.tab, Tab::WhatIf);
    assert!(pair.state.whatif.traced.is_some(), "{}", pair.screen());
    // at the architecture under the cursor, with the times of the standard trace
    assert_eq!(pair.state.whatif.variant.cell.architecture.to_string(), "ladder");
    assert_eq!(pair.state.whatif.base.cell.architecture.to_string(), "standard");
    pair.shows("at ladder, as on the timeline");
}

#[test]
fn every_jump_in_a_pair_shows_the_same_step_of_both() {
    let ladder = simulated(|spec| spec.architecture = "ladder".parse().expect("it is one"));
    let mut driver = with(vec![simulated(|_| {}), ladder], (120, 40));
    // start of a step on the screen, in window time
    let starts = |driver: &Driver, label: &str| -> Vec<i64> {
        let step = |pane: &super::super::state::Pane| {
            let place = pane.index.steps.iter().position(|s| s.key.label() == label);
            pane.index.steps[place.expect("it has the step")].window.from - pane.origin
        };
        view(driver).panes.iter().map(step).collect()
    };
    driver.taps("]]]");
    driver.shows("aligned: step 3");
    assert_eq!(starts(&driver, "step 3"), [0, 0]);
    type_line(&mut driver, "t", "step 1");
    driver.shows("aligned: step 1");
    assert_eq!(starts(&driver, "step 1"), [0, 0]);
    // to the longest exposed communication: both at its layer, the cursor of both on the same operation
    driver.taps("E");
    driver.tap(KeyCode::Enter);
    let at = |driver: &Driver| -> Vec<(String, trace::overlap::StepKey)> {
        let panes = view(driver).panes.iter();
        let of = |pane: &super::super::state::Pane| {
            let span = *pane.span().expect("on an operation");
            (pane.index.name(&span).to_owned(), trace::overlap::StepKey::from_span(&span))
        };
        panes.map(of).collect()
    };
    let [above, below] = &at(&driver)[..] else { panic!("two traces") };
    assert_eq!(above, below);
    driver.shows("trace: the same operation took ");
    // a time is of the trace with the cursor
    driver.taps("J");
    type_line(&mut driver, "t", "300us");
    let [above, below] = &at(&driver)[..] else { panic!("two traces") };
    assert_eq!(above.1, below.1);
    driver.shows(&format!("aligned: {}", below.1.label()));
    // by hand, and on again
    driver.taps("}");
    driver.shows("(fixed)");
    driver.taps("A");
    driver.hides("(fixed)");
}

#[test]
fn two_aligned_steps_are_compared_above_them() {
    let pair = || {
        let ladder = simulated(|spec| spec.architecture = "ladder".parse().expect("it is one"));
        vec![simulated(|_| {}), ladder]
    };
    let driver = with(pair(), (120, 40));
    driver.shows(" ladder step 1.45x faster: 99.5 against 144 us; exposed 9.66 against 63.9 us");
    driver.shows("   aligned: step 0");
    let driver = with(pair(), (60, 16));
    driver.shows(" ladder step 1.45x faster   aligned: step 0");
}

#[test]
fn a_pair_opens_on_a_step_of_typical_length_and_names_a_step_that_contradicts_the_medians() {
    // the middle step of ladder is an outlier
    let slow = simulated(|spec| spec.architecture = "ladder".parse().expect("it is one"));
    let mut slow = slow.whole().into_owned();
    let of_decode = |span: &&mut trace::Span| span.phase == Phase::Decode;
    let step_2 = slow.spans.iter().filter(|span| span.phase == Phase::Decode && span.step == 2);
    let end = step_2.map(|span| span.end_ns).max().expect("it has steps");
    for span in slow.spans.iter_mut().filter(of_decode) {
        if span.step > 2 {
            (span.start_ns, span.end_ns) = (span.start_ns + 1_000_000, span.end_ns + 1_000_000);
        } else if span.step == 2 && span.end_ns == end {
            span.end_ns += 1_000_000;
        }
    }
    let mut view = TimelineView::new(Arc::new(simulated(|_| {})));
    view.add(Arc::new(TraceIndex::new("ladder".into(), slow)));
    let steps: Vec<u32> =
        view.panes.iter().map(|pane| pane.index.steps[pane.aligned.expect("a step")].key.step).collect();
    assert!(steps[0] == steps[1] && steps[0] != 2, "{steps:?}");
    let names = ["standard", "ladder"].map(str::to_owned);
    assert!(view.compared_words(&names).starts_with("ladder step 1.4"), "{steps:?}");
    for pane in &mut view.panes {
        let mut steps = pane.index.steps.iter();
        pane.aligned = steps.position(|step| (step.key.phase, step.key.step) == (Phase::Decode, 2));
    }
    let words = view.compared_words(&names);
    assert!(words.contains("x faster (medians: ladder 1.4"), "{words}");
    assert!(words.starts_with("standard step "), "{words}");
}

/// A profile, whose first stream works in the last step only, over a run.
#[test]
fn unlike_traces_open_on_work_of_one_step_and_are_both_judged() {
    let mut profile = imported().trace;
    profile.spans.retain(|span| span.stream != 0 || span.step == 2);
    let profile = TraceIndex::new("profile".into(), profile);
    let mut driver = with(vec![profile, simulated(|_| {})], (160, 50));
    driver.shows("aligned: step 0");
    // titles and rulers name the step of the window
    let shown = driver.screen();
    assert!(
        shown.matches(" hidden in step 0,").count() == 2 && !shown.contains(" in step 2"),
        "{shown}"
    );
    let span = view(&driver).panes[0].span().expect("a row with work");
    assert_eq!((span.step, span.stream != 0), (0, true), "{span:?}");
    driver.taps("V");
    let shown = driver.screen();
    for part in ["measured [measured]: profile", "simulated [simulated]: "] {
        assert!(shown.contains(part), "'{part}' is missing in {shown}");
    }
    assert_eq!(shown.matches("Exposed communication").count(), 2, "{shown}");
}

#[test]
fn both_rulers_name_the_aligned_step_and_the_header_says_that_others_drift() {
    let ladder = simulated(|spec| spec.architecture = "ladder".parse().expect("it is one"));
    let mut driver = with(vec![simulated(|_| {}), ladder], (120, 40));
    driver.taps("]]]");
    // the lower step is shorter, so that its next one begins in the window
    driver.shows("aligned: step 3; other steps drift");
    let shown = driver.screen();
    let rulers = shown.lines().filter(|line| line.contains(['▼', '▽']));
    let named: Vec<bool> = rulers.map(|ruler| ruler.contains("step 3")).collect();
    assert_eq!(named, [true, true], "{shown}");
    driver.taps("++");
    driver.shows("step 3 over step 3");
    driver.hides("other steps drift");
}

#[test]
fn a_trace_opened_below_is_aligned_at_the_step_under_the_cursor() {
    let ladder = simulated(|spec| spec.architecture = "ladder".parse().expect("it is one"));
    let mut driver = with(vec![simulated(|_| {})], (120, 40));
    driver.taps("]");
    let before = *view(&driver).span().expect("on an operation");
    let view = driver.state.timeline.view.as_mut().expect("a trace is open");
    let width = view.window.width();
    view.add_here(std::sync::Arc::new(ladder));
    view.settle(5);
    assert_eq!((view.span().copied(), view.window.width()), (Some(before), width));
    assert_eq!(view.panes[1].span().map(|span| span.step), Some(before.step));
    driver.shows("aligned: ");
}

#[test]
fn a_step_that_the_other_trace_lacks_is_named() {
    let longer = simulated(|spec| spec.output_tokens = 9);
    let mut driver = with(vec![longer, simulated(|_| {})], (120, 40));
    driver.taps("]]]]]]]]]]");
    driver.shows("not aligned: ");
    driver.shows(" has no step 7");
    driver.taps("[[[[");
    driver.shows("aligned: step 3 over step 3");
}

#[test]
fn the_prediction_is_a_ghost_that_says_what_it_is() {
    let mut driver = with(vec![measured()], (200, 60));
    driver.taps("]");
    driver.taps("P");
    let shown = driver.screen();
    assert!(shown.contains("h100_sxm native") && shown.contains("'host', on"), "{shown}");
    driver.tap(KeyCode::Enter);
    let shown = driver.screen();
    assert!(shown.contains("[simulated] ghost: "), "{shown}");
    assert!(shown.contains(", on h100_sxm, stack native (the run: host)"), "{shown}");
    assert!(
        shown.contains("[emulated-link]") && shown.contains("aligned: step 1 over step 1"),
        "{shown}"
    );
    driver.press(KeyCode::Char('Y'));
    driver.shows("copied (without the simulated trace below): ");
    driver.taps("c");
    let report = view(&driver).differences.clone().expect("they are compared");
    assert_eq!((report.steps.0.step, report.steps.1.step), (1, 1));
    let matmuls: Vec<_> = report.groups.iter().filter(|g| g.name.ends_with("mlp/down")).collect();
    assert!(!matmuls.is_empty() && matmuls.iter().all(|g| g.a.is_some() && g.b.is_some()));
    driver.tap(KeyCode::Esc);
    driver.taps("]");
    driver.shows("aligned: step 2 over step 2");
    driver.taps("P");
    assert_eq!(view(&driver).panes.len(), 1, "once more, and it is gone");
    // a wrong name stays in the prompt
    type_line(&mut driver, "P", "h100_sx native");
    driver.shows(" h100_sx native");
    driver.shows("unknown architecture or hardware profile 'h100_sx'");
    driver.shows("did you mean 'h100_sxm'");
    driver.tap(KeyCode::Esc);
    let mut driver = with(vec![imported()], (120, 40));
    driver.taps("P");
    driver.shows("rewire this trace as");
    driver.tap(KeyCode::Esc);
    type_line(&mut driver, "P", "h100_sxm native");
    driver.shows("unknown architecture 'h100_sxm': ");
    driver.tap(KeyCode::Esc);
    type_line(&mut driver, "P", "ladder xyz");
    driver.shows(" ladder xyz");
    driver.shows("'xyz'");
}

#[test]
fn a_trace_rewired_lies_under_the_original_and_the_verdict_says_what_it_gives() {
    let mut driver = with(vec![simulated(|_| {})], (200, 60));
    let headline = view(&driver).panes[0].verdict.clone().expect("it is judged").headline.clone();
    assert!(headline.contains("exposed communication") && headline.contains("ladder"), "{headline}");
    driver.shows(&headline);
    driver.taps("V");
    let shown = driver.screen();
    for part in ["verdict [simulated]", "Exposed communication, decode steps 0 to 4: ", "x  ladder"] {
        assert!(shown.contains(part), "'{part}' is missing in {shown}");
    }
    driver.taps("V");
    driver.taps("]");
    type_line(&mut driver, "P", "ladder");
    let shown = driver.screen();
    assert!(
        shown.contains("step 1 rewired: ladder") && shown.contains("[simulated] ghost: "),
        "{shown}"
    );
    assert!(shown.contains("aligned: step 1 over step 1"), "{shown}");
    driver.taps("P");
    assert_eq!(view(&driver).panes.len(), 1, "once more, and it is gone");
    // the sliders begin at the measured step, and predict as rewire does
    driver.taps("w");
    assert_eq!(driver.state.cx.tab, Tab::WhatIf);
    let shown = driver.screen();
    assert!(shown.contains("[predicted from ") && shown.contains("simulated "), "{shown}");
    assert!(shown.contains("x trace") && shown.contains("times are those"), "{shown}");
    assert!(!shown.contains("prompt"), "{shown}");
    let standard = |driver: &Driver| {
        let answer = driver.state.whatif.answer.clone().expect("it is predicted");
        answer.row(&"standard".parse().unwrap()).unwrap().numbers.clone().unwrap().tpot_ms
    };
    let before = standard(&driver);
    driver.taps("jjLLL");
    assert!(standard(&driver) > 1.02 * before, "about twice the latency");
    driver.press(KeyCode::Char('Y'));
    driver.shows("--alpha-us");
    // a trace of which no steps can be found says why
    let mut driver = with(vec![imported()], (120, 40));
    type_line(&mut driver, "P", "ladder");
    driver.shows("ladder layers 8");
    driver.tap(KeyCode::Esc);
    // and asks for what it leaves open
    driver.taps("w");
    driver.shows("what-if of this trace");
    driver.shows("cannot detect the layers");
    type_line(&mut driver, "", "many");
    driver.shows("unknown 'many': type layers 80");
}

#[test]
fn two_traces_keep_their_lanes_in_a_small_window() {
    let driver = with(vec![simulated(|_| {}), simulated(|spec| spec.batch = 2)], (60, 16));
    let shown = driver.screen();
    for lane in ["      compute", "      comm "] {
        assert_eq!(shown.matches(lane).count(), 2, "{lane} of both: {shown}");
    }
    assert!(
        shown.contains(" on compute") || shown.contains(" took "),
        "the cursor is described: {shown}"
    );
}

#[test]
fn the_verdict_leads_to_the_longest_exposed_communication() {
    let mut driver = with(vec![simulated(|_| {})], (120, 40));
    driver.taps("V");
    driver.shows("Enter: go to the longest exposed communication of a typical step");
    driver.tap(KeyCode::Enter);
    let view = view(&driver);
    assert!(view.panel.is_none(), "the details of the call replace the verdict");
    let index = &view.panes[0].index;
    let span = view.span().expect("an operation");
    let step = index.steps[index.step_of(span).expect("of a step")].window;
    let exposed = index.ranks.iter().flat_map(|rank| rank.exposed.union());
    let of_step = exposed.filter(|(from, to)| step.from <= *from && *to <= step.to);
    let (from, to) = *of_step.max_by_key(|(from, to)| to - from).expect("standard exposes");
    assert_eq!(span.phase, Phase::Decode);
    assert_eq!(span.lane, plan::Lane::Comm);
    assert!(span.start_ns < to && span.end_ns > from, "{span:?} at {from} to {to}");
}

#[test]
fn a_verdict_without_a_cause_offers_no_way_to_it() {
    let mut driver = with(vec![simulated(|spec| spec.tp = 1)], (120, 40));
    driver.taps("V");
    driver.shows(" V: close ");
    driver.hides("Enter: go to");
}

#[test]
fn a_verdict_longer_than_its_window_scrolls_by_pages_and_says_so() {
    let mut driver = with(vec![simulated(|_| {})], (60, 16));
    driver.taps("V");
    let first = driver.screen();
    assert!(first.contains("Exposed communication") && first.contains("↓ "), "{first}");
    driver.tap(KeyCode::PageDown);
    let next = driver.screen();
    assert!(!next.contains("Exposed communication, ") && next.contains("↑ "), "{next}");
    driver.tap(KeyCode::PageUp);
    assert_eq!(driver.screen(), first);
}

#[test]
fn a_key_without_effect_says_why() {
    let mut driver = with(vec![simulated(|_| {})], (120, 40));
    driver.taps("ff");
    driver.shows("the whole trace is shown already");
    driver.taps("-");
    driver.shows("nothing to zoom out to");
    driver.taps("h");
    driver.shows("the window is at the start");
    driver.taps("i");
    driver.shows("launch details exist only in the files of imported traces");
}

#[test]
fn a_page_of_the_trace_is_written_from_here() {
    let mut driver = with(vec![simulated(|_| {})], (120, 40));
    let export = driver.state.timeline.export(FileKind::Html, &driver.state.cx).unwrap().unwrap();
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("page.html");
    export.write(&path).expect("a page");
    let html = std::fs::read_to_string(&path).expect("it is there");
    assert!(html.starts_with("<!") && html.contains("exposed communication"), "{}", &html[..200]);
    driver.taps("x");
    driver.shows("HTML  page to share");
}

#[test]
fn the_critical_path_stays_on_the_ranks_that_are_shown() {
    let mut driver = with(vec![simulated(|_| {})], (120, 40));
    assert_eq!(view(&driver).panes[0].index.folded, [1], "its ranks are alike");
    driver.taps("p...");
    driver.shows("(this is on it)");
}

#[test]
fn ranks_that_did_the_same_are_stored_once_until_they_are_asked_for() {
    let index = simulated(|_| {});
    let whole = index.whole().into_owned();
    assert_eq!((index.trace.spans.len() * 2, index.rank_count()), (whole.spans.len(), 2));
    // the verdict on two of the ranks is that on all
    let eight = simulated(|spec| spec.tp = 4);
    let [few, all] = [eight.matchable(), eight.whole()].map(|trace| {
        let selection = Selection::default_of(&trace);
        let report = study::analysis::trace_report(&trace, &selection);
        crate::desk::verdict_of(&trace, &report, &selection)
    });
    assert_eq!((few.headline, few.sentences), (all.headline, all.sentences));
    let mut driver = with(vec![index], (120, 40));
    driver.shows("▾ r0=r1 exposed");
    let span = view(&driver).span().copied().expect("on a span");
    driver.taps("F");
    driver.hides("r0=r1");
    driver.shows("▾ r1");
    driver.shows(", rank 1, step ");
    assert_eq!(view(&driver).pane().index.trace.spans, whole.spans);
    let opened = view(&driver).span().copied();
    assert_eq!(opened, Some(trace::Span { rank: 1, ..span }), "the same operation of the opened rank");
    driver.taps("F");
    driver.shows("▾ r0=r1 exposed");
    assert_eq!(view(&driver).span().copied(), Some(span));
}

/// The sliders simulate the run again; rewiring its trace would keep the matrix products of standard.
#[test]
fn what_if_of_a_simulated_run_simulates_it_again() {
    let mut trace = simulated(|spec| spec.batch = 4).whole().into_owned();
    trace.meta.run = Some("20260102-0304-1".into());
    let spec = trace.meta.spec.clone().expect("it has one");
    let mut driver = with(vec![TraceIndex::new("tiny".into(), trace)], (120, 40));
    driver.taps("w");
    assert_eq!(driver.state.cx.tab, Tab::WhatIf);
    let whatif = &driver.state.whatif;
    assert!(whatif.traced.is_none());
    assert_eq!((&whatif.base.cell.model, whatif.base.cell.batch), (&spec.model, 4));
    driver.shows("from run 20260102-0304-1");
    driver.shows("sliders simulate this trace's run again");
}

#[test]
fn what_if_of_the_first_steps_of_a_run_simulates_the_whole_run() {
    let mut trace = simulated(|_| {}).whole().into_owned();
    trace.meta.run = Some("long".into());
    let first_steps = trace.meta.spec.clone().expect("it has one");
    let whole = Spec { output_tokens: 512, ..first_steps };
    let mut driver = with(vec![TraceIndex::new("tiny".into(), trace)], (120, 40));
    let run = record("long", whole, 1000.0);
    driver.state.cx.stored = Some(Arc::new(Snapshot::new(vec![run], Vec::new())));
    driver.taps("w");
    assert_eq!(driver.state.cx.tab, Tab::WhatIf);
    assert_eq!(driver.state.whatif.base.cell.output_tokens, 512);
}

#[test]
fn an_open_trace_is_offered_as_base_and_left_again() {
    let mut driver = with(vec![simulated(|_| {})], (160, 40));
    driver.taps("7");
    assert!(driver.state.whatif.traced.is_some(), "{}", driver.screen());
    driver.shows(" B goes back to ");
    driver.taps("B");
    assert!(driver.state.whatif.traced.is_none(), "and stays so");
    driver.shows(" B starts from trace ");
    driver.taps("B");
    assert!(driver.state.whatif.traced.is_some(), "{}", driver.screen());
    driver.taps("f");
    driver.shows("a trace has one batch size");
    driver.taps("c");
    let why = driver.state.whatif.profile_values().unwrap().no_launch_gaps.expect("a reason");
    driver.shows(why);
    assert!(!driver.state.whatif.variant.no_launch_gaps, "a simulated step has no launch gaps");
    driver.taps("B");
    assert!(driver.state.whatif.traced.is_none());
    assert_eq!(driver.state.whatif.variant.cell.model, "llama-3-70b");
}

/// A pair of the compare screen: the compared run over its baseline.
#[test]
fn what_if_of_a_simulated_pair_names_the_run_under_the_cursor() {
    let run = |architecture: &str, run: &str| {
        let mut trace = simulated(|spec| spec.architecture = architecture.parse().expect("it is one"))
            .whole()
            .into_owned();
        trace.meta.run = Some(run.into());
        TraceIndex::new(run.into(), trace)
    };
    let pair = vec![run("ladder", "20260102-0304-2"), run("standard", "20260102-0304-1")];
    let mut driver = with(pair, (120, 40));
    driver.taps("w");
    driver.shows("[simulated] ladder tiny ");
    driver.shows("from run 20260102-0304-2");
}

#[test]
fn differences_in_exposure_have_units_and_a_change_in_a_narrow_window() {
    let ladder = simulated(|spec| spec.architecture = "ladder".parse().expect("it is one"));
    let mut driver = with(vec![simulated(|_| {}), ladder], (60, 16));
    driver.taps("c");
    if !driver.screen().contains("change exp") {
        driver.taps("c");
    }
    driver.shows("us; exp: exposed; ");
    let head = driver.screen();
    let head = head.lines().find(|line| line.contains("standard exp")).expect("a header");
    assert!(head.contains("change exp") && head.contains("operation"), "{head}");
}

#[test]
fn a_closed_pair_leaves_the_header_of_a_single_trace() {
    let ladder = simulated(|spec| spec.architecture = "ladder".parse().expect("it is one"));
    let mut driver = with(vec![simulated(|_| {}), ladder], (120, 40));
    driver.taps("X");
    let shown = driver.screen();
    assert_eq!(shown.matches(" % of comm").count(), 1, "{shown}");
}

#[test]
fn escape_goes_back_one_level_at_a_time_and_the_footer_says_what_it_ends() {
    let ladder = simulated(|spec| spec.architecture = "ladder".parse().expect("it is one"));
    let mut driver = with(vec![simulated(|_| {}), ladder], (120, 40));
    driver.taps("p/reduce");
    driver.tap(KeyCode::Enter);
    driver.taps("E");
    driver.shows(" Esc close list ");
    driver.tap(KeyCode::Esc);
    assert!(view(&driver).panel.is_none());
    driver.shows(" Esc end search ");
    driver.tap(KeyCode::Esc);
    assert!(view(&driver).search.line.value().is_empty() && view(&driver).lit);
    driver.shows(" Esc hide path ");
    driver.tap(KeyCode::Esc);
    assert!(!view(&driver).lit && view(&driver).panes.len() == 2);
    driver.shows(" Esc close lower trace ");
    driver.tap(KeyCode::Esc);
    assert_eq!(view(&driver).panes.len(), 1);
    driver.hides(" Esc close");
}
