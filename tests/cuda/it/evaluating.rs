//! `evaluate --backend cuda` on the software device, against `--backend cpu`: the same likelihoods and divergences.

use serde_json::Value;

use crate::device::device;
use crate::support::Place;

fn case<'a>(found: &'a Value, architecture: &str) -> &'a Value {
    let cases = found["cases"].as_array().unwrap();
    cases.iter().find(|case| case["architecture"] == architecture).unwrap()
}

/// A model of random weights and room for a text.
fn place() -> Place {
    let place = Place::new();
    let config = serde_json::json!({
        "model_type": "llama", "num_hidden_layers": 4, "hidden_size": 64, "num_attention_heads": 8,
        "num_key_value_heads": 4, "intermediate_size": 160, "vocab_size": 256,
    });
    place.write("model/config.json", &config.to_string());
    place
}

#[test]
fn quality_is_the_one_that_the_cpu_backend_finds() {
    let device = device!();
    let place = place();
    let ids: Vec<String> = (0..37).map(|at| ((at * at * 7 + 3 * at) % 256).to_string()).collect();
    place.write("ids.txt", &ids.join(" "));
    let asked = [
        "standard",
        "ladder",
        "desync:2",
        "delayed:1",
        "sync-drop:2",
        "parallel",
        "kraken",
        "tracks:2",
        "farskip",
        "partial:0.5",
        "partial:0.5+ladder",
    ];
    let names = asked.join(",");
    for tp in ["1", "2"] {
        let arguments = |backend| {
            let on = ["evaluate", "--weights", "model", "--tokens-file", "ids.txt", "--context", "12"];
            let how = ["--architecture", &names, "--dtype", "f32", "--format", "json"];
            [&on[..], &how, &["--tp", tp, "--backend", backend]].concat()
        };
        let found = device.run(&place, &arguments("cuda"), &[]).exits(0).json();
        let expected = place.run(&arguments("cpu")).exits(0).json();
        assert_eq!((&found["windows"], &found["predicted"]), (&3.into(), &33.into()));
        for architecture in asked {
            let (found, expected) = (case(&found, architecture), case(&expected, architecture));
            for key in ["nll", "kl"] {
                let of = |case: &Value| case[key].as_f64().unwrap();
                let off = (of(found) - of(expected)).abs();
                assert!(off < 1e-4, "{architecture}, TP {tp}, {key}: {found} against {expected}");
            }
            assert_eq!(found["agreement"], expected["agreement"], "{architecture}, TP {tp}");
        }
        assert!(case(&found, "ladder")["kl"].as_f64().unwrap() > 0.01, "{found}");
        // results of either backend are its own: found again, and not by the other
        let again = device.run(&place, &arguments("cuda"), &[]).exits(0);
        assert!(again.stderr.contains("(33 already stored)"), "{again:?}");
        assert_eq!(again.json(), found);
    }
}

/// Windows of more rows than our own kernel multiplies, and of fewer.
#[test]
fn fp8_weights_lose_what_they_lose_on_the_cpu() {
    let device = device!();
    let place = place();
    let ids: Vec<String> = (0..161).map(|at| ((at * at * 7 + 3 * at) % 256).to_string()).collect();
    place.write("ids.txt", &ids.join(" "));
    for context in ["80", "20"] {
        let nll = |backend, dtype| {
            let on =
                ["evaluate", "--weights", "model", "--tokens-file", "ids.txt", "--context", context];
            let how = ["--architecture", "standard,ladder", "--dtype", dtype, "--format", "json"];
            let arguments = [&on[..], &how, &["--tp", "2", "--backend", backend]].concat();
            let found = device.run(&place, &arguments, &[]).exits(0).json();
            ["standard", "ladder"].map(|of| case(&found, of)["nll"].as_f64().unwrap())
        };
        let (exact, expected, found) = (nll("cpu", "f32"), nll("cpu", "fp8"), nll("cuda", "fp8"));
        let unquantized = nll("cuda", "bf16");
        for at in 0..2 {
            let (lost, off) = (expected[at] - exact[at], found[at] - expected[at]);
            assert!(lost.abs() > 1e-5, "{context}: nothing was rounded: {exact:?}, {expected:?}");
            assert!(off.abs() < 0.02, "{context}: {found:?}, on the cpu {expected:?}");
            assert_ne!(found[at], unquantized[at], "{context}: nothing was rounded on the GPU");
        }
    }
}

