//! Experiments edited, saved, queued, run and watched: keys in, what a user sees and what is done out.

use std::collections::VecDeque;
use std::path::Path;
use std::sync::Arc;

use crossterm::event::{KeyCode, KeyEvent, KeyModifiers};

use super::fixtures::{Driver, ended, experiment, news, record, records, rounds, spec};
use crate::face::tui::context::Snapshot;
use crate::face::tui::format::clock;
use crate::face::tui::overlay::YesNoPrompt;
use crate::face::tui::screen::AnyScreen as _;
use crate::face::tui::screen::Tab;
use crate::face::tui::screens::experiments::state::ExperimentEntry;
use crate::face::tui::screens::live::state::{CellPreview, CellState, LiveCell, Pause};
use crate::face::tui::task::BackgroundTask;
use crate::face::tui::update::{Effect, Message, StoreTask, SweepOrder};
use lab::sweep::{Experiment, SweepEvent, SweepSelection};
use run::{Feasibility, RunEvent, StepLanes};
use table::{Backend, P2p, Record, Sample, Status};

const TEXT: &str = r#"# Six architectures, one model.
question = "Without P2P, is it better to hide all-reduces or to make fewer of them?"
backend = "sim"
hardware = "h100_sxm"

[model]
name = "llama-3-8b"

[workload]
prompt_tokens = 1024
output_tokens = 64 # few: it is a test

[grid]
# how the residual is wired
architecture = ["standard", "ladder", "parallel", "upper-bound"]
tp = [2, 3, 8]
batch = [1, 16, 4096]
"#;

/// A workbench with an experiment whose cells follow from its text, all checks answered.
fn workbench((columns, rows): (u16, u16)) -> Driver {
    let mut driver = Driver::empty(columns, rows);
    driver.state.cx.theme = crate::face::tui::theme::Theme::new(true);
    let entry = |name: &str, place: &str, text: &str| {
        let path = format!("{name}.toml");
        ExperimentEntry::new(name, place, text.into(), Experiment::from_str(text, Path::new(&path)))
    };
    let entries = vec![
        entry("hide", "experiments/hide.toml", TEXT),
        entry(
            "quickstart",
            "built in",
            "backend = \"cpu\"\n[model]\nname = \"tiny\"\n[grid]\ntp = [1, 2]\n",
        ),
    ];
    read(&mut driver, entries);
    send(&mut driver, Message::Runs(Ok(Arc::new(Snapshot::new(records(), Vec::new())))));
    driver
}

/// Sends a message and answers the questions of the experiments that it leads to; the other effects.
pub(super) fn send(driver: &mut Driver, message: Message) -> Vec<Effect> {
    let effects = driver.send(message);
    perform(driver, effects)
}

/// Shows experiments as if their files had been read.
pub(super) fn read(driver: &mut Driver, entries: Vec<ExperimentEntry>) {
    let effects = driver.read(entries);
    perform(driver, effects);
}

fn perform(driver: &mut Driver, effects: Vec<Effect>) -> Vec<Effect> {
    let mut effects = VecDeque::from(effects);
    let mut left = Vec::new();
    while let Some(effect) = effects.pop_front() {
        match effect {
            Effect::Ask(task) if ["check", "save", "points", "medians"].contains(&task.slot.name) => {
                effects.extend(driver.send(Message::Answered(task.run())));
            }
            other => left.push(other),
        }
    }
    // how long it takes here is no matter of a test
    let drafts = driver.state.experiments.drafts.values_mut();
    for forecast in drafts.filter_map(|draft| draft.checked.as_mut()?.forecast.as_mut()) {
        forecast.seconds = Some(125.0);
    }
    left
}

pub(super) fn press(driver: &mut Driver, code: KeyCode) -> Vec<Effect> {
    send(driver, Message::Key(KeyEvent::new(code, KeyModifiers::NONE)))
}

pub(super) fn keys(driver: &mut Driver, text: &str) -> Vec<Effect> {
    text.chars().flat_map(|c| press(driver, KeyCode::Char(c))).collect()
}

fn text(driver: &Driver) -> String {
    driver.state.experiments.draft().expect("an experiment is selected").revisions.text().to_owned()
}

/// Into the grid, at the second value of `tp`.
fn at_tp(driver: &mut Driver) {
    press(driver, KeyCode::Right);
    press(driver, KeyCode::Down);
    press(driver, KeyCode::Right);
    press(driver, KeyCode::Right);
}

#[test]
fn the_smallest_window_says_what_to_press_and_how_long_it_takes() {
    let mut driver = workbench((60, 16));
    send(&mut driver, Message::Runs(Ok(Default::default())));
    for said in ["Enter hide   p paper's 70B   o open trace", "r: 16 runs", "about 2 min 05 s"] {
        driver.shows(said);
    }
}

#[test]
fn an_edited_value_changes_the_count_of_cells_and_can_be_undone() {
    let mut driver = workbench((120, 40));
    driver.shows("16 runs (16 of 36 cells)");
    at_tp(&mut driver);
    // 3 becomes 4, which divides the heads
    press(&mut driver, KeyCode::Enter);
    press(&mut driver, KeyCode::Backspace);
    keys(&mut driver, "4");
    driver.shows("Enter accept");
    press(&mut driver, KeyCode::Enter);
    assert!(text(&driver).contains("tp = [2, 4, 8]\n") && text(&driver).contains("# few: it is a test"));
    driver.shows("24 of 36 cells");
    driver.shows("hide* ");
    keys(&mut driver, "u");
    assert_eq!(text(&driver), TEXT);
    assert!(driver.screen().contains("16 of 36 cells") && !driver.screen().contains("hide* "));
    send(&mut driver, Message::Key(KeyEvent::new(KeyCode::Char('r'), KeyModifiers::CONTROL)));
    assert!(text(&driver).contains("tp = [2, 4, 8]"));
}

#[test]
fn names_that_do_not_fit_are_counted_and_none_is_cut() {
    for (size, shown) in [
        ((60, 16), "architecture   standard     +3"),
        ((80, 24), "architecture   standard  ladder  parallel  +1 more"),
        ((120, 40), "architecture   standard  ladder  parallel  upper-bound"),
    ] {
        workbench(size).shows(shown);
    }
}

#[test]
fn leaving_the_grid_shows_its_first_row_again() {
    for leave in [KeyCode::Left, KeyCode::Esc] {
        let mut driver = workbench((80, 24));
        press(&mut driver, KeyCode::Right);
        for _ in 0..30 {
            press(&mut driver, KeyCode::Down);
        }
        driver.hides("architecture   standard");
        press(&mut driver, leave);
        driver.shows("architecture   standard");
    }
}

#[test]
fn values_are_added_moved_and_removed_and_lists_typed() {
    let mut driver = workbench((120, 40));
    at_tp(&mut driver);
    keys(&mut driver, "a");
    keys(&mut driver, "16 32");
    press(&mut driver, KeyCode::Enter);
    // numbers stay in order
    assert!(text(&driver).contains("tp = [2, 3, 8, 16, 32]"), "{}", text(&driver));
    keys(&mut driver, "<");
    assert!(text(&driver).contains("tp = [2, 3, 8, 32, 16]"), "{}", text(&driver));
    keys(&mut driver, "D");
    assert!(text(&driver).contains("tp = [2, 3, 8, 16]"), "{}", text(&driver));
    for _ in 0..4 {
        press(&mut driver, KeyCode::Left);
    }
    press(&mut driver, KeyCode::Enter);
    driver.send(Message::Key(KeyEvent::new(KeyCode::Char('u'), KeyModifiers::CONTROL)));
    keys(&mut driver, "1..8*2");
    press(&mut driver, KeyCode::Enter);
    assert!(text(&driver).contains("tp = [1, 2, 4, 8]"), "{}", text(&driver));
    // on its name, the axis goes; its own comments stay
    keys(&mut driver, "D");
    assert!(!text(&driver).contains("tp ="));
    driver.shows("12 cells");
    assert!(text(&driver).contains("# how the residual is wired"));
}

#[test]
fn a_value_typed_at_the_end_of_a_list_is_in_view_in_the_smallest_window() {
    let mut driver = workbench((60, 16));
    press(&mut driver, KeyCode::Right);
    press(&mut driver, KeyCode::Down);
    press(&mut driver, KeyCode::Down);
    keys(&mut driver, "a32 64");
    driver.shows("add: ›32 64");
    press(&mut driver, KeyCode::Enter);
    assert!(text(&driver).contains("batch = [1, 16, 32, 64, 4096]"), "{}", text(&driver));
}

#[test]
fn in_a_low_grid_all_axes_come_before_headings_and_settings() {
    let mut driver = workbench((60, 16));
    let grid = |driver: &Driver| driver.screen().lines().any(|line| line.contains("││ grid"));
    assert!(!grid(&driver), "{}", driver.screen());
    for axis in ["architecture", "tp             2  3  8", "batch          1  16  4096", "↓ "] {
        driver.shows(axis);
    }
    send(&mut driver, Message::Resize(120, 40));
    assert!(grid(&driver), "{}", driver.screen());
}

#[test]
fn the_footer_says_what_keys_do_in_the_grid_and_in_the_list() {
    let mut driver = workbench((120, 40));
    driver.shows("→ edit");
    driver.hides("← back");
    at_tp(&mut driver);
    driver.shows("Enter edit value");
    driver.shows("← back");
    driver.hides("→ edit");
}

