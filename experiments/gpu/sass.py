#!/usr/bin/env python3
"""Machine code of a kernel, without a GPU: which instructions its loops have, to be read where speed is claimed.

usage: sass.py UNIT.cu KERNEL [-DNAME=VALUE ...] [--sm 90] [--all]
NVRTC is $LADDERSCOPE_NVRTC or the newest in this Python's packages (nvidia-cuda-nvrtc), nvdisasm that of PATH or of
triton's package. For each loop, from the innermost and longest on: its instructions, by what they do; --all prints the
listing instead. A loop is what lies between a branch backwards and its target.
"""

import argparse
import collections
import ctypes
import os
import re
import shutil
import site
import subprocess
import sys
import tempfile
from pathlib import Path

KINDS = {
    "tensor cores": r"[HI]MMA|HGMMA", "f32": r"FFMA|FADD|FMUL|FSEL|FSETP|FMNMX|MUFU", "16 bits": r"HFMA2|HADD2|HMUL2|F2F|F2FP|PRMT",
    "global to shared": r"LDGSTS|UBLKCP", "commit, wait": r"LDGDEPBAR|DEPBAR", "shared": r"LDS|STS|LDSM", "global": r"LDG|STG|ATOMG|RED|CCTL",
    "local (spilled)": r"LDL|STL", "barriers": r"BAR|MEMBAR|ERRBAR|WARPSYNC|BSSY|BSYNC", "branches": r"BRA|EXIT|RET|CALL",
}


def newest(pattern):
    folders = [*site.getsitepackages(), site.getusersitepackages()]
    found = sorted(path for folder in folders for path in Path(folder).glob(pattern))
    return str(found[-1]) if found else None


def compile_cubin(unit, options):
    library = Path(os.environ.get("LADDERSCOPE_NVRTC") or newest("nvidia/*/lib/libnvrtc.so.1[23]") or "libnvrtc.so")
    # it looks for its other half where the system's libraries are
    for half in library.parent.glob("libnvrtc-builtins.so.*"):
        ctypes.CDLL(str(half), ctypes.RTLD_GLOBAL)
    nvrtc = ctypes.CDLL(str(library))
    headers = sorted(Path(unit).parent.glob("*.cuh"))
    texts = (ctypes.c_char_p * len(headers))(*[h.read_bytes() for h in headers])
    names = (ctypes.c_char_p * len(headers))(*[h.name.encode() for h in headers])
    program = ctypes.c_void_p()
    source = Path(unit).read_bytes()
    nvrtc.nvrtcCreateProgram(ctypes.byref(program), source, unit.encode(), len(headers), texts, names)
    flags = (ctypes.c_char_p * len(options))(*[o.encode() for o in options])
    failed = nvrtc.nvrtcCompileProgram(program, len(options), flags)
    size = ctypes.c_size_t()
    nvrtc.nvrtcGetProgramLogSize(program, ctypes.byref(size))
    log = ctypes.create_string_buffer(size.value)
    nvrtc.nvrtcGetProgramLog(program, log)
    if failed:
        sys.exit(log.value.decode())
    nvrtc.nvrtcGetCUBINSize(program, ctypes.byref(size))
    cubin = ctypes.create_string_buffer(size.value)
    nvrtc.nvrtcGetCUBIN(program, cubin)
    return cubin.raw, log.value.decode()


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("unit")
    parser.add_argument("kernel")
    parser.add_argument("--sm", default="90")
    parser.add_argument("--all", action="store_true")
    asked, defines = parser.parse_known_args()
    options = ["-std=c++17", f"--gpu-architecture=sm_{asked.sm}", "--ptxas-options=-v", *defines]
    cubin, log = compile_cubin(asked.unit, options)
    disassembler = shutil.which("nvdisasm") or newest("triton/backends/nvidia/bin/nvdisasm")
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(cubin)
        file.flush()
        listing = subprocess.run([disassembler, "-c", file.name], capture_output=True, text=True, check=True).stdout
    section = re.search(rf"^\.text\.{asked.kernel}:\n(.*?)(?=^\s*\.section|\Z)", listing, re.S | re.M)
    if not section:
        sys.exit(f"no kernel {asked.kernel}; there are {', '.join(re.findall(r'^.text.(.*):$', listing, re.M))}")
    if asked.all:
        return print(section[1])
    about = re.search(rf"'{asked.kernel}'.*?(Used .*?)$", log, re.S | re.M)
    print(about[1] if about else "registers: not told")
    labels, code = {}, []
    for line in section[1].splitlines():
        if label := re.match(r"\s*(\.L_x_\d+):", line):
            labels[label[1]] = len(code)
        elif found := re.match(r"\s*/\*[0-9a-f]+\*/\s+(?:@!?U?P\d+\s+)?([A-Z][\w.]*)(.*)", line):
            code.append((found[1], found[2]))
    loops = []
    for at, (name, rest) in enumerate(code):
        target = re.search(r"\.L_x_\d+", rest)
        if name.startswith("BRA") and target and labels.get(target[0], at) < at:
            loops.append((labels[target[0]], at))
    print(f"{len(code)} instructions, {len(loops)} loops")
    for first, last in sorted(loops, key=lambda l: l[0] - l[1]):
        inside = [name for name, _ in code[first : last + 1]]
        counts = collections.Counter()
        for name in inside:
            kind = next((kind for kind, pattern in KINDS.items() if re.match(pattern, name)), "integers, moves")
            counts[kind] += 1
        told = ", ".join(f"{count} {kind}" for kind, count in counts.most_common())
        print(f"  {first:5}..{last:<5} {last - first + 1:5} instructions: {told}")


if __name__ == "__main__":
    main()
