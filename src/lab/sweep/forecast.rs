//! Forecast of a sweep: cells, runs, stored results, cells that cannot run with reasons, and the estimated time with
//! its basis.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::time::{Duration, Instant};

use super::{Cell, Experiment};
use base::text::duration;
use machine::hardware::{Profile, Stack, Target, Tflops};
use run::Feasibility;
use run::sim::{SimulatedCell, Simulator};
use table::{Record, Spec, Status};

#[derive(Clone, Debug, Default, PartialEq)]
pub struct CellHistory {
    pub rounds: BTreeSet<u32>,
    /// Completion latency of the newest run (ms).
    pub completion_ms: f64,
}

/// Stored runs that a forecast uses.
#[derive(Clone, Debug, Default)]
pub struct RunHistory {
    /// Runs of the experiment's cells, by [`Spec::key`].
    pub cells: HashMap<String, CellHistory>,
    /// Executed runs of any cells with their completion latency (ms), which calibrate predictions.
    pub executed: Vec<(Spec, f64)>,
    /// Load average of this machine now, if known.
    pub load: Option<f64>,
}

/// Maximum number of stored runs used to scale predictions.
const SCALING_RUNS: usize = 8;

impl RunHistory {
    /// Takes the stored runs that predict how long these cells take at this load. `past` finds those of a cell by
    /// [`Spec::key`]; `records` are all stored runs, oldest first.
    pub fn new(
        cells: &[Cell],
        past: impl Fn(&str) -> Option<CellHistory>,
        records: &[Record],
        load: Option<f64>,
    ) -> Self {
        let of_cell = |cell: &Cell| {
            let key = cell.spec.key();
            past(&key).map(|past| (key, past))
        };
        let mut seen = HashSet::new();
        let executed = records
            .iter()
            .rev()
            .filter(|record| !record.spec.backend.is_simulated())
            .filter_map(|record| Some((record, record.metrics.as_ref()?.completion_ms)))
            .filter(|(record, _)| seen.insert(record.spec.key()))
            .map(|(record, ms)| (record.spec.clone(), ms))
            .take(SCALING_RUNS)
            .collect();
        Self { cells: cells.iter().filter_map(of_cell).collect(), executed, load }
    }

    /// Finished runs by [`Spec::key`], of records oldest first. A sweep does not start their rounds again. Runs created
    /// before `since` count only as a measure of the time.
    pub fn past(records: &[Record], since: &str) -> HashMap<String, CellHistory> {
        let mut cells: HashMap<String, CellHistory> = HashMap::new();
        for record in records {
            if let Some(metrics) = record.metrics.as_ref().filter(|_| record.is_finished()) {
                let past = cells.entry(record.spec.key()).or_default();
                if record.created.as_str() >= since {
                    past.rounds.insert(record.round);
                }
                past.completion_ms = metrics.completion_ms;
            }
        }
        cells
    }
}

#[derive(Clone, Debug, Default, PartialEq)]
pub struct Forecast {
    pub cells: usize,
    pub rounds: u32,
    /// Runs of feasible cells: cells times rounds.
    pub runs: usize,
    /// Part of `runs` that is already stored.
    pub stored: usize,
    /// Cells that cannot run, grouped by reason.
    pub unable: Vec<InfeasibleCells>,
    /// Estimated time of the remaining runs in seconds; `None` if unknown.
    pub seconds: Option<f64>,
    /// Number of remaining runs by basis of their estimate.
    pub rests_on: BTreeMap<ForecastBasis, usize>,
    /// Factor by which other work on this machine lengthens the executed runs, contained in `seconds`; at least 1.
    pub slowdown: f64,
}

impl Forecast {
    /// Runs that are not stored yet.
    pub fn left(&self) -> usize {
        self.runs - self.stored
    }

