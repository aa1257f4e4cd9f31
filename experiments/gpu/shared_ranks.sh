#!/usr/bin/env bash
# Checks several ranks over real NCCL on one GPU, which they share (LADDERSCOPE_SHARED_GPU=1, NCCL 2.30 or newer): sums,
# tokens of all architectures against one rank and against the cpu backend, threads and processes, graphs and eager
# steps, multiprocessors of their own, P2P and NVLS on and off, a rank that is killed or stopped. Times mean nothing.
# The most important parts come first; each has a time limit of its own, and its process group is killed at its end.
# Ends with a table, in which each failed part has its first error; OUT/logs.tar.gz has all that the parts said.
#
#   shared_ranks.sh BINARY OUT [--nccl LIBRARY[.xz]] [--budget SECONDS] [--large MODEL] [--nvtx LIBRARY] [--parts NAME,NAME…] [--patience SECONDS]
set -uo pipefail

usage() { sed -n '2,9s/^# \{0,1\}//p' "$0"; exit 2; }
[ $# -ge 2 ] || usage
binary=$(realpath "$1") out=$(realpath -m "$2")
shift 2
budget=195 large=llama-3.2-1b nvtx= parts= nccl=
# The runs' own time-out, and the longest that a part may take: joining, sums and steps all take seconds.
patience=10
while [ $# -gt 0 ]; do
    case $1 in
        --budget | --large | --nccl | --nvtx | --parts | --patience) ;;
        *) echo "shared_ranks.sh: unknown option '$1'" >&2; usage ;;
    esac
    [ $# -ge 2 ] || { echo "shared_ranks.sh: $1 needs a value" >&2; usage; }
    printf -v "${1#--}" '%s' "$2"
    shift 2
done
[ -x "$binary" ] || { echo "shared_ranks.sh: $binary is no program" >&2; exit 2; }
mkdir -p "$out" || exit 2
logs=$(mktemp -d) || exit 2
table=$out/table.tsv
: >"$table"
began=$SECONDS
limit=$((3 * patience)) under_way=$((patience * 7 / 10))

export LADDERSCOPE_SHARED_GPU=1
# Who does a product is no question here, and timing it takes long.
export LADDERSCOPE_PRODUCTS=own

left() { echo $((budget - (SECONDS - began))); }

if [ -n "$nccl" ]; then
    nccl=$(realpath "$nccl")
    if [[ $nccl == *.xz ]]; then
        unpacked=$logs/libnccl.so.2
        xz -dc "$nccl" >"$unpacked" 2>/dev/null || python3 -c 'import lzma, shutil, sys
shutil.copyfileobj(lzma.open(sys.argv[1]), open(sys.argv[2], "wb"))' "$nccl" "$unpacked" || exit 2
        nccl=$unpacked
    fi
    export LADDERSCOPE_NCCL=$nccl
fi
[ -z "$nvtx" ] || nvtx=$(realpath "$nvtx")

# The group that a part runs in, killed if this script ends before it.
group=
stop_group() { [ -n "$group" ] && kill -KILL -- "-$group" 2>/dev/null; group=; }
finish() {
    stop_group
    echo
    column -t -s $'\t' "$table" 2>/dev/null || cat "$table"
    echo "$(grep -c $'^[^\t]*\tok' "$table") ok, $(grep -c $'^[^\t]*\tfailed' "$table") failed, $(grep -c $'^[^\t]*\tskipped' "$table") skipped in $((SECONDS - began)) s"
    cp "$table" "$logs/"
    rm -f "$logs/libnccl.so.2"
    tar czf "$out/logs.tar.gz" -C "$logs" . 2>/dev/null
    rm -rf "$logs"
}
trap finish EXIT
trap 'exit 130' INT TERM

# row NAME RESULT SECONDS NOTE
row() {
    local note
    note=$(printf '%s' "$4" | tr '\t\n' '  ' | cut -c 1-400)
    printf '%s\t%s\t%s\t%s\n' "$1" "$2" "$3" "$note" | tee -a "$table" >&2
}

# The first thing that went wrong, from a part's output and log.
first_error() {
    local reason
    reason=$(grep -ohE '"reason": *"[^"]*' "$logs/$1.out" | head -1 | sed 's/"reason": *"//')
    [ -n "$reason" ] || reason=$(grep -hE '"found": *"failed"' -A 2 "$logs/$1.out" | grep -ohE '"said": *".*' | head -1)
    [ -n "$reason" ] || reason=$(grep -hiE 'error|failed|panicked|NCCL WARN|refus' "$logs/$1.log" | head -1)
    [ -n "$reason" ] || reason=$(tail -n 1 "$logs/$1.log")
    printf '%s' "$reason"
}

# part NAME COMMAND…: runs COMMAND in a process group of its own for at most `limit` seconds. COMMAND says on descriptor 3
# what the table notes. Sets `passed`.
part() {
    local name=$1 most=$limit allowed remaining start code
    shift
    passed=no
    if [ -n "$parts" ] && [[ ",$parts," != *",$name,"* ]]; then
        passed=yes
        return
    fi
    remaining=$(left)
    if [ "$remaining" -lt 6 ]; then
        row "$name" skipped 0 "$remaining s of the budget are left"
        return
    fi
    # rank 0's process gives up after its time-out, and then waits as long for a sign of rank 1's
    [[ $name == *ed-process || $name == *ed-rank ]] && most=$((under_way + 2 * patience + 15))
    allowed=$((remaining < most ? remaining : most))
    start=$SECONDS
    setsid "$@" >"$logs/$name.out" 2>"$logs/$name.log" 3>"$logs/$name.note" &
    group=$!
    while kill -0 "$group" 2>/dev/null && [ $((SECONDS - start)) -lt "$allowed" ]; do sleep 0.1; done
    if kill -0 "$group" 2>/dev/null; then
        code=124
    else
        wait "$group"
        code=$?
    fi
    stop_group
    wait 2>/dev/null
    if [ $code -eq 0 ]; then
        passed=yes
        row "$name" ok $((SECONDS - start)) "$(cat "$logs/$name.note")"
    else
        local why="exit status $code"
        [ $code -eq 124 ] && why="more than $allowed s"
        row "$name" failed $((SECONDS - start)) "$why: $(cat "$logs/$name.note") $(first_error "$name")"
    fi
}

run() { # the options that every cell has, then its own
    "$binary" run --model "${MODEL:-tiny}" --dtype f32 --batch 1 --prompt-tokens 16 --output-tokens "${TOKENS:-8}" \
        --samples "${SAMPLES:-2}" --warmup 1 --recorder "${RECORDER:-off}" --timeout "$patience" --dir "$runs" --format json "$@"
}
tokens() { grep -oE '"tokens": *"[0-9a-f]+"' | head -1 | grep -oE '[0-9a-f]{8,}'; }

# reference NAME OPTION…: keeps the tokens of a run to compare others with.
reference() {
    local name=$1 record hash
    shift
    record=$(run "$@") || { printf '%s\n' "$record"; return 1; }
    hash=$(printf '%s' "$record" | tokens)
    [ -n "$hash" ] || { echo 'the record has no tokens' >&2; return 1; }
    printf '%s' "$hash" >"$runs/$name.tokens"
    printf 'tokens %s' "$hash" >&3
}

# checked REFERENCE RECORD: whether a record of ranks that shared a GPU is well, with the reference's tokens.
checked() {
    local hash wanted
    printf '%s\n' "$2"
    case $2 in
        *'"provenance": "shared-gpu"'* | *'"provenance":"shared-gpu"'*) ;;
        *) echo 'error: the provenance is not shared-gpu' >&2; return 1 ;;
    esac
    hash=$(printf '%s' "$2" | tokens)
    wanted=$(cat "$runs/$1.tokens" 2>/dev/null)
    printf 'tokens %s' "$hash" >&3
    [ -n "$wanted" ] || { echo "error: there is no reference $1" >&2; return 1; }
    [ "$hash" = "$wanted" ] || { echo "error: tokens $hash, and $1 has $wanted" >&2; return 1; }
}

