//! Metadata at the top of a trace: rank, GPUs, versions, clock.

use serde_json::{Value, json};

use super::json::nanoseconds;
use super::split::Top;
use crate::import::rank::{Claim, MOST_RANK};
use table::{Environment, Provenance};

const OWN: &str = "ladderscope";

#[derive(Clone, Debug, Default)]
pub(super) struct Metadata {
    /// Rank of the file, from `distributedInfo`.
    pub(super) rank: Option<u32>,
    pub(super) world_size: Option<u64>,
    /// Base of all times, on the wall clock (ns).
    pub(super) base_ns: Option<i64>,
    /// Provenance, if the file is a Ladderscope export.
    pub(super) provenance: Option<Provenance>,
    pub(super) environment: Environment,
    /// Clock, and number of clocks, if the file is a Ladderscope export.
    pub(super) clock: Option<(String, u32)>,
    /// Names and global ranks of process groups, from `distributedInfo`.
    pub(super) groups: Vec<(String, Vec<u32>)>,
    pub(super) warnings: Vec<String>,
}

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
                self.groups = groups(&value["pg_config"]);
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
                // a verdict needs them to tell a pipeline's bubbles
                if value["spec"]["pp"].as_u64().is_some_and(|pp| pp > 1) {
                    for key in ["pp", "micro_batches"] {
                        put(key, value["spec"][key].clone());
                    }
                }
                let import = &value["import"];
                let files = import["files"].as_array().map_or(1, Vec::len);
                let clocks = import["clocks"].as_u64().unwrap_or(files as u64);
                let clock = value["clock"].as_str().map(str::to_owned);
                self.clock = clock.zip(u32::try_from(clocks).ok());
                let provenance = serde_json::from_value(value["provenance"].clone());
                // never report an unreadable provenance as measured
                self.provenance = Some(provenance.unwrap_or_else(|error| {
                    self.warnings
                        .push(format!("{OWN}.provenance at the top: {error}; taken as simulated"));
                    Provenance::Simulated
                }));
            }
            "hostname" | "hostName" | "host" => put("host", value),
            "cuda_driver_version" => put("driver", cuda_version(&value)),
            "cuda_runtime_version" => put("cuda", cuda_version(&value)),
            // not about the run, as the profiler's temporary file
            "schemaVersion" | "displayTimeUnit" | "traceName" => {}
            _ => put(key, value),
        }
    }
}

/// Formats a CUDA version: 12090 is `12.9`.
fn cuda_version(value: &Value) -> Value {
    match value.as_u64() {
        Some(number) if number >= 1000 => json!(format!("{}.{}", number / 1000, number % 1000 / 10)),
        _ => value.clone(),
    }
}

fn groups(config: &Value) -> Vec<(String, Vec<u32>)> {
    let group = |group: &Value| {
        let rank = |rank: &Value| rank.as_u64().and_then(|rank| u32::try_from(rank).ok());
        let mut ranks = group["ranks"].as_array()?.iter().map(rank).collect::<Option<Vec<u32>>>()?;
        ranks.sort_unstable();
        Some((group["pg_name"].as_str()?.to_owned(), ranks))
    };
    config.as_array().into_iter().flatten().filter_map(group).collect()
}

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

/// Rank and time from the beginning of a file, without reading all of it.
pub(super) fn glance(head: &[u8]) -> Claim {
    let value = |key: &str| {
        let key = format!("\"{key}\"");
        let after = memchr::memmem::find(head, key.as_bytes())? + key.len();
        let rest = head.get(after..)?.trim_ascii_start().strip_prefix(b":")?;
        serde_json::Deserializer::from_slice(rest).into_iter::<Value>().next()?.ok()
    };
    let mut metadata = Metadata::default();
    for key in ["distributedInfo", "baseTimeNanoseconds"] {
        if let Some(value) = value(key) {
            metadata.take(key, value);
        }
    }
    // use the median: metadata events may be at 0, and an event may be damaged
    let mut times: Vec<i64> = memchr::memmem::find_iter(head, b"\"ts\"")
        .filter_map(|at| {
            let text = head[at + 4..].trim_ascii_start().strip_prefix(b":")?.trim_ascii_start();
            let end = text.iter().position(|byte| matches!(byte, b',' | b'}' | b' ' | b'\n' | b'\r'))?;
            nanoseconds(&text[..end]).ok()
        })
        .collect();
    let middle = times.len() / 2;
    let time = (!times.is_empty()).then(|| *times.select_nth_unstable(middle).1);
    Claim {
        own: metadata.rank,
        world_size: metadata.world_size,
        time_ns: time.map(|time| time.saturating_add(metadata.base_ns.unwrap_or(0))),
        ..Claim::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_glance_finds_rank_and_time_in_what_is_there() {
        let head = br#"{"distributedInfo": {"rank": 3, "world_size": 8}, "baseTimeNanoseconds": 1000, "traceEvents":
            [{"ph": "M", "ts": 0}, {"ts": 5.5, "ph": "X"}, {"ts":6.25}, {"ts": 9e30}, {"ts": 7, "args": {"a"#;
        let expected =
            Claim { own: Some(3), world_size: Some(8), time_ns: Some(7250), ..Claim::default() };
        assert_eq!(glance(head), expected);
        assert_eq!(glance(br#"{"distributedInfo": {"rank": 3, "wor"#), Claim::default());
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
