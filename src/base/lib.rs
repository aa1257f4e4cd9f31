//! Foundations for all crates: errors and panics, text and natural order, hashes, atomic files, Parquet,
//! statistics, terminals, keyword enums.

pub mod atomic;
pub mod cache;
pub mod checksum;
pub mod error;
pub mod input;
mod kernel_labels;
pub mod offer;
pub mod parquet;
pub mod regular;
pub mod statistics;
pub mod text;
pub mod words;
