//! Tags, notes and the trash survive what happens to files and processes.

use std::fs;

use proptest::prelude::*;

use table::{Backend, Record, Spec, Status};

use super::tests::{ok, reopened, run, spec, store};

use super::*;
use base::error::Error;

fn ids(records: &[Record]) -> Vec<String> {
    records.iter().map(|record| record.run.clone()).collect()
}

fn listed(store: &Store) -> Vec<String> {
    ids(&reopened(store).list().unwrap().records)
}

/// A batch of this many simulated runs.
fn batch(store: &Store, rows: u32) -> Vec<String> {
    let simulated = Spec { backend: Backend::Sim, ..spec("ladder") };
    let mut records: Vec<Record> =
        (0..rows).map(|i| ok(Spec { batch: i + 1, ..simulated.clone() }, 1.0)).collect();
    store.write_batch(&mut records).unwrap();
    ids(&records)
}

#[test]
fn tags_and_notes_stay_with_runs_and_rows_and_no_record_is_touched() {
    let (_dir, store) = store();
    let first = run(&store, "ladder", 1.0);
    let rows = batch(&store, 3);
    let path = store.dir().join(&first.run).join("record.json");
    let before = fs::read(&path).unwrap();
    store
        .annotate(&[first.run.clone(), rows[1].clone()], &AnnotationEdit::tags("good paper").unwrap())
        .unwrap();
    store.annotate(&rows, &AnnotationEdit::note("after the driver's update\nsecond line")).unwrap();
    store.annotate(&rows[1..2], &AnnotationEdit::tags("-good").unwrap()).unwrap();
    let annotations = reopened(&store).annotations();
    let tags = |run: &str| -> Vec<String> {
        annotations.of(run).map(|a| a.tags.iter().cloned().collect()).unwrap_or_default()
    };
    assert_eq!(tags(&first.run), ["good", "paper"]);
    assert_eq!(tags(&rows[1]), ["paper"]);
    assert_eq!(annotations.of(&rows[2]).unwrap().note, "after the driver's update\nsecond line");
    assert_eq!(annotations.tags().into_iter().collect::<Vec<_>>(), [("good", 1), ("paper", 2)]);
    assert_eq!(fs::read(&path).unwrap(), before);
    // an experiment that found a run is known of it, once
    store.found_by(&rows[1..2], "delayed").unwrap();
    let before = fs::read(&path).unwrap();
    store.found_by(&rows[1..2], "delayed").unwrap();
    assert_eq!(fs::read(&path).unwrap(), before, "it was known");
    let known = reopened(&store).annotations().of(&rows[1]).unwrap().experiments.clone();
    assert_eq!(known.into_iter().collect::<Vec<_>>(), ["delayed"]);
    store.annotate(&rows, &AnnotationEdit::note("")).unwrap();
    store.annotate(&rows[1..2], &AnnotationEdit::tags("-paper").unwrap()).unwrap();
    assert_eq!(store.annotations().of(&rows[2]), None, "nothing is left of it");
    assert!(
        store
            .annotate(&rows, &AnnotationEdit { tag: vec!["a b".into()], ..AnnotationEdit::default() })
            .is_err()
    );
}

#[test]
fn long_notes_are_refused_and_cut_in_files_of_others() {
    let (_dir, store) = store();
    let run = run(&store, "ladder", 1.0).run;
    let long = "x".repeat(10_001);
    let error = store.annotate(std::slice::from_ref(&run), &AnnotationEdit::note(&long)).unwrap_err();
    assert!(error.to_string().contains("10001 characters"), "{error}");
    let line = format!("{{\"version\":1,\"runs\":[\"{run}\"],\"note\":\"{long}\"}}\n");
    fs::write(store.dir().join("annotations.jsonl"), line).unwrap();
    assert_eq!(store.annotations().of(&run).unwrap().note.len(), 10_000);
}

