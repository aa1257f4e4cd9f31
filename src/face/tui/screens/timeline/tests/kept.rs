//! Saved timeline state, and the commands that restore it.

use super::*;

/// Another workbench that takes up what is kept of a timeline, and answers what it asks for.
fn again(kept: &serde_json::Value) -> Driver {
    let mut again = Driver::empty(120, 40);
    again.state.cx.tab = Tab::Timeline;
    again.state.timeline.recall(kept, &mut again.state.cx);
    let effects = std::mem::take(&mut again.state.cx.effects);
    again.answer(effects);
    again
}

#[test]
fn what_was_open_is_opened_again_where_it_was_looked_at() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("trace.parquet");
    trace::write(&path, &measured().trace).expect("it is written");
    let mut driver = with(vec![measured().opened_from(path.to_string_lossy())], (120, 40));
    driver.taps("]++");
    let kept = driver.state.timeline.remember().expect("something is open");
    assert_eq!(view(&again(&kept)).window, view(&driver).window);
    for text in ["null", "{}", "{\"sources\":[]}", "{\"sources\":[7]}", "{\"sources\":[\"\"]}"] {
        let again = again(&serde_json::from_str(text).expect("it is JSON"));
        assert!(again.state.timeline.view.is_none() && again.state.cx.notice.is_none(), "{text}");
    }
}

#[test]
fn the_title_of_a_run_says_its_link_once() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("t.parquet");
    let title = |link: table::Link| {
        let mut index = measured();
        let spec = index.trace.meta.spec.as_mut().expect("a run of our own");
        (spec.link, spec.p2p) = (link, P2p::Off);
        trace::write(&path, &index.trace).expect("it is written");
        let driver = with(vec![index.opened_from(path.to_string_lossy())], (160, 40));
        let kept = driver.state.timeline.remember().expect("something is open");
        again(&kept).screen().lines().nth(1).expect("a title").to_owned()
    };
    assert_eq!(title(table::Link::P2pOff).matches("p2p-off").count(), 1);
    let emulated = title(table::Link::Emulated { alpha_us: 20.0, gb_s: 50.0 });
    assert!(emulated.contains(" p2p-off 20us+50GB/s"), "{emulated}");
}

#[test]
fn rules_stay_with_the_trace_that_they_classify() {
    let hta = || Some("hta".to_owned());
    let of = |rules| imported().opened_from("my trace.json").classified_by(rules);
    let mut driver = with(vec![of(hta())], (200, 40));
    let copied = |driver: &mut Driver| {
        let effects = driver.press(KeyCode::Char('Y'));
        let [Effect::Copy(command)] = &effects[..] else { panic!("{effects:?}") };
        (command.clone(), driver.screen())
    };
    let start = "ladderscope timeline 'my trace.json' --rules hta";
    assert!(copied(&mut driver).0.starts_with(start));
    let kept = driver.state.timeline.keep().expect("something is open");
    assert_eq!((kept.sources, kept.rules), (vec!["my trace.json".to_owned()], vec![hta()]));
    let mut two = with(vec![of(None), of(hta())], (200, 40));
    let (command, told) = copied(&mut two);
    assert!(command.starts_with("ladderscope timeline 'my trace.json' 'my trace.json' --rules hta"));
    assert!(told.contains("copied (without the rules in which the traces differ)"), "{told}");
    two.tap(KeyCode::Esc);
    driver.taps("v");
    driver.tap(KeyCode::Right);
    let (command, _) = copied(&mut driver);
    assert!(command.starts_with("ladderscope overlap 'my trace.json' --rules hta --from "), "{command}");
}

#[test]
fn a_recording_stays_with_the_trace_that_was_opened_from_it() {
    let recording = || Some("step_12".to_owned());
    let mut driver = with(vec![imported().opened_from("traces").of_recording(recording())], (200, 40));
    let effects = driver.press(KeyCode::Char('Y'));
    let [Effect::Copy(command)] = &effects[..] else { panic!("{effects:?}") };
    assert!(command.starts_with("ladderscope timeline traces --recording step_12"), "{command}");
    let kept = driver.state.timeline.keep().expect("something is open");
    assert_eq!(kept.recordings, [recording()]);
}

#[test]
fn a_command_opens_at_its_window() {
    let mut driver = Driver::full(120, 40);
    let (timeline, cx) = (&mut driver.state.timeline, &mut driver.state.cx);
    timeline.show(vec![Arc::new(trace())], Opening::Alone(Some((50_000, 60_000))), cx);
    let window = view(&driver).window;
    assert_eq!((window.from - 5_000, window.to - 5_000), (50_000, 60_000));
    driver.taps("4u");
    driver.shows("nothing to undo");
}
