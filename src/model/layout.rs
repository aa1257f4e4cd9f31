//! Layouts of tensors in checkpoints: as they are, one per expert, or fused and quantised as in gpt-oss.

use std::ops::Range;

use super::checkpoint::MappedFile;
use arithmetic::{Number, mxfp4};
use plan::{DType, ModelShape, Tensor};

/// Position of a stored tensor: file, format, and byte range.
#[derive(Clone, Copy, Debug)]
pub(super) struct TensorLocation {
    pub file: usize,
    pub dtype: DType,
    pub start: usize,
    pub end: usize,
}

impl TensorLocation {
    fn bytes(self, files: &[MappedFile]) -> Option<&[u8]> {
        files.get(self.file)?.map.get(self.start..self.end)
    }
}

/// Rows of a tensor in files. Experts' tensors have the rows of all experts, one expert after another.
#[derive(Clone, Debug)]
pub(super) enum TensorLayout {
    /// Row by row.
    Rows(TensorLocation),
    /// A tensor per expert, each row by row.
    PerExpert(Vec<TensorLocation>),
    /// `[experts, inputs, outputs]`, with another tensor's outputs in between.
    Transposed { place: TensorLocation, comb: Comb },
    /// mxfp4: `[experts, outputs, inputs / 32, 16]` and scales, with another tensor's outputs in between.
    Mxfp4 { blocks: TensorLocation, scales: TensorLocation, comb: Comb },
    /// Row by row, but the last `rope` rows of each `head` rows alternate between the halves that RoPE rotates.
    Alternating { place: TensorLocation, head: usize, rope: usize },
}

/// Every `step`-th output of an expert from `first` on, `rows` of `all`.
#[derive(Clone, Copy, Debug)]
pub(super) struct Comb {
    pub rows: usize,
    pub first: usize,
    pub step: usize,
    pub all: usize,
}

impl Comb {
    /// Expert of a row of all experts, and its output in the stored tensor.
    fn stored(self, row: usize) -> (usize, usize) {
        (row / self.rows, self.first + row % self.rows * self.step)
    }
}

impl TensorLayout {
    /// Fills `out` with numbers of a tensor `columns` wide, from index `start` (row x columns + column) on. `None` if
    /// the files have none there.
    pub(super) fn fill<T: Number>(
        &self,
        files: &[MappedFile],
        columns: usize,
        start: usize,
        out: &mut [T],
    ) -> Option<()> {
        match self {
            Self::Rows(place) => convert(files, *place, start, out),
            _ => {
                let mut done = 0;
                while done < out.len() {
                    let (row, column) = ((start + done) / columns, (start + done) % columns);
                    let count = (columns - column).min(out.len() - done);
                    self.row(files, columns, row, column..column + count, &mut out[done..done + count])?;
                    done += count;
                }
                Some(())
            }
        }
    }

    /// Stored mxfp4 blocks and scales of some columns of a row; `None` for other formats, and for columns that split a block.
    pub(super) fn packed<'a>(
        &self,
        files: &'a [MappedFile],
        columns: usize,
        row: usize,
        wanted: Range<usize>,
    ) -> Option<[&'a [u8]; 2]> {
        let Self::Mxfp4 { blocks, scales, comb } = self else { return None };
        let is_whole = |column: usize| column.is_multiple_of(mxfp4::MXFP4_BLOCK);
        if !is_whole(wanted.start) || !is_whole(wanted.end) {
            return None;
        }
        let (expert, output) = comb.stored(row);
        let first = (expert * comb.all + output) * columns + wanted.start;
        let of_part = |place: TensorLocation, numbers: usize| {
            place.bytes(files)?.get(first / numbers..(first + wanted.len()) / numbers)
        };
        Some([of_part(*blocks, 2)?, of_part(*scales, mxfp4::MXFP4_BLOCK)?])
    }

    fn row<T: Number>(
        &self,
        files: &[MappedFile],
        columns: usize,
        row: usize,
        wanted: Range<usize>,
        out: &mut [T],
    ) -> Option<()> {
        match self {
            Self::Rows(place) => convert(files, *place, row * columns + wanted.start, out),
            Self::PerExpert(places) => {
                let each = places.first()?;
                let rows = (each.end - each.start) / each.dtype.bytes() as usize / columns;
                let place = *places.get(row / rows)?;
                convert(files, place, row % rows * columns + wanted.start, out)
            }
            Self::Transposed { place, comb } => {
                let (expert, output) = comb.stored(row);
                wanted.zip(out).try_for_each(|(input, out)| {
                    let at = (expert * columns + input) * comb.all + output;
                    convert(files, *place, at, std::slice::from_mut(out))
                })
            }
            Self::Mxfp4 { .. } => {
                let [blocks, scales] = self.packed(files, columns, row, 0..columns)?;
                mxfp4::fill(blocks, scales, wanted.start, out);
                Some(())
            }
            Self::Alternating { place, head, rope } => {
                let (start, at) = (row / head * head, row % head);
                let at = match at.checked_sub(head - rope) {
                    Some(at) => head - rope + at % (rope / 2) * 2 + at / (rope / 2),
                    None => at,
                };
                convert(files, *place, (start + at) * columns + wanted.start, out)
            }
        }
    }
}

