//! `adapt` as a user meets it: what it prints and leaves, Ctrl-C and kill -9 in the middle of it, what is refused, a
//! sweep that trains.

use rustix::process::Signal;
use serde_json::Value;

use crate::evaluating::place;
use crate::support::{Done, Place, wait_for};

const SCRATCH: &str =
    "adapt --from-scratch tiny --text words.txt --context 16 --batch 4 --replicas 1 --lr 3e-3";

/// A text of bytes in which much can be learned.
fn words() -> Place {
    let place = Place::new();
    place.write("words.txt", &"the cat sat on the mat. the dog sat on the log. ".repeat(12));
    place
}

fn split(arguments: &str) -> Vec<&str> {
    arguments.split_whitespace().collect()
}

fn run(place: &Place, arguments: &str) -> Done {
    place.run(&split(arguments))
}

/// What each step lost, as it was printed.
fn losses(done: &Done) -> Vec<Value> {
    let curve = done.json()["trainings"][0]["curve"].clone();
    curve.as_array().unwrap().iter().map(|step| step["nll"].clone()).collect()
}

/// The one folder of a training.
fn folder(place: &Place) -> Option<std::path::PathBuf> {
    let all = std::fs::read_dir(place.path().join("runs/trainings")).ok()?;
    all.flatten().map(|entry| entry.path()).find(|path| path.is_dir())
}

fn lines(place: &Place) -> usize {
    let curve = folder(place).map(|folder| folder.join("curve.jsonl"));
    curve.and_then(|curve| std::fs::read_to_string(curve).ok()).map_or(0, |text| text.lines().count())
}

fn checkpoint_is_there(place: &Place) -> bool {
    folder(place).is_some_and(|folder| folder.join("checkpoint.safetensors").exists())
}

/// Ended in the middle by a signal, and gone on with by the same command: the same digits as without.
#[test]
fn whatever_ends_it_the_same_command_goes_on_to_the_same_digits() {
    let arguments =
        format!("{SCRATCH} --architecture ladder --steps 120 --checkpoint-every 7 --format json");
    let whole = losses(&run(&words(), &arguments).exits(0));
    assert_eq!(whole.len(), 120);
    for signal in [Signal::INT, Signal::KILL] {
        let place = words();
        let training = place.start(&split(&arguments));
        wait_for("a checkpoint and steps after it", || {
            (checkpoint_is_there(&place) && lines(&place) > 20).then_some(())
        });
        training.signal(signal);
        let done = training.wait();
        if signal == Signal::INT {
            let done = done.exits(130);
            assert!(done.stderr.contains("rerun the same command to resume"), "{done:?}");
        }
        let there = folder(&place).unwrap().join("training.json");
        let stored: Value = serde_json::from_slice(&std::fs::read(there).unwrap()).unwrap();
        let (kept, seen) = (stored["step"].as_u64().unwrap(), lines(&place) as u64 - 1);
        assert!(kept > 0 && seen < 120, "{kept} {seen}: it was ended in the middle");
        // an orderly end keeps all, a kill loses at most what came after the last checkpoint
        assert!(if signal == Signal::INT { seen == kept } else { seen <= kept + 8 }, "{kept} {seen}");
        let done = run(&place, &arguments).exits(0);
        assert!(done.stderr.contains("going on after step"), "{done:?}");
        assert_eq!(losses(&done), whole);
    }
}

