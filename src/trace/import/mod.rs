//! Traces of other profilers, read into the one format.

pub mod kineto;
