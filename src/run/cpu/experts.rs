//! Mixtures of experts: which experts a row goes to, and their MLPs; for training also the choice's gradient.
//!
//! A choice is `[rows, top_k]` pairs: an expert's number and its weight, best first. Rows are grouped by expert, so that
//! the weights of each touched expert are read once, and those of the others not at all.

use std::ops::Range;
use std::sync::Arc;

use super::kernels::CpuKernels;
use arithmetic::Real;
use arithmetic::product::Panels;
use plan::{CLAMP, CLAMP_SLOPE, ExpertActivation, RouterBias, RouterScore, Routing};

/// Avoids a division by 0 where all chosen scores are 0.
const LEAST_SUM: f64 = 1e-20;

/// Chooses a row's experts, as many as `choice` has pairs, from its logits, which become scores. `bias` has one number
/// per expert, or is empty.
pub fn choose<T: Real>(routing: &Routing, bias: &[T], logits: &mut [T], choice: &mut [T]) {
    if routing.bias == RouterBias::Logits {
        logits.iter_mut().zip(bias).for_each(|(logit, bias)| *logit += *bias);
    }
    to_scores(routing.score, logits);
    let scores = &*logits;
    let of_choice: Vec<T> = match routing.bias {
        RouterBias::Choice => scores.iter().zip(bias).map(|(score, bias)| *score + *bias).collect(),
        RouterBias::None | RouterBias::Logits => scores.to_vec(),
    };
    let (groups, kept) = (routing.groups as usize, routing.kept_groups as usize);
    let mut allowed: Vec<usize> = (0..scores.len()).collect();
    if kept < groups {
        let each = scores.len() / groups;
        let score = |group: usize| {
            let mut of_group = of_choice[group * each..][..each].to_vec();
            of_group.sort_unstable_by(|a, b| b.wide().total_cmp(&a.wide()));
            let most = if routing.score == RouterScore::Softmax { 1 } else { 2 };
            of_group.into_iter().take(most).sum::<T>()
        };
        let best: Vec<T> = (0..groups).map(score).collect();
        let kept = largest(&best, (0..groups).collect(), kept);
        allowed.retain(|expert| kept.contains(&(expert / each)));
    }
    let pairs = choice.as_chunks_mut::<2>().0;
    let chosen = largest(&of_choice, allowed, pairs.len());
    let mut weights: Vec<T> = chosen.iter().map(|expert| scores[*expert]).collect();
    if routing.score == RouterScore::SoftmaxChosen {
        softmax(&mut weights);
    } else if routing.renormalise {
        let sum = weights.iter().copied().sum::<T>() + T::from_f64(LEAST_SUM);
        weights.iter_mut().for_each(|weight| *weight = *weight / sum);
    }
    for ((pair, expert), weight) in pairs.iter_mut().zip(chosen).zip(weights) {
        // expert numbers are exact up to 2^24
        *pair = [T::from_f64(expert as f64), weight * T::from_f64(routing.scale)];
    }
}

/// Turns a row's logits into scores, unless only those of the chosen experts are.
fn to_scores<T: Real>(score: RouterScore, logits: &mut [T]) {
    match score {
        RouterScore::Softmax => softmax(logits),
        RouterScore::Sigmoid => {
            logits.iter_mut().for_each(|logit| *logit = T::ONE / (T::ONE + (-*logit).exp()));
        }
        RouterScore::SoftmaxChosen => {}
    }
}

/// The `count` indices of `among` with the largest scores, best first; the lower index wins a tie.
fn largest<T: Real>(scores: &[T], mut among: Vec<usize>, count: usize) -> Vec<usize> {
    among.sort_by(|a, b| scores[*b].wide().total_cmp(&scores[*a].wide()));
    among.truncate(count);
    among
}

fn softmax<T: Real>(numbers: &mut [T]) {
    let greatest = numbers.iter().copied().reduce(|a, b| if b > a { b } else { a }).unwrap_or(T::ZERO);
    numbers.iter_mut().for_each(|x| *x = (*x - greatest).exp());
    let sum: T = numbers.iter().copied().sum();
    numbers.iter_mut().for_each(|x| *x = *x / sum);
}

