//! Constants that calibration can fit, each with a unit, meaning, and physical bounds. None is specific to a data point
//! or a batch size.

use machine::hardware::{LargeMessages, LinkPoint, Target};

#[derive(Clone, Copy, Debug)]
pub struct Parameter {
    /// Key in the stack, in the profile, or in the model of the link without P2P.
    pub key: &'static str,
    /// Unit of the values, such as `us` or `GB/s`; empty for ratios.
    pub unit: &'static str,
    pub meaning: &'static str,
    pub bounds: (f64, f64),
    pub start: f64,
    place: &'static [&'static str],
    set: fn(&mut CalibratedTarget, f64),
}

/// Target, plus the model of its link without P2P.
#[derive(Clone, Debug)]
pub struct CalibratedTarget {
    pub target: Target,
    host: HostLink,
}

/// All-reduce through host memory: small messages go around a ring in `2 (tp - 1)` hops; large ones take
/// another path above two ranks (NVLink SHARP, which needs no P2P).
#[derive(Clone, Copy, Debug)]
struct HostLink {
    base_us: f64,
    hop_us: f64,
    cross_socket: f64,
    bus_gb_s: f64,
    large_latency: f64,
    large_bus_gb_s: f64,
}

/// GPUs per CPU socket in the usual server of eight.
const GPUS_PER_SOCKET: u32 = 4;

/// TPs of the profile's link without P2P.
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

impl CalibratedTarget {
    pub fn new(target: &Target, values: &[(&'static Parameter, f64)]) -> Self {
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
    /// True for constants of the link without P2P, which are fitted together or not at all.
    pub fn is_host_link(&self) -> bool {
        self.place.starts_with(&["host"])
    }

    /// True if the constant is fitted only on request, because data of one machine and engine cannot separate
    /// it from others.
    pub fn is_by_name(&self) -> bool {
        BY_NAME.contains(&self.key)
    }

    /// True if the constant belongs to the hardware profile, false if to the stack.
    pub fn is_of_profile(&self) -> bool {
        self.place.starts_with(&["target", "profile"])
    }
}

/// Builds the table of constants from one line each: key and unit, lowest and highest physical value, start
/// value, field of [`CalibratedTarget`], and meaning.
macro_rules! parameters {
    ($($key:literal $unit:literal, $low:literal to $high:literal from $start:literal, $($place:ident).+, $meaning:literal;)*) => {
        /// All constants that may be fitted; a data set usually determines only some of them.
        pub static PARAMETERS: [Parameter; [$($key),*].len()] = [$(Parameter {
            key: $key,
            unit: $unit,
            meaning: $meaning,
            bounds: ($low, $high),
            start: $start,
            place: &[$(stringify!($place)),+],
            set: |state, value| state.$($place).+ = value,
        },)*];
    };
}

/// Keys of the constants that are fitted only on request; see [`Parameter::is_by_name`].
const BY_NAME: [&str; 5] = [
    "hbm_efficiency",
    "matvec_scale",
    "step_us",
    "attention.prefill_efficiency",
    "collective.transfer_scale",
];

#[rustfmt::skip]
parameters! {
    "launch_us" "us", 0.5 to 6.0 from 2.5, target.stack.launch_us, "fixed time of one kernel in a CUDA graph; from the hardware's minimum to an eager launch";
    "matvec.efficiency" "", 0.5 to 1.0 from 0.9, target.stack.matvec.efficiency, "share of the peak memory bandwidth of generated matrix-vector kernels; at most 1";
    "matmul.decode_scale" "", 0.8 to 1.6 from 1.1, target.stack.matmul.decode_scale, "decode matrix multiplications over the latency table's, which are the best of tuned libraries";
    "matmul.prefill_scale" "", 0.9 to 2.5 from 1.5, target.stack.matmul.prefill_scale, "prefill matrix multiplications over the latency table's; power limits and layouts at most double it";
    "attention.expanded_kv_gb_s" "GB/s", 500.0 to 8000.0 from 3500.0, target.stack.attention.expanded_kv_gb_s, "rate at which decode attention consumes expanded K and V; at most the L2 cache's";
    "collective.latency_scale" "", 1.0 to 2.5 from 1.4, target.stack.collective.latency_scale, "latency of an all-reduce inside a model, relative to back-to-back all-reduces; at least 1";
    "contention.memory" "", 0.0 to 0.75 from 0.3, target.stack.contention.memory, "slowdown of memory-bound compute during a large all-reduce";
    "contention.arithmetic" "", 0.0 to 0.9 from 0.5, target.stack.contention.arithmetic, "slowdown of arithmetic-bound compute during a large all-reduce";
    "contention.small" "", 0.05 to 1.0 from 0.5, target.stack.contention.small, "part of these losses that the smallest all-reduce causes (fewer thread blocks)";
    "contention.comm" "", 0.0 to 0.6 from 0.1, target.stack.contention.comm, "slowdown of an all-reduce during compute";
    "host_link.base_us" "us", 2.0 to 30.0 from 10.0, host.base_us, "without P2P: latency of an all-reduce before its first hop; at least a kernel's launch";
    "host_link.hop_us" "us", 0.5 to 6.0 from 2.0, host.hop_us, "without P2P: one of 2 (tp - 1) hops through host memory; a PCIe round trip is about 1 us";
    "host_link.cross_socket" "", 1.0 to 4.0 from 1.8, host.cross_socket, "without P2P: hop of a ring over both CPU sockets (tp > 4) over one inside a socket";
    "host_link.bus_gb_s" "GB/s", 3.0 to 63.0 from 15.0, host.bus_gb_s, "without P2P: bus bandwidth of a ring through host memory; at most PCIe 5 x16";
    "host_link.large_latency" "", 1.0 to 4.0 from 1.6, host.large_latency, "without P2P: latency of the way of large messages over that of the ring";
    "host_link.large_bus_gb_s" "GB/s", 20.0 to 480.0 from 250.0, host.large_bus_gb_s, "without P2P: bus bandwidth of the way of large messages (tp >= 4); at most NVLink SHARP's";
    "link.inter_node.alpha_us" "us", 2.0 to 100.0 from 25.0, target.profile.link.inter_node.alpha_us, "network latency added per doubling of the node count";
    "hbm_efficiency" "", 0.5 to 1.0 from 0.85, target.profile.hbm_efficiency, "share of the peak memory bandwidth that kernels reach; at most 1";
    "matvec_scale" "", 0.5 to 1.2 from 0.95, target.profile.matvec_scale, "matrix-vector bandwidth efficiency on this machine, relative to the stack's";
    "step_us" "us", 0.0 to 30000.0 from 500.0, target.stack.step_us, "host time before each step";
    "attention.prefill_efficiency" "", 0.2 to 1.0 from 0.5, target.stack.attention.prefill_efficiency, "share of the peak arithmetic that prefill attention reaches; at most 1";
    "collective.transfer_scale" "", 0.5 to 2.0 from 1.0, target.stack.collective.transfer_scale, "transfer time of an all-reduce inside a model, relative to back-to-back all-reduces";
}
