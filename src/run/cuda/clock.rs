//! Resolution of `%globaltimer`, the clock shared by all kernels of a GPU. Emulated collectives wait on it
//! and kernels take time stamps from it.

use std::time::Duration;

use serde::Serialize;

use base::error::Result;
use base::statistics::median;
use machine::driver::{Arguments, Function, Gpu, Launch, Stream};

const TICKS: u32 = 64;

const LIMIT: Duration = Duration::from_secs(20);

#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Tick {
    /// Median tick (ns).
    pub ns: f64,
    /// Longest tick (ns).
    pub longest_ns: f64,
}

impl Tick {
    /// Measures the clock on `stream` with the `clock_probe` kernel of `kernels/measure.cu`.
    pub fn measure(gpu: &Gpu, stream: &Stream, kernel: &Function) -> Result<Self> {
        let out = gpu.allocate(8 * u64::from(TICKS), "the ticks of a clock")?;
        let mut arguments = Arguments::new();
        arguments.pointer(out.ptr()).u32(TICKS);
        stream.launch(kernel, &Launch::flat(1, 1), &mut arguments)?;
        stream.synchronize_within(LIMIT)?;
        let mut times = vec![0u64; TICKS as usize];
        out.download(0, bytemuck::cast_slice_mut(&mut times))?;
        Ok(Self::of(&times))
    }

    fn of(times: &[u64]) -> Self {
        let steps: Vec<f64> =
            times.windows(2).map(|pair| pair[1].saturating_sub(pair[0]) as f64).collect();
        Self { ns: median(&steps).unwrap_or(0.0), longest_ns: steps.iter().copied().fold(0.0, f64::max) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tick_is_the_usual_step() {
        assert_eq!(Tick::of(&[0, 1024, 2048, 3072, 9216]), Tick { ns: 1024.0, longest_ns: 6144.0 });
        assert_eq!(Tick::of(&[5]), Tick { ns: 0.0, longest_ns: 0.0 });
    }
}
