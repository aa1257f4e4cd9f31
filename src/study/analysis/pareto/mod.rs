//! Pareto frontiers of latency against throughput.
//!
//! [`axes`] defines the plotted measures, [`points`] makes a point of each cell and marks the frontiers, [`limits`]
//! reads them at fixed latencies, [`area`] computes the area that one frontier gains over another, [`overlay`] reads
//! external points, which never join a frontier, and [`table`] has the columns.

mod apart;
mod area;
mod axes;
mod frontier;
mod limits;
mod overlay;
mod points;
mod table;
#[cfg(test)]
mod tests;

pub use apart::told_apart;
pub use area::{AreaGained, AreaOptions, LEAST_CELLS, area_gained};
pub use axes::{Axes, XAxis, YAxis};
pub use frontier::{ParetoLayout, frontier, frontier_on, mark};
pub use limits::{AtLimit, BestAtLimit, at_limits, round_limits};
pub use overlay::{OVERLAY_COLUMNS, OverlayPoint, PUBLISHED, parse_overlay, published, read_overlay};
pub(super) use points::group;
pub use points::{ParetoPoint, Series, pareto, pareto_on};
pub use table::{areas_table, limits_table, points_table};