#[test]
fn any_nccl_variable_becomes_an_axis() {
    let mut driver = workbench((120, 40));
    keys(&mut driver, "A");
    keys(&mut driver, "proto");
    driver.shows("env.NCCL_PROTO");
    press(&mut driver, KeyCode::Enter);
    keys(&mut driver, "LL,LL128 Simple");
    press(&mut driver, KeyCode::Enter);
    assert!(
        text(&driver).ends_with("[env]\nNCCL_PROTO = [\"LL,LL128\", \"Simple\"]\n"),
        "{}",
        text(&driver)
    );
    driver.shows("72 cells");
    // one that is not offered
    keys(&mut driver, "A");
    keys(&mut driver, "NCCL_CHECK_POINTERS");
    press(&mut driver, KeyCode::Enter);
    keys(&mut driver, "0 1");
    press(&mut driver, KeyCode::Enter);
    assert!(text(&driver).contains("NCCL_CHECK_POINTERS = [0, 1]"));
    driver.shows("144 cells");
}

#[test]
fn a_value_that_no_cell_can_have_is_refused_and_can_be_corrected() {
    let mut driver = workbench((120, 40));
    at_tp(&mut driver);
    press(&mut driver, KeyCode::Enter);
    keys(&mut driver, "x");
    press(&mut driver, KeyCode::Enter);
    driver.shows("✘ tp is x; it must be a whole number from 1");
    driver.shows("›x");
    assert_eq!(text(&driver), TEXT, "nothing is edited");
    press(&mut driver, KeyCode::Backspace);
    keys(&mut driver, "4");
    press(&mut driver, KeyCode::Enter);
    assert!(text(&driver).contains("tp = [2, 4, 8]"), "{}", text(&driver));
    // in a list, by its name, and in a setting
    keys(&mut driver, "a");
    keys(&mut driver, "16 0");
    press(&mut driver, KeyCode::Enter);
    driver.shows("✘ tp is 0; it must be a whole number from 1");
    press(&mut driver, KeyCode::Esc);
    let before = text(&driver);
    let model =
        driver.state.experiments.draft().unwrap().rows.iter().position(|row| row.name == "model");
    driver.state.experiments.draft_mut().unwrap().list.selected = model.unwrap();
    press(&mut driver, KeyCode::Enter);
    keys(&mut driver, "llama-3-9b");
    press(&mut driver, KeyCode::Enter);
    driver.shows("llama-3-9b");
    driver.shows("✘ ");
    driver.hides("hide.toml:");
    assert_eq!(text(&driver), before);
}

#[test]
fn enter_runs_as_the_key_of_the_footer_does() {
    for key in [KeyCode::Enter, KeyCode::Char('r')] {
        let mut driver = workbench((80, 24));
        let effects = press(&mut driver, key);
        assert!(effects.iter().any(|effect| matches!(effect, Effect::Sweep(_))), "{effects:?}");
        assert!(driver.state.cx.overlays.is_empty());
    }
}

#[test]
fn experiments_that_run_here_are_marked_in_the_list() {
    for size in [(60, 16), (120, 40)] {
        let driver = workbench(size);
        driver.shows("● quickstart");
        driver.hides("● hide");
    }
    workbench((80, 24)).shows(" ● runs here ");
}

#[test]
fn the_edited_experiment_runs_as_it_is_shown() {
    let mut driver = workbench((80, 24));
    at_tp(&mut driver);
    keys(&mut driver, "D");
    let effects = keys(&mut driver, "r");
    let [
        Effect::Sweep(SweepOrder::Start { experiment, choice: SweepSelection::Missing }),
        Effect::Ask(work),
        Effect::Ask(look),
    ] = &effects[..]
    else {
        panic!("{effects:?}")
    };
    assert_eq!((experiment.cells.len(), work.slot.name, look.slot.name), (24, "work", "look"));
    let (name, edits) = experiment.name.rsplit_once('-').unwrap();
    assert_eq!(name, "hide-edited", "what nobody saved is not stored under the file's name");
    assert_eq!(edits.len(), 6, "and two edits not under one");
    assert_eq!(driver.state.cx.tab, Tab::Live);
}

#[test]
fn what_was_asked_about_a_cell_of_an_older_sweep_is_not_shown_of_a_newer_one() {
    let mut driver = workbench((80, 24));
    let Some(Effect::Ask(old)) = keys(&mut driver, "r").pop() else { panic!("it looks at the cell") };
    send(&mut driver, ended(0, false));
    let Some(Effect::Ask(new)) = keys(&mut driver, "1r").pop() else { panic!("it looks again") };
    send(&mut driver, Message::Answered(old.run()));
    assert_eq!(driver.state.live.cells[0].looked, None);
    send(&mut driver, Message::Answered(new.run()));
    assert!(driver.state.live.cells[0].looked.is_some());
}

fn save(driver: &mut Driver) {
    send(driver, Message::Key(KeyEvent::new(KeyCode::Char('s'), KeyModifiers::CONTROL)));
}

#[test]
fn saving_asks_before_it_overwrites_what_changed_on_disk() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("hide.toml");
    let theirs = TEXT.replace("batch = [1, 16, 4096]", "batch = [2]");
    let entries = |text: &str| {
        let place = path.display().to_string();
        vec![ExperimentEntry::new("hide", &place, text.into(), Experiment::from_str(text, &path))]
    };
    let there = || std::fs::read_to_string(&path).unwrap();
    let asked = |driver: &Driver| driver.state.cx.top::<YesNoPrompt>().is_some();
    std::fs::write(&path, TEXT).unwrap();
    let mut driver = Driver::empty(80, 24);
    read(&mut driver, entries(TEXT));
    at_tp(&mut driver);
    keys(&mut driver, "D");
    let edited = text(&driver);
    // somebody else writes the file, and it is read again
    std::fs::write(&path, &theirs).unwrap();
    save(&mut driver);
    assert!(asked(&driver));
    keys(&mut driver, "n");
    read(&mut driver, entries(&theirs));
    assert_eq!(text(&driver), edited, "the edit stays what it was");
    save(&mut driver);
    assert!(asked(&driver) && there() == theirs, "theirs is still there");
    let effects = keys(&mut driver, "y");
    assert_eq!(there(), edited);
    assert!(matches!(&effects[..], [Effect::Ask(task)] if task.slot.name == "files"), "{effects:?}");
    assert!(driver.state.experiments.edited().is_empty());
    // a file that cannot be written is said, and the edits stay
    keys(&mut driver, "D");
    std::fs::remove_file(&path).unwrap();
    std::fs::create_dir(&path).unwrap();
    save(&mut driver);
    driver.shows("Esc closes");
    assert_eq!(driver.state.experiments.edited(), ["hide"]);
}

#[test]
fn a_check_that_was_left_is_asked_again() {
    let mut driver = workbench((80, 24));
    at_tp(&mut driver);
    let left = driver.keys("D");
    driver.press(KeyCode::Left);
    driver.press(KeyCode::Left);
    driver.press(KeyCode::Left);
    press(&mut driver, KeyCode::Down);
    assert!(driver.state.experiments.draft().unwrap().is_checked());
    perform(&mut driver, left);
    press(&mut driver, KeyCode::Up);
    assert!(driver.screen().contains("hide*") && driver.state.experiments.draft().unwrap().is_checked());
}

#[test]
fn a_built_in_experiment_is_saved_under_a_name() {
    let dir = tempfile::tempdir().unwrap();
    let mut driver = workbench((80, 24));
    driver.state.cx.experiments = dir.path().join("experiments");
    press(&mut driver, KeyCode::Down);
    at_tp(&mut driver);
    press(&mut driver, KeyCode::Up);
    keys(&mut driver, "a4");
    press(&mut driver, KeyCode::Enter);
    let edited = text(&driver);
    save(&mut driver);
    driver.shows("experiments/NAME.toml");
    keys(&mut driver, "/");
    press(&mut driver, KeyCode::Enter);
    driver.shows("use letters, digits");
    press(&mut driver, KeyCode::Backspace);
    keys(&mut driver, "quickstart-4");
    press(&mut driver, KeyCode::Enter);
    let path = dir.path().join("experiments/quickstart-4.toml");
    assert_eq!(std::fs::read_to_string(&path).unwrap(), edited);
    // the edits went with the file
    assert!(driver.state.experiments.edited().is_empty());
    let mut entries = driver.state.experiments.entries.clone().unwrap();
    let place = path.display().to_string();
    entries.push(ExperimentEntry::new(
        "quickstart-4",
        &place,
        edited.clone(),
        Experiment::from_str(&edited, &path),
    ));
    read(&mut driver, entries);
    assert_eq!(driver.state.experiments.selected().unwrap().name, "quickstart-4");
}

#[test]
fn however_often_files_are_to_be_read_one_reading_goes_on_and_one_follows() {
    let mut driver = workbench((80, 24));
    let readings = |effects: Vec<Effect>| -> Vec<BackgroundTask> {
        let asked = effects.into_iter().filter_map(|effect| match effect {
            Effect::Ask(task) if task.slot.name == "files" => Some(task),
            _ => None,
        });
        asked.collect()
    };
    let mut first = readings(press(&mut driver, KeyCode::F(5)));
    assert_eq!(first.len(), 1);
    let again = (0..5).flat_map(|_| press(&mut driver, KeyCode::F(5))).collect();
    assert!(readings(again).is_empty(), "one goes on");
    let answer = first.remove(0).run();
    let mut second = readings(driver.send(Message::Answered(answer)));
    assert_eq!(second.len(), 1, "what was asked meanwhile is one reading");
    let answer = second.remove(0).run();
    assert!(readings(driver.send(Message::Answered(answer))).is_empty());
}

