//! README and `docs/`: links and named files exist, every verb is documented, and examples print what the pages show.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::support::{Place, finish};

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// README and the pages of `docs/`, each with its text.
fn pages() -> Vec<(PathBuf, String)> {
    let docs = std::fs::read_dir(root().join("docs")).expect("docs/");
    let pages = docs.map(|entry| entry.expect("an entry of docs/").path());
    let pages = pages.filter(|path| path.extension().is_some_and(|e| e == "md"));
    let mut pages: Vec<PathBuf> = pages.chain([root().join("README.md")]).collect();
    pages.sort();
    pages.into_iter().map(|path| (path.clone(), std::fs::read_to_string(path).expect("text"))).collect()
}

/// The anchor that a heading gets: lower case, words joined by dashes.
fn anchor(heading: &str) -> String {
    let kept = heading.trim().to_lowercase().replace(' ', "-");
    kept.chars().filter(|c| c.is_alphanumeric() || "-_".contains(*c)).collect()
}

#[test]
fn links_lead_somewhere() {
    let mut broken = Vec::new();
    for (page, text) in pages() {
        for target in text.split("](").skip(1).filter_map(|rest| rest.split(')').next()) {
            if target.starts_with("http") {
                continue;
            }
            let (file, heading) = target.split_once('#').unwrap_or((target, ""));
            let path = if file.is_empty() { page.clone() } else { page.parent().unwrap().join(file) };
            let found = match std::fs::read_to_string(&path) {
                _ if heading.is_empty() => path.exists(),
                Ok(text) => text
                    .lines()
                    .filter_map(|line| line.strip_prefix('#'))
                    .any(|line| anchor(line.trim_start_matches('#')) == heading),
                Err(_) => false,
            };
            if !found {
                broken.push(format!("{}: {target}", page.display()));
            }
        }
    }
    assert!(broken.is_empty(), "{}", broken.join("\n"));
}

#[test]
fn files_that_are_named_exist() {
    const FOLDERS: [&str; 8] =
        ["src/", "tests/", "kernels/", "experiments/", "examples/", "benches/", "traces/", "fuzz/"];
    let mut missing = Vec::new();
    for (page, text) in pages() {
        for word in text.split('`').skip(1).step_by(2).flat_map(str::split_whitespace) {
            let named = FOLDERS.iter().any(|folder| word.starts_with(folder));
            // a pattern, or a name to be filled in (`src/face/cli/VERB.rs`), is no file
            let whole = !word.contains('*')
                && !word.split(['/', '.']).any(|part| {
                    part.len() > 1 && part.chars().all(|c| c.is_ascii_uppercase()) && part != "MANIFEST"
                });
            if named && whole && !root().join(word.split(':').next().unwrap_or(word)).exists() {
                missing.push(format!("{}: {word}", page.display()));
            }
        }
    }
    assert!(missing.is_empty(), "{}", missing.join("\n"));
}

#[test]
fn the_readme_is_short_and_the_pages_say_what_they_answer() {
    for (page, text) in pages() {
        if page.ends_with("README.md") {
            assert!(text.lines().count() <= 100, "README.md has {} lines", text.lines().count());
            continue;
        }
        let mut lines = text.lines();
        assert!(lines.next().is_some_and(|line| line.starts_with("# ")), "{}", page.display());
        let says = lines.find(|line| !line.is_empty());
        assert!(
            says.is_some_and(|line| line.starts_with('*')),
            "{}: what does it answer?",
            page.display()
        );
    }
}

#[test]
fn every_verb_is_told() {
    let text: String = pages().into_iter().map(|(_, text)| text).collect();
    let told = |verb: &str| {
        text.split('`').skip(1).step_by(2).any(|code| code.split_whitespace().next() == Some(verb))
    };
    for verb in crate::help::verbs() {
        assert!(told(&verb), "no page tells of `{verb}`");
    }
}

#[test]
fn every_wing_is_told() {
    let text = std::fs::read_to_string(root().join("docs/contributing.md")).expect("text");
    for entry in std::fs::read_dir(root().join("src")).expect("src/") {
        let folder = entry.expect("an entry of src/").path();
        if !["lib.rs", "mod.rs"].iter().any(|file| folder.join(file).exists()) {
            continue;
        }
        let wing = folder.file_name().unwrap_or_default().to_string_lossy();
        assert!(
            text.contains(&format!("| `src/{wing}` |")),
            "contributing.md does not tell of src/{wing}"
        );
    }
}

/// Runs the `console` blocks of each page: a command after `$ `, then lines of its output. A page may leave out
/// lines and words, but may not add or reorder words.
#[test]
fn examples_print_what_the_pages_show() {
    let mut wrong = Vec::new();
    for (page, text) in pages() {
        let place = Place::new();
        for folder in ["examples", "traces"] {
            std::os::unix::fs::symlink(root().join(folder), place.path().join(folder)).expect("a link");
        }
        let mut printed = String::new();
        for block in text.split("```").skip(1).step_by(2) {
            let (kind, body) = block.split_once('\n').expect("a block of lines");
            for line in body.lines().filter(|_| kind == "console") {
                if let Some(arguments) = line.strip_prefix("$ ladderscope ") {
                    let mut shell = Command::new("sh");
                    shell.current_dir(place.path()).env_remove("COLUMNS");
                    shell.args(["-c", &format!("\"$0\" {arguments}"), crate::BINARY]);
                    printed = finish(shell).exits(0).stdout;
                } else if !printed.lines().any(|candidate| common(line, candidate) == words(line)) {
                    let closest = printed.lines().max_by_key(|candidate| common(line, candidate));
                    wrong.push(format!(
                        "{}:\n  shows   {line}\n  printed {}",
                        page.display(),
                        closest.unwrap_or("nothing")
                    ));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

fn words(line: &str) -> usize {
    line.split_whitespace().count()
}

/// Number of words of `line` that `candidate` contains in the same order.
fn common(line: &str, candidate: &str) -> usize {
    let mut rest = candidate.split_whitespace();
    line.split_whitespace()
        .filter(|word| {
            let mut ahead = rest.clone();
            let found = ahead.any(|other| other == *word);
            if found {
                rest = ahead;
            }
            found
        })
        .count()
}
