#!/usr/bin/env python3
"""Makes experts.json: what `transformers` computes with small random mixture-of-experts models.

Numbers of a tensor follow from its name in the checkpoint (`stream`), so that only names, shapes and results are kept.
`transformers` reads the checkpoint itself: it decides how experts are named and laid out. Needs torch and transformers
(made with 5.24):

    python3 tests/families/experts.py > tests/families/experts.json
"""

import json
import sys
import tempfile
from pathlib import Path

import numpy as np
import torch
from make import FORMATS, GOLDEN, LLAMA3, SEED, TOKENS, mix
from safetensors import safe_open
from safetensors.torch import save_file
from transformers import AutoConfig, AutoModelForCausalLM, AutoModelForImageTextToText
from transformers.integrations.mxfp4 import FP4_VALUES

SIZES = {
    "hidden_size": 64,
    "num_hidden_layers": 3,
    "num_attention_heads": 8,
    "num_key_value_heads": 4,
    "vocab_size": 96,
    "max_position_embeddings": 512,
}
YARN = {"rope_type": "yarn", "original_max_position_embeddings": 16, "beta_fast": 4.0, "beta_slow": 1.0}
GPT_OSS = {
    "intermediate_size": 64,
    "head_dim": 16,
    "num_local_experts": 8,
    "num_experts_per_tok": 3,
    "sliding_window": 5,
    "rope_theta": 150000.0,
    "rope_scaling": {**YARN, "factor": 32.0, "truncate": False},
    "rms_norm_eps": 1e-5,
}
DEEPSEEK = {
    "num_key_value_heads": 8,
    "intermediate_size": 96,
    "moe_intermediate_size": 32,
    "first_k_dense_replace": 1,
    "n_routed_experts": 8,
    "num_experts_per_tok": 3,
    "kv_lora_rank": 32,
    "qk_nope_head_dim": 16,
    "qk_rope_head_dim": 8,
    "v_head_dim": 12,
    "rope_theta": 10000.0,
}
# family, format of the stored weights, number of files, and what its config has besides SIZES
CASES = [
    ("mixtral", "f32", 2, {"intermediate_size": 48, "num_local_experts": 8, "num_experts_per_tok": 2}),
    (
        "qwen3_moe",
        "bf16",
        3,
        {
            "intermediate_size": 96,
            "moe_intermediate_size": 32,
            "head_dim": 16,
            "num_experts": 16,
            "num_experts_per_tok": 4,
            "norm_topk_prob": True,
            "rope_theta": 1e6,
        },
    ),
    (
        "qwen3_moe",
        "f32",
        1,
        {
            "intermediate_size": 96,
            "moe_intermediate_size": 32,
            "head_dim": 8,
            "num_experts": 8,
            "num_experts_per_tok": 3,
            "norm_topk_prob": False,
            "mlp_only_layers": [0],
            "tie_word_embeddings": True,
        },
    ),
    (
        "dots1",
        "f32",
        1,
        {
            "intermediate_size": 96,
            "moe_intermediate_size": 32,
            "head_dim": 8,
            "n_routed_experts": 8,
            "n_shared_experts": 2,
            "first_k_dense_replace": 1,
            "num_experts_per_tok": 3,
            "norm_topk_prob": True,
            "routed_scaling_factor": 1.5,
        },
    ),
    ("gpt_oss", "bf16", 1, {**GPT_OSS, "sliding_window": 7}),
    ("gpt_oss", "mxfp4", 2, {**GPT_OSS, "sliding_window": 3}),
    (
        "deepseek_v2",
        "bf16",
        1,
        {
            **DEEPSEEK,
            "q_lora_rank": None,
            "n_shared_experts": 2,
            "topk_method": "greedy",
            "routed_scaling_factor": 4.0,
            "rope_scaling": {**YARN, "factor": 40.0, "mscale": 0.707, "mscale_all_dim": 0.707},
        },
    ),
    (
        "deepseek_v2",
        "f32",
        2,
        {
            **DEEPSEEK,
            "q_lora_rank": 24,
            "n_shared_experts": 1,
            "topk_method": "greedy",
            "routed_scaling_factor": 1.0,
        },
    ),
    (
        "deepseek_v2",
        "f32",
        1,
        {
            **DEEPSEEK,
            "q_lora_rank": 24,
            "n_shared_experts": 1,
            "topk_method": "group_limited_greedy",
            "n_group": 4,
            "topk_group": 2,
            "routed_scaling_factor": 2.0,
        },
    ),
    (
        "deepseek_v3",
        "bf16",
        2,
        {
            **DEEPSEEK,
            "q_lora_rank": 24,
            "n_shared_experts": 1,
            "n_group": 4,
            "topk_group": 2,
            "routed_scaling_factor": 2.5,
            "norm_topk_prob": True,
            "num_nextn_predict_layers": 0,
            "rope_scaling": {**YARN, "factor": 40.0, "mscale": 1.0, "mscale_all_dim": 1.0},
        },
    ),
]
LLAMA4 = {
    "num_hidden_layers": 5,
    "intermediate_size": 32,
    "intermediate_size_mlp": 96,
    "head_dim": 8,
    "num_local_experts": 8,
    "interleave_moe_layer_step": 1,
    "attention_chunk_size": 6,
    "floor_scale": 4,
    "attn_scale": 0.3,
    "rope_theta": 10000.0,
    "rms_norm_eps": 1e-5,
}
CASES += [
    ("llama4_text", "bf16", 2, {**LLAMA4, "num_experts_per_tok": 1, "rope_scaling": {**LLAMA3, "factor": 16.0}}),
    ("llama4_text", "f32", 1, {**LLAMA4, "num_local_experts": 12, "num_experts_per_tok": 2, "attn_temperature_tuning": False}),
]
# Maverick: every second layer is dense, heads are not normed
MAVERICK = {**LLAMA4, "interleave_moe_layer_step": 2, "use_qk_norm": False, "num_experts_per_tok": 1}
VISION = {
    "hidden_size": 32,
    "num_hidden_layers": 1,
    "num_attention_heads": 4,
    "intermediate_size": 128,
    "vision_output_dim": 32,
    "image_size": 28,
    "patch_size": 14,
    "projector_input_dim": 32,
    "projector_output_dim": 32,
}
CASES += [
    (
        "qwen3_moe",
        "f32",
        1,
        {
            "intermediate_size": 96,
            "moe_intermediate_size": 32,
            "head_dim": 8,
            "num_experts": 8,
            "num_experts_per_tok": 2,
            "norm_topk_prob": True,
            "decoder_sparse_step": 2,
        },
    ),
    ("llama4_text", "f32", 1, MAVERICK),
    ("llama4", "bf16", 2, {"text_config": {**SIZES, **MAVERICK}, "vision_config": VISION}),
]
# closest of a chosen and a left-out expert's score: rounding must not change a choice
MARGIN = 3e-4


