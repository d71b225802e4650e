"""Kernels called in the emulated system, from tests that were written for this machine's own.

A test process whose environment names a CPU in ``MAXTOOL_TEST_EMULATED`` compiles kernels for that
one, and calls them by QEMU: :mod:`tests.compiler.kernels.harness`.
"""

from __future__ import annotations

import atexit
import json
import os
import subprocess
import sys
from collections.abc import Callable
from functools import cache
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pytest

from maxtool.compiler.cpu_target import CpuTarget
from maxtool.compiler.linking import export_library

EMULATED = "MAXTOOL_TEST_EMULATED"
PROGRAMS = Path(sys.prefix) / "aarch64" / "bin"
PYTHON = PROGRAMS / "aarch64-linux-gnu-python3"
CALLS = Path(__file__).with_name("calls.py")

# Kernels are run by two threads, and wait for each other without looking in a loop.
THREADS = {"TVM_NUM_THREADS": "2", "TVM_BIND_THREADS": "0", "TVM_THREAD_POOL_SPIN_COUNT": "0"}


def environment() -> dict[str, str]:
    """Variables with which programs, and the linker, of the emulated system are found."""
    return {**os.environ, **THREADS, "PATH": f"{PROGRAMS}:{os.environ['PATH']}"}


def needs_system() -> None:
    """Skip a test where there is no emulated system."""
    if not PYTHON.is_file():
        pytest.skip(f"no emulated aarch64 in {PROGRAMS.parent}: make test-all sets it up on Debian")


class Emulator:
    """A process of the emulated system that calls kernels."""

    def __init__(self) -> None:
        self._folder = TemporaryDirectory()
        self._numbers = count()
        pipe = subprocess.PIPE
        command = [str(PYTHON), str(CALLS)]
        self._process = subprocess.Popen(
            command, stdin=pipe, stdout=pipe, text=True, env=environment()
        )
        atexit.register(self.close)

    def close(self) -> None:
        """End the process."""
        self._process.communicate()
        self._folder.cleanup()

    def load(self, module: Any, target: CpuTarget) -> Callable[..., None]:
        """Return a module's function ``kernel``, which takes TVM's tensors of this process."""
        library = self._file("so")
        export_library(module, library, target)

        def call(*tensors: Any) -> None:
            files = [self._file("npy") for _ in tensors]
            for file, tensor in zip(files, tensors, strict=True):
                np.save(file, tensor.numpy())
            self._ask(library, files)
            for file, tensor in zip(files, tensors, strict=True):
                tensor.copyfrom(np.load(file))
                file.unlink()

        return call

    def _file(self, suffix: str) -> Path:
        return Path(self._folder.name) / f"{next(self._numbers)}.{suffix}"

    def _ask(self, library: Path, files: list[Path]) -> None:
        request = json.dumps({"library": str(library), "files": [str(file) for file in files]})
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(f"{request}\n")
        self._process.stdin.flush()
        assert self._process.stdout.readline() == "done\n"


@cache
def emulator() -> Emulator:
    """The process, begun when it is first needed."""
    return Emulator()
