//! Model shapes: the dimensions of a Llama-family model that plans and costs depend on.

use serde::{Deserialize, Serialize};

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
    /// Angular frequency of each of the `head_dim / 2` pairs, in radians per position.
    pub fn frequencies(&self, head_dim: u32) -> Vec<f64> {
        (0..head_dim / 2)
            .map(|i| {
                let frequency = self.theta.powf(-2.0 * f64::from(i) / f64::from(head_dim));
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
    /// Width of the MLP (of gate or up alone).
    pub intermediate: u32,
    /// Vocabulary size: rows of the embedding and of the head.
    pub vocab: u32,
    pub rope: Rope,
    /// RMSNorm's epsilon, added to the mean square.
    pub norm_eps: f64,
    pub tied_embeddings: bool,
}

impl ModelShape {
    /// Parameter count: embedding, layers, norms, and an untied head.
    pub fn parameters(&self) -> u64 {
        let (h, d) = (u64::from(self.hidden), u64::from(self.head_dim));
        let attention = h * d * u64::from(2 * self.heads + 2 * self.kv_heads);
        let of_heads = match self.qkv {
            HeadStep::Plain => 0,
            HeadStep::Biased => d * u64::from(self.heads + 2 * self.kv_heads),
            HeadStep::Normed => 2 * d,
        };
        let mlp = 3 * h * u64::from(self.intermediate);
        let ends = h * u64::from(self.vocab) * if self.tied_embeddings { 1 } else { 2 };
        u64::from(self.layers) * (attention + of_heads + mlp + 2 * h) + ends + h
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
        uneven("heads", self.heads)
            .or_else(|| uneven("KV heads", self.kv_heads))
            .or_else(|| uneven("MLP columns", self.intermediate))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scaled(scaling: Option<RopeScaling>) -> Vec<f64> {
        Rope { theta: 500_000.0, scaling }.frequencies(128)
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
