//! Filter language for runs, on the command line and on screens:
//!
//! ```text
//! ladder 70b              both words, in any order; also as letters in order: upb finds upper-bound
//! "llama-3" -failed       exactly these letters; a leading - negates
//! arch:ladder model:70b   text contains the value; a number equals it; tp:2..8 is a range
//! tp:4,8 arch:a,b         either value; | works too
//! exp:paper_70b           finds paper-70B: - and _ are equal, and case does not matter
//! tp=8 tok/s>1000 tpot<5  = is exact; != < <= > >= for numbers (with units: memory>60GB) and texts
//! tag:good -tag:*         a tag; * is any value, so -tag:* finds runs without tags
//! ```
//!
//! `syntax` parses, prints and completes filters ([`Filter`]), `bind` applies them to a
//! [`crate::analysis::RunTable`].

mod bind;
mod syntax;
#[cfg(test)]
mod tests;

pub(super) use bind::has_word;
pub use bind::{Bound, Match};
pub use syntax::{Filter, Operator, Term, Test, complete};