    /// Estimated time in words, as a range if it is rough: `about 15 s`, `40 s to 5 min 20 s`. Other work that loads this
    /// machine now may end, and an unmeasured CPU may be faster or slower than the typical one.
    pub fn time(&self) -> Option<String> {
        /// Factor that the time of an unmeasured CPU may be off by, either way.
        const NOMINAL_ERROR: f64 = 2.0;
        /// Ratio of the ends of a range from which both are shown.
        const WORTH: f64 = 1.5;
        let seconds = self.seconds?;
        let idle = seconds / self.slowdown.max(1.0);
        let error =
            if self.rests_on.contains_key(&ForecastBasis::Nominal) { NOMINAL_ERROR } else { 1.0 };
        let (least, most) = (idle / error, seconds.max(idle * error));
        Some(match () {
            () if seconds < 1.0 => "under a second".to_owned(),
            () if most < WORTH * least => format!("about {}", duration(seconds)),
            () => format!("{} to {}", duration(rounded(least)), duration(rounded(most))),
        })
    }

    /// Basis of the estimated time: `time estimated from stored runs of the same cells`.
    pub fn basis(&self) -> Option<String> {
        let bases: Vec<&str> = self.rests_on.keys().filter_map(|basis| basis.text()).collect();
        let load = if self.slowdown > 1.05 { ", and the load of this machine now" } else { "" };
        (!bases.is_empty()).then(|| format!("time estimated from {}{load}", bases.join(" and ")))
    }
}

/// Seconds of a rough estimate: tens of seconds from a minute on.
fn rounded(seconds: f64) -> f64 {
    if seconds < 60.0 { seconds } else { (seconds / 10.0).round() * 10.0 }
}

/// Basis of a time estimate.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ForecastBasis {
    /// Stored runs of the same cell.
    SameCell,
    /// Simulator prediction, scaled by stored runs of other cells on this machine.
    Scaled,
    /// Simulator prediction for a nominal CPU, without stored runs to scale it by.
    Nominal,
    /// Sample of the cells simulated just now.
    Timed,
}

impl ForecastBasis {
    /// Basis of an estimated time; `None` for cells timed just now.
    pub fn text(self) -> Option<&'static str> {
        match self {
            Self::SameCell => Some("stored runs of the same cells"),
            Self::Scaled => Some("stored runs of other cells, scaled by the simulator"),
            Self::Nominal => Some("a typical CPU (rough: no run is stored yet)"),
            Self::Timed => None,
        }
    }
}

/// Cells that cannot run for the same reason.
#[derive(Clone, Debug, PartialEq)]
pub struct InfeasibleCells {
    /// Either skipped or oom.
    pub status: Status,
    pub cells: usize,
    /// Label of the first such cell.
    pub example: String,
    /// Reason with the numbers of the first cell.
    pub reason: String,
}

/// Assumed memory bandwidth (GB/s) and compute of an unknown CPU: a few cores of a server.
const NOMINAL_GB_S: f64 = 20.0;
const NOMINAL_GFLOPS_A_CORE: f64 = 20.0;
/// Assumed time to start a process, its threads and its trace, in seconds.
const START_S: f64 = 0.3;
/// Assumed rate of creating or loading weights (parameters per second).
const WEIGHTS_PER_S: f64 = 1.5e8;
/// Time limit for timing simulations.
const TIMING_LIMIT: Duration = Duration::from_millis(60);
/// Number of cells simulated for timing.
const TIMED_CELLS: usize = 6;

/// Forecasts a sweep. Checks `stop` between cells and returns `None` if it is true.
pub fn forecast(
    experiment: &Experiment,
    history: &RunHistory,
    stop: &dyn Fn() -> bool,
) -> Option<Forecast> {
    let mut forecast = Forecast {
        cells: experiment.cells.len(),
        rounds: experiment.rounds,
        unable: unable(experiment),
        slowdown: 1.0,
        ..Forecast::default()
    };
    let estimator = Estimator::new(history);
    let (mut seconds, mut known) = (0.0, true);
    let mut simulated: Vec<&Spec> = Vec::new();
    for cell in experiment.cells.iter().filter(|cell| cell.feasibility == Feasibility::Runs) {
        if stop() {
            return None;
        }
        // computing keys is slow: half a second for a hundred thousand cells
        let stored = (!history.cells.is_empty()).then(|| cell.spec.key());
        let past = stored.and_then(|key| history.cells.get(&key));
        let done = past.map_or(0, |past| past.rounds.range(..experiment.rounds).count());
        let left = experiment.rounds as usize - done;
        forecast.runs += experiment.rounds as usize;
        forecast.stored += done;
        if left == 0 {
            continue;
        }
        if cell.spec.backend.is_simulated() {
            simulated.extend(std::iter::repeat_n(&cell.spec, left));
            continue;
        }
        match estimator.run(&cell.spec, past) {
            Some((basis, a_run)) => {
                let slowdown = slowdown(&cell.spec, history.load);
                forecast.slowdown = forecast.slowdown.max(slowdown);
                seconds += left as f64 * a_run * slowdown;
                *forecast.rests_on.entry(basis).or_default() += left;
            }
            None => known = false,
        }
    }
    if !simulated.is_empty() {
        match cell_s(&simulated, &estimator.simulator, stop) {
            Some(each) => {
                let each = each / rayon::current_num_threads() as f64;
                seconds += each * simulated.len() as f64;
                forecast.rests_on.insert(ForecastBasis::Timed, simulated.len());
            }
            None => known = false,
        }
    }
    forecast.seconds = known.then_some(seconds);
    (!stop()).then_some(forecast)
}

