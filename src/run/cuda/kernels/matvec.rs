//! Compile-time constants and launch geometry of the matrix-vector product in `kernels/matvec.cu`. Pure.
//!
//! Each SM runs about 512 threads. Blocks have equal numbers of outputs to within one, and the warps of a
//! block share each row of weights. The choices here are the number of threads per row, the number of 16-byte
//! packs in flight per thread, and FMA or tensor cores.

use machine::driver::{Arguments, DevicePtr, Launch};
use plan::DType;

/// Maximum rows of x with FMA; see [`most_rows`].
pub const MOST_ROWS: u32 = 8;

/// Minimum rows for tensor cores with 16-bit weights: 8 rows cost the same as one, whereas FMA needs one more
/// instruction per weight and row.
const TENSOR_ROWS: u32 = 2;
/// Threads per SM, in one or several blocks.
const THREADS: u32 = 512;
const WARP: u32 = 32;
/// Maximum packs of a row per thread; longer rows are read in parts.
const MOST_PACKS: u32 = 4;
/// Bytes of a pack: one 16-byte load of a thread.
const PACK: u32 = 16;
/// L2 cache line (bytes).
const LINE: u32 = 128;
/// Maximum shared memory for FMA packs in flight (bytes). Leaves room for the warp sums within the 99 KB per
/// block of sm_86 and sm_89.
const MOST_RING: u32 = 88 << 10;
/// Steps a warp processes together, up to two tiles.
const RUN: u32 = 2;
/// Kernel of a product, `GpuKernels::get_with("matvec" or "matvec_logits", &defines)`, with its launch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MatvecKernel {
    pub defines: Vec<(&'static str, u32)>,
    pub geometry: Launch,
}

/// Maximum rows of x for this weight format: 16 with tensor cores, 8 with FMA. 0 for fp8 weights whose rows
/// are not 16-byte aligned.
pub fn most_rows(weights: DType, inputs: u32) -> u32 {
    match takes_tensor_cores(weights, inputs) {
        true => 2 * MOST_ROWS,
        false if weights == DType::Fp8 => 0,
        false => MOST_ROWS,
    }
}

fn takes_tensor_cores(weights: DType, inputs: u32) -> bool {
    weights != DType::F32 && inputs.is_multiple_of(PACK / weights.bytes() as u32)
}

/// Kernel for `out[rows, outputs] = x[rows, inputs] W^T` with 1 to [`most_rows`] rows. `multiprocessors` is
/// the number of SMs to use, fewer than the GPU has if an overlapping collective needs some.
pub fn matvec_geometry(
    weights: DType,
    rows: u32,
    inputs: u32,
    outputs: u32,
    multiprocessors: u32,
) -> MatvecKernel {
    let pack = PACK / weights.bytes() as u32;
    // fp8 conversion always feeds tensor cores
    let least = if weights == DType::Fp8 { 1 } else { TENSOR_ROWS };
    let choice = if !inputs.is_multiple_of(pack) {
        // element by element, none in flight
        Choice { threads: 256, blocks: 1, units: Units::Fma { rows: 2, packs: 2 }, slots: 2 }
    } else if rows >= least && takes_tensor_cores(weights, inputs) {
        tensor(weights, [rows, inputs, outputs], multiprocessors)
    } else {
        vector(rows, inputs / pack)
    };
    let mut defines = vec![
        ("ROWS", rows),
        ("INPUTS", inputs),
        ("THREADS", choice.threads),
        ("BLOCKS", choice.blocks),
        ("SLOTS", choice.slots),
    ];
    if weights == DType::Fp8 {
        defines.push(("WEIGHTS_E4M3", 1));
    }
    let packs = match choice.units {
        Units::Fma { rows, packs } => {
            defines.extend([("UNIT_ROWS", rows), ("UNIT_PACKS", packs)]);
            packs
        }
        Units::Tensor { tiles } => {
            defines.push(("TILES", tiles));
            2
        }
    };
    let grid = grid(choice.threads, outputs, multiprocessors);
    let ring =
        if inputs.is_multiple_of(pack) { choice.slots * packs * choice.threads * PACK } else { 0 };
    let geometry = Launch { shared_bytes: ring, ..Launch::flat(grid, choice.threads) };
    MatvecKernel { defines, geometry }
}

