//! Copies from another machine's runs directory (`import`): verified before they get their name. They replace nothing
//! but segments that lack their last rows.

use std::path::Path;

use schemars::JsonSchema;
use serde::Serialize;

use super::annotations::{Annotations, row_of};
use super::batches;
use super::check::DamagedFile;
use super::directory::{StartedRun, Store, file_name, is_named, names, read_record};
use base::atomic::{self, UnfinishedDir};
use base::error::{Error, Result};
use base::regular;
use table::Record;

/// Subdirectory of recordings of `record`.
pub const RECORDINGS: &str = "recordings";

/// Trace of a run or a recording.
pub(super) const TRACE: &str = "trace.parquet";

/// Subdirectory of a recording with one file per process.
pub const PROCESSES_FOLDER: &str = "parts";

/// Runs and batches copied from another store.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, JsonSchema)]
#[schemars(rename = "Copied")]
pub struct CopiedRuns {
    pub runs: Vec<String>,
    /// Batches of simulated runs, also those of which this store had only the first rows.
    pub batches: Vec<String>,
    /// Number of traces, also of runs that this store had without their trace.
    pub traces: usize,
    /// Runs and batches that this store has already, or has in its trash.
    pub present: Vec<String>,
    /// Runs without a record: interrupted, or still running over there.
    pub unfinished: Vec<String>,
    /// Number of records of early versions, which have no checksum.
    pub without_checksum: usize,
}

/// Recordings copied from another runs directory.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, JsonSchema)]
pub struct RecordingCopies {
    pub copied: Vec<String>,
    /// Recordings whose name is taken here.
    pub present: Vec<String>,
}

impl Store {
    /// Copies all finished runs and batches of another store that this one lacks, new rows of batches and missing
    /// traces. Runs and rows in this store's trash stay there; once the trash is emptied, they are copied again.
    /// Damaged and unreadable files are left out and added to `damaged`: a record with its whole run, a trace or log
    /// alone.
    ///
    /// # Errors
    ///
    /// Returns an error if this store cannot be written. What was copied stays.
    pub fn copy_from(&self, other: &Self, damaged: &mut Vec<DamagedFile>) -> Result<CopiedRuns> {
        self.prepare()?;
        let mut copied = CopiedRuns::default();
        for id in or_damaged(other.run_ids(), ".", damaged) {
            if self.has_run(&id) {
                copied.traces += usize::from(self.copy_missing_trace(other, &id, damaged)?);
                copied.present.push(id);
            } else {
                self.copy_run(other, id, &mut copied, damaged)?;
            }
        }
        for (id, files) in or_damaged(other.segments(), "batches", damaged) {
            let (mut is_new, mut is_present) = (false, false);
            for file in files {
                let name = file.file_name().unwrap_or_default();
                match self.copy_segment(other, &id, &file, &self.batches_dir().join(name))? {
                    Ok(Some(has_checksum)) => {
                        copied.without_checksum += usize::from(!has_checksum);
                        is_new = true;
                    }
                    Ok(None) => is_present = true,
                    Err(problem) => {
                        let path = format!("batches/{}", name.to_string_lossy());
                        damaged.push(DamagedFile { path, problem });
                    }
                }
            }
            if is_new {
                copied.batches.push(id);
            } else if is_present {
                copied.present.push(id);
            }
        }
        Ok(copied)
    }

