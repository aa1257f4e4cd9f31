//! All-reduces, wherever the ranks are: on one device, elsewhere behind NCCL, or not at all (emulated).

use super::kernels::{Kernels, geometry};
use crate::base::error::{Error, Result};
use crate::machine::driver::{Arguments, DevicePtr, Function, Gpu, Launch, Memory, Stream};
use crate::plan::DType;
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
    /// A kernel that reads the summands of all ranks, which share the device.
    Loopback,
    /// A kernel that takes what the sum would take over this link; the other ranks do not exist.
    Emulated(EmulatedLink),
    /// NCCL's all-reduce over the ranks of this communicator, one of which is this.
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

/// One all-reduce: for each local rank its summand and where the sum goes, and how many numbers.
#[derive(Clone, Debug)]
pub(super) struct Reduction {
    pub operands: Vec<(DevicePtr, DevicePtr)>,
    pub elements: u64,
}

/// What an emulated all-reduce works with beside its operands.
#[derive(Debug)]
pub(super) struct EmulatedScratch {
    scratch: Memory,
    state: Memory,
}

impl EmulatedScratch {
    /// For operands of up to so many bytes.
    pub fn new(gpu: &Gpu, stream: &Stream, bytes: u64) -> Result<Self> {
        let scratch = gpu.allocate(bytes, "scratch of emulated all-reduces")?;
        let state = gpu.allocate(16, "the state of emulated all-reduces")?;
        stream.fill(state.ptr(), 0, 16)?;
        Ok(Self { scratch, state })
    }
}

/// Device addresses of all local ranks' summands and sums: `[reduction][summands, sums][rank]`.
#[derive(Debug)]
pub(super) struct LoopbackTable {
    memory: Memory,
    ranks: u64,
}

impl LoopbackTable {
    /// Makes the table of all reductions of a phase; it is written before later work of `stream` runs.
    pub fn new(gpu: &Gpu, stream: &Stream, reductions: &[Reduction]) -> Result<Self> {
        let addresses = reductions.iter().flat_map(|reduction| {
            let summands = reduction.operands.iter().map(|(send, _)| send.0);
            summands.chain(reduction.operands.iter().map(|(_, receive)| receive.0))
        });
        let bytes: Vec<u8> = addresses.flat_map(u64::to_ne_bytes).collect();
        let memory = gpu.allocate(bytes.len() as u64, "addresses of loopback sums")?;
        stream.copy_to_device(memory.ptr(), &bytes)?;
        let ranks = reductions.first().map_or(0, |reduction| reduction.operands.len() as u64);
        Ok(Self { memory, ranks })
    }

    /// The launch of reduction `index`.
    pub fn call(
        &self,
        kernels: &Kernels,
        gpu: &Gpu,
        index: usize,
        elements: u64,
    ) -> Result<(Function, Launch, Arguments)> {
        let summands = self.memory.ptr().offset(index as u64 * 2 * self.ranks * 8);
        let mut arguments = Arguments::new();
        arguments.pointer(summands).pointer(summands.offset(self.ranks * 8));
        arguments.u32(self.ranks as u32).u64(elements);
        let geometry = geometry::elements(elements, gpu.info().multiprocessors);
        Ok((kernels.get("loopback_sum")?, geometry, arguments))
    }
}

/// The launch of an emulated all-reduce.
pub(super) fn emulated_call(
    kernels: &Kernels,
    scratch: &EmulatedScratch,
    link: &EmulatedLink,
    dtype: DType,
    ranks: u32,
    reduction: &Reduction,
) -> Result<(Function, Launch, Arguments)> {
    let bytes = reduction.elements * dtype.bytes();
    let &[(send, receive)] = reduction.operands.as_slice() else {
        return Err(Error::failed("an emulated all-reduce has one rank's operands"));
    };
    if bytes > scratch.scratch.bytes() {
        return Err(Error::failed(format!(
            "an emulated all-reduce of {bytes} bytes has scratch for {}",
            scratch.scratch.bytes()
        )));
    }
    let mut arguments = Arguments::new();
    arguments.pointer(send).pointer(receive).pointer(scratch.scratch.ptr()).u64(reduction.elements);
    arguments.u64((link.alpha_us * 1e3) as u64).f64(1.0 / link.gb_s).u32(ranks);
    arguments.pointer(scratch.state.ptr());
    let geometry = geometry::emulated_all_reduce(blocks(bytes));
    Ok((kernels.get("emulated_all_reduce")?, geometry, arguments))
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
