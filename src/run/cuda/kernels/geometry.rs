//! Launch geometry of the kernels, shared by the backend and its tests. Pure.

use machine::driver::Launch;
use plan::DType;

/// Elements of 16 bits per thread and turn (one 16-byte load); 32-bit types take two turns of half as many.
const PACK: u32 = 8;
const WARP: u32 = 32;
/// Threads per block of element-wise kernels.
const FLAT: u32 = 256;
/// Threads per block of [`silu_mul`] and [`rope_append`].
const ELEMENT_THREADS: u32 = 128;
/// Logits per part in [`sample_parts`].
const LOGITS: u32 = 2048;
/// Maximum number of candidates that [`sample_random`] sorts in shared memory.
pub const FEW_CANDIDATES: u32 = 1024;

/// Launch of `embed`, `select_last`, `rms_norm` and `add_norm`: one block per row, one thread per 16 bytes if
/// possible. Smaller blocks wait less at barriers, and early starters fit next to running blocks; two packs
/// per thread still fit into a norm's registers.
pub fn rows(rows: u32, columns: u32) -> Launch {
    let most = if columns > 2 * 512 * PACK { 1024 } else { 512 };
    let threads = columns.div_ceil(PACK).next_multiple_of(WARP).clamp(WARP, most);
    Launch::flat(rows, threads)
}

/// Launch of `add`, `add_mean`, `random_fill`, message sums and loopback collectives: 16 bytes per thread, up
/// to eight times what fills the GPU.
pub fn elements(n: u64, multiprocessors: u32) -> Launch {
    flat(n.div_ceil(u64::from(FLAT * PACK)), multiprocessors)
}

/// Launch of `random_fp8`: one warp per row, up to eight times what fills the GPU.
pub fn warps(rows: u64, multiprocessors: u32) -> Launch {
    flat(rows.div_ceil(u64::from(FLAT / WARP)), multiprocessors)
}

/// Launch of this many blocks, up to eight times what fills the GPU.
fn flat(blocks: u64, multiprocessors: u32) -> Launch {
    Launch::flat(blocks.clamp(1, u64::from(multiprocessors.max(1)) * 8 * 8) as u32, FLAT)
}

/// Maximum number of blocks of [`one_shot`] and [`one_shot_rows`], limited by their flags.
pub const ONE_SHOT_BLOCKS: u32 = 64;
/// Threads per block of `one_shot_sum`; maximum for `one_shot_add_norm`.
const ONE_SHOT: u32 = 512;

/// Launch of `one_shot_sum` for `n` elements: 16 bytes per thread.
pub fn one_shot(n: u64) -> Launch {
    let blocks = n.div_ceil(u64::from(ONE_SHOT * PACK)).clamp(1, ONE_SHOT_BLOCKS.into());
    Launch::flat(blocks as u32, ONE_SHOT)
}

/// Launch of `one_shot_add_norm`: one block per row.
pub fn one_shot_rows(rows: u32, columns: u32) -> Launch {
    let threads = columns.div_ceil(PACK).next_multiple_of(WARP).clamp(WARP, ONE_SHOT);
    Launch::flat(rows.clamp(1, ONE_SHOT_BLOCKS), threads)
}

pub fn silu_mul(rows: u32, width: u32) -> Launch {
    parts(rows, width.div_ceil(PACK))
}

pub fn rope_append(rows: u32, heads: u32, kv_heads: u32, head_dim: u32) -> Launch {
    let rotations = (heads + kv_heads) * (head_dim / 2).div_ceil(PACK);
    parts(rows, rotations + kv_heads * head_dim.div_ceil(PACK))
}

/// Launch of `bias_heads` over `rows` rows that begin with `columns` elements of q, k and v.
pub fn bias_heads(rows: u32, columns: u32) -> Launch {
    parts(rows, columns)
}

/// Launch of `norm_heads` over `rows` rows that begin with `heads` query and key heads: one warp per head.
pub fn norm_heads(rows: u32, heads: u32) -> Launch {
    parts(rows, heads * WARP)
}

/// One thread per piece of each row.
fn parts(rows: u32, pieces: u32) -> Launch {
    Launch::grid([rows, pieces.div_ceil(ELEMENT_THREADS).max(1), 1], ELEMENT_THREADS)
}

/// Number of vocabulary parts for [`sample_part`].
pub fn sample_parts(vocab: u32) -> u32 {
    vocab.div_ceil(LOGITS).max(1)
}

/// Launch of `sample_part`: one block per vocabulary part and sequence.
pub fn sample_part(parts: u32, sequences: u32) -> Launch {
    Launch::grid([parts, sequences, 1], FLAT)
}

/// Launch of `sample_greedy`, which reduces the parts: one block per sequence.
pub fn sample_greedy(sequences: u32) -> Launch {
    Launch::flat(sequences, ELEMENT_THREADS)
}

