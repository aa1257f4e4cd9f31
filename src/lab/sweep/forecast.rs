//! What a sweep would do, before it starts: cells, runs, what is stored already, what cannot run and
//! why, and how long the rest should take, with what that rests on.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::time::{Duration, Instant};

use super::Experiment;
use machine::hardware::{Profile, Stack, Target, Tflops};
use run::sim;
use run::{Feasibility, Shared};
use table::{Spec, Status};

/// What stored runs say of a cell.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Past {
    /// Rounds that are stored.
    pub rounds: BTreeSet<u32>,
    /// Completion latency of the newest run (ms).
    pub completion_ms: f64,
}

/// What is known of runs, for a forecast.
#[derive(Clone, Debug, Default)]
pub struct History {
    /// Of the experiment's cells, by [`Spec::key`].
    pub cells: HashMap<String, Past>,
    /// Executed runs of any cells, with their completion latency (ms): what predictions are scaled by.
    pub executed: Vec<(Spec, f64)>,
}

/// What a sweep would do.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Forecast {
    /// Cells of the grid.
    pub cells: usize,
    /// How many passes the sweep makes over the cells.
    pub rounds: u32,
    /// Runs of cells that can run: cells times rounds.
    pub runs: usize,
    /// Of those, finished and stored.
    pub stored: usize,
    /// Cells that cannot run, by reason.
    pub unable: Vec<Unable>,
    /// How long the runs that are left should take (seconds); `None` where nothing can be said.
    pub seconds: Option<f64>,
    /// What that rests on: runs that are left, by how their time is known.
    pub rests_on: BTreeMap<Basis, usize>,
    /// Simulated cells a second on this machine, where there are any to simulate.
    pub cells_per_s: Option<f64>,
}

/// How the time of a run is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Basis {
    /// The cell was run before.
    SameCell,
    /// The simulator's prediction, scaled by what stored runs of other cells took on this machine.
    Scaled,
    /// The simulator's prediction for a machine of nominal speed: no stored run to scale it by.
    Nominal,
    /// Some of the cells were simulated, just now.
    Timed,
}

impl Basis {
    /// In words, with what nobody has measured: how long it takes to start a run.
    pub fn text(self) -> String {
        let known = match self {
            Self::SameCell => "stored runs of the same cell",
            Self::Scaled => "the simulator, scaled by stored runs of other cells",
            Self::Nominal => "the simulator on a nominal CPU, a guess: nothing stored to scale it by",
            // nothing is started for these
            Self::Timed => return "cells simulated just now".into(),
        };
        let millions = WEIGHTS_PER_S / 1e6;
        format!("{known}, starts assumed at {START_S} s and {millions:.0} million weights a second")
    }
}

/// Cells that cannot run for the same reason.
#[derive(Clone, Debug, PartialEq)]
pub struct Unable {
    /// Whether they are skipped or out of memory.
    pub status: Status,
    /// How many cells there are of that kind.
    pub cells: usize,
    /// The first of them.
    pub example: String,
    /// Its reason, with its arithmetic.
    pub reason: String,
}

/// Memory bandwidth and arithmetic of a CPU of which nothing is known: a few cores of a server.
const NOMINAL_GB_S: f64 = 20.0;
const NOMINAL_GFLOPS_A_CORE: f64 = 20.0;
/// Starting a process, its threads, its trace (seconds). Assumed, as is the next: forecasts say so.
const START_S: f64 = 0.3;
/// Weights made or read (parameters a second).
const WEIGHTS_PER_S: f64 = 1.5e8;
/// Simulating is timed for no longer than this.
const TIMING: Duration = Duration::from_millis(60);
/// Cells that are simulated to time it.
const TIMED: usize = 6;

