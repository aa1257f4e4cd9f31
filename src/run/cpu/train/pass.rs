//! One rank's pass over windows: forward operations, loss, and derivatives ([`super::derivatives`]). Buffers come
//! from a pool. Collectives are awaited only when their result is read, so they overlap with compute.

use std::collections::{HashMap, VecDeque};

use arithmetic::{
    BatchLoss, Gated, LossRows, MatrixView, MatrixViewMut, Norm, Real, SiluMul, all_finite, gemm,
    gemm_onto,
};
use pulp::Arch;

use super::attention::Windows;
use super::experts::{Router, TrainedExperts};
use super::program::{TrainingProgram, TrainingSlot};
use crate::comm::{Exchange, RankFailure, RankGroup};
use crate::cpu::attention::{HeadPreprocessing, Heads, RopeTable};
use crate::cpu::rank::side_by_side;
use plan::{Kind, Operation};

#[derive(Debug, thiserror::Error)]
pub(super) enum TrainingError {
    #[error(transparent)]
    Broken(#[from] RankFailure),
    /// First forward operation whose result is not finite.
    #[error("{0} is not finite")]
    NotFinite(String),
}

/// Tokens of adjacent windows, and the token that follows each.
#[derive(Clone, Debug, Default)]
pub(super) struct Batch {
    pub tokens: Vec<u32>,
    pub targets: Vec<u32>,
    pub length: usize,
}

impl Batch {
    /// Builds a batch from windows of `length + 1` tokens each.
    pub fn new(windows: &[&[u32]], length: usize) -> Self {
        let mut batch = Self { length, ..Self::default() };
        for window in windows {
            batch.tokens.extend_from_slice(&window[..length]);
            batch.targets.extend_from_slice(&window[1..=length]);
        }
        batch
    }
}

/// Program, weights, peers and windows of one rank.
pub(super) struct RankContext<'a, T> {
    pub program: &'a TrainingProgram,
    pub weights: &'a [Vec<T>],
    pub rank: usize,
    pub group: Option<&'a RankGroup<T>>,
    pub rotation: &'a RopeTable<T>,
    pub batch: &'a Batch,
}

impl<T> RankContext<'_, T> {
    pub fn windows(&self) -> Windows {
        let heads = Heads::new(&self.program.shape, self.program.tp);
        Windows { heads, length: self.batch.length }
    }
}

/// Results that a pass computes besides its loss.
pub(super) struct PassRequest<'a, T> {
    /// Accumulated parameter gradients; without them the pass ends with the loss.
    pub gradients: Option<&'a mut [Vec<T>]>,
    /// Factor of the loss: 1 over the step's positions.
    pub share: f64,
    pub teacher: Option<Teacher<'a, T>>,
    /// True if every operation's result is checked for finite values.
    pub checks_finite: bool,
}

/// Collective whose result has not been fetched.
#[derive(Debug)]
struct InFlight {
    /// Destination of the result.
    slot: TrainingSlot,
    /// For a gather, the columns of one rank and of all ranks.
    gathers: Option<[usize; 2]>,
}

#[derive(Debug)]
pub(super) struct Pass<T> {
    pub(super) arch: Arch,
    /// Values of the pass that are complete and still read.
    pub(super) buffers: HashMap<TrainingSlot, Vec<T>>,
    pool: HashMap<usize, Vec<Vec<T>>>,
    /// Collectives in flight, in order.
    in_flight: VecDeque<InFlight>,
    logits: Logits<T>,
    pub(super) scratch: [Vec<T>; 2],
}

impl<T: Real> Default for Pass<T> {
    fn default() -> Self {
        Self {
            arch: Arch::new(),
            buffers: HashMap::new(),
            pool: HashMap::new(),
            in_flight: VecDeque::new(),
            logits: Logits::default(),
            scratch: [Vec::new(), Vec::new()],
        }
    }
}

impl<T: Real> Pass<T> {
    pub fn normed(&mut self, context: &RankContext<'_, T>) -> Result<Vec<T>, TrainingError> {
        self.forward(context, false)?;
        let normed = self.take(context, TrainingSlot::Value(context.program.plan.normed))?;
        self.clear();
        Ok(normed)
    }

