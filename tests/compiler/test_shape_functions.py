"""Order of size computations: one form, whatever order TVM leaves the functions in."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tvm
from tvm import tirx

from maxtool.compiler import pipeline
from maxtool.compiler.lowering.module_lowering import ModuleLowering
from maxtool.compiler.lowering_plan import LoweringPlan
from maxtool.compiler.shape_functions import MARK, _sorted, settle_shape_functions
from maxtool.compiler.targets import parse_target
from maxtool.dtype import DType
from maxtool.graph import Graph, Tensor, TensorType, ops
from tests.compiler.execution import compiled

TYPE = TensorType(DType.float32, ("rows", "columns"))


def several(x: Tensor) -> tuple[Tensor, Tensor]:
    """Return results of several sizes that depend on two names."""
    twice = ops.concat([x, x], axis=0)
    flat = ops.concat([ops.reshape(twice, (-1,)), ops.reshape(x, (-1,))], axis=0)
    return ops.sum(flat, axis=0), ops.matmul(twice, ops.transpose(x, 0, 1))


@pytest.fixture(scope="module")
def lowered() -> Any:
    """A module as ``VMShapeLower`` leaves it, with functions that compute sizes."""
    target, graphs = (
        parse_target("cpu:x86-64-v2"),
        [Graph(name, several, [TYPE]) for name in ("one", "two")],
    )
    lowering = ModuleLowering(LoweringPlan(graphs, target))
    for graph in graphs:
        lowering.entry(graph)
    before = pipeline.PASSES[: pipeline.PASSES.index(settle_shape_functions)]
    with target.tvm:
        return tvm.transform.Sequential([make() for make in before])(lowering.module())


def shuffled(module: Any, seed: int) -> Any:
    """The module in another process: other orders of stores, other orders of functions."""
    draw = random.Random(seed)
    items = list(module.functions.items())
    draw.shuffle(items)

    def stores(function: Any) -> Any:
        if not (isinstance(function, tirx.PrimFunc) and MARK in function.attrs):
            return function
        if not isinstance(function.body, tirx.SeqStmt):
            return function
        result = list(function.body.seq)
        return function.with_body(tirx.SeqStmt(draw.sample(result, len(result))))

    return tvm.IRModule({name: stores(function) for name, function in items})


def names(module: Any) -> list[str]:
    return sorted(name.name_hint for name, f in module.functions.items() if computes(f))


def computes(function: Any) -> bool:
    return isinstance(function, tirx.PrimFunc) and MARK in (function.attrs or {})


def script(module: Any) -> str:
    items = sorted(module.functions.items(), key=lambda item: item[0].name_hint)
    return "\n".join(f"{name.name_hint}\n{function.script()}" for name, function in items)


def test_any_order_becomes_the_same(lowered: Any) -> None:
    stores = [len(getattr(f.body, "seq", ())) for f in lowered.functions.values() if computes(f)]
    assert max(stores) > 2
    settled = {script(settle_shape_functions()(shuffled(lowered, seed))) for seed in range(8)}
    assert len({script(shuffled(lowered, seed)) for seed in range(8)}) > 1
    assert len(settled) == 1


def test_equal_functions_are_kept_once_and_named_by_their_first_calls(lowered: Any) -> None:
    result = names(settle_shape_functions()(lowered))
    assert len(result) <= len(names(lowered)) // 2  # the two graphs compute the same sizes
    assert result == ["shape_func", *(f"shape_func{i}" for i in range(1, len(result)))]


def slots(*values: Callable[[Any], Any]) -> list[int]:
    """Return the slots a function stores to, in order; it stores from the third slot down."""
    heap = tirx.decl_buffer((4,), "int64", "H")
    stores = [tirx.BufferStore(heap, value(heap), [3 - i]) for i, value in enumerate(values)]
    function = _sorted(tirx.PrimFunc([heap], tirx.SeqStmt(stores)))
    return [int(store.indices[0]) for store in function.body.seq]


def test_stores_that_read_each_other_stay() -> None:
    def one(_heap: Any) -> Any:
        return tirx.IntImm("int64", 1)

    assert slots(one, one) == [2, 3]
    assert slots(one, lambda heap: tirx.BufferLoad(heap, [0])) == [2, 3]
    assert slots(one, lambda heap: tirx.BufferLoad(heap, [3]) + one(heap)) == [3, 2]


def test_sizes_are_right() -> None:
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    total, product = compiled(several, TYPE)(x)
    assert total == 3 * x.sum()
    np.testing.assert_array_equal(product, np.concatenate([x, x]) @ x.T)
