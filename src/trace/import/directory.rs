//! A directory or an archive as one trace: its trace files are ranks. What is no trace is left out and named.

use std::collections::{HashSet, VecDeque};
use std::hash::BuildHasher;
use std::io::Read;
use std::path::{Path, PathBuf};

use super::archive;
use super::formats::{Format, HEAD, Reader, UNKNOWN, refusal};
use super::input::{Input, Place};
use super::kineto;
use super::rank::{Claim, Name};
use super::recognise::{is_trace, recognise};
use crate::base::error::{Error, Result};
use crate::base::natural::natural_order;

/// Most skipped files that are named.
const MOST_NAMED: usize = 10;

/// Levels of directories that are searched below one without traces of its own.
const DEPTH: usize = 3;

/// Archives within one another that are opened.
const ARCHIVES: usize = 2;

/// Most files that are looked at below a directory.
const MOST_FILES: usize = 100_000;

/// The trace that JAX writes a second time, for Perfetto, beside its own.
const FOR_PERFETTO: &str = "perfetto_trace.json.gz";

/// The trace files of a directory or an archive, all of one reader, and notes on the others.
#[derive(Debug)]
pub(super) struct Found {
    pub reader: Reader,
    /// The files, with what their beginnings and names say of their ranks.
    pub files: Vec<(Input, Claim)>,
    /// What was left out because it is no trace, one of another kind, or one that is here already, and damage of
    /// archives: a sentence for each.
    pub notes: Vec<String>,
}

/// A trace file, by its beginning.
struct Seen {
    input: Input,
    claim: Claim,
    /// Hash of the first bytes, unpacked.
    head: u64,
    packed: Option<&'static str>,
}

/// A file that is left out.
struct Skipped {
    name: String,
    why: String,
    /// Its format, if that is known and not read.
    format: Option<&'static Format>,
}

/// Looks at one file, which may be an archive.
///
/// # Errors
///
/// An input error for a file that cannot be imported, with its format.
pub(super) fn of_file(path: &Path) -> Result<Found> {
    let input = Input::of(path);
    let found = recognise(&input)?;
    let reader = match found.reader() {
        Reader::None => return Err(refusal(path, found.format, &found.head)),
        Reader::Tar | Reader::Zip => {
            return classify(path, vec![Input { name: String::new(), ..input }]);
        }
        // its events may begin later
        Reader::Json => Reader::Events,
        reader => reader,
    };
    let claim = claim(reader, &input.name, &found.head);
    Ok(Found { reader, files: vec![(input, claim)], notes: Vec::new() })
}

/// Looks through a directory; below it only if no trace lies in it.
///
/// # Errors
///
/// An input error where no trace is in it, with the format of what is.
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

