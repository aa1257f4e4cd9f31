//! Matrix products of a decode step: our kernel or cuBLASLt. Each shape is timed on the model's own weights, alternating
//! between layers.
//!
//! A kernel that is fast back to back in an empty stream may be slow in a real layer, where it overlaps the end of the previous
//! kernel and finds its weights in no cache. So the latency of a captured layer with each of the two decides.

use std::collections::HashMap;

use serde::{Deserialize, Serialize};

use crate::cuda::blas::{MatMul, Operands};
use crate::cuda::engine::Engine;
use crate::cuda::kernels::matvec::{self, NextProduct};
use crate::cuda::kernels::{KernelCall, KernelSource};
use crate::cuda::launches::OperationCall;
use crate::cuda::program::StepSize;
use crate::cuda::timing::clock::{CLEARLY, median_us};
use base::error::Result;
use machine::driver::{DevicePtr, arguments};
use plan::{DType, Element, Kind, Lane, Phase};

/// Matrix `[inputs, outputs]` times `rows` rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProductShape {
    pub rows: u32,
    pub inputs: u32,
    pub outputs: u32,
}

/// Implementation of a product with few rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProductKernel {
    /// cuBLASLt.
    Library,
    /// Kernel `matvec`.
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
    Asked(ProductKernel),
}

impl MatvecChoice {
    /// Default without measurements. Tensor cores handle 16 rows of 16-bit numbers at the cost of one.
    pub fn usual(dtype: DType) -> Self {
        match dtype {
            DType::F32 => Self::UpTo(4),
            _ => Self::UpTo(16),
        }
    }

    pub fn describe(&self) -> String {
        match self {
            Self::UpTo(most) => format!("up to {most} rows"),
            Self::Asked(ProductKernel::Library) => "as asked: none".into(),
            Self::Asked(ProductKernel::Own) => "as asked: all that can be".into(),
            Self::Measured(better) => {
                let shape = |&ProductShape { rows, inputs, outputs }: &ProductShape| {
                    format!("{rows} x [{inputs}, {outputs}]")
                };
                let shapes: Vec<String> = better.iter().map(shape).collect();
                let shapes = if shapes.is_empty() { "none".into() } else { shapes.join(", ") };
                format!("as measured: {shapes}")
            }
        }
    }

    pub(super) fn kernel_for(&self, product: ProductShape) -> ProductKernel {
        match self {
            Self::UpTo(most) if product.rows <= *most => ProductKernel::Own,
            Self::UpTo(_) => ProductKernel::Library,
            Self::Asked(kernel) => *kernel,
            Self::Measured(better) if better.contains(&product) => ProductKernel::Own,
            Self::Measured(_) => ProductKernel::Library,
        }
    }
}

/// Matrix product of few rows, as both implementations need to know it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct MatrixProduct {
    pub rows: u32,
    pub inputs: u32,
    pub outputs: u32,
    /// Format of the weights.
    pub weights: DType,
    /// True if results are f32.
    pub logits: bool,
    /// SMs available to the product.
    pub multiprocessors: u32,
}

impl MatrixProduct {
    pub fn shape(&self) -> ProductShape {
        ProductShape { rows: self.rows, inputs: self.inputs, outputs: self.outputs }
    }

    pub fn fits_own_kernel(&self) -> bool {
        self.rows <= matvec::most_rows(self.weights, self.inputs)
    }

    /// Launch of our kernel, which prefetches the first weights of the `next` product.
    pub fn call(
        &self,
        kernels: KernelSource<'_>,
        [x, weight, out]: [DevicePtr; 3],
        next: Option<NextProduct>,
    ) -> Result<KernelCall> {
        let &Self { rows, inputs, outputs, weights, multiprocessors, .. } = self;
        let mut chosen = matvec::matvec_geometry(weights, rows, inputs, outputs, multiprocessors);
        let kb = kernels.options().ahead.product_kb;
        if kb > 0 {
            chosen.defines.push(("AHEAD", chosen.bytes_a_block(multiprocessors, kb)));
        }
        let name = if self.logits { "matvec_logits" } else { "matvec" };
        let function = kernels.get_with(name, &chosen.defines)?;
        function.set_shared(chosen.geometry.shared_bytes)?;
        let mut arguments = arguments![x, weight, out, inputs, outputs];
        if kb > 0 {
            NextProduct::append(next, &mut arguments);
        }
        Ok(KernelCall { function, launch: chosen.geometry, arguments })
    }