#[test]
fn edits_survive_other_screens_and_a_reload_and_quitting_asks() {
    let mut driver = workbench((80, 24));
    at_tp(&mut driver);
    keys(&mut driver, "D");
    let edited = text(&driver);
    keys(&mut driver, "3");
    let entries = driver.state.experiments.entries.clone().unwrap();
    read(&mut driver, entries[1..].to_vec());
    assert_eq!(driver.state.experiments.edited(), ["hide"], "though its file is gone");
    let effects = keys(&mut driver, "q");
    assert!(effects.iter().all(|effect| !matches!(effect, Effect::Quit { .. })));
    assert!(driver.state.cx.top::<YesNoPrompt>().is_some());
    keys(&mut driver, "n");
    let at = driver.state.experiments.entries.as_ref().unwrap().iter().position(|e| e.name == "hide");
    driver.state.experiments.list.selected = at.unwrap();
    assert_eq!(text(&driver), edited);
    keys(&mut driver, "q");
    assert!(matches!(keys(&mut driver, "y")[..], [Effect::Quit { interrupted: false }]));
}

#[test]
fn edits_that_nobody_saved_are_there_again_at_the_next_start() {
    let mut driver = workbench((80, 24));
    at_tp(&mut driver);
    keys(&mut driver, "D");
    let edited = text(&driver);
    let kept = driver.state.experiments.remember().unwrap();
    let entries = driver.state.experiments.entries.clone().unwrap();
    let reopened = |entries: Vec<ExperimentEntry>| {
        let mut next = Driver::empty(80, 24);
        next.state.experiments.recall(&kept, &mut next.state.cx);
        assert_eq!(
            next.state.experiments.remember().unwrap(),
            kept,
            "nothing is lost before files are read"
        );
        read(&mut next, entries);
        next
    };
    let mut next = reopened(entries.clone());
    assert_eq!((text(&next).as_str(), next.state.experiments.edited()), (edited.as_str(), vec!["hide"]));
    keys(&mut next, "u");
    assert_eq!(text(&next), TEXT, "what the file has can be had back");
    // though somebody removed the file
    let next = reopened(entries[1..].to_vec());
    assert_eq!(text(&next), edited);
    next.shows("24 cells");
    // who left without them does not find them again
    driver.state.experiments.discard = true;
    assert_eq!(driver.state.experiments.remember().unwrap()["edited"], serde_json::json!({}));
}

/// A sweep of `hide` under way: a cell done, one in the middle of a sample, one failed.
fn live(size: (u16, u16), backend: Backend) -> Driver {
    let mut driver = workbench(size);
    send(&mut driver, Message::Clock(1_000));
    keys(&mut driver, "r");
    let cell = |index: usize| {
        let architecture = ["standard", "ladder"][index % 2];
        spec(architecture, 2, P2p::On, backend)
    };
    for (index, cell_of) in driver.state.live.cells.iter_mut().enumerate() {
        cell_of.spec = cell(index);
    }
    let lanes = |rank| StepLanes {
        rank,
        compute: vec![[0, 9_000_000], [13_000_000, 22_000_000], [24_000_000, 30_000_000]],
        comm: vec![[7_000_000, 13_000_000], [16_000_000, 24_000_000]],
    };
    let step = |done, ms, lanes| RunEvent::Step { done, of: 32, steps: 4, ms, lanes };
    let sample = Sample { prefill_ms: 4.0, decode_ms: 128.0, steps_ms: Vec::new(), overlap: None };
    let mut failed = record("20260102-0304-8", cell(1), 1.0);
    (failed.status, failed.reason, failed.metrics) =
        (Status::Failed, Some("killed by signal 9 (SIGKILL; out of memory?)".into()), None);
    let at = |cell, event| SweepEvent::Run { cell, round: 0, event };
    let started = |cell, run: &str| SweepEvent::RunStarted { cell, round: 0, run: run.into() };
    let mut events = vec![
        started(0, "20260102-0304-7"),
        SweepEvent::RunEnded {
            cell: 0,
            round: 0,
            record: record("20260102-0304-7", cell(0), 800.0).into(),
        },
        started(1, "20260102-0304-8"),
        SweepEvent::RunEnded { cell: 1, round: 0, record: failed.into() },
        started(2, "20260102-0304-9"),
        at(2, RunEvent::Phase { name: "loading weights".into() }),
        SweepEvent::Log { cell: 2, line: "reading 1.2 GB of weights".into() },
        at(2, RunEvent::Memory { resident_bytes: 1_310_000_000 }),
        at(2, RunEvent::Phase { name: "sample 1/4".into() }),
        at(2, RunEvent::SampleDone { index: 0, of: 4, sample }),
        at(2, RunEvent::Phase { name: "sample 2/4".into() }),
        at(2, step(0, 0.0, Vec::new())),
    ];
    for (done, ms) in (4..=20).step_by(4).zip([120.0, 122.0, 118.0, 160.0, 119.0]) {
        events.push(at(2, step(done, ms, vec![lanes(0), lanes(1)])));
    }
    for (second, event) in events.into_iter().enumerate() {
        send(&mut driver, Message::Clock(1_000 + second as u64 * 500));
        send(&mut driver, news(event));
    }
    let looked = CellPreview { rank_bytes: Some(550_000_000), simulated: vec![lanes(0), lanes(1)] };
    driver.state.live.cells[..3].iter_mut().for_each(|cell| cell.looked = Some(looked.clone()));
    driver
}

#[test]
fn the_cell_under_way_is_followed_and_told_step_by_step() {
    let mut driver = live((120, 40), Backend::Cpu);
    let shown = driver.screen();
    assert_eq!(driver.state.live.list.selected, 2);
    for said in [
        "sample 2/4 · decode step 20/32",
        "29.8 ms per step",
        "memory: peak 1.31 GB (all ranks), planned 550 MB/rank",
        "decode step 20, emulated-link: 30.0 ms, hidden 57.1 %, exposed 6.00 ms/rank",
        "r0 = r1 compute",
        "1 failed",
        "reading 1.2 GB of weights",
        "following",
    ] {
        assert!(shown.contains(said), "{said} in\n{shown}");
    }
    // looking at another cell ends the following; the reason of its failure is there
    press(&mut driver, KeyCode::Up);
    assert!(driver.screen().contains("killed by signal 9") && !driver.state.live.follow);
    send(&mut driver, news(SweepEvent::RunStarted { cell: 3, round: 0, run: "x".into() }));
    assert_eq!(driver.state.live.list.selected, 1);
    keys(&mut driver, "f");
    assert_eq!(driver.state.live.list.selected, 2, "the first that runs");
}

/// Ends a round of a cell with this many tokens/s.
fn end_round(driver: &mut Driver, cell: usize, round: u32, tokens_per_s: f64) {
    let spec = driver.state.live.cells[cell].spec.clone();
    let run = format!("20260102-0304-{cell}-{round}");
    let record = Record { round, ..record(&run, spec, tokens_per_s) };
    send(driver, news(SweepEvent::RunEnded { cell, round, record: record.into() }));
}

#[test]
fn a_running_cell_is_described_and_compared_with_its_standard() {
    let mut driver = Driver::full(80, 24).with_sweep();
    for said in [
        "so far: TPOT 4.00 ms, 1000 tok/s",
        "ladder at TP 2, batch 4, P2P on: ",
        // the second round
        "next: standard tp2, ladder tp2",
    ] {
        driver.shows(said);
    }
    // samples of an unfinished round are not compared
    driver.hides("x standard");
    end_round(&mut driver, 1, 0, 1000.0);
    driver.shows("1.25x standard in 1 round (TPOT 5.00 ms, 800 tok/s, 7.5 % exposed)");
}

#[test]
fn a_ratio_to_standard_is_of_the_rounds_that_both_have() {
    let mut driver = Driver::full(120, 40).with_sweep();
    end_round(&mut driver, 1, 0, 896.0);
    driver.shows("1.12x standard in 1 round (");
    driver.shows("1.12x in 1 round");
    driver.shows("best so far: ladder tp2 1.12x standard's tok/s (1 round, noise unknown yet)");
    // standard is at half the speed in its second round, which ladder has not run yet
    end_round(&mut driver, 0, 1, 400.0);
    driver.shows("1.12x standard in 1 round");
    driver.hides("1.12x standard in 1 round (");
    driver.shows("1.12x in 1 round");
    driver.shows("best so far: ladder tp2 1.12x standard's tok/s (1 round, noise unknown yet)");
    end_round(&mut driver, 1, 1, 448.0);
    driver.shows("1.12x standard (");
    driver.hides("1 round");
}

#[test]
fn a_lead_of_one_round_within_the_spread_of_the_steps_is_none() {
    let mut driver = Driver::full(120, 40).with_sweep();
    let wide = |driver: &Driver, run: &str, tokens_per_s| {
        let mut wide = record(run, driver.state.live.cells[1].spec.clone(), tokens_per_s);
        let tpot = &mut wide.metrics.as_mut().expect("numbers").tpot_ms;
        tpot.p90 = 1.7 * tpot.p50;
        wide
    };
    let run = wide(&driver, "x", 1288.0).into();
    send(&mut driver, news(SweepEvent::RunEnded { cell: 1, round: 0, record: run }));
    driver.shows("no lead yet: ladder tp2 1.61x standard in 1 round, but its steps vary by 70 %");
    driver.hides("best so far");
    // a lead above that is one, and noisy
    let run = wide(&driver, "y", 1600.0).into();
    send(&mut driver, news(SweepEvent::RunEnded { cell: 1, round: 0, record: run }));
    driver.shows("best so far: ladder tp2 2.00x standard's tok/s (1 round, noisy)");
}