/// Files and directories in a directory, in natural order; their names begin with `name`.
fn list(directory: &Path, name: &str) -> Result<(Vec<Input>, Vec<Input>)> {
    let (mut files, mut directories) = (Vec::new(), Vec::new());
    for entry in std::fs::read_dir(directory).map_err(Error::io(directory))? {
        let entry = entry.map_err(Error::io(directory))?;
        let (path, own) = (entry.path(), entry.file_name().to_string_lossy().into_owned());
        let hidden = own.starts_with('.');
        let name = if name.is_empty() { own } else { format!("{name}/{own}") };
        let input = Input { path, name, place: Place::File };
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

/// Tells the traces among files, and among the members of archives, from the rest. Traces of the reader of most are
/// taken; of as many, of the one named first.
fn classify(place: &Path, inputs: Vec<Input>) -> Result<Found> {
    let mut readers: [(Reader, Vec<Seen>); 4] =
        [Reader::Events, Reader::Rocprof, Reader::Sqlite, Reader::Own]
            .map(|reader| (reader, Vec::new()));
    let (mut skipped, mut notes) = (Vec::new(), Vec::new());
    let mut all = 0;
    let mut waiting: VecDeque<(Input, usize)> = inputs.into_iter().map(|input| (input, 0)).collect();
    while let Some((input, depth)) = waiting.pop_front() {
        let name = input.name.clone();
        let mut skip = |why: String, format| skipped.push(Skipped { name: name.clone(), why, format });
        let because = |error: Error| {
            let why = error.to_string();
            why.strip_prefix(&format!("{}: ", input.shown())).unwrap_or(&why).to_owned()
        };
        let found = match recognise(&input) {
            Ok(found) => found,
            Err(error) => {
                all += 1;
                skip(because(error), None);
                continue;
            }
        };
        let is_packed = found.packed.is_some();
        let members = match found.reader() {
            Reader::Tar if depth < ARCHIVES => Some(archive::tar(&input, is_packed)),
            Reader::Zip if depth < ARCHIVES => Some(archive::zip(&input, is_packed)),
            _ => None,
        };
        if let Some(members) = members {
            let members = match members {
                Ok(members) => members,
                // of several files one may be broken; one that was named is not left out
                Err(error) if waiting.is_empty() && all == 0 => return Err(error),
                Err(error) => {
                    all += 1;
                    skip(because(error), None);
                    continue;
                }
            };
            notes.extend(members.notes);
            all += members.skipped.len();
            skipped.extend(members.skipped.into_iter().map(|(name, why)| Skipped {
                name,
                why,
                format: None,
            }));
            let mut members = members.inputs;
            members.sort_by(|a, b| natural_order(&a.name, &b.name));
            members.into_iter().rev().for_each(|member| waiting.push_front((member, depth + 1)));
            continue;
        }
        all += 1;
        match readers.iter_mut().find(|(reader, _)| *reader == found.reader()) {
            Some((reader, files)) => files.push(Seen {
                claim: claim(*reader, &input.name, &found.head),
                head: foldhash::fast::FixedState::default().hash_one(&found.head),
                packed: found.packed,
                input,
            }),
            None => match found.format {
                Some(format) => skip(format.name.into(), Some(format)),
                None => skip(UNKNOWN.into(), None),
            },
        }
    }
    let (reader, mut files) = most(&mut readers);
    if files.is_empty() {
        return Err(nothing(place, all, &skipped));
    }
    for (other, others) in readers {
        let why = format!("{}, while most traces here are {}", word(other), word(reader));
        skipped.extend(others.into_iter().map(|seen| Skipped {
            name: seen.input.name,
            why: why.clone(),
            format: None,
        }));
    }
    if files.len() > 1 {
        files.retain(|seen| {
            let is_second = seen.input.path.file_name().is_some_and(|name| name == FOR_PERFETTO);
            if is_second {
                let why = "the trace beside it, written again for Perfetto".to_owned();
                skipped.push(Skipped { name: seen.input.name.clone(), why, format: None });
            }
            !is_second
        });
    }
    let files = once(files, &mut skipped).into_iter().map(|seen| (seen.input, seen.claim)).collect();
    notes.extend(sentences(&skipped));
    Ok(Found { reader, files, notes })
}

/// Takes the files of the reader that has most.
fn most(readers: &mut [(Reader, Vec<Seen>); 4]) -> (Reader, Vec<Seen>) {
    let most = readers.iter().map(|(_, files)| files.len()).max().unwrap_or(0);
    match readers.iter_mut().find(|(_, files)| files.len() == most) {
        Some((reader, files)) => (*reader, std::mem::take(files)),
        None => (Reader::None, Vec::new()),
    }
}

/// Leaves out links to files that are here, and copies. Files themselves, and names that say a rank, stay.
fn once(seen: Vec<Seen>, skipped: &mut Vec<Skipped>) -> Vec<Seen> {
    let mut order: Vec<usize> = (0..seen.len()).collect();
    order.sort_by_key(|at| {
        let Seen { input, claim, .. } = &seen[*at];
        (input.path.is_symlink(), !claim.name.may_say_rank())
    });
    let mut skip =
        |name: &str, why: String| skipped.push(Skipped { name: name.to_owned(), why, format: None });
    let mut paths: HashSet<PathBuf> = HashSet::new();
    let mut kept: Vec<usize> = Vec::new();
    for at in order {
        let Input { path, name, .. } = &seen[at].input;
        if !paths.insert(std::fs::canonicalize(path).unwrap_or_else(|_| path.clone())) {
            skip(name, "a link to a file that is here already".into());
        } else if let Some(same) = kept.iter().find(|kept| is_copy(&seen[**kept], &seen[at])) {
            skip(name, format!("the same trace as {}", seen[*same].input.name));
        } else {
            kept.push(at);
        }
    }
    let kept: HashSet<usize> = kept.into_iter().collect();
    seen.into_iter().enumerate().filter(|(at, _)| kept.contains(at)).map(|(_, seen)| seen).collect()
}

fn claim(reader: Reader, name: &str, head: &[u8]) -> Claim {
    let name = Name::parse(name);
    if reader != Reader::Events {
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
    if a.packed == b.packed && a.input.stored()?.length() != b.input.stored()?.length() {
        return Ok(false);
    }
    let (mut a, mut b) = (a.input.unpacked()?.bytes, b.input.unpacked()?.bytes);
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

/// The error of a place without a trace; with the format of what is there, and the way to a trace.
fn nothing(place: &Path, all: usize, skipped: &[Skipped]) -> Error {
    let named = skipped.iter().find(|file| file.format.is_some()).or(skipped.first());
    let example = named.map_or(String::new(), |file| format!(": {} is {}", file.name, file.why));
    let help = named.and_then(|file| file.format).map_or(
        "name a directory or an archive of traces of PyTorch's profiler or of Nsight Systems exports, a file a rank",
        |format| format.help,
    );
    Error::input_help(format!("{}: no trace among its {all} files{example}", place.display()), help)
}

fn word(reader: Reader) -> &'static str {
    match reader {
        Reader::Events => "trace events (JSON)",
        Reader::Rocprof => "rocprofv3's",
        Reader::Sqlite => "SQLite",
        _ => "ladderscope's own",
    }
}

fn sentences(skipped: &[Skipped]) -> Vec<String> {
    let mut sentences: Vec<String> = skipped
        .iter()
        .take(MOST_NAMED)
        .map(|Skipped { name, why, .. }| format!("skipped {name}: {why}"))
        .collect();
    if skipped.len() > MOST_NAMED {
        sentences.push(format!("skipped {} more files", skipped.len() - MOST_NAMED));
    }
    sentences
}
