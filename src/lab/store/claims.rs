//! Claims of cells, so that two sweeps of one experiment in one directory share its cells instead of running each
//! twice. A claim is a locked file, `runs/.ladderscope/claims/CELL-ROUND`, that names its process. The system unlocks
//! it when that process dies, for whatever reason.

use std::fs::File;
use std::io::{Read, Seek, SeekFrom, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use rustix::process::Pid;
use serde::{Deserialize, Serialize};

use super::directory::Store;
use super::log;
use crate::slurm;
use base::atomic::{boot, stat};
use base::error::{Error, Result};
use base::{atomic, regular};

/// Exclusive right to run something, released on drop.
#[derive(Debug)]
pub struct StoreClaim {
    path: PathBuf,
    _lock: File,
}

#[derive(Debug)]
pub enum Claimed {
    /// Held by this process until the claim is dropped.
    Ours(StoreClaim),
    /// Held by another process, described in words.
    By(String),
}

impl Drop for StoreClaim {
    fn drop(&mut self) {
        // still locked here, so no other process can hold the file being removed
        let _ = regular::remove_file(&self.path);
    }
}

impl Store {
    /// Claims something to run. Cells are named by key and round. Fails if the directory cannot be written.
    pub fn claim(&self, what: &str) -> Result<Claimed> {
        let dir = self.claims();
        regular::make_folder(&dir).map_err(Error::io(&dir))?;
        let path = dir.join(what);
        loop {
            match log::try_lock(&path)? {
                // its holder removed it after it was opened here
                Some(file) if !is_at(&file, &path) => {}
                Some(mut file) => {
                    let signature = serde_json::to_vec(&ProcessIdentity::current()).unwrap_or_default();
                    let written = file.set_len(0).and_then(|()| file.write_all(&signature));
                    written.map_err(Error::io(&path))?;
                    return Ok(Claimed::Ours(StoreClaim { path, _lock: file }));
                }
                None => {
                    let holder = regular::open(&path).ok().and_then(|mut file| claimant(&mut file));
                    return Ok(Claimed::By(match holder {
                        Some(ProcessIdentity { pid, host: Some(host), .. }) => {
                            format!("process {pid} on {host}")
                        }
                        Some(ProcessIdentity { pid, .. }) => format!("process {pid}"),
                        None => "another process".into(),
                    }));
                }
            }
        }
    }

    /// Removes claims whose process is gone, and claims whose process died before it signed them.
    pub(super) fn remove_abandoned_claims(&self) {
        for entry in regular::entries(&self.claims()).unwrap_or_default() {
            let path = self.claims().join(entry.name);
            let Ok(mut file) = regular::open(&path) else { continue };
            if file.try_lock().is_ok() && is_at(&file, &path) && is_abandoned(&mut file) {
                let _ = regular::remove_file(&path);
            }
        }
    }

    fn claims(&self) -> PathBuf {
        self.dir().join(atomic::FOLDER).join("claims")
    }
}

/// True for a claim that nobody holds, once this process has its lock. A process of another host may hold one where
/// locks do not reach across hosts.
fn is_abandoned(file: &mut File) -> bool {
    match claimant(file) {
        Some(process) => process.liveness() == Liveness::Gone,
        // anything else in a claim's place is somebody else's file
        None => file.metadata().is_ok_and(|metadata| metadata.len() == 0),
    }
}

/// True if a locked file still has its name. The previous holder may have removed it.
fn is_at(file: &File, path: &Path) -> bool {
    match (file.metadata(), path.symlink_metadata()) {
        (Ok(locked), Ok(named)) => (locked.dev(), locked.ino()) == (named.dev(), named.ino()),
        _ => false,
    }
}

fn claimant(file: &mut File) -> Option<ProcessIdentity> {
    let mut text = String::new();
    file.seek(SeekFrom::Start(0)).ok()?;
    file.take(4096).read_to_string(&mut text).ok()?;
    serde_json::from_str(&text).ok()
}

/// Identity of a process, for later recognition.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct ProcessIdentity {
    /// Process id. Reused by the system after the process ends.
    pub pid: i32,
    /// Start time in clock ticks since boot (field 22 of `/proc/PID/stat`); null without `/proc`.
    #[serde(default)]
    pub start_ticks: Option<u64>,
    #[serde(default)]
    pub boot: Option<String>,
    /// Host name. Processes of other hosts cannot be looked up.
    #[serde(default)]
    pub host: Option<String>,
    /// Slurm task (`1234_5`) of the process, through which other hosts can query its state.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub slurm: Option<String>,
}

/// State of a process.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum Liveness {
    /// Running: same id, start time and boot.
    Alive,
    /// Ended; its id may have been reused.
    Gone,
    /// Process of another host, whose state is unknown here.
    Elsewhere(String),
}

