//! `ladderscope import FOLDER`: runs, recordings and links that `experiments/gpu/measure.sh` packed on another machine.

use std::path::{Path, PathBuf};

use super::calibrate_collectives::{self, CollectiveFiles};
use super::output::{self, FormatArgs};
use super::stderr;
use crate::desk::calibrate::write_links;
use crate::desk::kit::{ImportedKit, Kit, KitOrigin};
use crate::desk::{self, OpenOptions};
use base::error::{Error, Result};
use base::text::{counted, shell_command};
use lab::store::{CopiedRuns, DamagedFile, RECORDINGS, RecordingCopies, Store};
use study::analysis::GridRow;
use study::calibrate::MeasuredLinks;
use table::P2p;
use table::render::Sourced;

/// Arguments of `ladderscope import`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Results of experiments/gpu/measure.sh: its folder OUT, or the archive OUT.tar.gz that it packed
    #[arg(value_name = "FOLDER|FILE")]
    pub kit: PathBuf,
    /// Hardware profile to update with the kit's all-reduces: a built-in name or a TOML file [default: the GPU's]
    #[arg(long, value_name = "NAME|FILE")]
    pub hardware: Option<String>,
    /// Directory for a hardware profile with the kit's all-reduces, P2P on and off, as `calibrate --collectives` writes it
    #[arg(short, long, value_name = "DIR")]
    pub output: Option<PathBuf>,
    #[command(flatten)]
    pub format: FormatArgs,
}

/// Output of an import in JSON.
#[derive(Debug, serde::Serialize, schemars::JsonSchema)]
pub struct PrintedImport<'a> {
    kit: &'a KitOrigin,
    runs: &'a CopiedRuns,
    recordings: &'a RecordingCopies,
    /// All-reduces of nccl-tests, with P2P on and off.
    links: Vec<calibrate_collectives::PrintedCollectives<'a>>,
    /// Hardware profile written with --output.
    profile: Option<String>,
    /// Measured settings with standard, ladder and upper-bound.
    grid: &'a [GridRow],
    /// Files of the kit that are damaged and were left out.
    damaged: &'a [DamagedFile],
    /// Members of the archive that were left out.
    notes: &'a [String],
}

pub fn run(args: &Args, dir: &Path) -> Result<u8> {
    let store = Store::open(dir);
    let kit = Kit::open(&args.kit, &store)?;
    let imported = kit.import(&store)?;
    // what was copied is shown even if the links cannot be used
    let (links, refused) = read_links(args, dir, &kit)?;
    let written = write_profile(args, &links, &refused);
    let profile = written.as_ref().ok().and_then(Option::as_ref);
    let ImportedKit { origin, runs, recordings, grid, damaged } = &imported;
    let printed = PrintedImport {
        kit: origin,
        runs,
        recordings,
        links: links.iter().map(|of_p2p| calibrate_collectives::printed(of_p2p, &links)).collect(),
        profile: profile.map(|path| path.display().to_string()),
        grid: &grid.rows,
        damaged,
        notes: &kit.notes,
    };
    let csv = || grid.table().csv(Sourced::ByRow);
    output::print(args.format.format, &printed, csv, || text(args, dir, &imported, &links))?;
    links.iter().for_each(calibrate_collectives::warn_of_links);
    notes(&kit, &imported);
    for (p2p, error) in &refused {
        stderr::warn(&format!("all-reduces with P2P {} were not used: {error}", p2p.as_str()));
    }
    written?;
    Ok(u8::from(!damaged.is_empty()))
}

/// P2P settings whose all-reduces cannot be used, with the reason.
type RefusedLinks = Vec<(P2p, Error)>;

/// Reads the kit's all-reduces by P2P setting.
fn read_links(args: &Args, dir: &Path, kit: &Kit) -> Result<(Vec<MeasuredLinks>, RefusedLinks)> {
    let (mut links, mut refused) = (Vec::new(), Vec::new());
    for (p2p, files) in kit.links()? {
        let files = CollectiveFiles {
            collectives: files,
            p2p,
            message_bytes: None,
            extrapolate: false,
            opening: OpenOptions::default(),
        };
        match files.read(args.hardware.as_deref(), dir) {
            Ok(measured) => links.push(measured),
            Err(error) => refused.push((p2p, error)),
        }
    }
    Ok((links, refused))
}