#[test]
fn empty_rows_below_a_cell_compare_the_cells_so_far() {
    let mut driver = Driver::full(120, 40).with_sweep();
    driver.shows("TPOT so far (╱ exposed communication)");
    driver.shows("ms  exposed  tok/s vs standard");
    let bar = |driver: &Driver, cell: &str| {
        let screen = driver.screen();
        let is_bar = |line: &&str| line.starts_with('│') && line.contains(cell) && line.contains('█');
        let row = screen.lines().find(is_bar).unwrap_or_else(|| panic!("{cell} has no bar:\n{screen}"));
        (row.matches('█').count(), row.matches('╱').count(), row.to_owned())
    };
    let standard = bar(&driver, "… standard tp2");
    assert_eq!((standard.0, standard.1), (60, 5), "{}", standard.2);
    assert!(standard.2.contains("5.00    7.5 %"), "{}", standard.2);
    // its samples so far do not say how much is exposed
    let running = bar(&driver, "▶ ladder tp2");
    assert_eq!((running.0, running.1), (52, 0), "{}", running.2);
    let cell = driver.state.live.cells[1].spec.clone();
    let record = record("20260102-0304-10", cell, 1000.0).into();
    send(&mut driver, news(SweepEvent::RunEnded { cell: 1, round: 0, record }));
    let ladder = bar(&driver, "… ladder tp2");
    assert_eq!((ladder.0, ladder.1), (48, 4), "{}", ladder.2);
    assert!(ladder.2.contains("4.00    7.5 %   1.25x in 1 round"), "{}", ladder.2);
    Driver::full(80, 24).with_sweep().hides("tok/s vs standard");
}

#[test]
fn the_chart_stays_below_cells_that_failed_or_cannot_run() {
    let mut driver = Driver::full(120, 40).with_sweep();
    let spec = driver.state.live.cells[1].spec.clone();
    let reason = Some("killed by signal 9".to_owned());
    let failed = Record { status: Status::Failed, reason, metrics: None, ..record("x", spec, 1.0) };
    send(&mut driver, news(SweepEvent::RunEnded { cell: 1, round: 0, record: failed.into() }));
    let title_row = |driver: &Driver| {
        let screen = driver.screen();
        let row = screen.lines().position(|line| line.contains("TPOT so far"));
        row.unwrap_or_else(|| panic!("no chart:\n{screen}"))
    };
    driver.shows("╭ failed ladder tp2");
    let row = title_row(&driver);
    for reason in ["80.0 GB > 64 GB", "TP 3 does not divide 8 heads", "killed by signal 9"] {
        press(&mut driver, KeyCode::End);
        while !driver.state.live.selected().is_some_and(|cell| cell.note.contains(reason)) {
            press(&mut driver, KeyCode::Up);
        }
        assert_eq!(title_row(&driver), row);
        driver.shows(&format!("│ {reason}"));
    }
}

#[test]
fn a_tall_window_has_high_lanes_and_a_blank_row_between_settings_of_the_chart() {
    let mut driver = Driver::full(200, 60).with_sweep();
    let spec = |architecture, tp| spec(architecture, tp, P2p::On, Backend::Cpu);
    let live = &mut driver.state.live;
    let mut experiment = Experiment::clone(live.source.as_ref().unwrap());
    for (cell, spec) in experiment.cells.iter_mut().zip([
        spec("standard", 2),
        spec("standard", 4),
        spec("ladder", 2),
        spec("ladder", 4),
    ]) {
        (cell.spec, cell.feasibility) = (spec, Feasibility::Runs);
    }
    live.start(&Arc::new(experiment), 1_000);
    for cell in 0..4 {
        end_round(&mut driver, cell, 0, 800.0);
    }
    send(&mut driver, news(SweepEvent::RunStarted { cell: 0, round: 1, run: "x".into() }));
    let lanes =
        |rank| StepLanes { rank, compute: vec![[0, 9_000_000]], comm: vec![[9_000_000, 9_900_000]] };
    let event = RunEvent::Step { done: 4, of: 32, steps: 4, ms: 40.0, lanes: vec![lanes(0), lanes(1)] };
    send(&mut driver, news(SweepEvent::Run { cell: 0, round: 1, event }));
    let screen = driver.screen();
    let rows: Vec<&str> = screen.lines().collect();
    let heading = rows.iter().position(|row| row.contains("TPOT so far")).expect("a chart");
    for (row, said) in
        ["standard tp2", "ladder tp2", "│ ", "standard tp4", "ladder tp4"].into_iter().enumerate()
    {
        assert!(rows[heading + 1 + row].contains(said), "{said} in\n{screen}");
    }
    assert!(rows[heading + 3].trim_matches('│').trim().is_empty(), "{screen}");
    let label = rows.iter().position(|row| row.contains("r0 = r1 compute")).expect("lanes");
    for row in [label - 1, label, label + 1] {
        assert!(rows[row].contains("████"), "{screen}");
    }
}

#[test]
fn a_chart_without_room_for_all_cells_has_those_in_the_setting_of_the_selected_one() {
    let mut driver = workbench((80, 24));
    keys(&mut driver, "r");
    let live = &mut driver.state.live;
    live.cells.iter_mut().for_each(|cell| cell.tpot_ms = Some(1.0));
    live.list.selected = live.cells.len() - 2;
    let setting = |cell: &LiveCell| (cell.spec.tp, cell.spec.batch);
    let selected = setting(live.selected().unwrap());
    let shown: Vec<_> = live.latencies(5).into_iter().map(|(cell, _)| setting(cell)).collect();
    let first = setting(&live.cells[0]);
    assert_eq!(shown, [selected, selected, selected, selected, first]);
}

#[test]
fn the_smallest_window_has_the_progress_the_current_cell_and_the_best_so_far() {
    let mut driver = Driver::full(60, 16).with_sweep();
    driver.shows("1/4 runs");
    driver.shows("left about 0:20");
    driver.shows("running ladder tp2");
    driver.shows("best so far: standard tp2 800 tok/s");
    let cell = driver.state.live.cells[1].spec.clone();
    let record = record("20260102-0304-10", cell, 1000.0).into();
    send(&mut driver, news(SweepEvent::RunEnded { cell: 1, round: 0, record }));
    driver.shows("best so far: ladder tp2 1.25x standard (1 round)");
    driver.state.live.noise = Some("rounds of ladder vary by 40 %".into());
    driver.shows("no winner yet: rounds are noisy");
}

#[test]
fn the_load_at_the_start_warns_of_noise_until_runs_have_signs_of_it() {
    let mut driver = Driver::full(120, 40);
    driver.state.cx.load = || Some(10_000.0);
    let mut driver = driver.with_sweep();
    driver.shows("! load 10000.0 on ");
    driver.shows(": results will be noisy. Close other programs.");
    driver.state.live.noise = Some("Noisy so far: rounds of ladder vary".into());
    driver.shows("! Noisy so far");
    driver.hides("results will be noisy");
    // what is simulated has no noise
    let mut simulated = workbench((120, 40));
    simulated.state.cx.load = || Some(10_000.0);
    keys(&mut simulated, "r");
    simulated.hides("results will be noisy");
}

#[test]
fn standard_is_the_best_where_nothing_beats_it() {
    let mut driver = Driver::full(80, 24).with_sweep();
    let cell = driver.state.live.cells[1].spec.clone();
    let record = record("20260102-0304-10", cell, 500.0).into();
    send(&mut driver, news(SweepEvent::RunEnded { cell: 1, round: 0, record }));
    driver.shows("best so far: standard tp2 800 tok/s");
}

#[test]
fn measured_durations_replace_the_prediction_also_after_a_resume() {
    let mut driver = Driver::full(80, 24).with_sweep();
    // 20 s a run are predicted; the run of standard took 8 s
    driver.state.live.weigh(vec![20.0, 20.0, 0.0, 0.0]);
    driver.shows("next: standard tp2 (about 0:08), ladder tp2 (about 0:10)");
    driver.shows("left about 0:23");
    let record = record("20260102-0304-10", driver.state.live.cells[1].spec.clone(), 1000.0).into();
    send(&mut driver, Message::Clock(21_000));
    send(&mut driver, news(SweepEvent::RunEnded { cell: 1, round: 0, record }));
    // 8 s and 12 s
    driver.shows("left about 0:20");
    send(&mut driver, ended(0, true));
    keys(&mut driver, "r");
    driver.state.live.weigh(vec![60.0, 60.0, 0.0, 0.0]);
    let progress = driver.state.live.progress(driver.state.cx.now_ms);
    let runs = (progress.total - progress.done) as u64;
    let most = progress.left_ms.expect("an estimate") / runs;
    assert!((8_000..=12_000).contains(&most), "{progress:?}");
}

#[test]
fn the_remaining_time_falls_with_each_decode_step() {
    let mut driver = Driver::full(80, 24).with_sweep();
    driver.state.live.weigh(vec![20.0, 20.0, 0.0, 0.0]);
    let left_ms = |driver: &Driver| {
        let progress = driver.state.live.progress(driver.state.cx.now_ms);
        progress.left_ms.expect("an estimate")
    };
    let before = left_ms(&driver);
    // half of one of four samples of 10 s
    let event = RunEvent::Step { done: 16, of: 32, steps: 16, ms: 64.0, lanes: Vec::new() };
    send(&mut driver, news(SweepEvent::Run { cell: 1, round: 0, event }));
    let fallen = before - left_ms(&driver);
    assert!((1_000..1_500).contains(&fallen), "{fallen}");
}

