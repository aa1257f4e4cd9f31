//! CUDA streams: ordered work that may overlap with other streams.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use cudarc::driver::sys;

use super::api::code;
use super::gpu::Gpu;
use super::graph;
use super::graph::Graph;
use super::memory::DevicePtr;
use super::module::{Arguments, Function, Launch};
use base::error::{Error, Result};

/// Stream priority: pending blocks of higher-priority streams start first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Priority {
    /// Lowest priority of the GPU, for compute.
    Normal,
    /// Highest priority of the GPU, for collectives, so that they start even on a full GPU.
    High,
}

/// Ordered queue of GPU work that does not synchronize with the default stream.
pub struct Stream {
    gpu: Gpu,
    stream: sys::CUstream,
    capturing: AtomicBool,
    /// Owner of the stream's resources besides the GPU, such as a green context.
    _of: Option<Arc<dyn Send + Sync>>,
}

// SAFETY: handles are plain addresses, usable from any thread.
unsafe impl Send for Stream {}
// SAFETY: as above.
unsafe impl Sync for Stream {}

impl Drop for Stream {
    fn drop(&mut self) {
        if self.capturing.load(Ordering::Relaxed) {
            // nobody needs the partial capture
            drop(self.end_capture());
        }
        let stream = self.stream;
        // SAFETY: created by `Gpu::stream`, destroyed once; the driver finishes its work first.
        self.gpu.destroy(|api| unsafe {
            (api.cuStreamDestroy_v2)(stream);
        });
    }
}

impl std::fmt::Debug for Stream {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Stream").field(&self.stream).finish()
    }
}

impl Gpu {
    /// Creates a stream that does not synchronize with the default stream (`cudaStreamNonBlocking`).
    pub fn stream(&self, priority: Priority) -> Result<Stream> {
        let priority = self.priority(priority)?;
        let mut stream = std::ptr::null_mut();
        // SAFETY: writes one handle to a valid address.
        self.call("making a stream", |api| unsafe {
            (api.cuStreamCreateWithPriority)(&mut stream, Stream::NON_BLOCKING, priority)
        })?;
        Ok(Stream::new(self.clone(), stream, None))
    }

    /// Driver value of a priority.
    pub(super) fn priority(&self, priority: Priority) -> Result<i32> {
        let (mut least, mut greatest) = (0, 0);
        // SAFETY: writes two ints to valid addresses.
        self.call("asking for the priorities of streams", |api| unsafe {
            (api.cuCtxGetStreamPriorityRange)(&mut least, &mut greatest)
        })?;
        Ok(match priority {
            Priority::Normal => least,
            Priority::High => greatest,
        })
    }
}

impl Stream {
    /// `CU_STREAM_NON_BLOCKING`: no synchronization with the default stream.
    pub(super) const NON_BLOCKING: u32 = 1;

    /// Takes ownership of a handle and keeps `of` alive until it is destroyed.
    pub(super) fn new(gpu: Gpu, stream: sys::CUstream, of: Option<Arc<dyn Send + Sync>>) -> Self {
        Self { gpu, stream, capturing: AtomicBool::new(false), _of: of }
    }

    /// Enqueues a kernel. Argument types must match the kernel's signature; nothing checks them. Returns
    /// an error if the launch needs more threads, registers or shared memory than available.
    pub fn launch(&self, function: &Function, launch: &Launch, arguments: &mut Arguments) -> Result<()> {
        self.gpu.bind()?;
        let [grid_x, grid_y, grid_z] = launch.grid;
        let [block_x, block_y, block_z] = launch.block;
        let api = self.gpu.api();
        let pointers = arguments.addresses();
        // Kernels for older GPUs are compiled without the instructions for it.
        let code = if launch.programmatic && self.gpu.info().sm >= (9, 0) {
            let mut attribute = programmatic();
            let config = sys::CUlaunchConfig {
                gridDimX: grid_x,
                gridDimY: grid_y,
                gridDimZ: grid_z,
                blockDimX: block_x,
                blockDimY: block_y,
                blockDimZ: block_z,
                sharedMemBytes: launch.shared_bytes,
                hStream: self.stream,
                attrs: &mut attribute,
                numAttrs: 1,
            };
            // SAFETY: stream and function exist; the driver copies as many arguments as the kernel
            // takes.
            unsafe { (api.cuLaunchKernelEx)(&config, function.raw(), pointers, std::ptr::null_mut()) }
        } else {
            // SAFETY: as above.
            unsafe {
                (api.cuLaunchKernel)(
                    function.raw(),
                    grid_x,
                    grid_y,
                    grid_z,
                    block_x,
                    block_y,
                    block_z,
                    launch.shared_bytes,
                    self.stream,
                    pointers,
                    std::ptr::null_mut(),
                )
            }
        };
        self.gpu.check(code, || {
            format!(
                "launching {} (grid {:?}, block {:?}, {} bytes of shared memory)",
                function.name(),
                launch.grid,
                launch.block,
                launch.shared_bytes
            )
        })
    }

