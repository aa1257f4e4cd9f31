//! Whether the machine was too busy for its numbers to be believed: `upper-bound` slower than `standard`, rounds
//! that vary widely, more work waiting for cores than the runs had themselves.
//!
//! Predictions know no neighbours, and are never doubted.

use std::collections::BTreeMap;

use super::question::Question;
use crate::base::statistics::median;
use crate::base::text::counted;
use crate::study::analysis::{Comparison, Varied};
use crate::table::{CellRuns, Provenance, Record, Spec, limit};

/// `upper-bound` does the work of `standard` without its communication: what it is slower by is noise, and from this
/// share of the throughput on it is told.
const NOISE: f64 = 0.02;

/// The slowest round of a cell over the fastest from which its rounds vary widely.
const WIDE: f64 = 1.3;

/// The load from which cores are fought over, over the threads that a run and a quiet machine have themselves.
const BUSY: f64 = 1.5;

/// Why these runs of one provenance and machine cannot be believed, in a sentence; `None` where nothing says so.
pub(super) fn doubt(records: &[Record], varied: &Varied, question: Option<&Question>) -> Option<String> {
    if records.iter().all(|record| record.provenance == Provenance::Simulated) {
        return None;
    }
    let (limit, wide, busy) =
        (question.and_then(slow_limit), wide_rounds(records, varied), load(records));
    let verdict = match busy {
        Some(_) => "The machine was too busy for these numbers to be believed",
        None => "These numbers cannot be believed as they are",
    };
    let reasons: Vec<String> = [limit, wide, busy].into_iter().flatten().collect();
    if reasons.is_empty() {
        return None;
    }
    Some(format!("{verdict}: {}. Run the sweep again when nothing else runs.", reasons.join("; ")))
}

/// The setting in which a plain `upper-bound` is slower than a plain `standard` by most, its whole interval below 1
/// where it has one. Two micro-batches read the weights twice: such a bound may well be slower.
fn slow_limit(question: &Question) -> Option<String> {
    let plain = |pair: &&Comparison| {
        (limit(&pair.baseline_side.spec), limit(&pair.side.spec)) == (Some(0), Some(1))
    };
    let limits = question.report.pairs.iter().filter(plain);
    let surely = |pair: &&Comparison| pair.speedup_ci95.is_none_or(|[_, most]| most < 1.0);
    let slow = limits.filter(|pair| pair.speedup < 1.0 - NOISE).filter(surely);
    let worst = slow.min_by(|a, b| a.speedup.total_cmp(&b.speedup))?;
    Some(format!(
        "{}, which does not communicate, has {:.2}x the tokens/s of {}",
        question.named(worst),
        worst.speedup,
        question.baseline(worst)
    ))
}

/// The cell whose rounds differ most in the time of a step.
fn wide_rounds(records: &[Record], varied: &Varied) -> Option<String> {
    let cells = CellRuns::group(records);
    let count = cells.len();
    let spreads = cells.into_iter().filter_map(|cell| {
        let spec = &cell.ok().next()?.spec;
        let steps = spec.output_tokens.saturating_sub(1).max(1);
        let mut rounds: BTreeMap<u32, Vec<f64>> = BTreeMap::new();
        for run in cell.ok() {
            let decode_ms = run.samples.iter().map(|sample| sample.decode_ms);
            rounds.entry(run.round).or_default().extend(decode_ms);
        }
        let middles = rounds.values().filter_map(|decode_ms| median(decode_ms));
        let times: Vec<f64> = middles.map(|middle| middle / f64::from(steps)).collect();
        let least = times.iter().copied().reduce(f64::min).filter(|least| *least > 0.0)?;
        let most = times.iter().copied().reduce(f64::max)?;
        Some((most / least, least, most, spec))
    });
    let wide: Vec<(f64, f64, f64, &Spec)> = spreads.filter(|spread| spread.0 >= WIDE).collect();
    let (_, least, most, spec) = wide.iter().max_by(|a, b| a.0.total_cmp(&b.0))?;
    let cell = Some(varied.words(spec)).filter(|words| !words.is_empty()).unwrap_or(spec.label());
    let widest = match (wide.len(), count) {
        (_, 1) => String::new(),
        (1, _) => format!(", the only one of {count} cells whose rounds differ so"),
        (more, _) => format!(", the widest of {more} such cells among {count}"),
    };
    Some(format!("rounds of {cell} took {least:.2} to {most:.2} ms a token{widest}"))
}

/// The load under which runs on CPUs began, where it was more than the cores can bear.
fn load(records: &[Record]) -> Option<String> {
    let load = median(&records.iter().filter_map(load_of).collect::<Vec<f64>>())?;
    // runs of more ranks are load for those that follow: what the largest ones bear, a sweep makes by itself
    let on_cpus = records.iter().filter(|record| load_of(record).is_some());
    let bearable = on_cpus.clone().filter_map(bearable).fold(0.0, f64::max);
    let cores = counted(on_cpus.filter_map(cores).max()?, "core");
    (load > bearable).then(|| format!("the load was {load:.1} on {cores}"))
}

/// The load of a machine's last minute as a run on its CPUs began.
fn load_of(record: &Record) -> Option<f64> {
    let load = record.environment.get("load_average")?.get(0)?.as_f64();
    load.filter(|_| record.spec.backend.computes_on_cores() && cores(record).is_some())
}

/// The load up to which a run finds the cores that it needs: the runs before it are part of it, a lane a thread.
fn bearable(record: &Record) -> Option<f64> {
    Some(BUSY * (cores(record)? as f64).max(2.0 * f64::from(record.spec.tp)))
}

/// How many cores the machine has: its load is of all of them, whichever a run was allowed.
fn cores(record: &Record) -> Option<usize> {
    usize::try_from(record.environment.get("cpu")?.get("threads")?.as_u64()?).ok()
}
