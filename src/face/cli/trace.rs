//! `ladderscope trace convert IN OUT`: what the file is follows from its content, what becomes of it from
//! the output's name.

use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use super::output::{self, Format, FormatArgs};
use super::report;
use super::rules::RulesArgs;
use crate::base::error::{Error, Result};
use crate::table::render::{Shown, Table};
use crate::trace::export;
use crate::trace::rules::{RuleReport, Rules};
use crate::trace::{self, Trace};

/// The command line's arguments of `ladderscope trace`.
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, clap::Subcommand)]
enum Verb {
    /// Convert a trace; the format follows from IN's content and OUT's extension
    Convert(ConvertArgs),
}

/// Arguments of `trace convert`.
#[derive(Debug, clap::Args)]
struct ConvertArgs {
    /// The trace to read: a file, or a directory with a file a rank
    #[arg(value_name = "IN")]
    input: PathBuf,
    /// The file to write: .json or .json.gz (Chrome JSON), .parquet, .csv; or a directory, for a .json.gz a rank
    #[arg(value_name = "OUT")]
    output: PathBuf,
    /// OUT is a directory, made where there is none, and gets a Chrome JSON file a rank
    #[arg(long)]
    per_rank: bool,
    /// Replace what is there
    #[arg(long)]
    force: bool,
    #[command(flatten)]
    rules: RulesArgs,
    #[command(flatten)]
    report: FormatArgs,
}

/// Runs the subcommand that was given.
pub fn run(args: &Args) -> Result<u8> {
    let Verb::Convert(args) = &args.verb;
    convert(args)
}

fn convert(args: &ConvertArgs) -> Result<u8> {
    let target = Target::of(args)?;
    let (trace, _) = input(args)?;
    let files = match &target {
        Target::Ranks(directory) => export::write_ranks(&trace, directory, args.force)?,
        Target::File(path, _) => {
            export::write(&trace, path)?;
            vec![path.clone()]
        }
    };
    let report = report(args, &trace, &target, &files);
    match args.report.format {
        Format::Json => output::json(&report)?,
        Format::Csv => output::emit(&rows(&report).csv())?,
        Format::Table => output::emit(&output::aligned(&rows(&report)))?,
    }
    if args.report.format != Format::Json {
        for warning in report["warnings"].as_array().into_iter().flatten().filter_map(Value::as_str) {
            report::warn(warning);
        }
    }
    Ok(0)
}

/// The one place where the input is read.
fn input(args: &ConvertArgs) -> Result<(Trace, RuleReport)> {
    trace::import::open_with(&args.input, &Rules::load(&args.rules.rules)?)
}

/// Where a converted trace goes.
enum Target {
    /// One file in a format.
    File(PathBuf, export::Format),
    /// A directory with a file a rank.
    Ranks(PathBuf),
}

impl Target {
    /// Checked before anything is read, so that nobody waits for a refusal.
    fn of(args: &ConvertArgs) -> Result<Self> {
        let slash = args.output.as_os_str().to_string_lossy().ends_with(std::path::MAIN_SEPARATOR);
        // without the slash, with which a file would seem not to exist
        let path: PathBuf = args.output.components().collect();
        if args.per_rank || slash || path.is_dir() {
            if path.exists() && !path.is_dir() {
                return Err(Error::input_help(
                    format!("{}: not a directory", path.display()),
                    "a file a rank needs a directory to lie in: name one, or one to be made",
                ));
            }
            return Ok(Self::Ranks(path));
        }
        let format = export::Format::of(&path)?;
        if path.exists() && !args.force {
            return Err(export::exists(&path));
        }
        let directory = path.parent().filter(|parent| !parent.as_os_str().is_empty());
        if let Some(missing) = directory.filter(|directory| !directory.is_dir()) {
            return Err(Error::input_help(
                format!("{}: there is no directory {}", path.display(), missing.display()),
                "make it first, or write elsewhere",
            ));
        }
        Ok(Self::File(path, format))
    }

    fn format(&self) -> &'static str {
        match self {
            Self::File(_, format) => format.name(),
            Self::Ranks(_) => export::Format::JsonGz.name(),
        }
    }
}

/// What was read, used, left and written.
fn report(args: &ConvertArgs, trace: &Trace, target: &Target, files: &[PathBuf]) -> Value {
    let (spans, ranges) = (trace.spans.len(), trace.ranges.len());
    let meta = &trace.meta;
    let shown = |path: &Path| path.display().to_string();
    let written: Vec<Value> = files
        .iter()
        .map(|path| {
            let bytes = std::fs::metadata(path).map(|meta| meta.len()).ok();
            json!({ "file": shown(path), "bytes": bytes })
        })
        .collect();
    let mut read = json!({
        "file": shown(&args.input),
        "format": format!("Ladderscope trace, version {}", meta.version),
        "events": spans + ranges,
        "used": { "span": spans, "range": ranges },
        "ignored": {},
    });
    let mut warnings: Vec<String> = Vec::new();
    if let Some(import) = &meta.import {
        read["format"] = json!(import.format);
        read["events"] = json!(import.events);
        read["used"] = json!(import.used);
        read["ignored"] = json!(import.ignored);
        warnings.extend(import.warnings.iter().cloned());
    }
    if matches!(target, Target::File(_, export::Format::Csv)) && ranges > 0 {
        warnings.push(format!("CSV has a row a span: {ranges} ranges were left out"));
    }
    json!({
        "read": read,
        "written": { "format": target.format(), "files": written, "spans": spans, "ranges": ranges,
                     "operations": trace.operations.len(), "ranks": meta.ranks },
        "provenance": meta.provenance.as_str(),
        "warnings": warnings,
    })
}

/// The report for people: what was read, used and left, a line each.
fn rows(report: &Value) -> Table {
    let mut rows = Table::new(["what", "events", "note"]);
    let text = |value: &Value| Shown::text(value.as_str().unwrap_or_default());
    let count = |value: &Value| value.as_u64().map_or(Shown::None, Shown::Whole);
    let (read, written) = (&report["read"], &report["written"]);
    rows.push(vec![Shown::text("read"), count(&read["events"]), text(&read["format"])]);
    for (fate, map) in [("used", &read["used"]), ("ignored", &read["ignored"])] {
        for (why, number) in map.as_object().into_iter().flatten().filter(|(_, n)| n.as_u64() != Some(0))
        {
            rows.push(vec![Shown::text(fate), count(number), Shown::text(why)]);
        }
    }
    for what in ["spans", "ranges"] {
        let note = format!("{what}, {}", report["provenance"].as_str().unwrap_or_default());
        rows.push(vec![Shown::text("written"), count(&written[what]), Shown::text(note)]);
    }
    for file in written["files"].as_array().into_iter().flatten() {
        let bytes = file["bytes"].as_u64().map(output::bytes).unwrap_or_default();
        let name = file["file"].as_str().unwrap_or_default();
        let format = written["format"].as_str().unwrap_or_default();
        let note = format!("{name} ({format}, {bytes})");
        rows.push(vec![Shown::text("file"), Shown::None, Shown::text(note)]);
    }
    rows
}
