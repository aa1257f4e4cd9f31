#!/usr/bin/env bash
# Runs fuzz targets one after the other and says what each found: fuzz/run.sh [TARGET...]
# FUZZ_SECONDS is how long each runs (600). Needs a C++ compiler, but neither nightly Rust nor cargo-fuzz. Inputs that
# find new paths are kept in fuzz/corpus, those that find a defect in fuzz/artifacts; neither is committed.
set -euo pipefail
cd "$(dirname "$0")"

seconds=${FUZZ_SECONDS:-600}
mapfile -t targets < <(if (($#)); then printf '%s\n' "$@"; else sed -n 's/^name = "\(.*\)"/\1/p' Cargo.toml | tail -n +2; fi)
# coverage for libFuzzer; what is fuzzed is safe Rust: an address sanitizer would only make it slower
export RUSTFLAGS="--cfg fuzzing -Cpasses=sancov-module"
for option in level=4 inline-8bit-counters pc-table trace-compares; do
    RUSTFLAGS+=" -Cllvm-args=-sanitizer-coverage-$option"
done
# where a triple is named, build scripts and macros get none of it
triple=$(rustc -vV | sed -n 's/^host: //p')
cargo build --release --target "$triple"
built=${CARGO_TARGET_DIR:-target}/$triple/release

# what libFuzzer begins with: the seeds of src/lib.rs that are files
declare -A seeds=(
    [kineto]=seeds/kineto.json [record]=seeds/record.json [settings]=seeds/settings.toml [wire]=seeds/wire
    [checkpoint]=seeds/checkpoint [tokenizer]=seeds/tokenizer.json [rules]=../src/trace/rules/default.toml
    [experiment]=../experiments/quickstart.toml
)
failed=0
for target in "${targets[@]}"; do
    mkdir -p "corpus/$target" "artifacts/$target"
    [[ -z ${seeds[$target]:-} ]] || cp "${seeds[$target]}" "corpus/$target/"
    log=$(mktemp)
    if "$built/$target" -max_total_time="$seconds" -timeout=20 -rss_limit_mb=4096 -print_final_stats=1 \
        -artifact_prefix="artifacts/$target/" "corpus/$target" >"$log" 2>&1; then
        found=nothing
    else
        found=$(grep -oE 'artifacts/[^ ]+' "$log" | tail -n 1 || true)
        failed=1
    fi
    printf '%-12s %12s executions  %6s inputs kept  found: %s\n' "$target" \
        "$(grep -oE 'number_of_executed_units: *[0-9]+' "$log" | grep -oE '[0-9]+$' || echo '?')" \
        "$(find "corpus/$target" -type f | wc -l)" "${found:-see $log}"
done
exit $failed
