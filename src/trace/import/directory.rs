//! A directory as one trace: its trace files are ranks. What is no trace is left, and said.

use std::path::{Path, PathBuf};

use super::recognise::{Content, recognise};
use crate::base::error::{Error, Result};
use crate::base::natural::natural_order;

/// Far enough to tell a trace from other JSON: profilers write about devices first (bytes).
const HEAD: usize = 256 << 10;

/// Most skipped files that are named.
const MOST_NAMED: usize = 10;

/// The trace files of a directory, all of one kind, and what was skipped.
#[derive(Debug)]
pub(super) struct Found {
    pub content: Content,
    pub files: Vec<PathBuf>,
    /// What was left because it is no trace, or one of another kind: a sentence for each.
    pub skipped: Vec<String>,
}

/// Looks through a directory, not below it.
pub(super) fn look(directory: &Path) -> Result<Found> {
    let mut paths: Vec<PathBuf> = Vec::new();
    for entry in std::fs::read_dir(directory).map_err(Error::io(directory))? {
        let path = entry.map_err(Error::io(directory))?.path();
        if path.is_file() {
            paths.push(path);
        }
    }
    paths.sort_by(|a, b| natural_order(&a.to_string_lossy(), &b.to_string_lossy()));
    let mut kinds: [(Content, Vec<PathBuf>); 3] =
        [Content::Json, Content::Sqlite, Content::Own].map(|content| (content, Vec::new()));
    let mut skipped: Vec<(PathBuf, String)> = Vec::new();
    let all = paths.len();
    for path in paths {
        let found = match recognise(&path, HEAD) {
            Ok(found) => found,
            Err(error) => {
                let prefix = format!("{}: ", path.display());
                let why = error.to_string();
                skipped.push((path, why.strip_prefix(&prefix).unwrap_or(&why).to_owned()));
                continue;
            }
        };
        let is_trace = found.content != Content::Json
            || [&b"\"traceEvents\""[..], b"\"ph\""]
                .iter()
                .any(|mark| memchr::memmem::find(&found.head, mark).is_some());
        match kinds.iter_mut().find(|(content, _)| *content == found.content && is_trace) {
            Some((_, files)) => files.push(path),
            None if is_trace => skipped.push((path, "not a trace of a known kind".into())),
            None => skipped.push((path, "JSON, but without trace events".into())),
        }
    }
    // The kind of most files; of as many, the one named first above.
    let most = kinds.iter().map(|(_, files)| files.len()).max().unwrap_or(0);
    let Some(index) = kinds.iter().position(|(_, files)| files.len() == most && most > 0) else {
        return Err(Error::input_help(
            format!("{}: no trace among its {all} files", directory.display()),
            "name a directory of traces of PyTorch's profiler or of Nsight Systems exports, a file a rank",
        ));
    };
    let (content, files) = std::mem::replace(&mut kinds[index], (Content::Unknown, Vec::new()));
    let kind = |content| match content {
        Content::Json => "JSON",
        Content::Sqlite => "SQLite",
        _ => "ladderscope's own",
    };
    for (other, others) in kinds {
        let why = format!("{}, while most traces here are {}", kind(other), kind(content));
        skipped.extend(others.into_iter().map(|path| (path, why.clone())));
    }
    Ok(Found { content, files, skipped: sentences(&skipped) })
}

fn sentences(skipped: &[(PathBuf, String)]) -> Vec<String> {
    let mut sentences: Vec<String> = skipped
        .iter()
        .take(MOST_NAMED)
        .map(|(path, why)| {
            format!("skipped {}: {why}", path.file_name().unwrap_or_default().to_string_lossy())
        })
        .collect();
    if skipped.len() > MOST_NAMED {
        sentences.push(format!("skipped {} more files", skipped.len() - MOST_NAMED));
    }
    sentences
}
