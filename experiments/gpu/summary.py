#!/usr/bin/env python3
"""Targets against what measure.sh measured: summary.json and a table. Standard library alone.

    summary.py OUT [--binary LADDERSCOPE] [--simulate-on PROFILE]

With the binary, every cell over an emulated link is simulated beside: same link, this profile's GPU (default: that of
the GPU that was measured).
"""

import argparse
import json
import math
import pathlib
import subprocess
import sys

TARGETS = {
    "decode": 0.80,
    "decode-batched": 0.75,
    "torch": 1.0,
    "gap": 0.80,
    "prefill": 0.55,
    "timing": 1.05,
}


def read_json(path):
    try:
        return json.loads(path.read_text())
    except (OSError, ValueError):
        return None


def ok(record):
    return bool(record) and record.get("status") == "ok" and record.get("metrics")


def tpot(record):
    return record["metrics"]["tpot_ms"]["p50"]


def tpot_ci(record):
    return record["metrics"].get("tpot_ms_ci95")


def alike(theirs, spec):
    """Whether PyTorch's run is of the same model, workload and format."""
    dtype = {"bfloat16": "bf16", "float16": "f16", "float32": "f32"}.get(theirs["dtype"])
    names = ("model", "batch", "prompt_tokens", "output_tokens")
    return dtype == spec["dtype"] and all(theirs[name] == spec[name] for name in names)


# Bytes of a number of the activations and the KV cache, by the format of the weights.
ACTIVATION_BYTES = {"f32": 4, "bf16": 2, "f16": 2, "fp8": 2}


def streamed_bytes(shape, spec):
    """Bytes that a decode step must read of a whole model: every weight but the embedding's table, of which it reads a
    row a sequence, and the KV cache as long as it is half way through the output."""
    each = ACTIVATION_BYTES[spec["dtype"]]
    head, kv = shape["head_dim"], shape["kv_heads"]
    queries = shape["heads"] * head
    layer = shape["hidden"] * (2 * queries + 2 * kv * head) + 3 * shape["hidden"] * shape["mlp"]
    weights = shape["layers"] * layer + shape["hidden"] * shape["vocabulary"]
    context = spec["prompt_tokens"] + spec["output_tokens"] / 2
    cache = 2 * shape["layers"] * kv * head * context * spec["batch"]
    if spec["dtype"] == "fp8":
        # a byte a number and a scale an output; a head that is the embedding stays in bf16
        outputs = queries + 2 * kv * head + 2 * shape["hidden"] + 2 * shape["mlp"]
        of_head = shape["vocabulary"] * (shape["hidden"] if shape.get("tied_embeddings") else 4)
        return weights + 4 * shape["layers"] * outputs + of_head, cache * each
    return weights * each, cache * each


def prefill_flops(shape, spec):
    """Multiplications and additions of a prefill: products with every weight for every token (the head's for the
    last alone), and causal attention."""
    head, kv = shape["head_dim"], shape["kv_heads"]
    queries = shape["heads"] * head
    layer = shape["hidden"] * (2 * queries + 2 * kv * head) + 3 * shape["hidden"] * shape["mlp"]
    tokens = spec["prompt_tokens"] * spec["batch"]
    attention = 2 * 2 * queries * spec["prompt_tokens"] / 2 * tokens
    head_flops = 2 * shape["hidden"] * shape["vocabulary"] * spec["batch"]
    return shape["layers"] * (2 * layer * tokens + attention) + head_flops


