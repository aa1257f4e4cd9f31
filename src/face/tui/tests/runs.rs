//! The page of runs: finding, sorting, marking, tagging, comparing, deleting.

use std::collections::HashSet;
use std::sync::Arc;

use crossterm::event::{KeyCode, KeyEvent, KeyModifiers, MouseButton, MouseEventKind};

use super::fixtures::{Driver, record, records, rounds, spec};
use crate::face::tui::context::Snapshot;
use crate::face::tui::overlay::Prompt;
use crate::face::tui::screen::{AnyScreen as _, FileKind, Tab};
use crate::face::tui::screens::runs::state::{Grouping, RunListLine};
use crate::face::tui::update::{Effect, Message, StoreTask};
use lab::store::{AnnotationEdit, Annotations};
use study::analysis::run_list;
use table::{Backend, Link, P2p, Record, Status};

/// Runs of a sweep over architectures, TP and P2P, some with tags and notes.
fn many() -> (Vec<Record>, Annotations) {
    let mut all = records();
    for (i, architecture) in ["standard", "ladder", "parallel", "upper-bound"].iter().enumerate() {
        for tp in [2, 4, 8] {
            for p2p in [P2p::On, P2p::Off] {
                let mut spec = spec(architecture, tp, p2p, Backend::Sim);
                (spec.model, spec.batch) = ("llama-3-70b".into(), 16);
                spec.env.insert("NCCL_ALGO".into(), if p2p == P2p::On { "Ring" } else { "Tree" }.into());
                let speed = 400.0 * f64::from(tp) + 100.0 * i as f64;
                let id = format!("20260103-101500-sim-4f2a91:{}", all.len());
                all.push(Record { experiment: Some("paper-70b".into()), ..record(&id, spec, speed) });
            }
        }
    }
    let mut annotations = Annotations::default();
    annotations
        .edit(&[all[1].run.clone(), all[8].run.clone()], &AnnotationEdit::tags("good paper").unwrap());
    annotations.edit(&[all[1].run.clone()], &AnnotationEdit::note("after the driver's update"));
    (all, annotations)
}

fn driver((columns, rows): (u16, u16)) -> Driver {
    let (records, annotations) = many();
    let mut driver = Driver::empty(columns, rows);
    let snapshot = Snapshot::annotated(records, Vec::new(), Arc::new(annotations));
    driver.send(Message::Runs(Ok(Arc::new(snapshot))));
    driver.keys("3*");
    driver
}

/// The same, sorted by creation.
fn newest_first(size: (u16, u16)) -> Driver {
    let mut driver = driver(size);
    driver.state.runs.sort = vec![("run".to_owned(), true)];
    driver.state.runs.arrange(driver.state.cx.stored.as_deref());
    driver.state.runs.list.selected = 0;
    driver
}

/// Titles of the columns.
fn head(driver: &Driver) -> String {
    driver.screen().lines().nth(3).unwrap_or_default().to_owned()
}

fn selected(driver: &Driver) -> Option<String> {
    let stored = driver.state.cx.stored.as_ref();
    driver.state.runs.selected(stored).map(|record| record.run.clone())
}

fn shown(driver: &Driver) -> Vec<String> {
    let stored = driver.state.cx.stored.as_ref().expect("runs were sent");
    driver.state.runs.rows().map(|row| stored.records[row as usize].run.clone()).collect()
}

/// Does what the store would do about it, and tells what came of it.
fn perform(driver: &mut Driver, effects: Vec<Effect>) {
    for effect in effects {
        let Some(stored) = driver.state.cx.stored.clone() else { return };
        let told = match effect {
            Effect::Store(StoreTask::Annotate { runs, edit }) => {
                let mut annotations = Annotations::clone(&stored.annotations);
                annotations.edit(&runs, &edit);
                Message::Runs(Ok(Arc::new(stored.with(Arc::new(annotations)))))
            }
            Effect::Store(StoreTask::Delete(gone)) => {
                let kept = stored.records.iter().filter(|r| !gone.contains(&r.run)).cloned().collect();
                let annotations = stored.annotations.clone();
                Message::Runs(Ok(Arc::new(Snapshot::annotated(kept, Vec::new(), annotations))))
            }
            Effect::Ask(task) => Message::Answered(task.run()),
            _ => continue,
        };
        driver.send(told);
    }
}

#[test]
fn what_it_looks_like() {
    let mut runs = driver((120, 40));
    runs.keys(" j jjj j");
    runs.keys("/arch:ladder tpot<9 tag:");
    insta::assert_snapshot!("runs_filter_120x40", runs.screen());
    runs.press(KeyCode::Esc);
    runs.state.runs.sort_by("architecture", table::Unit::Text);
    runs.keys("g");
    insta::assert_snapshot!("runs_groups_120x40", runs.screen());
    runs.keys("gC");
    insta::assert_snapshot!("runs_columns_120x40", runs.screen());
    runs.press(KeyCode::Esc);
    let mut runs = driver((120, 40));
    runs.keys("/llama upper");
    runs.enter();
    runs.keys(" j");
    let effects = runs.keys("jc");
    perform(&mut runs, effects);
    insta::assert_snapshot!("runs_side_by_side_120x40", runs.screen());
    runs.press(KeyCode::Esc);
    runs.keys("t");
    insta::assert_snapshot!("runs_tag_120x40", runs.screen());
    runs.press(KeyCode::Esc);
    runs.press(KeyCode::Esc);
    runs.keys("/tag:good 20260102");
    runs.enter();
    runs.keys("d");
    insta::assert_snapshot!("runs_detail_120x40", runs.screen());
}

#[test]
fn tab_takes_offers_until_the_filter_says_what_is_wanted() {
    let mut driver = driver((80, 24));
    driver.keys("/arc");
    driver.shows("arch:");
    driver.press(KeyCode::Tab);
    driver.press(KeyCode::Down);
    let offers: Vec<_> =
        driver.state.runs.filter.field.offers.list().iter().map(|o| o.text.clone()).collect();
    assert_eq!(offers, ["desync:2", "ladder", "parallel", "standard", "upper-bound"]);
    driver.press(KeyCode::Tab);
    assert_eq!(driver.state.runs.filter.value(), "arch:ladder");
    driver.keys(" NCCL_ALGO:r");
    driver.press(KeyCode::Tab);
    driver.keys(" tp:4..");
    driver.enter();
    assert!(!driver.state.runs.filter.typing);
    assert_eq!(shown(&driver), ["20260103-101500-sim-4f2a91:16", "20260103-101500-sim-4f2a91:14"]);
    driver.shows("2 of 30 runs");
}

#[test]
fn a_filter_that_cannot_be_says_why_and_shows_what_the_rest_of_it_means() {
    let mut driver = driver((120, 40));
    driver.keys("/arch:desync tpp>2");
    assert_eq!(shown(&driver).len(), 1);
    let told = driver.screen();
    assert!(told.contains("unknown column 'tpp'") && told.contains("did you mean 'tp' or "), "{told}");
    assert!(told.contains("finds all columns") && !told.contains("columns: "), "{told}");
    // the table is below one or two lines of it
    assert!(told.contains("desync:2"), "{told}");
    driver.press(KeyCode::Esc);
    assert_eq!(shown(&driver).len(), 30);
    assert_eq!(driver.state.runs.filter.wrong, None);
}

#[test]
fn a_column_sorts_alone_and_others_break_ties_only_if_added() {
    let mut driver = driver((120, 40));
    let header = |driver: &Driver, title: &str| -> (u16, u16) {
        let line = head(driver);
        // `tok/s` comes after `tok/s/GPU`
        let at = line.rfind(title).unwrap_or_else(|| panic!("{title} in {line}"));
        (line[..at].chars().count() as u16, 3)
    };
    let click_with = |driver: &mut Driver, at: (u16, u16), modifiers: KeyModifiers| {
        driver.mouse_with(MouseEventKind::Down(MouseButton::Left), at, modifiers);
    };
    let click = |driver: &mut Driver, at| click_with(driver, at, KeyModifiers::NONE);
    let sort = |driver: &Driver| -> Vec<String> {
        driver.state.runs.sort.iter().map(|(name, _)| name.clone()).collect()
    };
    for (title, name) in [("tok/s", "tokens_per_s"), ("p2p", "p2p"), ("arch", "architecture")] {
        let at = header(&driver, title);
        click(&mut driver, at);
        assert_eq!(sort(&driver), [name]);
    }
    driver.keys("sss");
    assert_eq!(sort(&driver).len(), 1, "each replaces the one before");
    // each mark moves the heads behind it
    let at = header(&driver, "arch");
    click(&mut driver, at);
    driver.keys("&");
    driver.shows("a column that breaks ties");
    driver.keys("p2p");
    driver.enter();
    let at = header(&driver, "tok/s");
    click_with(&mut driver, at, KeyModifiers::SHIFT);
    assert_eq!(sort(&driver), ["architecture", "p2p", "tokens_per_s"]);
    driver.keys("O");
    driver.shows("2. ↑");
    driver.press(KeyCode::Esc);
    driver.shows("arch↑1");
    let head = head(&driver);
    let is_apart = |rest: &str| rest.is_empty() || rest.starts_with(' ');
    let apart = |mark: &str| head.split_once(mark).is_some_and(|(_, rest)| is_apart(rest));
    assert!(apart("p2p↑2") || apart("p2p↓2"), "marks stand apart from the next head: {head}");
    assert!(apart("tok/s↑3") || apart("tok/s↓3"), "{head}");
    let ladder: Vec<String> = shown(&driver).into_iter().skip(1).take(5).collect();
    let rows = [":17", ":15", ":13"].map(|row| format!("20260103-101500-sim-4f2a91{row}"));
    let wanted =
        [&rows[..], &["20260102-0304-3".to_owned()], &["20260103-101500-sim-4f2a91:16".to_owned()]];
    assert_eq!(ladder, wanted.concat(), "P2P off before on, then the fastest first");
    let at = header(&driver, "arch");
    click(&mut driver, at);
    assert_eq!(driver.state.runs.sort[0], ("architecture".into(), true), "again: the other way round");
    let ids = shown(&driver);
    assert!(ids[0].ends_with(":11"), "the fastest of standard: {ids:?}");
    assert!(ids[29].ends_with(":24"), "upper-bound stays last: {ids:?}");
    driver.shows("upper-bound last");
}

