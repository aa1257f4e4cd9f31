//! The plot as a picture: which terminals show one, when it is painted anew, and what remains in characters.

use crossterm::event::KeyCode;

use super::super::layout;
use super::overlays::{lay_over, name_overlay};
use super::{asks, driver};
use crate::face::tui::pictures::{self, Pictures, ProtocolType};
use crate::face::tui::tests::fixtures::Driver;
use crate::face::tui::update::{Effect, Message};

fn terminal(name: &'static str, value: &'static str) -> impl Fn(&str) -> Option<String> {
    move |asked| (asked == name).then(|| value.to_string())
}

#[test]
fn the_environment_tells_which_pictures_a_terminal_shows() {
    for (name, value, protocol) in [
        ("TERM", "xterm-kitty", Some(ProtocolType::Kitty)),
        ("TERM", "foot-extra", Some(ProtocolType::Sixel)),
        ("LC_TERMINAL", "iTerm2", Some(ProtocolType::Iterm2)),
        ("WEZTERM_EXECUTABLE", "/usr/bin/wezterm", Some(ProtocolType::Iterm2)),
        ("TERM", "xterm-256color", None),
        ("TERM", "tmux-256color", None),
        (pictures::VARIABLE, "sixel", Some(ProtocolType::Sixel)),
        (pictures::VARIABLE, "off", None),
    ] {
        let pictures = Pictures::from_variable(terminal(name, value));
        assert_eq!((pictures.protocol, pictures.on), (protocol, protocol.is_some()), "{name}={value}");
    }
    // within tmux what the outer terminal can do is not known to pass
    let both = |asked: &str| match asked {
        "TMUX" => Some("/tmp/tmux-0/default,1,0".into()),
        "KITTY_WINDOW_ID" => Some("1".into()),
        _ => None,
    };
    assert_eq!(Pictures::from_variable(both).protocol, None);
    let told =
        |asked: &str| if asked == pictures::VARIABLE { Some("kitty".into()) } else { both(asked) };
    assert_eq!(
        Pictures::from_variable(told),
        Pictures { protocol: Some(ProtocolType::Kitty), tmux: true, on: true }
    );
    let remote = |asked: &str| match asked {
        "TERM" => Some("xterm-kitty".into()),
        "SSH_CONNECTION" => Some("1.2.3.4".into()),
        _ => None,
    };
    assert_eq!(
        Pictures::from_variable(remote),
        Pictures { protocol: Some(ProtocolType::Kitty), tmux: false, on: false }
    );
}

#[test]
fn a_picture_reaches_the_terminal_and_characters_remain_elsewhere() {
    for (protocol, sequence) in [
        (ProtocolType::Kitty, "\u{1b}_G"),
        (ProtocolType::Sixel, "\u{1b}P"),
        (ProtocolType::Iterm2, "\u{1b}]1337;File=inline=1"),
    ] {
        let mut driver = driver(120, 40);
        let drawn = |driver: &Driver| {
            driver.screen().chars().filter(|c| ('\u{2801}'..='\u{28ff}').contains(c)).count()
        };
        assert!(drawn(&driver) > 10);
        driver.taps("i");
        assert!(driver.screen().contains("not known to show pictures"), "{}", driver.screen());
        driver.state.pareto.pictures.protocol = Some(protocol);
        driver.tap(KeyCode::Esc);
        let effects = driver.keys("i");
        assert!(asks(&effects, "picture"));
        assert!(drawn(&driver) > 10, "characters until it is painted");
        driver.answer(effects);
        let cells: String = driver.buffer().content().iter().map(|c| c.symbol()).collect();
        assert!(cells.contains(sequence), "{protocol:?}");
        assert_eq!(drawn(&driver), 0);
        assert!(cells.contains("completion latency (ms)"), "the axes stay text");
        // the cursor moves without a new picture, and is seen at the axes
        let effects = driver.press(KeyCode::Right);
        assert!(!asks(&effects, "picture"), "{protocol:?}");
        assert!(driver.screen().contains('┻') && driver.screen().contains('┣'));
        // what lies on top is not mixed with a picture
        driver.keys("?");
        let cells: String = driver.buffer().content().iter().map(|c| c.symbol()).collect();
        assert!(!cells.contains(sequence), "{protocol:?}");
        driver.press(KeyCode::Esc);
        let effects = driver.keys("+");
        assert!(asks(&effects, "picture"), "zoomed: painted anew");
        driver.keys("i");
        assert!(drawn(&driver) > 10, "off again");
    }
}

#[test]
fn whatever_changes_the_plot_is_painted_and_nothing_else() {
    let mut driver = driver(120, 40);
    driver.state.pareto.pictures =
        Pictures { protocol: Some(ProtocolType::Halfblocks), tmux: false, on: true };
    let painted = |effects: &[Effect]| asks(effects, "picture");
    assert!(painted(&driver.keys("n")), "the first one");
    let text = |tp: u32, ms: f64| format!("tp,batch,completion_ms,tokens_per_s\n{tp},1,{ms},900\n");
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("mine.csv");
    let drawn = driver.state.pareto.revision;
    lay_over(&mut driver, &file, &text(2, 900.0));
    lay_over(&mut driver, &file, &text(2, 950.0));
    assert_eq!(driver.state.pareto.revision, drawn + 2, "laid over, and read again");
    for key in ["ee", "p", "T", "A", "+++"] {
        assert!(painted(&driver.keys(key)), "{key}");
        // a zoomed plot scrolls to the next point
        assert_eq!(painted(&driver.keys("nnnnnn")), key == "+++", "the cursor moves after {key}");
    }
    assert!(painted(&driver.keys("u")), "zoomed back");
    driver.keys("/tp:8");
    assert!(painted(&driver.send(Message::Resize(100, 40))));
    assert!(!painted(&driver.send(Message::Clock(7))));
    // the axes fit what is plotted, points from elsewhere among it
    driver.tap(KeyCode::Enter);
    name_overlay(&mut driver, "");
    let before = driver.state.pareto.extent;
    lay_over(&mut driver, &file, &text(8, 9e6));
    assert!(driver.state.pareto.extent.x.1 == 9e6 && before.x.1 < 9e6);
    name_overlay(&mut driver, "");
    assert_eq!(driver.state.pareto.extent, before);
}

#[test]
fn half_blocks_show_the_colours_of_the_plot() {
    let mut driver = driver(80, 24);
    driver.state.pareto.pictures =
        Pictures { protocol: Some(ProtocolType::Halfblocks), tmux: false, on: true };
    driver.taps("n");
    let plot = layout::plot(&driver.state.pareto, driver.state.cx.body());
    let buffer = driver.buffer();
    let colours: std::collections::HashSet<_> =
        plot.area.positions().map(|at| format!("{:?}{:?}", buffer[at].fg, buffer[at].bg)).collect();
    assert!(colours.len() > 10, "{colours:?}");
}

#[test]
fn a_terminal_that_does_not_tell_its_pixels_gets_no_sixels() {
    let mut driver = driver(80, 24);
    driver.state.pareto.pictures =
        Pictures { protocol: Some(ProtocolType::Sixel), tmux: false, on: true };
    driver.state.cx.cell_pixels = None;
    driver.taps("n");
    assert!(driver.screen().contains("does not report its cell size"), "{}", driver.screen());
    assert!(!driver.state.pareto.pictures.on);
}
