//! What if: one simulated cell, its hardware and its architecture under sliders.
//!
//! A [`Variant`] is a cell and what the sliders changed; a [`Slider`] changes one thing of it; the
//! [`Engine`] answers with the numbers of every architecture, a step of two of them, and a frontier,
//! in some milliseconds, and finds up to where communication stays hidden ([`BreakEven`]). Everything
//! here is the simulator's: no number may be shown without `simulated`.

mod answer;
mod break_even;
mod engine;
mod slider;
mod variant;

#[cfg(test)]
mod tests;

pub use answer::{
    Answer, CellLink, Exposure, Frontier, FrontierPoint, Numbers, ProfileValues, Row, Strip, StripSpan,
};
pub use break_even::{BreakEven, CrossedLink, Crossing, HIDDEN_PCT, Over};
pub use engine::Engine;
pub use slider::{ARCHITECTURES, Slider};
pub use variant::Variant;
