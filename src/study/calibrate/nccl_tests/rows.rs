//! Rows of the table that nccl-tests prints, read by the column names of the heading.
//!
//! A heading first names the columns of a message (`size count type redop root`), then those of each side
//! (`time algbw busbw #wrong`): out of place, in place, or both. Versions differ: with or without `root`,
//! `error` for `#wrong`, `cputime` for `time`, and unnamed columns of single iterations after each side.

use serde_json::Value;

use super::{Job, Measured, Rank, Side, Timing, refused, several_jobs, text, wrong_results};
use base::error::{Error, Result};

#[derive(Clone, Debug, PartialEq)]
pub(super) struct NcclTestsColumns {
    names: Vec<String>,
    sides: Vec<Side>,
}

const TYPES: [&str; 16] = [
    "int8", "uint8", "int32", "uint32", "int64", "uint64", "half", "float", "double", "bfloat16",
    "f8e4m3", "f8e5m2", "fp8_e4m3", "fp8_e5m2", "char", "int",
];

const UNITS: [&str; 6] = ["B", "bytes", "elements", "us", "usec", "GB/s"];

/// First unit in parentheses that nccl-tests does not print.
pub(super) fn foreign_unit(line: &str) -> Option<&str> {
    let units = line.split('(').skip(1).filter_map(|rest| rest.split_once(')'));
    units.map(|(unit, _)| unit).find(|unit| !UNITS.contains(unit))
}

/// Sides that a comment names, in order; empty if none.
pub(super) fn sides(comment: &str) -> Vec<Side> {
    let side = |word| match word {
        "out-of-place" => Some(Side::OutOfPlace),
        "in-place" => Some(Side::InPlace),
        _ => None,
    };
    comment.split_whitespace().filter_map(side).collect()
}

impl NcclTestsColumns {
    /// Columns that a comment names; `None` if it is not a heading. `sides` are those of the line above.
    pub(super) fn new(comment: &str, sides: &[Side]) -> Option<Self> {
        let name = |word: &str| {
            let name = word.split('(').next().unwrap_or(word).trim_start_matches('#').to_lowercase();
            if name == "errors" { "error".into() } else { name }
        };
        let names: Vec<String> =
            comment.split_whitespace().map(name).filter(|name| !is_stamp_name(name)).collect();
        let has = |name: &str| names.iter().any(|known| known == name);
        if !has("size") || !(has("time") || has("cputime") || has("algbw")) {
            return None;
        }
        let count = |name: &str| names.iter().filter(|known| *known == name).count();
        let groups = count("time").max(count("cputime")).max(count("algbw"));
        let sides = match (groups, sides) {
            (groups, sides) if sides.len() == groups => sides.to_vec(),
            (1, _) => vec![Side::Unnamed],
            _ => vec![Side::OutOfPlace, Side::InPlace],
        };
        Some(Self { names, sides })
    }

    pub(super) fn is_host_time(&self) -> bool {
        !self.names.iter().any(|name| name == "time")
    }

    /// True if a line looks like a row, even a malformed one.
    pub(super) fn is_row(&self, line: &str) -> bool {
        let words: Vec<&str> = line.split_whitespace().collect();
        let numbers = words.iter().filter(|word| word.parse::<f64>().is_ok()).count();
        let has_type = words.iter().take(6).any(|word| TYPES.contains(word));
        // row cut off after size and number of elements
        let whole = |at: usize| words.get(at).and_then(|word| word.parse::<u64>().ok());
        let is_cut = whole(0).zip(whole(1)).is_some_and(|(bytes, count)| {
            [1, 2, 4, 8].iter().any(|size| count.checked_mul(*size) == Some(bytes))
        });
        words.len() > 1 && (has_type || is_cut || (words.len() >= 5 && 2 * numbers > words.len()))
    }

