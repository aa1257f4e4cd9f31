//! Model shapes: the dimensions of a Llama-family model that plans and costs depend on.

use serde::{Deserialize, Serialize};

use super::{ExpertShape, Tensor};
use base::words::words;

/// Bytes of an f32 scale of quantized weights.
const SCALE_BYTES: u64 = 4;

words! {
    /// Number format of weights, activations or the KV cache.
    DType, "dtype" {
        /// IEEE single precision: 4 bytes, 24 bits of significand.
        F32 = "f32",
        /// bfloat16: the upper 2 bytes of an f32, 8 bits of significand.
        Bf16 = "bf16",
        /// IEEE half precision: 2 bytes, 11 bits of significand, up to 65504.
        F16 = "f16",
        /// 8-bit floating point (e4m3, up to 448) with an f32 scale for each output: of linear layers' weights alone.
        Fp8 = "fp8",
        /// e4m3 with an f32 scale for each block of 128 x 128 weights of a layer.
        Fp8Block = "fp8_block",
        /// 4-bit floating point (e2m1, up to 6) with an 8-bit scale for each 16 weights of a layer.
        Nvfp4 = "nvfp4",
        /// e2m1 with an 8-bit power of two for each 32 weights of a layer.
        Mxfp4 = "mxfp4",
    }
}

words! {
    /// Number format of the KV cache.
    #[derive(Default)]
    KvDType, "KV cache dtype" {
        /// The format of the activations.
        #[default]
        Activations = "activations",
        /// 8-bit floating point (e4m3), with one scale for a tensor.
        Fp8 = "fp8",
    }
}

impl DType {
    /// Bytes per number: 4 for f32, 2 for bf16 and f16, 1 for fp8 (without scales). A packed pair of 4-bit
    /// numbers counts as one number: use [`Self::matrix_bytes`] for weights.
    pub fn bytes(self) -> u64 {
        match self {
            Self::F32 => 4,
            Self::Bf16 | Self::F16 => 2,
            Self::Fp8 | Self::Fp8Block | Self::Nvfp4 | Self::Mxfp4 => 1,
        }
    }

    /// Bytes of a matrix of weights with its scales.
    pub fn matrix_bytes(self, outputs: u64, inputs: u64) -> u64 {
        match self {
            Self::F32 | Self::Bf16 | Self::F16 => outputs * inputs * self.bytes(),
            Self::Fp8 => outputs * (inputs + SCALE_BYTES),
            Self::Fp8Block => {
                outputs * inputs + SCALE_BYTES * outputs.div_ceil(128) * inputs.div_ceil(128)
            }
            Self::Nvfp4 => outputs * (inputs.div_ceil(2) + inputs.div_ceil(16)) + SCALE_BYTES,
            Self::Mxfp4 => outputs * (inputs.div_ceil(2) + inputs.div_ceil(32)),
        }
    }

    /// True if only the weights of linear layers are in this format.
    pub fn is_quantized(self) -> bool {
        match self {
            Self::F32 | Self::Bf16 | Self::F16 => false,
            Self::Fp8 | Self::Fp8Block | Self::Nvfp4 | Self::Mxfp4 => true,
        }
    }

    /// Format of activations, KV cache and unquantized weights on a GPU with weights in this format.
    pub fn activations(self) -> Self {
        if self.is_quantized() { Self::Bf16 } else { self }
    }
}

/// Rotary position embedding (RoPE): rotates pairs of a head's columns by an angle proportional to the
/// position.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Rope {
    /// Base of the frequencies (`rope_theta` in HF configs): 500000 for Llama 3.
    pub theta: f64,
    /// Llama 3's scaling of low frequencies, if used.
    pub scaling: Option<RopeScaling>,
    /// YaRN's scaling, if used.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub yarn: Option<Yarn>,
}

/// YaRN (Peng et al., 2023; `rope_type = "yarn"`): divides the frequencies of pairs that turn seldom in the original
/// context by `factor`, with a ramp over the pairs in between.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Yarn {
    pub factor: f64,
    /// Pairs with more turns in the original context keep their frequency.
    pub beta_fast: f64,
    /// Pairs with fewer turns are divided by `factor`.
    pub beta_slow: f64,
    /// Context length during pretraining.
    pub original_context: f64,
    /// True if the ramp starts and ends at whole pairs.
    pub truncate: bool,
    /// Factor of rotated queries and keys.
    pub rotated_scale: f64,
    /// Factor of all scores (DeepSeek).
    pub score_scale: f64,
}

