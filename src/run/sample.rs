//! Token sampling. Random draws depend only on (seed, sequence, position), so every rank draws the same token from
//! the same logits for any TP and batch.

#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Sampling {
    /// Highest logit; the first one on ties.
    Greedy,
    Random {
        temperature: f32,
        top_k: usize,
        seed: u64,
    },
}

impl Sampling {
    pub fn choose(&self, logits: &[f32], sequence: usize, position: usize) -> u32 {
        match *self {
            Self::Greedy => top(logits, 1)[0].0,
            Self::Random { temperature, top_k, seed } => {
                let best = top(logits, top_k.max(1));
                let highest = best[0].1;
                let weight = |logit: f32| f64::from((logit - highest) / temperature).exp();
                let total: f64 = best.iter().map(|(_, logit)| weight(*logit)).sum();
                let mut left = uniform(seed, sequence as u64, position as u64) * total;
                for (token, logit) in &best {
                    left -= weight(*logit);
                    if left < 0.0 {
                        return *token;
                    }
                }
                best[best.len() - 1].0
            }
        }
    }
}

/// The `k` highest logits with their tokens, highest first; ties by token, NaN counts as lowest. O(n + k log k).
pub fn top(logits: &[f32], k: usize) -> Vec<(u32, f32)> {
    let key = |logit: f32| if logit.is_nan() { f32::NEG_INFINITY } else { logit };
    let order = |a: &(u32, f32), b: &(u32, f32)| key(b.1).total_cmp(&key(a.1)).then(a.0.cmp(&b.0));
    if k == 1 {
        // hot path of greedy decoding: one pass, no allocation
        let mut best = (0, f32::NEG_INFINITY);
        for (token, logit) in logits.iter().enumerate() {
            if *logit > best.1 {
                best = (token as u32, *logit);
            }
        }
        return vec![best];
    }
    let mut all: Vec<(u32, f32)> = logits.iter().enumerate().map(|(i, l)| (i as u32, *l)).collect();
    let k = k.min(all.len());
    if k < all.len() {
        all.select_nth_unstable_by(k, order);
        all.truncate(k);
    }
    all.sort_unstable_by(order);
    all
}

/// Uniform number in [0, 1) from three integers (SplitMix64's finalizer over their mix).
fn uniform(seed: u64, sequence: u64, position: u64) -> f64 {
    let mut z = seed;
    for part in [sequence, position] {
        z = z.wrapping_add(part).wrapping_add(0x9E37_79B9_7F4A_7C15);
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^= z >> 31;
    }
    (z >> 11) as f64 / (1u64 << 53) as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn greedy_takes_the_first_of_equals() {
        assert_eq!(Sampling::Greedy.choose(&[0.0, 3.0, 3.0, f32::NAN], 0, 0), 1);
    }

    #[test]
    fn top_k_follows_the_distribution_and_the_seed() {
        let logits = [0.0, (3.0f32).ln(), -50.0, (6.0f32).ln()];
        let sampling = Sampling::Random { temperature: 1.0, top_k: 3, seed: 7 };
        let mut counts = [0; 4];
        for position in 0..20_000 {
            counts[sampling.choose(&logits, 1, position) as usize] += 1;
        }
        assert_eq!(counts[2], 0);
        for (token, share) in [(0, 0.1), (1, 0.3), (3, 0.6)] {
            assert!((f64::from(counts[token]) / 20_000.0 - share).abs() < 0.02, "{counts:?}");
        }
        let draws = |seed| -> Vec<u32> {
            let sampling = Sampling::Random { temperature: 1.0, top_k: 3, seed };
            (0..50).map(|position| sampling.choose(&logits, 1, position)).collect()
        };
        assert_eq!(draws(7), draws(7));
        assert_ne!(draws(7), draws(8));
        // a low temperature is greedy
        let cold = Sampling::Random { temperature: 0.01, top_k: 4, seed: 7 };
        assert!((0..100).all(|position| cold.choose(&logits, 0, position) == 3));
    }

    #[test]
    fn top_is_sorted_and_stable() {
        assert_eq!(top(&[1.0, 2.0, 2.0, 0.0], 3), vec![(1, 2.0), (2, 2.0), (0, 1.0)]);
        assert_eq!(top(&[1.0], 5), vec![(0, 1.0)]);
    }
}
