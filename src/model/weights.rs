//! Weight loading: one rank's slices of a model's tensors, from a checkpoint or a seed.

use std::ops::Range;

use arithmetic::e4m3::{self, from_e4m3};
use arithmetic::{Matrix, MatrixData, Number, RandomStream, mxfp4};

use rayon::prelude::*;

use super::checkpoint::Checkpoint;
use super::{Model, files, random};
use base::error::{Error, Result};
use plan::{DType, ModelShape, Precision};
use plan::{Shard, Tensor, Weight, WeightPart};

/// Rows of a weight in e4m3, with one scale per row.
#[derive(Clone, Debug, PartialEq)]
pub struct Fp8Rows {
    /// e4m3 bits, row by row.
    pub bits: Vec<u8>,
    pub scales: Vec<f32>,
}

/// Source of weights: a memory-mapped checkpoint or a seed.
#[derive(Debug)]
pub struct WeightSource {
    shape: ModelShape,
    numbers: Numbers,
}

/// Rows and columns of a tensor.
struct Slice {
    tensor: Tensor,
    rows: Range<usize>,
    columns: Range<usize>,
}

#[derive(Debug)]
enum Numbers {
    /// Random numbers drawn from this seed.
    Random(u64),
    Checkpoint(Box<Checkpoint>),
}

/// Explains why mxfp4 cannot hold rows of so many inputs, if so.
pub fn mxfp4_problem(inputs: u32) -> Option<String> {
    let together = mxfp4::MXFP4_BLOCK as u32;
    (!inputs.is_multiple_of(together)).then(|| {
        format!(
            "mxfp4 needs a multiple of {together} inputs per rank, not {inputs} ({inputs} mod {together} = {}); use \
             another TP, --ep TP for a mixture of experts, or --dtype bf16",
            inputs % together
        )
    })
}

impl WeightSource {
    /// Opens the model's safetensors files and checks name, shape and format of every tensor, or
    /// prepares random weights from `seed` if there are none. Cheap: reads only headers.
    ///
    /// # Errors
    /// Returns an input error for a truncated, corrupt or non-safetensors file; a missing or unknown
    /// tensor, or one with a wrong shape or format; or weights in an unsupported format.
    pub fn open(model: &Model, seed: u64) -> Result<Self> {
        let numbers = match &model.dir {
            Some(dir) if model.has_weights => Numbers::Checkpoint(Box::new(Checkpoint::open(
                &files::weight_files(dir)?,
                &model.shape,
            )?)),
            dir => {
                // silently replacing existing weights with random ones would be a surprise
                let pickle = dir.as_deref().map(files::pickles).transpose()?.unwrap_or_default();
                if let Some(file) = pickle.first() {
                    return Err(Error::input_help(
                        format!("{}: PyTorch pickles are not read", file.display()),
                        "convert the weights to safetensors; without any weight file they are random",
                    ));
                }
                Numbers::Random(seed)
            }
        };
        Ok(Self { shape: model.shape.clone(), numbers })
    }

    pub fn is_random(&self) -> bool {
        matches!(self.numbers, Numbers::Random(_))
    }

    /// Loads one rank's slice of `weight`, converted to `dtype` (f32 or bf16). For fp8, returns the
    /// dequantized f32 numbers, or plain f32 for weights that fp8 leaves unquantized. For mxfp4, returns packed weights
    /// if [`plan::Precision::cpu`] keeps them packed, else bf16. Thread-safe; reads (or generates) and copies only the
    /// slice, or whole rows for fp8 scales.
    ///
    /// # Errors
    /// Returns an input error for f16, and for rows that mxfp4 cannot divide into blocks; a failure if `rank` is not below
    /// `tp` or `weight` does not belong to this model and TP.
    pub fn load(&self, weight: &Weight, rank: u32, tp: u32, dtype: DType) -> Result<Matrix> {
        self.load_rows(weight, rank, tp, dtype, 0..weight.outputs as usize)
    }

    /// [`Self::load`] of some rows (outputs), such as those of one expert: of a weight with the experts' gate and up
    /// projections, an expert has consecutive rows.
    ///
    /// # Errors
    /// Returns the errors of [`Self::load`], and a failure for rows that do not exist.
    pub fn load_rows(
        &self,
        weight: &Weight,
        rank: u32,
        tp: u32,
        dtype: DType,
        rows: Range<usize>,
    ) -> Result<Matrix> {
        let outputs = rows.len();
        let data = match dtype {
            DType::F32 => MatrixData::F32(self.rows(weight, rank, tp, rows)?),
            DType::Bf16 => MatrixData::Bf16(self.rows(weight, rank, tp, rows)?),
            DType::Fp8 if weight.is_quantized(&self.shape) => {
                let Fp8Rows { bits, scales } = self.fp8(weight, rank, tp, rows)?;
                let rows = bits.chunks_exact(weight.inputs as usize).zip(&scales);
                let number = |scale: f32| move |bits: &u8| from_e4m3(*bits) * scale;
                MatrixData::F32(rows.flat_map(|(row, scale)| row.iter().map(number(*scale))).collect())
            }
            DType::Fp8 => MatrixData::F32(self.rows(weight, rank, tp, rows)?),
            DType::Mxfp4 if Precision::cpu(dtype).of_weight(weight, &self.shape) == dtype => {
                self.packed(weight, rank, tp, rows)?
            }
            DType::Mxfp4 => MatrixData::Bf16(self.rows(weight, rank, tp, rows)?),
            other => {
                return Err(Error::input_help(
                    format!("weight {}: no matrix on a CPU holds {other}", weight.name),
                    "--dtype f32 or bf16; f16 checkpoints convert to either",
                ));
            }
        };
        Ok(Matrix { outputs, inputs: weight.inputs as usize, data })
    }