/// Tensor that holds one or two of our tensors for all experts.
pub(super) struct Fused {
    pub name: String,
    /// Index of our tensor among `parts`.
    pub part: usize,
    pub parts: usize,
    /// True if outputs of the parts alternate; false if parts are concatenated.
    pub alternates: bool,
}

impl Fused {
    /// Outputs of our part, of `rows` an expert.
    pub fn comb(&self, rows: usize) -> Comb {
        let (first, step) =
            if self.alternates { (self.part, self.parts) } else { (self.part * rows, 1) };
        Comb { rows, first, step, all: rows * self.parts }
    }
}

/// Tensors that gpt-oss and Llama 4 have in a tensor's place.
pub(super) fn fused(tensor: Tensor) -> Option<[Fused; 2]> {
    let (layer, name, part, parts) = match tensor {
        Tensor::ExpertGate(l) => (l, "gate_up_proj", 0, 2),
        Tensor::ExpertUp(l) => (l, "gate_up_proj", 1, 2),
        Tensor::ExpertDown(l) => (l, "down_proj", 0, 1),
        Tensor::ExpertGateBias(l) => (l, "gate_up_proj_bias", 0, 2),
        Tensor::ExpertUpBias(l) => (l, "gate_up_proj_bias", 1, 2),
        Tensor::ExpertDownBias(l) => (l, "down_proj_bias", 0, 1),
        _ => return None,
    };
    let of_module = |module: &str, alternates| {
        let name = format!("layers.{layer}.{module}.experts.{name}");
        Fused { name, part, parts, alternates }
    };
    Some([of_module("mlp", true), of_module("feed_forward", false)])
}

/// Names of an expert's part of a stacked tensor: of Qwen3-MoE and DeepSeek, and of Mixtral.
pub(super) fn of_expert(tensor: Tensor, expert: usize) -> [String; 2] {
    let (layer, ours, mixtral) = match tensor {
        Tensor::ExpertGate(l) => (l, "gate_proj.weight", "w1.weight"),
        Tensor::ExpertUp(l) => (l, "up_proj.weight", "w3.weight"),
        Tensor::ExpertDown(l) => (l, "down_proj.weight", "w2.weight"),
        Tensor::ExpertGateBias(l) => (l, "gate_proj.bias", "w1.bias"),
        Tensor::ExpertUpBias(l) => (l, "up_proj.bias", "w3.bias"),
        Tensor::ExpertDownBias(l) => (l, "down_proj.bias", "w2.bias"),
        other => (other.layer().unwrap_or(0), "weight", "weight"),
    };
    [
        format!("layers.{layer}.mlp.experts.{expert}.{ours}"),
        format!("layers.{layer}.block_sparse_moe.experts.{expert}.{mixtral}"),
    ]
}

