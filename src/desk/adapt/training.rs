//! One training: start or resume from the last checkpoint, run its steps, write the final model.

use std::borrow::Cow;
use std::collections::HashMap;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use super::{Data, MINIATURE, TrainingProgress, TrainingRequest, id, written_by};
use crate::desk::evaluate::{self, EvaluationProgress, Text, TextCache, evaluate};
use base::error::{Error, Result};
use base::text::counted;
use lab::launch::Cancel;
use lab::store::{Store, TrainingFolder};
use machine::environment::cpu_name;
use model::{Model, NumbersFile, WeightSource, write_numbers};
use plan::{CommDType, DType, Tensor, Weight};
use run::cpu::train::{Lost, Optimiser, Setup, Trainer, gemm_peak};
use run::evaluator;
use table::{
    Backend, Curve, HeldOut, Quality, Status, TRAINING, Training, TrainingSpec, TrainingSpeed,
    TrainingStep,
};

/// Time between checkpoints, unless the user sets the number of steps.
const CHECKPOINT_INTERVAL: Duration = Duration::from_secs(60);

/// Held-out windows used between steps; the whole held-out text is evaluated before and after.
const PROBE_WINDOWS: usize = 16;

/// Scale of an untied head's random weights before training. Unscaled, the logits would spread so widely that
/// training had to unlearn that first.
const HEAD_SCALE: f32 = 0.1;

pub(super) struct TrainingRun<'a> {
    pub request: &'a TrainingRequest,
    pub spec: TrainingSpec,
    pub output: PathBuf,
    pub data: &'a Data,
    pub store: &'a Store,
    pub cancel: &'a Cancel,
}

struct RunningTraining<'a> {
    run: &'a TrainingRun<'a>,
    folder: TrainingFolder,
    training: Training,
    trainer: Trainer<f32>,
    steps: Vec<TrainingStep>,
    flop_per_token: f64,
    /// GEMM peak (FLOP/s).
    gemm_flop_per_s: f64,
}

