//! Machines: hardware profiles, what this machine is, and the CUDA driver.

pub mod driver;
pub mod environment;
pub mod hardware;
pub mod nvml;
