//! Identity and liveness of the process that started a run. Process ids are reused, so the start time and the boot id
//! are compared too.

use rustix::process::Pid;
use serde::{Deserialize, Serialize};

use crate::slurm;
use base::owner::{boot, stat};

/// Identity of a process, for later recognition.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Process {
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

impl Process {
    pub fn current() -> Self {
        let pid = std::process::id() as i32;
        Self {
            pid,
            start_ticks: stat(pid).map(|(_, start)| start),
            boot: boot(),
            host: host(),
            slurm: slurm::current(),
        }
    }

    /// Queries this host, or Slurm, for the state of the process.
    pub fn liveness(&self) -> Liveness {
        // a restarted container keeps the boot id and maybe its name, but start times differ
        match (&self.host, host()) {
            (Some(there), Some(here)) if *there != here && self.boot != boot() => {
                // Slurm knows the processes of all its nodes
                return match self.slurm.as_deref().and_then(slurm::is_under_way) {
                    Some(true) => Liveness::Alive,
                    Some(false) => Liveness::Gone,
                    None => Liveness::Elsewhere(there.clone()),
                };
            }
            _ => {}
        }
        if self.boot.is_some() && self.boot != boot() {
            return Liveness::Gone;
        }
        let alive = match (stat(self.pid), self.start_ticks) {
            // a zombie has ended but has not been reaped
            (Some((state, start)), Some(expected)) => state != 'Z' && state != 'X' && start == expected,
            (Some((state, _)), None) => state != 'Z' && state != 'X',
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
    fn this_process_is_alive_and_its_successors_are_not_it() {
        let me = Process::current();
        assert_eq!(me.liveness(), Liveness::Alive);
        let later = Process { start_ticks: me.start_ticks.map(|t| t + 1), ..me.clone() };
        assert_eq!(later.liveness(), Liveness::Gone);
        let other_boot = Process { boot: Some("another".into()), ..me.clone() };
        assert_eq!(other_boot.liveness(), Liveness::Gone);
        let elsewhere =
            Process { boot: Some("another".into()), host: Some("elsewhere".into()), ..me.clone() };
        assert_eq!(elsewhere.liveness(), Liveness::Elsewhere("elsewhere".into()));
    }

    #[test]
    fn a_child_that_ended_is_gone_even_before_it_is_reaped() {
        let mut child = std::process::Command::new("true").spawn().unwrap();
        let pid = child.id() as i32;
        let process = Process { pid, start_ticks: stat(pid).map(|s| s.1), ..Process::current() };
        // wait until it has ended without reaping it
        let options = rustix::process::WaitIdOptions::EXITED | rustix::process::WaitIdOptions::NOWAIT;
        let id = rustix::process::WaitId::Pid(Pid::from_raw(pid).unwrap());
        rustix::process::waitid(id, options).unwrap();
        assert_eq!(process.liveness(), Liveness::Gone);
        child.wait().unwrap();
        assert_eq!(process.liveness(), Liveness::Gone);
    }
}
