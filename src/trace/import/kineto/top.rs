//! What the top of a trace says about where it was recorded: rank, GPUs, versions, clock.

use serde_json::{Value, json};

use super::split::Top;
use crate::table::{Environment, Provenance};

/// Ranks above this are no ranks but timestamps and the like.
pub(super) const MOST_RANK: u32 = u16::MAX as u32;

/// Where an export of this program says what its numbers are worth.
const OWN: &str = "ladderscope";

/// The metadata that importing needs, and the environment for people.
#[derive(Clone, Debug, Default)]
pub(super) struct Metadata {
    /// The file's own rank, from `distributedInfo`.
    pub(super) rank: Option<u32>,
    /// Ranks of the job.
    pub(super) world_size: Option<u64>,
    /// What times count from (ns of the wall clock).
    pub(super) base_ns: Option<i64>,
    /// What a file that this program exported says of its numbers.
    pub(super) provenance: Option<Provenance>,
    pub(super) environment: Environment,
    pub(super) warnings: Vec<String>,
}

/// Reads the metadata off the values at the top.
pub(super) fn metadata(top: &Top) -> Metadata {
    let mut metadata = Metadata::default();
    for (key, text) in &top.values {
        let interesting =
            matches!(key.as_str(), "distributedInfo" | "deviceProperties" | "baseTimeNanoseconds" | OWN)
                || matches!(text.first(), Some(b'"' | b'0'..=b'9' | b'-')) && text.len() <= 4096;
        if !interesting {
            continue;
        }
        let lossy = String::from_utf8_lossy(text);
        match serde_json::from_str::<Value>(&lossy) {
            Ok(value) => metadata.take(key, value),
            Err(error) => metadata.warnings.push(format!("{key} at the top could not be read: {error}")),
        }
    }
    metadata
}

impl Metadata {
    fn take(&mut self, key: &str, value: Value) {
        let mut put = |key: &str, value: Value| {
            if !value.is_null() {
                self.environment.insert(key.to_owned(), value);
            }
        };
        match key {
            "distributedInfo" => {
                let number = |key: &str| value[key].as_u64();
                self.rank =
                    number("rank").and_then(|n| u32::try_from(n).ok()).filter(|rank| *rank <= MOST_RANK);
                self.world_size = number("world_size");
                put("backend", value["backend"].clone());
                put("nccl", value["nccl_version"].clone());
                put("world_size", value["world_size"].clone());
            }
            "deviceProperties" => put("gpus", gpus(&value)),
            "baseTimeNanoseconds" => self.base_ns = value.as_i64(),
            OWN => {
                for (key, value) in value["environment"].as_object().into_iter().flatten() {
                    put(key, value.clone());
                }
                let provenance = serde_json::from_value(value["provenance"].clone());
                // what cannot be read is not taken for measured
                self.provenance = Some(provenance.unwrap_or_else(|error| {
                    self.warnings
                        .push(format!("{OWN}.provenance at the top: {error}; taken as simulated"));
                    Provenance::Simulated
                }));
            }
            "hostname" | "hostName" | "host" => put("host", value),
            "cuda_driver_version" => put("driver", cuda_version(&value)),
            "cuda_runtime_version" => put("cuda", cuda_version(&value)),
            // the profiler's temporary file says nothing about the run
            "schemaVersion" | "displayTimeUnit" | "traceName" => {}
            _ => put(key, value),
        }
    }
}

/// CUDA's version as people write it: 12090 in the file is `12.9`.
fn cuda_version(value: &Value) -> Value {
    match value.as_u64() {
        Some(number) if number >= 1000 => json!(format!("{}.{}", number / 1000, number % 1000 / 10)),
        _ => value.clone(),
    }
}

/// Names and memory of the devices.
fn gpus(devices: &Value) -> Value {
    let Some(devices) = devices.as_array() else { return Value::Null };
    let gpus = devices.iter().map(|device| {
        json!({
            "index": device["id"],
            "name": device["name"],
            "memory_bytes": device["totalGlobalMem"],
            "sms": device["numSms"],
        })
    });
    Value::Array(gpus.collect())
}

