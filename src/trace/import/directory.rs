//! Import of a directory or an archive as one trace, with its trace files as ranks. Other files are skipped
//! and reported. Members of tar and zip archives are inputs like the files of a directory; they are never
//! extracted under their own names, so malicious names are harmless.

use std::collections::HashSet;
use std::fs::File;
use std::hash::BuildHasher;
use std::io;
use std::io::Read;
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;

use zip::CompressionMethod;

use super::formats::{FileFormat, Importer, Reader, UNKNOWN, importers, refusal};
use super::input::{ArchiveMember, FileSection, InputFile, ZipMember};
use super::kineto;
use super::rank::{Name, RankClaim};
use super::recognise::{HEAD, recognise};
use base::error::{Error, Result};
use base::regular;
use base::text::natural_order;

const MOST_NAMED: usize = 10;

/// Maximum depth of the search below a directory without traces of its own.
const LEVELS: usize = 3;

const MOST_FILES: usize = 100_000;

/// Maximum nesting depth of archives.
const DEPTH: usize = 2;

/// Second copy of its trace that JAX writes for Perfetto.
const FOR_PERFETTO: &str = "perfetto_trace.json.gz";

pub(super) struct ImportableFiles {
    pub importer: &'static Importer,
    pub files: Vec<(InputFile, RankClaim)>,
    /// Skipped files (not a trace, another kind of trace, or a duplicate) and damaged archives, one
    /// sentence each.
    pub notes: Vec<String>,
}

struct RecognisedFile {
    input: InputFile,
    claim: RankClaim,
    /// Hash of the first unpacked bytes.
    head: u64,
    packed: Option<&'static str>,
}

struct Skipped {
    name: String,
    why: String,
    format: Option<&'static FileFormat>,
}

/// Inspects one file, which may be an archive. Returns an input error, with the format, if it cannot be
/// imported.
pub(super) fn of_file(path: &Path) -> Result<ImportableFiles> {
    let input = InputFile::from_path(path);
    let found = recognise(&input)?;
    let importer = match found.reader() {
        Reader::None => return Err(refusal(path, found.format, &found.head)),
        Reader::Archive(members) => {
            let archive = InputFile { name: String::new(), ..input };
            let mut survey = Survey::default();
            survey.add_members(members(&archive, found.packed.is_some())?, 1);
            return survey.finish(path);
        }
        // events may start after the inspected bytes
        Reader::Json => &kineto::TRACE_EVENTS,
        Reader::Importer(importer) => importer,
    };
    let claim = RankClaim { name: Name::parse(&input.name), ..RankClaim::default() };
    Ok(ImportableFiles { importer, files: vec![(input, claim)], notes: Vec::new() })
}

/// Returns an input error, with a format found, if a directory has no trace.
pub(super) fn look(directory: &Path) -> Result<ImportableFiles> {
    search(directory, 0)?.finish(directory)
}

/// True if a directory, or one below it, holds a trace that [`open`](super::open) reads, or an archive, which may hold one.
/// Reads only the beginnings of files.
pub fn holds_traces(directory: &Path) -> bool {
    let is_archive =
        |file: &Skipped| file.format.is_some_and(|format| matches!(format.reader, Reader::Archive(_)));
    search(directory, DEPTH)
        .is_ok_and(|survey| !survey.traces.is_empty() || survey.skipped.iter().any(is_archive))
}

/// Searches a directory; descends only if it contains no trace itself. `depth` is that of [`Survey::add`].
fn search(directory: &Path, depth: usize) -> Result<Survey> {
    let mut survey = Survey::default();
    let (files, mut below) = list(directory, "")?;
    survey.add(files, depth);
    for _ in 0..LEVELS {
        if below.is_empty() || survey.all > MOST_FILES || !survey.traces.is_empty() {
            break;
        }
        let mut further = Vec::new();
        for input in below {
            // skip unreadable directories
            let (files, directories) = list(&input.path, &input.name).unwrap_or_default();
            survey.add(files, depth);
            further.extend(directories);
        }
        below = further;
    }
    Ok(survey)
}

