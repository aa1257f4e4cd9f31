//! CUPTI activity records as a second way to time operations.
//!
//! CUPTI's times are exact and need no events between kernels, but every record costs GPU and host time, and
//! each kernel has to be matched to its operation. Eager kernels carry an external correlation id pushed
//! around the launch. Graph kernels carry their node id: nodes are mapped to operations when captured, and
//! again when the graph is instantiated. A session captures all GPU activity of the process between start and stop; `api`
//! has the library's functions.
//!
//! CUPTI calls back on its own threads and supports one subscriber per process, so the state is global behind
//! a lock. Buffers and stored activities are bounded; the overflow is counted.

mod api;

pub use api::{check_available, version};

use std::alloc::Layout as Allocation;
use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ffi::c_void;
use std::sync::Mutex;

use serde::{Deserialize, Serialize};

use self::api::{CuptiRecordingApi, api, kind};
use crate::cuda::timing::{ClockMapping, RoundTrip, Skeleton, Tie};
use base::error::{Error, Result};
use inject::records::{
    self, ActivityRecord, GraphNode, NODE_CLONED, NODE_CREATED, RESOURCE_DOMAIN, WorkRecord,
    WorkRecordKind,
};

/// Size of one buffer (bytes), about ten thousand records.
const BUFFER_BYTES: usize = 4 << 20;
/// Maximum number of buffers CUPTI may hold.
const MAX_BUFFERS: usize = 32;
/// Maximum number of stored activities.
const MAX_ACTIVITIES: usize = 8_000_000;
/// Buffer alignment required by CUPTI (bytes).
const ALIGNMENT: usize = 8;
/// Round trips for tying the clocks; the shortest counts.
const ROUND_TRIPS: usize = 200;
/// `CUPTI_EXTERNAL_CORRELATION_KIND_CUSTOM0`, reserved for this program.
const EXTERNAL_KIND: u32 = 3;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct OperationLabel {
    /// Rank, up to 255.
    pub rank: u8,
    /// Index in the plan.
    pub operation: u32,
}

/// Execution of a plan: 0 is the prefill, then the decode steps. Up to 2^24.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct StepId(pub u32);

impl StepId {
    /// Packs step and label into the external correlation id.
    fn external(self, label: Option<OperationLabel>) -> u64 {
        let label = label.map_or(0, |l| u64::from(l.rank) << 32 | (u64::from(l.operation) + 1));
        u64::from(self.0) << 40 | label
    }

    /// Inverse of [`StepId::external`].
    fn parse(external: u64) -> (Self, Option<OperationLabel>) {
        let operation = (external & 0xffff_ffff) as u32;
        let rank = (external >> 32 & 0xff) as u8;
        let label = operation.checked_sub(1).map(|operation| OperationLabel { rank, operation });
        (Self((external >> 40) as u32), label)
    }
}

thread_local! {
    /// Operation this thread is enqueueing or capturing.
    static LABEL: Cell<Option<OperationLabel>> = const { Cell::new(None) };
    /// Step this thread is launching during a recording.
    static STEP: Cell<Option<StepId>> = const { Cell::new(None) };
}

/// Guard that assigns this thread's launches to a step, or to an operation of a step.
#[derive(Debug)]
#[must_use = "launches belong to it for as long as this exists"]
pub struct CorrelationGuard {
    pushed: bool,
    step: Option<StepId>,
    label: Option<OperationLabel>,
}

impl CorrelationGuard {
    fn to(step: Option<StepId>, label: Option<OperationLabel>) -> Self {
        // no id is needed outside a recorded step
        let api = step.and_then(|step| Some((step, api().ok()?)));
        // SAFETY: takes plain numbers; if the push fails, the kernels have no step and are counted as
        // unassigned.
        let pushed = api.is_some_and(|(step, api)| unsafe {
            (api.cuptiActivityPushExternalCorrelationId)(EXTERNAL_KIND, step.external(label)) == 0
        });
        // built in one expression: dropping a partial guard would restore the previous values too early
        Self {
            pushed,
            step: STEP.try_with(|s| s.replace(step)).ok().flatten(),
            label: LABEL.try_with(|l| l.replace(label)).ok().flatten(),
        }
    }

