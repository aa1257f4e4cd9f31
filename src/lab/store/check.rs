//! Verification of a whole store (`doctor --store`): every record, segment and trace against its checksum, every
//! other file of this program by parsing it. Reads only.

use std::path::Path;

use rayon::prelude::*;
use schemars::JsonSchema;
use serde::Serialize;

use super::copies::{RECORDINGS, TRACE, trace_name};
use super::directory::{NO_RUNS, StartedRun, Store, read_record};
use super::{directory, documents, evaluations, trainings};
use base::atomic;
use base::error::{Error, Result};
use base::regular::{self, DirectoryEntry};

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, JsonSchema)]
pub struct StoreCheck {
    /// Number of runs with a directory, including deleted ones.
    pub runs: usize,
    /// Number of files with simulated runs.
    pub segments: usize,
    pub traces: usize,
    /// Number of records and segments of early versions, which have no checksum.
    pub without_checksum: usize,
    /// Files of this program that are damaged or unreadable.
    pub damaged: Vec<DamagedFile>,
    /// Files and directories that this program did not write or that are links. Nothing reads or changes them.
    pub foreign: Vec<String>,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, JsonSchema)]
pub struct DamagedFile {
    /// Path in the runs directory.
    pub path: String,
    pub problem: String,
}

/// Files of a runs directory that are not in a folder. The last two are of earlier versions.
const TOP_LEVEL_FILES: [&str; 3] = ["annotations.jsonl", "index.jsonl", "records.cache"];

/// Files of a run's directory.
const RUN_FILES: [&str; 4] = ["spec.json", "record.json", "log.txt", "trace.parquet"];

impl Store {
    /// Checks every file. Fails if the directory cannot be read.
    pub fn check(&self) -> Result<StoreCheck> {
        let entries = regular::entries(self.dir()).map_err(Error::io(self.dir()))?;
        let checks = entries.par_iter().map(|entry| self.check_entry(entry));
        let mut all = checks.reduce(StoreCheck::default, StoreCheck::joined);
        // one line per bad edit
        for problem in &self.annotations().damaged {
            all.damaged.push(DamagedFile { path: TOP_LEVEL_FILES[0].into(), problem: problem.clone() });
        }
        all.damaged.sort();
        all.foreign.sort();
        Ok(all)
    }

    fn check_entry(&self, entry: &DirectoryEntry) -> StoreCheck {
        let mut found = StoreCheck::default();
        let name = entry.name.as_str();
        match (name, entry.is_dir) {
            (".slurm", true) => {}
            (".trash", true) => {
                for run in entries(&mut found, &self.dir().join(name), name) {
                    self.check_run(&format!("{name}/{}", run.name), &run, &mut found);
                }
            }
            (atomic::FOLDER, true) => {
                for file in entries(&mut found, &self.dir().join(name), name) {
                    if file.name != "claims" && !atomic::is_unfinished(&file.name) {
                        found.foreign.push(format!("{name}/{}", file.name));
                    }
                }
            }
            (folder, true) if NO_RUNS.contains(&folder) => {
                for file in entries(&mut found, &self.dir().join(folder), folder) {
                    self.check_file(folder, &file, &mut found);
                }
            }
            (_, true) => self.check_run(name, entry, &mut found),
            (_, false) if TOP_LEVEL_FILES.contains(&name) => {}
            _ => found.foreign.push(name.to_owned()),
        }
        found
    }

    /// Checks a run's directory: record, trace, and names.
    fn check_run(&self, place: &str, entry: &DirectoryEntry, found: &mut StoreCheck) {
        let dir = self.dir().join(place);
        let files = if entry.is_dir && directory::is_id(&entry.name) {
            entries(found, &dir, place)
        } else {
            Vec::new()
        };
        let has = |name: &str| files.iter().any(|file| file.name == name);
        if !has("record.json") && !has("spec.json") {
            found.foreign.push(place.to_owned());
            return;
        }
        found.runs += 1;
        let mut record = None;
        if has("record.json") {
            let read = read_record(&dir.join("record.json"));
            if let Some((read, has_checksum)) = found.or_damaged(format!("{place}/record.json"), read) {
                found.without_checksum += usize::from(!has_checksum);
                record = Some(read);
            }
        }
        let trace = record.as_ref().and_then(trace_name).unwrap_or(TRACE);
        for file in &files {
            let (path, at) = (dir.join(&file.name), format!("{place}/{}", file.name));
            match file.name.as_str() {
                "record.json" => {}
                "spec.json" => found.parse::<StartedRun>(&path, at),
                name if name == trace => found.trace(&path, at),
                name if RUN_FILES.contains(&name) => {}
                _ => found.foreign.push(at),
            }
        }
    }

