//! Links of a hardware profile: how long an all-reduce takes, by TP, inside a node and over nodes.
//!
//! Always of the form `alpha_us + message bytes / (gb_s x 1e9)`, message (not bus) bytes.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::Profile;
use crate::spec::{Collective, P2p};

/// The links of a profile.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Links {
    /// GPUs of a node talk directly (NVLink where there is one).
    pub p2p_on: LinkTable,
    /// GPUs of a node talk through host memory.
    pub p2p_off: LinkTable,
    /// A custom one-shot all-reduce over P2P, where it was measured.
    pub one_shot: Option<LinkTable>,
    /// What nodes add to it.
    pub inter_node: InterNode,
}

/// One link inside a node.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct LinkTable {
    /// What to know about the numbers.
    pub note: Option<String>,
    /// By number of ranks; others are interpolated.
    pub tp: BTreeMap<u32, LinkPoint>,
}

/// One all-reduce over a given number of ranks.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct LinkPoint {
    /// Latency of a small message (us).
    pub alpha_us: f64,
    /// Message bandwidth (1e9 bytes a second).
    pub gb_s: f64,
}

/// What an all-reduce over several nodes adds to one inside a node: `alpha_us` for each doubling of
/// the nodes, and `2 (nodes - 1) / nodes` x message bytes at `gb_s`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct InterNode {
    /// What to know about the numbers.
    pub note: Option<String>,
    /// Latency for each doubling of the nodes (us).
    pub alpha_us: f64,
    /// Bandwidth of a node's network cards together (1e9 bytes a second).
    pub gb_s: f64,
}

impl LinkTable {
    /// At `tp` ranks. Between the table's rows and beyond them, alpha is linear and the bandwidth
    /// geometric in log2(tp) (so that it never reaches 0); a table of one row is constant.
    pub fn at(&self, tp: u32) -> LinkPoint {
        if tp <= 1 {
            return LinkPoint { alpha_us: 0.0, gb_s: f64::INFINITY };
        }
        let rows: Vec<(f64, &LinkPoint)> =
            self.tp.iter().map(|(&ranks, point)| (f64::from(ranks).log2(), point)).collect();
        let x = f64::from(tp).log2();
        let above =
            rows.partition_point(|(at, _)| *at < x).clamp(1, rows.len().saturating_sub(1).max(1));
        let (Some(&(x0, low)), Some(&(x1, high))) = (rows.get(above - 1), rows.get(above)) else {
            return rows.first().map_or(LinkPoint { alpha_us: 0.0, gb_s: f64::INFINITY }, |row| *row.1);
        };
        // rows themselves come back to the last digit
        if x == x0 {
            return *low;
        }
        if x == x1 {
            return *high;
        }
        let t = (x - x0) / (x1 - x0);
        LinkPoint {
            alpha_us: (low.alpha_us + t * (high.alpha_us - low.alpha_us)).max(0.0),
            gb_s: low.gb_s * (high.gb_s / low.gb_s).powf(t),
        }
    }
}

impl Profile {
    /// One all-reduce of NCCL as (alpha_us, gb_s of message bytes) for `tp` ranks; (0, infinite) for
    /// one rank. TP above `gpus_per_node` spans nodes.
    pub fn link(&self, p2p: P2p, tp: u32) -> (f64, f64) {
        self.link_of(Collective::Nccl, p2p, tp).0
    }

    /// Likewise for a kind of all-reduce. `one-shot` needs P2P and a profile that knows it; where
    /// either is missing, or TP spans nodes, NCCL steps in, as stacks do: the second value says which.
    pub fn link_of(&self, collective: Collective, p2p: P2p, tp: u32) -> ((f64, f64), Collective) {
        let one_shot =
            self.link.one_shot.as_ref().filter(|_| {
                collective == Collective::OneShot && p2p == P2p::On && tp <= self.gpus_per_node
            });
        let (table, used) = match (one_shot, p2p) {
            (Some(table), _) => (table, Collective::OneShot),
            (None, P2p::On) => (&self.link.p2p_on, Collective::Nccl),
            (None, P2p::Off) => (&self.link.p2p_off, Collective::Nccl),
        };
        let inside = table.at(tp.min(self.gpus_per_node));
        let nodes = f64::from(tp.div_ceil(self.gpus_per_node.max(1)).max(1));
        if nodes <= 1.0 {
            return ((inside.alpha_us, inside.gb_s), used);
        }
        let outside = &self.link.inter_node;
        let alpha_us = inside.alpha_us + outside.alpha_us * nodes.log2();
        let per_gb = 1.0 / inside.gb_s + 2.0 * (nodes - 1.0) / nodes / outside.gb_s;
        ((alpha_us, 1.0 / per_gb), used)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table(rows: &[(u32, f64, f64)]) -> LinkTable {
        let tp = rows.iter().map(|&(tp, alpha_us, gb_s)| (tp, LinkPoint { alpha_us, gb_s })).collect();
        LinkTable { note: None, tp }
    }

    #[test]
    fn rows_are_exact_and_what_lies_between_follows_log2_tp() {
        let table = table(&[(2, 10.0, 400.0), (8, 30.0, 100.0)]);
        assert_eq!(table.at(2), LinkPoint { alpha_us: 10.0, gb_s: 400.0 });
        assert_eq!(table.at(8), LinkPoint { alpha_us: 30.0, gb_s: 100.0 });
        let (four, sixteen) = (table.at(4), table.at(16));
        assert!((four.alpha_us - 20.0).abs() < 1e-9 && (four.gb_s - 200.0).abs() < 1e-9);
        assert!((sixteen.alpha_us - 40.0).abs() < 1e-9 && (sixteen.gb_s - 50.0).abs() < 1e-9);
    }

    #[test]
    fn one_rank_needs_no_time_and_one_row_is_constant() {
        let table = table(&[(2, 10.0, 400.0)]);
        assert_eq!(table.at(1), LinkPoint { alpha_us: 0.0, gb_s: f64::INFINITY });
        assert_eq!(table.at(2), table.at(64));
    }

    #[test]
    fn tp_above_a_node_pays_for_the_network_too() {
        let profile = Profile::load("h100_sxm").unwrap();
        let (inside, outside) = (profile.link(P2p::On, 8), &profile.link.inter_node);
        let (alpha_us, gb_s) = profile.link(P2p::On, 16);
        assert!((alpha_us - inside.0 - outside.alpha_us).abs() < 1e-9);
        // two nodes: each byte crosses the network once in each direction
        assert!((1.0 / gb_s - 1.0 / inside.1 - 1.0 / outside.gb_s).abs() < 1e-12);
        assert!(profile.link(P2p::On, 32).0 > alpha_us);
    }

    #[test]
    fn one_shot_falls_back_to_nccl_without_p2p_and_says_so() {
        let profile = Profile::load("h100_sxm").unwrap();
        let (on, used) = profile.link_of(Collective::OneShot, P2p::On, 8);
        assert_eq!(used, Collective::OneShot);
        assert!(on.0 < profile.link(P2p::On, 8).0);
        let (off, used) = profile.link_of(Collective::OneShot, P2p::Off, 8);
        assert_eq!((off, used), (profile.link(P2p::Off, 8), Collective::Nccl));
        let a100 = Profile::load("a100_sxm").unwrap();
        assert_eq!(a100.link_of(Collective::OneShot, P2p::On, 8).1, Collective::Nccl);
    }
}
