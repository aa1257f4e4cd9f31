//! Stored results of `convert` over a screen: what they look like, and what Enter writes.

use crossterm::event::KeyCode;

use super::fixtures::Driver;
use crate::face::tui::update::Effect;
use lab::store::Store;
use study::analysis::{Conversion, ConversionReport};
use study::testing::conversion_report;

/// A workbench over a store with these results, at the palette's action.
fn on(reports: &[ConversionReport], size: (u16, u16)) -> (tempfile::TempDir, Driver) {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(dir.path().join("runs"));
    for report in reports {
        store.add_conversion(&report.text, report).unwrap();
    }
    let mut driver = Driver::empty(size.0, size.1);
    driver.state.cx.dir = store.dir().to_owned();
    driver.keys(":layers to convert");
    driver.tap(KeyCode::Enter);
    (dir, driver)
}

#[test]
fn looks() {
    let (_dir, mut driver) = on(&[conversion_report()], (120, 40));
    (0..5).for_each(|_| driver.tap(KeyCode::Down));
    insta::assert_snapshot!("conversions_120x40", driver.screen());
}

#[test]
fn results_are_browsed_and_an_empty_store_says_so() {
    let other = ConversionReport { text: "other.txt".into(), ..conversion_report() };
    let (_dir, mut driver) = on(&[conversion_report(), other], (120, 40));
    driver.shows("layers to convert 1 of 2: model");
    assert_eq!(driver.screen().matches("another result").count(), 1, "{}", driver.screen());
    let first = driver.screen().contains("other.txt");
    driver.tap(KeyCode::Right);
    assert_eq!(driver.screen().contains("other.txt"), !first);
    driver.tap(KeyCode::Left);
    assert_eq!(driver.screen().contains("other.txt"), first);
    driver.tap(KeyCode::Esc);
    driver.hides("layers to convert");
    let newer = ConversionReport { version: 2, ..conversion_report() };
    let (_dir, driver) = on(&[newer], (120, 40));
    driver.shows("has format 2, this program reads up to 1");
    let (_dir, driver) = on(&[], (120, 40));
    driver.shows("no conversion is stored");
}

#[test]
fn a_set_that_no_checkpoint_can_have_is_told_before_a_place_is_asked_for() {
    let mut report = conversion_report();
    report.points[0].architecture = Conversion::SyncDrop.architecture(&report.points[0].layers, 4);
    let (_dir, mut driver) = on(&[report], (120, 40));
    driver.tap(KeyCode::Enter);
    let screen = driver.screen();
    assert!(screen.contains("config.json can only record layers of ladder"), "{screen}");
    assert!(!screen.contains("a directory that is not there yet"), "{screen}");
    assert!(screen.lines().last().unwrap_or_default().contains("write a checkpoint"), "{screen}");
}

#[test]
fn enter_writes_a_checkpoint_with_the_layers_of_the_selected_set() {
    let dir = tempfile::tempdir().unwrap();
    let model = dir.path().join("model");
    std::fs::create_dir(&model).unwrap();
    let config = r#"{"model_type": "llama", "num_hidden_layers": 4, "hidden_size": 64, "num_attention_heads": 4,
        "intermediate_size": 96, "vocab_size": 128, "rms_norm_eps": 1e-5, "rope_theta": 10000.0}"#;
    std::fs::write(model.join("config.json"), config).unwrap();
    let report = ConversionReport { model: model.display().to_string(), ..conversion_report() };
    let (_store, mut driver) = on(std::slice::from_ref(&report), (120, 40));
    // the sixth point: the two layers that cost least
    (0..5).for_each(|_| driver.tap(KeyCode::Down));
    driver.tap(KeyCode::Enter);
    driver.tap(KeyCode::Enter);
    driver.shows("name a directory");
    // where nothing can be written is told while the line can still be changed
    let line = |driver: &mut Driver, path: &std::path::Path| {
        (0..200).for_each(|_| drop(driver.press(KeyCode::Backspace)));
        driver.keys(&path.display().to_string());
        driver.press(KeyCode::Enter)
    };
    assert!(line(&mut driver, &dir.path().join("nowhere/out")).is_empty());
    driver.shows("no such directory");
    let out = dir.path().join("out");
    let effects = line(&mut driver, &out);
    // one more is asked for before the first is written: both are
    driver.tap(KeyCode::Enter);
    let more = line(&mut driver, &dir.path().join("more"));
    let both: Vec<Effect> = effects.into_iter().chain(more).collect();
    driver.answer(both);
    assert!(dir.path().join("more/config.json").exists());
    driver.shows("layers to convert");
    driver.tap(KeyCode::Esc);
    let written: serde_json::Value =
        serde_json::from_slice(&std::fs::read(out.join("config.json")).unwrap()).unwrap();
    assert_eq!(written["ladder_layers"], serde_json::json!([1, 3]));
    let told = driver.state.cx.messages.back().unwrap().1.text.clone();
    assert!(told.contains("ladder in layers 1 3"), "{told}");
}
