//! Reader for JSON lines of NCCL Inspector, NCCL's profiler plugin: each process writes the collectives of
//! its rank.
//!
//! Communicator, rank and sequence number identify the lines of one all-reduce, so no clocks are compared.
//! Its latency is the shortest of its ranks: the last rank to arrive does not wait, the others' times include
//! waiting for it.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

use serde::Deserialize;

use super::AllReduces;
use base::error::{Error, Result};
use base::input::InputKind;
use base::statistics::median;
use base::text::counted;
use trace::{OperationKind, collective_kind};

/// All-reduces over one number of ranks, and an optional caveat.
pub type Inspected = (AllReduces, Option<String>);

/// Relative tolerance of a bandwidth against size and time.
const ROUNDING: f64 = 0.05;

/// Bytes at the start of a file to search for Inspector's keys.
const HEAD: u64 = 64 << 10;

#[derive(Deserialize)]
struct Line {
    header: Header,
    /// Missing in lines about sends and receives.
    coll_perf: Option<Performance>,
}

#[derive(Deserialize)]
struct Header {
    /// Communicator, the same on all its ranks.
    id: String,
    rank: u32,
    n_ranks: u32,
    #[serde(default)]
    nnodes: u32,
}

#[derive(Deserialize)]
struct Performance {
    coll: String,
    coll_sn: u64,
    coll_msg_size_bytes: u64,
    coll_exec_time_us: f64,
    coll_algobw_gbs: Option<f64>,
    /// `kernel_gpu`, `kernel_cpu` or `collective_cpu`; missing in old versions.
    coll_timing_source: Option<String>,
}

struct Sequence {
    bytes: u64,
    us: f64,
    /// Ranks read so far, each with file and line.
    ranks: BTreeMap<u32, String>,
}

/// True if the start of the file looks like NCCL Inspector.
fn is_inspector(path: &Path) -> bool {
    let mut head = Vec::new();
    let read = File::open(path).and_then(|file| file.take(HEAD).read_to_end(&mut head));
    let has = |mark: &[u8]| memchr::memmem::find(&head, mark).is_some();
    read.is_ok() && (has(b"\"coll_perf\"") || has(b"\"inspector_output_format_version\""))
}

/// NCCL Inspector files at a path: the file itself, or those in a directory.
pub fn inspector_files(path: &Path) -> Vec<PathBuf> {
    if path.is_file() {
        return Some(path.to_owned()).filter(|path| is_inspector(path)).into_iter().collect();
    }
    let entries = std::fs::read_dir(path).into_iter().flatten().flatten().map(|entry| entry.path());
    let mut files: Vec<PathBuf> = entries.filter(|path| path.is_file() && is_inspector(path)).collect();
    files.sort();
    files
}

/// Reads the files of one or several ranks; returns the median over all-reduces by number of ranks and
/// message size.
///
/// # Errors
///
/// Returns an error with file and line if a line is not from Inspector or an all-reduce occurs twice on one
/// rank or with two message sizes, and an error if there is no all-reduce within a node.
pub fn read_inspector(files: &[PathBuf]) -> Result<Vec<Inspected>> {
    let texts: Vec<(String, String)> = files
        .iter()
        .map(|path| Ok((path.display().to_string(), InputKind::TEXT.text(path)?)))
        .collect::<Result<_>>()?;
    let texts: Vec<(&str, &str)> = texts.iter().map(|(name, text)| (&name[..], &text[..])).collect();
    parse(&texts)
}

