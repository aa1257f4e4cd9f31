//! Writing files so that they are there whole or not at all, whatever dies meanwhile.

use std::fs::{File, Permissions};
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use crate::error::{Error, Result};

/// How names of unfinished files and directories begin; nothing lists them.
pub(crate) const UNFINISHED: &str = ".tmp-";

/// Writes `bytes` to `path`: beside it, synced, renamed into place, the directory synced.
pub(crate) fn write(path: &Path, bytes: &[u8]) -> Result<()> {
    write_with(path, |file| file.write_all(bytes).map_err(Error::io(path)))
}

/// Like [`write`], with a function that fills the file.
pub(crate) fn write_with(path: &Path, fill: impl FnOnce(&mut File) -> Result<()>) -> Result<()> {
    let dir = path.parent().filter(|d| !d.as_os_str().is_empty()).unwrap_or(Path::new("."));
    std::fs::create_dir_all(dir).map_err(Error::io(dir))?;
    let mut file = tempfile::Builder::new()
        .prefix(UNFINISHED)
        // the umask applies; the default would hide results from everybody else
        .permissions(Permissions::from_mode(0o666))
        .tempfile_in(dir)
        .map_err(Error::io(dir))?;
    fill(file.as_file_mut())?;
    file.as_file().sync_all().map_err(Error::io(path))?;
    file.persist(path).map_err(|e| Error::io(path)(e.error))?;
    sync_dir(dir)
}

/// Makes renames within a directory last.
pub(crate) fn sync_dir(dir: &Path) -> Result<()> {
    File::open(dir).and_then(|d| d.sync_all()).map_err(Error::io(dir))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_could_not_be_filled_leaves_the_old_one_and_no_rubbish() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.json");
        write(&path, b"old").unwrap();
        let failed = write_with(&path, |file| {
            file.write_all(b"ne").map_err(Error::io(&path))?;
            Err(Error::failed("disk full"))
        });
        assert!(failed.is_err());
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