/// The rank that a file's name tells: `rank3`, `rank_3`, `rank-3`; and with `loose` also the last
/// number, as in `trace_3.json.gz`.
pub(super) fn rank_in_name(name: &str, loose: bool) -> Option<u32> {
    let name = name.rsplit('/').next().unwrap_or(name).to_ascii_lowercase();
    let after_rank =
        name.rfind("rank").map(|at| name[at + 4..].trim_start_matches(['_', '-', '=', '.']));
    let digits = |text: &str| -> Option<u32> {
        let end = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
        text[..end].parse().ok().filter(|rank| *rank <= MOST_RANK)
    };
    after_rank.and_then(digits).or_else(|| {
        let stem = name.split('.').next().filter(|_| loose)?;
        let start = stem.rfind(|c: char| !c.is_ascii_digit()).map_or(0, |at| at + 1);
        digits(&stem[start..])
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranks_are_found_in_names() {
        for (name, strict, loose) in [
            ("dir9/rank3.json", Some(3), Some(3)),
            ("trace_rank_12.pt.trace.json.gz", Some(12), Some(12)),
            ("rank-0-step-5.json", Some(0), Some(0)),
            ("trace_3.json.gz", None, Some(3)),
            ("7.json", None, Some(7)),
            ("host_123.1697000000000.pt.trace.json", None, Some(123)),
            ("trace_20240501.json", None, None),
            ("frank.json", None, None),
            ("trace.json", None, None),
        ] {
            assert_eq!(rank_in_name(name, false), strict, "{name}");
            assert_eq!(rank_in_name(name, true), loose, "{name}");
        }
    }

    #[test]
    fn the_top_tells_rank_gpus_and_versions() {
        let values = [
            (
                "distributedInfo",
                r#"{"rank": 3, "world_size": 8, "nccl_version": "2.21.5", "backend": "nccl"}"#,
            ),
            (
                "deviceProperties",
                r#"[{"id": 0, "name": "NVIDIA H100", "totalGlobalMem": 5, "numSms": 132}]"#,
            ),
            ("cuda_driver_version", "12090"),
            ("baseTimeNanoseconds", "1711964646000000000"),
            ("traceName", r#""/tmp/x.json""#),
            ("ladderscope", r#"{"provenance": "emulated-link", "environment": {"threads": 2}}"#),
            ("nonsense", r#""\x""#),
            ("stackFrames", "{}"),
        ];
        let top = Top {
            values: values.iter().map(|(k, v)| ((*k).to_owned(), v.as_bytes().to_vec())).collect(),
            ..Top::default()
        };
        let metadata = metadata(&top);
        assert_eq!((metadata.rank, metadata.world_size), (Some(3), Some(8)));
        assert_eq!(metadata.base_ns, Some(1_711_964_646_000_000_000));
        assert_eq!(metadata.environment["gpus"][0]["name"], "NVIDIA H100");
        assert_eq!(metadata.environment["driver"], "12.9");
        assert_eq!(metadata.environment["nccl"], "2.21.5");
        assert_eq!(metadata.environment["threads"], 2);
        assert!(!metadata.environment.contains_key("traceName"));
        assert_eq!(metadata.provenance, Some(Provenance::EmulatedLink));
        assert_eq!(metadata.warnings.len(), 1, "{:?}", metadata.warnings);
    }

    #[test]
    fn what_is_unknown_of_an_export_is_not_taken_for_measured() {
        for own in [r#"{"provenance": "certain"}"#, "{}", "3"] {
            let top = Top { values: vec![(OWN.into(), own.into())], ..Top::default() };
            let metadata = metadata(&top);
            assert_eq!(metadata.provenance, Some(Provenance::Simulated), "{own}");
            assert!(metadata.warnings[0].contains("taken as simulated"), "{:?}", metadata.warnings);
        }
        assert_eq!(metadata(&Top::default()).provenance, None);
    }
}