    /// Step and label currently set on this thread.
    #[cfg(test)]
    fn said() -> (Option<StepId>, Option<OperationLabel>) {
        (STEP.get(), LABEL.get())
    }
}

impl Drop for CorrelationGuard {
    fn drop(&mut self) {
        let _ = STEP.try_with(|step| step.set(self.step));
        let _ = LABEL.try_with(|label| label.set(self.label));
        if let (true, Ok(api)) = (self.pushed, api()) {
            let mut last = 0;
            // SAFETY: writes one number to a valid address.
            unsafe { (api.cuptiActivityPopExternalCorrelationId)(EXTERNAL_KIND, &mut last) };
        }
    }
}

/// Assigns this thread's launches to a step; graph kernels map to operations by node. Only during a
/// [`CuptiSession`].
pub fn step(step: StepId) -> CorrelationGuard {
    CorrelationGuard::to(Some(step), None)
}

/// Assigns what this thread enqueues or captures to an operation of its current step, if any.
pub fn operation(label: OperationLabel) -> CorrelationGuard {
    CorrelationGuard::to(STEP.try_with(Cell::get).ok().flatten(), Some(label))
}

/// Kernel, copy or fill on a GPU: subset of its CUPTI activity record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Activity {
    /// False for copies and fills.
    pub is_kernel: bool,
    /// Start on CUPTI's clock (ns); 0 if unknown.
    pub start_ns: u64,
    /// End on CUPTI's clock (ns).
    pub end_ns: u64,
    /// CUDA device index within this process.
    pub device: u32,
    pub stream: u32,
    /// Correlation id of the launching call; shared by all kernels of a graph launch.
    pub correlation: u32,
    /// Node id in the executable graph; 0 for eager launches.
    pub graph_node: u64,
    /// Mangled kernel name; `None` for copies and memsets.
    pub name: Option<String>,
}

impl From<WorkRecord<'_>> for Activity {
    fn from(work: WorkRecord<'_>) -> Self {
        let name = if let WorkRecordKind::Kernel(name) = work.what { name } else { None };
        Self {
            is_kernel: matches!(work.what, WorkRecordKind::Kernel(_)),
            start_ns: work.start_ns,
            end_ns: work.end_ns,
            device: work.device,
            stream: work.stream,
            correlation: work.correlation,
            graph_node: work.node,
            name: name.map(|name| name.to_string_lossy().into_owned()),
        }
    }
}

#[derive(Debug, Default)]
struct State {
    activities: Vec<Activity>,
    external: HashMap<u32, u64>,
    nodes: HashMap<u64, OperationLabel>,
    /// Number of buffers CUPTI currently holds.
    held: usize,
    /// Number of activities beyond [`MAX_ACTIVITIES`], not stored.
    beyond: u64,
}

static STATE: Mutex<Option<State>> = Mutex::new(None);

/// Everything recorded between start and stop, not yet sorted by operation.
#[derive(Clone, Debug)]
pub struct CuptiRecording {
    /// Unsorted activities on CUPTI's clock.
    pub activities: Vec<Activity>,
    /// External id by correlation id.
    pub external: HashMap<u32, u64>,
    /// Operation by node of the executable graph.
    pub nodes: HashMap<u64, OperationLabel>,
    /// Records lost for lack of space.
    pub dropped: u64,
    /// Mapping from CUPTI's clock (ns since `zero`) to the host's.
    pub timeline: ClockMapping,
    /// CUPTI's clock at the start.
    pub zero: u64,
}

/// An active recording; dropping it stops the recording.
#[derive(Debug)]
pub struct CuptiSession {
    subscriber: *mut c_void,
    start: (u64, Tie),
}

/// Record kinds to enable. External ids attach to API calls, so both driver and runtime calls are needed,
/// depending on what a library uses.
const KINDS: [u32; 6] = [
    kind::EXTERNAL_CORRELATION,
    kind::DRIVER,
    kind::RUNTIME,
    kind::CONCURRENT_KERNEL,
    kind::MEMCPY,
    kind::MEMSET,
];

