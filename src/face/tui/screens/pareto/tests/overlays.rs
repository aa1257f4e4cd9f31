//! Points from a CSV file.

use std::path::Path;

use crossterm::event::{KeyCode, KeyEvent, KeyModifiers};

use super::driver;
use crate::face::tui::tests::fixtures::Driver;
use crate::face::tui::update::Message;

/// Writes a file of points and has it read.
pub fn lay_over(driver: &mut Driver, file: &Path, text: &str) {
    std::fs::write(file, text).unwrap();
    name_overlay(driver, &file.display().to_string());
}

/// Names the file whose points are shown.
pub fn name_overlay(driver: &mut Driver, name: &str) {
    driver.keys("B");
    driver.send(Message::Key(KeyEvent::new(KeyCode::Char('u'), KeyModifiers::CONTROL)));
    driver.keys(name);
    driver.tap(KeyCode::Enter);
}

#[test]
fn a_file_of_points_is_asked_for_and_its_errors_are_told() {
    let mut driver = driver(120, 40);
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("mine.csv");
    lay_over(
        &mut driver,
        &file,
        "architecture,label,completion_ms,tokens_per_s_per_gpu\nmine,X,400,20\n",
    );
    assert!(driver.screen().contains("1 of its 1 points"), "{}", driver.screen());
    driver.press(KeyCode::Esc);
    assert!(driver.screen().contains("m mine.csv"), "{}", driver.screen());
    lay_over(&mut driver, &file, "tp,completion_ms,tokens_per_s\nx,400,20\n");
    assert!(driver.screen().contains("mine.csv:2: tp is 'x'"), "{}", driver.screen());
}
