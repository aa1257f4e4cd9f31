//! Figures fit for a paper, as SVG and PNG, drawn through plotters with a bundled open font.
//!
//! A figure is first laid out as a scene (shapes and texts at their places in points, pure and
//! testable; `layout` has what figures have in common), then painted by plotters into an SVG (`svg`),
//! of which a PNG is a picture (`png`). Sizes are inches, text keeps its size in points whatever the
//! figure's, the same data give the same bytes, and every figure says under it and in its file where
//! its numbers come from ([`Facts`]).

mod axis;
mod bars;
mod comparison;
mod facts;
mod figure;
mod font;
mod improvement;
mod lanes;
mod layout;
mod options;
mod overlap;
mod p2p;
mod pareto;
mod png;
mod scene;
mod style;
mod svg;
#[cfg(test)]
mod tests;
mod throughput;
mod timeline;

pub use comparison::comparison_figure;
pub use facts::Facts;
pub use figure::{Figure, check_format, write};
pub use improvement::improvement_figure;
pub use options::{Options, Size};
pub use overlap::{Part, overlap_figure};
pub use p2p::p2p_figure;
pub use pareto::{ParetoData, overlay, pareto_figure};
pub use png::Pixels;
pub use style::numbers as look_numbers;
pub use svg::escape;
pub use throughput::throughput_figure;
pub use timeline::{timeline, timeline_figure};

use crate::error::Error;

/// Charts in one figure; with more of them nobody finds anything.
const MOST_CHARTS: usize = 16;

/// The name of a group of comparable runs as a note under a title: provenance is said in the caption.
fn group_note(name: &str) -> String {
    let words = name.split(", ");
    let words = words.filter(|word| !["measured", "emulated-link", "simulated"].contains(word));
    words.collect::<Vec<_>>().join(", ")
}

fn too_many(charts: usize, axis: &str) -> Error {
    Error::input_help(
        format!("{charts} charts are too many for one figure: at most {MOST_CHARTS}"),
        format!("choose runs with --filter, for example '{axis}<=8'"),
    )
}
