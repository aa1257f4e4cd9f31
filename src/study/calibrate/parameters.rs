//! The constants that may be fit: each with a unit, a meaning, and bounds from physics. None belongs to
//! a data point or to a batch size.

use crate::machine::hardware::{LargeMessages, LinkPoint, Target};

/// A constant that may be fitted, with what physics says of it.
#[derive(Clone, Copy, Debug)]
pub struct Parameter {
    /// Its key: of the stack, of the profile, or of the law of the link without P2P.
    pub key: &'static str,
    /// Unit; empty for ratios.
    pub unit: &'static str,
    /// What it means, and where its bounds come from.
    pub meaning: &'static str,
    /// Lowest and highest value that physics allows.
    pub bounds: (f64, f64),
    /// Where a fit starts.
    pub start: f64,
    /// Writes a value of the constant into the stack or the profile.
    set: fn(&mut State, f64),
}

/// A target, and the law of its link without P2P.
#[derive(Clone, Debug)]
pub(super) struct State {
    pub(super) target: Target,
    host: HostLink,
}

/// All-reduce through host memory: small messages go around a ring, `2 (tp - 1)` hops; large ones
/// take another way from four ranks on (NVLink SHARP, which needs no P2P).
#[derive(Clone, Copy, Debug)]
struct HostLink {
    base_us: f64,
    hop_us: f64,
    cross_socket: f64,
    bus_gb_s: f64,
    large_latency: f64,
    large_bus_gb_s: f64,
}

/// GPUs of one CPU socket in the usual server of eight.
const GPUS_PER_SOCKET: u32 = 4;

/// TPs whose points the law writes.
const TPS: [u32; 3] = [2, 4, 8];

impl HostLink {
    fn point(&self, tp: u32) -> LinkPoint {
        let hops = f64::from(2 * (tp - 1));
        let cross = if tp > GPUS_PER_SOCKET { self.cross_socket } else { 1.0 };
        let alpha_us = self.base_us + hops * self.hop_us * cross;
        // bus bytes are 2 (tp - 1) / tp message bytes
        let bus = hops / f64::from(tp);
        let large = (tp > 2).then(|| LargeMessages {
            alpha_us: alpha_us * self.large_latency,
            gb_s: self.large_bus_gb_s / bus,
        });
        LinkPoint { large, ..LinkPoint::formula(alpha_us, self.bus_gb_s / bus) }
    }
}

