"""Constants, transfers and printing, eagerly and traced."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

from maxtool.driver import CPU
from maxtool.dtype import DType
from maxtool.errors import CompilationFailed, MissingDevice
from maxtool.graph import (
    BufferType,
    DeviceRef,
    Graph,
    Node,
    Tensor,
    TensorType,
    Weight,
    executor,
    ops,
)

F32, BF16 = DType.float32, DType.bfloat16
ROWS = TensorType(F32, ["n", 4])
ELSEWHERE = TensorType(F32, ["n", 4], CPU(1))


def run(graph: Graph, *arrays: Any, weights: dict[str, Any] | None = None) -> list[Any]:
    compiled = executor.find_executor().compile(graph, weights or {})
    return list(compiled(*map(Tensor, arrays)))


# Constants


def test_a_constant_alone() -> None:
    one = ops.constant([1, 2], DType.int8, CPU(1))
    assert (one.dtype, one.shape, one.device) == (DType.int8, [2], CPU(1))
    assert ops.constant(1.5).dtype is F32
    assert ops.constant(Tensor([3.0]), BF16).to_numpy().dtype == ml_dtypes.bfloat16


def test_a_constant_of_a_graph() -> None:
    graph = Graph("g", lambda x: x * ops.constant(2, F32, DeviceRef.CPU()), [ROWS])
    (result,) = run(graph, np.ones((3, 4), np.float32))
    np.testing.assert_array_equal(result.to_numpy(), np.full((3, 4), 2, np.float32))
    with Graph("alone") as alone:
        assert ops.constant(np.ones(2)).is_traced
        alone.output(ops.constant(np.arange(3)))
    assert run(alone)[0].to_numpy().tolist() == [0, 1, 2]


@pytest.mark.parametrize("dtype", [DType.int64, DType.float64])
def test_a_constant_of_64_bits_keeps_them(dtype: DType) -> None:
    array = (np.arange(3) + 2.0**40 + 2.0**-10).astype(dtype.to_numpy())
    graph = Graph("g", lambda x: (x + array, ops.constant(array)), [TensorType(dtype, ["n", 3])])
    both = run(graph, np.zeros((2, 3), dtype.to_numpy()))
    for result in both:
        np.testing.assert_array_equal(
            result.to_numpy(), np.broadcast_to(array, result.shape.static())
        )


def test_a_constant_is_copied() -> None:
    array = np.ones(2, np.float32)
    one = ops.constant(array)
    array[:] = 5
    assert one.to_numpy().tolist() == [1, 1]


@pytest.mark.parametrize(
    ("value", "dtype", "what"),
    [
        (300, DType.uint8, "1 of 1 values do not fit uint8"),
        ([-1, 2, -3], DType.uint64, "2 of 3 values"),
        (1e6, DType.float16, "do not fit float16"),
        (1.5, DType.int32, "float32 would be cut to int32"),
    ],
)
def test_a_constant_that_does_not_fit(value: Any, dtype: DType, what: str) -> None:
    with pytest.raises(ValueError, match=f"constant: .*{what}"):
        ops.constant(value, dtype)


def test_a_traced_value_is_no_constant() -> None:
    with pytest.raises(TypeError, match="no data"):
        Graph("g", lambda x: ops.constant(x), [ROWS])


# Devices


def test_a_transfer_is_the_identity_between_parts_of_the_host() -> None:
    x = Tensor([1.0, 2.0])
    moved = x.to(CPU(1))
    assert (moved.device, moved.type) == (CPU(1), TensorType(F32, [2], CPU(1)))
    assert moved.to_numpy() is x.to_numpy()
    assert moved.to(CPU(1)) is moved
    assert (moved + moved).device == CPU(1)
    assert (moved + 1.0).device == CPU(1)


def test_a_traced_transfer() -> None:
    weight = Weight("w", F32, [4], DeviceRef.CPU(1))

    def forward(x: Tensor) -> Tensor:
        moved = ops.transfer_to(x, DeviceRef.CPU(1))
        assert moved.type == ELSEWHERE
        return ops.transfer_to(moved + weight, CPU())

    graph = Graph("g", forward, [ROWS])
    assert next(node.op for node in graph.nodes if isinstance(node, Node)) == "transfer_to"
    assert graph.outputs[0].type == ROWS
    w = np.arange(4, dtype=np.float32)
    for n in (2, 0):
        (result,) = run(graph, np.ones((n, 4), np.float32), weights={"w": w})
        np.testing.assert_array_equal(result.to_numpy(), np.ones((n, 4)) + w)
        assert result.device == CPU()


def test_results_say_where_they_are() -> None:
    graph = Graph("g", lambda x: x + 1.0, [ELSEWHERE])
    assert run(graph, np.ones((2, 4), np.float32))[0].device == CPU(1)
    empty = ops.exp(Tensor(np.ones((0, 4), np.float32), device=CPU(1)))
    assert (empty.device, empty.shape) == (CPU(1), [0, 4])


def test_a_transfer_of_a_buffer_is_what_it_was() -> None:
    kind = BufferType(F32, [1, 1, 4, 8])
    step, position = TensorType(F32, [1, 1, 1, 4]), TensorType(DType.int32, [1])

    def forward(cache: Tensor, x: Tensor, at: Tensor) -> list[Tensor]:
        before = ops.transfer_to(cache, CPU(1))
        return [before, ops.cache_write_key(cache, x, at)]

    graph = Graph("g", forward, [kind, step, position])
    cache = np.zeros((1, 1, 4, 8), np.float32)
    before, after = run(graph, cache, np.ones((1, 1, 1, 4), np.float32), np.zeros(1, np.int32))
    assert not before.to_numpy().any()
    assert after.to_numpy().any() and cache.any()


def test_operands_on_two_devices() -> None:
    with pytest.raises(ValueError, match=r"add\(.*\): operands on cpu:0 and cpu:1; move them"):
        Tensor([1.0]) + Tensor([1.0], device=CPU(1))
    gpu = Weight("w", F32, [4], DeviceRef.GPU())
    with pytest.raises(ValueError, match=r"mul\(float32\[n, 4\], float32\[4\] on gpu:0\)"):
        Graph("g", lambda x: x * gpu, [ROWS])


def test_a_gpu_can_be_named_in_a_graph_where_there_is_none() -> None:
    graph = Graph("g", lambda x: x.to(DeviceRef.GPU(97)) * 2.0, [ROWS])
    assert graph.outputs[0].device == DeviceRef.GPU(97)
    with pytest.raises(MissingDevice, match="no gpu:97 here"):
        executor.find_executor().compile(graph, {})
    with pytest.raises(MissingDevice, match="no gpu:97 here"):
        Tensor([1.0]).to(DeviceRef.GPU(97))


# Printing


def test_printing_at_once(capsys: pytest.CaptureFixture[str]) -> None:
    Tensor([[1.0, 2.5]]).print("x")
    Tensor([True]).print()
    ops.print(np.zeros((0, 3), np.int64), "empty")
    assert capsys.readouterr().out.splitlines() == [
        "x = tensor([[1. , 2.5]], dtype=float32, shape=[1, 2])",
        "debug_tensor = tensor([ True], dtype=bool, shape=[1])",
        "empty = tensor([], dtype=int64, shape=[0, 3])",
    ]


def test_a_traced_value_is_printed_when_the_graph_runs(capsys: pytest.CaptureFixture[str]) -> None:
    weight = Weight("w", F32, [4, 4])

    def forward(x: Tensor) -> Tensor:
        x.print("first")
        y = x * 2.0
        y.print("second")
        weight.print("weight")
        y = ops.linear(y, weight)
        y.cast(BF16).print()
        return y

    graph = Graph("g", forward, [ROWS])
    assert [node.op for node in graph.nodes if isinstance(node, Node)].count("print") == 4
    compiled = executor.find_executor().compile(graph, {"w": np.eye(4, dtype=np.float32)})
    assert not capsys.readouterr().out
    for n in (1, 2, 0):
        compiled(Tensor(np.ones((n, 4), np.float32)))
        lines = capsys.readouterr().out
        labels = [line.split(" =")[0] for line in lines.splitlines() if " =" in line]
        assert labels == ["first", "second", "weight", "debug_tensor"]
        assert f"dtype=bfloat16, shape=[{n}, 4]" in lines
    compiled(Tensor(np.ones((1, 4), np.float32)))
    lines = capsys.readouterr().out
    assert lines.startswith("first = tensor([[1., 1., 1., 1.]], dtype=float32, shape=[1, 4])\n")
    assert "debug_tensor = tensor([[2, 2, 2, 2]], dtype=bfloat16, shape=[1, 4])\n" in lines


@pytest.mark.parametrize("dtype", [dtype for dtype in DType if "float8" not in dtype.value])
def test_every_type_is_printed(dtype: DType, capsys: pytest.CaptureFixture[str]) -> None:
    def forward(x: Tensor) -> Tensor:
        x.print("x")
        return x

    run(Graph("g", forward, [TensorType(dtype, [2])]), np.ones(2, dtype.to_numpy()))
    traced = capsys.readouterr().out
    Tensor(np.ones(2, dtype.to_numpy())).print("x")
    assert traced == capsys.readouterr().out


def test_a_subgraph_prints_each_time_it_is_called(capsys: pytest.CaptureFixture[str]) -> None:
    def inner(x: Tensor) -> Tensor:
        y = x + 1.0
        y.print("y")
        return y

    graph = Graph("g", input_types=[ROWS])
    block = graph.add_subgraph("block", inner, [ROWS])
    with graph:
        h = graph.inputs[0]
        for _ in range(3):
            h = ops.call(block, h)[0].tensor
        graph.output(h)
    run(graph, np.zeros((1, 4), np.float32))
    firsts = [line[:14] for line in capsys.readouterr().out.splitlines()]
    assert firsts == ["y = tensor([[1", "y = tensor([[2", "y = tensor([[3"]


def test_a_buffer_is_printed_as_it_is_then(capsys: pytest.CaptureFixture[str]) -> None:
    kind = BufferType(F32, [1, 1, 1, 2])
    step, position = TensorType(F32, [1, 1, 1, 1]), TensorType(DType.int32, [1])

    def forward(cache: Tensor, x: Tensor, at: Tensor) -> Tensor:
        cache.print("before")
        after = ops.cache_write_key(cache, x, at)
        after.print("after")
        return after

    arrays = np.zeros((1, 1, 1, 2), np.float32), np.ones((1, 1, 1, 1), np.float32)
    run(Graph("g", forward, [kind, step, position]), *arrays, np.zeros(1, np.int32))
    assert [line.split(", dtype")[0] for line in capsys.readouterr().out.splitlines()] == [
        "before = tensor([[[[0., 0.]]]]",
        "after = tensor([[[[1., 0.]]]]",
    ]


def test_an_artifact_cannot_print() -> None:
    from maxtool.compiler.cpu_target import cpu_target
    from maxtool.compiler.lowering.module_lowering import ModuleLowering
    from maxtool.compiler.lowering_plan import LoweringPlan

    def forward(x: Tensor) -> Tensor:
        x.print("hidden")
        return x * 2.0

    graph = Graph("g", forward, [ROWS])
    lowering = ModuleLowering(LoweringPlan([graph], cpu_target()))
    with pytest.raises(CompilationFailed, match="g prints 'hidden', and an artifact"):
        lowering.entry(graph)


def test_values_are_asked_for_their_tensor() -> None:
    graph = Graph("g", input_types=[ROWS, BufferType(F32, [2])])
    x, state = graph.inputs
    assert x.tensor is x and state.buffer is state
    with pytest.raises(TypeError, match="is not a buffer"):
        _ = x.buffer
