//! What variables of launchers say, and what contradicts itself.

use super::*;

fn with(variables: &[(&str, &str)]) -> Result<Option<Launched>> {
    read(&|name| {
        variables.iter().find(|(there, _)| *there == name).map(|(_, value)| (*value).to_owned())
    })
}

const TORCHRUN: [(&str, &str); 6] = [
    ("RANK", "9"),
    ("WORLD_SIZE", "16"),
    ("LOCAL_RANK", "1"),
    ("LOCAL_WORLD_SIZE", "8"),
    ("MASTER_ADDR", "node1"),
    ("MASTER_PORT", "29500"),
];
const SRUN: [(&str, &str); 7] = [
    ("SLURM_PROCID", "3"),
    ("SLURM_NTASKS", "4"),
    ("SLURM_LOCALID", "1"),
    ("SLURM_NODEID", "1"),
    ("SLURM_JOB_ID", "77"),
    ("SLURM_STEP_ID", "0"),
    ("SLURM_STEP_NODELIST", "gpu[007-008]"),
];
const MPIRUN: [(&str, &str); 5] = [
    ("OMPI_COMM_WORLD_RANK", "1"),
    ("OMPI_COMM_WORLD_SIZE", "2"),
    ("OMPI_COMM_WORLD_LOCAL_RANK", "1"),
    ("OMPI_COMM_WORLD_LOCAL_SIZE", "2"),
    ("PMIX_NAMESPACE", "prterun-node1-812@1"),
];

fn without<'a>(all: &[(&'a str, &'a str)], name: &str) -> Vec<(&'a str, &'a str)> {
    all.iter().copied().filter(|(there, _)| *there != name).collect()
}

fn changed<'a>(all: &[(&'a str, &'a str)], name: &'a str, to: &'a str) -> Vec<(&'a str, &'a str)> {
    let mut all = without(all, name);
    all.push((name, to));
    all
}

fn place(variables: &[(&str, &str)]) -> (Launcher, usize, usize, usize, String) {
    let found = with(variables).unwrap().unwrap();
    let Meeting { rank, ranks, address, .. } = found.meeting;
    (found.launcher, rank, ranks, found.local_rank, address)
}

fn message(result: Result<Option<Launched>>) -> String {
    match result {
        Err(error @ Error::Input { .. }) => error.to_string(),
        other => panic!("{other:?}"),
    }
}

#[test]
fn each_launcher_is_understood() {
    assert_eq!(place(&TORCHRUN), (Launcher::Torchrun, 9, 16, 1, "node1".into()));
    assert_eq!(place(&SRUN), (Launcher::Srun, 3, 4, 1, "gpu007".into()));
    assert_eq!(place(&MPIRUN), (Launcher::Mpirun, 1, 2, 1, "127.0.0.1".into()));
    let pmi = [("PMI_RANK", "1"), ("PMI_SIZE", "2"), ("MPI_LOCALRANKID", "0")];
    let mut pmi = pmi.to_vec();
    pmi.push(("MASTER_ADDR", "10.0.0.1"));
    assert_eq!(place(&pmi), (Launcher::Mpirun, 1, 2, 0, "10.0.0.1".into()));
    // a step of fewer tasks than the job has
    let mut step = SRUN.to_vec();
    step.extend([("SLURM_STEP_NUM_TASKS", "8"), ("SLURM_STEP_NUM_NODES", "1")]);
    assert_eq!(place(&step), (Launcher::Srun, 3, 8, 1, "127.0.0.1".into()));
}

#[test]
fn within_a_job_of_slurm_the_innermost_launcher_counts() {
    let mut both = SRUN.to_vec();
    both.extend(TORCHRUN);
    assert_eq!(place(&both).0, Launcher::Torchrun);
    let mut both = SRUN.to_vec();
    both.extend(MPIRUN);
    assert_eq!(place(&both).0, Launcher::Mpirun);
    both.push((LAUNCHER, "srun"));
    assert_eq!(place(&both).0, Launcher::Srun);
    assert_eq!(with(&changed(&both, LAUNCHER, "none")).unwrap(), None);
    assert!(message(with(&changed(&both, LAUNCHER, "srum"))).contains("'srum'"));
}

#[test]
fn one_process_is_no_launch() {
    assert_eq!(with(&[]).unwrap(), None);
    let alone = changed(&changed(&TORCHRUN, "RANK", "0"), "WORLD_SIZE", "1");
    assert_eq!(with(&alone).unwrap(), None);
    // a batch script knows its job's tasks, and is no task
    assert_eq!(with(&without(&SRUN, "SLURM_STEP_ID")).unwrap(), None);
    assert_eq!(with(&changed(&SRUN, "SLURM_STEP_ID", "4294967291")).unwrap(), None);
}

