//! Building blocks of operation times: clocks, segments of a step bracketed by events, and stamps of kernels.
//!
//! Kernels write their own time stamps ([`Stamps`]). CUDA events are used only where they prevent no early start:
//! around collectives on their own stream. `--recorder events` also places them around modules on the compute stream,
//! which prevents early starts between them; the record states the cost.

pub(super) mod clock;
pub(super) mod collectives;

pub use clock::{RoundTrip, Tick, Tie, Timeline, rank_tie};

use std::collections::HashMap;
use std::time::Duration;

use crate::cuda::kernels::{KernelCall, Kernels};
use crate::cuda::launches::Call;
use crate::cuda::schedule::{Item, Place, Schedule, StreamId};
use crate::cuda::timing::clock::median_us;
use base::error::Result;
use machine::driver::{DevicePtr, Gpu, Launch, Memory, Stream, arguments};
use plan::{Lane, Operation, Plan};
use trace::OperationInfo;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Skeleton {
    pub lanes: Vec<Lane>,
    /// Operations whose results each operation reads or awaits. Excludes the previous operation of the lane
    /// unless it is read.
    pub reads_from: Vec<Vec<u32>>,
}

impl Skeleton {
    pub fn of(plan: &Plan) -> Self {
        let writers = plan.writers();
        let reads_from = plan.operations.iter().map(|operation| {
            let read = operation.reads.iter().filter_map(|value| writers[value.index()]);
            let mut from: Vec<u32> =
                read.chain(operation.after.iter().copied()).map(|operation| operation.0).collect();
            from.sort_unstable();
            from.dedup();
            from
        });
        Self {
            lanes: plan.operations.iter().map(|operation| operation.lane).collect(),
            reads_from: reads_from.collect(),
        }
    }
}

/// Ready, start and end time of an operation (ns since the start of the step).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OperationTime {
    /// Time when all inputs were complete.
    pub ready_ns: i64,
    /// Start, after waiting for the lane.
    pub start_ns: i64,
    pub end_ns: i64,
}

/// Consecutive operations of one stream: the stream does not wait within them, and no other stream waits for
/// only some of them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Part {
    /// Operations in plan order.
    pub operations: Vec<u32>,
    pub stream: Lane,
    /// Previous part on the stream, whose end is this part's start; `None` if the stream waits in between.
    pub follows: Option<usize>,
}

/// Parts of a step on one rank, in enqueue order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Parts {
    /// All parts; each operation of the plan is in exactly one.
    pub parts: Vec<Part>,
    /// Part of each operation.
    of: Vec<u32>,
}

/// True if two operations of one stream may be timed as one: same module, and not a collective.
fn belong_together(a: &Operation, b: &Operation) -> bool {
    let what = |o: &Operation| (o.module, o.layer, o.group, o.kind.is_collective());
    what(a) == what(b) && !a.kind.is_collective()
}

impl Parts {
    /// Divides `plan` into parts, as `schedule` executes it on its first rank.
    pub fn of(plan: &Plan, schedule: &Schedule) -> Self {
        let mut parts: Vec<Part> = Vec::new();
        let mut of = vec![0; plan.operations.len()];
        // last part of each stream since its last wait, and whether more operations may join it
        let mut last: HashMap<StreamId, (usize, bool)> = HashMap::new();
        for item in &schedule.items {
            match *item {
                Item::Wait { stream, .. } => {
                    last.remove(&stream);
                }
                Item::Record { stream, .. } => {
                    last.entry(stream).and_modify(|(_, is_open)| *is_open = false);
                }
                Item::Launch { stream, operation } if stream.rank == 0 => {
                    let before = last.get(&stream).copied();
                    let joins = |&(part, is_open): &(usize, bool)| {
                        let first = parts[part].operations[0] as usize;
                        let (first, this) =
                            (&plan.operations[first], &plan.operations[operation as usize]);
                        is_open && belong_together(first, this)
                    };
                    let part = match before.filter(joins) {
                        Some((part, _)) => part,
                        None => {
                            let follows = before.map(|(part, _)| part);
                            parts.push(Part { operations: Vec::new(), stream: stream.lane, follows });
                            parts.len() - 1
                        }
                    };
                    parts[part].operations.push(operation);
                    of[operation as usize] = part as u32;
                    last.insert(stream, (part, true));
                }
                Item::Launch { .. } | Item::Mark { .. } => {}
            }
        }
        Self { parts, of }
    }

