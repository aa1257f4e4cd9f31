//! Unpacking of a tar archive into a directory, within the limits of imports.

use std::fs::File;
use std::io;
use std::path::{Component, Path, PathBuf};

use super::directory::{MOST_MEMBERS, Members};
use super::formats::{Reader, recognise};
use super::input::{Coding, Input, Member, Place};
use base::error::{Error, Result};
use base::regular;

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
        Error::input_help(message, "pass a directory, or a .tar.gz of one")
    };
    let input = Input::of(archive);
    let found = recognise(&input)?;
    let Reader::Archive(members) = found.reader() else { return Err(refused()) };
    let archive = Input { name: String::new(), ..input };
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
        let Place::Member(Member { coding: Coding::Plain, .. }) = &input.place else {
            return Err(refused());
        };
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
