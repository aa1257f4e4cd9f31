//! The compare screen as a user meets it: a simulated grid of TPs and batches, and measured runs over an
//! emulated link.

mod list;
mod map;
mod pivot;

use std::sync::{Arc, LazyLock};

use crossterm::event::{KeyCode, KeyModifiers};

use crate::face::tui::context::Snapshot;
use crate::face::tui::screen::{AnyScreen as _, Screen, Tab};
use crate::face::tui::screens::compare::state::TableView;
use crate::face::tui::tests::fixtures::{Driver, compared, spec};
use crate::face::tui::update::{Effect, Message};
use lab::sweep::simulate_cells;
use table::{Backend, P2p, Record, Spec};

/// Simulated: architectures x TP x batch x P2P.
fn grid() -> &'static [Record] {
    static GRID: LazyLock<Vec<Record>> = LazyLock::new(|| {
        let mut specs: Vec<Spec> = Vec::new();
        for architecture in ["standard", "ladder", "upper-bound"] {
            for tp in [2, 4, 8] {
                for batch in [1, 4, 16, 64] {
                    for p2p in [P2p::On, P2p::Off] {
                        let mut spec = spec(architecture, tp, p2p, Backend::Sim);
                        (spec.model, spec.stack) = ("llama-3.2-1b".into(), "gpt-fast".into());
                        (spec.batch, spec.prompt_tokens, spec.output_tokens) = (batch, 128, 16);
                        specs.push(spec);
                    }
                }
            }
        }
        let mut records = Vec::new();
        simulate_cells(&specs.iter().collect::<Vec<_>>(), |index, mut record| {
            record.run = format!("batch-1:{index}");
            records.push(record);
        });
        records
    });
    &GRID
}

/// The screen with these runs stored.
fn on(records: Vec<Record>, (columns, rows): (u16, u16)) -> Driver {
    let mut driver = Driver::empty(columns, rows);
    driver.state.cx.tab = Tab::Compare;
    let effects = driver.send(Message::Runs(Ok(Arc::new(Snapshot::new(records, Vec::new())))));
    driver.answer(effects);
    driver
}

/// The list of pairs, with these runs stored.
fn pairs_on(records: Vec<Record>, size: (u16, u16)) -> Driver {
    let mut driver = on(records, size);
    driver.taps("t");
    driver
}

/// Line of the window that contains a text.
#[track_caller]
fn line_of(driver: &Driver, text: &str) -> String {
    let screen = driver.screen();
    let line = screen.lines().find(|line| line.contains(text)).map(str::to_owned);
    line.unwrap_or_else(|| panic!("{text}: {screen}"))
}

#[test]
fn the_pivot_at_three_sizes() {
    for (columns, rows) in [(60, 16), (80, 24), (120, 40)] {
        let driver = on(grid().to_vec(), (columns, rows));
        insta::assert_snapshot!(format!("pivot_{columns}x{rows}"), driver.screen());
    }
}

#[test]
fn tables_maps_and_details() {
    let mut driver = pairs_on(compared(), (120, 40));
    insta::assert_snapshot!("measured_120x40", driver.screen());
    driver.taps("f");
    insta::assert_snapshot!("flags_120x40", driver.screen());
    let mut driver = pairs_on(grid().to_vec(), (120, 40));
    driver.taps("s");
    insta::assert_snapshot!("simulated_120x40", driver.screen());
    driver.taps("tlj");
    insta::assert_snapshot!("map_120x40", driver.screen());
    driver.taps("v");
    insta::assert_snapshot!("map_exposed_120x40", driver.screen());
    driver.taps("c");
    insta::assert_snapshot!("slices_120x40", driver.screen());
}

#[test]
fn an_axis_is_picked_by_typing_and_only_those_that_vary_are_offered() {
    let mut driver = pairs_on(grid().to_vec(), (120, 40));
    driver.taps("a");
    let shown = driver.screen();
    for (axis, pairs) in [("architecture", "48 pairs"), ("p2p", "36 pairs"), ("tp", "48 pairs")] {
        let line = shown.lines().find(|line| line.contains(&format!("│ {axis} ")));
        assert!(line.is_some_and(|line| line.contains(pairs)), "{axis}: {shown}");
    }
    assert!(!shown.contains("hardware  "), "it does not vary: {shown}");
    driver.taps("p2");
    driver.tap(KeyCode::Enter);
    assert_eq!(driver.state.compare.asked.axis.to_string(), "p2p");
    driver.shows("by p2p against on: 36 comparisons");
    driver.taps("B");
    driver.press(KeyCode::Down);
    driver.tap(KeyCode::Enter);
    driver.shows("by p2p against off");
    let pair = driver.state.compare.selected().unwrap();
    assert_eq!((pair.baseline.as_str(), pair.value.as_str()), ("off", "on"));
    let words = driver.state.compare.command().unwrap().words.join(" ");
    assert_eq!(words, "compare --by p2p --against off");
}

