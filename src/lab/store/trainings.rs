//! Trainings, each in its own folder of the runs directory: `trainings/ID/`, where ID is derived from the request.
//!
//! ```text
//! training.json             request, progress and result; rewritten at each checkpoint
//! curve.jsonl               loss per step, one line per step, appended during training
//! checkpoint.safetensors    trained parameters, their moments, and the number of steps
//! TEXT.held-out.ids         held-out tokens
//! model/                    final model as an HF directory, unless another place is named
//! process.json, lock        process that trains
//! ```
//!
//! `trainings/finished.jsonl` has one line per finished training, from which runs get the training results of their
//! model. A curve may be ahead of its checkpoint; its extra steps are cut off when the training resumes.

use std::collections::HashMap;
use std::fs::File;
use std::io::{Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::claims::{Liveness, ProcessIdentity};
use super::directory::{Store, file_name, json, names};
use super::evaluations::place;
use super::log;
use base::error::{Error, Result};
use base::{atomic, regular};
use plan::CommDType;
use table::{Curve, HeldOutLoss, Record, RunTraining, Spec, Status, TRAINING, Training, TrainingStep};

pub(super) const FOLDER: &str = "trainings";

const FINISHED: &str = "finished.jsonl";

const FILE: &str = "training.json";

pub(super) const CURVE: &str = "curve.jsonl";

#[derive(Debug, Serialize, Deserialize)]
struct First {
    version: u32,
    start: Option<HeldOutLoss>,
}

/// Folder of a training, held exclusively by this process.
#[derive(Debug)]
pub struct TrainingFolder {
    path: PathBuf,
    curve: Option<File>,
    /// Locked as long as this process uses the folder.
    _lock: File,
}

impl Store {
    /// Opens the folder of a training, creating it if needed. No other process can train in it until the result is
    /// dropped.
    ///
    /// # Errors
    ///
    /// Returns an input error if another process trains in it, and a failure if it cannot be created.
    pub fn training_folder(&self, id: &str) -> Result<TrainingFolder> {
        let path = self.folder(FOLDER)?.join(id);
        regular::check_directory(&path).map_err(Error::io(&path))?;
        regular::make_folder(&path).map_err(Error::io(&path))?;
        let lock = log::try_lock(&path.join("lock"))?.ok_or_else(|| {
            Error::input_help(
                format!("{}: another process is at this training", path.display()),
                "wait for it, or stop it: finished steps are kept",
            )
        })?;
        let process = serde_json::to_vec(&ProcessIdentity::current()).unwrap_or_default();
        atomic::write(&path.join("process.json"), &process)?;
        Ok(TrainingFolder { path, curve: None, _lock: lock })
    }

    /// Stored training with its curve; `None` if there is none with this id. Fails if it exists and cannot be read.
    pub fn training(&self, id: &str) -> Result<Option<Curve>> {
        read(&self.dir().join(FOLDER).join(id))
    }

    /// All stored trainings, newest first, and the errors of unreadable ones. Fails if the folder exists and cannot
    /// be read.
    pub fn trainings(&self) -> Result<(Vec<Curve>, Vec<String>)> {
        let folder = self.folder(FOLDER)?;
        let ids = names(&folder, |entry| file_name(entry).filter(|_| entry.is_dir))?;
        let (mut found, mut unreadable) = (Vec::new(), Vec::new());
        for id in ids {
            match read(&folder.join(&id)) {
                Ok(curve) => found.extend(curve),
                Err(error) => unreadable.push(error.to_string()),
            }
        }
        found.sort_by(|a, b| {
            b.training.created.cmp(&a.training.created).then(a.training.id.cmp(&b.training.id))
        });
        Ok((found, unreadable))
    }

    /// Records that a training has finished. From now on, runs of its model and architecture carry its result. Fails
    /// if the file cannot be written.
    pub fn trained(&self, training: &Training) -> Result<()> {
        log::append(&self.finished_path(), |_| log::line(training))
    }

    pub(super) fn finished_path(&self) -> PathBuf {
        self.dir().join(FOLDER).join(FINISHED)
    }

    /// Adds training results to runs by model and architecture: the newest training, together with those that differ
    /// only in their seeds. Costs one file lookup if nothing was trained.
    pub(super) fn add_trainings(&self, records: &mut [Record]) {
        let finished = self.ended_trainings();
        if finished.is_empty() {
            return;
        }
        // a path is resolved once, not for each pair of a run and a training
        let resolved = |training: &Training| {
            [place(&training.spec.model), place(&training.output.to_string_lossy())]
        };
        let places: Vec<[PathBuf; 2]> = finished.iter().map(resolved).collect();
        let mut of_models: HashMap<String, Vec<&Training>> = HashMap::new();
        for record in records.iter_mut().filter(|record| record.metrics.is_some()) {
            let of_model = of_models.entry(record.spec.model.clone()).or_insert_with(|| {
                let model = place(&record.spec.model);
                let all = finished.iter().zip(&places);
                all.filter(|(_, places)| places.contains(&model)).map(|(training, _)| training).collect()
            });
            record.training = of_cell(of_model, &record.spec).map(Arc::new);
        }
    }

    /// Finished trainings, newest first, each id once.
    fn ended_trainings(&self) -> Arc<Vec<Training>> {
        self.trainings.get(&self.finished_path(), |read| {
            // optional data: an unreadable file counts as missing
            let mut all: Vec<Training> = Vec::new();
            for training in log::parse::<Training>(&read.unwrap_or_default()).rev().flatten() {
                if training.version <= TRAINING && all.iter().all(|known| known.id != training.id) {
                    all.push(training);
                }
            }
            all
        })
    }
}

/// Results of those trainings of a model that have a cell's architecture.
fn of_cell(trainings: &[&Training], spec: &Spec) -> Option<RunTraining> {
    let is_of = |training: &&&Training| {
        let trained = &training.spec;
        trained.architecture == spec.architecture
            && (trained.tp == spec.tp || trained.architecture.is_of_any_tp(CommDType::Activations))
    };
    let all: Vec<&Training> = trainings.iter().filter(is_of).copied().collect();
    let newest = all.first()?;
    let same = |training: &&Training| training.spec.set() == newest.spec.set();
    RunTraining::from_trainings(&all.iter().copied().filter(same).collect::<Vec<_>>())
}

impl TrainingFolder {
    pub fn file(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }

    pub fn checkpoint(&self) -> PathBuf {
        self.file("checkpoint.safetensors")
    }

    /// Stored state of the training; `None` if it is new. Fails if it exists and cannot be read.
    pub fn read(&self) -> Result<Option<Curve>> {
        read(&self.path)
    }

    /// Stores the current state of the training. Fails if the file cannot be written.
    pub fn write(&self, training: &Training) -> Result<()> {
        atomic::write(&self.file(FILE), &json(training)?)
    }

    /// Deletes the stored state of the training. Fails if a file cannot be removed.
    pub fn clear(&self) -> Result<()> {
        for name in [FILE, CURVE, "checkpoint.safetensors"] {
            let path = self.file(name);
            regular::if_exists(regular::remove_file(&path)).map_err(Error::io(&path))?;
        }
        Ok(())
    }

    /// Opens the curve for appending after the first `steps` steps and cuts off later ones. A new curve starts with
    /// the initial loss on the held-out text. Fails if it cannot be written.
    pub fn open_curve(&mut self, steps: u32, start: Option<HeldOutLoss>) -> Result<()> {
        let path = self.file(CURVE);
        let open = || -> std::io::Result<File> {
            let mut file = regular::open_or_make(&path)?;
            let mut bytes = Vec::new();
            file.read_to_end(&mut bytes)?;
            // the first line, then one per step
            let lines = if steps == 0 { 0 } else { steps as usize + 1 };
            let end =
                bytes.split_inclusive(|byte| *byte == b'\n').take(lines).map(<[u8]>::len).sum::<usize>();
            file.set_len(end as u64)?;
            file.seek(SeekFrom::End(0))?;
            if end == 0 {
                file.write_all(&log::line(&First { version: TRAINING, start })?)?;
            }
            Ok(file)
        };
        self.curve = Some(open().map_err(Error::io(&path))?);
        Ok(())
    }

    /// Appends a step to the curve. Fails if the curve is not open or cannot be written.
    pub fn add(&mut self, step: &TrainingStep) -> Result<()> {
        let path = self.file(CURVE);
        let file = self.curve.as_mut().ok_or_else(|| Error::failed("the curve is not open"))?;
        let line = log::line(step).map_err(std::io::Error::from);
        line.and_then(|line| file.write_all(&line)).map_err(Error::io(&path))
    }

    /// Syncs the curve to disk, before a checkpoint refers to it. Fails if the sync fails.
    pub fn sync(&self) -> Result<()> {
        let path = self.file(CURVE);
        self.curve.as_ref().map_or(Ok(()), |file| file.sync_data()).map_err(Error::io(&path))
    }
}

/// Reads a training from its folder. A running one whose process is gone becomes interrupted.
fn read(folder: &Path) -> Result<Option<Curve>> {
    let path = folder.join(FILE);
    let read = regular::if_exists(regular::read(&path)).map_err(Error::io(&path))?;
    let Some(bytes) = read else { return Ok(None) };
    let version =
        serde_json::from_slice::<serde_json::Value>(&bytes).ok().and_then(|v| v["version"].as_u64());
    if let Some(version) = version.filter(|version| *version > u64::from(TRAINING)) {
        return Err(Error::input(format!(
            "{}: format {version}, and this program reads up to {TRAINING}",
            path.display()
        )));
    }
    let mut training: Training = serde_json::from_slice(&bytes)
        .map_err(|e| Error::input(format!("{}: no training: {e}", path.display())))?;
    if training.status == Status::Running {
        let process = regular::read(&folder.join("process.json")).ok();
        let process = process.and_then(|bytes| serde_json::from_slice::<ProcessIdentity>(&bytes).ok());
        if process.is_none_or(|process| process.liveness() == Liveness::Gone) {
            training.status = Status::Interrupted;
        }
    }
    let bytes = regular::read(&folder.join(CURVE)).unwrap_or_default();
    let (start, curve) = parse(&bytes);
    Ok(Some(Curve { training, start, curve }))
}

/// Parses the readable lines of a curve.
fn parse(bytes: &[u8]) -> (Option<HeldOutLoss>, Vec<TrainingStep>) {
    let first = log::parse::<First>(bytes).next().and_then(|first| first.ok());
    (first.and_then(|first| first.start), log::parse(bytes).skip(1).flatten().collect())
}

/// Finds the first damaged line of `finished.jsonl`.
pub(super) fn check_finished(bytes: &[u8]) -> Result<(), String> {
    log::check(bytes, TRAINING, |_, line| log::is::<Training>(line))
}

/// Finds the first damaged line of a curve.
pub(super) fn check_curve(bytes: &[u8]) -> Result<(), String> {
    log::check(bytes, TRAINING, |at, line| match at {
        0 => log::is::<First>(line),
        _ => log::is::<TrainingStep>(line),
    })
}

#[cfg(test)]
mod tests {
    //! Folders of trainings: what is kept, cut off, told of the dead, and found for runs.

    use proptest::prelude::*;

    use super::super::sample_spec;
    use super::*;
    use table::testing::training;
    use table::{Metrics, measure};

    fn step(step: u32) -> TrainingStep {
        TrainingStep {
            step,
            nll: 1.0 / f64::from(step + 2),
            kl: None,
            rate: 1e-3,
            gradient_norm: 0.1,
            seconds: 0.5,
            held_out: None,
        }
    }

    #[test]
    fn a_curve_goes_on_after_its_checkpoint_and_a_torn_line_is_no_step() {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::open(dir.path().join("runs"));
        assert_eq!(store.trainings().unwrap(), (vec![], vec![]));
        assert!(!store.dir().exists(), "nothing is made until something is stored");
        let start = Some(HeldOutLoss { nll: 5.5, kl: None });
        {
            let mut folder = store.training_folder("a").unwrap();
            assert_eq!(folder.read().unwrap(), None);
            let told = store.training_folder("a").unwrap_err();
            assert!(told.exit_code() == 2 && told.to_string().contains("another process"), "{told}");
            folder.write(&training("ladder", 0)).unwrap();
            folder.open_curve(0, start).unwrap();
            (1..=3).for_each(|at| folder.add(&step(at)).unwrap());
            folder.sync().unwrap();
            let found = folder.read().unwrap().unwrap();
            assert_eq!((found.start, found.curve.len()), (start, 3));
            assert_eq!(found.training.status, Status::Running);
            assert_eq!(found.curve[2], step(3), "bit by bit");
        }
        let curve = store.dir().join("trainings/a/curve.jsonl");
        let whole = std::fs::read(&curve).unwrap();
        std::fs::write(&curve, &whole[..whole.len() - 5]).unwrap();
        assert_eq!(store.training("a").unwrap().unwrap().curve.len(), 2);
        std::fs::write(&curve, &whole).unwrap();
        let mut folder = store.training_folder("a").unwrap();
        folder.open_curve(2, None).unwrap();
        folder.add(&TrainingStep { nll: 9.0, ..step(3) }).unwrap();
        let found = folder.read().unwrap().unwrap();
        assert_eq!((found.start, found.curve.len(), found.curve[2].nll), (start, 3, 9.0));
        folder.clear().unwrap();
        assert_eq!(folder.read().unwrap(), None);
    }

    #[test]
    fn a_training_whose_process_is_gone_is_interrupted_and_a_newer_format_is_told() {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::open(dir.path());
        let folder = store.training_folder("a").unwrap();
        folder.write(&training("ladder", 0)).unwrap();
        let process = folder.file("process.json");
        let mut gone = ProcessIdentity::current();
        gone.start_ticks = gone.start_ticks.map(|ticks| ticks + 1);
        std::fs::write(&process, serde_json::to_vec(&gone).unwrap()).unwrap();
        assert_eq!(store.training("a").unwrap().unwrap().training.status, Status::Interrupted);
        let newer = Training { version: TRAINING + 1, ..training("ladder", 0) };
        folder.write(&newer).unwrap();
        let (found, told) = store.trainings().unwrap();
        assert!(found.is_empty() && told[0].contains("reads up to 1"), "{told:?}");
    }

    #[test]
    fn runs_have_what_trainings_of_their_model_and_architecture_ended_with() {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::open(dir.path());
        let run = |architecture: &str, model: String| {
            let spec = Spec { model, ..sample_spec(architecture) };
            let run = store.begin(&spec, None, 0).unwrap().id;
            let metrics = Some(Metrics::default());
            let record = Record { run: run.clone(), metrics, ..Record::new(spec, Status::Ok, None) };
            store.finish(&record).unwrap();
            run
        };
        for architecture in ["ladder", "standard"] {
            run(architecture, "mini".into());
        }
        let loss = |architecture: &str| {
            let records = store.list().unwrap().records;
            let record =
                records.iter().find(|r| r.spec.architecture.to_string() == architecture).unwrap();
            let measure = measure("train_loss").unwrap();
            (measure.of(record), measure.interval_of(record))
        };
        assert_eq!(loss("ladder"), (None, None));
        let before = store.fingerprint().unwrap();
        let ended = |seed: u64, loss: f64, steps: u32| {
            let mut training = training("ladder", seed);
            training.loss = Some(loss);
            training.spec.steps = steps;
            training.id = format!("{seed}-{steps}");
            store.trained(&training).unwrap();
        };
        ended(0, 9.0, 2);
        assert_ne!(store.fingerprint().unwrap(), before, "who shows runs is to read them again");
        ended(0, 2.0, 4);
        ended(1, 4.0, 4);
        let (mean, interval) = loss("ladder");
        assert_eq!(mean, Some(3.0), "seeds of the newest, not other settings");
        let [low, high] = interval.unwrap();
        assert!((low - (3.0 - 12.706)).abs() < 1e-3 && (high - (3.0 + 12.706)).abs() < 1e-3);
        assert_eq!(loss("standard"), (None, None));
        // a run of a training's result has the numbers of that training alone, however its path is written
        let output = dir.path().join("result");
        std::fs::create_dir(&output).unwrap();
        store.trained(&Training { loss: Some(7.0), output, ..training("standard", 9) }).unwrap();
        let model = dir.path().join("./result/../result").display().to_string();
        let run = run("standard", model);
        assert_eq!(measure("train_loss").unwrap().of(&store.get(&run).unwrap()), Some(7.0));
    }

    proptest! {
        #[test]
        fn reading_a_curve_never_panics(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            parse(&bytes);
        }
    }
}
