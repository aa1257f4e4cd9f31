//! One training: start or resume from the last checkpoint, run its steps, write the final model.

use std::borrow::Cow;
use std::collections::HashMap;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use super::{Data, MINIATURE, TrainingProgress, TrainingRequest, id, written_by};
use crate::desk::evaluate::{self, EvaluationProgress, TextCache, TextSource, evaluate};
use base::error::{Error, Result};
use base::text::counted;
use lab::launch::Cancel;
use lab::store::{Store, TrainingFolder};
use machine::environment::cpu_name;
use model::{Model, TensorFile, WeightSource, write_tensors};
use plan::{CommDType, DType, Tensor, Weight};
use run::cpu::train::{BatchLoss, Optimiser, Trainer, TrainerSetup, gemm_peak};
use run::evaluator;
use table::{
    Backend, Curve, HeldOutLoss, Quality, Status, TRAINING, Training, TrainingSpec, TrainingSpeed,
    TrainingStep,
};

/// Time between checkpoints, unless the user sets the number of steps.
const CHECKPOINT_INTERVAL: Duration = Duration::from_secs(60);

/// Held-out windows used between steps; the whole held-out text is evaluated before and after.
const PROBE_WINDOWS: usize = 16;

/// Scale of an untied head's random weights before training. Unscaled, the logits would spread so widely that
/// training had to unlearn that first.
const HEAD_SCALE: f32 = 0.1;

/// Inputs of a training.
pub(super) struct TrainingRun<'a> {
    pub request: &'a TrainingRequest,
    pub spec: TrainingSpec,
    pub output: PathBuf,
    pub data: &'a Data,
    pub store: &'a Store,
    pub cancel: &'a Cancel,
}

