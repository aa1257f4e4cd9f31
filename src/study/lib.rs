//! Studies of stored runs and traces: analysis, figures, reports, what-if, calibration,
//! validation.

pub mod analysis;
pub mod answer;
pub mod calibrate;
mod csv_table;
pub mod diff;
pub mod plot;
pub mod report;
pub mod rewire;
#[doc(hidden)]
pub mod testing;
pub mod validate;
pub mod verdict;
pub mod whatif;
