//! Detects changes of a runs directory by other processes, from the timestamps of a few directories and files. That
//! costs a dozen system calls at a time and works on network file systems, where the kernel reports no changes.

use std::path::{Path, PathBuf};
use std::time::Duration;

use super::directory::Store;
use super::log::{Stamp, stamp};

/// Interval between comparisons.
const SCAN_INTERVAL: Duration = Duration::from_millis(250);

/// Time window in which changes are merged into one notification.
const DEBOUNCE: Duration = Duration::from_millis(300);

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

impl Store {
    /// Calls `changed` soon after runs, batches, tags or notes change, until it returns false. Blocks, so it needs
    /// its own thread.
    pub fn watch(&self, mut changed: impl FnMut() -> bool) {
        let mut seen = WatchedStamps::default();
        seen.update(self);
        loop {
            std::thread::sleep(SCAN_INTERVAL);
            if seen.update(self) {
                std::thread::sleep(DEBOUNCE);
                if !changed() {
                    return;
                }
            }
        }
    }

    /// True if the directory is on a network file system, where changes by other hosts are seen with a delay.
    pub(crate) fn is_of_a_network(&self) -> bool {
        rustix::fs::statfs(self.dir()).is_ok_and(|found| OF_A_NETWORK.contains(&(found.f_type as u32)))
    }

    /// Directories of runs without a record.
    fn unfinished(&self) -> Vec<PathBuf> {
        let runs = self.run_ids().unwrap_or_default().into_iter().map(|id| self.dir().join(id));
        runs.filter(|run| !run.join("record.json").exists()).collect()
    }
}

/// Timestamps as last seen.
#[derive(Default)]
struct WatchedStamps {
    /// The runs directory and its folders: names created or removed.
    folders: Vec<Option<Stamp>>,
    /// Files that several processes append to.
    files: Vec<Option<Stamp>>,
    /// Directories of running runs, in which a record will appear.
    unfinished: Vec<(PathBuf, Option<Stamp>)>,
}

impl WatchedStamps {
    /// Takes the current timestamps. Returns true if they differ.
    fn update(&mut self, store: &Store) -> bool {
        let stamps = |paths: &[&Path]| paths.iter().map(|path| stamp(path)).collect::<Vec<_>>();
        let folders = stamps(&[store.dir(), &store.batches_dir()]);
        let files = stamps(&[&store.annotations_path(), &store.texts_path(), &store.finished_path()]);
        let mut is_changed = (&folders, &files) != (&self.folders, &self.files);
        if is_changed || self.unfinished.iter().any(|(path, seen)| stamp(path) != *seen) {
            let unfinished: Vec<_> =
                store.unfinished().into_iter().map(|path| (path.clone(), stamp(&path))).collect();
            // a log that appears in a run's directory is no change
            is_changed |=
                !unfinished.iter().map(|run| &run.0).eq(self.unfinished.iter().map(|run| &run.0));
            self.unfinished = unfinished;
        }
        (self.folders, self.files) = (folders, files);
        is_changed
    }
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
        other.annotate(&[run.id], &super::super::AnnotationEdit::note("good")).unwrap();
        told.recv_timeout(soon).expect("a note was written");
        while told.recv_timeout(Duration::from_millis(900)).is_ok() {}
        assert_eq!(other.list().unwrap().records.iter().filter(|r| r.status == Status::Ok).count(), 1);
        assert!(told.recv_timeout(Duration::from_millis(900)).is_err(), "a listing tells of itself");
        other.write_batch(&mut [record]).unwrap();
        told.recv_timeout(soon).expect("a batch was stored");
    }
}
