"""Every operation, undone, gives every bit back, for every element type it admits."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from maxtool.dtype import DType
from maxtool.errors import MisshapenWeight
from maxtool.recipe.operations import (
    OPERATIONS,
    inverted,
    is_exact,
    moves_whole_rows,
    result_dtype,
    run,
    run_shapes,
)
from maxtool.recipe.step import Step

DIM = st.integers(1, 5)
SHAPE = st.lists(DIM, min_size=1, max_size=4).map(tuple)
Case = tuple[Step, list[np.ndarray]]


def bits(draw: st.DrawFn, shape: Sequence[int], dtype: DType) -> np.ndarray:
    """Draw any bits at all: NaN payloads, infinities, negative zeros."""
    count = int(np.prod(shape)) * dtype.size_in_bytes
    raw = draw(st.binary(min_size=count, max_size=count))
    if dtype is DType.bool:
        raw = bytes(byte & 1 for byte in raw)
    return np.frombuffer(raw, dtype.to_numpy()).reshape(shape)


def admitted(draw: st.DrawFn, op: str) -> DType:
    wide = (DType.float32, DType.float64)
    return draw(st.sampled_from(wide if OPERATIONS[op].computes else list(DType)))


@st.composite
def parts(draw: st.DrawFn, op: str) -> Case:
    shape, dtype = draw(SHAPE), admitted(draw, op)
    axis = draw(st.integers(0, len(shape) - 1))
    groups = draw(st.integers(1, 3))
    sizes = [groups * size for size in draw(st.lists(DIM, min_size=1, max_size=4))]
    shapes = [(*shape[:axis], size, *shape[axis + 1 :]) for size in sizes]
    given = shapes
    if op == "split":
        given = [(*shape[:axis], sum(sizes), *shape[axis + 1 :])]
    step = Step(op, {"axis": axis, "sizes": tuple(sizes), "groups": groups})
    return step, [bits(draw, each, dtype) for each in given]


@st.composite
def stacks(draw: st.DrawFn, op: str) -> Case:
    shape, dtype, count = draw(SHAPE), admitted(draw, op), draw(DIM)
    axis = draw(st.integers(0, len(shape)))
    given = [shape] * count if op == "stack" else [(*shape[:axis], count, *shape[axis:])]
    return Step(op, {"axis": axis, "count": count}), [bits(draw, each, dtype) for each in given]


@st.composite
def transposes(draw: st.DrawFn, op: str) -> Case:
    shape = draw(SHAPE)
    axes = tuple(draw(st.permutations(range(len(shape)))))
    return Step(op, {"axes": axes}), [bits(draw, shape, admitted(draw, op))]


@st.composite
def reshapes(draw: st.DrawFn, op: str) -> Case:
    shape = draw(SHAPE)
    wanted = draw(st.sampled_from([shape[::-1], (int(np.prod(shape)),), (1, *shape)]))
    return Step(op, {"stored": shape, "shape": wanted}), [bits(draw, shape, admitted(draw, op))]


@st.composite
def squeezes(draw: st.DrawFn, op: str) -> Case:
    shape = draw(SHAPE)
    axis = draw(st.integers(0, len(shape)))
    given = (*shape[:axis], 1, *shape[axis:]) if op == "squeeze" else shape
    return Step(op, {"axis": axis}), [bits(draw, given, admitted(draw, op))]


@st.composite
def ranks(draw: st.DrawFn, op: str) -> Case:
    shape = draw(SHAPE)
    ones = draw(st.integers(0, 2))
    params = {"rank": max(1, len(shape)), "stored": len(shape) + ones}
    return Step(op, params), [bits(draw, (1,) * ones + shape, admitted(draw, op))]


@st.composite
def matrices(draw: st.DrawFn, op: str) -> Case:
    """Matrices with a row for each input, as they are written."""
    rows, columns = draw(DIM), draw(DIM)
    shape = (columns, rows) if op == "outputs_first" else (rows, columns)
    before = draw(st.lists(DIM, max_size=1))
    array = bits(draw, (*before, *shape), admitted(draw, op))
    return Step(op, {"rows": rows, "columns": columns}), [array]


@st.composite
def axes(draw: st.DrawFn, op: str) -> Case:
    shape, count, size = draw(SHAPE), draw(DIM), draw(DIM)
    axis = draw(st.integers(0, len(shape)))
    held = (count * size,) if op == "split_axis" else (count, size)
    array = bits(draw, (*shape[:axis], *held, *shape[axis:]), admitted(draw, op))
    return Step(op, {"axis": axis, "count": count}), [array]


@st.composite
def ropes(draw: st.DrawFn, op: str) -> Case:
    """Heads that are rotated as a whole, or the first rows of each."""
    heads, pairs, rest = draw(DIM), draw(DIM), draw(st.integers(0, 3))
    shape = (heads * (pairs * 2 + rest), *draw(st.lists(DIM, max_size=2)))
    rotated = 2 * pairs if rest or draw(st.booleans()) else 0
    return Step(op, {"heads": heads, "rotated": rotated}), [bits(draw, shape, admitted(draw, op))]


@st.composite
def heads(draw: st.DrawFn, op: str) -> Case:
    groups, shape = draw(DIM), draw(SHAPE)
    axis, count = draw(st.integers(0, len(shape) - 1)), groups * draw(DIM)
    given = (*shape[:axis], shape[axis] * count, *shape[axis + 1 :])
    step = Step(op, {"axis": axis, "heads": count, "groups": groups})
    return step, [bits(draw, given, admitted(draw, op))]


@st.composite
def rows(draw: st.DrawFn, op: str) -> Case:
    """Tables whose first rows are zero, or any bits."""
    count, shape = draw(DIM), draw(SHAPE)
    dtype = admitted(draw, op)
    table = bits(draw, shape, dtype)
    if op == "rows_from":
        first = bits(draw, (count, *shape[1:]), dtype)
        table = np.concatenate([first if draw(st.booleans()) else np.zeros_like(first), table])
    return Step(op, {"count": count}), [table]


@st.composite
def filled(draw: st.DrawFn, op: str) -> Case:
    """Tables whose last rows are zero, or any bits, or are to be put there."""
    shape, dtype, more = draw(SHAPE), admitted(draw, op), draw(st.integers(0, 4))
    table = bits(draw, shape, dtype)
    if op == "first_rows":
        last = bits(draw, (more, *shape[1:]), dtype)
        table = np.concatenate([table, last if draw(st.booleans()) else np.zeros_like(last)])
    return Step(op, {"count": shape[0], "stored": shape[0] + more}), [table]


@st.composite
def chosen(draw: st.DrawFn, op: str) -> Case:
    """Rows of a table whose others are zero, or any bits, or are to be put there."""
    shape, dtype = draw(SHAPE), admitted(draw, op)
    stored = shape[0] + draw(st.integers(0, 4))
    rows = tuple(draw(st.permutations(range(stored)))[: shape[0]])
    table = bits(draw, shape, dtype)
    if op == "chosen_rows":
        others = bits(draw, (stored, *shape[1:]), dtype)
        among = others.copy() if draw(st.booleans()) else np.zeros_like(others)
        among[list(rows)] = table
        table = among
    return Step(op, {"rows": rows, "stored": stored}), [table]


@st.composite
def values(draw: st.DrawFn, op: str) -> Case:
    """Half of the arrays are such that nothing is rounded, half are any bits."""
    dtype, shape = admitted(draw, op), draw(SHAPE)
    value = draw(st.sampled_from([-4.0, -1.0, 0.25, 1.0, 2.0]))
    array = bits(draw, shape, dtype)
    if draw(st.booleans()):
        whole = draw(st.lists(st.integers(-4096, 4096), min_size=array.size, max_size=array.size))
        array = (np.array(whole, dtype.to_numpy()) / 256).reshape(shape)
    return Step(op, {"value": value}), [array]


@st.composite
def exponentials(draw: st.DrawFn, op: str) -> Case:
    """Half of the arrays are of numbers that come back, half are any bits."""
    dtype, shape = admitted(draw, op), draw(SHAPE)
    array = bits(draw, shape, dtype)
    if draw(st.booleans()):
        exact = np.array([0.0] if op == "minus_exp" else [-1.0], dtype.to_numpy())
        array = np.broadcast_to(exact, shape).copy()
    return Step(op, {}), [array]


@st.composite
def factors(draw: st.DrawFn, op: str) -> Case:
    """Arrays times powers of two, of which nothing is rounded, or times any numbers."""
    array, value = bits(draw, draw(SHAPE), admitted(draw, op)), st.floats(0.1, 4.0)
    by = draw(st.lists(st.sampled_from([0.5, 1.0, 2.0]) | value, min_size=1, max_size=2))
    return Step(op, {"factors": tuple(by)}), [array]


STRATEGIES: dict[str, Callable[[str], st.SearchStrategy[Case]]] = {
    "concat": parts,
    "split": parts,
    "stack": stacks,
    "unstack": stacks,
    "transpose": transposes,
    "reshape": reshapes,
    "squeeze": squeezes,
    "unsqueeze": squeezes,
    "leading_ones": ranks,
    "split_axis": axes,
    "merge_axes": axes,
    "divide": factors,
    "multiply": factors,
    "rope_pairs_to_halves": ropes,
    "rope_halves_to_pairs": ropes,
    "heads_by_group": heads,
    "heads_in_turn": heads,
    "zero_rows_before": rows,
    "rows_from": rows,
    "outputs_first": matrices,
    "inputs_first": matrices,
    "first_rows": filled,
    "zero_rows_behind": filled,
    "chosen_rows": chosen,
    "rows_among_zeros": chosen,
    "add": values,
    "minus_exp": exponentials,
    "log_of_minus": exponentials,
}


def same(left: Sequence[np.ndarray], right: Sequence[np.ndarray]) -> bool:
    return [(a.dtype, a.shape, a.tobytes()) for a in left] == [
        (a.dtype, a.shape, a.tobytes()) for a in right
    ]


def test_every_operation_is_tested() -> None:
    assert set(STRATEGIES) == set(OPERATIONS)


@pytest.mark.parametrize("op", sorted(OPERATIONS))
@given(data=st.data())
def test_undone_gives_every_bit_back(op: str, data: st.DataObject) -> None:
    step, arrays = data.draw(STRATEGIES[op](op))
    with np.errstate(all="ignore"):
        assume(is_exact([step], arrays))
        there = run([step], arrays)
        assert same(run(inverted([step]), there), arrays)


@pytest.mark.parametrize("op", sorted(OPERATIONS))
@given(data=st.data())
def test_shapes_and_types_are_known_beforehand(op: str, data: st.DataObject) -> None:
    step, arrays = data.draw(STRATEGIES[op](op))
    with np.errstate(all="ignore"):
        there = run([step], arrays)
    assert [array.shape for array in there] == run_shapes([step], [a.shape for a in arrays])
    dtype = result_dtype([step], DType.from_numpy(arrays[0].dtype))
    assert {DType.from_numpy(array.dtype) for array in there} == {dtype}


@pytest.mark.parametrize(
    "op",
    [
        *("concat", "split", "stack", "unstack", "squeeze", "unsqueeze", "transpose"),
        *("split_axis", "merge_axes", "leading_ones"),
        *("rope_pairs_to_halves", "heads_by_group"),
    ],
)
@given(data=st.data())
def test_whole_rows_stay_whole(op: str, data: st.DataObject) -> None:
    """Move whole rows where an operation claims to: each row of the result was one before."""
    step, arrays = data.draw(STRATEGIES[op](op))
    assume(moves_whole_rows([step], [array.shape for array in arrays]))
    rows = {row.tobytes() for array in arrays for row in array.reshape(-1, array.shape[-1])}
    for array in run([step], arrays):
        assert {row.tobytes() for row in array.reshape(-1, array.shape[-1])} <= rows


def test_rounding_is_told() -> None:
    step = Step("add", {"value": 1.0})
    assert is_exact([step], [np.array([0.5], np.float32)])
    assert not is_exact([step], [np.array([1e-9], np.float32)])
    assert not is_exact([step], [np.array([-0.0], np.float32)])


def test_exponentials_are_the_nearest_numbers() -> None:
    logarithms = np.linspace(-3, 3, 1001, dtype=np.float32)
    (rates,) = run([Step("minus_exp", {})], [logarithms])
    nearest = [-math.exp(float(each)) for each in logarithms]
    np.testing.assert_array_equal(rates, np.array(nearest, np.float32))
    (back,) = run([Step("log_of_minus", {})], [rates])
    np.testing.assert_allclose(back, logarithms, rtol=1e-6, atol=6e-8)


def test_narrow_types_are_widened_before_values_change() -> None:
    half = np.array([2.0**-12], np.float16)
    (result,) = run([Step("add", {"value": 1.0})], [half])
    assert result.dtype == np.float32
    assert result[0] == 1 + 2.0**-12
    assert result_dtype([Step("add", {"value": 1.0})], DType.bfloat16) is DType.float32


def test_rope_directions_differ_and_match_transformers() -> None:
    """The permutation of transformers' convert_llama_weights_to_hf.py, written out."""
    heads, dim, width = 3, 8, 5
    weight = np.arange(heads * dim * width).reshape(heads * dim, width)
    halves = weight.reshape(heads, dim // 2, 2, width).transpose(0, 2, 1, 3).reshape(-1, width)
    step = Step("rope_pairs_to_halves", {"heads": heads, "rotated": 0})
    assert same(run([step], [weight]), [halves])
    assert not same(run(inverted([step]), [weight]), [halves])


def test_only_the_first_rows_of_a_head_are_pairs() -> None:
    rows = np.arange(2 * 5)
    step = Step("rope_pairs_to_halves", {"heads": 2, "rotated": 4})
    assert run([step], [rows])[0].tolist() == [0, 2, 1, 3, 4, 5, 7, 6, 8, 9]


def test_leading_ones_may_be_missing() -> None:
    step = Step("leading_ones", {"rank": 2, "stored": 4})
    assert [run_shapes([step], [shape]) for shape in ((1, 1, 3, 1), (3, 1))] == [[(3, 1)]] * 2
    assert run_shapes(inverted([step]), [(3, 1)]) == [(1, 1, 3, 1)]


def test_matrices_that_are_kept_either_way() -> None:
    step = Step("outputs_first", {"rows": 2, "columns": 3})
    outputs = np.arange(6).reshape(1, 2, 3)
    for stored in (outputs, outputs.swapaxes(1, 2)):
        assert run([step], [stored])[0].tolist() == outputs.tolist()
    assert run(inverted([step]), [outputs])[0].shape == (1, 3, 2)
    square = Step("outputs_first", {"rows": 2, "columns": 2})
    assert run([square], [np.arange(4).reshape(2, 2)])[0].tolist() == [[0, 2], [1, 3]]


def test_heads_in_turn_of_their_groups() -> None:
    """Heads of two groups, of two rows each, as ggml repeats keys for them: one of each in turn."""
    in_turn = np.array([0, 1, 6, 7, 2, 3, 8, 9, 4, 5, 10, 11])
    step = Step("heads_by_group", {"axis": 0, "heads": 6, "groups": 2})
    assert run([step], [in_turn])[0].tolist() == list(range(12))
    assert run(inverted([step]), [np.arange(12)])[0].tolist() == in_turn.tolist()


@pytest.mark.parametrize(
    ("step", "shapes"),
    [
        (Step("split", {"axis": 0, "sizes": (2, 3), "groups": 1}), [(6, 2)]),
        (Step("split", {"axis": 2, "sizes": (2, 3), "groups": 1}), [(5, 2)]),
        (Step("concat", {"axis": 0, "sizes": (2, 3), "groups": 1}), [(2, 4), (3, 5)]),
        (Step("split", {"axis": 0, "sizes": (2, 3), "groups": 2}), [(5, 2)]),
        (Step("stack", {"axis": 0, "count": 2}), [(2,), (3,)]),
        (Step("stack", {"axis": 3, "count": 1}), [(2,)]),
        (Step("transpose", {"axes": (1, 0)}), [(2, 3, 4)]),
        (Step("squeeze", {"axis": 1}), [(3, 2)]),
        (Step("squeeze", {"axis": 2}), [(3, 1)]),
        (Step("unsqueeze", {"axis": 3}), [(3, 2)]),
        (Step("leading_ones", {"rank": 2, "stored": 3}), [(2, 3, 4)]),
        (Step("split_axis", {"axis": 0, "count": 2}), [(3, 4)]),
        (Step("split_axis", {"axis": 2, "count": 2}), [(4, 4)]),
        (Step("merge_axes", {"axis": 1, "count": 4}), [(3, 4)]),
        (Step("merge_axes", {"axis": 0, "count": 4}), [(3, 4)]),
        (Step("reshape", {"stored": (6,), "shape": (2, 3)}), [(7,)]),
        (Step("reshape", {"stored": (6,), "shape": (2, 2)}), [(6,)]),
        (Step("rope_pairs_to_halves", {"heads": 4, "rotated": 0}), [(12, 2)]),
        (Step("rope_pairs_to_halves", {"heads": 4, "rotated": 0}), [()]),
        (Step("rope_pairs_to_halves", {"heads": 4, "rotated": 4}), [(12, 2)]),
        (Step("rope_pairs_to_halves", {"heads": 2, "rotated": 3}), [(12, 2)]),
        (Step("heads_by_group", {"axis": 0, "heads": 6, "groups": 4}), [(12, 2)]),
        (Step("heads_by_group", {"axis": 1, "heads": 6, "groups": 3}), [(12, 2)]),
        (Step("heads_by_group", {"axis": 1, "heads": 6, "groups": 3}), [(12,)]),
        (Step("outputs_first", {"rows": 2, "columns": 3}), [(4, 2, 2)]),
        (Step("zero_rows_before", {"count": 2}), [()]),
        (Step("rows_from", {"count": 2}), [(1, 3)]),
        (Step("first_rows", {"count": 2, "stored": 3}), [(2, 3)]),
        (Step("zero_rows_behind", {"count": 2, "stored": 3}), [()]),
        (Step("zero_rows_behind", {"count": 3, "stored": 2}), [(3, 3)]),
        (Step("chosen_rows", {"rows": (1, 3), "stored": 3}), [(3, 3)]),
        (Step("chosen_rows", {"rows": (1,), "stored": 3}), [(4, 3)]),
        (Step("chosen_rows", {"rows": (1,), "stored": 3}), [()]),
        (Step("rows_among_zeros", {"rows": (1, 2), "stored": 3}), [(3, 3)]),
        (Step("rows_among_zeros", {"rows": (1, 3), "stored": 3}), [(2, 3)]),
    ],
)
def test_shapes_that_do_not_fit(step: Step, shapes: list[tuple[int, ...]]) -> None:
    with pytest.raises(MisshapenWeight):
        run_shapes([step], shapes)


def test_groups_are_interleaved() -> None:
    """GPT-NeoX keeps the rows of query, key and value by head; torch's view takes them apart."""
    heads, dim = 3, 2
    fused = np.arange(heads * 3 * dim * 5.0).reshape(-1, 5)
    sizes = (heads * dim,) * 3
    query, key, value = run([Step("split", {"axis": 0, "sizes": sizes, "groups": heads})], [fused])
    by_head = fused.reshape(heads, 3 * dim, 5)
    np.testing.assert_array_equal(query, by_head[:, :dim].reshape(-1, 5))
    np.testing.assert_array_equal(key, by_head[:, dim : 2 * dim].reshape(-1, 5))
    np.testing.assert_array_equal(value, by_head[:, 2 * dim :].reshape(-1, 5))
