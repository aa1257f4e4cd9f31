//! GPUs and their driver, where there are any: what they are, and their clocks before and after a run.

use std::ops::Range;

use serde_json::{Value, json};

use crate::machine::driver::{self, Gpu, GpuInfo};
use crate::machine::nvml;

/// The GPUs as a list (each with its `state` now) and the driver as an object; both null without a driver.
pub(super) fn gpus() -> (Value, Value) {
    let Ok(gpus) = Gpu::list() else { return (Value::Null, Value::Null) };
    let version = nvml::driver_version().ok().or_else(|| {
        let version = std::fs::read_to_string("/sys/module/nvidia/version").ok()?;
        Some(version.trim().to_owned())
    });
    let driver = json!({
        "cuda": driver::version().map(driver::version_text),
        "version": version,
    });
    (gpus.iter().map(describe).collect(), driver)
}

// What tells one machine's GPUs from another's of the same kind (serial numbers) stays out: records are
// published.
fn describe(gpu: &GpuInfo) -> Value {
    json!({
        "name": gpu.name,
        "memory_bytes": gpu.memory_bytes,
        "sms": gpu.multiprocessors,
        "l2_bytes": gpu.l2_bytes,
        "clock_khz": gpu.clock_khz,
        "compute_capability": format!("{}.{}", gpu.sm.0, gpu.sm.1),
        "state": nvml::state(&gpu.uuid, &gpu.pci).ok(),
    })
}

/// The states of the GPUs now, in the order of [`gpus`]; null without a driver.
pub(super) fn states() -> Value {
    let Ok(gpus) = Gpu::list() else { return Value::Null };
    gpus.iter().map(|gpu| json!(nvml::state(&gpu.uuid, &gpu.pci).ok())).collect()
}

/// What lowered clocks between two lists of states, a sentence for each GPU and reason.
pub(super) fn throttling(before: &Value, after: &Value) -> Vec<String> {
    /// Below this (ms) a counter may have moved by its own resolution.
    const NOTICED_MS: f64 = 1.0;
    let mut found = Vec::new();
    let (Some(before), Some(after)) = (before.as_array(), after.as_array()) else { return found };
    for (index, (before, after)) in before.iter().zip(after).enumerate() {
        for (counter, reason) in
            [("power_throttled_ms", "its power limit"), ("thermal_throttled_ms", "heat")]
        {
            let grown = after[counter].as_f64().zip(before["state"][counter].as_f64());
            let grown = grown.map_or(0.0, |(after, before)| after - before);
            if grown > NOTICED_MS {
                found.push(format!("GPU {index}: clocks were lowered by {reason} for {grown:.0} ms"));
            }
        }
    }
    found
}

/// Which of the GPUs that this process used had other processes on them, before it began or when it has ended: there it is
/// one itself.
pub(super) fn others(before: &Value, after: &Value, used: Range<usize>) -> Vec<String> {
    let told = |gpu: usize| {
        let before = before[gpu]["state"]["processes"].as_u64().unwrap_or(0);
        let others = before.max(after[gpu]["processes"].as_u64().unwrap_or(0).saturating_sub(1));
        let who = match others {
            0 => return None,
            1 => "another process".to_owned(),
            several => format!("{several} other processes"),
        };
        Some(format!("GPU {gpu}: {who} computed on it beside this run"))
    };
    used.filter_map(told).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whoever_else_computes_on_a_gpu_that_was_used_is_told() {
        let before = json!([{"state": {"processes": 0}}, {"state": {"processes": 2}}, {"state": null}]);
        let after = json!([{"processes": 1}, {"processes": 1}, {"processes": 2}]);
        assert_eq!(others(&before, &after, 0..1), Vec::<String>::new(), "this run alone");
        assert_eq!(
            others(&before, &after, 0..4),
            [
                "GPU 1: 2 other processes computed on it beside this run",
                "GPU 2: another process computed on it beside this run"
            ]
        );
    }

    #[test]
    fn counters_that_grew_are_told() {
        let before = json!([
            {"state": {"power_throttled_ms": 100.0, "thermal_throttled_ms": 5.0}},
            {"state": {"power_throttled_ms": 0.0, "thermal_throttled_ms": null}},
            {"state": null},
        ]);
        let after = json!([
            {"power_throttled_ms": 350.4, "thermal_throttled_ms": 5.0},
            {"power_throttled_ms": 0.5, "thermal_throttled_ms": null},
            null,
        ]);
        let told = throttling(&before, &after);
        assert_eq!(told, ["GPU 0: clocks were lowered by its power limit for 250 ms"]);
        assert!(throttling(&Value::Null, &Value::Null).is_empty());
    }

    #[test]
    fn both_are_known_or_neither() {
        let (gpus, driver) = gpus();
        assert_eq!(gpus.is_null(), driver.is_null());
        assert_eq!(gpus.is_null(), states().is_null());
    }
}
