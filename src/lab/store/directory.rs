//! Runs directory: starts, finishes and lists runs.

use std::collections::HashMap;
use std::hash::BuildHasher;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::SystemTime;

use foldhash::fast::FixedState;
use jiff::Timestamp;
use rayon::prelude::*;
use rustix::rand::{GetRandomFlags, getrandom};
use serde::de::IgnoredAny;
use serde::{Deserialize, Serialize};

use super::annotations::Annotations;
use super::claims::{Liveness, ProcessIdentity};
use super::evaluations::QualityIndex;
use super::log::{Derived, Stamp, stamp};
use base::atomic::{AtomicFile, UnfinishedDir};
use base::checksum::{Check, Checksum};
use base::error::{Error, Result};
use base::regular::DirectoryEntry;
use base::{atomic, regular};
use table::{Environment, Record, SCHEMA, Spec, Status, Training};

/// Runs directory. Clones share what they remember.
#[derive(Clone, Debug)]
pub struct Store {
    dir: PathBuf,
    pub(super) ids: IdSource,
    /// Files read before, if [`Store::remembering`].
    remembered: Option<Arc<Mutex<Remembered>>>,
    pub(super) annotated: Derived<Annotations>,
    pub(super) qualities: Derived<QualityIndex>,
    /// Finished trainings, newest first.
    pub(super) trainings: Derived<Vec<Training>>,
}

type Remembered = HashMap<PathBuf, (Stamp, Listing)>;

const ID_DRAWS: usize = 100;

/// Checksum of a record's file; records of early versions have none.
const CHECKSUM: Checksum = Checksum { mark: "\"checksum\": \"sha256:", zeroed: false };

/// Error of a file whose checksum is gone or does not match.
pub(super) const CHANGED: &str = "it was changed after it was written: its checksum does not match";

/// Folders of a runs directory that are not runs.
pub(super) const NO_RUNS: [&str; 7] = [
    super::batches::FOLDER,
    super::copies::RECORDINGS,
    super::documents::CONVERSIONS,
    super::evaluations::FOLDER,
    super::documents::BASELINES,
    super::documents::PREDICTIONS,
    super::trainings::FOLDER,
];

/// Contents of a runs directory or of one of its files.
#[derive(Clone, Debug, Default)]
pub struct Listing {
    /// Runs, oldest first.
    pub records: Vec<Record>,
    /// Errors of unreadable files.
    pub damaged: Vec<String>,
}

impl Listing {
    pub(super) fn damaged(path: &Path, why: &str) -> Self {
        Self { records: Vec::new(), damaged: vec![format!("{}: {why}", path.display())] }
    }

    /// Joins listings. Allocates the list of records once: records are large, and there may be many.
    pub(super) fn joined(parts: Vec<Self>) -> Self {
        let count: usize = parts.iter().map(|part| part.records.len()).sum();
        let mut parts = parts.into_iter();
        let mut all = parts.next().unwrap_or_default();
        all.records.reserve_exact(count - all.records.len());
        for mut part in parts {
            all.records.append(&mut part.records);
            all.damaged.append(&mut part.damaged);
        }
        all
    }

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
pub(super) struct StartedRun {
    schema: u32,
    run: String,
    spec: Spec,
    #[serde(default)]
    experiment: Option<String>,
    #[serde(default)]
    round: u32,
    created: String,
    /// Process that executes the run; shows later if it died.
    process: ProcessIdentity,
}

impl Store {
    /// Opens the directory. Creates nothing until something is stored.
    pub fn open(dir: impl Into<PathBuf>) -> Self {
        let dir = dir.into();
        regular::confine(&dir);
        Self {
            dir,
            ids: IdSource::system(),
            remembered: None,
            annotated: Derived::default(),
            qualities: Derived::default(),
            trainings: Derived::default(),
        }
    }

    /// Keeps what it reads in memory and reads only changed files again, for a process that lists often.
    pub fn remembering(self) -> Self {
        Self { remembered: Some(Arc::default()), ..self }
    }

    /// Like [`Store::open`], but with reproducible ids and times: a clock that starts at `second` (since the epoch)
    /// and advances by one second per read, and random digits from `seed`.
    pub fn open_reproducible(dir: impl Into<PathBuf>, second: i64, seed: u64) -> Self {
        Self { ids: IdSource::stepping(second, seed), ..Self::open(dir) }
    }

    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// A folder of the directory. Fails if something else has its name.
    pub(crate) fn folder(&self, name: &str) -> Result<PathBuf> {
        let folder = self.dir.join(name);
        regular::check_directory(&folder).map_err(Error::io(&folder))?;
        Ok(folder)
    }

    /// Current time, RFC 3339 in UTC, as in `created` of records.
    pub fn now(&self) -> String {
        rfc3339(self.ids.now())
    }

