//! What a collective of the plan moves in a step: operands of the local ranks, numbers, bytes; and the kernels that
//! execute it where ranks share a device, are emulated, or send messages in 8 bits.

use super::collective::emulated_blocks;
use super::kernels::{Source, geometry};
use super::launches::Call;
use super::program::Program;
use super::size::StepSize;
use crate::comm::{EmulatedLink, Exchange};
use base::error::{Error, Result};
use machine::driver::{Arguments, DevicePtr};
use plan::{CommDType, Element, Kind, Operation, Rows, SCALED_TOGETHER, Step};

/// Messages of `quantize`: numbers in 8 bits, then their scales.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Eight {
    /// Whether numbers are of e4m3, else integers.
    pub is_float: bool,
    /// Columns of a row, of which each [`SCALED_TOGETHER`] share a scale.
    pub columns: u32,
}

impl Eight {
    /// Bytes of a message of so many numbers as `kernels/eight.cu` lays it out, to the next 16.
    pub fn bytes(self, numbers: u64) -> u64 {
        let rows = numbers / u64::from(self.columns.max(1));
        let scales = rows * u64::from(self.columns.div_ceil(SCALED_TOGETHER));
        (numbers.next_multiple_of(16) + 4 * scales).next_multiple_of(16)
    }

    /// What its kernels are told of it, last of all.
    pub fn tell(self, arguments: &mut Arguments, numbers: u64) {
        arguments.u32(self.columns).u32(u32::from(self.is_float)).u64(numbers);
    }

    /// `out` = the sum of so many messages, one behind the other.
    pub fn sum(
        self,
        kernels: Source<'_>,
        messages: DevicePtr,
        out: DevicePtr,
        ranks: u32,
        numbers: u64,
        multiprocessors: u32,
    ) -> Result<Call> {
        let mut arguments = Arguments::new();
        arguments.pointer(messages).u64(self.bytes(numbers)).pointer(out).u32(ranks);
        self.tell(&mut arguments, numbers);
        let launch = geometry::elements(numbers, multiprocessors);
        Ok(Call::Kernel { function: kernels.get("sum_eight")?, launch, arguments })
    }
}

/// Logits of which each rank has its part of the columns, and which all ranks get.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Columns {
    /// Rows of logits.
    pub rows: u32,
    /// Columns of a rank.
    pub each: u32,
}

impl Columns {
    /// Bytes that a rank gives.
    fn bytes(self) -> u64 {
        4 * u64::from(self.rows) * u64::from(self.each)
    }

    /// Where they are gathered that are to be put into order: one row lies as it should.
    fn gathered(self, gathered: Option<DevicePtr>, receive: DevicePtr) -> Result<DevicePtr> {
        if self.rows == 1 { Ok(receive) } else { gathered.ok_or_else(no_room) }
    }

    /// What is left to do behind a gather of `ranks` parts.
    fn order(
        self,
        kernels: Source<'_>,
        [from, to]: [DevicePtr; 2],
        ranks: u32,
        multiprocessors: u32,
    ) -> Result<Option<Call>> {
        if self.rows == 1 {
            return Ok(None);
        }
        let mut arguments = Arguments::new();
        arguments.pointer(from).pointer(to).u32(ranks).u32(self.each).u32(self.rows);
        let words = u64::from(ranks) * u64::from(self.rows) * u64::from(self.each);
        // four words a thread, where numbers of activations are eight
        let launch = geometry::elements(2 * words, multiprocessors);
        Ok(Some(Call::Kernel { function: kernels.get("order_columns")?, launch, arguments }))
    }
}

/// One collective in a step of some size.
#[derive(Clone, Debug)]
pub(super) struct Transfer {
    pub exchange: Exchange,
    /// For each local rank what it gives, and where it gets the result.
    pub operands: Vec<(DevicePtr, DevicePtr)>,
    /// Numbers of all ranks' rows.
    pub whole: u64,
    /// Numbers of a rank's share of the rows, of the largest share.
    pub share: u64,
    /// The format of messages in 8 bits.
    pub eight: Option<Eight>,
    /// The columns of a sharded head.
    pub columns: Option<Columns>,
    /// Bytes of the plan's message.
    bytes: u64,
}

