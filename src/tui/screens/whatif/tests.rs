//! The what-if screen as a user meets it: keys in, numbers of the real simulator out.

use std::sync::Arc;

use crossterm::event::{KeyCode, KeyEvent, KeyModifiers, MouseButton, MouseEvent, MouseEventKind};

use crate::spec::{Backend, P2p};
use crate::tui::action::Screen;
use crate::tui::message::{Effect, Message};
use crate::tui::page::{FileKind, Page};
use crate::tui::screens::whatif::worker::break_even;
use crate::tui::state::State;
use crate::tui::tests::fixtures::{Driver, spec};
use crate::whatif::{Engine, Slider};

const SIZES: [(u16, u16); 3] = [(80, 24), (120, 40), (200, 60)];

/// The screen, answered.
fn on((columns, rows): (u16, u16)) -> Driver {
    let mut driver = Driver::empty(columns, rows);
    press(&mut driver, "7");
    driver
}

fn press(driver: &mut Driver, keys: &str) {
    for key in keys.chars() {
        let effects = driver.keys(&key.to_string());
        driver.answer(effects);
    }
}

fn code(driver: &mut Driver, code: KeyCode, modifiers: KeyModifiers) {
    let effects = driver.send(Message::Key(KeyEvent::new(code, modifiers)));
    driver.answer(effects);
}

/// Moves the selection to a slider.
fn select(driver: &mut Driver, slider: Slider) {
    driver.state.whatif.list.selected = Slider::ALL.iter().position(|s| *s == slider).unwrap();
}

fn search(driver: &mut Driver) {
    let found = break_even(&Engine::default(), &driver.state.whatif.variant);
    driver.send(Message::BreakEven { request: driver.state.whatif.request, found });
}

fn tpot(state: &State, architecture: &str) -> f64 {
    let answer = state.whatif.answer.as_ref().unwrap();
    answer.row(&architecture.parse().unwrap()).unwrap().numbers.as_ref().unwrap().tpot_ms
}

#[test]
fn looks() {
    for size in SIZES {
        let name = |what: &str| format!("{what}_{}x{}", size.0, size.1);
        let mut driver = on(size);
        search(&mut driver);
        insta::assert_snapshot!(name("base"), driver.screen());
        select(&mut driver, Slider::Alpha);
        for _ in 0..3 {
            code(&mut driver, KeyCode::Right, KeyModifiers::SHIFT);
        }
        select(&mut driver, Slider::Batch);
        press(&mut driver, "ll");
        press(&mut driver, "p");
        insta::assert_snapshot!(name("slid"), driver.screen());
        press(&mut driver, "tt");
        code(&mut driver, KeyCode::Enter, KeyModifiers::NONE);
        press(&mut driver, "x");
        code(&mut driver, KeyCode::Enter, KeyModifiers::NONE);
        insta::assert_snapshot!(name("typing"), driver.screen());
    }
}

#[test]
fn every_number_follows_the_slider_and_undo_brings_it_back() {
    let mut driver = on((120, 40));
    let (standard, bound) = (tpot(&driver.state, "standard"), tpot(&driver.state, "upper-bound"));
    select(&mut driver, Slider::Alpha);
    press(&mut driver, "L");
    assert!(tpot(&driver.state, "standard") > standard * 1.1);
    assert_eq!(tpot(&driver.state, "upper-bound"), bound, "it does not communicate");
    let shown = driver.screen();
    assert!(shown.contains("(15.9)"), "the value before stands beside: {shown}");
    press(&mut driver, "u");
    assert_eq!(tpot(&driver.state, "standard"), standard);
    press(&mut driver, "u");
    assert!(driver.screen().contains("nothing to undo"));
    press(&mut driver, "LLL");
    select(&mut driver, Slider::Tp);
    press(&mut driver, "h");
    assert_eq!(driver.state.whatif.variant.cell.tp, 4);
    press(&mut driver, "0");
    assert_eq!(driver.state.whatif.variant.cell.tp, 8);
    press(&mut driver, "r");
    assert_eq!(driver.state.whatif.variant, driver.state.whatif.base);
    assert_eq!(tpot(&driver.state, "standard"), standard);
}

