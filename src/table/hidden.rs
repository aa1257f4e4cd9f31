//! The hidden share: which part of the time that communication costs an architecture wins back.

use std::borrow::Borrow;
use std::collections::HashMap;
use std::hash::BuildHasher;

use foldhash::fast::FixedState;
use rayon::prelude::*;

use super::{Record, Spec, host};
use base::statistics::median;
use plan::Architecture;

/// (standard - it) / (standard - upper-bound), of three medians of TPOT in one unit; `None` where
/// upper-bound is no faster than standard.
pub fn hidden_share([standard, it, upper_bound]: [f64; 3]) -> Option<f64> {
    (standard > upper_bound).then(|| (standard - it) / (standard - upper_bound))
}

/// The hidden share of each record, from the medians of the records that match it in everything but the
/// architecture and the options that change its plan, the machine included; `None` where one of the two limits was
/// not run, or has no number.
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

/// Which of the two limits a cell is: a plain `standard` (0) or a plain `upper-bound` (1).
pub fn limit(spec: &Spec) -> Option<usize> {
    match spec.architecture {
        _ if !spec.variant_label().is_empty() => None,
        Architecture::Standard => Some(0),
        Architecture::UpperBound => Some(1),
        _ => None,
    }
}

/// A hash of what must be alike for architectures to be compared.
fn common(record: &Record) -> u64 {
    let spec = Spec { architecture: Architecture::Standard, ..record.spec.plain() };
    FixedState::default().hash_one(serde_json::to_vec(&(spec, host(record))).unwrap_or_default())
}
