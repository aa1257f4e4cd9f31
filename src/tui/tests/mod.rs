//! Tests of the workbench.
