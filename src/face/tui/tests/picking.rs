//! What is chosen from lists and completed while it is typed: runs, files, values, themes; help that is searched.

use std::sync::Arc;

use crossterm::event::KeyCode;

use super::fixtures::{Driver, record, records};
use crate::face::tui::config::{Surroundings, WorkbenchConfig};
use crate::face::tui::context::Snapshot;
use crate::face::tui::memory;
use crate::face::tui::pick::Pick;
use crate::face::tui::screen::AnyScreen as _;
use crate::face::tui::screen::Tab;
use crate::face::tui::theme::Theme;
use crate::face::tui::update::{Effect, Message};

/// The names that the list on top offers.
fn offered(driver: &Driver) -> Vec<String> {
    let pick = driver.state.cx.top::<Pick>().expect("a list");
    let name = |at: &usize| pick.line(*at).map(|(name, _)| name.to_owned());
    pick.found().iter().filter_map(name).collect()
}

#[test]
fn a_run_to_open_beneath_is_found_by_the_language_of_filters() {
    let mut driver = Driver::full(80, 24);
    driver.keys("4b");
    let name = |record: &table::Record| format!("{} {}", record.spec.label(), record.spec.model);
    let records = records();
    let (with, without): (Vec<_>, Vec<_>) =
        records.iter().rev().partition(|record| record.metrics.is_some());
    let open = "20260102-0304-1";
    let newest = with.into_iter().chain(without).filter(|record| record.run != open);
    // another architecture in the cell of the open run comes before all
    let (same, others): (Vec<_>, Vec<_>) = newest.partition(|record| record.run == "20260102-0304-2");
    let names: Vec<String> = same.into_iter().chain(others).map(name).collect();
    assert_eq!(offered(&driver), names, "then the newest, without a timeline last, the open one not");
    driver.taps("arch:ladder p2p:of");
    assert_eq!(offered(&driver), ["ladder tp2 b4 p2p-off tiny"]);
    driver.tap(KeyCode::Tab);
    driver.shows("› arch:ladder p2p:off");
    insta::assert_snapshot!("runs_80x24", driver.screen());
    driver.enter();
    assert!(driver.state.cx.overlays.is_empty());
    driver.shows("opening 20260102-0304-3");
}

#[test]
fn traces_opened_before_come_before_runs_and_an_empty_list_says_what_to_type() {
    let mut driver = Driver::full(80, 24);
    driver.state.cx.opened("traces/h100-ladder.parquet".into());
    driver.keys("4b");
    assert_eq!(offered(&driver)[0], "traces/h100-ladder.parquet");
    driver.keys("ladder tiny off");
    assert_eq!(offered(&driver), ["ladder tp2 b4 p2p-off tiny"], "words in any order");
    let mut driver = Driver::empty(80, 24);
    driver.send(Message::Runs(Ok(Arc::new(Snapshot::default()))));
    driver.keys("4b");
    driver.shows("type a path, such as ~/");
    driver.enter();
    let notice = driver.state.cx.notice.as_ref();
    assert!(notice.is_some_and(|notice| notice.text.contains("type a path")), "Enter too");
}

/// The palette of the first second: runs and experiments are still being read.
#[test]
fn an_open_palette_lists_what_is_read_meanwhile() {
    let mut driver = Driver::empty(80, 24);
    driver.keys(":ladder tiny off");
    driver.shows("nothing matches");
    driver.send(Message::Runs(Ok(Arc::new(Snapshot::new(records(), Vec::new())))));
    driver.shows("ladder tp2 b4 p2p-off tiny");
    driver.shows("› ladder tiny off");
}

/// Answers to questions come several times a second while a sweep runs.
#[test]
fn an_open_palette_is_rebuilt_for_new_contents_alone_and_keeps_text_and_line() {
    let mut driver = Driver::full(80, 24);
    driver.keys("3:ladder");
    driver.press(KeyCode::Down);
    let chosen = |driver: &Driver| {
        let pick = driver.state.cx.top::<Pick>().expect("the palette");
        pick.line(pick.found()[pick.selected]).map(|(name, about)| format!("{name} {about}"))
    };
    let before = chosen(&driver);
    let lines = |driver: &Driver| driver.state.cx.top::<Pick>().map(Pick::lines);
    let built = lines(&driver);
    driver.state.cx.ask_own("near", |_| Ok(()), |_, _| ());
    let effects = driver.send(Message::Resize(80, 24));
    driver.answer(effects);
    assert_eq!(lines(&driver), built, "an answer changes nothing");
    let mut more = records();
    more.push(record("new", more[1].spec.clone(), 1.0));
    driver.send(Message::Runs(Ok(Arc::new(Snapshot::new(more, Vec::new())))));
    assert_ne!(lines(&driver), built);
    assert_eq!(chosen(&driver), before);
    driver.shows("› ladder");
}

