//! Detects a launcher (torchrun, srun, mpirun) that started this process as one of several ranks, and parses its
//! environment variables. Pure except for [`of_process`].

use std::sync::OnceLock;
use std::time::Duration;

use sha2::{Digest, Sha256};

use crate::comm::Meeting;
use base::error::{Error, Result};
use base::words::words;
use table::Spec;

/// Selects the launcher whose variables count, or `none`.
const LAUNCHER: &str = "LADDERSCOPE_LAUNCHER";
/// Overrides rank 0's port, which is otherwise derived.
const PORT: &str = "LADDERSCOPE_PORT";
const PORTS_PER_RUN: u16 = 8;
const DERIVED_PORTS: std::ops::Range<u16> = 23_000..31_000;
/// Special Slurm step numbers, such as the batch script, start here.
const NO_STEP: u64 = 0xffff_fff0;

words! {
    Launcher, "launcher" {
        /// Sets `RANK`, `WORLD_SIZE` and `MASTER_ADDR`.
        Torchrun = "torchrun",
        /// Sets `SLURM_PROCID` and related variables.
        Srun = "srun",
        /// Open MPI, or another launcher with PMI.
        Mpirun = "mpirun",
    }
}

/// This process as one of several that a launcher started.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Launched {
    pub launcher: Launcher,
    pub local_rank: usize,
    pub local_ranks: Option<usize>,
    /// Meeting of all processes, at least 2. Its job id is the same on all ranks of this launch and differs between
    /// launches.
    pub meeting: Meeting,
}

impl Launched {
    /// Warning about late ranks, with a way out if they were never started.
    pub fn late(&self, missing: &[usize], after: Duration) -> String {
        let names: Vec<String> = missing.iter().map(usize::to_string).collect();
        let Meeting { rank, ranks, address, .. } = &self.meeting;
        format!(
            "rank {rank} of {ranks} ({}) has waited {:.0} s for rank{} {} at {address}; if nobody started {} (`srun \
             --pty` starts one shell), set {LAUNCHER}=none to run all ranks in this process",
            self.launcher.as_str(),
            after.as_secs_f64(),
            if missing.len() == 1 { "" } else { "s" },
            names.join(", "),
            if missing.len() == 1 { "it" } else { "them" },
        )
    }

    /// Index of this process's GPU among the `count` visible ones: the only one, or the one of its local rank.
    /// Returns an input error if that GPU does not exist.
    pub fn device(&self, count: usize) -> Result<usize> {
        let local_rank = self.local_rank;
        match count {
            // the launcher shows each process only its own GPU
            1 => Ok(0),
            _ if local_rank < count => Ok(local_rank),
            _ => Err(Error::input_help(
                format!(
                    "local rank {local_rank}{} has no GPU: this process sees {count}",
                    self.local_ranks.map(|n| format!(" of {n}")).unwrap_or_default()
                ),
                "start at most as many processes a host as it has GPUs; CUDA_VISIBLE_DEVICES may hide some",
            )),
        }
    }
}

/// Parses this process's launcher variables; `None` without a launcher or if it started one process. Returns an input
/// error that names missing or contradictory variables.
pub fn of_process() -> Result<Option<&'static Launched>> {
    static READ: OnceLock<Option<Launched>> = OnceLock::new();
    if let Some(launched) = READ.get() {
        return Ok(launched.as_ref());
    }
    let launched = read(&|name| std::env::var(name).ok())?;
    Ok(READ.get_or_init(|| launched).as_ref())
}

type Variables<'a> = &'a dyn Fn(&str) -> Option<String>;