#[test]
fn a_torn_or_damaged_annotation_file_costs_that_edit_alone_and_says_so() {
    let (_dir, store) = store();
    let run = run(&store, "ladder", 1.0).run;
    let runs = [run.clone()];
    store.annotate(&runs, &AnnotationEdit::tags("one").unwrap()).unwrap();
    store.annotate(&runs, &AnnotationEdit::tags("two").unwrap()).unwrap();
    let path = store.dir().join("annotations.jsonl");
    let whole = fs::read(&path).unwrap();
    let first = whole.iter().position(|byte| *byte == b'\n').unwrap() + 1;
    for cut in first..whole.len() {
        // as kill -9 in the middle of writing the second edit does
        fs::write(&path, &whole[..cut]).unwrap();
        let fresh = reopened(&store);
        let annotations = fresh.annotations();
        assert_eq!(
            annotations.damaged,
            Vec::<String>::new(),
            "an edit that was never done is no damage"
        );
        assert_eq!(annotations.of(&run).unwrap().tags.len(), 1, "cut at byte {cut}");
        fresh.annotate(&runs, &AnnotationEdit::tags("three").unwrap()).unwrap();
        let annotations = reopened(&store).annotations();
        assert_eq!(annotations.damaged, Vec::<String>::new());
        let tags: Vec<_> = annotations.of(&run).unwrap().tags.iter().cloned().collect();
        assert_eq!(tags, ["one", "three"], "cut at byte {cut}");
    }
    let mut damaged = whole.clone();
    damaged[3] = b'#';
    fs::write(&path, &damaged).unwrap();
    let fresh = reopened(&store);
    let listing = fresh.list().unwrap();
    assert_eq!(listing.records.len(), 1, "work goes on");
    assert_eq!(listing.damaged.len(), 1);
    assert!(listing.damaged[0].contains("annotations.jsonl:1:"), "{:?}", listing.damaged);
    assert!(fresh.annotations().of(&run).unwrap().tags.contains("two"));
    fs::write(&path, [&whole[..], b"{\"version\":9,\"runs\":[],\"of_tomorrow\":1}\n"].concat()).unwrap();
    assert!(reopened(&store).annotations().damaged.is_empty(), "a newer version's line is not ours");
}

#[test]
fn processes_that_tag_at_the_same_time_lose_nothing() {
    let (_dir, store) = store();
    let run = run(&store, "ladder", 1.0).run;
    std::thread::scope(|scope| {
        for writer in 0..4 {
            let (store, run) = (reopened(&store), &run);
            scope.spawn(move || {
                for i in 0..8 {
                    let edit = AnnotationEdit::tags(&format!("w{writer}-{i}")).unwrap();
                    store.annotate(std::slice::from_ref(run), &edit).unwrap();
                }
            });
        }
    });
    assert_eq!(store.annotations().of(&run).unwrap().tags.len(), 32);
}

#[test]
fn deleted_runs_are_in_no_list_and_come_back_whole() {
    let (_dir, store) = store();
    let records = [run(&store, "ladder", 1.0), run(&store, "standard", 2.0)];
    let rows = batch(&store, 4);
    let all = listed(&store);
    let gone = [records[0].run.clone(), rows[1].clone(), rows[2].clone()];
    store.annotate(&gone, &AnnotationEdit::tags("doubtful").unwrap()).unwrap();
    let parquet = |store: &Store| {
        let files: Vec<_> = fs::read_dir(store.dir().join("batches")).unwrap().flatten().collect();
        fs::read(files[0].path()).unwrap()
    };
    let bytes = parquet(&store);
    store.delete(&gone).unwrap();
    assert!(parquet(&store) == bytes, "a batch is never rewritten");
    for store in [store.clone(), reopened(&store)] {
        assert_eq!(
            ids(&store.list().unwrap().records),
            [records[1].run.clone(), rows[0].clone(), rows[3].clone()]
        );
        assert_eq!(store.finished().unwrap().len(), 3, "a sweep runs deleted cells again");
        assert_eq!(store.list_runs().unwrap().records.len(), 1);
        assert_eq!(store.batches().unwrap().0[0].runs, 2);
        for run in &gone {
            let error = store.get(run).unwrap_err();
            let Error::Input { message, help: Some(help) } = error else { panic!("not an input error") };
            assert!(message.contains("is deleted"), "{message}");
            assert!(help.contains(&format!("restore {run}")), "{help}");
        }
        let trash = store.trash().unwrap();
        let batch = rows[0].split_once(':').unwrap().0.to_owned();
        assert_eq!((trash.runs, trash.rows), (vec![gone[0].clone()], vec![(batch, 2)]));
    }
    // another process takes it back
    let mut restored = reopened(&store).restore_last().unwrap();
    restored.sort_unstable();
    let mut wanted = gone.to_vec();
    wanted.sort_unstable();
    assert_eq!(restored, wanted);
    assert_eq!(listed(&store), all);
    assert_eq!(store.get(&records[0].run).unwrap(), records[0]);
    assert!(store.annotations().of(&rows[2]).unwrap().tags.contains("doubtful"));
    assert!(store.restore_last().unwrap().is_empty(), "there is nothing more to restore");
    assert!(store.trash().unwrap().is_empty());
}

