//! Size of a step, or of a group's part of one.

use plan::{Groups, Rows};

/// Tokens of a step, or of a group's part of one: `tokens` new ones for each of `sequences` sequences,
/// starting at `first_sequence`, after the step's first `first_token` tokens. Their positions are in the
/// step's state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct StepSize {
    pub first_sequence: u32,
    pub sequences: u32,
    pub first_token: u32,
    pub tokens: u32,
}

impl StepSize {
    pub fn decode(sequences: u32) -> Self {
        Self { first_sequence: 0, sequences, first_token: 0, tokens: 1 }
    }

    /// Part of the step that one group of the batch processes.
    pub fn of_group(&self, groups: Groups, group: u32) -> Self {
        let whole = if groups.of_tokens { self.tokens } else { self.sequences };
        let (first, count) = groups.part(whole.into(), group);
        let (first, count) = (first as u32, count as u32);
        match groups.of_tokens {
            true => Self { first_token: self.first_token + first, tokens: count, ..*self },
            false => Self { first_sequence: self.first_sequence + first, sequences: count, ..*self },
        }
    }

    /// Rows of an activation: one per new token of each sequence.
    pub fn rows(&self) -> u32 {
        self.sequences * self.tokens
    }

    /// Rows of a plan value on one of `tp` ranks. Rank 0 has the largest share.
    pub fn rows_of(&self, rows: Rows, rank: u32, tp: u32) -> u32 {
        match rows {
            Rows::Tokens => self.rows(),
            Rows::Sequences => self.sequences,
            Rows::Share => Rows::share(self.rows() as usize, rank, tp).len() as u32,
        }
    }
}
