//! Metrics of a run or a cell, and pooling of a cell's rounds into one record.

use std::borrow::Borrow;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::hash::BuildHasher;
use std::sync::Arc;

use foldhash::fast::FixedState;
use rayon::prelude::*;

use super::{Record, Spec};
use crate::{Instrumented, Metrics, Overlap, Percentiles, Provenance, Sample, Status};
use base::statistics::{bootstrap, distinct, mean, median, percentile};
use base::text::latency;
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
    number: &dyn Fn(&Sample) -> Option<f64>,
) -> Option<Vec<Vec<f64>>> {
    if spec.backend.is_simulated() {
        return None;
    }
    let filled = rounds.iter().filter(|round| !round.is_empty());
    filled.map(|round| round.iter().map(number).collect()).collect()
}

/// Cell: the runs (rounds) of one spec that count, on one machine unless simulated. Of rounds that an experiment repeated,
/// the newest complete repetition counts.
#[derive(Debug)]
pub struct CellRuns<'a> {
    /// Oldest first.
    pub runs: Vec<&'a Record>,
    /// Number of runs with numbers in incomplete repetitions after the counted one.
    pub unfinished: usize,
}

impl<'a> CellRuns<'a> {
    /// Groups records into cells, in order of first appearance.
    pub fn group(records: &'a [Record]) -> Vec<Self> {
        let mut index: BTreeMap<(String, Option<String>), usize> = BTreeMap::new();
        let mut cells: Vec<Vec<&Record>> = Vec::new();
        for record in records {
            let at = *index.entry((record.spec.key(), host(record))).or_insert_with(|| {
                cells.push(Vec::new());
                cells.len() - 1
            });
            cells[at].push(record);
        }
        cells.into_iter().map(Self::new).collect()
    }

