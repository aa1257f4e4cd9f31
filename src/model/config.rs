//! HF `config.json` of the Llama family: reads all fields that a plan needs and rejects fields that
//! change the model in ways a plan cannot express.
//!
//! Errors give file, key, value and remedy, and point at the line. Rotary embeddings come in four
//! generations of the format: the base is `rope_theta`, at the top level or (newer) in `rope_parameters`;
//! the scaling is `rope_scaling` or (newer) `rope_parameters`, its kind `rope_type` or (older) `type`.

use std::path::{Path, PathBuf};

use serde_json::{Map, Value};

use base::error::{Error, Result};
use base::input::InputKind;
use plan::{
    Architecture, AttentionShape, DType, HeadStep, LayerSet, ModelShape, Rope, RopeScaling, Yarn,
};

/// Maximum plausible width, vocabulary or head count; keeps sizes far from overflow.
pub const MAX_SIZE: u32 = 1 << 22;
pub const MAX_LAYERS: u32 = 10_000;

/// Supported families. A config without `model_type` is the first one's, as old ones are.
pub(super) static FAMILIES: [Family; 12] = [
    Family::new("llama", HeadStep::Plain, MixtureFamily::None),
    Family::new("ladder_llama", HeadStep::Plain, MixtureFamily::None),
    Family::new("mistral", HeadStep::Plain, MixtureFamily::None),
    Family::new("qwen2", HeadStep::Biased, MixtureFamily::None).flags_windows(),
    Family::new("qwen3", HeadStep::Normed, MixtureFamily::None).flags_windows().with_head_dim(128),
    Family::new("mixtral", HeadStep::Plain, MixtureFamily::Mixtral),
    Family::new("qwen3_moe", HeadStep::Normed, MixtureFamily::Qwen3).flags_windows(),
    Family::new("dots1", HeadStep::Normed, MixtureFamily::Dots1).flags_windows(),
    Family::new("gpt_oss", HeadStep::Biased, MixtureFamily::GptOss).with_head_dim(64),
    Family::new("deepseek_v2", HeadStep::Plain, MixtureFamily::DeepSeekV2),
    Family::new("deepseek_v3", HeadStep::Plain, MixtureFamily::DeepSeekV3),
    Family::new("llama4_text", HeadStep::UnitNormed, MixtureFamily::Llama4),
];

pub(super) struct Family {
    /// `model_type` of its configs.
    pub name: &'static str,
    /// Step between the projection of q, k, v and their rotation.
    pub qkv: HeadStep,
    pub mixture: MixtureFamily,
    /// Default of `head_dim`; `None` if it is the hidden size over the heads.
    head_dim: Option<u32>,
    /// True if `sliding_window` means nothing unless `use_sliding_window` is true, as in Qwen's families.
    has_window_flag: bool,
}

impl Family {
    const fn new(name: &'static str, qkv: HeadStep, mixture: MixtureFamily) -> Self {
        Self { name, qkv, mixture, head_dim: None, has_window_flag: false }
    }

    const fn with_head_dim(self, head_dim: u32) -> Self {
        Self { head_dim: Some(head_dim), ..self }
    }

    const fn flags_windows(self) -> Self {
        Self { has_window_flag: true, ..self }
    }
}

/// Family of a mixture of experts: what its config's keys mean.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum MixtureFamily {
    /// Dense.
    None,
    Mixtral,
    Qwen3,
    /// dots.llm1: attention of Qwen3, experts of DeepSeek-V3.
    Dots1,
    GptOss,
    DeepSeekV2,
    DeepSeekV3,
    /// Text part of Llama 4.
    Llama4,
}

impl MixtureFamily {
    /// True for families with latent attention.
    pub(super) fn is_latent(self) -> bool {
        matches!(self, Self::DeepSeekV2 | Self::DeepSeekV3)
    }
}

/// Keys of a wiring's layers.
pub(super) const LADDER_LAYERS: &str = "ladder_layers";
pub(super) const FARSKIP_LAYERS: &str = "farskip_layers";

/// Parsed `config.json` with its text, so that errors can point at the line.
#[derive(Debug)]
pub(super) struct ModelConfig {
    path: PathBuf,
    text: String,
    root: Map<String, Value>,
}

