//! The filter of a screen, and the experiment that results open on.

use std::sync::Arc;

use crossterm::event::KeyCode;

use super::fixtures::{Driver, experiment, record, spec};
use crate::face::tui::context::Snapshot;
use crate::face::tui::screen::Tab;
use crate::face::tui::screens::experiments::state::Entry;
use crate::face::tui::theme::{Role, Theme};
use crate::face::tui::update::Message;
use lab::store::{Annotations, Edit};
use lab::sweep::Experiment;
use table::{Backend, P2p, Record};

/// Runs of two experiments, the newest of `later`.
fn two_experiments() -> Arc<Snapshot> {
    let mut all = Vec::new();
    for (experiment, batch) in [("earlier", 1), ("later", 4)] {
        for architecture in ["standard", "ladder", "upper-bound"] {
            for tp in [2, 4, 8] {
                let mut spec = spec(architecture, tp, P2p::On, Backend::Sim);
                spec.batch = batch;
                let speed = 400.0 * f64::from(tp * batch) + architecture.len() as f64;
                let id = format!("20260103-101500-{}", all.len() + 10);
                all.push(Record { experiment: Some(experiment.into()), ..record(&id, spec, speed) });
            }
        }
    }
    Arc::new(Snapshot::new(all, Vec::new()))
}

fn driver() -> Driver {
    let mut driver = Driver::empty(120, 40);
    let effects = driver.send(Message::Runs(Ok(two_experiments())));
    driver.answer(effects);
    driver
}

#[test]
fn a_filter_narrows_its_screen_and_says_what_it_leaves() {
    let mut driver = driver();
    driver.taps("3/tp:4,8 arch:ladder");
    driver.tap(KeyCode::Enter);
    driver.shows("4 of 18 runs, tiny [simulated]  filter: tp:4,8 arch:ladder");
    driver.taps("5");
    driver.hides("filter:");
    driver.taps("/tp:4,8 arch:ladder");
    driver.tap(KeyCode::Enter);
    driver.shows("2 of 18 points  [later] filter: tp:4,8 arch:ladder");
    driver.taps("*");
    driver.shows("4 of 18 points  filter: tp:4,8 arch:ladder");
    driver.taps("6/tp:4,8 arch:ladder");
    driver.tap(KeyCode::Enter);
    // by architecture: ladder against standard, at both TPs of both experiments
    driver.shows("4 of 6 settings");
    driver.shows("filter: tp:4,8 arch:ladder");
    let command = driver.state.screen(Tab::Compare).command().expect("a command").words.join(" ");
    assert_eq!(command, "compare --by architecture --filter tp:4,8 arch:ladder --pivot");
    driver.tap(KeyCode::Esc);
    driver.shows("architecture: 6 settings");
    driver.taps("3");
    driver.shows("4 of 18 runs");
    // the first letter replaces the text
    driver.taps("/upper");
    driver.shows("filter: upper");
}

#[test]
fn results_open_on_the_experiment_that_was_looked_at_last() {
    let mut driver = driver();
    driver.taps("5");
    driver.shows("9 of 18 points  [later]");
    driver.taps("3");
    driver.shows("18 of 18 runs");
    driver.tap(KeyCode::End);
    driver.taps("6");
    driver.shows("[earlier]");
    driver.shows("3 of 6 settings");
    // Escape drops what is typed, and never the experiment
    driver.taps("/tp:8");
    driver.tap(KeyCode::Enter);
    driver.shows("1 of 6 settings");
    driver.shows("[earlier] filter: tp:8");
    driver.tap(KeyCode::Esc);
    driver.shows("3 of 6 settings");
    driver.tap(KeyCode::Esc);
    driver.shows("3 of 6 settings");
    driver.taps("*");
    driver.shows("architecture: 6 settings");
    driver.taps("5");
    driver.hides("[earlier]");
    driver.taps("*");
    driver.shows("[earlier]");
    // Backspace in the empty box takes the chip away
    driver.taps("/");
    driver.tap(KeyCode::Backspace);
    driver.tap(KeyCode::Enter);
    driver.hides("[earlier]");
    driver.taps("3");
    driver.tap(KeyCode::Home);
    driver.taps("6");
    driver.shows("[later]");
    driver.taps("/tp:8");
    driver.tap(KeyCode::Enter);
    driver.taps("3");
    driver.shows("18 of 18 runs");
    driver.taps("*");
    driver.shows("this screen does not show the runs of one experiment");
}

