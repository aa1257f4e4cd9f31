//! Regular files and directories only: nothing here follows links below a confined directory, or blocks on a pipe.

use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::io::{ErrorKind, Read};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::fs::FileTypeExt;
use std::path::{Component, Path, PathBuf};
use std::sync::{PoisonError, RwLock};

use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags, RenameFlags, ResolveFlags};
use rustix::io::{Errno, retry_on_intr};

/// Directories below which links are not followed.
static CONFINED_DIRECTORIES: RwLock<Vec<PathBuf>> = RwLock::new(Vec::new());

/// Mode of new directories, subject to the umask.
const NEW_DIRECTORY: Mode = Mode::from_raw_mode(0o777);
/// Mode of new files, subject to the umask; a stricter mode would hide results from other users.
pub(super) const NEW_FILE: Mode = Mode::from_raw_mode(0o666);

/// Stops this process from following links below `root`, in paths that start with it.
pub fn confine(root: &Path) {
    let is_known = |all: &Vec<PathBuf>| all.iter().any(|known| known == root);
    if !CONFINED_DIRECTORIES.read().is_ok_and(|all| is_known(&all)) {
        let mut all = CONFINED_DIRECTORIES.write().unwrap_or_else(PoisonError::into_inner);
        if !is_known(&all) {
            all.push(root.to_owned());
        }
    }
}

/// Innermost confined directory of a path, if any.
pub fn confined(path: &Path) -> Option<PathBuf> {
    let all = CONFINED_DIRECTORIES.read().unwrap_or_else(PoisonError::into_inner);
    let enclosing = all.iter().filter(|root| path.starts_with(root));
    enclosing.max_by_key(|root| root.components().count()).cloned()
}

/// Opens a file for reading. Returns system errors; links, pipes, devices and directories are named in
/// the error.
pub fn open(path: &Path) -> io::Result<File> {
    open_sized(path, OFlags::RDONLY, Links::Refuse).map(|(file, _)| file)
}

/// Opens a file for reading and writing, creating it if missing. Returns errors like [`open`].
pub fn open_or_make(path: &Path) -> io::Result<File> {
    open_sized(path, OFlags::RDWR | OFlags::CREATE, Links::Refuse).map(|(file, _)| file)
}