/// Short form of a JSON value for messages.
fn shown(value: &Value) -> String {
    let text = value.to_string();
    if text.chars().count() <= 60 {
        return text;
    }
    text.chars().take(57).chain("...".chars()).collect()
}

/// Configuration of Llama 4's text part, with the keys of the whole model that it lacks; other families unchanged.
fn text_part(mut root: Map<String, Value>) -> Map<String, Value> {
    if root.get("model_type").is_none_or(|family| family != "llama4") {
        return root;
    }
    let Some(Value::Object(mut text)) = root.remove("text_config") else { return root };
    root.insert("model_type".into(), "llama4_text".into());
    for (key, value) in root {
        if text.get(&key).is_none_or(Value::is_null) {
            text.insert(key, value);
        }
    }
    text
}

impl ModelConfig {
    /// Reads and parses the file; fields are checked on access.
    pub(super) fn read(path: &Path) -> Result<Self> {
        let bytes = InputKind::CONFIG.bytes(path)?;
        Self::parse(path, String::from_utf8_lossy(&bytes).into_owned())
    }

    /// Parses a config's text; `path` is for messages.
    pub(super) fn parse(path: &Path, text: String) -> Result<Self> {
        match serde_json::from_str::<Value>(&text) {
            Ok(Value::Object(root)) => {
                Ok(Self { path: path.to_path_buf(), text, root: text_part(root) })
            }
            Ok(other) => Err(Error::input_help(
                format!("{}: it holds {}, not an object", path.display(), shown(&other)),
                "an HF config is { \"hidden_size\": ..., ... }",
            )),
            Err(error) => {
                let line_start: usize =
                    text.split_inclusive('\n').take(error.line().saturating_sub(1)).map(str::len).sum();
                let at = (line_start + error.column().saturating_sub(1)).min(text.len());
                Err(Error::At {
                    message: format!("{}: not valid JSON: {error}", path.display()),
                    help: Some("an HF config is { \"hidden_size\": ..., ... }".into()),
                    span: (at, 0).into(),
                    source_code: miette::NamedSource::new(path.display().to_string(), text),
                })
            }
        }
    }

    /// Value of a top-level key; `null` counts as absent, as in HF's reader.
    pub(super) fn get(&self, key: &str) -> Option<&Value> {
        self.root.get(key).filter(|value| !value.is_null())
    }

    /// Error for a key with a wrong value, pointing at the key in the text. `key` may be a path
    /// (`rope_scaling.factor`).
    pub(super) fn wrong(&self, key: &str, found: &Value, right: impl Into<String>) -> Error {
        let (help, path) = (Some(right.into()), self.path.display());
        let message = format!("{path}: \"{key}\" is {}", shown(found));
        let quoted =
            format!("\"{}\"", key.rsplit('.').next().and_then(|k| k.split('[').next()).unwrap_or(key));
        match self.text.find(&quoted) {
            Some(at) => Error::At {
                message,
                help,
                span: (at, quoted.len()).into(),
                source_code: miette::NamedSource::new(path.to_string(), self.text.clone()),
            },
            None => Error::Input { message, help },
        }
    }

    pub(super) fn missing(&self, key: &str, right: &str) -> Error {
        Error::input_help(format!("{}: \"{key}\" is missing", self.path.display()), right)
    }

    /// Integer in `1..=most`, if the key is present.
    pub(super) fn size_if_any(&self, key: &str, most: u32) -> Result<Option<u32>> {
        let Some(value) = self.get(key) else { return Ok(None) };
        match value.as_u64().and_then(|n| u32::try_from(n).ok()).filter(|n| (1..=most).contains(n)) {
            Some(n) => Ok(Some(n)),
            None => Err(self.wrong(key, value, format!("a whole number from 1 to {most}"))),
        }
    }

    pub(super) fn size(&self, key: &str, most: u32) -> Result<u32> {
        self.size_if_any(key, most)?
            .ok_or_else(|| self.missing(key, &format!("\"{key}\": a whole number from 1 to {most}")))
    }

    /// Finite number above 0, if the key is present.
    pub(super) fn positive(&self, key: &str) -> Result<Option<f64>> {
        self.get(key).map(|value| self.above_zero(key, value)).transpose()
    }

    fn above_zero(&self, key: &str, value: &Value) -> Result<f64> {
        let number = value.as_f64().filter(|x| x.is_finite() && *x > 0.0);
        number.ok_or_else(|| self.wrong(key, value, "a number above 0"))
    }

