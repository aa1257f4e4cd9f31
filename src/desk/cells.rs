//! Quality and trainings of an experiment's cells, after a sweep; stored results are reused.
//!
//! `[evaluate]`: one evaluation for all cells that compute the same values, on the backend that ran them, or on cpu for
//! simulated cells.
//!
//! `[adapt]`: one training per model, architecture and seed of the cells, from random weights if the model has no
//! checkpoint. The results become metrics of the cells' runs.

use std::collections::HashMap;

use super::adapt::{self, TrainingOptions, TrainingProgress, TrainingRequest};
use super::evaluate::{
    self, ArchitectureQuality, EvaluationProgress, QualityRequest, TextCache, TextQuality,
};
use base::error::{Error, Result};
use base::text::counted;
use lab::launch::Cancel;
use lab::store::Store;
use lab::sweep::{Adapt, Experiment, SweepEvent};
use model::Model;
use plan::{Architecture, CommDType, DType};
use run::{Feasibility, evaluator};
use table::{Backend, Spec};

/// One evaluation, for all cells that compute the same values.
#[derive(Clone, Debug, PartialEq)]
struct CellEvaluation {
    backend: Backend,
    model: String,
    dtype: DType,
    comm_dtype: CommDType,
    tp: u32,
    architectures: Vec<Architecture>,
}

impl CellEvaluation {
    /// Evaluation for one cell. Ranks that never diverge compute the same at every TP, and one rank is fastest.
    fn from_spec(spec: &Spec) -> Self {
        let backend = if spec.backend.is_simulated() { Backend::Cpu } else { spec.backend };
        Self {
            backend,
            model: spec.model.clone(),
            // the cpu backend does not support f16
            dtype: match spec.dtype {
                DType::F16 if backend == Backend::Cpu => DType::F32,
                dtype => dtype,
            },
            comm_dtype: spec.comm_dtype,
            tp: if spec.architecture.is_of_any_tp(spec.comm_dtype) { 1 } else { spec.tp },
            architectures: vec![spec.architecture.clone()],
        }
    }

    /// Adds the architectures of another evaluation if all else is equal; returns true if it did.
    fn merge(&mut self, other: &Self) -> bool {
        let is_same = Self { architectures: self.architectures.clone(), ..other.clone() } == *self;
        if is_same {
            let new = other.architectures.iter().filter(|one| !self.architectures.contains(one));
            let new: Vec<Architecture> = new.cloned().collect();
            self.architectures.extend(new);
        }
        is_same
    }

    fn label(&self) -> String {
        let names: Vec<String> = self.architectures.iter().map(ToString::to_string).collect();
        let sent = match self.comm_dtype {
            CommDType::Activations => String::new(),
            sent => format!(", messages in {sent}"),
        };
        format!("{} of {} ({}, TP {}{sent})", names.join(", "), self.model, self.dtype, self.tp)
    }
}

/// Evaluates the models of the feasible cells; returns the number of failed evaluations, each reported in a note.
/// Returns [`Error::Interrupted`] on cancellation; completed windows are stored.
pub fn evaluate_cells(
    experiment: &Experiment,
    store: &Store,
    cancel: &Cancel,
    emit: &mut dyn FnMut(SweepEvent),
) -> Result<usize> {
    let Some(wanted) = &experiment.evaluate else { return Ok(0) };
    let (evaluations, notes) = cell_evaluations(experiment);
    notes.into_iter().for_each(|note| emit(SweepEvent::Note(note)));
    let mut failed = 0;
    let mut caches: HashMap<String, TextCache> = HashMap::new();
    for evaluation in evaluations {
        let what = evaluation.label();
        emit(SweepEvent::Note(format!("evaluating {what} on {}", wanted.text.name())));
        let cache = caches.entry(evaluation.model.clone()).or_default();
        match run_evaluation(&evaluation, cache, wanted, store, cancel, emit) {
            Ok(quality) => quality_notes(&quality, &evaluation)
                .into_iter()
                .for_each(|note| emit(SweepEvent::Note(note))),
            Err(Error::Interrupted) => return Err(Error::Interrupted),
            Err(error) => {
                failed += 1;
                emit(SweepEvent::Note(format!("no quality of {what}: {}", error_and_help(&error))));
            }
        }
    }
    Ok(failed)
}

fn run_evaluation(
    evaluation: &CellEvaluation,
    cache: &mut TextCache,
    wanted: &lab::sweep::Evaluate,
    store: &Store,
    cancel: &Cancel,
    emit: &mut dyn FnMut(SweepEvent),
) -> Result<TextQuality> {
    let request = QualityRequest {
        model: Model::resolve(&evaluation.model)?,
        text: wanted.text.clone(),
        architectures: evaluation.architectures.clone(),
        reference: None,
        tp: evaluation.tp,
        dtype: evaluation.dtype,
        comm_dtype: evaluation.comm_dtype,
        context: wanted.context,
        limit: wanted.limit,
        seed: 0,
        counts: true,
    };
    let backend = evaluator(evaluation.backend)?;
    evaluate::evaluate(&request, cache, backend, store, cancel, &mut |progress| {
        if let EvaluationProgress::Windows { done, found, of } = progress {
            emit(SweepEvent::Evaluating { what: evaluation.label(), done, found, of });
        }
    })
}