impl CuptiSession {
    /// Starts recording for the whole process. `now` returns the host's clock (ns). Graphs must be captured
    /// and instantiated after this call to be recorded.
    ///
    /// # Errors
    ///
    /// Returns an error if CUPTI is missing or too old, there is no driver, profiling requires root, another
    /// profiler is attached, or a recording is already active in this process.
    pub fn start(now: impl Fn() -> i64) -> Result<Self> {
        let api = api()?;
        let mut state = STATE.lock().map_err(|_| poisoned())?;
        if state.is_some() {
            return Err(Error::failed("CUPTI: a recording is on already in this process"));
        }
        *state = Some(State::default());
        drop(state);
        let mut session =
            Self { subscriber: std::ptr::null_mut(), start: (0, Tie { at_ns: 0, uncertainty_ns: 0 }) };
        // an early return drops the session, which disables everything
        // SAFETY: writes one handle to a valid address; the callback is a function of this program.
        let code = unsafe {
            (api.cuptiSubscribe)(&mut session.subscriber, node_callback, std::ptr::null_mut())
        };
        api.check(code, "attaching to the driver")?;
        for id in [NODE_CREATED, NODE_CLONED] {
            // SAFETY: the subscriber exists.
            let code = unsafe { (api.cuptiEnableCallback)(1, session.subscriber, RESOURCE_DOMAIN, id) };
            api.check(code, "listening to the making of graphs")?;
        }
        // SAFETY: both are functions of this program.
        let code = unsafe { (api.cuptiActivityRegisterCallbacks)(request_buffer, complete_buffer) };
        api.check(code, "offering buffers")?;
        for kind in KINDS {
            // SAFETY: takes a plain number.
            let code = unsafe { (api.cuptiActivityEnable)(kind) };
            api.check(code, "switching records of kernels on")?;
        }
        session.start = tie(api, &now)?;
        Ok(session)
    }

    /// Stops recording and returns the data. The GPUs must be idle.
    pub fn finish(self, now: impl Fn() -> i64) -> Result<CuptiRecording> {
        let api = api()?;
        let (zero, start) = self.start;
        let (last, end) = tie(api, &now)?;
        let mut dropped = 0usize;
        // SAFETY: takes plain numbers; flushes complete records through the callbacks.
        let code = unsafe { (api.cuptiActivityFlushAll)(1) };
        api.check(code, "fetching the records")?;
        // SAFETY: writes one number to a valid address; a null context means all contexts.
        let code =
            unsafe { (api.cuptiActivityGetNumDroppedRecords)(std::ptr::null_mut(), 0, &mut dropped) };
        api.check(code, "asking for the number of lost records")?;
        let state = STATE.lock().map_err(|_| poisoned())?.as_mut().map(std::mem::take);
        let state = state.unwrap_or_default();
        let device_ns = i64::try_from(last.saturating_sub(zero)).unwrap_or(i64::MAX);
        Ok(CuptiRecording {
            activities: state.activities,
            external: state.external,
            nodes: state.nodes,
            dropped: dropped as u64 + state.beyond,
            timeline: ClockMapping::between(start, end, device_ns),
            zero,
        })
    }
}

impl Drop for CuptiSession {
    fn drop(&mut self) {
        let Ok(api) = api() else { return };
        for kind in KINDS {
            // SAFETY: takes a plain number; disabling twice is harmless.
            unsafe { (api.cuptiActivityDisable)(kind) };
        }
        // SAFETY: takes a plain number; returns the buffers.
        unsafe { (api.cuptiActivityFlushAll)(1) };
        if !self.subscriber.is_null() {
            // SAFETY: the subscriber exists and is released once.
            unsafe { (api.cuptiUnsubscribe)(self.subscriber) };
        }
        if let Ok(mut state) = STATE.lock() {
            *state = None;
        }
    }
}

/// CUPTI's clock with the host's clock at the same moment.
fn tie(api: &CuptiRecordingApi, now: &impl Fn() -> i64) -> Result<(u64, Tie)> {
    RoundTrip::quickest(ROUND_TRIPS, now, |_| {
        let mut stamp = 0;
        // SAFETY: writes one number to a valid address.
        let code = unsafe { (api.cuptiGetTimestamp)(&mut stamp) };
        api.check(code, "asking for the time")?;
        Ok(stamp)
    })
}