#[test]
fn a_failed_row_that_is_deleted_is_not_run_again_as_failed() {
    let (_dir, store) = store();
    let simulated = Spec { backend: Backend::Sim, ..spec("ladder") };
    let cell = |batch| Spec { batch, ..simulated.clone() };
    let mut records: Vec<Record> =
        [1, 2].map(|batch| Record::new(cell(batch), Status::Failed, Some("no link".into()))).into();
    store.write_batch(&mut records).unwrap();
    let keys = [cell(1).key(), cell(2).key()];
    let wanted = keys.iter().map(String::as_str).collect();
    assert_eq!(store.failed_of(&wanted).unwrap().len(), 2);
    store.delete(std::slice::from_ref(&records[0].run)).unwrap();
    let failed = reopened(&store).failed_of(&wanted).unwrap();
    assert_eq!(failed.into_iter().collect::<Vec<_>>(), [(keys[1].clone(), 0)]);
}

#[test]
fn restoring_goes_back_deletion_by_deletion() {
    let (_dir, store) = store();
    let a = run(&store, "ladder", 1.0).run;
    let b = run(&store, "standard", 1.0).run;
    store.delete(std::slice::from_ref(&a)).unwrap();
    store.delete(std::slice::from_ref(&b)).unwrap();
    assert_eq!(reopened(&store).restore_last().unwrap(), std::slice::from_ref(&b));
    assert_eq!(reopened(&store).restore_last().unwrap(), std::slice::from_ref(&a));
    assert_eq!(listed(&store), [a.clone(), b]);
    store.delete(std::slice::from_ref(&a)).unwrap();
    assert_eq!(store.restore(&["never-was".into(), a]).unwrap(), 1);
}

#[test]
fn a_deletion_that_was_killed_half_way_leaves_every_run_in_one_place() {
    let (_dir, store) = store();
    let runs: Vec<String> = (0..4).map(|_| run(&store, "ladder", 1.0).run).collect();
    for moved in 0..=runs.len() {
        // what delete does, up to where it was killed
        store.mark_deleted(&runs, true).unwrap();
        fs::create_dir_all(store.dir().join(".trash")).unwrap();
        for run in &runs[..moved] {
            fs::rename(store.dir().join(run), store.dir().join(".trash").join(run)).unwrap();
        }
        let fresh = reopened(&store);
        let there = ids(&fresh.list().unwrap().records);
        assert_eq!(there, runs[moved..]);
        assert_eq!(fresh.trash().unwrap().runs, runs[..moved]);
        assert_eq!(fresh.restore_last().unwrap(), runs[..moved]);
        assert_eq!(listed(&store), runs);
    }
}

#[test]
fn what_runs_cannot_be_deleted_and_what_is_gone_already_is_no_error() {
    let (_dir, store) = store();
    let done = run(&store, "ladder", 1.0).run;
    let running = store.begin(&spec("standard"), None, 0).unwrap().id;
    let error = store.delete(&[done.clone(), running.clone()]).unwrap_err();
    assert!(error.to_string().contains("still running"), "{error}");
    assert_eq!(listed(&store), [done.clone(), running], "nothing was deleted");
    fs::remove_dir_all(store.dir().join(&done)).unwrap();
    store.delete(std::slice::from_ref(&done)).unwrap();
    assert_eq!(store.restore(&[done]).unwrap(), 0);
}

