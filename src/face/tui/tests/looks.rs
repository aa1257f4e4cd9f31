//! What the screens look like, in the smallest window and in a large one.

use std::path::Path;
use std::sync::Arc;

use ratatui::style::Color;

use super::fixtures::{Driver, entries, record};
use crate::face::tui::context::Snapshot;
use crate::face::tui::keymap::Keymap;
use crate::face::tui::screen::Tab;
use crate::face::tui::screen::{News, Screen};
use crate::face::tui::screens::experiments::state::ExperimentEntry;
use crate::face::tui::theme::{Role, Theme};
use crate::face::tui::update::{Effect, Message};
use crate::face::tui::widgets::shade::{MODULES, module};
use lab::sweep::{Cell, Experiment};
use run::Feasibility;
use table::Record;

const SIZES: [(u16, u16); 3] = [(60, 16), (80, 24), (120, 40)];

fn on(screen: Tab, (columns, rows): (u16, u16)) -> Driver {
    let mut driver = Driver::full(columns, rows);
    if screen == Tab::Live {
        driver = driver.with_sweep();
    }
    driver.state.cx.tab = screen;
    let effects = driver.send(Message::Resize(columns, rows));
    driver.answer(effects);
    driver
}

#[test]
fn every_screen_at_every_size() {
    for size in SIZES {
        for screen in Tab::ALL {
            let name = format!("{}_{}x{}", screen.title(), size.0, size.1);
            insta::assert_snapshot!(name, on(screen, size).screen());
        }
    }
}

#[test]
fn in_a_window_that_is_too_small_nothing_is_worked_on() {
    let mut driver = on(Tab::Runs, (80, 24));
    let before = driver.screen();
    driver.send(Message::Resize(50, 14));
    driver.keys("DtoopsjD6");
    driver.send(Message::Paste("tp:4".into()));
    driver.send(Message::Resize(80, 24));
    assert_eq!(driver.screen(), before);
}

#[test]
fn empty_screens_tell_of_the_keys_that_are_bound() {
    let changes = [("everywhere.open", "F9"), ("runs.open", "F2")];
    let changes = changes.map(|(id, key)| (id.to_owned(), vec![key.to_owned()]));
    let mut driver = Driver::empty(100, 24);
    let wrong;
    (driver.state.cx.keys, wrong) = Keymap::with(&changes);
    assert!(wrong.is_empty(), "{wrong:?}");
    driver.send(Message::Runs(Ok(Default::default())));
    driver.state.pareto.set(Default::default(), Vec::new(), Default::default());
    for (screen, told) in [
        (Tab::Runs, "1 lists experiments, r there runs one"),
        (Tab::Pareto, "1 lists experiments, r there runs one"),
        (Tab::Timeline, "3 lists runs, F2 there opens the timeline of one"),
        (Tab::Timeline, "F9 opens a trace file"),
    ] {
        driver.state.cx.tab = screen;
        driver.shows(told);
    }
    for screen in [Tab::Live, Tab::Runs, Tab::Timeline, Tab::Pareto, Tab::Compare] {
        driver.state.cx.tab = screen;
        driver.hides("x export");
    }
    for screen in [Tab::Pareto, Tab::Compare] {
        driver.state.cx.tab = screen;
        driver.hides("Enter timeline");
        driver.hides("baseline");
    }
}

#[test]
fn empty_screens_say_what_to_do() {
    let mut driver = Driver::empty(80, 24);
    driver.read(Vec::new());
    driver.send(Message::Runs(Ok(Default::default())));
    driver.state.pareto.set(Default::default(), Vec::new(), Default::default());
    for screen in Tab::ALL {
        driver.state.cx.tab = screen;
        if screen != Tab::Compare {
            insta::assert_snapshot!(format!("empty_{}", screen.title()), driver.screen());
        }
    }
}

#[test]
fn overlays() {
    let mut driver = on(Tab::Runs, (80, 24));
    driver.keys("?");
    insta::assert_snapshot!("help", driver.screen());
    driver.press(crossterm::event::KeyCode::Esc);
    driver.keys(":sort");
    insta::assert_snapshot!("palette", driver.screen());
    driver.press(crossterm::event::KeyCode::Esc);
    let mut driver = on(Tab::Live, (80, 24));
    driver.keys("q");
    insta::assert_snapshot!("confirm_quit", driver.screen());
    let mut driver = on(Tab::Experiments, (80, 24));
    driver.keys("j");
    driver.enter();
    insta::assert_snapshot!("broken_experiment_error", driver.screen());
}

