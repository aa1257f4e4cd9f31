//! Choice between our kernel and cuBLASLt for the products of a decode step. Each shape is timed on the
//! model's own weights, alternating between layers.
//!
//! A kernel that is fast back to back in an empty stream may be slow in a real layer, where it overlaps the
//! end of the previous kernel and finds its weights in no cache. So the latency of a captured layer with each
//! of the two decides.

use std::collections::HashMap;

use serde::{Deserialize, Serialize};

use super::blas::Operands;
use super::engine::Engine;
use super::kernels::{Source, matvec};
use super::launches::Call;
use super::multiply::{MatvecChoice, OwnProduct, ProductShape, Way, matmul_shape};
use super::stopwatch::{CLEARLY, median_us};
use base::error::Result;
use machine::driver::DevicePtr;
use plan::DType;

/// A product of a decode step, with memory to time it.
#[derive(Clone, Debug)]
pub(super) struct Product {
    pub rows: u32,
    pub inputs: u32,
    pub outputs: u32,
    pub weight_format: DType,
    /// True if results are f32.
    pub logits: bool,
    /// True if every rank computes the same product.
    pub whole: bool,
    /// True if layers contain this product; false for the head.
    pub in_layer: bool,
    /// SMs available to the product.
    pub multiprocessors: u32,
    pub x: DevicePtr,
    /// Weights of all operations with this shape, timed in turn.
    pub weights: Vec<DevicePtr>,
    pub out: DevicePtr,
}

impl Product {
    fn shape(&self) -> ProductShape {
        (self.rows, self.inputs, self.outputs)
    }

    pub fn by_own_kernel(&self, kernels: Source<'_>, weight: DevicePtr) -> Result<Call> {
        let &Self {
            rows, inputs, outputs, weight_format: weights, logits, multiprocessors, x, out, ..
        } = self;
        let product = OwnProduct {
            rows,
            inputs,
            outputs,
            weights,
            logits,
            multiprocessors,
            x,
            weight,
            out,
            next: None,
        };
        let (function, launch, arguments) = product.launch(kernels)?;
        Ok(Call::Kernel { function, launch, arguments })
    }

    fn fits_own_kernel(&self) -> bool {
        self.rows <= matvec::most_rows(self.weight_format, self.inputs)
    }

