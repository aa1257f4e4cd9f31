//! What a cell can be asked for. `list.rs` is the one table of options: an entry there is a member of
//! [`Spec`], a key of records and experiment files, an argument of the command line, an axis of grids and
//! comparisons, a column of runs and a condition of filters. The backend that heeds an option is the only
//! other place that knows it.

mod asked;
mod entry;
mod link;
mod list;
mod make;
mod schema;
pub mod variables;

pub use asked::{PAIRS, Pairs};
pub use entry::{About, Kind, OptionEntry, Value};
pub use link::{BANDWIDTHS_GB_S, LATENCIES_US, Link};
pub use list::{Backend, CellOptions, Collective, Nvls, OPTIONS, P2p, Recorder, Spec};
pub use make::{option, value};
