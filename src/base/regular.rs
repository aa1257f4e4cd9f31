//! Files in places that others can write to. A name there may be a link to somebody's own file, a pipe that
//! never answers or a device: what is read or appended to is a regular file that lies where its name
//! says, or nothing.

use std::fs::{File, OpenOptions};
use std::io::{self, ErrorKind, Read};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Component, Path, PathBuf};

use rustix::fs::OFlags;

/// Opens a file to read it. Fails as the system does; for a link, a pipe, a device or a directory the
/// error says what stands there instead of a file.
pub fn open(path: &Path) -> io::Result<File> {
    open_as(path, OpenOptions::new().read(true), true)
}

/// Opens a file to read and change it, and makes an empty one where there is none. Fails like [`open`].
pub fn open_or_make(path: &Path) -> io::Result<File> {
    open_as(path, OpenOptions::new().read(true).write(true).create(true).truncate(false), true)
}

/// Reads a whole file into memory. Fails like [`open`], so that a pipe is an error and
/// is not waited for.
pub fn read(path: &Path) -> io::Result<Vec<u8>> {
    whole(open(path)?)
}

/// Reads a whole file that a user named or linked to: links are followed, pipes and devices are not
/// waited for. Fails like [`open`], but for links.
pub fn read_linked(path: &Path) -> io::Result<Vec<u8>> {
    whole(open_as(path, OpenOptions::new().read(true), false)?)
}

/// Where a relative path leads inside a directory; `None` where it would leave it, or a part of it is a link.
pub fn inside(dir: &Path, path: &Path) -> Option<PathBuf> {
    let mut place = dir.to_owned();
    for part in path.components() {
        let Component::Normal(name) = part else { return None };
        place.push(name);
        if place.symlink_metadata().is_ok_and(|there| there.is_symlink()) {
            return None;
        }
    }
    Some(place)
}

/// Checks that a directory stands at `path`, or nothing at all. Fails where a link or something else
/// stands there: what lies behind it is not this program's.
pub fn folder(path: &Path) -> io::Result<()> {
    match path.symlink_metadata() {
        Ok(there) if !there.is_dir() => Err(odd(&there, "a directory")),
        Err(e) if e.kind() != ErrorKind::NotFound => Err(e),
        _ => Ok(()),
    }
}

fn open_as(path: &Path, options: &mut OpenOptions, is_ours: bool) -> io::Result<File> {
    // a pipe would otherwise be waited for until somebody opens its other end
    let mut flags = OFlags::NONBLOCK;
    if is_ours {
        flags |= OFlags::NOFOLLOW;
    }
    let file = options.custom_flags(flags.bits() as i32).open(path);
    let there = if is_ours { path.symlink_metadata() } else { path.metadata() };
    match (file, there) {
        (Ok(file), _) => match file.metadata()? {
            metadata if metadata.is_file() => Ok(file),
            metadata => Err(odd(&metadata, "a file")),
        },
        // the system calls a link that is not followed a loop, and a pipe without a reader no device
        (Err(_), Ok(there)) if !there.is_file() => Err(odd(&there, "a file")),
        (Err(e), _) => Err(e),
    }
}

fn odd(there: &std::fs::Metadata, wanted: &str) -> io::Error {
    let kind = there.file_type();
    let what = match () {
        () if kind.is_symlink() => "a link, which is not followed here",
        () if kind.is_dir() => "a directory",
        () if kind.is_file() => "a file",
        () => "a pipe, a socket or a device",
    };
    io::Error::new(ErrorKind::InvalidInput, format!("is {what}, not {wanted}"))
}

fn whole(mut file: File) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    file.read_to_end(&mut bytes)?;
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn files_are_read_and_links_pipes_and_directories_are_named() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        std::fs::write(at("file"), "text").unwrap();
        symlink(at("file"), at("link")).unwrap();
        symlink(at("nowhere"), at("dangling")).unwrap();
        rustix::fs::mkfifoat(rustix::fs::CWD, at("pipe"), rustix::fs::Mode::RWXU).unwrap();
        assert_eq!(read(&at("file")).unwrap(), b"text");
        assert_eq!(read_linked(&at("link")).unwrap(), b"text");
        let why = |result: io::Result<Vec<u8>>| result.unwrap_err().to_string();
        for link in ["link", "dangling"] {
            assert_eq!(why(read(&at(link))), "is a link, which is not followed here, not a file");
            assert!(open_or_make(&at(link)).is_err());
        }
        assert!(!at("nowhere").exists(), "nothing is made behind a link");
        assert_eq!(why(read(&at("pipe"))), "is a pipe, a socket or a device, not a file");
        assert_eq!(why(read_linked(&at("pipe"))), "is a pipe, a socket or a device, not a file");
        assert_eq!(why(read(dir.path())), "is a directory, not a file");
        assert_eq!(read(&at("none")).unwrap_err().kind(), ErrorKind::NotFound);
        assert!(open_or_make(&at("new")).is_ok() && at("new").exists());
        symlink(dir.path(), at("folder")).unwrap();
        assert!(folder(&at("folder")).is_err() && folder(&at("file")).is_err());
        assert!(folder(dir.path()).is_ok() && folder(&at("none")).is_ok());
    }

    #[test]
    fn a_path_stays_inside_its_directory() {
        let dir = tempfile::tempdir().unwrap();
        symlink("/etc", dir.path().join("link")).unwrap();
        let inside = |path: &str| inside(dir.path(), Path::new(path));
        assert_eq!(inside("run/trace.parquet"), Some(dir.path().join("run/trace.parquet")));
        for path in ["../../etc/hostname", "/etc/hostname", "run/../../x", "link/hostname"] {
            assert_eq!(inside(path), None, "{path}");
        }
    }
}
