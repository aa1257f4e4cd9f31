//! CUDA graphs: captured work, launched repeatedly as a unit; and frees that wait for the end of a capture.

use std::cell::RefCell;

use cudarc::driver::sys;

use super::functions::symbol;
use super::gpu::Gpu;
use super::libraries::{Library, open};
use super::stream::Stream;
use base::error::Result;

/// Captured graph, not yet executable.
#[derive(Debug)]
pub struct Graph {
    gpu: Gpu,
    graph: sys::CUgraph,
}

// SAFETY: handles are plain addresses; a graph is only read after its capture.
unsafe impl Send for Graph {}

impl Drop for Graph {
    fn drop(&mut self) {
        let graph = self.graph;
        // SAFETY: created by a capture, destroyed once.
        self.gpu.destroy(|api| unsafe {
            (api.cuGraphDestroy)(graph);
        });
    }
}

impl Graph {
    /// Takes ownership of a handle.
    pub(super) fn new(gpu: Gpu, graph: sys::CUgraph) -> Self {
        Self { gpu, graph }
    }

    /// Number of captured nodes: kernels, copies, memory fills and event records of all participating
    /// streams.
    pub fn nodes(&self) -> Result<usize> {
        let mut count = 0;
        // SAFETY: with a null node array, only the count is written.
        self.gpu.call("counting the nodes of a graph", |api| unsafe {
            (api.cuGraphGetNodes)(self.graph, std::ptr::null_mut(), &mut count)
        })?;
        Ok(count)
    }

    /// Number of edges that let a kernel start before its predecessor ends (programmatic dependent
    /// launch); `None` for drivers before CUDA 12.3, which cannot report it.
    pub fn programmatic_edges(&self) -> Result<Option<usize>> {
        type GetEdges = unsafe extern "C" fn(
            sys::CUgraph,
            *mut sys::CUgraphNode,
            *mut sys::CUgraphNode,
            *mut sys::CUgraphEdgeData,
            *mut usize,
        ) -> u32;
        const PROGRAMMATIC: u8 = 1;
        let library = open(Library::Driver)?;
        // SAFETY: this is the symbol's type in cuda.h from 12.3.
        let Some(get) = (unsafe { symbol::<GetEdges>(library, "cuGraphGetEdges_v2\0") }) else {
            return Ok(None);
        };
        self.gpu.bind()?;
        let (mut count, none) = (0, std::ptr::null_mut());
        // SAFETY: with null edge arrays, only the count is written.
        let code = unsafe { get(self.graph, none, none, std::ptr::null_mut(), &mut count) };
        self.gpu.check(code, || "counting the edges of a graph".into())?;
        let mut from: Vec<sys::CUgraphNode> = vec![std::ptr::null_mut(); count];
        let mut to = from.clone();
        let plain = sys::CUgraphEdgeData { from_port: 0, to_port: 0, type_: 0, reserved: [0; 5] };
        let mut data = vec![plain; count];
        // SAFETY: the arrays have room for all edges.
        let code = unsafe {
            get(self.graph, from.as_mut_ptr(), to.as_mut_ptr(), data.as_mut_ptr(), &mut count)
        };
        self.gpu.check(code, || "asking for the edges of a graph".into())?;
        Ok(Some(data.iter().filter(|edge| edge.type_ == PROGRAMMATIC).count()))
    }

    /// Instantiates the graph. Memory, modules, events and workspaces of its kernels must outlive the
    /// result. Returns an error if the graph is not executable or does not fit into GPU memory.
    pub fn instantiate(&self) -> Result<GraphExec> {
        // Without this flag, all nodes would run at the priority of the launch stream instead of the
        // priority of the stream they were captured from.
        const USE_NODE_PRIORITY: u64 = 8;
        let mut exec = std::ptr::null_mut();
        // SAFETY: the graph exists; writes one handle to a valid address.
        self.gpu.call("making a graph ready to launch", |api| unsafe {
            (api.cuGraphInstantiateWithFlags)(&mut exec, self.graph, USE_NODE_PRIORITY)
        })?;
        Ok(GraphExec { gpu: self.gpu.clone(), exec })
    }
}

#[derive(Debug)]
pub struct GraphExec {
    gpu: Gpu,
    exec: sys::CUgraphExec,
}

// SAFETY: handles are plain addresses; launches of one graph are ordered by the driver.
unsafe impl Send for GraphExec {}

impl Drop for GraphExec {
    fn drop(&mut self) {
        let exec = self.exec;
        // SAFETY: created by `Graph::instantiate`, destroyed once; the driver keeps it for running
        // launches.
        self.gpu.destroy(|api| unsafe {
            (api.cuGraphExecDestroy)(exec);
        });
    }
}

impl GraphExec {
    /// Enqueues one execution of the graph on the stream and returns immediately. Returns an error if
    /// the launch is rejected.
    pub fn launch(&self, stream: &Stream) -> Result<()> {
        // SAFETY: both exist.
        self.gpu.call("launching a graph", |api| unsafe { (api.cuGraphLaunch)(self.exec, stream.raw()) })
    }

    /// Uploads the graph to the GPU, so that the first launch is as fast as the others. Returns an error
    /// if GPU memory is too small.
    pub fn upload(&self, stream: &Stream) -> Result<()> {
        // SAFETY: both exist.
        self.gpu.call("uploading a graph", |api| unsafe { (api.cuGraphUpload)(self.exec, stream.raw()) })
    }
}

/// Capture depth and deferred frees of this thread.
#[derive(Default)]
struct Pending {
    captures: usize,
    frees: Vec<Box<dyn FnOnce()>>,
}

thread_local! {
    static PENDING: RefCell<Pending> = RefCell::default();
}

/// Marks the start of a capture in this thread.
pub(super) fn begun() {
    let _ = PENDING.try_with(|pending| pending.borrow_mut().captures += 1);
}

/// Marks the end of a capture; after the last one, runs the deferred frees.
pub(super) fn ended() {
    let due = PENDING.try_with(|pending| {
        let mut pending = pending.borrow_mut();
        pending.captures = pending.captures.saturating_sub(1);
        if pending.captures == 0 { std::mem::take(&mut pending.frees) } else { Vec::new() }
    });
    due.unwrap_or_default().into_iter().for_each(|free| free());
}

pub(super) fn is_capturing() -> bool {
    PENDING.try_with(|pending| pending.borrow().captures > 0).unwrap_or(false)
}

/// Frees now, or after this thread's captures.
pub(super) fn free_later(free: impl FnOnce() + 'static) {
    let mut free: Option<Box<dyn FnOnce()>> = Some(Box::new(free));
    let _ = PENDING.try_with(|pending| {
        let mut pending = pending.borrow_mut();
        if pending.captures > 0 {
            pending.frees.extend(free.take());
        }
    });
    if let Some(free) = free {
        free();
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::rc::Rc;

    use super::*;

    #[test]
    fn frees_wait_for_the_last_capture_to_end() {
        let freed = Rc::new(Cell::new(0));
        let free_one = || {
            let freed = Rc::clone(&freed);
            free_later(move || freed.set(freed.get() + 1));
        };
        free_one();
        assert_eq!(freed.get(), 1);
        begun();
        begun();
        free_one();
        ended();
        assert!(is_capturing());
        assert_eq!(freed.get(), 1);
        ended();
        assert!(!is_capturing());
        assert_eq!(freed.get(), 2);
    }
}
