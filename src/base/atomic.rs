//! Atomic files: complete or absent, and unfinished ones with the process that owns them.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io;
use std::io::ErrorKind::{InvalidInput, PermissionDenied, Unsupported};
use std::io::{BufRead, BufReader, Seek, SeekFrom, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use rustix::fs::{AtFlags, CWD, Mode, OFlags};
use rustix::io::{Errno, retry_on_intr};

use super::regular;
use crate::error::{Error, Result};

/// Folder of a runs directory for unfinished output; never listed.
pub const FOLDER: &str = ".ladderscope";

/// File that is named when complete. Dropping it before [`AtomicFile::finish`] leaves nothing and keeps
/// the file it would replace.
#[derive(Debug)]
pub struct AtomicFile {
    path: PathBuf,
    /// Open parent directory of `path`.
    dir: OwnedFd,
    file: File,
    /// Temporary name, if one is needed.
    named: Option<Named>,
}

/// Name in an open directory, removed on drop.
#[derive(Debug)]
struct Named {
    dir: OwnedFd,
    name: Option<String>,
}

impl Named {
    fn rename(&mut self, dir: &OwnedFd, name: &OsStr) -> io::Result<()> {
        let Some(old) = &self.name else { return Ok(()) };
        rustix::fs::renameat(&self.dir, old.as_str(), dir, name)?;
        self.name = None;
        Ok(())
    }
}

impl Drop for Named {
    fn drop(&mut self) {
        if let Some(name) = &self.name {
            let _ = rustix::fs::unlinkat(&self.dir, name.as_str(), AtFlags::empty());
        }
    }
}

impl AtomicFile {
    /// Starts a file for `path`. Returns an error if the directory is not writable or missing, so that
    /// mistyped paths are rejected.
    pub fn create(path: &Path) -> Result<Self> {
        Self::start(path, false).map_err(Error::io(path))
    }

    /// Like [`AtomicFile::create`], but creates missing directories. Returns an error if one of them
    /// cannot be created or written to.
    pub fn create_all(path: &Path) -> Result<Self> {
        Self::start(path, true).map_err(Error::io(path))
    }

    fn start(path: &Path, make: bool) -> io::Result<Self> {
        let dir = regular::open_parent(path, make)?.0;
        match unnamed(&dir) {
            Some(file) => Ok(Self { path: path.to_owned(), dir, file, named: None }),
            None => Self::start_named(path, dir),
        }
    }

    fn start_named(path: &Path, dir: OwnedFd) -> io::Result<Self> {
        let scratch = scratch(path, &dir)?;
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        loop {
            let name = unfinished_name(&target(path));
            let opened = || rustix::fs::openat(&scratch, name.as_str(), flags, regular::NEW_FILE);
            match retry_on_intr(opened) {
                Ok(file) => {
                    let named = Some(Named { dir: scratch, name: Some(name) });
                    return Ok(Self { path: path.to_owned(), dir, file: file.into(), named });
                }
                Err(Errno::EXIST) => {}
                Err(e) => return Err(e.into()),
            }
        }
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The unfinished file, for writers that seek or read back.
    pub fn file_mut(&mut self) -> &mut File {
        &mut self.file
    }

    /// Syncs the file, gives it its name and syncs the directory. If the disk is full or `path` cannot
    /// be replaced, returns an error and keeps the previous file; a failed directory sync is an error
    /// after the rename.
    pub fn finish(mut self) -> Result<()> {
        let path = self.path.clone();
        self.file.sync_all().and_then(|()| self.publish()).map_err(Error::io(&path))?;
        sync_dir(directory(&path))
    }

    fn publish(&mut self) -> io::Result<()> {
        let name: OsString = self.path.file_name().unwrap_or_default().to_owned();
        if self.named.is_none() {
            match link(&self.file, &self.dir, &name) {
                Ok(()) => return Ok(()),
                // linking never replaces a file, renaming does
                Err(Errno::EXIST) => {
                    let scratch = scratch(&self.path, &self.dir)?;
                    let unfinished = unfinished_name(&target(&self.path));
                    link(&self.file, &scratch, unfinished.as_ref())?;
                    self.named = Some(Named { dir: scratch, name: Some(unfinished) });
                }
                // sandboxes may not allow such links
                Err(_) => {
                    let mut copy = Self::start_named(&self.path, self.dir.try_clone()?)?;
                    self.file.seek(SeekFrom::Start(0))?;
                    io::copy(&mut self.file, &mut copy.file)?;
                    copy.file.sync_all()?;
                    self.named = copy.named.take();
                }
            }
        }
        match &mut self.named {
            Some(named) => named.rename(&self.dir, &name),
            None => Ok(()),
        }
    }
}

impl Write for AtomicFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.file.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

/// Directory that is named when complete. Dropping it before [`UnfinishedDir::finish`] removes it with
/// its contents.
#[derive(Debug)]
pub struct UnfinishedDir {
    path: PathBuf,
    target: PathBuf,
    /// False after the rename.
    unfinished: bool,
}

impl UnfinishedDir {
    /// Starts a directory for `target`. Returns an error if none can be created next to it or in the
    /// runs directory.
    pub fn create(target: &Path) -> Result<Self> {
        let make = || -> io::Result<PathBuf> {
            let dir = regular::open_parent(target, false)?.0;
            let scratch = scratch(target, &dir)?;
            let place = match regular::confined(target) {
                Some(root) if !is_same(&scratch, &dir)? => root.join(FOLDER),
                _ => directory(target).to_owned(),
            };
            loop {
                let name = unfinished_name(&self::target(target));
                match rustix::fs::mkdirat(&scratch, name.as_str(), Mode::from_raw_mode(0o777)) {
                    Ok(()) => return Ok(place.join(name)),
                    Err(Errno::EXIST) => {}
                    Err(e) => return Err(e.into()),
                }
            }
        };
        let path = make().map_err(Error::io(target))?;
        Ok(Self { path, target: target.to_owned(), unfinished: true })
    }

    /// Temporary path until finished.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Renames the directory to its target and syncs the parent. If the target is anything but an empty
    /// directory, returns an error and removes this directory.
    pub fn finish(mut self) -> io::Result<()> {
        regular::rename(&self.path, &self.target)?;
        self.unfinished = false;
        sync(directory(&self.target))
    }
}

impl Drop for UnfinishedDir {
    fn drop(&mut self) {
        if self.unfinished {
            let _ = regular::remove_tree(&self.path);
        }
    }
}

/// Writes `bytes` to `path` atomically, creating missing directories. Returns the errors of
/// [`AtomicFile::create_all`] and [`AtomicFile::finish`].
pub fn write(path: &Path, bytes: &[u8]) -> Result<()> {
    let mut file = AtomicFile::create_all(path)?;
    file.write_all(bytes).map_err(Error::io(path))?;
    file.finish()
}

/// Copies a file to `to`, without following links. The inner error is that of reading `from`, the outer one that of
/// writing, as of [`write()`].
pub fn copy(from: &Path, to: &Path) -> Result<io::Result<()>> {
    let mut source = match regular::open(from) {
        Ok(source) => BufReader::with_capacity(1 << 16, source),
        Err(error) => return Ok(Err(error)),
    };
    let mut file = AtomicFile::create_all(to)?;
    // `io::copy` does not say whether reading or writing failed
    loop {
        let length = match source.fill_buf() {
            Ok([]) => return file.finish().map(Ok),
            Ok(bytes) => file.write_all(bytes).map(|()| bytes.len()).map_err(Error::io(to))?,
            Err(error) => return Ok(Err(error)),
        };
        source.consume(length);
    }
}

/// Removes a directory of a runs directory. Moves it away first, so that nobody sees it half removed.
/// Returns an error if it cannot be moved or removed.
pub fn remove_dir(path: &Path) -> Result<()> {
    let doomed = UnfinishedDir::create(path)?;
    regular::rename(path, doomed.path()).map_err(Error::io(path))?;
    regular::remove_tree(doomed.path()).map_err(Error::io(path))
}

/// Removes leftovers of dead processes from [`FOLDER`] of a runs directory. Ignores errors, because
/// leftovers are harmless.
pub fn remove_abandoned(root: &Path) {
    remove_abandoned_in(&root.join(FOLDER), None);
}

fn remove_abandoned_in(folder: &Path, target: Option<&str>) {
    for entry in regular::entries(folder).unwrap_or_default() {
        if is_abandoned(&entry.name, target) {
            let path = folder.join(&entry.name);
            let _ = if entry.is_dir { regular::remove_tree(&path) } else { regular::remove_file(&path) };
        }
    }
}

/// Makes renames in a directory durable. Returns disk errors; ignores file systems and permissions that
/// do not allow the sync.
pub fn sync_dir(dir: &Path) -> Result<()> {
    sync(dir).map_err(Error::io(dir))
}

fn sync(dir: &Path) -> io::Result<()> {
    match File::open(dir).and_then(|dir| dir.sync_all()) {
        // a directory that is writable but not readable, or a file system without directory sync
        Err(e) if matches!(e.kind(), PermissionDenied | InvalidInput | Unsupported) => Ok(()),
        synced => synced,
    }
}

/// Opens an unnamed file; `None` if the system has no such files or could not name it later.
fn unnamed(dir: &OwnedFd) -> Option<File> {
    let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC;
    let file = retry_on_intr(|| rustix::fs::openat(dir, ".", flags, regular::NEW_FILE)).ok()?;
    regular::descriptor_path(&file).exists().then(|| file.into())
}

fn link(file: &File, dir: &OwnedFd, name: &OsStr) -> Result<(), Errno> {
    rustix::fs::linkat(CWD, regular::descriptor_path(file), dir, name, AtFlags::SYMLINK_FOLLOW)
}

/// Directory for the unfinished names of an output in `dir`: [`FOLDER`] of its runs directory if on the
/// same file system, else `dir` itself, after removing leftovers of earlier writers of the same output.
fn scratch(path: &Path, dir: &OwnedFd) -> io::Result<OwnedFd> {
    if let Some(root) = regular::confined(path) {
        let scratch = regular::open_directory(&root.join(FOLDER), true)?;
        if rustix::fs::fstat(&scratch)?.st_dev == rustix::fs::fstat(dir)?.st_dev {
            return Ok(scratch);
        }
    }
    remove_abandoned_in(directory(path), Some(&target(path)));
    dir.try_clone()
}

fn is_same(a: &impl AsFd, b: &impl AsFd) -> io::Result<bool> {
    let (a, b) = (rustix::fs::fstat(a)?, rustix::fs::fstat(b)?);
    Ok((a.st_dev, a.st_ino) == (b.st_dev, b.st_ino))
}

/// Final name of an output.
fn target(path: &Path) -> String {
    path.file_name().unwrap_or_default().to_string_lossy().into_owned()
}

fn directory(path: &Path) -> &Path {
    path.parent().filter(|dir| !dir.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// Name prefix of unfinished files and directories.
const PREFIX: &str = ".ladderscope-";

/// Process identity. The PID alone is ambiguous: PIDs are reused, and other hosts and containers have
/// their own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Owner {
    pid: i32,
    /// Start time in clock ticks since boot.
    start: u64,
    /// Kernel boot id, hex digits only.
    boot: String,
    /// Inode of the PID namespace.
    namespace: u64,
}

impl Owner {
    /// This process; `None` without `/proc`.
    fn current() -> Option<&'static Self> {
        static CURRENT: OnceLock<Option<Owner>> = OnceLock::new();
        let read = || {
            let pid = std::process::id() as i32;
            let (_, start) = stat(pid)?;
            let boot = boot()?.chars().filter(char::is_ascii_hexdigit).collect();
            let namespace = std::fs::read_link("/proc/self/ns/pid").ok()?;
            let namespace =
                namespace.to_str()?.strip_prefix("pid:[")?.strip_suffix(']')?.parse().ok()?;
            Some(Self { pid, start, boot, namespace })
        };
        CURRENT.get_or_init(read).as_ref()
    }

    /// Parses the process from a name; `None` for names not created by [`unfinished_name`].
    fn from_name(name: &str) -> Option<Self> {
        let mut parts = name.strip_prefix(PREFIX)?.split('-');
        let (pid, start) = (parts.next()?.parse().ok()?, parts.next()?.parse().ok()?);
        let (boot, namespace) = (parts.next()?, parts.next()?.parse().ok()?);
        let (key, random) = (parts.next()?, parts.next()?);
        let is_hex = |text: &str, length| {
            text.len() == length
                && text.bytes().all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b))
        };
        let is_ours = is_hex(boot, 32) && is_hex(key, 8) && is_hex(random, 16) && parts.next().is_none();
        is_ours.then(|| Self { pid, start, boot: boot.to_owned(), namespace })
    }

    /// True if the process ran under this kernel, in this PID namespace, and has ended.
    fn is_gone(&self) -> bool {
        let Some(here) = Self::current() else { return false };
        if self.boot != here.boot || self.namespace != here.namespace {
            return false;
        }
        stat(self.pid).is_none_or(|(state, start)| matches!(state, 'Z' | 'X') || start != self.start)
    }
}

