use serde_json::Value;

use super::{HELP, Job, Measured, Rank, Side, Timing, refused, several_jobs, text, wrong_results};
use base::error::{Error, Result};

pub(super) fn read(file: &str, text: &str) -> Result<Job> {
    let mut values = serde_json::Deserializer::from_str(text).into_iter::<Value>();
    let read = values.next().and_then(std::result::Result::ok);
    let bad = || refused(format!("{file}: incomplete or damaged JSON"), HELP);
    let value = read.ok_or_else(bad)?;
    let Some(results) = value["results"].as_array() else {
        return Err(refused(format!("{file}: JSON without the results of nccl-tests"), HELP));
    };
    match values.next() {
        None => {}
        Some(Ok(_)) => return Err(several_jobs(file, "two objects of JSON")),
        Some(Err(_)) => return Err(bad()),
    }
    let bounds = &value["out_of_bounds"];
    if bounds["okay"] == false || bounds["count"].as_f64().is_some_and(|count| count != 0.0) {
        return Err(wrong_results(format!("{file}: out of bounds values: {}", bounds["count"])));
    }
    let mut job = Job {
        ranks: value["devices"].as_array().into_iter().flatten().filter_map(rank).collect(),
        version: version(&value["nccl_version"]),
        ..Job::default()
    };
    for (name, value) in value["config"].as_object().into_iter().flatten() {
        let count = value.as_u64().and_then(|count| count.try_into().ok());
        match name.to_ascii_lowercase().replace('_', "").as_str() {
            "ngpus" => job.gpus_per_thread = count,
            "aggiters" => job.aggregated = count,
            "graph" | "cudagraphlaunches" => job.in_graph = value.as_u64().map(|count| count != 0),
            _ => {}
        }
    }
    for (at, row) in results.iter().enumerate() {
        let place = format!("{file}: results[{at}]");
        if let Some(name) = row["experiment_name"].as_str() {
            if let Some(other) = job.program.as_ref().filter(|known| *known != name) {
                return Err(several_jobs(file, &format!("{other} and {name}")));
            }
            job.program = Some(name.to_owned());
        }
        let bytes = row["size"].as_u64().ok_or_else(|| {
            refused(format!("{place}.size: {} is no number of bytes", row["size"]), HELP)
        })?;
        let sides = [("in_place", Side::InPlace), ("out_of_place", Side::OutOfPlace)];
        let sides = sides.into_iter().filter(|(name, _)| row[name].is_object());
        let sides = sides.map(|(name, side)| Ok((side, timing(&place, name, &row[name])?)));
        let sides = sides.collect::<Result<Vec<_>>>()?;
        // an all-reduce reduces, and has no root
        let has_root = |root: &Value| root.as_i64().or_else(|| root.as_str()?.parse().ok()) >= Some(0);
        if row["redop"] == "none" || has_root(&row["root"]) {
            return Err(refused(
                format!(
                    "{place}: redop {} and root {} are not those of an all-reduce",
                    row["redop"], row["root"]
                ),
                HELP,
            ));
        }
        if sides.iter().all(|(_, timing)| timing.us.is_none()) {
            return Err(refused(format!("{place}: no time, in place or out of place"), HELP));
        }
        job.rows.push(Measured { place, bytes, sides });
    }
    Ok(job)
}

fn timing(place: &str, side: &str, value: &Value) -> Result<Timing> {
    let number = |name: &str| -> Result<Option<f64>> {
        match &value[name] {
            Value::Null => Ok(None),
            Value::String(text) if text == "N/A" => Ok(None),
            // nccl-tests writes numbers without a JSON form (NaN, infinity) as text
            Value::String(text) if text.parse::<f64>().is_ok() => Ok(text.parse().ok()),
            Value::Number(number) => Ok(number.as_f64()),
            other => Err(refused(format!("{place}.{side}.{name}: {other} is no number"), HELP)),
        }
    };
    let measured = |name: &str| match number(name)? {
        Some(value) if !value.is_finite() || value < 0.0 => {
            Err(refused(format!("{place}.{side}.{name}: {value} cannot be measured"), HELP))
        }
        value => Ok(value),
    };
    if value["time"].is_null() && !value["cpu_time"].is_null() {
        return Err(host_time(place, side));
    }
    Ok(Timing {
        us: measured("time")?,
        algorithm_gb_s: measured("alg_bw")?,
        bus_gb_s: measured("bus_bw")?,
        wrong: number("nwrong")?,
        error: None,
    })
}

fn host_time(place: &str, side: &str) -> Error {
    refused(
        format!(
            "{place}.{side}: times are those of the host (cpu_time), which does not wait for the GPU"
        ),
        "measure without -C (--report_cputime)",
    )
}

fn rank(device: &Value) -> Option<Rank> {
    let word = |name: &str| match &device[name] {
        Value::String(text) => Some(text.trim().to_owned()).filter(|text| !text.is_empty()),
        Value::Number(number) => Some(number.to_string()),
        _ => None,
    };
    Some(Rank {
        rank: device["rank"].as_u64()?.try_into().ok()?,
        group: word("group"),
        pid: word("pid"),
        host: word("hostname"),
        gpu: word("device_info"),
    })
}

/// Parses `22808` or `2.28.8`.
fn version(value: &Value) -> Option<String> {
    match value {
        Value::Number(code) => text::version(&code.to_string()),
        Value::String(words) => text::version(words).or_else(|| Some(words.clone())),
        _ => None,
    }
}
