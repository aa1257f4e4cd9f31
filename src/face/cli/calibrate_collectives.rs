//! `ladderscope calibrate --collectives`: turns all-reduces measured by nccl-tests, NCCL Inspector or a trace into
//! points of a hardware profile.

use std::io::Read;
use std::path::{Path, PathBuf};

use toml_edit::{DocumentMut, Item, Table as TomlTable, Value};

use super::calibrate::{Args, profile_document, rounded, save, set};
use super::hardware::{Charged, TPS, charged, charges};
use super::output::{self, Format};
use super::report;
use super::select::OpenArgs;
use crate::desk;
use base::error::{Error, Result};
use base::input::InputKind;
use base::regular;
use base::text::{counted, latency};
use lab::store::Store;
use machine::hardware::{BasisRows, LinkBasis, LinkPoint, LinkTable, Profile, profile_named};
use study::calibrate::{AllReduces, all_reduces_of, inspector_files, read_inspector};
use table::render::{Shown, Sourced, Table};
use table::{Collective, P2p, Provenance};
use trace::import::is_known_file;

/// All-reduces of a file: measurements and the resulting link.
struct Measured {
    file: PathBuf,
    test: AllReduces,
    link: LinkPoint,
    /// Part of the link that the messages do not measure, kept from the profile, with the reason.
    kept: Option<[&'static str; 2]>,
}

/// Files of all-reduces with one P2P setting, and the profile to update.
pub(super) struct CollectiveFiles {
    pub files: Vec<PathBuf>,
    pub p2p: P2p,
    /// Profile by name or file; `None` for that of the GPU that the files name.
    pub hardware: Option<String>,
    /// Message size for traces that do not record it.
    pub message_bytes: Option<u64>,
    /// Use the only measured TP for the others.
    pub extrapolate: bool,
    pub opening: OpenArgs,
}

/// Profile with measured all-reduces in its links.
pub(super) struct MeasuredLinks {
    p2p: P2p,
    /// True if the other P2P setting was measured too.
    pub has_other: bool,
    /// Name or file of the profile.
    hardware: String,
    profile: Profile,
    all: Vec<Measured>,
    after: Profile,
}

pub fn run(args: &Args, dir: &Path) -> Result<u8> {
    let files = CollectiveFiles {
        files: args.collectives.clone(),
        p2p: args.p2p,
        hardware: args.hardware.clone(),
        message_bytes: args.message_bytes,
        extrapolate: args.extrapolate,
        opening: args.opening.clone(),
    };
    let links = MeasuredLinks::read(&files, dir)?;
    match args.format.format {
        Format::Json => output::json(&links.printed())?,
        Format::Csv => {
            output::emit(&rows(&links.all, links.before()).csv(Sourced::All(Provenance::Measured)))?;
        }
        Format::Table => output::emit(&links.text())?,
    }
    links.warn();
    if let Some(into) = &args.output {
        write(std::slice::from_ref(&links), into)?;
    }
    Ok(0)
}

impl MeasuredLinks {
    pub(super) fn read(args: &CollectiveFiles, dir: &Path) -> Result<Self> {
        let mut all: Vec<(&Path, AllReduces)> = Vec::new();
        // Inspector writes one file per rank, and they are read together
        let mut inspected: Vec<PathBuf> = Vec::new();
        let mut first = None;
        for file in &args.files {
            let files = inspector_files(file);
            if files.is_empty() {
                all.push((file, read(file, args, dir)?));
            } else {
                first = first.or(Some(file));
                inspected.extend(files);
            }
        }
        if let Some(file) = first {
            for (test, note) in read_inspector(&inspected)? {
                note.iter().for_each(|note| report::note(note));
                all.push((file, test));
            }
        }
        all.sort_by_key(|(_, test)| test.ranks);
        if let Some([(a, test), (b, _)]) =
            all.array_windows().find(|[(_, a), (_, b)]| a.ranks == b.ranks)
        {
            return Err(Error::input_help(
                format!(
                    "{} and {} were both measured on {}",
                    a.display(),
                    b.display(),
                    counted(test.ranks as usize, "GPU")
                ),
                "pass one file per number of GPUs",
            ));
        }
        let hardware = hardware(args, &all)?;
        let profile = Profile::load(&hardware)?;
        let before = links_of(&profile, args.p2p);
        let measured = |(file, test): (&Path, _)| {
            let (link, kept) = link(file, &test, before)?;
            Ok(Measured { file: file.to_owned(), test, link, kept })
        };
        let all = all.into_iter().map(measured).collect::<Result<Vec<_>>>()?;
        let after = after(args, &hardware, &profile, &all);
        Ok(Self { p2p: args.p2p, has_other: false, hardware, profile, all, after })
    }