#[test]
fn groups_have_heads_that_count_and_cannot_be_opened() {
    let mut driver = driver((120, 40));
    driver.keys("g");
    let told = driver.screen();
    assert!(told.contains("── arch desync:2 ── 1 run, 1 not ok"), "{told}");
    assert!(told.contains("── arch ladder ── 8 runs ─"), "{told}");
    driver.press(KeyCode::Home);
    assert!(driver.enter().is_empty(), "a head is no run");
    assert_eq!(shown(&driver).len(), 30);
}

#[test]
fn the_head_of_the_selected_runs_group_stays_in_view() {
    let mut driver = driver((80, 24));
    driver.keys("g");
    driver.press(KeyCode::End);
    for _ in 0..shown(&driver).len() {
        let runs = &driver.state.runs;
        let is_head = |line: &RunListLine| matches!(line, RunListLine::Group { .. });
        let head = runs.lines[..=runs.list.selected].iter().rposition(is_head);
        assert!(head.is_some_and(|head| head >= runs.list.offset), "{}", driver.screen());
        driver.keys("k");
    }
    driver.keys("gsg");
    driver.shows("grouped by tok/s/GPU; g shows one list again");
}

#[test]
fn marked_runs_are_tagged_together_and_the_filter_finds_them() {
    let mut driver = driver((80, 24));
    driver.keys("/llama upper");
    driver.enter();
    driver.keys(" j jt");
    driver.keys("best -good");
    let effects = driver.enter();
    let Some(Effect::Store(StoreTask::Annotate { runs, edit })) = effects.first() else {
        panic!("{effects:?}")
    };
    assert_eq!((runs.len(), edit.tag.as_slice(), edit.untag.len()), (2, &["best".to_owned()][..], 1));
    perform(&mut driver, effects);
    driver.press(KeyCode::Esc);
    driver.keys("/tag=best");
    driver.enter();
    assert_eq!(shown(&driver).len(), 2);
    driver.keys("tno\"good");
    driver.enter();
    driver.shows("cannot be a tag");
    assert!(driver.state.cx.top::<Prompt>().is_some(), "it can be corrected");
    driver.press(KeyCode::Esc);
    driver.keys("T");
    driver.keys("measured twice");
    let effects = driver.enter();
    perform(&mut driver, effects);
    driver.keys("T");
    driver.shows("measured twice");
}

#[test]
fn tags_notes_and_marks_are_confirmed_and_taken_back_one_by_one() {
    let mut driver = driver((120, 40));
    driver.keys("/llama upper");
    driver.enter();
    let before = driver.state.cx.stored.clone().unwrap().annotations.clone();
    driver.keys(" j jt");
    driver.keys("best -good");
    let effects = driver.enter();
    driver.shows("2 runs: +best -good; u undoes it");
    perform(&mut driver, effects);
    driver.keys("T");
    driver.keys("odd");
    let effects = driver.enter();
    driver.shows("2 runs: wrote the note; u undoes it");
    perform(&mut driver, effects);
    driver.keys("A");
    driver.shows("took away 2 marks: u brings them back");
    driver.press(KeyCode::End);
    driver.keys(" u");
    assert_eq!(driver.state.runs.marked.len(), 3, "what was marked since stays");
    driver.press(KeyCode::End);
    driver.keys(" t");
    driver.keys("-never");
    driver.enter();
    driver.shows("2 runs: -never changes nothing");
    for _ in 0..2 {
        let effects = driver.keys("u");
        assert!(matches!(effects[..], [Effect::Store(StoreTask::Annotate { .. }), ..]), "{effects:?}");
        perform(&mut driver, effects);
    }
    assert_eq!(driver.state.cx.stored.clone().unwrap().annotations, before);
    driver.keys("u");
    driver.shows("undone: filter");
    assert!(driver.keys("u").is_empty(), "no deletion of an earlier session is restored");
    driver.shows("nothing to undo");
    // and forward again, the filter first
    redo(&mut driver);
    driver.shows("redone: filter");
    let effects = redo(&mut driver);
    assert!(matches!(effects[..], [Effect::Store(StoreTask::Annotate { .. }), ..]), "{effects:?}");
    driver.shows("changed tags and notes of 2 runs again");
}

fn redo(driver: &mut Driver) -> Vec<Effect> {
    driver.send(Message::Key(KeyEvent::new(KeyCode::Char('r'), KeyModifiers::CONTROL)))
}

#[test]
fn a_deletion_of_an_earlier_session_is_restored_only_when_asked_for() {
    let mut driver = driver((120, 40));
    assert!(driver.keys("u").is_empty());
    driver.shows("Nothing was changed in this session.");
    assert!(driver.keys("n").is_empty());
    driver.keys("u");
    assert!(matches!(driver.keys("y")[..], [Effect::Store(StoreTask::Restore)]));
}

#[test]
fn a_change_of_another_screen_is_named_then_undone_there_and_redone() {
    let mut driver = Driver::full(120, 30);
    driver.keys("4f");
    let window = |driver: &Driver| driver.state.timeline.view.as_ref().map(|view| view.window);
    let whole = window(&driver);
    driver.keys("3/ladder");
    driver.enter();
    driver.keys("6u");
    driver.shows("nothing to undo here; u again undoes the filter on runs");
    assert_eq!((driver.state.cx.tab, driver.state.runs.filter.value()), (Tab::Compare, "ladder"));
    // any other key is no second press
    driver.keys("ju");
    driver.shows("nothing to undo here; u again");
    driver.mouse(MouseEventKind::Moved, (3, 3));
    driver.keys("u");
    driver.shows("undone on runs: filter");
    assert_eq!((driver.state.cx.tab, driver.state.runs.filter.value()), (Tab::Runs, ""));
    driver.keys("6");
    redo(&mut driver);
    driver.shows("nothing to redo here; Ctrl-R again redoes the filter on runs");
    redo(&mut driver);
    driver.shows("redone on runs: filter");
    assert_eq!(driver.state.runs.filter.value(), "ladder");
    // a view is moved back on its own screen only, and before later changes of others
    driver.keys("6uu");
    assert_eq!(window(&driver), whole);
    redo(&mut driver);
    driver.keys("4u");
    assert_ne!(window(&driver), whole);
    assert_eq!((driver.state.cx.tab, driver.state.runs.filter.value()), (Tab::Timeline, "ladder"));
    driver.keys("u");
    driver.shows("nothing to undo here; u again undoes the filter on runs");
}

#[test]
fn without_groups_the_order_before_them_returns() {
    let mut driver = driver((80, 24));
    let before = shown(&driver);
    driver.keys("g");
    assert_ne!(shown(&driver), before, "by architecture");
    driver.keys("g");
    assert_eq!(shown(&driver), before);
    // an order chosen since stays
    driver.keys("gI");
    let reversed = shown(&driver);
    driver.keys("g");
    assert_eq!(shown(&driver), reversed);
}

#[test]
fn deleting_hides_at_once_asks_for_many_and_can_be_undone() {
    let mut driver = driver((80, 24));
    let before = shown(&driver);
    driver.keys("j");
    let effects = driver.press(KeyCode::Delete);
    assert!(
        matches!(&effects[..], [Effect::Store(StoreTask::Delete(runs))] if *runs == [before[1].clone()])
    );
    assert!(!shown(&driver).contains(&before[1]), "it is gone before the store has answered");
    assert_eq!(driver.state.runs.selected(driver.state.cx.stored.as_ref()).unwrap().run, before[2]);
    driver.shows("u undoes it");
    perform(&mut driver, effects);
    assert_eq!(shown(&driver).len(), 29);
    assert!(matches!(driver.keys("u")[..], [Effect::Store(StoreTask::Restore)]));
    driver.keys("a");
    assert!(driver.keys("D").is_empty(), "many are asked for");
    driver.shows("Delete 29 marked runs (");
    driver.keys("n");
    assert_eq!(shown(&driver).len(), 29);
    let asked = driver.keys("D");
    let effects = driver.keys("y");
    assert!(
        asked.is_empty()
            && matches!(&effects[..], [Effect::Store(StoreTask::Delete(runs))] if runs.len() == 29)
    );
    perform(&mut driver, effects);
    assert!(driver.state.runs.marked.is_empty());
}