#[test]
fn emptying_the_trash_removes_runs_and_batches_of_which_nothing_is_left() {
    let (_dir, store) = store();
    let keep = run(&store, "ladder", 1.0).run;
    let gone = run(&store, "standard", 1.0).run;
    let (part, whole) = (batch(&store, 3), batch(&store, 2));
    let mut deleted = vec![gone, part[0].clone()];
    deleted.extend(whole.iter().cloned());
    store.delete(&deleted).unwrap();
    // what is no run of ours is not removed
    fs::create_dir_all(store.dir().join(".trash/.tmp-half")).unwrap();
    let emptied = reopened(&store).empty_trash().unwrap();
    assert_eq!(emptied, EmptiedTrash { runs: 1, batches: 1, hidden_rows: 1 });
    let left: Vec<_> = fs::read_dir(store.dir().join(".trash")).unwrap().flatten().collect();
    assert_eq!(left.iter().map(|entry| entry.file_name()).collect::<Vec<_>>(), [".tmp-half"]);
    assert_eq!(fs::read_dir(store.dir().join(".ladderscope")).unwrap().count(), 0);
    assert_eq!(listed(&store), [keep, part[1].clone(), part[2].clone()]);
    assert_eq!(
        store.restore_last().unwrap(),
        [part[0].clone()],
        "what a file still holds can come back"
    );
}

/// A user's action, for the property below.
#[derive(Clone, Debug)]
enum Step {
    Tag(usize, bool),
    Delete(usize, usize),
    Restore,
    Reopen,
    EmptyTrash,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        (0..8usize, any::<bool>()).prop_map(|(run, on)| Step::Tag(run, on)),
        (0..8usize, 1..4usize).prop_map(|(from, count)| Step::Delete(from, count)),
        Just(Step::Restore),
        Just(Step::Reopen),
        Just(Step::EmptyTrash),
    ];
    prop::collection::vec(step, 0..12)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]

    #[test]
    fn the_store_agrees_with_a_simple_model(steps in steps()) {
        let (_dir, mut store) = store();
        let mut all: Vec<String> = (0..4).map(|_| run(&store, "ladder", 1.0).run).collect();
        all.extend(batch(&store, 4));
        let mut there: Vec<bool> = vec![true; all.len()];
        let mut removed: Vec<bool> = vec![false; all.len()];
        let mut deletions: Vec<Vec<usize>> = Vec::new();
        let mut tagged = vec![false; all.len()];
        for step in steps {
            match step {
                Step::Tag(run, on) => {
                    let edit = AnnotationEdit::tags(if on { "t" } else { "-t" }).unwrap();
                    store.annotate(&all[run..=run], &edit).unwrap();
                    tagged[run] = on;
                }
                Step::Delete(from, count) => {
                    let which: Vec<usize> =
                        (from..(from + count).min(all.len())).filter(|i| there[*i]).collect();
                    let runs: Vec<String> = which.iter().map(|i| all[*i].clone()).collect();
                    store.delete(&runs).unwrap();
                    which.iter().for_each(|i| there[*i] = false);
                    deletions.push(which);
                }
                Step::Restore => {
                    let restored = store.restore_last().unwrap();
                    let newest = deletions
                        .iter()
                        .rev()
                        .map(|d| d.iter().filter(|i| !there[**i] && !removed[**i]).collect::<Vec<_>>())
                        .find(|d| !d.is_empty())
                        .map(|d| d.into_iter().copied().collect::<Vec<_>>())
                        .unwrap_or_default();
                    prop_assert_eq!(restored.len(), newest.len());
                    newest.iter().for_each(|i| there[*i] = true);
                }
                Step::Reopen => store = reopened(&store),
                Step::EmptyTrash => {
                    store.empty_trash().unwrap();
                    let rows_gone = (4..8).all(|i| !there[i]);
                    for i in (0..all.len()).filter(|i| !there[*i]) {
                        removed[i] |= i < 4 || rows_gone;
                    }
                }
            }
            let shown: Vec<&String> =
                all.iter().zip(&there).filter(|(_, there)| **there).map(|(run, _)| run).collect();
            let listing = store.list().unwrap();
            let found = ids(&listing.records);
            prop_assert_eq!(found.iter().collect::<Vec<_>>(), shown);
            prop_assert!(listing.damaged.is_empty());
            for (run, tagged) in all.iter().zip(&tagged) {
                prop_assert_eq!(store.annotations().of(run).is_some(), *tagged);
            }
        }
    }
}