    fn copy_run(
        &self,
        other: &Self,
        id: String,
        copied: &mut CopiedRuns,
        damaged: &mut Vec<DamagedFile>,
    ) -> Result<()> {
        let (from, into) = (other.dir().join(&id), self.dir().join(&id));
        let files = names(&from, |entry| (!entry.is_dir).then(|| file_name(entry))?);
        let files = or_damaged(files, &id, damaged);
        let has = |name: &str| files.iter().any(|file| file == name);
        if !has("record.json") {
            copied.unfinished.extend(has("spec.json").then_some(id));
            return Ok(());
        }
        let mut leave_out = |name: &str, problem| {
            damaged.push(DamagedFile { path: format!("{id}/{name}"), problem });
        };
        let folder = UnfinishedDir::create(&into)?;
        let copy = folder.path().join("record.json");
        let read = copy_checked(&from.join("record.json"), &copy, read_record)?;
        let (record, has_checksum) = match read {
            Ok(read) => read,
            Err(problem) => {
                leave_out("record.json", problem);
                return Ok(());
            }
        };
        let (trace, mut traces) = (trace_name(&record), 0);
        for name in &files {
            let (from, to) = (from.join(name), folder.path().join(name));
            let is_trace = trace == Some(name.as_str());
            let checked = match name.as_str() {
                "record.json" => continue,
                "spec.json" => copy_checked(&from, &to, check_spec)?,
                "log.txt" => copy_checked(&from, &to, |_| Ok(()))?,
                _ if is_trace => copy_checked(&from, &to, trace::check)?,
                _ => continue,
            };
            match checked {
                Ok(()) => traces += usize::from(is_trace),
                Err(problem) => leave_out(name, problem),
            }
        }
        // taken by a run without a record, or by another process that has just copied it
        if is_named(folder.finish(), &into)? {
            copied.traces += traces;
            copied.without_checksum += usize::from(!has_checksum);
            copied.runs.push(id);
        } else {
            copied.present.push(id);
        }
        Ok(())
    }

    /// Copies the trace that a run lacks here. Returns true if it did.
    fn copy_missing_trace(
        &self,
        other: &Self,
        id: &str,
        damaged: &mut Vec<DamagedFile>,
    ) -> Result<bool> {
        let (from, run) = (other.dir().join(id).join(TRACE), self.dir().join(id));
        let into = run.join(TRACE);
        if into.symlink_metadata().is_ok() || from.symlink_metadata().is_err() {
            return Ok(false);
        }
        let record = |store: &Self| read_record(&store.dir().join(id).join("record.json")).ok();
        // none if the run is in the trash
        let here = record(self).filter(|(record, _)| trace_name(record) == Some(TRACE));
        if here.is_none() || here != record(other) {
            return Ok(false);
        }
        let folder = UnfinishedDir::create(&into)?;
        let copy = folder.path().join(TRACE);
        if let Err(problem) = copy_checked(&from, &copy, trace::check)? {
            damaged.push(DamagedFile { path: format!("{id}/{TRACE}"), problem });
            return Ok(false);
        }
        let is_new = is_named(regular::rename_new(&copy, &into), &into)?;
        atomic::sync_dir(&run)?;
        Ok(is_new)
    }

    /// Copies a segment of a batch if this store lacks it or has only its first rows. Returns true if it has a
    /// checksum, `None` without new rows, and what is wrong with a damaged one.
    fn copy_segment(
        &self,
        other: &Self,
        id: &str,
        from: &Path,
        into: &Path,
    ) -> Result<Result<Option<bool>, String>> {
        let is_here = into.symlink_metadata().is_ok();
        if is_here && is_same(from, into) {
            return Ok(Ok(None));
        }
        let batches = self.batches_dir();
        regular::make_folder(&batches).map_err(Error::io(&batches))?;
        let folder = UnfinishedDir::create(into)?;
        let copy = folder.path().join("segment");
        let verified = copy_checked(from, &copy, |copy| batches::verified(copy, id))?;
        let (records, has_checksum) = match verified {
            Ok(read) => read,
            Err(problem) => return Ok(Err(problem)),
        };
        let known = if is_here { batches::verified(into, id).ok() } else { Some((Vec::new(), true)) };
        // a damaged segment here, or one with other or more rows, is left alone
        let new = known.and_then(|(known, _)| records.strip_prefix(known.as_slice()));
        let Some(new) = new.filter(|new| !new.is_empty()) else { return Ok(Ok(None)) };
        self.mark_as_in(other, new)?;
        let renamed =
            if is_here { regular::rename(&copy, into) } else { regular::rename_new(&copy, into) };
        let is_new = is_named(renamed, into)?;
        atomic::sync_dir(&batches)?;
        Ok(Ok(is_new.then_some(has_checksum)))
    }

