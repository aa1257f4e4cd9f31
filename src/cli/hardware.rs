//! `ladderscope hardware [NAME|FILE]`: built-in hardware profiles, or one of any kind.

use serde_json::json;

use super::output::{self, Field, Format, FormatArgs, Rows, bytes};
use crate::error::Result;
use crate::hardware::Profile;
use crate::spec::P2p;

/// Arguments of `hardware`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Only this profile: a built-in name, or a TOML file [default: all built-in ones]
    #[arg(value_name = "NAME|FILE")]
    pub name: Option<String>,
    #[command(flatten)]
    pub output: FormatArgs,
}

/// TPs whose links are listed.
const TPS: [u32; 3] = [2, 4, 8];

/// Prints the profiles.
pub fn run(args: &Args) -> Result<u8> {
    let profiles = match &args.name {
        Some(name) => vec![Profile::load(name)?],
        None => Profile::built_in(),
    };
    match args.output.format {
        Format::Json => output::json(&profiles.iter().map(to_json).collect::<Vec<_>>())?,
        Format::Csv => output::emit(&rows(&profiles, |n| Field::Whole(n)).csv())?,
        Format::Table => {
            let text = rows(&profiles, |n| Field::text(bytes(n))).table();
            output::emit(&format!(
                "{text}Links: one all-reduce takes alpha + message bytes / (GB/s x 1e9)\n"
            ))?;
        }
    }
    Ok(0)
}

fn to_json(profile: &Profile) -> serde_json::Value {
    let links: Vec<_> = [P2p::On, P2p::Off]
        .into_iter()
        .flat_map(|p2p| TPS.map(|tp| (p2p, tp)))
        .map(|(p2p, tp)| {
            let (alpha_us, gb_s) = profile.link(p2p, tp);
            json!({"p2p": p2p, "tp": tp, "alpha_us": alpha_us, "gb_s": gb_s})
        })
        .collect();
    json!({"name": profile.name, "memory_bytes": profile.memory_bytes, "links": links})
}

/// A profile, P2P and TP a row.
fn rows(profiles: &[Profile], memory: fn(u64) -> Field) -> Rows {
    let mut rows = Rows::new(["name", "memory", "p2p", "tp", "alpha_us", "gb_s"]);
    for profile in profiles {
        for p2p in [P2p::On, P2p::Off] {
            for tp in TPS {
                let (alpha_us, gb_s) = profile.link(p2p, tp);
                rows.push(vec![
                    Field::text(&profile.name),
                    memory(profile.memory_bytes),
                    Field::text(p2p.as_str()),
                    Field::Whole(tp.into()),
                    Field::Number(alpha_us, 1),
                    Field::Number(gb_s, 1),
                ]);
            }
        }
    }
    rows
}
