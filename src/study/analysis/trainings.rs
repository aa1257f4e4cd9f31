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

const STRETCHES: u32 = 60;

/// Groups training runs into comparable sets, the newest run's set first. Runs whose result does not depend on TP
/// are in the sets of every TP.
pub fn training_sets(all: &[Curve]) -> Vec<TrainingSet> {
    let of_any_tp = |one: &Curve| one.training.spec.architecture.is_of_any_tp(CommDType::Activations);
    let started = all.iter().enumerate().filter(|(_, one)| !one.curve.is_empty());
    let (free, bound): (Vec<_>, Vec<_>) = started.partition(|(_, one)| of_any_tp(one));
    let mut sets: Vec<(TrainingSpec, Vec<(usize, &Curve)>)> = Vec::new();
    for (at, one) in bound.into_iter().chain(free) {
        let spec = one.training.spec.set();
        let mut is_new = true;
        for (known, members) in &mut sets {
            let tp = if of_any_tp(one) { known.tp } else { spec.tp };
            if *known == (TrainingSpec { tp, ..spec.clone() }) {
                members.push((at, one));
                is_new = false;
            }
        }
        if is_new {
            sets.push((spec, vec![(at, one)]));
        }
    }
    sets.sort_by_key(|(_, members)| members.iter().map(|(at, _)| *at).min());
    sets.into_iter()
        .map(|(spec, members)| set(spec, members.into_iter().map(|(_, one)| one).collect()))
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

fn set(spec: TrainingSpec, mut members: Vec<&Curve>) -> TrainingSet {
    members.sort_by(|a, b| a.training.created.cmp(&b.training.created));
    let mut architectures = distinct(members.iter().map(|one| one.training.spec.architecture.clone()));
    // the baseline comes first
    architectures.sort_by_key(|architecture| *architecture != Architecture::Standard);
    let curves = architectures.into_iter().map(|architecture| {
        let own = members.iter().filter(|one| one.training.spec.architecture == architecture);
        curve(&architecture, &own.copied().collect::<Vec<_>>())
    });
    TrainingSet {
        miniature: members.iter().any(|one| one.training.miniature),
        machine: members.first().map(|one| one.training.machine.clone()).unwrap_or_default(),
        curves: curves.collect(),
        spec,
    }
}

fn curve(architecture: &Architecture, seeds: &[&Curve]) -> ArchitectureCurve {
    let looks: Vec<_> = seeds.iter().map(|one| one.held_out()).collect();
    let steps = looks.first().into_iter().flatten().map(|(step, _)| *step);
    let at = |step: u32| -> Option<CurvePoint> {
        let sorted = |look: &Vec<(u32, table::HeldOut)>| {
            look.iter().find(|(known, _)| *known == step).map(|(_, lost)| lost.nll)
        };
        let values: Option<Vec<f64>> = looks.iter().map(sorted).collect();
        let values = values?;
        Some(CurvePoint { step, nll: mean(&values)?, nll_ci95: interval_of_few(&values) })
    };
    let last = seeds.iter().filter_map(|one| one.curve.last()).map(|step| step.step).min().unwrap_or(0);
    let stretch = last.div_ceil(STRETCHES).max(1);
    let loss = (0..last.div_ceil(stretch)).filter_map(|at| {
        let (first, end) = (at * stretch, ((at + 1) * stretch).min(last));
        let values_of = |one: &&Curve| -> Vec<f64> {
            one.curve.iter().filter(|s| s.step > first && s.step <= end).map(|s| s.nll).collect()
        };
        Some((end, mean(&seeds.iter().flat_map(values_of).collect::<Vec<_>>())?))
    });
    ArchitectureCurve {
        architecture: architecture.clone(),
        seeds: seeds.len(),
        held_out: steps.filter_map(at).collect(),
        loss: loss.collect(),
    }
}

/// Differences in held-out loss after training between each architecture and the first one, paired by seed.
pub fn compared_trainings(all: &[Curve]) -> Vec<ComparedTrainings> {
    let Some(first) = all.first() else { return Vec::new() };
    let baseline = &first.training.spec.architecture;
    let losses_of = |architecture: &Architecture| -> Vec<(u64, f64)> {
        let own = all.iter().filter(|one| one.training.spec.architecture == *architecture);
        own.filter_map(|one| Some((one.training.spec.seed, one.training.after?.nll))).collect()
    };
    let (base, mut seen) = (losses_of(baseline), vec![baseline]);
    let mut found = Vec::new();
    for one in all {
        let architecture = &one.training.spec.architecture;
        if seen.contains(&architecture) {
            continue;
        }
        seen.push(architecture);
        let own = losses_of(architecture);
        let pair = |(seed, nll): &(u64, f64)| {
            base.iter().find(|(known, _)| known == seed).map(|(_, other)| nll - other)
        };
        let differences: Vec<f64> = own.iter().filter_map(pair).collect();
        if let Some(nll) = mean(&differences) {
            found.push(ComparedTrainings {
                architecture: architecture.clone(),
                baseline: baseline.clone(),
                nll,
                nll_ci95: interval_of_few(&differences),
                seeds: differences.len(),
            });
        }
    }
    found
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

    #[test]
    fn curves_are_means_over_seeds_and_sets_hold_what_differs_in_nothing_else() {
        let mut all = vec![
            trained("ladder", 0, 2.0),
            trained("standard", 0, 1.0),
            trained("ladder", 1, 4.0),
            trained("standard", 1, 2.0),
        ];
        let set = one_training_set(&all).unwrap();
        let names: Vec<String> = set.curves.iter().map(|c| c.architecture.to_string()).collect();
        assert_eq!(names, ["standard", "ladder"]);
        let ladder = &set.curves[1];
        assert_eq!(ladder.seeds, 2);
        let last = ladder.held_out.last().unwrap();
        assert!((last.nll - 3.0).abs() < 1e-9 && last.nll_ci95.is_some());
        assert_eq!(ladder.held_out[0].step, 0);
        assert!(ladder.loss.last().unwrap().1 < ladder.loss[0].1);
        let compared = compared_trainings(&all[1..]);
        assert!(compared.len() == 1 && compared[0].seeds == 1, "{compared:?}");
        let compared =
            compared_trainings(&[all[1].clone(), all[0].clone(), all[3].clone(), all[2].clone()]);
        assert_eq!((compared[0].nll, compared[0].seeds), (1.5, 2));
        assert!(compared[0].summary().contains("which holds 0"), "{}", compared[0].summary());
        // kraken depends on TP, standard and ladder do not
        for (tp, sets) in [(2, 1), (4, 2)] {
            let mut kraken = [trained("kraken", 0, 3.0), trained("kraken", 0, 3.0)];
            (kraken[0].training.spec.tp, kraken[1].training.spec.tp) = (2, tp);
            let sets_of = training_sets(&[&all[..], &kraken].concat());
            assert_eq!(sets_of.len(), sets);
            assert!(sets_of.iter().all(|set| set.curves.len() == 3), "{sets_of:?}");
        }
        all[3].training.spec.lr = 0.5;
        let error = one_training_set(&all).unwrap_err().to_string();
        assert!(error.contains("2 sets") && error.contains("lr"), "{error}");
        assert!(one_training_set(&[]).is_err());
    }
}