#[test]
fn runs_that_an_experiment_found_stored_are_among_those_it_opens_on() {
    let all = two_experiments();
    let mut annotations = Annotations::default();
    let found = [all.records[0].run.clone(), all.records[4].run.clone()];
    annotations.edit(&found, &Edit::found_by("later"));
    let snapshot = Snapshot::annotated(all.records.to_vec(), Vec::new(), Arc::new(annotations));
    let mut driver = Driver::empty(120, 40);
    let effects = driver.send(Message::Runs(Ok(Arc::new(snapshot))));
    driver.answer(effects);
    driver.taps("5");
    driver.shows("11 of 18 points  [later]");
}

/// The workbench with two experiments and a run of each of their cells, the newest of `one`.
fn of_experiments() -> Driver {
    let named = |(name, batch): (&str, u32)| {
        let mut named = experiment();
        named.name = name.into();
        named.cells.iter_mut().for_each(|cell| cell.spec.batch = batch);
        named
    };
    let both = [("one", 1), ("two", 2)].map(named);
    let run = |of: &Experiment| {
        let id = format!("20260103-101500-{}", of.name);
        let record = record(&id, of.cells[0].spec.clone(), 400.0);
        Record { experiment: Some(of.name.clone()), ..record }
    };
    let all = vec![run(&both[1]), run(&both[0])];
    let mut driver = Driver::empty(120, 40);
    let entry = |of: Experiment| Entry::new(&of.name.clone(), "built in", of.text.clone(), Ok(of));
    let effects = driver.read(both.map(entry).into());
    driver.answer(effects);
    let effects = driver.send(Message::Runs(Ok(Arc::new(Snapshot::new(all, Vec::new())))));
    driver.answer(effects);
    driver
}

/// The experiment that was selected, not the one that the screen of experiments came up on, is what results open on.
#[test]
fn results_open_on_the_experiment_that_was_selected() {
    let mut driver = of_experiments();
    driver.taps("15");
    driver.shows("[one]");
    driver.taps("1");
    driver.tap(KeyCode::Down);
    driver.taps("5");
    driver.shows("[two]");
}

#[test]
fn a_key_without_a_binding_says_so() {
    let mut driver = driver();
    driver.taps("3Z");
    driver.shows("Z does nothing on this screen; ? lists the keys");
}

#[test]
fn the_name_of_a_new_experiment_can_begin_like_another() {
    let mut driver = of_experiments();
    driver.taps("1c");
    driver.shows("one-copy");
    for _ in 0.."one-copy".len() {
        driver.tap(KeyCode::Backspace);
    }
    driver.taps("tw");
    driver.tap(KeyCode::Tab);
    driver.taps("-64");
    driver.shows("two-64");
}

#[test]
fn what_lies_on_a_screen_stands_on_the_ground_of_the_theme() {
    for name in ["light", "dark"] {
        let mut driver = of_experiments();
        driver.state.cx.theme = Theme::built_in(name).unwrap();
        let ground = driver.state.cx.theme.style(Role::Text).bg;
        driver.taps("?");
        let buffer = driver.buffer();
        let inside = (30..90).flat_map(|x| (10..30).map(move |y| (x, y)));
        let off: Vec<_> = inside.filter(|at| buffer[*at].style().bg != ground).collect();
        assert!(ground.is_some() && off.is_empty(), "{name}: {off:?}");
    }
}

#[test]
fn every_filter_offers_what_can_be_typed_next() {
    for screen in ["3", "5", "6"] {
        let mut driver = driver();
        driver.taps(screen);
        driver.tap(KeyCode::Esc);
        driver.taps("/arch:lad");
        driver.shows("6 runs");
        driver.tap(KeyCode::Tab);
        driver.tap(KeyCode::Enter);
        driver.shows("filter: arch:ladder");
    }
}