/// Work of one run of each cell, for the remaining time of a sweep: predicted seconds if any cell is executed, else
/// layers times steps. 0 for cells that cannot run, and for simulated cells beside executed ones, which take far longer.
pub fn work(cells: &[Cell], history: &RunHistory) -> Vec<f64> {
    let estimator = Estimator::new(history);
    let any_executed = cells.iter().any(|cell| !cell.spec.backend.is_simulated());
    let seconds_of = |cell: &Cell| {
        let spec = &cell.spec;
        if cell.feasibility != Feasibility::Runs || (any_executed && spec.backend.is_simulated()) {
            return 0.0;
        }
        if spec.backend.is_simulated() {
            let layers = estimator.simulator.model(&spec.model).map_or(1, |model| model.shape.layers);
            let steps = f64::from(spec.output_tokens) * f64::from(spec.micro_batches.max(1));
            return f64::from(layers) * steps;
        }
        let past = history.cells.get(&spec.key());
        let a_run = estimator.run(spec, past).map_or(1.0, |(_, seconds)| seconds);
        a_run * slowdown(spec, history.load)
    };
    cells.iter().map(seconds_of).collect()
}

/// Factor by which this load lengthens a cell, whose ranks need a core each: all threads share the cores.
fn slowdown(spec: &Spec, load: Option<f64>) -> f64 {
    let cores = std::thread::available_parallelism().map_or(1.0, |n| n.get() as f64);
    match load.filter(|_| spec.backend.computes_on_cores()) {
        Some(load) => {
            let own = f64::from(spec.ranks());
            ((load + own) / cores).max(1.0) / (own / cores).max(1.0)
        }
        None => 1.0,
    }
}

/// Estimates the time of executed runs.
struct Estimator {
    simulator: Simulator,
    scale: Option<f64>,
}

impl Estimator {
    fn new(history: &RunHistory) -> Self {
        let simulator = Simulator::default();
        Self { scale: scale(history, &simulator), simulator }
    }

    /// Time of a run on an idle machine in seconds, and its basis; `None` if unknown.
    fn run(&self, spec: &Spec, past: Option<&CellHistory>) -> Option<(ForecastBasis, f64)> {
        let generations = f64::from(spec.samples + spec.warmup);
        let (basis, ms) = match (past, self.scale) {
            (Some(past), _) => (ForecastBasis::SameCell, past.completion_ms),
            (None, Some(scale)) => (ForecastBasis::Scaled, nominal_ms(spec, &self.simulator)? * scale),
            (None, None) => (ForecastBasis::Nominal, nominal_ms(spec, &self.simulator)?),
        };
        Some((basis, start_s(spec, &self.simulator) + generations * ms / 1e3))
    }
}

/// Cells that cannot run, grouped by reason without its numbers.
fn unable(experiment: &Experiment) -> Vec<InfeasibleCells> {
    let mut groups: Vec<(String, InfeasibleCells)> = Vec::new();
    for cell in &experiment.cells {
        let Some((status, reason)) = cell.feasibility.obstacle() else { continue };
        let kind = without_numbers(reason);
        match groups.iter_mut().find(|(of, group)| *of == kind && group.status == status) {
            Some((_, group)) => group.cells += 1,
            None => {
                let (example, reason) = (cell.spec.label(), reason.to_owned());
                groups.push((kind, InfeasibleCells { status, cells: 1, example, reason }));
            }
        }
    }
    groups.into_iter().map(|(_, group)| group).collect()
}

