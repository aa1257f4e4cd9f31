//! The store survives what happens to files: dying at any moment, damage, newer versions.

use std::fs;
use std::io::Write as _;
use std::path::Path;
use std::sync::Arc;

use super::*;
use base::error::Error;
use plan::Architecture;
use table::{Backend, Metrics, Overlap, Percentiles, Record, Sample, Spec, Status};

pub(crate) fn spec(architecture: &str) -> Spec {
    Spec {
        architecture: architecture.parse::<Architecture>().unwrap(),
        model: "tiny".into(),
        dtype: plan::DType::F32,
        tp: 2,
        batch: 1,
        prompt_tokens: 4,
        output_tokens: 4,
        backend: Backend::Cpu,
        hardware: "host".into(),
        samples: 2,
        warmup: 0,
        ..Spec::default()
    }
}

pub(crate) fn ok(spec: Spec, milliseconds: f64) -> Record {
    let mut record = Record::new(spec, Status::Ok, None);
    record.created = "2026-11-21T04:30:12.000000Z".into();
    record.samples = vec![Sample {
        prefill_ms: 1.0 / 3.0,
        decode_ms: milliseconds,
        steps_ms: vec![milliseconds / 3.0; 3],
        overlap: None,
    }]
    .into();
    record.metrics = Some(Metrics {
        prefill_ms: 1.0 / 3.0,
        decode_ms: milliseconds,
        completion_ms: milliseconds + 1.0 / 3.0,
        tpot_ms: Percentiles { p50: 1.0, p90: 2.0, p99: 3.0 },
        tokens_per_s: 12.5,
        tokens_per_s_per_gpu: 6.25,
        samples: 1,
        memory_bytes_per_rank: 1 << 20,
        ..Metrics::default()
    });
    record
}

pub(crate) fn store() -> (tempfile::TempDir, Store) {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open_reproducible(dir.path().join("runs"), 1_795_235_412, 1);
    (dir, store)
}

/// Begins and finishes a run.
pub(super) fn run(store: &Store, architecture: &str, milliseconds: f64) -> Record {
    let begun = store.begin(&spec(architecture), Some("test"), 0).unwrap();
    let mut record = ok(spec(architecture), milliseconds);
    record.run = begun.id;
    record.created = store.now();
    store.finish(&record).unwrap();
    record
}

/// A directory as a fresh process would see it.
pub(super) fn reopened(store: &Store) -> Store {
    Store::open(store.dir())
}

#[test]
fn what_is_stored_is_listed_oldest_first_to_the_last_digit() {
    let (_dir, store) = store();
    assert!(store.list().unwrap().records.is_empty());
    assert!(!store.dir().exists(), "looking creates nothing");
    let records =
        [run(&store, "ladder", 1.1), run(&store, "standard", 2.2), run(&store, "desync:2", 0.1)];
    let listing = reopened(&store).list().unwrap();
    assert_eq!(listing.records, records);
    assert!(listing.damaged.is_empty());
    for (short, record) in store.list_runs_in_short().unwrap().records.into_iter().zip(&records) {
        assert!(short.samples.is_empty() && short.environment.is_empty());
        let (samples, environment) = (record.samples.clone(), record.environment.clone());
        assert_eq!(&Record { samples, environment, ..short }, record);
    }
    assert_eq!(store.get(&records[1].run).unwrap(), records[1]);
    assert_eq!(store.get("last").unwrap(), records[2]);
}

/// Tasks that a cluster starts at one moment: each of their runs has a directory of its own.
#[test]
fn processes_that_draw_the_same_ids_at_once_lose_no_run() {
    for seed in 0..20 {
        let dir = tempfile::tempdir().unwrap();
        let task = &|batch: u32| {
            let store = Store::open_reproducible(dir.path().join("runs"), 1_795_235_412, seed);
            let begin = |_| store.begin(&Spec { batch, ..spec("ladder") }, None, 0).unwrap();
            let begun: Vec<_> = (0..10).map(begin).collect();
            for run in &begun {
                let text = fs::read_to_string(run.path.join("spec.json")).unwrap();
                let of =
                    serde_json::from_str::<serde_json::Value>(&text).unwrap()["spec"]["batch"].clone();
                assert_eq!(of, batch, "another task's");
            }
            begun.into_iter().map(|run| run.id).collect::<Vec<_>>()
        };
        let ids = std::thread::scope(|scope| {
            let tasks = [1, 2, 4].map(|batch| scope.spawn(move || task(batch)));
            tasks.map(|task| task.join().unwrap()).concat()
        });
        let distinct: std::collections::BTreeSet<&String> = ids.iter().collect();
        assert_eq!(distinct.len(), 30, "{ids:?}");
        let count = |path: &str| fs::read_dir(dir.path().join(path)).unwrap().count();
        assert_eq!(count("runs"), 30 + 1, "the runs, and the folder of unfinished files");
        assert_eq!(count("runs/.ladderscope"), 0, "nothing unfinished is left");
    }
}

