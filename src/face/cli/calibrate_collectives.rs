//! `ladderscope calibrate --collectives`: turns all-reduces measured by nccl-tests, NCCL Inspector or a trace into
//! points of a hardware profile.

use std::io::Read;
use std::path::{Path, PathBuf};

use super::calibrate::Args;
use super::hardware::{Charged, DECODE_BYTES, TPS, charged, charges_text};
use super::output;
use super::stderr;
use crate::desk::calibrate::write_links;
use crate::desk::{self, OpenOptions};
use base::error::{Error, Result};
use base::input::InputKind;
use base::regular;
use base::text::latency;
use lab::store::Store;
use machine::hardware::{BasisRows, LinkBasis, LinkPoint, LinkTable};
use study::calibrate::{
    AllReduces, LinkOptions, MeasuredLink, MeasuredLinks, all_reduces_of, inspector_files,
    read_inspector,
};
use table::render::{Shown, Sourced, Table};
use table::{Collective, P2p, Provenance};
use trace::import::is_known_file;

/// Files of all-reduces with one P2P setting.
#[derive(Debug, clap::Args)]
pub struct CollectiveFiles {
    /// Measurements, one per number of GPUs, separated by commas: output of `all_reduce_perf` from nccl-tests (text,
    /// or JSON from -J), NCCL Inspector JSON lines (directory or files of all ranks), or a trace of all ranks
    #[arg(long, value_name = "FILE,...", value_delimiter = ',', conflicts_with_all = ["data", "filter", "fit", "stack", "no_cross_validation"])]
    pub collectives: Vec<PathBuf>,
    /// P2P setting of the measured all-reduces (off: NCCL_P2P_DISABLE=1)
    #[arg(long, value_name = "on|off", default_value = "on", requires = "collectives")]
    pub p2p: P2p,
    /// Message size in bytes (batch x hidden size x bytes per element) for traces that do not record it; in other
    /// traces, use only messages of this size
    #[arg(long, value_name = "BYTES", requires = "collectives", value_parser = clap::value_parser!(u64).range(1..))]
    pub message_bytes: Option<u64>,
    /// Use the latencies of a single measured TP for other TPs too; without it, cells at other TPs are skipped
    #[arg(long, requires = "collectives")]
    pub extrapolate: bool,
    #[command(flatten)]
    pub opening: OpenOptions,
}

pub fn run(args: &Args, dir: &Path) -> Result<u8> {
    let links = args.links.read(args.hardware.as_deref(), dir)?;
    let measured = std::slice::from_ref(&links);
    let csv = || links_table(&links).csv(Sourced::All(Provenance::Measured));
    output::print(args.format.format, &printed(&links, measured), csv, || links_text(&links, measured))?;
    warn_of_links(&links);
    if let Some(into) = &args.output {
        let path = write_links(measured, into)?;
        stderr::line(&format!("wrote {}", path.display()));
    }
    Ok(0)
}

impl CollectiveFiles {
    /// Reads all files and adds their all-reduces to a profile, by name or file; `None` for that of the GPU that the
    /// files name.
    pub fn read(&self, hardware: Option<&str>, dir: &Path) -> Result<MeasuredLinks> {
        let mut tests: Vec<(PathBuf, AllReduces)> = Vec::new();
        // Inspector writes one file per rank, and they are read together
        let mut inspected: Vec<PathBuf> = Vec::new();
        let mut first_inspected = None;
        for file in &self.collectives {
            let files = inspector_files(file);
            if files.is_empty() {
                tests.push((file.clone(), self.read_file(file, dir)?));
            } else {
                first_inspected = first_inspected.or(Some(file));
                inspected.extend(files);
            }
        }
        if let Some(file) = first_inspected {
            for (test, note) in read_inspector(&inspected)? {
                note.iter().for_each(|note| stderr::note(note));
                tests.push((file.clone(), test));
            }
        }
        let options = LinkOptions { p2p: self.p2p, hardware, extrapolate: self.extrapolate };
        let links = MeasuredLinks::of_tests(tests, options)?;
        links.warnings.iter().for_each(|warning| stderr::warn(warning));
        Ok(links)
    }