/// Reads a whole file. Returns errors like [`open`]: a pipe is an error instead of blocking.
pub fn read(path: &Path) -> io::Result<Vec<u8>> {
    let (file, size) = open_sized(path, OFlags::RDONLY, Links::Refuse)?;
    let mut bytes = Vec::new();
    bytes.try_reserve_exact(usize::try_from(size).unwrap_or(usize::MAX).saturating_add(1))?;
    // `Take` does not ask for the size again
    file.take(u64::MAX).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// Opens a file named by the user. Follows links, unlike [`open`]; pipes and devices are errors.
pub fn open_linked(path: &Path) -> io::Result<File> {
    open_sized(path, OFlags::RDONLY, Links::Follow).map(|(file, _)| file)
}

/// Resolves a relative path inside a directory; `None` if it would leave the directory or contains a
/// link.
pub fn join_inside(dir: &Path, path: &Path) -> Option<PathBuf> {
    let mut joined = dir.to_owned();
    for component in path.components() {
        let Component::Normal(name) = component else { return None };
        joined.push(name);
        if joined.symlink_metadata().is_ok_and(|metadata| metadata.is_symlink()) {
            return None;
        }
    }
    Some(joined)
}

/// Checks that `path` is a directory or does not exist. Returns an error for a link or another kind of
/// file, whose contents do not belong to this program.
pub fn check_directory(path: &Path) -> io::Result<()> {
    if let Some(metadata) = if_exists(path.symlink_metadata())?.filter(|metadata| !metadata.is_dir()) {
        return Err(kind_error(&metadata, "a directory"));
    }
    if_exists(open_directory(path, false)).map(drop)
}

/// Result of an operation on a path; `None` if nothing is there.
pub fn if_exists<T>(done: io::Result<T>) -> io::Result<Option<T>> {
    match done {
        Err(e) if e.kind() == ErrorKind::NotFound => Ok(None),
        done => done.map(Some),
    }
}

/// Creates a directory and missing parents. Returns an error if a file or, below a confined directory, a
/// link is in the way.
pub fn make_folder(path: &Path) -> io::Result<()> {
    open_directory(path, true).map(drop)
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DirectoryEntry {
    pub name: String,
    /// True for directories only; links to directories are false.
    pub is_dir: bool,
}

/// Entries of a directory in arbitrary order, without names that are not UTF-8. Returns errors like
/// [`check_directory`], and one for a missing directory.
pub fn entries(path: &Path) -> io::Result<Vec<DirectoryEntry>> {
    let dir = open_directory(path, false)?;
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let listed = Dir::new(retry_on_intr(|| rustix::fs::openat(&dir, ".", flags, Mode::empty()))?)?;
    let mut found = Vec::new();
    for entry in listed {
        let entry = entry?;
        let Ok(name) = entry.file_name().to_str() else { continue };
        if name == "." || name == ".." {
            continue;
        }
        let is_dir = match entry.file_type() {
            // some file systems omit the type in listings
            FileType::Unknown => rustix::fs::statat(&dir, name, AtFlags::SYMLINK_NOFOLLOW)
                .is_ok_and(|stat| FileType::from_raw_mode(stat.st_mode) == FileType::Directory),
            kind => kind == FileType::Directory,
        };
        found.push(DirectoryEntry { name: name.to_owned(), is_dir });
    }
    Ok(found)
}

/// Removes a file or a link. Returns system errors.
pub fn remove_file(path: &Path) -> io::Result<()> {
    let (dir, name) = open_parent(path, false)?;
    Ok(rustix::fs::unlinkat(&dir, name, AtFlags::empty())?)
}

/// Removes a directory tree; links in it are removed, not followed. Returns system errors.
pub fn remove_tree(path: &Path) -> io::Result<()> {
    let (dir, name) = open_parent(path, false)?;
    // path of the open directory: no component can be replaced in the meantime
    std::fs::remove_dir_all(descriptor_path(&dir).join(name))
}

/// Renames without following links on either path. Returns system errors.
pub fn rename(from: &Path, to: &Path) -> io::Result<()> {
    let ((from, old), (to, new)) = (open_parent(from, false)?, open_parent(to, false)?);
    Ok(rustix::fs::renameat(&from, old, &to, new)?)
}

/// Like [`rename`], but an error if a file is at `to`, which stays.
pub fn rename_new(from: &Path, to: &Path) -> io::Result<()> {
    let ((from, old), (to, new)) = (open_parent(from, false)?, open_parent(to, false)?);
    match rustix::fs::renameat_with(&from, old, &to, new, RenameFlags::NOREPLACE) {
        // NFS has links instead
        Err(Errno::INVAL | Errno::NOSYS) => {
            rustix::fs::linkat(&from, old, &to, new, AtFlags::empty())?;
            Ok(rustix::fs::unlinkat(&from, old, AtFlags::empty())?)
        }
        renamed => Ok(renamed?),
    }
}

/// Path of an open file or directory in this process.
pub(super) fn descriptor_path(file: &impl AsFd) -> PathBuf {
    format!("/proc/self/fd/{}", file.as_fd().as_raw_fd()).into()
}

/// Opens a directory; with `make`, creates it and missing parents first.
pub(super) fn open_directory(path: &Path, make: bool) -> io::Result<OwnedFd> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let root = confined(path);
    let start = match root.as_deref().unwrap_or(path) {
        start if start.as_os_str().is_empty() => Path::new("."),
        start => start,
    };
    if make {
        std::fs::create_dir_all(start)?;
    }
    let mut dir = retry_on_intr(|| rustix::fs::open(start, flags, Mode::empty()))?;
    let rest = root.as_deref().and_then(|root| path.strip_prefix(root).ok()).unwrap_or(Path::new(""));
    for component in rest.components() {
        let Component::Normal(name) = component else {
            return Err(invalid(format!("leaves {} by '..'", start.display())));
        };
        dir = open_child(&dir, name, make)?;
    }
    Ok(dir)
}

/// Opens directory `name` in `dir` without following a link; with `make`, creates it first.
fn open_child(dir: &OwnedFd, name: &OsStr, make: bool) -> io::Result<OwnedFd> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC | OFlags::NOFOLLOW;
    let open = || retry_on_intr(|| rustix::fs::openat(dir, name, flags, Mode::empty()));
    let opened = match open() {
        Err(Errno::NOENT) if make => {
            match rustix::fs::mkdirat(dir, name, NEW_DIRECTORY) {
                Ok(()) | Err(Errno::EXIST) => {}
                Err(e) => return Err(e.into()),
            }
            open()
        }
        opened => opened,
    };
    opened.map_err(|e| match e {
        Errno::NOTDIR | Errno::LOOP if is_link(dir, name) => invalid(format!(
            "'{}' on the way is a link, and links are not followed here",
            name.to_string_lossy()
        )),
        _ => e.into(),
    })
}

fn is_link(dir: &OwnedFd, name: &OsStr) -> bool {
    rustix::fs::statat(dir, name, AtFlags::SYMLINK_NOFOLLOW)
        .is_ok_and(|stat| FileType::from_raw_mode(stat.st_mode) == FileType::Symlink)
}