#[test]
fn prefixes_find_a_run_or_say_what_they_could_mean() {
    let (_dir, store) = store();
    let first = run(&store, "ladder", 1.0);
    let second = run(&store, "standard", 1.0);
    assert_eq!(store.get(&second.run[..second.run.len() - 3]).unwrap(), second);
    let ambiguous = store.get("2026").unwrap_err();
    assert_eq!(ambiguous.exit_code(), 2);
    let Error::Input { message, help: Some(help) } = ambiguous else { panic!("not an input error") };
    assert!(message.contains("2 runs"), "{message}");
    assert!(help.contains(&first.run) && help.contains(&second.run), "{help}");
    assert!(store.get("nothing-like-it").unwrap_err().to_string().contains("nothing-like-it"));
    assert!(store.get("").is_err());
    assert!(store.get("../runs").is_err(), "an id is no path");
}

#[test]
fn an_index_of_earlier_versions_is_left_alone() {
    let (_dir, store) = store();
    let record = run(&store, "ladder", 1.0);
    let path = store.dir().join("index.jsonl");
    fs::write(&path, b"torn").unwrap();
    let second = run(&store, "standard", 2.0);
    assert_eq!(reopened(&store).list().unwrap().records, [record, second]);
    assert_eq!(fs::read(&path).unwrap(), b"torn");
}

#[test]
fn a_run_that_was_never_finished_is_running_or_interrupted() {
    let (_dir, store) = store();
    let begun = store.begin(&spec("ladder"), Some("quickstart"), 2).unwrap();
    let record = store.get(&begun.id).unwrap();
    assert_eq!(record.status, Status::Running);
    let reason = record.reason.as_deref().unwrap();
    let since = format!("since {}, by process {}", record.created, std::process::id());
    assert!(reason.starts_with(&since), "who runs it since when is told: {reason}");
    assert!(store.finished().unwrap().is_empty());
    let key = spec("ladder").key();
    let failed = store.failed_of(&[key.as_str()].into()).unwrap();
    assert!(failed.is_empty(), "what runs has not failed: {failed:?}");

    // as if its process had been killed
    let path = begun.path.join("spec.json");
    let text = fs::read_to_string(&path).unwrap();
    let mut started: serde_json::Value = serde_json::from_str(&text).unwrap();
    started["process"]["start_ticks"] = 1.into();
    fs::write(&path, started.to_string()).unwrap();
    let record = store.get(&begun.id).unwrap();
    assert_eq!((record.status, record.round), (Status::Interrupted, 2));
    assert_eq!(record.experiment.as_deref(), Some("quickstart"));
    assert!(record.reason.as_deref().unwrap().contains("without leaving a record"));
    assert_eq!(record.spec, spec("ladder"));
}

#[test]
fn rubbish_of_a_killed_process_is_not_listed() {
    let (_dir, store) = store();
    let record = run(&store, "ladder", 1.0);
    let dir = store.dir();
    fs::write(dir.join(".tmp-abc"), b"half").unwrap();
    fs::write(dir.join(&record.run).join(".tmp-record"), b"half").unwrap();
    fs::create_dir(dir.join(".tmp-20261121-043012-ladder-000000")).unwrap();
    fs::create_dir(dir.join("20261121-043012-empty-000000")).unwrap();
    fs::create_dir_all(dir.join("batches")).unwrap();
    fs::write(dir.join("batches/.tmp-xyz"), b"half").unwrap();
    let listing = reopened(&store).list().unwrap();
    assert_eq!(listing.records, [record]);
    assert_eq!(listing.damaged, Vec::<String>::new());
}

