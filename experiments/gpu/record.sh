#!/usr/bin/env bash
# `ladderscope record` on a real GPU, in at most 6 minutes: experiments/gpu/record.sh OUT [LADDERSCOPE]
# Needs one NVIDIA GPU and PyTorch. Writes OUT/record.json: for eager, CUDA graph and torch.compile the kernels that
# the recorder and Kineto counted in the same steps and the step time with and without the recorder, by turns; what
# SIGKILL lost; windows by range and on demand. OUT/recordings has the traces.
set -euo pipefail
out=$(mkdir -p "${1:?usage: record.sh OUT [LADDERSCOPE]}" && cd "$1" && pwd)
program=${2:-ladderscope}
here=$(cd "$(dirname "$0")" && pwd)
nvidia-smi --query-gpu=name,driver_version --format=csv,noheader >"$out/gpu.txt"
began=$SECONDS
left() { ((SECONDS - began < 330)); }
record() { # NAME OPTIONS... -- CMD...
    local name=$1
    shift
    "$program" record --dir "$out" --name "$name" --format json "$@" >"$out/$name.txt" 2>"$out/$name.err" || echo $? >"$out/$name.status"
}

for mode in eager graph compile; do
    left || break
    # plain, recorded, plain, recorded: the medians of each pair are compared
    for turn in 1 2; do
        python3 "$here/record_steps.py" "$mode" "$out/$mode-plain-$turn.json"
        record "$mode-$turn" --range timed -- python3 "$here/record_steps.py" "$mode" "$out/$mode-recorded-$turn.json"
    done
    # Kineto takes CUPTI's records from any other recorder, so it counts in a run of its own
    python3 "$here/record_steps.py" "$mode" "$out/$mode-kineto.json" --kineto
done
if left; then record kill -- python3 "$here/record_steps.py" eager "$out/kill.json" --kill; fi
if left; then record range --range 'step 1*' -- python3 "$here/record_steps.py" graph "$out/range.json"; fi
if left; then
    record demand --on-demand -- python3 "$here/record_steps.py" eager "$out/demand.json" --seconds 12 &
    sleep 7
    "$program" record --start "$out/recordings/demand"
    sleep 2
    "$program" record --stop "$out/recordings/demand"
    wait
fi
python3 "$here/record_summary.py" "$out"