impl TrainingRun<'_> {
    pub fn train(&self, progress: &mut dyn FnMut(TrainingProgress<'_>)) -> Result<Curve> {
        let id = id(&self.spec);
        let folder = self.store.training_folder(&id)?;
        if self.request.options.restart {
            folder.clear()?;
            self.remove_output()?;
        }
        let stored = folder.read()?;
        progress(TrainingProgress::Doing("hashing the weights"));
        let weights = self.request.model.fingerprint(self.spec.seed)?;
        let text_hash = self.data.key();
        if let Some(stored) = &stored {
            self.check_inputs(&stored.training, &weights, &text_hash)?;
            if stored.training.status == Status::Ok && written_by(&stored.training.output).is_some() {
                return Ok(stored.clone());
            }
        }
        self.write_held_out(&folder)?;
        let mut training = match stored {
            Some(Curve { training, .. }) => training,
            None => self.new_training(id, weights, text_hash),
        };
        training.output.clone_from(&self.output);
        training.status = Status::Running;
        training.reason = None;
        if training.before.is_none() && !self.spec.from_scratch {
            training.before = Some(self.quality(&folder, None, progress)?);
        }
        folder.write(&training)?;
        let mut running = self.begin(folder, training, progress)?;
        match running.run(progress) {
            Ok(()) => running.finish(progress),
            Err(error) => {
                let training = &mut running.training;
                training.status = if matches!(error, Error::Interrupted) {
                    Status::Interrupted
                } else {
                    Status::Failed
                };
                training.reason = Some(error.to_string());
                running.folder.write(&running.training)?;
                Err(error)
            }
        }
    }

    /// Returns an error if the text or weights changed since the training started.
    fn check_inputs(&self, stored: &Training, weights: &str, text_hash: &str) -> Result<()> {
        let files = [
            ("text", self.spec.text.as_str(), stored.text_hash.as_str(), text_hash),
            ("weights", self.spec.model.as_str(), stored.weights.as_str(), weights),
        ];
        let mut differ: Vec<String> = files
            .into_iter()
            .filter(|(_, _, before, now)| before != now)
            .map(|(what, name, before, now)| {
                format!("the {what} of {name} changed since (hash {before} then, {now} now)")
            })
            .collect();
        if let Some(replicas) =
            self.request.options.replicas.filter(|replicas| *replicas as usize != stored.replicas)
        {
            differ.push(format!("replicas is {} there, {replicas} here", stored.replicas));
        }
        if differ.is_empty() {
            return Ok(());
        }
        Err(Error::input_help(
            format!("training {} differs: {}", stored.id, differ.join("; ")),
            "use the same options to resume it, or start over with --restart",
        ))
    }

    fn remove_output(&self) -> Result<()> {
        match written_by(&self.output) {
            Some(writer) if writer == id(&self.spec) => {
                std::fs::remove_dir_all(&self.output).map_err(Error::io(&self.output))
            }
            _ => Ok(()),
        }
    }

    fn new_training(&self, id: String, weights: String, text_hash: String) -> Training {
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        let replicas = (cores / self.spec.tp as usize).clamp(1, self.spec.batch as usize);
        let now = self.store.now();
        Training {
            version: TRAINING,
            id,
            status: Status::Running,
            reason: None,
            spec: self.spec.clone(),
            weights,
            text_hash,
            train_tokens: self.data.train.len(),
            held_out_tokens: self.data.held_out.len(),
            parameters: 0,
            trained_parameters: 0,
            replicas: self.request.options.replicas.map_or(replicas, |replicas| replicas as usize),
            created: now.clone(),
            updated: now,
            step: 0,
            seconds: 0.0,
            speed: None,
            loss: None,
            before: None,
            after: None,
            output: self.output.clone(),
            machine: format!("{} ({})", cpu_name(), counted(cores, "core")),
            miniature: self.spec.from_scratch && self.request.model.shape.parameters() < MINIATURE,
        }
    }

    /// Writes the held-out tokens, so `evaluate --tokens-file` can use them.
    fn write_held_out(&self, folder: &TrainingFolder) -> Result<()> {
        let ids: Vec<String> = self.data.held_out.iter().map(u32::to_string).collect();
        base::atomic::write(&self.held_out(folder), (ids.join(" ") + "\n").as_bytes())
    }

    fn held_out(&self, folder: &TrainingFolder) -> PathBuf {
        let stem =
            self.request.text.path().file_stem().unwrap_or_default().to_string_lossy().into_owned();
        folder.file(&format!("{stem}.held-out.ids"))
    }

    /// Evaluates the held-out text with the trained model, compared with the initial one, or with the initial model.
    fn quality(
        &self,
        folder: &TrainingFolder,
        trained: Option<Model>,
        progress: &mut dyn FnMut(TrainingProgress<'_>),
    ) -> Result<Quality> {
        let spec = &self.spec;
        let own = self.request.model.clone();
        let is_trained = trained.is_some();
        let request = evaluate::QualityRequest {
            reference: Some(own.clone()).filter(|_| is_trained && !spec.from_scratch),
            model: trained.unwrap_or(own),
            text: Text::Ids(self.held_out(folder)),
            architectures: vec![spec.architecture.clone()],
            tp: if spec.architecture.is_of_any_tp(CommDType::Activations) { 1 } else { spec.tp },
            dtype: DType::F32,
            comm_dtype: CommDType::Activations,
            context: spec.context as usize,
            limit: None,
            seed: spec.seed,
            counts: is_trained,
        };
        let mut on_progress = |of: EvaluationProgress<'_>| progress(TrainingProgress::Evaluating(of));
        let cpu = evaluator(Backend::Cpu)?;
        let found = evaluate(
            &request,
            &mut TextCache::default(),
            cpu,
            self.store,
            self.cancel,
            &mut on_progress,
        )?;
        found
            .cases
            .first()
            .map(|case| case.quality)
            .ok_or_else(|| Error::failed("nothing was evaluated"))
    }

    fn begin(
        &self,
        mut folder: TrainingFolder,
        mut training: Training,
        progress: &mut dyn FnMut(TrainingProgress<'_>),
    ) -> Result<RunningTraining<'_>> {
        let (spec, model) = (&self.spec, &self.request.model);
        progress(TrainingProgress::Doing("loading weights"));
        let source = WeightSource::open(model, spec.seed)?;
        let load = |weight: &Weight, rank: u32| -> Result<Vec<f32>> {
            let mut numbers = source.load(weight, rank, spec.tp, DType::F32)?.numbers().into_owned();
            let is_head = weight.parts.iter().any(|part| part.tensor == Tensor::Head);
            // no expert is favoured before training
            if spec.from_scratch
                && weight.parts.iter().any(|p| matches!(p.tensor, Tensor::RouterBias(_)))
            {
                numbers.fill(0.0);
            }
            if spec.from_scratch && is_head && !model.shape.tied_embeddings {
                numbers.iter_mut().for_each(|number| *number *= HEAD_SCALE);
            }
            Ok(numbers)
        };
        let trains = |tensor: Tensor| match &spec.layers {
            None => true,
            Some(layers) => tensor.layer().is_some_and(|layer| layers.contains(&layer)),
        };
        let setup = Setup {
            shape: &model.shape,
            architecture: &spec.architecture,
            trains: &trains,
            tp: spec.tp,
            replicas: training.replicas,
            context: spec.context as usize,
            distil: spec.distil,
        };
        let mut trainer = Trainer::new(setup, &load)?;
        (training.parameters, training.trained_parameters) = trainer.parameters();
        training.step = restore(&mut trainer, &folder, &training)?;
        progress(TrainingProgress::Doing("measuring products of matrices"));
        // the speed covers all parts of a training, so its peak does too
        let earlier = training.speed.map_or(0.0, |speed| speed.gemm_flop_per_s);
        let (flop_per_token, gemm_flop_per_s) =
            (trainer.flop_per_token(), gemm_rate(&training).max(earlier));
        // a curve shorter than its checkpoint was lost in the disk's cache
        let known = folder.read()?.map(|curve| (curve.start, curve.curve.len())).unwrap_or_default();
        let start = match known.0 {
            Some(start) if training.step > 0 => Some(start),
            _ => Some(held_out_loss(&mut trainer, self.data, spec)?),
        };
        folder.open_curve(training.step, start)?;
        let steps = folder.read()?.map(|curve| curve.curve).unwrap_or_default();
        if training.step > 0 {
            progress(TrainingProgress::Note(&format!(
                "{}: going on after step {} of {}",
                spec.label(),
                training.step,
                spec.steps
            )));
        }
        Ok(RunningTraining {
            run: self,
            folder,
            training,
            trainer,
            steps,
            flop_per_token,
            gemm_flop_per_s,
        })
    }
}

/// GEMM peak (FLOP/s) with as many threads as the training uses.
fn gemm_rate(training: &Training) -> f64 {
    gemm_peak(training.replicas * training.spec.tp as usize)
}

impl RunningTraining<'_> {
    fn run(&mut self, progress: &mut dyn FnMut(TrainingProgress<'_>)) -> Result<()> {
        let TrainingRun { request, spec, data, cancel, .. } = self.run;
        let optimiser = Optimiser {
            lr: spec.lr,
            warmup: spec.warmup,
            weight_decay: spec.weight_decay,
            clip: spec.clip,
        };
        let (what, found, mut saved) = (spec.label(), self.training.step, Instant::now());
        let mut done = self.training.step;
        while done < spec.steps {
            if cancel.is_all() {
                self.checkpoint(done)?;
                return Err(Error::Interrupted);
            }
            let began = Instant::now();
            let windows = data.windows(spec.seed, done, spec.batch);
            let stepped = self.trainer.step(&windows, &optimiser, done, spec.steps)?;
            let seconds = began.elapsed().as_secs_f64();
            done += 1;
            let is_probed = done.is_multiple_of(spec.look_every) || done == spec.steps;
            let held_out =
                is_probed.then(|| held_out_loss(&mut self.trainer, data, spec)).transpose()?;
            let lost = mean_loss(stepped.lost, spec.distil.is_some());
            let step = TrainingStep {
                step: done,
                nll: lost.nll,
                kl: lost.kl,
                rate: optimiser.rate(done - 1, spec.steps),
                gradient_norm: stepped.gradient_norm,
                seconds,
                held_out,
            };
            self.folder.add(&step)?;
            self.steps.push(step);
            let tokens_per_s = f64::from(spec.batch * spec.context) / seconds;
            let of = spec.steps;
            progress(TrainingProgress::Step {
                what: &what,
                done,
                found,
                of,
                loss: lost.nll,
                tokens_per_s,
            });
            let is_due = match request.options.checkpoint_every {
                Some(every) => done.is_multiple_of(every),
                None => saved.elapsed() >= CHECKPOINT_INTERVAL,
            };
            if is_due && done < spec.steps {
                self.checkpoint(done)?;
                saved = Instant::now();
            }
        }
        if done > found {
            // the first measurement is too low if another program was running
            self.gemm_flop_per_s = self.gemm_flop_per_s.max(gemm_rate(&self.training));
        }
        self.checkpoint(done)
    }

    /// Stores parameters, moments and step atomically.
    fn checkpoint(&mut self, done: u32) -> Result<()> {
        // the curve must never be behind the checkpoint
        self.folder.sync()?;
        let state = self.trainer.state();
        let tensors: Vec<(String, Vec<usize>)> =
            state.iter().map(|(name, numbers)| (name.clone(), vec![numbers.len()])).collect();
        let spec = &self.run.spec;
        let about: HashMap<String, String> = [
            ("training", self.training.id.clone()),
            ("step", done.to_string()),
            // next window in the seed's order
            ("window", (u64::from(done) * u64::from(spec.batch)).to_string()),
        ]
        .map(|(key, value)| (key.to_owned(), value))
        .into();
        write_numbers(&self.folder.checkpoint(), about, &tensors, |at| Ok(Cow::Borrowed(state[at].1)))?;
        self.training.step = done;
        self.training.updated = self.run.store.now();
        self.training.seconds = self.steps.iter().map(|step| step.seconds).sum();
        self.training.speed = self.speed();
        self.folder.write(&self.training)
    }

    fn speed(&self) -> Option<TrainingSpeed> {
        let spec = &self.run.spec;
        let tokens = self.steps.len() as f64 * f64::from(spec.batch) * f64::from(spec.context);
        let seconds: f64 = self.steps.iter().map(|step| step.seconds).sum();
        let tokens_per_s = Some(tokens / seconds).filter(|rate| rate.is_finite())?;
        Some(TrainingSpeed::new(tokens_per_s, self.flop_per_token, self.gemm_flop_per_s))
    }

    fn finish(self, progress: &mut dyn FnMut(TrainingProgress<'_>)) -> Result<Curve> {
        let Self { run, folder, mut training, trainer, .. } = self;
        let TrainingRun { request, spec, output, store, .. } = run;
        if written_by(output).as_deref() != Some(training.id.as_str()) {
            progress(TrainingProgress::Doing("writing the model"));
            let wiring = Some(&spec.architecture).filter(|one| one.recorded_layers().is_some());
            let origin = serde_json::json!({ "id": training.id, "spec": spec });
            let origin = serde_json::to_vec_pretty(&origin).unwrap_or_default();
            let numbers = |tensor: Tensor| trainer.tensor(tensor);
            request.model.write_trained(
                spec.seed,
                wiring,
                &numbers,
                ("training.json", &origin),
                output,
            )?;
        }
        // its weights are no longer needed, and the evaluation loads its own
        drop(trainer);
        let trained = Model::resolve(&output.to_string_lossy())?;
        training.after = Some(run.quality(&folder, Some(trained), progress)?);
        let curve = folder.read()?;
        training.loss = curve.as_ref().and_then(Curve::last_loss);
        training.status = Status::Ok;
        training.updated = store.now();
        folder.write(&training)?;
        store.trained(&training)?;
        let Curve { start, curve, .. } = curve.ok_or_else(|| Error::failed("the training is gone"))?;
        Ok(Curve { training, start, curve })
    }
}

fn restore(trainer: &mut Trainer<f32>, folder: &TrainingFolder, training: &Training) -> Result<u32> {
    let path = folder.checkpoint();
    let Some(file) = NumbersFile::open(&path)? else { return Ok(0) };
    let step = file.about("step").and_then(|step| step.parse().ok());
    let training_id = file.about("training");
    let Some(step) =
        step.filter(|step| training_id == Some(&training.id) && *step <= training.spec.steps)
    else {
        return Err(Error::input_help(
            format!("{}: a checkpoint of training {}", path.display(), training_id.unwrap_or("nobody")),
            format!("it should be of {}: begin anew with --restart", training.id),
        ));
    };
    trainer.restore(&mut |name, numbers| file.fill(name, numbers))?;
    Ok(step)
}

/// Loss on the start of the held-out text.
fn held_out_loss(trainer: &mut Trainer<f32>, data: &Data, spec: &TrainingSpec) -> Result<HeldOut> {
    let lost = trainer.loss(&data.held_out(PROBE_WINDOWS))?;
    Ok(mean_loss(lost, spec.distil.is_some()))
}

fn mean_loss(lost: Lost, distils: bool) -> HeldOut {
    let tokens = lost.predicted as f64;
    HeldOut { nll: lost.nll / tokens, kl: distils.then_some(lost.kl / tokens) }
}