#[test]
fn the_remaining_time_follows_runs_that_are_slower_than_in_an_earlier_sweep() {
    let mut driver = Driver::full(80, 24).with_sweep();
    let run_ended = |driver: &mut Driver, cell: usize, round: u32, now_ms: u64| {
        send(driver, Message::Clock(now_ms));
        let record = record("x", driver.state.live.cells[cell].spec.clone(), 800.0).into();
        send(driver, news(SweepEvent::RunEnded { cell, round, record }));
    };
    let run_started = |cell: usize| news(SweepEvent::RunStarted { cell, round: 1, run: "x".to_owned() });
    // standard took 8 s, ladder takes 12 s
    run_ended(&mut driver, 1, 0, 21_000);
    send(&mut driver, ended(0, true));
    keys(&mut driver, "r");
    driver.state.live.weigh(vec![60.0, 60.0, 0.0, 0.0]);
    // now a run takes three times as long
    send(&mut driver, run_started(0));
    run_ended(&mut driver, 0, 1, 45_000);
    let left_ms = |driver: &Driver, now_ms| {
        let progress = driver.state.live.progress(now_ms);
        (progress.left_ms.expect("an estimate"), (progress.total - progress.done) as u64)
    };
    let (left, runs) = left_ms(&driver, 45_000);
    assert!((24_000..=32_000).contains(&(left / runs)), "{left} ms for {runs} runs");
    // an active run takes at least as long as it already does
    send(&mut driver, run_started(1));
    assert!(left_ms(&driver, 145_000).0 >= 100_000);
}

#[test]
fn a_message_leaves_the_key_hints_visible_and_goes_after_some_seconds() {
    let mut driver = Driver::full(80, 24).with_sweep();
    // a short one shares the row with them
    keys(&mut driver, "f");
    let footer = driver.screen().lines().last().expect("a footer").to_owned();
    assert!(footer.contains("staying on this cell") && footer.contains("? help"), "{footer}");
    keys(&mut driver, "a");
    driver.shows("no result before the sweep has ended");
    driver.shows("p pause");
    let now = driver.state.cx.now_ms;
    send(&mut driver, Message::Clock(now + 5_000));
    driver.shows("no result before the sweep has ended");
    send(&mut driver, Message::Clock(now + 6_000));
    driver.hides("no result before the sweep has ended");
    // an error waits for a key
    driver.state.cx.fail("the disk is full");
    send(&mut driver, Message::Clock(now + 60_000));
    driver.shows("the disk is full");
}

#[test]
fn a_simulation_that_was_cancelled_does_not_stay_running() {
    let mut driver = live((120, 40), Backend::Sim);
    let cancelled = |cell: usize, driver: &Driver| {
        let spec = driver.state.live.cells[cell].spec.clone();
        Record { status: Status::Interrupted, metrics: None, ..record("x", spec, 1.0) }
    };
    let record = cancelled(2, &driver).into();
    assert_eq!(driver.state.live.cells[2].state, CellState::Running);
    send(&mut driver, news(SweepEvent::CellDone { cell: 2, record }));
    assert_eq!(driver.state.live.cells[2].state, CellState::Done(Status::Interrupted));
    // a cell whose run was reported keeps its result
    let record = cancelled(0, &driver).into();
    send(&mut driver, news(SweepEvent::CellDone { cell: 0, record }));
    assert_eq!(driver.state.live.cells[0].state, CellState::Done(Status::Ok));
}

#[test]
fn a_sweep_without_a_cancelled_cell_says_what_is_left_and_resumes_it() {
    let mut driver = live((120, 40), Backend::Cpu);
    // all runs that the fixture does not report were cancelled one by one
    send(&mut driver, ended(0, false));
    driver.shows("◼ interrupted at 1 of 17: r resumes");
    let effects = keys(&mut driver, "r");
    let resumes = |effect: &Effect| {
        matches!(effect, Effect::Sweep(SweepOrder::Start { choice: SweepSelection::Missing, .. }))
    };
    assert!(effects.iter().any(resumes), "{effects:?}");
}

#[test]
fn cancelled_runs_are_counted_as_the_choice_of_the_user() {
    let mut driver = Driver::full(120, 40).with_sweep();
    driver.hides("cancelled");
    keys(&mut driver, "c");
    driver.state.cx.notice = None;
    let spec = driver.state.live.cells[1].spec.clone();
    let stopped = Record { status: Status::Interrupted, metrics: None, ..record("x", spec, 1.0) };
    send(&mut driver, news(SweepEvent::RunEnded { cell: 1, round: 0, record: stopped.into() }));
    driver.shows("1/4 runs, 2 cancelled");
    driver.shows("◼ ladder tp2");
    driver.shows("╭ cancelled: ladder tp2");
    end_round(&mut driver, 0, 1, 800.0);
    send(&mut driver, ended(0, false));
    driver.shows("◼ cancelled: 2 runs; r runs them");
    driver.shows("2/4 runs, 2 cancelled");
    driver.hides("interrupted");
    // the whole sweep, with one run of four
    let mut driver = Driver::full(120, 40).with_sweep();
    keys(&mut driver, "Cy");
    send(&mut driver, ended(0, true));
    driver.shows("◼ cancelled: 3 runs; r runs them");
    driver.shows("1/4 runs, 3 cancelled");
}

#[test]
fn a_cancelled_cell_is_taken_back_before_its_turn_or_runs_after_the_sweep() {
    let mut driver = Driver::full(120, 40).with_sweep();
    // its second round is ahead
    press(&mut driver, KeyCode::Up);
    let effects = keys(&mut driver, "c");
    assert!(matches!(effects[..], [Effect::Sweep(SweepOrder::CancelCell(0))]), "{effects:?}");
    driver.shows("cancelled standard tp2: c takes it back before its turn, r runs it after the sweep");
    driver.state.cx.notice = None;
    driver.shows("c restore cell");
    let effects = keys(&mut driver, "c");
    assert!(matches!(effects[..], [Effect::Sweep(SweepOrder::RestoreCell(0))]), "{effects:?}");
    driver.shows("standard tp2 runs after all");
    assert!(!driver.state.live.cells[0].cancelled);
    // the active run is lost
    press(&mut driver, KeyCode::Down);
    keys(&mut driver, "c");
    driver.shows(
        "cancelled ladder tp2: r runs it after the sweep; rounds measured over 10 min apart are not compared",
    );
    assert!(driver.state.live.follow, "the next cell is shown when it starts");
    let effects = keys(&mut driver, "c");
    assert!(effects.is_empty(), "{effects:?}");
    driver.shows("ladder tp2 is cancelled already: r runs it after the sweep");
    driver.state.cx.notice = None;
    driver.hides("c cancel cell");
}

#[test]
fn the_panel_goes_on_with_the_next_run_after_a_cell_was_cancelled() {
    let after_moves = |moves: &[KeyCode]| {
        let mut driver = Driver::full(120, 40).with_sweep();
        press(&mut driver, KeyCode::Up);
        keys(&mut driver, "c");
        for code in moves {
            press(&mut driver, *code);
        }
        end_round(&mut driver, 1, 0, 1000.0);
        send(&mut driver, news(SweepEvent::RunStarted { cell: 1, round: 1, run: "x".into() }));
        driver.state.live.list.selected
    };
    assert_eq!(after_moves(&[]), 1);
    assert_eq!(after_moves(&[KeyCode::Down, KeyCode::Up]), 0, "the user moved");
}

#[test]
fn a_sweep_that_begins_before_the_stored_runs_are_read_counts_them_as_they_come() {
    let mut driver = Driver::empty(80, 24);
    let experiment = Experiment::from_str(TEXT, Path::new("hide.toml"));
    let entry = ExperimentEntry::new("hide", "experiments/hide.toml", TEXT.into(), experiment);
    read(&mut driver, vec![entry]);
    keys(&mut driver, "r");
    driver.shows("…/16 runs");
    driver.hides("0/16");
    let stored = record("20260102-0304-7", driver.state.live.cells[0].spec.clone(), 800.0);
    send(&mut driver, Message::Runs(Ok(Arc::new(Snapshot::new(vec![stored], Vec::new())))));
    driver.shows("  1/16 runs, 1 already stored");
    driver.shows("▶ 1/16");
}

/// A resumed sweep that has all rounds of `standard` in the store, and one of two of `ladder`.
fn resumed() -> Driver {
    let mut driver = Driver::full(120, 40);
    let cells = experiment().cells;
    let mut runs = rounds("standard", &cells[0].spec, 5.0, 4);
    runs.extend(rounds("ladder", &cells[1].spec, 4.0, 4).into_iter().take(1));
    send(&mut driver, Message::Runs(Ok(Arc::new(Snapshot::new(runs, Vec::new())))));
    keys(&mut driver, "1");
    driver.state.experiments.list.selected = 0;
    send(&mut driver, Message::Clock(1_000));
    keys(&mut driver, "r");
    driver
}

/// Row of a text in the window.
fn row_of(driver: &Driver, text: &str) -> String {
    let screen = driver.screen();
    let row = screen.lines().find(|line| line.contains(text));
    row.map(str::to_owned).unwrap_or_else(|| panic!("{text} is missing:\n{screen}"))
}

