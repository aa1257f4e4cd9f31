//! Simulated what-if: one cell with sliders for its hardware and architecture.
//!
//! A [`Variant`] is a cell plus the slider changes; a [`Slider`] changes one value. [`Variant::answer`] returns
//! the numbers of every architecture, one step of two of them, and a frontier within milliseconds;
//! [`Variant::break_even`] finds the link up to which communication stays hidden. All numbers are simulated and
//! must be labelled so. [`TracedStep::answer`] gives the same numbers for a measured step of a trace, predicted by
//! [`crate::rewire`].

mod answer;
mod break_even;
mod question;
mod slider;
mod traced_step;
mod variant;

#[cfg(test)]
mod tests;

pub use answer::{
    Answer, CellLink, Exposure, Fastest, Frontier, FrontierPoint, LaunchGaps, NetworkValues, Numbers,
    ProfileValues, Row, Strip, StripSpan,
};
pub use break_even::{BreakEven, CrossedLink, Crossing, HIDDEN_PCT, Over, hidden_words, whole_pct};
pub use slider::{ARCHITECTURES, Slider, about_architecture, meaning_of_architecture, own_meaning};
pub use traced_step::TracedStep;
pub use variant::Variant;
pub(crate) use variant::{NETWORK_KEYS, set_link};
