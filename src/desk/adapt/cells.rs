//! Trainings of an experiment (`[adapt]`): one per model, architecture and seed of its cells, from random weights if
//! the model has no checkpoint. The results become metrics of the cells' runs.

use super::{Asked, Layers, Progress, adapt};
use base::error::{Error, Result};
use lab::launch::Cancel;
use lab::store::Store;
use lab::sweep::{Adapt, Experiment, SweepEvent};
use model::Model;
use plan::{Architecture, CommDType};
use run::Feasibility;

/// Maximum parameters for training from random weights in an experiment; larger models would take days.
const MOST: u64 = 50_000_000;

/// Trains the models of the feasible cells; returns the number of failed trainings, each reported in a note. Returns
/// [`Error::Interrupted`] on cancellation; completed work is stored.
pub fn train_cells(
    experiment: &Experiment,
    store: &Store,
    cancel: &Cancel,
    emit: &mut dyn FnMut(SweepEvent),
) -> Result<usize> {
    let Some(wanted) = &experiment.adapt else { return Ok(0) };
    let mut failed = 0;
    for (model, tp, architectures) in parts(experiment) {
        match asked(wanted, &model, tp, architectures).and_then(|asked| one(&asked, store, cancel, emit))
        {
            Ok(()) => {}
            Err(Error::Interrupted) => return Err(Error::Interrupted),
            Err(error) => {
                failed += 1;
                emit(SweepEvent::Note(format!("no training of {model}: {error}")));
            }
        }
    }
    Ok(failed)
}

fn parts(experiment: &Experiment) -> Vec<(String, u32, Vec<Architecture>)> {
    let mut parts: Vec<(String, u32, Vec<Architecture>)> = Vec::new();
    for cell in experiment.cells.iter().filter(|cell| cell.feasibility == Feasibility::Runs) {
        let spec = &cell.spec;
        if spec.architecture.is_limit() {
            continue;
        }
        // ranks that never diverge compute the same at every TP, and one rank is fastest
        let tp = if spec.architecture.is_of_any_tp(CommDType::Activations) { 1 } else { spec.tp };
        let at = parts.iter().position(|(model, of, _)| *model == spec.model && *of == tp);
        let at = at.unwrap_or_else(|| {
            parts.push((spec.model.clone(), tp, Vec::new()));
            parts.len() - 1
        });
        if !parts[at].2.contains(&spec.architecture) {
            parts[at].2.push(spec.architecture.clone());
        }
    }
    parts
}

fn asked(wanted: &Adapt, model: &str, tp: u32, architectures: Vec<Architecture>) -> Result<Asked> {
    let model = Model::resolve(model)?;
    let from_scratch = !model.has_weights;
    if from_scratch && model.shape.parameters() > MOST {
        return Err(Error::input_help(
            format!(
                "it has {:.0} M parameters and no weights, and from random ones at most {:.0} M are trained",
                model.shape.parameters() as f64 / 1e6,
                MOST as f64 / 1e6
            ),
            "pass a small shape such as mini, or a checkpoint",
        ));
    }
    Ok(Asked {
        from_scratch,
        text: wanted.text.clone(),
        limit: wanted.limit,
        held_out_pct: 10.0,
        architectures,
        seeds: wanted.seeds.clone(),
        layers: if from_scratch || wanted.all_layers { Layers::All } else { Layers::Converted },
        steps: wanted.steps,
        batch: wanted.batch,
        context: wanted.context,
        lr: wanted.lr.unwrap_or(if from_scratch { 1e-3 } else { 1e-4 }),
        warmup: None,
        weight_decay: 0.1,
        clip: 1.0,
        distil: wanted.distil.filter(|_| !from_scratch),
        tp,
        replicas: None,
        checkpoint_every: None,
        output: None,
        restart: false,
        model,
    })
}

fn one(asked: &Asked, store: &Store, cancel: &Cancel, emit: &mut dyn FnMut(SweepEvent)) -> Result<()> {
    let model = asked.model.name.clone();
    emit(SweepEvent::Note(format!("training {model} on {}", asked.text.name())));
    let trainings = adapt(asked, store, cancel, &mut |progress| match progress {
        Progress::Step { what, done, found, of, loss, tokens_per_s } => {
            let what = format!("{what} of {model}");
            emit(SweepEvent::Training { what, done, found, of, loss, tokens_per_s });
        }
        Progress::Note(note) => emit(SweepEvent::Note(note.to_owned())),
        Progress::Doing(_) | Progress::Evaluating(_) => {}
    })?;
    for one in trainings {
        let training = one.training;
        let number = |value: Option<f64>| value.map_or("-".into(), |value| format!("{value:.4}"));
        emit(SweepEvent::Note(format!(
            "training of {} ({} steps): loss {}, NLL of held-out text {} nats/token (measured on cpu{})",
            training.spec.label(),
            training.spec.steps,
            number(training.loss),
            number(training.after.map(|after| after.nll)),
            if training.miniature { ", a miniature" } else { "" }
        )));
    }
    Ok(())
}
