//! Any keys, in any window: no panic, and the timeline's window stays within its trace.

use crossterm::event::{KeyCode, KeyEvent, KeyModifiers, MouseButton, MouseEvent, MouseEventKind};
use proptest::prelude::*;

use super::fixtures::{Driver, imported, trace};
use crate::face::tui::screen::Tab;
use crate::face::tui::update::Message;

const KEYS: &str = "123456789?:/dcCaApgxsSrRynNfzuUlhkjmGeobwtvDXy.,()[]{}+-=<> Yq";

fn keys() -> impl Strategy<Value = Message> {
    let code = prop_oneof![
        8 => proptest::sample::select(KEYS.chars().collect::<Vec<_>>()).prop_map(KeyCode::Char),
        1 => any::<char>().prop_map(KeyCode::Char),
        6 => proptest::sample::select(vec![
            KeyCode::Enter, KeyCode::Esc, KeyCode::Tab, KeyCode::BackTab, KeyCode::Left, KeyCode::Right,
            KeyCode::Up, KeyCode::Down, KeyCode::PageUp, KeyCode::PageDown, KeyCode::Home, KeyCode::End,
            KeyCode::Backspace, KeyCode::Delete, KeyCode::F(5),
        ]),
    ];
    let modifiers = prop_oneof![
        8 => Just(KeyModifiers::NONE),
        1 => Just(KeyModifiers::CONTROL),
        1 => Just(KeyModifiers::SHIFT),
    ];
    (code, modifiers).prop_map(|(code, modifiers)| Message::Key(KeyEvent::new(code, modifiers)))
}

fn mouse() -> impl Strategy<Value = Message> {
    let kind = prop_oneof![
        Just(MouseEventKind::Down(MouseButton::Left)),
        Just(MouseEventKind::Drag(MouseButton::Left)),
        Just(MouseEventKind::Up(MouseButton::Left)),
        Just(MouseEventKind::ScrollUp),
        Just(MouseEventKind::ScrollDown),
        Just(MouseEventKind::ScrollLeft),
        Just(MouseEventKind::ScrollRight),
    ];
    let modifiers = prop_oneof![4 => Just(KeyModifiers::NONE), 1 => Just(KeyModifiers::SHIFT)];
    // often within the smallest window, where something is
    let place = prop_oneof![(0u16..80, 0u16..24), (0u16..210, 0u16..210)];
    (kind, place, modifiers).prop_map(|(kind, (column, row), modifiers)| {
        Message::Mouse(MouseEvent { kind, column, row, modifiers })
    })
}

fn messages() -> impl Strategy<Value = Message> {
    prop_oneof![
        8 => keys(),
        2 => mouse(),
        1 => (0u16..200, 0u16..200).prop_map(|(columns, rows)| Message::Resize(columns, rows)),
        1 => ".*".prop_map(Message::Paste),
        1 => any::<u64>().prop_map(Message::Clock),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]
    #[test]
    fn nothing_panics_and_the_window_stays_within_the_trace(
        columns in 0u16..200,
        rows in 0u16..200,
        screen in 0usize..7,
        sweep in any::<bool>(),
        traces in 0..3,
        messages in prop::collection::vec(messages(), 0..40),
    ) {
        let mut driver = Driver::full(columns, rows);
        match traces {
            0 => {}
            1 => driver.show(vec![imported()]),
            _ => driver.show(vec![imported(), trace()]),
        }
        if sweep {
            driver = driver.with_sweep();
        }
        driver.state.cx.tab = Tab::ALL[screen];
        for (i, message) in messages.into_iter().enumerate() {
            let effects = driver.send(message);
            driver.answer(effects);
            if let Some(view) = &driver.state.timeline.view {
                let (window, bounds) = (view.window, view.bounds());
                prop_assert!(bounds.from <= window.from && window.from < window.to && window.to <= bounds.to);
                for mark in view.marks.iter().flatten() {
                    prop_assert!(bounds.from <= *mark && *mark <= bounds.to, "mark {mark} of {bounds:?}");
                }
                if let Some(stretch) = view.stretch() {
                    prop_assert!(bounds.from <= stretch.from && stretch.from < stretch.to && stretch.to <= bounds.to);
                }
                for pane in &view.panes {
                    let line = pane.current();
                    prop_assert!(line.is_some(), "the cursor is on a line");
                    let empty = line.is_none_or(|line| pane.index.len(line) == 0);
                    prop_assert_eq!(pane.interval().is_none(), empty, "and on something, where there is anything");
                }
            }
            if i % 3 == 0 {
                driver.buffer();
            }
        }
        driver.buffer();
    }

    #[test]
    fn a_buffer_of_another_size_than_the_state_is_harmless(
        columns in 0u16..120, rows in 0u16..60, other in (0u16..120, 0u16..60), screen in 0usize..7,
    ) {
        let mut driver = Driver::full(columns, rows);
        driver.state.cx.tab = Tab::ALL[screen];
        driver.keys("?");
        let mut buffer = ratatui::buffer::Buffer::empty(ratatui::layout::Rect::new(0, 0, other.0, other.1));
        crate::face::tui::view::draw(&mut buffer, &driver.state);
    }
}