#[test]
fn a_new_order_puts_the_cursor_on_its_first_run_and_undo_returns_it() {
    let mut driver = driver((80, 24));
    driver.keys("jjjj");
    let before = selected(&driver);
    for keys in ["s", "jjjI", "jjjS"] {
        driver.keys(keys);
        assert_eq!(driver.state.runs.list.selected, 0, "{keys}");
    }
    driver.keys("jj");
    let held = selected(&driver);
    // later changes of the same list leave it on its run
    let stored = driver.state.cx.stored.clone().unwrap();
    let newer = Record { run: "20270101-000000-newer".into(), ..stored.records[0].clone() };
    let records = stored.records.iter().cloned().chain([newer]).collect();
    let reloaded = Snapshot::annotated(records, Vec::new(), stored.annotations.clone());
    driver.send(Message::Runs(Ok(Arc::new(reloaded))));
    driver.keys("g");
    assert_eq!(selected(&driver), held);
    driver.keys("uuuu");
    driver.shows("undone: order");
    assert_eq!((selected(&driver), driver.state.runs.sort.len()), (before, 0));
    for _ in 0..3 {
        redo(&mut driver);
    }
    assert_eq!(selected(&driver), held);
    let effects = driver.keys("D");
    let deleted: Vec<String> = held.into_iter().collect();
    assert!(matches!(&effects[..], [Effect::Store(StoreTask::Delete(runs)), ..] if *runs == deleted));
}

#[test]
fn it_opens_on_the_best_run_of_the_newest_sweep_with_upper_bound_after_the_architectures() {
    let mut driver = driver((120, 40));
    driver.shows("newest sweep, then lowest TPOT first, upper-bound last");
    let (all, row) = (shown(&driver), |row: usize| format!("20260103-101500-sim-4f2a91:{row}"));
    assert_eq!(all[..3], [row(23), row(22), row(17)], "parallel, then ladder, at TP 8");
    assert_eq!(all[18..20], [row(29), row(28)], "upper-bound after 18 runs of architectures");
    assert_eq!(all[24], "20260102-0304-2", "the older sweep");
    assert_eq!(all[28..], ["batch-1:0", "20260102-0304-4"], "a failed run last");
    driver.keys("*");
    driver.shows(" lowest TPOT first, upper-bound last");
    driver.hides("newest sweep");
    // the column next to the marked one, and the one before it
    driver.keys("s");
    driver.shows(" highest tok/s/GPU first");
    driver.keys("S");
    driver.shows(" lowest TPOT first");
    driver.keys("O");
    driver.keys("default");
    driver.enter();
    driver.shows(" lowest TPOT first, upper-bound last");
    assert_eq!(shown(&driver)[..], all[..24]);
}

#[test]
fn options_that_differ_unseen_are_named_and_shared_ones_take_no_column() {
    let of = |run: &str, output_tokens: u32| {
        let mut spec = spec("ladder", 2, P2p::On, Backend::Sim);
        spec.output_tokens = output_tokens;
        Record { experiment: None, ..record(run, spec, 900.0) }
    };
    let all = vec![of("a", 33), of("b", 65)];
    let mut driver = Driver::empty(120, 40);
    driver.send(Message::Runs(Ok(Arc::new(Snapshot::new(all, Vec::new())))));
    driver.keys("3");
    driver.shows("; runs differ also in output (C adds columns); all tp 2, batch 4, p2p on");
    assert!(!head(&driver).contains(" tp "), "{}", driver.screen());
    // the selected one of two that look the same
    let screen = driver.screen();
    assert!(screen.contains("\n output 33") || screen.contains("\n output 65"), "{screen}");
    driver.keys("C/output_tokens");
    driver.shows("Enter end typing: Space toggles, n next");
    // ends the typing on the match, where Space is no letter any more
    driver.enter();
    driver.shows("Space on or off  n next match");
    driver.keys(" ");
    driver.press(KeyCode::Esc);
    driver.press(KeyCode::Esc);
    driver.hides("differ also");
    assert!(head(&driver).contains(" output"), "{}", driver.screen());
    // a single run has them as columns
    driver.keys("/output_tokens:65");
    driver.enter();
    assert!(head(&driver).contains(" tp "), "{}", driver.screen());
}

#[test]
fn a_wide_window_has_columns_of_options_that_differ_unseen() {
    let of = |run: &str, output_tokens: u32| {
        let mut spec = spec("ladder", 2, P2p::On, Backend::Sim);
        spec.output_tokens = output_tokens;
        Record { experiment: None, ..record(run, spec, 900.0) }
    };
    let mut driver = Driver::empty(200, 60);
    let snapshot = Snapshot::new(vec![of("a", 33), of("b", 65)], Vec::new());
    driver.send(Message::Runs(Ok(Arc::new(snapshot))));
    driver.keys("3");
    assert!(head(&driver).contains(" run ") && head(&driver).contains(" output"), "{}", driver.screen());
    driver.hides("differ also");
    // they are not among the columns that the user chose
    assert!(!driver.state.runs.columns.contains(&"output_tokens".into()));
    driver.send(Message::Resize(120, 40));
    driver.shows("differ also in output");
}

#[test]
fn enter_shows_the_details_of_a_run_without_a_timeline_and_the_footer_says_so() {
    let mut driver = driver((80, 24));
    driver.shows("Enter timeline");
    driver.taps("/failed");
    driver.enter();
    driver.shows("Enter details");
    driver.enter();
    driver.shows("no timeline: the run is failed: rank 1 died of signal 9");
    driver.press(KeyCode::Esc);
    driver.taps("/id=20260102-0304-1|20260102-0304-2");
    driver.enter();
    driver.shows("Enter details");
    driver.enter();
    driver.shows("no timeline: the trace of run 20260102-0304-1 is gone");
    driver.press(KeyCode::Esc);
    // both, one above the other: their numbers instead
    driver.taps("aB");
    driver.shows("different options (the other");
    assert_eq!(driver.state.cx.tab, Tab::Runs);
}

#[test]
fn the_smallest_window_has_the_name_and_the_main_results_of_each_run() {
    let mut driver = driver((60, 16));
    driver.shows(" by sweep, TPOT↑, upper-bound last; ");
    driver.shows("4 options");
    // no two rows look the same for want of an option
    for title in ["arch", "source", "tp", "batch", "p2p", "model", "TPOT ms"] {
        assert!(head(&driver).contains(title), "{}", driver.screen());
    }
    driver.keys("/llama");
    driver.enter();
    for title in ["arch", "TPOT ms", "tok/s/GPU", "exposed"] {
        assert!(head(&driver).contains(title), "{}", driver.screen());
    }
    let screen = driver.screen();
    assert!(screen.lines().last().is_some_and(|footer| footer.ends_with("q quit")), "{screen}");
}

#[test]
fn the_palette_sorts_runs_by_a_column() {
    let mut driver = driver((80, 24));
    driver.keys(":sort tpot");
    driver.enter();
    assert_eq!(driver.state.runs.sort, [("tpot_p50_ms".to_owned(), false)]);
    driver.shows(" lowest TPOT first");
}

#[test]
fn marked_runs_that_the_filter_hides_are_deleted_only_when_asked() {
    let mut driver = driver((120, 40));
    driver.keys(" j j");
    driver.keys("/id=20260102-0304-1");
    driver.enter();
    assert!(driver.keys("D").is_empty());
    driver.shows("Delete 2 marked runs (not the row under the cursor; none");
    driver.shows("in view): parallel tp8 b16 p2p-off, parallel tp8 b16");
    assert!(driver.enter().is_empty(), "Enter is no answer to it");
    driver.keys("n");
    driver.press(KeyCode::Esc);
    driver.shows("dropped the filter id=20260102-0304-1: u brings it back");
    assert_eq!(shown(&driver).len(), 30);
    driver.keys("u");
    let alone = vec![selected(&driver).unwrap()];
    driver.keys("D");
    let effects = driver.keys("s");
    let deleted = effects.iter().find_map(|effect| match effect {
        Effect::Store(StoreTask::Delete(runs)) => Some(runs),
        _ => None,
    });
    assert_eq!(deleted, Some(&alone));
}

#[test]
fn marked_runs_out_of_view_are_named_before_they_are_deleted_or_tagged() {
    let mut driver = driver((80, 24));
    driver.keys(" ");
    let marked = selected(&driver).unwrap();
    driver.press(KeyCode::End);
    assert!(driver.keys("D").is_empty(), "the mark has scrolled out of the window");
    driver.shows("Delete 1 marked run (not the row under the cursor; none");
    driver.press(KeyCode::Esc);
    driver.keys("t");
    driver.shows("tag 1 marked run (not the row under the cursor");
    driver.press(KeyCode::Esc);
    // two runs in view, one of them under the cursor
    driver.press(KeyCode::Home);
    driver.keys("j ");
    assert!(driver.keys("D").is_empty(), "more than one run is asked for");
    driver.shows("Delete 2 marked runs: parallel tp8 b16 p2p-off");
    let effects = driver.keys("y");
    let is_of_marked = |runs: &[String]| runs.len() == 2 && runs.contains(&marked);
    assert!(matches!(&effects[..], [Effect::Store(StoreTask::Delete(runs)), ..] if is_of_marked(runs)));
    // the run under the cursor, and nothing else
    assert!(
        matches!(&driver.keys("D")[..], [Effect::Store(StoreTask::Delete(runs)), ..] if runs.len() == 1)
    );
}