/// Writes the profile if asked. Returns an error if some of the kit's all-reduces cannot be in it.
fn write_profile(
    args: &Args,
    links: &[MeasuredLinks],
    refused: &[(P2p, Error)],
) -> Result<Option<PathBuf>> {
    let Some(into) = &args.output else {
        return match &args.hardware {
            Some(_) if links.is_empty() && refused.is_empty() => Err(without_links(args)),
            _ => Ok(None),
        };
    };
    match links {
        _ if !refused.is_empty() => {
            Err(Error::input("no profile was written, since some all-reduces cannot be used"))
        }
        [] => Err(without_links(args)),
        links => {
            let path = write_links(links, into)?;
            stderr::line(&format!("wrote {}", path.display()));
            Ok(Some(path))
        }
    }
}

fn without_links(args: &Args) -> Error {
    Error::input_help(
        format!("{} has no output of nccl-tests, so there is no profile to write", args.kit.display()),
        "measure with `measure.sh --gpus N` and all_reduce_perf, or omit --output and --hardware",
    )
}

fn text(args: &Args, dir: &Path, imported: &ImportedKit, links: &[MeasuredLinks]) -> String {
    let ImportedKit { origin, runs, recordings, grid, .. } = imported;
    let mut copied = vec![counted(runs.runs.len(), "run")];
    for (count, what) in [
        (runs.batches.len(), "simulated sweep"),
        (runs.traces, "trace"),
        (recordings.copied.len(), "recording"),
    ] {
        if count > 0 {
            copied.push(counted(count, what));
        }
    }
    let mut head = format!("Imported {} into {}", copied.join(", "), dir.display());
    let present = runs.present.len() + recordings.present.len();
    if present > 0 {
        head += &format!("; skipped {present} already there");
    }
    let mut gpus: Vec<&str> = origin.gpus.iter().map(String::as_str).collect();
    let count = gpus.len();
    gpus.dedup();
    let gpus = match gpus.as_slice() {
        [one] if count > 1 => format!("{count} x {one}"),
        gpus => gpus.join(", "),
    };
    let machine = format!("{} {gpus}", origin.host.as_deref().unwrap_or_default());
    if !machine.trim().is_empty() {
        head += &format!(", from {}", machine.trim());
    }
    let mut text = output::wrapped("", &format!("{head}."), 0);
    if !grid.rows.is_empty() {
        let about = format!(
            "TPOT in ms (speedup over standard), gap closed and overlap of ladder: {}",
            grid.settings
        );
        text += &format!("\n{}{}", output::wrapped("", &about, 2), output::aligned(&grid.table()));
    }
    if grid.incomplete > 0 {
        text += &output::wrapped(
            "",
            &format!(
                "Without standard, ladder and upper-bound, so not in the table: {}.",
                counted(grid.incomplete, "setting")
            ),
            2,
        );
    }
    for of_p2p in links {
        text += &format!("\n{}", calibrate_collectives::links_text(of_p2p, links));
    }
    if !links.is_empty() && args.output.is_none() {
        let kit = args.kit.to_string_lossy();
        let mut words = vec!["ladderscope".into(), "import".into(), kit.into_owned()];
        words.extend(args.hardware.iter().flat_map(|name| ["--hardware".into(), name.clone()]));
        words.extend(desk::dir_option(dir));
        words.extend(["-o".into(), "DIR".into()]);
        text += &format!("To write the profile: {}\n", shell_command(words));
    }
    for name in &recordings.copied {
        let trace = dir.join(RECORDINGS).join(name).join("trace.parquet");
        let command = shell_command(["ladderscope", "overlap", &trace.to_string_lossy()]);
        text += &format!("\nRecording: {command}\n");
    }
    text
}

/// Prints what was left out or not measured.
fn notes(kit: &Kit, imported: &ImportedKit) {
    let ImportedKit { origin, runs, damaged, .. } = imported;
    let damaged: Vec<String> =
        damaged.iter().map(|file| format!("left out {}: {}", file.path, file.problem)).collect();
    stderr::warn_all(damaged.iter().map(String::as_str), "--format json has all of them");
    let skipped: Vec<String> = kit.notes.iter().map(|note| format!("archive: {note}")).collect();
    stderr::warn_all(skipped.iter().map(String::as_str), "--format json has all of them");
    if !runs.unfinished.is_empty() {
        stderr::note(&format!("left out {} without a record", counted(runs.unfinished.len(), "run")));
    }
    if runs.without_checksum > 0 {
        let records = counted(runs.without_checksum, "record");
        stderr::note(&format!("{records} without a checksum, of an early version: only parsed"));
    }
    for part in origin.parts.iter().filter(|part| part.status != "ok") {
        let why = part.why.as_deref().unwrap_or("no reason given");
        stderr::note(&format!("not measured: {} ({}): {why}", part.part, part.status));
    }
}
