//! Rank numbers of files, processes and devices, for all formats.
//!
//! In order of priority, ranks come from the trace content (`distributedInfo`, process labels), the file
//! names, and the order of the files. [`choose`] separates several recordings of the same ranks;
//! [`decide`] numbers the ranks of one recording.

mod name;
mod position;
mod recording;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};

pub(super) use name::{Name, label};
pub(super) use position::{MOST_RANK, Position};
pub(super) use recording::choose;

const MOST_NAMED: usize = 3;

#[derive(Clone, Debug, Default)]
pub(super) struct Claim {
    pub name: Name,
    pub own: Option<u32>,
    pub world_size: Option<u64>,
    /// A time within the recording, on a clock that the files of a directory share (ns).
    pub time_ns: Option<i64>,
    /// Parts of the file, each a rank, by process label; `None` without a label.
    pub parts: Vec<Option<Position>>,
}

impl Claim {
    /// Rank according to the file's content; ignored in a job of one rank.
    fn rank(&self) -> Option<u32> {
        self.own.filter(|_| self.world_size != Some(1))
    }

    fn world(&self) -> Option<u64> {
        self.world_size.filter(|size| (2..=u64::from(MOST_RANK)).contains(size))
    }
}

#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Decision {
    pub ranks: Vec<Vec<u32>>,
    /// Source of the ranks, as a sentence; `None` for a single unnamed rank.
    pub how: Option<String>,
    /// Contradictions and missing ranks, one sentence each.
    pub warnings: Vec<String>,
    pub missing: u32,
}

/// Positions from the names of files that are opened together. A number such as `tp8` or `_3` counts
/// only if it varies between files as ranks do.
fn positions(names: &[&Name]) -> Vec<Option<Position>> {
    let strong = |name: &Name| name.position.filter(|_| !name.is_weak);
    if names.iter().any(|name| strong(name).is_some()) {
        return names.iter().map(|name| name.position).collect();
    }
    let distinct = |values: &[Option<u32>]| values.iter().flatten().copied().collect::<BTreeSet<u32>>();
    let weak: BTreeSet<Position> = names.iter().filter_map(|name| name.position).collect();
    if weak.len() > 1
        && position::ranks(&weak.iter().copied().collect::<Vec<_>>())
            .is_some_and(|ranks| ranks.contains(&0))
    {
        return names.iter().map(|name| name.position).collect();
    }
    let numbers: Vec<Option<u32>> = names.iter().map(|name| name.last_number).collect();
    let values = distinct(&numbers);
    let count = values.len() as u32;
    let (least, most) = (values.first().copied().unwrap_or(0), values.last().copied().unwrap_or(0));
    // larger numbers are process ids or dates
    let fits = if names.iter().any(|name| name.is_process) {
        (least, most) == (0, count.saturating_sub(1))
    } else {
        most <= 4 * count + 64
    };
    // accepts `trace0`, `trace1`, but not `b200`, `h100` or `oslo_3`, `frankfurt_7`
    let numbered = || names.iter().filter(|name| name.last_number.is_some());
    let is_alone = |name: &&&Name| numbered().filter(|other| other.rest == name.rest).count() < 2;
    let is_odd = numbered().any(|name| is_alone(&name));
    if count < 2 || !fits || is_odd {
        return vec![None; names.len()];
    }
    numbers.into_iter().map(|number| number.map(Position::of_rank)).collect()
}

/// True if the labelled parts of a file are ranks that other files also have.
pub(super) fn is_merged_of(merged: &Claim, others: &[Claim]) -> bool {
    let Some(labels) = merged.parts.iter().copied().collect::<Option<Vec<Position>>>() else {
        return false;
    };
    let Some(ranks) = position::ranks(&labels) else { return false };
    let of_others = decide(others);
    let is_known = of_others.how.as_deref().is_some_and(|how| !how.starts_with("ranks from order"));
    is_known && of_others.ranks.iter().flatten().any(|rank| ranks.contains(rank))
}

pub(super) fn decide(claims: &[Claim]) -> Decision {
    let parts: Vec<Option<Position>> =
        claims.iter().flat_map(|claim| claim.parts.iter().copied()).collect();
    let several_parts = claims.iter().any(|claim| claim.parts.len() > 1);
    let mut decision = if several_parts { by_parts(claims, &parts) } else { by_files(claims, &parts) };
    missing(claims, &mut decision);
    decision
}

/// Numbers ranks if a file contains several.
fn by_parts(claims: &[Claim], parts: &[Option<Position>]) -> Decision {
    let labels: Option<Vec<Position>> = parts.iter().copied().collect();
    let labelled = labels.and_then(|labels| distinct(position::ranks(&labels)?));
    let how = match labelled {
        Some(_) => "ranks from labels or communicators of processes",
        None if claims.len() == 1 => "ranks from order: each device of each process is one",
        None => "ranks from order: each device of each process is one, counted from file to file",
    };
    let mut numbers = labelled.unwrap_or_else(|| (0..parts.len() as u32).collect()).into_iter();
    let ranks = claims.iter().map(|claim| numbers.by_ref().take(claim.parts.len()).collect()).collect();
    Decision { ranks, how: Some(how.into()), warnings: Vec::new(), missing: 0 }
}