    /// Cell of all these runs of one spec, oldest first. A repetition begins with a run of a round that has numbers
    /// already.
    pub fn new(runs: Vec<&'a Record>) -> Self {
        let mut rounds: BTreeMap<&str, Vec<HashSet<u32>>> = BTreeMap::new();
        let repetitions: Vec<Option<(&str, usize)>> = runs
            .iter()
            .map(|run| {
                let experiment = run.experiment.as_deref()?;
                let of = rounds.entry(experiment).or_default();
                let is_repeated = |last: &HashSet<u32>| run.has_numbers() && last.contains(&run.round);
                if of.last().is_none_or(is_repeated) {
                    of.push(HashSet::new());
                }
                if let Some(last) = of.last_mut().filter(|_| run.has_numbers()) {
                    last.insert(run.round);
                }
                Some((experiment, of.len() - 1))
            })
            .collect();
        // the last one with the most rounds
        let newest =
            |of: &[HashSet<u32>]| (0..of.len()).max_by_key(|at| of[*at].len()).unwrap_or_default();
        let newest: BTreeMap<&str, usize> =
            rounds.iter().map(|(experiment, of)| (*experiment, newest(of))).collect();
        let mut counted = Self { runs: Vec::new(), unfinished: 0 };
        for (run, repetition) in runs.into_iter().zip(repetitions) {
            let counts = match repetition {
                None => true,
                Some((experiment, at)) => {
                    let (of, newest) = (&rounds[experiment], newest[experiment]);
                    counted.unfinished += usize::from(at > newest && run.has_numbers());
                    // a failure of a round without numbers stays
                    at == newest || !run.has_numbers() && !of[newest].contains(&run.round)
                }
            };
            if counts {
                counted.runs.push(run);
            }
        }
        counted
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
        let mut warnings: Vec<String> = ok.iter().flat_map(|run| run.warnings.clone()).collect();
        for run in self.runs.iter().filter(|run| run.status != Status::Ok) {
            let reason = run.reason.as_deref().unwrap_or("no reason recorded");
            warnings.push(format!(
                "ignoring run {} (round {}): {}: {reason}",
                run.run,
                run.round + 1,
                run.status.as_str()
            ));
        }
        for (what, name) in [("commit", "versions"), ("recorder", "recorders")] {
            let mut values: Vec<&str> = ok.iter().filter_map(|run| text(run, what)).collect();
            values.sort_unstable();
            values.dedup();
            if values.len() > 1 {
                warnings.push(format!("rounds of different {name}: {}", values.join(", ")));
            }
        }
        if let Some(last) = ok.last().filter(|run| run.provenance != Provenance::Simulated) {
            let samples: Vec<&Sample> = ok.iter().flat_map(|run| run.samples.iter()).collect();
            warnings.extend(stalls(&last.spec, &samples));
        }
        distinct(warnings)
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

/// True if a mean and its median differ by more than 10 %: some samples stalled, or the clocks were unsteady.
pub fn is_unsteady(mean: f64, median: f64) -> bool {
    (mean - median).abs() > 0.1 * median.abs()
}

/// Warnings for [unsteady](is_unsteady) medians: stalls and unsteady clocks must stay visible.
pub fn stalls(spec: &Spec, samples: &[&Sample]) -> Vec<String> {
    let steps: Vec<f64> = samples.iter().flat_map(|s| steps_ms(spec, s)).collect();
    let numbers = |number: fn(&Sample) -> f64| samples.iter().map(|s| number(s)).collect::<Vec<f64>>();
    [
        ("prefill", numbers(|s| s.prefill_ms)),
        ("decode", numbers(|s| s.decode_ms)),
        ("decode step", steps),
    ]
    .into_iter()
    .filter_map(|(what, values)| {
        let (median, mean) = (median(&values)?, mean(&values)?);
        let (place, why) = match mean > median {
            true => ("above", "some samples may have stalled"),
            false => ("below", "fewer than half of the samples are much faster"),
        };
        is_unsteady(mean, median).then(|| {
            format!(
                "{what}: mean {} is far {place} the median {} ({} values); {why}",
                latency(mean * 1e3),
                latency(median * 1e3),
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

/// Least part of standard's TPOT that upper-bound saves: a share of a smaller gap is noise.
const LEAST_GAP: f64 = 0.01;

/// Closed share of the gap to upper-bound: (standard - x) / (standard - upper-bound) for median TPOTs in the same unit; `None` if upper-bound is
/// not clearly faster than standard.
pub fn hidden_share([standard, it, upper_bound]: [f64; 3]) -> Option<f64> {
    let gap = standard - upper_bound;
    (gap > LEAST_GAP * standard).then(|| (standard - it) / gap)
}

/// Closed share of the gap of each record, from medians over the records that match it in machine and in everything
/// except architecture and plan variants. `None` if standard or upper-bound is missing, has no numbers, or if
/// upper-bound has no more tokens/s than standard.
pub fn hidden_shares<R: Borrow<Record> + Sync>(records: &[R]) -> Vec<Option<f64>> {
    let speed = |record: &Record| {
        let metrics = record.metrics.as_ref().filter(|_| record.is_finished())?;
        Some([metrics.tpot_ms.p50, metrics.tokens_per_s]).filter(|[ms, _]| *ms > 0.0)
    };
    let key = |record: &R| speed(record.borrow()).map(|speed| (common(record.borrow()), speed));
    let keys: Vec<Option<(u64, [f64; 2])>> = records.par_iter().map(key).collect();
    let mut limits: HashMap<u64, [Vec<[f64; 2]>; 2], FixedState> = HashMap::default();
    for (record, key) in records.iter().zip(&keys) {
        let Some(limit) = limit(&record.borrow().spec) else { continue };
        if let Some((common, speed)) = key {
            limits.entry(*common).or_default()[limit].push(*speed);
        }
    }
    let medians = |(common, [standard, bound]): (u64, [Vec<[f64; 2]>; 2])| {
        let of = |runs: &[[f64; 2]], at: usize| {
            median(&runs.iter().map(|speed| speed[at]).collect::<Vec<f64>>())
        };
        let is_faster = of(&bound, 1)? > of(&standard, 1)?;
        Some((common, (of(&standard, 0)?, of(&bound, 0)?))).filter(|_| is_faster)
    };
    let limits: HashMap<u64, (f64, f64), FixedState> = limits.into_iter().filter_map(medians).collect();
    let share = |key: &Option<(u64, [f64; 2])>| {
        let (common, [ms, _]) = (*key)?;
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
const MAX_OVERHEAD: f64 = 1.05;

/// Consecutive steps per bootstrap block.
const STEPS_PER_BLOCK: usize = 8;

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
    let same_recorder = runs.iter().filter(|run| recorder(run) == recorder(last));
    let rounds: Vec<Round> = same_recorder
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
    (least > MAX_OVERHEAD).then(|| {
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
        let medians = |steps: &[f64]| steps.chunks(STEPS_PER_BLOCK).filter_map(median).collect();
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
mod tests {
    //! Metrics and pooling against numbers worked out by hand.

    use super::*;
    use crate::testing::{record, sim_record, spec};
    use base::statistics::LEAST_SAMPLES;

    #[test]
    fn a_run_on_paper() {
        let run = record("r", |s| s.batch = 3, 0, &[(10.0, 1.0), (20.0, 2.0), (12.0, 3.0)]);
        let m = run.metrics.unwrap();
        // Steps: 4 each of 1, 2 and 3 ms; completions 14, 28, 24 ms.
        assert_eq!((m.prefill_ms, m.decode_ms, m.completion_ms), (12.0, 8.0, 24.0));
        assert_eq!((m.tpot_ms.p50, m.tpot_ms.p90, m.tpot_ms.p99), (2.0, 3.0, 3.0));
        assert_eq!(m.tokens_per_s, 3.0 * 5.0 / 0.024);
        assert_eq!(m.tokens_per_s_per_gpu, m.tokens_per_s / 2.0);
        assert_eq!((m.samples, m.tokens_per_s_ci95, m.tpot_ms_ci95), (3, None, None));
    }

    #[test]
    fn one_token_has_no_steps() {
        let m = record("r", |s| s.output_tokens = 1, 0, &[(10.0, 0.0)]).metrics.unwrap();
        assert_eq!((m.tpot_ms.p50, m.tpot_ms.p99, m.completion_ms), (0.0, 0.0, 10.0));
        assert_eq!(m.tpot_ms_ci95, None);
    }

    #[test]
    fn a_whole_without_steps_is_taken_for_their_mean() {
        let mut run = record("r", |_| (), 0, &[(1.0, 2.0)]);
        Arc::make_mut(&mut run.samples)[0].steps_ms.clear();
        assert_eq!(metrics(&run.spec, &[&run.samples], 0).unwrap().tpot_ms.p50, 2.0);
        assert_eq!(metrics(&run.spec, &[], 0), None);
    }

    fn six() -> Vec<(f64, f64)> {
        (0..LEAST_SAMPLES).map(|i| (10.0, 1.0 + i as f64 / 100.0)).collect()
    }

    #[test]
    fn measurements_have_intervals_and_simulations_do_not() {
        let measured = record("r", |_| (), 0, &six()).metrics.unwrap();
        let [low, high] = measured.tokens_per_s_ci95.unwrap();
        assert!(low < measured.tokens_per_s && measured.tokens_per_s < high);
        let [low, high] = measured.tpot_ms_ci95.unwrap();
        assert!(low < measured.tpot_ms.p50 && measured.tpot_ms.p50 < high);
        let spec = sim_record("s", |_| (), 1.0, 1.0).spec;
        let samples = record("r", |_| (), 0, &six()).samples;
        assert_eq!(metrics(&spec, &[&samples], 0).unwrap().tokens_per_s_ci95, None);
    }

    #[test]
    fn rounds_are_pooled_in_order_and_failures_give_way() {
        let ladder = |s: &mut Spec| s.architecture = plan::Architecture::Ladder(plan::LayerSet::All);
        let mut failed = record("b1", |_| (), 1, &[(1.0, 1.0)]);
        (failed.status, failed.metrics, failed.reason) =
            (Status::Failed, None, Some("rank 1 died".into()));
        let mut first = record("a0", |_| (), 0, &[(10.0, 1.0), (10.0, 1.0)]);
        first.overlap = Some(Overlap { comm_ms: 1.0, exposed_comm_ms: 1.0, ..Overlap::default() });
        let mut last = record("a2", |_| (), 2, &[(10.0, 1.1), (10.0, 1.1), (10.0, 1.1)]);
        last.overlap = Some(Overlap { comm_ms: 3.0, exposed_comm_ms: 0.0, ..Overlap::default() });
        last.warnings = vec!["hot".into()];
        let mut alone = record("c0", |s| s.tp = 3, 0, &[(1.0, 1.0)]);
        (alone.status, alone.metrics, alone.reason) =
            (Status::Skipped, None, Some("3 does not divide 8".into()));

        let cells =
            aggregate(&[first, record("l0", ladder, 0, &[(9.0, 1.0)]), failed, last, alone.clone()]);
        let names: Vec<&str> = cells.iter().map(|r| r.run.as_str()).collect();
        assert_eq!(names, ["a2", "l0", "c0"]);
        assert_eq!(cells[0].runs, ["a0", "a2"]);
        let m = cells[0].metrics.as_ref().unwrap();
        assert_eq!((m.samples, m.tpot_ms.p50, cells[0].samples.len()), (5, 1.1, 5));
        let overlap = cells[0].overlap.unwrap();
        assert_eq!(
            (overlap.comm_ms, overlap.exposed_comm_ms, overlap.overlap_pct),
            (2.0, 0.5, Some(75.0))
        );
        assert_eq!(cells[0].warnings, ["hot", "ignoring run b1 (round 2): failed: rank 1 died"]);
        assert_eq!(cells[2], alone, "a skipped cell stays as it is");
    }

    #[test]
    fn a_repeated_round_counts_once_and_runs_of_no_experiment_are_all_pooled() {
        let run = |name: &str, round, ms: f64, experiment: Option<&str>| {
            let mut run = record(name, |_| (), round, &[(10.0, ms)]);
            run.experiment = experiment.map(str::to_owned);
            run
        };
        let mut failed = run("a3", 0, 9.0, Some("a"));
        (failed.status, failed.metrics) = (Status::Failed, None);
        let a = |name, round, ms| run(name, round, ms, Some("a"));
        let mut records = vec![a("a0", 0, 1.0), a("a1", 1, 2.0), a("a2", 0, 4.0), failed];
        let [cell] = &aggregate(&records)[..] else { panic!("one cell") };
        assert_eq!(cell.runs, ["a0", "a1"], "the repetition has not reached round 1");
        records.push(a("a4", 1, 6.0));
        let [cell] = &aggregate(&records)[..] else { panic!("one cell") };
        assert_eq!(cell.runs, ["a2", "a4"]);
        assert_eq!(cell.metrics.as_ref().unwrap().tpot_ms.p50, 5.0);
        assert_eq!(cell.warnings.len(), 1, "a failure of the repetition is named");
        let alone = [run("r0", 0, 1.0, None), run("r1", 0, 2.0, None), run("b0", 0, 3.0, Some("b"))];
        assert_eq!(aggregate(&alone)[0].runs, ["r0", "r1", "b0"]);
    }

    #[test]
    fn machines_are_not_pooled() {
        let on = |run, host: &str| {
            let mut record = record(run, |_| (), 0, &[(1.0, 1.0)]);
            record.environment.insert("host".into(), host.into());
            record
        };
        assert_eq!(aggregate(&[on("a", "x"), on("b", "y"), on("c", "x")]).len(), 2);
    }

    #[test]
    fn stalls_are_said_not_dropped() {
        assert!(is_unsteady(11.1, 10.0) && is_unsteady(8.9, 10.0) && !is_unsteady(10.9, 10.0));
        let stalled = record("r", |_| (), 0, &[(10.0, 1.0), (10.0, 1.0), (90.0, 1.0)]);
        let cell = &aggregate(&[stalled])[0];
        assert_eq!(cell.metrics.as_ref().unwrap().prefill_ms, 10.0);
        assert_eq!(
            cell.warnings,
            [
                "prefill: mean 36.7 ms is far above the median 10.0 ms (3 values); some samples may have stalled"
            ]
        );
    }

    #[test]
    fn aggregating_twice_changes_nothing() {
        let runs = [record("a", |_| (), 0, &six()), record("b", |_| (), 0, &six())];
        let once = aggregate(&runs);
        assert_eq!(aggregate(&once), once);
    }

    fn pass(steps_ms: Vec<f64>) -> Instrumented {
        Instrumented { recorder: "stamps".into(), steps_ms, ..Default::default() }
    }

    fn sample(steps_ms: Vec<f64>) -> Sample {
        Sample { prefill_ms: 1.0, decode_ms: steps_ms.iter().sum(), steps_ms, overlap: None }
    }

    /// Steps that grow with the context and vary a little, `factor` times as long.
    fn steps(factor: f64) -> Vec<f64> {
        (0..200).map(|s| factor * (5.0 + 0.001 * f64::from(s) + 0.02 * f64::from(s * 7 % 5))).collect()
    }

    #[test]
    fn the_overhead_is_the_ratio_of_medians_and_its_interval_holds_it() {
        let spec = spec();
        let found = overhead(&spec, &[sample(steps(1.0)), sample(steps(1.0))], pass(steps(1.03)));
        assert!((found.overhead.unwrap() - 1.03).abs() < 1e-9, "{found:?}");
        let [low, high] = found.overhead_ci95.unwrap();
        assert!(low > 1.02 && low <= 1.03 && (1.03..1.04).contains(&high), "{low}..{high}");
        assert!((found.tpot_ms / 1.03 - median(&steps(1.0)).unwrap()).abs() < 1e-9);
    }

    /// Records of generations that were composed of windows of several replays.
    #[test]
    fn what_composed_passes_left_is_read() {
        let old = r#"{"recorder":"cuda events, rotating K=8","windows":8,"steps_ms":[2.0],"stretch":1.1,"clipped":0.01}"#;
        let read: Instrumented = serde_json::from_str(old).unwrap();
        assert_eq!((read.recorder.as_str(), read.steps_ms), ("cuda events, rotating K=8", vec![2.0]));
    }

    #[test]
    fn a_pass_that_took_far_longer_is_told_and_one_that_may_not_have_is_not() {
        let spec = spec();
        let said = |factor: f64| {
            let samples = [sample(steps(1.0)), sample(steps(1.0))];
            disturbed(&overhead(&spec, &samples, pass(steps(factor))))
        };
        assert_eq!([said(1.0), said(1.04)], [None, None]);
        let text = said(1.21).expect("a warning");
        assert!(text.starts_with("steps took 1.21 x as long while 'stamps' timed"), "{text}");
        let unsure =
            Instrumented { overhead: Some(1.06), overhead_ci95: Some([1.01, 1.12]), ..pass(Vec::new()) };
        assert_eq!(disturbed(&unsure), None);
    }

    #[test]
    fn without_steps_there_is_no_overhead_and_with_few_no_interval() {
        let spec = spec();
        let none = overhead(&spec, &[sample(steps(1.0))], pass(Vec::new()));
        assert_eq!((none.overhead, none.overhead_ci95), (None, None));
        let few = overhead(&spec, &[sample(vec![2.0; 8])], pass(vec![3.0; 8]));
        assert_eq!((few.overhead, few.overhead_ci95), (Some(1.5), None));
    }

    #[test]
    fn rounds_are_paired_and_other_recorders_left_out() {
        let run = |name, recorder: &str, drift: f64, cost: f64| {
            let mut record = record(name, |_| (), 0, &[(0.0, 1.0)]);
            record.environment.insert("recorder".into(), recorder.into());
            record.samples = vec![sample(steps(drift))].into();
            record.instrumented = Some(pass(steps(drift * cost)));
            record
        };
        let runs = [
            run("a", "cuda events around modules", 1.0, 9.0),
            run("b", "stamps", 1.0, 1.02),
            run("c", "stamps", 1.5, 1.02),
        ];
        let found = pooled(&runs[2], &runs.iter().collect::<Vec<_>>()).unwrap();
        let [low, high] = found.overhead_ci95.unwrap();
        assert!(low < 1.03 && high > 1.01 && (found.overhead.unwrap() - 1.02).abs() < 0.01, "{found:?}");
        assert_eq!(found.steps_ms.len(), 400);
        assert_eq!(pooled(&record("d", |_| (), 0, &[(0.0, 1.0)]), &[]), None);
    }
}
