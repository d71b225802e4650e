"""Slices of a tensor in Python's notation: ``model.norm.weight[0:8]``, ``w[..., -1]``."""

from __future__ import annotations

import math
import re
from collections.abc import Container
from dataclasses import dataclass
from types import EllipsisType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from maxtool.dtype import DType
from maxtool.errors import UsageError
from maxtool.quantization.codec import dequantize
from maxtool.weights.weight_data import WeightData
from maxtool.weights.weight_elements import Weight

# Elements that are decoded at once; what is shown of a tensor is read by people.
MAX_ELEMENTS = 1 << 24

_SELECTION = re.compile(r"(?P<name>.*)\[(?P<index>[^\[\]]*)\]", re.DOTALL)
_NUMBER = re.compile(r"[+-]?\d{1,18}")

Index = int | slice | EllipsisType


@dataclass(frozen=True, slots=True)
class Selection:
    """A tensor's name and which of its elements are meant.

    Attributes:
        index: One entry per dimension from the slowest on; all elements if it is empty.
        text: The index as it was written.
    """

    name: str
    index: tuple[Index, ...] = ()
    text: str = ""


def parse(text: str, known: Container[str] = ()) -> Selection:
    """Read ``NAME`` or ``NAME[INDEX, ...]``: integers, ``start:stop:step`` and ``...``.

    Of the ``known`` names of tensors, one that ends in brackets itself is no slice.
    """
    match = _SELECTION.fullmatch(text)
    if match is None or text in known:
        return Selection(text)
    index = tuple(_entry(part.strip(), text) for part in match["index"].split(","))
    if index.count(...) > 1:
        raise UsageError(f"{text!r} has more than one '...'")
    return Selection(match["name"], index, f"[{match['index']}]")


def _entry(part: str, text: str) -> Index:
    if part == "...":
        return ...
    bounds = [bound.strip() for bound in part.split(":")]
    good = all(not bound or _NUMBER.fullmatch(bound) for bound in bounds)
    if not good or len(bounds) > 3 or part == "":
        hint = "write NAME, NAME[3], NAME[0:8] or NAME[..., 0]"
        raise UsageError(f"{part!r} in {text!r} is not an index", hint=hint)
    numbers = [int(bound) if bound else None for bound in bounds]
    if len(numbers) == 1 and numbers[0] is not None:
        return numbers[0]
    if numbers[2:] == [0]:
        raise UsageError(f"the step in {text!r} is zero")
    return slice(*numbers)


def take(weight: Weight, selection: Selection) -> NDArray[Any]:
    """The elements selected; of quantized data only the blocks they lie in are decoded."""
    shape = weight.shape
    index = _full(selection, shape)
    outer, last = index[:-1], index[-1:]
    try:
        probe = np.broadcast_to(np.empty((), np.uint8), shape)
        size = math.prod(probe[index].shape)
        rows = math.prod(probe[(*outer, ...)].shape[:-1]) if shape else 1
    except (IndexError, ValueError) as error:
        what = f"{selection.text} does not fit the shape {list(shape)}"
        raise UsageError(what, tensor=selection.name) from error
    if size > MAX_ELEMENTS:
        what = f"{size} elements are selected; at most {MAX_ELEMENTS} are shown"
        raise UsageError(what, tensor=selection.name, hint=f"narrow it: {selection.name}[0:8]")
    if weight.quantization_encoding is not None:
        return _decoded(weight, outer, last[0], rows)
    if isinstance(weight, WeightData):
        return np.asarray(weight.data[index])
    if not shape:
        return weight.items(slice(0, 1)).reshape(())
    wanted = _columns(weight, last[0])
    cut = _cut(weight, outer, wanted)
    return cut[..., 0] if isinstance(last[0], int) else cut


def _columns(weight: Weight, last: int | slice) -> range:
    """The columns that an index of the last dimension means."""
    wanted = range(weight.shape[-1])[last]
    return wanted if isinstance(wanted, range) else range(wanted, wanted + 1)


def _cut(weight: Weight, outer: tuple[int | slice, ...], columns: range) -> NDArray[Any]:
    """Items ``columns`` of the rows that the other dimensions' indices mean."""
    if isinstance(weight, WeightData):
        return np.asarray(weight.data[(*outer, slice(columns.start, columns.stop))])
    numbers: NDArray[np.intp] = np.zeros((), np.intp)
    for size, index in zip(weight.shape, outer, strict=False):
        wanted = range(size)[index]
        numbers = numbers * size
        if isinstance(wanted, range):
            each = np.arange(wanted.start, wanted.stop, wanted.step, dtype=np.intp)
            numbers = numbers[..., None] + each
        else:
            numbers = numbers + wanted
    rows = weight.rows(numbers.reshape(-1), columns)
    return rows.reshape(*numbers.shape, len(columns))


def _full(selection: Selection, shape: tuple[int, ...]) -> tuple[int | slice, ...]:
    """An index for every dimension, ``...`` written out."""
    index = selection.index if ... in selection.index else (*selection.index, ...)
    gap, missing = index.index(...), len(shape) - len(index) + 1
    if missing < 0:
        what = f"{selection.text} has more indices than the shape {list(shape)}"
        raise UsageError(what, tensor=selection.name)
    filled = (*index[:gap], *[slice(None)] * missing, *index[gap + 1 :])
    return tuple(entry for entry in filled if entry is not ...)


def _decoded(
    weight: Weight, outer: tuple[int | slice, ...], last: int | slice, rows: int
) -> NDArray[Any]:
    """Decode the blocks of the rows ``outer`` that hold ``last``, then cut it out."""
    encoding = weight.quantization_encoding
    assert encoding is not None  # noqa: S101 - for the type checker
    numbers = _columns(weight, last)
    each, size = encoding.elements_per_block, encoding.block_size
    low, high = (min(numbers), max(numbers) + 1) if numbers else (0, 0)
    first, end = low // each, -(-high // each)
    if rows * (end - first) * each > MAX_ELEMENTS:
        what = f"more than {MAX_ELEMENTS} elements would have to be decoded"
        raise UsageError(what, tensor=weight.name, hint="select fewer rows")
    packed = np.ascontiguousarray(_cut(weight, outer, range(first * size, end * size)))
    values = dequantize(packed, encoding, tensor=weight.name)
    inside = [number - first * each for number in numbers]
    return values[..., inside[0]] if isinstance(last, int) else values[..., inside]


def readable(values: NDArray[Any]) -> NDArray[Any]:
    """Values in a type NumPy prints well: ml_dtypes' floats as float32, which holds them all."""
    dtype = DType.from_numpy(values.dtype)
    return values.astype(np.float32) if dtype.is_float() and values.dtype.itemsize < 4 else values
