//! Publication-quality figures as SVG and PNG, drawn through plotters with a bundled open font.
//!
//! A figure is first laid out as a scene: shapes and texts at positions in points, pure and testable
//! (`layout` has the common parts). Plotters then renders it as SVG (`svg`), and a PNG is rasterized from
//! that (`png`). Page sizes are in inches and text sizes in points, independent of the page. The same data
//! give the same bytes. Every figure states its provenance in the caption and in its file
//! ([`ProvenanceSummary`]).

mod axis;
mod bars;
mod charts;
mod comparison;
mod conversion;
mod figure;
mod font;
mod gain;
mod improvement;
mod lanes;
mod layout;
mod options;
mod overlap;
mod p2p;
mod pareto;
mod png;
mod provenance;
mod scene;
mod style;
mod svg;
#[cfg(test)]
mod tests;
mod throughput;
mod timeline;
mod training;
mod validation;

use charts::{MOST_CHARTS, group_note, series_legend, too_many, too_narrow};
pub use comparison::comparison_figure;
pub use conversion::{conversion_figure, series_look};
pub use figure::{Figure, check_format, write};
pub use gain::gain_figure;
pub use improvement::improvement_figure;
pub use options::{Options, Size};
pub use overlap::{Part, overlap_figure};
pub use p2p::p2p_figure;
pub use pareto::{ParetoData, overlay, pareto_figure};
pub use png::{Pixels, png_file};
pub use provenance::ProvenanceSummary;
pub use scene::{Align, Color, Scene, Shape, Text};
pub use style::{Look, Marker, look, numbers as look_numbers};
pub use throughput::throughput_figure;
pub use timeline::{Stretch, timeline, timeline_figure};
pub use training::training_figure;
pub use validation::validation_figure;
