//! Operation times from stamps that kernels write into device memory: one replay times a whole step on one clock.

use std::iter;
use std::time::Duration;

use super::{InstrumentedRun, InstrumentedStep, RankTimes};
use crate::cuda::cupti::{OperationSpan, operation_times};
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

/// Threads of the kernel that keeps a step's stamps.
const KEEP_THREADS: u32 = 256;

/// Size of an operation's start and end.
const STAMP_BYTES: u64 = 16;

/// Stamp buffers of a phase's steps.
#[derive(Debug)]
pub struct Stamps {
    /// `[operation][start, end]` of the current step (ns).
    current: Memory,
    /// `[step][operation][start, end]` of the finished steps (ns).
    kept: Memory,
    count: Memory,
    operations: u32,
    steps: u32,
}

impl Stamps {
    /// Allocates buffers for this many operations and steps.
    pub fn new(gpu: &Gpu, operations: usize, steps: usize) -> Result<Self> {
        let step_bytes = STAMP_BYTES * operations.max(1) as u64;
        Ok(Self {
            current: gpu.allocate(step_bytes, "the stamps of a step")?,
            kept: gpu.allocate(step_bytes * steps.max(1) as u64, "the stamps of all steps")?,
            count: gpu.allocate(4, "the number of stamped steps")?,
            operations: operations as u32,
            steps: steps as u32,
        })
    }

    /// Resets the step counter. Enqueued on `stream` without waiting.
    pub fn reset(&self, stream: &Stream) -> Result<()> {
        stream.fill(self.current.ptr(), 0, self.current.bytes())?;
        stream.fill(self.count.ptr(), 0, self.count.bytes())
    }

    /// Start of the first and end of the last kernel of each operation in a finished step (ns); `None` for
    /// operations that launch nothing. Steps count from 0.
    pub fn read_step(&self, step: usize) -> Result<Vec<Option<[u64; 2]>>> {
        let mut times = vec![[0u64; 2]; self.operations as usize];
        let at = step as u64 * STAMP_BYTES * u64::from(self.operations);
        self.kept.download(at, bytemuck::cast_slice_mut(times.as_flattened_mut()))?;
        // 0 or poison: no kernel wrote a stamp
        let written = |times: [u64; 2]| (times[0] > 0 && times[1] >= times[0]).then_some(times);
        Ok(times.into_iter().map(written).collect())
    }

    /// Reads the GPU's stamp clock after the work enqueued on `stream`. Waits for it.
    pub fn read_clock(&self, kernels: &GpuKernels, stream: &Stream) -> Result<u64> {
        stream.fill(self.current.ptr(), 0, STAMP_BYTES)?;
        self.stamp(kernels, 0, false)?.enqueue(stream)?;
        stream.synchronize_within(STAMP_TIMEOUT)?;
        let mut at = [0u64];
        self.current.download(0, bytemuck::cast_slice_mut(&mut at))?;
        Ok(at[0])
    }

    /// Stream time per stamp in a back-to-back sequence (us).
    pub fn cost_us(&self, gpu: &Gpu, kernels: &GpuKernels, stream: &Stream) -> Result<f64> {
        let mut stamp = self.stamp(kernels, 0, true)?;
        median_us(gpu, stream, &[self.current.ptr()], |_| stamp.enqueue(stream))
    }

    /// Address of the two times of an operation.
    fn address(&self, operation: usize) -> DevicePtr {
        self.current.ptr().offset(STAMP_BYTES * operation as u64)
    }

    /// Adds stamping to an operation's calls: kernels get the stamp address as an argument, other calls get
    /// stamp kernels before and after.
    pub(in crate::cuda) fn add_stamps(
        &self,
        kernels: &GpuKernels,
        operation: usize,
        calls: Vec<OperationCall>,
    ) -> Result<Vec<OperationCall>> {
        let mut all = Vec::with_capacity(calls.len() + 2);
        for mut call in calls {
            if let OperationCall::Kernel(kernel) = &mut call {
                kernel.arguments.push(self.address(operation));
                all.push(call);
            } else {
                let stamp = |is_end| self.stamp(kernels, operation, is_end).map(OperationCall::Kernel);
                all.extend([stamp(false)?, call, stamp(true)?]);
            }
        }
        Ok(all)
    }

    fn stamp(&self, kernels: &GpuKernels, operation: usize, is_end: bool) -> Result<KernelCall> {
        let arguments = arguments![self.address(operation), u32::from(is_end)];
        kernels.plain().call("stamp", Launch::flat(1, 1), arguments)
    }

