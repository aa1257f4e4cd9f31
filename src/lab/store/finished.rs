//! Index of finished cells, with which `sweep` skips them. Holds the locations of records, not the records, of which
//! there may be a hundred thousand.

use std::collections::{HashMap, HashSet};

use super::batches::RowReader;
use super::directory::{self, Listing, Store, order};
use crate::sweep::SweepSelection;
use base::error::{Error, Result, nearest};
use table::{Record, Status};

/// Finished runs by [`table::Spec::key`] and round, the newest of each.
#[derive(Default)]
pub struct Finished<'a> {
    places: HashMap<String, Vec<StoredRun>>,
    /// Runs outside batches. They are few and already loaded.
    runs: Vec<Record>,
    /// Batch ids, indexed by [`At::Row`].
    batches: Vec<String>,
    reader: Option<RowReader<'a>>,
}

struct StoredRun {
    round: u32,
    created: String,
    at: At,
}

#[derive(Clone, Copy)]
enum At {
    /// Run with its own directory: index into `runs`.
    Run(usize),
    /// Row of a batch: index into `batches`, and row number.
    Row(u32, u32),
}

impl SweepSelection {
    /// Earliest creation time, as stored, of the finished runs that a sweep with this choice does not start again; empty
    /// without a limit.
    pub fn kept_since(self) -> String {
        match self {
            Self::Again(since) => directory::rfc3339(since),
            Self::Missing | Self::Failed => String::new(),
        }
    }
}

impl Store {
    /// Finished runs of the cells with these keys. Fails if the directory cannot be read.
    pub(crate) fn finished_of(&self, wanted: &HashSet<&str>) -> Result<Finished<'_>> {
        self.finished_if(|key| wanted.contains(key))
    }

    /// Finished runs of the cells with these keys that a sweep with this choice does not start.
    pub(crate) fn finished_for(
        &self,
        choice: SweepSelection,
        wanted: &HashSet<&str>,
    ) -> Result<Finished<'_>> {
        let mut finished = self.finished_of(wanted)?;
        let since = choice.kept_since();
        finished.places.values_mut().for_each(|places| places.retain(|place| place.created >= since));
        Ok(finished)
    }

    /// Runs (cell key and round) of these cells that failed or were interrupted and never succeeded. Fails if the
    /// directory cannot be read.
    pub(crate) fn failed_of(&self, wanted: &HashSet<&str>) -> Result<HashSet<(String, u32)>> {
        let finished = self.finished_of(wanted)?;
        let mut failed = HashSet::new();
        let mut add = |key: &str, round: u32| {
            if wanted.contains(key) && !finished.contains(key, round) {
                failed.insert((key.to_owned(), round));
            }
        };
        let ended_badly = |status| matches!(status, Status::Failed | Status::Interrupted);
        let runs = self.list_runs_in_short()?.records;
        for record in runs.iter().filter(|record| ended_badly(record.status)) {
            add(&record.spec.key(), record.round);
        }
        for (id, files) in &self.segments()? {
            self.each_key(id, files, false, |_, key, round, _| add(key, round));
        }
        Ok(failed)
    }

    /// Finished runs of all cells. Fails if the directory cannot be read.
    pub fn finished(&self) -> Result<Finished<'_>> {
        self.finished_if(|_| true)
    }

    fn finished_if(&self, wanted: impl Fn(&str) -> bool) -> Result<Finished<'_>> {
        let mut finished = Finished { reader: Some(RowReader::new(self)), ..Finished::default() };
        for record in self.list_runs()?.records.into_iter().filter(Record::is_finished) {
            let key = record.spec.key();
            if wanted(&key) {
                let (round, created) = (record.round, record.created.clone());
                finished.runs.push(record);
                finished.add(&key, StoredRun { round, created, at: At::Run(finished.runs.len() - 1) });
            }
        }
        let batches = self.segments()?;
        finished.batches = batches.keys().cloned().collect();
        for (batch, (id, files)) in (0..).zip(&batches) {
            self.each_key(id, files, true, |row, key, round, created| {
                if wanted(key) {
                    let at = At::Row(batch, row);
                    finished.add(key, StoredRun { round, created: created.to_owned(), at });
                }
            });
        }
        Ok(finished)
    }
}