/// Launch of `sample_random`, which draws a candidate: one block per sequence.
pub fn sample_random(sequences: u32) -> Launch {
    Launch::flat(sequences, 1024)
}

/// Scratch of `sample_random` (bytes); 0 if it sorts in shared memory.
pub fn sample_scratch(vocab: u32, top_k: u32, sequences: u32) -> u64 {
    let candidates = top_k.clamp(1, vocab.max(1));
    if candidates <= FEW_CANDIDATES {
        return 0;
    }
    u64::from(candidates.next_power_of_two()) * u64::from(sequences) * 8
}

/// Launch of `emulated_collective`; `blocks` is the number of CTAs NCCL would use.
pub fn emulated_collective(blocks: u32) -> Launch {
    Launch::flat(blocks.max(1), 512)
}

/// Keys per round of a decode attention block; the minimum worth a split.
const ROUND: u32 = 64;
/// Resident decode attention blocks per SM (160 registers, heads of 128).
const BLOCKS: u32 = 3;

/// Number of context splits per sequence in decode attention, for caches of `capacity` tokens. All blocks fit
/// on the GPU at once and nearly fill it; if there are too many, they form nearly whole waves. A split has at
/// least 64 keys of a full cache.
pub fn splits(sequences: u32, kv_heads: u32, capacity: u32, multiprocessors: u32) -> u32 {
    let slots = u64::from(multiprocessors.max(1) * BLOCKS);
    let pairs = u64::from(sequences.max(1)) * u64::from(kv_heads.max(1));
    let most = u64::from(capacity.div_ceil(ROUND).max(1)).min((4 * slots / pairs).max(4));
    let filled = |splits: &u64| {
        let blocks = pairs * splits;
        blocks as f64 / (blocks.div_ceil(slots) * slots) as f64
    };
    let good = (1..=most).find(|splits| filled(splits) >= 0.95);
    // of equal choices the smallest: fewer partial results to combine
    let best = (1..=most).rev().max_by(|a, b| filled(a).total_cmp(&filled(b)));
    good.or(best).unwrap_or(1) as u32
}

/// Launch of `attend_decode`: one block per split, KV head and sequence.
pub fn attend_decode(splits: u32, kv_heads: u32, sequences: u32) -> Launch {
    Launch::grid([splits, kv_heads, sequences], 128)
}

/// Launch of `attend_combine`, which combines the splits: one block per query head and sequence.
pub fn attend_combine(heads: u32, sequences: u32) -> Launch {
    Launch::grid([heads, sequences, 1], 256)
}

/// Launch of `attend_prefill` for `tokens` new tokens per sequence. Needs `Function::set_shared`: most head
/// sizes use more than 48 KB of shared memory.
pub fn attend_prefill(dtype: DType, head_dim: u32, tokens: u32, heads: u32, sequences: u32) -> Launch {
    let (block_q, packs) = match dtype {
        DType::F32 => {
            let row = head_dim / 4;
            (32, 32 * row + 32 * (row + 1) + 32 * row)
        }
        _ => {
            let row = head_dim / 8;
            let steps = row.div_ceil(4);
            let keys = steps * 4 + if steps.is_multiple_of(2) { 4 } else { 0 };
            let values = row.next_multiple_of(2) + 1;
            let block_k = if head_dim <= 128 { 64 } else { 32 };
            (128, 2 * block_k * (keys + values))
        }
    };
    Launch {
        shared_bytes: packs * 16,
        ..Launch::grid([tokens.div_ceil(block_q), heads, sequences], 256)
    }
}

/// Maximum experts of a rank.
pub const MOST_EXPERTS: u32 = 1024;
/// Maximum experts that a token chooses, and maximum groups of experts: one lane of a warp each.
pub const MOST_CHOICES: u32 = 32;
/// Threads of a block of `experts_up` and `experts_down`.
const THREADS: u32 = 512;
/// Packs in flight per thread: `SLOTS` groups of 2.
const SLOTS: u32 = 4;
const PACKED: u32 = 16;
const LANES: u32 = 32;
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
    let by_packs = weights != DType::F32 && inputs.is_multiple_of(PACKED / weights.bytes() as u32);
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
    let shared_bytes = if by_packs { SLOTS * 2 * THREADS * PACKED } else { 0 };
    let geometry = Launch { shared_bytes, ..Launch::flat(multiprocessors.max(1), THREADS) };
    Grouped { defines, geometry }
}

/// Launch of `choose_experts`: a warp per row.
pub fn choose_experts(rows: u32, experts: u32, multiprocessors: u32) -> Launch {
    let blocks = rows.div_ceil(WARPS).clamp(1, 8 * multiprocessors.max(1));
    Launch { shared_bytes: WARPS * 8 * experts, ..Launch::flat(blocks, WARPS * LANES) }
}

