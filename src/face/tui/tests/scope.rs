//! The filter of a screen, and the scope of the result screens.

use std::sync::Arc;

use crossterm::event::KeyCode;

use super::fixtures::{Driver, experiment, record, spec};
use crate::face::tui::context::Snapshot;
use crate::face::tui::memory;
use crate::face::tui::screen::Tab;
use crate::face::tui::screens::experiments::state::ExperimentEntry;
use crate::face::tui::theme::{Role, Theme};
use crate::face::tui::update::{Effect, Message};
use lab::store::{AnnotationEdit, Annotations};
use lab::sweep::Experiment;
use table::{Backend, P2p, Record, Status};

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
fn a_filter_without_a_match_in_the_scope_names_the_term_and_the_values_of_the_scope() {
    let mut driver = driver();
    driver.taps("3/ladder batch:1");
    driver.tap(KeyCode::Enter);
    driver.shows("no run of later matches 'batch:1'; values of batch: 4");
}

#[test]
fn the_scope_and_a_long_filter_have_the_second_line() {
    let mut driver = Driver::empty(80, 24);
    let rename = |record: &Record| {
        let name =
            record.experiment.as_ref().map(|name| name.replace("later", "paper-70b-edited-2be3cd"));
        Record { experiment: name, ..record.clone() }
    };
    let records = two_experiments().records.iter().map(rename).collect();
    let effects = driver.send(Message::Runs(Ok(Arc::new(Snapshot::new(records, Vec::new())))));
    driver.answer(effects);
    driver.taps("3");
    driver.shows("[paper-70b-edited-2be3cd]");
    driver.taps("/arch:ladder tp:4,8 batch>=4");
    driver.tap(KeyCode::Enter);
    driver.shows("\n [paper-70b-edited-2be3cd] filter: arch:ladder tp:4,8 batch>=4");
}

#[test]
fn a_line_separates_the_filter_from_the_order_beside_it() {
    let mut driver = Driver::empty(60, 16);
    let effects = driver.send(Message::Runs(Ok(two_experiments())));
    driver.answer(effects);
    driver.taps("3/arch:ladder tp:2..8");
    driver.tap(KeyCode::Enter);
    driver.shows("filter: arch:ladder tp:2..8 │ lowest TPOT first");
}

