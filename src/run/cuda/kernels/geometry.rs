//! How many blocks and threads kernels are launched with. Pure: the checks use the same functions as the
//! backend does.

use machine::driver::Launch;

/// Numbers of 16 bits that a thread takes at a time; of 32-bit ones it takes half as many, in twice the turns.
const PACK: u32 = 8;
const WARP: u32 = 32;
/// Threads of a block that goes through numbers one after the other.
const FLAT: u32 = 256;
/// Threads of a block of [`silu_mul`] and [`rope_append`].
const PART: u32 = 128;
/// Logits of a part, for [`sample_parts`].
const LOGITS: u32 = 2048;
/// Candidates that [`sample_random`] sorts in shared memory.
pub const FEW_CANDIDATES: u32 = 1024;

/// `embed`, `select_last`, `rms_norm`, `add_norm`: a block a row, if possible a thread for 16 bytes of it.
/// Smaller blocks wait less at their barriers, and one that begins early finds room beside what still runs; two packs a
/// thread still fit into a norm's registers.
pub fn rows(rows: u32, columns: u32) -> Launch {
    let most = if columns > 2 * 512 * PACK { 1024 } else { 512 };
    let threads = columns.div_ceil(PACK).next_multiple_of(WARP).clamp(WARP, most);
    Launch::flat(rows, threads)
}

/// `add`, `add_mean`, `random_fill`, sums of messages and what ranks on one device do: 16 bytes a thread, up to what fills the GPU eight times.
pub fn elements(n: u64, multiprocessors: u32) -> Launch {
    let blocks = n.div_ceil(u64::from(FLAT * PACK)).clamp(1, u64::from(multiprocessors.max(1)) * 8 * 8);
    Launch::flat(blocks as u32, FLAT)
}

/// `random_fp8`: a warp a row, up to what fills the GPU eight times.
pub fn warps(rows: u64, multiprocessors: u32) -> Launch {
    let blocks =
        rows.div_ceil(u64::from(FLAT / WARP)).clamp(1, u64::from(multiprocessors.max(1)) * 8 * 8);
    Launch::flat(blocks as u32, FLAT)
}

/// Most blocks of [`one_shot`] and [`one_shot_rows`]: as many as have flags.
pub const ONE_SHOT_BLOCKS: u32 = 64;
/// Threads of a block of `one_shot_sum`, and most of one of `one_shot_add_norm`.
const ONE_SHOT: u32 = 512;

/// `one_shot_sum` of `n` numbers: 16 bytes a thread, up to as many blocks as there are flags.
pub fn one_shot(n: u64) -> Launch {
    let blocks = n.div_ceil(u64::from(ONE_SHOT * PACK)).clamp(1, ONE_SHOT_BLOCKS.into());
    Launch::flat(blocks as u32, ONE_SHOT)
}

/// `one_shot_add_norm`: a block a row, up to as many as there are flags.
pub fn one_shot_rows(rows: u32, columns: u32) -> Launch {
    let threads = columns.div_ceil(PACK).next_multiple_of(WARP).clamp(WARP, ONE_SHOT);
    Launch::flat(rows.clamp(1, ONE_SHOT_BLOCKS), threads)
}

/// The launch of `silu_mul` over `rows` rows of `width` columns.
pub fn silu_mul(rows: u32, width: u32) -> Launch {
    parts(rows, width.div_ceil(PACK))
}

/// The launch of `rope_append` over `rows` rows of queries, keys and values.
pub fn rope_append(rows: u32, heads: u32, kv_heads: u32, head_dim: u32) -> Launch {
    let rotations = (heads + kv_heads) * (head_dim / 2).div_ceil(PACK);
    parts(rows, rotations + kv_heads * head_dim.div_ceil(PACK))
}

/// The launch of `bias_heads` over `rows` rows that begin with `columns` numbers of q, k and v.
pub fn bias_heads(rows: u32, columns: u32) -> Launch {
    parts(rows, columns)
}

/// The launch of `norm_heads` over `rows` rows that begin with so many heads of queries and keys, a warp a head.
pub fn norm_heads(rows: u32, heads: u32) -> Launch {
    parts(rows, heads * WARP)
}

/// Pieces of work of each row, a thread each.
fn parts(rows: u32, pieces: u32) -> Launch {
    Launch::grid([rows, pieces.div_ceil(PART).max(1), 1], PART)
}

/// In how many parts [`sample_part`] should look at a vocabulary.
pub fn sample_parts(vocab: u32) -> u32 {
    vocab.div_ceil(LOGITS).max(1)
}

/// The launch of `sample_part`: a block for each part of the vocabulary and sequence.
pub fn sample_part(parts: u32, sequences: u32) -> Launch {
    Launch::grid([parts, sequences, 1], FLAT)
}

/// The launch of `sample_greedy`, which takes the best of the parts: a block a sequence.
pub fn sample_greedy(sequences: u32) -> Launch {
    Launch::flat(sequences, PART)
}

/// The launch of `sample_random`, which draws among the best: a block a sequence.
pub fn sample_random(sequences: u32) -> Launch {
    Launch::flat(sequences, 1024)
}

/// Bytes of scratch that `sample_random` needs for so many sequences; 0: it is not touched.
pub fn sample_scratch(vocab: u32, top_k: u32, sequences: u32) -> u64 {
    let candidates = top_k.clamp(1, vocab.max(1));
    if candidates <= FEW_CANDIDATES {
        return 0;
    }
    u64::from(candidates.next_power_of_two()) * u64::from(sequences) * 8
}

/// `emulated_collective` with so many blocks (what NCCL would take: its CTAs).
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
