//! Machines: hardware profiles, the environment of this machine, and the CUDA driver.

pub mod driver;
pub mod environment;
pub mod hardware;
pub mod nvml;
