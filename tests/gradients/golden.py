#!/usr/bin/env python3
"""Makes golden.json: losses and gradients of every architecture on one and two ranks, by PyTorch's autograd in f64.

Ranks are written out one by one, as the design has them, and know nothing of plans. Weights follow from a seed as in
tests/families/make.py. Of each tensor's gradient two projections are kept, on sines and cosines of the index. Needs
torch, numpy and transformers:

    PYTHONPATH=tests/families python3 tests/gradients/golden.py > tests/gradients/golden.json
"""

import json
import math
import sys
from types import SimpleNamespace

import torch
from make import SEED, numbers

LAYERS, HIDDEN, HEADS, KV, DIM, WIDE, VOCAB = 3, 16, 4, 2, 6, 20, 30
EPS, THETA = 1e-5, 10000.0
WINDOWS = [[3, 21, 7, 10, 12, 25, 2, 27], [1, 1, 5, 29, 0, 14, 22, 8]]
# architecture, ranks, what is done to heads, tied embeddings, weight of the distance from standard
CASES = [
    ("standard", 1, "plain", False, None),
    ("standard", 2, "plain", False, None),
    ("standard", 2, "plain", True, None),
    ("standard", 2, "biased", False, None),
    ("standard", 2, "normed", True, None),
    ("ladder", 1, "plain", False, None),
    ("ladder", 2, "normed", False, 0.5),
    ("ladder:2", 2, "plain", True, 2.0),
    ("ladder:[0+2]", 2, "biased", False, None),
    ("stale:2", 2, "plain", False, None),
    ("parallel", 1, "plain", True, None),
    ("parallel", 2, "normed", False, 0.5),
    ("parallel+ladder", 2, "biased", False, None),
    ("desync:1", 2, "plain", False, None),
    ("desync:2", 2, "normed", False, None),
    ("desync:4", 2, "plain", True, 1.0),
    ("delayed:1", 2, "plain", False, None),
    ("delayed:2", 2, "normed", False, 0.5),
    ("sync-drop:2", 2, "plain", False, None),
    ("sync-drop:[0]", 2, "normed", True, None),
    ("upper-bound", 1, "plain", False, None),
    ("kraken", 2, "plain", False, None),
    ("kraken", 2, "normed", True, 0.5),
    ("tracks:1", 2, "plain", False, None),
    ("tracks:2", 2, "biased", True, None),
    ("farskip", 1, "plain", True, None),
    ("farskip", 2, "normed", False, 0.5),
    ("partial:0.5", 2, "plain", False, None),
    ("partial:0.3", 2, "normed", True, 0.5),
    ("partial:0.5", 1, "plain", False, None),
    ("partial:0.5+ladder", 2, "biased", False, None),
]


def tensors(qkv, tied):
    shapes = {"model.embed_tokens.weight": (VOCAB, HIDDEN), "model.norm.weight": (HIDDEN,)}
    if not tied:
        shapes["lm_head.weight"] = (VOCAB, HIDDEN)
    for layer in range(LAYERS):
        own = {
            "input_layernorm.weight": (HIDDEN,),
            "post_attention_layernorm.weight": (HIDDEN,),
            "self_attn.q_proj.weight": (HEADS * DIM, HIDDEN),
            "self_attn.k_proj.weight": (KV * DIM, HIDDEN),
            "self_attn.v_proj.weight": (KV * DIM, HIDDEN),
            "self_attn.o_proj.weight": (HIDDEN, HEADS * DIM),
            "mlp.gate_proj.weight": (WIDE, HIDDEN),
            "mlp.up_proj.weight": (WIDE, HIDDEN),
            "mlp.down_proj.weight": (HIDDEN, WIDE),
        }
        if qkv == "biased":
            own |= {f"self_attn.{n}_proj.bias": (heads * DIM,) for n, heads in zip("qkv", (HEADS, KV, KV))}
        if qkv == "normed":
            own |= {f"self_attn.{n}_norm.weight": (DIM,) for n in "qk"}
        shapes |= {f"model.layers.{layer}.{name}": shape for name, shape in own.items()}
    config = SimpleNamespace(num_hidden_layers=LAYERS, tie_word_embeddings=tied)
    made = {}
    for name, shape in shapes.items():
        # biases are a column: their spread does not depend on how many there are
        made[name] = numbers(name, shape, config).to(torch.float64).requires_grad_()
    return made


