//! Who executes collectives, wherever the ranks are: on one device, elsewhere behind NCCL, or not at all (emulated).

use super::transfer::Transfer;
use crate::base::error::Result;
use crate::machine::driver::{DevicePtr, Gpu, Memory, Stream};
use crate::run::comm::EmulatedLink;
use crate::run::comm::nccl::Communicator;

/// Most blocks that NCCL takes for an all-reduce within a node of Hopper GPUs, where nothing else is asked
/// for. Assumed, not measured, as the next; `LADDERSCOPE_SMS_FOR_COMM` replaces what follows from both for the
/// kernels beside a collective.
const NCCL_CTAS: u32 = 24;

/// Bytes of a message for each of NCCL's blocks, below which it takes fewer of them: 512 threads of 8
/// bytes (its low-latency protocols).
const BYTES_PER_CTA: u64 = 512 * 8;

/// How many blocks NCCL takes for a message.
pub(super) fn blocks(message_bytes: u64) -> u32 {
    message_bytes.div_ceil(BYTES_PER_CTA).clamp(1, u64::from(NCCL_CTAS)) as u32
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
    /// NCCL's collectives over the ranks of this communicator, one of which is this.
    Nccl(Communicator),
}

impl Collective {
    /// For records: `nccl`, `loopback`.
    pub fn as_str(&self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Loopback => "loopback",
            Self::Emulated(_) => "emulated",
            Self::Nccl(_) => "nccl",
        }
    }
}

impl Collective {
    /// How many multiprocessors an all-reduce of so many bytes takes while it is in flight. Kernels that
    /// run beside it and count on all of them would wait for it with the blocks that find no room.
    pub fn multiprocessors(&self, message_bytes: u64) -> u32 {
        match self {
            Self::None | Self::Loopback => 0,
            Self::Emulated(_) | Self::Nccl(_) => blocks(message_bytes),
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
        assert_eq!([1, 16_384, 16 * 16_384, 1 << 30].map(blocks), [1, 4, 24, 24]);
        let link = EmulatedLink { alpha_us: 1.0, gb_s: 1.0 };
        assert_eq!(Collective::Emulated(link).multiprocessors(16_384), 4);
        assert_eq!(Collective::Loopback.multiprocessors(16_384), 0);
    }
}
