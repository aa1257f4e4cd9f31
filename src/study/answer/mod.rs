//! Result of a set of runs as a card: who wins and by how much, how far to trust it, and at most three bullets (failures,
//! where others win, hidden share of communication, P2P); then details and a table.
//!
//! Rules over comparisons produce the text, so a sweep's end, a stored experiment and the report all show the same.
//! `upper-bound` is a limit and never wins.

mod make;
mod question;
#[cfg(test)]
mod tests;

pub use make::{Answer, CardLine, MOST_RUNS};
pub use question::{headlines, headlines_of_all};
