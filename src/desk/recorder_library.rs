//! The recorder's shared object: part of this program, and written to a folder from which the driver, NVTX and NCCL can
//! load it.

use std::path::{Path, PathBuf};

use base::atomic;
use base::cache::own_directory;
use base::checksum::short_key;
use base::error::{Error, Result};

/// Shared object of the recorder; empty if this program was built without it.
static RECORDER: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/inject.so"));
/// Maximum length of a plugin's path in NCCL.
const MAX_PATH_BYTES: usize = 254;

/// Path of the recorder's shared object, written if missing: in the runtime directory, the user's cache, or else in
/// `directory`.
///
/// Returns an error if this program was built without it, or no folder can be written and executed from.
pub(super) fn recorder_path(directory: &Path) -> Result<PathBuf> {
    if RECORDER.is_empty() {
        return Err(Error::input("this program was built without its recorder, which needs Linux"));
    }
    let name = format!("ladderscope-{}.so", short_key(RECORDER));
    let runtime = std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from);
    let folders = [runtime, own_directory("XDG_CACHE_HOME", ".cache"), Some(directory.to_owned())];
    let mut last = Error::failed("no folder for the recorder");
    for folder in folders.into_iter().flatten().filter(|folder| folder.is_absolute()) {
        let path = folder.join(&name);
        if path.as_os_str().len() > MAX_PATH_BYTES {
            last = Error::input(format!("{}: longer than {MAX_PATH_BYTES} bytes", path.display()));
            continue;
        }
        match write_recorder(&path).and_then(|()| is_loadable(&path)) {
            Ok(()) => return Ok(path),
            Err(error) => last = error,
        }
    }
    Err(last)
}

fn write_recorder(path: &Path) -> Result<()> {
    if std::fs::read(path).is_ok_and(|bytes| bytes == RECORDER) {
        return Ok(());
    }
    if let Some(folder) = path.parent() {
        std::fs::create_dir_all(folder).map_err(Error::io(folder))?;
    }
    atomic::write(path, RECORDER)
}

/// Maps the file as code, which fails where a file system is mounted `noexec`.
fn is_loadable(path: &Path) -> Result<()> {
    use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};
    let file = std::fs::File::open(path).map_err(Error::io(path))?;
    let protection = ProtFlags::READ | ProtFlags::EXEC;
    // SAFETY: a private mapping at an address of the kernel's choice, which is never read.
    unsafe {
        let mapped = mmap(std::ptr::null_mut(), 4096, protection, MapFlags::PRIVATE, &file, 0)
            .map_err(|error| Error::io(path)(error.into()))?;
        let _ = munmap(mapped, 4096);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_recorder_is_written_once_and_repaired() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a/object.so");
        write_recorder(&path).unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), RECORDER);
        std::fs::write(&path, b"\x7fELF broken").unwrap();
        write_recorder(&path).unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), RECORDER);
        is_loadable(&path).unwrap();
    }
}
