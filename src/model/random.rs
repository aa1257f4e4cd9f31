//! Random weights, determined by seed, tensor and global index only.
//!
//! Any slice can be generated independently, on any rank at any TP, and all ranks see the same model. A
//! number costs half a hash (two numbers share 64 bits), a conversion and a multiplication: 1 to 2 ns in
//! a release build, plus as much to touch new memory. The only state is the seed.
//!
//! Standard deviations keep activations of order 1 at any depth, make tokens, attention and MLPs all
//! matter to the logits (so that wiring errors show), and give logits a spread of a few units:
//!
//! | tensor | standard deviation |
//! |---|---|
//! | embedding | 1 / sqrt(2 layers), the same as one module's output |
//! | query, key, value, gate, up, router | 1 / sqrt(inputs) |
//! | output, down | 1 / sqrt(inputs x 2 layers) |
//! | head, untied | 3 / sqrt(hidden) |
//! | norms | 0.1 around 1 |
//! | biases, attention sinks | 0.5 |
//! | biases of routers | 0.1 |
//!
//! With a tied head, the final norm's weights have random signs. Otherwise a token's own embedding in
//! the residual would make the model repeat its last token forever.

use arithmetic::{RandomStream, stream_key};

use plan::ModelShape;
use plan::Tensor;

const NORM_SPREAD: f64 = 0.1;
/// Standard deviation of biases, half that of the projections they are added to.
const BIAS_SPREAD: f64 = 0.5;
/// Standard deviation of an untied head's logits.
const LOGIT_SPREAD: f64 = 3.0;

/// Unique number of each tensor of a model.
fn role(tensor: Tensor) -> u64 {
    u64::from(tensor.number()) << 32 | u64::from(tensor.layer().unwrap_or(0))
}

/// Mean and standard deviation of a tensor's numbers.
fn distribution(tensor: Tensor, shape: &ModelShape) -> (f64, f64) {
    let (_, columns) = tensor.dimensions(shape);
    let columns = f64::from(columns);
    let modules = 2.0 * f64::from(shape.layers);
    match tensor {
        Tensor::Embedding => (0.0, 1.0 / modules.sqrt()),
        Tensor::Output(_) | Tensor::Down(_) | Tensor::ExpertDown(_) | Tensor::SharedDown(_) => {
            (0.0, 1.0 / (columns * modules).sqrt())
        }
        Tensor::Head => (0.0, LOGIT_SPREAD / columns.sqrt()),
        Tensor::InputNorm(_)
        | Tensor::PostAttentionNorm(_)
        | Tensor::QueryNorm(_)
        | Tensor::KeyNorm(_)
        | Tensor::QueryLatentNorm(_)
        | Tensor::LatentNorm(_)
        | Tensor::FinalNorm => (1.0, NORM_SPREAD),
        // added to sigmoids, which differ less than logits
        Tensor::RouterBias(_) => (0.0, NORM_SPREAD),
        _ if columns == 1.0 => (0.0, BIAS_SPREAD),
        _ => (0.0, 1.0 / columns.sqrt()),
    }
}

/// Definition of a tensor's random numbers. `tensor` is the stored one: the embedding for a tied head.
pub(super) fn stream(seed: u64, tensor: Tensor, shape: &ModelShape) -> RandomStream {
    let (mean, deviation) = distribution(tensor, shape);
    RandomStream {
        key: stream_key(seed, role(tensor)),
        mean: mean as f32,
        // uniform within +-sqrt(3) standard deviations, from 32 signed bits
        step: (deviation * 12f64.sqrt() / (1u64 << 32) as f64) as f32,
        signs: tensor == Tensor::FinalNorm && shape.tied_embeddings,
    }
}

#[cfg(test)]
mod tests {
    use arithmetic::Number;
    use proptest::prelude::*;

    use super::*;
    use crate::Model;

    fn shape(name: &str) -> ModelShape {
        Model::resolve(name).expect("built in").shape
    }

    fn numbers(seed: u64, tensor: Tensor, shape: &ModelShape, start: u64, count: usize) -> Vec<f32> {
        let mut out = vec![0f32; count];
        f32::random(stream(seed, tensor, shape), start, &mut out);
        out
    }

    fn mean_and_deviation(numbers: &[f32]) -> (f64, f64) {
        let n = numbers.len() as f64;
        let mean = numbers.iter().map(|x| f64::from(*x)).sum::<f64>() / n;
        let variance = numbers.iter().map(|x| (f64::from(*x) - mean).powi(2)).sum::<f64>() / n;
        (mean, variance.sqrt())
    }

    proptest! {
        #[test]
        fn a_slice_is_the_same_wherever_it_starts(start in 0u64..1000, count in 0usize..50, seed: u64) {
            let shape = shape("tiny");
            let whole = numbers(seed, Tensor::Gate(1), &shape, 0, 1050);
            let slice = numbers(seed, Tensor::Gate(1), &shape, start, count);
            prop_assert_eq!(&whole[start as usize..start as usize + count], &slice[..]);
        }
    }

    #[test]
    fn spreads_are_those_of_the_table() {
        let shape = shape("tiny");
        let families = [Tensor::QueryBias(0), Tensor::KeyBias(2), Tensor::QueryNorm(1)];
        let all =
            [Tensor::Embedding, Tensor::Query(0), Tensor::Down(3), Tensor::Head, Tensor::FinalNorm];
        for tensor in all.into_iter().chain(families) {
            let (mean, deviation) = mean_and_deviation(&numbers(7, tensor, &shape, 0, 100_000));
            let (wanted_mean, wanted) = distribution(tensor, &shape);
            assert!((deviation / wanted - 1.0).abs() < 0.02, "{tensor:?}: {deviation}, not {wanted}");
            assert!((mean - wanted_mean).abs() < 0.02 * wanted, "{tensor:?}: mean {mean}");
        }
    }

    #[test]
    fn seeds_tensors_and_layers_differ_and_are_uncorrelated() {
        let shape = shape("tiny");
        let one = numbers(0, Tensor::Gate(0), &shape, 0, 10_000);
        for (seed, tensor) in
            [(1, Tensor::Gate(0)), (0, Tensor::Gate(1)), (0, Tensor::Up(0)), (u64::MAX, Tensor::Gate(0))]
        {
            let other = numbers(seed, tensor, &shape, 0, 10_000);
            let (_, a) = mean_and_deviation(&one);
            let (_, b) = mean_and_deviation(&other);
            let product: f64 = one.iter().zip(&other).map(|(x, y)| f64::from(*x) * f64::from(*y)).sum();
            let correlation = product / 10_000.0 / (a * b);
            assert!(correlation.abs() < 0.05, "seed {seed}, {tensor:?}: correlation {correlation}");
        }
        // neighbours share a hash and must not resemble each other either
        let (_, deviation) = mean_and_deviation(&one);
        let product: f64 = one.windows(2).map(|w| f64::from(w[0]) * f64::from(w[1])).sum();
        assert!((product / 10_000.0 / deviation.powi(2)).abs() < 0.05);
    }

    #[test]
    fn only_a_tied_final_norm_has_signs() {
        let tied = numbers(0, Tensor::FinalNorm, &shape("stories-110m"), 0, 768);
        let negative = tied.iter().filter(|x| **x < 0.0).count();
        assert!((300..470).contains(&negative), "{negative} of 768 are negative");
        let untied = numbers(0, Tensor::FinalNorm, &shape("tiny"), 0, 64);
        assert!(untied.iter().all(|x| *x > 0.0));
    }
}
