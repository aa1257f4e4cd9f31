"""One program's times for one case, as a process of its own: a JSON line with prefill's and each step's ms.

usage: engine.py llama|torch LIBRARIES MODEL_DIR DTYPE THREADS BATCH PROMPT STEPS REPEATS
Every generation begins with an empty cache; the first is not counted. Tokens are chosen greedily.
"""

import ctypes
import glob
import json
import os
import sys
import time


def prompts(batch, prompt, vocab):
    return [[(s * 31 + at * 17 + 5) % min(vocab, 1000) for at in range(prompt)] for s in range(batch)]


class Params(ctypes.Structure):
    """The beginning of a context's parameters, and room for what follows."""

    _fields_ = [
        ("n_ctx", ctypes.c_uint32), ("n_batch", ctypes.c_uint32), ("n_ubatch", ctypes.c_uint32),
        ("n_seq_max", ctypes.c_uint32), ("rest", ctypes.c_uint8 * 1008),
    ]


class Opaque(ctypes.Structure):
    _fields_ = [("bytes", ctypes.c_uint8 * 1024)]


class Batch(ctypes.Structure):
    _fields_ = [
        ("n_tokens", ctypes.c_int32), ("token", ctypes.POINTER(ctypes.c_int32)), ("embd", ctypes.c_void_p),
        ("pos", ctypes.POINTER(ctypes.c_int32)), ("n_seq_id", ctypes.POINTER(ctypes.c_int32)),
        ("seq_id", ctypes.POINTER(ctypes.POINTER(ctypes.c_int32))), ("logits", ctypes.POINTER(ctypes.c_int8)),
    ]


