//! Studies of stored runs and traces: analysis, figures, reports, what-if, calibration.

pub mod analysis;
pub mod answer;
pub mod calibrate;
pub mod plot;
pub mod report;
pub mod whatif;