# threads REFERENCE OPTION…: a run whose ranks are threads of one process.
threads() {
    local against=$1 record
    shift
    record=$(run --backend cuda "$@") || { printf '%s\n' "$record"; return 1; }
    checked "$against" "$record"
}

# start_ranks RANKS OPTION…: starts a process a rank, as a launcher would; rank 0 says its record to the file `zero`.
start_ranks() {
    local ranks=$1 rank
    shift
    started=()
    for ((rank = ranks - 1; rank >= 0; rank--)); do
        RANK=$rank WORLD_SIZE=$ranks LOCAL_RANK=$rank MASTER_ADDR=127.0.0.1 LADDERSCOPE_PORT=$port \
            run --backend cuda --tp "$ranks" "$@" >"$runs/rank$rank" &
        started[rank]=$!
    done
}

# processes REFERENCE RANKS OPTION…: a run whose ranks are processes.
processes() {
    local against=$1 rank code=0
    shift
    start_ranks "$@"
    for rank in "${!started[@]}"; do wait "${started[rank]}" || code=1; done
    [ $code -eq 0 ] || { cat "$runs/rank0"; return 1; }
    checked "$against" "$(cat "$runs/rank0")"
}

# descendants PID: all processes below it, each before those below itself.
descendants() {
    local status child
    for status in $(grep -ls "^PPid:[[:space:]]$1\$" /proc/[0-9]*/status); do
        child=${status#/proc/}
        child=${child%/status}
        echo "$child"
        descendants "$child"
    done
}

# ended SIGNAL WHOM: sends rank 1's process (`child`) or all of rank 1 (`all`) a signal in mid-step; rank 0 must end
# in time, with a reason.
ended() {
    local signal=$1 whom=$2 victims start took
    SAMPLES=100000 TOKENS=64 start_ranks 2 --architecture ladder
    # weights, kernels, NCCL, a capture and some samples
    sleep "$under_way"
    victims=$(descendants "${started[1]}")
    # the shell that started it stays
    [ "$whom" = child ] && victims=$(printf '%s\n' "$victims" | tail -1)
    [ -n "$victims" ] || { echo 'error: rank 1 is not there' >&2; return 1; }
    kill -0 "${started[0]}" 2>/dev/null || { cat "$runs/rank0"; echo 'error: rank 0 ended before' >&2; return 1; }
    start=$SECONDS
    # shellcheck disable=SC2086
    kill "-$signal" $victims
    while kill -0 "${started[0]}" 2>/dev/null; do
        sleep 0.1
        if [ $((SECONDS - start)) -gt $((2 * patience + 12)) ]; then
            echo "error: rank 0 still runs $((SECONDS - start)) s after rank 1 got $signal" >&2
            return 1
        fi
    done
    took=$((SECONDS - start))
    # shellcheck disable=SC2086
    kill -KILL $victims 2>/dev/null
    cat "$runs/rank0" >&2
    local reason
    reason=$(grep -oE '"reason": *"[^"]*' "$runs/rank0" | head -1 | sed 's/"reason": *"//')
    printf 'ended after %s s: %s' "$took" "$reason" >&3
    [ -n "$reason" ]
}

# refused WORDS COMMAND…: COMMAND fails, and says so with these words.
refused() {
    local words=$1 record
    shift
    record=$("$@" 2>&1) && { echo 'error: it was not refused' >&2; return 1; }
    printf '%s\n' "$record" >&2
    printf '%s' "$(printf '%s' "$record" | grep -iE "$words" | head -1 | cut -c 1-300)" >&3
    printf '%s' "$record" | grep -qiE "$words"
}

doctor_check() {
    "$binary" doctor --check --format json >"$runs/check.json"
    local code=$? said
    cat "$runs/check.json"
    said=$(tr '\n' ' ' <"$runs/check.json" | grep -oE '"name": *"nccl"[^}]*' | head -1 | tr -s ' ')
    printf '%s' "$said" >&3
    [ $code -le 1 ] && case $said in *'"passed"'*) ;; *) return 1 ;; esac
}