/// Training in progress, with its open folder.
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
    /// Runs or resumes the training; returns a completed one from the store.
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
        let change = |input: &str, name: &str, before: &str, now: &str| {
            (before != now)
                .then(|| format!("the {input} of {name} changed since (hash {before} then, {now} now)"))
        };
        let text = change("text", &self.spec.text, &stored.text_hash, text_hash);
        let weights = change("weights", &self.spec.model, &stored.weights, weights);
        let mut differ: Vec<String> = text.into_iter().chain(weights).collect();
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

    /// Deletes the trained model of an earlier call, but no directory with another origin.
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
        base::atomic::write(&self.held_out_file(folder), (ids.join(" ") + "\n").as_bytes())
    }

    fn held_out_file(&self, folder: &TrainingFolder) -> PathBuf {
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
        let initial = self.request.model.clone();
        let is_trained = trained.is_some();
        let request = evaluate::QualityRequest {
            reference: Some(initial.clone()).filter(|_| is_trained && !spec.from_scratch),
            model: trained.unwrap_or(initial),
            text: TextSource::Ids(self.held_out_file(folder)),
            architectures: vec![spec.architecture.clone()],
            tp: if spec.architecture.is_of_any_tp(CommDType::Activations) { 1 } else { spec.tp },
            dtype: DType::F32,
            comm_dtype: CommDType::Activations,
            context: spec.context as usize,
            limit: None,
            seed: spec.seed,
            counts: is_trained,
        };
        let mut on_progress = |evaluation: EvaluationProgress<'_>| {
            progress(TrainingProgress::Evaluating(evaluation));
        };
        let cpu = evaluator(Backend::Cpu)?;
        let quality = evaluate(
            &request,
            &mut TextCache::default(),
            cpu,
            self.store,
            self.cancel,
            &mut on_progress,
        )?;
        quality
            .cases
            .first()
            .map(|case| case.quality)
            .ok_or_else(|| Error::failed("nothing was evaluated"))
    }

    /// Loads the weights of all ranks; random ones are prepared for training.
    fn new_trainer(&self, replicas: usize) -> Result<Trainer<f32>> {
        let (spec, model) = (&self.spec, &self.request.model);
        let source = WeightSource::open(model, spec.seed)?;
        let load = |weight: &Weight, rank: u32| -> Result<Vec<f32>> {
            let mut numbers = source.load(weight, rank, spec.tp, DType::F32)?.numbers().into_owned();
            let has =
                |matches: fn(&Tensor) -> bool| weight.parts.iter().any(|part| matches(&part.tensor));
            // no expert is favoured before training
            if spec.from_scratch && has(|tensor| matches!(tensor, Tensor::RouterBias(_))) {
                numbers.fill(0.0);
            }
            let is_untied_head = has(|tensor| *tensor == Tensor::Head) && !model.shape.tied_embeddings;
            if spec.from_scratch && is_untied_head {
                numbers.iter_mut().for_each(|number| *number *= HEAD_SCALE);
            }
            Ok(numbers)
        };
        let trains = |tensor: Tensor| match &spec.layers {
            None => true,
            Some(layers) => tensor.layer().is_some_and(|layer| layers.contains(&layer)),
        };
        let setup = TrainerSetup {
            shape: &model.shape,
            architecture: &spec.architecture,
            trains: &trains,
            tp: spec.tp,
            replicas,
            context: spec.context as usize,
            distil: spec.distil,
        };
        Trainer::new(setup, &load)
    }

    /// Resumes from the checkpoint, if there is one.
    fn begin(
        &self,
        mut folder: TrainingFolder,
        mut training: Training,
        progress: &mut dyn FnMut(TrainingProgress<'_>),
    ) -> Result<RunningTraining<'_>> {
        let spec = &self.spec;
        progress(TrainingProgress::Doing("loading weights"));
        let mut trainer = self.new_trainer(training.replicas)?;
        (training.parameters, training.trained_parameters) = trainer.parameters();
        training.step = restore(&mut trainer, &folder, &training)?;
        progress(TrainingProgress::Doing("measuring products of matrices"));
        // the speed covers all parts of a training, so its peak does too
        let earlier = training.speed.map_or(0.0, |speed| speed.gemm_flop_per_s);
        let (flop_per_token, gemm_flop_per_s) =
            (trainer.flop_per_token(), gemm_rate(&training).max(earlier));
        let stored_start = folder.read()?.and_then(|curve| curve.start);
        let start = match stored_start.filter(|_| training.step > 0) {
            Some(start) => start,
            None => held_out_loss(&mut trainer, self.data, spec)?,
        };
        folder.open_curve(training.step, Some(start))?;
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
        let TrainingRun { request, spec, cancel, .. } = self.run;
        let optimiser = Optimiser {
            lr: spec.lr,
            warmup: spec.warmup,
            weight_decay: spec.weight_decay,
            clip: spec.clip,
        };
        let (label, resumed_at) = (spec.label(), self.training.step);
        let mut last_checkpoint = Instant::now();
        let mut done = resumed_at;
        while done < spec.steps {
            if cancel.is_all() {
                self.checkpoint(done)?;
                return Err(Error::Interrupted);
            }
            let step = self.train_step(done, &optimiser)?;
            done += 1;
            self.folder.add(&step)?;
            progress(TrainingProgress::Step {
                what: &label,
                done,
                found: resumed_at,
                of: spec.steps,
                loss: step.nll,
                tokens_per_s: f64::from(spec.batch * spec.context) / step.seconds,
            });
            self.steps.push(step);
            let is_due = match request.options.checkpoint_every {
                Some(every) => done.is_multiple_of(every),
                None => last_checkpoint.elapsed() >= CHECKPOINT_INTERVAL,
            };
            if is_due && done < spec.steps {
                self.checkpoint(done)?;
                last_checkpoint = Instant::now();
            }
        }
        if done > resumed_at {
            // the first measurement is too low if another program was running
            self.gemm_flop_per_s = self.gemm_flop_per_s.max(gemm_rate(&self.training));
        }
        self.checkpoint(done)
    }

    /// Trains on the windows after step `done`, and evaluates the held-out text if due.
    fn train_step(&mut self, done: u32, optimiser: &Optimiser) -> Result<TrainingStep> {
        let TrainingRun { spec, data, .. } = self.run;
        let started = Instant::now();
        let windows = data.windows(spec.seed, done, spec.batch);
        let stepped = self.trainer.step(&windows, optimiser, done, spec.steps)?;
        let seconds = started.elapsed().as_secs_f64();
        let step = done + 1;
        let is_probed = step.is_multiple_of(spec.look_every) || step == spec.steps;
        let held_out = is_probed.then(|| held_out_loss(&mut self.trainer, data, spec)).transpose()?;
        let loss = mean_loss(stepped.lost, spec.distil.is_some());
        Ok(TrainingStep {
            step,
            nll: loss.nll,
            kl: loss.kl,
            rate: optimiser.rate(done, spec.steps),
            gradient_norm: stepped.gradient_norm,
            seconds,
            held_out,
        })
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
        write_tensors(&self.folder.checkpoint(), about, &tensors, |at| Ok(Cow::Borrowed(state[at].1)))?;
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

    /// Writes and evaluates the trained model.
    fn finish(self, progress: &mut dyn FnMut(TrainingProgress<'_>)) -> Result<Curve> {
        let Self { run, folder, mut training, trainer, .. } = self;
        let TrainingRun { request, spec, output, store, .. } = run;
        if written_by(output).as_deref() != Some(training.id.as_str()) {
            progress(TrainingProgress::Doing("writing the model"));
            let wiring =
                Some(&spec.architecture).filter(|architecture| architecture.recorded_layers().is_some());
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

/// Restores the checkpoint, if there is one, and returns its step.
fn restore(trainer: &mut Trainer<f32>, folder: &TrainingFolder, training: &Training) -> Result<u32> {
    let path = folder.checkpoint();
    let Some(file) = TensorFile::open(&path)? else { return Ok(0) };
    let step = file.text_metadata("step").and_then(|step| step.parse().ok());
    let training_id = file.text_metadata("training");
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
fn held_out_loss(trainer: &mut Trainer<f32>, data: &Data, spec: &TrainingSpec) -> Result<HeldOutLoss> {
    let lost = trainer.loss(&data.held_out(PROBE_WINDOWS))?;
    Ok(mean_loss(lost, spec.distil.is_some()))
}

fn mean_loss(lost: BatchLoss, distils: bool) -> HeldOutLoss {
    let tokens = lost.predicted as f64;
    HeldOutLoss { nll: lost.nll / tokens, kl: distils.then_some(lost.kl / tokens) }
}