    /// Launch that copies a step's stamps at its end.
    pub(in crate::cuda) fn keep_step(&self, kernels: &GpuKernels) -> Result<OperationCall> {
        let [current, kept, count] = [&self.current, &self.kept, &self.count].map(Memory::ptr);
        let arguments = arguments![current, kept, count, 2 * self.operations, self.steps];
        kernels
            .plain()
            .call("keep_stamps", Launch::flat(1, KEEP_THREADS), arguments)
            .map(OperationCall::Kernel)
    }
}

/// Times one generation of this rank; `tick` is the resolution of its GPU's clock.
pub(super) fn run(context: &InstrumentedRun<'_>, tick: Tick) -> Result<(GenerationTimes, RankTimes)> {
    let engine = context.engine;
    let (programs, steps) = (&engine.programs, context.steps());
    let allocate =
        |program: &GpuProgram, steps| Stamps::new(&engine.gpu, program.plan.operations.len(), steps);
    let (prefill, decode) = (allocate(&programs.prefill, 1)?, allocate(&programs.decode, steps)?);
    let events = context.events.then(|| CollectiveEvents::from_engine(engine)).flatten();
    let stamps = [Some(&prefill), Some(&decode)];
    let mut generation = Generation::timed(engine, context.sizes(), Purpose::Stamped, stamps, events)?;
    let stamp_us = prefill.cost_us(&engine.gpu, &engine.kernels, engine.main())?;

    context.prepare()?;
    let (first_ns, start_tie) = tie_clocks(context, &prefill)?;
    prefill.reset(engine.main())?;
    decode.reset(engine.main())?;
    context.barrier()?;
    let times = generation.run(engine, "timing operations", false, &mut |_| ())?;
    let (last_ns, end_tie) = tie_clocks(context, &prefill)?;
    let duration_ns = last_ns as i64 - first_ns as i64;
    let timeline = ClockMapping::between(start_tie, end_tie, duration_ns);

    let rank = context.rank();
    let mut rank_times = RankTimes {
        rank,
        uncertainty_ns: timeline.uncertainty_ns + tick.longest_ns as i64,
        drift_ns: timeline.drift_ns,
        duration_ns,
        tick_ns: tick.ns,
        stamp_us,
        by_events: generation.collectives()?,
        ..RankTimes::default()
    };
    let [prefill_skeleton, decode_skeleton] =
        [&programs.prefill, &programs.decode].map(|program| Skeleton::from_plan(&program.plan));
    let (prefill_step, decode_step) = generation.steps();
    let prefills = iter::once((Phase::Prefill, 0, &prefill, &prefill_skeleton, Some(prefill_step)));
    let decodes = (0..steps).map(|step| (Phase::Decode, step, &decode, &decode_skeleton, decode_step));
    for (phase, step, stamps, skeleton, launched) in prefills.chain(decodes) {
        let stamps = stamps.read_step(step)?;
        check_stamps(launched, &stamps)?;
        // GPU clock within a step, host clock for its start
        let Some(start) = stamps.iter().flatten().map(|[start, _]| *start).min() else { continue };
        let spans: Vec<Option<OperationSpan>> = stamps
            .iter()
            .map(|stamps| stamps.map(|times| times.map(|at| at.saturating_sub(start) as i64)))
            .map(|times| times.map(|[start_ns, end_ns]| OperationSpan { start_ns, end_ns }))
            .collect();
        let (length_ns, operations) = operation_times(skeleton, &spans, 0);
        let start_ns = timeline.host_ns(start as i64 - first_ns as i64);
        let step = step as u32;
        rank_times.steps.push(InstrumentedStep { rank, phase, step, start_ns, length_ns, operations });
    }
    Ok((times, rank_times))
}

/// Returns an error if a launched operation wrote no stamp.
fn check_stamps(step: Option<&PreparedStep>, times: &[Option<[u64; 2]>]) -> Result<()> {
    let launched = step.map(|step| step.launches(0)).unwrap_or_default();
    let missing = launched.iter().filter(|at| times.get(**at as usize).is_none_or(Option::is_none));
    match missing.count() {
        0 => Ok(()),
        count => Err(Error::failed(format!(
            "{count} operations of a step recorded no timestamp; --recorder events and cupti need none from kernels"
        ))),
    }
}

/// GPU clock with the host clock at the same moment, from the fastest of several readings.
fn tie_clocks(context: &InstrumentedRun<'_>, stamps: &Stamps) -> Result<(u64, Tie)> {
    let engine = context.engine;
    RoundTrip::quickest(
        READINGS,
        || context.clock.now(),
        |_| stamps.read_clock(&engine.kernels, engine.main()),
    )
}