    pub fn run(
        &mut self,
        context: &RankContext<'_, T>,
        mut request: PassRequest<'_, T>,
    ) -> Result<BatchLoss, TrainingError> {
        let TrainingProgram { plan, parameter, shape, .. } = context.program;
        self.forward(context, request.checks_finite)?;
        let hidden = shape.hidden as usize;
        let ranks = plan.plan.values[plan.normed.index()].columns as usize / hidden;
        let slot = TrainingSlot::Value(plan.normed);
        let student = self.take(context, slot)?;
        let head = parameter[plan.head.index()];
        let mut seed = match (&request.gradients, plan.seed) {
            (Some(_), Some(_)) => Some(self.buffer(student.len())),
            _ => None,
        };
        let trains_head = plan.trained[plan.head.index()];
        let mut logits = std::mem::take(&mut self.logits);
        let gradients = request.gradients.as_deref_mut().map(|all| Gradients {
            normed: seed.as_deref_mut(),
            head: trains_head.then(|| all[head].as_mut_slice()),
            share: T::from_f64(request.share),
        });
        let normed = LossOperands {
            student: &student,
            head: &context.weights[head],
            teacher: request.teacher,
            hidden,
            ranks,
        };
        let lost = logits.loss(self.arch, &normed, &context.batch.targets, gradients);
        self.logits = logits;
        self.buffers.insert(slot, student);
        if let (Some(id), Some(seed)) = (plan.seed, seed) {
            self.buffers.insert(TrainingSlot::Gradient(id), seed);
        }
        if let Some(gradients) = request.gradients {
            self.release(context.program, plan.forward);
            for (at, operation) in plan.backward.iter().enumerate() {
                self.backward(context, operation, gradients)?;
                self.release(context.program, plan.forward + 1 + at);
            }
        }
        self.clear();
        Ok(lost)
    }

    fn forward(
        &mut self,
        context: &RankContext<'_, T>,
        checks_finite: bool,
    ) -> Result<(), TrainingError> {
        let plan = &context.program.plan;
        for (at, operation) in plan.plan.operations[..plan.forward].iter().enumerate() {
            self.operation(context, operation)?;
            if checks_finite {
                let slot = TrainingSlot::Value(operation.writes[0]);
                self.fetch(context, slot)?;
                if self.buffers.get(&slot).is_some_and(|value| !all_finite(value)) {
                    return Err(TrainingError::NotFinite(operation.name.clone()));
                }
            }
            self.release(context.program, at);
        }
        Ok(())
    }

    /// Returns a buffer with arbitrary contents.
    pub(super) fn buffer(&mut self, numbers: usize) -> Vec<T> {
        let pooled = self.pool.get_mut(&numbers).and_then(Vec::pop);
        pooled.unwrap_or_else(|| vec![T::ZERO; numbers])
    }

    fn recycle(&mut self, buffer: Vec<T>) {
        if !buffer.is_empty() {
            self.pool.entry(buffer.len()).or_default().push(buffer);
        }
    }

    /// Frees the buffers whose last read was in this step.
    fn release(&mut self, program: &TrainingProgram, step: usize) {
        for slot in &program.last[step] {
            if let Some(buffer) = self.buffers.remove(slot) {
                self.recycle(buffer);
            }
        }
    }

    fn clear(&mut self) {
        for (_, buffer) in std::mem::take(&mut self.buffers) {
            self.recycle(buffer);
        }
    }

    pub(super) fn fetch(
        &mut self,
        context: &RankContext<'_, T>,
        slot: TrainingSlot,
    ) -> Result<(), TrainingError> {
        while !self.buffers.contains_key(&slot) {
            let (Some(next), Some(group)) = (self.in_flight.pop_front(), context.group) else {
                return Err(RankFailure(format!("{slot:?} was read before it was written")).into());
            };
            let result = group.take(context.rank)?.buffer;
            let result = match next.gathers {
                Some([own, all]) => side_by_side(result, own, all),
                None => result,
            };
            self.buffers.insert(next.slot, result);
        }
        Ok(())
    }

    /// Moves a buffer out; the caller must put it back.
    fn take(
        &mut self,
        context: &RankContext<'_, T>,
        slot: TrainingSlot,
    ) -> Result<Vec<T>, TrainingError> {
        self.fetch(context, slot)?;
        Ok(self.buffers.remove(&slot).unwrap_or_default())
    }

