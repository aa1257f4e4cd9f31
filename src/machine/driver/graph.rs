//! Graphs: captured work that is launched again and again as one.

use cudarc::driver::sys;

use super::functions::symbol;
use super::gpu::Gpu;
use super::libraries::{Library, open};
use super::stream::Stream;
use base::error::Result;

/// What a capture has yielded.
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
        // SAFETY: given by a capture, destroyed once.
        self.gpu.destroy(|api| unsafe {
            (api.cuGraphDestroy)(graph);
        });
    }
}

impl Graph {
    /// Takes over a handle that the caller owns.
    pub(super) fn new(gpu: Gpu, graph: sys::CUgraph) -> Self {
        Self { gpu, graph }
    }

    /// How many nodes were captured: kernels, copies, fills of memory and event records, of all
    /// streams that took part.
    pub fn nodes(&self) -> Result<usize> {
        self.gpu.bind()?;
        let mut count = 0;
        // SAFETY: without a place for nodes only their number is written.
        let code =
            unsafe { (self.gpu.api().cuGraphGetNodes)(self.graph, std::ptr::null_mut(), &mut count) };
        self.gpu.check(code, || "counting the nodes of a graph".into())?;
        Ok(count)
    }

    /// How many of its edges let a kernel begin before the one ahead of it has ended (programmatic dependent launches);
    /// `None` where the driver, older than CUDA 12.3, does not tell.
    pub fn programmatic_edges(&self) -> Result<Option<usize>> {
        type GetEdges = unsafe extern "C" fn(
            sys::CUgraph,
            *mut sys::CUgraphNode,
            *mut sys::CUgraphNode,
            *mut sys::CUgraphEdgeData,
            *mut usize,
        ) -> u32;
        /// `CU_GRAPH_DEPENDENCY_TYPE_PROGRAMMATIC`: the next kernel may start before this one has ended.
        const PROGRAMMATIC: u8 = 1;
        let library = open(Library::Driver)?;
        // SAFETY: this is the symbol's type in cuda.h, from 12.3 on.
        let Some(get) = (unsafe { symbol::<GetEdges>(library, "cuGraphGetEdges_v2\0") }) else {
            return Ok(None);
        };
        self.gpu.bind()?;
        let (mut count, none) = (0, std::ptr::null_mut());
        // SAFETY: without places for edges only their number is written.
        let code = unsafe { get(self.graph, none, none, std::ptr::null_mut(), &mut count) };
        self.gpu.check(code, || "counting the edges of a graph".into())?;
        let mut from: Vec<sys::CUgraphNode> = vec![std::ptr::null_mut(); count];
        let mut to = from.clone();
        let plain = sys::CUgraphEdgeData { from_port: 0, to_port: 0, type_: 0, reserved: [0; 5] };
        let mut data = vec![plain; count];
        // SAFETY: there are places for as many edges as there are.
        let code = unsafe {
            get(self.graph, from.as_mut_ptr(), to.as_mut_ptr(), data.as_mut_ptr(), &mut count)
        };
        self.gpu.check(code, || "asking for the edges of a graph".into())?;
        Ok(Some(data.iter().filter(|edge| edge.type_ == PROGRAMMATIC).count()))
    }

    /// Makes it ready to launch. What its kernels use (memory, modules, events, workspaces) must outlive
    /// the result. Fails where the graph cannot be executed, or the GPU's memory is too small for it.
    pub fn instantiate(&self) -> Result<GraphExec> {
        // Nodes keep the priority of the stream that they were captured from; without this all would run
        // with that of the stream on which the graph is launched.
        const USE_NODE_PRIORITY: u64 = 8;
        self.gpu.bind()?;
        let mut exec = std::ptr::null_mut();
        // SAFETY: the graph exists; writes one handle to a valid address.
        let code = unsafe {
            (self.gpu.api().cuGraphInstantiateWithFlags)(&mut exec, self.graph, USE_NODE_PRIORITY)
        };
        self.gpu.check(code, || "making a graph ready to launch".into())?;
        Ok(GraphExec { gpu: self.gpu.clone(), exec })
    }
}

/// A graph that is ready to launch.
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
        // SAFETY: made by `Graph::instantiate`, destroyed once; the driver keeps it for launches that go on.
        self.gpu.destroy(|api| unsafe {
            (api.cuGraphExecDestroy)(exec);
        });
    }
}

impl GraphExec {
    /// Enqueues one execution of the whole graph behind the work that the stream has already, and
    /// returns before it has ended. Fails where the launch is refused.
    pub fn launch(&self, stream: &Stream) -> Result<()> {
        self.gpu.bind()?;
        // SAFETY: both exist.
        let code = unsafe { (self.gpu.api().cuGraphLaunch)(self.exec, stream.raw()) };
        self.gpu.check(code, || "launching a graph".into())
    }

    /// Brings the graph to the GPU beforehand, so that the first launch is as fast as the others. Fails
    /// where the GPU's memory is too small for it.
    pub fn upload(&self, stream: &Stream) -> Result<()> {
        self.gpu.bind()?;
        // SAFETY: both exist.
        let code = unsafe { (self.gpu.api().cuGraphUpload)(self.exec, stream.raw()) };
        self.gpu.check(code, || "uploading a graph".into())
    }
}
