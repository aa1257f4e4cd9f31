//! Training steps: windows divided over replicas of the ranks, gradients summed, parameters updated.
//!
//! A replica is a set of TP ranks that shares parameters with the other replicas and has its own gradients. With more
//! cores than ranks, each replica processes its share of a step's windows and synchronizes only at the end. Sums
//! follow the order of replicas and values, so a step on the same number of threads is bitwise reproducible.

use super::pass::{Batch, Pass, PassRequest, RankContext, Teacher, TrainingError};
use super::program::TrainingProgram;
use crate::comm::{RankFailure, RankGroup, SpinWait};
use crate::cpu::attention::RopeTable;
use crate::recorder::MonotonicClock;
use arithmetic::{BatchLoss, Real};
use base::error::{Error, Result, catch_panic};
use plan::{Architecture, ModelShape, Tensor, TrainingPlan, Weight};
use rayon::prelude::*;
use std::ops::Range;

/// Target number of positions per pass of a replica: enough for fast products.
const ROWS_PER_PASS: usize = 1024;

/// Values that one thread sums or updates at a time.
const VALUES_PER_TASK: usize = 1 << 16;

#[derive(Clone, Copy)]
pub struct TrainerSetup<'a> {
    pub shape: &'a ModelShape,
    pub architecture: &'a Architecture,
    pub trains: &'a dyn Fn(Tensor) -> bool,
    pub tp: u32,
    /// Sets of ranks that share a step's windows.
    pub replicas: usize,
    pub context: usize,
    /// Weight of the divergence from the teacher, the same model as `standard`; `None` disables the teacher.
    pub distil: Option<f64>,
}

/// One rank's values of all parameters, in the order of the program.
type Numbers<T> = Vec<Vec<T>>;

/// Frozen teacher model with the weight of its loss.
#[derive(Debug)]
struct TeacherModel<T> {
    program: TrainingProgram,
    weights: Vec<Numbers<T>>,
    weight: f64,
}

#[derive(Debug)]
pub struct Trainer<T> {
    pub(super) program: TrainingProgram,
    /// Indexed by rank.
    pub(super) weights: Vec<Numbers<T>>,
    /// Indexed by rank and parameter; empty for parameters that are not trained.
    moments: Vec<Vec<Moments<T>>>,
    teacher: Option<TeacherModel<T>>,
    /// Indexed by replica and rank.
    gradients: Vec<Vec<Numbers<T>>>,
    passes: Vec<Vec<Pass<T>>>,
    rotation: RopeTable<T>,
    context: usize,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub struct OptimiserStep {
    pub lost: BatchLoss,
    pub gradient_norm: f64,
}

impl<T: Real> Trainer<T> {
    /// `load` returns a rank's slice of a weight. Returns an input error if TP does not divide the model or the
    /// architecture cannot be trained.
    pub fn new(setup: TrainerSetup<'_>, load: &dyn Fn(&Weight, u32) -> Result<Vec<T>>) -> Result<Self> {
        let TrainerSetup { shape, architecture, trains, tp, replicas, context, distil } = setup;
        let program = |architecture: &Architecture, trains: &dyn Fn(Tensor) -> bool| {
            TrainingPlan::new(shape, architecture, tp, trains)
                .map(|plan| TrainingProgram::new(plan, shape))
                .map_err(|problem| Error::input(problem.to_string()))
        };
        let all = |program: &TrainingProgram| -> Result<Vec<Numbers<T>>> {
            let of_rank = |rank| -> Result<Numbers<T>> {
                (0..program.parameters.len()).map(|at| load(program.weight(at), rank)).collect()
            };
            (0..tp).map(of_rank).collect()
        };
        let teacher = distil.map(|weight| -> Result<TeacherModel<T>> {
            let program = program(&Architecture::Standard, &|_| false)?;
            let weights = all(&program)?;
            Ok(TeacherModel { program, weights, weight })
        });
        let program = program(architecture, trains)?;
        let weights = all(&program)?;
        let room = |at: usize| {
            let numbers = if program.is_trained(at) { program.numbers(at) } else { 0 };
            vec![T::ZERO; numbers]
        };
        let parameters = program.parameters.len();
        let gradients = |_| (0..tp).map(|_| (0..parameters).map(room).collect()).collect();
        let moments =
            |_| (0..parameters).map(|at| Moments { first: room(at), second: room(at) }).collect();
        Ok(Self {
            gradients: (0..replicas).map(gradients).collect(),
            moments: (0..tp).map(moments).collect(),
            passes: (0..replicas).map(|_| (0..tp).map(|_| Pass::default()).collect()).collect(),
            rotation: RopeTable::new(shape, context),
            teacher: teacher.transpose()?,
            weights,
            context,
            program,
        })
    }

