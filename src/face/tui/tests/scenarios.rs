//! Keys in, states and effects out.

use std::collections::HashSet;
use std::path::Path;
use std::sync::Arc;

use crossterm::event::{KeyCode, MouseButton, MouseEvent, MouseEventKind};

use super::fixtures::{Driver, ended, record, spec, trace};
use crate::face::tui::context::Snapshot;
use crate::face::tui::help::{Help, help_groups};
use crate::face::tui::keymap::{Action, BoundAction, HintWords, Keymap};
use crate::face::tui::palette;
use crate::face::tui::screen::Tab;
use crate::face::tui::screens::live::state::CellState;
use crate::face::tui::screens::timeline::state::pane::OverlapOf;
use crate::face::tui::screens::timeline::state::row::WAITING;
use crate::face::tui::theme::Theme;
use crate::face::tui::update::{Effect, Message, StoreTask, SweepOrder};
use plan::Phase;
use table::{Backend, P2p, Provenance, Status};

/// True if the help of a screen has this action with its keys.
fn is_in_help(bound: &BoundAction, screen: Tab) -> bool {
    let groups = help_groups(&Keymap::default(), screen, Theme::new(true));
    let mut entries = groups.iter().flat_map(|group| &group.entries);
    entries.any(|entry| entry.name == bound.label() && entry.text == bound.row.name)
}

fn shown_runs(driver: &Driver) -> Vec<String> {
    let stored = driver.state.cx.stored.as_ref().expect("runs were sent");
    driver.state.runs.rows().map(|row| stored.records[row as usize].run.clone()).collect()
}

#[test]
fn enter_shows_the_result_of_an_interrupted_experiment() {
    let mut driver = Driver::full(80, 24);
    let effects = driver.enter();
    assert!(
        matches!(&effects[..], [Effect::Ask(task)] if format!("{task:?}").contains("answer")),
        "{effects:?}"
    );
    assert_eq!(driver.state.cx.tab, Tab::Live);
    assert!(!driver.state.live.is_running());
    driver.shows("stored result of quickstart; r runs the 2 missing runs, R runs all again");
    // nothing failed
    driver.state.cx.notice = None;
    driver.shows("r run missing");
    driver.hides("retry");
    driver.answer(effects);
    driver.shows("2 runs of quickstart are missing: r runs them");
    let effects = driver.keys("r");
    assert!(matches!(&effects[..], [Effect::Sweep(SweepOrder::Start { .. }), ..]), "{effects:?}");
}

#[test]
fn r_runs_the_quickstart_and_shows_it_live() {
    let mut driver = Driver::full(80, 24);
    let effects = driver.keys("r");
    let [Effect::Sweep(SweepOrder::Start { experiment, .. }), ..] = &effects[..] else {
        panic!("{effects:?}")
    };
    assert_eq!(experiment.name, "quickstart");
    assert_eq!(driver.state.cx.tab, Tab::Live);
    assert!(driver.state.live.is_running());
    driver.keys("1");
    assert!(driver.keys("r").is_empty(), "one sweep at a time");
    driver.shows("quickstart starts after quickstart");
}

#[test]
fn a_broken_experiment_tells_its_error_and_runs_nothing() {
    let mut driver = Driver::full(80, 24);
    driver.keys("j");
    assert!(driver.enter().is_empty());
    driver.shows("did you mean 'architecture'?");
    driver.press(KeyCode::Esc);
    assert!(driver.state.cx.notice.is_none());
}

#[test]
fn q_quits_at_once_when_nothing_runs() {
    for screen in Tab::ALL {
        let mut driver = Driver::full(80, 24);
        driver.state.cx.tab = screen;
        // screens that ask for what they show as soon as they are seen still do
        let effects = driver.keys("q");
        assert!(matches!(effects[0], Effect::Quit { interrupted: false }), "{screen:?}");
    }
}

