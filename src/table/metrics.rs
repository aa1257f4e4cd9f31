//! Metrics of a run or a cell, and pooling of a cell's rounds into one record.

use std::borrow::Borrow;
use std::collections::{BTreeMap, HashMap};
use std::hash::BuildHasher;
use std::sync::Arc;

use foldhash::fast::FixedState;
use rayon::prelude::*;

use super::{Record, Spec};
use crate::{Instrumented, Metrics, Overlap, Percentiles, Provenance, Sample, Status};
use base::statistics::{bootstrap, mean, median, percentile};
use plan::Architecture;

/// Computes metrics of one run or of a cell's pooled runs; `rounds` holds each round's samples. `None`
/// without samples.
///
/// Scalars are medians over the pooled samples; throughput follows from the median completion latency.
/// TPOT percentiles, including the median, are over the pooled decode steps of all samples (0 if only
/// one token was requested). The TPOT interval bootstraps the samples' median steps, because steps of
/// one sample are not independent. Simulations have no intervals.
pub fn metrics(spec: &Spec, rounds: &[&[Sample]], memory_bytes_per_rank: u64) -> Option<Metrics> {
    let samples: Vec<&Sample> = rounds.iter().copied().flatten().collect();
    let scalar = |of: fn(&Sample) -> f64| median(&samples.iter().map(|s| of(s)).collect::<Vec<_>>());
    let completion_ms = scalar(completion_ms)?;
    let steps: Vec<f64> = samples.iter().flat_map(|s| steps_ms(spec, s)).collect();
    let step = |p| percentile(&steps, p).unwrap_or(0.0);
    let tokens_per_s = tokens_per_s(spec, completion_ms);
    let interval = |of: &dyn Fn(&Sample) -> Option<f64>, to: &dyn Fn(f64) -> f64| {
        bootstrap([&by_round(spec, rounds, of)?], |[m]| to(m))
    };
    Some(Metrics {
        prefill_ms: scalar(|s| s.prefill_ms)?,
        decode_ms: scalar(|s| s.decode_ms)?,
        completion_ms,
        tpot_ms: Percentiles { p50: step(50.0), p90: step(90.0), p99: step(99.0) },
        tokens_per_s,
        tokens_per_s_per_gpu: tokens_per_s / f64::from(spec.ranks()),
        samples: samples.len() as u32,
        tokens_per_s_ci95: interval(&|s| Some(self::completion_ms(s)), &|ms| {
            self::tokens_per_s(spec, ms)
        }),
        tpot_ms_ci95: interval(&|s| median(&steps_ms(spec, s)), &|ms| ms),
        memory_bytes_per_rank,
    })
}

pub fn completion_ms(sample: &Sample) -> f64 {
    sample.prefill_ms + sample.decode_ms
}

/// Decode steps of a sample, or their mean if the backend timed only the whole phase.
pub fn steps_ms(spec: &Spec, sample: &Sample) -> Vec<f64> {
    match spec.output_tokens.saturating_sub(1) {
        0 => Vec::new(),
        steps if sample.steps_ms.is_empty() => vec![sample.decode_ms / f64::from(steps)],
        _ => sample.steps_ms.clone(),
    }
}

/// Throughput of all sequences at a completion latency.
pub fn tokens_per_s(spec: &Spec, completion_ms: f64) -> f64 {
    if completion_ms > 0.0 {
        f64::from(spec.batch) * f64::from(spec.output_tokens) / (completion_ms / 1e3)
    } else {
        0.0
    }
}

/// One number per sample, grouped by round. `None` for simulations, which have no interval, and if a
/// sample lacks the number.
fn by_round(
    spec: &Spec,
    rounds: &[&[Sample]],
    of: &dyn Fn(&Sample) -> Option<f64>,
) -> Option<Vec<Vec<f64>>> {
    if spec.backend.is_simulated() {
        return None;
    }
    let filled = rounds.iter().filter(|round| !round.is_empty());
    filled.map(|round| round.iter().map(of).collect()).collect()
}

/// Cell: all runs (rounds) of one spec, on one machine unless simulated.
#[derive(Debug)]
pub struct CellRuns<'a> {
    /// Oldest first.
    pub runs: Vec<&'a Record>,
}

impl<'a> CellRuns<'a> {
    /// Groups records into cells, in order of first appearance.
    pub fn group(records: &'a [Record]) -> Vec<Self> {
        let mut index: BTreeMap<(String, Option<String>), usize> = BTreeMap::new();
        let mut cells: Vec<Self> = Vec::new();
        for record in records {
            let at = *index.entry((record.spec.key(), host(record))).or_insert_with(|| {
                cells.push(Self { runs: Vec::new() });
                cells.len() - 1
            });
            cells[at].runs.push(record);
        }
        cells
    }

