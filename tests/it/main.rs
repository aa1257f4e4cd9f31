//! The command line as its users meet it: every test runs the binary. One integration-test binary,
//! because each links slowly.

mod batches;
mod comparing;
mod convert;
mod cuda_backend;
mod cuda_device;
mod cuda_device_rules;
mod cuda_doctor;
mod cuda_driver;
mod cuda_faults;
mod cuda_generate;
mod cuda_order;
mod cuda_run;
mod cuda_timing;
mod docs;
mod errors;
mod evaluating;
mod figures;
mod fuzz;
mod gpu_scripts;
mod help;
mod hostile;
mod interruption;
mod launched;
mod nvtx;
mod pty;
mod running;
mod stored;
mod support;
mod terminal;
mod traces;
mod validating;
mod verbs;
mod wings;
mod words;