/// Launch of `group_choices`: a warp per expert.
pub fn group_choices(experts: u32) -> Launch {
    Launch::flat(experts.div_ceil(WARPS).max(1), WARPS * LANES)
}

/// Slots of an expert are a multiple of this, as in `kernels/experts.cu`: few shapes then need an algorithm, and an expert
/// wastes at most 63 rows. Not measured.
pub const SLOT_ROWS: u32 = 64;

/// Launch of `place_choices`: a block per expert.
pub fn place_choices(experts: u32) -> Launch {
    Launch::flat(experts.max(1), FLAT)
}

/// Launch of `activate_experts` and `sum_experts`: a thread per number of each row.
pub fn expert_rows(rows: u32, columns: u32) -> Launch {
    Launch::grid([rows, columns.div_ceil(FLAT).max(1), 1], FLAT)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_row_has_a_thread_for_each_16_bytes() {
        assert_eq!(rows(1, 8192).block, [512, 1, 1]);
        assert_eq!(rows(1, 16_384).block, [1024, 1, 1]);
        assert_eq!(rows(1, 4096).block, [512, 1, 1]);
        assert_eq!(rows(4096, 8192).block, [512, 1, 1]);
        assert_eq!(rows(3, 1).block, [32, 1, 1]);
    }

    #[test]
    fn scratch_is_only_for_many_candidates() {
        assert_eq!(sample_scratch(128_256, 1024, 4), 0);
        assert_eq!(sample_scratch(128_256, 1025, 4), 2048 * 4 * 8);
        assert_eq!(sample_scratch(500, u32::MAX, 4), 0);
        assert_eq!(sample_scratch(128_256, 0, 4), 0);
        assert_eq!(sample_scratch(128_256, 200_000, 1), 131_072 * 8);
    }

    proptest! {
        #[test]
        fn launches_are_within_cuda_s_limits(
            many in 1u32..200_000, columns in 1u32..200_000, n in 0u64..1 << 40, heads in 1u32..256,
            head_dim in 1u32..33, sms in 0u32..200,
        ) {
            let all = [
                rows(many, columns), elements(n, sms), silu_mul(many, columns),
                rope_append(many, heads, heads, head_dim * 8), bias_heads(many, 3 * heads * head_dim * 8),
                norm_heads(many, 2 * heads), sample_part(sample_parts(columns), many % 4096),
                sample_greedy(many), sample_random(many), emulated_collective(sms), one_shot(n),
                one_shot_rows(many, columns),
            ];
            for Launch { grid, block, shared_bytes, .. } in all {
                prop_assert!(block[0] % WARP == 0 && block[0] <= 1024 && block[1..] == [1, 1]);
                prop_assert!(grid[1] <= 65_535 && grid[2] == 1 && shared_bytes <= 48 << 10);
                prop_assert!(grid[0] >= 1);
            }
        }
    }

    #[test]
    fn few_sequences_still_fill_the_gpu() {
        let h200 = |sequences, kv_heads, capacity| splits(sequences, kv_heads, capacity, 132);
        assert_eq!(h200(1, 1, 1024), 16, "no less than 64 keys each");
        assert_eq!(h200(1, 1, 131_072), 377, "95% of 3 blocks on each of 132");
        assert_eq!(h200(1, 8, 2048), 32);
        assert_eq!(h200(1, 8, 131_072), 48);
        assert_eq!(h200(16, 8, 2048), 3, "384 blocks of 396");
        assert_eq!(h200(48, 8, 2048), 1);
        assert_eq!(h200(50, 8, 2048), 4, "1 wave and a few blocks: the few are best kept small");
    }

    #[test]
    fn prefill_fits_a_multiprocessor() {
        for head_dim in (8..=256).step_by(8) {
            for (dtype, rows) in [(DType::F32, 32), (DType::Bf16, 128), (DType::F16, 128)] {
                let Launch { grid, shared_bytes, .. } = attend_prefill(dtype, head_dim, 1000, 8, 3);
                assert_eq!(grid, [1000_u32.div_ceil(rows), 8, 3]);
                // what sm_86 and sm_89, the smallest, let a block have
                assert!(shared_bytes <= 99 << 10, "{dtype}, {head_dim}: {shared_bytes}");
            }
        }
    }

    proptest! {
        #[test]
        fn splits_are_worth_it(
            sequences in 0u32..4096, kv_heads in 0u32..129, capacity in 0u32..200_000, sms in 0u32..200,
        ) {
            let splits = splits(sequences, kv_heads, capacity, sms);
            prop_assert!(splits >= 1);
            prop_assert!(splits == 1 || (splits - 1) * ROUND < capacity);
            let slots = sms.max(1) * BLOCKS;
            prop_assert!(splits <= 4 || splits * sequences.max(1) * kv_heads.max(1) <= 4 * slots);
        }
    }
}