    /// Computes the loss of windows, each one token longer than its positions.
    pub fn loss(&mut self, windows: &[&[u32]]) -> Result<BatchLoss> {
        self.passes(windows, false, false).map_err(|stopped| Error::failed(stopped.to_string()))
    }

    /// Runs step `step` (from 0) of `steps` on these windows.
    ///
    /// # Errors
    ///
    /// Returns an error if the loss is not finite (names the first operation with such a result), if a gradient is
    /// not finite, or if a rank's thread dies.
    pub fn step(
        &mut self,
        windows: &[&[u32]],
        optimiser: &Optimiser,
        step: u32,
        steps: u32,
    ) -> Result<OptimiserStep> {
        let lost = self.gradients(windows)?;
        if !(lost.nll + lost.kl).is_finite() {
            let first = match self.passes(windows, false, true) {
                Err(TrainingError::NotFinite(operation)) => {
                    format!("{operation} is the first of its layers")
                }
                _ => "its logits are the first".into(),
            };
            return Err(not_finite(step, "the loss", &first));
        }
        let gradient_norm = self.norm();
        if !gradient_norm.is_finite() {
            let first = self.first_gradient();
            return Err(not_finite(step, "a gradient", &format!("that of {first} is the first")));
        }
        let scale = if gradient_norm > optimiser.clip { optimiser.clip / gradient_norm } else { 1.0 };
        let rate = optimiser.rate(step, steps);
        let ranks = self.weights.iter_mut().zip(&mut self.moments).zip(&self.gradients[0]);
        for ((weights, moments), gradients) in ranks {
            let parameters = weights.iter_mut().zip(moments).zip(gradients).enumerate();
            for (at, ((weights, moments), gradient)) in parameters {
                let decay = if self.program.decays(at) { optimiser.weight_decay } else { 0.0 };
                let one = OptimiserUpdate { step, rate, decay, scale };
                let moments = moments
                    .first
                    .par_chunks_mut(VALUES_PER_TASK)
                    .zip(moments.second.par_chunks_mut(VALUES_PER_TASK));
                let numbers = weights
                    .par_chunks_mut(VALUES_PER_TASK)
                    .zip(gradient.par_chunks(VALUES_PER_TASK))
                    .zip(moments);
                numbers.for_each(|((weights, gradient), (first, second))| {
                    one.apply(weights, gradient, first, second);
                });
            }
        }
        Ok(OptimiserStep { lost, gradient_norm })
    }

    pub(super) fn gradients(&mut self, windows: &[&[u32]]) -> Result<BatchLoss> {
        for numbers in self.gradients.iter_mut().flatten().flatten() {
            numbers.par_chunks_mut(VALUES_PER_TASK).for_each(|chunk| chunk.fill(T::ZERO));
        }
        let lost = self.passes(windows, true, false);
        let lost = lost.map_err(|stopped| Error::failed(stopped.to_string()))?;
        let Some((first, others)) = self.gradients.split_first_mut() else { return Ok(lost) };
        for (rank, numbers) in first.iter_mut().enumerate() {
            for (at, sum) in numbers.iter_mut().enumerate() {
                for other in others.iter() {
                    let chunks = sum
                        .par_chunks_mut(VALUES_PER_TASK)
                        .zip(other[rank][at].par_chunks(VALUES_PER_TASK));
                    chunks.for_each(|(sum, more)| add(sum, more));
                }
            }
        }
        if let Some((whole, rest)) = first.split_first_mut() {
            for at in (0..whole.len()).filter(|at| self.program.is_summed(*at)) {
                rest.iter().for_each(|rank| add(&mut whole[at], &rank[at]));
                rest.iter_mut().for_each(|rank| rank[at].copy_from_slice(&whole[at]));
            }
        }
        Ok(lost)
    }

