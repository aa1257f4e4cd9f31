//! Finds one run: by id, by a prefix of an id, as `last`, or as `BATCH:ROW`.

use super::directory::{Listing, Store};
use base::error::{Error, Result, nearest};
use table::Record;

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
        self.rate(std::slice::from_mut(&mut record));
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
                const SHOWN: usize = 8;
                let mut list: Vec<&str> = several.iter().take(SHOWN).map(|id| id.as_str()).collect();
                if several.len() > SHOWN {
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