    /// Successful runs with usable numbers.
    pub fn ok(&self) -> impl Iterator<Item = &'a Record> + '_ {
        self.runs.iter().copied().filter(|run| run.has_numbers())
    }

    /// Samples per round, over the successful runs.
    pub fn rounds(&self) -> BTreeMap<u32, Vec<Sample>> {
        let mut rounds: BTreeMap<u32, Vec<Sample>> = BTreeMap::new();
        for run in self.ok().filter(|run| !run.samples.is_empty()) {
            rounds.entry(run.round).or_default().extend_from_slice(&run.samples);
        }
        rounds
    }

    /// Record of the cell: the last successful run with pooled numbers; if no run succeeded, the last
    /// run unchanged.
    pub fn record(&self) -> Option<Record> {
        let ok: Vec<&Record> = self.ok().collect();
        let Some((last, earlier)) = ok.split_last() else {
            return self.runs.last().map(|run| (*run).clone());
        };
        let mut record = Record::clone(last);
        record.warnings = self.warnings(&ok);
        record.runs = ok.iter().flat_map(|run| origins(run)).collect();
        // simulations are deterministic: nothing to pool
        if !earlier.is_empty() && last.provenance != Provenance::Simulated {
            let rounds = self.rounds();
            let slices: Vec<&[Sample]> = rounds.values().map(Vec::as_slice).collect();
            let memory =
                ok.iter().filter_map(|run| run.metrics.as_ref()).map(|m| m.memory_bytes_per_rank);
            if let Some(pooled) = metrics(&record.spec, &slices, memory.max().unwrap_or(0)) {
                record.metrics = Some(pooled);
            }
            record.samples = Arc::new(rounds.into_values().flatten().collect());
            record.overlap = self.overlap(last);
            record.instrumented = pooled(last, &ok);
        }
        Some(record)
    }

    /// Overlap averaged over the runs with the same recorder as the last one.
    fn overlap(&self, last: &Record) -> Option<Overlap> {
        let overlaps: Vec<Overlap> = self
            .ok()
            .filter(|run| recorder(run) == recorder(last))
            .filter_map(|run| run.overlap)
            .collect();
        Overlap::mean(&overlaps)
    }

    /// Distinct warnings of the runs, plus warnings about the pooled samples.
    fn warnings(&self, ok: &[&'a Record]) -> Vec<String> {
        let mut warnings: Vec<String> = Vec::new();
        let mut add = |warning: String| {
            if !warnings.contains(&warning) {
                warnings.push(warning);
            }
        };
        ok.iter().flat_map(|run| run.warnings.iter().cloned()).for_each(&mut add);
        for run in self.runs.iter().filter(|run| run.status != Status::Ok) {
            let reason = run.reason.as_deref().unwrap_or("no reason recorded");
            add(format!(
                "ignoring run {} (round {}): {}: {reason}",
                run.run,
                run.round,
                run.status.as_str()
            ));
        }
        for (what, name) in [("commit", "versions"), ("recorder", "recorders")] {
            let value = |run: &&'a Record| match what {
                "recorder" => recorder(run),
                _ => text(run, what),
            };
            let mut values: Vec<&str> = ok.iter().filter_map(value).collect();
            values.sort_unstable();
            values.dedup();
            if values.len() > 1 {
                add(format!("rounds of different {name}: {}", values.join(", ")));
            }
        }
        if let Some(last) = ok.last().filter(|run| run.provenance != Provenance::Simulated) {
            let samples: Vec<&Sample> = ok.iter().flat_map(|run| run.samples.iter()).collect();
            stalls(&last.spec, &samples).into_iter().for_each(&mut add);
        }
        warnings
    }
}

/// Run ids a record was computed from: its own, unless it is an aggregated cell.
fn origins(record: &Record) -> Vec<String> {
    if record.runs.is_empty() { vec![record.run.clone()] } else { record.runs.clone() }
}

fn text<'a>(record: &'a Record, key: &str) -> Option<&'a str> {
    record.environment.get(key).and_then(|value| value.as_str())
}

/// Recorder of the run's spans, if known. Overlap of different recorders must not be compared. The
/// number of windows in a rotation does not matter.
pub fn recorder(record: &Record) -> Option<&str> {
    text(record, "recorder")
}

/// Host on which a run was timed; `None` for simulations, which do not depend on it.
pub fn host(record: &Record) -> Option<String> {
    match record.provenance {
        Provenance::Simulated => None,
        _ => text(record, "host").map(str::to_owned),
    }
}

