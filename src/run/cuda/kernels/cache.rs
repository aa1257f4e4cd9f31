//! Compiled units on disk: `$XDG_CACHE_HOME/ladderscope/kernels/KEY.cubin`, each with a checksum of itself.
//!
//! The key is a hash of everything that the machine code follows from, so nothing there is ever out of date.
//! The cache only saves time: what cannot be read or written is compiled anew.

use std::path::{Path, PathBuf};

use sha2::{Digest, Sha256};

use super::sources::{HEADERS, Unit};
use crate::base::atomic;
use crate::base::hash::hex;

/// Bytes of the checksum at a file's end.
const CHECKSUM: usize = 32;

/// A folder of compiled units.
#[derive(Debug)]
pub(super) struct Cache {
    folder: PathBuf,
}

/// What identifies machine code: source, headers, options (the architecture is one) and compiler.
pub(super) fn key(unit: &Unit, options: &[String], (major, minor): (u32, u32)) -> String {
    let mut hash = Sha256::new();
    let mut add = |text: &str| {
        hash.update((text.len() as u64).to_le_bytes());
        hash.update(text);
    };
    add(unit.name);
    add(unit.source);
    for (name, text) in HEADERS {
        add(name);
        add(text);
    }
    for option in options {
        add(option);
    }
    add(&format!("nvrtc {major}.{minor}"));
    hex(hash.finalize())
}

impl Cache {
    /// The user's; `None` where there is no home.
    pub(super) fn of_user() -> Option<Self> {
        let set =
            |name: &str| std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
        let base = set("XDG_CACHE_HOME").or_else(|| Some(std::env::home_dir()?.join(".cache")))?;
        Some(Self::new(&base.join("ladderscope/kernels")))
    }

    pub(super) fn new(folder: &Path) -> Self {
        Self { folder: folder.to_path_buf() }
    }

    fn file(&self, key: &str) -> PathBuf {
        self.folder.join(format!("{key}.cubin"))
    }

    /// The machine code of this key, if it is there and whole.
    pub(super) fn load(&self, key: &str) -> Option<Vec<u8>> {
        let mut bytes = std::fs::read(self.file(key)).ok()?;
        let (code, checksum) = bytes.split_at_checked(bytes.len().checked_sub(CHECKSUM)?)?;
        if code.is_empty() || Sha256::digest(code)[..] != *checksum {
            return None;
        }
        bytes.truncate(bytes.len() - CHECKSUM);
        Some(bytes)
    }

    /// Writes machine code in one step: nobody sees half a file.
    pub(super) fn store(&self, key: &str, code: &[u8]) {
        // a full or read-only disk costs a compilation the next time, no more
        let _ = atomic::write(&self.file(key), &[code, &Sha256::digest(code)].concat());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run::cuda::kernels::sources::UNITS;

    #[test]
    fn what_is_stored_is_found_and_what_is_broken_is_not() {
        let folder = tempfile::tempdir().expect("a folder");
        let cache = Cache::new(&folder.path().join("deep/kernels"));
        assert_eq!(cache.load("a"), None);
        cache.store("a", b"code");
        assert_eq!(cache.load("a").as_deref(), Some(b"code".as_slice()));
        assert_eq!(cache.load("b"), None);
        let file = cache.file("a");
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
        let cache = Cache::new(&file.path().join("kernels"));
        cache.store("a", b"code");
        assert_eq!(cache.load("a"), None);
    }

    #[test]
    fn keys_differ_by_all_that_code_follows_from() {
        let options = |text: &str| vec![text.to_owned()];
        let keys = [
            key(&UNITS[0], &options("-DA"), (13, 0)),
            key(&UNITS[1], &options("-DA"), (13, 0)),
            key(&UNITS[0], &options("-DB"), (13, 0)),
            key(&UNITS[0], &options("-DA"), (12, 9)),
            key(&UNITS[0], &["-D".to_owned(), "A".to_owned()], (13, 0)),
        ];
        let distinct: std::collections::HashSet<&String> = keys.iter().collect();
        assert_eq!(distinct.len(), keys.len());
        assert_eq!(keys[0], key(&UNITS[0], &options("-DA"), (13, 0)));
        assert_eq!(keys[0].len(), 64);
    }
}
