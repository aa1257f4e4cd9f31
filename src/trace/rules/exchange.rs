//! Dispatch and combine of experts that exchange tokens with ordinary collectives, such as NCCL's: the kernels'
//! names do not tell them from other collectives, but the kernels of experts between them do.

use std::collections::{BTreeMap, HashMap};
use std::ops::Range;

use super::file::function;
use crate::{OperationInfo, OperationKind, Trace};
use plan::Lane;

/// Words in the names of attention kernels, which separate the exchanges of two layers.
const ATTENTION: [&str; 5] = ["attention", "attn", "flash_fwd", "fmha", "mla"];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ExchangeRole {
    Experts,
    /// Collective that may bring tokens to their experts, may bring outputs back, or both.
    Exchange {
        to: bool,
        back: bool,
    },
    /// End of an exchange's surroundings.
    Other,
}

fn part(trace: &Trace, operation: &OperationInfo) -> Option<ExchangeRole> {
    let group = || operation.collective.as_ref().and_then(|info| info.group);
    let is_pipeline = || {
        let group = group().and_then(|group| trace.meta.groups.get(group as usize));
        group.is_some_and(|group| group.kind() == "PP")
    };
    match (operation.lane, &operation.kind) {
        (_, OperationKind::Experts) => Some(ExchangeRole::Experts),
        (Lane::Comm, _) if is_pipeline() => None,
        (Lane::Comm, OperationKind::AllToAll | OperationKind::SendRecv) => {
            Some(ExchangeRole::Exchange { to: true, back: true })
        }
        (Lane::Comm, OperationKind::AllGather) => Some(ExchangeRole::Exchange { to: true, back: false }),
        (Lane::Comm, OperationKind::ReduceScatter) => {
            Some(ExchangeRole::Exchange { to: false, back: true })
        }
        (Lane::Comm, _) => Some(ExchangeRole::Other),
        _ => is_attention(&operation.name).then_some(ExchangeRole::Other),
    }
}

/// True for the name of an attention kernel.
pub fn is_attention(kernel: &str) -> bool {
    let function = function(kernel).to_ascii_lowercase();
    ATTENTION.iter().any(|word| function.contains(word))
}

/// Changes the kind of exchanges directly before and after experts to `dispatch` and `combine`. Leaves traces
/// without kernels of experts as they are.
pub(super) fn name_exchanges(trace: &mut Trace) {
    if !trace.has_experts() {
        return;
    }
    let parts: Vec<Option<ExchangeRole>> =
        trace.operations.iter().map(|info| part(trace, info)).collect();
    let mut by_rank: BTreeMap<u32, Vec<(usize, ExchangeRole)>> = BTreeMap::new();
    for (place, span) in trace.spans.iter().enumerate() {
        if let Some(part) = parts.get(span.operation as usize).copied().flatten() {
            by_rank.entry(span.rank).or_default().push((place, part));
        }
    }
    let mut found: Vec<(usize, OperationKind)> = Vec::new();
    for of_rank in by_rank.values_mut() {
        of_rank.sort_by_key(|(place, _)| trace.spans[*place].start_ns);
        let of_rank: &[(usize, ExchangeRole)] = of_rank;
        for (range, kind) in exchanges(of_rank) {
            found.extend(of_rank[range].iter().map(|(place, _)| (*place, kind.clone())));
        }
    }
    let mut renamed: HashMap<(u32, OperationKind), u32> = HashMap::new();
    for (place, kind) in found {
        let span = &mut trace.spans[place];
        span.operation = *renamed.entry((span.operation, kind.clone())).or_insert_with(|| {
            let info = trace.operations[span.operation as usize].clone();
            trace.operations.push(OperationInfo { kind, ..info });
            (trace.operations.len() - 1) as u32
        });
    }
}

/// Exchanges of one rank, whose parts are sorted by time. Outputs only return if tokens were sent: without a
/// dispatch, a collective after experts is a sum over ranks.
fn exchanges(parts: &[(usize, ExchangeRole)]) -> Vec<(Range<usize>, OperationKind)> {
    let mut found = Vec::new();
    let is_to = |at: &usize| matches!(parts[*at].1, ExchangeRole::Exchange { to: true, .. });
    let is_back = |at: &usize| matches!(parts[*at].1, ExchangeRole::Exchange { back: true, .. });
    // end of the previous experts' exchanges
    let (mut taken, mut at) = (0, 0);
    while at < parts.len() {
        if parts[at].1 != ExchangeRole::Experts {
            at += 1;
            continue;
        }
        let end = (at..parts.len())
            .find(|next| parts[*next].1 != ExchangeRole::Experts)
            .unwrap_or(parts.len());
        let before = at - (taken..at).rev().take_while(is_to).count();
        let mut after = end + (end..parts.len()).take_while(is_back).count();
        if parts.get(after).is_some_and(|(_, part)| *part == ExchangeRole::Experts) {
            // nothing separates them from the next experts' dispatch
            after = end + (after - end) / 2;
        }
        taken = end;
        if before < at {
            found.push((before..at, OperationKind::Dispatch));
            if end < after {
                found.push((end..after, OperationKind::Combine));
                taken = after;
            }
        }
        at = end;
    }
    found
}
