//! The command line as its users meet it: every test runs the binary. One integration-test binary,
//! because each links slowly.

mod batches;
mod comparing;
mod convert;
mod errors;
mod figures;
mod help;
mod interruption;
mod nvtx;
mod pty;
mod running;
mod support;
mod terminal;
mod traces;
mod verbs;
