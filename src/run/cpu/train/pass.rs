//! One rank's pass over windows: forward operations, loss, and derivatives ([`super::derivatives`]). Buffers come
//! from a pool. Collectives are awaited only when their result is read, so they overlap with compute.

use std::collections::{HashMap, VecDeque};

use arithmetic::{
    Gated, LossRows, Lost, Norm, Real, SiluMul, View, ViewMut, all_finite, gemm, gemm_onto,
};
use pulp::Arch;

use super::attention::Windows;
use super::experts::{Experts, Router};
use super::program::{Program, Slot};
use crate::comm::{Broken, Exchange, Group};
use crate::cpu::attention::{Before, Heads, RopeTable};
use crate::cpu::rank::side_by_side;
use plan::{Kind, Operation};

#[derive(Debug)]
pub(super) enum Stopped {
    Broken(Broken),
    /// First forward operation whose result is not finite.
    NotFinite(String),
}

impl From<Broken> for Stopped {
    fn from(broken: Broken) -> Self {
        Self::Broken(broken)
    }
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
    pub fn of(windows: &[&[u32]], length: usize) -> Self {
        let mut batch = Self { length, ..Self::default() };
        for window in windows {
            batch.tokens.extend_from_slice(&window[..length]);
            batch.targets.extend_from_slice(&window[1..=length]);
        }
        batch
    }
}

pub(super) struct Given<'a, T> {
    pub program: &'a Program,
    pub weights: &'a [Vec<T>],
    pub rank: usize,
    pub group: Option<&'a Group<T>>,
    pub rotation: &'a RopeTable<T>,
}

pub(super) struct Wanted<'a, T> {
    /// Accumulated parameter gradients; without them the pass ends with the loss.
    pub gradients: Option<&'a mut [Vec<T>]>,
    pub share: f64,
    pub teacher: Option<Teacher<'a, T>>,
    /// True if every operation's result is checked for finite values.
    pub looks: bool,
}

#[derive(Debug)]
pub(super) struct Pass<T> {
    pub(super) arch: Arch,
    pub(super) there: HashMap<Slot, Vec<T>>,
    pool: HashMap<usize, Vec<Vec<T>>>,
    /// Results of collectives in flight, in order; of gathers, with a rank's and all ranks' columns.
    awaited: VecDeque<(Slot, Option<[usize; 2]>)>,
    logits: Logits<T>,
    pub(super) scratch: [Vec<T>; 2],
}

impl<T: Real> Default for Pass<T> {
    fn default() -> Self {
        Self {
            arch: Arch::new(),
            there: HashMap::new(),
            pool: HashMap::new(),
            awaited: VecDeque::new(),
            logits: Logits::default(),
            scratch: [Vec::new(), Vec::new()],
        }
    }
}

impl<T: Real> Pass<T> {
    pub fn normed(&mut self, given: &Given<'_, T>, batch: &Batch) -> Result<Vec<T>, Stopped> {
        self.forward(given, batch, false)?;
        let normed = self.take(given, Slot::Value(given.program.plan.normed.index()))?;
        self.clear();
        Ok(normed)
    }

    pub fn run(
        &mut self,
        given: &Given<'_, T>,
        batch: &Batch,
        mut wanted: Wanted<'_, T>,
    ) -> Result<Lost, Stopped> {
        let Program { plan, parameter, shape, .. } = given.program;
        self.forward(given, batch, wanted.looks)?;
        let hidden = shape.hidden as usize;
        let ranks = plan.plan.values[plan.normed.index()].columns as usize / hidden;
        let slot = Slot::Value(plan.normed.index());
        let student = self.take(given, slot)?;
        let head = parameter[plan.head.index()];
        let mut seed = match (&wanted.gradients, plan.seed) {
            (Some(_), Some(_)) => Some(self.fresh(student.len())),
            _ => None,
        };
        let trains_head = plan.trained[plan.head.index()];
        let mut logits = std::mem::take(&mut self.logits);
        let gradients = wanted.gradients.as_deref_mut().map(|all| Gradients {
            normed: seed.as_deref_mut(),
            head: trains_head.then(|| all[head].as_mut_slice()),
            share: T::of(wanted.share),
        });
        let of = Normed {
            student: &student,
            head: &given.weights[head],
            teacher: wanted.teacher,
            hidden,
            ranks,
        };
        let lost = logits.loss(self.arch, &of, &batch.targets, gradients);
        self.logits = logits;
        self.there.insert(slot, student);
        if let (Some(id), Some(seed)) = (plan.seed, seed) {
            self.there.insert(Slot::Gradient(id.index()), seed);
        }
        if let Some(gradients) = wanted.gradients {
            self.release(given.program, plan.forward);
            for (at, operation) in plan.backward.iter().enumerate() {
                self.backward(given, batch, operation, gradients)?;
                self.release(given.program, plan.forward + 1 + at);
            }
        }
        self.clear();
        Ok(lost)
    }

