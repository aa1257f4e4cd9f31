//! Options of a cell. Each entry of the table in `list.rs` is a field of [`Spec`], a key of records and
//! experiment files, a command-line argument, an axis of grids and comparisons, a column of runs, and a
//! filter condition. Apart from the table, only the backend that uses an option needs to know it.

mod asked;
mod collective;
mod entry;
mod link;
mod list;
mod make;
mod schema;
pub mod variables;

pub use asked::{PAIRS, Pairs, pair};
pub use collective::{AboutCollective, Collective};
pub use entry::{About, Kind, OptionEntry, Value};
pub use link::{BANDWIDTHS_GB_S, LATENCIES_US, Link};
pub use list::{Backend, CellOptions, Nvls, OPTIONS, P2p, Recorder, Spec};
pub use make::{option, value};