    /// Marks new rows as deleted exactly if they are deleted in the other store. Marks of this store may be left from
    /// rows that were removed with its trash.
    fn mark_as_in(&self, other: &Self, rows: &[Record]) -> Result<()> {
        let (here, there) = (self.annotations(), other.annotations());
        let is_deleted = |annotations: &Annotations, run: &str| {
            row_of(run).is_some_and(|(batch, row)| annotations.is_deleted(batch, row))
        };
        for deleted in [true, false] {
            let differs =
                |run: &&String| is_deleted(&there, run) == deleted && is_deleted(&here, run) != deleted;
            let runs: Vec<String> = rows.iter().map(|row| &row.run).filter(differs).cloned().collect();
            if !runs.is_empty() {
                self.mark_deleted(&runs, deleted)?;
            }
        }
        Ok(())
    }

    /// Copies the recordings of another runs directory that have an intact trace. Damaged ones are left out and added
    /// to `damaged`.
    ///
    /// # Errors
    ///
    /// Returns an error if this store cannot be written.
    pub fn copy_recordings_from(
        &self,
        other: &Self,
        damaged: &mut Vec<DamagedFile>,
    ) -> Result<RecordingCopies> {
        let mut copies = RecordingCopies::default();
        let recordings = other.dir().join(RECORDINGS);
        let all = names(&recordings, |entry| entry.is_dir.then(|| file_name(entry))?);
        for name in or_damaged(all, RECORDINGS, damaged) {
            let (from, into) = (recordings.join(&name), self.dir().join(RECORDINGS).join(&name));
            // without a trace it recorded nothing, or was interrupted
            if from.join(TRACE).symlink_metadata().is_err() {
                continue;
            }
            if into.symlink_metadata().is_ok() {
                copies.present.push(name);
                continue;
            }
            match self.copy_recording(&from, &into)? {
                Ok(true) => copies.copied.push(name),
                Ok(false) => copies.present.push(name),
                Err((file, problem)) => {
                    damaged.push(DamagedFile { path: format!("{RECORDINGS}/{name}/{file}"), problem });
                }
            }
        }
        Ok(copies)
    }

    /// Returns false if the name is taken, and the first damaged file with what is wrong with it.
    fn copy_recording(&self, from: &Path, into: &Path) -> Result<Result<bool, (String, String)>> {
        let parts =
            names(&from.join(PROCESSES_FOLDER), |entry| (!entry.is_dir).then(|| entry.name.clone()));
        let parts = match parts {
            Ok(parts) => parts,
            Err(error) => return Ok(Err((PROCESSES_FOLDER.to_owned(), error.to_string()))),
        };
        let recordings = self.dir().join(RECORDINGS);
        regular::make_folder(&recordings).map_err(Error::io(&recordings))?;
        let folder = UnfinishedDir::create(into)?;
        let parts = parts.iter().map(|part| format!("{PROCESSES_FOLDER}/{part}"));
        for file in std::iter::once(TRACE.to_owned()).chain(parts) {
            let check = |copy: &Path| if file == TRACE { trace::check(copy) } else { Ok(()) };
            if let Err(problem) = copy_checked(&from.join(&file), &folder.path().join(&file), check)? {
                return Ok(Err((file, problem)));
            }
        }
        is_named(folder.finish(), into).map(Ok)
    }
}

/// Result of reading the other store. An error is added to `damaged` as one of `path`.
fn or_damaged<T: Default>(read: Result<T>, path: &str, damaged: &mut Vec<DamagedFile>) -> T {
    read.unwrap_or_else(|error| {
        damaged.push(DamagedFile { path: path.to_owned(), problem: error.to_string() });
        T::default()
    })
}