fn without_numbers(text: &str) -> String {
    text.chars().filter(|c| !c.is_ascii_digit() && *c != '.').collect()
}

/// Overhead of a run besides its generations (seconds).
fn start_s(spec: &Spec, simulator: &Simulator) -> f64 {
    let parameters = simulator.model(&spec.model).map_or(0, |model| model.shape.parameters());
    START_S + parameters as f64 / WEIGHTS_PER_S
}

/// Median ratio of measured to predicted completion latency of stored runs; `None` without any.
fn scale(history: &RunHistory, simulator: &Simulator) -> Option<f64> {
    let ratios: Vec<f64> = history
        .executed
        .iter()
        .filter_map(|(spec, ms)| Some(ms / nominal_ms(spec, simulator)?))
        .filter(|ratio| ratio.is_finite() && *ratio > 0.0)
        .collect();
    base::statistics::median(&ratios)
}

/// Simulated completion latency (ms) on a nominal CPU shared by all ranks.
fn nominal_ms(spec: &Spec, simulator: &Simulator) -> Option<f64> {
    let model = simulator.model(&spec.model).ok()?;
    let cell = simulator.cell_on(spec, &model.shape, nominal(spec.ranks())?.into()).ok()?;
    let prediction = cell.predict();
    Some(prediction.prefill_ms + prediction.decode_ms)
}

/// Share of the nominal CPU for one of `tp` ranks.
fn nominal(tp: u32) -> Option<Target> {
    let mut target = Target { profile: Profile::load("l40s").ok()?, stack: Stack::load("native").ok()? };
    let cores = std::thread::available_parallelism().map_or(1.0, |n| n.get() as f64);
    let share = (cores / f64::from(tp.max(1))).min(1.0);
    let profile = &mut target.profile;
    profile.name = "nominal CPU".to_owned();
    profile.tables = None;
    profile.gpus_per_node = tp.max(profile.gpus_per_node);
    profile.hbm_gb_s = NOMINAL_GB_S / f64::from(tp.max(1));
    (profile.hbm_efficiency, profile.compute_efficiency) = (1.0, 1.0);
    let tflops = NOMINAL_GFLOPS_A_CORE / 1e3 * share;
    profile.tflops = Tflops { bf16: tflops, f16: tflops, f32: tflops, fp8: None, fp4: None };
    target.stack.launch_us = 0.0;
    Some(target)
}

/// Mean time to simulate one of these cells on one core (seconds). Simulates a few steps of a sample of cells and
/// extrapolates.
fn cell_s(specs: &[&Spec], simulator: &Simulator, stop: &dyn Fn() -> bool) -> Option<f64> {
    let began = Instant::now();
    let stride = specs.len().div_ceil(TIMED_CELLS).max(1);
    let mut times: Vec<f64> = Vec::new();
    for spec in specs.iter().step_by(stride) {
        if stop() || (!times.is_empty() && began.elapsed() > TIMING_LIMIT) {
            break;
        }
        times.extend(one_cell_s(spec, simulator));
    }
    (!times.is_empty()).then(|| times.iter().sum::<f64>() / times.len() as f64)
}

fn one_cell_s(spec: &Spec, simulator: &Simulator) -> Option<f64> {
    // plans are shared by many cells
    let cell = simulator.cell(spec).ok()?;
    let timed = |output_tokens: u32| -> Option<f64> {
        let spec = Spec { output_tokens, ..spec.clone() };
        let cell = SimulatedCell { spec: &spec, ..cell.clone() };
        let began = Instant::now();
        cell.run(false).ok()?;
        Some(began.elapsed().as_secs_f64())
    };
    let (few, some) = (spec.output_tokens.min(9), spec.output_tokens.min(25));
    let (short, long) = (timed(few)?, timed(some)?);
    let a_step = if some > few { (long - short).max(0.0) / f64::from(some - few) } else { 0.0 };
    Some(long + a_step * f64::from(spec.output_tokens - some))
}

/// Estimates remaining time. Work is in any unit, the same for all runs, such as predicted seconds.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct RemainingTime {
    /// Time (seconds) and work at the first finished run, which also computes what the others share.
    first: Option<(f64, f64)>,
}

