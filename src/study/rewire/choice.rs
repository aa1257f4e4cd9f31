//! Changes to a traced engine that rewiring predicts, and the machine for which it does.

use crate::validate::Changes;
use crate::whatif::NETWORK_KEYS;
use machine::hardware::Target;
use plan::Architecture;
use table::{Collective, P2p, Spec};

#[derive(Clone, Debug, Default)]
pub struct Setting {
    /// Machine and stack, for contention and other collectives.
    pub target: Option<Target>,
    pub tp: Option<u32>,
    /// All-reduce message size (bytes), if the trace lacks it.
    pub message_bytes: Option<f64>,
}

/// Changes relative to the traced engine.
#[derive(Clone, Debug, PartialEq)]
pub struct RewireChoice {
    pub architecture: Architecture,
    /// New all-reduce; `None` keeps the measured one.
    pub collective: Option<Collective>,
    pub p2p: Option<P2p>,
    /// New latency of a small all-reduce inside a node (us); `None` keeps the profile's.
    pub alpha_us: Option<f64>,
    /// New message bandwidth of an all-reduce inside a node (1e9 bytes/s); `None` keeps the profile's.
    pub gb_s: Option<f64>,
    /// New latency of the network per doubling of the nodes (us); `None` keeps the profile's.
    pub network_alpha_us: Option<f64>,
    /// New bandwidth of all network cards of a node (1e9 bytes/s); `None` keeps the profile's.
    pub network_gb_s: Option<f64>,
    /// New number of tensor-parallel ranks; the kernels of a module scale with 1/TP.
    pub tp: Option<u32>,
    pub micro_batches: u32,
    /// Time of a micro-batch's operations relative to the whole batch (0 to 1).
    pub share: f64,
    /// True if kernels wait for their launches as measured; false simulates a CUDA graph or, if graphs are in
    /// use already, that the next graph is always launched in time.
    pub host: bool,
}

impl RewireChoice {
    pub fn from_architecture(architecture: Architecture) -> Self {
        Self {
            architecture,
            collective: None,
            p2p: None,
            alpha_us: None,
            gb_s: None,
            network_alpha_us: None,
            network_gb_s: None,
            tp: None,
            micro_batches: 1,
            share: 1.0,
            host: true,
        }
    }

    /// True if the all-reduces stay as measured.
    pub(super) fn keeps_reduces(&self) -> bool {
        self.collective.is_none() && self.p2p.is_none() && self.keeps_link()
    }

    pub(super) fn changes(&self) -> Changes {
        let uncovered = if self.tp.is_some() {
            Some("another TP")
        } else if self.collective.is_some() {
            Some("another all-reduce")
        } else if self.micro_batches > 1 {
            Some("micro-batches")
        } else if !self.host {
            Some("steps without launch gaps")
        } else {
            None
        };
        Changes { other_reduces: !self.keeps_reduces(), uncovered, is_contended: false }
    }

    /// Cell of a run with these changes.
    pub(super) fn on(&self, cell: &Spec) -> Spec {
        let mut cell = cell.clone();
        cell.architecture = self.architecture.clone();
        cell.collective = self.collective.unwrap_or(cell.collective);
        cell.p2p = self.p2p.unwrap_or(cell.p2p);
        cell.tp = self.tp.unwrap_or(cell.tp);
        cell.micro_batches = self.micro_batches;
        let inside = [("link.alpha_us", self.alpha_us), ("link.gb_s", self.gb_s)];
        for (key, value) in inside.into_iter().chain(self.network()) {
            cell.set.extend(value.map(|value| (key.to_owned(), value.to_string())));
        }
        cell
    }

    pub(super) fn keeps_link(&self) -> bool {
        !self.sets_link() && self.tp.is_none()
    }

    /// True if a latency or a bandwidth is set.
    fn sets_link(&self) -> bool {
        let inside = [self.alpha_us, self.gb_s].into_iter();
        inside.chain(self.network().map(|(_, value)| value)).any(|value| value.is_some())
    }

    /// Values of the network between nodes, with their keys in a profile.
    pub(super) fn network(&self) -> [(&'static str, Option<f64>); 2] {
        let [alpha_us, gb_s] = NETWORK_KEYS;
        [(alpha_us, self.network_alpha_us), (gb_s, self.network_gb_s)]
    }

    pub fn label(&self) -> String {
        let mut words = vec![self.architecture.to_string()];
        words.extend(self.collective.map(|collective| collective.to_string()));
        words.extend(self.p2p.map(|p2p| format!("P2P {p2p}")));
        words.extend(self.alpha_us.map(|us| format!("alpha {us} us")));
        words.extend(self.gb_s.map(|gb_s| format!("{gb_s} GB/s")));
        words.extend(self.network_alpha_us.map(|us| format!("network latency {us} us")));
        words.extend(self.network_gb_s.map(|gb_s| format!("network {gb_s} GB/s")));
        words.extend(self.tp.map(|tp| format!("TP {tp}")));
        if self.micro_batches > 1 {
            words.push(format!("{} micro-batches", self.micro_batches));
            words.push(match self.share {
                whole if whole >= 1.0 => "kernel time unchanged".into(),
                share => format!("kernel time x {share:.2}"),
            });
        }
        if !self.host {
            words.push("no launch gaps".into());
        }
        words.join(", ")
    }
}