#[test]
fn finished_cells_of_a_resumed_sweep_keep_all_their_rounds() {
    let mut driver = resumed();
    let is_whole = |driver: &Driver| {
        let row = row_of(driver, "✔ standard tp2");
        assert!(row.contains("2/2") && row.contains("8/8") && row.contains("stored"), "{row}");
    };
    is_whole(&driver);
    // the sweep reaches the first round of the cell
    let cell = &driver.state.live.cells[0];
    let record = Box::new(Record::clone(&cell.rounds[&0]));
    let numbers = (cell.tokens_per_s, cell.tpot_ms);
    // 5.03 ms in the first round alone
    assert!(cell.tpot_ms.is_some_and(|ms| ms > 5.06), "{numbers:?}");
    send(&mut driver, news(SweepEvent::CellSettled { cell: 0, round: 0, record }));
    send(&mut driver, news(SweepEvent::RunStarted { cell: 1, round: 1, run: "x".into() }));
    is_whole(&driver);
    let cell = &driver.state.live.cells[0];
    assert_eq!((cell.tokens_per_s, cell.tpot_ms), numbers);
    let row = row_of(&driver, "▶ ladder tp2");
    assert!(row.contains("2/2") && row.contains("4/8"), "{row}");
}

#[test]
fn the_header_tells_runs_of_the_sweep_from_stored_ones() {
    let mut driver = resumed();
    driver.shows("3/4 runs, 3 already stored");
    // the last one runs here
    send(&mut driver, news(SweepEvent::RunStarted { cell: 1, round: 1, run: "x".into() }));
    let last = record("x", driver.state.live.cells[1].spec.clone(), 1000.0);
    let event = SweepEvent::RunEnded { cell: 1, round: 1, record: last.clone().into() };
    send(&mut driver, news(event));
    driver.shows("4/4 runs, 3 already stored");
    // or in another process
    let mut driver = resumed();
    send(&mut driver, news(SweepEvent::CellSettled { cell: 1, round: 1, record: last.into() }));
    driver.shows("4/4 runs, 4 already stored");
}

#[test]
fn a_resumed_repetition_counts_its_own_runs_alone() {
    let mut driver = workbench((80, 24));
    keys(&mut driver, "R");
    let SweepSelection::Again(since) = driver.state.live.choice else { panic!("it repeats all") };
    let stored = |cell: usize, created: String| {
        let spec = driver.state.live.cells[cell].spec.clone();
        Record { created, ..record(&format!("20260102-0304-{cell}"), spec, 800.0) }
    };
    let runs = vec![stored(0, "2020-01-01T00:00:00.000000Z".into()), stored(1, since.to_string())];
    driver.state.live.count_stored(&Snapshot::new(runs, Vec::new()));
    driver.shows("  1/16 runs");
}

#[test]
fn a_sweep_is_paused_and_goes_on() {
    let mut driver = live((80, 24), Backend::Cpu);
    driver.shows("p pause  c cancel");
    assert!(matches!(keys(&mut driver, "p")[..], [Effect::Sweep(SweepOrder::Pause(true))]));
    assert!(driver.screen().contains("‖ pauses after the current run") && driver.state.cx.sweeps.moving);
    send(&mut driver, news(SweepEvent::Paused));
    driver.shows("‖ paused: p resumes");
    driver.shows("p resume  c cancel");
    assert!(!driver.state.cx.sweeps.moving, "nothing to draw while nothing happens");
    let before = driver.state.live.progress(driver.state.cx.now_ms);
    send(&mut driver, Message::Clock(3_600_000));
    assert_eq!(
        driver.state.live.progress(driver.state.cx.now_ms),
        before,
        "an hour of waiting is no work"
    );
    assert!(matches!(keys(&mut driver, "p")[..], [Effect::Sweep(SweepOrder::Pause(false))]));
    send(&mut driver, news(SweepEvent::Resumed));
    assert_eq!(driver.state.live.pause, Pause::No);
    driver.shows("▶ running");
    driver.shows("p pause  c cancel");
}

#[test]
fn the_evaluation_after_the_cells_says_how_far_it_is_and_what_it_found() {
    let mut driver = live((200, 60), Backend::Cpu);
    let evaluating = |done| {
        let what = "ladder of model (bf16, TP 1)".to_owned();
        news(SweepEvent::Evaluating { what, done, found: 4, of: 24 })
    };
    send(&mut driver, evaluating(4));
    let began = driver.state.cx.now_ms;
    send(&mut driver, Message::Clock(began + 10_000));
    send(&mut driver, evaluating(14));
    let screen = driver.screen();
    for said in
        ["▶ evaluating quality", "14/24 windows, left about 0:10", "ladder of model (bf16, TP 1)"]
    {
        assert!(screen.contains(said), "{said} in\n{screen}");
    }
    let what = "ladder of model, seed 0".to_owned();
    let training =
        SweepEvent::Training { what, done: 3, found: 0, of: 200, loss: 2.0, tokens_per_s: 9.0 };
    send(&mut driver, news(training));
    driver.shows("▶ training");
    driver.shows("3/200 steps");
    send(&mut driver, news(SweepEvent::Note("quality of ladder: KL 0.1250".into())));
    let screen = driver.screen();
    assert!(
        screen.contains("quality of ladder: KL 0.1250") && !screen.contains("evaluating"),
        "{screen}"
    );
    send(&mut driver, news(SweepEvent::Note("quality of parallel: KL 0.5000".into())));
    let told = driver.state.cx.messages.iter().filter(|(_, note)| note.text.starts_with("quality of "));
    assert_eq!(told.count(), 2, "each stands in the list of messages");
}

#[test]
fn cells_that_cannot_run_crowd_nothing_out_of_a_narrow_header() {
    for (size, unable) in
        [((80, 24), "⊘ 2 cannot run"), ((120, 40), "⊘ 1 cell skipped  ▣ 1 cell out of memory")]
    {
        let screen = Driver::full(size.0, size.1).with_sweep().screen();
        for said in [unable, "left about", "elapsed 0:12", "round 1/"] {
            assert!(screen.contains(said), "{said} in\n{screen}");
        }
    }
}

#[test]
fn a_narrow_header_has_whole_numbers_and_the_shared_settings_in_the_notes() {
    let narrow = Driver::full(60, 16).with_sweep();
    narrow.shows("⊘ 2 cannot run  left about 0:20\n");
    let mut small = Driver::full(80, 24).with_sweep();
    small.shows("following ");
    small.shows(" ?: whole line");
    keys(&mut small, "?");
    small.shows("100us+20GB/s");
}

#[test]
fn sweeps_wait_in_a_queue_that_can_be_reordered() {
    let mut driver = live((120, 40), Backend::Cpu);
    keys(&mut driver, "1");
    keys(&mut driver, "r");
    press(&mut driver, KeyCode::Esc);
    press(&mut driver, KeyCode::Down);
    keys(&mut driver, "r2F");
    let queue = |driver: &Driver| -> Vec<String> {
        driver.state.live.queue.iter().map(|queued| queued.title()).collect()
    };
    assert_eq!(queue(&driver), ["hide", "quickstart", "hide (failed cells)"]);
    driver.shows("+3");
    keys(&mut driver, "D");
    assert_eq!(queue(&driver).len(), 3, "only in the queue");
    keys(&mut driver, "Q");
    driver.shows("Q back to cells");
    driver.shows("queue: < earlier, > later, D remove");
    keys(&mut driver, "jj<D");
    assert_eq!(queue(&driver), ["hide", "quickstart"]);
    keys(&mut driver, ">k<");
    press(&mut driver, KeyCode::Esc);
    driver.shows("Q queue  f follow");
    keys(&mut driver, "3");
    // the next begins by itself, and the user stays where they are
    let effects = send(&mut driver, ended(0, false));
    let started = effects.iter().find_map(|effect| match effect {
        Effect::Sweep(SweepOrder::Start { experiment, .. }) => Some(experiment.name.clone()),
        _ => None,
    });
    assert_eq!((started.as_deref(), driver.state.cx.tab), (Some("hide"), Tab::Runs));
    // after a cancelled one it is asked for
    let effects = send(&mut driver, ended(0, true));
    assert!(effects.iter().all(|effect| !matches!(effect, Effect::Sweep(SweepOrder::Start { .. }))));
    keys(&mut driver, "2");
    assert!(matches!(keys(&mut driver, "p")[..], [Effect::Sweep(SweepOrder::Start { .. }), ..]));
}

#[test]
fn a_queued_sweep_says_after_which_one_and_in_how_long_it_starts() {
    for size in [(60, 16), (80, 24), (120, 40)] {
        let mut driver = Driver::full(size.0, size.1).with_sweep();
        let left_ms = driver.state.live.progress(driver.state.cx.now_ms).left_ms.expect("an estimate");
        keys(&mut driver, "1r");
        driver.shows(&format!("quickstart starts after quickstart, in about {};", clock(left_ms)));
        keys(&mut driver, "r");
        driver.shows("quickstart starts after quickstart and 1 more");
    }
    let mut driver = Driver::full(80, 24).with_sweep();
    send(&mut driver, news(SweepEvent::Paused));
    keys(&mut driver, "1r");
    driver.shows("quickstart starts after quickstart, which is paused; 2 shows the queue");
}

