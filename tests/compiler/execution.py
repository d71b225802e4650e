"""Graphs compiled and run in this process, and numbers to run them on."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from maxtool.dtype import DType
from maxtool.graph import Graph, Tensor, TensorType, executor

Array = np.ndarray[Any, Any]
Run = Callable[..., list[Array]]

F32 = DType.float32
NUMBERS = [dtype for dtype in DType if "float8" not in dtype.value]
FLOATS = [dtype for dtype in NUMBERS if dtype.is_float()]
rng = np.random.default_rng(0)


def compiled(
    call: Callable[..., Any], *types: TensorType, weights: dict[str, Array] | None = None
) -> Run:
    graph = Graph("main", call, types)
    run = executor.find_executor().compile(graph, weights or {})
    return lambda *arrays: [value.to_numpy() for value in run(*map(Tensor, arrays))]


def sample(*shape: int, dtype: DType = F32) -> Array:
    return rng.standard_normal(shape).astype(np.float32).astype(dtype.to_numpy())
