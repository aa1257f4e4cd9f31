//! User interface: the command line and the workbench.

pub mod cli;
pub mod tui;