impl ProcessIdentity {
    pub fn current() -> Self {
        let pid = std::process::id() as i32;
        Self {
            pid,
            start_ticks: stat(pid).map(|(_, start)| start),
            boot: boot(),
            host: host(),
            slurm: slurm::current_task(),
        }
    }

    /// Queries this host, or Slurm, for the state of the process.
    pub fn liveness(&self) -> Liveness {
        // a restarted container keeps the boot id and maybe its name, but start times differ
        if let (Some(there), Some(here)) = (&self.host, host())
            && *there != here
            && self.boot != boot()
        {
            // Slurm knows the processes of all its nodes
            return match self.slurm.as_deref().and_then(slurm::is_under_way) {
                Some(true) => Liveness::Alive,
                Some(false) => Liveness::Gone,
                None => Liveness::Elsewhere(there.clone()),
            };
        }
        if self.boot.is_some() && self.boot != boot() {
            return Liveness::Gone;
        }
        let alive = match (stat(self.pid), self.start_ticks) {
            // a zombie has ended but has not been reaped
            (Some(('Z' | 'X', _)), _) => false,
            (Some((_, start)), expected) => expected.is_none_or(|expected| start == expected),
            (None, Some(_)) => false,
            // without /proc, ask the kernel whether the process exists
            (None, None) => Pid::from_raw(self.pid).is_some_and(|pid| {
                rustix::process::test_kill_process(pid) != Err(rustix::io::Errno::SRCH)
            }),
        };
        if alive { Liveness::Alive } else { Liveness::Gone }
    }
}

fn host() -> Option<String> {
    rustix::system::uname().nodename().to_str().ok().map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_has_it_others_are_told_who_and_nothing_is_left() {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::open(dir.path());
        let Claimed::Ours(claim) = store.claim("cell-0").unwrap() else { panic!("it is free") };
        let Claimed::By(who) = store.claim("cell-0").unwrap() else { panic!("it is taken") };
        assert!(who.starts_with(&format!("process {}", std::process::id())), "{who}");
        assert!(matches!(store.claim("cell-1").unwrap(), Claimed::Ours(_)));
        drop(claim);
        assert!(matches!(store.claim("cell-0").unwrap(), Claimed::Ours(_)));
        assert_eq!(std::fs::read_dir(store.claims()).unwrap().count(), 0);
    }

    #[test]
    fn many_at_once_never_have_it_together() {
        let dir = tempfile::tempdir().unwrap();
        let inside = std::sync::atomic::AtomicUsize::new(0);
        std::thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| {
                    let store = Store::open(dir.path());
                    let mut had = 0;
                    while had < 50 {
                        if let Claimed::Ours(_claim) = store.claim("cell").unwrap() {
                            use std::sync::atomic::Ordering::SeqCst;
                            assert_eq!(inside.fetch_add(1, SeqCst), 0);
                            std::thread::yield_now();
                            inside.fetch_sub(1, SeqCst);
                            had += 1;
                        }
                    }
                });
            }
        });
    }

    #[test]
    fn this_process_is_alive_and_its_successors_are_not_it() {
        let me = ProcessIdentity::current();
        assert_eq!(me.liveness(), Liveness::Alive);
        let later = ProcessIdentity { start_ticks: me.start_ticks.map(|t| t + 1), ..me.clone() };
        assert_eq!(later.liveness(), Liveness::Gone);
        let other_boot = ProcessIdentity { boot: Some("another".into()), ..me.clone() };
        assert_eq!(other_boot.liveness(), Liveness::Gone);
        let elsewhere = ProcessIdentity {
            boot: Some("another".into()),
            host: Some("elsewhere".into()),
            ..me.clone()
        };
        assert_eq!(elsewhere.liveness(), Liveness::Elsewhere("elsewhere".into()));
    }

    #[test]
    fn a_child_that_ended_is_gone_even_before_it_is_reaped() {
        let mut child = std::process::Command::new("true").spawn().unwrap();
        let pid = child.id() as i32;
        let process =
            ProcessIdentity { pid, start_ticks: stat(pid).map(|s| s.1), ..ProcessIdentity::current() };
        // wait until it has ended without reaping it
        let options = rustix::process::WaitIdOptions::EXITED | rustix::process::WaitIdOptions::NOWAIT;
        let id = rustix::process::WaitId::Pid(Pid::from_raw(pid).unwrap());
        rustix::process::waitid(id, options).unwrap();
        assert_eq!(process.liveness(), Liveness::Gone);
        child.wait().unwrap();
        assert_eq!(process.liveness(), Liveness::Gone);
    }
}