/// Creates a unique name for unfinished output of this process; `target` is its final name.
pub fn unfinished_name(target: &str) -> String {
    let (key, random) = (key(target), fastrand::u64(..));
    match Owner::current() {
        Some(Owner { pid, start, boot, namespace }) => {
            format!("{PREFIX}{pid}-{start}-{boot}-{namespace}-{key}-{random:016x}")
        }
        // identifies no process, so nobody removes it
        None => format!("{PREFIX}{}-{key}-{random:016x}", std::process::id()),
    }
}

/// True for names that [`unfinished_name`] creates.
pub fn is_unfinished(name: &str) -> bool {
    name.starts_with(PREFIX)
}

/// True if [`unfinished_name`] created the name in a process that is gone, for `target` if given.
pub fn is_abandoned(name: &str, target: Option<&str>) -> bool {
    let is_of = |target| name.rsplit('-').nth(1) == Some(key(target).as_str());
    target.is_none_or(is_of) && Owner::from_name(name).is_some_and(|owner| owner.is_gone())
}

fn key(target: &str) -> String {
    super::checksum::short_key(target)[..8].to_owned()
}

/// State and start time (clock ticks since boot) of a process, from `/proc/PID/stat`.
pub fn stat(pid: i32) -> Option<(char, u64)> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // the command name in parentheses may contain spaces and parentheses
    let mut fields = text.rsplit_once(')')?.1.split_ascii_whitespace();
    let state = fields.next()?.chars().next()?;
    // field 22 of the line; state is field 3
    Some((state, fields.nth(18)?.parse().ok()?))
}