fn parse(files: &[(&str, &str)]) -> Result<Vec<Inspected>> {
    let mut sizes: HashMap<String, u32> = HashMap::new();
    let mut found: BTreeMap<(u32, String, u64), Sequence> = BTreeMap::new();
    let mut others: BTreeSet<String> = BTreeSet::new();
    let (mut between_nodes, mut on_host) = (0_u64, 0_u64);
    for (file, text) in files {
        for (line, at) in text.lines().zip(1..).filter(|(line, _)| !line.trim().is_empty()) {
            let place = format!("{file}:{at}");
            let wrong = |problem: &str| {
                Error::input_help(
                    format!("{place}: {problem}"),
                    "pass complete NCCL Inspector files: one JSON object per line, with header and coll_perf",
                )
            };
            let Line { header, coll_perf } = serde_json::from_str(line)
                .map_err(|error| wrong(&format!("not a line of NCCL Inspector: {error}")))?;
            let Header { id, rank, n_ranks, nnodes } = header;
            if rank >= n_ranks {
                return Err(wrong(&format!("rank {rank} of {n_ranks} ranks")));
            }
            let known = *sizes.entry(id.clone()).or_insert(n_ranks);
            if known != n_ranks {
                return Err(wrong(&format!(
                    "communicator {id} has {n_ranks} ranks here, {known} before"
                )));
            }
            let Some(of) = coll_perf else { continue };
            if collective_kind(&of.coll) != Some(OperationKind::AllReduce) {
                others.insert(of.coll);
                continue;
            }
            if !(of.coll_exec_time_us.is_finite() && of.coll_exec_time_us > 0.0)
                || of.coll_msg_size_bytes == 0
            {
                return Err(wrong(&format!(
                    "an all-reduce of {} bytes in {} us",
                    of.coll_msg_size_bytes, of.coll_exec_time_us
                )));
            }
            let follows = of.coll_msg_size_bytes as f64 / of.coll_exec_time_us / 1e3;
            if let Some(gb_s) = of.coll_algobw_gbs.filter(|gb_s| *gb_s > 0.0)
                && (follows - gb_s).abs() > 0.02 + ROUNDING * follows
            {
                return Err(wrong(&format!(
                    "{} bytes in {} us are {follows:.2} GB/s; coll_algobw_gbs says {gb_s}",
                    of.coll_msg_size_bytes, of.coll_exec_time_us
                )));
            }
            if nnodes > 1 {
                between_nodes += 1;
                continue;
            }
            on_host += u64::from(of.coll_timing_source.is_some_and(|source| source.contains("cpu")));
            let (bytes, us) = (of.coll_msg_size_bytes, of.coll_exec_time_us);
            let sequence = found.entry((n_ranks, id.clone(), of.coll_sn)).or_insert_with(|| Sequence {
                bytes,
                us,
                ranks: BTreeMap::new(),
            });
            if sequence.bytes != bytes {
                let before = sequence.ranks.values().next().map_or("", |place| place);
                return Err(wrong(&format!(
                    "all-reduce {} of communicator {id} has {bytes} bytes here, {} in {before}",
                    of.coll_sn, sequence.bytes
                )));
            }
            if let Some(before) = sequence.ranks.insert(rank, place.clone()) {
                return Err(wrong(&format!(
                    "all-reduce {} of communicator {id} on rank {rank} is in {before}, too",
                    of.coll_sn
                )));
            }
            sequence.us = sequence.us.min(us);
        }
    }
    if found.is_empty() {
        let file = files.first().map_or("", |(file, _)| file);
        let others: Vec<String> = others.into_iter().collect();
        return Err(match (between_nodes, others.is_empty()) {
            (1.., _) => Error::input(format!(
                "{file}: its all-reduces are between nodes; a profile has points within a node"
            )),
            (0, false) => {
                Error::input(format!("{file}: no AllReduce in it, only {}", others.join(", ")))
            }
            (0, true) => Error::input(format!("{file}: no collective in it")),
        });
    }
    let mut by_ranks: BTreeMap<u32, Vec<Sequence>> = BTreeMap::new();
    for ((n_ranks, ..), sequence) in found {
        by_ranks.entry(n_ranks).or_default().push(sequence);
    }
    let mut warnings = Vec::new();
    if between_nodes > 0 {
        warnings.push(format!("{between_nodes} all-reduces between nodes ignored"));
    }
    if on_host > 0 {
        warnings.push(format!(
            "{on_host} times were taken by the host (coll_timing_source): they include what launches cost"
        ));
    }
    let rows_of = |(ranks, sequences): (u32, Vec<Sequence>)| {
        let (mut test, note) = inspected(ranks, &sequences);
        test.warnings.extend_from_slice(&warnings);
        (test, note)
    };
    Ok(by_ranks.into_iter().map(rows_of).collect())
}

