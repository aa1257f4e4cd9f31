//! The group that is shown: at the start, after a choice, and after new runs.

use std::sync::Arc;

use crossterm::event::KeyCode;

use super::{driver, next_group, records, records_of};
use crate::face::tui::context::Snapshot;
use crate::face::tui::screen::AnyScreen as _;
use crate::face::tui::tests::fixtures::Driver;
use crate::face::tui::update::Message;
use table::{P2p, Provenance, Record, Status};

#[test]
fn an_undone_group_is_back_at_once_and_overrides_no_later_choice() {
    let mut driver = driver(120, 40);
    let first = driver.state.pareto.group;
    next_group(&mut driver);
    let second = driver.state.pareto.group;
    assert_ne!(first, second);
    driver.taps("u");
    assert!(driver.screen().contains("undone: group"), "{}", driver.screen());
    assert_eq!(driver.state.pareto.group, first);
    next_group(&mut driver);
    driver.keys("a");
    assert_eq!(driver.state.pareto.group, second, "also with the new axis' points");
}

#[test]
fn a_plot_never_mixes_and_the_group_is_chosen_from_a_list() {
    let mut driver = driver(120, 40);
    let provenances = |driver: &Driver| -> Vec<Provenance> {
        let mut all: Vec<_> = driver.state.pareto.visible().map(|p| p.provenance).collect();
        all.dedup();
        all
    };
    assert_eq!(provenances(&driver), [Provenance::EmulatedLink], "what ran comes first");
    driver.taps("g");
    assert!(driver.screen().contains("shown now, "), "{}", driver.screen());
    driver.taps("simulated");
    driver.tap(KeyCode::Enter);
    assert!(driver.state.cx.overlays.is_empty());
    assert_eq!(provenances(&driver), [Provenance::Simulated]);
    assert!(driver.screen().contains("[simulated]"));
}

#[test]
fn it_opens_on_what_was_run_last_and_keeps_what_was_chosen() {
    let of_model = |model: &str, id: &str| {
        let mut records = records_of(|spec| spec.model = model.to_owned());
        records.retain(|record| record.provenance == Provenance::Simulated);
        for (at, record) in records.iter_mut().enumerate() {
            (record.run, record.created) = (format!("{id}:{at}"), id.to_owned());
        }
        records
    };
    let (old, new) = (of_model("1b", "20260101-0900"), of_model("3b", "20260102-0900"));
    let mut driver = Driver::empty(120, 40);
    let read = |driver: &mut Driver, records: Vec<Record>| {
        let effects = driver.send(Message::Runs(Ok(Arc::new(Snapshot::new(records, Vec::new())))));
        driver.answer(effects);
    };
    let shown = |driver: &Driver| driver.state.pareto.current().unwrap().spec.model.clone();
    driver.taps("5");
    read(&mut driver, old.clone());
    assert_eq!(shown(&driver), "1b");
    let (both, more) = ([old, new].concat(), of_model("llama-3-8b", "20260103-0900"));
    read(&mut driver, both.clone());
    assert_eq!(shown(&driver), "3b", "the newest");
    // a filter shows its group, and chooses none
    driver.taps("/model:1b");
    driver.tap(KeyCode::Enter);
    assert_eq!(shown(&driver), "1b", "what the filter leaves");
    driver.tap(KeyCode::Esc);
    read(&mut driver, [both.clone(), of_model("3b", "20260103-0100")].concat());
    assert_eq!(shown(&driver), "3b", "the newest again");
    driver.taps("g");
    (0..3).for_each(|_| driver.tap(KeyCode::Up));
    driver.tap(KeyCode::Enter);
    assert_eq!(shown(&driver), "1b", "chosen");
    read(&mut driver, [both.clone(), more.clone()].concat());
    assert_eq!(shown(&driver), "1b", "what was chosen stays");
    // at the next start it is there again, unless something was run since
    let kept = driver.state.pareto.remember().unwrap();
    let again = |records: Vec<Record>| {
        let mut driver = Driver::empty(120, 40);
        driver.state.pareto.recall(&kept, &mut driver.state.cx);
        driver.taps("5");
        read(&mut driver, records);
        shown(&driver)
    };
    assert_eq!(again([both.clone(), more.clone()].concat()), "1b");
    let last = of_model("llama-3-70b", "20260104-0900");
    assert_eq!(again([both, more, last].concat()), "llama-3-70b");
}

