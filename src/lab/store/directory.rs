//! The runs directory: beginning, finishing and listing runs.

use std::collections::HashMap;
use std::hash::BuildHasher;
use std::io::ErrorKind;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::SystemTime;

use foldhash::fast::FixedState;
use rayon::prelude::*;
use serde::{Deserialize, Serialize};

use super::annotations::Annotations;
use super::evaluated::Qualities;
use super::id::{self, IdSource};
use super::process::{Liveness, Process};
use super::record_cache::RecordCache;
use base::atomic::{self, UnfinishedDir};
use base::error::{Error, Result};
use base::regular::{self, Entry};
use table::{Record, SCHEMA, Spec, Status, Training};

/// A runs directory. Clones share what has been read.
#[derive(Clone, Debug)]
pub struct Store {
    dir: PathBuf,
    pub(super) ids: IdSource,
    /// What was read of each file, for as long as the file stays as it was.
    cache: Arc<Mutex<Cache>>,
    /// The annotations as they were read, for as long as their file stays as it was.
    pub(super) annotated: Arc<Mutex<Seen<Arc<Annotations>>>>,
    /// The quality of models, as long as no text is evaluated.
    pub(super) qualities: Arc<Mutex<Seen<Arc<Qualities>>>>,
    /// The trainings that came to their end, as long as no other does.
    pub(super) trainings: Arc<Mutex<Seen<Arc<Vec<Training>>>>>,
}

/// Files by path, as they were when they were read.
type Cache = HashMap<PathBuf, (Stamp, Arc<Listing>)>;

/// A file as it was when it was read, and what was made of it.
type Seen<T> = Option<(Stamp, T)>;

/// Tells whether a file is still the one that was read.
pub(super) type Stamp = (u64, u64, Option<SystemTime>);

/// How many ids are drawn for a run before it is given up.
const ID_DRAWS: usize = 100;

/// Records of a batch that are kept for the next look; more are read again, rather than held twice.
const KEPT: usize = 4096;

/// Folders of a runs directory that are no runs.
const NO_RUNS: [&str; 5] = [
    "batches",
    super::conversions::FOLDER,
    super::evaluations::FOLDER,
    super::baselines::FOLDER,
    super::trainings::FOLDER,
];

pub(super) fn stamp_of(metadata: &std::fs::Metadata) -> Stamp {
    (metadata.ino(), metadata.len(), metadata.modified().ok())
}

/// What a runs directory holds, or one of its files.
#[derive(Clone, Debug, Default)]
pub struct Listing {
    /// The runs, oldest first.
    pub records: Vec<Record>,
    /// Files that could not be read, and why.
    pub damaged: Vec<String>,
}

impl Listing {
    /// Oldest first; of one time as people would order ids.
    fn sort(&mut self) {
        self.records.par_sort_by(|a, b| {
            a.created.cmp(&b.created).then_with(|| order(&a.run).cmp(&order(&b.run)))
        });
    }
}

/// The directory of a run that has begun and not ended.
#[derive(Clone, Debug)]
pub struct RunDir {
    /// The id under which the run is stored.
    pub id: String,
    /// The directory that holds its files: `runs/ID`.
    pub path: PathBuf,
}

/// `spec.json`: a run that has begun.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Started {
    schema: u32,
    run: String,
    spec: Spec,
    #[serde(default)]
    experiment: Option<String>,
    #[serde(default)]
    round: u32,
    created: String,
    /// The process that runs it, so that a later one can tell whether it died.
    process: Process,
}

impl Store {
    /// Opens the directory; creates nothing until something is stored.
    pub fn open(dir: impl Into<PathBuf>) -> Self {
        let dir = dir.into();
        regular::confine(&dir);
        Self {
            dir,
            ids: IdSource::system(),
            cache: Arc::default(),
            annotated: Arc::default(),
            qualities: Arc::default(),
            trainings: Arc::default(),
        }
    }

