"""Decode-like steps for record.sh: record_steps.py eager|graph|compile OUT.json [--kineto] [--kill] [--seconds S]

Each of 40 steps is an NVTX range `step N`, within one named `timed`; OUT.json has the median step time (ms) and, with --kineto, the kernels that
PyTorch's profiler counted in them."""
import json, os, signal, statistics, sys, time

import torch

mode, path = sys.argv[1:3]
seconds = float(sys.argv[sys.argv.index("--seconds") + 1]) if "--seconds" in sys.argv else 0
torch.manual_seed(0)
layers = [torch.randn(2048, 2048, device="cuda", dtype=torch.bfloat16) / 45 for _ in range(40)]
x = torch.randn(8, 2048, device="cuda", dtype=torch.bfloat16)


def step(x):
    for weight in layers:
        x = torch.nn.functional.silu(x @ weight) + x
    return x


run = torch.compile(step) if mode == "compile" else step
for _ in range(5):
    run(x)
torch.cuda.synchronize()
if mode == "graph":
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        step(x)
    run = lambda _: graph.replay()


def steps():
    times, end, at = [], time.time() + seconds, 0
    while at < 40 or time.time() < end:
        torch.cuda.nvtx.range_push(f"step {at}")
        began = time.perf_counter()
        run(x)
        torch.cuda.synchronize()
        times.append(1e3 * (time.perf_counter() - began))
        torch.cuda.nvtx.range_pop()
        at += 1
    return times


def timed():
    torch.cuda.nvtx.range_push("timed")
    times = steps()
    torch.cuda.nvtx.range_pop()
    return times


steps()
kernels = None
if "--kineto" in sys.argv:
    from torch.profiler import ProfilerActivity, profile

    with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]) as profiled:
        times = timed()
    profiled.export_chrome_trace(path + ".trace")
    with open(path + ".trace") as file:
        events = json.load(file)["traceEvents"]
    kernels = sum(event.get("cat") == "kernel" for event in events)
    os.remove(path + ".trace")
else:
    times = timed()
with open(path, "w") as file:
    json.dump({"mode": mode, "steps": len(times), "step_ms": statistics.median(times), "kernels": kernels}, file)
if "--kill" in sys.argv:
    time.sleep(0.5)
    os.kill(os.getpid(), signal.SIGKILL)