    #[cfg(test)]
    pub(super) fn gradient(&self, rank: usize, parameter: usize) -> &[T] {
        &self.gradients[0][rank][parameter]
    }

    /// Training state by name: values and two moments of each trained parameter on each rank.
    pub fn state(&self) -> Vec<(String, &[T])> {
        let mut state = Vec::new();
        for (rank, moments) in self.moments.iter().enumerate() {
            for at in (0..moments.len()).filter(|at| self.program.is_trained(*at)) {
                let [numbers, first, second] = self.program.state_names(rank, at);
                state.push((numbers, self.weights[rank][at].as_slice()));
                state.push((first, moments[at].first.as_slice()));
                state.push((second, moments[at].second.as_slice()));
            }
        }
        state
    }

    /// Restores a state: `fill` writes the values of each name in [`Self::state`]. The trainer is unusable after an
    /// error.
    pub fn restore(&mut self, fill: &mut dyn FnMut(&str, &mut [T]) -> Result<()>) -> Result<()> {
        for (rank, moments) in self.moments.iter_mut().enumerate() {
            for (at, moments) in moments.iter_mut().enumerate() {
                if self.program.is_trained(at) {
                    let [numbers, first, second] = self.program.state_names(rank, at);
                    fill(&numbers, &mut self.weights[rank][at])?;
                    fill(&first, &mut moments.first)?;
                    fill(&second, &mut moments.second)?;
                }
            }
        }
        Ok(())
    }

    pub fn parameters(&self) -> (u64, u64) {
        let program = &self.program;
        let numbers = |at: usize| {
            let ranks = if program.weight(at).is_whole() { 1 } else { u64::from(program.tp) };
            ranks * program.numbers(at) as u64
        };
        let all = 0..program.parameters.len();
        (all.clone().map(numbers).sum(), all.filter(|at| program.is_trained(*at)).map(numbers).sum())
    }

    /// FLOP of a step per token on all ranks, including the teacher: matrix products only, two FLOP per multiply-add;
    /// attention sees half of a window on average.
    pub fn flop_per_token(&self) -> f64 {
        let learns = self.program.flop_per_token(self.context, true);
        learns + self.teacher.as_ref().map_or(0.0, |t| t.program.flop_per_token(self.context, false))
    }

    /// Current value of a whole tensor, row-major; `None` if the architecture does not use it.
    pub fn tensor(&self, tensor: Tensor) -> Option<Vec<T>> {
        let ranks: Vec<&[Vec<T>]> = self.weights.iter().map(Vec::as_slice).collect();
        assemble(&self.program, &ranks, tensor)
    }

    /// Global gradient norm; parameters shared by all ranks count once.
    fn norm(&self) -> f64 {
        let mut squares = 0.0;
        for (rank, numbers) in self.gradients[0].iter().enumerate() {
            for (at, gradient) in numbers.iter().enumerate() {
                if rank == 0 || !self.program.weight(at).is_whole() {
                    let of_chunk = |chunk: &[T]| chunk.iter().map(|g| g.wide() * g.wide()).sum::<f64>();
                    let sums: Vec<f64> = gradient.par_chunks(VALUES_PER_TASK).map(of_chunk).collect();
                    squares += sums.iter().sum::<f64>();
                }
            }
        }
        squares.sqrt()
    }

    fn first_gradient(&self) -> String {
        let bad = |at: &usize| {
            self.gradients[0].iter().any(|rank| rank[*at].iter().any(|g| !g.wide().is_finite()))
        };
        let last = (0..self.program.parameters.len()).rev().find(bad);
        last.map_or_else(|| "no weight".into(), |at| self.program.weight(at).name.clone())
    }