#[test]
fn other_words_find_an_action_from_every_screen() {
    for (typed, name) in [
        ("diff", "compare two marked runs side by side"),
        (
            "slowest all-reduce",
            "longest exposed collectives in decode; again: in prefill, everything, the step, the selection",
        ),
        ("beside", "open the run's timeline below the open one"),
        ("unmark", "unmark all"),
        ("exit", "quit"),
        ("color", "choose a colour theme"),
        ("csv export", "export the view: SVG, PNG, CSV, HTML"),
        ("html", "report: an HTML page of the open trace, or of the runs, to share"),
    ] {
        for screen in ["1", "2", "3", "5", "6", "7"] {
            let mut driver = Driver::full(80, 24);
            driver.keys(&format!("{screen}:{typed}"));
            assert!(offered(&driver).iter().any(|line| line == name), "{typed}: {:?}", offered(&driver));
        }
    }
    let mut driver = Driver::full(80, 24);
    driver.keys("1:side by side");
    driver.enter();
    assert_eq!(driver.state.cx.tab, Tab::Runs, "its screen is shown");
    driver.shows("this takes two runs");
}

#[test]
fn the_selected_action_is_shown_whole_and_once() {
    let mut driver = Driver::full(60, 16);
    driver.keys("1:longest exposed");
    let screen = driver.screen();
    assert_eq!(screen.matches("longest exposed coll").count(), 1, "{screen}");
    driver.shows("the selection");
    driver.hides("collecti…");
}

#[test]
fn words_of_the_field_find_the_obvious_action_first() {
    for screen in ["1", "3", "5"] {
        for (typed, name) in [
            ("sort tpot", "sort runs by TPOT ms"),
            ("undo delete", "undo the last tag, note, deletion, unmarking, filter, order or grouping"),
            ("dark theme", "theme: dark"),
            ("export csv", "export the view"),
        ] {
            let mut driver = Driver::full(80, 24);
            driver.keys(&format!("{screen}:{typed}"));
            assert!(offered(&driver)[0].starts_with(name), "{typed}: {:?}", offered(&driver));
        }
        for typed in ["itl", "sort by latency"] {
            let mut driver = Driver::full(80, 24);
            driver.keys(&format!("{screen}:{typed}"));
            let is_offered = offered(&driver).iter().any(|line| line == "sort runs by TPOT ms");
            assert!(is_offered, "{typed}: {:?}", offered(&driver));
        }
    }
    let mut driver = Driver::full(80, 24);
    driver.keys("5:sort tpot");
    driver.enter();
    assert_eq!(driver.state.cx.tab, Tab::Runs);
    assert_eq!(driver.state.runs.sort, [("tpot_p50_ms".to_owned(), false)]);
}

#[test]
fn actions_of_the_screen_come_before_those_that_sort_the_runs() {
    for screen in ["4", "7"] {
        let mut driver = Driver::full(80, 24);
        driver.keys(&format!("{screen}:exposed"));
        let offered = offered(&driver);
        let at = |name: &str| offered.iter().position(|line| line.starts_with(name)).expect(name);
        let sort = at("sort runs by exposed");
        assert!(at("longest exposed collectives") < sort, "{screen}: {offered:?}");
        assert!(at("verdict: exposed communication") < sort, "{screen}: {offered:?}");
    }
}

#[test]
fn many_runs_in_the_palette_bury_no_other_kind() {
    let mut driver = Driver::full(80, 24);
    driver.state.cx.recent = vec!["ladder.json".into()];
    let mut many = records();
    let again = (0..12).map(|at| record(&format!("again-{at}"), many[1].spec.clone(), 900.0));
    let again: Vec<_> = again.collect();
    many.extend(again);
    driver.send(Message::Runs(Ok(Arc::new(Snapshot::new(many, Vec::new())))));
    driver.keys("3:ladder");
    let names = ["quickstart", "ladder tp2 b4", "+9 more runs: type on", "ladder.json"];
    let offered = offered(&driver);
    let at = |name: &str| offered.iter().position(|line| line.starts_with(name)).expect(name);
    assert!(names.map(at).is_sorted(), "{offered:?}");
    names.iter().for_each(|name| driver.shows(name));
}