class Summary:
    def __init__(self, out, binary, simulate_on):
        self.out, self.binary, self.simulate_on = out, binary, simulate_on
        self.parts = {p.stem: read_json(p) for p in sorted((out / "parts").glob("*.json"))}
        self.targets, self.cells = [], []
        doctor = self.parts.get("doctor") or {}
        gpus = (doctor.get("cuda") or {}).get("gpus") or [{}]
        self.gpu = gpus[0]
        self.bandwidth = (self.gpu.get("read_bandwidth") or {}).get("gb_s")
        self.gemm = (self.gpu.get("gemm") or {}).get("tflops")
        self.shapes = {}
        models = self.call("models", "--format", "json")
        for shape in models or []:
            self.shapes[shape["name"]] = shape

    def call(self, *arguments):
        if not self.binary:
            return None
        try:
            done = subprocess.run([self.binary, *arguments], capture_output=True, text=True, timeout=120)
            return json.loads(done.stdout)
        except (OSError, ValueError, subprocess.TimeoutExpired):
            return None

    def target(self, name, what, value, wanted, unit="", interval=None, at_most=False, note=None):
        met = None
        if value is not None and wanted is not None:
            met = value <= wanted if at_most else value >= wanted
        self.targets.append(
            {
                "target": name,
                "what": what,
                "value": value,
                "unit": unit,
                "ci95": interval,
                "wanted": wanted,
                "at_most": at_most,
                "met": met,
                "note": note,
            }
        )

    def decoding(self):
        for name, record in self.parts.items():
            if not name.startswith("decode-b") or not ok(record):
                continue
            spec = record["spec"]
            shape = self.shapes.get(spec["model"])
            batch = spec["batch"]
            what = f"{spec['model']} {spec['dtype']} batch {batch}: TPOT {tpot(record):.3f} ms"
            share = interval = None
            if self.bandwidth and shape:
                weights, cache = streamed_bytes(shape, spec)
                limit_ms = (weights + cache) / self.bandwidth / 1e6
                share = limit_ms / tpot(record)
                interval = tpot_ci(record) and [limit_ms / ms for ms in reversed(tpot_ci(record))]
                what += f", limit {limit_ms:.3f} ms at {self.bandwidth:.0f} GB/s"
            wanted = TARGETS["decode" if batch == 1 else "decode-batched"]
            self.target(f"decode batch {batch}", what, share, wanted, "of the limit", interval)
            theirs = [
                other
                for key, other in self.parts.items()
                if key.startswith("torch") and other and alike(other, spec)
            ]
            if theirs:
                best = min(theirs, key=lambda other: other["tpot_ms"])
                ratio = best["tpot_ms"] / tpot(record)
                both = tpot_ci(record) and best.get("tpot_ms_ci95")
                # the widest that both intervals allow
                span = both and [both[0] / tpot_ci(record)[1], both[1] / tpot_ci(record)[0]]
                what = f"PyTorch {best['torch']} ({best['attention']}): TPOT {best['tpot_ms']:.3f} ms, batch {batch}"
                self.target(f"ours / PyTorch batch {batch}", what, ratio, TARGETS["torch"], "x", span)
            self.timing(record, f"batch {batch}")

    def timing(self, record, label):
        timed = record.get("instrumented") or {}
        if timed.get("overhead") is not None:
            self.target(
                f"timing {label}",
                f"{timed['recorder']}, TPOT {timed['tpot_ms']:.3f} ms instrumented",
                timed["overhead"],
                TARGETS["timing"] if timed["recorder"] == "stamps" else None,
                "x",
                timed.get("overhead_ci95"),
                at_most=True,
            )

    def prefill(self):
        for name, record in self.parts.items():
            if not name.startswith("prefill-b") or not ok(record):
                continue
            spec, ms = record["spec"], record["metrics"]["prefill_ms"]
            shape = self.shapes.get(spec["model"])
            share, what = None, f"{spec['prompt_tokens']} x {spec['batch']} in {ms:.2f} ms"
            if shape:
                rate = prefill_flops(shape, spec) / ms / 1e9
                what += f": {rate:.0f} TFLOP/s"
                if self.gemm:
                    share = rate / self.gemm
                    what += f" of {self.gemm:.0f}"
            self.target("prefill", what, share, TARGETS["prefill"], "of the GEMM rate")

    def links(self):
        groups = {}
        for name, record in self.parts.items():
            if name.startswith(("large_", "huge_")) and ok(record):
                spec = record["spec"]
                key = (spec["model"], spec["tp"], spec["batch"], spec["link"])
                groups.setdefault(key, {})[spec["architecture"]] = record
        pairs = (read_json(self.out / "compare.json") or {}).get("pairs") or []
        intervals = {pair["run"]: pair.get("hidden_share_ci95") for pair in pairs}
        for (model, tp, batch, link), records in groups.items():
            standard, bound = records.get("standard"), records.get("upper-bound")
            for architecture, record in records.items():
                cell = {
                    "model": model,
                    "tp": tp,
                    "batch": batch,
                    "link": link,
                    "architecture": architecture,
                    "provenance": record["provenance"],
                    "tpot_ms": tpot(record),
                    "tpot_ms_ci95": tpot_ci(record),
                    "overlap_pct": (record.get("overlap") or {}).get("overlap_pct"),
                    "overhead": (record.get("instrumented") or {}).get("overhead"),
                    "speedup": standard and tpot(standard) / tpot(record),
                    "hidden_share": None,
                    "hidden_share_ci95": intervals.get(record["run"]),
                    "simulated": self.simulated(record),
                    "published_tpot_ms": published(model, architecture, tp, batch, link),
                }
                if standard and bound and tpot(standard) != tpot(bound):
                    cell["hidden_share"] = (tpot(standard) - tpot(record)) / (tpot(standard) - tpot(bound))
                self.cells.append(cell)
                if architecture == "ladder":
                    of_ladder = cell
            ladder = records.get("ladder")
            if not (ladder and standard and bound):
                continue
            comm_ms = communication_ms(ladder, self.shapes.get(model))
            fits = comm_ms is not None and comm_ms <= tpot(bound)
            self.target(
                f"gap {model} TP {tp} b{batch} {link}",
                f"standard {tpot(standard):.3f}, ladder {tpot(ladder):.3f}, upper-bound {tpot(bound):.3f} ms"
                + (f"; communication {comm_ms:.3f} ms" if comm_ms is not None else ""),
                of_ladder["hidden_share"],
                TARGETS["gap"] if fits else None,
                "",
                of_ladder["hidden_share_ci95"],
                note=None if fits else "communication does not fit under compute" if comm_ms else None,
            )

    def simulated(self, record):
        link = (record.get("environment") or {}).get("emulated_link")
        if not link:
            return None
        spec = record["spec"]
        gpu = self.simulate_on or record["environment"].get("hardware_profile") or spec["hardware"]
        arguments = ["--backend", "sim", "--hardware", gpu, "--format", "json"]
        for name in ("model", "dtype", "tp", "batch", "prompt_tokens", "output_tokens", "architecture"):
            arguments += [f"--{name.replace('_', '-')}", str(spec[name])]
        # a link of one latency and bandwidth, or what a profile says of each message
        formula = "alpha_us" in link
        arguments += ["--link", f"emulated:alpha_us={link['alpha_us']},gb_s={link['gb_s']}" if formula else spec["link"]]
        arguments += ["--dir", str(self.out / "simulated")]
        result = self.call("run", *arguments)
        if not ok(result):
            return None
        return {"tpot_ms": tpot(result), "overlap_pct": (result.get("overlap") or {}).get("overlap_pct")}

    def checks(self):
        tried = [part["status"] for part in self.status() if part["part"] == "checks"]
        if "checks" in self.parts or "failed" in tried:
            self.target("correct", "checks on the GPU", float("checks" in self.parts), 1.0, "passed")
        for name in ("timing-events", "timing-cupti", "timing-eager"):
            if ok(self.parts.get(name)):
                self.timing(self.parts[name], name)

    def tuning(self):
        """What a way of running takes over the usual one: TPOT without a piece of tuning, with all products done in one way, with a
        divided head."""
        for name, record in self.parts.items():
            if not name.startswith(("tuning-", "head-")) or not ok(record):
                continue
            spec = record["spec"]
            same = ("model", "tp", "batch", "architecture", "link", "dtype", "prompt_tokens", "output_tokens")
            usual = [
                other
                for key, other in self.parts.items()
                if key.startswith(("decode-b", "large_"))
                and ok(other)
                and all(other["spec"][field] == spec[field] for field in same)
            ]
            if usual:
                is_another = name.startswith("head-") or "PRODUCTS" in name
                others = ("the usual", "this") if is_another else ("with", "without")
                what = f"{others[1]}: {tpot(record):.3f}, {others[0]}: {tpot(usual[0]):.3f} ms"
                self.target(name, what, tpot(record) / tpot(usual[0]), None, "x")

    def status(self):
        lines = []
        path = self.out / "status.tsv"
        for line in path.read_text().splitlines() if path.exists() else []:
            name, state, seconds, why = (line.split("\t") + ["", "", ""])[:4]
            lines.append({"part": name, "status": state, "seconds": float(seconds or 0), "why": why or None})
        # the last word on each part
        return list({line["part"]: line for line in lines}.values())

    def make(self):
        self.checks()
        self.decoding()
        self.links()
        self.prefill()
        self.tuning()
        return {
            "gpu": {key: self.gpu.get(key) for key in ("name", "memory_bytes", "multiprocessors", "compute_capability")},
            "read_bandwidth_gb_s": self.bandwidth,
            "gemm_tflops": self.gemm,
            "targets": self.targets,
            "cells": self.cells,
            "parts": self.status(),
        }


