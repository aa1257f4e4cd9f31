//! Steps: bound to memory, tried, captured, replayed or enqueued.

use std::collections::HashMap;
use std::sync::Arc;

use serde::Serialize;

use super::setup::{can_overlap, collective_sms};
use super::{Engine, PhaseState};
use crate::cuda::collective::{CollectiveTransport, Transfer};
use crate::cuda::cupti;
use crate::cuda::instrumented::Stamps;
use crate::cuda::kernels::KernelSource;
use crate::cuda::launches::{Binder, OperationCall, OverlappedSms};
use crate::cuda::matmul::MatvecChoice;
use crate::cuda::program::{GpuProgram, StepSize};
use crate::cuda::schedule::{Schedule, StreamId, StreamOperation};
use crate::cuda::timing::clock::{LIMIT, median_us, rounds_us};
use crate::cuda::timing::{StepEvents, Tick};
use crate::recorder::range;
use base::error::{Error, Result};
use machine::driver::{DevicePtr, Event, Graph, GraphExec, Memory, Stream};
use plan::{Kind, Lane, Phase};
use table::shared_gpu;

/// A step ready to run: bound to memory, scheduled, and captured unless eager.
pub struct PreparedStep {
    phase: Phase,
    size: StepSize,
    schedule: Schedule,
    events: Vec<Event>,
    /// Calls per local rank and operation.
    calls: Vec<Vec<Vec<OperationCall>>>,
    /// Calls per collective, launched once for all local ranks.
    collectives: HashMap<usize, Vec<OperationCall>>,
    /// Timing events by local rank and mark.
    marks: Vec<Vec<Event>>,
    graph: Option<(Graph, GraphExec)>,
    /// Launch that copies the kernels' stamps at the end.
    keep: Vec<OperationCall>,
}

/// Timing of a step's operations; off by default.
#[derive(Clone, Copy, Default)]
pub struct Timing<'a> {
    /// Events on every local rank.
    pub marks: Option<&'a StepEvents>,
    /// Stamps written by the kernels of one local rank.
    pub stamps: Option<&'a Stamps>,
}

impl PreparedStep {
    /// Timing events of a local rank, by mark; each run records them again.
    pub fn marks(&self, local_rank: usize) -> &[Event] {
        self.marks.get(local_rank).map_or(&[], Vec::as_slice)
    }

    /// Operations for which a local rank launches something.
    pub fn launches(&self, local_rank: usize) -> Vec<u32> {
        let calls = self.calls.get(local_rank).map_or(&[][..], Vec::as_slice).iter().enumerate();
        let launched =
            calls.filter(|(at, calls)| !calls.is_empty() || self.collectives.contains_key(at));
        launched.map(|(at, _)| at as u32).collect()
    }

    /// True if `rank` (global index) has rows of the operation's output, or takes part in it as a collective.
    pub fn concerns(&self, program: &GpuProgram, operation: u32, rank: u32) -> bool {
        let (plan, at) = (&program.plan, operation as usize);
        let Some(found) = plan.operations.get(at) else { return false };
        let rows = found.writes.first().map(|written| plan.values[written.index()].rows);
        let size = self.size.of_group(plan.groups, found.group);
        self.collectives.contains_key(&at)
            || rows.is_none_or(|rows| size.rows_of(rows, rank, plan.tp) > 0)
    }

    /// Captured graph; `None` if the step is eager.
    pub fn graph(&self) -> Option<&Graph> {
        self.graph.as_ref().map(|(graph, _)| graph)
    }
}

impl Engine {
    /// Creates a decode step, captured unless graphs are off. Runs the step once before the first capture,
    /// which discards generated tokens.
    pub fn decode_step(&self, timing: Timing<'_>) -> Result<PreparedStep> {
        let size = StepSize::decode(self.setup.sequences);
        let mut step = self.step(Phase::Decode, &size, timing)?;
        // stamped kernels are different kernels and need a trial run of their own
        if (self.setup.graph || shared_gpu::is_on())
            && (!self.tried.replace(true) || timing.stamps.is_some())
        {
            self.try_out(&mut step)?;
        }
        if self.setup.graph {
            self.capture(&mut step)?;
        }
        Ok(step)
    }

