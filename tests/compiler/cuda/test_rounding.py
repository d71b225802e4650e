"""Which kernels round their results themselves, because products alone read them."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from maxtool.compiler.lowering.module import ModuleLowering
from maxtool.compiler.storage import plan_storage
from maxtool.compiler.targets import parse_target
from maxtool.dtype import DType
from maxtool.graph import Graph, Tensor, TensorType, Weight, ops

TARGET = parse_target("cuda:sm_80")


def product(x: Tensor, name: str = "w", dtype: DType = DType.bfloat16) -> Tensor:
    return ops.linear(x, Weight(name, dtype, (64, 64)))


def normed(x: Tensor) -> Tensor:
    return ops.rms_norm(x, Tensor(np.ones(64, np.float32)), 1e-6)


def kernels(call: Callable[[Tensor], object]) -> set[str]:
    graph = Graph("main", call, [TensorType(DType.float32, ["batch", "seq", 64])])
    lowering = ModuleLowering(TARGET, plan_storage([graph], TARGET))
    lowering.entry(graph)
    return {one.name_hint for one in lowering.module().get_global_vars()}


@pytest.mark.parametrize(
    ("call", "rounded"),
    [
        (lambda x: product(normed(x)), "rms_norm_64_bfloat16"),
        (lambda x: [product(normed(x), "a"), product(x, "b")], "rms_norm_64_bfloat16"),
        (lambda x: product(ops.silu(x) * x), "silu_mul_64_bfloat16"),
        (lambda x: product(normed(x).reshape([-1, 64])), "rms_norm_64_bfloat16"),
        (lambda x: product(normed(x), dtype=DType.float16), "rms_norm_64_float16"),
    ],
    ids=["norm", "one of two", "chain", "reshaped", "float16"],
)
def test_what_products_alone_read_is_rounded_where_it_is_made(
    call: Callable[[Tensor], object], rounded: str
) -> None:
    names = kernels(call)
    assert rounded in names
    assert "rms_norm_64_float32" not in names


def twice(x: Tensor) -> list[Tensor]:
    y = normed(x)
    return [product(y, "a"), product(y, "b", DType.float16)]


def kept(x: Tensor) -> list[Tensor]:
    y = normed(x)
    return [product(y), y]


def added(x: Tensor) -> Tensor:
    y = normed(x)
    return product(y) + y


@pytest.mark.parametrize("call", [twice, kept, added], ids=["two types", "an output", "added"])
def test_what_is_read_otherwise_too_stays_whole(call: Callable[[Tensor], object]) -> None:
    names = kernels(call)
    assert {"rms_norm_64_float32", "narrow_bfloat16"} <= names
    assert "rms_norm_64_bfloat16" not in names


def test_weights_of_32_bits_ask_for_no_rounding() -> None:
    names = kernels(lambda x: product(normed(x), dtype=DType.float32))
    assert "rms_norm_64_float32" in names
    assert not [name for name in names if "float16" in name]
