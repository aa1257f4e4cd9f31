//! Recording: the run's clock, NVTX ranges around operations, spans per lane.

mod clock;
mod nvtx;
mod spans;

pub use clock::{Clock, precise_sleep};
pub use nvtx::{Started, name_thread, range, start};
pub use spans::SpanRecorder;
