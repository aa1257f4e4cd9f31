//! Removes leftovers of processes that were killed or met a full disk: unfinished files and directories, and claims,
//! all in the folder `.ladderscope/`. Writers remove only those whose process is provably gone.

use super::directory::Store;
use base::atomic::{self, AtomicFile, UnfinishedDir};
use base::error::{Error, Result};

impl Store {
    /// Prepares the directory for writing: creates it, checks that it is writable, merges batches whose writers died,
    /// and removes their unfinished files.
    ///
    /// # Errors
    ///
    /// Returns an input error if the directory cannot be created or written, before anything is computed.
    pub fn prepare(&self) -> Result<()> {
        let dir = self.dir();
        let refused = |why: String| {
            Error::input_help(
                format!("{}: runs cannot be stored there: {why}", dir.display()),
                "name a directory that you can write: --dir DIR",
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
        self.seal_abandoned_batches();
        self.remove_abandoned();
        Ok(())
    }

    /// Removes leftovers of processes that are gone. Files that cannot be removed do no harm and stay.
    pub fn remove_abandoned(&self) {
        atomic::remove_abandoned(self.dir());
        self.remove_abandoned_claims();
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::io::Write;
    use std::path::Path;

    use super::super::sample_spec;
    use super::*;
    use base::owner::unfinished_name;
    use base::regular;

    fn names(dir: &Path) -> Vec<String> {
        let mut names: Vec<String> =
            regular::entries(dir).unwrap_or_default().into_iter().map(|entry| entry.name).collect();
        names.sort();
        names
    }

    /// Name of an unfinished file whose process, of this number and an earlier start, is gone.
    fn name_of_the_dead() -> String {
        let name = unfinished_name("x");
        let mut parts: Vec<&str> = name.split('-').collect();
        parts[2] = "1";
        parts.join("-")
    }

    #[test]
    fn the_leftovers_of_the_dead_go_and_everything_else_stays() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        let store = Store::open(dir.path());
        let run = store.begin(&sample_spec("ladder"), None, 0).unwrap();
        // names like those of earlier versions, and of other programs
        let foreign = [".tmp-abc", ".trace-1", ".ladderscope-notes", "mine.txt", ".ladderscope/mine"];
        let hour = std::time::SystemTime::now() - std::time::Duration::from_secs(3600);
        for name in foreign.iter().map(|name| at(name)).chain([run.path.join(".tmp-def")]) {
            fs::write(&name, "half").unwrap();
            fs::File::open(&name).unwrap().set_modified(hour).unwrap();
        }
        fs::create_dir_all(at(".tmp-folder/deep")).unwrap();
        fs::create_dir_all(at("batches/theirs.parts")).unwrap();
        fs::write(at("batches/theirs.parts/notes"), "mine").unwrap();
        // a name of ours outside our folder is not removed either
        let outside = name_of_the_dead();
        fs::write(at(&outside), "half").unwrap();
        let written = UnfinishedDir::create(&at("another")).unwrap();
        let scratch = at(atomic::FOLDER);
        fs::write(scratch.join(name_of_the_dead()), "half").unwrap();
        fs::create_dir_all(scratch.join(name_of_the_dead()).join("deep")).unwrap();
        let before = names(dir.path());
        store.prepare().unwrap();
        assert_eq!(names(dir.path()), before);
        let written = written.path().file_name().unwrap().to_str().unwrap();
        assert_eq!(names(&scratch), [written, "mine"], "a live process's stays");
        assert_eq!(names(&run.path), [".tmp-def", "spec.json"]);
        assert_eq!(names(&at("batches/theirs.parts")), ["notes"]);
        assert_eq!(names(&at(".tmp-folder")), ["deep"]);
    }

    #[test]
    fn claims_of_the_dead_go_and_those_that_say_nothing_of_ours_stay() {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::open(dir.path());
        let claim = store.claim("cell-0").unwrap();
        let claims = dir.path().join(".ladderscope/claims");
        let mut process: serde_json::Value =
            serde_json::from_slice(&fs::read(claims.join("cell-0")).unwrap()).unwrap();
        process["start_ticks"] = 1.into();
        fs::write(claims.join("cell-1"), process.to_string()).unwrap();
        process["boot"] = "another".into();
        process["host"] = "elsewhere".into();
        fs::write(claims.join("cell-2"), process.to_string()).unwrap();
        fs::write(claims.join("notes"), "mine").unwrap();
        store.prepare().unwrap();
        assert_eq!(names(&claims), ["cell-0", "cell-2", "notes"]);
        drop(claim);
    }

    #[test]
    fn links_in_a_runs_directory_are_not_followed() {
        let (dir, outside) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let store = Store::open(dir.path());
        fs::create_dir(dir.path().join("batches")).unwrap();
        let link =
            |name: &str| std::os::unix::fs::symlink(outside.path(), dir.path().join(name)).unwrap();
        fs::write(outside.path().join("lock"), "").unwrap();
        fs::write(outside.path().join("000000.parquet"), "mine").unwrap();
        fs::write(outside.path().join("record.json"), "{}").unwrap();
        for name in ["batches/20261121-043012-sim-bbbbbb.parts", "20261121-043012-ladder-aaaaaa"] {
            link(name);
        }
        store.prepare().unwrap();
        assert!(store.list().unwrap().records.is_empty());
        assert!(store.claim("cell-0").is_ok());
        assert_eq!(names(outside.path()), ["000000.parquet", "lock", "record.json"]);
        let mut written = AtomicFile::create(&dir.path().join("20261121-043012-ladder-aaaaaa/x"));
        assert!(written.as_mut().map(|file| file.write_all(b"x")).is_err());
        // a link in the place of a folder of ours
        for name in ["batches", "trainings", "evaluations", "baselines", ".trash", ".ladderscope"] {
            let path = dir.path().join(name);
            let _ = fs::remove_dir_all(&path);
            link(name);
        }
        assert!(store.prepare().unwrap_err().to_string().contains("a link, and links are not followed"));
        assert!(
            store
                .write_batch(&mut [table::Record::new(sample_spec("ladder"), table::Status::Ok, None)])
                .is_err()
        );
        assert!(store.training_folder("x").is_err() && store.claim("cell-0").is_err());
        assert_eq!(names(outside.path()), ["000000.parquet", "lock", "record.json"], "nothing was made");
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