#[test]
fn damage_is_reported_with_the_file_and_the_rest_is_listed() {
    let (_dir, store) = store();
    let good = run(&store, "ladder", 1.0);
    let bad = run(&store, "standard", 1.0);
    let path = store.dir().join(&bad.run).join("record.json");
    let bytes = fs::read(&path).unwrap();
    // every strictly shorter file is damaged, save one that lacks only the last line feed
    for cut in (0..bytes.len() - 2).step_by(97) {
        fs::write(&path, &bytes[..cut]).unwrap();
        let listing = reopened(&store).list().unwrap();
        assert_eq!(listing.records, std::slice::from_ref(&good), "cut at {cut}");
        assert_eq!(listing.damaged.len(), 1);
        assert!(listing.damaged[0].contains(&bad.run), "{}", listing.damaged[0]);
    }
    assert!(path.exists(), "nothing damaged is deleted");
    let error = reopened(&store).get(&bad.run).unwrap_err();
    assert!(error.to_string().contains("record.json"), "{error}");
}

#[test]
fn newer_records_are_read_and_never_overwritten() {
    let (_dir, store) = store();
    let record = run(&store, "ladder", 1.0);
    let path = store.dir().join(&record.run).join("record.json");
    let mut newer: serde_json::Value = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
    newer["schema"] = 99.into();
    newer["of_tomorrow"] = true.into();
    newer.as_object_mut().unwrap().remove("checksum");
    fs::write(&path, newer.to_string()).unwrap();
    let read = store.get(&record.run).unwrap();
    assert_eq!(read.metrics, record.metrics);
    assert!(read.warnings[0].contains("99"), "{:?}", read.warnings);
    assert!(store.finish(&record).unwrap_err().to_string().contains("newer version"));
    newer["metrics"] = "elsewhere".into();
    fs::write(&path, newer.to_string()).unwrap();
    let listing = store.list().unwrap();
    assert!(listing.records.is_empty());
    assert!(listing.damaged[0].contains("format 99 is newer"), "{}", listing.damaged[0]);
}

#[test]
fn batches_come_back_row_by_row() {
    let (_dir, store) = store();
    let mut simulated = spec("standard");
    simulated.backend = Backend::Sim;
    simulated.set = [("link.alpha_us".to_owned(), "5".to_owned())].into();
    let mut records: Vec<Record> =
        (0..12).map(|i| ok(Spec { batch: i + 1, ..simulated.clone() }, f64::from(i) + 0.1)).collect();
    for record in &mut records {
        record.environment.insert("host".into(), "here".into());
        record.experiment = Some("many".into());
        record.overlap = Some(Overlap { comm_ms: 3.0, overlap_pct: Some(50.0), ..Overlap::default() });
        Arc::make_mut(&mut record.samples)[0].overlap = record.overlap;
    }
    records[2].overlap = Some(Overlap::default());
    let overlap = records[2].overlap;
    Arc::make_mut(&mut records[2].samples)[0].overlap = overlap;
    records[2].warnings = vec!["odd".into(), "very odd".into()];
    records[3] = Record::new(records[3].spec.clone(), Status::Failed, Some("no such link".into()));
    store.write_batch(&mut records).unwrap();
    let batch = records[0].run.strip_suffix(":0").unwrap().to_owned();
    assert_eq!(records[11].run, format!("{batch}:11"));
    let fresh = reopened(&store);
    // what a simulation's single steps took is not stored
    let samples = records.iter_mut().flat_map(|record| Arc::make_mut(&mut record.samples));
    samples.for_each(|sample| sample.steps_ms.clear());
    let mut listed = fresh.list().unwrap().records;
    assert!(listed.iter().all(|r| r.environment.is_empty()), "rows are listed from their columns");
    for (listed, record) in listed.iter_mut().zip(&records) {
        listed.environment = record.environment.clone();
    }
    assert_eq!(listed, records);
    let mut complete = Vec::new();
    let bare = fresh.list().unwrap().records;
    fresh
        .complete(bare, |record| {
            complete.push(record);
            Ok(())
        })
        .unwrap();
    assert_eq!(complete, records);
    assert_eq!(fresh.get(&format!("{batch}:10")).unwrap(), records[10]);
    assert_eq!(fresh.get(&format!("{}:2", &batch[..batch.len() - 2])).unwrap(), records[2]);
    assert!(fresh.get(&format!("{batch}:12")).unwrap_err().to_string().contains("no row 12"));
    assert!(fresh.get(&batch).unwrap_err().to_string().contains("batch of 12 runs"));
    let mut finished = fresh.finished().unwrap();
    assert_eq!(finished.len(), 11);
    assert_eq!(finished.get(&records[7].spec.key(), 0).unwrap(), records[7]);
    assert!(!finished.contains(&records[3].spec.key(), 0), "it failed");
    let (batches, damaged) = fresh.batches().unwrap();
    assert_eq!((batches.len(), batches[0].runs, batches[0].ok), (1, 12, 11));
    assert_eq!(batches[0].experiment.as_deref(), Some("many"));
    assert!(damaged.is_empty());
    assert_eq!(fresh.get("last").unwrap(), records[11]);
    assert_eq!(fresh.batch(&batch[..12]).unwrap().unwrap().records.len(), 12);
    assert!(fresh.batch("nothing").unwrap().is_none());
}