/// Opens the parent directory of a path, which it returns with the file name.
pub(super) fn open_parent(path: &Path, make: bool) -> io::Result<(OwnedFd, &OsStr)> {
    let name = path.file_name().ok_or_else(|| invalid("has no file name".into()))?;
    Ok((open_directory(path.parent().unwrap_or(Path::new("")), make)?, name))
}

/// Treatment of a link at the end of a path; below a confined directory, at any place in it.
#[derive(Clone, Copy, PartialEq)]
enum Links {
    Refuse,
    Follow,
}

/// Opens a regular file and returns its size too.
fn open_sized(path: &Path, flags: OFlags, links: Links) -> io::Result<(File, u64)> {
    // otherwise opening a pipe would block until its other end is opened
    let flags = flags | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let root = confined(path).filter(|root| root != path);
    let opened = match (links, root) {
        (Links::Follow, _) => retry_on_intr(|| rustix::fs::open(path, flags, NEW_FILE)),
        (Links::Refuse, None) => {
            retry_on_intr(|| rustix::fs::open(path, flags | OFlags::NOFOLLOW, NEW_FILE))
        }
        (Links::Refuse, Some(root)) => open_confined(&root, path, flags)?,
    };
    let file = File::from(opened.map_err(|error| named_error(path, links, error))?);
    let metadata = file.metadata()?;
    if !metadata.is_file() {
        return Err(kind_error(&metadata, "a file"));
    }
    Ok((file, metadata.len()))
}

/// Opens a file below a confined directory without following links. The outer error has its own words; the inner one is
/// the system's.
fn open_confined(root: &Path, path: &Path, flags: OFlags) -> io::Result<rustix::io::Result<OwnedFd>> {
    if let Some(file) = open_below(root, path, flags) {
        return Ok(Ok(file));
    }
    let (dir, name) = open_parent(path, false)?;
    Ok(retry_on_intr(|| rustix::fs::openat(&dir, name, flags | OFlags::NOFOLLOW, NEW_FILE)))
}

/// Error that names the kind of file if it is none that is opened here. The system reports an unfollowed link as a loop,
/// and a pipe without reader as a missing device.
fn named_error(path: &Path, links: Links, error: Errno) -> io::Error {
    let metadata = match links {
        Links::Refuse => path.symlink_metadata(),
        Links::Follow => path.metadata(),
    };
    match metadata {
        Ok(metadata) if !metadata.is_file() => kind_error(&metadata, "a file"),
        _ => error.into(),
    }
}

/// Opens an existing file below `root` in one call that follows no link. `None` if that fails for any
/// reason, one of which is a kernel before 5.6: the way through each directory then finds out why.
fn open_below(root: &Path, path: &Path, flags: OFlags) -> Option<OwnedFd> {
    let inside = path.strip_prefix(root).ok()?;
    let root = if root.as_os_str().is_empty() { Path::new(".") } else { root };
    let directory = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let dir = retry_on_intr(|| rustix::fs::open(root, directory, Mode::empty())).ok()?;
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS;
    let flags = flags.difference(OFlags::CREATE);
    retry_on_intr(|| rustix::fs::openat2(&dir, inside, flags, Mode::empty(), resolve)).ok()
}

fn invalid(why: String) -> io::Error {
    io::Error::new(ErrorKind::InvalidInput, why)
}

/// Error that says what a path is instead of the `wanted` kind of file.
fn kind_error(metadata: &std::fs::Metadata, wanted: &str) -> io::Error {
    let kind = metadata.file_type();
    if kind.is_symlink() {
        return invalid("is a link, and links are not followed here".into());
    }
    let name = if kind.is_dir() {
        "a directory"
    } else if kind.is_file() {
        "a file"
    } else {
        special_name(kind)
    };
    invalid(format!("is {name}, not {wanted}"))
}

