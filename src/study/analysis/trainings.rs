//! Comparison of training runs: loss curves per architecture, means over seeds with intervals, and the difference from
//! a baseline architecture.

use schemars::JsonSchema;
use serde::Serialize;

use base::error::{Error, Result};
use base::statistics::{distinct, interval_of_few, mean};
use plan::{Architecture, CommDType};
use table::{Curve, TrainingSpec};

#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CurvePoint {
    pub step: u32,
    /// Mean over seeds, in nats per token.
    pub nll: f64,
    /// 95 % interval of the mean; `None` with one seed.
    pub nll_ci95: Option<[f64; 2]>,
}

/// Training runs of one architecture that differ only in their seeds.
#[derive(Clone, Debug, PartialEq)]
pub struct ArchitectureCurve {
    pub architecture: Architecture,
    pub seeds: usize,
    /// Held-out loss, at steps that all seeds have reached.
    pub held_out: Vec<CurvePoint>,
    /// Training loss: last step of each stretch, and the mean over seeds and the stretch's steps.
    pub loss: Vec<(u32, f64)>,
}

/// Training runs that differ only in architecture and seed.
#[derive(Clone, Debug, PartialEq)]
pub struct TrainingSet {
    pub spec: TrainingSpec,
    pub miniature: bool,
    pub machine: String,
    /// One curve per architecture, `standard` first, then by start time.
    pub curves: Vec<ArchitectureCurve>,
}

/// Difference of the held-out loss after training from the baseline architecture's, paired by seed.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct ComparedTrainings {
    #[schemars(with = "String")]
    pub architecture: Architecture,
    #[schemars(with = "String")]
    pub baseline: Architecture,
    /// Mean difference in negative log-likelihood over seeds (nats per token).
    pub nll: f64,
    /// 95 % interval of that mean, by Student's t; null with one seed.
    pub nll_ci95: Option<[f64; 2]>,
    /// Number of seeds that both have.
    pub seeds: usize,
}

/// Points of a training-loss curve; each is the mean over a stretch of steps, because the loss of one step is noisy.
const STRETCHES: u32 = 60;

/// Groups training runs, newest first, into comparable sets, the newest run's set first. Runs whose result does not
/// depend on TP are in the sets of every TP.
pub fn training_sets(newest_first: &[Curve]) -> Vec<TrainingSet> {
    let is_of_any_tp = |run: &Curve| run.training.spec.architecture.is_of_any_tp(CommDType::Activations);
    let started = newest_first.iter().enumerate().filter(|(_, run)| !run.curve.is_empty());
    let (of_any_tp, of_one_tp): (Vec<_>, Vec<_>) = started.partition(|(_, run)| is_of_any_tp(run));
    let mut sets: Vec<(TrainingSpec, Vec<(usize, &Curve)>)> = Vec::new();
    for (age, run) in of_one_tp.into_iter().chain(of_any_tp) {
        let spec = run.training.spec.set();
        let mut is_new = true;
        for (known, members) in &mut sets {
            let tp = if is_of_any_tp(run) { known.tp } else { spec.tp };
            if *known == (TrainingSpec { tp, ..spec.clone() }) {
                members.push((age, run));
                is_new = false;
            }
        }
        if is_new {
            sets.push((spec, vec![(age, run)]));
        }
    }
    sets.sort_by_key(|(_, members)| members.iter().map(|(age, _)| *age).min());
    sets.into_iter()
        .map(|(spec, members)| training_set(spec, members.into_iter().map(|(_, run)| run).collect()))
        .collect()
}

/// Set of these training runs.
///
/// # Errors
///
/// Returns an input error if they form several sets, with the differences, or if none has a step.
pub fn one_training_set(all: &[Curve]) -> Result<TrainingSet> {
    let mut sets = training_sets(all);
    match &sets[..] {
        [_] => Ok(sets.remove(0)),
        [] => Err(Error::input_help(
            "nothing to draw: no training has completed a step",
            "`ladderscope adapt` makes some",
        )),
        [first, second, ..] => Err(Error::input_help(
            format!(
                "{} sets of trainings that are not comparable: {}",
                sets.len(),
                first.spec.differences(&second.spec).join("; ")
            ),
            "pass the ids of the trainings, which `adapt` prints",
        )),
    }
}

fn training_set(spec: TrainingSpec, mut members: Vec<&Curve>) -> TrainingSet {
    members.sort_by(|a, b| a.training.created.cmp(&b.training.created));
    let mut architectures = distinct(members.iter().map(|run| run.training.spec.architecture.clone()));
    // the baseline comes first
    architectures.sort_by_key(|architecture| *architecture != Architecture::Standard);
    let curves = architectures.into_iter().map(|architecture| {
        let seeds = members.iter().filter(|run| run.training.spec.architecture == architecture);
        architecture_curve(&architecture, &seeds.copied().collect::<Vec<_>>())
    });
    TrainingSet {
        miniature: members.iter().any(|run| run.training.miniature),
        machine: members.first().map(|run| run.training.machine.clone()).unwrap_or_default(),
        curves: curves.collect(),
        spec,
    }
}

