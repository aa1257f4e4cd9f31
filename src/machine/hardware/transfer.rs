//! Cost of a transfer from one GPU to another, as between pipeline stages.
//!
//! No profile has measured transfers; the cost is derived from its links. Within a node, a message takes as
//! long as an all-reduce of it over 2 ranks, in which each rank also sends and receives the whole message; this
//! overstates the latency of small messages, which an all-reduce passes both ways. Between nodes, a message
//! takes the network's latency plus its bytes over one GPU's share of the node's network cards.

use super::link::LinkTable;
use super::profile::Profile;
use table::{Collective, P2p};

#[derive(Clone, Copy, Debug)]
pub enum TransferCost<'a> {
    /// Emulated link: a formula.
    Formula {
        /// Latency of an empty message (us).
        alpha_us: f64,
        /// Bandwidth (1e9 bytes per second).
        gb_s: f64,
    },
    /// Within a node.
    Inside(&'a LinkTable),
    /// Between nodes.
    Network {
        /// Latency of an empty message (us).
        alpha_us: f64,
        /// Bandwidth of one GPU's share of the network cards (1e9 bytes per second).
        gb_s: f64,
    },
}

impl TransferCost<'_> {
    /// Latency of a message (us).
    pub fn us(&self, bytes: f64) -> f64 {
        match self {
            Self::Formula { alpha_us, gb_s } | Self::Network { alpha_us, gb_s } => {
                alpha_us + bytes / (gb_s * 1e3)
            }
            Self::Inside(table) => table.alone_us(2, bytes),
        }
    }

    /// Basis of the latency, in words.
    pub fn note(&self) -> String {
        match self {
            Self::Formula { .. } => "emulated".into(),
            Self::Inside(_) => {
                "derived: within a node, as an all-reduce of the message over 2 ranks".into()
            }
            Self::Network { alpha_us, gb_s } => format!(
                "derived: between nodes, {alpha_us} us + message bytes / {gb_s} GB/s (a GPU's share of the network)"
            ),
        }
    }
}

impl Profile {
    /// Cost of a transfer from each pipeline stage to the next; the last stage's goes to the first.
    pub fn transfers(&self, p2p: P2p, (tp, pp): (u32, u32)) -> Vec<TransferCost<'_>> {
        // a node holds whole stages, or a stage whole nodes
        let together = (self.gpus_per_node / tp.max(1)).max(1);
        let is_inside = |a: u32, b: u32| tp <= self.gpus_per_node && a / together == b / together;
        let outside = &self.link.inter_node;
        let gb_s = outside.gb_s / f64::from(self.gpus_per_node.max(1));
        (0..pp)
            .map(|stage| match is_inside(stage, (stage + 1) % pp) {
                true => TransferCost::Inside(self.table_of(Collective::Nccl, p2p, 2).0),
                false => TransferCost::Network { alpha_us: outside.alpha_us, gb_s },
            })
            .collect()
    }

    /// Explains why transfers between stages have no latency (link not measured at 2 ranks).
    pub fn transfer_problem(&self, p2p: P2p, (tp, pp): (u32, u32)) -> Option<String> {
        let inside = |cost: &TransferCost<'_>| matches!(cost, TransferCost::Inside(_));
        let any = pp > 1 && self.transfers(p2p, (tp, pp)).iter().any(inside);
        self.link_problem(Collective::Nccl, p2p, 2).filter(|_| any)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stages_within_a_node_use_its_link_and_others_one_network_card() {
        let profile = Profile::load("h100_sxm").unwrap();
        let of = |tp, pp| profile.transfers(P2p::On, (tp, pp));
        let is_inside = |costs: &[TransferCost<'_>]| -> Vec<bool> {
            costs.iter().map(|cost| matches!(cost, TransferCost::Inside(_))).collect()
        };
        assert_eq!(is_inside(&of(4, 2)), [true, true]);
        assert_eq!(is_inside(&of(8, 2)), [false, false]);
        // two stages a node; the last one's tokens cross nodes
        assert_eq!(is_inside(&of(4, 4)), [true, false, true, false]);
        assert_eq!(is_inside(&of(16, 2)), [false, false]);
        let [inside, outside] = [of(4, 2)[0], of(8, 2)[0]].map(|cost| cost.us(33_554_432.0));
        assert_eq!(inside, profile.link.p2p_on.alone_us(2, 33_554_432.0));
        let network = &profile.link.inter_node;
        let card = network.gb_s / f64::from(profile.gpus_per_node);
        assert_eq!(outside, network.alpha_us + 33_554_432.0 / (card * 1e3));
        assert!(of(8, 2)[0].note().starts_with("derived: between nodes"));
    }

    #[test]
    fn a_link_without_two_ranks_is_refused_only_if_stages_share_a_node() {
        let mut profile = Profile::load("h100_sxm").unwrap();
        profile.link.p2p_on.tp.retain(|tp, _| *tp == 8);
        profile.link.p2p_on.extrapolate = false;
        assert!(profile.transfer_problem(P2p::On, (4, 2)).unwrap().contains("measured only at TP 8"));
        assert_eq!(profile.transfer_problem(P2p::On, (8, 2)), None);
        assert_eq!(profile.transfer_problem(P2p::On, (4, 1)), None);
    }
}