/// Work that counts as done at the predicted speed, as share of all: the estimate starts at the prediction and follows
/// the runs gradually.
const PRIOR_SHARE: f64 = 0.1;
/// Evidence needed without a prediction: seconds and share of all work.
const LEAST_S: f64 = 2.0;
const LEAST_SHARE: f64 = 0.05;

impl RemainingTime {
    /// Records that a run has finished at this time (seconds since the start), after this much work.
    pub fn finished(&mut self, elapsed_s: f64, done: f64) {
        self.first.get_or_insert((elapsed_s, done));
    }

    /// Seconds until `left` is done; `is_predicted` if work is in predicted seconds. `None` without enough evidence.
    pub fn seconds(&self, elapsed_s: f64, done: f64, left: f64, is_predicted: bool) -> Option<f64> {
        if left <= 0.0 {
            return None;
        }
        let all = done + left;
        if is_predicted {
            let prior = PRIOR_SHARE * all;
            return Some((elapsed_s + prior) / (done + prior) * left);
        }
        let (begun_s, before) = self.first?;
        let (spent, worked) = (elapsed_s - begun_s, done - before);
        (spent >= LEAST_S && worked >= LEAST_SHARE * all).then(|| spent / worked * left)
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    fn experiment(text: &str) -> Experiment {
        Experiment::from_str(text, Path::new("x.toml")).unwrap()
    }

    fn forecast_of(experiment: &Experiment, history: &RunHistory) -> Forecast {
        forecast(experiment, history, &|| false).unwrap()
    }

    const CPU: &str = "backend = \"cpu\"\n[model]\nname = \"tiny\"\n[workload]\nsamples = 4\nwarmup = 1\nrounds = 3\n\
                       [grid]\narchitecture = [\"standard\", \"ladder\"]\nbatch = [1, 4]\n";

    #[test]
    fn what_is_stored_needs_no_time_and_says_how_long_the_same_cell_takes() {
        let experiment = experiment(CPU);
        let nothing = forecast_of(&experiment, &RunHistory::default());
        assert_eq!((nothing.cells, nothing.rounds, nothing.runs, nothing.stored), (4, 3, 12, 0));
        assert_eq!(nothing.rests_on, BTreeMap::from([(ForecastBasis::Nominal, 12)]));
        // the first cell ran twice and took 10 s a generation
        let past = CellHistory { rounds: [0, 2].into(), completion_ms: 10_000.0 };
        let cells = HashMap::from([(experiment.cells[0].spec.key(), past)]);
        let some = forecast_of(&experiment, &RunHistory { cells, ..RunHistory::default() });
        assert_eq!((some.runs, some.stored), (12, 2));
        assert_eq!(
            some.rests_on,
            BTreeMap::from([(ForecastBasis::SameCell, 1), (ForecastBasis::Nominal, 9)])
        );
        let more = some.seconds.unwrap() - nothing.seconds.unwrap() * 9.0 / 12.0;
        assert!((50.0..51.0).contains(&more), "5 generations of 10 s and a start, not {more} s");
    }

    #[test]
    fn runs_of_other_cells_scale_what_the_simulator_says() {
        let experiment = experiment(CPU);
        let simulator = Simulator::default();
        let spec = &experiment.cells[1].spec;
        let executed = vec![(spec.clone(), 1000.0 * nominal_ms(spec, &simulator).unwrap())];
        let scaled = forecast_of(&experiment, &RunHistory { executed, ..RunHistory::default() });
        assert_eq!(scaled.rests_on, BTreeMap::from([(ForecastBasis::Scaled, 12)]));
        let (plain, starts) =
            (forecast_of(&experiment, &RunHistory::default()), 12.0 * start_s(spec, &simulator));
        let ratio = (scaled.seconds.unwrap() - starts) / (plain.seconds.unwrap() - starts);
        assert!((ratio - 1000.0).abs() < 1.0, "{ratio}");
    }

    #[test]
    fn work_on_other_things_lengthens_runs_on_cores() {
        let experiment = experiment(CPU);
        let cores = std::thread::available_parallelism().unwrap().get() as f64;
        let loaded =
            |load| forecast_of(&experiment, &RunHistory { load: Some(load), ..RunHistory::default() });
        let (idle, busy) = (loaded(0.0), loaded(3.0 * cores));
        assert_eq!(
            (idle.slowdown, idle.seconds),
            (1.0, forecast_of(&experiment, &RunHistory::default()).seconds)
        );
        // one rank beside three busy threads a core
        let factor = 3.0 + 1.0 / cores;
        assert!((busy.slowdown - factor).abs() < 1e-9, "{}", busy.slowdown);
        assert!((busy.seconds.unwrap() / idle.seconds.unwrap() - factor).abs() < 1e-6);
        let work = work(&experiment.cells, &RunHistory::default());
        assert!((3.0 * work.iter().sum::<f64>() - idle.seconds.unwrap()).abs() < 1e-6, "three rounds");
        assert!(work[1] > work[0], "four sequences take longer than one: {work:?}");
    }

    #[test]
    fn a_rough_time_is_a_range() {
        let time = |seconds, slowdown, basis| {
            let rests_on = BTreeMap::from([(basis, 18)]);
            let forecast =
                Forecast { seconds: Some(seconds), slowdown, rests_on, ..Forecast::default() };
            forecast.time().unwrap()
        };
        assert_eq!(time(317.0, 4.0, ForecastBasis::Nominal), "40 s to 5 min 20 s");
        assert_eq!(time(80.0, 1.0, ForecastBasis::Nominal), "40 s to 2 min 40 s");
        assert_eq!(time(80.0, 2.0, ForecastBasis::SameCell), "40 s to 1 min 20 s");
        assert_eq!(time(80.0, 1.0, ForecastBasis::SameCell), "about 1 min 20 s");
        assert_eq!(time(0.4, 1.0, ForecastBasis::Timed), "under a second");
    }

    #[test]
    fn simulated_cells_are_timed_and_reasons_are_grouped() {
        let experiment = experiment(
            "backend = \"sim\"\n[model]\nname = \"llama-3-70b\"\n[workload]\noutput_tokens = 64\n\
             [grid]\ntp = [1, 2, 3, 5, 8]\nbatch = [1, 16]\n",
        );
        let forecast = forecast_of(&experiment, &RunHistory::default());
        assert_eq!((forecast.cells, forecast.runs), (10, 4));
        assert_eq!(forecast.rests_on, BTreeMap::from([(ForecastBasis::Timed, 4)]));
        assert!(forecast.seconds.unwrap() < 10.0);
        let unable: Vec<(Status, usize)> = forecast.unable.iter().map(|u| (u.status, u.cells)).collect();
        assert_eq!(unable, [(Status::Oom, 2), (Status::Skipped, 4)]);
        assert!(forecast.unable[1].reason.contains('3'), "{:?}", forecast.unable[1]);
    }

    #[test]
    fn a_forecast_that_nobody_waits_for_ends() {
        assert_eq!(super::forecast(&experiment(CPU), &RunHistory::default(), &|| true), None);
    }

    #[test]
    fn an_estimate_starts_at_the_prediction_and_follows_the_runs() {
        let remaining = RemainingTime::default();
        // 80 s are predicted, and everything takes twice as long
        let at = |done: f64| remaining.seconds(2.0 * done, done, 80.0 - done, true).unwrap();
        assert_eq!(at(0.0), 80.0);
        let (early, half, late) = (at(2.0), at(40.0), at(76.0));
        assert!((80.0..100.0).contains(&early), "no jump after the first seconds: {early}");
        assert!((70.0..80.0).contains(&half), "{half} of 80");
        assert!((7.0..8.0).contains(&late), "{late} of 8");
        assert_eq!(remaining.seconds(160.0, 80.0, 0.0, true), None);
    }

    #[test]
    fn without_a_prediction_the_first_run_and_little_evidence_count_for_nothing() {
        let mut remaining = RemainingTime::default();
        assert_eq!(remaining.seconds(6.0, 0.0, 72.0, false), None);
        // the first takes 6 s, as it reads tables; each other half a second
        remaining.finished(6.0, 1.0);
        assert_eq!(remaining.seconds(7.0, 3.0, 69.0, false), None, "two runs");
        remaining.finished(9.0, 7.0);
        assert_eq!(remaining.seconds(9.0, 7.0, 65.0, false), Some(32.5));
    }
}