/// Copies a file and checks the copy. The inner error is what is wrong with the file; a damaged copy is removed.
fn copy_checked<T>(
    from: &Path,
    to: &Path,
    check: impl FnOnce(&Path) -> Result<T, String>,
) -> Result<Result<T, String>> {
    if let Err(error) = atomic::copy(from, to)? {
        return Ok(Err(error.to_string()));
    }
    let checked = check(to);
    if checked.is_err() {
        regular::remove_file(to).map_err(Error::io(to))?;
    }
    Ok(checked)
}

fn check_spec(path: &Path) -> Result<(), String> {
    let bytes = regular::read(path).map_err(|error| error.to_string())?;
    serde_json::from_slice::<StartedRun>(&bytes).map(drop).map_err(|error| error.to_string())
}

/// Name of a run's trace in its directory.
pub(super) fn trace_name(record: &Record) -> Option<&str> {
    record.trace.as_deref()?.rsplit('/').next()
}

/// True if two files have the same content; the first may be too large to read.
fn is_same(from: &Path, into: &Path) -> bool {
    let length = |path: &Path| path.symlink_metadata().ok().map(|there| there.len());
    length(from) == length(into) && regular::read(from).ok() == regular::read(into).ok()
}

#[cfg(test)]
mod tests {
    use super::super::tests::{ok, reopened, run, spec, store};
    use super::*;

    const INTACT_TRACE: &str =
        concat!(env!("CARGO_MANIFEST_DIR"), "/../../traces/cpu-ladder-tp2-600us.parquet");

    /// Copies without damage.
    fn copy(from: &Store, to: &Store) -> CopiedRuns {
        let mut damaged = Vec::new();
        let copied = to.copy_from(from, &mut damaged).unwrap();
        assert!(damaged.is_empty(), "{damaged:?}");
        copied
    }

    fn listed(store: &Store) -> Vec<String> {
        let listing = reopened(store).list().unwrap();
        assert!(listing.damaged.is_empty(), "{listing:?}");
        listing.records.into_iter().map(|record| record.run).collect()
    }

    #[test]
    fn copies_are_verified_and_replace_nothing() {
        let ((_a, from), (_b, to)) = (store(), store());
        let records = [run(&from, "ladder", 1.1), run(&from, "standard", 2.2)];
        let mut simulated = [records[0].clone(), records[1].clone()];
        from.write_batch(&mut simulated).unwrap();
        from.begin(&spec("parallel"), None, 0).unwrap();
        let broken = from.dir().join(&records[1].run).join("record.json");
        let whole = std::fs::read_to_string(&broken).unwrap();
        std::fs::write(&broken, whole.replace("12.5", "99.5")).unwrap();
        let mut damaged = Vec::new();
        let copied = to.copy_from(&from, &mut damaged).unwrap();
        assert_eq!(copied.runs, [records[0].run.clone()]);
        assert_eq!((copied.batches.len(), copied.unfinished.len()), (1, 1));
        assert_eq!(damaged.len(), 1);
        assert_eq!(damaged[0].path, format!("{}/record.json", records[1].run));
        assert!(!to.dir().join(&records[1].run).exists());
        let listing = reopened(&to).list().unwrap();
        assert_eq!((listing.records.len(), listing.damaged.len()), (3, 0));
        assert_eq!(listing.records.iter().find(|r| r.run == records[0].run), Some(&records[0]));

        // the repaired record is added, everything else stays as it is, even if it differs
        std::fs::write(&broken, whole).unwrap();
        let mine = to.dir().join(&records[0].run).join("record.json");
        std::fs::write(&mine, "mine").unwrap();
        let (mut damaged, segment) = (Vec::new(), to.dir().join("batches"));
        let before = std::fs::metadata(&segment).unwrap().modified().unwrap();
        let again = to.copy_from(&from, &mut damaged).unwrap();
        assert_eq!((again.runs.len(), again.batches.len(), again.present.len()), (1, 0, 2));
        assert_eq!(std::fs::read_to_string(&mine).unwrap(), "mine");
        assert_eq!(std::fs::metadata(&segment).unwrap().modified().unwrap(), before);
        // a deleted run does not come back
        to.delete(&again.runs).unwrap();
        assert_eq!(to.copy_from(&from, &mut damaged).unwrap().present.len(), 3);
    }

