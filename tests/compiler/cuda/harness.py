"""CUDA kernels without a GPU: run by the interpreter, and compiled for what they take of a GPU."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any

import ml_dtypes
import numpy as np
import tvm

from maxtool.compiler.cuda.binaries import compile_apart, device_code
from maxtool.compiler.cuda.cuda_target import cuda_target
from maxtool.compiler.cuda.resources import Resources, read_resources
from maxtool.compiler.kernels.cuda import cuda_kernels
from maxtool.compiler.kernels.cuda.cuda_passes import register
from tests.simt import Program, program

TARGET = cuda_target("cuda:sm_80,sm_90")
BFLOAT16 = np.dtype(ml_dtypes.bfloat16)
FLOATS = ("float32", "float16", "bfloat16", "float64")
# One of each kind, and of each width.
FEW_TYPES = ("float32", "bfloat16", "int64", "uint8")
# The factories of the table by their names; some take the shared memory first.
FACTORIES = {
    getattr(one, "func", one).__name__: one for one in cuda_kernels.kernels(TARGET).values()
}
INTEGERS = tuple(f"{sign}int{bits}" for bits in (8, 16, 32, 64) for sign in ("", "u"))


def numpy_type(name: str) -> np.dtype[Any]:
    """NumPy's type of an element type's name."""
    return BFLOAT16 if name == "bfloat16" else np.dtype(name)


def build(name: str, **options: Any) -> Any:
    """A kernel of the table."""
    return FACTORIES[name](**options)


@cache
def _program(name: str, options: tuple[tuple[str, Any], ...]) -> Program:
    return program(build(name, **dict(options)))


def run(
    name: str,
    *inputs: np.ndarray,
    into: np.ndarray | list[np.ndarray],
    updated: tuple[int, ...] = (),
    **options: Any,
) -> Any:
    """``into``, an array or several, after a kernel of the table has written there.

    ``updated`` are the inputs that it writes, too.
    """
    outputs = into if isinstance(into, list) else [into]
    arguments = [np.ascontiguousarray(input_) for input_ in inputs]
    _program(name, tuple(options.items()))(*arguments, *outputs, updated=updated)
    return into


def resources(functions: Mapping[str, Any]) -> Iterator[tuple[str, Resources]]:
    """Return the resources of each kernel on each architecture; all are compiled together."""
    named = {name: one.with_attr("global_symbol", name) for name, one in functions.items()}
    compiled = compile_apart(tvm.IRModule(named), TARGET.tvm, tir_pipeline=register())
    for code in device_code(compiled, TARGET):
        for name, result in read_resources(code.log).items():
            yield f"{name} on {code.name}", result


def elements(seed: int, shape: tuple[int, ...], dtype: str) -> np.ndarray:
    """Numbers of a type: few enough that some are equal, or normally distributed floats."""
    random = np.random.default_rng(seed)
    if dtype == "bool":
        return random.random(shape) < 0.5
    if dtype in FLOATS:
        return random.standard_normal(shape).astype(numpy_type(dtype))
    return random.integers(0 if dtype.startswith("u") else -9, 9, shape).astype(dtype)
