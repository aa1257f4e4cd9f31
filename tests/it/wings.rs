//! The order of the wings: `src/` is read, and an arrow that points back fails.

use std::path::{Path, PathBuf};

/// The wings, each of which uses only those before it; within some, the rooms, in the same way.
pub const ORDER: &[&str] = &[
    "base",
    "plan",
    "model",
    "table",
    "machine/pages",
    "machine/hardware",
    "machine/driver",
    "machine/nvml",
    "machine/environment",
    "trace",
    "run/recorder",
    "run/comm",
    "run",
    "lab/slurm",
    "lab/store",
    "lab/launch",
    "lab/sweep",
    "study/rows",
    "study/analysis",
    "study/rewire",
    "study/verdict",
    "study/validate",
    "study/answer",
    "study/plot",
    "study/report",
    "study/calibrate",
    "study/whatif",
    "desk",
    "face/tui",
    "face/cli",
];

fn sources(dir: &Path, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        match path.is_dir() {
            true => sources(&path, found),
            false if path.extension().is_some_and(|e| e == "rs") => found.push(path),
            false => {}
        }
    }
}

/// The place in [`ORDER`] of a path within `src/`: its longest beginning that stands there.
fn place(path: &str) -> Option<usize> {
    let begins = |room: &str| path == room || path.starts_with(&format!("{room}/"));
    let rooms = ORDER.iter().enumerate().filter(|(_, room)| begins(room));
    rooms.max_by_key(|(_, room)| room.len()).map(|(at, _)| at)
}

/// The code of a file: without comments, and without its module of tests.
fn code(text: &str) -> String {
    let text = text.split("#[cfg(test)]\nmod ").next().unwrap_or_default();
    let lines = text.lines().filter(|line| !line.trim_start().starts_with("//"));
    lines.collect::<Vec<_>>().join("\n")
}

/// Paths that the code names from the crate's root, as `a/b`: `use crate::{a::b, c}` and `super::` count.
fn named(code: &str, file: &str) -> Vec<String> {
    let mut paths = Vec::new();
    let folder: Vec<&str> = file.trim_end_matches(".rs").split('/').collect();
    let module = if folder.last() == Some(&"mod") { &folder[..folder.len() - 1] } else { &folder[..] };
    for (at, _) in code.match_indices("super::") {
        // the first of a chain alone is looked at
        if code[..at].ends_with("super::") {
            continue;
        }
        let rest = &code[at..];
        let ups = rest
            .matches("super::")
            .count()
            .min((1..).take_while(|n| rest.starts_with(&"super::".repeat(*n))).last().unwrap_or(0));
        if ups > module.len() {
            paths.push("beyond the root".into());
            continue;
        }
        expand(&module[..module.len() - ups].join("/"), &rest[ups * 7..], &mut paths);
    }
    for root in ["crate::", "ladderscope::"] {
        for (at, _) in code.match_indices(root) {
            expand("", &code[at + root.len()..], &mut paths);
        }
    }
    paths
}

/// Adds to `paths` what stands after a `::`: a name, or each of several in braces.
fn expand(before: &str, rest: &str, paths: &mut Vec<String>) {
    let join = |name: &str| if before.is_empty() { name.to_owned() } else { format!("{before}/{name}") };
    let Some(inner) = rest.strip_prefix('{') else {
        let end = rest.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(rest.len());
        let path = join(&rest[..end]);
        match rest[end..].strip_prefix("::") {
            Some(more) if more.starts_with(|c: char| c.is_alphabetic() || c == '{') => {
                expand(&path, more, paths);
            }
            _ => paths.push(path),
        }
        return;
    };
    let (mut depth, mut start) = (0, 0);
    for (at, c) in inner.char_indices() {
        match c {
            '{' => depth += 1,
            '}' if depth > 0 => depth -= 1,
            ',' | '}' if depth == 0 => {
                let part = inner[start..at].trim();
                if !part.is_empty() && part != "self" {
                    expand(before, part, paths);
                }
                start = at + 1;
                if c == '}' {
                    return;
                }
            }
            _ => {}
        }
    }
}

#[test]
fn no_arrow_points_back() {
    let src = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut files = Vec::new();
    sources(&src, &mut files);
    assert!(files.len() > 300, "src/ was not read: {} files", files.len());
    let mut back = Vec::new();
    for path in files {
        let file = path.strip_prefix(&src).unwrap().to_str().unwrap().to_owned();
        let is_test = file.split('/').any(|part| part.contains("test"));
        // the wings' own lists of rooms, and the two files at the root
        let Some(here) = place(file.trim_end_matches(".rs").trim_end_matches("/mod")) else { continue };
        if is_test {
            continue;
        }
        let text = std::fs::read_to_string(&path).unwrap();
        for name in named(&code(&text), &file) {
            let Some(there) = place(&name) else { continue };
            if there > here && !ORDER[there].starts_with(&format!("{}/", ORDER[here])) {
                back.push(format!("{file} ({}) uses {name} ({})", ORDER[here], ORDER[there]));
            }
        }
    }
    assert!(back.is_empty(), "{} arrows point back:\n{}", back.len(), back.join("\n"));
}

#[test]
fn an_arrow_is_seen_however_it_is_written() {
    let seen = |code: &str, file: &str| named(code, file);
    assert_eq!(seen("use crate::{a::b, c};", "x/y.rs"), ["a/b", "c"]);
    assert_eq!(seen("use crate::a::{self, b::{c, d}};", "x/y.rs"), ["a/b/c", "a/b/d"]);
    assert_eq!(seen("super::super::face::cli::main()", "run/cuda/mod.rs"), ["face/cli/main"]);
    assert_eq!(seen("super::other::f()", "lab/store/id.rs"), ["lab/store/other/f"]);
    assert_eq!(place("run/cuda/x"), ORDER.iter().position(|room| *room == "run"));
    assert!(place("run/comm/x") < place("run/cuda/x"));
}
