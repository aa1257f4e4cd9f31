//! Which process started a run, and whether it is still there. A process id alone would not do: ids
//! come round again, so the start time and the boot are compared too.

use rustix::process::Pid;
use serde::{Deserialize, Serialize};

use crate::slurm;
use base::owner::{boot, stat};

/// A process, so that it can be recognised later.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Process {
    /// The number by which the operating system knows it, which is given again after its end.
    pub pid: i32,
    /// When it started, in clock ticks since boot (field 22 of `/proc/PID/stat`); null without `/proc`.
    #[serde(default)]
    pub start_ticks: Option<u64>,
    /// The kernel's boot id.
    #[serde(default)]
    pub boot: Option<String>,
    /// The name of the host on which it runs; processes of other hosts cannot be looked up.
    #[serde(default)]
    pub host: Option<String>,
    /// The task of Slurm within which it runs (`1234_5`), so that other hosts can ask whether it still does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub slurm: Option<String>,
}

/// Whether a process runs.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum Liveness {
    /// The process still runs: same number, same start, same boot.
    Alive,
    /// The process has ended, or another has its number now.
    Gone,
    /// It is on another host; nobody here can say.
    Elsewhere(String),
}

impl Process {
    /// This process, as the operating system describes it.
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

    /// Whether the process still runs, as far as this host, or Slurm, can tell.
    pub fn liveness(&self) -> Liveness {
        // a container that was started anew keeps boot id and may keep its name; start time tells
        match (&self.host, host()) {
            (Some(there), Some(here)) if *there != here && self.boot != boot() => {
                // Slurm knows of all its nodes
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
            // a zombie has ended, although nobody has asked how
            (Some((state, start)), Some(expected)) => state != 'Z' && state != 'X' && start == expected,
            (Some((state, _)), None) => state != 'Z' && state != 'X',
            (None, Some(_)) => false,
            // no /proc here: ask the kernel whether such a process exists
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
