//! Stored trainings over a screen: what they look like, and how one that is under way grows.

use crossterm::event::KeyCode;

use super::fixtures::Driver;
use crate::face::tui::update::Message;
use lab::store::Store;
use table::testing::trained;
use table::{Curve, Status};

fn store(dir: &std::path::Path, all: &[Curve]) -> Store {
    let store = Store::open(dir.join("runs"));
    for one in all {
        let mut folder = store.training_folder(&one.training.id).unwrap();
        folder.write(&one.training).unwrap();
        folder.open_curve(0, one.start).unwrap();
        one.curve.iter().for_each(|step| folder.add(step).unwrap());
    }
    store
}

/// A workbench over a store with these trainings, at the palette's action.
fn on(all: &[Curve], size: (u16, u16)) -> (tempfile::TempDir, Driver) {
    let dir = tempfile::tempdir().unwrap();
    let store = store(dir.path(), all);
    let mut driver = Driver::empty(size.0, size.1);
    driver.state.cx.dir = store.dir().to_owned();
    driver.keys(":trainings");
    driver.tap(KeyCode::Enter);
    (dir, driver)
}

fn all() -> Vec<Curve> {
    let mut all = vec![
        trained("standard", 0, 2.0),
        trained("ladder", 0, 2.2),
        trained("parallel", 0, 2.5),
        trained("ladder", 1, 2.3),
    ];
    let interrupted = &mut all[2];
    interrupted.curve.truncate(2);
    (interrupted.training.status, interrupted.training.step) = (Status::Interrupted, 2);
    (interrupted.training.after, interrupted.training.loss) = (None, None);
    all
}

#[test]
fn looks() {
    let (_dir, mut driver) = on(&all(), (120, 40));
    driver.tap(KeyCode::Down);
    insta::assert_snapshot!("trainings_120x40", driver.screen());
}

#[test]
fn steps_are_shown_on_demand_and_what_trains_is_read_again() {
    let (_dir, driver) = on(&[], (120, 40));
    driver.shows("no training is stored");
    let mut running = trained("ladder", 0, 2.0);
    running.training.status = Status::Running;
    running.curve.truncate(2);
    let (dir, mut driver) = on(&[running.clone()], (120, 40));
    driver.shows("running at step 2 of 4");
    driver.tap(KeyCode::Char('s'));
    driver.shows("loss (nats per token)");
    let mut more = trained("ladder", 0, 2.0);
    more.training.status = Status::Running;
    more.curve.truncate(3);
    store(dir.path(), &[more]);
    let effects = driver.send(Message::Clock(60_000));
    driver.answer(effects);
    driver.shows("running at step 3 of 4");
    driver.tap(KeyCode::Esc);
    driver.hides("trainings 1 of 1");
    let effects = driver.send(Message::Clock(120_000));
    assert!(effects.is_empty(), "nothing is read that nobody looks at");
}
