//! Who runs which cell: two sweeps of one experiment in one directory share its cells instead of running each
//! twice. A claim is a locked file, `runs/.claims/CELL-ROUND`, that names its process; the system unlocks it
//! when that process dies, however it dies.

use std::fs::File;
use std::io::{Read, Seek, SeekFrom, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use super::directory::Store;
use super::process::Process;
use crate::base::error::{Error, Result};
use crate::base::regular;

/// Where claims lie, in a runs directory.
pub(super) const CLAIMS: &str = ".claims";

/// The right to run something; given back when it is dropped.
#[derive(Debug)]
pub struct Claim {
    path: PathBuf,
    _lock: File,
}

/// How asking for a claim ended.
#[derive(Debug)]
pub enum Claimed {
    /// It is this process's until the claim is dropped.
    Ours(Claim),
    /// Another process has it: which, in words.
    By(String),
}

impl Drop for Claim {
    fn drop(&mut self) {
        // still locked: nobody else takes the file that goes now for theirs
        let _ = std::fs::remove_file(&self.path);
    }
}

impl Store {
    /// Claims something to be run: of a cell its key and round.
    ///
    /// # Errors
    ///
    /// A failure where the directory cannot be written.
    pub fn claim(&self, what: &str) -> Result<Claimed> {
        let dir = self.dir().join(CLAIMS);
        regular::folder(&dir).map_err(Error::io(&dir))?;
        std::fs::create_dir_all(&dir).map_err(Error::io(&dir))?;
        let path = dir.join(what);
        loop {
            let mut file = regular::open_or_make(&path).map_err(Error::io(&path))?;
            match file.try_lock() {
                Ok(()) if !is_at(&file, &path) => {}
                Ok(()) => {
                    write_holder(&mut file).map_err(Error::io(&path))?;
                    return Ok(Claimed::Ours(Claim { path, _lock: file }));
                }
                Err(std::fs::TryLockError::WouldBlock) => return Ok(Claimed::By(holder(&mut file))),
                Err(std::fs::TryLockError::Error(e)) => return Err(Error::io(&path)(e)),
            }
        }
    }
}

/// Whether a locked file still has its name: whoever held the lock before may have taken it away.
pub(super) fn is_at(file: &File, path: &Path) -> bool {
    match (file.metadata(), path.symlink_metadata()) {
        (Ok(locked), Ok(named)) => (locked.dev(), locked.ino()) == (named.dev(), named.ino()),
        _ => false,
    }
}

fn write_holder(file: &mut File) -> std::io::Result<()> {
    file.set_len(0)?;
    file.write_all(&serde_json::to_vec(&Process::current())?)
}

/// Who wrote a claim, in words.
fn holder(file: &mut File) -> String {
    let mut text = String::new();
    let read = file.seek(SeekFrom::Start(0)).and_then(|_| file.take(4096).read_to_string(&mut text));
    match read.ok().and_then(|_| serde_json::from_str::<Process>(&text).ok()) {
        Some(Process { pid, host: Some(host), .. }) => format!("process {pid} on {host}"),
        Some(Process { pid, .. }) => format!("process {pid}"),
        None => "another process".into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_has_it_others_are_told_who_and_nothing_is_left() {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::open(dir.path());
        let Claimed::Ours(claim) = store.claim("cell-0").unwrap() else { panic!("it is free") };
        let Claimed::By(who) = store.claim("cell-0").unwrap() else { panic!("it is taken") };
        assert!(who.starts_with(&format!("process {}", std::process::id())), "{who}");
        assert!(matches!(store.claim("cell-1").unwrap(), Claimed::Ours(_)));
        drop(claim);
        assert!(matches!(store.claim("cell-0").unwrap(), Claimed::Ours(_)));
        assert_eq!(std::fs::read_dir(dir.path().join(CLAIMS)).unwrap().count(), 0);
    }

    #[test]
    fn many_at_once_never_have_it_together() {
        let dir = tempfile::tempdir().unwrap();
        let inside = std::sync::atomic::AtomicUsize::new(0);
        std::thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| {
                    let store = Store::open(dir.path());
                    let mut had = 0;
                    while had < 50 {
                        if let Claimed::Ours(_claim) = store.claim("cell").unwrap() {
                            use std::sync::atomic::Ordering::SeqCst;
                            assert_eq!(inside.fetch_add(1, SeqCst), 0);
                            std::thread::yield_now();
                            inside.fetch_sub(1, SeqCst);
                            had += 1;
                        }
                    }
                });
            }
        });
    }
}
