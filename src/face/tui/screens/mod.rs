//! Screens in digit order. To add one, create a folder here and add a line below.

pub mod compare;
pub mod experiments;
pub mod live;
pub mod pareto;
pub mod runs;
pub mod timeline;
pub mod whatif;

super::screen::screens! {
    experiments::Experiments => "experiments", "exp";
    live::Live => "live", "live";
    runs::Runs => "runs", "runs";
    timeline::Timeline => "timeline", "time";
    pareto::Pareto => "pareto", "par";
    compare::Compare => "compare", "comp";
    whatif::WhatIf => "what-if", "what";
}