    pub(super) fn all_reduce(
        &mut self,
        context: &RankContext<'_, T>,
        from: TrainingSlot,
        to: TrainingSlot,
    ) -> Result<(), TrainingError> {
        self.exchange(context, Exchange::AllReduce, from, InFlight { slot: to, gathers: None })
    }

    fn exchange(
        &mut self,
        context: &RankContext<'_, T>,
        exchange: Exchange,
        from: TrainingSlot,
        to: InFlight,
    ) -> Result<(), TrainingError> {
        let part = self.take(context, from)?;
        let mut sent = self.buffer(part.len());
        sent.copy_from_slice(&part);
        self.buffers.insert(from, part);
        let group = context.group.ok_or_else(|| RankFailure("one rank reduces nothing".into()))?;
        let bytes = size_of_val(sent.as_slice()) as u64;
        group.give(context.rank, exchange, bytes, sent)?;
        self.in_flight.push_back(to);
        Ok(())
    }

    fn operation(
        &mut self,
        context: &RankContext<'_, T>,
        operation: &Operation,
    ) -> Result<(), TrainingError> {
        let value = |at: usize| TrainingSlot::Value(operation.reads[at]);
        let to = TrainingSlot::Value(operation.writes[0]);
        let width = || context.program.numbers_per_row(operation.writes[0]);
        match operation.kind {
            Kind::AllReduce => self.all_reduce(context, value(0), to),
            Kind::AllGather => {
                let read = &context.program.plan.plan.values[operation.reads[0].index()];
                let to = InFlight { slot: to, gathers: Some([read.columns as usize, width()]) };
                self.exchange(context, Exchange::AllGather, value(0), to)
            }
            Kind::Embed => {
                let (weight, width) = (weight_of(context, operation), width());
                let mut y = self.buffer(context.batch.tokens.len() * width);
                for (y, token) in y.chunks_exact_mut(width).zip(&context.batch.tokens) {
                    y.copy_from_slice(&weight[*token as usize * width..][..width]);
                }
                self.buffers.insert(to, y);
                Ok(())
            }
            _ => self.compute(context, operation),
        }
    }

