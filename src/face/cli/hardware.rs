//! `ladderscope hardware [NAME|FILE]...`: lists built-in hardware profiles, describes one, or compares several.
//!
//! `ladderscope hardware NAME --collectives`: latency of every all-reduce by TP and message size.

use std::collections::{BTreeMap, BTreeSet};

use super::output::{self, FormatArgs, OutputFormat, bytes};
use base::error::{Error, Result};
use machine::hardware::{BasisRows, CollectiveScale, Profile, STACKS, Stack, Tflops};
use run::sim::switches_in_words;
use table::render::{Shown, Sourced, Table};
use table::{Collective, P2p};

/// Arguments of `ladderscope hardware`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Profiles to show and compare (with --toml also a stack): built-in names or TOML files [default: all built-in
    /// profiles]
    #[arg(value_name = "NAME|FILE")]
    pub names: Vec<String>,
    /// Print the TOML of a built-in profile or stack, as a template for your own
    #[arg(long, requires = "names")]
    pub toml: bool,
    /// Print the latency of each all-reduce implementation by TP and message size, and the fastest one
    #[arg(long, requires = "names", conflicts_with = "toml")]
    pub collectives: bool,
    #[command(flatten)]
    pub output: FormatArgs,
}

/// TPs whose links are always listed, in addition to the profile's rows.
pub(super) const TPS: [u32; 3] = [2, 4, 8];

/// Message size for charged latencies: typical for a decode step.
pub(super) const DECODE_BYTES: u64 = 16 << 10;

pub fn run(args: &Args) -> Result<u8> {
    if args.toml {
        let [name] = args.names.as_slice() else {
            return Err(Error::input_help("--toml prints one profile", "name one profile or stack"));
        };
        let text = Profile::built_in_text(name).or_else(|| Stack::built_in_text(name));
        let known = || Profile::built_in().into_iter().map(|p| p.name).chain(STACKS.map(str::to_owned));
        let names: Vec<String> = known().collect();
        let unknown = || Error::unknown("profile or stack", name, names.iter().map(String::as_str));
        output::emit(text.ok_or_else(unknown)?)?;
        return Ok(0);
    }
    let profiles = match args.names.as_slice() {
        [] => Profile::built_in(),
        names => names.iter().map(|name| Profile::load(name)).collect::<Result<Vec<_>>>()?,
    };
    if args.collectives {
        let [profile] = profiles.as_slice() else {
            return Err(Error::input_help("--collectives shows one profile", "name one profile"));
        };
        return print_collectives(profile, args.output.format);
    }
    let printed: Vec<PrintedProfile<'_>> = profiles.iter().map(PrintedProfile::from_profile).collect();
    let csv = || links_table(&printed).csv(Sourced::NoRuns);
    output::print(args.output.format, &printed, csv, || match args.names.len() {
        0 => list_text(&profiles),
        1 => profile_text(&profiles, &printed),
        _ => comparison_text(&profiles),
    })?;
    Ok(0)
}

/// Profile as in its file, with the resulting links.
#[derive(Debug, serde::Serialize, schemars::JsonSchema)]
pub struct PrintedProfile<'a> {
    #[serde(flatten)]
    profile: &'a Profile,
    /// Memory per GPU.
    memory_bytes: u64,
    links: Vec<PrintedProfileLink>,
}

/// Link with latency `alpha_us + message bytes / (gb_s x 1e9)` per all-reduce.
#[derive(Debug, serde::Serialize, schemars::JsonSchema)]
struct PrintedProfileLink {
    p2p: P2p,
    tp: u32,
    /// Null if the link was not measured at this TP.
    alpha_us: Option<f64>,
    gb_s: Option<f64>,
    /// Rows of the profile that the numbers are based on.
    basis: String,
    /// Latency of a standalone 16 KB all-reduce, as measured by nccl-tests.
    us_16384: Option<f64>,
    /// Latency of the same all-reduce within a model, by stack.
    charged: Vec<Charged>,
}

impl<'a> PrintedProfile<'a> {
    fn from_profile(profile: &'a Profile) -> Self {
        let links = [P2p::On, P2p::Off].into_iter().flat_map(move |p2p| {
            let rows = profile.table_of(Collective::Nccl, p2p, 1).0.tp.keys().copied();
            let tps: BTreeSet<u32> = TPS.into_iter().chain(rows).collect();
            tps.into_iter().map(move |tp| PrintedProfileLink::new(profile, p2p, tp))
        });
        Self { profile, memory_bytes: profile.memory_bytes, links: links.collect() }
    }
}

