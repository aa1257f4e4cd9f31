//! Values that operations read and write, their placements, and typed indices.

use std::ops::Range;

use serde::{Deserialize, Serialize};

use super::Step;

/// Distribution of a value over the ranks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Placement {
    /// Every rank holds the same full value.
    Replicated,
    Sharded,
    /// Each rank holds a summand of a pending sum.
    Partial,
    /// Each rank holds its own rows ([`Rows::Share`]): sequence parallelism.
    Scattered,
    /// Ranks hold different versions of the same value; only where the architecture allows it
    /// ([`super::Wiring::may_diverge`]).
    Divergent,
}

/// Index of a value in [`super::Plan::values`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct ValueId(pub u32);

/// Index of an operation in [`super::Plan::operations`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct OpId(pub u32);

/// Index of a weight in [`super::Plan::weights`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct WeightId(pub u32);

impl ValueId {
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

impl OpId {
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

impl WeightId {
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

/// Row count of a value in a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Rows {
    /// One row per new token of each sequence: [`super::Step::rows`].
    Tokens,
    Sequences,
    /// A rank's share of [`Rows::Tokens`]: equal shares in rank order, rounded up; the last ranks get
    /// the rest ([`Rows::share`]).
    Share,
}

impl Rows {
    /// Rows on one of `tp` ranks; for shares, the largest.
    pub fn count(self, step: &Step, tp: u32) -> u64 {
        match self {
            Self::Tokens => step.rows(),
            Self::Sequences => step.sequences,
            Self::Share => step.rows().div_ceil(u64::from(tp)),
        }
    }

    /// Range of a rank's share of `rows` rows.
    pub fn share(rows: usize, rank: u32, tp: u32) -> Range<usize> {
        let each = rows.div_ceil(tp as usize);
        let first = (each * rank as usize).min(rows);
        first..(first + each).min(rows)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Element {
    /// Activations, in the plan's dtype ([`super::Precision::activations`]).
    Activation,
    /// Scores over the vocabulary before sampling, always f32.
    Logit,
    /// 8-bit all-reduce messages, with one f32 scale per [`super::SCALED_TOGETHER`] numbers of a row.
    Eight,
    /// Token ids, u32.
    Token,
}

/// Data that one operation writes and others read.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Value {
    /// Unique within the plan: the name of the operation that writes it, `L3/mlp/down`.
    pub name: String,
    pub placement: Placement,
    pub rows: Rows,
    /// Columns per rank.
    pub columns: u32,
    pub element: Element,
    /// Group of the batch its rows belong to; 0 if the batch is not divided.
    #[serde(default, skip_serializing_if = "is_first")]
    pub group: u32,
}

/// True for the first group, which serialization omits.
pub(super) fn is_first(group: &u32) -> bool {
    *group == 0
}
