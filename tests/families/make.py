#!/usr/bin/env python3
"""Makes golden.json: what `transformers` computes with small random models of each family that is read.

Weights follow from a seed as in src/model/random.rs, so that nothing but results has to be kept: the test writes the
same numbers into safetensors files. Needs torch and transformers (made with 4.57):

    python3 tests/families/make.py > tests/families/golden.json
"""

import json
import re
import sys

import numpy as np
import torch
from transformers import AutoConfig, AutoModelForCausalLM

SEED = 17
TOKENS = [3, 41, 7, 90, 12, 55, 2, 77, 30, 64, 18, 5, 88, 41, 9, 60]
SIZES = {
    "hidden_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 6,
    "num_key_value_heads": 3,
    "intermediate_size": 72,
    "vocab_size": 96,
    "max_position_embeddings": 128,
}
LLAMA3 = {
    "rope_type": "llama3",
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 16,
}
# family, format of the stored weights, number of files, and what its config has besides SIZES
CASES = [
    ("llama", "f32", 1, {"rope_theta": 10000.0}),
    ("llama", "bf16", 2, {"rope_theta": 500000.0, "rope_scaling": LLAMA3, "tie_word_embeddings": True}),
    ("mistral", "f16", 3, {"rope_theta": 1e6, "sliding_window": None, "head_dim": 12}),
    ("qwen2", "bf16", 1, {"rope_theta": 1e6, "rms_norm_eps": 1e-6}),
    ("qwen2", "f32", 2, {"rope_theta": 1e6, "tie_word_embeddings": True}),
    ("qwen3", "bf16", 2, {"rope_theta": 1e6, "head_dim": 12}),
    ("qwen3", "f16", 1, {"rope_theta": 1e6, "head_dim": 8, "num_key_value_heads": 6, "tie_word_embeddings": True}),
]

GOLDEN = np.uint64(0x9E3779B97F4A7C15)
# the numbers of tensors in src/model/random.rs
ROLES = {
    "model.embed_tokens.weight": 1,
    "input_layernorm.weight": 2,
    "self_attn.q_proj.weight": 3,
    "self_attn.k_proj.weight": 4,
    "self_attn.v_proj.weight": 5,
    "self_attn.o_proj.weight": 6,
    "post_attention_layernorm.weight": 7,
    "mlp.gate_proj.weight": 8,
    "mlp.up_proj.weight": 9,
    "mlp.down_proj.weight": 10,
    "model.norm.weight": 11,
    "lm_head.weight": 12,
    "self_attn.q_proj.bias": 13,
    "self_attn.k_proj.bias": 14,
    "self_attn.v_proj.bias": 15,
    "self_attn.q_norm.weight": 16,
    "self_attn.k_norm.weight": 17,
}
FORMATS = {"f32": torch.float32, "bf16": torch.bfloat16, "f16": torch.float16}


def mix(z):
    """splitmix64's finaliser, of numbers of 64 bits."""
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))


def numbers(name, shape, config):
    """A tensor by its name in the model, in f32."""
    layer, short = 0, name
    if found := re.match(r"model\.layers\.(\d+)\.(.*)", name):
        layer, short = int(found[1]), found[2]
    role = ROLES[short]
    modules, columns = 2.0 * config.num_hidden_layers, float(shape[-1])
    mean, deviation = 0.0, 1.0 / columns**0.5
    if short.endswith("bias"):
        deviation = 0.5
    elif "norm" in short:
        mean, deviation = 1.0, 0.1
    elif role == 1:
        deviation = 1.0 / modules**0.5
    elif role in (6, 10):
        deviation = 1.0 / (columns * modules) ** 0.5
    elif role == 12:
        deviation = 3.0 / columns**0.5
    count = int(np.prod(shape))
    with np.errstate(over="ignore"):
        key = mix(mix(np.uint64(SEED) + GOLDEN) ^ np.uint64(role << 32 | layer))
        hashes = mix(key + np.arange((count + 1) // 2, dtype=np.uint64) * GOLDEN)
    bits = hashes.astype("<u8").view("<i4")[:count]
    step = np.float32(deviation * 12.0**0.5 / 2.0**32)
    values = np.float32(mean) + bits.astype(np.float32) * step
    if role == 11 and config.tie_word_embeddings:
        values = np.where(bits & 1 == 0, values, -values)
    return torch.from_numpy(values.reshape(shape))


def case(family, stored, files, more):
    config = AutoConfig.for_model(family, **{**SIZES, **more})
    model = AutoModelForCausalLM.from_config(config).eval()
    state = {}
    for name, there in model.state_dict().items():
        if name == "lm_head.weight" and config.tie_word_embeddings:
            name = "model.embed_tokens.weight"
        state[name] = numbers(name, there.shape, config).to(FORMATS[stored]).to(torch.float64)
    names = list(state)
    if config.tie_word_embeddings:
        state["lm_head.weight"] = state["model.embed_tokens.weight"]
    model = model.to(torch.float64)
    model.load_state_dict(state, strict=True)
    with torch.no_grad():
        logits = model(torch.tensor([TOKENS])).logits[0].to(torch.float64)
    following = torch.log_softmax(logits[:-1], -1).gather(1, torch.tensor(TOKENS[1:])[:, None])
    written = json.loads(config.to_json_string(use_diff=True))
    return {
        "config": written,
        "stored": stored,
        "files": files,
        "tensors": names,
        "nll": [round(-float(x), 7) for x in following],
        "last_logits": [round(float(x), 6) for x in logits[-1]],
    }


def main():
    cases = [case(*one) for one in CASES]
    told = ",\n".join(json.dumps(one) for one in cases)
    sys.stdout.write(f'{{"seed": {SEED}, "tokens": {json.dumps(TOKENS)}, "cases": [\n{told}\n]}}\n')


if __name__ == "__main__":
    main()