/// Simulated cells, more than a row group holds.
fn many(count: u32) -> Vec<Record> {
    let simulated = Spec { backend: Backend::Sim, ..spec("ladder") };
    (0..count).map(|i| ok(Spec { batch: i + 1, ..simulated.clone() }, f64::from(i % 97) + 0.1)).collect()
}

#[test]
fn a_batch_of_several_segments_is_read_as_one() {
    let (_dir, store) = store();
    let mut batch = store.new_batch();
    let mut records = many(5_000);
    for (row, record) in (0..).zip(&mut records) {
        batch.push(row, record).unwrap();
        if row % 1_700 == 0 {
            batch.write_segment().unwrap();
        }
    }
    batch.finish().unwrap();
    let (id, _) = records[0].run.split_once(':').unwrap();
    assert!(store.dir().join(format!("batches/{id}.000002.parquet")).exists());
    let fresh = reopened(&store);
    let listing = fresh.list().unwrap();
    assert_eq!(listing.records.len(), 5_000);
    for (read, written) in listing.records.iter().zip(&records) {
        assert_eq!((&read.run, &read.spec), (&written.run, &written.spec));
    }
    assert_eq!(fresh.get(&format!("{id}:4999")).unwrap().spec.batch, 5_000);
    assert_eq!(fresh.batches().unwrap().0.len(), 1);
    assert_eq!(fresh.finished().unwrap().len(), 5_000);
    // a removed first segment hides no other
    fs::remove_file(store.dir().join(format!("batches/{id}.parquet"))).unwrap();
    assert_eq!(fresh.list().unwrap().records.len(), 5_000 - 1_701);
}

#[test]
fn rows_of_a_killed_writer_are_there_up_to_its_last_segment() {
    let (_dir, store) = store();
    let mut batch = store.new_batch();
    let id = batch.id().to_owned();
    for (row, record) in (0..).zip(&mut many(1_107)) {
        batch.push(row, record).unwrap();
        if [0, 1_099, 1_105].contains(&row) {
            batch.write_segment().unwrap();
        }
    }
    drop(batch);
    let fresh = reopened(&store);
    assert_eq!(fresh.list().unwrap().records.len(), 1_106);
    assert_eq!(fresh.get(&format!("{id}:5")).unwrap().spec.batch, 6);
    assert!(fresh.get(&format!("{id}:1106")).unwrap_err().to_string().contains("no row 1106"));
    assert_eq!(fresh.finished().unwrap().len(), 1_106);
}

