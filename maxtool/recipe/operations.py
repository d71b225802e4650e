"""The closed table of operations a recipe may use, each with its exact inverse, and chains of them.

Most operations map every array by itself, ``concat`` and ``stack`` join several, ``split`` and
``unstack`` part one. Shapes follow from headers alone, so that a plan needs no data. A chain that
only moves whole rows also works on block-quantized rows, whose bytes stand for the last dimension.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from maxtool.dtype import DType
from maxtool.errors import MisshapenWeight
from maxtool.recipe.row_operations import ROW_OPERATIONS
from maxtool.recipe.step import Array, Operation, Params, Shape, Step, each

# --- joining and parting -------------------------------------------------------------------------
# With ``groups`` the parts are interleaved: the dimension is that many equal runs, and each run
# holds an equal share of every part in turn, as where rows are kept for each head.


def _concat(arrays: Sequence[Array], params: Params) -> list[Array]:
    axis = params["axis"]
    runs = [array.reshape(_grouped(array.shape, params)) for array in arrays]
    joined = np.concatenate(runs, axis=axis + 1)
    return [joined.reshape(_replaced(arrays[0].shape, axis, sum(params["sizes"])))]


def _concat_shapes(shapes: Sequence[Shape], params: Params) -> list[Shape]:
    axis, sizes = params["axis"], params["sizes"]
    _check_parts(shapes[0], params)
    expected = [_replaced(shapes[0], axis, size) for size in sizes]
    if list(shapes) != expected:
        raise MisshapenWeight(f"concat needs the shapes {expected}, found {list(shapes)}")
    return [_replaced(shapes[0], axis, sum(sizes))]


def _split(arrays: Sequence[Array], params: Params) -> list[Array]:
    (array,) = arrays
    axis, sizes = params["axis"], params["sizes"]
    ends = np.cumsum([size // params["groups"] for size in sizes])[:-1]
    runs = np.split(array.reshape(_grouped(array.shape, params)), ends, axis=axis + 1)
    shapes = [_replaced(array.shape, axis, size) for size in sizes]
    return [run.reshape(shape) for run, shape in zip(runs, shapes, strict=True)]


def _split_shapes(shapes: Sequence[Shape], params: Params) -> list[Shape]:
    (shape,) = shapes
    axis, sizes = params["axis"], params["sizes"]
    _check_parts(shape, params)
    if shape[axis] != sum(sizes):
        parts = " + ".join(map(str, sizes))
        raise MisshapenWeight(f"split needs {parts} = {sum(sizes)} along {axis}, found {shape}")
    return [_replaced(shape, axis, size) for size in sizes]


def _stack_shapes(shapes: Sequence[Shape], params: Params) -> list[Shape]:
    axis, count = params["axis"], params["count"]
    if len(set(shapes)) != 1 or len(shapes) != count:
        raise MisshapenWeight(f"stack needs {count} equal shapes, found {list(shapes)}")
    if axis > len(shapes[0]):
        raise MisshapenWeight(f"stack along {axis} does not fit {shapes[0]}")
    return [(*shapes[0][:axis], count, *shapes[0][axis:])]


def _unstack_shapes(shapes: Sequence[Shape], params: Params) -> list[Shape]:
    (shape,) = shapes
    axis, count = params["axis"], params["count"]
    _check_axis(shape, axis)
    if shape[axis] != count:
        raise MisshapenWeight(f"unstack needs {count} along {axis}, found {shape}")
    return [shape[:axis] + shape[axis + 1 :]] * count


def _grouped(shape: Shape, params: Params) -> Shape:
    axis, groups = params["axis"], params["groups"]
    return (*shape[:axis], groups, shape[axis] // groups, *shape[axis + 1 :])


def _replaced(shape: Shape, axis: int, size: int) -> Shape:
    return (*shape[:axis], size, *shape[axis + 1 :])


def _check_axis(shape: Shape, axis: int) -> None:
    if axis >= len(shape):
        raise MisshapenWeight(f"there is no dimension {axis} in {shape}")


def _check_parts(shape: Shape, params: Params) -> None:
    _check_axis(shape, params["axis"])
    sizes, groups = params["sizes"], params["groups"]
    if any(size % groups for size in sizes):
        raise MisshapenWeight(f"parts of {list(sizes)} are not {groups} equal groups")


# --- one array at a time -------------------------------------------------------------------------


def _transpose_shape(shape: Shape, params: Params) -> Shape:
    axes = params["axes"]
    if len(axes) != len(shape):
        raise MisshapenWeight(f"transpose with axes {list(axes)} does not fit {shape}")
    return tuple(shape[axis] for axis in axes)


def _squeezed_shape(shape: Shape, params: Params) -> Shape:
    axis = params["axis"]
    _check_axis(shape, axis)
    if shape[axis] != 1:
        raise MisshapenWeight(f"squeeze needs 1 along {axis}, found {shape}")
    return shape[:axis] + shape[axis + 1 :]


def _unsqueezed_shape(shape: Shape, params: Params) -> Shape:
    axis = params["axis"]
    if axis > len(shape):
        raise MisshapenWeight(f"no dimension {axis} can be put into {shape}")
    return (*shape[:axis], 1, *shape[axis:])


def _ranked_shape(shape: Shape, params: Params) -> Shape:
    """The shape in ``rank`` dimensions: what it has more or fewer are ones before the others."""
    more: int = params["rank"] - len(shape)
    if any(size != 1 for size in shape[: max(-more, 0)]):
        raise MisshapenWeight(f"{shape} has more than {params['rank']} dimensions that are not 1")
    return (1,) * more + shape[max(-more, 0) :]


def _apart(array: Array, params: Params) -> Array:
    axis, count = params["axis"], params["count"]
    return array.reshape(*array.shape[:axis], count, -1, *array.shape[axis + 1 :])


def _apart_shape(shape: Shape, params: Params) -> Shape:
    axis, count = params["axis"], params["count"]
    _check_axis(shape, axis)
    if shape[axis] % count:
        raise MisshapenWeight(f"no {count} equal parts along {axis} in {shape}")
    return (*shape[:axis], count, shape[axis] // count, *shape[axis + 1 :])


def _together(array: Array, params: Params) -> Array:
    return array.reshape(_together_shape(array.shape, params))


def _together_shape(shape: Shape, params: Params) -> Shape:
    axis, count = params["axis"], params["count"]
    if axis + 1 >= len(shape) or shape[axis] != count:
        raise MisshapenWeight(f"merge_axes needs {count} along {axis} and one more, found {shape}")
    return (*shape[:axis], count * shape[axis + 1], *shape[axis + 2 :])


def _reshape_shape(shape: Shape, params: Params) -> Shape:
    stored, wanted = tuple(params["stored"]), tuple(params["shape"])
    if shape != stored or math.prod(stored) != math.prod(wanted):
        raise MisshapenWeight(f"reshape from {stored} to {wanted} does not fit {shape}")
    return wanted


def _regrouped(array: Array, params: Params, *groups: int) -> Array:
    """The rotated rows of each head in groups, exchanged: pairs as halves, or back."""
    heads, rotated = params["heads"], params["rotated"]
    rows = array.reshape(heads, -1, *array.shape[1:])
    turned, rest = np.split(rows, [rotated or rows.shape[1]], axis=1)
    pairs = turned.reshape(heads, *groups, *array.shape[1:]).swapaxes(1, 2).reshape(turned.shape)
    return np.concatenate([pairs, rest], axis=1).reshape(array.shape)


def _rope_shape(shape: Shape, params: Params) -> Shape:
    heads, rotated = params["heads"], params["rotated"]
    fits = shape and shape[0] % (heads if rotated else 2 * heads) == 0
    if not fits or rotated % 2 or rotated > shape[0] // heads:
        said = f" of {rotated} rows" if rotated else ""
        raise MisshapenWeight(f"{heads} heads of rotary pairs{said} do not fit {shape}")
    return shape


def _exchanged(array: Array, params: Params, groups: int) -> Array:
    """The heads along an axis, which are kept by group, group after group in turn."""
    axis, heads = params["axis"], params["heads"]
    shape = array.shape
    runs = array.reshape(*shape[:axis], groups, heads // groups, -1, *shape[axis + 1 :])
    return runs.swapaxes(axis, axis + 1).reshape(shape)


def _heads_shape(shape: Shape, params: Params) -> Shape:
    axis, heads, groups = params["axis"], params["heads"], params["groups"]
    _check_axis(shape, axis)
    if heads % groups or shape[axis] % heads:
        raise MisshapenWeight(f"{groups} groups of {heads} heads do not fit {shape} along {axis}")
    return shape


def _add(array: Array, params: Params) -> Any:  # noqa: ANN401 - an array
    return np.add(array, array.dtype.type(params["value"]))


def _multiply(array: Array, params: Params) -> Any:  # noqa: ANN401 - an array
    """The array times one number after the other, each product rounded."""
    for factor in params["factors"]:
        array = array * array.dtype.type(factor)
    return array


def _divide(array: Array, params: Params) -> Any:  # noqa: ANN401 - an array
    for factor in reversed(params["factors"]):
        array = array / array.dtype.type(factor)
    return array


def _are_ones(params: Params) -> bool:
    return all(factor == 1 for factor in params["factors"])


def _minus_exp(array: Array, _params: Params) -> Any:  # noqa: ANN401 - an array
    """Minus the exponential, rounded once: NumPy's own of float32 is not the nearest number."""
    return -np.exp(array.astype(np.float64)).astype(array.dtype)