#[test]
fn while_a_key_is_held_only_the_newest_answer_counts() {
    let mut driver = on((120, 40));
    select(&mut driver, Slider::Alpha);
    let effects: Vec<Effect> = driver.keys("llll");
    let asked: Vec<u64> = effects
        .iter()
        .filter_map(|effect| match effect {
            Effect::WhatIf { request, .. } => Some(*request),
            _ => None,
        })
        .collect();
    assert_eq!(asked.len(), 4);
    assert_eq!(*asked.last().unwrap(), driver.state.whatif.request);
    // a late failure of an older question is nobody's business
    driver.send(Message::WhatIf { request: asked[0], result: Err("late".into()) });
    assert!(driver.state.whatif.error.is_none());
    let before = driver.state.whatif.break_even.clone();
    driver.send(Message::BreakEven { request: asked[0], found: Vec::new() });
    assert_eq!(driver.state.whatif.break_even.is_some(), before.is_some());
    // nothing is asked where nothing changed
    assert!(driver.keys("jk").is_empty());
}

#[test]
fn it_is_labelled_and_copies_the_command() {
    let mut driver = on((80, 24));
    select(&mut driver, Slider::Alpha);
    press(&mut driver, "l");
    assert!(driver.screen().contains("[simulated]"));
    let effects = driver.keys("Y");
    let Some(Effect::Copy(command)) = effects.first() else { panic!("{effects:?}") };
    assert!(command.starts_with("ladderscope run --backend sim --architecture ladder"), "{command}");
    assert!(command.contains("--set link.alpha_us=16"), "{command}");
}

#[test]
fn nothing_of_an_older_answer_is_copied_or_exported_while_the_next_is_under_way() {
    let mut driver = on((80, 24));
    select(&mut driver, Slider::Alpha);
    let pending = driver.keys("l");
    let effects = driver.keys("Y");
    assert!(effects.iter().all(|effect| !matches!(effect, Effect::Copy(_))), "{effects:?}");
    assert!(driver.screen().contains("the answer is under way"), "{}", driver.screen());
    assert!(super::WhatIf.export(&driver.state, FileKind::Csv).is_err());
    driver.answer(pending);
    let effects = driver.keys("Y");
    let Some(Effect::Copy(command)) = effects.first() else { panic!("{effects:?}") };
    assert!(command.contains("--set link.alpha_us=16"), "{command}");
}

#[test]
fn a_typed_value_is_taken_or_told_what_is_wrong_with_it() {
    let mut driver = on((120, 40));
    select(&mut driver, Slider::Hardware);
    code(&mut driver, KeyCode::Enter, KeyModifiers::NONE);
    let effects = driver.send(Message::Key(KeyEvent::new(KeyCode::Char('u'), KeyModifiers::CONTROL)));
    driver.answer(effects);
    press(&mut driver, "a100_sx");
    code(&mut driver, KeyCode::Enter, KeyModifiers::NONE);
    let shown = driver.screen();
    assert!(shown.contains("a100_sx") && shown.contains("did you mean"), "{shown}");
    press(&mut driver, "u");
    assert_eq!(driver.state.whatif.variant.cell.hardware, "h100_sxm");
    select(&mut driver, Slider::Batch);
    code(&mut driver, KeyCode::Enter, KeyModifiers::NONE);
    press(&mut driver, ".5");
    code(&mut driver, KeyCode::Enter, KeyModifiers::NONE);
    assert!(driver.screen().contains("'1.5' is not a whole number"), "{}", driver.screen());
    code(&mut driver, KeyCode::Esc, KeyModifiers::NONE);
    assert_eq!(driver.state.whatif.variant.cell.batch, 1);
}

#[test]
fn variants_are_kept_beside_each_other_and_exported() {
    let mut driver = on((120, 40));
    press(&mut driver, "p");
    select(&mut driver, Slider::P2p);
    press(&mut driver, "lp");
    press(&mut driver, "p");
    assert!(driver.screen().contains("kept already, as B"), "{}", driver.screen());
    let shown = driver.screen();
    assert!(shown.contains("A    ladder") && shown.contains("P2P off"), "{shown}");
    press(&mut driver, "b");
    assert_eq!(driver.state.whatif.variant.cell.p2p, P2p::On, "back to A");
    let export = super::WhatIf.export(&driver.state, FileKind::Csv).unwrap().unwrap();
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("whatif.csv");
    export.write(&path).unwrap();
    let csv = std::fs::read_to_string(path).unwrap();
    assert_eq!(csv.lines().count(), 1 + 3 * 5, "now, A and B, five architectures each: {csv}");
    assert!(csv.lines().skip(1).all(|line| line.contains(",simulated,")), "{csv}");
    press(&mut driver, "PPP");
    assert!(driver.screen().contains("no variant is kept"));
}

