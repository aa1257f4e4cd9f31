//! Checkpoints: memory-mapped safetensors files with all tensors checked on opening.

use std::collections::HashMap;
use std::ops::Range;
use std::path::{Path, PathBuf};

use arithmetic::{Number, mxfp4};
use memmap2::Mmap;
use safetensors::Dtype;
use safetensors::tensor::{Metadata, TensorInfo};

use super::layout::{self, TensorLayout, TensorLocation};
use base::error::{Error, Result};
use base::regular;
use plan::Tensor;
use plan::{DType, ModelShape};

/// Size of the header length at the start of a file.
const LENGTH_BYTES: usize = 8;
/// Maximum header size of the format.
const MAX_HEADER_BYTES: u64 = 100_000_000;
/// Prefix of tensor names in checkpoints of whole models, absent in those of bare models.
const MODEL_PREFIX: &str = "model.";
/// Prefixes of tensors that belong to Llama 4's image encoder, which are skipped.
const IMAGE_PARTS: [&str; 2] = ["vision_model.", "multi_modal_projector."];
/// Formats of unquantised tensors.
const FORMATS: [Dtype; 3] = [Dtype::F32, Dtype::BF16, Dtype::F16];

/// Opened files of a model and the positions of its tensors.
#[derive(Debug)]
pub(super) struct Checkpoint {
    shape: ModelShape,
    files: Vec<MappedFile>,
    tensors: HashMap<Tensor, TensorLayout>,
}

#[derive(Debug)]
pub(super) struct MappedFile {
    path: PathBuf,
    pub map: Mmap,
}

/// Tensors by name after [`MODEL_PREFIX`], with their file and the start of its data.
type TensorIndex = HashMap<String, (usize, usize, TensorInfo)>;

impl Checkpoint {
    /// Maps the files and checks that together they contain exactly the tensors of `shape`.
    pub(super) fn open(paths: &[PathBuf], shape: &ModelShape) -> Result<Self> {
        let (files, mut found, _) = read(paths)?;
        let is_mixtral = found.keys().any(|name| name.contains(".block_sparse_moe."));
        let tensors = Stored { files: &files, found: &mut found, shape, is_mixtral }.all()?;
        refuse_unknown(&files, &found, shape)?;
        Ok(Self { shape: shape.clone(), files, tensors })
    }

    /// Fills `out` with the tensor's numbers, starting at index `start` (row x columns + column).
    pub(super) fn fill<T: Number>(&self, tensor: Tensor, start: usize, out: &mut [T]) -> Result<()> {
        let columns = tensor.dimensions(&self.shape).1 as usize;
        let layout = self.tensors.get(&tensor);
        let filled = layout.and_then(|layout| layout.fill(&self.files, columns, start, out));
        filled.ok_or_else(|| {
            let (from, name) = (start, tensor.hf_name());
            let to = from + out.len();
            Error::failed(format!("the checkpoint has no numbers {from}..{to} of {name}"))
        })
    }

