//! Identity of the program: commit, if known, and binary hash.

use std::fs::File;
use std::io::Read;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use base::cache::Cache;
use base::hash;

/// Source commit, with `+dirty` for modified files. Null unless the current directory is inside a
/// checkout of this project, because another repository's commit would be wrong.
pub(super) fn commit() -> Value {
    let Some(root) = std::env::current_dir().ok().and_then(|dir| project_root(&dir)) else {
        return Value::Null;
    };
    let git = |arguments: &[&str]| {
        let output = Command::new("git").arg("-C").arg(&root).args(arguments).output().ok()?;
        output.status.success().then(|| String::from_utf8_lossy(&output.stdout).trim().to_owned())
    };
    let Some(head) = git(&["rev-parse", "HEAD"]) else { return Value::Null };
    match git(&["status", "--porcelain", "--untracked-files=no"]) {
        Some(changes) if !changes.is_empty() => json!(format!("{head}+dirty")),
        _ => json!(head),
    }
}

/// Root of the checkout of this project that contains `dir`.
fn project_root(dir: &Path) -> Option<PathBuf> {
    let root = dir.ancestors().find(|a| a.join(".git").exists())?;
    let manifest = std::fs::read_to_string(root.join("Cargo.toml")).ok()?;
    let package = manifest.parse::<toml::Table>().ok()?;
    let name = package.get("package")?.get("name")?.as_str()?;
    (name == "ladderscope").then(|| root.to_owned())
}

/// SHA-256 of the running binary in hex. Hashing 57 MB takes 37 ms, so the user's cache keeps the hash,
/// keyed by the file's metadata.
pub fn binary_hash() -> Value {
    static HASH: OnceLock<Option<String>> = OnceLock::new();
    json!(HASH.get_or_init(|| {
        let path = std::env::current_exe().ok()?;
        // the link leads to the running file even if another file has replaced it
        let file = File::open("/proc/self/exe").or_else(|_| File::open(&path)).ok()?;
        hash_of(file, &path, Cache::of_user("binaries").as_ref())
    }))
}

/// Hash of a file at `path`, from the cache if the file's metadata match.
fn hash_of(mut file: File, path: &Path, cache: Option<&Cache>) -> Option<String> {
    let about = file.metadata().ok()?;
    // ctime changes with every content change and cannot be set by users
    let known_by = format!(
        "{} {} {} {}.{} {}.{} ",
        about.dev(),
        about.ino(),
        about.size(),
        about.mtime(),
        about.mtime_nsec(),
        about.ctime(),
        about.ctime_nsec(),
    );
    let name = hash::sha256(path.as_os_str().as_encoded_bytes());
    let kept = cache.and_then(|cache| String::from_utf8(cache.load(&name)?).ok());
    if let Some(known) = kept.as_deref().and_then(|kept| kept.strip_prefix(&known_by)) {
        return Some(known.to_owned());
    }
    let mut digest = Sha256::new();
    let mut buffer = vec![0; 1 << 20];
    loop {
        match file.read(&mut buffer).ok()? {
            0 => break,
            n => digest.update(&buffer[..n]),
        }
    }
    let found = hash::hex(digest.finalize());
    if let Some(cache) = cache {
        cache.store(&name, format!("{known_by}{found}").as_bytes());
    }
    Some(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_this_project_counts() {
        let here = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).expect("the project");
        let elsewhere = tempfile::tempdir().unwrap();
        std::fs::create_dir(elsewhere.path().join(".git")).unwrap();
        assert_eq!(project_root(elsewhere.path()), None);
        std::fs::write(elsewhere.path().join("Cargo.toml"), "[package]\nname = \"other\"\n").unwrap();
        assert_eq!(project_root(elsewhere.path()), None);
        if here.join(".git").exists() {
            assert_eq!(project_root(&here.join("src")), Some(here.to_owned()));
        }
    }

    #[test]
    fn a_file_is_hashed_once_and_again_when_it_is_another_one() {
        let folder = tempfile::tempdir().expect("a folder");
        let (path, cache) = (folder.path().join("program"), Cache::new(&folder.path().join("kept")));
        let found = |cache: Option<&Cache>| hash_of(File::open(&path).expect("a file"), &path, cache);
        std::fs::write(&path, "one").expect("written");
        let one = Some(hash::sha256(b"one"));
        assert_eq!(
            [found(None), found(Some(&cache)), found(Some(&cache))],
            [(); 3].map(|()| one.clone())
        );
        // what is kept is what is told
        let name = hash::sha256(path.as_os_str().as_encoded_bytes());
        let kept = String::from_utf8(cache.load(&name).expect("it is kept")).expect("text");
        let (known_by, _) = kept.rsplit_once(' ').expect("the hash is behind it");
        cache.store(&name, format!("{known_by} kept").as_bytes());
        assert_eq!(found(Some(&cache)).as_deref(), Some("kept"));
        // another file of the same length, made when a coarse clock tells another time
        let tick = std::time::Duration::from_millis(20);
        std::thread::sleep(tick);
        std::fs::remove_file(&path).expect("removed");
        std::fs::write(&path, "two").expect("written");
        assert_eq!(found(Some(&cache)), Some(hash::sha256(b"two")));
        // written into, with its old time of change
        let before = std::fs::metadata(&path).and_then(|about| about.modified()).expect("a time");
        std::thread::sleep(tick);
        std::fs::write(&path, "six").expect("written");
        File::options()
            .append(true)
            .open(&path)
            .and_then(|file| file.set_modified(before))
            .expect("set");
        assert_eq!(found(Some(&cache)), Some(hash::sha256(b"six")));
    }
}