    /// Like [`Store::open`], but ids and times are the same at every execution: a clock that starts at
    /// `second` (since the epoch) and moves on by one second a look, and random digits from `seed`.
    pub fn open_reproducible(dir: impl Into<PathBuf>, second: i64, seed: u64) -> Self {
        Self { ids: IdSource::stepping(second, seed), ..Self::open(dir) }
    }

    /// The directory in which runs are stored.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// Now, RFC 3339 in UTC, as records have it in `created`.
    pub fn now(&self) -> String {
        id::rfc3339(self.ids.now())
    }

    /// All stored runs, oldest first, batches' rows included (as `BATCH:ROW` ids). Runs without a
    /// record are listed as running where their process does, else as interrupted. Damaged records are reported, not fatal.
    /// Rows of batches come without their environment; [`Store::get`] and [`Store::complete`] have it.
    ///
    /// # Errors
    ///
    /// A failure where the directory cannot be read; a damaged run is no error, but
    /// named in the listing.
    pub fn list(&self) -> Result<Listing> {
        let mut all = self.read_runs()?;
        let batches = self.batch_ids()?;
        let read: Vec<Listing> = batches.par_iter().map(|id| self.read_batch(id)).collect();
        for listing in read {
            all.records.extend(listing.records);
            all.damaged.extend(listing.damaged);
        }
        all.damaged.extend(self.annotations().damaged.iter().cloned());
        all.sort();
        self.rate(&mut all.records);
        Ok(all)
    }

    /// A number that stays the same while nothing that [`Store::list`] reads has changed. Costs a look at
    /// every run's directory, and reads none of the records.
    ///
    /// # Errors
    ///
    /// A failure where the directory cannot be read.
    pub fn fingerprint(&self) -> Result<u64> {
        let stamp = |path: &Path| path.symlink_metadata().ok().map(|there| stamp_of(&there));
        let runs: Vec<_> = self
            .run_ids()?
            .into_par_iter()
            .map(|id| {
                let ended = stamp(&self.dir.join(&id).join("record.json"));
                // a process that ends changes what is said of its run, and no file
                let liveness = if ended.is_none() { self.liveness(&id) } else { None };
                (id, ended, liveness)
            })
            .collect();
        let batches = self.batch_ids()?.into_iter().flat_map(|id| self.batch_files(&id));
        let batches: Vec<_> = batches.map(|file| (stamp(&file), file)).collect();
        let annotations = stamp(&self.dir.join(super::annotations::FILE));
        let beside = [self.texts_path(), self.finished_path()].map(|path| stamp(&path));
        Ok(FixedState::default().hash_one((runs, batches, annotations, beside)))
    }

    /// Like [`Store::list`], without the batches.
    ///
    /// # Errors
    ///
    /// A failure where the directory cannot be read; a damaged run is no error, but
    /// named in the listing.
    pub fn list_runs(&self) -> Result<Listing> {
        let mut all = self.read_runs()?;
        self.rate(&mut all.records);
        Ok(all)
    }

    fn read_runs(&self) -> Result<Listing> {
        let ids = self.run_ids()?;
        let known = self.cache.lock().is_ok_and(|cache| 2 * cache.len() > ids.len());
        // what this process has read already it need not read from the cache file
        let cached = if known { RecordCache::default() } else { RecordCache::open(&self.dir) };
        let read: Vec<(bool, Listing)> =
            ids.par_iter().map(|id| self.read_run_through(id, &cached)).collect();
        // the cache is a convenience: a directory that cannot be written can still be listed
        let _ = cached.append_new(&self.dir);
        let mut all = Listing::default();
        for (_, listing) in read {
            all.records.extend(listing.records);
            all.damaged.extend(listing.damaged);
        }
        all.sort();
        Ok(all)
    }

