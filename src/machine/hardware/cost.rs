//! What collectives cost in one cell: the link of a profile, or an emulated one, for a number of ranks and a setting
//! of P2P.

use super::Profile;
use super::link::{LinkBasis, LinkTable};
use super::stack::CollectiveScale;
use super::tables::CostSource;
use table::{Collective, P2p};

/// How long collectives take for one cell: a link, resolved.
#[derive(Clone, Debug)]
pub enum CollectiveCost<'a> {
    /// A formula: an emulated link.
    Formula {
        /// What an all-reduce takes however small its message is (us).
        alpha_us: f64,
        /// Message bandwidth (1e9 bytes a second).
        gb_s: f64,
    },
    /// A link of a profile.
    Link {
        /// What an all-reduce inside one node takes, by number of ranks.
        table: &'a LinkTable,
        /// How many of the ranks share a node.
        tp: u32,
        /// What its parts take within a model.
        scale: CollectiveScale,
        /// What the network adds: (us, us a byte).
        network: (f64, f64),
        /// Which part of what the bytes of an all-reduce take a reduce-scatter or an all-gather takes.
        half: f64,
    },
}

impl CollectiveCost<'_> {
    /// How long a message takes (us), and how that is known.
    pub fn us(&self, bytes: f64) -> (f64, CostSource) {
        match self {
            Self::Formula { alpha_us, gb_s } => (alpha_us + bytes / (gb_s * 1e3), CostSource::Roofline),
            Self::Link { table, tp, scale, network, .. } => {
                let (us, source) = table.us(*tp, bytes, *scale);
                let source = if network.0 > 0.0 { CostSource::Calibrated } else { source };
                (us + network.0 + bytes * network.1, source)
            }
        }
    }

    /// How long a message takes where all-reduces run back to back, as nccl-tests measures them (us).
    pub fn alone_us(&self, bytes: f64) -> f64 {
        match self {
            Self::Formula { .. } => self.us(bytes).0,
            Self::Link { table, tp, network, .. } => {
                table.alone_us(*tp, bytes) + network.0 + bytes * network.1
            }
        }
    }

    /// How long a reduce-scatter of a message, or an all-gather that results in it, takes (us): what an all-reduce
    /// of no bytes does, and a part of what its bytes add. The part is 1/2 in a ring, where each is one of the two
    /// halves of an all-reduce; within a switch an all-reduce needs fewer bytes than both, and the part is 3/4
    /// (measured over multimem on 8 H100s: 0.74 for all-gather, 0.76 for reduce-scatter of 16
    /// MB to 512 MB; TokenWeave, figure 4).
    pub fn half_us(&self, bytes: f64) -> (f64, CostSource) {
        let half = match self {
            Self::Formula { .. } => 0.5,
            Self::Link { half, .. } => *half,
        };
        let ((whole, _), (none, _)) = (self.us(bytes), self.us(0.0));
        (none + half * (whole - none).max(0.0), CostSource::Calibrated)
    }

    /// Where the times come from, in words.
    pub fn note(&self) -> Option<String> {
        match self {
            Self::Formula { .. } => None,
            Self::Link { table, tp, .. } => table.note(*tp),
        }
    }

    /// The rows of the profile that the times rest on; `None` of an emulated link.
    pub fn basis(&self) -> Option<LinkBasis> {
        match self {
            Self::Formula { .. } => None,
            Self::Link { table, tp, .. } => Some(table.basis(*tp)),
        }
    }

    /// Whether a message of so many bytes lies among those that were measured; an emulated link needs no measurement.
    pub fn covers(&self, bytes: f64) -> bool {
        match self {
            Self::Formula { .. } => true,
            Self::Link { table, tp, .. } => table.covers(*tp, bytes),
        }
    }

    /// Thread blocks that a collective occupies, where that is known.
    pub fn ctas(&self) -> Option<u32> {
        match self {
            Self::Formula { .. } => None,
            Self::Link { table, tp, .. } => table.ctas(*tp),
        }
    }
}

impl Profile {
    /// One all-reduce of NCCL as a formula (alpha_us, gb_s of message bytes) for `tp` ranks; (0,
    /// infinite) for one rank. TP above `gpus_per_node` spans nodes.
    pub fn link(&self, p2p: P2p, tp: u32) -> (f64, f64) {
        let (table, _) = self.table_of(Collective::Nccl, p2p, tp);
        let (alpha_us, gb_s) = table.at(tp.min(self.gpus_per_node));
        let (alpha, per_byte) = self.network(tp);
        if alpha == 0.0 && per_byte == 0.0 {
            return (alpha_us, gb_s);
        }
        (alpha_us + alpha, 1.0 / (1.0 / gb_s + per_byte * 1e3))
    }

    /// How long collectives of a kind take for `tp` ranks. All but NCCL's need P2P and ranks of one node;
    /// else NCCL's steps in, as it does in engines: the second value says which.
    pub fn collective(
        &self,
        collective: Collective,
        p2p: P2p,
        tp: u32,
        scale: CollectiveScale,
    ) -> (CollectiveCost<'_>, Collective) {
        let (table, used) = self.table_of(collective, p2p, tp);
        let (tp, network) = (tp.min(self.gpus_per_node), self.network(tp));
        let half = match used {
            Collective::Multimem | Collective::Fused => 0.75,
            _ => 0.5,
        };
        (CollectiveCost::Link { table, tp, scale, network, half }, used)
    }

    /// The table of measured sums that such an all-reduce is read from, and the collective that it stands for: NCCL's where
    /// the one that was asked for is not possible, or nobody measured it.
    pub fn table_of(&self, collective: Collective, p2p: P2p, tp: u32) -> (&LinkTable, Collective) {
        let is_possible = p2p == P2p::On && tp <= self.gpus_per_node;
        match (self.link.table(collective).filter(|_| is_possible), p2p) {
            (Some(table), _) => (table, collective),
            (None, P2p::On) => (&self.link.p2p_on, Collective::Nccl),
            (None, P2p::Off) => (&self.link.p2p_off, Collective::Nccl),
        }
    }

    /// The rows on which the times of a kind of collective rest at `tp` ranks.
    pub fn link_basis(&self, collective: Collective, p2p: P2p, tp: u32) -> LinkBasis {
        self.table_of(collective, p2p, tp).0.basis(tp.min(self.gpus_per_node))
    }

    /// Why collectives of a kind have no time at `tp` ranks: nobody measured the link there.
    pub fn link_problem(&self, collective: Collective, p2p: P2p, tp: u32) -> Option<String> {
        let (table, _) = self.table_of(collective, p2p, tp);
        // a table that is scaled from NCCL's lacks what NCCL's lacks
        let missing = if table.scaled.is_some() { &self.link.p2p_on } else { table };
        let name = self.link.tables().find(|(_, known)| std::ptr::eq(*known, missing))?.0;
        let inside = tp.min(self.gpus_per_node);
        table.basis(inside).problem(name).filter(|_| inside > 1)
    }

    /// What the network between nodes adds: (us, us a byte).
    fn network(&self, tp: u32) -> (f64, f64) {
        let nodes = f64::from(tp.div_ceil(self.gpus_per_node.max(1)).max(1));
        if nodes <= 1.0 {
            return (0.0, 0.0);
        }
        let outside = &self.link.inter_node;
        (outside.alpha_us * nodes.log2(), 2.0 * (nodes - 1.0) / nodes / (outside.gb_s * 1e3))
    }
}