/// Inspects these files of a directory without opening archives among them.
pub(super) fn of_files(paths: &[PathBuf]) -> Result<ImportableFiles> {
    let mut survey = Survey::default();
    let place = paths.first().and_then(|path| path.parent()).unwrap_or(Path::new("."));
    survey.add(paths.iter().map(|path| InputFile::from_path(path)).collect(), DEPTH);
    survey.finish(place)
}

fn list(directory: &Path, name: &str) -> Result<(Vec<InputFile>, Vec<InputFile>)> {
    let (mut files, mut directories) = (Vec::new(), Vec::new());
    for entry in std::fs::read_dir(directory).map_err(Error::io(directory))? {
        let entry = entry.map_err(Error::io(directory))?;
        let (path, own) = (entry.path(), entry.file_name().to_string_lossy().into_owned());
        let hidden = own.starts_with('.');
        let name = if name.is_empty() { own } else { format!("{name}/{own}") };
        let input = InputFile { path, name, member: None };
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

#[derive(Default)]
struct Survey {
    traces: Vec<(&'static Importer, RecognisedFile)>,
    skipped: Vec<Skipped>,
    notes: Vec<String>,
    all: usize,
}

impl Survey {
    /// Sorts inputs into traces and skipped files, and opens archives. `depth` is the number of
    /// enclosing archives.
    fn add(&mut self, inputs: Vec<InputFile>, depth: usize) {
        for input in inputs {
            let found = match recognise(&input) {
                Ok(found) => found,
                Err(error) => {
                    self.skip_broken(&input, &error);
                    continue;
                }
            };
            if let Reader::Archive(members) = found.reader()
                && depth < DEPTH
            {
                match members(&input, found.packed.is_some()) {
                    Ok(members) => self.add_members(members, depth + 1),
                    Err(error) => self.skip_broken(&input, &error),
                }
                continue;
            }
            self.all += 1;
            match found.reader() {
                Reader::Importer(importer) => {
                    let claim =
                        RankClaim { name: Name::parse(&input.name), ..(importer.glance)(&found.head) };
                    let head = foldhash::fast::FixedState::default().hash_one(&found.head);
                    self.traces
                        .push((importer, RecognisedFile { claim, head, packed: found.packed, input }));
                }
                _ => {
                    let why = found.format.map_or(UNKNOWN, |format| format.name).to_owned();
                    self.skipped.push(Skipped { name: input.name, why, format: found.format });
                }
            }
        }
    }

    fn add_members(&mut self, members: Members, depth: usize) {
        let Members { mut inputs, skipped, notes, is_cut: _ } = members;
        self.notes.extend(notes);
        self.all += skipped.len();
        self.skipped.extend(skipped.into_iter().map(|(name, why)| Skipped { name, why, format: None }));
        inputs.sort_by(|a, b| natural_order(&a.name, &b.name));
        self.add(inputs, depth);
    }

    fn skip_broken(&mut self, input: &InputFile, error: &Error) {
        let why = error.to_string();
        let why = why.strip_prefix(&format!("{}: ", input.shown())).unwrap_or(&why).to_owned();
        self.all += 1;
        self.skipped.push(Skipped { name: input.name.clone(), why, format: None });
    }

    /// Keeps the traces of the importer with the most files; on a tie, of the first in order.
    fn finish(mut self, place: &Path) -> Result<ImportableFiles> {
        let is_of = |importer: &Importer, other: &Importer| importer.name == other.name;
        let count = |one: &Importer| self.traces.iter().filter(|(of, _)| is_of(of, one)).count();
        // of equals, the last has the maximum
        let importer = importers().into_iter().rev().max_by_key(|one| count(one));
        let importer = importer.filter(|one| count(one) > 0);
        let Some(importer) = importer else { return Err(nothing(place, self.all, &self.skipped)) };
        let (seen, others): (Vec<_>, Vec<_>) =
            self.traces.into_iter().partition(|(of, _)| is_of(of, importer));
        self.skipped.extend(others.into_iter().map(|(other, seen)| {
            let why =
                format!("{}, while most traces here are {}", other.short_name, importer.short_name);
            Skipped::new(seen.input, why)
        }));
        let seen = seen.into_iter().map(|(_, seen)| seen).collect();
        let seen = without_perfetto(seen, &mut self.skipped);
        let seen = once(seen, &mut self.skipped);
        self.notes.extend(sentences(&self.skipped));
        let files = seen.into_iter().map(|seen| (seen.input, seen.claim)).collect();
        Ok(ImportableFiles { importer, files, notes: self.notes })
    }
}

impl Skipped {
    fn new(input: InputFile, why: String) -> Self {
        Self { name: input.name, why, format: None }
    }
}

fn without_perfetto(seen: Vec<RecognisedFile>, skipped: &mut Vec<Skipped>) -> Vec<RecognisedFile> {
    let is_second = |seen: &RecognisedFile| seen.input.path.ends_with(FOR_PERFETTO);
    if seen.iter().all(is_second) {
        return seen;
    }
    let (second, seen): (Vec<RecognisedFile>, Vec<RecognisedFile>) =
        seen.into_iter().partition(is_second);
    let why = "a second copy of the trace next to it, for Perfetto";
    skipped.extend(second.into_iter().map(|seen| Skipped::new(seen.input, why.into())));
    seen
}

/// Skips links to other inputs, and copies. Prefers regular files over links, files over archive
/// members, and names that contain a rank.
fn once(seen: Vec<RecognisedFile>, skipped: &mut Vec<Skipped>) -> Vec<RecognisedFile> {
    let mut order: Vec<usize> = (0..seen.len()).collect();
    order.sort_by_key(|at| {
        let RecognisedFile { input, claim, .. } = &seen[*at];
        (input.path.is_symlink(), input.member.is_some(), !claim.name.may_say_rank())
    });
    let mut paths: HashSet<PathBuf> = HashSet::new();
    let mut kept: Vec<usize> = Vec::new();
    for at in order {
        let input = &seen[at].input;
        let path = std::fs::canonicalize(&input.path).unwrap_or_else(|_| input.path.clone());
        if !paths.insert(path) {
            skipped.push(Skipped::new(input.clone(), "a link to a file that is here already".into()));
        } else if let Some(same) = kept.iter().find(|kept| is_copy(&seen[**kept], &seen[at])) {
            let why = format!("the same trace as {}", seen[*same].input.name);
            skipped.push(Skipped::new(input.clone(), why));
        } else {
            kept.push(at);
        }
    }
    let kept: HashSet<usize> = kept.into_iter().collect();
    seen.into_iter().enumerate().filter(|(at, _)| kept.contains(at)).map(|(_, seen)| seen).collect()
}

/// True if two files hold the same trace, compressed or not, and their names do not claim different
/// ranks.
fn is_copy(a: &RecognisedFile, b: &RecognisedFile) -> bool {
    a.head == b.head
        && a.claim.name.is_of_same_rank(&b.claim.name)
        && has_same_bytes(a, b).unwrap_or(false)
}

fn has_same_bytes(a: &RecognisedFile, b: &RecognisedFile) -> Result<bool> {
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

fn nothing(place: &Path, all: usize, skipped: &[Skipped]) -> Error {
    let named = skipped.iter().find(|file| file.format.is_some()).or(skipped.first());
    // a file whose format is known first, which the help is about
    let others = skipped.iter().filter(|file| named.is_some_and(|named| named.name != file.name));
    let mut files: Vec<String> = named
        .into_iter()
        .chain(others)
        .take(MOST_NAMED)
        .map(|file| format!("{} is {}", file.name, file.why.trim_start_matches("the file is ")))
        .collect();
    if skipped.len() > MOST_NAMED {
        files.push(format!("and {} more", skipped.len() - MOST_NAMED));
    }
    let example = if files.is_empty() { String::new() } else { format!(": {}", files.join("; ")) };
    let help = named.and_then(|file| file.format).map(|format| format.help);
    let help = help.filter(|help| !help.is_empty()).unwrap_or(
        "pass a directory or archive with one PyTorch trace or Nsight Systems export per rank",
    );
    Error::input_help(format!("{}: no trace among its {all} files{example}", place.display()), help)
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

pub(super) const MOST_MEMBERS: usize = 10_000;

#[derive(Debug, Default)]
pub(super) struct Members {
    pub inputs: Vec<InputFile>,
    /// Name and reason of each unreadable member.
    pub skipped: Vec<(String, String)>,
    pub notes: Vec<String>,
    /// True if the archive has more than [`MOST_MEMBERS`].
    pub is_cut: bool,
}

impl Members {
    fn push(&mut self, archive: &InputFile, name: &str, member: ArchiveMember) {
        if !is_junk(name) {
            let path = PathBuf::from(format!("{}/{name}", archive.shown()));
            let name = below(archive, name);
            self.inputs.push(InputFile { path, name, member: Some(member) });
        }
    }

    /// Drops members that a later member of the same name replaces, as unpacking would.
    fn latest(mut self) -> Self {
        let mut paths = HashSet::new();
        self.inputs.reverse();
        self.inputs.retain(|input| paths.insert(input.path.clone()));
        self.inputs.reverse();
        self
    }

    fn skip(&mut self, archive: &InputFile, name: &str, why: &str) {
        self.skipped.push((below(archive, name), why.to_owned()));
    }

    /// True if the archive has more members than the limit. Counts links and directories, too: they may be millions.
    fn is_full(&mut self, archive: &InputFile, read: usize) -> bool {
        self.is_cut = read >= MOST_MEMBERS;
        if self.is_cut {
            self.notes
                .push(format!("{}: only the first {MOST_MEMBERS} members were read", archive.shown()));
        }
        self.is_cut
    }
}

/// Path of a member relative to the opened directory or archive; an archive opened directly has an empty
/// name.
fn below(archive: &InputFile, name: &str) -> String {
    match archive.name.as_str() {
        "" => name.to_owned(),
        archive => format!("{archive}/{name}"),
    }
}

/// True for files that macOS adds to archives.
fn is_junk(name: &str) -> bool {
    let own = Path::new(name).file_name().unwrap_or_default().to_string_lossy();
    own.starts_with("._") || name.split('/').any(|part| part == "__MACOSX")
}

fn member_name(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).trim_start_matches("./").trim_start_matches('/').to_owned()
}

/// Lists the members of a tar archive. A compressed archive is first unpacked into an anonymous
/// temporary file. Returns an input error if it exceeds the limits on unpacked size.
pub(super) fn tar(archive: &InputFile, is_packed: bool) -> Result<Members> {
    let mut members = Members::default();
    let (file, start, length) = if is_packed {
        let unpacked = archive.to_file()?;
        if let Some(error) = unpacked.trouble {
            members.notes.push(format!(
                "{}: breaks off after {} unpacked bytes ({error}); members after that are missing",
                archive.shown(),
                unpacked.length
            ));
        }
        (Arc::new(unpacked.file), 0, unpacked.length)
    } else {
        let stored = archive.stored()?;
        (stored.file.clone(), stored.range.start, stored.length())
    };
    let mut reader = tar::Archive::new(FileSection::new(file.clone(), start..start + length));
    let entries = reader.entries_with_seek().map_err(Error::io(&archive.path))?;
    for (read, entry) in entries.enumerate() {
        if members.is_full(archive, read) {
            break;
        }
        let entry = match entry {
            Ok(entry) => entry,
            Err(error) => {
                members.notes.push(format!(
                    "{}: damaged or cut off after {} members: {error}",
                    archive.shown(),
                    members.inputs.len()
                ));
                break;
            }
        };
        let name = member_name(&entry.path_bytes());
        let kind = entry.header().entry_type();
        if kind.is_gnu_sparse() {
            members.skip(
                archive,
                &name,
                "stored with holes (GNU sparse): pack it without `tar --sparse`",
            );
        }
        if kind.is_symlink() || kind.is_hard_link() {
            members.skip(archive, &name, "a link, and links in archives are not followed");
        }
        if !kind.is_file() && !kind.is_contiguous() {
            continue;
        }
        let first = entry.raw_file_position();
        let end = first.saturating_add(entry.size());
        if end > length {
            members.notes.push(format!(
                "{}/{name}: cut off: {} of {} bytes are in the archive",
                archive.shown(),
                length.saturating_sub(first),
                entry.size()
            ));
        }
        let range = start + first.min(length)..start + end.min(length);
        members.push(archive, &name, ArchiveMember { file: file.clone(), range, zipped: None });
    }
    Ok(members.latest())
}

/// Lists the members of a zip archive, like [`tar()`]. Returns an input error if the archive has no
/// readable central directory.
pub(super) fn zip(archive: &InputFile, is_packed: bool) -> Result<Members> {
    let mut members = Members::default();
    let section = if is_packed {
        let file = archive.to_whole_file()?;
        let length = file.metadata().map_err(Error::io(&archive.path))?.len();
        FileSection::new(Arc::new(file), 0..length)
    } else {
        archive.stored()?
    };
    let broken = |error: zip::result::ZipError| {
        Error::input_help(
            format!("{}: a zip archive that cannot be read: {error}", archive.shown()),
            "it is cut off or damaged: copy it again",
        )
    };
    let mut reader = zip::ZipArchive::new(section.clone()).map_err(broken)?;
    for at in 0..reader.len() {
        if members.is_full(archive, at) {
            break;
        }
        let entry = match reader.by_index_raw(at) {
            Ok(entry) => entry,
            Err(error) => {
                members.skip(archive, &format!("member {at}"), &error.to_string());
                continue;
            }
        };
        let name = member_name(entry.name_raw());
        if entry.is_dir() || entry.is_symlink() {
            continue;
        }
        if entry.encrypted() {
            members.skip(archive, &name, "encrypted: unpack the archive with its password first");
            continue;
        }
        let method = match entry.compression() {
            CompressionMethod::Stored => 0,
            #[expect(deprecated, reason = "the number of a method that the crate does not unpack")]
            CompressionMethod::Unsupported(method) => method,
            _ => u16::MAX,
        };
        let first = section.range.start + entry.data_start();
        let end = first.saturating_add(entry.compressed_size()).min(section.range.end);
        let zipped = Some(ZipMember { method, length: entry.size(), crc: entry.crc32() });
        members.push(
            archive,
            &name,
            ArchiveMember { file: section.file.clone(), range: first..end, zipped },
        );
    }
    Ok(members.latest())
}

/// Unpacks the regular files of a tar archive, compressed or not, into the empty directory that `make` creates once the
/// file is known to be one. Returns sentences on what is left out: links, paths that would leave the directory, and
/// members after damage.
///
/// # Errors
///
/// Returns an input error for another kind of file and for one that exceeds the limits on unpacked size and members, and
/// a failure if the directory cannot be written.
pub fn unpack(archive: &Path, make: impl FnOnce() -> Result<PathBuf>) -> Result<Vec<String>> {
    let refused = || {
        let message = format!("{}: not a tar archive", archive.display());
        Error::input_help(
            message,
            "pass a directory, or a .tar.gz of one; traces are read by `ladderscope overlap`",
        )
    };
    let input = InputFile::from_path(archive);
    let found = recognise(&input)?;
    let Reader::Archive(members) = found.reader() else { return Err(refused()) };
    let archive = InputFile { name: String::new(), ..input };
    let Members { inputs, skipped, mut notes, is_cut } = members(&archive, found.packed.is_some())?;
    if is_cut {
        return Err(Error::input_help(
            format!("{}: more than {MOST_MEMBERS} members; not unpacked", archive.shown()),
            "if the archive can be trusted, unpack it by hand, and pass the directory",
        ));
    }
    notes.extend(skipped.into_iter().map(|(name, why)| format!("{name}: {why}")));
    let folder = make()?;
    for input in inputs {
        let Some(ArchiveMember { zipped: None, .. }) = &input.member else { return Err(refused()) };
        let name = Path::new(&input.name);
        let is_inside = name.components().all(|part| matches!(part, Component::Normal(_)));
        if input.name.is_empty() || !is_inside {
            notes.push(format!("{}: its path leaves the archive", input.name));
            continue;
        }
        let path = folder.join(name);
        if let Some(parent) = path.parent() {
            regular::make_folder(parent).map_err(Error::io(parent))?;
        }
        let mut file = File::create_new(&path).map_err(Error::io(&path))?;
        io::copy(&mut input.stored()?, &mut file).map_err(Error::io(&path))?;
    }
    Ok(notes)
}