def communication_ms(record, shape):
    """How long a step's all-reduces take one after the other, as the emulated link has it."""
    link = (record.get("environment") or {}).get("emulated_link")
    if not link or not shape:
        return None
    spec = record["spec"]
    if "alpha_us" not in link:
        # what a profile says of each message has no formula: what the comm lane took
        comm_ms = (record.get("overlap") or {}).get("comm_ms")
        return None if comm_ms is None else comm_ms / max(spec["output_tokens"] - 1, 1)
    each = ACTIVATION_BYTES[spec["dtype"]]
    message = spec["batch"] * shape["hidden"] * each
    return 2 * shape["layers"] * (link["alpha_us"] / 1e3 + message / link["gb_s"] / 1e6)


def published(model, architecture, tp, batch, link):
    """TPOT of the paper's cell (8 H100, gpt-fast), for context."""
    path = pathlib.Path(__file__).resolve().parents[2] / "src/study/analysis/published/ladder-residual.tsv"
    p2p = {"p2p-on": "on", "p2p-off": "off"}.get(link)
    wanted = [architecture, model, str(tp), str(batch), p2p]
    try:
        for line in path.read_text().splitlines():
            fields = line.split("\t")
            if fields[:5] == wanted:
                return float(fields[-1])
    except (OSError, ValueError):
        pass
    return None