    fn before(&self) -> &LinkTable {
        links_of(&self.profile, self.p2p)
    }

    pub(super) fn printed(&self) -> Printed<'_> {
        let of = |measured| PrintedTp::of(measured, self.before(), &self.after, self.p2p);
        Printed {
            profile: &self.profile.name,
            p2p: self.p2p,
            tp: self.all.iter().map(of).collect(),
            other_tps: other_tps(&self.after, self.p2p).map(|basis| basis.to_string()).collect(),
            assumed: self.assumed(),
        }
    }

    pub(super) fn text(&self) -> String {
        let Self { p2p, profile, all, after, .. } = self;
        let mut text = headline(profile, *p2p, all, self.before());
        text += &output::aligned(&rows(all, self.before()));
        text += &charges(after, all.iter().map(|m| (*p2p, m.test.ranks)));
        for basis in other_tps(after, *p2p) {
            let remedy = match basis.rows {
                BasisRows::Missing(_) => {
                    ": its cells are skipped; measure this TP, or add --extrapolate"
                }
                _ => "",
            };
            text += &output::wrapped("", &format!("{basis}{remedy}"), 2);
        }
        let kept = self.assumed().join("; ");
        text + &output::wrapped("", &format!("Not measured, kept from {}: {kept}.", profile.name), 2)
    }

    /// Prints what is odd about the measurements.
    pub(super) fn warn(&self) {
        for Measured { file, test, .. } in &self.all {
            for warning in &test.warnings {
                report::warn(&format!("{}: {warning}", file.display()));
            }
        }
        let eager = self.all.iter().filter(|m| m.test.in_graph == Some(false));
        let eager: Vec<String> = eager.map(|m| m.test.ranks.to_string()).collect();
        if !eager.is_empty() {
            report::note(&format!(
                "TP {}: measured without CUDA graphs, so small-message latencies include launch overhead. Decoding uses graphs: measure with `all_reduce_perf -G 1`",
                eager.join(", ")
            ));
        }
        if self.all.iter().any(|measured| measured.test.are_of_a_model()) {
            report::note(
                "these all-reduces already ran inside a model: simulate with `--set collective.latency_scale=1` so that the stack does not scale them again",
            );
        }
    }
}

fn links_of(profile: &Profile, p2p: P2p) -> &LinkTable {
    match p2p {
        P2p::On => &profile.link.p2p_on,
        P2p::Off => &profile.link.p2p_off,
    }
}

/// Reads output of nccl-tests, or the all-reduces of a trace or stored run.
fn read(file: &Path, args: &CollectiveFiles, dir: &Path) -> Result<AllReduces> {
    let name = file.display().to_string();
    if file.is_file() {
        let mut head = Vec::new();
        let read =
            regular::open_linked(file).and_then(|file| file.take(HEAD_BYTES).read_to_end(&mut head));
        read.map_err(Error::io(file))?;
        if AllReduces::is_output(&head) || !is_known_file(file) {
            return AllReduces::parse(&name, &String::from_utf8_lossy(&InputKind::TABLE.bytes(file)?));
        }
    }
    let options = args.opening.options(None);
    let recording = options.recording.filter(|_| file.is_dir());
    let opened = desk::open(&name, &Store::open(dir), desk::OpenOptions { recording, ..options })?;
    report::import_warnings(&opened);
    all_reduces_of(&name, &opened.trace, args.p2p, args.message_bytes)
}

/// Bytes searched for the heading of nccl-tests, which may follow messages of launchers.
const HEAD_BYTES: u64 = 1 << 20;

/// Profile with the measured points in its link. Rows of a built-in profile at other TPs stay only if the measured
/// GPU is the profile's; otherwise they describe another machine.
fn after(args: &CollectiveFiles, hardware: &str, profile: &Profile, all: &[Measured]) -> Profile {
    let mut after = profile.clone();
    let table = match args.p2p {
        P2p::On => &mut after.link.p2p_on,
        P2p::Off => &mut after.link.p2p_off,
    };
    let mut gpus = all.iter().filter_map(|measured| measured.test.gpu.as_deref());
    let is_built_in = Profile::file(hardware).is_none();
    if is_built_in && gpus.any(|gpu| profile_named(gpu) != Some(profile.name.as_str())) {
        table.tp.clear();
    }
    table.extrapolate |= args.extrapolate;
    table.tp.extend(all.iter().map(|measured| (measured.test.ranks, measured.link.clone())));
    after
}