    /// The same product for cuBLASLt, with activations in `dtype`.
    pub fn by_library(&self, dtype: DType, sm_target: Option<u32>) -> MatMul {
        MatMul {
            rows: self.rows.into(),
            inputs: self.inputs.into(),
            outputs: self.outputs.into(),
            dtype,
            f32_output: self.logits,
            sm_target,
        }
    }
}

/// A product of a decode step, with memory to time it.
#[derive(Clone, Debug)]
pub(super) struct TimedProduct {
    pub product: MatrixProduct,
    /// True if every rank computes the same product.
    pub is_replicated: bool,
    /// True if layers contain this product; false for the head.
    pub in_layer: bool,
    pub x: DevicePtr,
    /// Weights of all operations with this shape, timed in turn.
    pub weights: Vec<DevicePtr>,
    pub out: DevicePtr,
}

impl TimedProduct {
    fn shape(&self) -> ProductShape {
        self.product.shape()
    }

    pub fn by_own_kernel(&self, kernels: KernelSource<'_>, weight: DevicePtr) -> Result<OperationCall> {
        self.product.call(kernels, [self.x, weight, self.out], None).map(OperationCall::Kernel)
    }

    /// True if cuBLASLt is an alternative; only our kernel multiplies fp8 weights.
    fn has_choice(&self) -> bool {
        self.product.weights != DType::Fp8
    }
}

/// Latency of a product with each implementation.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ProductTimes {
    /// Rows of the input: sequences of the batch.
    pub rows: u32,
    pub inputs: u32,
    pub outputs: u32,
    /// Our kernel (us); `None` if it does not support this many rows or was not timed.
    pub matvec_us: Option<f64>,
    /// Fastest cuBLASLt algorithm (us).
    pub cublaslt_us: f64,
    /// First choice of cuBLASLt's heuristic (us).
    pub heuristic_us: f64,
    /// Latency of a captured layer with our kernel and with cuBLASLt (us). `None` if there is no choice, no
    /// layer contains the product, or steps are not captured.
    pub layer_us: Option<[f64; 2]>,
}

impl ProductTimes {
    fn shape(&self) -> ProductShape {
        ProductShape { rows: self.rows, inputs: self.inputs, outputs: self.outputs }
    }

    /// Selected implementation: cuBLASLt unless our kernel is clearly faster.
    pub fn kernel(&self) -> ProductKernel {
        let Some(own_us) = self.matvec_us else { return ProductKernel::Library };
        let is_faster = match self.layer_us {
            // the saving per layer must be a clear share of the product's latency
            Some([own, library]) => own < library - (1.0 - CLEARLY) * self.cublaslt_us,
            None => own_us < CLEARLY * self.cublaslt_us,
        };
        if is_faster { ProductKernel::Own } else { ProductKernel::Library }
    }
}

/// Combines the measured choices, with the default rule for products that were not timed.
pub(super) fn choice(dtype: DType, products: &[TimedProduct], times: &[ProductTimes]) -> MatvecChoice {
    let usual = MatvecChoice::usual(dtype);
    let is_own = |shape: &ProductShape| {
        let timed = times.iter().find(|times| times.shape() == *shape);
        timed.map_or_else(|| usual.kernel_for(*shape), ProductTimes::kernel) == ProductKernel::Own
    };
    MatvecChoice::Measured(products.iter().map(TimedProduct::shape).filter(is_own).collect())
}

/// Times the products of a decode step; cuBLASLt keeps its fastest algorithms. Takes a few milliseconds per
/// shape and overwrites the activations.
///
/// `asked` forces one implementation, and only cuBLASLt's algorithms are timed if it is cuBLASLt. `is_single_rank` is
/// true if no other rank computes the same product. Otherwise shared products keep their default algorithm,
/// because different algorithms would give the ranks different last bits. `on_phase` receives progress
/// messages.
pub(super) fn measure(
    engine: &Engine,
    products: &[TimedProduct],
    asked: Option<ProductKernel>,
    is_single_rank: bool,
    on_phase: &mut dyn FnMut(&str),
) -> Result<Vec<ProductTimes>> {
    if asked == Some(ProductKernel::Own) {
        return Ok(Vec::new());
    }
    let timed: Vec<_> =
        products.iter().filter(|p| p.has_choice() && (is_single_rank || !p.is_replicated)).collect();
    let mut time_product = |(index, product): (usize, &&TimedProduct)| {
        on_phase(&format!("timing matrix products, {} of {}", index + 1, timed.len()));
        let times_own_kernel = asked.is_none() && product.product.fits_own_kernel();
        measure_one(engine, product, times_own_kernel, products)
    };
    timed.iter().enumerate().map(&mut time_product).collect()
}

