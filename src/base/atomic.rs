//! Writing files so that they are there whole or not at all, whatever dies meanwhile.

use std::fs::{File, Permissions};
use std::io::ErrorKind::{InvalidInput, PermissionDenied, Unsupported};
use std::io::{self, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use tempfile::NamedTempFile;

use crate::base::error::{Error, Result};

/// How names of unfinished files and directories begin; nothing lists them.
pub const UNFINISHED: &str = ".tmp-";

/// A file that is written beside its place and renamed into it when it is whole. Dropped before
/// [`AtomicFile::finish`] it leaves nothing, and what was in its place stays.
#[derive(Debug)]
pub struct AtomicFile {
    path: PathBuf,
    file: NamedTempFile,
}

impl AtomicFile {
    /// Starts a file that is to be at `path`. Fails where nothing can be written beside `path`, also
    /// where its directory is not there: a path that somebody mistyped is to be refused.
    pub fn create(path: &Path) -> Result<Self> {
        let file = tempfile::Builder::new()
            .prefix(UNFINISHED)
            // the umask applies; the default would hide results from everybody else
            .permissions(Permissions::from_mode(0o666))
            .tempfile_in(directory(path))
            .map_err(Error::io(path))?;
        // tells who cleans up after the dead that this one is alive; a file system without locks does without
        let _ = file.as_file().try_lock();
        Ok(Self { path: path.to_owned(), file })
    }

    /// Starts a file like [`AtomicFile::create`], and makes the directories on the way. Fails where one
    /// of them can neither be made nor written to.
    pub fn create_all(path: &Path) -> Result<Self> {
        let dir = directory(path);
        std::fs::create_dir_all(dir).map_err(Error::io(dir))?;
        Self::create(path)
    }

    /// Where the file will be.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The file that is written meanwhile, for what seeks in it or reads it again.
    pub fn file_mut(&mut self) -> &mut File {
        self.file.as_file_mut()
    }

    /// Syncs the file, renames it into place and syncs the directory. Fails where the disk is full or
    /// `path` cannot be replaced, and what was there stays then; a directory that cannot be synced is an
    /// error after the renaming.
    pub fn finish(self) -> Result<()> {
        self.file.as_file().sync_all().map_err(Error::io(&self.path))?;
        self.file.persist(&self.path).map_err(|e| Error::io(&self.path)(e.error))?;
        sync_dir(directory(&self.path))
    }
}

impl Write for AtomicFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.file.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

/// Writes `bytes` to `path`, all of them or none, and makes the directories on the way. Fails where
/// [`AtomicFile::create_all`] or [`AtomicFile::finish`] does.
pub fn write(path: &Path, bytes: &[u8]) -> Result<()> {
    let mut file = AtomicFile::create_all(path)?;
    file.write_all(bytes).map_err(Error::io(path))?;
    file.finish()
}

/// Makes renames within a directory last through a power cut. Fails where the disk does; a file system
/// or a permission that does not allow such a sync is passed over.
pub fn sync_dir(dir: &Path) -> Result<()> {
    match File::open(dir).and_then(|dir| dir.sync_all()) {
        // a directory that may be written but not read, or one of a file system without such a sync
        Err(e) if matches!(e.kind(), PermissionDenied | InvalidInput | Unsupported) => Ok(()),
        synced => synced.map_err(Error::io(dir)),
    }
}

fn directory(path: &Path) -> &Path {
    path.parent().filter(|dir| !dir.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_is_not_finished_leaves_the_old_one_and_no_rubbish() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.json");
        write(&path, b"old").unwrap();
        let mut file = AtomicFile::create(&path).unwrap();
        file.write_all(b"ne").unwrap();
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 2);
        drop(file);
        assert_eq!(std::fs::read(&path).unwrap(), b"old");
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1);
    }

    #[test]
    fn directories_on_the_way_are_made() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("x/y/a.json");
        write(&path, b"1").unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), b"1");
    }
}
