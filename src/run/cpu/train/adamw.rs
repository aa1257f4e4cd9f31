//! AdamW (Loshchilov and Hutter, 2019). A step is memory-bound: it reads parameter, gradient and two moments and
//! writes three of them, 28 bytes per f32 parameter.

use arithmetic::Real;

#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Optimiser {
    /// Peak learning rate, reached after the warm-up.
    pub lr: f64,
    /// Steps of linear warm-up from 0.
    pub warmup: u32,
    /// Weight decay of matrices, times the learning rate; norms and biases do not decay.
    pub weight_decay: f64,
    /// Maximum global gradient norm; larger gradients are scaled down to it.
    pub clip: f64,
}

const BETAS: [f64; 2] = [0.9, 0.95];
/// Keeps a step finite if there was no gradient.
const EPSILON: f64 = 1e-8;
/// Final learning rate as a share of the peak.
const LAST: f64 = 0.1;

impl Optimiser {
    /// Learning rate of step `step` (from 0) of `steps`: linear warm-up, then cosine decay to a tenth.
    pub fn rate(&self, step: u32, steps: u32) -> f64 {
        if step < self.warmup {
            return self.lr * f64::from(step + 1) / f64::from(self.warmup);
        }
        let rest = f64::from(steps.saturating_sub(self.warmup).max(1));
        let done = (f64::from(step - self.warmup) / rest).min(1.0);
        let share = LAST + (1.0 - LAST) * 0.5 * (1.0 + (std::f64::consts::PI * done).cos());
        self.lr * share
    }
}

#[derive(Clone, Debug, Default, PartialEq)]
pub struct Moments<T> {
    pub first: Vec<T>,
    pub second: Vec<T>,
}

/// Update of one step; `scale` multiplies the gradients.
#[derive(Clone, Copy, Debug)]
pub(super) struct Move {
    pub step: u32,
    pub rate: f64,
    pub decay: f64,
    pub scale: f64,
}

impl Move {
    pub fn apply<T: Real>(self, weights: &mut [T], gradient: &[T], first: &mut [T], second: &mut [T]) {
        let number = i32::try_from(self.step + 1).unwrap_or(i32::MAX);
        let [one, two] = BETAS.map(|beta| 1.0 - beta.powi(number));
        let (kept, scale) = (T::of(1.0 - self.rate * self.decay), T::of(self.scale));
        let (rate, root, epsilon) = (T::of(self.rate / one), T::of(1.0 / two), T::of(EPSILON));
        let [b1, b2] = BETAS.map(T::of);
        let [c1, c2] = BETAS.map(|beta| T::of(1.0 - beta));
        let numbers = weights.iter_mut().zip(gradient).zip(first.iter_mut().zip(second));
        for ((weight, gradient), (first, second)) in numbers {
            let gradient = *gradient * scale;
            *first = *first * b1 + gradient * c1;
            *second = *second * b2 + gradient * gradient * c2;
            *weight = *weight * kept - rate * *first / ((*second * root).sqrt() + epsilon);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rate_grows_then_falls_to_a_tenth() {
        let optimiser = Optimiser { lr: 1.0, warmup: 4, weight_decay: 0.0, clip: 1.0 };
        let rates: Vec<f64> = (0..=20).map(|step| optimiser.rate(step, 20)).collect();
        assert_eq!(rates[..5], [0.25, 0.5, 0.75, 1.0, 1.0]);
        assert!(rates[4..].windows(2).all(|pair| pair[1] < pair[0]), "{rates:?}");
        assert!((rates[20] - 0.1).abs() < 1e-12);
        let at_once = Optimiser { warmup: 0, ..optimiser };
        assert_eq!(at_once.rate(0, 1), 1.0);
    }

    /// The same numbers as PyTorch 2.8's AdamW (lr 0.1, betas 0.9 and 0.95, weight_decay 0.5) after two steps on 1.0 and
    /// -2.0 with gradients (0.5, -1), then (0.25, 3).
    #[test]
    fn steps_are_those_of_pytorch() {
        let (mut weights, mut first, mut second) = ([1.0f64, -2.0], [0.0; 2], [0.0; 2]);
        for (step, gradient) in [[0.5, -1.0], [0.25, 3.0]].iter().enumerate() {
            let step = Move { step: step as u32, rate: 0.1, decay: 0.5, scale: 1.0 };
            step.apply(&mut weights, gradient, &mut first, &mut second);
        }
        for (weight, wanted) in weights.iter().zip(PYTORCH) {
            assert!((weight - wanted).abs() < 1e-9, "{weights:?}");
        }
    }

    const PYTORCH: [f64; 2] = [0.7135706974653959, -1.758929577488109];
}