    /// Operation on values of this rank.
    fn compute(
        &mut self,
        context: &RankContext<'_, T>,
        operation: &Operation,
    ) -> Result<(), TrainingError> {
        let TrainingProgram { plan, shape, tp, .. } = context.program;
        let value = |at: usize| TrainingSlot::Value(operation.reads[at]);
        let to = TrainingSlot::Value(operation.writes[0]);
        let rows = context.batch.tokens.len();
        let columns = |at: usize| plan.plan.values[operation.reads[at].index()].columns as usize;
        let width = context.program.numbers_per_row(operation.writes[0]);
        let weight = weight_of(context, operation);
        let mut y = self.buffer(rows * width);
        for at in 0..operation.reads.len() {
            self.fetch(context, value(at))?;
        }
        let mut keys = match operation.kind {
            Kind::RopeAppend | Kind::BiasRopeAppend | Kind::NormRopeAppend => {
                let heads = Heads::new(shape, *tp);
                self.buffer(rows * 2 * heads.kv * heads.dim)
            }
            _ => Vec::new(),
        };
        let layer = TrainingSlot::Keys(operation.layer.unwrap_or_default());
        let read = |at: usize| self.buffers[&value(at)].as_slice();
        let eps = T::from_f64(shape.norm_eps);
        match operation.kind {
            Kind::Norm => T::norm(self.arch, Norm { x: read(0), weight, eps, y: &mut y }),
            Kind::Add => combine(&mut y, [read(0), read(1)], |a, b| a + b),
            Kind::AddMean => {
                let share = T::ONE / T::from_f64(f64::from(*tp));
                combine(&mut y, [read(0), read(1)], |residual, output| residual * share + output);
            }
            Kind::MeanShare => {
                let share = T::ONE / T::from_f64(f64::from(*tp));
                combine(&mut y, [read(0), read(0)], |x, _| x * share);
            }
            Kind::Narrow => {
                for (y, x) in y.chunks_exact_mut(width).zip(read(0).chunks_exact(columns(0))) {
                    y.copy_from_slice(&x[..width]);
                }
            }
            Kind::Join { root } => {
                let scale = if root { T::from_f64(f64::from(*tp).sqrt()) } else { T::ONE };
                combine(&mut y, [read(0), read(1)], |x, own| own * scale + x);
                if operation.reads.len() == 4 {
                    // the sum of all parts replaces the rank's own
                    for ((y, sum), part) in y.iter_mut().zip(read(2)).zip(read(3)) {
                        *y += *sum - *part;
                    }
                } else if operation.reads.len() == 3 {
                    let rows = y.chunks_exact_mut(width).zip(read(0).chunks_exact(width));
                    for ((y, x), sum) in rows.zip(read(2).chunks_exact(columns(2))) {
                        combine(&mut y[..sum.len()], [x, sum], |x, sum| x + sum);
                    }
                }
            }
            Kind::MatMul => {
                let w = MatrixView::rows(weight, 0, columns(0)).transposed();
                let x = MatrixView::rows(read(0), 0, columns(0));
                gemm([rows, width, columns(0)], [x, w], MatrixViewMut::rows(&mut y, 0, width));
            }
            Kind::RopeAppend | Kind::BiasRopeAppend | Kind::NormRopeAppend => {
                let before = match operation.kind {
                    Kind::BiasRopeAppend => HeadPreprocessing::Bias(weight),
                    Kind::NormRopeAppend => HeadPreprocessing::Norm(weight, eps),
                    _ => HeadPreprocessing::Nothing,
                };
                let x = (read(0), columns(0));
                context.windows().rotate(context.rotation, before, x, &mut y, &mut keys);
            }
            Kind::Attend => {
                let [scores, _] = &mut self.scratch;
                let (queries, keys) =
                    (self.buffers[&value(0)].as_slice(), self.buffers[&layer].as_slice());
                context.windows().attend(self.arch, scores, queries, keys, &mut y);
            }
            Kind::SiluMul { offset } => {
                let gated = Gated { x: read(0), columns: columns(0), offset: offset as usize, width };
                T::silu_mul(self.arch, SiluMul { of: gated, y: &mut y });
            }
            Kind::Router => {
                let Some(router) = router(context, operation, columns(0)) else { return Ok(()) };
                router.choices(read(0), &mut y);
            }
            Kind::Experts => {
                experts(context, operation, columns(0)).forward(self.arch, read(0), read(1), &mut y);
            }
            _ => return Err(RankFailure(format!("{} is in no training plan", operation.name)).into()),
        }
        if !keys.is_empty() {
            self.buffers.insert(layer, keys);
        }
        self.buffers.insert(to, y);
        Ok(())
    }
}

/// Weight of an operation on this rank; empty if it has none.
pub(super) fn weight_of<'a, T>(context: &RankContext<'a, T>, operation: &Operation) -> &'a [T] {
    weights(context, operation)[0]
}

/// Router of an operation whose rows are `hidden` wide; `None` in a dense model.
pub(super) fn router<'a, T: Real>(
    context: &RankContext<'a, T>,
    operation: &Operation,
    hidden: usize,
) -> Option<Router<'a, T>> {
    let experts = context.program.shape.experts.as_ref()?;
    let [weight, bias] = weights(context, operation);
    let (routing, top_k) = (&experts.routing, experts.top_k as usize);
    Some(Router { routing, weight, bias, hidden, top_k })
}

/// Experts of an operation whose rows are `hidden` wide.
pub(super) fn experts<'a, T: Real>(
    context: &RankContext<'a, T>,
    operation: &Operation,
    hidden: usize,
) -> TrainedExperts<'a, T> {
    let [gate_up, down] = weights(context, operation);
    let experts = context.program.shape.experts;
    let (count, top_k) = experts.map_or((1, 1), |of| (of.count as usize, of.top_k as usize));
    TrainedExperts { gate_up, down, count, hidden, top_k }
}

/// First two weights of an operation; empty if it has fewer.
fn weights<'a, T>(context: &RankContext<'a, T>, operation: &Operation) -> [&'a [T]; 2] {
    let mut all = operation
        .weights()
        .map(|weight| context.weights[context.program.parameter[weight.index()]].as_slice());
    [all.next().unwrap_or_default(), all.next().unwrap_or_default()]
}

pub(super) fn combine<T: Real>(y: &mut [T], [a, b]: [&[T]; 2], join: impl Fn(T, T) -> T) {
    for ((y, a), b) in y.iter_mut().zip(a).zip(b) {
        *y = join(*a, *b);
    }
}