fn read(variable: Variables<'_>) -> Result<Option<Launched>> {
    let set = |name: &str| variable(name).filter(|value| !value.trim().is_empty());
    let wanted = set(LAUNCHER);
    let launcher = match wanted.as_deref() {
        Some("none") => return Ok(None),
        Some(name) => Launcher::ALL
            .into_iter()
            .find(|l| l.as_str() == name)
            .map(Some)
            .ok_or_else(|| Error::unknown(LAUNCHER, name, ["none", "torchrun", "srun", "mpirun"]))?,
        None => guess(&set)?,
    };
    let Some(launcher) = launcher else { return Ok(None) };
    let names = Names::new(launcher, &set);
    let (rank, ranks) = (names.number(&set, names.rank)?, names.number(&set, names.ranks)?);
    if ranks == 0 || rank >= ranks {
        return Err(names.wrong(format!(
            "{}={rank} and {}={ranks} contradict each other: ranks count from 0",
            names.rank, names.ranks
        )));
    }
    if ranks == 1 {
        return Ok(None);
    }
    let local_rank = names.number(&set, names.local_rank)?;
    let local_ranks = match set(names.local_ranks) {
        Some(_) => Some(names.number(&set, names.local_ranks)?),
        None => None,
    };
    if let Some(local_ranks) = local_ranks
        && (local_rank >= local_ranks || local_ranks > ranks)
    {
        return Err(names.wrong(format!(
            "{}={local_rank}, {}={local_ranks} and {}={ranks} contradict each other",
            names.local_rank, names.local_ranks, names.ranks
        )));
    }
    let address = address(launcher, &names, &set, local_ranks == Some(ranks))?;
    let job = job(launcher, &address, &set);
    let meeting = Meeting { ports: ports(&set, job)?, address, job, rank, ranks };
    Ok(Some(Launched { launcher, local_rank, local_ranks, meeting }))
}

/// Detects the launcher. torchrun and mpirun may run within a Slurm job, so they are checked first.
fn guess(set: Variables<'_>) -> Result<Option<Launcher>> {
    match (set("RANK"), set("WORLD_SIZE")) {
        (Some(_), Some(_)) => return Ok(Some(Launcher::Torchrun)),
        (None, None) => {}
        (Some(_), None) => return Err(half("RANK", "WORLD_SIZE")),
        (None, Some(_)) => return Err(half("WORLD_SIZE", "RANK")),
    }
    if set("OMPI_COMM_WORLD_RANK").is_some() {
        return Ok(Some(Launcher::Mpirun));
    }
    // a batch script has a SLURM_PROCID too, but runs once
    let step = set("SLURM_STEP_ID").or_else(|| set("SLURM_STEPID"));
    let is_step = step.and_then(|step| step.trim().parse::<u64>().ok()).is_some_and(|n| n < NO_STEP);
    if is_step && set("SLURM_PROCID").is_some() {
        return Ok(Some(Launcher::Srun));
    }
    Ok(set("PMI_RANK").map(|_| Launcher::Mpirun))
}

fn half(there: &str, missing: &str) -> Error {
    Error::input_help(
        format!("{there} is set and {missing} is not: a launcher like torchrun sets both"),
        format!("unset {there}, or set {LAUNCHER}=none, to run all ranks in one process"),
    )
}

struct Names {
    launcher: Launcher,
    rank: &'static str,
    ranks: &'static str,
    local_rank: &'static str,
    local_ranks: &'static str,
}

impl Names {
    fn new(launcher: Launcher, set: Variables<'_>) -> Self {
        let (rank, ranks, local_rank, local_ranks) = match launcher {
            Launcher::Torchrun => ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE"),
            Launcher::Srun if set("SLURM_STEP_NUM_TASKS").is_some() => {
                ("SLURM_PROCID", "SLURM_STEP_NUM_TASKS", "SLURM_LOCALID", "")
            }
            Launcher::Srun => ("SLURM_PROCID", "SLURM_NTASKS", "SLURM_LOCALID", ""),
            Launcher::Mpirun if set("OMPI_COMM_WORLD_RANK").is_some() => (
                "OMPI_COMM_WORLD_RANK",
                "OMPI_COMM_WORLD_SIZE",
                "OMPI_COMM_WORLD_LOCAL_RANK",
                "OMPI_COMM_WORLD_LOCAL_SIZE",
            ),
            Launcher::Mpirun => ("PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS"),
        };
        Self { launcher, rank, ranks, local_rank, local_ranks }
    }

    fn number(&self, set: Variables<'_>, name: &str) -> Result<usize> {
        let Some(text) = set(name) else {
            return Err(self.wrong(format!("{name} is not set")));
        };
        text.trim()
            .parse()
            .map_err(|_| self.wrong(format!("{name}='{text}' is not a whole number of at least 0")))
    }

    fn wrong(&self, what: String) -> Error {
        Error::input_help(
            format!("the environment variables of {} define no rank: {what}", self.launcher.as_str()),
            format!(
                "{} sets {}, {} and {}; {LAUNCHER}=none runs all ranks in one process",
                self.launcher.as_str(),
                self.rank,
                self.ranks,
                self.local_rank
            ),
        )
    }
}