    /// Model shape, after checking that the model belongs to the Llama family.
    pub(super) fn shape(&self) -> Result<ModelShape> {
        let Family { mut qkv, mixture, head_dim, .. } = *self.family()?;
        if qkv == HeadStep::UnitNormed && !self.flag("use_qk_norm", true)? {
            // Llama 4 Maverick
            qkv = HeadStep::Plain;
        }
        self.refuse_others(mixture)?;
        let latent = self.latent(mixture)?;
        let hidden = self.size("hidden_size", MAX_SIZE)?;
        let heads = self.size("num_attention_heads", MAX_SIZE)?;
        let kv_heads = self.size_if_any("num_key_value_heads", MAX_SIZE)?.unwrap_or(heads);
        let head_dim = match self.size_if_any("head_dim", MAX_SIZE)?.or(head_dim) {
            // the key may hold the rotated part alone
            _ if latent.is_some() => latent.map_or(0, |latent| latent.query_dim()),
            Some(head_dim) => head_dim,
            None if hidden.is_multiple_of(heads) => hidden / heads,
            None => {
                return Err(self.wrong(
                    "num_attention_heads",
                    &heads.into(),
                    format!("a divisor of hidden_size = {hidden}, or also set \"head_dim\""),
                ));
            }
        };
        if !head_dim.is_multiple_of(2) {
            let right = "an even head width: rotary embeddings turn pairs";
            return Err(match self.get("head_dim") {
                Some(value) => self.wrong("head_dim", value, right),
                None => self.wrong(
                    "num_attention_heads",
                    &heads.into(),
                    format!("{right} (here {hidden} / {heads} = {head_dim})"),
                ),
            });
        }
        if !heads.is_multiple_of(kv_heads) {
            let right = format!("a divisor of num_attention_heads = {heads}");
            return Err(self.wrong("num_key_value_heads", &kv_heads.into(), right));
        }
        if u64::from(heads) * u64::from(head_dim) > u64::from(MAX_SIZE) {
            let right = format!("at most {MAX_SIZE} / num_attention_heads = {}", MAX_SIZE / heads);
            return Err(self.wrong("head_dim", &head_dim.into(), right));
        }
        let tied_embeddings = self.flag("tie_word_embeddings", false)?;
        Ok(ModelShape {
            layers: self.size("num_hidden_layers", MAX_LAYERS)?,
            hidden,
            heads,
            kv_heads,
            head_dim,
            qkv,
            intermediate: match mixture {
                MixtureFamily::Llama4 => self.size("intermediate_size_mlp", MAX_SIZE)?,
                _ => self.size("intermediate_size", MAX_SIZE)?,
            },
            vocab: self.size("vocab_size", MAX_SIZE)?,
            rope: self.rope()?,
            // HF's default
            norm_eps: self.positive("rms_norm_eps")?.unwrap_or(1e-6),
            tied_embeddings,
            attention: AttentionShape {
                output_bias: mixture == MixtureFamily::GptOss,
                sinks: mixture == MixtureFamily::GptOss,
                window: self.window(mixture)?,
                latent,
                temperature: self.temperature(mixture)?,
            },
            experts: self.experts(mixture)?,
        })
    }

