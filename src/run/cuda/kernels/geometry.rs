//! Launch geometry of the kernels, shared by the backend and its tests. Pure.

use machine::driver::Launch;

/// Elements of 16 bits per thread and turn (one 16-byte load); 32-bit types take two turns of half as many.
const PACK: u32 = 8;
const WARP: u32 = 32;
/// Threads per block of element-wise kernels.
const FLAT: u32 = 256;
/// Threads per block of [`silu_mul`] and [`rope_append`].
const PART: u32 = 128;
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
    Launch::grid([rows, pieces.div_ceil(PART).max(1), 1], PART)
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
    Launch::flat(sequences, PART)
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
}
