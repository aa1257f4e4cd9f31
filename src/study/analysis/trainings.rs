//! Trainings beside each other: curves of architectures over steps, means over seeds with intervals, and how far each is
//! from the first one.

use schemars::JsonSchema;
use serde::Serialize;

use base::error::{Error, Result};
use base::statistics::{interval_of_few, mean};
use plan::Architecture;
use table::{Curve, TrainingSpec};

/// What the held-out text lost at one step: over seeds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CurvePoint {
    /// Steps that were done.
    pub step: u32,
    /// The mean over seeds, in nats a token.
    pub nll: f64,
    /// The 95 % interval of that mean; `None` of one seed.
    pub nll_ci95: Option<[f64; 2]>,
}

/// Trainings of one architecture that differ in their seeds alone.
#[derive(Clone, Debug, PartialEq)]
pub struct ArchitectureCurve {
    /// The architecture.
    pub architecture: Architecture,
    /// How many seeds the means are over.
    pub seeds: usize,
    /// What the held-out text lost, by steps that all seeds have come to.
    pub held_out: Vec<CurvePoint>,
    /// What each step's windows lost: means over seeds and over stretches of steps, by the stretch's last step.
    pub loss: Vec<(u32, f64)>,
}

/// Trainings that are alike but for architecture and seed.
#[derive(Clone, Debug, PartialEq)]
pub struct TrainingSet {
    /// What they have in common.
    pub spec: TrainingSpec,
    /// Whether they are miniatures.
    pub miniature: bool,
    /// What they were measured on.
    pub machine: String,
    /// A curve an architecture, in the order in which they began.
    pub curves: Vec<ArchitectureCurve>,
}

/// How far the held-out text's loss after training is from the first architecture's, by seeds.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct ComparedTrainings {
    /// The architecture.
    #[schemars(with = "String")]
    pub architecture: Architecture,
    /// The one that it is compared with.
    #[schemars(with = "String")]
    pub baseline: Architecture,
    /// The mean of the differences in negative log-likelihood, in nats a token, seed by seed.
    pub nll: f64,
    /// The 95 % interval of that mean, by Student's t; null of one seed.
    pub nll_ci95: Option<[f64; 2]>,
    /// How many seeds both have.
    pub seeds: usize,
}

/// Stretches that a curve of losses is cut into.
const STRETCHES: u32 = 60;

/// Sorts trainings into sets that can be compared, the set with the newest first.
pub fn training_sets(all: &[Curve]) -> Vec<TrainingSet> {
    let mut sets: Vec<(TrainingSpec, Vec<&Curve>)> = Vec::new();
    for one in all.iter().filter(|one| !one.curve.is_empty()) {
        let spec = one.training.spec.set();
        match sets.iter_mut().find(|(known, _)| *known == spec) {
            Some((_, members)) => members.push(one),
            None => sets.push((spec, vec![one])),
        }
    }
    sets.into_iter().map(|(spec, members)| set(spec, members)).collect()
}

/// The one set of these trainings.
///
/// # Errors
///
/// An input error where there are several, with what sets them apart, and where there are no steps.
pub fn one_training_set(all: &[Curve]) -> Result<TrainingSet> {
    let mut sets = training_sets(all);
    match &sets[..] {
        [_] => Ok(sets.remove(0)),
        [] => Err(Error::input_help(
            "there is nothing to draw: no training has done a step",
            "`ladderscope adapt` makes some",
        )),
        [first, second, ..] => Err(Error::input_help(
            format!(
                "{} sets of trainings that are not comparable: {}",
                sets.len(),
                first.spec.differences(&second.spec).join("; ")
            ),
            "name those that are meant by their ids, which `adapt` prints",
        )),
    }
}

fn set(spec: TrainingSpec, mut members: Vec<&Curve>) -> TrainingSet {
    members.sort_by(|a, b| a.training.created.cmp(&b.training.created));
    let mut architectures: Vec<Architecture> = Vec::new();
    for one in &members {
        if !architectures.contains(&one.training.spec.architecture) {
            architectures.push(one.training.spec.architecture.clone());
        }
    }
    // what others are compared with comes first
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
        let of = |look: &Vec<(u32, table::HeldOut)>| {
            look.iter().find(|(known, _)| *known == step).map(|(_, lost)| lost.nll)
        };
        let values: Option<Vec<f64>> = looks.iter().map(of).collect();
        let values = values?;
        Some(CurvePoint { step, nll: mean(&values)?, nll_ci95: interval_of_few(&values) })
    };
    let last = seeds.iter().filter_map(|one| one.curve.last()).map(|step| step.step).min().unwrap_or(0);
    let stretch = last.div_ceil(STRETCHES).max(1);
    let loss = (0..last.div_ceil(stretch)).filter_map(|at| {
        let (first, end) = (at * stretch, ((at + 1) * stretch).min(last));
        let of = |one: &&Curve| -> Vec<f64> {
            one.curve.iter().filter(|s| s.step > first && s.step <= end).map(|s| s.nll).collect()
        };
        Some((end, mean(&seeds.iter().flat_map(of).collect::<Vec<_>>())?))
    });
    ArchitectureCurve {
        architecture: architecture.clone(),
        seeds: seeds.len(),
        held_out: steps.filter_map(at).collect(),
        loss: loss.collect(),
    }
}

/// How far each architecture's loss on the held-out text is from the first one's after training. Pairs are by seed.
pub fn compared_trainings(all: &[Curve]) -> Vec<ComparedTrainings> {
    let Some(first) = all.first() else { return Vec::new() };
    let baseline = &first.training.spec.architecture;
    let of = |architecture: &Architecture| -> Vec<(u64, f64)> {
        let own = all.iter().filter(|one| one.training.spec.architecture == *architecture);
        own.filter_map(|one| Some((one.training.spec.seed, one.training.after?.nll))).collect()
    };
    let (base, mut seen) = (of(baseline), vec![baseline]);
    let mut found = Vec::new();
    for one in all {
        let architecture = &one.training.spec.architecture;
        if seen.contains(&architecture) {
            continue;
        }
        seen.push(architecture);
        let own = of(architecture);
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
    /// It in a sentence.
    pub fn told(&self) -> String {
        let Self { architecture, baseline, nll, nll_ci95, seeds } = self;
        let rest = match nll_ci95 {
            None => ", one seed: no interval".to_owned(),
            Some([low, high]) => {
                let apart = if *low > 0.0 || *high < 0.0 { "" } else { ", which holds 0" };
                format!(" [{low:+.4}, {high:+.4}] over {seeds} seeds{apart}")
            }
        };
        format!("{architecture} less {baseline}: {nll:+.4} nats a token of held-out text{rest}")
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
        assert!(compared[0].told().contains("which holds 0"), "{}", compared[0].told());
        all[3].training.spec.lr = 0.5;
        let told = one_training_set(&all).unwrap_err().to_string();
        assert!(told.contains("2 sets") && told.contains("lr"), "{told}");
        assert!(one_training_set(&[]).is_err());
    }
}
