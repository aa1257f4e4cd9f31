//! Trainings on small models: gone on with exactly, refused with reasons, repaired.

use proptest::prelude::*;

use super::*;
use plan::DType;
use table::Backend;

/// A text of bytes in which much can be learned, and a store.
struct Place {
    dir: tempfile::TempDir,
    store: Store,
}

impl Place {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let text = "the cat sat on the mat. the dog sat on the log. ".repeat(12);
        std::fs::write(dir.path().join("text.txt"), text).unwrap();
        let store = Store::open(dir.path().join("runs"));
        Self { dir, store }
    }

    fn request(&self, architectures: &[&str]) -> TrainingRequest {
        TrainingRequest {
            model: Model::resolve("tiny").unwrap(),
            from_scratch: true,
            text: TextSource::Words(self.dir.path().join("text.txt")),
            limit: None,
            architectures: architectures.iter().map(|a| a.parse().unwrap()).collect(),
            options: TrainingOptions {
                steps: 12,
                batch: 4,
                context: 16,
                lr: Some(3e-3),
                replicas: Some(2),
                checkpoint_every: Some(5),
                ..TrainingOptions::default()
            },
        }
    }

    fn train(&self, request: &TrainingRequest) -> Vec<Curve> {
        adapt(request, &self.store, &Cancel::default(), &mut |_| ()).unwrap()
    }

    /// Cancels after so many steps.
    fn interrupt(&self, request: &TrainingRequest, after: u32) {
        let cancel = Cancel::default();
        let ended = adapt(request, &self.store, &cancel, &mut |progress| {
            if matches!(progress, TrainingProgress::Step { done, .. } if done >= after) {
                cancel.all();
            }
        });
        assert!(matches!(ended, Err(Error::Interrupted)), "{ended:?}");
    }
}

/// What steps lost, bit by bit, and their held-out losses.
fn bits(curve: &Curve) -> Vec<(u64, Option<u64>)> {
    let of = |held_out: Option<table::HeldOutLoss>| held_out.map(|lost| lost.nll.to_bits());
    curve.curve.iter().map(|step| (step.nll.to_bits(), of(step.held_out))).collect()
}

#[test]
fn a_resumed_training_gives_bit_identical_results() {
    let place = Place::new();
    let whole = place.train(&place.request(&["ladder"])).remove(0);
    assert_eq!(whole.curve.len(), 12);
    assert!(whole.last_loss().unwrap() < 0.8 * whole.curve[0].nll, "{:?}", bits(&whole));
    let training = &whole.training;
    assert_eq!((training.status, training.step, training.miniature), (Status::Ok, 12, true));
    assert!(training.loss.is_some() && training.before.is_none() && training.after.is_some());
    let speed = training.speed.unwrap();
    let share = speed.tokens_per_s * speed.flop_per_token / speed.gemm_flop_per_s;
    assert!(share > 0.0 && speed.gemm_share == Some(share).filter(|share| *share <= 1.0), "{speed:?}");
    let output = Model::resolve(&training.output.to_string_lossy()).unwrap();
    assert_eq!(output.wiring, Some(Architecture::Ladder(LayerSet::Last(4))));

    let other = Place::new();
    let request = other.request(&["ladder"]);
    other.interrupt(&request, 3);
    other.interrupt(&request, 7);
    let (stored, problems) = other.store.trainings().unwrap();
    assert!(problems.is_empty() && stored.len() == 1);
    assert_eq!((stored[0].training.status, stored[0].training.step), (Status::Interrupted, 7));
    // as if the machine had been faster then: all parts are held against the most that was reached
    let mut faster = stored[0].training.clone();
    faster.speed.as_mut().unwrap().gemm_flop_per_s = 1e18;
    other.store.training_folder(&faster.id).unwrap().write(&faster).unwrap();
    let gone_on = other.train(&request).remove(0);
    assert_eq!(bits(&gone_on), bits(&whole));
    assert_eq!(gone_on.training.after, whole.training.after);
    assert_eq!(gone_on.training.speed.unwrap().gemm_flop_per_s, 1e18);
    // once more it is found, and nothing is computed
    let mut steps = 0;
    let again = adapt(&request, &other.store, &Cancel::default(), &mut |progress| {
        steps += u32::from(matches!(progress, TrainingProgress::Step { .. }));
    });
    assert_eq!((again.unwrap().remove(0), steps), (gone_on, 0));
}