debugged() {
    local record
    record=$(NCCL_DEBUG=INFO NCCL_DEBUG_SUBSYS=INIT,ENV,GRAPH,TUNING,P2P,SHM,NVLS NCCL_DEBUG_FILE="$debug/nccl-threads.%p" \
        threads "$@") || { printf '%s\n' "$record"; return 1; }
    printf ' %s; %s; %s' "$(grep -ohE 'NCCL version [^ ]*' "$debug"/nccl-threads.* | head -1)" \
        "$(grep -ohE '[0-9]+ coll channels.*' "$debug"/nccl-threads.* | head -1)" \
        "$(grep -ohE ' via [^ ]+' "$debug"/nccl-threads.* | sort | uniq -c | tr -s ' \n' ' ')" >&3
}

ranges() {
    local record
    record=$(NVTX_INJECTION64_PATH=$nvtx LADDERSCOPE_NVTX_LOG="$debug/nvtx" threads "$@") || { printf '%s\n' "$record"; return 1; }
    printf ' %s lines, of NCCL: %s' "$(wc -l <"$debug/nvtx")" \
        "$(grep -oE 'nccl[A-Za-z]+' "$debug/nvtx" | sort | uniq -c | sort -rn | head -5 | tr -s ' \n' ' ')" >&3
    grep -q ncclAllReduce "$debug/nvtx"
}

recorded() { # spans of both ranks, by the clock of the kernels
    local record
    record=$(RECORDER=stamps threads ladder --tp 2 --architecture ladder --trace "$runs/trace.parquet") || { printf '%s\n' "$record"; return 1; }
    printf '%s\n' "$record"
    "$binary" calibrate --collectives "$runs/trace.parquet" >"$debug/refused" 2>&1 && { echo 'error: calibrate took the trace' >&2; return 1; }
    grep -q shared-gpu "$debug/refused"
}

