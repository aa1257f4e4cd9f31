//! Sizes of nodes, from `sinfo`.

use std::process::Command;

use super::CONTROLLER_TIMEOUT;
use super::command::output_of;
use base::error::Result;

/// Largest GPU and CPU counts of any node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NodeLimits {
    /// Most GPUs on one node; 0 if Slurm knows of none.
    pub gpus: u32,
    /// Most CPUs on one node, as Slurm counts them.
    pub cpus: u32,
}

/// Returns the limits of a partition, or of all partitions without a name. Fails with the message of `sinfo`.
pub fn nodes(partition: Option<&str>) -> Result<NodeLimits> {
    let mut command = Command::new("sinfo");
    command.args(["--noheader", "--format=%c|%G"]);
    command.args(partition.map(|name| format!("--partition={name}")));
    Ok(parse_node_limits(&output_of(&mut command, CONTROLLER_TIMEOUT)?))
}

fn parse_node_limits(output: &str) -> NodeLimits {
    let mut limits = NodeLimits { gpus: 0, cpus: 1 };
    for line in output.lines() {
        let (cpus, resources) = line.split_once('|').unwrap_or((line, ""));
        // `64+` means nodes of several sizes
        let cpus = cpus.trim().trim_end_matches('+').parse().unwrap_or(1);
        limits.gpus = limits.gpus.max(count_gpus(resources));
        limits.cpus = limits.cpus.max(cpus);
    }
    limits
}

/// Counts the GPUs in a list of generic resources: `gpu:h100:8(S:0-1),gpu:2,nic:1` has ten.
fn count_gpus(resources: &str) -> u32 {
    let mut unparenthesized = String::new();
    let mut depth = 0_u32;
    for c in resources.chars() {
        match c {
            '(' => depth += 1,
            ')' => depth = depth.saturating_sub(1),
            c if depth == 0 => unparenthesized.push(c),
            _ => {}
        }
    }
    let gpu_entries = unparenthesized
        .split(',')
        .map(str::trim)
        .filter(|entry| *entry == "gpu" || entry.starts_with("gpu:"));
    // an entry without a number means one GPU
    let counts =
        gpu_entries.map(|entry| entry.rsplit(':').next().and_then(|n| n.parse().ok()).unwrap_or(1));
    counts.fold(0, u32::saturating_add)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_largest_node_counts() {
        let said = "64+|gpu:h100:8(S:0-1)\n32|(null)\n128|gpu:a100:4(S:0,1),gpu:1g.5gb:2,nic:1\n";
        assert_eq!(parse_node_limits(said), NodeLimits { gpus: 8, cpus: 128 });
        assert_eq!(parse_node_limits("2|(null)"), NodeLimits { gpus: 0, cpus: 2 });
        assert_eq!(count_gpus("gpu"), 1);
    }

    proptest! {
        #[test]
        fn whatever_sinfo_says_is_read(said in ".{0,80}") {
            let nodes = parse_node_limits(&said);
            prop_assert!(nodes.cpus >= 1);
        }

        #[test]
        fn counts_are_found_whatever_stands_around_them(n in 1_u32..64, cpus in 1_u32..1024, kind in "[a-z0-9.]{1,8}") {
            prop_assert_eq!(parse_node_limits(&format!("{cpus}+|nic:2,gpu:{kind}:{n}(S:0,1)")), NodeLimits { gpus: n, cpus });
        }
    }
}
