//! `ladderscope hardware [NAME|FILE]`: built-in hardware profiles, or one of any kind.

use super::output::{self, Format, FormatArgs, bytes};
use crate::base::error::{Error, Result};
use crate::machine::hardware::{Profile, STACKS, Stack};
use crate::table::P2p;
use crate::table::render::{Shown, Sourced, Table};

/// The command line's arguments of `ladderscope hardware`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Only this profile: a built-in name, or a TOML file [default: all built-in ones]
    #[arg(value_name = "NAME|FILE")]
    pub name: Option<String>,
    /// Print the TOML of a built-in profile or stack (native, gpt-fast, lmdeploy, vllm-0.8), to write one's own from
    #[arg(long, requires = "name")]
    pub toml: bool,
    #[command(flatten)]
    pub output: FormatArgs,
}

/// TPs whose links are listed.
const TPS: [u32; 3] = [2, 4, 8];

/// Prints the profiles that were asked for, or the TOML of one.
pub fn run(args: &Args) -> Result<u8> {
    if let Some(name) = args.name.as_deref().filter(|_| args.toml) {
        let text = Profile::built_in_text(name).or_else(|| Stack::built_in_text(name));
        let known = || Profile::built_in().into_iter().map(|p| p.name).chain(STACKS.map(str::to_owned));
        let names: Vec<String> = known().collect();
        let unknown = || Error::unknown("profile or stack", name, names.iter().map(String::as_str));
        output::emit(text.ok_or_else(unknown)?)?;
        return Ok(0);
    }
    let profiles = match &args.name {
        Some(name) => vec![Profile::load(name)?],
        None => Profile::built_in(),
    };
    match args.output.format {
        Format::Json => output::json(&profiles.iter().map(Printed::of).collect::<Vec<_>>())?,
        Format::Csv => output::emit(&links(&profiles).csv(Sourced::NoRuns))?,
        Format::Table => output::emit(&text(&profiles))?,
    }
    Ok(0)
}

/// The profile as its file has it, and its links as runs would see them.
#[derive(Debug, serde::Serialize, schemars::JsonSchema)]
pub struct Printed<'a> {
    #[serde(flatten)]
    profile: &'a Profile,
    /// Memory of a GPU.
    memory_bytes: u64,
    links: Vec<PrintedLink>,
}

/// An all-reduce takes `alpha_us + message bytes / (gb_s x 1e9)`.
#[derive(Debug, serde::Serialize, schemars::JsonSchema)]
struct PrintedLink {
    p2p: P2p,
    tp: u32,
    alpha_us: f64,
    gb_s: f64,
}

impl<'a> Printed<'a> {
    fn of(profile: &'a Profile) -> Self {
        let link = |(p2p, tp, alpha_us, gb_s)| PrintedLink { p2p, tp, alpha_us, gb_s };
        Self {
            profile,
            memory_bytes: profile.memory_bytes,
            links: links_of(profile).map(link).collect(),
        }
    }
}

/// The profiles, their links, and where the numbers come from.
fn text(profiles: &[Profile]) -> String {
    let mut text = output::aligned(&gpus(profiles));
    text += "\nLinks: one all-reduce takes alpha_us + message bytes / (gb_s x 1e9)\n";
    text += &output::aligned(&links(profiles));
    for profile in profiles {
        text += &format!("\n{}", profile.name);
        text += &profile.note.as_ref().map(|note| format!(": {note}")).unwrap_or_default();
        text.push('\n');
        for source in &profile.sources {
            text += &format!("  {source}\n");
        }
    }
    if profiles.len() > 1 {
        text += "\nSoftware stacks (--stack)\n";
        for stack in Stack::built_in() {
            text += &format!("\n{}: {}\n", stack.name, stack.note.as_deref().unwrap_or_default());
            for source in &stack.sources {
                text += &format!("  {source}\n");
            }
        }
        text += "\nYour own: start from `ladderscope hardware NAME --toml`, and name the file.\n";
    }
    text
}

fn gpus(profiles: &[Profile]) -> Table {
    Table::of(
        profiles,
        &[
            ("name", &|p: &Profile| Shown::text(&p.name)),
            ("memory", &|p| bytes(p.memory_bytes).into()),
            ("GB/s", &|p| Shown::Number(p.hbm_gb_s, 0)),
            ("bf16 TFLOP/s", &|p| Shown::Number(p.tflops.bf16, 1)),
            ("latency tables", &|p| p.tables.as_deref().unwrap_or("-").into()),
            ("GPUs a node", &|p| p.gpus_per_node.into()),
        ],
    )
}

/// A profile's links as runs would see them: P2P, TP, latency (us), bandwidth (GB/s).
fn links_of(profile: &Profile) -> impl Iterator<Item = (P2p, u32, f64, f64)> {
    [P2p::On, P2p::Off].into_iter().flat_map(|p2p| TPS.map(|tp| (p2p, tp))).map(|(p2p, tp)| {
        let (alpha_us, gb_s) = profile.link(p2p, tp);
        (p2p, tp, alpha_us, gb_s)
    })
}

/// A profile, P2P and TP a row.
fn links(profiles: &[Profile]) -> Table {
    type Row<'a> = (&'a Profile, (P2p, u32, f64, f64));
    let rows: Vec<Row<'_>> =
        profiles.iter().flat_map(|profile| links_of(profile).map(move |link| (profile, link))).collect();
    Table::of(
        &rows,
        &[
            ("name", &|(profile, _): &Row<'_>| Shown::text(&profile.name)),
            ("memory_bytes", &|(profile, _)| profile.memory_bytes.into()),
            ("hbm_gb_s", &|(profile, _)| Shown::Number(profile.hbm_gb_s, 0)),
            ("gpus_per_node", &|(profile, _)| profile.gpus_per_node.into()),
            ("p2p", &|(_, (p2p, ..))| p2p.as_str().into()),
            ("tp", &|(_, (_, tp, ..))| (*tp).into()),
            ("alpha_us", &|(_, (.., alpha_us, _))| Shown::Number(*alpha_us, 1)),
            ("gb_s", &|(_, (.., gb_s))| Shown::Number(*gb_s, 1)),
        ],
    )
}
