//! What a user reads: letters that the terminal's font has, and words that are not awkward.

use std::fs;
use std::path::{Path, PathBuf};

use ab_glyph::{Font as _, FontRef};

/// What was said once and is not to be said again.
const AWKWARD: [&str; 6] =
    ["by as stored", "at no bandwidth", "standard output is none", "SMs of comm", "(s)", " 1 cells"];

fn files(dir: &Path, ending: &str, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        match path.is_dir() {
            true => files(&path, ending, found),
            false if path.extension().is_some_and(|e| e == ending) => found.push(path),
            false => {}
        }
    }
}

fn sources(ending: &str) -> Vec<PathBuf> {
    let mut found = Vec::new();
    files(&Path::new(env!("CARGO_MANIFEST_DIR")).join("src"), ending, &mut found);
    found
}

/// The literals of a file's code, each with its line: without comments, and without its tests.
fn literals(path: &Path) -> Vec<(usize, String)> {
    let text = fs::read_to_string(path).unwrap();
    let is_test = path.components().any(|part| part.as_os_str() == "tests")
        || path.file_stem().is_some_and(|stem| stem.to_string_lossy().ends_with("tests"));
    let text = if is_test { "" } else { text.split("#[cfg(test)]\nmod ").next().unwrap_or_default() };
    let (mut found, mut line, mut at) = (Vec::new(), 1, 0);
    let letters: Vec<char> = text.chars().collect();
    let begins =
        |at: usize, text: &str| text.chars().enumerate().all(|(i, c)| letters.get(at + i) == Some(&c));
    while at < letters.len() {
        match letters[at] {
            '\n' => line += 1,
            '/' if begins(at, "//") => {
                while letters.get(at + 1).is_some_and(|c| *c != '\n') {
                    at += 1;
                }
            }
            'r' if begins(at, "r\"") || begins(at, "r#\"") => {
                let hash = letters[at + 1] == '#';
                let end = if hash { "\"#" } else { "\"" };
                at += if hash { 3 } else { 2 };
                let mut literal = String::new();
                while at < letters.len() && !begins(at, end) {
                    literal.push(letters[at]);
                    at += 1;
                }
                let lines = literal.matches('\n').count();
                found.push((line, literal));
                line += lines;
            }
            '"' => {
                let (start, mut literal) = (line, String::new());
                at += 1;
                while at < letters.len() && letters[at] != '"' {
                    line += usize::from(letters[at] == '\n');
                    if letters[at] == '\\' {
                        literal.push(letters[at]);
                        at += 1;
                        line += usize::from(letters.get(at) == Some(&'\n'));
                    }
                    literal.extend(letters.get(at));
                    at += 1;
                }
                found.push((start, literal));
            }
            // a letter, not a lifetime
            '\'' if letters.get(at + 2) == Some(&'\'') => {
                found.push((line, letters[at + 1].to_string()));
                at += 2;
            }
            '\'' if begins(at, "'\\") => {
                at += 2;
                while letters.get(at).is_some_and(|c| *c != '\'') {
                    at += 1;
                }
            }
            _ => {}
        }
        at += 1;
    }
    found
}

/// The letters of a literal, those that are written by their numbers included.
fn letters(literal: &str) -> Vec<char> {
    let escaped = literal.split("\\u{").skip(1).filter_map(|rest| {
        let number = u32::from_str_radix(rest.split('}').next()?, 16).ok()?;
        char::from_u32(number)
    });
    literal.chars().chain(escaped).filter(|c| !c.is_ascii()).collect()
}

#[test]
fn every_glyph_is_one_that_dejavu_sans_mono_has() {
    let font = FontRef::try_from_slice(dejavu::sans_mono::regular()).expect("the font");
    let has = |letter: char| font.glyph_id(letter).0 != 0;
    assert!(has('█') && !has('ⓛ'), "the font tells");
    let mut lacking = Vec::new();
    for path in sources("rs") {
        // what is looked for in texts, not shown
        let searched = path.ends_with("model/tokenizer.rs") || path.ends_with("base/text.rs");
        for (line, literal) in literals(&path).into_iter().filter(|_| !searched) {
            let lacks = letters(&literal).into_iter().filter(|letter| !has(*letter));
            lacking.extend(lacks.map(|letter| format!("{}:{line}: {letter}", path.display())));
        }
    }
    assert!(lacking.is_empty(), "{}", lacking.join("\n"));
    // and what drawing makes of them shows it, too
    for path in sources("snap") {
        let text = fs::read_to_string(&path).unwrap();
        let lacks: Vec<char> = text.chars().filter(|c| !c.is_ascii() && !has(*c)).collect();
        assert!(lacks.is_empty(), "{}: {lacks:?}", path.display());
    }
}

#[test]
fn no_awkward_words_come_back() {
    let mut found = Vec::new();
    for path in sources("rs") {
        for (line, literal) in literals(&path) {
            let awkward = AWKWARD.iter().filter(|words| literal.contains(**words));
            found.extend(awkward.map(|words| format!("{}:{line}: {words:?}", path.display())));
        }
    }
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut shown = sources("snap");
    files(&root.join("tests/it"), "snap", &mut shown);
    files(&root.join("docs"), "md", &mut shown);
    shown.push(root.join("README.md"));
    for path in shown {
        let text = fs::read_to_string(&path).unwrap();
        // the tabs are numbered
        for line in text.lines().filter(|line| !line.contains(" 1 experiments 2 live")) {
            // that is clap's own
            let line = line.replace("subcommand(s)", "subcommands");
            // seconds, after the name of an axis
            let line = line.replace(" (s)", "");
            let awkward = AWKWARD.iter().any(|words| line.contains(words));
            if awkward || one_of_several(&line) {
                found.push(format!("{}: {}", path.display(), line.trim()));
            }
        }
    }
    assert!(found.is_empty(), "{}", found.join("\n"));
}

/// Whether a line counts one of what it calls several: `1 cells`.
fn one_of_several(line: &str) -> bool {
    let several = [
        "cells",
        "runs",
        "pairs",
        "points",
        "rounds",
        "flags",
        "files",
        "samples",
        "columns",
        "comparisons",
        "machines",
        "batches",
        "variants",
        "marks",
        "experiments",
    ];
    let words: Vec<&str> = line.split_whitespace().collect();
    words.windows(2).any(|pair| {
        let word = pair[1].trim_end_matches(|c: char| !c.is_alphanumeric());
        pair[0].trim_start_matches(['(', ',', ';', '│']) == "1" && several.contains(&word)
    })
}
