//! Who multiplies few rows by a matrix, our own kernel (in two ways) or cuBLASLt, and the launch of our own.

use super::blas::MatMul;
use super::kernels::{Source, matvec};
use super::program::Program;
use super::rank::SplitPlace;
use crate::base::error::{Error, Result};
use crate::machine::driver::{Arguments, DevicePtr, Function, Launch};
use crate::plan::DType;

/// Rows, inputs and outputs of a product.
pub(super) type ProductShape = (u32, u32, u32);

/// How few rows are multiplied by a matrix.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// By cuBLASLt.
    Library,
    /// By our own kernel, each of whose blocks has all inputs of its outputs.
    Own,
    /// By our own kernel, with inputs split among blocks ([`matvec::split_geometry`]) where they can be: in layers of
    /// decode steps.
    Split,
}

/// Who multiplies few rows by a matrix: our own kernel, or cuBLASLt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MatvecChoice {
    /// Our own kernel up to so many rows.
    UpTo(u32),
    /// The choice that timing made: the products that our own kernel is better at, and in which way.
    Measured(Vec<(ProductShape, Way)>),
    /// The same for all that can be done so: an experiment's.
    Asked(Way),
}

impl MatvecChoice {
    /// The rule where nothing was measured: products of 16-bit numbers go through tensor cores, which
    /// take 16 rows as easily as one.
    pub fn usual(dtype: DType) -> Self {
        match dtype {
            DType::F32 => Self::UpTo(4),
            DType::Bf16 | DType::F16 => Self::UpTo(16),
        }
    }

    /// The choice in words, for records.
    pub fn describe(&self) -> String {
        match self {
            Self::UpTo(most) => format!("up to {most} rows"),
            Self::Asked(Way::Library) => "as asked: none".into(),
            Self::Asked(Way::Own) => "as asked: all that can be".into(),
            Self::Asked(Way::Split) => "as asked: all that can be, split where they can be".into(),
            Self::Measured(better) => {
                let shape = |((rows, inputs, outputs), way): &(ProductShape, Way)| {
                    let split = if *way == Way::Split { " split" } else { "" };
                    format!("{rows} x [{inputs}, {outputs}]{split}")
                };
                let shapes: Vec<String> = better.iter().map(shape).collect();
                format!(
                    "as measured: {}",
                    if shapes.is_empty() { "none".into() } else { shapes.join(", ") }
                )
            }
        }
    }

    /// How a product is done.
    pub(super) fn way(&self, product: ProductShape) -> Way {
        match self {
            Self::UpTo(most) if product.0 <= *most => Way::Own,
            Self::UpTo(_) => Way::Library,
            Self::Asked(way) => *way,
            Self::Measured(better) => {
                let found = better.iter().find(|(shape, _)| *shape == product);
                found.map_or(Way::Library, |(_, way)| *way)
            }
        }
    }
}

/// A product by our own kernel.
#[derive(Clone, Copy, Debug)]
pub(super) struct OwnProduct {
    pub rows: u32,
    pub inputs: u32,
    pub outputs: u32,
    /// Whether results are f32.
    pub logits: bool,
    /// Multiprocessors that it can count on.
    pub multiprocessors: u32,
    /// Where blocks leave their sums, if inputs are to be split among them where they can be.
    pub split: Option<SplitPlace>,
    pub x: DevicePtr,
    pub weight: DevicePtr,
    pub out: DevicePtr,
}

impl OwnProduct {
    /// The kernel, its geometry and its arguments.
    pub fn launch(&self, kernels: Source<'_>) -> Result<(Function, Launch, Arguments)> {
        let &Self { rows, inputs, outputs, multiprocessors, x, weight, out, .. } = self;
        let dtype = kernels.options().dtype;
        let split = self.split.and_then(|place| {
            let chosen = matvec::split_geometry(dtype, rows, inputs, outputs, multiprocessors)?;
            Some((chosen, place))
        });
        let (chosen, place) = match split {
            Some((chosen, place)) => (chosen, Some(place)),
            None => (matvec::matvec_geometry(dtype, rows, inputs, outputs, multiprocessors), None),
        };
        if place.is_some_and(|place| !place.room.holds(chosen.split_sums(rows, outputs))) {
            let what = format!("{rows} x [{inputs}, {outputs}]");
            return Err(Error::failed(format!("no room for the sums of a split product of {what}")));
        }
        let name = if self.logits { "matvec_logits" } else { "matvec" };
        let function = kernels.get_with(name, &chosen.defines)?;
        function.set_shared(chosen.geometry.shared_bytes)?;
        let mut arguments = Arguments::new();
        arguments.pointer(x).pointer(weight).pointer(out).u32(inputs).u32(outputs);
        if let Some(place) = place {
            arguments.pointer(place.sums).pointer(place.counters);
        }
        Ok((function, chosen.geometry, arguments))
    }
}

/// A product as cuBLASLt takes it.
pub(super) fn matmul_shape(
    program: &Program,
    rows: u32,
    [inputs, outputs]: [u32; 2],
    logits: bool,
    sm_target: Option<u32>,
) -> MatMul {
    MatMul {
        rows: rows.into(),
        inputs: inputs.into(),
        outputs: outputs.into(),
        dtype: program.dtype,
        f32_output: logits,
        sm_target,
    }
}
