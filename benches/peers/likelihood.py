"""A text's likelihood with PyTorch, as `ladderscope evaluate` measures it: tokens a second, and nats a token.

usage: DIR/python/bin/python benches/peers/likelihood.py MODEL_DIR TEXT DTYPE THREADS [CONTEXT]
"""

import sys
import time

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

model, text, dtype, threads = sys.argv[1:5]
context = int(sys.argv[5]) if len(sys.argv) > 5 else 512
torch.set_num_threads(int(threads))
loaded = AutoModelForCausalLM.from_pretrained(
    model, torch_dtype=torch.float32 if dtype == "f32" else torch.bfloat16
).eval()
tokens = AutoTokenizer.from_pretrained(model)(open(text).read(), add_special_tokens=False)["input_ids"]
windows = torch.tensor(tokens[: len(tokens) // context * context]).view(-1, context)
nll, start = 0.0, None
with torch.inference_mode():
    for at, window in enumerate([windows[0], *windows]):
        if at == 1:
            start = time.perf_counter()
        logits = loaded(window[None]).logits[0, :-1].float()
        loss = torch.nn.functional.cross_entropy(logits, window[1:], reduction="sum").item()
        nll += loss if at else 0.0
seconds = time.perf_counter() - start
predicted = len(windows) * (context - 1)
print(f"{windows.numel() / seconds:.0f} tokens/s, {nll / predicted:.4f} nats a token, {len(windows)} windows")
