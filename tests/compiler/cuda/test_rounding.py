"""Rounding inside kernels whose results only products read."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import tvm
import tvm_ffi
from tvm import relax

from maxtool.compiler.lowering.module_lowering import ModuleLowering
from maxtool.compiler.lowering_plan import LoweringPlan
from maxtool.compiler.targets import parse_target
from maxtool.dtype import DType
from maxtool.graph import Graph, Tensor, TensorType, Weight, executor, ops
from tests.simt.model import Simulation

TARGET = parse_target("cuda:sm_80")


def product(x: Tensor, name: str = "w", dtype: DType = DType.bfloat16) -> Tensor:
    return ops.linear(x, Weight(name, dtype, (64, 64)))


def normed(x: Tensor) -> Tensor:
    return ops.rms_norm(x, Tensor(np.ones(64, np.float32)), 1e-6)


ROWS = TensorType(DType.float32, ["batch", "seq", 64])


def kernels(call: Callable[[Tensor], object], tensor_type: TensorType = ROWS) -> set[str]:
    graph = Graph("main", call, [tensor_type])
    lowering = ModuleLowering(LoweringPlan([graph], TARGET))
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


def attended(x: Tensor, heads: int) -> Tensor:
    """Compute an encoder's attention: projections, heads, a padding mask, an output projection."""

    def by_head(name: str) -> Tensor:
        return product(x, name).reshape([*x.shape[:2], heads, 64 // heads]).permute([0, 2, 1, 3])

    mask = Tensor(np.array([True, True, False, True, True]).reshape(1, 1, 1, 5))
    mixed = ops.scaled_dot_product_attention(by_head("q"), by_head("k"), by_head("v"), mask)
    return product(mixed.permute([0, 2, 1, 3]).reshape(x.shape), "o")


def test_attention_between_products_is_for_tensor_cores() -> None:
    kind = TensorType(DType.float32, [2, 5, 64])
    names = kernels(lambda x: attended(x, 2), kind)
    assert "dot_attention_bfloat16" in names
    assert not [name for name in names if name.startswith("permute") and "float32" in name]
    # Heads of 8 elements are too narrow for tensor cores: rounding would be of no use.
    assert "dot_attention_float32" in kernels(lambda x: attended(x, 8), kind)


@pytest.mark.long
def test_rounded_attention_gives_what_the_cpu_gives() -> None:
    kind = TensorType(DType.float32, [2, 5, 64])
    graph = Graph("main", lambda x: attended(x, 2), [kind])
    rng = np.random.default_rng(0)
    x = rng.standard_normal((2, 5, 64), np.float32)
    weights = {
        name: (rng.standard_normal((64, 64)) / 8).astype(DType.bfloat16.to_numpy())
        for name in "qkvo"
    }
    (expected,) = executor.find_executor().compile(graph, weights)(Tensor(x))
    plan = LoweringPlan([graph], TARGET)
    lowering = ModuleLowering(plan)
    lowering.entry(graph)
    compiled = Simulation().compile_module(lowering.module(), TARGET)
    held = [tvm.runtime.tensor(weights[name].view(np.uint16)) for name in plan.storage]
    run = relax.VirtualMachine(compiled.executable, tvm.cpu())["main"]
    got = run(tvm.runtime.tensor(x), tvm_ffi.Array(held)).numpy()
    np.testing.assert_allclose(got, expected.to_numpy(), atol=2e-2, rtol=0)