    /// Stored mxfp4 blocks and scales of some columns of a row; `None` if the tensor is not stored in mxfp4 or the columns
    /// split a block.
    pub(super) fn packed(
        &self,
        tensor: Tensor,
        row: usize,
        columns: Range<usize>,
    ) -> Option<[&[u8]; 2]> {
        let width = tensor.dimensions(&self.shape).1 as usize;
        self.tensors.get(&tensor)?.packed(&self.files, width, row, columns)
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
    pub(super) fn from_paths(paths: &[PathBuf]) -> Self {
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
/// [`MODEL_PREFIX`].
fn read(paths: &[PathBuf]) -> Result<(Vec<MappedFile>, TensorIndex, Option<String>)> {
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
    let mut found = TensorIndex::new();
    for (name, place) in all {
        if prefix.is_some() && is_of_images(&name) {
            continue;
        }
        let (file, bare) = (place.0, prefix.as_deref().and_then(|prefix| name.strip_prefix(prefix)));
        let bare = bare.unwrap_or(&name);
        let short = bare.strip_prefix(MODEL_PREFIX).unwrap_or(bare).to_owned();
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
    let prefix = embedding.map(|before| before.strip_suffix(MODEL_PREFIX).unwrap_or(before));
    let Some(prefix) = prefix.filter(|prefix| !prefix.is_empty()) else { return Ok(None) };
    let is_other =
        |name: &str| !name.starts_with(prefix) && name != "lm_head.weight" && !is_of_images(name);
    let mut others = names.filter(|(name, _)| is_other(name)).peekable();
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

fn is_of_images(name: &str) -> bool {
    IMAGE_PARTS.iter().any(|part| name.starts_with(part))
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

/// Tensors of a checkpoint that have not been claimed.
struct Stored<'a> {
    files: &'a [MappedFile],
    found: &'a mut TensorIndex,
    shape: &'a ModelShape,
    /// True if experts have Mixtral's names.
    is_mixtral: bool,
}

impl Stored<'_> {
    /// Claims all tensors of the shape.
    fn all(&mut self) -> Result<HashMap<Tensor, TensorLayout>> {
        needed(self.shape).map(|tensor| Ok((tensor, self.layout(tensor)?))).collect()
    }

    /// Claims one tensor, in the layout and under the name that the checkpoint has.
    fn layout(&mut self, tensor: Tensor) -> Result<TensorLayout> {
        let shape = self.shape;
        let (rows, columns) = tensor.matrix(shape);
        let (rows, columns) = (rows as usize, columns as usize);
        let experts = shape.experts.as_ref().map_or(0, |experts| experts.count as usize);
        let name = tensor.hf_name();
        let mut fused = layout::fused(tensor).into_iter().flatten();
        if let Some(fused) = fused.find(|fused| self.has_fused(&fused.name)) {
            let comb = fused.comb(rows);
            let (name, last) = (&fused.name, fused.part + 1 == fused.parts);
            let [blocks, scales] = ["blocks", "scales"].map(|part| format!("{name}_{part}"));
            if self.found.contains_key(&blocks) {
                let parts = columns / mxfp4::MXFP4_BLOCK;
                let sizes = [experts, comb.all, parts, mxfp4::MXFP4_BLOCK / 2];
                let blocks = self.claim(&blocks, &sizes, &[Dtype::U8], last)?;
                let scales = self.claim(&scales, &sizes[..3], &[Dtype::U8], last)?;
                return Ok(TensorLayout::Mxfp4 { blocks, scales, comb });
            }
            let sizes = [experts, columns, comb.all];
            let sizes = if columns == 1 { vec![experts, comb.all] } else { sizes.to_vec() };
            let place = self.claim(name, &sizes, &FORMATS, last)?;
            return Ok(TensorLayout::Transposed { place, comb });
        }
        if tensor.is_stacked() {
            let each = (0..experts).map(|expert| {
                let [ours, mixtral] = layout::of_expert(tensor, expert);
                let name = if self.is_mixtral { mixtral } else { ours };
                self.claim(&name, &[rows, columns], &FORMATS, true)
            });
            return Ok(TensorLayout::PerExpert(each.collect::<Result<_>>()?));
        }
        let other = layout::other_names(tensor).into_iter().find(|name| self.found.contains_key(name));
        let short = other.unwrap_or_else(|| name.strip_prefix(MODEL_PREFIX).unwrap_or(&name).to_owned());
        // HF stores norms (one row) and biases (one column) as vectors
        let found = self.found.get(&short).map_or(&[][..], |(.., info)| &info.shape);
        let sizes = match [rows, columns] {
            [1, columns] if found != [rows, columns] => vec![columns],
            [rows, 1] if found != [rows, columns] => vec![rows],
            sizes => sizes.to_vec(),
        };
        let place = self.claim(&short, &sizes, &FORMATS, true)?;
        Ok(match layout::alternating(tensor, shape) {
            Some((head, rope)) => TensorLayout::Alternating { place, head, rope },
            None => TensorLayout::Rows(place),
        })
    }

    /// True if a tensor of all experts has this name, quantised or not.
    fn has_fused(&self, name: &str) -> bool {
        self.found.contains_key(name) || self.found.contains_key(&format!("{name}_blocks"))
    }

    /// Checks a tensor's dimensions and format. `last` is false if another part of the model is in it too.
    fn claim(
        &mut self,
        short: &str,
        sizes: &[usize],
        formats: &[Dtype],
        last: bool,
    ) -> Result<TensorLocation> {
        let name =
            if short == "lm_head.weight" { short.to_owned() } else { format!("{MODEL_PREFIX}{short}") };
        let Some((file, data, info)) = self.found.get(short).cloned() else {
            return Err(self.missing(&name));
        };
        let path = self.files.get(file).map(|f| f.path.display().to_string()).unwrap_or_default();
        if info.shape != sizes {
            return Err(Error::input_help(
                format!("{path}: tensor {name} is {:?}, expected {sizes:?}", info.shape),
                "the expected shape follows from config.json: do the two belong together?",
            ));
        }
        let dtype = match info.dtype {
            Dtype::F32 => DType::F32,
            Dtype::BF16 => DType::Bf16,
            Dtype::F16 => DType::F16,
            _ => DType::Mxfp4,
        };
        if !formats.contains(&info.dtype) {
            return Err(Error::input_help(
                format!("{path}: tensor {name} has format {}", info.dtype),
                "F32, BF16 or F16 are read, and mxfp4 of gpt-oss; no other quantised checkpoints",
            ));
        }
        if last {
            self.found.remove(short);
        }
        let (start, end) = (data + info.data_offsets.0, data + info.data_offsets.1);
        Ok(TensorLocation { file, dtype, start, end })
    }

    fn missing(&self, name: &str) -> Error {
        let help = match name {
            "lm_head.weight" => {
                "a checkpoint without it needs \"tie_word_embeddings\": true in config.json".into()
            }
            _ => match &self.shape.experts {
                Some(experts) if name.contains("experts.") => format!(
                    "config.json asks for {} experts in each routed layer: is a shard missing?",
                    experts.count
                ),
                _ => {
                    format!("config.json asks for {} layers of a Llama-family model", self.shape.layers)
                }
            },
        };
        let whose = match self.files {
            [only] => only.path.display().to_string(),
            [first, ..] => {
                let dir = first.path.parent().unwrap_or(&first.path).display();
                format!("{dir} ({} safetensors files)", self.files.len())
            }
            [] => "no safetensors file".into(),
        };
        Error::input_help(format!("{whose}: tensor {name} is missing"), help)
    }
}

/// Returns an error for tensors unknown in this shape: unexpected biases, additional layers. Ignoring
/// them would compute a different model.
fn refuse_unknown(files: &[MappedFile], found: &TensorIndex, shape: &ModelShape) -> Result<()> {
    let extra = layout::prediction_layers(shape, found.keys().map(String::as_str));
    let harmless = |name: &str| {
        // frequencies in old checkpoints, a copy of a tied embedding, and layers that only predict ahead
        name.ends_with("rotary_emb.inv_freq")
            || (name == "lm_head.weight" && shape.tied_embeddings)
            || extra.iter().any(|prefix| name.starts_with(prefix))
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
