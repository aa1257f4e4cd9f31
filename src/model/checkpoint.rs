//! Checkpoints: memory-mapped safetensors files with all tensors checked on opening.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use arithmetic::Number;
use memmap2::Mmap;
use safetensors::Dtype;
use safetensors::tensor::{Metadata, TensorInfo};

use base::error::{Error, Result};
use base::regular;
use plan::Tensor;
use plan::{DType, ModelShape};

/// Size of the header length at the start of a file.
const LENGTH_BYTES: usize = 8;
/// Maximum header size of the format.
const MAX_HEADER_BYTES: u64 = 100_000_000;
/// Prefix of tensor names in checkpoints of whole models, absent in those of bare models.
const PREFIX: &str = "model.";

/// Opened files of a model and the positions of its tensors.
#[derive(Debug)]
pub(super) struct Checkpoint {
    files: Vec<MappedFile>,
    tensors: HashMap<Tensor, Place>,
}

#[derive(Debug)]
struct MappedFile {
    path: PathBuf,
    map: Mmap,
}

/// Position of a tensor: file, format, and byte range.
#[derive(Clone, Copy, Debug)]
struct Place {
    file: usize,
    dtype: DType,
    start: usize,
    end: usize,
}

/// Tensors by name after [`PREFIX`], with their file and the start of its data.
type Found = HashMap<String, (usize, usize, TensorInfo)>;

impl Checkpoint {
    /// Maps the files and checks that together they contain exactly the tensors of `shape`.
    pub(super) fn open(paths: &[PathBuf], shape: &ModelShape) -> Result<Self> {
        let (files, mut found, _) = read(paths)?;
        let tensors = locate(&files, &mut found, shape)?;
        refuse_unknown(&files, &found, shape)?;
        Ok(Self { files, tensors })
    }

    /// Fills `out` with the tensor's numbers, starting at index `start` (row x columns + column).
    pub(super) fn fill<T: Number>(&self, tensor: Tensor, start: usize, out: &mut [T]) -> Result<()> {
        let bytes = self.tensors.get(&tensor).and_then(|place| {
            let each = place.dtype.bytes() as usize;
            let bytes = self.files.get(place.file)?.map.get(place.start..place.end)?;
            Some((bytes.get(start * each..(start + out.len()) * each)?, place.dtype))
        });
        let Some((bytes, dtype)) = bytes else {
            let (from, count) = (start, out.len());
            return Err(Error::failed(format!(
                "the checkpoint has no numbers {from}..{} of {}",
                from + count,
                tensor.hf_name()
            )));
        };
        match dtype {
            DType::F32 => T::from_f32_bytes(bytes, out),
            DType::Bf16 => T::from_bf16_bytes(bytes, out),
            DType::F16 => T::from_f16_bytes(bytes, out),
            other => return Err(Error::failed(format!("a checkpoint in {other}"))),
        }
        Ok(())
    }
}

/// Acceptable differences between a checkpoint's tensors and its config.
#[derive(Debug, Default)]
pub(super) struct Oddities {
    /// Common prefix of tensor names.
    pub prefix: Option<String>,
    /// True if the checkpoint has a head that differs from the embedding.
    pub own_head: bool,
}

impl Oddities {
    /// Reads the files' headers and compares head and embedding if both exist. Unreadable files yield no
    /// oddities; loading the weights reports them.
    pub(super) fn of(paths: &[PathBuf]) -> Self {
        let Ok((files, found, prefix)) = read(paths) else { return Self::default() };
        let bytes = |name: &str| {
            let (file, data, info) = found.get(name)?;
            let (from, to) = info.data_offsets;
            Some((info.dtype, &info.shape, files.get(*file)?.map.get(data + from..data + to)?))
        };
        let own_head = match (bytes("lm_head.weight"), bytes("embed_tokens.weight")) {
            (Some(head), Some(embedding)) => head != embedding,
            _ => false,
        };
        Self { prefix, own_head }
    }
}