/// Gradient of a row's logits, in their place, from its choice and the gradients of the chosen weights. The set of
/// chosen experts counts as constant.
pub fn choose_back<T: Real>(routing: &Routing, logits: &mut [T], choice: &[T], of_weights: &[T]) {
    let scale = T::from_f64(routing.scale);
    let chosen: Vec<usize> =
        choice.as_chunks::<2>().0.iter().map(|[expert, _]| expert.wide() as usize).collect();
    to_scores(routing.score, logits);
    if routing.score == RouterScore::SoftmaxChosen {
        let mut of_chosen: Vec<T> = chosen.iter().map(|expert| logits[*expert]).collect();
        softmax(&mut of_chosen);
        logits.fill(T::ZERO);
        chosen.iter().zip(of_chosen).for_each(|(expert, weight)| logits[*expert] = weight);
    }
    // gradients of the scores
    let mut of_scores = vec![T::ZERO; logits.len()];
    let is_divided = routing.renormalise && routing.score != RouterScore::SoftmaxChosen;
    let sum: T = chosen.iter().map(|expert| logits[*expert]).sum();
    let sum = if is_divided { sum + T::from_f64(LEAST_SUM) } else { T::ONE };
    let mean: T = chosen.iter().zip(of_weights).map(|(expert, g)| *g * logits[*expert] / sum).sum();
    let mean = if is_divided { mean } else { T::ZERO };
    for (expert, gradient) in chosen.iter().zip(of_weights) {
        of_scores[*expert] = scale * (*gradient - mean) / sum;
    }
    let spread: T = logits.iter().zip(&of_scores).map(|(score, gradient)| *score * *gradient).sum();
    for (score, gradient) in logits.iter_mut().zip(of_scores) {
        *score = match routing.score {
            RouterScore::Sigmoid => gradient * *score * (T::ONE - *score),
            RouterScore::Softmax | RouterScore::SoftmaxChosen => *score * (gradient - spread),
        };
    }
}

/// Choices of each expert that a rank holds, by their number (row x top-k + rank of the choice), with their weights.
pub(super) fn by_expert<T: Real>(choices: &[T], own: Range<usize>) -> Vec<Vec<(usize, T)>> {
    let mut rows = vec![Vec::new(); own.len()];
    for (at, [expert, weight]) in choices.as_chunks::<2>().0.iter().enumerate() {
        let own = (expert.wide() as usize).checked_sub(own.start).and_then(|at| rows.get_mut(at));
        own.into_iter().for_each(|rows| rows.push((at, *weight)));
    }
    rows
}

/// Weights of a rank's experts, and the choices.
pub(super) struct ExpertWeights<'a> {
    /// Numbers of the rank's experts.
    pub own: Range<usize>,
    pub top_k: usize,
    /// Each expert's gate and up projection, one below the other.
    pub gate_up: &'a [Arc<Panels>],
    pub down: &'a [Arc<Panels>],
    /// Biases of all own experts; empty without.
    pub gate_up_bias: &'a [f32],
    pub down_bias: &'a [f32],
    pub activation: ExpertActivation,
    /// True if a choice's weight multiplies the expert's input instead of its output.
    pub weighs_input: bool,
}

impl CpuKernels {
    /// For each row the sum of its experts' outputs times their weights, over the experts that the rank holds.
    pub(super) fn experts(
        &mut self,
        of: &ExpertWeights<'_>,
        choices: &[f32],
        x: &[f32],
        out: &mut [f32],
    ) {
        out.fill(0.0);
        let [mut gathered, mut projected, mut active, mut outputs] = [const { Vec::new() }; 4];
        for (expert, rows) in by_expert(choices, of.own.clone()).into_iter().enumerate() {
            if rows.is_empty() {
                continue;
            }
            let (gate_up, down) = (&of.gate_up[expert], &of.down[expert]);
            let (hidden, width) = (gate_up.inputs, down.inputs);
            gathered.clear();
            let row = |at: usize| at / of.top_k * hidden;
            for (at, weight) in &rows {
                let factor = if of.weighs_input { *weight } else { 1.0 };
                gathered.extend(x[row(*at)..][..hidden].iter().map(|x| x * factor));
            }
            projected.resize(rows.len() * gate_up.outputs, 0.0);
            self.matmul(&gathered, gate_up, &mut projected);
            add_bias(&mut projected, of.gate_up_bias.get(expert * 2 * width..(expert + 1) * 2 * width));
            active.resize(rows.len() * width, 0.0);
            match of.activation {
                ExpertActivation::Silu => self.silu_mul(&projected, 2 * width, 0, width, &mut active),
                ExpertActivation::Clamped => clamped(&projected, width, &mut active),
            }
            outputs.resize(rows.len() * hidden, 0.0);
            self.matmul(&active, down, &mut outputs);
            add_bias(&mut outputs, of.down_bias.get(expert * hidden..(expert + 1) * hidden));
            for ((at, weight), output) in rows.iter().zip(outputs.chunks_exact(hidden)) {
                let out = &mut out[row(*at)..][..hidden];
                let weight = if of.weighs_input { 1.0 } else { *weight };
                out.iter_mut().zip(output).for_each(|(out, output)| *out += weight * output);
            }
        }
    }
}

