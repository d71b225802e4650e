"""A GPU machine without a GPU: stub libraries, an artifact for them, processes that see both."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import tiny_artifact
from host_kernels import build as build_kernels

HERE = Path(__file__).parent
COMPILERS = ("c++", "g++", "clang++"), ("cc", "gcc", "clang")


def compilers() -> list[str] | None:
    """The C++ and the C compiler of this system, or None."""
    result = [next(filter(None, map(shutil.which, names)), None) for names in COMPILERS]
    return [name for name in result if name] if all(result) else None


def build(folder: Path, *, runtime: bool = True) -> Path:
    """The stub libraries, without that of the CUDA runtime if it is to be missing."""
    _, cc = compilers() or ["", ""]
    folder.mkdir(parents=True)
    options = ["-shared", "-fPIC", "-O1"]
    driver, cudart = folder / "libcuda.so.1", folder / "libcudart.so.13"
    _call(cc, *options, "-Wl,-soname,libcuda.so.1", HERE / "stub_driver.c", "-ldl", "-o", driver)
    if runtime:
        versions = folder / "versions"
        versions.write_text("libcudart.so.13 { global: *; };")
        options += ["-Wl,-soname,libcudart.so.13", f"-Wl,--version-script={versions}"]
        _call(cc, *options, "-Wl,-rpath,$ORIGIN", HERE / "stub_runtime.c", driver, "-o", cudart)
    return folder


def build_module(folder: Path) -> Path:
    """``model.so`` for GPUs and ``kernels.so``, its kernels for the stub."""
    _call(sys.executable, HERE / "build_cuda_artifact.py", folder)
    source = (folder / "kernels.cu").read_text()
    build_kernels(source, folder / "kernels.so", own={"choose_kernel": "choose.h"})
    return folder / "model.so"


def _call(*command: object) -> None:
    done = subprocess.run(
        list(map(str, command)), capture_output=True, encoding="utf-8", check=False
    )
    assert not done.returncode, done.stderr


def make(folder: Path, module: Path, ids: dict[str, list[int]], codes: Sequence[str]) -> Path:
    """An artifact with code of these names: ``sm_80.cubin``."""
    manifest = tiny_artifact.make(
        folder, module, [*ids["story"], tiny_artifact.EOS], len(ids["prompt"])
    )
    for code in codes:
        (folder / code).write_text(f"{code}\n")
        manifest["files"][code] = tiny_artifact.checksum(folder / code)
    archs = [code.removesuffix(".cubin") for code in codes if code.endswith("cubin")]
    manifest["target"] = {"kind": "cuda", "archs": archs, "host": manifest["target"]}
    seen = {"name": "seen", "dtype": "int8", "shape": ["batch", tiny_artifact.VOCAB]}
    manifest["state"].append(seen)
    manifest["limits"]["token"] = manifest["limits"]["input_ids"]
    for name, length in (("prefill", "seq"), ("decode", 1)):
        manifest["entries"][f"sample_{name}"] = sampling_entry(f"sample_{name}", length)
    tiny_artifact.write(folder, manifest)
    return folder


def sampling_entry(name: str, length: str | int) -> dict[str, object]:
    token = {"name": "token", "dtype": "int64"}
    position = {"name": "position", "dtype": "int32", "shape": [1]}
    draws = {"name": "draws", "dtype": "float32", "shape": [tiny_artifact.CONTEXT]}
    settings = {"name": "settings", "dtype": "float32", "shape": [5]}
    inputs = [{**token, "shape": ["batch", length]}, position, draws, settings]
    outputs = [{**token, "shape": ["batch", 1]}, position]
    return {"function": name, "inputs": inputs, "outputs": outputs, "state": True}


def environment(stubs: Path | None, module: Path | None = None, **gpu: object) -> dict[str, str]:
    """Return variables that lead a process to the stubs: ``gpus="9.0"``, ``driver=12040``."""
    variables = {f"STUB_{name.upper()}": str(value) for name, value in gpu.items()}
    kernels = {"STUB_KERNELS": str(module.parent / "kernels.so")} if module else {}
    clean = {k: v for k, v in os.environ.items() if not k.startswith("CUDA_")}
    return {**clean, "LD_LIBRARY_PATH": str(stubs or ""), **kernels, **variables}


PROLOGUE = """
import ctypes, json, sys
import numpy as np
from maxtool.runtime import loader

def log():
    stub = ctypes.CDLL("libcuda.so.1")
    stub.stub_log.restype = ctypes.c_char_p
    lines = stub.stub_log().decode().splitlines()
    stub.stub_clear()
    return lines

def used(index=0):
    stub = ctypes.CDLL("libcuda.so.1")
    stub.stub_used.restype = ctypes.c_size_t
    return stub.stub_used(index)

def answer(value):
    print(json.dumps(value))
"""


def run(code: str, environment: dict[str, str], *arguments: object) -> Any:
    """Return the answer of a program that has the loader, and ``answer``, ``log`` and ``used``."""
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", PROLOGUE + code, *map(str, arguments)],
        capture_output=True,
        encoding="utf-8",
        env=environment,
        check=False,
        cwd=HERE.parents[2],
    )
    assert not done.returncode, done.stderr
    return json.loads(done.stdout)
