//! A limit of x that is typed, and the answer within it.

use std::sync::Arc;

use crossterm::event::{KeyCode, KeyModifiers};

use super::{driver, layout, next_group, records, records_of};
use crate::face::tui::context::Snapshot;
use crate::face::tui::scope::ShownExperiment;
use crate::face::tui::screen::{AnyScreen as _, Tab};
use crate::face::tui::tests::fixtures::Driver;
use crate::face::tui::update::Message;
use study::analysis::ParetoPoint;
use table::{P2p, Record, Spec};

/// Types a limit of x.
fn type_limit(driver: &mut Driver, limit: &str) {
    driver.taps("t");
    driver.chord(KeyCode::Char('u'), KeyModifiers::CONTROL);
    driver.taps(limit);
    driver.tap(KeyCode::Enter);
}

#[test]
fn a_typed_limit_is_answered_and_drawn_at_every_size_and_undone() {
    let label = |driver: &Driver| driver.state.pareto.current().unwrap().spec.label();
    for (columns, rows) in [(60, 16), (80, 24), (120, 40), (200, 60)] {
        let mut driver = driver(columns, rows);
        driver.taps("a");
        assert_eq!(driver.state.pareto.limit, None, "nobody asked for one");
        let measure = if columns < 100 { "tok/s/rank" } else { "tokens/s/rank" };
        driver.shows(&format!(" most {measure}: "));
        driver.taps("t");
        driver.shows("TPOT at most (ms)");
        driver.tap(KeyCode::Esc);
        type_limit(&mut driver, "6.5");
        // the winner, and a rival whose interval overlaps
        // the smallest window has the unit only on the axis
        let unit = if columns < 80 { "" } else { " tok" };
        driver.shows(&format!(" 6.5 ms: ladder 8x4 p2p-on, 80.6{unit}"));
        driver.shows("(undecided: desync:4");
        driver.shows("┊");
        let screen = driver.screen();
        let answer = screen.lines().nth(1).unwrap_or_default();
        // the smallest window names the measure only on the axis
        let bounds = [" TPOT within 6.5 ms: ", " TPOT ≤ 6.5 ms: ", " ≤ 6.5 ms: "];
        let bounds = if columns < 80 { &bounds[..] } else { &bounds[..2] };
        let is_first = bounds.iter().any(|bound| answer.starts_with(bound));
        assert!(is_first, "the answer comes first: {screen}");
        assert!(screen.contains("[emulated-link] Ladder is up to "), "then the headline: {screen}");
        assert_eq!(label(&driver), "ladder tp8 b4 p2p-on", "the cursor is on the winner");
        let plot = layout::areas(driver.state.cx.body(), &driver.state.pareto).plot;
        assert!(plot.height >= 8, "{plot:?} at {columns}x{rows}");
        let words = driver.state.screen(Tab::Pareto).command().unwrap().words.join(" ");
        assert!(words.ends_with(" --at 6.5"), "{words}");
        driver.taps("u");
        driver.shows("undone: limit");
        assert_eq!(driver.state.pareto.limit, None);
        driver.chord(KeyCode::Char('r'), KeyModifiers::CONTROL);
        assert_eq!(driver.state.pareto.limit, Some(6.5));
        // nothing typed
        type_limit(&mut driver, "");
        assert_eq!(driver.state.pareto.limit, None);
    }
}

#[test]
fn a_limit_that_every_point_keeps_says_so() {
    let mut driver = driver(120, 40);
    type_limit(&mut driver, "12000 s");
    driver.shows("every point is within ");
    type_limit(&mut driver, "6.5");
    driver.hides("every point is within ");
}

/// Without a limit, the best point of all is compared with standard in the same cell.
#[test]
fn without_a_limit_the_best_point_is_beside_standard_in_its_cell() {
    let mut driver = driver(200, 60);
    next_group(&mut driver);
    driver.shows("), standard there ");
    driver.shows("t: type a limit");
    let pareto = &driver.state.pareto;
    let best = pareto.best_within[0].y;
    assert!(
        pareto
            .visible()
            .filter(|point| !point.is_limit())
            .all(|point| { pareto.axes.y.value(point).is_none_or(|y| y <= best) })
    );
}

