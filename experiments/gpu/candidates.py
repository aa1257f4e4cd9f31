#!/usr/bin/env python3
"""Compares ways of a decode step on one GPU: alternates runs with other variables, and prints TPOT and the time of each operation.

    candidates.py BINARY OUT [--seconds 150] [--cases 8b-b1,8b-b16,1b-b1,70b-ub|tiny]

Standard library alone; the binary finds CUDA's libraries as ever (LADDERSCOPE_NVRTC and its like name others). Predictions
are in README.md.
"""

import argparse
import collections
import csv
import json
import os
import pathlib
import re
import statistics
import subprocess
import sys
import time

OWN = {"LADDERSCOPE_PRODUCTS": "own"}
CANDIDATES = {
    "base": {},
    "own": OWN,
    "ahead64": {**OWN, "LADDERSCOPE_AHEAD": "64"},
    "ahead128": {**OWN, "LADDERSCOPE_AHEAD": "128"},
    "ahead192": {**OWN, "LADDERSCOPE_AHEAD": "192"},
    "attend96": {**OWN, "LADDERSCOPE_AHEAD": "128", "LADDERSCOPE_AHEAD_ATTEND": "96"},
    "timed128": {"LADDERSCOPE_AHEAD": "128"},
}
TOKENS = ["--prompt-tokens", "1024", "--output-tokens", "49"]
LARGE = ["--architecture", "upper-bound", "--link", "p2p-on", "--hardware", "h100_sxm"]
# Options of each case, and its candidates in the order in which they take turns; `tiny` is for trying it out.
CASES = {
    "8b-b1": (["--model", "llama-3-8b", *TOKENS], ["base", "own", "ahead128", "attend96", "timed128", "ahead64", "ahead192"]),
    "8b-b16": (["--model", "llama-3-8b", "--batch", "16", *TOKENS], ["base", "own", "ahead128", "timed128"]),
    "1b-b1": (["--model", "llama-3.2-1b", *TOKENS], ["base", "own", "ahead128", "attend96"]),
    "70b-ub": (["--model", "llama-3-70b", "--tp", "8", *LARGE, *TOKENS], ["base", "own", "ahead128", "attend96"]),
    "tiny": (["--model", "tiny", "--prompt-tokens", "4", "--output-tokens", "6"], ["base", "own", "ahead64", "attend96"]),
}


def run(binary, out, case, candidate, number, seconds):
    """One run: its record and its operations' times by name (us), or None where it failed."""
    trace = out / f"{case}.{candidate}.{number}.csv"
    command = [binary, "run", "--backend", "cuda", "--dtype", "bf16", "--samples", "2", "--warmup", "1"]
    command += ["--dir", out / "runs", "--trace", trace, "--format", "json", *CASES[case][0]]
    known = [name for variables in CANDIDATES.values() for name in variables]
    environment = {name: value for name, value in os.environ.items() if name not in known}
    environment |= {"LADDERSCOPE_CHECK": "0", **CANDIDATES[candidate]}
    try:
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=seconds)
    except subprocess.TimeoutExpired:
        return None
    if done.returncode != 0:
        print(f"{case} {candidate} failed: {done.stderr.strip()[-300:]}", file=sys.stderr)
        return None
    times = collections.defaultdict(list)
    with open(trace, newline="") as file:
        for row in csv.DictReader(file):
            if row["phase"] == "decode":
                name = re.sub(r"^decode/(L\d+/)?", "", row["operation"])
                times[name].append((int(row["end_ns"]) - int(row["start_ns"])) / 1e3)
    trace.unlink()
    return json.loads(done.stdout), {name: statistics.median(us) for name, us in times.items()}


def measure(asked, cases, results):
    """Takes turns until the time is up; a case's last run says whether there is time for another."""
    end, took = time.monotonic() + asked.seconds, collections.defaultdict(lambda: 10.0)
    for number in range(100):
        for case in cases:
            for candidate in CASES[case][1]:
                began = time.monotonic()
                if end - began < took[case]:
                    return
                found = run(asked.binary, asked.out, case, candidate, number, end - began)
                took[case] = time.monotonic() - began
                if found:
                    results[case][candidate].append(found)


def table(case, candidates):
    """TPOT of each candidate, and the median time of each operation."""
    tpot = {name: [record["metrics"]["tpot_ms"]["p50"] for record, _ in runs] for name, runs in candidates.items()}
    first = statistics.median(next(iter(tpot.values())))
    print(f"\n{case}: TPOT (ms), difference to {next(iter(tpot))} (us), each run's, tokens, own products")
    for name, each in tpot.items():
        record, median = candidates[name][0][0], statistics.median(each)
        environment = record["environment"]
        tokens = (environment.get("computed") or {}).get("tokens")
        runs = " ".join(f"{x:.4f}" for x in each)
        print(f"  {name:9} {median:8.4f} {(median - first) * 1e3:+8.1f}  {runs}  {tokens}  {environment['matvec']}")
    print(f"  {'operation (us)':20}" + "".join(f"{name:>10}" for name in candidates))
    operations = {name: [times for _, times in runs] for name, runs in candidates.items()}
    for operation in dict.fromkeys(op for runs in operations.values() for times in runs for op in times):
        medians = (statistics.median(t[operation] for t in runs if operation in t) for runs in operations.values())
        print(f"  {operation:20}" + "".join(f"{us:10.2f}" for us in medians))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("binary", type=lambda path: str(pathlib.Path(path).resolve()))
    parser.add_argument("out", type=pathlib.Path)
    parser.add_argument("--seconds", type=float, default=150)
    parser.add_argument("--cases", default=",".join(case for case in CASES if case != "tiny"))
    asked = parser.parse_args()
    cases = asked.cases.split(",")
    if unknown := [case for case in cases if case not in CASES]:
        parser.error(f"unknown case {unknown[0]}; there are {', '.join(CASES)}")
    asked.out.mkdir(parents=True, exist_ok=True)
    results = collections.defaultdict(lambda: collections.defaultdict(list))
    measure(asked, cases, results)
    for case, candidates in results.items():
        table(case, candidates)
    if not results:
        sys.exit("no run finished")


if __name__ == "__main__":
    main()
