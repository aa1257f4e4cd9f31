//! Rank numbers of files, processes and devices, for all formats.
//!
//! In order of priority, ranks come from the trace content (`distributedInfo`, process labels), the file names,
//! and the order of the files. A [`Position`] is what a name or label says (`rank3`, `dp0_tp1`, `TP-1`).
//! [`choose`] separates several recordings of the same ranks; [`decide`] numbers the ranks of one recording.

mod engine;
mod name;
mod position;
mod recording;

use std::collections::{BTreeMap, BTreeSet};

use self::position::ranks_at;
use base::error::{Error, Result};
use base::text::runs;

pub(super) use engine::Engines;
pub(super) use name::{Name, label};
pub(super) use position::{MAX_RANK, Position};
pub(super) use recording::{RecordingChoice, choose};

/// Maximum number of files named in a warning.
const MAX_NAMED: usize = 3;

/// Time between the recordings of ranks (ns) at which they may be of several jobs: clocks of machines differ by less
/// than minutes, and clocks that count from different zeros by years.
const FAR_APART: std::ops::Range<i64> = 600_000_000_000..365 * 24 * 3_600_000_000_000;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct RankClaim {
    pub name: Name,
    /// Rank according to the file's content, as written there; see [`Self::rank`].
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
        self.world_size.filter(|size| (2..=u64::from(MAX_RANK)).contains(size))
    }
}

#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Decision {
    /// Ranks of each file's parts.
    pub ranks: Vec<Vec<u32>>,
    /// Source of the ranks, as reports print it; `None` for a single unnamed rank.
    pub source: Option<&'static str>,
    /// Contradictions and missing ranks, one sentence each.
    pub warnings: Vec<String>,
    /// Number of ranks without a trace.
    pub missing: u32,
}

/// Positions from the names of files that are opened together. A number such as `tp8` or `_3` counts
/// only if it varies between files as ranks do.
fn positions(names: &[&Name]) -> Vec<Option<Position>> {
    let strong = |name: &Name| name.position.filter(|_| !name.is_weak);
    if names.iter().any(|name| strong(name).is_some()) {
        return names.iter().map(|name| name.position).collect();
    }
    let weak: BTreeSet<Position> = names.iter().filter_map(|name| name.position).collect();
    if weak.len() > 1
        && ranks_at(&weak.iter().copied().collect::<Vec<_>>()).is_some_and(|ranks| ranks.contains(&0))
    {
        return names.iter().map(|name| name.position).collect();
    }
    let numbers: Vec<Option<u32>> = names.iter().map(|name| name.last_number).collect();
    let values: BTreeSet<u32> = numbers.iter().flatten().copied().collect();
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
    !is_of_order(of_others.source) && of_others.ranks.iter().flatten().any(|rank| ranks.contains(rank))
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
    add_missing_ranks(claims, &mut decision);
    decision.warnings.extend(far_apart(claims));
    decision
}

/// True if neither contents nor names say which ranks the files are, by the source of the ranks.
pub(super) fn is_of_order(source: Option<&str>) -> bool {
    source.is_none_or(|source| [BY_ORDER, BY_DEVICE, BY_DEVICE_OF_FILES].contains(&source))
}

const BY_LABEL: &str = "ranks from labels or communicators of processes";
const BY_NAME: &str = "ranks from file names";
const BY_ORDER: &str = "ranks from order";
const BY_DEVICE: &str = "ranks numbered in file order, one per device and process";
const BY_DEVICE_OF_FILES: &str =
    "ranks numbered in file order, one per device and process across all files";

/// Numbers ranks if a file contains several.
fn by_parts(claims: &[RankClaim], parts: &[Option<Position>]) -> Decision {
    let labels: Option<Vec<Position>> = parts.iter().copied().collect();
    let labelled = labels.and_then(|labels| distinct(ranks_at(&labels)?));
    let source = match labelled {
        Some(_) => BY_LABEL,
        None if claims.len() == 1 => BY_DEVICE,
        None => BY_DEVICE_OF_FILES,
    };
    let mut numbers = labelled.unwrap_or_else(|| (0..parts.len() as u32).collect()).into_iter();
    let ranks = claims.iter().map(|claim| numbers.by_ref().take(claim.parts.len()).collect()).collect();
    Decision { ranks, source: Some(source), warnings: Vec::new(), missing: 0 }
}

