//! Detects changes of a runs directory by other processes. On local disks the kernel reports them (inotify) at no
//! cost while idle. On network file systems it does not, so a few timestamps are polled every few seconds.

use std::collections::HashMap;
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::fs::inotify::{self, CreateFlags, ReadFlags, Reader, WatchFlags};

use super::annotations::FILE as ANNOTATIONS;
use super::directory::{Stamp, Store, stamp_of};
use super::evaluated::FILE as TEXTS;
use super::evaluations::FOLDER as EVALUATIONS;
use super::id::is_id;
use super::trainings::{FINISHED, FOLDER as TRAININGS};
use base::regular;

/// Time window in which changes are merged into one notification.
const GATHER: Duration = Duration::from_millis(300);

/// Poll interval for directories that do not exist yet or are on a network.
const LOOK: Duration = Duration::from_secs(5);

/// Magic numbers of file systems on which the kernel does not see changes by other hosts: NFS, SMB, CIFS, FUSE,
/// Lustre, GPFS, 9P, BeeGFS, Ceph, AFS (`linux/magic.h` and their own headers).
const OF_A_NETWORK: [u32; 10] = [
    0x6969,
    0xfe53_4d42,
    0xff53_4d42,
    0x6573_5546,
    0x0bd0_0bd0,
    0x4750_4653,
    0x0102_1997,
    0x1983_0326,
    0x00c3_6400,
    0x5346_414f,
];

/// Watched events of a directory: names created, removed or written.
const EVENTS: WatchFlags = WatchFlags::CREATE
    .union(WatchFlags::MOVED_TO)
    .union(WatchFlags::MOVED_FROM)
    .union(WatchFlags::DELETE)
    .union(WatchFlags::MODIFY)
    .union(WatchFlags::ONLYDIR);

impl Store {
    /// Calls `changed` soon after runs, batches, tags or notes change, until it returns false. Blocks, so it needs
    /// its own thread.
    pub fn watch(&self, mut changed: impl FnMut() -> bool) {
        let mut was_there = self.dir().is_dir();
        loop {
            if !self.dir().is_dir() {
                was_there = false;
                std::thread::sleep(LOOK);
                continue;
            }
            if !std::mem::replace(&mut was_there, true) && !changed() {
                return;
            }
            let goes_on = match is_of_a_network(self.dir()) {
                true => self.look_again_and_again(&mut changed),
                false => self.listen(&mut changed),
            };
            if !goes_on {
                return;
            }
        }
    }

    /// True if the directory is on a network file system, where changes by other hosts are seen with a delay.
    pub fn is_of_a_network(&self) -> bool {
        is_of_a_network(self.dir())
    }

    /// Waits for inotify events until the directory is gone (true) or `changed` returns false (false).
    fn listen(&self, changed: &mut dyn FnMut() -> bool) -> bool {
        let Ok(inotify) = inotify::init(CreateFlags::CLOEXEC) else {
            return self.look_again_and_again(changed);
        };
        let mut watched = Watched { inotify: &inotify, places: HashMap::new() };
        if !watched.add(self.dir()) {
            // the system's limit on watches is reached, or the directory was just removed
            return self.look_again_and_again(changed);
        }
        let batches = self.dir().join("batches");
        watched.add(&batches);
        watched.add(&self.dir().join(EVALUATIONS));
        watched.add(&self.dir().join(TRAININGS));
        for place in self.unfinished() {
            watched.add(&place);
        }
        let mut buffer = [MaybeUninit::uninit(); 4096];
        let mut events = Reader::new(&inotify, &mut buffer);
        loop {
            let mut is_news = false;
            loop {
                let Ok(event) = events.next() else { return self.look_again_and_again(changed) };
                if event.events().contains(ReadFlags::IGNORED) {
                    is_news |= watched.places.remove(&event.wd()).is_some();
                    if !self.dir().is_dir() {
                        return changed();
                    }
                } else if event.events().contains(ReadFlags::QUEUE_OVERFLOW) {
                    is_news = true;
                } else if let (Some(folder), Some(name)) = (
                    watched.places.get(&event.wd()),
                    event.file_name().and_then(|name| name.to_str().ok()),
                ) {
                    let path = folder.join(name);
                    let of_evaluations = folder.ends_with(EVALUATIONS);
                    let of_trainings = folder.ends_with(TRAININGS);
                    let is_new = event.events().intersects(ReadFlags::CREATE | ReadFlags::MOVED_TO);
                    if is_new && event.events().contains(ReadFlags::ISDIR) && is_id(name) {
                        watched.add(&path);
                    }
                    // only finished evaluations and trainings count
                    is_news |= match (of_evaluations, of_trainings) {
                        (true, _) => name == TEXTS,
                        (_, true) => name == FINISHED,
                        _ => is_of_interest(name),
                    };
                    if name == "record.json" {
                        // the run has ended: release the watch, since the system limits their number
                        let _ = inotify::remove_watch(&inotify, event.wd());
                    }
                }
                if events.is_buffer_empty() {
                    break;
                }
            }
            if is_news {
                std::thread::sleep(GATHER);
                if !changed() {
                    return false;
                }
            }
        }
    }

