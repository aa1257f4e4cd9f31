//! Streams: work in order, beside that of other streams.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use cudarc::driver::sys;

use super::answer::code;
use super::event::Event;
use super::gpu::Gpu;
use super::graph::Graph;
use super::memory::DevicePtr;
use super::module::{Arguments, Function, Launch};
use super::{capture, wait};
use base::error::{Error, Result};

/// The priority of a stream: of several that have blocks to start, the higher one's start first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Priority {
    /// The lowest priority that the GPU offers, for the compute stream.
    Normal,
    /// The highest priority that the GPU offers, for collectives, so that they start beside a full GPU.
    High,
}

/// Work in order on a GPU. It does not wait for the default stream.
pub struct Stream {
    gpu: Gpu,
    stream: sys::CUstream,
    capturing: AtomicBool,
    /// What it needs besides the GPU, kept until its end.
    _of: Option<Arc<dyn Send + Sync>>,
}

// SAFETY: handles are plain addresses, usable from any thread.
unsafe impl Send for Stream {}
// SAFETY: as above.
unsafe impl Sync for Stream {}

impl Drop for Stream {
    fn drop(&mut self) {
        if self.capturing.load(Ordering::Relaxed) {
            // what was captured is of no use to anybody
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
    /// Makes a stream of this GPU, which does not wait for the default stream (`cudaStreamNonBlocking`).
    pub fn stream(&self, priority: Priority) -> Result<Stream> {
        let priority = self.priority(priority)?;
        let mut stream = std::ptr::null_mut();
        // SAFETY: writes one handle to a valid address.
        let code = unsafe {
            (self.api().cuStreamCreateWithPriority)(&mut stream, Stream::NON_BLOCKING, priority)
        };
        self.check(code, || "making a stream".into())?;
        Ok(Stream::of(self.clone(), stream, None))
    }

    /// The driver's number of a priority.
    pub(super) fn priority(&self, priority: Priority) -> Result<i32> {
        self.bind()?;
        let (mut least, mut greatest) = (0, 0);
        // SAFETY: writes two ints to valid addresses.
        let code = unsafe { (self.api().cuCtxGetStreamPriorityRange)(&mut least, &mut greatest) };
        self.check(code, || "asking for the priorities of streams".into())?;
        Ok(match priority {
            Priority::Normal => least,
            Priority::High => greatest,
        })
    }
}

impl Stream {
    /// The flag of streams that do not wait for the default one.
    pub(super) const NON_BLOCKING: u32 = 1;

    /// Takes over a handle that the caller owns, and keeps `of` until it is destroyed.
    pub(super) fn of(gpu: Gpu, stream: sys::CUstream, of: Option<Arc<dyn Send + Sync>>) -> Self {
        Self { gpu, stream, capturing: AtomicBool::new(false), _of: of }
    }

    /// Enqueues a kernel. The arguments' types must be those of the kernel: nothing can check them.
    /// Fails where the launch wants more threads, registers or shared memory than there are.
    pub fn launch(&self, function: &Function, launch: &Launch, arguments: &mut Arguments) -> Result<()> {
        self.gpu.bind()?;
        let [grid_x, grid_y, grid_z] = launch.grid;
        let [block_x, block_y, block_z] = launch.block;
        let api = self.gpu.api();
        let pointers = arguments.addresses();
        // Kernels for older GPUs are compiled without the instructions that it needs.
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
            // SAFETY: stream and function exist; the driver copies as many arguments as the kernel has.
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

    /// Records the event after the work so far. During a capture it becomes an edge of the
    /// graph, without a time.
    pub fn record(&self, event: &Event) -> Result<()> {
        self.gpu.bind()?;
        // SAFETY: both exist.
        let code = unsafe { (self.gpu.api().cuEventRecord)(event.raw(), self.stream) };
        self.gpu.check(code, || "recording an event".into())
    }

    /// Records an event like [`Stream::record`]; during a capture of this thread it becomes a node that
    /// records the event, with its time, at every launch of the graph.
    pub fn record_external(&self, event: &Event) -> Result<()> {
        const EXTERNAL: u32 = 1;
        if !capture::active() {
            return self.record(event);
        }
        self.gpu.bind()?;
        // SAFETY: both exist.
        let code =
            unsafe { (self.gpu.api().cuEventRecordWithFlags)(event.raw(), self.stream, EXTERNAL) };
        self.gpu.check(code, || "recording an event inside of a graph".into())
    }

    /// Lets what is enqueued on this stream from now on wait for the event; the calling thread does not
    /// wait. During a capture this draws the waiting stream into the graph.
    pub fn wait(&self, event: &Event) -> Result<()> {
        self.gpu.bind()?;
        // SAFETY: both exist.
        let code = unsafe { (self.gpu.api().cuStreamWaitEvent)(self.stream, event.raw(), 0) };
        self.gpu.check(code, || "letting a stream wait for an event".into())
    }

    /// Waits for the stream's work without a limit. Fails where that work did; the GPU is unusable for
    /// this process from then on.
    pub fn synchronize(&self) -> Result<()> {
        self.gpu.bind()?;
        // SAFETY: the stream exists.
        let code = unsafe { (self.gpu.api().cuStreamSynchronize)(self.stream) };
        self.gpu.check(code, || "waiting for a stream".into())
    }

    /// Waits for the stream's work, at most for `limit`. A GPU that has not ended by then is
    /// given up, which is an error: nothing of it is freed by this process any more, since
    /// freeing would wait for ever.
    pub fn synchronize_within(&self, limit: Duration) -> Result<()> {
        wait::until(&self.gpu, limit, || self.is_done())
    }

    /// Whether all work that was enqueued on the stream is done; asks without waiting. Fails where that
    /// work did; the GPU is unusable for this process from then on.
    pub fn is_done(&self) -> Result<bool> {
        self.gpu.bind()?;
        // SAFETY: the stream exists.
        match unsafe { (self.gpu.api().cuStreamQuery)(self.stream) } {
            code::NOT_READY => Ok(false),
            code => self.gpu.check(code, || "asking whether a stream is done".into()).map(|()| true),
        }
    }

    /// Copies `data` to the GPU in stream order; the data has been taken over when this returns. Fails
    /// during a capture of this thread: the graph's launches would read the slice after its end.
    pub fn copy_to_device(&self, to: DevicePtr, data: &[u8]) -> Result<()> {
        self.refuse_capture("copying from a slice")?;
        if data.is_empty() {
            return Ok(());
        }
        self.gpu.bind()?;
        // SAFETY: the slice is pageable memory, which the driver copies before it returns; the caller
        // knows the address.
        let code = unsafe {
            (self.gpu.api().cuMemcpyHtoDAsync_v2)(to.0, data.as_ptr().cast(), data.len(), self.stream)
        };
        self.gpu.check(code, || format!("copying {} bytes to it", data.len()))
    }

    /// Enqueues setting each of the `bytes` bytes from `to` on to `byte`; zero bytes enqueue nothing.
    pub fn fill(&self, to: DevicePtr, byte: u8, bytes: u64) -> Result<()> {
        if bytes == 0 {
            return Ok(());
        }
        self.gpu.bind()?;
        // SAFETY: the caller knows the address.
        let code = unsafe { (self.gpu.api().cuMemsetD8Async)(to.0, byte, bytes as usize, self.stream) };
        self.gpu.check(code, || format!("filling {bytes} bytes"))
    }

    /// From here on work is captured into a graph instead of being done, on this stream and on
    /// those that wait for its events. Other threads may go on using the GPU; this one must neither
    /// wait for it nor allocate (dropped memory is freed after the capture). Fails where the stream
    /// is being captured already.
    pub fn begin_capture(&self) -> Result<()> {
        const THREAD_LOCAL: u32 = 1;
        self.gpu.bind()?;
        // SAFETY: the stream exists.
        let code = unsafe { (self.gpu.api().cuStreamBeginCapture_v2)(self.stream, THREAD_LOCAL) };
        self.gpu.check(code, || "beginning to capture a graph".into())?;
        self.capturing.store(true, Ordering::Relaxed);
        capture::begun();
        Ok(())
    }

    /// Ends the capture that this stream has begun, in the same thread. Fails where it has begun none,
    /// and where something was done that cannot be captured, which the driver's text names.
    pub fn end_capture(&self) -> Result<Graph> {
        if !self.capturing.swap(false, Ordering::Relaxed) {
            return Err(Error::failed("a capture is ended on a stream that has not begun one"));
        }
        let mut graph = std::ptr::null_mut();
        let bound = self.gpu.bind();
        // SAFETY: the stream exists; writes one handle to a valid address.
        let code = unsafe { (self.gpu.api().cuStreamEndCapture)(self.stream, &mut graph) };
        capture::ended();
        bound?;
        self.gpu.check(code, || "capturing a graph".into())?;
        if graph.is_null() {
            return Err(Error::failed("capturing a graph: an earlier error has ended the capture"));
        }
        Ok(Graph::new(self.gpu.clone(), graph))
    }

    /// Captures what `work` enqueues on this stream, and on those that join it. Where
    /// `work` fails, the capture is ended too, and its error is returned; else this
    /// fails where [`Stream::end_capture`] does.
    pub fn capture(&self, work: impl FnOnce() -> Result<()>) -> Result<Graph> {
        self.begin_capture()?;
        let done = work();
        let graph = self.end_capture();
        done.and(graph)
    }

    /// Whether this thread captures on any stream.
    pub fn any_capturing() -> bool {
        capture::active()
    }

    /// The driver's handle; valid as long as `self`.
    pub fn raw(&self) -> sys::CUstream {
        self.stream
    }

    fn refuse_capture(&self, doing: &str) -> Result<()> {
        match capture::active() {
            true => Err(Error::failed(format!(
                "{doing} while a graph is captured: its launches would use the slice after its end"
            ))),
            false => Ok(()),
        }
    }
}

/// The launch attribute that lets a kernel start before the previous one has ended.
fn programmatic() -> sys::CUlaunchAttribute {
    sys::CUlaunchAttribute {
        id: sys::CUlaunchAttributeID::CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION,
        pad: [0; 4],
        value: sys::CUlaunchAttributeValue { programmaticStreamSerializationAllowed: 1 },
    }
}
