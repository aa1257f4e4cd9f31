//! GPUs and their driver, where there are any.

use std::panic::catch_unwind;

use cudarc::driver::{result, sys};
use serde_json::{Value, json};

/// The GPUs as a list and the driver as an object; both null without a driver.
pub(super) fn gpus() -> (Value, Value) {
    // SAFETY: only tries to open the driver's library, whose loading has no preconditions.
    if !unsafe { sys::is_culib_present() } {
        return (Value::Null, Value::Null);
    }
    // a driver without a symbol that the loader wants makes it panic; then nothing is known
    catch_unwind(|| query().unwrap_or((Value::Null, Value::Null))).unwrap_or((Value::Null, Value::Null))
}

fn query() -> Option<(Value, Value)> {
    result::init().ok()?;
    let mut version = 0;
    // SAFETY: `version` is a valid place for one int.
    unsafe { sys::cuDriverGetVersion(&mut version) }.result().ok()?;
    let driver = json!({
        "cuda": format!("{}.{}", version / 1000, version % 1000 / 10),
        "version": std::fs::read_to_string("/sys/module/nvidia/version").ok().map(|v| v.trim().to_owned()),
    });
    let gpus: Vec<Value> =
        (0..result::device::get_count().ok()?).filter_map(|ordinal| describe(ordinal).ok()).collect();
    Some((json!(gpus), driver))
}

fn describe(ordinal: i32) -> Result<Value, result::DriverError> {
    use sys::CUdevice_attribute_enum as Attribute;
    let device = result::device::get(ordinal)?;
    // SAFETY: the device was just given by the driver.
    let attribute = |which| unsafe { result::device::get_attribute(device, which) }.ok();
    let capability = (
        attribute(Attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR),
        attribute(Attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR),
    );
    Ok(json!({
        "name": result::device::get_name(device)?,
        // SAFETY: as above.
        "memory_bytes": unsafe { result::device::total_mem(device) }?,
        "sms": attribute(Attribute::CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT),
        "clock_khz": attribute(Attribute::CU_DEVICE_ATTRIBUTE_CLOCK_RATE),
        "compute_capability": match capability {
            (Some(major), Some(minor)) => Some(format!("{major}.{minor}")),
            _ => None,
        },
    }))
}
