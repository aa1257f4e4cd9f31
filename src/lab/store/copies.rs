//! Copies from another machine's runs directory (`import`): verified, and never in the place of anything.

use std::io::ErrorKind;
use std::path::Path;

use schemars::JsonSchema;
use serde::Serialize;

use super::batches;
use super::check::DamagedFile;
use super::directory::{Started, Store, file_name, names, read_record};
use base::atomic::{self, UnfinishedDir};
use base::error::{Error, Result};
use base::regular;

/// Subdirectory of recordings of `record`.
pub const RECORDINGS: &str = "recordings";

/// Trace of a recording.
pub(super) const TRACE: &str = "trace.parquet";

/// Subdirectory of a recording with one file per process.
const PARTS: &str = "parts";

/// Runs and batches copied from another store.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Copied {
    pub runs: Vec<String>,
    /// Batches of simulated runs.
    pub batches: Vec<String>,
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
    /// Copies all finished runs and batches of another store; ids that this store has are left alone. Damaged files are
    /// left out and added to `damaged`: a record with its whole run, a trace or log alone.
    ///
    /// # Errors
    ///
    /// Returns an error if the other store cannot be listed or this one cannot be written. What was copied stays.
    pub fn copy_from(&self, other: &Self, damaged: &mut Vec<DamagedFile>) -> Result<Copied> {
        self.prepare()?;
        let mut copied = Copied::default();
        for id in other.run_ids()? {
            if self.has(&id) {
                copied.present.push(id);
            } else {
                self.copy_run(other, id, &mut copied, damaged)?;
            }
        }
        for (id, files) in other.segments()? {
            let mut is_new = false;
            for file in files {
                let Ok(at) = file.strip_prefix(other.dir()) else { continue };
                let into = self.dir().join(at);
                if into.symlink_metadata().is_ok() {
                    continue;
                }
                match batches::check(&file) {
                    Ok(has_checksum) => {
                        copied.without_checksum += usize::from(!has_checksum);
                        atomic::copy(&file, &into)?.map_err(Error::io(&file))?;
                        is_new = true;
                    }
                    Err(problem) => {
                        damaged.push(DamagedFile { path: at.display().to_string(), problem })
                    }
                }
            }
            if is_new {
                copied.batches.push(id);
            } else if self.has(&id) {
                copied.present.push(id);
            }
        }
        Ok(copied)
    }

    fn copy_run(
        &self,
        other: &Self,
        id: String,
        copied: &mut Copied,
        damaged: &mut Vec<DamagedFile>,
    ) -> Result<()> {
        let (from, into) = (other.dir().join(&id), self.dir().join(&id));
        let files = names(&from, |entry| (!entry.is_dir).then(|| file_name(entry))?)?;
        let has = |name: &str| files.iter().any(|file| file == name);
        if !has("record.json") {
            copied.unfinished.extend(has("spec.json").then_some(id));
            return Ok(());
        }
        let folder = UnfinishedDir::create(&into)?;
        let mut add = |name: &str, check: &dyn Fn(&Path) -> Result<(), String>| {
            let problem = copy_checked(&from.join(name), &folder.path().join(name), check)?;
            let is_intact = problem.is_none();
            damaged.extend(problem.map(|problem| DamagedFile { path: format!("{id}/{name}"), problem }));
            Ok::<bool, Error>(is_intact)
        };
        if !add("record.json", &|copy| read_record(copy).map(drop))? {
            return Ok(());
        }
        let (record, has_checksum) =
            read_record(&folder.path().join("record.json")).map_err(Error::failed)?;
        let trace = record.trace.as_deref().and_then(|path| path.rsplit('/').next());
        let mut traces = 0;
        for name in &files {
            match name.as_str() {
                "spec.json" => {
                    add(name, &|copy| {
                        let bytes = regular::read(copy).map_err(|error| error.to_string())?;
                        serde_json::from_slice::<Started>(&bytes).map(drop).map_err(|e| e.to_string())
                    })?;
                }
                "log.txt" => {
                    add(name, &|_| Ok(()))?;
                }
                "record.json" => {}
                name if Some(name) == trace => traces += usize::from(add(name, &trace::check)?),
                _ => {}
            }
        }
        match folder.finish() {
            Ok(()) => {
                copied.traces += traces;
                copied.without_checksum += usize::from(!has_checksum);
                copied.runs.push(id);
            }
            // a run without a record, or one that another process has just copied
            Err(error) if is_taken(&error) => copied.present.push(id),
            Err(error) => return Err(Error::io(&into)(error)),
        }
        Ok(())
    }

    /// Copies the recordings of another runs directory that have an intact trace.
    ///
    /// # Errors
    ///
    /// Returns an error if they cannot be listed, or this store cannot be written.
    pub fn copy_recordings_from(
        &self,
        other: &Self,
        damaged: &mut Vec<DamagedFile>,
    ) -> Result<RecordingCopies> {
        let mut copies = RecordingCopies::default();
        let recordings = other.dir().join(RECORDINGS);
        for name in names(&recordings, |entry| entry.is_dir.then(|| file_name(entry))?)? {
            let (from, into) = (recordings.join(&name), self.dir().join(RECORDINGS).join(&name));
            // without a trace it recorded nothing, or was interrupted
            if from.join(TRACE).symlink_metadata().is_err() {
                continue;
            }
            if into.symlink_metadata().is_ok() {
                copies.present.push(name);
                continue;
            }
            let mut files = vec![TRACE.to_owned()];
            let parts = names(&from.join(PARTS), |entry| (!entry.is_dir).then(|| entry.name.clone()))?;
            files.extend(parts.iter().map(|part| format!("{PARTS}/{part}")));
            let parent = self.dir().join(RECORDINGS);
            regular::make_folder(&parent).map_err(Error::io(&parent))?;
            let folder = UnfinishedDir::create(&into)?;
            let mut problem = None;
            for file in &files {
                let check: &dyn Fn(&Path) -> Result<(), String> =
                    if file == TRACE { &trace::check } else { &|_| Ok(()) };
                let found = copy_checked(&from.join(file), &folder.path().join(file), check)?;
                problem = problem.or(found.map(|problem| (file, problem)));
            }
            if let Some((file, problem)) = problem {
                damaged.push(DamagedFile { path: format!("{RECORDINGS}/{name}/{file}"), problem });
                continue;
            }
            match folder.finish() {
                Ok(()) => copies.copied.push(name),
                Err(error) if is_taken(&error) => copies.present.push(name),
                Err(error) => return Err(Error::io(&into)(error)),
            }
        }
        Ok(copies)
    }
}

