"""Compile a kernel once, call it with NumPy arrays, and measure against float64."""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import cache

import numpy as np
import tvm

from maxtool.compiler.cpu_target import CpuTarget, cpu_target
from maxtool.compiler.kernels.cpu import builder
from maxtool.compiler.kernels.cpu.backend import CpuBackend
from tests.aarch64.emulation import EMULATED, emulator

# This machine, or the one that is emulated.
HOST = cpu_target(os.environ.get(EMULATED, "cpu"))
TILE = HOST.tile
BACKEND = CpuBackend(TILE)


@cache
def compiled(
    factory: Callable[..., object], *arguments: object, **options: object
) -> Callable[..., None]:
    """The machine code of a kernel for this machine."""
    return compiled_for(HOST, factory(*arguments, **options))


def compiled_for(target: CpuTarget, kernel: object) -> Callable[..., None]:
    """The machine code of a kernel for a CPU whose code runs here."""
    module = builder.build({"kernel": kernel}, target.tvm)
    if EMULATED in os.environ:
        return emulator().load(module, target)
    function: Callable[..., None] = module["kernel"]
    return function


def call(function: Callable[..., None], *inputs: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    """The output, of which every element is NaN before: one that is not written shows."""
    out = tvm.runtime.tensor(np.full(shape, np.nan, "f4"))
    function(*(tvm.runtime.tensor(np.ascontiguousarray(array)) for array in inputs), out)
    return out.numpy()


def error(actual: np.ndarray, expected: np.ndarray) -> float:
    """Norm of the difference over the norm of what is expected."""
    assert actual.shape == expected.shape
    return float(np.linalg.norm(actual - expected) / max(np.linalg.norm(expected), 1e-30))


def normal(seed: int, *shape: int) -> np.ndarray:
    """Return normally distributed float32."""
    return np.random.default_rng(seed).standard_normal(shape, dtype="f4")