    fn family(&self) -> Result<&'static Family> {
        let Some(value) = self.get("model_type") else { return Ok(&FAMILIES[0]) };
        FAMILIES.iter().find(|family| value.as_str() == Some(family.name)).ok_or_else(|| {
            let names = FAMILIES.iter().map(|family| family.name).collect::<Vec<_>>().join(", ");
            self.wrong("model_type", value, format!("not supported: {names} are read"))
        })
    }

    /// Returns an error for every field that makes a model differ from Llama's arithmetic: a plan would
    /// silently compute something else.
    fn refuse_others(&self, mixture: MixtureFamily) -> Result<()> {
        for key in ["attention_bias", "mlp_bias", "bias", "use_bias", "qkv_bias", "use_qk_norm"] {
            let is_read = matches!(
                (key, mixture),
                ("attention_bias", MixtureFamily::GptOss) | ("use_qk_norm", MixtureFamily::Llama4)
            );
            if is_read {
                continue;
            }
            if let Some(value) = self.get(key).filter(|v| **v != Value::Bool(false)) {
                return Err(self.wrong(key, value, "not supported: only false, as in Llama"));
            }
        }
        let activation = self.get("hidden_act").or_else(|| self.get("hidden_activation"));
        if let Some(value) = activation.filter(|v| !matches!(v.as_str(), Some("silu" | "swish"))) {
            return Err(self.wrong("hidden_act", value, "not supported: only \"silu\", as in Llama"));
        }
        // each is a factor; 1 has no effect
        for key in [
            "embedding_multiplier",
            "residual_multiplier",
            "logits_scaling",
            "logit_scale",
            "partial_rotary_factor",
            "scale_emb",
        ] {
            if let Some(value) = self.get(key).filter(|v| v.as_f64() != Some(1.0)) {
                return Err(self.wrong(key, value, "not supported: only 1 or null, as in Llama"));
            }
        }
        // the presence of any of these means a different architecture
        let experts = ["num_local_experts", "num_experts", "n_routed_experts", "kv_lora_rank"]
            .map(|key| (key, "experts and latent attention in a dense family"));
        let others = [
            ("final_logit_softcapping", "soft caps"),
            ("attn_logit_softcapping", "soft caps"),
            ("clip_qkv", "clipped projections"),
            ("attention_multiplier", "attention scales other than 1 / sqrt(head_dim)"),
            ("quantization_config", "quantised checkpoints other than gpt-oss in mxfp4"),
        ];
        let is_mxfp4 =
            |value: &Value| value["quant_method"] == "mxfp4" && mixture == MixtureFamily::GptOss;
        for (key, what) in
            others.into_iter().chain(experts.into_iter().filter(|_| mixture == MixtureFamily::None))
        {
            if self.get(key).is_some_and(is_mxfp4) {
                continue;
            }
            if let Some(value) = self.get(key) {
                let right = format!("not supported ({what}): only absent or null, as in Llama");
                return Err(self.wrong(key, value, right));
            }
        }
        match mixture {
            MixtureFamily::GptOss | MixtureFamily::Llama4 => Ok(()),
            _ => self.refuse_windows(),
        }
    }

    /// Returns an error for attention that does not cover the whole context.
    fn refuse_windows(&self) -> Result<()> {
        let off = match self.get("use_sliding_window") {
            Some(used) => *used == Value::Bool(false),
            None => self.family()?.has_window_flag,
        };
        if let Some(value) = self.get("sliding_window").filter(|_| !off) {
            let context = self.get("max_position_embeddings").and_then(Value::as_u64);
            let whole = matches!((value.as_u64(), context), (Some(w), Some(c)) if w >= c);
            if !whole {
                let right = "not supported: only null (attention over the whole context), as in Llama";
                return Err(self.wrong("sliding_window", value, right));
            }
        }
        let list = |key: &str| self.get(key).and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
        if let Some(kind) = list("layer_types").iter().find(|k| k.as_str() != Some("full_attention")) {
            return Err(self.wrong("layer_types", kind, "not supported: only \"full_attention\""));
        }
        if let Some(flag) = list("no_rope_layers").iter().find(|f| f.as_u64() != Some(1)) {
            return Err(self.wrong(
                "no_rope_layers",
                flag,
                "not supported: only 1 (RoPE in every layer)",
            ));
        }
        Ok(())
    }

    /// `torch_dtype`, or `dtype` in newer configs; mxfp4 if experts are stored so.
    pub(super) fn dtype(&self) -> Result<Option<DType>> {
        if self.get("quantization_config").is_some_and(|value| value["quant_method"] == "mxfp4") {
            return Ok(Some(DType::Mxfp4));
        }
        let key = if self.get("torch_dtype").is_some() { "torch_dtype" } else { "dtype" };
        let Some(value) = self.get(key) else { return Ok(None) };
        match value.as_str().map(|name| name.trim_start_matches("torch.")) {
            Some("auto") => Ok(None),
            Some("float32") => Ok(Some(DType::F32)),
            Some("bfloat16") => Ok(Some(DType::Bf16)),
            Some("float16") => Ok(Some(DType::F16)),
            _ => Err(self.wrong(key, value, "\"float32\", \"bfloat16\" or \"float16\"")),
        }
    }

    /// `eos_token_id`: one id, a list of ids, or none.
    pub(super) fn eos(&self) -> Result<Vec<u32>> {
        let key = "eos_token_id";
        let Some(value) = self.get(key) else { return Ok(Vec::new()) };
        let ids = value.as_array().map_or(std::slice::from_ref(value), Vec::as_slice);
        ids.iter()
            .map(|id| id.as_u64().and_then(|n| u32::try_from(n).ok()))
            .collect::<Option<Vec<u32>>>()
            .ok_or_else(|| self.wrong(key, value, "a token id, a list of them, or null"))
    }

    /// Wiring of the checkpoint, if it is not standard.
    pub(super) fn wiring(&self) -> Result<Option<Architecture>> {
        let ladder = self.layers(LADDER_LAYERS)?.map(Architecture::Ladder);
        let farskip = self.layers(FARSKIP_LAYERS)?.map(Architecture::FarSkip);
        match (ladder, farskip, self.get(FARSKIP_LAYERS)) {
            (Some(_), Some(_), Some(value)) => {
                Err(self.wrong(FARSKIP_LAYERS, value, "absent beside \"ladder_layers\", or alone"))
            }
            (ladder, farskip, _) => Ok(ladder.or(farskip)),
        }
    }

    /// Layers of a wiring: the last K layers, a list of layers, all (`true`), or none.
    fn layers(&self, key: &str) -> Result<Option<LayerSet>> {
        let Some(value) = self.get(key) else { return Ok(None) };
        let layers = self.size("num_hidden_layers", MAX_LAYERS)?;
        let in_range =
            |v: &Value, end: u32| v.as_u64().and_then(|n| u32::try_from(n).ok()).filter(|n| *n < end);
        match value {
            Value::Bool(all) => Ok(all.then_some(LayerSet::All)),
            Value::Number(_) => match in_range(value, layers + 1) {
                Some(last) => Ok(Some(LayerSet::Last(last))),
                None => {
                    let right = format!("a number of last layers from 0 to {layers}");
                    Err(self.wrong(key, value, right))
                }
            },
            Value::Array(list) => {
                let mut only = Vec::with_capacity(list.len());
                for entry in list {
                    only.push(in_range(entry, layers).ok_or_else(|| {
                        let right = format!("a list of layers from 0 to {}", layers - 1);
                        self.wrong(&format!("{key}[{}]", only.len()), entry, right)
                    })?);
                }
                only.sort_unstable();
                only.dedup();
                Ok(Some(LayerSet::Only(only)))
            }
            _ => {
                Err(self.wrong(key, value, "a number K (the last K layers), a list of layers, or null"))
            }
        }
    }
}

