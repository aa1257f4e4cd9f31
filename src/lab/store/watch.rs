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

/// Magic numbers of network file systems (`linux/magic.h` and their own headers).
const NETWORK_MAGIC: [u32; 10] = [
    0x6969,      // NFS
    0xfe53_4d42, // SMB
    0xff53_4d42, // CIFS
    0x6573_5546, // FUSE
    0x0bd0_0bd0, // Lustre
    0x4750_4653, // GPFS
    0x0102_1997, // 9P
    0x1983_0326, // BeeGFS
    0x00c3_6400, // Ceph
    0x5346_414f, // AFS
];

impl Store {
    /// Calls `changed` soon after runs, batches, tags or notes change, until it returns false. Blocks, so it needs
    /// its own thread.
    pub fn watch(&self, mut changed: impl FnMut() -> bool) {
        let mut stamps = WatchedStamps::default();
        stamps.update(self);
        loop {
            std::thread::sleep(SCAN_INTERVAL);
            if stamps.update(self) {
                std::thread::sleep(DEBOUNCE);
                if !changed() {
                    return;
                }
            }
        }
    }

    /// True if the directory is on a network file system, where changes by other hosts are seen with a delay.
    pub(crate) fn is_on_network(&self) -> bool {
        rustix::fs::statfs(self.dir()).is_ok_and(|found| NETWORK_MAGIC.contains(&(found.f_type as u32)))
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
    fn changes_by_others_are_reported_and_reading_is_not() {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::open(dir.path().join("runs"));
        std::fs::create_dir(store.dir()).unwrap();
        let (sender, changes) = channel();
        let watched = store.clone();
        std::thread::spawn(move || watched.watch(|| sender.send(()).is_ok()));
        let (soon, quiet) = (Duration::from_secs(20), Duration::from_millis(900));
        let other = Store::open(store.dir());
        // changes before the watch starts are not reported: repeat the first one
        let mut run = other.begin(&sample_spec("ladder"), None, 0).unwrap();
        while changes.recv_timeout(quiet) == Err(RecvTimeoutError::Timeout) {
            run = other.begin(&sample_spec("ladder"), None, 0).unwrap();
        }
        while changes.recv_timeout(quiet).is_ok() {}
        let mut record = Record::new(sample_spec("ladder"), Status::Ok, None);
        record.run = run.id.clone();
        other.finish(&record).unwrap();
        changes.recv_timeout(soon).expect("a record was stored");
        other.annotate(&[run.id], &super::super::AnnotationEdit::note("good")).unwrap();
        changes.recv_timeout(soon).expect("a note was written");
        while changes.recv_timeout(quiet).is_ok() {}
        assert_eq!(other.list().unwrap().records.iter().filter(|r| r.status == Status::Ok).count(), 1);
        assert!(changes.recv_timeout(quiet).is_err(), "a listing reports itself");
        other.write_batch(&mut [record]).unwrap();
        changes.recv_timeout(soon).expect("a batch was stored");
    }
}