#[test]
fn architectures_from_scratch_are_compared_drawn_and_read_by_other_verbs() {
    let place = words();
    let arguments = format!("{SCRATCH} --steps 8 --seed 0,1 --output out");
    let done = run(&place, &arguments).exits(0);
    for part in [
        "measured on cpu: 8 steps",
        "a miniature",
        "ladder - standard:",
        "over 2 seeds",
        "loss (nats/token)",
        "f parallel seed 1",
    ] {
        assert!(done.stdout.contains(part), "{part}: {}", done.stdout);
    }
    assert!(done.stderr.contains("[8/8]") && done.stderr.contains("tokens/s"), "{}", done.stderr);
    let csv = run(&place, &format!("{arguments} --format csv")).exits(0).stdout;
    assert_eq!(csv.lines().count(), 7, "found again: {csv}");
    assert!(csv.starts_with("architecture,seed,id,loss,nll_before,nll_after,"), "{csv}");
    let text = "--text words.txt --context 16";
    let evaluated =
        run(&place, &format!("evaluate --weights out/ladder-seed1 --architecture ladder {text}"));
    assert!(evaluated.exits(0).stdout.contains("ladder"));
    let generated = run(&place, "generate --weights out/standard-seed0 --prompt the --output-tokens 3");
    assert!(!generated.exits(0).stdout.is_empty());
    let figure = run(&place, "figure training -o curves.svg").exits(0);
    assert!(figure.stderr.contains("ladder - standard"), "{figure:?}");
    let svg = std::fs::read_to_string(place.path().join("curves.svg")).unwrap();
    assert!(svg.contains("in miniature"));
    run(&place, &format!("{SCRATCH} --architecture standard --steps 4")).exits(0);
    let several = run(&place, "figure training -o curves.svg").exits(2);
    assert!(
        several.stderr.contains("not comparable") && several.stderr.contains("steps"),
        "{several:?}"
    );
}

#[test]
fn a_conversion_is_retrained_with_quality_before_and_after() {
    let place = place();
    let on = "adapt --weights model --text text.txt --context 8 --batch 2 --steps 3 --replicas 1 --tp 2";
    let done = run(&place, &format!("{on} --architecture ladder:1 --distil --output out --format json"))
        .exits(0);
    let training = &done.json()["trainings"][0];
    assert_eq!(
        (&training["spec"]["layers"], &training["spec"]["distil"]),
        (&serde_json::json!([2]), &1.0.into())
    );
    for when in ["before", "after"] {
        assert!(training[when]["kl"].as_f64().unwrap() > 0.0, "{training}");
    }
    let speed = |key: &str| training["speed"][key].as_f64();
    let of = ["tokens_per_s", "flop_per_token", "gemm_flop_per_s"].map(|key| speed(key).unwrap());
    let share = of[0] * of[1] / of[2];
    assert!(share > 0.0, "{training}");
    // null where the machine was busier while products were measured than while it trained
    assert_eq!(speed("gemm_share"), Some(share).filter(|share| *share <= 1.0), "{training}");
    let config = std::fs::read_to_string(place.path().join("out/config.json")).unwrap();
    assert!(config.contains("\"ladder_layers\": 1"), "{config}");
    assert!(place.path().join("out/tokenizer.json").is_file());
    // as `evaluate` finds it, beside the model that it began with
    let held_out = folder(&place).unwrap().join("text.held-out.ids");
    let held_out = held_out.to_string_lossy().into_owned();
    let asked = format!(
        "evaluate --weights out --reference model --architecture ladder:1 --context 8 --format json --tokens-file {held_out}"
    );
    let found = run(&place, &asked).exits(0).json();
    assert_eq!(found["cases"][0]["kl"], training["after"]["kl"]);
    // the same command finds it, another one for the same place is told what differs
    run(&place, &format!("{on} --architecture ladder:1 --distil --output out")).exits(0);
    let other = run(&place, &format!("{on} --architecture ladder:1 --output out")).exits(2);
    assert!(other.stderr.contains("distil is 1.0 there, null here"), "{other:?}");
}