/// RoPE base of a config without `rope_theta`.
const DEFAULT_THETA: f64 = 10_000.0;

impl ModelConfig {
    pub(super) fn rope(&self) -> Result<Rope> {
        let parameters = self.rope_object("rope_parameters")?;
        let scaling = self.rope_object("rope_scaling")?;
        let in_object = |object: Option<(&str, &Map<String, Value>)>| {
            let (name, object) = object?;
            let value = object.get("rope_theta").filter(|v| !v.is_null())?;
            Some((format!("{name}.rope_theta"), value.clone()))
        };
        let theta = in_object(parameters)
            .or_else(|| self.get("rope_theta").map(|v| ("rope_theta".into(), v.clone())))
            .or_else(|| in_object(scaling));
        let theta = match theta {
            None => DEFAULT_THETA,
            Some((key, value)) => self.above_zero(&key, &value)?,
        };
        let Some((name, object)) = parameters.or(scaling) else { return Ok(Rope::plain(theta)) };
        let kind =
            ["rope_type", "type"].iter().find_map(|key| object.get(*key).filter(|v| !v.is_null()));
        match kind.and_then(Value::as_str) {
            Some("yarn") => Ok(Rope { yarn: Some(self.yarn(name, object)?), ..Rope::plain(theta) }),
            _ => Ok(Rope { scaling: self.scaling(name, object)?, ..Rope::plain(theta) }),
        }
    }

