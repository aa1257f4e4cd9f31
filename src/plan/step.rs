//! Size of a step, and its division into groups (micro-batches).

use serde::{Deserialize, Serialize};

use super::Phase;

/// Size of one step (a prefill or one decode step); every cost depends on these numbers only.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Step {
    pub sequences: u64,
    /// New tokens per sequence: the prompt length in prefill, 1 in decode.
    pub new_tokens: u64,
    /// Tokens per sequence in the KV cache, including the new ones.
    pub context: u64,
}

impl Step {
    pub fn prefill(sequences: u64, prompt_tokens: u64) -> Self {
        Self { sequences, new_tokens: prompt_tokens, context: prompt_tokens }
    }

    /// Decode step `step` (from 0), which reads output token `step + 1` and yields the next one.
    pub fn decode(sequences: u64, prompt_tokens: u64, step: u64) -> Self {
        Self { sequences, new_tokens: 1, context: prompt_tokens + step + 1 }
    }

    /// Part of the step that a group processes.
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

    /// Tokens in the KV cache, over all sequences.
    pub fn kv_tokens(&self) -> u64 {
        self.sequences * self.context
    }

    /// The step with its context limited to the KV-cache tokens that a sliding window reads; a window of 0 is no limit.
    pub(super) fn limited_to_window(&self, window: u32) -> Self {
        let most = self.new_tokens.saturating_sub(1) + u64::from(window);
        if window == 0 { *self } else { Self { context: self.context.min(most), ..*self } }
    }

    /// Query-key pairs in a sliding window, over all sequences, for one head; a window of 0 is no limit.
    pub(super) fn pairs_in_window(&self, window: u32) -> u64 {
        let window = u64::from(window);
        if window == 0 || self.context <= window {
            return self.pairs();
        }
        // queries whose own position is within the first window see fewer
        let before = self.context - self.new_tokens;
        let early = window.saturating_sub(before).min(self.new_tokens);
        let fewer = early * window.saturating_sub(before) - early * (early + 1) / 2;
        self.sequences * (self.new_tokens * window - fewer)
    }

    /// Query-key pairs under the causal mask, over all sequences, for one head.
    pub fn pairs(&self) -> u64 {
        let (new, context) = (self.new_tokens, self.context);
        self.sequences * (new * context - new * (new.saturating_sub(1)) / 2)
    }
}

/// Division of a batch into groups (micro-batches). Each group has its own activations and KV caches;
/// their operations alternate on the compute lane.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Groups {
    /// 1 if the batch is not divided.
    pub count: u32,
    /// True if groups split each prompt's tokens instead of the sequences; later groups attend to the
    /// cache entries of earlier ones.
    pub of_tokens: bool,
}

impl Groups {
    pub const ONE: Self = Self { count: 1, of_tokens: false };

    /// Divides a batch of `batch` sequences into `count` groups. A prefill with fewer sequences than
    /// groups splits the prompts' tokens instead; a decode step gets at most one group per sequence.
    pub fn new(phase: Phase, batch: u32, count: u32) -> Self {
        let count = count.max(1);
        match phase {
            _ if batch >= count => Self { count, of_tokens: false },
            Phase::Prefill => Self { count, of_tokens: true },
            Phase::Decode => Self { count: batch.max(1), of_tokens: false },
        }
    }

    /// Start and length of a group's part of `whole` items. Part sizes differ by at most one, larger
    /// parts first.
    pub fn part(&self, whole: u64, group: u32) -> (u64, u64) {
        let (count, group) = (u64::from(self.count), u64::from(group));
        let (each, more) = (whole / count, whole % count);
        (group * each + group.min(more), each + u64::from(group < more))
    }
}
