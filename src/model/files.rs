//! Weight files of an HF directory.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use base::error::{Error, Result};
use base::input::InputKind;
use base::regular;

const SINGLE: &str = "model.safetensors";
const INDEX: &str = "model.safetensors.index.json";

/// Entries of the directory that end in `suffix`, sorted.
fn entries(dir: &Path, suffix: &str) -> Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(dir).map_err(Error::io(dir))? {
        let path = entry.map_err(Error::io(dir))?.path();
        let name = path.file_name().and_then(|n| n.to_str()).unwrap_or_default();
        if name.ends_with(suffix) && !name.starts_with('.') {
            found.push(path);
        }
    }
    found.sort();
    Ok(found)
}

/// Safetensors files of the directory, regardless of any index.
pub(super) fn safetensors(dir: &Path) -> Result<Vec<PathBuf>> {
    entries(dir, ".safetensors")
}

/// True if the directory has safetensors files or an index of them.
pub(super) fn has_safetensors(dir: &Path) -> Result<bool> {
    Ok(dir.join(INDEX).exists() || !safetensors(dir)?.is_empty())
}

/// PyTorch pickles in the directory: weights that exist but are not supported.
pub(super) fn pickles(dir: &Path) -> Result<Vec<PathBuf>> {
    let mut found = entries(dir, ".bin")?;
    found.extend(entries(dir, ".pth")?);
    found.extend(entries(dir, ".pt")?);
    Ok(found)
}

/// Safetensors files to read: `model.safetensors`, else the shards of the index, else every
/// `*.safetensors`.
pub(super) fn weight_files(dir: &Path) -> Result<Vec<PathBuf>> {
    let single = dir.join(SINGLE);
    if single.exists() {
        return Ok(vec![single]);
    }
    let index = dir.join(INDEX);
    if index.exists() { shards(dir, &index) } else { safetensors(dir) }
}

/// Distinct shards named by an index.
fn shards(dir: &Path, index: &Path) -> Result<Vec<PathBuf>> {
    let text = InputKind::INDEX.text(index)?;
    let wrong = |what: String| {
        Error::input_help(
            format!("{}: {what}", index.display()),
            "an index has \"weight_map\": {\"TENSOR\": \"FILE.safetensors\", ...}",
        )
    };
    let json: serde_json::Value =
        serde_json::from_str(&text).map_err(|e| wrong(format!("not JSON: {e}")))?;
    let map = json
        .get("weight_map")
        .and_then(|map| map.as_object())
        .ok_or_else(|| wrong("\"weight_map\" is missing or not an object".into()))?;
    let mut files = BTreeSet::new();
    for (tensor, file) in map {
        let name = file.as_str().ok_or_else(|| wrong(format!("the file of \"{tensor}\" is {file}")))?;
        // an index must only name files next to it; anything else would read outside the directory
        if name.is_empty() || name.contains(['/', '\\']) || name == ".." {
            return Err(wrong(format!("the file of \"{tensor}\" is \"{name}\", not a plain file name")));
        }
        let path = dir.join(name);
        if files.insert(path.clone()) && !path.is_file() {
            let missing = || wrong(format!("\"{tensor}\" should be in {name}, which does not exist"));
            return Err(regular::refused(&path, "a file").unwrap_or_else(missing));
        }
    }
    if files.is_empty() {
        return Err(wrong("\"weight_map\" is empty".into()));
    }
    Ok(files.into_iter().collect())
}
