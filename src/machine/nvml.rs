//! GPU state from NVML that CUDA does not provide: clocks, power, throttling, memory errors, NVLink.
//!
//! Values not available from GPU, driver or container are null, never guessed.

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

/// Maximum NVLinks per GPU (`NVML_NVLINK_MAX_LINKS`).
const MOST_LINKS: u32 = 18;

/// Snapshot of a GPU's state; null where NVML has no value.
#[derive(Clone, Debug, Default, PartialEq, Serialize, schemars::JsonSchema)]
#[schemars(rename = "State")]
pub struct GpuState {
    /// Current SM clock (MHz).
    pub sm_clock_mhz: Option<u32>,
    /// Current memory clock (MHz).
    pub memory_clock_mhz: Option<u32>,
    /// Maximum SM clock (MHz).
    pub sm_clock_max_mhz: Option<u32>,
    /// Maximum memory clock (MHz).
    pub memory_clock_max_mhz: Option<u32>,
    /// Current power draw (W).
    pub power_w: Option<f64>,
    /// Enforced power limit (W).
    pub power_limit_w: Option<f64>,
    /// Chip temperature (degrees Celsius).
    pub temperature_c: Option<u32>,
    /// Active reasons for lowered clocks: `gpu_idle`, `sw_power_cap`, …; empty at full clocks.
    pub throttle_reasons: Option<Vec<String>>,
    /// Time throttled by power limits since the driver was loaded (ms).
    pub power_throttled_ms: Option<f64>,
    /// Time throttled by heat since the driver was loaded (ms).
    pub thermal_throttled_ms: Option<f64>,
    /// True if ECC is enabled.
    pub ecc: Option<bool>,
    /// Uncorrected memory errors since the driver was loaded.
    pub ecc_uncorrected: Option<u64>,
    /// True if MIG is enabled.
    pub mig: Option<bool>,
    /// Compute mode: `Default` (shared), `Prohibited`, or `ExclusiveProcess` (one process).
    pub compute_mode: Option<String>,
    /// Number of processes computing on the GPU.
    pub processes: Option<u32>,
    /// PCI Express generation and lanes currently in use.
    pub pcie: Option<(u32, u32)>,
}

/// NVLink of a GPU.
#[derive(Clone, Debug, PartialEq, Serialize, schemars::JsonSchema)]
#[schemars(rename = "Link")]
pub struct NvLink {
    /// Link index on this GPU.
    pub link: u32,
    /// NVLink version as numbered by NVML.
    pub version: Option<u32>,
    /// Speed per direction (1e9 bytes per second).
    pub gb_s: Option<f64>,
    /// PCI address of the remote end (a GPU or a switch).
    pub remote: Option<String>,
}

/// Driver release: `580.65.06`. Returns an error if NVML is missing or fails.
pub fn driver_version() -> Result<String> {
    nvml()?.sys_driver_version().map_err(|error| failed(&error))
}

/// Current state of a GPU, identified by CUDA's `uuid` or `pci`. Returns an error if NVML is missing or
/// does not know the GPU.
pub fn state(uuid: &str, pci: &str) -> Result<GpuState> {
    let device = device(uuid, pci)?;
    let milliseconds =
        |policy| device.violation_status(policy).ok().map(|status| status.violation_time as f64 / 1e6);
    let uncorrected = device.total_ecc_errors(MemoryError::Uncorrected, EccCounter::Volatile);
    Ok(GpuState {
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

/// Active NVLinks of a GPU. Returns an error if NVML is missing or does not know the GPU.
pub fn links(uuid: &str, pci: &str) -> Result<Vec<NvLink>> {
    let device = device(uuid, pci)?;
    let speed = link_speed(&device);
    let mut links = Vec::new();
    for link in 0..MOST_LINKS {
        let found = device.link_wrapper_for(link);
        if !found.is_active().unwrap_or(false) {
            continue;
        }
        links.push(NvLink {
            link,
            version: found.version().ok(),
            gb_s: speed,
            remote: found.remote_pci_info().ok().map(|remote| remote.bus_id.to_ascii_lowercase()),
        });
    }
    Ok(links)
}

/// Speed of one link per direction (GB/s), equal for all links of a GPU.
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

/// Throttle reasons by NVML name in lower case: `sw_power_cap`.
fn names(reasons: ThrottleReasons) -> Vec<String> {
    reasons.iter_names().map(|(name, _)| name.to_ascii_lowercase()).collect()
}

fn device(uuid: &str, pci: &str) -> Result<Device<'static>> {
    let nvml = nvml()?;
    nvml.device_by_uuid(uuid)
        .or_else(|_| nvml.device_by_pci_bus_id(pci))
        .map_err(|error| Error::failed(format!("NVML does not know GPU {uuid} at {pci}: {error}")))
}

/// NVML, initialized once per process.
fn nvml() -> Result<&'static Nvml> {
    static NVML: OnceLock<Result<Nvml, String>> = OnceLock::new();
    let start = || {
        let found = libraries::open_with_path(Library::Nvml).map_err(|error| error.to_string())?;
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
