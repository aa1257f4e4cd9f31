//! Where a check puts its numbers and launches kernels.

use std::time::Duration;

use super::{Allocation, Device, Launch};
use machine::driver;
use plan::DType;
use run::testing::cuda::KernelOptions;

/// Bytes before and after each buffer that nobody may write.
const GUARD: usize = 256;
const GUARD_BYTE: u8 = 0xa5;
/// NaN in every format, and no plausible index.
const POISON: u8 = 0xff;

/// A buffer on the bench.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Handle(usize);

/// An argument of a kernel.
#[derive(Clone, Copy, Debug)]
pub(super) enum Argument {
    /// The address of a buffer.
    Buffer(Handle),
    /// A pointer to nothing, for parameters that may be absent.
    Null,
    U32(u32),
    U64(u64),
    F32(f32),
    F64(f64),
}

impl From<Handle> for Argument {
    fn from(handle: Handle) -> Self {
        Self::Buffer(handle)
    }
}
impl From<u32> for Argument {
    fn from(x: u32) -> Self {
        Self::U32(x)
    }
}
impl From<u64> for Argument {
    fn from(x: u64) -> Self {
        Self::U64(x)
    }
}
impl From<f32> for Argument {
    fn from(x: f32) -> Self {
        Self::F32(x)
    }
}
impl From<f64> for Argument {
    fn from(x: f64) -> Self {
        Self::F64(x)
    }
}

struct Buffer {
    allocation: Box<dyn Allocation>,
    bytes: usize,
    /// What it must still hold, where kernels may only read it.
    constant: Option<Vec<u8>>,
}

/// A device, what kernels are compiled for, and buffers.
pub(super) struct Bench<'a> {
    device: &'a dyn Device,
    /// What kernels are compiled for from now on.
    pub options: KernelOptions,
    buffers: Vec<Buffer>,
}

impl<'a> Bench<'a> {
    /// A bench on this device, with the usual options and no buffers.
    pub fn new(device: &'a dyn Device) -> Self {
        Self { device, options: KernelOptions::default(), buffers: Vec::new() }
    }

    /// The format of numbers from now on; forgets all buffers.
    pub fn start(&mut self, dtype: DType) {
        self.options.dtype = dtype;
        self.buffers.clear();
    }

    /// The format of numbers.
    pub fn dtype(&self) -> DType {
        self.options.dtype
    }

    fn place(&mut self, content: &[u8], constant: bool) -> Handle {
        let mut allocation = self.device.allocate(content.len() + 2 * GUARD);
        allocation.write(0, &[GUARD_BYTE; GUARD]);
        allocation.write(GUARD, content);
        allocation.write(GUARD + content.len(), &[GUARD_BYTE; GUARD]);
        let constant = constant.then(|| content.to_vec());
        self.buffers.push(Buffer { allocation, bytes: content.len(), constant });
        Handle(self.buffers.len() - 1)
    }

    /// An input in the format of numbers (rounded to it).
    pub fn numbers(&mut self, x: &[f32]) -> Handle {
        let bytes = encode(self.options.dtype, x);
        self.place(&bytes, true)
    }

    /// An input that kernels may also write, in the format of numbers.
    pub fn numbers_to_change(&mut self, x: &[f32]) -> Handle {
        let bytes = encode(self.options.dtype, x);
        self.place(&bytes, false)
    }

    /// An input of f32, u32 or u64.
    pub fn input<T: bytemuck::Pod>(&mut self, x: &[T]) -> Handle {
        self.place(bytemuck::cast_slice(x), true)
    }

    /// An input of f32, u32 or u64 that kernels may also write.
    pub fn state<T: bytemuck::Pod>(&mut self, x: &[T]) -> Handle {
        self.place(bytemuck::cast_slice(x), false)
    }

    /// A poisoned output of so many numbers in the format of numbers.
    pub fn output_numbers(&mut self, count: usize) -> Handle {
        self.place(&vec![POISON; count * self.options.dtype.bytes() as usize], false)
    }

    /// A poisoned output of so many f32, u32 or u64.
    pub fn output<T: bytemuck::Pod>(&mut self, count: usize) -> Handle {
        self.place(&vec![POISON; count * size_of::<T>()], false)
    }

    /// The address of a buffer on the device.
    pub fn address(&self, handle: Handle) -> u64 {
        self.buffers[handle.0].allocation.address() + GUARD as u64
    }

