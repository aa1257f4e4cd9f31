//! Snapshots of what users see: glyphs that the terminal's font has, and plurals that fit their counts.

use std::fs;
use std::path::{Path, PathBuf};

use ab_glyph::{Font as _, FontRef};

/// Texts of all snapshots below `src` and `tests`.
fn snapshots() -> Vec<(PathBuf, String)> {
    fn collect(dir: &Path, found: &mut Vec<(PathBuf, String)>) {
        for entry in fs::read_dir(dir).expect("a directory") {
            let path = entry.expect("an entry").path();
            if path.is_dir() {
                collect(&path, found);
            } else if path.extension().is_some_and(|ending| ending == "snap") {
                let text = fs::read_to_string(&path).expect("text");
                found.push((path, text));
            }
        }
    }
    let mut found = Vec::new();
    for folder in ["src", "tests"] {
        collect(&Path::new(env!("CARGO_MANIFEST_DIR")).join(folder), &mut found);
    }
    assert!(found.len() > 50, "{} snapshots", found.len());
    found
}

#[test]
fn every_glyph_is_one_that_dejavu_sans_mono_has_but_the_braille_of_plots() {
    let font = FontRef::try_from_slice(dejavu::sans_mono::regular()).expect("the font");
    let sans = FontRef::try_from_slice(dejavu::sans::regular()).expect("the font");
    // terminals take braille from another font of the system, pictures from DejaVu Sans
    let is_braille = |letter: char| ('\u{2800}'..='\u{28ff}').contains(&letter);
    assert!(('\u{2800}'..='\u{28ff}').all(|letter| sans.glyph_id(letter).0 != 0));
    let has = |letter: char| font.glyph_id(letter).0 != 0 || is_braille(letter);
    assert!(has('█') && !has('ⓛ'));
    for (path, text) in snapshots() {
        let lacks: Vec<char> = text.chars().filter(|c| !c.is_ascii() && !has(*c)).collect();
        assert!(lacks.is_empty(), "{}: {lacks:?}", path.display());
    }
}

#[test]
fn one_is_not_counted_as_several() {
    const SEVERAL: [&str; 14] = [
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
    ];
    let counts_wrong = |line: &str| {
        let words: Vec<&str> = line.split_whitespace().collect();
        words.windows(2).any(|pair| {
            let word = pair[1].trim_end_matches(|c: char| !c.is_alphanumeric());
            pair[0].trim_start_matches(['(', ',', ';', '│']) == "1" && SEVERAL.contains(&word)
        })
    };
    assert!(counts_wrong("of 1 cells") && !counts_wrong("of 1 cell"));
    for (path, text) in snapshots() {
        for line in text.lines() {
            assert!(!counts_wrong(line), "{}: {line}", path.display());
        }
    }
}