    /// Records an event after the work so far. During a capture it becomes a graph edge without
    /// timestamp.
    pub fn record(&self, event: &Event) -> Result<()> {
        // SAFETY: both exist.
        self.gpu
            .call("recording an event", |api| unsafe { (api.cuEventRecord)(event.raw(), self.stream) })
    }

    /// Like [`Stream::record`], but during a capture it becomes a node that records the event with a
    /// timestamp at every launch.
    pub fn record_external(&self, event: &Event) -> Result<()> {
        const EXTERNAL: u32 = 1;
        if !graph::is_capturing() {
            return self.record(event);
        }
        // SAFETY: both exist.
        self.gpu.call("recording an event inside of a graph", |api| unsafe {
            (api.cuEventRecordWithFlags)(event.raw(), self.stream, EXTERNAL)
        })
    }

    /// Makes later work on this stream wait for the event, without blocking the thread. During a
    /// capture, this stream joins the graph.
    pub fn wait(&self, event: &Event) -> Result<()> {
        // SAFETY: both exist.
        self.gpu.call("letting a stream wait for an event", |api| unsafe {
            (api.cuStreamWaitEvent)(self.stream, event.raw(), 0)
        })
    }

    /// Waits for the stream's work without timeout. Returns an error if that work failed; this process
    /// cannot use the GPU afterwards.
    pub fn synchronize(&self) -> Result<()> {
        // SAFETY: the stream exists.
        self.gpu.call("waiting for a stream", |api| unsafe { (api.cuStreamSynchronize)(self.stream) })
    }

    /// Waits for the stream's work, at most for `limit`. On timeout returns an error and abandons the
    /// GPU: this process frees nothing on it any more, because freeing would block forever.
    pub fn synchronize_within(&self, limit: Duration) -> Result<()> {
        until(&self.gpu, limit, || self.is_done())
    }

    /// Polls whether all work on the stream is done. Returns an error if that work failed; this process
    /// cannot use the GPU afterwards.
    pub fn is_done(&self) -> Result<bool> {
        self.gpu.bind()?;
        // SAFETY: the stream exists.
        match unsafe { (self.gpu.api().cuStreamQuery)(self.stream) } {
            code::NOT_READY => Ok(false),
            code => self.gpu.check(code, || "asking whether a stream is done".into()).map(|()| true),
        }
    }

    /// Copies `data` to the GPU in stream order; the slice may be reused on return. Returns an error
    /// during a capture, because graph launches would read the slice later.
    pub fn copy_to_device(&self, to: DevicePtr, data: &[u8]) -> Result<()> {
        self.refuse_capture("copying from a slice")?;
        if data.is_empty() {
            return Ok(());
        }
        self.gpu.bind()?;
        // SAFETY: the slice is pageable memory, which the driver copies before it returns; the caller
        // guarantees the address.
        let code = unsafe {
            (self.gpu.api().cuMemcpyHtoDAsync_v2)(to.0, data.as_ptr().cast(), data.len(), self.stream)
        };
        self.gpu.check(code, || format!("copying {} bytes to it", data.len()))
    }

