#!/usr/bin/env python3
"""What `transformers` computes with the modelling code of a written ladder. Needs torch and transformers.

    ladder.py make DIR         a random checkpoint of each family in DIR/FAMILY
    ladder.py logits DIR IDS   logits at the end of a prompt, and six greedy tokens, as JSON
"""

import json
import sys

import torch
from experts import DEEPSEEK, GPT_OSS
from make import LLAMA3, SIZES
from transformers import AutoConfig, AutoModelForCausalLM

FAMILIES = {
    "llama": {"rope_theta": 500000.0, "rope_scaling": LLAMA3},
    "mistral": {"sliding_window": None, "head_dim": 12},
    "qwen2": {"tie_word_embeddings": True},
    "qwen3": {"head_dim": 8},
    "mixtral": {"num_local_experts": 8, "num_experts_per_tok": 2, "sliding_window": None},
    "qwen3_moe": {"num_experts": 8, "num_experts_per_tok": 3, "moe_intermediate_size": 32, "head_dim": 8},
    "dots1": {
        "n_routed_experts": 8,
        "n_shared_experts": 1,
        "num_experts_per_tok": 3,
        "first_k_dense_replace": 1,
        "moe_intermediate_size": 32,
        "head_dim": 8,
    },
    "gpt_oss": GPT_OSS,
    "deepseek_v3": {**DEEPSEEK, "q_lora_rank": 24, "n_shared_experts": 1, "n_group": 4, "topk_group": 2, "num_key_value_heads": 6},
}

verb, directory = sys.argv[1:3]
if verb == "make":
    for family, more in FAMILIES.items():
        torch.manual_seed(0)
        # KV heads that two ranks divide
        sizes = SIZES | {"num_hidden_layers": 4, "num_key_value_heads": 2}
        model = AutoModelForCausalLM.from_config(AutoConfig.for_model(family, **(sizes | more)))
        for weight in model.parameters():
            torch.nn.init.normal_(weight, 0.0, 0.2)
        model.save_pretrained(f"{directory}/{family}")
else:
    model = AutoModelForCausalLM.from_pretrained(directory, trust_remote_code=True, dtype=torch.float32).eval()
    ids = torch.tensor([[int(id) for id in sys.argv[3].split()]])
    with torch.no_grad():
        logits = model(ids).logits[0, -1].tolist()
        tokens = model.generate(ids, max_new_tokens=6, do_sample=False, pad_token_id=0)[0, ids.shape[1] :].tolist()
    print(json.dumps({"class": type(model).__name__, "logits": logits, "tokens": tokens}))
