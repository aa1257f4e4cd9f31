//! Choice between our kernel and cuBLASLt for products with few rows, and the launch of our kernel.

use super::blas::MatMul;
use super::kernels::matvec::NextProduct;
use super::kernels::{Source, matvec};
use super::program::Program;
use base::error::Result;
use machine::driver::{Arguments, DevicePtr, Function, Launch};
use plan::DType;

/// Rows, inputs and outputs of a product.
pub(super) type ProductShape = (u32, u32, u32);

/// Implementation of a product with few rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// cuBLASLt.
    Library,
    /// Our kernel.
    Own,
}

/// Strategy for products with few rows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MatvecChoice {
    /// Our kernel up to this many rows, else cuBLASLt.
    UpTo(u32),
    /// Measured choice: our kernel for these products, else cuBLASLt.
    Measured(Vec<ProductShape>),
    /// Fixed implementation wherever possible, for experiments.
    Asked(Way),
}

impl MatvecChoice {
    /// Default without measurements. Tensor cores handle 16 rows of 16-bit numbers at the cost of one.
    pub fn usual(dtype: DType) -> Self {
        match dtype {
            DType::F32 => Self::UpTo(4),
            DType::Bf16 | DType::F16 | DType::Fp8 => Self::UpTo(16),
        }
    }

    /// Description for records.
    pub fn describe(&self) -> String {
        match self {
            Self::UpTo(most) => format!("up to {most} rows"),
            Self::Asked(Way::Library) => "as asked: none".into(),
            Self::Asked(Way::Own) => "as asked: all that can be".into(),
            Self::Measured(better) => {
                let shape =
                    |(rows, inputs, outputs): &ProductShape| format!("{rows} x [{inputs}, {outputs}]");
                let shapes: Vec<String> = better.iter().map(shape).collect();
                format!(
                    "as measured: {}",
                    if shapes.is_empty() { "none".into() } else { shapes.join(", ") }
                )
            }
        }
    }

    pub(super) fn way(&self, product: ProductShape) -> Way {
        match self {
            Self::UpTo(most) if product.0 <= *most => Way::Own,
            Self::UpTo(_) => Way::Library,
            Self::Asked(way) => *way,
            Self::Measured(better) if better.contains(&product) => Way::Own,
            Self::Measured(_) => Way::Library,
        }
    }
}

#[derive(Clone, Copy, Debug)]
pub(super) struct OwnProduct {
    pub rows: u32,
    pub inputs: u32,
    pub outputs: u32,
    pub weights: DType,
    /// True if results are f32.
    pub logits: bool,
    /// SMs available to the product.
    pub multiprocessors: u32,
    pub x: DevicePtr,
    pub weight: DevicePtr,
    pub out: DevicePtr,
    /// Next product, whose first weights this one prefetches.
    pub next: Option<NextProduct>,
}

impl OwnProduct {
    pub fn launch(&self, kernels: Source<'_>) -> Result<(Function, Launch, Arguments)> {
        let &Self { rows, inputs, outputs, weights, multiprocessors, x, weight, out, .. } = self;
        let mut chosen = matvec::matvec_geometry(weights, rows, inputs, outputs, multiprocessors);
        let kb = kernels.options().ahead.product_kb;
        if kb > 0 {
            chosen.defines.push(("AHEAD", chosen.bytes_a_block(multiprocessors, kb)));
        }
        let name = if self.logits { "matvec_logits" } else { "matvec" };
        let function = kernels.get_with(name, &chosen.defines)?;
        function.set_shared(chosen.geometry.shared_bytes)?;
        let mut arguments = Arguments::new();
        arguments.pointer(x).pointer(weight).pointer(out).u32(inputs).u32(outputs);
        if kb > 0 {
            NextProduct::append(self.next, &mut arguments);
        }
        Ok((function, chosen.geometry, arguments))
    }
}

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
