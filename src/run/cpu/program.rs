//! Compiled plan for the cpu backend: buffers assigned, names formatted, waits resolved, weights shared.

use std::collections::{HashMap, HashSet};
use std::ops::Range;
use std::sync::Arc;

use arithmetic::product::{PanelFormat, Panels};
use base::error::{Error, Result};
use model::{Matrix, MatrixData, Model, WeightSource};
use plan::{Buffer, BufferId, DType, Kind, Lane, Latent, ModelShape, Plan, Precision, Tensor, Weight};

#[derive(Debug)]
pub struct CpuProgram {
    pub plan: Plan,
    pub(super) buffer_of: Vec<BufferId>,
    pub(super) buffers: Vec<Buffer>,
    /// Last comm operation that each operation must wait for (comm completes in order).
    pub(super) awaits: Vec<Option<u32>>,
    /// True for collectives whose operand a later operation reads.
    pub(super) keeps: Vec<bool>,
    /// Operation names with their phase, for NVTX.
    pub(super) names: Arc<[String]>,
    /// Index of the first operation in the trace's operations table.
    pub(super) base: u32,
}

impl CpuProgram {
    /// Compiles a plan; `base` is the number of operations before it in the trace's table.
    pub fn new(plan: Plan, base: u32) -> Self {
        let assigned = plan.buffers();
        let writers = plan.writers();
        let awaits = plan
            .operations
            .iter()
            .map(|operation| {
                operation
                    .reads
                    .iter()
                    .filter_map(|value| writers[value.index()])
                    .chain(operation.after.iter().copied())
                    .filter(|op| plan.operations[op.index()].lane == Lane::Comm)
                    .map(|op| op.0)
                    .max()
            })
            .collect();
        let keeps = plan.operations.iter().enumerate().map(|(at, operation)| {
            let mut later = plan.operations[at + 1..].iter().flat_map(|later| &later.reads);
            operation.lane == Lane::Comm && later.any(|read| operation.reads.contains(read))
        });
        let keeps = keeps.collect();
        let phase = plan.phase.as_str();
        let names = plan.operations.iter().map(|o| format!("{phase}/{}", o.name)).collect();
        Self {
            buffer_of: assigned.of_value,
            buffers: assigned.buffers,
            awaits,
            keeps,
            names,
            base,
            plan,
        }
    }
}

/// Weight in the form that its operation reads.
#[derive(Clone, Debug)]
pub(super) enum StoredWeight {
    /// Operand of products, and the embedding, which the head may share.
    Panels(Arc<Panels>),
    /// Norms and biases.
    Rows(Arc<Matrix>),
    /// Matrices of the rank's experts, or of its heads (MLA).
    Each(Arc<[Arc<Panels>]>),
}

/// Form in which a weight's reader needs it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Form {
    Panels,
    Rows,
    /// Rows widened to f32 once.
    Wide,
    /// A matrix for each of so many experts.
    Experts(usize),
    /// For each head the transposed up projection of keys, then that of values.
    Heads(Latent),
}

impl Form {
    /// Form of an operation's weight, or of one of its further weights, with `experts` per rank.
    fn new(kind: &Kind, further: Option<usize>, shape: &ModelShape, experts: usize) -> Self {
        match (kind, further) {
            (Kind::MatMul | Kind::Embed | Kind::Router, None) => Self::Panels,
            (Kind::Experts, None | Some(0)) => Self::Experts(experts),
            (Kind::LatentAttend, None) => shape.attention.latent.map_or(Self::Rows, Self::Heads),
            (kind, None) if kind.is_attention() => Self::Wide,
            (_, None) => Self::Rows,
            (_, Some(_)) => Self::Wide,
        }
    }
}

impl StoredWeight {
    pub fn panels(&self) -> Option<&Arc<Panels>> {
        match self {
            Self::Panels(panels) => Some(panels),
            _ => None,
        }
    }

    pub fn rows(&self) -> Option<&Matrix> {
        match self {
            Self::Rows(matrix) => Some(matrix),
            _ => None,
        }
    }