    fn passes(
        &mut self,
        windows: &[&[u32]],
        learns: bool,
        checks_finite: bool,
    ) -> Result<BatchLoss, TrainingError> {
        let replicas = self.passes.len();
        let share = 1.0 / (windows.len() * self.context) as f64;
        let Self { program, weights, teacher, gradients, passes, rotation, context, .. } = self;
        let (ranks, spin_wait, clock) = (weights.len(), SpinWait::default(), MonotonicClock::start());
        let groups: Vec<RankGroup<T>> =
            (0..replicas).map(|_| RankGroup::new(ranks, None, spin_wait, clock)).collect();
        let work = LossPass {
            program,
            weights,
            teacher: teacher.as_ref(),
            rotation,
            windows,
            context: *context,
            share,
            checks_finite,
        };
        let results: Vec<Result<BatchLoss, TrainingError>> = std::thread::scope(|scope| {
            let mut started = Vec::new();
            let of_replicas = passes.iter_mut().zip(gradients.iter_mut()).zip(&groups).enumerate();
            for (number, ((passes, gradients), group)) in of_replicas {
                let part = number * windows.len() / replicas..(number + 1) * windows.len() / replicas;
                for (rank, (pass, gradients)) in passes.iter_mut().zip(gradients).enumerate() {
                    let (work, part) = (&work, part.clone());
                    let place = (rank, (ranks > 1).then_some(group));
                    let guarded = move || {
                        let gradients = learns.then_some(&mut gradients[..]);
                        let result = catch_panic(|| work.on_rank(place, part, pass, gradients));
                        let result = result.unwrap_or_else(|text| {
                            Err(RankFailure(format!("rank {rank} panicked: {text}")).into())
                        });
                        // a rank that fails must not leave the others waiting
                        if let Err(stopped) = &result {
                            group.abort(stopped.to_string());
                        }
                        result
                    };
                    started.push((rank, scope.spawn(guarded)));
                }
            }
            let ended = started.into_iter().map(|(rank, thread)| {
                (
                    rank,
                    thread.join().unwrap_or_else(|_| Err(RankFailure("a rank panicked".into()).into())),
                )
            });
            // every rank reports its whole replica's loss, so rank 0's is enough
            ended.filter(|(rank, ended)| *rank == 0 || ended.is_err()).map(|(_, ended)| ended).collect()
        });
        let (mut lost, mut broken) = (BatchLoss::default(), None);
        for result in results {
            match result {
                Ok(part) => lost += part,
                Err(TrainingError::Broken(why)) => broken = Some(TrainingError::Broken(why)),
                // the original error says more than the aborts that it caused
                Err(found) => return Err(found),
            }
        }
        broken.map_or(Ok(lost), Err)
    }
}

struct LossPass<'a, T> {
    program: &'a TrainingProgram,
    weights: &'a [Numbers<T>],
    teacher: Option<&'a TeacherModel<T>>,
    rotation: &'a RopeTable<T>,
    windows: &'a [&'a [u32]],
    context: usize,
    share: f64,
    checks_finite: bool,
}

impl<T: Real> LossPass<'_, T> {
    /// Loss of a part of the windows on a rank, which is alone without a group.
    fn on_rank(
        &self,
        (rank, group): (usize, Option<&RankGroup<T>>),
        part: Range<usize>,
        pass: &mut Pass<T>,
        mut gradients: Option<&mut [Vec<T>]>,
    ) -> Result<BatchLoss, TrainingError> {
        let mut lost = BatchLoss::default();
        for windows in self.windows[part].chunks((ROWS_PER_PASS / self.context).max(1)) {
            let batch = &Batch::new(windows, self.context);
            let Self { program, weights, rotation, .. } = *self;
            let context = RankContext { program, weights: &weights[rank], rank, group, rotation, batch };
            let taught = match self.teacher {
                Some(TeacherModel { program, weights, .. }) => {
                    let context = RankContext { program, weights: &weights[rank], ..context };
                    Some(pass.normed(&context)?)
                }
                None => None,
            };
            let teacher = self.teacher.zip(taught.as_deref()).map(|(taught, normed)| {
                let TeacherModel { program, weights, weight } = taught;
                let head = program.parameter[program.plan.head.index()];
                Teacher { normed, head: &weights[rank][head], weight: *weight }
            });
            let gradients = gradients.as_deref_mut();
            let checks_finite = self.checks_finite;
            let request = PassRequest { gradients, share: self.share, teacher, checks_finite };
            lost += pass.run(&context, request)?;
        }
        Ok(lost)
    }
}

