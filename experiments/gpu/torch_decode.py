#!/usr/bin/env python3
"""Decoding of a Llama-shaped model in plain PyTorch, to compare with: static KV cache, one compiled function a
step (torch.compile with CUDA graphs), bf16, random weights, greedy tokens. Prints one JSON object.

    torch_decode.py [--batch N] [--prompt-tokens N] [--output-tokens N] [--samples N] [--attention sdpa|grouped]
    torch_decode.py --tiny --device cpu      tries the script without a GPU
"""

import argparse
import json
import math
import statistics
import sys
import time

import torch
import torch.nn.functional as F

SHAPES = {
    # layers, hidden, heads, KV heads, MLP, vocabulary, RoPE base, norm epsilon
    "llama-3-8b": (32, 4096, 32, 8, 14336, 128256, 500000.0, 1e-5),
    "tiny": (4, 64, 8, 4, 160, 256, 10000.0, 1e-5),
}


class Norm(torch.nn.Module):
    def __init__(self, width, epsilon):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(width))
        self.epsilon = epsilon

    def forward(self, x):
        wide = x.float()
        scale = torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + self.epsilon)
        return (wide * scale).type_as(x) * self.weight


def rotate(x, cos, sin):
    """Halves of each head are the pairs. x: [batch, heads, tokens, head]; cos, sin: [tokens, head / 2]."""
    a, b = x.float().chunk(2, dim=-1)
    return torch.cat((a * cos - b * sin, b * cos + a * sin), dim=-1).type_as(x)


def rope_tables(capacity, head, base):
    """Cosines and sines by position, and which positions each one sees."""
    angles = torch.outer(torch.arange(capacity).float(), base ** (-torch.arange(0, head, 2).float() / head))
    return angles.cos(), angles.sin(), torch.ones(capacity, capacity, dtype=torch.bool).tril()


class Block(torch.nn.Module):
    def __init__(self, shape, batch, capacity, attention):
        super().__init__()
        _, hidden, self.heads, self.kv_heads, mlp, _, _, epsilon = shape
        self.head = hidden // self.heads
        self.attention = attention
        kv = self.kv_heads * self.head
        linear = lambda i, o: torch.nn.Linear(i, o, bias=False)
        self.norm1, self.norm2 = Norm(hidden, epsilon), Norm(hidden, epsilon)
        self.qkv, self.out = linear(hidden, hidden + 2 * kv), linear(hidden, hidden)
        self.gate_up, self.down = linear(hidden, 2 * mlp), linear(mlp, hidden)
        cache = torch.zeros(batch, self.kv_heads, capacity, self.head)
        self.register_buffer("k_cache", cache, persistent=False)
        self.register_buffer("v_cache", cache.clone(), persistent=False)

    def attend(self, x, positions, cos, sin, mask):
        batch, tokens, hidden = x.shape
        kv = self.kv_heads * self.head
        q, k, v = self.qkv(x).split([hidden, kv, kv], dim=-1)
        split = lambda t, heads: t.view(batch, tokens, heads, self.head).transpose(1, 2)
        q, k, v = split(q, self.heads), split(k, self.kv_heads), split(v, self.kv_heads)
        q, k = rotate(q, cos, sin), rotate(k, cos, sin)
        self.k_cache.index_copy_(2, positions, k)
        self.v_cache.index_copy_(2, positions, v)
        group = self.heads // self.kv_heads
        if tokens > 1:
            # the prompt: nothing before it, so plain causal attention of what was just computed
            k, v = (t.repeat_interleave(group, dim=1) for t in (k, v))
            y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        elif self.attention == "sdpa":
            k, v = (t.repeat_interleave(group, dim=1) for t in (self.k_cache, self.v_cache))
            y = F.scaled_dot_product_attention(q, k, v, attn_mask=mask)
        else:
            # heads of a group share keys: one product each instead of repeated keys
            q = q.reshape(batch, self.kv_heads, group, self.head)
            scores = (q @ self.k_cache.transpose(-1, -2)).float() / math.sqrt(self.head)
            scores = scores.masked_fill(~mask, float("-inf"))
            y = (scores.softmax(-1).type_as(q) @ self.v_cache).view(batch, self.heads, 1, self.head)
        return self.out(y.transpose(1, 2).reshape(batch, tokens, hidden))

    def forward(self, x, positions, cos, sin, mask):
        x = x + self.attend(self.norm1(x), positions, cos, sin, mask)
        gate, up = self.gate_up(self.norm2(x)).chunk(2, dim=-1)
        return x + self.down(F.silu(gate) * up)