/// Usual TPs for which the new profile has no row.
fn other_tps(after: &Profile, p2p: P2p) -> impl Iterator<Item = LinkBasis> {
    let within = TPS.into_iter().filter(|tp| *tp <= after.gpus_per_node);
    let basis = within.map(move |tp| after.link_basis(Collective::Nccl, p2p, tp));
    basis.filter(|basis| basis.note().is_some())
}

/// Link through the measured points, and the part kept from the profile: the bandwidth if only small messages were
/// measured, the latency of small messages if the smallest measured one mostly waits for its bytes.
fn link(
    file: &Path,
    test: &AllReduces,
    before: &LinkTable,
) -> Result<(LinkPoint, Option<[&'static str; 2]>)> {
    let refused = |problem: &str| {
        let problem = format!("{}: {problem}", file.display());
        Error::input_help(problem, "measure from 8 B to 512 MB: `all_reduce_perf -b 8 -e 512M -f 2`")
    };
    let (alpha_us, gb_s) = before.at(test.ranks);
    let points = || test.points.clone();
    let [(bytes, us), ref larger @ ..] = test.points[..] else {
        return Err(refused("no all-reduce was measured"));
    };
    let largest = larger.last().map_or(bytes, |(bytes, _)| *bytes);
    if largest as f64 / gb_s / 1e3 <= alpha_us {
        // stored as points, so that measured messages get exactly their measured latencies
        let link = LinkPoint { points: points(), ..LinkPoint::formula(us, gb_s) };
        return Ok((link, Some(["bandwidth", "only small messages measured"])));
    }
    let transfer_us = |gb_s: f64| bytes as f64 / gb_s / 1e3;
    if larger.is_empty() {
        if us <= alpha_us {
            return Err(refused(&format!(
                "one message of {} takes {}, less than the profile's latency of small ones ({}), so neither latency nor bandwidth follows",
                output::bytes(bytes),
                latency(us),
                latency(alpha_us)
            )));
        }
        let gb_s = bytes as f64 / (us - alpha_us) / 1e3;
        return Ok((LinkPoint::formula(alpha_us, gb_s), Some(ONLY_LARGE)));
    }
    let fitted = LinkPoint::of_points(points()).ok_or_else(|| {
        refused("the largest messages are not slower than small ones, so the bandwidth cannot be fitted")
    })?;
    // time besides the transfer
    let rest_us = (us - transfer_us(fitted.gb_s)).max(0.0);
    match rest_us >= us / 2.0 {
        true => Ok((fitted, None)),
        false => Ok((LinkPoint::formula(alpha_us.min(rest_us), fitted.gb_s), Some(ONLY_LARGE))),
    }
}

/// What links fitted to large messages keep from the profile, and why.
const ONLY_LARGE: [&str; 2] = ["latency of small messages", "only large ones measured"];

/// Profile to update: the one named by the user, else the profile of the GPU named in the files.
fn hardware(args: &CollectiveFiles, all: &[(&Path, AllReduces)]) -> Result<String> {
    let mut gpus: Vec<&str> = all.iter().filter_map(|(_, test)| test.gpu.as_deref()).collect();
    gpus.sort_unstable();
    gpus.dedup();
    if let Some(name) = &args.hardware {
        warn_of_other_gpus(&gpus, name)?;
        return Ok(name.clone());
    }
    if let [one, other, ..] = gpus.as_slice() {
        return Err(Error::input_help(
            format!("the files were measured on different GPUs: {one}, {other}"),
            "pass the files of one GPU, or name the profile with --hardware",
        ));
    }
    let gpu = gpus.first().copied();
    gpu.and_then(profile_named).map(str::to_owned).ok_or_else(|| {
        Error::input_help(
            match gpu {
                Some(gpu) => format!("no built-in profile for this GPU: {gpu}"),
                None => "the files do not name the GPU".to_owned(),
            },
            format!("name the nearest one with --hardware: {}", Profile::names().join(", ")),
        )
    })
}

/// Warns of measured GPUs that are not those of the profile. A GPU without a built-in profile and a profile of the
/// user's are compared by words of their names.
fn warn_of_other_gpus(gpus: &[&str], hardware: &str) -> Result<()> {
    let profile = Profile::load(hardware)?;
    let named = profile.name.to_ascii_lowercase();
    // h100_sxm: H100
    let is_named = |model: &str| named.contains(&model.to_ascii_lowercase());
    for gpu in gpus {
        let is_own = match profile_named(gpu) {
            Some(known) if Profile::names().contains(&profile.name.as_str()) => known == profile.name,
            Some(known) => is_named(known.split('_').next().unwrap_or(known)),
            None => gpu
                .split([' ', '-'])
                .any(|word| word.contains(|c: char| c.is_ascii_digit()) && is_named(word)),
        };
        if !is_own {
            report::warn(&format!(
                "measured on {gpu}, but used for the links of {} (--hardware)",
                profile.name
            ));
        }
    }
    Ok(())
}

/// Message sizes for comparing measured latencies with the profile's: of a decode step and of a prefill.
const SHOWN: [(&str, u64); 3] = [("16 KB", 16 << 10), ("256 KB", 256 << 10), ("16 MB", 16 << 20)];

/// Latency of an all-reduce relative to the profile's, by TP: of 16 KB if small messages were measured, else of
/// the smallest measured size.
fn headline(profile: &Profile, p2p: P2p, all: &[Measured], before: &LinkTable) -> String {
    let of_tp = |Measured { test, link, .. }: &Measured| {
        let smallest = test.points.first().map_or(0, |(bytes, _)| *bytes);
        let bytes = smallest.max(SHOWN[0].1);
        let [us, old] =
            [&alone(test.ranks, link), before].map(|of| of.alone_us(test.ranks, bytes as f64));
        let size = if bytes == SHOWN[0].1 { SHOWN[0].0.to_owned() } else { output::bytes(bytes) };
        let ratio = us / old;
        format!(
            "{size} at TP {} {} ({ratio:.2}x the profile's {})",
            test.ranks,
            latency(us),
            latency(old)
        )
    };
    let of_tps: Vec<String> = all.iter().map(of_tp).collect();
    let line = format!(
        "All-reduces with P2P {}, measured against profile {}: {}.",
        p2p.as_str(),
        profile.name,
        of_tps.join("; ")
    );
    output::wrapped("", &line, 2)
}

fn rows(all: &[Measured], before: &LinkTable) -> Table {
    let mut columns = vec!["tp".to_owned(), "messages".into(), "alpha_us".into(), "gb_s|GB/s".into()];
    for (size, bytes) in SHOWN {
        columns.push(format!("us_{bytes}|{size}"));
        columns.push(format!("profile_us_{bytes}|{size} before"));
    }
    columns.push("kept|".into());
    let mut table = Table::new(columns).least(&["messages", "us_262144", "profile_us_262144"]);
    for Measured { test, link, kept, .. } in all {
        let bytes = |at: Option<&(u64, f64)>| at.map_or(0, |(bytes, _)| *bytes);
        let messages = format!("{} to {} B", bytes(test.points.first()), bytes(test.points.last()));
        let mut row = vec![test.ranks.into(), messages.into()];
        row.extend([Shown::Number(link.alpha_us, 2), Shown::Number(link.gb_s, 1)]);
        for (_, bytes) in SHOWN {
            let us = |table: &LinkTable| table.alone_us(test.ranks, bytes as f64);
            row.push(Shown::Time(us(&alone(test.ranks, link))));
            row.push(Shown::Time(us(before)));
        }
        row.push(kept.map(|[what, _]| what).into());
        table.push(row);
    }
    table
}

fn alone(ranks: u32, link: &LinkPoint) -> LinkTable {
    LinkTable { note: None, extrapolate: false, tp: [(ranks, link.clone())].into(), scaled: None }
}

/// Output of measured all-reduces in JSON.
#[derive(Debug, serde::Serialize, schemars::JsonSchema)]
pub struct Printed<'a> {
    profile: &'a str,
    p2p: P2p,
    tp: Vec<PrintedTp<'a>>,
    /// Usual TPs without a row, with the rows used instead.
    other_tps: Vec<String>,
    /// Values that the profile still takes from elsewhere.
    assumed: Vec<String>,
}

