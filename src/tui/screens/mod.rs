//! One folder a screen: its page (bindings and what they do), its state, its drawing.

pub mod compare;
pub mod experiments;
pub mod live;
pub mod pareto;
pub mod runs;
pub mod timeline;
pub mod whatif;