/// A window longer than a chunk of prefill, and messages in 8 bits.
#[test]
fn chunks_and_rounded_messages_are_those_of_the_cpu_backend() {
    let device = device!();
    let place = place();
    let ids: Vec<String> = (0..131).map(|at| ((at * at * 7 + 3 * at) % 256).to_string()).collect();
    place.write("ids.txt", &ids.join(" "));
    let kl = |backend, comm_dtype| {
        let on = ["evaluate", "--weights", "model", "--tokens-file", "ids.txt", "--context", "131"];
        let how = ["--architecture", "ladder", "--tp", "2", "--dtype", "f32", "--format", "json"];
        let arguments = [&on[..], &how, &["--backend", backend, "--comm-dtype", comm_dtype]].concat();
        let found = device.run(&place, &arguments, &[]).exits(0).json();
        assert_eq!((&found["backend"], &found["predicted"]), (&backend.into(), &130.into()));
        case(&found, "ladder")["kl"].as_f64().unwrap()
    };
    let [plain, rounded] = ["activations", "int8"].map(|format| (kl("cpu", format), kl("cuda", format)));
    assert!((plain.0 - plain.1).abs() < 1e-5, "{plain:?} {rounded:?}");
    // a value at the edge of a code is rounded to one side here and to the other there
    assert!((rounded.0 - rounded.1).abs() < 1e-4, "{plain:?} {rounded:?}");
    assert!((plain.0 - rounded.0).abs() > 5e-4, "nothing was rounded: {plain:?}, {rounded:?}");
}

#[test]
fn conversions_are_measured_as_the_cpu_backend_measures_them() {
    let device = device!();
    let place = place();
    let ids: Vec<String> = (0..37).map(|at| ((at * at * 7 + 3 * at) % 256).to_string()).collect();
    place.write("ids.txt", &ids.join(" "));
    let convert = |backend| {
        let on = ["convert", "--weights", "model", "--tokens-file", "ids.txt", "--context", "12"];
        let of = [
            "--for",
            "h100_sxm,tp=2,prompt_tokens=8,output_tokens=4",
            "--random",
            "0",
            "--dtype",
            "f32",
            "--format",
            "json",
        ];
        let found =
            device.run(&place, &[&on[..], &of, &["--backend", backend]].concat(), &[]).exits(0).json();
        let points = found["points"].as_array().unwrap().clone();
        let of = |point: &Value| (point["layers"].to_string(), point["kl"].as_f64().unwrap());
        points.iter().map(of).collect::<Vec<_>>()
    };
    let (expected, found) = (convert("cpu"), convert("cuda"));
    assert!(expected.len() >= 9, "{expected:?}");
    assert_eq!(expected.len(), found.len());
    for (expected, found) in expected.iter().zip(&found) {
        assert_eq!(expected.0, found.0);
        assert!((expected.1 - found.1).abs() < 1e-4, "{expected:?} {found:?}");
    }
}

#[test]
fn without_a_device_the_part_that_is_missing_is_told() {
    let place = place();
    place.write("ids.txt", "1 2 3 4 5 6");
    let on = ["evaluate", "--weights", "model", "--tokens-file", "ids.txt", "--context", "6"];
    let none = place.run(&[&on[..], &["--backend", "cuda"]].concat());
    assert!(none.code != 0 && none.stderr.contains("driver"), "{none:?}");
}
