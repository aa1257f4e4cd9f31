//! Rules that classify operations as communication, memory or computation by kernel name.
//!
//! A rule file is TOML (see `default.toml`); the first rule with a matching pattern decides. Native
//! traces need no rules, because their plan defines every operation.

mod classify;
mod exchange;
mod file;
mod report;
#[cfg(test)]
mod tests;

pub use exchange::is_attention;
pub use file::{BUILT_IN, Rule, RuleClass, Rules, function};
pub use report::{Matched, RuleMatches, RuleReport, UnsureOperation};
