"""Chains of elementwise operations, subgraphs, names: what becomes which function and kernel."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from maxtool.compiler.execute import Program
from maxtool.compiler.kernels.cpu.pointwise import VECTOR_OPS
from maxtool.compiler.lowering.module import ModuleLowering
from maxtool.compiler.lowering.pointwise import MAX_INPUTS, MAX_STEPS
from maxtool.compiler.storage import plan_storage
from maxtool.compiler.target import cpu_target
from maxtool.dtype import DType
from maxtool.graph import Graph, Tensor, TensorType, Weight, executor, ops

Array = np.ndarray[Any, Any]
F32 = DType.float32
ROWS = TensorType(F32, ["n", 20])
TARGET = cpu_target()
rng = np.random.default_rng(0)


def functions(*graphs: Graph) -> list[str]:
    """The names of the functions and kernels that graphs become."""
    lowering = ModuleLowering(TARGET, plan_storage(graphs, TARGET))
    for graph in graphs:
        lowering.entry(graph)
    return sorted(str(name.name_hint) for name in lowering.module().functions)


def check(call: Callable[..., Any], *types: TensorType) -> list[str]:
    """Compiled and NumPy results are equal; the kernels that it took."""
    arrays = [rng.standard_normal([3 if d == "n" else int(d) for d in t.shape]) for t in types]
    inputs = [array.astype(np.float32) for array in arrays]
    graph = Graph("main", call, types)
    got = executor.find().compile(graph, {})(*map(Tensor, inputs))
    wanted = call(*(Numpy(one) for one in inputs))
    for value, expected in zip(got, wanted if isinstance(wanted, list) else [wanted], strict=True):
        np.testing.assert_allclose(value.to_numpy(), expected.array, rtol=1e-5, atol=1e-5)
    return [name for name in functions(graph) if name != "main"]


class Numpy:
    """The operators of a tensor on an array, as the oracle."""

    def __init__(self, array: Array) -> None:
        self.array = array

    def __add__(self, other: Any) -> Numpy:
        return Numpy(self.array + getattr(other, "array", np.float32(other) if isinstance(other, float) else other))

    __radd__ = __add__

    def __mul__(self, other: Any) -> Numpy:
        return Numpy(self.array * getattr(other, "array", other))

    __rmul__ = __mul__

    def __sub__(self, other: Any) -> Numpy:
        return Numpy(self.array - getattr(other, "array", other))

    def __rsub__(self, other: Any) -> Numpy:
        return Numpy(other - self.array)

    def __rtruediv__(self, other: Any) -> Numpy:
        return Numpy(other / self.array)

    def __neg__(self) -> Numpy:
        return Numpy(-self.array)