    /// Creates an eager prefill step with `tokens` new tokens for each of `sequences` sequences, starting at
    /// `first_sequence`. Returns an error if it exceeds the engine's prefill size.
    pub fn prefill_step(
        &self,
        first_sequence: u32,
        sequences: u32,
        tokens: u32,
        timing: Timing<'_>,
    ) -> Result<PreparedStep> {
        let most = u64::from(self.setup.prefill.0) * u64::from(self.setup.prefill.1);
        let rows = u64::from(sequences) * u64::from(tokens);
        if rows > most || first_sequence + sequences > self.setup.sequences {
            return Err(Error::failed(format!(
                "a prefill of {rows} rows (sequences {first_sequence}..{}) exceeds the engine's {most} rows and \
                 {} sequences",
                first_sequence + sequences,
                self.setup.sequences
            )));
        }
        let size = StepSize { first_sequence, sequences, first_token: 0, tokens };
        self.step(Phase::Prefill, &size, timing)
    }

    /// Calls of every local rank and operation of a step, with products as `matvec` selects. Compiles kernels
    /// and selects algorithms on the way.
    pub(in crate::cuda) fn bind(
        &self,
        kernels: KernelSource<'_>,
        phase: Phase,
        size: &StepSize,
        matvec: &MatvecChoice,
    ) -> Result<Vec<Vec<Vec<OperationCall>>>> {
        let program = self.programs.program(phase);
        let state = self.state(phase);
        let beside = program.beside_collectives();
        let mut calls = Vec::with_capacity(self.ranks.len());
        for (rank, activations) in self.ranks.iter().zip(&state.activations) {
            let tokens = match phase {
                Phase::Prefill => self.prompt.ptr(),
                Phase::Decode => rank.state.tokens.ptr(),
            };
            let binder = Binder {
                kernels,
                program,
                shape: &self.setup.model.shape,
                rank,
                activations,
                sampling: self.setup.sampling,
                matvec,
                tokens,
                batch: self.setup.sequences,
                capacity: self.setup.capacity,
                multiprocessors: self.multiprocessors(),
                gpu_multiprocessors: self.gpu.info().multiprocessors,
                overlapped: OverlappedSms {
                    sms: self.collective_sms(size.of_group(program.plan.groups, 0).rows()),
                    is_overlapped: &beside,
                },
                programmatic: self.programmatic(),
                one_shot: self.one_shot.as_deref().filter(|_| phase == Phase::Decode),
            };
            calls.push(binder.bind(size)?);
        }
        for call in calls.iter().flatten().flatten() {
            match call {
                OperationCall::MatMul { shape, .. } => self.blas.prepare(shape)?,
                OperationCall::PerExpert(experts) => experts.prepare(&self.blas)?,
                OperationCall::Kernel(_) | OperationCall::Exchange { .. } => {}
            }
        }
        Ok(calls)
    }

