//! Reports: one self-contained HTML page about runs ([`page()`]) or a trace ([`trace_page()`]), with figures,
//! tables, flags, and the origin of every number.
//!
//! Both are pure: records or a trace in, text out. A page needs no network, prints well, and follows the
//! reader's light or dark theme; only the timeline needs scripts. Each set of comparable cells ([`crate::analysis::comparable`])
//! has a section; truncated lists say how much they omit.

mod events;
mod page;
mod sections;
mod set;
#[cfg(test)]
mod tests;
mod trace;
#[cfg(test)]
mod trace_tests;

pub use page::{Report, page};

pub use trace::{TracePage, WrittenTrace, trace_page};