impl PrintedProfileLink {
    fn new(profile: &Profile, p2p: P2p, tp: u32) -> Self {
        let basis = profile.link_basis(Collective::Nccl, p2p, tp);
        let is_known = !matches!(basis.rows, BasisRows::Missing(_));
        let (alpha_us, gb_s) = is_known.then(|| profile.link(p2p, tp)).unzip();
        Self {
            p2p,
            tp,
            alpha_us,
            gb_s,
            basis: basis.to_string(),
            us_16384: is_known.then(|| decode_us(profile, p2p, tp, CollectiveScale::ALONE)),
            charged: if is_known { charged(profile, p2p, tp) } else { Vec::new() },
        }
    }
}

/// Formats one profile, its links, and the sources of the numbers.
fn profile_text(profiles: &[Profile], printed: &[PrintedProfile<'_>]) -> String {
    let mut text = output::aligned(&gpus_table(profiles));
    text += "\nLinks: one all-reduce takes alpha_us + bytes / (gb_s x 1e9), except where points were measured (basis)\n";
    text += &output::aligned(&links_table(printed));
    for PrintedProfile { profile, links, .. } in printed {
        let known = links.iter().filter(|link| link.alpha_us.is_some());
        text += &charges_text(profile, known.map(|link| (link.p2p, link.tp)));
        text += &notes_and_sources(&profile.name, profile.note.as_deref(), &profile.sources);
    }
    text
}

/// Formats the built-in profiles and stacks with their notes.
fn list_text(profiles: &[Profile]) -> String {
    let mut text = output::aligned(&gpus_table(profiles)) + "\n";
    for profile in profiles {
        text += notes_and_sources(&profile.name, profile.note.as_deref(), &[]).trim_start_matches('\n');
    }
    text += "\nSoftware stacks (--stack)\n";
    for stack in Stack::built_in() {
        text += &notes_and_sources(&stack.name, stack.note.as_deref(), &stack.sources);
    }
    text += "\nLinks and sources of one profile: `ladderscope hardware NAME`; several side by side: `ladderscope hardware NAME NAME`.\n";
    text += "To add your own: `ladderscope hardware NAME --toml > mine.toml`, edit it, pass `--hardware mine.toml`.\n";
    text
}

/// Formats profiles side by side, one column each, then their sources.
fn comparison_text(profiles: &[Profile]) -> String {
    type Value = Box<dyn Fn(&Profile) -> Shown>;
    let peak = |value: fn(&Tflops) -> Option<f64>| -> Value {
        Box::new(move |profile| Shown::number(value(&profile.tflops), 0))
    };
    let mut rows: Vec<(String, Value)> = vec![
        ("memory".into(), Box::new(|profile| bytes(profile.memory_bytes).into())),
        ("memory bandwidth (GB/s)".into(), Box::new(|profile| Shown::Number(profile.hbm_gb_s, 0))),
        (
            "sustained bandwidth (GB/s)".into(),
            Box::new(|profile| Shown::Number(profile.hbm_gb_s * profile.hbm_efficiency, 0)),
        ),
        ("bf16 TFLOP/s".into(), peak(|tflops| Some(tflops.bf16))),
        ("fp8 TFLOP/s".into(), peak(|tflops| tflops.fp8)),
        ("fp4 TFLOP/s".into(), peak(|tflops| tflops.fp4)),
        ("sustained share of TFLOP/s".into(), Box::new(|p| Shown::Number(p.compute_efficiency, 2))),
        ("latency tables".into(), Box::new(|profile| profile.tables.as_deref().unwrap_or("-").into())),
        ("GPUs per node".into(), Box::new(|profile| profile.gpus_per_node.into())),
    ];
    let ways = [
        ("NCCL", Collective::Nccl, P2p::On),
        ("NCCL, no P2P", Collective::Nccl, P2p::Off),
        ("one-shot", Collective::OneShot, P2p::On),
    ];
    for (way, collective, p2p) in ways {
        for tp in TPS {
            let us: Value = Box::new(move |profile| {
                let is_known = profile.link_problem(collective, p2p, tp).is_none();
                let cost = profile.collective(collective, p2p, tp, CollectiveScale::ALONE).0;
                Shown::number(is_known.then(|| cost.us(DECODE_BYTES as f64).0), 1)
            });
            rows.push((format!("16 KB all-reduce, TP {tp}, {way} (us)"), us));
        }
    }
    let mut table = Table::new(["profile"].into_iter().chain(profiles.iter().map(|p| p.name.as_str())));
    for (name, value) in &rows {
        table.push([Shown::text(name)].into_iter().chain(profiles.iter().map(value)).collect());
    }
    let mut text = output::aligned(&table);
    for profile in profiles {
        text += &notes_and_sources(&profile.name, profile.note.as_deref(), &profile.sources);
    }
    text
}

/// Name and note of a profile or stack, then the sources of its numbers.
fn notes_and_sources(name: &str, note: Option<&str>, sources: &[String]) -> String {
    let note = note.map(|note| format!(": {note}")).unwrap_or_default();
    let sources = sources.iter().map(|source| output::wrapped("  ", source, 4));
    format!("\n{}{}", output::wrapped("", &format!("{name}{note}"), 2), sources.collect::<String>())
}

fn gpus_table(profiles: &[Profile]) -> Table {
    Table::from_rows(
        profiles,
        &[
            ("name", &|p: &Profile| Shown::text(&p.name)),
            ("memory", &|p| bytes(p.memory_bytes).into()),
            ("GB/s", &|p| Shown::Number(p.hbm_gb_s, 0)),
            ("bf16 TFLOP/s", &|p| Shown::Number(p.tflops.bf16, 1)),
            ("fp8", &|p| Shown::number(p.tflops.fp8, 1)),
            ("fp4", &|p| Shown::number(p.tflops.fp4, 1)),
            ("latency tables", &|p| p.tables.as_deref().unwrap_or("-").into()),
            ("GPUs per node", &|p| p.gpus_per_node.into()),
        ],
    )
}

/// Latency of a decode step's all-reduce, either standalone or as charged by a stack.
fn decode_us(profile: &Profile, p2p: P2p, tp: u32, scale: CollectiveScale) -> f64 {
    profile.collective(Collective::Nccl, p2p, tp, scale).0.us(DECODE_BYTES as f64).0
}

/// Latency that a stack charges for a 16 KB all-reduce within a model.
#[derive(Debug, serde::Serialize, schemars::JsonSchema)]
pub(super) struct Charged {
    stack: String,
    /// Factor on the latency of a measured all-reduce.
    latency_scale: f64,
    us_16384: f64,
}

/// Latencies charged by the built-in stacks on a link at a TP.
pub(super) fn charged(profile: &Profile, p2p: P2p, tp: u32) -> Vec<Charged> {
    let charged_by = |stack: Stack| Charged {
        latency_scale: stack.collective.latency_scale,
        us_16384: decode_us(profile, p2p, tp, stack.collective),
        stack: stack.name,
    };
    Stack::built_in().into_iter().map(charged_by).collect()
}

/// Table of latencies of a 16 KB all-reduce at these TPs: measured, and charged by the built-in stacks.
pub(super) fn charges_text(profile: &Profile, at: impl Iterator<Item = (P2p, u32)>) -> String {
    let stacks = Stack::built_in();
    let scaled = |stack: &Stack| format!("{} x {}", stack.name, stack.collective.latency_scale);
    let columns = ["p2p", "tp", "alone"].map(str::to_owned).into_iter();
    let mut rows = Table::new(columns.chain(stacks.iter().map(scaled)));
    for (p2p, tp) in at {
        let scales = stacks.iter().map(|stack| stack.collective);
        let times = std::iter::once(CollectiveScale::ALONE).chain(scales);
        let times = times.map(|scale| Shown::Number(decode_us(profile, p2p, tp, scale), 1));
        rows.push([p2p.as_str().into(), tp.into()].into_iter().chain(times).collect::<Vec<_>>());
    }
    format!(
        "\nLatency of a 16 KB all-reduce (us): alone, and inside a model with each stack's latency scale\n{}",
        output::aligned(&rows)
    )
}

/// Table with one row per profile, P2P and TP.
fn links_table(printed: &[PrintedProfile<'_>]) -> Table {
    type Row<'a> = (&'a Profile, &'a PrintedProfileLink);
    let rows: Vec<Row<'_>> =
        printed.iter().flat_map(|one| one.links.iter().map(move |link| (one.profile, link))).collect();
    Table::from_rows(
        &rows,
        &[
            ("name", &|(profile, _): &Row<'_>| Shown::text(&profile.name)),
            ("memory_bytes|", &|(profile, _)| profile.memory_bytes.into()),
            ("hbm_gb_s|", &|(profile, _)| Shown::Number(profile.hbm_gb_s, 0)),
            ("gpus_per_node|", &|(profile, _)| profile.gpus_per_node.into()),
            ("p2p", &|(_, link)| link.p2p.as_str().into()),
            ("tp", &|(_, link)| link.tp.into()),
            ("alpha_us|latency (alpha_us)", &|(_, link)| Shown::number(link.alpha_us, 1)),
            ("gb_s|bandwidth (gb_s)", &|(_, link)| Shown::number(link.gb_s, 1)),
            ("basis", &|(_, link)| Shown::text(&link.basis)),
        ],
    )
}

/// Message sizes: 1 KiB to 256 MiB, each four times the one before.
const MESSAGES: [u64; 10] =
    [1 << 10, 1 << 12, 1 << 14, 1 << 16, 1 << 18, 1 << 20, 1 << 22, 1 << 24, 1 << 26, 1 << 28];

/// Latencies of one message at one TP, within a node with P2P and back to back.
#[derive(Debug, serde::Serialize, schemars::JsonSchema)]
pub struct PrintedCollective {
    tp: u32,
    message_bytes: u64,
    /// Latency by all-reduce (us); those without numbers are absent.
    us: BTreeMap<&'static str, f64>,
    /// Fastest all-reduce except `fused`, which does more.
    #[schemars(with = "String")]
    fastest: Collective,
}

pub(super) fn print_collectives(profile: &Profile, format: OutputFormat) -> Result<u8> {
    let printed: Vec<PrintedCollective> =
        TPS.into_iter().flat_map(|tp| collectives_at(profile, tp)).collect();
    output::print(
        format,
        &printed,
        || collectives_table(&printed).csv(Sourced::NoRuns),
        || collectives_text(profile, &printed),
    )?;
    Ok(0)
}

/// Latencies at one TP by message size.
fn collectives_at(profile: &Profile, tp: u32) -> Vec<PrintedCollective> {
    let cost = |one| profile.collective(one, P2p::On, tp, CollectiveScale::ALONE);
    let is_known =
        |one: &Collective| profile.link_problem(*one, P2p::On, tp).is_none() && cost(*one).1 == *one;
    let all: Vec<Collective> =
        Collective::ALL.into_iter().filter(|one| *one != Collective::Fastest).filter(is_known).collect();
    let (fastest, _) = cost(Collective::Fastest);
    MESSAGES
        .into_iter()
        .filter(|_| !all.is_empty())
        .map(|message_bytes| {
            let message = message_bytes as f64;
            PrintedCollective {
                tp,
                message_bytes,
                us: all.iter().map(|one| (one.as_str(), cost(*one).0.alone_us(message))).collect(),
                fastest: fastest.choice(message).unwrap_or(Collective::Nccl),
            }
        })
        .collect()
}

fn collectives_table(printed: &[PrintedCollective]) -> Table {
    let all: Vec<Collective> = Collective::ALL
        .into_iter()
        .filter(|one| printed.iter().any(|row| row.us.contains_key(one.as_str())))
        .collect();
    let names = all.iter().map(|one| format!("{}_us|{one}", one.as_str().replace('-', "_")));
    let columns = ["tp", "message_bytes|", "message"].map(str::to_owned).into_iter();
    let mut table = Table::new(columns.chain(names).chain(["fastest".into()]));
    for row in printed {
        let us = all.iter().map(|one| Shown::number(row.us.get(one.as_str()).copied(), 1));
        let message = Shown::Number(row.message_bytes as f64, 0);
        let ends = [row.tp.into(), message, bytes(row.message_bytes).into()];
        let cells: Vec<Shown> =
            ends.into_iter().chain(us).chain([row.fastest.as_str().into()]).collect();
        table.push(cells);
    }
    table
}

fn collectives_text(profile: &Profile, printed: &[PrintedCollective]) -> String {
    let mut text = format!(
        "Latency (us) of an all-reduce on {} within a node, P2P on, with nothing else running\n{}",
        profile.name,
        output::aligned(&collectives_table(printed))
    );
    text += "\nFastest by message size (--collective fastest)\n";
    for tp in TPS {
        let (cost, _) = profile.collective(Collective::Fastest, P2p::On, tp, CollectiveScale::ALONE);
        let switches = cost.switches();
        if !switches.is_empty() {
            text += &output::wrapped("  ", &format!("TP {tp}: {}", switches_in_words(&switches)), 4);
        }
    }
    let notes = Collective::ALL.into_iter().filter_map(|one| {
        let note = profile.link.table(one)?.note(8)?;
        Some(output::wrapped("", &format!("{one}: {note}"), 2))
    });
    text + "\nSources at TP 8\n" + &notes.collect::<String>()
}