def _log_of_minus(array: Array, _params: Params) -> Any:  # noqa: ANN401 - an array
    with np.errstate(invalid="ignore", divide="ignore"):  # the logarithm of no such number
        return np.log(-array.astype(np.float64)).astype(array.dtype)


def _not_last_axis(params: Params, ndim: int) -> bool:
    return bool(params["axis"] < ndim - 1)


def _not_vectors(_params: Params, ndim: int) -> bool:
    return ndim > 1


def _axes_problems(params: Params) -> list[str]:
    axes = params["axes"]
    good = sorted(axes) == list(range(len(axes)))
    return [] if good else [f"axes {list(axes)} are not a permutation"]


def _add_problems(params: Params) -> list[str]:
    return [] if math.isfinite(params["value"]) else ["add needs a finite value"]


# --- the table -----------------------------------------------------------------------------------

PARTS = {"axis": "axis", "sizes": "sizes", "groups": "size"}
STACK = {"axis": "axis", "count": "size"}
HEADS_IN_TURN = {"axis": "axis", "heads": "size", "groups": "size"}
HEADS = {"heads": "size", "rotated": "rows"}
RUNS = {"groups": 1}
WHOLE_HEADS = {"rotated": 0}

OPERATIONS: Mapping[str, Operation] = {
    "concat": Operation(
        PARTS, _concat, _concat_shapes, "split", RUNS, joins=True, whole_rows=_not_last_axis
    ),
    "split": Operation(PARTS, _split, _split_shapes, "concat", RUNS, whole_rows=_not_last_axis),
    "stack": Operation(
        params=STACK,
        apply=lambda arrays, params: [np.stack(list(arrays), axis=params["axis"])],
        shapes=_stack_shapes,
        inverse="unstack",
        joins=True,
        whole_rows=lambda params, ndim: bool(params["axis"] < ndim),
    ),
    "unstack": Operation(
        params=STACK,
        apply=lambda arrays, params: list(np.moveaxis(arrays[0], params["axis"], 0)),
        shapes=_unstack_shapes,
        inverse="stack",
        whole_rows=_not_last_axis,
        recipe=False,
    ),
    "transpose": Operation(
        params={"axes": "axes"},
        apply=each(lambda array, params: array.transpose(params["axes"])),
        shapes=each(_transpose_shape),
        inverse="transpose",
        undoing=lambda params: {"axes": tuple(np.argsort(params["axes"]).tolist())},
        whole_rows=lambda params, ndim: bool(params["axes"][-1] == ndim - 1),
        problems=_axes_problems,
    ),
    "reshape": Operation(
        params={"shape": "sizes", "stored": "sizes"},
        apply=each(lambda array, params: array.reshape(params["shape"])),
        shapes=each(_reshape_shape),
        inverse="reshape",
        undoing=lambda params: {"shape": params["stored"], "stored": params["shape"]},
    ),
    "squeeze": Operation(
        params={"axis": "axis"},
        apply=each(lambda array, params: array.squeeze(params["axis"])),
        shapes=each(_squeezed_shape),
        inverse="unsqueeze",
        whole_rows=_not_last_axis,
    ),
    "unsqueeze": Operation(
        params={"axis": "axis"},
        apply=each(lambda array, params: np.expand_dims(array, params["axis"])),
        shapes=each(_unsqueezed_shape),
        inverse="squeeze",
        whole_rows=lambda params, ndim: bool(params["axis"] < ndim),
        recipe=False,
    ),
    "leading_ones": Operation(
        params={"rank": "size", "stored": "size"},
        apply=each(lambda array, params: array.reshape(_ranked_shape(array.shape, params))),
        shapes=each(_ranked_shape),
        inverse="leading_ones",
        undoing=lambda params: {"rank": params["stored"], "stored": params["rank"]},
        whole_rows=lambda params, _ndim: params["rank"] > 1 and params["stored"] > 1,
    ),
    "split_axis": Operation(
        params=STACK,
        apply=each(_apart),
        shapes=each(_apart_shape),
        inverse="merge_axes",
        whole_rows=_not_last_axis,
    ),
    "merge_axes": Operation(
        params=STACK,
        apply=each(_together),
        shapes=each(_together_shape),
        inverse="split_axis",
        whole_rows=lambda params, ndim: bool(params["axis"] + 2 < ndim),
        recipe=False,
    ),
    "rope_pairs_to_halves": Operation(
        params=HEADS,
        apply=each(lambda array, params: _regrouped(array, params, -1, 2)),
        shapes=each(_rope_shape),
        inverse="rope_halves_to_pairs",
        optional=WHOLE_HEADS,
        whole_rows=_not_vectors,
    ),
    "rope_halves_to_pairs": Operation(
        params=HEADS,
        apply=each(lambda array, params: _regrouped(array, params, 2, -1)),
        shapes=each(_rope_shape),
        inverse="rope_pairs_to_halves",
        optional=WHOLE_HEADS,
        whole_rows=_not_vectors,
        recipe=False,
    ),
    "heads_by_group": Operation(
        params=HEADS_IN_TURN,
        apply=each(lambda x, params: _exchanged(x, params, params["heads"] // params["groups"])),
        shapes=each(_heads_shape),
        inverse="heads_in_turn",
        whole_rows=_not_last_axis,
    ),
    "heads_in_turn": Operation(
        params=HEADS_IN_TURN,
        apply=each(lambda x, params: _exchanged(x, params, params["groups"])),
        shapes=each(_heads_shape),
        inverse="heads_by_group",
        whole_rows=_not_last_axis,
        recipe=False,
    ),
    **ROW_OPERATIONS,
    "add": Operation(
        params={"value": "number"},
        apply=each(_add),
        shapes=lambda shapes, _params: list(shapes),
        inverse="add",
        undoing=lambda params: {"value": -params["value"]},
        computes=True,
        rounds=True,
        problems=_add_problems,
    ),
    "divide": Operation(
        params={"factors": "factors"},
        apply=each(_divide),
        shapes=lambda shapes, _params: list(shapes),
        inverse="multiply",
        computes=True,
        rounds=True,
        does_nothing=_are_ones,
    ),
    "multiply": Operation(
        params={"factors": "factors"},
        apply=each(_multiply),
        shapes=lambda shapes, _params: list(shapes),
        inverse="divide",
        computes=True,
        rounds=True,
        recipe=False,
        does_nothing=_are_ones,
    ),
    "minus_exp": Operation(
        params={},
        apply=each(_minus_exp),
        shapes=lambda shapes, _params: list(shapes),
        inverse="log_of_minus",
        computes=True,
        rounds=True,
    ),
    "log_of_minus": Operation(
        params={},
        apply=each(_log_of_minus),
        shapes=lambda shapes, _params: list(shapes),
        inverse="minus_exp",
        computes=True,
        rounds=True,
        recipe=False,
    ),
}


# --- chains --------------------------------------------------------------------------------------


def run(steps: Sequence[Step], arrays: Sequence[Array]) -> list[Array]:
    """Apply ``steps`` in order; arrays are widened where a step computes."""
    current = list(arrays)
    for step in steps:
        current = OPERATIONS[step.op].apply(_widened(step, current), step.params)
    return current


def may_round(steps: Sequence[Step]) -> bool:
    """Return whether there are values that ``steps`` round."""
    return any(OPERATIONS[step.op].rounds for step in steps)


def is_exact(steps: Sequence[Step], arrays: Sequence[Array]) -> bool:
    """Return whether undoing ``steps`` gives every bit of these arrays back: nothing is rounded."""
    current = list(arrays)
    for step in steps:
        before = _widened(step, current)
        with np.errstate(all="ignore"):
            current = run([step], before)
            back = run(inverted([step]), current) if may_round([step]) else before
        if not all(map(_same_bits, before, back)):
            return False
    return True


def _widened(step: Step, arrays: list[Array]) -> list[Array]:
    with np.errstate(invalid="ignore"):  # a signalling NaN becomes a quiet one
        dtypes = [result_dtype([step], DType.from_numpy(array.dtype)) for array in arrays]
        return [
            array.astype(dtype.to_numpy(), copy=False)
            for array, dtype in zip(arrays, dtypes, strict=True)
        ]


def _same_bits(left: Array, right: Array) -> bool:
    return left.dtype == right.dtype and left.tobytes() == right.tobytes()


def run_shapes(steps: Sequence[Step], shapes: Sequence[Shape]) -> list[Shape]:
    """The shapes ``run`` gives; MisshapenWeight if a step cannot be applied to what it gets."""
    current = list(shapes)
    for step in steps:
        current = OPERATIONS[step.op].shapes(current, step.params)
    return current


def result_dtype(steps: Sequence[Step], dtype: DType) -> DType:
    """The element type ``run`` gives for arrays of ``dtype``."""
    computes = any(OPERATIONS[step.op].computes for step in steps)
    return DType.float32 if computes and dtype is not DType.float64 else dtype


def moves_whole_rows(steps: Sequence[Step], shapes: Sequence[Shape]) -> bool:
    """Return whether all of ``steps`` only move whole rows of tensors of these shapes."""
    current = list(shapes)
    for step in steps:
        operation = OPERATIONS[step.op]
        if not all(operation.whole_rows(step.params, len(shape)) for shape in current):
            return False
        current = operation.shapes(current, step.params)
    return True


def inverted(steps: Sequence[Step]) -> tuple[Step, ...]:
    """The steps that undo ``steps``."""
    rows = [(OPERATIONS[step.op], step.params) for step in reversed(steps)]
    return tuple(Step(row.inverse, row.undoing(params)) for row, params in rows)
