"""Lowering of operations on caches for a GPU: which kernels, and machine code for them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tvm
import tvm_ffi
from tvm import relax

from maxtool.compiler.cuda.binaries import device_code
from maxtool.compiler.cuda.resources import read_resources
from maxtool.compiler.lowering.module_lowering import ModuleLowering
from maxtool.compiler.lowering_plan import LoweringPlan
from maxtool.compiler.pipeline import compile_module
from maxtool.compiler.targets import parse_target
from maxtool.dtype import DType
from maxtool.graph import BufferType, Graph, Tensor, TensorType, executor, ops
from tests.effort import thinned
from tests.simt.model import Simulation

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
    lowering = ModuleLowering(LoweringPlan([graph], TARGET))
    lowering.entry(graph)
    return lowering.module()


def kernels(module: Any) -> set[str]:
    return {one.name_hint for one in module.get_global_vars()} - {"main"}


def test_one_token_takes_shares_and_their_join() -> None:
    names = kernels(lowered(step(1, DType.float16)))
    assert {"attention_step_8_2_64", "combine_splits_8_64_16"} == names
    # A block takes 64 keys at a time: a window of 100 is two shares.
    assert "combine_splits_8_64_2" in kernels(lowered(step(1, DType.float16, window=100)))


def test_one_token_without_rotary_positions() -> None:
    cache, x = BufferType(DType.float32, [1, 2, 8, 4]), TensorType(DType.float32, [1, 1, 2, 4])

    def call(keys: Tensor, values: Tensor, x: Tensor, at: Tensor) -> Tensor:
        keys = ops.cache_write_key(keys, x, at, transposed=False)
        values = ops.cache_write_value(values, x, at)
        return ops.attention(x, keys, values, at, scale=0.5, transposed=False)

    names = kernels(lowered(Graph("main", call, [cache, cache, x, POSITION])))
    assert names == {"split_kv_attention_2_2_4", "combine_splits_2_4_1", "cache_write_value_2_4"}


def test_rotations_and_writes_are_one_kernel() -> None:
    names = kernels(lowered(step("seq", DType.bfloat16)))
    assert "rope_into_cache_8_2_64" in names
    assert not [name for name in names if name.startswith(("rope_64", "cache_write"))]


def test_what_is_read_before_the_writes_is_rotated_by_itself() -> None:
    cache, x = BufferType(DType.float32, [1, 2, 8, 4]), TensorType(DType.float32, [1, 1, 2, 4])
    table = TensorType(DType.float32, [8, 2])

    def call(*values: Tensor) -> list[Tensor]:
        keys, held, q, k, cos, sin, at = values
        q, k = ops.rope(q, cos, sin, at), ops.rope(k, cos, sin, at)
        early = ops.softmax(q)
        keys = ops.cache_write_key(keys, k, at, transposed=False)
        held = ops.cache_write_value(held, q, at)
        return [early, ops.attention(q, keys, held, at, scale=0.5, transposed=False)]

    graph = Graph("main", call, [cache, cache, x, x, table, table, POSITION])
    assert {"rope_4_4", "cache_write_value_2_4"} <= kernels(lowered(graph))


@pytest.mark.parametrize("dtype", [DType.float32, DType.bfloat16])
@pytest.mark.parametrize(
    ("seq", "window"), thinned([(1, None), (3, None), (3, 2**32)], (1, None), (3, None))
)
def test_a_layer_gives_what_the_cpu_gives(dtype: DType, seq: int, window: int | None) -> None:
    """Compare with the CPU, up to rounding on the way to the cache and in attention; caches too."""
    graph = step(seq, dtype, window)
    rng = np.random.default_rng(0)

    def numbers(*shape: int) -> np.ndarray:
        return rng.standard_normal(shape, np.float32)

    caches = [numbers(2, 2, 1024, 64).astype(dtype.to_numpy()) for _ in range(2)]
    inputs = [numbers(2, seq, heads, 64) for heads in (8, 2, 2)]
    tables = [numbers(1024, 32), numbers(1024, 32), np.array([130], np.int32)]
    theirs = [cache.copy() for cache in caches]
    (expected,) = executor.find_executor().compile(graph, {})(
        *map(Tensor, [*theirs, *inputs, *tables])
    )
    compiled = Simulation().compile_module(lowered(graph), TARGET)
    written = [one.view(np.uint16) if one.dtype.itemsize == 2 else one for one in caches]
    state = tvm_ffi.Array([tvm.runtime.tensor(one) for one in written])
    run = relax.VirtualMachine(compiled.executable, tvm.cpu())["main"]
    got = run(*map(tvm.runtime.tensor, [*inputs, *tables]), state, tvm_ffi.Array([]))
    bound = 1e-5 if dtype is DType.float32 else 2e-2
    np.testing.assert_allclose(got.numpy(), expected.to_numpy(), atol=bound, rtol=0)
    for one, other in zip(state, theirs, strict=True):
        held = one.numpy().view(other.dtype).astype(np.float32)
        np.testing.assert_allclose(held, other.astype(np.float32), atol=bound, rtol=0)


def test_many_tokens_take_tiles() -> None:
    assert "attention_8_2_64" in kernels(lowered(step("seq", DType.float16)))


@pytest.mark.parametrize(
    "dtype", thinned([DType.float32, DType.float16, DType.bfloat16], DType.float16)
)
@pytest.mark.parametrize("seq", thinned([1, "seq"], "seq"))
def test_machine_code_without_local_memory(dtype: DType, seq: int | str) -> None:
    compiled = compile_module(lowered(step(seq, dtype)), TARGET, asserts=False)
    for code in device_code(compiled, TARGET):
        for name, result in read_resources(code.log).items():
            assert result.stack == 0, name
            assert not result.spills, name
