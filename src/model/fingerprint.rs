//! What a model computes, named by its content: two directories with the same weights and shape are one model.

use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::FileExt;
use std::path::Path;

use sha2::{Digest, Sha256};

use super::{Model, files};
use crate::base::error::{Error, Result};
use crate::base::hash;

/// Bytes that are hashed at a time.
const CHUNK: usize = 1 << 20;

/// How many places of a file of weights are looked at to know it again: some in each layer of a small model's one
/// file, and in each tensor of a large model's many.
const LOOKS: u64 = 64;
/// Bytes that are looked at in each place.
const LOOK_BYTES: u64 = 512;

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

    /// A hash by which a run's model is known again without reading all of it: the directory's config, and of each
    /// file of weights its name, its size, and the bytes in 64 places. Empty of a built-in shape. Weights that were
    /// retrained have another hash; a single number that was changed may not.
    ///
    /// # Errors
    /// A failure where the directory or one of the files cannot be read.
    pub fn hash(&self) -> Result<String> {
        let Some(dir) = &self.dir else { return Ok(String::new()) };
        let config = dir.join("config.json");
        let mut bytes = std::fs::read(&config).map_err(Error::io(&config))?;
        if self.has_weights {
            for path in files::weight_files(dir)? {
                look(&path, &mut bytes).map_err(Error::io(&path))?;
            }
        }
        Ok(hash::short_key(bytes))
    }
}

/// Appends a file's name, its size and what stands in some places of it.
fn look(path: &Path, bytes: &mut Vec<u8>) -> io::Result<()> {
    let file = File::open(path)?;
    let length = file.metadata()?.len();
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    bytes.extend(format!("{name} {length}\n").as_bytes());
    let mut seen = [0; LOOK_BYTES as usize];
    for place in 0..LOOKS {
        let at =
            u128::from(length.saturating_sub(LOOK_BYTES)) * u128::from(place) / u128::from(LOOKS - 1);
        let seen = &mut seen[..length.min(LOOK_BYTES) as usize];
        file.read_exact_at(seen, at as u64)?;
        bytes.extend_from_slice(seen);
    }
    Ok(())
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

    #[test]
    fn a_directory_is_known_again_and_not_with_other_weights() {
        assert_eq!(Model::resolve("tiny").unwrap().hash().unwrap(), "");
        let dir = tempfile::tempdir().unwrap();
        let of = |weights: &[u8]| {
            std::fs::write(dir.path().join("config.json"), "{}").unwrap();
            std::fs::write(dir.path().join("model.safetensors"), weights).unwrap();
            let tiny = Model::resolve("tiny").unwrap();
            Model { dir: Some(dir.path().to_owned()), has_weights: true, ..tiny }.hash().unwrap()
        };
        for length in [1, 511, 512, 513, 40_000] {
            let weights: Vec<u8> = (0..length).map(|i: u32| (i * 7 % 251) as u8).collect();
            let first = of(&weights);
            assert_eq!(of(&weights), first);
            let retrained: Vec<u8> = weights.iter().map(|byte| byte ^ 1).collect();
            assert_ne!(of(&retrained), first, "{length}");
            assert_ne!(of(&weights[1..]), first, "{length}");
            // the 64 places of the largest of these leave gaps of 114 bytes
            let layer = length as usize / 3..(length as usize / 3 + 700).min(length as usize);
            let mut part = weights;
            part[layer].iter_mut().for_each(|byte| *byte ^= 1);
            assert_ne!(of(&part), first, "{length}");
        }
    }
}
