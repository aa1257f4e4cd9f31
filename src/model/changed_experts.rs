//! Built-in mixtures with other numbers of experts, named as in `gpt-oss-20b@experts=64,top-k=2`.

use super::Model;
use base::error::{Error, Result};
use plan::ExpertShape;

/// Separates a mixture's name from changes of its experts, as in `gpt-oss-20b@experts=64,top-k=2`.
pub(super) const CHANGES_SEPARATOR: char = '@';

/// Keys of the changes: routed experts per layer, experts per token.
const EXPERT_KEYS: [&str; 2] = ["experts", "top-k"];

/// Numbers of a mixture in the order of [`EXPERT_KEYS`].
fn expert_numbers(experts: &mut ExpertShape) -> [&mut u32; 2] {
    [&mut experts.count, &mut experts.top_k]
}

impl Model {
    /// Experts and top-k of a built-in mixture by name, changes included.
    pub fn experts_of_built_in(name: &str) -> Option<[u32; 2]> {
        let experts = Self::with_changed_experts(name).ok()??.shape.experts?;
        Some([experts.count, experts.top_k])
    }

    /// Name of a built-in mixture with these experts and top-k; unchanged for dense models.
    #[must_use]
    pub fn named_with_experts(name: &str, wanted: [u32; 2]) -> String {
        let base = name.split(CHANGES_SEPARATOR).next().unwrap_or(name);
        let Some(built_in) = Self::experts_of_built_in(base) else { return name.to_owned() };
        let numbers = EXPERT_KEYS.iter().zip(wanted).zip(built_in);
        let changes: Vec<String> = numbers
            .filter(|((_, wanted), built_in)| wanted != built_in)
            .map(|((key, wanted), _)| format!("{key}={wanted}"))
            .collect();
        match changes.is_empty() {
            true => base.to_owned(),
            false => format!("{base}{CHANGES_SEPARATOR}{}", changes.join(",")),
        }
    }

    /// Built-in shape, with the experts changed as in `NAME@experts=N`; `None` if NAME is not built in.
    pub(super) fn with_changed_experts(name: &str) -> Result<Option<Self>> {
        let (base, changes) =
            name.split_once(CHANGES_SEPARATOR).map_or((name, None), |(base, rest)| (base, Some(rest)));
        let Some(mut model) = Self::built_in_named(base) else { return Ok(None) };
        let Some(changes) = changes else { return Ok(Some(model)) };
        let change_error = |why: String| {
            Error::input_help(
                format!("model '{name}': {why}"),
                format!(
                    "write {base}{CHANGES_SEPARATOR}experts=N, top-k=K, or both with a comma between"
                ),
            )
        };
        let Some(experts) = &mut model.shape.experts else {
            return Err(Error::input(format!("model '{name}': {base} has no experts")));
        };
        for change in changes.split(',') {
            let (key, value) = change.split_once('=').unwrap_or((change, ""));
            let index = EXPERT_KEYS.iter().position(|known| *known == key);
            let index =
                index.ok_or_else(|| change_error(format!("'{key}' is neither experts nor top-k")))?;
            let value = value
                .parse()
                .map_err(|_| change_error(format!("{key} '{value}' is not a whole number")))?;
            *expert_numbers(experts)[index] = value;
        }
        if let Some(problem) = experts.routing_problem() {
            return Err(change_error(problem));
        }
        model.name = Self::named_with_experts(name, [experts.count, experts.top_k]);
        Ok(Some(model))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_changes_the_experts_and_nothing_else() {
        let plain = Model::resolve("gpt-oss-20b").unwrap();
        let changed = Model::resolve("gpt-oss-20b@experts=64,top-k=2").unwrap();
        let experts = changed.shape.experts.unwrap();
        assert_eq!((experts.count, experts.top_k), (64, 2));
        let mut back = changed.shape;
        back.experts = plain.shape.experts;
        assert_eq!(back, plain.shape);
        // one name for one shape
        for (name, canonical) in [
            ("gpt-oss-20b@top-k=2,experts=64", "gpt-oss-20b@experts=64,top-k=2"),
            ("gpt-oss-20b@experts=32,top-k=8", "gpt-oss-20b@top-k=8"),
            ("gpt-oss-20b@top-k=4", "gpt-oss-20b"),
        ] {
            assert_eq!(Model::resolve(name).unwrap().name, canonical);
        }
        assert_eq!(Model::named_with_experts("llama-3-8b", [8, 2]), "llama-3-8b");
        assert!(Model::is_built_in("gpt-oss-20b@top-k=8") && !Model::is_built_in("./x@top-k=8"));
    }

    #[test]
    fn mistakes_are_named() {
        for (name, why) in [
            ("llama-3-8b@experts=8", "llama-3-8b has no experts"),
            ("gpt-oss-20b@topk=2", "'topk' is neither experts nor top-k"),
            ("gpt-oss-20b@experts=many", "experts 'many' is not a whole number"),
            ("gpt-oss-20b@experts=2", "top-k 4 of 2 experts"),
            ("gpt-oss-20b@experts=1500000", "1500000 experts: at most 65536"),
            ("deepseek-v3@experts=100", "4 of 8 groups of 100 experts"),
            ("gpt-oss@experts=2", "unknown model"),
        ] {
            let error = Model::resolve(name).unwrap_err();
            assert!(error.exit_code() == 2 && error.to_string().contains(why), "{name}: {error}");
        }
    }
}
