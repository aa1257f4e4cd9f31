//! Built-in model shapes, of `built_in.json`: those benchmarked in the Ladder Residual paper, released Llama-family
//! models, and small ones for tests and laptops; built-in mixtures with other numbers of experts.

use std::sync::LazyLock;

use serde::Deserialize;

use super::Model;
use base::error::{Error, Result};
use plan::{DType, ExpertShape, ModelShape};

static MODELS: LazyLock<Vec<Model>> = LazyLock::new(|| {
    #[derive(Deserialize)]
    struct Entry {
        name: String,
        shape: ModelShape,
        /// Number format in which the experts of the released checkpoint are stored, if packed.
        dtype: Option<DType>,
        note: Option<&'static str>,
    }
    let entries: Vec<Entry> = serde_json::from_str(include_str!("built_in.json")).expect("valid models");
    let model = |Entry { name, shape, dtype, note }| Model {
        name,
        shape,
        dir: None,
        wiring: None,
        dtype,
        eos: Vec::new(),
        warnings: Vec::new(),
        has_weights: false,
        note,
    };
    entries.into_iter().map(model).collect()
});

impl Model {
    /// All built-in shapes: the paper's and released ones, then the one for tests.
    pub fn built_in() -> Vec<Self> {
        MODELS.clone()
    }

    /// True for a built-in name, perhaps with other experts.
    pub fn is_built_in(name: &str) -> bool {
        let base = name.split(CHANGES_SEPARATOR).next();
        MODELS.iter().any(|model| Some(model.name.as_str()) == base)
    }

    pub(super) fn built_in_named(name: &str) -> Option<Self> {
        MODELS.iter().find(|model| model.name == name).cloned()
    }

    /// Built-in names, in the order of [`Model::built_in`].
    pub(super) fn built_in_names() -> impl Iterator<Item = &'static str> {
        MODELS.iter().map(|model| model.name.as_str())
    }
}

/// Separates a mixture's name from changes of its experts, as in `gpt-oss-20b@experts=64,top-k=2`.
const CHANGES_SEPARATOR: char = '@';

/// Keys: routed experts per layer, experts per token.
const KEYS: [&str; 2] = ["experts", "top-k"];

