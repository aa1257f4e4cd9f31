//! GPU waits with a timeout, so that nothing hangs.

use std::time::{Duration, Instant};

use super::gpu::Gpu;
use base::error::{Error, Result};

/// Polls until done. On timeout returns an error and abandons the GPU: this process frees nothing on it
/// any more, because freeing waits for its work.
pub(super) fn until(gpu: &Gpu, limit: Duration, done: impl FnMut() -> Result<bool>) -> Result<()> {
    if poll(limit, done)? {
        return Ok(());
    }
    gpu.abandon();
    Err(Error::failed(format!(
        "GPU {} has not finished its work within {} s: a kernel or collective hangs (a rank that died or \
         never joined is the usual reason); this process can not use the GPU any more",
        gpu.info().index,
        limit.as_secs_f64()
    )))
}

/// Returns true if done within the limit; polls at least once, spins at first, then sleeps.
fn poll(limit: Duration, mut done: impl FnMut() -> Result<bool>) -> Result<bool> {
    /// Typical duration of a decode step, which a sleeping thread would lengthen.
    const SPIN: Duration = Duration::from_millis(5);
    let start = Instant::now();
    loop {
        if done()? {
            return Ok(true);
        }
        let waited = start.elapsed();
        if waited >= limit {
            return Ok(false);
        }
        match waited < SPIN {
            true => std::hint::spin_loop(),
            false => {
                std::thread::sleep((waited / 100).min(Duration::from_millis(1)).min(limit - waited))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waiting_ends_with_the_work_or_with_the_limit_or_with_an_error() {
        let mut asked = 0;
        let done = || {
            asked += 1;
            Ok(asked == 3)
        };
        assert!(matches!(poll(Duration::from_secs(60), done), Ok(true)));
        assert_eq!(asked, 3);
        let start = Instant::now();
        assert!(matches!(poll(Duration::from_millis(20), || Ok(false)), Ok(false)));
        assert!(
            start.elapsed() >= Duration::from_millis(20) && start.elapsed() < Duration::from_secs(5)
        );
        assert!(poll(Duration::ZERO, || Err(Error::failed("no"))).is_err());
        assert!(matches!(poll(Duration::ZERO, || Ok(true)), Ok(true)));
    }
}
