//! Entry points of the Kineto importer, and its pipeline: one thread decompresses and splits, others parse,
//! each into its own table. Both sides recycle the same few buffers, so memory use does not grow with the file.
//! The metadata at the top of a trace holds rank, GPUs, versions and clock.

use std::thread;

use crossbeam_channel::{bounded, unbounded};
use rayon::prelude::*;
use serde_json::{Value, json};

use super::assemble::{Profiler, ReadFile, assemble};
use super::jax;
use super::json::nanoseconds;
use super::link::link;
use super::parts::FileRanks;
use super::split::{JsonPiece, PIECE, Top, split, walk};
use super::table::EventTable;
use crate::Trace;
use crate::import::input::{InputFile, UnpackedReader, unpack};
use crate::import::rank::{self, MAX_RANK, Name, RankClaim};
use base::error::{Error, Result};
use table::{Environment, Provenance};

const PYTORCH: Profiler = Profiler { format: "Kineto JSON", recorder: "kineto" };

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KinetoOptions {
    /// Number of parser threads in addition to the reading thread; 0 parses on the reading thread.
    pub parsers: usize,
    /// Bytes of JSON per piece.
    pub piece: usize,
}

impl Default for KinetoOptions {
    fn default() -> Self {
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        Self { parsers: cores.min(8), piece: PIECE }
    }
}

/// Imports several files as one trace, with the ranks from [`rank::decide`]. Skips and reports files
/// without GPU work if others have some, and merged files next to their parts. `wanted` selects a
/// recording if the files belong to several. Returns an input error, with the byte offset, for a file
/// that `read` refuses.
pub(super) fn import_files(
    inputs: &[InputFile],
    wanted: Option<&str>,
    read: ReadEvents,
) -> Result<Trace> {
    if inputs.is_empty() {
        return Err(Error::input("no trace files were given"));
    }
    let mut files: Vec<ReadFile> = inputs
        .par_iter()
        .map(|input| {
            let file =
                read_source(&input.shown(), &|| input.unpacked(), read, KinetoOptions::default())?;
            Ok(ReadFile { claim: RankClaim { name: Name::parse(&input.name), ..file.claim }, ..file })
        })
        .collect::<Result<_>>()?;
    let mut notes = leave_out(&mut files, |file| {
        file.table
            .spans
            .is_empty()
            .then(|| "no GPU events: the trace of a front end or of CPUs only".into())
    });
    let parts: Vec<RankClaim> =
        files.iter().map(|file| file.claim.clone()).filter(|claim| claim.parts.len() == 1).collect();
    let spans: usize =
        files.iter().filter(|file| file.claim.parts.len() == 1).map(|file| file.table.spans.len()).sum();
    notes.extend(leave_out(&mut files, |file| {
        let count = file.claim.parts.len();
        let is_merged = count > 1
            && (rank::is_merged_of(&file.claim, &parts)
                || count == parts.len() && file.table.spans.len() == spans);
        is_merged.then(|| format!("{count} ranks merged; the files of its ranks are used instead"))
    }));
    let claims: Vec<RankClaim> = files.iter().map(|file| file.claim.clone()).collect();
    let chosen = rank::choose(&claims, wanted)?.found(wanted)?;
    let mut at = 0..;
    files.retain(|_| at.next().is_some_and(|at| chosen.files.contains(&at)));
    let mut trace = trace(files)?;
    if let Some(report) = &mut trace.meta.import {
        report.warnings.extend(chosen.notes.into_iter().chain(notes));
    }
    Ok(trace)
}

/// Drops files for which `reason` returns a reason, unless it does for all. Returns one note per dropped
/// file.
fn leave_out(files: &mut Vec<ReadFile>, reason: impl Fn(&ReadFile) -> Option<String>) -> Vec<String> {
    let reasons: Vec<Option<String>> = files.iter().map(reason).collect();
    if reasons.iter().all(Option::is_some) {
        return Vec::new();
    }
    let note = |(file, reason): (&ReadFile, &Option<String>)| {
        reason.as_ref().map(|reason| format!("ignored {}: {reason}", file.claim.name))
    };
    let notes = files.iter().zip(&reasons).filter_map(note).collect();
    let mut reasons = reasons.iter();
    files.retain(|_| reasons.next().is_none_or(Option::is_none));
    notes
}

