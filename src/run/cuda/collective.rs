//! Collectives: the data that a step's collectives move (operands of the local ranks, elements, bytes), and their execution
//! by a kernel on one device, NCCL, or an emulated link.

use crate::comm::nccl::{NcclChoices, NcclCommunicator};
use crate::comm::{EmulatedLink, Exchange};
use crate::cuda::kernels::{KernelSource, geometry};
use crate::cuda::launches::OperationCall;
use crate::cuda::program::{GpuProgram, StepSize};
use base::error::{Error, Result};
use machine::driver::{Arguments, DevicePtr, Gpu, Memory, Stream, arguments};
use plan::{CommDType, Element, Kind, Operation, Rows, SCALED_TOGETHER, Step};

/// Assumed maximum of NCCL's CTAs for an all-reduce within a node of Hopper GPUs.
const MOST_BLOCKS: u32 = 24;

/// Bytes per rank and CTA of NCCL's LL ring: 512 threads with 8 bytes each.
const BYTES_A_RANK: u64 = 512 * 8;

/// Estimates the CTAs of NCCL's LL ring: one per 4 KB and rank, from the thresholds in the source of NCCL
/// 2.28.9.
fn estimate(bytes: u64, ranks: u32) -> u32 {
    bytes.div_ceil(BYTES_A_RANK * u64::from(ranks.max(1))).clamp(1, u64::from(MOST_BLOCKS)) as u32
}

/// CTAs of an all-reduce: NCCL's choice for this or the next larger measured message size, or for the largest
/// one; an estimate if NCCL reported nothing.
fn blocks(chosen: Option<&NcclChoices>, bytes: u64, ranks: u32) -> u32 {
    let measured = chosen.map(|chosen| &chosen.blocks);
    let nearest =
        measured.and_then(|blocks| blocks.range(bytes..).next().or_else(|| blocks.iter().next_back()));
    nearest.map_or_else(|| estimate(bytes, ranks), |(_, blocks)| (*blocks).max(1))
}

/// CTAs of an emulated collective: from the link's profile, else NCCL's estimate.
fn emulated_blocks(link: &EmulatedLink, bytes: u64, ranks: u32) -> u32 {
    link.blocks().unwrap_or_else(|| estimate(bytes, ranks))
}

/// Transport of an engine's collectives.
#[derive(Debug)]
pub enum CollectiveTransport {
    None,
    /// One kernel that reads the inputs of all ranks on the same device.
    Loopback,
    /// A kernel that lasts as long as the collective would over this link; the other ranks do not exist.
    Emulated(EmulatedLink),
    /// NCCL over this communicator, with NCCL's choices if they were probed.
    Nccl(NcclCommunicator, Option<Box<NcclChoices>>),
}

impl CollectiveTransport {
    pub fn as_str(&self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Loopback => "loopback",
            Self::Emulated(_) => "emulated",
            Self::Nccl(..) => "nccl",
        }
    }

    /// SMs occupied by an all-reduce in flight. A kernel that runs in parallel and plans for all SMs would
    /// wait for it with its last blocks.
    pub fn multiprocessors(&self, message_bytes: u64, ranks: u32) -> u32 {
        match self {
            Self::None | Self::Loopback => 0,
            Self::Emulated(link) => emulated_blocks(link, message_bytes, ranks),
            Self::Nccl(_, chosen) => blocks(chosen.as_deref(), message_bytes, ranks),
        }
    }
}

/// Allocates the scratch memory and the state of emulated collectives.
pub(super) fn emulated_scratch(gpu: &Gpu, stream: &Stream, bytes: u64) -> Result<[Memory; 2]> {
    let scratch = gpu.allocate(bytes, "scratch of emulated collectives")?;
    let state = gpu.allocate(16, "the state of emulated collectives")?;
    stream.fill(state.ptr(), 0, 16)?;
    Ok([scratch, state])
}

/// Device addresses of the operands of all local ranks: `[transfer][send, receive][rank]`.
#[derive(Debug)]
pub(super) struct LoopbackTable {
    memory: Memory,
    ranks: u64,
}

impl LoopbackTable {
    /// Builds the table for all transfers of a phase. Later work on `stream` sees it.
    pub fn new(gpu: &Gpu, stream: &Stream, transfers: &[Transfer]) -> Result<Self> {
        let addresses = transfers.iter().flat_map(|transfer| {
            let given = transfer.operands.iter().map(|(send, _)| send.0);
            given.chain(transfer.operands.iter().map(|(_, receive)| receive.0))
        });
        let bytes: Vec<u8> = addresses.flat_map(u64::to_ne_bytes).collect();
        let memory = gpu.allocate(bytes.len() as u64, "addresses of loopback sums")?;
        stream.copy_to_device(memory.ptr(), &bytes)?;
        let ranks = transfers.first().map_or(0, |transfer| transfer.operands.len() as u64);
        Ok(Self { memory, ranks })
    }

