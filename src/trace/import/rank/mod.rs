//! Rank numbers of files, processes and devices, for all formats.
//!
//! In order of priority, ranks come from the trace content (`distributedInfo`, process labels), the file names,
//! and the order of the files. A [`Position`] is what a name or label says (`rank3`, `dp0_tp1`, `TP-1`).
//! [`choose`] separates several recordings of the same ranks; [`decide`] numbers the ranks of one recording.

mod engine;
mod name;
mod recording;

use std::collections::{BTreeMap, BTreeSet};

use base::error::{Error, Result};
use base::text::runs;

pub(super) use engine::Engines;
pub(super) use name::{Name, label};
pub(super) use recording::{RecordingChoice, choose};

const MOST_NAMED: usize = 3;

/// Time between the recordings of ranks (ns) at which they may be of several jobs: clocks of machines differ by less
/// than minutes, and clocks that count from different zeros by years.
const FAR_APART: std::ops::Range<i64> = 600_000_000_000..365 * 24 * 3_600_000_000_000;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct RankClaim {
    pub name: Name,
    pub own: Option<u32>,
    pub world_size: Option<u64>,
    /// A time within the recording, on a clock that the files of a directory share (ns).
    pub time_ns: Option<i64>,
    /// Parts of the file, each a rank, by process label; `None` without a label.
    pub parts: Vec<Option<Position>>,
}

