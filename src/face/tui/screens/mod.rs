//! Screens in digit order. To add one, create a folder here and add a line below.

pub mod compare;
pub mod experiments;
pub mod live;
pub mod pareto;
pub mod runs;
pub mod timeline;
pub mod whatif;

super::screen::screens! {
    experiments::Experiments => "experiments",
    live::Live => "live",
    runs::Runs => "runs",
    timeline::Timeline => "timeline",
    pareto::Pareto => "pareto",
    compare::Compare => "compare",
    whatif::WhatIf => "what-if",
}