export -f run tokens reference checked threads start_ranks processes descendants ended refused doctor_check debugged ranges recorded
runs=$logs/runs debug=$logs port=$((24000 + RANDOM % 5000))
mkdir -p "$runs"
export binary runs patience port debug nvtx under_way

{
    date -u
    nvidia-smi --query-gpu=name,driver_version,memory.used,compute_mode,mig.mode.current --format=csv,noheader
    df -h /dev/shm | tail -1
    echo "NCCL: ${LADDERSCOPE_NCCL:-not named}"
} >"$logs/machine" 2>&1
cat "$logs/machine" >&2

limit=$((4 * patience))
part sums-2-and-4-ranks bash -c doctor_check

limit=$((3 * patience))

# tokens of one rank
for architecture in standard ladder parallel; do
    part "one-rank-$architecture" bash -c 'reference "$@"' _ "$architecture" --backend cuda --tp 1 --architecture "$architecture"
done
# of two and four ranks on the cpu, where a rank has a residual of its own
for tp in 2 4; do
    part "cpu-desync-$tp" bash -c 'reference "$@"' _ "desync-$tp" --backend cpu --tp $tp --architecture desync:2
done

part threads-2-standard bash -c 'threads "$@"' _ standard --tp 2 --architecture standard
part threads-2-ladder bash -c 'threads "$@"' _ ladder --tp 2 --architecture ladder
if [ "$passed" = no ]; then
    # which of these is in the way?
    limit=$((2 * patience))
    part retry-eager-loading env CUDA_MODULE_LOADING=EAGER bash -c 'threads "$@"' _ ladder --tp 2 --architecture ladder
    part retry-one-block env NCCL_MAX_CTAS=1 bash -c 'threads "$@"' _ ladder --tp 2 --architecture ladder
    part retry-no-early-starts env LADDERSCOPE_PROGRAMMATIC=0 bash -c 'threads "$@"' _ ladder --tp 2 --architecture ladder
    limit=$((3 * patience))
fi
part threads-2-ladder-eager bash -c 'threads "$@"' _ ladder --tp 2 --architecture ladder --no-graph
part processes-2-ladder bash -c 'processes "$@"' _ ladder 2 --architecture ladder
part killed-process bash -c 'ended "$@"' _ KILL child
part threads-4-ladder bash -c 'threads "$@"' _ ladder --tp 4 --architecture ladder
part threads-2-own-multiprocessors bash -c 'threads "$@"' _ ladder --tp 2 --architecture ladder --comm-sms 8
part threads-2-p2p-off bash -c 'threads "$@"' _ ladder --tp 2 --architecture ladder --p2p off
part debug-lines bash -c 'debugged "$@"' _ ladder --tp 2 --architecture ladder
for architecture in parallel desync:2; do
    against=$architecture
    [ $architecture = desync:2 ] && against=desync-2
    part "threads-2-$architecture" bash -c 'threads "$@"' _ "$against" --tp 2 --architecture "$architecture"
done
for architecture in standard parallel desync:2; do
    against=$architecture
    [ $architecture = desync:2 ] && against=desync-4
    part "threads-4-$architecture" bash -c 'threads "$@"' _ "$against" --tp 4 --architecture "$architecture"
done
part processes-2-ladder-eager bash -c 'processes "$@"' _ ladder 2 --architecture ladder --no-graph
part processes-4-standard bash -c 'processes "$@"' _ standard 4 --architecture standard
part processes-2-p2p-off bash -c 'processes "$@"' _ ladder 2 --architecture ladder --p2p off
part threads-2-nvls-off bash -c 'threads "$@"' _ ladder --tp 2 --architecture ladder --nvls off
part nvls-asked-for bash -c 'refused "$@"' _ 'nvls' run --backend cuda --tp 2 --architecture ladder --env NCCL_NVLS_ENABLE=1
part stopped-process env patience=6 bash -c 'ended "$@"' _ STOP child
part killed-rank bash -c 'ended "$@"' _ KILL all
part recorded bash -c recorded
[ -n "$nvtx" ] && part nccl-ranges bash -c 'ranges "$@"' _ ladder --tp 2 --architecture ladder
part threads-2-standard-eager bash -c 'threads "$@"' _ standard --tp 2 --architecture standard --no-graph
part large-one-rank env MODEL="$large" bash -c 'reference "$@"' _ large --backend cuda --tp 1 --architecture ladder
part large-threads-2 env MODEL="$large" bash -c 'threads "$@"' _ large --tp 2 --architecture ladder
exit 0