#[test]
fn a_sweep_from_the_queue_says_where_the_result_of_the_previous_one_is() {
    for size in [(60, 16), (80, 24), (120, 40)] {
        let mut driver = live(size, Backend::Cpu);
        keys(&mut driver, "1r2");
        driver.shows("Q queue: hide");
        send(&mut driver, ended(0, false));
        // it outlasts the message in the footer
        driver.state.cx.notice = None;
        driver.shows(" hide finished: its result is on screen 1\n");
        driver.hides("Q queue");
    }
    // cancelled runs are left to run
    let mut driver = Driver::full(60, 16).with_sweep();
    keys(&mut driver, "1r2c");
    send(&mut driver, ended(0, false));
    driver.shows("quickstart ended, 2 cancelled: its result is on screen 1");
}

#[test]
fn what_failed_is_run_again() {
    let mut driver = live((80, 24), Backend::Cpu);
    send(&mut driver, ended(1, false));
    press(&mut driver, KeyCode::Esc);
    let effects = keys(&mut driver, "F");
    assert!(
        matches!(
            effects[..],
            [Effect::Sweep(SweepOrder::Start { choice: SweepSelection::Failed, .. }), ..]
        ),
        "{effects:?}"
    );
    // what never started is run, too
    let mut stopped = live((80, 24), Backend::Cpu);
    send(&mut stopped, ended(0, true));
    stopped.shows("r resumes");
    let effects = keys(&mut stopped, "r");
    assert!(
        matches!(
            effects[..],
            [Effect::Sweep(SweepOrder::Start { choice: SweepSelection::Missing, .. }), ..]
        ),
        "{effects:?}"
    );
    let mut fresh = workbench((80, 24));
    let effects = keys(&mut fresh, "2F");
    assert!(!effects.iter().any(|effect| matches!(effect, Effect::Sweep(_))), "{effects:?}");
}

#[test]
fn finished_cells_reach_the_other_screens_while_the_sweep_goes_on() {
    let mut driver = live((80, 24), Backend::Cpu);
    let before = driver.state.cx.stored.clone().unwrap();
    assert!(driver.state.live.handing, "the first finished run was handed over");
    let new = record("20260102-0304-7", driver.state.live.cells[0].spec.clone(), 800.0);
    let snapshot = Arc::new(before.and(vec![new.clone()]));
    let effects = driver.send(Message::Runs(Ok(snapshot.clone())));
    let asks = |effects: &[Effect], name: &str| {
        effects.iter().any(|effect| matches!(effect, Effect::Ask(task) if task.slot.name == name))
    };
    for (key, question) in [('5', "points"), ('6', "comparison")] {
        assert!(!asks(&effects, question), "a screen that is not shown asks nothing");
        assert!(asks(&driver.press(KeyCode::Char(key)), question));
    }
    driver.keys("2");
    assert_eq!(driver.state.cx.stored.as_ref().unwrap().records.len(), before.records.len() + 1);
    // a thousand runs within a second are handed over in one go
    let end = |cell: usize| {
        let record = record(&format!("r{cell}"), spec("ladder", 2, P2p::On, Backend::Cpu), 900.0);
        news(SweepEvent::RunEnded { cell: cell % 36, round: 0, record: record.into() })
    };
    let mut appended = Vec::new();
    for cell in 0..1000 {
        send(&mut driver, Message::Clock(20_000 + cell as u64));
        for effect in send(&mut driver, end(cell)) {
            if let Effect::Store(StoreTask::Append(records)) = effect {
                appended.push(records.len());
            }
        }
    }
    assert_eq!(appended, [1], "the answer is still out");
    assert_eq!(driver.state.live.fresh.len(), 999);
    // where the directory was read meanwhile, it has them already
    assert_eq!(snapshot.and(vec![new]).records.len(), snapshot.records.len());
}

#[test]
fn ranks_that_nothing_synchronizes_have_the_time_of_one_rank() {
    let mut driver = live((120, 40), Backend::Cpu);
    let lanes = |rank: u32| {
        let start = 10_000_000 * rank;
        StepLanes { rank, compute: vec![[start, start + 9_000_000]], comm: Vec::new() }
    };
    let lanes = vec![lanes(0), lanes(1)];
    let event = RunEvent::Step { done: 17, of: 32, steps: 1, ms: 9.0, lanes };
    send(&mut driver, news(SweepEvent::Run { cell: 2, round: 0, event }));
    driver.shows("ms, no communication, ranks not synchronized");
    driver.hides("hidden -");
    // lanes without events have no rows
    driver.shows("rank 1 compute");
    driver.hides("  comm ");
}

#[test]
fn marks_of_lanes_are_explained_in_narrow_windows_too() {
    for size in [(80, 24), (120, 40)] {
        let mut driver = live(size, Backend::Sim);
        press(&mut driver, KeyCode::Home);
        let screen = driver.screen();
        assert_eq!(screen.matches("▓▒ hidden ▖▚▜╱ exposed").count(), 1, "{screen}");
    }
}

#[test]
fn the_smallest_window_has_the_lanes_of_the_step_with_their_marks() {
    let mut driver = Driver::full(60, 16).with_sweep();
    let lanes = |rank| StepLanes {
        rank,
        compute: vec![[0, 9_000_000], [13_000_000, 22_000_000]],
        comm: vec![[7_000_000, 13_000_000]],
    };
    let event =
        RunEvent::Step { done: 20, of: 32, steps: 4, ms: 120.0, lanes: vec![lanes(0), lanes(1)] };
    send(&mut driver, news(SweepEvent::Run { cell: 1, round: 0, event }));
    let shows_lanes = |driver: &Driver| {
        for said in [
            "sample 3/4 · decode step 20/32",
            "30.0 ms per step",
            " decode step 20: ▓▒ hidden 33.3 %, ▖▚▜╱ exposed 4.00 ms",
            "r0 = r1 compute █",
            "comm ·",
        ] {
            driver.shows(said);
        }
    };
    shows_lanes(&driver);
    driver.shows("decode tok/s");
    // one row less
    keys(&mut driver, "1r2");
    driver.shows("queue: quickstart");
    shows_lanes(&driver);
    driver.hides("decode tok/s");
}

#[test]
fn a_cancelled_cell_without_lanes_says_so_in_place_of_those_of_another_cell() {
    let mut driver = live((120, 40), Backend::Cpu);
    let stays = |driver: &mut Driver, cell: usize| {
        (driver.state.live.list.selected, driver.state.live.follow) = (cell, false);
    };
    // a cell that waits for its turn shows the running one, by name
    stays(&mut driver, 6);
    driver.shows("standard tp2 b4 running: decode step 20");
    keys(&mut driver, "c");
    driver.hides("decode step 20");
    driver.shows("no lanes: this sweep has no decode step of the cell");
    // its own are kept
    stays(&mut driver, 2);
    keys(&mut driver, "c");
    driver.shows("decode step 20, emulated-link");
}

#[test]
fn a_paused_sweep_keeps_the_lanes_of_the_last_run() {
    let mut driver = live((120, 40), Backend::Cpu);
    let record = record("20260102-0304-9", driver.state.live.cells[2].spec.clone(), 900.0);
    send(&mut driver, news(SweepEvent::RunEnded { cell: 2, round: 0, record: record.into() }));
    driver.shows("last reported decode step 20");
    send(&mut driver, news(SweepEvent::Paused));
    driver.shows(" paused after decode step 20, emulated-link: 30.0 ms");
    driver.state.live.list.selected = 6;
    driver.shows(" standard tp2 b4: paused after decode step 20");
    driver.shows("r0 = r1 compute");
    send(&mut driver, news(SweepEvent::Resumed));
    driver.hides("paused");
}

#[test]
fn a_simulated_cell_shows_its_lanes_labelled_as_simulated() {
    for size in [(120, 40), (80, 24), (60, 16)] {
        let mut driver = live(size, Backend::Sim);
        press(&mut driver, KeyCode::Home);
        // the smallest window has the cells and the numbers of the selected one
        if size != (60, 16) {
            driver.shows("first decode step, simulated");
            driver.shows("comm ");
        }
        driver.shows("╭ done: standard tp2");
        assert_eq!(driver.state.live.cells[0].state, CellState::Done(Status::Ok));
    }
    let mut driver = live((120, 40), Backend::Sim);
    press(&mut driver, KeyCode::Home);
    let shown = driver.screen();
    assert!(shown.contains('╱') && shown.contains('▓'), "{shown}");
}

#[test]
fn cells_can_be_had_as_csv_and_the_page_as_a_command() {
    let mut driver = workbench((80, 24));
    keys(&mut driver, "Y");
    assert!(
        driver
            .state
            .cx
            .notice
            .as_ref()
            .unwrap()
            .text
            .contains("ladderscope sweep experiments/hide.toml")
    );
    let dir = tempfile::tempdir().unwrap();
    let write = |driver: &Driver, name: &str| {
        let kind = crate::face::tui::screen::FileKind::Csv;
        let path = dir.path().join(name);
        let export =
            driver.state.screen(driver.state.cx.tab).export(kind, &driver.state.cx).unwrap().unwrap();
        export.write(&path).unwrap();
        std::fs::read_to_string(path).unwrap()
    };
    let csv = write(&driver, "grid.csv");
    let lines: Vec<&str> = csv.lines().collect();
    assert_eq!(lines[0], "cell,architecture,tp,batch,backend,provenance,verdict,reason");
    assert_eq!(lines[1], "0,standard,2,1,sim,simulated,runs,");
    assert_eq!(lines.len(), 37);
    assert!(csv.contains(",skipped,") && csv.contains(",oom,"));
    let driver = live((80, 24), Backend::Cpu);
    let csv = write(&driver, "live.csv");
    let first = "0,standard,tiny,2,4,on,cpu,\"emulated:alpha_us=100,gb_s=20\",0,ok,8,800,5,5,emulated-link,\
                 20260102-0304-7,";
    assert!(csv.contains(first), "{csv}");
    assert!(csv.lines().nth(2).unwrap().contains("failed") && csv.lines().count() == 37);
}