    /// Parses a row: message bytes, and the timing of each side.
    ///
    /// # Errors
    ///
    /// Returns a message if the number of columns differs from the heading's or a value is not a number.
    pub(super) fn row(&self, line: &str) -> Result<(u64, Vec<(Side, Timing)>), String> {
        let mut words: Vec<&str> = line.split_whitespace().collect();
        while words.last().is_some_and(|word| is_time_stamp(word)) {
            words.pop();
        }
        let first = self.names.iter().position(|name| is_of_side(name)).unwrap_or(self.names.len());
        let (groups, named) = (self.sides.len(), self.names.len() - first);
        let has_more = words.len() > self.names.len() && named.is_multiple_of(groups);
        let (own, width) = match words.len() - first.min(words.len()) {
            rest if rest == named => (true, 0),
            rest if has_more && rest.is_multiple_of(groups) => (false, rest / groups),
            _ => {
                let problem =
                    format!("has {} columns, the heading names {}", words.len(), self.names.len());
                return Err(problem);
            }
        };
        // value of the column with this name in the given group
        let word = |name: &str, group: usize| -> Option<&str> {
            if own {
                let mut places = (0..self.names.len()).filter(|at| self.names[*at] == name);
                return places.nth(group).map(|at| words[at]);
            }
            let of_group = &self.names[first..first + named / groups];
            let at = of_group.iter().position(|known| known == name)?;
            words.get(first + group * width + at).copied()
        };
        let size = self.names.iter().position(|name| name == "size").map_or("", |at| words[at]);
        let bytes = size.parse().map_err(|_| format!("column size: '{size}' is no number of bytes"))?;
        let mut sides = Vec::with_capacity(groups);
        for (group, side) in self.sides.iter().enumerate() {
            let number = |name: &'static str| match word(name, group) {
                None | Some("N/A" | "n/a" | "-") => Ok(None),
                Some(text) => match text.parse::<f64>() {
                    Ok(value) => Ok(Some(value)),
                    Err(_) => Err(format!("column {name}: '{text}' is no number")),
                },
            };
            let measured = |name: &'static str| match number(name)? {
                Some(value) if !value.is_finite() || value < 0.0 => {
                    Err(format!("column {name}: {value} cannot be measured"))
                }
                value => Ok(value),
            };
            let timing = Timing {
                us: measured("time")?,
                algorithm_gb_s: measured("algbw")?,
                bus_gb_s: measured("busbw")?,
                wrong: number("wrong")?,
                error: number("error")?,
            };
            sides.push((*side, timing));
        }
        Ok((bytes, sides))
    }
}

fn is_of_side(name: &str) -> bool {
    ["time", "cputime", "algbw", "busbw", "wrong", "error"].contains(&name)
}

fn is_stamp_name(name: &str) -> bool {
    name == "date" || name.contains("stamp")
}

/// True for a date or time of day: `2026-11-27`, `12:00:00`, `2026-11-27T12:00:00`.
fn is_time_stamp(word: &str) -> bool {
    let marks = |mark: char| word.matches(mark).count();
    let begins = word.trim_start_matches('[').starts_with(|char: char| char.is_ascii_digit());
    begins && word.parse::<f64>().is_err() && (marks(':') > 0 || marks('-') == 2 || marks('/') == 2)
}