    /// Binds a step to memory. Everything that is forbidden during a capture happens here.
    fn step(&self, phase: Phase, size: &StepSize, timing: Timing<'_>) -> Result<PreparedStep> {
        let is_stamped = timing.stamps.is_some();
        let kernels = if is_stamped { self.kernels.stamped() } else { self.kernels.plain() };
        let (program, state) = (self.programs.program(phase), self.state(phase));
        let mut calls = self.bind(kernels, phase, size, &self.setup.matvec)?;
        let mut collectives = self.collectives(kernels, program, state, size)?;
        if phase == Phase::Decode && self.one_shot.is_some() {
            // one-shot sums are calls of each rank
            collectives.retain(|at, _| program.plan.operations[*at].kind == Kind::AllGather);
        }
        let (schedule, marks) = match timing.marks {
            None => (state.schedule.clone(), Vec::new()),
            Some(marks) => {
                let at = |place| marks.at(place);
                let schedule = Schedule::new(&program.plan, &self.layout, Some(&at));
                let events =
                    || (0..marks.count()).map(|_| self.gpu.event(true)).collect::<Result<Vec<_>>>();
                (schedule, (0..self.ranks.len()).map(|_| events()).collect::<Result<_>>()?)
            }
        };
        // an operation fused into another kernel launches nothing
        let is_launched = |rank: u32, operation: u32| {
            let operation = operation as usize;
            collectives.contains_key(&operation) || !calls[rank as usize][operation].is_empty()
        };
        let follows = schedule.early_starts(is_launched);
        // apply early starts in all plans alike, with or without overlapping collectives
        for (rank, calls) in calls.iter_mut().enumerate() {
            for operation in 0..calls.len() {
                let before = follows.get(&(rank as u32, operation as u32));
                let own = before
                    .and_then(|before| calls[*before as usize].last())
                    .is_some_and(|before| matches!(before, OperationCall::Kernel(_)));
                for (at, call) in calls[operation].iter_mut().enumerate() {
                    if let OperationCall::Kernel(kernel) = call {
                        kernel.launch.programmatic &= at > 0 || own;
                    }
                }
            }
        }
        let mut keep = Vec::new();
        if let Some(stamps) = timing.stamps {
            let of_rank = calls.iter_mut().flat_map(|calls| calls.iter_mut().enumerate());
            let all = of_rank.chain(collectives.iter_mut().map(|(at, calls)| (*at, calls)));
            for (operation, calls) in all {
                let launched = std::mem::take(calls);
                *calls = stamps.add_stamps(&self.kernels, operation, launched)?;
            }
            keep.push(stamps.keep_step(&self.kernels)?);
        }
        let events = (0..schedule.events).map(|_| self.gpu.event(false)).collect::<Result<_>>()?;
        let size = *size;
        Ok(PreparedStep { phase, size, schedule, events, calls, collectives, marks, graph: None, keep })
    }

    /// Names of the all-reduces, for records.
    pub fn collectives_in_words(&self) -> String {
        let transport = self.transport.as_str();
        match &self.one_shot {
            Some(_) => format!("{}; prefill: {transport}", self.setup.collective),
            None => transport.to_owned(),
        }
    }

    /// True if kernels may start before their predecessors end.
    pub fn programmatic(&self) -> bool {
        self.setup.tuning.programmatic && can_overlap(&self.gpu)
    }

    /// SMs that kernels leave to an overlapping collective of `rows` rows.
    pub fn collective_sms(&self, rows: u32) -> u32 {
        collective_sms(&self.setup, &self.transport, rows)
    }

    pub(in crate::cuda) fn state(&self, phase: Phase) -> &PhaseState {
        match phase {
            Phase::Prefill => &self.prefill,
            Phase::Decode => &self.decode,
        }
    }

    fn collectives(
        &self,
        kernels: KernelSource<'_>,
        program: &GpuProgram,
        state: &PhaseState,
        size: &StepSize,
    ) -> Result<HashMap<usize, Vec<OperationCall>>> {
        let multiprocessors = self.gpu.info().multiprocessors;
        let gathered = self.gathered.as_ref().map(Memory::ptr);
        let calls = |index: usize, transfer: &Transfer| {
            if let Some(emulated) = self.emulated_calls(kernels, program, transfer)? {
                return Ok(emulated);
            }
            match &state.table {
                Some(table) => transfer.on_one_device(kernels, table.addresses(index), multiprocessors),
                None => transfer.over_nccl(kernels, gathered, self.setup.tp, multiprocessors),
            }
        };
        let all = transfers(program, &state.activations, size);
        all.iter()
            .enumerate()
            .map(|(index, (at, transfer))| Ok((*at, calls(index, transfer)?)))
            .collect()
    }