#[test]
fn what_cannot_be_trained_is_told_before_anything_starts() {
    let place = place();
    let refused = |more: &str, named: &[&str]| {
        let done = run(&place, &format!("adapt --steps 2 {more}")).exits(2);
        for part in named {
            assert!(done.stderr.contains(part), "{more}: {part}: {}", done.stderr);
        }
    };
    let on = "--weights model --text text.txt --context 8";
    refused(&format!("{on} --architecture upper-bound"), &["upper-bound cannot be trained", "ladder"]);
    refused(&format!("{on} --architecture ladder:7"), &["the last 7 layers", "0 to 2"]);
    refused(&format!("{on} --architecture ladder --layers 9"), &["the last 9 layers"]);
    refused(&format!("{on} --architecture ladder --layers some"), &["'some'"]);
    refused(&format!("{on} --architecture ladder --tp 3"), &["TP 3"]);
    refused(on, &["wired as standard", "--architecture"]);
    refused(&format!("{on} --architecture standard"), &["standard converts no layer", "--layers"]);
    refused(
        "--weights model --text text.txt --architecture ladder --context 99",
        &["100 tokens", "at least"],
    );
    refused("--weights none --text text.txt --architecture ladder", &["--model none"]);
    refused("--from-scratch nothing --text text.txt", &["'nothing'"]);
    refused("--from-scratch llama-3.2-1b --text text.txt", &["without a tokenizer"]);
    refused("--from-scratch tiny", &["--text"]);
    refused(&format!("{on} --architecture ladder --lr 0"), &["'0'"]);
    refused(&format!("{on} --architecture ladder --output text.txt"), &["in its place"]);
    assert!(!place.path().join("runs").exists(), "nothing was started");
}

#[test]
fn a_loss_that_is_no_number_stops_with_step_and_layer_and_exits_1() {
    let place = words();
    let too_fast = SCRATCH.replace("--lr 3e-3", "--lr 1e30");
    let done =
        run(&place, &format!("{too_fast} --architecture ladder --steps 50 --warmup 0 --clip 1e30"));
    let done = done.exits(1);
    assert!(done.stderr.contains("error: step 2: a gradient is not finite; that of "), "{done:?}");
    let stored: Value =
        serde_json::from_slice(&std::fs::read(folder(&place).unwrap().join("training.json")).unwrap())
            .unwrap();
    assert_eq!(stored["status"], "failed");
}

#[test]
fn a_sweep_trains_and_its_losses_stand_beside_speed() {
    let place = words();
    let text = |adapt: &str| {
        format!(
            "backend = \"sim\"\n[model]\nname = \"tiny\"\n[workload]\nprompt_tokens = 8\noutput_tokens = 4\n\
             [grid]\narchitecture = [\"standard\", \"ladder\", \"upper-bound\"]\ntp = [2]\n[adapt]\n{adapt}"
        )
    };
    place.write(
        "train.toml",
        &text("text = \"words.txt\"\nsteps = 4\nbatch = 2\ncontext = 16\nseeds = [0, 1]\n"),
    );
    let done = run(&place, "sweep train.toml").exits(0);
    assert!(done.stderr.contains("training of ladder seed 1 (4 steps): loss"), "{}", done.stderr);
    let records = run(&place, "runs --format json").exits(0).json();
    for record in records.as_array().unwrap() {
        let is_trained = record["spec"]["architecture"] != "upper-bound";
        assert_eq!(record["training"]["seeds"].as_u64(), is_trained.then_some(2), "{record}");
    }
    let table = run(&place, "pareto --x tpot --y train_loss --format csv").exits(0).stdout;
    assert!(table.contains("train_loss"), "{table}");
    let again = run(&place, "sweep train.toml").exits(0);
    assert!(!again.stderr.contains("[4/4]"), "found: {}", again.stderr);
    for (adapt, wrong) in [
        ("steps = 0\n", "whole number from 1"),
        ("batch = 2\n", "needs steps"),
        ("steps = 2\nstep = 3\n", "'step'"),
        ("steps = 2\nlr = -1.0\n", "above 0"),
        ("steps = 2\nlayers = \"some\"\n", "'some'"),
        ("steps = 2\ntext = \"none.txt\"\n", "is not a file"),
        ("steps = 2\nseeds = 3\n", "list of numbers"),
    ] {
        place.write("wrong.toml", &text(adapt));
        let done = run(&place, "sweep wrong.toml").exits(2);
        assert!(done.stderr.contains(wrong), "{adapt}: {}", done.stderr);
    }
}
