//! A directory as one trace: its trace files are ranks. What is no trace is left out and named.

use std::collections::HashSet;
use std::hash::BuildHasher;
use std::io::Read;
use std::path::{Path, PathBuf};

use super::kineto;
use super::rank::{Claim, Name};
use super::recognise::{Content, Packing, recognise, unpacked};
use crate::base::error::{Error, Result};
use crate::base::natural::natural_order;

/// Far enough to tell a trace from other JSON: profilers write about devices first (bytes).
const HEAD: usize = 256 << 10;

/// Most skipped files that are named.
const MOST_NAMED: usize = 10;

/// Levels of directories that are searched below one without traces of its own.
const DEPTH: usize = 3;

/// Most files that are looked at below a directory.
const MOST_FILES: usize = 100_000;

/// A file to import.
#[derive(Clone, Debug)]
pub(super) struct Input {
    pub path: PathBuf,
    /// The name that says of which rank and recording it is: the path below the directory that was opened.
    pub name: String,
}

impl Input {
    /// A file that was named by itself.
    pub(super) fn of(path: &Path) -> Self {
        let name = path.file_name().unwrap_or(path.as_os_str());
        Self { path: path.to_path_buf(), name: name.to_string_lossy().into_owned() }
    }
}

/// The trace files of a directory, all of one kind, and what was skipped.
#[derive(Debug)]
pub(super) struct Found {
    pub content: Content,
    /// The files, with what their beginnings and names say of their ranks.
    pub files: Vec<(Input, Claim)>,
    /// What was left out because it is no trace, one of another kind, or one that is here already: a sentence for each.
    pub notes: Vec<String>,
}

/// A trace file, by its beginning.
struct Seen {
    input: Input,
    claim: Claim,
    /// Hash of the first bytes, unpacked.
    head: u64,
    packing: Packing,
}

/// Looks through a directory; below it only if no trace lies in it.
pub(super) fn look(directory: &Path) -> Result<Found> {
    let (mut inputs, mut below) = list(directory, "")?;
    for _ in 0..DEPTH {
        if below.is_empty()
            || inputs.len() > MOST_FILES
            || inputs.iter().any(|input| is_trace(&input.path))
        {
            break;
        }
        let mut further = Vec::new();
        for input in below {
            // a directory that cannot be read has no trace for us
            let (files, directories) = list(&input.path, &input.name).unwrap_or_default();
            inputs.extend(files);
            further.extend(directories);
        }
        below = further;
    }
    classify(directory, inputs)
}

fn is_trace(path: &Path) -> bool {
    recognise(path, HEAD).is_ok_and(|found| {
        found.content != Content::Unknown && is_of_events(&found.content, &found.head)
    })
}

fn is_of_events(content: &Content, head: &[u8]) -> bool {
    let has = |mark: &[u8]| memchr::memmem::find(head, mark).is_some();
    *content != Content::Json || has(b"\"traceEvents\"") || has(b"\"ph\"")
}

/// Files and directories in a directory, in natural order; their names begin with `name`.
fn list(directory: &Path, name: &str) -> Result<(Vec<Input>, Vec<Input>)> {
    let (mut files, mut directories) = (Vec::new(), Vec::new());
    for entry in std::fs::read_dir(directory).map_err(Error::io(directory))? {
        let entry = entry.map_err(Error::io(directory))?;
        let (path, own) = (entry.path(), entry.file_name().to_string_lossy().into_owned());
        let hidden = own.starts_with('.');
        let name = if name.is_empty() { own } else { format!("{name}/{own}") };
        let input = Input { path, name };
        if input.path.is_file() {
            files.push(input);
        } else if input.path.is_dir() && !input.path.is_symlink() && !hidden {
            directories.push(input);
        }
    }
    for list in [&mut files, &mut directories] {
        list.sort_by(|a, b| natural_order(&a.name, &b.name));
    }
    Ok((files, directories))
}

