//! What operations read and write: values, where they lie, and the numbers that name parts of a plan.

use std::ops::Range;

use serde::{Deserialize, Serialize};

use super::Step;

/// What the ranks hold of a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Placement {
    /// Every rank holds all of it, and the same numbers.
    Replicated,
    /// Each rank holds its own columns.
    Sharded,
    /// Each rank holds a summand; the sum is pending.
    Partial,
    /// Each rank holds its own rows ([`Rows::Share`]): sequence parallelism.
    Scattered,
    /// Ranks hold different things that should have been the same: where the
    /// architecture says that ranks may diverge ([`super::Wiring::may_diverge`]).
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
    /// The value's index in [`super::Plan::values`], to index slices by.
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

impl OpId {
    /// The operation's index in [`super::Plan::operations`], to index slices by.
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

impl WeightId {
    /// The weight's index in [`super::Plan::weights`], to index slices by.
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

/// How many rows a value has in a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Rows {
    /// A row for each new token of each sequence: [`super::Step::rows`] of them.
    Tokens,
    /// A row for each sequence: the batch of them.
    Sequences,
    /// A rank's share of the rows of [`Rows::Tokens`]: ranks take equal shares in their order, rounded up, and
    /// the last ones what is left ([`Rows::share`]).
    Share,
}

impl Rows {
    /// How many rows a step has on one of `tp` ranks; of shares, the largest.
    pub fn count(self, step: &Step, tp: u32) -> u64 {
        match self {
            Self::Tokens => step.rows(),
            Self::Sequences => step.sequences,
            Self::Share => step.rows().div_ceil(u64::from(tp)),
        }
    }

    /// Which of `rows` rows are a rank's share.
    pub fn share(rows: usize, rank: u32, tp: u32) -> Range<usize> {
        let each = rows.div_ceil(tp as usize);
        let first = (each * rank as usize).min(rows);
        first..(first + each).min(rows)
    }
}

/// What a value's elements are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Element {
    /// Activations, in the plan's activation dtype ([`super::Precision::activations`]).
    Activation,
    /// Scores over the vocabulary before sampling, f32 whatever the dtype of activations.
    Logit,
    /// Messages of all-reduces in 8 bits, with one f32 scale for [`super::SCALED_TOGETHER`] numbers of a row.
    Eight,
    /// Ids of the vocabulary's tokens, u32.
    Token,
}

/// Something an operation writes once and others read.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Value {
    /// A name that no other value of the plan has: that of the operation that writes it, `L3/mlp/down`.
    pub name: String,
    /// What the ranks hold of it.
    pub placement: Placement,
    /// How many rows it has in a step: one for each new token, or one for each sequence.
    pub rows: Rows,
    /// How many columns one rank holds.
    pub columns: u32,
    /// What the elements are.
    pub element: Element,
    /// The group of the batch to whose part of a step its rows belong; 0 where the batch is not divided.
    #[serde(default, skip_serializing_if = "is_first")]
    pub group: u32,
}

/// Whether a group is the first, which files need not say.
pub(super) fn is_first(group: &u32) -> bool {
    *group == 0
}
