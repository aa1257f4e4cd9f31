//! What a set of runs answers, in sentences and a small table: who wins, by how much, how much of the
//! communication was hidden, what it costs in quality, what P2P changed, what cannot be told from chance and what could not run; before all
//! else, whether the numbers can be believed.
//!
//! The sentences are made by rules over comparisons, so that they are the same wherever they stand: where a
//! sweep ends, beside a stored experiment, at the head of the report. `upper-bound` is a limit and no choice:
//! it never wins.

mod doubt;
mod make;
mod quality;
mod question;
#[cfg(test)]
mod tests;

pub use make::{Answer, MOST_RUNS};