#[test]
fn it_starts_from_the_run_that_is_selected() {
    let mut driver = Driver::full(120, 40);
    driver.state.screen = Screen::Pareto;
    let point = driver.state.pareto.current().unwrap().clone();
    press(&mut driver, "w");
    assert_eq!(driver.state.screen, Screen::WhatIf);
    let cell = &driver.state.whatif.base.cell;
    assert_eq!((cell.model.as_str(), cell.tp, cell.backend), ("tiny", point.spec.tp, Backend::Sim));
    assert!(driver.screen().contains(&format!("from run {}", point.run)), "{}", driver.screen());
    // of a machine without a profile an H100 is made, and said
    assert_eq!(cell.hardware, "h100_sxm");
}

#[test]
fn what_cannot_be_simulated_says_so_and_keeps_the_last_numbers() {
    let mut driver = on((120, 40));
    let standard = tpot(&driver.state, "standard");
    let mut bad = spec("ladder", 3, P2p::On, Backend::Sim);
    bad.hardware = "no_such".into();
    driver.state.whatif.start(&bad, "a test".into());
    press(&mut driver, "j");
    assert!(driver.screen().contains("no_such"), "{}", driver.screen());
    let mut driver = on((120, 40));
    driver.state.whatif.variant.cell.model = "no-model".into();
    press(&mut driver, "j");
    assert!(driver.screen().contains("✘") && driver.screen().contains("no-model"));
    assert_eq!(tpot(&driver.state, "standard"), standard);
    // out of memory: the rows say so, the rest of the screen stays
    let mut driver = on((120, 40));
    select(&mut driver, Slider::Tp);
    press(&mut driver, "hhh");
    assert!(driver.screen().contains("out of memory"), "{}", driver.screen());
    let answer = driver.state.whatif.answer.as_ref().map(Arc::clone).unwrap();
    assert!(answer.chosen().is_none());
}

#[test]
fn what_was_slid_is_there_at_the_next_start() {
    let mut driver = on((120, 40));
    assert_eq!(super::WhatIf.remember(&driver.state), None, "nothing was done yet");
    select(&mut driver, Slider::Alpha);
    press(&mut driver, "Lt");
    let kept = super::WhatIf.remember(&driver.state).unwrap();
    let mut next = Driver::empty(120, 40);
    super::WhatIf.recall(&mut next.state, &kept);
    press(&mut next, "7");
    assert_eq!(next.state.whatif.variant, driver.state.whatif.variant);
    assert_eq!(next.state.whatif.strip, driver.state.whatif.strip);
    // what cannot be read is left
    super::WhatIf.recall(&mut next.state, &serde_json::json!({ "base": 3 }));
    assert_eq!(next.state.whatif.variant, driver.state.whatif.variant);
}

#[test]
fn a_track_is_clicked_and_dragged() {
    let mut driver = on((120, 40));
    let area = super::draw::areas(crate::tui::page::body_of(&driver.state), true).sliders;
    let (x, columns) = super::draw::tracks(area);
    let row = area.y + Slider::ALL.iter().position(|s| *s == Slider::Alpha).unwrap() as u16;
    let mut mouse = |kind, column| {
        let event = MouseEvent { kind, column, row, modifiers: KeyModifiers::NONE };
        let effects = driver.send(Message::Mouse(event));
        driver.answer(effects);
        driver.state.whatif.variant.alpha_us
    };
    let middle = mouse(MouseEventKind::Down(MouseButton::Left), x + columns / 2).unwrap();
    assert!((10.0..40.0).contains(&middle), "{middle}");
    let right = mouse(MouseEventKind::Drag(MouseButton::Left), x + columns + 30).unwrap();
    assert_eq!(right, 2000.0, "beyond the end is the end");
    let left = mouse(MouseEventKind::Drag(MouseButton::Left), x).unwrap();
    assert_eq!(left, 0.1);
    assert_eq!(driver.state.whatif.slider(), Slider::Alpha);
}
