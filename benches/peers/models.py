"""Random models for all programs: a Hugging Face directory, and its weights as GGUF (gpt-oss: a config, and a GGUF file)."""

import json
from pathlib import Path

import numpy as np
import torch
from gguf import GGMLQuantizationType, GGUFWriter, RopeScalingType
from safetensors.torch import load_file, save_file

# hidden, layers, heads, kv heads, head dim, mlp, vocabulary, tied, rope theta
SHAPES = {
    "smollm2-135m": (576, 30, 9, 3, 64, 1536, 49152, True, 100000.0),
    "stories-110m": (768, 12, 12, 12, 64, 2048, 32000, True, 10000.0),
    "llama-3.2-1b": (2048, 16, 32, 8, 64, 8192, 128256, True, 500000.0),
    "untied-150m": (768, 12, 12, 4, 64, 2560, 32000, False, 10000.0),
}


def make(name, dtype, dir):
    """Writes DIR/NAME-DTYPE, with model.gguf beside model.safetensors; the directory."""
    out = Path(dir) / f"{name}-{dtype}"
    if (out / "model.gguf").exists():
        return out
    out.mkdir(parents=True, exist_ok=True)
    if name == "gpt-oss-20b-8":
        gpt_oss(out)
        return out
    hidden, layers, heads, kv, dim, mlp, vocab, tied, theta = SHAPES[name]
    config = {
        "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_act": "silu",
        "hidden_size": hidden, "num_hidden_layers": layers, "num_attention_heads": heads,
        "num_key_value_heads": kv, "head_dim": dim, "intermediate_size": mlp, "vocab_size": vocab,
        "tie_word_embeddings": tied, "rope_theta": theta, "rms_norm_eps": 1e-5,
        "max_position_embeddings": 2048, "attention_bias": False, "mlp_bias": False,
        "torch_dtype": "float32" if dtype == "f32" else "bfloat16",
        "bos_token_id": 1, "eos_token_id": 2,
    }
    (out / "config.json").write_text(json.dumps(config, indent=1))
    torch.manual_seed(0)
    to = torch.float32 if dtype == "f32" else torch.bfloat16

    def matrix(rows, columns):
        return (torch.randn(rows, columns) / columns**0.5).to(to)

    tensors = {"model.embed_tokens.weight": matrix(vocab, hidden), "model.norm.weight": torch.ones(hidden, dtype=to)}
    if not tied:
        tensors["lm_head.weight"] = matrix(vocab, hidden)
    for layer in range(layers):
        at = f"model.layers.{layer}."
        for norm in ["input_layernorm", "post_attention_layernorm"]:
            tensors[f"{at}{norm}.weight"] = torch.ones(hidden, dtype=to)
        for part, rows, columns in [
            ("self_attn.q_proj", heads * dim, hidden), ("self_attn.k_proj", kv * dim, hidden),
            ("self_attn.v_proj", kv * dim, hidden), ("self_attn.o_proj", hidden, heads * dim),
            ("mlp.gate_proj", mlp, hidden), ("mlp.up_proj", mlp, hidden), ("mlp.down_proj", hidden, mlp),
        ]:
            tensors[f"{at}{part}.weight"] = matrix(rows, columns)
    save_file(tensors, out / "model.safetensors", {"format": "pt"})
    to_gguf(config, dtype, out)
    return out


