//! How large a step is, or a group's part of one: which rows of which sequences it processes.

use plan::{Groups, Rows};

/// Which tokens a step, or a group's part of one, processes: `tokens` new ones of each of `sequences` sequences
/// from `first_sequence` on, behind `first_token` others of the step. Their positions lie in the step's state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct StepSize {
    pub first_sequence: u32,
    pub sequences: u32,
    pub first_token: u32,
    pub tokens: u32,
}

impl StepSize {
    /// One new token of each sequence.
    pub fn decode(sequences: u32) -> Self {
        Self { first_sequence: 0, sequences, first_token: 0, tokens: 1 }
    }

    /// The part of the step that a group of the batch processes.
    pub fn of_group(&self, groups: Groups, group: u32) -> Self {
        let whole = if groups.of_tokens { self.tokens } else { self.sequences };
        let (first, count) = groups.part(whole.into(), group);
        let (first, count) = (first as u32, count as u32);
        match groups.of_tokens {
            true => Self { first_token: self.first_token + first, tokens: count, ..*self },
            false => Self { first_sequence: self.first_sequence + first, sequences: count, ..*self },
        }
    }

    /// Rows that an activation of the step has: one for each new token of each sequence.
    pub fn rows(&self) -> u32 {
        self.sequences * self.tokens
    }

    /// Rows that a value of the plan has in the step on one of `tp` ranks, by what the plan says it has a row for.
    /// No rank's share is larger than the first one's.
    pub fn rows_of(&self, rows: Rows, rank: u32, tp: u32) -> u32 {
        match rows {
            Rows::Tokens => self.rows(),
            Rows::Sequences => self.sequences,
            Rows::Share => Rows::share(self.rows() as usize, rank, tp).len() as u32,
        }
    }
}