    /// Enqueues setting `bytes` bytes at `to` to `byte`; zero bytes enqueue nothing.
    pub fn fill(&self, to: DevicePtr, byte: u8, bytes: u64) -> Result<()> {
        if bytes == 0 {
            return Ok(());
        }
        self.gpu.bind()?;
        // SAFETY: the caller guarantees the address.
        let code = unsafe { (self.gpu.api().cuMemsetD8Async)(to.0, byte, bytes as usize, self.stream) };
        self.gpu.check(code, || format!("filling {bytes} bytes"))
    }

    /// Starts capturing work on this stream, and on streams that wait for its events, into a graph.
    /// Other threads may keep using the GPU; this thread must neither wait for it nor allocate (drops
    /// are deferred). Returns an error if the stream is already being captured.
    pub fn begin_capture(&self) -> Result<()> {
        const THREAD_LOCAL: u32 = 1;
        // SAFETY: the stream exists.
        self.gpu.call("beginning to capture a graph", |api| unsafe {
            (api.cuStreamBeginCapture_v2)(self.stream, THREAD_LOCAL)
        })?;
        self.capturing.store(true, Ordering::Relaxed);
        graph::begun();
        Ok(())
    }

    /// Ends this stream's capture, in the thread that began it. Returns an error if none was begun or if
    /// something could not be captured; the driver's text names it.
    pub fn end_capture(&self) -> Result<Graph> {
        if !self.capturing.swap(false, Ordering::Relaxed) {
            return Err(Error::failed("cannot end a capture: the stream has not begun one"));
        }
        let mut graph = std::ptr::null_mut();
        let bound = self.gpu.bind();
        // SAFETY: the stream exists; writes one handle to a valid address.
        let code = unsafe { (self.gpu.api().cuStreamEndCapture)(self.stream, &mut graph) };
        graph::ended();
        bound?;
        self.gpu.check(code, || "capturing a graph".into())?;
        if graph.is_null() {
            return Err(Error::failed("capturing a graph: an earlier error has ended the capture"));
        }
        Ok(Graph::new(self.gpu.clone(), graph))
    }

    /// Captures the work that `work` enqueues on this stream and on streams that join it. Ends the
    /// capture even if `work` fails, and returns its error; otherwise returns the errors of
    /// [`Stream::end_capture`].
    pub fn capture(&self, work: impl FnOnce() -> Result<()>) -> Result<Graph> {
        self.begin_capture()?;
        let done = work();
        let graph = self.end_capture();
        done.and(graph)
    }

    /// True if this thread captures on any stream.
    pub fn any_capturing() -> bool {
        graph::is_capturing()
    }

    /// Driver handle, valid as long as `self`.
    pub fn raw(&self) -> sys::CUstream {
        self.stream
    }

    fn refuse_capture(&self, doing: &str) -> Result<()> {
        match graph::is_capturing() {
            true => Err(Error::failed(format!(
                "{doing} while a graph is captured: its launches would use the slice after its end"
            ))),
            false => Ok(()),
        }
    }
}

fn programmatic() -> sys::CUlaunchAttribute {
    sys::CUlaunchAttribute {
        id: sys::CUlaunchAttributeID::CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION,
        pad: [0; 4],
        value: sys::CUlaunchAttributeValue { programmaticStreamSerializationAllowed: 1 },
    }
}

/// Point in a stream's work. Before the first record it counts as done and has no timestamp.
#[derive(Debug)]
pub struct Event {
    gpu: Gpu,
    event: sys::CUevent,
    timed: bool,
}

// SAFETY: handles are plain addresses, usable from any thread.
unsafe impl Send for Event {}
// SAFETY: as above.
unsafe impl Sync for Event {}

impl Drop for Event {
    fn drop(&mut self) {
        let event = self.event;
        // SAFETY: created by `Gpu::event` and destroyed once; the driver keeps it until pending work is
        // done.
        self.gpu.destroy(|api| unsafe {
            (api.cuEventDestroy_v2)(event);
        });
    }
}