/// Forecasts a sweep. `stop` is asked between cells: `None` when it says so.
pub fn forecast(
    experiment: &Experiment,
    history: &History,
    stop: &dyn Fn() -> bool,
) -> Option<Forecast> {
    let mut forecast = Forecast {
        cells: experiment.cells.len(),
        rounds: experiment.rounds,
        unable: unable(experiment),
        ..Forecast::default()
    };
    let shared = Shared::default();
    let scale = scale(history, &shared);
    let (mut seconds, mut known) = (0.0, true);
    let mut simulated: Vec<&Spec> = Vec::new();
    for cell in experiment.cells.iter().filter(|cell| cell.feasibility == Feasibility::Runs) {
        if stop() {
            return None;
        }
        // a key is a hash of the whole cell: of a hundred thousand cells half a second
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
        let generations = f64::from(cell.spec.samples + cell.spec.warmup);
        let (basis, completion_ms) = match (past, scale) {
            (Some(past), _) => (Basis::SameCell, Some(past.completion_ms)),
            (None, Some(scale)) => (Basis::Scaled, nominal_ms(&cell.spec, &shared).map(|ms| ms * scale)),
            (None, None) => (Basis::Nominal, nominal_ms(&cell.spec, &shared)),
        };
        match completion_ms {
            Some(ms) => {
                seconds += left as f64 * (start_s(&cell.spec, &shared) + generations * ms / 1e3);
                *forecast.rests_on.entry(basis).or_default() += left;
            }
            None => known = false,
        }
    }
    if !simulated.is_empty() {
        match cell_s(&simulated, &shared, stop) {
            Some(each) => {
                let each = each / rayon::current_num_threads() as f64;
                seconds += each * simulated.len() as f64;
                forecast.cells_per_s = Some(1.0 / each);
                forecast.rests_on.insert(Basis::Timed, simulated.len());
            }
            None => known = false,
        }
    }
    forecast.seconds = known.then_some(seconds);
    (!stop()).then_some(forecast)
}

/// Cells that cannot run, grouped by what their reasons say but for the numbers in them.
fn unable(experiment: &Experiment) -> Vec<Unable> {
    let mut groups: Vec<(String, Unable)> = Vec::new();
    for cell in &experiment.cells {
        let (status, reason) = match &cell.feasibility {
            Feasibility::Runs => continue,
            Feasibility::Skipped(reason) => (Status::Skipped, reason),
            Feasibility::Oom(reason) => (Status::Oom, reason),
        };
        let kind = without_numbers(reason);
        match groups.iter_mut().find(|(of, group)| *of == kind && group.status == status) {
            Some((_, group)) => group.cells += 1,
            None => {
                let (example, reason) = (cell.spec.label(), reason.clone());
                groups.push((kind, Unable { status, cells: 1, example, reason }));
            }
        }
    }
    groups.into_iter().map(|(_, group)| group).collect()
}

fn without_numbers(text: &str) -> String {
    text.chars().filter(|c| !c.is_ascii_digit() && *c != '.').collect()
}

/// What a run takes besides its generations (seconds).
fn start_s(spec: &Spec, shared: &Shared) -> f64 {
    let parameters = shared.model(&spec.model).map_or(0, |model| model.shape.parameters());
    START_S + parameters as f64 / WEIGHTS_PER_S
}

/// Measured over predicted completion of stored runs: their median; `None` without any.
fn scale(history: &History, shared: &Shared) -> Option<f64> {
    let ratios: Vec<f64> = history
        .executed
        .iter()
        .filter_map(|(spec, ms)| Some(ms / nominal_ms(spec, shared)?))
        .filter(|ratio| ratio.is_finite() && *ratio > 0.0)
        .collect();
    base::statistics::median(&ratios)
}

/// Completion latency (ms) by the simulator on a CPU of nominal speed that all ranks share.
fn nominal_ms(spec: &Spec, shared: &Shared) -> Option<f64> {
    let model = shared.model(&spec.model).ok()?;
    let target = nominal(spec.tp)?;
    let plans = shared.plans(spec, &model.shape, &target).ok()?;
    let prediction = sim::predict(&plans, spec, &model.shape, &target);
    Some(prediction.prefill_ms + prediction.decode_ms)
}

/// The nominal CPU as one of `tp` ranks has it.
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
    profile.tflops = Tflops { bf16: tflops, f16: tflops, f32: tflops, fp8: None };
    target.stack.launch_us = 0.0;
    Some(target)
}

/// How long simulating one of these cells takes on one core (seconds, mean): some of them are simulated,
/// a few steps each, and the rest of their steps is added up.
fn cell_s(specs: &[&Spec], shared: &Shared, stop: &dyn Fn() -> bool) -> Option<f64> {
    let began = Instant::now();
    let stride = specs.len().div_ceil(TIMED).max(1);
    let mut times: Vec<f64> = Vec::new();
    for spec in specs.iter().step_by(stride) {
        if stop() || (!times.is_empty() && began.elapsed() > TIMING) {
            break;
        }
        times.extend(one_cell_s(spec, shared));
    }
    (!times.is_empty()).then(|| times.iter().sum::<f64>() / times.len() as f64)
}

