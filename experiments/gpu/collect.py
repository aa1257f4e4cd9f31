#!/usr/bin/env python3
"""Copies traces that measure.sh recorded into a folder of kept traces, with an entry of its MANIFEST.toml each.
Standard library alone.

    collect.py OUT FOLDER BINARY          for example: collect.py results traces target/release/ladderscope
"""

import argparse
import hashlib
import json
import pathlib
import shutil
import subprocess
import sys


def quoted(text):
    return json.dumps(str(text), ensure_ascii=False)


def overlap_pct(binary, trace):
    """Of the whole trace, prefill included; None without communication."""
    done = subprocess.run([binary, "overlap", "--format", "json", trace], capture_output=True, text=True, timeout=300)
    if done.returncode != 0:
        sys.exit(f"{binary} overlap {trace}: {done.stderr.strip()}")
    return json.loads(done.stdout)["all"]["overlap_pct"]


def entry(record, trace, overlap):
    environment, spec = record["environment"], record["spec"]
    gpu = environment.get("gpu") or "an NVIDIA GPU"
    software = [f"ladderscope {environment.get('version', '')} at {environment.get('commit') or 'an unknown commit'}"]
    software += [
        f"{name} {environment[key]}"
        for name, key in [("driver API", "driver_api"), ("NVRTC", "nvrtc"), ("cuBLASLt", "cublaslt"), ("NCCL", "nccl")]
        if environment.get(key)
    ]
    options = []
    for name in ("backend", "model", "dtype", "architecture", "tp", "batch", "prompt_tokens", "output_tokens", "samples"):
        options.append(f"--{name.replace('_', '-')} {spec[name]}")
    if spec["link"] != "native":
        options.append(f"--link {spec['link']} --hardware {spec['hardware']}")
    lines = [
        "[[trace]]",
        f"file = {quoted(trace.name)}",
        f"provenance = {quoted(record['provenance'])}",
        f"hardware = {quoted(gpu)}",
        f"software = {quoted(', '.join(software))}",
        f"command = {quoted('ladderscope run ' + ' '.join(options) + ' --trace ' + trace.name)}",
        f"recorded = {quoted(record['created'][:10])}",
        f"recorder = {quoted(environment.get('recorder', 'unknown'))}",
        f"tpot_ms = {record['metrics']['tpot_ms']['p50']:.3f}",
    ]
    if overlap is not None:
        lines.append(f"overlap_pct = {overlap:.3f}")
    lines.append(f"sha256 = {quoted(hashlib.sha256(trace.read_bytes()).hexdigest())}")
    return "\n".join(lines) + "\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("out", type=pathlib.Path)
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("binary")
    options = parser.parse_args()
    manifest = options.folder / "MANIFEST.toml"
    kept = manifest.read_text() if manifest.exists() else "# Traces recorded with Ladderscope. Each names what it ran on, with what, how, and its checksum.\n"
    copied = 0
    for part in sorted((options.out / "parts").glob("trace-*.json")):
        record = json.loads(part.read_text())
        trace = options.out / "traces" / f"gpu-{part.stem.removeprefix('trace-')}.parquet"
        if record.get("status") != "ok" or not trace.exists():
            print(f"{part.name}: no trace", file=sys.stderr)
            continue
        if f"file = {quoted(trace.name)}\n" in kept:
            sys.exit(f"{manifest} has {trace.name} already; remove its entry, or name the file otherwise")
        options.folder.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(trace, options.folder / trace.name)
        kept += "\n" + entry(record, trace, overlap_pct(options.binary, trace))
        copied += 1
    if copied == 0:
        sys.exit(f"{options.out}: no traces; measure.sh records them in its parts trace-standard and trace-ladder")
    manifest.write_text(kept)
    print(f"{copied} traces in {options.folder}")


if __name__ == "__main__":
    main()
