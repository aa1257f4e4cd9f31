//! `ladderscope hardware NAME --collectives`: latency of every all-reduce by TP and message size.

use std::collections::BTreeMap;

use super::hardware::TPS;
use super::output::{self, Format, bytes};
use base::error::Result;
use machine::hardware::{CollectiveScale, Profile};
use run::sim::switches_in_words;
use table::render::{Shown, Sourced, Table};
use table::{Collective, P2p};

/// Message sizes: 1 KiB to 256 MiB, each four times the one before.
const MESSAGES: [u64; 10] =
    [1 << 10, 1 << 12, 1 << 14, 1 << 16, 1 << 18, 1 << 20, 1 << 22, 1 << 24, 1 << 26, 1 << 28];

/// Latencies of one message at one TP, within a node with P2P and back to back.
#[derive(Debug, serde::Serialize, schemars::JsonSchema)]
pub struct Printed {
    tp: u32,
    message_bytes: u64,
    /// Latency by all-reduce (us); those without numbers are absent.
    us: BTreeMap<&'static str, f64>,
    /// Fastest all-reduce except `fused`, which does more.
    #[schemars(with = "String")]
    fastest: Collective,
}

pub(super) fn print(profile: &Profile, format: Format) -> Result<u8> {
    let printed: Vec<Printed> = TPS.into_iter().flat_map(|tp| at(profile, tp)).collect();
    output::print(
        format,
        &printed,
        || table(&printed).csv(Sourced::NoRuns),
        || text(profile, &printed),
    )?;
    Ok(0)
}

fn at(profile: &Profile, tp: u32) -> Vec<Printed> {
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
            Printed {
                tp,
                message_bytes,
                us: all.iter().map(|one| (one.as_str(), cost(*one).0.alone_us(message))).collect(),
                fastest: fastest.taken(message).unwrap_or(Collective::Nccl),
            }
        })
        .collect()
}

fn table(printed: &[Printed]) -> Table {
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

fn text(profile: &Profile, printed: &[Printed]) -> String {
    let mut text = format!(
        "Latency (us) of an all-reduce on {} within a node, P2P on, as nccl-tests measures it\n{}",
        profile.name,
        output::aligned(&table(printed))
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