    /// Checks a file of one of the folders that are not runs.
    fn check_file(&self, folder: &str, entry: &DirectoryEntry, found: &mut StoreCheck) {
        let at = format!("{folder}/{}", entry.name);
        let path = self.dir().join(&at);
        let suffix = path.extension().and_then(|suffix| suffix.to_str()).unwrap_or_default();
        match (folder, suffix, entry.is_dir) {
            ("batches", "parquet", false) => {
                found.segments += 1;
                let verified = super::batches::verified(&path, "");
                if let Some((_, has_checksum)) = found.or_damaged(at, verified) {
                    found.without_checksum += usize::from(!has_checksum);
                }
            }
            (RECORDINGS, _, true) => {
                let trace = path.join(TRACE);
                // missing if the recording was interrupted, or wrote its trace elsewhere
                if trace.symlink_metadata().is_ok() {
                    found.trace(&trace, format!("{at}/{TRACE}"));
                }
            }
            (documents::BASELINES, "replaced", true) if entry.name == documents::REPLACED => {}
            (documents::BASELINES, "json", false) => {
                found.or_damaged(at, documents::Baseline::read(&path));
            }
            (documents::CONVERSIONS | documents::PREDICTIONS, "json", false) => {
                found.parse::<serde_json::Value>(&path, at);
            }
            (evaluations::FOLDER | trainings::FOLDER, "jsonl", false) => {
                let lines = regular::read(&path).map_err(|e| e.to_string());
                let checked = lines.and_then(|bytes| match folder {
                    trainings::FOLDER => trainings::check_finished(&bytes),
                    _ => evaluations::check(&entry.name, &bytes),
                });
                found.or_damaged(at, checked);
            }
            (trainings::FOLDER, _, true) => {
                match found.or_damaged(at.clone(), self.training(&entry.name)) {
                    Some(Some(_)) => {
                        let curve = regular::read(&path.join(trainings::CURVE)).unwrap_or_default();
                        let at = format!("{at}/{}", trainings::CURVE);
                        found.or_damaged(at, trainings::check_curve(&curve));
                    }
                    Some(None) => found.foreign.push(at),
                    None => {}
                }
            }
            _ => found.foreign.push(at),
        }
    }
}

impl StoreCheck {
    /// What was read from a file; an error is added as one of that file.
    fn or_damaged<T>(&mut self, path: String, read: Result<T, impl ToString>) -> Option<T> {
        match read {
            Ok(read) => Some(read),
            Err(why) => {
                self.damaged.push(DamagedFile { path, problem: why.to_string() });
                None
            }
        }
    }

    fn parse<T: serde::de::DeserializeOwned>(&mut self, path: &Path, at: String) {
        let read = regular::read(path).map_err(|e| e.to_string());
        let parse = |bytes: Vec<u8>| serde_json::from_slice::<T>(&bytes).map_err(|e| e.to_string());
        self.or_damaged(at, read.and_then(parse));
    }

    fn trace(&mut self, path: &Path, at: String) {
        self.traces += 1;
        self.or_damaged(at, trace::check(path));
    }

    fn joined(mut self, mut other: Self) -> Self {
        self.runs += other.runs;
        self.segments += other.segments;
        self.traces += other.traces;
        self.without_checksum += other.without_checksum;
        self.damaged.append(&mut other.damaged);
        self.foreign.append(&mut other.foreign);
        self
    }
}

