//! How the clock that all of a GPU's kernels read (`%globaltimer`) ticks. Emulated collectives last as long as it
//! says, and kernels say by it when they ran.

use std::time::Duration;

use serde::Serialize;

use base::error::Result;
use base::statistics::median;
use machine::driver::{Arguments, Function, Gpu, Launch, Stream};

/// Ticks that are looked at.
const TICKS: u32 = 64;

/// No GPU needs so long for them.
const LIMIT: Duration = Duration::from_secs(20);

/// What was seen of the clock.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Tick {
    /// From one value to the next (ns): the median.
    pub ns: f64,
    /// The longest of them (ns).
    pub longest_ns: f64,
}

impl Tick {
    /// Looks at the clock of a GPU with `clock_probe` of `kernels/measure.cu`, given as `kernel`, on `stream`. Fails
    /// where the GPU does not answer.
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
