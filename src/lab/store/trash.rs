//! Deletes runs in a way that can be undone: a run's directory moves into `.trash/`, and a batch's row is marked in
//! the annotations (its file is never rewritten). Emptying the trash is a separate step.
//!
//! The mark is written first, then directories are moved one by one, each atomically. After a crash every run is
//! either in its old place or in the trash, and [`Store::restore_last`] still knows the runs of one deletion.

use std::path::PathBuf;

use super::annotations::{Annotations, row_of, rows_of};
use super::batches::Segments;
use super::claims::Liveness;
use super::directory::{Store, file_name, names};
use base::atomic;
use base::error::{Error, Result};
use base::regular;

/// Folder of deleted runs. Run ids never begin with a dot.
const TRASH: &str = ".trash";

/// Contents of the trash.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize, schemars::JsonSchema)]
pub struct Trash {
    /// Deleted runs, oldest first.
    pub runs: Vec<String>,
    /// Deleted rows of batches: batch id and number of rows.
    pub rows: Vec<(String, usize)>,
}

impl Trash {
    /// Number of runs in the trash, including rows of batches.
    pub fn len(&self) -> usize {
        self.runs.len() + self.rows.iter().map(|(_, rows)| rows).sum::<usize>()
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct EmptiedTrash {
    pub runs: usize,
    /// Number of removed batch files, whose rows were all deleted.
    pub batches: usize,
    /// Deleted rows that remain hidden in batch files with other rows.
    pub hidden_rows: usize,
}

impl Store {
    /// Moves these runs (full ids) to the trash. Refuses before moving anything if one still runs. Ignores runs that
    /// are already gone.
    ///
    /// # Errors
    ///
    /// Returns an input error if a run is still running, or may be on another host, and a failure if a directory
    /// cannot be moved.
    pub fn delete(&self, runs: &[String]) -> Result<()> {
        for run in runs.iter().filter(|run| row_of(run).is_none()) {
            let (message, help) = match self.liveness(run) {
                Some(Liveness::Alive) => (
                    format!("run {run} is still running"),
                    "cancel it first; nothing was deleted".to_owned(),
                ),
                Some(Liveness::Elsewhere(host)) => (
                    format!("run {run} may still be running on {host}"),
                    format!(
                        "it has left no record: delete it on {host}, where it can be seen whether it \
                         ended; nothing was deleted"
                    ),
                ),
                Some(Liveness::Gone) | None => continue,
            };
            return Err(Error::input_help(message, help));
        }
        if runs.is_empty() {
            return Ok(());
        }
        let trash = self.trash_dir()?;
        self.mark_deleted(runs, true)?;
        regular::make_folder(&trash).map_err(Error::io(&trash))?;
        for run in runs.iter().filter(|run| row_of(run).is_none()) {
            self.rename(self.dir().join(run), trash.join(run))?;
        }
        atomic::sync_dir(&trash)?;
        atomic::sync_dir(self.dir())
    }

    /// Restores these runs (full ids) from the trash. Returns the number restored. Fails if a directory cannot be
    /// moved or its place is taken.
    pub fn restore(&self, runs: &[String]) -> Result<usize> {
        let annotations = self.annotations();
        let (rows, dirs): (Vec<&String>, Vec<&String>) =
            runs.iter().partition(|run| row_of(run).is_some());
        let batches = self.segments()?;
        let deleted = |run: &&String| is_deleted_row(&annotations, &batches, run);
        let rows: Vec<String> = rows.into_iter().filter(deleted).cloned().collect();
        let mut restored = rows.len();
        if !rows.is_empty() {
            self.mark_deleted(&rows, false)?;
        }
        for run in dirs {
            if self.rename(self.trash_dir()?.join(run), self.dir().join(run))? {
                restored += 1;
            }
        }
        if self.dir().exists() {
            atomic::sync_dir(self.dir())?;
        }
        Ok(restored)
    }

    /// Restores the newest deletion that is still in the trash. Returns the ids. Fails if a directory cannot be moved
    /// or its place is taken.
    pub fn restore_last(&self) -> Result<Vec<String>> {
        let annotations = self.annotations();
        let batches = self.segments()?;
        let in_trash = |run: &&String| match row_of(run) {
            Some(_) => is_deleted_row(&annotations, &batches, run),
            None => self.is_in_trash(run),
        };
        for deletion in annotations.deletions.iter().rev() {
            let deletion = self.expanded(deletion, &batches).into_iter();
            let there: Vec<String> = deletion.filter(|run| in_trash(&run)).collect();
            if !there.is_empty() {
                self.restore(&there)?;
                return Ok(there);
            }
        }
        Ok(Vec::new())
    }

    /// Ids of the deleted rows of a batch; empty if there is no such batch.
    pub fn deleted_rows(&self, batch: &str) -> Vec<String> {
        let rows = self.deleted_among(batch, &self.batch_files(batch)).into_iter();
        rows.map(|row| format!("{batch}:{row}")).collect()
    }

    fn deleted_among(&self, batch: &str, files: &[PathBuf]) -> Vec<u32> {
        let annotations = self.annotations();
        self.rows_among(batch, files, |row| annotations.is_deleted(batch, row)).0
    }

    /// Ids for the words of an edit. Ranges expand to the rows that their batch contains.
    fn expanded(&self, words: &[String], batches: &Segments) -> Vec<String> {
        let mut runs = Vec::with_capacity(words.len());
        for word in words {
            match rows_of(word) {
                Some((batch, rows)) => {
                    let files = batches.get(batch).map(Vec::as_slice).unwrap_or_default();
                    let (there, _) = self.rows_among(batch, files, |row| rows.contains(&row));
                    runs.extend(there.into_iter().map(|row| format!("{batch}:{row}")));
                }
                None => runs.push(word.clone()),
            }
        }
        runs
    }

    /// Contents of the trash. Fails if the directories cannot be read.
    pub fn trash(&self) -> Result<Trash> {
        let annotations = self.annotations();
        let batches = self.segments()?;
        let deleted = annotations.batches_with_deleted().into_iter();
        let rows = deleted.filter_map(|batch| {
            let files = batches.get(batch)?;
            Some((batch.to_owned(), self.deleted_among(batch, files).len()))
        });
        Ok(Trash { rows: rows.collect(), runs: self.trashed_runs()? })
    }

    /// Removes the contents of the trash permanently. Deleted rows of batches with other rows stay hidden in their
    /// files and can still be restored.
    ///
    /// # Errors
    ///
    /// Returns a failure if something cannot be removed. Earlier removals remain.
    pub fn empty_trash(&self) -> Result<EmptiedTrash> {
        let trash = self.trash_dir()?;
        let mut emptied = EmptiedTrash::default();
        for run in self.trashed_runs()? {
            // removed atomically, so a partly removed directory is never taken for a run
            atomic::remove_dir(&trash.join(&run))?;
            emptied.runs += 1;
        }
        let (annotations, batches) = (self.annotations(), self.segments()?);
        for batch in annotations.batches_with_deleted() {
            let Some(files) = batches.get(batch) else { continue };
            // a damaged segment may have rows that are not deleted
            if let (rows, None) = self.batch_rows(batch, files)
                && rows.is_empty()
            {
                files.iter().try_for_each(|file| regular::remove_file(file).map_err(Error::io(file)))?;
                emptied.batches += 1;
            } else {
                emptied.hidden_rows += self.deleted_among(batch, files).len();
            }
        }
        Ok(emptied)
    }

    pub(super) fn is_in_trash(&self, run: &str) -> bool {
        super::directory::is_id(run) && self.trash_dir().is_ok_and(|trash| trash.join(run).is_dir())
    }

    fn trashed_runs(&self) -> Result<Vec<String>> {
        names(&self.trash_dir()?, |entry| entry.is_dir.then(|| file_name(entry))?)
    }

    /// Trash folder. Fails if it is a symbolic link, whose target must not be deleted from.
    fn trash_dir(&self) -> Result<PathBuf> {
        self.folder(TRASH)
    }

    /// Moves a directory; false if it does not exist.
    fn rename(&self, from: PathBuf, to: PathBuf) -> Result<bool> {
        let renamed = regular::if_exists(regular::rename(&from, &to));
        let failed = |e| Error::failed(format!("{} to {}: {e}", from.display(), to.display()));
        Ok(renamed.map_err(failed)?.is_some())
    }
}

/// True for a deleted row of one of these batches.
fn is_deleted_row(annotations: &Annotations, batches: &Segments, run: &str) -> bool {
    row_of(run)
        .is_some_and(|(batch, row)| batches.contains_key(batch) && annotations.is_deleted(batch, row))
}
