//! Keys of `config.json` in families with experts, latent attention and windows.

use serde_json::Value;

use super::config::{MAX_LAYERS, MAX_SIZE, MixtureFamily, ModelConfig};
use base::error::Result;
use plan::{
    AttentionWindow, ExpertActivation, ExpertShape, Latent, RouterBias, RouterScore, Routing,
    Temperature,
};
use plan::{CLAMP, CLAMP_SLOPE};

impl ModelConfig {
    /// Routed experts of the family.
    pub(super) fn experts(&self, mixture: MixtureFamily) -> Result<Option<ExpertShape>> {
        let plain = |routing: Routing, width: u32| -> Result<ExpertShape> {
            let top_k = self.size("num_experts_per_tok", MAX_SIZE)?;
            Ok(ExpertShape::plain(self.expert_count()?, top_k, width, routing))
        };
        let dense_width = || self.size("intermediate_size", MAX_SIZE);
        let expert_width = || self.size("moe_intermediate_size", MAX_SIZE);
        let experts = match mixture {
            MixtureFamily::None => return Ok(None),
            MixtureFamily::Mixtral => plain(Routing::plain(RouterScore::Softmax, true), dense_width()?)?,
            MixtureFamily::Qwen3 => ExpertShape {
                dense_first: self.dense_first_of_qwen3()?,
                every: self.every("decoder_sparse_step")?,
                ..plain(
                    Routing::plain(RouterScore::Softmax, self.flag("norm_topk_prob", false)?),
                    expert_width()?,
                )?
            },
            MixtureFamily::GptOss => {
                self.only_number("swiglu_limit", CLAMP)?;
                self.only_number("swiglu_alpha", CLAMP_SLOPE)?;
                let routing = Routing {
                    bias: RouterBias::Logits,
                    ..Routing::plain(RouterScore::SoftmaxChosen, true)
                };
                ExpertShape {
                    activation: ExpertActivation::Clamped,
                    biased: true,
                    ..plain(routing, dense_width()?)?
                }
            }
            MixtureFamily::Llama4 => {
                let every = self.every("interleave_moe_layer_step")?;
                let layers = self.size("num_hidden_layers", MAX_LAYERS)?;
                let routed: Vec<Value> =
                    (every - 1..layers).step_by(every as usize).map(Value::from).collect();
                if let Some(value) = self.get("moe_layers").filter(|v| v.as_array() != Some(&routed)) {
                    let layers = match every {
                        1 => "all layers".to_owned(),
                        _ => format!("the last of every {every} layers"),
                    };
                    let right = format!("not supported: only {layers} (interleave_moe_layer_step)");
                    return Err(self.wrong("moe_layers", value, right));
                }
                let routing =
                    Routing { weighs_input: true, ..Routing::plain(RouterScore::Sigmoid, false) };
                let width = dense_width()?;
                let dense_first = every - 1;
                ExpertShape { shared_width: width, dense_first, every, ..plain(routing, width)? }
            }
            MixtureFamily::DeepSeekV2 | MixtureFamily::DeepSeekV3 | MixtureFamily::Dots1 => {
                let width = expert_width()?;
                let shared = self.count("n_shared_experts", MAX_SIZE, 0)?;
                self.only_number("moe_layer_freq", 1.0)?;
                ExpertShape {
                    shared_width: width * shared,
                    dense_first: self.count("first_k_dense_replace", MAX_LAYERS, 0)?,
                    ..plain(self.routing_of_deepseek(mixture)?, width)?
                }
            }
        };
        match experts.routing_problem() {
            Some(problem) => Err(self.wrong("num_experts_per_tok", &experts.top_k.into(), problem)),
            None => Ok(Some(experts)),
        }
    }

    /// Number of routed experts, under whichever name.
    fn expert_count(&self) -> Result<u32> {
        for key in ["num_local_experts", "num_experts", "n_routed_experts"] {
            if let Some(count) = self.size_if_any(key, ExpertShape::LARGEST_COUNT)? {
                return Ok(count);
            }
        }
        Err(self.missing("num_local_experts", "\"num_local_experts\": how many experts a layer has"))
    }