/// Numbers ranks if each file is one.
fn by_files(claims: &[RankClaim], labels: &[Option<Position>]) -> Decision {
    let names: Vec<&Name> = claims.iter().map(|claim| &claim.name).collect();
    let of_positions = |positions: &[Option<Position>]| -> Vec<Option<u32>> {
        let known: Vec<Position> = positions.iter().flatten().copied().collect();
        let Some(ranks) = ranks_at(&known) else { return vec![None; claims.len()] };
        let mut ranks = ranks.into_iter();
        positions.iter().map(|position| position.and_then(|_| ranks.next())).collect()
    };
    let own: Vec<Option<u32>> = claims.iter().map(RankClaim::rank).collect();
    let named = of_positions(&positions(&names));
    let filled: Vec<Option<u32>> = own.iter().zip(&named).map(|(own, named)| own.or(*named)).collect();
    let all = |ranks: &[Option<u32>]| distinct(ranks.iter().copied().collect::<Option<Vec<u32>>>()?);
    let (ranks, source) = if let Some(ranks) = all(&own) {
        (ranks, "ranks from distributedInfo")
    } else if let Some(ranks) = all(&of_positions(labels)) {
        (ranks, BY_LABEL)
    } else if own.iter().any(Option::is_some)
        && let Some(ranks) = all(&filled)
    {
        (ranks, "ranks from distributedInfo, and from file names where a file has none")
    } else if let Some(ranks) = all(&named) {
        (ranks, BY_NAME)
    } else {
        ((0..claims.len() as u32).collect(), BY_ORDER)
    };
    let mut warnings = Vec::new();
    if source == BY_ORDER && claims.len() > 1 {
        warnings.push(
            "neither the files nor their names contain rank numbers; ranks are numbered in file order"
                .into(),
        );
    }
    warnings.extend(misnamed_files(&names, &named, &ranks));
    if [BY_NAME, BY_ORDER].contains(&source) {
        warnings.extend(rank_of_several_files(claims, source));
    }
    let is_plain = claims.len() == 1 && source == BY_ORDER;
    Decision {
        ranks: ranks.into_iter().map(|rank| vec![rank]).collect(),
        source: (!is_plain).then_some(source),
        warnings,
        missing: 0,
    }
}

/// Warnings about files that get another rank than their names state.
fn misnamed_files(names: &[&Name], named: &[Option<u32>], ranks: &[u32]) -> Vec<String> {
    let files = names.iter().zip(named).zip(ranks);
    let differing: Vec<(&Name, u32, u32)> = files
        .filter_map(|((name, named), rank)| Some((*name, (*named)?, *rank)))
        .filter(|(name, named, rank)| named != rank && !name.is_process && name.position.is_some())
        .collect();
    let warning = |(name, named, rank): &(&Name, u32, u32)| {
        format!("{name}: the name says rank {named}, the file rank {rank}; taken as rank {rank}")
    };
    let mut warnings: Vec<String> = differing.iter().take(MAX_NAMED).map(warning).collect();
    if differing.len() > MAX_NAMED {
        let more = differing.len() - MAX_NAMED;
        warnings.push(format!("{more} more files say another rank than their names"));
    }
    warnings
}

/// Warning about the lowest rank that several files claim, and that `source` resolved.
fn rank_of_several_files(claims: &[RankClaim], source: &str) -> Option<String> {
    let mut files_of: BTreeMap<u32, Vec<&str>> = BTreeMap::new();
    for claim in claims {
        if let Some(rank) = claim.rank() {
            files_of.entry(rank).or_default().push(&claim.name.text);
        }
    }
    let (rank, files) = files_of.into_iter().find(|(_, files)| files.len() > 1)?;
    let named = files[..files.len().min(MAX_NAMED)].join(", ");
    Some(format!(
        "{} files say in distributedInfo that they are rank {rank} ({named}); {source}",
        files.len()
    ))
}

/// Returns the ranks if they are unique.
fn distinct(ranks: Vec<u32>) -> Option<Vec<u32>> {
    let different: BTreeSet<u32> = ranks.iter().copied().collect();
    (different.len() == ranks.len()).then_some(ranks)
}

/// Counts the ranks without a trace, and warns about them.
fn add_missing_ranks(claims: &[RankClaim], decision: &mut Decision) {
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

#[cfg(test)]
mod tests {
    use super::*;

    fn named(names: &[&str]) -> Vec<RankClaim> {
        let claim = |name: &&str| RankClaim {
            name: Name::parse(name),
            parts: vec![None],
            ..RankClaim::default()
        };
        names.iter().map(claim).collect()
    }

    pub(super) fn with_own(files: &[(&str, u32)], world_size: u64) -> Vec<RankClaim> {
        let mut claims = named(&files.iter().map(|(name, _)| *name).collect::<Vec<_>>());
        for (claim, (_, own)) in claims.iter_mut().zip(files) {
            (claim.own, claim.world_size) = (Some(*own), Some(world_size));
        }
        claims
    }

    fn ranks(claims: &[RankClaim]) -> (Vec<u32>, String) {
        let decision = decide(claims);
        (decision.ranks.concat(), decision.source.unwrap_or_default().to_owned())
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
        for (names, expected, source) in [
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
            assert!(found.starts_with(source), "{names:?}: {found}");
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
}
