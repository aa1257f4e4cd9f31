//! Cost of collectives in one cell: a profile's link or an emulated one, for a rank count and P2P
//! setting.

use super::Profile;
use super::link::{LinkBasis, LinkTable};
use super::stack::CollectiveScale;
use super::tables::CostSource;
use table::{Collective, P2p};

#[derive(Clone, Debug)]
pub enum CollectiveCost<'a> {
    /// Emulated link: a formula.
    Formula {
        /// Latency of an empty message (us).
        alpha_us: f64,
        /// Message bandwidth (1e9 bytes per second).
        gb_s: f64,
    },
    Link {
        /// Intra-node all-reduce latency by number of ranks.
        table: &'a LinkTable,
        tp: u32,
        /// Scale of latency and transfer time within a model.
        scale: CollectiveScale,
        /// Added by the network: (us, us per byte).
        network: (f64, f64),
        /// Share of an all-reduce's transfer time taken by a reduce-scatter or all-gather.
        half: f64,
    },
}

impl CollectiveCost<'_> {
    /// Latency of an all-reduce (us) and its cost source.
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

    /// Latency of an all-reduce when run back to back, as in nccl-tests (us).
    pub fn alone_us(&self, bytes: f64) -> f64 {
        match self {
            Self::Formula { .. } => self.us(bytes).0,
            Self::Link { table, tp, network, .. } => {
                table.alone_us(*tp, bytes) + network.0 + bytes * network.1
            }
        }
    }

    /// Latency of a reduce-scatter of a message, or of an all-gather with that result (us): the latency
    /// of an empty all-reduce plus a share of its transfer time. The share is 1/2 in a ring, where an
    /// all-reduce consists of both. In-switch all-reduces move fewer bytes than both together, and the
    /// share is 3/4 (measured with multimem on 8 H100s: 0.74 for all-gather, 0.76 for reduce-scatter of
    /// 16 MB to 512 MB; TokenWeave, figure 4).
    pub fn half_us(&self, bytes: f64) -> (f64, CostSource) {
        let half = match self {
            Self::Formula { .. } => 0.5,
            Self::Link { half, .. } => *half,
        };
        let ((whole, _), (none, _)) = (self.us(bytes), self.us(0.0));
        (none + half * (whole - none).max(0.0), CostSource::Calibrated)
    }

    pub fn note(&self) -> Option<String> {
        match self {
            Self::Formula { .. } => None,
            Self::Link { table, tp, .. } => table.note(*tp),
        }
    }

    /// Profile rows behind the latencies; `None` for an emulated link.
    pub fn basis(&self) -> Option<LinkBasis> {
        match self {
            Self::Formula { .. } => None,
            Self::Link { table, tp, .. } => Some(table.basis(*tp)),
        }
    }

    /// True if the message size lies within the measured range; always true for an emulated link.
    pub fn covers(&self, bytes: f64) -> bool {
        match self {
            Self::Formula { .. } => true,
            Self::Link { table, tp, .. } => table.covers(*tp, bytes),
        }
    }

    /// Thread blocks of a collective, if known.
    pub fn ctas(&self) -> Option<u32> {
        match self {
            Self::Formula { .. } => None,
            Self::Link { table, tp, .. } => table.ctas(*tp),
        }
    }
}

impl Profile {
    /// NCCL all-reduce as a formula (alpha_us, gb_s of message bytes) for `tp` ranks; (0, infinite) for
    /// one rank. TP above `gpus_per_node` spans nodes.
    pub fn link(&self, p2p: P2p, tp: u32) -> (f64, f64) {
        let (table, _) = self.table_of(Collective::Nccl, p2p, tp);
        let (alpha_us, gb_s) = table.at(tp.min(self.gpus_per_node));
        let (alpha, per_byte) = self.network(tp);
        if alpha == 0.0 && per_byte == 0.0 {
            return (alpha_us, gb_s);
        }
        (alpha_us + alpha, 1.0 / (1.0 / gb_s + per_byte * 1e3))
    }

    /// Cost of a collective for `tp` ranks, and the collective actually used. All except NCCL's need P2P
    /// and ranks within one node; otherwise NCCL's replaces them, as in engines.
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

    /// Table for an all-reduce, and the collective it belongs to: NCCL's if the requested one is
    /// impossible or unmeasured.
    pub fn table_of(&self, collective: Collective, p2p: P2p, tp: u32) -> (&LinkTable, Collective) {
        let is_possible = p2p == P2p::On && tp <= self.gpus_per_node;
        match (self.link.table(collective).filter(|_| is_possible), p2p) {
            (Some(table), _) => (table, collective),
            (None, P2p::On) => (&self.link.p2p_on, Collective::Nccl),
            (None, P2p::Off) => (&self.link.p2p_off, Collective::Nccl),
        }
    }

    /// Table rows behind a collective's latencies at `tp` ranks.
    pub fn link_basis(&self, collective: Collective, p2p: P2p, tp: u32) -> LinkBasis {
        self.table_of(collective, p2p, tp).0.basis(tp.min(self.gpus_per_node))
    }

    /// Explains why a collective has no latency at `tp` ranks (link not measured there).
    pub fn link_problem(&self, collective: Collective, p2p: P2p, tp: u32) -> Option<String> {
        let (table, _) = self.table_of(collective, p2p, tp);
        // a table scaled from NCCL's has the same gaps as NCCL's
        let missing = if table.scaled.is_some() { &self.link.p2p_on } else { table };
        let name = self.link.tables().find(|(_, known)| std::ptr::eq(*known, missing))?.0;
        let inside = tp.min(self.gpus_per_node);
        table.basis(inside).problem(name).filter(|_| inside > 1)
    }

    /// Inter-node overhead: (us, us per byte).
    fn network(&self, tp: u32) -> (f64, f64) {
        let nodes = f64::from(tp.div_ceil(self.gpus_per_node.max(1)).max(1));
        if nodes <= 1.0 {
            return (0.0, 0.0);
        }
        let outside = &self.link.inter_node;
        (outside.alpha_us * nodes.log2(), 2.0 * (nodes - 1.0) / nodes / (outside.gb_s * 1e3))
    }
}
