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
    let start = Some(HeldOut { nll: 5.5, kl: None });
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
    let mut gone = Process::current();
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
    for architecture in ["ladder", "standard"] {
        let mut spec = sample_spec(architecture);
        spec.model = "mini".into();
        let run = store.begin(&spec, None, 0).unwrap();
        let record = Record {
            run: run.id,
            metrics: Some(Metrics::default()),
            ..Record::new(spec, Status::Ok, None)
        };
        store.finish(&record).unwrap();
    }
    let loss = |architecture: &str| {
        let records = store.list().unwrap().records;
        let record = records.iter().find(|r| r.spec.architecture.to_string() == architecture).unwrap();
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
    let spec = Spec { model, ..sample_spec("standard") };
    let run = store.begin(&spec, None, 0).unwrap().id;
    let metrics = Some(Metrics::default());
    store.finish(&Record { run: run.clone(), metrics, ..Record::new(spec, Status::Ok, None) }).unwrap();
    assert_eq!(measure("train_loss").unwrap().of(&store.get(&run).unwrap()), Some(7.0));
}

proptest! {
    #[test]
    fn reading_a_curve_never_panics(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        parse(&bytes);
    }
}