/// Copies a file and checks the copy. Returns what is wrong with it; a damaged copy is removed.
fn copy_checked(
    from: &Path,
    to: &Path,
    check: &dyn Fn(&Path) -> Result<(), String>,
) -> Result<Option<String>> {
    if let Err(error) = atomic::copy(from, to)? {
        return Ok(Some(error.to_string()));
    }
    let problem = check(to).err();
    if problem.is_some() {
        regular::remove_file(to).map_err(Error::io(to))?;
    }
    Ok(problem)
}

fn is_taken(error: &std::io::Error) -> bool {
    matches!(error.kind(), ErrorKind::DirectoryNotEmpty | ErrorKind::AlreadyExists)
}

#[cfg(test)]
mod tests {
    use super::super::tests::{reopened, run, store};

    #[test]
    fn copies_are_verified_and_replace_nothing() {
        let ((_a, from), (_b, to)) = (store(), store());
        let records = [run(&from, "ladder", 1.1), run(&from, "standard", 2.2)];
        let mut simulated = [records[0].clone(), records[1].clone()];
        from.write_batch(&mut simulated).unwrap();
        from.begin(&super::super::tests::spec("parallel"), None, 0).unwrap();
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
        let mut damaged = Vec::new();
        let copied = to.copy_from(&from, &mut damaged).unwrap();
        assert_eq!(copied.runs, std::slice::from_ref(&record.run));
        assert!(damaged[0].problem.contains("link"), "{damaged:?}");
        assert!(!to.dir().join(&record.run).join("log.txt").exists());
    }
}
