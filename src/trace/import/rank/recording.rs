//! Recordings: several traces of the same rank in one directory, distinguished by step, stage and time
//! stamp.

use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use super::name::Name;
use super::{Position, RankClaim};
use base::error::{Error, Result};
use base::text::{counted, natural_order};

const MOST_NAMED: usize = 8;

#[derive(Debug, Default)]
pub(in crate::import) struct RecordingChoice {
    /// Indices into the claims, ascending.
    pub files: Vec<usize>,
    pub notes: Vec<String>,
    /// Name of the recording, if it is the only one.
    only: Option<String>,
}

impl RecordingChoice {
    /// Checks the requested name if there is only one recording.
    pub(in crate::import) fn found(self, wanted: Option<&str>) -> Result<Self> {
        match (wanted, &self.only) {
            (Some(wanted), Some(only)) if !wanted.eq_ignore_ascii_case(only) => Err(Error::input_help(
                format!("no recording '{wanted}': all files belong to one recording"),
                "leave out --recording",
            )),
            _ => Ok(self),
        }
    }

    /// True if the recording was chosen from several, so no further search is needed.
    pub(in crate::import) fn is_one_of_several(&self) -> bool {
        self.only.is_none()
    }
}

/// Rank of a file as far as known: from its content, its name, or else its origin.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Identity {
    content: Option<u32>,
    position: Option<Position>,
    origin: Option<String>,
}

struct Recording {
    name: String,
    files: Vec<usize>,
}

/// Chooses the recording with this name, or else the newest complete one.
pub(in crate::import) fn choose(claims: &[RankClaim], wanted: Option<&str>) -> Result<RecordingChoice> {
    let names: Vec<&Name> = claims.iter().map(|claim| &claim.name).collect();
    let positions = super::positions(&names);
    let is_known = |at: usize| claims[at].rank().is_some() || positions[at].is_some();
    let (mut of_ranks, mut others): (Vec<usize>, Vec<usize>) =
        (0..claims.len()).partition(|at| is_known(*at));
    if of_ranks.is_empty() {
        std::mem::swap(&mut of_ranks, &mut others);
    }
    let identities: Vec<Identity> = (0..claims.len())
        .map(|at| Identity {
            content: claims[at].rank(),
            position: positions[at],
            origin: (!is_known(at)).then(|| claims[at].name.origin()),
        })
        .collect();
    let all: BTreeSet<&Identity> = of_ranks.iter().map(|at| &identities[*at]).collect();
    let mut recordings = recordings(claims, &identities, &of_ranks);
    if let [only] = &mut recordings[..] {
        let only = Some(std::mem::take(&mut only.name));
        return Ok(RecordingChoice {
            files: (0..claims.len()).collect(),
            only,
            ..RecordingChoice::default()
        });
    }
    if wanted.is_none() && are_separate(claims, &recordings) {
        return Err(Error::input_help(
            format!(
                "{} traces of one rank with different names, not the ranks of one job",
                recordings.len()
            ),
            format!("open one file, or choose it with --recording: {}", list(&recordings)),
        ));
    }
    let world = claims.iter().filter_map(RankClaim::world).max().unwrap_or(0) as usize;
    let expected = all.len().max(world);
    let most = recordings.iter().map(|recording| recording.files.len()).max().unwrap_or(0);
    let at = match wanted {
        Some(wanted) => recordings
            .iter()
            .position(|recording| recording.name.eq_ignore_ascii_case(wanted))
            .ok_or_else(|| unknown(wanted, &recordings))?,
        None => recordings.iter().rposition(|recording| recording.files.len() == most).unwrap_or(0),
    };
    let recording = recordings.remove(at);
    let mut notes = Vec::new();
    let why = match (wanted, recording.files.len() >= expected) {
        (Some(_), _) => "asked for",
        (None, true) => "the newest that has all ranks",
        (None, false) => "the newest of those with most ranks; none has all",
    };
    notes.push(format!(
        "{} recordings of the same ranks; opened '{}' ({}, {why}); --recording chooses another: {}",
        recordings.len() + 1,
        recording.name,
        counted(recording.files.len(), "rank"),
        list(&recordings)
    ));
    // files of unknown rank: those closest in time to this recording; without times, all
    let nearest = |at: usize| {
        let gap = |of: &[usize]| {
            let own = stamp(&claims[at])?;
            of.iter().filter_map(|of| Some(own.abs_diff(stamp(&claims[*of])?))).min()
        };
        let other = recordings.iter().filter_map(|other| gap(&other.files)).min();
        gap(&recording.files).zip(other).is_none_or(|(own, other)| own <= other)
    };
    let mut files = recording.files.clone();
    files.extend(others.into_iter().filter(|at| nearest(*at)));
    files.sort_unstable();
    Ok(RecordingChoice { files, notes, only: None })
}