fn poisoned() -> Error {
    Error::failed("CUPTI: a thread that took its records has panicked")
}

fn allocation() -> Option<Allocation> {
    Allocation::from_size_align(BUFFER_BYTES, ALIGNMENT).ok()
}

/// Gives CUPTI an empty buffer. Beyond the limit it gives none, and CUPTI drops records and counts them.
unsafe extern "C" fn request_buffer(buffer: *mut *mut u8, size: *mut usize, most: *mut usize) {
    let mut given = std::ptr::null_mut();
    if let (Ok(mut state), Some(allocation)) = (STATE.lock(), allocation())
        && let Some(state) = state.as_mut().filter(|state| state.held < MAX_BUFFERS)
    {
        // SAFETY: the size is not 0.
        given = unsafe { std::alloc::alloc(allocation) };
        state.held += usize::from(!given.is_null());
    }
    // SAFETY: CUPTI passes valid addresses for the results.
    unsafe {
        *buffer = given;
        *size = if given.is_null() { 0 } else { BUFFER_BYTES };
        *most = 0;
    }
}

/// Receives a buffer with `valid` bytes of records.
unsafe extern "C" fn complete_buffer(
    _context: *mut c_void,
    _stream: u32,
    buffer: *mut u8,
    _size: usize,
    valid: usize,
) {
    if buffer.is_null() {
        return;
    }
    if let (Ok(api), Ok(mut state)) = (api(), STATE.lock())
        && let Some(state) = state.as_mut()
    {
        state.held = state.held.saturating_sub(1);
        let take = |record: ActivityRecord<'_>| match record {
            ActivityRecord::Work(_) if state.activities.len() >= MAX_ACTIVITIES => state.beyond += 1,
            ActivityRecord::Work(work) => state.activities.push(work.into()),
            ActivityRecord::External { id, correlation } => {
                state.external.insert(correlation, id);
            }
            // requested only because external ids depend on them
            ActivityRecord::Call { .. } | ActivityRecord::Other => {}
        };
        // SAFETY: CUPTI steps through the records of its own buffer.
        unsafe { records::each(|next| (api.cuptiActivityGetNextRecord)(buffer, valid, next), take) };
    }
    if let Some(allocation) = allocation() {
        // SAFETY: allocated by `request_buffer` with the same layout, freed once.
        unsafe { std::alloc::dealloc(buffer, allocation) };
    }
}

