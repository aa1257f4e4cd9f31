//! Figures for a paper, asked for from the palette.

use std::path::Path;
use std::sync::Arc;

use crossterm::event::{KeyCode, KeyEvent, KeyModifiers};

use super::fixtures::{Driver, compared};
use crate::face::tui::context::Snapshot;
use crate::face::tui::pictures::{Pictures, ProtocolType};
use crate::face::tui::screen::Tab;
use crate::face::tui::update::Message;
use table::Record;

/// A workbench at a screen, with these runs stored.
fn on(tab: Tab, records: Vec<Record>, size: (u16, u16)) -> Driver {
    let mut driver = Driver::empty(size.0, size.1);
    driver.state.cx.tab = tab;
    let effects = driver.send(Message::Runs(Ok(Arc::new(Snapshot::new(records, Vec::new())))));
    driver.answer(effects);
    driver
}

/// Types over what a prompt begins with.
fn typed(driver: &mut Driver, text: &str) {
    driver.send(Message::Key(KeyEvent::new(KeyCode::Char('u'), KeyModifiers::CONTROL)));
    driver.keys(text);
}

/// Asks for the figure that is offered first, a column wide, in this file.
fn draw(driver: &mut Driver, file: &Path) {
    driver.keys(":figure for a paper");
    driver.tap(KeyCode::Enter);
    driver.tap(KeyCode::Enter);
    driver.tap(KeyCode::Enter);
    typed(driver, &file.display().to_string());
    driver.tap(KeyCode::Enter);
}

#[test]
fn each_screen_offers_its_own_figure_of_what_it_shows() {
    for (tab, first, of) in [
        (Tab::Pareto, "pareto", "figure of the 5 runs shown"),
        (Tab::Compare, "improvement", "figure of the 5 runs shown"),
        (Tab::Runs, "pareto", "figure of experiment quickstart"),
    ] {
        let mut driver = on(tab, compared(), (120, 40));
        driver.keys(":figure for a paper");
        driver.tap(KeyCode::Enter);
        let shown = driver.screen();
        assert!(shown.contains(of), "{tab:?}: {shown}");
        let line = shown.lines().position(|line| line.contains(&format!("│ {first} ")));
        let others = ["throughput", "overlap", "p2p"]
            .map(|kind| shown.lines().position(|line| line.contains(&format!("│ {kind} "))));
        assert!(line.is_some() && others.iter().all(|other| *other > line), "{tab:?}: {shown}");
    }
}

#[test]
fn the_timeline_offers_the_lanes_of_its_traces() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("lanes.svg");
    let mut driver = Driver::full(120, 40);
    driver.state.cx.tab = Tab::Timeline;
    let traces = driver.state.timeline.view.as_ref().unwrap().panes.len();
    driver.keys(":figure for a paper");
    driver.tap(KeyCode::Enter);
    let shown = driver.screen();
    assert!(shown.contains(&format!("figure of the {traces} trace")), "{shown}");
    let line = shown.lines().find(|line| line.contains("│ overlap ") || line.contains("│ pareto "));
    assert!(line.is_some_and(|line| line.contains("overlap")), "{shown}");
    driver.tap(KeyCode::Enter);
    driver.tap(KeyCode::Enter);
    typed(&mut driver, &file.display().to_string());
    driver.tap(KeyCode::Enter);
    let shown = driver.screen();
    assert!(file.exists() || shown.contains("Esc closes"), "drawn, or the reason said: {shown}");
}

#[test]
fn a_figure_is_written_where_it_is_asked_for_and_nothing_is_overwritten() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("deep/improvement.svg");
    let mut driver = on(Tab::Compare, compared(), (120, 40));
    draw(&mut driver, &file);
    let svg = std::fs::read_to_string(&file).unwrap();
    assert!(svg.contains("emulated-link"), "where its numbers come from");
    driver.shows("wrote ");
    assert!(driver.state.cx.overlays.is_empty(), "a terminal without pictures shows none");
    draw(&mut driver, &file);
    assert_eq!(std::fs::read_to_string(&file).unwrap(), svg);
    assert!(dir.path().join("deep/improvement-2.svg").exists());
    // the size is in the file: a column is 3.33 inches
    assert!(svg.contains("3.33in") || svg.contains("239.76"), "{}", &svg[..300]);
}

#[test]
fn sizes_are_typed_and_mistakes_reported() {
    let dir = tempfile::tempdir().unwrap();
    let mut driver = on(Tab::Compare, compared(), (120, 40));
    driver.keys(":figure for a paper");
    driver.tap(KeyCode::Enter);
    driver.tap(KeyCode::Enter);
    driver.keys("5x4");
    driver.shows("Enter takes 5x4 inches");
    driver.tap(KeyCode::Enter);
    typed(&mut driver, "figure.pdf");
    driver.tap(KeyCode::Enter);
    driver.shows("unknown figure format");
    let file = dir.path().join("figure.png");
    typed(&mut driver, &file.display().to_string());
    driver.tap(KeyCode::Enter);
    let png = std::fs::read(&file).unwrap();
    let number = |at: usize| u32::from_be_bytes(png[at..at + 4].try_into().unwrap());
    assert_eq!((number(16), number(20)), (1500, 1200), "5 x 4 inches at 300 dpi");
}

#[test]
fn figures_that_cannot_be_drawn_say_why() {
    let dir = tempfile::tempdir().unwrap();
    let mut driver = on(Tab::Compare, compared(), (120, 40));
    driver.keys(":figure for a paper");
    driver.tap(KeyCode::Enter);
    driver.keys("p2p");
    driver.tap(KeyCode::Enter);
    driver.tap(KeyCode::Enter);
    typed(&mut driver, &dir.path().join("p2p.svg").display().to_string());
    driver.tap(KeyCode::Enter);
    driver.shows("Esc closes");
    assert!(!dir.path().join("p2p.svg").exists());
}

#[test]
fn a_terminal_with_pictures_shows_the_figure() {
    let dir = tempfile::tempdir().unwrap();
    for (columns, rows) in [(80, 24), (120, 40), (200, 60)] {
        let mut driver = on(Tab::Pareto, compared(), (columns, rows));
        driver.state.cx.cell_pixels = Some((8, 16));
        driver.state.pareto.pictures =
            Pictures { protocol: Some(ProtocolType::Halfblocks), tmux: false, on: true };
        let file = dir.path().join(format!("{columns}.svg"));
        draw(&mut driver, &file);
        assert!(file.exists());
        let shown = driver.screen();
        assert!(shown.contains("Esc closes") && shown.contains(".svg"), "{shown}");
        let buffer = driver.buffer();
        let light =
            |color| matches!(color, ratatui::style::Color::Rgb(r, g, b) if r.min(g).min(b) > 200);
        let paper = buffer.content().iter().filter(|cell| light(cell.fg) || light(cell.bg)).count();
        assert!(paper > usize::from(columns) * usize::from(rows) / 8, "{paper} cells of paper");
        driver.press(KeyCode::Esc);
        assert!(driver.state.cx.overlays.is_empty());
    }
}