#[test]
fn q_asks_while_a_sweep_runs_and_waits_for_its_end() {
    let mut driver = Driver::full(80, 24).with_sweep();
    assert!(driver.keys("q").is_empty());
    assert!(driver.keys("n").is_empty());
    assert!(driver.state.cx.overlays.is_empty() && !driver.state.cx.leaving);
    driver.keys("q");
    assert!(matches!(driver.keys("y")[..], [Effect::Sweep(SweepOrder::CancelAll)]));
    driver.shows("ending");
    let effects = driver.send(ended(0, true));
    assert!(matches!(effects[..], [Effect::Quit { interrupted: true }]));
}

#[test]
fn a_signal_cancels_first_and_leaves_at_once_when_repeated() {
    let mut driver = Driver::full(80, 24).with_sweep();
    assert!(matches!(driver.send(Message::Terminate)[..], [Effect::Sweep(SweepOrder::CancelAll)]));
    assert!(matches!(driver.send(Message::Terminate)[..], [Effect::Quit { interrupted: true }]));
    let mut idle = Driver::full(80, 24);
    assert!(matches!(idle.send(Message::Terminate)[..], [Effect::Quit { interrupted: true }]));
}

#[test]
fn escape_closes_what_lies_on_top_in_order() {
    let mut driver = Driver::full(80, 24);
    driver.keys("3/ladder");
    driver.enter();
    driver.keys("d");
    driver.send(Message::Notified(Err("disk full".into())));
    driver.keys("?");
    assert!(driver.state.cx.top::<Help>().is_some());
    let mut left = Vec::new();
    for _ in 0..4 {
        driver.press(KeyCode::Esc);
        let state = &driver.state;
        let filter = state.runs.filter.value().to_string();
        left.push((
            state.cx.overlays.len(),
            state.cx.notice.is_some(),
            state.runs.shows_detail(80),
            filter,
        ));
    }
    let filter = || "ladder".to_string();
    assert_eq!(
        left,
        [
            (0, true, true, filter()),
            (0, false, true, filter()),
            (0, false, false, filter()),
            (0, true, false, String::new())
        ]
    );
}

#[test]
fn digits_and_tab_change_screens() {
    let mut driver = Driver::full(80, 24);
    for (digit, screen) in ('1'..='7').zip(Tab::ALL) {
        driver.press(KeyCode::Char(digit));
        assert_eq!(driver.state.cx.tab, screen);
    }
    driver.press(KeyCode::Tab);
    assert_eq!(driver.state.cx.tab, Tab::Experiments);
    driver.press(KeyCode::BackTab);
    assert_eq!(driver.state.cx.tab, Tab::WhatIf);
}

#[test]
fn whatever_the_palette_offers_stands_in_help_with_its_keys() {
    for screen in Tab::ALL {
        let keys = Keymap::default();
        let offered: Vec<_> = palette::usable(&keys, screen).collect();
        assert!(offered.len() > 10);
        for bound in offered {
            assert!(is_in_help(bound, screen), "{} is not in the help of {screen:?}", bound.row.name);
        }
    }
}

#[test]
fn the_footer_has_the_main_keys_of_help_that_can_be_pressed_now() {
    for screen in Tab::ALL {
        let mut driver = Driver::full(300, 60);
        driver.state.cx.tab = screen;
        let footer = driver.screen().lines().last().unwrap_or_default().to_owned();
        let keys = Keymap::default();
        for bound in keys.all().iter().filter(|bound| bound.holds_on(screen)) {
            let Some(hint) = bound.row.hint else { continue };
            assert!(is_in_help(bound, screen), "{} is not in the help of {screen:?}", bound.row.name);
            let is_possible = match bound.action {
                Action::On(tab, at) => {
                    let (screen, cx) = (driver.state.screen(tab), &driver.state.cx);
                    screen.why_impossible(at, cx).is_none()
                        && screen.own_hint(at, cx) != Some(HintWords::HIDDEN)
                }
                Action::Export => driver.state.screen(screen).has_content(),
                _ => true,
            };
            let shown = footer.contains(&format!("{} {}", bound.keys[0].label(), hint.whole));
            assert_eq!(shown, is_possible, "{screen:?}: {} in {footer}", hint.whole);
        }
    }
}