    /// Loads some rows (outputs) of one rank's slice of `weight` as e4m3 with one scale per row: the
    /// row's largest magnitude / 448. The scale covers the whole tensor's row, so that numbers do not
    /// depend on TP.
    ///
    /// # Errors
    /// Returns the errors of [`Self::bytes`].
    pub fn fp8(&self, weight: &Weight, rank: u32, tp: u32, rows: Range<usize>) -> Result<Fp8Rows> {
        let whole = |part: &WeightPart| match part.shard {
            Shard::Columns => WeightPart { shard: Shard::Whole, ..*part },
            Shard::Whole | Shard::Rows | Shard::Experts => *part,
        };
        let width = weight.parts.first().map_or(0, |part| part.tensor.dimensions(&self.shape).1);
        let columns = weight.parts.first().map_or(0..0, |part| part.slice(&self.shape, rank, tp).1);
        let of_whole =
            Weight { parts: weight.parts.iter().map(whole).collect(), inputs: width, ..weight.clone() };
        let numbers = self.rows::<f32>(&of_whole, rank, tp, rows.clone())?;
        let mut bits = vec![0; rows.len() * columns.len()];
        let mut scales = vec![0.0; rows.len()];
        let numbers = numbers.par_chunks_exact(width.max(1) as usize);
        let rows = bits.par_chunks_exact_mut(columns.len().max(1)).zip(&mut scales);
        numbers.zip(rows).for_each(|(numbers, (bits, scale))| {
            *scale = e4m3::scale_of(numbers);
            e4m3::quantize(&numbers[columns.clone()], *scale, bits);
        });
        Ok(Fp8Rows { bits, scales })
    }

    /// Loads rows in mxfp4: as they are stored from a checkpoint in mxfp4, rounded from all others.
    fn packed(&self, weight: &Weight, rank: u32, tp: u32, rows: Range<usize>) -> Result<MatrixData> {
        if let Some(problem) = mxfp4_problem(weight.inputs) {
            return Err(Error::input(format!("weight {}: {problem}", weight.name)));
        }
        if let Numbers::Checkpoint(checkpoint) = &self.numbers {
            let slices = self.wanted(weight, rank, tp, rows.clone())?;
            let stored = slices.into_iter().flat_map(|Slice { tensor, rows, columns }| {
                rows.map(move |row| checkpoint.packed(tensor, row, columns.clone()))
            });
            if let Some(stored) = stored.collect::<Option<Vec<_>>>() {
                let all = |part: usize| stored.iter().map(|row| row[part]).collect::<Vec<_>>().concat();
                return Ok(MatrixData::Mxfp4 { blocks: all(0), scales: all(1) });
            }
        }
        let numbers = self.rows::<f32>(weight, rank, tp, rows)?;
        let mut blocks = vec![0; numbers.len() / 2];
        let mut scales = vec![0; numbers.len() / mxfp4::MXFP4_BLOCK];
        let each = weight.inputs as usize;
        numbers
            .par_chunks_exact(each)
            .zip(blocks.par_chunks_exact_mut(each / 2))
            .zip(scales.par_chunks_exact_mut(each / mxfp4::MXFP4_BLOCK))
            .for_each(|((numbers, blocks), scales)| mxfp4::quantize(numbers, blocks, scales));
        Ok(MatrixData::Mxfp4 { blocks, scales })
    }

    /// Loads some rows (outputs) of one rank's slice of `weight` as bytes of `dtype` (f32, bf16 or f16,
    /// native byte order), so that weights larger than memory can be copied in pieces.
    ///
    /// # Errors
    /// Returns the errors of [`Self::load`], and a failure for rows that do not exist or for fp8 (use
    /// [`Self::fp8`]).
    pub fn bytes(
        &self,
        weight: &Weight,
        rank: u32,
        tp: u32,
        dtype: DType,
        rows: Range<usize>,
    ) -> Result<Vec<u8>> {
        fn bytes<T: Number>(numbers: Vec<T>) -> Vec<u8> {
            bytemuck::cast_slice(&numbers).to_vec()
        }
        Ok(match dtype {
            DType::F32 => bytes(self.rows::<f32>(weight, rank, tp, rows)?),
            DType::Bf16 => bytes(self.rows::<half::bf16>(weight, rank, tp, rows)?),
            DType::F16 => bytes(self.rows::<half::f16>(weight, rank, tp, rows)?),
            other => {
                return Err(Error::failed(format!(
                    "weight {}: {other} has scales in the checkpoint",
                    weight.name
                )));
            }
        })
    }