    /// Top-level object, if present.
    fn rope_object<'a>(&'a self, key: &'a str) -> Result<Option<(&'a str, &'a Map<String, Value>)>> {
        match self.get(key) {
            None => Ok(None),
            Some(Value::Object(object)) => Ok(Some((key, object))),
            Some(other) => {
                Err(self.wrong(key, other, "an object such as {\"rope_type\": \"llama3\", ...}"))
            }
        }
    }

    /// Number above 0 of the object `name`, if the key is present.
    fn number_in(&self, (name, object): (&str, &Map<String, Value>), key: &str) -> Result<Option<f64>> {
        let value = object.get(key).filter(|v| !v.is_null());
        value.map(|value| self.above_zero(&format!("{name}.{key}"), value)).transpose()
    }

    /// YaRN's scaling described by the object `name`, with the defaults of `transformers`.
    fn yarn(&self, name: &str, object: &Map<String, Value>) -> Result<Yarn> {
        let number = |key: &str| self.number_in((name, object), key);
        let needed = |key: &str| {
            number(key)?.ok_or_else(|| self.missing(&format!("{name}.{key}"), "a number above 0"))
        };
        let truncate = match object.get("truncate") {
            None | Some(Value::Null) => true,
            Some(Value::Bool(truncate)) => *truncate,
            Some(other) => return Err(self.wrong(&format!("{name}.truncate"), other, "true or false")),
        };
        let factor = needed("factor")?;
        let (of_rotated, of_all) = (number("mscale")?, number("mscale_all_dim")?);
        let magnitude = |weight: f64| Yarn::magnitude(factor, weight);
        let rotated_scale = match (number("attention_factor")?, of_rotated, of_all) {
            (Some(factor), ..) => factor,
            (None, Some(rotated), Some(all)) => magnitude(rotated) / magnitude(all),
            (None, ..) => magnitude(1.0),
        };
        let is_latent = self.family()?.mixture.is_latent();
        Ok(Yarn {
            factor,
            beta_fast: number("beta_fast")?.unwrap_or(32.0),
            beta_slow: number("beta_slow")?.unwrap_or(1.0),
            original_context: needed("original_max_position_embeddings")?,
            truncate,
            rotated_scale,
            score_scale: of_all.filter(|_| is_latent).map_or(1.0, |all| magnitude(all).powi(2)),
        })
    }

    /// Scaling described by the object `name`.
    fn scaling(&self, name: &str, object: &Map<String, Value>) -> Result<Option<RopeScaling>> {
        let present = |key: &str| object.get(key).filter(|v| !v.is_null());
        let number = |key: &str| {
            let path = format!("{name}.{key}");
            self.number_in((name, object), key)?.ok_or_else(|| self.missing(&path, "a number above 0"))
        };
        if let Some(value) = present("partial_rotary_factor").filter(|v| v.as_f64() != Some(1.0)) {
            let right = "not supported: only 1 or null, as in Llama";
            return Err(self.wrong(&format!("{name}.partial_rotary_factor"), value, right));
        }
        // models with mixed attention have one object per kind
        if let Some((kind, value)) = object.iter().find(|(_, value)| value.is_object()) {
            let right = "not supported: one rotary embedding for all layers, as in Llama";
            return Err(self.wrong(&format!("{name}.{kind}"), value, right));
        }
        let (kind_key, kind) = match (present("rope_type"), present("type")) {
            (Some(kind), _) => ("rope_type", kind),
            (None, Some(kind)) => ("type", kind),
            // an object with only the base has no scaling; one with a factor must state its kind
            (None, None) if present("factor").is_none() => return Ok(None),
            (None, None) => {
                return Err(self.missing(&format!("{name}.rope_type"), "\"llama3\" or \"linear\""));
            }
        };
        match kind.as_str() {
            Some("default") => Ok(None),
            Some("linear") => Ok(Some(RopeScaling::linear(number("factor")?))),
            Some("llama3") => {
                let scaling = RopeScaling {
                    factor: number("factor")?,
                    low_freq_factor: number("low_freq_factor")?,
                    high_freq_factor: number("high_freq_factor")?,
                    original_context: number("original_max_position_embeddings")?,
                };
                if scaling.low_freq_factor >= scaling.high_freq_factor {
                    return Err(self.wrong(
                        &format!("{name}.high_freq_factor"),
                        &scaling.high_freq_factor.into(),
                        format!("a number above low_freq_factor = {}", scaling.low_freq_factor),
                    ));
                }
                Ok(Some(scaling))
            }
            _ => Err(self.wrong(
                &format!("{name}.{kind_key}"),
                kind,
                "not supported: only \"default\", \"llama3\", \"linear\" and \"yarn\"",
            )),
        }
    }
}