#[test]
fn the_palette_does_what_was_chosen() {
    let mut driver = Driver::full(80, 24);
    driver.keys(":screen pareto");
    driver.enter();
    assert_eq!(driver.state.cx.tab, Tab::Pareto);
    assert!(driver.state.cx.overlays.is_empty());
    driver.keys(":");
    driver.keys("export");
    let effects = driver.enter();
    assert!(!effects.iter().any(|effect| matches!(effect, Effect::Export { .. })), "{effects:?}");
    driver.shows("runs/exports/pareto.svg");
    let effects = driver.enter();
    let [Effect::Export { path, .. }] = &effects[..] else { panic!("{effects:?}") };
    assert_eq!(path, Path::new("runs/exports/pareto.svg"));
    assert!(driver.state.cx.overlays.is_empty());
}

#[test]
fn a_path_without_extension_gets_that_of_the_screens_table() {
    let mut driver = Driver::full(80, 24);
    driver.keys("3x");
    driver.shows(".csv is added");
    for _ in 0..".svg".len() {
        driver.press(KeyCode::Backspace);
    }
    let effects = driver.enter();
    let [Effect::Export { path, .. }] = &effects[..] else { panic!("{effects:?}") };
    assert_eq!(path, Path::new("runs/exports/runs.csv"));
    driver.shows("writing runs/exports/runs.csv…");
}

#[test]
fn a_file_to_export_must_say_its_kind() {
    let mut driver = Driver::full(80, 24);
    driver.keys("3x");
    for _ in 0.."svg".len() {
        driver.press(KeyCode::Backspace);
    }
    driver.keys("pdf");
    assert!(driver.enter().is_empty());
    driver.shows("unknown format; use .svg");
    for _ in 0.."pdf".len() {
        driver.press(KeyCode::Backspace);
    }
    driver.keys("png");
    driver.hides("does not say what");
    let effects = driver.enter();
    let [Effect::Export { export, .. }] = &effects[..] else { panic!("{effects:?}") };
    let dir = tempfile::tempdir().expect("a directory");
    for name in ["screen.png", "screen.svg"] {
        export.write(&dir.path().join(name)).expect("it is written");
    }
    let svg = std::fs::read_to_string(dir.path().join("screen.svg")).expect("it is there");
    assert!(svg.contains("upper-bound"), "the picture shows the runs");
}

#[test]
fn a_letter_typed_into_a_filter_is_no_command() {
    let mut driver = Driver::full(80, 24);
    driver.keys("3/q");
    assert!(driver.state.runs.filter.typing && !driver.state.cx.leaving);
}

#[test]
fn enter_opens_the_timeline_of_the_selected_run() {
    let mut driver = Driver::full(80, 24);
    driver.keys("3/ladder p2p=off");
    driver.enter();
    let effects = driver.enter();
    assert_eq!(driver.state.cx.tab, Tab::Timeline);
    driver.shows("opening 20260102-0304-3");
    driver.keys("3");
    let again = driver.enter();
    driver.answer(effects);
    assert!(driver.state.cx.notice.is_none(), "an answer to an older request is dropped");
    driver.answer(again);
    driver.shows("the trace of run 20260102-0304-3 is gone");
    assert_eq!(driver.state.cx.tab, Tab::Runs, "nothing to show on the timeline");
}

#[test]
fn a_trace_that_cannot_be_opened_leaves_the_open_one_to_its_reader() {
    let mut driver = Driver::full(80, 24);
    driver.keys("3/ladder p2p=off");
    driver.enter();
    let effects = driver.enter();
    driver.shows("opening 20260102-0304-3…");
    driver.shows("tiny standard tp2");
    driver.press(KeyCode::Right);
    driver.answer(effects);
    driver.shows("the trace of run 20260102-0304-3 is gone");
    driver.shows("tiny standard tp2");
    assert_eq!(driver.state.cx.tab, Tab::Timeline);
}

