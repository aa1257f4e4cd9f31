//! Built-in model shapes: those benchmarked in the Ladder Residual paper, released Llama-family models,
//! and small ones for tests and laptops; built-in mixtures with other numbers of experts.

use super::Model;
use base::error::{Error, Result};
use plan::{
    AttentionShape, DType, ExpertActivation, ExpertShape, HeadStep, Latent, ModelShape, Rope,
    RopeScaling, RouterBias, RouterScore, Routing, Temperature, Window, Yarn,
};

const BLOOM_NOTE: &str =
    "with the paper's gated MLP, 216 B parameters (the released BLOOM has 176 B and an ungated MLP)";
const LLAMA_405B_NOTE: &str =
    "16 KV heads, as benchmarked in the paper for TP 16 (the released model has 8)";

const SCOUT_NOTE: &str = "attention in 3 of 4 layers is in chunks of 8192; the others have no RoPE";

const INSTELLA_NOTE: &str = "from its published config; attention is gated";

const MINI_NOTE: &str =
    "3.6 M parameters and a vocabulary of bytes, to be trained from scratch with `adapt`";

const MINI_MOE_NOTE: &str =
    "mini with 8 experts, of which a token passes 2 and a shared one, as in dots.llm1: 5.0 M parameters";

/// Table row; the rest of a shape is derived from it.
struct Row {
    name: &'static str,
    layers: u32,
    hidden: u32,
    heads: u32,
    kv_heads: u32,
    /// If different from hidden / heads.
    head_dim: Option<u32>,
    qkv: HeadStep,
    intermediate: u32,
    vocab: u32,
    rope: Rope,
    norm_eps: f64,
    tied: bool,
    attention: AttentionShape,
    experts: Option<ExpertShape>,
    /// Number format in which the experts of the released checkpoint are stored, if packed.
    dtype: Option<DType>,
    note: Option<&'static str>,
}

/// Rotary embedding with base `theta` and no frequency scaling.
const fn plain(theta: f64) -> Rope {
    Rope::plain(theta)
}

/// RoPE of Llama 3.1 and 3.2.
const fn llama3(factor: f64) -> Rope {
    Rope {
        theta: 500_000.0,
        scaling: Some(RopeScaling {
            factor,
            low_freq_factor: 1.0,
            high_freq_factor: 4.0,
            original_context: 8192.0,
        }),
        yarn: None,
    }
}

const fn row(name: &'static str, sizes: [u32; 6], rope: Rope) -> Row {
    let [layers, hidden, heads, kv_heads, intermediate, vocab] = sizes;
    let (head_dim, qkv, norm_eps, tied, note) = (None, HeadStep::Plain, 1e-5, false, None);
    Row {
        name,
        layers,
        hidden,
        heads,
        kv_heads,
        head_dim,
        qkv,
        intermediate,
        vocab,
        rope,
        norm_eps,
        tied,
        attention: AttentionShape::PLAIN,
        experts: None,
        dtype: None,
        note,
    }
}

const fn qwen(name: &'static str, sizes: [u32; 6], qkv: HeadStep) -> Row {
    Row { norm_eps: 1e-6, qkv, ..row(name, sizes, plain(1_000_000.0)) }
}

/// Experts of Mixtral and Qwen3: softmax over all, chosen weights divided by their sum.
const fn softmax(count: u32, top_k: u32, width: u32) -> ExpertShape {
    ExpertShape::plain(count, top_k, width, Routing::plain(RouterScore::Softmax, true))
}

/// Routing of DeepSeek-V3 without its limit to groups.
const SIGMOID: Routing =
    Routing { bias: RouterBias::Choice, scale: 2.5, ..Routing::plain(RouterScore::Sigmoid, true) };

const fn latent(q_rank: Option<u32>, rope_dim: u32, is_gated: bool) -> AttentionShape {
    // 128 columns of a value; those of a key without RoPE follow from the family
    let nope_dim = if is_gated { 96 } else { 128 };
    let latent = Latent { q_rank, kv_rank: 512, nope_dim, rope_dim, value_dim: 128, is_gated };
    AttentionShape { latent: Some(latent), ..AttentionShape::PLAIN }
}

const fn gpt_oss(name: &'static str, layers: u32, count: u32) -> Row {
    Row {
        head_dim: Some(64),
        qkv: HeadStep::Biased,
        attention: AttentionShape {
            output_bias: true,
            sinks: true,
            window: Some(Window { tokens: 128, full_every: 2, is_chunked: false }),
            ..AttentionShape::PLAIN
        },
        experts: Some(ExpertShape {
            routing: Routing {
                score: RouterScore::SoftmaxChosen,
                bias: RouterBias::Logits,
                scale: 1.0,
                ..SIGMOID
            },
            activation: ExpertActivation::Clamped,
            biased: true,
            ..softmax(count, 4, 2880)
        }),
        dtype: Some(DType::Mxfp4),
        ..row(name, [layers, 2880, 64, 8, 2880, 201_088], GPT_OSS_ROPE)
    }
}

