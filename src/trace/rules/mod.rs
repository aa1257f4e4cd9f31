//! What is communication? Rules that tell collectives, copies and computation apart by kernel names.
//!
//! A rule file is TOML (see `default.toml`); the first rule of which a pattern matches decides. Own
//! traces need no rules: their plan says what each operation is.

mod classify;
mod file;
mod function;
mod glob;
mod report;
#[cfg(test)]
mod tests;

pub use classify::{OTHER, sort};
pub use file::{BUILT_IN, Rule, Rules, What};
pub use function::function;
pub use report::{Matched, RuleMatches, RuleReport, Unsure};