#[test]
fn an_action_that_is_not_possible_says_why() {
    let mut driver = Driver::empty(80, 24);
    driver.keys("2:cancel the sweep");
    driver.shows("no sweep is running  C");
    driver.press(KeyCode::Esc);
    driver.keys("2:critical path of");
    driver.shows("timeline  no trace is open  p");
}

/// Names of columns have slashes, too: they are no paths.
#[test]
fn a_filter_by_a_column_with_a_slash_is_a_filter() {
    let mut driver = Driver::full(80, 24);
    driver.taps("4b");
    let all = offered(&driver).len();
    driver.taps("tok/s>0");
    let fast = offered(&driver).len();
    assert!(fast > 0 && fast < all, "those that have numbers: {fast} of {all}");
    driver.tap(KeyCode::Enter);
    assert!(driver.state.cx.overlays.is_empty(), "{}", driver.screen());
    driver.shows("20260102-0304-");
}

#[test]
fn a_second_trace_is_offered_from_the_directory_of_the_first() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = |name: &str| format!("{}/{name}", dir.path().display());
    for name in ["a.json", "b.json"] {
        let event = r#"[{"ph": "X", "cat": "kernel", "name": "k", "ts": 1, "dur": 2}]"#;
        std::fs::write(path(name), event).expect("a file");
    }
    let mut driver = Driver::full(120, 40);
    driver.state.cx.opened(path("a.json"));
    driver.taps("4b");
    assert!(offered(&driver).contains(&path("b.json")), "{}", driver.screen());
}

