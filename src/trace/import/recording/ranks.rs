//! Which recorded processes are ranks, and their order: the rank that a launcher gave each, else its rank in the
//! largest communicator, else its title, else host and process id.

use std::collections::{BTreeSet, HashMap};

use super::part::Part;
use base::natural::natural_order;

const LAUNCHERS: [&str; 5] = ["RANK", "OMPI_COMM_WORLD_RANK", "PMI_RANK", "PMIX_RANK", "SLURM_PROCID"];
/// Most processes that a rank can number.
const MOST: u32 = 1 << 20;

/// A process is beside the ranks if one that it started, or was started by, does this many times its GPU work.
const FAR_MORE: usize = 10;
/// Maximum distance of relatives: launchers and shells stand between an engine and its workers.
const MOST_ANCESTORS: usize = 32;

/// Removes processes that use a GPU beside the ranks, such as an engine's front end or a short probe: a parent or child
/// of a rank with far less GPU work, no communicator in common, and no launcher's rank of its own.
pub(super) fn take_beside(parts: &mut Vec<Part>) -> Vec<Part> {
    let teams = teams(parts);
    let parents = parents(parts);
    // GPU work and processes of each team
    let mut sizes = vec![(0, 0); parts.len()];
    for (part, team) in parts.iter().zip(&teams).filter(|(part, _)| !part.work.is_empty()) {
        sizes[*team].0 += part.work.len();
        sizes[*team].1 += 1;
    }
    let mut is_beside = vec![false; parts.len()];
    for one in 0..parts.len() {
        let mut at = one;
        for _ in 0..MOST_ANCESTORS {
            let Some(parent) = parents[at] else { break };
            for (small, large) in [(one, parent), (parent, one)] {
                let ((work, processes), (more, of)) = (sizes[teams[small]], sizes[teams[large]]);
                let is_far_less = work > 0 && more > 0 && FAR_MORE * work * of <= more * processes;
                if is_far_less && !has_own_rank(parts, &teams, small, teams[large]) {
                    is_beside[teams[small]] = true;
                }
            }
            at = parent;
        }
    }
    let mut taken = teams.iter().map(|team| is_beside[*team]);
    parts.extract_if(.., |part| taken.next().unwrap_or(false) && !part.work.is_empty()).collect()
}

/// Number of each part's team: the parts that share a communicator with it, directly or through others.
fn teams(parts: &[Part]) -> Vec<usize> {
    let mut teams: Vec<usize> = (0..parts.len()).collect();
    let mut first: HashMap<u64, usize> = HashMap::new();
    for (at, part) in parts.iter().enumerate() {
        for communicator in &part.communicators {
            let (from, to) = (teams[at], teams[*first.entry(communicator.id).or_insert(at)]);
            if from != to {
                teams.iter_mut().filter(|team| **team == from).for_each(|team| *team = to);
            }
        }
    }
    teams
}

/// The part of each process's parent, if it was recorded.
fn parents(parts: &[Part]) -> Vec<Option<usize>> {
    let mut of: HashMap<(&str, u32), Vec<usize>> = HashMap::new();
    for (at, part) in parts.iter().enumerate() {
        of.entry((part.host.as_str(), part.pid)).or_default().push(at);
    }
    let parent = |part: &Part| {
        let known = of.get(&(part.host.as_str(), part.parent))?;
        // process ids are used again: the last before the child
        let earlier = known.iter().copied().filter(|at| parts[*at].start <= part.start);
        earlier.max_by_key(|at| parts[*at].start).filter(|_| part.parent != part.pid)
    };
    parts.iter().map(parent).collect()
}

/// True if a launcher gave the process a rank that no process of the team has: an inherited one is not its own.
fn has_own_rank(parts: &[Part], teams: &[usize], one: usize, team: usize) -> bool {
    LAUNCHERS.iter().any(|variable| {
        let rank = |part: &Part| part.variables.get(*variable).cloned();
        let mut theirs =
            parts.iter().zip(teams).filter(|(_, of)| **of == team).map(|(part, _)| rank(part));
        rank(&parts[one]).is_some_and(|own| theirs.all(|of| of.is_some_and(|of| of != own)))
    })
}

/// Sorts the parts by rank, and says where the ranks came from.
pub(super) fn order(parts: &mut [Part]) -> String {
    for variable in LAUNCHERS {
        let ranks: Option<Vec<u32>> =
            parts.iter().map(|part| part.variables.get(variable)?.parse().ok()).collect();
        if let Some(ranks) = ranks.filter(|ranks| are_distinct(ranks)) {
            sort(parts, &ranks);
            return format!("ranks from the launcher's {variable}");
        }
    }
    if let Some(ranks) = communicator_ranks(parts) {
        sort(parts, &ranks);
        return "ranks from NCCL's largest communicator".into();
    }
    // sglang and vLLM title their workers: `VLLM::Worker_TP1`, `sglang::scheduler_DP0_PP1_TP0`
    let titled = |part: &Part| {
        let title = part.command.split_whitespace().next().unwrap_or_default();
        title.contains("::").then(|| title.to_owned())
    };
    let titles: Option<Vec<String>> = parts.iter().map(titled).collect();
    if let Some(titles) = titles.filter(|titles| {
        titles.len() > 1 && titles.iter().collect::<BTreeSet<_>>().len() == titles.len()
    }) {
        let mut places: Vec<usize> = (0..titles.len()).collect();
        places.sort_by(|a, b| natural_order(&titles[*a], &titles[*b]));
        let mut ranks = vec![0; places.len()];
        places.iter().zip(0..).for_each(|(place, rank)| ranks[*place] = rank);
        sort(parts, &ranks);
        return "ranks from the titles of the processes".into();
    }
    let device = |part: &Part| part.work.iter().map(|work| work.device).min();
    parts.sort_by_cached_key(|part| (part.host.clone(), device(part), part.start, part.pid));
    "ranks by host, device and start of the process".into()
}

fn are_distinct(ranks: &[u32]) -> bool {
    ranks.iter().all(|rank| *rank < MOST) && ranks.iter().collect::<BTreeSet<_>>().len() == ranks.len()
}

fn sort(parts: &mut [Part], ranks: &[u32]) {
    let of: HashMap<String, u32> =
        parts.iter().zip(ranks).map(|(part, rank)| (part.name.clone(), *rank)).collect();
    parts.sort_by_key(|part| of.get(&part.name).copied());
}

/// Rank of each part in the largest communicator that all of them share.
fn communicator_ranks(parts: &[Part]) -> Option<Vec<u32>> {
    let first = parts.first().filter(|_| parts.len() > 1)?;
    let mut shared: Vec<(u32, u64)> =
        first.communicators.iter().map(|found| (found.ranks, found.id)).collect();
    shared.sort_unstable();
    shared.iter().rev().find_map(|(_, id)| {
        let of = |part: &Part| part.communicators.iter().find(|found| found.id == *id).map(|f| f.rank);
        let ranks: Option<Vec<u32>> = parts.iter().map(of).collect();
        ranks.filter(|ranks| are_distinct(ranks))
    })
}
