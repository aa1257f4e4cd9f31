//! Events: points in a stream's work that others wait for, or whose times are taken.

use std::time::Duration;

use cudarc::driver::sys;

use super::answer::code;
use super::gpu::Gpu;
use super::wait;
use base::error::Result;

/// A point in a stream's work. Nothing is recorded at first: it is done, and has no time.
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
        // SAFETY: created by `Gpu::event`, destroyed once; the driver keeps what is still to happen.
        self.gpu.destroy(|api| unsafe {
            (api.cuEventDestroy_v2)(event);
        });
    }
}

impl Gpu {
    /// Makes an event of this GPU, as `torch.cuda.Event` does; one that is not `timed` costs the
    /// GPU less to record.
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
    /// Milliseconds from the other event to this one, with a resolution of 0.5 us. Fails where either
    /// was made without times or was never recorded, and where the work before either still goes on.
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

    /// Whether the work that was enqueued before the event is done; asks without waiting. An event that
    /// was never recorded is done.
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

    /// Waits until what was enqueued before the event has ended, but at most for `limit`, as
    /// [`super::Stream::synchronize_within`] does for a whole stream; the same holds of a GPU that does
    /// not end within it.
    pub fn synchronize_within(&self, limit: Duration) -> Result<()> {
        wait::until(&self.gpu, limit, || self.is_done())
    }

    /// The driver's handle; valid as long as `self`.
    pub fn raw(&self) -> sys::CUevent {
        self.event
    }
}