/// Where the winner has P2P, the answer has the best point without it, and `p` goes to the same cell without it.
#[test]
fn the_best_point_without_p2p_is_in_the_answer_and_selected_there() {
    let mut driver = driver(200, 60);
    type_limit(&mut driver, "350");
    driver.shows("; P2P off: desync:4 99.1");
    let winner = driver.state.pareto.best_within[0].run.clone();
    assert!(driver.state.pareto.select(&winner));
    driver.taps("p");
    assert_eq!(driver.state.pareto.current().unwrap().run, winner);
    driver.hides("P2P off: desync:4");
    driver.taps("p");
    let pareto = &driver.state.pareto;
    let best = pareto.current().unwrap();
    assert_eq!((best.spec.p2p, best.spec.architecture.to_string().as_str()), (P2p::Off, "desync:4"));
    assert_eq!(best.run, pareto.best_within[0].run);
    // any other point keeps its cell
    driver.taps("pppN");
    let own = driver.state.pareto.current().unwrap().spec.clone();
    driver.taps("pp");
    let cell = |spec: &Spec| (spec.tp, spec.batch, spec.architecture.clone());
    assert_eq!(cell(&driver.state.pareto.current().unwrap().spec), cell(&own));
    // the same cell without P2P is beyond this limit
    driver.taps("p");
    type_limit(&mut driver, "250");
    driver.taps("p");
    let pareto = &driver.state.pareto;
    let x = |point: &ParetoPoint| pareto.axes.coordinates(point).unwrap().0;
    assert!(pareto.current().is_some_and(|point| x(point) <= 250.0), "{}", driver.screen());
}

/// The limit holds on every axis, which then has no line of it.
#[test]
fn a_limit_stays_on_its_quantity_when_the_axis_changes() {
    for (columns, rows) in [(60, 16), (80, 24), (120, 40), (200, 60)] {
        let mut driver = driver(columns, rows);
        driver.taps("a");
        type_limit(&mut driver, "6.5");
        let winner = driver.state.pareto.best_within[0].run.clone();
        let is_line = |driver: &Driver| driver.screen().contains('┊');
        assert!(is_line(&driver));
        for axis in ["TTFT", "tokens/s/user", "completion latency"] {
            driver.taps("a");
            driver.shows(&format!("limit kept: TPOT within 6.5 ms; x axis: {axis}"));
            let screen = driver.screen();
            let answer = screen.lines().nth(1).unwrap_or_default();
            let bounds = [" TPOT within 6.5 ms: ", " TPOT ≤ 6.5 ms: "];
            assert!(bounds.iter().any(|bound| answer.starts_with(bound)), "{screen}");
            assert_eq!(driver.state.pareto.best_within[0].run, winner, "on {axis}");
            assert!(!is_line(&driver), "{screen}");
        }
        let beyond = driver.state.screen(Tab::Pareto).command().unwrap().beyond;
        assert!(beyond.contains(&"the limit on TPOT".to_owned()), "{beyond:?}");
        driver.taps("a");
        driver.hides("limit kept");
        assert_eq!(driver.state.pareto.limit, Some(6.5));
        assert!(is_line(&driver));
        // a limit of another axis takes its place
        driver.taps("a");
        type_limit(&mut driver, "100 s");
        driver.hides("TPOT within");
        assert_eq!(driver.state.pareto.other_limit, None);
    }
}

