//! Report: one self-contained HTML page about runs, with figures, tables, flags, and the origin of every
//! number.
//!
//! [`page()`] is pure: records in, text out. The page needs no network and no scripts, prints well, and
//! follows the reader's light or dark theme. Each set of comparable cells ([`crate::analysis::comparable`])
//! has a section; truncated lists say how much they omit.

mod commands;
mod html;
mod page;
mod sections;
mod set;
#[cfg(test)]
mod tests;

pub use page::{Report, page};
