"""Products of a decode step joined: the kernels, and what layers become, against NumPy."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tvm import relax

from maxtool import artifact
from maxtool.compiler.cuda.cuda_target import cuda_target
from maxtool.compiler.kernels.cuda import fused_gemv
from maxtool.compiler.kernels.cuda.matrix import PIECE
from maxtool.compiler.kernels.kernel_options import SILU_MUL
from maxtool.compiler.lowering.module_lowering import ModuleLowering
from maxtool.compiler.lowering_plan import LoweringPlan
from maxtool.dtype import DType
from maxtool.graph import Graph, Tensor, TensorType, Weight, ops
from tests.compiler.cuda.harness import elements, numpy_type, resources
from tests.simt import Program, program
from tests.simt.model import Simulation

SHARED_MEMORY = 99 << 10
TARGET = cuda_target("cuda:sm_90")
WIDTH, INNER = 24, 40
ROW = TensorType(DType.float32, ["batch", 1, WIDTH])


@cache
def kernel(name: str, dtype: str, options: tuple[tuple[str, Any], ...]) -> Program:
    factory = getattr(fused_gemv, name)
    result = factory(SHARED_MEMORY, dtype, **dict(options))
    return program(result, shared_memory=SHARED_MEMORY)


def run(
    name: str, dtype: str, rows: int, k: int, sizes: list[int], **options: Any
) -> tuple[list[np.ndarray], list[np.ndarray], np.ndarray]:
    """Return a kernel's output, the products with their biases, and a residual."""
    x = elements(0, (rows, k), "float32")
    weights = [elements(1 + i, (n, k), dtype) for i, n in enumerate(sizes)]
    biases = [elements(9 + i, (n,), "float32") for i, n in enumerate(sizes)]
    residual = elements(8, (rows, sizes[-1]), "float32")
    inputs = list[np.ndarray]()
    for weight, bias, has_bias in zip(weights, biases, options["biases"], strict=True):
        inputs += [weight, bias] if has_bias else [weight]
    inputs += [residual] if options.get("residual") else []
    result = sizes if name == "linears" else sizes[:1]
    outputs = [np.full((rows, n), np.nan, np.float32) for n in result]
    options["aligned"] = k % PIECE[dtype] == 0
    rounded = x.astype(numpy_type(dtype))
    read = x if options.get("rounds") else rounded
    kernel(name, dtype, tuple(options.items()))(read, *inputs, *outputs)
    rounded = rounded.astype("f8")
    expected = [
        rounded @ weight.astype("f8").T + (bias if has_bias else 0)
        for weight, bias, has_bias in zip(weights, biases, options["biases"], strict=True)
    ]
    return outputs, expected, residual