#[test]
fn a_running_run_is_not_deleted_and_is_replaced_when_it_has_ended() {
    let mut all = records();
    all[1].status = Status::Running;
    (all[1].metrics, all[1].overlap) = (None, None);
    let mut driver = Driver::empty(120, 40);
    driver.send(Message::Runs(Ok(Arc::new(Snapshot::new(all, Vec::new())))));
    driver.keys("3/status:running");
    driver.enter();
    let effects = driver.keys("D");
    assert!(!effects.iter().any(|effect| matches!(effect, Effect::Store(_))), "{effects:?}");
    driver.shows("is still running: cancel it first; nothing was deleted");
    driver.hides("undoes it");
    let stored = driver.state.cx.stored.clone().unwrap();
    let ended = Arc::new(stored.and(vec![records().swap_remove(1)]));
    assert_eq!(ended.records.len(), stored.records.len());
    driver.send(Message::Runs(Ok(ended)));
    driver.hides("▶ running");
}

#[test]
fn a_narrow_window_has_the_filter_and_the_columns_on_both_sides() {
    let mut driver = driver((60, 16));
    driver.keys("/arch:ladder tp:2..8");
    driver.enter();
    driver.press(KeyCode::Right);
    driver.shows("  ← 1 → ");
    driver.shows("\n [all runs] filter: arch:ladder tp:2..8");
}

#[test]
fn columns_are_as_wide_as_the_shown_runs_need() {
    let mut driver = driver((120, 40));
    driver.keys("/llama upper");
    driver.enter();
    // settings and models of other runs are longer
    driver.shows(" 20260103-101500-sim-4f2a91:29");
    driver.hides("more column");
    let head = head(&driver);
    assert!(head.contains(" TPOT ms↑ tok/s/GPU exposed  hidden "), "{head}");
    driver.shows(" 7.5 %  75.0 % ");
}

#[test]
fn values_of_the_details_stand_in_one_column() {
    for size in [(200, 60), (120, 40)] {
        let mut driver = driver(size);
        driver.keys("/arch:ladder");
        driver.enter();
        driver.state.runs.detail = Some(true);
        let screen = driver.screen();
        let column = |name: &str| {
            let line = screen.lines().find(|line| line.contains(&format!("│ {name} ")))?;
            let (_, rest) = line.split_once(&format!("│ {name}"))?;
            Some(name.len() + rest.len() - rest.trim_start().len())
        };
        let found: HashSet<usize> = ["status", "model", "completion latency", "exposed share of decode"]
            .into_iter()
            .filter_map(column)
            .collect();
        assert_eq!(found.len(), 1, "{size:?}: {screen}");
    }
}

#[test]
fn the_details_of_a_small_window_are_the_numbers_and_leave_two_thirds_to_the_rows() {
    for (size, details_at) in [((60, 16), 11), ((80, 24), 17)] {
        let mut driver = driver(size);
        driver.state.runs.detail = Some(true);
        let screen = driver.screen();
        let row = screen.lines().position(|line| line.starts_with('╭')).expect("details");
        assert_eq!(row, details_at, "{screen}");
        assert!(screen.contains(" · ") && screen.contains(" W: all "), "{screen}");
        driver.hides("│ status ");
    }
}

#[test]
fn the_details_tell_medians_from_values_of_the_recorded_sample() {
    let mut driver = driver((120, 50));
    driver.keys("/id=20260102-0304-2");
    driver.enter();
    driver.state.runs.detail = Some(true);
    driver.shows("medians [95 % interval] over 8 samples");
    driver.shows("decode phase of one sample, mean over ranks, 33.5 ms as recorded");
}

#[test]
fn the_details_begin_with_results_and_hashes_are_only_in_the_whole_text() {
    let mut all = records();
    all.truncate(1);
    all[0].environment.insert("binary_sha256".into(), "e998bbb1".into());
    let mut driver = Driver::empty(120, 60);
    driver.send(Message::Runs(Ok(Arc::new(Snapshot::new(all, Vec::new())))));
    driver.keys("3");
    driver.state.runs.detail = Some(true);
    let screen = driver.screen();
    let at =
        |name: &str| screen.find(&format!("│ {name} ")).unwrap_or_else(|| panic!("{name}: {screen}"));
    assert!(at("TPOT") < at("warning") && at("warning") < at("workload"), "{screen}");
    assert!(at("workload") < at("cores"), "{screen}");
    driver.hides("sha256");
    driver.keys("W");
    driver.press(KeyCode::End);
    driver.shows("binary sha256");
}

#[test]
fn a_long_warning_takes_one_line_of_the_details_and_is_whole_in_the_full_text() {
    let mut all = records();
    all.truncate(1);
    let warning = "decode: mean 9 ms is far above the median 5 ms; some samples may have stalled";
    all[0].warnings = vec![warning.into()];
    let mut driver = Driver::empty(80, 50);
    driver.send(Message::Runs(Ok(Arc::new(Snapshot::new(all, Vec::new())))));
    driver.keys("3");
    driver.state.runs.detail = Some(true);
    driver.shows("far above the median 5 ms …");
    driver.hides("stalled");
    driver.keys("W");
    driver.shows("stalled");
}

#[test]
fn rounds_of_a_cell_are_told_apart_and_unsteady_samples_are_marked() {
    let cell = spec("ladder", 2, P2p::On, Backend::Cpu);
    let mut all = rounds("ladder", &cell, 4.0, 4);
    let mut driver = Driver::empty(60, 16);
    driver.send(Message::Runs(Ok(Arc::new(Snapshot::new(all.clone(), Vec::new())))));
    driver.keys("3*g");
    assert!(head(&driver).contains(" round"), "{}", driver.screen());
    // a filter counts from 1, as the column does
    driver.keys("/round=1");
    driver.enter();
    assert_eq!(shown(&driver), ["ladder-0"]);
    driver.keys("/round=0");
    driver.enter();
    assert!(shown(&driver).is_empty());
    driver.press(KeyCode::Esc);
    assert_eq!(shown(&driver).len(), 3);
    driver.hides("~");
    // one of the samples stalls
    let mut samples = all[1].samples.to_vec();
    samples[0].decode_ms *= 3.0;
    all[1].samples = samples.into();
    driver.send(Message::Runs(Ok(Arc::new(Snapshot::new(all, Vec::new())))));
    driver.shows("✔~ladder");
    driver.shows("~ samples vary widely");
    // other cells need no round
    let mut others = Driver::empty(60, 16);
    let others_runs = vec![rounds("ladder", &cell, 4.0, 4).remove(0)];
    others.send(Message::Runs(Ok(Arc::new(Snapshot::new(others_runs, Vec::new())))));
    others.keys("3*");
    assert!(!head(&others).contains(" round"), "{}", others.screen());
}

/// Runs of standard and ladder, three rounds each; the first round of standard is three times as fast as the others.
fn noisy_rounds() -> Vec<Record> {
    let cell = |name: &str| spec(name, 2, P2p::On, Backend::Cpu);
    let (standard, ladder) = (cell("standard"), cell("ladder"));
    let lucky = rounds("standard", &standard, 2.0, 3).remove(0);
    let slow = rounds("standard", &standard, 6.0, 3).into_iter().skip(1);
    std::iter::once(lucky).chain(slow).chain(rounds("ladder", &ladder, 4.0, 3)).collect()
}

#[test]
fn each_run_of_a_cell_whose_rounds_vary_widely_is_marked_whatever_is_filtered() {
    for size in [(60, 16), (120, 40)] {
        let mut driver = Driver::empty(size.0, size.1);
        driver.send(Message::Runs(Ok(Arc::new(Snapshot::new(noisy_rounds(), Vec::new())))));
        driver.keys("3*g");
        assert_eq!(driver.screen().matches("✔!standard").count(), 3, "{}", driver.screen());
        driver.shows("✔ ladder");
        driver.shows("differ up to 3.6x");
        // the luckiest round alone does not look steady
        driver.keys("/tpot<3");
        driver.enter();
        assert_eq!(shown(&driver), ["standard-0"]);
        driver.shows("✔!standard");
        driver.keys("/arch:ladder");
        driver.enter();
        driver.hides("differ up to");
    }
}

/// The rows before them had no TPOT, so that the result to sort by was TTFT.
#[test]
fn runs_are_in_order_again_after_a_filter_that_matched_none() {
    let runs = (1..5).map(|at| {
        let (mut all, cell) = (Vec::new(), spec("ladder", at, P2p::On, Backend::Cpu));
        all.extend(rounds(&format!("ladder{at}"), &cell, f64::from(at), 3));
        // in the other order by TTFT
        for record in &mut all {
            record.metrics.iter_mut().for_each(|metrics| metrics.prefill_ms = 100.0 / f64::from(at));
        }
        all
    });
    let runs: Vec<Record> = runs.flatten().collect();
    let mut driver = Driver::empty(120, 40);
    driver.send(Message::Runs(Ok(Arc::new(Snapshot::new(runs, Vec::new())))));
    driver.keys("3*");
    let before = shown(&driver);
    assert!(before[0].starts_with("ladder1"), "{before:?}");
    driver.keys("/qqq");
    driver.enter();
    driver.press(KeyCode::Esc);
    assert_eq!(shown(&driver), before);
}