    /// Definition of the random numbers of a tensor (the stored one: the embedding for a tied head);
    /// `None` for a checkpoint.
    pub fn random_stream(&self, tensor: Tensor) -> Option<RandomStream> {
        match &self.numbers {
            Numbers::Random(seed) => Some(random::stream(*seed, self.stored(tensor), &self.shape)),
            Numbers::Checkpoint(_) => None,
        }
    }

    /// Loads the `wanted` rows of the parts' slices, stacked.
    fn rows<T: Number>(
        &self,
        weight: &Weight,
        rank: u32,
        tp: u32,
        wanted: Range<usize>,
    ) -> Result<Vec<T>> {
        let inputs = weight.inputs as usize;
        let slices = self.wanted(weight, rank, tp, wanted.clone())?;
        let mut numbers = vec![T::default(); wanted.len() * inputs];
        let mut rest = numbers.as_mut_slice();
        for Slice { tensor, rows, columns } in slices {
            let (here, below) = rest.split_at_mut(rows.len() * inputs);
            rest = below;
            let tensor = self.stored(tensor);
            let width = tensor.dimensions(&self.shape).1 as usize;
            if inputs == width {
                // whole rows are contiguous
                self.fill(tensor, rows.start * width, here)?;
            } else if inputs > 0 {
                for (row, out) in rows.zip(here.chunks_exact_mut(inputs)) {
                    self.fill(tensor, row * width + columns.start, out)?;
                }
            }
        }
        Ok(numbers)
    }

    /// Parts of a rank's slices that make up the `wanted` rows.
    fn wanted(&self, weight: &Weight, rank: u32, tp: u32, wanted: Range<usize>) -> Result<Vec<Slice>> {
        if rank >= tp {
            return Err(Error::failed(format!("weight {}: rank {rank} of TP {tp}", weight.name)));
        }
        let inputs = weight.inputs as usize;
        let slices = self.slices(weight, rank, tp);
        let outputs: usize = slices.iter().map(|slice| slice.rows.len()).sum();
        if outputs != weight.outputs as usize || slices.iter().any(|slice| slice.columns.len() != inputs)
        {
            return Err(Error::failed(format!(
                "weight {} is {} x {inputs} in the plan, but its parts have {outputs} rows on rank {rank} of TP {tp}",
                weight.name, weight.outputs
            )));
        }
        if wanted.start > wanted.end || wanted.end > outputs {
            return Err(Error::failed(format!(
                "weight {} has {outputs} rows, not {}..{}",
                weight.name, wanted.start, wanted.end
            )));
        }
        let mut above = 0;
        let part = |slice: Slice| {
            let Slice { rows, .. } = &slice;
            let first = wanted.start.clamp(above, above + rows.len()) - above;
            let last = wanted.end.clamp(above, above + rows.len()) - above;
            above += rows.len();
            Slice { rows: rows.start + first..rows.start + last, ..slice }
        };
        Ok(slices.into_iter().map(part).collect())
    }

    /// Slices of a rank, in the order of their rows: all parts of one expert, then of the next.
    fn slices(&self, weight: &Weight, rank: u32, tp: u32) -> Vec<Slice> {
        let experts = weight.parts.first().map_or(0..0, |part| part.experts(&self.shape, rank, tp));
        let of_expert = |expert: u32| {
            weight.parts.iter().map(move |part| {
                let (rows, columns) = part.slice(&self.shape, rank, tp);
                let first = (expert * part.tensor.matrix(&self.shape).0) as usize;
                Slice { tensor: part.tensor, rows: first + rows.start..first + rows.end, columns }
            })
        };
        experts.flat_map(of_expert).collect()
    }

    /// Stored tensor: the embedding for a tied head.
    fn stored(&self, tensor: Tensor) -> Tensor {
        if tensor == Tensor::Head && self.shape.tied_embeddings { Tensor::Embedding } else { tensor }
    }

    /// Fills `out` with the tensor's numbers, starting at index `start` (row x columns + column).
    fn fill<T: Number>(&self, tensor: Tensor, start: usize, out: &mut [T]) -> Result<()> {
        match &self.numbers {
            Numbers::Random(seed) => {
                T::random(random::stream(*seed, tensor, &self.shape), start as u64, out);
                Ok(())
            }
            Numbers::Checkpoint(checkpoint) => checkpoint.fill(tensor, start, out),
        }
    }
}
