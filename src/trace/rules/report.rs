//! What rules did: which rule took which operations, and what nobody is sure about.

use serde::{Deserialize, Serialize};

use super::What;

/// Outcome of classifying a trace. Empty for own traces, whose plan says what everything is.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct RuleReport {
    /// The rules: `default`, `nccl-name`, `hta`, or the file's path.
    pub rules: String,
    /// Rules that matched something, in the order in which they are tried; operations that no rule
    /// matched come last, as computation.
    pub matches: Vec<RuleMatches>,
    /// Long operations taken as computation or memory whose names hint at communication, longest first.
    pub unsure: Vec<Unsure>,
}

/// What a rule matched.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct RuleMatches {
    /// The name of the rule in its file.
    pub rule: String,
    /// What the rule takes operations for.
    pub what: What,
    /// Its operations, longest in all first.
    pub operations: Vec<Matched>,
}

/// An operation, over all ranks.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct Matched {
    /// The kernel's name as the rules saw it.
    pub name: String,
    /// How often it was executed, over all ranks.
    pub count: u64,
    /// The sum of the durations of its executions (ns).
    pub total_ns: u64,
}

/// An operation that might be communication.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct Unsure {
    /// The operation, with how often and how long it ran.
    #[serde(flatten)]
    pub operation: Matched,
    /// What the rules took the operation for.
    pub taken_for: What,
    /// Why one may doubt it, in words.
    pub why: String,
}

impl RuleReport {
    /// Whether rules were applied at all.
    pub fn is_empty(&self) -> bool {
        self.matches.is_empty()
    }

    /// Names of the operations taken for communication, longest in all first.
    pub fn communication(&self) -> Vec<&Matched> {
        let mut found: Vec<&Matched> = self
            .matches
            .iter()
            .filter(|rule| rule.what == What::Communication)
            .flat_map(|rule| &rule.operations)
            .collect();
        found.sort_by(|a, b| b.total_ns.cmp(&a.total_ns).then_with(|| a.name.cmp(&b.name)));
        found
    }
}