def to_gguf(config, dtype, out):
    """Writes OUT/model.gguf of OUT/model.safetensors, without a vocabulary."""
    writer = GGUFWriter(str(out / "model.part"), "llama")
    writer.add_vocab_size(config["vocab_size"])
    writer.add_context_length(config["max_position_embeddings"])
    writer.add_embedding_length(config["hidden_size"])
    writer.add_block_count(config["num_hidden_layers"])
    writer.add_feed_forward_length(config["intermediate_size"])
    writer.add_head_count(config["num_attention_heads"])
    writer.add_head_count_kv(config["num_key_value_heads"])
    writer.add_rope_dimension_count(config["head_dim"])
    writer.add_rope_freq_base(config["rope_theta"])
    writer.add_layer_norm_rms_eps(config["rms_norm_eps"])
    writer.add_file_type(0 if dtype == "f32" else 32)
    writer.add_tokenizer_model("none")
    names = {
        "model.embed_tokens": "token_embd", "model.norm": "output_norm", "lm_head": "output",
        "input_layernorm": "attn_norm", "post_attention_layernorm": "ffn_norm", "self_attn.q_proj": "attn_q",
        "self_attn.k_proj": "attn_k", "self_attn.v_proj": "attn_v", "self_attn.o_proj": "attn_output",
        "mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up", "mlp.down_proj": "ffn_down",
    }
    heads = {"attn_q": config["num_attention_heads"], "attn_k": config["num_key_value_heads"]}
    for name, tensor in load_file(out / "model.safetensors").items():
        name = name.removesuffix(".weight")
        block = ""
        if name.startswith("model.layers."):
            _, _, layer, name = name.split(".", 3)
            block = f"blk.{layer}."
        to = names[name]
        if to in heads:
            # llama.cpp rotates neighbours, HF halves
            rows, columns = tensor.shape
            tensor = tensor.reshape(heads[to], 2, rows // heads[to] // 2, columns).transpose(1, 2)
            tensor = tensor.reshape(rows, columns)
        tensor = tensor.contiguous()
        if dtype == "f32" or tensor.dim() == 1:
            writer.add_tensor(f"{block}{to}.weight", tensor.float().numpy())
        else:
            numbers = tensor.view(torch.int16).numpy().view(np.uint16)
            writer.add_tensor(f"{block}{to}.weight", numbers, raw_dtype=GGMLQuantizationType.BF16)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    (out / "model.part").rename(out / "model.gguf")


def gpt_oss(out, layers=8):
    """gpt-oss-20b's shape with fewer layers: a config, whose weights are random, and OUT/model.gguf in mxfp4."""
    hidden, heads, kv, dim, vocab, experts = 2880, 64, 8, 64, 201088, 32
    yarn = {"rope_type": "yarn", "factor": 32.0, "beta_fast": 32.0, "beta_slow": 1.0, "truncate": False}
    config = {
        "model_type": "gpt_oss", "hidden_size": hidden, "num_hidden_layers": layers, "num_attention_heads": heads,
        "num_key_value_heads": kv, "head_dim": dim, "intermediate_size": hidden, "vocab_size": vocab,
        "num_local_experts": experts, "num_experts_per_tok": 4, "sliding_window": 128, "attention_bias": True,
        "rope_theta": 150000.0, "rope_scaling": {**yarn, "original_max_position_embeddings": 4096},
        "rms_norm_eps": 1e-5, "max_position_embeddings": 131072,
    }
    (out / "config.json").write_text(json.dumps(config, indent=1))
    writer = GGUFWriter(str(out / "model.part"), "gpt-oss")
    writer.add_vocab_size(vocab)
    writer.add_context_length(config["max_position_embeddings"])
    writer.add_embedding_length(hidden)
    writer.add_block_count(layers)
    writer.add_feed_forward_length(hidden)
    writer.add_head_count(heads)
    writer.add_head_count_kv(kv)
    writer.add_key_length(dim)
    writer.add_value_length(dim)
    writer.add_rope_freq_base(config["rope_theta"])
    writer.add_rope_scaling_type(RopeScalingType.YARN)
    writer.add_rope_scaling_factor(yarn["factor"])
    writer.add_rope_scaling_orig_ctx_len(4096)
    writer.add_layer_norm_rms_eps(config["rms_norm_eps"])
    writer.add_expert_count(experts)
    writer.add_expert_used_count(4)
    writer.add_expert_feed_forward_length(hidden)
    writer.add_sliding_window(config["sliding_window"])
    writer.add_tokenizer_model("none")
    random = np.random.default_rng(0)

    def vector(name, *shape, mean=0.0, spread=0.3):
        writer.add_tensor(name, (mean + spread * (random.random(shape, dtype=np.float32) - 0.5)).astype(np.float32))

    def matrix(name, rows, columns, deviation):
        numbers = (random.random((rows, columns), dtype=np.float32) - 0.5) * np.float32(deviation * 12**0.5)
        bits = (numbers.view(np.uint32) >> 16).astype(np.uint16)
        writer.add_tensor(name, bits, raw_dtype=GGMLQuantizationType.BF16)

    def packed(name):
        # 32 numbers: a power of two, then 16 bytes of e2m1
        blocks = random.integers(0, 256, (experts, hidden, hidden // 32, 17), dtype=np.uint8)
        blocks[..., 0] = 119 + blocks[..., 0] % 3
        writer.add_tensor(name, blocks.reshape(experts, hidden, -1), raw_dtype=GGMLQuantizationType.MXFP4)

    matrix("token_embd.weight", vocab, hidden, 0.25)
    matrix("output.weight", vocab, hidden, 3 * hidden**-0.5)
    vector("output_norm.weight", hidden, mean=1.0)
    for layer in range(layers):
        block = f"blk.{layer}."
        vector(f"{block}attn_norm.weight", hidden, mean=1.0)
        vector(f"{block}post_attention_norm.weight", hidden, mean=1.0)
        for part, rows, columns in [
            ("attn_q", heads * dim, hidden), ("attn_k", kv * dim, hidden), ("attn_v", kv * dim, hidden),
            ("attn_output", hidden, heads * dim),
        ]:
            matrix(f"{block}{part}.weight", rows, columns, columns**-0.5)
            vector(f"{block}{part}.bias", rows)
        vector(f"{block}attn_sinks.weight", heads)
        vector(f"{block}ffn_gate_inp.weight", experts, hidden, spread=(12 / hidden) ** 0.5)
        vector(f"{block}ffn_gate_inp.bias", experts)
        for part in ["ffn_gate_exps", "ffn_up_exps", "ffn_down_exps"]:
            packed(f"{block}{part}.weight")
            vector(f"{block}{part}.bias", experts, hidden)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    (out / "model.part").rename(out / "model.gguf")
