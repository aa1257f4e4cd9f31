//! Verification of a whole store (`doctor --store`): every record, segment and trace against its checksum, every
//! other file of this program by parsing it. Reads only.

use std::path::Path;

use rayon::prelude::*;
use schemars::JsonSchema;
use serde::Serialize;

use super::copies::{RECORDINGS, TRACE};
use super::directory::{NO_RUNS, Started, Store, read_record};
use super::{directory, documents, evaluations, trainings};
use base::atomic;
use base::error::{Error, Result};
use base::regular::{self, Entry};

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
const FILES: [&str; 3] = ["annotations.jsonl", "index.jsonl", "records.cache"];

/// Files of a run's directory.
const RUN_FILES: [&str; 4] = ["spec.json", "record.json", "log.txt", "trace.parquet"];

impl Store {
    /// Checks every file. Fails if the directory cannot be read.
    pub fn check(&self) -> Result<StoreCheck> {
        let entries = regular::entries(self.dir()).map_err(Error::io(self.dir()))?;
        let mut parts: Vec<StoreCheck> =
            entries.par_iter().map(|entry| self.check_entry(entry)).collect();
        let mut all = StoreCheck::default();
        parts.iter_mut().for_each(|part| all.add(part));
        // one line per bad edit
        for problem in &self.annotations().damaged {
            all.damaged.push(DamagedFile { path: FILES[0].into(), problem: problem.clone() });
        }
        all.damaged.sort();
        all.foreign.sort();
        Ok(all)
    }

    fn check_entry(&self, entry: &Entry) -> StoreCheck {
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
            (_, false) if FILES.contains(&name) => {}
            _ => found.foreign.push(name.to_owned()),
        }
        found
    }

    /// Checks a run's directory: record, trace, and names.
    fn check_run(&self, place: &str, entry: &Entry, found: &mut StoreCheck) {
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
        let mut trace = "trace.parquet".to_owned();
        for file in &files {
            let (path, at) = (dir.join(&file.name), format!("{place}/{}", file.name));
            match file.name.as_str() {
                "record.json" => match read_record(&path) {
                    Ok((record, has_checksum)) => {
                        found.without_checksum += usize::from(!has_checksum);
                        let named = record.trace.as_deref().and_then(|path| path.rsplit('/').next());
                        trace = named.unwrap_or(&trace).to_owned();
                    }
                    Err(why) => found.damaged(at, why),
                },
                "spec.json" => found.parse::<Started>(&path, at),
                _ => {}
            }
        }
        for file in
            files.iter().filter(|file| !["record.json", "spec.json"].contains(&file.name.as_str()))
        {
            let at = format!("{place}/{}", file.name);
            if file.name == trace {
                found.traces += 1;
                if let Err(why) = trace::check(&dir.join(&file.name)) {
                    found.damaged(at, why.to_string());
                }
            } else if !RUN_FILES.contains(&file.name.as_str()) {
                found.foreign.push(at);
            }
        }
    }

    /// Checks a file of one of the folders that are not runs.
    fn check_file(&self, folder: &str, entry: &Entry, found: &mut StoreCheck) {
        let at = format!("{folder}/{}", entry.name);
        let path = self.dir().join(&at);
        let suffix = path.extension().and_then(|suffix| suffix.to_str()).unwrap_or_default();
        match (folder, suffix, entry.is_dir) {
            ("batches", "parquet", false) => {
                found.segments += 1;
                match super::batches::verified(&path, "") {
                    Ok((_, has_checksum)) => found.without_checksum += usize::from(!has_checksum),
                    Err(why) => found.damaged(at, why),
                }
            }
            (RECORDINGS, _, true) => {
                let trace = path.join(TRACE);
                // missing if the recording was interrupted, or wrote its trace elsewhere
                if trace.symlink_metadata().is_ok() {
                    found.traces += 1;
                    if let Err(why) = trace::check(&trace) {
                        found.damaged(format!("{at}/{TRACE}"), why);
                    }
                }
            }
            (documents::BASELINES, "replaced", true) if entry.name == documents::REPLACED => {}
            (documents::BASELINES, "json", false) => {
                if let Err(why) = documents::Baseline::read(&path) {
                    found.damaged(at, why.to_string());
                }
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
                if let Err(why) = checked {
                    found.damaged(at, why);
                }
            }
            (trainings::FOLDER, _, true) => match self.training(&entry.name) {
                Ok(Some(_)) => {
                    let curve = regular::read(&path.join(trainings::CURVE)).unwrap_or_default();
                    if let Err(why) = trainings::check_curve(&curve) {
                        found.damaged(format!("{at}/{}", trainings::CURVE), why);
                    }
                }
                Ok(None) => found.foreign.push(at),
                Err(why) => found.damaged(at, why.to_string()),
            },
            _ => found.foreign.push(at),
        }
    }
}

impl StoreCheck {
    fn damaged(&mut self, path: String, problem: String) {
        self.damaged.push(DamagedFile { path, problem });
    }

    fn parse<T: serde::de::DeserializeOwned>(&mut self, path: &Path, at: String) {
        let read = regular::read(path).map_err(|e| e.to_string());
        let parse = |bytes: Vec<u8>| serde_json::from_slice::<T>(&bytes).map_err(|e| e.to_string());
        if let Err(why) = read.and_then(parse) {
            self.damaged(at, why);
        }
    }

    fn add(&mut self, other: &mut Self) {
        self.runs += other.runs;
        self.segments += other.segments;
        self.traces += other.traces;
        self.without_checksum += other.without_checksum;
        self.damaged.append(&mut other.damaged);
        self.foreign.append(&mut other.foreign);
    }
}

/// Entries of a folder; an unreadable one counts as damaged.
fn entries(found: &mut StoreCheck, path: &Path, at: &str) -> Vec<Entry> {
    regular::entries(path).unwrap_or_else(|e| {
        found.damaged(at.to_owned(), e.to_string());
        Vec::new()
    })
}
