//! Pieces that several screens draw with. All of them cut off what does not fit.

pub mod field;
pub mod lanes;
pub mod list;
pub mod offers;
pub mod paint;
pub mod scatter;
pub mod shade;
pub mod table;