/// Maps the files and reads their headers. Returns the tensors by name and the common prefix before
/// [`PREFIX`].
fn read(paths: &[PathBuf]) -> Result<(Vec<MappedFile>, Found, Option<String>)> {
    let mut files: Vec<MappedFile> = Vec::with_capacity(paths.len());
    let mut all = Vec::new();
    for path in paths {
        let map = map(path)?;
        let (data, metadata) = header(path, &map)?;
        all.extend(
            metadata.tensors().into_iter().map(|(name, info)| (name, (files.len(), data, info.clone()))),
        );
        files.push(MappedFile { path: path.clone(), map });
    }
    let prefix = common_prefix(&files, all.iter().map(|(name, (file, ..))| (name.as_str(), *file)))?;
    let mut found = Found::new();
    for (name, place) in all {
        let (file, bare) = (place.0, prefix.as_deref().and_then(|prefix| name.strip_prefix(prefix)));
        let bare = bare.unwrap_or(&name);
        let short = bare.strip_prefix(PREFIX).unwrap_or(bare).to_owned();
        if let Some((other, ..)) = found.insert(short, place) {
            return Err(Error::input_help(
                format!(
                    "{}: tensor {name} is in {} too",
                    files[file].path.display(),
                    files[other].path.display()
                ),
                "each tensor once; move files of another checkpoint out of the directory",
            ));
        }
    }
    Ok((files, found, prefix))
}

/// Common prefix of tensor names (`_orig_mod.` of compiled models, `module.` of wrapped ones), derived
/// from the embedding's name. The head may lack it.
fn common_prefix<'a>(
    files: &[MappedFile],
    names: impl Iterator<Item = (&'a str, usize)> + Clone,
) -> Result<Option<String>> {
    let embedding = names.clone().find_map(|(name, _)| name.strip_suffix("embed_tokens.weight"));
    let prefix = embedding.map(|before| before.strip_suffix(PREFIX).unwrap_or(before));
    let Some(prefix) = prefix.filter(|prefix| !prefix.is_empty()) else { return Ok(None) };
    let mut others =
        names.filter(|(name, _)| !name.starts_with(prefix) && *name != "lm_head.weight").peekable();
    let Some(&(other, file)) = others.peek() else { return Ok(Some(prefix.to_owned())) };
    let path = files.get(file).map(|f| f.path.display().to_string()).unwrap_or_default();
    Err(Error::input_help(
        format!(
            "{path}: the language model's tensors have the prefix '{prefix}', but {} others lack it, such as {other}",
            others.count()
        ),
        "save only the language model, for example model.language_model.save_pretrained(DIR)",
    ))
}

/// Tensors that a checkpoint of this shape must contain.
fn needed(shape: &ModelShape) -> impl Iterator<Item = Tensor> {
    let is_tied = shape.tied_embeddings;
    Tensor::all(shape).into_iter().filter(move |tensor| *tensor != Tensor::Head || !is_tied)
}

pub(super) fn map(path: &Path) -> Result<Mmap> {
    let file = regular::open_linked(path).map_err(Error::io(path))?;
    // mapping an empty file fails on some systems
    if file.metadata().map_err(Error::io(path))?.len() < LENGTH_BYTES as u64 {
        return Err(corrupt(path, "shorter than the 8 bytes that any safetensors file begins with"));
    }
    // SAFETY: the map is private to this process and only read, as bytes of any value. As with every
    // mapped file, truncation while mapped kills the process with SIGBUS, and rewriting changes the
    // data. Checkpoints are written once and then only read, and copying one (140 GB for a 70B model)
    // for protection is no option.
    unsafe { Mmap::map(&file) }.map_err(Error::io(path))
}

fn corrupt(path: &Path, what: impl std::fmt::Display) -> Error {
    Error::input_help(
        format!("{}: not a whole safetensors file: {what}", path.display()),
        "download or convert it again, and compare its size with the original's",
    )
}

