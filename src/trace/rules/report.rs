//! Report of a classification: operations per rule, and uncertain ones.

use serde::{Deserialize, Serialize};

use super::What;

/// Result of classifying a trace. Empty for native traces, whose plan defines every operation.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct RuleReport {
    /// Rule set: `default`, `nccl-name`, `hta`, or the path of the file.
    pub rules: String,
    /// Rules with matches, in order of evaluation; unmatched operations come last, as computation.
    pub matches: Vec<RuleMatches>,
    /// Long operations classified as computation or memory whose names suggest communication, longest
    /// first.
    pub unsure: Vec<Unsure>,
}

/// Matches of one rule.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct RuleMatches {
    /// Name of the rule in its file.
    pub rule: String,
    /// Class that the rule assigns.
    pub what: What,
    /// Matching operations, by descending total time.
    pub operations: Vec<Matched>,
}

/// Executions of one operation on all ranks.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct Matched {
    /// Kernel name as the rules saw it.
    pub name: String,
    /// Number of executions on all ranks.
    pub count: u64,
    /// Sum of the durations (ns).
    pub total_ns: u64,
}

/// An operation that may be communication.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct Unsure {
    /// Operation with its count and total time.
    #[serde(flatten)]
    pub operation: Matched,
    /// Class that the rules assigned.
    pub taken_for: What,
    /// Reason for the doubt.
    pub why: String,
}

impl RuleReport {
    /// True if no rules were applied.
    pub fn is_empty(&self) -> bool {
        self.matches.is_empty()
    }

    /// Operations classified as communication, by descending total time.
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