#[test]
fn a_run_without_numbers_says_why_it_has_no_timeline() {
    let mut driver = Driver::full(80, 24);
    driver.keys("3/failed");
    driver.enter();
    assert!(driver.enter().is_empty());
    driver.shows("rank 1 died of signal 9");
}

#[test]
fn a_copied_id_goes_to_the_clipboard() {
    let mut driver = Driver::full(80, 24);
    driver.keys("3");
    let first = driver.state.runs.selected(driver.state.cx.stored.as_ref()).unwrap().run.clone();
    let effects = driver.keys("y");
    assert!(matches!(&effects[..], [Effect::Copy(run)] if *run == first), "{effects:?}");
}

#[test]
fn a_long_message_is_wrapped_and_a_longer_one_names_the_key_of_the_list() {
    let mut driver = Driver::full(60, 16);
    let words = |count| (0..count).map(|at: usize| format!("word{at:03} ")).collect::<String>();
    driver.send(Message::Notified(Ok(words(20))));
    driver.shows("word000");
    driver.shows("word019");
    driver.send(Message::Notified(Ok(words(100))));
    driver.shows("word000");
    driver.shows("… M: all of it");
    driver.press(KeyCode::Esc);
    driver.hides("word000");
    driver.shows("? help");
    driver.keys("M");
    driver.press(KeyCode::PageDown);
    driver.press(KeyCode::PageDown);
    driver.shows("word099");
}

#[test]
fn a_copied_command_too_long_for_the_window_is_counted() {
    let mut driver = Driver::full(60, 16);
    driver.keys("3/");
    driver.send(Message::Paste("-absent01 ".repeat(50)));
    driver.enter();
    let effects = driver.keys("Y");
    let [Effect::Copy(command)] = &effects[..] else { panic!("{effects:?}") };
    assert!(command.matches("absent01").count() == 50, "{command}");
    driver.shows(&format!("copied {} characters (without the default order)", command.chars().count()));
}

#[test]
fn a_sweep_is_told_cell_by_cell() {
    let driver = Driver::full(80, 24).with_sweep();
    let live = &driver.state.live;
    let states: Vec<_> = live.cells.iter().map(|c| c.state).collect();
    assert_eq!(
        states,
        [
            CellState::Done(Status::Ok),
            CellState::Running,
            CellState::Done(Status::Skipped),
            CellState::Done(Status::Oom)
        ]
    );
    let progress = live.progress(13_000);
    // two cells cannot run: of the two rounds of two others one run is done
    assert_eq!((progress.done, progress.total, progress.unable), (1, 4, 2));
    assert!((progress.fraction - 1.5 / 4.0).abs() < 1e-9);
    let screen = driver.screen();
    assert!(screen.contains("1/4 runs  ⊘ 2 cannot run  left"), "{screen}");
    // 12 s for a run and a half; a half and two whole ones are left
    assert_eq!(progress.left_ms, Some(20_000));
    assert_eq!(live.cells[1].tpot_ms, Some(4.0));
    assert_eq!(live.cells[1].tokens_per_s, Some(1000.0));
    assert_eq!(live.cells[0].took_ms, Some(8_000));
}

#[test]
fn cells_and_sweeps_can_be_cancelled() {
    let mut driver = Driver::full(80, 24).with_sweep();
    assert!(
        matches!(driver.keys("c")[..], [Effect::Sweep(SweepOrder::CancelCell(1))]),
        "the cell under way is selected"
    );
    assert!(driver.keys("C").is_empty(), "asks first");
    assert!(matches!(driver.keys("y")[..], [Effect::Sweep(SweepOrder::CancelAll)]));
    let effects = driver.send(ended(0, true));
    assert!(effects.iter().any(|e| matches!(e, Effect::Store(StoreTask::Read))));
    assert_eq!(driver.state.live.cells[1].state, CellState::Done(Status::Interrupted));
    assert!(driver.keys("c").is_empty());
}