    /// Writes to the start of a buffer.
    pub fn write(&mut self, handle: Handle, bytes: &[u8]) {
        self.buffers[handle.0].allocation.write(GUARD, bytes);
    }

    /// A buffer's numbers, in the format of numbers.
    pub fn read_numbers(&self, handle: Handle) -> Vec<f32> {
        decode(self.options.dtype, &self.bytes(handle))
    }

    /// A buffer's f32, u32 or u64.
    pub fn read<T: bytemuck::Pod>(&self, handle: Handle) -> Vec<T> {
        bytemuck::pod_collect_to_vec(&self.bytes(handle))
    }

    fn bytes(&self, handle: Handle) -> Vec<u8> {
        let buffer = &self.buffers[handle.0];
        let mut bytes = vec![0; buffer.bytes];
        buffer.allocation.read(GUARD, &mut bytes);
        bytes
    }

    /// Runs a kernel and looks whether it wrote where it must not. Returns how long it ran, at the least.
    #[track_caller]
    pub fn launch(
        &mut self,
        kernel: &str,
        geometry: &driver::Launch,
        arguments: &[Argument],
    ) -> Duration {
        self.launch_with(kernel, &[], geometry, arguments)
    }

    /// Launches like [`Self::launch`] a kernel that is compiled with these
    /// constants besides the options.
    #[track_caller]
    pub fn launch_with(
        &mut self,
        kernel: &str,
        constants: &[(&str, u32)],
        geometry: &driver::Launch,
        arguments: &[Argument],
    ) -> Duration {
        let (took, waits) = self.attempt(kernel, constants, geometry, arguments, 0);
        assert_eq!(waits, None, "{kernel}, {}: waits for another kernel", self.options.dtype);
        took
    }

    /// Launches like [`Self::launch_with`] a kernel that may have to wait for others, of which these blocks have ended: then
    /// which have.
    #[track_caller]
    pub fn attempt(
        &mut self,
        kernel: &str,
        constants: &[(&str, u32)],
        geometry: &driver::Launch,
        arguments: &[Argument],
        ended: u64,
    ) -> (Duration, Option<u64>) {
        let words: Vec<u64> = arguments
            .iter()
            .map(|argument| match *argument {
                Argument::Buffer(handle) => self.address(handle),
                Argument::Null => 0,
                Argument::U32(x) => u64::from(x),
                Argument::U64(x) => x,
                Argument::F32(x) => u64::from(x.to_bits()),
                Argument::F64(x) => x.to_bits(),
            })
            .collect();
        let launch = Launch { kernel, options: &self.options, constants, geometry };
        let dtype = self.options.dtype;
        let took = self.device.attempt(&launch, &words, ended);
        let took = took.unwrap_or_else(|problem| panic!("{kernel}, {dtype}: {problem}"));
        for (i, buffer) in self.buffers.iter().enumerate() {
            let mut all = vec![0; buffer.bytes + 2 * GUARD];
            buffer.allocation.read(0, &mut all);
            let content = &all[GUARD..GUARD + buffer.bytes];
            for (side, guard) in [("before", &all[..GUARD]), ("after", &all[GUARD + buffer.bytes..])] {
                assert!(
                    guard.iter().all(|byte| *byte == GUARD_BYTE),
                    "{kernel}, {dtype}: wrote {side} buffer {i} of {} bytes",
                    buffer.bytes
                );
            }
            if let Some(constant) = &buffer.constant {
                assert!(constant == content, "{kernel}, {dtype}: changed its input, buffer {i}");
            }
        }
        took
    }
}

/// Numbers as they are stored.
pub(super) fn encode(dtype: DType, x: &[f32]) -> Vec<u8> {
    match dtype {
        DType::F32 => bytemuck::cast_slice(x).to_vec(),
        DType::F16 => x.iter().flat_map(|x| half::f16::from_f32(*x).to_le_bytes()).collect(),
        _ => x.iter().flat_map(|x| half::bf16::from_f32(*x).to_le_bytes()).collect(),
    }
}

fn decode(dtype: DType, bytes: &[u8]) -> Vec<f32> {
    let halves = bytes.as_chunks::<2>().0.iter();
    match dtype {
        DType::F32 => bytemuck::pod_collect_to_vec(bytes),
        DType::F16 => halves.map(|b| half::f16::from_le_bytes(*b).to_f32()).collect(),
        _ => halves.map(|b| half::bf16::from_le_bytes(*b).to_f32()).collect(),
    }
}
