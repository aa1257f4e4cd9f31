//! The help of every verb, as it is shown.

use crate::support::Place;

pub const VERBS: [&str; 21] = [
    "sweep",
    "run",
    "runs",
    "show",
    "timeline",
    "overlap",
    "pareto",
    "compare",
    "whatif",
    "figure",
    "report",
    "trace",
    "generate",
    "calibrate",
    "models",
    "hardware",
    "experiments",
    "doctor",
    "config",
    "schema",
    "completions",
];

#[test]
fn of_the_command() {
    insta::assert_snapshot!("help", Place::new().run(&["--help"]).exits(0).stdout);
}

#[test]
fn of_every_verb() {
    for verb in VERBS {
        insta::assert_snapshot!(
            format!("help_{verb}"),
            Place::new().run(&[verb, "--help"]).exits(0).stdout
        );
    }
}

#[test]
fn every_verb_of_the_help_has_its_snapshot() {
    let help = Place::new().run(&["--help"]).exits(0).stdout;
    let (_, after) = help.split_once("Commands:\n").expect("a list of commands");
    let listed: Vec<&str> = after
        .lines()
        .take_while(|line| !line.is_empty())
        .filter(|line| line.starts_with("  ") && !line.starts_with("   "))
        .filter_map(|line| line.split_whitespace().next())
        .filter(|verb| *verb != "help")
        .collect();
    assert_eq!(listed, VERBS);
}

#[test]
fn the_version_is_the_crates() {
    let version = Place::new().run(&["--version"]).exits(0).stdout;
    assert_eq!(version, format!("ladderscope {}\n", env!("CARGO_PKG_VERSION")));
}