#[test]
fn a_variable_is_an_axis_as_soon_as_runs_differ_in_it() {
    let mut records = compared();
    let mut tree: Vec<Record> = compared();
    for record in &mut tree {
        record.spec.env.insert("NCCL_ALGO".into(), "Tree".into());
        record.run.push_str("-tree");
    }
    records.extend(tree);
    let mut driver = pairs_on(records, (120, 40));
    driver.taps("aNCCL");
    driver.tap(KeyCode::Enter);
    let shown = driver.screen();
    assert!(shown.contains("by NCCL_ALGO against unset: 5 comparisons, 0 differ"), "{shown}");
    assert!(shown.contains("Tree        1.000x standard") && shown.contains("≈ undecided"), "{shown}");
}

#[test]
fn the_copied_command_says_what_it_leaves_out() {
    let mut driver = pairs_on(grid().to_vec(), (200, 40));
    let copied = |driver: &mut Driver| {
        let effects = driver.keys("Y");
        let [Effect::Copy(command)] = &effects[..] else { panic!("{effects:?}") };
        (command.clone(), driver.screen())
    };
    let (plain, told) = copied(&mut driver);
    assert!(plain == "ladderscope compare --by architecture" && told.contains("copied: ladderscope"));
    driver.taps("/ladder tp8");
    driver.enter();
    let (command, told) = copied(&mut driver);
    assert_eq!(command, format!("{plain} --filter 'ladder tp8'"));
    assert!(told.contains("copied: ladderscope"), "{told}");
    driver.taps("gg j ");
    let (_, told) = copied(&mut driver);
    assert!(told.contains("(without the 2 marks): "), "{told}");
    driver.taps("t");
    let slice = driver.state.compare.slice_name().to_owned();
    assert_eq!(slice, "ladder / standard", "P2P is an axis of the map");
    let (command, told) = copied(&mut driver);
    assert!(command.ends_with("--heatmap"), "{command}");
    assert!(told.contains("(without the rows and columns of the map): "), "{told}");
}

#[test]
fn flags_are_of_what_the_filter_leaves() {
    let mut records = compared();
    for record in records.iter_mut().filter(|record| record.run.starts_with("parallel")) {
        record.warnings = vec!["clocks throttled".into()];
    }
    let mut driver = pairs_on(records, (120, 40));
    driver.shows("⚑");
    for (filter, flagged) in [("/arch:ladder", false), ("/arch:parallel", true)] {
        driver.taps(filter);
        driver.tap(KeyCode::Enter);
        assert_eq!(driver.screen().contains("⚑"), flagged, "{}", driver.screen());
        assert_eq!(driver.state.compare.counts.tested, 1, "p-values of the pairs that are shown");
        driver.press(KeyCode::Esc);
    }
    driver.taps("/tp:77");
    driver.tap(KeyCode::Enter);
    driver.taps("f");
    let screen = driver.screen();
    for (said, is_said) in [
        ("0 differ; the filter leaves none", true),
        ("the filter leaves none of 1 flag", true),
        ("no p-values", false),
        ("nothing looks wrong", false),
    ] {
        assert_eq!(screen.contains(said), is_said, "{said}: {screen}");
    }
}

/// An experiment that reuses runs of another one has a headline; all runs have none.
#[test]
fn one_experiment_has_a_headline_whichever_runs_it_reuses() {
    let mut records = grid().to_vec();
    for record in &mut records {
        record.experiment = Some(format!("tp{}", record.spec.tp));
    }
    let driver = on(records, (120, 40));
    let compared = driver.state.compare.compared().unwrap();
    let pairs = std::sync::Arc::new(Vec::from_iter(0..compared.report.pairs.len()));
    let headline = |is_of_one| compared.answer(&(pairs.clone(), is_of_one)).headline;
    assert!(headline(false).ends_with(": no common headline"), "{}", headline(false));
    assert!(headline(true).starts_with("Ladder is "), "{}", headline(true));
}

