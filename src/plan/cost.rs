//! What an operation costs: FLOPs and bytes, affine in the few numbers that describe a step.

use serde::{Deserialize, Serialize};

use super::Phase;

/// The numbers on which every cost depends, for one step (a prefill or one decode step).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Step {
    /// How many sequences of the batch are processed together.
    pub sequences: u64,
    /// New tokens of each sequence: the prompt's in prefill, 1 in a decode step.
    pub new_tokens: u64,
    /// Tokens of each sequence in the KV cache once the new ones are appended.
    pub context: u64,
}

impl Step {
    /// The prefill of `sequences` prompts of `prompt_tokens` tokens each.
    pub fn prefill(sequences: u64, prompt_tokens: u64) -> Self {
        Self { sequences, new_tokens: prompt_tokens, context: prompt_tokens }
    }

    /// Decode step `step` (from 0): it reads token `step + 1` of the output and yields the next one.
    pub fn decode(sequences: u64, prompt_tokens: u64, step: u64) -> Self {
        Self { sequences, new_tokens: 1, context: prompt_tokens + step + 1 }
    }

    /// The part of the step that a group processes.
    pub fn of_group(&self, groups: Groups, group: u32) -> Self {
        match groups {
            Groups { count: 1, .. } => *self,
            Groups { of_tokens: false, .. } => {
                Self { sequences: groups.part(self.sequences, group).1, ..*self }
            }
            Groups { of_tokens: true, .. } => {
                let (first, new_tokens) = groups.part(self.new_tokens, group);
                let context = self.context - self.new_tokens + first + new_tokens;
                Self { new_tokens, context, ..*self }
            }
        }
    }

    /// Rows of an activation: sequences x new tokens.
    pub fn rows(&self) -> u64 {
        self.sequences * self.new_tokens
    }

    /// Tokens that lie in the KV cache, over all sequences.
    pub fn kv_tokens(&self) -> u64 {
        self.sequences * self.context
    }

    /// Query-key pairs under the causal mask, over all sequences, for one head.
    pub fn pairs(&self) -> u64 {
        let (new, context) = (self.new_tokens, self.context);
        self.sequences * (new * context - new * (new.saturating_sub(1)) / 2)
    }
}

/// How a batch is divided into groups (micro-batches), each with activations and KV caches of its own, whose
/// operations alternate on the compute lane.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Groups {
    /// How many groups there are; 1 where nothing is divided.
    pub count: u32,
    /// Whether the tokens of each prompt are divided, a later group attending to what the earlier ones left in
    /// the cache, and not the sequences.
    pub of_tokens: bool,
}

impl Groups {
    /// The whole batch as one group.
    pub const ONE: Self = Self { count: 1, of_tokens: false };

    /// `count` groups of a batch of so many sequences: of its sequences, but in a prefill of fewer sequences
    /// than groups of the prompt's tokens. A decode step has at most as many groups as sequences.
    pub fn of(phase: Phase, batch: u32, count: u32) -> Self {
        let count = count.max(1);
        match phase {
            _ if batch >= count => Self { count, of_tokens: false },
            Phase::Prefill => Self { count, of_tokens: true },
            Phase::Decode => Self { count: batch.max(1), of_tokens: false },
        }
    }

    /// Which part of `whole` things is a group's: where it begins, and how many. Parts differ by at most one,
    /// the larger ones first.
    pub fn part(&self, whole: u64, group: u32) -> (u64, u64) {
        let (count, group) = (u64::from(self.count), u64::from(group));
        let (each, more) = (whole / count, whole % count);
        (group * each + group.min(more), each + u64::from(group < more))
    }
}

/// A cost as a function of the step: `fixed + row x rows + sequence x sequences + kv_token x
/// kv_tokens + pair x pairs`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(default)]
pub struct Quantity {
    /// Independent of the step (weights).
    pub fixed: u64,
    /// Added once for each row of an activation (sequence and new token).
    pub row: u64,
    /// Added once for each sequence of the batch.
    pub sequence: u64,
    /// Added once for each token in the KV cache, over all sequences.
    pub kv_token: u64,
    /// Added once for each query-key pair under the causal mask, of one head.
    pub pair: u64,
}

impl Quantity {
    /// A cost of nothing, in every step.
    pub const ZERO: Self = Self { fixed: 0, row: 0, sequence: 0, kv_token: 0, pair: 0 };

    /// So many times as much.
    pub fn times(&self, n: u64) -> Self {
        Self {
            fixed: n * self.fixed,
            row: n * self.row,
            sequence: n * self.sequence,
            kv_token: n * self.kv_token,
            pair: n * self.pair,
        }
    }

    /// How much it is in one step.
    pub fn at(&self, step: &Step) -> u64 {
        self.fixed
            + self.row * step.rows()
            + self.sequence * step.sequences
            + self.kv_token * step.kv_tokens()
            + self.pair * step.pairs()
    }
}

impl std::ops::Add for Quantity {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self {
            fixed: self.fixed + other.fixed,
            row: self.row + other.row,
            sequence: self.sequence + other.sequence,
            kv_token: self.kv_token + other.kv_token,
            pair: self.pair + other.pair,
        }
    }
}

/// FLOPs and bytes of one operation on one rank.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(default)]
pub struct Cost {
    /// Floating-point operations; a multiply-add counts as two.
    pub flops: Quantity,
    /// Bytes read from memory: weights, activations, KV cache.
    pub bytes_read: Quantity,
    /// Bytes written to memory: activations and new entries of the KV cache.
    pub bytes_written: Quantity,
    /// Bytes of the message of a collective (not bus bytes); 0 for compute.
    pub message_bytes: Quantity,
}

impl std::ops::Add for Cost {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self {
            flops: self.flops + other.flops,
            bytes_read: self.bytes_read + other.bytes_read,
            bytes_written: self.bytes_written + other.bytes_written,
            message_bytes: self.message_bytes + other.message_bytes,
        }
    }
}