#[test]
fn steps_after_the_last_checkpoint_are_repeated_after_a_crash() {
    let place = Place::new();
    let request = place.request(&["parallel"]);
    place.interrupt(&request, 6);
    // as a kill would leave it: steps are in the curve that no checkpoint has
    let stored = place.store.trainings().unwrap().0.remove(0);
    let curve = place.store.dir().join("trainings").join(&stored.training.id).join("curve.jsonl");
    let lines = std::fs::read_to_string(&curve).unwrap();
    std::fs::write(
        &curve,
        format!("{lines}{}", lines.lines().last().unwrap().replace("\"step\":6", "\"step\":7")),
    )
    .unwrap();
    let ended = place.train(&request).remove(0);
    assert_eq!(
        ended.curve.iter().map(|step| step.step).collect::<Vec<_>>(),
        (1..=12).collect::<Vec<_>>()
    );
    let whole = Place::new();
    assert_eq!(bits(&ended), bits(&whole.train(&whole.request(&["parallel"])).remove(0)));
}

#[test]
fn changed_text_or_output_is_an_error_that_names_the_difference() {
    let place = Place::new();
    let mut request = place.request(&["standard"]);
    request.options.output = Some(place.dir.path().join("out"));
    place.interrupt(&request, 2);
    let refusal = |request: &TrainingRequest| {
        let error = adapt(request, &place.store, &Cancel::default(), &mut |_| ()).unwrap_err();
        assert_eq!(error.exit_code(), 2, "{error}");
        error.to_string()
    };
    let changed = |change: &dyn Fn(&mut TrainingOptions)| {
        let mut request = request.clone();
        change(&mut request.options);
        request
    };
    let text = refusal(&changed(&|options| options.lr = Some(0.5)));
    assert!(text.contains("lr is 0.003 there, 0.5 here"), "{text}");
    let text = refusal(&changed(&|options| options.replicas = Some(1)));
    assert!(text.contains("replicas is 2 there, 1 here"), "{text}");
    std::fs::write(place.dir.path().join("text.txt"), "another text. ".repeat(40)).unwrap();
    let text = refusal(&request);
    assert!(text.contains("the text of") && text.contains("changed since"), "{text}");
    let ended = place.train(&changed(&|options| options.restart = true)).remove(0);
    assert_eq!(ended.training.output, place.dir.path().join("out"));
    // and what it ended with is not overwritten by another
    let text = refusal(&changed(&|options| options.steps = 3));
    assert!(text.contains("steps is 12 there, 3 here"), "{text}");
    std::fs::create_dir(place.dir.path().join("full")).unwrap();
    std::fs::write(place.dir.path().join("full/file"), "").unwrap();
    let full = Some(place.dir.path().join("full"));
    assert!(refusal(&changed(&|options| options.output.clone_from(&full))).contains("not empty"));
}

#[test]
fn invalid_requests_are_refused_before_anything_is_stored() {
    let place = Place::new();
    let refusal = |change: &dyn Fn(&mut TrainingRequest)| {
        let mut request = place.request(&["ladder"]);
        change(&mut request);
        let error = adapt(&request, &place.store, &Cancel::default(), &mut |_| ()).unwrap_err();
        assert_eq!(error.exit_code(), 2, "{error}");
        error.to_string()
    };
    let architecture =
        |name: &'static str| refusal(&|request| request.architectures = vec![name.parse().unwrap()]);
    assert!(architecture("upper-bound").contains("cannot be trained"));
    assert!(architecture("ladder:9").contains("the last 9 layers"));
    assert!(refusal(&|request| request.options.tp = 3).contains("TP 3"));
    assert!(refusal(&|request| request.options.context = 512).contains("of them held out"));
    assert!(refusal(&|request| request.options.distil = Some(1.0)).contains("needs trained weights"));
    let fifth = Some(Layers::These(LayerSet::Only(vec![4])));
    assert!(refusal(&|request| request.options.layers.clone_from(&fifth)).contains("layer 4"));
    let standard = |request: &mut TrainingRequest| {
        request.architectures = vec![Architecture::Standard];
        request.options.layers = Some(Layers::Converted);
    };
    assert!(refusal(&standard).contains("standard converts no layer"));
    assert!(refusal(&|request| request.text = TextSource::Words("no/such".into())).contains("no/such"));
    assert!(!place.store.dir().exists());
}