/// Otherwise the mark of the order looks wrong.
#[test]
fn a_narrow_header_says_that_upper_bound_is_last_beside_the_noise() {
    let bound = rounds("upper-bound", &spec("upper-bound", 2, P2p::On, Backend::Cpu), 1.0, 3);
    let runs = noisy_rounds().into_iter().chain(bound).collect();
    let mut driver = Driver::empty(60, 16);
    driver.send(Message::Runs(Ok(Arc::new(Snapshot::new(runs, Vec::new())))));
    driver.keys("3*");
    driver.shows("upper-bound last; ! rounds differ up to 3.6x");
}

#[test]
fn rounds_are_pooled_to_one_row_per_cell_that_unfolds() {
    let mut driver = Driver::empty(120, 40);
    driver.send(Message::Runs(Ok(Arc::new(Snapshot::new(noisy_rounds(), Vec::new())))));
    driver.keys("3*");
    let line = |driver: &Driver, text: &str| {
        let screen = driver.screen();
        screen.lines().find(|line| line.contains(text)).unwrap_or_else(|| panic!("{screen}")).to_owned()
    };
    driver.shows("2 cells");
    driver.shows("rounds pooled (g: single rounds); lowest TPOT first");
    driver.keys("g");
    driver.shows("one row per run: g pools the rounds of each cell");
    driver.shows("single rounds (g pools them); lowest TPOT first");
    driver.press(KeyCode::Home);
    assert_eq!(selected(&driver).as_deref(), Some("standard-0"), "the luckiest round is first");
    driver.keys("g");
    driver.shows("one row per cell: Enter shows its rounds, g shows single runs");
    // the same numbers as in the comparison of the cells
    let pooled = table::aggregate(&noisy_rounds());
    let tpot = |at: usize| pooled[at].metrics.as_ref().unwrap().tpot_ms.p50;
    let shown_tpot = base::text::digits(tpot(0));
    let standard = line(&driver, "▸!standard");
    assert!(standard.contains(&format!(" {shown_tpot} [")), "{standard}");
    assert!(standard.contains("3, 2.00 to 7.20 ms"), "{standard}");
    let ladder = line(&driver, "▸ ladder");
    assert!(ladder.contains("3, 4.00 to 4.80 ms"), "{ladder}");
    // by the median of the cell, not by its best round
    assert!(tpot(1) < tpot(0));
    assert_eq!(shown(&driver)[..3], ["ladder-0", "ladder-1", "ladder-2"]);
    assert_eq!((driver.state.runs.lines.len(), shown(&driver).len()), (2, 6));
    driver.press(KeyCode::Home);
    driver.shows("Enter rounds");
    driver.enter();
    driver.shows("▾ ladder");
    driver.shows(" ✔ ladder");
    assert_eq!((driver.state.runs.lines.len(), shown(&driver).len()), (5, 6));
    driver.keys("j");
    driver.shows("Enter timeline");
    driver.keys("k");
    driver.enter();
    assert_eq!(driver.state.runs.lines.len(), 2);
    // all rounds of a cell are marked together, and two cells are compared
    driver.keys(" j ");
    driver.shows("6 marked");
    let effects = driver.keys("c");
    perform(&mut driver, effects);
    driver.shows("tokens/s over all rounds of both cells");
    driver.shows("3 rounds pooled");
    driver.shows("all of its cell");
    driver.hides("standard-2");
    driver.press(KeyCode::Esc);
    // rounds stay pooled in an order by an option
    driver.state.runs.sort_by("architecture", table::Unit::Text);
    driver.state.runs.arrange(driver.state.cx.stored.as_deref());
    driver.shows("rounds pooled (g: single rounds)");
    assert_eq!(driver.state.runs.lines.len(), 2);
}

#[test]
fn details_of_a_pooled_row_name_the_pool() {
    let mut driver = Driver::empty(80, 24);
    driver.send(Message::Runs(Ok(Arc::new(Snapshot::new(noisy_rounds(), Vec::new())))));
    driver.keys("3*W");
    driver.shows("╭ 3 runs pooled: ladder tp2");
    driver.hides("╭ ladder-2");
}

#[test]
fn details_of_a_pooled_row_have_the_basis_and_the_digits_of_its_row() {
    let mut driver = Driver::empty(120, 50);
    driver.send(Message::Runs(Ok(Arc::new(Snapshot::new(noisy_rounds(), Vec::new())))));
    driver.keys("3*");
    driver.state.runs.detail = Some(true);
    driver.shows("over 9 samples of 3 rounds");
    driver.shows("decode phase of one sample per round");
    let pooled = table::aggregate(&noisy_rounds());
    let ladder = pooled.iter().find(|record| record.spec.architecture.to_string() == "ladder");
    let tpot = table::measure("tpot").and_then(|tpot| tpot.of(ladder?)).expect("a TPOT");
    let shown_tpot = base::text::digits(tpot);
    let screen = driver.screen();
    let line =
        screen.lines().find(|line| line.contains("│ TPOT ")).unwrap_or_else(|| panic!("{screen}"));
    assert!(line.contains(&format!(" {shown_tpot} ms")), "{line}");
    assert!(screen.contains(&format!(" {shown_tpot} [")), "{screen}");
}

#[test]
fn runs_on_a_cpu_have_no_column_per_gpu() {
    let mut driver = driver((120, 40));
    assert!(head(&driver).contains("tok/s/GPU"), "{}", driver.screen());
    driver.keys("/id=20260102-0304-1|20260102-0304-2");
    driver.enter();
    let titles = head(&driver);
    assert!(!titles.contains("tok/s/GPU") && titles.contains("tok/s"), "{}", driver.screen());
    driver.keys("W");
    driver.hides("tokens/s/GPU");
}

#[test]
fn long_values_side_by_side_show_where_they_differ() {
    let of = |run: &str, architecture: &str, alpha_us: f64| {
        let mut spec = spec(architecture, 2, P2p::On, Backend::Sim);
        spec.link = Link::Emulated { alpha_us, gb_s: 300.0 };
        record(run, spec, 900.0)
    };
    let all = vec![of("20260103-101500-standard-aaaaaa", "standard", 200.0)];
    let all = [all, vec![of("20260103-101507-ladder-bbbbbb", "ladder", 600.0)]].concat();
    for size in [(60, 16), (80, 24)] {
        let mut driver = Driver::empty(size.0, size.1);
        driver.send(Message::Runs(Ok(Arc::new(Snapshot::new(all.clone(), Vec::new())))));
        driver.keys("3*");
        let effects = driver.keys("ac");
        perform(&mut driver, effects);
        let screen = driver.screen();
        assert!(screen.contains("aaaaa") && screen.contains("bbbbb"), "{screen}");
    }
}

#[test]
fn a_filter_of_pooled_rows_tests_their_pooled_results() {
    let mut driver = Driver::empty(120, 40);
    driver.send(Message::Runs(Ok(Arc::new(Snapshot::new(noisy_rounds(), Vec::new())))));
    // the first round of standard takes 2 ms, the cell 6.6 ms
    driver.keys("3*/tpot<3");
    driver.enter();
    assert!(shown(&driver).is_empty(), "{}", driver.screen());
    driver.shows("no cell's pooled result matches the filter; g tests single rounds");
    driver.keys("g");
    assert_eq!(shown(&driver), ["standard-0"]);
    driver.shows("single rounds (g pools them)");
    driver.keys("g");
    driver.keys("/tpot<7");
    driver.enter();
    assert_eq!(shown(&driver).len(), 6);
    driver.shows("3, 2.00 to 7.20 ms");
}

#[test]
fn runs_repeated_since_are_marked_and_come_after_the_others() {
    let cell = spec("ladder", 2, P2p::On, Backend::Cpu);
    let mut all = rounds("old", &cell, 2.0, 4);
    all.extend(rounds("new", &cell, 4.0, 4));
    all.iter_mut().for_each(|record| record.experiment = Some("quickstart".into()));
    let mut driver = Driver::empty(120, 40);
    driver.send(Message::Runs(Ok(Arc::new(Snapshot::new(all, Vec::new())))));
    driver.keys("3g");
    assert_eq!(shown(&driver)[..3], ["new-0", "new-1", "new-2"], "the older ones took half as long");
    assert_eq!(driver.screen().matches("✔«ladder").count(), 3, "{}", driver.screen());
    driver.shows("« 3 repeated since");
}

#[test]
fn pooled_rounds_fit_the_smallest_window() {
    let mut driver = Driver::empty(60, 16);
    driver.send(Message::Runs(Ok(Arc::new(Snapshot::new(noisy_rounds(), Vec::new())))));
    driver.keys("3*");
    driver.shows("3, 2.00 to 7.20 ms");
    driver.shows("▸!standard");
    driver.shows("pooled (g: single)");
}