def llama(libraries, model, threads, batch, prompt, steps, repeats):
    base = ctypes.CDLL(f"{libraries}/libggml-base.so", ctypes.RTLD_GLOBAL)
    [ggml] = glob.glob(f"{libraries}/libggml.v*.so")
    [library] = glob.glob(f"{libraries}/libllama.v*.so")
    ggml, lib = ctypes.CDLL(ggml, ctypes.RTLD_GLOBAL), ctypes.CDLL(library, ctypes.RTLD_GLOBAL)
    quiet = ctypes.CFUNCTYPE(None, ctypes.c_int, ctypes.c_char_p, ctypes.c_void_p)(lambda *_: None)
    lib.llama_log_set(quiet, None)
    only = os.environ.get("PEERS_LLAMA_CPU")
    if only:
        ggml.ggml_backend_load.restype = ctypes.c_void_p
        assert ggml.ggml_backend_load(f"{libraries}/libggml-cpu-{only}.so".encode()), only
    else:
        ggml.ggml_backend_load_all_from_path(libraries.encode())
    lib.llama_backend_init()
    lib.llama_model_default_params.restype = Opaque
    lib.llama_model_load_from_file.restype = ctypes.c_void_p
    lib.llama_model_load_from_file.argtypes = [ctypes.c_char_p, Opaque]
    loaded = lib.llama_model_load_from_file(f"{model}/model.gguf".encode(), lib.llama_model_default_params())
    assert loaded, "the model does not load"
    lib.llama_context_default_params.restype = Params
    params = lib.llama_context_default_params()
    assert params.n_batch == 2048 and params.n_ubatch == 512, "parameters lie elsewhere in this version"
    params.n_ctx = max(256, batch * (prompt + steps + 1))
    params.n_seq_max = batch
    lib.llama_init_from_model.restype = ctypes.c_void_p
    lib.llama_init_from_model.argtypes = [ctypes.c_void_p, Params]
    context = lib.llama_init_from_model(loaded, params)
    assert context, "no context"
    lib.llama_set_n_threads.argtypes = [ctypes.c_void_p, ctypes.c_int32, ctypes.c_int32]
    lib.llama_set_n_threads(context, threads, threads)
    lib.llama_get_model.restype = ctypes.c_void_p
    lib.llama_model_get_vocab.restype = ctypes.c_void_p
    lib.llama_model_get_vocab.argtypes = [ctypes.c_void_p]
    lib.llama_vocab_n_tokens.argtypes = [ctypes.c_void_p]
    vocab = lib.llama_vocab_n_tokens(lib.llama_model_get_vocab(loaded))
    lib.llama_batch_init.restype = Batch
    lib.llama_decode.argtypes = [ctypes.c_void_p, Batch]
    lib.llama_get_logits_ith.restype = ctypes.POINTER(ctypes.c_float)
    lib.llama_get_logits_ith.argtypes = [ctypes.c_void_p, ctypes.c_int32]
    lib.llama_get_memory.restype = ctypes.c_void_p
    lib.llama_get_memory.argtypes = [ctypes.c_void_p]
    lib.llama_memory_clear.argtypes = [ctypes.c_void_p, ctypes.c_bool]
    lib.llama_synchronize.argtypes = [ctypes.c_void_p]
    import numpy as np

    tokens = lib.llama_batch_init(2048, 0, 1)

    def decode(rows):
        """Rows are (token, position, sequence, whether its logits are wanted)."""
        next = []
        for first in range(0, len(rows), 2048):
            part = rows[first : first + 2048]
            tokens.n_tokens = len(part)
            for at, (token, position, sequence, wanted) in enumerate(part):
                tokens.token[at], tokens.pos[at], tokens.logits[at] = token, position, wanted
                tokens.n_seq_id[at], tokens.seq_id[at][0] = 1, sequence
            assert lib.llama_decode(context, tokens) == 0
            for at, row in enumerate(part):
                if row[3]:
                    logits = lib.llama_get_logits_ith(context, at)
                    next.append(int(np.ctypeslib.as_array(logits, (vocab,)).argmax()))
        lib.llama_synchronize(context)
        return next

    asked = prompts(batch, prompt, vocab)

    def generation():
        lib.llama_memory_clear(lib.llama_get_memory(context), True)
        rows = [(token, at, s, at == prompt - 1) for s, all in enumerate(asked) for at, token in enumerate(all)]
        yield lambda: decode(rows)
        for step in range(steps):
            yield lambda next: decode([(token, prompt + step, s, True) for s, token in enumerate(next)])

    return times(generation, repeats)


def torch_eager(model, threads, batch, prompt, steps, repeats):
    import torch
    from transformers import AutoModelForCausalLM

    torch.set_num_threads(threads)
    loaded = AutoModelForCausalLM.from_pretrained(model, torch_dtype="auto").eval()
    asked = torch.tensor(prompts(batch, prompt, loaded.config.vocab_size))

    def generation():
        state = {}

        def step(ids):
            with torch.inference_mode():
                out = loaded(ids, past_key_values=state.get("cache"), use_cache=True, num_logits_to_keep=1)
                state["cache"] = out.past_key_values
                return out.logits[:, -1].argmax(-1, keepdim=True)

        yield lambda: step(asked)
        for _ in range(steps):
            yield step

    return times(generation, repeats)


def times(generation, repeats):
    """Times of each generation's parts; the tokens of sequence 0 in the last."""
    prefill, taken, tokens = [], [], []
    for repeat in range(repeats + 1):
        next, tokens = None, []
        for at, part in enumerate(generation()):
            start = time.perf_counter()
            next = part() if at == 0 else part(next)
            ms = 1e3 * (time.perf_counter() - start)
            tokens.append(int(next[0]))
            if repeat:
                (taken if at else prefill).append(ms)
    return {"prefill_ms": prefill, "step_ms": taken, "tokens": tokens}


if __name__ == "__main__":
    engine, libraries, model, _ = sys.argv[1:5]
    numbers = [int(number) for number in sys.argv[5:]]
    print(json.dumps(llama(libraries, model, *numbers) if engine == "llama" else torch_eager(model, *numbers)))