impl Yarn {
    /// Magnitude that YaRN gives attention for a context longer by `factor`: `0.1 x weight x ln(factor) + 1`.
    pub fn magnitude(factor: f64, weight: f64) -> f64 {
        if factor <= 1.0 { 1.0 } else { 0.1 * weight * factor.ln() + 1.0 }
    }

    /// Frequency of pair `pair` of `dim / 2`.
    fn scaled(&self, frequency: f64, pair: u32, dim: f64, theta: f64) -> f64 {
        let turns_at = |turns: f64| {
            dim * (self.original_context / (turns * 2.0 * std::f64::consts::PI)).ln()
                / (2.0 * theta.ln())
        };
        let (low, high) = (turns_at(self.beta_fast), turns_at(self.beta_slow));
        let (low, high) = if self.truncate { (low.floor(), high.ceil()) } else { (low, high) };
        let (low, high) = (low.max(0.0), high.min(dim - 1.0));
        let high = if low == high { high + 0.001 } else { high };
        let divided = ((f64::from(pair) - low) / (high - low)).clamp(0.0, 1.0);
        frequency / self.factor * divided + frequency * (1.0 - divided)
    }
}

/// Llama 3's frequency scaling (`rope_type = "llama3"` in HF configs); also covers linear scaling.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct RopeScaling {
    /// Divisor of low frequencies.
    pub factor: f64,
    /// Wavelengths longer than `original_context / low_freq_factor` are divided by `factor`.
    pub low_freq_factor: f64,
    /// Wavelengths shorter than `original_context / high_freq_factor` are kept.
    pub high_freq_factor: f64,
    /// Context length during pretraining.
    pub original_context: f64,
}

impl RopeScaling {
    /// Linear scaling (`rope_type = "linear"`): divides every frequency by `factor`. Uses an original
    /// context of 0, so that every wavelength counts as long.
    pub fn linear(factor: f64) -> Self {
        Self { factor, low_freq_factor: 1.0, high_freq_factor: 4.0, original_context: 0.0 }
    }
}

impl Rope {
    /// RoPE without scaling.
    pub const fn plain(theta: f64) -> Self {
        Self { theta, scaling: None, yarn: None }
    }

    /// Angular frequency of each of the `head_dim / 2` pairs, in radians per position.
    pub fn frequencies(&self, head_dim: u32) -> Vec<f64> {
        (0..head_dim / 2)
            .map(|i| {
                let dim = f64::from(head_dim);
                let frequency = self.theta.powf(-2.0 * f64::from(i) / dim);
                if let Some(yarn) = &self.yarn {
                    return yarn.scaled(frequency, i, dim, self.theta);
                }
                let Some(s) = self.scaling else { return frequency };
                let wavelength = 2.0 * std::f64::consts::PI / frequency;
                if wavelength < s.original_context / s.high_freq_factor {
                    frequency
                } else if wavelength > s.original_context / s.low_freq_factor {
                    frequency / s.factor
                } else {
                    let smooth = (s.original_context / wavelength - s.low_freq_factor)
                        / (s.high_freq_factor - s.low_freq_factor);
                    (1.0 - smooth) * frequency / s.factor + smooth * frequency
                }
            })
            .collect()
    }
}

/// Step between the q, k, v projection and the rotation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum HeadStep {
    /// None: Llama, Mistral.
    #[default]
    Plain,
    /// Adds biases: Qwen2 and 2.5.
    Biased,
    /// Applies an RMSNorm to each query and key head, with one weight per layer for queries and one for
    /// keys: Qwen3.
    Normed,
    /// [`Self::Normed`] without weights, in layers with RoPE alone: Llama 4.
    UnitNormed,
}

/// Attention beyond plain GQA; the default is plain.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct AttentionShape {
    /// True if the output projection has a bias; biases of q, k and v are [`HeadStep::Biased`].
    pub output_bias: bool,
    /// True if each head has a learned logit that joins the softmax's denominator without a value.
    pub sinks: bool,
    /// Layers that attend to recent tokens only.
    pub window: Option<AttentionWindow>,
    /// Multi-head latent attention (MLA) instead of keys and values per head.
    pub latent: Option<Latent>,
    /// Growth of queries in layers without RoPE.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub temperature: Option<Temperature>,
}

/// Factor of queries by position p: `ln(1 + floor((p + 1) / every)) x scale + 1` (Llama 4).
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Temperature {
    pub every: f64,
    pub scale: f64,
}

impl Temperature {
    pub fn factor(&self, position: usize) -> f64 {
        ((position as f64 + 1.0) / self.every).floor().ln_1p() * self.scale + 1.0
    }
}

