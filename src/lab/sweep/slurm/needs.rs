//! Groups cells into Slurm tasks and computes the resources of each. Pure.
//!
//! Cells to be compared run on one node, in one task, round by round, because results of different machines are not
//! comparable. A task therefore has all cells that differ only in architecture, P2P, link, variables or collective.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::slurm::Nodes;
use plan::Architecture;
use run::executor;
use table::{Link, P2p, Spec};

/// GPUs per node if Slurm reports none, the usual size of nodes for tensor parallelism.
const GPUS: u32 = 8;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(super) struct Needs {
    pub nodes: u32,
    /// Processes per node: one with all ranks as threads, or one per rank if there are several nodes.
    pub processes: u32,
    pub gpus: u32,
    pub cpus: u32,
}

impl Needs {
    /// Resources for a cell on nodes of this size.
    pub fn of(spec: &Spec, largest: Nodes) -> Self {
        // a rank uses one thread for compute and one for communication
        let cpus = |ranks: u32| ranks.saturating_mul(2).clamp(1, largest.cpus.max(1));
        let gpus = executor(spec.backend).map_or(0, |executor| executor.gpus(spec));
        if gpus == 0 {
            return Self { nodes: 1, processes: 1, gpus, cpus: cpus(spec.tp) };
        }
        let most = if largest.gpus == 0 { GPUS } else { largest.gpus };
        let nodes = (gpus.div_ceil(most)..=gpus).find(|nodes| gpus.is_multiple_of(*nodes));
        let nodes = nodes.unwrap_or(gpus);
        let gpus = gpus / nodes;
        match nodes {
            1 => Self { nodes, processes: 1, gpus, cpus: cpus(gpus) },
            _ => Self { nodes, processes: gpus, gpus, cpus: (largest.cpus / gpus).clamp(1, 2) },
        }
    }

    /// Options of `sbatch`. GPUs are requested as a generic resource per node, which every version supports.
    pub fn options(&self) -> Vec<String> {
        let mut options = vec![
            format!("--nodes={}", self.nodes),
            format!("--ntasks={}", self.nodes * self.processes),
            format!("--ntasks-per-node={}", self.processes),
            format!("--cpus-per-task={}", self.cpus),
        ];
        options.extend((self.gpus > 0).then(|| format!("--gres=gpu:{}", self.gpus)));
        options
    }

    /// Description, e.g. `2 nodes with 8 GPUs each`.
    pub fn words(&self) -> String {
        let counted = base::text::counted;
        let nodes = counted(self.nodes as usize, "node");
        let each = if self.nodes > 1 { " each" } else { "" };
        match self.gpus {
            0 => format!("{nodes} with {}", counted(self.cpus as usize, "CPU")),
            gpus => format!("{nodes} with {}{each}", counted(gpus as usize, "GPU")),
        }
    }
}

/// Groups cells into job arrays by the needs of their tasks. Cells keep their order.
pub(super) fn arrays<'a>(
    cells: impl Iterator<Item = (usize, &'a Spec)>,
    largest: Nodes,
) -> Vec<(Needs, Vec<Vec<usize>>)> {
    let mut arrays: BTreeMap<Needs, Vec<(String, Vec<usize>)>> = BTreeMap::new();
    for (cell, spec) in cells {
        let tasks = arrays.entry(Needs::of(spec, largest)).or_default();
        let setting = setting(spec);
        match tasks.iter_mut().find(|(of, _)| *of == setting) {
            Some((_, cells)) => cells.push(cell),
            None => tasks.push((setting, vec![cell])),
        }
    }
    let cells_of =
        |tasks: Vec<(String, Vec<usize>)>| tasks.into_iter().map(|(_, cells)| cells).collect();
    arrays.into_iter().map(|(needs, tasks)| (needs, cells_of(tasks))).collect()
}

/// Key shared by cells that are compared with each other.
fn setting(spec: &Spec) -> String {
    let common = Spec {
        architecture: Architecture::Standard,
        p2p: P2p::On,
        link: Link::Native,
        env: BTreeMap::new(),
        collective: Spec::default().collective,
        ..spec.plain()
    };
    common.key()
}

#[cfg(test)]
mod tests {
    use super::*;
    use table::Backend;

    const NODES: Nodes = Nodes { gpus: 8, cpus: 96 };

    fn spec(backend: Backend, tp: u32) -> Spec {
        Spec { backend, tp, ..Spec::default() }
    }

    fn needs(tp: u32, nodes: Nodes) -> Needs {
        Needs::of(&spec(Backend::Cuda, tp), nodes)
    }

    #[test]
    fn a_rank_on_gpus_has_one_of_its_own_on_as_few_nodes_as_hold_them() {
        assert_eq!(needs(8, NODES), Needs { nodes: 1, processes: 1, gpus: 8, cpus: 16 });
        assert_eq!(needs(16, NODES), Needs { nodes: 2, processes: 8, gpus: 8, cpus: 2 });
        // 12 ranks on nodes of 8: as many on each
        assert_eq!(needs(12, NODES), Needs { nodes: 2, processes: 6, gpus: 6, cpus: 2 });
        assert_eq!(needs(7, Nodes { gpus: 4, cpus: 64 }).nodes, 7, "a prime number of ranks");
        assert_eq!(
            needs(16, Nodes { gpus: 0, cpus: 4 }),
            Needs { nodes: 2, processes: 8, gpus: 8, cpus: 1 }
        );
        let shard =
            Spec { link: Link::Emulated { alpha_us: 5.0, gb_s: 300.0 }, ..spec(Backend::Cuda, 8) };
        assert_eq!(Needs::of(&shard, NODES).gpus, 1, "one rank's shard");
        assert_eq!(
            needs(16, NODES).options(),
            ["--nodes=2", "--ntasks=16", "--ntasks-per-node=8", "--cpus-per-task=2", "--gres=gpu:8"]
        );
    }

    #[test]
    fn a_cell_on_cpus_has_two_for_a_rank_as_far_as_a_node_has_them() {
        let of = |tp, cpus| Needs::of(&spec(Backend::Cpu, tp), Nodes { gpus: 8, cpus });
        assert_eq!(of(4, 96), Needs { nodes: 1, processes: 1, gpus: 0, cpus: 8 });
        assert_eq!(of(4, 6).cpus, 6);
        assert!(!of(4, 96).options().iter().any(|option| option.contains("gres")));
    }

    #[test]
    fn what_is_compared_is_in_one_task() {
        let mut specs = Vec::new();
        for tp in [2, 4, 16] {
            for batch in [1, 4] {
                for architecture in [Architecture::Standard, Architecture::UpperBound] {
                    for p2p in [P2p::On, P2p::Off] {
                        let architecture = architecture.clone();
                        specs.push(Spec { batch, architecture, p2p, ..spec(Backend::Cuda, tp) });
                    }
                }
            }
        }
        let arrays = arrays(specs.iter().enumerate(), NODES);
        let shapes: Vec<(u32, usize)> = arrays.iter().map(|(needs, t)| (needs.nodes, t.len())).collect();
        assert_eq!(shapes, [(1, 2), (1, 2), (2, 2)], "an array for each number of GPUs, a task a batch");
        let mut all: Vec<usize> = arrays.iter().flat_map(|(_, tasks)| tasks.concat()).collect();
        assert_eq!(arrays[0].1[0], [0, 1, 2, 3]);
        all.sort_unstable();
        assert_eq!(all, (0..specs.len()).collect::<Vec<_>>(), "each cell once");
    }
}
