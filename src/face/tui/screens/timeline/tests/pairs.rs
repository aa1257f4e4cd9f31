//! Two traces under one another, and a trace over what is predicted of it.

use super::*;

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
    press(&mut driver, KeyCode::Enter, KeyModifiers::NONE);
    assert!(named(&driver, &largest.name), "opened: {}", driver.screen());
    press(&mut driver, KeyCode::Enter, KeyModifiers::NONE);
    assert!(!named(&driver, &largest.name), "closed again: {}", driver.screen());
    press(&mut driver, KeyCode::Enter, KeyModifiers::NONE);
    press(&mut driver, KeyCode::Down, KeyModifiers::NONE);
    press(&mut driver, KeyCode::Enter, KeyModifiers::NONE);
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
    let row = shown.lines().position(|line| line.contains("ladder exp.")).expect("a header") + 1;
    assert!(shown.lines().nth(row).is_some_and(|line| line.contains(&name(&exposed.name))), "{shown}");
    press(&mut driver, KeyCode::Esc, KeyModifiers::NONE);
    assert!(view(&driver).panel.is_none());
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
}

#[test]
fn steps_are_aligned_where_the_cursor_is() {
    let ladder = simulated(|spec| spec.architecture = "ladder".parse().expect("it is one"));
    let mut driver = with(vec![simulated(|_| {}), ladder], (120, 40));
    driver.taps("]]]");
    driver.shows("aligned: step 0 over step 0");
    let starts = |driver: &Driver| -> Vec<i64> {
        let step = |pane: &super::super::state::Pane| {
            let place = pane.index.steps.iter().position(|s| s.key.label() == "step 3");
            pane.index.steps[place.expect("it has step 3")].window.from - pane.origin
        };
        view(driver).panes.iter().map(step).collect()
    };
    let drifted = starts(&driver);
    assert_ne!(drifted[0], drifted[1], "later steps drift apart");
    let seen = view(&driver).pane().window(view(&driver).window);
    driver.taps("a");
    driver.shows("aligned: step 3 over step 3");
    assert_eq!(starts(&driver)[0], starts(&driver)[1]);
    assert_eq!(view(&driver).pane().window(view(&driver).window), seen, "what is looked at stays");
    driver.taps("A[");
    driver.shows("aligned: step 2 over step 2 (follows)");
    driver.taps("A]");
    driver.shows("aligned: step 2 over step 2 ");
}

#[test]
fn the_prediction_is_a_ghost_that_says_what_it_is() {
    let mut driver = with(vec![measured()], (200, 60));
    driver.taps("]");
    driver.taps("P");
    let shown = driver.screen();
    assert!(shown.contains("h100_sxm native") && shown.contains("'host', on"), "{shown}");
    press(&mut driver, KeyCode::Enter, KeyModifiers::NONE);
    let shown = driver.screen();
    assert!(shown.contains("[simulated] ghost: "), "{shown}");
    assert!(shown.contains(", on h100_sxm, stack native (the run: host)"), "{shown}");
    assert!(
        shown.contains("[emulated-link]") && shown.contains("aligned: step 1 over step 1"),
        "{shown}"
    );
    driver.press(KeyCode::Char('Y'));
    driver.shows("copied, but for the simulated trace below: ");
    driver.taps("c");
    let report = view(&driver).differences.clone().expect("they are compared");
    assert_eq!((report.steps.0.step, report.steps.1.step), (1, 1));
    let matmuls: Vec<_> = report.groups.iter().filter(|g| g.name.ends_with("mlp/down")).collect();
    assert!(!matmuls.is_empty() && matmuls.iter().all(|g| g.a.is_some() && g.b.is_some()));
    press(&mut driver, KeyCode::Esc, KeyModifiers::NONE);
    driver.taps("]");
    driver.shows("aligned: step 2 over step 2 (follows)");
    driver.taps("P");
    assert_eq!(view(&driver).panes.len(), 1, "once more, and it is gone");
    type_line(&mut driver, "P", "h100_sx native");
    driver.shows("did you mean 'h100_sxm'");
    press(&mut driver, KeyCode::Esc, KeyModifiers::NONE);
    let mut driver = with(vec![imported()], (120, 40));
    driver.taps("P");
    driver.shows("rewire this trace as");
    press(&mut driver, KeyCode::Esc, KeyModifiers::NONE);
    type_line(&mut driver, "P", "h100_sxm native");
    driver.shows("name an architecture to");
}

#[test]
fn a_trace_rewired_lies_under_the_original_and_the_verdict_says_what_it_gives() {
    let mut driver = with(vec![simulated(|_| {})], (200, 60));
    let headline = view(&driver).panes[0].verdict.clone().expect("it is judged").headline.clone();
    assert!(headline.contains("exposed communication") && headline.contains("ladder"), "{headline}");
    driver.shows(&headline);
    driver.taps("V");
    let shown = driver.screen();
    for part in ["verdict [simulated]", "Exposed communication:", "two micro-batches"] {
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
    assert!(shown.contains("[predicted from step 1 of ") && shown.contains("measured "), "{shown}");
    assert!(shown.contains("step ms") && shown.contains("their schedule is simulated"), "{shown}");
    assert!(!shown.contains("prompt") && shown.contains("a trace has one batch size"), "{shown}");
    let standard = |driver: &Driver| {
        let answer = driver.state.whatif.answer.clone().expect("it is predicted");
        answer.row(&"standard".parse().unwrap()).unwrap().numbers.clone().unwrap().tpot_ms
    };
    let before = standard(&driver);
    driver.taps("jjL");
    assert!(standard(&driver) > 1.02 * before, "twice the latency");
    driver.press(KeyCode::Char('Y'));
    driver.shows("--alpha-us");
    // a trace of which no steps can be found says why
    let mut driver = with(vec![imported()], (120, 40));
    type_line(&mut driver, "P", "ladder");
    driver.shows("ladder layers 8");
    press(&mut driver, KeyCode::Esc, KeyModifiers::NONE);
    // and asks for what it leaves open
    driver.taps("w");
    driver.shows("what-if of this trace");
    driver.shows("cannot detect the layers");
    type_line(&mut driver, "", "many");
    driver.shows("type layers 80");
}

#[test]
fn two_traces_keep_their_lanes_in_a_small_window() {
    let driver = with(vec![simulated(|_| {}), simulated(|spec| spec.batch = 2)], (60, 16));
    let shown = driver.screen();
    for lane in ["compute", "comm "] {
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
    driver.shows("Enter: go to the longest exposed communication");
    driver.shows("operations of ");
    press(&mut driver, KeyCode::Enter, KeyModifiers::NONE);
    let view = view(&driver);
    let index = &view.panes[0].index;
    let exposed = index.ranks.iter().flat_map(|rank| rank.exposed.union());
    let (from, to) = *exposed.max_by_key(|(from, to)| to - from).expect("standard exposes");
    let span = view.span().expect("an operation");
    assert_eq!(span.lane, plan::Lane::Comm);
    assert!(span.start_ns < to && span.end_ns > from, "{span:?} at {from} to {to}");
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
    driver.shows("or .html for a page");
}

#[test]
fn the_critical_path_stays_on_the_ranks_that_are_shown() {
    let mut driver = with(vec![simulated(|_| {})], (120, 40));
    assert!(view(&driver).panes[0].index.ranks[1].same_as.is_some(), "its ranks are alike");
    driver.taps("p...");
    driver.shows("(this is on it)");
}
