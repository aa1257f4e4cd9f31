//! Hidden share: the part of the communication cost that an architecture recovers.

use std::borrow::Borrow;
use std::collections::HashMap;
use std::hash::BuildHasher;

use foldhash::fast::FixedState;
use rayon::prelude::*;

use super::{Record, Spec, host};
use base::statistics::median;
use plan::Architecture;

/// (standard - x) / (standard - upper-bound) for median TPOTs in the same unit; `None` if upper-bound is
/// not faster than standard.
pub fn hidden_share([standard, it, upper_bound]: [f64; 3]) -> Option<f64> {
    (standard > upper_bound).then(|| (standard - it) / (standard - upper_bound))
}

/// Hidden share of each record, from medians over the records that match it in machine and in everything
/// except architecture and plan variants. `None` if standard or upper-bound is missing or has no
/// numbers.
pub fn hidden_shares<R: Borrow<Record> + Sync>(records: &[R]) -> Vec<Option<f64>> {
    let tpot = |record: &Record| {
        let metrics = record.metrics.as_ref().filter(|_| record.is_finished())?;
        Some(metrics.tpot_ms.p50).filter(|ms| *ms > 0.0)
    };
    let key = |record: &R| tpot(record.borrow()).map(|ms| (common(record.borrow()), ms));
    let keys: Vec<Option<(u64, f64)>> = records.par_iter().map(key).collect();
    let mut limits: HashMap<u64, [Vec<f64>; 2], FixedState> = HashMap::default();
    for (record, key) in records.iter().zip(&keys) {
        let Some(limit) = limit(&record.borrow().spec) else { continue };
        if let Some((common, ms)) = key {
            limits.entry(*common).or_default()[limit].push(*ms);
        }
    }
    let medians = |(common, [standard, bound]): (u64, [Vec<f64>; 2])| {
        Some((common, (median(&standard)?, median(&bound)?)))
    };
    let limits: HashMap<u64, (f64, f64), FixedState> = limits.into_iter().filter_map(medians).collect();
    let share = |key: &Option<(u64, f64)>| {
        let (common, ms) = (*key)?;
        let (standard, bound) = *limits.get(&common)?;
        hidden_share([standard, ms, bound])
    };
    keys.iter().map(share).collect()
}

/// Index of the reference that a cell represents: 0 for plain `standard`, 1 for plain `upper-bound`.
pub fn limit(spec: &Spec) -> Option<usize> {
    match spec.architecture {
        _ if !spec.variant_label().is_empty() => None,
        Architecture::Standard => Some(0),
        Architecture::UpperBound => Some(1),
        _ => None,
    }
}

/// Hash of everything that must match between compared architectures.
fn common(record: &Record) -> u64 {
    let spec = Spec { architecture: Architecture::Standard, ..record.spec.plain() };
    FixedState::default().hash_one(serde_json::to_vec(&(spec, host(record))).unwrap_or_default())
}
