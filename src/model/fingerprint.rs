//! What a model computes, named by its content: two directories with the same weights and shape are one model.

use std::fs::File;
use std::io::Read;
use std::path::Path;

use sha2::{Digest, Sha256};

use super::{Model, files};
use crate::base::error::{Error, Result};
use crate::base::hash;

/// Bytes that are hashed at a time.
const CHUNK: usize = 1 << 20;

impl Model {
    /// 16 hexadecimal digits of the SHA-256 of shape and weights: the bytes of the checkpoint's files, or `seed`
    /// where weights are random. Reads the whole checkpoint.
    ///
    /// # Errors
    /// A failure where a file of the checkpoint cannot be read.
    pub fn fingerprint(&self, seed: u64) -> Result<String> {
        let mut whole = Sha256::new();
        // as it was before there were families, so that what was evaluated is found again
        whole.update(format!("{:?}\n", self.shape).replace(", qkv: Plain", ""));
        match &self.dir {
            Some(dir) if self.has_weights => {
                for path in files::weight_files(dir)? {
                    whole.update(digest(&path)?);
                }
            }
            _ => whole.update(format!("random, from {seed}")),
        }
        Ok(hash::hex(&whole.finalize()[..8]))
    }
}

/// The SHA-256 of a file.
fn digest(path: &Path) -> Result<impl AsRef<[u8]>> {
    let mut file = File::open(path).map_err(Error::io(path))?;
    let (mut digest, mut chunk) = (Sha256::new(), vec![0; CHUNK]);
    loop {
        let count = file.read(&mut chunk).map_err(Error::io(path))?;
        if count == 0 {
            return Ok(digest.finalize());
        }
        digest.update(&chunk[..count]);
    }
}

#[cfg(test)]
mod tests {
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
}
