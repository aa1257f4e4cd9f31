//! What every wing stands on: errors and panics, text and its order, hashes, files that are whole or not there, frames as Parquet files, statistics, terminals, words.

pub mod atomic;
pub mod cache;
pub mod error;
pub mod hash;
pub mod input;
pub mod natural;
pub mod offer;
pub mod owner;
pub mod panic;
pub mod parquet;
pub mod regular;
pub mod shared_gpu;
pub mod statistics;
pub mod terminal;
pub mod text;
pub mod words;
