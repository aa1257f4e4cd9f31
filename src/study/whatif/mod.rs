//! Simulated what-if: one cell with sliders for its hardware and architecture.
//!
//! A [`WhatIfVariant`] is a cell plus the slider changes; a [`Slider`] changes one value. [`WhatIfVariant::answer`] returns
//! the numbers of every architecture, one step of two of them, and a frontier within milliseconds;
//! [`WhatIfVariant::break_even`] finds the link up to which communication stays hidden. All numbers are simulated and
//! must be labelled so. [`TracedSteps::answer`] gives the same numbers for the measured steps of a trace, predicted by
//! [`crate::rewire`].

mod answer;
mod break_even;
mod question;
mod slider;
mod traced_steps;
mod variant;

#[cfg(test)]
mod tests;

pub(crate) use answer::FURTHER_ARCHITECTURES;
pub use answer::{
    CellLink, ExposedIntervals, Fastest, Frontier, FrontierPoint, LaunchGaps, NetworkValues,
    ProfileValues, SimulatedMetrics, StepStrip, StripSpan, WhatIfAnswer, WhatIfRow,
};
pub use break_even::{
    BreakEven, BreakEvenQuantity, CrossedLink, Crossing, HIDDEN_PCT, hidden_words, whole_pct,
};
pub use slider::{
    ARCHITECTURES, Slider, about_architecture, meaning_of_architecture, needs_retraining, own_meaning,
};
pub use traced_steps::TracedSteps;
pub use variant::WhatIfVariant;
pub(crate) use variant::{NETWORK_KEYS, set_link};
