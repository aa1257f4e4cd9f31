"""Summary of record.sh: record_summary.py OUT writes and prints OUT/record.json."""
import json, pathlib, sys

out = pathlib.Path(sys.argv[1])


def read(name):
    path = out / name
    try:
        return json.loads(path.read_text())
    except (OSError, ValueError):
        return None


def kernels(name):
    """Kernels of a recording: rows of the trace's breakdown by kind, less copies and fills."""
    report = read(f"{name}.txt")
    if not report:
        return None
    return sum(kind["count"] for kind in report["kinds"] if kind["lane"] != "memory")


summary = {"gpu": (out / "gpu.txt").read_text().strip(), "modes": {}}
for mode in ("eager", "graph", "compile"):
    plain = [read(f"{mode}-plain-{turn}.json") for turn in (1, 2)]
    recorded = [read(f"{mode}-recorded-{turn}.json") for turn in (1, 2)]
    kineto = read(f"{mode}-kineto.json")
    pairs = [(p["step_ms"], r["step_ms"]) for p, r in zip(plain, recorded) if p and r]
    summary["modes"][mode] = {
        "step_ms_plain_and_recorded": pairs,
        "overhead_pct": [100 * (r / p - 1) for p, r in pairs],
        # both of the same 40 steps
        "kernels_recorded": kernels(f"{mode}-1"),
        "kernels_kineto": kineto and kineto["kernels"],
    }
for name in ("kill", "range", "demand"):
    status = out / f"{name}.status"
    summary[name] = {"kernels": kernels(name), "status": int(status.read_text()) if status.exists() else 0}
(out / "record.json").write_text(json.dumps(summary, indent=1))
print(json.dumps(summary, indent=1))
