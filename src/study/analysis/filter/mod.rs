//! The language in which runs are chosen, on the command line and on screens:
//!
//! ```text
//! ladder 70b              both words, in any order; letters in order do too: upb finds upper-bound
//! "llama-3" -failed       exactly these letters; - in front: not
//! arch:ladder model:70b   a field's text contains it; a number is it; tp:2..8 a range
//! tp:4,8 arch:a,b         either of them; | does the same
//! exp:paper_70b           finds paper-70B: - and _ are alike, and so are letters of either case
//! tp=8 tok/s>1000 tpot<5  = exactly; != < <= > >= for numbers (with units: memory>60GB) and texts
//! tag:good -tag:*         a tag; * any value at all, so -tag:* is what has no tag
//! ```
//!
//! `syntax` reads and prints it ([`Filter`]); `bind` applies it to a [`crate::analysis::RunTable`],
//! `complete` offers what can be typed next.

mod bind;
mod complete;
mod syntax;
#[cfg(test)]
mod tests;

pub(super) use bind::has_word;
pub use bind::{Bound, Match};
pub use complete::complete;
pub use syntax::{Filter, Operator, Term, Test};