    /// All stored runs, oldest first, including rows of batches (with `BATCH:ROW` ids). Runs without a record count
    /// as running if their process is alive, else as interrupted. Rows of batches lack their environment;
    /// [`Store::get`] and [`Store::complete`] provide it.
    ///
    /// # Errors
    ///
    /// Returns a failure if the directory cannot be read. Damaged runs are reported in the listing instead.
    pub fn list(&self) -> Result<Listing> {
        let mut read = vec![self.read_runs(|record| record)?];
        let batches = self.segments()?;
        read.par_extend(batches.par_iter().map(|(id, files)| self.read_batch(id, files)));
        let mut all = Listing::joined(read);
        all.damaged.extend(self.annotations().damaged.iter().cloned());
        all.sort();
        self.attach_quality(&mut all.records);
        Ok(all)
    }

    /// Hash that stays the same while nothing that [`Store::list`] reads has changed. Reads the metadata of every
    /// run, but no records. Fails if the directory cannot be read.
    pub fn fingerprint(&self) -> Result<u64> {
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
        let mut files: Vec<PathBuf> = self.segments()?.into_values().flatten().collect();
        files.extend([self.annotations_path(), self.texts_path(), self.finished_path()]);
        let files: Vec<_> = files.into_iter().map(|file| (stamp(&file), file)).collect();
        Ok(FixedState::default().hash_one((runs, files)))
    }

    /// Like [`Store::list`], without the batches.
    ///
    /// # Errors
    ///
    /// Returns a failure if the directory cannot be read. Damaged runs are reported in the listing instead.
    pub fn list_runs(&self) -> Result<Listing> {
        let mut all = self.read_runs(|record| record)?;
        self.attach_quality(&mut all.records);
        Ok(all)
    }

    /// Like [`Store::list_runs`], without samples and environments, which take most of the memory.
    ///
    /// # Errors
    ///
    /// Returns the same errors as [`Store::list_runs`].
    pub fn list_runs_in_short(&self) -> Result<Listing> {
        let mut all = self.read_runs(|record| Record {
            samples: Arc::default(),
            environment: Environment::new(),
            ..record
        })?;
        self.attach_quality(&mut all.records);
        Ok(all)
    }

    fn read_runs(&self, kept: impl Fn(Record) -> Record + Sync) -> Result<Listing> {
        let read = |id: &String| {
            let (_, Listing { records, damaged }) = self.read_run(id);
            Listing { records: records.into_iter().map(&kept).collect(), damaged }
        };
        let mut all = Listing::joined(self.run_ids()?.par_iter().map(read).collect());
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
            let started = StartedRun {
                schema: SCHEMA,
                run: id.clone(),
                spec: spec.clone(),
                experiment: experiment.map(str::to_owned),
                round,
                created: rfc3339(now),
                process: ProcessIdentity::current(),
            };
            // the directory becomes visible together with its spec
            let unfinished = UnfinishedDir::create(&path)?;
            atomic::write(&unfinished.path().join("spec.json"), &json(&started)?)?;
            // false if another process took the id after the check above
            if is_named(unfinished.finish(), &path)? {
                return Ok(RunDir { id, path });
            }
        }
        Err(Error::failed(format!("{}: no free run id was found", self.dir.display())))
    }

