//! Draws with replacement and percentiles, which a bootstrap computes thousands of times.

/// Percentile `p` (0 to 100), linearly interpolated at position `p / 100 x (n - 1)` of the sorted values
/// (NumPy's default, Hyndman and Fan's type 7). Reorders the values in O(n); `None` without any.
pub fn percentile(values: &mut [f64], p: f64) -> Option<f64> {
    let last = values.len().checked_sub(1)?;
    let position = (p / 100.0).clamp(0.0, 1.0) * last as f64;
    let (_, &mut low, above) = values.select_nth_unstable_by(position.floor() as usize, f64::total_cmp);
    let fraction = position.fract();
    // The next value up is the minimum of those above; not needed without a fraction.
    let high = above.iter().copied().min_by(f64::total_cmp).filter(|_| fraction > 0.0);
    Some(high.map_or(low, |high| low + (high - low) * fraction))
}

/// Draws of rounds, and of samples within them.
pub struct BootstrapDraws {
    random: fastrand::Rng,
    rounds: Vec<usize>,
}

impl BootstrapDraws {
    /// Deterministic for a seed and number of rounds.
    pub fn new(seed: u64, rounds: usize) -> Self {
        Self { random: fastrand::Rng::with_seed(seed), rounds: vec![0; rounds] }
    }

    /// Draws as many rounds as there are, with replacement.
    pub fn draw_rounds(&mut self) {
        let rounds = self.rounds.len();
        self.rounds.fill_with(|| self.random.usize(..rounds));
    }

    /// Draws from each drawn round as many sample indices as it has, with replacement. Round `i` covers
    /// `starts[i]..starts[i + 1]` and must not be empty.
    pub fn draw_samples(&mut self, starts: &[usize], places: &mut Vec<usize>) {
        places.clear();
        for &round in &self.rounds {
            let (start, end) = (starts[round], starts[round + 1]);
            places.extend((start..end).map(|_| start + self.random.usize(..end - start)));
        }
    }
}

/// Replaces `into` by the values at these indices.
pub fn gather(values: &[f64], places: &[usize], into: &mut Vec<f64>) {
    into.clear();
    into.extend(places.iter().map(|&place| values[place]));
}
