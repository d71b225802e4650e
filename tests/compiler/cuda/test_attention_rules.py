"""What operations on caches become on a GPU: which kernels, and machine code for them."""

from __future__ import annotations

from typing import Any

import pytest

from maxtool.compiler.cuda.binaries import device_code
from maxtool.compiler.cuda.resources import read_resources
from maxtool.compiler.lowering.module import ModuleLowering
from maxtool.compiler.pipeline import compile_module
from maxtool.compiler.targets import parse_target
from maxtool.dtype import DType
from maxtool.graph import BufferType, Graph, Tensor, TensorType, ops

TARGET = parse_target("cuda:sm_80,sm_90")
POSITION = TensorType(DType.int32, [1])


def step(seq: int | str, dtype: DType, window: int | None = None) -> Graph:
    """Attention of a layer with a cache of 1024 positions."""
    cache = BufferType(dtype, ["batch", 2, 1024, 64])
    heads = [TensorType(DType.float32, ["batch", seq, n, 64]) for n in (8, 2, 2)]
    table = TensorType(DType.float32, [1024, 32])

    def call(
        keys: Tensor,
        values: Tensor,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        cos: Tensor,
        sin: Tensor,
        at: Tensor,
    ) -> Tensor:
        q, k = ops.rope(q, cos, sin, at), ops.rope(k, cos, sin, at)
        keys = ops.cache_write_key(keys, k, at, transposed=False)
        values = ops.cache_write_value(values, v, at)
        return ops.attention(q, keys, values, at, scale=0.125, window=window, transposed=False)

    return Graph("main", call, [cache, cache, *heads, table, table, POSITION])


def lowered(graph: Graph) -> Any:
    lowering = ModuleLowering(TARGET, {})
    lowering.entry(graph)
    return lowering.module()


def kernels(module: Any) -> set[str]:
    return {one.name_hint for one in module.get_global_vars()} - {"main"}


def test_one_token_takes_shares_and_their_join() -> None:
    names = kernels(lowered(step(1, DType.float16)))
    assert {"attention_split_8_2_64", "attention_join_8_64_16"} <= names
    # A block takes 64 keys at a time: a window of 100 is two shares.
    assert "attention_join_8_64_2" in kernels(lowered(step(1, DType.float16, window=100)))


def test_many_tokens_take_tiles() -> None:
    assert "attention_8_2_64" in kernels(lowered(step("seq", DType.float16)))


@pytest.mark.parametrize("dtype", [DType.float32, DType.float16, DType.bfloat16])
@pytest.mark.parametrize("seq", [1, "seq"])
def test_machine_code_without_local_memory(dtype: DType, seq: int | str) -> None:
    executable = compile_module(lowered(step(seq, dtype)), TARGET, asserts=False)
    for code in device_code(executable, TARGET):
        for name, found in read_resources(code.log).items():
            assert found.stack == 0, name
            assert not found.spills, name