#[test]
fn batches_of_the_first_version_are_read() {
    let (_dir, store) = store();
    let record = ok(Spec { backend: Backend::Sim, ..spec("ladder") }, 2.5);
    let json = serde_json::to_string(&record).unwrap();
    let frame = polars_core::df!(
        "row" => [0_u32, 1], "status" => ["ok", "ok"], "created" => ["a", "b"], "round" => [0_u32, 0],
        "key" => [record.spec.key(), record.spec.key()], "record" => [json.as_str(), "{}"],
    )
    .unwrap();
    fs::create_dir_all(store.dir().join("batches")).unwrap();
    let file = fs::File::create(store.dir().join("batches/old.parquet")).unwrap();
    let version = vec![("ladderscope.batch.version".to_owned(), "1".to_owned())];
    let mut writer = base::parquet::writer(file, frame.schema(), 1, |_| None, version).unwrap();
    writer.write_batch(&frame).unwrap();
    writer.finish().unwrap();
    let listing = store.list().unwrap();
    assert_eq!(listing.records, [Record { run: "old:0".into(), ..record.clone() }]);
    assert!(listing.damaged[0].contains("row 1"), "{:?}", listing.damaged);
    assert_eq!(store.get("old:0").unwrap().metrics, record.metrics);
    assert!(store.get("old:1").unwrap_err().to_string().contains("old.parquet"));
}

#[test]
fn a_damaged_batch_is_reported_and_does_not_panic() {
    let (_dir, store) = store();
    let mut records = vec![ok(spec("standard"), 1.0); 3];
    store.write_batch(&mut records).unwrap();
    let path = fs::read_dir(store.dir().join("batches")).unwrap().next().unwrap().unwrap().path();
    let bytes = fs::read(&path).unwrap();
    for cut in [0, 3, bytes.len() / 2, bytes.len() - 1] {
        fs::write(&path, &bytes[..cut]).unwrap();
        let listing = reopened(&store).list().unwrap();
        assert!(listing.records.is_empty());
        assert!(listing.damaged[0].contains(".parquet"), "{:?}", listing.damaged);
        let (id, _) = records[0].run.split_once(':').unwrap();
        let error = reopened(&store).get(&format!("{id}:1")).unwrap_err();
        assert!(error.to_string().contains(".parquet"), "{error}");
        assert!(reopened(&store).finished().unwrap().is_empty());
        assert_eq!(reopened(&store).batches().unwrap().1.len(), 1);
    }
    // nor does it where any one byte is another one
    for at in (4..bytes.len()).step_by(61) {
        let mut wrong = bytes.clone();
        wrong[at] ^= 0x55;
        fs::write(&path, &wrong).unwrap();
        let listing = reopened(&store).list().unwrap();
        let all = listing.records.len() == 3;
        assert!(all != listing.damaged.iter().any(|d| d.contains(".parquet")), "byte {at}: {listing:?}");
        reopened(&store).finished().unwrap();
    }
}

/// A sweep that takes hours stores its rows every second, and leaves a file per thousand of them.
#[test]
fn a_slow_sweep_leaves_few_files_and_is_whole_at_any_moment() {
    let (_dir, store) = store();
    let mut batch = store.new_batch();
    let id = batch.id().to_owned();
    for (row, record) in (0..).zip(&mut many(1_200)) {
        batch.push(row, record).unwrap();
        if row % 50 == 49 {
            batch.write_segment().unwrap();
            let (batches, damaged) = reopened(&store).batches().unwrap();
            assert_eq!((batches[0].runs, damaged.len()), (row as usize + 1, 0), "each row once");
        }
    }
    drop(batch);
    assert_eq!(
        names(&store.dir().join("batches")),
        [format!("{id}.000001.parquet"), format!("{id}.parquet")]
    );
    assert_eq!(store.get(&format!("{id}:1199")).unwrap().spec.batch, 1_200);
}

