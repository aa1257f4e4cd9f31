//! Disk cache in `$XDG_CACHE_HOME/ladderscope/KIND/KEY`; each file ends with its checksum. A key is a
//! hash of all inputs of the content, so entries never expire; entries under other names (a binary's
//! hash, stored by path) start with their inputs.

use std::path::{Path, PathBuf};

use sha2::{Digest, Sha256};

use super::atomic;

/// Checksum bytes at the end of a file.
const CHECKSUM_BYTES: usize = 32;

/// The program's directory below `$variable`, or below `otherwise` in the home directory; `None` without
/// a home. Relative values are ignored, because they would depend on the working directory.
pub fn own_directory(variable: &str, otherwise: &str) -> Option<PathBuf> {
    own_directory_of(std::env::var_os(variable).map(PathBuf::from), std::env::home_dir(), otherwise)
}

fn own_directory_of(set: Option<PathBuf>, home: Option<PathBuf>, otherwise: &str) -> Option<PathBuf> {
    let absolute = |path: &PathBuf| path.is_absolute();
    let base = set.filter(absolute).or_else(|| Some(home.filter(absolute)?.join(otherwise)))?;
    Some(base.join("ladderscope"))
}

/// Folder of cached files. Read and write errors only cause recomputation.
#[derive(Debug)]
pub struct FileCache {
    folder: PathBuf,
}

impl FileCache {
    /// The user's cache for this kind of content; `None` without a home.
    pub fn of_user(kind: &str) -> Option<Self> {
        Some(Self::new(&own_directory("XDG_CACHE_HOME", ".cache")?.join(kind)))
    }

    /// Cache in a folder, which may not exist yet.
    pub fn new(folder: &Path) -> Self {
        Self { folder: folder.to_path_buf() }
    }

    /// Content stored under a key (a file name), if present and intact.
    pub fn load(&self, key: &str) -> Option<Vec<u8>> {
        let mut bytes = std::fs::read(self.folder.join(key)).ok()?;
        let (content, checksum) = bytes.split_at_checked(bytes.len().checked_sub(CHECKSUM_BYTES)?)?;
        if content.is_empty() || Sha256::digest(content)[..] != *checksum {
            return None;
        }
        bytes.truncate(bytes.len() - CHECKSUM_BYTES);
        Some(bytes)
    }

    pub fn store(&self, key: &str, content: &[u8]) {
        // a full or read-only disk only costs recomputing it
        let _ = atomic::write(&self.folder.join(key), &[content, &Sha256::digest(content)].concat());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn directories_of_the_user_are_absolute() {
        let path = |text: &str| Some(PathBuf::from(text));
        let of = |set, home| own_directory_of(set, home, ".cache");
        assert_eq!(of(path("/x"), path("/h")), path("/x/ladderscope"));
        assert_eq!(of(path("x"), path("/h")), path("/h/.cache/ladderscope"));
        assert_eq!(of(path(""), path("/h")), path("/h/.cache/ladderscope"));
        assert_eq!(
            [of(None, path("h")), of(path("x"), path("h")), of(None, path("")), of(None, None)],
            [const { None }; 4]
        );
    }

    #[test]
    fn what_is_stored_is_found_and_what_is_broken_is_not() {
        let folder = tempfile::tempdir().expect("a folder");
        let cache = FileCache::new(&folder.path().join("deep/kernels"));
        assert_eq!(cache.load("a"), None);
        cache.store("a", b"code");
        assert_eq!(cache.load("a").as_deref(), Some(b"code".as_slice()));
        assert_eq!(cache.load("b"), None);
        let file = folder.path().join("deep/kernels/a");
        let whole = std::fs::read(&file).expect("the file");
        for broken in [&whole[..whole.len() - 1], &whole[1..], b"", &[0; 40]] {
            std::fs::write(&file, broken).expect("written");
            assert_eq!(cache.load("a"), None);
        }
        cache.store("a", b"code");
        assert!(cache.load("a").is_some());
    }

    #[test]
    fn a_folder_that_cannot_be_made_is_no_error() {
        let file = tempfile::NamedTempFile::new().expect("a file");
        let cache = FileCache::new(&file.path().join("kernels"));
        cache.store("a", b"code");
        assert_eq!(cache.load("a"), None);
    }
}