@pytest.mark.parametrize("rows", [0, 1, 3, 9])
@pytest.mark.parametrize(
    ("dtype", "k", "rounds"),
    [
        ("bfloat16", 136, True),
        ("bfloat16", 40, False),
        ("float16", 13, True),
        ("float32", 36, False),
    ],
)
def test_linears(dtype: str, k: int, rounds: bool, rows: int) -> None:
    options = {"biases": (False, True, False), "residual": True, "rounds": rounds}
    actual, expected, residual = run("linears", dtype, rows, k, [40, 16, 17], **options)
    expected[-1] += residual
    for one, other in zip(actual, expected, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("rows", [1, 3, 9])
@pytest.mark.parametrize(("dtype", "k"), [("bfloat16", 136), ("float32", 13)])
def test_gated_linear(dtype: str, k: int, rows: int) -> None:
    result, (gate, up), _ = run(
        "gated_linear", dtype, rows, k, [33, 33], biases=(False, True), steps=SILU_MUL
    )
    np.testing.assert_allclose(result[0], gate / (1 + np.exp(-gate)) * up, rtol=1e-4, atol=1e-4)


@pytest.mark.slow
def test_kernels_stay_in_registers() -> None:
    linears = partial(fused_gemv.linears, SHARED_MEMORY)
    gated = partial(fused_gemv.gated_linear, SHARED_MEMORY)
    result = {
        "three": linears("bfloat16", (False,) * 3, aligned=True, rounds=True),
        "gated": gated("bfloat16", SILU_MUL, (False,) * 2, aligned=True),
        "float32": linears("float32", (False,), True, aligned=True),
        "unaligned": linears("float16", (False,) * 3, aligned=False),
    }
    for name, one in resources(result):
        assert not one.spills, name
        assert not one.stack, name
        # Two blocks of 256 threads in an SM, as its shared memory lets.
        assert one.registers <= 128, name


def names(forward: Callable[..., Any], *types: TensorType) -> list[str]:
    """The kernels that a graph becomes."""
    graph = Graph("main", forward, types)
    lowering = ModuleLowering(LoweringPlan([graph], TARGET))
    lowering.entry(graph)
    result = [str(name.name_hint) for name in lowering.module().functions]
    return sorted(name for name in result if name != "main")


def weight(name: str, n: int = INNER, k: int = WIDTH, dtype: DType = DType.bfloat16) -> Weight:
    return Weight(name, dtype, (n, k))


def mlp(x: Any) -> Any:
    gate, up = (ops.linear(x, weight(name)) for name in ("gate", "up"))
    return ops.linear(ops.silu(gate) * up, weight("down", WIDTH, INNER)) + x


def siblings(x: Any) -> Any:
    return [ops.linear(x, weight(name)) for name in ("q", "k", "v")]


def test_of_one_token_products_are_joined() -> None:
    assert names(siblings, ROW) == ["linears_3_bfloat16"]
    assert names(mlp, ROW) == ["gated_linear_silu_bfloat16", "linears_1_bfloat16"]


def test_what_is_rounded_already_is_not_rounded_again() -> None:
    """A norm, a chain and a gate write 16 bits; a graph's own input has 32."""
    norm = Weight("norm", DType.float32, (WIDTH,))

    def forward(x: Any) -> Any:
        normed = ops.rms_norm(x, norm, 1e-6)
        gate, up = (ops.linear(normed, weight(name)) for name in ("gate", "up"))
        return ops.linear(ops.silu(gate) * up, weight("down", WIDTH, INNER))

    graph = Graph("main", forward, [ROW])
    lowering = ModuleLowering(LoweringPlan([graph], TARGET))
    lowering.entry(graph)
    module = lowering.module()
    types = {
        variable.name_hint: [str(param.ty.dtype) for param in function.params]
        for variable, function in module.functions.items()
        if variable.name_hint != "main"
    }
    assert types["gated_linear_silu_bfloat16"] == ["uint16"] * 4
    assert types["linears_1_bfloat16"] == ["uint16", "uint16", "float32"]
    assert len(types) == 3


def test_a_decode_step_has_four_launches_of_products_in_a_layer() -> None:
    folder = Path(__file__).parents[2] / "data" / "tiny-llama"
    request = artifact.Request(folder, Path("unused"), target="cuda:sm_90", dtype=DType.bfloat16)
    graphs = {entry.name: graph for entry, graph in artifact.prepare(request).graphs.items()}
    lowering = ModuleLowering(LoweringPlan([graphs["decode"]], TARGET))
    lowering.entry(graphs["decode"])
    layers = [
        called_by(function)
        for variable, function in lowering.module().functions.items()
        if isinstance(function, relax.Function) and variable.name_hint != "decode"
    ]
    assert len(layers) == 1
    assert len(layers[0]) <= 9
    assert [name for name in layers[0] if "linear" in name] == [
        "linears_3_bfloat16",
        "linears_1_bfloat16",
        "gated_linear_silu_bfloat16",
        "linears_1_bfloat16_unaligned",
    ]


def called_by(function: Any) -> list[str]:
    """The kernels that a Relax function calls, in order."""
    result: list[str] = []

    def visit(node: Any) -> None:
        if isinstance(node, relax.Call) and "call_tir" in str(getattr(node.op, "name", "")):
            result.append(str(node.args[0].name_hint))

    relax.analysis.post_order_visit(function, visit)
    return result


def test_of_many_tokens_they_are_not() -> None:
    many = TensorType(DType.float32, ["batch", "seq", WIDTH])
    assert names(siblings, many) == ["linear_bfloat16", "narrow_bfloat16"]
    assert [name for name in names(mlp, many) if name.startswith("linear")] == [
        "linear_bfloat16",
        "linear_bfloat16_2",  # with the residual
    ]


def read_twice(x: Any) -> Any:
    gate, up = (ops.linear(x, weight(name)) for name in ("gate", "up"))
    return [ops.silu(gate) * up, up]


def of_two_inputs(x: Any, y: Any) -> Any:
    return ops.silu(ops.linear(x, weight("gate"))) * ops.linear(y, weight("up"))


def of_two_types(x: Any) -> Any:
    return [
        ops.linear(x, weight("a")),
        ops.linear(x, weight("b", dtype=DType.float32)),
    ]


def of_itself(x: Any) -> Any:
    product = ops.linear(x, weight("w", WIDTH))
    return product + product


def broadcast(x: Any) -> Any:
    return ops.linear(x, weight("w", WIDTH)) + x[0:1]


def from_the_graph(x: Any) -> Any:
    first = ops.linear(x, weight("a", WIDTH))
    result = ops.cast(ops.cast(weight("b"), DType.float32) * 2.0, DType.bfloat16)
    return [first, ops.linear(x, result)]


def chained(x: Any) -> Any:
    """Each product's residual is another product, or needs one."""
    first, second = (ops.linear(x, weight(name, WIDTH)) for name in ("a", "b"))
    return ops.linear(first + second, weight("c", WIDTH)) + (first + second)


def gelu(x: Any) -> Any:
    gate, up = (ops.linear(x, weight(name)) for name in ("gate", "up"))
    return up * ops.gelu(gate, approximate="tanh")


@pytest.mark.parametrize(
    "forward",
    [
        *(siblings, mlp, read_twice, from_the_graph, chained),
        *(
            pytest.param(one, marks=pytest.mark.slow)
            for one in (of_two_inputs, of_two_types, of_itself, broadcast, gelu)
        ),
    ],
)
def test_graphs_mean_what_they_did(forward: Callable[..., Any]) -> None:
    """One token is joined, many are not; the same rows give the same but for the order of sums."""
    count = forward.__code__.co_argcount
    kinds = {seq: TensorType(DType.float32, ["batch", seq, WIDTH]) for seq in (1, "seq")}
    graphs = [Graph(f"main_{seq}", forward, [kind] * count) for seq, kind in kinds.items()]
    result = Simulation().program(graphs)
    values = {
        name: elements(i, place.shape, place.dtype.value)
        for i, (name, place) in enumerate(result.storage.items())
    }
    weights = result.bind(values)
    rows = [elements(20 + i, (3, 1, WIDTH), "float32") for i in range(count)]
    results = [
        result.function(graph.name, weights, [output.type for output in graph.outputs])(
            list(map(Tensor, rows))
        )
        for graph in graphs
    ]
    for joined, plain in zip(*results, strict=True):
        one, other = joined.to_numpy(), plain.to_numpy()
        assert one.shape == other.shape
        np.testing.assert_allclose(one, other, rtol=2e-2, atol=2e-2 * np.abs(other).max())
