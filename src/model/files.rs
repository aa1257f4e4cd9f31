//! Weight files of an HF directory, and the identity of models by content: two directories with the same
//! weights and shape are the same model.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use sha2::{Digest, Sha256};

use super::{Model, checkpoint};
use base::error::{Error, Result};
use base::input::{self, InputKind};
use base::{checksum, regular};

const SINGLE_FILE: &str = "model.safetensors";
const SHARD_INDEX: &str = "model.safetensors.index.json";

/// Entries of the directory that end in `suffix`, sorted, without hidden ones.
pub(super) fn entries(dir: &Path, suffix: &str) -> Result<Vec<PathBuf>> {
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
    Ok(dir.join(SHARD_INDEX).exists() || !safetensors(dir)?.is_empty())
}

/// PyTorch pickles in the directory: weights that exist but are not supported.
pub(super) fn pickles(dir: &Path) -> Result<Vec<PathBuf>> {
    let found: Result<Vec<_>> =
        [".bin", ".pth", ".pt"].into_iter().map(|suffix| entries(dir, suffix)).collect();
    Ok(found?.concat())
}

/// Safetensors files to read: `model.safetensors`, else the shards of the index, else every
/// `*.safetensors`.
pub(super) fn weight_files(dir: &Path) -> Result<Vec<PathBuf>> {
    let single = dir.join(SINGLE_FILE);
    if single.exists() {
        return Ok(vec![single]);
    }
    let index = dir.join(SHARD_INDEX);
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
            return Err(input::special_file_error(&path, "a file").unwrap_or_else(missing));
        }
    }
    if files.is_empty() {
        return Err(wrong("\"weight_map\" is empty".into()));
    }
    Ok(files.into_iter().collect())
}

/// Bytes sampled from each tensor for [`Model::hash`].
const LOOK_BYTES: usize = 512;

impl Model {
    /// SHA-256 (first 16 hex digits) of shape and weights: the bytes of the checkpoint's files, or
    /// `seed` for random weights. Reads the whole checkpoint.
    ///
    /// # Errors
    /// Returns a failure if a checkpoint file cannot be read.
    pub fn fingerprint(&self, seed: u64) -> Result<String> {
        let mut whole = Sha256::new();
        // same text as before families existed, so that earlier evaluations are found
        whole.update(format!("{:?}\n", self.shape).replace(", qkv: Plain", ""));
        match &self.dir {
            Some(dir) if self.has_weights => {
                for path in weight_files(dir)? {
                    let file = regular::open_linked(&path).map_err(Error::io(&path))?;
                    whole.update(checksum::digest(file).map_err(Error::io(&path))?);
                }
            }
            _ => whole.update(format!("random, from {seed}")),
        }
        Ok(checksum::hex(&whole.finalize()[..8]))
    }

    /// Hash that identifies a run's model without reading all of it: the config, and for each weight
    /// file its name, its size, and the middle of each tensor. Empty for a built-in shape. Retraining
    /// changes the hash; changing a single number may not. Missing and unreadable files are skipped;
    /// loading the weights reports them.
    ///
    /// # Errors
    /// Returns a failure if the directory or its config cannot be read.
    pub fn hash(&self) -> Result<String> {
        let Some(dir) = &self.dir else { return Ok(String::new()) };
        let config = dir.join("config.json");
        let mut bytes = InputKind::CONFIG.bytes(&config)?;
        for path in safetensors(dir)? {
            look(&path, &mut bytes);
        }
        Ok(checksum::short_key(bytes))
    }
}

/// Appends a file's name and size, and the middle of each tensor as far as readable.
fn look(path: &Path, bytes: &mut Vec<u8>) {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let length = std::fs::metadata(path).map(|metadata| metadata.len()).unwrap_or_default();
    bytes.extend(format!("{name} {length}\n").as_bytes());
    let Ok(map) = checkpoint::map(path) else { return };
    let Ok((data, metadata)) = checkpoint::header(path, &map) else { return };
    for name in metadata.offset_keys() {
        let Some((from, to)) = metadata.info(&name).map(|info| info.data_offsets) else { continue };
        let most = LOOK_BYTES.min(to - from);
        let at = data + from + (to - from - most) / 2;
        bytes.extend_from_slice(map.get(at..at + most).unwrap_or_default());
    }
}

#[cfg(test)]
mod tests {
    use safetensors::Dtype;
    use safetensors::tensor::TensorView;

    use super::*;

    #[test]
    fn a_model_is_named_by_its_shape_and_numbers_and_by_nothing_else() {
        let tiny = Model::resolve("tiny").unwrap();
        let name = tiny.fingerprint(1).unwrap();
        assert_eq!(name.len(), 16);
        let called = Model { name: "other".into(), ..tiny.clone() };
        assert_eq!(called.fingerprint(1).unwrap(), name);
        assert_ne!(tiny.fingerprint(2).unwrap(), name);
        let mut longer = tiny.clone();
        longer.shape.rope.theta += 1.0;
        assert_ne!(longer.fingerprint(1).unwrap(), name);
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("model.safetensors");
        let stored = Model { dir: Some(dir.path().to_owned()), has_weights: true, ..tiny };
        let mut seen = vec![name];
        for bytes in ["weights", "weighty"] {
            std::fs::write(&file, bytes).unwrap();
            seen.push(stored.fingerprint(1).unwrap());
            assert_eq!(stored.fingerprint(2).unwrap(), seen[seen.len() - 1], "no seed is used");
        }
        assert!(seen[0] != seen[1] && seen[1] != seen[2], "{seen:?}");
    }

    #[test]
    fn a_directory_is_known_again_and_not_with_other_weights() {
        assert_eq!(Model::resolve("tiny").unwrap().hash().unwrap(), "");
        let dir = tempfile::tempdir().unwrap();
        let put = |name: &str, bytes: &[u8]| std::fs::write(dir.path().join(name), bytes).unwrap();
        let hash = || {
            let tiny = Model::resolve("tiny").unwrap();
            Model { dir: Some(dir.path().to_owned()), has_weights: true, ..tiny }.hash().unwrap()
        };
        let file = |tensors: [(&str, &[u8]); 3]| {
            let views = tensors.map(|(name, bytes)| {
                (name, TensorView::new(Dtype::U8, vec![bytes.len()], bytes).unwrap())
            });
            safetensors::serialize(views, None).unwrap()
        };
        put("config.json", b"{}");
        let bare = hash();
        let (large, small, none) = (vec![7; 40_000], [1, 2, 3], []);
        put("model.safetensors", &file([("a", &large), ("b", &small), ("c", &none)]));
        let first = hash();
        assert!(first != bare && first == hash());
        // any of its tensors, whatever its size
        let retrained = [8; 40_000];
        put("model.safetensors", &file([("a", &retrained), ("b", &small), ("c", &none)]));
        assert_ne!(hash(), first);
        put("model.safetensors", &file([("a", &large), ("b", &[1, 9, 3]), ("c", &none)]));
        assert_ne!(hash(), first);
        // what is broken, or not all there, is known by its name and size
        put("model.safetensors", b"");
        put("model.safetensors.index.json", br#"{"weight_map": {"a": "gone.safetensors"}}"#);
        let broken = hash();
        put("model.safetensors", b"x");
        assert!(hash() != broken && broken != bare);
    }
}