/// Maps a graph node to its operation when it is captured or cloned into an executable graph.
unsafe extern "C" fn node_callback(_user: *mut c_void, domain: u32, id: u32, data: *const c_void) {
    let Ok(api) = api() else { return };
    // SAFETY: CUPTI's own argument.
    let found = unsafe { records::graph_node((domain, id), data.cast(), api.cuptiGetGraphNodeId) };
    let Some(found) = found else { return };
    let Ok(mut state) = STATE.lock() else { return };
    let Some(state) = state.as_mut() else { return };
    let (node, label) = match found {
        GraphNode::Created { node } => (node, LABEL.try_with(Cell::get).ok().flatten()),
        GraphNode::Cloned { original, node } => (node, state.nodes.get(&original).copied()),
    };
    if let Some(label) = label {
        state.nodes.insert(node, label);
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OperationSpan {
    /// Start of the first kernel (ns).
    pub start_ns: i64,
    /// End of the last kernel (ns).
    pub end_ns: i64,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CuptiReport {
    /// Number of kernels, copies and memsets recorded.
    pub activities: u64,
    /// Activities that belong to no operation or step.
    pub unassigned: u64,
    pub example: Option<String>,
    /// Records without times, because the GPU ran out of buffer space.
    pub untimed: u64,
    /// Records dropped by CUPTI or beyond the storage limit.
    pub dropped: u64,
    /// Operations of recorded steps without a record.
    pub missing: u64,
}

impl CuptiReport {
    /// One-sentence warning if anything is missing.
    pub fn warning(&self) -> Option<String> {
        let lost = self.unassigned + self.untimed + self.dropped + self.missing;
        let example = self.example.as_ref().map(|name| format!(" (the first: {name})"));
        (lost > 0).then(|| {
            format!(
                "CUPTI recorded {} activities; {} belong to no operation{}, {} have no times, {} records were \
                 dropped, {} operations have no record",
                self.activities,
                self.unassigned,
                example.unwrap_or_default(),
                self.untimed,
                self.dropped,
                self.missing
            )
        })
    }
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AssembledSteps {
    /// Spans per step; steps without spans are left out.
    pub steps: BTreeMap<StepId, BTreeMap<OperationLabel, OperationSpan>>,
    pub report: CuptiReport,
}

/// Assembles a recording. `expected(step)` lists the operations that launch something in a step.
pub fn assemble(
    recording: &CuptiRecording,
    expected: impl Fn(StepId) -> Vec<OperationLabel>,
) -> AssembledSteps {
    let mut result = AssembledSteps::default();
    let report = &mut result.report;
    report.dropped = recording.dropped;
    for activity in &recording.activities {
        report.activities += 1;
        let external = recording.external.get(&activity.correlation).map(|id| StepId::parse(*id));
        let label = match activity.graph_node {
            0 => external.and_then(|(_, label)| label),
            node => recording.nodes.get(&node).copied(),
        };
        // copies and memsets also happen before and between steps
        if external.is_none() && !activity.is_kernel {
            continue;
        }
        let (Some((step, _)), Some(label)) = (external, label) else {
            report.unassigned += 1;
            if report.example.is_none() {
                report.example.clone_from(&activity.name);
            }
            continue;
        };
        if activity.start_ns == 0 || activity.end_ns < activity.start_ns {
            report.untimed += 1;
            continue;
        }
        let host = |at: u64| recording.timeline.host_ns(at as i64 - recording.zero as i64);
        let (start_ns, end_ns) = (host(activity.start_ns), host(activity.end_ns));
        let span = result.steps.entry(step).or_default().entry(label);
        span.and_modify(|span| {
            span.start_ns = span.start_ns.min(start_ns);
            span.end_ns = span.end_ns.max(end_ns);
        })
        .or_insert(OperationSpan { start_ns, end_ns });
    }
    for (step, found) in &result.steps {
        let wanted: BTreeSet<OperationLabel> = expected(*step).into_iter().collect();
        result.report.missing += wanted.iter().filter(|label| !found.contains_key(label)).count() as u64;
    }
    result
}

/// Duration of one rank's step (ns), and ready, start and end times (ns) of its operations in plan order, `None` without
/// a record. A lane runs one operation at a time: a kernel that started early to wait for its predecessor counts
/// from the predecessor's end. An operation is ready when everything it reads is complete. `start_ns` is the start of
/// the step.
pub fn operation_times(
    skeleton: &Skeleton,
    found: &[Option<OperationSpan>],
    start_ns: i64,
) -> (i64, Vec<Option<[i64; 3]>>) {
    let step_end = found.iter().flatten().map(|span| span.end_ns).max().unwrap_or(start_ns);
    let mut lane_end = [i64::MIN; 2];
    let mut ends: Vec<Option<i64>> = Vec::with_capacity(found.len());
    let mut times = Vec::with_capacity(found.len());
    for (operation, span) in found.iter().enumerate() {
        let lane = &mut lane_end[skeleton.lanes[operation] as usize];
        let read = skeleton.reads_from[operation].iter().filter_map(|from| ends[*from as usize]).max();
        let time = span.map(|span| {
            let started = span.start_ns.max(*lane);
            let end_ns = span.end_ns.max(started);
            let ready_ns = read.unwrap_or(start_ns).min(started);
            *lane = end_ns;
            [ready_ns, started, end_ns]
        });
        // an empty share launches nothing: its readers depend on its inputs
        ends.push(time.map(|[.., end_ns]| end_ns).or(read));
        times.push(time);
    }
    (step_end - start_ns, times)
}

#[cfg(test)]
mod tests;
