#!/usr/bin/env python3
"""Writes OUT/kit.json (versions, machine, parts with their status) and packs OUT into OUT.tar.gz, for
`ladderscope import OUT.tar.gz` on another machine. Standard library alone.

    pack.py OUT BINARY COMMAND...         COMMAND: the command line of measure.sh
"""

import json
import os
import pathlib
import platform
import subprocess
import sys
import tarfile

from summary import Summary, read_json


def said(*command):
    """First line of a command's output; None if it fails."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    except (OSError, subprocess.TimeoutExpired):
        return None
    lines = done.stdout.splitlines() if done.returncode == 0 else []
    return lines[0].strip() if lines else None


def commit(out):
    """Commit of the program as its runs recorded it, else that of these scripts."""
    for path in sorted(out.glob("runs/*/record.json")):
        found = ((read_json(path) or {}).get("environment") or {}).get("commit")
        if found:
            return found
    return said("git", "-C", str(pathlib.Path(__file__).parent), "rev-parse", "HEAD")


def kit(out, binary, command):
    summary = Summary(out, binary, None)
    doctor = summary.parts.get("doctor") or summary.call("doctor", "--quick", "--format", "json") or {}
    cuda, nccl = doctor.get("cuda") or {}, doctor.get("nccl") or {}
    return {
        "version": (said(binary, "--version") or "").split(" ")[-1] or None,
        "commit": commit(out),
        "host": platform.node(),
        "driver": cuda.get("driver_version"),
        "cuda": cuda.get("driver_api"),
        "nccl": nccl.get("version"),
        "gpus": [gpu.get("name") for gpu in cuda.get("gpus") or []],
        "command": command,
        "parts": summary.status(),
    }


def packed(out):
    """Files of the kit: no links, and no unfinished files of the runs directories."""
    for folder, folders, files in os.walk(out):
        folders[:] = sorted(name for name in folders if name != ".ladderscope")
        for name in sorted(files):
            path = pathlib.Path(folder, name)
            if path.is_file() and not path.is_symlink() and not name.endswith(".unfinished"):
                yield path


def main():
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    out = pathlib.Path(sys.argv[1]).resolve()
    (out / "kit.json").write_text(json.dumps(kit(out, sys.argv[2], sys.argv[3:]), indent=1) + "\n")
    archive = out.with_name(out.name + ".tar.gz")
    unfinished = out.with_name(out.name + ".tar.gz.unfinished")
    with tarfile.open(unfinished, "w:gz", compresslevel=6) as tar:
        for path in packed(out):
            tar.add(path, arcname=str(pathlib.Path(out.name) / path.relative_to(out)), recursive=False)
    os.replace(unfinished, archive)
    print(f"\npacked {archive}; read it elsewhere with `ladderscope import {archive.name}`")


if __name__ == "__main__":
    main()