impl Transfer {
    /// What an operation moves in a step of this size, if it is a collective.
    pub fn of(
        program: &Program,
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
        // where positions were selected before, all rows are fewer than the tokens
        let all = if read.rows == Rows::Share { Rows::Tokens } else { read.rows };
        let (whole, share) = (numbers(all), numbers(Rows::Share));
        let eight = (read.element == Element::Eight).then(|| program.eight(read.columns));
        let bytes = program.message_bytes(operation, size);
        let columns = program
            .gathers_columns(operation)
            .then(|| Columns { rows: part.rows_of(read.rows, 0, plan.tp), each: read.columns });
        Some(Self { exchange, operands, whole, share, eight, columns, bytes })
    }

    /// The kernel that does it for ranks on one device, whose addresses lie in two tables.
    pub fn on_one_device(
        &self,
        kernels: Source<'_>,
        [from, to]: [DevicePtr; 2],
        multiprocessors: u32,
    ) -> Result<Vec<Call>> {
        let mut arguments = Arguments::new();
        arguments.pointer(from).pointer(to).u32(self.operands.len() as u32);
        let name = match (self.columns, self.eight, self.exchange) {
            (Some(columns), ..) => {
                let words = u64::from(columns.rows) * u64::from(columns.each);
                arguments.u32(columns.each).u64(words * self.operands.len() as u64);
                "loopback_columns"
            }
            (None, Some(eight), _) => {
                eight.tell(&mut arguments, self.whole);
                "loopback_eight"
            }
            (None, None, Exchange::AllReduce) => {
                arguments.u64(self.whole);
                "loopback_sum"
            }
            (None, None, exchange) => {
                arguments.u64(self.share).u64(self.whole);
                if exchange == Exchange::AllGather { "loopback_gather" } else { "loopback_scatter" }
            }
        };
        let launch = geometry::elements(self.whole, multiprocessors);
        Ok(vec![Call::Kernel { function: kernels.get(name)?, launch, arguments }])
    }

    /// What NCCL and a kernel behind it do; messages in 8 bits, which it does not sum, are gathered at `gathered`.
    pub fn over_nccl(
        &self,
        kernels: Source<'_>,
        gathered: Option<DevicePtr>,
        ranks: u32,
        multiprocessors: u32,
    ) -> Result<Vec<Call>> {
        let (send, receive) = self.one()?;
        if let Some(columns) = self.columns {
            let to = columns.gathered(gathered, receive)?;
            let (exchange, count) = (Exchange::AllGather, columns.bytes());
            let gather = Call::Exchange { exchange, send, receive: to, count, bytes: true };
            let order = columns.order(kernels, [to, receive], ranks, multiprocessors)?;
            return Ok([gather].into_iter().chain(order).collect());
        }
        let Some(eight) = self.eight else {
            let count = if self.exchange == Exchange::AllReduce { self.whole } else { self.share };
            return Ok(vec![Call::Exchange {
                exchange: self.exchange,
                send,
                receive,
                count,
                bytes: false,
            }]);
        };
        let messages = gathered.ok_or_else(no_room)?;
        let count = eight.bytes(self.whole);
        Ok(vec![
            Call::Exchange {
                exchange: Exchange::AllGather,
                send,
                receive: messages,
                count,
                bytes: true,
            },
            eight.sum(kernels, messages, receive, ranks, self.whole, multiprocessors)?,
        ])
    }

    /// How long it takes on a link (ns).
    pub fn lasts_ns(&self, link: &EmulatedLink) -> u64 {
        self.exchange.link_ns(link, self.bytes).max(0) as u64
    }

    /// Bytes of the plan's message.
    pub fn message_bytes(&self) -> u64 {
        self.bytes
    }