/// Numbers ranks if each file is one.
fn by_files(claims: &[Claim], labels: &[Option<Position>]) -> Decision {
    let names: Vec<&Name> = claims.iter().map(|claim| &claim.name).collect();
    let positions = positions(&names);
    let own: Vec<Option<u32>> = claims.iter().map(Claim::rank).collect();
    let of_positions = |positions: &[Option<Position>]| {
        let known: Vec<Position> = positions.iter().flatten().copied().collect();
        let mut ranks = position::ranks(&known)?.into_iter();
        Some(positions.iter().map(|position| position.and_then(|_| ranks.next())).collect::<Vec<_>>())
    };
    let all =
        |ranks: Vec<Option<u32>>| ranks.into_iter().collect::<Option<Vec<u32>>>().and_then(distinct);
    let labelled = of_positions(labels).unwrap_or_else(|| vec![None; claims.len()]);
    let named = of_positions(&positions).unwrap_or_else(|| vec![None; claims.len()]);
    let filled = |ranks: &[Option<u32>]| -> Vec<Option<u32>> {
        ranks.iter().zip(&named).map(|(rank, named)| rank.or(*named)).collect()
    };
    let is_any = |ranks: &[Option<u32>]| ranks.iter().any(Option::is_some);
    let mut warnings = Vec::new();
    let (ranks, how) = if let Some(ranks) = all(own.clone()) {
        (ranks, "ranks from distributedInfo")
    } else if let Some(ranks) = all(labelled.clone()) {
        (ranks, "ranks from labels or communicators of processes")
    } else if let Some(ranks) = Some(filled(&own)).filter(|_| is_any(&own)).and_then(&all) {
        (ranks, "ranks from distributedInfo, and from file names where a file has none")
    } else if let Some(ranks) = all(named.clone()) {
        (ranks, "ranks from file names")
    } else {
        ((0..claims.len() as u32).collect(), "ranks from order")
    };
    if how == "ranks from order" && claims.len() > 1 {
        warnings.push("neither the files nor their names tell the ranks apart; ranks are numbered in order of the files".into());
    }
    let file = |at: usize| claims[at].name.text.as_str();
    let differing: Vec<usize> = (0..claims.len())
        .filter(|at| !names[*at].is_process && named[*at].is_some_and(|named| named != ranks[*at]))
        .filter(|at| names[*at].position.is_some())
        .collect();
    for at in differing.iter().take(MOST_NAMED) {
        let named = named[*at].unwrap_or_default();
        warnings.push(format!(
            "{}: the name says rank {named}, the file rank {}; taken as rank {}",
            file(*at),
            ranks[*at],
            ranks[*at]
        ));
    }
    if differing.len() > MOST_NAMED {
        warnings.push(format!(
            "{} more files say another rank than their names",
            differing.len() - MOST_NAMED
        ));
    }
    if how.starts_with("ranks from file") || how.starts_with("ranks from order") {
        let mut of_rank: BTreeMap<u32, Vec<&str>> = BTreeMap::new();
        for (at, rank) in own.iter().enumerate() {
            of_rank.entry(rank.unwrap_or(u32::MAX)).or_default().push(file(at));
        }
        of_rank.remove(&u32::MAX);
        let same = of_rank.into_iter().find(|(_, files)| files.len() > 1);
        if let Some((rank, files)) = same {
            let named: Vec<&str> = files.iter().take(MOST_NAMED).copied().collect();
            warnings.push(format!(
                "{} files say in distributedInfo that they are rank {rank} ({}); {how}",
                files.len(),
                named.join(", ")
            ));
        }
    }
    let is_plain = claims.len() == 1 && how.starts_with("ranks from order");
    Decision {
        ranks: ranks.into_iter().map(|rank| vec![rank]).collect(),
        how: (!is_plain).then(|| how.into()),
        warnings,
        missing: 0,
    }
}

/// Returns the ranks if they are unique.
fn distinct(ranks: Vec<u32>) -> Option<Vec<u32>> {
    let different: BTreeSet<u32> = ranks.iter().copied().collect();
    (different.len() == ranks.len()).then_some(ranks)
}

fn missing(claims: &[Claim], decision: &mut Decision) {
    let here: BTreeSet<u32> = decision.ranks.iter().flatten().copied().collect();
    let Some(last) = here.last().copied().filter(|_| here.len() > 1) else { return };
    let world = claims.iter().filter_map(Claim::world).max().unwrap_or(0);
    decision.missing = (world as u32).saturating_sub(here.len() as u32);
    if world > 0 && world < here.len() as u64 {
        decision
            .warnings
            .push(format!("{} ranks here, but the files say that the job has {world}", here.len()));
    }
    let size = (world as u32).max(last + 1);
    let gaps = (0..size).filter(|rank| !here.contains(rank));
    let mut runs: Vec<(u32, u32)> = Vec::new();
    for rank in gaps {
        match runs.last_mut() {
            Some((_, end)) if *end + 1 == rank => *end = rank,
            _ => runs.push((rank, rank)),
        }
    }
    if runs.is_empty() {
        return;
    }
    let run = |(start, end): &(u32, u32)| {
        if start == end { start.to_string() } else { format!("{start}-{end}") }
    };
    let mut named: Vec<String> = runs.iter().take(8).map(run).collect();
    if runs.len() > 8 {
        named.push("...".into());
    }
    decision.warnings.push(format!(
        "{} of {size} ranks here; no trace of rank{} {}",
        here.len(),
        if size as usize - here.len() == 1 { "" } else { "s" },
        named.join(", ")
    ));
}