#[derive(Debug, serde::Serialize, schemars::JsonSchema)]
struct PrintedTp<'a> {
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
    points: Vec<PrintedTime>,
}

#[derive(Debug, serde::Serialize, schemars::JsonSchema)]
struct PrintedTime {
    bytes: u64,
    us: f64,
    /// Latency in the old profile.
    profile_us: f64,
}

impl<'a> PrintedTp<'a> {
    fn of(
        Measured { file, test, link, .. }: &'a Measured,
        before: &LinkTable,
        after: &Profile,
        p2p: P2p,
    ) -> Self {
        let time = |&(bytes, us): &(u64, f64)| PrintedTime {
            bytes,
            us,
            profile_us: before.alone_us(test.ranks, bytes as f64),
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
            charged: charged(after, p2p, test.ranks),
            points: test.points.iter().map(time).collect(),
        }
    }
}

impl MeasuredLinks {
    /// Describes the values that the profile still takes from elsewhere.
    fn assumed(&self) -> Vec<String> {
        let Self { p2p, has_other, after, all, .. } = self;
        let link = |p2p: P2p| format!("all-reduces with P2P {}", p2p.as_str());
        let others: Vec<String> = links_of(after, *p2p)
            .tp
            .keys()
            .filter(|tp| all.iter().all(|m| m.test.ranks != **tp))
            .map(u32::to_string)
            .collect();
        let kept = |measured: &Measured| {
            let [what, why] = measured.kept?;
            Some(format!("{what} at TP {} ({why})", measured.test.ranks))
        };
        let mut assumed: Vec<String> = all.iter().filter_map(kept).collect();
        if !others.is_empty() {
            assumed.push(format!("{} at TP {}", link(*p2p), others.join(", ")));
        }
        if !has_other {
            assumed.push(link(if *p2p == P2p::On { P2p::Off } else { P2p::On }));
        }
        assumed.extend(
            [
                "latencies of collectives other than NCCL",
                "inter-node links",
                "GPU memory bandwidth and peak FLOP/s",
                "slowdown of compute during a collective (from the stack)",
            ]
            .map(str::to_owned),
        );
        assumed
    }

