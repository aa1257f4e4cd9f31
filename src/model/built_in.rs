//! Built-in model shapes, of `built_in.json`: those benchmarked in the Ladder Residual paper, released Llama-family
//! models, and small ones for tests and laptops.

use std::sync::LazyLock;

use serde::Deserialize;

use super::Model;
use super::changed_experts::CHANGES_SEPARATOR;
use plan::{DType, ModelShape};

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
    let to_model = |Entry { name, shape, dtype, note }| Model {
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
    entries.into_iter().map(to_model).collect()
});

impl Model {
    /// All built-in models: the paper's and released ones, then the one for tests.
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
}