/// Tells the traces among files from the rest. Traces of the kind of most are taken.
fn classify(directory: &Path, inputs: Vec<Input>) -> Result<Found> {
    let mut kinds: [(Content, Vec<Seen>); 3] =
        [Content::Json, Content::Sqlite, Content::Own].map(|content| (content, Vec::new()));
    let mut skipped: Vec<(String, String)> = Vec::new();
    let all = inputs.len();
    for input in inputs {
        let found = match recognise(&input.path, HEAD) {
            Ok(found) => found,
            Err(error) => {
                let prefix = format!("{}: ", input.path.display());
                let why = error.to_string();
                skipped.push((input.name, why.strip_prefix(&prefix).unwrap_or(&why).to_owned()));
                continue;
            }
        };
        let is_trace = is_of_events(&found.content, &found.head);
        match kinds.iter_mut().find(|(content, _)| *content == found.content && is_trace) {
            Some((content, files)) => files.push(Seen {
                claim: claim(*content, &input.name, &found.head),
                head: foldhash::fast::FixedState::default().hash_one(&found.head),
                packing: found.packing,
                input,
            }),
            None if is_trace => skipped.push((input.name, "not a trace of a known kind".into())),
            None => skipped.push((input.name, "JSON, but without trace events".into())),
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
    let (content, seen) = std::mem::replace(&mut kinds[index], (Content::Unknown, Vec::new()));
    let kind = |content| match content {
        Content::Json => "JSON",
        Content::Sqlite => "SQLite",
        _ => "ladderscope's own",
    };
    for (other, others) in kinds {
        let why = format!("{}, while most traces here are {}", kind(other), kind(content));
        skipped.extend(others.into_iter().map(|seen| (seen.input.name, why.clone())));
    }
    let seen = once(seen, &mut skipped);
    let files = seen.into_iter().map(|seen| (seen.input, seen.claim)).collect();
    Ok(Found { content, files, notes: sentences(&skipped) })
}

/// Leaves out links to files that are here, and copies. Files themselves, and names that say a rank, stay.
fn once(seen: Vec<Seen>, skipped: &mut Vec<(String, String)>) -> Vec<Seen> {
    let mut order: Vec<usize> = (0..seen.len()).collect();
    order.sort_by_key(|at| {
        let Seen { input, claim, .. } = &seen[*at];
        (input.path.is_symlink(), !claim.name.may_say_rank())
    });
    let mut paths: HashSet<PathBuf> = HashSet::new();
    let mut kept: Vec<usize> = Vec::new();
    for at in order {
        let Input { path, name } = &seen[at].input;
        if !paths.insert(std::fs::canonicalize(path).unwrap_or_else(|_| path.clone())) {
            skipped.push((name.clone(), "a link to a file that is here already".into()));
        } else if let Some(same) = kept.iter().find(|kept| is_copy(&seen[**kept], &seen[at])) {
            skipped.push((name.clone(), format!("the same trace as {}", seen[*same].input.name)));
        } else {
            kept.push(at);
        }
    }
    let kept: HashSet<usize> = kept.into_iter().collect();
    seen.into_iter().enumerate().filter(|(at, _)| kept.contains(at)).map(|(_, seen)| seen).collect()
}

fn claim(content: Content, name: &str, head: &[u8]) -> Claim {
    let name = Name::parse(name);
    if content != Content::Json {
        return Claim { name, ..Claim::default() };
    }
    let glance = kineto::glance(head);
    Claim {
        name,
        own: glance.rank,
        world_size: glance.world_size,
        time_ns: glance.time_ns,
        parts: Vec::new(),
    }
}

/// True if two files hold the same trace, and their names do not say that they are of two ranks: a copy, or one packed
/// and one not.
fn is_copy(a: &Seen, b: &Seen) -> bool {
    a.head == b.head
        && a.claim.name.is_of_same_rank(&b.claim.name)
        && has_same_bytes(a, b).unwrap_or(false)
}

fn has_same_bytes(a: &Seen, b: &Seen) -> Result<bool> {
    let length = |seen: &Seen| std::fs::metadata(&seen.input.path).map_or(0, |data| data.len());
    if a.packing == b.packing && length(a) != length(b) {
        return Ok(false);
    }
    let (mut a, mut b) = (unpacked(&a.input.path, a.packing)?, unpacked(&b.input.path, b.packing)?);
    let (mut left, mut right) = (Vec::new(), Vec::new());
    loop {
        for (from, into) in [(&mut a, &mut left), (&mut b, &mut right)] {
            into.clear();
            if from.take(HEAD as u64).read_to_end(into).is_err() {
                return Ok(false);
            }
        }
        if left != right || left.is_empty() {
            return Ok(left == right);
        }
    }
}

fn sentences(skipped: &[(String, String)]) -> Vec<String> {
    let mut sentences: Vec<String> =
        skipped.iter().take(MOST_NAMED).map(|(name, why)| format!("skipped {name}: {why}")).collect();
    if skipped.len() > MOST_NAMED {
        sentences.push(format!("skipped {} more files", skipped.len() - MOST_NAMED));
    }
    sentences
}
