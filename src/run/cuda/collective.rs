//! Implementations of collectives: a kernel on one device, NCCL, or an emulated link.

use super::transfer::Transfer;
use crate::comm::EmulatedLink;
use crate::comm::nccl::{Chosen, Communicator};
use base::error::Result;
use machine::driver::{DevicePtr, Gpu, Memory, Stream};

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
fn blocks(chosen: Option<&Chosen>, bytes: u64, ranks: u32) -> u32 {
    let told = chosen.map(|chosen| &chosen.blocks);
    let told = told.and_then(|told| told.range(bytes..).next().or_else(|| told.iter().next_back()));
    told.map_or_else(|| estimate(bytes, ranks), |(_, blocks)| (*blocks).max(1))
}

/// CTAs of an emulated collective: from the link's profile, else NCCL's estimate.
pub(super) fn emulated_blocks(link: &EmulatedLink, bytes: u64, ranks: u32) -> u32 {
    link.blocks().unwrap_or_else(|| estimate(bytes, ranks))
}

#[derive(Debug)]
pub enum Collective {
    None,
    /// One kernel that reads the inputs of all ranks on the same device.
    Loopback,
    /// A kernel that lasts as long as the collective would over this link; the other ranks do not exist.
    Emulated(EmulatedLink),
    /// NCCL over this communicator, with NCCL's choices if they were probed.
    Nccl(Communicator, Option<Box<Chosen>>),
}

impl Collective {
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

/// Scratch memory and state of emulated collectives.
#[derive(Debug)]
pub(super) struct EmulatedScratch {
    scratch: Memory,
    state: Memory,
}

impl EmulatedScratch {
    pub fn new(gpu: &Gpu, stream: &Stream, bytes: u64) -> Result<Self> {
        let scratch = gpu.allocate(bytes, "scratch of emulated collectives")?;
        let state = gpu.allocate(16, "the state of emulated collectives")?;
        stream.fill(state.ptr(), 0, 16)?;
        Ok(Self { scratch, state })
    }

    pub fn places(&self) -> [DevicePtr; 2] {
        [self.scratch.ptr(), self.state.ptr()]
    }
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