    /// Calls of a collective over the emulated link; `None` if none is emulated.
    fn emulated_calls(
        &self,
        kernels: KernelSource<'_>,
        program: &GpuProgram,
        transfer: &Transfer,
    ) -> Result<Option<Vec<OperationCall>>> {
        let (CollectiveTransport::Emulated(link), Some(scratch)) = (&self.transport, &self.emulated)
        else {
            return Ok(None);
        };
        let (link, places) = ((program, link, self.link_launch_ns), scratch.each_ref().map(Memory::ptr));
        let gathered = self.gathered.as_ref().map(Memory::ptr);
        let multiprocessors = self.gpu.info().multiprocessors;
        transfer.emulated(kernels, link, places, gathered, multiprocessors).map(Some)
    }

    /// Runs a step once outside a capture. Libraries load kernels at the first launch, which a capture may
    /// forbid. Loading may also wait for the whole GPU, so ranks that share one skip their exchanges to avoid
    /// a deadlock.
    pub(in crate::cuda) fn try_out(&self, step: &mut PreparedStep) -> Result<()> {
        self.forget()?;
        if step.phase == Phase::Prefill {
            self.main().fill(self.prompt.ptr(), 0, self.prompt.bytes())?;
        }
        self.without_peers.set(shared_gpu::is_on());
        let enqueued = self.enqueue(step);
        self.without_peers.set(false);
        enqueued?;
        self.wait_idle(&format!("the first {} step", step.phase.as_str()))?;
        self.reset()
    }

    fn capture(&self, step: &mut PreparedStep) -> Result<()> {
        let main = self.main();
        let graph = main.capture(|| self.enqueue(step))?;
        let exec = graph.instantiate()?;
        exec.upload(main)?;
        step.graph = Some((graph, exec));
        Ok(())
    }

    /// Launches the step's graph, or enqueues its calls if eager. Returns before the step ends, so GPU
    /// failures surface in a later call.
    pub fn run(&self, step: &mut PreparedStep) -> Result<()> {
        match &step.graph {
            Some((_, exec)) => exec.launch(self.main()),
            None => self.enqueue(step),
        }
    }

    fn enqueue(&self, step: &mut PreparedStep) -> Result<()> {
        let PreparedStep { phase, schedule, events, calls, collectives, marks, keep, .. } = step;
        let names = Arc::clone(&self.programs.program(*phase).names);
        let plan = &self.programs.program(*phase).plan;
        for item in &schedule.items {
            match *item {
                StreamOperation::Record { stream, event } => {
                    self.streams[&stream].record(&events[event as usize])?;
                }
                StreamOperation::Wait { stream, event } => {
                    self.streams[&stream].wait(&events[event as usize])?;
                }
                StreamOperation::Mark { stream, mark } => {
                    let events = marks.get(stream.rank as usize);
                    let event =
                        events.and_then(|events| events.get(mark as usize)).ok_or_else(|| {
                            Error::failed(format!(
                                "timing mark {mark} of rank {} has no event",
                                stream.rank
                            ))
                        })?;
                    self.streams[&stream].record_external(event)?;
                }
                StreamOperation::Launch { stream, operation } => {
                    let rank = self.ranks.get(stream.rank as usize).map_or(0, |rank| rank.index);
                    let _belongs =
                        cupti::operation(cupti::OperationLabel { rank: rank as u8, operation });
                    let operation = operation as usize;
                    let _range = range(&names[operation]);
                    let on = &self.streams[&stream];
                    let launched = match collectives.get_mut(&operation) {
                        Some(calls) => self.launch(on, calls),
                        None => self.launch(on, &mut calls[stream.rank as usize][operation]),
                    };
                    launched.map_err(|error| {
                        let name = &plan.operations[operation].name;
                        Error::failed(format!("{} {name}: {error}", phase.as_str()))
                    })?;
                }
            }
        }
        // all streams have joined the main stream
        self.launch(self.main(), keep)
    }