/// Adds a bias as wide as a row to each row.
pub(super) fn add_bias(rows: &mut [f32], bias: Option<&[f32]>) {
    let Some(bias) = bias.filter(|bias| !bias.is_empty()) else { return };
    for row in rows.chunks_exact_mut(bias.len()) {
        row.iter_mut().zip(bias).for_each(|(x, bias)| *x += bias);
    }
}

/// gpt-oss' activation of rows with gate and up side by side, each `width` wide.
fn clamped(x: &[f32], width: usize, y: &mut [f32]) {
    for (x, y) in x.chunks_exact(2 * width).zip(y.chunks_exact_mut(width)) {
        for ((gate, up), y) in x[..width].iter().zip(&x[width..]).zip(y) {
            // comparisons instead of min and max, which would drop NaN
            let gate = if *gate > CLAMP { CLAMP } else { *gate };
            *y = (up.clamp(-CLAMP, CLAMP) + 1.0) * gate / (1.0 + (-CLAMP_SLOPE * gate).exp());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chosen(routing: &Routing, bias: &[f32], logits: &[f32], k: usize) -> (Vec<usize>, Vec<f32>) {
        let mut choice = vec![f32::NAN; 2 * k];
        choose(routing, bias, &mut logits.to_vec(), &mut choice);
        choice.as_chunks::<2>().0.iter().map(|[expert, weight]| (*expert as usize, *weight)).unzip()
    }

    #[test]
    fn a_softmax_over_all_renormalised_is_one_over_the_chosen() {
        let logits = [0.3, 2.0, -1.0, 1.5];
        let (experts, of_all) = chosen(&Routing::plain(RouterScore::Softmax, true), &[], &logits, 2);
        assert_eq!(experts, [1, 3]);
        let (experts, of_chosen) =
            chosen(&Routing::plain(RouterScore::SoftmaxChosen, false), &[], &logits, 2);
        assert_eq!(experts, [1, 3]);
        for (a, b) in of_all.iter().zip(&of_chosen) {
            assert!((a - b).abs() < 1e-6, "{a} {b}");
        }
        assert!((of_all[0] - 1.0 / (1.0 + (-0.5f32).exp())).abs() < 1e-6);
        let (_, raw) = chosen(&Routing::plain(RouterScore::Softmax, false), &[], &logits, 2);
        assert!(raw.iter().sum::<f32>() < 0.95);
    }

    #[test]
    fn groups_and_a_bias_decide_the_choice_and_not_the_weights() {
        let grouped = Routing {
            bias: RouterBias::Choice,
            groups: 3,
            kept_groups: 1,
            scale: 2.5,
            ..Routing::plain(RouterScore::Sigmoid, true)
        };
        // sigmoids 0.5 but for the last, the largest, whose group has the smaller sum
        let logits = [0.0, 0.0, 0.0, 0.0, -9.0, 3.0];
        let (experts, weights) = chosen(&grouped, &[0.0, 0.1, 0.3, 0.2, 0.0, 0.0], &logits, 2);
        assert_eq!(experts, [2, 3]);
        assert_eq!(weights, [1.25, 1.25]);
        // with a softmax, a group counts as much as its largest
        let by_largest = Routing { score: RouterScore::Softmax, bias: RouterBias::None, ..grouped };
        let (experts, _) = chosen(&by_largest, &[], &[1.0, 1.0, 0.9, 1.2, 0.0, 1.1], 2);
        assert_eq!(experts, [3, 2]);
        let free = Routing { groups: 1, ..grouped };
        assert_eq!(chosen(&free, &[0.0; 6], &logits, 1), (vec![5], vec![2.5]));
    }

    #[test]
    fn a_rank_has_rows_of_its_own_experts_only() {
        let choices = [3.0, 0.5, 0.0, 0.5, 2.0, 0.75, 3.0, 0.25];
        assert_eq!(by_expert(&choices, 2..4), [vec![(2, 0.75)], vec![(0, 0.5), (3, 0.25)]]);
    }

    #[test]
    fn the_clamped_activation_is_linear_in_up_and_bounded() {
        let mut y = [0.0; 3];
        clamped(&[1.0, 20.0, -8.0, 0.5, 9.0, -9.0], 3, &mut y);
        let swish = |x: f32| x / (1.0 + (-1.702 * x).exp());
        for (y, wanted) in y.iter().zip([1.5 * swish(1.0), 8.0 * swish(7.0), -6.0 * swish(-8.0)]) {
            assert!((y - wanted).abs() < 1e-5, "{y} {wanted}");
        }
    }
}
