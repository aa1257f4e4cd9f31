//! Keys that everyday tasks need, counted in a real terminal, so that they stay few.

use std::path::Path;

use super::pty::Workbench;
use super::support::Place;

/// Keys of a task, each with the text that the screen shows after it.
struct Task {
    name: &'static str,
    /// Most keys that the task may need; typed paths count as none.
    most: usize,
    keys: &'static [(&'static str, &'static str)],
}

const ENTER: &str = "\r";

/// In this order, each from where the one before ends.
const TASKS: [Task; 10] = [
    Task { name: "run the paper's 70B sweep", most: 4, keys: &[("p", "Ladder is up to ")] },
    Task {
        name: "see who wins at TP 8, batch 1, without P2P",
        most: 3,
        keys: &[("6", "[★1.49x]"), ("k", "tp8 b4 p2p-on"), ("k", "[★†1.48x]")],
    },
    Task {
        name: "see its longest exposed collective",
        most: 2,
        keys: &[(ENTER, "aligned: middle of step"), ("E", "decode: exposed ")],
    },
    Task { name: "read the verdict", most: 1, keys: &[("V", "gains of remedies are simulated")] },
    Task { name: "go to the next step in both traces", most: 1, keys: &[("]", " aligned: step")] },
    Task { name: "copy the command", most: 1, keys: &[("Y", "copied")] },
    Task { name: "see the frontier", most: 1, keys: &[("5", "tokens/s/GPU")] },
    Task { name: "move the sliders from this run", most: 1, keys: &[("w", "break-even")] },
    Task { name: "export a figure of it", most: 2, keys: &[("x", ".svg"), (ENTER, "wrote ")] },
    Task {
        name: "open a foreign trace and go to its longest kernel",
        most: 3,
        keys: &[
            ("o", "open a trace"),
            ("foreign.json", "foreign.json"),
            (ENTER, "Kineto"),
            ("O", "where the time went"),
            (ENTER, "flash_fwd_kernel"),
        ],
    },
];

#[test]
fn ten_tasks_need_few_keys() {
    let place = Place::new();
    let kernel = |name: &str, start: u32, length: u32| {
        format!(
            r#"{{"ph": "X", "cat": "kernel", "name": "{name}", "pid": 0, "tid": 7, "ts": {start}, "dur": {length}}}"#
        )
    };
    let events = [kernel("gemm_kernel", 1_000, 90), kernel("flash_fwd_kernel", 2_000, 400)].join(", ");
    std::fs::write(place.path().join("foreign.json"), format!("[{events}]")).expect("a file");
    let program = Path::new(env!("CARGO_BIN_EXE_ladderscope"));
    let mut workbench = Workbench::open(program, place.path(), &[], (120, 40));
    workbench.wait_for("the paper's 70B sweep");
    for Task { name, most, keys } in TASKS {
        let pressed = keys.iter().filter(|(key, _)| key.len() == 1 && *key != "o").count();
        assert!(pressed <= most, "{name}: {pressed} keys");
        for (key, shows) in keys {
            workbench.press(key);
            workbench.wait_for(shows);
        }
    }
    workbench.press("q");
    assert_eq!(workbench.ended().1.exit_code(), 0);
}