/// Name of a tensor, or of an expert's part of a stacked one, in a written checkpoint.
pub(super) fn written_name(tensor: Tensor, expert: u32, is_mixtral: bool) -> String {
    match tensor {
        Tensor::RouterBias(l) => format!("model.layers.{l}.mlp.gate.e_score_correction_bias"),
        Tensor::Router(l) if is_mixtral => format!("model.layers.{l}.block_sparse_moe.gate.weight"),
        _ if tensor.is_stacked() => {
            let names = of_expert(tensor, expert as usize);
            format!("model.{}", names[usize::from(is_mixtral)])
        }
        _ => tensor.hf_name(),
    }
}

/// Names of unstacked tensors in families that name them differently, without the prefix.
pub(super) fn other_names(tensor: Tensor) -> Vec<String> {
    match tensor {
        Tensor::Router(l) => {
            vec![
                format!("layers.{l}.mlp.router.weight"),
                format!("layers.{l}.block_sparse_moe.gate.weight"),
                format!("layers.{l}.feed_forward.router.weight"),
            ]
        }
        Tensor::RouterBias(l) => {
            vec![
                format!("layers.{l}.mlp.router.bias"),
                format!("layers.{l}.mlp.gate.e_score_correction_bias"),
            ]
        }
        Tensor::SharedGate(l) => vec![format!("layers.{l}.feed_forward.shared_expert.gate_proj.weight")],
        Tensor::SharedUp(l) => vec![format!("layers.{l}.feed_forward.shared_expert.up_proj.weight")],
        Tensor::SharedDown(l) => vec![format!("layers.{l}.feed_forward.shared_expert.down_proj.weight")],
        Tensor::Gate(l) => vec![format!("layers.{l}.feed_forward.gate_proj.weight")],
        Tensor::Up(l) => vec![format!("layers.{l}.feed_forward.up_proj.weight")],
        Tensor::Down(l) => vec![format!("layers.{l}.feed_forward.down_proj.weight")],
        // MLA with a query latent
        Tensor::Query(l) => vec![format!("layers.{l}.self_attn.q_b_proj.weight")],
        _ => Vec::new(),
    }
}

/// Rows of a head, and those at its end that RoPE rotates, of tensors whose rotated rows alternate between the halves.
pub(super) fn alternating(tensor: Tensor, shape: &ModelShape) -> Option<(usize, usize)> {
    let Some(latent) = shape.attention.latent else {
        let is_rotated = matches!(tensor, Tensor::Query(_) | Tensor::Key(_));
        let head = shape.head_dim as usize;
        // only Llama 4 has attention in chunks
        let is_llama4 = shape.attention.window.is_some_and(|window| window.is_chunked);
        return (is_llama4 && is_rotated).then_some((head, head));
    };
    let head = match tensor {
        Tensor::Query(_) => latent.query_dim(),
        Tensor::KeyValueDown(_) => latent.cached(),
        _ => return None,
    };
    Some((head as usize, latent.rope_dim as usize))
}

/// Prefixes of layers after the model's that predict further tokens (DeepSeek-V3's MTP), which decoding leaves out.
pub(super) fn prediction_layers<'a>(
    shape: &ModelShape,
    names: impl Iterator<Item = &'a str>,
) -> Vec<String> {
    let prefixes = names.filter_map(|name| name.strip_suffix("eh_proj.weight"));
    let number = |prefix: &str| prefix.strip_prefix("layers.")?.strip_suffix('.')?.parse::<u32>().ok();
    prefixes.filter(|p| number(p).is_some_and(|l| l >= shape.layers)).map(str::to_owned).collect()
}

/// Numbers of a place from index `start` on.
fn convert<T: Number>(
    files: &[MappedFile],
    place: TensorLocation,
    start: usize,
    out: &mut [T],
) -> Option<()> {
    let each = place.dtype.bytes() as usize;
    let bytes = place.bytes(files)?.get(start * each..(start + out.len()) * each)?;
    match place.dtype {
        DType::F32 => T::from_f32_bytes(bytes, out),
        DType::Bf16 => T::from_bf16_bytes(bytes, out),
        DType::F16 => T::from_f16_bytes(bytes, out),
        _ => return None,
    }
    Some(())
}