#[test]
fn a_limit_is_in_the_unit_of_its_axis() {
    let mut driver = driver(120, 40);
    type_limit(&mut driver, "0.25 s");
    driver.shows(" within 250 ms: ");
    driver.taps("aaa");
    driver.shows(" latency within 250 ms: ");
    driver.taps("t");
    driver.shows("tokens/s/user at least");
    driver.tap(KeyCode::Esc);
    type_limit(&mut driver, "150");
    driver.shows(" at least 150 tokens/s/user: ladder 8x4 p2p-on, 80.6 tokens/s/rank");
    type_limit(&mut driver, "9000");
    driver
        .shows(" at least 9000 tokens/s/user: no point; nearest: ladder 8x1 p2p-on, 184 tokens/s/user");
    type_limit(&mut driver, "soon");
    driver.shows("'soon' is not a limit: type a number above 0, in tokens/s/user");
    driver.shows("'30 ms tpot' limits TPOT");
    driver.tap(KeyCode::Esc);
    let kept = driver.state.pareto.remember().unwrap();
    assert_eq!(kept["limits_of"], serde_json::json!({"quickstart": {"user": 9000.0}}));
    // also where another axis is shown
    let slow = |mut record: Record| {
        record.metrics.iter_mut().for_each(|metrics| metrics.completion_ms *= 100.0);
        record
    };
    let slow: Vec<Record> = records().into_iter().map(slow).collect();
    let effects = driver.send(Message::Runs(Ok(Arc::new(Snapshot::new(slow, Vec::new())))));
    driver.answer(effects);
    driver.taps("a");
    type_limit(&mut driver, "20");
    driver.taps("a");
    driver.shows("limit kept: latency within 20 s; x axis: TPOT");
}

#[test]
fn limits_and_the_p2p_setting_are_those_of_the_experiment() {
    let mut all = records_of(|spec| spec.model = "3b".into());
    for record in &mut all {
        record.run.push_str("-other");
        record.experiment = Some("other".into());
    }
    all.extend(records());
    let mut driver = Driver::empty(120, 40);
    let effects = driver.send(Message::Runs(Ok(Arc::new(Snapshot::new(all, Vec::new())))));
    driver.answer(effects);
    driver.taps("5");
    let show = |driver: &mut Driver, experiment: &str| {
        driver.state.cx.scope.show(ShownExperiment::named(experiment.into()));
        let effects = driver.send(Message::Resize(120, 40));
        driver.answer(effects);
        driver.shows(&format!("[{experiment}]"));
    };
    show(&mut driver, "quickstart");
    type_limit(&mut driver, "0.25 s");
    driver.taps("p");
    driver.shows(" P2P off only (p: both): ");
    show(&mut driver, "other");
    driver.shows(" P2P on only (p: off): ");
    assert_eq!(driver.state.pareto.limit, None);
    show(&mut driver, "quickstart");
    driver.shows(" P2P off only (p: both): ");
    assert_eq!(driver.state.pareto.limit, Some(250.0));
}

#[test]
fn all_series_within_the_limit_are_listed_where_the_table_has_no_room() {
    for (columns, rows) in [(60, 16), (80, 24)] {
        let mut driver = driver(columns, rows);
        driver.taps("a");
        type_limit(&mut driver, "6.5");
        driver.taps("n");
        assert_ne!(driver.state.pareto.current().unwrap().spec.label(), "ladder tp8 b4 p2p-on");
        driver.taps("T");
        driver.shows("best tokens/s/rank within 6.5 ms");
        driver.shows("just over the limit (ms)");
        let screen = driver.screen();
        let at = |name: &str| screen.find(name).unwrap_or_else(|| panic!("{name}:\n{screen}"));
        let order =
            ["■ ladder p2p-on", "★ desync:4 p2p-on", "● standard p2p-on", "▼ upper-bound p2p-on"];
        assert!(order.map(at).is_sorted(), "{screen}");
        driver.tap(KeyCode::Enter);
        assert_eq!(driver.state.pareto.current().unwrap().spec.label(), "ladder tp8 b4 p2p-on");
    }
}