#[test]
fn points_of_different_provenance_are_never_in_one_plot() {
    let mut driver = Driver::full(80, 24);
    driver.keys("5");
    let mut seen = HashSet::new();
    for _ in 0..driver.state.pareto.groups.len() {
        let shown: HashSet<Provenance> = driver.state.pareto.visible().map(|p| p.provenance).collect();
        assert_eq!(shown.len(), 1);
        seen.extend(shown);
        // the list of groups: the next one
        driver.keys("g");
        driver.press(KeyCode::Down);
        driver.enter();
    }
    assert_eq!(seen.len(), 2);
    driver.keys("p");
    driver.shows("all of these points have the same P2P setting");
    assert!(driver.state.pareto.visible().count() > 0);
}

#[test]
fn arrows_select_points_and_enter_opens_them() {
    let mut driver = Driver::full(80, 24);
    driver.keys("5");
    driver.press(KeyCode::Right);
    let second = driver.state.pareto.current().map(|p| p.run.clone());
    assert_eq!(second.as_deref(), Some("20260102-0304-3"));
    driver.press(KeyCode::Up);
    driver.press(KeyCode::Up);
    let fastest = driver.state.pareto.current().map(|p| p.tokens_per_s_per_gpu);
    assert_eq!(
        fastest,
        driver.state.pareto.visible().map(|p| p.tokens_per_s_per_gpu).max_by(f64::total_cmp)
    );
    let run = driver.state.pareto.current().map(|p| p.run.clone()).expect("one is selected");
    driver.enter();
    driver.shows(&format!("opening {run}"));
}

#[test]
fn the_timeline_moves_by_operation_step_and_window() {
    let mut driver = Driver::full(80, 24);
    driver.keys("4");
    let at = |driver: &Driver| {
        let view = driver.state.timeline.view.as_ref().expect("a trace is open");
        let span = view.span().expect("a span is under the cursor");
        (span.step, span.operation, span.rank, view.window)
    };
    let (step, operation, rank, first) = at(&driver);
    assert_eq!((step, operation, rank), (0, 3, 0), "opens at the first decode step");
    driver.press(KeyCode::Right);
    assert_eq!(at(&driver).1, 4);
    driver.keys("z");
    let span = at(&driver).3;
    assert!(span.width() < first.width());
    driver.keys("u");
    assert_eq!(at(&driver).3, first);
    driver.keys("]]");
    assert_eq!(at(&driver).0, 2);
    assert_eq!(at(&driver).3.from, 5_000 + 3 * 46_000, "fits the step");
    driver.keys("[");
    assert_eq!(at(&driver).0, 1);
    driver.press(KeyCode::Down);
    driver.press(KeyCode::Down);
    driver.press(KeyCode::Down);
    assert_eq!(at(&driver).2, 1, "the next rank, behind its exposed communication");
    driver.keys("f");
    let bounds = at(&driver).3;
    assert_eq!((bounds.from, bounds.to), (5_000, 5_000 + 4 * 46_000 + 45_000));
    driver.keys("uuuu");
    assert_eq!(at(&driver).3, first);
    driver.keys("u");
    driver.shows("nothing to undo");
}

#[test]
fn the_overlap_of_a_step_is_asked_for_once() {
    let mut driver = Driver::full(80, 24);
    let effects = driver.keys("4");
    driver.answer(effects);
    let step = |driver: &Driver, step| {
        let known =
            |part: &OverlapOf| part.is_some_and(|key| key.step == step && key.phase == Phase::Decode);
        driver.state.timeline.view.iter().any(|view| view.panes[0].overlap.keys().any(known))
    };
    let asked = driver.keys("]");
    assert!(driver.keys("]").is_empty(), "one at a time");
    let mut next = Vec::new();
    for effect in asked {
        let Effect::Ask(one) = effect else { panic!("it is asked for") };
        next.extend(driver.send(Message::Answered(one.run())));
    }
    assert!(
        step(&driver, 1) && !step(&driver, 2) && !next.is_empty(),
        "then the one shown now: {next:?}"
    );
    driver.answer(next);
    assert!(step(&driver, 2));
    // only the operations in the window are new
    let asked = driver.keys("z");
    let is_zoomed = |effect: &Effect| matches!(effect, Effect::Ask(one) if one.slot.name == "zoomed");
    assert!(asked.iter().all(is_zoomed), "{asked:?}");
}