    /// Reads output of nccl-tests, or the all-reduces of a trace or stored run.
    fn read_file(&self, file: &Path, dir: &Path) -> Result<AllReduces> {
        let name = file.display().to_string();
        if file.is_file() {
            let mut head = Vec::new();
            let read =
                regular::open_linked(file).and_then(|file| file.take(HEAD_BYTES).read_to_end(&mut head));
            read.map_err(Error::io(file))?;
            if AllReduces::is_output(&head) || !is_known_file(file) {
                let text = InputKind::TABLE.bytes(file)?;
                return AllReduces::parse(&name, &String::from_utf8_lossy(&text));
            }
        }
        let opened = desk::open(&name, &Store::open(dir), &self.opening.of_one(&name), None)?;
        stderr::import_warnings(&opened);
        all_reduces_of(&name, &opened.trace, self.p2p, self.message_bytes)
    }
}

/// Bytes searched for the heading of nccl-tests, which may follow messages of launchers.
const HEAD_BYTES: u64 = 1 << 20;

pub(super) fn printed<'a>(
    links: &'a MeasuredLinks,
    measured: &[MeasuredLinks],
) -> PrintedCollectives<'a> {
    PrintedCollectives {
        profile: &links.before.name,
        p2p: links.p2p,
        tp: links.links.iter().map(|link| PrintedCollectivesOfTp::new(link, links)).collect(),
        other_tps: other_tps(links).map(|basis| basis.to_string()).collect(),
        assumed: links.assumed(measured),
    }
}

pub(super) fn links_text(links: &MeasuredLinks, measured: &[MeasuredLinks]) -> String {
    let MeasuredLinks { p2p, before, after, .. } = links;
    let mut text = headline(links);
    text += &output::aligned(&links_table(links));
    text += &charges_text(after, links.links.iter().map(|link| (*p2p, link.test.ranks)));
    for basis in other_tps(links) {
        let remedy = match basis.rows {
            BasisRows::Missing(_) => ": its cells are skipped; measure this TP, or add --extrapolate",
            _ => "",
        };
        text += &output::wrapped("", &format!("{basis}{remedy}"), 2);
    }
    let kept = links.assumed(measured).join("; ");
    text + &output::wrapped("", &format!("Not measured, kept from {}: {kept}.", before.name), 2)
}

/// Prints warnings about the measurements.
pub(super) fn warn_of_links(links: &MeasuredLinks) {
    for MeasuredLink { file, test, .. } in &links.links {
        for warning in &test.warnings {
            stderr::warn(&format!("{}: {warning}", file.display()));
        }
    }
    let eager = links.links.iter().filter(|link| link.test.in_graph == Some(false));
    let eager: Vec<String> = eager.map(|link| link.test.ranks.to_string()).collect();
    if !eager.is_empty() {
        stderr::note(&format!(
            "TP {}: measured without CUDA graphs, so small-message latencies include launch overhead. Decoding uses graphs: measure with `all_reduce_perf -G 1`",
            eager.join(", ")
        ));
    }
    if links.links.iter().any(|link| link.test.are_of_a_model()) {
        stderr::note(
            "these all-reduces already ran inside a model: simulate with `--set collective.latency_scale=1` so that the stack does not scale them again",
        );
    }
}

/// Usual TPs for which the new profile has no row.
fn other_tps(links: &MeasuredLinks) -> impl Iterator<Item = LinkBasis> {
    let MeasuredLinks { after, p2p, .. } = links;
    let within = TPS.into_iter().filter(|tp| *tp <= after.gpus_per_node);
    let basis = within.map(move |tp| after.link_basis(Collective::Nccl, *p2p, tp));
    basis.filter(|basis| basis.note().is_some())
}

/// Message sizes in the table, in bytes: of decode steps and of a prefill.
const TABLE_MESSAGES: [(&str, u64); 3] =
    [("16 KB", DECODE_BYTES), ("256 KB", 256 << 10), ("16 MB", 16 << 20)];