#[test]
fn ratios_say_what_they_are_over_and_are_left_out_across_batch_sizes() {
    let mut driver = driver(120, 40);
    next_group(&mut driver);
    type_limit(&mut driver, "600");
    driver.state.pareto.table = Some(true);
    let shown = driver.screen();
    assert!(shown.contains("×: over standard's best, same batch and P2P"), "{shown}");
    // the limit that was asked for, and no other
    let head = shown.lines().find(|line| line.contains("best tokens/s/GPU")).unwrap_or_default();
    assert_eq!(head.trim(), "best tokens/s/GPU within 600 ms", "{shown}");
    let row = |name: &str| shown.lines().find(|line| line.contains(name)).unwrap_or_default().to_owned();
    let [standard, ladder] = [row("● standard p2p-on"), row("■ ladder p2p-on")];
    assert!(!standard.contains('×') && !shown.contains("×*"), "one over itself is no news: {shown}");
    assert!(ladder.contains("1307 4x64  at ") && ladder.contains(" ms  1.14×"), "both axes: {shown}");
    // the answer names the TP and batch of a rival that has others than the winner
    driver.send(Message::Resize(200, 60));
    driver.shows("T: hide the table");
    let answer = driver.screen().lines().nth(1).unwrap_or_default().to_owned();
    let pareto = &driver.state.pareto;
    let label = |run: &str| pareto.visible().find(|point| point.run == run).unwrap().label();
    let mut best = pareto.best_within.iter();
    let winner = label(&best.next().unwrap().run);
    let standard = best.find(|best| best.architecture.to_string() == "standard").unwrap();
    let own = label(&standard.run);
    assert_eq!(answer.contains(&format!("standard {own}: ")), own != winner, "{answer}");
    // the list of a window without room for the table has the same texts and says what they mean
    driver.state.pareto.table = None;
    driver.send(Message::Resize(60, 16));
    type_limit(&mut driver, "300");
    driver.taps("T");
    driver.shows("×: over standard's best, same batch and P2P");
    let shown = driver.screen();
    let ladder = shown.lines().find(|line| line.contains("■ ladder p2p-on")).unwrap_or_default();
    assert!(ladder.contains(" 913 8x64 ") && !ladder.contains('×'), "over batch 16: {shown}");
}

#[test]
fn without_a_limit_the_table_has_the_best_of_all_points() {
    let driver = driver(120, 40);
    let shown = driver.screen();
    let head = shown.lines().find(|line| line.contains("best tokens/s/rank")).unwrap_or_default();
    assert_eq!(head.trim(), "best tokens/s/rank", "no limit that nobody set: {shown}");
    let row = shown.lines().find(|line| line.contains(" ■ ladder p2p-on  ")).unwrap_or_default();
    assert!(row.contains("  147 2x4  at "), "{shown}");
}

#[test]
fn a_dash_is_explained_where_a_series_has_no_point_within_the_limit() {
    let mut driver = driver(200, 60);
    driver.state.pareto.table = Some(true);
    type_limit(&mut driver, "150");
    driver.hides("best tokens/s/rank within");
    type_limit(&mut driver, "200");
    let shown = driver.screen();
    let row = shown.lines().find(|line| line.contains(" ● standard p2p-on  ")).unwrap_or_default();
    assert!(row.contains("   -"), "standard takes longer: {shown}");
    driver.shows("-: no point");
    driver.hides("-: no standard");
}

#[test]
fn near_misses_have_their_unit() {
    let mut driver = driver(120, 40);
    driver.state.pareto.table = Some(true);
    let is_standard = |point: &&ParetoPoint| {
        point.spec.architecture == plan::Architecture::Standard && point.spec.p2p == P2p::On
    };
    let pareto = &driver.state.pareto;
    let most = pareto.visible().filter(is_standard).max_by(|a, b| {
        let [a, b] = [a, b].map(|point| pareto.axes.y.value(point).unwrap());
        a.total_cmp(&b)
    });
    let (label, x) = most.map(|point| (point.label(), point.completion_ms)).unwrap();
    type_limit(&mut driver, &format!("{} ms", 0.97 * x));
    driver.shows(&format!("  ~{label} "));
    driver.shows("~: just over the limit (ms)");
}

#[test]
fn a_limit_of_another_axis_is_typed_with_its_name() {
    let mut driver = driver(80, 24);
    driver.shows("completion latency (ms)");
    driver.taps("t");
    driver.shows("'30 ms tpot' limits TPOT");
    driver.tap(KeyCode::Esc);
    type_limit(&mut driver, "tpot<6.5");
    driver.shows("TPOT (ms)");
    driver.shows(" 6.5 ms: ladder 8x4 p2p-on, 80.6");
}