#[test]
fn what_is_missing_or_contradicts_is_named() {
    for (variables, wanted) in [
        (without(&TORCHRUN, "WORLD_SIZE"), "RANK is set and WORLD_SIZE is not"),
        (without(&TORCHRUN, "RANK"), "WORLD_SIZE is set and RANK is not"),
        (without(&TORCHRUN, "LOCAL_RANK"), "LOCAL_RANK is not set"),
        (without(&TORCHRUN, "MASTER_ADDR"), "MASTER_ADDR is not set"),
        (changed(&TORCHRUN, "RANK", "16"), "RANK=16 and WORLD_SIZE=16 contradict"),
        (changed(&TORCHRUN, "RANK", "-1"), "RANK='-1' is not a whole number"),
        (changed(&TORCHRUN, "LOCAL_RANK", "8"), "LOCAL_RANK=8, LOCAL_WORLD_SIZE=8"),
        (changed(&TORCHRUN, "MASTER_PORT", "0"), "MASTER_PORT='0' is not a port"),
        (changed(&TORCHRUN, PORT, "70000"), "LADDERSCOPE_PORT='70000' is not a port"),
        (without(&SRUN, "SLURM_LOCALID"), "SLURM_LOCALID is not set"),
        (without(&SRUN, "SLURM_STEP_NODELIST"), "MASTER_ADDR is not set"),
        (without(&MPIRUN, "OMPI_COMM_WORLD_SIZE"), "OMPI_COMM_WORLD_SIZE is not set"),
        (without(&MPIRUN, "OMPI_COMM_WORLD_LOCAL_SIZE"), "MASTER_ADDR is not set"),
    ] {
        let message = message(with(&variables));
        assert!(message.contains(wanted), "{message}\nwanted {wanted}");
    }
}

#[test]
fn all_ranks_of_a_launch_look_in_the_same_places() {
    for (variables, rank) in [
        (TORCHRUN.to_vec(), "RANK"),
        (SRUN.to_vec(), "SLURM_PROCID"),
        (MPIRUN.to_vec(), "OMPI_COMM_WORLD_RANK"),
    ] {
        let mine = with(&variables).unwrap().unwrap().meeting;
        let first = with(&changed(&variables, rank, "0")).unwrap().unwrap().meeting;
        assert_eq!(Meeting { rank: 0, ..mine.clone() }, first);
        assert!(mine.ports.len() == usize::from(PORTS_PER_RUN));
    }
    let ports = |variables: &[(&str, &str)]| with(variables).unwrap().unwrap().meeting.ports;
    assert_eq!(ports(&TORCHRUN), (29_501..=29_508).collect::<Vec<_>>());
    assert_eq!(ports(&changed(&TORCHRUN, "MASTER_PORT", "65530"))[7], 65_529);
    assert_eq!(ports(&changed(&TORCHRUN, PORT, "4000"))[0], 4000);
    assert!(DERIVED_PORTS.contains(&ports(&SRUN)[0]));
    let other = changed(&SRUN, "SLURM_JOB_ID", "78");
    let job = |variables: &[(&str, &str)]| with(variables).unwrap().unwrap().meeting.job;
    assert_ne!(job(&other), job(&SRUN));
}

/// torchrun and Open MPI may start their processes in several Slurm steps, so only their own variables are equal.
#[test]
fn a_job_is_known_by_its_own_launchers_variables() {
    let job = |variables: &[(&str, &str)]| with(variables).unwrap().unwrap().meeting.job;
    for launched in [&TORCHRUN[..], &MPIRUN[..]] {
        let step = |number| [launched, &[("SLURM_JOB_ID", "77"), ("SLURM_STEP_ID", number)]].concat();
        assert_eq!(job(&step("1")), job(&step("2")));
    }
    let restarted = |count| [&TORCHRUN[..], &[("TORCHELASTIC_RESTART_COUNT", count)]].concat();
    assert_ne!(job(&restarted("0")), job(&restarted("1")));
    assert_ne!(job(&changed(&MPIRUN, "PMIX_NAMESPACE", "prterun-node1-813@1")), job(&MPIRUN));
}

#[test]
fn the_first_host_of_a_list_is_found() {
    for (list, first) in [
        ("node7", "node7"),
        ("node7,node8", "node7"),
        ("gpu[003-006,9],x", "gpu003"),
        ("gpu[9,003-006]-ib", "gpu9-ib"),
        ("rack[1-2]n[04-05]", "rack1n04"),
    ] {
        assert_eq!(first_host(list).as_deref(), Some(first));
    }
    assert_eq!(first_host("gpu[003"), None);
    assert_eq!(first_host(""), None);
}

#[test]
fn a_process_takes_the_gpu_of_its_local_rank_or_the_only_one() {
    let rank = |local| Launched { local_rank: local, ..with(&TORCHRUN).unwrap().unwrap() };
    assert_eq!(rank(3).device(8).unwrap(), 3);
    assert_eq!(rank(3).device(1).unwrap(), 0);
    let error = rank(4).device(4).unwrap_err().to_string();
    assert!(error.contains("local rank 4 of 8 has no GPU: this process sees 4"), "{error}");
}