/// Evaluations that the cells need, and notes about cells that have none.
fn cell_evaluations(experiment: &Experiment) -> (Vec<CellEvaluation>, Vec<String>) {
    let (mut evaluations, mut notes): (Vec<CellEvaluation>, Vec<String>) = Default::default();
    let mut models: HashMap<&str, bool> = HashMap::new();
    let mut say = |note: String| {
        if !notes.contains(&note) {
            notes.push(note);
        }
    };
    for cell in experiment.cells.iter().filter(|cell| cell.feasibility == Feasibility::Runs) {
        let spec = &cell.spec;
        let has_weights = || Model::resolve(&spec.model).is_ok_and(|model| model.has_weights);
        if !*models.entry(&spec.model).or_insert_with(has_weights) {
            say(format!(
                "{}: quality needs trained weights; pass a checkpoint with --model DIR, or path in [model]",
                spec.model
            ));
            continue;
        }
        if spec.architecture == Architecture::UpperBound {
            say("upper-bound has no quality: without all-reduces its numbers are wrong on purpose"
                .into());
            continue;
        }
        let evaluation = CellEvaluation::from_spec(spec);
        if !evaluations.iter_mut().any(|known| known.merge(&evaluation)) {
            evaluations.push(evaluation);
        }
    }
    (evaluations, notes)
}

/// One line per architecture with its quality.
fn quality_notes(found: &TextQuality, evaluation: &CellEvaluation) -> Vec<String> {
    let windows = counted(found.windows, "window");
    let line = |case: &ArchitectureQuality| {
        let quality = &case.quality;
        format!(
            "quality of {} ({}, TP {}): NLL {:.4}, KL {:.4} nats/token, agreement {:.1} % (measured on {}, {windows} of {} tokens)",
            case.architecture,
            evaluation.dtype,
            evaluation.tp,
            quality.nll,
            quality.kl,
            100.0 * quality.agreement,
            found.backend.as_str(),
            found.context
        )
    };
    found.cases.iter().map(line).chain(found.notes.iter().cloned()).collect()
}

/// Message of an error, followed by its remedy.
fn error_and_help(error: &Error) -> String {
    match error {
        Error::Input { message, help: Some(help) } => format!("{message} ({help})"),
        other => other.to_string(),
    }
}

/// Maximum parameters for training from random weights in an experiment; larger models would take days.
const MOST_PARAMETERS: u64 = 50_000_000;

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
    for training in cell_trainings(experiment) {
        let trained = training_request(wanted, &training)
            .and_then(|request| run_training(&request, store, cancel, emit));
        match trained {
            Ok(()) => {}
            Err(Error::Interrupted) => return Err(Error::Interrupted),
            Err(error) => {
                failed += 1;
                emit(SweepEvent::Note(format!("no training of {}: {error}", training.model)));
            }
        }
    }
    Ok(failed)
}

/// Trainings of a model, one per architecture and seed.
struct CellTraining {
    model: String,
    tp: u32,
    architectures: Vec<Architecture>,
}

/// Trainings that the cells need.
fn cell_trainings(experiment: &Experiment) -> Vec<CellTraining> {
    let mut trainings: Vec<CellTraining> = Vec::new();
    for cell in experiment.cells.iter().filter(|cell| cell.feasibility == Feasibility::Runs) {
        let spec = &cell.spec;
        if spec.architecture.is_limit() {
            continue;
        }
        // ranks that never diverge compute the same at every TP, and one rank is fastest
        let tp = if spec.architecture.is_of_any_tp(CommDType::Activations) { 1 } else { spec.tp };
        let known = trainings.iter_mut().find(|known| known.model == spec.model && known.tp == tp);
        match known {
            Some(known) if known.architectures.contains(&spec.architecture) => {}
            Some(known) => known.architectures.push(spec.architecture.clone()),
            None => trainings.push(CellTraining {
                model: spec.model.clone(),
                tp,
                architectures: vec![spec.architecture.clone()],
            }),
        }
    }
    trainings
}

fn training_request(wanted: &Adapt, training: &CellTraining) -> Result<TrainingRequest> {
    let model = Model::resolve(&training.model)?;
    let from_scratch = !model.has_weights;
    if from_scratch && model.shape.parameters() > MOST_PARAMETERS {
        return Err(Error::input_help(
            format!(
                "it has {:.0} M parameters and no weights, and from random ones at most {:.0} M are trained",
                model.shape.parameters() as f64 / 1e6,
                MOST_PARAMETERS as f64 / 1e6
            ),
            "pass a small shape such as mini, or a checkpoint",
        ));
    }
    Ok(TrainingRequest {
        from_scratch,
        text: wanted.text.clone(),
        limit: wanted.limit,
        architectures: training.architectures.clone(),
        options: TrainingOptions {
            layers: wanted.all_layers.then_some(adapt::Layers::All),
            steps: wanted.steps,
            batch: wanted.batch,
            context: wanted.context,
            lr: wanted.lr,
            distil: wanted.distil.filter(|_| !from_scratch),
            tp: training.tp,
            seed: wanted.seeds.clone(),
            ..TrainingOptions::default()
        },
        model,
    })
}

