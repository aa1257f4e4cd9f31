//! Safetensors files of f32 tensors: training checkpoints and final weights. Tensors are written one by one, because
//! a whole model in memory twice would not fit.

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

/// Writes tensors with these names and shapes; `data` returns the numbers of the tensor at an index.
///
/// Returns the errors of `data`, and a failure if the file cannot be written or a tensor's data does not
/// match its shape.
pub fn write_tensors<'a>(
    path: &Path,
    text_metadata: HashMap<String, String>,
    tensors: &[(String, Vec<usize>)],
    mut data: impl FnMut(usize) -> Result<Cow<'a, [f32]>>,
) -> Result<()> {
    let failed = |why: String| Error::failed(format!("{}: {why}", path.display()));
    let mut end = 0;
    let infos = tensors.iter().map(|(name, shape)| {
        let start = end;
        end += shape.iter().product::<usize>() * F32_BYTES;
        let info = TensorInfo { dtype: Dtype::F32, shape: shape.clone(), data_offsets: (start, end) };
        (name.clone(), info)
    });
    let metadata =
        Metadata::new(Some(text_metadata), infos.collect()).map_err(|e| failed(e.to_string()))?;
    let mut json = serde_json::to_vec(&metadata).map_err(|e| failed(e.to_string()))?;
    // alignment required by the format
    json.resize(json.len().next_multiple_of(8), b' ');
    let mut file = AtomicFile::create(path)?;
    let mut out = BufWriter::with_capacity(1 << 20, file.file_mut());
    let mut write = |bytes: &[u8]| out.write_all(bytes).map_err(Error::io(path));
    write(&(json.len() as u64).to_le_bytes())?;
    write(&json)?;
    for (at, (name, shape)) in tensors.iter().enumerate() {
        let numbers = data(at)?;
        if numbers.len() != shape.iter().product::<usize>() {
            return Err(failed(format!("{name} has {} numbers, not {shape:?}", numbers.len())));
        }
        write(bytemuck::cast_slice(&numbers))?;
    }
    out.flush().map_err(Error::io(path))?;
    drop(out);
    file.finish()
}

#[derive(Debug)]
pub struct TensorFile {
    path: PathBuf,
    map: Mmap,
    /// Offset of the tensors' data in the file.
    data: usize,
    metadata: Metadata,
}

impl TensorFile {
    /// Opens a file; `None` if it does not exist.
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

    pub fn text_metadata(&self, key: &str) -> Option<&str> {
        self.metadata.metadata().as_ref()?.get(key).map(String::as_str)
    }

    /// Copies a tensor's numbers.
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
    fn tensors_keep_their_bits_and_a_truncated_file_is_an_error() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.safetensors");
        assert!(TensorFile::open(&path).unwrap().is_none());
        let all = [vec![1.5f32, f32::MIN_POSITIVE, -0.0, f32::MAX], vec![7.25]];
        let tensors = [("a/b".to_owned(), vec![2, 2]), ("c".to_owned(), vec![1])];
        let metadata: HashMap<_, _> = [("step".to_owned(), "12".to_owned())].into();
        write_tensors(&path, metadata.clone(), &tensors, |at| Ok(Cow::Borrowed(&all[at]))).unwrap();
        let file = TensorFile::open(&path).unwrap().unwrap();
        assert_eq!((file.text_metadata("step"), file.text_metadata("other")), (Some("12"), None));
        for ((name, _), numbers) in tensors.iter().zip(&all) {
            let mut out = vec![0.0; numbers.len()];
            file.fill(name, &mut out).unwrap();
            let bits = |numbers: &[f32]| numbers.iter().map(|n| n.to_bits()).collect::<Vec<_>>();
            assert_eq!(bits(&out), bits(numbers));
        }
        assert!(file.fill("c", &mut [0.0; 2]).unwrap_err().to_string().contains("another size"));
        assert!(file.fill("d", &mut [0.0]).unwrap_err().to_string().contains("not there"));
        // a failed write keeps the previous file
        let broken = write_tensors(&path, metadata, &tensors, |_| Err(Error::failed("no numbers")));
        assert_eq!(broken.unwrap_err().to_string(), "no numbers");
        let bytes = std::fs::read(&path).unwrap();
        assert!(TensorFile::open(&path).unwrap().is_some());
        for cut in [3, 20, bytes.len() - 1] {
            std::fs::write(&path, &bytes[..cut]).unwrap();
            assert_eq!(TensorFile::open(&path).unwrap_err().exit_code(), 2, "cut at {cut}");
        }
    }
}
