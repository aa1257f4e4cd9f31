//! CUDA events: synchronization points and timestamps in a stream; and GPU waits with a timeout, so that nothing hangs.

use std::time::{Duration, Instant};

use cudarc::driver::sys;

use super::error::code;
use super::gpu::Gpu;
use base::error::{Error, Result};

/// Point in a stream's work. Before the first record it counts as done and has no timestamp.
#[derive(Debug)]
pub struct Event {
    gpu: Gpu,
    event: sys::CUevent,
    timed: bool,
}

// SAFETY: handles are plain addresses, usable from any thread.
unsafe impl Send for Event {}
// SAFETY: as above.
unsafe impl Sync for Event {}

impl Drop for Event {
    fn drop(&mut self) {
        let event = self.event;
        // SAFETY: created by `Gpu::event` and destroyed once; the driver keeps it until pending work is
        // done.
        self.gpu.destroy(|api| unsafe {
            (api.cuEventDestroy_v2)(event);
        });
    }
}

impl Gpu {
    /// Creates an event, like `torch.cuda.Event`; without `timed` it is cheaper to record.
    pub fn event(&self, timed: bool) -> Result<Event> {
        const DISABLE_TIMING: u32 = 2;
        self.bind()?;
        let mut event = std::ptr::null_mut();
        // SAFETY: writes one handle to a valid address.
        let code =
            unsafe { (self.api().cuEventCreate)(&mut event, if timed { 0 } else { DISABLE_TIMING }) };
        self.check(code, || "making an event".into())?;
        Ok(Event { gpu: self.clone(), event, timed })
    }
}

impl Event {
    /// Milliseconds from `since` to this event, at a resolution of 0.5 us. Returns an error if either
    /// event has no timing, was never recorded, or is not done.
    pub fn elapsed_ms(&self, since: &Self) -> Result<f32> {
        let mut milliseconds = 0.0;
        self.gpu.bind()?;
        // SAFETY: both events exist; writes one number to a valid address.
        let code =
            unsafe { (self.gpu.api().cuEventElapsedTime)(&mut milliseconds, since.event, self.event) };
        self.gpu.check(code, || match self.timed && since.timed {
            true => "taking the time between two events".into(),
            false => "taking the time between two events, of which one has no times".into(),
        })?;
        Ok(milliseconds)
    }

    /// Polls whether all work enqueued before the event is done; true for an event never recorded.
    pub fn is_done(&self) -> Result<bool> {
        self.gpu.bind()?;
        // SAFETY: the event exists.
        match unsafe { (self.gpu.api().cuEventQuery)(self.event) } {
            code::NOT_READY => Ok(false),
            code => {
                self.gpu.check(code, || "asking whether an event has happened".into()).map(|()| true)
            }
        }
    }

    /// Waits for the work enqueued before the event, at most for `limit`; on timeout the GPU is
    /// abandoned as in [`super::Stream::synchronize_within`].
    pub fn synchronize_within(&self, limit: Duration) -> Result<()> {
        until(&self.gpu, limit, || self.is_done())
    }

    /// Driver handle, valid as long as `self`.
    pub fn raw(&self) -> sys::CUevent {
        self.event
    }
}

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
