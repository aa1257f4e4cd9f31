//! The command line as its users meet it: every test runs the binary. One integration-test binary,
//! because each links slowly. Tests that need a CUDA device are a package of their own, `tests/cuda`.

mod adapting;
mod batches;
mod comparing;
mod convert;
mod converting;
mod diffing;
mod docs;
mod errors;
mod evaluating;
mod figures;
mod fuzz;
mod help;
mod hostile;
mod importing;
mod interruption;
mod keystrokes;
mod many;
mod nvtx;
mod pipelines;
mod pty;
mod recording;
mod running;
mod schemas;
mod slurm;
mod soak;
mod stored;
mod support;
mod terminal;
mod traces;
mod validating;
mod verbs;
mod words;

/// The program under test.
const BINARY: &str = env!("CARGO_BIN_EXE_ladderscope");
