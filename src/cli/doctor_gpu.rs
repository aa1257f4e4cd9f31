//! CUDA driver, GPUs and which of them reach each other, asked without ever panicking.

use std::ffi::c_int;

use cudarc::driver::result::{self, device};
use cudarc::driver::sys::{self, CUdevice_attribute};
use serde::Serialize;

/// What the CUDA driver answers.
#[derive(Debug, Default, Serialize)]
pub struct Gpus {
    /// The CUDA version the driver supports: `13.0`.
    pub driver_api: Option<String>,
    /// GPUs.
    pub gpus: Vec<Gpu>,
    /// For each GPU, which others' memory it can reach directly.
    pub p2p: Vec<Vec<bool>>,
    /// Why there is no usable GPU.
    pub problem: Option<String>,
}

/// A GPU.
#[derive(Debug, Serialize)]
pub struct Gpu {
    /// CUDA's number of it.
    pub index: usize,
    /// NVIDIA's name of it.
    pub name: String,
    /// Its memory.
    pub memory_bytes: u64,
    /// Its streaming multiprocessors.
    pub multiprocessors: i32,
    /// `9.0`.
    pub compute_capability: String,
}

/// Asks the driver.
pub fn probe() -> Gpus {
    // SAFETY: only tries to load the library.
    if !unsafe { sys::is_culib_present() } {
        return Gpus {
            problem: Some("no NVIDIA driver: libcuda.so is not installed".into()),
            ..Gpus::default()
        };
    }
    // cudarc panics where a driver lacks a symbol; here that is an answer like any other.
    let hook = std::panic::take_hook();
    std::panic::set_hook(Box::new(|_| {}));
    let answer = std::panic::catch_unwind(ask);
    std::panic::set_hook(hook);
    match answer {
        Ok(Ok(gpus)) => gpus,
        Ok(Err(error)) => Gpus { problem: Some(describe(&error)), ..Gpus::default() },
        Err(_) => Gpus {
            problem: Some("the NVIDIA driver is too old: libcuda.so lacks functions".into()),
            ..Gpus::default()
        },
    }
}

fn describe(error: &result::DriverError) -> String {
    let text = error.error_string().ok().map(|text| text.to_string_lossy().into_owned());
    format!("the NVIDIA driver answers: {}", text.unwrap_or_else(|| format!("{:?}", error.0)))
}

fn ask() -> Result<Gpus, result::DriverError> {
    result::init()?;
    let mut version: c_int = 0;
    // SAFETY: writes one int to a valid address.
    unsafe { sys::cuDriverGetVersion(&mut version) }.result()?;
    let devices = (0..device::get_count()?).map(device::get).collect::<Result<Vec<_>, _>>()?;
    let mut gpus = Vec::new();
    for (index, &gpu) in devices.iter().enumerate() {
        // SAFETY: `gpu` is a device that the driver has just given, here and below.
        let attribute = |attribute| unsafe { device::get_attribute(gpu, attribute) };
        gpus.push(Gpu {
            index,
            name: device::get_name(gpu)?,
            // SAFETY: as above.
            memory_bytes: unsafe { device::total_mem(gpu) }? as u64,
            multiprocessors: attribute(CUdevice_attribute::CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT)?,
            compute_capability: format!(
                "{}.{}",
                attribute(CUdevice_attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR)?,
                attribute(CUdevice_attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR)?
            ),
        });
    }
    let mut p2p = Vec::new();
    for &from in &devices {
        let mut row = Vec::new();
        for &to in &devices {
            let mut can: c_int = 0;
            if from != to {
                // SAFETY: both are devices of this driver; writes one int to a valid address.
                unsafe { sys::cuDeviceCanAccessPeer(&mut can, from, to) }.result()?;
            }
            row.push(can != 0);
        }
        p2p.push(row);
    }
    let problem = gpus.is_empty().then(|| "the NVIDIA driver knows no GPU".to_owned());
    let driver_api = Some(format!("{}.{}", version / 1000, version % 1000 / 10));
    Ok(Gpus { driver_api, gpus, p2p, problem })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn probing_answers_with_gpus_or_with_a_reason() {
        let found = probe();
        assert_eq!(found.gpus.is_empty(), found.problem.is_some());
        assert_eq!(found.p2p.len(), found.gpus.len());
    }
}
