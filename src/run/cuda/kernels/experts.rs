//! Compile-time constants and launch geometry of the kernels in `kernels/experts.cu`. Pure.

use machine::driver::Launch;
use plan::DType;

/// Maximum experts of a rank.
pub const MOST_EXPERTS: u32 = 1024;
/// Maximum experts that a token chooses, and maximum groups of experts: one lane of a warp each.
pub const MOST_CHOICES: u32 = 32;
/// Threads of a block of `experts_up` and `experts_down`.
const THREADS: u32 = 512;
/// Packs in flight per thread: `SLOTS` groups of 2.
const SLOTS: u32 = 4;
const PACK: u32 = 16;
const WARP: u32 = 32;
/// Warps of a block of `choose_experts` and `group_choices`.
const WARPS: u32 = 4;

/// Kernel of a product of all touched experts, with its launch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Grouped {
    pub defines: Vec<(&'static str, u32)>,
    pub geometry: Launch,
}

/// `experts_up` or `experts_down` for experts with up to `rows` rows each, on so many SMs. `weights` is the format of
/// weights.
pub fn grouped(weights: DType, rows: u32, inputs: u32, multiprocessors: u32) -> Grouped {
    let by_packs = weights != DType::F32 && inputs.is_multiple_of(PACK / weights.bytes() as u32);
    let columns = if rows <= 8 { 1 } else { 2 };
    // more than 8 rows of fp8 weights need twice the packs of x
    let blocks = if weights == DType::Fp8 && columns > 1 { 1 } else { 2 };
    let mut defines = vec![
        ("INPUTS", inputs),
        ("ROW_TILES", columns),
        ("THREADS", THREADS),
        ("BLOCKS", blocks),
        ("SLOTS", SLOTS),
    ];
    if weights == DType::Fp8 {
        defines.push(("WEIGHTS_E4M3", 1));
    }
    let shared_bytes = if by_packs { SLOTS * 2 * THREADS * PACK } else { 0 };
    let geometry = Launch { shared_bytes, ..Launch::flat(multiprocessors.max(1), THREADS) };
    Grouped { defines, geometry }
}

/// Launch of `choose_experts`: a warp per row.
pub fn choose(rows: u32, experts: u32, multiprocessors: u32) -> Launch {
    let blocks = rows.div_ceil(WARPS).clamp(1, 8 * multiprocessors.max(1));
    Launch { shared_bytes: WARPS * 8 * experts, ..Launch::flat(blocks, WARPS * WARP) }
}

/// Launch of `group_choices`: a warp per expert.
pub fn group(experts: u32) -> Launch {
    Launch::flat(experts.div_ceil(WARPS).max(1), WARPS * WARP)
}

/// Launch of `sum_experts`: a thread per number of each row.
pub fn sum(rows: u32, hidden: u32) -> Launch {
    Launch::grid([rows, hidden.div_ceil(256).max(1), 1], 256)
}