#[test]
fn nothing_of_the_footer_below_is_left_under_the_keys_of_an_overlay() {
    let mut driver = on(Tab::Runs, (120, 40));
    driver.press(crossterm::event::KeyCode::Char('?'));
    let under = |driver: &Driver| {
        let buffer = driver.buffer();
        (0..120).map(|x| buffer[(x, 39)].clone()).collect::<Vec<_>>()
    };
    let over_the_runs = under(&driver);
    driver.state.cx.tab = Tab::Live;
    assert_eq!(over_the_runs, under(&driver), "whatever the screen's own hints are");
}

#[test]
fn small_windows_say_so() {
    insta::assert_snapshot!("small_50x14", Driver::full(50, 14).screen());
    let too_small = |columns, rows| Driver::full(columns, rows).screen().contains("window too small");
    assert!(too_small(59, 16) && too_small(60, 15) && !too_small(60, 16));
    assert_eq!(Driver::full(1, 1).screen().trim(), "w");
}

#[test]
fn without_colour_there_is_none() {
    for screen in Tab::ALL {
        let mut driver = on(screen, (100, 30));
        let colours = |driver: &Driver| {
            let buffer = driver.buffer();
            buffer.content.iter().filter(|c| c.fg != Color::Reset || c.bg != Color::Reset).count()
        };
        assert!(colours(&driver) > 0, "{screen:?} uses colour where it may");
        // glyphs take the place of the colours of modules and of lines in a plot
        let plain = |text: String| {
            let is_line = |c: char| "•◦▪▫▾▿▴▵".contains(c) || ('\u{2800}'..='\u{28ff}').contains(&c);
            let text = MODULES.iter().fold(text, |all, glyph| all.replace(glyph, MODULES[0]));
            let text = text.replace(is_line, " ");
            text.lines().map(|row| row.trim_end().to_owned()).collect::<Vec<_>>()
        };
        let with = plain(driver.screen());
        driver.state.cx.theme = Theme::new(false);
        assert_eq!(colours(&driver), 0, "{screen:?}");
        assert_eq!(with, plain(driver.screen()), "{screen:?} says the same without colour");
    }
}

#[test]
fn results_that_are_no_measurements_say_so_on_every_screen() {
    for screen in Tab::ALL {
        for size in SIZES {
            let shown = on(screen, size).screen();
            let label = match screen {
                Tab::WhatIf => "simulated",
                // its column has six letters
                Tab::Runs if size.0 <= 80 => " emul ",
                _ => "emulated-link",
            };
            assert!(shown.contains(label), "{screen:?} at {size:?}:\n{shown}");
        }
    }
}

#[test]
fn a_screen_without_a_sweep_offers_no_key_that_does_nothing() {
    let mut driver = Driver::empty(120, 24);
    driver.state.cx.tab = Tab::Live;
    let footer = |driver: &Driver| driver.screen().lines().last().unwrap_or_default().to_owned();
    assert!(!footer(&driver).contains("pause") && footer(&driver).contains("? help"));
    let running = on(Tab::Live, (120, 24));
    assert!(footer(&running).contains("p pause"), "{}", footer(&running));
    assert!(!footer(&running).contains("Q queue"), "no sweep waits: {}", footer(&running));
}

#[test]
fn the_footer_of_the_grid_has_the_keys_of_the_selected_row() {
    use crossterm::event::KeyCode;
    let mut driver = on(Tab::Experiments, (100, 24));
    driver.shows("a add value");
    driver.hides("u undo");
    // into the grid, from its axis to a setting
    driver.tap(KeyCode::Right);
    driver.tap(KeyCode::Down);
    driver.hides("a add value");
    driver.taps("D");
    driver.shows("u undo");
}

