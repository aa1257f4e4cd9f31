//! Operation times from stamps that kernels write into device memory: one replay times a whole step on one clock.

use std::time::Duration;

use super::{InstrumentedRun, InstrumentedStep, RankTimes, settled};
use crate::cuda::cupti::OperationSpan;
use crate::cuda::engine::PreparedStep;
use crate::cuda::generation::{Generation, Purpose};
use crate::cuda::kernels::{GpuKernels, KernelCall};
use crate::cuda::launches::OperationCall;
use crate::cuda::program::GpuProgram;
use crate::cuda::timing::clock::median_us;
use crate::cuda::timing::collectives::CollectiveEvents;
use crate::cuda::timing::{ClockMapping, RoundTrip, Skeleton, Tick, Tie};
use crate::recorder::GenerationTimes;
use base::error::{Error, Result};
use machine::driver::{DevicePtr, Gpu, Launch, Memory, Stream, arguments};
use plan::Phase;

/// Clock readings; the fastest ties the GPU's clock to the host's.
const READINGS: usize = 32;

/// Timeout of one stamp.
const STAMP_TIMEOUT: Duration = Duration::from_secs(10);

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
        let written = |times: [u64; 2]| (times[0] > 0 && times[1] >= times[0]).then_some(times);
        Ok(times.into_iter().map(written).collect())
    }

    /// Reads the GPU's stamp clock after the work enqueued on `stream`. Waits for it.
    pub fn clock(&self, kernels: &GpuKernels, stream: &Stream) -> Result<u64> {
        stream.fill(self.now.ptr(), 0, 16)?;
        self.stamp(kernels, 0, false)?.enqueue(stream)?;
        stream.synchronize_within(STAMP_TIMEOUT)?;
        let mut at = [0u64];
        self.now.download(0, bytemuck::cast_slice_mut(&mut at))?;
        Ok(at[0])
    }

    /// Stream time per stamp in a back-to-back sequence (us).
    pub fn cost_us(&self, gpu: &Gpu, kernels: &GpuKernels, stream: &Stream) -> Result<f64> {
        let mut stamp = self.stamp(kernels, 0, true)?;
        median_us(gpu, stream, &[self.now.ptr()], |_| stamp.enqueue(stream))
    }

    /// Address of the two times of an operation.
    fn address(&self, operation: usize) -> DevicePtr {
        self.now.ptr().offset(16 * operation as u64)
    }

    /// Adds stamping to an operation's calls: kernels get the stamp address as an argument, other calls get
    /// stamp kernels before and after.
    pub(in crate::cuda) fn around(
        &self,
        kernels: &GpuKernels,
        operation: usize,
        calls: Vec<OperationCall>,
    ) -> Result<Vec<OperationCall>> {
        let mut all = Vec::with_capacity(calls.len() + 2);
        for mut call in calls {
            match &mut call {
                OperationCall::Kernel(kernel) => {
                    kernel.arguments.push(self.address(operation));
                    all.push(call);
                }
                OperationCall::MatMul { .. }
                | OperationCall::PerExpert(_)
                | OperationCall::Exchange { .. } => {
                    all.push(OperationCall::Kernel(self.stamp(kernels, operation, false)?));
                    all.push(call);
                    all.push(OperationCall::Kernel(self.stamp(kernels, operation, true)?));
                }
            }
        }
        Ok(all)
    }

    fn stamp(&self, kernels: &GpuKernels, operation: usize, is_end: bool) -> Result<KernelCall> {
        let arguments = arguments![self.address(operation), u32::from(is_end)];
        kernels.plain().call("stamp", Launch::flat(1, 1), arguments)
    }

    /// Launch that copies a step's stamps at its end.
    pub(in crate::cuda) fn keep(&self, kernels: &GpuKernels) -> Result<OperationCall> {
        let [now, kept, count] = [&self.now, &self.kept, &self.count].map(Memory::ptr);
        let arguments = arguments![now, kept, count, 2 * self.operations, self.steps];
        kernels
            .plain()
            .call("keep_stamps", Launch::flat(1, THREADS), arguments)
            .map(OperationCall::Kernel)
    }
}

