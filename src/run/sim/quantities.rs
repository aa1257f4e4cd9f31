//! Costs of a plan at a step, as floats: [`Quantity::at`] counts in integers, which large cells would overflow.

use plan::{Cost, Quantity, Step};

/// Numbers that describe a step.
pub(super) struct StepQuantities {
    pub(super) step: Step,
    pub(super) rows: f64,
    sequences: f64,
    new: f64,
    context: f64,
}

impl StepQuantities {
    pub(super) fn new(step: &Step) -> Self {
        let (sequences, new, context) =
            (step.sequences as f64, step.new_tokens as f64, step.context as f64);
        Self { step: *step, rows: sequences * new, sequences, new, context }
    }

    /// Cached tokens that the step's queries see; a window of 0 limits nothing.
    fn kv_tokens_within(&self, window: u32) -> f64 {
        let most = if window == 0 { f64::INFINITY } else { f64::from(window) + self.new - 1.0 };
        self.sequences * self.context.min(most)
    }

    fn pairs_within(&self, window: u32) -> f64 {
        let window = if window == 0 { f64::INFINITY } else { f64::from(window) };
        if self.context <= window {
            return self.sequences * (self.new * self.context - self.new * (self.new - 1.0) / 2.0);
        }
        // the first queries of a sequence see fewer
        let before = self.context - self.new;
        let early = (window - before).clamp(0.0, self.new);
        let fewer = early * (window - before) - early * (early + 1.0) / 2.0;
        self.sequences * (self.new * window - fewer)
    }

    pub(super) fn at(&self, quantity: &Quantity) -> f64 {
        quantity.fixed as f64
            + quantity.row as f64 * self.rows
            + quantity.sequence as f64 * self.sequences
            + quantity.kv_token as f64 * self.kv_tokens_within(quantity.window)
            + quantity.pair as f64 * self.pairs_within(quantity.window)
    }
    /// Bytes read and written.
    pub(super) fn bytes_moved(&self, cost: &Cost) -> f64 {
        self.at(&cost.bytes_read) + self.at(&cost.bytes_written)
    }
}