/// True if each recording is one file of the same directory, and nothing but words tells their names apart: a folder of
/// unrelated traces.
fn are_separate(claims: &[RankClaim], recordings: &[Recording]) -> bool {
    let files: Vec<&Name> = recordings
        .iter()
        .filter_map(|recording| <[usize; 1]>::try_from(&recording.files[..]).ok())
        .map(|[at]| &claims[at].name)
        .collect();
    let rests: BTreeSet<&str> = files.iter().map(|name| name.rest.as_str()).collect();
    let directories: BTreeSet<_> = files.iter().map(|name| Path::new(&name.text).parent()).collect();
    rests.len() == recordings.len()
        && directories.len() == 1
        && files.iter().all(|name| name.part.is_empty() && name.step.is_none() && name.stamp.is_none())
}

fn stamp(claim: &RankClaim) -> Option<u128> {
    claim.name.stamp.as_ref().map(|(stamp, _)| *stamp)
}

/// Time of a file's content; ordered like the time, and never negative.
fn content_time(claim: &RankClaim) -> Option<u128> {
    claim.time_ns.map(|ns| (i128::from(ns) - i128::from(i64::MIN)) as u128)
}

fn list(recordings: &[Recording]) -> String {
    let mut names: Vec<String> = recordings
        .iter()
        .rev()
        .take(MOST_NAMED)
        .map(|recording| format!("'{}' ({})", recording.name, counted(recording.files.len(), "rank")))
        .collect();
    if recordings.len() > MOST_NAMED {
        names.push(format!("{} more", recordings.len() - MOST_NAMED));
    }
    names.join(", ")
}

fn unknown(wanted: &str, recordings: &[Recording]) -> Error {
    Error::input_help(
        format!("no recording '{wanted}'"),
        format!("the recordings are, newest first: {}", list(recordings)),
    )
}

/// Recordings, oldest first. Each has at most one file per rank.
fn recordings(claims: &[RankClaim], identities: &[Identity], files: &[usize]) -> Vec<Recording> {
    let by_part = split_by(files, |at| claims[at].name.part.to_lowercase());
    let mut groups: Vec<Vec<usize>> = Vec::new();
    for group in by_part {
        if is_unique(&group, identities) {
            groups.push(group);
            continue;
        }
        let times = |time: &dyn Fn(&RankClaim) -> Option<u128>| {
            let times: Option<Vec<u128>> = group.iter().map(|at| time(&claims[*at])).collect();
            times.map(|times| by_time(&group, &times, identities))
        };
        let by_rest = || split_by(&group, |at| claims[at].name.rest.clone());
        // need as many names as the maximum number of files per rank
        let most = split_by(&group, |at| &identities[at]).iter().map(Vec::len).max().unwrap_or(0);
        let fits = |groups: &Vec<Vec<usize>>| {
            groups.len() == most && groups.iter().all(|group| is_unique(group, identities))
        };
        let found = times(&stamp).or_else(|| Some(by_rest()).filter(fits));
        let order: Vec<u128> = (0..group.len() as u128).collect();
        let found = found.or_else(|| times(&content_time));
        groups.extend(found.unwrap_or_else(|| by_time(&group, &order, identities)));
    }
    let all = |value: &dyn Fn(&Vec<usize>) -> Option<u128>| -> Option<Vec<u128>> {
        groups.iter().map(value).collect()
    };
    let latest = |group: &Vec<usize>| group.iter().map(|at| stamp(&claims[*at])).max().flatten();
    let step = |group: &Vec<usize>| group.first().and_then(|at| claims[*at].name.step).map(u128::from);
    let time = |group: &Vec<usize>| group.iter().filter_map(|at| content_time(&claims[*at])).max();
    let keys = all(&latest)
        .or_else(|| all(&step))
        .or_else(|| all(&time))
        .unwrap_or_else(|| vec![0; groups.len()]);
    let labels = labels(claims, &groups);
    let mut recordings: Vec<(u128, Recording)> = keys
        .into_iter()
        .zip(labels.into_iter().zip(groups))
        .map(|(key, (name, files))| (key, Recording { name, files }))
        .collect();
    let order = |a: &(u128, Recording), b: &(u128, Recording)| -> Ordering {
        a.0.cmp(&b.0).then_with(|| natural_order(&a.1.name, &b.1.name))
    };
    recordings.sort_by(order);
    recordings.into_iter().map(|(_, recording)| recording).collect()
}

