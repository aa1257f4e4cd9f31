#!/usr/bin/env bash
# Measures the cuda backend on the machine at hand: correctness, decoding against the memory's bandwidth and
# against PyTorch, architectures over emulated links and, on a node of GPUs (--gpus 8), over NCCL with P2P and NVLink's
# switch on and off, with nccl-tests beside them and a recording of an engine; prefill, the cost of timing. The most
# important parts come first; each has a time limit of its own and leaves its result in OUT as it goes; a part that has its
# result is not run again. OUT/runs is a directory of runs, which report and calibrate read. Ends with OUT/summary.json, a
# table, and all of OUT packed into OUT.tar.gz, which `ladderscope import` reads on another machine.
#
#   measure.sh BINARY OUT [--gpus N] [--budget SECONDS] [--tests TEST_BINARY] [--parts NAME,NAME…] [--no-torch]
#              [--model NAME] [--large NAME] [--huge NAME] [--hardware PROFILE] [--simulate-on PROFILE]
#              [--links "p2p-on p2p-off"] [--prompt N] [--output N] [--samples N] [--dtype D] [--batches "1 16"] [--large-tp N] [--huge-tp N]
#              [--all-reduce-perf PATH]
set -uo pipefail

usage() { sed -n '2,12s/^# \{0,1\}//p' "$0"; exit 2; }
[ $# -ge 2 ] || usage
command=("$0" "$@")
binary=$(realpath "$1") out=$(realpath -m "$2")
shift 2
here=$(cd "$(dirname "$0")" && pwd)

budget=1500 tests='' parts='' torch=yes gpus=1
model=llama-3-8b large=llama-3-70b huge=llama-3.1-405b
hardware=h100_sxm simulate_on=
prompt=1024 output=256 samples=6 dtype=bf16 batches='1 16' large_tp=8 huge_tp=16 links='p2p-on p2p-off'
all_reduce_perf=all_reduce_perf
while [ $# -gt 0 ]; do
    case $1 in
        --no-torch) torch=no; shift; continue ;;
        --budget | --gpus | --tests | --parts | --model | --large | --huge | --hardware | --simulate-on | --prompt | --output \
            | --samples | --dtype | --batches | --large-tp | --huge-tp | --links | --all-reduce-perf) ;;
        *) echo "measure.sh: unknown option '$1'" >&2; usage ;;
    esac
    [ $# -ge 2 ] || { echo "measure.sh: $1 needs a value" >&2; usage; }
    name=${1#--}
    printf -v "${name//-/_}" '%s' "$2"
    shift 2
done
if ! found=$(command -v "$all_reduce_perf") && [ "$all_reduce_perf" != all_reduce_perf ]; then
    echo "measure.sh: --all-reduce-perf $all_reduce_perf is no program" >&2
    exit 2
fi
all_reduce_perf=$found
[ -x "$binary" ] || { echo "measure.sh: $binary is no program" >&2; exit 2; }
mkdir -p "$out/parts" "$out/logs" "$out/traces" || exit 2
began=$SECONDS
runs="$out/runs"

# Libraries in Python's packages (nvidia-cublas and its like, which PyTorch brings along).
find_library() { # VARIABLE PATTERN…
    local variable=$1 folder pattern found
    shift
    [ -n "${!variable:-}" ] && return
    while IFS= read -r folder; do
        for pattern in "$@"; do
            # the newest version of the first name that is there
            found=$(compgen -G "$folder/nvidia/*/lib/$pattern" | sort -V | tail -1)
            [ -n "$found" ] && { export "$variable=$found"; return; }
        done
    done < <(python3 -c 'import sys; print("\n".join(p for p in sys.path if p))' 2>/dev/null)
}
find_library LADDERSCOPE_NVRTC 'libnvrtc.so.1[0-9]'
find_library LADDERSCOPE_CUBLASLT 'libcublasLt.so.1[0-9]'
find_library LADDERSCOPE_NCCL 'libnccl.so.2'
find_library LADDERSCOPE_CUPTI 'libcupti.so.1[0-9]'

left() { echo $((budget - (SECONDS - began))); }
wanted() { [ -z "$parts" ] || [[ ",$parts," == *",$1,"* || ",$parts," == *",${1%%-*},"* ]]; }

# part NAME LIMIT LEAST COMMAND…: runs COMMAND, its standard output into parts/NAME.json, for at most LIMIT seconds or
# what is left of the budget; not with less than LEAST seconds left.
part() {
    local name=$1 limit=$2 least=$3
    shift 3
    wanted "$name" || return
    [ -s "$out/parts/$name.json" ] && return
    local remaining start code
    remaining=$(left)
    if [ "$remaining" -lt "$least" ]; then
        printf '%s\tskipped\t0\tless than %s s of the budget are left\n' "$name" "$least" >>"$out/status.tsv"
        echo "-- $name: skipped, $remaining s left" >&2
        return
    fi
    [ "$remaining" -lt "$limit" ] && limit=$remaining
    echo "-- $name (at most $limit s, $remaining s left)" >&2
    start=$SECONDS
    timeout -k 10 "$limit" "$@" >"$out/parts/$name.unfinished" 2>"$out/logs/$name.log"
    code=$?
    if [ $code -eq 0 ] && [ -s "$out/parts/$name.unfinished" ]; then
        mv "$out/parts/$name.unfinished" "$out/parts/$name.json"
        printf '%s\tok\t%s\t\n' "$name" $((SECONDS - start)) >>"$out/status.tsv"
    else
        # what it said before it failed is kept beside its log
        mv "$out/parts/$name.unfinished" "$out/logs/$name.out"
        local why="exit status $code"
        [ $code -eq 124 ] && why="more than $limit s"
        printf '%s\tfailed\t%s\t%s: %s\n' "$name" $((SECONDS - start)) "$why" \
            "$(tail -n 1 "$out/logs/$name.log" | tr '\t' ' ' | cut -c 1-300)" >>"$out/status.tsv"
        echo "   failed: $why; see logs/$name.log" >&2
    fi
}

run() { # the options that every measured cell has, then its own
    "$binary" run --backend cuda --dtype "$dtype" --prompt-tokens "$prompt" --output-tokens "$output" \
        --samples "$samples" --warmup 1 --dir "$runs" --format json "$@"
}
checks() { # the checks that need a GPU: all pass, none was skipped, and there are some
    "$1" --ignored --nocapture gpu >&2 || return
    if grep -q 'skipped: ' "$out/logs/checks.log"; then
        echo 'some checks were skipped' >&2
        return 1
    fi
    "$1" --ignored --list gpu 2>/dev/null | grep -q ': test$' || {
        echo 'this binary has no checks that need a GPU: it must be the test binary of tests/cuda' >&2
        return 1
    }
    printf '{"passed": true}\n'
}
# All-reduces alone, in CUDA graphs as in decoding, with one thread per GPU like our ranks. P2P off disables NVLS too: NCCL
# would otherwise reduce in NVLink's switch.
all_reduces() { # TP on|off
    local file="$out/nccl-tests/tp$1-$2.txt"
    mkdir -p "$out/nccl-tests"
    unset NCCL_P2P_DISABLE NCCL_NVLS_ENABLE
    [ "$2" = off ] && export NCCL_P2P_DISABLE=1 NCCL_NVLS_ENABLE=0
    "$all_reduce_perf" -b 8 -e 512M -f 2 -G 1 -t "$1" -g 1 >"$file.unfinished" || return
    mv "$file.unfinished" "$file"
    printf '{"file": "nccl-tests/tp%s-%s.txt"}\n' "$1" "$2"
}
# The engine's output goes to the log: standard output is the recorder's.
record_engine() {
    rm -rf "$out/recordings/engine" # of a call that failed: a recording of the same name would be joined
    "$binary" record --dir "$out" --name engine --format json -- bash -c 'exec "$@" >&2' _ "$@"
}
export -f run checks all_reduces record_engine
export binary dtype prompt output samples runs out all_reduce_perf

part doctor 120 10 "$binary" doctor --format json
# What failed is in its result, and in the record of every run: they go on, and are labelled unverified.
self_check() { "$binary" doctor --check --format json; [ $? -le 1 ]; }
export -f self_check
part self_check 240 30 bash -c self_check
[ -n "$tests" ] && part checks 300 30 bash -c 'checks "$1"' _ "$(realpath "$tests")"

# Decoding one GPU's whole model: graph, no communication.
for batch in $batches; do
    part "decode-b$batch" 120 20 bash -c 'run "$@"' _ --model "$model" --tp 1 --batch "$batch"
done

# The same shape in PyTorch.
if [ $torch = yes ]; then
    for batch in $batches; do
        part "torch-b$batch" 240 60 python3 "$here/torch_decode.py" --batch "$batch" --prompt-tokens "$prompt" \
            --output-tokens "$output" --samples "$samples"
    done
fi

# cells NAME MODEL TP ARCHITECTURES BATCHES: rank 0's shard over both of the profile's links.
cells() {
    local name=$1 of=$2 tp=$3 architectures=$4 batch link architecture
    for batch in $5; do
        for link in $links; do
            for architecture in $architectures; do
                part "$name-b$batch-$link-$architecture" 90 20 bash -c 'run "$@"' _ --model "$of" --tp "$tp" \
                    --batch "$batch" --architecture "$architecture" --link "$link" --hardware "$hardware"
            done
        done
    done
}
first=${batches%% *}
cells "large_tp$large_tp" "$large" "$large_tp" 'standard ladder upper-bound parallel' "$batches"

# Ranks on GPUs of their own, over NCCL: the grid of the Ladder paper's 70B model, as far as the GPUs go. With P2P and
# without it, and each of both with NVLink's switch and without: P2P off leaves the switch on.
node() { # TP P2P NVLS ARCHITECTURES
    local tp=$1 p2p=$2 nvls=$3 batch architecture
    for batch in $batches; do
        for architecture in $4; do
            part "node_tp$tp-b$batch-p2p_$p2p-nvls_$nvls-$architecture" 150 30 bash -c 'run "$@"' _ --model "$large" \
                --tp "$tp" --batch "$batch" --architecture "$architecture" --p2p "$p2p" --nvls "$nvls"
        done
    done
}
if [ "$gpus" -ge 2 ]; then
    for setting in 'on on' 'off off' 'off on' 'on off'; do
        node "$gpus" $setting 'standard ladder upper-bound parallel'
    done
    # communication on multiprocessors of its own
    for architecture in standard ladder upper-bound; do
        part "node_tp$gpus-comm_sms-$architecture" 150 30 bash -c 'run "$@"' _ --model "$large" --tp "$gpus" \
            --batch "$first" --architecture "$architecture" --comm-sms 8
    done
    # all-reduces of decode steps that read the other GPUs' memory, as serving engines do them
    for collective in one-shot fused; do
        for architecture in standard ladder upper-bound; do
            part "node_tp$gpus-b$first-$collective-$architecture" 150 30 bash -c 'run "$@"' _ --model "$large" --tp "$gpus" \
                --batch "$first" --architecture "$architecture" --collective "$collective"
        done
    done
    for ((tp = gpus / 2; tp >= 2; tp /= 2)); do
        for setting in 'on on' 'off off'; do
            node "$tp" $setting 'standard ladder upper-bound'
        done
    done
    for tp in 2 4 8; do
        for p2p in on off; do
            name=nccl_tests-tp$tp-$p2p
            if [ "$tp" -gt "$gpus" ]; then
                continue
            elif [ -n "$all_reduce_perf" ]; then
                part "$name" 120 20 bash -c 'all_reduces "$@"' _ "$tp" "$p2p"
            elif wanted "$name" && [ ! -s "$out/parts/$name.json" ]; then
                printf '%s\tskipped\t0\t%s\n' "$name" \
                    'all_reduce_perf of nccl-tests is not in PATH; name it with --all-reduce-perf' >>"$out/status.tsv"
            fi
        done
    done
    # a short generation on all GPUs under the recorder; its runs directory is not kept
    part record-engine 240 60 bash -c 'record_engine "$@" --dir "$(mktemp -d)"' _ "$binary" run --backend cuda --dtype "$dtype" \
        --model "$model" --tp "$gpus" --batch "$first" --prompt-tokens "$prompt" --output-tokens 16 --samples 1 --warmup 1 \
        --recorder off
fi

# The prompt: one token more than the prefill yields.
last=${batches##* }
part "prefill-b$last" 90 20 "$binary" run --backend cuda --dtype "$dtype" --model "$model" --tp 1 --batch "$last" \
    --prompt-tokens "$prompt" --output-tokens 2 --samples "$samples" --warmup 1 --dir "$runs" --format json

# What timing costs, in other ways than the default.
part timing-events 90 20 bash -c 'run "$@"' _ --model "$model" --tp 1 --batch "$first" --recorder events
part timing-cupti 90 20 bash -c 'run "$@"' _ --model "$model" --tp 1 --batch "$first" --recorder cupti
part timing-eager 90 20 bash -c 'run "$@"' _ --model "$model" --tp 1 --batch "$first" --no-graph

# The head divided over the ranks, with the collective that takes.
for batch in $batches; do
    for architecture in standard ladder; do
        part "head-b$batch-$architecture" 90 20 bash -c 'run "$@"' _ --model "$large" --tp "$large_tp" --batch "$batch" \
            --architecture "$architecture" --link "${links%% *}" --hardware "$hardware" --shard-head
    done
done

# Traces to keep: few steps, so that the files are small.
for architecture in standard ladder; do
    part "trace-$architecture" 90 20 "$binary" run --backend cuda --dtype "$dtype" --model "$large" --tp "$large_tp" \
        --batch "$first" --architecture "$architecture" --link p2p-off --hardware "$hardware" \
        --prompt-tokens "$prompt" --output-tokens 41 --samples "$samples" --warmup 1 --dir "$runs" --format json \
        --trace "$out/traces/gpu-$architecture.parquet"
done

for tp in 4 2; do
    [ "$tp" -lt "$large_tp" ] && cells "large_tp$tp" "$large" "$tp" 'standard ladder upper-bound' "$first"
done
cells "huge_tp$huge_tp" "$huge" "$huge_tp" 'standard ladder upper-bound' "$first"

# What it is worth that kernels start early, that products ask ahead for their weights, and that kernels beside a
# collective leave it room. In a directory of their own: these are not the records that are compared.
tuned() { # VARIABLE=VALUE, then the cell's options
    export "$1"
    shift
    runs=$out/tuning run --recorder off "$@"
}
export -f tuned
for batch in $batches; do
    for setting in PROGRAMMATIC PREFETCH; do
        part "tuning-b$batch-$setting" 60 20 bash -c 'tuned "$@"' _ "LADDERSCOPE_$setting=0" --model "$model" --tp 1 --batch "$batch"
    done
done
# Who multiplies several rows: cuBLASLt, or our own kernel.
for who in library own; do
    part "tuning-b$last-PRODUCTS-$who" 60 20 bash -c 'tuned "$@"' _ "LADDERSCOPE_PRODUCTS=$who" --model "$model" --tp 1 --batch "$last"
done
part "tuning-ladder-SMS_FOR_COMM" 60 20 bash -c 'tuned "$@"' _ LADDERSCOPE_SMS_FOR_COMM=0 --model "$large" --tp "$large_tp" \
    --batch "$first" --architecture ladder --link "${links%% *}" --hardware "$hardware"

# The other way in PyTorch: attention as batched products of groups of heads.
if [ $torch = yes ]; then
    for batch in $batches; do
        part "torch_grouped-b$batch" 240 60 python3 "$here/torch_decode.py" --batch "$batch" \
            --prompt-tokens "$prompt" --output-tokens "$output" --samples "$samples" --attention grouped
    done
fi

# All pairs of the stored runs, with intervals.
part_of_runs() { [ -d "$runs" ] && "$binary" compare --by architecture --dir "$runs" --format json; }
part_of_runs >"$out/compare.json" 2>"$out/logs/compare.log" || rm -f "$out/compare.json"
python3 "$here/summary.py" "$out" --binary "$binary" ${simulate_on:+--simulate-on "$simulate_on"}
summarized=$?
python3 -B "$here/pack.py" "$out" "$binary" "${command[@]}" && exit $summarized