    /// Stores the record of a finished or failed run as `record.json`, atomically.
    pub fn finish(&self, record: &Record) -> Result<()> {
        if !is_id(&record.run) {
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
        let mut bytes = json(record)?;
        // the last key, so that it is found from the end
        bytes.truncate(bytes.len() - "\n}\n".len());
        bytes.extend_from_slice(format!(",\n  {}\"\n}}\n", CHECKSUM.blank()).as_bytes());
        CHECKSUM.fill(&mut bytes);
        atomic::write(&path, &bytes)?;
        atomic::sync_dir(&self.dir)
    }

    /// Trace file of a record, if it exists.
    pub fn trace_path(&self, record: &Record) -> Option<PathBuf> {
        regular::join_inside(&self.dir, Path::new(record.trace.as_ref()?)).filter(|path| path.is_file())
    }

    /// Names of run directories, sorted.
    pub(super) fn run_ids(&self) -> Result<Vec<String>> {
        names(&self.dir, |entry| entry.is_dir.then(|| file_name(entry))?)
            .map(|ids| ids.into_iter().filter(|id| !NO_RUNS.contains(&id.as_str())).collect())
    }

    /// Record of a run, or a substitute without `record.json`. The bool is true if the run has ended.
    pub(super) fn read_run(&self, id: &str) -> (bool, Listing) {
        let path = self.dir.join(id).join("record.json");
        let mut has_ended = true;
        let loaded = self.cached(&path, || match read_record(&path) {
            // a directory may have been renamed, and runs are found by directory name
            Ok((record, _)) => {
                Listing { records: vec![Record { run: id.to_owned(), ..record }], damaged: Vec::new() }
            }
            Err(_) if stamp(&path).is_none() => {
                has_ended = false;
                self.read_unfinished(id)
            }
            Err(why) => Listing::damaged(&path, &why),
        });
        (has_ended, loaded)
    }

    /// Liveness of the process of a run without a record; `None` if there is a record or no run.
    pub(super) fn liveness(&self, id: &str) -> Option<Liveness> {
        let run = self.dir.join(id);
        if run.join("record.json").exists() {
            return None;
        }
        Some(started(&run).ok()?.process.liveness())
    }

    /// Substitute record of a run without one: running or interrupted.
    fn read_unfinished(&self, id: &str) -> Listing {
        let run = self.dir.join(id);
        let started = match started(&run) {
            Ok(started) => started,
            // neither record nor spec: not a run's directory
            Err(e) if e.kind() == ErrorKind::NotFound => return Listing::default(),
            Err(e) => return Listing::damaged(&run.join("spec.json"), &e.to_string()),
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
        Listing { records: vec![record], damaged: Vec::new() }
    }

    /// Contents of a file: remembered ones if it is unchanged.
    pub(super) fn cached(&self, path: &Path, read: impl FnOnce() -> Listing) -> Listing {
        let Some(remembered) = &self.remembered else { return read() };
        let Some(stamp) = stamp(path) else { return read() };
        if let Ok(remembered) = remembered.lock()
            && let Some((seen, listing)) = remembered.get(path)
            && *seen == stamp
        {
            return listing.clone();
        }
        let listing = read();
        if let Ok(mut remembered) = remembered.lock() {
            remembered.insert(path.to_owned(), (stamp, listing.clone()));
        }
        listing
    }

    /// Prepares the directory for writing: creates it, checks that it is writable, and removes unfinished files and
    /// claims of processes that are gone.
    ///
    /// # Errors
    ///
    /// Returns an input error if the directory cannot be created or written, before anything is computed.
    pub fn prepare(&self) -> Result<()> {
        let dir = self.dir();
        let refused = |why: String| {
            Error::input_help(
                format!("{}: runs cannot be stored there: {why}", dir.display()),
                "pass a writable directory with --dir DIR",
            )
        };
        std::fs::create_dir_all(dir).map_err(|e| refused(e.to_string()))?;
        // neither is finished, so dropping them removes both
        let probe = dir.join("probe");
        let probed = AtomicFile::create(&probe).and_then(|_| UnfinishedDir::create(&probe));
        drop(probed.map_err(|e| match e {
            Error::Io { source, .. } => refused(source.to_string()),
            other => refused(other.to_string()),
        })?);
        self.remove_abandoned();
        Ok(())
    }

    /// Removes leftovers of processes that were killed or met a full disk, if their process is provably gone. Files
    /// that cannot be removed do no harm and stay.
    pub fn remove_abandoned(&self) {
        atomic::remove_abandoned(self.dir());
        self.remove_abandoned_claims();
    }
}

/// Reads a record and verifies its checksum, which early versions lack. The bool is true if it has one.
pub(super) fn read_record(path: &Path) -> Result<(Record, bool), String> {
    let bytes = regular::read(path).map_err(|e| e.to_string())?;
    let record = table::parse(&bytes)?;
    let has_key = || {
        std::str::from_utf8(&bytes).is_ok_and(|text| text.contains("\"checksum\""))
            && serde_json::from_slice::<HashMap<String, IgnoredAny>>(&bytes)
                .is_ok_and(|keys| keys.contains_key("checksum"))
    };
    match CHECKSUM.check(&bytes) {
        Check::Intact => Ok((record, true)),
        // another program may write the key in another way
        Check::Missing if !has_key() => Ok((record, false)),
        Check::Missing | Check::Changed => Err(CHANGED.into()),
    }
}

/// Reads the `spec.json` of a run.
fn started(run: &Path) -> std::io::Result<StartedRun> {
    Ok(serde_json::from_slice(&regular::read(&run.join("spec.json"))?)?)
}

/// True if a rename to a new name succeeded, false if the name was taken.
pub(super) fn is_named(renamed: std::io::Result<()>, into: &Path) -> Result<bool> {
    match renamed {
        Ok(()) => Ok(true),
        Err(e) if matches!(e.kind(), ErrorKind::DirectoryNotEmpty | ErrorKind::AlreadyExists) => {
            Ok(false)
        }
        Err(e) => Err(Error::io(into)(e)),
    }
}

pub(super) fn json<T: Serialize>(value: &T) -> Result<Vec<u8>> {
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

pub(super) fn file_name(entry: &DirectoryEntry) -> Option<String> {
    is_id(&entry.name).then(|| entry.name.clone())
}

/// Sorted names of directory entries selected by `pick`; empty if there is no directory.
pub(super) fn names(
    dir: &Path,
    pick: impl Fn(&DirectoryEntry) -> Option<String>,
) -> Result<Vec<String>> {
    let entries = regular::if_exists(regular::entries(dir)).map_err(Error::io(dir))?;
    let mut names: Vec<String> = entries.iter().flatten().filter_map(pick).collect();
    names.sort_unstable();
    Ok(names)
}

/// Source of time and randomness for ids.
#[derive(Clone, Debug)]
pub(super) struct IdSource {
    /// Seconds since the epoch, advanced by one with every read; `None` for the system's clock.
    clock: Option<Arc<AtomicI64>>,
    random: Arc<Mutex<fastrand::Rng>>,
}

impl IdSource {
    pub fn system() -> Self {
        let mut seed = [0; 8];
        let got = getrandom(&mut seed, GetRandomFlags::empty());
        // `fastrand` seeds itself from the clock: cluster tasks that start together would draw the same ids
        let random = match got {
            Ok(8) => fastrand::Rng::with_seed(u64::from_ne_bytes(seed)),
            _ => fastrand::Rng::with_seed(fastrand::u64(..) ^ u64::from(std::process::id())),
        };
        Self { clock: None, random: Arc::new(Mutex::new(random)) }
    }

    /// Clock that starts at `second` and advances by one second per read; random digits from `seed`.
    pub fn stepping(second: i64, seed: u64) -> Self {
        Self {
            clock: Some(Arc::new(AtomicI64::new(second))),
            random: Arc::new(Mutex::new(fastrand::Rng::with_seed(seed))),
        }
    }

    /// Current time, or the next second of a stepping clock.
    pub fn now(&self) -> Timestamp {
        match &self.clock {
            Some(second) => {
                Timestamp::from_second(second.fetch_add(1, Ordering::SeqCst)).unwrap_or_default()
            }
            // a system clock out of the range of dates is no reason to abort
            None => SystemTime::now().try_into().unwrap_or(Timestamp::MAX),
        }
    }

    /// Id for something called `word`, created at `now`.
    pub fn id(&self, now: Timestamp, word: &str) -> String {
        let random = match self.random.lock() {
            Ok(mut random) => random.u32(..),
            Err(poisoned) => poisoned.into_inner().u32(..),
        };
        id(now, word, random)
    }
}

/// Id that sorts by time: UTC, a readable word and random digits, e.g. `20261121-043012-ladder-a1b2c3`.
fn id(now: Timestamp, word: &str, random: u32) -> String {
    let word: String = word
        .chars()
        .filter_map(|c| match c {
            'a'..='z' | '0'..='9' | '-' => Some(c),
            'A'..='Z' => Some(c.to_ascii_lowercase()),
            '+' | '.' | '_' => Some('-'),
            _ => None,
        })
        .take(24)
        .collect();
    format!("{}-{word}-{:06x}", now.strftime("%Y%m%d-%H%M%S"), random & 0xff_ffff)
}

/// RFC 3339 in UTC with microseconds. Fixed length, so text order is time order.
pub(super) fn rfc3339(now: Timestamp) -> String {
    now.strftime("%Y-%m-%dT%H:%M:%S.%6fZ").to_string()
}

/// True if a name is a valid id, and thus safe as a file name.
pub(super) fn is_id(name: &str) -> bool {
    !name.is_empty()
        && !name.starts_with('.')
        && name.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.' | '+'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_readable_sort_by_time_and_are_names_of_files() {
        let source = IdSource::stepping(1_795_235_412, 7);
        let ids: Vec<String> = ["ladder", "desync:4", "ladder:[0+2]", "parallel+ladder"]
            .iter()
            .map(|word| source.id(source.now(), word))
            .collect();
        assert!(ids[0].starts_with("20261121-043012-ladder-"), "{}", ids[0]);
        assert!(ids[1].starts_with("20261121-043013-desync4-"), "{}", ids[1]);
        assert!(ids[2].starts_with("20261121-043014-ladder0-2-"), "{}", ids[2]);
        assert!(ids.is_sorted());
        assert!(ids.iter().all(|id| is_id(id)));
        assert!(!is_id("../escape") && !is_id("") && !is_id(".tmp-1") && !is_id("a:1"));
    }

    #[test]
    fn times_have_one_width() {
        let whole = rfc3339(Timestamp::from_second(0).unwrap());
        assert_eq!(whole, "1970-01-01T00:00:00.000000Z");
        assert_eq!(rfc3339(Timestamp::now()).len(), whole.len());
    }
}
