//! Report of a classification: operations by rule, and uncertain ones.

use serde::{Deserialize, Serialize};

use super::file::RuleClass;

/// Result of classifying a trace. Empty for native traces, whose plan defines every operation.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct RuleReport {
    /// Rule set: `default`, `nccl-name`, `hta`, or the path of the file.
    pub rules: String,
    /// Rules with matches, in order of evaluation; unmatched operations come last, as computation.
    pub matches: Vec<RuleMatches>,
    /// Long operations classified as computation or memory whose names suggest communication, longest
    /// first.
    pub unsure: Vec<UnsureOperation>,
}

/// Matches of one rule.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct RuleMatches {
    /// Name of the rule in its file.
    pub rule: String,
    /// Class that the rule assigns.
    pub what: RuleClass,
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

impl Matched {
    pub(super) fn longest_first(&self, other: &Self) -> std::cmp::Ordering {
        other.total_ns.cmp(&self.total_ns).then_with(|| self.name.cmp(&other.name))
    }
}

/// An operation that may be communication.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[schemars(rename = "Unsure")]
pub struct UnsureOperation {
    /// Operation with its count and total time.
    #[serde(flatten)]
    pub operation: Matched,
    /// Class that the rules assigned.
    pub taken_for: RuleClass,
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
            .filter(|rule| rule.what == RuleClass::Communication)
            .flat_map(|rule| &rule.operations)
            .collect();
        found.sort_by(|a, b| a.longest_first(b));
        found
    }
}