/// Weights that each block of a product reads first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LeadingWeights {
    /// Outputs of the product, divided over its blocks.
    pub outputs: u32,
    pub blocks: u32,
    /// Elements between the weights of consecutive outputs.
    pub pitch: u32,
    /// Outputs per block to prefetch.
    pub rows: u32,
    /// Bytes per output to prefetch, from its first one.
    pub bytes: u32,
}

/// Next product, whose first weights earlier kernels prefetch into the L2 cache.
#[derive(Clone, Copy, Debug)]
pub struct NextProduct {
    pub weight: DevicePtr,
    pub start: LeadingWeights,
}

impl NextProduct {
    /// Appends the prefetch arguments of a kernel compiled with `AHEAD`; `None` prefetches nothing.
    pub fn append(next: Option<Self>, arguments: &mut Arguments) {
        let Self { weight, start } =
            next.unwrap_or(Self { weight: DevicePtr(0), start: LeadingWeights::default() });
        arguments.push(weight).push(start.outputs).push(start.blocks);
        arguments.push(start.pitch).push(start.rows).push(start.bytes);
    }
}

impl MatvecKernel {
    /// First weights per block within a budget of `kb` KB per SM. FMA blocks read output by output; tensor
    /// core blocks read some columns of all outputs of a round.
    pub fn start(
        &self,
        dtype: DType,
        inputs: u32,
        outputs: u32,
        multiprocessors: u32,
        kb: u32,
    ) -> LeadingWeights {
        let blocks = self.geometry.grid[0].max(1);
        let row = inputs * dtype.bytes() as u32;
        if !row.is_multiple_of(PACK) || kb == 0 {
            return LeadingWeights::default();
        }
        let share = self.bytes_a_block(multiprocessors, kb);
        let (tiles, least) = (self.define("TILES"), outputs / blocks);
        let (rows, bytes) = if tiles > 0 {
            let rows = least.min(16 * tiles).max(1);
            (rows, (share / rows).max(1).next_multiple_of(LINE).min(row))
        } else {
            (share.div_ceil(row).min(least), row)
        };
        LeadingWeights { outputs, blocks, pitch: inputs, rows, bytes }
    }

    /// Share of each block in `kb` KB per SM, in whole packs (bytes).
    pub fn bytes_a_block(&self, multiprocessors: u32, kb: u32) -> u32 {
        let bytes = u64::from(kb) * 1024 * u64::from(multiprocessors);
        (bytes / u64::from(self.geometry.grid[0].max(1))) as u32 / PACK * PACK
    }

    /// Value of a constant; 0 if it is not defined.
    fn define(&self, name: &str) -> u32 {
        self.defines.iter().find(|(known, _)| *known == name).map_or(0, |(_, value)| *value)
    }
}

/// Number of blocks that run at once.
fn grid(threads: u32, outputs: u32, multiprocessors: u32) -> u32 {
    (multiprocessors.max(1) * (THREADS / threads).max(1)).clamp(1, outputs.max(1))
}

/// Compile-time choices, named as in `matvec.cu`.
struct Choice {
    threads: u32,
    /// Minimum resident blocks per SM, which bounds registers.
    blocks: u32,
    units: Units,
    /// Groups of packs in flight per thread.
    slots: u32,
}

enum Units {
    /// FMA on `packs` packs of `rows` outputs at a time; a group is the packs of one output.
    Fma { rows: u32, packs: u32 },
    /// Tensor cores on `tiles` tiles of 16 outputs at a time; a group is two packs of one tile.
    Tensor { tiles: u32 },
}

/// Tensor core kernel: distributes steps of four lanes' packs over warps with few empty steps.
fn tensor(weights: DType, [rows, inputs, outputs]: [u32; 3], multiprocessors: u32) -> Choice {
    let steps = inputs.div_ceil(4 * PACK / weights.bytes() as u32);
    let taken = |warps: u32| warps * steps.div_ceil(warps).next_multiple_of(RUN);
    // of the warp counts with the fewest steps, the largest
    let warps = (4..=THREADS / WARP).rev().min_by_key(|&warps| taken(warps)).unwrap_or(4);
    let threads = warps * WARP;
    // more tiles read x less often; empty tiles waste ring space
    let tiles = match outputs.div_ceil(grid(threads, outputs, multiprocessors)) {
        0..=16 => 1,
        17..=32 => 2,
        // each pack of weights needs two of x: no more fit into 64 registers
        _ if weights == DType::Fp8 && rows <= MOST_ROWS => 2,
        _ => 4,
    };
    // uses about 64 registers, which leaves room for a block of the next kernel or a collective; fp8 with
    // more than 8 rows needs twice the packs of x and about 110 registers
    let beside = if weights == DType::Fp8 && rows > MOST_ROWS { 1 } else { 2 };
    Choice { threads, blocks: beside * THREADS / threads, units: Units::Tensor { tiles }, slots: 4 }
}