#[test]
fn exposed_communication_and_waiting_for_peers_are_told_apart() {
    let index = trace();
    // a step's comm is 15 us on rank 0 and none of it is hidden; rank 1 starts 2 us later
    let step = index.steps[1].window;
    let exposed = |rank: usize| index.ranks[rank].exposed.within((step.from, step.to));
    assert_eq!((exposed(0), exposed(1)), (15_000, 13_000));
    let waiting = |row: usize| index.rows[row].columns(index.spans(), step, 1, 0)[0].covered[WAITING];
    assert_eq!((waiting(1), waiting(3)), (2_000, 0));
}

#[test]
fn the_mouse_clicks_tabs_and_rows_and_can_be_switched_off() {
    let mut driver = Driver::full(80, 24);
    let click = |column, row| {
        let kind = MouseEventKind::Down(MouseButton::Left);
        Message::Mouse(MouseEvent { kind, column, row, modifiers: crossterm::event::KeyModifiers::NONE })
    };
    let tabs = driver.screen().lines().next().unwrap_or_default().to_string();
    let column = tabs.find("runs").expect("a tab") as u16;
    driver.send(click(column, 0));
    assert_eq!(driver.state.cx.tab, Tab::Runs);
    let shown = driver.screen();
    let wanted = shown_runs(&driver).iter().position(|run| run == "20260102-0304-2").expect("a row");
    let head = shown.lines().position(|line| line.contains("TPOT ms")).expect("a header");
    driver.send(click(5, (head + 1 + wanted) as u16));
    assert_eq!(driver.state.runs.list.selected, wanted);
    driver.send(click(79, 23));
    assert!(matches!(driver.keys("m")[..], [Effect::CaptureMouse(false)]));
    assert!(matches!(driver.keys("m")[..], [Effect::CaptureMouse(true)]));
}

#[test]
fn the_wheel_zooms_a_timeline_around_the_pointer() {
    let mut driver = Driver::full(80, 24);
    driver.keys("4");
    let before = driver.state.timeline.view.as_ref().expect("open").window;
    let kind = MouseEventKind::ScrollUp;
    let none = crossterm::event::KeyModifiers::NONE;
    driver.send(Message::Mouse(MouseEvent { kind, column: 16, row: 6, modifiers: none }));
    let after = driver.state.timeline.view.as_ref().expect("open").window;
    assert_eq!(after.from, before.from, "the pointer was at the left edge");
    assert!(after.width() < before.width());
}

#[test]
fn a_long_list_scrolls_with_the_selection() {
    let mut driver = Driver::empty(80, 24);
    let many =
        (0..500).map(|i| record(&format!("run-{i:03}"), spec("ladder", 2, P2p::On, Backend::Sim), 9.0));
    driver.send(Message::Runs(Ok(Arc::new(Snapshot::new(many.collect(), Vec::new())))));
    driver.keys("3g");
    driver.press(KeyCode::End);
    driver.shows("row 500");
    assert_eq!(driver.state.runs.list.offset, 500 - 19, "the last one is in view");
    driver.press(KeyCode::Home);
    assert_eq!(driver.state.runs.list.offset, 0);
    driver.press(KeyCode::PageDown);
    assert!(driver.state.runs.list.selected > 10);
}

#[test]
fn help_is_not_cut_in_the_smallest_window() {
    for screen in Tab::ALL {
        let mut driver = Driver::full(80, 24);
        driver.state.cx.tab = screen;
        driver.keys("?");
        for _ in 0..12 {
            let help = driver.screen();
            // the right edge of what lies on top
            let edge = |line: &&str| line.chars().skip(76).take(2).eq("…│".chars());
            assert_eq!(help.lines().find(edge), None, "{help}");
            driver.press(KeyCode::PageDown);
        }
    }
}
