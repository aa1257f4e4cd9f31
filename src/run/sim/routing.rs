//! Routing of tokens to experts: the share of the work that falls to each rank.
//!
//! With whole experts on ranks, a rank's work depends on the choices of a step's tokens. They are drawn a few
//! times from the cell's seed; popularities are dealt to experts anew in each draw, because layers differ.

use super::skew::normal;
use plan::{ExpertLoad, ModelShape};
use table::Spec;

/// Draws of a step's choices.
pub(super) const DRAWS: u64 = 8;

/// Most tokens whose choices are drawn one by one; of more, an expert's count is normal.
const MOST_DRAWN: f64 = 128.0;

#[derive(Clone, Debug, PartialEq)]
pub(super) struct ExpertRouting {
    load: ExpertLoad,
    experts: u32,
    pub(super) top_k: u32,
    tp: u32,
    ep: u32,
    dp: u32,
    seed: u64,
}

/// Work of a rank, in tokens of all ranks whose choices, spread evenly, would make up as much.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct RoutedWork {
    /// Tokens that would touch as many experts of the rank.
    pub(super) seen: f64,
    /// Tokens with as many choices of the rank's experts.
    pub(super) tokens: f64,
}

impl ExpertRouting {
    pub(super) fn new(spec: &Spec, shape: &ModelShape) -> Option<Self> {
        let experts = shape.experts.as_ref()?;
        Some(Self {
            load: spec.expert_load.clone(),
            experts: experts.count,
            top_k: experts.top_k,
            tp: spec.tp.max(1),
            ep: spec.ep.max(1),
            dp: spec.dp.max(1),
            seed: spec.seed,
        })
    }

    /// Ranks whose tokens reach the experts.
    pub(super) fn dp(&self) -> u64 {
        self.dp.into()
    }

    /// Ranks that share each expert.
    pub(super) fn slices(&self) -> u32 {
        if self.ep == 1 { self.tp } else { 1 }
    }

    /// Tokens that touch all experts if their choices are spread evenly.
    pub(super) fn full(&self) -> f64 {
        f64::from(self.experts) / f64::from(self.top_k)
    }

    /// True if ranks do different work.
    pub(super) fn is_uneven(&self) -> bool {
        self.ep > 1 && self.load != ExpertLoad::Balanced
    }

    /// Mean time of the busiest rank.
    pub(super) fn busiest(&self, tokens: f64, us: &dyn Fn(RoutedWork) -> f64) -> f64 {
        if !self.is_uneven() {
            let seen = self.load.touched(self.experts, self.top_k, tokens) / f64::from(self.top_k);
            return us(RoutedWork { seen, tokens });
        }
        let most = |works: Vec<RoutedWork>| works.into_iter().map(us).fold(0.0, f64::max);
        self.draws(tokens).map(most).sum::<f64>() / DRAWS as f64
    }

    /// Time of each rank over the mean of the busiest, in each draw; empty if ranks do the same.
    pub(super) fn shares(&self, tokens: f64, us: &dyn Fn(RoutedWork) -> f64) -> Vec<Vec<f64>> {
        if !self.is_uneven() {
            return Vec::new();
        }
        let busiest = self.busiest(tokens, us).max(f64::MIN_POSITIVE);
        let rank_shares =
            |works: Vec<RoutedWork>| works.into_iter().map(|work| us(work) / busiest).collect();
        self.draws(tokens).map(rank_shares).collect()
    }

    fn draws(&self, tokens: f64) -> impl Iterator<Item = Vec<RoutedWork>> {
        let popularity = self.load.probabilities(self.experts, self.top_k, tokens);
        (0..DRAWS).map(move |draw| self.draw(tokens, popularity.clone(), draw))
    }

    fn draw(&self, tokens: f64, mut popularity: Vec<f64>, draw: u64) -> Vec<RoutedWork> {
        let mut random =
            fastrand::Rng::with_seed(self.seed ^ (draw + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15));
        // measured counts belong to their experts
        if !matches!(self.load, ExpertLoad::Counts(_)) {
            random.shuffle(&mut popularity);
        }
        let counts = match tokens <= MOST_DRAWN {
            true => self.chosen(tokens.round() as u32, &popularity, &mut random),
            false => popularity.iter().map(|p| about(tokens, *p, &mut random)).collect(),
        };
        let each = (self.experts / self.ep).max(1) as usize;
        let ranks = f64::from(self.ep) / f64::from(self.top_k);
        counts
            .chunks(each)
            .map(|own| {
                let touched = own.iter().filter(|count| **count > 0.0).count() as f64;
                RoutedWork { seen: touched * ranks, tokens: own.iter().sum::<f64>() * ranks }
            })
            .collect()
    }