def number(value, digits=3):
    return "-" if value is None else f"{value:.{digits}f}"


def interval(ci):
    return f"[{ci[0]:.3f}, {ci[1]:.3f}]" if ci and all(map(math.isfinite, ci)) else ""


def table(rows):
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    return "\n".join("  ".join(cell.ljust(width) for cell, width in zip(row, widths)).rstrip() for row in rows)


def text(summary):
    gpu = summary["gpu"]
    lines = [
        f"{gpu.get('name') or 'no GPU'}: reads {number(summary['read_bandwidth_gb_s'], 0)} GB/s, "
        f"multiplies {number(summary['gemm_tflops'], 0)} TFLOP/s",
        "",
    ]
    rows = [["target", "value", "95%", "wanted", "met", "what"]]
    for t in summary["targets"]:
        sign = "<=" if t["at_most"] else ">="
        wanted = "" if t["wanted"] is None else f"{sign} {t['wanted']:.2f}"
        met = {True: "yes", False: "NO", None: "-"}[t["met"]]
        what = t["what"] + (f" ({t['note']})" if t["note"] else "")
        rows.append([t["target"], number(t["value"]), interval(t["ci95"]), wanted, met, what])
    lines.append(table(rows) if len(rows) > 1 else "nothing was measured")
    if summary["cells"]:
        rows = [["model", "tp", "batch", "link", "architecture", "TPOT ms", "95%", "x", "gap closed", "overlap %", "sim ms", "sim overlap %", "paper ms"]]
        for c in summary["cells"]:
            sim = c["simulated"] or {}
            rows.append(
                [
                    c["model"], str(c["tp"]), str(c["batch"]), c["link"], c["architecture"], number(c["tpot_ms"]),
                    interval(c["tpot_ms_ci95"]), number(c["speedup"]), number(c["hidden_share"]),
                    number(c["overlap_pct"], 1), number(sim.get("tpot_ms")), number(sim.get("overlap_pct"), 1),
                    number(c["published_tpot_ms"]),
                ]
            )  # fmt: skip
        lines += ["", "rank 0's shard over an emulated link (emulated-link); sim: simulated; paper: 8 H100, for context", table(rows)]
    rest = [p for p in summary["parts"] if p["status"] != "ok"]
    if rest:
        lines += ["", "not measured:"] + [f"  {p['part']}: {p['status']}: {p['why']}" for p in rest]
    return "\n".join(lines)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("out", type=pathlib.Path)
    parser.add_argument("--binary")
    parser.add_argument("--simulate-on")
    options = parser.parse_args()
    if not (options.out / "parts").is_dir():
        sys.exit(f"{options.out}: no results of measure.sh")
    summary = Summary(options.out, options.binary, options.simulate_on).make()
    (options.out / "summary.json").write_text(json.dumps(summary, indent=1) + "\n")
    page = text(summary)
    (options.out / "summary.txt").write_text(page + "\n")
    print(page)


if __name__ == "__main__":
    main()