#[test]
fn a_damaged_segment_takes_no_other_rows_of_its_batch_away() {
    let (_dir, store) = store();
    let mut batch = store.new_batch();
    let id = batch.id().to_owned();
    for (row, record) in (0..).zip(&mut many(2_100)) {
        batch.push(row, record).unwrap();
        if row == 1_050 {
            batch.write_segment().unwrap();
        }
    }
    batch.finish().unwrap();
    let (row, name) = (|row: u32| format!("{id}:{row}"), format!("{id}.parquet"));
    store.delete(&(0..2_100).map(row).collect::<Vec<_>>()).unwrap();
    store.restore(&[row(2_000)]).unwrap();
    let path = store.dir().join("batches").join(&name);
    let whole = fs::read(&path).unwrap();
    fs::write(&path, &whole[..whole.len() / 2]).unwrap();
    let fresh = reopened(&store);
    assert_eq!(fresh.get(&row(2_000)).unwrap().spec.batch, 2_001);
    assert_eq!(fresh.get(&id).unwrap().run, row(2_000), "the only row that is readable and not deleted");
    assert_eq!(fresh.get("last").unwrap().run, row(2_000));
    let (batches, damaged) = fresh.batches().unwrap();
    assert_eq!((batches[0].runs, damaged.len()), (1, 1));
    assert!(damaged[0].contains(&name), "{damaged:?}");
    let why = fresh.get(&row(2_100)).unwrap_err().to_string();
    assert!(why.contains(&name), "it may be in the damaged segment: {why}");
    assert_eq!(
        fresh.finished().unwrap().get(&many(2_001)[2_000].spec.key(), 0).unwrap().run,
        row(2_000)
    );
    fresh.delete(&[row(2_000)]).unwrap();
    fresh.empty_trash().unwrap();
    assert!(path.exists(), "a batch with a damaged segment is not emptied");
    fs::write(&path, &whole).unwrap();
    assert_eq!(fresh.restore(&[row(7)]).unwrap(), 1);
    assert_eq!(reopened(&store).list().unwrap().records[0].spec.batch, 8);
}

#[test]
fn of_runs_of_one_cell_and_round_the_newest_counts() {
    let (_dir, store) = store();
    run(&store, "ladder", 1.0);
    let newest = run(&store, "ladder", 2.0);
    let mut other_round = newest.clone();
    other_round.round = 1;
    other_round.run = "20261121-050000-ladder-ffffff".into();
    store.finish(&other_round).unwrap();
    let mut failed = Record::new(spec("parallel"), Status::Failed, Some("boom".into()));
    failed.run = "20261121-050001-parallel-ffffff".into();
    store.finish(&failed).unwrap();
    let mut finished = store.finished().unwrap();
    assert_eq!(finished.len(), 2);
    assert_eq!(finished.get(&spec("ladder").key(), 0), Some(newest));
    assert_eq!(finished.get(&spec("ladder").key(), 1), Some(other_round));
}

#[test]
fn changes_on_disk_are_seen_by_a_store_that_has_read_before() {
    let (_dir, store) = store();
    let store = store.remembering();
    let mut record = run(&store, "ladder", 1.0);
    assert_eq!(store.list().unwrap().records.len(), 1);
    record.reason = Some("looked at again".into());
    reopened(&store).finish(&record).unwrap();
    assert_eq!(store.list().unwrap().records, [record.clone()]);
    fs::remove_dir_all(store.dir().join(&record.run)).unwrap();
    assert!(store.list().unwrap().records.is_empty());
    assert!(store.finished().unwrap().is_empty(), "what was deleted runs again");
}

#[test]
fn many_writers_share_one_directory() {
    let (_dir, store) = store();
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                let store = Store::open(store.dir());
                for _ in 0..8 {
                    run(&store, "ladder", 1.0);
                }
            });
        }
    });
    assert_eq!(reopened(&store).list().unwrap().records.len(), 32);
    assert_eq!(store.list().unwrap().records.len(), 32);
}

