//! Runs directory: starts, finishes and lists runs.

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

/// Runs directory. Clones share their caches.
#[derive(Clone, Debug)]
pub struct Store {
    dir: PathBuf,
    pub(super) ids: IdSource,
    /// Parsed files, valid while the file is unchanged.
    cache: Arc<Mutex<Cache>>,
    /// Parsed annotations, valid while their file is unchanged.
    pub(super) annotated: Arc<Mutex<Seen<Arc<Annotations>>>>,
    /// Quality of the models, valid until another evaluation finishes.
    pub(super) qualities: Arc<Mutex<Seen<Arc<Qualities>>>>,
    /// Finished trainings, valid until another training finishes.
    pub(super) trainings: Arc<Mutex<Seen<Arc<Vec<Training>>>>>,
}

type Cache = HashMap<PathBuf, (Stamp, Arc<Listing>)>;

/// Parsed value and the stamp of its file.
type Seen<T> = Option<(Stamp, T)>;

/// Inode, length and modification time, which identify the version of a file that was read.
pub(super) type Stamp = (u64, u64, Option<SystemTime>);

const ID_DRAWS: usize = 100;

/// Maximum number of records of a batch file in the cache. Larger files are read again, to avoid holding them twice.
const KEPT: usize = 4096;

/// Folders of a runs directory that are not runs.
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

/// Contents of a runs directory or of one of its files.
#[derive(Clone, Debug, Default)]
pub struct Listing {
    /// Runs, oldest first.
    pub records: Vec<Record>,
    /// Errors of unreadable files.
    pub damaged: Vec<String>,
}

impl Listing {
    /// Sorts by time, then by id with numeric rows.
    fn sort(&mut self) {
        self.records.par_sort_by(|a, b| {
            a.created.cmp(&b.created).then_with(|| order(&a.run).cmp(&order(&b.run)))
        });
    }
}

/// Directory of a run that is in progress.
#[derive(Clone, Debug)]
pub struct RunDir {
    pub id: String,
    /// Directory of its files: `runs/ID`.
    pub path: PathBuf,
}

/// Contents of `spec.json`, written when a run starts.
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
    /// Process that executes the run; shows later if it died.
    process: Process,
}

impl Store {
    /// Opens the directory. Creates nothing until something is stored.
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

    /// Like [`Store::open`], but with reproducible ids and times: a clock that starts at `second` (since the epoch)
    /// and advances by one second per read, and random digits from `seed`.
    pub fn open_reproducible(dir: impl Into<PathBuf>, second: i64, seed: u64) -> Self {
        Self { ids: IdSource::stepping(second, seed), ..Self::open(dir) }
    }

    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// Current time, RFC 3339 in UTC, as in `created` of records.
    pub fn now(&self) -> String {
        id::rfc3339(self.ids.now())
    }

    /// All stored runs, oldest first, including rows of batches (with `BATCH:ROW` ids). Runs without a record count
    /// as running if their process is alive, else as interrupted. Rows of batches lack their environment;
    /// [`Store::get`] and [`Store::complete`] provide it.
    ///
    /// # Errors
    ///
    /// Returns a failure if the directory cannot be read. Damaged runs are reported in the listing instead.
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

    /// Hash that stays the same while nothing that [`Store::list`] reads has changed. Reads the metadata of every
    /// run, but no records. Fails if the directory cannot be read.
    pub fn fingerprint(&self) -> Result<u64> {
        let stamp = |path: &Path| path.symlink_metadata().ok().map(|there| stamp_of(&there));
        let runs: Vec<_> = self
            .run_ids()?
            .into_par_iter()
            .map(|id| {
                let ended = stamp(&self.dir.join(&id).join("record.json"));
                // the end of a process changes the status of its run without changing a file
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
    /// Returns a failure if the directory cannot be read. Damaged runs are reported in the listing instead.
    pub fn list_runs(&self) -> Result<Listing> {
        let mut all = self.read_runs()?;
        self.rate(&mut all.records);
        Ok(all)
    }

    fn read_runs(&self) -> Result<Listing> {
        let ids = self.run_ids()?;
        let known = self.cache.lock().is_ok_and(|cache| 2 * cache.len() > ids.len());
        // skips the cache file if this process already has most records in memory
        let cached = if known { RecordCache::default() } else { RecordCache::open(&self.dir) };
        let read: Vec<(bool, Listing)> =
            ids.par_iter().map(|id| self.read_run_through(id, &cached)).collect();
        // a failure to write the cache does not matter: the directory may be read-only
        let _ = cached.append_new(&self.dir);
        let mut all = Listing::default();
        for (_, listing) in read {
            all.records.extend(listing.records);
            all.damaged.extend(listing.damaged);
        }
        all.sort();
        Ok(all)
    }

    /// Creates a run's directory with its spec, so that the run is known even after a crash. `experiment` and `round`
    /// go into the record of an interrupted run. Fails if the directory cannot be created or written.
    pub fn begin(&self, spec: &Spec, experiment: Option<&str>, round: u32) -> Result<RunDir> {
        std::fs::create_dir_all(&self.dir).map_err(Error::io(&self.dir))?;
        // two runs in one second get the same id with a chance of 1 in 16 million; the first to create the directory
        // keeps it
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
            // the directory becomes visible together with its spec
            let unfinished = UnfinishedDir::create(&path)?;
            atomic::write(&unfinished.path().join("spec.json"), &json(&started)?)?;
            match unfinished.finish() {
                // another process took the id after the check above
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

    /// Stores the record of a finished or failed run as `record.json`, atomically.
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

    /// Trace file of a record, if it exists.
    pub fn trace_path(&self, record: &Record) -> Option<PathBuf> {
        regular::inside(&self.dir, Path::new(record.trace.as_ref()?)).filter(|path| path.is_file())
    }

    /// Names of run directories, sorted.
    pub(super) fn run_ids(&self) -> Result<Vec<String>> {
        names(&self.dir, |entry| entry.is_dir.then(|| file_name(entry))?)
            .map(|ids| ids.into_iter().filter(|id| !NO_RUNS.contains(&id.as_str())).collect())
    }

    /// Record of a run, or a substitute without `record.json`. The bool is true if the run has ended.
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
                    // a directory may have been renamed, and runs are found by directory name
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

    /// Liveness of the process of a run without a record; `None` if there is a record or no run.
    pub(super) fn liveness(&self, id: &str) -> Option<Liveness> {
        let run = self.dir.join(id);
        if run.join("record.json").exists() {
            return None;
        }
        let started: Started =
            serde_json::from_slice(&regular::read(&run.join("spec.json")).ok()?).ok()?;
        Some(started.process.liveness())
    }

    /// Substitute record of a run without one: running or interrupted.
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

    /// Result of `read` for a file, cached while the file is unchanged. `None` if there is no such file.
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

/// Sort key of an id: rows of a batch sort by number.
pub(super) fn order(id: &str) -> (&str, u32) {
    match id.split_once(':') {
        Some((batch, row)) => (batch, row.parse().unwrap_or(u32::MAX)),
        None => (id, 0),
    }
}

pub(super) fn file_name(entry: &Entry) -> Option<String> {
    id::is_id(&entry.name).then(|| entry.name.clone())
}

/// Sorted names of directory entries selected by `pick`; empty if there is no directory.
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
