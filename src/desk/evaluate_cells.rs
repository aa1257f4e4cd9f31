//! Quality of an experiment's cells (`[evaluate]`): one evaluation for all cells that compute the same values, on the
//! backend that ran them, or on cpu for simulated cells. Stored results are reused.

use std::collections::HashMap;

use base::error::{Error, Result};
use base::text::counted;
use lab::launch::Cancel;
use lab::store::Store;
use lab::sweep::{Evaluate, Experiment, SweepEvent};
use model::Model;
use plan::{Architecture, CommDType, DType};
use run::{Feasibility, evaluator};
use table::{Backend, Spec};

use super::evaluate::{Asked, Progress, Subject, TextQuality, evaluate};

/// One evaluation, for all cells that compute the same values.
#[derive(Clone, Debug, PartialEq)]
struct Part {
    backend: Backend,
    model: String,
    dtype: DType,
    comm_dtype: CommDType,
    tp: u32,
    architectures: Vec<Architecture>,
}

impl Part {
    /// Evaluation for one cell. Ranks that never diverge compute the same at every TP, and one rank is fastest.
    fn of(spec: &Spec) -> Self {
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

    /// Merges another part's architectures if all else is equal; returns true if it did.
    fn takes(&mut self, other: &Self) -> bool {
        let of = |part: &Self| (part.backend, part.model.clone(), part.dtype, part.comm_dtype, part.tp);
        let same = of(self) == of(other);
        let new = other.architectures.iter().filter(|one| same && !self.architectures.contains(one));
        let new: Vec<Architecture> = new.cloned().collect();
        self.architectures.extend(new);
        same
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
    let Some(asked) = &experiment.evaluate else { return Ok(0) };
    let (parts, notes) = parts(experiment);
    notes.into_iter().for_each(|note| emit(SweepEvent::Note(note)));
    let mut failed = 0;
    let mut subjects: HashMap<String, Subject> = HashMap::new();
    for part in parts {
        let what = part.label();
        emit(SweepEvent::Note(format!("evaluating {what} on {}", asked.text.name())));
        let subject = subjects.entry(part.model.clone()).or_default();
        match one(&part, subject, asked, store, cancel, emit) {
            Ok(quality) => {
                told(&quality, &part).into_iter().for_each(|note| emit(SweepEvent::Note(note)))
            }
            Err(Error::Interrupted) => return Err(Error::Interrupted),
            Err(error) => {
                failed += 1;
                emit(SweepEvent::Note(format!("no quality of {what}: {}", in_words(&error))));
            }
        }
    }
    Ok(failed)
}

fn one(
    part: &Part,
    subject: &mut Subject,
    of: &Evaluate,
    store: &Store,
    cancel: &Cancel,
    emit: &mut dyn FnMut(SweepEvent),
) -> Result<TextQuality> {
    let asked = Asked {
        model: Model::resolve(&part.model)?,
        text: of.text.clone(),
        architectures: part.architectures.clone(),
        reference: None,
        tp: part.tp,
        dtype: part.dtype,
        comm_dtype: part.comm_dtype,
        context: of.context,
        limit: of.limit,
        seed: 0,
        counts: true,
    };
    let backend = evaluator(part.backend)?;
    evaluate(&asked, subject, backend, store, cancel, &mut |progress| {
        if let Progress::Windows { done, found, of } = progress {
            emit(SweepEvent::Evaluating { what: part.label(), done, found, of });
        }
    })
}

/// Evaluations that the cells need, and notes about cells that have none.
fn parts(experiment: &Experiment) -> (Vec<Part>, Vec<String>) {
    let (mut parts, mut notes): (Vec<Part>, Vec<String>) = Default::default();
    let mut models: Vec<(&str, bool)> = Vec::new();
    let mut say = |note: String| {
        if !notes.contains(&note) {
            notes.push(note);
        }
    };
    for cell in experiment.cells.iter().filter(|cell| cell.feasibility == Feasibility::Runs) {
        let spec = &cell.spec;
        let has_weights = match models.iter().find(|(model, _)| *model == spec.model) {
            Some((_, has_weights)) => *has_weights,
            None => {
                let has_weights = Model::resolve(&spec.model).is_ok_and(|model| model.has_weights);
                models.push((&spec.model, has_weights));
                has_weights
            }
        };
        if !has_weights {
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
        let part = Part::of(spec);
        if !parts.iter_mut().any(|known| known.takes(&part)) {
            parts.push(part);
        }
    }
    (parts, notes)
}

/// One line per architecture with its quality.
fn told(found: &TextQuality, part: &Part) -> Vec<String> {
    let windows = counted(found.windows, "window");
    let line = |case: &super::evaluate::Case| {
        let quality = &case.quality;
        format!(
            "quality of {} ({}, TP {}): NLL {:.4}, KL {:.4} nats/token, agreement {:.1} % (measured on {}, {windows} of {} tokens)",
            case.architecture,
            part.dtype,
            part.tp,
            quality.nll,
            quality.kl,
            100.0 * quality.agreement,
            found.backend.as_str(),
            found.context
        )
    };
    found.cases.iter().map(line).chain(found.notes.iter().cloned()).collect()
}

fn in_words(error: &Error) -> String {
    match error {
        Error::Input { message, help: Some(help) } => format!("{message} ({help})"),
        other => other.to_string(),
    }
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
        let (parts, notes) = parts(&experiment);
        let of = format!(" of {}", experiment.cells[0].spec.model);
        (parts.iter().map(|part| part.label().replace(&of, "")).collect(), notes)
    }

    #[test]
    fn one_evaluation_is_of_all_cells_that_compute_the_same() {
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
        let part = |backend, dtype| Part::of(&Spec { backend, dtype, ..Spec::default() });
        let of = |backend, dtype| (part(backend, dtype).backend, part(backend, dtype).dtype);
        assert_eq!(of(Backend::Cuda, DType::F16), (Backend::Cuda, DType::F16));
        assert_eq!(of(Backend::Sim, DType::F16), (Backend::Cpu, DType::F32));
        assert_eq!(of(Backend::Cpu, DType::Bf16), (Backend::Cpu, DType::Bf16));
        let mut one = part(Backend::Cuda, DType::F32);
        assert!(!one.takes(&part(Backend::Sim, DType::F32)), "other numbers");
        assert!(one.takes(&part(Backend::Cuda, DType::F32)));
    }

    #[test]
    fn a_built_in_shape_has_no_quality() {
        let text = "backend = \"sim\"\n[model]\nname = \"llama-3-8b\"\n[evaluate]\n[grid]\ntp = [2]\n";
        let experiment = Experiment::from_str(text, std::path::Path::new("x.toml")).unwrap();
        let (parts, notes) = parts(&experiment);
        assert!(parts.is_empty());
        assert_eq!(notes.len(), 1);
        assert!(notes[0].starts_with("llama-3-8b: quality needs trained weights"), "{notes:?}");
    }
}