/// Puts links, pipes and paths that lead elsewhere into a runs directory, with a file outside that must stay.
#[test]
fn links_and_pipes_in_a_runs_directory_are_named_and_not_followed() {
    use std::os::unix::fs::symlink;
    let (dir, store) = store();
    let kept = run(&store, "ladder", 30.0);
    let (runs, outside) = (store.dir().to_owned(), dir.path().join("outside"));
    fs::create_dir_all(outside.join("20261121-043012-ladder-aaaaaa")).unwrap();
    fs::write(outside.join("victim"), "mine").unwrap();
    symlink(outside.join("victim"), runs.join("annotations.jsonl")).unwrap();
    symlink(&outside, runs.join(".trash")).unwrap();
    symlink(&outside, runs.join("20261121-043019-linked-bbbbbb")).unwrap();
    // a run whose record is a pipe, and one whose record is a link to somebody's file
    for (id, kind) in [("20261121-043020-pipe-cccccc", "pipe"), ("20261121-043021-link-dddddd", "link")]
    {
        fs::create_dir_all(runs.join(id)).unwrap();
        let path = runs.join(id).join("record.json");
        match kind {
            "pipe" => {
                rustix::fs::mkfifoat(rustix::fs::CWD, &path, rustix::fs::Mode::RWXU).unwrap();
            }
            _ => symlink(runs.join(&kept.run).join("record.json"), &path).unwrap(),
        }
    }
    let again = Store::open(&runs);
    let listing = again.list().unwrap();
    assert_eq!(listing.records.len(), 1);
    let damaged = listing.damaged.join("\n");
    for part in [
        "cccccc/record.json: is a named pipe",
        "dddddd/record.json: is a link",
        "annotations.jsonl: is a link",
    ] {
        assert!(damaged.contains(part), "{damaged}");
    }
    let why = |result: base::error::Result<()>| result.unwrap_err().to_string();
    let ids = [kept.run.clone()];
    assert!(why(again.delete(&ids)).contains(".trash: is a link"));
    assert!(why(again.empty_trash().map(|_| ())).contains(".trash: is a link"));
    assert!(
        why(again.annotate(&ids, &AnnotationEdit::note("x"))).contains("annotations.jsonl: is a link")
    );
    assert_eq!(fs::read(outside.join("victim")).unwrap(), b"mine");
    assert!(outside.join("20261121-043012-ladder-aaaaaa").exists() && runs.join(&kept.run).exists());
    // a batches directory elsewhere is neither read nor written
    symlink(&outside, runs.join("batches")).unwrap();
    assert!(why(again.list().map(|_| ())).contains("batches: is a link"));
    let mut records = [ok(spec("ladder"), 1.0)];
    assert!(why(again.write_batch(&mut records)).contains("batches: is a link"));
    let lead_out = |trace: &str| Record { trace: Some(trace.into()), ..kept.clone() };
    for trace in [
        "../../etc/hostname",
        "../outside/victim",
        "/etc/hostname",
        "20261121-043019-linked-bbbbbb/victim",
    ] {
        assert_eq!(again.trace_path(&lead_out(trace)), None, "{trace}");
    }
}

#[test]
fn the_fingerprint_is_another_exactly_when_a_listing_would_be() {
    let (_dir, store) = store();
    let ended = run(&store, "ladder", 30.0);
    let mut seen = vec![store.fingerprint().unwrap()];
    let mut same = |store: &Store, what: &str, changed: bool| {
        let now = store.fingerprint().unwrap();
        assert_eq!(!seen.contains(&now), changed, "{what}");
        seen.push(now);
    };
    store.list().unwrap();
    same(&store, "a listing", false);
    let begun = store.begin(&spec("standard"), None, 0).unwrap();
    same(&store, "a run that began", true);
    fs::write(begun.path.join("log.txt"), "text").unwrap();
    same(&store, "its log", false);
    let mut record = ok(spec("standard"), 31.0);
    record.run = begun.id;
    store.finish(&record).unwrap();
    same(&store, "its record", true);
    store.annotate(std::slice::from_ref(&ended.run), &AnnotationEdit::note("good")).unwrap();
    same(&store, "a note", true);
    store.write_batch(&mut [record]).unwrap();
    same(&store, "a batch", true);
    store.delete(&[ended.run]).unwrap();
    same(&store, "a deletion", true);
}

fn names(dir: &Path) -> Vec<String> {
    let mut names: Vec<String> =
        base::regular::entries(dir).unwrap_or_default().into_iter().map(|entry| entry.name).collect();
    names.sort();
    names
}

/// Name of an unfinished file whose process, of this number and an earlier start, is gone.
fn name_of_the_dead() -> String {
    let name = base::atomic::unfinished_name("x");
    let mut parts: Vec<&str> = name.split('-').collect();
    parts[2] = "1";
    parts.join("-")
}