    /// Number of tokens that choose each expert; each token chooses different ones.
    fn chosen(&self, tokens: u32, popularity: &[f64], random: &mut fastrand::Rng) -> Vec<f64> {
        let sums: Vec<f64> = popularity
            .iter()
            .scan(0.0, |sum, p| {
                *sum += p;
                Some(*sum)
            })
            .collect();
        let total = sums.last().copied().unwrap_or(0.0);
        let mut counts = vec![0.0; popularity.len()];
        let mut own: Vec<usize> = Vec::new();
        for _ in 0..tokens {
            own.clear();
            while own.len() < (self.top_k as usize).min(counts.len()) {
                let at = random.f64() * total;
                let mut choice = sums.partition_point(|sum| *sum <= at).min(counts.len() - 1);
                // the most popular experts come again and again: take the next one
                while own.contains(&choice) {
                    choice = (choice + 1) % counts.len();
                }
                own.push(choice);
                counts[choice] += 1.0;
            }
        }
        counts
    }
}

/// Approximately binomial count.
fn about(tokens: f64, share: f64, random: &mut fastrand::Rng) -> f64 {
    let spread = (tokens * share * (1.0 - share)).max(0.0).sqrt();
    (tokens * share + spread * normal(random)).round().clamp(0.0, tokens)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn routed(load: ExpertLoad, ep: u32) -> ExpertRouting {
        ExpertRouting { load, experts: 128, top_k: 4, tp: ep, ep, dp: 1, seed: 0 }
    }

    /// Time in proportion to experts touched.
    fn seen(work: RoutedWork) -> f64 {
        work.seen
    }

    /// A few tokens differ more between draws than between loads.
    const SEEDS: u64 = 16;

    #[test]
    fn slices_have_the_expected_work_and_whole_experts_that_of_the_busiest_rank() {
        for tokens in [1.0, 16.0, 100.0, 2000.0] {
            let mean = routed(ExpertLoad::Uniform, 1).busiest(tokens, &seen);
            assert!((mean - ExpertLoad::Uniform.touched(128, 4, tokens) / 4.0).abs() < 1e-9);
            let [uniform, skewed, balanced] =
                [ExpertLoad::Uniform, ExpertLoad::PowerLaw(1.2), ExpertLoad::Balanced].map(|load| {
                    let of = |seed| ExpertRouting { seed, ..routed(load.clone(), 8) };
                    let busiest = |seed| of(seed).busiest(tokens, &|work| work.tokens);
                    (0..SEEDS).map(busiest).sum::<f64>() / SEEDS as f64
                });
            assert!((balanced - tokens).abs() < 1e-9 && uniform > balanced, "{tokens}: {uniform}");
            // a single token chooses as many experts either way
            assert!(tokens == 1.0 || skewed > uniform, "{tokens}: {skewed} {uniform}");
        }
        // at one token, four of eight ranks have nothing to do at least
        let shares = routed(ExpertLoad::Uniform, 8).shares(1.0, &seen);
        assert_eq!((shares.len(), shares[0].len()), (8, 8));
        assert!(shares.iter().all(|ranks| ranks.iter().filter(|share| **share == 0.0).count() >= 4));
        assert!(routed(ExpertLoad::Balanced, 8).shares(1.0, &seen).is_empty());
    }

    #[test]
    fn all_choices_are_of_different_experts_and_follow_popularity() {
        let routed = routed(ExpertLoad::Uniform, 1);
        let mut random = fastrand::Rng::with_seed(1);
        let mut popularity = vec![0.0; 128];
        popularity[..8].fill(0.5);
        let counts = routed.chosen(100, &popularity, &mut random);
        assert_eq!(counts.iter().sum::<f64>(), 400.0);
        assert!(counts[..8].iter().all(|count| *count > 10.0 && *count <= 100.0), "{counts:?}");
    }
}
