"""Every barrier of a kernel is needed, and the interpreter notices when one is missing."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from unittest import mock

import ml_dtypes
import numpy as np
import pytest

from maxtool.compiler.kernels.cuda import linear
from maxtool.compiler.kernels.cuda.attention import attention
from tests.effort import thinned
from tests.simt import Program, lower, warps
from tests.simt.dtypes import Array, Value
from tests.simt.faults import Race
from tests.simt.test_kernels import product, rms_norm

SYNC = "tirx.tvm_storage_sync"
SHARED_MEMORY = 99 << 10
TYPES = {"float32": np.float32, "float16": np.float16, "bfloat16": ml_dtypes.bfloat16}


class Barriers:
    """Stands in for ``warps.known``, which is asked once for each call in a program.

    Args:
        missing: The barrier that does nothing, counted in the order of the program.
    """

    def __init__(self, missing: int | None = None) -> None:
        self.count = 0
        self.reached = False
        self._missing = missing
        self._known = warps.known

    def known(self, name: str) -> Callable[..., Value] | None:
        if name != SYNC:
            return self._known(name)
        self.count += 1
        return self._skip if self.count - 1 == self._missing else self._known(name)

    def _skip(self, *_: Any) -> None:
        self.reached = True

    def compiled(self, lowered: Any) -> Program:
        with mock.patch.object(warps, "known", self.known):
            return Program(lowered)


def normal(*shape: int, dtype: str = "float32") -> Array:
    return np.random.default_rng(0).standard_normal(shape, np.float32).astype(TYPES[dtype])


def norm() -> tuple[Any, list[Array]]:
    x = normal(3, 1024)
    return rms_norm(1024), [x, normal(1024, dtype="float16"), np.zeros_like(x)]


def fragments() -> tuple[Any, list[Array]]:
    x, weight = normal(20, 64, dtype="float16"), normal(32, 64, dtype="float16")
    return product(32, 64, "float16"), [x, weight, normal(20, 32)]


def attended(dtype: str) -> tuple[Any, list[Array]]:
    cache, q = normal(1, 1, 200, 64, dtype=dtype), normal(1, 150, 2, 64)
    kernel = attention(SHARED_MEMORY, 2, 1, 64, 0.125, None, None, dtype)
    return kernel, [q, cache, cache, np.array([40], np.int32), np.zeros_like(q)]


def multiplied(dtype: str, rows: int, *, full: int = linear.FULL) -> tuple[Any, list[Array]]:
    """A product; it has large tiles where there are ``full`` of them."""
    sizes = {"aligned": True, "fours": True, "wide": True}
    with mock.patch.object(linear, "FULL", full):
        kernel = linear.linear(SHARED_MEMORY, dtype, batched=False, **sizes)
    x, weight = normal(rows, 328, dtype=dtype), normal(272, 328, dtype=dtype)
    return kernel, [x, weight, np.zeros((rows, 272), np.float32)]


CASES: dict[str, Callable[[], tuple[Any, list[Array]]]] = {
    "norm": norm,
    "fragments": fragments,
    "attention on tensor cores": lambda: attended("bfloat16"),
    "attention in float32": lambda: attended("float32"),
    "a few rows": lambda: multiplied("bfloat16", 3),
    "tiles": lambda: multiplied("bfloat16", 40),
    "large tiles": lambda: multiplied("float16", 150, full=1),
    "one row in float32": lambda: multiplied("float32", 1),
    "tiles in float32": lambda: multiplied("float32", 40),
    "large tiles in float32": lambda: multiplied("float32", 150, full=1),
}


QUICK = ("norm", "fragments", "attention on tensor cores", "a few rows")


@pytest.mark.parametrize("name", thinned(CASES, *QUICK))
def test_a_missing_barrier_is_noticed(name: str) -> None:
    kernel, arrays = CASES[name]()
    lowered, whole, noticed = lower(kernel), Barriers(), 0
    whole.compiled(lowered)(*arrays)
    for missing in range(whole.count):
        barriers = Barriers(missing)
        without = barriers.compiled(lowered)
        try:
            without(*arrays)
        except Race:
            noticed += 1
        else:
            assert not barriers.reached, f"barrier {missing} is not missed"
    assert noticed