    fn forward(&mut self, given: &Given<'_, T>, batch: &Batch, looks: bool) -> Result<(), Stopped> {
        let plan = &given.program.plan;
        for (at, operation) in plan.plan.operations[..plan.forward].iter().enumerate() {
            self.operation(given, batch, operation)?;
            if looks {
                let slot = Slot::Value(operation.writes[0].index());
                self.fetch(given, slot)?;
                if self.there.get(&slot).is_some_and(|value| !all_finite(value)) {
                    return Err(Stopped::NotFinite(operation.name.clone()));
                }
            }
            self.release(given.program, at);
        }
        Ok(())
    }

    /// Returns a buffer with arbitrary contents.
    pub(super) fn fresh(&mut self, numbers: usize) -> Vec<T> {
        let pooled = self.pool.get_mut(&numbers).and_then(Vec::pop);
        pooled.unwrap_or_else(|| vec![T::ZERO; numbers])
    }

    fn done(&mut self, buffer: Vec<T>) {
        if !buffer.is_empty() {
            self.pool.entry(buffer.len()).or_default().push(buffer);
        }
    }

    /// Frees the buffers whose last read was in this step.
    fn release(&mut self, program: &Program, step: usize) {
        for slot in &program.last[step] {
            if let Some(buffer) = self.there.remove(slot) {
                self.done(buffer);
            }
        }
    }

    fn clear(&mut self) {
        for (_, buffer) in std::mem::take(&mut self.there) {
            self.done(buffer);
        }
    }

    pub(super) fn fetch(&mut self, given: &Given<'_, T>, slot: Slot) -> Result<(), Stopped> {
        while !self.there.contains_key(&slot) {
            let (Some((awaited, gathers)), Some(group)) = (self.awaited.pop_front(), given.group) else {
                return Err(Broken(format!("{slot:?} was read before it was written")).into());
            };
            let result = group.take(given.rank)?.buffer;
            let result = match gathers {
                Some([own, all]) => side_by_side(result, own, all),
                None => result,
            };
            self.there.insert(awaited, result);
        }
        Ok(())
    }

    /// Moves a buffer out; the caller must put it back.
    fn take(&mut self, given: &Given<'_, T>, slot: Slot) -> Result<Vec<T>, Stopped> {
        self.fetch(given, slot)?;
        Ok(self.there.remove(&slot).unwrap_or_default())
    }

    pub(super) fn all_reduce(
        &mut self,
        given: &Given<'_, T>,
        from: Slot,
        to: Slot,
    ) -> Result<(), Stopped> {
        self.exchange(given, Exchange::AllReduce, from, (to, None))
    }

    fn exchange(
        &mut self,
        given: &Given<'_, T>,
        exchange: Exchange,
        from: Slot,
        to: (Slot, Option<[usize; 2]>),
    ) -> Result<(), Stopped> {
        let part = self.take(given, from)?;
        let mut sent = self.fresh(part.len());
        sent.copy_from_slice(&part);
        self.there.insert(from, part);
        let group = given.group.ok_or_else(|| Broken("one rank reduces nothing".into()))?;
        let bytes = size_of_val(sent.as_slice()) as u64;
        group.give(given.rank, exchange, bytes, sent)?;
        self.awaited.push_back(to);
        Ok(())
    }

    pub(super) fn windows(given: &Given<'_, T>, batch: &Batch) -> Windows {
        let Program { shape, tp, .. } = given.program;
        Windows { heads: Heads::of(shape, *tp), length: batch.length }
    }

