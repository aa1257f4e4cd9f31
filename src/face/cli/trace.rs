//! `ladderscope trace convert IN OUT`: detects the input format from the content and the output format from the name.

use std::collections::BTreeMap;
use std::path::PathBuf;

use super::output::{self, FormatArgs, OutputFormat};
use super::stderr;
use crate::desk::{self, OpenOptions};
use base::error::{Error, Result};
use lab::store::Store;
use table::render::{Shown, Sourced, Table};
use trace::{ImportReport, LaunchSite, Trace, export};

/// Arguments of `ladderscope trace`.
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, clap::Subcommand)]
enum Verb {
    /// Convert a trace; IN's content and OUT's extension determine the formats
    Convert(ConvertArgs),
}

/// Arguments of `trace convert`.
#[derive(Debug, clap::Args)]
struct ConvertArgs {
    /// Trace to read: a file, a directory with one file per rank, or a stored run (id, prefix, 'last')
    #[arg(value_name = "IN")]
    input: PathBuf,
    /// File to write: .json, .json.gz or .json.zst (Chrome JSON), .parquet, .csv; or a directory for one .json.gz
    /// per rank
    #[arg(value_name = "OUT")]
    output: PathBuf,
    /// Write one Chrome JSON file per rank into the directory OUT, created if missing
    #[arg(long)]
    per_rank: bool,
    /// Overwrite existing files
    #[arg(long)]
    force: bool,
    #[command(flatten)]
    opening: OpenOptions,
    #[command(flatten)]
    report: FormatArgs,
}

pub fn run(args: &Args, dir: PathBuf) -> Result<u8> {
    let Verb::Convert(args) = &args.verb;
    convert(args, &Store::open(dir))
}

fn convert(args: &ConvertArgs, store: &Store) -> Result<u8> {
    let target = Target::from_args(args)?;
    let opened = desk::open(&args.input.to_string_lossy(), store, &args.opening, None)?;
    stderr::note_part(&opened);
    let trace = opened.trace;
    let files = match &target {
        Target::Ranks(directory) => export::write_ranks(&trace, directory, args.force)?,
        Target::File(path, _) => {
            export::write(&trace, path)?;
            vec![path.clone()]
        }
    };
    let converted = report(args, &trace, &target, &files);
    output::table(args.report.format, &converted, &rows(&converted), Sourced::NoRuns)?;
    if args.report.format != OutputFormat::Json {
        converted.warnings.iter().for_each(|warning| stderr::warn(warning));
    }
    Ok(0)
}

/// Destination of a converted trace.
enum Target {
    /// Single file in a format.
    File(PathBuf, export::ExportFormat),
    /// Directory with one file per rank.
    Ranks(PathBuf),
}

impl Target {
    /// Checks the destination before reading, so that errors appear at once.
    fn from_args(args: &ConvertArgs) -> Result<Self> {
        let slash = args.output.as_os_str().to_string_lossy().ends_with(std::path::MAIN_SEPARATOR);
        // a trailing slash would make an existing file look missing
        let path: PathBuf = args.output.components().collect();
        if args.per_rank || slash || path.is_dir() {
            if path.exists() && !path.is_dir() {
                return Err(Error::input_help(
                    format!("{}: not a directory", path.display()),
                    "--per-rank needs an output directory; it is created if missing",
                ));
            }
            return Ok(Self::Ranks(path));
        }
        let format = export::ExportFormat::from_path(&path)?;
        if path.exists() && !args.force {
            return Err(export::exists(&path));
        }
        let directory = path.parent().filter(|parent| !parent.as_os_str().is_empty());
        if let Some(missing) = directory.filter(|directory| !directory.is_dir()) {
            return Err(Error::input_help(
                format!("{}: no such directory: {}", path.display(), missing.display()),
                "create it first, or write elsewhere",
            ));
        }
        Ok(Self::File(path, format))
    }

    fn format(&self) -> &'static str {
        match self {
            Self::File(_, format) => format.name(),
            Self::Ranks(_) => export::ExportFormat::JsonGz.name(),
        }
    }
}

