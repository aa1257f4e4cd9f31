//! CUPTI: the driver's own records of when each kernel ran, as a second way to time operations.
//!
//! Its times are exact and need no events between kernels, but each record costs the GPU and the host
//! some time, and which operation a kernel belongs to has to be found out: eagerly launched kernels carry
//! an id that is pushed around the launch; kernels of a graph carry their node's, and nodes are noted with
//! their operation when they are captured, and again when an executable graph is made of them.
//!
//! | file | what it is for |
//! |---|---|
//! | `api` | the library and its functions |
//! | `records` | what a buffer of records holds |
//! | `session` | switching records on and off, buffers, callbacks |
//! | `assemble` | from records to one span an operation and step |

mod api;
mod assemble;
mod records;
mod session;
#[cfg(test)]
mod tests;

pub use api::{check, version};
pub use assemble::{Assembled, OperationSpan, Report, assemble, settle};
pub use records::{Activity, ActivityKind};
pub use session::{Belongs, Label, Recording, Session, StepId, operation, step};