#[test]
fn experiments_are_listed_by_name_before_they_are_planned() {
    let mut driver = Driver::empty(80, 24);
    driver.state.experiments.react(&News::Reload, &mut driver.state.cx);
    let mut effects = driver.send(Message::Resize(80, 24));
    let answer = |driver: &mut Driver, effects: &mut Vec<Effect>, name: &str| {
        let asked = |effect: &Effect| matches!(effect, Effect::Ask(task) if task.slot.name == name);
        let at = effects.iter().position(asked).unwrap_or_else(|| panic!("{name}: {effects:?}"));
        let Effect::Ask(task) = effects.remove(at) else { panic!("{name}") };
        effects.extend(driver.send(Message::Answered(task.run())));
    };
    answer(&mut driver, &mut effects, "names");
    assert!(driver.state.experiments.selected().is_none(), "no file has been read");
    let screen = driver.screen();
    assert!(screen.contains("  quickstart") && screen.contains("  paper-70b"), "{screen}");
    driver.shows("How much of a slow all-reduce");
    driver.shows("reading the grid…");
    // the mark of queued sweeps is not that of runs to count
    driver.shows(" counting ╮");
    driver.hides("…│");
    driver.hides("u undo");
    driver.enter();
    driver.shows("your key acts in a moment");
    driver.state.experiments.early = None;
    // then the selected one, with its forecast, before the others
    answer(&mut driver, &mut effects, "ahead");
    driver.shows("0/18");
    driver.shows("computing the forecast…");
    answer(&mut driver, &mut effects, "check");
    driver.shows("r: 18 runs (6 cells x 3 rounds), ");
    assert!(driver.state.experiments.entries.is_none(), "the others have not been read");
    // an act on one that is not read waits for it alone
    effects.extend(driver.keys("p"));
    driver.shows("your key acts in a moment");
    answer(&mut driver, &mut effects, "ahead");
    assert!(driver.state.live.is_running() && driver.state.cx.tab == Tab::Live);
    assert_eq!(driver.state.live.experiment.as_deref(), Some("paper-70b"));
}

#[test]
fn each_experiment_of_a_long_list_has_its_question_in_a_wide_window() {
    for (size, has_questions) in [((80, 24), false), ((120, 24), false), ((120, 40), true)] {
        let mut driver = Driver::empty(size.0, size.1);
        let named = |at: usize| (format!("experiment-{at}"), format!("Is number {at} fast?"));
        driver.state.experiments.list_names((0..19).map(named).collect());
        let screen = driver.screen();
        assert_eq!(screen.contains("Is number 9 fast?"), has_questions, "{screen}");
        // those that have no row are counted
        driver.shows(" more ─╯");
    }
}

#[test]
fn the_paper_key_shows_the_stored_result_and_runs_nothing() {
    let mut driver = Driver::empty(120, 40);
    let paper = Experiment::open(Path::new("paper-70b")).unwrap();
    let cells = paper.cells.iter().filter(|cell| cell.feasibility == Feasibility::Runs);
    let record = |(at, cell): (usize, &Cell)| Record {
        experiment: Some("paper-70b".into()),
        ..record(&format!("paper:{at}"), cell.spec.clone(), 100.0)
    };
    let runs: Vec<Record> = cells.enumerate().map(record).collect();
    assert_eq!(runs.len(), 80);
    let mut entries = entries();
    entries.push(ExperimentEntry::new("paper-70b", "built in", paper.text.clone(), Ok(paper)));
    driver.read(entries);
    driver.send(Message::Runs(Ok(Arc::new(Snapshot::new(runs, Vec::new())))));
    driver.shows("80/80");
    let effects = driver.keys("p");
    assert!(effects.iter().all(|effect| !matches!(effect, Effect::Sweep(_))), "{effects:?}");
    driver.shows("stored result of paper-70b; R runs all again");
    driver.answer(effects);
    driver.shows("result of paper-70b");
    assert_eq!(driver.state.experiments.selected().map(|entry| entry.name.as_str()), Some("paper-70b"));
    assert_eq!(driver.state.cx.tab, Tab::Live);
}

#[test]
fn without_colour_modules_have_glyphs_of_their_own() {
    let glyphs = |theme: Theme| (0..4).map(|at| module(Role::Series(at), theme)).collect::<Vec<_>>();
    assert_eq!(glyphs(Theme::new(true)), ["█"; 4]);
    assert_eq!(glyphs(Theme::new(false)), MODULES);
    // the legend has them too
    let mut driver = on(Tab::Timeline, (160, 50));
    driver.state.cx.theme = Theme::new(false);
    driver.keys("L");
    let legend = driver.screen();
    for (glyph, module) in MODULES.iter().zip(["attention", "MLP", "head", "all else"]) {
        let line = legend.lines().find(|line| line.contains(&format!("compute, {module}")));
        assert!(line.is_some_and(|line| line.contains(glyph)), "{module}: {legend}");
    }
}