pub fn boot() -> Option<String> {
    Some(std::fs::read_to_string("/proc/sys/kernel/random/boot_id").ok()?.trim().to_owned())
}

/// Name as a dead process would have created it.
#[cfg(test)]
pub(super) fn name_of_the_dead(target: &str) -> Option<String> {
    let Owner { pid, start, boot, namespace } = Owner::current()?;
    let (start, key) = (start + 1, key(target));
    Some(format!("{PREFIX}{pid}-{start}-{boot}-{namespace}-{key}-{:016x}", fastrand::u64(..)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(dir: &Path) -> Vec<String> {
        let mut names: Vec<String> =
            regular::entries(dir).unwrap_or_default().into_iter().map(|entry| entry.name).collect();
        names.sort();
        names
    }

    #[test]
    fn a_file_that_is_not_finished_leaves_the_old_one_and_no_rubbish() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.json");
        write(&path, b"old").unwrap();
        let started = [
            AtomicFile::create(&path).unwrap(),
            AtomicFile::start_named(&path, regular::open_directory(dir.path(), false).unwrap()).unwrap(),
        ];
        assert!(names(dir.path()).len() >= 2, "one of them has a name");
        for mut file in started {
            file.write_all(b"ne").unwrap();
            drop(file);
        }
        assert_eq!(std::fs::read(&path).unwrap(), b"old");
        assert_eq!(names(dir.path()), ["a.json"]);
    }

    #[test]
    fn a_finished_file_takes_the_place_of_another_with_and_without_a_name() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.json");
        for text in ["1", "22", "3"] {
            write(&path, text.as_bytes()).unwrap();
            assert_eq!(std::fs::read_to_string(&path).unwrap(), text);
            let dir = regular::open_directory(dir.path(), false).unwrap();
            let mut named = AtomicFile::start_named(&path, dir).unwrap();
            named.write_all(b"named").unwrap();
            named.finish().unwrap();
            assert_eq!(std::fs::read(&path).unwrap(), b"named");
        }
        assert_eq!(names(dir.path()), ["a.json"]);
        let folder = dir.path().join("folder");
        std::fs::create_dir(&folder).unwrap();
        assert!(write(&folder, b"1").is_err(), "a directory is not replaced");
        assert_eq!(names(dir.path()), ["a.json", "folder"]);
    }

    #[test]
    fn the_next_write_of_an_output_removes_what_its_dead_writers_left_and_nothing_else() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.json");
        let dead = name_of_the_dead("a.json").unwrap();
        let others = [name_of_the_dead("b.json").unwrap(), unfinished_name("a.json"), ".tmp-abc".into()];
        std::fs::write(dir.path().join(&dead), "half").unwrap();
        for other in &others {
            std::fs::write(dir.path().join(other), "half").unwrap();
        }
        write(&path, b"1").unwrap();
        write(&path, b"2").unwrap();
        let left = names(dir.path());
        assert!(!left.contains(&dead), "{left:?}");
        assert!(others.iter().all(|other| left.contains(other)), "{left:?}");
    }

    #[test]
    fn below_a_runs_directory_unfinished_names_are_in_its_folder() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().join("runs");
        regular::confine(&root);
        regular::make_folder(&root.join("run")).unwrap();
        let path = root.join("run/record.json");
        let folder = regular::open_directory(&root.join("run"), false).unwrap();
        let named = AtomicFile::start_named(&path, folder).unwrap();
        assert_eq!(names(&root.join(FOLDER)).len(), 1);
        assert_eq!(names(&root.join("run")), [""; 0]);
        named.finish().unwrap();
        write(&path, b"again").unwrap();
        let unfinished = UnfinishedDir::create(&root.join("other")).unwrap();
        assert!(unfinished.path().starts_with(root.join(FOLDER)));
        std::fs::write(unfinished.path().join("spec.json"), "{}").unwrap();
        unfinished.finish().unwrap();
        drop(UnfinishedDir::create(&root.join("third")).unwrap());
        assert_eq!(names(&root), [FOLDER, "other", "run"]);
        let dead = root.join(FOLDER).join(name_of_the_dead("x").unwrap());
        std::fs::create_dir_all(dead.join("deep")).unwrap();
        std::fs::write(root.join(FOLDER).join("a user's"), "mine").unwrap();
        remove_abandoned(&root);
        assert_eq!(names(&root.join(FOLDER)), ["a user's"]);
        remove_dir(&root.join("run")).unwrap();
        assert_eq!(names(&root), [FOLDER, "other"]);
    }

    #[test]
    fn a_copy_says_whether_its_source_cannot_be_read() {
        let dir = tempfile::tempdir().unwrap();
        let (from, to) = (dir.path().join("from"), dir.path().join("to"));
        std::fs::write(&from, "text".repeat(50_000)).unwrap();
        copy(&from, &to).unwrap().unwrap();
        assert_eq!(std::fs::read(&to).unwrap(), std::fs::read(&from).unwrap());
        // opens, and fails to read: nothing is mapped at address 0
        let unreadable = Path::new("/proc/self/mem");
        assert!(copy(unreadable, &dir.path().join("other")).unwrap().is_err());
        assert!(copy(&from, &from.join("below")).is_err(), "a file is no directory");
        assert_eq!(names(dir.path()), ["from", "to"]);
    }

    #[test]
    fn directories_on_the_way_are_made() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("x/y/a.json");
        write(&path, b"1").unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), b"1");
    }

    #[test]
    fn only_names_whose_process_is_provably_gone_are_abandoned() {
        let live = unfinished_name("a.json");
        assert!(!is_abandoned(&live, None), "this process runs");
        let dead = name_of_the_dead("a.json").unwrap();
        assert!(is_abandoned(&dead, None) && is_abandoned(&dead, Some("a.json")));
        assert!(!is_abandoned(&dead, Some("b.json")), "another output's");
        let parts: Vec<&str> = dead[PREFIX.len()..].split('-').collect();
        let with = |at: usize, value: &str| {
            let mut parts = parts.clone();
            parts[at] = value;
            format!("{PREFIX}{}", parts.join("-"))
        };
        let other_boot = "0123456789abcdef0123456789abcdef";
        for name in [
            with(2, other_boot),
            with(3, "1"),
            with(2, "short"),
            with(5, "x"),
            dead.replace(PREFIX, ".tmp-"),
            format!("{dead}-more"),
            format!("{PREFIX}notes"),
            ".tmp-abc".to_owned(),
            ".trace-1".to_owned(),
            String::new(),
        ] {
            assert!(!is_abandoned(&name, None), "{name}");
        }
    }

    #[test]
    fn a_child_that_ended_has_abandoned_its_files_even_before_it_is_reaped() {
        let mut child = std::process::Command::new("true").spawn().unwrap();
        let pid = child.id() as i32;
        let here = Owner::current().unwrap();
        let owner = Owner { pid, start: stat(pid).unwrap().1, ..here.clone() };
        let options = rustix::process::WaitIdOptions::EXITED | rustix::process::WaitIdOptions::NOWAIT;
        let id = rustix::process::WaitId::Pid(rustix::process::Pid::from_raw(pid).unwrap());
        rustix::process::waitid(id, options).unwrap();
        assert!(owner.is_gone());
        child.wait().unwrap();
        assert!(owner.is_gone());
    }
}
