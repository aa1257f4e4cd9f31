//! Comparison of the tokens that the ranks and generations of a run choose.

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use base::checksum::short_key;
use base::error::{Error, Result};
use base::text::counted;
use table::Spec;

/// Result of one rank's generation.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct GeneratedTokens {
    /// Hash of the tokens.
    pub tokens: String,
    /// Number of infinite and NaN logits.
    pub not_finite: u64,
}

impl GeneratedTokens {
    /// `tokens` must have the same order on all ranks and in all generations.
    pub fn new<'a>(tokens: impl IntoIterator<Item = &'a u32>, not_finite: u64) -> Self {
        let bytes: Vec<u8> = tokens.into_iter().flat_map(|token| token.to_le_bytes()).collect();
        Self { tokens: short_key(bytes), not_finite }
    }
}

/// Compares the generations of a run; all are greedy and start from the same prompts.
#[derive(Debug)]
pub(super) struct TokenComparison {
    architecture: String,
    /// True if all ranks must choose the same tokens, that is, no rank has its own residual.
    ranks_agree: bool,
    first: Option<(String, Vec<GeneratedTokens>)>,
    generations: u32,
}

impl TokenComparison {
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
    pub fn check(&mut self, name: &str, ranks: &[GeneratedTokens]) -> Result<()> {
        let failed =
            |why: String| Err(Error::failed(format!("{name}: {why}; its timings are discarded")));
        if let Some((rank, wrong)) = ranks.iter().enumerate().find(|(_, rank)| rank.not_finite > 0) {
            let logits = counted(wrong.not_finite as usize, "logit");
            return failed(format!("{logits} of rank {rank} are infinite or NaN"));
        }
        let differs = ranks.iter().position(|rank| rank.tokens != ranks[0].tokens);
        if let (true, Some(rank)) = (self.ranks_agree, differs) {
            let architecture = &self.architecture;
            return failed(format!(
                "rank {rank} chose other tokens than rank 0, but all ranks of {architecture} compute the same"
            ));
        }
        self.generations += 1;
        let (first, before) = self.first.get_or_insert_with(|| (name.to_owned(), ranks.to_vec()));
        match ranks.iter().zip(before).position(|(now, before)| now.tokens != before.tokens) {
            Some(rank) => failed(format!(
                "rank {rank} chose other tokens than in {first}, from the same prompts and without sampling"
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

    fn hashed(tokens: &[u32]) -> GeneratedTokens {
        GeneratedTokens::new(tokens, 0)
    }

    fn error(result: Result<()>) -> String {
        result.unwrap_err().to_string()
    }

    #[test]
    fn samples_and_ranks_that_agree_pass() {
        let mut all = TokenComparison::new(&spec("ladder", "tiny"), 4);
        for name in ["warm-up 1/1", "sample 1/2", "sample 2/2"] {
            all.check(name, &[hashed(&[1, 2, 3]), hashed(&[1, 2, 3])]).unwrap();
        }
        let hash = &hashed(&[1, 2, 3]).tokens;
        let expected = json!({ "tokens": hash, "generations": 3, "ranks": 2, "ranks_agree": true });
        assert_eq!(all.environment(), expected);
    }

    #[test]
    fn nan_logits_and_other_tokens_of_a_rank_or_a_sample_fail() {
        let mut all = TokenComparison::new(&spec("standard", "tiny"), 4);
        let why = error(all.check("sample 1/1", &[hashed(&[1]), GeneratedTokens::new(&[1], 5)]));
        assert!(why.starts_with("sample 1/1: 5 logits of rank 1 are infinite or NaN"), "{why}");
        let why = error(all.check("sample 1/2", &[hashed(&[1, 2]), hashed(&[1, 3])]));
        assert!(why.starts_with("sample 1/2: rank 1 chose other tokens than rank 0"), "{why}");
        all.check("sample 1/2", &[hashed(&[1, 2]), hashed(&[1, 2])]).unwrap();
        let why = error(all.check("sample 2/2", &[hashed(&[2, 1]), hashed(&[2, 1])]));
        assert!(why.starts_with("sample 2/2: rank 0 chose other tokens than in sample 1/2"), "{why}");
    }

    #[test]
    fn ranks_with_their_own_residual_may_differ_between_ranks_but_not_between_samples() {
        for architecture in ["desync:2", "upper-bound"] {
            let mut all = TokenComparison::new(&spec(architecture, "tiny"), 4);
            all.check("sample 1/2", &[hashed(&[1]), hashed(&[2])]).unwrap();
            assert_eq!(all.environment()["ranks_agree"], Value::Null);
            let why = error(all.check("sample 2/2", &[hashed(&[1]), hashed(&[1])]));
            assert!(why.contains("rank 1 chose other tokens than in sample 1/2"), "{why}");
        }
    }
}
