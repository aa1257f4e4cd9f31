//! CUPTI activity records as a second way to time operations.
//!
//! CUPTI's times are exact and need no events between kernels, but every record costs GPU and host time, and
//! each kernel has to be matched to its operation. Eager kernels carry an external correlation id pushed
//! around the launch. Graph kernels carry their node id: nodes are mapped to operations when captured, and
//! again when the graph is instantiated.
//!
//! | file | contents |
//! |---|---|
//! | `api` | the library, its functions and the layout of its records |
//! | `session` | recording on and off, buffers, callbacks, records to one span per operation and step |

mod api;
mod session;
#[cfg(test)]
mod tests;

pub use api::{Activity, ActivityKind, check, version};
pub use session::{
    Assembled, Belongs, Label, OperationSpan, Recording, Report, Session, StepId, assemble, operation,
    settle, step,
};