#[test]
fn an_empty_filter_shows_an_example_until_something_is_typed() {
    for size in [(80, 24), (120, 40)] {
        let mut driver = driver(size);
        driver.hides("ladder tp=8 tpot<20");
        driver.keys("/");
        driver.shows("ladder tp=8 tpot<20");
        driver.keys("p");
        driver.hides("tp=8 tpot<20");
    }
}

#[test]
fn the_help_begins_with_the_keys_and_ends_with_the_details_of_the_run() {
    let mut driver = driver((80, 24));
    driver.keys("d?");
    driver.shows("On this screen: runs");
    driver.hides("round: 1");
    driver.press(KeyCode::End);
    driver.shows("round: 1");
}

#[test]
fn the_selection_stays_on_its_run_after_a_deletion_and_a_reload() {
    let mut driver = newest_first((80, 24));
    let before = shown(&driver);
    let selected = |driver: &Driver| {
        driver.state.runs.selected(driver.state.cx.stored.as_ref()).unwrap().run.clone()
    };
    driver.keys("jjjj");
    let effects = driver.keys("D");
    let held = before[5].clone();
    assert_eq!(selected(&driver), held, "what followed the deleted run");
    perform(&mut driver, effects);
    assert_eq!(selected(&driver), held);
    // somebody else's run is stored meanwhile, before all others in this order
    let stored = driver.state.cx.stored.clone().unwrap();
    let mut records = stored.records.to_vec();
    let newer = Record { run: "20270101-000000-newer".into(), ..records[0].clone() };
    records.push(newer);
    let reloaded = Snapshot::annotated(records, Vec::new(), stored.annotations.clone());
    driver.send(Message::Runs(Ok(Arc::new(reloaded))));
    assert_eq!(selected(&driver), held);
    assert_eq!(shown(&driver)[0], "20270101-000000-newer");
    // of a run that somebody else has deleted the place is kept
    let place = driver.state.runs.list.selected;
    perform(&mut driver, vec![Effect::Store(StoreTask::Delete(vec![held]))]);
    assert_eq!(driver.state.runs.list.selected, place);
    assert_eq!(selected(&driver), before[6]);
}

#[test]
fn two_runs_side_by_side_say_what_differs_and_open_together() {
    let mut driver = driver((120, 40));
    driver.keys("c");
    driver.shows("this takes two runs");
    driver.keys("/20260102-0304-1|");
    driver.press(KeyCode::Esc);
    driver.keys("/id=20260102-0304-1|20260102-0304-2");
    driver.enter();
    driver.keys("a");
    let effects = driver.keys("c");
    perform(&mut driver, effects);
    let told = driver.screen();
    for wanted in ["architecture       ", "are equal", "x 0.800", "x 1.25", "emulated-link"] {
        assert!(told.contains(wanted), "{wanted}:\n{told}");
    }
    driver.keys("?");
    driver.shows("On this screen: runs");
    driver.press(KeyCode::Esc);
    driver.shows("are equal");
    driver.enter();
    let opening = driver.state.timeline.loading.as_deref();
    assert_eq!(opening, Some("20260102-0304-1 and 20260102-0304-2"));
}

#[test]
fn marks_that_the_filter_hides_are_counted() {
    let mut driver = driver((120, 40));
    driver.keys(" j j");
    driver.shows("2 marked");
    driver.keys("/id=20260102-0304-1");
    driver.enter();
    driver.shows("2 marked (2 not shown: A unmarks all)");
    driver.send(Message::Resize(60, 16));
    driver.shows("2 hidden marks");
    driver.send(Message::Resize(120, 40));
    driver.keys(" c");
    driver.shows("3 are marked (2 not shown)");
}

#[test]
fn only_marked_runs_and_marks_of_runs_that_are_gone() {
    let mut driver = driver((80, 24));
    driver.keys("v");
    driver.shows("no run is marked");
    driver.keys(" j jv");
    assert_eq!(shown(&driver).len(), 2);
    driver.shows("2 of 30 runs, 2 marked (only these)");
    driver.send(Message::Runs(Ok(Arc::new(Snapshot::new(records(), Vec::new())))));
    assert_eq!((shown(&driver).len(), driver.state.runs.marked.len()), (6, 0));
}

#[test]
fn columns_are_chosen_ordered_and_never_lose_the_provenance() {
    let mut driver = driver((80, 24));
    driver.keys("C");
    driver.keys("  ");
    assert_eq!(driver.state.runs.columns[..2], ["architecture", "provenance"], "these stay");
    driver.keys("jjJ");
    assert_eq!(driver.state.runs.columns[2..4], ["ep", "tp"]);
    driver.keys(" ");
    assert!(!driver.state.runs.columns.contains(&"tp".into()));
    driver.press(KeyCode::End);
    driver.keys(" ");
    assert_eq!(driver.state.runs.columns.last().map(String::as_str), Some("env.NCCL_ALGO"));
    driver.press(KeyCode::Esc);
    for _ in 0..40 {
        driver.press(KeyCode::Right);
    }
    let told = driver.screen();
    assert!(told.contains("NCCL_ALGO") && told.contains("Tree"), "{told}");
    assert!(told.contains("simulated"), "what the numbers are is never scrolled out:\n{told}");
    driver.press(KeyCode::Left);
    driver.keys("Cd");
    driver.press(KeyCode::Esc);
    assert_eq!(driver.state.runs.columns, run_list::SCREEN_COLUMNS.map(|column| column.name));
}

#[test]
fn a_column_keeps_its_place_while_the_chooser_is_open() {
    let mut driver = driver((120, 40));
    driver.keys("C");
    let names = |driver: &Driver| -> Vec<String> {
        let screen = driver.screen();
        let rows = screen.lines().filter_map(|line| line.split_once('│')?.1.split_once(']'));
        rows.map(|(_, row)| row.split_whitespace().next().unwrap_or_default().to_owned()).collect()
    };
    let before = names(&driver);
    let default = driver.state.runs.columns.clone();
    driver.press(KeyCode::Home);
    driver.keys("jj ");
    assert_eq!(names(&driver), before);
    assert!(!driver.state.runs.columns.contains(&"tp".into()));
    // the same key again is on the same column
    driver.keys(" ");
    assert_eq!((names(&driver), &driver.state.runs.columns), (before, &default));
}

#[test]
fn expert_and_data_parallelism_are_columns_where_runs_differ_in_them() {
    let mut driver = driver((80, 24));
    assert!(!head(&driver).contains(" ep "), "all runs have EP 1:\n{}", head(&driver));
    let (mut records, _) = many();
    let mut whole = spec("standard", 8, P2p::On, Backend::Sim);
    whole.ep = 8;
    records.push(record("20260103-101500-sim-4f2a91:99", whole, 900.0));
    driver.send(Message::Runs(Ok(Arc::new(Snapshot::new(records, Vec::new())))));
    assert!(head(&driver).contains(" tp   ep "), "{}", driver.screen());
    assert!(!head(&driver).contains(" dp "), "{}", driver.screen());
    driver.keys("/ep:8");
    driver.enter();
    assert!(!head(&driver).contains(" ep "), "one run is shown:\n{}", driver.screen());
}

#[test]
fn a_filter_without_a_match_says_why_and_how_to_clear_it() {
    for (size, keys) in [((60, 16), "d"), ((80, 24), "d"), ((160, 40), "")] {
        let mut driver = driver(size);
        driver.keys(keys);
        driver.keys("/tp:7");
        driver.enter();
        driver.shows("'tp:7' matches none of");
        driver.shows("values of tp: 1, 2, 4");
        driver.shows("Esc clears the filter, / changes it");
        driver.hides("provenance");
        driver.hides("details");
        driver.press(KeyCode::Esc);
        driver.hides("matches none");
    }
}

#[test]
fn a_column_is_found_by_typing_its_name() {
    let mut driver = driver((80, 24));
    // one name for the share of hidden communication, found by its other name, too
    driver.keys("C/overlap");
    driver.press(KeyCode::Down);
    driver.shows("overlap_pct             hidden ");
    driver.hides("hidden  (overlap)");
    driver.press(KeyCode::Esc);
    driver.keys("Ooverlap");
    driver.shows("hidden");
    driver.enter();
    assert_eq!(driver.state.runs.sort, [("overlap_pct".to_owned(), true)]);
    driver.keys("C/memory");
    driver.shows("search: memory");
    // what is typed is no key of the dialog; ↓ keeps what was found
    driver.press(KeyCode::Down);
    driver.keys(" ");
    assert!(driver.state.runs.columns.contains(&"memory_bytes_per_rank".into()));
    driver.keys("/tpot");
    driver.enter();
    driver.shows("Space on or off");
    driver.press(KeyCode::Esc);
    driver.hides("Space on or off");
}

#[test]
fn tab_without_an_offer_leaves_the_line_as_it_is() {
    let mut driver = driver((80, 24));
    driver.keys("/exposed>");
    driver.press(KeyCode::Tab);
    driver.press(KeyCode::Tab);
    assert!(driver.state.runs.filter.typing, "{}", driver.screen());
    driver.keys("5");
    assert_eq!(driver.state.runs.filter.value(), "exposed>5");
}