fn inspected(ranks: u32, sequences: &[Sequence]) -> Inspected {
    let whole = |sequence: &&Sequence| sequence.ranks.len() == ranks as usize;
    // if some all-reduces have all ranks, use only those
    let is_whole = sequences.iter().any(|sequence| whole(&sequence));
    let incomplete = sequences.iter().filter(|sequence| is_whole && !whole(sequence)).count();
    let warnings = (incomplete > 0).then(|| {
        format!(
            "TP {ranks}: {incomplete} of {} left out, because not all ranks recorded them",
            counted(sequences.len(), "all-reduce")
        )
    });
    let mut times: BTreeMap<u64, Vec<f64>> = BTreeMap::new();
    for sequence in sequences.iter().filter(|sequence| !is_whole || whole(sequence)) {
        times.entry(sequence.bytes).or_default().push(sequence.us);
    }
    let most = sequences.iter().map(|sequence| sequence.ranks.len()).max().unwrap_or(0);
    let note = (!is_whole).then(|| {
        format!(
            "TP {ranks}: {most} of {} recorded, so latencies include waiting for the missing ranks (give the files of all ranks)",
            counted(ranks as usize, "rank")
        )
    });
    let points = times.into_iter().filter_map(|(bytes, us)| Some((bytes, median(&us)?))).collect();
    let (origin, warnings) = ("NCCL Inspector", warnings.into_iter().collect());
    (AllReduces { origin, ranks, gpu: None, in_graph: None, version: None, points, warnings }, note)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(id: &str, (rank, n_ranks): (u32, u32), coll: &str, sn: u64, bytes: u64, us: u64) -> String {
        format!(
            r#"{{"header":{{"id":"{id}","rank":{rank},"n_ranks":{n_ranks},"nnodes":1}},"metadata":{{"inspector_output_format_version":"v4.0","pid":1}},"coll_perf":{{"coll":"{coll}","coll_sn":{sn},"coll_msg_size_bytes":{bytes},"coll_exec_time_us":{us},"coll_algobw_gbs":{:.6}}}}}"#,
            if us > 0 { bytes as f64 / us as f64 / 1e3 } else { 0.0 }
        )
    }

    fn problem(lines: &[String]) -> String {
        let error = parse(&[("a.jsonl", &lines.join("\n"))]).unwrap_err();
        assert_eq!(error.exit_code(), 2);
        error.to_string()
    }

    #[test]
    fn one_rank_has_its_all_reduces_and_nothing_else() {
        let text = [
            line("0x7f", (2, 8), "AllReduce", 1407, 17_179_869_184, 61_974),
            line("0xe6", (4, 8), "ReduceScatter", 1231, 2_147_483_648, 41_057),
        ];
        let found = parse(&[("a.jsonl", &text.join("\n"))]).unwrap();
        let [(test, note)] = &found[..] else { panic!("{found:?}") };
        assert_eq!((test.ranks, &test.points[..]), (8, &[(17_179_869_184, 61_974.0)][..]));
        assert!(note.as_ref().unwrap().contains("1 of 8 ranks"), "{note:?}");
    }

    #[test]
    fn ranks_meet_by_communicator_and_sequence_number_and_the_last_to_arrive_waits_for_nobody() {
        // rank 1 begins to record one all-reduce later, and arrives first at two of them
        let first: Vec<String> = [(1, 90), (2, 40), (3, 41), (4, 300)]
            .map(|(sn, us)| line("0xa", (0, 2), "AllReduce", sn, 1024, us))
            .into();
        let second: Vec<String> = [(2, 100), (3, 43), (4, 45)]
            .map(|(sn, us)| line("0xa", (1, 2), "AllReduce", sn, 1024, us))
            .into();
        // another communicator with the same numbers
        let other: Vec<String> =
            (0..4).map(|rank| line("0xb", (rank, 4), "AllReduce", 2, 64, 7 + u64::from(rank))).collect();
        let files = [first, second, other].map(|lines| lines.join("\n"));
        let found = parse(&[("0", &files[0]), ("1", &files[1]), ("2", &files[2])]).unwrap();
        let [(two, None), (four, None)] = &found[..] else { panic!("{found:?}") };
        assert_eq!((two.ranks, &two.points[..]), (2, &[(1024, 41.0)][..]));
        let said = "TP 2: 1 of 4 all-reduces left out, because not all ranks recorded them";
        assert_eq!((&two.warnings[..], four.warnings.len()), (&[said.to_owned()][..], 0));
        assert_eq!((four.ranks, &four.points[..]), (4, &[(64, 7.0)][..]));
    }

    #[test]
    fn wrong_lines_are_named() {
        let good = line("0xa", (0, 2), "AllReduce", 1, 1024, 9);
        assert!(
            problem(&[good.clone(), String::new(), good[..60].into()])
                .starts_with("a.jsonl:3: not a line")
        );
        assert!(
            problem(&[good.clone(), "{}".into()])
                .contains("a.jsonl:2: not a line of NCCL Inspector: missing field")
        );
        assert!(problem(&[good.clone(), good.clone()]).contains("is in a.jsonl:1, too"));
        let larger = line("0xa", (1, 2), "AllReduce", 1, 2048, 9);
        assert!(problem(&[good.clone(), larger]).contains("2048 bytes here, 1024 in a.jsonl:1"));
        assert!(problem(&[line("0xa", (2, 2), "AllReduce", 1, 8, 9)]).contains("rank 2 of 2 ranks"));
        assert!(
            problem(&[good.clone(), line("0xa", (1, 3), "AllReduce", 2, 8, 9)])
                .contains("3 ranks here, 2 before")
        );
        assert!(problem(&[line("0xa", (0, 2), "AllReduce", 1, 8, 0)]).contains("8 bytes in 0 us"));
        assert!(problem(&[line("0xa", (0, 2), "AllGather", 1, 8, 3)]).contains("only AllGather"));
        assert!(problem(&[good.replace("\"nnodes\":1", "\"nnodes\":2")]).contains("between nodes"));
    }

    #[test]
    fn times_of_other_units_are_refused_and_those_of_the_host_named() {
        let good = line("0xa", (0, 2), "AllReduce", 1, 1 << 30, 9_000);
        let milliseconds = good.replace("\"coll_exec_time_us\":9000", "\"coll_exec_time_us\":9");
        assert!(problem(&[milliseconds]).contains("1073741824 bytes in 9 us are 119304.65 GB/s"));
        let source = "\"coll_timing_source\":\"collective_cpu\",\"coll_algobw_gbs\"";
        let host = good.replace("\"coll_algobw_gbs\"", source);
        let far = line("0xc", (0, 4), "AllReduce", 1, 8, 9).replace("\"nnodes\":1", "\"nnodes\":2");
        let found = parse(&[("a", &[host, far].join("\n"))]).unwrap();
        let said = &found[0].0.warnings;
        assert!(said[0].contains("1 all-reduces between nodes ignored"), "{said:?}");
        assert!(said[1].contains("1 times were taken by the host"), "{said:?}");
        assert_eq!(parse(&[("a", &good)]).unwrap()[0].0.warnings, Vec::<String>::new());
    }

    #[test]
    fn lines_about_sends_are_passed_over() {
        let send = r#"{"header":{"id":"0xa","rank":0,"n_ranks":2},"p2p_perf":{"p2p":"Send"}}"#;
        let found =
            parse(&[("a", &[send.into(), line("0xa", (0, 2), "AllReduce", 1, 8, 9)].join("\n"))]);
        assert_eq!(found.unwrap()[0].0.points, [(8, 9.0)]);
    }
}
