"""Operations on data that is here, computed by their definitions: what folds constants."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from math import prod
from typing import Any

import numpy as np

from maxtool.casting import cast
from maxtool.dtype import DType
from maxtool.graph import Dim, Shape, Tensor, TensorType
from maxtool.graph.executor import Run
from maxtool.graph.ops.slicing import IndexRange
from maxtool.parity.array_types import Array
from maxtool.parity.definitions import COMPUTED, DEFINITIONS, UNDEFINED

MOST_BYTES = 1 << 28
"""Bytes of a result."""


class Folding:
    """Runner of operations in NumPy: floats in float64, and rounded once to the result's type."""

    def prepared(
        self,
        op: str,
        types: Sequence[TensorType],  # noqa: ARG002 - the protocol's
        attributes: Mapping[str, Any],
        results: Sequence[TensorType],
    ) -> Run:
        """One operation as a function of tensors that hold data.

        Raises:
            ValueError: If it has no meaning on data alone, or the result is too large.
        """
        if op in UNDEFINED or op not in DEFINITIONS:
            raise ValueError(f"{op} cannot be computed in advance")
        for result in results:
            nbytes = prod(result.shape.static()) * result.dtype.size_in_bytes
            if nbytes > MOST_BYTES:
                raise ValueError(f"{op} gives a constant of {nbytes} bytes; at most {MOST_BYTES}")
        return partial(_run, op, {name: _plain(one) for name, one in attributes.items()}, results)


FOLDING = Folding()


def _run(
    op: str,
    attributes: Mapping[str, Any],
    results: Sequence[TensorType],
    operands: Sequence[Tensor],
) -> tuple[Tensor, ...]:
    arrays = [operand.to_numpy() for operand in operands]
    if op in COMPUTED:
        arrays = [
            array if array.dtype.kind in "biu" else array.astype(np.float64) for array in arrays
        ]
    with np.errstate(all="ignore"):
        given = DEFINITIONS[op](*arrays, **attributes)
        listed = given if isinstance(given, tuple) else (given,)
        pairs = zip(results, listed, strict=True)
        return tuple(Tensor(_typed(np.asarray(array), result.dtype)) for result, array in pairs)


def _typed(array: Array, dtype: DType) -> Array:
    if array.dtype == dtype.to_numpy():
        return np.array(array)
    if array.dtype.kind == "f" and not dtype.is_float():
        return array.astype(dtype.to_numpy())
    return cast(np.ascontiguousarray(array), dtype)[0].reshape(array.shape)


def _plain(attribute: Any) -> Any:  # noqa: ANN401 - of any operation
    """An attribute with numbers for its sizes, which are known."""
    if isinstance(attribute, IndexRange):
        return attribute.window({})
    if isinstance(attribute, Dim):
        return int(attribute)
    if isinstance(attribute, Shape | tuple):
        return tuple(_plain(one) for one in attribute)
    return attribute