    fn routing_of_deepseek(&self, mixture: MixtureFamily) -> Result<Routing> {
        let is_v3 = mixture != MixtureFamily::DeepSeekV2;
        let wanted = if is_v3 { "sigmoid" } else { "softmax" };
        if let Some(value) = self.get("scoring_func").filter(|v| v.as_str() != Some(wanted)) {
            return Err(self.wrong("scoring_func", value, format!("not supported: only \"{wanted}\"")));
        }
        let method = self.get("topk_method").and_then(Value::as_str);
        let method = method.unwrap_or(if is_v3 { "noaux_tc" } else { "greedy" });
        let known: &[&str] = if is_v3 { &["noaux_tc"] } else { &["greedy", "group_limited_greedy"] };
        if let Some(value) = self.get("topk_method").filter(|_| !known.contains(&method)) {
            let right = known.join("\" or \"");
            return Err(self.wrong("topk_method", value, format!("not supported: only \"{right}\"")));
        }
        let renormalise = self.flag("norm_topk_prob", mixture == MixtureFamily::DeepSeekV3)?;
        if let Some(value) = self.get("norm_topk_prob").filter(|_| renormalise && !is_v3) {
            return Err(self.wrong("norm_topk_prob", value, "not supported: only false in DeepSeek-V2"));
        }
        let score = if is_v3 { RouterScore::Sigmoid } else { RouterScore::Softmax };
        let has_groups = is_v3 || method == "group_limited_greedy";
        let groups = if has_groups { self.count("n_group", MAX_SIZE, 1)? } else { 1 };
        Ok(Routing {
            bias: if is_v3 { RouterBias::Choice } else { RouterBias::None },
            scale: self.positive("routed_scaling_factor")?.unwrap_or(1.0),
            groups,
            kept_groups: if has_groups { self.count("topk_group", MAX_SIZE, groups)? } else { 1 },
            ..Routing::plain(score, renormalise)
        })
    }

    /// Interval N of routed layers, each the last of N layers; 1 if the key is absent.
    fn every(&self, key: &str) -> Result<u32> {
        Ok(self.size_if_any(key, MAX_LAYERS)?.unwrap_or(1))
    }

    /// First routed layer of Qwen3-MoE: the last of every `decoder_sparse_step` layers, after the leading dense ones.
    fn dense_first_of_qwen3(&self) -> Result<u32> {
        let every = self.every("decoder_sparse_step")?;
        let after = |dense: u32| (dense / every + 1) * every - 1;
        let Some(value) = self.get("mlp_only_layers") else { return Ok(after(0)) };
        let dense = value.as_array().map_or(&[][..], Vec::as_slice);
        let is_leading = dense.iter().enumerate().all(|(at, layer)| layer.as_u64() == Some(at as u64));
        match is_leading && value.is_array() {
            true => Ok(after(dense.len() as u32)),
            false => Err(self.wrong(
                "mlp_only_layers",
                value,
                "not supported: only leading layers, such as [0, 1], or []",
            )),
        }
    }

    /// Latent attention of DeepSeek.
    pub(super) fn latent(&self, mixture: MixtureFamily) -> Result<Option<Latent>> {
        if !mixture.is_latent() {
            return Ok(None);
        }
        if let Some(value) = self.get("rope_interleave").filter(|v| **v != Value::Bool(true)) {
            return Err(self.wrong("rope_interleave", value, "not supported: only true"));
        }
        let latent = Latent {
            q_rank: self.size_if_any("q_lora_rank", MAX_SIZE)?,
            kv_rank: self.size("kv_lora_rank", MAX_SIZE)?,
            nope_dim: self.size("qk_nope_head_dim", MAX_SIZE)?,
            rope_dim: self.size("qk_rope_head_dim", MAX_SIZE)?,
            value_dim: self.size("v_head_dim", MAX_SIZE)?,
            is_gated: false,
        };
        if !latent.rope_dim.is_multiple_of(2) {
            return Err(self.wrong(
                "qk_rope_head_dim",
                &latent.rope_dim.into(),
                "an even number: rotary embeddings turn pairs",
            ));
        }
        Ok(Some(latent))
    }