#[test]
fn the_leftovers_of_the_dead_go_and_everything_else_stays() {
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name);
    let store = Store::open(dir.path());
    let run = store.begin(&spec("ladder"), None, 0).unwrap();
    // names like those of earlier versions, and of other programs
    let foreign = [".tmp-abc", ".trace-1", ".ladderscope-notes", "mine.txt", ".ladderscope/mine"];
    let hour = std::time::SystemTime::now() - std::time::Duration::from_secs(3600);
    for name in foreign.iter().map(|name| at(name)).chain([run.path.join(".tmp-def")]) {
        fs::write(&name, "half").unwrap();
        fs::File::open(&name).unwrap().set_modified(hour).unwrap();
    }
    fs::create_dir_all(at(".tmp-folder/deep")).unwrap();
    fs::create_dir_all(at("batches/theirs.parts")).unwrap();
    fs::write(at("batches/theirs.parts/notes"), "mine").unwrap();
    // a name of ours outside our folder is not removed either
    let outside = name_of_the_dead();
    fs::write(at(&outside), "half").unwrap();
    let written = base::atomic::UnfinishedDir::create(&at("another")).unwrap();
    let scratch = at(base::atomic::FOLDER);
    fs::write(scratch.join(name_of_the_dead()), "half").unwrap();
    fs::create_dir_all(scratch.join(name_of_the_dead()).join("deep")).unwrap();
    let before = names(dir.path());
    store.prepare().unwrap();
    assert_eq!(names(dir.path()), before);
    let written = written.path().file_name().unwrap().to_str().unwrap();
    assert_eq!(names(&scratch), [written, "mine"], "a live process's stays");
    assert_eq!(names(&run.path), [".tmp-def", "spec.json"]);
    assert_eq!(names(&at("batches/theirs.parts")), ["notes"]);
    assert_eq!(names(&at(".tmp-folder")), ["deep"]);
}

#[test]
fn claims_of_the_dead_go_and_those_that_say_nothing_of_ours_stay() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(dir.path());
    let claim = store.claim("cell-0").unwrap();
    let claims = dir.path().join(".ladderscope/claims");
    let mut process: serde_json::Value =
        serde_json::from_slice(&fs::read(claims.join("cell-0")).unwrap()).unwrap();
    process["start_ticks"] = 1.into();
    fs::write(claims.join("cell-1"), process.to_string()).unwrap();
    process["boot"] = "another".into();
    process["host"] = "elsewhere".into();
    fs::write(claims.join("cell-2"), process.to_string()).unwrap();
    fs::write(claims.join("notes"), "mine").unwrap();
    store.prepare().unwrap();
    assert_eq!(names(&claims), ["cell-0", "cell-2", "notes"]);
    drop(claim);
}

#[test]
fn links_in_a_runs_directory_are_not_followed() {
    let (dir, outside) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let store = Store::open(dir.path());
    fs::create_dir(dir.path().join("batches")).unwrap();
    let link = |name: &str| std::os::unix::fs::symlink(outside.path(), dir.path().join(name)).unwrap();
    fs::write(outside.path().join("lock"), "").unwrap();
    fs::write(outside.path().join("000000.parquet"), "mine").unwrap();
    fs::write(outside.path().join("record.json"), "{}").unwrap();
    for name in ["batches/20261121-043012-sim-bbbbbb.parts", "20261121-043012-ladder-aaaaaa"] {
        link(name);
    }
    store.prepare().unwrap();
    assert!(store.list().unwrap().records.is_empty());
    assert!(store.claim("cell-0").is_ok());
    assert_eq!(names(outside.path()), ["000000.parquet", "lock", "record.json"]);
    let mut written =
        base::atomic::AtomicFile::create(&dir.path().join("20261121-043012-ladder-aaaaaa/x"));
    assert!(written.as_mut().map(|file| file.write_all(b"x")).is_err());
    // a link in the place of a folder of ours
    for name in ["batches", "trainings", "evaluations", "baselines", ".trash", ".ladderscope"] {
        let path = dir.path().join(name);
        let _ = fs::remove_dir_all(&path);
        link(name);
    }
    assert!(store.prepare().unwrap_err().to_string().contains("a link, and links are not followed"));
    assert!(store.write_batch(&mut [Record::new(spec("ladder"), Status::Ok, None)]).is_err());
    assert!(store.training_folder("x").is_err() && store.claim("cell-0").is_err());
    assert_eq!(names(outside.path()), ["000000.parquet", "lock", "record.json"], "nothing was made");
}

#[test]
fn a_directory_that_cannot_be_written_is_refused_first() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("file"), "").unwrap();
    let error = Store::open(dir.path().join("file/runs")).prepare().unwrap_err();
    assert_eq!(error.exit_code(), 2);
    assert!(error.to_string().contains("runs cannot be stored there"), "{error}");
}
