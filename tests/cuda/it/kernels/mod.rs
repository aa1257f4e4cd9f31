//! Checks of every kernel against the cpu backend's arithmetic, on whatever can run kernels: a CPU, through
//! the shim in `device/`, and a GPU where there is one.
//!
//! A check is a function of a [`Bench`]: it puts inputs there, launches, and compares what comes back. To
//! add one, write it and name it in a `checks!` list: that makes two tests of it, one that runs everywhere
//! and one that needs a GPU (`cargo test --release --workspace --test cuda -- --ignored gpu`; says so and
//! passes where there is none).
//!
//! Around each launch the bench watches over everything that the kernel has no business with: inputs must
//! stay as they are, and the bytes before and after each buffer too. Outputs are poisoned beforehand.

mod attention;
mod bench;
mod collective;
mod compile;
mod convert;
mod eight;
mod elementwise;
mod experts;
mod fill;
mod fp8;
mod gpu;
mod matvec;
mod measure;
mod norm;
mod one_shot;
mod random;
mod rope;
mod rows;
mod sample;
mod shim;
mod stamp;
mod watch;

use bench::{Argument, Bench, Handle};

use std::time::Duration;

use machine::driver;
use plan::DType;
use run::testing::cuda::KernelOptions;

/// A device that checks run kernels on: a GPU, or the CPU through the shim.
pub(super) trait Device {
    /// Memory, aligned to 256 bytes, of any content.
    fn allocate(&self, bytes: usize) -> Box<dyn Allocation>;

    /// Runs a kernel to its end; returns how long that took by a clock that the kernel can read. `arguments`:
    /// the bytes of each, in the low end of a word.
    fn launch(&self, launch: &Launch<'_>, arguments: &[u64]) -> Result<Duration, String>;

    /// Runs those blocks of a kernel that have not `ended` before (a bit each), to their end (`None`), or until all that are
    /// left wait for another kernel: then which have ended. Devices that run kernels beside one another run it to its end.
    fn attempt(
        &self,
        launch: &Launch<'_>,
        arguments: &[u64],
        ended: u64,
    ) -> Result<(Duration, Option<u64>), String> {
        assert_eq!(ended, 0);
        self.launch(launch, arguments).map(|took| (took, None))
    }
}

/// Memory of a device.
pub(super) trait Allocation {
    /// The address by which kernels know the allocation.
    fn address(&self) -> u64;
    fn write(&mut self, at: usize, bytes: &[u8]);
    fn read(&self, at: usize, bytes: &mut [u8]);
}

/// A launch of a kernel by name, as every device understands it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Launch<'a> {
    pub kernel: &'a str,
    pub options: &'a KernelOptions,
    pub constants: &'a [(&'a str, u32)],
    pub geometry: &'a driver::Launch,
}

/// Formats that every kernel is checked in.
pub(super) const DTYPES: [DType; 3] = [DType::F32, DType::Bf16, DType::F16];

/// Whether what the checks need must be there: set where they would otherwise pass unseen.
pub(super) fn toolchain_is_required() -> bool {
    std::env::var_os("LADDERSCOPE_REQUIRE_TOOLCHAIN").is_some_and(|value| value == "1")
}

/// Says why a test did nothing; fails where it must not.
pub(super) fn skip(why: &str, required: bool) {
    assert!(!required, "LADDERSCOPE_REQUIRE_TOOLCHAIN=1, but {why}");
    eprintln!("skipped: {why}");
}

/// Two tests of each check, which is a function `fn(&mut Bench)`.
macro_rules! checks {
    ($($check:ident),* $(,)?) => {
        mod on_shim {
            $(#[test]
            fn $check() {
                $crate::kernels::shim::run(super::$check);
            })*
        }
        mod gpu {
            $(#[test]
            #[ignore = "needs an NVIDIA GPU"]
            fn $check() {
                $crate::kernels::gpu::run(super::$check);
            })*
        }
    };
}
pub(super) use checks;

/// Numbers of order 1 that look random, the same for the same seed.
pub(super) fn random(seed: u64, count: usize) -> Vec<f32> {
    let mut random = fastrand::Rng::with_seed(seed);
    (0..count).map(|_| random.f32() * 4.0 - 2.0).collect()
}

/// A number as it is after being stored.
pub(super) fn rounded(dtype: DType, x: f32) -> f32 {
    match dtype {
        DType::F32 => x,
        DType::F16 => half::f16::from_f32(x).to_f32(),
        _ => half::bf16::from_f32(x).to_f32(),
    }
}

/// Compares a kernel's numbers with f32 arithmetic on the same inputs: no number may be off by more than
/// 1e-5 (f32) or 1e-2 (16 bits) of the largest.
#[track_caller]
pub(super) fn assert_close(what: &str, dtype: DType, got: &[f32], want: &[f32]) {
    let tolerance = if dtype == DType::F32 { 1e-5 } else { 1e-2 };
    assert_eq!(got.len(), want.len(), "{what}, {dtype}");
    let largest = want.iter().fold(0.0f32, |largest, x| largest.max(x.abs()));
    assert!(largest.is_finite(), "{what}, {dtype}: what is wanted is not finite");
    for (i, (got, wanted)) in got.iter().zip(want).enumerate() {
        let error = (got - wanted).abs() / largest.max(f32::MIN_POSITIVE);
        // not `>`: a NaN is wrong
        assert!(
            error <= tolerance,
            "{what}, {dtype}: number {i} of {} is {got}, not {wanted} (off by {error:.1e} of the largest, {largest})",
            want.len()
        );
    }
}