#[test]
fn what_was_compared_is_compared_at_the_next_start() {
    let mut driver = pairs_on(grid().to_vec(), (120, 40));
    driver.taps("ap2p");
    driver.tap(KeyCode::Enter);
    driver.taps("ssr");
    assert_eq!(driver.state.compare.view, TableView::Pairs);
    let kept = driver.state.compare.remember().unwrap();
    let mut next = Driver::empty(120, 40);
    next.state.cx.tab = Tab::Compare;
    next.state.compare.recall(&kept, &mut next.state.cx);
    let snapshot = Arc::new(Snapshot::new(grid().to_vec(), Vec::new()));
    let effects = next.send(Message::Runs(Ok(snapshot)));
    next.answer(effects);
    assert_eq!(next.state.compare.asked, driver.state.compare.asked);
    assert_eq!(next.state.compare.shown, driver.state.compare.shown);
    assert_eq!(next.state.compare.view, TableView::Pivot, "opens on the summary");
    next.state.compare.recall(&serde_json::json!({ "by": "nothing", "order": 3 }), &mut next.state.cx);
    assert_eq!(next.state.compare.asked.axis.to_string(), "p2p");
}

#[test]
fn filters_orders_and_axes_are_undone_one_by_one() {
    let mut driver = on(grid().to_vec(), (120, 40));
    driver.taps("u");
    driver.shows("nothing to undo");
    driver.taps("/tp8 p2p-off");
    driver.enter();
    driver.shows("4 of 24 settings");
    driver.taps("s");
    driver.taps("ap2p");
    driver.enter();
    assert_eq!(driver.state.compare.asked.axis.to_string(), "p2p");
    driver.taps("u");
    driver.shows("undone: axis");
    assert_eq!(driver.state.compare.asked.axis.to_string(), "architecture");
    driver.shows("by ratio of the fastest");
    driver.taps("u");
    driver.shows("undone: order");
    driver.hides("by ratio of the fastest");
    driver.shows("4 of 24 settings");
    driver.taps("u");
    driver.shows("undone: filter");
    driver.shows("architecture: 24 settings");
    driver.chord(KeyCode::Char('r'), KeyModifiers::CONTROL);
    driver.shows("redone: filter");
    driver.shows("4 of 24 settings");
    driver.taps("u");
    driver.taps("u");
    driver.shows("nothing to undo");
}

#[test]
fn a_filter_that_leaves_nothing_says_why_and_what_to_write() {
    let mut driver = on(grid().to_vec(), (120, 40));
    driver.taps("/link:off");
    driver.tap(KeyCode::Enter);
    let shown = driver.screen();
    assert!(shown.contains("'link:off' matches none of"), "{shown}");
    assert!(shown.contains("did you mean p2p:off?"), "{shown}");
    driver.taps("t");
    driver.shows("did you mean p2p:off?");
}

#[test]
fn a_filter_that_leaves_nothing_writes_over_no_title() {
    for size in [(60, 16), (80, 24), (120, 40)] {
        let mut driver = on(grid().to_vec(), size);
        driver.taps("/tp:77");
        driver.tap(KeyCode::Enter);
        for _ in 0..2 {
            driver.shows("Esc clears the filter");
            let shown = driver.screen();
            let is_mixed = |line: &str| line.contains(" ms") && line.contains("filter");
            assert!(!shown.lines().any(is_mixed) && !shown.contains("TPOT ms"), "{shown}");
            driver.taps("t");
        }
    }
}

#[test]
fn runs_of_other_experiments_are_counted_apart() {
    let mut other = compared();
    for record in &mut other {
        record.experiment = Some("another".into());
        record.spec.batch = 8;
        record.run.push_str("-b8");
    }
    // the newest run decides the experiment
    let mut driver = on([other, compared()].concat(), (120, 40));
    driver.shows("1 setting (1 more in other experiments: * shows all)");
    driver.taps("t");
    driver.shows(": 4 comparisons (4 more in other experiments: * shows all), ");
    // the axes have as many pairs as they show
    driver.taps("a");
    assert!(line_of(&driver, "│ architecture ").contains("   4 pairs"), "{}", driver.screen());
    driver.tap(KeyCode::Esc);
    driver.taps("*");
    driver.shows(": 8 comparisons, ");
    driver.taps("a");
    assert!(line_of(&driver, "│ architecture ").contains("   8 pairs"), "{}", driver.screen());
    driver.tap(KeyCode::Esc);
    driver.taps("/parallel");
    driver.enter();
    driver.taps("a");
    assert!(line_of(&driver, "│ architecture ").contains("   2 pairs"), "{}", driver.screen());
}