#[test]
fn a_file_to_open_is_found_in_folders() {
    let dir = tempfile::tempdir().expect("a directory");
    let inner = dir.path().join("profiles");
    std::fs::create_dir(&inner).expect("a folder");
    let event =
        |ts: usize| format!(r#"[{{"ph": "X", "cat": "kernel", "name": "k", "ts": {ts}, "dur": 2}}]"#);
    for (at, name) in ["rank0.json", "rank1.json", "notes.txt", ".hidden"].into_iter().enumerate() {
        let text = if name.ends_with(".json") { event(at) } else { "some words".to_owned() };
        std::fs::write(inner.join(name), text).expect("a file");
    }
    let root = dir.path().display().to_string();
    let mut driver = Driver::full(120, 40);
    driver.state.cx.opened(format!("{root}/before.parquet"));
    driver.taps("o");
    assert_eq!(offered(&driver)[0], "before.parquet", "recent ones first");
    driver.taps(&format!("{root}/pro"));
    assert_eq!(offered(&driver), [format!("{root}/profiles/")]);
    driver.tap(KeyCode::Enter);
    let all = [".", "rank0.json", "rank1.json", "notes.txt"];
    assert_eq!(offered(&driver), all.map(|name| format!("{root}/profiles/{name}")), "gone into");
    driver.shows("its 2 files, the ranks of one job");
    driver.taps(".h");
    assert_eq!(offered(&driver), [format!("{root}/profiles/.hidden")], "for who types the dot");
    driver.tap(KeyCode::Backspace);
    driver.tap(KeyCode::Backspace);
    driver.taps("ra");
    driver.tap(KeyCode::Tab);
    let both = ["rank0.json", "rank1.json"];
    assert_eq!(offered(&driver), both.map(|name| format!("{root}/profiles/{name}")), "in common: rank");
    driver.tap(KeyCode::Tab);
    driver.shows(&format!("› {root}/profiles/rank"));
    assert_eq!(offered(&driver).len(), both.len(), "nothing more in common");
    driver.taps("1");
    driver.tap(KeyCode::Tab);
    driver.shows("profiles/rank1.json");
    driver.enter();
    assert_eq!(driver.state.cx.tab, Tab::Timeline);
    let opening = format!("opening {root}/profiles/rank1.json");
    driver.shows(&opening);
}

#[test]
fn the_whole_path_of_the_selected_file_hides_no_other_file() {
    const FILES: usize = 6;
    let dir = tempfile::tempdir().expect("a directory");
    for at in 0..FILES {
        let name = format!("{at}-{}.txt", "long".repeat(30));
        std::fs::write(dir.path().join(name), "words").expect("a file");
    }
    let root = dir.path().display().to_string();
    let begins = format!("│ {}", &root[..8]);
    for size in [(60, 16), (80, 24), (120, 40)] {
        let mut driver = Driver::full(size.0, size.1);
        driver.taps("o");
        driver.taps(&format!("{root}/"));
        for _ in 0..FILES {
            let screen = driver.screen();
            let shown = screen.lines().filter(|line| line.starts_with(&begins)).count();
            let more = screen.lines().filter(|line| line.contains(" more ─"));
            let more =
                more.flat_map(str::split_whitespace).filter_map(|word| word.parse::<usize>().ok());
            assert_eq!(shown + more.sum::<usize>(), FILES, "{screen}");
            driver.tap(KeyCode::Down);
        }
    }
}

/// After a trace was opened, the dialog finds those beside it by letters of their names.
#[test]
fn traces_beside_the_last_one_are_found_by_letters() {
    let dir = tempfile::tempdir().expect("a directory");
    let event = |ts: usize| {
        format!(
            r#"{{"traceEvents": [{{"ph": "X", "cat": "kernel", "name": "k", "ts": {ts}, "dur": 2}}]}}"#
        )
    };
    for (at, name) in ["vllm.json", "b200_tp8.json", "results.json"].into_iter().enumerate() {
        let text = if name == "results.json" { "{}".to_owned() } else { event(at) };
        std::fs::write(dir.path().join(name), text).expect("a file");
    }
    std::fs::write(dir.path().join("tables.h5"), b"\x89HDF\r\n\x1a\n....").expect("a file");
    let root = dir.path().display().to_string();
    let mut driver = Driver::full(120, 40);
    driver.state.cx.opened("/elsewhere/before.parquet".into());
    driver.state.cx.opened(format!("{root}/vllm.json"));
    driver.taps("o");
    let all = offered(&driver);
    assert_eq!(all[..2], ["b200_tp8.json", "vllm.json"], "the title names their folder");
    driver.shows("open a trace in ");
    assert!(all.contains(&"/elsewhere/before.parquet".to_owned()), "{all:?}");
    assert_eq!(all.last(), Some(&"tables.h5".to_owned()), "what cannot be opened comes last");
    driver.shows(" opened ");
    driver.taps("tables");
    driver.shows("cannot be opened: an HDF5 export");
    (0.."tables".len()).for_each(|_| driver.tap(KeyCode::Backspace));
    driver.taps("b200");
    assert_eq!(offered(&driver), ["b200_tp8.json"]);
    driver.tap(KeyCode::Esc);
    driver.taps("o");
    driver.taps("qqxz9");
    driver.shows("no trace here has these letters: type a path");
}

#[test]
fn a_path_that_is_dropped_stands_in_the_list_of_files() {
    let mut driver = Driver::full(80, 24);
    let effects = driver.send(Message::Paste("'/tmp/no such/a b.json'".into()));
    driver.answer(effects);
    driver.shows("Enter opens /tmp/no such/a b.json");
    driver.enter();
    driver.shows("opening /tmp/no such/a b.json");
}

#[test]
fn enter_before_a_folder_is_listed_opens_its_first_match_then() {
    let dir = tempfile::tempdir().expect("a directory");
    std::fs::write(dir.path().join("trace.json"), "{}").expect("a file");
    let mut driver = Driver::full(80, 24);
    driver.taps("o");
    let typed = format!("{}/tra", dir.path().display());
    let effects = driver.send(Message::Paste(typed.clone()));
    driver.enter();
    driver.shows(&typed);
    driver.answer(effects);
    driver.hides("no such file");
    driver.shows(&format!("{typed}ce.json"));
}

/// The dialog keeps the path, so that a letter of it can be mended.
#[test]
fn a_path_that_does_not_open_is_in_the_dialog_again_with_the_error() {
    for (size, before) in [((60, 16), "3o"), ((80, 24), "3o"), ((80, 24), "1:")] {
        let mut driver = Driver::full(size.0, size.1);
        let screen = if before == "1:" { Tab::Experiments } else { Tab::Runs };
        driver.taps(before);
        driver.taps("/tmp/no such/a.json");
        driver.shows("Enter opens /tmp/no such/a.json");
        driver.tap(KeyCode::Enter);
        assert_eq!(driver.state.cx.tab, screen, "the screen below is as before");
        driver.shows("open a trace");
        driver.shows("› /tmp/no such/a.json");
        driver.shows("✘ /tmp/no such/a.json: no such file");
        driver.shows("Enter opens /tmp/no such/a.json");
        assert!(driver.state.cx.messages.iter().any(|(_, notice)| notice.error), "in the history, too");
        driver.tap(KeyCode::Backspace);
        driver.hides("no such file");
        driver.shows("› /tmp/no such/a.jso");
    }
}

#[test]
fn files_that_were_opened_are_offered_after_a_restart() {
    let mut before = Driver::empty(80, 24);
    before.state.cx.opened("traces/a.parquet".into());
    before.state.cx.opened("traces/b.json.gz".into());
    before.state.cx.opened("traces/a.parquet".into());
    before.state.cx.opened("20260102-0304-1".into());
    let kept = memory::remember(&before.state);
    let mut after = Driver::empty(80, 24);
    memory::recall(&mut after.state, &kept, true);
    after.keys("o");
    assert_eq!(offered(&after), ["a.parquet", "b.json.gz"], "no run among them");
    after.shows("open a trace in traces/: ");
}

#[test]
fn the_format_of_a_file_is_chosen_and_its_path_stays_editable() {
    for size in [(60, 16), (80, 24), (120, 40)] {
        let mut driver = Driver::full(size.0, size.1);
        driver.keys("3x");
        driver.shows("SVG   picture of this screen");
        driver.shows("CSV   table: 6 runs");
        driver.shows("HTML  report of 6 runs to share");
        driver.press(KeyCode::Up);
        driver.shows("exports/runs.html");
        driver.press(KeyCode::Up);
        driver.shows("exports/runs.csv");
        let effects = driver.enter();
        let [Effect::Export { path, export }] = &effects[..] else { panic!("{effects:?}") };
        assert_eq!(*path, std::path::Path::new("runs/exports/runs.csv"));
        assert_eq!(export.holds.as_deref(), Some("6 runs"));
        driver.shows("writing runs/exports/runs.csv…");
    }
    let mut driver = Driver::full(80, 24);
    driver.keys("4x");
    driver.shows("HTML  page to share");
    let row = driver.screen().lines().position(|line| line.contains("PNG")).expect("a row");
    let press = crossterm::event::MouseEventKind::Down(crossterm::event::MouseButton::Left);
    driver.mouse(press, (30, row as u16));
    driver.shows("exports/timeline.png");
    // a dot of the name is no extension
    for _ in 0..3 {
        driver.press(KeyCode::Backspace);
    }
    driver.taps("tp8-3.2");
    driver.press(KeyCode::Down);
    driver.shows("exports/timeline.tp8-3.2.");
}

#[test]
fn a_screen_with_nothing_to_export_says_so_at_once() {
    let mut driver = Driver::empty(80, 24);
    driver.send(Message::Runs(Ok(Default::default())));
    driver.state.pareto.set(Default::default(), Vec::new(), Default::default());
    driver.keys("5x");
    assert!(driver.state.cx.overlays.is_empty());
    driver.shows("nothing to export: no points are shown");
}

#[test]
fn a_path_to_write_to_is_completed() {
    let dir = tempfile::tempdir().expect("a directory");
    std::fs::create_dir(dir.path().join("figures")).expect("a folder");
    let mut driver = Driver::full(80, 24);
    driver.taps("3x");
    driver.send(Message::Key(crossterm::event::KeyEvent::new(
        KeyCode::Char('u'),
        crossterm::event::KeyModifiers::CONTROL,
    )));
    driver.taps(&format!("{}/fi", dir.path().display()));
    driver.tap(KeyCode::Tab);
    driver.taps("a.csv");
    let effects = driver.enter();
    let [Effect::Export { path, .. }] = &effects[..] else { panic!("{effects:?}") };
    assert_eq!(*path, dir.path().join("figures/a.csv"));
}

#[test]
fn a_tag_in_use_is_offered_with_the_runs_that_have_it() {
    let mut annotations = lab::store::Annotations::default();
    let edit = lab::store::AnnotationEdit::tags("paper").expect("a tag");
    annotations.edit(&["batch-1:0".into(), "batch-1:1".into()], &edit);
    let mut driver = Driver::empty(80, 24);
    let stored = Snapshot::annotated(records(), Vec::new(), Arc::new(annotations));
    driver.send(Message::Runs(Ok(Arc::new(stored))));
    driver.keys("3tpa");
    assert!(
        driver.screen().contains("paper") && driver.screen().contains("2 runs"),
        "{}",
        driver.screen()
    );
    driver.tap(KeyCode::Tab);
    let effects = driver.enter();
    assert!(matches!(&effects[..], [Effect::Store(_)]), "{effects:?}");
}

#[test]
fn a_value_is_typed_beside_what_it_means_and_what_it_is() {
    let mut driver = Driver::full(120, 40);
    driver.keys("7");
    driver.state.whatif.list.selected = 3;
    driver.enter();
    let told = driver.screen();
    assert!(told.contains("AR latency, in us"), "{told}");
    assert!(told.contains("latency of a small all-reduce inside a node"), "{told}");
    driver.press(KeyCode::Esc);
    driver.state.whatif.list.selected = 0;
    driver.enter();
    let told = driver.screen();
    assert!(told.contains("read the residual without the newest output"), "{told}");
}

#[test]
fn descriptions_beside_short_names_are_whole() {
    let mut driver = Driver::full(120, 40);
    driver.keys("3:draw a figure");
    driver.enter();
    driver.shows("Loss of held-out text over steps of training, with intervals over seeds");
    // in the palette, whose names are longer
    let mut driver = Driver::full(100, 36);
    driver.keys("3:quickstart");
    driver.shows("How much of decoding is exposed communication, and does ladder hide it?");
}

#[test]
fn help_is_of_this_screen_in_groups_until_words_are_searched_on_all() {
    let mut driver = Driver::full(110, 80);
    driver.keys("6?");
    driver.enter();
    driver.press(KeyCode::Home);
    let help = driver.screen();
    let at = |heading: &str| help.find(heading).unwrap_or_else(|| panic!("{heading}: {help}"));
    let headings = ["On this screen: compare", "Also on this screen", "Everywhere", "Moving in lists"];
    assert!(headings.map(at).is_sorted(), "{help}");
    assert!(!help.contains("On screen 4") && help.contains("search all screens"), "{help}");
    driver.keys("/critical path");
    driver.shows("On screen 4: timeline");
}

#[test]
fn help_takes_two_columns_in_a_wide_window() {
    let mut driver = Driver::full(200, 60);
    driver.keys("6?");
    let help = driver.screen();
    assert!(help.contains("last row") && !help.contains(" more ─╯"), "{help}");
    let first = help.lines().find(|line| line.contains("On this screen: compare")).expect("a heading");
    assert!(first.chars().skip(100).take(80).any(char::is_alphabetic), "{help}");
}

#[test]
fn the_palette_finds_sliders_by_what_they_model_and_says_why_an_action_is_off() {
    let mut driver = Driver::full(80, 24);
    for (typed, name) in [("double the latency", "AR latency"), ("roofline", "memory bw")] {
        driver.keys(&format!("7:{typed}"));
        assert!(offered(&driver).contains(&name.to_owned()), "{typed}: {:?}", offered(&driver));
        driver.press(KeyCode::Esc);
    }
    driver.keys(":reset all");
    driver.shows("no slider changed");
    driver.press(KeyCode::Esc);
    driver.keys("7:lat");
    assert_eq!(offered(&driver)[0], "AR latency");
    driver.press(KeyCode::Esc);
    // without a text, actions that are not possible come last
    driver.keys(":");
    let offered = offered(&driver);
    assert_eq!(offered[0], "type the slider's value");
    let at = |name: &str| offered.iter().position(|line| line.starts_with(name)).expect(name);
    assert!(at("of a trace: remove launch gaps") > at("theme: light"), "{offered:?}");
}

#[test]
fn a_palette_without_a_match_says_what_it_finds() {
    let mut driver = Driver::full(80, 24);
    driver.keys(":qqqqqq");
    for kind in ["actions", "experiments", "runs", "traces", "operations", "settings"] {
        driver.shows(kind);
    }
}

#[test]
fn help_is_searched() {
    let mut driver = Driver::full(80, 24);
    driver.keys("3?/side by");
    let told = driver.screen();
    assert!(told.contains("search: side by") && told.contains("compare two marked runs side by side"));
    assert!(!told.contains("show or hide the run's details"), "{told}");
    driver.enter();
    driver.press(KeyCode::Esc);
    driver.shows("show or hide the run's details");
    driver.keys("/nothing of the kind");
    driver.shows("no key does that");
    driver.press(KeyCode::Esc);
    driver.press(KeyCode::Esc);
    assert!(driver.state.cx.overlays.is_empty());
}

#[test]
fn the_theme_is_chosen_from_the_palette() {
    let mut driver = Driver::full(80, 24);
    let around = Surroundings { true_color: true, ..Surroundings::default() };
    let text = "[colors]\nexposed = \"bold #ff0000\"\n";
    driver.state.cx.themes =
        WorkbenchConfig::parse(text, std::path::Path::new("c.toml"), &around).themes;
    driver.keys("3:theme");
    let all =
        ["neutral", "terminal", "dark", "light", "high-contrast"].map(|name| format!("theme: {name}"));
    let choose = ["choose a colour theme".to_owned()];
    assert_eq!(offered(&driver), [&choose[..], &all].concat(), "and not tagging");
    driver.press(KeyCode::Esc);
    driver.keys(":choose a colour");
    driver.enter();
    assert_eq!(offered(&driver), ["neutral", "terminal", "dark", "light", "high-contrast"]);
    driver.keys("light");
    driver.enter();
    let mut light = Theme::built_in("light").expect("a theme");
    light.set("exposed", "bold #ff0000").expect("a style");
    assert_eq!(driver.state.cx.theme, light, "with the user's own colours");
    assert_eq!(driver.state.cx.chosen_theme.as_deref(), Some("light"));
    driver.keys(":choose a colour");
    driver.enter();
    driver.shows("shown now");
    driver.keys("neutral");
    driver.enter();
    assert_eq!(driver.state.cx.chosen_theme, None, "the settings hold again");
}

#[test]
fn the_open_timeline_survives_a_restart_and_is_read_when_it_is_looked_at() {
    let kept = serde_json::json!({"sources": ["20260102-0304-1"], "rules": [null], "window": [10, 90]});
    let mut driver = Driver::empty(80, 24);
    let (timeline, cx) = (&mut driver.state.timeline, &mut driver.state.cx);
    timeline.recall(&kept, cx);
    driver.send(Message::Runs(Ok(Arc::new(Snapshot::new(records(), Vec::new())))));
    assert_eq!(driver.state.timeline.loading, None, "nobody looks at it");
    let again = memory::remember(&driver.state);
    assert!(format!("{again:?}").contains("20260102-0304-1"), "kept though nobody looked: {again:?}");
    driver.keys("4");
    driver.shows("opening 20260102-0304-1");
}

#[test]
fn variants_that_were_kept_survive_a_restart() {
    let mut before = Driver::empty(120, 40);
    before.taps("7");
    before.taps("p");
    before.taps("l");
    before.taps("p");
    assert_eq!(before.state.whatif.pins.len(), 2, "{}", before.screen());
    let kept = memory::remember(&before.state);
    let mut after = Driver::empty(120, 40);
    memory::recall(&mut after.state, &kept, false);
    let again = memory::remember(&after.state);
    memory::recall(&mut after.state, &again, false);
    after.taps("7");
    let variants = |driver: &Driver| -> Vec<_> {
        driver.state.whatif.pins.iter().map(|pin| pin.variant.clone()).collect()
    };
    assert_eq!(variants(&after), variants(&before));
}

/// A kept variant whose hardware is not there now is not shown, and not lost.
#[test]
fn a_variant_that_cannot_be_simulated_now_is_kept_for_the_next_start() {
    let mut before = Driver::empty(120, 40);
    before.taps("7");
    before.taps("p");
    let kept = memory::remember(&before.state);
    let kept = serde_json::to_string(&kept).unwrap();
    let pinned = kept.replacen("\"hardware\":\"h100_sxm\"", "\"hardware\":\"mine.toml\"", usize::MAX);
    assert_ne!(pinned, kept, "{kept}");
    let mut after = Driver::empty(120, 40);
    memory::recall(&mut after.state, &serde_json::from_str(&pinned).unwrap(), false);
    after.taps("7");
    assert!(after.state.whatif.pins.is_empty() && after.state.whatif.waiting.is_empty());
    let again = serde_json::to_string(&memory::remember(&after.state)).unwrap();
    assert!(again.contains("mine.toml"), "{again}");
}
