//! What generations computed, looked at: a run whose ranks or samples do not compute the same, or whose logits are no
//! numbers, has times of something else, however fast it was.

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use base::error::{Error, Result};
use base::hash::short_key;
use base::text::counted;
use table::Spec;

/// What one rank computed in one generation.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Computed {
    /// The hash of all tokens that it chose.
    pub tokens: String,
    /// Logits that were infinite or no numbers.
    pub not_finite: u64,
}

impl Computed {
    /// What a rank computed that chose these tokens, in an order that is the same for all ranks and generations.
    pub fn of<'a>(tokens: impl IntoIterator<Item = &'a u32>, not_finite: u64) -> Self {
        let bytes: Vec<u8> = tokens.into_iter().flat_map(|token| token.to_le_bytes()).collect();
        Self { tokens: short_key(bytes), not_finite }
    }
}

/// Compares the generations of a run, all of them greedy and from the same prompts.
#[derive(Debug)]
pub(super) struct Comparison {
    architecture: String,
    /// Whether ranks must choose the same tokens: where no rank has a residual of its own.
    ranks_agree: bool,
    /// The first generation's name, and what its ranks computed.
    first: Option<(String, Vec<Computed>)>,
    generations: u32,
}

impl Comparison {
    /// For the generations of a run of this cell of a model with so many layers.
    pub fn new(spec: &Spec, layers: u32) -> Self {
        Self {
            architecture: spec.architecture.to_string(),
            ranks_agree: !spec.architecture.wiring(layers).may_diverge(),
            first: None,
            generations: 0,
        }
    }

    /// Looks at a generation, by rank; `name` is what people call it.
    ///
    /// # Errors
    ///
    /// A failure where logits are not finite, where ranks disagree that must not, and where a rank's tokens are not
    /// those of the first generation.
    pub fn take(&mut self, name: &str, ranks: &[Computed]) -> Result<()> {
        let failed =
            |why: String| Err(Error::failed(format!("{name}: {why}; its times count for nothing")));
        if let Some((rank, wrong)) = ranks.iter().enumerate().find(|(_, rank)| rank.not_finite > 0) {
            let logits = counted(wrong.not_finite as usize, "logit");
            return failed(format!("{logits} of rank {rank} are infinite or no numbers"));
        }
        let differs = ranks.iter().position(|rank| rank.tokens != ranks[0].tokens);
        if let (true, Some(rank)) = (self.ranks_agree, differs) {
            let architecture = &self.architecture;
            return failed(format!(
                "rank {rank} chose other tokens than rank 0, and all ranks of {architecture} compute the same"
            ));
        }
        self.generations += 1;
        let Some((first, before)) = &self.first else {
            self.first = Some((name.to_owned(), ranks.to_vec()));
            return Ok(());
        };
        let mut pairs = ranks.iter().zip(before);
        match pairs.position(|(now, before)| now.tokens != before.tokens) {
            Some(rank) => failed(format!(
                "rank {rank} chose other tokens than in {first}, from the same prompts and without chance"
            )),
            None => Ok(()),
        }
    }

    /// For the record: what was the same in how many generations (warm-ups too), and whether ranks were compared.
    pub fn environment(&self) -> Value {
        let ranks = self.first.as_ref().map_or(&[][..], |(_, ranks)| ranks);
        json!({
            "tokens": ranks.first().map(|rank| &rank.tokens),
            "generations": self.generations,
            "ranks": ranks.len(),
            "ranks_agree": (self.ranks_agree && ranks.len() > 1).then_some(true),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sim::testing::spec;

    fn computed(tokens: &[u32]) -> Computed {
        Computed::of(tokens, 0)
    }

    fn error(result: Result<()>) -> String {
        result.expect_err("it must not pass").to_string()
    }

    #[test]
    fn samples_and_ranks_that_agree_pass() {
        let mut all = Comparison::new(&spec("ladder", "tiny"), 4);
        for name in ["warm-up 1/1", "sample 1/2", "sample 2/2"] {
            all.take(name, &[computed(&[1, 2, 3]), computed(&[1, 2, 3])]).unwrap();
        }
        let said = all.environment();
        assert_eq!((&said["generations"], &said["ranks"]), (&json!(3), &json!(2)), "{said}");
        assert_eq!(said["ranks_agree"], true);
    }

    #[test]
    fn other_tokens_of_a_rank_or_a_sample_fail() {
        let mut all = Comparison::new(&spec("standard", "tiny"), 4);
        let why = error(all.take("sample 1/2", &[computed(&[1, 2]), computed(&[1, 3])]));
        assert!(why.starts_with("sample 1/2: rank 1 chose other tokens than rank 0"), "{why}");
        all.take("sample 1/2", &[computed(&[1, 2]), computed(&[1, 2])]).unwrap();
        let why = error(all.take("sample 2/2", &[computed(&[2, 1]), computed(&[2, 1])]));
        assert!(why.starts_with("sample 2/2: rank 0 chose other tokens than in sample 1/2"), "{why}");
    }

    #[test]
    fn ranks_with_residuals_of_their_own_may_differ_from_each_other_but_not_from_sample_to_sample() {
        for architecture in ["desync:2", "upper-bound"] {
            let mut all = Comparison::new(&spec(architecture, "tiny"), 4);
            all.take("sample 1/2", &[computed(&[1]), computed(&[2])]).unwrap();
            assert_eq!(all.environment()["ranks_agree"], Value::Null);
            let why = error(all.take("sample 2/2", &[computed(&[1]), computed(&[1])]));
            assert!(why.contains("rank 1 chose other tokens than in sample 1/2"), "{why}");
        }
    }

    #[test]
    fn logits_that_are_no_numbers_fail() {
        let mut all = Comparison::new(&spec("upper-bound", "tiny"), 4);
        let why = error(all.take("sample 1/1", &[computed(&[1]), Computed::of(&[1], 5)]));
        assert!(why.starts_with("sample 1/1: 5 logits of rank 1 are infinite or no numbers"), "{why}");
    }
}
