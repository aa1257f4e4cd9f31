"""Training on the CPU beside PyTorch: the same weights, windows, threads and optimiser, programs by turns.

usage: DIR/python/bin/python benches/peers/train.py DIR MODEL_DIR [--binary PATH] [--rounds N] [--steps N] [--batch N] [--context N]
DIR is what install.sh made; MODEL_DIR an HF directory in f32. All of the model is trained as `standard` (AdamW, f32, cross
entropy). A step is forwards, backwards and the optimiser's move; of a round the median of its steps counts, the first left
out. `share` is our tokens a second over PyTorch's: above 1 we are ahead. What else runs on the machine is printed too.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path


def windows(steps, batch, context, vocab):
    token = lambda at: (at * at * 31 + at * 7 + 3) % min(vocab, 1000)
    return [token(at) for at in range((steps + 4) * batch * context)]


def torch_steps(model_dir, threads, steps, batch, context):
    """Seconds of each step, in a process of its own."""
    import torch
    from transformers import AutoModelForCausalLM

    torch.set_num_threads(threads)
    model = AutoModelForCausalLM.from_pretrained(model_dir, torch_dtype=torch.float32).train()
    optimiser = torch.optim.AdamW(model.parameters(), lr=1e-5, betas=(0.9, 0.95), weight_decay=0.1)
    tokens = torch.tensor(windows(steps, batch, context, model.config.vocab_size))
    seconds, parts = [], []
    for step in range(steps):
        at = step * batch * context
        rows = [tokens[at + w * context : at + (w + 1) * context + 1] for w in range(batch)]
        rows = torch.stack(rows)
        began = time.perf_counter()
        logits = model(rows[:, :-1]).logits
        loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), rows[:, 1:].flatten())
        loss.backward()
        parts.append(time.perf_counter() - began)
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimiser.step()
        optimiser.zero_grad(set_to_none=False)
        seconds.append(time.perf_counter() - began)
    print(json.dumps({"steps": seconds, "forward_backward": parts}))


def our_steps(binary, model_dir, threads, steps, batch, context):
    with tempfile.TemporaryDirectory() as place:
        vocab = json.loads((Path(model_dir) / "config.json").read_text())["vocab_size"]
        ids = Path(place, "ids.txt")
        ids.write_text(" ".join(map(str, windows(steps, batch, context, vocab))))
        # the warm-up never ends, so that rates stay small and the numbers finite
        command = [
            binary, "adapt", "--weights", model_dir, "--architecture", "standard", "--layers", "all", "--tokens-file",
            str(ids), "--steps", str(steps), "--batch", str(batch), "--context", str(context), "--lr", "1e-5",
            "--held-out", "0", "--replicas", str(threads), "--checkpoint-every", str(steps), "--format", "json",
            "--dir", f"{place}/runs",
        ]
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode:
            sys.exit(f"{' '.join(command)}\n{done.stderr}")
        training = json.loads(done.stdout)["trainings"][0]
        return {"steps": [step["seconds"] for step in training["curve"]], "speed": training["speed"]}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("dir")
    parser.add_argument("model")
    parser.add_argument("--binary", default="target/release/ladderscope")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=5)
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--context", type=int, default=256)
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--torch", action="store_true", help=argparse.SUPPRESS)
    asked = parser.parse_args()
    sizes = (asked.threads, asked.steps, asked.batch, asked.context)
    if asked.torch:
        return torch_steps(asked.model, *sizes)
    tokens = asked.batch * asked.context
    shares = []
    for number in range(asked.rounds):
        found = {}
        order = ["ours", "torch"] if number % 2 == 0 else ["torch", "ours"]
        for program in order:
            if program == "ours":
                found[program] = our_steps(asked.binary, asked.model, *sizes)
            else:
                command = [sys.executable, __file__, *sys.argv[1:], "--torch"]
                found[program] = json.loads(subprocess.run(command, stdout=subprocess.PIPE, check=True).stdout)
        rate = {program: tokens / statistics.median(one["steps"][1:]) for program, one in found.items()}
        shares.append(rate["ours"] / rate["torch"])
        both = tokens / statistics.median(found["torch"]["forward_backward"][1:])
        share = found["ours"]["speed"]["gemm_share"]
        print(json.dumps({
            "round": number, "ours_tokens_per_s": round(rate["ours"], 1), "torch_tokens_per_s": round(rate["torch"], 1),
            "torch_forward_backward_tokens_per_s": round(both, 1), "share": round(shares[-1], 3),
            "gemm_share": share and round(share, 3), "load": os.getloadavg(),
        }), flush=True)
    print(json.dumps({"share": statistics.median(shares), "of": sorted(round(share, 3) for share in shares)}))


if __name__ == "__main__":
    main()
