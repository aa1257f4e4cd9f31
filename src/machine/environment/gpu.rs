//! GPUs and driver of the machine, and GPU state before and after a run.

use std::ops::Range;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::driver::{self, Gpu, GpuInfo};
use crate::nvml;

/// List of GPUs (each with its current `state`) and the driver; both null without a driver.
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

// Serial numbers are omitted because records are published. The UUID (`gpu_uuid`) identifies a run's
// GPU, since two GPUs of the same model differ in speed.
fn describe(gpu: &GpuInfo) -> Value {
    json!({
        "name": gpu.name,
        "memory_bytes": gpu.memory_bytes,
        "sms": gpu.multiprocessors,
        "l2_bytes": gpu.l2_bytes,
        "clock_khz": gpu.clock_khz,
        "compute_capability": format!("{}.{}", gpu.sm.0, gpu.sm.1),
        "state": state(gpu),
    })
}

/// Current GPU states in the order of [`gpus`]; null without a driver.
pub(super) fn states() -> Value {
    let Ok(gpus) = Gpu::list() else { return Value::Null };
    gpus.iter().map(state).collect()
}

/// State of a rank's GPU during sampling.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Sampled {
    /// State before the first sample; null if NVML does not report it.
    before: Value,
    after: Value,
    /// Lowest SM clock (MHz) seen at the end of a sample.
    lowest_sm_clock_mhz: Option<u64>,
}

impl Sampled {
    /// Records the state before the first sample.
    pub fn start(gpu: &GpuInfo) -> Self {
        let before = state(gpu);
        Self { after: before.clone(), before, lowest_sm_clock_mhz: None }
    }

    /// Updates the state at the end of a sample.
    pub fn ended(&mut self, gpu: &GpuInfo) {
        self.look(state(gpu));
    }

    fn look(&mut self, state: Value) {
        let clock = state["sm_clock_mhz"].as_u64();
        self.lowest_sm_clock_mhz = self.lowest_sm_clock_mhz.into_iter().chain(clock).min();
        self.after = state;
    }
}

fn state(gpu: &GpuInfo) -> Value {
    json!(nvml::state(&gpu.uuid, &gpu.pci).ok())
}

/// Warnings about throttling during samples, one per rank and reason: heat, and a power limit if clocks
/// fell below 95 % of the maximum. Memory-bound GPUs are at the power limit most of the time and lose
/// only about 1 %. `ranks` is a list of [`Sampled`].
pub(super) fn throttling(ranks: &Value) -> Vec<String> {
    /// Threshold (ms) above the counter's resolution.
    const NOTICED_MS: f64 = 1.0;
    const NEARLY: f64 = 0.95;
    let mut found = Vec::new();
    for (rank, sampled) in ranks.as_array().into_iter().flatten().enumerate() {
        let lowest = sampled["lowest_sm_clock_mhz"].as_f64();
        let clocks = lowest.zip(sampled["after"]["sm_clock_max_mhz"].as_f64());
        let is_near = clocks.is_some_and(|(lowest, most)| lowest >= NEARLY * most);
        let at = clocks.map(|(lowest, most)| format!(" ({lowest} of {most} MHz at the end of one)"));
        for (counter, reason, is_fine) in
            [("power_throttled_ms", "its power limit", is_near), ("thermal_throttled_ms", "heat", false)]
        {
            let [before, after] = ["before", "after"].map(|when| sampled[when][counter].as_f64());
            let grown = after.zip(before).map_or(0.0, |(after, before)| after - before);
            if grown > NOTICED_MS && !is_fine {
                let at = at.as_deref().unwrap_or_default();
                found.push(format!(
                    "GPU of rank {rank}: clocks were lowered by {reason} for {grown:.0} ms of its samples{at}"
                ));
            }
        }
    }
    found
}

/// Warnings about other processes on the used GPUs, before or after the run; after the run, this process
/// is one of those counted.
pub(super) fn others(before: &Value, after: &Value, used: Range<usize>) -> Vec<String> {
    let told = |gpu: usize| {
        let before = before[gpu]["state"]["processes"].as_u64().unwrap_or(0);
        let others = before.max(after[gpu]["processes"].as_u64().unwrap_or(0).saturating_sub(1));
        let who = match others {
            0 => return None,
            1 => "another process".to_owned(),
            several => format!("{several} other processes"),
        };
        Some(format!("GPU {gpu}: {who} used it during this run"))
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
                "GPU 1: 2 other processes used it during this run",
                "GPU 2: another process used it during this run"
            ]
        );
    }

    #[test]
    fn clocks_that_were_lowered_by_much_or_by_heat_are_told() {
        let state = |clock: u32, power: f64, heat: f64| {
            json!({
                "sm_clock_mhz": clock, "sm_clock_max_mhz": 1980,
                "power_throttled_ms": 100.0 + power, "thermal_throttled_ms": heat,
            })
        };
        let told = |clock: u32, power: f64, heat: f64| {
            let before = state(1980, 0.0, 0.0);
            let mut sampled = Sampled { after: before.clone(), before, lowest_sm_clock_mhz: None };
            sampled.look(state(clock, power / 2.0, heat));
            sampled.look(state(1980, power, heat));
            let silent = Sampled { before: Value::Null, after: Value::Null, lowest_sm_clock_mhz: None };
            throttling(&json!([silent, sampled]))
        };
        assert_eq!(
            told(1200, 250.4, 0.0),
            [
                "GPU of rank 1: clocks were lowered by its power limit for 250 ms of its samples (1200 of 1980 MHz at the end of one)"
            ]
        );
        assert!(told(1965, 250.4, 0.0).is_empty(), "a percent");
        assert_eq!(told(1980, 0.0, 3.0).len(), 1, "heat");
        assert!(told(1200, 0.5, 0.0).is_empty());
        assert!(throttling(&Value::Null).is_empty());
    }

    #[test]
    fn both_are_known_or_neither() {
        let (gpus, driver) = gpus();
        assert_eq!(gpus.is_null(), driver.is_null());
        assert_eq!(gpus.is_null(), states().is_null());
    }
}
