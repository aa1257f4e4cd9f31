//! Foundations for all crates: errors and panics, text and natural order, hashes, atomic files, Parquet,
//! statistics, terminals, keyword enums.

pub mod atomic;
pub mod cache;
pub mod checksum;
pub mod error;
pub mod hash;
pub mod input;
pub mod natural;
pub mod offer;
pub mod owner;
pub mod panic;
pub mod parquet;
pub mod regular;
pub mod statistics;
pub mod terminal;
pub mod text;
pub mod words;