    /// Puts the measured points into the profile's file, keeping comments.
    fn put(&self, file: &mut DocumentMut) -> Result<()> {
        let Self { p2p, hardware, after, all, .. } = self;
        let name = format!("p2p_{}", p2p.as_str());
        let (name, table) = (name.as_str(), links_of(after, *p2p));
        if let Some(rows) = file["link"][name]["tp"].as_table_like_mut() {
            let old: Vec<String> = rows.iter().map(|(tp, _)| tp.to_owned()).collect();
            let is_left = |tp: &String| tp.parse().is_ok_and(|tp: u32| table.tp.contains_key(&tp));
            for tp in old.into_iter().filter(|tp| !is_left(tp)) {
                rows.remove(&tp);
            }
        }
        if table.extrapolate {
            file["link"][name]["extrapolate"] = toml_edit::value(true);
        }
        for Measured { file: source, test, link, .. } in all {
            let source = format!(
                "link.{name}, TP {}: {}, {}{}{}",
                test.ranks,
                test.origin,
                source.file_name().unwrap_or(source.as_os_str()).to_string_lossy(),
                test.version.as_ref().map(|version| format!(", NCCL {version}")).unwrap_or_default(),
                match test.in_graph {
                    Some(true) => ", in CUDA graphs",
                    Some(false) => ", without CUDA graphs",
                    None => "",
                },
            );
            let tp = file["link"][name]["tp"].or_insert(Item::Table(TomlTable::new()));
            let row = tp[&test.ranks.to_string()].or_insert(Item::Table(TomlTable::new()));
            // the old values described another machine
            let row = row
                .as_table_like_mut()
                .ok_or_else(|| Error::failed(format!("{hardware}: {name} is no table")))?;
            for key in ["large", "note", "measured_bytes", "points"] {
                row.remove(key);
            }
            let points: Vec<String> =
                link.points.iter().map(|(bytes, us)| format!("[{bytes}, {}]", rounded(*us))).collect();
            let lines: Vec<String> =
                points.chunks(6).map(|line| format!("    {},\n", line.join(", "))).collect();
            let points: Value = format!("[\n{}]", lines.concat())
                .parse()
                .map_err(|error| Error::failed(format!("points of TP {}: {error}", test.ranks)))?;
            if !link.points.is_empty() {
                row.insert("points", Item::Value(points));
            }
            row.insert("note", Item::Value(source.as_str().into()));
            let key = |value: &str| format!("link.{name}.tp.{}.{value}", test.ranks);
            set(file, &key("alpha_us"), link.alpha_us);
            set(file, &key("gb_s"), link.gb_s);
            if let Some(sources) = file["sources"].as_array_mut() {
                sources.push(source);
            }
        }
        Ok(())
    }
}

/// Writes a profile with all these links, measured against the same one. Returns its path.
pub(super) fn write(links: &[MeasuredLinks], into: &Path) -> Result<PathBuf> {
    let first = links.first().ok_or_else(|| Error::failed("no link was measured"))?;
    std::fs::create_dir_all(into).map_err(Error::io(into))?;
    let mut file = profile_document(&first.hardware)?;
    links.iter().try_for_each(|links| links.put(&mut file))?;
    let path = save(into, &first.after.name, &file)?;
    // reads the file back to detect errors now
    Profile::load(&path.display().to_string())?;
    Ok(path)
}