/// Approximate memory for the logits of one slice of rows.
const LOGIT_BYTES: usize = 32 << 20;

struct LossOperands<'a, T> {
    student: &'a [T],
    head: &'a [T],
    teacher: Option<Teacher<'a, T>>,
    hidden: usize,
    /// Ranks whose normed rows `student` has side by side, each for its part of the vocabulary; 1 if they agree.
    ranks: usize,
}

#[derive(Clone, Copy)]
pub(super) struct Teacher<'a, T> {
    pub normed: &'a [T],
    pub head: &'a [T],
    pub weight: f64,
}

/// Gradient outputs: the student's final norm output and, if trained, the head (accumulated).
struct Gradients<'a, T> {
    normed: Option<&'a mut [T]>,
    head: Option<&'a mut [T]>,
    /// Weight of a token's loss: one over the tokens of the step.
    share: T,
}

#[derive(Debug, Default)]
struct Logits<T> {
    student: Vec<T>,
    teacher: Vec<T>,
}

impl<T: Real> Logits<T> {
    /// Loss of windows and its gradient: cross entropy of the following tokens plus, with a teacher, the divergence of
    /// the student's distribution from the teacher's.
    ///
    /// The head is applied to some rows at a time and their logits become gradients in place, so logits take
    /// [`LOGIT_BYTES`] for any batch and vocabulary. Each row costs three products of the head's size, and one more
    /// with a teacher. The gradient of a row's logits is `(p - [token]) + weight x (p - t)`, divided by the tokens of
    /// the step, with student probabilities p and teacher probabilities t.
    fn loss(
        &mut self,
        arch: Arch,
        of: &LossOperands<'_, T>,
        targets: &[u32],
        mut gradients: Option<Gradients<'_, T>>,
    ) -> BatchLoss {
        let LossOperands { hidden, ranks, .. } = *of;
        let vocab = of.head.len() / hidden;
        let together = (LOGIT_BYTES / (vocab * size_of::<T>())).clamp(16, 512);
        let mut lost = BatchLoss::default();
        for (at, targets) in targets.chunks(together).enumerate() {
            let (first, rows) = (at * together * hidden, targets.len());
            // of each rank: its first column among the student's, and its first logit
            let each = vocab / ranks;
            let stride = ranks * hidden;
            let parts = || (0..ranks).map(move |rank| (ranks * first + rank * hidden, rank * each));
            self.student.resize(rows * vocab, T::ZERO);
            for (x, part) in parts() {
                let head = MatrixView::rows(of.head, part * hidden, hidden).transposed();
                let x = MatrixView::rows(of.student, x, stride);
                gemm(
                    [rows, each, hidden],
                    [x, head],
                    MatrixViewMut::rows(&mut self.student, part, vocab),
                );
            }
            if let Some(teacher) = of.teacher {
                self.teacher.resize(rows * vocab, T::ZERO);
                let head = MatrixView::rows(teacher.head, 0, hidden).transposed();
                let x = MatrixView::rows(teacher.normed, first, hidden);
                gemm([rows, vocab, hidden], [x, head], MatrixViewMut::rows(&mut self.teacher, 0, vocab));
            }
            let share = gradients.as_ref().map_or(T::ZERO, |gradients| gradients.share);
            lost += T::loss(
                arch,
                LossRows {
                    student: &mut self.student,
                    teacher: of
                        .teacher
                        .map(|teacher| (&mut self.teacher[..], T::from_f64(teacher.weight))),
                    targets,
                    share,
                },
            );
            let Some(gradients) = &mut gradients else { continue };
            for (x, part) in parts() {
                let logits = MatrixView::rows(&self.student, part, vocab);
                if let Some(normed) = &mut gradients.normed {
                    let head = MatrixView::rows(of.head, part * hidden, hidden);
                    gemm([rows, hidden, each], [logits, head], MatrixViewMut::rows(normed, x, stride));
                }
                if let Some(head) = &mut gradients.head {
                    let x = MatrixView::rows(of.student, x, stride);
                    let to = MatrixViewMut::rows(head, part * hidden, hidden);
                    gemm_onto([each, hidden, rows], [logits.transposed(), x], to);
                }
            }
        }
        lost
    }
}
