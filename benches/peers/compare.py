"""Decoding on the CPU beside llama.cpp and PyTorch: the same weights and threads, programs by turns.

usage: DIR/python/bin/python benches/peers/compare.py DIR [--binary PATH] [--before PATH] [--cases REGEX] [--rounds N]
DIR is what install.sh made. Each round runs every program once for a case, as a process of its own, beginning with
another one each time; of each the median of a round counts. `x` is a peer's speed over ours, above 1 we are behind.
"""

import argparse
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

import models

HERE = Path(__file__).parent

# model, dtype, threads, TP, batch, prompt, steps; threads are those of all ranks together
CASES = [
    *[("smollm2-135m", d, 1, 1, b, 8, 24) for d in ("f32", "bf16") for b in (1, 4, 16)],
    *[("smollm2-135m", d, 1, 1, 1, 512, 2) for d in ("f32", "bf16")],
    *[("smollm2-135m", d, 2, 1, 1, 8, 24) for d in ("f32", "bf16")],
    *[("stories-110m", d, 2, 2, b, 8, 24) for d in ("f32", "bf16") for b in (1, 4, 16)],
    *[("stories-110m", d, 2, 2, 1, 512, 2) for d in ("f32", "bf16")],
    ("llama-3.2-1b", "bf16", 1, 1, 1, 8, 8),
    *[("llama-3.2-1b", "bf16", 2, 2, b, 8, 8) for b in (1, 4, 16)],
    *[("untied-150m", d, 2, 2, 1, 8, 24) for d in ("f32", "bf16")],
    # 8 of its 24 layers, on llama.cpp only (--engines llama)
    ("gpt-oss-20b-8", "mxfp4", 2, 1, 1, 16, 24),
]


def name(case):
    model, dtype, threads, tp, batch, prompt, _ = case
    what = "prefill 512" if prompt == 512 else f"batch {batch}"
    return f"{model} {dtype}, {threads} threads, TP {tp}: {what}"


def ours(binary, model, case, repeats, shard_head=True):
    _, dtype, threads, tp, batch, prompt, steps = case
    given = dict(model=model, dtype=dtype, tp=tp, batch=batch, samples=repeats, warmup=1, backend="cpu")
    given |= {"prompt-tokens": prompt, "output-tokens": steps + 1}
    if threads > tp:
        given["threads"] = threads
    options = [word for key, value in given.items() for word in (f"--{key}", str(value))]
    if tp > 1 and shard_head:
        options.append("--shard-head")
    with tempfile.TemporaryDirectory() as runs:
        command = [binary, "run", *options, "--dir", runs, "--format", "json"]
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode:
            return None, done.stderr.strip().splitlines()
        [record] = list(Path(runs).glob("**/record.json"))
        samples = json.loads(record.read_text())["samples"]
    prefill = [sample["prefill_ms"] for sample in samples]
    return {"prefill_ms": prefill, "step_ms": [ms for sample in samples for ms in sample["steps_ms"]]}, None


def theirs(dir, engine, model, case, repeats):
    _, dtype, threads, _, batch, prompt, steps = case
    words = [engine, dir / "llama.cpp", model, dtype, threads, batch, prompt, steps, repeats]
    command = [sys.executable, HERE / "engine.py", *words]
    env = os.environ | {"OMP_NUM_THREADS": str(threads), "HF_HUB_OFFLINE": "1"}
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True, env=env)
    if done.returncode:
        return None, done.stderr.strip().splitlines()[-3:]
    return json.loads(done.stdout.splitlines()[-1]), None


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("dir", type=Path)
    parser.add_argument("--binary", default="target/release/ladderscope")
    parser.add_argument("--before", help="an older binary of ours, measured beside")
    parser.add_argument("--cases", default="")
    parser.add_argument("--engines", default="llama,torch")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--repeats", type=int, default=2)
    args = parser.parse_args()
    for case in CASES:
        if not re.search(args.cases, name(case)):
            continue
        model = models.make(case[0], case[1], args.dir / "models")
        runs = {"ours": lambda: ours(args.binary, model, case, args.repeats)}
        if args.before:
            runs["before"] = lambda: ours(args.before, model, case, args.repeats, shard_head=False)
        for engine in filter(None, args.engines.split(",")):
            runs[engine] = lambda engine=engine: theirs(args.dir, engine, model, case, args.repeats)
        found = {engine: [] for engine in runs}
        key = "prefill_ms" if case[5] == 512 else "step_ms"
        for round in range(args.rounds):
            order = list(runs)
            order = order[round % len(order) :] + order[: round % len(order)]
            for engine in order:
                times, why = runs[engine]()
                if why:
                    print(f"{engine}: {why}", file=sys.stderr)
                    continue
                found[engine].append(statistics.median(times[key]))
        line = [name(case)]
        for engine, all in found.items():
            if not all:
                continue
            line.append(f"{engine} {statistics.median(all):.2f} ms ({min(all):.2f} to {max(all):.2f})")
            if engine != "ours" and len(all) == len(found["ours"]):
                ratios = [own / other for own, other in zip(found["ours"], all)]
                line[-1] += f" x {statistics.median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f})"
        print("; ".join(line), flush=True)


if __name__ == "__main__":
    main()
