//! Training text: held-out split and the windows of each step.

use base::error::{Error, Result};
use base::hash;

/// Training tokens and, from the end of the text, held-out tokens.
#[derive(Clone, Debug)]
pub(super) struct Data {
    pub train: Vec<u32>,
    pub held_out: Vec<u32>,
    context: usize,
}

impl Data {
    /// Holds out `held_out_pct` percent of the tokens, at least one window. Returns an input error, with the text's
    /// `name`, if less than a window is left for training.
    pub fn split(mut tokens: Vec<u32>, context: usize, held_out_pct: f64, name: &str) -> Result<Self> {
        let all = tokens.len();
        let share = (all as f64 * held_out_pct / 100.0).round() as usize;
        // a window has one token more than it predicts
        let least = context + 1;
        let held_out = share.max(least);
        if all < held_out + least {
            return Err(Error::input_help(
                format!(
                    "{name}: the text has {all} tokens, {held_out} of them held out: fewer than a window of {context} \
                     and the token after it are left to train on"
                ),
                format!("use a text of at least {} tokens, or a smaller --context", held_out + least),
            ));
        }
        let held_out = tokens.split_off(all - held_out);
        Ok(Self { train: tokens, held_out, context })
    }

    pub fn key(&self) -> String {
        let words = [&self.train, &self.held_out].into_iter().flat_map(|part| {
            let tokens = part.iter().flat_map(|token| token.to_le_bytes());
            tokens.chain((part.len() as u64).to_le_bytes()).collect::<Vec<u8>>()
        });
        hash::short_key(words.collect::<Vec<u8>>())
    }

    fn count(&self) -> usize {
        // this many windows fit after every shift, unless the text is hardly longer than one
        ((self.train.len() - self.context) / self.context).max(1)
    }

    /// Windows of step `step`, from 0. Each pass over the text starts at a random shift within its first window and
    /// shuffles its windows; both depend only on the seed and the number of the pass.
    pub fn windows(&self, seed: u64, step: u32, batch: u32) -> Vec<&[u32]> {
        let count = self.count();
        let first = step as usize * batch as usize;
        let mut pass: Option<(usize, usize, Vec<usize>)> = None;
        (first..first + batch as usize)
            .map(|window| {
                let number = window / count;
                if pass.as_ref().is_none_or(|(known, ..)| *known != number) {
                    pass = Some(self.pass(seed, number));
                }
                let at = pass
                    .as_ref()
                    .map_or(0, |(_, shift, order)| shift + order[window % count] * self.context);
                &self.train[at..=at + self.context]
            })
            .collect()
    }

    fn pass(&self, seed: u64, number: usize) -> (usize, usize, Vec<usize>) {
        let mut random = fastrand::Rng::with_seed(
            seed.wrapping_mul(0x9e37_79b9_7f4a_7c15)
                ^ (number as u64).wrapping_mul(0xd1b5_4a32_d192_ed03),
        );
        let count = self.count();
        let most = (self.train.len() - 1 - count * self.context).min(self.context - 1);
        let shift = random.usize(0..=most);
        let mut order: Vec<usize> = (0..count).collect();
        random.shuffle(&mut order);
        (number, shift, order)
    }

    pub fn held_out(&self, most: usize) -> Vec<&[u32]> {
        let starts = (0..).step_by(self.context).take(most);
        starts.map_while(|at| self.held_out.get(at..=at + self.context)).collect()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// Every token but those at the ends is predicted once a pass, windows never reach what is held out, and the
        /// same step has the same windows whoever asks.
        #[test]
        fn windows_follow_from_seed_and_step(
            length in 20usize..400, context in 2usize..9, batch in 1u32..5, seed: u64, pct in 0f64..40.0,
        ) {
            let tokens: Vec<u32> = (0..length as u32).collect();
            let data = Data::split(tokens, context, pct, "t");
            prop_assume!(data.is_ok());
            let data = data.unwrap();
            prop_assert_eq!(data.train.len() + data.held_out.len(), length);
            let count = data.count();
            let mut seen = std::collections::HashSet::new();
            for step in 0..(2 * count as u32).div_ceil(batch) {
                let windows = data.windows(seed, step, batch);
                prop_assert_eq!(&windows, &data.windows(seed, step, batch));
                for (at, window) in windows.iter().enumerate() {
                    prop_assert_eq!(window.len(), context + 1);
                    prop_assert!(window[context] < data.train.len() as u32);
                    if step as usize * batch as usize + at < count {
                        prop_assert!(seen.insert(window[0]), "a window twice in a pass");
                    }
                }
            }
            prop_assert!((count * context) as f64 > data.train.len() as f64 - 2.0 * context as f64 - 1.0);
            prop_assert!(!data.held_out(usize::MAX).is_empty());
            prop_assert!(data.held_out(1)[0][0] >= data.train.len() as u32);
        }
    }

    #[test]
    fn seeds_and_passes_differ_and_a_short_text_is_told() {
        let data = Data::split((0..500).collect(), 8, 10.0, "t").unwrap();
        assert_ne!(data.windows(0, 0, 8), data.windows(1, 0, 8));
        let count = data.count() as u32;
        assert_ne!(data.windows(0, 0, count), data.windows(0, 1, count), "another pass");
        let other = Data::split((0..500).collect(), 8, 20.0, "t").unwrap();
        assert_ne!(data.key(), other.key());
        let error = Data::split((0..17).collect(), 8, 10.0, "text.txt").unwrap_err();
        assert!(
            error.to_string().starts_with("text.txt: the text has 17 tokens, 9 of them held out"),
            "{error}"
        );
        assert!(Data::split((0..18).collect(), 8, 10.0, "text.txt").is_ok());
    }
}