    /// Makes a run's directory with its spec, so that it is known even if everything dies now.
    /// `experiment` and `round` go into the record of an interrupted run.
    ///
    /// # Errors
    ///
    /// A failure where the directory cannot be made or written.
    pub fn begin(&self, spec: &Spec, experiment: Option<&str>, round: u32) -> Result<RunDir> {
        std::fs::create_dir_all(&self.dir).map_err(Error::io(&self.dir))?;
        // an id that is taken is a chance of one in 16 million a second; whoever makes its directory first has it
        for _ in 0..ID_DRAWS {
            let now = self.ids.now();
            let id = self.ids.id(now, &spec.architecture.to_string());
            let path = self.dir.join(&id);
            if path.exists() {
                continue;
            }
            let started = Started {
                schema: SCHEMA,
                run: id.clone(),
                spec: spec.clone(),
                experiment: experiment.map(str::to_owned),
                round,
                created: id::rfc3339(now),
                process: Process::current(),
            };
            // the directory appears with its spec in it
            let unfinished = UnfinishedDir::create(&path)?;
            atomic::write(&unfinished.path().join("spec.json"), &json(&started)?)?;
            match unfinished.finish() {
                // another process had the id, and renamed its own between the look above and here
                Err(error)
                    if matches!(
                        error.kind(),
                        ErrorKind::DirectoryNotEmpty | ErrorKind::AlreadyExists
                    ) => {}
                finished => {
                    finished.map_err(Error::io(&path))?;
                    return Ok(RunDir { id, path });
                }
            }
        }
        Err(Error::failed(format!("{}: no free run id was found", self.dir.display())))
    }

    /// Stores a finished (or failed) run: its `record.json`, whole or not at all.
    pub fn finish(&self, record: &Record) -> Result<()> {
        if !id::is_id(&record.run) {
            return Err(Error::failed(format!("'{}' cannot be a run's id", record.run)));
        }
        let path = self.dir.join(&record.run).join("record.json");
        if let Ok(there) = regular::read(&path)
            && let Some(schema) = table::schema_of(&there).filter(|s| *s > u64::from(SCHEMA))
        {
            return Err(Error::failed(format!(
                "{}: was written by a newer version (format {schema}, this build's is {SCHEMA}) and is not overwritten",
                path.display()
            )));
        }
        atomic::write(&path, &json(record)?)?;
        atomic::sync_dir(&self.dir)
    }

    /// The trace file of a record, if it has one and it is there.
    pub fn trace_path(&self, record: &Record) -> Option<PathBuf> {
        regular::inside(&self.dir, Path::new(record.trace.as_ref()?)).filter(|path| path.is_file())
    }

    /// Names of run directories, sorted.
    pub(super) fn run_ids(&self) -> Result<Vec<String>> {
        names(&self.dir, |entry| entry.is_dir.then(|| file_name(entry))?)
            .map(|ids| ids.into_iter().filter(|id| !NO_RUNS.contains(&id.as_str())).collect())
    }

    /// A run's record, or what can be said without one; and whether the run has ended.
    pub(super) fn read_run(&self, id: &str) -> (bool, Listing) {
        self.read_run_through(id, &RecordCache::default())
    }

    fn read_run_through(&self, id: &str, known: &RecordCache) -> (bool, Listing) {
        let path = self.dir.join(id).join("record.json");
        let loaded = self.cached(&path, |stamp| {
            let mut loaded = Listing::default();
            if let Some(record) = known.get(id, stamp) {
                loaded.records.push(record);
                return loaded;
            }
            match regular::read(&path).map_err(|e| e.to_string()).and_then(|b| table::parse(&b)) {
                Ok(mut record) => {
                    // a directory may have been renamed; its name is what it is found by
                    record.run = id.to_owned();
                    known.add(&record, stamp);
                    loaded.records.push(record);
                }
                Err(why) => loaded.damaged.push(format!("{}: {why}", path.display())),
            }
            loaded
        });
        match loaded {
            Some(loaded) => (true, Listing::clone(&loaded)),
            None => (false, self.read_unfinished(id)),
        }
    }