#[test]
fn a_filter_by_a_title_means_what_the_column_shows() {
    let mut driver = driver((120, 40));
    driver.keys("/exposed>7");
    driver.enter();
    let of_share = shown(&driver);
    assert!(!of_share.is_empty(), "7.5 % of the phase, 2.5 ms: {}", driver.screen());
    for filter in ["exposed>7%", "exposed>2ms", "exposed_ms>2"] {
        driver.keys(&format!("/{filter}"));
        driver.enter();
        assert_eq!(shown(&driver), of_share, "{filter}");
    }
    driver.keys("/exposed>7ms");
    driver.enter();
    assert!(shown(&driver).is_empty());
}

#[test]
fn what_is_shown_is_exported_and_had_as_a_command() {
    let mut driver = driver((80, 24));
    driver.keys("/arch:ladder p2p:off");
    driver.enter();
    driver.state.runs.sort_by("tpot_p50_ms", table::Unit::Ms);
    driver.keys("rr");
    let screen = driver.state.screen(driver.state.cx.tab);
    let command = screen.command().expect("a command").words.join(" ");
    assert!(
        command.starts_with(
            "runs --filter arch:ladder p2p:off --sort tpot_p50_ms --columns architecture,prov"
        ),
        "{command}"
    );
    let export = screen.export(FileKind::Csv, &driver.state.cx).unwrap().expect("a table");
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("runs.csv");
    export.write(&path).unwrap();
    let csv = std::fs::read_to_string(&path).unwrap();
    assert_eq!(csv.lines().count(), 1 + driver.state.runs.count);
    assert!(csv.starts_with("architecture,provenance,tp,"), "{csv}");
    let first = csv.lines().nth(1).unwrap();
    assert!(
        first.starts_with("ladder,simulated,8,") && first.contains(",20260103-101500-sim-4f2a91:17,"),
        "{csv}"
    );
}

#[test]
fn order_and_columns_outlive_the_workbench() {
    let mut before = driver((80, 24));
    before.keys("ss j ");
    before.state.runs.columns.retain(|name| name != "model");
    let kept = before.state.screen(before.state.cx.tab).remember().expect("something to keep");
    let mut after = driver((80, 24));
    after.state.runs.recall(&kept, &mut after.state.cx);
    assert_eq!(shown(&after), shown(&before));
    assert_eq!(after.state.runs.columns, before.state.runs.columns);
    let marked = |driver: &Driver| driver.state.runs.marked.as_slice().to_vec();
    assert_eq!((marked(&after), marked(&after).len()), (marked(&before), 2));
    let odd = serde_json::json!({"sort": [["no-such-column", true]], "columns": ["gone"], "filter": 7});
    after.state.runs.recall(&odd, &mut after.state.cx);
    after.shows("source");
}

#[test]
fn the_details_of_a_batchs_row_read_its_environment_once() {
    let mut runs = many().0;
    runs.iter_mut().for_each(|run| run.environment.clear());
    let mut driver = Driver::empty(120, 50);
    driver.send(Message::Runs(Ok(Arc::new(Snapshot::new(runs, Vec::new())))));
    let effects = driver.keys("3d");
    let [Effect::Ask(task)] = &effects[..] else { panic!("{effects:?}") };
    assert_eq!(task.slot.name, "whole");
    let run = &driver.state.runs.selected(driver.state.cx.stored.as_ref()).unwrap().run.clone();
    let whole = Record {
        environment: [("driver".to_owned(), "550.54".into())].into(),
        ..driver.state.cx.stored.as_ref().unwrap().find(run).unwrap().clone()
    };
    driver.state.runs.whole = Some(Box::new(whole));
    driver.shows("550.54");
    assert!(driver.keys("dd").is_empty(), "it is known");
}

#[test]
fn the_smallest_window_shows_each_run_with_its_result_and_columns_that_say_nothing_yield() {
    let mut driver = driver((80, 24));
    assert!(head(&driver).contains("TPOT ms"), "{}", driver.screen());
    let uniform = ["ep", "dp"].map(String::from);
    assert_eq!(driver.state.runs.empty, uniform.into(), "all other columns tell something");
    // runs without tags and notes have no columns of them
    driver.keys("/arch:parallel");
    driver.enter();
    assert!(driver.state.runs.empty.contains("tags"), "{:?}", driver.state.runs.empty);
    driver.send(Message::Resize(200, 60));
    let wide = head(&driver);
    assert!(!wide.contains("tags") && wide.contains("setting"), "{wide}");
    driver.keys("/llama");
    driver.enter();
    driver.shows("24 of 30 runs, llama-3-70b [simulated]");
    assert!(!head(&driver).contains("model"), "the line above names it: {}", driver.screen());
}

#[test]
fn sorting_by_a_number_hides_no_column() {
    for size in [(60, 16), (80, 24), (120, 40)] {
        let mut driver = driver(size);
        let titles = |driver: &Driver| -> Vec<String> {
            let head = head(driver).replace(['↑', '↓'], " ");
            // without the number of rows out of view
            let titles = head.split_whitespace().filter(|title| title.parse::<usize>().is_err());
            titles.map(str::to_owned).collect()
        };
        let before = titles(&driver);
        for (name, title) in [("tpot_p50_ms", "TPOT ms↓"), ("batch", "batch↓"), ("tp", "tp↓")] {
            driver.state.runs.sort = vec![(name.to_owned(), true)];
            // the mark may take the place of a title's last letter
            let now = titles(&driver);
            let is_same = before.iter().zip(&now).all(|(title, now)| title.starts_with(now.as_str()));
            assert!(is_same && now.len() == before.len(), "{size:?} {name}: {now:?}");
            let (head, letters) = (head(&driver), title.trim_end_matches('↓'));
            let in_blank = letters.replace(' ', "↓");
            let marks = [format!("{title} "), format!(" ↓{letters}"), title_cut(letters), in_blank];
            let has_mark =
                |mark: &String| mark.contains('↓') && format!("{head} ").contains(mark.as_str());
            assert!(marks.iter().any(has_mark), "{head}");
        }
    }
}

/// Title whose last letter gives way to the mark.
fn title_cut(title: &str) -> String {
    format!("{}↓ ", &title[..title.len() - 1])
}

#[test]
fn the_mark_of_the_order_touches_no_other_title() {
    let mut driver = driver((60, 16));
    driver.keys("/arch:standard");
    driver.enter();
    let mut heads = HashSet::new();
    for name in ["exposed_pct", "overlap_pct", "tokens_per_s", "tpot_p50_ms", "batch", "tp"] {
        driver.state.runs.sort = vec![(name.to_owned(), true)];
        let head = format!(" {} ", head(&driver).trim_end());
        // the blank of a title may hold the mark
        let letters: Vec<char> = head.replace("TPOT↓ms", "TPOT ms").chars().collect();
        let is_apart = |three: &[char]| three[1] != '↓' || three[0] == ' ' || three[2] == ' ';
        assert!(letters.windows(3).all(is_apart), "{name}: {head}");
        // a column that is not shown is named in the second line
        let is_named = driver
            .screen()
            .lines()
            .nth(2)
            .is_some_and(|line| ["by ", " first"].iter().any(|word| line.contains(word)));
        assert!(heads.insert(head.clone()) || is_named, "{name}: {}", driver.screen());
    }
}

#[test]
fn the_columns_of_the_order_are_shown_unasked() {
    for size in [(60, 16), (80, 24), (120, 40)] {
        let mut driver = driver(size);
        driver.keys("/arch:standard");
        driver.enter();
        driver.keys("O");
        driver.keys("completion");
        driver.enter();
        let titles = head(&driver);
        assert!(titles.contains("compl.") && titles.contains('↑'), "{}", driver.screen());
        driver.keys("&");
        driver.keys("seed");
        driver.enter();
        assert!(head(&driver).contains("seed"), "{}", driver.screen());
        // they leave with the order
        driver.keys("Odefault");
        driver.enter();
        assert!(!head(&driver).contains("compl."), "{}", driver.screen());
    }
}

#[test]
fn a_swept_link_has_its_column_whole_in_the_smallest_window() {
    let alphas = [1.0, 5.0, 50.0];
    let record_of = |at: usize| {
        let mut spec = spec(["ladder", "parallel"][at % 2], 8, P2p::On, Backend::Sim);
        spec.link = Link::Emulated { alpha_us: alphas[at / 2], gb_s: 300.0 };
        spec.micro_batches = 1 + at as u32 % 2;
        record(&format!("20260103-101500-sim-4f2a91:{at}"), spec, 900.0)
    };
    let mut driver = Driver::empty(60, 16);
    let snapshot = Snapshot::new((0..6).map(record_of).collect(), Vec::new());
    driver.send(Message::Runs(Ok(Arc::new(snapshot))));
    driver.keys("3");
    assert!(head(&driver).contains("setting"), "{}", driver.screen());
    for alpha in alphas {
        let table = driver.screen().lines().skip(4).take(6).collect::<Vec<_>>().join("\n");
        assert!(table.contains(&format!(" {alpha}us+300GB/s micro")), "{table}");
    }
    driver.hides("differ also");
}