    pub(in crate::cuda) fn launch(&self, stream: &Stream, calls: &mut [OperationCall]) -> Result<()> {
        for call in calls {
            match call {
                OperationCall::Kernel(kernel) => kernel.enqueue(stream)?,
                OperationCall::MatMul { shape, x, w, out } => {
                    self.blas.matmul(stream, shape, *x, *w, *out)?
                }
                OperationCall::PerExpert(experts) => experts.enqueue(self, stream)?,
                OperationCall::Exchange { .. } if self.without_peers.get() => {}
                OperationCall::Exchange { exchange, send, receive, count, bytes } => {
                    let CollectiveTransport::Nccl(communicator, _) = &self.transport else {
                        return Err(Error::failed(
                            "a collective in a plan without an NCCL communicator",
                        ));
                    };
                    let dtype = (!*bytes).then_some(self.setup.dtype);
                    // SAFETY: both buffers hold `count` elements in the setup's format, or bytes, for all
                    // ranks where the exchange gathers. They are on the communicator's GPU and live as long
                    // as the engine, like the stream.
                    unsafe {
                        communicator.exchange(
                            *exchange,
                            [send.0, receive.0],
                            *count as usize,
                            dtype,
                            stream.raw().cast(),
                        )?;
                    }
                }
            }
        }
        Ok(())
    }
}

/// Collectives of a phase by operation index, for a step of this size.
pub(super) fn transfers(
    program: &GpuProgram,
    activations: &[Vec<Memory>],
    size: &StepSize,
) -> Vec<(usize, Transfer)> {
    let operations = program.plan.operations.iter().enumerate().filter(|(_, o)| o.kind.is_collective());
    operations
        .filter_map(|(at, operation)| {
            let [from, to] =
                [operation.reads[0], operation.writes[0]].map(|value| program.buffer(value));
            let operands = activations.iter().map(|of| (of[from].ptr(), of[to].ptr())).collect();
            Some((at, Transfer::new(program, operation, size, operands)?))
        })
        .collect()
}

const REPLAYS: usize = 2;

/// Calibration of an emulated link on this GPU.
#[derive(Clone, Debug, Serialize)]
pub struct LinkCheck {
    /// Resolution of the clock the kernel waits on.
    pub tick: Tick,
    /// Launch overhead per collective in a back-to-back sequence (us).
    pub launch_us: f64,
    /// Back-to-back collectives of each message size of a step.
    pub checked: Vec<EmulatedLatency>,
}

#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct EmulatedLatency {
    pub bytes: u64,
    /// Latency according to the link (us).
    pub target_us: f64,
    /// Measured latency per collective (us).
    pub took_us: f64,
}

impl Engine {
    /// Times emulated collectives at this engine's message sizes and subtracts their launch overhead in steps
    /// created later. Returns `None` if nothing is emulated. Overwrites activations.
    pub(in crate::cuda) fn check_link(&mut self) -> Result<Option<LinkCheck>> {
        let CollectiveTransport::Emulated(link) = &self.transport else { return Ok(None) };
        let link = link.clone();
        let tick = Tick::measure(&self.gpu, self.for_collectives(), &self.kernels.get("clock_probe")?)?;
        let decode = StepSize::decode(self.setup.sequences);
        let prefill = StepSize::prefill(self.setup.prefill);
        let mut all: Vec<(Phase, Transfer)> = Vec::new();
        for (phase, size) in [(Phase::Decode, decode), (Phase::Prefill, prefill)] {
            let activations = &self.state(phase).activations;
            for (_, transfer) in transfers(self.programs.program(phase), activations, &size) {
                let same = |(_, known): &(Phase, Transfer)| {
                    (known.message_bytes, known.exchange) == (transfer.message_bytes, transfer.exchange)
                };
                if !all.iter().any(same) {
                    all.push((phase, transfer));
                }
            }
        }
        let target = |transfer: &Transfer| transfer.lasts_ns(&link) as f64 / 1e3;
        if let Some((phase, transfer)) = all.first() {
            let more_us = self.time_emulated(*phase, transfer)? - target(transfer);
            self.link_launch_ns = (more_us * 1e3).max(0.0).round() as u64;
        }
        let check = |(phase, transfer): &(Phase, Transfer)| {
            let took_us = self.time_emulated(*phase, transfer)?;
            Ok(EmulatedLatency { bytes: transfer.message_bytes, target_us: target(transfer), took_us })
        };
        let checked = all.iter().map(check).collect::<Result<_>>()?;
        Ok(Some(LinkCheck { tick, launch_us: self.link_launch_ns as f64 / 1e3, checked }))
    }

