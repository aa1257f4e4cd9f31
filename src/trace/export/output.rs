//! A file that is there when it is whole, and not before.

use std::io::{self, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use tempfile::NamedTempFile;

use crate::error::{Error, Result};

/// A file to be: written beside its place and renamed into it.
#[derive(Debug)]
pub struct Output {
    path: PathBuf,
    file: NamedTempFile,
}

impl Output {
    /// Starts a file beside `path`.
    pub fn create(path: &Path) -> Result<Self> {
        let directory = path.parent().filter(|parent| !parent.as_os_str().is_empty());
        let file = tempfile::Builder::new()
            .prefix(".trace-")
            // as any other new file, not private as temporary ones are
            .permissions(std::fs::Permissions::from_mode(0o666))
            .tempfile_in(directory.unwrap_or(Path::new(".")))
            .map_err(Error::io(path))?;
        Ok(Self { path: path.to_owned(), file })
    }

    /// Where it will be.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Renames it into place.
    pub fn finish(self) -> Result<()> {
        self.file.as_file().sync_all().map_err(Error::io(&self.path))?;
        self.file.persist(&self.path).map_err(|error| Error::io(&self.path)(error.error))?;
        Ok(())
    }

    /// The error of a file that is in the way.
    pub fn exists(path: &Path) -> Error {
        Error::input_help(
            format!("{}: there is such a file already", path.display()),
            "choose another name, or replace it with --force",
        )
    }
}

impl Write for Output {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.file.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}
