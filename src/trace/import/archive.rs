//! Tar and zip archives, whose members are inputs like the files of a directory. Members are never
//! extracted under their own names, so malicious names are harmless.

use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use zip::CompressionMethod;

use super::input::{Coding, Input, Member, Place, Section};
use base::error::{Error, Result};

const MOST_MEMBERS: usize = 10_000;

#[derive(Debug, Default)]
pub(super) struct Members {
    pub inputs: Vec<Input>,
    /// Name and reason of each unreadable member.
    pub skipped: Vec<(String, String)>,
    pub notes: Vec<String>,
}

impl Members {
    fn push(&mut self, archive: &Input, name: &str, member: Member) {
        if !is_junk(name) {
            let path = PathBuf::from(format!("{}/{name}", archive.shown()));
            let name = below(archive, name);
            self.inputs.push(Input { path, name, place: Place::Member(member) });
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

    fn skip(&mut self, archive: &Input, name: &str, why: &str) {
        self.skipped.push((below(archive, name), why.to_owned()));
    }

    fn is_full(&mut self, archive: &Input) -> bool {
        let full = self.inputs.len() + self.skipped.len() >= MOST_MEMBERS;
        if full {
            self.notes
                .push(format!("{}: only the first {MOST_MEMBERS} members were read", archive.shown()));
        }
        full
    }
}

/// Path of a member relative to the opened directory or archive; an archive opened directly has an empty
/// name.
fn below(archive: &Input, name: &str) -> String {
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
pub(super) fn tar(archive: &Input, is_packed: bool) -> Result<Members> {
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
    let mut reader = tar::Archive::new(Section::of(file.clone(), start..start + length));
    let entries = reader.entries_with_seek().map_err(Error::io(&archive.path))?;
    for entry in entries {
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
        members.push(archive, &name, Member { file: file.clone(), range, coding: Coding::Plain });
        if members.is_full(archive) {
            break;
        }
    }
    Ok(members.latest())
}

/// Lists the members of a zip archive, like [`tar()`]. Returns an input error if the archive has no
/// readable central directory.
pub(super) fn zip(archive: &Input, is_packed: bool) -> Result<Members> {
    let mut members = Members::default();
    let section = if is_packed {
        let file = archive.to_whole_file()?;
        let length = file.metadata().map_err(Error::io(&archive.path))?.len();
        Section::of(Arc::new(file), 0..length)
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
        let coding = Coding::Zip { method, length: entry.size(), crc: entry.crc32() };
        members.push(archive, &name, Member { file: section.file.clone(), range: first..end, coding });
        if members.is_full(archive) {
            break;
        }
    }
    Ok(members.latest())
}