fn one_cell_s(spec: &Spec, shared: &Shared) -> Option<f64> {
    let model = shared.model(&spec.model).ok()?;
    let target = shared.target(&spec.hardware, &spec.stack, &spec.set).ok()?;
    // plans are shared by many cells
    let plans = shared.plans(spec, &model.shape, &target).ok()?;
    let timed = |output_tokens: u32| -> Option<f64> {
        let spec = Spec { output_tokens, ..spec.clone() };
        let began = Instant::now();
        sim::simulate_plans(&plans, &spec, &model.shape, &target, false).ok()?;
        Some(began.elapsed().as_secs_f64())
    };
    let (few, some) = (spec.output_tokens.min(9), spec.output_tokens.min(25));
    let (short, long) = (timed(few)?, timed(some)?);
    let a_step = if some > few { (long - short).max(0.0) / f64::from(some - few) } else { 0.0 };
    Some(long + a_step * f64::from(spec.output_tokens - some))
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    fn experiment(text: &str) -> Experiment {
        Experiment::from_str(text, Path::new("x.toml")).unwrap()
    }

    fn of(experiment: &Experiment, history: &History) -> Forecast {
        forecast(experiment, history, &|| false).unwrap()
    }

    const CPU: &str = "backend = \"cpu\"\n[model]\nname = \"tiny\"\n[workload]\nsamples = 4\nwarmup = 1\nrounds = 3\n\
                       [grid]\narchitecture = [\"standard\", \"ladder\"]\nbatch = [1, 4]\n";

    #[test]
    fn what_is_stored_needs_no_time_and_says_how_long_the_same_cell_takes() {
        let experiment = experiment(CPU);
        let nothing = of(&experiment, &History::default());
        assert_eq!((nothing.cells, nothing.rounds, nothing.runs, nothing.stored), (4, 3, 12, 0));
        assert_eq!(nothing.rests_on, BTreeMap::from([(Basis::Nominal, 12)]));
        // the first cell ran twice and took 10 s a generation
        let past = Past { rounds: [0, 2].into(), completion_ms: 10_000.0 };
        let cells = HashMap::from([(experiment.cells[0].spec.key(), past)]);
        let some = of(&experiment, &History { cells, executed: Vec::new() });
        assert_eq!((some.runs, some.stored), (12, 2));
        assert_eq!(some.rests_on, BTreeMap::from([(Basis::SameCell, 1), (Basis::Nominal, 9)]));
        for basis in some.rests_on.keys() {
            let text = basis.text();
            assert!(
                text.ends_with("starts assumed at 0.3 s and 150 million weights a second"),
                "{text}"
            );
        }
        let more = some.seconds.unwrap() - nothing.seconds.unwrap() * 9.0 / 12.0;
        assert!((50.0..51.0).contains(&more), "5 generations of 10 s and a start, not {more} s");
    }

    #[test]
    fn runs_of_other_cells_scale_what_the_simulator_says() {
        let experiment = experiment(CPU);
        let shared = Shared::default();
        let spec = &experiment.cells[1].spec;
        let executed = vec![(spec.clone(), 1000.0 * nominal_ms(spec, &shared).unwrap())];
        let scaled = of(&experiment, &History { cells: HashMap::new(), executed });
        assert_eq!(scaled.rests_on, BTreeMap::from([(Basis::Scaled, 12)]));
        let (plain, starts) = (of(&experiment, &History::default()), 12.0 * start_s(spec, &shared));
        let ratio = (scaled.seconds.unwrap() - starts) / (plain.seconds.unwrap() - starts);
        assert!((ratio - 1000.0).abs() < 1.0, "{ratio}");
    }

    #[test]
    fn simulated_cells_are_timed_and_reasons_are_grouped() {
        let experiment = experiment(
            "backend = \"sim\"\n[model]\nname = \"llama-3-70b\"\n[workload]\noutput_tokens = 64\n\
             [grid]\ntp = [1, 2, 3, 5, 8]\nbatch = [1, 16]\n",
        );
        let forecast = of(&experiment, &History::default());
        assert_eq!((forecast.cells, forecast.runs), (10, 4));
        assert_eq!(forecast.rests_on, BTreeMap::from([(Basis::Timed, 4)]));
        assert!(!Basis::Timed.text().contains("assumed"), "no run is started");
        assert!(forecast.cells_per_s.unwrap() > 1.0 && forecast.seconds.unwrap() < 10.0);
        let unable: Vec<(Status, usize)> = forecast.unable.iter().map(|u| (u.status, u.cells)).collect();
        assert_eq!(unable, [(Status::Oom, 2), (Status::Skipped, 4)]);
        assert!(forecast.unable[1].reason.contains('3'), "{:?}", forecast.unable[1]);
    }

    #[test]
    fn a_forecast_that_nobody_waits_for_ends() {
        assert_eq!(super::forecast(&experiment(CPU), &History::default(), &|| true), None);
    }
}