impl RankClaim {
    /// Rank according to the file's content; ignored in a job of one rank.
    pub(super) fn rank(&self) -> Option<u32> {
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
        && ranks_at(&weak.iter().copied().collect::<Vec<_>>()).is_some_and(|ranks| ranks.contains(&0))
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
pub(super) fn is_merged_of(merged: &RankClaim, others: &[RankClaim]) -> bool {
    let Some(labels) = merged.parts.iter().copied().collect::<Option<Vec<Position>>>() else {
        return false;
    };
    let Some(ranks) = ranks_at(&labels) else { return false };
    let of_others = decide(others);
    let is_known = of_others.how.as_deref().is_some_and(|how| !how.starts_with(BY_ORDER));
    is_known && of_others.ranks.iter().flatten().any(|rank| ranks.contains(rank))
}

/// Refuses files that name different numbers of ranks: leftovers of another job.
pub(super) fn require_one_job(claims: &[RankClaim]) -> Result<()> {
    let mut sizes = claims.iter().filter_map(|claim| Some((claim.world()?, claim.name.text.as_str())));
    let Some((size, first)) = sizes.next() else { return Ok(()) };
    match sizes.find(|(other, _)| *other != size) {
        None => Ok(()),
        Some((other, file)) => Err(Error::input_help(
            format!("traces of several jobs: {first} is of {size} ranks, {file} of {other}"),
            "open a directory with the traces of one job",
        )),
    }
}

/// Warning about ranks that were recorded at very different times.
pub(super) fn far_apart(claims: &[RankClaim]) -> Option<String> {
    let times = claims.iter().filter_map(|claim| Some((claim.time_ns?, claim.name.text.as_str())));
    let (first, last) = (times.clone().min()?, times.max()?);
    let apart = last.0.saturating_sub(first.0);
    FAR_APART.contains(&apart).then(|| {
        format!(
            "{} was recorded {:.0} minutes after {}: unless their clocks differ, they belong to different jobs, and \
             waiting times between them are meaningless",
            last.1,
            apart as f64 / 60e9,
            first.1
        )
    })
}

pub(super) fn decide(claims: &[RankClaim]) -> Decision {
    let parts: Vec<Option<Position>> =
        claims.iter().flat_map(|claim| claim.parts.iter().copied()).collect();
    let several_parts = claims.iter().any(|claim| claim.parts.len() > 1);
    let mut decision = if several_parts { by_parts(claims, &parts) } else { by_files(claims, &parts) };
    missing(claims, &mut decision);
    decision.warnings.extend(far_apart(claims));
    decision
}

/// True if neither contents nor names say which ranks the files are, by the source of the ranks.
pub(super) fn is_of_order(how: Option<&str>) -> bool {
    how.is_none_or(|how| how.starts_with(BY_ORDER) || how.contains("in file order"))
}

/// Source of ranks that nothing names.
const BY_ORDER: &str = "ranks from order";

/// Numbers ranks if a file contains several.
fn by_parts(claims: &[RankClaim], parts: &[Option<Position>]) -> Decision {
    let labels: Option<Vec<Position>> = parts.iter().copied().collect();
    let labelled = labels.and_then(|labels| distinct(ranks_at(&labels)?));
    let how = match labelled {
        Some(_) => "ranks from labels or communicators of processes",
        None if claims.len() == 1 => "ranks numbered in file order, one per device and process",
        None => "ranks numbered in file order, one per device and process across all files",
    };
    let mut numbers = labelled.unwrap_or_else(|| (0..parts.len() as u32).collect()).into_iter();
    let ranks = claims.iter().map(|claim| numbers.by_ref().take(claim.parts.len()).collect()).collect();
    Decision { ranks, how: Some(how.into()), warnings: Vec::new(), missing: 0 }
}

/// Numbers ranks if each file is one.
fn by_files(claims: &[RankClaim], labels: &[Option<Position>]) -> Decision {
    let names: Vec<&Name> = claims.iter().map(|claim| &claim.name).collect();
    let positions = positions(&names);
    let own: Vec<Option<u32>> = claims.iter().map(RankClaim::rank).collect();
    let of_positions = |positions: &[Option<Position>]| {
        let known: Vec<Position> = positions.iter().flatten().copied().collect();
        let mut ranks = ranks_at(&known)?.into_iter();
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
        ((0..claims.len() as u32).collect(), BY_ORDER)
    };
    if how == BY_ORDER && claims.len() > 1 {
        warnings.push(
            "neither the files nor their names contain rank numbers; ranks are numbered in file order"
                .into(),
        );
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
    if how.starts_with("ranks from file") || how.starts_with(BY_ORDER) {
        let mut of_rank: BTreeMap<u32, Vec<&str>> = BTreeMap::new();
        for (at, rank) in own.iter().enumerate().filter_map(|(at, rank)| Some((at, (*rank)?))) {
            of_rank.entry(rank).or_default().push(file(at));
        }
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
    let is_plain = claims.len() == 1 && how.starts_with(BY_ORDER);
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

fn missing(claims: &[RankClaim], decision: &mut Decision) {
    let here: BTreeSet<u32> = decision.ranks.iter().flatten().copied().collect();
    let Some(last) = here.last().copied().filter(|_| here.len() > 1) else { return };
    let world = claims.iter().filter_map(RankClaim::world).max().unwrap_or(0);
    decision.missing = (world as u32).saturating_sub(here.len() as u32);
    if world > 0 && world < here.len() as u64 {
        decision
            .warnings
            .push(format!("{} ranks here, but the files say that the job has {world}", here.len()));
    }
    let size = (world as u32).max(last + 1);
    let gaps: Vec<u32> = (0..size).filter(|rank| !here.contains(rank)).collect();
    if gaps.is_empty() {
        return;
    }
    let mut named = runs(&gaps, "", "-");
    if named.len() > 8 {
        named.truncate(8);
        named.push("...".into());
    }
    decision.warnings.push(format!(
        "{} of {size} ranks here; no trace of rank{} {}",
        here.len(),
        if gaps.len() == 1 { "" } else { "s" },
        named.join(", ")
    ));
}

/// Larger numbers are time stamps or damage.
pub(in crate::import) const MOST_RANK: u32 = u16::MAX as u32;

/// Axis along which a job numbers its ranks, outermost first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Dimension {
    Node,
    Dp,
    Pp,
    Cp,
    Tp,
    Ep,
    /// Device or rank within a node.
    Local,
    Rank,
}

impl Dimension {
    const COUNT: usize = 8;

    /// Dimension of a word before a number, in lower case; `before` is the word before it.
    pub(super) fn new(word: &str, before: Option<&str>) -> Option<Self> {
        Some(match (before, word) {
            (Some("tp" | "tensor"), "rank") | (_, "tp" | "tprank") => Self::Tp,
            (Some("dp" | "data"), "rank") | (_, "dp" | "dprank") => Self::Dp,
            (Some("pp" | "pipeline"), "rank") | (_, "pp" | "pprank" | "stage") => Self::Pp,
            (Some("ep" | "expert"), "rank") | (_, "ep" | "eprank") => Self::Ep,
            (Some("cp" | "pcp" | "context"), "rank") | (_, "cp" | "pcp") => Self::Cp,
            (Some("node"), "rank") | (_, "node" | "noderank") => Self::Node,
            (Some("local"), "rank") | (_, "localrank" | "gpu" | "device" | "cuda") => Self::Local,
            (_, "rank" | "worker" | "globalrank" | "worldrank" | "procid") => Self::Rank,
            _ => return None,
        })
    }

    /// True for axes that also express the size of a job: `tp8`.
    pub(super) fn is_parallel(self) -> bool {
        matches!(self, Self::Dp | Self::Pp | Self::Cp | Self::Tp | Self::Ep)
    }
}

/// Coordinates of a rank; at least one is known.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(in crate::import) struct Position([Option<u32>; Dimension::COUNT]);

impl Position {
    pub(in crate::import) fn of_rank(rank: u32) -> Self {
        let mut position = Self::default();
        position.set(Dimension::Rank, rank);
        position
    }

    pub(super) fn set(&mut self, dimension: Dimension, at: u32) {
        self.0[dimension as usize] = Some(at);
    }

    pub(super) fn get(&self, dimension: Dimension) -> Option<u32> {
        self.0[dimension as usize]
    }

    pub(super) fn known(&self) -> usize {
        self.0.iter().flatten().count()
    }
}

/// Sets of dimensions that may number the ranks, most likely first. A name may have redundant
/// dimensions: SGLang's DP attention gives each TP rank a DP rank, and vLLM's EP rank follows from DP
/// and TP.
const NUMBERINGS: [&[Dimension]; 14] = {
    use Dimension::{Cp, Dp, Ep, Local, Node, Pp, Rank, Tp};
    [
        &[Rank],
        &[Node, Rank],
        &[Dp, Rank],
        &[Tp],
        &[Pp, Tp],
        &[Dp, Pp, Tp],
        &[Dp, Pp, Cp, Tp],
        &[Pp],
        &[Dp],
        &[Dp, Pp],
        &[Ep],
        &[Dp, Pp, Cp, Tp, Ep],
        &[Local],
        &[Node, Local],
    ]
};

/// Rank at each position, from the first numbering that distinguishes all positions; `None` if there is
/// none.
pub(super) fn ranks_at(positions: &[Position]) -> Option<Vec<u32>> {
    let distinct: BTreeSet<Position> = positions.iter().copied().collect();
    let (numbering, number) = NUMBERINGS.iter().find_map(|numbering| {
        let number = number(&distinct, numbering)?;
        Some((numbering, number))
    })?;
    let key = |position: &Position| coordinates(position, numbering);
    positions.iter().map(|position| number.get(&key(position)).copied()).collect()
}

fn coordinates(position: &Position, numbering: &[Dimension]) -> Vec<u32> {
    numbering.iter().map(|dimension| position.get(*dimension).unwrap_or(0)).collect()
}

/// Ranks by coordinates, with the last dimension varying fastest; `None` if two positions coincide.
fn number(distinct: &BTreeSet<Position>, numbering: &[Dimension]) -> Option<BTreeMap<Vec<u32>, u32>> {
    // the innermost dimension is required; missing outer ones are 0
    let innermost = numbering.last()?;
    if distinct.iter().any(|position| position.get(*innermost).is_none()) {
        return None;
    }
    let keys: BTreeSet<Vec<u32>> = distinct.iter().map(|p| coordinates(p, numbering)).collect();
    if keys.len() < distinct.len() {
        return None;
    }
    let values = |at: usize| keys.iter().map(|key| key[at]).collect::<BTreeSet<u32>>();
    // nodes have cluster-wide numbers, so use their order only
    let axes: Vec<(BTreeSet<u32>, bool)> =
        numbering.iter().enumerate().map(|(at, d)| (values(at), *d == Dimension::Node)).collect();
    let rank = |key: &Vec<u32>| {
        key.iter().zip(&axes).try_fold(0u32, |rank, (value, (values, is_node))| {
            let most = values.last().copied().unwrap_or(0);
            let (at, size) = match is_node {
                true => (values.range(..value).count() as u32, values.len() as u32),
                false => (*value, most.checked_add(1)?),
            };
            rank.checked_mul(size)?.checked_add(at).filter(|rank| *rank <= MOST_RANK)
        })
    };
    keys.iter().map(|key| Some((key.clone(), rank(key)?))).collect()
}

#[cfg(test)]
mod tests {
    //! Ranks and recordings by names and claims.

    use super::*;
    use base::error::Error;

    fn named(names: &[&str]) -> Vec<RankClaim> {
        let claim = |name: &&str| RankClaim {
            name: Name::parse(name),
            parts: vec![None],
            ..RankClaim::default()
        };
        names.iter().map(claim).collect()
    }

    fn with_own(names: &[(&str, u32)], world_size: u64) -> Vec<RankClaim> {
        let claim = |(name, own): &(&str, u32)| RankClaim {
            name: Name::parse(name),
            own: Some(*own),
            world_size: Some(world_size),
            parts: vec![None],
            ..RankClaim::default()
        };
        names.iter().map(claim).collect()
    }

    fn ranks(claims: &[RankClaim]) -> (Vec<u32>, String) {
        let decision = decide(claims);
        (decision.ranks.concat(), decision.how.unwrap_or_default())
    }

    fn warned(claims: &[RankClaim], words: &str) -> bool {
        decide(claims).warnings.iter().any(|warning| warning.contains(words))
    }

    /// Names of the chosen recording's files, and the note.
    fn chosen(claims: &[RankClaim], wanted: Option<&str>) -> (Vec<String>, String) {
        let chosen = choose(claims, wanted).unwrap();
        (chosen.files.iter().map(|at| claims[*at].name.text.clone()).collect(), chosen.notes.join("; "))
    }

    #[test]
    fn names_give_ranks_where_they_differ_as_ranks_do() {
        for (names, expected, how) in [
            (
                &["rank_1.json", "rank_0.json", "rank_10.json"][..],
                &[1, 0, 10][..],
                "ranks from file names",
            ),
            (&["a_1.json", "a_0.json"], &[1, 0], "ranks from file names"),
            (&["p-TP-0.json", "p-TP-1.json"], &[0, 1], "ranks from file names"),
            (&["tp0.json", "tp1.json"], &[0, 1], "ranks from file names"),
            (&["h_71.1694128201501.json", "h_72.1694128201502.json"], &[0, 1], "ranks from order"),
            (&["h_0.1694128201501.json", "h_1.1694128201502.json"], &[0, 1], "ranks from file names"),
            (&["trace_48213.json", "trace_48214.json"], &[0, 1], "ranks from order"),
            (&["b200.json", "h100.json"], &[0, 1], "ranks from order"),
            (&["llama_tp8.json", "qwen_tp8.json"], &[0, 1], "ranks from order"),
            (&["frankfurt_3.json", "oslo_7.json"], &[0, 1], "ranks from order"),
            (&["frankfurt_3.json", "frankfurt_7.json"], &[3, 7], "ranks from file names"),
            (&["report1.sqlite", "report2.sqlite"], &[0, 1], "ranks from order"),
            (&["report_rank1.sqlite", "report_rank0.sqlite"], &[1, 0], "ranks from file names"),
            (&["nodeb_rank12.json", "nodea_rank4.json"], &[12, 4], "ranks from file names"),
            (&["rank_1/trace.json", "rank_0/trace.json"], &[1, 0], "ranks from file names"),
            (&["1/trace.json", "0/trace.json"], &[1, 0], "ranks from file names"),
            (
                &["x-TP-0-DP-1.json", "x-TP-1-DP-0.json", "x-TP-0-DP-0.json", "x-TP-1-DP-1.json"],
                &[2, 1, 0, 3],
                "ranks from file names",
            ),
            (&["b200_tp8.json"], &[0], ""),
            (&["rank3.json"], &[3], "ranks from file names"),
        ] {
            let (ranks, found) = ranks(&named(names));
            assert_eq!(ranks, expected, "{names:?}: {found}");
            assert!(found.starts_with(how), "{names:?}: {found}");
        }
    }

    #[test]
    fn the_files_own_words_win_and_contradictions_are_named() {
        let claims = with_own(&[("rank_1.json", 3), ("rank_2.json", 2)], 4);
        assert_eq!(ranks(&claims), (vec![3, 2], "ranks from distributedInfo".into()));
        assert!(warned(&claims, "rank_1.json: the name says rank 1, the file rank 3; taken as rank 3"));
        assert!(warned(&claims, "2 of 4 ranks here; no trace of ranks 0-1"));
        assert_eq!(decide(&claims).missing, 2);

        let claims = with_own(&[("rank_1.json", 0), ("rank_0.json", 0)], 2);
        assert_eq!(ranks(&claims), (vec![1, 0], "ranks from file names".into()));
        assert!(warned(&claims, "2 files say in distributedInfo that they are rank 0"));

        // every engine of a data-parallel pair is rank 0 of 1
        assert_eq!(ranks(&with_own(&[("dp1.json", 0), ("dp0.json", 0)], 1)).0, [1, 0]);

        let mut claims = named(&["a.json", "b.json"]);
        for (claim, text) in claims.iter_mut().zip(["[TP01] 0", "[TP00] 0"]) {
            claim.parts = vec![label(text)];
        }
        assert_eq!(
            ranks(&claims),
            (vec![1, 0], "ranks from labels or communicators of processes".into())
        );

        let mut claims = with_own(&[("rank_0.json", 0), ("rank_5.json", 0)], 8);
        claims[1].own = None;
        assert_eq!(ranks(&claims).0, [0, 5]);
        assert!(warned(&claims, "2 of 8 ranks here; no trace of ranks 1-4, 6-7"));
    }

    #[test]
    fn parts_of_merged_files_are_ranks_by_their_labels_or_in_order() {
        let mut claims = named(&["merged.json"]);
        claims[0].parts = vec![label("[TP01] 0"), label("[TP00] 0")];
        assert_eq!(decide(&claims).ranks, [[1, 0]]);
        claims[0].parts = vec![None; 3];
        claims.extend(named(&["other.json"]));
        assert_eq!(decide(&claims).ranks, [vec![0, 1, 2], vec![3]]);
    }

    #[test]
    fn recordings_are_told_apart_by_step_stage_time_and_name() {
        let steps = named(&[
            "worker0_step_12.16941282015012.pt.trace.json",
            "worker0_step_24.16941282015024.pt.trace.json",
            "worker1_step_12.16941282015112.pt.trace.json",
            "worker1_step_24.16941282015124.pt.trace.json",
        ]);
        let (files, note) = chosen(&steps, None);
        assert_eq!(files, [steps[1].name.text.as_str(), &steps[3].name.text]);
        assert!(
            note.starts_with(
                "2 recordings of the same ranks; opened 'step_24' (2 ranks, the newest that has all"
            ),
            "{note}"
        );
        assert!(note.ends_with("chooses another: 'step_12' (2 ranks)"), "{note}");
        assert_eq!(
            chosen(&steps, Some("STEP_12")).0,
            [steps[0].name.text.as_str(), &steps[2].name.text]
        );
        let error = choose(&steps, Some("step_1")).unwrap_err();
        assert_eq!(error.exit_code(), 2);
        let Error::Input { message, help } = error else { panic!("an input error") };
        assert_eq!(message, "no recording 'step_1'");
        assert!(help.unwrap().contains("'step_24' (2 ranks), 'step_12' (2 ranks)"));

        // the newest lacks a rank
        assert_eq!(chosen(&steps[..3], None).0, [steps[0].name.text.as_str(), &steps[2].name.text]);

        let mut stages = named(&[
            "7-TP-0-DECODE.json",
            "7-TP-0-EXTEND.json",
            "7-TP-1-DECODE.json",
            "7-TP-1-EXTEND.json",
        ]);
        for (claim, time) in stages.iter_mut().zip([5, 9, 6, 8]) {
            claim.time_ns = Some(time);
        }
        assert_eq!(
            chosen(&stages, None).0,
            ["7-TP-0-EXTEND.json", "7-TP-1-EXTEND.json"],
            "the later in time"
        );
        assert_eq!(chosen(&stages, Some("decode")).0, ["7-TP-0-DECODE.json", "7-TP-1-DECODE.json"]);

        let profiles = named(&["41-TP-0.json", "41-TP-1.json", "52-TP-0.json", "52-TP-1.json"]);
        assert_eq!(chosen(&profiles, None).0, ["52-TP-0.json", "52-TP-1.json"]);
        assert_eq!(chosen(&profiles, Some("41")).0, ["41-TP-0.json", "41-TP-1.json"]);

        let one = named(&["rank0.json", "rank1.json", "nodeb_rank2.json"]);
        assert_eq!(
            chosen(&one, None),
            (vec!["rank0.json".into(), "rank1.json".into(), "nodeb_rank2.json".into()], String::new())
        );
        assert!(choose(&one, Some("x")).unwrap().found(Some("x")).is_err());
    }

    #[test]
    fn recordings_of_handlers_are_told_apart_by_the_nearest_time_stamps() {
        // two processes, each rank profiled twice; rank 1 lost its first trace
        let names = [
            ("a_71.1694128201000.json", 0),
            ("a_71.1694128901000.json", 0),
            ("a_72.1694128901900.json", 1),
        ];
        let (files, note) = chosen(&with_own(&names, 2), None);
        assert_eq!(files, ["a_71.1694128901000.json", "a_72.1694128901900.json"]);
        assert!(note.contains("'1694128201000' (1 rank)"), "{note}");
        // without ranks in the files, processes are ranks
        let names = [
            "a_71.100000000001.json",
            "a_72.100000000002.json",
            "a_71.100000000101.json",
            "a_72.100000000103.json",
        ];
        assert_eq!(chosen(&named(&names), None).0, names[2..]);
        // a front end's trace goes with the recording of its time
        let names = [
            "rank0.100000000001.json",
            "rank0.100000000101.json",
            "h.async_llm.100000000002.json",
            "h.async_llm.100000000102.json",
        ];
        assert_eq!(chosen(&named(&names), None).0, [names[1], names[3]]);
    }

    fn at(coordinates: &[(Dimension, u32)]) -> Position {
        let mut position = Position::default();
        coordinates.iter().for_each(|(dimension, at)| position.set(*dimension, *at));
        position
    }

    #[test]
    fn ranks_follow_from_the_fewest_dimensions_that_tell_positions_apart() {
        use Dimension::{Dp, Ep, Node, Pp, Rank, Tp};
        for (positions, expected) in [
            (vec![at(&[(Rank, 3), (Tp, 1)]), at(&[(Rank, 0), (Tp, 0)])], Some(vec![3, 0])),
            (
                vec![at(&[(Tp, 0), (Dp, 0)]), at(&[(Tp, 1), (Dp, 0)]), at(&[(Tp, 2), (Dp, 1)])],
                Some(vec![0, 1, 2]),
            ),
            (
                vec![
                    at(&[(Tp, 0), (Dp, 0)]),
                    at(&[(Tp, 1), (Dp, 0)]),
                    at(&[(Tp, 0), (Dp, 1)]),
                    at(&[(Tp, 1), (Dp, 1)]),
                ],
                Some(vec![0, 1, 2, 3]),
            ),
            (vec![at(&[(Tp, 1), (Pp, 1)]), at(&[(Tp, 1), (Pp, 0)])], Some(vec![3, 1])),
            (vec![at(&[(Node, 17), (Rank, 1)]), at(&[(Node, 4), (Rank, 1)])], Some(vec![3, 1])),
            (vec![at(&[(Ep, 5)]), at(&[(Ep, 6)])], Some(vec![5, 6])),
            (vec![at(&[(Dp, 2), (Tp, 5)]), at(&[(Dp, 0), (Tp, 1)])], Some(vec![5, 1])),
            (vec![at(&[(Dp, 2)]), at(&[(Dp, 0)])], Some(vec![2, 0])),
            (vec![at(&[(Dp, 2)]), at(&[(Tp, 2)])], None),
            (vec![at(&[(Dp, 60_000), (Tp, 2)]), at(&[(Dp, 1), (Tp, 2)]), at(&[(Dp, 1), (Tp, 0)])], None),
        ] {
            assert_eq!(ranks_at(&positions), expected, "{positions:?}");
        }
    }
}