/// Parses a header and checks it against the file's length. Returns the start of the data and the
/// metadata.
pub(super) fn header(path: &Path, bytes: &[u8]) -> Result<(usize, Metadata)> {
    if bytes.starts_with(b"version https://git-lfs") {
        return Err(Error::input_help(
            format!("{}: a git-lfs pointer, not the weights themselves", path.display()),
            "run 'git lfs pull' in its directory",
        ));
    }
    let Some((length, rest)) = bytes.split_first_chunk::<LENGTH_BYTES>() else {
        return Err(corrupt(path, format_args!("it has {} bytes", bytes.len())));
    };
    let length = u64::from_le_bytes(*length);
    let text = usize::try_from(length).ok().filter(|_| length <= MAX_HEADER_BYTES);
    let Some(text) = text.and_then(|length| rest.get(..length)) else {
        return Err(corrupt(
            path,
            format_args!("it claims a header of {length} bytes, and has {} in all", bytes.len()),
        ));
    };
    let metadata: Metadata = serde_json::from_slice(text)
        .map_err(|error| corrupt(path, format_args!("its header does not parse: {error}")))?;
    let (wanted, there) = (metadata.data_len(), rest.len() - text.len());
    if wanted != there {
        let state = if wanted > there { "it is truncated" } else { "something follows them" };
        return Err(corrupt(
            path,
            format_args!("its tensors take {wanted} bytes, and {there} are there: {state}"),
        ));
    }
    Ok((LENGTH_BYTES + text.len(), metadata))
}

/// Moves the tensors of `shape` out of `found`, checking each.
fn locate(
    files: &[MappedFile],
    found: &mut Found,
    shape: &ModelShape,
) -> Result<HashMap<Tensor, Place>> {
    let mut tensors = HashMap::new();
    for tensor in needed(shape) {
        let name = tensor.hf_name();
        let short = name.strip_prefix(PREFIX).unwrap_or(&name);
        let Some((file, data, info)) = found.remove(short) else {
            let help = match tensor {
                Tensor::Head => {
                    "a checkpoint without it needs \"tie_word_embeddings\": true in config.json".into()
                }
                _ => format!("config.json asks for {} layers of a Llama-family model", shape.layers),
            };
            let whose = match files {
                [only] => only.path.display().to_string(),
                [first, ..] => {
                    let dir = first.path.parent().unwrap_or(&first.path).display();
                    format!("{dir} ({} safetensors files)", files.len())
                }
                [] => "no safetensors file".into(),
            };
            return Err(Error::input_help(format!("{whose}: tensor {name} is missing"), help));
        };
        let path = files.get(file).map(|f| f.path.display().to_string()).unwrap_or_default();
        let (rows, columns) = tensor.dimensions(shape);
        let expected = [rows as usize, columns as usize];
        // HF stores norms (one row) and biases (one column) as vectors
        let expected = match expected {
            [1, columns] if info.shape != expected => vec![columns],
            [rows, 1] if info.shape != expected => vec![rows],
            _ => expected.to_vec(),
        };
        if info.shape != expected {
            return Err(Error::input_help(
                format!("{path}: tensor {name} is {:?}, expected {expected:?}", info.shape),
                "the expected shape follows from config.json: do the two belong together?",
            ));
        }
        let dtype = match info.dtype {
            Dtype::F32 => DType::F32,
            Dtype::BF16 => DType::Bf16,
            Dtype::F16 => DType::F16,
            other => {
                return Err(Error::input_help(
                    format!("{path}: tensor {name} has format {other}"),
                    "F32, BF16 or F16 are read; quantised checkpoints are not supported",
                ));
            }
        };
        let (start, end) = (data + info.data_offsets.0, data + info.data_offsets.1);
        tensors.insert(tensor, Place { file, dtype, start, end });
    }
    Ok(tensors)
}

/// Returns an error for tensors unknown in this shape: unexpected biases, additional layers. Ignoring
/// them would compute a different model.
fn refuse_unknown(files: &[MappedFile], found: &Found, shape: &ModelShape) -> Result<()> {
    let harmless = |name: &str| {
        // frequencies in old checkpoints, and a copy of a tied embedding
        name.ends_with("rotary_emb.inv_freq") || (name == "lm_head.weight" && shape.tied_embeddings)
    };
    let unknown = found.iter().filter(|(name, _)| !harmless(name)).min_by_key(|(name, _)| *name);
    let Some((name, (file, _, info))) = unknown else { return Ok(()) };
    let path = files.get(*file).map(|f| f.path.display().to_string()).unwrap_or_default();
    Err(Error::input_help(
        format!(
            "{path}: tensor {name} ({:?}) has no place in a Llama-family model of {} layers ({} such tensors)",
            info.shape,
            shape.layers,
            found.keys().filter(|n| !harmless(n)).count()
        ),
        "of biases those of q, k, v of qwen2 are read, of norms within heads those of qwen3: see \"model_type\"; for layers, \"num_hidden_layers\"",
    ))
}
