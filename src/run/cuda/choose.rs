//! Who multiplies the few rows of a decode step by a matrix: for each shape, our own kernel and
//! cuBLASLt's algorithms are timed on the model's own weights, which take turns as layers do. Back to back in an empty stream
//! a kernel may be fast that is not among others, beside whose ends it begins and whose weights it finds in no cache: so who
//! does a product is decided by what a captured layer takes with the one and with the other.

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

/// A product of a decode step, and memory to try it with.
#[derive(Clone, Debug)]
pub(super) struct Product {
    pub rows: u32,
    pub inputs: u32,
    pub outputs: u32,
    /// The format of the weights.
    pub format: DType,
    /// Whether the results are f32.
    pub logits: bool,
    /// Whether every rank computes the same product.
    pub whole: bool,
    /// Whether layers have such a product; the head is in none.
    pub in_layer: bool,
    /// Multiprocessors that it can count on.
    pub multiprocessors: u32,
    pub x: DevicePtr,
    /// The weights of all operations with this shape, to be timed in turn.
    pub weights: Vec<DevicePtr>,
    pub out: DevicePtr,
}

impl Product {
    fn shape(&self) -> ProductShape {
        (self.rows, self.inputs, self.outputs)
    }

    /// The product with one of its weights, by our own kernel.
    pub fn by_own_kernel(&self, kernels: Source<'_>, weight: DevicePtr) -> Result<Call> {
        let &Self { rows, inputs, outputs, format, logits, multiprocessors, x, out, .. } = self;
        let weights = format;
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

    /// Whether our own kernel can do it.
    fn fits_own_kernel(&self) -> bool {
        self.rows <= matvec::most_rows(self.format, self.inputs)
    }

    /// Whether there is a choice: fp8 weights are multiplied by our own kernel alone.
    fn has_choice(&self) -> bool {
        self.format != DType::Fp8
    }
}

/// What a product takes, by whom.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ProductTimes {
    /// Rows of the input: sequences of the batch.
    pub rows: u32,
    /// Columns of the input, and of the weight.
    pub inputs: u32,
    /// Columns of the output: rows of the weight.
    pub outputs: u32,
    /// By our own kernel (us); `None` where it does not do so many rows, or is not asked.
    pub matvec_us: Option<f64>,
    /// By the fastest of cuBLASLt's algorithms (us).
    pub cublaslt_us: f64,
    /// By the one that its heuristics put first (us).
    pub heuristic_us: f64,
    /// A layer in a graph, with this product by our own kernel and by cuBLASLt (us); `None` where there is nothing to choose,
    /// where no layer has it, and where steps are not captured.
    pub layer_us: Option<[f64; 2]>,
}

impl ProductTimes {
    /// The way in which it is done: by cuBLASLt, unless our own kernel is clearly faster.
    pub fn way(&self) -> Way {
        let Some(own_us) = self.matvec_us else { return Way::Library };
        let is_faster = match self.layer_us {
            // what the layer is spared is clearly something of the product
            Some([own, library]) => own < library - (1.0 - CLEARLY) * self.cublaslt_us,
            None => own_us < CLEARLY * self.cublaslt_us,
        };
        if is_faster { Way::Own } else { Way::Library }
    }
}

/// The choice that follows from what was timed; by the usual rule for what was not.
pub(super) fn choice(dtype: DType, products: &[Product], times: &[ProductTimes]) -> MatvecChoice {
    let usual = MatvecChoice::usual(dtype);
    let is_own = |shape: &ProductShape| {
        let timed = times.iter().find(|t| (t.rows, t.inputs, t.outputs) == *shape);
        timed.map_or_else(|| usual.way(*shape), ProductTimes::way) == Way::Own
    };
    let products = products.iter().filter(|product| product.has_choice());
    MatvecChoice::Measured(products.map(Product::shape).filter(is_own).collect())
}

/// Times the products of a decode step; cuBLASLt remembers its fastest algorithms. Takes some
/// milliseconds a shape; the activations' content is lost. `asked`: who does all of them, whatever timing would say; then only
/// cuBLASLt's algorithms are timed, if it is cuBLASLt. `alone`: no other rank computes the same
/// product as this one. Where one does, such products are left as they are: with another algorithm the
/// ranks' results would differ in their last bits. `on_phase` is called with what goes on, in words.
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

/// Times a product by cuBLASLt and, if it is to be tried, by our own kernel.
fn measure_one(engine: &Engine, product: &Product, own: bool, all: &[Product]) -> Result<ProductTimes> {
    let &Product { rows, inputs, outputs, logits, multiprocessors, x, out, in_layer, .. } = product;
    // this product in one way, the others as usual
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

/// Median time of a product by our own kernel (us).
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
            format: DType::F32,
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