fn numbers(experts: &mut ExpertShape) -> [&mut u32; 2] {
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
        let Some(own) = Self::experts_of_built_in(base) else { return name.to_owned() };
        let changed = KEYS.iter().zip(wanted).zip(own).filter(|((_, wanted), own)| wanted != own);
        let changed: Vec<String> = changed.map(|((key, wanted), _)| format!("{key}={wanted}")).collect();
        match changed.is_empty() {
            true => base.to_owned(),
            false => format!("{base}{CHANGES_SEPARATOR}{}", changed.join(",")),
        }
    }

    /// Built-in shape, with the experts changed as in `NAME@experts=N`; `None` if NAME is not built in.
    pub(super) fn with_changed_experts(name: &str) -> Result<Option<Self>> {
        let (base, changes) =
            name.split_once(CHANGES_SEPARATOR).map_or((name, None), |(base, rest)| (base, Some(rest)));
        let Some(mut model) = Self::built_in_named(base) else { return Ok(None) };
        let Some(changes) = changes else { return Ok(Some(model)) };
        let wrong = |why: String| {
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
            let at = KEYS.iter().position(|known| *known == key);
            let at = at.ok_or_else(|| wrong(format!("'{key}' is neither experts nor top-k")))?;
            let value =
                value.parse().map_err(|_| wrong(format!("{key} '{value}' is not a whole number")))?;
            *numbers(experts)[at] = value;
        }
        if let Some(problem) = experts.routing_problem() {
            return Err(wrong(problem));
        }
        model.name = Self::named_with_experts(name, [experts.count, experts.top_k]);
        Ok(Some(model))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use plan::Yarn;

    fn parameters(name: &str) -> u64 {
        Model::built_in_named(name).map_or(0, |m| m.shape.parameters())
    }

    #[test]
    fn parameter_counts_are_those_of_the_released_models() {
        assert_eq!(parameters("llama-3-8b"), 8_030_261_248);
        assert_eq!(parameters("llama-3-70b"), 70_553_706_496);
        assert_eq!(parameters("llama-3.2-1b"), 1_235_814_400);
        assert_eq!(parameters("llama-3.2-3b"), 3_212_749_824);
        assert_eq!(parameters("34b"), 33_743_970_304);
        assert_eq!(parameters("llama-2-7b"), 6_738_415_616);
        assert_eq!(parameters("llama-2-13b"), 13_015_864_320);
        assert_eq!(parameters("llama-2-70b"), 68_976_648_192);
        assert_eq!(parameters("llama-3.1-8b"), parameters("llama-3-8b"));
        assert_eq!(parameters("llama-3.1-70b"), parameters("llama-3.3-70b-instruct"));
        assert_eq!(parameters("mistral-7b"), 7_241_732_096);
        assert_eq!(parameters("qwen2.5-7b"), 7_615_616_512);
        assert_eq!(parameters("qwen2.5-72b-instruct"), 72_706_203_648);
        assert_eq!(parameters("qwen3-8b"), 8_190_735_360);
        assert_eq!(parameters("qwen3-32b"), 32_762_123_264);
        assert!((parameters("internlm-20b") as f64 / 1e9 - 20.1).abs() < 0.1);
    }

    /// Published totals and active parameters are rounded; these are the shapes' own.
    #[test]
    fn mixtures_of_experts_have_the_parameters_of_their_names() {
        for (name, billions) in [
            ("mixtral-8x7b", 46.7),
            ("qwen3-30b-a3b", 30.5),
            ("qwen3-235b-a22b", 235.1),
            ("gpt-oss-20b", 20.9),
            ("gpt-oss-120b", 116.8),
            ("deepseek-v3", 671.0),
            ("llama-4-scout", 107.8),
            ("instella-moe-16b", 15.8),
        ] {
            let counted = parameters(name) as f64 / 1e9;
            assert!((counted / billions - 1.0).abs() < 0.01, "{name}: {counted}");
        }
        let yarn = |name| Model::built_in_named(name).and_then(|model| model.shape.rope.yarn).unwrap();
        let [gpt_oss, deepseek] = ["gpt-oss-20b", "deepseek-v3"].map(yarn);
        let scales = [(gpt_oss.rotated_scale, gpt_oss), (deepseek.score_scale.sqrt(), deepseek)];
        for (scale, yarn) in scales {
            assert!((scale - Yarn::magnitude(yarn.factor, 1.0)).abs() < 1e-12);
        }
    }

    #[test]
    fn the_papers_own_shapes_have_the_sizes_their_names_and_notes_say() {
        assert_eq!(parameters("bloom-176b") / 1_000_000_000, 215);
        assert!((parameters("bloom-176b") as f64 / 1e9 - 216.0).abs() < 0.5);
        assert!((parameters("1b") as f64 / 1e9 - 1.3).abs() < 0.1);
        assert!((parameters("3b") as f64 / 1e9 - 3.6).abs() < 0.2);
        assert!((parameters("stories-110m") as f64 / 1e6 - 110.0).abs() < 1.0);
    }

    #[test]
    fn names_are_unique_and_every_shape_is_whole() {
        let models = Model::built_in();
        let mut names: Vec<&str> = models.iter().map(|m| m.name.as_str()).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), models.len());
        for model in &models {
            let shape = &model.shape;
            let square = shape.head_dim * shape.heads == shape.hidden;
            let narrow = [
                "qwen3-32b",
                "qwen3-30b-a3b",
                "qwen3-235b-a22b",
                "gpt-oss-20b",
                "gpt-oss-120b",
                "deepseek-v3",
            ];
            assert_eq!(square, !narrow.contains(&model.name.as_str()), "{}", model.name);
            assert_eq!(shape.expert_problem(1, 1, 1), None, "{}", model.name);
            assert!(Model::resolve(&model.name.to_uppercase()).is_ok_and(|m| m.shape == *shape));
            assert_eq!(shape.head_dim % 2, 0, "RoPE rotates pairs: {}", model.name);
            assert_eq!(shape.heads % shape.kv_heads, 0, "{}", model.name);
            assert_eq!(shape.tp_problem(1), None, "{}", model.name);
        }
        let has_note = |name: &str| models.iter().any(|m| m.name == name && m.note.is_some());
        assert!(has_note("bloom-176b") && has_note("llama-3.1-405b"));
    }

    #[test]
    fn the_405b_can_be_sharded_16_ways_as_benchmarked() {
        let model = Model::built_in_named("llama-3.1-405b").map(|m| m.shape.tp_problem(16));
        assert_eq!(model, Some(None));
    }

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
