//! `evaluate --backend cuda` on the software device, against `--backend cpu`: the same likelihoods and divergences.

use serde_json::Value;

use crate::cuda_device::device;
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
    let asked = ["standard", "ladder", "desync:2", "delayed:1", "sync-drop:2", "parallel"];
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
        assert!(again.stderr.contains("(18 were stored)"), "{again:?}");
        assert_eq!(again.json(), found);
    }
}

#[test]
fn what_the_device_cannot_do_is_told() {
    let device = device!();
    let place = place();
    place.write("ids.txt", "1 2 3 4 5 6");
    let on = [
        "evaluate",
        "--weights",
        "model",
        "--tokens-file",
        "ids.txt",
        "--context",
        "6",
        "--backend",
        "cuda",
    ];
    let refused = device.run(&place, &[&on[..], &["--tp", "2", "--comm-dtype", "int8"]].concat(), &[]);
    let refused = refused.exits(2);
    assert!(refused.stderr.contains("no messages in int8"), "{refused:?}");
    // without a device: which part is missing
    let none = place.run(&on);
    assert!(none.code != 0 && none.stderr.contains("driver"), "{none:?}");
}