fn trace(files: Vec<ReadFile>) -> Result<Trace> {
    let claims: Vec<RankClaim> = files.iter().map(|file| file.claim.clone()).collect();
    rank::require_one_job(&claims)?;
    let decision = rank::decide(&claims);
    let engines = rank::Engines::new(&claims, &decision);
    let mut trace = assemble(files, decision);
    if let Some(engines) = engines {
        engines.separate(&mut trace);
    }
    Ok(trace)
}

/// Imports a trace from memory, plain or compressed; `name` is for messages.
///
/// # Errors
///
/// Returns an input error if the text is not a profiler's JSON (with the byte offset), or has no trace
/// events.
pub fn import_bytes(name: &str, bytes: &[u8], options: KinetoOptions) -> Result<Trace> {
    trace(vec![read_source(name, &|| unpack(name, bytes), read_events, options)?])
}

#[cfg(test)]
pub(super) fn import_as<R: std::io::Read>(
    name: &str,
    raw: impl Fn() -> R,
    read: ReadEvents,
) -> Result<Trace> {
    trace(vec![read_source(name, &|| unpack(name, raw()), read, KinetoOptions::default())?])
}

/// Events of a file, as the tables of PyTorch's profiler.
pub(super) struct FileEvents {
    pub(super) profiler: Profiler,
    pub(super) table: EventTable,
    pub(super) metadata: Metadata,
    pub(super) warnings: Vec<String>,
}