#[test]
fn the_copied_sweep_says_that_its_edits_are_not_saved() {
    let mut driver = workbench((120, 40));
    at_tp(&mut driver);
    keys(&mut driver, "DY");
    let command = "ladderscope sweep experiments/hide.toml";
    driver.shows(&format!("copied (without your unsaved edits (tp 2 8)): {command}"));
    keys(&mut driver, "rY");
    driver.shows(&format!("copied (without its unsaved edits): {command}"));
    let mut saved = workbench((120, 40));
    keys(&mut saved, "rY");
    saved.shows("copied: ladderscope sweep");
}

#[test]
fn stored_runs_that_no_experiment_has_are_counted_with_the_key_that_lists_them() {
    for size in [(60, 16), (80, 24), (120, 40)] {
        let mut driver = workbench(size);
        driver.shows(match size.1 {
            16 => "6 stored runs: 3",
            _ => "6 stored runs of other experiments: 3 runs   6 compare   5 pareto",
        });
        keys(&mut driver, "3");
        driver.shows("6 of 6 runs");
    }
    Driver::full(120, 40).hides("6 stored runs");
}

#[test]
fn a_range_of_numbers_is_offered_for_numbers_alone() {
    let mut driver = workbench((120, 40));
    press(&mut driver, KeyCode::Right);
    keys(&mut driver, "a");
    driver.shows("Values between blanks or commas");
    driver.hides("1..64*2");
    press(&mut driver, KeyCode::Esc);
    press(&mut driver, KeyCode::Down);
    keys(&mut driver, "a");
    driver.shows("1..64*2");
}

#[test]
fn in_a_tall_window_the_forecast_follows_the_grid_and_the_question_is_shown_once() {
    let driver = workbench((200, 60));
    let screen = driver.screen();
    let row = |text: &str| screen.lines().position(|line| line.contains(text)).expect(text);
    assert_eq!(row("r: 16 runs"), row("(above)") + 3, "{screen}");
}

#[test]
fn failed_runs_of_an_earlier_session_are_offered_to_be_retried() {
    let mut driver = workbench((120, 40));
    let experiment = driver.state.experiments.selected().unwrap().experiment.clone().unwrap();
    let able = experiment.cells.iter().filter(|cell| cell.feasibility == Feasibility::Runs);
    let of_cell = |(at, cell): (usize, &lab::sweep::Cell)| {
        let run = record(&format!("20260102-0304-{at}"), cell.spec.clone(), 800.0);
        Record { experiment: Some("hide".into()), ..run }
    };
    let mut runs: Vec<Record> = able.enumerate().map(of_cell).collect();
    for failed in &mut runs[..2] {
        (failed.status, failed.metrics) = (Status::Failed, None);
    }
    let mut stored = |runs: Vec<Record>| {
        send(&mut driver, Message::Runs(Ok(Arc::new(Snapshot::new(runs, Vec::new())))));
        driver.screen()
    };
    let screen = stored(runs.clone());
    assert!(screen.contains("r retries 2 failed of 16 runs, about"), "{screen}");
    // one never ran
    runs.pop();
    let screen = stored(runs);
    assert!(screen.contains("r: resume, 3 of 16 runs left, 2 of them failed, about"), "{screen}");
}

#[test]
fn runs_of_the_same_cells_in_another_experiment_are_counted_apart() {
    let mut driver = workbench((120, 40));
    let spec = driver.state.experiments.spec().unwrap().clone();
    let stored = |driver: &mut Driver, runs: Vec<Record>| {
        send(driver, Message::Runs(Ok(Arc::new(Snapshot::new(runs, Vec::new())))));
    };
    let of_other = record("20260102-0304-7", spec.clone(), 1.0);
    assert_eq!(of_other.experiment.as_deref(), Some("quickstart"));
    stored(&mut driver, vec![of_other.clone()]);
    // as many as are not left to run
    driver.shows("1/16 shared│");
    driver.shows("1 of 16 runs stored by quickstart; r runs the other 15,");
    driver.shows("shared: another");
    driver.hides("r: resume");
    let mut second = spec.clone();
    second.batch = 16;
    let other_own = Record { experiment: Some("hide".into()), ..record("20260102-0304-9", second, 1.0) };
    stored(&mut driver, vec![of_other.clone(), other_own]);
    driver.shows("2/16, 1 shared│");
    let own = Record { experiment: Some("hide".into()), ..record("20260102-0304-8", spec, 1.0) };
    stored(&mut driver, vec![of_other, own]);
    driver.shows(" 1/16│");
    driver.hides("by quickstart");
    driver.hides("shared");
    driver.shows("resume, 15 of 16 runs left");
}

#[test]
fn the_hint_of_the_papers_sweep_says_when_it_is_stored() {
    let text = "backend = \"sim\"\nhardware = \"h100_sxm\"\n[model]\nname = \"tiny\"\n";
    let experiment = Experiment::from_str(text, Path::new("paper-70b.toml"));
    let spec = experiment.as_ref().unwrap().cells[0].spec.clone();
    let mut driver = Driver::empty(120, 40);
    read(&mut driver, vec![ExperimentEntry::new("paper-70b", "built in", text.into(), experiment)]);
    driver.shows("run the paper's 70B sweep (simulated, 1 s)");
    let run = Record { experiment: Some("paper-70b".into()), ..record("20260102-0304-7", spec, 1.0) };
    send(&mut driver, Message::Runs(Ok(Arc::new(Snapshot::new(vec![run], Vec::new())))));
    driver.shows("show the paper's 70B sweep (simulated, stored)");
    driver.shows("Measures how much of LLM decoding waits for communication, and which architecture");
}

#[test]
fn looks_of_the_editor() {
    let mut driver = workbench((120, 40));
    insta::assert_snapshot!("experiments_forecast_120x40", driver.screen());
    at_tp(&mut driver);
    keys(&mut driver, "a");
    keys(&mut driver, "16");
    insta::assert_snapshot!("experiments_typing_120x40", driver.screen());
    press(&mut driver, KeyCode::Esc);
    keys(&mut driver, "A");
    keys(&mut driver, "ncl");
    insta::assert_snapshot!("experiments_axis_120x40", driver.screen());
    press(&mut driver, KeyCode::Esc);
    press(&mut driver, KeyCode::Enter);
    keys(&mut driver, "x");
    press(&mut driver, KeyCode::Enter);
    insta::assert_snapshot!("experiments_mistake_120x40", driver.screen());
}

#[test]
fn looks_of_a_run_under_way() {
    let mut driver = live((120, 40), Backend::Cpu);
    insta::assert_snapshot!("live_running_120x40", driver.screen());
    keys(&mut driver, "1");
    keys(&mut driver, "r2Q");
    driver.state.cx.notice = None;
    insta::assert_snapshot!("live_queue_120x40", driver.screen());
}

#[test]
fn a_running_experiment_shows_that_it_runs_in_place_of_a_forecast_that_ages() {
    let mut driver = workbench((120, 40));
    driver.shows("about 2 min 05 s");
    keys(&mut driver, "r");
    press(&mut driver, KeyCode::Char('1'));
    driver.shows("running: 16 runs of 36 cells; 2 shows what is left");
    driver.hides("about 2 min 05 s");
}

#[test]
fn experiments_are_planned_only_once_their_screen_is_visible() {
    let mut driver = Driver::empty(80, 24);
    press(&mut driver, KeyCode::Char('4'));
    let (mut asked, mut effects) = (Vec::new(), VecDeque::from(press(&mut driver, KeyCode::F(5))));
    while let Some(effect) = effects.pop_front() {
        if let Effect::Ask(task) = effect {
            asked.push(task.slot.name);
            if ["names", "ahead"].contains(&task.slot.name) {
                effects.extend(driver.send(Message::Answered(task.run())));
            }
        }
    }
    // a trace that is being opened needs the cores
    let is_planned = ["files", "rest"].iter().any(|slot| asked.contains(slot));
    assert!(asked.contains(&"names") && !is_planned, "{asked:?}");
}

#[test]
fn each_experiment_is_counted_as_soon_as_it_is_read() {
    let mut driver = Driver::empty(80, 24);
    send(&mut driver, Message::Runs(Ok(Default::default())));
    let mut rest = Vec::new();
    let mut effects = VecDeque::from(press(&mut driver, KeyCode::F(5)));
    while let Some(effect) = effects.pop_front() {
        match effect {
            Effect::Ask(task) if ["names", "ahead"].contains(&task.slot.name) => {
                effects.extend(send(&mut driver, Message::Answered(task.run())));
            }
            Effect::Ask(task) if task.slot.name == "rest" => rest.push(task),
            _ => {}
        }
    }
    assert_eq!(rest.len(), 1, "one at a time");
    let name = driver.state.experiments.next_unread().cloned().expect("one is left");
    let is_counted = |driver: &Driver| {
        let row = row_of(driver, &format!("│  {name} "));
        row.split("││").next().is_some_and(|row| row.contains("0/"))
    };
    assert!(!is_counted(&driver));
    send(&mut driver, Message::Answered(rest.remove(0).run()));
    assert!(is_counted(&driver) && driver.state.experiments.entries.is_none());
    driver.shows(" counting ╮");
}