impl AttentionShape {
    fn is_plain(&self) -> bool {
        *self == Self::default()
    }
}

/// Local attention in all layers but every `full_every`-th: layer l is full if `full_every` divides l + 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AttentionWindow {
    /// Tokens that a query sees, including its own.
    pub tokens: u32,
    pub full_every: u32,
    /// True if windows are aligned chunks of the sequence, and full layers have no RoPE (Llama 4).
    pub is_chunked: bool,
}

/// Dimensions of multi-head latent attention (DeepSeek-V2 and V3). Each token caches one normed latent and
/// one rotated key that all heads share.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Latent {
    /// Rank of the query's down projection; `None` if queries are projected directly.
    pub q_rank: Option<u32>,
    /// Width of the cached latent (`kv_lora_rank`).
    pub kv_rank: u32,
    /// Columns of a head's query and key without RoPE.
    pub nope_dim: u32,
    /// Columns with RoPE; the key's are shared by all heads.
    pub rope_dim: u32,
    /// Columns of a head's value.
    pub value_dim: u32,
    /// True if the heads' results are multiplied by sigmoid(gate) before the output projection, gate a
    /// product with the module's input (Instella-MoE).
    pub is_gated: bool,
}

impl Latent {
    /// Columns that a token caches in each layer.
    pub fn cached(&self) -> u32 {
        self.kv_rank + self.rope_dim
    }

    /// Columns of a head's query.
    pub fn query_dim(&self) -> u32 {
        self.nope_dim + self.rope_dim
    }
}

/// The shape of a Llama-family model (pre-norm, RMSNorm, RoPE, GQA, gated MLP).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ModelShape {
    /// Each layer is one attention and one MLP.
    pub layers: u32,
    pub hidden: u32,
    /// Query heads, over all ranks.
    pub heads: u32,
    /// Key and value heads, over all ranks; fewer than query heads with grouped-query attention (GQA).
    pub kv_heads: u32,
    /// Columns per attention head; a token's queries have `heads x head_dim`.
    pub head_dim: u32,
    #[serde(default)]
    pub qkv: HeadStep,
    /// Width of dense MLPs (of gate or up alone).
    pub intermediate: u32,
    /// Vocabulary size: rows of the embedding and of the head.
    pub vocab: u32,
    pub rope: Rope,
    /// RMSNorm's epsilon, added to the mean square.
    pub norm_eps: f64,
    pub tied_embeddings: bool,
    #[serde(default, skip_serializing_if = "AttentionShape::is_plain")]
    pub attention: AttentionShape,
    /// Routed experts in place of dense MLPs; `None` in a dense model.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub experts: Option<ExpertShape>,
}

impl ModelShape {
    /// Experts of a layer; `None` if its MLP is dense.
    pub fn experts_of(&self, layer: u32) -> Option<&ExpertShape> {
        self.experts.as_ref().filter(|experts| experts.is_routed(layer))
    }

    /// Number of layers with a dense MLP.
    pub fn dense_layers(&self) -> u32 {
        (0..self.layers).filter(|layer| self.experts_of(*layer).is_none()).count() as u32
    }

    /// Window of a layer's attention; `None` if it is full.
    pub fn window_of(&self, layer: u32) -> Option<AttentionWindow> {
        let is_local = |window: &AttentionWindow| !(layer + 1).is_multiple_of(window.full_every.max(1));
        self.attention.window.filter(is_local)
    }

    /// True if a layer's queries and keys are rotated: all layers but the full ones beside attention in chunks.
    pub fn has_rope(&self, layer: u32) -> bool {
        let is_chunked = self.attention.window.is_some_and(|window| window.is_chunked);
        !is_chunked || self.window_of(layer).is_some()
    }

    /// KV heads of one rank. With more ranks than KV heads, consecutive ranks hold copies of one.
    pub fn kv_heads_of(&self, tp: u32) -> u32 {
        (self.kv_heads / tp.max(1)).max(1)
    }

    /// Columns that one rank caches for a token of a layer.
    pub fn cached_columns(&self, tp: u32) -> u32 {
        match &self.attention.latent {
            Some(latent) => latent.cached(),
            None => 2 * self.kv_heads_of(tp) * self.head_dim,
        }
    }

    /// Columns of one rank's attention result.
    pub(super) fn attended_columns(&self, tp: u32) -> u32 {
        let each = self.attention.latent.map_or(self.head_dim, |latent| latent.value_dim);
        self.heads / tp.max(1) * each
    }