/// Entries of a folder; an unreadable one counts as damaged.
fn entries(found: &mut StoreCheck, path: &Path, at: &str) -> Vec<DirectoryEntry> {
    found.or_damaged(at.to_owned(), regular::entries(path)).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::super::AnnotationEdit;
    use super::super::tests::{ok, reopened, run, spec, store};

    /// Any change of a record that is still JSON is found by its checksum, as restic's check does.
    #[test]
    fn a_store_is_checked_and_a_record_with_one_other_digit_is_not_shown() {
        let (_dir, store) = store();
        let good = run(&store, "ladder", 1.0);
        let bad = run(&store, "standard", 2.5);
        store.write_batch(&mut [ok(spec("parallel"), 1.0)]).unwrap();
        store.annotate(std::slice::from_ref(&good.run), &AnnotationEdit::note("good")).unwrap();
        store.set_baseline("main", std::slice::from_ref(&good)).unwrap();
        let clean = store.check().unwrap();
        assert_eq!((clean.runs, clean.segments, clean.traces, clean.without_checksum), (2, 1, 0, 0));
        assert_eq!((clean.damaged, clean.foreign), (vec![], vec![]));
        let path = store.dir().join(&bad.run).join("record.json");
        let whole = fs::read_to_string(&path).unwrap();
        let changed = whole.replacen("2.5", "2.6", 1);
        assert_ne!(changed, whole);
        fs::write(&path, &changed).unwrap();
        let listing = reopened(&store).list().unwrap();
        assert_eq!((listing.records.len(), listing.damaged.len()), (2, 1));
        assert!(
            listing.damaged[0].contains("record.json: it was changed after"),
            "{:?}",
            listing.damaged
        );
        assert!(reopened(&store).get(&bad.run).is_err());
        // files of others and a damaged file of each kind
        for foreign in
            ["notes.txt", "batches/.tmp-mine", "folder/mine", "20261121-043013-empty-000000/x"]
        {
            let path = store.dir().join(foreign);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, "mine").unwrap();
        }
        fs::write(store.dir().join(&good.run).join("trace.parquet"), "PAR1").unwrap();
        fs::write(store.dir().join("batches/a.parquet"), "PAR1").unwrap();
        fs::write(store.dir().join("baselines/b.json"), "{").unwrap();
        fs::create_dir(store.dir().join("evaluations")).unwrap();
        fs::write(store.dir().join("evaluations/texts.jsonl"), "{}\n{\n").unwrap();
        let found = store.check().unwrap();
        let damaged: Vec<&str> = found.damaged.iter().map(|file| file.path.as_str()).collect();
        let expected = [
            format!("{}/trace.parquet", good.run),
            format!("{}/record.json", bad.run),
            "baselines/b.json".into(),
            "batches/a.parquet".into(),
            "evaluations/texts.jsonl".into(),
        ];
        assert_eq!(damaged, expected);
        let foreign = ["20261121-043013-empty-000000", "batches/.tmp-mine", "folder", "notes.txt"];
        assert_eq!(found.foreign, foreign);
        // as another program writes it again
        let compact = serde_json::from_str::<serde_json::Value>(&whole).unwrap().to_string();
        fs::write(&path, compact).unwrap();
        let listing = reopened(&store).list().unwrap();
        assert!(
            listing.damaged[0].contains("record.json: it was changed after"),
            "{:?}",
            listing.damaged
        );
        // a record of an earlier version has no checksum
        let old: String =
            whole.lines().filter(|line| !line.contains("checksum")).collect::<Vec<_>>().join("\n");
        let old = old.replacen("\"warnings\": [],", "\"warnings\": []", 1);
        fs::write(&path, &old).unwrap();
        assert_eq!(reopened(&store).get(&bad.run).unwrap(), bad);
        assert_eq!(store.check().unwrap().without_checksum, 1);
    }

    /// Files that are JSON, but not what their place says.
    #[test]
    fn a_check_reads_each_file_as_what_it_is_and_says_how_to_repair_it() {
        let (_dir, store) = store();
        let damaged = |file: &str, text: &str| {
            let path = store.dir().join(file);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(&path, text).unwrap();
            let found = store.check().unwrap();
            fs::remove_file(path).unwrap();
            assert!(found.damaged.len() <= 1, "{found:?}");
            found.damaged.into_iter().next().map(|file| (file.path, file.problem))
        };
        let newer = "{\"version\":9,\"other\":1}\n";
        for (file, text, problem) in [
            ("20261121-043012-a-000000/spec.json", "{}", "missing field `schema`"),
            ("evaluations/texts.jsonl", "{\"version\":1}\n", "line 1: missing field `created`"),
            ("trainings/finished.jsonl", "{\"version\":1}\n", "line 1: missing field `id`"),
            ("evaluations/abc.jsonl", "{}\n", "delete it and evaluate the model again"),
            ("batches/a.parquet", "PAR1", "not a batch of runs"),
        ] {
            let (path, why) = damaged(file, text).unwrap_or_else(|| panic!("{file} is fine"));
            assert!(path == file && why.contains(problem) && !why.contains("damaged"), "{path}: {why}");
            if file.ends_with(".jsonl") {
                assert!(why.contains("skipped, the others are kept"), "{why}");
                assert_eq!(damaged(file, newer), None, "{file}");
            }
        }
    }
}