#[test]
fn it_opens_on_the_group_of_the_experiment_and_otherwise_on_the_largest() {
    let opened_with = |experiment: Option<&str>| {
        let mut all = records();
        all.retain(|record| record.provenance == Provenance::Simulated);
        all.iter_mut().for_each(|record| record.experiment = None);
        // the newest run is alone in its group
        let mut lone = all[0].clone();
        (lone.run, lone.spec.model) = ("lone".into(), "llama-3-8b".into());
        (lone.created, lone.experiment) = ("2026-02-03T03:04:05Z".into(), experiment.map(str::to_owned));
        all.push(lone);
        let mut driver = Driver::empty(120, 40);
        driver.taps("5");
        let effects = driver.send(Message::Runs(Ok(Arc::new(Snapshot::new(all, Vec::new())))));
        driver.answer(effects);
        driver
    };
    let shown = |driver: &Driver| driver.state.pareto.current().unwrap().spec.model.clone();
    assert_eq!(shown(&opened_with(None)), "tiny");
    let mut driver = opened_with(Some("alone"));
    driver.shows("[alone]");
    assert_eq!(shown(&driver), "llama-3-8b");
    driver.taps("*");
    driver.hides("[alone]");
    assert_eq!(shown(&driver), "llama-3-8b", "all runs, in the group that was shown");
}

#[test]
fn cells_that_do_not_fit_in_memory_are_counted_beside_the_points() {
    let mut all = records();
    all.retain(|r| r.provenance == Provenance::Simulated && r.spec.p2p == P2p::On);
    for record in all.iter_mut().filter(|record| record.spec.tp == 2 && record.spec.batch == 64) {
        (record.status, record.metrics) = (Status::Oom, None);
    }
    let mut driver = Driver::empty(120, 40);
    driver.taps("5");
    let effects = driver.send(Message::Runs(Ok(Arc::new(Snapshot::new(all, Vec::new())))));
    driver.answer(effects);
    driver.taps("/tp>=2");
    driver.tap(KeyCode::Enter);
    driver.shows(" 55 points; 5 cells do not fit in memory  ");
    driver.send(Message::Resize(80, 24));
    driver.shows(" 55 points; 5 out of memory  ");
    driver.tap(KeyCode::Esc);
    driver.taps("/tp:8");
    driver.tap(KeyCode::Enter);
    driver.shows(" 20 of 55 points  ");
}

/// Groups may have no part of their names in common.
#[test]
fn the_name_of_a_group_has_no_empty_part() {
    let mut all = records();
    let mut other = all[0].clone();
    (other.run, other.spec.model, other.spec.prompt_tokens) = ("other".into(), "3b".into(), 7);
    (other.spec.output_tokens, other.spec.hardware) = (9, "a100_sxm".into());
    (other.provenance, other.spec.stack) = (Provenance::Measured, "gpt-fast".into());
    all.push(other);
    let mut driver = Driver::empty(120, 40);
    let effects = driver.send(Message::Runs(Ok(Arc::new(Snapshot::new(all, Vec::new())))));
    driver.answer(effects);
    driver.taps("5");
    let titles = &driver.state.pareto.titles;
    assert!(titles.len() > 1 && titles.iter().all(|title| !title.ends_with(", ")), "{titles:?}");
}

#[test]
fn it_opens_on_a_group_that_compares_series_rather_than_on_a_larger_one() {
    let mut all = records();
    all.retain(|r| r.provenance == Provenance::Simulated && r.spec.tp == 8 && r.spec.batch == 1);
    let mut alone = records_of(|spec| spec.model = "3b".into());
    alone.retain(|r| r.provenance == Provenance::Simulated && r.spec.p2p == P2p::On);
    alone.retain(|r| r.spec.architecture.to_string() == "standard");
    assert!(alone.len() > all.len());
    alone.iter_mut().for_each(|record| record.run.push_str("-alone"));
    all.extend(alone);
    let mut driver = Driver::empty(120, 40);
    driver.taps("5");
    let effects = driver.send(Message::Runs(Ok(Arc::new(Snapshot::new(all, Vec::new())))));
    driver.answer(effects);
    assert_eq!(driver.state.pareto.current().unwrap().spec.model, "tiny");
}
