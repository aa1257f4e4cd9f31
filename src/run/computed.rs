//! Checks the tokens and logits of generations. If ranks or samples compute different tokens, or logits are not
//! finite, the measured times are meaningless.

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use base::error::{Error, Result};
use base::hash::short_key;
use base::text::counted;
use table::Spec;

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Computed {
    pub tokens: String,
    pub not_finite: u64,
}

impl Computed {
    /// `tokens` must have the same order on all ranks and in all generations.
    pub fn of<'a>(tokens: impl IntoIterator<Item = &'a u32>, not_finite: u64) -> Self {
        let bytes: Vec<u8> = tokens.into_iter().flat_map(|token| token.to_le_bytes()).collect();
        Self { tokens: short_key(bytes), not_finite }
    }
}

/// Compares the generations of a run; all are greedy and start from the same prompts.
#[derive(Debug)]
pub(super) struct Comparison {
    architecture: String,
    /// True if all ranks must choose the same tokens, that is, no rank has its own residual.
    ranks_agree: bool,
    first: Option<(String, Vec<Computed>)>,
    generations: u32,
}

impl Comparison {
    pub fn new(spec: &Spec, layers: u32) -> Self {
        Self {
            architecture: spec.architecture.to_string(),
            ranks_agree: !spec.architecture.wiring(layers).may_diverge(),
            first: None,
            generations: 0,
        }
    }

    /// Checks a generation's results, by rank; `name` is used in errors.
    ///
    /// # Errors
    ///
    /// Returns an error if logits are not finite, if ranks disagree that must agree, or if a rank's tokens differ
    /// from the first generation.
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

    /// Entry for the run record: the token hash, the number of compared generations (including warm-ups), and if
    /// ranks were compared.
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