/// FMA kernel: picks the thread count with the fewest idle threads, up to [`MOST_PACKS`] packs each.
fn vector(rows: u32, packs: u32) -> Choice {
    let taken = |threads: u32| (packs.div_ceil(threads) * threads, packs.div_ceil(threads));
    let candidates = (1..=THREADS / WARP).rev().map(|warps| warps * WARP);
    let found = candidates.filter(|&threads| taken(threads).1 <= MOST_PACKS).min_by_key(|&t| taken(t).0);
    let Some(threads) = found else {
        // long rows in parts; x is read from the L1 cache every time
        return Choice {
            threads: THREADS,
            blocks: 1,
            units: Units::Fma { rows: 2, packs: 2 },
            slots: 4,
        };
    };
    let each = taken(threads).1;
    // about 4 packs per unit and at least twice as many in flight, limited by shared memory
    let (unit, slots) = match each {
        1 => (4, 8),
        2 => (2, 4),
        _ => (1, (MOST_RING / (threads * each * PACK)).clamp(2, 3)),
    };
    // one row fits into 64 registers, which leaves room for a block of the next kernel or a collective
    let blocks = if rows == 1 { 2 * THREADS / threads } else { THREADS / threads };
    Choice { threads, blocks: blocks.max(1), units: Units::Fma { rows: unit, packs: each }, slots }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const H200: u32 = 132;

    /// Inputs and outputs of 8B on one GPU, then of a rank of 70B among 8, then the heads of both.
    const SHAPES: [(u32, u32); 10] = [
        (4096, 6144),
        (4096, 4096),
        (4096, 28_672),
        (14_336, 4096),
        (8192, 1280),
        (1024, 8192),
        (8192, 7168),
        (3584, 8192),
        (4096, 128_256),
        (8192, 128_256),
    ];

    /// Formats of weights and rows that our own kernel multiplies.
    fn products(inputs: u32) -> impl Iterator<Item = (DType, u32)> {
        let rows = move |weights| (1..=most_rows(weights, inputs)).map(move |rows| (weights, rows));
        [DType::Bf16, DType::Fp8].into_iter().flat_map(rows)
    }

    #[test]
    fn work_is_even_over_the_multiprocessors() {
        for (inputs, outputs) in SHAPES {
            for (weights, rows) in products(inputs) {
                let grid = matvec_geometry(weights, rows, inputs, outputs, H200).geometry.grid[0];
                assert_eq!(grid % H200, 0, "whole waves");
                let busiest = f64::from(outputs.div_ceil(grid));
                let mean = f64::from(outputs) / f64::from(grid);
                assert!(
                    mean / busiest > 0.96,
                    "{weights} {inputs} x {outputs}, {rows} rows: {mean} of {busiest}"
                );
            }
        }
    }

    #[test]
    fn enough_bytes_are_under_way_on_each_multiprocessor_and_fit_it() {
        for (inputs, outputs) in SHAPES {
            for (weights, rows) in products(inputs) {
                let chosen = matvec_geometry(weights, rows, inputs, outputs, H200);
                let Launch { grid, block, shared_bytes, .. } = chosen.geometry;
                let blocks = grid[0] / H200;
                // when one group has arrived and was not asked for again yet
                let least = blocks * (shared_bytes - shared_bytes / chosen.define("SLOTS"));
                let what = format!("{weights} {inputs} x {outputs}, {rows} rows");
                assert!(least >= 40_000, "{what}: {least} bytes");
                // sums of warps beside it: 128, or those of a round of tiles
                let sums = 4 * block[0] / WARP * (rows * 16 * chosen.define("TILES").min(2)).max(128);
                let block = shared_bytes + sums;
                // what sm_86 and sm_89, the smallest, let a block have; and two such on an H200
                assert!(block <= 99 << 10 && 2 * blocks * block <= 227 << 10, "{what}: {block}");
            }
        }
    }

    #[test]
    fn rows_of_known_models_leave_no_thread_idle() {
        for (inputs, _) in SHAPES {
            let chosen = matvec_geometry(DType::Bf16, 1, inputs, 4096, H200);
            let taken = chosen.define("THREADS") * chosen.define("UNIT_PACKS") * 8;
            assert_eq!(taken, inputs, "{:?}", chosen.defines);
        }
    }

    #[test]
    fn many_rows_and_16_bits_take_tensor_cores() {
        let tensor =
            |dtype, rows, inputs| matvec_geometry(dtype, rows, inputs, 64, H200).define("TILES") > 0;
        assert!(!tensor(DType::Bf16, 1, 4096));
        assert!(tensor(DType::Bf16, 2, 4096) && tensor(DType::F16, 8, 520));
        assert!(!tensor(DType::F32, 8, 4096) && !tensor(DType::Bf16, 8, 4097));
        // fp8 always, where rows of weights begin on 16 bytes
        assert!(tensor(DType::Fp8, 1, 4096) && tensor(DType::Fp8, 16, 16));
        assert_eq!([4096, 4104].map(|inputs| most_rows(DType::Fp8, inputs)), [16, 0]);
    }

    proptest! {
        #[test]
        fn what_is_asked_for_ahead_is_within_the_weight(
            dtype in prop::sample::select(vec![DType::F32, DType::Bf16]), rows in 1..=MOST_ROWS,
            inputs in 1u32..20_000, outputs in 1u32..30_000, sms in 1u32..200, kb in 1u32..300,
        ) {
            let chosen = matvec_geometry(dtype, rows, inputs, outputs, sms);
            let start = chosen.start(dtype, inputs, outputs, sms, kb);
            let (pack, row) = (PACK / dtype.bytes() as u32, inputs * dtype.bytes() as u32);
            if !inputs.is_multiple_of(pack) {
                prop_assert_eq!(start, LeadingWeights::default());
            } else {
                prop_assert_eq!((start.outputs, start.blocks, start.pitch), (outputs, chosen.geometry.grid[0], inputs));
                // outputs that every block has, and of each no more than there is
                prop_assert!((1..=outputs / start.blocks).contains(&start.rows));
                prop_assert!(start.bytes > 0 && start.bytes <= row && start.bytes.is_multiple_of(PACK));
                // what is asked for, or all that there is, and less than a row or a line of each more
                let (asked, share) = (start.rows * start.bytes, chosen.bytes_a_block(sms, kb));
                let begun = start.rows.max(1) * LINE;
                prop_assert!(asked < share + row.max(begun), "{:?}", start);
            }
        }

        #[test]
        fn any_shape_can_be_launched(
            dtype in prop::sample::select(vec![DType::F32, DType::Bf16, DType::F16, DType::Fp8]),
            rows in 1..=2 * MOST_ROWS, inputs in 1u32..70_000, outputs in 0u32..300_000, sms in 0u32..200,
        ) {
            let inputs = if dtype == DType::Fp8 { inputs.next_multiple_of(16) } else { inputs };
            prop_assume!(rows <= most_rows(dtype, inputs));
            let chosen = matvec_geometry(dtype, rows, inputs, outputs, sms);
            let Launch { grid, block, shared_bytes, .. } = chosen.geometry;
            prop_assert!(grid[0] >= 1 && grid[1..] == [1, 1] && grid[0] <= outputs.max(1));
            prop_assert!(block[0] % WARP == 0 && (WARP..=THREADS).contains(&block[0]));
            prop_assert_eq!(block[0], chosen.define("THREADS"));
            prop_assert!(chosen.define("BLOCKS") * block[0] <= 1024);
            // sums of a unit: one a lane at most
            prop_assert!(chosen.define("UNIT_ROWS") * rows <= WARP);
            let tiles = chosen.define("TILES");
            let turn = chosen.define("UNIT_ROWS").max(if tiles > 2 { tiles } else { RUN * tiles });
            prop_assert_eq!(chosen.define("SLOTS") % turn, 0);
            prop_assert!(shared_bytes <= MOST_RING);
        }
    }
}
