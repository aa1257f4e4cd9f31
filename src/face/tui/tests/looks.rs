//! What the screens look like, in the smallest window and in a large one.

use ratatui::style::Color;

use super::fixtures::Driver;
use crate::face::tui::keymap::Keymap;
use crate::face::tui::message::Message;
use crate::face::tui::state::Tab;
use crate::face::tui::theme::Theme;

const SIZES: [(u16, u16); 2] = [(80, 24), (160, 50)];

fn on(screen: Tab, (columns, rows): (u16, u16)) -> Driver {
    let mut driver = Driver::full(columns, rows);
    if screen == Tab::Live {
        driver = driver.with_sweep();
    }
    driver.state.cx.tab = screen;
    driver
}

#[test]
fn every_screen_at_both_sizes() {
    for size in SIZES {
        for screen in Tab::ALL {
            let name = format!("{}_{}x{}", screen.title(), size.0, size.1);
            insta::assert_snapshot!(name, on(screen, size).screen());
        }
    }
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
        (Tab::Runs, "1 lists experiments"),
        (Tab::Pareto, "1 lists experiments"),
        (Tab::Timeline, "3 lists runs, F2 there opens the timeline of one"),
        (Tab::Timeline, "F9 opens a trace file"),
    ] {
        driver.state.cx.tab = screen;
        assert!(driver.screen().contains(told), "{told}: {}", driver.screen());
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
    driver.keys("d");
    insta::assert_snapshot!("runs_detail", driver.screen());
    let mut driver = on(Tab::Live, (80, 24));
    driver.keys("q");
    insta::assert_snapshot!("confirm_quit", driver.screen());
    let mut driver = on(Tab::Experiments, (80, 24));
    driver.keys("j");
    insta::assert_snapshot!("broken_experiment", driver.screen());
    driver.enter();
    insta::assert_snapshot!("broken_experiment_error", driver.screen());
}

#[test]
fn small_windows_say_so() {
    insta::assert_snapshot!("small_40x12", Driver::full(40, 12).screen());
    insta::assert_snapshot!("small_1x1", Driver::full(1, 1).screen());
    insta::assert_snapshot!("small_79x24", Driver::full(79, 24).screen().trim());
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
        let with = driver.screen();
        driver.state.cx.theme = Theme::new(false);
        assert_eq!(colours(&driver), 0, "{screen:?}");
        assert_eq!(with, driver.screen(), "{screen:?} says the same without colour");
    }
}

#[test]
fn results_that_are_no_measurements_say_so_on_every_screen() {
    for screen in Tab::ALL {
        for size in SIZES {
            let shown = on(screen, size).screen();
            let label = if screen == Tab::WhatIf { "simulated" } else { "emulated-link" };
            assert!(shown.contains(label), "{screen:?} at {size:?}:\n{shown}");
        }
    }
}
