//! Launch geometry of the attention kernels (`kernels/attend_decode.cu`, `kernels/attend_prefill.cu`). Pure.

use machine::driver::Launch;
use plan::DType;

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
        DType::Bf16 | DType::F16 | DType::Fp8 => {
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

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

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