impl Gpu {
    /// Creates an event, like `torch.cuda.Event`; without `timed` it is cheaper to record.
    pub fn event(&self, timed: bool) -> Result<Event> {
        const DISABLE_TIMING: u32 = 2;
        let mut event = std::ptr::null_mut();
        // SAFETY: writes one handle to a valid address.
        self.call("making an event", |api| unsafe {
            (api.cuEventCreate)(&mut event, if timed { 0 } else { DISABLE_TIMING })
        })?;
        Ok(Event { gpu: self.clone(), event, timed })
    }
}

impl Event {
    /// Milliseconds from `since` to this event, at a resolution of 0.5 us. Returns an error if either
    /// event has no timing, was never recorded, or is not done.
    pub fn elapsed_ms(&self, since: &Self) -> Result<f32> {
        let mut milliseconds = 0.0;
        self.gpu.bind()?;
        // SAFETY: both events exist; writes one number to a valid address.
        let code =
            unsafe { (self.gpu.api().cuEventElapsedTime)(&mut milliseconds, since.event, self.event) };
        self.gpu.check(code, || match self.timed && since.timed {
            true => "taking the time between two events".into(),
            false => "taking the time between two events, of which one has no times".into(),
        })?;
        Ok(milliseconds)
    }

    /// Polls whether all work enqueued before the event is done; true for an event never recorded.
    pub fn is_done(&self) -> Result<bool> {
        self.gpu.bind()?;
        // SAFETY: the event exists.
        match unsafe { (self.gpu.api().cuEventQuery)(self.event) } {
            code::NOT_READY => Ok(false),
            code => {
                self.gpu.check(code, || "asking whether an event has happened".into()).map(|()| true)
            }
        }
    }

    /// Waits for the work enqueued before the event, at most for `limit`; on timeout the GPU is
    /// abandoned as in [`super::Stream::synchronize_within`].
    pub fn synchronize_within(&self, limit: Duration) -> Result<()> {
        until(&self.gpu, limit, || self.is_done())
    }

    /// Driver handle, valid as long as `self`.
    pub fn raw(&self) -> sys::CUevent {
        self.event
    }
}

/// Polls until done. On timeout returns an error and abandons the GPU: this process frees nothing on it
/// any more, because freeing waits for its work.
pub(super) fn until(gpu: &Gpu, limit: Duration, done: impl FnMut() -> Result<bool>) -> Result<()> {
    if poll(limit, done)? {
        return Ok(());
    }
    gpu.abandon();
    Err(Error::failed(format!(
        "GPU {} has not finished its work within {} s: a kernel or collective hangs (a rank that died or \
         never joined is the usual reason); this process can not use the GPU any more",
        gpu.info().index,
        limit.as_secs_f64()
    )))
}

/// Returns true if done within the limit; polls at least once, spins at first, then sleeps.
fn poll(limit: Duration, mut done: impl FnMut() -> Result<bool>) -> Result<bool> {
    /// Typical duration of a decode step, which a sleeping thread would lengthen.
    const SPIN_TIME: Duration = Duration::from_millis(5);
    let start = Instant::now();
    loop {
        if done()? {
            return Ok(true);
        }
        let waited = start.elapsed();
        if waited >= limit {
            return Ok(false);
        }
        match waited < SPIN_TIME {
            true => std::hint::spin_loop(),
            false => {
                std::thread::sleep((waited / 100).min(Duration::from_millis(1)).min(limit - waited))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waiting_ends_with_the_work_or_with_the_limit_or_with_an_error() {
        let mut asked = 0;
        let done = || {
            asked += 1;
            Ok(asked == 3)
        };
        assert!(matches!(poll(Duration::from_secs(60), done), Ok(true)));
        assert_eq!(asked, 3);
        let start = Instant::now();
        assert!(matches!(poll(Duration::from_millis(20), || Ok(false)), Ok(false)));
        assert!(
            start.elapsed() >= Duration::from_millis(20) && start.elapsed() < Duration::from_secs(5)
        );
        assert!(poll(Duration::ZERO, || Err(Error::failed("no"))).is_err());
        assert!(matches!(poll(Duration::ZERO, || Ok(true)), Ok(true)));
    }
}
