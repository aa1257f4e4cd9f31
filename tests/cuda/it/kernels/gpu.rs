//! Kernels on the first GPU, where there is one.

use std::cell::RefCell;
use std::rc::Rc;
use std::time::{Duration, Instant};

use super::{Allocation, Bench, Device, Launch, skip};
use base::error::Result;
use machine::driver::{self, Arguments, Gpu, Memory, Priority, Stream};
use run::testing::cuda::{GpuKernels, KernelOptions};

/// How long one launch may take: a kernel that hangs must not take all other checks with it.
const LIMIT: Duration = Duration::from_secs(20);

/// Runs a check on the first GPU: with plain launches, and with kernels that may start early.
pub(super) fn run(check: fn(&mut Bench<'_>)) {
    let gpu = match Gpu::open(0) {
        Ok(gpu) => gpu,
        Err(error) => return skip(&format!("no GPU: {error}"), false),
    };
    for programmatic in [false, true] {
        let stream = gpu.stream(Priority::Normal).expect("a stream");
        let kernels = RefCell::default();
        check(&mut Bench::new(&OnGpu { gpu: gpu.clone(), stream, programmatic, kernels }));
    }
}

struct OnGpu {
    gpu: Gpu,
    stream: Stream,
    programmatic: bool,
    /// By what they are compiled for.
    kernels: RefCell<Vec<Rc<GpuKernels>>>,
}

impl OnGpu {
    fn kernels(&self, options: &KernelOptions) -> Result<Rc<GpuKernels>> {
        let mut all = self.kernels.borrow_mut();
        if let Some(found) = all.iter().find(|kernels| kernels.options() == options) {
            return Ok(Rc::clone(found));
        }
        let made = Rc::new(GpuKernels::new(&self.gpu, options)?);
        all.push(Rc::clone(&made));
        Ok(made)
    }
}

impl Allocation for Memory {
    fn address(&self) -> u64 {
        self.ptr().0
    }

    fn write(&mut self, at: usize, bytes: &[u8]) {
        self.upload(at as u64, bytes).expect("copied to the GPU");
    }

    fn read(&self, at: usize, bytes: &mut [u8]) {
        self.download(at as u64, bytes).expect("copied from the GPU");
    }
}

impl Device for OnGpu {
    fn allocate(&self, bytes: usize) -> Box<dyn Allocation> {
        Box::new(self.gpu.allocate(bytes as u64, "a check of a kernel").expect("memory"))
    }

    fn launch(&self, launch: &Launch<'_>, arguments: &[u64]) -> Result<Duration, String> {
        let launched = || -> Result<Duration> {
            let options = KernelOptions { programmatic: self.programmatic, ..*launch.options };
            let function = self.kernels(&options)?.get_with(launch.kernel, launch.constants)?;
            // what a kernel declares counts, too: together they may be more than 48 KB
            function.set_shared(launch.geometry.shared_bytes)?;
            let geometry = driver::Launch { programmatic: self.programmatic, ..*launch.geometry };
            let mut words = Arguments::default();
            arguments.iter().for_each(|word| {
                words.push(*word);
            });
            let begin = Instant::now();
            self.stream.launch(&function, &geometry, &mut words)?;
            self.stream.synchronize_within(LIMIT)?;
            Ok(begin.elapsed())
        };
        launched().map_err(|error| error.to_string())
    }
}