/// Runs outside batches that have ended, collected incrementally.
#[derive(Debug, Default)]
pub struct EndedRuns {
    known: HashSet<String>,
    finished: HashMap<(String, u32), Record>,
}

impl Store {
    /// Finished run of a cell, including those that other processes have just finished. Lists the directory and reads
    /// only the records that `ended` lacks. Fails if the directory cannot be read.
    pub(crate) fn newly_finished(
        &self,
        ended: &mut EndedRuns,
        key: &str,
        round: u32,
    ) -> Result<Option<Record>> {
        for (record, has_ended) in self.new_runs(ended)? {
            if has_ended && record.is_finished() {
                ended.finished.insert((record.spec.key(), record.round), record);
            }
        }
        Ok(ended.finished.get(&(key.to_owned(), round)).cloned())
    }

    /// Runs outside batches that `ended` lacks, including those of other processes, each with true if it has a
    /// record. Runs with a record are returned once, others every time. Fails if the directory cannot be read.
    pub(crate) fn new_runs(&self, ended: &mut EndedRuns) -> Result<Vec<(Record, bool)>> {
        let mut new = Vec::new();
        for id in self.run_ids()?.into_iter().filter(|id| !ended.known.contains(id)).collect::<Vec<_>>()
        {
            let (has_ended, listing) = self.read_run(&id);
            new.extend(listing.records.into_iter().map(|record| (record, has_ended)));
            if has_ended {
                ended.known.insert(id);
            }
        }
        Ok(new)
    }

    /// True if a run or batch is stored or in the trash.
    pub fn has(&self, id: &str) -> bool {
        self.has_run(id) || !self.batch_files(id).is_empty()
    }

    /// True if a run is stored or in the trash.
    pub(super) fn has_run(&self, id: &str) -> bool {
        self.dir().join(id).join("record.json").exists() || self.is_in_trash(id)
    }
}

impl Finished<'_> {
    /// True if this cell and round is finished.
    pub fn contains(&self, key: &str, round: u32) -> bool {
        self.place(key, round).is_some()
    }

    /// Record of a cell and round; `None` if missing or unreadable.
    pub fn get(&mut self, key: &str, round: u32) -> Option<Record> {
        match self.place(key, round)?.at {
            At::Run(index) => self.runs.get(index).cloned(),
            At::Row(batch, row) => {
                let batch = self.batches.get(batch as usize)?;
                self.reader.as_mut()?.get(batch, row).ok()?
            }
        }
    }

    pub fn len(&self) -> usize {
        self.places.values().map(Vec::len).sum()
    }

    pub fn is_empty(&self) -> bool {
        self.places.is_empty()
    }

    fn place(&self, key: &str, round: u32) -> Option<&StoredRun> {
        self.places.get(key)?.iter().find(|place| place.round == round)
    }

    /// Adds a run, keeping only the newest of a cell and round.
    fn add(&mut self, key: &str, place: StoredRun) {
        let known = self.places.get(key).map(Vec::as_slice).unwrap_or_default();
        match known.iter().position(|there| there.round == place.round) {
            None => self.places.entry(key.to_owned()).or_default().push(place),
            Some(at) => {
                let there = &known[at];
                if (&place.created, self.order(place.at)) >= (&there.created, self.order(there.at))
                    && let Some(there) = self.places.get_mut(key).and_then(|known| known.get_mut(at))
                {
                    *there = place;
                }
            }
        }
    }

    fn order(&self, at: At) -> (&str, u32) {
        match at {
            At::Run(index) => self.runs.get(index).map(|run| order(&run.run)).unwrap_or_default(),
            At::Row(batch, row) => (self.batches.get(batch as usize).map_or("", String::as_str), row),
        }
    }
}

impl Store {
    /// Finds one run by id, unique prefix of an id, `BATCH:ROW` (`BATCH` alone if it has one row), or `last`: the
    /// newest that has ended.
    ///
    /// # Errors
    ///
    /// Returns an input error for an unknown run (with the nearest id), an ambiguous prefix, or a batch of several
    /// rows, and a failure if the record is damaged.
    pub fn get(&self, id: &str) -> Result<Record> {
        let mut record = self.find(id)?;
        self.attach_quality(std::slice::from_mut(&mut record));
        Ok(record)
    }