    #[test]
    fn links_are_not_copied() {
        let ((_a, from), (_b, to)) = (store(), store());
        let record = run(&from, "ladder", 1.1);
        let log = from.dir().join(&record.run).join("log.txt");
        std::os::unix::fs::symlink("/etc/passwd", &log).unwrap();
        std::os::unix::fs::symlink(from.dir().join(&record.run), from.dir().join("other")).unwrap();
        std::os::unix::fs::symlink("/etc", from.dir().join("batches")).unwrap();
        let mut damaged = Vec::new();
        let copied = to.copy_from(&from, &mut damaged).unwrap();
        assert_eq!(copied.runs, std::slice::from_ref(&record.run));
        let paths: Vec<&str> = damaged.iter().map(|file| file.path.as_str()).collect();
        assert_eq!(paths, [&*format!("{}/log.txt", record.run), "batches"]);
        assert!(damaged.iter().all(|file| file.problem.contains("is a link")), "{damaged:?}");
        assert!(!to.dir().join(&record.run).join("log.txt").exists());
    }

    #[test]
    fn rows_in_the_trash_stay_there_and_are_listed_once_it_was_emptied() {
        let ((_a, from), (_b, to)) = (store(), store());
        let mut records = [ok(spec("ladder"), 1.0), ok(spec("standard"), 2.0)];
        from.write_batch(&mut records).unwrap();
        let [kept, deleted] = records.map(|record| record.run);
        from.delete(std::slice::from_ref(&deleted)).unwrap();
        copy(&from, &to);
        assert_eq!(listed(&to), [kept.as_str()], "without the row that is deleted in the source");
        to.delete(std::slice::from_ref(&kept)).unwrap();
        assert_eq!(copy(&from, &to).present.len(), 1);
        assert!(listed(&to).is_empty());
        assert_eq!(to.empty_trash().unwrap().batches, 1);
        assert_eq!(copy(&from, &to).batches.len(), 1);
        assert_eq!(listed(&to), [kept]);
    }

    #[test]
    fn rows_that_were_added_to_a_segment_are_copied() {
        let ((_a, from), (_b, to), (_c, short)) = (store(), store(), store());
        let mut batch = from.new_batch();
        let mut push = |row: u32| {
            let mut record = ok(spec("ladder"), f64::from(row) + 1.0);
            batch.push(row, &mut record).unwrap();
            batch.write_segment().unwrap();
            record.run
        };
        let first = push(0);
        assert_eq!(copy(&from, &to).batches.len(), 1);
        copy(&from, &short);
        to.delete(&[first]).unwrap();
        let second = push(1);
        let again = copy(&from, &to);
        assert_eq!((again.batches.len(), again.present.len()), (1, 0));
        assert_eq!(listed(&to), [second.as_str()], "the deleted row stays deleted");
        // neither the same rows nor fewer replace anything
        for source in [&from, &short] {
            assert_eq!(copy(source, &to).present.len(), 1);
            assert_eq!(listed(&to), [second.as_str()]);
        }
    }