    /// Graph latencies (us) of an emulated collective of a decode step, of a chain of products of about the
    /// same length, and of both in parallel. Returns `None` if nothing is emulated. Overwrites activations.
    pub(in crate::cuda) fn time_beside(&self) -> Result<Option<[f64; 3]>> {
        let program = &self.programs.decode;
        let size = StepSize::decode(self.setup.sequences);
        let all = transfers(program, &self.state(Phase::Decode).activations, &size);
        let Some((_, transfer)) = all.first() else { return Ok(None) };
        let kernels = self.kernels.plain();
        let Some(mut collective) = self.emulated_calls(kernels, program, transfer)? else {
            return Ok(None);
        };
        let mut chain = Vec::new();
        for product in self.products()?.iter().filter(|product| !product.product.logits) {
            for weight in &product.weights {
                chain.push(product.by_own_kernel(kernels, *weight)?);
            }
        }
        let communication_us = self.graph_us(&mut collective, &mut [], 0)?;
        let one_us = self.graph_us(&mut [], &mut chain, 1)?;
        let times = (communication_us / one_us.max(1.0)).ceil().max(1.0) as usize;
        let products_us = self.graph_us(&mut [], &mut chain, times)?;
        let both_us = self.graph_us(&mut collective, &mut chain, times)?;
        Ok(Some([communication_us, products_us, both_us]))
    }

    /// Latency of a graph (us) with `beside` on the communication stream and `times` repetitions of `calls`
    /// on the compute stream.
    pub(in crate::cuda) fn graph_us(
        &self,
        beside: &mut [OperationCall],
        calls: &mut [OperationCall],
        times: usize,
    ) -> Result<f64> {
        let (main, comm) = (self.main(), self.for_collectives());
        // libraries load kernels at the first launch, which a capture may forbid
        self.launch(comm, beside)?;
        self.launch(main, calls)?;
        main.synchronize_within(LIMIT)?;
        comm.synchronize_within(LIMIT)?;
        let (fork, join) = (self.gpu.event(false)?, self.gpu.event(false)?);
        let graph = main.capture(|| {
            main.record(&fork)?;
            comm.wait(&fork)?;
            self.launch(comm, beside)?;
            (0..times).try_for_each(|_| self.launch(main, calls))?;
            comm.record(&join)?;
            main.wait(&join)
        })?;
        let graph = graph.instantiate()?;
        graph.upload(main)?;
        rounds_us(&self.gpu, main, REPLAYS, |_| graph.launch(main))
    }

    fn for_collectives(&self) -> &Stream {
        self.streams.get(&StreamId { rank: 0, lane: Lane::Comm }).unwrap_or_else(|| self.main())
    }

    /// Latency of one of several back-to-back emulated collectives (us).
    fn time_emulated(&self, phase: Phase, transfer: &Transfer) -> Result<f64> {
        let program = self.programs.program(phase);
        let Some(mut calls) = self.emulated_calls(self.kernels.plain(), program, transfer)? else {
            return Ok(0.0);
        };
        // unpacking an 8-bit message is not part of the link
        calls.truncate(1);
        let stream = self.for_collectives();
        median_us(&self.gpu, stream, &[DevicePtr(0)], |_| self.launch(stream, &mut calls))
    }
}