    /// True if cuBLASLt is an alternative; only our kernel multiplies fp8 weights.
    fn has_choice(&self) -> bool {
        self.weight_format != DType::Fp8
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
    /// Selected implementation: cuBLASLt unless our kernel is clearly faster.
    pub fn way(&self) -> Way {
        let Some(own_us) = self.matvec_us else { return Way::Library };
        let is_faster = match self.layer_us {
            // the saving per layer must be a clear share of the product's latency
            Some([own, library]) => own < library - (1.0 - CLEARLY) * self.cublaslt_us,
            None => own_us < CLEARLY * self.cublaslt_us,
        };
        if is_faster { Way::Own } else { Way::Library }
    }
}

/// Combines the measured choices, with the default rule for products that were not timed.
pub(super) fn choice(dtype: DType, products: &[Product], times: &[ProductTimes]) -> MatvecChoice {
    let usual = MatvecChoice::usual(dtype);
    let is_own = |shape: &ProductShape| {
        let timed = times.iter().find(|t| (t.rows, t.inputs, t.outputs) == *shape);
        timed.map_or_else(|| usual.way(*shape), ProductTimes::way) == Way::Own
    };
    MatvecChoice::Measured(products.iter().map(Product::shape).filter(is_own).collect())
}

/// Times the products of a decode step; cuBLASLt keeps its fastest algorithms. Takes a few milliseconds per
/// shape and overwrites the activations.
///
/// `asked` forces one implementation, and only cuBLASLt's algorithms are timed if it is cuBLASLt. `alone` is
/// true if no other rank computes the same product. Otherwise shared products keep their default algorithm,
/// because different algorithms would give the ranks different last bits. `on_phase` receives progress
/// messages.
pub(super) fn measure(
    engine: &Engine,
    products: &[Product],
    asked: Option<Way>,
    alone: bool,
    on_phase: &mut dyn FnMut(&str),
) -> Result<Vec<ProductTimes>> {
    if asked == Some(Way::Own) {
        return Ok(Vec::new());
    }
    let timed: Vec<_> = products.iter().filter(|p| p.has_choice() && (alone || !p.whole)).collect();
    let mut one = |(at, product): (usize, &&Product)| {
        on_phase(&format!("timing matrix products, {} of {}", at + 1, timed.len()));
        let own = asked.is_none() && product.fits_own_kernel();
        measure_one(engine, product, own, products)
    };
    timed.iter().enumerate().map(&mut one).collect()
}

fn measure_one(engine: &Engine, product: &Product, own: bool, all: &[Product]) -> Result<ProductTimes> {
    let &Product { rows, inputs, outputs, logits, multiprocessors, x, out, in_layer, .. } = product;
    // this product as given, all others by default
    let layer = |way: Way| {
        let usual = MatvecChoice::usual(engine.dtype());
        let is_own = |shape: &ProductShape| match *shape == product.shape() {
            true => way == Way::Own,
            false => usual.way(*shape) == Way::Own,
        };
        engine.layer_us(&MatvecChoice::Measured(all.iter().map(Product::shape).filter(is_own).collect()))
    };
    let whole = engine.gpu().info().multiprocessors;
    let target = (multiprocessors < whole).then_some(multiprocessors);
    let decode = &engine.programs().decode;
    let shape = matmul_shape(decode, rows, [inputs, outputs], logits, target);
    let operands = Operands { x, weights: &product.weights, out };
    let tuned = engine.blas().tune(engine.main(), &shape, &operands)?;
    let among = own && in_layer && engine.is_captured();
    Ok(ProductTimes {
        rows,
        inputs,
        outputs,
        matvec_us: own.then(|| time_own(engine, product)).transpose()?,
        cublaslt_us: tuned.best_us,
        heuristic_us: tuned.first_us,
        layer_us: among.then(|| Ok([layer(Way::Own)?, layer(Way::Library)?])).transpose()?,
    })
}

fn time_own(engine: &Engine, product: &Product) -> Result<f64> {
    let kernels = engine.kernels().of(false);
    let call = |weight: &DevicePtr| Ok((*weight, product.by_own_kernel(kernels, *weight)?));
    let mut calls: HashMap<DevicePtr, Call> = product.weights.iter().map(call).collect::<Result<_>>()?;
    median_us(engine.gpu(), engine.main(), &product.weights, |weight| {
        engine
            .launch(engine.main(), calls.get_mut(&weight).map(std::slice::from_mut).unwrap_or_default())
    })
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
        let product = |rows, inputs| Product {
            rows,
            inputs,
            outputs: 64,
            weight_format: DType::F32,
            logits: false,
            whole: false,
            in_layer: true,
            multiprocessors: 132,
            x: DevicePtr(0),
            weights: Vec::new(),
            out: DevicePtr(0),
        };
        let all = [times(1, Some(5.0), 6.0), times(2, Some(5.95), 6.0), times(3, None, 6.0)];
        let products = [product(2, 1), product(2, 2), product(2, 3), product(4, 9), product(5, 9)];
        let own = vec![(2, 1, 64), (4, 9, 64)];
        assert_eq!(choice(DType::F32, &products, &all), MatvecChoice::Measured(own));
        // among its neighbours it is the other way round, or hardly differs
        let among =
            |own, theirs| ProductTimes { layer_us: Some([own, theirs]), ..times(1, Some(5.0), 6.0) };
        let slower = ProductTimes { layer_us: Some([49.0, 50.0]), ..times(1, Some(7.0), 6.0) };
        let found = [among(49.0, 50.0), among(50.0, 49.0), among(49.95, 50.0), slower].map(|t| t.way());
        assert_eq!(found, [Way::Own, Way::Library, Way::Library, Way::Own]);
    }
}
