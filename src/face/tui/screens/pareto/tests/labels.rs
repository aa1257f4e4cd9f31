//! Labels, marks and suffixes of points, and their explanation.

use std::collections::HashSet;
use std::sync::Arc;

use crossterm::event::KeyCode;

use super::super::{draw, layout};
use super::{SIZES, driver, next_group, records};
use crate::face::tui::context::Snapshot;
use crate::face::tui::tests::fixtures::Driver;
use crate::face::tui::theme::Theme;
use crate::face::tui::update::Message;
use table::{Backend, Record};

#[test]
fn the_note_on_labels_leaves_the_axis_title_whole() {
    let mut driver = driver(64, 16);
    let has_log = (0..4).any(|_| {
        driver.keys("e");
        let screen = driver.screen();
        assert!(screen.contains(" TP x batch"), "{screen}");
        screen.contains("tokens/s/rank (log) over completion latency (ms) ")
    });
    assert!(has_log, "{}", driver.screen());
}

#[test]
fn without_colours_lines_have_the_marks_of_their_architectures() {
    let mut driver = driver(120, 40);
    let marks = |driver: &Driver| ["•", "▪", "▴"].map(|mark| driver.screen().matches(mark).count());
    let before = marks(&driver);
    driver.state.cx.theme = Theme::new(false);
    let now = marks(&driver);
    assert!(before.iter().zip(now).all(|(before, now)| *before < now), "{before:?} {now:?}");
    driver.shows("small: dominated, or along a line");
}

#[test]
fn labels_are_of_the_selected_series_and_the_ends_of_the_frontier() {
    for (columns, rows) in SIZES {
        let mut driver = driver(columns, rows);
        driver.shows("labels: TP x batch (selected series, frontier's ends)");
        for _ in 0..30 {
            let (pareto, cx) = (&driver.state.pareto, &driver.state.cx);
            let plot = layout::plot(pareto, cx.body());
            let drawn = draw::drawn(pareto, &plot);
            let labels = draw::labelled(pareto, cx, &plot, &drawn, &[], &HashSet::new());
            let points: Vec<(u16, u16)> = drawn.iter().map(|d| d.cell).collect();
            assert!(!labels.is_empty());
            for (label, _) in &labels {
                let at = drawn[label.point].index;
                let own = pareto.looks[at].0 == pareto.looks[pareto.selected].0;
                assert!(own || pareto.ends.contains(&Some(at)), "{label:?}");
                let covers = |x: u16| points.contains(&(x, label.y));
                let wide = label.text.chars().count() as u16;
                assert!(!(label.x..label.x + wide).any(covers), "{label:?} lies on a point");
            }
            driver.taps("n");
        }
    }
}

#[test]
fn the_plot_says_which_corner_is_better_and_what_close_means() {
    for (columns, rows) in [(80, 24), (120, 40), (200, 60)] {
        let mut driver = driver(columns, rows);
        driver.shows("↖ better");
        driver.taps("aaa");
        driver.shows("↗ better");
    }
    let mut driver = driver(120, 40);
    driver.shows("↖ better; on the frontier: ladder");
    driver.shows("undecided: intervals overlap");
    driver.taps("L");
    driver.shows("legend; undecided: intervals overlap");
    driver.tap(KeyCode::Esc);
    next_group(&mut driver);
    driver.shows("close: within the simulator's error");
    let errors = driver.state.pareto.errors.values().next().cloned();
    assert!(errors.is_some(), "simulated cells have an error, or say that it is not known");
}

#[test]
fn small_marks_and_suffixes_are_explained_where_there_is_room_and_otherwise_in_the_help() {
    let mut driver = with_micro_batches();
    driver.send(Message::Resize(200, 60));
    driver.shows("•▪▴ small: dominated; ² micro2");
    driver.send(Message::Resize(60, 16));
    driver.shows("dominated; ² micro2");
    let mut driver = self::driver(80, 24);
    driver.hides(" small: dominated");
    driver.taps("?");
    driver.shows("marks: •◦▪ small: dominated");
    driver.tap(KeyCode::Esc);
    driver.taps("L");
    driver.shows("▪ dominated");
}

/// A driver whose ladders ran in micro-batches, too.
fn with_micro_batches() -> Driver {
    let mut all = records();
    all.retain(|record| record.spec.backend == Backend::Sim);
    let ladders = all.iter().filter(|r| r.spec.architecture.to_string() == "ladder").cloned();
    let halves: Vec<Record> = ladders
        .map(|mut record| {
            record.spec.micro_batches = 2;
            record.run.push_str("-micro");
            record
        })
        .collect();
    all.extend(halves);
    let mut driver = Driver::empty(120, 40);
    let effects = driver.send(Message::Runs(Ok(Arc::new(Snapshot::new(all, Vec::new())))));
    driver.answer(effects);
    driver.taps("5");
    driver
}

#[test]
fn series_of_one_shape_are_told_apart_and_the_legend_is_of_what_the_filter_leaves() {
    let mut driver = with_micro_batches();
    let marks: Vec<String> = driver.state.pareto.entries.iter().map(|entry| entry.mark()).collect();
    let distinct: std::collections::BTreeSet<&String> = marks.iter().collect();
    assert_eq!(distinct.len(), marks.len(), "{marks:?}");
    driver.taps("/ladder tp:8 p2p:off");
    driver.tap(KeyCode::Enter);
    let marks: Vec<String> = driver.state.pareto.entries.iter().map(|entry| entry.mark()).collect();
    assert_eq!(marks, ["□", "□²"], "as before the filter");
    let shown = driver.screen();
    assert!(shown.contains("□² ladder p2p-off") && !shown.contains("standard p2p"), "{shown}");
    assert!(!shown.contains("upper-bound"), "{shown}");
}

#[test]
fn points_on_one_another_are_marked_counted_and_stepped_through() {
    let mut driver = with_micro_batches();
    let is_plain = |point: &study::analysis::ParetoPoint| {
        point.spec.architecture.to_string() == "ladder"
            && point.spec.micro_batches == 1
            && point.on_series_frontier
    };
    let at = driver.state.pareto.visible().position(is_plain).expect("a ladder");
    driver.state.pareto.selected = at;
    let name = |driver: &Driver| driver.state.pareto.current().map(|point| point.run.clone()).unwrap();
    let (first, shown) = (name(&driver), driver.screen());
    assert!(shown.contains("; 2 points here (n: next)"), "{shown}");
    assert!(shown.contains("[■]") || shown.contains("[□]"), "the selected point stands out: {shown}");
    driver.taps("n");
    if !name(&driver).starts_with(&first) {
        driver.taps("NN");
    }
    assert_eq!(name(&driver), format!("{first}-micro"), "the other one in the same place");
    assert!(driver.screen().contains("; 2 points here (N: previous)"));
}