/// A model that knows its text, one of whose layers is then wired as ladder: what that costs is won back by training the
/// layer alone, and nothing else changes.
#[test]
fn retraining_improves_a_conversion_and_changes_only_its_layers() {
    let place = Place::new();
    let mut request = place.request(&["standard"]);
    request.options.steps = 60;
    let taught = place.train(&request).remove(0);
    let model = Model::resolve(&taught.training.output.to_string_lossy()).unwrap();
    let mut request =
        TrainingRequest { model, from_scratch: false, ..place.request(&["standard", "ladder:3"]) };
    request.options = TrainingOptions {
        layers: Some(Layers::Converted),
        distil: Some(30.0),
        lr: Some(1e-3),
        steps: 20,
        ..request.options
    };
    let found = place.train(&request);
    let [control, ladder] = [&found[0].training, &found[1].training];
    assert_eq!(control.spec.layers, Some(vec![1, 2, 3]), "the control trains what the conversion does");
    assert!(ladder.trained_parameters < ladder.parameters);
    let (before, after) = (ladder.before.unwrap(), ladder.after.unwrap());
    assert!(before.kl > 0.002 && after.kl < before.kl, "{before:?} {after:?}");
    assert_eq!(control.before.unwrap().kl, 0.0, "beside itself");
    assert!(control.after.unwrap().kl > 0.0, "it left the model that it began with");
    assert!(found[1].curve.iter().all(|step| step.kl.is_some()));
    // runs of the result have that quality, from the model that it began with
    let output = ladder.output.to_string_lossy().into_owned();
    let architecture = "ladder:3".parse().unwrap();
    let mut spec = table::Spec { architecture, hardware: "host".into(), ..table::testing::spec() };
    (spec.model, spec.backend, spec.dtype) = (output.clone(), Backend::Cpu, DType::F32);
    let run = place.store.begin(&spec, None, 0).unwrap();
    let metrics = Some(table::Metrics::default());
    let record = table::Record { run: run.id, metrics, ..table::Record::new(spec, Status::Ok, None) };
    place.store.finish(&record).unwrap();
    let record = place.store.list().unwrap().records.remove(0);
    let quality = record.quality.unwrap();
    assert_eq!(quality.quality.kl, after.kl);
    assert!(quality.full_basis().contains("KL from standard of"), "{}", quality.full_basis());
    assert_eq!(record.training.unwrap().kl, Some(after.kl));
}

proptest! {
    /// Every token but those at the ends is predicted once a pass, windows never reach what is held out, and the
    /// same step has the same windows whoever asks.
    #[test]
    fn windows_follow_from_seed_and_step(
        length in 20usize..400, context in 2usize..9, batch in 1u32..5, seed: u64, pct in 0f64..40.0,
    ) {
        let tokens: Vec<u32> = (0..length as u32).collect();
        let data = Data::split(tokens, context, pct, "t");
        prop_assume!(data.is_ok());
        let data = data.unwrap();
        prop_assert_eq!(data.train.len() + data.held_out.len(), length);
        let count = data.count();
        let mut seen = std::collections::HashSet::new();
        for step in 0..(2 * count as u32).div_ceil(batch) {
            let windows = data.windows(seed, step, batch);
            prop_assert_eq!(&windows, &data.windows(seed, step, batch));
            for (at, window) in windows.iter().enumerate() {
                prop_assert_eq!(window.len(), context + 1);
                prop_assert!(window[context] < data.train.len() as u32);
                if step as usize * batch as usize + at < count {
                    prop_assert!(seen.insert(window[0]), "a window twice in a pass");
                }
            }
        }
        prop_assert!((count * context) as f64 > data.train.len() as f64 - 2.0 * context as f64 - 1.0);
        prop_assert!(!data.held_out(usize::MAX).is_empty());
        prop_assert!(data.held_out(1)[0][0] >= data.train.len() as u32);
    }
}

#[test]
fn seeds_and_passes_shuffle_differently_and_a_short_text_is_an_error() {
    let data = Data::split((0..500).collect(), 8, 10.0, "t").unwrap();
    assert_ne!(data.windows(0, 0, 8), data.windows(1, 0, 8));
    let count = data.count() as u32;
    assert_ne!(data.windows(0, 0, count), data.windows(0, 1, count), "another pass");
    let other = Data::split((0..500).collect(), 8, 20.0, "t").unwrap();
    assert_ne!(data.key(), other.key());
    let error = Data::split((0..17).collect(), 8, 10.0, "text.txt").unwrap_err();
    assert!(
        error.to_string().starts_with("text.txt: the text has 17 tokens, 9 of them held out"),
        "{error}"
    );
    assert!(Data::split((0..18).collect(), 8, 10.0, "text.txt").is_ok());
}

#[test]
fn layers_and_numbers_are_parsed_and_invalid_ones_named() {
    assert_eq!(layer_choice("all").unwrap(), Layers::All);
    assert_eq!(layer_choice("3").unwrap(), Layers::These(LayerSet::Last(3)));
    assert_eq!(layer_choice("[0+2]").unwrap(), Layers::These(LayerSet::Only(vec![0, 2])));
    assert!(
        layer_choice("0").is_err() && layer_choice("some").unwrap_err().to_string().contains("'some'")
    );
    assert_eq!(positive("1e-3").unwrap(), 1e-3);
    assert!(positive("0").is_err() && positive("nan").is_err() && percent("91").is_err());
}
