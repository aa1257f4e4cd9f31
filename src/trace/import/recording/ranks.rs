//! Order of the recorded processes: the rank that a launcher gave each, else its rank in the largest communicator,
//! else its title, else host and process id.

use std::collections::{BTreeSet, HashMap};

use super::part::Part;
use base::natural::natural_order;

const LAUNCHERS: [&str; 5] = ["RANK", "OMPI_COMM_WORLD_RANK", "PMI_RANK", "PMIX_RANK", "SLURM_PROCID"];
/// Most processes that a rank can number.
const MOST: u32 = 1 << 20;

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
