//! Pareto frontiers of latency against throughput.
//!
//! [`axes`] defines the plotted measures, [`points`] makes a point of each cell and has the columns of all
//! tables, [`frontier`] marks the frontiers and reads them at fixed latencies, [`area`] computes the area that one
//! frontier gains over another, [`overlay`] reads external points, which never join a frontier.

mod area;
mod axes;
mod frontier;
mod overlay;
mod points;
#[cfg(test)]
mod tests;

pub use area::{AreaGained, AreaOptions, LEAST_CELLS, area_gained};
pub use axes::{Axes, XAxis, YAxis};
pub use frontier::{
    AtLimit, BestAtLimit, NearMiss, ParetoLayout, at_limits, frontier, frontier_on, mark, round_limits,
};
pub use overlay::{OVERLAY_COLUMNS, OverlayPoint, PUBLISHED, parse_overlay, published, read_overlay};
pub(super) use points::group;
pub use points::{
    ParetoPoint, Series, areas_table, limits_table, pareto, pareto_on, points_table, told_apart,
};
