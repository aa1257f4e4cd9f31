//! Shared drawing components. All of them clip to their area.

pub mod field;
pub mod lanes;
pub mod list;
pub mod paint;
pub mod scatter;
pub mod shade;
pub mod table;