    /// Numbers of a vector in f32; empty for other forms.
    pub fn vector(&self) -> &[f32] {
        match self.rows().map(|matrix| &matrix.data) {
            Some(MatrixData::F32(numbers)) => numbers,
            _ => &[],
        }
    }

    /// Matrices of experts or heads; empty for other forms.
    pub fn each(&self) -> &[Arc<Panels>] {
        match self {
            Self::Each(each) => each,
            _ => &[],
        }
    }

    fn bytes(&self) -> u64 {
        match self {
            Self::Panels(panels) => panels.bytes(),
            Self::Rows(matrix) => matrix.data.bytes(),
            Self::Each(each) => each.iter().map(|panels| panels.bytes()).sum(),
        }
    }

    fn address(&self) -> *const u8 {
        match self {
            Self::Panels(panels) => Arc::as_ptr(panels).cast(),
            Self::Rows(matrix) => Arc::as_ptr(matrix).cast(),
            Self::Each(each) => Arc::as_ptr(each).cast(),
        }
    }
}

/// One rank's weights by name. Unsharded tensors (norms, embedding, head) are shared between ranks.
#[derive(Clone, Debug, Default)]
pub struct CpuWeights {
    by_name: HashMap<String, StoredWeight>,
}

/// A plan's weights, each in the form that its readers need.
fn weights_of<'a>(plan: &'a Plan, shape: &ModelShape) -> Vec<(&'a Weight, Form)> {
    let mut forms = vec![Form::Rows; plan.weights.len()];
    for operation in &plan.operations {
        for (number, weight) in operation.weights().enumerate() {
            let parts = &plan.weights[weight.index()].parts;
            let experts = parts.first().map_or(0, |part| part.experts(shape, 0, plan.tp).len());
            let form = Form::new(&operation.kind, number.checked_sub(1), shape, experts);
            if form != Form::Rows {
                forms[weight.index()] = form;
            }
        }
    }
    plan.weights.iter().zip(forms).collect()
}

/// Panels of each head: keys' up projection, transposed (`[kv_rank, nope_dim]`), then values' (`[value_dim, kv_rank]`).
fn of_heads(weight: &Weight, latent: Latent, read: &ReadRows<'_>) -> Result<Arc<[Arc<Panels>]>> {
    let (nope, rank) = (latent.nope_dim as usize, latent.kv_rank as usize);
    let each = nope + latent.value_dim as usize;
    let mut panels = Vec::new();
    for first in (0..weight.outputs as usize).step_by(each) {
        let keys = read(weight, first..first + nope)?;
        let transposed = |column: usize, row: usize| row * rank + column;
        let places = (0..rank).flat_map(|column| (0..nope).map(move |row| transposed(column, row)));
        let data = match keys.data {
            MatrixData::Bf16(numbers) => MatrixData::Bf16(places.map(|at| numbers[at]).collect()),
            _ => {
                let numbers = keys.numbers();
                MatrixData::F32(places.map(|at| numbers[at]).collect())
            }
        };
        panels.push(Arc::new(Panels::from_matrix(&Matrix { outputs: rank, inputs: nope, data })));
        panels.push(Arc::new(Panels::from_matrix(&read(weight, first + nope..first + each)?)));
    }
    Ok(panels.into())
}

/// Reads rows of a weight.
type ReadRows<'a> = dyn Fn(&Weight, Range<usize>) -> Result<Matrix> + 'a;

impl CpuWeights {
    pub fn shared(source: &WeightSource, model: &Model, plans: &[&Plan], dtype: DType) -> Result<Self> {
        let mut weights = Self::default();
        let tied = |tensor: Tensor| tensor == Tensor::Head && model.shape.tied_embeddings;
        let all = plans.iter().flat_map(|plan| weights_of(plan, &model.shape));
        let (tied, own): (Vec<_>, Vec<_>) =
            all.filter(|(w, _)| w.is_whole()).partition(|(weight, _)| tied(weight.parts[0].tensor));
        let read: &ReadRows<'_> = &|weight, rows| source.load_rows(weight, 0, 1, dtype, rows);
        let embedding = own.iter().find(|(other, _)| other.parts[0].tensor == Tensor::Embedding);
        let embedding = embedding.map(|(embedding, _)| embedding.name.clone());
        weights.load(own, (&model.shape, dtype), read)?;
        for (weight, form) in tied {
            match embedding.as_ref().and_then(|name| weights.by_name.get(name)).cloned() {
                Some(embedding) => drop(weights.by_name.insert(weight.name.clone(), embedding)),
                None => weights.load(vec![(weight, form)], (&model.shape, dtype), read)?,
            }
        }
        Ok(weights)
    }