#[test]
fn upper_bound_comes_last_in_every_order_by_a_result() {
    let mut driver = driver((120, 40));
    driver.keys("/llama");
    driver.enter();
    for name in ["tokens_per_s_per_gpu", "tpot_p50_ms", "exposed_pct", "round"] {
        driver.state.runs.sort.clear();
        driver.state.runs.sort_by(name, table::Unit::Rate);
        driver.state.runs.arrange(driver.state.cx.stored.as_deref());
        let stored = driver.state.cx.stored.clone().expect("runs were sent");
        let is_bound = |run: &String| {
            stored.find(run).is_some_and(|run| run.spec.architecture == plan::Architecture::UpperBound)
        };
        let bound: Vec<bool> = shown(&driver).iter().map(is_bound).collect();
        assert!(bound.is_sorted() && bound.contains(&true), "{name}: {bound:?}");
        driver.shows(", upper-bound last");
    }
}

#[test]
fn the_provenance_is_not_cut_by_marks() {
    let mut driver = driver((60, 16));
    driver.keys("/llama");
    driver.enter();
    driver.keys(" j j");
    driver.keys("/llama -parallel");
    driver.enter();
    for _ in 0..3 {
        driver.shows("[simulated] ");
        driver.press(KeyCode::Right);
    }
}

#[test]
fn columns_that_tell_runs_apart_stay_while_others_scroll() {
    for size in [(60, 16), (80, 24)] {
        let mut driver = driver(size);
        driver.keys("/llama");
        driver.enter();
        for _ in 0..12 {
            driver.press(KeyCode::Right);
            let head = head(&driver);
            assert!(head.contains(" tp batch ") || head.contains(" tp p2p "), "{size:?}: {head}");
        }
        for _ in 0..12 {
            driver.press(KeyCode::Left);
        }
        assert!(head(&driver).contains("tok/s/GPU exposed"), "{}", driver.screen());
    }
}

#[test]
fn a_filter_keeps_its_words_beside_hidden_columns() {
    let mut driver = driver((80, 24));
    driver.keys("/ladder");
    driver.enter();
    driver.shows("filter: ladder");
}

#[test]
fn a_narrow_window_has_what_its_columns_leave_out_of_the_selected_run() {
    let mut driver = driver((60, 16));
    driver.keys("/tag:good 20260102");
    driver.enter();
    driver.shows("setting cpu 100us+20GB/s host");
    driver.shows("run 20260102");
    driver.keys("d");
    driver.hides("setting cpu emulated");
    driver.shows("╭ 20260102-0304-2 ─");
}

#[test]
fn columns_scroll_back_at_once_from_the_last_one() {
    let mut driver = driver((60, 16));
    driver.keys("llllllllllllllllllll");
    driver.shows("these are the last columns");
    let last = head(&driver);
    driver.keys("h");
    assert_ne!(head(&driver), last);
}

#[test]
fn details_stand_unasked_only_beside_a_whole_table_and_escape_closes_them() {
    let details = |driver: &Driver| driver.screen().contains("╭ ");
    let mut driver = driver((200, 60));
    assert!(!details(&driver), "they would take columns away: {}", driver.screen());
    let roomy = driver.state.runs.needed + 60;
    driver.send(Message::Resize(roomy - 1, 60));
    assert!(!details(&driver), "{}", driver.screen());
    driver.send(Message::Resize(roomy, 60));
    let screen = driver.screen();
    assert!(details(&driver) && screen.contains("after the driver's update"), "{screen}");
    assert!(!screen.contains("more column"), "{screen}");
    driver.press(KeyCode::Esc);
    assert!(!details(&driver), "{}", driver.screen());
}

#[test]
fn what_runs_now_is_told_apart_from_what_failed() {
    let mut all = records();
    all[1].status = Status::Running;
    (all[1].metrics, all[1].overlap) = (None, None);
    let mut driver = Driver::empty(80, 24);
    driver.send(Message::Runs(Ok(Arc::new(Snapshot::new(all, Vec::new())))));
    driver.keys("3");
    driver.shows("6 of 6 runs, tiny, 1 ▶ running");
    driver.state.runs.sort_by("provenance", table::Unit::Text);
    driver.keys("g");
    let screen = driver.screen();
    assert!(screen.contains("4 runs, 1 running, 1 not ok"), "{screen}");
}

#[test]
fn a_dialog_has_its_own_keys_in_the_footer() {
    let footer = |driver: &Driver| driver.screen().lines().last().unwrap_or_default().to_owned();
    let mut driver = driver((80, 24));
    assert!(footer(&driver).contains("Space mark"), "{}", footer(&driver));
    for (keys, told) in [("C", "Space on or off"), ("/", "Enter keep"), ("t", "Enter accept")] {
        driver.keys(keys);
        let footer = footer(&driver);
        assert!(footer.contains(told) && !footer.contains("Space mark"), "{keys}: {footer}");
        assert!(!footer.contains("q quit"), "it does not quit here: {footer}");
        driver.press(KeyCode::Esc);
    }
}

#[test]
fn runs_are_sorted_by_a_column_that_is_named_or_stands_next_and_never_by_one_that_is_empty() {
    let mut driver = driver((120, 40));
    driver.keys("O");
    driver.keys("completion");
    driver.enter();
    let first = |driver: &Driver| driver.state.runs.sort.first().map(|(name, _)| name.clone()).unwrap();
    assert_eq!(first(&driver), "completion_ms", "a column that is not shown");
    driver.keys("O");
    driver.keys("tokkns");
    driver.shows("nothing matches");
    driver.press(KeyCode::Esc);
    let runs = &driver.state.runs;
    let stops = runs.columns.iter().filter(|name| !runs.empty.contains(*name)).count();
    let mut met = HashSet::new();
    for _ in 0..stops {
        driver.keys("s");
        assert!(!driver.state.runs.empty.contains(&first(&driver)), "{}", first(&driver));
        met.insert(first(&driver));
    }
    assert_eq!(met.len(), stops, "each of them once");
}

#[test]
fn columns_that_are_blank_in_all_rows_are_skipped_when_sorting() {
    let mut driver = Driver::empty(120, 40);
    driver.send(Message::Runs(Ok(Arc::new(Snapshot::new(noisy_rounds(), Vec::new())))));
    driver.keys("3*");
    let first = |driver: &Driver| driver.state.runs.sort.first().map(|(name, _)| name.clone());
    for key in ["s", "S"] {
        for _ in 0..12 {
            driver.keys(key);
            assert_ne!(first(&driver).as_deref(), Some("run"), "{}", driver.screen());
        }
    }
}

#[test]
fn rows_out_of_view_are_counted_whether_the_titles_leave_room_or_not() {
    for size in [(60, 16), (80, 24), (120, 20)] {
        let mut driver = driver(size);
        let is_counted = |driver: &Driver| {
            let screen = driver.screen();
            screen.lines().skip(2).take(2).any(|line| {
                line.rsplit_once('↓').is_some_and(|(_, rest)| rest.trim().parse::<usize>().is_ok())
            })
        };
        assert!(is_counted(&driver), "{size:?}: {}", driver.screen());
        let lines: Vec<String> = driver.screen().lines().skip(2).take(2).map(str::to_owned).collect();
        assert_eq!(lines.concat().matches('↓').count(), 1, "once: {lines:?}");
        driver.keys("/llama");
        driver.enter();
        assert!(is_counted(&driver), "{size:?}: {}", driver.screen());
        driver.keys("/arch:parallel");
        driver.enter();
        assert!(!is_counted(&driver), "{size:?}: {}", driver.screen());
    }
}

#[test]
fn g_twice_goes_to_the_first_row_and_leaves_the_grouping() {
    let mut driver = driver((120, 40));
    driver.keys("g");
    driver.shows("; gg: first row");
    driver.keys("g");
    driver.hides("; gg: first row");
    let first = selected(&driver);
    driver.keys("k");
    assert_eq!(selected(&driver), first, "nothing is above it");
    driver.keys("G");
    assert_ne!(selected(&driver), first);
    driver.keys("gg");
    assert_eq!((selected(&driver), driver.state.runs.grouping), (first, Grouping::Cells));
    // a screen without a `g` of its own says what a second one does
    driver.keys("1g");
    driver.shows("g again: first row");
}

/// Terminals send Escape and a key that follows at once as one key with Alt.
#[test]
fn escape_and_u_at_once_bring_the_dropped_filter_back() {
    let mut driver = Driver::full(120, 30);
    driver.keys("3/ladder");
    driver.enter();
    driver.keys("gg");
    driver.chord(KeyCode::Char('u'), KeyModifiers::ALT);
    driver.shows("undone: filter");
    let runs = &driver.state.runs;
    assert_eq!((runs.filter.value(), runs.grouping), ("ladder", Grouping::Cells));
}

#[test]
fn what_came_last_is_undone_first_a_filter_or_a_tag() {
    let mut driver = Driver::full(120, 30);
    driver.keys("3/ladder");
    driver.enter();
    driver.keys("t");
    driver.keys("fast");
    driver.enter();
    driver.keys("s");
    let sorted = driver.state.runs.sort.clone();
    driver.keys("u");
    driver.shows("undone: order");
    assert_ne!(driver.state.runs.sort, sorted);
    driver.keys("u");
    driver.shows("restored tags and notes");
    assert_eq!(driver.state.runs.filter.value(), "ladder");
    driver.keys("u");
    driver.shows("undone: filter");
    assert_eq!(driver.state.runs.filter.value(), "");
}
