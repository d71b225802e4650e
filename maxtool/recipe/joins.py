"""The operations that join several arrays or part one, on arrays and on shapes.

With ``groups``, the parts of ``concat`` and ``split`` are interleaved: the dimension is that many
equal runs, and each run holds an equal share of every part in turn. So query, key and value rows
lie where they are kept for each head.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from maxtool.errors import MisshapenWeight
from maxtool.recipe.step import Array, Params, Shape


def concat(arrays: Sequence[Array], params: Params) -> list[Array]:
    """Join arrays along ``axis``."""
    axis, groups = params["axis"], params["groups"]
    runs = [array.reshape(_grouped(array.shape, axis, groups)) for array in arrays]
    joined = np.concatenate(runs, axis=axis + 1)
    return [joined.reshape(_replaced(arrays[0].shape, axis, sum(params["sizes"])))]


def concat_shapes(shapes: Sequence[Shape], params: Params) -> list[Shape]:
    """The shape that :func:`concat` gives."""
    axis, sizes = params["axis"], params["sizes"]
    _need_axis(shapes[0], axis)
    _need_groups(params)
    expected = [_replaced(shapes[0], axis, size) for size in sizes]
    if list(shapes) != expected:
        raise MisshapenWeight(f"concat needs the shapes {expected}, found {list(shapes)}")
    return [_replaced(shapes[0], axis, sum(sizes))]


def split(arrays: Sequence[Array], params: Params) -> list[Array]:
    """Part an array along ``axis`` into parts of ``sizes``."""
    (array,) = arrays
    axis, groups, sizes = params["axis"], params["groups"], params["sizes"]
    ends = np.cumsum([size // groups for size in sizes])[:-1]
    runs = np.split(array.reshape(_grouped(array.shape, axis, groups)), ends, axis=axis + 1)
    return [
        run.reshape(_replaced(array.shape, axis, size))
        for run, size in zip(runs, sizes, strict=True)
    ]


def split_shapes(shapes: Sequence[Shape], params: Params) -> list[Shape]:
    """The shapes that :func:`split` gives."""
    (shape,) = shapes
    axis, sizes = params["axis"], params["sizes"]
    _need_axis(shape, axis)
    _need_groups(params)
    if shape[axis] != sum(sizes):
        parts = " + ".join(map(str, sizes))
        raise MisshapenWeight(f"split needs {parts} = {sum(sizes)} along {axis}, found {shape}")
    return [_replaced(shape, axis, size) for size in sizes]


def stack(arrays: Sequence[Array], params: Params) -> list[Array]:
    """Join arrays along a new ``axis``."""
    return [np.stack(list(arrays), axis=params["axis"])]


def stack_shapes(shapes: Sequence[Shape], params: Params) -> list[Shape]:
    """The shape that :func:`stack` gives."""
    if len(set(shapes)) != 1 or len(shapes) != params["count"]:
        raise MisshapenWeight(f"stack needs {params['count']} equal shapes, found {list(shapes)}")
    if params["axis"] > len(shapes[0]):
        raise MisshapenWeight(f"stack along {params['axis']} does not fit {shapes[0]}")
    shape = list(shapes[0])
    shape.insert(params["axis"], len(shapes))
    return [tuple(shape)]


def unstack(arrays: Sequence[Array], params: Params) -> list[Array]:
    """Part an array into its slices along ``axis``."""
    return list(np.moveaxis(arrays[0], params["axis"], 0))


def unstack_shapes(shapes: Sequence[Shape], params: Params) -> list[Shape]:
    """The shapes that :func:`unstack` gives."""
    (shape,) = shapes
    axis, count = params["axis"], params["count"]
    _need_axis(shape, axis)
    if shape[axis] != count:
        raise MisshapenWeight(f"unstack needs {count} along {axis}, found {shape}")
    return [shape[:axis] + shape[axis + 1 :]] * count


def _grouped(shape: Shape, axis: int, groups: int) -> Shape:
    return (*shape[:axis], groups, shape[axis] // groups, *shape[axis + 1 :])


def _replaced(shape: Shape, axis: int, size: int) -> Shape:
    return (*shape[:axis], size, *shape[axis + 1 :])


def _need_axis(shape: Shape, axis: int) -> None:
    if axis >= len(shape):
        raise MisshapenWeight(f"there is no dimension {axis} in {shape}")


def _need_groups(params: Params) -> None:
    sizes, groups = params["sizes"], params["groups"]
    if any(size % groups for size in sizes):
        raise MisshapenWeight(f"parts of {list(sizes)} are not {groups} equal groups")
