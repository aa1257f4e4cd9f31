//! The help of every verb, as it is shown.

use crate::support::Place;

/// The verbs that the help lists.
pub fn verbs() -> Vec<String> {
    let help = Place::new().run(&["--help"]).exits(0).stdout;
    let (_, after) = help.split_once("Commands:\n").expect("a list of commands");
    let listed = after.lines().take_while(|line| !line.is_empty());
    let verbs: Vec<String> = listed
        .filter(|line| line.starts_with("  ") && !line.starts_with("   "))
        .filter_map(|line| line.split_whitespace().next().map(str::to_owned))
        .filter(|verb| verb != "help")
        .collect();
    assert!(verbs.len() > 20 && verbs.iter().any(|verb| verb == "sweep"), "{verbs:?}");
    verbs
}

#[test]
fn of_the_command() {
    insta::assert_snapshot!("help", Place::new().run(&["--help"]).exits(0).stdout);
}

#[test]
fn of_every_verb() {
    for verb in verbs() {
        insta::assert_snapshot!(
            format!("help_{verb}"),
            Place::new().run(&[&verb, "--help"]).exits(0).stdout
        );
    }
}

#[test]
fn the_version_is_the_crates() {
    let version = Place::new().run(&["--version"]).exits(0).stdout;
    assert_eq!(version, format!("ladderscope {}\n", env!("CARGO_PKG_VERSION")));
}