impl State {
    pub(super) fn new(target: &Target, values: &[(&'static Parameter, f64)]) -> Self {
        let host = HostLink {
            base_us: 0.0,
            hop_us: 0.0,
            cross_socket: 1.0,
            bus_gb_s: 1.0,
            large_latency: 1.0,
            large_bus_gb_s: 1.0,
        };
        let mut state = Self { target: target.clone(), host };
        for (parameter, value) in values {
            (parameter.set)(&mut state, *value);
        }
        if values.iter().any(|(parameter, _)| parameter.is_host_link()) {
            state.target.profile.link.p2p_off.tp =
                TPS.into_iter().map(|tp| (tp, state.host.point(tp))).collect();
        }
        state
    }
}

impl Parameter {
    /// Whether it belongs to the law of the link without P2P: these are fit together or not at all.
    pub fn is_host_link(&self) -> bool {
        self.key.starts_with("host_link.")
    }
}

/// All constants that may be fitted; the data tell something about some of them.
pub static PARAMETERS: [Parameter; 17] = [
    Parameter {
        key: "launch_us",
        unit: "us",
        meaning: "fixed time of one kernel in a CUDA graph; from the hardware's minimum to an eager launch",
        bounds: (0.5, 6.0),
        start: 2.5,
        set: |state, value| state.target.stack.launch_us = value,
    },
    Parameter {
        key: "matvec.efficiency",
        unit: "",
        meaning: "share of the peak memory bandwidth of generated matrix-vector kernels; at most 1",
        bounds: (0.5, 1.0),
        start: 0.9,
        set: |state, value| state.target.stack.matvec.efficiency = value,
    },
    Parameter {
        key: "matmul.decode_scale",
        unit: "",
        meaning: "decode matrix multiplications over the latency table's, which are the best of tuned libraries",
        bounds: (0.8, 1.6),
        start: 1.1,
        set: |state, value| state.target.stack.matmul.decode_scale = value,
    },
    Parameter {
        key: "matmul.prefill_scale",
        unit: "",
        meaning: "prefill matrix multiplications over the latency table's; power limits and layouts at most double it",
        bounds: (0.9, 2.5),
        start: 1.5,
        set: |state, value| state.target.stack.matmul.prefill_scale = value,
    },
    Parameter {
        key: "attention.expanded_kv_gb_s",
        unit: "GB/s",
        meaning: "rate at which decode attention consumes expanded K and V; at most the L2 cache's",
        bounds: (500.0, 8000.0),
        start: 3500.0,
        set: |state, value| state.target.stack.attention.expanded_kv_gb_s = value,
    },
    Parameter {
        key: "collective.latency_scale",
        unit: "",
        meaning: "latency of an all-reduce in a model over that of all-reduces back to back; at least 1",
        bounds: (1.0, 2.5),
        start: 1.4,
        set: |state, value| state.target.stack.collective.latency_scale = value,
    },
    Parameter {
        key: "contention.memory",
        unit: "",
        meaning: "share of its rate that memory-bound compute loses beside a large all-reduce",
        bounds: (0.0, 0.75),
        start: 0.3,
        set: |state, value| state.target.stack.contention.memory = value,
    },
    Parameter {
        key: "contention.arithmetic",
        unit: "",
        meaning: "share of its rate that arithmetic-bound compute loses beside a large all-reduce",
        bounds: (0.0, 0.9),
        start: 0.5,
        set: |state, value| state.target.stack.contention.arithmetic = value,
    },
    Parameter {
        key: "contention.small",
        unit: "",
        meaning: "part of these losses that the smallest all-reduce causes (fewer thread blocks)",
        bounds: (0.05, 1.0),
        start: 0.5,
        set: |state, value| state.target.stack.contention.small = value,
    },
    Parameter {
        key: "contention.comm",
        unit: "",
        meaning: "share of its rate that an all-reduce loses beside compute",
        bounds: (0.0, 0.6),
        start: 0.1,
        set: |state, value| state.target.stack.contention.comm = value,
    },
    Parameter {
        key: "host_link.base_us",
        unit: "us",
        meaning: "without P2P: latency of an all-reduce before its first hop; at least a kernel's launch",
        bounds: (2.0, 30.0),
        start: 10.0,
        set: |state, value| state.host.base_us = value,
    },
    Parameter {
        key: "host_link.hop_us",
        unit: "us",
        meaning: "without P2P: one of 2 (tp - 1) hops through host memory; a PCIe round trip is about 1 us",
        bounds: (0.5, 6.0),
        start: 2.0,
        set: |state, value| state.host.hop_us = value,
    },
    Parameter {
        key: "host_link.cross_socket",
        unit: "",
        meaning: "without P2P: hop of a ring over both CPU sockets (tp > 4) over one inside a socket",
        bounds: (1.0, 4.0),
        start: 1.8,
        set: |state, value| state.host.cross_socket = value,
    },
    Parameter {
        key: "host_link.bus_gb_s",
        unit: "GB/s",
        meaning: "without P2P: bus bandwidth of a ring through host memory; at most PCIe 5 x16",
        bounds: (3.0, 63.0),
        start: 15.0,
        set: |state, value| state.host.bus_gb_s = value,
    },
    Parameter {
        key: "host_link.large_latency",
        unit: "",
        meaning: "without P2P: latency of the way of large messages over that of the ring",
        bounds: (1.0, 4.0),
        start: 1.6,
        set: |state, value| state.host.large_latency = value,
    },
    Parameter {
        key: "host_link.large_bus_gb_s",
        unit: "GB/s",
        meaning: "without P2P: bus bandwidth of the way of large messages (tp >= 4); at most NVLink SHARP's",
        bounds: (20.0, 480.0),
        start: 250.0,
        set: |state, value| state.host.large_bus_gb_s = value,
    },
    Parameter {
        key: "link.inter_node.alpha_us",
        unit: "us",
        meaning: "what the network adds to an all-reduce for each doubling of the nodes",
        bounds: (2.0, 100.0),
        start: 25.0,
        set: |state, value| state.target.profile.link.inter_node.alpha_us = value,
    },
];