/// Times one generation of this rank; `tick` is the resolution of its GPU's clock.
pub(super) fn run(context: &InstrumentedRun<'_>, tick: Tick) -> Result<(GenerationTimes, RankTimes)> {
    let engine = context.engine;
    let (programs, steps) = (&engine.programs, context.steps());
    let room =
        |program: &GpuProgram, steps| Stamps::new(&engine.gpu, program.plan.operations.len(), steps);
    let (of_prefill, of_decode) = (room(&programs.prefill, 1)?, room(&programs.decode, steps)?);
    let events = context.events.then(|| CollectiveEvents::from_engine(engine)).flatten();
    let stamps = [Some(&of_prefill), Some(&of_decode)];
    let mut generation = Generation::timed(engine, context.sizes(), Purpose::Stamped, stamps, events)?;
    let stamp_us = of_prefill.cost_us(&engine.gpu, &engine.kernels, engine.main())?;

    context.prepare()?;
    let (first, start_tie) = tie(context, &of_prefill)?;
    for stamps in [&of_prefill, &of_decode] {
        stamps.reset(engine.main())?;
    }
    context.barrier()?;
    let generated = generation.run(engine, "timing operations", false, &mut |_| ())?;
    let mut found = vec![(Phase::Prefill, 0, of_prefill.step(0)?)];
    for step in 0..steps {
        found.push((Phase::Decode, step as u32, of_decode.step(step)?));
    }
    let (last, end_tie) = tie(context, &of_prefill)?;
    let duration_ns = last as i64 - first as i64;
    let timeline = ClockMapping::between(start_tie, end_tie, duration_ns);
    let host = |at: u64| timeline.host_ns(at as i64 - first as i64);

    let rank = context.rank();
    let mut rank_times = RankTimes {
        rank,
        uncertainty_ns: timeline.uncertainty_ns + tick.longest_ns as i64,
        drift_ns: timeline.drift_ns,
        duration_ns,
        tick_ns: tick.ns,
        stamp_us,
        ..RankTimes::default()
    };
    rank_times.by_events = generation.collectives()?;
    let skeletons =
        [&programs.prefill, &programs.decode].map(|program| Skeleton::from_plan(&program.plan));
    for (phase, step, times) in found {
        let (skeleton, launched) = match phase {
            Phase::Prefill => (&skeletons[0], Some(generation.steps().0)),
            Phase::Decode => (&skeletons[1], generation.steps().1),
        };
        check_stamps(launched, &times)?;
        // GPU clock within a step, host clock for its start
        let Some(start) = times.iter().flatten().map(|times| times[0]).min() else { continue };
        let since = |at: u64| at.saturating_sub(start) as i64;
        let span =
            |times: [u64; 2]| OperationSpan { start_ns: since(times[0]), end_ns: since(times[1]) };
        let spans: Vec<Option<OperationSpan>> = times.iter().map(|times| times.map(span)).collect();
        let (length_ns, operations) = settled(skeleton, &spans, 0);
        let start_ns = host(start);
        rank_times.steps.push(InstrumentedStep { rank, phase, step, start_ns, length_ns, operations });
    }
    Ok((generated, rank_times))
}

/// Returns an error if a launched operation wrote no stamp.
fn check_stamps(step: Option<&PreparedStep>, times: &[Option<[u64; 2]>]) -> Result<()> {
    let launched = step.map(|step| step.launches(0)).unwrap_or_default();
    let silent = launched.iter().filter(|at| times.get(**at as usize).is_none_or(Option::is_none));
    match silent.count() {
        0 => Ok(()),
        count => Err(Error::failed(format!(
            "{count} operations of a step recorded no timestamp; --recorder events and cupti need none from kernels"
        ))),
    }
}

/// GPU clock with the host clock at the same moment, from the fastest of several readings.
fn tie(context: &InstrumentedRun<'_>, stamps: &Stamps) -> Result<(u64, Tie)> {
    let engine = context.engine;
    RoundTrip::quickest(
        READINGS,
        || context.clock.now(),
        |_| stamps.clock(&engine.kernels, engine.main()),
    )
}