def rms_norm(x, weight):
    return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + EPS) * weight


class Model:
    def __init__(self, state, qkv, tied, tp):
        self.state, self.qkv, self.tied, self.tp = state, qkv, tied, tp

    def get(self, layer, name):
        return self.state[f"model.layers.{layer}.{name}"]

    def rows(self, tensor, rank):
        return tensor.chunk(self.tp, 0)[rank]

    def attention(self, layer, x, rank):
        count = x.shape[1]
        parts = []
        for n, heads in zip("qkv", (HEADS, KV, KV)):
            part = x @ self.rows(self.get(layer, f"self_attn.{n}_proj.weight"), rank).T
            if self.qkv == "biased":
                part = part + self.rows(self.get(layer, f"self_attn.{n}_proj.bias"), rank)
            part = part.view(-1, count, heads // self.tp, DIM).transpose(1, 2)
            if self.qkv == "normed" and n != "v":
                part = rms_norm(part, self.get(layer, f"self_attn.{n}_norm.weight"))
            if n != "v":
                angle = torch.arange(count, dtype=torch.float64)[:, None] * THETA ** (
                    -torch.arange(0, DIM, 2, dtype=torch.float64) / DIM
                )
                low, high = part.chunk(2, -1)
                cos, sin = angle.cos(), angle.sin()
                part = torch.cat([low * cos - high * sin, high * cos + low * sin], -1)
            parts.append(part)
        q, k, v = parts
        k, v = (t.repeat_interleave(HEADS // KV, 1) for t in (k, v))
        scores = q @ k.transpose(-1, -2) / math.sqrt(DIM)
        scores = scores.masked_fill(torch.ones(count, count).triu(1).bool(), -math.inf)
        out = (scores.softmax(-1) @ v).transpose(1, 2).reshape(x.shape[0], count, -1)
        return out @ self.get(layer, "self_attn.o_proj.weight").chunk(self.tp, 1)[rank].T

    def mlp(self, layer, x, rank):
        gate, up = (x @ self.rows(self.get(layer, f"mlp.{n}_proj.weight"), rank).T for n in ("gate", "up"))
        return (torch.nn.functional.silu(gate) * up) @ self.get(layer, "mlp.down_proj.weight").chunk(self.tp, 1)[rank].T

    def norm(self, layer, kind, x):
        return rms_norm(x, self.get(layer, f"{kind}_layernorm.weight"))

    def module(self, index, x, rank):
        layer, mlp = divmod(index, 2)
        if mlp:
            return self.mlp(layer, self.norm(layer, "post_attention", x), rank)
        return self.attention(layer, self.norm(layer, "input", x), rank)

    def logits(self, normed):
        return normed @ self.state["model.embed_tokens.weight" if self.tied else "lm_head.weight"].T

    def forward(self, architecture, tokens):
        name, _, argument = architecture.partition(":")
        x = [self.state["model.embed_tokens.weight"][tokens]] * self.tp
        ranks, modules = range(self.tp), 2 * LAYERS
        final = lambda x: rms_norm(x, self.state["model.norm.weight"])
        if self.tp == 1 and name in ("desync", "delayed", "sync-drop", "upper-bound", "kraken", "tracks", "partial"):
            name = "standard"
        layers = range(LAYERS)
        if argument.startswith("["):
            layers = [int(n) for n in argument[1:-1].split("+")]
        elif argument and name in ("ladder", "sync-drop"):
            layers = range(LAYERS - int(argument), LAYERS)
        if name in ("standard", "ladder", "stale", "parallel", "parallel+ladder"):
            x, flight = x[0], []
            fused = name.startswith("parallel")
            for index in range(LAYERS if fused else modules):
                layer = index if fused else index // 2
                stale = {"standard": 0, "parallel": 0, "parallel+ladder": 1, "ladder": int(layer in layers)}
                stale = int(argument) if name == "stale" else stale[name]
                while len(flight) > stale:
                    x = x + flight.pop(0)
                if fused:
                    normed = self.norm(layer, "input", x)
                    parts = [self.attention(layer, normed, r) + self.mlp(layer, normed, r) for r in ranks]
                else:
                    parts = [self.module(index, x, r) for r in ranks]
                flight.append(sum(parts))
            return self.logits(final(x + sum(flight)))
        if name == "desync":
            for index in range(modules):
                parts = [self.module(index, x[r], r) for r in ranks]
                if (index + 1) % int(argument) == 0 or index + 1 == modules:
                    x = [sum(part + own / self.tp for part, own in zip(parts, x))] * self.tp
                else:
                    x = [own + part for own, part in zip(x, parts)]
            return self.logits(final(x[0]))
        if name == "delayed":
            delay, history = int(argument), []
            for index in range(modules):
                parts = [self.module(index, x[r], r) for r in ranks]
                history.append(parts)
                scale = math.sqrt(self.tp) if index < delay or index + delay >= modules else 1.0
                x = [own + scale * part for own, part in zip(x, parts)]
                if index >= delay:
                    before = history[index - delay]
                    x = [own + sum(before) - before[r] for r, own in enumerate(x)]
            return self.logits(sum(final(own) for own in x) / self.tp)
        if name == "sync-drop":
            x = x[0]
            for layer in range(LAYERS):
                attention = [self.module(2 * layer, x, r) for r in ranks]
                if layer in layers:
                    x = x + sum(
                        part + self.module(2 * layer + 1, x + part, r) for r, part in enumerate(attention)
                    )
                else:
                    x = x + sum(attention)
                    x = x + sum(self.module(2 * layer + 1, x, r) for r in ranks)
            return self.logits(final(x))
        if name == "kraken":
            x, own = x[0], [0.0] * self.tp
            for layer in layers:
                attention = [self.module(2 * layer, x + own[r], r) for r in ranks]
                x = x + sum(own)
                mlp = [self.module(2 * layer + 1, x + part, r) for r, part in enumerate(attention)]
                own = [a + f for a, f in zip(attention, mlp)]
            return self.logits(final(x + sum(own)))
        if name == "tracks":
            for layer in layers:
                x = [own + self.module(2 * layer, own, r) for r, own in enumerate(x)]
                x = [own + self.module(2 * layer + 1, own, r) for r, own in enumerate(x)]
                if (layer + 1) % int(argument) == 0 or layer + 1 == LAYERS:
                    x = [sum(x) / self.tp] * self.tp
            return self.logits(final(x[0]))
        if name == "farskip":
            x = x[0]
            for layer in layers:
                x = x + sum(self.module(2 * layer + mlp, x, r) for mlp in (0, 1) for r in ranks)
            return self.logits(final(x))
        if name == "partial":
            share, _, ladder = argument.partition("+")
            shared, flight = int(float(share) * HIDDEN), []
            for index in range(modules):
                parts = [self.module(index, own, r) for r, own in enumerate(x)]
                whole, root = sum(parts)[..., :shared], math.sqrt(self.tp)
                flight.append([torch.cat([whole, root * part[..., shared:]], -1) for part in parts])
                while len(flight) > (1 if ladder and index + 1 < modules else 0):
                    x = [own + joins for own, joins in zip(x, flight.pop(0))]
            return torch.cat([self.logits(final(own)).chunk(self.tp, -1)[r] for r, own in enumerate(x)], -1)
        raise ValueError(architecture)


def case(architecture, tp, qkv, tied, distil):
    state = tensors(qkv, tied)
    tokens = torch.tensor(WINDOWS)
    logs = Model(state, qkv, tied, tp).forward(architecture, tokens[:, :-1]).log_softmax(-1)
    nll = -logs.gather(-1, tokens[:, 1:, None]).mean()
    loss, kl = nll, torch.zeros(())
    if distil is not None:
        with torch.no_grad():
            taught = Model(state, qkv, tied, tp).forward("standard", tokens[:, :-1]).log_softmax(-1)
        kl = (taught.exp() * (taught - logs)).sum(-1).mean()
        loss = nll + distil * kl
    loss.backward()
    gradients = {}
    for name, tensor in state.items():
        if tensor.grad is None:
            continue
        flat = tensor.grad.flatten()
        index = torch.arange(1, len(flat) + 1, dtype=torch.float64)
        gradients[name] = [float((flat * index.sin()).sum()), float((flat * (2 * index).cos()).sum())]
    return {
        "architecture": architecture,
        "tp": tp,
        "qkv": qkv,
        "tied": tied,
        "distil": distil,
        "nll": float(nll.detach()),
        "kl": float(kl.detach()),
        "gradients": gradients,
    }


told = ",\n".join(json.dumps(case(*one)) for one in CASES)
sys.stdout.write(f'{{"seed": {SEED}, "windows": {json.dumps(WINDOWS)}, "cases": [\n{told}\n]}}\n')