#[test]
fn a_filter_narrows_its_screen_and_says_what_it_leaves() {
    let mut driver = driver();
    driver.taps("3/tp:4,8 arch:ladder");
    driver.tap(KeyCode::Enter);
    driver.shows("2 of 18 runs, tiny [simulated]  [later] filter: tp:4,8 arch:ladder");
    driver.taps("5");
    driver.hides("filter:");
    driver.taps("/tp:4,8 arch:ladder");
    driver.tap(KeyCode::Enter);
    driver.shows("2 of 9 points  [later] filter: tp:4,8 arch:ladder");
    driver.taps("*");
    driver.shows("4 of 18 points  [all runs] filter: tp:4,8 arch:ladder");
    driver.taps("6/tp:4,8 arch:ladder");
    driver.tap(KeyCode::Enter);
    // by architecture: ladder against standard, at both TPs of both experiments
    driver.shows("4 of 6 settings");
    driver.shows("[all runs] filter: tp:4,8 arch:ladder");
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
fn runs_pareto_and_compare_have_one_scope_that_each_of_them_names() {
    let shown = |screen: &str, is_one: bool| match (screen, is_one) {
        ("3", true) => "9 of 18 runs, tiny (9 of other experiments: *)",
        ("3", false) => "18 of 18 runs",
        ("5", true) => "9 points  [later]",
        ("5", false) => "[all runs]",
        (_, true) => "architecture: 3 settings (3 more in other experiments: * shows all)",
        (_, false) => "architecture: 6 settings",
    };
    for path in ["356", "653", "5363"] {
        let mut driver = driver();
        for screen in path.split("").filter(|key| !key.is_empty()) {
            driver.taps(screen);
            driver.shows("[later]");
            driver.shows(shown(screen, true));
            // a run of another experiment under the cursor changes nothing
            driver.tap(KeyCode::End);
        }
        driver.taps("*");
        for screen in ["3", "5", "6"] {
            driver.taps(screen);
            driver.shows("[all runs]");
            driver.shows(shown(screen, false));
            driver.tap(KeyCode::End);
        }
        driver.taps("*5");
        driver.shows("[later]");
    }
}

#[test]
fn a_narrow_comparison_says_what_the_scope_hides() {
    let mut driver = driver();
    driver.taps("6");
    driver.send(Message::Resize(100, 30));
    driver.shows("architecture: 3 settings (3 more in other experiments: * shows all)");
}

#[test]
fn only_its_key_changes_the_scope() {
    let mut driver = driver();
    driver.taps("6/tp:8");
    driver.tap(KeyCode::Enter);
    driver.shows("1 of 3 settings");
    driver.shows("[later] filter: tp:8");
    // Escape and Backspace drop what is typed, and never the experiment
    driver.tap(KeyCode::Esc);
    driver.shows("architecture: 3 settings");
    driver.tap(KeyCode::Esc);
    driver.taps("/");
    driver.tap(KeyCode::Backspace);
    driver.tap(KeyCode::Enter);
    driver.shows("[later]");
    driver.taps("4*");
    driver.shows("this screen does not show the runs of one experiment");
    driver.taps("6");
    driver.shows("[later]");
}

#[test]
fn a_scope_without_points_or_pairs_says_which_key_shows_all_runs() {
    let mut all = two_experiments().records.to_vec();
    // the newest experiment has a failed run alone
    let mut failed = all[17].clone();
    (failed.spec.batch, failed.experiment) = (64, Some("failing".into()));
    (failed.run, failed.status, failed.metrics) = ("failed".into(), Status::Failed, None);
    all.push(failed);
    let mut driver = Driver::empty(120, 40);
    let effects = driver.send(Message::Runs(Ok(Arc::new(Snapshot::new(all, Vec::new())))));
    driver.answer(effects);
    driver.taps("5");
    driver.shows("experiment failing hides all points: * shows all");
    driver.taps("6");
    driver.shows("experiment failing has no complete pair yet; * shows all runs.");
    driver.taps("3");
    driver.shows("1 of 19 runs");
    driver.taps("/tp:2");
    driver.tap(KeyCode::Enter);
    driver.shows("Esc clears the filter, / changes it, * shows all runs");
    driver.taps("*5");
    driver.hides("hides all points");
}

/// An earlier experiment ran the same cells with another all-reduce, and faster.
#[test]
fn a_frontier_is_of_the_points_in_scope_and_those_of_all_runs_name_their_all_reduce() {
    let mut all = two_experiments().records.to_vec();
    for earlier in &mut all[..9] {
        let mut spec = earlier.spec.clone();
        (spec.batch, spec.collective) = (4, "one-shot".parse().unwrap());
        let speed = 5000.0 * f64::from(spec.tp);
        *earlier = Record { experiment: Some("earlier".into()), ..record(&earlier.run, spec, speed) };
    }
    let mut driver = Driver::empty(120, 40);
    let effects = driver.send(Message::Runs(Ok(Arc::new(Snapshot::new(all, Vec::new())))));
    driver.answer(effects);
    driver.taps("5");
    driver.shows("9 points  [later]");
    driver.shows(" p2p-on: on the frontier");
    driver.hides("one-shot");
    driver.taps("*");
    driver.shows(" p2p-on nccl: best of its series, dominated overall (by ");
    driver.shows("² one-shot");
    // the typed limit of an experiment stays with all runs
    driver.taps("*t");
    driver.taps("9000");
    driver.tap(KeyCode::Enter);
    driver.shows("within 9");
    driver.taps("*");
    driver.shows("within 9");
}

/// The axis of one experiment is not that of another, and only axes with pairs in scope come next.
#[test]
fn another_experiment_is_compared_by_its_own_axis() {
    let mut all = two_experiments().records.to_vec();
    // the later one has a single architecture
    all.retain(|record| record.spec.batch == 1 || record.spec.architecture.to_string() == "ladder");
    let mut driver = Driver::empty(120, 40);
    let effects = driver.send(Message::Runs(Ok(Arc::new(Snapshot::new(all, Vec::new())))));
    driver.answer(effects);
    driver.taps("6");
    driver.shows("[later]");
    driver.shows("tp: ");
    driver.taps("]");
    driver.shows("these runs have pairs by tp only");
    driver.taps("*");
    driver.taps("]");
    driver.shows("compared by ");
}

#[test]
fn runs_of_the_same_cells_are_in_the_scope_whichever_experiment_made_them() {
    let all = two_experiments();
    let mut annotations = Annotations::default();
    let found = [all.records[0].run.clone(), all.records[4].run.clone()];
    annotations.edit(&found, &AnnotationEdit::found_by("later"));
    let snapshot = Snapshot::annotated(all.records.to_vec(), Vec::new(), Arc::new(annotations));
    let mut driver = Driver::empty(120, 40);
    let effects = driver.send(Message::Runs(Ok(Arc::new(snapshot))));
    driver.answer(effects);
    driver.taps("5");
    driver.shows("11 points  [later]");
    // another experiment runs all cells of `later` again: a point is then of its newest run
    let again = all.records[9..].iter().map(|record| Record {
        run: format!("{}-again", record.run),
        experiment: Some("again".into()),
        ..record.clone()
    });
    let one_again = all.records.iter().cloned().chain(again).collect();
    driver = Driver::empty(120, 40);
    let effects = driver.send(Message::Runs(Ok(Arc::new(Snapshot::new(one_again, Vec::new())))));
    driver.answer(effects);
    driver.taps("3");
    driver.shows("18 of 27 runs");
    driver.shows("[again]");
    driver.taps("5");
    driver.shows("9 points  [again]");
    let command = driver.state.screen(Tab::Runs).command().expect("a command");
    assert!(command.words.join(" ").contains("--filter experiment=again"), "{command:?}");
    let beyond =
        ["9 runs of the same cells from other experiments", "the default order", "pooled rounds"];
    assert_eq!(command.beyond, beyond);
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
    let entry =
        |of: Experiment| ExperimentEntry::new(&of.name.clone(), "built in", of.text.clone(), Ok(of));
    let effects = driver.read(both.map(entry).into());
    driver.answer(effects);
    let effects = driver.send(Message::Runs(Ok(Arc::new(Snapshot::new(all, Vec::new())))));
    driver.answer(effects);
    driver
}

#[test]
fn choosing_an_experiment_on_screen_1_changes_the_scope() {
    let mut driver = of_experiments();
    driver.taps("15");
    driver.shows("[one]");
    // the cursor moves to another experiment, and the result screens open on it
    driver.taps("1");
    driver.tap(KeyCode::Down);
    driver.taps("3");
    driver.shows("[two]");
    // unless it is the same as at the last time
    driver.taps("*15");
    driver.shows("[all runs]");
    driver.taps("*");
    driver.shows("[two]");
    driver.taps("*16");
    driver.shows("[all runs]");
    driver.taps("*");
    driver.shows("[two]");
    // before a sweep, screen 2 has the stored result of the same experiment
    driver.taps("2");
    driver.shows("result of two");
    driver.taps("1*");
    driver.shows("runs, pareto and compare show all runs");
    driver.taps("6");
    driver.shows("[all runs]");
    driver.taps("1*3");
    driver.shows("[two]");
    // so does running one
    driver.taps("1");
    driver.tap(KeyCode::Up);
    driver.keys("r");
    driver.taps("3");
    driver.shows("[one]");
}

#[test]
fn screen_2_has_the_stored_result_of_the_selected_experiment() {
    let mut driver = of_experiments();
    driver.taps("12");
    driver.shows("stored result of one");
    driver.taps("1");
    driver.tap(KeyCode::Down);
    driver.taps("2");
    driver.shows("stored result of two");
    // its keys run no other experiment
    driver.taps("1");
    driver.tap(KeyCode::Up);
    driver.tap(KeyCode::Enter);
    driver.shows("3 runs of one are missing: r runs them");
    driver.taps("1");
    driver.tap(KeyCode::Down);
    driver.taps("2");
    driver.shows("stored result of two");
    driver.state.cx.notice = None;
    driver.hides("run missing");
    driver.hides("runs of one");
}

#[test]
fn a_filter_that_stays_for_another_experiment_is_named_with_the_key_that_clears_it() {
    let mut driver = of_experiments();
    driver.taps("13/tpot<30");
    driver.tap(KeyCode::Enter);
    driver.hides("still applies");
    driver.taps("1");
    driver.tap(KeyCode::Down);
    driver.taps("3");
    driver.shows("[two] filter: tpot<30");
    driver.shows("the filter tpot<30 still applies: Esc clears it");
    driver.tap(KeyCode::Esc);
    driver.hides("filter: tpot<30");
}

#[test]
fn each_experiment_opens_in_its_own_order() {
    let mut driver = of_experiments();
    driver.taps("13s");
    let sorted = driver.state.runs.sort.clone();
    assert!(!sorted.is_empty());
    driver.taps("1");
    driver.tap(KeyCode::Down);
    driver.taps("3");
    driver.shows("[two]");
    assert!(driver.state.runs.sort.is_empty(), "{:?}", driver.state.runs.sort);
    driver.taps("*");
    driver.shows("[all runs]");
    assert!(driver.state.runs.sort.is_empty());
    // the order left there, which is undone there
    driver.taps("1");
    driver.tap(KeyCode::Up);
    driver.taps("3");
    driver.shows("[one]");
    assert_eq!(driver.state.runs.sort, sorted);
    driver.taps("u");
    assert!(driver.state.runs.sort.is_empty());
}

#[test]
fn the_next_session_has_the_scope_of_the_last_one() {
    let mut driver = of_experiments();
    driver.taps("1");
    driver.tap(KeyCode::Down);
    for (keys, shown) in [("3", "[two]"), ("*", "[all runs]")] {
        driver.taps(keys);
        driver.shows(shown);
        let saved = memory::remember(&driver.state);
        let mut next = Driver::empty(120, 40);
        memory::recall(&mut next.state, &saved, true);
        let stored = driver.state.cx.stored.clone().expect("stored runs");
        let effects = next.send(Message::Runs(Ok(stored)));
        next.answer(effects);
        next.shows(shown);
    }
}

#[test]
fn offers_come_back_when_the_same_text_is_typed_again() {
    let mut driver = driver();
    for _ in 0..2 {
        driver.taps("3/arch:l");
        driver.shows("ladder  3 runs");
        driver.send(Message::Resize(120, 40));
        driver.shows("ladder  3 runs");
        driver.tap(KeyCode::Esc);
        driver.hides("ladder  3 runs");
    }
}

/// Edits of an experiment whose cells are stored show their runs, though no run has the name of the edits.
#[test]
fn an_experiment_that_never_ran_has_the_stored_runs_of_its_cells() {
    let mut driver = of_experiments();
    let mut never = experiment();
    never.name = "never".into();
    // a cell of `one`, and others that nobody ran
    never.cells.iter_mut().skip(1).for_each(|cell| cell.spec.batch = 256);
    never.cells[0].spec.batch = 1;
    let mut entries = driver.state.experiments.entries.clone().unwrap_or_default();
    entries.push(ExperimentEntry::new("never", "built in", never.text.clone(), Ok(never)));
    let effects = driver.read(entries);
    driver.answer(effects);
    driver.taps("1");
    driver.tap(KeyCode::End);
    driver.taps("*3");
    driver.shows("1 of 2 runs");
    driver.shows("[never]");
    let effects = driver.keys("Y");
    assert!(
        matches!(&effects[..], [Effect::Copy(command)] if !command.contains("never")),
        "{effects:?}"
    );
    driver.shows(
        "copied (without the exact cells of experiment never, which experiment=NAME does not select",
    );
    // without any stored run, the screens show all
    driver.state.experiments.entries.as_mut().unwrap()[2].keys = Arc::default();
    driver.taps("13");
    driver.shows("[all runs]");
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
        driver.shows("ladder  3 runs");
        driver.tap(KeyCode::Tab);
        driver.tap(KeyCode::Enter);
        driver.shows("filter: arch:ladder");
    }
}