def stream(name, count):
    """32-bit numbers of a tensor, from the FNV-1a hash of its name."""
    hashed = 0xCBF29CE484222325
    for byte in name.encode():
        hashed = (hashed ^ byte) * 0x100000001B3 % 2**64
    with np.errstate(over="ignore"):
        key = mix(mix(np.uint64(SEED) + GOLDEN) ^ np.uint64(hashed))
        hashes = mix(key + np.arange((count + 1) // 2, dtype=np.uint64) * GOLDEN)
    return hashes.astype("<u8").view("<i4")[:count]


def distribution(name, shape, layers):
    """Mean and standard deviation."""
    if len(shape) == 1 or name.endswith("_bias"):
        # wide enough to be clamped
        return (1.0, 0.1) if "norm" in name else (0.0, 4.0 if name.endswith("gate_up_proj_bias") else 0.5)
    # gpt-oss has experts as [expert, input, output]
    inputs = shape[1] if len(shape) == 3 else shape[-1]
    if "embed_tokens" in name:
        return 0.0, (2.0 * layers) ** -0.5
    if "lm_head" in name:
        return 0.0, 3.0 * inputs**-0.5
    if any(role in name for role in ("o_proj", "down_proj", ".w2.")):
        return 0.0, (2.0 * layers * inputs) ** -0.5
    return 0.0, inputs**-0.5


def numbers(name, shape, layers, stored):
    bits = stream(name, int(np.prod(shape)))
    if name.endswith("_blocks"):
        return torch.from_numpy((bits & 255).astype(np.uint8).reshape(shape))
    if name.endswith("_scales"):
        # powers of two from 1/16 to 1/4: a row of 64 numbers has about the spread of the others
        return torch.from_numpy((123 + (bits & 0xFFFF) % 3).astype(np.uint8).reshape(shape))
    mean, deviation = distribution(name, shape, layers)
    step = np.float32(deviation * 12.0**0.5 / 2.0**32)
    values = np.float32(mean) + bits.astype(np.float32) * step
    kept = "f32" if name.endswith("e_score_correction_bias") else "bf16" if stored == "mxfp4" else stored
    return torch.from_numpy(values.reshape(shape)).to(FORMATS[kept])


def expanded(state):
    """The state with experts in mxfp4 as the numbers that they stand for, [expert, input, output]."""
    wide = {}
    for name, tensor in state.items():
        if name.endswith("_blocks"):
            table = torch.tensor(FP4_VALUES, dtype=torch.float64)
            pairs = torch.stack([table[(tensor & 15).long()], table[(tensor >> 4).long()]], -1).flatten(-2)
            scales = state[name.replace("_blocks", "_scales")].to(torch.float64)
            rows = (pairs * torch.exp2(scales - 127.0)[..., None]).flatten(-2)
            wide[name.removesuffix("_blocks")] = rows.transpose(-1, -2).contiguous()
        elif not name.endswith("_scales"):
            wide[name] = tensor
    return wide


def margins(model):
    """Watches the routers; returns the list of the closest choices."""
    found = []

    def watch(module, inputs, outputs):
        if type(module).__name__ == "Llama4Router":
            logits = outputs[1]
            chosen = logits.topk(module.top_k, -1).indices
        else:
            logits, chosen = outputs[0], outputs[2]
        correction = getattr(module, "e_score_correction_bias", None)
        scores = logits if correction is None else torch.sigmoid(logits) + correction
        taken = torch.zeros_like(scores, dtype=torch.bool).scatter(-1, chosen, True)
        worst = scores.masked_fill(~taken, torch.inf).min(-1).values
        groups = getattr(module, "num_group", None) or 1
        left = scores.masked_fill(taken, torch.nan)
        found.append(float((left - worst[:, None]).abs().nan_to_num(torch.inf).min()))
        assert groups > 1 or bool((left.nan_to_num(-torch.inf).max(-1).values < worst).all())

    for name, module in model.named_modules():
        if type(module).__name__.endswith(("TopKRouter", "TopkRouter", "Llama4Router")):
            module.register_forward_hook(watch)
    return found


def case(family, stored, files, more):
    is_whole = "text_config" in more
    config = AutoConfig.for_model(family, **(more if is_whole else {**SIZES, **more}))
    kind = AutoModelForImageTextToText if is_whole else AutoModelForCausalLM
    layers = config.get_text_config().num_hidden_layers
    with tempfile.TemporaryDirectory() as place:
        place = Path(place)
        kind.from_config(config).save_pretrained(place)
        with safe_open(place / "model.safetensors", "pt") as made:
            shapes = {name: list(made.get_slice(name).get_shape()) for name in made.keys()}
        if stored == "mxfp4":
            for name in [name for name in shapes if name.endswith(("experts.gate_up_proj", "experts.down_proj"))]:
                experts, inputs, outputs = shapes.pop(name)
                shapes[f"{name}_blocks"] = [experts, outputs, inputs // 32, 16]
                shapes[f"{name}_scales"] = [experts, outputs, inputs // 32]
        state = {name: numbers(name, shape, layers, stored) for name, shape in shapes.items()}
        save_file(expanded(state), place / "model.safetensors", {"format": "pt"})
        model = kind.from_pretrained(
            place, dtype=torch.float64, attn_implementation="eager", experts_implementation="eager"
        ).eval()
        # without images the whole of Llama 4 passes the text through this part
        model = getattr(model, "language_model", model)
        written = json.loads((place / "config.json").read_text())
    # a router that computes in f32 by itself is not worth another tolerance
    closest = margins(model)
    with torch.no_grad():
        logits = model(torch.tensor([TOKENS])).logits[0].to(torch.float64)
    assert closest and min(closest) > MARGIN, f"{family}: a choice within {min(closest)}"
    print(f"{family}, {stored}: closest choice {min(closest):.4f}", file=sys.stderr)
    following = torch.log_softmax(logits[:-1], -1).gather(1, torch.tensor(TOKENS[1:])[:, None])
    written["dtype"] = "float32" if stored == "f32" else "bfloat16"
    if stored == "mxfp4":
        written["quantization_config"] = {"quant_method": "mxfp4", "modules_to_not_convert": ["model.layers.*.self_attn"]}
    return {
        "config": written,
        "stored": stored,
        "files": files,
        "tensors": shapes,
        "nll": [round(-float(x), 7) for x in following],
        "last_logits": [round(float(x), 6) for x in logits[-1]],
    }


def main():
    cases = [case(*one) for one in CASES]
    told = ",\n".join(json.dumps(one, separators=(",", ":")) for one in cases)
    sys.stdout.write(f'{{"seed": {SEED}, "tokens": {json.dumps(TOKENS)}, "cases": [\n{told}\n]}}\n')


if __name__ == "__main__":
    main()
