//! What processes that were killed, or met a full disk, left in a runs directory: files and directories that
//! never got their names, and claims. Whoever is going to write removes them, unless somebody still writes them.

use std::fs::{DirEntry, File};
use std::path::Path;
use std::time::Duration;

use super::claims::{CLAIMS, is_at};
use super::directory::Store;
use super::process::{Liveness, Process};
use crate::base::atomic::UNFINISHED;
use crate::base::error::{Error, Result};
use crate::base::regular;

/// A file may be a moment old before its writer has locked it.
const MOMENT: Duration = Duration::from_secs(2);

/// Where a writable directory is tried, as a name that is removed if its writer dies.
const PROBE: &str = "probe";

impl Store {
    /// Makes the directory ready for what is going to be stored: it is there and can be written, batches whose
    /// writers died are one file each, and what they left unfinished is gone.
    ///
    /// # Errors
    ///
    /// An input error where the directory cannot be made or written, found before anything is computed.
    pub fn prepare(&self) -> Result<()> {
        let dir = self.dir();
        let refused = |e: std::io::Error| {
            Error::input_help(
                format!("{}: runs cannot be stored there: {e}", dir.display()),
                "name a directory that you can write: --dir DIR",
            )
        };
        std::fs::create_dir_all(dir).map_err(refused)?;
        let probe = tempfile::Builder::new().prefix(&format!("{UNFINISHED}{PROBE}")).tempfile_in(dir);
        probe.and_then(tempfile::NamedTempFile::close).map_err(refused)?;
        self.seal_abandoned_batches();
        self.remove_leftovers();
        Ok(())
    }

    /// Removes what nobody writes any more. What cannot be removed stays: it is in nobody's way.
    fn remove_leftovers(&self) {
        let dir = self.dir();
        for place in [dir.to_owned(), dir.join("batches")] {
            remove_unfinished(&place);
        }
        for entry in entries(&dir.join("batches")).filter(is_dir) {
            remove_unfinished(&entry.path());
        }
        for run in self.run_ids().unwrap_or_default() {
            // a run that has ended has cleaned up, and one whose process is there still writes
            if self.liveness(&run) == Some(Liveness::Gone) {
                remove_unfinished(&dir.join(run));
            }
        }
        for claim in entries(&dir.join(CLAIMS)) {
            remove_unlocked(&claim.path());
        }
        let _ = std::fs::remove_dir(dir.join(CLAIMS));
    }
}

fn entries(dir: &Path) -> impl Iterator<Item = DirEntry> {
    let there = regular::folder(dir).is_ok();
    std::fs::read_dir(dir).into_iter().filter(move |_| there).flatten().flatten()
}

fn is_dir(entry: &DirEntry) -> bool {
    entry.file_type().is_ok_and(|kind| kind.is_dir())
}

/// Whether a name says that its file or directory is not finished.
fn is_unfinished(name: &str) -> bool {
    name.starts_with(UNFINISHED) || name.starts_with(".trace-")
}

fn remove_unfinished(dir: &Path) {
    for entry in entries(dir) {
        if !entry.file_name().to_str().is_some_and(is_unfinished) {
            continue;
        }
        let path = entry.path();
        match is_dir(&entry) {
            true => remove_directory(&path),
            false => remove_unlocked(&path),
        }
    }
}

/// Removes a file that is old enough for its writer to have locked it, and that nobody has locked.
fn remove_unlocked(path: &Path) {
    let Ok(file) = regular::open(path) else { return };
    if is_old(&file) && file.try_lock().is_ok() && is_at(&file, path) {
        let _ = std::fs::remove_file(path);
    }
}

fn is_old(file: &File) -> bool {
    let modified = file.metadata().and_then(|metadata| metadata.modified());
    modified.is_ok_and(|at| at.elapsed().map_or(true, |age| age > MOMENT))
}

/// Removes the directory of a run or of a batch's parts that never got its name, unless its process lives.
fn remove_directory(path: &Path) {
    #[derive(serde::Deserialize)]
    struct Started {
        process: Process,
    }
    let spec = regular::read(&path.join("spec.json")).ok();
    let started = spec.and_then(|bytes| serde_json::from_slice::<Started>(&bytes).ok());
    let is_written = match started {
        Some(started) => started.process.liveness() != Liveness::Gone,
        None => File::open(path).is_ok_and(|dir| !is_old(&dir)) || is_locked(&path.join("lock")),
    };
    if !is_written {
        let _ = std::fs::remove_dir_all(path);
    }
}

fn is_locked(path: &Path) -> bool {
    regular::open(path).is_ok_and(|file| file.try_lock().is_err())
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::super::sample_spec;
    use super::*;
    use crate::base::atomic::AtomicFile;

    fn names(dir: &Path) -> Vec<String> {
        let mut names: Vec<String> =
            entries(dir).map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
        names.sort();
        names
    }

    /// Makes a path look as if it were written an hour ago.
    fn age(path: &Path) {
        let hour = std::time::SystemTime::now() - Duration::from_secs(3600);
        File::open(path).unwrap().set_modified(hour).unwrap();
    }

    #[test]
    fn what_the_dead_left_goes_and_what_somebody_writes_stays() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        let store = Store::open(dir.path());
        let run = store.begin(&sample_spec("ladder"), None, 0).unwrap();
        for name in [".tmp-abc", &format!("{}/.tmp-def", run.id), ".trace-1"] {
            std::fs::write(at(name), "half").unwrap();
            age(&at(name));
        }
        std::fs::create_dir_all(at(".tmp-empty")).unwrap();
        age(&at(".tmp-empty"));
        let mut written = AtomicFile::create(&at("annotations.jsonl")).unwrap();
        written.write_all(b"half").unwrap();
        std::fs::write(at("mine.txt"), "a user's").unwrap();
        let unfinished: Vec<String> =
            names(dir.path()).into_iter().filter(|n| is_unfinished(n)).collect();
        let theirs = unfinished
            .iter()
            .find(|name| ![".tmp-abc", ".trace-1", ".tmp-empty"].contains(&name.as_str()));
        let theirs = theirs.unwrap().clone();
        age(&at(&theirs));
        store.prepare().unwrap();
        let mut left = vec![theirs, run.id.clone(), "mine.txt".to_owned()];
        left.sort();
        assert_eq!(names(dir.path()), left);
        // its process, this one, is alive
        assert_eq!(names(&run.path), [".tmp-def", "spec.json"]);
        written.finish().unwrap();
    }

    #[test]
    fn a_directory_that_cannot_be_written_is_refused_first() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("file"), "").unwrap();
        let error = Store::open(dir.path().join("file/runs")).prepare().unwrap_err();
        assert_eq!(error.exit_code(), 2);
        assert!(error.to_string().contains("runs cannot be stored there"), "{error}");
    }
}