/// Reader of a file's events, given its name in messages.
pub(super) type ReadEvents = fn(&str, &Open<'_>, KinetoOptions) -> Result<FileEvents>;

fn read_source(
    name: &str,
    open: &Open<'_>,
    read: ReadEvents,
    options: KinetoOptions,
) -> Result<ReadFile> {
    let FileEvents { profiler, mut table, metadata, mut warnings } = read(name, open, options)?;
    let parts = FileRanks::new(name, &table, &metadata)?;
    let (launched, of_links) = link(&mut table, &parts.groups);
    warnings.extend(of_links);
    let claim = RankClaim {
        name: Name::parse(name),
        own: metadata.rank.filter(|_| parts.labels.len() == 1),
        world_size: metadata.world_size,
        time_ns: table
            .spans
            .iter()
            .map(|span| span.start_ns)
            .min()
            .map(|start| start.saturating_add(metadata.base_ns.unwrap_or(0))),
        parts: parts.labels.clone(),
    };
    let name = name.to_owned();
    Ok(ReadFile { name, profiler, table, metadata, warnings, parts, claim, launched })
}

/// Reads trace events of PyTorch's profiler or JAX.
pub(super) fn read_events(name: &str, open: &Open<'_>, options: KinetoOptions) -> Result<FileEvents> {
    let (mut top, mut table) = match read_sound(name, open()?, options)? {
        Some(read) => read,
        // the brackets of a broken file no longer delimit events: it is read again, one event after the other, so that the
        // result depends only on the bytes, not on the piece boundaries
        None => {
            let mut table = EventTable::default();
            let mut top =
                walk(name, open()?, options.piece, &mut |cursor, place| table.event(cursor, place))?;
            table.lose(std::mem::take(&mut top.lost));
            (top, table)
        }
    };
    table.join_begin_end();
    if let Some(cut) = &top.cut {
        if table.events == 0 {
            return Err(Error::input_help(
                format!("{name}: {cut}, and no event is before it"),
                "the file is cut off: copy it again, or record it again",
            ));
        }
        top.warnings.push(format!("{cut}; everything before it was read: {} events", table.events));
    }
    if table.with_phase == 0 && table.events > 0 {
        return Err(Error::input_help(
            format!("{name}: none of its {} elements is a trace event with a phase (ph)", table.events),
            "expected a PyTorch profiler trace: an object with traceEvents, or an array of events",
        ));
    }
    let profiler = if jax::adopt(name, &mut table)? { jax::JAX } else { PYTORCH };
    Ok(FileEvents { profiler, table, metadata: metadata(&top), warnings: top.warnings })
}

pub(super) type Open<'a> = dyn Fn() -> Result<UnpackedReader<'a>> + 'a;

/// Parses a file in pieces. Returns `None` if a piece is broken or truncated.
fn read_sound(
    name: &str,
    source: UnpackedReader<'_>,
    options: KinetoOptions,
) -> Result<Option<(Top, EventTable)>> {
    let parse = |table: &mut EventTable, piece: &JsonPiece| {
        table.read(&piece.data[piece.from..piece.to], piece.offset).is_ok()
    };
    if options.parsers == 0 {
        let (mut table, mut sound) = (EventTable::default(), true);
        let top = split(name, source, options.piece, &mut |piece| {
            sound = sound && parse(&mut table, &piece);
            Some(piece.data)
        })?;
        return Ok((sound && !top.is_broken).then_some((top, table)));
    }
    thread::scope(|scope| {
        let (work, pieces) = bounded::<JsonPiece>(options.parsers + 1);
        let (spare, spares) = unbounded::<Vec<u8>>();
        let parsers: Vec<_> = (0..options.parsers)
            .map(|_| {
                let (pieces, spare) = (pieces.clone(), spare.clone());
                scope.spawn(move || {
                    let (mut table, mut sound) = (EventTable::default(), true);
                    for piece in pieces {
                        sound = sound && parse(&mut table, &piece);
                        // fails if the reader has finished
                        spare.send(piece.data).ok();
                    }
                    (table, sound)
                })
            })
            .collect();
        drop(pieces);
        let top = split(name, source, options.piece, &mut |piece| {
            work.send(piece).ok();
            spares.try_recv().ok()
        });
        drop(work);
        let (mut tables, mut sound) = (Vec::new(), true);
        for parser in parsers {
            let (table, is_sound) =
                parser.join().map_err(|_| Error::failed(format!("{name}: a parser gave up")))?;
            sound &= is_sound;
            tables.push(table);
        }
        let top = top?;
        Ok((sound && !top.is_broken).then(|| (top, EventTable::merged(tables))))
    })
}

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
    /// True if its files counted from one moment, if the file is a Ladderscope export.
    pub(super) wall_clock: bool,
    /// Names and global ranks of process groups, from `distributedInfo`.
    pub(super) groups: Vec<(String, Vec<u32>)>,
    pub(super) warnings: Vec<String>,
    /// Warnings of the import that a Ladderscope export was made from.
    pub(super) carried: Vec<String>,
    /// Number of CUDA graphs that its profiler recorded as a whole; they are ranges here.
    pub(super) whole_graphs: u64,
}

/// Maximum number of warnings that are taken from an export.
const MOST_CARRIED: usize = 100;

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
                    number("rank").and_then(|n| u32::try_from(n).ok()).filter(|rank| *rank <= MAX_RANK);
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
                let warnings = import["warnings"].as_array().into_iter().flatten().take(MOST_CARRIED);
                self.carried = warnings.filter_map(|text| Some(text.as_str()?.to_owned())).collect();
                self.whole_graphs = import["used"]["graph launch"].as_u64().unwrap_or(0);
                let clock = value["clock"].as_str().map(str::to_owned);
                self.clock = clock.zip(u32::try_from(clocks).ok());
                self.wall_clock = import["wall_clock"].as_bool().unwrap_or(false);
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
pub(super) fn glance(head: &[u8]) -> RankClaim {
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
    RankClaim {
        own: metadata.rank,
        world_size: metadata.world_size,
        time_ns: time.map(|time| time.saturating_add(metadata.base_ns.unwrap_or(0))),
        ..RankClaim::default()
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
            RankClaim { own: Some(3), world_size: Some(8), time_ns: Some(7250), ..RankClaim::default() };
        assert_eq!(glance(head), expected);
        assert_eq!(glance(br#"{"distributedInfo": {"rank": 3, "wor"#), RankClaim::default());
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
