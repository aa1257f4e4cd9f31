//! When the kernels of a step ran, as they say themselves: two times an operation, by the clock that all
//! multiprocessors share. A product of cuBLASLt and a collective of NCCL, which cannot say, stand between two kernels of one
//! thread that do. One more kernel behind a step keeps what was said: a replay is a step, and nothing else is added.

use std::time::Duration;

use crate::cuda::kernels::Kernels;
use crate::cuda::launches::Call;
use crate::cuda::stopwatch::median_us;
use base::error::Result;
use machine::driver::{Arguments, DevicePtr, Gpu, Launch, Memory, Stream};

/// How long one stamp may take.
const PATIENCE: Duration = Duration::from_secs(10);

/// Threads of the kernel that keeps stamps.
const THREADS: u32 = 256;

/// Where the kernels of a phase's steps say when they ran, and where that is kept.
#[derive(Debug)]
pub struct Stamps {
    /// `[operation][began, ended]` of the step under way, in ns.
    now: Memory,
    /// `[step][operation][began, ended]` of the steps before, in ns.
    kept: Memory,
    /// How many steps there were.
    count: Memory,
    operations: u32,
    steps: u32,
}

impl Stamps {
    /// Room for so many steps of a plan with so many operations. Fails where the GPU's memory is too small.
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

    /// The next step is the first one. Enqueued on `stream`, without waiting for it.
    pub fn reset(&self, stream: &Stream) -> Result<()> {
        for memory in [&self.now, &self.count] {
            stream.fill(memory.ptr(), 0, memory.bytes())?;
        }
        Ok(())
    }

    /// Of a step that has ended, by operation: when its first kernel began and its last one ended (ns); `None` of an
    /// operation that launches nothing. Steps from 0.
    pub fn step(&self, step: usize) -> Result<Vec<Option<[u64; 2]>>> {
        let mut times = vec![[0u64; 2]; self.operations as usize];
        let at = step as u64 * 16 * u64::from(self.operations);
        self.kept.download(at, bytemuck::cast_slice_mut(times.as_flattened_mut()))?;
        // poison or nothing where no kernel has said anything
        let is_whole = |times: [u64; 2]| (times[0] > 0 && times[1] >= times[0]).then_some(times);
        Ok(times.into_iter().map(is_whole).collect())
    }

    /// Reads the clock by which kernels stamp, on the GPU, behind what `stream` has. Waits for it.
    pub fn clock(&self, kernels: &Kernels, stream: &Stream) -> Result<u64> {
        stream.fill(self.now.ptr(), 0, 16)?;
        let mut look = self.stamp(kernels, 0, false)?;
        if let Call::Kernel { function, launch, arguments } = &mut look {
            stream.launch(function, launch, arguments)?;
        }
        stream.synchronize_within(PATIENCE)?;
        let mut at = [0u64];
        self.now.download(0, bytemuck::cast_slice_mut(&mut at))?;
        Ok(at[0])
    }

    /// What a stamp takes of a stream's time (us), in a row of them.
    pub fn cost_us(&self, gpu: &Gpu, kernels: &Kernels, stream: &Stream) -> Result<f64> {
        let mut stamp = self.stamp(kernels, 0, true)?;
        median_us(gpu, stream, &[self.now.ptr()], |_| match &mut stamp {
            Call::Kernel { function, launch, arguments } => stream.launch(function, launch, arguments),
            _ => Ok(()),
        })
    }

    fn of(&self, operation: usize) -> DevicePtr {
        self.now.ptr().offset(16 * operation as u64)
    }

    /// The calls of an operation, each told where to say when it ran; what cannot say stands between stamps.
    pub(in crate::cuda) fn around(
        &self,
        kernels: &Kernels,
        operation: usize,
        calls: Vec<Call>,
    ) -> Result<Vec<Call>> {
        let mut all = Vec::with_capacity(calls.len() + 2);
        for mut call in calls {
            match &mut call {
                Call::Kernel { arguments, .. } => {
                    arguments.pointer(self.of(operation));
                    all.push(call);
                }
                Call::MatMul { .. } | Call::Exchange { .. } => {
                    all.push(self.stamp(kernels, operation, false)?);
                    all.push(call);
                    all.push(self.stamp(kernels, operation, true)?);
                }
            }
        }
        Ok(all)
    }

    fn stamp(&self, kernels: &Kernels, operation: usize, is_end: bool) -> Result<Call> {
        let mut arguments = Arguments::new();
        arguments.pointer(self.of(operation)).u32(u32::from(is_end));
        Ok(Call::Kernel { function: kernels.get("stamp")?, launch: Launch::flat(1, 1), arguments })
    }

    /// What keeps the stamps of a step, behind it.
    pub(in crate::cuda) fn keep(&self, kernels: &Kernels) -> Result<Call> {
        let mut arguments = Arguments::new();
        arguments.pointer(self.now.ptr()).pointer(self.kept.ptr()).pointer(self.count.ptr());
        arguments.u32(2 * self.operations).u32(self.steps);
        let launch = Launch::flat(1, THREADS);
        Ok(Call::Kernel { function: kernels.get("keep_stamps")?, launch, arguments })
    }
}