/// YaRN's magnitudes for contexts longer by 32 and by 40: 0.1 ln 32 + 1 and 0.1 ln 40 + 1.
const MAGNITUDES: [f64; 2] = [1.346_573_590_279_972_7, 1.368_887_945_411_393_6];

const GPT_OSS_ROPE: Rope = Rope {
    yarn: Some(Yarn { truncate: false, rotated_scale: MAGNITUDES[0], ..yarn(32.0) }),
    ..plain(150_000.0)
};

const DEEPSEEK_ROPE: Rope = Rope {
    yarn: Some(Yarn { score_scale: MAGNITUDES[1] * MAGNITUDES[1], ..yarn(40.0) }),
    ..plain(10_000.0)
};

const fn yarn(factor: f64) -> Yarn {
    Yarn {
        factor,
        beta_fast: 32.0,
        beta_slow: 1.0,
        original_context: 4096.0,
        truncate: true,
        rotated_scale: 1.0,
        score_scale: 1.0,
    }
}

/// Sizes: layers, hidden, heads, KV heads, MLP, vocabulary.
const ROWS: [Row; 33] = [
    row("1b", [40, 1536, 24, 24, 4096, 49152], plain(10_000.0)),
    row("3b", [40, 2304, 32, 32, 9216, 49152], plain(10_000.0)),
    row("llama-3-8b", [32, 4096, 32, 8, 14336, 128_256], plain(500_000.0)),
    row("llama-3-70b", [80, 8192, 64, 8, 28672, 128_256], plain(500_000.0)),
    Row {
        note: Some(BLOOM_NOTE),
        ..row("bloom-176b", [70, 14336, 112, 112, 50176, 250_880], plain(10_000.0))
    },
    Row { tied: true, ..row("stories-110m", [12, 768, 12, 12, 2048, 32000], plain(10_000.0)) },
    Row { tied: true, ..row("llama-3.2-1b", [16, 2048, 32, 8, 8192, 128_256], llama3(32.0)) },
    Row { tied: true, ..row("llama-3.2-3b", [28, 3072, 24, 8, 8192, 128_256], llama3(32.0)) },
    row("34b", [48, 8192, 64, 8, 22016, 32000], plain(1_000_000.0)),
    Row {
        note: Some(LLAMA_405B_NOTE),
        ..row("llama-3.1-405b", [126, 16384, 128, 16, 53248, 128_256], llama3(8.0))
    },
    row("llama-2-7b", [32, 4096, 32, 32, 11008, 32000], plain(10_000.0)),
    row("llama-2-13b", [40, 5120, 40, 40, 13824, 32000], plain(10_000.0)),
    row("llama-2-70b", [80, 8192, 64, 8, 28672, 32000], plain(10_000.0)),
    row("llama-3.1-8b", [32, 4096, 32, 8, 14336, 128_256], llama3(8.0)),
    row("llama-3.1-70b", [80, 8192, 64, 8, 28672, 128_256], llama3(8.0)),
    row("llama-3.3-70b-instruct", [80, 8192, 64, 8, 28672, 128_256], llama3(8.0)),
    Row { norm_eps: 1e-6, ..row("internlm-20b", [60, 5120, 40, 40, 13824, 103_168], plain(10_000.0)) },
    qwen("qwen2.5-7b", [28, 3584, 28, 4, 18944, 152_064], HeadStep::Biased),
    qwen("qwen2.5-72b-instruct", [80, 8192, 64, 8, 29568, 152_064], HeadStep::Biased),
    qwen("qwen3-8b", [36, 4096, 32, 8, 12288, 151_936], HeadStep::Normed),
    Row {
        head_dim: Some(128),
        ..qwen("qwen3-32b", [64, 5120, 64, 8, 25600, 151_936], HeadStep::Normed)
    },
    row("mistral-7b", [32, 4096, 32, 8, 14336, 32000], plain(10_000.0)),
    Row {
        experts: Some(softmax(8, 2, 14336)),
        ..row("mixtral-8x7b", [32, 4096, 32, 8, 14336, 32000], plain(1_000_000.0))
    },
    Row {
        head_dim: Some(128),
        experts: Some(softmax(128, 8, 768)),
        ..qwen("qwen3-30b-a3b", [48, 2048, 32, 4, 768, 151_936], HeadStep::Normed)
    },
    Row {
        head_dim: Some(128),
        experts: Some(softmax(128, 8, 1536)),
        ..qwen("qwen3-235b-a22b", [94, 4096, 64, 4, 1536, 151_936], HeadStep::Normed)
    },
    gpt_oss("gpt-oss-20b", 24, 32),
    gpt_oss("gpt-oss-120b", 36, 128),
    Row {
        norm_eps: 1e-6,
        attention: latent(Some(1536), 64, false),
        experts: Some(ExpertShape {
            shared_width: 2048,
            dense_first: 3,
            routing: Routing { groups: 8, kept_groups: 4, ..SIGMOID },
            ..softmax(256, 8, 2048)
        }),
        head_dim: Some(128),
        ..row("deepseek-v3", [61, 7168, 128, 128, 18432, 129_280], DEEPSEEK_ROPE)
    },
    Row {
        note: Some(SCOUT_NOTE),
        attention: AttentionShape {
            window: Some(Window { tokens: 8192, full_every: 4, is_chunked: true }),
            temperature: Some(Temperature { every: 8192.0, scale: 0.1 }),
            ..AttentionShape::PLAIN
        },
        qkv: HeadStep::UnitNormed,
        experts: Some(ExpertShape {
            shared_width: 8192,
            routing: Routing {
                bias: RouterBias::None,
                renormalise: false,
                scale: 1.0,
                weighs_input: true,
                ..SIGMOID
            },
            ..softmax(16, 1, 8192)
        }),
        ..row("llama-4-scout", [48, 5120, 40, 8, 8192, 202_048], plain(500_000.0))
    },
    Row {
        norm_eps: 1e-6,
        note: Some(INSTELLA_NOTE),
        attention: latent(None, 32, true),
        experts: Some(ExpertShape {
            shared_width: 2816,
            dense_first: 1,
            routing: SIGMOID,
            ..softmax(64, 6, 1408)
        }),
        ..row("instella-moe-16b", [27, 2048, 16, 16, 10944, 128_896], plain(10_000.0))
    },
    Row { note: Some(MINI_NOTE), ..row("mini", [8, 192, 6, 6, 512, 256], plain(10_000.0)) },
    Row {
        note: Some(MINI_MOE_NOTE),
        qkv: HeadStep::Normed,
        experts: Some(ExpertShape {
            shared_width: 256,
            dense_first: 1,
            routing: Routing { scale: 1.0, ..SIGMOID },
            ..softmax(8, 2, 128)
        }),
        ..row("mini-moe", [6, 192, 6, 6, 512, 256], plain(10_000.0))
    },
    row("tiny", [4, 64, 8, 4, 160, 256], plain(10_000.0)),
];