fn address(launcher: Launcher, names: &Names, set: Variables<'_>, all_here: bool) -> Result<String> {
    if let Some(address) = set("MASTER_ADDR") {
        return Ok(address.trim().to_owned());
    }
    let slurm_nodes = set("SLURM_STEP_NUM_NODES").or_else(|| set("SLURM_NNODES"));
    let one_node = launcher == Launcher::Srun && slurm_nodes.is_some_and(|n| n.trim() == "1");
    if all_here || one_node {
        return Ok("127.0.0.1".into());
    }
    if launcher == Launcher::Srun {
        let lists = ["SLURM_STEP_NODELIST", "SLURM_NODELIST", "SLURM_JOB_NODELIST"];
        if let Some(first) = lists.iter().find_map(|name| set(name)).and_then(|l| first_host(&l)) {
            return Ok(first);
        }
    }
    Err(Error::input_help(
        format!("MASTER_ADDR is not set: where rank 0 of {} runs is not known", names.launcher.as_str()),
        match launcher {
            Launcher::Mpirun => "pass rank 0's host to all ranks: mpirun -x MASTER_ADDR=HOST ...",
            _ => "set MASTER_ADDR to rank 0's host",
        },
    ))
}

/// First host of a Slurm host list: `gpu[003-006,9],x` starts with `gpu003`.
fn first_host(list: &str) -> Option<String> {
    let mut name = String::new();
    let mut rest = list.trim();
    loop {
        let end = rest.find(['[', ',']).unwrap_or(rest.len());
        name += &rest[..end];
        rest = &rest[end..];
        let Some(numbers) = rest.strip_prefix('[') else { break };
        let (numbers, after) = numbers.split_once(']')?;
        name += numbers.split([',', '-']).next()?;
        rest = after;
    }
    (!name.is_empty()).then_some(name)
}

fn job(launcher: Launcher, address: &str, set: Variables<'_>) -> u64 {
    // only the launcher's own variables are equal on all ranks: torchrun and Open MPI may run as several Slurm steps
    let own: &[&str] = match launcher {
        Launcher::Torchrun => &["TORCHELASTIC_RUN_ID", "TORCHELASTIC_RESTART_COUNT"],
        Launcher::Srun => &["SLURM_JOB_ID", "SLURM_STEP_ID"],
        Launcher::Mpirun => &["PMIX_NAMESPACE", "OMPI_MCA_ess_base_jobid", "PMI_JOBID"],
    };
    let mut hash = Sha256::new();
    hash.update(launcher.as_str());
    hash.update(address);
    for name in ["MASTER_PORT", PORT].iter().chain(own) {
        hash.update([0]);
        hash.update(set(name).unwrap_or_default());
    }
    let bytes = hash.finalize();
    bytes.iter().take(8).fold(0, |sum, byte| sum << 8 | u64::from(*byte))
}

fn ports(set: Variables<'_>, job: u64) -> Result<Vec<u16>> {
    let number = |name: &str| -> Result<Option<u16>> {
        let Some(text) = set(name) else { return Ok(None) };
        text.trim()
            .parse()
            .ok()
            .filter(|port| *port > 0)
            .map(Some)
            .ok_or_else(|| Error::input(format!("{name}='{text}' is not a port (1 to 65535)")))
    };
    if let Some(port) = number(PORT)? {
        return Ok((port..=port.saturating_add(PORTS_PER_RUN - 1)).collect());
    }
    // the port itself is used by torchrun
    if let Some(port) = number("MASTER_PORT")? {
        return Ok(match port.checked_add(PORTS_PER_RUN) {
            Some(last) => (port + 1..=last).collect(),
            None => (port - PORTS_PER_RUN..port).collect(),
        });
    }
    let blocks = u64::from((DERIVED_PORTS.end - DERIVED_PORTS.start) / PORTS_PER_RUN);
    let first = DERIVED_PORTS.start + (job % blocks) as u16 * PORTS_PER_RUN;
    Ok((first..first + PORTS_PER_RUN).collect())
}

pub fn too_few(ranks: usize, spec: &Spec) -> String {
    format!("tp {} needs {} ranks, and the launcher started {ranks}", spec.tp, spec.tp)
}

#[cfg(test)]
mod tests;
