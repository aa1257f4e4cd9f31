//! The palette over everything, the search of one screen, clicks on hints, proposals, and keys pressed early.

use crossterm::event::{KeyCode, KeyEvent, KeyModifiers, MouseButton, MouseEventKind};

use super::fixtures::{Driver, entries, trace};
use crate::desk::OpenedTrace;
use crate::face::tui::context::{Opening, Request};
use crate::face::tui::pick::Pick;
use crate::face::tui::screen::{Acts, Tab};
use crate::face::tui::update::{Effect, Message};

fn click(driver: &mut Driver, text: &str) -> Vec<Effect> {
    let screen = driver.screen();
    let (row, line) =
        screen.lines().enumerate().filter(|(_, line)| line.contains(text)).last().expect(text);
    let column = line.split(text).next().unwrap_or_default().chars().count();
    let kind = MouseEventKind::Down(MouseButton::Left);
    driver.mouse(kind, (column as u16, row as u16))
}

/// Types into the palette and chooses the first match.
fn palette(driver: &mut Driver, typed: &str) {
    driver.send(Message::Key(KeyEvent::new(KeyCode::Char('p'), KeyModifiers::CONTROL)));
    assert!(driver.state.cx.top::<Pick>().is_some(), "ctrl-p opens it");
    driver.keys(typed);
    driver.enter();
}

#[test]
fn the_palette_finds_experiments_runs_operations_sliders_and_themes() {
    let mut driver = Driver::full(100, 36);
    palette(&mut driver, "broken");
    assert_eq!((driver.state.cx.tab, driver.state.experiments.list.selected), (Tab::Experiments, 1));
    palette(&mut driver, "bandwidth");
    assert_eq!(driver.state.cx.tab, Tab::WhatIf);
    assert_eq!(driver.state.whatif.slider().name(), "bandwidth");
    driver.taps("4");
    palette(&mut driver, "mlp/reduce");
    let view = driver.state.timeline.view.as_ref().expect("a trace");
    let span = view.span().expect("on an operation");
    assert!(view.pane().index.name(span).ends_with("mlp/reduce"));
    palette(&mut driver, "theme: light");
    assert!(driver.state.cx.theme.is_light());
    let run = driver.state.cx.stored.as_ref().expect("runs").records[0].clone();
    palette(&mut driver, &format!("{} {}", run.spec.label(), run.spec.model));
    assert_eq!(driver.state.cx.tab, Tab::Timeline, "a run opens in the timeline");
}

#[test]
fn whole_words_rank_before_words_that_begin_with_them() {
    let pair = |name: &str| (name.to_owned(), "run".to_owned());
    let lines = [
        "ladder tp8 b16 p2p-on",
        "ladder tp8 b1 p2p-off",
        "ladder tp8 b128 p2p-on",
        "ladder tp8 b1 p2p-on",
    ];
    let pick = Pick::new("runs", lines.map(pair).into(), |_, _| None, |_, _| {});
    assert_eq!(pick.typed("ladder tp8 b1").found()[..2], [1, 3]);
    let pick = Pick::new("runs", lines.map(pair).into(), |_, _| None, |_, _| {});
    assert_eq!(pick.typed("b1 p2p-on ladder").found()[0], 3, "in any order");
}

#[test]
fn slash_finds_an_item_of_a_screen_without_a_filter() {
    let mut driver = Driver::full(80, 24);
    driver.keys("1/brok");
    driver.shows("find in experiments");
    driver.enter();
    assert_eq!(driver.state.experiments.list.selected, 1);
    driver.keys("7/memory");
    driver.enter();
    assert_eq!(driver.state.whatif.slider().name(), "memory bw");
}

#[test]
fn a_key_without_a_meaning_in_an_overlay_says_so() {
    let typing = [KeyCode::F(6), KeyCode::Insert, KeyCode::BackTab];
    // palette, a line of text, help, the file
    for (opened, keys) in [(":", typing), ("x", typing), ("?", typing), ("e", [KeyCode::Enter; 3])] {
        for key in keys {
            let mut driver = Driver::full(80, 24);
            driver.keys(&format!("1{opened}"));
            assert_eq!(driver.state.cx.overlays.len(), 1, "{opened}");
            driver.press(key);
            assert_eq!(driver.state.cx.overlays.len(), 1, "{opened} {key:?}");
            driver.shows("Esc closes this first");
        }
    }
}