fn run_training(
    request: &TrainingRequest,
    store: &Store,
    cancel: &Cancel,
    emit: &mut dyn FnMut(SweepEvent),
) -> Result<()> {
    let model = request.model.name.clone();
    emit(SweepEvent::Note(format!("training {model} on {}", request.text.name())));
    let trainings = adapt::adapt(request, store, cancel, &mut |progress| match progress {
        TrainingProgress::Step { what, done, found, of, loss, tokens_per_s } => {
            let what = format!("{what} of {model}");
            emit(SweepEvent::Training { what, done, found, of, loss, tokens_per_s });
        }
        TrainingProgress::Note(note) => emit(SweepEvent::Note(note.to_owned())),
        TrainingProgress::Doing(_) | TrainingProgress::Evaluating(_) => {}
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

#[cfg(test)]
mod tests {
    use super::*;
    use lab::sweep::Experiment;

    /// Labels of the evaluations of an experiment whose model has weights, and the messages for others.
    fn planned(lines: &str) -> (Vec<String>, Vec<String>) {
        let dir = tempfile::tempdir().unwrap();
        let config = r#"{"model_type": "llama", "num_hidden_layers": 4, "hidden_size": 64, "num_attention_heads": 8,
            "num_key_value_heads": 4, "intermediate_size": 96, "vocab_size": 128, "rms_norm_eps": 1e-5,
            "rope_theta": 10000.0, "tie_word_embeddings": true}"#;
        std::fs::write(dir.path().join("config.json"), config).unwrap();
        std::fs::write(dir.path().join("model.safetensors"), [2, 0, 0, 0, 0, 0, 0, 0, b'{', b'}'])
            .unwrap();
        let text =
            format!("backend = \"sim\"\n[model]\npath = \".\"\n[evaluate]\ncontext = 64\n{lines}");
        let experiment = Experiment::from_str(&text, &dir.path().join("x.toml")).unwrap();
        let (evaluations, notes) = cell_evaluations(&experiment);
        let of = format!(" of {}", experiment.cells[0].spec.model);
        (evaluations.iter().map(|evaluation| evaluation.label().replace(&of, "")).collect(), notes)
    }

    #[test]
    fn cells_that_compute_the_same_share_one_evaluation() {
        let (parts, notes) = planned(
            "[grid]\narchitecture = [\"standard\", \"ladder:2\", \"desync:2\", \"upper-bound\"]\ntp = [2, 4]\n\
             batch = [1, 8]\ndtype = [\"bf16\", \"f16\"]\np2p = [\"on\", \"off\"]\n",
        );
        assert_eq!(
            parts,
            [
                "standard, ladder:2 (bf16, TP 1)",
                "standard, ladder:2 (f32, TP 1)",
                "desync:2 (bf16, TP 2)",
                "desync:2 (f32, TP 2)",
                "desync:2 (bf16, TP 4)",
                "desync:2 (f32, TP 4)",
            ]
        );
        assert!(notes.len() == 1 && notes[0].starts_with("upper-bound has no quality"), "{notes:?}");
        let (parts, _) = planned(
            "[grid]\ntp = [2]\nbatch = [2]\ncomm_dtype = [\"activations\", \"int8\"]\nmicro_batches = [1, 2]\n",
        );
        // groups of a batch that alternate change no number
        assert_eq!(parts, ["standard (bf16, TP 1)", "standard (bf16, TP 2, messages in int8)"]);
    }

    #[test]
    fn cells_are_evaluated_by_the_backend_that_runs_them() {
        let evaluation =
            |backend, dtype| CellEvaluation::from_spec(&Spec { backend, dtype, ..Spec::default() });
        let chosen =
            |backend, dtype| (evaluation(backend, dtype).backend, evaluation(backend, dtype).dtype);
        assert_eq!(chosen(Backend::Cuda, DType::F16), (Backend::Cuda, DType::F16));
        assert_eq!(chosen(Backend::Sim, DType::F16), (Backend::Cpu, DType::F32));
        assert_eq!(chosen(Backend::Cpu, DType::Bf16), (Backend::Cpu, DType::Bf16));
        let mut one = evaluation(Backend::Cuda, DType::F32);
        assert!(!one.merge(&evaluation(Backend::Sim, DType::F32)), "other numbers");
        assert!(one.merge(&evaluation(Backend::Cuda, DType::F32)));
    }

    #[test]
    fn a_built_in_shape_has_no_quality() {
        let text = "backend = \"sim\"\n[model]\nname = \"llama-3-8b\"\n[evaluate]\n[grid]\ntp = [2]\n";
        let experiment = Experiment::from_str(text, std::path::Path::new("x.toml")).unwrap();
        let (evaluations, notes) = cell_evaluations(&experiment);
        assert!(evaluations.is_empty());
        assert_eq!(notes.len(), 1);
        assert!(notes[0].starts_with("llama-3-8b: quality needs trained weights"), "{notes:?}");
    }
}
