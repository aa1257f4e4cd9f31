//! Helpers for tests with a rendezvous or a simulated trace.

use std::net::TcpListener;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

use crate::feasibility::{Feasibility, assess};
use crate::sim::Simulator;
use table::Spec;
use trace::Trace;

/// Returns a free port below the ephemeral range: a port from that range could be taken by another test or by a
/// connecting rank before the caller listens.
pub fn port() -> u16 {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    loop {
        let number = std::process::id().wrapping_mul(61).wrapping_add(NEXT.fetch_add(1, Relaxed));
        let port = 10_000 + (number % 20_000) as u16;
        if TcpListener::bind(("127.0.0.1", port)).is_ok() {
            return port;
        }
    }
}

/// Reason why a cell is skipped; otherwise its feasibility as debug text (`Runs`).
pub fn skip_reason(spec: &Spec) -> String {
    match assess(spec).unwrap() {
        Feasibility::Skipped(why) => why,
        found => format!("{found:?}"),
    }
}

pub fn simulated(spec: &Spec) -> Trace {
    Simulator::default().cell(spec).unwrap().run(true).unwrap().1.unwrap()
}

/// Arithmetic of the cpu backend, with which kernels are compared.
pub mod cpu {
    pub use crate::cpu::attention::{
        AttentionLimits, AttentionScratch, HeadPreprocessing, Heads, KvCache, PositionEncoding,
        Projected, RopeTable, RowRun, StepRows,
    };
    pub use crate::cpu::experts::choose;
    pub use crate::cpu::{CpuKernels, Panels, quantize};
}

/// Kernels of the cuda backend: compilation and launches.
pub mod cuda {
    pub use crate::cuda::EightBitFormat;
    pub use crate::cuda::fp8;
    pub use crate::cuda::kernels::compile::{
        Defines, HEADERS, TranslationUnit, UNITS, cache_key, cubin, defines, options_for, unit_of,
    };
    pub use crate::cuda::kernels::{GpuKernels, KernelOptions, Nvrtc, geometry, matvec};
    pub use crate::cuda::one_shot::HEAD_BYTES;
}

pub use crate::generate::Sampling;
