//! Answer to a set of runs, in sentences and a small table: doubts about the numbers first, then who wins and
//! by how much, the hidden share of communication, the cost in quality, the effect of P2P, what is not
//! significant and which cells did not run.
//!
//! Rules over comparisons produce the sentences, so a sweep's end, a stored experiment and the report all
//! show the same text. `upper-bound` is a limit and never wins.

mod doubt;
mod make;
mod quality;
mod question;
#[cfg(test)]
mod tests;

pub use make::{Answer, MOST_RUNS};
