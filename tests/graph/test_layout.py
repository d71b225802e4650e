"""Shapes, joining, cutting, repeating and sequences, beside NumPy, in both modes."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from maxtool.dtype import DType
from maxtool.graph import Dim, Graph, Tensor, TensorType, executor, ops
from maxtool.nn.eager import Module
from tests.effort import thinned

Array = np.ndarray[Any, Any]
Case = tuple[Callable[[Any], Any], Callable[[Array], Any]]
F32, I64 = DType.float32, DType.int64

# Ours, of [n, 3], and NumPy's.
CASES: dict[str, Case] = {
    "flatten": (ops.flatten, np.ravel),
    "reshape": (lambda x: x.reshape([-1, 1, 3]), lambda x: x.reshape(-1, 1, 3)),
    "reshape to an expression": (lambda x: x.reshape([3 * Dim("n")]), np.ravel),
    "squeeze": (lambda x: ops.squeeze(ops.unsqueeze(x, -1), 2), lambda x: x),
    "unsqueeze": (lambda x: x.unsqueeze(1), lambda x: x[:, None]),
    "permute": (lambda x: x.permute([1, 0]), lambda x: x.T),
    "transpose": (lambda x: x.transpose(0, -1), lambda x: x.T),
    "broadcast_to": (
        lambda x: x.broadcast_to([2, "n", 3]),
        lambda x: np.broadcast_to(x, (2, *x.shape)),
    ),
    "broadcast ones": (
        lambda x: ops.broadcast_to(x[:, :1], ["n", 3]),
        lambda x: np.broadcast_to(x[:, :1], x.shape),
    ),
    "concat": (
        lambda x: ops.concat([x, x[::-1], x]),
        lambda x: np.concatenate([x, x[::-1], x]),
    ),
    "concat columns": (
        lambda x: ops.concat([x, x[:, 1:]], axis=-1),
        lambda x: np.concatenate([x, x[:, 1:]], -1),
    ),
    "stack": (lambda x: ops.stack([x, x[::-1]], axis=1), lambda x: np.stack([x, x[::-1]], 1)),
    "stack last": (lambda x: ops.stack([x, x], axis=-1), lambda x: np.stack([x, x], -1)),
    "split": (lambda x: x.split([1, 2], axis=1)[1], lambda x: x[:, 1:]),
    "split evenly": (lambda x: x.split(2, axis=1)[-1], lambda x: x[:, 2:]),
    "split a name": (
        lambda x: ops.split(ops.concat([x, x]), ["n", Dim("n")])[1],
        lambda x: x,
    ),
    "chunk": (lambda x: ops.chunk(ops.concat([x, x]), 2)[1], lambda x: x),
    "tile": (lambda x: ops.tile(x, [2, 3]), lambda x: np.tile(x, (2, 3))),
    "repeat": (lambda x: ops.repeat_interleave(x, 2, axis=0), lambda x: np.repeat(x, 2, 0)),
    "repeat all": (lambda x: ops.repeat_interleave(x, 3), lambda x: np.repeat(x, 3)),
    "repeat each": (
        lambda x: ops.repeat_interleave(x, [2, 0, 1], axis=1, out_dim=3),
        lambda x: np.repeat(x, [2, 0, 1], 1),
    ),
    "pad": (
        lambda x: ops.pad(x, [1, 2, 0, 3], value=7),
        lambda x: np.pad(x, ((1, 2), (0, 3)), constant_values=7),
    ),
    "outer": (lambda x: ops.outer(x[:, 0], x[:, 1]), lambda x: np.outer(x[:, 0], x[:, 1])),
    "band": (lambda x: ops.band_part(x, 1, 0), lambda x: np.tril(np.triu(x, -1))),
    "band upper": (lambda x: ops.band_part(x, num_lower=0), np.triu),
    "band excluded": (lambda x: ops.band_part(x, None, 0, exclude=True), lambda x: np.triu(x, 1)),
    "range": (lambda x: ops.range(0, x.shape[0]), lambda x: np.arange(len(x))),
    "range of steps": (
        lambda x: ops.arange(1, x.shape[0] + 4, 3, dtype=F32),
        lambda x: np.arange(1, len(x) + 4, 3, dtype=np.float32),
    ),
    "shape": (
        lambda x: ops.shape_to_tensor([x.shape[0] * 2 - 1, 5]),
        lambda x: np.array([2 * len(x) - 1, 5]),
    ),
    "rebind": (
        lambda x: ops.rebind(ops.concat([x, x]), ["twice", 3])[1:],
        lambda x: np.concatenate([x, x])[1:],
    ),
}


@pytest.fixture(scope="module")
def traced() -> Callable[[Array], list[Tensor]]:
    graph = Graph(
        "g", lambda x: [ours(x) for ours, _ in CASES.values()], [TensorType(F32, ["n", 3])]
    )
    run: Any = executor.find_executor().compile(graph, {})
    return lambda x: run(Tensor(x))


@pytest.mark.parametrize("size", [1, 2, 5, 64])
def test_of_a_dimension_with_a_name(traced: Callable[[Array], list[Tensor]], size: int) -> None:
    x = np.arange(3 * size, dtype=np.float32).reshape(size, 3)
    for (name, (_, numpy)), got in zip(CASES.items(), traced(x), strict=True):
        np.testing.assert_array_equal(got.to_numpy(), numpy(x), err_msg=name)


def test_of_nothing() -> None:
    x = np.zeros((0, 3), np.float32)
    kind = TensorType(F32, ["n", 3])
    kept = {name: case for name, case in CASES.items() if name not in ("rebind", "shape")}
    graph = Graph("g", lambda x: [ours(x) for ours, _ in kept.values()], [kind])
    run: Any = executor.find_executor().compile(graph, {})
    for (name, (_, numpy)), got in zip(kept.items(), run(Tensor(x)), strict=True):
        np.testing.assert_array_equal(got.to_numpy(), numpy(x), err_msg=name)


NAMED = {"broadcast_to", "broadcast ones", "split a name", "reshape to an expression"}
# Of nothing there is no element less.
EAGER = [
    (name, size)
    for name in CASES
    for size in ([4, 1] if name in ("rebind", "shape") else [4, 1, 0])
    if name not in NAMED
]


@pytest.mark.parametrize(("name", "size"), EAGER)
def test_eagerly(name: str, size: int) -> None:
    ours, numpy = CASES[name]
    x = np.arange(3 * size, dtype=np.float32).reshape(size, 3)
    result = ours(Tensor(x)).to_numpy()
    assert result.shape == numpy(x).shape
    np.testing.assert_array_equal(result, numpy(x))


MOVES: dict[str, Case] = {
    name: CASES[name] for name in ("concat", "transpose", "tile", "chunk", "repeat each")
}
QUICK = (DType.bool, DType.int64, DType.bfloat16, DType.float8_e5m2)


@pytest.mark.parametrize("dtype", thinned(DType, *QUICK))
def test_every_type(dtype: DType) -> None:
    """Elements are moved and not computed with, those of 8 bits too."""
    x = (np.arange(12) % 7).reshape(4, 3).astype(dtype.to_numpy())
    graph = Graph(
        "g", lambda x: [ours(x) for ours, _ in MOVES.values()], [TensorType(dtype, ["n", 3])]
    )
    run: Any = executor.find_executor().compile(graph, {})
    for (name, (ours, numpy)), got in zip(MOVES.items(), run(Tensor(x)), strict=True):
        assert got.to_numpy().tobytes() == numpy(x).tobytes(), name
        if dtype is DType.float8_e5m2:
            assert ours(Tensor(x)).to_numpy().tobytes() == numpy(x).tobytes(), name


ORDERS = ((0, 2, 1), (2, 1, 0), (1, 2, 0), (2, 0, 1), (1, 0, 2))
SIZES = (
    (1, 3, 17),
    (17, 1, 511),
    (511, 3, 16),
    (3, 511, 8),
    (8, 16, 257),
    (3, 0, 17),
    (511, 33, 1),
)


@pytest.mark.parametrize("dtype", thinned(DType, *QUICK))
def test_orders_of_dimensions(dtype: DType) -> None:
    """Whole tiles and what is left of them, of sizes that are known only when it runs."""
    kind = TensorType(dtype, ["a", "b", "c"])
    graph = Graph("g", lambda x: [x.permute(order) for order in ORDERS], [kind])
    run: Any = executor.find_executor().compile(graph, {})
    for sizes in SIZES:
        x = np.random.default_rng(0).integers(0, 100, sizes).astype(dtype.to_numpy())
        for order, got in zip(ORDERS, run(Tensor(x)), strict=True):
            assert got.to_numpy().tobytes() == x.transpose(order).tobytes(), (sizes, order)


ALL = slice(None)
# What is taken of four dimensions, and what is put around each.
TAKEN: tuple[tuple[slice, ...], ...] = (
    (ALL, ALL, slice(1, 3), ALL),
    (ALL, ALL, slice(None, None, -1), ALL),
    (ALL, slice(0, 1), ALL, slice(0, 1)),
    (slice(0, 1), ALL, slice(2, 0, -1), ALL),
    (ALL, ALL, ALL, slice(0, 1)),
    (slice(0, 1), ALL, ALL, ALL),
)
AROUND = (
    (0, 0, 0, 0, 1, 2, 0, 0),
    (0, 0, 2, 1, 0, 0, 0, 0),
    (1, 0, 0, 0, 0, 0, 0, 1),
    (0, 0, 0, 3, 0, 0, 1, 0),
)


@pytest.mark.parametrize("width", ["c", 4])
def test_cuts_and_frames_of_some_dimensions(width: int | str) -> None:
    """Dimensions that are taken whole are walked through as part of others."""
    kind = TensorType(F32, ["a", "b", 3, width])

    def call(x: Tensor) -> list[Tensor]:
        return [
            *(x[taken] for taken in TAKEN),
            *(ops.pad(x, list(each), value=7) for each in AROUND),
        ]

    run: Any = executor.find_executor().compile(Graph("g", call, [kind]), {})
    for outer, rows in ((1, 1), (2, 5), (3, 16)):
        x = np.random.default_rng(0).random((outer, rows, 3, 4), "f4")
        wanted = [x[taken] for taken in TAKEN]
        frames = (np.reshape(each, (4, 2)) for each in AROUND)
        wanted += [np.pad(x, frame, constant_values=7) for frame in frames]
        for got, expected in zip(run(Tensor(x)), wanted, strict=True):
            np.testing.assert_array_equal(got.to_numpy(), expected)


def test_a_frame_around_nothing() -> None:
    (got,) = executor.find_executor().compile(
        Graph("g", lambda x: ops.pad(x, []), [TensorType(F32, [])]), {}
    )(Tensor(np.float32(3)))
    assert got.item() == 3


@pytest.mark.parametrize("dtype", [F32, DType.bfloat16, I64, DType.uint8, DType.bool])
def test_padding_with_a_number_of_the_type(dtype: DType) -> None:
    x = np.ones((2, 1), dtype.to_numpy())
    got = ops.pad(Tensor(x), [0, 1, 1, 0], value=True if dtype is DType.bool else 3)
    wanted = np.full((3, 2), True if dtype is DType.bool else 3).astype(x.dtype)
    wanted[:2, 1:] = 1
    assert got.to_numpy().tobytes() == wanted.tobytes()


shapes = st.lists(st.integers(0, 4), min_size=1, max_size=4)


@given(shapes, st.data())
def test_permutations(shape: list[int], data: st.DataObject) -> None:
    x = np.arange(np.prod(shape), dtype=np.int64).reshape(shape)
    dims = data.draw(st.permutations(range(len(shape))))
    np.testing.assert_array_equal(ops.permute(Tensor(x), dims).to_numpy(), x.transpose(dims))


@given(shapes, st.data())
def test_joined_dimensions(shape: list[int], data: st.DataObject) -> None:
    x = np.arange(np.prod(shape), dtype=np.int64).reshape(shape)
    first = data.draw(st.integers(0, len(shape) - 1))
    last = data.draw(st.integers(first, len(shape) - 1))
    wanted = [*shape[:first], int(np.prod(shape[first : last + 1])), *shape[last + 1 :]]
    assert ops.flatten(Tensor(x), first, last - len(shape)).shape == wanted


@given(shapes, shapes)
def test_broadcasting_to_a_shape(one: list[int], two: list[int]) -> None:
    x = np.arange(np.prod(one), dtype=np.int64).reshape(one)
    try:
        wanted = np.broadcast_to(x, two)
    except ValueError:
        with pytest.raises(ValueError, match=r"broadcast_to\(int64.*does not broadcast|do not"):
            ops.broadcast_to(Tensor(x), two)
        return
    np.testing.assert_array_equal(ops.broadcast_to(Tensor(x), two).to_numpy(), wanted)


@pytest.mark.parametrize(
    ("numbers", "options"),
    [
        ((0, 5), {}),
        ((5, 0, -2), {}),
        ((0, 1, 0.25), {}),
        ((0, 3), {"dtype": DType.bfloat16}),
        ((2, 2), {}),
    ],
)
def test_sequences(numbers: tuple[float, ...], options: dict[str, DType]) -> None:
    result = ops.range(*numbers, **options)  # type: ignore[arg-type]
    wanted = np.arange(*numbers)
    assert result.dtype is options.get("dtype", I64 if wanted.dtype.kind == "i" else F32)
    np.testing.assert_array_equal(result.to_numpy().astype(float), wanted)


def test_a_sequence_from_what_a_graph_computes() -> None:
    kinds = [TensorType(I64, ["n"]), TensorType(I64, [])]
    graph = Graph("g", lambda x, at: [ops.range(at, at + x.shape[0], 2, out_dim="n")], kinds)
    (got,) = executor.find_executor().compile(graph, {})(
        Tensor(np.zeros(3, int)), Tensor(np.array(5))
    )
    np.testing.assert_array_equal(got.to_numpy(), [5, 7, 9])


def test_a_claim_that_does_not_hold() -> None:
    graph = Graph(
        "g",
        lambda x, y: [ops.rebind(x, ["m", 3]) + y],
        [TensorType(F32, ["n", 3]), TensorType(F32, ["m", 3])],
    )
    run = executor.find_executor().compile(graph, {})
    left, right = (Tensor(np.ones((size, 3), np.float32)) for size in (2, 4))
    np.testing.assert_array_equal(run(right, right)[0].to_numpy(), 2 * np.ones((4, 3)))
    with pytest.raises(ValueError, match=r"g: .*rebind"):
        run(left, right)
    assert ops.rebind(left, ["k", 3]) is left
    assert ops.rebind(left, ["k", Dim("k") + 1]).shape == [2, 3]
    with pytest.raises(ValueError, match=r"rebind\(float32\[2, 3\]\): .*\[k, k\]: a square"):
        ops.rebind(left, ["k", "k"], message="a square")


def test_the_memory_of_what_has_a_claim_is_kept() -> None:
    """The planner of memory does not see that the check looks at it, and must not need to."""

    def call(x: Tensor) -> list[Tensor]:
        kept, other = ops.rebind(ops.exp(x) * 2.0, ["n", 3]), x
        for _ in range(4):
            other = ops.softmax(other * 3.0)
        return [kept + other, kept]

    run = executor.find_executor().compile(Graph("g", call, [TensorType(F32, ["n", 3])]), {})
    x = np.random.default_rng(0).normal(size=(8, 3)).astype(np.float32)
    np.testing.assert_allclose(run(Tensor(x))[1].to_numpy(), 2 * np.exp(x), rtol=1e-6)


class Cut(Module[[Tensor], Tensor]):
    def forward(self, x: Tensor) -> Tensor:
        return ops.split(x, [Dim("n") - 2, 2])[0]


def test_pieces_that_would_be_negative_are_refused() -> None:
    compiled = Cut().compile(TensorType(F32, ["n"]))
    np.testing.assert_array_equal(compiled(np.arange(3, dtype=np.float32)).to_numpy(), [0])
    with pytest.raises(ValueError, match="expected 'n' to be at least 2, got 1"):
        compiled(np.zeros(1, np.float32))


class Counting(Module[[Tensor], Tensor]):
    def forward(self, x: Tensor) -> Tensor:
        return ops.range(5, x.shape[0])


def test_a_size_that_would_be_negative_is_refused() -> None:
    compiled = Counting().compile(TensorType(F32, ["n"]))
    np.testing.assert_array_equal(compiled(np.zeros(7, np.float32)).to_numpy(), [5, 6])
    assert compiled(np.zeros(5, np.float32)).shape == [0]
    with pytest.raises(ValueError, match="expected 'n' to be at least 5, got 4"):
        compiled(np.zeros(4, np.float32))


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda x: x.reshape([-1, -1]), "reshape(float32[n, 3]) to ['-1', '-1']: there is no one"),
        (lambda x: x.reshape([-1, 2]), "is not a multiple of 2|3 * n elements are not a multiple"),
        (lambda x: x.reshape(["m", 3]), "reshape(float32[n, 3]): [n, 3] and [m, 3] have different"),
        (lambda x: ops.flatten(x, 1, 0), "flatten(float32[n, 3]): dimension 1 comes after 0"),
        (lambda x: ops.flatten(x, 0, 5), "flatten(float32[n, 3]): there is no dimension 5"),
        (lambda x: ops.squeeze(x, 0), "squeeze(float32[n, 3]): dimension 0 is not 1"),
        (lambda x: ops.unsqueeze(x, 3), "unsqueeze(float32[n, 3]): there is no dimension 3"),
        (lambda x: ops.broadcast_to(x, [2, 3]), "broadcast_to(float32[n, 3]): dimensions n and 2"),
        (lambda x: ops.broadcast_to(x, [3]), "broadcast_to(float32[n, 3]): [n, 3] does not"),
        (lambda x: ops.broadcast_to(x, ["m", "n", 3]), "has a dimension 'm', which is none"),
        (lambda x: ops.concat([x, x[:, 1:]]), "concat(float32[n, 3], float32[n, 2]): only"),
        (lambda _: ops.concat([]), "concat: there is nothing"),
        (lambda x: ops.concat([x], axis=2), "concat(float32[n, 3]): there is no dimension 2"),
        (lambda x: ops.split(x, [1, 1], 1), "split(float32[n, 3]): sizes [1, 1] together"),
        (lambda x: ops.split(x, 2), "split(float32[n, 3]): cannot cut n into pieces of 2"),
        (lambda x: ops.chunk(x, 2), "chunk(float32[n, 3]): no 2 equal pieces of n"),
        (lambda x: ops.tile(x, [2]), "tile(float32[n, 3]): needs 2 numbers, not 1"),
        (lambda x: ops.repeat_interleave(x, -1), "repeat_interleave(float32[3 * n]): -1 times"),
        (lambda x: ops.repeat_interleave(x, [1], 1), "needs 3 numbers"),
        (lambda x: ops.repeat_interleave(x, [1, 1, 2], 1, 3), "4 elements, not 3"),
        (lambda x: ops.pad(x, [1, 2]), "pad(float32[n, 3], float32[]): needs two numbers"),
        (lambda x: ops.pad(x, [1, -2, 0, 0]), "padding is not negative"),
        (lambda x: ops.pad(x, [0] * 4, mode="reflect"), "the mode constant only, not 'reflect'"),
        (lambda x: ops.outer(x, x), "outer(float32[n, 3], float32[n, 3]): needs two vectors"),
        (lambda x: ops.band_part(x, -1), "band_part(float32[n, 3])"),
        (lambda x: ops.range(0, x[0, 0]), "range: out_dim says how many"),
        (lambda _: ops.range(0, 4, 0), "range: the step is not 0"),
        (lambda x: ops.range(0, x.shape[0], -1), "range: a step of -1"),
        (lambda x: ops.range(0.5, x.shape[0]), "range: start is a whole number"),
        (lambda x: ops.rebind(x, [2]), "rebind(float32[n, 3]): [2] has 1 dimensions"),
        (lambda x: ops.rebind(x, ["n", 4]), "rebind(float32[n, 3]): dimension 3 is never 4"),
    ],
)
def test_operands_that_do_not_fit(call: Callable[[Tensor], Any], message: str) -> None:
    pattern = "|".join(map(re.escape, message.split("|")))
    with pytest.raises(ValueError, match=pattern):
        Graph("g", lambda x: [call(x)], [TensorType(F32, ["n", 3])])


def test_a_name_outside_of_a_graph() -> None:
    with pytest.raises(ValueError, match="a size that has only a name"):
        ops.broadcast_to(Tensor([1.0]), ["n"])


def test_an_expression_as_the_size_of_an_input() -> None:
    kinds = [TensorType(F32, ["n"]), TensorType(F32, [Dim("n") + 1])]
    graph = Graph("g", lambda x, y: [ops.concat([x, y])], kinds)
    assert graph.outputs[0].shape == [2 * Dim("n") + 1]
    x, y = np.zeros(2, np.float32), np.ones(3, np.float32)
    (got,) = executor.find_executor().compile(graph, {})(Tensor(x), Tensor(y))
    np.testing.assert_array_equal(got.to_numpy(), [0, 0, 1, 1, 1])
    with pytest.raises(ValueError, match="has a dimension 'm', which is none"):
        Graph("g", lambda x: [x], [TensorType(F32, [Dim("m") * 2])])


@pytest.mark.parametrize(
    "call",
    [
        lambda x: ops.permute(x, [1, 0.9]),
        lambda x: ops.transpose(x, 0.9, 1),
        lambda x: ops.softmax(x, 0.9),
        lambda x: ops.top_k(x, 1, 0.9),
        lambda x: ops.top_k(x, 1.9),
    ],
)
def test_axes_are_integers(call: Callable[[Tensor], object]) -> None:
    with pytest.raises(TypeError, match="float"):
        call(Tensor(np.zeros((2, 3), np.float32)))
