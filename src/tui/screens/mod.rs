//! One file a screen: each draws its part of the state into a buffer and changes nothing.

pub mod compare;
pub mod experiments;
pub mod live;
pub mod pareto;
pub mod runs;
pub mod timeline;
mod timeline_info;