/// Name of a file type other than file, directory and link.
pub(super) fn special_name(kind: std::fs::FileType) -> &'static str {
    if kind.is_fifo() {
        "a named pipe"
    } else if kind.is_socket() {
        "a socket"
    } else {
        "a device"
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn a_new_name_replaces_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let (from, to) = (dir.path().join("from"), dir.path().join("to"));
        std::fs::write(&from, "new").unwrap();
        std::fs::write(&to, "old").unwrap();
        assert_eq!(rename_new(&from, &to).unwrap_err().kind(), ErrorKind::AlreadyExists);
        assert_eq!(std::fs::read(&to).unwrap(), b"old");
        std::fs::remove_file(&to).unwrap();
        rename_new(&from, &to).unwrap();
        assert_eq!((std::fs::read(&to).unwrap(), from.exists()), (b"new".to_vec(), false));
    }

    #[test]
    fn files_are_read_and_links_pipes_and_directories_are_named() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        std::fs::write(at("file"), "text").unwrap();
        symlink(at("file"), at("link")).unwrap();
        symlink(at("nowhere"), at("dangling")).unwrap();
        rustix::fs::mkfifoat(rustix::fs::CWD, at("pipe"), rustix::fs::Mode::RWXU).unwrap();
        assert_eq!(read(&at("file")).unwrap(), b"text");
        assert!(open_linked(&at("link")).is_ok());
        let why = |result: io::Result<Vec<u8>>| result.unwrap_err().to_string();
        for link in ["link", "dangling"] {
            assert_eq!(why(read(&at(link))), "is a link, and links are not followed here");
            assert!(open_or_make(&at(link)).is_err());
        }
        assert!(!at("nowhere").exists(), "nothing is made behind a link");
        assert_eq!(why(read(&at("pipe"))), "is a named pipe, not a file");
        assert!(open_linked(&at("pipe")).is_err());
        assert_eq!(why(read(dir.path())), "is a directory, not a file");
        assert_eq!(read(&at("none")).unwrap_err().kind(), ErrorKind::NotFound);
        assert!(open_or_make(&at("new")).is_ok() && at("new").exists());
        symlink(dir.path(), at("folder")).unwrap();
        assert!(check_directory(&at("folder")).is_err() && check_directory(&at("file")).is_err());
        assert!(check_directory(dir.path()).is_ok() && check_directory(&at("none")).is_ok());
    }

    #[test]
    fn below_a_confined_directory_no_link_is_followed_at_any_depth() {
        let outside = tempfile::tempdir().unwrap();
        let place = tempfile::tempdir().unwrap();
        // the directory itself may be a link
        symlink(outside.path(), place.path().join("away")).unwrap();
        let real = tempfile::tempdir().unwrap();
        symlink(real.path(), place.path().join("runs")).unwrap();
        let root = place.path().join("runs");
        confine(&root);
        symlink(outside.path(), root.join("batches")).unwrap();
        std::fs::write(outside.path().join("mine"), "mine").unwrap();
        std::fs::create_dir(outside.path().join("folder")).unwrap();
        let behind = |name: &str| root.join("batches").join(name);
        for error in [
            read(&behind("mine")).unwrap_err(),
            open_or_make(&behind("new")).unwrap_err(),
            open_or_make(&behind("folder/lock")).unwrap_err(),
            make_folder(&behind("made")).unwrap_err(),
            entries(&root.join("batches")).unwrap_err(),
            check_directory(&behind("folder")).unwrap_err(),
            remove_file(&behind("mine")).unwrap_err(),
            remove_tree(&behind("folder")).unwrap_err(),
            rename(&behind("mine"), &root.join("taken")).unwrap_err(),
            crate::atomic::AtomicFile::create(&behind("new"))
                .map(drop)
                .map_err(|e| invalid(e.to_string()))
                .unwrap_err(),
            read(&root.join("../away/mine")).unwrap_err(),
        ] {
            assert!(
                error.to_string().contains("not followed") || error.to_string().contains("'..'"),
                "{error}"
            );
        }
        let names = |path| std::fs::read_dir(path).unwrap().count();
        assert_eq!((names(outside.path()), names(real.path())), (2, 1), "nothing was made or removed");
        make_folder(&root.join("a/b")).unwrap();
        std::fs::write(real.path().join("a/b/file"), "text").unwrap();
        assert_eq!(read(&root.join("a/b/file")).unwrap(), b"text");
        let mut found = entries(&root).unwrap();
        found.sort_by(|a, b| a.name.cmp(&b.name));
        let entry = |name: &str, is_dir| DirectoryEntry { name: name.into(), is_dir };
        assert_eq!(found, [entry("a", true), entry("batches", false)]);
        symlink(outside.path(), root.join("a/b/link")).unwrap();
        remove_tree(&root.join("a")).unwrap();
        assert_eq!(names(outside.path()), 2, "links in a removed directory are not followed");
    }

    #[test]
    fn a_path_stays_inside_its_directory() {
        let dir = tempfile::tempdir().unwrap();
        symlink("/etc", dir.path().join("link")).unwrap();
        let inside = |path: &str| join_inside(dir.path(), Path::new(path));
        assert_eq!(inside("run/trace.parquet"), Some(dir.path().join("run/trace.parquet")));
        for path in ["../../etc/hostname", "/etc/hostname", "run/../../x", "link/hostname"] {
            assert_eq!(inside(path), None, "{path}");
        }
    }
}