    #[test]
    fn damaged_segments_are_left_out_and_replace_nothing() {
        let ((_a, from), (_b, to)) = (store(), store());
        from.write_batch(&mut [ok(spec("ladder"), 1.0)]).unwrap();
        let source = from.segments().unwrap().into_values().flatten().next().unwrap();
        let (name, whole) = (source.file_name().unwrap(), std::fs::read(&source).unwrap());
        let here = to.batches_dir().join(name);
        let copy_damaged = || {
            std::fs::write(&source, &whole[..whole.len() - 1]).unwrap();
            let mut damaged = Vec::new();
            let copied = to.copy_from(&from, &mut damaged).unwrap();
            assert!(copied.batches.is_empty());
            assert_eq!(damaged[0].path, format!("batches/{}", name.display()));
        };
        copy_damaged();
        assert!(!here.exists());
        std::fs::write(&source, &whole).unwrap();
        copy(&from, &to);
        copy_damaged();
        assert_eq!(std::fs::read(&here).unwrap(), whole);
        // nor does an intact segment replace another file
        std::fs::write(&source, &whole).unwrap();
        std::fs::write(&here, "mine").unwrap();
        assert_eq!(copy(&from, &to).present.len(), 1);
        assert_eq!(std::fs::read(&here).unwrap(), b"mine");
    }

    #[test]
    fn a_run_that_is_here_without_its_trace_gets_it() {
        let ((_a, from), (_b, to)) = (store(), store());
        let mut record = run(&from, "ladder", 1.1);
        record.trace = Some(format!("{}/{TRACE}", record.run));
        from.finish(&record).unwrap();
        let source = from.dir().join(&record.run).join(TRACE);
        std::fs::copy(INTACT_TRACE, &source).unwrap();
        assert_eq!(copy(&from, &to).traces, 1);
        let here = to.trace_path(&record).unwrap();
        std::fs::remove_file(&here).unwrap();
        std::fs::write(&source, "PAR1").unwrap();
        let mut damaged = Vec::new();
        to.copy_from(&from, &mut damaged).unwrap();
        assert_eq!(damaged[0].path, record.trace.clone().unwrap());
        assert!(!here.exists());
        std::fs::copy(INTACT_TRACE, &source).unwrap();
        let again = copy(&from, &to);
        assert_eq!((again.runs.len(), again.present.len(), again.traces), (0, 1, 1));
        assert_eq!(std::fs::read(&here).unwrap(), std::fs::read(INTACT_TRACE).unwrap());
        // it is not the trace of another result
        std::fs::remove_file(&here).unwrap();
        to.finish(&Record { reason: Some("measured again".into()), ..record }).unwrap();
        assert_eq!(copy(&from, &to).traces, 0);
        assert!(!here.exists());
    }

    #[test]
    fn a_damaged_recording_is_named_and_the_others_are_copied() {
        let ((_a, from), (_b, to)) = (store(), store());
        let recording = |name: &str| {
            let folder = from.dir().join(RECORDINGS).join(name);
            std::fs::create_dir_all(&folder).unwrap();
            std::fs::copy(INTACT_TRACE, folder.join(TRACE)).unwrap();
            folder
        };
        std::fs::write(recording("damaged").join(TRACE), "PAR1").unwrap();
        std::os::unix::fs::symlink("/etc", recording("linked").join(PROCESSES_FOLDER)).unwrap();
        let parts = recording("whole").join(PROCESSES_FOLDER);
        std::fs::create_dir(&parts).unwrap();
        std::fs::write(parts.join("process"), "part").unwrap();
        let mut damaged = Vec::new();
        let copies = to.copy_recordings_from(&from, &mut damaged).unwrap();
        assert_eq!(copies.copied, ["whole"]);
        let paths: Vec<&str> = damaged.iter().map(|file| file.path.as_str()).collect();
        assert_eq!(paths, ["recordings/damaged/trace.parquet", "recordings/linked/parts"]);
        let into = to.dir().join(RECORDINGS);
        assert_eq!(std::fs::read_dir(&into).unwrap().count(), 1);
        assert_eq!(std::fs::read(into.join("whole/parts/process")).unwrap(), b"part");
        assert!(to.ids().unwrap().is_empty(), "a recording is no run");
    }
}