/// Warnings for medians and means that differ by more than 10 %: stalls and unsteady clocks must stay visible.
pub fn stalls(spec: &Spec, samples: &[&Sample]) -> Vec<String> {
    let steps: Vec<f64> = samples.iter().flat_map(|s| steps_ms(spec, s)).collect();
    let of = |number: fn(&Sample) -> f64| samples.iter().map(|s| number(s)).collect::<Vec<f64>>();
    [("prefill", of(|s| s.prefill_ms)), ("decode", of(|s| s.decode_ms)), ("decode step", steps)]
        .into_iter()
        .filter_map(|(what, values)| {
            let (median, mean) = (median(&values)?, mean(&values)?);
            let (place, why) = match mean > median {
                true => ("above", "some samples may have stalled"),
                false => ("below", "fewer than half of the samples are much faster"),
            };
            ((mean - median).abs() > 0.1 * median.abs()).then(|| {
                format!(
                    "{what}: mean {mean:.3} ms is far {place} the median {median:.3} ms ({} values); {why}",
                    values.len()
                )
            })
        })
        .collect()
}

/// Pools the runs (rounds) of each spec into one record per cell, in order of first appearance.
/// Successful runs replace failed ones of the same cell and mention them in their warnings; a cell
/// without success is its last run unchanged. Runs on different machines are different cells.
pub fn aggregate(records: &[Record]) -> Vec<Record> {
    CellRuns::group(records).iter().filter_map(CellRuns::record).collect()
}

/// Closed share of the gap to upper-bound: (standard - x) / (standard - upper-bound) for median TPOTs in the same unit; `None` if upper-bound is
/// not faster than standard.
pub fn hidden_share([standard, it, upper_bound]: [f64; 3]) -> Option<f64> {
    (standard > upper_bound).then(|| (standard - it) / (standard - upper_bound))
}

/// Closed share of the gap of each record, from medians over the records that match it in machine and in everything
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

/// Overhead above which overlap and trace no longer represent the samples.
const DISTURBED: f64 = 1.05;

/// Consecutive steps per bootstrap block.
const BLOCK: usize = 8;

/// Both passes of one run, in decode steps (ms).
struct Round {
    plain: Vec<f64>,
    timed: Vec<f64>,
}

/// Adds the overhead over the undisturbed `samples` to an instrumented pass.
///
/// The interval bootstraps blocks of consecutive steps, because neighboring steps are not independent.
/// It does not cover differences between processes; those need rounds.
pub fn overhead(spec: &Spec, samples: &[Sample], pass: Instrumented) -> Instrumented {
    let plain = samples.iter().flat_map(|sample| steps_ms(spec, sample)).collect();
    let round = Round { plain, timed: pass.steps_ms.clone() };
    with_overhead(pass, &[round])
}

/// Pools the instrumented passes of a cell's runs that used the same recorder as the last run. `None` if
/// the last run has no such pass.
pub(super) fn pooled(last: &Record, runs: &[&Record]) -> Option<Instrumented> {
    let mut pass = last.instrumented.clone()?;
    let alike = runs.iter().filter(|run| recorder(run) == recorder(last));
    let rounds: Vec<Round> = alike
        .filter_map(|run| {
            let timed = run.instrumented.as_ref()?.steps_ms.clone();
            let plain = run.samples.iter().flat_map(|sample| steps_ms(&run.spec, sample)).collect();
            Some(Round { plain, timed })
        })
        .collect();
    pass.steps_ms = rounds.iter().flat_map(|round| &round.timed).copied().collect();
    Some(with_overhead(pass, &rounds))
}

/// Warning if instrumentation slowed the steps by more than 5 %, judged by the interval's lower bound
/// where there is one.
pub fn disturbed(pass: &Instrumented) -> Option<String> {
    let overhead = pass.overhead?;
    let least = pass.overhead_ci95.map_or(overhead, |[low, _]| low);
    (least > DISTURBED).then(|| {
        format!(
            "steps took {overhead:.2} x as long while '{}' timed their operations: overlap and trace are those of the \
             longer steps; another --recorder may cost less",
            pass.recorder
        )
    })
}

fn with_overhead(mut pass: Instrumented, rounds: &[Round]) -> Instrumented {
    let all =
        |of: fn(&Round) -> &Vec<f64>| -> Vec<f64> { rounds.iter().flat_map(of).copied().collect() };
    let (plain, timed) = (median(&all(|r| &r.plain)), median(&all(|r| &r.timed)));
    let blocks = |of: fn(&Round) -> &Vec<f64>| -> Vec<Vec<f64>> {
        let medians = |steps: &[f64]| steps.chunks(BLOCK).filter_map(median).collect();
        rounds.iter().map(|round| medians(of(round))).collect()
    };
    pass.tpot_ms = timed.unwrap_or(0.0);
    pass.overhead =
        plain.zip(timed).filter(|(plain, _)| *plain > 0.0).map(|(plain, timed)| timed / plain);
    pass.overhead_ci95 = pass.overhead.and_then(|_| {
        bootstrap([&blocks(|r| &r.timed), &blocks(|r| &r.plain)], |[timed, plain]| timed / plain)
    });
    pass
}

#[cfg(test)]
mod tests;
