//! Which program ran: its commit, where that can be known, and the hash of its binary.

use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use crate::base::hash::hex;

/// Commit of the source, `+dirty` where files differ from it. Null unless the current directory lies in
/// a repository of this very project: another repository's commit would be a false statement.
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

/// The directory at or above `dir` that is a checkout of this project.
fn project_root(dir: &Path) -> Option<PathBuf> {
    let root = dir.ancestors().find(|a| a.join(".git").exists())?;
    let manifest = std::fs::read_to_string(root.join("Cargo.toml")).ok()?;
    let package = manifest.parse::<toml::Table>().ok()?;
    let name = package.get("package")?.get("name")?.as_str()?;
    (name == env!("CARGO_PKG_NAME")).then(|| root.to_owned())
}

/// SHA-256 of the running binary, in hexadecimal digits.
pub fn binary_hash() -> Value {
    static HASH: OnceLock<Option<String>> = OnceLock::new();
    json!(HASH.get_or_init(|| {
        // the link leads to the file that runs even where another has taken its name
        let mut file = std::fs::File::open("/proc/self/exe")
            .or_else(|_| std::fs::File::open(std::env::current_exe()?))
            .ok()?;
        let mut hash = Sha256::new();
        let mut buffer = vec![0; 1 << 20];
        loop {
            match file.read(&mut buffer).ok()? {
                0 => break,
                n => hash.update(&buffer[..n]),
            }
        }
        Some(hex(hash.finalize()))
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_this_project_counts() {
        let here = Path::new(env!("CARGO_MANIFEST_DIR"));
        let elsewhere = tempfile::tempdir().unwrap();
        std::fs::create_dir(elsewhere.path().join(".git")).unwrap();
        assert_eq!(project_root(elsewhere.path()), None);
        std::fs::write(elsewhere.path().join("Cargo.toml"), "[package]\nname = \"other\"\n").unwrap();
        assert_eq!(project_root(elsewhere.path()), None);
        if here.join(".git").exists() {
            assert_eq!(project_root(&here.join("src")), Some(here.to_owned()));
        }
    }
}