    /// Lanes and dependencies of the parts.
    pub fn skeleton(&self, plan: &Plan) -> Skeleton {
        let each = Skeleton::of(plan);
        let reads_from = |(at, part): (usize, &Part)| {
            let read =
                part.operations.iter().flat_map(|operation| &each.reads_from[*operation as usize]);
            let mut from: Vec<u32> = read.map(|operation| self.of[*operation as usize]).collect();
            from.retain(|from| *from as usize != at);
            from.sort_unstable();
            from.dedup();
            from
        };
        Skeleton {
            lanes: self.parts.iter().map(|part| each.lanes[part.operations[0] as usize]).collect(),
            reads_from: self.parts.iter().enumerate().map(reads_from).collect(),
        }
    }

    /// Operations table of the parts, starting at index `base`. `operations` is the table of single
    /// operations, with the plan's operations starting at index `first`. A part with several operations is
    /// named after the scope of its first operation.
    pub fn table(&self, operations: &[OperationInfo], first: u32, base: u32) -> Vec<OperationInfo> {
        let of = |operation: u32| &operations[(first + operation) as usize];
        let mut seen: HashMap<String, u32> = HashMap::new();
        let mut info = |(at, part): (usize, &Part)| {
            let all = || part.operations.iter().map(|operation| of(*operation));
            let mut info = of(part.operations[0]).clone();
            if part.operations.len() > 1 {
                let scope = info.name.rsplit_once('/').map_or(info.name.as_str(), |(scope, _)| scope);
                let times = seen.entry(scope.to_owned()).and_modify(|times| *times += 1).or_insert(1);
                info.name = if *times == 1 { scope.to_owned() } else { format!("{scope}:{times}") };
                info.kind = "module".into();
                info.shape = String::new();
                info.origins = all().flat_map(|info| info.origins.iter().cloned()).collect();
                info.cost = all().skip(1).fold(info.cost, |sum, info| sum + info.cost);
            }
            let waits = all().flat_map(|info| &info.waits_for).map(|on| self.of[(on - first) as usize]);
            let mut waits: Vec<u32> = waits.filter(|on| *on as usize != at).collect();
            waits.sort_unstable();
            waits.dedup();
            info.waits_for = waits.into_iter().map(|on| base + on).collect();
            info
        };
        self.parts.iter().enumerate().map(&mut info).collect()
    }
}

/// Timing event of one rank: index into the step's events.
pub type Mark = u32;

/// Timing events of a step. If a part directly follows another on its stream without a wait, they share the
/// event in between.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Marks {
    start: Option<Mark>,
    /// Event before each operation of the plan.
    before: Vec<Option<Mark>>,
    after: Vec<Option<Mark>>,
    /// Start and end event of each part.
    of: Vec<Option<(Mark, Mark)>>,
    count: Mark,
}

impl Marks {
    /// Places events around the parts selected by `is_timed`, and at the start of the step if `starts`.
    pub fn around(parts: &Parts, starts: bool, is_timed: impl Fn(&Part) -> bool) -> Self {
        let operations = parts.parts.iter().map(|part| part.operations.len()).sum();
        let mut marks = Self {
            start: starts.then_some(0),
            before: vec![None; operations],
            after: vec![None; operations],
            of: Vec::with_capacity(parts.parts.len()),
            count: u32::from(starts),
        };
        for part in &parts.parts {
            let (Some(first), Some(last)) = (part.operations.first(), part.operations.last()) else {
                continue;
            };
            if !is_timed(part) {
                marks.of.push(None);
                continue;
            }
            let before = part.follows.and_then(|before| marks.of[before]);
            let start = before.map_or_else(|| marks.next(), |(_, end)| end);
            if before.is_none() {
                marks.before[*first as usize] = Some(start);
            }
            let end = marks.next();
            marks.after[*last as usize] = Some(end);
            marks.of.push(Some((start, end)));
        }
        marks
    }

    fn next(&mut self) -> Mark {
        self.count += 1;
        self.count - 1
    }

    pub fn count(&self) -> usize {
        self.count as usize
    }

    pub fn at(&self, place: Place) -> Option<Mark> {
        let of = |all: &[Option<Mark>], operation: usize| all.get(operation).copied().flatten();
        match place {
            Place::Start => self.start,
            Place::Before(operation) => of(&self.before, operation),
            Place::After(operation) => of(&self.after, operation),
        }
    }

    pub fn start(&self) -> Option<Mark> {
        self.start
    }

    pub fn of(&self, part: usize) -> Option<(Mark, Mark)> {
        self.of.get(part).copied().flatten()
    }
}

/// Timeout of one stamp.
const PATIENCE: Duration = Duration::from_secs(10);