    fn find(&self, id: &str) -> Result<Record> {
        if id == "last" {
            return self.last();
        }
        if let Some((batch, row)) = id.split_once(':') {
            let batch = self.unique(batch, self.batch_ids()?)?;
            let row_number: u32 = row.parse().map_err(|_| {
                Error::input_help(
                    format!("run '{id}': '{row}' is not a row"),
                    "write BATCH:ROW, rows from 0",
                )
            })?;
            return self.row(&batch, row_number);
        }
        let batches = self.segments()?;
        let mut all = self.run_ids()?;
        all.extend(batches.keys().cloned());
        let id = self.unique(id, all)?;
        if let Some(files) = batches.get(&id) {
            let (rows, damaged) = self.batch_rows(&id, files);
            return match rows.as_slice() {
                [row] => self.row(&id, *row),
                [] => Err(damaged.unwrap_or_else(|| Error::failed(format!("batch '{id}' has no rows")))),
                [first, .., last] => Err(Error::input_help(
                    format!("'{id}' is a batch of {} runs", rows.len()),
                    format!("pass one of its rows: {id}:{first} ... {id}:{last}"),
                )),
            };
        }
        let (_, mut listing) = self.read_run(&id);
        listing.records.pop().ok_or_else(|| damaged(&listing, &id))
    }

    /// Ids of all runs and batches, newest first. Reads only file names. Fails if the directory cannot be read.
    pub fn ids(&self) -> Result<Vec<String>> {
        let mut ids = self.run_ids()?;
        ids.extend(self.batch_ids()?);
        ids.retain(|id| !id.starts_with('.'));
        ids.sort_unstable_by(|a, b| b.cmp(a));
        Ok(ids)
    }

    /// Newest run that has ended, or the newest one if none has.
    fn last(&self) -> Result<Record> {
        let runs = self.list_runs()?.records;
        let ended = runs.iter().rposition(Record::has_ended);
        let run = ended.map(|at| &runs[at]).or(runs.last());
        let newest = self.batches()?.0.pop();
        match (run, newest) {
            (Some(run), Some(newest))
                if run.has_ended() && (&run.created, &run.run) > (&newest.created, &newest.batch) =>
            {
                Ok(run.clone())
            }
            (_, Some(newest)) => {
                let (rows, _) = self.batch_rows(&newest.batch, &self.batch_files(&newest.batch));
                let last = rows.last().ok_or_else(|| Error::failed("a batch without rows"))?;
                self.row(&newest.batch, *last)
            }
            (Some(run), None) => Ok(run.clone()),
            (None, None) => Err(Error::input(format!("no runs in {}", self.dir().display()))),
        }
    }

    /// Resolves a full id or a unique prefix.
    fn unique(&self, start: &str, ids: Vec<String>) -> Result<String> {
        if ids.iter().any(|id| id == start) {
            return Ok(start.to_owned());
        }
        let matches: Vec<&String> = ids.iter().filter(|id| id.starts_with(start)).collect();
        match matches.as_slice() {
            [id] if !start.is_empty() => Ok((*id).clone()),
            [] if self.is_in_trash(start) => Err(deleted(start)),
            [] => {
                let help = match nearest(start, ids.iter().map(String::as_str)) {
                    Some(id) => format!("did you mean '{id}'? `ladderscope runs` lists all"),
                    None => "`ladderscope runs` lists stored runs; `last` is the newest; select by option with --filter".into(),
                };
                Err(Error::input_help(format!("no run '{start}' in {}", self.dir().display()), help))
            }
            several => {
                const LISTED_RUNS: usize = 8;
                let mut list: Vec<&str> =
                    several.iter().take(LISTED_RUNS).map(|id| id.as_str()).collect();
                if several.len() > LISTED_RUNS {
                    list.push("...");
                }
                Err(Error::input_help(
                    format!("'{start}' could be any of {} runs", several.len()),
                    format!("use a longer prefix: {}", list.join(", ")),
                ))
            }
        }
    }
}

/// Error for a run that is in the trash.
pub(super) fn deleted(id: &str) -> Error {
    Error::input_help(
        format!("run '{id}' is deleted"),
        format!("to have it back: ladderscope runs restore {id}"),
    )
}

fn damaged(listing: &Listing, id: &str) -> Error {
    match listing.damaged.first() {
        Some(why) => Error::failed(format!("run '{id}' cannot be read: {why}")),
        None => Error::failed(format!("run '{id}' has neither spec.json nor record.json")),
    }
}
