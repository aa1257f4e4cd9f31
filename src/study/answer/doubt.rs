//! Whether the machine was too busy for its numbers to be believed: `upper-bound` slower than `standard`, rounds
//! that vary widely, more work waiting for cores than the runs had themselves.
//!
//! Predictions know no neighbours, and are never doubted.

use super::question::Question;
use crate::base::statistics::median;
use crate::base::text::counted;
use crate::study::analysis::{Comparison, Varied};
use crate::table::{Backend, CellRuns, Provenance, Record, Sample, Spec};

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
    let limit = question.and_then(slow_limit);
    let busy: Vec<String> = wide_rounds(records, varied).into_iter().chain(load(records)).collect();
    let verdict = match (busy.is_empty(), &limit) {
        (true, None) => return None,
        (true, Some(_)) => "These numbers cannot be believed as they are",
        (false, _) => "The machine was too busy for these numbers to be believed",
    };
    let reasons: Vec<String> = limit.into_iter().chain(busy).collect();
    Some(format!("{verdict}: {}. Run the sweep again when nothing else runs.", reasons.join("; ")))
}

/// The setting in which `upper-bound` is slower than its baseline by most, its whole interval below 1 where it has one.
fn slow_limit(question: &Question) -> Option<String> {
    let limits = question.report.pairs.iter().filter(|pair| pair.side.spec.architecture.is_limit());
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
    let spreads = CellRuns::group(records).into_iter().filter_map(|cell| {
        let spec = &cell.ok().next()?.spec;
        let steps = spec.output_tokens.saturating_sub(1).max(1);
        let round = |samples: &Vec<Sample>| {
            let decode_ms: Vec<f64> = samples.iter().map(|sample| sample.decode_ms).collect();
            median(&decode_ms).map(|middle| middle / f64::from(steps))
        };
        let times: Vec<f64> = cell.rounds().values().filter_map(round).collect();
        let least = times.iter().copied().reduce(f64::min).filter(|least| *least > 0.0)?;
        let most = times.iter().copied().reduce(f64::max)?;
        Some((most / least, least, most, spec))
    });
    let wide: Vec<(f64, f64, f64, &Spec)> = spreads.filter(|spread| spread.0 >= WIDE).collect();
    let (_, least, most, spec) = wide.iter().max_by(|a, b| a.0.total_cmp(&b.0))?;
    let cell = Some(varied.words(spec)).filter(|words| !words.is_empty()).unwrap_or(spec.label());
    let widest = if wide.len() > 1 { format!(", the widest of {}", wide.len()) } else { String::new() };
    Some(format!("rounds of {cell} took {least:.2} to {most:.2} ms a token{widest}"))
}

/// The load under which runs on CPUs began, where it was more than the cores can bear.
fn load(records: &[Record]) -> Option<String> {
    let loads: Vec<f64> = records.iter().filter_map(load_of).collect();
    let load = median(&loads)?;
    let least = |a: &Record, b: &Record| bearable(a).total_cmp(&bearable(b));
    let record = records.iter().filter(|record| load_of(record).is_some()).min_by(|a, b| least(a, b))?;
    let cores = counted(cores(record)?, "core");
    (load > bearable(record)).then(|| format!("the load was {load:.1} on {cores}"))
}

/// The load of a machine's last minute as a run on its CPUs began.
fn load_of(record: &Record) -> Option<f64> {
    let load = record.environment.get("load_average")?.get(0)?.as_f64();
    load.filter(|_| record.spec.backend == Backend::Cpu && cores(record).is_some())
}

/// The load up to which a run finds the cores that it needs: the runs before it are part of it, a lane a thread.
fn bearable(record: &Record) -> f64 {
    let threads = 2.0 * f64::from(record.spec.tp);
    BUSY * cores(record).map_or(0.0, |cores| cores as f64).max(threads)
}

/// How many cores a run was allowed, of their list: `0-3,6`.
fn cores(record: &Record) -> Option<usize> {
    let ranges = record.environment.get("allowed_cpus")?.as_str()?;
    let count = |range: &str| match range.split_once('-') {
        Some((first, last)) => {
            Some(last.parse::<usize>().ok()?.checked_sub(first.parse().ok()?)?.saturating_add(1))
        }
        None => range.parse::<usize>().ok().map(|_| 1),
    };
    ranges.split(',').map(count).sum()
}