    /// Addresses of the send and the receive table of transfer `index`.
    pub fn addresses(&self, index: usize) -> [DevicePtr; 2] {
        let given = self.memory.ptr().offset(index as u64 * 2 * self.ranks * 8);
        [given, given.offset(self.ranks * 8)]
    }
}

/// Format of `quantize` messages: 8-bit numbers, then their scales.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EightBitFormat {
    /// True for e4m3, false for integers.
    pub is_float: bool,
    /// Columns of a row; each [`SCALED_TOGETHER`] of them share a scale.
    pub columns: u32,
}

impl EightBitFormat {
    /// Message size (bytes) of `numbers` elements in the layout of `kernels/eight.cu`, rounded up to 16.
    pub fn bytes(self, numbers: u64) -> u64 {
        let rows = numbers / u64::from(self.columns.max(1));
        let scales = rows * u64::from(self.columns.div_ceil(SCALED_TOGETHER));
        (crate::cuda::fp8::scales_at(numbers) + 4 * scales).next_multiple_of(16)
    }

    /// Appends the format arguments, which come last in its kernels.
    pub fn append(self, arguments: &mut Arguments, numbers: u64) {
        arguments.push(self.columns).push(u32::from(self.is_float)).push(numbers);
    }

    /// Sums `ranks` consecutive messages into `out`.
    pub(super) fn sum(
        self,
        kernels: KernelSource<'_>,
        messages: DevicePtr,
        out: DevicePtr,
        ranks: u32,
        numbers: u64,
        multiprocessors: u32,
    ) -> Result<OperationCall> {
        let mut arguments = arguments![messages, self.bytes(numbers), out, ranks];
        self.append(&mut arguments, numbers);
        let launch = geometry::elements(numbers, multiprocessors);
        kernels.call("sum_eight", launch, arguments).map(OperationCall::Kernel)
    }
}

/// All-gather of logits whose columns are sharded over ranks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct LogitGather {
    pub rows: u32,
    /// Columns per rank.
    pub each: u32,
}

impl LogitGather {
    /// Bytes sent per rank.
    fn bytes(self) -> u64 {
        4 * u64::from(self.rows) * u64::from(self.each)
    }

    /// Gather destination before reordering; a single row needs no reordering.
    fn gathered(self, gathered: Option<DevicePtr>, receive: DevicePtr) -> Result<DevicePtr> {
        if self.rows == 1 { Ok(receive) } else { gathered.ok_or_else(no_room) }
    }

    /// Kernel that reorders the gathered parts of `ranks` ranks, if needed.
    fn order(
        self,
        kernels: KernelSource<'_>,
        [from, to]: [DevicePtr; 2],
        ranks: u32,
        multiprocessors: u32,
    ) -> Result<Option<OperationCall>> {
        if self.rows == 1 {
            return Ok(None);
        }
        let words = u64::from(ranks) * u64::from(self.rows) * u64::from(self.each);
        // four words per thread, whereas `elements` assumes eight numbers
        let launch = geometry::elements(2 * words, multiprocessors);
        let arguments = arguments![from, to, ranks, self.each, self.rows];
        kernels.call("order_columns", launch, arguments).map(|call| Some(OperationCall::Kernel(call)))
    }
}

#[derive(Clone, Debug)]
pub(super) struct Transfer {
    pub exchange: Exchange,
    /// Send and receive address of each local rank.
    pub operands: Vec<(DevicePtr, DevicePtr)>,
    /// Elements of all ranks' rows.
    pub whole: u64,
    /// Elements of the largest share of rows of a rank.
    pub share: u64,
    pub eight: Option<EightBitFormat>,
    /// Columns of a sharded head, if gathered.
    pub columns: Option<LogitGather>,
    /// Message size according to the plan.
    pub message_bytes: u64,
}

impl Transfer {
    /// Returns the transfer of an operation, or `None` if it is not a collective.
    pub fn new(
        program: &GpuProgram,
        operation: &Operation,
        size: &StepSize,
        operands: Vec<(DevicePtr, DevicePtr)>,
    ) -> Option<Self> {
        let plan = &program.plan;
        let read = &plan.values[operation.reads.first()?.index()];
        let columns = read.columns as usize;
        let exchange = match operation.kind {
            Kind::AllReduce => Exchange::AllReduce,
            Kind::ReduceScatter => Exchange::ReduceScatter { columns },
            Kind::AllGather => Exchange::AllGather,
            _ => return None,
        };
        let part = size.of_group(plan.groups, operation.group);
        let numbers = |rows| u64::from(part.rows_of(rows, 0, plan.tp)) * u64::from(read.columns);
        // after position selection, there are fewer rows than tokens
        let all = if read.rows == Rows::Share { Rows::Tokens } else { read.rows };
        let (whole, share) = (numbers(all), numbers(Rows::Share));
        let eight = (read.element == Element::Eight).then(|| program.eight(read.columns));
        let message_bytes = program.message_bytes(operation, size);
        let columns = program
            .gathers_columns(operation)
            .then(|| LogitGather { rows: part.rows_of(read.rows, 0, plan.tp), each: read.columns });
        Some(Self { exchange, operands, whole, share, eight, columns, message_bytes })
    }

