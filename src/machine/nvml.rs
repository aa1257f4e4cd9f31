//! What NVML tells of GPUs beside CUDA: clocks, power, throttling, memory errors, NVLink.
//!
//! What a GPU, a driver or a container does not tell is null, never guessed.

use std::sync::OnceLock;

use nvml_wrapper::bitmasks::device::ThrottleReasons;
use nvml_wrapper::enum_wrappers::device::{
    Clock, EccCounter, MemoryError, PerformancePolicy, TemperatureSensor,
};
use nvml_wrapper::enums::device::SampleValue;
use nvml_wrapper::error::NvmlError;
use nvml_wrapper::structs::device::FieldId;
use nvml_wrapper::sys_exports::field_id;
use nvml_wrapper::{Device, Nvml};
use serde::Serialize;

use super::driver::libraries::{self, Library};
use base::error::{Error, Result};

/// The most NVLinks that a GPU can have (`NVML_NVLINK_MAX_LINKS`).
const MOST_LINKS: u32 = 18;

/// What NVML says of a GPU at one moment; `None` where it does not say.
#[derive(Clone, Debug, Default, PartialEq, Serialize, schemars::JsonSchema)]
pub struct State {
    /// Clock of the multiprocessors now (MHz).
    pub sm_clock_mhz: Option<u32>,
    /// Clock of the memory now (MHz).
    pub memory_clock_mhz: Option<u32>,
    /// Highest clock of the multiprocessors (MHz).
    pub sm_clock_max_mhz: Option<u32>,
    /// Highest clock of the memory (MHz).
    pub memory_clock_max_mhz: Option<u32>,
    /// The power that the GPU draws now (W).
    pub power_w: Option<f64>,
    /// Power limit in force (W).
    pub power_limit_w: Option<f64>,
    /// Temperature of the chip (degrees Celsius).
    pub temperature_c: Option<u32>,
    /// Why the clocks are below their highest now: `gpu_idle`, `sw_power_cap`, …; empty: they are not.
    pub throttle_reasons: Option<Vec<String>>,
    /// Time for which power limits have lowered the clocks, since the driver was loaded (ms).
    pub power_throttled_ms: Option<f64>,
    /// Time for which heat has lowered the clocks, since the driver was loaded (ms).
    pub thermal_throttled_ms: Option<f64>,
    /// Whether memory errors are corrected.
    pub ecc: Option<bool>,
    /// Memory errors that could not be corrected, since the driver was loaded.
    pub ecc_uncorrected: Option<u64>,
    /// Whether the GPU is cut into instances.
    pub mig: Option<bool>,
    /// Who may use the GPU: `Default` (anybody), `Prohibited`
    /// (nobody), `ExclusiveProcess` (one process).
    pub compute_mode: Option<String>,
    /// Processes that compute on it now.
    pub processes: Option<u32>,
    /// PCI Express: generation and lanes in use now.
    pub pcie: Option<(u32, u32)>,
}

/// An NVLink of a GPU.
#[derive(Clone, Debug, PartialEq, Serialize, schemars::JsonSchema)]
pub struct Link {
    /// The number of the link, as the GPU counts its own.
    pub link: u32,
    /// NVLink's version as NVML counts it.
    pub version: Option<u32>,
    /// The link's speed in one direction (1e9 bytes a second).
    pub gb_s: Option<f64>,
    /// PCI address of what is at its other end (a GPU or a switch).
    pub remote: Option<String>,
}

/// The version of the driver as NVIDIA numbers its releases: `580.65.06`. Fails where NVML is not there
/// or does not answer.
pub fn driver_version() -> Result<String> {
    nvml()?.sys_driver_version().map_err(|error| failed(&error))
}