fn architecture_curve(architecture: &Architecture, seeds: &[&Curve]) -> ArchitectureCurve {
    let evaluations: Vec<_> = seeds.iter().map(|run| run.held_out()).collect();
    let steps = evaluations.first().into_iter().flatten().map(|(step, _)| *step);
    let mean_at = |step: u32| -> Option<CurvePoint> {
        let nll_at = |evaluations: &Vec<(u32, table::HeldOutLoss)>| {
            evaluations.iter().find(|(known, _)| *known == step).map(|(_, loss)| loss.nll)
        };
        let values = evaluations.iter().map(nll_at).collect::<Option<Vec<f64>>>()?;
        Some(CurvePoint { step, nll: mean(&values)?, nll_ci95: interval_of_few(&values) })
    };
    let last = seeds.iter().filter_map(|run| run.curve.last()).map(|step| step.step).min().unwrap_or(0);
    let stretch = last.div_ceil(STRETCHES).max(1);
    let loss = (0..last.div_ceil(stretch)).filter_map(|index| {
        let (first, end) = (index * stretch, ((index + 1) * stretch).min(last));
        let values_of = |run: &&Curve| -> Vec<f64> {
            run.curve.iter().filter(|s| s.step > first && s.step <= end).map(|s| s.nll).collect()
        };
        Some((end, mean(&seeds.iter().flat_map(values_of).collect::<Vec<_>>())?))
    });
    ArchitectureCurve {
        architecture: architecture.clone(),
        seeds: seeds.len(),
        held_out: steps.filter_map(mean_at).collect(),
        loss: loss.collect(),
    }
}

/// Differences in held-out loss after training between each architecture and the first one, paired by seed.
pub fn compared_trainings(all: &[Curve]) -> Vec<ComparedTrainings> {
    let Some(first) = all.first() else { return Vec::new() };
    let baseline = &first.training.spec.architecture;
    let losses_of = |architecture: &Architecture| -> Vec<(u64, f64)> {
        let runs = all.iter().filter(|run| run.training.spec.architecture == *architecture);
        runs.filter_map(|run| Some((run.training.spec.seed, run.training.after?.nll))).collect()
    };
    let (baseline_losses, mut seen) = (losses_of(baseline), vec![baseline]);
    let mut compared = Vec::new();
    for run in all {
        let architecture = &run.training.spec.architecture;
        if seen.contains(&architecture) {
            continue;
        }
        seen.push(architecture);
        let difference = |(seed, nll): (u64, f64)| {
            baseline_losses.iter().find(|(known, _)| *known == seed).map(|(_, other)| nll - other)
        };
        let differences: Vec<f64> = losses_of(architecture).into_iter().filter_map(difference).collect();
        if let Some(nll) = mean(&differences) {
            compared.push(ComparedTrainings {
                architecture: architecture.clone(),
                baseline: baseline.clone(),
                nll,
                nll_ci95: interval_of_few(&differences),
                seeds: differences.len(),
            });
        }
    }
    compared
}

impl ComparedTrainings {
    /// `ladder - standard: +0.0123 nats/token on held-out text`, with its interval.
    pub fn summary(&self) -> String {
        let Self { architecture, baseline, nll, nll_ci95, seeds } = self;
        let rest = match nll_ci95 {
            None => ", one seed: no interval".to_owned(),
            Some([low, high]) => {
                let apart = if *low > 0.0 || *high < 0.0 { "" } else { ", which holds 0" };
                format!(" [{low:+.4}, {high:+.4}] over {seeds} seeds{apart}")
            }
        };
        format!("{architecture} - {baseline}: {nll:+.4} nats/token on held-out text{rest}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use table::testing::trained;

    /// Two seeds of standard and of ladder.
    fn two_seeds() -> [Curve; 4] {
        [
            trained("ladder", 0, 2.0),
            trained("standard", 0, 1.0),
            trained("ladder", 1, 4.0),
            trained("standard", 1, 2.0),
        ]
    }

    #[test]
    fn curves_are_means_over_seeds_and_standard_comes_first() {
        let set = one_training_set(&two_seeds()).unwrap();
        let names: Vec<String> = set.curves.iter().map(|c| c.architecture.to_string()).collect();
        assert_eq!(names, ["standard", "ladder"]);
        let ladder = &set.curves[1];
        assert_eq!(ladder.seeds, 2);
        let last = ladder.held_out.last().unwrap();
        assert!((last.nll - 3.0).abs() < 1e-9 && last.nll_ci95.is_some());
        assert_eq!(ladder.held_out[0].step, 0);
        assert!(ladder.loss.last().unwrap().1 < ladder.loss[0].1);
    }

    #[test]
    fn differences_from_the_baseline_are_paired_by_seed() {
        let [ladder_0, standard_0, ladder_1, standard_1] = two_seeds();
        let compared = compared_trainings(&[standard_0.clone(), ladder_1.clone(), standard_1.clone()]);
        assert!(compared.len() == 1 && compared[0].seeds == 1, "{compared:?}");
        let compared = compared_trainings(&[standard_0, ladder_0, standard_1, ladder_1]);
        assert_eq!((compared[0].nll, compared[0].seeds), (1.5, 2));
        assert!(compared[0].summary().contains("which holds 0"), "{}", compared[0].summary());
    }

    #[test]
    fn architectures_that_do_not_depend_on_tp_are_in_the_set_of_each_tp() {
        // kraken depends on TP, standard and ladder do not
        for (tp, sets) in [(2, 1), (4, 2)] {
            let mut kraken = [trained("kraken", 0, 3.0), trained("kraken", 0, 3.0)];
            (kraken[0].training.spec.tp, kraken[1].training.spec.tp) = (2, tp);
            let sets_of = training_sets(&[&two_seeds()[..], &kraken].concat());
            assert_eq!(sets_of.len(), sets);
            assert!(sets_of.iter().all(|set| set.curves.len() == 3), "{sets_of:?}");
        }
    }

    #[test]
    fn trainings_that_form_several_sets_are_an_error_with_their_differences() {
        let mut all = two_seeds();
        all[3].training.spec.lr = 0.5;
        let error = one_training_set(&all).unwrap_err().to_string();
        assert!(error.contains("2 sets") && error.contains("lr"), "{error}");
        assert!(one_training_set(&[]).is_err());
    }
}
