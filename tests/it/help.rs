//! The help of every verb, as it is shown.

use crate::support::Place;

/// The verbs that the help lists.
pub fn verbs() -> Vec<String> {
    let help = Place::new().run(&["--help"]).exits(0).stdout;
    let (listed, _) = help.split_once("\nOptions:\n").expect("options after the verbs");
    let verbs: Vec<String> = listed
        .lines()
        .filter(|line| line.starts_with("  ") && !line.starts_with("   "))
        .filter_map(|line| line.split_whitespace().next().map(str::to_owned))
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

#[test]
fn every_verb_has_a_manual_page_with_its_options() {
    let place = Place::new();
    place.run(&["man", "pages"]).exits(0);
    let page =
        |name: &str| std::fs::read_to_string(place.path().join(format!("pages/{name}.1"))).expect(name);
    assert_eq!(page("ladderscope"), place.run(&["man"]).exits(0).stdout);
    for verb in verbs() {
        let text = page(&format!("ladderscope-{verb}"));
        // roff writes a hyphen that is no hyphenation as `\-`
        let words = text.replace("\\-", "-");
        let help = place.run(&[&verb, "--help"]).exits(0).stdout;
        let options = help.lines().map(str::trim_start).filter(|line| line.starts_with('-'));
        for option in options
            .filter_map(|line| line.split([' ', ',', '=', '[']).find(|word| word.starts_with("--")))
        {
            assert!(words.contains(option), "{verb}: {option} is not in its manual page");
        }
    }
    insta::assert_snapshot!("man_overlap", page("ladderscope-overlap"));
    if std::process::Command::new("man").arg("--version").output().is_ok() {
        let shown = std::process::Command::new("man")
            .args(["--warnings", "-E", "UTF-8", "-l", "-Tutf8"])
            .arg(place.path().join("pages/ladderscope-run.1"))
            .output()
            .expect("man runs");
        assert!(shown.stderr.is_empty(), "{}", String::from_utf8_lossy(&shown.stderr));
    }
}
