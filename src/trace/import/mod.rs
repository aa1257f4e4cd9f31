//! Traces that other profilers recorded.
//!
//! Importers read what is in the files and say in an [`ImportReport`](super::ImportReport) what they left;
//! then the [rules](super::rules) say what is communication.

