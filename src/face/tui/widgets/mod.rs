//! Shared drawing components. All of them clip to their area.

pub mod field;
pub mod lanes;
pub mod list;
pub mod paint;
pub mod result_card;
pub mod scatter;
pub mod shade;
pub mod table;
pub mod ticks;
pub mod wrap;
