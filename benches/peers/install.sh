#!/usr/bin/env bash
# usage: benches/peers/install.sh DIR. Installs into DIR what decoding is measured against: llama.cpp's prebuilt
# libraries (npm: @node-llama-cpp/linux-x64) and PyTorch with transformers (PyPI). About 7 GB, mostly PyTorch's.
set -eu
dir=$1
mkdir -p "$dir"
if [ ! -d "$dir/llama.cpp" ]; then
    (cd "$dir" && npm pack --silent @node-llama-cpp/linux-x64@3.22.1 >/dev/null)
    tar -xzf "$dir"/node-llama-cpp-linux-x64-*.tgz -C "$dir"
    mv "$dir/package/bins/linux-x64" "$dir/llama.cpp"
    rm -r "$dir/package" "$dir"/node-llama-cpp-linux-x64-*.tgz
fi
if [ ! -x "$dir/python/bin/python" ]; then
    python3 -m venv "$dir/python"
    "$dir/python/bin/pip" -q install torch==2.8.0 transformers==4.48.3 safetensors gguf numpy
fi
echo "$dir is ready: $dir/python/bin/python benches/peers/compare.py $dir"
