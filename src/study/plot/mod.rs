//! Publication-quality figures as SVG and PNG, drawn through plotters with a bundled open font.
//!
//! A figure is first laid out as a scene: shapes and texts at positions in points, pure and testable
//! (`layout` and `axis` have the common parts). Plotters then paints it with its own SVG or bitmap
//! backend (`paint`). Page sizes are in inches and text sizes in points, independent of the page. The same
//! data give the same bytes. Every figure states its provenance in the caption and in its file
//! ([`ProvenanceSummary`]).

mod axis;
mod bars;
mod comparison;
mod conversion;
mod figure;
mod first_token;
mod font;
mod gain;
mod improvement;
mod layout;
mod overlap;
mod p2p;
mod paint;
mod pareto;
mod provenance;
mod scene;
mod style;
#[cfg(test)]
mod tests;
mod throughput;
mod timeline;
mod training;
mod validation;

pub use axis::{Chart, ValueAxis, number};
pub use comparison::comparison_figure;
pub use conversion::{conversion_figure, series_look};
pub use figure::{Figure, FigureOptions, POINTS, Size, check_format, png_file, write};
pub use first_token::first_token_figure;
pub use gain::gain_figure;
pub use improvement::improvement_figure;
use layout::{check_charts, group_note, series_legend, too_narrow};
pub use overlap::{OverlapPart, overlap_figure};
pub use p2p::p2p_figure;
pub use paint::{Pixels, pixels};
pub use pareto::{Overlaid, ParetoData, ParetoPanel, limit_words, overlay, pareto_figure};
pub use provenance::ProvenanceSummary;
pub use scene::{Area, Color, Fill, Scene};
pub use style::{FigureSizes, Look, Looks, Marker, look, numbers as look_numbers};
pub use throughput::throughput_figure;
pub use timeline::{TraceStretch, timeline, timeline_figure};
pub use training::training_figure;
pub use validation::validation_figure;