class Model(torch.nn.Module):
    def __init__(self, shape, batch, capacity, attention):
        super().__init__()
        layers, hidden, heads, _, _, vocabulary, base, epsilon = shape
        self.embed = torch.nn.Embedding(vocabulary, hidden)
        self.blocks = torch.nn.ModuleList(Block(shape, batch, capacity, attention) for _ in range(layers))
        self.norm, self.lm_head = Norm(hidden, epsilon), torch.nn.Linear(hidden, vocabulary, bias=False)
        tables = rope_tables(capacity, hidden // heads, base)
        for name, table in zip(("cos", "sin", "causal"), tables):
            self.register_buffer(name, table, persistent=False)

    def forward(self, tokens, positions):
        """The next token of each sequence; `positions` are those of all `tokens`' columns."""
        x = self.embed(tokens)
        cos, sin, mask = self.cos[positions], self.sin[positions], self.causal[positions][None, None]
        for block in self.blocks:
            x = block(x, positions, cos, sin, mask)
        logits = self.lm_head(self.norm(x[:, -1]))
        return logits.float().argmax(-1, keepdim=True)


def build(options, device, dtype):
    shape = SHAPES["tiny" if options.tiny else "llama-3-8b"]
    capacity = options.prompt_tokens + options.output_tokens
    with torch.device("meta"):
        model = Model(shape, options.batch, capacity, options.attention)
    model = model.to(dtype).to_empty(device=device)
    generator = torch.Generator(device=device).manual_seed(options.seed)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "norm" in name:
                parameter.fill_(1.0)
            else:
                parameter.normal_(0.0, 0.02, generator=generator)
        for block in model.blocks:
            block.k_cache.zero_()
            block.v_cache.zero_()
    # angles stay in f32
    tables = rope_tables(capacity, shape[1] // shape[2], shape[6])
    model.cos, model.sin, model.causal = (table.to(device) for table in tables)
    return model.eval()


class Clock:
    """Times between marks (ms): CUDA events, or the host's clock."""

    def __init__(self, device):
        self.cuda = device.type == "cuda"
        self.marks = []

    def mark(self):
        if self.cuda:
            event = torch.cuda.Event(enable_timing=True)
            event.record()
            self.marks.append(event)
        else:
            self.marks.append(time.perf_counter())

    def times(self):
        if self.cuda:
            torch.cuda.synchronize()
            return [a.elapsed_time(b) for a, b in zip(self.marks, self.marks[1:])]
        return [1e3 * (b - a) for a, b in zip(self.marks, self.marks[1:])]


def generate(model, decode, prompt, options, device):
    """One generation: times of the prefill and of each step (ms), and the tokens."""
    clock = Clock(device)
    tokens = []
    positions = torch.arange(options.prompt_tokens, device=device)
    clock.mark()
    token = model(prompt, positions)
    tokens.append(token.clone())
    clock.mark()
    at = torch.tensor([options.prompt_tokens], device=device)
    for _ in range(options.output_tokens - 1):
        token = decode(token, at).clone()
        at = at + 1
        tokens.append(token)
        clock.mark()
    times = clock.times()
    return times[0], times[1:], torch.cat(tokens, dim=1)


def interval(values, resamples=2000):
    """From the 2.5th to the 97.5th percentile of the resampled medians; none with fewer than 6 values."""
    if len(values) < 6:
        return None
    import random

    draw = random.Random(0)
    medians = sorted(statistics.median(draw.choices(values, k=len(values))) for _ in range(resamples))
    return [medians[int(0.025 * resamples)], medians[int(0.975 * resamples) - 1]]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    for name, default in [("batch", 1), ("prompt-tokens", 1024), ("output-tokens", 256), ("samples", 6), ("warmup", 2), ("seed", 0)]:
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--attention", choices=["sdpa", "grouped"], default="sdpa")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--tiny", action="store_true", help="a very small model in f32, not compiled")
    options = parser.parse_args()
    if min(options.batch, options.prompt_tokens, options.samples) < 1 or options.output_tokens < 2:
        parser.error("batch, prompt tokens and samples are at least 1, output tokens at least 2")
    device = torch.device(options.device)
    if device.type == "cuda" and not torch.cuda.is_available():
        sys.exit("PyTorch sees no GPU; --tiny --device cpu tries the script without one")
    dtype = torch.float32 if options.tiny else torch.bfloat16
    model = build(options, device, dtype)
    compiled = not options.tiny
    decode = model
    if compiled:
        torch._inductor.config.coordinate_descent_tuning = True
        decode = torch.compile(model, mode="reduce-overhead", fullgraph=True)
    vocabulary = model.embed.num_embeddings
    generator = torch.Generator().manual_seed(options.seed)
    prompt = torch.randint(vocabulary, (options.batch, options.prompt_tokens), generator=generator).to(device)
    began = time.perf_counter()
    samples = []
    with torch.inference_mode():
        for number in range(options.warmup + options.samples):
            prefill, steps, tokens = generate(model, decode, prompt, options, device)
            if number == 0:
                compile_s = time.perf_counter() - began
            if number >= options.warmup:
                samples.append((prefill, steps))
    medians = [statistics.median(steps) for _, steps in samples]
    tpot = statistics.median([step for _, steps in samples for step in steps])
    print(
        json.dumps(
            {
                "what": "torch.compile reduce-overhead" if compiled else "eager",
                "model": "tiny" if options.tiny else "llama-3-8b",
                "dtype": str(dtype).removeprefix("torch."),
                "attention": options.attention,
                "batch": options.batch,
                "prompt_tokens": options.prompt_tokens,
                "output_tokens": options.output_tokens,
                "samples": len(samples),
                "tpot_ms": tpot,
                "tpot_ms_ci95": interval(medians),
                "decode_tokens_per_s": options.batch / tpot * 1e3,
                "prefill_ms": statistics.median([prefill for prefill, _ in samples]),
                "first_generation_s": compile_s,
                "parameters": sum(p.numel() for p in model.parameters()),
                "tokens": tokens[0, :8].tolist(),
                "torch": torch.__version__,
                "cuda": torch.version.cuda,
                "device": torch.cuda.get_device_name() if device.type == "cuda" else "cpu",
            }
        )
    )


if __name__ == "__main__":
    main()
