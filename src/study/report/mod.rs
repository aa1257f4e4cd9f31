//! The report: one self-contained HTML page of runs, with figures, tables, what looks wrong, and where
//! every number comes from.
//!
//! [`page()`] is pure: records in, text out. It asks for nothing over the network, can be read without
//! scripts and on paper, and follows the reader's light or dark. A set of comparable cells is a section
//! ([`crate::analysis::comparable`]); what is left out of a long list is said beside it.

mod commands;
mod html;
mod page;
mod sections;
mod set;
#[cfg(test)]
mod tests;

pub use page::{Report, page};