    /// Parameter count: embedding, layers, norms, and an untied head.
    pub fn parameters(&self) -> u64 {
        let numbers = |tensor: Tensor| {
            let (rows, columns) = tensor.dimensions(self);
            u64::from(rows) * u64::from(columns)
        };
        let all: u64 = Tensor::all(self).into_iter().map(numbers).sum();
        all - if self.tied_embeddings { numbers(Tensor::Head) } else { 0 }
    }

    /// Explains why this model cannot be sharded over `tp` ranks, with the arithmetic; `None` if it can.
    pub fn tp_problem(&self, tp: u32) -> Option<String> {
        if tp == 0 {
            return Some("tp is 0; it must be at least 1".into());
        }
        let uneven = |what: &str, n: u32| {
            (!n.is_multiple_of(tp))
                .then(|| format!("TP {tp} does not divide {n} {what} ({n} mod {tp} = {})", n % tp))
        };
        let copies = self.attention.latent.is_some() || tp.is_multiple_of(self.kv_heads.max(1));
        uneven("heads", self.heads)
            .or_else(|| uneven("KV heads", self.kv_heads).filter(|_| !copies))
            .or_else(|| uneven("MLP columns", self.intermediate).filter(|_| self.dense_layers() > 0))
            .or_else(|| {
                let shared = self.experts.as_ref().map_or(0, |experts| experts.shared_width);
                uneven("columns of shared experts", shared)
            })
    }

    /// Explains why experts cannot be divided like this over ranks; `None` if they can. `ep` is 1 (each
    /// rank has a slice of every expert), `tp`, or with data-parallel attention `dp`.
    pub fn expert_problem(&self, tp: u32, ep: u32, dp: u32) -> Option<String> {
        let Some(experts) = &self.experts else {
            let division = if ep != 1 { format!("EP {ep}") } else { format!("DP {dp}") };
            return (ep != 1 || dp != 1).then(|| {
                format!("{division} needs a mixture of experts, and this model is dense; leave ep and dp at 1")
            });
        };
        let count = experts.count;
        if ep == 0 || dp == 0 {
            return Some("ep and dp must be at least 1".into());
        }
        if let Some(problem) = division_problem(tp, ep, dp) {
            return Some(problem);
        }
        if !count.is_multiple_of(ep) {
            Some(format!("EP {ep} does not divide {count} experts ({count} mod {ep} = {})", count % ep))
        } else if ep == 1 && !experts.width.is_multiple_of(tp) {
            Some(format!(
                "TP {tp} does not divide {width} columns of an expert ({width} mod {tp} = {}); use --ep {tp}",
                experts.width % tp,
                width = experts.width
            ))
        } else {
            experts.routing_problem()
        }
    }
}

/// Explains why no mixture can be divided this way over the ranks, if so.
pub fn division_problem(tp: u32, ep: u32, dp: u32) -> Option<String> {
    if dp > 1 && (tp, ep) != (1, dp) {
        Some(format!(
            "DP {dp} needs TP 1 and EP {dp}, not TP {tp} and EP {ep}: data-parallel attention sends tokens to whole \
             experts on every rank"
        ))
    } else if dp == 1 && ep != 1 && ep != tp {
        Some(format!(
            "EP {ep} must be 1 (a slice of every expert on each rank) or TP ({tp}: whole experts)"
        ))
    } else {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scaled(scaling: Option<RopeScaling>) -> Vec<f64> {
        Rope { scaling, ..Rope::plain(500_000.0) }.frequencies(128)
    }

    #[test]
    fn linear_scaling_divides_every_frequency() {
        for (plain, linear) in scaled(None).iter().zip(scaled(Some(RopeScaling::linear(4.0)))) {
            assert_eq!(plain / 4.0, linear);
        }
    }

    #[test]
    fn llama3_scaling_keeps_the_fast_divides_the_slow_and_is_monotonic() {
        let llama3 = RopeScaling {
            factor: 8.0,
            low_freq_factor: 1.0,
            high_freq_factor: 4.0,
            original_context: 8192.0,
        };
        let (plain, scaled) = (scaled(None), scaled(Some(llama3)));
        assert_eq!(plain[0], scaled[0]);
        assert_eq!(plain[63] / 8.0, scaled[63]);
        assert!(scaled.windows(2).all(|pair| pair[0] > pair[1]));
        let between = plain.iter().zip(&scaled).filter(|(p, s)| *s < *p && **s > **p / 8.0).count();
        assert!(between > 0, "no frequency was smoothed");
    }
}