    /// Kernel for ranks on one device; `from` and `to` are tables of their addresses.
    pub fn on_one_device(
        &self,
        kernels: KernelSource<'_>,
        [from, to]: [DevicePtr; 2],
        multiprocessors: u32,
    ) -> Result<Vec<OperationCall>> {
        let mut arguments = arguments![from, to, self.operands.len() as u32];
        let name = match (self.columns, self.eight, self.exchange) {
            (Some(columns), ..) => {
                let words = u64::from(columns.rows) * u64::from(columns.each);
                arguments.push(columns.each).push(words * self.operands.len() as u64);
                "loopback_columns"
            }
            (None, Some(eight), _) => {
                eight.append(&mut arguments, self.whole);
                "loopback_eight"
            }
            (None, None, Exchange::AllReduce) => {
                arguments.push(self.whole);
                "loopback_sum"
            }
            (None, None, exchange) => {
                arguments.push(self.share).push(self.whole);
                if exchange == Exchange::AllGather { "loopback_gather" } else { "loopback_scatter" }
            }
        };
        let launch = geometry::elements(self.whole, multiprocessors);
        Ok(vec![OperationCall::Kernel(kernels.call(name, launch, arguments)?)])
    }

    /// NCCL calls and the kernels after them. NCCL cannot sum 8-bit messages, so they are gathered at
    /// `gathered` first.
    pub fn over_nccl(
        &self,
        kernels: KernelSource<'_>,
        gathered: Option<DevicePtr>,
        ranks: u32,
        multiprocessors: u32,
    ) -> Result<Vec<OperationCall>> {
        let (send, receive) = self.one()?;
        if let Some(columns) = self.columns {
            let to = columns.gathered(gathered, receive)?;
            let (exchange, count) = (Exchange::AllGather, columns.bytes());
            let gather = OperationCall::Exchange { exchange, send, receive: to, count, bytes: true };
            let order = columns.order(kernels, [to, receive], ranks, multiprocessors)?;
            return Ok([gather].into_iter().chain(order).collect());
        }
        let Some(eight) = self.eight else {
            let exchange = self.exchange;
            let count = if exchange == Exchange::AllReduce { self.whole } else { self.share };
            return Ok(vec![OperationCall::Exchange { exchange, send, receive, count, bytes: false }]);
        };
        let messages = gathered.ok_or_else(no_room)?;
        let (exchange, count) = (Exchange::AllGather, eight.bytes(self.whole));
        let gather = OperationCall::Exchange { exchange, send, receive: messages, count, bytes: true };
        Ok(vec![gather, eight.sum(kernels, messages, receive, ranks, self.whole, multiprocessors)?])
    }

    pub fn lasts_ns(&self, link: &EmulatedLink) -> u64 {
        self.exchange.link_ns(link, self.message_bytes).max(0) as u64
    }

    /// Kernel that lasts as long as the collective over a link, with its scratch and state, followed by the
    /// unpacking of an 8-bit message gathered at `gathered`. `launch_ns` is the launch overhead to subtract.
    pub fn emulated(
        &self,
        kernels: KernelSource<'_>,
        (program, link, launch_ns): (&GpuProgram, &EmulatedLink, u64),
        [scratch, state]: [DevicePtr; 2],
        gathered: Option<DevicePtr>,
        multiprocessors: u32,
    ) -> Result<Vec<OperationCall>> {
        let (send, receive) = self.one()?;
        let ranks = program.plan.tp;
        let (to, numbers) = match (self.eight, self.columns) {
            (Some(eight), _) => {
                (gathered.ok_or_else(no_room)?, eight.bytes(self.whole) / program.dtype.bytes())
            }
            (None, Some(columns)) => {
                (columns.gathered(gathered, receive)?, columns.bytes() / program.dtype.bytes())
            }
            (None, None) if self.exchange == Exchange::AllReduce => (receive, self.whole),
            (None, None) => (receive, self.share),
        };
        let copies = if self.exchange == Exchange::AllGather { ranks } else { 1 };
        // a ring forwards data that neither comes from nor goes to this rank
        let passed = |numbers: u64| numbers * u64::from(ranks.saturating_sub(2)) / u64::from(ranks);
        let more = match self.exchange {
            Exchange::AllReduce => passed(numbers),
            Exchange::ReduceScatter { .. } => passed(self.whole),
            Exchange::AllGather => 0,
        };
        let lasts = self.lasts_ns(link).saturating_sub(launch_ns);
        let arguments = arguments![send, to, scratch, numbers, copies, more, lasts, state];
        let launch = geometry::emulated_collective(emulated_blocks(link, self.message_bytes, ranks));
        let waits = OperationCall::Kernel(kernels.call("emulated_collective", launch, arguments)?);
        let unpacked =
            self.eight.map(|eight| eight.sum(kernels, to, receive, 1, self.whole, multiprocessors));
        let order =
            self.columns.map(|columns| columns.order(kernels, [to, receive], ranks, multiprocessors));
        let order = order.transpose()?.flatten();
        [Ok(waits)].into_iter().chain(unpacked).chain(order.map(Ok)).collect()
    }