    fn operation(
        &mut self,
        given: &Given<'_, T>,
        batch: &Batch,
        operation: &Operation,
    ) -> Result<(), Stopped> {
        let Program { plan, parameter, shape, tp, .. } = given.program;
        let value = |at: usize| Slot::Value(operation.reads[at].index());
        let to = Slot::Value(operation.writes[0].index());
        if operation.kind == Kind::AllReduce {
            return self.all_reduce(given, value(0), to);
        }
        let rows = batch.tokens.len();
        let columns = |at: usize| plan.plan.values[operation.reads[at].index()].columns as usize;
        let width = given.program.numbers_per_row(operation.writes[0]);
        if operation.kind == Kind::AllGather {
            let gathers = Some([columns(0), width]);
            return self.exchange(given, Exchange::AllGather, value(0), (to, gathers));
        }
        let weight: &[T] = match operation.weight {
            Some(weight) => &given.weights[parameter[weight.index()]],
            None => &[],
        };
        let mut y = self.fresh(rows * width);
        if operation.kind == Kind::Embed {
            for (y, token) in y.chunks_exact_mut(width).zip(&batch.tokens) {
                y.copy_from_slice(&weight[*token as usize * width..][..width]);
            }
            self.there.insert(to, y);
            return Ok(());
        }
        for at in 0..operation.reads.len() {
            self.fetch(given, value(at))?;
        }
        let mut keys = match operation.kind {
            Kind::RopeAppend | Kind::BiasRopeAppend | Kind::NormRopeAppend => {
                let heads = Heads::of(shape, *tp);
                self.fresh(rows * 2 * heads.kv * heads.dim)
            }
            _ => Vec::new(),
        };
        let layer = Slot::Keys(operation.layer.unwrap_or_default());
        let read = |at: usize| self.there[&value(at)].as_slice();
        let eps = T::of(shape.norm_eps);
        match operation.kind {
            Kind::Norm => T::norm(self.arch, Norm { x: read(0), weight, eps, y: &mut y }),
            Kind::Add => combine(&mut y, [read(0), read(1)], |a, b| a + b),
            Kind::AddMean => {
                let share = T::ONE / T::of(f64::from(*tp));
                combine(&mut y, [read(0), read(1)], |residual, output| residual * share + output);
            }
            Kind::MeanShare => {
                let share = T::ONE / T::of(f64::from(*tp));
                combine(&mut y, [read(0), read(0)], |x, _| x * share);
            }
            Kind::Narrow => {
                for (y, x) in y.chunks_exact_mut(width).zip(read(0).chunks_exact(columns(0))) {
                    y.copy_from_slice(&x[..width]);
                }
            }
            Kind::Join { root } => {
                let scale = if root { T::of(f64::from(*tp).sqrt()) } else { T::ONE };
                combine(&mut y, [read(0), read(1)], |x, own| own * scale + x);
                if operation.reads.len() == 4 {
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
                let w = View::rows(weight, 0, columns(0)).transposed();
                let x = View::rows(read(0), 0, columns(0));
                gemm([rows, width, columns(0)], [x, w], ViewMut::rows(&mut y, 0, width));
            }
            Kind::RopeAppend | Kind::BiasRopeAppend | Kind::NormRopeAppend => {
                let before = match operation.kind {
                    Kind::BiasRopeAppend => Before::Bias(weight),
                    Kind::NormRopeAppend => Before::Norm(weight, eps),
                    _ => Before::Nothing,
                };
                let x = (read(0), columns(0));
                Self::windows(given, batch).rotate(given.rotation, before, x, &mut y, &mut keys);
            }
            Kind::Attend => {
                let [scores, _] = &mut self.scratch;
                let (queries, keys) = (self.there[&value(0)].as_slice(), self.there[&layer].as_slice());
                Self::windows(given, batch).attend(self.arch, scores, queries, keys, &mut y);
            }
            Kind::SiluMul { offset } => {
                let of = Gated { x: read(0), columns: columns(0), offset: offset as usize, width };
                T::silu_mul(self.arch, SiluMul { of, y: &mut y });
            }
            Kind::Router => {
                let Some(router) = router(given, operation, columns(0)) else { return Ok(()) };
                router.choices(read(0), &mut y);
            }
            Kind::Experts => {
                experts(given, operation, columns(0)).forward(self.arch, read(0), read(1), &mut y);
            }
            _ => return Err(Broken(format!("{} is in no training plan", operation.name)).into()),
        }
        if !keys.is_empty() {
            self.there.insert(layer, keys);
        }
        self.there.insert(to, y);
        Ok(())
    }
}

/// Router of an operation whose rows are `hidden` wide; `None` in a dense model.
pub(super) fn router<'a, T: Real>(
    given: &Given<'a, T>,
    of: &Operation,
    hidden: usize,
) -> Option<Router<'a, T>> {
    let experts = given.program.shape.experts.as_ref()?;
    let [weight, bias] = weights(given, of);
    let (routing, top_k) = (&experts.routing, experts.top_k as usize);
    Some(Router { routing, weight, bias, hidden, top_k })
}

