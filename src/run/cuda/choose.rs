//! Who multiplies the few rows of a decode step by a matrix: for each shape, our own kernel and
//! cuBLASLt's algorithms are timed on the model's own weights, which take turns as layers do.

use serde::{Deserialize, Serialize};

use super::blas::Operands;
use super::engine::Engine;
use super::kernels::matvec;
use super::launches::{MatvecChoice, matmul_shape, matvec_call};
use super::stopwatch::{CLEARLY, median_us};
use crate::base::error::Result;
use crate::machine::driver::{Arguments, DevicePtr};
use crate::plan::DType;

/// A product of a decode step, and memory to try it with.
#[derive(Clone, Debug)]
pub(super) struct Product {
    pub rows: u32,
    pub inputs: u32,
    pub outputs: u32,
    /// Whether the results are f32.
    pub logits: bool,
    /// Whether every rank computes the same product.
    pub whole: bool,
    /// Multiprocessors that it can count on.
    pub multiprocessors: u32,
    pub x: DevicePtr,
    /// The weights of all operations with this shape, to be timed in turn.
    pub weights: Vec<DevicePtr>,
    pub out: DevicePtr,
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
    /// By our own kernel (us); `None` where it does not do so many rows.
    pub matvec_us: Option<f64>,
    /// By the fastest of cuBLASLt's algorithms (us).
    pub cublaslt_us: f64,
    /// By the one that its heuristics put first (us).
    pub heuristic_us: f64,
}

impl ProductTimes {
    /// Whether our own kernel does it.
    pub fn is_own(&self) -> bool {
        self.matvec_us.is_some_and(|us| us < CLEARLY * self.cublaslt_us)
    }
}

/// The choice that follows from what was timed; by the usual rule for what was not.
pub(super) fn choice(dtype: DType, products: &[Product], times: &[ProductTimes]) -> MatvecChoice {
    let usual = MatvecChoice::usual(dtype);
    let own = products.iter().map(|p| (p.rows, p.inputs, p.outputs)).filter(|shape| {
        match times.iter().find(|t| (t.rows, t.inputs, t.outputs) == *shape) {
            Some(times) => times.is_own(),
            None => usual.takes(shape.0, shape.1, shape.2),
        }
    });
    MatvecChoice::Measured(own.collect())
}

/// Times the products of a decode step; cuBLASLt remembers its fastest algorithms. Takes some
/// milliseconds a shape; the activations' content is lost. `alone`: no other rank computes the same
/// product as this one. Where one does, such products are left as they are: with another algorithm the
/// ranks' results would differ in their last bits. `on_phase` is called with what goes on, in words.
pub(super) fn measure(
    engine: &Engine,
    products: &[Product],
    alone: bool,
    on_phase: &mut dyn FnMut(&str),
) -> Result<Vec<ProductTimes>> {
    let timed: Vec<_> = products.iter().filter(|product| alone || !product.whole).collect();
    let mut one = |(at, product): (usize, &&Product)| {
        on_phase(&format!("timing matrix products, {} of {}", at + 1, timed.len()));
        measure_one(engine, product)
    };
    timed.iter().enumerate().map(&mut one).collect()
}

fn measure_one(engine: &Engine, product: &Product) -> Result<ProductTimes> {
    let &Product { rows, inputs, outputs, logits, multiprocessors, x, out, .. } = product;
    let all = engine.gpu().info().multiprocessors;
    let target = (multiprocessors < all).then_some(multiprocessors);
    let decode = &engine.programs().decode;
    let shape = matmul_shape(decode, rows, [inputs, outputs], logits, target);
    let operands = Operands { x, weights: &product.weights, out };
    let tuned = engine.blas().tune(engine.main(), &shape, &operands)?;
    let fits = rows <= matvec::most_rows(engine.kernels().options().dtype, inputs);
    let matvec_us = fits.then(|| time_own(engine, product)).transpose()?;
    Ok(ProductTimes {
        rows,
        inputs,
        outputs,
        matvec_us,
        cublaslt_us: tuned.best_us,
        heuristic_us: tuned.first_us,
    })
}

/// Median time of a product by our own kernel (us).
fn time_own(engine: &Engine, product: &Product) -> Result<f64> {
    let &Product { rows, inputs, outputs, logits, multiprocessors, x, out, .. } = product;
    let (function, geometry) =
        matvec_call(engine.kernels().of(false), multiprocessors, rows, [inputs, outputs], logits)?;
    median_us(engine.gpu(), engine.main(), &product.weights, |w| {
        let mut arguments = Arguments::new();
        arguments.pointer(x).pointer(w).pointer(out).u32(inputs).u32(outputs);
        engine.main().launch(&function, &geometry, &mut arguments)
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
        };
        let product = |rows, inputs| Product {
            rows,
            inputs,
            outputs: 64,
            logits: false,
            whole: false,
            multiprocessors: 132,
            x: DevicePtr(0),
            weights: Vec::new(),
            out: DevicePtr(0),
        };
        let all = [times(1, Some(5.0), 6.0), times(2, Some(5.95), 6.0), times(3, None, 6.0)];
        let products = [product(2, 1), product(2, 2), product(2, 3), product(4, 9), product(5, 9)];
        let own = vec![(2, 1, 64), (4, 9, 64)];
        assert_eq!(choice(DType::F32, &products, &all), MatvecChoice::Measured(own));
    }
}