#[test]
fn hints_and_lines_of_a_picker_can_be_clicked() {
    let mut driver = Driver::full(100, 24);
    driver.keys("3");
    click(&mut driver, "palette");
    assert!(driver.state.cx.top::<Pick>().is_some(), "as the key does");
    click(&mut driver, "close");
    assert!(driver.state.cx.overlays.is_empty(), "hints of what lies on top work, too");
    driver.keys("1/");
    click(&mut driver, "broken  ");
    assert_eq!(driver.state.experiments.list.selected, 1);
    assert!(driver.state.cx.overlays.is_empty(), "chosen");
}

#[test]
fn typed_text_replaces_a_proposal_and_other_keys_edit_it() {
    let typed = |keys: &[KeyCode]| {
        let mut driver = Driver::full(100, 30);
        driver.keys("7");
        let whatif = &mut driver.state.whatif;
        let at = whatif.sliders().iter().position(|slider| slider.name() == "prompt");
        whatif.list.selected = at.expect("a slider");
        driver.enter();
        keys.iter().for_each(|key| drop(driver.press(*key)));
        driver.enter();
        driver.state.whatif.variant.cell.prompt_tokens
    };
    let [seven, end] = [KeyCode::Char('7'), KeyCode::End];
    assert_eq!(typed(&[seven]), 7, "1024 is gone");
    assert_eq!(typed(&[end, KeyCode::Backspace]), 102, "an edit keeps it");
    assert_eq!(typed(&[]), 1024, "accepted as it is");
}

#[test]
fn a_key_pressed_while_experiments_load_takes_effect_then() {
    let mut driver = Driver::empty(100, 24);
    // before their names are known, too
    driver.taps("p");
    assert!(!driver.screen().contains("there is no experiment"), "{}", driver.screen());
    assert!(driver.state.experiments.early.take().is_some());
    let named = |name: &str| (name.to_owned(), format!("Is {name} fast?"));
    driver.state.experiments.list_names(["quickstart", "broken"].map(named).into());
    driver.keys("r");
    driver.shows("your key acts in a moment");
    driver.taps("x");
    assert!(driver.state.cx.overlays.is_empty(), "later keys wait behind it");
    assert_eq!(driver.state.experiments.later.len(), 1);
    let experiments = &mut driver.state.experiments;
    assert!(experiments.early.is_some());
    experiments.set(entries(), None);
    let act = experiments.early.take().expect("held");
    experiments.act(act, &mut driver.state.cx);
    assert!(matches!(driver.state.cx.requests.front(), Some(Request::Sweep { .. })));
}

#[test]
fn a_value_typed_while_experiments_load_is_no_action() {
    let mut driver = Driver::empty(100, 24);
    let named = |name: &str| (name.to_owned(), format!("Is {name} fast?"));
    driver.state.experiments.list_names(["quickstart", "broken"].map(named).into());
    driver.taps("a");
    driver.taps("32");
    assert_eq!((driver.state.experiments.later.len(), driver.state.cx.overlays.len()), (2, 0));
    driver.press(KeyCode::Esc);
    assert!(driver.state.experiments.later.is_empty() && driver.state.experiments.early.is_none());
    driver.taps("r");
    driver.taps("6");
    assert!(driver.state.experiments.early.is_none(), "who leaves the screen drops it");
    driver.shows("the key before was dropped");
}

#[test]
fn keys_pressed_while_a_trace_opens_are_pressed_once_it_is_shown() {
    let mut driver = Driver::empty(120, 40);
    let (timeline, cx) = (&mut driver.state.timeline, &mut driver.state.cx);
    let open = |_: &_| {
        let trace = trace().trace;
        Ok(vec![OpenedTrace {
            trace,
            source: "a".into(),
            rules: None,
            recording: None,
            classified: Default::default(),
            record: None,
            part: None,
        }])
    };
    timeline.open("a trace".into(), Opening::Alone(None), open, cx);
    let effects = driver.keys("O/down");
    assert_eq!(driver.state.timeline.early.len(), 6);
    driver.answer(effects);
    driver.shows("where the time went");
    let view = driver.state.timeline.view.as_mut().expect("a trace is open");
    assert_eq!(view.operations().expect("the table of operations").filter.value(), "down");
    // also while another trace is still shown
    let (timeline, cx) = (&mut driver.state.timeline, &mut driver.state.cx);
    timeline.open("another trace".into(), Opening::Alone(None), open, cx);
    let effects = driver.keys("V");
    driver.answer(effects);
    driver.shows("verdict [");
}