/// Experts of an operation whose rows are `hidden` wide.
pub(super) fn experts<'a, T: Real>(
    given: &Given<'a, T>,
    of: &Operation,
    hidden: usize,
) -> Experts<'a, T> {
    let [gate_up, down] = weights(given, of);
    let sizes = given.program.shape.experts.as_ref().map(|of| (of.count as usize, of.top_k as usize));
    let (count, top_k) = sizes.unwrap_or((1, 1));
    Experts { gate_up, down, count, hidden, top_k }
}

/// First two weights of an operation; empty if it has fewer.
fn weights<'a, T: Real>(given: &Given<'a, T>, of: &Operation) -> [&'a [T]; 2] {
    let mut all =
        of.weights().map(|weight| given.weights[given.program.parameter[weight.index()]].as_slice());
    [all.next().unwrap_or_default(), all.next().unwrap_or_default()]
}

pub(super) fn combine<T: Real>(y: &mut [T], [a, b]: [&[T]; 2], of: impl Fn(T, T) -> T) {
    for ((y, a), b) in y.iter_mut().zip(a).zip(b) {
        *y = of(*a, *b);
    }
}

/// Approximate memory for the logits of one slice of rows.
const LOGIT_BYTES: usize = 32 << 20;

struct Normed<'a, T> {
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
        of: &Normed<'_, T>,
        targets: &[u32],
        mut gradients: Option<Gradients<'_, T>>,
    ) -> Lost {
        let Normed { hidden, ranks, .. } = *of;
        let vocab = of.head.len() / hidden;
        let together = (LOGIT_BYTES / (vocab * size_of::<T>())).clamp(16, 512);
        let mut lost = Lost::default();
        for (at, targets) in targets.chunks(together).enumerate() {
            let (first, rows) = (at * together * hidden, targets.len());
            // of each rank: its first column among the student's, and its first logit
            let each = vocab / ranks;
            let stride = ranks * hidden;
            let parts = || (0..ranks).map(move |rank| (ranks * first + rank * hidden, rank * each));
            self.student.resize(rows * vocab, T::ZERO);
            for (x, part) in parts() {
                let head = View::rows(of.head, part * hidden, hidden).transposed();
                let x = View::rows(of.student, x, stride);
                gemm([rows, each, hidden], [x, head], ViewMut::rows(&mut self.student, part, vocab));
            }
            if let Some(teacher) = of.teacher {
                self.teacher.resize(rows * vocab, T::ZERO);
                let head = View::rows(teacher.head, 0, hidden).transposed();
                let x = View::rows(teacher.normed, first, hidden);
                gemm([rows, vocab, hidden], [x, head], ViewMut::rows(&mut self.teacher, 0, vocab));
            }
            let share = gradients.as_ref().map_or(T::ZERO, |gradients| gradients.share);
            lost += T::loss(
                arch,
                LossRows {
                    student: &mut self.student,
                    teacher: of.teacher.map(|teacher| (&mut self.teacher[..], T::of(teacher.weight))),
                    targets,
                    share,
                },
            );
            let Some(gradients) = &mut gradients else { continue };
            for (x, part) in parts() {
                let logits = View::rows(&self.student, part, vocab);
                if let Some(normed) = &mut gradients.normed {
                    let head = View::rows(of.head, part * hidden, hidden);
                    gemm([rows, hidden, each], [logits, head], ViewMut::rows(normed, x, stride));
                }
                if let Some(head) = &mut gradients.head {
                    let x = View::rows(of.student, x, stride);
                    let operands = [logits.transposed(), x];
                    gemm_onto(
                        [each, hidden, rows],
                        operands,
                        ViewMut::rows(head, part * hidden, hidden),
                    );
                }
            }
        }
        lost
    }
}
