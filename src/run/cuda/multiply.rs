//! Who multiplies few rows by a matrix, our own kernel or cuBLASLt, and the launch of our own.

use super::blas::MatMul;
use super::kernels::matvec::NextProduct;
use super::kernels::{Source, matvec};
use super::program::Program;
use base::error::Result;
use machine::driver::{Arguments, DevicePtr, Function, Launch};
use plan::DType;

/// Rows, inputs and outputs of a product.
pub(super) type ProductShape = (u32, u32, u32);

/// How few rows are multiplied by a matrix.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// By cuBLASLt.
    Library,
    /// By our own kernel.
    Own,
}

/// Who multiplies few rows by a matrix: our own kernel, or cuBLASLt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MatvecChoice {
    /// Our own kernel up to so many rows.
    UpTo(u32),
    /// The choice that timing made: the products that our own kernel is better at.
    Measured(Vec<ProductShape>),
    /// The same for all that can be done so: an experiment's.
    Asked(Way),
}

impl MatvecChoice {
    /// The rule where nothing was measured: products of 16-bit numbers go through tensor cores, which
    /// take 16 rows as easily as one.
    pub fn usual(dtype: DType) -> Self {
        match dtype {
            DType::F32 => Self::UpTo(4),
            DType::Bf16 | DType::F16 | DType::Fp8 => Self::UpTo(16),
        }
    }

    /// The choice in words, for records.
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

    /// How a product is done.
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

/// A product by our own kernel.
#[derive(Clone, Copy, Debug)]
pub(super) struct OwnProduct {
    pub rows: u32,
    pub inputs: u32,
    pub outputs: u32,
    /// The format of the weights.
    pub weights: DType,
    /// Whether results are f32.
    pub logits: bool,
    /// Multiprocessors that it can count on.
    pub multiprocessors: u32,
    pub x: DevicePtr,
    pub weight: DevicePtr,
    pub out: DevicePtr,
    /// The product after it, whose first weights it asks for.
    pub next: Option<NextProduct>,
}

impl OwnProduct {
    /// The kernel, its geometry and its arguments.
    pub fn launch(&self, kernels: Source<'_>) -> Result<(Function, Launch, Arguments)> {
        let &Self { rows, inputs, outputs, weights, multiprocessors, x, weight, out, .. } = self;
        let mut chosen = matvec::matvec_geometry(weights, rows, inputs, outputs, multiprocessors);
        let kb = if weights == DType::Fp8 { 0 } else { kernels.options().ahead.product_kb };
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