fn split_by<K: Ord>(files: &[usize], key: impl Fn(usize) -> K) -> Vec<Vec<usize>> {
    let mut groups: BTreeMap<K, Vec<usize>> = BTreeMap::new();
    files.iter().for_each(|at| groups.entry(key(*at)).or_default().push(*at));
    groups.into_values().collect()
}

fn is_unique(files: &[usize], identities: &[Identity]) -> bool {
    files.iter().map(|at| &identities[*at]).collect::<BTreeSet<_>>().len() == files.len()
}

/// Splits files into recordings by time. If all ranks have equally many files, the n-th files of all
/// ranks form the n-th recording. Otherwise merges files that are adjacent in time, the closest first,
/// as long as no rank repeats.
fn by_time(files: &[usize], times: &[u128], identities: &[Identity]) -> Vec<Vec<usize>> {
    let mut sorted: Vec<(u128, usize)> = times.iter().copied().zip(files.iter().copied()).collect();
    sorted.sort_unstable();
    let mut of_rank: BTreeMap<&Identity, Vec<usize>> = BTreeMap::new();
    sorted.iter().for_each(|(_, at)| of_rank.entry(&identities[*at]).or_default().push(*at));
    let counts: BTreeSet<usize> = of_rank.values().map(Vec::len).collect();
    if let (1, Some(count)) = (counts.len(), counts.first()) {
        return (0..*count).map(|nth| of_rank.values().map(|files| files[nth]).collect()).collect();
    }
    let mut groups: Vec<(u128, u128, Vec<usize>)> =
        sorted.into_iter().map(|(time, at)| (time, time, vec![at])).collect();
    loop {
        let fits = |pair: &[(u128, u128, Vec<usize>)]| {
            is_unique(&[pair[0].2.as_slice(), pair[1].2.as_slice()].concat(), identities)
        };
        let nearest = groups
            .windows(2)
            .enumerate()
            .filter(|(_, pair)| fits(pair))
            .min_by_key(|(_, pair)| pair[1].0 - pair[0].1)
            .map(|(at, _)| at);
        let Some(at) = nearest else { break };
        let (_, end, more) = groups.remove(at + 1);
        groups[at].1 = end;
        groups[at].2.extend(more);
    }
    groups.into_iter().map(|(_, _, files)| files).collect()
}

/// Name of each group: its step or stage, the rest of its files' names, its first time stamp, or a
/// number; combinations if one is ambiguous.
fn labels(claims: &[RankClaim], groups: &[Vec<usize>]) -> Vec<String> {
    let shared = |group: &Vec<usize>, of: &dyn Fn(&Name) -> String| {
        let texts: BTreeSet<String> = group.iter().map(|at| of(&claims[*at].name)).collect();
        if texts.len() == 1 { texts.into_iter().next().unwrap_or_default() } else { String::new() }
    };
    let first_stamp = |group: &Vec<usize>| {
        let stamps = group.iter().filter_map(|at| claims[*at].name.stamp.clone());
        stamps.min().map(|(_, text)| text).unwrap_or_default()
    };
    let parts: Vec<[String; 3]> = groups
        .iter()
        .map(|group| {
            [
                shared(group, &|name| name.part.clone()),
                shared(group, &|name| name.rest.clone()),
                first_stamp(group),
            ]
        })
        .collect();
    let mut labels = vec![String::new(); groups.len()];
    let is_distinct = |labels: &[String]| {
        let distinct: BTreeSet<String> = labels.iter().map(|label| label.to_lowercase()).collect();
        distinct.len() == labels.len() && labels.iter().all(|label| !label.is_empty())
    };
    for which in 0..3 {
        if is_distinct(&labels) {
            break;
        }
        let texts: BTreeSet<&str> = parts.iter().map(|part| part[which].as_str()).collect();
        if texts.len() == 1 && groups.len() > 1 {
            continue;
        }
        for (label, part) in labels.iter_mut().zip(&parts) {
            let joint = if label.is_empty() || part[which].is_empty() { "" } else { "-" };
            *label = format!("{label}{joint}{}", part[which]);
        }
    }
    if !is_distinct(&labels) {
        for (number, label) in labels.iter_mut().enumerate() {
            let joint = if label.is_empty() { "" } else { "-" };
            *label = format!("{label}{joint}{}", number + 1);
        }
    }
    labels
}