const THREADS: u32 = 256;

/// Stamp buffers of a phase's steps.
#[derive(Debug)]
pub struct Stamps {
    /// `[operation][start, end]` of the current step (ns).
    now: Memory,
    /// `[step][operation][start, end]` of the finished steps (ns).
    kept: Memory,
    count: Memory,
    operations: u32,
    steps: u32,
}

impl Stamps {
    /// Allocates buffers for this many operations and steps.
    pub fn new(gpu: &Gpu, operations: usize, steps: usize) -> Result<Self> {
        let each = 16 * operations.max(1) as u64;
        Ok(Self {
            now: gpu.allocate(each, "the stamps of a step")?,
            kept: gpu.allocate(each * steps.max(1) as u64, "the stamps of all steps")?,
            count: gpu.allocate(4, "the number of stamped steps")?,
            operations: operations as u32,
            steps: steps as u32,
        })
    }

    /// Resets the step counter. Enqueued on `stream` without waiting.
    pub fn reset(&self, stream: &Stream) -> Result<()> {
        for memory in [&self.now, &self.count] {
            stream.fill(memory.ptr(), 0, memory.bytes())?;
        }
        Ok(())
    }

    /// Start of the first and end of the last kernel of each operation in a finished step (ns); `None` for
    /// operations that launch nothing. Steps count from 0.
    pub fn step(&self, step: usize) -> Result<Vec<Option<[u64; 2]>>> {
        let mut times = vec![[0u64; 2]; self.operations as usize];
        let at = step as u64 * 16 * u64::from(self.operations);
        self.kept.download(at, bytemuck::cast_slice_mut(times.as_flattened_mut()))?;
        // 0 or poison: no kernel wrote a stamp
        let is_whole = |times: [u64; 2]| (times[0] > 0 && times[1] >= times[0]).then_some(times);
        Ok(times.into_iter().map(is_whole).collect())
    }

    /// Reads the GPU's stamp clock after the work enqueued on `stream`. Waits for it.
    pub fn clock(&self, kernels: &Kernels, stream: &Stream) -> Result<u64> {
        stream.fill(self.now.ptr(), 0, 16)?;
        self.stamp(kernels, 0, false)?.enqueue(stream)?;
        stream.synchronize_within(PATIENCE)?;
        let mut at = [0u64];
        self.now.download(0, bytemuck::cast_slice_mut(&mut at))?;
        Ok(at[0])
    }

    /// Stream time per stamp in a back-to-back sequence (us).
    pub fn cost_us(&self, gpu: &Gpu, kernels: &Kernels, stream: &Stream) -> Result<f64> {
        let mut stamp = self.stamp(kernels, 0, true)?;
        median_us(gpu, stream, &[self.now.ptr()], |_| stamp.enqueue(stream))
    }

    fn of(&self, operation: usize) -> DevicePtr {
        self.now.ptr().offset(16 * operation as u64)
    }

    /// Adds stamping to an operation's calls: kernels get the stamp address as an argument, other calls get
    /// stamp kernels before and after.
    pub(in crate::cuda) fn around(
        &self,
        kernels: &Kernels,
        operation: usize,
        calls: Vec<Call>,
    ) -> Result<Vec<Call>> {
        let mut all = Vec::with_capacity(calls.len() + 2);
        for mut call in calls {
            match &mut call {
                Call::Kernel(kernel) => {
                    kernel.arguments.push(self.of(operation));
                    all.push(call);
                }
                Call::MatMul { .. } | Call::PerExpert(_) | Call::Exchange { .. } => {
                    all.push(Call::Kernel(self.stamp(kernels, operation, false)?));
                    all.push(call);
                    all.push(Call::Kernel(self.stamp(kernels, operation, true)?));
                }
            }
        }
        Ok(all)
    }

    fn stamp(&self, kernels: &Kernels, operation: usize, is_end: bool) -> Result<KernelCall> {
        let arguments = arguments![self.of(operation), u32::from(is_end)];
        kernels.of(false).call("stamp", Launch::flat(1, 1), arguments)
    }

    /// Launch that copies a step's stamps at its end.
    pub(in crate::cuda) fn keep(&self, kernels: &Kernels) -> Result<Call> {
        let [now, kept, count] = [&self.now, &self.kept, &self.count].map(Memory::ptr);
        let arguments = arguments![now, kept, count, 2 * self.operations, self.steps];
        kernels.of(false).call("keep_stamps", Launch::flat(1, THREADS), arguments).map(Call::Kernel)
    }
}

#[cfg(test)]
mod tests;