    pub fn with_rank(
        mut self,
        source: &WeightSource,
        shape: &ModelShape,
        plans: &[&Plan],
        rank: u32,
        dtype: DType,
    ) -> Result<Self> {
        for plan in plans {
            let own = weights_of(plan, shape).into_iter().filter(|(weight, _)| !weight.is_whole());
            let read: &ReadRows<'_> =
                &|weight, rows| source.load_rows(weight, rank, plan.tp, dtype, rows);
            self.load(own.collect(), (shape, dtype), read)?;
        }
        Ok(self)
    }

    fn load(
        &mut self,
        mut wanted: Vec<(&Weight, Form)>,
        (shape, dtype): (&ModelShape, DType),
        read: &ReadRows<'_>,
    ) -> Result<()> {
        let mut seen = HashSet::new();
        wanted.retain(|(w, _)| !self.by_name.contains_key(&w.name) && seen.insert(w.name.as_str()));
        let all = |weight: &Weight| read(weight, 0..weight.outputs as usize);
        let size = |weight: &Weight, outputs: usize| {
            let format = match Precision::cpu(dtype).of_weight(weight, shape) {
                DType::Bf16 => PanelFormat::Bf16,
                DType::Mxfp4 => PanelFormat::Mxfp4,
                _ => PanelFormat::F32,
            };
            (outputs, weight.inputs as usize, format)
        };
        let (mut whole, mut each) = (Vec::new(), Vec::new());
        for (weight, form) in wanted {
            let stored = match form {
                Form::Panels => {
                    whole.push(weight);
                    continue;
                }
                Form::Experts(count) => {
                    each.push((weight, count));
                    continue;
                }
                Form::Rows => StoredWeight::Rows(Arc::new(all(weight)?)),
                Form::Wide => {
                    let narrow = all(weight)?;
                    let data = MatrixData::F32(narrow.numbers().into_owned());
                    StoredWeight::Rows(Arc::new(Matrix { data, ..narrow }))
                }
                Form::Heads(latent) => StoredWeight::Each(of_heads(weight, latent, read)?),
            };
            self.by_name.insert(weight.name.clone(), stored);
        }
        let sizes = whole.iter().map(|weight| size(weight, weight.outputs as usize));
        let panels = Panels::of_all(sizes, whole.iter().map(|weight| all(weight)))?;
        for (weight, panels) in whole.iter().zip(panels) {
            self.by_name.insert(weight.name.clone(), StoredWeight::Panels(Arc::new(panels)));
        }
        for (weight, experts) in each {
            let rows = weight.outputs as usize / experts;
            let sizes = (0..experts).map(|_| size(weight, rows));
            let matrices = (0..experts).map(|expert| read(weight, expert * rows..(expert + 1) * rows));
            let panels = Panels::of_all(sizes, matrices)?;
            let panels = panels.into_iter().map(Arc::new).collect();
            self.by_name.insert(weight.name.clone(), StoredWeight::Each(panels));
        }
        Ok(())
    }

    pub(super) fn of_plan(&self, plan: &Plan) -> Result<Vec<StoredWeight>> {
        plan.weights
            .iter()
            .map(|weight| {
                self.by_name
                    .get(&weight.name)
                    .cloned()
                    .ok_or_else(|| Error::failed(format!("weight {} was not loaded", weight.name)))
            })
            .collect()
    }

    /// Bytes of all weights; tied weights count once.
    pub fn bytes(&self) -> u64 {
        let mut seen = HashSet::new();
        self.by_name.values().filter(|held| seen.insert(held.address())).map(StoredWeight::bytes).sum()
    }
}