/// A GPU's clocks, power, temperature, errors and processes at this moment; `uuid` and `pci` name it as
/// CUDA gives them. Fails where NVML is not there, or knows no such GPU.
pub fn state(uuid: &str, pci: &str) -> Result<State> {
    let device = device(uuid, pci)?;
    let milliseconds =
        |policy| device.violation_status(policy).ok().map(|status| status.violation_time as f64 / 1e6);
    let uncorrected = device.total_ecc_errors(MemoryError::Uncorrected, EccCounter::Volatile);
    Ok(State {
        sm_clock_mhz: device.clock_info(Clock::SM).ok(),
        memory_clock_mhz: device.clock_info(Clock::Memory).ok(),
        sm_clock_max_mhz: device.max_clock_info(Clock::SM).ok(),
        memory_clock_max_mhz: device.max_clock_info(Clock::Memory).ok(),
        power_w: device.power_usage().ok().map(watts),
        power_limit_w: device.enforced_power_limit().ok().map(watts),
        temperature_c: device.temperature(TemperatureSensor::Gpu).ok(),
        throttle_reasons: device.current_throttle_reasons().ok().map(names),
        power_throttled_ms: milliseconds(PerformancePolicy::Power),
        thermal_throttled_ms: milliseconds(PerformancePolicy::Thermal),
        ecc: device.is_ecc_enabled().ok().map(|ecc| ecc.currently_enabled),
        ecc_uncorrected: uncorrected.ok(),
        mig: device.mig_mode().ok().map(|mode| mode.current != 0),
        compute_mode: device.compute_mode().ok().map(|mode| format!("{mode:?}")),
        processes: device.running_compute_processes_count().ok(),
        pcie: device.current_pcie_link_gen().ok().zip(device.current_pcie_link_width().ok()),
    })
}

/// A GPU's NVLinks that are up; empty where it has none. Fails where NVML is not there, or
/// knows no such GPU.
pub fn links(uuid: &str, pci: &str) -> Result<Vec<Link>> {
    let device = device(uuid, pci)?;
    let speed = link_speed(&device);
    let mut links = Vec::new();
    for link in 0..MOST_LINKS {
        let found = device.link_wrapper_for(link);
        if !found.is_active().unwrap_or(false) {
            continue;
        }
        links.push(Link {
            link,
            version: found.version().ok(),
            gb_s: speed,
            remote: found.remote_pci_info().ok().map(|remote| remote.bus_id.to_ascii_lowercase()),
        });
    }
    Ok(links)
}

/// Speed of one link in one direction (GB/s), the same for all links of a GPU.
fn link_speed(device: &Device<'_>) -> Option<f64> {
    [field_id::NVML_FI_DEV_NVLINK_SPEED_MBPS_COMMON, field_id::NVML_FI_DEV_NVLINK_SPEED_MBPS_L0]
        .into_iter()
        .filter_map(|field| field_value(device, field))
        .find(|speed| *speed > 0.0)
        .map(|megabytes| megabytes / 1e3)
}

fn field_value(device: &Device<'_>, field: u32) -> Option<f64> {
    let sample = device.field_values_for(&[FieldId(field)]).ok()?.pop()?.ok()?;
    Some(match sample.value.ok()? {
        SampleValue::F64(value) => value,
        SampleValue::U32(value) => value.into(),
        SampleValue::U64(value) => value as f64,
        SampleValue::I64(value) => value as f64,
    })
}

fn watts(milliwatts: u32) -> f64 {
    f64::from(milliwatts) / 1e3
}

/// The reasons why clocks are lowered, as NVML names them, in lower case: `sw_power_cap`.
fn names(reasons: ThrottleReasons) -> Vec<String> {
    reasons.iter_names().map(|(name, _)| name.to_ascii_lowercase()).collect()
}

fn device(uuid: &str, pci: &str) -> Result<Device<'static>> {
    let nvml = nvml()?;
    nvml.device_by_uuid(uuid)
        .or_else(|_| nvml.device_by_pci_bus_id(pci))
        .map_err(|error| Error::failed(format!("NVML does not know GPU {uuid} at {pci}: {error}")))
}

/// NVML, started once a process.
fn nvml() -> Result<&'static Nvml> {
    static NVML: OnceLock<Result<Nvml, String>> = OnceLock::new();
    let start = || {
        let found = libraries::found(Library::Nvml).map_err(|error| error.to_string())?;
        let started = Nvml::builder().lib_path(found.path.as_os_str()).init();
        started.map_err(|error| failed(&error).to_string())
    };
    NVML.get_or_init(start).as_ref().map_err(|message| Error::failed(message.clone()))
}

fn failed(error: &NvmlError) -> Error {
    Error::failed(format!("NVML cannot be used: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn throttle_reasons_are_named() {
        let reasons = ThrottleReasons::GPU_IDLE | ThrottleReasons::SW_POWER_CAP;
        assert_eq!(names(reasons), ["gpu_idle", "sw_power_cap"]);
        assert_eq!(names(ThrottleReasons::empty()), Vec::<String>::new());
    }

    #[test]
    fn a_gpu_that_nobody_knows_is_an_error() {
        let error = state("GPU-0", "ffff:ff:00.0").err().map(|e| e.to_string()).unwrap_or_default();
        assert!(error.contains("NVML"), "{error}");
    }
}