    /// Polls timestamps every few seconds, with the same result as [`Store::listen`].
    fn look_again_and_again(&self, changed: &mut dyn FnMut() -> bool) -> bool {
        let look = || {
            let mut places = ["batches", ANNOTATIONS, EVALUATIONS, TRAININGS]
                .map(|name| self.dir().join(name))
                .to_vec();
            places.extend([self.dir().to_owned(), self.texts_path(), self.finished_path()]);
            places.extend(self.unfinished());
            let seen = |path: PathBuf| Some((path.symlink_metadata().ok().map(|m| stamp_of(&m))?, path));
            places.into_iter().filter_map(seen).collect::<Vec<(Stamp, PathBuf)>>()
        };
        let mut before = look();
        while self.dir().is_dir() {
            std::thread::sleep(LOOK);
            let now = look();
            if now != before && !changed() {
                return false;
            }
            before = now;
        }
        true
    }

    /// Directories of runs without a record and of unfinished batches.
    fn unfinished(&self) -> Vec<PathBuf> {
        let runs = self.run_ids().unwrap_or_default().into_iter().map(|id| self.dir().join(id));
        let mut unfinished: Vec<PathBuf> =
            runs.filter(|run| !run.join("record.json").exists()).collect();
        let batches = self.dir().join("batches");
        let parts = regular::entries(&batches).unwrap_or_default().into_iter();
        unfinished.extend(parts.filter(|entry| entry.is_dir).map(|entry| batches.join(entry.name)));
        unfinished
    }
}

/// Watched directories by watch descriptor.
struct Watched<'a> {
    inotify: &'a OwnedFd,
    places: HashMap<i32, PathBuf>,
}

impl Watched<'_> {
    fn add(&mut self, path: &Path) -> bool {
        // the runs directory itself may be a symbolic link; links inside it are not followed
        let follow = if self.places.is_empty() { WatchFlags::empty() } else { WatchFlags::DONT_FOLLOW };
        let added = inotify::add_watch(self.inotify, path, EVENTS | follow);
        added.is_ok_and(|number| self.places.insert(number, path.to_owned()).is_none_or(|_| true))
    }
}

/// True for names that listing reads. Excludes the record cache, which listing writes itself.
fn is_of_interest(name: &str) -> bool {
    match name {
        "log.txt" | "records.cache" | "lock" => false,
        ANNOTATIONS | "record.json" | "batches" => true,
        name => is_id(name) && !name.starts_with("trace"),
    }
}

fn is_of_a_network(dir: &Path) -> bool {
    rustix::fs::statfs(dir).is_ok_and(|found| OF_A_NETWORK.contains(&(found.f_type as u32)))
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::{RecvTimeoutError, channel};

    use super::super::sample_spec;
    use super::*;
    use table::{Record, Status};

    #[test]
    fn what_others_store_is_told_and_reading_is_not() {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::open(dir.path().join("runs"));
        std::fs::create_dir(store.dir()).unwrap();
        let (sender, told) = channel();
        let watched = store.clone();
        std::thread::spawn(move || watched.watch(|| sender.send(()).is_ok()));
        let soon = Duration::from_secs(20);
        let other = Store::open(store.dir());
        // until the watch is there nothing is told: the first change is made again and again
        let mut run = other.begin(&sample_spec("ladder"), None, 0).unwrap();
        while told.recv_timeout(Duration::from_millis(700)) == Err(RecvTimeoutError::Timeout) {
            run = other.begin(&sample_spec("ladder"), None, 0).unwrap();
        }
        while told.recv_timeout(Duration::from_millis(900)).is_ok() {}
        let mut record = Record::new(sample_spec("ladder"), Status::Ok, None);
        record.run = run.id.clone();
        other.finish(&record).unwrap();
        told.recv_timeout(soon).expect("a record was stored");
        other.annotate(&[run.id], &super::super::Edit::note("good")).unwrap();
        told.recv_timeout(soon).expect("a note was written");
        while told.recv_timeout(Duration::from_millis(900)).is_ok() {}
        assert_eq!(other.list().unwrap().records.iter().filter(|r| r.status == Status::Ok).count(), 1);
        assert!(told.recv_timeout(Duration::from_millis(900)).is_err(), "a listing tells of itself");
        other.write_batch(&mut [record]).unwrap();
        told.recv_timeout(soon).expect("a batch was stored");
    }
}