/// Result of a conversion: input, output, and losses.
#[derive(Debug, serde::Serialize, schemars::JsonSchema)]
pub struct Converted {
    read: ReadFile,
    written: Written,
    /// Provenance of the numbers.
    provenance: &'static str,
    /// Warnings about missing, odd or skipped data, one sentence each.
    warnings: Vec<String>,
}

/// Imported file or directory.
#[derive(Debug, serde::Serialize, schemars::JsonSchema)]
struct ReadFile {
    file: String,
    format: String,
    /// Number of events of all kinds.
    events: u64,
    /// Used events by their result.
    used: BTreeMap<String, u64>,
    /// Ignored events by reason.
    ignored: BTreeMap<String, u64>,
}

/// Exported files.
#[derive(Debug, serde::Serialize, schemars::JsonSchema)]
struct Written {
    format: &'static str,
    files: Vec<WrittenFile>,
    spans: usize,
    ranges: usize,
    operations: usize,
    ranks: u32,
}

#[derive(Debug, serde::Serialize, schemars::JsonSchema)]
struct WrittenFile {
    file: String,
    /// Null if the file is already gone.
    bytes: Option<u64>,
}

/// Parts of a trace that the target format does not hold.
fn losses(trace: &Trace, target: &Target) -> Option<String> {
    let has_operators = trace.spans.iter().any(|span| span.launched.operator != LaunchSite::NONE);
    let parts = [
        (
            matches!(target, Target::File(_, export::ExportFormat::Csv)) && !trace.ranges.is_empty(),
            "ranges",
        ),
        (has_operators, "operators"),
        (!trace.meta.products.is_empty(), "shapes of matrix products"),
    ];
    let lost: Vec<&str> =
        parts.into_iter().filter_map(|(is_lost, part)| is_lost.then_some(part)).collect();
    let is_lossless = matches!(target, Target::File(_, export::ExportFormat::Parquet));
    (!is_lossless && !lost.is_empty())
        .then(|| format!("{} has no {}; Parquet keeps them", target.format(), lost.join(", ")))
}

fn report(args: &ConvertArgs, trace: &Trace, target: &Target, files: &[PathBuf]) -> Converted {
    let (spans, ranges) = (trace.spans.len(), trace.ranges.len());
    let meta = &trace.meta;
    let import = meta.import.clone().unwrap_or_else(|| ImportReport {
        format: format!("Ladderscope trace, version {}", meta.version),
        events: (spans + ranges) as u64,
        used: [("span".into(), spans as u64), ("range".into(), ranges as u64)].into(),
        ..ImportReport::default()
    });
    let ImportReport { format, events, used, ignored, mut warnings, .. } = import;
    let read = ReadFile { file: args.input.display().to_string(), format, events, used, ignored };
    warnings.extend(losses(trace, target));
    let written = files.iter().map(|path| WrittenFile {
        file: path.display().to_string(),
        bytes: std::fs::metadata(path).map(|meta| meta.len()).ok(),
    });
    Converted {
        read,
        written: Written {
            format: target.format(),
            files: written.collect(),
            spans,
            ranges,
            operations: trace.operations.len(),
            ranks: meta.ranks,
        },
        provenance: meta.provenance.as_str(),
        warnings,
    }
}

/// Text report with one line per kind of event.
fn rows(report: &Converted) -> Table {
    let mut rows = Table::new(["action", "count", "!details"]);
    let (read, written) = (&report.read, &report.written);
    rows.push(vec![Shown::text("read"), Shown::Whole(read.events), Shown::text(&read.format)]);
    for (fate, map) in [("used", &read.used), ("ignored", &read.ignored)] {
        for (why, number) in map.iter().filter(|(_, number)| **number != 0) {
            rows.push(vec![Shown::text(fate), Shown::Whole(*number), Shown::text(why)]);
        }
    }
    for (what, count) in [("spans", written.spans), ("ranges", written.ranges)] {
        let note = format!("{what}, {}", report.provenance);
        rows.push(vec![Shown::text("written"), Shown::Whole(count as u64), Shown::text(note)]);
    }
    for file in &written.files {
        let bytes = file.bytes.map(output::bytes).unwrap_or_default();
        let note = format!("{} ({}, {bytes})", file.file, written.format);
        rows.push(vec![Shown::text("file"), Shown::None, Shown::text(note)]);
    }
    rows
}
