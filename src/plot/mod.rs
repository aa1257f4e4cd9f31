//! Figures fit for a paper, as SVG and PNG, through plotters with a bundled open font.
//!
//! A figure is first laid out as a [`scene::Scene`] (shapes and texts at their places, pure and
//! testable) and then painted by [`surface`]. Every figure carries the provenance of its numbers.

mod axis;
mod comparison;
mod pareto;
mod scene;
mod style;
mod surface;
#[cfg(test)]
mod tests;
mod timeline;

pub use comparison::comparison;
pub use pareto::pareto;
pub use timeline::timeline;
