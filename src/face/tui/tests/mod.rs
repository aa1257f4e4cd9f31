//! Tests of the workbench: states made by hand, keys sent through `update`, windows drawn on a buffer.

mod conversions;
pub mod fixtures;
mod fuzz;
mod looks;
mod paper;
mod picking;
mod results;
mod runs;
mod scenarios;
mod scope;
mod searching;
mod small;
mod sweeping;
mod timelines;
mod trainings;
