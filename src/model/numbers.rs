//! Files of named f32 tensors (safetensors): training checkpoints and final weights. Written piece by
//! piece, so that nothing is in memory twice; a file appears complete or not at all.

use std::borrow::Cow;
use std::collections::HashMap;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};

use memmap2::Mmap;
use safetensors::Dtype;
use safetensors::tensor::{Metadata, TensorInfo};

use super::checkpoint::{header, map};
use base::atomic::AtomicFile;
use base::error::{Error, Result};
use base::regular;

const F32_BYTES: usize = size_of::<f32>();

/// Writes a file of tensors with these names and shapes; `numbers` returns the data of the tensor at an
/// index. `about` is stored as text metadata.
///
/// # Errors
///
/// Returns the errors of `numbers`, and a failure if the file cannot be written or a tensor's data does
/// not match its shape.
pub fn write_numbers<'a>(
    path: &Path,
    about: HashMap<String, String>,
    tensors: &[(String, Vec<usize>)],
    mut numbers: impl FnMut(usize) -> Result<Cow<'a, [f32]>>,
) -> Result<()> {
    let failed = |why: String| Error::failed(format!("{}: {why}", path.display()));
    let mut end = 0;
    let infos = tensors.iter().map(|(name, shape)| {
        let start = end;
        end += shape.iter().product::<usize>() * F32_BYTES;
        let info = TensorInfo { dtype: Dtype::F32, shape: shape.clone(), data_offsets: (start, end) };
        (name.clone(), info)
    });
    let metadata = Metadata::new(Some(about), infos.collect()).map_err(|e| failed(e.to_string()))?;
    let mut json = serde_json::to_vec(&metadata).map_err(|e| failed(e.to_string()))?;
    // alignment required by the format
    json.resize(json.len().next_multiple_of(8), b' ');
    let mut file = AtomicFile::create(path)?;
    {
        let mut out = BufWriter::with_capacity(1 << 20, file.file_mut());
        let io = Error::io(path);
        let mut write = || -> std::io::Result<Result<()>> {
            out.write_all(&(json.len() as u64).to_le_bytes())?;
            out.write_all(&json)?;
            for (at, (name, shape)) in tensors.iter().enumerate() {
                let numbers = match numbers(at) {
                    Ok(numbers) => numbers,
                    Err(error) => return Ok(Err(error)),
                };
                if numbers.len() != shape.iter().product::<usize>() {
                    return Ok(Err(failed(format!(
                        "{name} has {} numbers, not {shape:?}",
                        numbers.len()
                    ))));
                }
                out.write_all(bytemuck::cast_slice(&numbers))?;
            }
            out.flush().map(Ok)
        };
        write().map_err(io)??;
    }
    file.finish()
}

/// Opened file of f32 tensors.
#[derive(Debug)]
pub struct NumbersFile {
    path: PathBuf,
    map: Mmap,
    data: usize,
    metadata: Metadata,
}

impl NumbersFile {
    /// Opens a file; `None` if it does not exist.
    ///
    /// # Errors
    ///
    /// Returns an input error for an incomplete or invalid file, a failure if it cannot be read.
    pub fn open(path: &Path) -> Result<Option<Self>> {
        if regular::if_exists(regular::open(path)).map_err(Error::io(path))?.is_none() {
            return Ok(None);
        }
        let map = map(path)?;
        let (data, metadata) = header(path, &map)?;
        Ok(Some(Self { path: path.to_owned(), map, data, metadata }))
    }

    pub fn about(&self, key: &str) -> Option<&str> {
        self.metadata.metadata().as_ref()?.get(key).map(String::as_str)
    }

    /// Copies a tensor's numbers.
    ///
    /// # Errors
    ///
    /// Returns an input error if the tensor is missing or has another size or format.
    pub fn fill(&self, name: &str, out: &mut [f32]) -> Result<()> {
        let wrong = |why: &str| Error::input(format!("{}: {name} {why}", self.path.display()));
        let info = self.metadata.info(name).ok_or_else(|| wrong("is not there"))?;
        let (start, end) = info.data_offsets;
        if info.dtype != Dtype::F32 || end - start != size_of_val(out) {
            return Err(wrong("has another size or format"));
        }
        let bytes = self.map.get(self.data + start..self.data + end);
        let bytes = bytes.ok_or_else(|| wrong("lies beyond the end of the file"))?;
        for (out, bytes) in out.iter_mut().zip(bytes.as_chunks::<F32_BYTES>().0) {
            *out = f32::from_le_bytes(*bytes);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_come_back_bit_by_bit_and_a_torn_file_is_told() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.safetensors");
        assert!(NumbersFile::open(&path).unwrap().is_none());
        let all = [vec![1.5f32, f32::MIN_POSITIVE, -0.0, f32::MAX], vec![7.25]];
        let tensors = [("a/b".to_owned(), vec![2, 2]), ("c".to_owned(), vec![1])];
        let about: HashMap<_, _> = [("step".to_owned(), "12".to_owned())].into();
        write_numbers(&path, about.clone(), &tensors, |at| Ok(Cow::Borrowed(&all[at]))).unwrap();
        let file = NumbersFile::open(&path).unwrap().unwrap();
        assert_eq!((file.about("step"), file.about("other")), (Some("12"), None));
        for ((name, _), numbers) in tensors.iter().zip(&all) {
            let mut out = vec![0.0; numbers.len()];
            file.fill(name, &mut out).unwrap();
            let bits = |numbers: &[f32]| numbers.iter().map(|n| n.to_bits()).collect::<Vec<_>>();
            assert_eq!(bits(&out), bits(numbers));
        }
        assert!(file.fill("c", &mut [0.0; 2]).unwrap_err().to_string().contains("another size"));
        assert!(file.fill("d", &mut [0.0]).unwrap_err().to_string().contains("not there"));
        // who fails meanwhile leaves what was there
        let broken = write_numbers(&path, about, &tensors, |_| Err(Error::failed("no numbers")));
        assert_eq!(broken.unwrap_err().to_string(), "no numbers");
        let bytes = std::fs::read(&path).unwrap();
        assert!(NumbersFile::open(&path).unwrap().is_some());
        for cut in [3, 20, bytes.len() - 1] {
            std::fs::write(&path, &bytes[..cut]).unwrap();
            assert_eq!(NumbersFile::open(&path).unwrap_err().exit_code(), 2, "cut at {cut}");
        }
    }
}