    /// Windows of gpt-oss and chunks of Llama 4: from layer 0 on, every second or fourth layer sees all tokens.
    pub(super) fn window(&self, mixture: MixtureFamily) -> Result<Option<AttentionWindow>> {
        let (key, kind, full_every) = match mixture {
            MixtureFamily::GptOss => ("sliding_window", "sliding_attention", 2),
            MixtureFamily::Llama4 => {
                let every = self.size_if_any("no_rope_layer_interval", MAX_LAYERS)?;
                ("attention_chunk_size", "chunked_attention", every.unwrap_or(4))
            }
            _ => return Ok(None),
        };
        let Some(tokens) = self.size_if_any(key, MAX_SIZE)? else {
            return match mixture {
                MixtureFamily::Llama4 => {
                    Err(self.missing(key, "\"attention_chunk_size\": a number of tokens"))
                }
                _ => Ok(None),
            };
        };
        let list = |key| self.get(key).and_then(Value::as_array).map_or(&[][..], Vec::as_slice).iter();
        let is_full = |layer: usize| (layer + 1).is_multiple_of(full_every as usize);
        let wanted = |layer: usize| if is_full(layer) { "full_attention" } else { kind };
        let others = |(layer, found): &(usize, &Value)| found.as_str() != Some(wanted(*layer));
        if let Some((_, found)) = list("layer_types").enumerate().find(others) {
            let right = format!(
                "not supported: only \"{kind}\", with \"full_attention\" in the last of every {full_every} layers"
            );
            return Err(self.wrong("layer_types", found, right));
        }
        let is_chunked = mixture == MixtureFamily::Llama4;
        let others =
            |(layer, flag): &(usize, &Value)| flag.as_u64() != Some(u64::from(!is_full(*layer)));
        if let Some((_, flag)) =
            list("no_rope_layers").enumerate().find(|flag| is_chunked && others(flag))
        {
            let right =
                format!("not supported: only 1, with 0 in the last of every {full_every} layers");
            return Err(self.wrong("no_rope_layers", flag, right));
        }
        Ok(Some(AttentionWindow { tokens, full_every, is_chunked }))
    }

    /// Growth of Llama 4's queries in layers without RoPE; older configs have a number for true.
    pub(super) fn temperature(&self, mixture: MixtureFamily) -> Result<Option<Temperature>> {
        let off = [Value::Bool(false), 0.into()];
        let tuning = self.get("attn_temperature_tuning");
        if mixture != MixtureFamily::Llama4 || tuning.is_some_and(|value| off.contains(value)) {
            return Ok(None);
        }
        let every = self.positive("floor_scale")?.unwrap_or(8192.0);
        Ok(Some(Temperature { every, scale: self.positive("attn_scale")?.unwrap_or(0.1) }))
    }

    pub(super) fn flag(&self, key: &str, default: bool) -> Result<bool> {
        match self.get(key) {
            None => Ok(default),
            Some(Value::Bool(flag)) => Ok(*flag),
            Some(other) => Err(self.wrong(key, other, "true or false")),
        }
    }

    /// Whole number from 0, with a default.
    fn count(&self, key: &str, most: u32, default: u32) -> Result<u32> {
        match self.get(key) {
            Some(value) if value.as_u64() == Some(0) => Ok(0),
            _ => Ok(self.size_if_any(key, most)?.unwrap_or(default)),
        }
    }

    /// Returns an error for any number but one.
    fn only_number(&self, key: &str, only: impl Into<f64>) -> Result<()> {
        let only = only.into();
        // constants are f32, whose decimal form is not that of f64
        let is_it = |value: &Value| value.as_f64().is_some_and(|x| (x - only).abs() < 1e-6);
        match self.get(key).filter(|value| !is_it(value)) {
            Some(value) => Err(self.wrong(key, value, format!("not supported: only {}", only as f32))),
            None => Ok(()),
        }
    }
}