    fn one(&self) -> Result<(DevicePtr, DevicePtr)> {
        match self.operands.as_slice() {
            &[operands] => Ok(operands),
            _ => Err(Error::failed("a collective with other ranks has one local rank's operands")),
        }
    }
}

fn no_room() -> Error {
    Error::failed("messages that are gathered before use, and no room for those of the other ranks")
}

impl GpuProgram {
    /// Format of 8-bit messages with `columns` columns per row.
    pub(super) fn eight(&self, columns: u32) -> EightBitFormat {
        EightBitFormat { is_float: self.comm_dtype == CommDType::F8, columns }
    }

    pub(super) fn message_bytes(&self, operation: &Operation, size: &StepSize) -> u64 {
        let part = size.of_group(self.plan.groups, operation.group);
        // the bytes per row do not depend on the kind of rows
        let rows = Step::prefill(part.sequences.into(), part.tokens.into());
        operation.cost.message_bytes.at(&rows)
    }

    fn gathers_columns(&self, operation: &Operation) -> bool {
        let of_columns = || {
            operation
                .reads
                .first()
                .is_some_and(|read| self.plan.values[read.index()].rows != Rows::Share)
        };
        operation.kind == Kind::AllGather && of_columns()
    }

    /// Size of a rank's largest part of sharded logits that needs reordering (bytes); 0 if none does.
    pub(super) fn columns_bytes(&self, size: &StepSize) -> u64 {
        let gathers = self.plan.operations.iter().filter(|operation| self.gathers_columns(operation));
        let bytes = gathers.map(|operation| {
            let read = &self.plan.values[operation.reads[0].index()];
            let rows =
                size.of_group(self.plan.groups, operation.group).rows_of(read.rows, 0, self.plan.tp);
            let columns = LogitGather { rows, each: read.columns };
            if rows > 1 { columns.bytes() } else { 0 }
        });
        bytes.max().unwrap_or(0)
    }

    /// Size of the largest 8-bit message in a step of this size (bytes); 0 if there is none.
    pub(super) fn eight_bytes(&self, size: &StepSize) -> u64 {
        let sent = self.plan.values.iter().filter(|value| value.element == Element::Eight);
        let bytes = sent.map(|value| {
            let size = size.of_group(self.plan.groups, value.group);
            self.eight(value.columns).bytes(u64::from(size.rows()) * u64::from(value.columns))
        });
        bytes.max().unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn small_messages_take_few_blocks() {
        // 70B: 8192 numbers of 16 bits a row
        assert_eq!([1, 16_384, 16 * 16_384, 1 << 30].map(|bytes| estimate(bytes, 8)), [1, 1, 8, 24]);
        assert_eq!(estimate(16_384, 2), 2);
        let link = EmulatedLink::Formula { alpha_us: 1.0, gb_s: 1.0 };
        assert_eq!(CollectiveTransport::Emulated(link).multiprocessors(16_384, 2), 2);
        assert_eq!(CollectiveTransport::Loopback.multiprocessors(16_384, 2), 0);
    }

    #[test]
    fn what_nccl_told_counts_before_any_estimate() {
        let mut chosen = NcclChoices::default();
        assert_eq!(blocks(None, 16 * 16_384, 8), 8);
        assert_eq!(blocks(Some(&chosen), 16 * 16_384, 8), 8);
        chosen.blocks = [(16_384, 2), (1 << 24, 16)].into();
        let chosen = |bytes| blocks(Some(&chosen), bytes, 8);
        assert_eq!([1, 16_384, 16_385, 1 << 30].map(chosen), [2, 2, 16, 16]);
    }
}
