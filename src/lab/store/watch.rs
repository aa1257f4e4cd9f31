//! Telling when another process changes a runs directory. The kernel tells of files on this host's disks
//! (inotify), at no cost while nothing happens; of a network's file system it does not tell, and a few of its
//! times are looked at every some seconds.

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

/// Changes that come together are told once.
const GATHER: Duration = Duration::from_millis(300);

/// How often a directory that is not there yet, or lies on a network, is looked at.
const LOOK: Duration = Duration::from_secs(5);

/// File systems whose changes by other hosts the kernel does not know: NFS, SMB, CIFS, FUSE, Lustre, GPFS, 9P,
/// BeeGFS, Ceph, AFS (`linux/magic.h` and their own headers).
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

/// What is of interest in a watched directory: names that appear, go or are written to.
const EVENTS: WatchFlags = WatchFlags::CREATE
    .union(WatchFlags::MOVED_TO)
    .union(WatchFlags::MOVED_FROM)
    .union(WatchFlags::DELETE)
    .union(WatchFlags::MODIFY)
    .union(WatchFlags::ONLYDIR);

impl Store {
    /// Calls `changed` soon after runs, batches, tags or notes have changed, whoever changed them; ends when it
    /// returns false. Blocks: a thread's whole work.
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

    /// Whether other hosts may change the directory, so that what they did is seen here only after a while.
    pub fn is_of_a_network(&self) -> bool {
        is_of_a_network(self.dir())
    }

    /// Listens to the kernel until the directory is gone (true) or nobody wants to know any more (false).
    fn listen(&self, changed: &mut dyn FnMut() -> bool) -> bool {
        let Ok(inotify) = inotify::init(CreateFlags::CLOEXEC) else {
            return self.look_again_and_again(changed);
        };
        let mut watched = Watched { inotify: &inotify, places: HashMap::new() };
        if !watched.add(self.dir()) {
            // more watches than the system allows, or the directory went this very moment
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
                    // of evaluations only those count that came to their end
                    is_news |= match (of_evaluations, of_trainings) {
                        (true, _) => name == TEXTS,
                        (_, true) => name == FINISHED,
                        _ => is_of_interest(name),
                    };
                    if name == "record.json" {
                        // it has ended: nothing more comes, and the system counts watches
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

    /// Compares times every few seconds, as [`Store::listen`] ends.
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

    /// Directories of runs that have no record yet, and of batches that are still written.
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

/// Directories of which the kernel tells, by its numbers for them.
struct Watched<'a> {
    inotify: &'a OwnedFd,
    places: HashMap<i32, PathBuf>,
}

impl Watched<'_> {
    fn add(&mut self, path: &Path) -> bool {
        // the runs directory itself may be a link, nothing in it is followed
        let follow = if self.places.is_empty() { WatchFlags::empty() } else { WatchFlags::DONT_FOLLOW };
        let added = inotify::add_watch(self.inotify, path, EVENTS | follow);
        added.is_ok_and(|number| self.places.insert(number, path.to_owned()).is_none_or(|_| true))
    }
}

/// Whether a name is one that listing runs reads; the cache of records that listing itself writes is none.
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
