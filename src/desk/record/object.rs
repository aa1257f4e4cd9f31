//! The recorder's shared object, which is part of this program: written to a folder from which programs can load it.

use std::path::{Path, PathBuf};

use base::error::{Error, Result};
use base::hash::short_key;

static OBJECT: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/inject.so"));
/// Longest path that NCCL takes (bytes).
const MOST_PATH: usize = 254;

/// Path of the object, written unless it is there; `directory` is the last choice.
///
/// # Errors
///
/// Returns an error if this program was built without it, or no folder can be written and executed from.
pub(super) fn unpacked(directory: &Path) -> Result<PathBuf> {
    if OBJECT.is_empty() {
        return Err(Error::input("this program was built without its recorder, which needs Linux"));
    }
    let name = format!("ladderscope-{}.so", short_key(OBJECT));
    let set = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let cache = set("XDG_CACHE_HOME").or_else(|| set("HOME").map(|home| home.join(".cache")));
    let folders = [
        set("XDG_RUNTIME_DIR"),
        cache.map(|cache| cache.join("ladderscope")),
        Some(directory.to_owned()),
    ];
    let mut last = Error::failed("no folder for the recorder");
    for folder in folders.into_iter().flatten().filter(|folder| folder.is_absolute()) {
        let path = folder.join(&name);
        if path.as_os_str().len() > MOST_PATH {
            last = Error::input(format!("{}: longer than {MOST_PATH} bytes", path.display()));
            continue;
        }
        match write(&path).and_then(|()| is_loadable(&path)) {
            Ok(()) => return Ok(path),
            Err(error) => last = error,
        }
    }
    Err(last)
}

fn write(path: &Path) -> Result<()> {
    if std::fs::read(path).is_ok_and(|bytes| bytes == OBJECT) {
        return Ok(());
    }
    if let Some(folder) = path.parent() {
        std::fs::create_dir_all(folder).map_err(Error::io(folder))?;
    }
    base::atomic::write(path, OBJECT)
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
    fn the_object_is_written_once_and_repaired() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a/object.so");
        write(&path).unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), OBJECT);
        std::fs::write(&path, b"\x7fELF broken").unwrap();
        write(&path).unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), OBJECT);
        is_loadable(&path).unwrap();
    }
}