impl Row {
    fn model(&self) -> Model {
        Model {
            name: self.name.into(),
            shape: ModelShape {
                layers: self.layers,
                hidden: self.hidden,
                heads: self.heads,
                kv_heads: self.kv_heads,
                head_dim: self.head_dim.unwrap_or(self.hidden / self.heads),
                qkv: self.qkv,
                intermediate: self.intermediate,
                vocab: self.vocab,
                rope: self.rope,
                norm_eps: self.norm_eps,
                tied_embeddings: self.tied,
                attention: self.attention,
                experts: self.experts,
            },
            dir: None,
            wiring: None,
            dtype: self.dtype,
            eos: Vec::new(),
            warnings: Vec::new(),
            has_weights: false,
            note: self.note,
        }
    }
}

impl Model {
    /// All built-in shapes: the paper's and released ones, then the one for tests.
    pub fn built_in() -> Vec<Self> {
        ROWS.iter().map(Row::model).collect()
    }

    /// True for a built-in name, perhaps with other experts.
    pub fn is_built_in(name: &str) -> bool {
        let base = name.split(MARK).next();
        ROWS.iter().any(|row| Some(row.name) == base)
    }

    pub(super) fn built_in_named(name: &str) -> Option<Self> {
        ROWS.iter().find(|row| row.name == name).map(Row::model)
    }

    /// Built-in names, in the order of [`Model::built_in`].
    pub(super) fn built_in_names() -> impl Iterator<Item = &'static str> {
        ROWS.iter().map(|row| row.name)
    }
}

/// Separates a mixture's name from changes of its experts, as in `gpt-oss-20b@experts=64,top-k=2`.
const MARK: char = '@';

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
        let base = name.split(MARK).next().unwrap_or(name);
        let Some(own) = Self::experts_of_built_in(base) else { return name.to_owned() };
        let changed = KEYS.iter().zip(wanted).zip(own).filter(|((_, wanted), own)| wanted != own);
        let changed: Vec<String> = changed.map(|((key, wanted), _)| format!("{key}={wanted}")).collect();
        match changed.is_empty() {
            true => base.to_owned(),
            false => format!("{base}{MARK}{}", changed.join(",")),
        }
    }

    /// Built-in shape, with the experts changed as in `NAME@experts=N`; `None` if NAME is not built in.
    pub(super) fn with_changed_experts(name: &str) -> Result<Option<Self>> {
        let (base, changes) =
            name.split_once(MARK).map_or((name, None), |(base, rest)| (base, Some(rest)));
        let Some(mut model) = Self::built_in_named(base) else { return Ok(None) };
        let Some(changes) = changes else { return Ok(Some(model)) };
        let wrong = |why: String| {
            Error::input_help(
                format!("model '{name}': {why}"),
                format!("write {base}{MARK}experts=N, top-k=K, or both with a comma between"),
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
        for (magnitude, factor) in MAGNITUDES.into_iter().zip([32.0, 40.0]) {
            assert!((magnitude - Yarn::magnitude(factor, 1.0)).abs() < 1e-12);
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