/// Latency of an all-reduce relative to the profile's, by TP: of 16 KB if small messages were measured, else of
/// the smallest measured size.
fn headline(links: &MeasuredLinks) -> String {
    let before = links.table_before();
    let of_tp = |MeasuredLink { test, link, .. }: &MeasuredLink| {
        let smallest = test.points.first().map_or(0, |(bytes, _)| *bytes);
        let bytes = smallest.max(DECODE_BYTES);
        let measured_us = single_row(test.ranks, link).alone_us(test.ranks, bytes as f64);
        let profile_us = before.alone_us(test.ranks, bytes as f64);
        let size = if bytes == DECODE_BYTES { "16 KB".to_owned() } else { output::bytes(bytes) };
        format!(
            "{size} at TP {} {} ({:.2}x the profile's {})",
            test.ranks,
            latency(measured_us),
            measured_us / profile_us,
            latency(profile_us)
        )
    };
    let of_tps: Vec<String> = links.links.iter().map(of_tp).collect();
    let line = format!(
        "All-reduces with P2P {}, measured against profile {}: {}.",
        links.p2p.as_str(),
        links.before.name,
        of_tps.join("; ")
    );
    output::wrapped("", &line, 2)
}

fn links_table(links: &MeasuredLinks) -> Table {
    let before = links.table_before();
    let mut columns = vec!["tp".to_owned(), "messages".into(), "alpha_us".into(), "gb_s|GB/s".into()];
    for (title, bytes) in TABLE_MESSAGES {
        columns.push(format!("us_{bytes}|{title}"));
        columns.push(format!("profile_us_{bytes}|{title} before"));
    }
    columns.push("kept|".into());
    let mut table = Table::new(columns).least(&["messages", "us_262144", "profile_us_262144"]);
    for MeasuredLink { test, link, kept, .. } in &links.links {
        let bytes = |point: Option<&(u64, f64)>| point.map_or(0, |(bytes, _)| *bytes);
        let messages = format!("{} to {} B", bytes(test.points.first()), bytes(test.points.last()));
        let mut row = vec![test.ranks.into(), messages.into()];
        row.extend([Shown::Number(link.alpha_us, 2), Shown::Number(link.gb_s, 1)]);
        for (_, bytes) in TABLE_MESSAGES {
            let us = |table: &LinkTable| Shown::Time(table.alone_us(test.ranks, bytes as f64));
            row.extend([us(&single_row(test.ranks, link)), us(before)]);
        }
        row.push(kept.map(|kept| kept.name).into());
        table.push(row);
    }
    table
}

/// Table with the row of one TP.
fn single_row(ranks: u32, link: &LinkPoint) -> LinkTable {
    LinkTable { note: None, extrapolate: false, tp: [(ranks, link.clone())].into(), scaled: None }
}

/// Output of measured all-reduces in JSON.
#[derive(Debug, serde::Serialize, schemars::JsonSchema)]
pub struct PrintedCollectives<'a> {
    profile: &'a str,
    p2p: P2p,
    tp: Vec<PrintedCollectivesOfTp<'a>>,
    /// Usual TPs without a row, with the rows used instead.
    other_tps: Vec<String>,
    /// Values that the profile still takes from elsewhere.
    assumed: Vec<String>,
}

#[derive(Debug, serde::Serialize, schemars::JsonSchema)]
struct PrintedCollectivesOfTp<'a> {
    tp: u32,
    file: String,
    gpu: Option<&'a str>,
    /// NCCL version, if the output contains it.
    nccl: Option<&'a str>,
    /// True if all-reduces were launched in a CUDA graph; null for a trace.
    graph: Option<bool>,
    alpha_us: f64,
    gb_s: f64,
    /// Warnings about the latencies.
    warnings: &'a [String],
    /// Latency of a 16 KB all-reduce as charged by stacks within a model.
    charged: Vec<Charged>,
    points: Vec<PrintedMessage>,
}

#[derive(Debug, serde::Serialize, schemars::JsonSchema)]
struct PrintedMessage {
    bytes: u64,
    us: f64,
    /// Latency in the old profile.
    profile_us: f64,
}

impl<'a> PrintedCollectivesOfTp<'a> {
    fn new(measured: &'a MeasuredLink, links: &MeasuredLinks) -> Self {
        let MeasuredLink { file, test, link, .. } = measured;
        let message = |&(bytes, us): &(u64, f64)| PrintedMessage {
            bytes,
            us,
            profile_us: links.table_before().alone_us(test.ranks, bytes as f64),
        };
        Self {
            tp: test.ranks,
            file: file.display().to_string(),
            gpu: test.gpu.as_deref(),
            nccl: test.version.as_deref(),
            graph: test.in_graph,
            alpha_us: link.alpha_us,
            gb_s: link.gb_s,
            warnings: &test.warnings,
            charged: charged(&links.after, links.p2p, test.ranks),
            points: test.points.iter().map(message).collect(),
        }
    }
}