fn add<T: Real>(sum: &mut [T], more: &[T]) {
    for (sum, more) in sum.iter_mut().zip(more) {
        *sum += *more;
    }
}

fn not_finite(step: u32, what: &str, first: &str) -> Error {
    Error::failed(format!(
        "step {}: {what} is not finite; {first}. A smaller learning rate or a longer warm-up may help; the last \
         checkpoint is from before",
        step + 1
    ))
}

/// Assembles a whole tensor from all ranks' `numbers` (parameters or gradients); `None` if the program does not
/// contain it.
pub(super) fn assemble<T: Real>(
    program: &TrainingProgram,
    numbers: &[&[Vec<T>]],
    tensor: Tensor,
) -> Option<Vec<T>> {
    let shape = &program.shape;
    let is_it = |at: &usize| program.weight(*at).parts.iter().any(|part| part.tensor == tensor);
    let at = (0..program.parameters.len()).find(is_it)?;
    let weight = program.weight(at);
    let (rows, columns) = tensor.dimensions(shape);
    let (rows, columns) = (rows as usize, columns as usize);
    let mut whole = vec![T::ZERO; rows * columns];
    for (rank, numbers) in numbers.iter().enumerate() {
        let (mut above, rank) = (0, rank as u32);
        let experts = weight.parts.first().map_or(0..0, |part| part.experts(shape, rank, program.tp));
        for (expert, part) in experts.flat_map(|e| weight.parts.iter().map(move |part| (e, part))) {
            let (of_rows, of_columns) = part.slice(shape, rank, program.tp);
            let width = of_columns.len();
            if part.tensor == tensor {
                let first = (expert * tensor.matrix(shape).0) as usize;
                for (from, row) in of_rows.clone().enumerate() {
                    let from = &numbers[at][(above + from) * width..][..width];
                    whole[(first + row) * columns + of_columns.start..][..width].copy_from_slice(from);
                }
            }
            above += of_rows.len();
        }
    }
    Some(whole)
}

/// AdamW (Loshchilov and Hutter, 2019). A step is memory-bound: it reads parameter, gradient and two moments and writes
/// three of them, 28 bytes per f32 parameter.
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
pub(super) struct OptimiserUpdate {
    pub step: u32,
    pub rate: f64,
    pub decay: f64,
    pub scale: f64,
}

impl OptimiserUpdate {
    pub fn apply<T: Real>(self, weights: &mut [T], gradient: &[T], first: &mut [T], second: &mut [T]) {
        let number = i32::try_from(self.step + 1).unwrap_or(i32::MAX);
        let [one, two] = BETAS.map(|beta| 1.0 - beta.powi(number));
        let (kept, scale) = (T::from_f64(1.0 - self.rate * self.decay), T::from_f64(self.scale));
        let (rate, root, epsilon) =
            (T::from_f64(self.rate / one), T::from_f64(1.0 / two), T::from_f64(EPSILON));
        let [b1, b2] = BETAS.map(T::from_f64);
        let [c1, c2] = BETAS.map(|beta| T::from_f64(1.0 - beta));
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
            let step = OptimiserUpdate { step: step as u32, rate: 0.1, decay: 0.5, scale: 1.0 };
            step.apply(&mut weights, gradient, &mut first, &mut second);
        }
        for (weight, wanted) in weights.iter().zip(PYTORCH) {
            assert!((weight - wanted).abs() < 1e-9, "{weights:?}");
        }
    }

    const PYTORCH: [f64; 2] = [0.7135706974653959, -1.758929577488109];
}
