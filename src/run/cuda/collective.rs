//! Who executes collectives, wherever the ranks are: on one device, elsewhere behind NCCL, or not at all (emulated).

use super::transfer::Transfer;
use crate::comm::EmulatedLink;
use crate::comm::nccl::{Chosen, Communicator};
use base::error::Result;
use machine::driver::{DevicePtr, Gpu, Memory, Stream};

/// Most blocks that NCCL takes for an all-reduce within a node of Hopper GPUs, where nothing else is asked for: assumed.
const MOST_BLOCKS: u32 = 24;

/// Threads of a block, each of which sends 8 bytes to every rank's part of a message in NCCL's low-latency ring.
const BYTES_A_RANK: u64 = 512 * 8;

/// How many blocks NCCL's low-latency ring takes for a message over so many ranks, by the thresholds in the source of
/// NCCL 2.28.9: one for each 4 KB and rank.
fn estimate(bytes: u64, ranks: u32) -> u32 {
    bytes.div_ceil(BYTES_A_RANK * u64::from(ranks.max(1))).clamp(1, u64::from(MOST_BLOCKS)) as u32
}

/// Blocks of an all-reduce of so many bytes over so many ranks: what NCCL told of such a message or the next larger one,
/// of the largest where it is larger still; an estimate where it told nothing.
fn blocks(chosen: Option<&Chosen>, bytes: u64, ranks: u32) -> u32 {
    let told = chosen.map(|chosen| &chosen.blocks);
    let told = told.and_then(|told| told.range(bytes..).next().or_else(|| told.iter().next_back()));
    told.map_or_else(|| estimate(bytes, ranks), |(_, blocks)| (*blocks).max(1))
}

/// Blocks that stand for a collective over a link that is not there: what its profile says, else what NCCL takes.
pub(super) fn emulated_blocks(link: &EmulatedLink, bytes: u64, ranks: u32) -> u32 {
    link.blocks().unwrap_or_else(|| estimate(bytes, ranks))
}

/// Who sums over the ranks.
#[derive(Debug)]
pub enum Collective {
    /// There is one rank, and nothing to reduce.
    None,
    /// A kernel that reads what all ranks give, which share the device.
    Loopback,
    /// A kernel that takes what the collective would take over this link; the other ranks do not exist.
    Emulated(EmulatedLink),
    /// NCCL's collectives over the ranks of this communicator, one of which is this; and what
    /// it chose, where it was asked.
    Nccl(Communicator, Option<Box<Chosen>>),
}

impl Collective {
    /// For records: `nccl`, `loopback`.
    pub fn as_str(&self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Loopback => "loopback",
            Self::Emulated(_) => "emulated",
            Self::Nccl(..) => "nccl",
        }
    }
}

impl Collective {
    /// How many multiprocessors an all-reduce of so many bytes over so many ranks takes while it is in flight. Kernels that
    /// run beside it and count on all of them would wait for it with the blocks that find no room.
    pub fn multiprocessors(&self, message_bytes: u64, ranks: u32) -> u32 {
        match self {
            Self::None | Self::Loopback => 0,
            Self::Emulated(link) => emulated_blocks(link, message_bytes, ranks),
            Self::Nccl(_, chosen) => blocks(chosen.as_deref(), message_bytes, ranks),
        }
    }
}

/// What an emulated collective works with beside its operands.
#[derive(Debug)]
pub(super) struct EmulatedScratch {
    scratch: Memory,
    state: Memory,
}

impl EmulatedScratch {
    /// For operands of up to so many bytes.
    pub fn new(gpu: &Gpu, stream: &Stream, bytes: u64) -> Result<Self> {
        let scratch = gpu.allocate(bytes, "scratch of emulated collectives")?;
        let state = gpu.allocate(16, "the state of emulated collectives")?;
        stream.fill(state.ptr(), 0, 16)?;
        Ok(Self { scratch, state })
    }

    /// Where its scratch and its state lie.
    pub fn places(&self) -> [DevicePtr; 2] {
        [self.scratch.ptr(), self.state.ptr()]
    }
}

/// Device addresses of what all local ranks give and get: `[transfer][given, got][rank]`.
#[derive(Debug)]
pub(super) struct LoopbackTable {
    memory: Memory,
    ranks: u64,
}

impl LoopbackTable {
    /// Makes the table of all transfers of a phase; it is written before later work of `stream` runs.
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

    /// Where the addresses of transfer `index` lie: of what the ranks give, and of where they get the result.
    pub fn of(&self, index: usize) -> [DevicePtr; 2] {
        let given = self.memory.ptr().offset(index as u64 * 2 * self.ranks * 8);
        [given, given.offset(self.ranks * 8)]
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
        assert_eq!(Collective::Emulated(link).multiprocessors(16_384, 2), 2);
        assert_eq!(Collective::Loopback.multiprocessors(16_384, 2), 0);
    }

    #[test]
    fn what_nccl_told_counts_before_any_estimate() {
        let mut chosen = Chosen::default();
        assert_eq!(blocks(None, 16 * 16_384, 8), 8);
        assert_eq!(blocks(Some(&chosen), 16 * 16_384, 8), 8);
        chosen.blocks = [(16_384, 2), (1 << 24, 16)].into();
        let told = |bytes| blocks(Some(&chosen), bytes, 8);
        assert_eq!([1, 16_384, 16_385, 1 << 30].map(told), [2, 2, 16, 16]);
    }
}