    /// The kernel that takes what the collective would take over a link, with its scratch and its state, and what
    /// becomes of a message in 8 bits, which lies at `gathered` then. `launch_ns`: what its launch takes of that time.
    pub fn emulated(
        &self,
        kernels: Source<'_>,
        (program, link, launch_ns): (&Program, &EmulatedLink, u64),
        [scratch, state]: [DevicePtr; 2],
        gathered: Option<DevicePtr>,
        multiprocessors: u32,
    ) -> Result<Vec<Call>> {
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
        // a ring passes on what is neither the rank's own nor meant for it
        let passed = |numbers: u64| numbers * u64::from(ranks.saturating_sub(2)) / u64::from(ranks);
        let more = match self.exchange {
            Exchange::AllReduce => passed(numbers),
            Exchange::ReduceScatter { .. } => passed(self.whole),
            Exchange::AllGather => 0,
        };
        let lasts = self.lasts_ns(link).saturating_sub(launch_ns);
        let mut arguments = Arguments::new();
        arguments.pointer(send).pointer(to).pointer(scratch).u64(numbers).u32(copies).u64(more);
        arguments.u64(lasts).pointer(state);
        let launch = geometry::emulated_collective(emulated_blocks(link, self.bytes, ranks));
        let waits = Call::Kernel { function: kernels.get("emulated_collective")?, launch, arguments };
        let said =
            self.eight.map(|eight| eight.sum(kernels, to, receive, 1, self.whole, multiprocessors));
        let order =
            self.columns.map(|columns| columns.order(kernels, [to, receive], ranks, multiprocessors));
        let order = order.transpose()?.flatten();
        [Ok(waits)].into_iter().chain(said).chain(order.map(Ok)).collect()
    }

    /// The operands where there is one local rank.
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

impl Program {
    /// The format of its messages in 8 bits, of rows of so many columns.
    pub(super) fn eight(&self, columns: u32) -> Eight {
        Eight { is_float: self.comm_dtype == CommDType::F8, columns }
    }

    /// Bytes of a collective's message in a step of this size.
    pub(super) fn message_bytes(&self, operation: &Operation, size: &StepSize) -> u64 {
        let part = size.of_group(self.plan.groups, operation.group);
        // so many bytes a row, whatever the rows are of
        let rows = Step::prefill(part.sequences.into(), part.tokens.into());
        operation.cost.message_bytes.at(&rows)
    }

    /// Whether an operation gathers the columns of a sharded head.
    pub(super) fn gathers_columns(&self, operation: &Operation) -> bool {
        let of_columns = || {
            operation
                .reads
                .first()
                .is_some_and(|read| self.plan.values[read.index()].rows != Rows::Share)
        };
        operation.kind == Kind::AllGather && of_columns()
    }

    /// Bytes of the longest part of a sharded head's logits that has to be put into order in a step of this size; 0 where
    /// none has.
    pub(super) fn columns_bytes(&self, size: &StepSize) -> u64 {
        let gathers = self.plan.operations.iter().filter(|operation| self.gathers_columns(operation));
        let bytes = gathers.map(|operation| {
            let read = &self.plan.values[operation.reads[0].index()];
            let rows =
                size.of_group(self.plan.groups, operation.group).rows_of(read.rows, 0, self.plan.tp);
            let columns = Columns { rows, each: read.columns };
            if rows > 1 { columns.bytes() } else { 0 }
        });
        bytes.max().unwrap_or(0)
    }

    /// Bytes of the longest message in 8 bits of a step of this size; 0 where none is sent.
    pub(super) fn eight_bytes(&self, size: &StepSize) -> u64 {
        let sent = self.plan.values.iter().filter(|value| value.element == Element::Eight);
        let bytes = sent.map(|value| {
            let size = size.of_group(self.plan.groups, value.group);
            self.eight(value.columns).bytes(u64::from(size.rows()) * u64::from(value.columns))
        });
        bytes.max().unwrap_or(0)
    }
}
