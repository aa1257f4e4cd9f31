//! The filter that goes from screen to screen, and the experiment that results open on.

use std::sync::Arc;

use crossterm::event::KeyCode;

use super::fixtures::{Driver, experiment, record, spec};
use crate::face::tui::memory;
use crate::face::tui::message::{Effect, Message};
use crate::face::tui::screens::experiments::state::Entry;
use crate::face::tui::snapshot::Snapshot;
use crate::face::tui::state::Tab;
use crate::face::tui::theme::{Role, Theme};
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

fn keys(driver: &mut Driver, text: &str) {
    let effects: Vec<Effect> = driver.keys(text);
    driver.answer(effects);
}

fn press(driver: &mut Driver, key: KeyCode) {
    let effects = driver.press(key);
    driver.answer(effects);
}

fn driver() -> Driver {
    let mut driver = Driver::empty(120, 40);
    let effects = driver.send(Message::Runs(Ok(two_experiments())));
    driver.answer(effects);
    driver
}

#[test]
fn a_filter_goes_from_screen_to_screen_and_says_what_it_leaves() {
    let mut driver = driver();
    keys(&mut driver, "3/tp:4,8 arch:ladder");
    press(&mut driver, KeyCode::Enter);
    assert!(driver.screen().contains("4 of 18 runs  filter: tp:4,8 arch:ladder"), "{}", driver.screen());
    keys(&mut driver, "5");
    assert!(
        driver.screen().contains("4 of 18 points  filter: tp:4,8 arch:ladder"),
        "{}",
        driver.screen()
    );
    keys(&mut driver, "6");
    // by architecture: ladder against standard, at both TPs of both experiments
    assert!(driver.screen().contains("4 of 12 pairs"), "{}", driver.screen());
    assert!(driver.screen().contains("filter: tp:4,8 arch:ladder"), "{}", driver.screen());
    let command = driver.state.screen(Tab::Compare).command().expect("a command").words.join(" ");
    assert_eq!(command, "compare --by architecture --filter tp:4,8 arch:ladder");
    press(&mut driver, KeyCode::Esc);
    assert!(driver.screen().contains("12 of 12 pairs"), "{}", driver.screen());
    keys(&mut driver, "3");
    assert!(
        driver.screen().contains("18 of 18 runs"),
        "dropped there, dropped here: {}",
        driver.screen()
    );
}

#[test]
fn results_open_on_the_experiment_that_was_looked_at_last() {
    let mut driver = driver();
    keys(&mut driver, "5");
    assert!(driver.screen().contains("9 of 18 points  filter: experiment=later"), "{}", driver.screen());
    keys(&mut driver, "3");
    assert!(driver.screen().contains("18 of 18 runs"), "nobody typed it: {}", driver.screen());
    press(&mut driver, KeyCode::End);
    keys(&mut driver, "6");
    assert!(driver.screen().contains("filter: experiment=earlier"), "{}", driver.screen());
    assert!(driver.screen().contains("6 of 12 pairs"), "{}", driver.screen());
    press(&mut driver, KeyCode::Esc);
    assert!(driver.screen().contains("12 of 12 pairs"), "{}", driver.screen());
    keys(&mut driver, "5");
    assert!(!driver.screen().contains("filter:"), "it was not wanted: {}", driver.screen());
    keys(&mut driver, "3");
    press(&mut driver, KeyCode::Home);
    keys(&mut driver, "6");
    assert!(driver.screen().contains("filter: experiment=later"), "another one: {}", driver.screen());
    keys(&mut driver, "/ tp:8");
    press(&mut driver, KeyCode::Enter);
    keys(&mut driver, "3");
    assert!(
        driver.screen().contains("3 of 18 runs  filter: experiment=later tp:8"),
        "what was typed into it goes along: {}",
        driver.screen()
    );
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
    keys(&mut driver, "5");
    assert!(
        driver.screen().contains("11 of 18 points  filter: experiment=later"),
        "{}",
        driver.screen()
    );
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
    keys(&mut driver, "15");
    assert!(driver.screen().contains("filter: experiment=one"), "the newest: {}", driver.screen());
    keys(&mut driver, "1");
    press(&mut driver, KeyCode::Down);
    keys(&mut driver, "5");
    assert!(driver.screen().contains("filter: experiment=two"), "{}", driver.screen());
}

#[test]
fn the_name_of_a_new_experiment_can_begin_like_another() {
    let mut driver = of_experiments();
    keys(&mut driver, "1c");
    assert!(driver.screen().contains("one-copy"), "{}", driver.screen());
    for _ in 0.."one-copy".len() {
        press(&mut driver, KeyCode::Backspace);
    }
    keys(&mut driver, "tw");
    press(&mut driver, KeyCode::Tab);
    keys(&mut driver, "-64");
    assert!(driver.screen().contains("two-64"), "{}", driver.screen());
}

#[test]
fn what_lies_on_a_screen_stands_on_the_ground_of_the_theme() {
    for name in ["light", "dark"] {
        let mut driver = of_experiments();
        driver.state.cx.theme = Theme::built_in(name).unwrap();
        let ground = driver.state.cx.theme.style(Role::Text).bg;
        keys(&mut driver, "?");
        let buffer = driver.buffer();
        let inside = (30..90).flat_map(|x| (10..30).map(move |y| (x, y)));
        let off: Vec<_> = inside.filter(|at| buffer[*at].style().bg != ground).collect();
        assert!(ground.is_some() && off.is_empty(), "{name}: {off:?}");
    }
}

#[test]
fn the_filter_survives_a_restart() {
    let mut before = driver();
    keys(&mut before, "3/arch:ladder");
    press(&mut before, KeyCode::Enter);
    let kept = memory::remember(&before.state);
    let mut after = Driver::empty(120, 40);
    memory::recall(&mut after.state, &kept, true);
    let effects = after.send(Message::Runs(Ok(two_experiments())));
    after.answer(effects);
    assert!(after.screen().contains("6 of 18 runs  filter: arch:ladder"), "{}", after.screen());
    keys(&mut after, "5");
    assert!(after.screen().contains("6 of 18 points  filter: arch:ladder"), "{}", after.screen());
}

#[test]
fn every_filter_offers_what_can_be_typed_next() {
    for screen in ["3", "5", "6"] {
        let mut driver = driver();
        keys(&mut driver, screen);
        press(&mut driver, KeyCode::Esc);
        keys(&mut driver, "/arch:lad");
        assert!(driver.screen().contains("6 runs"), "{screen}: {}", driver.screen());
        press(&mut driver, KeyCode::Tab);
        press(&mut driver, KeyCode::Enter);
        assert!(driver.screen().contains("filter: arch:ladder"), "{screen}: {}", driver.screen());
    }
}
