//! Time stamps written by the kernels of a step: start and end per operation, on the GPU's global timer. cuBLASLt products
//! and NCCL collectives cannot write stamps, so each runs between two one-thread stamp kernels. One more kernel at the end of a
//! step copies the stamps, so one replay is still one step and needs no further work.

use std::time::Duration;

use crate::cuda::kernels::{KernelCall, Kernels};
use crate::cuda::launches::Call;
use crate::cuda::timing::stopwatch::median_us;
use base::error::Result;
use machine::driver::{DevicePtr, Gpu, Launch, Memory, Stream, arguments};

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
                Call::MatMul { .. } | Call::Exchange { .. } => {
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