fn measure_one(
    engine: &Engine,
    product: &TimedProduct,
    times_own_kernel: bool,
    all: &[TimedProduct],
) -> Result<ProductTimes> {
    let &TimedProduct { product: MatrixProduct { rows, inputs, outputs, multiprocessors, .. }, .. } =
        product;
    // this product as given, all others by default
    let layer = |kernel: ProductKernel| {
        let usual = MatvecChoice::usual(engine.setup.dtype);
        let is_own = |shape: &ProductShape| match *shape == product.shape() {
            true => kernel == ProductKernel::Own,
            false => usual.kernel_for(*shape) == ProductKernel::Own,
        };
        engine.layer_us(&MatvecChoice::Measured(
            all.iter().map(TimedProduct::shape).filter(is_own).collect(),
        ))
    };
    let whole = engine.gpu.info().multiprocessors;
    let target = (multiprocessors < whole).then_some(multiprocessors);
    let shape = product.product.by_library(engine.setup.dtype, target);
    let operands = Operands { x: product.x, weights: &product.weights, out: product.out };
    let tuned = engine.blas.tune(engine.main(), &shape, &operands)?;
    let among = times_own_kernel && product.in_layer && engine.setup.graph;
    Ok(ProductTimes {
        rows,
        inputs,
        outputs,
        matvec_us: times_own_kernel.then(|| time_own(engine, product)).transpose()?,
        cublaslt_us: tuned.best_us,
        heuristic_us: tuned.first_us,
        layer_us: among
            .then(|| Ok([layer(ProductKernel::Own)?, layer(ProductKernel::Library)?]))
            .transpose()?,
    })
}

fn time_own(engine: &Engine, product: &TimedProduct) -> Result<f64> {
    let kernels = engine.kernels.plain();
    let call = |weight: &DevicePtr| Ok((*weight, product.by_own_kernel(kernels, *weight)?));
    let mut calls: HashMap<DevicePtr, OperationCall> =
        product.weights.iter().map(call).collect::<Result<_>>()?;
    median_us(&engine.gpu, engine.main(), &product.weights, |weight| {
        engine
            .launch(engine.main(), calls.get_mut(&weight).map(std::slice::from_mut).unwrap_or_default())
    })
}

/// Number of layers to time: one if all layers stay in the L2 cache between steps, else enough to exceed it.
fn enough(layer_bytes: u64, layers: u32, l2_bytes: u64) -> u32 {
    if layer_bytes * u64::from(layers) <= l2_bytes {
        return 1;
    }
    (2 * l2_bytes).div_ceil(layer_bytes.max(1)).clamp(1, u64::from(layers.max(1))) as u32
}

impl Engine {
    /// One entry per product shape of a decode step, with the first local rank's memory.
    pub(super) fn products(&self) -> Result<Vec<TimedProduct>> {
        let program = &self.programs.decode;
        let plan = &program.plan;
        let (Some(rank), Some(activations)) = (self.ranks.first(), self.decode.activations.first())
        else {
            return Ok(Vec::new());
        };
        let whole = StepSize::decode(self.setup.sequences);
        let all = self.multiprocessors();
        let mut products: Vec<TimedProduct> = Vec::new();
        let matmuls = plan.operations.iter().zip(program.beside_collectives());
        for (operation, beside) in matmuls.filter(|(o, _)| o.kind == Kind::MatMul) {
            let size = whole.of_group(plan.groups, operation.group);
            let reserved = if beside { self.collective_sms(size.rows()) } else { 0 };
            let Some(weight) = operation.weight.map(|w| &plan.weights[w.index()]) else { continue };
            let out = &plan.values[operation.writes[0].index()];
            let product = MatrixProduct {
                rows: size.rows_of(out.rows, rank.index, plan.tp),
                inputs: weight.inputs,
                outputs: weight.outputs,
                weights: program.precision.of_weight(weight, &self.setup.model.shape),
                logits: out.element == Element::Logit,
                multiprocessors: all.saturating_sub(reserved).max(1),
            };
            let address = rank.weight(&weight.name)?;
            let same = |known: &&mut TimedProduct| {
                let multiprocessors = product.multiprocessors;
                MatrixProduct { multiprocessors, ..known.product } == product
            };
            match products.iter_mut().find(same) {
                Some(known) => {
                    known.weights.push(address);
                    let least = &mut known.product.multiprocessors;
                    *least = product.multiprocessors.min(*least);
                }
                None => products.push(TimedProduct {
                    product,
                    is_replicated: weight.is_whole(),
                    in_layer: operation.layer.is_some(),
                    x: activations[program.buffer(operation.reads[0])].ptr(),
                    weights: vec![address],
                    out: activations[program.buffer(operation.writes[0])].ptr(),
                }),
            }
        }
        Ok(products)
    }