    /// Whether the process of a run that has no record still runs; `None` where it has one, or is no run.
    pub(super) fn liveness(&self, id: &str) -> Option<Liveness> {
        let run = self.dir.join(id);
        if run.join("record.json").exists() {
            return None;
        }
        let started: Started =
            serde_json::from_slice(&regular::read(&run.join("spec.json")).ok()?).ok()?;
        Some(started.process.liveness())
    }

    /// A run without a record: it still runs, or its process is gone.
    fn read_unfinished(&self, id: &str) -> Listing {
        let mut listing = Listing::default();
        let path = self.dir.join(id).join("spec.json");
        let started: Started = match regular::read(&path) {
            Ok(bytes) => match serde_json::from_slice(&bytes) {
                Ok(started) => started,
                Err(e) => {
                    listing.damaged.push(format!("{}: {e}", path.display()));
                    return listing;
                }
            },
            // neither record nor spec: not a run's directory
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => return listing,
            Err(e) => {
                listing.damaged.push(format!("{}: {e}", path.display()));
                return listing;
            }
        };
        let (process, since) = (&started.process, &started.created);
        let pid = process.pid;
        let task = process.slurm.as_ref().map_or(String::new(), |task| format!(", Slurm job {task}"));
        let on = process.host.as_ref().map_or(String::new(), |host| format!(" on {host}")) + &task;
        let (status, reason) = match process.liveness() {
            Liveness::Alive => (Status::Running, format!("since {since}, by process {pid}{on}")),
            Liveness::Gone => {
                (Status::Interrupted, format!("its process ({pid}) ended without leaving a record"))
            }
            Liveness::Elsewhere(_) => (
                Status::Interrupted,
                format!("no record; process {pid}{on} began it at {since} and may still run it there"),
            ),
        };
        let mut record = Record::new(started.spec, status, Some(reason));
        record.run = id.to_owned();
        record.created = started.created;
        record.round = started.round;
        record.experiment = started.experiment;
        listing.records.push(record);
        listing
    }

    /// What `read` makes of a file, unless it was read before and has not changed since. `None` where
    /// there is no such file.
    pub(super) fn cached(
        &self,
        path: &Path,
        read: impl FnOnce(&Stamp) -> Listing,
    ) -> Option<Arc<Listing>> {
        let metadata = path.symlink_metadata().ok()?;
        let stamp = stamp_of(&metadata);
        if let Ok(cache) = self.cache.lock()
            && let Some((seen, loaded)) = cache.get(path)
            && *seen == stamp
        {
            return Some(loaded.clone());
        }
        let loaded = Arc::new(read(&stamp));
        if loaded.records.len() <= KEPT
            && let Ok(mut cache) = self.cache.lock()
        {
            cache.insert(path.to_owned(), (stamp, loaded.clone()));
        }
        Some(loaded)
    }
}

fn json<T: Serialize>(value: &T) -> Result<Vec<u8>> {
    let mut bytes = serde_json::to_vec_pretty(value)
        .map_err(|e| Error::failed(format!("this cannot be written as JSON: {e}")))?;
    bytes.push(b'\n');
    Ok(bytes)
}

/// Sorts ids as people would: rows of a batch by number.
pub(super) fn order(id: &str) -> (&str, u32) {
    match id.split_once(':') {
        Some((batch, row)) => (batch, row.parse().unwrap_or(u32::MAX)),
        None => (id, 0),
    }
}

pub(super) fn file_name(entry: &Entry) -> Option<String> {
    id::is_id(&entry.name).then(|| entry.name.clone())
}

/// Sorted names of a directory's entries that `pick` wants; none where there is no directory.
pub(super) fn names(dir: &Path, pick: impl Fn(&Entry) -> Option<String>) -> Result<Vec<String>> {
    let entries = match regular::entries(dir) {
        Ok(entries) => entries,
        Err(e) if e.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
        Err(e) => return Err(Error::io(dir)(e)),
    };
    let mut names: Vec<String> = entries.iter().filter_map(pick).collect();
    names.sort_unstable();
    Ok(names)
}