pub(super) fn read(file: &str, text: &str) -> Result<Job> {
    let mut values = serde_json::Deserializer::from_str(text).into_iter::<Value>();
    let read = values.next().and_then(std::result::Result::ok);
    let bad = || refused(format!("{file}: incomplete or damaged JSON"));
    let value = read.ok_or_else(bad)?;
    let Some(results) = value["results"].as_array() else {
        return Err(refused(format!("{file}: JSON without the results of nccl-tests")));
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
        let bytes = row["size"]
            .as_u64()
            .ok_or_else(|| refused(format!("{place}.size: {} is no number of bytes", row["size"])))?;
        let sides = [("in_place", Side::InPlace), ("out_of_place", Side::OutOfPlace)];
        let sides = sides.into_iter().filter(|(name, _)| row[name].is_object());
        let sides = sides.map(|(name, side)| Ok((side, timing(&place, name, &row[name])?)));
        let sides = sides.collect::<Result<Vec<_>>>()?;
        // an all-reduce reduces, and has no root
        let has_root = |root: &Value| root.as_i64().or_else(|| root.as_str()?.parse().ok()) >= Some(0);
        if row["redop"] == "none" || has_root(&row["root"]) {
            return Err(refused(format!(
                "{place}: redop {} and root {} are not those of an all-reduce",
                row["redop"], row["root"]
            )));
        }
        if sides.iter().all(|(_, timing)| timing.us.is_none()) {
            return Err(refused(format!("{place}: no time, in place or out of place")));
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
            other => Err(refused(format!("{place}.{side}.{name}: {other} is no number"))),
        }
    };
    let measured = |name: &str| match number(name)? {
        Some(value) if !value.is_finite() || value < 0.0 => {
            Err(refused(format!("{place}.{side}.{name}: {value} cannot be measured")))
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
    Error::input_help(
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

#[cfg(test)]
mod tests {
    use super::*;

    fn columns(names: &str, of: &[Side]) -> NcclTestsColumns {
        NcclTestsColumns::new(names, of).unwrap()
    }

    /// Bytes, and the times of a row's ways.
    fn times(columns: &NcclTestsColumns, line: &str) -> (u64, Vec<(Side, Option<f64>)>) {
        let (bytes, sides) = columns.row(line).unwrap();
        (bytes, sides.into_iter().map(|(side, timing)| (side, timing.us)).collect())
    }

    #[test]
    fn every_layout_is_read_by_its_names() {
        use Side::{InPlace, OutOfPlace, Unnamed};
        let both = [OutOfPlace, InPlace];
        let found = (1024, vec![(OutOfPlace, Some(14.0)), (InPlace, Some(13.5))]);
        for (names, row) in [
            (
                "size count type redop root time algbw busbw #wrong time algbw busbw #wrong",
                "1024 256 float sum -1 14.00 0.07 0.11 0 13.5 0.08 0.11 N/A",
            ),
            (
                "size count type redop time algbw busbw error time algbw busbw error",
                "1024 256 half sum 14.00 0.07 0.11 2e-07 13.5 0.08 0.11 2e-07",
            ),
            (
                "count size type time #wrong algbw busbw time #wrong algbw busbw",
                "256 1024 float 14.00 0 0.07 0.11 13.5 0 0.08 0.11",
            ),
            // columns of iterations, named and not; time stamps
            (
                "size count type redop root time algbw busbw #wrong time algbw busbw #wrong",
                "1024 256 float sum -1 14.00 0.07 0.11 0 13.1 15.9 15.5 13.5 0.08 0.11 0 13.0 15.7 15.2",
            ),
            (
                "size count type redop root time algbw busbw #wrong min max time algbw busbw #wrong min max",
                "1024 256 float sum -1 14.00 0.07 0.11 0 13.1 15.9 13.5 0.08 0.11 0 13.0 15.7",
            ),
            (
                "size count type redop root time algbw busbw #wrong time algbw busbw #wrong timestamp",
                "1024 256 float sum -1 14.00 0.07 0.11 0 13.5 0.08 0.11 0 2026-11-27 12:00:01",
            ),
        ] {
            assert_eq!(times(&columns(names, &both), row), found, "{names}");
        }
        let swapped = columns("size time algbw time algbw", &[InPlace, OutOfPlace]);
        let (_, sides) = times(&swapped, "1024 13.5 0.08 14.0 0.07");
        assert_eq!(sides, [(InPlace, Some(13.5)), (OutOfPlace, Some(14.0))]);
        let names = "size count type redop root time algbw busbw #wrong";
        let row = "1024 256 float sum -1 13.5 0.08 0.11 0";
        assert_eq!(times(&columns(names, &[InPlace]), row).1, [(InPlace, Some(13.5))]);
        assert_eq!(times(&columns(names, &[]), row).1, [(Unnamed, Some(13.5))]);
    }

    #[test]
    fn what_is_no_heading_and_no_row_is_known() {
        assert_eq!(NcclTestsColumns::new("Avg bus bandwidth : 100", &[]), None);
        assert_eq!(NcclTestsColumns::new("nThread 1 nGpus 4 minBytes 8 step: 2", &[]), None);
        let names = "size count type redop root time algbw busbw #wrong";
        let known = columns(names, &[Side::InPlace]);
        assert!(known.is_row("8 2 float sum -1") && !known.is_row("8 GPUs were found"));
        let problem = |line: &str| known.row(line).unwrap_err();
        assert_eq!(problem("8 2 float sum -1"), "has 5 columns, the heading names 9");
        assert_eq!(problem("8 2 float sum -1 1.x 0 0 0"), "column time: '1.x' is no number");
        assert_eq!(problem("8K 2 float sum -1 1 0 0 0"), "column size: '8K' is no number of bytes");
        assert_eq!(problem("8 2 float sum -1 nan 0 0 0"), "column time: NaN cannot be measured");
        assert!(!columns("size time cputime", &[]).is_host_time());
        assert!(columns("size cputime algbw", &[]).is_host_time());
    }

    #[test]
    fn units_that_are_not_nccl_tests_own_are_found() {
        assert_eq!(foreign_unit("  (B) (elements)   (us)  (GB/s)  (GB/s)"), None);
        assert_eq!(foreign_unit("  (B) (elements)   (ms)  (GB/s)  (GB/s)"), Some("ms"));
        assert_eq!(foreign_unit("size(KiB) time(us)"), Some("KiB"));
    }
}