    /// Latency of a layer in a graph (us) without its collectives, with products as `matvec` selects. Resets
    /// generation and overwrites activations.
    fn layer_us(&self, matvec: &MatvecChoice) -> Result<f64> {
        let plan = &self.programs.decode.plan;
        let size = StepSize::decode(self.setup.sequences);
        let first = plan.operations.iter().filter(|operation| operation.layer == Some(0));
        let weights = first.filter_map(|operation| operation.weight).map(|w| &plan.weights[w.index()]);
        let precision = self.programs.decode.precision;
        let bytes = weights.map(|w| precision.weight_bytes(w, &self.setup.model.shape)).sum();
        let layers = enough(bytes, self.setup.model.shape.layers, self.gpu.info().l2_bytes);
        let calls = self.bind(self.kernels.plain(), Phase::Decode, &size, matvec)?;
        let of_layers = |at: usize| {
            let operation = &plan.operations[at];
            operation.lane == Lane::Compute
                && !operation.kind.is_collective()
                && operation.layer.is_some_and(|layer| layer < layers)
        };
        let calls = calls.into_iter().next().unwrap_or_default().into_iter().enumerate();
        let mut chain: Vec<OperationCall> =
            calls.filter(|(at, _)| of_layers(*at)).flat_map(|(_, calls)| calls).collect();
        let mut follows_a_kernel = false;
        for call in &mut chain {
            if let OperationCall::Kernel(kernel) = call {
                kernel.launch.programmatic &= follows_a_kernel;
            }
            follows_a_kernel = matches!(call, OperationCall::Kernel(_));
        }
        self.reset()?;
        Ok(self.graph_us(&mut [], &mut chain, 1)? / f64::from(layers))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn our_own_kernel_must_be_clearly_faster() {
        let times = |inputs, matvec_us, cublaslt_us| ProductTimes {
            rows: 2,
            inputs,
            outputs: 64,
            matvec_us,
            cublaslt_us,
            heuristic_us: cublaslt_us,
            layer_us: None,
        };
        let product = |rows, inputs| TimedProduct {
            product: MatrixProduct {
                rows,
                inputs,
                outputs: 64,
                weights: DType::F32,
                logits: false,
                multiprocessors: 132,
            },
            is_replicated: false,
            in_layer: true,
            x: DevicePtr(0),
            weights: Vec::new(),
            out: DevicePtr(0),
        };
        let all = [times(1, Some(5.0), 6.0), times(2, Some(5.95), 6.0), times(3, None, 6.0)];
        let products = [product(2, 1), product(2, 2), product(2, 3), product(4, 9), product(5, 9)];
        let own =
            [(2, 1), (4, 9)].map(|(rows, inputs)| ProductShape { rows, inputs, outputs: 64 }).to_vec();
        assert_eq!(choice(DType::F32, &products, &all), MatvecChoice::Measured(own));
        // among its neighbours it is the other way round, or hardly differs
        let among =
            |own, theirs| ProductTimes { layer_us: Some([own, theirs]), ..times(1, Some(5.0), 6.0) };
        let slower = ProductTimes { layer_us: Some([49.0, 50.0]), ..times(1, Some(7.0), 6.0) };
        let found =
            [among(49.0, 50.0), among(50.0, 49.0), among(49.95, 50.0), slower].map(|t| t.kernel());
        assert_eq!(
            found,
            [ProductKernel::Own, ProductKernel::Library, ProductKernel::Library, ProductKernel::Own]
        );
    }

    #[test]
    fn layers_are_as_many_as_a_step_reads_from_memory() {
        let l2 = 50 << 20;
        // all of them stay there; each is beyond it; some are
        assert_eq!(enough(1 << 20, 12, l2), 1);
        assert_eq!(enough(200 << 20, 80, l2), 1);
        assert_eq!(enough(7 << 20, 30, l2), 15);
        // there are no more
        assert_eq!(enough(26 << 20, 2, l2), 2);
        assert_eq!(enough(0, 0, l2), 1);
    }
}
